//! The events of a world. Each event can be printed as a readable line, and is included in one hash of all events.
//!
//! The hash is FNV-1a with 64 bits. It is implemented here, so that it never changes. Two runs with the same hash had the same
//! events. The hash does not protect against forgery.

use std::fmt;

use siga_stack::time::Instant;

use crate::describe;
use crate::fault::{Fate, Medium};

/// The id of a node: nodes are numbered in the order in which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

/// The id of a link: links are numbered in the order in which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u16);

/// An end of a link. A is the first end that was passed to `World::link`, and B the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// The first end.
    A,
    /// The second end.
    B,
}

impl Side {
    /// Returns the opposite end.
    pub const fn other(self) -> Self {
        match self {
            Self::A => Self::B,
            Self::B => Self::A,
        }
    }
}

/// The id of a lane, which is one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId {
    /// The link.
    pub link: LinkId,
    /// The end that sends into the lane.
    pub from: Side,
}

impl fmt::Display for LaneId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let way = match self.from {
            Side::A => "a>b",
            Side::B => "b>a",
        };
        write!(f, "link {} {way}", self.link.0)
    }
}

/// An event with the time at which it happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// The virtual time of the event.
    pub at: Instant,
    /// The event itself.
    pub what: What<'a>,
}

/// What happened, without the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What<'a> {
    /// A node sent a frame.
    Sent {
        /// The lane into which the frame was sent.
        lane: LaneId,
        /// The kind of frames on the link.
        medium: Medium,
        /// The frame as it was sent.
        frame: &'a [u8],
    },
    /// A frame in a lane had a fate, for example it was lost.
    Befell {
        /// The lane of the frame.
        lane: LaneId,
        /// The fate of the frame.
        fate: Fate,
    },
    /// A frame arrived at the receiving end of a lane.
    Arrived {
        /// The lane through which the frame came.
        lane: LaneId,
        /// The kind of frames on the link.
        medium: Medium,
        /// The frame as it arrived. Faults may have changed it.
        frame: &'a [u8],
    },
    /// The world woke a node because its deadline had come.
    Woken {
        /// The node.
        node: NodeId,
    },
    /// The schedule changed a property of a link.
    Changed {
        /// The link.
        link: LinkId,
        /// The kind of change.
        kind: &'static str,
        /// The new state of the link in words. The hash does not include this text, so the wording may change.
        text: &'a str,
    },
}

impl fmt::Display for Event<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ns = self.at.as_ns();
        write!(f, "{:>4}.{:09} ", ns / 1_000_000_000, ns % 1_000_000_000)?;
        match self.what {
            What::Sent { lane, medium, frame } => write_frame(f, lane, "sent", medium, frame),
            What::Befell { lane, fate } => write!(f, "{lane} {fate}"),
            What::Arrived { lane, medium, frame } => write_frame(f, lane, "arrived", medium, frame),
            What::Woken { node } => write!(f, "node {} woken", node.0),
            What::Changed { link, text, .. } => write!(f, "link {} becomes {text}", link.0),
        }
    }
}

fn write_frame(f: &mut fmt::Formatter<'_>, lane: LaneId, verb: &str, medium: Medium, frame: &[u8]) -> fmt::Result {
    write!(f, "{lane} {verb} {} bytes {:016x}", frame.len(), digest(frame))?;
    describe::frame(medium, frame).map_or(Ok(()), |words| write!(f, " {words}"))
}

/// Returns the FNV-1a hash of `bytes`.
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = Fnv::default();
    hash.bytes(bytes);
    hash.0
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Fnv(pub(crate) u64);

impl Default for Fnv {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Fnv {
    fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
    }

    fn number(&mut self, number: u64) {
        self.bytes(&number.to_le_bytes());
    }

    fn lane(&mut self, lane: LaneId) {
        self.number(u64::from(lane.link.0) * 2 + u64::from(lane.from == Side::B));
    }

    /// Adds the length, then the bytes. Without the length, two different events could add the same bytes to the hash.
    fn sized(&mut self, bytes: &[u8]) {
        self.number(u64::try_from(bytes.len()).unwrap_or(u64::MAX));
        self.bytes(bytes);
    }
}

/// Adds each event to the hash, and passes it to the watcher.
#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) hash: Fnv,
    pub(crate) events: u64,
    pub(crate) no_contents: bool,
    pub(crate) watcher: Option<Watcher>,
}

/// A function that is called with every event as it happens.
pub type Watcher = Box<dyn FnMut(&Event<'_>)>;

impl fmt::Debug for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Trace").field("hash", &self.hash).field("events", &self.events).finish_non_exhaustive()
    }
}

impl Trace {
    pub(crate) fn record(&mut self, at: Instant, what: What<'_>) {
        self.events += 1;
        self.hash.number(at.as_ns());
        match what {
            What::Sent { lane, frame, .. } => self.record_frame(1, lane, frame),
            What::Befell { lane, fate } => {
                self.hash.number(2);
                self.hash.lane(lane);
                self.hash.sized(fate.label().as_bytes());
            }
            What::Arrived { lane, frame, .. } => self.record_frame(3, lane, frame),
            What::Woken { node } => {
                self.hash.number(4);
                self.hash.number(u64::from(node.0));
            }
            What::Changed { link, kind, .. } => {
                self.hash.number(5);
                self.hash.number(u64::from(link.0));
                self.hash.sized(kind.as_bytes());
            }
        }
        if let Some(watcher) = &mut self.watcher {
            watcher(&Event { at, what });
        }
    }

    fn record_frame(&mut self, kind: u64, lane: LaneId, frame: &[u8]) {
        self.hash.number(kind);
        self.hash.lane(lane);
        self.hash.sized(if self.no_contents { &[] } else { frame });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId { link: LinkId(3), from: Side::B };

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(digest(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn every_part_of_every_event_changes_the_hash() {
        let events = [
            (0, What::Sent { lane: LANE, medium: Medium::Ip, frame: b"ab" }),
            (1, What::Sent { lane: LANE, medium: Medium::Ip, frame: b"ab" }),
            (0, What::Sent { lane: LANE, medium: Medium::Ip, frame: b"ac" }),
            (0, What::Sent { lane: LaneId { from: Side::A, ..LANE }, medium: Medium::Ip, frame: b"ab" }),
            (0, What::Sent { lane: LaneId { link: LinkId(4), ..LANE }, medium: Medium::Ip, frame: b"ab" }),
            (0, What::Arrived { lane: LANE, medium: Medium::Ip, frame: b"ab" }),
            (0, What::Befell { lane: LANE, fate: Fate::Lost }),
            (0, What::Befell { lane: LANE, fate: Fate::TooLong }),
            (0, What::Woken { node: NodeId(0) }),
            (0, What::Woken { node: NodeId(1) }),
            (0, What::Changed { link: LinkId(0), kind: "ab", text: "" }),
            (0, What::Changed { link: LinkId(1), kind: "ab", text: "" }),
            (0, What::Changed { link: LinkId(0), kind: "ac", text: "" }),
        ];
        let mut hashes: Vec<u64> = Vec::new();
        for (ns, what) in events {
            let mut trace = Trace::default();
            trace.record(Instant::from_ns(ns), what);
            hashes.push(trace.hash.0);
        }
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), events.len());
    }

    #[test]
    fn an_event_reads_as_one_line() {
        let event = Event {
            at: Instant::from_ns(12_000_000_345),
            what: What::Sent { lane: LANE, medium: Medium::Ip, frame: b"foobar" },
        };
        assert_eq!(event.to_string(), "  12.000000345 link 3 b>a sent 6 bytes 85944171f73967e8");
    }
}
