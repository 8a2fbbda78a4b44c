//! The table of a run: all cells in one table, grouped by workload and number of pairs, with the verdict of each cell against another.

use super::fit::{self, Column, Field, Line, Tone};
use super::table::{bar, charged, grid, groups, mark, path_name};
use super::words::{components, cpu_scale, number, pairs, spread};
use siga_plan::work::Work;
use siga_plan::workload::Unit;
use siga_results::judge::{Comparison, Mean, Metric, Row, Subject, Verdict, base_of};
use siga_results::store::Run;
use siga_results::summary::{Reduced, Summary};
use std::collections::BTreeSet;

const COLUMNS: [Column<'static>; 15] = [
    Column { head: "", right: false, drop: 0, shorten: 0 },
    Column { head: "rate", right: true, drop: 0, shorten: 0 },
    Column { head: "±", right: true, drop: 4, shorten: 0 },
    Column { head: "p50 us", right: true, drop: 5, shorten: 0 },
    Column { head: "p99 us", right: true, drop: 7, shorten: 0 },
    Column { head: "CPU", right: true, drop: 0, shorten: 0 },
    Column { head: "client", right: true, drop: 3, shorten: 0 },
    Column { head: "router", right: true, drop: 3, shorten: 0 },
    Column { head: "server", right: true, drop: 3, shorten: 0 },
    Column { head: "other", right: true, drop: 3, shorten: 0 },
    Column { head: "residue", right: true, drop: 2, shorten: 0 },
    Column { head: "rate ratio", right: false, drop: 0, shorten: 6 },
    Column { head: "CPU ratio", right: false, drop: 0, shorten: 6 },
    Column { head: "to", right: false, drop: 0, shorten: 0 },
    Column { head: "", right: false, drop: 1, shorten: 0 },
];
/// Position of the rate's ratio.
const RATIO: usize = 11;

/// The explanation of the table.
pub(super) const LEGEND: &str = "\
Each ratio compares a row with the base row of its group, or with the row named in column `to`; its 95% interval \
follows. A higher rate and less CPU time are better. `same` means a difference of less than 2%. ± is half the width \
of the 95% interval of the mean rate. MB is 10^6 bytes of payload.";

/// Returns the table as text with lines of at most `width` characters.
pub(super) fn text(run: &Run, reduced: &Reduced, comparisons: &[Comparison], width: usize) -> String {
    let names = Names::of(reduced);
    let mut lines = Vec::new();
    for group in groups(reduced).into_iter().filter(|group| !group[0].cell.workload.is_command()) {
        let first = &group[0].cell;
        let all = names.common.map(|path| format!(" on {path}")).unwrap_or_default();
        let (rate, cpu) = (first.workload.unit().rate_name(), first.workload.cpu_unit().cpu_name());
        let title = format!("{}, {}{all} ({rate}, CPU in {cpu}){}", first.workload, pairs(first.clients), mark(run));
        lines.push(Line::Heading(title));
        let rows = rows(reduced, comparisons, &group, &names);
        lines.extend(rows.into_iter().map(|mut row| {
            row[0] = Field::from(format!("  {}", row[0].as_str()));
            Line::Row(row)
        }));
    }
    lines.extend(means(comparisons));
    fit::table(&COLUMNS, &lines, width)
}

/// Returns the table as Markdown.
pub(super) fn markdown(reduced: &Reduced, comparisons: &[Comparison]) -> String {
    let names = Names { common: None };
    let heads = ["workload", "pairs", "path"].into_iter();
    let heads = heads.chain(COLUMNS[1..COLUMNS.len() - 1].iter().map(|column| column.head)).chain(["units"]);
    let of_paths = groups(reduced).into_iter().filter(|group| !group[0].cell.workload.is_command());
    let rows = of_paths.flat_map(|group| {
        let (workload, clients) = (group[0].cell.workload, group[0].cell.clients);
        let units = format!("{}, {}", workload.unit().rate_name(), workload.cpu_unit().cpu_name());
        let own = rows(reduced, comparisons, &group, &names).into_iter().map(move |row| {
            let fields = row[..COLUMNS.len() - 1].iter().map(|field| field.as_str().to_owned());
            [workload.to_string(), clients.to_string()].into_iter().chain(fields).chain([units.clone()]).collect()
        });
        own.collect::<Vec<Vec<String>>>()
    });
    grid(heads.collect::<Vec<_>>(), rows.collect::<Vec<_>>(), 3..13, true, 0)
}

/// How rows are named.
struct Names<'a> {
    /// The path of all cells, if rows have other differences than the path. The headings name it instead of the rows.
    common: Option<&'a str>,
}

impl<'a> Names<'a> {
    fn of(reduced: &'a Reduced) -> Self {
        let paths: BTreeSet<&str> = reduced.cells.iter().map(|summary| summary.cell.path.as_str()).collect();
        let differs = groups(reduced).iter().any(|group| group.len() > 1);
        Self { common: paths.first().copied().filter(|_| paths.len() == 1 && differs) }
    }

    fn name(&self, summary: &Summary, group: &[&Summary]) -> String {
        let name = path_name(&summary.cell, group);
        match self.common.and_then(|path| name.strip_prefix(path)) {
            Some(rest) if !rest.is_empty() => rest.trim_start().to_owned(),
            Some(_) | None => name,
        }
    }
}

fn rows(reduced: &Reduced, comparisons: &[Comparison], group: &[&Summary], names: &Names<'_>) -> Vec<Vec<Field>> {
    let most = group.iter().map(|summary| charged(&summary.cpu).max(summary.cpu.total.total)).fold(0.0, f64::max);
    let cells: Vec<_> = reduced.cells.iter().map(|summary| summary.cell.clone()).collect();
    let row = |summary: &&Summary| {
        let (scale, _) = cpu_scale(summary.cell.workload.cpu_unit());
        let cpu = &summary.cpu;
        let latency = |value: Option<f64>| value.map_or("-".into(), number);
        let time = |value: f64| Field::from(number(value * scale));
        let base = base_of(comparisons, &cells, &summary.cell);
        let of = |metric: Metric| {
            let all = comparisons.iter().flat_map(|one| &one.rows);
            base.and_then(|base| {
                all.into_iter().find(|row| row.metric == metric && row.new == summary.cell && row.base == *base)
            })
        };
        let is_first = summary.cell == group[0].cell;
        let [rate, total] = match (is_first, base) {
            (true, _) => [Field::from(if group.len() > 1 { "base" } else { "" }), Field::default()],
            (false, None) => ["-".into(), "-".into()],
            (false, Some(_)) => [Metric::Rate, Metric::TOTAL].map(|metric| of(metric).map_or("-".into(), ratio)),
        };
        let other = base.filter(|base| **base != group[0].cell);
        let other = other.and_then(|base| group.iter().find(|summary| summary.cell == *base));
        let [client, router, server, other_work, residue] = components(cpu, time);
        vec![
            names.name(summary, group).into(),
            number(summary.rate).into(),
            spread(summary).into(),
            latency(summary.latency.p50).into(),
            latency(summary.latency.p99).into(),
            time(cpu.total.total),
            client,
            router,
            server,
            other_work,
            residue,
            rate,
            total,
            other.map_or_else(Field::default, |other| names.name(other, group).into()),
            bar(cpu, most).into(),
        ]
    };
    group.iter().map(row).collect()
}

/// Returns what a verdict says about a figure: the ratio if it became better or worse.
pub(super) fn ratio(row: &Row) -> Field {
    verdict(&row.verdict, row.ratio, row.low.zip(row.high))
}

/// Returns what a verdict says about a ratio with these ends of its interval.
pub(super) fn verdict(verdict: &Verdict, ratio: f64, ends: Option<(f64, f64)>) -> Field {
    match verdict {
        Verdict::Better | Verdict::Worse => interval(ratio, ends).toned(Tone::of(verdict)),
        Verdict::Equivalent => "same".into(),
        Verdict::Inconclusive { .. } => "cannot tell".into(),
        Verdict::NotComparable { .. } => "not comparable".into(),
    }
}

fn interval(ratio: f64, ends: Option<(f64, f64)>) -> Field {
    let short = format!("{}x", number(ratio));
    match ends {
        Some((low, high)) => Field::from(format!("{short} {}-{}", number(low), number(high))).or(short),
        None => short.into(),
    }
}

/// Returns the geometric means of each comparison of paths or levels: a heading and a row for each.
fn means(comparisons: &[Comparison]) -> Vec<Line> {
    let mut lines = Vec::new();
    for comparison in comparisons.iter().filter(|one| matches!(one.subject, Subject::Levels | Subject::Paths)) {
        let Some(cells) = comparison.means.first().map(|mean| mean.cells) else { continue };
        let (base, new) = (&comparison.base, &comparison.new);
        lines.push(Line::Heading(format!("{new} compared with {base}, geometric mean of {cells} cells")));
        let of = |metric: Metric| comparison.means.iter().find(|mean| mean.metric == metric).map_or("-".into(), mean);
        let mut row = vec![Field::default(); COLUMNS.len()];
        row[0] = "  mean ratio".into();
        (row[RATIO], row[RATIO + 1]) = (of(Metric::Rate), of(Metric::TOTAL));
        lines.push(Line::Row(row));
    }
    lines
}

/// Returns a geometric mean with its interval; "same" if it is within 2%, and "cannot tell" if the interval contains 1.
pub(super) fn mean(mean: &Mean) -> Field {
    if mean.is_same() {
        return "same".into();
    }
    if !mean.is_clear() {
        return "cannot tell".into();
    }
    let is_better = (mean.value > 1.0) == mean.metric.more_is_better();
    interval(mean.value, mean.low.zip(mean.high)).toned(if is_better { Tone::Better } else { Tone::Worse })
}

/// Returns the units of a workload in words.
pub(super) fn unit_words(workload: Work) -> &'static str {
    match workload.unit() {
        Unit::Transaction if workload.beside() > 0 => {
            "rate in transactions per second, CPU time in milliseconds per MB of all payload, that of the streams included"
        }
        Unit::Transaction => "rate in transactions per second, CPU time in microseconds per transaction",
        Unit::Megabyte => "rate in MB of payload per second, CPU time in milliseconds per MB",
        Unit::Run => "rate in runs per second, CPU time in milliseconds per run",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Layout, Screen, render, text};
    use siga_results::testing;
    use unicode_width::UnicodeWidthStr;

    fn run() -> Run {
        let mut run = testing::run("run", Vec::new());
        for round in 0..9_u32 {
            for clients in [1, 10] {
                for (path, ms) in [("veth-routed", 1_000), ("hipersockets-routed", 400), ("vctc", 1_000)] {
                    for workload in ["rr-200-1000", "strg-20m"] {
                        let mut trial = testing::trial(path, round, 700, None);
                        (trial.cell.clients, trial.cell.workload) = (clients, workload.parse().unwrap());
                        trial.elapsed_ns = (ms + u64::from(round * 7 % 5)) * 1_000_000;
                        run.trials.push(trial);
                    }
                }
            }
        }
        run
    }

    #[test]
    fn the_table_of_a_run_fits_80_100_and_120_columns_with_one_line_a_cell() {
        let run = run();
        for width in [80, 100, 120, 200] {
            let text = text(&run, Layout::Plain, None, &Screen { width, wraps: true, colour: false }).unwrap();
            assert!(text.lines().all(|line| line.width() <= width), "{width}:\n{text}");
            for path in ["veth-routed", "hipersockets-routed", "vctc"] {
                let rows = text.lines().filter(|line| line.trim_start().starts_with(&format!("{path}  ")));
                let rows: Vec<&str> = rows.collect();
                assert_eq!(rows.len(), 4, "{width}:\n{text}");
            }
            // The bar goes first, then the residue, then the shares.
            let heads = text.lines().find(|line| line.contains("rate ratio")).unwrap();
            let has = |what: &str| heads.contains(what);
            assert_eq!(
                (text.contains('█'), has("residue"), has("server")),
                (width > 160, width > 160, width >= 120),
                "{text}"
            );
            assert!(width < 120 || has("p50"), "{heads}");
        }
    }

    #[test]
    fn verdicts_are_coloured_on_a_terminal_and_nowhere_else() {
        let run = run();
        let screen = Screen { width: 120, wraps: true, colour: true };
        let coloured = text(&run, Layout::Plain, None, &screen).unwrap();
        let row = coloured.lines().find(|line| line.starts_with("  hipersockets-routed")).unwrap();
        assert!(row.contains("\u{1b}[32m2.49x") && row.contains("  same"), "{row:?}");
        for format in [Format::Text, Format::Md, Format::Json, Format::Csv] {
            assert!(!render(&run, format, Layout::Plain, None).unwrap().contains('\u{1b}'));
        }
    }

    #[test]
    fn the_geometric_mean_has_a_row() {
        let text = render(&run(), Format::Text, Layout::Plain, None).unwrap();
        let mean =
            text.split("hipersockets-routed compared with veth-routed, geometric mean of 4 cells\n").nth(1).unwrap();
        let mean = mean.lines().next().unwrap();
        assert!(mean.starts_with("  mean ratio") && mean.contains("2.49x "), "{mean}");
    }
}
