//! Prints comparisons of hosts: first what differs between them, then throughput, units per second of CPU time (ITR) and CPU time for
//! equal work, by number of CPUs. JSON is that of a comparison (schema `siga/compare/2`) with the member `hosts`; CSV has a record for
//! each cell.

use super::fit::{self, Column, Field, Line, Screen, Tone};
use super::format::{self, Format};
use super::table::grid;
use super::verdicts;
use super::words::{number, ratio_text};
use super::{readable, words};
use serde_json::{Value, json};
use siga_model::error::Result;
use siga_results::judge::hosts::{EqualWork, HostRatio, HostWork, Hosts, Property};
use siga_results::judge::{Comparison, Verdict};
use std::fmt::Write;

/// The sentence that no reader of the ratios may miss.
const NO_CAUSE: &str =
    "The ratios are those of the hosts as a whole. They do not say which of these differences is the cause";

/// The explanation of the abbreviation.
const ITR: &str =
    "ITR is the internal throughput rate: units per second of CPU time used. CPU is the CPU time for the same work";

/// Returns comparisons of hosts with the same base in the requested format. If `all` is set, text and Markdown also contain every figure
/// and every difference between the environments.
///
/// # Errors
/// Returns an error of kind `Environment` if JSON or CSV cannot be written (out of memory).
pub fn render(compared: &[Hosts], format: Format, all: bool, screen: &Screen) -> Result<String> {
    match format {
        Format::Text => {
            let texts = compared.iter().map(|hosts| {
                let own = people(hosts, false, screen.width);
                let figures = if all { verdicts::text(&hosts.comparison, true, None, screen) } else { String::new() };
                fit::finish(&own, screen) + &figures
            });
            Ok(texts.collect::<Vec<_>>().join("\n"))
        }
        Format::Md => {
            let texts = compared.iter().map(|hosts| {
                let figures =
                    if all { verdicts::render(&hosts.comparison, format, true, None)? } else { String::new() };
                Ok(people(hosts, true, usize::MAX) + &figures)
            });
            Ok(texts.collect::<Result<Vec<_>>>()?.join("\n"))
        }
        Format::Json => verdicts::json(compared.iter().map(value).collect()),
        Format::Csv => {
            let work = compared.iter().flat_map(|hosts| hosts.work.iter().map(move |one| entry(hosts, one)));
            format::csv(MEMBERS, work)
        }
    }
}

fn people(hosts: &Hosts, markdown: bool, width: usize) -> String {
    let word = readable::word(markdown);
    let comparison = readable::comparison(&hosts.comparison, markdown);
    let (base, new) = (&comparison.base, &comparison.new);
    let mut out = String::new();
    if let Some(reason) = comparison.no_verdict() {
        let _ = writeln!(out, "No verdict: {reason}.");
    }
    let head = if markdown { "## " } else { "" };
    let _ = writeln!(out, "{head}{new} against {base}: two hosts\n");
    out += &properties(&hosts.properties, (base, new), (word, markdown), width);
    let others = others(&comparison);
    if !others.is_empty() {
        let _ = writeln!(out, "\nOther differences: {}.", others.join(", "));
    }
    let _ = writeln!(out, "{NO_CAUSE}.");
    // The moments of two runs always differ.
    for difference in comparison.environment.iter().filter(|one| !one.key.starts_with("moment.")) {
        let affects = if difference.matters { "Not comparable" } else { "Differs" };
        let _ = writeln!(out, "{affects}: {difference}.");
    }
    for caution in &comparison.cautions {
        let _ = writeln!(out, "Caution: {caution}.");
    }
    out.push('\n');
    out += &work(hosts, &comparison, markdown, width);
    for equal in &hosts.equal_work {
        let _ = writeln!(out, "{}", equal_words(equal, &comparison));
    }
    let reasons = hosts.work.iter().find_map(|work| match &work.throughput.verdict {
        Verdict::NotComparable { reason } => Some(reason),
        Verdict::Better | Verdict::Worse | Verdict::Equivalent | Verdict::Inconclusive { .. } => None,
    });
    if let Some(reason) = reasons {
        let _ = writeln!(out, "Not comparable: {}.", word(reason));
    }
    for (cell, reason) in &comparison.skipped {
        let _ = writeln!(out, "Skipped: {cell}: {reason}");
    }
    let _ = writeln!(out, "{ITR}.");
    out
}

/// Returns the table of the properties. Those that both hosts share come last, in one line.
fn properties(
    all: &[Property],
    (base, new): (&str, &str),
    (word, markdown): (fn(&str) -> String, bool),
    width: usize,
) -> String {
    let (same, differing): (Vec<&Property>, Vec<&Property>) = all.iter().partition(|one| one.base == one.new);
    let row = |one: &Property| [one.name.to_owned(), word(&one.base), word(&one.new)];
    let rows: Vec<[String; 3]> = differing.into_iter().map(row).collect();
    let mut out = if rows.is_empty() {
        "The hosts have the same hardware, kernel and firmware, as far as siga knows.\n".to_owned()
    } else if markdown {
        grid(["", base, new], rows, 0..0, true, 1)
    } else {
        let columns = ["", base, new].map(|head| Column { head, right: false, drop: 0, shorten: 0 });
        let lines: Vec<Line> = rows.into_iter().map(|row| Line::Row(row.map(Field::from).into())).collect();
        fit::table(&columns, &lines, width)
    };
    let same: Vec<String> = same.iter().map(|one| format!("{} {}", one.name, word(&one.base))).collect();
    if !same.is_empty() {
        let _ = writeln!(out, "\nThe same on both: {}.", same.join("; "));
    }
    out
}

/// Returns the names of the differences that the table of properties does not show.
fn others(comparison: &Comparison) -> Vec<String> {
    const SHOWN: [&str; 16] = [
        "cpu.machine",
        "cpu.model",
        "cpu.vendor",
        "cpu.online",
        "cpu.allowed",
        "cpu.caches",
        "memory.total_bytes",
        "cpu.hypervisor",
        "cpu.firmware",
        "cpu.microcode",
        "cpu.governor",
        "kernel.release",
        "kernel.version",
        "kernel.boot_others",
        "host.distribution",
        "program.architecture",
    ];
    let is_other = |key: &&str| !SHOWN.contains(key) && !key.starts_with("kernel.boot.") && *key != "host.boot_id";
    comparison.varied.iter().map(|one| one.key.as_str()).filter(is_other).map(str::to_owned).collect()
}

const COLUMNS: [Column<'static>; 9] = [
    Column { head: "CPUs", right: false, drop: 0, shorten: 0 },
    number_column("rate", 2),
    number_column("rate", 0),
    text_column("ratio (95% interval)", 0),
    number_column("ITR", 4),
    number_column("ITR", 3),
    text_column("ITR ratio", 0),
    text_column("CPU", 1),
    text_column("verdict (rate)", 0),
];

const fn number_column(head: &str, drop: u8) -> Column<'_> {
    Column { head, right: true, drop, shorten: 0 }
}

const fn text_column(head: &str, drop: u8) -> Column<'_> {
    Column { head, right: false, drop, shorten: 5 }
}

/// Returns the table of what the hosts did: for each cell its numbers of CPUs, rates, ITR and the ratios.
fn work(hosts: &Hosts, comparison: &Comparison, markdown: bool, width: usize) -> String {
    let word = readable::word(markdown);
    let mut lines = Vec::new();
    let mut out = String::new();
    for one in &hosts.work {
        let title =
            format!("{} ({})", word(&verdicts::pair_name(comparison, &one.base, &one.new)), word(&one.rate_unit));
        let row = fields(one, comparison.emulated);
        if markdown {
            let texts = row.iter().map(|field| field.as_str().to_owned()).collect::<Vec<_>>();
            let table = grid(COLUMNS.map(|column| column.head), [texts], 1..3, true, 1);
            let _ = writeln!(out, "### {title}\n\n{table}");
        } else {
            lines.push(Line::Heading(title));
            lines.push(Line::Row(row.into()));
        }
    }
    out + &if lines.is_empty() { String::new() } else { fit::table(&COLUMNS, &lines, width) }
}

fn fields(one: &HostWork, emulated: bool) -> [Field; 9] {
    let count = |cpus: Option<u32>| cpus.map_or_else(|| "?".to_owned(), |cpus| cpus.to_string());
    let cpus = match one.cpus {
        (base, new) if base == new => count(base),
        (base, new) => format!("{} -> {}", count(base), count(new)),
    };
    let ratio = |ratio: Option<&HostRatio>| match ratio.filter(|_| !emulated) {
        None => Field::from("-"),
        Some(HostRatio { value, ends: Some((low, high)), .. }) => {
            Field::from(format!("{} ({}-{})", ratio_text(*value), ratio_text(*low), ratio_text(*high)))
                .or(ratio_text(*value))
        }
        Some(ratio) => Field::from(ratio_text(ratio.value)),
    };
    let (itr, itr_ratio) = one.itr.as_ref().map(|(values, ratio)| (*values, ratio)).unzip();
    let value = |value: Option<f64>| value.map_or_else(|| Field::from("-"), |value| number(value).into());
    let verdict = &one.throughput.verdict;
    [
        format!("  {cpus}").into(),
        number(one.rates.0).into(),
        number(one.rates.1).into(),
        ratio(Some(&one.throughput)),
        value(itr.map(|(base, _)| base)),
        value(itr.map(|(_, new)| new)),
        ratio(itr_ratio),
        ratio(one.cpu.as_ref()),
        Field::from(verdict.name()).toned(Tone::of(verdict)),
    ]
}

/// Returns a sentence on numbers of CPUs that do the same work.
fn equal_words(equal: &EqualWork, comparison: &Comparison) -> String {
    let cpus = |count: u32| words::counted(count as usize, "CPU");
    let (base, new) = (&comparison.base, &comparison.new);
    let does = |count: u32| if count == 1 { "does" } else { "do" };
    let work = &equal.cell.workload;
    let times = ratio_text(equal.ratio);
    match equal.new_cpus {
        Some(count) => format!(
            "{work}: {} of {new} {} the work of {} of {base} ({times} times its rate).",
            cpus(count),
            does(count),
            cpus(equal.base_cpus)
        ),
        None => format!(
            "{work}: no measured number of CPUs of {new} does the work of {} of {base} (at most {times} times its rate).",
            cpus(equal.base_cpus)
        ),
    }
}

/// Returns the comparison as a JSON object.
fn value(hosts: &Hosts) -> Value {
    let mut all = verdicts::value(&hosts.comparison);
    let property = |one: &Property| json!({"name": one.name, "base": one.base, "new": one.new});
    let equal = |one: &EqualWork| {
        json!({
            "workload": one.cell.workload.to_string(),
            "clients": one.cell.clients,
            "base_cpus": one.base_cpus,
            "new_cpus": one.new_cpus,
            "ratio": one.ratio,
        })
    };
    all["hosts"] = json!({
        "properties": hosts.properties.iter().map(property).collect::<Vec<_>>(),
        "work": hosts.work.iter().map(|one| entry(hosts, one)).collect::<Vec<_>>(),
        "equal_work": hosts.equal_work.iter().map(equal).collect::<Vec<_>>(),
    });
    all
}

/// Returns a cell as a JSON object.
fn entry(hosts: &Hosts, one: &HostWork) -> Value {
    // Other programs would read a ratio without its verdict.
    let shown = |ratio: Option<&HostRatio>| ratio.filter(|_| !hosts.comparison.emulated).cloned();
    let value = |ratio: &Option<HostRatio>| json!(ratio.as_ref().map(|ratio| ratio.value));
    let end = |ratio: &Option<HostRatio>, high: bool| {
        json!(ratio.as_ref().and_then(|ratio| ratio.ends).map(|(least, most)| if high { most } else { least }))
    };
    let itr = one.itr.as_ref().map(|(values, _)| *values);
    let (rate, own_itr) = (shown(Some(&one.throughput)), shown(one.itr.as_ref().map(|(_, ratio)| ratio)));
    let cpu = shown(one.cpu.as_ref());
    json!({
        "base": hosts.comparison.base,
        "new": hosts.comparison.new,
        "path": one.new.path,
        "workload": one.new.workload.to_string(),
        "mtu": one.new.mtu,
        "clients": one.new.clients,
        "level": one.new.level,
        "base_cpus": one.cpus.0,
        "new_cpus": one.cpus.1,
        "unit": one.rate_unit,
        "base_rate": one.rates.0,
        "new_rate": one.rates.1,
        "rate_ratio": value(&rate),
        "rate_low": end(&rate, false),
        "rate_high": end(&rate, true),
        "verdict": one.throughput.verdict.name(),
        "base_itr": itr.map(|(base, _)| base),
        "new_itr": itr.map(|(_, new)| new),
        "itr_ratio": value(&own_itr),
        "itr_low": end(&own_itr, false),
        "itr_high": end(&own_itr, true),
        "cpu_ratio": value(&cpu),
        "cpu_low": end(&cpu, false),
        "cpu_high": end(&cpu, true),
    })
}

/// The members of a cell's object, in the order of the CSV columns.
const MEMBERS: [&str; 24] = [
    "base",
    "new",
    "path",
    "workload",
    "mtu",
    "clients",
    "level",
    "base_cpus",
    "new_cpus",
    "unit",
    "base_rate",
    "new_rate",
    "rate_ratio",
    "rate_low",
    "rate_high",
    "verdict",
    "base_itr",
    "new_itr",
    "itr_ratio",
    "itr_low",
    "itr_high",
    "cpu_ratio",
    "cpu_low",
    "cpu_high",
];
