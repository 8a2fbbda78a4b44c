//! What the report on levels 420 and 430 found, and whether it holds in a run: as text and as JSON.

mod why;

pub(super) use why::sentences as why;

use super::zvm::ratio_text;
use crate::published::align;
use crate::published::findings::{Finding, Origin};
use crate::repeat::{Judged, Location, Repeat, Speaks, Spoken, Verdict};
use crate::summary::Reduced;
use crate::text::name;
use serde_json::{Value, json};
use std::fmt::Write;

/// The verdicts in the order of the text.
const VERDICTS: [Verdict; 3] = [Verdict::Holds, Verdict::DoesNotHold, Verdict::CannotTell];

/// The rule that cases speak by.
pub(super) const RULE: &str = "A finding is about every one of its cases. A case speaks for it if its 95% interval lies \
    within the bounds, against it if the interval lies outside (p adjusted for all cases of the finding, below 0.05). It \
    holds if all cases speak for it, and does not hold if one speaks against it.";

/// The findings that a run says something of, questions of siga's own first, and the names of those that it has not touched.
pub(super) fn measured(repeat: &Repeat) -> (Vec<&Judged>, Vec<&str>) {
    let (touched, others): (Vec<&Judged>, Vec<&Judged>) = repeat.judged.iter().partition(|one| one.is_measured());
    (touched, others.into_iter().map(|one| one.finding.id.as_str()).collect())
}

/// How many hold, in a line.
pub(super) fn counts(judged: &[&Judged]) -> String {
    let count = |verdict: Verdict| judged.iter().filter(|one| one.verdict == verdict).count();
    let [holds, not, open] = VERDICTS.map(count);
    format!("Of {} findings {holds} hold here, {not} do not, and of {open} this run cannot tell", judged.len())
}

/// Where a finding comes from, in words.
pub(super) fn origin(origin: Origin) -> &'static str {
    match origin {
        Origin::Text => "the report's text",
        Origin::Tables => "the report's tables",
        Origin::Siga => "siga's own question",
    }
}

/// How many of its cases speak which way.
pub(super) fn tally(judged: &Judged) -> String {
    let [for_it, against, open] = ["for", "against", "open"].map(|way| judged.count(way));
    format!("{for_it} of {} cases speak for it, {against} against, {open} neither way", judged.cases.len())
}

/// What is compared with the bounds.
pub(super) fn looked_at(finding: &Finding) -> String {
    format!("{}, to be {}", finding.row, finding.bounds())
}

/// A case as cells of a table: place, published, measured, interval, pairs of trials, which way.
pub(super) fn case(case: &Spoken) -> [String; 6] {
    let absent = || "-".to_owned();
    let interval = case.measured.and_then(|measured| measured.interval);
    let speaks = match &case.speaks {
        Speaks::For | Speaks::Against => case.speaks.name().to_owned(),
        Speaks::Neither { reason } => format!("open: {}", name(reason)),
    };
    [
        name(&case.name),
        case.published.map_or_else(absent, ratio_text),
        case.measured.map_or_else(absent, |measured| ratio_text(measured.value)),
        interval.map_or_else(absent, |(low, high)| format!("{} to {}", ratio_text(low), ratio_text(high))),
        case.measured.map_or_else(absent, |measured| measured.trials.to_string()),
        speaks,
    ]
}

/// The heads of [`case`].
pub(super) const CASE_HEADS: [&str; 6] = ["case", "published", "measured", "95% interval", "trials", "speaks"];

/// The findings as text; empty unless both levels were measured.
pub(super) fn text(reduced: &Reduced, repeat: &Repeat) -> String {
    let (judged, untouched) = measured(repeat);
    let mut out = String::new();
    if repeat.judged.is_empty() {
        return out;
    }
    let _ = writeln!(out, "What the report on levels 420 and 430 found, and whether it holds here\n");
    let _ = writeln!(out, "{}.\n{RULE}\n", counts(&judged));
    for one in judged {
        let finding = &one.finding;
        let _ = writeln!(out, "{}: {}", one.verdict.name().to_uppercase(), finding.says);
        let _ = writeln!(out, "  {} ({}; {}). {}.", finding.id, origin(finding.from), looked_at(finding), tally(one));
        for sentence in why(one, reduced, repeat) {
            let _ = writeln!(out, "  {}", name(&sentence));
        }
        out.push('\n');
        let heads = CASE_HEADS.map(str::to_owned);
        let grid: Vec<Vec<String>> = std::iter::once(heads)
            .chain(one.cases.iter().map(case))
            .map(|[place, figures @ .., speaks]| {
                // The last column is a sentence: nothing to its right needs it padded.
                let place = format!("    {place}");
                std::iter::once(place).chain(figures).chain([format!(" {speaks}")]).collect()
            })
            .collect();
        align(&mut out, &grid, 1);
        out.push('\n');
    }
    if !untouched.is_empty() {
        let _ = writeln!(out, "Not touched by this run: {}.\n", untouched.join(", "));
    }
    out
}

/// The findings as JSON, those that were not measured included.
pub(super) fn json(reduced: &Reduced, repeat: &Repeat) -> Vec<Value> {
    let one = |judged: &Judged| {
        let finding = &judged.finding;
        json!({
            "id": finding.id,
            "says": finding.says,
            "from": finding.from.name(),
            "row": finding.row,
            "above": finding.above,
            "below": finding.below,
            "verdict": judged.verdict.name(),
            "for": judged.count("for"),
            "against": judged.count("against"),
            "open": judged.count("open"),
            "why": why(judged, reduced, repeat),
            "cases": judged.cases.iter().map(case_json).collect::<Vec<_>>(),
        })
    };
    repeat.judged.iter().map(one).collect()
}

fn case_json(case: &Spoken) -> Value {
    let Spoken { name, published, measured, speaks, .. } = case;
    let interval = measured.and_then(|measured: Location| measured.interval);
    let reason = match speaks {
        Speaks::For | Speaks::Against => None,
        Speaks::Neither { reason } => Some(reason),
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
