//! Treats a run as a repetition of the measurement that z/VM's report published: pairs its cells with the published tables, and
//! checks the report's findings in it.

use super::check::{self, CheckedFinding};
use super::pairs::{Pair, levels, of_levels};
use super::published::{PublishedTable, shown};
use siga_model::error::Result;
use siga_plan::accounting::AccountingMethod;
use siga_plan::matrix::Cell;
use siga_results::judge::Figures;
use siga_results::store::Run;
use siga_results::summary::Reduced;

/// A run that is compared with the published tables.
#[derive(Debug)]
pub(crate) struct Repeat {
    /// All published tables; empty if no levels are compared.
    pub(crate) published: Vec<PublishedTable>,
    /// One pair for each cell that was measured at the base level and at another level.
    pub(crate) pairs: Vec<Pair>,
    /// The checked findings; empty if the run did not measure both 420 and 430.
    pub(crate) judged: Vec<CheckedFinding>,
    /// The checked findings of the run's plan.
    pub(crate) of_plan: Vec<CheckedFinding>,
}

impl Repeat {
    /// Compares each level of a run with the base level, which is 420 if the run measured 420 and 430, otherwise the run's first
    /// level. Compares nothing if the machine was emulated. `reduced` must have been computed with the accounting method `method`.
    /// Returns an error of kind `Environment` if the run's record is damaged.
    pub(crate) fn of(run: &Run, reduced: &Reduced, method: Option<AccountingMethod>) -> Result<Self> {
        let levels = levels(run, reduced);
        let comparable = |(_, others): &(&&str, &[&str])| !others.is_empty() && !run.environment.is_emulated();
        let Some((base, others)) = levels.split_first().filter(comparable) else {
            return Ok(Self { published: Vec::new(), pairs: Vec::new(), judged: Vec::new(), of_plan: Vec::new() });
        };
        let published = shown()?;
        let figures = Figures::new(run, method);
        let mut pairs = Vec::new();
        for new in others {
            pairs.extend(of_levels(run, reduced, &figures, &published, [base, new])?);
        }
        let judged = check::judge(run, reduced, &published, &pairs)?;
        let of_plan = check::judge_plan(run, reduced, &published, &figures)?;
        Ok(Self { published, pairs, judged, of_plan })
    }

    /// Returns the pair in which `new` is the cell of the other level; `None` for a cell of the base level.
    pub(crate) fn pair(&self, new: &Cell) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.cell == *new)
    }
}

#[cfg(test)]
pub(crate) mod tests;
