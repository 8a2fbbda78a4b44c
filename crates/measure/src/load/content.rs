//! Payload: the bytes of a message, computed so that the receiver can check them.
//!
//! A stamp is a piece of 8 bytes. It is computed from the identity of the connection, the direction, the message's number and
//! the stamp's offset in the message. In measured trials, a message has a stamp at offset 0 and then every 4,096 bytes. In the
//! phase that checks every byte, the distance is 8, so the payload consists of stamps only. A receiver that checks one stamp
//! every 4,096 bytes accepts both kinds of payload, because both have correct stamps at these offsets.
//!
//! The first request on a connection begins not with a stamp but with the connection's identity, so that the server learns the
//! identity. If the request is shorter than 8 bytes, the identity is cut to the length of the request. In the same way, a UDP
//! request begins with the number of its transaction.

use crate::limits::STAMP_BYTES;

/// The direction of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From client to server.
    Request,
    /// From server to client.
    Response,
}

/// The values from which the content of one message is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message {
    /// Identity of the connection, or for datagrams the number of the transaction. Both sides know this value.
    pub connection: u64,
    /// Number of the message on its connection. The first message has number 0.
    pub number: u64,
    /// Direction of the message.
    pub direction: Direction,
}

const STAMP_USIZE: usize = 8;

impl Message {
    /// Returns the stamp at byte `offset` (a multiple of 8) of this message.
    pub fn stamp(&self, offset: u64) -> [u8; STAMP_USIZE] {
        if self.number == 0 && self.direction == Direction::Request && offset == 0 {
            return self.connection.to_le_bytes();
        }
        let direction = match self.direction {
            Direction::Request => 0x51,
            Direction::Response => 0xA3,
        };
        let seed = self.connection ^ self.number.rotate_left(32) ^ (direction << 56);
        mix(mix(seed).wrapping_add(offset)).to_le_bytes()
    }

    /// Writes a stamp every `stride` bytes of the message into `buffer`, which contains the range `[offset, offset +
    /// buffer.len())` of the message. Of a stamp that crosses an end of this range, writes only the bytes in the range. Leaves
    /// the bytes between stamps unchanged.
    pub fn write(&self, buffer: &mut [u8], offset: u64, stride: u64) {
        overlaps(buffer.len(), offset, stride, |position, from, at, len| {
            buffer[at..at + len].copy_from_slice(&self.stamp(position)[from..from + len]);
            true
        });
    }

    /// Returns true if all stamps in `buffer` are correct. `buffer` contains the message from `offset` on, with a stamp every
    /// `stride` bytes. Of a stamp that crosses an end of the buffer, checks only the bytes in the buffer.
    pub fn check(&self, buffer: &[u8], offset: u64, stride: u64) -> bool {
        overlaps(buffer.len(), offset, stride, |position, from, at, len| {
            buffer[at..at + len] == self.stamp(position)[from..from + len]
        })
    }
}

/// Calls `each(position, from, at, length)` for every stamp that overlaps the `len` bytes of a message from `offset` on.
/// `position` is the stamp's offset in the message. The bytes of the stamp from `from` on lie in the buffer at index `at`, and
/// `length` is their number. Stops and returns false when `each` returns false.
fn overlaps(len: usize, offset: u64, stride: u64, mut each: impl FnMut(u64, usize, usize, usize) -> bool) -> bool {
    debug_assert!(stride >= STAMP_BYTES && stride.is_multiple_of(STAMP_BYTES), "stride {stride} would overlap stamps");
    let end = offset + len as u64;
    let mut position = offset / stride * stride;
    while position < end {
        let from = offset.saturating_sub(position);
        if from < STAMP_BYTES {
            let first = position + from;
            let count = (STAMP_BYTES - from).min(end - first);
            let (Ok(from), Ok(at), Ok(count)) =
                (usize::try_from(from), usize::try_from(first - offset), usize::try_from(count))
            else {
                return false;
            };
            if !each(position, from, at, count) {
                return false;
            }
        }
        position += stride;
    }
    true
}

/// Mixes the bits of `value` with the finaliser of SplitMix64: a change of one input bit changes about half of the output bits.
pub(crate) fn mix(mut value: u64) -> u64 {
    value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn message(connection: u64, number: u64) -> Message {
        Message { connection, number, direction: Direction::Response }
    }

    proptest! {
        #[test]
        fn a_message_cut_anywhere_checks(cuts in proptest::collection::vec(1usize..9000, 1..12), full in any::<bool>()) {
            let stride = if full { 8 } else { 4096 };
            let total: usize = cuts.iter().sum();
            let mut whole = vec![0; total];
            message(7, 3).write(&mut whole, 0, stride);
            let mut at = 0;
            for cut in cuts {
                prop_assert!(message(7, 3).check(&whole[at..at + cut], at as u64, stride));
                at += cut;
            }
        }

        #[test]
        fn every_changed_byte_is_found_when_all_are_checked(len in 1usize..200, at in 0usize..200, start in 0u64..100) {
            let at = at % len;
            let mut bytes = vec![0; len];
            message(1, 2).write(&mut bytes, start, 8);
            bytes[at] ^= 1;
            prop_assert!(!message(1, 2).check(&bytes, start, 8));
        }
    }

    #[test]
    fn another_message_connection_or_place_does_not_check() {
        let mut bytes = vec![0; 8192];
        message(1, 1).write(&mut bytes, 0, 4096);
        assert!(message(1, 1).check(&bytes, 0, 4096));
        assert!(!message(2, 1).check(&bytes, 0, 4096), "another connection");
        assert!(!message(1, 2).check(&bytes, 0, 4096), "another message");
        assert!(!message(1, 1).check(&bytes[4096..], 0, 4096), "bytes lost");
    }
}
