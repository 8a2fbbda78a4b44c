//! Every figure of every trial of one run. The same values as `judge::value`, in time that grows with the number of trials:
//! partners are looked up, not searched for.

use crate::account::Method;
use crate::error::Result;
use crate::histogram;
use crate::judge::{Metric, figure};
use crate::plan::Cell;
use crate::record::TrialRecord;
use crate::store::Run;
use crate::summary::{Cpu, base_of, by_profile, by_tick};
use std::collections::HashMap;

/// The trials of a cell by round: the sound ones, or all where none is.
type Rounds<'a> = HashMap<u32, &'a TrialRecord>;

/// A run whose trials can be asked for their figures.
pub(super) struct Figures<'a> {
    run: &'a Run,
    method: Option<Method>,
    cells: HashMap<&'a Cell, Rounds<'a>>,
    /// The cells of which at least one trial has a partner, and the partner's cell.
    paired: HashMap<&'a Cell, Cell>,
}

impl<'a> Figures<'a> {
    pub(super) fn new(run: &'a Run, method: Option<Method>) -> Self {
        let mut all: HashMap<&Cell, Vec<&TrialRecord>> = HashMap::new();
        for trial in &run.trials {
            all.entry(&trial.cell).or_default().push(trial);
        }
        let rounds = |trials: &[&'a TrialRecord]| {
            let sound = trials.iter().any(|trial| trial.flags.is_empty());
            let mut rounds = Rounds::new();
            for trial in trials.iter().filter(|trial| !sound || trial.flags.is_empty()) {
                rounds.entry(trial.round).or_insert(trial);
            }
            rounds
        };
        let cells: HashMap<&Cell, Rounds<'_>> = all.iter().map(|(cell, trials)| (*cell, rounds(trials))).collect();
        let pair = |(cell, own): (&&'a Cell, &Rounds<'_>)| {
            let base = base_of(cell)?;
            let others = cells.get(&base)?;
            own.keys().any(|round| others.contains_key(round)).then_some((*cell, base))
        };
        let paired = cells.iter().filter_map(pair).collect();
        Self { run, method, cells, paired }
    }

    /// The figures of a trial in the order of `Metric::ALL`, those that it has, and the method behind its CPU times.
    pub(super) fn of(&self, trial: &TrialRecord) -> Result<(Method, Vec<(Metric, f64)>)> {
        let cpu = self.cpu(trial);
        let latency = histogram::decode(&trial.latency).map_err(|error| {
            let place = format!("{}: {}, trial of {}", self.run.directory.display(), trial.cell, trial.at);
            error.at(place).hint("the run was changed after it was written; leave it out")
        })?;
        let latency = histogram::percentiles(&latency);
        let partner = || self.cells.get(self.paired.get(&trial.cell)?)?.get(&trial.round).copied();
        let one = |&metric: &Metric| Some((metric, figure(trial, &cpu, &latency, metric, partner)?));
        Ok((cpu.method, Metric::ALL.iter().filter_map(one).collect()))
    }

    fn cpu(&self, trial: &TrialRecord) -> Cpu {
        let own = by_tick(trial);
        match (self.method, &trial.cpu.profile) {
            (None | Some(Method::Profile), Some(profile)) => by_profile(trial, profile),
            (None | Some(Method::Subtract), _) if self.paired.contains_key(&trial.cell) => {
                Cpu { method: Method::Subtract, ..own }
            }
            (None | Some(Method::Profile | Method::Subtract | Method::Tick), _) => own,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::judge;
    use crate::plan::Plan;
    use crate::record::{Charges, ProfileRecord, Samples};
    use crate::summary::{cpu_of, trial_of};

    /// Routed and direct trials, some alone, some flagged, some with a profile.
    fn run() -> Run {
        let samples = |user, kernel| Samples { user, kernel };
        let profile = ProfileRecord {
            period_ns: 1_000_000,
            on_client: Charges { client: samples(20, 180), router: samples(0, 200), ..Charges::default() },
            on_server: Charges { server: samples(30, 270), ..Charges::default() },
            elsewhere: Charges::default(),
        };
        let mut trials = Vec::new();
        for round in 0..6_u32 {
            let busy = 700 + u64::from(round) * 10;
            let mut direct = trial_of("veth", round, busy, (round == 4).then_some(profile));
            direct.flags.extend((round == 1).then(|| "reset".to_owned()));
            direct.cpu.client.run_ns += u64::from(round);
            trials.extend((round != 3).then_some(direct));
            let mut routed = trial_of("veth-routed", round, busy + 300, (round == 5).then_some(profile));
            routed.flags.extend((round == 2).then(|| "reset".to_owned()));
            trials.push(routed);
            trials.push(trial_of("loopback", round, busy, None));
        }
        Run {
            directory: "run".into(),
            plan: Plan::default(),
            environment: Environment::default(),
            trials,
            paths: Vec::new(),
            skipped: Vec::new(),
            damage: Vec::new(),
            levels: Vec::new(),
            ended: true,
        }
    }

    #[test]
    fn figures_are_those_of_the_judge() {
        let run = run();
        let mut methods = Vec::new();
        for method in [None, Some(Method::Profile), Some(Method::Subtract), Some(Method::Tick)] {
            let figures = Figures::new(&run, method);
            for trial in &run.trials {
                let cpu = cpu_of(&run, trial, method);
                let latency = histogram::percentiles(&histogram::decode(&trial.latency).unwrap());
                let one = |&metric: &Metric| Some((metric, judge::value(&run, trial, &cpu, &latency, metric)?));
                let wanted: Vec<_> = Metric::ALL.iter().filter_map(one).collect();
                let place = format!("{} round {} by {method:?}", trial.cell, trial.round);
                assert_eq!(figures.of(trial).unwrap(), (cpu.method, wanted), "{place}");
                methods.push(cpu.method);
            }
        }
        for method in [Method::Profile, Method::Subtract, Method::Tick] {
            assert!(methods.contains(&method), "no trial by {method}");
        }
    }

    #[test]
    fn a_damaged_histogram_is_named() {
        let mut run = run();
        run.trials[0].latency = "###".into();
        let error = Figures::new(&run, None).of(&run.trials[0]).unwrap_err();
        assert!(error.message().contains("run: veth rr-200-1000") && error.way_out().is_some(), "{error}");
    }
}
