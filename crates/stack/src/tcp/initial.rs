//! Initial sequence numbers and timestamp offsets that an outsider cannot guess (RFC 6528, RFC 7323 section 5.4).
//!
//! Both numbers come from a keyed hash (SipHash-2-4) of the addresses and ports of both ends, as in Linux.

use crate::seed::Secret;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;

/// The initial sequence number and the timestamp offset of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initial {
    /// Initial send sequence number (ISS).
    pub seq: SeqNumber,
    /// Offset that this end adds to its clock to get its timestamps.
    pub timestamp_offset: u32,
}

impl Initial {
    /// Returns the initial numbers of a connection. `identity` is both addresses and both ports as bytes, always in the same
    /// order.
    ///
    /// The sequence number is the sum of a clock with a tick of 4 us (RFC 9293 MUST-8) and a keyed hash (MUST-9, SHLD-1). Because
    /// of the clock, later connections have later numbers. The timestamp offset is constant for an identity, so the timestamps of
    /// successive connections only increase. A connection in TIME-WAIT can therefore distinguish a new SYN from an old one (RFC
    /// 6191).
    pub fn new(secret: Secret, identity: &[u8], now: Instant) -> Self {
        let low = |number: u64| u32::try_from(number & u64::from(u32::MAX)).unwrap_or(0);
        let (hash, clock) = (secret.hash(identity), low(now.as_ns() / 4_000));
        Self { seq: SeqNumber(low(hash >> 32)) + clock, timestamp_offset: low(hash) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9293 MUST-8, MUST-9, SHLD-1.
    #[test]
    fn initial_numbers_follow_the_clock_within_an_identity_and_differ_between_identities() {
        let secret = Secret([1, 2]);
        let first = Initial::new(secret, b"a", Instant::from_ns(0));
        let later = Initial::new(secret, b"a", Instant::from_ns(4_000 * 100));
        assert_eq!((later.seq.since(first.seq), later.timestamp_offset), (100, first.timestamp_offset));
        assert_ne!(Initial::new(secret, b"b", Instant::from_ns(0)).seq, first.seq);
        assert_ne!(Initial::new(Secret([1, 3]), b"a", Instant::from_ns(0)).seq, first.seq);
    }
}
