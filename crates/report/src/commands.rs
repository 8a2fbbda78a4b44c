//! Commands as workloads: the sentence that answers a run of them, and their table. Both speak of the time of a run, where the judging
//! speaks of the rate: the time is its inverse, so that ratio and interval are inverted and the verdict stays.

use super::fit::{self, Column, Field, Line};
use super::overview;
use super::printed;
use super::table::{grid, groups};
use super::usage;
use super::words::{counted, ends_words, in_interval, number, spread, undirected};
use siga_results::judge::{Comparison, Metric, Row, Verdict, base_of};
use siga_results::record::NamedProcesses;
use siga_results::store::Run;
use siga_results::summary::{FigureSummary, Reduced, Summary};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Maximum number of names of processes below the row of a cell.
const NAMES_MAX: usize = 6;

const COLUMNS: [Column<'static>; 12] = [
    Column { head: "", right: false, drop: 0, shorten: 0 },
    Column { head: "time", right: true, drop: 0, shorten: 0 },
    Column { head: "±", right: true, drop: 4, shorten: 0 },
    Column { head: "p50", right: true, drop: 6, shorten: 0 },
    Column { head: "longest", right: true, drop: 5, shorten: 0 },
    Column { head: "CPU", right: true, drop: 0, shorten: 0 },
    Column { head: "user", right: true, drop: 2, shorten: 0 },
    Column { head: "system", right: true, drop: 2, shorten: 0 },
    Column { head: "memory", right: true, drop: 3, shorten: 0 },
    Column { head: "runs", right: true, drop: 4, shorten: 0 },
    Column { head: "time ratio", right: false, drop: 0, shorten: 6 },
    Column { head: "CPU ratio", right: false, drop: 0, shorten: 6 },
];

/// The explanation of the table.
const LEGEND: &str = "\
Times are milliseconds per execution; less is better. Ratios are to the base, with their 95% interval; `same` means a difference of less \
than 2%. ± is half the 95% interval of the mean time. CPU is the CPU time of all processes of the command; user and system are its parts. \
Memory is the largest resident memory of one process, in MB (10^6 bytes). The column `runs` has the executions in the median trial.";

/// Returns the sentence on a comparison of two levels of commands; `None` if it compares no command.
pub(super) fn level(one: &Comparison) -> Option<String> {
    let of = |metric: Metric| -> Vec<&Row> {
        let is_it = |row: &&Row| row.metric == metric && row.new.workload.is_command();
        one.rows.iter().filter(is_it).collect()
    };
    let rates = of(Metric::Rate);
    let sentences = rates.iter().map(|rate| {
        let name = if rates.len() > 1 { format!("{}: ", rate.new.workload) } else { String::new() };
        let cpu = of(Metric::TOTAL).into_iter().find(|row| row.new == rate.new && row.base == rate.base);
        let cpu = cpu.map(cpu_words).unwrap_or_default();
        let figures = printed::words(one, &rate.new);
        if figures.is_empty() { format!("{name}{}{cpu}.", time_words(one, rate)) } else { format!("{name}{figures}.") }
    });
    (!rates.is_empty()).then(|| sentences.collect::<Vec<_>>().join(" "))
}

fn time_words(one: &Comparison, rate: &Row) -> String {
    let (base, new) = (&one.base, &one.new);
    let ends = |inverted: bool| {
        let ends = rate.low.zip(rate.high);
        in_interval(if inverted { ends.map(|(low, high)| (1.0 / high, 1.0 / low)) } else { ends }, number)
    };
    match &rate.verdict {
        Verdict::Better => format!("{new} runs {} times as fast as {base}{}", number(rate.ratio), ends(false)),
        Verdict::Worse => format!("{new} takes {} times as long as {base}{}", number(1.0 / rate.ratio), ends(true)),
        Verdict::Equivalent => format!("{new} takes as long as {base}, within 2%{}", ends(true)),
        Verdict::NotComparable { reason } => format!("{new} and {base} are not comparable: {reason}"),
        Verdict::Inconclusive { trials } => {
            let seen = format!("{} times as long{}", number(1.0 / rate.ratio), ends(true));
            let more = trials.map(|trials| format!("; {trials} trials would be needed")).unwrap_or_default();
            format!("This run cannot tell whether {new} or {base} is faster: {new} took {seen}{more}")
        }
    }
}

fn cpu_words(cpu: &Row) -> String {
    let ends = ends_words(cpu);
    match &cpu.verdict {
        Verdict::Better => format!(", for {} of the CPU time{ends}", number(cpu.ratio)),
        Verdict::Worse => format!(", for {} times the CPU time{ends}", number(cpu.ratio)),
        Verdict::NotComparable { .. } => String::new(),
        Verdict::Equivalent | Verdict::Inconclusive { .. } => {
            undirected(cpu, "CPU time").map(|words| format!("; {words}")).unwrap_or_default()
        }
    }
}

/// Returns the sentences on commands that are compared with nothing; an empty string if there are none.
pub(super) fn alone(reduced: &Reduced) -> String {
    let commands = reduced.cells.iter().filter(|summary| summary.cell.workload.is_command());
    let sentence = |summary: &Summary| {
        let estimate = &summary.rate_estimate;
        let ends = estimate.low.zip(estimate.high).filter(|(low, _)| *low > 0.0);
        let ends = in_interval(ends.map(|(low, high)| (1e3 / high, 1e3 / low)), milliseconds);
        let cpu = &summary.cpu.total;
        let own = |figure: &FigureSummary| {
            format!("{}: {} of {} {}. ", summary.cell.workload, figure.key.name, number(figure.value), figure.key.unit)
        };
        let own: String = summary.figures.iter().map(own).collect();
        format!(
            "{own}{} takes {}{} and {} of CPU time: {} in user mode, {} in the kernel ({}).",
            summary.cell.workload,
            milliseconds(time_ms(summary)),
            ends,
            milliseconds(cpu.total),
            milliseconds(cpu.user),
            milliseconds(cpu.kernel),
            counted(summary.trials, "trial")
        )
    };
    commands.map(sentence).collect::<Vec<_>>().join(" ")
}

fn time_ms(summary: &Summary) -> f64 {
    1e3 / summary.rate.max(f64::MIN_POSITIVE)
}

fn milliseconds(ms: f64) -> String {
    if ms >= 10_000.0 { format!("{} s", number(ms / 1e3)) } else { format!("{} ms", number(ms)) }
}

/// Returns the tables of the commands of a run as text or Markdown; an empty string if there are none. Lines of text have at most
/// `width` characters.
pub(super) fn text(
    run: &Run,
    reduced: &Reduced,
    comparisons: &[Comparison],
    (markdown, width): (bool, usize),
) -> String {
    let cells: Vec<_> = reduced.cells.iter().map(|summary| summary.cell.clone()).collect();
    let of = |summary: &Summary, metric: Metric| {
        let base = base_of(comparisons, &cells, &summary.cell)?;
        let mut all = comparisons.iter().flat_map(|one| &one.rows);
        all.find(|row| row.metric == metric && row.new == summary.cell && row.base == *base)
    };
    let (mut lines, mut printed, mut processes) = (Vec::new(), Vec::new(), String::new());
    let mut used = Vec::new();
    for group in groups(reduced).into_iter().filter(|group| group[0].cell.workload.is_command()) {
        let first = &group[0].cell;
        let clients = if first.clients > 1 { format!(", {} clients", first.clients) } else { String::new() };
        let command = run.plan.command_of(first).map(|command| command.shown(first.clients));
        let command = command.map(|words| format!(": {}", siga_model::text::name(&siga_model::text::cut(words, 200))));
        let is_base = |summary: &Summary| summary.cell == *first && group.len() > 1;
        let ratio_of = |summary: &Summary, metric: Metric, words: fn(&Row) -> Field| {
            if is_base(summary) { "base".into() } else { of(summary, metric).map_or_else(Field::default, words) }
        };
        lines.push(Line::Heading(format!("{}{clients}{}", first.workload, command.unwrap_or_default())));
        for summary in &group {
            let ratio = |metric: Metric| ratio_of(summary, metric, ratio);
            lines.push(Line::Row(row(summary, ratio(Metric::Rate), ratio(Metric::TOTAL))));
        }
        let title = format!("{}{clients}", first.workload);
        printed.extend(printed::lines(&group, &title, |summary, metric| ratio_of(summary, metric, overview::ratio)));
        used.push(Line::Heading(title));
        used.extend(group.iter().map(|summary| usage::row(summary)));
        for summary in group.iter().filter(|summary| has_several(summary)) {
            let _ = writeln!(processes, "  {}", by_process(summary));
        }
    }
    if lines.is_empty() {
        return String::new();
    }
    let mut out = table(&COLUMNS, &lines, markdown, width);
    if !printed.is_empty() {
        let _ = write!(out, "\n{}", table(&printed::COLUMNS, &printed, markdown, width));
    }
    out.push('\n');
    if !processes.is_empty() {
        let _ = writeln!(out, "CPU time of an execution by process, in ms:\n{processes}");
    }
    out = out + LEGEND + "\n";
    let _ = write!(out, "\n{}\n{}\n", table(&usage::COLUMNS, &used, markdown, width), usage::LEGEND);
    out
}

/// Returns a table as text or Markdown. In Markdown, each heading stands above a table of its own.
fn table<const N: usize>(columns: &[Column<'_>; N], lines: &[Line], markdown: bool, width: usize) -> String {
    if !markdown {
        return fit::table(columns, lines, width);
    }
    let heads = columns.iter().map(|column| if column.head.is_empty() { "level" } else { column.head });
    let heads: Vec<&str> = heads.collect();
    let mut out = String::new();
    let mut rows: Vec<Vec<String>> = Vec::new();
    let flush = |rows: &mut Vec<Vec<String>>, out: &mut String| {
        if !rows.is_empty() {
            *out += &grid(heads.clone(), std::mem::take(rows), 1..N, true, 0);
        }
    };
    for line in lines {
        match line {
            Line::Heading(title) => {
                flush(&mut rows, &mut out);
                let _ = writeln!(out, "\n{}\n", siga_model::text::markdown(title));
            }
            Line::Row(fields) => rows.push(fields.iter().map(|field| field.as_str().trim().to_owned()).collect()),
        }
    }
    flush(&mut rows, &mut out);
    out
}

fn row(summary: &Summary, time_ratio: Field, cpu_ratio: Field) -> Vec<Field> {
    let (cpu, ms) = (&summary.cpu.total, |us: Option<f64>| us.map_or("-".to_owned(), |us| number(us / 1e3)));
    let usage = summary.median.command.as_ref().map(|command| command.usage).unwrap_or_default();
    vec![
        format!("  {}", summary.cell.level).into(),
        number(time_ms(summary)).into(),
        spread(summary).into(),
        ms(summary.latency.p50).into(),
        ms(summary.latency.max).into(),
        number(cpu.total).into(),
        number(cpu.user).into(),
        number(cpu.kernel).into(),
        if usage.resident_bytes_max > 0 { number(usage.resident_bytes_max as f64 / 1e6).into() } else { "-".into() },
        number(summary.median.client.transactions as f64).into(),
        time_ratio,
        cpu_ratio,
    ]
}

/// Returns what a verdict on the rate, or on the CPU time, says about the time.
fn ratio(row: &Row) -> Field {
    let invert = row.metric == Metric::Rate;
    let turned = |ratio: f64| if invert { 1.0 / ratio } else { ratio };
    let ends = row.low.zip(row.high).map(|(low, high)| if invert { (1.0 / high, 1.0 / low) } else { (low, high) });
    overview::verdict(&row.verdict, turned(row.ratio), ends)
}

fn has_several(summary: &Summary) -> bool {
    summary.median.command.as_ref().is_some_and(|command| command.processes.len() > 1 || command.server.is_some())
}

/// Returns the CPU time by process of a cell's median trial, the largest first; that of servers follows.
fn by_process(summary: &Summary) -> String {
    let used = summary.median.command.clone().unwrap_or_default();
    let own = names(&used.processes, summary);
    match &used.server {
        None => format!("{}: {own}", summary.cell),
        Some(server) => format!("{}: {own}\n    server: {}", summary.cell, names(server, summary)),
    }
}

fn names(processes: &BTreeMap<String, NamedProcesses>, summary: &Summary) -> String {
    let runs = summary.median.units().max(f64::MIN_POSITIVE);
    let mut all: Vec<(&String, &NamedProcesses)> = processes.iter().collect();
    all.sort_by_key(|(_, used)| std::cmp::Reverse(used.cpu.run_ns));
    let left = all.len().saturating_sub(NAMES_MAX);
    let words = all.iter().take(NAMES_MAX).map(|(name, used)| {
        let ms = |ns: u64| number(ns as f64 / 1e6 / runs);
        let (user, system) = (used.cpu.user_ns, used.cpu.run_ns.saturating_sub(used.cpu.user_ns));
        format!("{} {} (user {}, system {})", siga_model::text::name(name), ms(used.cpu.run_ns), ms(user), ms(system))
    });
    let words = words.collect::<Vec<_>>().join("; ");
    let more = if left > 0 { format!("; {left} more processes") } else { String::new() };
    format!("{words}{more}")
}
