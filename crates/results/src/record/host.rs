//! What a host did besides a trial while the trial ran. The rule that decides from these figures whether the host disturbed a round
//! is in `crate::disturbance`.

use serde::{Deserialize, Serialize};

/// What the hosts of a trial did besides the trial, over the same interval as `CpuRecord`. Times are sums over all hosts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Time in nanoseconds in which hypervisors ran other virtual machines instead of the hosts' CPUs (steal time).
    pub steal_ns: u64,
    /// CPU time in nanoseconds of processes outside the run. Kernel threads do not count, because they work for the path. `None` if
    /// the processes of a host are not visible.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub others_ns: Option<u64>,
    /// Number of other runs of siga on the hosts at the end of the trial.
    #[serde(default)]
    pub other_runs: u32,
    /// How long the processes of the path waited for a CPU. `None` if the kernel does not count this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_queue: Option<RunQueueDelay>,
    /// Times of elementary operations on the coordinator's host, shortly before the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Probe>,
    /// How often interfaces of the path lost their carrier during the trial.
    #[serde(default)]
    pub carrier_losses: u64,
    /// Number of attempts at this trial before this one that gave no result, because the host kept the trial from running.
    #[serde(default)]
    pub lost_attempts: u32,
}

/// Time in nanoseconds in which threads of the path could run, but waited for a CPU (run-queue delay), by component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunQueueDelay {
    /// The client's threads, including those of a guest whose stack the client uses.
    pub client_ns: u64,
    /// The threads of a router that is a guest; 0 for other paths.
    pub router_ns: u64,
    /// The server's threads, including those of a guest whose stack the server uses.
    pub server_ns: u64,
}

impl RunQueueDelay {
    /// Returns the sum over the components.
    pub fn total_ns(&self) -> u64 {
        super::total([self.client_ns, self.router_ns, self.server_ns])
    }

    /// Returns the growth since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            client_ns: self.client_ns.saturating_sub(earlier.client_ns),
            router_ns: self.router_ns.saturating_sub(earlier.router_ns),
            server_ns: self.server_ns.saturating_sub(earlier.server_ns),
        }
    }
}

/// Median times of elementary operations in nanoseconds: a probe of about a millisecond between two trials.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// Waking a sleeping thread on the same CPU, and back.
    pub wake_here_ns: u64,
    /// Waking a sleeping thread on another CPU, and back. `None` if there is one CPU only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wake_across_ns: Option<u64>,
    /// Moving a cache line to another CPU, and back. `None` if there is one CPU only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_line_ns: Option<u64>,
}
