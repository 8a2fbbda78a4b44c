//! The call chains that the profiler sampled in a trial, as trees of functions.

use super::PhaseRecord;
use serde::{Deserialize, Serialize};

/// The component of a path to which a process or CPU time belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The side that connects.
    Client,
    /// The node between client and server.
    Router,
    /// The side that accepts connections.
    Server,
    /// Everything else.
    Other,
}

/// The sampled call chains of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainsRecord {
    /// The phase in which the samples were taken: after the trial's own phase.
    pub phase: PhaseRecord,
    /// CPU time that one sample represents, in nanoseconds.
    pub period_ns: u64,
    /// Names of the functions. A name in square brackets is that of a file or a process, because the function has no known name.
    pub names: Vec<String>,
    /// One tree for each combination of process and owner that was sampled.
    pub trees: Vec<ChainTree>,
    /// Number of samples whose call chain was not recorded, because the table of chains was full. No tree contains them.
    #[serde(default)]
    pub lost: u64,
    /// Number of samples whose recorded chain lacks functions: the chain was too deep, or the trees had no room for it.
    #[serde(default)]
    pub shortened: u64,
    /// Number of samples whose innermost function has no known name.
    #[serde(default)]
    pub unknown: u64,
}

impl ChainsRecord {
    /// Maximum number of functions in all trees of a trial together. If a trial has more, the rarest are cut off, and their samples
    /// count for the functions that called them.
    pub const NODES_MAX: usize = 4_096;
}

/// The call chains of the samples of one component's processes that are charged to one component.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainTree {
    /// The component whose process was on the CPU.
    pub process: Owner,
    /// The component to which the CPU time is charged.
    pub owner: Owner,
    /// The functions, each behind the function that called it.
    pub nodes: Vec<ChainNode>,
}

/// A function at one place of a tree. In a record it is an array: `[caller, name, samples]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "(u32, u32, u64)", into = "(u32, u32, u64)")]
pub struct ChainNode {
    /// 0 if the function is the outermost one; otherwise the number of the calling function among the nodes, counted from 1.
    pub caller: u32,
    /// Index of the function's name.
    pub name: u32,
    /// Number of samples in which the function is the innermost one.
    pub samples: u64,
}

impl From<(u32, u32, u64)> for ChainNode {
    fn from((caller, name, samples): (u32, u32, u64)) -> Self {
        Self { caller, name, samples }
    }
}

impl From<ChainNode> for (u32, u32, u64) {
    fn from(node: ChainNode) -> Self {
        (node.caller, node.name, node.samples)
    }
}
