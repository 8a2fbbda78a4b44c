//! CPU time of this process, exact in its total.

use crate::driver::clock_ns;
use crate::error::{Error, Result};
use crate::sys;
use rustix::time::ClockId;
use serde::{Deserialize, Serialize};

/// CPU time of one or more processes. The total is the scheduler's and exact; the split is scaled from ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCpu {
    /// Run time in nanoseconds.
    pub run_ns: u64,
    /// Its part in user mode, by the kernel's ticks.
    pub user_ns: u64,
}

impl ProcessCpu {
    /// Of the calling process with all its threads.
    pub fn own() -> Self {
        let run_ns = clock_ns(ClockId::ProcessCPUTime);
        let (user_ns, system_ns) = sys::process_times_ns();
        // The kernel keeps user + system equal to its own reading of the run time; rescale to ours.
        Self::split(run_ns, user_ns, system_ns)
    }

    /// Of another process with all its threads.
    ///
    /// # Errors
    /// Incomplete: there is no such process.
    pub fn of(pid: u32) -> Result<Self> {
        let gone = |error| Error::incomplete(format!("process {pid} of the path has ended: {error}"));
        let run_ns = sys::process_cpu_ns(pid).map_err(gone)?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).map_err(gone)?;
        // The name stands in parentheses and may hold any letter; user and system time are the 14th and 15th field.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
        let mut ticks = || fields.next().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        let (user, system) = (ticks(), ticks());
        Ok(Self::split(run_ns, user, system))
    }

    /// A run time, split as the kernel's ticks say.
    fn split(run_ns: u64, user: u64, system: u64) -> Self {
        let share = user as f64 / (user + system).max(1) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of run_ns fits")]
        Self { run_ns, user_ns: (run_ns as f64 * share) as u64 }
    }

    /// Of two processes together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { run_ns: self.run_ns.saturating_add(other.run_ns), user_ns: self.user_ns.saturating_add(other.user_ns) }
    }

    /// Spent since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
        }
    }
}
