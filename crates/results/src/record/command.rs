//! What the processes of a command used.

use super::ProcessCpu;
use serde::{Deserialize, Serialize};
use siga_plan::command::figure::{FigureKey, UnitOfWork};
use siga_plan::label::Label;
use std::collections::BTreeMap;

/// What the runs of a command in one trial used, besides the CPU time of all its processes in `CpuRecord::client`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandRecord {
    /// CPU time by the names of processes.
    pub processes: BTreeMap<String, NamedProcesses>,
    /// What all processes used together.
    pub usage: Usage,
    /// CPU time of the processes of the command's servers by name. `None` if the command has no server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<BTreeMap<String, NamedProcesses>>,
    /// What the whole host did while the command ran. `None` in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<HostActivity>,
    /// Largest memory of the command's control group, in bytes. `None` unless the level has a memory limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_memory_bytes_max: Option<u64>,
    /// Figures that the command printed, in the order of the plan.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub figures: Vec<FigureRecord>,
    /// The work that all runs did. `None` if the plan names no unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<WorkRecord>,
}

/// What a host did in an interval: its disks, the time that tasks waited for a resource, and its energy.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostActivity {
    /// Completed read operations of all disks.
    pub disk_reads: u64,
    /// Completed write operations of all disks.
    pub disk_writes: u64,
    /// Bytes read from all disks.
    pub disk_read_bytes: u64,
    /// Bytes written to all disks.
    pub disk_written_bytes: u64,
    /// Time that operations spent in queues and in service, summed over all operations, in nanoseconds.
    pub disk_queue_ns: u64,
    /// Time in which at least one task waited for a CPU, in nanoseconds. `None` if the kernel does not measure it.
    pub cpu_pressure_ns: Option<u64>,
    /// Time in which at least one task waited for I/O, in nanoseconds.
    pub io_pressure_ns: Option<u64>,
    /// Time in which at least one task waited for memory, in nanoseconds.
    pub memory_pressure_ns: Option<u64>,
    /// Energy of all processor packages, in microjoules. `None` if the host has no readable counter.
    pub energy_uj: Option<u64>,
}

/// The values of one figure in the runs of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct FigureRecord {
    /// Name and unit of the figure.
    #[serde(flatten)]
    pub key: FigureKey,
    /// Number of runs.
    pub count: u64,
    /// Sum of the values.
    pub sum: f64,
    /// Smallest value.
    pub least: f64,
    /// Largest value.
    pub most: f64,
}

/// Work that a command did.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct WorkRecord {
    /// The unit of the work.
    pub unit: Label,
    /// Number of units.
    pub amount: f64,
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

impl FigureRecord {
    /// Returns the record of one value.
    pub fn of(key: FigureKey, value: f64) -> Self {
        Self { key, count: 1, sum: value, least: value, most: value }
    }
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
        self.group_memory_bytes_max = self.group_memory_bytes_max.max(other.group_memory_bytes_max);
        for figure in &other.figures {
            self.add_figure(*figure);
        }
        if let Some(work) = other.work {
            self.add_work(work);
        }
    }

    fn add_figure(&mut self, other: FigureRecord) {
        match self.figures.iter_mut().find(|figure| figure.key == other.key) {
            None => self.figures.push(other),
            Some(own) => {
                *own = FigureRecord {
                    key: own.key,
                    count: own.count.saturating_add(other.count),
                    sum: own.sum + other.sum,
                    least: own.least.min(other.least),
                    most: own.most.max(other.most),
                }
            }
        }
    }

    /// Adds work of the same unit.
    pub fn add_work(&mut self, other: WorkRecord) {
        let before = self.work.map_or(0.0, |work| work.amount);
        self.work = Some(WorkRecord { amount: before + other.amount, ..other });
    }

    /// Returns the figures of a trial: the mean of each over the runs, and those per unit of work. `elapsed_ns` and `cpu_ns` are time
    /// and CPU time of all runs together.
    pub fn figures(&self, elapsed_ns: u64, cpu_ns: u64) -> Vec<(FigureKey, f64)> {
        let means = self.figures.iter().map(|figure| (figure.key, figure.sum / figure.count.max(1) as f64));
        let mut all: Vec<(FigureKey, f64)> = means.collect();
        if let Some(WorkRecord { unit, amount }) = self.work {
            let rate = amount * 1e9 / elapsed_ns.max(1) as f64;
            let cpu = cpu_ns as f64 / 1e3 / amount;
            let keys = UnitOfWork::keys(unit).into_iter().zip([rate, cpu]);
            all.extend(keys.filter_map(|(key, value)| Some((key?, value))));
        }
        all.retain(|(_, value)| value.is_finite());
        all
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

#[cfg(test)]
mod tests {
    use super::*;
    use siga_plan::command::figure::Better;

    #[test]
    fn figures_are_means_of_runs_and_work_gives_rate_and_cpu_time() {
        let key = FigureKey { name: "tps".parse().unwrap(), unit: "1/s".parse().unwrap(), better: Better::Higher };
        let work = |amount| Some(WorkRecord { unit: "trans".parse().unwrap(), amount });
        let run = |value, amount| CommandRecord {
            figures: vec![FigureRecord::of(key, value)],
            work: work(amount),
            ..CommandRecord::default()
        };
        let mut all = CommandRecord::default();
        [run(10.0, 100.0), run(30.0, 300.0)].iter().for_each(|one| all.add(one));
        assert_eq!((all.figures[0].least, all.figures[0].most, all.work), (10.0, 30.0, work(400.0)));
        let figures = all.figures(2_000_000_000, 800_000_000);
        let named: Vec<_> = figures.iter().map(|(key, value)| (key.name.as_str(), key.unit.as_str(), *value)).collect();
        assert_eq!(
            named,
            [("tps", "1/s", 20.0), ("trans_rate", "trans/sec", 200.0), ("cpu_per_trans", "us/trans", 2_000.0)]
        );
        assert!(run(f64::INFINITY, 0.0).figures(1, 1).iter().all(|(key, _)| key.name.as_str() == "trans_rate"));
    }
}
