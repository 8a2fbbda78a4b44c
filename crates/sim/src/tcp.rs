//! Programs over TCP, and their permitted results.
//!
//! A [`Script`] says what both sides of one connection do: how much each sends, in what portions and pauses, how slowly it
//! reads, and how it ends. Both hosts know all scripts. The side that opens sends the script's number first, so that the other
//! side knows it. Programs act only on events of [`siga_stack::Stack::tcp_poll_event`] and on their own deadlines. A missing event
//! therefore leaves a connection that hangs, and a hanging connection fails the run.
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

/// Bytes with the script's number in front of what the opening side sends.
pub const HEAD_BYTES: usize = 8;

/// What both sides of a connection do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// The side that opens, then the other. Of a connection that both open, the first sends the number.
    pub sides: [Conduct; 2],
    /// Results that are permitted beside those of the conducts.
    pub leeway: Leeway,
}

/// What one side does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conduct {
    /// Bytes that it sends.
    pub bytes: u64,
    /// The most that it writes at once.
    pub write_bytes_max: usize,
    /// Between two writes.
    pub write_pause: Duration,
    /// The most that it reads at once.
    pub read_bytes_max: usize,
    /// Between two reads.
    pub read_pause: Duration,
    /// Taking turns with the other side.
    pub turns: Option<Turns>,
    /// How it ends.
    pub end: End,
}

/// Requests and responses: how much each side sends after how much has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    /// Bytes that this side sends in its turn.
    pub own_bytes: u64,
    /// Bytes of the other's turn.
    pub peer_bytes: u64,
    /// This side has the first turn.
    pub first: bool,
}

/// How a side ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Shuts its direction down once all is written, reads to the end, closes.
    Shutdown,
    /// Writes all and reads to the end, then closes: the other side has to shut down first.
    AfterPeer,
    /// Closes once all is written, whatever is still to come.
    Close,
    /// Resets the connection after this time.
    AbortAfter(Duration),
}

/// Results that are permitted although neither side's conduct has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leeway {
    /// The listener is closed for a while: it may be refused or reset.
    pub refused: bool,
    /// A side has set a time after which it gives up.
    pub timed_out: bool,
    /// Closing may end by a reset after some time.
    pub lingers: bool,
    /// The listener may answer with cookies and keeps no state. A second copy of the first bytes may then open the connection
    /// again after its end. And if the first bytes are lost, a later acknowledgement is unknown and is answered with a reset.
    pub replayed: bool,
}

/// The report of one side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The script's number.
    pub script: usize,
    /// Side A opened.
    pub side: Side,
    /// Bytes that the stack took.
    pub written: u64,
    /// Bytes that arrived.
    pub read: u64,
    /// The end of the other's direction was reported.
    pub ended: bool,
    /// This direction was shut down or closed, other than by a reset.
    pub shut: bool,
    /// How it ended.
    pub last: Last,
}

/// How a side's connection ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// The program closed it.
    Closed,
    /// The program reset it.
    Aborted,
    /// The stack reported it.
    Failed(siga_stack::tcp::Failure),
}

impl Script {
    /// Whether both sides read to the end and nothing may cut them short.
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

/// What one side of a script sends, behind the number.
pub(crate) fn content(script: usize, side: Side) -> Content {
    let script = u64::try_from(script).unwrap_or(u64::MAX);
    Content::new(script.wrapping_mul(2) + u64::from(side == Side::B))
}

/// The number as it goes over the wire, in a form that no other bytes have by chance.
pub(crate) fn head(script: usize) -> [u8; HEAD_BYTES] {
    let number = u32::try_from(script).unwrap_or(u32::MAX);
    let mut bytes = [0; HEAD_BYTES];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[4..].copy_from_slice(&(!number).to_be_bytes());
    bytes
}

/// The number in a head; none if it is no number.
pub(crate) fn parse_head(bytes: [u8; HEAD_BYTES]) -> Option<usize> {
    let [a, b, c, d, rest @ ..] = bytes;
    let number = u32::from_be_bytes([a, b, c, d]);
    (!number == u32::from_be_bytes(rest)).then(|| usize::try_from(number).ok())?
}
