//! Makes the figures of a run's cells agree with the ratios of its comparisons.
//!
//! A ratio comes from all pairs of trials, and the figures of a cell from one trial, so the quotient of two cells' figures is not
//! exactly their ratio. Reports show both side by side. So the rate and the CPU times of each compared cell are scaled: a base has
//! its estimate over the trials, and every other cell that of its base times the ratio.

use super::comparison::{Comparison, Row, Verdict};
use super::metric::Metric;
use crate::store::Run;
use crate::summary::{self, Reduced};
use siga_model::error::Result;
use siga_plan::accounting::AccountingMethod;
use siga_plan::matrix::Cell;
use std::collections::HashMap;

/// The figures of a run and the comparisons that its reports show.
#[derive(Debug, Clone)]
pub struct Judged {
    /// The figures of each cell's median trial.
    pub median: Reduced,
    /// The same, with rates and CPU times that agree with the ratios.
    pub agreed: Reduced,
    /// The comparisons of [`super::shown`].
    pub comparisons: Vec<Comparison>,
}

impl Judged {
    /// Reduces and compares a run. `method` is the accounting method of CPU times; if it is `None`, each cell uses the best method for
    /// which it has data.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if a record is damaged.
    pub fn of(run: &Run, method: Option<AccountingMethod>) -> Result<Self> {
        let (median, comparisons) = (summary::reduce(run, method)?, super::shown(run)?);
        Ok(Self { agreed: agree(&median, &comparisons), median, comparisons })
    }
}

/// Returns the cell with which the tables of a run compare `cell`: the first cell with the same workload and number of pairs if they are
/// compared, otherwise the base of the first comparison. Returns `None` if `cell` is that first cell or is not compared.
pub fn base_of<'a>(comparisons: &'a [Comparison], cells: &[Cell], cell: &Cell) -> Option<&'a Cell> {
    let first = cells.iter().find(|other| (other.workload, other.clients) == (cell.workload, cell.clients))?;
    let rows = || comparisons.iter().flat_map(|one| &one.rows).filter(|row| row.new == *cell);
    let found = rows().min_by_key(|row| row.base != *first).map(|row| &row.base);
    found.filter(|_| first != cell)
}

fn agree(median: &Reduced, comparisons: &[Comparison]) -> Reduced {
    let cells: Vec<Cell> = median.cells.iter().map(|summary| summary.cell.clone()).collect();
    let rows = |metric: Metric| {
        let all = comparisons.iter().flat_map(|one| &one.rows);
        all.filter(|row| row.metric == metric && !matches!(row.verdict, Verdict::NotComparable { .. }))
            .collect::<Vec<_>>()
    };
    let bases: HashMap<&Cell, &Cell> =
        cells.iter().filter_map(|cell| Some((cell, base_of(comparisons, &cells, cell)?))).collect();
    let (rates, totals) = (rows(Metric::Rate), rows(Metric::TOTAL));
    let mut agreed = median.clone();
    for summary in &mut agreed.cells {
        let cell = summary.cell.clone();
        if let Some(rate) = estimate(&rates, &bases, &cell, cells.len()) {
            summary.rate = rate;
        }
        let total = summary.cpu.total.total;
        if let Some(cpu) = estimate(&totals, &bases, &cell, cells.len()).filter(|_| total > 0.0) {
            summary.cpu = summary.cpu.times(cpu / total);
        }
    }
    agreed
}

/// Returns the figure of a cell that agrees with the ratios: its base's times the ratio, or the estimate over its own trials if it is the
/// base of others. `steps` bounds the way from cell to base.
fn estimate(rows: &[&Row], bases: &HashMap<&Cell, &Cell>, cell: &Cell, steps: usize) -> Option<f64> {
    let own = || rows.iter().find(|row| row.base == *cell).map(|row| row.values.0);
    let Some(base) = bases.get(cell).filter(|_| steps > 0) else { return own() };
    match rows.iter().find(|row| row.new == *cell && row.base == **base) {
        Some(row) => Some(estimate(rows, bases, base, steps - 1)? * row.ratio),
        None => own(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    /// Returns a run of three paths in which the scatter of the trials differs, so that medians and ratios do not agree.
    fn run() -> Run {
        let mut run = testing::run("run", Vec::new());
        for round in 0..9 {
            for (at, path) in ["veth", "veth-routed", "hipersockets-routed"].into_iter().enumerate() {
                let step = u64::from(round) * 7 % 9 * (at as u64 + 1);
                let mut trial = testing::trial(path, round, 700 + 90 * at as u64 + 13 * step, None);
                trial.elapsed_ns = 1_000_000_000 + 300_000_000 * at as u64 + 20_000_000 * step;
                run.trials.push(trial);
            }
        }
        run
    }

    #[test]
    fn figures_differences_and_ratios_agree() {
        let run = run();
        let Judged { median, agreed, comparisons } = Judged::of(&run, None).unwrap();
        let find = |reduced: &Reduced, path: &str| {
            let found = reduced.cells.iter().find(|summary| summary.cell.path == path);
            found.map(|summary| (summary.rate, summary.cpu.total.total)).unwrap()
        };
        let mut apart = 0;
        for (base, new) in [("veth", "veth-routed"), ("veth-routed", "hipersockets-routed")] {
            let own = comparisons.iter().find(|one| (one.base.as_str(), one.new.as_str()) == (base, new)).unwrap();
            let ratio = |metric: Metric| own.rows.iter().find(|row| row.metric == metric).unwrap().ratio;
            let ((rate, cpu), (new_rate, new_cpu)) = (find(&agreed, base), find(&agreed, new));
            assert!(
                (new_rate / rate - ratio(Metric::Rate)).abs() < 1e-9
                    && (new_cpu / cpu - ratio(Metric::TOTAL)).abs() < 1e-9
            );
            let (raw, new_raw) = (find(&median, base).0, find(&median, new).0);
            apart += usize::from((new_raw / raw - ratio(Metric::Rate)).abs() > 1e-4);
            for row in &own.rows {
                assert!((row.values.1 / row.values.0 - row.ratio).abs() < 1e-9, "{row:?}");
            }
        }
        assert!(apart > 0, "the medians of these trials agree by themselves");
        let answers = super::super::Answers::of(&run, &agreed, &comparisons);
        let (difference, cost) = (find(&agreed, "veth-routed").1 - find(&agreed, "veth").1, &answers.overheads[0].cost);
        assert!((cost.value - difference).abs() < 1e-9, "{cost:?}, {difference}");
        assert!(cost.low.unwrap() <= cost.value && cost.value <= cost.high.unwrap());
    }

    #[test]
    fn components_still_add_up() {
        for summary in Judged::of(&run(), None).unwrap().agreed.cells {
            let cpu = summary.cpu;
            let parts =
                cpu.client.total + cpu.router.map_or(0.0, |router| router.total) + cpu.server.total + cpu.other.total;
            assert!((parts + cpu.residue - cpu.total.total).abs() < 1e-9, "{cpu:?}");
        }
    }
}
