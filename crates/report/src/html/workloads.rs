//! One chart for each workload: the rate, the CPU time by component and the ratios of every side, each to one scale.
//!
//! The drawing is a list of sides with text, so that every figure that a reader needs is written beside its mark, and a name is
//! never cut. On a narrow page, the drawings of a side lie below its name.

use super::ShownRun;
use super::bars::stretches;
use super::costs::ratio;
use super::forest::{self, Ratio, band, noise_floor, word};
use super::page::{Figure, figure};
use super::plot::{Scale, micro, percent, tick, whisker};
use super::rows::grid;
use super::sides::{FIGURES, Judged, Side, all, names};
use super::tables::{legend, named_parts, parts};
use super::verdict::interval;
use crate::table::{charged, methods};
use crate::words::{self, cpu_scale, grouped, in_interval, number, pairs, spread};
use maud::{Markup, html};
use siga_plan::matrix::Cell;
use siga_plan::work::Work;
use siga_plan::workload::PRESETS;
use siga_results::judge::{Comparison, Row};
use siga_results::summary::Summary;

/// Maximum number of sides in one chart.
const SIDES_MAX: usize = 40;
/// Maximum number of charts.
const CHARTS_MAX: usize = 12;

/// A side in a chart, with its texts and verdicts.
struct Line<'a> {
    side: Side<'a>,
    name: String,
    judged: Option<Judged<'a>>,
    /// What the chart says about the base: "base" if others are compared with this side, the name of the base if it is not the
    /// first side of the group.
    base: String,
}

/// Returns the charts of all workloads.
pub(super) fn section(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Markup {
    let mut workloads =
        grouped(all(shown).into_iter().filter(|side| is_drawn(side.summary)), |side| side.cell().workload);
    let count = workloads.len();
    workloads.truncate(CHARTS_MAX);
    let drawn: Vec<(Work, usize, Vec<Line<'_>>)> = workloads
        .into_iter()
        .map(|(workload, mut sides)| {
            sides.sort_by_key(|side| side.cell().clients);
            let all = sides.len();
            sides.truncate(SIDES_MAX);
            (workload, all, lines(&sides, comparisons))
        })
        .collect();
    // All charts have the same scale of ratios, so that a reader can compare the workloads.
    let ratios: Vec<Ratio<'_>> = drawn
        .iter()
        .flat_map(|(_, _, lines)| lines.iter().filter_map(|line| line.judged.as_ref()))
        .flat_map(|judged| judged.rows.iter().flatten().map(|row| ratio(row)))
        .collect();
    let scale = (!ratios.is_empty()).then(|| forest::scale(ratios.iter()));
    html! {
        @if drawn.is_empty() { p { "There is nothing to draw." } }
        @else {
            p class="soft" { "Hover, tap or focus a side to see all its figures; the arrow keys move to the next side." }
            (legend(&named_parts(drawn.iter().flat_map(|(_, _, lines)| lines).map(|line| line.side.cell()))))
            @if scale.is_some() { ul class="legend" { (noise_floor()) (band("equal", 1, "±2%")) } }
        }
        @for (workload, all, lines) in &drawn { (figure(&chart(*workload, *all, lines, scale))) }
        @if count > CHARTS_MAX {
            p class="note" { (CHARTS_MAX) " of " (count) " workloads are shown; the tables below contain all." }
        }
        @for one in shown {
            @let methods = methods(&one.judged.agreed);
            @if !methods.is_empty() { p class="note" { @if shown.len() > 1 { (one.name) ": " } (methods) } }
        }
    }
}

fn is_drawn(summary: &Summary) -> bool {
    let total = charged(&summary.cpu).max(summary.cpu.total.total);
    summary.rate.is_finite() && total.is_finite() && summary.rate.max(total) > 0.0
}

fn lines<'a>(sides: &[Side<'a>], comparisons: &'a [Comparison]) -> Vec<Line<'a>> {
    let names = names(sides).own;
    let first =
        |side: &Side<'a>| sides.iter().find(|other| other.cell().clients == side.cell().clients).map(Side::cell);
    let judged: Vec<Option<Judged<'a>>> = sides
        .iter()
        .map(|side| {
            side.judged(comparisons.iter().chain(&side.shown.judged.comparisons), first(side).unwrap_or(side.cell()))
        })
        .collect();
    let bases: Vec<Cell> = judged.iter().flatten().filter_map(|judged| judged.base().cloned()).collect();
    let lines = sides.iter().zip(&names).zip(judged).map(|((side, name), judged)| {
        let base = match judged.as_ref().map(Judged::base) {
            None if bases.contains(side.cell()) => "base".to_owned(),
            None => "not compared".to_owned(),
            Some(base) if base == first(side) => String::new(),
            Some(base) => {
                let at = sides.iter().position(|other| Some(other.cell()) == base);
                at.map_or(String::new(), |at| format!("against {}", names[at]))
            }
        };
        Line { side: *side, name: name.clone(), judged, base }
    });
    lines.collect()
}

fn chart(workload: Work, all: usize, lines: &[Line<'_>], ratios: Option<Scale>) -> Figure {
    let unit = workload.unit();
    let (factor, cpu) = cpu_scale(workload.cpu_unit());
    let cpu = micro(cpu);
    let cpu = cpu.as_str();
    let sides: Vec<Side<'_>> = lines.iter().map(|line| line.side).collect();
    let common = names(&sides).common;
    let most = |of: &dyn Fn(&Summary) -> f64| {
        let values = sides.iter().map(|side| of(side.summary)).filter(|value| value.is_finite());
        Scale::Linear { high: values.fold(f64::MIN_POSITIVE, f64::max) }
    };
    let rates = most(&|summary| summary.rate.max(summary.rate_estimate.high.unwrap_or(0.0).min(1.5 * summary.rate)));
    let costs = most(&|summary| charged(&summary.cpu).max(summary.cpu.total.total));
    let about = PRESETS.iter().find(|preset| preset.name == workload.to_string()).map(|preset| preset.about);
    let words = [about.map(str::to_owned), (!common.is_empty()).then_some(common)];
    let words: Vec<String> = words.into_iter().flatten().collect();
    let rate_name = unit.rate_name();
    let drawing = html! {
        div class={ "sides" @if ratios.is_none() { " alone" } } role="group" aria-label=(workload) {
            div class="heads" aria-hidden="true" {
                span {}
                span class="axis" { "rate, " (rate_name) ": longer is better" }
                span class="axis" { "CPU time, " (cpu) ": shorter is better" }
                @if ratios.is_some() { span class="axis" { "ratio to the base with its 95% interval (log scale)" } }
            }
            @for (number, line) in lines.iter().enumerate() {
                @let clients = line.side.cell().clients;
                @if number == 0 || lines[number - 1].side.cell().clients != clients { p class="group" { (pairs(clients)) } }
                div class="one mark" tabindex=(if number == 0 { "0" } else { "-1" }) role="img" aria-label=(says(line, factor, cpu)) {
                    span class="side" { (line.name) }
                    (rate(line.side.summary, rates))
                    (cost(line.side.summary, costs, factor))
                    @if let Some(scale) = ratios { (judged(line, scale)) }
                }
            }
            @if let Some(scale) = ratios { (below(scale)) }
        }
    };
    let mut head =
        vec!["side".to_owned(), "pairs".into(), rate_name.into(), "±".into(), "p50, µs".into(), "p99, µs".into()];
    head.push(format!("CPU, {cpu}"));
    head.extend(["client", "router", "server", "other", "residue"].map(str::to_owned));
    head.extend(FIGURES.map(|(_, name)| format!("{name}, ratio")));
    Figure {
        title: workload.to_string(),
        about: words.join("; "),
        drawing,
        numbers: 1..head.len(),
        head,
        rows: lines.iter().map(|line| row(line, factor)).collect(),
        left_out: (lines.len() < all).then(|| {
            format!(
                "The chart shows the first {} of {all} sides; the tables and the raw data contain all.",
                lines.len()
            )
        }),
    }
}

fn rate(summary: &Summary, scale: Scale) -> Markup {
    let estimate = &summary.rate_estimate;
    html! {
        span class="rate" {
            span class="what" { "rate" }
            b { (number(summary.rate)) }
            svg class="plot" width="100%" height="20" {
                rect class="rate" x="0" width=(percent(scale.at(summary.rate))) y="3" height="14" {}
                @if let Some(interval) = estimate.low.zip(estimate.high) { (whisker(scale, interval, 10.0)) }
            }
        }
    }
}

fn cost(summary: &Summary, scale: Scale, factor: f64) -> Markup {
    let total = percent(scale.at(summary.cpu.total.total));
    html! {
        span class="cpu" {
            span class="what" { "CPU time" }
            b { (number(summary.cpu.total.total * factor)) }
            svg class="plot" width="100%" height="20" {
                (stretches(&parts(&summary.cpu), scale, 3.0, 14.0))
                line class="total" x1=(total) x2=(total) y1="0" y2="20" {}
            }
        }
    }
}

/// Returns the ratios of a side to its base, one below the other.
fn judged(line: &Line<'_>, scale: Scale) -> Markup {
    let Some(judged) = &line.judged else {
        return html! { span class="ratios soft" { (line.base) } };
    };
    html! {
        span class="ratios" {
            @if !line.base.is_empty() { span class="soft" { (line.base) } }
            @for (row, (_, name)) in judged.rows.iter().zip(FIGURES) {
                @if let Some(row) = row {
                    span class="judged" {
                        span class="what" { (name) }
                        svg class="plot" width="100%" height="18" { (grid(scale, 18.0)) (forest::plot(&ratio(row), scale, 18.0)) }
                        b { (number(row.ratio)) }
                        (word(&row.verdict))
                    }
                }
            }
        }
    }
}

/// Draws the axis of the ratios below the sides.
fn below(scale: Scale) -> Markup {
    html! {
        div class="one foot" aria-hidden="true" {
            span class="ratios" {
                span class="judged" {
                    span class="what" {}
                    svg class="across" width="100%" height="18" {
                        @for value in scale.spaced_ticks() {
                            text class="tick" x=(percent(scale.at(value))) y="13" text-anchor="middle" { (tick(value)) }
                        }
                    }
                }
            }
        }
    }
}

/// Returns all figures of a side as lines of text.
fn says(line: &Line<'_>, factor: f64, unit: &str) -> String {
    let (summary, cell) = (line.side.summary, line.side.cell());
    let workload = cell.workload;
    let mut all = vec![format!("{}, {}, {}", line.name, workload, pairs(cell.clients))];
    let estimate = &summary.rate_estimate;
    let mean = match estimate.low.zip(estimate.high) {
        Some((low, high)) => {
            format!(" (mean of {} trials, 95% interval {} to {})", estimate.count, number(low), number(high))
        }
        None => String::new(),
    };
    all.push(format!("rate: {} {}{mean}", number(summary.rate), workload.unit().rate_name()));
    for (name, value) in [("p50", summary.latency.p50), ("p99", summary.latency.p99)] {
        all.extend(value.map(|value| format!("{name}: {} µs", number(value))));
    }
    for (name, figure) in COMPONENTS.iter().zip(components(summary, factor)) {
        all.push(format!("{name}: {figure} {unit}"));
    }
    all.push(format!("by {}", summary.cpu.method));
    if let Some(judged) = &line.judged {
        let base = judged.base().map_or(judged.comparison.base.clone(), ToString::to_string);
        all.push(format!("against {base}:"));
        all.extend(judged.rows.iter().zip(FIGURES).filter_map(|(row, (_, name))| Some(ratio_words((*row)?, name))));
    }
    all.join("\n")
}

fn ratio_words(row: &Row, name: &str) -> String {
    let interval = in_interval(interval(row), number);
    format!("{name}: {}x{interval}, {}", number(row.ratio), row.verdict.name())
}

/// The names of the figures that [`components`] returns.
const COMPONENTS: [&str; 6] = ["CPU", "client", "router", "server", "other", "residue"];

/// Returns the CPU times of a cell, multiplied by `factor`, as texts: total, client, router, server, other, and the residue (the
/// CPU time that could not be charged to a component).
fn components(summary: &Summary, factor: f64) -> [String; 6] {
    let figure = |value: f64| number(value * factor);
    let [client, router, server, other, residue] = words::components(&summary.cpu, figure);
    [figure(summary.cpu.total.total), client, router, server, other, residue]
}

fn row(line: &Line<'_>, factor: f64) -> Vec<String> {
    let summary = line.side.summary;
    let latency = |value: Option<f64>| value.map_or("-".into(), number);
    let mut row = vec![line.name.clone(), line.side.cell().clients.to_string(), number(summary.rate), spread(summary)];
    row.extend([latency(summary.latency.p50), latency(summary.latency.p99)]);
    row.extend(components(summary, factor));
    for at in 0..FIGURES.len() {
        let judged = line.judged.as_ref().and_then(|judged| judged.rows[at]);
        row.push(judged.map_or("-".into(), |row| format!("{} {}", number(row.ratio), row.verdict.name())));
    }
    row
}
