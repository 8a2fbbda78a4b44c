//! CPU time of the processes that do not belong to a run.
//!
//! A process belongs to the run if it is the calling process, one that the caller names, or a descendant of these. Kernel threads are
//! no processes in this sense: they work for the path. The process table is read twice, at the begin and at the end of an interval.
//!
//! A process that begins and ends between the two readings appears in neither. But the kernel adds the CPU time of a process that
//! ended to its parent's time of waited-for children. So the growth of this time counts for the parent, less what the first reading
//! already counted for the child. The time is lost only if the parent ignores its children.

use super::stat::{Stat, descends};
use crate::sys;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// Maximum number of processes that are read. Further processes are not counted.
const PROCESSES_MAX: usize = 100_000;
/// The flag of kernel threads (PF_KTHREAD) in `/proc/PID/stat`.
const KERNEL_THREAD: u64 = 0x0020_0000;
/// Length in nanoseconds of the time unit of `/proc/PID/stat`, 1/USER_HZ seconds.
const USER_TICK_NS: u64 = 10_000_000;
/// Name of siga's program.
const PROGRAM: &str = "siga";
/// The commands of siga that measure.
const MEASURING: [&str; 2] = ["run", "doctor"];

/// The processes of this host at the begin of an interval.
#[derive(Debug)]
pub(crate) struct Outside {
    proc: PathBuf,
    /// Reads the exact CPU time of a process in nanoseconds, if the kernel counts it.
    clock: fn(u32) -> Option<u64>,
    begin: Table,
}

/// What the processes outside the run did in an interval.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct OutsideUse {
    /// CPU time in nanoseconds. `None` if the process table cannot be read.
    pub(crate) cpu_ns: Option<u64>,
    /// Number of other runs of siga at the end of the interval.
    pub(crate) runs: u32,
}

type Table = BTreeMap<u32, Process>;

/// An entry of the process table.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Process {
    parent: u32,
    /// Time at which the process began. Together with the process id, it identifies the process.
    start: u64,
    /// CPU time of the process, in nanoseconds.
    own_ns: u64,
    /// CPU time of the ended children for which the process has waited, and of their descendants.
    children_ns: u64,
    /// Whether the process is a run of siga.
    is_run: bool,
}

impl Process {
    fn total_ns(&self) -> u64 {
        self.own_ns.saturating_add(self.children_ns)
    }
}

impl Outside {
    /// Begins an interval on this host.
    pub(crate) fn begin() -> Self {
        Self::begin_at(Path::new("/proc"), |pid| sys::process_cpu_ns(pid).ok())
    }

    fn begin_at(proc: &Path, clock: fn(u32) -> Option<u64>) -> Self {
        Self { proc: proc.to_owned(), clock, begin: table(proc, clock) }
    }

    /// Ends the interval. `own` are ids of processes that belong to the run, besides the calling process and its descendants.
    pub(crate) fn end(&self, own: &[u32]) -> OutsideUse {
        let after = table(&self.proc, self.clock);
        let mut roots: BTreeSet<u32> = own.iter().copied().collect();
        roots.insert(std::process::id());
        used(&self.begin, &after, &roots)
    }
}

/// Returns what the processes outside the run did between two readings of the process table. The run consists of `roots` and their
/// descendants.
fn used(before: &Table, after: &Table, roots: &BTreeSet<u32>) -> OutsideUse {
    let of_run = |pid: u32| belongs(pid, before, roots) || belongs(pid, after, roots);
    let has_ended =
        |pid: u32| before.get(&pid).is_none_or(|process| after.get(&pid).is_none_or(|now| now.start != process.start));
    // Time that the first reading counted for processes that have ended, by the nearest ancestor that still runs. If a parent has
    // ended too, its own parent's time of waited-for children includes both.
    let mut counted: BTreeMap<u32, u64> = BTreeMap::new();
    for (pid, process) in before.iter().filter(|(pid, _)| has_ended(**pid)) {
        let mut heir = process.parent;
        for _ in 0..before.len() {
            match before.get(&heir) {
                Some(parent) if heir != *pid && has_ended(heir) => heir = parent.parent,
                Some(_) | None => break,
            }
        }
        let sum = counted.entry(heir).or_default();
        *sum = sum.saturating_add(process.total_ns());
    }
    let mut cpu_ns = 0_u64;
    for (pid, process) in after.iter().filter(|(pid, _)| !of_run(**pid)) {
        let grown = match before.get(pid).filter(|earlier| earlier.start == process.start) {
            Some(earlier) => {
                let ended = counted.get(pid).copied().unwrap_or(0);
                let children = process.children_ns.saturating_sub(earlier.children_ns).saturating_sub(ended);
                process.own_ns.saturating_sub(earlier.own_ns).saturating_add(children)
            }
            None => process.total_ns(),
        };
        cpu_ns = cpu_ns.saturating_add(grown);
    }
    let runs = after.iter().filter(|(pid, process)| process.is_run && !of_run(**pid)).count();
    OutsideUse { cpu_ns: (!after.is_empty()).then_some(cpu_ns), runs: u32::try_from(runs).unwrap_or(u32::MAX) }
}

/// Returns whether a process or one of its ancestors is in `roots`.
fn belongs(pid: u32, table: &Table, roots: &BTreeSet<u32>) -> bool {
    descends(pid, table.len(), |pid| Some(table.get(&pid)?.parent), |pid| roots.contains(&pid))
}

/// Reads the process table without kernel threads.
fn table(proc: &Path, clock: fn(u32) -> Option<u64>) -> Table {
    let Ok(entries) = std::fs::read_dir(proc) else { return Table::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let read = |pid: u32| {
        let directory = proc.join(pid.to_string());
        let stat = Stat::parse(&String::from_utf8_lossy(&std::fs::read(directory.join("stat")).ok()?))?;
        if stat.flags & KERNEL_THREAD != 0 {
            return None;
        }
        let is_run = || std::fs::read(directory.join("cmdline")).is_ok_and(|line| measures(&line));
        let process = Process {
            parent: stat.parent,
            start: stat.start,
            own_ns: clock(pid).unwrap_or(stat.user.saturating_add(stat.system).saturating_mul(USER_TICK_NS)),
            children_ns: stat.children.saturating_mul(USER_TICK_NS),
            is_run: stat.name == PROGRAM && is_run(),
        };
        Some((pid, process))
    };
    pids.take(PROCESSES_MAX).filter_map(read).collect()
}

/// Returns whether a command line, whose words end in zero bytes, is one of siga's measuring commands.
fn measures(line: &[u8]) -> bool {
    line.split(|&byte| byte == 0).nth(1).is_some_and(|word| MEASURING.iter().any(|name| name.as_bytes() == word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A planted process table in a directory.
    struct Planted(tempfile::TempDir);

    impl Planted {
        /// Plants a process with its CPU time, and that of its ended children, in ticks.
        fn process(&self, pid: u32, parent: u32, name: &str, flags: u64, (own, children): (u64, u64)) {
            let directory = self.0.path().join(pid.to_string());
            std::fs::create_dir_all(&directory).unwrap();
            let stat = format!(
                "{pid} ({name}) S {parent} 1 1 0 -1 {flags} 0 0 0 0 {own} 0 {children} 0 20 0 1 0 {} 0\n",
                u64::from(pid) + 1_000
            );
            std::fs::write(directory.join("stat"), stat).unwrap();
            std::fs::write(directory.join("cmdline"), format!("{name}\0run\0--quick\0")).unwrap();
        }

        fn end(&self, pid: u32) {
            std::fs::remove_dir_all(self.0.path().join(pid.to_string())).unwrap();
        }

        fn begin(&self) -> Outside {
            Outside::begin_at(self.0.path(), |_| None)
        }
    }

    fn planted() -> Planted {
        let planted = Planted(tempfile::tempdir().unwrap());
        planted.process(1, 0, "init", 0, (100, 0));
        planted.process(2, 0, "kthreadd", KERNEL_THREAD, (0, 0));
        planted.process(10, 1, "shell (a) b", 0, (5, 0));
        planted.process(20, 10, "siga", 0, (0, 0));
        planted.process(21, 20, "siga", 0, (0, 0));
        planted
    }

    fn ticks(outside: &Outside, own: &[u32]) -> Option<u64> {
        outside.end(own).cpu_ns.map(|ns| ns / USER_TICK_NS)
    }

    #[test]
    fn kernel_threads_and_the_runs_own_processes_are_not_outside() {
        let planted = planted();
        planted.process(30, 2, "ksoftirqd/0", KERNEL_THREAD, (0, 0));
        let outside = planted.begin();
        planted.process(30, 2, "ksoftirqd/0", KERNEL_THREAD, (40, 0));
        planted.process(21, 20, "siga", 0, (50, 0));
        planted.process(22, 21, "guest", 0, (7, 0));
        planted.process(10, 1, "shell (a) b", 0, (8, 0));
        assert_eq!(ticks(&outside, &[20]), Some(3), "only the shell is outside");
        assert_eq!(ticks(&outside, &[]), Some(60), "without its root, the run is outside, too");
        assert_eq!(ticks(&outside, &[10]), Some(0));
    }

    #[test]
    fn time_of_ended_processes_counts_once() {
        let planted = planted();
        planted.process(40, 10, "cc", 0, (30, 0));
        let outside = planted.begin();
        // The process 40 used 5 ticks more and ended, and a process that no reading saw used 4.
        planted.end(40);
        planted.process(10, 1, "shell (a) b", 0, (5, 39));
        assert_eq!(ticks(&outside, &[20]), Some(9));
        // Nobody waited for process 10, which ended: its time is lost, but nothing becomes negative.
        planted.end(10);
        planted.process(50, 1, "new", 0, (2, 0));
        assert_eq!(ticks(&outside, &[20]), Some(2), "a process that began counts as a whole");
    }

    #[test]
    fn time_of_a_process_that_ended_together_with_its_parent_counts_once() {
        let planted = planted();
        planted.process(40, 10, "cargo", 0, (30, 200));
        planted.process(41, 40, "rustc", 0, (900, 0));
        let outside = planted.begin();
        // Both used one tick more and ended.
        planted.end(41);
        planted.end(40);
        planted.process(10, 1, "shell (a) b", 0, (5, 1_132));
        assert_eq!(ticks(&outside, &[20]), Some(2));
    }

    #[test]
    fn other_runs_are_counted_and_an_unreadable_table_is_no_figure() {
        let planted = planted();
        planted.process(60, 1, "siga", 0, (0, 0));
        planted.process(61, 1, "siga", 0, (0, 0));
        std::fs::write(planted.0.path().join("61/cmdline"), "siga\0net\0up\0").unwrap();
        assert_eq!(planted.begin().end(&[20]).runs, 1);
        let nothing = Outside::begin_at(Path::new("/nonexistent"), |_| None).end(&[]);
        assert_eq!(nothing, OutsideUse::default());
    }

    #[test]
    fn a_spinning_process_is_seen() {
        let outside = Outside::begin();
        let mut child = std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let pid = child.id();
        let spun = || sys::process_cpu_ns(pid).unwrap_or(0);
        while spun() < 50_000_000 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        // The child belongs to this process, so it is seen only if the table is read without this process's own entry.
        let after = table(Path::new("/proc"), |pid| sys::process_cpu_ns(pid).ok());
        let seen = used(&outside.begin, &after, &BTreeSet::new()).cpu_ns.unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(seen >= 50_000_000, "{seen}");
    }
}
