//! The clocks that trigger the profiler's samples. Each CPU has several clocks, all with different long periods.
//!
//! One clock per CPU would be enough if the measured work were not periodic. But all round trips of a workload take about the
//! same time. So a clock with a period of a few round trips always samples the same point of a round trip. In a test with a
//! known added CPU cost, such a clock measured 0.25 to 1.5 times this cost.
//!
//! If several clocks share the sampling, each period spans many round trips. The total time of many round trips varies, so a
//! clock does not stay in phase with them. The CPU time of the samples themselves disturbs the phase further.

use super::{NEEDED, Watched};
use crate::bpf::refused;
use crate::sys::perf::CpuClock;
use rustix::time::{ClockId, clock_getres};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::cpus::cpu_list;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// Number of clocks on each CPU.
const CLOCKS: u64 = 8;

const ONLINE: &str = "/sys/devices/system/cpu/online";
const RATE_MAX: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// Returns the periods of the clocks of one CPU: 7.125, 7.375 ... 8.875 times `period_ns`. All clocks of a CPU together take a
/// sample every `period_ns` on average, or slightly more often.
fn periods_ns(period_ns: u64) -> [u64; 8] {
    [57, 59, 61, 63, 65, 67, 69, 71].map(|eighths| period_ns.saturating_mul(eighths) / CLOCKS)
}

/// Returns the CPU time in nanoseconds that one sample stands for: the inverse of the sum of the rates of all clocks of a CPU.
pub(super) fn sample_ns(period_ns: u64) -> u64 {
    const UNIT: u128 = 1 << 64;
    let rate: u128 = periods_ns(period_ns).iter().map(|period_ns| UNIT / u128::from(*period_ns)).sum();
    u64::try_from(UNIT / rate).unwrap_or(u64::MAX)
}

/// Running clocks on every CPU that was online when the clocks were started.
#[derive(Debug)]
pub(super) struct Clocks {
    clocks: Vec<CpuClock>,
    /// Elapsed time of each clock in nanoseconds when the profile began.
    began_ns: Vec<u64>,
}

impl Clocks {
    /// Opens and starts clocks on all online CPUs. Each profile opens new clocks, so that CPUs may go online and offline
    /// between profiles. It takes some tens of microseconds to open a clock. Afterwards this function waits until the clocks of
    /// a CPU have drifted apart, because clocks that start together at first sample together.
    pub(super) fn start(period_ns: u64, sampler: &OwnedFd) -> Result<Self> {
        let mut clocks = Vec::new();
        for cpu in online_cpus()? {
            for period_ns in periods_ns(period_ns) {
                clocks.push(open(cpu, period_ns, sampler)?);
            }
        }
        for clock in &clocks {
            clock.enable().context(format_args!("the profiler cannot start its clock of CPU {}", clock.cpu()))?;
        }
        std::thread::sleep(Duration::from_nanos(period_ns.saturating_mul(CLOCKS + 1)));
        Ok(Self { clocks, began_ns: Vec::new() })
    }

    /// Begins the profile: records the elapsed time of each clock.
    pub(super) fn begin(&mut self) -> Result<()> {
        self.began_ns = self.clocks.iter().map(elapsed_ns).collect::<Result<_>>()?;
        Ok(())
    }

    /// Stops the clocks. Returns how long each CPU was sampled since [`Clocks::begin`].
    pub(super) fn stop(self) -> Result<Vec<Watched>> {
        for clock in &self.clocks {
            clock.disable().context(format_args!("the profiler cannot stop its clock of CPU {}", clock.cpu()))?;
        }
        let mut watched: Vec<Watched> = Vec::new();
        for (clock, began_ns) in self.clocks.iter().zip(&self.began_ns) {
            let wall_ns = elapsed_ns(clock)?.saturating_sub(*began_ns);
            match watched.last_mut() {
                // The clocks of a CPU start and stop one after the other, microseconds apart. Use the shortest time, in which
                // all of them ran.
                Some(last) if last.cpu == clock.cpu() => last.wall_ns = last.wall_ns.min(wall_ns),
                Some(_) | None => watched.push(Watched { cpu: clock.cpu(), wall_ns }),
            }
        }
        check_cpus(&watched)?;
        Ok(watched)
    }
}

/// Checks that a clock can be opened on the first online CPU.
pub(super) fn available(period_ns: u64, sampler: &OwnedFd) -> Result<()> {
    let cpu = online_cpus()?.first().copied().unwrap_or_default();
    open(cpu, period_ns, sampler).map(drop)
}

/// Checks that the kernel's limit on the sampling rate permits this period. The kernel throttles a clock that takes more
/// samples within a timer tick than the limit permits. Root can lower the limit.
pub(super) fn check_rate(period_ns: u64) -> Result<()> {
    let text = std::fs::read_to_string(RATE_MAX).context(format_args!("cannot read {RATE_MAX}"))?;
    let rate_max: u64 = text.trim().parse().context(format_args!("the value in {RATE_MAX} is not a number: {text}"))?;
    let tick_ns = u64::try_from(clock_getres(ClockId::MonotonicCoarse).tv_nsec).unwrap_or_default().max(1);
    // Require a margin below the limit, because the kernel throttles a clock as soon as it reaches the limit. An interval
    // between two ticks can contain one sample more than the average. If a tick is late, it can contain a few more.
    let [shortest_ns, ..] = periods_ns(period_ns);
    let wanted = (2_000_000_000 / shortest_ns + 3_000_000_000 / tick_ns).next_multiple_of(1_000);
    if wanted <= rate_max {
        return Ok(());
    }
    Err(Error::environment(format!(
        "the profiler takes one sample every {period_ns} ns, but the limit of {rate_max} samples per second in {RATE_MAX} is too \
         low"
    ))
    .hint(format!("sysctl kernel.perf_event_max_sample_rate={wanted}")))
}

fn online_cpus() -> Result<Vec<u32>> {
    let text = std::fs::read_to_string(ONLINE).context(format_args!("cannot read {ONLINE}"))?;
    cpu_list(&text).ok_or_else(|| Error::environment(format!("the value in {ONLINE} is not a list of CPUs: {text}")))
}

/// Opens a clock that runs `sampler` for each sample. It is stopped at first.
pub(super) fn open(cpu: u32, period_ns: u64, sampler: &OwnedFd) -> Result<CpuClock> {
    let clock = CpuClock::open(cpu, period_ns).map_err(|errno| {
        let error = refused(format_args!("the profiler cannot open a clock on CPU {cpu}"), errno, &NEEDED);
        let many = "the profiler needs 8 file descriptors per CPU; raise their limit (`ulimit -n`)";
        if errno == rustix::io::Errno::MFILE { error.hint(many) } else { error }
    })?;
    clock.attach(sampler.as_fd()).map_err(|errno| {
        refused(format_args!("the profiler cannot attach to the clock of CPU {cpu}"), errno, &NEEDED)
    })?;
    Ok(clock)
}

fn elapsed_ns(clock: &CpuClock) -> Result<u64> {
    let gone = |errno| Error::incomplete(format!("the profiler's clock of CPU {} has failed: {errno}", clock.cpu()));
    clock.elapsed_ns().map_err(gone)
}

/// Returns an error if a CPU came online or went offline during the profile. A CPU that came online was not sampled. The clocks
/// of a CPU that went offline stopped early. The clocks of different CPUs start microseconds apart; the check tolerates such
/// small differences.
fn check_cpus(cpus: &[Watched]) -> Result<()> {
    let longest = cpus.iter().map(|cpu| cpu.wall_ns).max().unwrap_or_default();
    let tolerated = longest / 50 + 50_000_000;
    if let Some(short) = cpus.iter().find(|cpu| cpu.wall_ns + tolerated < longest) {
        let (seen, all) = (short.wall_ns / 1_000_000, longest / 1_000_000);
        return Err(Error::disturbed(format!("the profiler sampled CPU {} for only {seen} of {all} ms", short.cpu)));
    }
    if online_cpus()?.iter().eq(cpus.iter().map(|watched| &watched.cpu)) {
        return Ok(());
    }
    Err(Error::disturbed("a CPU came online or went offline while the profiler was running"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_differ_and_together_reach_the_requested_rate() {
        let periods = periods_ns(1_000_000);
        assert_eq!(periods[0], 7_125_000);
        assert_eq!(periods[7], 8_875_000);
        // 1 / (1/7.125 + 1/7.375 + ... + 1/8.875) ms
        assert_eq!(sample_ns(1_000_000), 994_852);
    }

    #[test]
    fn a_cpu_that_was_away_makes_the_profile_incomplete() {
        let watched = |walls: &[u64]| {
            let cpus = online_cpus().unwrap();
            let walls = walls.iter().cycle();
            cpus.into_iter().zip(walls).map(|(cpu, wall)| Watched { cpu, wall_ns: *wall }).collect::<Vec<_>>()
        };
        assert_eq!(check_cpus(&watched(&[3_000_000_000])), Ok(()));
        assert!(check_cpus(&watched(&[3_000_000_000])[1..]).is_err());
        let mut short = watched(&[3_000_000_000]);
        short.push(Watched { cpu: 70_000, wall_ns: 1_000_000_000 });
        let error = check_cpus(&short).unwrap_err();
        assert!(
            error.message().contains("the profiler sampled CPU 70000 for only 1000 of 3000 ms")
                && error.is_disturbance()
        );
    }
}
