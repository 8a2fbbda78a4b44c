//! CPU time of one process. The total comes from the scheduler and is exact.

use crate::clock::clock_ns;
use crate::sys;
use rustix::time::ClockId;
use siga_model::error::{Error, Result};
use siga_results::record::ProcessCpu;

/// Returns the CPU time of the calling process, including all its threads.
pub(crate) fn own() -> ProcessCpu {
    let run_ns = clock_ns(ClockId::ProcessCPUTime);
    let (user_ns, system_ns) = sys::process_times_ns();
    // The sum of the kernel's user and system times is less exact than `run_ns`. So `split` rescales both times so that their
    // sum is `run_ns`.
    split(run_ns, user_ns, system_ns)
}

/// Returns the CPU time of another process, including all its threads. Returns an error of kind `Incomplete` if the process does
/// not exist.
pub(crate) fn of(pid: u32) -> Result<ProcessCpu> {
    let gone = |error| Error::incomplete(format!("process {pid} of the path has ended: {error}"));
    let run_ns = sys::process_cpu_ns(pid).map_err(gone)?;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(gone)?;
    // The process name is in parentheses and may contain any character, so parsing starts after the last parenthesis. User
    // and system time are the fields 14 and 15.
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    let mut ticks = || fields.next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
    let (user, system) = (ticks(), ticks());
    Ok(split(run_ns, user, system))
}

/// Splits the run time `run_ns` into user and system time, in proportion to the kernel's figures `user` and `system`.
fn split(run_ns: u64, user: u64, system: u64) -> ProcessCpu {
    let share = user as f64 / (user + system).max(1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of run_ns fits")]
    ProcessCpu { run_ns, user_ns: (run_ns as f64 * share) as u64 }
}
