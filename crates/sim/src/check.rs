//! The checks that every run must pass, whatever faults its links have.
//!
//! [`Stream`] checks that the bytes that arrive are the first bytes of those that were sent. The simulated world
//! ([`World`](crate::world::World)) checks everything else:
//! - Each node stops sending at some point.
//! - Frames have marks (“large segment” or “checksum left out”) only on links that negotiated marks.
//! - Each frame arrives, is dropped for a counted reason, or is in flight.
//! - After the last fault, the run makes progress. At its end, no node has anything queued or buffered.

use std::fmt;

use siga_stack::link::frame::DeviceId;
use siga_stack::time::{Duration, Instant};

use crate::rng::mix;
use crate::trace::{LaneId, NodeId};

/// An error in a run, with the time at which it was detected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The virtual time at which the error was detected.
    pub at: Instant,
    /// The error.
    pub what: Wrong,
}

/// The errors that a run can have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wrong {
    /// A node sends more and more frames without virtual time passing.
    NeverSilent(NodeId),
    /// The world wakes a node at its deadline, but the node does not set a later deadline.
    Spinning(NodeId),
    /// A node moves its deadline by so little each time that it is woken too often in one second.
    Restless(NodeId),
    /// A node forwarded a frame to a device that is not connected to a link.
    NoSuchDevice(NodeId, DeviceId),
    /// A frame has marks, but its link did not negotiate marks.
    MarksNotAgreed(LaneId),
    /// More events are scheduled than a world permits.
    TooManyPending,
    /// The counters of a lane (one direction of a link) do not match: some frames neither arrived, nor were dropped, nor are in
    /// flight.
    Unaccounted(LaneId),
    /// Something that had to happen did not happen before a time limit.
    NoProgress {
        /// The time limit.
        within: Duration,
        /// A description of what had to happen.
        what: String,
    },
    /// At the end of the run, a node or lane still has something that should be gone. Contains a description.
    LeftOver(String),
    /// The reports of the two ends of a connection contradict each other or the script that both ends follow.
    Unlawful(String),
    /// A check of the node itself failed. Contains the node's description.
    Node(NodeId, String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:?}: {}", self.at.since(Instant::default()), self.what)
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeverSilent(node) => write!(f, "node {} sends without end", node.0),
            Self::Spinning(node) => {
                write!(f, "node {} keeps a deadline that has passed when the simulation wakes it", node.0)
            }
            Self::Restless(node) => write!(f, "the simulation wakes node {} again and again without an end", node.0),
            Self::NoSuchDevice(node, device) => write!(f, "node {} has no device {}", node.0, device.0),
            Self::MarksNotAgreed(lane) => {
                write!(f, "{lane}: a frame has a mark (checksum left out), but the link does not allow marks")
            }
            Self::TooManyPending => f.write_str("more events are pending than the simulation can hold"),
            Self::Unaccounted(lane) => {
                write!(f, "{lane}: the numbers of sent, delivered and dropped frames do not match")
            }
            Self::NoProgress { within, what } => write!(f, "this did not happen within {within:?}: {what}"),
            Self::LeftOver(what) => write!(f, "left at the end of the simulation: {what}"),
            Self::Unlawful(what) => f.write_str(what),
            Self::Node(node, what) => write!(f, "node {}: {what}", node.0),
        }
    }
}

impl std::error::Error for Violation {}

/// The bytes of a stream. Each byte is computed from the stream's name and the byte's offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    name: u64,
}

impl Content {
    /// Returns the stream with this name.
    pub const fn new(name: u64) -> Self {
        Self { name }
    }

    /// Returns the byte at an offset of the stream.
    pub fn byte(&self, at: u64) -> u8 {
        self.word(at / 8)[usize::from((at % 8).to_le_bytes()[0])]
    }

    /// Returns eight bytes of the stream, from the offset `8 * at` on.
    const fn word(&self, at: u64) -> [u8; 8] {
        mix(self.name.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ mix(at + 1)).to_le_bytes()
    }

    /// Fills `into` with the bytes of the stream from the offset `from` on.
    pub fn fill(&self, from: u64, into: &mut [u8]) {
        let mut at = from;
        let mut rest = into;
        while !rest.is_empty() {
            let word = self.word(at / 8);
            let skip = usize::from((at % 8).to_le_bytes()[0]);
            let count = rest.len().min(8 - skip);
            let (now, later) = rest.split_at_mut(count);
            now.copy_from_slice(&word[skip..skip + count]);
            at += u64::try_from(count).unwrap_or(0);
            rest = later;
        }
    }
}

/// Checks that the bytes that arrive are the first bytes of those that were sent.
#[derive(Debug, Clone)]
pub struct Stream {
    content: Content,
    sent: u64,
    arrived: u64,
}

/// Why the bytes that arrived are wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamError {
    /// A byte differs from the byte of the stream at the same offset.
    Byte {
        /// The offset in the stream.
        at: u64,
        /// The byte of the stream at this offset.
        wanted: u8,
        /// The byte that arrived.
        got: u8,
    },
    /// More bytes arrived than were sent.
    Beyond {
        /// The number of bytes sent.
        sent: u64,
        /// The number of bytes that arrived.
        arrived: u64,
    },
}

impl fmt::Display for StreamError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Byte { at, wanted, got } => {
                write!(f, "byte {at} of the stream is {got:#04x}, but should be {wanted:#04x}")
            }
            Self::Beyond { sent, arrived } => write!(f, "{arrived} bytes arrived, but {sent} bytes were sent"),
        }
    }
}

impl std::error::Error for StreamError {}

impl Stream {
    /// Creates a check for a stream with this content. At first, no byte has been sent, and none has arrived.
    pub const fn new(content: Content) -> Self {
        Self { content, sent: 0, arrived: 0 }
    }

    /// Counts the next bytes of the stream as sent.
    pub const fn sent(&mut self, bytes: u64) {
        self.sent = self.sent.saturating_add(bytes);
    }

    /// Checks the next bytes that arrived.
    pub fn received(&mut self, bytes: &[u8]) -> Result<(), StreamError> {
        let mut wanted = [0; 1_024];
        for bytes in bytes.chunks(wanted.len()) {
            let wanted = &mut wanted[..bytes.len()];
            self.content.fill(self.arrived, wanted);
            for (at, (&got, &wanted)) in (self.arrived..).zip(bytes.iter().zip(&*wanted)) {
                if at == self.sent {
                    return Err(StreamError::Beyond { sent: self.sent, arrived: at + 1 });
                }
                if got != wanted {
                    return Err(StreamError::Byte { at, wanted, got });
                }
                self.arrived = at + 1;
            }
        }
        Ok(())
    }

    /// Returns the number of bytes that arrived.
    pub const fn arrived(&self) -> u64 {
        self.arrived
    }

    /// Returns true if all bytes that were sent have arrived.
    pub const fn is_complete(&self) -> bool {
        self.arrived == self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(from: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        Content::new(9).fill(from, &mut bytes);
        bytes
    }

    fn stream(sent: u64) -> Stream {
        let mut stream = Stream::new(Content::new(9));
        stream.sent(sent);
        stream
    }

    #[test]
    fn a_prefix_in_pieces_is_right() {
        let mut stream = stream(1_000);
        for (from, len) in [(0, 1), (1, 7), (8, 0), (8, 992)] {
            assert!(!stream.is_complete());
            stream.received(&bytes(from, len)).unwrap();
        }
        assert!(stream.is_complete());
        assert_eq!(stream.arrived(), 1_000);
    }

    #[test]
    fn a_gap_a_repetition_and_a_flipped_bit_are_wrong() {
        for (from, kind) in [(101, "gap"), (99, "repetition")] {
            let mut stream = stream(1_000);
            stream.received(&bytes(0, 100)).unwrap();
            // Neighbouring bytes may be the same by chance; sixteen in a row are not.
            assert!(matches!(stream.received(&bytes(from, 16)), Err(StreamError::Byte { .. })), "{kind}");
        }
        let mut flipped = bytes(0, 50);
        flipped[20] ^= 4;
        let error = stream(50).received(&flipped).unwrap_err();
        assert_eq!(error, StreamError::Byte { at: 20, wanted: flipped[20] ^ 4, got: flipped[20] });
    }

    #[test]
    fn a_byte_tells_little_of_the_next() {
        let bytes = bytes(0, 65_536);
        for apart in 1..20 {
            let same = bytes.iter().zip(&bytes[apart..]).filter(|(a, b)| a == b).count();
            assert!((150..370).contains(&same), "{same} bytes are the same as {apart} further on");
        }
    }

    #[test]
    fn more_than_was_sent_is_wrong() {
        assert_eq!(stream(10).received(&bytes(0, 11)), Err(StreamError::Beyond { sent: 10, arrived: 11 }));
    }

    #[test]
    fn streams_of_other_names_are_other_streams() {
        let mut other = vec![0; 16];
        Content::new(10).fill(0, &mut other);
        assert!(stream(16).received(&other).is_err());
    }
}
