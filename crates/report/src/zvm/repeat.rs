//! A run as a repetition of the published measurement: its cells with the corresponding published tables, and the checked
//! findings.

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
    /// All published tables; empty if the run has only one level.
    pub(crate) published: Vec<PublishedTable>,
    /// Each cell of a level other than the base level, with the same cell of the base level.
    pub(crate) pairs: Vec<Pair>,
    /// The checked findings; empty unless both levels of the published tables were measured.
    pub(crate) judged: Vec<CheckedFinding>,
}

impl Repeat {
    /// Compares every other level of a run with the base level: the run's first level, or 420 if 430 was measured too.
    /// `reduced` must be reduced with the same accounting method. Returns an environment error if the run's record is
    /// damaged.
    pub(crate) fn of(run: &Run, reduced: &Reduced, method: Option<AccountingMethod>) -> Result<Self> {
        let levels = levels(run, reduced);
        let Some((base, others)) = levels.split_first().filter(|(_, others)| !others.is_empty()) else {
            return Ok(Self { published: Vec::new(), pairs: Vec::new(), judged: Vec::new() });
        };
        let published = shown()?;
        let figures = Figures::new(run, method);
        let mut pairs = Vec::new();
        for new in others {
            pairs.extend(of_levels(run, reduced, &figures, &published, [base, new])?);
        }
        let judged = check::judge(run, reduced, &published, &pairs)?;
        Ok(Self { published, pairs, judged })
    }

    /// Returns the pair of the cell `new`, which has a level other than the base level.
    pub(crate) fn pair(&self, new: &Cell) -> Option<&Pair> {
        self.pairs.iter().find(|pair| pair.cell == *new)
    }
}

#[cfg(test)]
pub(crate) mod tests;
