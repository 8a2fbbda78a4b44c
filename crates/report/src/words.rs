//! Formats numbers and composes sentences for reports that people read.

use siga_plan::accounting::AccountingMethod;
use siga_plan::matrix::Cell;
use siga_plan::workload::{Shape, Unit};
use siga_results::stats::Estimate;
use siga_results::store::Run;
use siga_results::summary::{Beside, Reduced, RouterOverhead, Summary};

/// Formats a number with three significant digits; numbers from 100 on become integers. Commas separate groups of three digits.
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
    match digits.split_once('.') {
        Some((whole, fraction)) => format!("{sign}{}.{fraction}", thousands(whole)),
        None => format!("{sign}{}", thousands(digits)),
    }
}

/// Inserts commas between groups of three digits.
pub(super) fn thousands(digits: &str) -> String {
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the factor by which tables multiply CPU milliseconds per unit, and the name of the product's unit: microseconds per
/// transaction or milliseconds per megabyte.
pub(super) fn cpu_scale(unit: Unit) -> (f64, &'static str) {
    match unit {
        Unit::Transaction => (1_000.0, "us/trans"),
        Unit::Megabyte => (1.0, "ms/MB"),
    }
}

/// Returns a number of client-server pairs in words: "10 pairs", "1 pair".
pub(super) fn pairs(count: u32) -> String {
    counted(count as usize, "pair")
}

/// Returns a count with its noun: "2 trials", "1 trial".
pub(super) fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

/// Groups items that have the same key. Each group has its key; the groups are in the order of their first items.
pub(super) fn grouped<T, K: PartialEq>(items: impl IntoIterator<Item = T>, key: impl Fn(&T) -> K) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for item in items {
        let own = key(&item);
        match groups.iter_mut().find(|(other, _)| *other == own) {
            Some((_, group)) => group.push(item),
            None => groups.push((own, vec![item])),
        }
    }
    groups
}

/// Returns a line for each kind of flaw in a cell's trials, for each skipped cell and for each damage in the run's files. Each
/// line comes with its kind: `Caution`, `Skipped` or `Damaged`.
pub(super) fn cautions(run: &Run, reduced: &Reduced) -> Vec<(&'static str, String)> {
    let flags = reduced.cells.iter().flat_map(|summary| summary.flags.iter().map(move |flag| (&summary.cell, flag)));
    let flags = flags.map(|(cell, (flag, count))| format!("{cell}: {flag} (in {})", counted(*count, "trial")));
    let skipped = reduced.skipped.iter().map(|one| format!("{}: {}", one.cell, one.reason.replace("\n  ", "; ")));
    let (flags, skipped) = (flags.map(|words| ("Caution", words)), skipped.map(|words| ("Skipped", words)));
    flags.chain(skipped).chain(run.damage.iter().map(|damage| ("Damaged", damage.clone()))).collect()
}

/// Returns sentences that compare siga's own networks with the kernel's, then sentences on the overhead of routers. Returns an
/// empty string if there is nothing to compare.
pub(super) fn headline(reduced: &Reduced) -> String {
    let parts = [beside(&reduced.beside), overheads(reduced)];
    parts.iter().filter(|part| !part.is_empty()).map(String::as_str).collect::<Vec<_>>().join("\n")
}

/// Returns a sentence for each path over siga's own network, MTU and level. After the sentence comes a line for each workload and
/// number of client-server pairs.
fn beside(all: &[Beside]) -> String {
    let groups = grouped(all, |one| (one.cell.path.clone(), one.cell.mtu, one.cell.level.clone()));
    groups.iter().map(|(_, group)| beside_of(group)).collect::<Vec<_>>().join("\n")
}

/// Returns the number of estimates whose interval lies entirely above 1, and the number of estimates whose interval lies entirely
/// below 1.
fn clear(estimates: &[&Estimate]) -> (usize, usize) {
    let above = estimates.iter().filter(|estimate| estimate.low.is_some_and(|low| low > 1.0)).count();
    let below = estimates.iter().filter(|estimate| estimate.high.is_some_and(|high| high < 1.0)).count();
    (above, below)
}

fn beside_of(group: &[&Beside]) -> String {
    let first = group[0];
    let routed = first.kernel.path == "veth-routed";
    let way = if routed { "Through a router" } else { "Without a router" };
    let rates: Vec<&Estimate> = group.iter().map(|one| &one.rate).collect();
    let cpus: Vec<&Estimate> = group.iter().map(|one| &one.cpu).collect();
    let ((faster, slower), (dearer, cheaper)) = (clear(&rates), clear(&cpus));
    let mut text = if rates.iter().all(|rate| rate.low.is_none()) {
        format!("{way}, siga's own network beside the kernel's, by one trial each:")
    } else {
        format!(
            "{way}, siga's own network is faster than the kernel's in {faster} of {} cases and slower in {slower}; \
             it takes less CPU time per unit in {cheaper} and more in {dearer}:",
            group.len()
        )
    };
    let side = |cell: &Cell| match cell.mtu {
        Some(mtu) => format!("{} with MTU {}", cell.path, number(mtu.into())),
        None => cell.path.clone(),
    };
    // If there is no interval, the line does not mention it, because the first line already says that there is one trial.
    let if_known = |of: &Estimate| of.low.map(|_| interval(of, 1.0, "")).unwrap_or_default();
    let level = if first.cell.level == "plain" { String::new() } else { format!(", level {}", first.cell.level) };
    for one in group {
        let what = match one.cell.workload.unit() {
            Unit::Transaction => "transaction",
            Unit::Megabyte => "megabyte",
        };
        text += &format!(
            "\n  {}, {}: {}x the rate{}, {}x the CPU time a {what}{}",
            one.cell.workload,
            pairs(one.cell.clients),
            number(one.rate.value),
            if_known(&one.rate),
            number(one.cpu.value),
            if_known(&one.cpu)
        );
    }
    let colocated = 100.0 * group.iter().map(|one| one.colocated).fold(0.0, f64::max);
    let note = if colocated < 1.0 {
        String::new()
    } else {
        format!("\n  (siga's ends co-located for up to {colocated:.0}% of the time)")
    };
    format!(
        "{text}\n  ({} against {}{level}; waiting policy of both: `{}`){note}",
        side(&first.cell),
        side(&first.kernel),
        first.wait
    )
}

/// Returns a sentence on router overhead for each path and kind of exchange (RR, CRR or stream; RR first). Each sentence is about
/// the cell with the fewest client-server pairs. If the level `plain` was measured, other levels are ignored.
fn overheads(reduced: &Reduced) -> String {
    let mut overheads: Vec<&RouterOverhead> =
        reduced.overheads.iter().filter(|overhead| overhead.cell.level == "plain").collect();
    if overheads.is_empty() {
        overheads = reduced.overheads.iter().collect();
    }
    let rank = |overhead: &&RouterOverhead| match overhead.cell.workload.shape {
        Shape::Rr => 0,
        Shape::Crr => 1,
        Shape::Strg | Shape::Strp => 2,
    };
    overheads.sort_by_key(|overhead| (overhead.cell.path.clone(), rank(overhead), overhead.cell.clients));
    let mut said: Vec<(String, Shape)> = Vec::new();
    let mut sentences = Vec::new();
    for overhead in overheads {
        let key = (overhead.cell.path.clone(), overhead.cell.workload.shape);
        if said.contains(&key) {
            continue;
        }
        let lead = said.iter().all(|(path, _)| *path != key.0);
        said.push(key);
        sentences.push(sentence(overhead, reduced, lead));
    }
    sentences.join("\n")
}

fn sentence(overhead: &RouterOverhead, reduced: &Reduced, lead: bool) -> String {
    let workload = overhead.cell.workload;
    let (scale, _) = cpu_scale(workload.unit());
    let what = match workload.unit() {
        Unit::Transaction => "us of CPU a transaction",
        Unit::Megabyte => "ms of CPU a megabyte",
    };
    let node = if overhead.cell.path == "bridge" { "bridge" } else { "router" };
    let start = if lead { format!("A {node} costs") } else { "  and".to_owned() };
    let cell = reduced.cells.iter().find(|summary| summary.cell == overhead.cell);
    let seen = cell.and_then(|summary| {
        let how = match summary.cpu.method {
            AccountingMethod::Profile => " by profile",
            AccountingMethod::Processes => "",
            AccountingMethod::Subtract | AccountingMethod::Tick => return None,
        };
        Some(format!("; {} in the {node} itself{how}", number(summary.cpu.router?.total * scale)))
    });
    let rate = 100.0 * (overhead.rate_ratio.value - 1.0);
    let rate = match rate {
        _ if rate <= -0.5 => format!("{:.0}% of the rate", -rate),
        _ if rate >= 0.5 => format!("no rate (it rose by {rate:.0}%)"),
        _ => "none of the rate".to_owned(),
    };
    let cpu = match overhead.cpu.value * scale {
        none if none <= 0.0 => format!("no CPU time that shows{}", interval(&overhead.cpu, scale, what)),
        cpu => format!("{} {what}{}", number(cpu), interval(&overhead.cpu, scale, "")),
    };
    format!("{start} {cpu} and {rate} ({workload}, {}{}).", pairs(overhead.cell.clients), seen.unwrap_or_default())
}

/// Returns the interval of an estimate, multiplied by `scale`, with its unit: " (95%: 1.2 to 3.4 us)". If there is only one
/// trial, returns a note that there is no interval.
fn interval(estimate: &Estimate, scale: f64, unit: &str) -> String {
    match (estimate.low, estimate.high) {
        (Some(low), Some(high)) => {
            let text = format!(" (95%: {} to {} {unit}", number(low * scale), number(high * scale));
            format!("{})", text.trim_end())
        }
        _ => " (one trial, no interval)".to_owned(),
    }
}

/// Returns half the width of the mean rate's 95% interval as a percentage of the mean rate, such as "3.0%"; "-" if there is no
/// interval.
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
    use super::{beside, number};
    use siga_results::stats::Estimate;
    use siga_results::summary::Beside;

    #[test]
    fn a_sentence_counts_the_cases_where_siga_is_faster_than_the_kernel() {
        let one = |clients: u32, rate: Estimate, cpu: Estimate| {
            let mut cell = siga_results::testing::trial("hipersockets-routed", 0, 1, None).cell;
            (cell.clients, cell.mtu) = (clients, Some(57_344));
            let kernel = siga_results::testing::trial("veth-routed", 0, 1, None).cell;
            let colocated = if clients == 1 { 0.87 } else { 0.0 };
            Beside { cell, kernel, rate, cpu, wait: "block".into(), colocated }
        };
        let of = |value: f64, low: f64, high: f64| Estimate { value, low: Some(low), high: Some(high), count: 6 };
        let all = [one(1, of(2.0, 1.5, 2.5), of(0.5, 0.4, 0.6)), one(10, of(0.9, 0.8, 0.95), of(1.1, 0.9, 1.3))];
        let text = beside(&all);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5, "{text}");
        assert!(
            lines[0].starts_with("Through a router, siga's own network is faster than the kernel's in 1 of 2 cases")
        );
        assert!(lines[0].ends_with("slower in 1; it takes less CPU time per unit in 1 and more in 0:"), "{text}");
        assert!(lines[2].contains("10 pairs: 0.900x the rate (95%: 0.800 to 0.950), 1.10x the CPU time"), "{text}");
        assert!(
            lines[3].contains("57,344 against veth-routed with MTU 1,500; waiting policy of both: `block`)"),
            "{text}"
        );
        assert_eq!(lines[4], "  (siga's ends co-located for up to 87% of the time)");

        let alone = |value| Estimate { value, low: None, high: None, count: 1 };
        let text = beside(&[one(1, alone(2.0), alone(0.5))]);
        assert!(
            text.starts_with("Through a router, siga's own network beside the kernel's, by one trial each:"),
            "{text}"
        );
        assert!(text.contains("1 pair: 2.00x the rate, 0.500x the CPU time a transaction\n"), "{text}");
        assert_eq!(beside(&[]), "");
    }

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
