//! Decides which rounds of a run the host disturbed, and says it in words (decision 027).
//!
//! A trial is disturbed if something else than the path used the CPUs, or if the path itself lost its network for a while. A *block* is
//! the part of a round whose trials are compared with each other: those with the same workload and the same number of pairs. If one
//! trial of a block is disturbed, the whole block is left out, on all sides of every comparison, so that the choice of trials favours
//! no side. The rule looks at what the host did, never at rates or latencies.
//!
//! Records of earlier versions do not say what the host did, so their rounds count as undisturbed.

use crate::record::{Probe, Slot, TrialRecord};
use crate::stats::adjust::trials_least;
use crate::stats::lower_median;
use crate::store::Run;
use siga_plan::matrix::Cell;
use siga_plan::work::Work;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Maximum share of the CPU time that the hypervisor may take from the host.
const STEAL_MAX: f64 = 0.01;
/// Minimum steal time that counts, in nanoseconds: five of the units in which the kernel shows it.
const STEAL_NS_LEAST: u64 = 50_000_000;
/// Maximum share of the CPU time that processes outside the run may use.
const OTHERS_MAX: f64 = 0.05;
/// Maximum factor between a figure of a probe and the median of this figure over the run.
const PROBE_FACTOR_MAX: f64 = 3.0;
/// Minimum number of probes of a run for a median.
const PROBES_LEAST: usize = 6;

/// What disturbed a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cause {
    /// The hypervisor took CPU time from the host.
    Steal,
    /// Processes outside the run used CPU time.
    Others,
    /// Waking a thread, or moving a cache line, took much longer than usual in this run.
    Probe,
    /// An interface of the path lost its carrier.
    Carrier,
    /// The host kept a trial from running, so that an attempt gave no result.
    Stopped,
}

impl Cause {
    /// All causes, in the order in which messages name them.
    pub const ALL: [Self; 5] = [Self::Steal, Self::Others, Self::Probe, Self::Carrier, Self::Stopped];

    /// Returns the name in files: `steal`, `others`, `probe`, `carrier`, `stopped`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Steal => "steal",
            Self::Others => "others",
            Self::Probe => "probe",
            Self::Carrier => "carrier",
            Self::Stopped => "stopped",
        }
    }

    /// Returns what happened, in words. `extent` is that of [`Disturbance::causes`].
    fn words(self, extent: f64) -> String {
        match self {
            Self::Steal => format!("the hypervisor took {:.0}% of the CPU time", 100.0 * extent),
            Self::Others => format!("processes outside the run used {:.0}% of the CPU time", 100.0 * extent),
            Self::Probe => format!("waking a thread or moving a cache line took {extent:.1} times as long as usual"),
            Self::Carrier => "a network interface of the path went down".to_owned(),
            Self::Stopped => "the host stalled or changed during a trial".to_owned(),
        }
    }
}

/// What disturbed a trial or a round: each cause with its extent. The extent is the share of the CPU time for `Steal` and `Others`,
/// the factor for `Probe`, and a number of times for the other causes.
pub type Causes = BTreeMap<Cause, f64>;

/// The blocks of one workload with one number of pairs.
#[derive(Debug, Clone, Default, PartialEq)]
struct Blocks {
    /// The rounds that have a trial of this workload.
    rounds: BTreeSet<Slot>,
    /// The rounds in which such a trial is disturbed.
    disturbed: BTreeSet<Slot>,
}

impl Blocks {
    fn undisturbed(&self) -> usize {
        self.rounds.len() - self.disturbed.len()
    }

    /// Returns whether no verdict is possible: no block is undisturbed, or the run has enough rounds for a verdict, but too few of
    /// the blocks are undisturbed.
    fn forbid_verdict(&self) -> bool {
        let (least, left) = (trials_least(1), self.undisturbed());
        !self.disturbed.is_empty() && left < least && (left == 0 || self.rounds.len() >= least)
    }
}

/// The disturbed rounds and blocks of a run.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Disturbance {
    rounds: usize,
    disturbed: BTreeMap<Slot, Causes>,
    blocks: HashMap<(Work, u32), Blocks>,
    usual: Option<Probe>,
}

impl Disturbance {
    /// Applies the rule to the trials of a run.
    pub fn of(trials: &[TrialRecord]) -> Self {
        let mut all = Self { usual: usual(trials), ..Self::default() };
        for trial in trials {
            let causes = all.causes(trial);
            let blocks = all.blocks.entry(key(&trial.cell)).or_default();
            blocks.rounds.insert(trial.slot());
            if !causes.is_empty() {
                blocks.disturbed.insert(trial.slot());
            }
            for (cause, extent) in causes {
                let most = all.disturbed.entry(trial.slot()).or_default().entry(cause).or_default();
                *most = most.max(extent);
            }
        }
        all.rounds = trials.iter().map(TrialRecord::slot).collect::<BTreeSet<_>>().len();
        all
    }

    /// Returns the causes for which a trial of the run is disturbed.
    pub fn causes(&self, trial: &TrialRecord) -> Causes {
        let Some(host) = &trial.host else { return Causes::new() };
        let mut causes = Causes::new();
        let steal = share(trial, host.steal_ns);
        if steal > STEAL_MAX && host.steal_ns >= STEAL_NS_LEAST {
            causes.insert(Cause::Steal, steal);
        }
        let others = host.others_ns.map_or(0.0, |ns| share(trial, ns));
        if others > OTHERS_MAX {
            causes.insert(Cause::Others, others);
        }
        let factor = self.probe_factor(trial).unwrap_or(1.0);
        if factor > PROBE_FACTOR_MAX {
            causes.insert(Cause::Probe, factor);
        }
        for (cause, times) in [(Cause::Carrier, host.carrier_losses), (Cause::Stopped, host.lost_attempts.into())] {
            if times > 0 {
                causes.insert(cause, times as f64);
            }
        }
        causes
    }

    /// Returns the largest factor between a figure of the trial's probe and the median of this figure over the run. `None` if the
    /// trial has no probe, or if the run has too few.
    pub fn probe_factor(&self, trial: &TrialRecord) -> Option<f64> {
        let (usual, probe) = (self.usual?, trial.host?.probe?);
        let factors = figures(&usual).into_iter().zip(figures(&probe));
        let factors = factors.filter_map(|(usual, own)| Some(own? as f64 / usual?.max(1) as f64));
        factors.max_by(f64::total_cmp)
    }

    /// Returns the number of rounds.
    pub fn rounds(&self) -> usize {
        self.rounds
    }

    /// Returns the number of disturbed rounds.
    pub fn disturbed(&self) -> usize {
        self.disturbed.len()
    }

    /// Returns the smallest and the largest number of undisturbed blocks that a workload has.
    pub fn undisturbed(&self) -> (usize, usize) {
        let numbers = || self.blocks.values().map(Blocks::undisturbed);
        (numbers().min().unwrap_or(0), numbers().max().unwrap_or(0))
    }

    /// Returns whether a round is disturbed.
    pub fn is_disturbed(&self, slot: Slot) -> bool {
        self.disturbed.contains_key(&slot)
    }

    /// Returns the disturbed rounds with their causes.
    pub fn each(&self) -> impl Iterator<Item = (Slot, &Causes)> {
        self.disturbed.iter().map(|(slot, causes)| (*slot, causes))
    }

    /// Returns what disturbed a round, in words; `None` if it is undisturbed.
    pub fn round(&self, slot: Slot) -> Option<String> {
        let causes = self.disturbed.get(&slot)?;
        Some(causes.iter().map(|(cause, extent)| cause.words(*extent)).collect::<Vec<_>>().join("; "))
    }

    /// Returns whether the block of a trial is disturbed.
    pub fn is_in_disturbed_block(&self, trial: &TrialRecord) -> bool {
        self.blocks.get(&key(&trial.cell)).is_some_and(|blocks| blocks.disturbed.contains(&trial.slot()))
    }

    /// Returns whether a trial is left out. If every block of a workload is disturbed, none is left out, so that the report has
    /// figures. They carry no verdict.
    pub fn leaves_out(&self, trial: &TrialRecord) -> bool {
        self.is_in_disturbed_block(trial)
            && self.blocks.get(&key(&trial.cell)).is_some_and(|blocks| blocks.undisturbed() > 0)
    }

    /// Returns whether no workload of the run can have a verdict, because too few blocks are undisturbed.
    pub fn forbids_verdict(&self) -> bool {
        !self.blocks.is_empty() && self.blocks.values().all(Blocks::forbid_verdict)
    }

    /// Returns the run without the trials that are left out.
    pub fn kept<'a>(&self, run: &'a Run) -> Cow<'a, Run> {
        if !run.trials.iter().any(|trial| self.leaves_out(trial)) {
            return Cow::Borrowed(run);
        }
        let trials = run.trials.iter().filter(|trial| !self.leaves_out(trial)).cloned().collect();
        Cow::Owned(Run {
            directory: run.directory.clone(),
            plan: run.plan.clone(),
            levels: run.levels.clone(),
            environment: run.environment.clone(),
            trials,
            paths: run.paths.clone(),
            skipped: run.skipped.clone(),
            monitor: Vec::new(),
            damage: run.damage.clone(),
            ended: run.ended,
        })
    }

    /// Returns what disturbed the rounds, how many they were, and from how many rounds the figures are. `None` if no round is disturbed.
    /// The result has no capital letter and no full stop.
    pub fn words(&self) -> Option<String> {
        if self.disturbed.is_empty() {
            return None;
        }
        let rounds = self.rounds;
        let said = Cause::ALL.into_iter().filter_map(|cause| {
            let extents: Vec<f64> = self.disturbed.values().filter_map(|causes| causes.get(&cause).copied()).collect();
            let median = extents[lower_median(&extents)?];
            Some(format!("{} in {} of {rounds} {}", cause.words(median), extents.len(), noun(rounds)))
        });
        let said = said.collect::<Vec<_>>().join("; ");
        let figures = match self.undisturbed() {
            (_, 0) => "all figures come from disturbed rounds".to_owned(),
            (least, most) if least == most && most + self.disturbed.len() == rounds => {
                format!("siga uses only the other {most}")
            }
            (least, most) => {
                let number = if least == most { most.to_string() } else { format!("{least} to {most}") };
                format!("siga uses only the undisturbed rounds of each workload ({number})")
            }
        };
        Some(format!("{said}; {figures}"))
    }

    /// Returns the reason why no workload of the run has a verdict; `None` if one may have. The result has no capital letter and no
    /// full stop.
    pub fn no_verdict(&self) -> Option<String> {
        let words = self.words().filter(|_| self.forbids_verdict())?;
        let (least, (_, left)) = (trials_least(1), self.undisturbed());
        Some(format!("{words}; a verdict needs at least {least} undisturbed rounds, but the run has {left}"))
    }

    /// Returns the reason why the workload of a cell has no verdict; `None` if it may have one. The result has no capital letter and
    /// no full stop.
    pub fn no_verdict_of(&self, cell: &Cell) -> Option<String> {
        let blocks = self.blocks.get(&key(cell)).filter(|blocks| blocks.forbid_verdict())?;
        let (words, least, left) = (self.words()?, trials_least(1), blocks.undisturbed());
        let all = self.undisturbed() == (left, left);
        let owner = if all { "the run" } else { "this workload" };
        Some(format!("{words}; a verdict needs at least {least} undisturbed rounds, but {owner} has {left}"))
    }

    /// Returns a sentence about the disturbed rounds for the begin of a report; an empty string if no round is disturbed.
    pub fn sentence(&self) -> String {
        match (self.no_verdict(), self.words()) {
            (Some(reason), _) => format!("No verdict: {reason}."),
            (None, Some(words)) => format!("Disturbed: {words}."),
            (None, None) => String::new(),
        }
    }
}

/// Returns what the trials of a block have in common.
fn key(cell: &Cell) -> (Work, u32) {
    (cell.workload, cell.clients)
}

/// Returns which share of the CPU time of a trial's hosts `ns` is.
pub fn share(trial: &TrialRecord, ns: u64) -> f64 {
    // `cpus` is the sum over the hosts, and each host was measured for the same wall time.
    ns as f64 / (trial.cpu.wall_ns as f64 * f64::from(trial.cpu.cpus)).max(1.0)
}

fn figures(probe: &Probe) -> [Option<u64>; 3] {
    [Some(probe.wake_here_ns), probe.wake_across_ns, probe.cache_line_ns]
}

/// Returns the median of each figure over the probes of a run; `None` if there are too few probes.
fn usual(trials: &[TrialRecord]) -> Option<Probe> {
    let probes: Vec<Probe> = trials.iter().filter_map(|trial| trial.host?.probe).collect();
    let median = |at: usize| -> Option<u64> {
        let mut all: Vec<u64> = probes.iter().filter_map(|probe| figures(probe)[at]).collect();
        all.sort_unstable();
        (all.len() >= PROBES_LEAST).then(|| all[all.len() / 2])
    };
    Some(Probe { wake_here_ns: median(0)?, wake_across_ns: median(1), cache_line_ns: median(2) })
}

fn noun(rounds: usize) -> &'static str {
    if rounds == 1 { "round" } else { "rounds" }
}

#[cfg(test)]
mod tests;
