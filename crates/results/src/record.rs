//! The records of a run: raw counters and nothing derived, so that a later version can reduce them again.

mod counters;

pub use counters::total;
pub use counters::{Counts, DEVICE_COUNTERS, GuestTimes, ProcessCpu};

use serde::{Deserialize, Serialize};
use siga_plan::matrix::Cell;
use std::collections::BTreeMap;

/// One timed repetition of one cell. One JSON line in `trials.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// Which cell.
    pub cell: Cell,
    /// Round of the run, from 0. The trials of a round are measured side by side in time.
    pub round: u32,
    /// Session of the run, from 0: each `siga run --resume` begins another.
    #[serde(default)]
    pub session: u32,
    /// When it was measured (UTC, RFC 3339).
    pub at: String,
    /// How the workload drivers served their sockets: "epoll block", "direct poll", …
    pub io: String,
    /// Time from the first start to the last byte of payload, by the server's clock for STRP and the client's clock otherwise.
    pub elapsed_ns: u64,
    /// What the client counted.
    pub client: Counts,
    /// What the server counted over the same interval.
    pub server: Counts,
    /// Latencies in nanoseconds: HdrHistogram V2, base64.
    pub latency: String,
    /// Latencies from the planned starts (open loop), encoded alike.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<String>,
    /// Units done in each tenth of the trial.
    pub slices: Vec<f64>,
    /// Units of the slowest pair and of the fastest pair.
    pub pair_units: (f64, f64),
    /// CPU counters over the same interval.
    pub cpu: CpuRecord,
    /// By how much protocol counters grew, by role ("client Tcp RetransSegs").
    pub protocol: BTreeMap<String, u64>,
    /// Counters of the guests' devices, by guest, device and counter: `tcpip2/lan doorbells_sent`. Zeros are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u64>,
    /// Frames dropped by interfaces of the path, and packets that connection tracking had no room for.
    pub drops: u64,
    /// What went wrong in the trial, in words. A sound trial has none.
    pub flags: Vec<String>,
}

/// Session and round of a trial. Trials of one slot were measured side by side. A resumed run completes the round that was cut
/// off, but in another session: those trials were not measured beside the earlier ones.
pub type Slot = (u32, u32);

impl TrialRecord {
    /// Its session and round.
    pub fn slot(&self) -> Slot {
        (self.session, self.round)
    }

    /// Units done.
    pub fn units(&self) -> f64 {
        self.cell.workload.units(self.client.transactions, self.client.sent.saturating_add(self.client.received))
    }

    /// Units per second.
    pub fn rate(&self) -> f64 {
        self.units() * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Retransmitted TCP segments of both sides.
    pub fn retransmits(&self) -> u64 {
        total(self.protocol.iter().filter(|(name, _)| name.ends_with("Tcp RetransSegs")).map(|(_, count)| *count))
    }
}

/// CPU counters of one trial; the sum of both hosts if client and server are on two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// Hosts involved.
    pub hosts: u32,
    /// CPUs online, all hosts.
    pub cpus: u32,
    /// Time between the two readings.
    pub wall_ns: u64,
    /// Wall x CPUs - idle - iowait - steal, all hosts.
    pub busy_ns: u64,
    /// Largest error of `busy_ns`.
    pub resolution_ns: u64,
    /// User mode, by the kernel's timer tick.
    pub user_tick_ns: u64,
    /// Kernel mode and hard interrupts, by the tick.
    pub system_tick_ns: u64,
    /// Softirq, by the tick.
    pub softirq_tick_ns: u64,
    /// Run time of the client's processes.
    pub client: ProcessCpu,
    /// Run time of the server's processes.
    pub server: ProcessCpu,
    /// CPU samples, if the trial was profiled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileRecord>,
    /// CPU time of the guests, if the path is one of siga's networks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<GuestsRecord>,
    /// Packets and nanoseconds of the CPU cost that calibration injected into the router.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planted_router: Option<(u64, u64)>,
}

/// How the processes of a siga network used their time. The run times of client and server are in [`CpuRecord`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestsRecord {
    /// The client's times, by its own clock.
    pub client: GuestTimes,
    /// The server's times, by its own clock.
    pub server: GuestTimes,
    /// If client and server are applications of guests: run time and times of these two guests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<((ProcessCpu, GuestTimes), (ProcessCpu, GuestTimes))>,
    /// Run time and times of the router.
    pub router: Option<(ProcessCpu, GuestTimes)>,
    /// Run time of the control program.
    pub control: ProcessCpu,
}

/// CPU samples, by the process that was interrupted and the component that is charged.
///
/// The ends' processes have exact run times, so their samples serve only as shares. Any other sample counts as one period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRecord {
    /// CPU time that one sample stands for.
    pub period_ns: u64,
    /// Samples that interrupted the client's processes.
    pub on_client: Charges,
    /// Samples that interrupted the server's processes.
    pub on_server: Charges,
    /// Samples that interrupted any other process.
    pub elsewhere: Charges,
}

/// Samples by the component that is charged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charges {
    /// The client.
    pub client: Samples,
    /// The router.
    pub router: Samples,
    /// The server.
    pub server: Samples,
    /// Everything else.
    pub other: Samples,
}

impl Charges {
    /// The sum of all samples.
    pub fn all(&self) -> u64 {
        total(
            [self.client, self.router, self.server, self.other]
                .iter()
                .flat_map(|samples| [samples.user, samples.kernel]),
        )
    }
}

/// Samples of one component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// In user mode.
    pub user: u64,
    /// In the kernel, for its processes or in its namespace.
    pub kernel: u64,
}

impl Samples {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { user: self.user.saturating_add(other.user), kernel: self.kernel.saturating_add(other.kernel) }
    }
}

/// A cell without a trial, with its reason. One JSON line in `skipped.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// Which cell.
    pub cell: Cell,
    /// Why, in words.
    pub reason: String,
}

/// A path as it was built for a cell. One JSON line in `paths.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// Which cell.
    pub cell: Cell,
    /// Congestion control of its sockets.
    pub congestion: Option<String>,
    /// Interface settings as read back.
    pub interfaces: BTreeMap<String, String>,
    /// Sysctls as read back.
    pub sysctls: BTreeMap<String, String>,
    /// Packet filters as read back: where, number of rules and chains, hash of what the kernel lists.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub filters: BTreeMap<String, String>,
    /// What could not be set.
    pub notes: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earlier_name_of_the_time_on_a_shared_cpu_is_read() {
        let line = r#"{"copying_ns": 1, "looking_ns": 2, "yielding_ns": 3, "gathered_ns": 4}"#;
        assert_eq!(serde_json::from_str::<GuestTimes>(line).unwrap().colocated_ns, 4);
    }

    #[test]
    fn a_path_record_without_filters_is_read() {
        let line = r#"{"cell": {"path": "veth", "workload": "rr-1-1", "mtu": 1500, "clients": 1, "level": "plain"},
            "congestion": null, "interfaces": {}, "sysctls": {}, "notes": []}"#;
        let path: PathRecord = serde_json::from_str(line).unwrap();
        assert!(path.filters.is_empty());
        assert!(!serde_json::to_string(&path).unwrap().contains("filters"));
    }
}
