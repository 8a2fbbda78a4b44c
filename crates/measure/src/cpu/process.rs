//! CPU time of one process. The total comes from the scheduler and is exact.

use super::stat::Stat;
use crate::clock::clock_ns;
use crate::sys;
use rustix::io::Errno;
use rustix::time::ClockId;
use siga_model::error::{Error, Result};
use siga_results::record::ProcessCpu;
use std::io;

/// Returns the CPU time of the calling process, including all its threads.
pub(crate) fn own() -> ProcessCpu {
    let run_ns = clock_ns(ClockId::ProcessCPUTime);
    let (user_ns, system_ns) = sys::process_times_ns();
    // The sum of the kernel's user and system times is less exact than `run_ns`. So `split` rescales both times so that their
    // sum is `run_ns`.
    split(run_ns, user_ns, system_ns)
}

/// Returns the CPU time of another process, including all its threads. `name` says in messages which process of the path it is.
///
/// # Errors
/// Returns an error of kind `Incomplete` if the process has ended, or if the kernel does not tell its CPU time.
pub(crate) fn of(pid: u32, name: &str) -> Result<ProcessCpu> {
    let failed = |error: io::Error| {
        let errno = error.raw_os_error().map(Errno::from_raw_os_error);
        // The clock of a process that does not exist is an invalid clock.
        Error::incomplete(if matches!(errno, Some(Errno::INVAL | Errno::SRCH | Errno::NOENT)) {
            format!("{name} (process {pid}) ended during the measurement")
        } else {
            format!("cannot read the CPU time of {name} (process {pid}): {error}")
        })
    };
    let run_ns = sys::process_cpu_ns(pid).map_err(failed)?;
    let line = std::fs::read(format!("/proc/{pid}/stat")).map_err(failed)?;
    let stat = Stat::parse(&String::from_utf8_lossy(&line)).unwrap_or_default();
    Ok(split(run_ns, stat.user, stat.system))
}

/// Splits the run time `run_ns` into user and system time, in proportion to the kernel's figures `user` and `system`.
pub(crate) fn split(run_ns: u64, user: u64, system: u64) -> ProcessCpu {
    let share = user as f64 / (user + system).max(1) as f64;
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of run_ns fits")]
    ProcessCpu { run_ns, user_ns: (run_ns as f64 * share) as u64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_has_ended_is_named_without_an_errno() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let message = of(child.id(), "guest tcpip2").unwrap_err().message().to_owned();
        assert_eq!(message, format!("guest tcpip2 (process {}) ended during the measurement", child.id()));
    }
}
