//! The first line of a report: the answer to the question of its plan.
//!
//! The question follows from what varies in the run: levels, MTUs, or paths. Each claim is that of verdicts: a figure counts as larger or
//! smaller only where its verdict says so.

use super::commands;
use super::fastest;
use super::words::{capital, number, words_of_router};
use siga_model::error::Result;
use siga_plan::level::Variant;
use siga_plan::route::HOST;
use siga_plan::workload::Shape;
use siga_results::judge::{Answers, Comparison, Judged, Metric, Mode, Part, Row, Subject, Verdict};
use siga_results::store::Run;
use siga_results::summary::kernel_path_of;
use std::collections::BTreeSet;

/// Returns whether an answer has the overhead of routers, so that a report need not repeat it.
pub(super) fn has_overheads(answer: &str) -> bool {
    ["A router ", "A bridge "].iter().any(|begin| answer.starts_with(begin))
}

/// Whether an answer says how many figures have each verdict, and how many rounds count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Counts {
    Said,
    LeftOut,
}

/// Returns the answer in one line, with the number of figures with each verdict; an empty string if the run has nothing to compare,
/// or no verdict.
///
/// # Errors
/// Returns an error of kind `Environment` if the run's record is damaged.
pub(super) fn of(run: &Run, judged: &Judged) -> Result<String> {
    written(run, judged, Counts::Said)
}

/// Returns the answer as a heading. It has no numbers of figures and rounds, except where they are the whole answer.
///
/// # Errors
/// Returns an error of kind `Environment` if the run's record is damaged.
pub(super) fn heading(run: &Run, judged: &Judged) -> Result<String> {
    written(run, judged, Counts::LeftOut)
}

fn written(run: &Run, judged: &Judged, said: Counts) -> Result<String> {
    let reduced = &judged.agreed;
    if run.environment.is_emulated() || run.plan.smoke || reduced.disturbance.forbids_verdict() {
        return Ok(String::new());
    }
    let of = |subject: Subject| -> Vec<&Comparison> {
        judged.comparisons.iter().filter(|one| one.subject == subject && !one.rows.is_empty()).collect()
    };
    let answers = Answers::of(run, reduced, &judged.comparisons);
    let (levels, mtus) = (of(Subject::Levels), of(Subject::Mtus));
    let paths: BTreeSet<&str> = reduced.cells.iter().map(|summary| summary.cell.path.as_str()).collect();
    let (disturbed, rounds) = (reduced.disturbance.disturbed(), reduced.disturbance.rounds());
    let text = if !levels.is_empty() {
        self::levels(run, &levels, said)
    } else if !mtus.is_empty() {
        self::mtus(&mtus)
    } else if paths.iter().all(|path| *path == HOST) {
        commands::alone(reduced)
    } else if paths.len() == 2 && !answers.beside.is_empty() {
        beside(&answers, said)
    } else if paths.iter().any(|path| kernel_path_of(path).is_some()) || (paths.len() > 3) {
        fastest::connectivity(run, judged)?
    } else {
        words_of_router(reduced, &answers)
    };
    let counted = if said == Counts::Said && disturbed > 0 && disturbed < rounds {
        format!(" (from {} of {rounds} rounds)", rounds - disturbed)
    } else {
        String::new()
    };
    Ok(match text.strip_suffix('.') {
        Some(text) => format!("{text}{counted}."),
        None => text,
    })
}

/// The kinds of work, with their names in sentences.
pub(super) const KINDS: [(&[Shape], &str); 3] = [
    (&[Shape::Rr], "request-response"),
    (&[Shape::Crr], "connect-request-response"),
    (&[Shape::Strg, Shape::Strp, Shape::Strb], "streams"),
];

pub(super) fn rows<'a>(comparison: &'a Comparison, metric: Metric, shapes: &[Shape]) -> Vec<&'a Row> {
    let is_it =
        |row: &&Row| row.metric == metric && row.new.workload.shape().is_some_and(|shape| shapes.contains(&shape));
    comparison.rows.iter().filter(is_it).collect()
}

const ALL: &[Shape] = &[Shape::Rr, Shape::Crr, Shape::Strg, Shape::Strp, Shape::Strb];

pub(super) fn all(rows: &[&Row], verdict: &Verdict) -> bool {
    !rows.is_empty() && rows.iter().all(|row| row.verdict == *verdict)
}

/// Returns the range of the ratios of rows: "2.1", "1.4 to 3.7".
pub(super) fn span(rows: &[&Row]) -> String {
    range(rows.iter().map(|row| row.ratio), short)
}

fn range(values: impl Iterator<Item = f64>, words: fn(f64) -> String) -> String {
    let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), value| (low.min(value), high.max(value)));
    let (low, high) = (words(low), words(high));
    if low == high { low } else { format!("{low} to {high}") }
}

/// Returns a ratio with two digits; with three where two would say that there is no effect.
fn short(ratio: f64) -> String {
    match ratio {
        ratio if (0.95..1.05).contains(&ratio) => format!("{ratio:.2}"),
        ratio if ratio >= 10.0 => format!("{ratio:.0}"),
        ratio if ratio >= 1.0 => format!("{ratio:.1}"),
        ratio if ratio >= 0.1 => format!("{ratio:.2}").trim_end_matches('0').to_owned(),
        ratio => number(ratio),
    }
}

fn percent(ratio: f64) -> String {
    let percent = 100.0 * (ratio - 1.0).abs();
    if percent < 10.0 { format!("{percent:.1}%") } else { format!("{percent:.0}%") }
}

/// Returns the range of the changes of rows: "8.8%", "8.8% to 27%".
fn percents(rows: &[&Row]) -> String {
    let mut ratios: Vec<f64> = rows.iter().map(|row| row.ratio).collect();
    ratios.sort_by(|one, other| (one - 1.0).abs().total_cmp(&(other - 1.0).abs()));
    let (low, high) = (percent(ratios[0]), percent(ratios[ratios.len() - 1]));
    if low == high { low } else { format!("{low} to {high}") }
}

/// Returns how many cells have each verdict: "rate better in 4 of 6 cells, worse in 2; CPU time better in 6 of 6".
fn counts(rate: &[&Row], cpu: &[&Row]) -> String {
    let of = |rows: &[&Row], noun: &str, cells: &str| {
        let of = |name: &str| rows.iter().filter(|row| row.verdict.name() == name).count();
        let more = ["worse", "equivalent", "inconclusive", "not comparable"].map(|name| (of(name), name));
        let more = more.iter().filter(|(count, _)| *count > 0).map(|(count, word)| format!(", {word} in {count}"));
        format!("{noun} better in {} of {}{cells}{}", of("better"), rows.len(), more.collect::<String>())
    };
    match (rate, cpu) {
        (rate, []) => of(rate, "rate", " cells"),
        ([], cpu) => of(cpu, "CPU time", " cells"),
        (rate, cpu) => format!("{}; {}", of(rate, "rate", " cells"), of(cpu, "CPU time", "")),
    }
}

/// Returns a claim as a sentence, with its counts if they are said.
fn sentence(claim: &str, counts: &str, said: Counts) -> String {
    match said {
        Counts::Said => format!("{claim}: {counts}."),
        Counts::LeftOut => format!("{claim}."),
    }
}

/// Returns whether each of the rows became better or worse.
fn is_clear(rows: &[&Row]) -> bool {
    !rows.is_empty() && rows.iter().all(|row| matches!(row.verdict, Verdict::Better | Verdict::Worse))
}

/// Returns what a comparison shows in rate and CPU time: "carries 1.4 to 3.7 times OTHER for 0.2 to 0.4 of the CPU time per unit"; `None`
/// if a rate became neither better nor worse.
fn carries(rate: &[&Row], cpu: &[&Row], verb: &str, other: &str) -> Option<String> {
    let times = if all(rate, &Verdict::Worse) { "of" } else { "times" };
    is_clear(rate).then(|| format!("{verb} {} {times} {other}{}", span(rate), cost(cpu)))
}

/// Returns what a comparison shows in CPU time, as the end of a clause: " for 0.2 to 0.4 of the CPU time per unit"; an empty string if a
/// figure became neither better nor worse.
fn cost(cpu: &[&Row]) -> String {
    let of = if all(cpu, &Verdict::Better) { "of" } else { "times" };
    if is_clear(cpu) { format!(" for {} {of} the CPU time per unit", span(cpu)) } else { String::new() }
}

/// Returns the geometric means of a comparison in words; `None` if the interval of one of them contains 1.
fn typical(one: &Comparison, said: Counts) -> Option<String> {
    let of = |metric: Metric| one.means.iter().find(|mean| mean.metric == metric).filter(|mean| mean.is_clear());
    let (rate, cpu) = (of(Metric::Rate)?, of(Metric::TOTAL)?);
    let (times, less) = (short(rate.value), short(cpu.value));
    let of = if cpu.value < 1.0 { "of" } else { "times" };
    let cells = if said == Counts::Said { format!(" of {} cells", rate.cells) } else { String::new() };
    Some(format!(
        "has {times} times the rate of level {} for {less} {of} the CPU time per unit in the geometric mean{cells}",
        one.base
    ))
}

fn beside(answers: &Answers, said: Counts) -> String {
    let (rate, cpu): (Vec<&Row>, Vec<&Row>) = answers.beside.iter().map(|one| (&one.rate, &one.cpu)).unzip();
    let counts = counts(&rate, &cpu);
    match by_kind(&rate, &cpu).or_else(|| carries(&rate, &cpu, "carries", "the kernel's traffic")) {
        Some(words) => sentence(&format!("siga {words}"), &counts, said),
        None => format!("siga's network compared with the kernel's: {counts}."),
    }
}

/// Returns which kinds of work are faster and which are slower: "carries 1.4 to 6.5 times the kernel's traffic with requests and 0.4 times
/// with streams, for 0.2 to 1.1 times the CPU time per unit"; `None` unless there are both, and every kind is one of them.
fn by_kind(rate: &[&Row], cpu: &[&Row]) -> Option<String> {
    let (mut faster, mut slower) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for (shapes, kind) in KINDS {
        let own =
            rate.iter().copied().filter(|row| row.new.workload.shape().is_some_and(|shape| shapes.contains(&shape)));
        let own: Vec<&Row> = own.collect();
        let (kinds, rows) = match own.first() {
            None => continue,
            Some(first) if !all(&own, &first.verdict) => return None,
            Some(first) if first.verdict == Verdict::Better => &mut faster,
            Some(first) if first.verdict == Verdict::Worse => &mut slower,
            Some(_) => return None,
        };
        kinds.push(kind);
        rows.extend(own);
    }
    let both = !faster.0.is_empty() && !slower.0.is_empty();
    both.then(|| {
        let (more, less) = (span(&faster.1), span(&slower.1));
        let cost = Some(cost(cpu)).filter(|cost| !cost.is_empty()).map(|cost| format!(",{cost}")).unwrap_or_default();
        format!(
            "carries {more} times the kernel's traffic with {} and {less} times with {}{cost}",
            together(&faster.0),
            together(&slower.0)
        )
    })
}

/// Returns kinds of work in words. Request-response with and without a connection for each request is "requests".
fn together(kinds: &[&str]) -> String {
    match kinds {
        [one, other, rest @ ..] if [*one, *other] == [KINDS[0].1, KINDS[1].1] => {
            std::iter::once("requests").chain(rest.iter().copied()).collect::<Vec<_>>().join(" and ")
        }
        kinds => kinds.join(" and "),
    }
}

fn mtus(comparisons: &[&Comparison]) -> String {
    let sizes: BTreeSet<u32> =
        comparisons.iter().flat_map(|one| [&one.base, &one.new]).filter_map(|name| name.parse().ok()).collect();
    let (Some(least), Some(most)) = (sizes.first(), sizes.last()) else { return String::new() };
    let find = |base: &u32| {
        let is_it = |one: &&&Comparison| one.base == base.to_string() && one.new == most.to_string();
        comparisons.iter().find(is_it).copied()
    };
    let size = |mtu: &u32| number((*mtu).into());
    let mut gains = Vec::new();
    let mut others = Vec::new();
    for (shapes, kind) in KINDS {
        let Some(whole) = find(least) else { continue };
        let (rate, cpu) = (rows(whole, Metric::Rate, shapes), rows(whole, Metric::TOTAL, shapes));
        if rate.is_empty() {
            continue;
        }
        // The smallest MTU beyond which no rate rises and no CPU time falls. Each of these figures has a verdict that says so.
        let is_enough = |mtu: &&u32| {
            find(mtu).is_some_and(|one| {
                let own = rows(one, Metric::Rate, shapes).into_iter().chain(rows(one, Metric::TOTAL, shapes));
                own.clone().count() > 0
                    && own.into_iter().all(|row| matches!(row.verdict, Verdict::Worse | Verdict::Equivalent))
            })
        };
        let enough = sizes.iter().filter(|mtu| *mtu < most).find(is_enough);
        let nothing = enough.map(|mtu| format!("an MTU above {} brings no further gain", size(mtu)));
        let (gained, other) = (format!("MTU {}", size(most)), format!("what MTU {} carries", size(least)));
        match (carries(&rate, &cpu, "carries", &other), nothing) {
            (Some(words), Some(nothing)) if all(&rate, &Verdict::Better) => {
                gains.push(format!("{gained} {words} with {kind}, and {nothing}"));
            }
            (Some(words), _) => gains.push(format!("{gained} {words} with {kind}")),
            (None, Some(nothing)) => others.push(format!("for {kind}, {nothing}")),
            (None, None) => {
                others.push(format!("for {kind} with MTU {}: {}", size(most), counts(&rate, &cpu)));
            }
        }
    }
    gains.extend(others);
    if gains.is_empty() { String::new() } else { format!("{}.", capital(&gains.join("; "))) }
}

fn levels(run: &Run, comparisons: &[&Comparison], said: Counts) -> String {
    let variants: Vec<&Comparison> = comparisons
        .iter()
        .copied()
        .filter(|one| Variant::of(&one.new).is_some_and(|own| own.base == one.base))
        .collect();
    if let Some(text) = features(&variants) {
        return text;
    }
    let filters = |one: &Comparison| {
        let own = run.levels.iter().find(|level| level.name == one.new);
        own.is_some_and(|level| level.nftables.is_some())
    };
    let of_paths = |one: &Comparison| if filters(one) { firewall(one) } else { level(one, said) };
    let sentence = |one: &&Comparison| commands::level(one).unwrap_or_else(|| of_paths(one));
    comparisons.iter().map(sentence).collect::<Vec<_>>().join(" ")
}

fn level(one: &Comparison, said: Counts) -> String {
    let (rate, cpu) = (rows(one, Metric::Rate, ALL), rows(one, Metric::TOTAL, ALL));
    let counts = counts(&rate, &cpu);
    match carries(&rate, &cpu, "has", &format!("the rate of level {}", one.base)).or_else(|| typical(one, said)) {
        Some(words) => sentence(&format!("Level {} {words}", one.new), &counts, said),
        None => format!("Level {} compared with level {}: {counts}.", one.new, one.base),
    }
}

/// Returns what a packet filter costs, and where.
fn firewall(one: &Comparison) -> String {
    let worse = |metric: Metric| -> (Vec<&Row>, usize) {
        let all = rows(one, metric, ALL);
        let count = all.len();
        (all.into_iter().filter(|row| row.verdict == Verdict::Worse).collect(), count)
    };
    let ((rate, cells), (cpu, _)) = (worse(Metric::Rate), worse(Metric::TOTAL));
    let of = |rows: &[&Row]| {
        if rows.len() == cells { String::new() } else { format!(" in {} of {cells} cells", rows.len()) }
    };
    let costs: Vec<String> = [(&rate, "of the rate"), (&cpu, "more CPU time")]
        .into_iter()
        .filter(|(rows, _)| !rows.is_empty())
        .map(|(rows, noun)| format!("{} {noun}{}", percents(rows), of(rows)))
        .collect();
    if costs.is_empty() {
        let counts = counts(&rows(one, Metric::Rate, ALL), &rows(one, Metric::TOTAL, ALL));
        return format!("This run shows no cost of {} compared with {}: {counts}.", one.new, one.base);
    }
    let mut parts: Vec<(f64, &str, Vec<&Row>)> = Vec::new();
    for (part, name) in [(Part::Client, "client"), (Part::Router, "router"), (Part::Server, "server")] {
        let (own, count) = worse(Metric::Cpu(part, Mode::All));
        if 2 * own.len() > count {
            let added = own.iter().map(|row| (row.values.1 - row.values.0) / row.values.0.max(f64::MIN_POSITIVE)).sum();
            parts.push((added, name, own));
        }
    }
    parts.sort_by(|one, other| other.0.total_cmp(&one.0));
    let place =
        parts.first().map(|(_, name, own)| format!(": the {name} takes {} times its CPU time{}", span(own), of(own)));
    format!("{} costs {}{}.", one.new, costs.join(" and "), place.unwrap_or_default())
}

/// Returns which features are worth having; `None` if the run has no variants of levels.
fn features(variants: &[&Comparison]) -> Option<String> {
    let mut worth: Vec<(f64, String)> = Vec::new();
    let mut unseen = Vec::new();
    for one in variants {
        let Some(variant) = Variant::of(&one.new).filter(|variant| !variant.with) else { continue };
        let rate = one.means.iter().find(|mean| mean.metric == Metric::Rate);
        match rate {
            Some(mean) if mean.is_clear() => {
                let (feature, base, times) = (variant.feature, variant.base, short(mean.value));
                let words = format!("without {feature}, level {base} has {times} times its rate");
                worth.push((mean.value, words));
            }
            Some(_) | None => unseen.push(variant.feature),
        }
    }
    worth.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut parts: Vec<String> = worth.into_iter().take(3).map(|(_, words)| words).collect();
    if !unseen.is_empty() {
        parts.push(format!("this run shows no effect on the rate for {}", unseen.join(", ")));
    }
    (!parts.is_empty()).then(|| format!("{} (geometric means of the cells).", capital(&parts.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_plan::level::Level;
    use siga_results::testing;

    /// A path, MTU, level, and the milliseconds that a trial takes with one workload.
    type Cell<'a> = (&'a str, Option<u32>, &'a str, &'a [(&'a str, u64)]);

    /// Returns a run of nine rounds. CPU time per unit is proportional to the milliseconds. `noise` is the scatter of trials in percent.
    fn run(cells: &[Cell<'_>], noise: u64) -> Run {
        let mut run = testing::run("run", Vec::new());
        for (_, _, level, _) in cells {
            if !run.levels.iter().any(|own| own.name == *level) {
                let nftables = level.starts_with("nft").then(|| "x".to_owned());
                run.levels.push(Level { name: (*level).to_owned(), nftables, ..Level::plain() });
            }
        }
        for round in 0..9_u64 {
            for (at, (path, mtu, level, works)) in cells.iter().enumerate() {
                for (workload, ms) in *works {
                    let mut trial = testing::trial(path, u32::try_from(round).unwrap(), 0, None);
                    (trial.cell.mtu, trial.cell.level) = (*mtu, (*level).to_owned());
                    trial.cell.workload = workload.parse().unwrap();
                    let scatter = 1_000 + noise * 10 * ((round * 7 + at as u64 * 3) % 9) / 9;
                    trial.elapsed_ns = ms * 1_000 * scatter;
                    trial.cpu.busy_ns = ms * 800 * scatter;
                    trial.cpu.client.run_ns = ms * 300 * scatter;
                    run.trials.push(trial);
                }
            }
        }
        run
    }

    fn answer(run: &Run) -> String {
        of(run, &Judged::of(run, None).unwrap()).unwrap()
    }

    #[test]
    fn each_shipped_plan_answers_its_question_from_verdicts() {
        let default = run(
            &[
                ("veth-routed", Some(1_500), "plain", &[("rr-1-1", 1_000), ("strg-20m", 2_000)]),
                ("hipersockets-routed", Some(57_344), "plain", &[("rr-1-1", 500), ("strg-20m", 500)]),
            ],
            1,
        );
        assert_eq!(
            answer(&default),
            "siga carries 2.0 to 4.0 times the kernel's traffic for 0.25 to 0.5 of the CPU time per unit: rate better in 2 of 2 cells; CPU time better in 2 of 2."
        );
        let mixed = run(
            &[
                ("veth-routed", Some(1_500), "plain", &[("rr-1-1", 1_000), ("crr-64-8k", 900), ("strg-20m", 500)]),
                (
                    "hipersockets-routed",
                    Some(57_344),
                    "plain",
                    &[("rr-1-1", 500), ("crr-64-8k", 300), ("strg-20m", 1_000)],
                ),
            ],
            1,
        );
        assert_eq!(
            answer(&mixed),
            "siga carries 2.0 to 3.0 times the kernel's traffic with requests and 0.5 times with streams, for 0.33 to 2.0 times the \
             CPU time per unit: rate better in 2 of 3 cells, worse in 1; CPU time better in 2 of 3, worse in 1."
        );
        let mtu = run(
            &[
                ("veth", Some(1_500), "plain", &[("rr-1-1", 1_000), ("strg-20m", 2_100)]),
                ("veth", Some(8_992), "plain", &[("rr-1-1", 500), ("strg-20m", 1_500)]),
                ("veth", Some(57_344), "plain", &[("rr-1-1", 500), ("strg-20m", 1_000)]),
            ],
            1,
        );
        assert_eq!(
            answer(&mtu),
            "MTU 57,344 carries 2.0 times what MTU 1,500 carries for 0.5 of the CPU time per unit with request-response, and an MTU \
             above 8,992 brings no further gain; MTU 57,344 carries 2.1 times what MTU 1,500 carries for 0.48 of the CPU time \
             per unit with streams."
        );
        let hop = run(
            &[
                ("veth", Some(1_500), "plain", &[("rr-1-1", 500)]),
                ("veth-routed", Some(1_500), "plain", &[("rr-1-1", 1_000)]),
            ],
            1,
        );
        let hop = answer(&hop);
        assert!(hop.starts_with("A router adds ") && hop.contains(" and lowers the rate by 50%"), "{hop}");
        let guests = run(
            &[
                ("veth-routed", None, "plain", &[("rr-1-1", 2_000)]),
                ("hipersockets-routed", None, "plain", &[("rr-1-1", 1_000)]),
                ("veth", None, "plain", &[("rr-1-1", 900)]),
                ("hipersockets", None, "plain", &[("rr-1-1", 300)]),
                ("vctc", None, "plain", &[("rr-1-1", 300)]),
            ],
            1,
        );
        assert_eq!(
            answer(&guests),
            "Fastest for request-response: hipersockets or vctc directly (3.0 times veth), which this run cannot tell apart in every \
             cell, and hipersockets-routed through a router (2.0 times veth-routed)."
        );
    }

    #[test]
    fn a_heading_has_no_counts() {
        let works: &[(&str, u64)] = &[("rr-1-1", 1_000), ("strg-20m", 500)];
        let faster: &[(&str, u64)] = &[("rr-1-1", 500), ("strg-20m", 1_000)];
        let default = run(&[("veth-routed", None, "plain", works), ("hipersockets-routed", None, "plain", faster)], 1);
        assert_eq!(
            heading(&default, &Judged::of(&default, None).unwrap()).unwrap(),
            "siga carries 2.0 times the kernel's traffic with request-response and 0.5 times with streams, for 0.5 to 2.0 times \
             the CPU time per unit."
        );
        let levels = run(&[("veth", None, "420", works), ("veth", None, "430", faster)], 1);
        let text = heading(&levels, &Judged::of(&levels, None).unwrap()).unwrap();
        assert!(
            text.starts_with("Level 430 has 0.5 to 2.0 times the rate of level 420 for") && !text.contains("cells"),
            "{text}"
        );
    }

    #[test]
    fn runs_of_levels_answer_what_a_level_costs_or_brings() {
        let filter = run(
            &[
                ("veth-routed", None, "plain", &[("rr-1-1", 1_000), ("crr-64-8k", 1_000)]),
                ("veth-routed", None, "nft-mine", &[("rr-1-1", 1_100), ("crr-64-8k", 1_400)]),
            ],
            1,
        );
        let filter = answer(&filter);
        assert!(filter.starts_with("nft-mine costs 9.0% to 28% of the rate and 9.8% to 40% more CPU time: the client takes 1.1 to 1.4 times"), "{filter}");
        let levels = run(&[("veth", None, "420", &[("rr-1-1", 1_000)]), ("veth", None, "430", &[("rr-1-1", 250)])], 1);
        assert_eq!(
            answer(&levels),
            "Level 430 has 4.0 times the rate of level 420 for 0.25 of the CPU time per unit: rate better in 1 of 1 cells; CPU time better in 1 of 1."
        );
        let features = run(
            &[
                ("veth", None, "430", &[("rr-1-1", 500), ("crr-64-8k", 500)]),
                ("veth", None, "430-packing", &[("rr-1-1", 1_000), ("crr-64-8k", 1_000)]),
                ("veth", None, "430-pending", &[("rr-1-1", 500), ("crr-64-8k", 500)]),
            ],
            0,
        );
        assert_eq!(
            answer(&features),
            "Without packing, level 430 has 0.5 times its rate; this run shows no effect on the rate for pending (geometric means of the cells)."
        );
    }

    #[test]
    fn without_verdicts_an_answer_claims_no_direction() {
        let works: &[(&str, u64)] = &[("rr-1-1", 1_000)];
        for cells in [
            [("veth-routed", Some(1_500), "plain", works), ("hipersockets-routed", Some(1_500), "plain", works)],
            [("veth", Some(1_500), "plain", works), ("veth", Some(9_000), "plain", works)],
            [("veth", Some(1_500), "plain", works), ("veth", Some(1_500), "nft-mine", works)],
            [("veth", Some(1_500), "plain", works), ("veth-routed", Some(1_500), "plain", works)],
        ] {
            let text = answer(&run(&cells, 400));
            assert!(!text.is_empty());
            for claim in ["carries", "has ", " more CPU time", " of the rate and", "takes "] {
                assert!(!text.contains(claim), "{claim}: {text}");
            }
            let mut smoke = run(&cells, 1);
            smoke.plan.smoke = true;
            assert_eq!(answer(&smoke), "", "a smoke run has no answer");
        }
    }
}
