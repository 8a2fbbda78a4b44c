//! What CPU accounting itself costs on each cell, as a table for people and as figures for JSON and CSV.

use super::table::Section;
use serde_json::{Value, json};
use siga_results::summary::{ObserverCost, Reduced, Summary};

/// The heading of the table.
pub(super) const TITLE: &str = "The cost of CPU accounting";

/// The explanation of the table.
pub(super) const LEGEND: &str = "\
In each trial, the profiler runs in a separate phase, in which siga divides the CPU time among the components. Rates, latencies and \
total CPU times come from a phase without the profiler. The column `ratio` shows the rate with the profiler, divided by the rate \
without it, and its 95% interval. The column `estimate` shows this ratio as computed from the cost of samples and packets. Guests \
(method processes) measure their copies in every phase, so siga can compute only the largest possible cost.";

/// The heads of the table's columns.
pub(super) const HEADS: [&str; 6] = ["cell", "method", "ratio", "95%", "estimate", ""];

/// Returns the rows of the table: one for each cell on which accounting takes time within a phase.
pub(super) fn rows(reduced: &Reduced) -> Vec<[String; 6]> {
    let row = |summary: &Summary| {
        let cost = summary.observer?;
        let interval = match (cost.rate_ratio, cost.low.zip(cost.high)) {
            (Some(_), Some((low, high))) => format!("{low:.3} to {high:.3}"),
            (Some(_), None) => "too few trials".into(),
            (None, _) => "-".into(),
        };
        let ratio = cost.rate_ratio.map_or("-".into(), |ratio| format!("{ratio:.3}"));
        let (method, said) = (cost.method.to_string(), format!("{:.3}", cost.said_ratio));
        Some([summary.cell.to_string(), method, ratio, interval, said, remark(&cost).to_owned()])
    };
    reduced.cells.iter().filter_map(row).collect()
}

fn remark(cost: &ObserverCost) -> &'static str {
    match (cost.is_beyond_limit(), cost.is_more_than_said()) {
        (false, _) => "",
        (true, false) => "more than 2%",
        (true, true) => "more than estimated",
    }
}

/// Returns the table with heading and explanation as text or Markdown; an empty string if it has no row. Lines of text
/// have at most `width` characters.
pub(super) fn text(reduced: &Reduced, markdown: bool, width: usize) -> String {
    let section = Section { title: TITLE, legend: LEGEND, heads: HEADS, drop: DROP, numbers: 2..5 };
    section.text(rows(reduced), markdown, width)
}

/// When each column is dropped on a narrow screen.
const DROP: [u8; 6] = [0, 1, 0, 2, 0, 0];

/// Returns the cost on one cell for JSON; `None` (null) if accounting takes nothing within a phase.
pub(super) fn value(summary: &Summary) -> Option<Value> {
    let cost = summary.observer?;
    Some(json!({
        "method": cost.method,
        "rate_ratio": cost.rate_ratio,
        "low": cost.low,
        "high": cost.high,
        "trials": cost.trials,
        "said_ratio": cost.said_ratio,
        "beyond_limit": cost.is_beyond_limit(),
        "more_than_said": cost.is_more_than_said(),
    }))
}

/// The columns of CSV with the cost on a cell.
pub(super) const COLUMNS: [&str; 4] = ["accounting_ratio", "accounting_low", "accounting_high", "accounting_said"];

/// Returns the fields of [`COLUMNS`]; those without a figure are empty.
pub(super) fn fields(summary: &Summary) -> [String; 4] {
    let text = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let of = |pick: fn(ObserverCost) -> Option<f64>| text(summary.observer.and_then(pick));
    [of(|cost| cost.rate_ratio), of(|cost| cost.low), of(|cost| cost.high), of(|cost| Some(cost.said_ratio))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Layout, html, render};
    use siga_results::record::{Charges, LoadCounts, ObserverRecord, PhaseRecord, ProfileRecord, Samples};
    use siga_results::store::Run;
    use siga_results::testing;

    /// Returns a run of one profiled cell and one cell of siga's own network. The rate with the profiler is `percent` of the rate
    /// without it, and the profiler says that it takes 1%.
    fn run(percent: u64) -> Run {
        let on_client = Charges { client: Samples { user: 100, kernel: 900 }, ..Charges::default() };
        let profile = ProfileRecord { period_ns: 1_000_000, on_client, ..ProfileRecord::default() };
        let phase = |transactions, elapsed_ns| PhaseRecord {
            elapsed_ns,
            client: LoadCounts { transactions, ..LoadCounts::default() },
        };
        let with = phase(percent, 100_000_000);
        let without = phase(100, 100_000_000);
        let observer = ObserverRecord { with, without, sample_ns: 10_000, ..ObserverRecord::default() };
        let trials = (0..8).flat_map(|round| {
            let mut trial = testing::trial("veth-routed", round, 700, Some(profile));
            trial.observer = Some(observer);
            [trial, testing::trial("veth", round, 700, None)]
        });
        testing::run("run", trials.collect())
    }

    #[test]
    fn every_report_has_what_accounting_costs_on_each_cell() {
        let run = run(97);
        let shown = |format| render(&run, format, Layout::Plain, None).unwrap();
        for format in [Format::Text, Format::Md] {
            let text = shown(format);
            assert!(text.contains(TITLE) && text.contains("0.970 to 0.970"), "{text}");
            let line = text.lines().find(|line| line.contains("0.970 to 0.970")).unwrap();
            assert!(
                line.contains("veth-routed") && line.contains("0.990") && line.contains("more than estimated"),
                "{line}"
            );
        }
        let json: Value = serde_json::from_str(&shown(Format::Json)).unwrap();
        let of = |path: &str| json["cells"].as_array().unwrap().iter().find(|cell| cell["path"] == path).unwrap();
        let profiler = &of("veth-routed")["accounting_cost"];
        assert!((profiler["rate_ratio"].as_f64().unwrap() - 0.97).abs() < 1e-9, "{profiler}");
        assert!((profiler["said_ratio"].as_f64().unwrap() - 0.99).abs() < 1e-9, "{profiler}");
        assert_eq!((&profiler["more_than_said"], &profiler["trials"]), (&json!(true), &json!(8)), "{profiler}");
        assert!(of("veth")["accounting_cost"].is_null());
        let csv = shown(Format::Csv);
        assert!(csv.lines().next().unwrap().contains(&COLUMNS.join(",")), "{csv}");
        let line = |path: &str| csv.lines().find(|line| line.starts_with(&format!("{path},"))).unwrap();
        assert!(line("veth-routed").contains(",0.99,") && line("veth").ends_with(",,,,"), "{csv}");
        let page = html::html(std::slice::from_ref(&run), &[]).unwrap();
        assert!(page.contains(TITLE) && page.contains("0.970 to 0.970") && page.contains("more than estimated"));
    }

    #[test]
    fn a_run_by_tick_and_one_of_an_emulated_machine_have_no_such_table() {
        let mut run = run(97);
        run.environment.cpu.emulated = Some(true);
        assert!(!render(&run, Format::Text, Layout::Plain, None).unwrap().contains(TITLE));
        run.environment.cpu.emulated = None;
        run.trials.retain(|trial| trial.observer.is_none());
        assert!(!render(&run, Format::Text, Layout::Plain, None).unwrap().contains(TITLE));
        assert!(!html::html(std::slice::from_ref(&run), &[]).unwrap().contains(TITLE));
    }
}
