//! The picture at the top of the page: where the CPU time of one unit of work goes on each side, to one scale, with the rate beside
//! it, and the ratios of the sides in large figures.
//!
//! The picture shows one workload with one number of client-server pairs; the charts below it show all. If some cells became better
//! and others worse, it shows one that became worse. Otherwise it shows the cell in the middle, not the one with the largest
//! difference.

use super::ShownRun;
use super::bars::{Fill, stretches};
use super::forest::{self, Ratio, class, word};
use super::plot::{Scale, percent, px};
use super::sides::{FIGURES, Judged, Side, all, load, names};
use super::tables::{PARTS, parts};
use super::verdict::interval;
use crate::table::charged;
use crate::words::{cpu_scale, number};
use maud::{Markup, html};
use siga_plan::matrix::Cell;
use siga_plan::workload::Unit;
use siga_results::judge::{Comparison, Metric, Row, Verdict};
use siga_results::summary::Summary;

/// Maximum number of sides in the picture.
const SIDES_MAX: usize = 5;

/// The cell that the picture shows, and how it was selected.
struct Selected<'a> {
    sides: Vec<Side<'a>>,
    /// How the cell was selected; empty if there was nothing to select.
    reason: String,
    /// Number of sides of this workload that the picture has no room for.
    left_out: usize,
}

/// Returns the picture; `None` if no cell has a figure.
pub(super) fn section(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Option<Markup> {
    let selected = select(shown, comparisons)?;
    let sides = &selected.sides;
    let first = sides.first()?;
    let (scale, unit) = cpu_scale(first.cell().workload.unit());
    let names = names(sides);
    let most = sides.iter().map(|side| charged(&side.summary.cpu).max(side.summary.cpu.total.total));
    let across = Scale::Linear { high: most.filter(|most| most.is_finite()).fold(f64::MIN_POSITIVE, f64::max) };
    let judged: Vec<Option<Judged<'_>>> =
        sides.iter().map(|side| side.judged(comparisons.iter(), first.cell())).collect();
    let common = if names.common.is_empty() { String::new() } else { format!(", {}", names.common) };
    let a_unit = match first.cell().workload.unit() {
        Unit::Transaction => "transaction",
        Unit::Megabyte => "megabyte of payload",
        Unit::Run => "run",
    };
    let whose =
        if first.cell().workload.is_command() { "of all processes of the command" } else { "of the whole host" };
    Some(html! {
        p class="soft" { b { (load(first.cell())) (common) } ": CPU time " (whose) " for one " (a_unit) "; shorter is better." }
        div class="costs" {
            @for (side, name) in sides.iter().zip(&names.own) {
                (bar(side, name, across, (scale, unit)))
            }
        }
        @if selected.left_out > 0 {
            p class="note" { (selected.left_out) " more sides of this workload are in the charts below." }
        }
        @let compared: Vec<_> = judged.iter().zip(&names.own).filter_map(|(judged, name)| Some((judged.as_ref()?, name))).collect();
        @for (judged, name) in &compared { (cards(judged, name, compared.len() > 1, sides, &names.own)) }
        @if !compared.is_empty() {
            p class="note" {
                (selected.reason) " The verdicts at the top count three figures of each cell: rate, CPU time per unit and p99 latency."
            }
        }
    })
}

/// Selects the sides to show: those of one pair of compared cells, and all others that are compared with the same base. Without a
/// comparison, these are all sides of the first workload.
fn select<'a>(shown: &'a [ShownRun<'a>], comparisons: &[Comparison]) -> Option<Selected<'a>> {
    let mut sides = all(shown);
    let judged = || comparisons.iter().filter(|comparison| !comparison.emulated);
    let mut reason = String::new();
    match judged().find_map(chosen) {
        Some((row, words)) => {
            reason = words;
            let is_compared = |cell: &Cell| {
                let rows = judged().flat_map(|comparison| &comparison.rows);
                rows.filter(|other| other.base == row.base).any(|other| other.new == *cell)
            };
            sides.retain(|side| *side.cell() == row.base || is_compared(side.cell()));
        }
        None => {
            let first = sides.iter().find(|side| is_positive(side.summary))?.cell().clone();
            sides.retain(|side| side.is_beside(first.workload, first.clients));
        }
    }
    sides.retain(|side| is_positive(side.summary));
    let left_out = sides.len().saturating_sub(SIDES_MAX);
    sides.truncate(SIDES_MAX);
    (!sides.is_empty()).then_some(Selected { sides, reason, left_out })
}

fn is_positive(summary: &Summary) -> bool {
    let total = summary.cpu.total.total.max(charged(&summary.cpu));
    total.is_finite() && total > 0.0 && summary.rate.is_finite()
}

/// Returns a row of the pair of cells of a comparison that the picture shows, and the reason in words.
fn chosen(comparison: &Comparison) -> Option<(&Row, String)> {
    let cells: Vec<&[Row]> =
        comparison.rows.chunk_by(|one, next| one.base == next.base && one.new == next.new).collect();
    let has = |rows: &[Row], verdict: &Verdict| rows.iter().any(|row| row.metric.is_main() && row.verdict == *verdict);
    let of = |verdict: Verdict| -> Vec<&[Row]> { cells.iter().copied().filter(|rows| has(rows, &verdict)).collect() };
    let (better, worse) = (of(Verdict::Better), of(Verdict::Worse));
    let (mut candidates, words) = match (better.is_empty(), worse.is_empty()) {
        (false, false) => (worse, "cells in which a main figure became worse"),
        (true, true) => (cells.clone(), "cells"),
        (false, true) => (better, "cells in which a main figure became better"),
        (true, false) => (worse, "cells in which a main figure became worse"),
    };
    let size = |rows: &[Row]| {
        let ratio = |metric: Metric| rows.iter().find(|row| row.metric == metric).map(|row| row.ratio);
        ratio(Metric::TOTAL).or_else(|| ratio(Metric::Rate)).unwrap_or(1.0)
    };
    candidates.sort_by(|one, other| size(one).total_cmp(&size(other)));
    let middle = candidates.get(candidates.len() / 2)?;
    let reason = match candidates.len() {
        0 | 1 if cells.len() == 1 => String::new(),
        1 => format!("This is the only one of {} {words}.", cells.len()),
        2 => format!("Of the 2 {words}, this one has the larger ratio of CPU time."),
        count => format!("Of the {count} {words}, this one is in the middle by ratio of CPU time."),
    };
    Some((middle.first()?, reason))
}

/// Returns the bar of one side, with the CPU time of each component and the rate as text.
fn bar(side: &Side<'_>, name: &str, across: Scale, (scale, unit): (f64, &str)) -> Markup {
    const HEIGHT: f64 = 34.0;
    let (summary, cpu) = (side.summary, &side.summary.cpu);
    let total = percent(across.at(cpu.total.total));
    let named = parts(cpu).into_iter().zip(PARTS).filter(|((_, value), _)| *value > 0.0);
    // A residue of less than a hundredth of the total is not visible in the bar.
    let named = named.filter(|((fill, value), _)| *fill != Fill::Residue || *value > cpu.total.total / 100.0);
    html! {
        div class="cost" {
            div class="side" { strong { (name) } " " span class="soft" { (side.about()) } }
            svg class="plot" width="100%" height=(px(HEIGHT)) aria-hidden="true" {
                (stretches(&parts(cpu), across, 3.0, HEIGHT - 6.0))
                line class="total" x1=(total) x2=(total) y1="0" y2=(px(HEIGHT)) {}
            }
            p class="rate" { b { (number(summary.rate)) } " " span class="soft" { (summary.cell.workload.unit().rate_name()) } }
            p class="parts" {
                b { (number(cpu.total.total * scale)) " " (unit) } ": "
                @for ((fill, value), (_, name)) in named {
                    span class="part" { (swatch(fill)) (name) " " (number(value * scale)) } " "
                }
            }
        }
    }
}

/// Returns a small square with the colour and pattern of a part of a bar.
pub(super) fn swatch(fill: Fill) -> Markup {
    html! {
        svg class="swatch" width="13" height="13" aria-hidden="true" {
            rect class=(fill.class()) x="1" y="1" width="11" height="11" {}
        }
    }
}

/// Returns the ratios of the main figures of one side to its base in large figures.
fn cards(judged: &Judged<'_>, name: &str, named: bool, sides: &[Side<'_>], names: &[String]) -> Markup {
    let rows = || judged.rows.iter().flatten();
    let ratios: Vec<Ratio<'_>> = rows().map(|row| ratio(row)).collect();
    let scale = forest::scale(ratios.iter());
    let base = sides.iter().position(|side| Some(side.cell()) == judged.base()).map(|at| names[at].as_str());
    let base = base.unwrap_or(&judged.comparison.base);
    html! {
        @if named { p class="against" { strong { (name) } " against " (base) } }
        div class="cards" {
            @for (row, (_, noun)) in judged.rows.iter().zip(FIGURES) {
                @if let Some(row) = row { (card(row, noun, base, scale)) }
            }
        }
    }
}

fn card(row: &Row, noun: &str, base: &str, scale: Scale) -> Markup {
    let per = match (row.metric, row.new.workload.unit()) {
        (Metric::Cpu(..), Unit::Transaction) => " per transaction",
        (Metric::Cpu(..), Unit::Megabyte) => " per MB",
        (Metric::Cpu(..), Unit::Run) => " per run",
        (Metric::Rate | Metric::P50 | Metric::P99 | Metric::Sent | Metric::Loss | Metric::Jitter, _) => "",
    };
    html! {
        div class={ "card " (class(&row.verdict)) } {
            p class="ratio" { (number(row.ratio)) span class="times" { " times" } }
            p class="of" { "the " (noun) (per) " of " (base) }
            svg class="plot" width="100%" height="18" aria-hidden="true" { (forest::plot(&ratio(row), scale, 18.0)) }
            p class="interval" {
                @match interval(row) {
                    Some((low, high)) => { "95%: " (number(low)) " to " (number(high)) }
                    None => { "no interval: too few rounds" }
                }
            }
            p class="said" { (word(&row.verdict)) }
        }
    }
}

/// Returns the ratio of a row as it is drawn.
pub(super) fn ratio(row: &Row) -> Ratio<'_> {
    Ratio {
        value: row.ratio,
        interval: interval(row),
        noise: row.noise_floor.filter(|noise| noise.is_finite()),
        verdict: &row.verdict,
    }
}
