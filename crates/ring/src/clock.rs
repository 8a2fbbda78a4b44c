//! Time in ticks of a fast counter, which can be read for every batch of frames, and the conversion of ticks to nanoseconds.
//!
//! On x86-64 the counter is the processor's time-stamp counter. On today's processors it has a constant rate and the same value on
//! all CPUs. On other architectures the counter is the monotonic clock in nanoseconds.

use rustix::time::{ClockId, clock_gettime};
use std::sync::OnceLock;
use std::time::Duration;

/// A point in time or a duration, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Ticks(pub u64);

impl Ticks {
    /// Returns the current time.
    pub fn now() -> Self {
        Self(now())
    }

    /// Returns the time from `earlier` to this time. Returns 0 if `earlier` is in fact later. This can happen because the
    /// counters of two CPUs can differ by a few ticks.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
fn now() -> u64 {
    crate::map::ticks()
}

#[cfg(any(not(target_arch = "x86_64"), miri, loom))]
fn now() -> u64 {
    monotonic_ns()
}

/// Returns the monotonic clock in nanoseconds.
pub(crate) fn monotonic_ns() -> u64 {
    ns_of(ClockId::Monotonic)
}

/// Returns the CPU time of the calling thread in nanoseconds.
#[cfg(not(loom))]
pub(crate) fn thread_cpu_ns() -> u64 {
    ns_of(ClockId::ThreadCPUTime)
}

fn ns_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanoseconds) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// Reads the counter and the monotonic clock several times, and returns the pair of readings that took the shortest time.
fn both() -> (Ticks, u64) {
    let readings = (0..READINGS).map(|_| {
        let (before, ns, after) = (Ticks::now(), monotonic_ns(), Ticks::now());
        (after.since(before), after, ns)
    });
    readings.min().map_or((Ticks(0), 0), |(_, ticks, ns)| (ticks, ns))
}

const READINGS: usize = 8;

/// The first reading of this process, from which its rate is measured, and the rate. A child of a fork uses those of its parent.
static FIRST: OnceLock<(Ticks, u64)> = OnceLock::new();
static RATE: OnceLock<Rate> = OnceLock::new();

/// Begins to measure the rate of this process. If a program calls this early, [`Rate::new`] need not wait later.
pub fn begin() {
    FIRST.get_or_init(both);
}

/// The duration of a tick. It is measured once, so ticks in ascending order are converted to times in ascending order.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Number of nanoseconds in 2^32 ticks.
    ns: u64,
    /// Number of ticks in 2^32 nanoseconds.
    ticks: u64,
}

/// Minimum time over which a rate is measured. An error of 100 ns is then 1/10,000 of the measured time.
const MEASURED_NS_MIN: u64 = 1_000_000;

/// Number of fractional bits in a rate.
const PLACES: u32 = 32;

impl Rate {
    /// The rate of a counter whose tick is a nanosecond.
    #[cfg(all(test, not(loom)))]
    pub(crate) const NANOSECONDS: Self = Self { ns: 1 << PLACES, ticks: 1 << PLACES };

    /// Returns the rate of this process. The first call measures it, and spins until a millisecond has passed since [`begin`].
    pub fn new() -> Self {
        *RATE.get_or_init(Self::measure)
    }

    fn measure() -> Self {
        let (ticks_before, ns_before) = *FIRST.get_or_init(both);
        loop {
            let (ticks, ns) = both();
            let (ticks, ns) = (ticks.since(ticks_before).0, ns.saturating_sub(ns_before));
            if ns >= MEASURED_NS_MIN && ticks > 0 {
                return Self { ns: ratio(ns, ticks), ticks: ratio(ticks, ns) };
            }
            std::hint::spin_loop();
        }
    }

    /// Converts a duration in ticks to nanoseconds.
    pub fn ns(&self, span: Ticks) -> u64 {
        scaled(span.0, self.ns)
    }

    /// Converts nanoseconds to ticks.
    pub fn ticks(&self, ns: u64) -> Ticks {
        Ticks(scaled(ns, self.ticks))
    }

    /// Converts a `Duration` to ticks.
    pub fn span(&self, time: Duration) -> Ticks {
        self.ticks(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
    }
}

fn ratio(part: u64, whole: u64) -> u64 {
    u64::try_from((u128::from(part) << PLACES) / u128::from(whole)).unwrap_or(u64::MAX)
}

fn scaled(value: u64, ratio: u64) -> u64 {
    u64::try_from((u128::from(value) * u128::from(ratio)) >> PLACES).unwrap_or(u64::MAX)
}

impl Default for Rate {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_and_nanoseconds_are_turned_into_each_other() {
        let rate = Rate::new();
        let there_and_back = rate.ns(rate.ticks(1_000_000_000));
        assert!((999_999_000..1_000_001_000).contains(&there_and_back), "{there_and_back}");
        assert_eq!(rate.ns(Ticks(0)), 0);
        assert_eq!(rate.ticks(u64::MAX).since(Ticks(u64::MAX)), Ticks(0));
    }

    #[test]
    fn a_rate_stays_as_it_was_measured() {
        let rate = Rate::new();
        let span = Ticks(u64::MAX >> 8);
        let before = rate.ns(span);
        std::thread::sleep(Duration::from_millis(2));
        assert_eq!(rate.ns(span), before, "a deadline would change its moment");
    }

    #[test]
    fn time_does_not_go_back() {
        let earlier = Ticks::now();
        let later = Ticks::now();
        assert!(later >= earlier);
        assert_eq!(earlier.since(later), Ticks(0));
    }
}
