//! Programs that use TCP, and the results that they may have.
//!
//! A [`Script`] describes what both sides of one connection do: how much each sends, how fast it writes and reads, and how it ends.
//! Both hosts know all scripts. The opening side first sends the number of the script, so that the other side knows which script to
//! follow. Programs act only on events of [`siga_stack::Stack::tcp_poll_event`] and on their own deadlines. If an event is missing,
//! the connection hangs, and the run fails.
//!
//! Each side reports what it wrote and read, and how it ended. [`judge`] checks that the reports of both sides agree.

mod flow;
mod judge;
mod programs;

use siga_stack::time::Duration;

use crate::check::Content;
use crate::trace::Side;
pub(crate) use flow::bounded_pause;
pub use judge::judge;
pub use programs::{Dial, Listen, Programs};

/// Length of the script's number, which the opening side sends before its stream.
pub const HEAD_BYTES: usize = 8;

/// What both sides of a connection do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// What the opening side does, then what the other side does. If both sides open the connection, side A (the first element)
    /// sends the number.
    pub sides: [Conduct; 2],
    /// Results that are permitted in addition to those that follow from `sides`.
    pub leeway: Leeway,
}

/// What one side does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conduct {
    /// Total number of bytes that the side sends.
    pub bytes: u64,
    /// Maximum number of bytes of one write.
    pub write_bytes_max: usize,
    /// Time between two writes.
    pub write_pause: Duration,
    /// Maximum number of bytes of one read.
    pub read_bytes_max: usize,
    /// Time between two reads.
    pub read_pause: Duration,
    /// The sizes of requests and responses, if the sides take turns.
    pub turns: Option<Turns>,
    /// How the side ends the connection.
    pub end: End,
}

/// The sizes of a request and its response. A side sends its next message only after the other side's message has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    /// Bytes that this side sends in each turn.
    pub own_bytes: u64,
    /// Bytes that the other side sends in each turn.
    pub peer_bytes: u64,
    /// Whether this side has the first turn.
    pub first: bool,
}

/// How a side ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The side shuts down its direction once everything is written, reads to the end, and closes.
    Shutdown,
    /// The side writes everything and reads to the end, then closes. The other side has to shut down first.
    AfterPeer,
    /// The side closes once everything is written, even if more data is going to arrive.
    Close,
    /// The side resets the connection after this time.
    AbortAfter(Duration),
}

/// Results that are permitted although they do not follow from what the sides do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leeway {
    /// The listener is closed for some time, so the connection may be refused or reset.
    pub refused: bool,
    /// A side has a user timeout, so the connection may time out.
    pub timed_out: bool,
    /// A side lingers, so closing may reset the connection after some time.
    pub lingers: bool,
    /// The listener may answer with SYN cookies and keep no state. A second copy of the first bytes may then open the connection
    /// again after its end. If the first bytes are lost, a later acknowledgement belongs to no connection and is answered with a
    /// reset.
    pub replayed: bool,
}

/// The report of one side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The number of the script.
    pub script: usize,
    /// The side that reports. Side A opened the connection.
    pub side: Side,
    /// Bytes of the stream that the stack accepted.
    pub written: u64,
    /// Bytes of the stream that arrived.
    pub read: u64,
    /// Whether the stack reported the end of the other side's stream.
    pub ended: bool,
    /// Whether this direction was shut down or closed, not counting resets.
    pub shut: bool,
    /// How the connection ended on this side.
    pub last: Last,
}

/// How a connection ended on one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// The program closed the connection.
    Closed,
    /// The program reset the connection.
    Aborted,
    /// The stack reported that the connection failed.
    Failed(siga_stack::tcp::Failure),
}

impl Script {
    /// Whether both sides read to the end, and nothing may end the connection earlier.
    pub fn is_eligible(&self) -> bool {
        let calm = |conduct: &Conduct| match conduct.end {
            End::Shutdown | End::AfterPeer => true,
            End::Close | End::AbortAfter(_) => false,
        };
        let Leeway { refused, timed_out, lingers, replayed: _ } = self.leeway;
        self.sides.iter().all(calm) && !(refused || timed_out || lingers)
    }

    pub(crate) const fn conduct(&self, side: Side) -> &Conduct {
        match side {
            Side::A => &self.sides[0],
            Side::B => &self.sides[1],
        }
    }
}

/// Returns the stream that one side of a script sends, without the number.
pub(crate) fn content(script: usize, side: Side) -> Content {
    let script = u64::try_from(script).unwrap_or(u64::MAX);
    Content::new(script.wrapping_mul(2) + u64::from(side == Side::B))
}

/// Encodes the number of a script. The second half is the complement of the first, so that other bytes are not mistaken for a
/// number.
pub(crate) fn head(script: usize) -> [u8; HEAD_BYTES] {
    let number = u32::try_from(script).unwrap_or(u32::MAX);
    let mut bytes = [0; HEAD_BYTES];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[4..].copy_from_slice(&(!number).to_be_bytes());
    bytes
}

/// Decodes the number of a script. Returns none if the bytes are not a valid number.
pub(crate) fn parse_head(bytes: [u8; HEAD_BYTES]) -> Option<usize> {
    let [a, b, c, d, rest @ ..] = bytes;
    let number = u32::from_be_bytes([a, b, c, d]);
    (!number == u32::from_be_bytes(rest)).then(|| usize::try_from(number).ok())?
}
