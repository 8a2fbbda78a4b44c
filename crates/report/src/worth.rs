//! A table of the effects of each driver feature. It is for runs that measure levels and variants of these levels, such as runs
//! of the plan `ablation`. A level is a set of driver features and other settings; a variant has one feature more or one fewer.
//!
//! The table has one row for each feature, cell and figure (rate and CPU time). It has one column for each level and kind of
//! change: feature removed or feature added. Each entry is a ratio: the figure of the variant divided by the figure of the level
//! without that change. Interval and verdict of the ratio are added.

use super::fit::{self, Column, Field, Line};
use super::table::grid;
use siga_model::text;
use siga_plan::level::Variant;
use siga_plan::matrix::Cell;
use siga_results::judge::{Comparison, Metric, Row, Subject, Verdict};
use std::fmt::Write;

/// The heading of the table.
pub(super) const TITLE: &str = "Effect of each driver feature";

/// The explanation of the table's entries.
pub(super) const LEGEND: &str = "\
Each ratio divides a level in which the feature is off (or on) by the unchanged level; its 95% interval and verdict follow.
A feature helps if figures are worse without it or better with it. CPU is the CPU time of the whole system per unit; less is better.";

/// The metrics for which the table has rows, with the names of the rows.
const FIGURES: [(Metric, &str); 2] = [(Metric::Rate, "rate"), (Metric::TOTAL, "CPU")];

/// The table of the effects of each driver feature.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Worth {
    /// The column heads: feature, cell and figure, then one head for each level and kind of change (removed or added).
    pub(super) heads: Vec<String>,
    /// The rows; each has one entry for each head.
    pub(super) rows: Vec<Vec<String>>,
}

/// A comparison of a level with a variant of this level that has one feature more or one feature fewer.
struct Change<'a> {
    comparison: &'a Comparison,
    /// The feature, then any other features in which both compared levels differ from the root level, which is the level without
    /// any change. For `430-adaptive_waiting-colocate`, the root level is `430`, and the text is "colocate, without
    /// adaptive_waiting".
    feature: String,
    /// The name of the root level, and whether the feature was added (true) or removed (false).
    column: (&'a str, bool),
}

impl<'a> Change<'a> {
    fn of(comparison: &'a Comparison) -> Option<Self> {
        let variant = Variant::of(&comparison.new)?;
        if comparison.emulated || comparison.subject != Subject::Levels || variant.base != comparison.base {
            return None;
        }
        let mut feature = variant.feature.to_owned();
        let mut root = variant.base;
        while let Some(beside) = Variant::of(root) {
            let _ = write!(feature, ", {} {}", if beside.with { "with" } else { "without" }, beside.feature);
            root = beside.base;
        }
        Some(Self { comparison, feature, column: (root, variant.with) })
    }

    fn field(&self, cell: &Cell, metric: Metric) -> Option<String> {
        let is_it = |row: &&Row| row.metric == metric && is_same(&row.new, cell);
        self.comparison.rows.iter().find(is_it).map(field)
    }
}

/// Returns the table; `None` if no level was compared with a variant of this level.
pub(super) fn of(comparisons: &[Comparison]) -> Option<Worth> {
    let changes: Vec<Change<'_>> = comparisons.iter().filter_map(Change::of).collect();
    let (mut columns, mut features, mut cells) = (Vec::new(), Vec::new(), Vec::<&Cell>::new());
    for change in &changes {
        if !columns.contains(&change.column) {
            columns.push(change.column);
        }
        if !features.contains(&change.feature.as_str()) {
            features.push(&change.feature);
        }
        for row in &change.comparison.rows {
            if !cells.iter().any(|cell| is_same(cell, &row.new)) {
                cells.push(&row.new);
            }
        }
    }
    let mut rows = Vec::new();
    for feature in features {
        let of_feature =
            |column: &(&str, bool)| changes.iter().find(|change| change.feature == feature && change.column == *column);
        let of_feature: Vec<Option<&Change<'_>>> = columns.iter().map(of_feature).collect();
        for cell in &cells {
            for (metric, figure) in FIGURES {
                let fields = of_feature.iter().map(|change| change.and_then(|change| change.field(cell, metric)));
                let fields: Vec<Option<String>> = fields.collect();
                if fields.iter().any(Option::is_some) {
                    let labels = [feature.to_owned(), name(cell, &cells), figure.to_owned()];
                    let fields = fields.into_iter().map(|field| field.unwrap_or_else(|| "-".into()));
                    rows.push(labels.into_iter().chain(fields).collect());
                }
            }
        }
    }
    let of_column = |(level, with): &(&str, bool)| format!("{level} {} it", if *with { "with" } else { "without" });
    let heads = ["feature", "cell", "figure"].map(str::to_owned).into_iter().chain(columns.iter().map(of_column));
    (!rows.is_empty()).then(|| Worth { heads: heads.collect(), rows })
}

/// Returns the table with heading and explanation as text or Markdown. Returns an empty string if no level was compared with a
/// variant of that level.
pub(super) fn text(comparisons: &[Comparison], markdown: bool, width: usize) -> String {
    let Some(worth) = of(comparisons) else { return String::new() };
    let word = if markdown { text::markdown } else { text::name };
    let heads: Vec<String> = worth.heads.iter().map(|head| word(head)).collect();
    if markdown {
        let rows = worth.rows.iter().map(|row| row.iter().map(|field| word(field)));
        return format!("\n### {TITLE}\n\n{LEGEND}\n\n{}", grid(heads, rows, 0..0, true, 1));
    }
    // On a narrow screen, a field has no interval.
    let column = |(at, head)| Column { head, right: false, drop: 0, shorten: u8::from(at > 2) };
    let columns: Vec<Column<'_>> = heads.iter().map(String::as_str).enumerate().map(column).collect();
    let field = |field: &String| match (field.split_once(" ("), field.split_once(") ")) {
        (Some((ratio, _)), Some((_, verdict))) => Field::from(word(field)).or(format!("{ratio} {}", word(verdict))),
        _ => word(field).into(),
    };
    let lines: Vec<Line> = worth.rows.iter().map(|row| Line::Row(row.iter().map(field).collect())).collect();
    format!("\n{TITLE}\n\n{LEGEND}\n\n{}", fit::table(&columns, &lines, width))
}

/// Returns an entry of the table: ratio, interval and verdict, such as "0.912 (0.900 to 0.925) worse".
fn field(row: &Row) -> String {
    match (&row.verdict, row.low.zip(row.high)) {
        (Verdict::NotComparable { .. }, _) | (_, None) => format!("{:.3} {}", row.ratio, row.verdict.name()),
        (_, Some((low, high))) => format!("{:.3} ({low:.3} to {high:.3}) {}", row.ratio, row.verdict.name()),
    }
}

/// Returns true if two cells are equal or differ only in their levels.
fn is_same(one: &Cell, other: &Cell) -> bool {
    Cell { level: other.level.clone(), ..one.clone() } == *other
}

/// Returns the name of a cell: workload and number of client-server pairs ("x10"). Path and MTU are part of the name if cells of
/// the table differ in them.
fn name(cell: &Cell, all: &[&Cell]) -> String {
    let mut name = String::new();
    if all.iter().any(|other| other.path != cell.path) {
        let _ = write!(name, "{} ", cell.path);
    }
    let _ = write!(name, "{}", cell.workload);
    if let Some(mtu) = cell.mtu.filter(|_| all.iter().any(|other| other.path == cell.path && other.mtu != cell.mtu)) {
        let _ = write!(name, " mtu {mtu}");
    }
    let _ = write!(name, " x{}", cell.clients);
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Layout, html, render};
    use siga_plan::level::Level;
    use siga_results::judge::within;
    use siga_results::store::Run;

    /// Returns a run of twelve rounds, with 1 and 10 pairs. Each level has the given duration of a trial in milliseconds.
    fn run(levels: &[(&str, u64)]) -> Run {
        let mut run = siga_results::testing::run("run", Vec::new());
        run.levels = levels.iter().map(|(name, _)| Level { name: (*name).into(), ..Level::plain() }).collect();
        for round in 0..12 {
            for ((name, ms), clients) in levels.iter().flat_map(|level| [(level, 1), (level, 10)]) {
                let mut trial = siga_results::testing::trial("veth", round, 700, None);
                (trial.cell.level, trial.cell.clients) = ((*name).into(), clients);
                trial.elapsed_ns = ms * 1_000_000 + u64::from(round * 7 % 5) * 2_000_000;
                run.trials.push(trial);
            }
        }
        run
    }

    /// A trial of 420 takes four times as long as one of 430. Removing packing from 430 lowers the rate by a quarter; adding
    /// packing to 420 changes nothing.
    fn ablation() -> Run {
        run(&[
            ("430", 1_000),
            ("420", 4_000),
            ("430-packing", 1_333),
            ("420+packing", 4_000),
            ("430-adaptive_waiting", 2_000),
            ("430-adaptive_waiting-colocate", 2_500),
            ("420+pending", 2_000),
        ])
    }

    #[test]
    fn each_feature_is_judged_within_the_level_that_it_was_switched_at() {
        let worth = of(&within(&ablation()).unwrap()).unwrap();
        assert_eq!(worth.heads, ["feature", "cell", "figure", "430 without it", "420 with it"]);
        let labels: Vec<[&str; 3]> =
            worth.rows.iter().map(|row| [&row[0], &row[1], &row[2]].map(String::as_str)).collect();
        let of_feature = |name| ["x1", "x10"].map(|clients| ["rate", "CPU"].map(|figure| (name, clients, figure)));
        let features = ["packing", "adaptive_waiting", "colocate, without adaptive_waiting", "pending"];
        let wanted: Vec<_> = features.into_iter().flat_map(of_feature).flatten().collect();
        assert_eq!(labels.len(), wanted.len(), "{labels:?}");
        for (label, (feature, clients, figure)) in labels.iter().zip(wanted) {
            assert_eq!((label[0], label[2]), (feature, figure), "{labels:?}");
            assert!(label[1].starts_with("rr-") && label[1].ends_with(&format!(" {clients}")), "{label:?}");
        }
        let fields = |feature: &str| {
            let row = worth.rows.iter().find(|row| row[0] == feature).unwrap();
            [row[3].clone(), row[4].clone()]
        };
        let is = |field: &str, ratio: &str, verdict: &str| field.starts_with(ratio) && field.ends_with(verdict);
        let [without, with] = fields("packing");
        assert!(
            is(&without, "0.75", ") worse") && is(&with, "1.000 (1.000 to 1.000)", " equivalent"),
            "{without}, {with}"
        );
        let [without, with] = fields("colocate, without adaptive_waiting");
        assert!(is(&without, "0.80", ") worse") && with == "-", "against 430 it would be 0.40: {without}, {with}");
        let [without, with] = fields("pending");
        assert!(without == "-" && with.starts_with(['1', '2']) && with.ends_with(") better"), "{without}, {with}");
        let is_the_same = |field: &String| field == "-" || is(field, "1.000 (1.000 to 1.000)", " equivalent");
        assert!(worth.rows.iter().filter(|row| row[2] == "CPU").all(|row| row[3..].iter().all(is_the_same)));
    }

    #[test]
    fn only_a_run_with_variants_has_the_table() {
        let ablation = ablation();
        let shown = |run: &Run, format| render(run, format, Layout::Plain, None).unwrap();
        let text = shown(&ablation, Format::Text);
        assert!(text.contains(&format!("\n{TITLE}\n\n{LEGEND}\n\nfeature ")), "{text}");
        let line = text.lines().find(|line| line.starts_with("packing ") && line.contains(" x10 ")).unwrap();
        assert!(line.contains(" rate ") && line.contains(" worse ") && line.ends_with(" equivalent"), "{line}");
        assert!(text.contains("`siga compare 420 420+packing --run run` shows every figure."), "{text}");
        assert!(!text.contains("siga compare 430 420+packing"), "{text}");
        let markdown = shown(&ablation, Format::Md);
        assert!(markdown.contains(&format!("\n### {TITLE}\n\n{LEGEND}\n\n| feature ")), "{markdown}");
        let page = html::html(std::slice::from_ref(&ablation), &within(&ablation).unwrap()).unwrap();
        assert!(page.contains(&format!("<h2>{TITLE}</h2>")) && page.contains("430 without it"));
        let plain = run(&[("plain", 1_000), ("reno", 1_000), ("430-packing", 1_000)]);
        for format in [Format::Text, Format::Md] {
            assert!(!shown(&plain, format).contains(TITLE), "its base was not measured");
        }
        assert!(!html::html(std::slice::from_ref(&plain), &within(&plain).unwrap()).unwrap().contains(TITLE));
    }

    #[test]
    fn a_cells_name_has_path_and_mtu_only_if_they_differ() {
        let mut comparisons = within(&ablation()).unwrap();
        for row in comparisons.iter_mut().flat_map(|comparison| &mut comparison.rows) {
            if row.new.clients == 10 {
                (row.base.mtu, row.new.mtu) = (Some(9_000), Some(9_000));
            }
        }
        let worth = of(&comparisons).unwrap();
        assert!(worth.rows.iter().any(|row| row[1].ends_with(" mtu 9000 x10")), "{:?}", worth.rows);
        for row in comparisons.iter_mut().flat_map(|comparison| &mut comparison.rows) {
            if row.new.clients == 10 {
                row.new.path = "bridge".into();
            }
        }
        let worth = of(&comparisons).unwrap();
        let begins = |name: &str| worth.rows.iter().any(|row| row[1].starts_with(name));
        assert!(begins("bridge rr-") && begins("veth rr-"), "{:?}", worth.rows);
    }
}
