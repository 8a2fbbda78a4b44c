//! The top of the page: the question, the answer in one sentence, and what was measured under which conditions.

use super::ShownRun;
use super::plot::micro;
use crate::words::{beside_conditions, counted, number};
use maud::{Markup, html};
use siga_model::error::Result;
use siga_results::judge::{Answers, Comparison, Metric, Row, Subject, Verdict};
use siga_results::summary::{base_of, kernel_path_of};
use std::collections::BTreeSet;

/// Maximum number of comparisons that the top of the page answers with a sentence each.
const SENTENCES_MAX: usize = 4;
/// Maximum number of lines with conditions below the answer.
const CONDITIONS_MAX: usize = 4;

/// Returns the question that the page answers: that of the plan, if the page has one run and its plan has one.
pub(super) fn question(shown: &[ShownRun<'_>]) -> Option<String> {
    match shown {
        [one] if !one.run.plan.question.is_empty() => Some(one.run.plan.question.clone()),
        _ => None,
    }
}

/// Returns the sentences that answer what the page is about. For one run, this is the answer to the question of its plan. Without such
/// an answer, there is a sentence for each comparison, at most [`SENTENCES_MAX`], or one that says what was measured.
pub(super) fn sentences(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Result<Vec<String>> {
    let planned = match shown {
        [one] => micro(&crate::answer::heading(one.run, &one.judged)?),
        _ => String::new(),
    };
    let judged: Vec<&Comparison> = comparisons.iter().filter(|comparison| !comparison.emulated).collect();
    if !planned.is_empty() {
        // The first sentence is the heading of the page, the others stand below it.
        let (first, others) =
            planned.split_once(". ").map_or((planned.as_str(), ""), |(first, others)| (first, others));
        let first = format!("{}.", first.trim_end_matches('.'));
        return Ok([first, others.to_owned()].into_iter().filter(|text| !text.is_empty()).collect());
    }
    if judged.is_empty() {
        return Ok(vec![measured_alone(shown)]);
    }
    let named = judged.len() > 1;
    let begun = |text: String| match text.strip_prefix("level ") {
        // Names of paths and runs keep their case at the beginning of a sentence.
        Some(rest) => format!("Level {rest}"),
        None => text,
    };
    Ok(judged.into_iter().take(SENTENCES_MAX).map(|comparison| begun(sentence(comparison, named))).collect())
}

fn measured_alone(shown: &[ShownRun<'_>]) -> String {
    let cells: Vec<_> = shown.iter().flat_map(|one| &one.judged.agreed.cells).collect();
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
                "{} of {}{more} were measured. The run has nothing to compare them with.",
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
        return format!("This report has no rate and no CPU time that siga measured for both {new} and {base}.");
    }
    if comparison.no_verdict().is_some() {
        return format!("This run gives no verdict on {new} compared with {base}.");
    }
    if rate.iter().chain(&cpu).all(|row| matches!(row.verdict, Verdict::NotComparable { .. })) {
        return format!("{new} cannot be compared with {base}.");
    }
    match (claim(&rate, &RATE), claim(&cpu, &CPU)) {
        (Some(rate), Some(cpu)) => format!("{new} {rate} and {cpu}, compared with {base}."),
        (Some(rate), None) => {
            format!("{new} {rate}, compared with {base}. This run cannot tell whether it takes more or less CPU time.")
        }
        (None, Some(cpu)) => {
            format!("{new} {cpu}, compared with {base}. This run cannot tell whether it is faster or slower.")
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
        Subject::Mtus => (format!("MTU {base}"), format!("MTU {new}")),
        Subject::Paths | Subject::Runs => (base.clone(), new.clone()),
    }
}

/// The words of a sentence about one figure.
struct Words {
    verb: &'static str,
    noun: &'static str,
    better: &'static str,
    worse: &'static str,
}

const RATE: Words = Words { verb: "has", noun: "rate", better: "is faster", worse: "slower" };
const CPU: Words =
    Words { verb: "takes", noun: "CPU time per unit", better: "takes less CPU time per unit", worse: "more" };

/// Returns what rows of one metric say together: the range of the ratios, such as "has 1.4 to 3.7 times the rate in 4 of 6 cells", or,
/// if some became better and others worse, how many. `None` if no row has a verdict.
fn claim(rows: &[&Row], words: &Words) -> Option<String> {
    let of = |verdict: &Verdict| rows.iter().filter(|row| row.verdict == *verdict).count();
    let (better, worse, same) = (of(&Verdict::Better), of(&Verdict::Worse), of(&Verdict::Equivalent));
    let all = rows.len();
    let part = |count: usize| if count == all { String::new() } else { format!(" in {count} of {all} cells") };
    let Words { verb, noun, .. } = words;
    if better > 0 && worse > 0 {
        return Some(format!("{}{} and {} in {worse}", words.better, part(better), words.worse));
    }
    let decided = rows.iter().filter(|row| matches!(row.verdict, Verdict::Better | Verdict::Worse));
    let ratios = decided.map(|row| row.ratio);
    let Some((least, most)) = ratios.clone().reduce(f64::min).zip(ratios.reduce(f64::max)) else {
        return (same > 0).then(|| format!("{verb} the same {noun} within 2%{}", part(same)));
    };
    let (least, most) = (short(least), short(most));
    let times = if least == most { least } else { format!("{least} to {most}") };
    let same = if same > 0 { format!(" (the same within 2% in {same})") } else { String::new() };
    Some(format!("{verb} {times} times the {noun}{}{same}", part(better + worse)))
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

/// Returns how siga's own networks and the kernel's were measured: MTUs, waiting policy, closing side. A ratio between networks with
/// different MTUs is not one of the networks alone, so the conditions stand beside the answer.
pub(super) fn fairness(shown: &[ShownRun<'_>]) -> Markup {
    let words = |one: &ShownRun<'_>| {
        let answers = Answers::of(one.run, &one.judged.agreed, &one.judged.comparisons);
        beside_conditions(&answers)
            .into_iter()
            .map(|line| line.trim_matches(['(', ')']).replace('`', ""))
            .collect::<Vec<_>>()
    };
    let lines: BTreeSet<String> = shown.iter().flat_map(words).collect();
    html! { @if !lines.is_empty() { p class="conditions" { @for line in lines.iter().take(CONDITIONS_MAX) { (line) ". " } } } }
}

/// Returns what was measured, where and when.
pub(super) fn conditions(shown: &[ShownRun<'_>]) -> Markup {
    html! { @for one in shown { p class="soft conditions" { @if shown.len() > 1 { b { (one.name) } ": " } (condition(one)) } } }
}

fn condition(shown: &ShownRun<'_>) -> String {
    let run = shown.run;
    let (environment, rounds) = (&run.environment, shown.judged.agreed.disturbance.rounds());
    let mut words = vec![format!("Plan {}", run.plan.name), counted(shown.judged.agreed.cells.len(), "cell")];
    words.push(counted(rounds, "round"));
    words.push(format!("{} s per trial", run.plan.seconds));
    words.extend(environment.kernel.release.clone().map(|release| format!("Linux {release}")));
    words.extend(environment.cpu.online.map(|count| counted(count as usize, "CPU")));
    words.extend(environment.moment.time.as_deref().map(minute));
    words.join(" · ")
}

/// Returns a time without its seconds, with its time zone: "2026-11-26 09:26 UTC".
fn minute(time: &str) -> String {
    let minute = time.chars().take(16).collect::<String>().replace('T', " ");
    // Times in records are in UTC; another zone has its offset.
    let zone = if time.ends_with('Z') { " UTC" } else { "" };
    format!("{minute}{zone}")
}
