//! CPU accounting: how much CPU time each component of a path used in a trial.
//!
//! The total is wall time x CPUs - idle - iowait - steal. These counters are read at two quiescent points. The run times of
//! client and server come from the scheduler and are exact. An [`AccountingMethod`](siga_plan::accounting::AccountingMethod)
//! attributes kernel time in softirq to components. This module only reads counters. `reduce` in the crate `results` does the
//! arithmetic.

pub(crate) mod charge;
pub(crate) mod cost_injector;
pub(crate) mod guest;
pub(crate) mod host;
pub(crate) mod process;
pub mod profile;

use serde::{Deserialize, Serialize};
use siga_results::record::ProcessCpu;
use std::collections::BTreeMap;

/// Counters of one end of a path, from the start of counting until now. The counters of the whole host are read separately
/// (`host`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spent {
    /// CPU time that the agent and its worker processes have used since they began.
    pub process: ProcessCpu,
    /// Process ids of the agent and its worker processes, as the host numbers them.
    pub pids: Vec<u32>,
    /// Protocol counters ("Tcp RetransSegs"). If the end is a guest, they are those of its stack, otherwise those of the
    /// network namespace.
    pub protocol: BTreeMap<String, u64>,
    /// Counters that the guest's stack reports, if the end is a guest.
    #[serde(default)]
    pub guest: Option<guest::GuestCounters>,
}
