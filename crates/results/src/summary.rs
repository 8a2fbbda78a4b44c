//! Summarises the trials of each cell of a run: the figures that every report shows.
//!
//! The figures of a cell come from its median trial: the trial with the median rate (the lower one of two middle trials). Because
//! all figures come from this one trial, they are consistent and add up. CPU time is charged to components (client, router, server,
//! other) by the best accounting method for which the trials have data. With the method `subtract`, the router's CPU time is the
//! host's CPU time minus that on the same path without the router, averaged over the rounds. Time in user mode is called virtual
//! time, the rest CP time.

mod cpu;
mod observer;
mod offered;
mod overhead;

pub use cpu::{Component, Cpu};
pub use cpu::{by_processes, by_profile, by_tick, exact};
pub use observer::ObserverCost;
pub use offered::OfferedLoad;
pub use overhead::{base_of, cpu_ms, has_router, kernel_path_of};

use crate::disturbance::Disturbance;
use crate::histogram::{self, Percentiles};
use crate::record::{Skipped, TrialRecord, total};
use crate::stats::{Estimate, estimate_positive, lower_median};
use crate::store::Run;
use siga_model::error::Result;
use siga_plan::accounting::AccountingMethod;
use siga_plan::command::figure::FigureKey;
use siga_plan::matrix::Cell;
use siga_plan::workload::Unit;

/// The summary of one cell of a run.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The cell.
    pub cell: Cell,
    /// Number of sound trials (those without a flaw) of undisturbed rounds, from which the median trial is selected; the number of
    /// all trials if none is sound.
    pub trials: usize,
    /// Units per second in the median trial.
    pub rate: f64,
    /// Mean rate over the trials that `trials` counts, with its 95% interval.
    pub rate_estimate: Estimate,
    /// Mean internal throughput rate over these trials: units per second of CPU time, with its 95% interval. `None` if no CPU time
    /// was measured.
    pub itr: Option<Estimate>,
    /// Latency percentiles of the median trial.
    pub latency: Percentiles,
    /// Percentiles of the latencies that are counted from the planned start of each transaction. `None` unless the load is an
    /// open loop (transactions start at planned times).
    pub corrected: Option<Percentiles>,
    /// CPU time per unit in the median trial.
    pub cpu: Cpu,
    /// What CPU accounting itself costs on this cell; `None` if it takes nothing within a phase, or if the trials do not say it.
    pub observer: Option<ObserverCost>,
    /// Latency at each load that the plan offers, in ascending order.
    pub offered: Vec<OfferedLoad>,
    /// Number of errors in all trials of the cell: failed connects, resets, short reads, lost datagrams and pieces of wrong
    /// payload.
    pub errors: u64,
    /// Number of frames dropped in the median trial.
    pub drops: u64,
    /// Flaws of the cell's trials in words, each with the number of trials that had the flaw.
    pub flags: Vec<(String, usize)>,
    /// Figures that a command printed, with those per unit of its work.
    pub figures: Vec<FigureSummary>,
    /// The record of the median trial.
    pub median: TrialRecord,
}

impl Summary {
    /// Returns the number of retransmitted TCP segments in the median trial; `None` if the path is a siga network, because the
    /// guests' stacks do not count them.
    pub fn retransmits(&self) -> Option<u64> {
        self.median.cpu.guests.is_none().then(|| self.median.retransmits())
    }
}

/// A figure of a command in the trials of a cell.
#[derive(Debug, Clone, Copy)]
pub struct FigureSummary {
    /// Name and unit.
    pub key: FigureKey,
    /// The value in the median trial.
    pub value: f64,
    /// Mean over the trials, with its 95% interval.
    pub estimate: Estimate,
}

impl FigureSummary {
    fn of(trials: &[&TrialRecord], median: &TrialRecord) -> Vec<Self> {
        let one = |(key, value): (FigureKey, f64)| {
            let of_trial = |trial: &&TrialRecord| trial.figures().into_iter().find(|(other, _)| *other == key);
            let values: Vec<f64> = trials.iter().filter_map(of_trial).map(|(_, value)| value).collect();
            Some(Self { key, value, estimate: estimate_positive(&values)? })
        };
        median.figures().into_iter().filter_map(one).collect()
    }
}

/// The summaries of a whole run.
#[derive(Debug, Clone)]
pub struct Reduced {
    /// The rounds that the host disturbed. Their trials are left out.
    pub disturbance: Disturbance,
    /// Summaries of the cells, in the order of the plan.
    pub cells: Vec<Summary>,
    /// Cells that have no figures.
    pub skipped: Vec<Skipped>,
}

/// Summarises a run. `method` is the accounting method; if it is `None`, each cell uses the best method for which it has data.
///
/// # Errors
/// Returns an error of kind `Environment` if a histogram is damaged.
pub fn reduce(run: &Run, method: Option<AccountingMethod>) -> Result<Reduced> {
    let disturbance = Disturbance::of(&run.trials);
    let kept = disturbance.kept(run);
    let mut cells = Vec::new();
    for cell in run.cells() {
        let trials = match sound(&kept.trials, &cell) {
            none if none.is_empty() => sound(&run.trials, &cell),
            trials => trials,
        };
        cells.push(summarize((run, &kept), &cell, &trials, method)?);
    }
    let mut skipped: Vec<Skipped> = Vec::new();
    for entry in &run.skipped {
        let measured = cells.iter().any(|summary| summary.cell == entry.cell);
        if !measured && !skipped.contains(entry) {
            skipped.push(entry.clone());
        }
    }
    Ok(Reduced { disturbance, cells, skipped })
}

/// Adds one trial with a flaw to the flaws and their numbers of trials.
fn count(flags: &mut Vec<(String, usize)>, words: String) {
    match flags.iter_mut().find(|(other, _)| *other == words) {
        Some((_, count)) => *count += 1,
        None => flags.push((words, 1)),
    }
}

/// Minimum Jain's index at which the pairs of a trial count as sharing fairly.
const FAIRNESS_LEAST: f64 = 0.9;

/// Returns whether the pairs of a trial had unequal rates. The trial's rate then depends on which pairs happened to
/// win.
pub fn is_unfair(trial: &TrialRecord) -> bool {
    trial.fairness.is_some_and(|fairness| fairness < FAIRNESS_LEAST)
}

/// Returns the reason why the rates of these trials cannot be compared: in most of them, the pairs had unequal rates.
pub fn unfair<'a>(trials: impl IntoIterator<Item = &'a TrialRecord>) -> Option<String> {
    let (unfair, fair): (Vec<&TrialRecord>, Vec<&TrialRecord>) = trials.into_iter().partition(|trial| is_unfair(trial));
    if unfair.len() <= fair.len() {
        return None;
    }
    let indices: Vec<f64> = unfair.iter().filter_map(|trial| trial.fairness).collect();
    let median = unfair[lower_median(&indices)?];
    let (least, most) = median.pair_units;
    let unit = match median.cell.workload.unit() {
        Unit::Transaction => "transactions",
        Unit::Megabyte => "MB",
        Unit::Run => "runs",
    };
    let index = median.fairness?;
    Some(format!(
        "the client-server pairs had unequal rates in {} of {} trials: Jain's fairness index {index:.2}, {least:.0} \
            to {most:.0} {unit} per pair",
        unfair.len(),
        unfair.len() + fair.len()
    ))
}

/// Returns what a reader must know about the streams of datagrams of a cell, each with the number of trials in which it was so. A
/// loss is a result of the measurement and does not make a trial unsound.
fn datagram_flags(trials: &[&TrialRecord]) -> Vec<(String, usize)> {
    let seen: Vec<_> = trials.iter().filter_map(|trial| trial.datagrams()).collect();
    let (sent, lost) = (total(seen.iter().map(|one| one.sent)), total(seen.iter().map(|one| one.lost)));
    let foreign = total(seen.iter().map(|one| one.foreign));
    let share = 100.0 * lost as f64 / sent.max(1) as f64;
    let share = if share < 0.01 {
        "fewer than 0.01%".to_owned()
    } else {
        format!("{share:.*}%", usize::from(share < 10.0) + 1)
    };
    let is_foreign = "belonged to no stream of the trial and were ignored";
    [
        (format!("{share} of the datagrams were lost"), seen.iter().filter(|one| one.lost > 0).count()),
        (format!("{foreign} datagrams {is_foreign}"), seen.iter().filter(|one| one.foreign > 0).count()),
    ]
    .into_iter()
    .filter(|(_, count)| *count > 0)
    .collect()
}

/// Returns the sound trials of a cell; all trials if none is sound.
fn sound<'a>(trials: &'a [TrialRecord], cell: &Cell) -> Vec<&'a TrialRecord> {
    let all: Vec<_> = trials.iter().filter(|trial| trial.cell == *cell).collect();
    let sound: Vec<_> = all.iter().copied().filter(|trial| trial.flags.is_empty()).collect();
    if sound.is_empty() { all } else { sound }
}

/// Returns the reasons why trials of a cell are missing. A trial that failed is not missing if it was measured again later.
fn failures<'a>(run: &'a Run, cell: &Cell) -> Vec<&'a str> {
    let measured = run.trials.iter().filter(|trial| trial.cell == *cell).count();
    let rounds = run.trials.iter().map(|trial| trial.round as usize + 1).max().unwrap_or(0);
    let wanted = match (run.plan.budget_seconds, run.plan.trials) {
        (None, Some(trials)) => trials as usize,
        (..) => rounds,
    };
    let reasons = run.skipped.iter().filter(|skipped| skipped.cell == *cell).map(|skipped| skipped.reason.as_str());
    let reasons: Vec<_> = reasons.collect();
    let missing = wanted.saturating_sub(measured).min(reasons.len());
    reasons[reasons.len() - missing..].to_vec()
}

/// Returns the internal throughput rate (units per second of CPU time) for this CPU time in milliseconds per unit; `None` if no CPU time
/// was used.
pub fn itr(cpu_ms: f64) -> Option<f64> {
    (cpu_ms > 0.0).then_some(1e3 / cpu_ms)
}

/// Returns the internal throughput rate of a trial; `None` if it completed no unit or used no CPU time.
fn itr_of(trial: &TrialRecord) -> Option<f64> {
    let cpu = exact(trial).unwrap_or_else(|| by_tick(trial));
    itr(cpu.total.total).filter(|_| trial.cpu_units() > 0.0)
}

/// Summarises the trials of a cell. `kept` is the run without disturbed rounds.
fn summarize(
    (run, kept): (&Run, &Run),
    cell: &Cell,
    trials: &[&TrialRecord],
    method: Option<AccountingMethod>,
) -> Result<Summary> {
    let rates: Vec<f64> = trials.iter().map(|trial| trial.rate()).collect();
    let median = trials[lower_median(&rates).unwrap_or(0)];
    let percentiles = |text: &str| match histogram::decode(text) {
        Ok(histogram) => Ok(histogram::percentiles(&histogram)),
        Err(error) => Err(error.at(format!("{}: {cell}, trial of {}", run.directory.display(), median.at))),
    };
    let all = || run.trials.iter().filter(|trial| trial.cell == *cell);
    let mut flags: Vec<(String, usize)> = Vec::new();
    for flag in all().flat_map(|trial| &trial.flags) {
        // "12 connections were reset" and "3 connections were reset" are the same flaw.
        let words = flag.trim_start_matches(|first: char| first.is_ascii_digit()).trim_start();
        let words = words.split(", from ").next().unwrap_or(words).split(": ").next().unwrap_or(words).to_owned();
        count(&mut flags, words);
    }
    flags.extend(datagram_flags(trials));
    let unfair = trials.iter().filter(|trial| is_unfair(trial)).count();
    if unfair > 0 {
        flags.push((
            format!("the client-server pairs had unequal rates (Jain's fairness index below {FAIRNESS_LEAST})"),
            unfair,
        ));
    }
    for reason in failures(run, cell) {
        count(&mut flags, format!("no figure: {}", reason.replace("\n  ", "; ")));
    }
    Ok(Summary {
        cell: cell.clone(),
        trials: trials.len(),
        rate: median.rate(),
        rate_estimate: estimate_positive(&rates).unwrap_or(Estimate { value: 0.0, low: None, high: None, count: 0 }),
        itr: estimate_positive(&trials.iter().filter_map(|trial| itr_of(trial)).collect::<Vec<_>>()),
        latency: percentiles(&median.latency)?,
        corrected: median.corrected.as_deref().map(percentiles).transpose()?,
        cpu: cpu::of(kept, median, method),
        offered: OfferedLoad::of(trials)?,
        // A ratio of rates of an emulated machine says nothing about a real one.
        observer: if run.environment.is_emulated() { None } else { ObserverCost::of(trials) },
        errors: total(all().flat_map(|trial| [trial.client.errors(), trial.server.resets, trial.server.short_reads])),
        drops: median.drops,
        flags,
        figures: FigureSummary::of(trials, median),
        median: median.clone(),
    })
}
