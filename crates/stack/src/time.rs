//! Time as the stack's owner supplies it: durations, and instants of any clock that never runs backwards.
//!
//! Both types contain one 64-bit number of nanoseconds. A duration of the standard library has two numbers, which makes the
//! arithmetic for each segment several times slower. Results that would overflow or become negative saturate.

use std::fmt;
use std::num::NonZeroU64;
use std::ops::{Add, AddAssign, Div, Mul, Sub};

/// A duration of at most 584 years.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Duration {
    ns: u64,
}

impl Duration {
    /// A duration of zero.
    pub const ZERO: Self = Self { ns: 0 };
    /// The longest duration.
    pub const MAX: Self = Self { ns: u64::MAX };

    /// Creates a duration from seconds.
    pub const fn from_secs(secs: u64) -> Self {
        Self { ns: secs.saturating_mul(1_000_000_000) }
    }

    /// Creates a duration from milliseconds.
    pub const fn from_millis(ms: u64) -> Self {
        Self { ns: ms.saturating_mul(1_000_000) }
    }

    /// Creates a duration from microseconds.
    pub const fn from_micros(us: u64) -> Self {
        Self { ns: us.saturating_mul(1_000) }
    }

    /// Creates a duration from nanoseconds.
    pub const fn from_nanos(ns: u64) -> Self {
        Self { ns }
    }

    /// Returns the number of complete milliseconds.
    pub const fn as_millis(self) -> u64 {
        self.ns / 1_000_000
    }

    /// Returns the number of nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.ns
    }

    /// Returns whether the duration is zero.
    pub const fn is_zero(self) -> bool {
        self.ns == 0
    }

    /// Returns the absolute difference of two durations.
    pub const fn abs_diff(self, other: Self) -> Self {
        Self { ns: self.ns.abs_diff(other.ns) }
    }
}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::time::Duration::from(*self).fmt(f)
    }
}

impl From<Duration> for std::time::Duration {
    fn from(time: Duration) -> Self {
        Self::from_nanos(time.ns)
    }
}

impl From<std::time::Duration> for Duration {
    /// Converts a duration of the standard library. A duration that is too long becomes [`Duration::MAX`].
    fn from(time: std::time::Duration) -> Self {
        Self { ns: u64::try_from(time.as_nanos()).unwrap_or(u64::MAX) }
    }
}

impl Add for Duration {
    type Output = Self;

    #[inline]
    fn add(self, other: Self) -> Self {
        Self { ns: self.ns.saturating_add(other.ns) }
    }
}

impl Sub for Duration {
    type Output = Self;

    #[inline]
    fn sub(self, other: Self) -> Self {
        Self { ns: self.ns.saturating_sub(other.ns) }
    }
}

impl Mul<u32> for Duration {
    type Output = Self;

    #[inline]
    fn mul(self, by: u32) -> Self {
        Self { ns: self.ns.saturating_mul(by.into()) }
    }
}

impl Div<u32> for Duration {
    type Output = Self;

    #[inline]
    fn div(self, by: u32) -> Self {
        Self { ns: self.ns / u64::from(by) }
    }
}

/// A moment on the clock of the stack's owner. The owner decides at which moment the clock is zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant {
    /// One more than the nanoseconds since the clock's zero. Because this number is never 0, an optional moment needs no more memory
    /// than a moment.
    count: NonZeroU64,
}

impl Instant {
    /// A moment that is never reached.
    pub(crate) const NEVER: Self = Self { count: NonZeroU64::MAX };

    /// Returns the moment `ns` nanoseconds after the clock's zero.
    pub const fn from_ns(ns: u64) -> Self {
        Self { count: NonZeroU64::MIN.saturating_add(ns) }
    }

    /// Returns the nanoseconds since the clock's zero.
    pub const fn as_ns(self) -> u64 {
        self.count.get() - 1
    }

    /// Returns the earlier of two moments. If one of them is `None`, returns the other.
    #[inline]
    pub(crate) fn first(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        // `None` counts as the latest moment. In the memory, it is the number 0, so there is no branch.
        let rank = |moment: Option<Self>| moment.map_or(0, |moment| moment.count.get()).wrapping_sub(1);
        let count = NonZeroU64::new(rank(one).min(rank(other)).wrapping_add(1));
        count.map(|count| Self { count })
    }

    /// Returns the time since `earlier`, or zero if `earlier` is the later moment.
    #[inline]
    pub fn since(self, earlier: Self) -> Duration {
        Duration { ns: self.count.get().saturating_sub(earlier.count.get()) }
    }
}

impl Default for Instant {
    /// Returns the clock's zero.
    fn default() -> Self {
        Self::from_ns(0)
    }
}

impl fmt::Debug for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Instant").field("ns", &self.as_ns()).finish()
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    #[inline]
    fn add(self, time: Duration) -> Self {
        Self { count: self.count.saturating_add(time.ns) }
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
        Self { count: NonZeroU64::new(self.count.get().saturating_sub(time.ns)).unwrap_or(NonZeroU64::MIN) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_arithmetic_saturates_at_both_ends_of_the_clock() {
        let end = Instant::from_ns(u64::MAX);
        assert_eq!(end + Duration::from_secs(1), end);
        assert_eq!(Instant::default() - Duration::MAX, Instant::default());
        assert_eq!(Instant::from_ns(5).since(Instant::from_ns(9)), Duration::ZERO);
        assert_eq!(Instant::from_ns(9).since(Instant::from_ns(5)), Duration::from_nanos(4));
        assert_eq!(Instant::from_ns(9) - Duration::from_nanos(4), Instant::from_ns(5));
        assert_eq!([0, 1, u64::MAX - 1].map(|ns| Instant::from_ns(ns).as_ns()), [0, 1, u64::MAX - 1]);
        assert_eq!(size_of::<Option<Instant>>(), size_of::<Instant>());
    }

    #[test]
    fn the_first_of_two_moments_is_the_earlier_one_or_the_only_one() {
        let moments = [None, Some(Instant::default()), Some(Instant::from_ns(7)), Some(Instant::NEVER)];
        for one in moments {
            for other in moments {
                assert_eq!(Instant::first(one, other), one.into_iter().chain(other).min(), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn durations_agree_with_the_standard_library_and_saturate() {
        let std = std::time::Duration::from_micros;
        for (one, other) in [(1_500_000, 7), (0, 3), (u64::MAX / 1_000, 1)] {
            let (a, b) = (Duration::from_micros(one), Duration::from_micros(other));
            assert_eq!(std::time::Duration::from(a), std(one));
            assert_eq!(Duration::from(std(one)), a);
            assert_eq!((a.abs_diff(b), a / 8), (std(one.abs_diff(other)).into(), (std(one) / 8).into()));
            assert_eq!((a.as_millis(), format!("{a:?}")), (one / 1_000, format!("{:?}", std(one))));
        }
        assert_eq!(Duration::MAX + Duration::from_nanos(1), Duration::MAX);
        assert_eq!(Duration::from_secs(u64::MAX) * 3, Duration::MAX);
        assert_eq!(Duration::from(std::time::Duration::MAX), Duration::MAX);
        assert_eq!(Duration::ZERO - Duration::MAX, Duration::ZERO);
        assert_eq!(Duration::from_millis(2).as_millis(), 2);
    }
}
