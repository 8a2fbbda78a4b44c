//! Which processes the kernel ends first if the memory of a control group is used up.

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};

/// True while the memory of the run has a limit.
static IS_LIMITED: AtomicBool = AtomicBool::new(false);

/// Makes the kernel end the processes that this one starts meanwhile, and not this one, if their common group needs too much memory
/// (`oom_score_adj`, proc(5)).
#[derive(Debug)]
pub(crate) struct EndedFirst {
    /// The value of this process before.
    before: Option<String>,
}

impl EndedFirst {
    const FILE: &str = "/proc/self/oom_score_adj";
    /// The largest value, for the processes of a command with a limit of its own.
    const FIRST: &str = "1000";
    /// The value for all other processes of a run with a limit. One of them starts such a command, and must outlive it.
    const SECOND: &str = "500";

    /// Begins if the memory of the run has a limit. So siga can report that the memory was used up.
    pub(crate) fn of_run() -> Option<Self> {
        IS_LIMITED.load(Ordering::Relaxed).then(|| Self::with(Self::SECOND))
    }

    /// Says whether the memory of the run has a limit.
    pub(crate) fn set_limited(is_limited: bool) {
        IS_LIMITED.store(is_limited, Ordering::Relaxed);
    }

    pub(crate) fn begin() -> Self {
        Self::with(Self::FIRST)
    }

    fn with(value: &str) -> Self {
        // Where a sandbox hides the file, the kernel chooses by size.
        let before = fs::read_to_string(Self::FILE).ok().filter(|_| fs::write(Self::FILE, value).is_ok());
        Self { before }
    }
}

impl Drop for EndedFirst {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // The value was permitted before, so the kernel permits it again.
            let _ = fs::write(Self::FILE, before);
        }
    }
}
