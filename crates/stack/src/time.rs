//! Time as the stack's owner tells it: nanoseconds of any clock that never runs backwards.

use std::ops::{Add, AddAssign, Sub};
pub use std::time::Duration;

/// A moment. Two moments are compared and subtracted; what it counts from is the owner's business.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Instant {
    ns: u64,
}

impl Instant {
    /// The moment so many nanoseconds after the clock's zero.
    pub const fn from_ns(ns: u64) -> Self {
        Self { ns }
    }

    /// Nanoseconds since the clock's zero.
    pub const fn as_ns(self) -> u64 {
        self.ns
    }

    /// Time since `earlier`; zero if that is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { ns: self.ns.saturating_add(ns) }
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, time: Duration) -> Self {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        Self { ns: self.ns.saturating_sub(ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_stops_at_both_ends_of_the_clock() {
        let end = Instant::from_ns(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Instant::default() - Duration::MAX, Instant::default());
        assert_eq!(Instant::from_ns(5).since(Instant::from_ns(9)), Duration::ZERO);
        assert_eq!(Instant::from_ns(9).since(Instant::from_ns(5)), Duration::from_nanos(4));
    }
}
