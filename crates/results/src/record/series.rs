//! The progress of a trial over time: one record for each interval of its measured phase.

use serde::{Deserialize, Serialize};
use siga_plan::matrix::Cell;

/// What happened in one interval of a trial. A record is one JSON line in `series.jsonl`. No verdict uses it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SeriesRecord {
    /// Time at which the interval ended (UTC, RFC 3339).
    pub at: String,
    /// The cell that is measured: path, workload, MTU, pairs and level.
    #[serde(flatten)]
    pub cell: Cell,
    /// Number of the round within the run, from 0.
    pub round: u32,
    /// Time from the begin of the phase to the end of the interval, in seconds.
    pub second: f64,
    /// Length of the interval in seconds.
    pub seconds: f64,
    /// Units per second in the interval.
    pub rate: f64,
    /// The unit of `rate`.
    pub rate_unit: String,
    /// Number of completed transactions; of a stream of datagrams, the number of delivered datagrams.
    pub transactions: u64,
    /// Payload bytes that the client sent.
    pub bytes_to_server: u64,
    /// Payload bytes that the client received.
    pub bytes_to_client: u64,
    /// Number of datagrams known to be lost. A reordered datagram counts as lost until it arrives.
    pub lost: u64,
    /// CPU time in the interval.
    pub cpu_ms: SeriesCpu,
}

/// CPU time in milliseconds by component. `None` where it is not known during a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct SeriesCpu {
    /// The client's processes, and its guest.
    pub client: Option<f64>,
    /// The router's guest. The router of a path through the kernel has no process.
    pub router: Option<f64>,
    /// The server's processes, and its guest.
    pub server: Option<f64>,
    /// The whole host of siga.
    pub host: Option<f64>,
}
