//! The top of a page whose run repeats a published measurement: whether the findings of z/VM's report hold here, and one row of its
//! tables beside the same row of the run.

use super::ShownRun;
use super::costs::shown_row;
use super::sides::load;
use crate::words::number;
use crate::zvm::answers::{counts, measured, reasons};
use crate::zvm::findings::Origin;
use crate::zvm::pairs::{Location, Pair};
use crate::zvm::published::metric;
use maud::{Markup, html};
use siga_plan::workload::Unit;
use siga_results::judge::Comparison;

/// Returns how many findings hold, as a heading; `None` unless the page has one run that measured both levels of the report.
pub(super) fn heading(shown: &[ShownRun<'_>]) -> Option<String> {
    match shown {
        [one] => {
            let (judged, _) = measured(&one.repeat);
            judged.iter().any(|one| one.finding.from != Origin::Siga).then(|| format!("{}.", counts(&judged)))
        }
        _ => None,
    }
}

/// Returns what stands below the heading: why findings are inconclusive, a row of the published tables beside the run's, and what the
/// comparison of the levels answers. `answer` is the answer to the question of the plan.
pub(super) fn lead(shown: &ShownRun<'_>, comparisons: &[Comparison], answer: &[String]) -> Markup {
    let (judged, _) = measured(&shown.repeat);
    let reasons: Vec<String> = reasons(&judged).iter().map(|(count, kind)| format!("{count} have {kind}")).collect();
    html! {
        p class="soft" {
            "A finding holds only if each of its cases agrees with the report."
            @if !reasons.is_empty() { " Of the inconclusive findings, " (reasons.join(", ")) "." }
            " " a href="#findings" { "Each finding with its cases" }
        }
        (beside(shown, comparisons))
        @if !answer.is_empty() {
            p class="lead" {
                "Which level is better here is a separate question. " (answer.join(" "))
            }
        }
    }
}

/// Returns a row of the published tables beside the measured one: that of the cell whose CPU time the page shows, or else the first cell
/// with a published table.
fn beside(shown: &ShownRun<'_>, comparisons: &[Comparison]) -> Markup {
    let selected = shown_row(comparisons).and_then(|(row, _)| shown.repeat.pair(&row.new));
    let pairs = selected.into_iter().chain(&shown.repeat.pairs);
    let rows = |pair: &Pair| -> Vec<(&'static str, f64, Location)> {
        let unit = pair.cell.workload.unit();
        let cpu = match unit {
            Unit::Transaction => "CPU time per transaction",
            Unit::Megabyte => "CPU time per MB",
            Unit::Run => "CPU time per run",
        };
        let row = |(name, row): (&'static str, &str)| {
            let row = metric(row, unit);
            let [.., published] = pair.printed(&shown.repeat.published, &row)?;
            Some((name, published, pair.ratio(&row)?))
        };
        [("rate", "rate"), (cpu, "cpu")].into_iter().filter_map(row).collect()
    };
    let found = pairs.map(|pair| (pair, rows(pair))).find(|(_, rows)| !rows.is_empty());
    html! {
        @if let Some((pair, rows)) = found {
            p class="beside" {
                "Level " (pair.cell.level) " to " (pair.base_level) " in " b { (load(&pair.cell)) } ", " (pair.cell.path)
                @if let Some(mtu) = pair.cell.mtu { ", MTU " (number(mtu.into())) }
                ":"
            }
            div class="scroll" tabindex="0" role="region" aria-label="Published and measured" {
                table class="published" {
                    thead { tr { th scope="col" { "ratio" } th scope="col" { "published" } th scope="col" { "measured (95%)" } } }
                    tbody { @for (name, published, measured) in rows {
                        tr {
                            th scope="row" { (name) }
                            td { (number(published)) }
                            td { b { (number(measured.value)) } @if let Some((low, high)) = measured.interval { " (" (number(low)) " to " (number(high)) ")" } }
                        }
                    } }
                }
            }
        }
    }
}
