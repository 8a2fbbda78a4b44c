//! All outputs of a run have the same verdict on each figure: sentences, tables, text, Markdown, HTML, JSON and CSV. The exit status of
//! `siga compare` follows from the same verdicts.
//!
//! The records are drawn at random. Their effects are about as large as their noise, so that many figures are borderline.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

use proptest::prelude::*;
use serde_json::Value;
use siga_plan::level::Level;
use siga_report::{Format, Layout, headline, html, render, verdicts};
use siga_results::histogram;
use siga_results::judge::{self, Comparison, Metric, Row, Verdict, with_itr};
use siga_results::record::TrialRecord;
use siga_results::store::Run;
use std::collections::HashMap;

/// The parameters of a run that is drawn at random.
#[derive(Debug, Clone)]
struct Drawn {
    rounds: u32,
    /// The effect of each path or level on the rate and on the CPU time, as a logarithm.
    effects: Vec<(f64, f64)>,
    /// Standard deviation of the noise of a trial, as a logarithm.
    noise: f64,
    smoke: bool,
    seed: u64,
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let effect = prop_oneof![Just(0.0), -0.15..0.15_f64, -1.0..1.0_f64];
    let effects = proptest::collection::vec((effect.clone(), effect), 4);
    (1..15_u32, effects, prop_oneof![Just(0.002), 0.005..0.2_f64], proptest::bool::weighted(0.05), any::<u64>())
        .prop_map(|(rounds, effects, noise, smoke, seed)| Drawn { rounds, effects, noise, smoke, seed })
}

impl Drawn {
    /// Returns a random number between -1 and 1.
    fn random(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1_u64 << 52) as f64 - 1.0
    }

    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "times of some seconds")]
    fn trial(&self, path: &str, round: u32, (rate, cpu): (f64, f64), state: &mut u64) -> TrialRecord {
        let times = |effect: f64, state: &mut u64| (effect + self.noise * 1.7 * Self::random(state)).exp();
        let mut trial = siga_results::testing::trial(path, round, 0, None);
        trial.elapsed_ns = (1e9 * times(-rate, state)) as u64;
        trial.cpu.busy_ns = (8e8 * times(cpu, state)) as u64;
        trial.cpu.client.run_ns = (4e8 * times(cpu, state)) as u64;
        let mut latency = histogram::empty();
        let most = (5e4 * times(-rate, state)) as u64;
        (1..=1_000).for_each(|part| latency.saturating_record(1_000 + most * part / 1_000));
        trial.latency = histogram::encode(&latency).unwrap();
        trial.at = "2026-01-01T00:00:00Z".into();
        trial
    }

    /// Returns a run of paths with and without a router, over the kernel's network and siga's own.
    fn paths(&self) -> Run {
        let mut run = siga_results::testing::run("run", Vec::new());
        let mut state = self.seed;
        for (round, clients) in (0..self.rounds).flat_map(|round| [(round, 1), (round, 10)]) {
            for (path, effect) in ["veth", "veth-routed", "hipersockets-routed", "unix"].into_iter().zip(&self.effects)
            {
                let mut trial = self.trial(path, round, *effect, &mut state);
                trial.cell.clients = clients;
                run.trials.push(trial);
            }
        }
        run.plan.smoke = self.smoke;
        run
    }

    /// Returns a run of one path at several levels. Two of the levels are a level and its variant.
    fn levels(&self) -> Run {
        let mut run = siga_results::testing::run("run", Vec::new());
        let names = ["430", "430-packing", "420", "420+packing"];
        run.levels = names.map(|name| Level { name: name.into(), ..Level::plain() }).into();
        let mut state = self.seed;
        for round in 0..self.rounds {
            for (level, effect) in names.into_iter().zip(&self.effects) {
                let mut trial = self.trial("veth", round, *effect, &mut state);
                trial.cell.level = level.into();
                run.trials.push(trial);
            }
        }
        run.plan.smoke = self.smoke;
        run
    }
}

fn names(comparison: &Comparison) -> Vec<&'static str> {
    with_itr(&comparison.rows).iter().map(|row| row.verdict.name()).collect()
}

fn verdict_of(field: &str) -> &'static str {
    let names = ["better", "worse", "equivalent", "inconclusive", "not comparable"];
    names.into_iter().find(|name| field.starts_with(name)).unwrap_or_else(|| panic!("no verdict in `{field}`"))
}

/// Returns the verdicts in the tables of a comparison's text or Markdown.
fn of_text(text: &str, markdown: bool) -> Vec<&'static str> {
    let is_figure = |name: &str| Metric::ALL.iter().any(|metric| metric.name() == name);
    let row = |line: &&str| line.trim_start_matches(['|', ' ']).split([' ', '|']).next().is_some_and(is_figure);
    let last = |line: &str| {
        let line = line.trim_end_matches(['|', ' ']);
        let field = if markdown { line.rsplit("| ").next() } else { line.rsplit("  ").next() };
        verdict_of(field.unwrap().trim())
    };
    // The column heads begin with `figure`, and sentences contain no metric's name at their beginning.
    text.lines().filter(row).map(last).collect()
}

fn of_json(cells: &Value) -> Vec<&str> {
    cells.as_array().unwrap().iter().map(|cell| cell["verdict"].as_str().unwrap()).collect()
}

fn of_csv(text: &str) -> Vec<String> {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let at = reader.headers().unwrap().iter().position(|name| name == "verdict").unwrap();
    reader.records().map(|record| record.unwrap()[at].to_owned()).collect()
}

/// Returns the verdicts in the table of a comparison on a page.
fn of_page(page: &str, comparison: &Comparison) -> Vec<&'static str> {
    let title = format!("<h3>Comparison: {} against {}</h3>", comparison.new, comparison.base);
    let table = page.split_once(&title).unwrap().1.split("</table>").next().unwrap();
    let body = table.split_once("<tbody>").unwrap().1;
    let rows = body.split("</tr>").filter(|row| row.contains("<td"));
    rows.map(|row| verdict_of(row.rsplit("<td").next().unwrap().split_once('>').unwrap().1)).collect()
}

/// Checks what a sentence says about a figure: only a verdict makes a claim.
fn assert_claim(line: &str, row: &Row, noun: &str) {
    let claims = [
        format!("x the {noun} ("),
        format!(" less {noun} ("),
        format!(" more {noun} ("),
        format!(" times the {noun} ("),
    ];
    let is_claimed = claims.iter().any(|claim| line.contains(claim));
    match &row.verdict {
        Verdict::Better | Verdict::Worse => assert!(is_claimed, "{noun}: {line} but {row:?}"),
        Verdict::Equivalent => assert!(!is_claimed && line.contains(&format!("the same {noun} within 2%")), "{line}"),
        Verdict::Inconclusive { trials } => {
            assert!(!is_claimed && line.contains(&format!("{noun} inconclusive (")), "{line} but {row:?}");
            if let Some(trials) = trials {
                assert!(line.contains(&format!("; {trials} trials would be needed)")), "{line}");
            }
        }
        Verdict::NotComparable { .. } => assert!(!is_claimed, "{line}"),
    }
}

fn find<'a>(all: &'a [Comparison], base: &str, new: &str, clients: u32, metric: Metric) -> Option<&'a Row> {
    let own = all.iter().find(|one| one.base == base && one.new == new)?;
    own.rows.iter().find(|row| row.new.clients == clients && row.metric == metric)
}

/// Checks every output of the comparisons themselves, and returns the page of the run.
fn assert_comparisons_agree(run: &Run, comparisons: &[Comparison]) -> String {
    let page = html::html(std::slice::from_ref(run), comparisons).unwrap();
    let report: Value = serde_json::from_str(&render(run, Format::Json, Layout::Plain, None).unwrap()).unwrap();
    let mut known: HashMap<String, &str> = HashMap::new();
    for (at, comparison) in comparisons.iter().enumerate() {
        let wanted = names(comparison);
        let rendered = |format| verdicts::render(comparison, format, true, None).unwrap();
        assert_eq!(of_text(&rendered(Format::Text), false), wanted);
        assert_eq!(of_text(&rendered(Format::Md), true), wanted);
        let json: Value = serde_json::from_str(&rendered(Format::Json)).unwrap();
        assert_eq!(of_json(&json["cells"]), wanted);
        assert_eq!(of_csv(&rendered(Format::Csv)), wanted);
        assert_eq!(of_page(&page, comparison), wanted);
        assert_eq!(of_json(&report["comparisons"][at]["cells"]), wanted);
        let own = || comparison.rows.iter().map(|row| row.verdict.name());
        let worse = own().filter(|name| *name == "worse").count();
        assert_eq!((comparison.regressions(0.0).len(), comparison.count("worse")), (worse, worse));
        for (row, name) in comparison.rows.iter().zip(own()) {
            // The same two cells have the same verdict in every comparison.
            let figure = format!("{} {} {}", row.base, row.new, row.metric.name());
            assert_eq!(known.entry(figure).or_insert(name), &name);
            if matches!(row.verdict, Verdict::Better | Verdict::Worse) {
                assert!(row.low.unwrap() > 1.0 || row.high.unwrap() < 1.0, "a direction without effect: {row:?}");
            }
        }
        for sentence in verdicts::sentences(comparison) {
            let clients = if sentence.contains("10 pairs") { 10 } else { 1 };
            for (metric, noun) in [(Metric::Rate, "rate"), (Metric::TOTAL, "CPU time")] {
                let row = comparison.rows.iter().find(|row| row.new.clients == clients && row.metric == metric);
                row.into_iter().for_each(|row| assert_claim(&sentence, row, noun));
            }
        }
    }
    page
}

fn assert_paths_agree(run: &Run) {
    let all = judge::shown(run).unwrap();
    let page = assert_comparisons_agree(run, &all);
    let text = render(run, Format::Text, Layout::Plain, None).unwrap();
    let headline = headline(run).unwrap();
    assert!(text.contains(&headline), "{text}");
    let markdown = render(run, Format::Md, Layout::Plain, None).unwrap();
    let sentences: Vec<&str> = markdown.lines().take_while(|line| !line.starts_with('|')).collect();
    for line in headline.lines() {
        let shown = line.trim().chars().skip(1).collect::<String>();
        assert!(page.contains(&shown), "{shown} is not on the page");
    }

    // The first sentence counts the verdicts, and each of its lines claims what the verdict says.
    let of = |clients, metric| find(&all, "veth-routed", "hipersockets-routed", clients, metric).unwrap();
    let count = |metric, verdict: &str| [1, 10].iter().filter(|n| of(**n, metric).verdict.name() == verdict).count();
    let is_first = |line: &&&str| line.starts_with("Through a router, ");
    let first = sentences.iter().find(is_first).unwrap();
    if let Some(rest) = first.strip_prefix("Through a router, siga's own network is faster than the kernel's in ") {
        let (faster, slower) = (count(Metric::Rate, "better"), count(Metric::Rate, "worse"));
        assert!(rest.starts_with(&format!("{faster} of 2 cases and slower in {slower}")), "{first}");
        let (less, more) = (count(Metric::TOTAL, "better"), count(Metric::TOTAL, "worse"));
        assert!(rest.contains(&format!("less CPU time per unit in {less} and more in {more}")), "{first}");
    } else {
        assert!(first.contains("this run cannot tell whether siga's own network is faster"), "{first}");
        let open = count(Metric::Rate, "inconclusive") + count(Metric::TOTAL, "inconclusive");
        assert_eq!(open, 4, "{first}");
    }
    for (clients, name) in [(1, "rr-200-1000, 1 pair: "), (10, "rr-200-1000, 10 pairs: ")] {
        let line = sentences.iter().find(|line| line.trim().starts_with(name)).unwrap();
        assert_claim(line, of(clients, Metric::Rate), "rate");
        assert_claim(line, of(clients, Metric::TOTAL), "CPU time per transaction");
    }
    let overhead = text.lines().find(|line| line.starts_with("A router ")).unwrap();
    let router = |metric| &find(&all, "veth", "veth-routed", 1, metric).unwrap().verdict;
    assert_eq!(overhead.contains(" adds "), *router(Metric::TOTAL) == Verdict::Worse, "{overhead}");
    assert_eq!(overhead.contains(" saves "), *router(Metric::TOTAL) == Verdict::Better, "{overhead}");
    assert_eq!(overhead.contains(" lowers "), *router(Metric::Rate) == Verdict::Worse, "{overhead}");
    assert_eq!(overhead.contains(" raises "), *router(Metric::Rate) == Verdict::Better, "{overhead}");

    // The tables of cells say the same of each path.
    let tables: Vec<&str> = text.split("\nrr-200-1000, ").skip(1).collect();
    for (clients, table) in [1, 10].into_iter().zip(tables) {
        for (path, base) in [("veth-routed", "veth"), ("unix", "veth")] {
            let line = table.lines().find(|line| line.trim_start().starts_with(&format!("{path} "))).unwrap();
            let fields: Vec<&str> = line.split("  ").map(str::trim).filter(|field| !field.is_empty()).collect();
            for (metric, at) in [(Metric::Rate, 2), (Metric::TOTAL, 1)] {
                let row = find(&all, base, path, clients, metric).unwrap();
                let words = match row.verdict {
                    Verdict::Better | Verdict::Worse => "x ",
                    Verdict::Equivalent => "same",
                    Verdict::Inconclusive { .. } => "cannot tell",
                    Verdict::NotComparable { .. } => "not comparable",
                };
                let field = fields[fields.len() - at];
                assert!(field.contains(words), "`{words}` is not in {line}");
            }
        }
    }

    let report: Value = serde_json::from_str(&render(run, Format::Json, Layout::Plain, None).unwrap()).unwrap();
    for (list, base, new) in [("beside", "veth-routed", "hipersockets-routed"), ("hops", "veth", "veth-routed")] {
        for entry in report[list].as_array().unwrap() {
            let clients = u32::try_from(entry["clients"].as_u64().unwrap()).unwrap();
            for (metric, name) in [(Metric::Rate, "rate_verdict"), (Metric::TOTAL, "cpu_verdict")] {
                assert_eq!(entry[name], find(&all, base, new, clients, metric).unwrap().verdict.name());
            }
        }
        assert_eq!(report[list].as_array().unwrap().len(), 2, "{list}");
    }
}

fn assert_levels_agree(run: &Run) {
    let all = judge::shown(run).unwrap();
    let page = assert_comparisons_agree(run, &all);
    let text = render(run, Format::Text, Layout::Plain, None).unwrap();
    for comparison in &all {
        assert!(text.contains(&verdicts::summary(comparison)) && page.contains(&verdicts::summary(comparison)));
        for sentence in verdicts::sentences(comparison) {
            assert!(text.contains(&sentence), "{sentence} is not in {text}");
        }
    }
    // The table of what each feature is worth.
    let worth = text.split_once("Effect of each driver feature").unwrap().1;
    for (metric, name) in [(Metric::Rate, " rate "), (Metric::TOTAL, " CPU ")] {
        let line = worth.lines().find(|line| line.starts_with("packing ") && line.contains(name)).unwrap();
        let shown: Vec<&str> = line.split("  ").filter(|field| !field.is_empty()).collect();
        let fields = &shown[shown.len() - 2..];
        for (field, (base, new)) in fields.iter().zip([("430", "430-packing"), ("420", "420+packing")]) {
            let row = find(&all, base, new, 1, metric).unwrap();
            assert!(field.trim().ends_with(row.verdict.name()), "{field} but {row:?}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn all_outputs_of_a_run_have_the_same_verdicts(drawn in drawn()) {
        assert_paths_agree(&drawn.paths());
    }

    #[test]
    fn all_outputs_of_levels_have_the_same_verdicts(drawn in drawn()) {
        assert_levels_agree(&drawn.levels());
    }
}
