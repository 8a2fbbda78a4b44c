//! The report of a run for people, as text or Markdown: sentences, the table of all cells, and what else a reader has to know.

use super::answer;
use super::commands;
use super::fit;
use super::readable;
use super::verdicts;
use super::words::{cautions, cpu_scale, grouped, headline, notes, number};
use super::{observer, offered, overview, streams};
use comfy_table::{CellAlignment, Table, presets};
use siga_model::text;
use siga_plan::accounting::AccountingMethod;
use siga_plan::matrix::Cell;
use siga_plan::route::Route;
use siga_results::environment::{EMULATED, EMULATED_FIGURES};
use siga_results::judge::{Answers, Comparison, Judged, Metric, Verdict};
use siga_results::record::PathRecord;
use siga_results::store::Run;
use siga_results::summary::{Component, Cpu, Reduced, Summary};
use std::collections::BTreeSet;
use std::fmt::Write;
use std::ops::Range;

/// Length of the longest CPU bar, in characters.
const BAR: f64 = 24.0;
/// The characters that a CPU bar consists of, in this order: client, router, server, other. They can be distinguished without
/// colour.
const SIGNS: [char; 4] = ['█', '▓', '▒', '░'];

/// Returns the report as text or Markdown. `answer` is its first line. Tables of text have lines of at
/// most `width` characters.
pub(super) fn people(run: &Run, judged: &Judged, answer: &str, markdown: bool, width: usize) -> String {
    let reduced = &readable::reduced(&judged.agreed, markdown);
    let comparisons: Vec<Comparison> =
        judged.comparisons.iter().map(|comparison| readable::comparison(comparison, markdown)).collect();
    let mut out = String::new();
    let word = if markdown { text::markdown } else { text::name };
    opening(run, &word(answer), reduced, &comparisons, (markdown, width), &mut out);
    if markdown {
        let has_paths = reduced.cells.iter().any(|summary| !summary.cell.workload.is_command());
        let table = if has_paths { overview::markdown(reduced, &comparisons) } else { String::new() };
        let of_commands = commands::text(run, reduced, &comparisons, (true, width));
        let _ = writeln!(out, "\n### Cells{}\n\n{table}\n{}\n{of_commands}", mark(run), methods(reduced));
    } else if reduced.cells.iter().any(|summary| !summary.cell.workload.is_command()) {
        let table = overview::text(run, reduced, &comparisons, width);
        let [client, router, server, other] = SIGNS;
        let has_bar = SIGNS.iter().any(|sign| table.contains(*sign));
        let bar = format!(" CPU bar: {client} client, {router} router, {server} server, {other} other.");
        let bar = if has_bar { bar.as_str() } else { "" };
        let _ = writeln!(out, "\n{table}\n{}{bar} {}", overview::LEGEND, methods(reduced));
    }
    out += &streams::text(reduced, markdown, width);
    if !markdown {
        let table = commands::text(run, reduced, &comparisons, (false, width));
        if !table.is_empty() {
            let _ = writeln!(out, "\n{}", table.trim_end());
        }
    }
    out += &offered::text(reduced, markdown, width);
    out += &observer::text(reduced, markdown, width);
    for (kind, words) in cautions(run, reduced) {
        let _ = writeln!(out, "{kind}: {words}");
    }
    for line in between(reduced) {
        let _ = writeln!(out, "CPU time between client and server, {line}");
    }
    for line in existing_networks(run) {
        let _ = writeln!(out, "Network: {line}");
    }
    let _ = writeln!(out, "\n{} trials in {}", run.trials.len(), run.directory.display());
    out
}

/// Returns a table as text or Markdown. `numbers` are the indices of the columns that are aligned right. `left` is the number of
/// spaces before the first column.
pub(super) fn grid(
    head: impl Into<comfy_table::Row>,
    rows: impl IntoIterator<Item = impl Into<comfy_table::Row>>,
    numbers: Range<usize>,
    markdown: bool,
    left: u16,
) -> String {
    let mut table = Table::new();
    table.load_preset(if markdown { presets::ASCII_MARKDOWN } else { presets::NOTHING });
    table.set_header(head).add_rows(rows);
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding(if index == 0 { (left, 1) } else { (1, 1) });
        if numbers.contains(&index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.to_string().lines().map(|line| format!("{}\n", line.trim_end())).collect()
}

/// A table of its own below that of the cells, with a heading and an explanation.
pub(super) struct Section<const N: usize> {
    pub(super) title: &'static str,
    pub(super) legend: &'static str,
    pub(super) heads: [&'static str; N],
    /// When each column is dropped on a narrow screen.
    pub(super) drop: [u8; N],
    /// The columns that are aligned right.
    pub(super) numbers: Range<usize>,
}

impl<const N: usize> Section<N> {
    /// Returns the section as text or Markdown; an empty string without rows. Lines of text have at most `width` characters.
    pub(super) fn text(self, rows: Vec<[String; N]>, markdown: bool, width: usize) -> String {
        let Self { title, legend, heads, drop, numbers } = self;
        if rows.is_empty() {
            return String::new();
        }
        if markdown {
            return format!("\n### {title}\n\n{legend}\n\n{}", grid(heads, rows, numbers, true, 1));
        }
        format!("\n{title}\n\n{legend}\n\n{}", fit::plain(heads, drop, numbers, rows, width))
    }
}

/// Returns a line for each cell on the user's own network: the CPU time per unit of each router and switch in the median trial.
fn between(reduced: &Reduced) -> Vec<String> {
    let of_cell = |summary: &Summary| {
        let units = summary.median.cpu_units();
        let (scale, unit) = cpu_scale(summary.cell.workload.cpu_unit());
        let each = summary.median.cpu.between.iter().map(|(name, cpu)| {
            // Figures of CPU time are milliseconds before they are scaled.
            format!("{name} {}", number(cpu.run_ns as f64 / 1e6 / units * scale))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty() && units > 0.0).then(|| format!("{} in {unit}: {}", summary.cell, each.join(", ")))
    };
    reduced.cells.iter().filter_map(of_cell).collect()
}

/// Returns a line for each network between existing places: the server's address, and the interfaces of both ends with their
/// settings.
fn existing_networks(run: &Run) -> BTreeSet<String> {
    let of_places = run.paths.iter().filter(|path| matches!(path.cell.path.parse(), Ok(Route::Places(..))));
    let line = |path: &PathRecord| {
        let address = path.server_address.map(|address| format!("server address {address}"));
        let ends = path.interfaces.iter().map(|(label, settings)| format!("{label} {settings}"));
        format!("{}: {}", path.cell.path, address.into_iter().chain(ends).collect::<Vec<_>>().join("; "))
    };
    of_places.filter(|path| path.server_address.is_some()).map(line).collect()
}

fn opening(
    run: &Run,
    answer: &str,
    reduced: &Reduced,
    comparisons: &[Comparison],
    (markdown, width): (bool, usize),
    out: &mut String,
) {
    if run.environment.is_emulated() {
        let _ = writeln!(out, "EMULATED MACHINE: {EMULATED_FIGURES}.\n");
    }
    if run.plan.smoke {
        let _ = writeln!(
            out,
            "SMOKE RUN: it only checks that everything works; the trials are too short for reliable figures.\n"
        );
    }
    let answers = Answers::of(run, reduced, comparisons);
    let disturbed = reduced.disturbance.sentence();
    // The table of text has the figures of the sentences.
    let told = if markdown { headline(reduced, &answers) } else { notes(reduced, &answers) };
    let told = if answer::has_overheads(answer) { String::new() } else { told };
    let parts = [answer.to_owned(), disturbed, told, verdicts::of_levels(run, comparisons, markdown, width)];
    let parts: Vec<&str> = parts.iter().map(|part| part.trim_matches('\n')).filter(|part| !part.is_empty()).collect();
    match parts.join("\n").as_str() {
        "" if reduced.cells.is_empty() => {
            let _ = writeln!(out, "Nothing was measured.");
        }
        "" => {}
        words => {
            let _ = writeln!(out, "{words}");
        }
    }
}

/// Returns the mark in the title of a table with figures of an emulated machine; an empty string for other runs.
pub(super) fn mark(run: &Run) -> String {
    if run.environment.is_emulated() { format!(", {EMULATED}") } else { String::new() }
}

/// Groups the cells by workload and number of client-server pairs. The cells of a group differ only in path, MTU and level.
pub(super) fn groups(reduced: &Reduced) -> Vec<Vec<&Summary>> {
    let groups = grouped(&reduced.cells, |summary| (summary.cell.workload, summary.cell.clients));
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Returns the name of a cell's row. The name is the path, followed by the MTU if rows with the same path differ in it. The level
/// follows if rows of the table differ in it, or if the level is not `plain`.
pub(super) fn path_name(cell: &Cell, group: &[&Summary]) -> String {
    let mut name = cell.path.clone();
    let mtus_differ = group.iter().any(|other| other.cell.path == cell.path && other.cell.mtu != cell.mtu);
    if let (true, Some(mtu)) = (mtus_differ, cell.mtu) {
        let _ = write!(name, " {mtu}");
    }
    if cell.level != "plain" || group.iter().any(|other| other.cell.level != cell.level) {
        let _ = write!(name, " {}", cell.level);
    }
    name
}

/// Returns the verdicts on a cell's rate and CPU time, such as "1.37x rate, CPU: cannot tell". The base is the first cell of the
/// table; if the run compares the cell with another cell, that cell is named. Returns "-" if the cell is not compared.
pub(super) fn against(comparisons: &[Comparison], summary: &Summary, base: &Summary) -> String {
    if std::ptr::eq(summary, base) {
        return "base".to_owned();
    }
    let rows = || comparisons.iter().flat_map(|one| &one.rows).filter(|row| row.new == summary.cell);
    let Some(compared) = rows().min_by_key(|row| row.base != base.cell).map(|row| &row.base) else {
        return "-".to_owned();
    };
    let figure = |metric: Metric, name: &str| {
        let row = rows().find(|row| row.base == *compared && row.metric == metric)?;
        Some(match &row.verdict {
            Verdict::Better | Verdict::Worse => format!("{:.2}x {name}", row.ratio),
            Verdict::Equivalent => format!("same {name}"),
            Verdict::Inconclusive { .. } => format!("{name}: cannot tell"),
            Verdict::NotComparable { .. } => format!("{name}: not comparable"),
        })
    };
    let figures = [figure(Metric::Rate, "rate"), figure(Metric::TOTAL, "CPU")];
    let words = figures.into_iter().flatten().collect::<Vec<_>>().join(", ");
    if *compared == base.cell {
        return words;
    }
    let level = if compared.level == summary.cell.level { String::new() } else { format!(" {}", compared.level) };
    format!("to {}{level}: {words}", compared.path)
}

/// Returns the CPU time that was charged to all components together. In a very short trial this sum can exceed the measured
/// total, because the host's counters have a coarse resolution.
pub(super) fn charged(cpu: &Cpu) -> f64 {
    let components = [cpu.client, cpu.router.unwrap_or_default(), cpu.server, cpu.other];
    components.iter().map(|component| component.total.max(0.0)).sum()
}

/// Returns the CPU bar of one row. `most` is the largest CPU time in the table; its bar has the length [`BAR`].
pub(super) fn bar(cpu: &Cpu, most: f64) -> String {
    let router = cpu.router.unwrap_or_default();
    let mut bar = String::new();
    let mut reached = 0.0;
    for (sign, component) in SIGNS.iter().zip([cpu.client, router, cpu.server, cpu.other]) {
        reached += component.total.max(0.0);
        let end = (reached / most.max(f64::MIN_POSITIVE) * BAR).round().min(BAR);
        while (bar.chars().count() as f64) < end {
            bar.push(*sign);
        }
    }
    bar
}

/// Returns one or two lines for each accounting method that a cell used, with the largest uncertainty of its figures.
pub(super) fn methods(reduced: &Reduced) -> String {
    let mut lines = Vec::new();
    for method in
        [AccountingMethod::Profile, AccountingMethod::Subtract, AccountingMethod::Tick, AccountingMethod::Processes]
    {
        // The CPU times of commands are exact, and their table says what they are.
        let of_path = |summary: &&Summary| summary.cpu.method == method && !summary.cell.workload.is_command();
        let cells: Vec<&Summary> = reduced.cells.iter().filter(of_path).collect();
        if cells.is_empty() {
            continue;
        }
        let whole = |cpu: &Cpu| if cpu.total.total > 0.0 { cpu.total.total } else { charged(cpu) };
        let share = |value: f64, summary: &Summary| 100.0 * value / whole(&summary.cpu).max(f64::MIN_POSITIVE);
        let worst = |pick: &dyn Fn(&Summary) -> f64| {
            cells.iter().map(|summary| share(pick(summary), summary).abs()).fold(0.0, f64::max)
        };
        let residue = worst(&|summary| summary.cpu.residue);
        let total = worst(&|summary| summary.cpu.total.uncertainty);
        let router = worst(&|summary| summary.cpu.router.map_or(0.0, |router| router.uncertainty));
        let router_words = if router.is_finite() { format!("{router:.1}%") } else { "unknown (one trial)".into() };
        let client = worst(&|summary| summary.cpu.client.uncertainty);
        lines.push(match method {
            AccountingMethod::Profile => format!(
                "CPU time by accounting method profile. Uncertainty of the least certain cell (95% interval): totals \
                    ±{total:.1}%, components ±{client:.1}% of the total. The residue is at most {residue:.1}%."
            ),
            AccountingMethod::Subtract => format!(
                "CPU time by accounting method subtract. The router's CPU time is the difference to the path without a \
                    router; the CPU times of client and server are those of that path. Uncertainty of the least certain \
                    cell (95% interval): totals ±{total:.1}%, router ±{router_words} of the total. The residue is at most \
                    {residue:.1}%. This method reads counters before and after a phase, so it does not lower the rate."
            ),
            AccountingMethod::Tick => format!(
                "CPU time by accounting method tick. Uncertainty of the totals: ±{total:.1}%. The CPU times of client \
                    and server include softirq work that interrupted them. This method does not measure a router. It \
                    reads counters before and after a phase, so it does not lower the rate."
            ),
            AccountingMethod::Processes => {
                let wait = |component: &Component| component.wait;
                let waits = |pick: &dyn Fn(&Summary) -> f64| worst(pick);
                let [client, router, server] = [
                    waits(&|summary| wait(&summary.cpu.client)),
                    waits(&|summary| summary.cpu.router.as_ref().map_or(0.0, wait)),
                    waits(&|summary| wait(&summary.cpu.server)),
                ];
                format!(
                    "CPU time by accounting method processes (siga's own networks): each guest is a process with an \
                        exact run time; totals within \
                     ±{total:.1}%.\nWaiting (polling and yielding) used up to {client:.0}% of the total in the \
                     client, {router:.0}% in the router, and {server:.0}% in the server."
                )
            }
        });
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_ends_whatever_was_charged() {
        let component = |total| Component { total, ..Component::default() };
        let mut cpu = Cpu {
            method: AccountingMethod::Tick,
            total: component(0.0),
            client: component(0.2),
            router: None,
            server: component(0.1),
            other: component(0.1),
            control: None,
            applications: None,
            residue: -0.4,
            utilisation: 0.0,
        };
        // A total of zero must not produce a bar without end.
        assert_eq!(bar(&cpu, charged(&cpu).max(cpu.total.total)).chars().count(), 24);
        assert_eq!(bar(&cpu, f64::MIN_POSITIVE).chars().count(), 24);
        for part in [&mut cpu.client, &mut cpu.server, &mut cpu.other] {
            *part = component(0.0);
        }
        assert_eq!(bar(&cpu, 0.0), "", "nothing by nothing is no bar");
    }
}
