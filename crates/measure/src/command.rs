//! The process that runs a command again and again, and measures each run.
//!
//! This process is a child of the coordinator, the process that carries out a run of a plan. It becomes the parent of every process
//! that a run of the command leaves behind (a subreaper), so that it finds and ends all of them. It starts no thread and sets no limit
//! for itself, because the command inherits both settings and limits.
//!
//! The coordinator sends orders over standard input. If the input ends, also while the command runs, this process ends everything
//! that it started, and then itself.

mod processes;

use crate::channel::{Lines, write_outcome};
use crate::clock::now_ns;
use crate::place;
use processes::{Ended, Started, end_all};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use siga_results::histogram;
use siga_results::limits::LATENCY_NS_MAX;
use siga_results::record::{CommandRecord, ProcessCpu};
use std::collections::BTreeMap;

/// What to run, and for how long.
#[derive(Debug, Clone, Serialize, Deserialize)]
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
    /// Longest duration of one run, in nanoseconds.
    pub(crate) limit_ns: u64,
    /// CPUs on which the command may run. If the list is empty, the scheduler chooses.
    pub(crate) cpus: Vec<u32>,
    /// Time in nanoseconds after which no further run begins. There is at least one run.
    pub(crate) duration_ns: u64,
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
    let mut input = Lines::new(std::io::stdin());
    while let Some(line) = input.next(None)? {
        let order = serde_json::from_str(&line).map_err(|error| Error::usage(format!("bad order: {error}")));
        let outcome = order.and_then(|order: Order| repeat(&order));
        // Whatever went wrong, nothing of the command may stay.
        end_all();
        write_outcome(&mut std::io::stdout(), outcome)?;
    }
    Ok(())
}

/// Runs the command until the time of the order has passed.
fn repeat(order: &Order) -> Result<Runs> {
    place::stay_on(&order.cpus)?;
    let mut runs = Runs { slices: vec![0.0; crate::limits::SLICES], ..Runs::default() };
    let mut durations = histogram::empty();
    let (begun, mut too_long, mut left) = (now_ns(), false, 0_u64);
    while runs.count == 0 || now_ns().saturating_sub(begun) < order.duration_ns {
        let Ended { elapsed_ns, cpu, record, left_behind } = Started::start(order)?.ends(order)?;
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
    // A histogram without the longest durations would give wrong percentiles.
    runs.durations = histogram::encode(&if too_long { histogram::empty() } else { durations })?;
    Ok(runs)
}
