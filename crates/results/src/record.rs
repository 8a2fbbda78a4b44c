//! What a trial leaves behind: raw counters, nothing derived, so that a later version can reduce it again.

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
    /// Round of the run, from 0: the trials of a round stand side by side in time.
    pub round: u32,
    /// Which of the processes that have measured this run, from 0: one went on where the last was cut off.
    #[serde(default)]
    pub session: u32,
    /// When it was measured (UTC, RFC 3339).
    pub at: String,
    /// How the drivers served their sockets: "epoll block", "direct poll", …
    pub io: String,
    /// From the first start to the last byte of payload, by one clock: the server's for STRP, else the client's.
    pub elapsed_ns: u64,
    /// What the client counted.
    pub client: Counts,
    /// What the server counted over the same interval.
    pub server: Counts,
    /// Latencies in nanoseconds: HdrHistogram V2, base64.
    pub latency: String,
    /// The same from the planned starts (open loop).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<String>,
    /// Units done in each tenth of the trial.
    pub slices: Vec<f64>,
    /// Units of the pair that did least and of the one that did most.
    pub pair_units: (f64, f64),
    /// CPU counters over the same interval.
    pub cpu: CpuRecord,
    /// Protocol counters that grew, by role ("client Tcp RetransSegs").
    pub protocol: BTreeMap<String, u64>,
    /// What devices of guests have counted, by guest, device and counter: `tcpip2/lan doorbells_sent`. Zeros are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u64>,
    /// Frames dropped by interfaces of the path, and packets that connection tracking had no room for.
    pub drops: u64,
    /// What is wrong with the trial, in words; empty on a sound one.
    pub flags: Vec<String>,
}

/// Where in time a trial stood: the process that measured it, and its round. Those of one slot stood side by side; a run that
/// went on later has filled up the round it was cut off in, but those trials did not stand beside the earlier ones.
pub type Slot = (u32, u32);

impl TrialRecord {
    /// Where in time it stood.
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

    /// TCP segments sent again, both sides.
    pub fn retransmits(&self) -> u64 {
        total(self.protocol.iter().filter(|(name, _)| name.ends_with("Tcp RetransSegs")).map(|(_, count)| *count))
    }
}

/// CPU counters of one trial. Both hosts together where the places are on two.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// Hosts involved.
    pub hosts: u32,
    /// CPUs online, all hosts.
    pub cpus: u32,
    /// Between the two readings.
    pub wall_ns: u64,
    /// Wall x CPUs - idle - iowait - steal, all hosts.
    pub busy_ns: u64,
    /// How far `busy_ns` can be off.
    pub resolution_ns: u64,
    /// By the tick: user mode.
    pub user_tick_ns: u64,
    /// By the tick: kernel mode and hard interrupts.
    pub system_tick_ns: u64,
    /// By the tick: softirq.
    pub softirq_tick_ns: u64,
    /// Run time of the client's processes.
    pub client: ProcessCpu,
    /// Run time of the server's processes.
    pub server: ProcessCpu,
    /// What sampling saw, where it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileRecord>,
    /// What the guests of a siga network counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<GuestsRecord>,
    /// Packets and nanoseconds of a planted router cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planted_router: Option<(u64, u64)>,
}

/// How the processes of a siga network used their time; the run times of client and server stand beside it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestsRecord {
    /// The client's, by its own clock.
    pub client: GuestTimes,
    /// The server's, by its own clock.
    pub server: GuestTimes,
    /// Where client and server are applications of guests, these guests: run time, and how they used it by their stacks' clocks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<((ProcessCpu, GuestTimes), (ProcessCpu, GuestTimes))>,
    /// Run time of the router, and how it used it by its stack's clock.
    pub router: Option<(ProcessCpu, GuestTimes)>,
    /// Run time of the control program.
    pub control: ProcessCpu,
}

/// CPU samples by whose process they interrupted and who is charged for them.
///
/// Processes of the ends have exact run times, so their samples are only used as shares; elsewhere a sample is worth its
/// period.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRecord {
    /// CPU time a sample stands for.
    pub period_ns: u64,
    /// On top of the client's processes.
    pub on_client: Charges,
    /// On top of the server's processes.
    pub on_server: Charges,
    /// On any other process.
    pub elsewhere: Charges,
}

/// Samples by who is charged.
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
    /// All samples of this context.
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
    /// Both together.
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
    fn a_path_recorded_before_filters_were_loads() {
        let line = r#"{"cell": {"path": "veth", "workload": "rr-1-1", "mtu": 1500, "clients": 1, "level": "plain"},
            "congestion": null, "interfaces": {}, "sysctls": {}, "notes": []}"#;
        let path: PathRecord = serde_json::from_str(line).unwrap();
        assert!(path.filters.is_empty());
        assert!(!serde_json::to_string(&path).unwrap().contains("filters"));
    }
}
