//! z/VM's layout: a table a path, MTU and workload; columns by number of pairs and level, each further level with its ratio
//! to the base and the ratio that is published of the same; the rows of the printed reports, then what these lack.

use super::findings;
use crate::error::Result;
use crate::plan::Cell;
use crate::published::align;
use crate::reduce::Blocks;
use crate::repeat::rows::{column, names};
use crate::repeat::{Pair, Repeat, levels};
use crate::store::Run;
use crate::summary::{Reduced, Summary};
use crate::text::name;
use std::collections::BTreeMap;
use std::fmt::Write;

/// The report as text: the tables, then what their report found.
///
/// # Errors
/// Incomplete: a cell has done nothing, so that it has no figure per unit.
pub(super) fn text(run: &Run, reduced: &Reduced, repeat: &Repeat) -> Result<String> {
    let mut out = tables_text(run, reduced, repeat)?;
    out.push_str(&findings::text(reduced, repeat));
    for skipped in &reduced.skipped {
        let reason = name(&skipped.reason.replace("\n  ", "; "));
        let _ = writeln!(out, "Skipped: {}: {reason}", name(&skipped.cell.to_string()));
    }
    Ok(out)
}

/// The tables alone.
///
/// # Errors
/// Incomplete: a cell has done nothing, so that it has no figure per unit.
pub(super) fn tables_text(run: &Run, reduced: &Reduced, repeat: &Repeat) -> Result<String> {
    let mut out = String::new();
    if run.plan.smoke {
        let _ = writeln!(out, "SMOKE RUN: the figures are too short to rely on.\n");
    }
    let order = levels(run, reduced);
    for (number, cells) in tables(reduced, &order).iter().enumerate() {
        let table = Table::of(cells, repeat)?;
        let cell = &cells[0].cell;
        let mtu = cell.mtu.map(|mtu| format!(" {mtu}")).unwrap_or_default();
        let _ = writeln!(out, "Table {}. {} - {}{mtu}", number + 1, name(&cell.path), cell.workload);
        if let Some(published) = table.published() {
            let _ = writeln!(out, "Published: {}", published.heading);
        }
        out.push('\n');
        align(&mut out, &table.grid(), 1);
        table.notes(&mut out);
        out.push('\n');
    }
    Ok(out)
}

/// Cells that differ only by pairs and level share a table.
fn tables<'a>(reduced: &'a Reduced, levels: &[&str]) -> Vec<Vec<&'a Summary>> {
    let key = |cell: &Cell| (cell.path.clone(), cell.workload, cell.mtu);
    let mut tables: Vec<Vec<&Summary>> = Vec::new();
    for summary in &reduced.cells {
        match tables.iter_mut().find(|table| key(&table[0].cell) == key(&summary.cell)) {
            Some(table) => table.push(summary),
            None => tables.push(vec![summary]),
        }
    }
    let level = |summary: &Summary| levels.iter().position(|level| *level == summary.cell.level);
    for table in &mut tables {
        table.sort_by_key(|summary| (summary.cell.clients, level(summary)));
    }
    tables
}

/// A cell with the figures of its column.
struct Shown<'a> {
    summary: &'a Summary,
    blocks: Blocks<f64>,
    /// How it stands to the base level.
    pair: Option<&'a Pair>,
}

struct Table<'a> {
    cells: Vec<Shown<'a>>,
    /// The rows, in blocks. Those of the first cell, and what is published beside that.
    rows: Vec<Vec<String>>,
    /// Rows that are published and not measured.
    absent: Vec<String>,
    repeat: &'a Repeat,
}

impl<'a> Table<'a> {
    fn of(cells: &[&'a Summary], repeat: &'a Repeat) -> Result<Self> {
        let shown = |summary: &&'a Summary| {
            Ok(Shown { summary, blocks: column(summary)?, pair: repeat.pair(&summary.cell) })
        };
        let cells = cells.iter().map(shown).collect::<Result<Vec<_>>>()?;
        let mut table = Self { cells, rows: Vec::new(), absent: Vec::new(), repeat };
        table.find_rows();
        Ok(table)
    }

    fn published(&self) -> Option<&'a crate::published::Shown> {
        self.cells.iter().find_map(|cell| Some(&self.repeat.published[cell.pair?.table?]))
    }

    /// The rows of all its cells in the order of the first that has them; a row that is only published stands in the first
    /// block with others of its kind.
    fn find_rows(&mut self) {
        for block in self.cells.iter().flat_map(|cell| cell.blocks.iter().enumerate()) {
            let (number, figures) = block;
            if self.rows.len() <= number {
                self.rows.resize(number + 1, Vec::new());
            }
            for figure in figures {
                if !self.rows.iter().flatten().any(|row| *row == figure.metric) {
                    self.rows[number].push(figure.metric.clone());
                }
            }
        }
        let Some(published) = self.published() else { return };
        let known = |row: &String| self.rows.iter().flatten().any(|own| own == row);
        self.absent = published.metrics.iter().map(|(row, _)| row).filter(|row| !known(row)).cloned().collect();
        // Before what no table prints.
        let at = self.rows.len().saturating_sub(1);
        if !self.absent.is_empty() {
            self.rows.insert(at, self.absent.clone());
        }
    }

    fn grid(&self) -> Vec<Vec<String>> {
        let head = |title: &str, own: &dyn Fn(&Shown<'a>) -> [String; 3]| {
            let columns = self.cells.iter().flat_map(|cell| {
                let [value, ratio, published] = own(cell);
                let beside = cell.pair.map(|pair| [Some(ratio), pair.table.map(|_| published)]);
                std::iter::once(value).chain(beside.into_iter().flatten().flatten())
            });
            std::iter::once(title.to_owned()).chain(columns).collect::<Vec<_>>()
        };
        let clients = |cell: &Shown<'_>| [0; 3].map(|_| format!("{:02}", cell.summary.cell.clients));
        // As the digit at the end of a run's name: which of the trials this is.
        let trial = |cell: &Shown<'_>| [(cell.summary.median.round + 1).to_string(), String::new(), String::new()];
        let level = |cell: &Shown<'_>| [name(&cell.summary.cell.level), "ratio".into(), "published".into()];
        let mut grid = vec![head("Number of clients", &clients), head("trial", &trial), head("level", &level)];
        for block in self.rows.iter().filter(|block| !block.is_empty()) {
            grid.push(Vec::new());
            for row in block {
                grid.push(head(row, &|cell| self.figures(cell, row)));
            }
        }
        grid
    }

    /// Value, ratio, published ratio.
    fn figures(&self, cell: &Shown<'a>, row: &str) -> [String; 3] {
        let absent = || "-".to_owned();
        let figure = cell.blocks.iter().flatten().find(|figure| figure.metric == row);
        let ratio = cell.pair.and_then(|pair| pair.ratio(row));
        let printed = cell.pair.and_then(|pair| pair.printed(&self.repeat.published, row));
        [
            // Hardware has become faster than the places of the printed tables.
            figure.map_or_else(absent, |figure| format!("{:.*}", places(figure.value), figure.value)),
            ratio.map_or_else(absent, |ratio| ratio_text(ratio.value)),
            printed.map_or_else(absent, |[_, _, ratio]| format!("{ratio:.2}")),
        ]
    }

    fn notes(&self, out: &mut String) {
        let first = &self.cells[0].summary;
        let unit = first.cell.workload.unit().name();
        let methods: Vec<_> = self.cells.iter().map(|cell| cell.summary.cpu.method.to_string()).collect();
        let residues: Vec<_> = self.cells.iter().map(|cell| format!("{:.4}", cell.summary.cpu.residue)).collect();
        let mut same = methods.clone();
        same.dedup();
        let methods = if same.len() == 1 { &same } else { &methods };
        let trials: Vec<usize> = self.cells.iter().map(|cell| cell.summary.trials).collect();
        let (least, most) =
            (trials.iter().min().copied().unwrap_or_default(), trials.iter().max().copied().unwrap_or_default());
        let trials = if least == most { format!("{most} trials") } else { format!("{least} to {most} trials") };
        let _ = writeln!(
            out,
            "\nNote: CPU by {}; residue {} msec/{unit};\nvcpu is user mode, ccpu the kernel; MB is 10^6 bytes of payload; \
             median of {trials}",
            methods.join(", "),
            residues.join(", "),
        );
        if let Some(pair) = self.cells.iter().find_map(|cell| cell.pair) {
            let base = name(&pair.base_level);
            let _ = writeln!(
                out,
                "ratio: to {base}, by the trials of the same round, so not exactly that of the two medians beside it"
            );
        }
        for (reason, rows) in self.absences() {
            let _ = writeln!(out, "Absent: {}: {reason}", rows.join(", "));
        }
    }

    /// Rows without a figure by the reason.
    fn absences(&self) -> BTreeMap<&'static str, Vec<String>> {
        let mut absent: BTreeMap<&str, Vec<String>> = BTreeMap::new();
        for row in &self.absent {
            let stack = row.split_once('_').map_or(row.as_str(), |(stack, _)| stack);
            let rows = absent.entry("the applications share the processes of these stacks; the paths that end in -iucv tell them apart");
            let rows = rows.or_default();
            if !rows.iter().any(|other| other == stack) {
                rows.push(stack.to_owned());
            }
        }
        for cell in &self.cells {
            let summary = cell.summary;
            let [_, router, _] = names(&summary.cell);
            if summary.cpu.router.is_none() && crate::summary::has_router(&summary.cell) {
                let rows = absent.entry("the method of accounting does not tell it apart").or_default();
                if rows.is_empty() {
                    rows.push(router.to_owned());
                }
            }
        }
        absent
    }
}

/// Two decimals as printed, more where the figure would have fewer than three digits.
fn places(value: f64) -> usize {
    match value.abs() {
        small if small > 0.0 && small < 0.1 => 5,
        small if small < 1.0 => 4,
        _ => 2,
    }
}

/// A ratio with the two decimals of the printed ones, or two digits where it is very small.
pub(super) fn ratio_text(ratio: f64) -> String {
    let places = match ratio.abs() {
        tiny if tiny > 0.0 && tiny < 0.01 => 4,
        small if small > 0.0 && small < 0.1 => 3,
        _ => 2,
    };
    format!("{ratio:.places$}")
}
