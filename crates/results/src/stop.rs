//! The stop rule: it decides when a run has measured enough. The criterion is the width of the intervals, never a p value
//! (decision 005).
//!
//! A comparison of two cells is settled (needs no more trials) when both conditions hold, or when each cell has
//! `limits::STOP_TRIALS_MAX` trials:
//! - The 95% intervals of the ratios of rate, of CPU time and of the figures of commands extend at most 1% to either side of the ratio.
//! - There are enough trials that the smallest possible p of a main figure stays below 0.05 after the adjustment for all main
//!   figures of the comparison. This holds even if no other figure differs, which is when the adjustment raises the smallest p
//!   most.
//!
//! Trials of disturbed rounds do not count, so that the run measures these rounds again. But they count for the limit, so that a host
//! that is always disturbed ends the run.
//!
//! A cell that is compared with no other cell is settled when it has the minimum number of trials that gives a 95% interval.

use crate::judge::{Judgement, Metric, Rounds, pairs};
use crate::limits;
use crate::record::TrialRecord;
use crate::stats::adjust::trials_least;
use crate::store::Run;
use crate::summary::{base_of, cpu_ms};
use siga_plan::command::Command;
use siga_plan::command::figure::FigureKey;
use siga_plan::level::Level;
use siga_plan::matrix::Cell;
use siga_plan::plan::Plan;
use std::collections::HashSet;

/// Maximum half width of a 95% interval with which a comparison can be settled, as a fraction of the ratio.
const HALF_WIDTH: f64 = 0.01;

/// The number of trials that the comparisons of a run need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needed {
    /// Number of main figures of the comparison with most figures; 0 if nothing is compared.
    pub figures: usize,
    /// Minimum number of trials of each cell with which each of these figures can be decided by itself.
    pub trials: usize,
    /// Number of cells that are compared with no other cell. They need only [`TRIALS_ALONE`] trials each.
    pub alone: usize,
}

/// Number of trials of a cell that is compared with no other cell: the minimum that gives a 95% interval.
pub const TRIALS_ALONE: usize = 6;

/// Returns the number of trials that a run of these cells needs before it can stop.
pub fn needed(plan: &Plan, levels: &[Level], cells: &[Cell]) -> Needed {
    needed_by(plan, &pairs(levels, cells), cells)
}

fn needed_by(plan: &Plan, comparisons: &[Vec<(Cell, Cell)>], cells: &[Cell]) -> Needed {
    let of_command = |cell: &Cell| plan.command_of(cell).map_or(0, Command::figure_count);
    let figures = comparisons
        .iter()
        .map(|pairs| pairs.iter().map(|(_, new)| Metric::main_of(new.workload).count() + of_command(new)).sum())
        .max()
        .unwrap_or(0);
    let compared = compared(comparisons);
    let alone = cells.iter().filter(|cell| !compared.contains(cell)).count();
    Needed { figures, trials: trials_least(figures), alone }
}

fn compared(comparisons: &[Vec<(Cell, Cell)>]) -> HashSet<&Cell> {
    comparisons.iter().flatten().flat_map(|(base, new)| [base, new]).collect()
}

/// Returns the cells of a run that need more trials. `cells` must not contain a cell that cannot be measured, because a
/// comparison with that cell would never be settled.
pub fn unsettled(run: &Run, cells: &[Cell]) -> HashSet<Cell> {
    let rounds = Rounds::new(run);
    let comparisons = pairs(&run.levels, cells);
    let least = needed_by(&run.plan, &comparisons, cells).trials;
    let mut open: HashSet<Cell> = HashSet::new();
    for (base, new) in comparisons.iter().flatten() {
        // If most rounds are disturbed, no interval can settle a comparison.
        let undecidable = rounds.disturbance.no_verdict_of(base).is_some();
        if undecidable || !is_settled(&rounds.of(base).beside(rounds.of(new)), least) {
            open.extend([base.clone(), new.clone()]);
        }
    }
    let compared = compared(&comparisons);
    let alone = cells.iter().filter(|cell| !compared.contains(cell) && rounds.of(cell).count() < TRIALS_ALONE);
    open.extend(alone.cloned());
    // If a trial has the profiler cannot run (CPU samples), the router's CPU time is the difference from the path
    // without the router. So the
    // cell of that path needs more trials, too.
    let unseen = |cell: &&Cell| {
        rounds.of(cell).sound.values().any(|trial| trial.cpu.profile.is_none() && trial.cpu.guests.is_none())
    };
    let bases: Vec<Cell> = open.iter().filter(unseen).filter_map(base_of).collect();
    open.extend(bases.into_iter().filter(|base| cells.contains(base)));
    open.retain(|cell| rounds.of(cell).measured() < limits::STOP_TRIALS_MAX);
    open
}

fn is_settled(rounds: &[(&TrialRecord, &TrialRecord)], least: usize) -> bool {
    let narrow = |figure: &dyn Fn(&TrialRecord) -> f64| {
        let ratios: Vec<f64> = rounds.iter().map(|(base, new)| (figure(new) / figure(base)).ln()).collect();
        // A figure that is zero in a trial has no ratio, so further trials cannot settle it.
        if ratios.iter().any(|ratio| !ratio.is_finite()) {
            return true;
        }
        let half = Judgement::paired(&ratios).and_then(|judgement| judgement.half_width());
        half.is_some_and(|half| half <= HALF_WIDTH)
    };
    let first = rounds.first().map(|(base, _)| base.figures()).unwrap_or_default();
    let narrow_figure = |key: FigureKey| {
        let value = |trial: &TrialRecord| {
            trial.figures().into_iter().find(|(other, _)| *other == key).map_or(0.0, |(_, value)| value)
        };
        narrow(&value)
    };
    rounds.len() >= least
        && narrow(&TrialRecord::rate)
        && narrow(&cpu_ms)
        && first.into_iter().all(|(key, _)| narrow_figure(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::HostRecord;

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
        // One pair of cells with three main figures: ceil(log2(2 x 3 / 0.05)).
        assert_eq!(needed(&Plan::default(), &[], &cells), Needed { figures: 3, trials: 7, alone: 0 });
        let least = 7;
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
    fn disturbed_rounds_are_measured_again_up_to_the_limit() {
        let disturbed = |rounds: u32, from: u32| {
            let mut run = run(rounds, 4);
            for trial in run.trials.iter_mut().filter(|trial| trial.round >= from && trial.cell.path == "veth") {
                trial.host = Some(HostRecord { steal_ns: 200_000_000, ..HostRecord::default() });
            }
            run
        };
        let cells = run(1, 4).cells();
        let most = u32::try_from(limits::STOP_TRIALS_MAX).unwrap();
        assert_eq!(unsettled(&disturbed(20, 19), &cells).len(), 0);
        assert_eq!(unsettled(&disturbed(20, 4), &cells).len(), 2, "four rounds are too few");
        assert_eq!(
            unsettled(&disturbed(20, 0), &cells).len(),
            2,
            "a run with disturbed rounds goes on, however narrow its intervals are"
        );
        assert_eq!(unsettled(&disturbed(most, 4), &cells).len(), 0);
    }

    #[test]
    fn flawed_trials_do_not_settle_and_an_uncompared_cell_needs_six_trials() {
        let mut run = run(7, 4);
        let cells: Vec<Cell> = run.cells();
        run.trials[3].flags.push("2 connections were reset".into());
        assert_eq!(unsettled(&run, &cells).len(), 2);
        run.trials.retain(|trial| trial.cell.path == "veth");
        assert!(unsettled(&run, &cells[..1]).is_empty(), "six trials are enough alone");
        run.trials.truncate(5);
        assert_eq!(unsettled(&run, &cells[..1]).len(), 1);
    }
}
