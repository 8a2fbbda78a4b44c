//! A comparison as text, Markdown, JSON (`siga/compare/1`) and CSV.
//!
//! Text and Markdown begin with how many verdicts of each kind there are, then what differs between the hosts, then a table
//! for each pair of cells: its main figures, and of the others those that changed. JSON and CSV hold every figure.

use super::Format;
use super::words::{cpu_scale, number, pairs};
use crate::environment::Difference;
use crate::error::{Error, IoContext, Result};
use crate::judge::{Comparison, Form, Metric, Mode, Row, Subject, Verdict};
use crate::plan::Cell;
use comfy_table::{CellAlignment, Table, presets};
use serde_json::{Value, json};
use std::fmt::Write;

/// How a comparison is shown.
#[derive(Debug, Clone, Copy, Default)]
pub struct Options {
    /// Every figure, and every difference between the hosts, in text and Markdown too.
    pub all: bool,
    /// Colour for better and worse.
    pub colour: bool,
}

/// The names of the verdicts in the order of the summary.
const VERDICTS: [&str; 5] = ["better", "worse", "equivalent", "inconclusive", "not comparable"];

/// A comparison in one of the formats.
///
/// # Errors
/// Environment: out of memory.
pub fn render(comparison: &Comparison, format: Format, options: Options) -> Result<String> {
    match format {
        Format::Text => Ok(people(comparison, options, false)),
        Format::Md => Ok(people(comparison, Options { colour: false, ..options }, true)),
        Format::Json => json(comparison),
        Format::Csv => csv(comparison),
    }
}

/// How many verdicts of each kind, in one line: "24 figures of 2 cells: 1 better, 9 worse, …".
pub fn summary(comparison: &Comparison) -> String {
    let counts = VERDICTS.map(|verdict| format!("{} {verdict}", comparison.count(verdict)));
    let cells = groups(comparison).len();
    let plural = |count: usize, one: &str| if count == 1 { format!("1 {one}") } else { format!("{count} {one}s") };
    format!("{} of {}: {}", plural(comparison.rows.len(), "figure"), plural(cells, "cell"), counts.join(", "))
}

/// What a comparison says of the rate and of CPU time, cell by cell, in sentences.
pub fn sentences(comparison: &Comparison) -> Vec<String> {
    let mut sentences = Vec::new();
    for group in groups(comparison) {
        let find = |metric: Metric| group.iter().copied().find(|row| row.metric == metric);
        let told = [(Metric::Rate, "of the rate"), (Metric::TOTAL, "CPU")];
        let parts: Vec<String> = told.into_iter().filter_map(|(metric, what)| part(find(metric)?, what)).collect();
        if !parts.is_empty() {
            let place = cell_name(comparison, group[0]);
            sentences.push(format!("{place}: {}.", parts.join("; ")));
        }
    }
    sentences
}

/// "12.3% less rate (95%: 11.0 to 13.5%)"; `None` where there is nothing to say.
fn part(row: &Row, what: &str) -> Option<String> {
    let rate = what != "CPU";
    let noun = if rate { "rate" } else { "CPU a unit" };
    let change = |ratio: f64| 100.0 * (ratio - 1.0).abs();
    Some(match &row.verdict {
        Verdict::Better | Verdict::Worse => {
            let (low, high) = (change(row.low?), change(row.high?));
            let word = if row.ratio < 1.0 { "less" } else { "more" };
            let (least, most) = (low.min(high), low.max(high));
            format!("{:.1}% {word} {noun} (95%: {least:.1} to {most:.1}%)", change(row.ratio))
        }
        Verdict::Equivalent => format!("the same {noun} within 2%"),
        Verdict::Inconclusive { .. } => format!("{noun} undecided"),
        Verdict::NotComparable { .. } => format!("{noun} not comparable"),
    })
}
