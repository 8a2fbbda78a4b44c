//! Time in ticks of the processor's counter, which is cheap enough to read for every batch, and the length of a tick.
//!
//! On x86-64 it is the time-stamp counter: on the processors of today it has a constant rate, and CPUs agree. Elsewhere it is the
//! monotonic clock in nanoseconds.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// A moment, or a span, in ticks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub struct Ticks(pub u64);

impl Ticks {
    /// This moment.
    pub fn now() -> Self {
        Self(now())
    }

    /// The span since `earlier`; 0 if `earlier` is later, because CPUs may differ by a few ticks.
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

/// The monotonic clock in nanoseconds.
fn monotonic_ns() -> u64 {
    ns_of(ClockId::Monotonic)
}

/// CPU time of the calling thread in nanoseconds.
#[cfg(not(loom))]
pub(crate) fn thread_cpu_ns() -> u64 {
    ns_of(ClockId::ThreadCPUTime)
}

fn ns_of(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let (seconds, nanoseconds) = (time.tv_sec.cast_unsigned(), time.tv_nsec.cast_unsigned());
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanoseconds)
}

/// Both clocks at one moment: the fastest of a few readings.
fn both() -> (Ticks, u64) {
    let readings = (0..READINGS).map(|_| {
        let (before, ns, after) = (Ticks::now(), monotonic_ns(), Ticks::now());
        (after.since(before), after, ns)
    });
    readings.min().map_or((Ticks(0), 0), |(_, ticks, ns)| (ticks, ns))
}

const READINGS: usize = 8;

/// The length of a tick, measured once: times by one rate never go back.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Nanoseconds of 2^32 ticks.
    ns: u64,
    /// Ticks of 2^32 nanoseconds.
    ticks: u64,
}

/// The shortest measurement of a rate: over it, an error of 100 ns is one in 10,000.
const MEASURED_NS_MIN: u64 = 1_000_000;

/// Fractional bits of a rate.
const PLACES: u32 = 32;

impl Rate {
    /// A tick is a nanosecond.
    #[cfg(all(test, not(loom)))]
    pub(crate) const NANOSECONDS: Self = Self { ns: 1 << PLACES, ticks: 1 << PLACES };

    /// Measures, which takes a millisecond of spinning.
    pub fn new() -> Self {
        let (ticks_before, ns_before) = both();
        loop {
            let (ticks, ns) = both();
            let (ticks, ns) = (ticks.since(ticks_before).0, ns.saturating_sub(ns_before));
            if ns >= MEASURED_NS_MIN && ticks > 0 {
                return Self { ns: ratio(ns, ticks), ticks: ratio(ticks, ns) };
            }
            std::hint::spin_loop();
        }
    }

    /// Nanoseconds of a span.
    pub fn ns(&self, span: Ticks) -> u64 {
        scaled(span.0, self.ns)
    }

    /// Ticks of `ns` nanoseconds.
    pub fn ticks(&self, ns: u64) -> Ticks {
        Ticks(scaled(ns, self.ticks))
    }

    /// Ticks of a duration.
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
