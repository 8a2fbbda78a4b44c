//! The six figures of the report on levels 420 and 430, with the figures of a run beside the published ones. The module has the data for
//! the HTML page, and draws the figures as text.

use super::figures::{self, CLIENTS, ENVIRONMENT, OTHER, RATIOS, STACK_FIGURES, STACKS, bar};
use super::pairs::{Location, Pair, of_table};
use super::published::{PublishedTable, metric};
use super::repeat::Repeat;
use super::rows::components;
use super::table::ratio_text;
use crate::words::counted;
use siga_plan::workload::Unit;
use siga_results::summary::{Reduced, Summary};
use std::fmt::Write;

/// A figure with the ratios of level 430 to level 420, one for each table that the run has measured.
#[derive(Debug)]
pub(crate) struct Ratios {
    /// The title of the published figure.
    pub(crate) title: &'static str,
    /// Whether a larger ratio is better.
    pub(crate) more: bool,
    /// The tables.
    pub(crate) rows: Vec<RatioRow>,
}

/// The ratio of one table.
#[derive(Debug)]
pub(crate) struct RatioRow {
    /// The title of the table.
    pub(crate) name: String,
    /// The published ratio.
    pub(crate) published: f64,
    /// The measured ratio.
    pub(crate) measured: Location,
}

/// A figure with the CPU time of the whole system by component.
#[derive(Debug)]
pub(crate) struct Stacks {
    /// The title of the published figure.
    pub(crate) title: &'static str,
    /// The unit to which the CPU times apply.
    pub(crate) unit: Unit,
    /// A row for each table, number of clients and level that the run has measured.
    pub(crate) rows: Vec<StackRow>,
}

/// The CPU time of one cell.
#[derive(Debug)]
pub(crate) struct StackRow {
    /// The table, the number of clients and the level.
    pub(crate) name: String,
    /// The published CPU time.
    pub(crate) published: Shares,
    /// The measured CPU time.
    pub(crate) measured: Shares,
}

/// CPU time in milliseconds per unit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// The whole system.
    pub(crate) total: f64,
    /// The stacks of clients, router and servers.
    pub(crate) stacks: [f64; 3],
}

impl Shares {
    /// Returns the rest of the total: the hypervisor or the kernel, and the workload drivers.
    pub(crate) fn other(&self) -> f64 {
        (self.total - self.stacks.iter().sum::<f64>()).max(0.0)
    }

    /// Returns the CPU time of a median trial. A run may lack a component; its time then counts as other.
    fn measured(summary: &Summary) -> Self {
        let parts = components(&summary.cpu, &summary.cell);
        let of = |name: &str| parts.iter().find(|(own, _)| *own == name).map_or(0.0, |(_, part)| part.total);
        Self { total: summary.cpu.total.total, stacks: STACKS.map(|(name, _)| of(name)) }
    }
}

/// Returns figures 2 to 4. Figures without a measured table are left out.
pub(crate) fn ratios(repeat: &Repeat) -> Vec<Ratios> {
    let one = |(title, part, more): (&'static str, &str, bool)| {
        let row = |table: &PublishedTable| {
            let row = metric(part, table.unit());
            Some(RatioRow {
                name: figures::title(table).to_owned(),
                published: table.figures(&row, CLIENTS)?[2],
                measured: pair(repeat, table, CLIENTS)?.ratio(&row)?,
            })
        };
        Ratios { title, more, rows: repeat.published.iter().filter_map(row).collect() }
    };
    RATIOS.into_iter().map(one).filter(|figure| !figure.rows.is_empty()).collect()
}

/// Returns figures 5 and 6. Figures without a measured cell are left out.
pub(crate) fn stacks(reduced: &Reduced, repeat: &Repeat) -> Vec<Stacks> {
    let one = |(title, ids): (&'static str, &[&str])| {
        let tables: Vec<&PublishedTable> =
            ids.iter().filter_map(|id| repeat.published.iter().find(|table| table.id == *id)).collect();
        let rows = tables.iter().flat_map(|table| stack_rows(reduced, repeat, table)).collect();
        Stacks { title, unit: tables.first().map_or(Unit::Transaction, |table| table.unit()), rows }
    };
    STACK_FIGURES.into_iter().map(one).filter(|figure| !figure.rows.is_empty()).collect()
}

fn stack_rows(reduced: &Reduced, repeat: &Repeat, table: &PublishedTable) -> Vec<StackRow> {
    let mut rows = Vec::new();
    for (clients, base, changed) in &table.pairs {
        let Some(pair) = pair(repeat, table, *clients) else { continue };
        for (side, (level, at)) in [(base, pair.base), (changed, pair.new)].into_iter().enumerate() {
            let printed = |row: &str| Some(table.figures(&metric(row, table.unit()), *clients)?[side]);
            let Some(total) = printed("cpu") else { continue };
            let stacks = STACKS.map(|(name, _)| printed(&format!("{name}_cpu")).unwrap_or_default());
            rows.push(StackRow {
                name: format!("{}, {}, level {level}", figures::title(table), counted(*clients as usize, "client")),
                published: Shares { total, stacks },
                measured: Shares::measured(&reduced.cells[at]),
            });
        }
    }
    rows
}

fn pair<'a>(repeat: &'a Repeat, table: &PublishedTable, clients: u32) -> Option<&'a Pair> {
    of_table(&repeat.pairs, &repeat.published, &table.id, clients).map(|at| &repeat.pairs[at])
}

/// Returns the figures as text; an empty string if the run has measured no published table.
pub(crate) fn text(reduced: &Reduced, repeat: &Repeat) -> String {
    let (ratios, stacks) = (ratios(repeat), stacks(reduced, repeat));
    if ratios.is_empty() && stacks.is_empty() {
        return String::new();
    }
    let mut out =
        format!("Figures of the z/VM report on levels 420 and 430, published and measured here\n\n{ENVIRONMENT}\n");
    for figure in &ratios {
        ratio_text_figure(&mut out, figure);
    }
    for figure in &stacks {
        stack_text_figure(&mut out, figure);
    }
    out
}

fn ratio_text_figure(out: &mut String, Ratios { title, more, rows }: &Ratios) {
    let reading = figures::reading(*more);
    let _ = writeln!(out, "{title}\n\nLevel 430 divided by level 420; 1 means no difference; {reading}.\n");
    let all = rows.iter().flat_map(|row| [row.published, row.measured.value]);
    let most = all.fold(1.0, f64::max);
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    for RatioRow { name, published, measured } in rows {
        let interval = measured
            .interval
            .map_or_else(String::new, |(low, high)| format!("  ({} to {})", ratio_text(low), ratio_text(high)));
        let measured = measured.value;
        let _ = writeln!(out, "{name:<width$}  published {published:>6.2}  {}", bar('█', *published, most));
        let _ = writeln!(
            out,
            "{:<width$}  measured  {:>6}  {}{interval}",
            "",
            ratio_text(measured),
            bar('▓', measured, most)
        );
    }
    let _ = writeln!(out, "{:<width$}            {:>6.2}  {}\n", "no difference", 1.0, bar('─', 1.0, most));
}

fn stack_text_figure(out: &mut String, Stacks { title, unit, rows }: &Stacks) {
    let most = |of: fn(&StackRow) -> f64| rows.iter().map(of).fold(0.0, f64::max);
    let (most_published, most_measured) = (most(|row| row.published.total), most(|row| row.measured.total));
    let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let _ = writeln!(
        out,
        "{title}\n\nCPU time in msec/{}. Published bars have one scale, and measured bars have another one.\n",
        unit.name()
    );
    for StackRow { name, published, measured } in rows {
        let _ =
            writeln!(out, "{name:<width$}  published {:>8.2}  {}", published.total, shares(published, most_published));
        let _ = writeln!(out, "{:<width$}  measured  {:>8.4}  {}", "", measured.total, shares(measured, most_measured));
    }
    let _ = writeln!(out, "\n{}\n", figures::meanings());
}

fn shares(own: &Shares, most: f64) -> String {
    let signs = STACKS.iter().map(|(_, sign)| *sign).chain([OTHER]);
    signs.zip(own.stacks.into_iter().chain([own.other()])).map(|(sign, part)| bar(sign, part, most)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zvm::repeat::tests::{like_tables, repeated};

    #[test]
    fn each_published_figure_stands_beside_the_measured_one() {
        let run = like_tables(6);
        let (reduced, repeat) = repeated(&run);
        let text = crate::zvm::text(&run, &reduced, &repeat).unwrap();
        let (ratios, stacks) = (ratios(&repeat), stacks(&reduced, &repeat));
        assert_eq!((ratios.len(), stacks.len()), (3, 2));
        for figure in &ratios {
            assert_eq!(figure.rows.len(), 18, "{}", figure.title);
            let own = text.split_once(&format!("{}\n", figure.title)).unwrap().1;
            for row in &figure.rows {
                assert!((row.measured.value / row.published - 1.0).abs() < 0.06, "{row:?}");
                let mut lines = own.lines().skip_while(|line| !line.starts_with(&format!("{} ", row.name)));
                let (published, measured) = (lines.next().unwrap(), lines.next().unwrap());
                assert!(published.contains(&format!("published {:>6.2}", row.published)), "{published}");
                assert!(measured.contains(&format!("measured  {:>6}", ratio_text(row.measured.value))), "{measured}");
                let length = |line: &str, sign: char| line.chars().filter(|other| *other == sign).count().abs_diff(0);
                assert!(length(published, '█').abs_diff(length(measured, '▓')) <= 2, "{published}\n{measured}");
            }
        }
        // Two tables, then one, with 1, 5 and 10 clients at both levels.
        assert_eq!([stacks[0].rows.len(), stacks[1].rows.len()], [12, 6]);
        for row in stacks.iter().flat_map(|figure| &figure.rows) {
            // The run has a hundred times as many units.
            let parts = row.published.stacks.iter().zip(row.measured.stacks);
            for (published, measured) in parts.chain([(&row.published.total, row.measured.total)]) {
                assert!((measured * 100.0 / published - 1.0).abs() < 0.03, "{row:?}");
            }
        }
        assert!(text.contains("HiperSockets - CRR 1500, 1 client, level 420"), "{text}");
        assert!(text.contains(ENVIRONMENT), "figure 1");
    }

    #[test]
    fn a_run_of_some_tables_has_the_figures_of_these_tables() {
        let mut run = like_tables(6);
        run.trials.retain(|trial| trial.cell.path == "claw-routed-iucv" && trial.cell.clients == 10);
        let (reduced, repeat) = repeated(&run);
        assert!(stacks(&reduced, &repeat).is_empty(), "they are about HiperSockets");
        assert!(ratios(&repeat).iter().all(|figure| figure.rows.len() == 3));
        run.trials.retain(|trial| trial.cell.level == "420");
        let (reduced, repeat) = repeated(&run);
        assert_eq!(text(&reduced, &repeat), "");
    }
}
