//! TCP sequence numbers: 32-bit numbers that wrap. Two sequence numbers can be compared only if they are less than 2^31 apart, so
//! sequence numbers have no total order.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// A sequence number: a position in one direction of a connection, modulo 2^32 (RFC 9293 section 3.4).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNumber(pub u32);

impl SeqNumber {
    /// Returns true if `self` comes strictly before `other`. The two numbers must be less than 2^31 apart.
    pub const fn before(self, other: Self) -> bool {
        self.0.wrapping_sub(other.0).cast_signed() < 0
    }

    /// Returns true if `self` comes strictly after `other`.
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// Returns true if `self` equals `other` or comes before it.
    pub const fn at_or_before(self, other: Self) -> bool {
        !other.before(self)
    }

    /// Returns true if `self` equals `other` or comes after it.
    pub const fn at_or_after(self, other: Self) -> bool {
        !self.before(other)
    }

    /// Returns the number of bytes from `earlier` to `self`, modulo 2^32.
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// Returns the later of two sequence numbers.
    pub const fn later(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// Returns the earlier of two sequence numbers.
    pub const fn earlier(self, other: Self) -> Self {
        if other.before(self) { other } else { self }
    }
}

impl fmt::Debug for SeqNumber {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "#{}", self.0)
    }
}

impl Add<u32> for SeqNumber {
    type Output = Self;

    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNumber {
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNumber {
    type Output = Self;

    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sequence_numbers_are_ordered_across_the_wrap() {
        let (low, high) = (SeqNumber(5), SeqNumber(u32::MAX - 5));
        assert!(high.before(low) && low.after(high) && !low.before(high));
        assert!(low.at_or_after(low) && low.at_or_before(low) && !low.before(low));
        assert_eq!(low.since(high), 11);
        assert_eq!((high + 11, low - 11), (low, high));
        assert_eq!((high.later(low), high.earlier(low)), (low, high));
    }
}
