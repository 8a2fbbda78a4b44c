//! A run on several hosts: the same plan, measured in turns, with a run directory for each host.
//!
//! A process of siga on each host measures whole trials (`super::measurer`). Over ssh, siga copies its own program there, so all hosts
//! measure with the same version. The channel to a host is quiet while a trial is measured. In each round, the hosts take turns in a
//! random order. A cell is measured until it needs no more trials on any host, and a round that one host repeats is repeated on all. So
//! all hosts have the same number of rounds.
//!
//! A host that can be reached no more ends its own run. The others go on.

use super::measurer::{Answer, Order};
use super::{Course, Ended, Watch, shuffle, skip, too_few, trial_time};
use crate::agent::launch::{Programs, RUNNING, Role, launch_as};
use crate::channel::ChildProcess;
use crate::interrupt::interrupted;
use crate::limits;
use crate::load::content::mix;
use crate::trial::Measures;
use siga_model::error::{Error, Result};
use siga_plan::command::Command;
use siga_plan::command::hooks::Scope;
use siga_plan::matrix::{Cell, Matrix};
use siga_plan::place::Place;
use siga_plan::plan::Plan;
use siga_results::environment::Environment;
use siga_results::record::{PathRecord, Skipped, TrialRecord};
use siga_results::store::{Run, Store};
use std::path::Path;
use std::time::Duration;

/// Number of attempts at a trial, of which each may take the longest time.
const ATTEMPTS_MAX: u32 = 3;

/// A host on which siga measures.
#[derive(Debug)]
pub struct Host {
    name: String,
    process: ChildProcess,
    /// The properties of the host.
    pub environment: Environment,
}

impl Host {
    /// Starts siga in `place`. `ssh` is the command that connects to other hosts.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the place does not exist or cannot be reached, or if another version of siga answers.
    pub fn open(place: &Place, ssh: &str) -> Result<Self> {
        let name = place.to_string();
        let mut process =
            launch_as(Role::Measurer, place, "siga", None, Programs { siga: Path::new(RUNNING), ssh })?.process;
        let environment = match process.ask(&Order::Environment, limits::ANSWER_TIME_MAX) {
            Ok(Answer::Environment(environment)) => *environment,
            Ok(other) => return Err(process.unexpected(&other).at(&name)),
            Err(error) => return Err(error.at(&name)),
        };
        Ok(Self { name, process, environment })
    }
}

/// The run of one host.
#[derive(Debug)]
pub struct HostRun {
    /// The host.
    pub host: Host,
    /// The host's run directory.
    pub store: Store,
    /// What the directory contains.
    pub run: Run,
}

/// Measures a plan on several hosts in turns. Returns the runs in the order of the hosts.
///
/// # Errors
/// Returns an error of kind `Usage` if the plan is invalid. Returns an error of kind `Environment` if a host refuses the plan, or if a
/// skipped cell cannot be recorded. An error after measuring has begun ends the run of its host early, and is in `Ended::cut_short`.
pub fn run(mut hosts: Vec<HostRun>, watch: &mut dyn Watch) -> Result<Vec<Ended>> {
    let mut matrices = Vec::new();
    for one in &mut hosts {
        matrices.push(begin(one, watch)?);
    }
    let plans: Vec<Plan> = hosts.iter().map(|one| one.run.plan.clone()).collect();
    let count = u32::try_from(hosts.len()).unwrap_or(u32::MAX);
    let parts = hosts.into_iter().zip(plans.iter().zip(&matrices));
    let mut turns: Vec<Turn> = parts
        .map(|(one, (plan, matrix))| {
            let course = Course { hosts: count, ..Course::new(plan, matrix, &one.run) };
            let HostRun { host, store, run } = one;
            Turn { course, trials: Trials { host, plan, lost: None }, store, run, cut_short: None }
        })
        .collect();
    if let Some(note) = turns.first().and_then(|turn| too_few(turn.course.plan, turn.course.matrix)) {
        watch.note(&note);
    }
    rounds(&mut turns, watch);
    Ok(turns.into_iter().map(Turn::end).collect())
}

/// Sends the plan to a host, and records the cells that the host cannot measure.
fn begin(one: &mut HostRun, watch: &mut dyn Watch) -> Result<Matrix> {
    let HostRun { host, store, run } = one;
    let mut matrix = run.plan.matrix_with(&run.levels)?;
    let order = Order::Begin { plan: Box::new(run.plan.clone()), levels: run.levels.clone() };
    let answer = host.process.ask(&order, limits::ANSWER_TIME_MAX).map_err(|error| error.at(&host.name))?;
    let Answer::Begun { notes, lacking } = answer else { return Err(host.process.unexpected(&answer).at(&host.name)) };
    watch.host(&host.name);
    notes.iter().for_each(|note| watch.note(note));
    matrix.cells.retain(|cell| !lacking.iter().any(|(other, _)| other == cell));
    matrix.skipped.extend(lacking);
    for (cell, reason) in &matrix.skipped {
        skip(Skipped { cell: cell.clone(), reason: reason.clone() }, store, run, watch)?;
    }
    Ok(matrix)
}

/// Measures rounds until no host needs more.
fn rounds(turns: &mut [Turn<'_>], watch: &mut dyn Watch) {
    let mut round = 0;
    loop {
        let goes_on = |turn: &mut Turn<'_>| turn.cut_short.is_none() && turn.course.goes_on(round);
        let mut order: Vec<usize> = (0..turns.len()).filter(|&index| goes_on(&mut turns[index])).collect();
        if order.is_empty() {
            return;
        }
        let seed = turns.first().and_then(|turn| turn.course.plan.seed).unwrap_or(0);
        shuffle(&mut order, mix(seed.wrapping_add(1)) ^ mix(u64::from(round) + 1));
        for &index in &order {
            let Turn { course, trials, store, run, cut_short } = &mut turns[index];
            watch.host(&trials.host.name);
            if let Err(error) = course.round(round, trials, store, run, watch) {
                *cut_short = Some(if interrupted() { interrupted_error() } else { error });
            }
            if interrupted() {
                for turn in turns.iter_mut().filter(|turn| turn.cut_short.is_none()) {
                    turn.cut_short = Some(interrupted_error());
                }
                return;
            }
        }
        settle(turns);
        for &index in &order {
            let Turn { course, trials, run, .. } = &turns[index];
            watch.host(&trials.host.name);
            course.report_round(round, run, watch);
        }
        round += 1;
    }
}

/// Settles the cells that need no more trials on any host. If a round is repeated on one host, it is repeated on all.
fn settle(turns: &mut [Turn<'_>]) {
    let mut open: Vec<Cell> = Vec::new();
    for turn in turns.iter_mut().filter(|turn| turn.cut_short.is_none()) {
        turn.course.settle(&turn.run);
        let live = turn.course.live();
        open.extend(live.into_iter().map(|index| turn.course.matrix.cells[index].clone()));
    }
    let goes_on = turns.iter().filter(|turn| turn.cut_short.is_none());
    let most = goes_on.map(|turn| turn.course.rounds_most()).max().unwrap_or(0);
    for turn in turns.iter_mut() {
        turn.course.others_most = most;
        let cells = &turn.course.matrix.cells;
        turn.course.settled.retain(|&index| !open.contains(&cells[index]));
    }
}

fn interrupted_error() -> Error {
    Error::incomplete("the run on several hosts was interrupted; siga keeps the finished trials")
        .hint("siga cannot resume a run on several hosts; start a new run")
}

/// One host's part of the run.
struct Turn<'a> {
    course: Course<'a>,
    trials: Trials<'a>,
    store: Store,
    run: Run,
    cut_short: Option<Error>,
}

impl Turn<'_> {
    /// Ends the host's process after its teardowns, and marks its run as ended.
    fn end(self) -> Ended {
        let Self { course, trials: Trials { mut host, plan, .. }, store, mut run, cut_short } = self;
        host.process.end_within(teardown_time(plan));
        let ended = if cut_short.is_none() { store.end(run.trials.len()) } else { Ok(()) };
        run.ended = cut_short.is_none() && ended.is_ok();
        course.end(run, cut_short.or(ended.err()))
    }
}

/// Lets a host measure trials.
struct Trials<'a> {
    host: Host,
    plan: &'a Plan,
    lost: Option<Error>,
}

impl Measures for Trials<'_> {
    fn trial(
        &mut self,
        cell: &Cell,
        round: u32,
        check: bool,
        progress: &mut dyn FnMut(&str),
    ) -> Result<(TrialRecord, PathRecord)> {
        let order = Order::Trial { cell: Box::new(cell.clone()), round, check };
        let name = &self.host.name;
        let answer = match self.host.process.ask(&order, longest(self.plan, cell)) {
            Ok(Answer::Trial { outcome, notes }) => {
                notes.iter().for_each(|note| progress(note));
                return match outcome {
                    Ok(records) if records.0.cell == *cell && records.1.cell == *cell => Ok(*records),
                    Ok(_) => {
                        Err(Error::incomplete(format!("{name} sent a trial of another cell than the requested one")))
                    }
                    Err(error) => Err(error.at(name)),
                };
            }
            Ok(other) => self.host.process.unexpected(&other),
            Err(error) => error,
        };
        // After this, orders and answers may not belong together.
        let lost = Error::incomplete(format!("{name}: {}", answer.message()));
        self.lost = Some(lost.clone().hint("siga keeps the finished trials; check this host, and start a new run"));
        Err(lost)
    }

    fn lost(&self) -> Option<Error> {
        self.lost.clone()
    }
}

/// Returns the longest time until a host must have answered the order for a trial of this cell.
fn longest(plan: &Plan, cell: &Cell) -> Duration {
    let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
    let own = plan.command_of(cell).map_or(limits::CONNECT_TIME_MAX, |command| {
        let servers = command.server.iter().map(|server| seconds(server.ready_seconds)).sum::<Duration>();
        let steps = Scope::ALL.len() * 2 + 2;
        seconds(command.time_limit_seconds).saturating_mul(u32::try_from(steps).unwrap_or(u32::MAX)) + servers
    });
    let trial = trial_time(plan, std::slice::from_ref(cell)) * 2 + own + limits::ANSWER_TIME_MAX * 4;
    trial.saturating_mul(ATTEMPTS_MAX)
}

/// Returns the longest time of the teardowns at the end of a run.
fn teardown_time(plan: &Plan) -> Duration {
    let of = |command: &Command| {
        let count = Scope::ALL.iter().filter(|scope| command.teardown.of(**scope).is_some()).count();
        let levels = plan.levels.len().max(1);
        command.time_limit_seconds * (count * levels) as f64
    };
    let seconds: f64 = plan.workload.values().map(of).sum();
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX).saturating_add(limits::ANSWER_TIME_MAX)
}
