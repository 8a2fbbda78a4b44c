//! The networking matrix of "Linux on System z performance" (2009): the rates and the server's CPU times of its types of connection, and its
//! overview of throughput, which is computed from a run and judged.
//!
//! The document's overview is data (`published/linux2009.toml`). A run belongs to it if tables of its plan have the names of the
//! connections there, as in the plan `linux2009`.

mod data;
pub(crate) mod text;

use crate::zvm::check::{CheckedFinding, Draft, NOT_COMPARABLE, checked};
use crate::zvm::findings::{Finding, Origin};
use data::{Side, Stated, StatedCase, stated};
use serde_json::{Value, json};
use siga_model::error::Result;
use siga_plan::matrix::Cell;
use siga_plan::plan::table::Table;
use siga_plan::work::Work;
use siga_results::judge::Figures;
use siga_results::record::Slot;
use siga_results::store::Run;
use siga_results::summary::{Reduced, Summary};
use std::collections::BTreeMap;

/// Number of connections of all measurements of the document.
const CONNECTIONS: u32 = 10;

/// The matrix of a run.
#[derive(Debug)]
pub(crate) struct Connections {
    /// The overview: its entries in the order of the document.
    pub(crate) overview: Vec<Entry>,
    /// The workloads that the run has measured, in the order of the document.
    pub(crate) workloads: Vec<Block>,
}

/// An entry of the overview.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The row of the overview.
    pub(crate) row: String,
    /// The column of the overview: the work.
    pub(crate) column: String,
    /// The entry as printed.
    pub(crate) printed: String,
    /// The entry as a finding, with its cases.
    pub(crate) checked: CheckedFinding,
}

/// The figures of one workload.
#[derive(Debug)]
pub(crate) struct Block {
    /// The workload.
    pub(crate) workload: Work,
    /// The name that the document gives to the workload, and the other name that it also uses.
    pub(crate) name: String,
    /// A line for each connection and MTU.
    pub(crate) lines: Vec<Line>,
}

/// The figures of one connection with one MTU.
#[derive(Debug)]
pub(crate) struct Line {
    /// The connection, as the document names it.
    pub(crate) connection: String,
    /// The MTU in bytes.
    pub(crate) mtu: Option<u32>,
    /// Units per second: the mean of all trials, with its 95% interval if there are enough trials.
    pub(crate) rate: (f64, Option<(f64, f64)>),
    /// CPU time of the server in milliseconds per unit.
    pub(crate) server_ms: f64,
}

/// Returns the matrix of a run; `None` if the run has measured no two sides of the overview, or if its machine was emulated. Returns an
/// error of kind `Incomplete` if the published data are inconsistent.
pub(crate) fn of(run: &Run, reduced: &Reduced, figures: &Figures<'_>) -> Result<Option<Connections>> {
    if run.plan.table.is_empty() || run.environment.is_emulated() {
        return Ok(None);
    }
    let published = stated()?;
    let rates = Rates { run, reduced, figures };
    let entry = |stated: &Stated| {
        let drafts = stated.workloads.iter().flat_map(|work| stated.cases.iter().map(|case| rates.draft(work, case)));
        let finding = Finding::of_ratio(&stated.id, &stated.says, (stated.above, stated.below), Origin::Overview);
        Entry {
            row: stated.row.clone(),
            column: stated.column.clone(),
            printed: stated.printed.clone(),
            checked: checked(finding, drafts.collect(), run.plan.smoke),
        }
    };
    let overview: Vec<Entry> = published.findings.iter().map(entry).collect();
    if !overview.iter().any(|entry| entry.checked.is_measured()) {
        return Ok(None);
    }
    let block = |named: &data::Named| {
        let alias =
            named.alias.as_ref().map(|alias| format!(", elsewhere in the document: {alias}")).unwrap_or_default();
        let workload = named.workload.parse().ok().map(Work::Network)?;
        let lines = rates.lines(workload);
        (!lines.is_empty()).then(|| Block { workload, name: format!("{}{alias}", named.name), lines })
    };
    Ok(Some(Connections { overview, workloads: published.workloads.iter().filter_map(block).collect() }))
}

/// The rates of a run.
struct Rates<'a> {
    run: &'a Run,
    reduced: &'a Reduced,
    figures: &'a Figures<'a>,
}

impl Rates<'_> {
    fn draft(&self, work: &str, case: &StatedCase) -> Draft {
        Draft {
            name: format!("{} {work}", case.name),
            published: case.published,
            logs: self.logs(work, case),
            pairs: Vec::new(),
            connectivity: None,
        }
    }

    /// Returns the logarithm of the ratio of each round, or the reason why there is none. Several connections of one side count with
    /// their geometric mean.
    fn logs(&self, work: &str, case: &StatedCase) -> std::result::Result<Vec<f64>, String> {
        let new = self.side(work, &case.new)?;
        let base = self.side(work, &case.base)?;
        let ratio = |(slot, log): (&Slot, &f64)| Some(log - base.get(slot)?);
        let logs: Vec<f64> = new.iter().filter_map(ratio).collect();
        if logs.is_empty() { Err("no round contains all cells of this case".to_owned()) } else { Ok(logs) }
    }

    /// Returns the mean logarithm of the rates of one side, for each round that has all of them.
    fn side(&self, work: &str, sides: &[Side]) -> std::result::Result<BTreeMap<Slot, f64>, String> {
        let mut sums: Option<BTreeMap<Slot, f64>> = None;
        for side in sides {
            let cell = self.cell(work, side).ok_or_else(|| format!("this run did not measure {side}"))?;
            if let Some(reason) = self.reduced.disturbance.no_verdict_of(cell) {
                return Err(format!("{NOT_COMPARABLE}{reason}"));
            }
            let trials = self.figures.sound(cell).map(|(slot, trial)| (slot, trial.rate().ln()));
            let own: BTreeMap<Slot, f64> = trials.filter(|(_, log)| log.is_finite()).collect();
            sums = Some(match sums {
                None => own,
                Some(sums) => sums.into_iter().filter_map(|(slot, sum)| Some((slot, sum + own.get(&slot)?))).collect(),
            });
        }
        let count = sides.len() as f64;
        let sums = sums.unwrap_or_default().into_iter().map(|(slot, sum)| (slot, sum / count)).collect();
        Ok(sums)
    }

    fn cell(&self, work: &str, side: &Side) -> Option<&Cell> {
        let table = self.run.plan.table.iter().find(|table| table.id == side.connection)?;
        let cells = self.of_table(table).map(|summary| &summary.cell);
        cells.into_iter().find(|cell| cell.mtu == Some(side.mtu) && cell.workload.to_string() == work)
    }

    /// Returns the cells of a table at the first level of the plan, so that all sides of a ratio have the same level.
    fn of_table(&self, table: &Table) -> impl Iterator<Item = &Summary> {
        let mut levels = table.level_names(&self.run.plan, &self.run.levels);
        levels.truncate(1);
        let has = move |cell: &Cell| cell.clients == CONNECTIONS && table.has(&self.run.plan, &levels, cell);
        self.reduced.cells.iter().filter(move |summary| has(&summary.cell))
    }

    fn lines(&self, workload: Work) -> Vec<Line> {
        let mut lines = Vec::new();
        for table in &self.run.plan.table {
            for summary in self.of_table(table).filter(|summary| summary.cell.workload == workload) {
                let estimate = &summary.rate_estimate;
                lines.push(Line {
                    connection: table.title.clone(),
                    mtu: summary.cell.mtu,
                    rate: (estimate.value, estimate.low.zip(estimate.high)),
                    server_ms: summary.cpu.server.total,
                });
            }
        }
        lines
    }
}

impl Connections {
    /// Returns the entries of the overview by row.
    pub(crate) fn rows(&self) -> Vec<(&str, Vec<&Entry>)> {
        let mut rows: Vec<(&str, Vec<&Entry>)> = Vec::new();
        for entry in &self.overview {
            match rows.last_mut().filter(|(row, _)| *row == entry.row) {
                Some((_, own)) => own.push(entry),
                None => rows.push((&entry.row, vec![entry])),
            }
        }
        rows
    }
}

/// Returns the overview as JSON; `null` if the run has none.
pub(crate) fn value(connections: Option<&Connections>) -> Value {
    let entry = |entry: &Entry| {
        let mut value = crate::zvm::answers::value(&entry.checked, &[]);
        value["row"] = json!(entry.row);
        value["column"] = json!(entry.column);
        value["printed"] = json!(entry.printed);
        value
    };
    connections.map_or(Value::Null, |own| own.overview.iter().map(entry).collect())
}

#[cfg(test)]
mod tests;
