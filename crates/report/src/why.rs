//! Presents explanations of verdicts on CPU time: the functions that account for a difference.

use super::fit;
use super::table::grid;
use super::verdicts::pair_name;
use super::words::{counted, cpu_scale, number};
use serde_json::{Value, json};
use siga_model::text;
use siga_results::judge::why::{Cause, Cost, Quality, Why};
use siga_results::judge::{Comparison, Metric, Part, Verdict};
use siga_results::stats::Location;
use std::fmt::Write;

/// Maximum number of characters of a function's name that a sentence or a table shows. JSON has the whole name.
const NAME_SHOWN: usize = 50;
/// Maximum number of callers that a table shows.
const CALLERS_SHOWN: usize = 3;

/// The explanations of a comparison, and the verdicts that cannot be explained, each as the cell with the reason.
pub type Explained = (Vec<Why>, Vec<(siga_plan::matrix::Cell, String)>);

/// Returns the explanations as text or Markdown: a sentence and a table for each. Tables of text have lines of at most `width`
/// characters.
pub(super) fn people(comparison: &Comparison, (all, unexplained): &Explained, markdown: bool, width: usize) -> String {
    let mut out = String::new();
    if all.is_empty() && unexplained.is_empty() {
        let _ = writeln!(out, "\n{}", nothing(comparison));
    }
    for why in all {
        let title = if markdown { "### " } else { "" };
        let word = if markdown { text::markdown } else { text::name };
        let name = word(&pair_name(comparison, &why.base, &why.new));
        let _ = writeln!(out, "\n{title}Why: {name}\n{}{}", if markdown { "\n" } else { "" }, sentence(why));
        if markdown {
            out.push('\n');
        }
        out.push_str(&table(why, markdown, width, word));
        let _ = writeln!(out, "{}", quality(why));
    }
    for (cell, reason) in unexplained {
        let _ = writeln!(out, "\nWhy: {cell}: {reason}.");
    }
    out
}

/// Returns the reason why a comparison has no CPU time to explain.
fn nothing(comparison: &Comparison) -> String {
    let totals: Vec<&Verdict> =
        comparison.rows.iter().filter(|row| row.metric == Metric::TOTAL).map(|row| &row.verdict).collect();
    let open = totals.iter().filter(|verdict| ***verdict != Verdict::Equivalent).count();
    match (totals.len(), open) {
        (0, _) => "Why: no CPU time was compared, so there is no difference to explain.".to_owned(),
        (_, 0) => "Why: the CPU times of both sides are equivalent, so there is no difference to explain.".to_owned(),
        (all, open) => format!(
            "Why: in {open} of {}, the comparison cannot tell whether the CPU times differ, so there is no difference \
                to explain.",
            counted(all, "case")
        ),
    }
}

/// Returns the difference and the functions with the largest parts of it in words: "CPU time: +6.71 us/trans (95% interval +5.90 to
/// +7.30), in 12 rounds: `nft_do_chain` +4.10, 61% of the difference; …".
pub(super) fn sentence(why: &Why) -> String {
    let (scale, unit) = cpu_scale(why.new.workload.cpu_unit());
    let part = why.metric.part().map_or("", part_name);
    let of = if why.metric == Metric::TOTAL { String::new() } else { format!(" of the {part}") };
    let whole = difference(&why.whole.difference, scale);
    let head = format!("Sampled CPU time{of}: {whole} {unit}{}", range(&why.whole.difference, scale));
    if !why.whole.is_clear() {
        return format!(
            "{head}. The interval includes zero, so the difference is not certain, and siga lists no function."
        );
    }
    let cause = |cause: &Cause| {
        let value = signed(cause.cost.difference.value * scale);
        format!("{} {value}, {} of the difference", short(&cause.function), percent(cause.share))
    };
    let causes: Vec<String> = why.causes.iter().take(3).map(cause).collect();
    match causes.as_slice() {
        [] => format!("{head}. No single function accounts for a large part of the difference."),
        causes => format!("{head}. {}.", causes.join("; ")),
    }
}

fn table(why: &Why, markdown: bool, width: usize, word: fn(&str) -> String) -> String {
    let rows = rows(why, word);
    if markdown { grid(HEAD, rows, 2..7, true, 0) } else { fit::plain(HEAD, DROP, 2..7, rows, width) }
}

/// When each column is dropped on a narrow screen: the callers first.
const DROP: [u8; 8] = [0, 0, 3, 3, 0, 2, 0, 1];

/// The head of a table of functions.
pub(super) const HEAD: [&str; 8] =
    ["function", "charged to", "base", "new", "difference", "95% interval", "share", "called by"];

/// Returns the rows of a table of functions: the causes, everything else, and the sum. `word` makes a name safe to print.
pub(super) fn rows(why: &Why, word: fn(&str) -> String) -> Vec<[String; 8]> {
    let (scale, unit) = cpu_scale(why.new.workload.cpu_unit());
    let row = |name: String, part: &str, cost: &Cost, callers: String| {
        let interval = match ends(&cost.difference, scale) {
            Some((low, high)) => format!("{low} to {high}"),
            None => "-".to_owned(),
        };
        let share = percent(cost.difference.value / why.whole.difference.value);
        let difference = difference(&cost.difference, scale);
        let share = if cost.is_clear() { share } else { "-".to_owned() };
        let (base, new) = (number(cost.values.0 * scale), number(cost.values.1 * scale));
        [name, part.to_owned(), base, new, difference, interval, share, callers]
    };
    let cause = |cause: &Cause| {
        let callers = cause.callers.iter().take(CALLERS_SHOWN).map(|caller| word(caller)).collect::<Vec<_>>();
        row(word(&short(&cause.function)), part_name(cause.part), &cause.cost, callers.join(" < "))
    };
    let mut rows: Vec<[String; 8]> =
        if why.whole.is_clear() { why.causes.iter().map(cause).collect() } else { Vec::new() };
    rows.push(row("everything else".into(), "", &why.rest, String::new()));
    rows.push(row(format!("all samples ({unit})"), "", &why.whole, String::new()));
    rows
}

/// Returns the name of a function, without its middle if it is long.
fn short(name: &str) -> String {
    let characters: Vec<char> = name.chars().collect();
    if characters.len() <= NAME_SHOWN {
        return name.to_owned();
    }
    let (head, tail) = (NAME_SHOWN / 3, NAME_SHOWN - NAME_SHOWN / 3 - 1);
    let head: String = characters[..head].iter().collect();
    let tail: String = characters[characters.len() - tail..].iter().collect();
    format!("{head}…{tail}")
}

/// Returns how complete the call chains are.
pub(super) fn quality(why: &Why) -> String {
    let (base, new) = why.quality;
    let share = |pick: fn(&Quality) -> u64| {
        let of = |side: &Quality| format!("{:.1}%", 100.0 * pick(side) as f64 / side.samples.max(1) as f64);
        format!("{} and {}", of(&base), of(&new))
    };
    let trials = match why.trials {
        (base, new) if base == new => counted(base, "round"),
        (base, new) => format!("{base} and {} ", counted(new, "trial")),
    };
    format!(
        "{} and {} samples in {trials}. Samples without a call chain: {}; with a shortened chain: {}; in code without \
            a known name: {}. Each sample counts for only one function: the first function of its chain that is in \
            the table.",
        number(base.samples as f64),
        number(new.samples as f64),
        share(|side| side.lost),
        share(|side| side.shortened),
        share(|side| side.unknown),
    )
}

/// Returns the explanations for JSON.
pub(super) fn values((all, unexplained): &Explained) -> Value {
    let cost = |cost: &Cost, scale: f64| {
        json!({
            "base_value": cost.values.0 * scale,
            "new_value": cost.values.1 * scale,
            "difference": cost.difference.value * scale,
            "low": cost.difference.low.map(|low| low * scale),
            "high": cost.difference.high.map(|high| high * scale),
        })
    };
    let side = |side: &Quality| json!({"samples": side.samples, "lost": side.lost, "shortened": side.shortened, "unknown": side.unknown});
    let one = |why: &Why| {
        let scale = cpu_scale(why.new.workload.cpu_unit()).0;
        let causes = why.causes.iter().map(|cause| {
            let mut value = cost(&cause.cost, scale);
            value["function"] = json!(cause.function);
            value["callers"] = json!(cause.callers);
            value["charged_to"] = json!(part_name(cause.part));
            value["share"] = json!(cause.share);
            value
        });
        json!({
            "base_path": why.base.path,
            "base_level": why.base.level,
            "path": why.new.path,
            "workload": why.new.workload.to_string(),
            "mtu": why.new.mtu,
            "clients": why.new.clients,
            "level": why.new.level,
            "metric": why.metric.name(),
            "unit": why.metric.unit(why.new.workload),
            "base_trials": why.trials.0,
            "new_trials": why.trials.1,
            "all": cost(&why.whole, scale),
            "causes": causes.collect::<Vec<_>>(),
            "rest": cost(&why.rest, scale),
            "base_samples": side(&why.quality.0),
            "new_samples": side(&why.quality.1),
        })
    };
    let unexplained = unexplained.iter().map(|(cell, reason)| json!({"cell": cell.to_string(), "reason": reason}));
    json!({"explained": all.iter().map(one).collect::<Vec<_>>(), "unexplained": unexplained.collect::<Vec<_>>()})
}

/// Returns the difference with its sign; "cannot tell" if its interval contains 0.
fn difference(difference: &Location, scale: f64) -> String {
    let cost = Cost { values: (0.0, 0.0), difference: *difference };
    if cost.is_clear() { signed(difference.value * scale) } else { "cannot tell".to_owned() }
}

fn range(difference: &Location, scale: f64) -> String {
    ends(difference, scale).map_or_else(String::new, |(low, high)| format!(" (95% interval {low} to {high})"))
}

fn ends(difference: &Location, scale: f64) -> Option<(String, String)> {
    Some((signed(difference.low? * scale), signed(difference.high? * scale)))
}

fn signed(value: f64) -> String {
    let text = number(value);
    if value > 0.0 { format!("+{text}") } else { text }
}

fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

pub(super) fn part_name(part: Part) -> &'static str {
    match part {
        Part::Total => "all",
        Part::Client => "client",
        Part::Router => "router",
        Part::Server => "server",
        Part::Other => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unicode_width::UnicodeWidthStr;

    #[test]
    fn long_names_keep_their_beginning_and_end() {
        assert_eq!(short("nft_do_chain"), "nft_do_chain");
        assert_eq!(short(&"a".repeat(50)), "a".repeat(50));
        let long = "<fearless_simd::avx512::Avx512 as fearless_simd::Simd>::vectorize::vectorize_avx512";
        assert_eq!(short(long), "<fearless_simd::…imd>::vectorize::vectorize_avx512");
        assert_eq!(short(&"é".repeat(51)).chars().count(), 50);
    }

    #[test]
    fn the_table_of_functions_fits_80_100_and_120_columns() {
        let difference = |value: f64| Location { value, low: Some(value * 0.9), high: Some(value * 1.1) };
        let cost = |value: f64| Cost { values: (10.0, 10.0 + value), difference: difference(value) };
        let cell = siga_results::testing::trial("veth-routed", 0, 700, None).cell;
        let cause = |function: &str, share: f64| Cause {
            function: function.into(),
            callers: ["a_caller_with_a_long_name", "another_caller_with_a_long_name", "nf_hook_slow"]
                .map(String::from)
                .into(),
            part: Part::Router,
            cost: cost(0.006 * share),
            share,
        };
        let why = Why {
            base: cell.clone(),
            new: cell,
            metric: Metric::TOTAL,
            trials: (9, 9),
            whole: cost(0.006),
            causes: vec![cause("nft_do_chain", 0.7), cause(&"a_very_long_name_of_a_function".repeat(3), 0.2)],
            rest: cost(0.0006),
            quality: (Quality::default(), Quality::default()),
            stacks: Vec::new(),
        };
        for (width, heads) in [(80, 4), (100, 5), (120, 7), (200, 8)] {
            let table = table(&why, false, width, text::name);
            assert!(table.lines().all(|line| line.width() <= width), "{width}:\n{table}");
            let first = table.lines().next().unwrap();
            let shown = HEAD.iter().filter(|head| first.contains(*head)).count();
            assert!(shown >= heads, "{width}:\n{table}");
            let row = table.lines().find(|line| line.starts_with("nft_do_chain")).unwrap();
            assert!(row.contains("router") && row.contains("+4.20") && row.contains("70%"), "{width}:\n{table}");
        }
    }
}
