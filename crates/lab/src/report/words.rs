//! Sentences and numbers for people.

use crate::account::Method;
use crate::stats::Estimate;
use crate::summary::{Hop, Reduced, Summary};
use crate::workload::{Shape, Unit};

/// A number with three significant digits and commas between thousands.
pub(super) fn number(value: f64) -> String {
    let magnitude = value.abs();
    let places = match magnitude {
        _ if magnitude >= 99.95 || magnitude == 0.0 => 0,
        _ if magnitude >= 9.995 => 1,
        _ if magnitude >= 0.995 => 2,
        _ => 3,
    };
    let text = format!("{value:.places$}");
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", text.as_str()),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    if fraction.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{fraction}") }
}

/// CPU time for tables: microseconds per transaction or milliseconds per megabyte, from milliseconds per unit.
pub(super) fn cpu_scale(unit: Unit) -> (f64, &'static str) {
    match unit {
        Unit::Transaction => (1_000.0, "us/trans"),
        Unit::Megabyte => (1.0, "ms/MB"),
    }
}

/// "10 pairs", "1 pair".
pub(super) fn pairs(count: u32) -> String {
    if count == 1 { "1 pair".into() } else { format!("{count} pairs") }
}

/// What each hop costs, most telling workload first; empty when nothing was measured with and without a hop.
pub(super) fn headline(reduced: &Reduced) -> String {
    let mut hops: Vec<&Hop> = reduced.hops.iter().filter(|hop| hop.cell.level == "plain").collect();
    if hops.is_empty() {
        hops = reduced.hops.iter().collect();
    }
    let rank = |hop: &&Hop| match hop.cell.workload.shape {
        Shape::Rr => 0,
        Shape::Crr => 1,
        Shape::Strg | Shape::Strp => 2,
    };
    hops.sort_by_key(|hop| (hop.cell.path.clone(), rank(hop), hop.cell.clients));
    let mut said: Vec<(String, Shape)> = Vec::new();
    let mut sentences = Vec::new();
    for hop in hops {
        let key = (hop.cell.path.clone(), hop.cell.workload.shape);
        if said.contains(&key) {
            continue;
        }
        let lead = said.iter().all(|(path, _)| *path != key.0);
        said.push(key);
        sentences.push(sentence(hop, reduced, lead));
    }
    sentences.join("\n")
}

fn sentence(hop: &Hop, reduced: &Reduced, lead: bool) -> String {
    let workload = hop.cell.workload;
    let (scale, _) = cpu_scale(workload.unit());
    let what = match workload.unit() {
        Unit::Transaction => "us of CPU a transaction",
        Unit::Megabyte => "ms of CPU a megabyte",
    };
    let node = if hop.cell.path == "bridge" { "bridge" } else { "router" };
    let start = if lead { format!("A {node} hop costs") } else { "  and".to_owned() };
    let cell = reduced.cells.iter().find(|summary| summary.cell == hop.cell);
    let seen = cell.and_then(|summary| {
        let how = match summary.cpu.method {
            Method::Profile => " by profile",
            Method::Processes => "",
            Method::Subtract | Method::Tick => return None,
        };
        Some(format!("; {} in the {node} itself{how}", number(summary.cpu.router?.total * scale)))
    });
    let rate = 100.0 * (hop.rate_ratio.value - 1.0);
    let rate = match rate {
        _ if rate <= -0.5 => format!("{:.0}% of the rate", -rate),
        _ if rate >= 0.5 => format!("no rate (it rose by {rate:.0}%)"),
        _ => "none of the rate".to_owned(),
    };
    let cpu = match hop.cpu.value * scale {
        none if none <= 0.0 => format!("no CPU time that shows{}", interval(&hop.cpu, scale, what)),
        cpu => format!("{} {what}{}", number(cpu), interval(&hop.cpu, scale, "")),
    };
    format!("{start} {cpu} and {rate} ({workload}, {}{}).", pairs(hop.cell.clients), seen.unwrap_or_default())
}

/// " (95%: 1.2 to 3.4)", with the unit behind if there is one; or that one trial gives none.
fn interval(estimate: &Estimate, scale: f64, unit: &str) -> String {
    match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => {
            let text = format!(" (95%: {} to {} {unit}", number(low * scale), number(high * scale));
            format!("{})", text.trim_end())
        }
        _ => " (one trial, no interval)".to_owned(),
    }
}

/// "3%" of spread: half the interval of the mean rate, as a part of it.
pub(super) fn spread(summary: &Summary) -> String {
    match (summary.rate_estimate.low, summary.rate_estimate.high) {
        (Some(low), Some(high)) if summary.rate_estimate.value > 0.0 => {
            format!("{:.1}%", 50.0 * (high - low) / summary.rate_estimate.value)
        }
        _ => "-".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_have_three_digits_and_commas() {
        for (value, text) in [
            (1_234_567.8, "1,234,568"),
            (100.4, "100"),
            (99.94, "99.9"),
            (9.994, "9.99"),
            (0.1234, "0.123"),
            (-1_000.0, "-1,000"),
            (0.0, "0"),
            (999_999.6, "1,000,000"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
