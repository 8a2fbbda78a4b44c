//! What the profiler itself costs in a trial: the counts of a phase with the profiler, and of a phase without it.
//!
//! The trial's own phase runs without the profiler. Then follows a phase with it, from which `CpuRecord::profile` is, and a phase
//! without it. So the phase with the profiler lies between two phases without it, and a steady change of the rate cancels out.

use super::LoadCounts;
use serde::{Deserialize, Serialize};
use siga_plan::work::Work;

/// The counts of a phase besides the trial's own phase.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseRecord {
    /// Duration of the exchange in nanoseconds, as `TrialRecord::elapsed_ns`.
    pub elapsed_ns: u64,
    /// Numbers of exchanges, bytes and errors that the client counted.
    pub client: LoadCounts,
}

/// The phases that show what the profiler itself costs, and what it says that it costs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObserverRecord {
    /// The phase with the profiler, after the trial's own phase.
    pub with: PhaseRecord,
    /// The phase without the profiler, after `with`.
    pub without: PhaseRecord,
    /// CPU time in nanoseconds that one sample takes, as measured before the run.
    pub sample_ns: u64,
    /// CPU time in nanoseconds that the profiler takes for each received packet, as measured before the run.
    pub packet_ns: u64,
    /// Number of packets for which it took this time in the phase `with`.
    pub packets: u64,
}

impl PhaseRecord {
    /// Returns the number of units to which CPU time of `workload` is related.
    pub(crate) fn cpu_units(&self, workload: Work) -> f64 {
        workload.cpu_units(self.client.transactions, self.client.sent.saturating_add(self.client.received))
    }

    /// Returns the number of units of `workload` that were completed in this phase.
    pub(crate) fn units(&self, workload: Work) -> f64 {
        workload.units(self.client.transactions, self.client.sent.saturating_add(self.client.received))
    }

    /// Returns the number of units of `workload` per second that were completed in this phase.
    pub fn rate(&self, workload: Work) -> f64 {
        self.units(workload) * 1e9 / self.elapsed_ns.max(1) as f64
    }
}
