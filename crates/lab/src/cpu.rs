//! CPU accounting: who spent the time of a trial.
//!
//! Total = wall x CPUs - idle - iowait - steal, read between two quiescent points. The run time of client and server comes from
//! the scheduler and is exact. What the kernel does in softirq on a path is told apart by a [`Method`]; each says how sure
//! it is. Reading is done here, arithmetic in `reduce`.

pub mod charge;
pub mod cost_injector;
pub mod guest;
pub mod host;
pub mod process;
pub mod profile;

use serde::{Deserialize, Serialize};
use siga_results::record::ProcessCpu;
use std::collections::BTreeMap;

/// What one end of a path has counted up to a moment; the host as a whole is read apart (`host`).
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spent {
    /// The agents' processes: CPU spent since each began.
    pub process: ProcessCpu,
    /// Their ids, as the host numbers them.
    pub pids: Vec<u32>,
    /// Protocol counters of the place's network namespace ("Tcp RetransSegs"); of a guest, those of its stack.
    pub protocol: BTreeMap<String, u64>,
    /// What its stack says of itself, if it is a guest.
    #[serde(default)]
    pub guest: Option<guest::GuestCounters>,
}
