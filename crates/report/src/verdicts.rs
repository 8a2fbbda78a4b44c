//! Prints a comparison of two sides as text, Markdown, JSON (schema `siga/compare/1`) or CSV.
//!
//! Text and Markdown begin with the number of verdicts of each kind. Then come the differences between the environments, and one
//! table for each pair of compared cells. A table shows the main figures, and each other figure that became better or worse. JSON
//! and CSV contain every figure.

use super::Format;
use super::disturbance;
use super::readable;
use super::table::grid;
use super::why::{self, Explained};
use super::words::{counted, cpu_scale, noise_floor, number, pairs, undirected};
use super::worth;
use serde_json::{Value, json};
use siga_model::error::{Error, IoContext, Result};
use siga_model::text;
use siga_plan::matrix::Cell;
use siga_results::disturbance::Disturbance;
use siga_results::environment::{Difference, EMULATED};
use siga_results::judge::{Comparison, Form, Metric, Mode, Part, Row, Subject, Verdict};
use siga_results::store::Run;
use std::fmt::Write;

/// Returns the comparisons of a run's levels in words. If some levels are variants of others (they differ in one driver feature),
/// the table of the effects of each feature follows. Returns an empty string if the run has a single level.
pub(super) fn of_levels(run: &Run, comparisons: &[Comparison], markdown: bool) -> String {
    let mut out = String::new();
    for comparison in comparisons.iter().filter(|comparison| comparison.subject == Subject::Levels) {
        let (base, new) = (&comparison.base, &comparison.new);
        let _ = writeln!(out, "{new} against {base}: {}.", summary(comparison));
        for sentence in sentences(comparison) {
            let _ = writeln!(out, "  {sentence}");
        }
        let _ = writeln!(out, "  `siga compare {base} {new} --run {}` shows every figure.", run.directory.display());
    }
    out.push_str(&worth::text(comparisons, markdown));
    out
}

/// The names of the verdicts in the order of the summary.
const VERDICTS: [&str; 5] = ["better", "worse", "equivalent", "inconclusive", "not comparable"];

/// Returns a comparison in the requested format. If `all` is set, text and Markdown also contain every figure and every
/// difference between the environments. `explained` has the explanations of the verdicts on CPU time, if they are requested. CSV
/// does not contain them.
///
/// # Errors
/// Returns an error of kind `Environment` if JSON or CSV cannot be written (out of memory).
pub fn render(comparison: &Comparison, format: Format, all: bool, explained: Option<&Explained>) -> Result<String> {
    let reasons = |markdown: bool| explained.map(|explained| why::people(comparison, explained, markdown));
    match format {
        Format::Text => {
            Ok(people(&readable::comparison(comparison, false), all, false) + &reasons(false).unwrap_or_default())
        }
        Format::Md => {
            Ok(people(&readable::comparison(comparison, true), all, true) + &reasons(true).unwrap_or_default())
        }
        Format::Json => json(comparison, explained),
        Format::Csv => csv(comparison),
    }
}

/// Returns the number of verdicts of each kind in one line, the main figures first: "6 main figures of 2 cells: 1 better, 3
/// worse, …; 18 exploratory figures: 0 better, 6 worse, …".
pub fn summary(comparison: &Comparison) -> String {
    let (main, exploratory): (Vec<&Row>, Vec<&Row>) = comparison.rows.iter().partition(|row| row.metric.is_main());
    let counts = |rows: &[&Row]| {
        let count = |verdict: &str| rows.iter().filter(|row| row.verdict.name() == verdict).count();
        VERDICTS.map(|verdict| format!("{} {verdict}", count(verdict))).join(", ")
    };
    let cells = groups(comparison).len();
    let mark = if comparison.emulated { format!(" ({EMULATED})") } else { String::new() };
    let others = match exploratory.as_slice() {
        [] => String::new(),
        others => format!("; {}: {}{mark}", counted(others.len(), "exploratory figure"), counts(others)),
    };
    let own = counts(&main);
    format!("{} of {}: {own}{mark}{others}", counted(main.len(), "main figure"), counted(cells, "cell"))
}

/// Returns one sentence for each pair of compared cells. It contains the verdicts on rate and CPU time, and each change of the 99th
/// percentile of latency. Changes of the CPU times of components follow, which are marked as exploratory. Returns no sentence if a side was measured on an emulated machine.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    if comparison.emulated {
        return Vec::new();
    }
    let is_said = |row: &&&Row| match row.metric {
        Metric::Rate | Metric::TOTAL => true,
        Metric::P99 | Metric::Cpu(_, Mode::All) => matches!(row.verdict, Verdict::Better | Verdict::Worse),
        Metric::P50 | Metric::Cpu(_, Mode::Virtual | Mode::Cp) => false,
    };
    let sentence = |group: Vec<&Row>| {
        let (main, others): (Vec<&Row>, Vec<&Row>) =
            group.iter().filter(is_said).copied().partition(|row| row.metric.is_main());
        let words = |rows: &[&Row]| rows.iter().map(|row| change(row)).collect::<Vec<_>>().join("; ");
        let mark = match (main.as_slice(), others.as_slice()) {
            ([], []) => return None,
            ([], [..]) => "exploratory: ",
            ([..], []) => "",
            ([..], [..]) => "; exploratory: ",
        };
        Some(format!("{}: {}{mark}{}.", cell_name(comparison, group[0]), words(&main), words(&others)))
    };
    groups(comparison).into_iter().filter_map(sentence).collect()
}

/// Returns the change of one figure in words, such as "12.3% less rate (95%: 11.0% to 13.5%)" or "3.59 times the CPU time in the
/// router (95%: 3.01 to 4.22)".
fn change(row: &Row) -> String {
    let noun = match row.metric {
        Metric::Rate => "rate",
        Metric::P50 => "median latency",
        Metric::P99 => "p99 latency",
        Metric::Cpu(Part::Total, _) => "CPU time",
        Metric::Cpu(Part::Client, _) => "CPU time in the client",
        Metric::Cpu(Part::Router, _) => "CPU time in the router",
        Metric::Cpu(Part::Server, _) => "CPU time in the server",
        Metric::Cpu(Part::Other, _) => "CPU time of others",
    };
    let percent = |ratio: f64| format!("{:.1}%", 100.0 * (ratio - 1.0).abs());
    match (&row.verdict, row.low, row.high) {
        (Verdict::Better | Verdict::Worse, Some(low), Some(high)) if row.ratio >= 2.0 => {
            format!("{:.2} times the {noun} (95%: {low:.2} to {high:.2})", row.ratio)
        }
        (Verdict::Better | Verdict::Worse, Some(low), Some(high)) => {
            let (word, least, most) = if row.ratio < 1.0 { ("less", high, low) } else { ("more", low, high) };
            format!("{} {word} {noun} (95%: {} to {})", percent(row.ratio), percent(least), percent(most))
        }
        (Verdict::Better | Verdict::Worse, ..) => format!("{:.3} times the {noun}", row.ratio),
        (Verdict::Equivalent | Verdict::NotComparable { .. } | Verdict::Inconclusive { .. }, ..) => {
            undirected(row, noun).unwrap_or_default()
        }
    }
}

/// Returns a name for the two compared cells of a row. The name consists of the settings that both cells have in common. If their
/// MTUs or levels differ, the name has both values. In a comparison of levels, the name contains no level.
pub(super) fn cell_name(comparison: &Comparison, row: &Row) -> String {
    pair_name(comparison, &row.base, &row.new)
}

/// Returns a name for two compared cells, as [`cell_name`] does.
pub(super) fn pair_name(comparison: &Comparison, base: &Cell, new: &Cell) -> String {
    let mut name = String::new();
    if comparison.subject != Subject::Paths {
        let _ = write!(name, "{} ", new.path);
    }
    let _ = write!(name, "{}, {}", new.workload, pairs(new.clients));
    match (base.mtu, new.mtu) {
        (Some(own), Some(other)) if own != other => {
            let _ = write!(name, ", MTU {own} -> {other}");
        }
        (_, Some(mtu)) => {
            let _ = write!(name, ", MTU {mtu}");
        }
        (_, None) => {}
    }
    match (comparison.subject, base.level == new.level) {
        (Subject::Levels, _) => {}
        (Subject::Runs | Subject::Paths, true) if new.level == "plain" => {}
        (Subject::Runs | Subject::Paths, true) => {
            let _ = write!(name, ", {}", new.level);
        }
        (Subject::Runs | Subject::Paths, false) => {
            let _ = write!(name, ", {} -> {}", base.level, new.level);
        }
    }
    name
}

/// Groups the rows of a comparison by the pair of cells that they compare.
fn groups(comparison: &Comparison) -> Vec<Vec<&Row>> {
    comparison
        .rows
        .chunk_by(|left, right| left.base == right.base && left.new == right.new)
        .map(|rows| rows.iter().collect())
        .collect()
}

fn people(comparison: &Comparison, all: bool, markdown: bool) -> String {
    let mut out = String::new();
    let item = if markdown { "- " } else { "  " };
    let (base, new) = (&comparison.base, &comparison.new);
    let of = comparison.run.as_ref().map(|run| format!(" in {}", run.display())).unwrap_or_default();
    if let Some(reason) = comparison.no_verdict() {
        let _ = writeln!(out, "No verdict: {reason}.");
    }
    let _ = match markdown {
        true => writeln!(out, "## {new} against {base}{of}\n\n{}.", summary(comparison)),
        false => writeln!(out, "{new} against {base}{of}, {}.", summary(comparison)),
    };
    let _ = writeln!(out, "{}.", how(comparison.form));
    for caution in &comparison.cautions {
        let _ = writeln!(out, "Caution: {caution}.");
    }
    environment(comparison, all, item, &mut out);
    let sentences = sentences(comparison);
    if !sentences.is_empty() {
        out.push('\n');
    }
    for sentence in sentences {
        let _ = writeln!(out, "{item}{sentence}");
    }
    let (mut hidden, mut marked) = (0, false);
    for group in groups(comparison) {
        let title = if markdown { "### " } else { "" };
        let unit = cpu_scale(group[0].new.workload.unit()).1;
        let rate = group[0].new.workload.unit().rate_name();
        let mark = if comparison.emulated { format!(", {EMULATED}") } else { String::new() };
        let _ = writeln!(
            out,
            "\n{title}{} (rate in {rate}, latency in us, CPU in {unit}){mark}",
            cell_name(comparison, group[0])
        );
        let shown: Vec<&Row> = group.iter().copied().filter(|row| all || is_shown(row)).collect();
        hidden += group.len() - shown.len();
        if markdown {
            out.push('\n');
        }
        marked |= shown.iter().any(|row| !row.metric.is_main());
        out.push_str(&table(comparison, &shown, markdown));
        if let Some(Verdict::NotComparable { reason }) = group.first().map(|row| &row.verdict) {
            let _ = writeln!(out, "Not comparable: {reason}.");
        }
    }
    out.push('\n');
    for (cell, reason) in &comparison.skipped {
        let _ = writeln!(out, "Skipped: {cell}: {reason}");
    }
    if marked {
        let _ = writeln!(out, "{EXPLORATORY}");
    }
    if hidden > 0 {
        let _ = writeln!(out, "{hidden} more figures are neither better nor worse: --all shows them.");
    }
    out
}

pub(super) fn how(form: Form) -> &'static str {
    match form {
        Form::Paired => "Trials of the same round were compared in pairs",
        Form::TwoSample => {
            "The trials of two runs are not interleaved. This comparison is weaker: any other change in between counts as well"
        }
    }
}

fn environment(comparison: &Comparison, all: bool, item: &str, out: &mut String) {
    let differences = &comparison.environment;
    if comparison.subject == Subject::Runs && differences.is_empty() {
        let _ = writeln!(out, "Environment: no difference.");
    }
    let (matter, rest): (Vec<&Difference>, Vec<&Difference>) = differences.iter().partition(|one| one.matters);
    if !matter.is_empty() {
        let _ = writeln!(out, "Environment, differences that matter:");
    }
    for difference in matter {
        let _ = writeln!(out, "{item}{difference}");
    }
    if all && !rest.is_empty() {
        let _ = writeln!(out, "Environment, differences that do not matter:");
        rest.iter().for_each(|difference| {
            let _ = writeln!(out, "{item}{difference}");
        });
    } else if !rest.is_empty() {
        let names: Vec<&str> = rest.iter().map(|difference| difference.key.as_str()).collect();
        let _ = writeln!(out, "Environment, differences that do not matter: {}.", names.join(", "));
    }
}

/// Returns true for a main figure (rate, latencies, CPU time in all modes), and for any other figure that became better or worse.
fn is_shown(row: &Row) -> bool {
    let main = match row.metric {
        Metric::Rate | Metric::P50 | Metric::P99 | Metric::Cpu(_, Mode::All) => true,
        Metric::Cpu(_, Mode::Virtual | Mode::Cp) => false,
    };
    main || matches!(row.verdict, Verdict::Better | Verdict::Worse)
}

fn table(comparison: &Comparison, rows: &[&Row], markdown: bool) -> String {
    let head = ["figure", "base", "new", "ratio", "95% interval", "noise", "p", "adjusted", "trials", "verdict"];
    grid(head, rows.iter().map(|row| cells(comparison, row, markdown)), 1..9, markdown, u16::from(markdown))
}

/// Returns the ratio of a row as text, "-" if a side was measured on an emulated machine.
pub(super) fn ratio(comparison: &Comparison, row: &Row) -> String {
    if comparison.emulated { "-".to_owned() } else { format!("{:.3}", row.ratio) }
}

/// The explanation of the mark of exploratory figures.
pub(super) const EXPLORATORY: &str =
    "* Exploratory: judged after the main figures (rate, p99, total CPU time) and adjusted apart from them.";

/// Returns the mark of an exploratory figure; an empty string for a main figure.
pub(super) fn mark(row: &Row, markdown: bool) -> &'static str {
    match (row.metric.is_main(), markdown) {
        (true, _) => "",
        (false, true) => " \\*",
        (false, false) => " *",
    }
}

fn cells(comparison: &Comparison, row: &Row, markdown: bool) -> [String; 10] {
    let scale = match row.metric {
        Metric::Rate | Metric::P50 | Metric::P99 => 1.0,
        Metric::Cpu(..) => cpu_scale(row.new.workload.unit()).0,
    };
    let dash = || "-".to_owned();
    let interval = match row.low.zip(row.high) {
        Some((low, high)) => format!("{low:.3} to {high:.3}"),
        None => dash(),
    };
    let trials = match row.trials {
        (base, new) if base == new => base.to_string(),
        (base, new) => format!("{base}, {new}"),
    };
    let verdict = match row.verdict {
        Verdict::Inconclusive { trials: Some(trials) } => format!("inconclusive ({trials} trials would decide)"),
        Verdict::Inconclusive { trials: None }
        | Verdict::NotComparable { .. }
        | Verdict::Equivalent
        | Verdict::Better
        | Verdict::Worse => row.verdict.name().to_owned(),
    };
    [
        format!("{}{}", row.metric.name(), mark(row, markdown)),
        number(row.values.0 * scale),
        number(row.values.1 * scale),
        ratio(comparison, row),
        interval,
        noise_floor(row.noise_floor),
        if comparison.emulated { dash() } else { probability(row.p) },
        row.p_adjusted.map_or_else(dash, probability),
        trials,
        verdict,
    ]
}

pub(super) fn probability(p: f64) -> String {
    if p < 0.0001 { "<0.0001".into() } else { format!("{p:.4}") }
}

fn json(comparison: &Comparison, explained: Option<&Explained>) -> Result<String> {
    let mut value = value(comparison);
    if let Some(explained) = explained {
        value["why"] = why::values(explained);
    }
    let json = serde_json::to_string_pretty(&value).context("cannot write JSON")?;
    Ok(text::json(&json) + "\n")
}

/// Returns the comparison as a JSON object.
pub(super) fn value(comparison: &Comparison) -> Value {
    let counts = VERDICTS.map(|verdict| (verdict.to_owned(), Value::from(comparison.count(verdict))));
    let differences: Vec<Value> = comparison
        .environment
        .iter()
        .map(|one| json!({"key": one.key, "base": one.base, "new": one.new, "matters": one.matters}))
        .collect();
    let skipped: Vec<Value> =
        comparison.skipped.iter().map(|(cell, reason)| json!({"cell": cell.to_string(), "reason": reason})).collect();
    let of_run = |(run, one): &(std::path::PathBuf, Disturbance)| {
        let mut all = disturbance::summary(one);
        all["run"] = json!(run);
        all
    };
    let disturbed: Vec<Value> = comparison.disturbed.iter().map(of_run).collect();
    json!({
        "schema": "siga/compare/1",
        "base": comparison.base,
        "new": comparison.new,
        "run": comparison.run,
        "form": comparison.form,
        "emulated": comparison.emulated,
        "summary": serde_json::Map::from_iter(counts),
        "environment": differences,
        "cautions": comparison.cautions,
        "disturbance": disturbed,
        "no_verdict": comparison.no_verdict(),
        "cells": comparison.rows.iter().map(|row| entry(comparison, row)).collect::<Vec<_>>(),
        "skipped": skipped,
    })
}

fn entry(comparison: &Comparison, row: &Row) -> Value {
    // Other programs would read a ratio without its verdict.
    let unless_emulated = |figure: f64| (!comparison.emulated).then_some(figure);
    let (reason, deciding) = match &row.verdict {
        Verdict::NotComparable { reason } => (Some(reason), None),
        Verdict::Inconclusive { trials } => (None, *trials),
        Verdict::Equivalent | Verdict::Better | Verdict::Worse => (None, None),
    };
    json!({
        "path": row.new.path,
        "base_path": row.base.path,
        "workload": row.new.workload.to_string(),
        "mtu": row.new.mtu,
        "base_mtu": row.base.mtu,
        "clients": row.new.clients,
        "level": row.new.level,
        "base_level": row.base.level,
        "metric": row.metric.name(),
        "role": if row.metric.is_main() { "main" } else { "exploratory" },
        "unit": row.metric.unit(row.new.workload.unit()),
        "base_value": row.values.0,
        "new_value": row.values.1,
        "base_trials": row.trials.0,
        "new_trials": row.trials.1,
        "ratio": unless_emulated(row.ratio),
        "low": row.low,
        "high": row.high,
        "p": unless_emulated(row.p),
        "p_adjusted": row.p_adjusted,
        "noise_floor": row.noise_floor,
        "verdict": row.verdict.name(),
        "reason": reason,
        "trials_to_decide": deciding,
    })
}

/// Returns the comparison as CSV, with one record for each row. The columns are the members that [`entry`] puts into JSON.
fn csv(comparison: &Comparison) -> Result<String> {
    let failed = |error: csv::Error| Error::environment(format!("cannot write CSV: {error}"));
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(COLUMNS).map_err(failed)?;
    for row in &comparison.rows {
        let entry = entry(comparison, row);
        let value = |column: &str| {
            let value = &entry[column];
            value.as_str().map_or_else(|| if value.is_null() { String::new() } else { value.to_string() }, text::field)
        };
        writer.write_record(COLUMNS.map(value)).map_err(failed)?;
    }
    let bytes = writer.into_inner().context("cannot write CSV")?;
    String::from_utf8(bytes).context("cannot write CSV")
}

const COLUMNS: [&str; 24] = [
    "path",
    "base_path",
    "workload",
    "mtu",
    "base_mtu",
    "clients",
    "level",
    "base_level",
    "metric",
    "role",
    "unit",
    "base_value",
    "new_value",
    "base_trials",
    "new_trials",
    "ratio",
    "low",
    "high",
    "p",
    "p_adjusted",
    "noise_floor",
    "verdict",
    "reason",
    "trials_to_decide",
];
