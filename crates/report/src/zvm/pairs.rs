//! Pairs each cell of a run at one level with the same cell at another level, and with the corresponding published table.
//!
//! A published table corresponds to a cell if both have the same connectivity, workload and MTU. For each row of the table, the
//! measured ratio of the two cells is computed from trials of the same round, as in `judge`. No ratio mixes printed and measured
//! figures.

use super::findings::LEVELS;
use super::published::PublishedTable;
use super::rows::{self, Rows};
use siga_model::error::Result;
use siga_plan::matrix::Cell;
use siga_plan::path::guest::{Attach, GuestPath};
use siga_results::judge::{self, Figures, Judgement};
use siga_results::record::Slot;
use siga_results::store::Run;
use siga_results::summary::Reduced;
use std::collections::{BTreeMap, HashMap};

/// The same cell at a base level and at another level.
#[derive(Debug)]
pub(crate) struct Pair {
    /// Index in `Reduced::cells` of the cell at the base level.
    pub(crate) base: usize,
    /// Index in `Reduced::cells` of the cell at the other level.
    pub(crate) new: usize,
    /// The cell at the other level.
    pub(crate) cell: Cell,
    /// The name of the base level.
    pub(crate) base_level: String,
    /// Index of the published table that corresponds to the cell; `None` if there is none, or if the two levels are not 420 and
    /// 430.
    pub(crate) table: Option<usize>,
    /// The figures of the trials: first at the base level, then at the other level.
    pub(super) rows: [Rows; 2],
    /// The reason why the two cells cannot be compared; `None` if they can.
    pub(super) obstacle: Option<String>,
}

/// An estimate of a ratio or a value from several trials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Location {
    /// The Hodges-Lehmann estimate. It is computed from logarithms of the samples and converted back.
    pub(crate) value: f64,
    /// The 95% interval; `None` if there are too few trials.
    pub(crate) interval: Option<(f64, f64)>,
    /// Number of trials (for a value), or number of pairs of trials (for a ratio).
    pub(crate) trials: usize,
}

impl Location {
    /// Computes the estimate from the logarithms of the samples. Returns `None` if a logarithm is not finite or if there are no
    /// samples.
    pub(super) fn of(logs: &[f64]) -> Option<Self> {
        let judged = Judgement::paired(logs)?;
        Some(Self { value: judged.ratio, interval: judged.low.zip(judged.high), trials: logs.len() })
    }
}

/// Returns the levels that the run has measured, with the base level first. The base level is 420 if both 420 and 430 were
/// measured, otherwise the first level of the run.
pub(crate) fn levels<'a>(run: &'a Run, reduced: &'a Reduced) -> Vec<&'a str> {
    let mut levels: Vec<&str> = run.levels.iter().map(|level| level.name.as_str()).collect();
    for summary in &reduced.cells {
        if !levels.contains(&summary.cell.level.as_str()) {
            levels.push(&summary.cell.level);
        }
    }
    levels.retain(|level| reduced.cells.iter().any(|summary| summary.cell.level == *level));
    if LEVELS.iter().all(|level| levels.contains(level)) {
        levels.sort_by_key(|level| *level != LEVELS[0]);
    }
    levels
}

/// Pairs the cells of the levels `base` and `new` as their comparison does (`judge::levels`).
pub(super) fn of_levels(
    run: &Run,
    reduced: &Reduced,
    figures: &Figures<'_>,
    published: &[PublishedTable],
    [base, new]: [&str; 2],
) -> Result<Vec<Pair>> {
    let cells: Vec<Cell> = reduced.cells.iter().map(|summary| summary.cell.clone()).collect();
    if judge::pairs_of_levels(&cells, base, new).is_empty() {
        return Ok(Vec::new());
    }
    let compared = judge::levels(run, base, new)?;
    let obstacle = |row: &judge::Row| match &row.verdict {
        judge::Verdict::NotComparable { reason } => Some((row.new.clone(), reason.clone())),
        judge::Verdict::Equivalent
        | judge::Verdict::Better
        | judge::Verdict::Worse
        | judge::Verdict::Inconclusive { .. } => None,
    };
    let obstacles: HashMap<Cell, String> = compared.rows.iter().filter_map(obstacle).collect();
    let mut pairs = Vec::new();
    for (base_cell, cell) in judge::pairs_of_levels(&cells, base, new) {
        let at = |cell: &Cell| cells.iter().position(|other| other == cell);
        let (Some(base_at), Some(new_at)) = (at(&base_cell), at(&cell)) else { continue };
        let of_tables = [base, new] == LEVELS;
        if of_tables && base_cell.mtu != cell.mtu {
            // These levels set no MTU, and the report compares cells of one MTU.
            continue;
        }
        let table = published.iter().position(|table| table.shows(&cell));
        pairs.push(Pair {
            base: base_at,
            new: new_at,
            rows: [rows::of_cell(figures, &base_cell)?, rows::of_cell(figures, &cell)?],
            table: table.filter(|_| of_tables),
            obstacle: obstacles.get(&cell).cloned(),
            cell,
            base_level: base.to_owned(),
        });
    }
    pairs.sort_by_key(|pair| pair.new);
    Ok(pairs)
}

/// Returns the index of the pair that corresponds to a published table and a number of clients. If several pairs correspond, prefers one
/// whose applications are separate processes, as in the published environment.
pub(super) fn of_table(pairs: &[Pair], published: &[PublishedTable], id: &str, clients: u32) -> Option<usize> {
    let is_here = |pair: &Pair| {
        let table = pair.table.map(|table| &published[table]);
        pair.cell.clients == clients && table.is_some_and(|table| table.id == id)
    };
    let apart = |pair: &Pair| pair.cell.path.parse::<GuestPath>().is_ok_and(|path| path.attach == Attach::Iucv);
    let here = pairs.iter().enumerate().filter(|(_, pair)| is_here(pair));
    here.min_by_key(|(_, pair)| !apart(pair)).map(|(at, _)| at)
}

impl Pair {
    /// Returns the estimate of a row's ratio (new divided by base) from trials of the same rounds. Returns `None` if no round has
    /// trials of both levels, or if a figure is not above zero.
    pub(crate) fn ratio(&self, row: &str) -> Option<Location> {
        let values = self.ratios(row)?;
        Location::of(&values.values().map(|ratio| ratio.ln()).collect::<Vec<_>>())
    }

    /// Returns the ratio of a row (new divided by base) in each round that has sound trials of both levels. Returns `None` under
    /// the conditions of `ratio`.
    pub(super) fn ratios(&self, row: &str) -> Option<BTreeMap<Slot, f64>> {
        let [base, new] = [self.rows[0].get(row)?, self.rows[1].get(row)?];
        let both: Vec<(Slot, f64, f64)> =
            base.iter().filter_map(|(slot, base)| Some((*slot, *base, *new.get(slot)?))).collect();
        let above_zero = both.iter().all(|(_, base, new)| *base > 0.0 && *new > 0.0);
        (above_zero && !both.is_empty()).then(|| both.iter().map(|(slot, base, new)| (*slot, new / base)).collect())
    }

    /// Returns true if the pair's levels are 420 and 430, which the published tables compare.
    pub(crate) fn is_of_tables(&self) -> bool {
        [self.base_level.as_str(), self.cell.level.as_str()] == LEVELS
    }

    /// Returns the figures of a row that the corresponding published table has: base, new, ratio. Returns `None` if there is no
    /// such table or row.
    pub(crate) fn printed(&self, published: &[PublishedTable], row: &str) -> Option<[f64; 3]> {
        published[self.table?].figures(row, self.cell.clients)
    }
}
