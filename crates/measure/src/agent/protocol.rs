//! The control protocol: what the coordinator orders an agent to do, and what the agent answers, over a channel.

use crate::cpu::Spent;
use crate::cpu::host::HostCpu;
use crate::load::Quiesced;
use crate::load::client::{ClientConfig, Phase};
use crate::load::server::ServerConfig;
use crate::socket::{Endpoint, SocketsOf};
use serde::{Deserialize, Serialize};
use siga_results::record::Counts;

/// Version of this protocol; both ends must agree, since ssh can join different builds.
pub const VERSION: u32 = 2;

/// What an agent is asked to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub enum Order {
    /// Be the server (with `processes`: one process for each pair).
    Serve {
        /// What to serve.
        config: ServerConfig,
        /// With whose sockets.
        sockets: SocketsOf,
        /// Number of processes that share the work; each listens on its own endpoint.
        processes: u32,
        /// Pairs to expect in all.
        pairs: u32,
        /// CPUs to run on; empty: the scheduler's choice.
        cpus: Vec<u32>,
    },
    /// Be the client and connect.
    Connect {
        /// What to do.
        config: ClientConfig,
        /// With whose sockets.
        sockets: SocketsOf,
        /// Number of processes to share the pairs evenly.
        processes: u32,
        /// CPUs to run on; empty: the scheduler's choice.
        cpus: Vec<u32>,
    },
    /// Client: run a phase; answered when it has stopped initiating.
    Run {
        /// The phase.
        phase: Phase,
    },
    /// Client: wait until each process has received this many bytes, then report.
    Finish {
        /// Bytes the server has sent since it began, by process.
        received: Vec<u64>,
    },
    /// Server: wait until each process has received this many bytes, then quiesce.
    Quiesce {
        /// Bytes the client has sent since it began, by process.
        received: Vec<u64>,
    },
    /// Server: go on, with this distance between stamps.
    Resume {
        /// Distance between stamps in bytes.
        stride: u64,
    },
    /// Read what this end has counted.
    Spent,
    /// Read the CPU counters of its host.
    Host,
}

/// What an agent answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub enum Answer {
    /// Sent once, without an order, when the agent is in its place.
    Hello {
        /// `VERSION` of the agent.
        version: u32,
        /// Addresses of its place that others can reach, best first.
        addresses: Vec<std::net::IpAddr>,
    },
    /// The server listens.
    Serving {
        /// One endpoint a process.
        endpoints: Vec<Endpoint>,
    },
    /// All standing connections are made.
    Connected,
    /// The client has stopped initiating.
    Stopped {
        /// Bytes sent since it began, by process.
        sent: Vec<u64>,
    },
    /// The phase is over.
    Report(Box<Report>),
    /// The server has quiesced.
    Quiesced {
        /// Its counts, by process.
        accounts: Vec<Quiesced>,
    },
    /// The server goes on.
    Resumed,
    /// What this end has counted.
    Spent(Box<Spent>),
    /// The CPU counters of its host.
    Host(Box<HostCpu>),
}

/// What a client's processes counted in one phase, together.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Report {
    /// First start, last byte; nanoseconds of the client host's monotonic clock.
    pub start_ns: u64,
    /// See `start_ns`.
    pub end_ns: u64,
    /// Counts of this phase.
    pub counts: Counts,
    /// Latency histogram in nanoseconds: HdrHistogram V2, base64.
    pub latency: String,
    /// The same from the planned starts, for an open loop.
    pub corrected: Option<String>,
    /// Units done in each tenth of the phase.
    pub slices: Vec<f64>,
    /// Units of the pair that did the fewest.
    pub pair_least: f64,
    /// Units of the pair that did the most.
    pub pair_most: f64,
}
