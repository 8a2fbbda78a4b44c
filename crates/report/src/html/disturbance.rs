//! What the host did besides the trials, round by round. At the top of the page there is a mark for each round; further below there
//! are charts of the CPU time that the hypervisor or other processes took, and of the probes between trials.

use super::ShownRun;
use super::lines::{Across, Point, Series, lines};
use super::page::Figure;
use super::plot::Scale;
use crate::disturbance::{Facts, facts};
use crate::words::{capital, counted, number};
use maud::{Markup, html};
use siga_results::judge::{Comparison, Metric};
use siga_results::record::{Slot, TrialRecord};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of cautions at the top of the page; the tables have all.
const CAUTIONS_MAX: usize = 2;
/// Maximum number of rounds in a chart.
const ROUNDS_MAX: usize = 120;
/// Maximum number of labelled ticks on the axis of rounds.
const TICKS_MAX: usize = 8;

/// The largest values of a round's trials.
#[derive(Debug, Default, Clone)]
struct Round {
    at: String,
    steal: f64,
    others: Option<f64>,
    run_queue: Option<f64>,
    probe_factor: Option<f64>,
}

/// Returns the section at the top of the page: a mark for each round of each run, and what disturbed rounds, in words.
pub(super) fn section(shown: &[ShownRun<'_>], comparisons: &[Comparison]) -> Markup {
    html! {
        @for one in shown {
            @if shown.len() > 1 { p { strong { (one.name) } } }
            (strip(one))
            // The banner above has the words of a run without verdict.
            @if one.judged.agreed.disturbance.no_verdict().is_none() { p { (words(one)) } }
            @for line in cautions(one).iter().take(CAUTIONS_MAX) { p class="note" { (line) } }
            @let more = cautions(one).len().saturating_sub(CAUTIONS_MAX);
            @if more > 0 { p class="note" { a href="#tables" { (more) " more cautions" } } }
        }
        @if let Some(floor) = noise_floor(comparisons) {
            p class="note" {
                "The row with the largest noise floor: two equal sides can differ by up to " (crate::words::noise_floor(Some(floor)).trim_start_matches('±')) " in rate or CPU time there."
            }
        }
    }
}

/// Returns the verdict on the host in a sentence, for the top of the page.
pub(super) fn host(shown: &[ShownRun<'_>]) -> Markup {
    let verdict = |one: &ShownRun<'_>| {
        let disturbance = &one.judged.agreed.disturbance;
        let is_recorded = one.run.trials.iter().any(|trial| trial.host.is_some());
        let (disturbed, rounds) = (disturbance.disturbed(), disturbance.rounds());
        match disturbed {
            0 if is_recorded => format!("nothing disturbed the {}", counted(rounds, "round")),
            0 => "this run has no record of what disturbed its rounds".to_owned(),
            _ => format!(
                "{disturbed} of {} disturbed; siga uses the other {}",
                counted(rounds, "round"),
                rounds - disturbed
            ),
        }
    };
    html! {
        p class="host" {
            a href="#quiet" { "Host" } ": "
            @for (at, one) in shown.iter().enumerate() {
                @if at > 0 { "; " }
                @if shown.len() > 1 { (one.name) ": " }
                (verdict(one))
            }
            "."
        }
    }
}

/// Returns the marks of a run's rounds, all of one size. The mark of a disturbed round has another colour, and a cross.
fn strip(shown: &ShownRun<'_>) -> Markup {
    let disturbance = &shown.judged.agreed.disturbance;
    let slots: BTreeSet<Slot> = shown.run.trials.iter().map(TrialRecord::slot).collect();
    let says = format!("{} of {} rounds disturbed", disturbance.disturbed(), disturbance.rounds());
    let title = |slot: &Slot| {
        let words = disturbance.round(*slot).unwrap_or_else(|| "undisturbed".to_owned());
        format!("round {}: {words}", slot.1 + 1)
    };
    html! {
        div class="strip" role="img" aria-label=(says) {
            @for slot in slots.iter().take(ROUNDS_MAX) {
                @let is_disturbed = disturbance.is_disturbed(*slot);
                i class=[is_disturbed.then_some("disturbed")] title=(title(slot)) { @if is_disturbed { "×" } }
            }
        }
        @if slots.len() > ROUNDS_MAX { p class="note" { "The first " (ROUNDS_MAX) " of " (slots.len()) " rounds." } }
    }
}

/// Returns what disturbed a run, in words.
fn words(shown: &ShownRun<'_>) -> String {
    let disturbance = &shown.judged.agreed.disturbance;
    let is_recorded = shown.run.trials.iter().any(|trial| trial.host.is_some());
    match disturbance.words() {
        Some(words) => format!("{}.", capital(&words)),
        None if is_recorded => format!("Nothing: no round was disturbed ({}).", counted(disturbance.rounds(), "round")),
        None => "This run has no record of the load on the host.".to_owned(),
    }
}

/// Returns the cautions about a run's trials and files.
fn cautions(shown: &ShownRun<'_>) -> Vec<String> {
    crate::words::cautions(shown.run, &shown.judged.agreed)
        .into_iter()
        .map(|(kind, line)| format!("{kind}: {line}."))
        .collect()
}

/// Returns the largest noise floor of the rates and CPU times of all comparisons.
fn noise_floor(comparisons: &[Comparison]) -> Option<f64> {
    let judged = comparisons.iter().filter(|comparison| comparison.no_verdict().is_none());
    let rows = judged.flat_map(|comparison| &comparison.rows);
    let rows = rows.filter(|row| matches!(row.metric, Metric::Rate | Metric::TOTAL));
    rows.filter_map(|row| row.noise_floor).filter(|floor| floor.is_finite()).max_by(f64::total_cmp)
}

/// Returns the charts of a run; none if its records say nothing about the host.
pub(super) fn charts(shown: &ShownRun<'_>) -> Vec<Figure> {
    let disturbance = &shown.judged.agreed.disturbance;
    let mut rounds: BTreeMap<Slot, Round> = BTreeMap::new();
    for trial in &shown.run.trials {
        let Some(facts) = facts(trial, disturbance) else { continue };
        rounds.entry(trial.slot()).or_insert_with(|| Round { at: trial.at.clone(), ..Round::default() }).add(&facts);
    }
    let all = rounds.len();
    let rounds: Vec<(Slot, Round)> = rounds.into_iter().take(ROUNDS_MAX).collect();
    if rounds.is_empty() {
        return Vec::new();
    }
    let words = |slot: Slot| match disturbance.round(slot) {
        Some(cause) => {
            let trials = || shown.run.trials.iter().filter(|trial| trial.slot() == slot);
            let done = match trials().filter(|trial| disturbance.leaves_out(trial)).count() {
                0 => "disturbed",
                some if some < trials().count() => "partly left out",
                _ => "left out",
            };
            format!("{done}: {cause}")
        }
        None => String::new(),
    };
    let words: Vec<String> = rounds.iter().map(|(slot, _)| words(*slot)).collect();
    let drawn = Drawn { rounds: &rounds, words: &words, left_out: left_out(rounds.len(), all), name: &shown.name };
    [drawn.shares(), drawn.probes()].into_iter().flatten().collect()
}

fn left_out(drawn: usize, all: usize) -> Option<String> {
    (drawn < all)
        .then(|| format!("the chart shows the first {drawn} of {all} rounds; the raw data contain all rounds."))
}

impl Round {
    fn add(&mut self, facts: &Facts) {
        let larger = |own: Option<f64>, other: Option<f64>| own.into_iter().chain(other).max_by(f64::total_cmp);
        self.steal = self.steal.max(facts.steal);
        self.others = larger(self.others, facts.others);
        self.run_queue = larger(self.run_queue, facts.run_queue);
        self.probe_factor = larger(self.probe_factor, facts.probe_factor);
    }
}

/// The rounds of a run that are drawn.
struct Drawn<'a> {
    rounds: &'a [(Slot, Round)],
    /// What disturbed each round.
    words: &'a [String],
    left_out: Option<String>,
    name: &'a str,
}

/// A line of a chart: its label, and the value of each round.
type Line<'a> = (&'a str, &'a dyn Fn(&Round) -> Option<f64>);

impl Drawn<'_> {
    /// Draws the shares of the CPU time.
    fn shares(&self) -> Option<Figure> {
        let about = "Each value is the largest of the round's trials, in percent of the CPU time of all CPUs. A round is \
                     disturbed if the host takes more than 1%, or if processes outside the run take more than 5%. siga leaves \
                     out disturbed rounds. Run-queue delay does not make a round disturbed.";
        self.figure(
            "What disturbed the rounds",
            about,
            "% of the CPU time",
            &[
                ("the host (steal)", &|round| Some(100.0 * round.steal)),
                ("processes outside the run", &|round| Some(100.0 * round.others?)),
                ("run-queue delay of the path's threads", &|round| Some(100.0 * round.run_queue?)),
            ],
        )
    }

    /// Draws the probes between trials.
    fn probes(&self) -> Option<Figure> {
        let about = "Before each trial, siga measures how long wake-ups and the move of a cache line take. The chart shows the \
                     slowest of these times in each round, as a multiple of its median over the run. A round with a multiple \
                     above 3 is disturbed.";
        let line: Line<'_> = ("slowest time of the probe", &|round| round.probe_factor);
        self.figure("Probes of the host", about, "times the usual", &[line])
    }

    /// Returns the horizontal position of a round.
    fn across(&self, at: usize) -> f64 {
        0.04 + 0.92 * at as f64 / (self.rounds.len() - 1).max(1) as f64
    }

    fn figure(&self, title: &str, about: &str, unit: &str, all: &[Line<'_>]) -> Option<Figure> {
        let (mut series, mut rows) = (Vec::new(), Vec::new());
        for (label, value) in all {
            let mut points = Vec::new();
            for (at, ((slot, round), words)) in self.rounds.iter().zip(self.words).enumerate() {
                let Some(y) = value(round) else { continue };
                let (number, name) = (number(y), slot.1 + 1);
                let more = if words.is_empty() { String::new() } else { format!("\n{words}") };
                let says = format!("{label}\nround {name}, {}\n{number} {unit}{more}", round.at);
                points.push(Point { x: self.across(at), y, interval: None, says });
                rows.push(vec![(*label).to_owned(), name.to_string(), round.at.clone(), number, words.clone()]);
            }
            if !points.is_empty() {
                series.push(Series { label: (*label).to_owned(), points });
            }
        }
        if series.is_empty() {
            return None;
        }
        let step = self.rounds.len().div_ceil(TICKS_MAX);
        let ticks = self.rounds.iter().enumerate().step_by(step);
        let ticks = ticks.map(|(at, (slot, _))| (self.across(at), (slot.1 + 1).to_string())).collect();
        let across = Across { title: "round, in the order of time".into(), ticks };
        let scale = Scale::linear(series.iter().flat_map(|one| &one.points).map(|point| point.y));
        let title = format!("{title}: {}", self.name);
        Some(Figure {
            about: about.into(),
            drawing: lines(&series, &title, &across, scale, unit),
            head: ["series", "round", "begun", unit, "what disturbed the round"].map(str::to_owned).into(),
            numbers: 3..4,
            rows,
            left_out: self.left_out.clone(),
            title,
        })
    }
}
