//! The protocol of client and server over a TCP connection: exchanges, each with a head and the number of bytes in it.
//!
//! Each byte of a message follows from its offset, so that each end checks every byte.

use super::Outcome;

/// Where the server listens.
pub(super) const PORT: u16 = 7;
/// Bytes of a head.
pub(super) const HEAD_BYTES: usize = 24;
/// A prime, so that repetitions of the pattern never align with frames.
const PATTERN_BYTES: usize = 8_191;

/// The head of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    /// Bytes that follow.
    pub(super) request: u64,
    /// Bytes that are answered.
    pub(super) response: u64,
    /// The server ends the connection after it.
    pub(super) last: bool,
}

impl Head {
    /// As it is sent.
    pub(super) fn bytes(self) -> [u8; HEAD_BYTES] {
        let mut bytes = [0; HEAD_BYTES];
        bytes[..8].copy_from_slice(&self.request.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.response.to_le_bytes());
        bytes[16] = u8::from(self.last);
        bytes
    }

    /// As it is received.
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

/// The bytes of messages, by offset.
#[derive(Debug)]
pub(super) struct Content {
    pattern: Vec<u8>,
}

impl Content {
    /// A pattern that has pieces of up to 64 KB at every offset.
    pub(super) fn new() -> Self {
        let byte = |place: u64| (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0];
        let pattern = (0..PATTERN_BYTES as u64).map(byte);
        Self { pattern: pattern.cycle().take(PATTERN_BYTES + PIECE_BYTES_MAX).collect() }
    }

    /// The bytes from `place` on, `count` or as many as a piece has.
    pub(super) fn at(&self, place: u64, count: u64) -> &[u8] {
        let from = usize::try_from(place % PATTERN_BYTES as u64).unwrap_or(0);
        let count = usize::try_from(count).unwrap_or(PIECE_BYTES_MAX).min(PIECE_BYTES_MAX);
        &self.pattern[from..from + count]
    }
}

/// Bytes that are sent or received at a time.
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
