//! The process that runs a command again and again, and measures each run.
//!
//! This process is a child of the coordinator, the process that carries out a run of a plan. It becomes the parent of every process
//! that a run of the command leaves behind (a subreaper), so that it finds and ends all of them. It starts no thread and sets no limit
//! for itself, because the command inherits both settings and limits.
//!
//! The coordinator sends orders over standard input. If the input ends, also while the command runs, this process ends everything
//! that it started, and then itself.

mod conditions;
mod figures;
mod group;
mod processes;
mod scopes;
mod serving;

pub(crate) use conditions::Wanted;
pub(crate) use group::{Group, Limits};
pub(crate) use scopes::Scope;
pub(crate) use serving::{ServerOrder, Used};

use crate::channel::{Lines, write_outcome};
use crate::clock::now_ns;
use conditions::Conditions;
use figures::Reader;
use processes::{Ended, Started, end_all};
use scopes::Scopes;
use serde::{Deserialize, Serialize};
use serving::Serving;
use siga_model::error::{Error, IoContext, Result};
use siga_plan::command::figure::{Figure, UnitOfWork};
use siga_results::histogram;
use siga_results::limits::LATENCY_NS_MAX;
use siga_results::record::{CommandRecord, ProcessCpu};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

/// What to run, and for how long.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The program and its arguments.
    pub(crate) words: Vec<String>,
    /// Variables that are added to the environment of this process.
    pub(crate) environment: BTreeMap<String, String>,
    /// The directory in which the command runs. `None`: that of this process.
    pub(crate) directory: Option<String>,
    /// The file that is the command's standard input. `None`: the input is empty.
    pub(crate) input: Option<String>,
    /// The exit status of a run that went well.
    pub(crate) exit_status: u8,
    /// A regular expression that standard output must match.
    pub(crate) output: Option<String>,
    /// Figures that the command prints.
    pub(crate) figures: Vec<Figure>,
    /// The work that one run does.
    pub(crate) unit: Option<UnitOfWork>,
    /// Time after which a run is ended, in nanoseconds. `None`: it ends by itself.
    pub(crate) stop_ns: Option<u64>,
    /// Longest duration of one run, in nanoseconds.
    pub(crate) limit_ns: u64,
    /// The files of the network namespace in which the command runs, and of its user namespace. `None`: those of this process.
    pub(crate) place: Option<(PathBuf, PathBuf)>,
    /// The conditions of the level.
    pub(crate) conditions: Wanted,
    /// Time in nanoseconds after which no further run begins. There is at least one run.
    pub(crate) duration_ns: u64,
}

impl Order {
    /// Returns the order of a setup or a teardown of the same command: it runs once in the same place, and its output is not read.
    pub(crate) fn for_hook(self) -> Self {
        Self {
            input: None,
            exit_status: 0,
            output: None,
            figures: Vec::new(),
            unit: None,
            stop_ns: None,
            conditions: Wanted::default(),
            duration_ns: 0,
            ..self
        }
    }
}

/// What the coordinator wants.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Task {
    /// Run a command repeatedly. The answer is [`Runs`].
    Run(Box<Order>),
    /// Make the scratch directory of the run. The answer is its path.
    Scratch,
    /// Carry out the setup of a scope, and later its teardown.
    Open(Box<Scope>),
    /// Carry out the teardown of the scope with this key.
    Close(String),
    /// Start a server. The answer comes when it is ready.
    Serve(Box<ServerOrder>),
    /// Say what the server has used so far. The answer is [`Used`].
    Used,
    /// End the server.
    EndServer,
}

/// What the runs of a command used.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Runs {
    /// Number of runs.
    pub(crate) count: u64,
    /// Sum of the durations of all runs, in nanoseconds.
    pub(crate) elapsed_ns: u64,
    /// Histogram of the durations, in nanoseconds.
    pub(crate) durations: String,
    /// Number of runs that ended in each part of the trial.
    pub(crate) slices: Vec<f64>,
    /// CPU time of all processes.
    pub(crate) cpu: ProcessCpu,
    /// CPU time by process, and other counters.
    pub(crate) record: CommandRecord,
    /// What was wrong with runs that have a figure all the same.
    pub(crate) flags: Vec<String>,
}

/// Carries out orders from standard input until it ends.
///
/// # Errors
/// Returns an error if this process cannot become the parent of the processes that a command leaves behind, or if the coordinator has
/// ended.
pub fn run() -> Result<()> {
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .context("cannot become the parent of processes that a command leaves behind")?;
    let mut scopes = Scopes::default();
    let served = serve(&mut scopes);
    for error in scopes.end() {
        let text = error.at("siga: teardown").to_string();
        // Nobody else can say what went wrong, because the coordinator may have ended.
        let _ = writeln!(std::io::stderr(), "{}", siga_model::text::name(&text));
    }
    served
}

fn serve(scopes: &mut Scopes) -> Result<()> {
    let mut input = Lines::new(std::io::stdin());
    let mut output = std::io::stdout();
    // A server keeps the conditions of its level while it runs.
    let mut serving: Option<(Serving, Conditions)> = None;
    loop {
        serving.as_mut().map_or(Ok(()), |(serving, _)| serving.wait())?;
        let Some(line) = input.next(None)? else { break };
        let task = serde_json::from_str(&line).map_err(|error| {
            Error::usage(format!("the siga process that carries out the run sent an invalid order: {error}"))
        });
        match task? {
            Task::Run(order) => {
                let outcome = Conditions::of(&order).and_then(|conditions| {
                    let outcome = repeat(&order, &conditions);
                    // Whatever went wrong, nothing of the command may stay, also not in its control group.
                    end_all();
                    outcome
                });
                write_outcome(&mut output, outcome)?;
            }
            Task::Scratch => write_outcome(&mut output, scopes.scratch())?,
            Task::Open(scope) => write_outcome(&mut output, scopes.open(*scope))?,
            Task::Close(key) => write_outcome(&mut output, scopes.close(&key))?,
            Task::Serve(wanted) => {
                let started = Conditions::of(&wanted.order).and_then(|conditions| {
                    let started = Serving::start(&wanted).inspect_err(|_| end_all());
                    Ok((started?, conditions))
                });
                write_outcome(&mut output, started.map(|started| serving = Some(started)))?;
            }
            Task::Used => {
                let none = || Err(Error::usage("the order needs a server of the command, but no server runs"));
                write_outcome(&mut output, serving.as_mut().map_or_else(none, |(serving, _)| serving.used()))?;
            }
            Task::EndServer => {
                let (outcome, conditions) = match serving.take() {
                    Some((serving, conditions)) => (serving.stop(), Some(conditions)),
                    None => (Ok(()), None),
                };
                end_all();
                drop(conditions);
                write_outcome(&mut output, outcome)?;
            }
        }
    }
    // The coordinator may have ended while a server ran.
    end_all();
    Ok(())
}

/// Runs the command once.
fn one(order: &Order, reader: &Reader<'_>, conditions: &Conditions, flags: &mut Vec<String>) -> Result<Ended> {
    conditions.before_run()?;
    let ended_before = conditions.group.as_ref().map_or(0, Group::ended_for_memory);
    let ended = Started::start(order, reader)?.ends(order, reader, true);
    let Some(group) = conditions.group.as_ref().filter(|group| group.ended_for_memory() > ended_before) else {
        return ended;
    };
    let limit = group.memory_bytes().unwrap_or(0);
    let words = format!(
        "the kernel ended a process of the command, because the command reached its memory limit of {limit} bytes"
    );
    match ended {
        Ok(ended) => {
            if !flags.contains(&words) {
                flags.push(words);
            }
            Ok(ended)
        }
        Err(error) => Err(Error::incomplete(format!("{words}; {}", error.message()))
            .hint("raise `memory_max` in the level, or remove this setting")),
    }
}

/// Runs the command until the time of the order has passed.
fn repeat(order: &Order, conditions: &Conditions) -> Result<Runs> {
    let reader = Reader::new(order)?;
    if conditions.is_warm() {
        Started::start(order, &reader)?.ends(order, &reader, true)?;
    }
    let mut runs = Runs { slices: vec![0.0; crate::limits::SLICES], ..Runs::default() };
    let mut durations = histogram::empty();
    let (begun, mut too_long, mut left) = (now_ns(), false, 0_u64);
    while runs.count == 0 || now_ns().saturating_sub(begun) < order.duration_ns {
        let Ended { elapsed_ns, cpu, record, left_behind } = one(order, &reader, conditions, &mut runs.flags)?;
        runs.count += 1;
        runs.elapsed_ns = runs.elapsed_ns.saturating_add(elapsed_ns);
        runs.cpu = runs.cpu.plus(cpu);
        runs.record.add(&record);
        left += u64::from(!left_behind.is_empty());
        if let Some(name) = left_behind.first().filter(|_| left == 1) {
            runs.flags.push(format!("the command left processes behind, and siga ended them: {name}"));
        }
        too_long |= elapsed_ns > LATENCY_NS_MAX || durations.record(elapsed_ns).is_err();
        let part =
            now_ns().saturating_sub(begun).saturating_mul(crate::limits::SLICES as u64) / order.duration_ns.max(1);
        let part = usize::try_from(part).unwrap_or(usize::MAX).min(crate::limits::SLICES - 1);
        runs.slices[part] += 1.0;
    }
    runs.record.group_memory_bytes_max = conditions.group.as_ref().and_then(Group::memory_bytes_max);
    // A histogram without the longest durations would give wrong percentiles.
    runs.durations = histogram::encode(&if too_long { histogram::empty() } else { durations })?;
    Ok(runs)
}
