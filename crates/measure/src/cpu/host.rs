//! CPU time of the whole host: wall time minus idle time.
//!
//! The kernel adds up idle time exactly, but /proc/stat shows it in hundredths of a second. The file /proc/timer_list, which
//! only root can read, shows the same sums in nanoseconds. But if a CPU is idle during the reading, its sum does not include
//! its current idle period. Therefore a thread on each other CPU keeps this CPU busy during the reading.
//! [`HostCpu::resolution_since`] returns the maximum error of the result.

use super::outside::{Outside, OutsideUse};
use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::cpus::cpu_list;
use std::io::Read;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// CPU counters of a host since the host started.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct HostCpu {
    /// Identity of the running kernel (`/proc/sys/kernel/random/boot_id`). Two places with the same `boot_id` are on the same
    /// host.
    pub boot_id: String,
    /// Time at which /proc/stat was read, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Number of CPUs that are online.
    pub cpus: u32,
    /// Time in which the CPUs were idle or waited for I/O, summed over all CPUs, from /proc/stat.
    pub idle_ns: u64,
    /// Exact idle time from /proc/timer_list, if this file could be read.
    pub exact: Option<Exact>,
    /// Time in which the hypervisor ran other virtual machines instead of this one (steal time), summed over all CPUs.
    pub steal_ns: u64,
    /// Time in user mode (including nice), summed over all CPUs, as counted by the timer tick.
    pub user_tick_ns: u64,
    /// Time in kernel mode (including hard interrupts), summed over all CPUs, as counted by the timer tick.
    pub system_tick_ns: u64,
    /// Time in softirq, summed over all CPUs, as counted by the timer tick.
    pub softirq_tick_ns: u64,
    /// CPU time that processes outside the run have used since the interval began. `None` in the reading that begins an interval,
    /// and if the processes are not visible.
    pub others_ns: Option<u64>,
    /// Number of other runs of siga. 0 in the reading that begins an interval.
    pub other_runs: u32,
}

/// The place of a reading in an interval in which processes outside the run are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum At {
    /// The begin of the interval.
    Begin,
    /// The end of the interval.
    End,
}

/// Exact idle time of all CPUs. It is read slightly later than the other counters, because all CPUs must be woken before this
/// reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Exact {
    /// Time at which the idle time was read, in nanoseconds of the monotonic clock.
    pub at_ns: u64,
    /// Time in which the CPUs were idle or waited for I/O, summed over all CPUs.
    pub idle_ns: u64,
}

/// Length in nanoseconds of the time unit of /proc/stat, 1/USER_HZ seconds. USER_HZ is 100 on every architecture in use.
const USER_TICK_NS: u64 = 10_000_000;

impl HostCpu {
    /// Reads the CPU counters of this host. Returns an error of kind `Environment` if /proc is not mounted or not readable.
    pub(crate) fn read() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let at_ns = crate::clock::now_ns();
        let timers = read_timer_list();
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut cpu = parse_stat(&stat).ok_or_else(|| Error::environment("/proc/stat has an unknown format"))?;
        cpu.boot_id = boot_id.trim().to_owned();
        cpu.at_ns = at_ns;
        cpu.exact = timers.as_deref().and_then(parse_timer_list);
        Ok(cpu)
    }

    /// Reads the contents of /proc/stat.
    pub(crate) fn of_stat(text: &str) -> Option<Self> {
        parse_stat(text)
    }

    /// Reads the CPU counters, and at the end of an interval what processes outside the run used. The reading that begins the
    /// interval puts the processes into `outside`. Reading the process table takes CPU time, so it lies outside the interval of the
    /// other counters. `own` are ids of processes that belong to the run, besides this process and its descendants.
    ///
    /// # Errors
    /// Returns the errors of `read`.
    pub(crate) fn read_with(outside: &mut Option<Outside>, own: &[u32], at: At) -> Result<Self> {
        match at {
            At::Begin => {
                *outside = Some(Outside::begin());
                return Self::read();
            }
            At::End => {}
        }
        let mut cpu = Self::read()?;
        let OutsideUse { cpu_ns, runs } = outside.take().map(|outside| outside.end(own)).unwrap_or_default();
        (cpu.others_ns, cpu.other_runs) = (cpu_ns, runs);
        Ok(cpu)
    }

    /// Returns the wall time and the idle time since `earlier`, and the maximum error of the idle time in nanoseconds. Uses the
    /// exact idle times only if both readings have them.
    fn since(&self, earlier: &Self) -> (Exact, u64) {
        let rounded = |reading: &Self| Exact { at_ns: reading.at_ns, idle_ns: reading.idle_ns };
        let (now, then, resolution_ns) = match (self.exact, earlier.exact) {
            (Some(now), Some(then)) => (now, then, 0),
            (None, _) | (_, None) => (rounded(self), rounded(earlier), USER_TICK_NS * u64::from(self.cpus)),
        };
        let (at_ns, idle_ns) = (now.at_ns.saturating_sub(then.at_ns), now.idle_ns.saturating_sub(then.idle_ns));
        (Exact { at_ns, idle_ns }, resolution_ns)
    }

    /// Returns the wall time in nanoseconds between `earlier` and this reading.
    pub(crate) fn wall_since(&self, earlier: &Self) -> u64 {
        self.since(earlier).0.at_ns
    }

    /// Returns the maximum error of [`busy_since`](Self::busy_since) in nanoseconds. Steal time is available only in
    /// /proc/stat, so with steal time the error includes the time unit of this file.
    pub(crate) fn resolution_since(&self, earlier: &Self) -> u64 {
        let stolen = if self.steal_ns > 0 { USER_TICK_NS } else { 0 };
        self.since(earlier).1 + stolen
    }

    /// Returns the CPU time in nanoseconds that the host used between `earlier` and this reading: wall time x CPUs - idle -
    /// iowait - steal.
    pub(crate) fn busy_since(&self, earlier: &Self) -> u64 {
        let (passed, _) = self.since(earlier);
        let wall = passed.at_ns * u64::from(self.cpus);
        wall.saturating_sub(passed.idle_ns).saturating_sub(self.steal_ns.saturating_sub(earlier.steal_ns))
    }
}

fn parse_stat(text: &str) -> Option<HostCpu> {
    let mut lines = text.lines();
    let ticks: Vec<u64> =
        lines.next()?.strip_prefix("cpu ")?.split_whitespace().map_while(|f| f.parse().ok()).collect();
    let [user, nice, system, idle, iowait, irq, softirq, steal, ..] = ticks[..] else { return None };
    let cpus = lines.take_while(|line| line.starts_with("cpu")).count();
    Some(HostCpu {
        boot_id: String::new(),
        at_ns: 0,
        cpus: u32::try_from(cpus).ok()?,
        idle_ns: (idle + iowait) * USER_TICK_NS,
        exact: None,
        steal_ns: steal * USER_TICK_NS,
        user_tick_ns: (user + nice) * USER_TICK_NS,
        system_tick_ns: (system + irq) * USER_TICK_NS,
        softirq_tick_ns: softirq * USER_TICK_NS,
        others_ns: None,
        other_runs: 0,
    })
}

/// Maximum number of CPUs that are kept busy for an exact reading. Hosts with more CPUs use only /proc/stat, whose unit of a
/// hundredth of a second is precise enough there.
const AWAKE_MAX: usize = 64;

/// Reads /proc/timer_list while no CPU is idle. Returns `None` if this process may not read the file, or if a CPU could not be
/// kept busy.
fn read_timer_list() -> Option<String> {
    let mut file = std::fs::File::open("/proc/timer_list").ok()?;
    let before = sched_getaffinity(None).ok()?;
    let here = sched_getcpu();
    let others = others(here)?;
    if others.len() >= AWAKE_MAX || sched_setaffinity(None, &only(here)).is_err() {
        return None;
    }
    let (awake, done) = (AtomicUsize::new(0), AtomicBool::new(false));
    let text = std::thread::scope(|scope| {
        for &cpu in &others {
            let (awake, done) = (&awake, &done);
            scope.spawn(move || {
                if sched_setaffinity(None, &only(cpu)).is_ok() {
                    awake.fetch_add(1, Ordering::AcqRel);
                }
                while !done.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
            });
        }
        let begun = Instant::now();
        while awake.load(Ordering::Acquire) < others.len() && begun.elapsed() < Duration::from_millis(20) {
            std::thread::yield_now();
        }
        let mut text = String::new();
        let read = file.read_to_string(&mut text).is_ok() && awake.load(Ordering::Acquire) == others.len();
        done.store(true, Ordering::Release);
        read.then_some(text)
    });
    let _ = sched_setaffinity(None, &before);
    text
}

/// Returns all online CPUs except `here`. The list includes CPUs to which this thread is not allowed to move, because they can
/// be idle as well.
fn others(here: usize) -> Option<Vec<usize>> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").ok()?;
    let number = |cpu: u32| usize::try_from(cpu).ok().filter(|&cpu| cpu < CpuSet::MAX_CPU);
    let all: Option<Vec<usize>> = cpu_list(&text)?.into_iter().map(number).collect();
    Some(all?.into_iter().filter(|&cpu| cpu != here).collect())
}

fn only(cpu: usize) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(cpu);
    set
}

/// Returns the idle time of all online CPUs, and the time of the reading, from the contents of /proc/timer_list.
fn parse_timer_list(text: &str) -> Option<Exact> {
    let mut now = None;
    let (mut idle_ns, mut cpus) = (0, 0);
    for line in text.lines() {
        // The lines have the form "now at 12 nsecs", ".idle_sleeptime : 12 nsecs", ".iowait_sleeptime: 12 nsecs".
        let mut words = line.split([' ', ':']).filter(|word| !word.is_empty());
        match words.next() {
            Some("now") => now = words.nth(1)?.parse().ok(),
            Some(".idle_sleeptime") => {
                idle_ns += words.next()?.parse::<u64>().ok()?;
                cpus += 1;
            }
            Some(".iowait_sleeptime") => idle_ns += words.next()?.parse::<u64>().ok()?,
            Some(_) | None => {}
        }
    }
    let at_ns = now?;
    (cpus > 0).then_some(Exact { at_ns, idle_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_of_stat_is_the_sum_of_the_cpus_below() {
        let cpu = parse_stat("cpu  10 1 20 300 4 2 3 5 0 0\ncpu0 1 0\ncpu1 9 1\nintr 5\n").unwrap();
        assert_eq!(cpu.cpus, 2);
        assert_eq!(cpu.idle_ns, 304 * USER_TICK_NS);
        assert_eq!((cpu.user_tick_ns, cpu.system_tick_ns), (11 * USER_TICK_NS, 22 * USER_TICK_NS));
        assert!(parse_stat("cpu 1 2").is_none() && parse_stat("").is_none());
    }

    #[test]
    fn two_readings_compare_by_rounded_sums_unless_both_have_exact_ones() {
        let reading = |at_ms: u64, idle_ms: u64, exact_ms: Option<u64>| HostCpu {
            at_ns: at_ms * 1_000_000,
            idle_ns: idle_ms * 1_000_000,
            // Waking the CPUs takes a while.
            exact: exact_ms.map(|ms| Exact { at_ns: (at_ms + 3) * 1_000_000, idle_ns: ms * 1_000_000 }),
            ..parse_stat("cpu 0 0 0 0 0 0 0 0\ncpu0\ncpu1\n").unwrap()
        };
        // The exact sums are 500 ms higher: the kernel rounds each CPU's sum, and the sum of a sleeping CPU is stale.
        let (begin, end) = (reading(0, 100, Some(600)), reading(1_000, 900, Some(1_403)));
        assert_eq!((end.busy_since(&begin), end.resolution_since(&begin)), (1_197_000_000, 0));
        let coarse = reading(1_000, 900, None);
        assert_eq!((coarse.busy_since(&begin), coarse.resolution_since(&begin)), (1_200_000_000, 2 * USER_TICK_NS));
        let late = reading(2_000, 1_700, Some(2_206));
        assert_eq!((late.busy_since(&coarse), late.resolution_since(&coarse)), (1_200_000_000, 2 * USER_TICK_NS));
    }

    #[test]
    fn stolen_time_limits_the_resolution_to_a_tick() {
        let reading = |at_ms: u64, idle_ms: u64, steal_ns: u64| HostCpu {
            exact: Some(Exact { at_ns: at_ms * 1_000_000, idle_ns: idle_ms * 1_000_000 }),
            steal_ns,
            ..parse_stat("cpu 0 0 0 0 0 0 0 0\ncpu0\ncpu1\n").unwrap()
        };
        let (begin, end) = (reading(0, 0, 0), reading(20, 38, USER_TICK_NS));
        assert_eq!((end.busy_since(&begin), end.resolution_since(&begin)), (0, USER_TICK_NS));
    }

    #[test]
    fn idle_and_iowait_of_all_cpus_add_up() {
        let text = "now at 1000 nsecs\n  .idle_sleeptime : 50 nsecs\n  .iowait_sleeptime: 7 nsecs\n\
                    cpu: 1\n  .idle_sleeptime : 20 nsecs\n  .iowait_sleeptime: 3 nsecs\n";
        assert_eq!(parse_timer_list(text), Some(Exact { at_ns: 1000, idle_ns: 80 }));
        assert!(parse_timer_list("garbage").is_none());
    }

    #[test]
    fn a_thread_kept_on_one_cpu_wakes_all_the_others() {
        let cpus = HostCpu::read().unwrap().cpus;
        let woken = std::thread::scope(|scope| {
            let pinned = scope.spawn(|| {
                let here = sched_getcpu();
                sched_setaffinity(None, &only(here)).unwrap();
                others(here).unwrap().len()
            });
            pinned.join().unwrap()
        });
        assert_eq!(woken + 1, usize::try_from(cpus).unwrap());
    }

    #[test]
    fn busy_since_contains_the_time_of_a_spinning_thread() {
        let before = HostCpu::read().unwrap();
        let until = crate::clock::now_ns() + 200_000_000;
        while crate::clock::now_ns() < until {}
        let after = HostCpu::read().unwrap();
        let busy = after.busy_since(&before);
        assert!(busy >= 150_000_000, "only {busy} ns seen of 200 ms spun");
    }
}
