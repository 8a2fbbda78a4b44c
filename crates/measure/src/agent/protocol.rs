//! The control protocol between the coordinator (the process that carries out a run) and an agent (the client or server process
//! of a trial). The coordinator sends orders, and the agent answers. An agent reads orders from its standard input and writes
//! answers to its standard output.

use crate::cpu::Spent;
use crate::cpu::host::{At, HostCpu};
use crate::load::Quiesced;
use crate::load::client::{ClientConfig, Phase};
use crate::load::server::ServerConfig;
use crate::path::route::RouteTo;
use crate::socket::{Endpoint, SocketsOf};
use serde::{Deserialize, Serialize};
use siga_results::record::{BesideRecord, LoadCounts};
use std::collections::BTreeMap;

/// Version of this protocol. An agent announces its version, and the coordinator refuses an agent with another version.
/// Versions can differ if coordinator and agent are different builds of siga.
pub(crate) const VERSION: u32 = 6;

/// An order from the coordinator to an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "lowercase")]
pub(crate) enum Order {
    /// Become the server. If `processes` is more than 1, the agent starts as many worker processes and passes its orders on to
    /// them.
    Serve {
        /// The server's configuration.
        config: ServerConfig,
        /// Implementation of the sockets that the server uses: the kernel's or a guest's.
        sockets: SocketsOf,
        /// Number of server processes, which share the pairs. Each process listens on its own endpoint.
        processes: u32,
        /// Total number of pairs that the server expects.
        pairs: u32,
        /// CPUs that the server may run on. If the list is empty, the scheduler chooses.
        cpus: Vec<u32>,
    },
    /// Become the client, and connect to the server.
    Connect {
        /// The client's configuration.
        config: ClientConfig,
        /// Implementation of the sockets that the client uses: the kernel's or a guest's.
        sockets: SocketsOf,
        /// Number of client processes, which share the pairs evenly.
        processes: u32,
        /// CPUs that the client may run on. If the list is empty, the scheduler chooses.
        cpus: Vec<u32>,
    },
    /// To a client: run a phase. The client answers when it starts no more exchanges.
    Run {
        /// The phase to run.
        phase: Phase,
        /// Length in nanoseconds of the intervals after which the client reports its counts. `None`: it reports none.
        interval_ns: Option<u64>,
    },
    /// To a client: wait until each client process has received as many bytes as the entry for it says, then end the phase and
    /// report.
    Finish {
        /// For each client process: how many bytes it must have received since it began. The server's processes sent this many.
        received: Vec<u64>,
    },
    /// To a server: wait until each server process has received as many bytes as the entry for it says, then quiesce: send
    /// nothing until `Resume`.
    Quiesce {
        /// For each server process: how many bytes it must have received since it began. The client's processes sent this many.
        received: Vec<u64>,
    },
    /// To a server: end the pause after `Quiesce` and serve again, with a new distance between stamps.
    Resume {
        /// Bytes from the start of one stamp (a checked piece of the payload) to the start of the next.
        stride: u64,
    },
    /// Report the counters of this end of the path: CPU time, process ids, protocol counters.
    Spent,
    /// Report the CPU counters of the agent's host.
    Host {
        /// Ids of processes on this host that belong to the run, besides the agent and its descendants.
        own: Vec<u32>,
        /// The place of this reading in an interval in which processes outside the run are watched.
        at: At,
    },
    /// Report how often interfaces of the agent's namespace have lost their carrier.
    Carrier {
        /// Names of the interfaces.
        interfaces: Vec<String>,
    },
    /// Report the routes from the agent's namespace to addresses, and the sysctls of this namespace.
    Routes {
        /// The addresses.
        to: Vec<std::net::IpAddr>,
    },
}

/// An agent's answer to an order.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "lowercase")]
pub(crate) enum Answer {
    /// The agent has entered its place. It sends this message once, without an order, before all answers.
    Hello {
        /// The agent's `VERSION`.
        version: u32,
        /// Addresses of the agent's place at which other hosts can reach it, the most suitable first.
        addresses: Vec<std::net::IpAddr>,
    },
    /// The server listens.
    Serving {
        /// Endpoint of each process. A single process that serves streams beside the workload has a second endpoint for them.
        endpoints: Vec<Endpoint>,
    },
    /// The client has established all standing connections.
    Connected,
    /// An interval of the phase is over. The client sends this without a further order, before `Stopped`.
    Tick(Tick),
    /// The client starts no more exchanges.
    Stopped {
        /// Bytes that each client process has sent since it began.
        sent: Vec<u64>,
    },
    /// The phase has ended. The report contains the results.
    Report(Box<Report>),
    /// The server has quiesced.
    Quiesced {
        /// Counts of each server process.
        accounts: Vec<Quiesced>,
    },
    /// The server serves again.
    Resumed,
    /// The counters of this end of the path.
    Spent(Box<Spent>),
    /// The CPU counters of the agent's host.
    Host(Box<HostCpu>),
    /// The number of times that the interfaces have lost their carrier.
    Carrier {
        /// The sum over the interfaces.
        losses: u64,
    },
    /// The routes from the agent's namespace.
    Routes {
        /// The route to each address; `None` for an address without a route.
        routes: Vec<Option<RouteTo>>,
        /// The sysctls of the namespace that affect a path.
        sysctls: BTreeMap<String, String>,
    },
}

/// The counts of a client since its phase began.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub(crate) struct Tick {
    /// Time since the phase began, in nanoseconds.
    pub at_ns: u64,
    /// Number of transactions.
    pub transactions: u64,
    /// Payload bytes sent.
    pub sent: u64,
    /// Payload bytes received.
    pub received: u64,
    /// Number of datagrams that the client knows to be lost.
    pub lost: u64,
}

impl Tick {
    /// Returns the sum of the counts of two processes. Each reports at the same times.
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            at_ns: self.at_ns.max(other.at_ns),
            transactions: self.transactions.saturating_add(other.transactions),
            sent: self.sent.saturating_add(other.sent),
            received: self.received.saturating_add(other.received),
            lost: self.lost.saturating_add(other.lost),
        }
    }
}

/// The results of one phase, summed over all processes of the client.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Report {
    /// Time at which the phase began, in nanoseconds of the monotonic clock of the client's host.
    pub start_ns: u64,
    /// Time at which the last byte arrived, on the same clock as `start_ns`.
    pub end_ns: u64,
    /// Counts of bytes, transactions and failures in this phase.
    pub counts: LoadCounts,
    /// Histogram of latencies in nanoseconds: HdrHistogram V2, base64.
    pub latency: String,
    /// In an open loop, a histogram like `latency`, but with each latency measured from the planned start of the exchange.
    pub corrected: Option<String>,
    /// Number of units (transactions or megabytes) that all pairs together completed in each tenth of the phase.
    pub slices: Vec<f64>,
    /// Number of units of the pair that completed the fewest.
    pub pair_least: f64,
    /// Number of units of the pair that completed the most.
    pub pair_most: f64,
    /// Sum over the pairs of each pair's number of units, and sum of the squares of these numbers.
    pub pair_sums: (f64, f64),
    /// What the streams beside RR carried.
    pub beside: Option<BesideRecord>,
    /// Sum of the jitters in nanoseconds of the streams of datagrams, and number of these streams.
    pub jitter: (f64, u32),
}
