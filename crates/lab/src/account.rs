//! CPU accounting: who spent the time of a trial.
//!
//! Total = wall x CPUs - idle - iowait - steal, read between two quiescent points. The run time of client and server comes from
//! the scheduler and is exact. What the kernel does in softirq on a path is told apart by a [`Method`]; each says how sure
//! it is. Reading is done here, arithmetic in `reduce`.

pub mod charge;
pub mod guest;
pub mod host;
pub mod process;

use crate::record::ProcessCpu;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How softirq work on the path was told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Method {
    /// Samples of every CPU by its clock, each with the process and the network namespace whose packet was in hand.
    Profile,
    /// The same workload over the path without the router, interleaved; the router is the difference.
    Subtract,
    /// The scheduler's run times with the kernel's tick-based split; the router is not seen.
    Tick,
    /// On siga's own networks: every component is a process with an exact run time. No choice: it is the only one there.
    #[serde(skip_deserializing)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    Processes,
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Profile => "profile",
            Self::Subtract => "subtract",
            Self::Tick => "tick",
            Self::Processes => "processes",
        })
    }
}

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
