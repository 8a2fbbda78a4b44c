//! Presents as text and JSON whether the findings of z/VM's report hold in a run. A finding is a statement that compares the
//! levels 420 and 430.

use super::check::{CheckedCase, CheckedFinding, FindingVerdict, NOT_COMPARABLE, Stance};
use super::findings::{Finding, Origin};
use super::pairs::Location;
use super::published::align;
use super::repeat::Repeat;
use super::table::ratio_text;
pub(crate) use super::why::sentences as why;
use serde_json::{Value, json};
use siga_model::text::name;
use siga_results::summary::Reduced;
use std::fmt::Write;

/// The verdicts in the order in which the text counts them.
const VERDICTS: [FindingVerdict; 3] = [FindingVerdict::Holds, FindingVerdict::DoesNotHold, FindingVerdict::CannotTell];

/// The rule, in words for readers of a report, by which a case supports its finding or contradicts it. A case is one ratio or
/// value that a finding is about.
pub(crate) const RULE: &str = "A finding makes a claim about all of its cases. A case supports the finding if the 95% \
    interval of the case lies within the finding's bounds. A case contradicts the finding if its interval lies \
    outside the bounds and its p value, adjusted for all cases of the finding, is below 0.05. The finding holds if \
    all cases support it, and does not hold if at least one case contradicts it. Figures of components and devices \
    come from the median trials.";

/// Length in characters at which sentences are wrapped.
const LINE: usize = 118;

/// Returns the findings of which the run has measured at least one case, and the names of all other findings.
pub(crate) fn measured(repeat: &Repeat) -> (Vec<&CheckedFinding>, Vec<&str>) {
    let (measured, others): (Vec<&CheckedFinding>, Vec<&CheckedFinding>) =
        repeat.judged.iter().partition(|one| one.is_measured());
    (measured, others.into_iter().map(|one| one.finding.id.as_str()).collect())
}

/// Returns one sentence, without its full stop, with the number of findings for each verdict. Only findings of the report are counted,
/// not siga's own questions.
pub(crate) fn counts(judged: &[&CheckedFinding]) -> String {
    let [holds, not, open] = VERDICTS.map(|verdict| of_report(judged, verdict).count());
    let all = holds + not + open;
    let first = match holds {
        0 => format!("None of {all} findings of z/VM's report holds here"),
        1 => format!("1 of {all} findings of z/VM's report holds here"),
        _ => format!("{holds} of {all} findings of z/VM's report hold here"),
    };
    let is_are = |count: usize| if count == 1 { "is" } else { "are" };
    let rest = [(not, "contradicted"), (open, "inconclusive")].into_iter().filter(|(count, _)| *count > 0);
    let rest: Vec<String> = rest.map(|(count, word)| format!("{count} {} {word}", is_are(count))).collect();
    if rest.is_empty() { first } else { format!("{first}: {}", rest.join(", and ")) }
}

/// Returns the findings of the report with this verdict, without siga's own questions.
fn of_report<'a>(judged: &[&'a CheckedFinding], verdict: FindingVerdict) -> impl Iterator<Item = &'a CheckedFinding> {
    let own = |one: &&&CheckedFinding| one.finding.from != Origin::Siga && one.verdict == verdict;
    judged.iter().filter(own).copied().collect::<Vec<_>>().into_iter()
}

/// Returns why findings are inconclusive: each kind of reason with the number of findings that have such a case. A finding can have
/// several kinds.
pub(crate) fn reasons(judged: &[&CheckedFinding]) -> Vec<(usize, &'static str)> {
    let kind = |reason: &str| match reason {
        _ if reason.starts_with(NOT_COMPARABLE) => "a case that is not comparable",
        _ if reason.contains("does not tell") => "a case whose CPU time this run cannot attribute",
        _ if reason.contains("measured") => "a case that was not measured",
        _ => "a case whose interval is too wide",
    };
    let mut kinds: Vec<(usize, &'static str)> = Vec::new();
    for finding in of_report(judged, FindingVerdict::CannotTell) {
        let own = finding.cases.iter().filter_map(|case| match &case.speaks {
            Stance::Neither { reason } => Some(kind(reason)),
            Stance::For | Stance::Against => None,
        });
        for kind in own.collect::<std::collections::BTreeSet<_>>() {
            match kinds.iter_mut().find(|(_, known)| *known == kind) {
                Some((count, _)) => *count += 1,
                None => kinds.push((1, kind)),
            }
        }
    }
    kinds.sort_by(|one, other| other.0.cmp(&one.0).then(one.1.cmp(other.1)));
    kinds
}

/// Returns the answer of a run in words. For a finding of the report, it is the name of the verdict ("holds"). For one of siga's
/// own questions, it is "yes", "no" or "cannot tell".
pub(crate) fn answer(judged: &CheckedFinding) -> &'static str {
    match (judged.finding.from, judged.verdict) {
        (Origin::Siga, FindingVerdict::Holds) => "yes",
        (Origin::Siga, FindingVerdict::DoesNotHold) => "no",
        (Origin::Siga | Origin::Text | Origin::Tables | Origin::Plan | Origin::Overview, verdict) => verdict.name(),
    }
}

/// Returns the origin of a finding in words.
pub(crate) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Text => "the report's text",
        Origin::Tables => "the report's tables",
        Origin::Siga => "siga's own question",
        Origin::Plan => "the plan",
        Origin::Overview => "the overview of 2009",
    }
}

/// Returns, in words, what the finding was judged on, then how many cases support the finding, how many contradict it, and how many
/// decide nothing.
pub(crate) fn tally(judged: &CheckedFinding) -> String {
    let [for_it, against, open] = ["for", "against", "open"].map(|way| judged.count(way));
    format!(
        "{}: {for_it} of {} cases support the finding, {against} contradict it, and {open} are undecided",
        judged_on(judged),
        judged.cases.len()
    )
}

/// Returns, in words, what a finding was judged on and where it holds: "Judged on 2 of 5 connectivities (HiperSockets, virtual CTC), and
/// holds on 1 of 5 (HiperSockets)" if it is about several connectivities of the report, otherwise the number of its cases that were
/// measured.
pub(crate) fn judged_on(judged: &CheckedFinding) -> String {
    let measured = || judged.cases.iter().filter(|case| case.measured.is_some());
    let mut names: Vec<&str> = Vec::new();
    for name in measured().filter_map(|case| case.connectivity.as_deref()) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    let all = judged.connectivities;
    if all > 1 {
        let list = |names: &[&str]| if names.is_empty() { String::new() } else { format!(" ({})", names.join(", ")) };
        let held = judged.holds_on();
        let on =
            if held == names { "all of them".to_owned() } else { format!("{} of {all}{}", held.len(), list(&held)) };
        return match names.len() {
            0 => format!("Judged on 0 of {all} connectivities"),
            count => format!("Judged on {count} of {all} connectivities{}, and holds on {on}", list(&names)),
        };
    }
    format!("Judged on {} of {} cases", measured().count(), judged.cases.len())
}

/// Returns the findings of the run's plan as lines of text, each with what it was judged on; an empty string if the plan has none.
pub(crate) fn plan_text(repeat: &Repeat) -> String {
    let mut out = String::new();
    if repeat.of_plan.is_empty() {
        return out;
    }
    let _ = writeln!(out, "\nFindings of the plan\n");
    for one in &repeat.of_plan {
        wrap(&mut out, "", &format!("{}: {}", answer(one).to_uppercase(), name(&one.finding.says)));
        let id = name(&one.finding.id);
        wrap(&mut out, "  ", &format!("{id} ({}). {}.", looked_at(&one.finding), tally(one)));
        for row in one.cases.iter().map(case) {
            let [place, speaks, _, measured, interval, trials] = row;
            let ratio = format!("{place}: {speaks}; ratio {measured}, 95% interval {interval}, {trials} trials");
            wrap(&mut out, "    ", &ratio);
        }
    }
    out
}

/// Returns, in words, the name of the figure that a finding is about, and the bounds with which the finding compares it.
pub(crate) fn looked_at(finding: &Finding) -> String {
    format!("{}, to be {}", finding.row, finding.bounds())
}

/// Returns a case as one row of a table, with the columns of [`CASE_HEADS`].
pub(crate) fn case(case: &CheckedCase) -> [String; 6] {
    let absent = || "-".to_owned();
    let interval = case.measured.and_then(|measured| measured.interval);
    let speaks = match &case.speaks {
        Stance::For | Stance::Against => case.speaks.name().to_owned(),
        Stance::Neither { reason } => format!("open: {}", name(reason)),
    };
    [
        name(&case.name),
        speaks,
        case.published.map_or_else(absent, ratio_text),
        case.measured.map_or_else(absent, |measured| ratio_text(measured.value)),
        interval.map_or_else(absent, |(low, high)| format!("{} to {}", ratio_text(low), ratio_text(high))),
        case.measured.map_or_else(absent, |measured| measured.trials.to_string()),
    ]
}

/// The column heads for the rows that [`case`] returns.
pub(crate) const CASE_HEADS: [&str; 6] = ["case", "speaks", "published", "measured", "95% interval", "trials"];

/// Returns the findings as text. Returns an empty string if the run did not measure both 420 and 430.
pub(crate) fn text(reduced: &Reduced, repeat: &Repeat) -> String {
    let (judged, unmeasured) = measured(repeat);
    let mut out = String::new();
    if repeat.judged.is_empty() {
        return out;
    }
    let _ = writeln!(out, "Findings of the z/VM report on levels 420 and 430, and whether they hold here\n");
    wrap(&mut out, "", &format!("{}.", counts(&judged)));
    wrap(&mut out, "", RULE);
    out.push('\n');
    for one in judged {
        let finding = &one.finding;
        wrap(&mut out, "", &format!("{}: {}", answer(one).to_uppercase(), finding.says));
        let from = origin(finding.from);
        wrap(&mut out, "  ", &format!("{} ({from}; {}). {}.", finding.id, looked_at(finding), tally(one)));
        for sentence in why(one, reduced, repeat) {
            wrap(&mut out, "  ", &name(&sentence));
        }
        out.push('\n');
        let rows = std::iter::once(CASE_HEADS.map(str::to_owned)).chain(one.cases.iter().map(case));
        let grid: Vec<Vec<String>> = rows
            .map(|[place, figures @ ..]| std::iter::once(format!("    {place}")).chain(figures).collect())
            .collect();
        align(&mut out, &grid, 2);
        out.push('\n');
    }
    if !unmeasured.is_empty() {
        wrap(&mut out, "", &format!("This run did not measure these findings: {}.", unmeasured.join(", ")));
        out.push('\n');
    }
    out
}

/// Appends a sentence to `out`, wrapped into lines that begin with `indent`. Lines after the first are indented by two more
/// spaces.
pub(crate) fn wrap(out: &mut String, indent: &str, sentence: &str) {
    let mut line = indent.to_owned();
    for word in sentence.split(' ') {
        let is_begun = line.trim_start() != "";
        if is_begun && line.chars().count() + 1 + word.chars().count() > LINE {
            out.push_str(&line);
            out.push('\n');
            line = format!("{indent}  {word}");
        } else {
            line = if is_begun { format!("{line} {word}") } else { format!("{line}{word}") };
        }
    }
    out.push_str(&line);
    out.push('\n');
}

/// Returns all findings as JSON, including those that were not measured.
pub(crate) fn json(reduced: &Reduced, repeat: &Repeat) -> Vec<Value> {
    let all = repeat.judged.iter().chain(&repeat.of_plan);
    all.map(|judged| value(judged, &why(judged, reduced, repeat))).collect()
}

/// Returns a finding as JSON, with sentences that explain its verdict.
pub(crate) fn value(judged: &CheckedFinding, why: &[String]) -> Value {
    let finding = &judged.finding;
    json!({
        "id": finding.id,
        "says": finding.says,
        "from": finding.from.name(),
        "row": finding.row,
        "above": finding.above,
        "below": finding.below,
        "verdict": judged.verdict.name(),
        "judged_on": judged_on(judged),
        "holds_on": judged.holds_on(),
        "for": judged.count("for"),
        "against": judged.count("against"),
        "open": judged.count("open"),
        "why": why,
        "cases": judged.cases.iter().map(case_json).collect::<Vec<_>>(),
    })
}

fn case_json(case: &CheckedCase) -> Value {
    let CheckedCase { name, published, measured, speaks, .. } = case;
    let interval = measured.and_then(|measured: Location| measured.interval);
    let reason = match speaks {
        Stance::For | Stance::Against => None,
        Stance::Neither { reason } => Some(reason),
    };
    json!({
        "name": name,
        "published": published,
        "measured": measured.map(|measured| measured.value),
        "low": interval.map(|(low, _)| low),
        "high": interval.map(|(_, high)| high),
        "trials": measured.map(|measured| measured.trials),
        "speaks": speaks.name(),
        "reason": reason,
    })
}
