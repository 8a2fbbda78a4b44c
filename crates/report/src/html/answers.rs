//! The section on findings. A finding is a statement of z/VM's report that compares the levels 420 and 430 (two sets of driver
//! features). The section shows whether each finding holds in the runs on the page.

use super::ShownRun;
use super::page::{heads, table};
use crate::words::capital;
use crate::zvm::answers::{CASE_HEADS, RULE, answer, case, counts, looked_at, measured, origin, tally, why};
use crate::zvm::check::CheckedFinding;
use maud::{Markup, html};

/// The heading of the section.
pub(super) const TITLE: &str = "Findings of z/VM's report";

/// Returns the section; `None` if no run has measured both levels, so that no finding could be judged.
pub(super) fn section(shown: &[ShownRun<'_>]) -> Option<Markup> {
    let any = shown.iter().any(|one| !one.repeat.judged.is_empty());
    any.then(|| {
        html! {
            p class="soft" { "The findings of z/VM's report on TCP/IP levels 420 and 430 over five connectivities, and whether each finding holds in this run." }
            @for one in shown {
                @if !one.repeat.judged.is_empty() {
                    @if shown.len() > 1 { h3 { (one.name) } }
                    (of_run(one))
                }
            }
            p class="note" { (RULE) }
        }
    })
}

/// Returns the section on the findings that plans state; `None` if no plan states any.
pub(super) fn of_plans(shown: &[ShownRun<'_>]) -> Option<Markup> {
    let any = shown.iter().any(|one| !one.repeat.of_plan.is_empty());
    any.then(|| {
        html! {
            p class="soft" { "The statements of the plan about its levels, and whether each holds in this run." }
            @for one in shown {
                @if shown.len() > 1 && !one.repeat.of_plan.is_empty() { h3 { (one.name) } }
                @for finding in &one.repeat.of_plan { (of_finding(finding, one)) }
            }
            p class="note" { (RULE) }
        }
    })
}

fn of_run(shown: &ShownRun<'_>) -> Markup {
    let (judged, unmeasured) = measured(&shown.repeat);
    let row = |one: &&CheckedFinding| {
        let [for_it, against, open] = ["for", "against", "open"].map(|way| one.count(way).to_string());
        vec![one.finding.says.clone(), answer(one).into(), for_it, against, open, origin(one.finding.from).into()]
    };
    let rows: Vec<Vec<String>> = judged.iter().map(row).collect();
    html! {
        p class="lead" { (counts(&judged)) "." }
        (table(&heads(&["finding", "here it", "cases for", "against", "neither", "from"]), &rows, 2..5))
        @for one in &judged { (of_finding(one, shown)) }
        @if !unmeasured.is_empty() { p class="soft" { "This run did not measure: " (unmeasured.join(", ")) "." } }
    }
}

fn of_finding(judged: &CheckedFinding, shown: &ShownRun<'_>) -> Markup {
    let finding = &judged.finding;
    let cases: Vec<Vec<String>> = judged.cases.iter().map(|one| case(one).to_vec()).collect();
    html! {
        details class="print" {
            summary { strong { (capital(answer(judged))) } ": " (finding.says) }
            p { (looked_at(finding)) ". " (tally(judged)) "." }
            ul { @for sentence in why(judged, &shown.judged.median, &shown.repeat) { li { (sentence) } } }
            @if !cases.is_empty() { (table(&heads(&CASE_HEADS), &cases, 2..6)) }
        }
    }
}
