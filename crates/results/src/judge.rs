//! Compares two sides (two runs, two levels of a run, or two paths of a run). Each metric of each cell receives one of five
//! verdicts. A cell is a combination of path, workload, MTU, number of client-server pairs and level (a named set of settings).
//!
//! One trial is one sample of the statistics. Within a run, the two trials of a pair come from the same round. Trials of two runs
//! are compared as two unpaired samples, because the host may have changed between the runs. A ratio is the figure of the new
//! side divided by the figure of the base side.
//!
//! This module selects the sides and decides which cells may be compared. The statistics are in `crate::stats`.

mod agree;
mod answers;
mod comparison;
mod decide;
mod figures;
pub mod hosts;
mod itr;
mod mean;
mod metric;
mod noise;
mod partners;
mod rounds;
mod settings;
mod stages;
mod table;
mod values;
mod vary;
pub mod why;

pub use agree::{Judged, base_of};
pub use answers::{Answers, Beside, RouterOverhead};
pub use comparison::{Comparison, Form, Row, Subject, Verdict};
pub use decide::{Judgement, LEVEL};
pub use figures::Figures;
pub use itr::with_itr;
pub use mean::Mean;
pub use metric::{Metric, Mode, Part};
pub(crate) use partners::pairs;
pub(crate) use rounds::Rounds;
pub use stages::{Adjusted, adjusted};
pub use vary::Vary;

use crate::store::Run;
use partners::{Sides, partners, subjects};
use siga_model::error::{Error, Result};
use siga_plan::matrix::Cell;
use std::collections::{BTreeSet, HashSet};

/// Compares two runs, cell by cell. If each run has only one level, the cells are compared even if the two levels have different
/// names.
///
/// # Errors
/// Returns an error of kind `Usage` if the runs have no cell in common. Returns an error of kind `Environment` if a record is
/// damaged.
pub fn runs(base: &Run, new: &Run) -> Result<Comparison> {
    runs_varying(base, new, &[])
}

/// Compares two runs like [`runs`]. The parts of the environment in `vary` may differ, because their effect is what is compared.
///
/// # Errors
/// Returns the errors of [`runs`].
pub fn runs_varying(base: &Run, new: &Run, vary: &[Vary]) -> Result<Comparison> {
    let (own, others) = (base.cells(), new.cells());
    let single = |cells: &[Cell]| cells.windows(2).all(|pair| pair[0].level == pair[1].level);
    let mut pairs = partners(&own, &others, Clone::clone);
    if let (true, true, Some(other)) = (pairs.is_empty(), single(&own) && single(&others), others.first()) {
        pairs = partners(&own, &others, |cell| Cell { level: other.level.clone(), ..cell.clone() });
    }
    let names = [base, new].map(|run| run.directory.display().to_string());
    if base.directory.canonicalize().is_ok_and(|own| new.directory.canonicalize().is_ok_and(|other| own == other)) {
        return Err(Error::usage(format!(
            "{} and {} are the same run, so there is nothing to compare",
            names[0], names[1]
        ))
        .hint("to see how much two measurements of one setting differ, use `siga run --level plain,aa`: the level `aa` is a copy of `plain`"));
    }
    if pairs.is_empty() {
        let first = |cells: &[Cell]| cells.first().map_or("no trial".to_owned(), ToString::to_string);
        return Err(Error::usage(format!(
            "{} and {} have no cell in common, so there is nothing to compare",
            names[0], names[1]
        ))
        .hint(format!("the first run has {}; the second run has {}", first(&own), first(&others))));
    }
    let alone = |cells: &[Cell], paired: HashSet<&Cell>, run: &str, other: &Run| {
        let alone = cells.iter().filter(|cell| !paired.contains(cell));
        let why = |cell: &Cell| {
            let reason = other.skipped.iter().rev().find(|skipped| skipped.cell == *cell);
            reason
                .map(|skipped| format!("; reason in the other run: {}", skipped.reason.replace("\n  ", "; ")))
                .unwrap_or_default()
        };
        alone.map(|cell| (cell.clone(), format!("only in {run}{}", why(cell)))).collect::<Vec<_>>()
    };
    let mut skipped = alone(&own, pairs.iter().map(|(base, _)| base).collect(), &names[0], new);
    skipped.extend(alone(&others, pairs.iter().map(|(_, new)| new).collect(), &names[1], base));
    table::compare((Subject::Runs, vary), (base, &names[0]), (new, &names[1]), &pairs, skipped)
}

/// Compares two levels of one run, cell by cell.
///
/// # Errors
/// Returns an error of kind `Usage` if the run has not measured one of the levels. Returns an error of kind `Environment` if a
/// record is damaged.
pub fn levels(run: &Run, base: &str, new: &str) -> Result<Comparison> {
    within_run(run, Subject::Levels, base, new)
}

/// Returns the pairs of cells (base, new) that [`levels`] compares in a run with these cells.
pub fn pairs_of_levels(cells: &[Cell], base: &str, new: &str) -> Vec<(Cell, Cell)> {
    Sides::of(cells, Subject::Levels, base, new).pairs()
}

/// Compares two paths of one run, cell by cell.
///
/// # Errors
/// Returns an error of kind `Usage` if the run has not measured one of the paths. Returns an error of kind `Environment` if a
/// record is damaged.
pub fn paths(run: &Run, base: &str, new: &str) -> Result<Comparison> {
    within_run(run, Subject::Paths, base, new)
}

/// Compares two MTUs of one run, cell by cell. `base` and `new` are numbers of bytes.
///
/// # Errors
/// Returns an error of kind `Usage` if the run has not measured one of the MTUs. Returns an error of kind `Environment` if a record is
/// damaged.
pub fn mtus(run: &Run, base: &str, new: &str) -> Result<Comparison> {
    within_run(run, Subject::Mtus, base, new)
}

/// Returns the comparisons that siga makes by default for a run:
/// - If the run has several levels, each level after the first is compared with a base level. A variant, which differs from a
///   level in one feature, is compared with that level. All other levels are compared with the first level.
/// - If the run has one level, each path with a router is compared with the path without the router. Each path over siga's own
///   network is compared with the path over the kernel's network that has the same number of routers.
///
/// A comparison whose sides have no cell in common is left out.
///
/// # Errors
/// Returns an error of kind `Environment` if a record is damaged.
pub fn within(run: &Run) -> Result<Vec<Comparison>> {
    let cells = run.cells();
    let mut subjects = subjects(&run.levels, &cells);
    subjects.retain(|(subject, base, new)| !Sides::of(&cells, *subject, base, new).pairs().is_empty());
    subjects.iter().map(|(subject, base, new)| within_run(run, *subject, base, new)).collect()
}

/// Returns all comparisons whose verdicts the reports of a run show: those of [`within`], and those of the run's paths and MTUs.
///
/// # Errors
/// Returns an error of kind `Environment` if a record is damaged.
pub fn shown(run: &Run) -> Result<Vec<Comparison>> {
    let cells = run.cells();
    let mut further = partners::further(&run.levels, &cells);
    further.retain(|(subject, base, new)| !Sides::of(&cells, *subject, base, new).pairs().is_empty());
    let further = further.iter().map(|(subject, base, new)| within_run(run, *subject, base, new));
    Ok(within(run)?.into_iter().chain(further.collect::<Result<Vec<_>>>()?).collect())
}

/// Returns true if two paths of a run have at least one cell in common, so that [`paths`] can compare them.
pub fn share_a_cell(run: &Run, base: &str, new: &str) -> bool {
    !Sides::of(&run.cells(), Subject::Paths, base, new).pairs().is_empty()
}

fn within_run(run: &Run, subject: Subject, base: &str, new: &str) -> Result<Comparison> {
    if base == new {
        return Err(Error::usage(format!("`{base}` cannot be compared with itself"))
            .hint("to see how much two measurements of one setting differ, use `siga run --level plain,aa`: the level `aa` is a copy of `plain`"));
    }
    let cells = run.cells();
    if cells.is_empty() {
        return Err(Error::usage(format!("the run {} contains no trial", run.directory.display()))
            .hint("`siga show` prints why its cells were skipped"));
    }
    let sides = Sides::of(&cells, subject, base, new);
    for (name, own) in [(base, &sides.base), (new, &sides.new)] {
        if own.is_empty() {
            let list = |subject: Subject| {
                let names: BTreeSet<_> = cells.iter().map(|cell| subject.of(cell)).collect();
                names.into_iter().collect::<Vec<_>>().join(", ")
            };
            return Err(Error::usage(format!(
                "the run {} contains no measurement of `{name}`",
                run.directory.display()
            ))
            .hint(format!(
                "the run has these levels: {}; and it has these paths: {}",
                list(Subject::Levels),
                list(Subject::Paths)
            )));
        }
    }
    let pairs = sides.pairs();
    if pairs.is_empty() {
        return Err(Error::usage(format!(
            "`{base}` and `{new}` have no cell in common, so there is nothing to compare"
        ))
        .hint("`siga show` lists the cells of the run"));
    }
    let paired: HashSet<&Cell> = pairs.iter().flat_map(|(base, new)| [base, new]).collect();
    let alone = sides.base.iter().chain(&sides.new).filter(|cell| !paired.contains(cell));
    let skipped =
        alone.map(|cell| (cell.clone(), "only one side of the comparison has this cell".to_owned())).collect();
    table::compare((subject, &[]), (run, base), (run, new), &pairs, skipped)
}

#[cfg(test)]
mod tests;
