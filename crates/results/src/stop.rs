//! The stop rule: it decides when a run has measured enough. The criterion is the width of the intervals, never a p value
//! (decision 005).
//!
//! A comparison of two cells is settled (needs no more trials) when both conditions hold, or when each cell has
//! `limits::STOP_TRIALS_MAX` trials:
//! - The 95% intervals of the ratios of rate and of CPU time extend at most 1% to either side of the ratio.
//! - There are enough trials that the smallest possible p stays below 0.05 after the adjustment for all tests of the comparison
//!   table. This holds even if all other tests find no difference, which is when the adjustment raises the smallest p most.
//!
//! A cell that is compared with no other cell is settled when it has the minimum number of trials that gives a 95% interval.

use crate::judge::{Judgement, Metric, Rounds, pairs};
use crate::limits;
use crate::record::TrialRecord;
use crate::stats::adjust::trials_least;
use crate::store::Run;
use crate::summary::{base_of, cpu_ms};
use siga_plan::level::Level;
use siga_plan::matrix::Cell;
use std::collections::HashSet;

/// Maximum half width of a 95% interval with which a comparison can be settled, as a fraction of the ratio.
const HALF_WIDTH: f64 = 0.01;

/// Returns the minimum number of rounds before a run of these cells can stop.
pub fn rounds_least(levels: &[Level], cells: &[Cell]) -> usize {
    least(pairs(levels, cells).len())
}

/// Returns the minimum number of trials of each cell if `pairs` pairs of cells are compared. Each pair has at most one test for
/// each metric.
fn least(pairs: usize) -> usize {
    trials_least(pairs * Metric::ALL.len())
}

/// Returns the cells of a run that need more trials. `cells` must not contain a cell that cannot be measured, because a
/// comparison with that cell would never be settled.
pub fn unsettled(run: &Run, cells: &[Cell]) -> HashSet<Cell> {
    let rounds = Rounds::new(run);
    let pairs = pairs(&run.levels, cells);
    let least = least(pairs.len());
    let mut open: HashSet<Cell> = HashSet::new();
    for (base, new) in &pairs {
        if !is_settled(&rounds.of(base).beside(rounds.of(new)), least) {
            open.extend([base.clone(), new.clone()]);
        }
    }
    let compared: HashSet<&Cell> = pairs.iter().flat_map(|(base, new)| [base, new]).collect();
    let alone = cells.iter().filter(|cell| !compared.contains(cell) && rounds.of(cell).count() < trials_least(1));
    open.extend(alone.cloned());
    // If a trial has no profile (CPU samples), the router's CPU time is the difference from the path without the router. So the
    // cell of that path needs more trials, too.
    let unseen = |cell: &&Cell| rounds.of(cell).sound.values().any(|trial| trial.cpu.profile.is_none());
    let bases: Vec<Cell> = open.iter().filter(unseen).filter_map(base_of).collect();
    open.extend(bases.into_iter().filter(|base| cells.contains(base)));
    open.retain(|cell| rounds.of(cell).count() < limits::STOP_TRIALS_MAX);
    open
}

fn is_settled(rounds: &[(&TrialRecord, &TrialRecord)], least: usize) -> bool {
    let narrow = |figure: fn(&TrialRecord) -> f64| {
        let ratios: Vec<f64> = rounds.iter().map(|(base, new)| (figure(new) / figure(base)).ln()).collect();
        let half = Judgement::paired(&ratios).and_then(|judgement| judgement.half_width());
        half.is_some_and(|half| half <= HALF_WIDTH)
    };
    rounds.len() >= least && narrow(TrialRecord::rate) && narrow(cpu_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a run of two paths whose total CPU time varies by `spread_ms` of 1,000 ms.
    fn run(rounds: u32, spread_ms: u64) -> Run {
        let spread = |round: u32| 700 + u64::from(round * 7 % 5) * spread_ms / 4;
        let trial = |round: u32| {
            [
                crate::testing::trial("veth", round, 700, None),
                crate::testing::trial("veth-routed", round, 300 + spread(round), None),
            ]
        };
        crate::testing::run("run", (0..rounds).flat_map(trial).collect())
    }

    #[test]
    fn a_comparison_continues_until_its_interval_is_narrow() {
        let cells: Vec<Cell> = run(1, 0).trials.into_iter().map(|trial| trial.cell).collect();
        let least = u32::try_from(rounds_least(&[], &cells)).unwrap();
        // One comparison with a test for each of 18 metrics: ceil(log2(2 x 18 / 0.05)).
        assert_eq!(least, 10);
        assert_eq!(unsettled(&run(least - 1, 4), &cells).len(), 2, "too few rounds, however narrow");
        assert_eq!(unsettled(&run(least, 4), &cells).len(), 0);
        assert_eq!(unsettled(&run(least, 200), &cells).len(), 2, "too wide");
        let most = u32::try_from(limits::STOP_TRIALS_MAX).unwrap();
        assert_eq!(unsettled(&run(most, 200), &cells).len(), 0, "the limit ends it");
    }

    #[test]
    fn a_variant_is_settled_by_the_level_that_it_varies() {
        // The rates of 420 with and without packing vary together; the rate of 430 varies independently.
        let mut run = crate::testing::run("run", Vec::new());
        run.levels = ["430", "420", "420+packing"].map(|name| Level { name: name.into(), ..Level::plain() }).into();
        for (round, level) in (0..12).flat_map(|round| [0, 1, 2].map(|level| (round, level))) {
            let mut trial = crate::testing::trial("veth", round, 700, None);
            trial.cell.level.clone_from(&run.levels[level].name);
            trial.elapsed_ns = 1_000_000_000 + if level > 0 { u64::from(round % 4) * 200_000_000 } else { 0 };
            run.trials.push(trial);
        }
        let cells = run.cells();
        let mut open: Vec<String> = unsettled(&run, &cells).into_iter().map(|cell| cell.level).collect();
        open.sort();
        assert_eq!(open, ["420", "430"], "420+packing is as far from 420 in each round");
    }

    #[test]
    fn flawed_trials_do_not_settle_and_an_uncompared_cell_needs_six_trials() {
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
