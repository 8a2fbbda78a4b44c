//! CPU accounting: how much CPU time each component of a path (client, router, server, others) used in a trial.
//!
//! The total is wall time x CPUs - idle - iowait - steal. These counters are read at two quiescent points, at which no traffic
//! flows: before and after the measured phase. The run times of client and server come from the scheduler and are exact. An
//! [`AccountingMethod`](siga_plan::accounting::AccountingMethod) attributes kernel time in softirq to components. This module
//! only reads counters. `reduce` in the crate `results` computes CPU times from the counters.

pub(crate) mod activity;
pub(crate) mod chains;
pub(crate) mod charge;
pub(crate) mod cost_injector;
pub(crate) mod delay;
pub(crate) mod guest;
pub(crate) mod host;
pub(crate) mod outside;
pub(crate) mod process;
pub mod profile;
pub(crate) mod program;
pub(crate) mod stat;

use serde::{Deserialize, Serialize};
use siga_results::record::ProcessCpu;
use std::collections::BTreeMap;

/// Counters of the client or the server of a path, since each counter began. The counters of the whole host are read separately
/// (`host`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spent {
    /// CPU time that the agent (the process of the client or server) and its worker processes have used since they began.
    pub process: ProcessCpu,
    /// Process ids of the agent and its worker processes, in the host's initial PID namespace.
    pub pids: Vec<u32>,
    /// Time in nanoseconds in which threads of these processes waited for a CPU (run-queue delay). `None` if the kernel does not
    /// count this time.
    pub waited_ns: Option<u64>,
    /// Protocol counters ("Tcp RetransSegs"). If the client or server is a guest, these are counters of the guest's stack,
    /// otherwise those of the network namespace.
    pub protocol: BTreeMap<String, u64>,
    /// If the client or server is a guest: the counters that the guest's stack reports.
    #[serde(default)]
    pub guest: Option<guest::GuestCounters>,
}
