//! The sections on the networking matrix of 2009: a chart of the rates and one of the server's CPU times for each workload, and the
//! overview of throughput.

use super::ShownRun;
use super::bars::{Bar, Fill, bars};
use super::page::{Figure, Section, figure, heads, table};
use crate::connections::text::ABOUT;
use crate::connections::{Block, Connections, Entry, Line};
use crate::words::{capital, number};
use crate::zvm::answers::{CASE_HEADS, RULE, case, tally};
use crate::zvm::table::ratio_text;
use maud::{Markup, html};

/// The heading of the section with the overview.
const OVERVIEW: &str = "Networking throughput overview of 2009, published and measured";
/// The heading of the section with the charts.
const MATRIX: &str = "The matrix of 2009";

/// The text above the charts.
const CHARTS: &str =
    "Transactions or megabytes per second, and the CPU time of the server for each of them, with 10 connections.";

/// Returns the sections with the overviews and the charts of all runs that have measured the matrix.
pub(super) fn sections(shown: &[ShownRun<'_>]) -> Vec<Section> {
    let own = || shown.iter().filter_map(|one| Some((one, one.connections.as_ref()?)));
    if own().next().is_none() {
        return Vec::new();
    }
    let of_runs = |about: &str, body: fn(&Connections) -> Markup| {
        html! {
            p class="soft" { (about) }
            @for (one, connections) in own() {
                @if shown.len() > 1 { h3 { (one.name) } }
                (body(connections))
            }
        }
    };
    vec![
        Section::open("overview-2009", OVERVIEW, of_runs(ABOUT, overview)),
        Section::folded("matrix-2009", MATRIX, of_runs(CHARTS, charts)),
    ]
}

/// Returns the overview of one run.
fn overview(connections: &Connections) -> Markup {
    html! {
        @for (row, entries) in connections.rows() {
            h4 { (row) }
            (table(&heads(&["work", "published", "measured", "here"]), &entries.iter().map(|one| line(one)).collect::<Vec<_>>(), 0..0))
            @for one in &entries { (of_entry(one)) }
        }
        p class="note" { (RULE) }
    }
}

fn line(entry: &Entry) -> Vec<String> {
    let ratios: Vec<f64> = entry.checked.cases.iter().filter_map(|case| Some(case.measured?.value)).collect();
    let low = ratios.iter().copied().reduce(f64::min);
    let high = ratios.iter().copied().reduce(f64::max);
    let measured = match low.zip(high) {
        None => "-".to_owned(),
        Some((low, high)) if ratios.len() == 1 || low == high => format!("{}x", ratio_text(low)),
        Some((low, high)) => format!("{}x to {}x", ratio_text(low), ratio_text(high)),
    };
    vec![entry.column.clone(), entry.printed.clone(), measured, entry.checked.verdict.name().to_owned()]
}

fn of_entry(entry: &Entry) -> Markup {
    let cases: Vec<Vec<String>> = entry.checked.cases.iter().map(|one| case(one).to_vec()).collect();
    html! {
        details class="print" {
            summary { strong { (capital(entry.checked.verdict.name())) } ": " (entry.checked.finding.says) }
            p { (tally(&entry.checked)) "." }
            (table(&heads(&CASE_HEADS), &cases, 2..6))
        }
    }
}

/// Returns the charts of all workloads of one run.
fn charts(connections: &Connections) -> Markup {
    html! {
        div class="charts" {
            @for block in &connections.workloads {
                (figure(&rates(block)))
                (figure(&server(block)))
            }
        }
    }
}

fn rates(block: &Block) -> Figure {
    let unit = block.workload.unit().rate_name();
    let interval = |line: &Line| {
        line.rate.1.map_or_else(|| "-".to_owned(), |(low, high)| format!("{} to {}", number(low), number(high)))
    };
    let values = |line: &Line| (line.rate.0, interval(line));
    chart(block, &format!("{}: {unit}", block.name), unit, "The longer the bar, the better.", values)
}

fn server(block: &Block) -> Figure {
    let (scale, unit) = (block.workload.cpu_unit().cpu_scale(), block.workload.cpu_unit().cpu_name());
    let values = |line: &Line| (line.server_ms * scale, "-".to_owned());
    let title = format!("{}: server CPU in {unit}", block.name);
    chart(block, &title, unit, "The shorter the bar, the better.", values)
}

fn chart(block: &Block, title: &str, unit: &str, reading: &str, values: impl Fn(&Line) -> (f64, String)) -> Figure {
    let mut drawn = Vec::new();
    let mut rows = Vec::new();
    for line in &block.lines {
        let (value, interval) = values(line);
        let mtu = line.mtu.map(|mtu| format!("MTU {mtu}")).unwrap_or_default();
        drawn.push(Bar {
            group: line.connection.clone(),
            label: mtu.clone(),
            value: number(value),
            parts: vec![(Fill::Neither, value)],
            says: format!("{}, {mtu}\n{} {unit}\n95% interval: {interval}", line.connection, number(value)),
        });
        rows.push(vec![format!("{}, {mtu}", line.connection), number(value), interval]);
    }
    Figure {
        title: title.to_owned(),
        about: format!("{}, for each connection and MTU. {reading}", block.workload),
        drawing: html! { (bars(&drawn, title, unit, None)) },
        head: heads(&["what", unit, "95% interval"]),
        numbers: 1..3,
        rows,
        left_out: None,
    }
}
