//! A run: the cells of a plan measured in interleaved rounds, every finished trial on disk before the next begins.
//!
//! A round measures each cell once, in a new random order, so that drift of the host affects all cells alike. Rounds
//! go on until each cell has the trials that the plan requests. Without such a number they go on until every
//! comparison is precise enough (`stop::unsettled`), or until the next round would exceed the budget. A cell whose
//! path cannot be built is skipped with its reason; an end that dies costs its trial. An interrupt ends the run
//! between two lines of the record.

use crate::cpu::profile::Profiler;
use crate::interrupt::interrupted;
use crate::load::content::mix;
use crate::trial::Bench;
use siga_model::error::{Error, ErrorKind, Result};
use siga_plan::accounting::Method;
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::plan::Plan;
use siga_results::limits;
use siga_results::record::{Skipped, TrialRecord};
use siga_results::stop;
use siga_results::store::{Run, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Time a trial takes beside warming up and measuring, before it is known better: building, connecting, ending.
const AROUND_TRIAL: Duration = Duration::from_millis(150);
/// Trials of a cell that may fail before the cell is given up.
const FAILURES_MAX: u32 = 3;

/// Receives the progress of a run.
pub trait Watch {
    /// A trial of `cell` begins.
    fn begins(&mut self, cell: &Cell, progress: &Progress);
    /// A trial has ended.
    fn measured(&mut self, trial: &TrialRecord, progress: &Progress);
    /// A cell, or one trial of it, has no figure, and the reason.
    fn skipped(&mut self, skipped: &Skipped);
    /// A round has ended; `run` holds everything measured so far.
    fn round(&mut self, run: &Run, progress: &Progress);
    /// A note that is no error.
    fn note(&mut self, text: &str);
}

/// How far a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Round, from 0.
    pub round: u32,
    /// Trials measured, those of an earlier process included.
    pub done: usize,
    /// Estimated number of trials at the end.
    pub total: usize,
    /// Estimated time left.
    pub left: Duration,
}

/// How a run ended.
#[derive(Debug)]
pub struct Ended {
    /// Everything measured.
    pub run: Run,
    /// Trials that gave no figure.
    pub failed: u32,
    /// Those of them that the host was fit for: an end died or stopped answering.
    pub died: u32,
    /// Why it is not whole: an interrupt, a full disk; `None` when it is.
    pub cut_short: Option<Error>,
}

/// How long a plan will take, checking and building included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Fewest and most rounds: they differ where the width of intervals decides.
    pub rounds: (u32, u32),
    /// The time these take.
    pub time: (Duration, Duration),
}

/// How long a plan will take.
pub fn estimate(plan: &Plan, matrix: &Matrix) -> Extent {
    let cells = u32::try_from(matrix.cells.len()).unwrap_or(u32::MAX).max(1);
    let round = trial_time(plan) * cells;
    let most = u32::try_from(limits::STOP_TRIALS_MAX).unwrap_or(u32::MAX);
    let least = u32::try_from(stop::rounds_least(&matrix.levels, &matrix.cells)).unwrap_or(u32::MAX).min(most);
    let (least, most) = plan.trials.map_or((least, most), |trials| (trials, trials));
    let fits = plan.budget_seconds.map_or(u32::MAX, |budget| {
        let fits = budget / round.as_secs_f64().max(1e-3);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped to a small range")]
        {
            fits.clamp(1.0, 1e6) as u32
        }
    });
    let rounds = (least.min(fits), most.min(fits));
    Extent { rounds, time: (round * rounds.0, round * rounds.1) }
}

fn trial_time(plan: &Plan) -> Duration {
    AROUND_TRIAL + Duration::from_secs_f64(plan.seconds + plan.warm_up_seconds)
}

/// Opens the profiler if the plan wants it or leaves the choice and the host has one.
///
/// # Errors
/// Environment: the plan asks for `profile` and the host refuses it.
pub fn profiler(plan: &Plan, watch: &mut dyn Watch) -> Result<Option<Profiler>> {
    match plan.accounting {
        Some(Method::Subtract | Method::Tick | Method::Processes) => Ok(None),
        Some(Method::Profile) => Profiler::open()
            .map(Some)
            .map_err(|error| error.hint("leave out --accounting to use the best method that the host allows")),
        None => {
            match Profiler::open() {
                Ok(profiler) => Ok(Some(profiler)),
                Err(error) => {
                    let reason = error.message();
                    watch.note(&format!("no profile ({reason}): a kernel router's cost is measured as the difference to the path without it"));
                    Ok(None)
                }
            }
        }
    }
}

/// Measures the missing trials of a plan and appends them to `store`; `profiler` is the result of the function of
/// that name. The command `ssh` reaches other hosts.
///
/// # Errors
/// Usage: the plan cannot be. What happens later cuts the run short.
pub fn run(
    store: &mut Store,
    mut so_far: Run,
    ssh: &str,
    profiler: Option<Profiler>,
    watch: &mut dyn Watch,
) -> Result<Ended> {
    let plan = so_far.plan.clone();
    let matrix = plan.matrix()?;
    let mut bench = Bench { plan: &plan, matrix: &matrix, ssh, profiler };
    let mut course = Course::new(&plan, &matrix, &so_far);
    if let Some(note) = plan.waits_otherwise(&matrix) {
        watch.note(&note);
    }
    for (cell, reason) in &matrix.skipped {
        let skipped = Skipped { cell: cell.clone(), reason: reason.clone() };
        if !so_far.skipped.contains(&skipped) {
            store.add_skipped(&skipped)?;
            watch.skipped(&skipped);
            so_far.skipped.push(skipped);
        }
    }
    so_far.ended = false;
    let mut round = 0;
    while course.goes_on(round) {
        if let Err(error) = course.round(round, &mut bench, store, &mut so_far, watch) {
            return Ok(course.end(so_far, Some(error)));
        }
        round += 1;
        course.settle(&so_far);
        watch.round(&so_far, &course.progress(round));
    }
    let ended = store.end(so_far.trials.len());
    so_far.ended = ended.is_ok();
    Ok(course.end(so_far, ended.err()))
}

/// Which trials are still to be measured.
struct Course<'a> {
    plan: &'a Plan,
    matrix: &'a Matrix,
    begun: Instant,
    done: BTreeSet<(usize, u32)>,
    failures: BTreeMap<usize, u32>,
    /// Cells that have enough trials.
    settled: BTreeSet<usize>,
    /// Number of this process among those that have measured the run.
    session: u32,
    /// Failures of all cells.
    failed: u32,
    died: u32,
    rounds: u32,
    /// Mean time of the trials of this process.
    spent: Duration,
    measured: u32,
}

impl<'a> Course<'a> {
    fn new(plan: &'a Plan, matrix: &'a Matrix, so_far: &Run) -> Self {
        let index = |cell: &Cell| matrix.cells.iter().position(|other| other == cell);
        let done = so_far.trials.iter().filter_map(|trial| Some((index(&trial.cell)?, trial.round))).collect();
        let (_, rounds) = estimate(plan, matrix).rounds;
        let mut course = Self {
            plan,
            matrix,
            begun: Instant::now(),
            done,
            failures: BTreeMap::new(),
            settled: BTreeSet::new(),
            session: so_far.trials.iter().map(|trial| trial.session.saturating_add(1)).max().unwrap_or(0),
            failed: 0,
            died: 0,
            rounds,
            spent: Duration::ZERO,
            measured: 0,
        };
        course.settle(so_far);
        course
    }

    /// Notes which cells have enough trials, if the precision of figures decides that.
    fn settle(&mut self, so_far: &Run) {
        if self.plan.trials.is_some() {
            return;
        }
        let open = stop::unsettled(so_far, &self.matrix.cells);
        self.settled =
            (0..self.matrix.cells.len()).filter(|&index| !open.contains(&self.matrix.cells[index])).collect();
    }

    fn end(&self, run: Run, cut_short: Option<Error>) -> Ended {
        Ended { run, failed: self.failed, died: self.died, cut_short }
    }

    /// Cells that still take part.
    fn live(&self) -> Vec<usize> {
        let takes_part = |index: &usize| !self.is_given_up(*index) && !self.settled.contains(index);
        (0..self.matrix.cells.len()).filter(takes_part).collect()
    }

    fn is_given_up(&self, index: usize) -> bool {
        self.failures.get(&index).is_some_and(|&count| count >= FAILURES_MAX)
    }

    fn missing(&self, round: u32) -> usize {
        self.live().iter().filter(|&&index| !self.done.contains(&(index, round))).count()
    }

    fn trial_time(&self) -> Duration {
        if self.measured == 0 { trial_time(self.plan) } else { self.spent / self.measured }
    }

    /// Time used, including that of an earlier process.
    fn used(&self) -> Duration {
        let earlier = self.done.len().saturating_sub(self.measured as usize);
        self.begun.elapsed() + trial_time(self.plan) * u32::try_from(earlier).unwrap_or(u32::MAX)
    }

    fn goes_on(&mut self, round: u32) -> bool {
        if self.live().is_empty() {
            return false;
        }
        let fits = self.plan.budget_seconds.is_none_or(|budget| {
            let missing = u32::try_from(self.missing(round)).unwrap_or(u32::MAX);
            self.used() + self.trial_time() * missing <= Duration::from_secs_f64(budget)
        });
        // The run shows how many rounds the budget allows.
        let most = self.plan.trials.unwrap_or_else(|| u32::try_from(limits::STOP_TRIALS_MAX).unwrap_or(u32::MAX));
        let goes_on = round < most && (fits || round == 0);
        if !goes_on {
            self.rounds = round;
        } else if self.plan.budget_seconds.is_some() {
            self.rounds = self.rounds.max(round + 1);
        }
        goes_on
    }

    fn progress(&self, round: u32) -> Progress {
        let ahead: usize = (round..self.rounds).map(|round| self.missing(round)).sum();
        let left = self.trial_time() * u32::try_from(ahead).unwrap_or(u32::MAX);
        Progress { round, done: self.done.len(), total: self.done.len() + ahead, left }
    }

    fn round(
        &mut self,
        round: u32,
        bench: &mut Bench<'_>,
        store: &mut Store,
        so_far: &mut Run,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let mut order = self.live();
        // Mixed, because seeds at a fixed distance would give rounds with the same draws, shifted by one.
        shuffle(&mut order, mix(self.plan.seed.unwrap_or(0)) ^ mix(u64::from(round) + 1));
        for index in order {
            if self.done.contains(&(index, round)) {
                continue;
            }
            if interrupted() {
                return Err(interrupted_error(so_far));
            }
            let cell = &self.matrix.cells[index];
            watch.begins(cell, &self.progress(round));
            let begun = Instant::now();
            let first = !so_far.paths.iter().any(|path| path.cell == *cell);
            match bench.trial(cell, round, first, &mut |note| watch.note(note)) {
                Ok((mut trial, path)) => {
                    trial.session = self.session;
                    if first {
                        store.add_path(&path)?;
                        so_far.paths.push(path);
                    }
                    store.add_trial(&trial)?;
                    self.done.insert((index, round));
                    self.spent += begun.elapsed();
                    self.measured += 1;
                    watch.measured(&trial, &self.progress(round));
                    so_far.trials.push(trial);
                }
                Err(_) if interrupted() => return Err(interrupted_error(so_far)),
                Err(error) => self.failed(index, &error, store, so_far, watch)?,
            }
        }
        Ok(())
    }

    fn failed(
        &mut self,
        index: usize,
        error: &Error,
        store: &mut Store,
        so_far: &mut Run,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        // An ability that the host lacks is missing in the next round too; a peer that died may be back.
        let count = match error.kind() {
            ErrorKind::Usage | ErrorKind::Environment => FAILURES_MAX,
            ErrorKind::Incomplete | ErrorKind::Regression => 1,
        };
        self.failed += 1;
        self.died += u32::from(error.kind() == ErrorKind::Incomplete);
        *self.failures.entry(index).or_default() += count;
        let skipped = Skipped { cell: self.matrix.cells[index].clone(), reason: error.to_string() };
        store.add_skipped(&skipped)?;
        watch.skipped(&skipped);
        so_far.skipped.push(skipped);
        Ok(())
    }
}

fn interrupted_error(so_far: &Run) -> Error {
    Error::incomplete("interrupted; what was measured is kept")
        .hint(format!("go on with `siga run --resume {}`", so_far.directory.display()))
}

/// Fisher and Yates's shuffle by a SplitMix64 sequence: the order follows from the seed alone.
fn shuffle(order: &mut [usize], seed: u64) {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(state)
    };
    for at in (1..order.len()).rev() {
        let other = usize::try_from(next() % (at as u64 + 1)).unwrap_or(0);
        order.swap(at, other);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_follows_from_its_seed_and_holds_every_cell() {
        let order = |seed| {
            let mut order: Vec<usize> = (0..20).collect();
            shuffle(&mut order, seed);
            order
        };
        assert_eq!(order(7), order(7));
        assert_ne!(order(7), order(8));
        let mut sorted = order(7);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    }

    #[test]
    fn the_estimate_follows_trials_or_the_budget() {
        let mut plan = Plan::default();
        let matrix = plan.matrix().unwrap();
        // One pair of cells, veth and veth-routed: as many as its tests need at least, and no more than 30.
        assert_eq!(estimate(&plan, &matrix).rounds, (10, 30));
        plan.trials = Some(3);
        assert_eq!(estimate(&plan, &matrix).rounds, (3, 3));
        plan.trials = None;
        plan.budget_seconds = Some(20.0);
        let Extent { rounds, time } = estimate(&plan, &matrix);
        assert!(rounds.0 >= 5 && rounds.1 < 10 && time.1 <= Duration::from_secs(20), "{rounds:?}, {time:?}");
        plan.budget_seconds = Some(0.1);
        assert_eq!(estimate(&plan, &matrix).rounds, (1, 1), "the first round is always measured");
    }
}
