//! What a trial measured at the loads that the plan offers besides the closed loop.

use super::PhaseRecord;
use serde::{Deserialize, Serialize};
use siga_plan::offered::Offered;

/// A phase of a trial in which transactions started at planned times.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OfferedRecord {
    /// The load, in percent of the rate of the trial's own phase.
    pub load: Offered,
    /// Number of planned transactions per second.
    pub planned_per_s: f64,
    /// The counts of the phase.
    pub phase: PhaseRecord,
    /// Histogram of latencies that are counted from the planned start of each transaction, as `TrialRecord::latency`.
    pub latency: String,
}
