//! CPU time of the whole host: what was not idle.
//!
//! The kernel adds up idle time exactly but shows it in hundredths of a second in /proc/stat. Where /proc/timer_list can be
//! read (root), the same sums are there in nanoseconds; the record says which source it has and how far it can be off.

use crate::error::{Error, IoContext, Result};
use serde::{Deserialize, Serialize};

/// CPU counters of a host since its start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostCpu {
    /// Identity of the running kernel: tells whether two places are one host.
    pub boot_id: String,
    /// Monotonic clock when read.
    pub at_ns: u64,
    /// CPUs that are online.
    pub cpus: u32,
    /// Idle and waiting for I/O, all CPUs.
    pub idle_ns: u64,
    /// Taken by the hypervisor for others, all CPUs.
    pub steal_ns: u64,
    /// How far a difference of two readings can be off.
    pub resolution_ns: u64,
    /// By the tick: user mode (nice included), all CPUs.
    pub user_tick_ns: u64,
    /// By the tick: kernel mode, hard interrupts included.
    pub system_tick_ns: u64,
    /// By the tick: softirq.
    pub softirq_tick_ns: u64,
}

/// Nanoseconds of one unit of /proc/stat (USER_HZ is 100 on every architecture in use).
const USER_TICK_NS: u64 = 10_000_000;

impl HostCpu {
    /// Reads the host's counters.
    ///
    /// # Errors
    /// Environment: /proc is not mounted or not readable.
    pub fn read() -> Result<Self> {
        let stat = std::fs::read_to_string("/proc/stat").context("cannot read /proc/stat")?;
        let timers = std::fs::read_to_string("/proc/timer_list").ok();
        let boot_id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let mut cpu = parse_stat(&stat).ok_or_else(|| Error::environment("/proc/stat is not understood"))?;
        cpu.boot_id = boot_id.trim().to_owned();
        cpu.at_ns = crate::driver::now_ns();
        if let Some((at_ns, idle_ns)) = timers.as_deref().and_then(parse_timer_list) {
            cpu.at_ns = at_ns;
            cpu.idle_ns = idle_ns;
            cpu.resolution_ns = 0;
        }
        Ok(cpu)
    }

    /// CPU time spent between `earlier` and this reading: wall x CPUs - idle - iowait - steal.
    pub fn busy_since(&self, earlier: &Self) -> u64 {
        let wall = self.at_ns.saturating_sub(earlier.at_ns) * u64::from(self.cpus);
        wall.saturating_sub(self.idle_ns.saturating_sub(earlier.idle_ns))
            .saturating_sub(self.steal_ns.saturating_sub(earlier.steal_ns))
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
        steal_ns: steal * USER_TICK_NS,
        resolution_ns: USER_TICK_NS,
        user_tick_ns: (user + nice) * USER_TICK_NS,
        system_tick_ns: (system + irq) * USER_TICK_NS,
        softirq_tick_ns: softirq * USER_TICK_NS,
    })
}

/// The moment of reading and the idle time of all online CPUs, to the nanosecond.
///
/// `idle_sleeptime` lacks the stretch of a CPU that is idle right now: it entered idle after it last left it.
fn parse_timer_list(text: &str) -> Option<(u64, u64)> {
    let mut now = None;
    let mut idle = 0;
    let (mut entered, mut left) = (0, 0);
    let mut cpus = 0;
    for line in text.lines() {
        let mut words = line.split_whitespace();
        let first = words.next().unwrap_or_default();
        let mut value = || words.nth(1)?.parse::<u64>().ok();
        match first {
            "now" => now = value(),
            ".idle_entrytime" => entered = value()?,
            ".idle_exittime" => left = value()?,
            ".idle_sleeptime" => {
                idle += value()?;
                cpus += 1;
                if entered > left {
                    idle += now?.saturating_sub(entered);
                }
            }
            ".iowait_sleeptime" => idle += value()?,
            _ => {}
        }
    }
    (cpus > 0).then_some((now?, idle))
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
    fn a_cpu_that_is_idle_now_counts_up_to_now() {
        let text = "now at 1000 nsecs\n  .idle_entrytime : 900 nsecs\n  .idle_exittime  : 800 nsecs\n\
                    .idle_sleeptime : 50 nsecs\n  .iowait_sleeptime: 7 nsecs\n\
                    .idle_entrytime : 600 nsecs\n .idle_exittime : 700 nsecs\n .idle_sleeptime : 20 nsecs\n";
        let (now, idle) = parse_timer_list(text).unwrap();
        assert_eq!((now, idle), (1000, 50 + 100 + 7 + 20));
        assert!(parse_timer_list("garbage").is_none());
    }

    #[test]
    fn busy_time_of_a_spinning_thread_is_seen() {
        let before = HostCpu::read().unwrap();
        let until = crate::driver::now_ns() + 200_000_000;
        while crate::driver::now_ns() < until {}
        let after = HostCpu::read().unwrap();
        let busy = after.busy_since(&before);
        assert!(busy >= 150_000_000, "only {busy} ns seen of 200 ms spun");
    }
}
