//! The methods of CPU accounting, by name.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How softirq work on the path is attributed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum Method {
    /// Samples every CPU by its clock, each with the process and the network namespace of the packet being handled.
    Profile,
    /// Measures the same workload over the path without the router, interleaved; the router is the difference.
    Subtract,
    /// Uses the scheduler's run times with the kernel's tick-based split; the router is not seen.
    Tick,
    /// On siga's own networks every component is a process with an exact run time. It is the only method there, and none for plans.
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
