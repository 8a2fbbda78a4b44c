//! The records of a run. They contain raw counters but no derived figures, so a later version of siga can compute all figures
//! again.

mod chains;
mod command;
mod counters;
mod host;
mod observer;
mod offered;
mod series;

pub use chains::{ChainNode, ChainTree, ChainsRecord, Owner};
pub use command::{CommandRecord, FigureRecord, HostActivity, NamedProcesses, Usage, WorkRecord};
pub use counters::total;
pub use counters::{DEVICE_COUNTERS, GuestTimes, LoadCounts, ProcessCpu};
pub use host::{HostRecord, Probe, RunQueueDelay};
pub use observer::{ObserverRecord, PhaseRecord};
pub use offered::OfferedRecord;
pub use series::{SeriesCpu, SeriesRecord};

use serde::{Deserialize, Serialize};
use siga_plan::command::figure::FigureKey;
use siga_plan::matrix::Cell;
use siga_plan::workload::Shape;
use std::collections::BTreeMap;
use std::net::IpAddr;

/// One timed repetition of one cell. A record is one JSON line in `trials.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// The cell that was measured.
    pub cell: Cell,
    /// Number of the round within the run, from 0. A round has one trial of each cell; these trials are measured shortly after
    /// one another.
    pub round: u32,
    /// Number of the session within the run, from 0. Each `siga run --resume` begins another session.
    #[serde(default)]
    pub session: u32,
    /// Time at which the trial was measured (UTC, RFC 3339).
    pub at: String,
    /// How the workload drivers did their I/O, and how they waited for it: "epoll, block", "embedded, poll", …
    pub io: String,
    /// Duration of the measured exchange in nanoseconds, until the last byte of payload. For STRP (a stream from client to
    /// server) the server's clock measures it, otherwise the client's. For a command, the sum of the durations of its runs.
    pub elapsed_ns: u64,
    /// Numbers of exchanges, bytes and errors that the client counted. The runs of a command count as exchanges.
    pub client: LoadCounts,
    /// Numbers of exchanges, bytes and errors that the server counted over the same interval.
    pub server: LoadCounts,
    /// Histogram of latencies in nanoseconds, as HdrHistogram V2 in base64.
    pub latency: String,
    /// Histogram of latencies that are counted from the planned start of each transaction, in the same encoding as `latency`.
    /// `None` unless the load is an open loop (transactions start at planned times).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub corrected: Option<String>,
    /// Number of units (transactions or megabytes) completed in each tenth of the trial.
    pub slices: Vec<f64>,
    /// Number of units completed by the slowest and by the fastest client-server pair.
    pub pair_units: (f64, f64),
    /// Jain's index of the units completed by each pair: 1 if all pairs completed the same number, 1/n if one of n pairs completed
    /// all. `None` in records of earlier versions, and if the pairs completed too few units to tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// Mean interarrival jitter (RFC 3550) of the streams of datagrams, in nanoseconds. `None` for other workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jitter_ns: Option<f64>,
    /// What the streams beside RR carried. `None` for other workloads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub beside: Option<BesideRecord>,
    /// Transactions per second of the neighbours: the two guests with traffic of their own on the cards of client and server. `None`
    /// if the level sets no neighbours.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours_rate: Option<f64>,
    /// CPU counters over the same interval as the counts.
    pub cpu: CpuRecord,
    /// What a command used. `None` if the cell measures a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandRecord>,
    /// What the profiler cost. `None` if the trial was not profiled, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observer: Option<ObserverRecord>,
    /// Phases with the loads that the plan offers besides the closed loop.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offered: Vec<OfferedRecord>,
    /// What the hosts did besides the trial. `None` in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostRecord>,
    /// Increase of each protocol counter of the kernel or stack during the trial, by role and counter name ("client Tcp
    /// RetransSegs").
    pub protocol: BTreeMap<String, u64>,
    /// Increase of each counter of the guests' devices during the trial, by guest, device and counter (`tcpip2/lan
    /// doorbells_sent`). Counters that did not increase are left out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub devices: BTreeMap<String, u64>,
    /// Number of frames that interfaces of the path dropped, plus packets that connection tracking dropped because its table was
    /// full.
    pub drops: u64,
    /// Flaws of the trial: what went wrong, in words. A trial without a flaw is called sound.
    pub flags: Vec<String>,
}

/// Session and round of a trial. The trials of one slot were measured close together in time, so they can be paired. A resumed
/// run completes the interrupted round in another session. So these trials are not paired with the earlier trials of that round,
/// because time has passed between them.
pub type Slot = (u32, u32);

impl TrialRecord {
    /// Returns the session and round of the trial.
    pub fn slot(&self) -> Slot {
        (self.session, self.round)
    }

    /// Returns the number of units completed.
    pub fn units(&self) -> f64 {
        self.cell.workload.units(self.client.transactions, self.client.sent.saturating_add(self.client.received))
    }

    /// Returns the number of units to which CPU time is related.
    pub fn cpu_units(&self) -> f64 {
        self.cell.workload.cpu_units(self.client.transactions, self.client.sent.saturating_add(self.client.received))
    }

    /// Returns the rates of a workload that streams in both directions at once, in MB per second: to the server, and to the client.
    pub fn directions(&self) -> Option<(f64, f64)> {
        let rate = |bytes: u64| bytes as f64 * 1e3 / self.elapsed_ns.max(1) as f64;
        (self.cell.workload.shape() == Some(Shape::Strb)).then(|| (rate(self.client.sent), rate(self.client.received)))
    }

    /// Returns the figures that the command printed, with those per unit of its work.
    pub fn figures(&self) -> Vec<(FigureKey, f64)> {
        let cpu_ns = self.cpu.client.run_ns.saturating_add(self.cpu.server.run_ns);
        self.command.as_ref().map(|used| used.figures(self.elapsed_ns, cpu_ns)).unwrap_or_default()
    }

    /// Returns true if the trial is that of a command with a server, so that two sides are charged.
    pub fn has_server(&self) -> bool {
        self.command.as_ref().is_some_and(|used| used.server.is_some())
    }

    /// Returns the number of units completed per second.
    pub fn rate(&self) -> f64 {
        self.units() * 1e9 / self.elapsed_ns.max(1) as f64
    }

    /// Returns what the network did with the datagrams of the trial's streams. `None` for other workloads.
    pub fn datagrams(&self) -> Option<Datagrams> {
        self.cell.workload.is_datagram_stream().then(|| {
            let (sent, delivered) = (self.server.transactions, self.client.transactions);
            Datagrams {
                sent,
                lost: sent.saturating_sub(delivered),
                send_rate: self.server.sent as f64 * 1e3 / self.elapsed_ns.max(1) as f64,
                reordered: self.client.reordered,
                duplicated: self.client.duplicated,
                foreign: self.client.foreign.saturating_add(self.server.foreign),
                jitter_us: self.jitter_ns.map(|ns| ns / 1e3),
            }
        })
    }

    /// Returns the number of TCP segments that both sides retransmitted.
    pub fn retransmits(&self) -> u64 {
        total(self.protocol.iter().filter(|(name, _)| name.ends_with("Tcp RetransSegs")).map(|(_, count)| *count))
    }
}

/// What streams beside RR carried in a trial.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BesideRecord {
    /// Payload bytes that arrived at the client.
    pub bytes: u64,
    /// Time in nanoseconds until the last of them arrived.
    pub elapsed_ns: u64,
}

impl BesideRecord {
    /// Returns megabytes per second.
    pub fn rate(&self) -> f64 {
        self.bytes as f64 * 1e3 / self.elapsed_ns.max(1) as f64
    }
}

/// What the network did with the datagrams of the streams of one trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Datagrams {
    /// Number of datagrams that the server sent.
    pub sent: u64,
    /// Number of datagrams that the server sent and that did not arrive.
    pub lost: u64,
    /// Payload that the server sent, in MB per second.
    pub send_rate: f64,
    /// Number of datagrams that arrived after a later one of their stream.
    pub reordered: u64,
    /// Number of datagrams that arrived again.
    pub duplicated: u64,
    /// Number of datagrams that client and server ignored, because they belong to no stream of the trial.
    pub foreign: u64,
    /// Interarrival jitter in microseconds; `None` if no stream had two datagrams.
    pub jitter_us: Option<f64>,
}

impl Datagrams {
    /// Returns the fraction of the sent datagrams that were lost.
    pub fn loss(&self) -> f64 {
        self.lost as f64 / self.sent.max(1) as f64
    }
}

/// CPU counters of one trial. If client and server run on two hosts, each counter is the sum of both hosts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CpuRecord {
    /// Number of hosts of the trial.
    pub hosts: u32,
    /// Number of online CPUs, summed over all hosts.
    pub cpus: u32,
    /// Time between the two readings of the counters, in nanoseconds.
    pub wall_ns: u64,
    /// CPU time of all hosts in nanoseconds: wall x CPUs - idle - iowait - steal.
    pub busy_ns: u64,
    /// Maximum error of `busy_ns`, in nanoseconds.
    pub resolution_ns: u64,
    /// Time in user mode in nanoseconds, sampled by the kernel's timer tick.
    pub user_tick_ns: u64,
    /// Time in kernel mode and in hard interrupts in nanoseconds, sampled by the timer tick.
    pub system_tick_ns: u64,
    /// Time in softirqs in nanoseconds, sampled by the timer tick.
    pub softirq_tick_ns: u64,
    /// CPU time of the client's processes, or of all processes of a command.
    pub client: ProcessCpu,
    /// CPU time of the server's processes.
    pub server: ProcessCpu,
    /// CPU samples of the phase with the profiler; `None` if the trial was not profiled. In records of earlier versions, the profiler
    /// ran in the trial's own phase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<ProfileRecord>,
    /// Sampled call chains; `None` if the trial was not profiled, and in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chains: Option<ChainsRecord>,
    /// CPU time of the guests; `None` if the path is not a siga network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guests: Option<GuestsRecord>,
    /// On a path over the user's own network: CPU time of each router and switch between client and server, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub between: BTreeMap<String, ProcessCpu>,
    /// Only in a calibration: number of packets for which the router spent an injected CPU cost, and the injected nanoseconds in
    /// total.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planted_router: Option<(u64, u64)>,
}

/// CPU time of the processes of a siga network. The run times of client and server are in [`CpuRecord`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestsRecord {
    /// Times (copying, polling, yielding) of the client's process, measured by the process's own clock.
    pub client: GuestTimes,
    /// Times (copying, polling, yielding) of the server's process, measured by the process's own clock.
    pub server: GuestTimes,
    /// If client and server are applications that use the stacks of guests: run time and times of the client's guest, then of the
    /// server's guest. `None` otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stacks: Option<((ProcessCpu, GuestTimes), (ProcessCpu, GuestTimes))>,
    /// Run time and times of the router; `None` if the path has no router.
    pub router: Option<(ProcessCpu, GuestTimes)>,
    /// CPU time of the control program.
    pub control: ProcessCpu,
    /// Time in nanoseconds that a reading of the monotonic clock takes: at least as long as a reading of a guest's own clock. 0 in
    /// records of earlier versions.
    #[serde(default)]
    pub clock_ns: u64,
}

/// Numbers of CPU samples, by the process that a sample interrupted and by the component (client, router, server, other) to which
/// it is charged.
///
/// The run times of client and server processes are known exactly, so samples in these processes only divide the run time among
/// components. Each sample in another process counts as `period_ns` of CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileRecord {
    /// CPU time that one sample represents, in nanoseconds.
    pub period_ns: u64,
    /// Samples taken while a process of the client was on the CPU.
    pub on_client: Charges,
    /// Samples taken while a process of the server was on the CPU.
    pub on_server: Charges,
    /// Samples taken while any other process was on the CPU.
    pub elsewhere: Charges,
}

impl ProfileRecord {
    /// Returns the number of all samples.
    pub fn all(&self) -> u64 {
        total([self.on_client, self.on_server, self.elsewhere].iter().map(Charges::all))
    }
}

/// Numbers of samples by the component to which they are charged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Charges {
    /// Samples charged to the client.
    pub client: Samples,
    /// Samples charged to the router.
    pub router: Samples,
    /// Samples charged to the server.
    pub server: Samples,
    /// Samples charged to everything else.
    pub other: Samples,
}

impl Charges {
    /// Returns the number of all samples.
    pub fn all(&self) -> u64 {
        total(
            [self.client, self.router, self.server, self.other]
                .iter()
                .flat_map(|samples| [samples.user, samples.kernel]),
        )
    }
}

/// Numbers of samples of one component.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Samples {
    /// Samples in user mode.
    pub user: u64,
    /// Samples in the kernel, taken in the component's processes or in its network namespace.
    pub kernel: u64,
}

impl Samples {
    /// Returns the field-wise sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { user: self.user.saturating_add(other.user), kernel: self.kernel.saturating_add(other.kernel) }
    }
}

/// A cell that was not measured, with the reason. A record is one JSON line in `skipped.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Skipped {
    /// The cell that was skipped.
    pub cell: Cell,
    /// The reason, in words.
    pub reason: String,
}

/// The settings of a path as it was built for a cell. A record is one JSON line in `paths.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathRecord {
    /// The cell for which the path was built.
    pub cell: Cell,
    /// Name of the congestion control algorithm of the path's TCP sockets.
    pub congestion: Option<String>,
    /// The address to which the client connects. `None` for AF_UNIX, networks of guests, and records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_address: Option<IpAddr>,
    /// Interface settings as read back from the kernel or the guests, by interface.
    pub interfaces: BTreeMap<String, String>,
    /// Sysctls as read back from the kernel, by name.
    pub sysctls: BTreeMap<String, String>,
    /// Packet filters as read back from the kernel, by the node of the path that has the filter. A value gives the number of
    /// rules and chains, and a hash of the kernel's list of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub filters: BTreeMap<String, String>,
    /// Messages about settings that could not be applied.
    pub notes: Vec<String>,
    /// What the level's build of siga says about itself. `None` for the program that carried out the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<String>,
}

impl PathRecord {
    /// Returns the record of a cell of which no setting was read back.
    pub fn without_settings(cell: &Cell) -> Self {
        Self {
            cell: cell.clone(),
            congestion: None,
            server_address: None,
            interfaces: BTreeMap::new(),
            sysctls: BTreeMap::new(),
            filters: BTreeMap::new(),
            notes: Vec::new(),
            build: None,
        }
    }
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
    fn a_trial_record_that_says_nothing_about_the_host_is_read() {
        let old = crate::testing::trial("veth", 0, 700, None);
        let line = serde_json::to_string(&old).unwrap();
        assert!(!line.contains("\"host\"") && !line.contains("fairness"), "as earlier versions wrote it: {line}");
        assert_eq!(serde_json::from_str::<TrialRecord>(&line).unwrap(), old);
        let host = serde_json::from_str::<HostRecord>(r#"{"steal_ns": 7}"#).unwrap();
        assert_eq!(host, HostRecord { steal_ns: 7, ..HostRecord::default() });
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
