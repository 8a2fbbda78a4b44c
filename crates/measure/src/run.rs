//! A run: measures the cells of a plan in rounds, and stores every finished trial before the next trial begins. A cell is a
//! combination of path, workload, MTU, pairs and level. A trial is one timed measurement of a cell.
//!
//! A round measures each cell once, in a new random order, so that a slow change of the host's speed affects all cells alike. Cells
//! that are compared with each other, because they have the same workload and number of pairs, follow one another.
//! Rounds continue until each cell has the number of trials that the plan requests. If the plan requests no number, rounds
//! continue until every comparison of two cells is precise enough (`stop::unsettled`). They also end when the next round would
//! exceed the plan's time budget.
//!
//! A round that the host disturbed does not count, so a further round replaces it within the budget (decision 027). Without a budget,
//! at most half as many rounds are added as the plan requests.
//!
//! A cell whose path cannot be built is skipped, and the reason is recorded. If the client or server dies, only the current
//! trial is lost. An interrupt ends the run between the writes of two records, so no record is incomplete.

pub mod hosts;
pub mod measurer;

use crate::build::Builds;
use crate::cpu::chains::Names;
use crate::cpu::profile::Profiler;
use crate::interrupt::interrupted;
use crate::load::content::mix;
use crate::needs::skip_lacking;
use crate::topology::Networks;
use crate::trial::prepare::Preparation;
pub use crate::trial::series::Series;
use crate::trial::{Bench, Measures, WITH_PROFILER, WITHOUT_PROFILER};
use siga_model::error::{Error, ErrorKind, Result};
use siga_plan::accounting::AccountingMethod;
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::path::guest::{Attach, Medium};
use siga_plan::plan::Plan;
use siga_plan::route::Route;
use siga_results::disturbance::Disturbance;
use siga_results::limits;
use siga_results::record::{Skipped, TrialRecord};
use siga_results::stats::adjust::trials_least;
use siga_results::stop;
use siga_results::store::{Run, Store};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::time::{Duration, Instant};

/// Estimated time that a trial needs in addition to warm-up and measurement: for building the path, connecting and ending. The
/// estimate is used until trials of this run have been timed.
const AROUND_TRIAL: Duration = Duration::from_millis(150);
/// Estimated time in seconds to connect and to end one pair of applications of guests.
const PAIR_AROUND: f64 = 0.015;
/// Estimated time in seconds until the last data of one stream have arrived at the end of the phases of a trial.
const STREAM_ENDS: f64 = 0.04;
/// The same time on a modelled channel, which is slow.
const STREAM_ENDS_ON_CHANNEL: f64 = 0.18;
/// Estimated time in seconds of the check of every byte before the first trial of a cell.
const FIRST_CHECK: f64 = 0.1;
/// Number of failed trials after which the run measures a cell no more.
const FAILURES_MAX: u32 = 3;

/// Receives the progress of a run.
pub trait Watch {
    /// Called when a trial of `cell` begins.
    fn begins(&mut self, cell: &Cell, progress: &Progress);
    /// Called when a trial has ended with a result.
    fn measured(&mut self, trial: &TrialRecord, progress: &Progress);
    /// Called when a cell or one of its trials could not be measured. `skipped` contains the reason.
    fn skipped(&mut self, skipped: &Skipped);
    /// Called when a round has ended. `run` contains all trials that have been measured so far.
    fn round(&mut self, run: &Run, progress: &Progress);
    /// Called with a message for the user that is not an error.
    fn note(&mut self, text: &str);
    /// Called when the trials of a round begin on the host with this name, in a run on several hosts.
    fn host(&mut self, name: &str);
}

/// The progress of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// The current round. The first round is 0.
    pub round: u32,
    /// Number of measured trials, including those that earlier processes measured before this run was resumed.
    pub done: usize,
    /// Estimate of `done` at the end of the run.
    pub total: usize,
    /// Estimated time until the end of the run.
    pub left: Duration,
}

/// The outcome of a run.
#[derive(Debug)]
pub struct Ended {
    /// The run with all its measured trials.
    pub run: Run,
    /// Number of trials that failed and therefore have no result.
    pub failed: u32,
    /// Number of failed trials whose cause was not the host, but a client or server that died or stopped answering.
    pub died: u32,
    /// If the run is incomplete: the reason, for example an interrupt or a full disk. `None` if the run is complete.
    pub cut_short: Option<Error>,
}

/// What a run uses besides its plan.
#[derive(Debug, Clone, Copy)]
pub struct Given<'a> {
    /// The command that connects to other hosts.
    pub ssh: &'a str,
    /// The builds that levels name.
    pub builds: &'a Builds,
    /// The user's own networks of the plan's paths.
    pub networks: &'a Networks,
}

/// An estimate of the number of rounds and of the time that a plan needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// Minimum and maximum number of rounds. They differ if the run ends as soon as its confidence intervals are narrow enough.
    pub rounds: (u32, u32),
    /// Time for the minimum and the maximum number of rounds, including building paths and checking.
    pub time: (Duration, Duration),
    /// Time for as many rounds as it takes to decide each main figure by itself.
    pub enough: Duration,
}

/// Estimates how many rounds a plan needs and how long they take.
pub fn estimate(plan: &Plan, matrix: &Matrix) -> Extent {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let needed = stop::needed(plan, &matrix.levels, &matrix.cells);
    let most = count(limits::STOP_TRIALS_MAX);
    let (least, most) = plan.trials.map_or((count(needed.trials).min(most), most), |trials| (trials, trials));
    // Without a fixed number of trials, a cell that is compared with no other cell drops out early.
    let alone = if plan.trials.is_some() { 0 } else { count(needed.alone) };
    let compared = count(matrix.cells.len()).max(1) - alone.min(count(matrix.cells.len()));
    let trial_time = trial_time(plan, &matrix.cells);
    let checks = matrix.cells.iter().filter(|cell| !is_command(cell)).count() as f64 * FIRST_CHECK;
    let time = |rounds: u32| {
        let trials = compared.saturating_mul(rounds).saturating_add(alone * rounds.min(count(stop::TRIALS_ALONE)));
        trial_time * trials + Duration::from_secs_f64(checks)
    };
    let fits = plan.budget_seconds.map_or(most, |budget| {
        let fit = (1..=most).take_while(|&rounds| time(rounds).as_secs_f64() <= budget);
        fit.last().unwrap_or(1)
    });
    let rounds = (least.min(fits), most.min(fits));
    Extent { rounds, time: (time(rounds.0), time(rounds.1)), enough: time(count(needed.trials)) }
}

/// Returns, in words, that a run of this plan will have too few trials to decide each main figure, and what to do; `None` if it
/// will have enough, compares nothing, or is a smoke run.
pub fn too_few(plan: &Plan, matrix: &Matrix) -> Option<String> {
    let stop::Needed { figures, trials, .. } = stop::needed(plan, &matrix.levels, &matrix.cells);
    let Extent { rounds: (_, most), enough, .. } = estimate(plan, matrix);
    if plan.smoke || figures == 0 || most as usize >= trials {
        return None;
    }
    let short = format!("cannot give a verdict on each of {figures} main figures; at least {trials} trials are needed");
    let all = if most == 1 { "1 trial".to_owned() } else { format!("{most} trials") };
    Some(match plan.budget_seconds.filter(|_| plan.trials.is_none_or(|wanted| wanted > most)) {
        Some(budget) => {
            format!("a budget of {budget} s allows only {all}, which {short}: use --budget {}", enough.as_secs() + 1)
        }
        None => format!("{all} {short}: use --trials {trials}"),
    })
}

/// Returns true if a plan measures commands only.
pub fn is_commands_only(plan: &Plan) -> bool {
    plan.has_commands() && plan.matrix().is_ok_and(|matrix| matrix.cells.iter().all(is_command))
}

fn is_command(cell: &Cell) -> bool {
    cell.workload.is_command()
}

/// Returns the estimated mean time of a trial of `cells`. It includes the phases with the plan's loads, and those for the profiler; on a
/// path of guests, only the one with it. A plan that names no accounting method uses the profiler if the host permits it.
fn trial_time(plan: &Plan, cells: &[Cell]) -> Duration {
    let (with, without) = match plan.accounting {
        Some(AccountingMethod::Profile) | None => {
            let paths = cells.iter().filter(|cell| !is_command(cell)).count();
            let kernel = cells.iter().filter(|cell| !is_command(cell) && !is_of_guests(cell)).count();
            let share = |count: usize| count as f64 / cells.len().max(1) as f64;
            (WITH_PROFILER * share(paths), WITHOUT_PROFILER * share(kernel))
        }
        Some(AccountingMethod::Subtract | AccountingMethod::Tick | AccountingMethod::Processes) => (0.0, 0.0),
    };
    let loads = plan.load.len() as f64;
    let seconds = plan.warm_up_seconds + plan.seconds * (1.0 + with + without + loads);
    let around = cells.iter().map(around).sum::<f64>() / cells.len().max(1) as f64;
    AROUND_TRIAL + Duration::from_secs_f64(seconds + around)
}

/// Returns the estimated time in seconds that a trial of a cell needs in addition to [`AROUND_TRIAL`]. It is large if client and server are
/// applications of guests, and where data wait for a modelled wire or channel.
fn around(cell: &Cell) -> f64 {
    let Ok(Route::Guests(path)) = cell.path.parse() else { return 0.0 };
    let is_wired = matches!(path.medium, Medium::Qdio1000BaseT | Medium::Qdio1Gbe | Medium::Qdio10Gbe | Medium::Lcs);
    if path.attach != Attach::Iucv && !is_wired && !path.medium.has_channel() {
        return 0.0;
    }
    let is_stream = cell.workload.network().is_some_and(|workload| workload.is_stream());
    let of_stream = if path.medium.has_channel() { STREAM_ENDS_ON_CHANNEL } else { STREAM_ENDS };
    f64::from(cell.clients) * (PAIR_AROUND + if is_stream { of_stream } else { 0.0 })
}

fn is_of_guests(cell: &Cell) -> bool {
    matches!(cell.path.parse(), Ok(Route::Guests(_) | Route::Own(_)))
}

/// Opens the profiler if the plan requests the accounting method `profile`. If the plan names no accounting method, opens the
/// profiler if the host permits it, and otherwise returns `None`.
///
/// # Errors
/// Returns an error of kind `Environment` if the plan requests `profile` and the host does not permit it.
pub fn profiler(plan: &Plan, watch: &mut dyn Watch) -> Result<Option<Profiler>> {
    if is_commands_only(plan) {
        return Ok(None);
    }
    match plan.accounting {
        Some(AccountingMethod::Subtract | AccountingMethod::Tick | AccountingMethod::Processes) => Ok(None),
        Some(AccountingMethod::Profile) => Profiler::open()
            .map(Some)
            .map_err(|error| error.hint("omit --accounting to use the most accurate method that this host supports")),
        None => match Profiler::open() {
            Ok(profiler) => Ok(Some(profiler)),
            Err(error) => {
                let reason = error.message();
                watch.note(&format!(
                    "the profiler cannot run ({reason}); siga measures the CPU time of a kernel \
                        router as the difference to the path without a router"
                ));
                Ok(None)
            }
        },
    }
}

/// Measures the trials of a plan that `so_far` does not contain, and appends them to `store`. `profiler` comes from the
/// function [`profiler()`]. `series` says where the time series goes, if the user wants one.
///
/// # Errors
/// Returns an error of kind `Usage` if the plan is invalid, or an error of kind `Environment` if a skipped cell cannot be recorded.
/// An error that occurs after measuring has begun ends the run early, and is returned in `Ended::cut_short`.
pub fn run(
    store: &mut Store,
    mut so_far: Run,
    given: Given<'_>,
    profiler: Option<Profiler>,
    series: Option<Series>,
    watch: &mut dyn Watch,
) -> Result<Ended> {
    let plan = so_far.plan.clone();
    let mut matrix = plan.matrix()?;
    skip_lacking(&plan, &mut matrix);
    let names = profiler.as_ref().map(|_| Names::open()).transpose()?;
    let preparation = Preparation::default();
    let Given { ssh, builds, networks } = given;
    let mut bench = Bench { plan: &plan, matrix: &matrix, ssh, builds, networks, profiler, names, series, preparation };
    let course = Course::new(&plan, &matrix, &so_far);
    for note in plan.waits_otherwise(&matrix).into_iter().chain(too_few(&plan, &matrix)) {
        watch.note(&note);
    }
    for (cell, reason) in &matrix.skipped {
        let skipped = Skipped { cell: cell.clone(), reason: reason.clone() };
        if !so_far.skipped.contains(&skipped) {
            skip(skipped, store, &mut so_far, watch)?;
        }
    }
    let ended = course.measure(&mut bench, store, so_far, watch);
    bench.preparation.end();
    Ok(ended)
}

/// The state of a run: the trials that are done, and the cells that still need trials.
struct Course<'a> {
    plan: &'a Plan,
    matrix: &'a Matrix,
    begun: Instant,
    done: BTreeSet<(usize, u32)>,
    failures: BTreeMap<usize, u32>,
    /// Indices of the cells that have enough trials.
    settled: BTreeSet<usize>,
    /// The rounds that the host disturbed so far.
    disturbance: Disturbance,
    /// Number of this process among the processes that have measured this run, counted from 0. It is greater than 0 if the run
    /// was resumed.
    session: u32,
    /// Number of failed trials of all cells.
    failed: u32,
    died: u32,
    rounds: u32,
    /// Total time of the trials that this process has measured.
    spent: Duration,
    measured: u32,
    /// Number of hosts that measure in turns. Each has a course of its own.
    hosts: u32,
    /// The maximum number of rounds that another host needs. All hosts have the same number of rounds.
    others_most: u32,
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
            disturbance: Disturbance::default(),
            session: so_far.trials.iter().map(|trial| trial.session.saturating_add(1)).max().unwrap_or(0),
            failed: 0,
            died: 0,
            rounds,
            spent: Duration::ZERO,
            measured: 0,
            hosts: 1,
            others_most: 0,
        };
        course.settle(so_far);
        course
    }

    /// Measures rounds until the run needs no more, and marks the run as ended.
    fn measure(mut self, bench: &mut dyn Measures, store: &mut Store, mut so_far: Run, watch: &mut dyn Watch) -> Ended {
        so_far.ended = false;
        let mut round = 0;
        while self.goes_on(round) {
            if let Err(error) = self.round(round, bench, store, &mut so_far, watch) {
                return self.end(so_far, Some(error));
            }
            self.settle(&so_far);
            self.report_round(round, &so_far, watch);
            round += 1;
        }
        let ended = store.end(so_far.trials.len());
        so_far.ended = ended.is_ok();
        self.end(so_far, ended.err())
    }

    /// Updates `disturbance`, and `settled` from the precision of the comparisons so far. If the plan requests a fixed number of
    /// trials, no cell is settled early.
    fn settle(&mut self, so_far: &Run) {
        self.disturbance = Disturbance::of(&so_far.trials);
        if self.plan.trials.is_some() {
            return;
        }
        let open = stop::unsettled(so_far, &self.matrix.cells);
        self.settled =
            (0..self.matrix.cells.len()).filter(|&index| !open.contains(&self.matrix.cells[index])).collect();
    }

    /// Reports the end of a round, and whether the host disturbed it.
    fn report_round(&self, round: u32, so_far: &Run, watch: &mut dyn Watch) {
        let slot = (self.session, round);
        if let Some(words) = self.disturbance.round(slot) {
            let trials = || so_far.trials.iter().filter(|trial| trial.slot() == slot);
            let left_out = trials().filter(|trial| self.disturbance.is_in_disturbed_block(trial)).count();
            let part = if left_out == trials().count() { String::new() } else { format!("{left_out} trials of ") };
            watch.note(&format!("siga leaves out {part}round {}, because {words}", round + 1));
        }
        watch.round(so_far, &self.progress(round + 1));
    }

    fn end(&self, run: Run, cut_short: Option<Error>) -> Ended {
        Ended { run, failed: self.failed, died: self.died, cut_short }
    }

    /// Returns the indices of the cells that still need trials.
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
        if self.measured == 0 { trial_time(self.plan, &self.matrix.cells) } else { self.spent / self.measured }
    }

    /// Returns the part of the time budget that the run has used so far, including an estimate for the trials of earlier
    /// processes.
    fn used(&self) -> Duration {
        let earlier = self.done.len().saturating_sub(self.measured as usize);
        self.begun.elapsed() + trial_time(self.plan, &self.matrix.cells) * u32::try_from(earlier).unwrap_or(u32::MAX)
    }

    fn goes_on(&mut self, round: u32) -> bool {
        if self.live().is_empty() {
            return false;
        }
        let fits = self.plan.budget_seconds.is_none_or(|budget| {
            let missing = u32::try_from(self.missing(round)).unwrap_or(u32::MAX);
            self.used() + self.trial_time() * missing * self.hosts <= Duration::from_secs_f64(budget)
        });
        // The number of rounds is not limited by the estimate before the run, but by the budget and the measured times of
        // trials.
        let goes_on = round < self.rounds_most().max(self.others_most) && (fits || round == 0);
        self.rounds = if goes_on { self.rounds.max(round + 1) } else { round };
        goes_on
    }

    /// Returns the maximum number of rounds. Further rounds replace disturbed ones only if they can lead to a verdict.
    fn rounds_most(&self) -> u32 {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let Some(trials) = self.plan.trials else { return count(limits::STOP_TRIALS_MAX) };
        let (least, most) = self.disturbance.undisturbed();
        let decides = trials >= count(trials_least(1)) && !self.plan.smoke && most > 0;
        let further = if decides { count(self.disturbance.rounds() - least).min(trials / 2) } else { 0 };
        trials.saturating_add(further)
    }

    fn progress(&self, round: u32) -> Progress {
        let ahead: usize = (round..self.rounds).map(|round| self.missing(round)).sum();
        let left = (self.trial_time() * self.hosts).saturating_mul(u32::try_from(ahead).unwrap_or(u32::MAX));
        Progress { round, done: self.done.len(), total: self.done.len() + ahead, left }
    }

    fn round(
        &mut self,
        round: u32,
        bench: &mut dyn Measures,
        store: &mut Store,
        so_far: &mut Run,
        watch: &mut dyn Watch,
    ) -> Result<()> {
        let mut order = self.live();
        // `mix` is necessary, because with seeds at a fixed distance, each round would draw the same random numbers as the
        // previous round, shifted by one.
        shuffle(&mut order, mix(self.plan.seed.unwrap_or(0)) ^ mix(u64::from(round) + 1));
        let block = |index: &usize| (self.matrix.cells[*index].workload, self.matrix.cells[*index].clients);
        join(&mut order, block);
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
                Err(error) => {
                    self.failed(index, &error, store, so_far, watch)?;
                    if let Some(lost) = bench.lost() {
                        return Err(lost);
                    }
                }
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
        // If the host lacks an ability, it also lacks it in the next round. So the run gives the cell up immediately. But a
        // peer that died may run again in the next round, so its failure counts only once.
        let count = match error.kind() {
            ErrorKind::Usage | ErrorKind::Environment => FAILURES_MAX,
            ErrorKind::Incomplete | ErrorKind::Regression => 1,
        };
        self.failed += 1;
        self.died += u32::from(error.kind() == ErrorKind::Incomplete);
        *self.failures.entry(index).or_default() += count;
        skip(Skipped { cell: self.matrix.cells[index].clone(), reason: error.to_string() }, store, so_far, watch)
    }
}

/// Records and reports a cell that is not measured.
fn skip(skipped: Skipped, store: &mut Store, so_far: &mut Run, watch: &mut dyn Watch) -> Result<()> {
    store.add_skipped(&skipped)?;
    watch.skipped(&skipped);
    so_far.skipped.push(skipped);
    Ok(())
}

fn interrupted_error(so_far: &Run) -> Error {
    Error::incomplete("the run was interrupted; siga keeps the finished trials")
        .hint(format!("to continue the run, use `siga run --resume {}`", so_far.directory.display()))
}

/// Moves the members of each block next to each other, behind the first of them. Blocks, and the members of each block, keep their
/// order.
fn join<T: Copy, B: Eq + Hash>(order: &mut [T], block: impl Fn(&T) -> B) {
    let mut blocks = HashMap::new();
    for (at, one) in order.iter().enumerate() {
        blocks.entry(block(one)).or_insert(at);
    }
    order.sort_by_key(|one| blocks.get(&block(one)).copied());
}

/// Shuffles `order` with the method of Fisher and Yates and random numbers from SplitMix64. So the result depends only on the
/// seed.
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
mod tests;
