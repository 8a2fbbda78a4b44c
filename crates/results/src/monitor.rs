//! What the monitor records: the counters of the processes of a network or a place, and what happened between two readings.
//!
//! A [`Reading`] has counters since each process began. A [`Sample`] is the difference of two readings. A process that only the later
//! reading has, or that was replaced by another process, has no differences yet.

use serde::{Deserialize, Serialize};
use siga_plan::matrix::Cell;
use std::collections::HashMap;

/// The counters of a network or a place at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct Reading {
    /// The time (UTC, RFC 3339).
    pub at: String,
    /// The same time in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// The host.
    pub host: HostReading,
    /// The processes, in the order in which tables show them.
    pub processes: Vec<ProcessReading>,
    /// The monitor's own CPU time.
    pub monitor: CpuReading,
}

/// The CPU counters of a host since it started, summed over all CPUs, and its pressure.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HostReading {
    /// Number of CPUs.
    pub cpus: u32,
    /// Time in user mode, in nanoseconds.
    pub virtual_ns: u64,
    /// Time in the kernel, interrupts included, in nanoseconds.
    pub cp_ns: u64,
    /// Time in which the CPUs were idle or waited for I/O, in nanoseconds.
    pub idle_ns: u64,
    /// Time that the hypervisor gave to other virtual machines, in nanoseconds.
    pub steal_ns: u64,
    /// Pressure (PSI): time in which a task waited for a CPU, for I/O or for memory, in nanoseconds. `None` if the kernel does not
    /// count it.
    pub pressure_ns: [Option<u64>; 3],
}

/// The counters of a process.
#[derive(Debug, Clone, PartialEq)]
pub struct ProcessReading {
    /// The identity of the process.
    pub who: Who,
    /// Its CPU time. `None` if there is no process, or if its CPU time cannot be read.
    pub cpu: Option<CpuReading>,
    /// The counters of its stack or switch. `None` if the process has none, or did not report.
    pub net: Option<NetReading>,
}

/// A process of a network or a place.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Who {
    /// Name of the guest or switch, or name of the program.
    pub name: String,
    /// What the process does.
    pub role: Role,
    /// The guest whose stack an application uses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub guest: Option<String>,
    /// The process id. `None` if there is no process.
    pub pid: Option<u32>,
    /// What state the process is in.
    pub state: State,
    /// How often the control program restarted the guest after a failure.
    pub restarts: u32,
}

/// What a process does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The control program of a network.
    Control,
    /// A guest that forwards no packets.
    Guest,
    /// A guest that forwards packets.
    Router,
    /// The switch of a network.
    Switch,
    /// A process that uses the stack of a guest.
    Application,
    /// A process of a place.
    Process,
}

impl Role {
    /// Returns the name of the role.
    pub fn name(self) -> &'static str {
        match self {
            Self::Control => "control",
            Self::Guest => "guest",
            Self::Router => "router",
            Self::Switch => "switch",
            Self::Application => "application",
            Self::Process => "process",
        }
    }
}

/// The state of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The process runs.
    Running,
    /// The guest runs, but did not report its counters in time.
    Silent,
    /// There is no process, or it is not ready.
    Down,
}

impl State {
    /// Returns the name of the state.
    pub fn name(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Silent => "silent",
            Self::Down => "down",
        }
    }
}

/// CPU time of a process since it began, in nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CpuReading {
    /// Time on a CPU, exact.
    pub run_ns: u64,
    /// The part of `run_ns` in user mode (z/VM: virtual time), which the kernel estimates.
    pub virtual_ns: u64,
    /// Time in which threads could run, but waited for a CPU (run-queue delay). `None` if the kernel does not count it.
    pub wait_ns: Option<u64>,
}

/// The counters of a stack or a switch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NetReading {
    /// Sent packets. A large segment is one packet.
    pub packets_sent: u64,
    /// Received packets.
    pub packets_received: u64,
    /// Bytes of the sent packets.
    pub bytes_sent: u64,
    /// Bytes of the received packets.
    pub bytes_received: u64,
    /// Packets dropped for any reason.
    pub dropped: u64,
    /// TCP connections now.
    pub connections: u64,
    /// Buffers of all outgoing rings now.
    pub buffers: u64,
    /// Those buffers that the partners have not given back yet.
    pub buffers_used: u64,
}

impl NetReading {
    /// Returns the fill of the outgoing rings in percent. `None` if there is no ring.
    pub fn fill_percent(&self) -> Option<f64> {
        (self.buffers > 0).then(|| 100.0 * self.buffers_used as f64 / self.buffers as f64)
    }
}

/// What happened between two readings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sample {
    /// Time of the later reading (UTC, RFC 3339).
    pub at: String,
    /// Number of the sample, from 1.
    pub number: u64,
    /// Time between the readings in seconds.
    pub seconds: f64,
    /// The host.
    pub host: HostSample,
    /// The processes.
    pub processes: Vec<ProcessSample>,
    /// CPU time of the monitor itself.
    pub monitor: CpuSample,
}

/// A sample that was taken during a trial of a run. A record is one JSON line in `monitor.jsonl`. No verdict uses it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MonitorRecord {
    /// The cell that was measured.
    pub cell: Cell,
    /// Number of the round within the run, from 0.
    pub round: u32,
    /// The sample.
    pub sample: Sample,
}

/// What a host did in an interval. Times are in milliseconds, summed over all CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct HostSample {
    /// Number of CPUs.
    pub cpus: u32,
    /// Time in user mode.
    pub virtual_ms: f64,
    /// Time in the kernel.
    pub cp_ms: f64,
    /// Idle time.
    pub idle_ms: f64,
    /// Time that the hypervisor gave to other virtual machines.
    pub steal_ms: f64,
    /// Time in which a task waited for a CPU.
    pub cpu_pressure_ms: Option<f64>,
    /// Time in which a task waited for I/O.
    pub io_pressure_ms: Option<f64>,
    /// Time in which a task waited for memory.
    pub memory_pressure_ms: Option<f64>,
}

/// What a process did in an interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProcessSample {
    /// The process.
    #[serde(flatten)]
    pub who: Who,
    /// CPU time.
    pub cpu: Option<CpuSample>,
    /// Traffic.
    pub net: Option<NetSample>,
}

/// CPU time in an interval, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct CpuSample {
    /// Time in user mode.
    pub virtual_ms: f64,
    /// Time in the kernel.
    pub cp_ms: f64,
    /// Time in which threads could run, but waited for a CPU.
    pub wait_ms: Option<f64>,
    /// Time on a CPU, in percent of one CPU.
    pub percent: f64,
}

/// Traffic in an interval, and the state at its end.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NetSample {
    /// Sent packets.
    pub packets_sent: u64,
    /// Received packets.
    pub packets_received: u64,
    /// Sent bytes.
    pub bytes_sent: u64,
    /// Received bytes.
    pub bytes_received: u64,
    /// Dropped packets.
    pub dropped: u64,
    /// TCP connections at the end of the interval.
    pub connections: u64,
    /// Fill of the outgoing rings at the end of the interval, in percent.
    pub ring_fill_percent: Option<f64>,
}

impl Sample {
    /// Returns what happened from `before` to `after`.
    pub fn between(before: &Reading, after: &Reading, number: u64) -> Self {
        let seconds = after.at_ns.saturating_sub(before.at_ns) as f64 / 1e9;
        let key = |process: &ProcessReading| {
            let Who { name, role, guest, pid, .. } = &process.who;
            (name.clone(), *role, guest.clone(), *pid)
        };
        let known: HashMap<_, _> = before.processes.iter().map(|process| (key(process), process)).collect();
        let process = |now: &ProcessReading| {
            let then = known.get(&key(now)).copied();
            let cpu = then.and_then(|then| Some(CpuSample::between(&then.cpu?, &now.cpu?, seconds)));
            let net = then.and_then(|then| Some(NetSample::between(&then.net?, &now.net?)));
            ProcessSample { who: now.who.clone(), cpu, net }
        };
        Self {
            at: after.at.clone(),
            number,
            seconds,
            host: HostSample::between(&before.host, &after.host),
            processes: after.processes.iter().map(process).collect(),
            monitor: CpuSample::between(&before.monitor, &after.monitor, seconds),
        }
    }
}

/// Returns the milliseconds between two counters in nanoseconds. A counter that went back counts as unchanged.
fn ms(before: u64, after: u64) -> f64 {
    after.saturating_sub(before) as f64 / 1e6
}

impl HostSample {
    fn between(before: &HostReading, after: &HostReading) -> Self {
        let pressure = |at: usize| Some(ms(before.pressure_ns[at]?, after.pressure_ns[at]?));
        Self {
            cpus: after.cpus,
            virtual_ms: ms(before.virtual_ns, after.virtual_ns),
            cp_ms: ms(before.cp_ns, after.cp_ns),
            idle_ms: ms(before.idle_ns, after.idle_ns),
            steal_ms: ms(before.steal_ns, after.steal_ns),
            cpu_pressure_ms: pressure(0),
            io_pressure_ms: pressure(1),
            memory_pressure_ms: pressure(2),
        }
    }

    /// Returns a time as a share of all CPUs, in percent.
    pub fn percent(&self, ms: f64) -> f64 {
        let all = self.virtual_ms + self.cp_ms + self.idle_ms + self.steal_ms;
        if all > 0.0 { 100.0 * ms / all } else { 0.0 }
    }
}

impl CpuSample {
    fn between(before: &CpuReading, after: &CpuReading, seconds: f64) -> Self {
        let run = after.run_ns.saturating_sub(before.run_ns);
        // The kernel's estimate of the user time can go back a little.
        let user = after.virtual_ns.saturating_sub(before.virtual_ns).min(run);
        let wait = before.wait_ns.zip(after.wait_ns).map(|(before, after)| ms(before, after));
        Self {
            virtual_ms: ms(0, user),
            cp_ms: ms(user, run),
            wait_ms: wait,
            percent: if seconds > 0.0 { ms(0, run) / seconds / 10.0 } else { 0.0 },
        }
    }
}

impl NetSample {
    fn between(before: &NetReading, after: &NetReading) -> Self {
        Self {
            packets_sent: after.packets_sent.saturating_sub(before.packets_sent),
            packets_received: after.packets_received.saturating_sub(before.packets_received),
            bytes_sent: after.bytes_sent.saturating_sub(before.bytes_sent),
            bytes_received: after.bytes_received.saturating_sub(before.bytes_received),
            dropped: after.dropped.saturating_sub(before.dropped),
            connections: after.connections,
            ring_fill_percent: after.fill_percent(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at_ns: u64, processes: Vec<ProcessReading>) -> Reading {
        let host = HostReading { cpus: 2, virtual_ns: at_ns / 2, idle_ns: at_ns, ..HostReading::default() };
        let monitor = CpuReading { run_ns: at_ns / 1_000, ..CpuReading::default() };
        Reading { at: "2026-11-27T20:00:00Z".into(), at_ns, host, processes, monitor }
    }

    fn process(pid: u32, run_ns: u64, virtual_ns: u64, bytes_sent: u64) -> ProcessReading {
        let who = Who {
            name: "tcpip1".into(),
            role: Role::Guest,
            guest: None,
            pid: Some(pid),
            state: State::Running,
            restarts: 0,
        };
        let net = NetReading { bytes_sent, connections: 3, buffers: 64, buffers_used: 16, ..NetReading::default() };
        ProcessReading { who, cpu: Some(CpuReading { run_ns, virtual_ns, wait_ns: Some(run_ns / 2) }), net: Some(net) }
    }

    #[test]
    fn a_sample_is_the_difference_of_two_readings() {
        let before = reading(1_000_000_000, vec![process(7, 100_000_000, 80_000_000, 500)]);
        let after = reading(3_000_000_000, vec![process(7, 500_000_000, 380_000_000, 800)]);
        let sample = Sample::between(&before, &after, 1);
        let cpu = CpuSample { virtual_ms: 300.0, cp_ms: 100.0, wait_ms: Some(200.0), percent: 20.0 };
        let process = &sample.processes[0];
        assert_eq!((sample.seconds, process.cpu), (2.0, Some(cpu)));
        let net = process.net.unwrap();
        assert_eq!((net.bytes_sent, net.connections, net.ring_fill_percent), (300, 3, Some(25.0)));
        assert_eq!(sample.host.percent(sample.host.virtual_ms), 100.0 / 3.0);
        assert_eq!(sample.monitor.percent, 0.1);
    }

    #[test]
    fn a_process_that_was_replaced_has_no_differences_yet() {
        let before = reading(1_000_000_000, vec![process(7, 900_000_000, 0, 500)]);
        let after = reading(2_000_000_000, vec![process(8, 1_000_000, 0, 2)]);
        let sample = Sample::between(&before, &after, 1);
        assert_eq!((sample.processes[0].cpu, sample.processes[0].net), (None, None));
    }

    #[test]
    fn counters_that_go_back_count_as_unchanged() {
        let before = reading(2_000_000_000, vec![process(7, 900, 800, 500)]);
        let after = reading(1_000_000_000, vec![process(7, 500, 700, 2)]);
        let sample = Sample::between(&before, &after, 1);
        let cpu = sample.processes[0].cpu.unwrap();
        assert_eq!((cpu.virtual_ms, cpu.cp_ms, cpu.percent), (0.0, 0.0, 0.0));
        assert_eq!(sample.processes[0].net.unwrap().bytes_sent, 0);
    }
}
