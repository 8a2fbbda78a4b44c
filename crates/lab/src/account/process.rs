//! CPU time of this process, exact in its total.

use crate::driver::clock_ns;
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
        let share = user_ns as f64 / (user_ns + system_ns).max(1) as f64;
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a share of run_ns fits")]
        Self { run_ns, user_ns: (run_ns as f64 * share) as u64 }
    }

    /// Of two processes together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { run_ns: self.run_ns + other.run_ns, user_ns: self.user_ns + other.user_ns }
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
