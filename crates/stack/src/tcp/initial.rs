//! Initial sequence numbers and timestamp offsets that an outsider cannot guess (RFC 6528, RFC 7323 section 5.4).
//!
//! Both come from a secret and the addresses and ports of both ends by SipHash-2-4, the keyed hash that Linux uses for it.

use super::SeqNumber;
use crate::time::Instant;

/// 128 bits that nobody outside knows; drawn once by the owner.
#[derive(Clone, Copy)]
pub struct Secret(pub [u64; 2]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Secret")
    }
}

/// Where a connection's numbers begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Initial {
    /// ISS.
    pub seq: SeqNumber,
    /// What is added to this end's clock in timestamps.
    pub timestamp_offset: u32,
}

impl Initial {
    /// The numbers of the connection that `identity` names: both addresses and both ports as bytes, always in one order.
    ///
    /// The sequence number advances by one in 4 us (RFC 9293 MUST-8), so that connections of the same identity follow one another;
    /// what is added to that is a keyed hash (MUST-9, SHLD-1); the offset stays, so that timestamps do too, and RFC 6191 can tell a new SYN from an old one.
    pub fn new(secret: Secret, identity: &[u8], now: Instant) -> Self {
        let hash = siphash(secret, identity).to_be_bytes();
        let [a, b, c, d, e, f, g, h] = hash;
        let ticks = now.as_ns() / 4_000;
        let [.., i, j, k, l] = ticks.to_be_bytes();
        let clock = u32::from_be_bytes([i, j, k, l]);
        Self {
            seq: SeqNumber(u32::from_be_bytes([a, b, c, d])) + clock,
            timestamp_offset: u32::from_be_bytes([e, f, g, h]),
        }
    }
}

pub(super) fn siphash(Secret([k0, k1]): Secret, bytes: &[u8]) -> u64 {
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    last[7] = bytes.len().to_le_bytes()[0];
    for word in words.iter().chain(std::iter::once(&last)) {
        let word = u64::from_le_bytes(*word);
        v[3] ^= word;
        round(&mut v);
        round(&mut v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    for _ in 0..4 {
        round(&mut v);
    }
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

fn round(v: &mut [u64; 4]) {
    v[0] = v[0].wrapping_add(v[1]);
    v[2] = v[2].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(13) ^ v[0];
    v[3] = v[3].rotate_left(16) ^ v[2];
    v[0] = v[0].rotate_left(32);
    v[2] = v[2].wrapping_add(v[1]);
    v[0] = v[0].wrapping_add(v[3]);
    v[1] = v[1].rotate_left(17) ^ v[2];
    v[3] = v[3].rotate_left(21) ^ v[0];
    v[2] = v[2].rotate_left(32);
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9293 MUST-9.
    #[test]
    fn the_hash_is_siphash() {
        // The vector of the paper's appendix A: key 00..0f, message 00..0e.
        let secret = Secret([0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908]);
        let message: Vec<u8> = (0..15).collect();
        assert_eq!(siphash(secret, &message), 0xa129_ca61_49be_45e5);
    }

    // RFC 9293 MUST-8, MUST-9, SHLD-1.
    #[test]
    fn numbers_follow_the_clock_for_one_identity_and_nothing_else_for_two() {
        let secret = Secret([1, 2]);
        let first = Initial::new(secret, b"a", Instant::from_ns(0));
        let later = Initial::new(secret, b"a", Instant::from_ns(4_000 * 100));
        assert_eq!((later.seq.since(first.seq), later.timestamp_offset), (100, first.timestamp_offset));
        assert_ne!(Initial::new(secret, b"b", Instant::from_ns(0)).seq, first.seq);
        assert_ne!(Initial::new(Secret([1, 3]), b"a", Instant::from_ns(0)).seq, first.seq);
    }
}
