//! What streams show besides the rate of a cell: what was sent, lost, reordered and duplicated of datagrams, the rate of each
//! direction, and the rate of streams beside RR. As tables for people, and as figures for JSON and CSV.

use super::table::Section;
use super::words::number;
use serde_json::{Value, json};
use siga_results::record::Datagrams;
use siga_results::summary::{Reduced, Summary};

/// The heading of the table.
pub(super) const TITLE: &str = "Streams of datagrams";

/// The explanation of the table.
pub(super) const LEGEND: &str = "\
The rate is the payload that arrived per second. Sent is the payload that the server sent per second. Lost, reordered and \
duplicated are fractions of the sent datagrams. Jitter is the interarrival jitter of RFC 3550. All figures are those of the median trial.";

/// The heads of the table's columns.
pub(super) const HEADS: [&str; 7] = ["cell", "sent MB/sec", "rate", "lost", "reordered", "duplicated", "jitter us"];

/// When each column is dropped on a narrow screen.
const DROP: [u8; 7] = [0, 0, 0, 0, 2, 1, 3];

/// Returns the rows of the table: one for each cell with a stream of datagrams.
pub(super) fn rows(reduced: &Reduced) -> Vec<[String; 7]> {
    let row = |summary: &Summary| {
        let seen = summary.median.datagrams()?;
        let share = |count: u64| percent(count as f64 / seen.sent.max(1) as f64);
        Some([
            summary.cell.to_string(),
            number(seen.send_rate),
            number(summary.rate),
            share(seen.lost),
            share(seen.reordered),
            share(seen.duplicated),
            seen.jitter_us.map_or("-".into(), number),
        ])
    };
    reduced.cells.iter().filter_map(row).collect()
}

/// Returns a fraction in percent. A small fraction is not shown as zero.
pub(super) fn percent(fraction: f64) -> String {
    let percent = 100.0 * fraction;
    match percent {
        percent if percent <= 0.0 => "0%".into(),
        percent if percent < 0.01 => "<0.01%".into(),
        percent if percent < 10.0 => format!("{percent:.2}%"),
        percent => format!("{percent:.1}%"),
    }
}

/// The heading of the table of workloads that stream in both directions at once, or beside RR.
pub(super) const DIRECTIONS: &str = "Streams in both directions, and beside request-response";

/// The explanation of the table.
pub(super) const DIRECTIONS_LEGEND: &str = "\
Rates are megabytes of payload per second in the median trial. For streams in both directions, the rate of the cell is the sum \
of both directions. Streams beside request-response all flow to the client. The rate and the latencies of such a cell are \
those of request-response alone; its CPU time includes the streams, and is per MB of all payload.";

/// The heads of this table's columns.
pub(super) const DIRECTIONS_HEADS: [&str; 4] = ["cell", "to server", "to client", "streams"];

/// Returns the rows of this table.
pub(super) fn directions(reduced: &Reduced) -> Vec<[String; 4]> {
    let row = |summary: &Summary| {
        let cell = summary.cell.to_string();
        match (summary.median.directions(), summary.median.beside) {
            (Some((to_server, to_client)), _) => Some([cell, number(to_server), number(to_client), "1 a pair".into()]),
            (None, Some(beside)) => {
                Some([cell, "-".into(), number(beside.rate()), summary.cell.workload.beside().to_string()])
            }
            (None, None) => None,
        }
    };
    reduced.cells.iter().filter_map(row).collect()
}

/// Returns the tables with headings and explanations as text or Markdown; an empty string if they have no row. Lines of text
/// have at most `width` characters.
pub(super) fn text(reduced: &Reduced, markdown: bool, width: usize) -> String {
    let datagrams = Section { title: TITLE, legend: LEGEND, heads: HEADS, drop: DROP, numbers: 1..7 };
    let both =
        Section { title: DIRECTIONS, legend: DIRECTIONS_LEGEND, heads: DIRECTIONS_HEADS, drop: [0; 4], numbers: 1..4 };
    datagrams.text(rows(reduced), markdown, width) + &both.text(directions(reduced), markdown, width)
}

/// Returns the figures of one cell for JSON; `None` (null) without a stream of datagrams.
pub(super) fn value(summary: &Summary) -> Option<Value> {
    let seen = summary.median.datagrams()?;
    Some(json!({
        "sent": seen.sent,
        "sent_rate": seen.send_rate,
        "lost": seen.lost,
        "loss": seen.loss(),
        "reordered": seen.reordered,
        "duplicated": seen.duplicated,
        "foreign": seen.foreign,
        "jitter_us": seen.jitter_us,
    }))
}

/// Returns the rates of streams in both directions or beside RR for JSON; `None` (null) for other workloads.
pub(super) fn rates(summary: &Summary) -> Option<Value> {
    match (summary.median.directions(), summary.median.beside) {
        (Some((to_server, to_client)), _) => Some(json!({ "to_server": to_server, "to_client": to_client })),
        (None, Some(beside)) => Some(json!({ "to_server": null, "to_client": beside.rate() })),
        (None, None) => None,
    }
}

/// The columns of CSV for streams.
pub(super) const COLUMNS: [&str; 8] =
    ["sent_rate", "loss", "reordered", "duplicated", "foreign", "jitter_us", "to_server_rate", "to_client_rate"];

/// Returns the fields of [`COLUMNS`]; those without a figure are empty.
pub(super) fn fields(summary: &Summary) -> [String; 8] {
    let seen = summary.median.datagrams();
    let of = |pick: fn(&Datagrams) -> Option<String>| seen.as_ref().and_then(pick).unwrap_or_default();
    let beside = summary.median.beside.map(|beside| beside.rate().to_string());
    let both = summary.median.directions().map(|(to_server, to_client)| (to_server.to_string(), to_client.to_string()));
    let (to_server, to_client) = both.unwrap_or_else(|| (String::new(), beside.unwrap_or_default()));
    [
        of(|seen| Some(seen.send_rate.to_string())),
        of(|seen| Some(seen.loss().to_string())),
        of(|seen| Some(seen.reordered.to_string())),
        of(|seen| Some(seen.duplicated.to_string())),
        of(|seen| Some(seen.foreign.to_string())),
        of(|seen| seen.jitter_us.map(|jitter| jitter.to_string())),
        to_server,
        to_client,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::html;
    use crate::{Format, Layout, Screen, render};
    use siga_results::record::BesideRecord;
    use siga_results::store::Run;
    use siga_results::testing;
    use unicode_width::UnicodeWidthStr;

    /// Returns a run in which a quarter of the datagrams is lost on `veth` and none on `vctc`.
    fn run() -> Run {
        let trials = (0..8).flat_map(|round| {
            ["veth", "vctc"].map(|path| {
                let mut trial = testing::trial(path, round, 700, None);
                trial.cell.workload = "udp-strg:1000@100MB/s".parse().unwrap();
                let delivered = if path == "veth" { 75_000 } else { 100_000 };
                (trial.client.transactions, trial.client.received, trial.client.sent) =
                    (delivered, 1_000 * delivered, 0);
                (trial.server.transactions, trial.server.sent) = (100_000, 100_000_000);
                (trial.client.reordered, trial.client.duplicated, trial.server.foreign) = (5, 1_000, 3);
                (trial.elapsed_ns, trial.jitter_ns) = (1_000_000_000, Some(12_345.0));
                trial
            })
        });
        testing::run("run", trials.collect())
    }

    #[test]
    fn every_report_shows_the_loss_beside_what_was_delivered() {
        let run = run();
        for width in [80, 100, 120] {
            let screen = Screen { width, wraps: true, colour: false };
            let text = crate::text(&run, Layout::Plain, None, &screen).unwrap();
            assert!(text.lines().all(|line| line.width() <= width), "{width}:\n{text}");
            let row = text.split(TITLE).nth(1).unwrap().lines().find(|line| line.starts_with("veth ")).unwrap();
            let wanted = ["100", "75.0", "25.0%"];
            assert!(wanted.iter().all(|word| row.split_whitespace().any(|one| one == *word)), "{width}: {row}");
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains("mtu 1500 x1: 25.0% of the datagrams were lost, in 8 of "), "{text}");
            assert_eq!(words.matches("of the datagrams were lost").count(), 1, "no loss is no flaw:\n{text}");
            assert!(words.contains("24 datagrams belonged to no stream of the trial"), "{text}");
        }
        let text = render(&run, Format::Text, Layout::Plain, None).unwrap();
        let row = text.split(TITLE).nth(1).unwrap().lines().find(|line| line.starts_with("veth ")).unwrap();
        assert!(row.ends_with("100  75.0  25.0%     <0.01%       1.00%       12.3"), "{row}");
        let csv = render(&run, Format::Csv, Layout::Plain, None).unwrap();
        assert!(csv.lines().next().unwrap().contains(&COLUMNS.join(",")), "{csv}");
        assert!(csv.lines().nth(1).unwrap().ends_with(",100,0.25,5,1000,3,12.345,,,,,"), "{csv}");
        let json: Value = serde_json::from_str(&render(&run, Format::Json, Layout::Plain, None).unwrap()).unwrap();
        let cell = &json["cells"][0];
        assert_eq!((&cell["datagrams"]["lost"], &cell["datagrams"]["loss"]), (&json!(25_000), &json!(0.25)));
        assert!((cell["rate"].as_f64().unwrap() - 75.0).abs() < 1e-9, "the rate is what was delivered");
        let html = html(&[run], &[]).unwrap();
        assert!(html.contains(TITLE) && html.contains("25.0%"));
    }

    #[test]
    fn a_lossy_path_is_judged_by_what_it_delivered() {
        let mut run = run();
        run.plan.paths = vec!["veth".into(), "vctc".into()];
        let text = render(&run, Format::Text, Layout::Plain, None).unwrap();
        let row = text.lines().find(|line| line.starts_with("  vctc ")).unwrap();
        assert!(row.contains("1.33x"), "{text}");
    }

    /// Returns a run of one cell with this workload, in which `change` sets each trial.
    fn of_workload(workload: &str, change: fn(&mut siga_results::record::TrialRecord)) -> Run {
        let trials = (0..8).flat_map(|round| {
            ["veth", "vctc"].map(|path| {
                let mut trial = testing::trial(path, round, 700, None);
                trial.cell.workload = workload.parse().unwrap();
                trial.elapsed_ns = 1_000_000_000;
                (trial.client.sent, trial.client.received) = (40_000_000, 60_000_000);
                change(&mut trial);
                trial
            })
        });
        let mut run = testing::run("run", trials.collect());
        run.plan.paths = vec!["veth".into(), "vctc".into()];
        run
    }

    fn rows_of(text: &str) -> Vec<Vec<&str>> {
        let table = text.split(DIRECTIONS).nth(1).unwrap().lines();
        table.filter(|line| line.starts_with("v")).map(|line| line.split_whitespace().collect()).collect()
    }

    #[test]
    fn streams_in_both_directions_have_a_rate_each_and_in_sum() {
        let run = of_workload("strb-20m", |_| ());
        let text = render(&run, Format::Text, Layout::Plain, None).unwrap();
        assert_eq!(rows_of(&text)[0][5..], ["40.0", "60.0", "1", "a", "pair"], "{text}");
        let json: Value = serde_json::from_str(&render(&run, Format::Json, Layout::Plain, None).unwrap()).unwrap();
        assert_eq!(json["cells"][0]["streams"], json!({ "to_server": 40.0, "to_client": 60.0 }));
        assert!((json["cells"][0]["rate"].as_f64().unwrap() - 100.0).abs() < 1e-9, "the sum");
        let csv = render(&run, Format::Csv, Layout::Plain, None).unwrap();
        assert!(csv.lines().nth(1).unwrap().ends_with(",40,60,,,"), "{csv}");
        assert!(html(&[run], &[]).unwrap().contains(DIRECTIONS));
    }

    #[test]
    fn beside_streams_the_figures_are_those_of_rr_and_cpu_is_that_of_both() {
        let run = of_workload("rr-1-1+4strg", |trial| {
            trial.beside = Some(BesideRecord { bytes: 50_000_000, elapsed_ns: 1_000_000_000 });
            trial.client.transactions = 2_000;
        });
        let text = render(&run, Format::Text, Layout::Plain, None).unwrap();
        assert_eq!(rows_of(&text)[0][5..], ["-", "50.0", "4"], "{text}");
        assert!(text.contains("rr-1-1+4strg, 1 pair (trans/sec, CPU in ms/MB)"), "{text}");
        let json: Value = serde_json::from_str(&render(&run, Format::Json, Layout::Plain, None).unwrap()).unwrap();
        let cell = &json["cells"][0];
        assert!((cell["rate"].as_f64().unwrap() - 2_000.0).abs() < 1e-9);
        assert_eq!(cell["streams"], json!({ "to_server": null, "to_client": 50.0 }));
        // 700 ms of CPU time for 100 MB.
        assert_eq!(cell["cpu"]["unit"], "ms/MB");
        assert!((cell["cpu"]["total"].as_f64().unwrap() - 7.0).abs() < 1e-9, "{cell:#}");
        let metrics = json["comparisons"][0]["cells"].as_array().unwrap().iter().map(|row| row["metric"].clone());
        assert!(metrics.collect::<Vec<_>>().contains(&json!("streams_rate")), "{json:#}");
    }
}
