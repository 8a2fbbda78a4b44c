//! When a run has measured enough: the width of the intervals decides, never p.
//!
//! A comparison is settled once the 95% intervals of the ratios of rate and CPU time lie within 1% of them, with enough
//! trials for one difference among all tests of the table to be called real; or at `limits::STOP_TRIALS_MAX`. What a run
//! does not compare is settled with the fewest trials that have an interval.

use super::noise::log_ratios;
use super::{Metric, pairs};
use crate::level::Level;
use crate::limits;
use crate::plan::Cell;
use crate::record::TrialRecord;
use crate::stats::adjust::trials_least;
use crate::stats::decide::Judgement;
use crate::store::Run;
use crate::summary::cpu_ms;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Half a 95% interval as a part of the ratio that is narrow enough.
const HALF_WIDTH: f64 = 0.01;

/// Fewest rounds before a run of these cells can stop.
pub fn rounds_least(levels: &[Level], cells: &[Cell]) -> usize {
    least(pairs(levels, cells).len())
}

/// Each pair of cells has up to a test a metric.
fn least(pairs: usize) -> usize {
    trials_least(pairs * Metric::ALL.len())
}

/// Those of the cells of a run that need more trials.
pub fn unsettled(run: &Run, cells: &[Cell]) -> HashSet<Cell> {
    let mut trials: HashMap<&Cell, BTreeMap<u32, &TrialRecord>> = HashMap::new();
    for trial in &run.trials {
        trials.entry(&trial.cell).or_default().insert(trial.round, trial);
    }
    let pairs = pairs(&run.levels, cells);
    let least = least(pairs.len());
    let none = BTreeMap::new();
    let of = |cell: &Cell| trials.get(cell).unwrap_or(&none);
    let mut open: HashSet<&Cell> = HashSet::new();
    for (base, new) in pairs.iter().filter(|(base, new)| !is_settled(of(base), of(new), least)) {
        open.extend([base, new]);
    }
    let compared: HashSet<&Cell> = pairs.iter().flat_map(|(base, new)| [base, new]).collect();
    open.extend(cells.iter().filter(|cell| !compared.contains(cell) && of(cell).len() < trials_least(1)));
    open.into_iter().filter(|cell| of(cell).len() < limits::STOP_TRIALS_MAX).cloned().collect()
}

fn is_settled(base: &BTreeMap<u32, &TrialRecord>, new: &BTreeMap<u32, &TrialRecord>, least: usize) -> bool {
    let sound = |trial: &TrialRecord| trial.flags.is_empty();
    let beside = base.iter().filter_map(|(round, base)| Some((*base, *new.get(round)?)));
    let rounds: Vec<_> = beside.filter(|(base, new)| sound(base) && sound(new)).collect();
    let narrow = |figure: fn(&TrialRecord) -> f64| {
        let (base, new): (Vec<f64>, Vec<f64>) = rounds.iter().map(|(base, new)| (figure(base), figure(new))).unzip();
        let half = Judgement::paired(&log_ratios(&base, &new)).and_then(|judgement| judgement.half_width());
        half.is_some_and(|half| half <= HALF_WIDTH)
    };
    rounds.len() >= least && narrow(TrialRecord::rate) && narrow(cpu_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::environment::Environment;
    use crate::plan::Plan;
    use crate::summary::trial_of;

    /// A run of two paths whose total CPU time spreads by `spread_ms` of 1,000.
    fn run(rounds: u32, spread_ms: u64) -> Run {
        let spread = |round: u32| 700 + u64::from(round * 7 % 5) * spread_ms / 4;
        let trial = |round: u32| {
            [trial_of("veth", round, 700, None), trial_of("veth-routed", round, 300 + spread(round), None)]
        };
        Run {
            directory: "run".into(),
            plan: Plan::default(),
            levels: Vec::new(),
            environment: Environment::default(),
            trials: (0..rounds).flat_map(trial).collect(),
            paths: Vec::new(),
            skipped: Vec::new(),
            damage: Vec::new(),
            ended: false,
        }
    }

    #[test]
    fn a_comparison_goes_on_until_its_interval_is_narrow() {
        let cells: Vec<Cell> = run(1, 0).trials.into_iter().map(|trial| trial.cell).collect();
        let least = u32::try_from(rounds_least(&[], &cells)).unwrap();
        // One pair with a test for each of 18 metrics: ceil(log2(2 x 18 / 0.05)).
        assert_eq!(least, 10);
        assert_eq!(unsettled(&run(least - 1, 4), &cells).len(), 2, "too few rounds, however narrow");
        assert_eq!(unsettled(&run(least, 4), &cells).len(), 0);
        assert_eq!(unsettled(&run(least, 200), &cells).len(), 2, "too wide");
        let most = u32::try_from(limits::STOP_TRIALS_MAX).unwrap();
        assert_eq!(unsettled(&run(most, 200), &cells).len(), 0, "there is an end to it");
    }

    #[test]
    fn unsound_trials_settle_nothing_and_what_is_not_compared_needs_few() {
        let mut run = run(10, 4);
        let cells: Vec<Cell> = run.cells();
        run.trials[3].flags.push("2 connections were reset".into());
        assert_eq!(unsettled(&run, &cells).len(), 2);
        run.trials.retain(|trial| trial.cell.path == "veth");
        assert!(unsettled(&run, &cells[..1]).is_empty(), "six trials are enough alone");
        run.trials.truncate(5);
        assert_eq!(unsettled(&run, &cells[..1]).len(), 1);
    }
}
