//! CPU accounting: how much CPU time each component of a path used in a trial.
//!
//! Total = wall x CPUs - idle - iowait - steal, read at two quiescent points. The run time of client and server comes
//! from the scheduler and is exact. Kernel time in softirq is attributed by a [`Method`](siga_plan::accounting::Method).
//! This module reads counters; `reduce` does the arithmetic.

pub mod charge;
pub mod cost_injector;
pub mod guest;
pub mod host;
pub mod process;
pub mod profile;

use serde::{Deserialize, Serialize};
use siga_results::record::ProcessCpu;
use std::collections::BTreeMap;

/// Counters of one end of a path up to now; the host as a whole is read separately (`host`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spent {
    /// The agents' processes: CPU spent since each began.
    pub process: ProcessCpu,
    /// Their ids, as the host numbers them.
    pub pids: Vec<u32>,
    /// Protocol counters of the place's network namespace ("Tcp RetransSegs"); of a guest, those of its stack.
    pub protocol: BTreeMap<String, u64>,
    /// What its stack reports, if the end is a guest.
    #[serde(default)]
    pub guest: Option<guest::GuestCounters>,
}
