//! The protocol between client and server over a TCP connection: a sequence of exchanges. Each begins with a header that has the
//! lengths of request and response.
//!
//! The value of each byte is a function of its offset in the message, so that each end checks every byte.

use super::Outcome;

/// The port on which the server listens.
pub(super) const PORT: u16 = 7;
/// The length of an exchange's header.
pub(super) const HEAD_BYTES: usize = 24;
/// The length of the pattern: a prime, so that its repetitions are not aligned with frames.
const PATTERN_BYTES: usize = 8_191;

/// The header of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// The length of the request, in bytes.
    pub(super) request: u64,
    /// The length of the response, in bytes.
    pub(super) response: u64,
    /// Whether the server closes the connection after this exchange.
    pub(super) last: bool,
}

impl Head {
    /// Encodes the header.
    pub(super) fn bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.request.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.response.to_le_bytes());
        bytes[16] = u8::from(self.last);
        bytes
    }

    /// Decodes the header.
    pub(super) fn read(bytes: &[u8; HEAD_BYTES]) -> Outcome<Self> {
        let word = |at: usize| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        };
        match word(16) {
            0 | 1 => Ok(Self { request: word(0), response: word(8), last: word(16) == 1 }),
            _ => Err("a head that nobody sends".to_owned()),
        }
    }
}

/// The bytes of messages as a function of the offset.
#[derive(Debug)]
pub(super) struct Content {
    pattern: Vec<u8>,
}

impl Content {
    /// Makes a pattern from which pieces of up to 64 KB can be taken at every offset.
    pub(super) fn new() -> Self {
        let byte = |place: u64| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0];
        let pattern = (0..PATTERN_BYTES as u64).map(byte);
        Self { pattern: pattern.cycle().take(PATTERN_BYTES + PIECE_BYTES_MAX).collect() }
    }

    /// Returns `count` bytes from offset `place`, but at most one piece.
    pub(super) fn at(&self, place: u64, count: u64) -> &[u8] {
        let from = usize::try_from(place % PATTERN_BYTES as u64).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(PIECE_BYTES_MAX).min(PIECE_BYTES_MAX);
        &self.pattern[from..from + count]
    }
}

/// The greatest number of bytes in one send or receive call.
pub(super) const PIECE_BYTES_MAX: usize = 1 << 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_follows_from_the_place_alone() {
        let content = Content::new();
        let whole: Vec<u8> = (0..40_000).map(|place| content.at(place, 1)[0]).collect();
        assert_eq!(content.at(100, 30_000), &whole[100..30_100]);
        assert_eq!(content.at(0, u64::MAX).len(), PIECE_BYTES_MAX);
        assert_ne!(content.at(0, 64), content.at(1, 64));
    }

    #[test]
    fn a_head_reads_as_it_was_written() {
        let head = Head { request: 1 << 40, response: 7, last: true };
        assert_eq!(Head::read(&head.bytes()), Ok(head));
        let mut other = head.bytes();
        other[20] = 1;
        assert!(Head::read(&other).is_err());
    }
}
