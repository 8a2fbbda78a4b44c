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

    /// The earlier of two moments of which either need not be.
    #[inline]
    pub(crate) fn first(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        }
    }

    /// Time since `earlier`; zero if that is later.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }
}

/// Nanoseconds, as many as fit.
#[inline]
fn ns_of(time: Duration) -> u64 {
    time.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(time.subsec_nanos()))
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, time: Duration) -> Self {
        Self { ns: self.ns.saturating_add(ns_of(time)) }
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, time: Duration) {
        *self = *self + time;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn sub(self, time: Duration) -> Self {
        Self { ns: self.ns.saturating_sub(ns_of(time)) }
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
