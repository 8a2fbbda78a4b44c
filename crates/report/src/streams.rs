//! What a stream of datagrams shows besides its rate: what was sent, lost, reordered and duplicated. As a table for people, and as
//! figures for JSON and CSV.

use super::fit;
use super::table::grid;
use super::words::number;
use serde_json::{Value, json};
use siga_results::record::Datagrams;
use siga_results::summary::{Reduced, Summary};

/// The heading of the table.
pub(super) const TITLE: &str = "Streams of datagrams";

/// The explanation of the table.
pub(super) const LEGEND: &str = "\
A rate is the payload that was delivered. Sent is what the server gave to the network in the same time. Lost, reordered and duplicated \
are fractions of the sent datagrams. Jitter is the interarrival jitter of RFC 3550. All figures are those of the median trial.";

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

/// Returns the table with heading and explanation as text or Markdown; an empty string if it has no row. Lines of text
/// have at most `width` characters.
pub(super) fn text(reduced: &Reduced, markdown: bool, width: usize) -> String {
    let rows = rows(reduced);
    if rows.is_empty() {
        return String::new();
    }
    if markdown {
        return format!("\n### {TITLE}\n\n{LEGEND}\n\n{}", grid(HEADS, rows, 1..7, true, 1));
    }
    format!("\n{TITLE}\n\n{LEGEND}\n\n{}", fit::plain(HEADS, DROP, 1..7, rows, width))
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

/// The columns of CSV for streams of datagrams.
pub(super) const COLUMNS: [&str; 6] = ["sent_rate", "loss", "reordered", "duplicated", "foreign", "jitter_us"];

/// Returns the fields of [`COLUMNS`]; they are empty without a stream of datagrams.
pub(super) fn fields(summary: &Summary) -> [String; 6] {
    let seen = summary.median.datagrams();
    let of = |pick: fn(&Datagrams) -> Option<String>| seen.as_ref().and_then(pick).unwrap_or_default();
    [
        of(|seen| Some(seen.send_rate.to_string())),
        of(|seen| Some(seen.loss().to_string())),
        of(|seen| Some(seen.reordered.to_string())),
        of(|seen| Some(seen.duplicated.to_string())),
        of(|seen| Some(seen.foreign.to_string())),
        of(|seen| seen.jitter_us.map(|jitter| jitter.to_string())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::html::html;
    use crate::{Format, Layout, Screen, render};
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
        assert!(csv.lines().next().unwrap().ends_with(&COLUMNS.join(",")), "{csv}");
        assert!(csv.lines().nth(1).unwrap().ends_with(",100,0.25,5,1000,3,12.345"), "{csv}");
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
}
