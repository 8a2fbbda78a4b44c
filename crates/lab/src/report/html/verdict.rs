//! The verdict in words, and every comparison as a table.

use super::Shown;
use super::page::{heads, table};
use crate::error::{Error, IoContext, Result};
use crate::judge::{Comparison, Form, Metric, Mode, Part, Row, Verdict};
use crate::report::words::{cpu_scale, headline, number};
use crate::workload::Unit;
use maud::{Markup, html};
use std::fmt::Write;

/// What is said before anything else.
pub(super) fn lead(shown: &[Shown<'_>]) -> Markup {
    let smoke: Vec<_> = shown.iter().filter(|one| one.run.plan.smoke).map(|one| one.name.as_str()).collect();
    html! {
        @if !smoke.is_empty() {
            div class="banner" {
                strong { "Smoke run" } ": " (smoke.join(", "))
                " shows that everything works; the figures are too short to rely on, so there is no verdict."
            }
        }
        @for one in shown {
            @if let Some(words) = unfinished(one) { div class="banner" { strong { "Unfinished" } ": " (words) } }
        }
    }
}

/// Of how much of its plan a run has a figure, if not of all.
fn unfinished(shown: &Shown<'_>) -> Option<String> {
    let run = shown.run;
    let cells = run.plan.matrix().map(|matrix| matrix.cells).unwrap_or_default();
    let rounds = run.trials.iter().map(|trial| trial.round + 1).max().unwrap_or(0);
    let wanted = run.plan.trials.filter(|_| run.plan.budget_seconds.is_none()).unwrap_or(rounds) as usize;
    let mut counts = std::collections::HashMap::new();
    for trial in &run.trials {
        *counts.entry(&trial.cell).or_insert(0) += 1;
    }
    let skipped: std::collections::HashSet<_> = run.skipped.iter().map(|skipped| &skipped.cell).collect();
    let short = |cell: &&crate::plan::Cell| counts.get(cell).copied().unwrap_or(0) < wanted && !skipped.contains(cell);
    let missing = cells.iter().filter(short).count();
    let growing = run.is_growing();
    if missing == 0 && !growing {
        return None;
    }
    let mut words = format!("{} has {} trials", shown.name, run.trials.len());
    if missing > 0 {
        let _ = write!(words, "; {missing} of {} cells do not have all of theirs yet", cells.len());
    }
    words.push_str(if growing {
        ". It is being measured at this moment; the figures below are what there is so far."
    } else {
        ". It was cut short; `siga run --resume` goes on with it."
    });
    Some(words)
}

/// The section: what a hop costs, then what each comparison says.
pub(super) fn section(shown: &[Shown<'_>], comparisons: &[Comparison]) -> Markup {
    html! {
        @for one in shown {
            @let sentences = headline(&one.reduced);
            @if !sentences.is_empty() {
                @if shown.len() > 1 { h3 { (one.name) } }
                @for sentence in sentences.lines() { p class="lead" { (capital(sentence.trim())) } }
            }
        }
        @if comparisons.is_empty() && shown.iter().all(|one| headline(&one.reduced).is_empty()) {
            p class="lead" {
                "Nothing here can be compared: one path, one level, one run. The tables and charts below say what was measured."
            }
        }
        @for comparison in comparisons { (words(comparison)) }
    }
}

/// What one comparison says.
fn words(comparison: &Comparison) -> Markup {
    let count = |name: &str| comparison.rows.iter().filter(|row| row.verdict.name() == name).count();
    let counts: Vec<_> = ["better", "worse", "equivalent", "inconclusive", "not comparable"]
        .into_iter()
        .filter(|name| count(name) > 0)
        .map(|name| format!("{} {name}", count(name)))
        .collect();
    html! {
        h3 { (comparison.new) " against " (comparison.base) }
        p class="lead" { (sentence(comparison)) }
        @if !counts.is_empty() {
            p { "Of " (comparison.rows.len()) " figures: " (counts.join(", ")) "." }
        }
        @for (verdict, title) in [(Verdict::Worse, "Worse"), (Verdict::Better, "Better")] {
            @let rows = telling(comparison, &verdict);
            @if !rows.is_empty() {
                p class="verdict" { (title) }
                ul { @for row in rows { li { (row_words(row)) } } }
            }
        }
        @if let Some(reason) = comparison.rows.iter().find_map(not_comparable) {
            p { "Not comparable: " (reason) "." }
        }
        p class="soft" { (form(comparison)) }
    }
}

fn sentence(comparison: &Comparison) -> String {
    let has = |verdict: &Verdict| comparison.rows.iter().any(|row| row.verdict == *verdict);
    let all = |name: &str| !comparison.rows.is_empty() && comparison.rows.iter().all(|row| row.verdict.name() == name);
    let Comparison { base, new, .. } = comparison;
    match (has(&Verdict::Better), has(&Verdict::Worse)) {
        _ if comparison.rows.is_empty() => format!("{new} and {base} have no figure in common."),
        _ if comparison.smoke => format!("A smoke run says nothing about {new} against {base}."),
        (true, true) => format!("{new} is better than {base} in some figures and worse in others."),
        (true, false) => format!("{new} is better than {base}; nothing was found to be worse."),
        (false, true) => format!("{new} is worse than {base}; nothing was found to be better."),
        (false, false) if all("equivalent") => format!("{new} and {base} are equivalent within 2%."),
        (false, false) if all("not comparable") => format!("{new} cannot be compared with {base}."),
        (false, false) => {
            format!("No difference between {new} and {base} was shown; that is not to say that there is none.")
        }
    }
}

/// Sentences of one verdict that a reader sees at once.
const TELLING_MAX: usize = 6;

/// The rows with that verdict, largest difference first; whole figures before their parts.
fn telling<'a>(comparison: &'a Comparison, verdict: &Verdict) -> Vec<&'a Row> {
    let mut rows: Vec<_> = comparison.rows.iter().filter(|row| row.verdict == *verdict).collect();
    let part = |row: &Row| {
        !matches!(row.metric, Metric::Rate | Metric::P50 | Metric::P99 | Metric::Cpu(Part::Total, Mode::All))
    };
    rows.sort_by(|left, right| {
        part(left).cmp(&part(right)).then(right.ratio.ln().abs().total_cmp(&left.ratio.ln().abs()))
    });
    rows.truncate(TELLING_MAX);
    rows
}

fn row_words(row: &Row) -> String {
    let interval = interval(row).map(|(low, high)| format!(" (95%: {low:.3} to {high:.3})")).unwrap_or_default();
    format!("{} of {}: {:.3} of what it was{interval}", metric(row.metric), what(row), row.ratio)
}

fn not_comparable(row: &Row) -> Option<&str> {
    match &row.verdict {
        Verdict::NotComparable { reason } => Some(reason),
        Verdict::Equivalent | Verdict::Better | Verdict::Worse | Verdict::Inconclusive { .. } => None,
    }
}

fn form(comparison: &Comparison) -> String {
    let form = match comparison.form {
        Form::Paired => "Trials of the same round were compared in pairs, so that drift of the host cancels.",
        Form::TwoSample => {
            "The trials of the two runs were not interleaved: what drifted between the runs counts as a difference."
        }
    };
    let skipped = match comparison.skipped.len() {
        0 => String::new(),
        1 => " One cell has no counterpart or no figure.".to_owned(),
        count => format!(" {count} cells have no counterpart or no figure."),
    };
    format!("{form} A ratio is new over base.{skipped}")
}

/// Rows from which on a table is opened by its reader.
const OPEN_ROWS_MAX: usize = 60;

/// Every row of a comparison.
pub(super) fn table_of(comparison: &Comparison) -> Markup {
    let head = heads(&[
        "what",
        "figure",
        "base",
        "new",
        "unit",
        "ratio",
        "95% interval",
        "p, adjusted",
        "noise floor",
        "trials",
        "verdict",
    ]);
    let rows: Vec<_> = comparison.rows.iter().map(cells).collect();
    html! {
        h3 { "Comparison: " (comparison.new) " against " (comparison.base) }
        @if rows.len() > OPEN_ROWS_MAX {
            details class="print" { summary { "All " (rows.len()) " figures" } (table(&head, &rows, 2)) }
        } @else if !rows.is_empty() {
            (table(&head, &rows, 2))
        }
        @if !comparison.skipped.is_empty() {
            details {
                summary { (comparison.skipped.len()) " cells without a counterpart or a figure" }
                ul { @for (cell, reason) in &comparison.skipped { li { (cell) ": " (reason) } } }
            }
        }
    }
}

fn cells(row: &Row) -> Vec<String> {
    let (scale, unit) = scaled(row.metric, row.base.workload.unit());
    let optional = |value: Option<f64>| value.map_or("-".into(), |value| format!("{value:.3}"));
    let verdict = match &row.verdict {
        Verdict::Inconclusive { trials: Some(trials) } => format!("inconclusive; {trials} trials would decide"),
        Verdict::NotComparable { reason } => format!("not comparable: {reason}"),
        Verdict::Better | Verdict::Worse | Verdict::Equivalent | Verdict::Inconclusive { trials: None } => {
            row.verdict.name().to_owned()
        }
    };
    let trials = if row.trials.0 == row.trials.1 {
        row.trials.0.to_string()
    } else {
        format!("{} and {}", row.trials.0, row.trials.1)
    };
    vec![
        what(row),
        metric(row.metric).to_owned(),
        number(row.values.0 * scale),
        number(row.values.1 * scale),
        unit,
        format!("{:.3}", row.ratio),
        interval(row).map_or("-".into(), |(low, high)| format!("{low:.3} to {high:.3}")),
        optional(row.p_adjusted),
        row.noise_floor.map_or("-".into(), |noise| format!("±{:.1}%", 100.0 * noise)),
        trials,
        verdict,
    ]
}

/// The interval of the ratio, where there is one.
pub(super) fn interval(row: &Row) -> Option<(f64, f64)> {
    row.low.zip(row.high)
}

/// What both sides have in common: the comparison's name says the rest.
pub(super) fn what(row: &Row) -> String {
    let (base, new) = (&row.base, &row.new);
    let mut words = Vec::new();
    if base.path == new.path {
        words.push(new.path.clone());
    }
    words.push(new.workload.to_string());
    if let (Some(mtu), true) = (new.mtu, base.mtu == new.mtu) {
        words.push(format!("mtu {mtu}"));
    }
    words.push(format!("x{}", new.clients));
    if base.level == new.level && new.level != "plain" {
        words.push(new.level.clone());
    }
    words.join(" ")
}

/// The figure in words.
pub(super) fn metric(metric: Metric) -> &'static str {
    match metric {
        Metric::Rate => "rate",
        Metric::P50 => "median latency",
        Metric::P99 => "99th percentile",
        Metric::Cpu(part, mode) => match (part, mode) {
            (Part::Total, Mode::All) => "CPU",
            (Part::Total, Mode::Virtual) => "virtual CPU",
            (Part::Total, Mode::Cp) => "CP CPU",
            (Part::Client, Mode::All) => "client CPU",
            (Part::Client, Mode::Virtual) => "client virtual CPU",
            (Part::Client, Mode::Cp) => "client CP CPU",
            (Part::Router, Mode::All) => "router CPU",
            (Part::Router, Mode::Virtual) => "router virtual CPU",
            (Part::Router, Mode::Cp) => "router CP CPU",
            (Part::Server, Mode::All) => "server CPU",
            (Part::Server, Mode::Virtual) => "server virtual CPU",
            (Part::Server, Mode::Cp) => "server CP CPU",
            (Part::Other, Mode::All) => "other CPU",
            (Part::Other, Mode::Virtual) => "other virtual CPU",
            (Part::Other, Mode::Cp) => "other CP CPU",
        },
    }
}

/// What a figure is multiplied with to be shown, and the unit it then has.
fn scaled(metric: Metric, unit: Unit) -> (f64, String) {
    match metric {
        Metric::Rate => (1.0, unit.rate_name().to_owned()),
        Metric::P50 | Metric::P99 => (1.0, "us".to_owned()),
        Metric::Cpu(..) => {
            let (scale, name) = cpu_scale(unit);
            (scale, name.to_owned())
        }
    }
}

/// The sides with their figures, for one who asks a mark.
pub(super) fn values(row: &Row) -> String {
    let (scale, unit) = scaled(row.metric, row.base.workload.unit());
    format!("{} against {} {unit}", number(row.values.1 * scale), number(row.values.0 * scale))
}

/// Every comparison as CSV, nothing rounded.
pub(super) fn csv(comparisons: &[Comparison]) -> Result<String> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    let failed = |error: csv::Error| Error::environment(format!("cannot write CSV: {error}"));
    let head = [
        "base",
        "new",
        "base_cell",
        "new_cell",
        "metric",
        "base_value",
        "new_value",
        "ratio",
        "low",
        "high",
        "p",
        "p_adjusted",
        "noise_floor",
        "base_trials",
        "new_trials",
        "verdict",
    ];
    writer.write_record(head).map_err(failed)?;
    for comparison in comparisons {
        for row in &comparison.rows {
            let optional = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
            let line = [
                comparison.base.clone(),
                comparison.new.clone(),
                row.base.to_string(),
                row.new.to_string(),
                row.metric.name().to_owned(),
                row.values.0.to_string(),
                row.values.1.to_string(),
                row.ratio.to_string(),
                optional(row.low),
                optional(row.high),
                optional(row.p),
                optional(row.p_adjusted),
                optional(row.noise_floor),
                row.trials.0.to_string(),
                row.trials.1.to_string(),
                row.verdict.name().to_owned(),
            ];
            writer.write_record(line).map_err(failed)?;
        }
    }
    let bytes = writer.into_inner().context("cannot write CSV")?;
    String::from_utf8(bytes).context("cannot write CSV")
}

/// A sentence begins with a capital.
fn capital(sentence: &str) -> String {
    let mut letters = sentence.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
