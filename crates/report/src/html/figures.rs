//! The charts in the folds of the page: forest plots of ratios, latency percentiles, rate over number of client-server pairs, and
//! what the host did in each round.
//!
//! A chart without data is left out. If there are too many rows for a chart, it shows the first or the most important ones, and a
//! note says so. The tables and the raw data of the page contain all rows.

use super::ShownRun;
use super::costs::ratio;
use super::disturbance;
use super::forest::{Judged, forest};
use super::lines::{Across, Point, SERIES_MAX, Series, lines};
use super::page::{Figure, Section, figure, heads};
use super::plot::Scale;
use super::sides::is_drawn;
use super::verdict::{interval, metric, values, what};
use crate::words::{grouped, in_interval, noise_floor, number, pairs, ratio_text};
use maud::{Markup, html};
use siga_model::error::Result;
use siga_plan::work::Work;
use siga_results::histogram::{at_quantile, decode};
use siga_results::judge::{Comparison, Metric, Mode, Part, Row, Verdict};
use siga_results::summary::Summary;
use std::collections::BTreeSet;

/// Maximum number of rows in one chart.
const ROWS_MAX: usize = 40;
/// Maximum number of charts of one kind.
const CHARTS_MAX: usize = 12;

/// One cell for a chart: the name of its run, and the cell's summary.
type Item<'a> = (&'a str, &'a Summary);

/// Returns the folds with charts, each with its title and its figures. A fold without a figure is left out.
pub(super) fn folds(shown: &[ShownRun<'_>], comparisons: &[&Comparison]) -> Result<Vec<Section>> {
    let items: Vec<Item<'_>> = shown
        .iter()
        .flat_map(|one| one.judged.agreed.cells.iter().map(move |cell| (one.name.as_str(), cell)))
        .collect();
    let kinds = [
        ("ratios", "Ratios with their intervals", comparisons.iter().filter_map(|one| forest_of(one)).collect()),
        ("latency", "Latency by percentile", latencies(&items)?),
        ("pairs", "Rate over pairs", by_workload(&items).iter().filter_map(|(_, items)| rates(items)).collect()),
        ("host", "The host, round by round", shown.iter().flat_map(disturbance::charts).collect::<Vec<_>>()),
    ];
    let kinds = kinds.into_iter().filter(|(_, _, figures)| !figures.is_empty());
    Ok(kinds.map(|(id, title, figures)| Section::folded(id, title, body(&figures))).collect())
}

fn body(figures: &[Figure]) -> Markup {
    html! {
        div class="charts" { @for one in figures.iter().take(CHARTS_MAX) { (figure(one)) } }
        @if figures.len() > CHARTS_MAX {
            p class="note" {
                (CHARTS_MAX) " of " (figures.len()) " charts of this kind are shown; the tables and the raw data below contain \
                 all figures."
            }
        }
    }
}

fn left_out(drawn: usize, all: usize, which: &str) -> Option<String> {
    let words =
        || format!("The charts show {drawn} of {all} rows, {which}; the tables and the raw data contain all rows.");
    (drawn < all).then(words)
}

fn says(comparison: &Comparison, row: &Row) -> String {
    let interval = in_interval(interval(row), ratio_text);
    format!(
        "{}: {}\n{} against {}\nratio {}{interval}\n{}\n{}",
        metric(&row.metric),
        what(comparison, row),
        comparison.new,
        comparison.base,
        ratio_text(row.ratio),
        values(row),
        row.verdict.name()
    )
}

/// Returns a forest plot of the most important ratios of a comparison, with interval, noise floor and verdict.
fn forest_of(comparison: &Comparison) -> Option<Figure> {
    let metrics =
        [Metric::Rate, Metric::P99, Metric::Cpu(Part::Total, Mode::All), Metric::Cpu(Part::Router, Mode::All)];
    let of = |metric: Metric| comparison.rows.iter().filter(move |row| row.metric == metric);
    let figures: BTreeSet<Metric> =
        comparison.rows.iter().map(|row| row.metric).filter(|metric| matches!(metric, Metric::Figure(_))).collect();
    let all: Vec<&Row> = figures.into_iter().chain(metrics).flat_map(of).filter(|row| is_drawn(row)).collect();
    let decided = |row: &Row| matches!(row.verdict, Verdict::Better | Verdict::Worse);
    let mut order: Vec<usize> = (0..all.len()).collect();
    order.sort_by(|&left, &right| {
        let size = |at: usize| all[at].ratio.ln().abs();
        decided(all[right]).cmp(&decided(all[left])).then(size(right).total_cmp(&size(left)))
    });
    order.truncate(ROWS_MAX);
    order.sort_unstable();
    let drawn: Vec<_> = order.iter().map(|&at| judged(comparison, all[at])).collect();
    let title = format!("{} against {}", comparison.new, comparison.base);
    (!drawn.is_empty()).then(|| Figure {
        about:
            "Each mark is the ratio of new to base, on a logarithmic scale. For a rate, a ratio above 1 is better; for all \
             other figures, a ratio below 1 is better. The grey box is the noise floor: the interval that two equal sides can \
             have."
                .into(),
        drawing: forest(&drawn, &title, "ratio, new over base (log scale)"),
        head: heads(&["what", "figure", "ratio", "95% interval", "noise floor", "verdict"]),
        numbers: 2..5,
        rows: order.iter().map(|&at| forest_row(comparison, all[at])).collect(),
        left_out: left_out(drawn.len(), all.len(), "those with a verdict and the largest differences first"),
        title,
    })
}

fn judged<'a>(comparison: &Comparison, row: &'a Row) -> Judged<'a> {
    Judged {
        group: metric(&row.metric).into(),
        label: what(comparison, row),
        ratio: ratio(row),
        says: says(comparison, row),
    }
}

fn forest_row(comparison: &Comparison, row: &Row) -> Vec<String> {
    vec![
        what(comparison, row),
        metric(&row.metric).into(),
        ratio_text(row.ratio),
        interval(row).map_or("-".into(), |(low, high)| format!("{} to {}", ratio_text(low), ratio_text(high))),
        noise_floor(row.noise_floor),
        row.verdict.name().into(),
    ]
}

/// Groups the cells by workload. Groups and cells stay in the order in which the runs contain them.
fn by_workload<'a>(items: &[Item<'a>]) -> Vec<(Work, Vec<Item<'a>>)> {
    grouped(items.iter().copied(), |(_, summary)| summary.cell.workload)
}

/// Returns the label of a cell in a chart with the cells `all`. The label is the path, followed by MTU, level and run if cells of
/// the chart differ in them. A level other than `plain` is always part of the label.
fn label((run, summary): &Item<'_>, all: &[Item<'_>]) -> String {
    let cell = &summary.cell;
    let mut words = vec![cell.path.clone()];
    let mtus = all.iter().any(|(_, other)| other.cell.path == cell.path && other.cell.mtu != cell.mtu);
    if let (true, Some(mtu)) = (mtus, cell.mtu) {
        words.push(format!("mtu {mtu}"));
    }
    if cell.level != "plain" || all.iter().any(|(_, other)| other.cell.level != cell.level) {
        words.push(cell.level.clone());
    }
    if all.iter().any(|(other, _)| other != run) {
        words.push(format!("({run})"));
    }
    words.join(" ")
}

/// Returns the lines of a chart with their labels. Cells with the same label are the points of one line.
fn series<'a>(items: &[Item<'a>]) -> Vec<(String, Vec<Item<'a>>)> {
    grouped(items.iter().copied(), |item| label(item, items))
}

/// Returns a line chart of one workload: the mean rate with its interval (vertical axis) over the number of client-server pairs
/// (horizontal axis).
fn rates(items: &[Item<'_>]) -> Option<Figure> {
    let workload = items.first()?.1.cell.workload;
    let sound = |(_, summary): &&Item<'_>| summary.rate_estimate.value.is_finite() && summary.rate_estimate.value > 0.0;
    let items: Vec<_> = items.iter().filter(sound).copied().collect();
    let mut counts: Vec<u32> = items.iter().map(|(_, summary)| summary.cell.clients).collect();
    counts.sort_unstable();
    counts.dedup();
    let (least, most) = (f64::from(*counts.first()?), f64::from(*counts.last()?));
    if least == most {
        return None;
    }
    let across = |clients: u32| 0.09 + 0.82 * (f64::from(clients) / least).ln() / (most / least).ln();
    // Points that would overlap are left out.
    let kept = apart(&counts, across, 0.02);
    let mut all = series(&items);
    let left_out = [
        series_left_out(all.len()),
        (kept.len() < counts.len())
            .then(|| format!("The charts show {} of the {} measured numbers of pairs.", kept.len(), counts.len())),
    ];
    all.truncate(SERIES_MAX);
    let unit = workload.unit().rate_name();
    let mut rows = Vec::new();
    let mut drawn = Vec::new();
    for (label, mut items) in all {
        items.sort_by_key(|(_, summary)| summary.cell.clients);
        let point = |(_, summary): &Item<'_>| {
            let estimate = &summary.rate_estimate;
            let interval = estimate.low.zip(estimate.high);
            let words = interval.map_or("-".into(), |(low, high)| format!("{} to {}", number(low), number(high)));
            let (clients, mean, median) = (summary.cell.clients, number(estimate.value), number(summary.rate));
            rows.push(vec![label.clone(), clients.to_string(), mean.clone(), words.clone(), median.clone()]);
            let says = format!(
                "{label}, {}\nmean of {} trials: {mean} {unit}\n95% interval: {words}\nmedian trial: {median} {unit}",
                pairs(clients),
                estimate.count
            );
            Point { x: across(clients), y: estimate.value, interval, says }
        };
        let points = items.iter().filter(|(_, summary)| kept.contains(&summary.cell.clients)).map(point).collect();
        drawn.push(Series { label: label.clone(), points });
    }
    let ticks = apart(&counts, across, 0.11).into_iter().map(|count| (across(count), count.to_string())).collect();
    let across = Across { title: "client-server pairs (log scale)".into(), ticks };
    let title = format!("Rate over pairs: {workload}");
    Some(Figure {
        about: "Each mark is the mean of the trials with its 95% interval (Student's t; computed from logarithms if the trials differ much)."
            .into(),
        drawing: lines(&drawn, &title, &across, rate_scale(&drawn), unit),
        head: vec![
            "series".into(),
            "pairs".into(),
            format!("mean, {unit}"),
            "95% interval".into(),
            format!("median trial, {unit}"),
        ],
        numbers: 1..5,
        rows,
        left_out: left_out.into_iter().flatten().reduce(|all, one| format!("{all} {one}")),
        title,
    })
}

/// Returns a scale that is long enough for all means. Intervals extend the scale to at most 1.5 times the largest mean; the part
/// of an interval beyond the scale is cut off. Without this limit, the very wide interval of only two trials would make all other
/// lines flat.
fn rate_scale(series: &[Series]) -> Scale {
    const WIDER_MAX: f64 = 1.5;
    let points = || series.iter().flat_map(|one| &one.points);
    let most = points().map(|point| point.y).fold(0.0, f64::max);
    let intervals = points().filter_map(|point| point.interval).map(|(_, high)| high.min(most * WIDER_MAX));
    Scale::linear(intervals.chain([most]))
}

fn series_left_out(count: usize) -> Option<String> {
    let words =
        || format!("The chart shows the first {SERIES_MAX} of {count} lines; the tables and the raw data contain all.");
    (count > SERIES_MAX).then(words)
}

/// Returns those of `counts` (numbers of client-server pairs, ascending) whose positions are not too close together. `across`
/// returns the position of a number as a fraction of the chart's width. A number is left out if its position is less than `least`
/// to the right of the last number that is kept.
fn apart(counts: &[u32], across: impl Fn(u32) -> f64, least: f64) -> Vec<u32> {
    let mut kept: Vec<u32> = Vec::new();
    for &count in counts {
        if kept.last().is_none_or(|last| across(count) - across(*last) >= least) {
            kept.push(count);
        }
    }
    kept
}

/// The quantiles at which the latency charts have points. A line has no point at a quantile for which its histogram has too few
/// latencies.
const QUANTILES: [f64; 11] = [0.5, 0.75, 0.9, 0.95, 0.99, 0.995, 0.999, 0.9995, 0.9999, 0.99995, 0.99999];

/// Returns charts of the latency percentiles of the median trials: one chart for each workload and number of client-server pairs.
fn latencies(items: &[Item<'_>]) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for (workload, items) in by_workload(items) {
        let mut counts: Vec<u32> = items.iter().map(|(_, summary)| summary.cell.clients).collect();
        counts.sort_unstable();
        counts.dedup();
        for clients in counts {
            let items: Vec<_> = items.iter().filter(|(_, summary)| summary.cell.clients == clients).copied().collect();
            let title = format!("Latency: {workload}, {}", pairs(clients));
            figures.extend(latency(title, &items)?);
        }
    }
    Ok(figures)
}

/// Returns how far a quantile is in the tail of the distribution, in decades: 1 for 0.9, 2 for 0.99.
fn tail(quantile: f64) -> f64 {
    -(1.0 - quantile).log10()
}

fn latency(title: String, items: &[Item<'_>]) -> Result<Option<Figure>> {
    let mut all = Vec::new();
    for (label, items) in series(items) {
        let Some((_, summary)) = items.first() else { continue };
        let histogram = decode(&summary.median.latency)?;
        let us = QUANTILES.iter().filter_map(|&quantile| Some((quantile, at_quantile(&histogram, quantile)?)));
        let us: Vec<_> = us.filter(|(_, us)| *us > 0.0).collect();
        if !us.is_empty() {
            all.push((label, us));
        }
    }
    let count = all.len();
    all.truncate(SERIES_MAX);
    let deepest = all.iter().filter_map(|(_, us)| us.last()).map(|(quantile, _)| *quantile).fold(0.5, f64::max);
    if deepest <= 0.5 {
        return Ok(None);
    }
    let across = |quantile: f64| 0.03 + 0.94 * (tail(quantile) - tail(0.5)) / (tail(deepest) - tail(0.5));
    let name = |quantile: f64| format!("{}%", super::plot::tick((quantile * 1e7).round() / 1e5));
    let mut rows = Vec::new();
    let mut drawn = Vec::new();
    for (label, us) in &all {
        let point = |(quantile, us): &(f64, f64)| {
            rows.push(vec![label.clone(), name(*quantile), number(*us)]);
            let says = format!("{label}\n{} of exchanges took at most {} µs", name(*quantile), number(*us));
            Point { x: across(*quantile), y: *us, interval: None, says }
        };
        let points = us.iter().map(point).collect();
        drawn.push(Series { label: label.clone(), points });
    }
    let scale = Scale::log(drawn.iter().flat_map(|one| &one.points).map(|point| point.y));
    // The common percentiles get ticks first. Each other percentile gets a tick only if it is far enough from all ticks that
    // exist already.
    let mut ticks: Vec<(f64, String)> = Vec::new();
    for quantile in [0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999].into_iter().chain(QUANTILES).filter(|one| *one <= deepest)
    {
        let place = across(quantile);
        if ticks.iter().all(|(other, _)| (place - other).abs() > 0.15) {
            ticks.push((place, name(quantile)));
        }
    }
    let across = Across { title: "percentile (log scale of the tail)".into(), ticks };
    Ok(Some(Figure {
        about: "The values come from the median trial. The chart shows a percentile only if at least ten exchanges took longer.".into(),
        drawing: lines(&drawn, &title, &across, scale, "latency in µs (log scale)"),
        head: heads(&["series", "percentile", "latency, µs"]),
        numbers: 1..3,
        rows,
        left_out: series_left_out(count),
        title,
    }))
}
