//! Latency at the loads that a plan offers, as a table for people and as figures for JSON and CSV.

use super::table::Section;
use super::words::number;
use serde_json::{Value, json};
use siga_results::summary::{OfferedLoad, Reduced, Summary};

/// The heading of the table.
pub(super) const TITLE: &str = "Latency against load";

/// The explanation of the table.
pub(super) const LEGEND: &str = "\
Transactions start at planned times. The load is their rate, as a share of the closed loop's rate in the same trial. Latency \
counts from the planned start of a transaction; the percentiles are those of all trials together. A load is `not carried` if \
siga completed less than 99% of the planned transactions. The knee is the load with the largest quotient of rate and p99. \
Above the knee, latency grows faster than the rate.";

/// The heads of the table's columns.
const HEADS: [&str; 8] = ["cell", "load", "planned/sec", "trans/sec", "p50 us", "p99 us", "p99.9 us", ""];

/// Returns the rows of the table: one for each load of each cell.
fn rows(reduced: &Reduced) -> Vec<[String; 8]> {
    reduced.cells.iter().flat_map(rows_of).collect()
}

fn rows_of(summary: &Summary) -> Vec<[String; 8]> {
    let knee = OfferedLoad::knee(&summary.offered);
    let row = |(at, one): (usize, &OfferedLoad)| {
        let latency = |value: Option<f64>| value.map_or("-".into(), number);
        let remark = match (one.is_carried(), knee == Some(at)) {
            (false, _) => "not carried",
            (true, true) => "knee",
            (true, false) => "",
        };
        [
            summary.cell.to_string(),
            one.load.to_string(),
            number(one.planned_per_s),
            number(one.rate),
            latency(one.latency.p50),
            latency(one.latency.p99),
            latency(one.latency.p999),
            remark.to_owned(),
        ]
    };
    summary.offered.iter().enumerate().map(row).collect()
}

/// Returns the table with heading and explanation as text or Markdown; an empty string if it has no row. Lines of text
/// have at most `width` characters.
pub(super) fn text(reduced: &Reduced, markdown: bool, width: usize) -> String {
    let section = Section { title: TITLE, legend: LEGEND, heads: HEADS, drop: DROP, numbers: 1..7 };
    section.text(rows(reduced), markdown, width)
}

/// When each column is dropped on a narrow screen.
const DROP: [u8; 8] = [0, 0, 2, 0, 3, 0, 1, 0];

/// Returns the loads of one cell for JSON.
pub(super) fn value(summary: &Summary) -> Value {
    let knee = OfferedLoad::knee(&summary.offered);
    let one = |(at, one): (usize, &OfferedLoad)| {
        json!({
            "load": one.load.share(),
            "planned_per_s": one.planned_per_s,
            "rate": one.rate,
            "latency_us": one.latency,
            "trials": one.trials,
            "carried": one.is_carried(),
            "knee": knee == Some(at),
        })
    };
    Value::Array(summary.offered.iter().enumerate().map(one).collect())
}

/// The columns of CSV that only lines of loads have.
pub(super) const COLUMNS: [&str; 2] = ["load", "planned_per_s"];

/// Returns the fields of [`COLUMNS`] for a load.
pub(super) fn fields(one: &OfferedLoad) -> [String; 2] {
    [one.load.share().to_string(), one.planned_per_s.to_string()]
}

/// Returns the field of a load in a column of cells. It is empty if the column has no figure of a load.
pub(super) fn field(one: &OfferedLoad, column: &str) -> String {
    let latency = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    match column {
        "trials" => one.trials.to_string(),
        "rate" => one.rate.to_string(),
        "p50_us" => latency(one.latency.p50),
        "p90_us" => latency(one.latency.p90),
        "p99_us" => latency(one.latency.p99),
        "p999_us" => latency(one.latency.p999),
        "max_us" => latency(one.latency.max),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Format, Layout, html, render};
    use siga_results::histogram;
    use siga_results::record::{LoadCounts, OfferedRecord, PhaseRecord};
    use siga_results::store::Run;
    use siga_results::testing;

    /// Returns a run with three loads, of which the last is not carried.
    fn run() -> Run {
        let record = |(percent, carried, latency_us): (u64, u64, u64)| {
            let mut latency = histogram::empty();
            latency.record_n(latency_us * 1_000, carried).unwrap();
            OfferedRecord {
                load: format!("{percent}%").parse().unwrap(),
                planned_per_s: (percent * 100) as f64,
                phase: PhaseRecord {
                    elapsed_ns: 1_000_000_000,
                    client: LoadCounts { transactions: carried, ..LoadCounts::default() },
                },
                latency: histogram::encode(&latency).unwrap(),
            }
        };
        let mut trial = testing::trial("veth", 0, 700, None);
        trial.offered = [(10, 1_000, 50), (60, 6_000, 70), (120, 8_000, 90_000)].map(record).into();
        testing::run("run", vec![trial, testing::trial("unix", 0, 700, None)])
    }

    #[test]
    fn every_report_has_the_latency_at_each_load_and_the_knee() {
        let run = run();
        let shown = |format| render(&run, format, Layout::Plain, None).unwrap();
        for format in [Format::Text, Format::Md] {
            let text = shown(format);
            assert!(text.contains(TITLE), "{text}");
            let line = |load: &str| text.lines().find(|line| line.contains(load) && line.contains("veth")).unwrap();
            assert!(line("10%").contains("1,000") && !line("10%").contains("knee"), "{text}");
            assert!(line("60%").contains("knee") && line("60%").contains("70.0"), "{text}");
            assert!(line("120%").contains("not carried"), "{text}");
        }
        let json: Value = serde_json::from_str(&shown(Format::Json)).unwrap();
        let of = |path: &str| json["cells"].as_array().unwrap().iter().find(|cell| cell["path"] == path).unwrap();
        let loads = of("veth")["offered"].as_array().unwrap();
        let flags = loads.iter().map(|one| (one["carried"].as_bool().unwrap(), one["knee"].as_bool().unwrap()));
        assert_eq!(flags.collect::<Vec<_>>(), [(true, false), (true, true), (false, false)]);
        assert_eq!(of("unix")["offered"], json!([]));
        let csv = shown(Format::Csv);
        let mut reader = csv::Reader::from_reader(csv.as_bytes());
        let heads = reader.headers().unwrap().clone();
        let at = |name: &str| heads.iter().position(|head| head == name).unwrap();
        let lines: Vec<_> = reader.records().map(Result::unwrap).collect();
        let found: Vec<_> =
            lines.iter().map(|line| (&line[at("path")], &line[at("load")], &line[at("rate")])).collect();
        assert_eq!(found.iter().filter(|(_, load, _)| load.is_empty()).count(), 2, "a line for each cell: {found:?}");
        assert!(found.contains(&("veth", "0.6", "6000")), "{found:?}");
        let page = html::html(std::slice::from_ref(&run), &[]).unwrap();
        assert!(
            page.contains("Above 60% of the closed loop's rate") && page.contains("p99 at 120%"),
            "the chart and its marks"
        );
    }

    #[test]
    fn a_run_without_loads_has_no_such_table() {
        let mut run = run();
        run.trials.iter_mut().for_each(|trial| trial.offered.clear());
        assert!(!render(&run, Format::Text, Layout::Plain, None).unwrap().contains(TITLE));
        assert!(!html::html(std::slice::from_ref(&run), &[]).unwrap().contains(TITLE));
    }
}
