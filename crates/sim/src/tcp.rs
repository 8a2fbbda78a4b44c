//! Programs that use TCP, and checks of their results.
//!
//! A [`Script`] describes what both sides of one connection do: how many bytes each side sends, how fast it writes and reads, and
//! how it ends the connection. Both hosts know all scripts. The side that opens the connection first sends the number of the
//! script, so that the other side follows the same script.
//!
//! Programs act only on events of [`siga_stack::Stack::tcp_poll_event`] and at their own deadlines. So if the stack omits an
//! event, the connection makes no progress, and the run fails.
//!
//! Each side reports how many bytes it wrote and read, and how the connection ended. [`judge`] checks that the reports of both
//! sides agree.

mod flow;
mod judge;
mod programs;

use siga_stack::time::Duration;

use crate::check::Content;
use crate::trace::Side;
pub(crate) use flow::bounded_pause;
pub use judge::judge;
pub use programs::{Dial, Listen, Programs};

/// Length in bytes of the encoded script number, which the opening side sends before its stream.
pub const HEAD_BYTES: usize = 8;

/// What both sides of a connection do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Script {
    /// What the opening side does, then what the other side does. If both sides open the connection, the first element is side A,
    /// which sends the number.
    pub sides: [Conduct; 2],
    /// Results that are permitted in addition to those that follow from `sides`.
    pub leeway: Leeway,
}

/// What one side does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Conduct {
    /// Total number of bytes that the side sends.
    pub bytes: u64,
    /// Maximum number of bytes in one write.
    pub write_bytes_max: usize,
    /// Time between two writes.
    pub write_pause: Duration,
    /// Maximum number of bytes in one read.
    pub read_bytes_max: usize,
    /// Time between two reads.
    pub read_pause: Duration,
    /// The sizes of requests and responses, if the two sides send in turn.
    pub turns: Option<Turns>,
    /// How the side ends the connection.
    pub end: End,
}

/// The sizes of a request and its response. A side sends its next message only after it has received the other side's message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    /// Number of bytes that this side sends in each turn.
    pub own_bytes: u64,
    /// Number of bytes that the other side sends in each turn.
    pub peer_bytes: u64,
    /// True if this side sends first.
    pub first: bool,
}

/// How a side ends the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// When everything is written, the side shuts down its direction. Then it reads to the end, and closes.
    Shutdown,
    /// The side writes everything and reads to the end, then closes. The other side has to shut down its direction first.
    AfterPeer,
    /// The side closes when everything is written, even if it has not yet received all data of the other side.
    Close,
    /// The side resets the connection after this time.
    AbortAfter(Duration),
}

/// Results that are permitted although they do not follow from the script's sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Leeway {
    /// True if the listener is closed for some time. The connection may then be refused or reset.
    pub refused: bool,
    /// True if a side has a user timeout. The connection may then fail by this timeout.
    pub timed_out: bool,
    /// True if a side has a `linger` time. Its close may then reset the connection after this time.
    pub lingers: bool,
    /// True if the listener may answer with SYN cookies, for which it keeps no state. A second copy of the first bytes may then
    /// open the connection again after it has ended. If the first bytes are lost, a later acknowledgement belongs to no
    /// connection, so the stack answers it with a reset.
    pub replayed: bool,
}

/// The report of one side of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// The number of the script that the connection followed.
    pub script: usize,
    /// The side that reports. Side A has opened the connection.
    pub side: Side,
    /// Number of bytes of the side's stream that the stack has accepted.
    pub written: u64,
    /// Number of bytes of the other side's stream that have arrived.
    pub read: u64,
    /// True if the stack reported the end of the other side's stream.
    pub ended: bool,
    /// True if the side shut down or closed its direction. A reset does not count.
    pub shut: bool,
    /// How the connection ended for this side.
    pub last: Last,
}

/// How a connection ended for one side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Last {
    /// The program closed the connection.
    Closed,
    /// The program reset the connection.
    Aborted,
    /// The stack reported that the connection failed. Contains the reason.
    Failed(siga_stack::tcp::Failure),
}

impl Script {
    /// Returns true if both sides read to the end, and nothing may end the connection earlier.
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

/// Returns the stream that one side of a script sends, without the encoded script number.
pub(crate) fn content(script: usize, side: Side) -> Content {
    let script = u64::try_from(script).unwrap_or(u64::MAX);
    Content::new(script.wrapping_mul(2) + u64::from(side == Side::B))
}

/// Encodes the number of a script. The second half is the complement of the first half, so that other bytes are not mistaken for a
/// script number.
pub(crate) fn head(script: usize) -> [u8; HEAD_BYTES] {
    let number = u32::try_from(script).unwrap_or(u32::MAX);
    let mut bytes = [0; HEAD_BYTES];
    bytes[..4].copy_from_slice(&number.to_be_bytes());
    bytes[4..].copy_from_slice(&(!number).to_be_bytes());
    bytes
}

/// Decodes the number of a script. Returns `None` if the bytes are not a valid encoding.
pub(crate) fn parse_head(bytes: [u8; HEAD_BYTES]) -> Option<usize> {
    let [a, b, c, d, rest @ ..] = bytes;
    let number = u32::from_be_bytes([a, b, c, d]);
    (!number == u32::from_be_bytes(rest)).then(|| usize::try_from(number).ok())?
}
