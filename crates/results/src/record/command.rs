//! What the processes of a command used.

use super::ProcessCpu;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What the runs of a command in one trial used, besides the CPU time of all its processes in `CpuRecord::client`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// CPU time by the names of processes.
    pub processes: BTreeMap<String, NamedProcesses>,
    /// What all processes used together.
    pub usage: Usage,
}

/// Processes with the same name.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedProcesses {
    /// Number of processes. 0 if siga knows only that there was at least one.
    pub count: u64,
    /// CPU time of these processes.
    pub cpu: ProcessCpu,
}

/// Counters of the kernel for the processes of a command, from `wait4`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Largest resident memory of one process, in bytes. 0 if it is not larger than that of the process that starts the command, because
    /// the kernel counts a program's memory from before the program begins.
    pub resident_bytes_max: u64,
    /// Page faults without I/O.
    pub faults_minor: u64,
    /// Page faults with I/O.
    pub faults_major: u64,
    /// Context switches because a thread waited.
    pub switches_voluntary: u64,
    /// Context switches because another thread got the CPU.
    pub switches_involuntary: u64,
    /// Bytes read from file systems, in units of 512 bytes.
    pub bytes_read: u64,
    /// Bytes written to file systems, in units of 512 bytes.
    pub bytes_written: u64,
}

impl CommandRecord {
    /// Adds processes with this name.
    pub fn add_processes(&mut self, name: String, used: NamedProcesses) {
        let all = self.processes.entry(name).or_default();
        *all = NamedProcesses { count: all.count.saturating_add(used.count), cpu: all.cpu.plus(used.cpu) };
    }

    /// Adds what another run used.
    pub fn add(&mut self, other: &Self) {
        for (name, used) in &other.processes {
            self.add_processes(name.clone(), *used);
        }
        self.usage = self.usage.plus(other.usage);
    }
}

impl Usage {
    /// Returns the sum of both; the resident memory is the larger one.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            resident_bytes_max: self.resident_bytes_max.max(other.resident_bytes_max),
            faults_minor: self.faults_minor.saturating_add(other.faults_minor),
            faults_major: self.faults_major.saturating_add(other.faults_major),
            switches_voluntary: self.switches_voluntary.saturating_add(other.switches_voluntary),
            switches_involuntary: self.switches_involuntary.saturating_add(other.switches_involuntary),
            bytes_read: self.bytes_read.saturating_add(other.bytes_read),
            bytes_written: self.bytes_written.saturating_add(other.bytes_written),
        }
    }
}
