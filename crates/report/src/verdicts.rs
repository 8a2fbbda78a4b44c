//! Prints a comparison of two sides as text, Markdown, JSON (schema `siga/compare/2`) or CSV.
//!
//! Text and Markdown begin with the number of verdicts of each kind. Then come the differences between the environments, and one
//! table for each pair of compared cells. A table shows the main figures, and each other figure that became better or worse. JSON
//! and CSV contain every figure.

use super::disturbance;
use super::fit::{self, Column, Field, Line, Screen, Tone};
use super::format::{self, Format};
use super::readable;
use super::sides;
use super::table::grid;
use super::why::{self, Explained};
use super::words::{counted, cpu_scale, noise_floor, number, pairs, undirected};
use super::worth;
use serde_json::{Value, json};
use siga_model::error::Result;
use siga_model::text;
use siga_plan::matrix::Cell;
use siga_results::disturbance::Disturbance;
use siga_results::environment::{Difference, EMULATED};
use siga_results::judge::{Comparison, Form, Mean, Metric, Mode, Part, Row, Subject, Verdict, with_itr};
use siga_results::store::Run;
use std::fmt::Write;

/// Returns the comparisons of a run's levels in words. If some levels are variants of others (they differ in one driver feature),
/// the table of the effects of each feature follows. Returns an empty string if the run has a single level.
pub(super) fn of_levels(run: &Run, comparisons: &[Comparison], markdown: bool, width: usize) -> String {
    let mut out = String::new();
    for comparison in comparisons.iter().filter(|comparison| comparison.subject == Subject::Levels) {
        let (base, new) = (&comparison.base, &comparison.new);
        let _ = writeln!(out, "{new} against {base}: {}.", summary(comparison));
        for sentence in sentences(comparison) {
            let _ = writeln!(out, "  {sentence}");
        }
        let _ = writeln!(out, "  `siga compare {}` shows every figure.", arguments(base, new, run));
    }
    out.push_str(&worth::text(comparisons, markdown, width));
    out
}

/// Returns the arguments of `siga compare` for two levels of a run, as a shell reads them. A name such as `-O2` must not be an option.
fn arguments(base: &str, new: &str, run: &Run) -> String {
    let names = [base, new].map(text::shell).join(" ");
    let directory = text::shell(&run.directory.to_string_lossy());
    if [base, new].iter().any(|name| name.starts_with('-')) {
        format!("--run {directory} -- {names}")
    } else {
        format!("{names} --run {directory}")
    }
}

/// The names of the verdicts in the order of the summary.
const VERDICTS: [&str; 5] = ["better", "worse", "equivalent", "inconclusive", "not comparable"];

/// Returns a comparison as text for a screen. The other arguments are those of [`render`].
pub fn text(comparison: &Comparison, all: bool, explained: Option<&Explained>, screen: &Screen) -> String {
    let shown = people(&readable::comparison(comparison, false), all, false, screen.width);
    let reasons =
        explained.map(|explained| why::people(comparison, explained, false, screen.width)).unwrap_or_default();
    fit::finish(&(shown + &reasons), screen)
}

/// Returns a comparison in the requested format. If `all` is set, text and Markdown also contain every figure and every
/// difference between the environments. `explained` has the explanations of the verdicts on CPU time, if they are requested. CSV
/// does not contain them.
///
/// # Errors
/// Returns an error of kind `Environment` if JSON or CSV cannot be written (out of memory).
pub fn render(comparison: &Comparison, format: Format, all: bool, explained: Option<&Explained>) -> Result<String> {
    match format {
        Format::Text => Ok(text(comparison, all, explained, &Screen::default())),
        Format::Md => {
            let reasons = explained.map(|explained| why::people(comparison, explained, true, usize::MAX));
            Ok(people(&readable::comparison(comparison, true), all, true, usize::MAX) + &reasons.unwrap_or_default())
        }
        Format::Json => json(vec![explained_value(comparison, explained)]),
        Format::Csv => csv(std::slice::from_ref(comparison)),
    }
}

/// Returns several comparisons with the same base in the requested format: first one table with all sides, then each comparison.
/// `explained` has the explanations of each comparison, if they are requested. JSON is one object, whose member `comparisons` has the
/// objects of [`render`].
///
/// # Errors
/// Returns an error of kind `Environment` if JSON or CSV cannot be written (out of memory).
pub fn render_sides(
    comparisons: &[Comparison],
    format: Format,
    all: bool,
    explained: &[Option<&Explained>],
    screen: &Screen,
) -> Result<String> {
    let pairs = || comparisons.iter().zip(explained.iter().copied());
    match (format, comparisons) {
        (Format::Text, [one]) => Ok(text(one, all, explained[0], screen)),
        (_, [one]) => render(one, format, all, explained[0]),
        (Format::Text, _) => {
            let shown: Vec<Comparison> = comparisons.iter().map(|one| readable::comparison(one, false)).collect();
            let table = fit::finish(&sides::table(&shown, screen.width), screen);
            Ok(pairs().fold(table, |out, (one, explained)| out + "\n" + &text(one, all, explained, screen)))
        }
        (Format::Md, _) => pairs().map(|(one, explained)| render(one, format, all, explained)).collect(),
        (Format::Csv, _) => csv(comparisons),
        (Format::Json, _) => json(pairs().map(|(one, explained)| explained_value(one, explained)).collect()),
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
    let cells = groups(&comparison.rows).len();
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
        Metric::Rate | Metric::Streams | Metric::TOTAL | Metric::Figure(_) => true,
        Metric::P99 | Metric::Cpu(_, Mode::All) => matches!(row.verdict, Verdict::Better | Verdict::Worse),
        Metric::P50
        | Metric::ToServer
        | Metric::ToClient
        | Metric::Sent
        | Metric::Loss
        | Metric::Jitter
        | Metric::Itr
        | Metric::Cpu(_, Mode::Virtual | Mode::Cp) => false,
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
    groups(&comparison.rows).into_iter().filter_map(sentence).collect()
}

/// Returns the change of one figure in words, such as "12.3% less rate (95% interval 11.0% to 13.5%)" or "3.59 times the CPU time in the
/// router (95% interval 3.01 to 4.22)".
fn change(row: &Row) -> String {
    let noun = match &row.metric {
        Metric::Figure(key) => key.name.as_str(),
        Metric::Rate => "rate",
        Metric::P50 => "median latency",
        Metric::P99 => "p99 latency",
        Metric::Streams => "rate of the streams beside",
        Metric::ToServer => "rate to the server",
        Metric::ToClient => "rate to the client",
        Metric::Sent => "sent data",
        Metric::Loss => "loss",
        Metric::Jitter => "jitter",
        Metric::Itr => "internal throughput rate",
        Metric::Cpu(Part::Total, _) => "CPU time",
        Metric::Cpu(Part::Client, _) => "CPU time in the client",
        Metric::Cpu(Part::Router, _) => "CPU time in the router",
        Metric::Cpu(Part::Server, _) => "CPU time in the server",
        Metric::Cpu(Part::Other, _) => "other CPU time",
    };
    let percent = |ratio: f64| format!("{:.1}%", 100.0 * (ratio - 1.0).abs());
    match (&row.verdict, row.low, row.high) {
        (Verdict::Better | Verdict::Worse, Some(low), Some(high)) if row.ratio >= 2.0 => {
            format!("{:.2} times the {noun} (95% interval {low:.2} to {high:.2})", row.ratio)
        }
        (Verdict::Better | Verdict::Worse, Some(low), Some(high)) => {
            let (word, least, most) = if row.ratio < 1.0 { ("less", high, low) } else { ("more", low, high) };
            format!("{} {word} {noun} (95% interval {} to {})", percent(row.ratio), percent(least), percent(most))
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
    match (new.workload.is_command(), new.clients) {
        (true, 1) => name = new.workload.to_string(),
        (true, clients) => name = format!("{}, {clients} clients", new.workload),
        (false, clients) => {
            if comparison.subject != Subject::Paths {
                let _ = write!(name, "{} ", new.path);
            }
            let _ = write!(name, "{}, {}", new.workload, pairs(clients));
        }
    }
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
        (Subject::Runs | Subject::Paths | Subject::Mtus, true) if new.level == "plain" => {}
        (Subject::Runs | Subject::Paths | Subject::Mtus, true) => {
            let _ = write!(name, ", {}", new.level);
        }
        (Subject::Runs | Subject::Paths | Subject::Mtus, false) => {
            let _ = write!(name, ", {} -> {}", base.level, new.level);
        }
    }
    name
}

/// Groups the rows of a comparison by the pair of cells that they compare.
fn groups(rows: &[Row]) -> Vec<Vec<&Row>> {
    rows.chunk_by(|left, right| left.base == right.base && left.new == right.new)
        .map(|rows| rows.iter().collect())
        .collect()
}

fn people(comparison: &Comparison, all: bool, markdown: bool, width: usize) -> String {
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
    if !comparison.varied.is_empty() {
        let named: Vec<String> = comparison.varied.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "As requested with --vary, the runs may differ in: {}.", named.join("; "));
    }
    environment(comparison, all, item, &mut out);
    let sentences = sentences(comparison);
    if !sentences.is_empty() {
        out.push('\n');
    }
    for sentence in sentences {
        let _ = writeln!(out, "{item}{sentence}");
    }
    for mean in &comparison.means {
        let _ = writeln!(out, "{item}{}.", mean_words(mean));
    }
    let (mut hidden, mut marked) = (0, false);
    let mut lines = Vec::new();
    let rows = with_itr(&comparison.rows);
    for group in groups(&rows) {
        let unit = cpu_scale(group[0].new.workload.cpu_unit()).1;
        let rate = group[0].new.workload.unit().rate_name();
        let mark = if comparison.emulated { format!(", {EMULATED}") } else { String::new() };
        let title = format!("{} (rate in {rate}, latency in us, CPU in {unit}){mark}", cell_name(comparison, group[0]));
        let shown: Vec<&Row> = group.iter().copied().filter(|row| all || is_shown(row)).collect();
        hidden += group.len() - shown.len();
        marked |= shown.iter().any(|row| row.metric.role() == "exploratory");
        let reason = match group.first().map(|row| &row.verdict) {
            Some(Verdict::NotComparable { reason }) => Some(format!("Not comparable: {reason}.")),
            Some(Verdict::Better | Verdict::Worse | Verdict::Equivalent | Verdict::Inconclusive { .. }) | None => None,
        };
        if markdown {
            let _ = writeln!(out, "\n### {title}\n\n{}", table(comparison, &shown));
            reason.into_iter().for_each(|reason| out = std::mem::take(&mut out) + &reason + "\n");
        } else {
            lines.push(Line::Heading(title));
            lines.extend(shown.iter().map(|row| Line::Row(fields(comparison, row))));
            lines.extend(reason.map(Line::Heading));
        }
    }
    if !lines.is_empty() {
        out = out + "\n" + &fit::table(&COLUMNS_OF_TABLE, &lines, width);
    }
    out.push('\n');
    for (cell, reason) in &comparison.skipped {
        let _ = writeln!(out, "Skipped: {cell}: {reason}");
    }
    for (_, words) in [(rows.len() > comparison.rows.len(), ITR), (marked, EXPLORATORY)].iter().filter(|(is, _)| *is) {
        let _ = writeln!(out, "{words}");
    }
    if hidden > 0 {
        let _ = writeln!(out, "{hidden} more figures are neither better nor worse; --all shows them.");
    }
    out
}

pub(super) fn how(form: Form) -> &'static str {
    match form {
        Form::Paired => "Trials of the same round were compared in pairs",
        Form::TwoSample => {
            "The trials of the two runs were not interleaved, so this comparison is weaker: it includes every change \
                of the host between the runs"
        }
    }
}

fn environment(comparison: &Comparison, all: bool, item: &str, out: &mut String) {
    let differences = &comparison.environment;
    if comparison.subject == Subject::Runs && differences.is_empty() {
        let other = if comparison.varied.is_empty() { "" } else { " other" };
        let _ = writeln!(out, "Environment: no{other} difference.");
    }
    let (matter, rest): (Vec<&Difference>, Vec<&Difference>) = differences.iter().partition(|one| one.matters);
    if !matter.is_empty() {
        let _ = writeln!(out, "Differences in the environment that affect the figures:");
    }
    for difference in matter {
        let _ = writeln!(out, "{item}{difference}");
    }
    if all && !rest.is_empty() {
        let _ = writeln!(out, "Differences in the environment that do not affect the figures:");
        rest.iter().for_each(|difference| {
            let _ = writeln!(out, "{item}{difference}");
        });
    } else if !rest.is_empty() {
        let names: Vec<&str> = rest.iter().map(|difference| difference.key.as_str()).collect();
        let _ = writeln!(out, "Differences in the environment that do not affect the figures: {}.", names.join(", "));
    }
}

/// Returns true for a main figure (rate, latencies, CPU time in all modes), and for any other figure that became better or worse.
fn is_shown(row: &Row) -> bool {
    let is_detail =
        matches!(row.metric, Metric::Sent | Metric::Loss | Metric::Jitter | Metric::Cpu(_, Mode::Virtual | Mode::Cp));
    !is_detail || matches!(row.verdict, Verdict::Better | Verdict::Worse)
}

/// Returns what the geometric mean of a metric's ratios says.
fn mean_words(mean: &Mean) -> String {
    let noun = if mean.metric == Metric::Rate { "rate" } else { "CPU time per unit" };
    let seen = match mean.low.zip(mean.high) {
        Some((low, high)) => format!("{}x, 95% interval {} to {}", number(mean.value), number(low), number(high)),
        None => format!("{}x, no interval", number(mean.value)),
    };
    if mean.is_same() {
        return format!("Geometric mean of {} cells: the same {noun} within 2%", mean.cells);
    }
    if mean.is_clear() {
        return format!(
            "Geometric mean of {} cells: {}",
            mean.cells,
            seen.replacen("x, ", &format!("x the {noun} ("), 1) + ")"
        );
    }
    format!("Geometric mean of {} cells: {noun} inconclusive ({seen})", mean.cells)
}

const fn column(head: &str, drop: u8, shorten: u8) -> Column<'_> {
    Column { head, right: true, drop, shorten }
}

/// The columns of the table, which are also the fields of [`cells`].
const COLUMNS_OF_TABLE: [Column<'static>; 10] = [
    Column { head: "figure", right: false, drop: 0, shorten: 0 },
    column("base", 0, 0),
    column("new", 0, 0),
    column("ratio", 0, 0),
    column("95% interval", 0, 0),
    column("noise", 4, 0),
    column("p", 3, 0),
    column("adjusted", 5, 0),
    column("trials", 2, 0),
    Column { head: "verdict", right: false, drop: 0, shorten: 1 },
];

/// Returns the figures of some rows as a table in Markdown.
fn table(comparison: &Comparison, rows: &[&Row]) -> String {
    let head = COLUMNS_OF_TABLE.map(|column| column.head);
    grid(head, rows.iter().map(|row| cells(comparison, row, true)), 1..9, true, 1)
}

/// Returns the fields of a row of the table as text.
fn fields(comparison: &Comparison, row: &Row) -> Vec<Field> {
    let [figure, others @ .., verdict] = cells(comparison, row, false);
    let verdict = Field::from(verdict).or(row.verdict.name().to_owned()).toned(Tone::of(&row.verdict));
    [Field::from(format!("  {figure}"))].into_iter().chain(others.map(Field::from)).chain([verdict]).collect()
}

/// Returns the ratio of a row as text, "-" if a side was measured on an emulated machine.
pub(super) fn ratio(comparison: &Comparison, row: &Row) -> String {
    if comparison.emulated { "-".to_owned() } else { format!("{:.3}", row.ratio) }
}

/// The explanation of the mark of exploratory figures.
pub(super) const EXPLORATORY: &str = "* Exploratory figure: judged after the main figures (rate, p99, total CPU time); its p value is adjusted \
        separately.";

/// The explanation of the internal throughput rate.
pub(super) const ITR: &str = "ITR is the internal throughput rate: units of work per second of CPU time of the whole system. It is the \
        inverse of the CPU time per unit, and has its verdict.";

/// Returns the mark of an exploratory figure; an empty string for a main figure or a figure derived from one.
pub(super) fn mark(row: &Row, markdown: bool) -> &'static str {
    match (row.metric.role() == "exploratory", markdown) {
        (false, _) => "",
        (true, true) => " \\*",
        (true, false) => " *",
    }
}

fn cells(comparison: &Comparison, row: &Row, markdown: bool) -> [String; 10] {
    let scale = row.metric.scale(row.new.workload);
    let dash = || "-".to_owned();
    let interval = match row.low.zip(row.high) {
        Some((low, high)) => format!("{low:.3}-{high:.3}"),
        None => dash(),
    };
    let trials = match row.trials {
        (base, new) if base == new => base.to_string(),
        (base, new) => format!("{base}, {new}"),
    };
    let verdict = match row.verdict {
        Verdict::Inconclusive { trials: Some(trials) } => format!("inconclusive (needs {trials} trials)"),
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

/// Returns comparisons as JSON: one as an object, several as the member `comparisons` of an object.
pub(super) fn json(mut comparisons: Vec<Value>) -> Result<String> {
    let value = match comparisons.len() {
        1 => comparisons.remove(0),
        _ => json!({"schema": "siga/comparisons/1", "comparisons": comparisons}),
    };
    format::json(&value)
}

fn explained_value(comparison: &Comparison, explained: Option<&Explained>) -> Value {
    let mut value = value(comparison);
    if let Some(explained) = explained {
        value["why"] = why::values(explained);
    }
    value
}

/// Returns the comparison as a JSON object.
pub(super) fn value(comparison: &Comparison) -> Value {
    let counts = VERDICTS.map(|verdict| (verdict.to_owned(), Value::from(comparison.count(verdict))));
    let difference =
        |one: &Difference| json!({"key": one.key, "base": one.base, "new": one.new, "matters": one.matters});
    let skipped: Vec<Value> =
        comparison.skipped.iter().map(|(cell, reason)| json!({"cell": cell.to_string(), "reason": reason})).collect();
    let of_run = |(run, one): &(std::path::PathBuf, Disturbance)| {
        let mut all = disturbance::summary(one);
        all["run"] = json!(run);
        all
    };
    let disturbed: Vec<Value> = comparison.disturbed.iter().map(of_run).collect();
    json!({
        "schema": "siga/compare/2",
        "base": comparison.base,
        "new": comparison.new,
        "run": comparison.run,
        "form": comparison.form,
        "emulated": comparison.emulated,
        "summary": serde_json::Map::from_iter(counts),
        "varied": comparison.varied.iter().map(difference).collect::<Vec<_>>(),
        "environment": comparison.environment.iter().map(difference).collect::<Vec<_>>(),
        "cautions": comparison.cautions,
        "disturbance": disturbed,
        "no_verdict": comparison.no_verdict(),
        "geometric_means": comparison.means.iter().map(geometric_mean).collect::<Vec<_>>(),
        "cells": with_itr(&comparison.rows).iter().map(|row| entry(comparison, row)).collect::<Vec<_>>(),
        "skipped": skipped,
    })
}

fn geometric_mean(mean: &Mean) -> Value {
    json!({"metric": mean.metric.name(), "cells": mean.cells, "ratio": mean.value, "low": mean.low, "high": mean.high})
}

fn entry(comparison: &Comparison, row: &Row) -> Value {
    // Other programs would read a ratio without its verdict.
    let unless_emulated = |figure: f64| (!comparison.emulated).then_some(figure);
    let scale = row.metric.scale(row.new.workload);
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
        "role": row.metric.role(),
        "unit": row.metric.unit(row.new.workload),
        "base_value": row.values.0 * scale,
        "new_value": row.values.1 * scale,
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

/// Returns comparisons as CSV, with one record for each row. The columns are the members that [`entry`] puts into JSON.
fn csv(comparisons: &[Comparison]) -> Result<String> {
    let rows = comparisons.iter().flat_map(|one| with_itr(&one.rows).into_iter().map(move |row| (one, row)));
    let named = |(comparison, row): (&Comparison, Row)| {
        let mut entry = entry(comparison, &row);
        (entry["base"], entry["new"]) = (json!(comparison.base), json!(comparison.new));
        entry
    };
    format::csv(COLUMNS, rows.map(named))
}

const COLUMNS: [&str; 26] = [
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
    "base",
    "new",
];
