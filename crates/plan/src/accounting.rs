//! The methods of CPU accounting.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How siga attributes CPU time, softirq work in particular, to the components of a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum AccountingMethod {
    /// Samples every CPU at a fixed period. Each sample records the process and the network namespace of the packet being handled.
    Profile,
    /// Also measures the same path without the router, in turns. The difference is attributed to the router.
    Subtract,
    /// Uses the scheduler's run times, split into user and system time by the kernel's ticks. It has no figure for the router.
    Tick,
    /// Uses the exact run time of each process. Every component of siga's own network is a process, so this is the only method
    /// there. A plan cannot ask for it.
    #[serde(skip_deserializing)]
    #[cfg_attr(feature = "schema", schemars(skip))]
    Processes,
}

impl fmt::Display for AccountingMethod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Profile => "profile",
            Self::Subtract => "subtract",
            Self::Tick => "tick",
            Self::Processes => "processes",
        })
    }
}
