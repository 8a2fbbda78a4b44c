//! The top of the page: the answer in one sentence, the verdicts by number, and what was measured under which conditions.

use super::ShownRun;
use super::forest::word;
use crate::words::{counted, number};
use crate::zvm::answers::{counts, measured};
use maud::{Markup, html};
use siga_results::judge::{Comparison, Metric, Row, Subject, Verdict};
use siga_results::summary::{base_of, kernel_path_of};
use std::collections::BTreeSet;

/// Maximum number of comparisons that the top of the page answers with a sentence each.
const SENTENCES_MAX: usize = 4;

/// Returns the sentences that answer what the comparisons ask, at most [`SENTENCES_MAX`]. If there is no comparison, the sentence
/// says what was measured.
pub(super) fn sentences(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Vec<String> {
    let judged: Vec<&Comparison> = comparisons.iter().filter(|comparison| !comparison.emulated).collect();
    if judged.is_empty() {
        return vec![measured_alone(shown)];
    }
    let named = judged.len() > 1;
    judged.into_iter().take(SENTENCES_MAX).map(|comparison| sentence(comparison, named)).collect()
}

fn measured_alone(shown: &[ShownRun<'_>]) -> String {
    let cells: Vec<_> = shown.iter().flat_map(|one| &one.reduced.cells).collect();
    let paths: BTreeSet<&str> = cells.iter().map(|summary| summary.cell.path.as_str()).collect();
    let paths: Vec<&str> = paths.into_iter().collect();
    match cells.as_slice() {
        [] => "Nothing was measured.".to_owned(),
        [one] => {
            let rate = number(one.rate);
            format!(
                "{} carries {} at {rate} {}.",
                one.cell.path,
                one.cell.workload,
                one.cell.workload.unit().rate_name()
            )
        }
        all => {
            let more = if paths.len() > 3 { format!(" and {} more paths", paths.len() - 3) } else { String::new() };
            format!(
                "{} of {}{more}, without a comparison.",
                counted(all.len(), "cell"),
                paths[..paths.len().min(3)].join(", ")
            )
        }
    }
}

/// Returns what a comparison says about rate and CPU time. The sentence claims a direction only for figures with a verdict. If
/// `named`, the names of paths are part of the sentence.
fn sentence(comparison: &Comparison, named: bool) -> String {
    let (base, new) = sides(comparison, named);
    let of = |metric: Metric| -> Vec<&Row> { comparison.rows.iter().filter(|row| row.metric == metric).collect() };
    let (rate, cpu) = (of(Metric::Rate), of(Metric::TOTAL));
    if rate.is_empty() && cpu.is_empty() {
        return format!("{new} and {base} have no rate and no CPU time in common.");
    }
    if comparison.no_verdict().is_some() {
        return format!("This run has no verdict on {new} against {base}.");
    }
    if rate.iter().chain(&cpu).all(|row| matches!(row.verdict, Verdict::NotComparable { .. })) {
        return format!("{new} cannot be compared with {base}.");
    }
    match (claim(&rate, "rate"), claim(&cpu, "CPU time per unit")) {
        (Some(rate), Some(cpu)) => format!("{new} has {rate} and takes {cpu}, compared with {base}."),
        (Some(rate), None) => {
            format!(
                "{new} has {rate}, compared with {base}. This run cannot tell whether it takes more or less CPU time."
            )
        }
        (None, Some(cpu)) => {
            format!("{new} takes {cpu}, compared with {base}. This run cannot tell whether it is faster or slower.")
        }
        (None, None) => format!("This run cannot tell whether {new} is faster than {base} or takes less CPU time."),
    }
}

/// Returns the names of the base side and of the new side as a sentence uses them. Names of paths and runs keep their case.
fn sides(comparison: &Comparison, named: bool) -> (String, String) {
    let (base, new) = (&comparison.base, &comparison.new);
    let name = |words: &str, name: &str| if named { format!("{words} ({name})") } else { words.to_owned() };
    let is_without = |row: &Row| base_of(&row.new).is_some_and(|without| without.path == row.base.path);
    match comparison.subject {
        Subject::Paths if kernel_path_of(new) == Some(base) => {
            let routed = if base == "veth-routed" { "routed network" } else { "network" };
            (name("the kernel's", base), name(&format!("siga's {routed}"), new))
        }
        Subject::Paths if comparison.rows.first().is_some_and(is_without) => {
            let node = if new == "bridge" { "bridge" } else { "router" };
            (format!("{base} without the {node}"), format!("{new} with a {node}"))
        }
        Subject::Levels => (format!("level {base}"), format!("level {new}")),
        Subject::Paths | Subject::Runs => (base.clone(), new.clone()),
    }
}

/// Returns what rows of one metric say together, such as "1.4 to 3.7 times the rate in 4 of 6 cells (0.50 times in 2)"; `None` if
/// no row has a verdict. Cells that became better come first.
fn claim(rows: &[&Row], noun: &str) -> Option<String> {
    let of = |verdict: Verdict| -> Vec<f64> {
        rows.iter().filter(|row| row.verdict == verdict).map(|row| row.ratio).collect()
    };
    let all = rows.len();
    let part = |count: usize| if count == all { String::new() } else { format!(" in {count} of {all} cells") };
    let times = |ratios: &[f64]| {
        let ends = ratios.iter().copied().reduce(f64::min).zip(ratios.iter().copied().reduce(f64::max));
        ends.map(|(least, most)| {
            let (least, most) = (short(least), short(most));
            if least == most { least } else { format!("{least} to {most}") }
        })
    };
    let (better, worse, same) = (of(Verdict::Better), of(Verdict::Worse), of(Verdict::Equivalent).len());
    let (first, second) = if better.is_empty() { (worse, better) } else { (better, worse) };
    let Some(range) = times(&first) else {
        return (same > 0).then(|| format!("the same {noun} within 2%{}", part(same)));
    };
    let others = times(&second).map(|range| format!("{range} times in {}", second.len()));
    let same = (same > 0).then(|| format!("the same within 2% in {same}"));
    let rest: Vec<String> = others.into_iter().chain(same).collect();
    let rest = if rest.is_empty() { String::new() } else { format!(" ({})", rest.join(", ")) };
    Some(format!("{range} times the {noun}{}{rest}", part(first.len())))
}

/// Formats a ratio with two significant digits: "0.17", "3.7", "12".
fn short(ratio: f64) -> String {
    let places = match ratio {
        _ if ratio >= 9.95 => 0,
        _ if ratio >= 0.995 => 1,
        _ if ratio >= 0.0995 => 2,
        _ => 3,
    };
    format!("{ratio:.places$}")
}

/// Returns the verdicts on the main figures of all comparisons by number, in colour and in words.
pub(super) fn verdicts(comparisons: &[Comparison]) -> Markup {
    let rows =
        || comparisons.iter().filter(|one| !one.emulated).flat_map(|one| &one.rows).filter(|row| row.metric.is_main());
    let all = rows().count();
    let kinds = [
        Verdict::Better,
        Verdict::Worse,
        Verdict::Equivalent,
        Verdict::Inconclusive { trials: None },
        Verdict::NotComparable { reason: String::new() },
    ];
    let counts = kinds.iter().map(|kind| (kind, rows().filter(|row| row.verdict.name() == kind.name()).count()));
    let counts: Vec<_> = counts.filter(|(_, count)| *count > 0).collect();
    html! {
        @if all > 0 {
            p class="verdicts" {
                @for (kind, count) in &counts { span class="badge" { (word(kind)) " in " b { (count) } " of " (all) } }
                span class="soft" { "Main figures: rate, CPU time per unit and p99 latency of each cell." }
            }
        }
    }
}

/// Returns how many findings of z/VM's report hold, for runs that were compared with it.
pub(super) fn findings(shown: &[ShownRun<'_>]) -> Markup {
    html! {
        @for one in shown.iter().filter(|one| !one.repeat.judged.is_empty()) {
            p class="lead" {
                (counts(&measured(&one.repeat).0)) " of z/VM's report on levels 420 and 430. "
                a href="#findings" { "Each finding with its cases" }
            }
        }
    }
}

/// Returns what was measured, where and when.
pub(super) fn conditions(shown: &[ShownRun<'_>]) -> Markup {
    html! { @for one in shown { p class="soft conditions" { @if shown.len() > 1 { b { (one.name) } ": " } (condition(one)) } } }
}

fn condition(shown: &ShownRun<'_>) -> String {
    let run = shown.run;
    let (environment, rounds) = (&run.environment, shown.reduced.disturbance.rounds());
    let mut words = vec![format!("Plan {}", run.plan.name), counted(shown.reduced.cells.len(), "cell")];
    words.push(counted(rounds, "round"));
    words.push(format!("{} s a trial", run.plan.seconds));
    words.extend(environment.kernel.release.clone().map(|release| format!("Linux {release}")));
    words.extend(environment.cpu.online.map(|count| counted(count as usize, "CPU")));
    words.extend(
        environment.moment.time.clone().map(|time| time.chars().take(16).collect::<String>().replace('T', " ")),
    );
    words.join(" · ")
}
