//! Figures that commands print: their sentence, and their table in every format.

use super::fit::{Column, Field, Line};
use super::words::{ends_words, number, undirected};
use serde_json::{Value, json};
use siga_plan::command::figure::Better;
use siga_plan::matrix::Cell;
use siga_results::judge::{Comparison, Metric, Row, Verdict};
use siga_results::summary::{FigureSummary, Summary};

/// Maximum number of figures in the sentence. The table has all.
const WORDS_MAX: usize = 3;

pub(super) const COLUMNS: [Column<'static>; 5] = [
    Column { head: "", right: false, drop: 0, shorten: 0 },
    Column { head: "value", right: true, drop: 0, shorten: 0 },
    Column { head: "±", right: true, drop: 2, shorten: 0 },
    Column { head: "unit", right: false, drop: 1, shorten: 0 },
    Column { head: "ratio", right: false, drop: 0, shorten: 3 },
];

/// The columns that a table of cells as CSV has for each figure.
pub(super) const CSV_COLUMNS: [&str; 3] = ["figure", "figure_unit", "figure_value"];

/// Returns a sentence on the verdicts on the first figures of a cell. Returns an empty string if the command prints no figure.
pub(super) fn words(one: &Comparison, cell: &Cell) -> String {
    let is_it = |row: &&Row| row.new == *cell && matches!(row.metric, Metric::Figure(_));
    let parts = one.rows.iter().filter(is_it).filter_map(|row| part(one, row)).take(WORDS_MAX);
    parts.collect::<Vec<_>>().join("; ")
}

fn part(one: &Comparison, row: &Row) -> Option<String> {
    let name = row.metric.name();
    let word = match &row.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NotComparable { .. } => return None,
        Verdict::Equivalent | Verdict::Inconclusive { .. } => return undirected(row, name),
    };
    let times = number(row.ratio);
    Some(format!("{} has {times} times the {name} of {}{}, which is {word}", one.new, one.base, ends_words(row)))
}

/// Returns the lines of the table of a group of cells: for each figure a heading and a row for each cell. `ratio` returns what a
/// verdict says about a figure of a cell.
pub(super) fn lines(group: &[&Summary], title: &str, ratio: impl Fn(&Summary, Metric) -> Field) -> Vec<Line> {
    let mut lines = Vec::new();
    for first in keys(group) {
        let better = match first.key.better {
            Better::Higher => "more",
            Better::Lower => "less",
        };
        lines.push(Line::Heading(format!("{title}: {}, {better} is better", first.key.name)));
        for summary in group {
            let Some(own) = summary.figures.iter().find(|own| own.key == first.key) else { continue };
            lines.push(Line::Row(vec![
                format!("  {}", summary.cell.level).into(),
                number(own.value).into(),
                spread(own).into(),
                own.key.unit.to_string().into(),
                ratio(summary, Metric::Figure(own.key)),
            ]));
        }
    }
    lines
}

/// Returns the figures of a group of cells, each once.
fn keys<'a>(group: &[&'a Summary]) -> Vec<&'a FigureSummary> {
    let mut all: Vec<&FigureSummary> = Vec::new();
    for figure in group.iter().flat_map(|summary| &summary.figures) {
        if !all.iter().any(|other| other.key == figure.key) {
            all.push(figure);
        }
    }
    all
}

/// Returns half the width of the 95% interval of the mean, in percent.
fn spread(figure: &FigureSummary) -> String {
    let estimate = &figure.estimate;
    match estimate.low.zip(estimate.high) {
        Some((low, high)) if estimate.value != 0.0 => {
            format!("±{:.1}%", 50.0 * (high - low) / estimate.value.abs())
        }
        Some(_) | None => "-".to_owned(),
    }
}

/// Returns the figures of a cell as JSON.
pub(super) fn value(summary: &Summary) -> Value {
    let one = |figure: &FigureSummary| {
        json!({
            "name": figure.key.name,
            "unit": figure.key.unit,
            "better": figure.key.better,
            "value": figure.value,
            "mean": figure.estimate,
        })
    };
    summary.figures.iter().map(one).collect()
}
