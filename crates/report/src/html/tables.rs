//! The section on tables: the cells with bars of their CPU time, the cautions, every comparison, and the runs in the layout of
//! z/VM's reports.

use super::bars::{Fill, stretches};
use super::page::{columns, text_class};
use super::plot::{Scale, micro};
use super::{ShownRun, verdict};
use crate::observer;
use crate::overview::unit_words;
use crate::table::{against, charged, groups, mark, methods, path_name};
use crate::why::Explained;
use crate::words::{self, cpu_scale, number, pairs, spread};
use crate::zvm;
use maud::{Markup, html};
use siga_plan::matrix::Cell;
use siga_results::judge::{Comparison, why};
use siga_results::summary::{Cpu, Summary};
use std::path::Path;

/// Returns the section for all runs.
pub(super) fn section(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Markup {
    html! {
        @for one in shown {
            @if shown.len() > 1 { h3 { (one.name) } }
            (newcomers(one))
            (accounting(one))
            (cautions(one))
        }
        @for comparison in comparisons { (verdict::table_of(comparison, explained(shown, comparison).as_ref())) }
        @for one in shown {
            details class="print" {
                summary { "The same in the layout of z/VM's performance reports" @if shown.len() > 1 { ": " (one.name) } }
                @match zvm::table::tables_text(one.run, &one.judged.median, &one.repeat) {
                    Ok(text) => (columns(&text)),
                    // This layout has figures per unit, which do not exist for a cell that completed no unit. The tables above
                    // show the figures that do exist.
                    Err(error) => p { "Not in this layout: " (error) "." },
                }
            }
        }
    }
}

/// The parts of a CPU bar from left to right, with their names.
pub(super) const PARTS: [(Fill, &str); 5] = [
    (Fill::Client, "client"),
    (Fill::Router, "router"),
    (Fill::Server, "server"),
    (Fill::Other, "other"),
    (Fill::Residue, "not attributed"),
];

/// Returns the parts of a CPU bar with the names that they have for these cells: a command is one part.
pub(super) fn named_parts<'a>(cells: impl IntoIterator<Item = &'a Cell>) -> [(Fill, &'static str); 5] {
    let mut cells = cells.into_iter().peekable();
    let are_commands = cells.peek().is_some() && cells.all(|cell| cell.workload.is_command());
    PARTS.map(|(fill, name)| if are_commands && fill == Fill::Client { (fill, "command") } else { (fill, name) })
}

/// Returns the lengths of a CPU bar's parts in CPU milliseconds per unit. A negative residue has length zero in the bar; the
/// table shows its value.
pub(super) fn parts(cpu: &Cpu) -> Vec<(Fill, f64)> {
    let router = cpu.router.unwrap_or_default();
    let values = [cpu.client.total, router.total, cpu.server.total, cpu.other.total, cpu.residue];
    PARTS.iter().zip(values).map(|((fill, _), value)| (*fill, value.max(0.0))).collect()
}

/// Returns the legend of bars: each fill with its name.
pub(super) fn legend(names: &[(Fill, &str)]) -> Markup {
    html! {
        ul class="legend" {
            @for (fill, name) in names {
                li {
                    svg class="key" width="26" height="16" aria-hidden="true" {
                        rect class=(fill.class()) x="1" y="1" width="24" height="14" {}
                    }
                    (name)
                }
            }
        }
    }
}

fn newcomers(shown: &ShownRun<'_>) -> Markup {
    let reduced = &shown.judged.agreed;
    html! {
        @if !reduced.cells.is_empty() { (legend(&named_parts(reduced.cells.iter().map(|summary| &summary.cell)))) }
        @for group in groups(reduced) { (one(shown, &group)) }
        @if !reduced.cells.is_empty() {
            p class="note" {
                "Rates are those of the median trial; ± is half the 95% interval of the mean of all trials. All figures of a \
                 row come from the trial with the median rate. MB is 10⁶ bytes of payload. " (methods(reduced))
            }
        }
    }
}

fn one(shown: &ShownRun<'_>, group: &[&Summary]) -> Markup {
    let first = &group[0].cell;
    let unit = first.workload.unit();
    let cpu = micro(cpu_scale(first.workload.cpu_unit()).1);
    let most = group.iter().map(|summary| charged(&summary.cpu).max(summary.cpu.total.total));
    let scale = Scale::Linear { high: most.fold(f64::MIN_POSITIVE, f64::max) };
    let heads: [&str; 5] = [unit.rate_name(), "±", "p50 µs", "p99 µs", &cpu];
    html! {
        h4 { (first.workload) ", " (pairs(first.clients)) (mark(shown.run)) }
        p class="soft" { (micro(unit_words(first.workload))) }
        div class="scroll" tabindex="0" role="region" aria-label="Table" {
            table {
                thead { tr {
                    th scope="col" { "path" }
                    @for head in heads { th scope="col" class="number" { (head) } }
                    th scope="col" { "component" }
                    @for (_, name) in named_parts([first]) { th scope="col" class="number" { (name) } }
                    th scope="col" class="against" { "against" }
                } }
                tbody { @for summary in group { (row(&shown.judged.comparisons, summary, group, scale)) } }
            }
        }
        (figures(group))
    }
}

/// Returns the table of the figures that a command prints; nothing if it prints none.
fn figures(group: &[&Summary]) -> Markup {
    html! {
        @if group.iter().any(|summary| !summary.figures.is_empty()) {
            div class="scroll" tabindex="0" role="region" aria-label="Table" {
                table {
                    thead { tr {
                        @for head in ["level", "figure", "unit"] { th scope="col" { (head) } }
                        @for head in ["value", "low", "high"] { th scope="col" class="number" { (head) } }
                    } }
                    tbody { @for summary in group { @for figure in &summary.figures { tr {
                        th scope="row" class=(text_class(&summary.cell.level)) { (summary.cell.level) }
                        td { (figure.key.name) }
                        td { (figure.key.unit) }
                        td class="number" { (number(figure.value)) }
                        @for end in [figure.estimate.low, figure.estimate.high] {
                            td class="number" { (end.map_or("-".into(), number)) }
                        }
                    } } } }
                }
            }
            p class="note" { "Figures are those of the median trial; low and high are the ends of the 95% interval of the mean." }
        }
    }
}

fn row(comparisons: &[Comparison], summary: &Summary, group: &[&Summary], scale: Scale) -> Markup {
    let (factor, _) = cpu_scale(summary.cell.workload.cpu_unit());
    let cpu = &summary.cpu;
    let latency = |value: Option<f64>| value.map_or("-".into(), number);
    let figures = [number(summary.rate), spread(summary), latency(summary.latency.p50), latency(summary.latency.p99)];
    let components = words::components(cpu, |value| number(value * factor));
    html! {
        tr {
            @let name = path_name(&summary.cell, group);
            th scope="row" class=(text_class(&name)) { (name) }
            @for figure in figures { td class="number" { (figure) } }
            td class="number" { (number(cpu.total.total * factor)) }
            td class="cpu" { svg aria-hidden="true" { (stretches(&parts(cpu), scale, 1.0, 14.0)) } }
            @for figure in components { td class="number" { (figure) } }
            td class="against" { (against(comparisons, summary, group[0])) }
        }
    }
}

/// Returns the table of what CPU accounting itself costs on each cell. The result is empty if the table has no row.
fn accounting(shown: &ShownRun<'_>) -> Markup {
    let rows = observer::rows(&shown.judged.agreed);
    let is_number = |at: usize| (2..5).contains(&at).then_some("number");
    html! {
        @if !rows.is_empty() {
            h4 { (observer::TITLE) }
            p class="soft" { (observer::LEGEND) }
            div class="scroll" tabindex="0" role="region" aria-label="Table" {
                table {
                    thead { tr {
                        @for (at, head) in observer::HEADS.into_iter().enumerate() { th scope="col" class=[is_number(at)] { (head) } }
                    } }
                    tbody { @for [cell, method, figures @ .., remark] in &rows {
                        tr {
                            th scope="row" class=(text_class(cell)) { (cell) }
                            td { (method) }
                            @for figure in figures { td class="number" { (figure) } }
                            td { (remark) }
                        }
                    } }
                }
            }
        }
    }
}

/// Returns a banner with the cautions about a run: flaws of trials, skipped cells and damaged files. The result is empty if there
/// are none.
fn cautions(shown: &ShownRun<'_>) -> Markup {
    let lines = words::cautions(shown.run, &shown.judged.agreed);
    html! {
        @if !lines.is_empty() {
            div class="banner" {
                ul { @for (kind, line) in &lines { li { strong { (kind) } ": " (line) } } }
            }
        }
    }
}

/// Returns the explanations of a comparison's verdicts on CPU time; `None` if the page does not have the runs of both sides.
fn explained(shown: &[ShownRun<'_>], comparison: &Comparison) -> Option<Explained> {
    let run = |directory: &Path| shown.iter().map(|one| one.run).find(|run| run.directory == directory);
    let (base, new) = match &comparison.run {
        Some(directory) => (run(directory)?, run(directory)?),
        None => (run(comparison.base.as_ref())?, run(comparison.new.as_ref())?),
    };
    Some(why::explain(comparison, base, new))
}
