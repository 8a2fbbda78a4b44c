//! Draws the six figures of the report on levels 420 and 430 as text. The published page has only their titles, so siga draws them from
//! its tables. The HTML page of `siga report --published` draws the same figures.

use super::published::{PublishedTable, metric, shown};
use siga_model::error::{Error, Result};
use std::fmt::Write;

/// Number of clients for which figures 2 to 4 show ratios, as in the published report.
pub(crate) const CLIENTS: u32 = 10;
/// Figures 2 to 4: title, row of the tables, and whether more is better.
pub(crate) const RATIOS: [(&str, &str, bool); 3] = [
    ("Figure 2. Router Stack CPU Time Ratios - 10 clients", "tcpip2_cpu", false),
    ("Figure 3. Server Stack CPU Time Ratios - 10 clients", "tcpip3_cpu", false),
    ("Figure 4. Throughput Ratios - 10 clients", "rate", true),
];
/// Figures 5 and 6: title, and the tables whose CPU time they show.
pub(crate) const STACK_FIGURES: [(&str, &[&str]); 2] = [
    ("Figure 5. CPU msec/MB Streaming with HiperSockets", &["1", "2"]),
    ("Figure 6. CPU msec/trans CRR with HiperSockets", &["3"]),
];
/// Length of the longest bar, in characters.
const BAR: f64 = 40.0;
/// The components of a stacked bar with the characters that draw them. The rest of the total is `other`.
pub(super) const STACKS: [(&str, char); 3] = [("tcpip1", '█'), ("tcpip2", '▓'), ("tcpip3", '▒')];
pub(super) const OTHER: char = '░';

/// Figure 1: the measurement environment.
pub(super) const ENVIRONMENT: &str = "\
Figure 1. Environment

  clients (1, 5 or 10)
     │  IUCV
  TCPIP1, the clients' stack
     │  virtual CTC
  TCPIP2, the router stack
     │  HiperSockets, Guest LAN, QDIO, CLAW or virtual CTC: what the tables compare
  TCPIP3, the servers' stack
     │  IUCV
  servers (as many as clients)
";

/// Returns a figure of the published report as text.
///
/// # Errors
/// Returns an error of kind `Usage` if there is no such figure.
pub fn render(number: u8) -> Result<String> {
    let tables = shown()?;
    let at = usize::from(number);
    Ok(match number {
        1 => ENVIRONMENT.to_owned(),
        2..=4 => {
            let (title, part, more) = RATIOS[at - 2];
            ratios(&tables, title, part, reading(more))
        }
        5 | 6 => {
            let (title, ids) = STACK_FIGURES[at - 5];
            stacks(&tables, title, ids)
        }
        _ => {
            return Err(
                Error::usage(format!("the published report has no figure {number}")).hint("name a figure from 1 to 6")
            );
        }
    })
}

/// Returns how to read the bars of ratios.
pub(super) fn reading(more: bool) -> &'static str {
    if more { "longer is better" } else { "shorter is better" }
}

/// Returns the title of a table without its number.
pub(crate) fn title(table: &PublishedTable) -> &str {
    table.heading.split_once(". ").map_or(table.heading.as_str(), |(_, title)| title)
}

/// Draws a bar for the ratio of level 430 to level 420 of each table.
fn ratios(tables: &[PublishedTable], heading: &str, part: &str, reading: &str) -> String {
    let all: Vec<(&str, f64)> = tables
        .iter()
        .filter_map(|table| Some((title(table), table.figures(&metric(part, table.unit()), CLIENTS)?[2])))
        .collect();
    let most = all.iter().map(|(_, ratio)| *ratio).fold(1.0, f64::max);
    let width = all.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    let mut out = format!("{heading}\n\nLevel 430 divided by level 420; 1 means no difference; {reading}.\n\n");
    for (name, ratio) in &all {
        let _ = writeln!(out, "{name:<width$}  {ratio:>5.2}  {}", bar('█', *ratio, most));
    }
    let _ = writeln!(out, "{:<width$}  {:>5.2}  {}", "no difference", 1.0, bar('─', 1.0, most));
    out
}

/// Draws a stacked bar for the CPU time of the whole system at each level and number of clients.
fn stacks(tables: &[PublishedTable], heading: &str, ids: &[&str]) -> String {
    let mut rows: Vec<(String, f64, Vec<f64>)> = Vec::new();
    for table in ids.iter().filter_map(|id| tables.iter().find(|table| table.id == *id)) {
        for (clients, base, changed) in &table.pairs {
            for (side, level) in [base, changed].into_iter().enumerate() {
                let figure = |part: &str| {
                    let name = if part.is_empty() { "cpu".to_owned() } else { format!("{part}_cpu") };
                    table.figures(&metric(&name, table.unit()), *clients).map(|figures| figures[side])
                };
                let Some(total) = figure("") else { continue };
                let parts: Vec<f64> = STACKS.iter().filter_map(|(name, _)| figure(name)).collect();
                rows.push((format!("{}, {clients} clients, level {level}", title(table)), total, parts));
            }
        }
    }
    let most = rows.iter().map(|(_, total, _)| *total).fold(0.0, f64::max);
    let width = rows.iter().map(|(name, ..)| name.chars().count()).max().unwrap_or(0);
    let mut out = format!("{heading}\n\n");
    for (name, total, parts) in &rows {
        let other = total - parts.iter().sum::<f64>();
        let signs = STACKS.iter().map(|(_, sign)| *sign).chain([OTHER]);
        let drawn: String =
            signs.zip(parts.iter().chain([&other])).map(|(sign, part)| bar(sign, *part, most)).collect();
        let _ = writeln!(out, "{name:<width$}  {total:>6.2}  {drawn}");
    }
    let _ = writeln!(out, "\n{}", meanings());
    out
}

/// Returns the meanings of the signs in stacked bars.
pub(super) fn meanings() -> String {
    let stacks = STACKS.iter().map(|(name, sign)| format!("{sign} {}", name.to_uppercase()));
    stacks.chain([format!("{OTHER} other")]).collect::<Vec<_>>().join("  ")
}

pub(crate) fn bar(sign: char, value: f64, most: f64) -> String {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most the length of a bar")]
    let count = if most > 0.0 { (value.max(0.0) / most * BAR).min(BAR).round() as usize } else { 0 };
    std::iter::repeat_n(sign, count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_shows_the_figures_of_its_tables() {
        for number in 1..=6 {
            let text = render(number).unwrap();
            assert!(text.starts_with(&format!("Figure {number}. ")), "{text}");
            assert!(number == 1 || text.lines().filter(|line| line.contains('█')).count() >= 6, "{text}");
        }
        // The ratios and totals are those that the tables print.
        let tables = shown().unwrap();
        let first = |row: &str| tables.iter().find(|table| table.id == "1").unwrap().figures(row, CLIENTS).unwrap();
        let line = |number: u8, name: &str| {
            let text = render(number).unwrap();
            text.lines().find(|line| line.starts_with(name)).unwrap_or_else(|| panic!("{text}")).to_owned()
        };
        let name = title(tables.iter().find(|table| table.id == "1").unwrap()).to_owned();
        assert!(line(2, &name).contains(&format!("{:.2}", first("tcpip2_cpu_msec/MB")[2])));
        assert!(
            line(5, &format!("{name}, 10 clients, level 420")).contains(&format!("{:.2}", first("cpu_msec/MB")[0]))
        );
        // Each bar is as long as its figure.
        let drawn = |line: &str, sign: char| line.chars().filter(|other| *other == sign).count() as f64;
        for (number, part) in [(2, "tcpip2_cpu"), (3, "tcpip3_cpu"), (4, "rate")] {
            let ratio = |table: &PublishedTable| Some(table.figures(&metric(part, table.unit()), CLIENTS)?[2]);
            let most = tables.iter().filter_map(ratio).fold(1.0, f64::max);
            let own = tables.iter().filter_map(|table| Some((title(table), ratio(table)?)));
            assert_eq!(own.clone().count(), 18, "figure {number}");
            for (name, ratio) in own {
                let line = line(number, &format!("{name} "));
                assert!(line.contains(&format!(" {ratio:.2} ")), "figure {number}: {line}, not {ratio}");
                assert!((drawn(&line, '█') - BAR * ratio / most).abs() <= 0.51, "figure {number}: {line}");
            }
        }
        for (number, id, row) in [(5, "2", "cpu_msec/MB"), (6, "3", "cpu_msec/trans")] {
            let table = tables.iter().find(|table| table.id == id).unwrap();
            for (at, level) in ["420", "430"].into_iter().enumerate() {
                let line = line(number, &format!("{}, 5 clients, level {level}", title(table)));
                let figure = |row: &str| table.figures(row, 5).unwrap()[at];
                assert!(line.contains(&format!("{:.2}", figure(row))), "{line}");
                let shares = STACKS.map(|(name, sign)| (drawn(&line, sign), figure(&format!("{name}_{row}"))));
                let scale = shares[2].0 / shares[2].1;
                for (length, part) in shares {
                    assert!((length - part * scale).abs() <= 1.0, "{line}: {shares:?}");
                }
            }
        }
        assert_eq!(render(7).unwrap_err().exit_status(), 2);
        assert_eq!(render(0).unwrap_err().exit_status(), 2);
    }
}
