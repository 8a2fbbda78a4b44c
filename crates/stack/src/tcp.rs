//! A TCP connection as a state machine over segments (RFC 9293), with one side's buffers.
//!
//! Segments and time go in, segments and deadlines come out. IP, the table of connections and the clock belong to the
//! owner; [`Connection`] documents what the owner calls, and in which order.
//!
//! | file | what it holds |
//! | --- | --- |
//! | `connection.rs` | the states, and which of them receives a segment |
//! | `opening.rs`, `cookie.rs`, `synchronized.rs`, `time_wait.rs` | SYN-SENT and SYN-RECEIVED, SYN cookies, ESTABLISHED to LAST-ACK, TIME-WAIT |
//! | `sender.rs`, `scoreboard.rs`, `recovery.rs`, `undo.rs`, `rtt.rs` | what is sent, SACK, loss recovery, undo, RTO |
//! | `congestion.rs`, `hystart.rs`, `plpmtud.rs` | NewReno and CUBIC, slow start, path MTU probes |
//! | `receiver.rs`, `gaps.rs`, `buffer.rs` | acknowledgements and windows, segments ahead of gaps, both buffers |
//! | `fast_path.rs`, `zero_copy.rs` | header prediction, and payload that stays in ring buffers |
//!
//! A received payload is copied once, into the receive buffer. Urgent data stays in the stream, and its end is reported
//! (RFC 9293 section 3.8.5). New applications should not use it (RFC 6093): middleboxes clear the mark, and hosts
//! disagree about the byte that it points to.

mod buffer;
mod config;
mod congestion;
mod connection;
mod cookie;
mod fast_path;
mod gaps;
mod hystart;
mod icmp;
mod initial;
mod opening;
mod plpmtud;
mod queue;
mod receiver;
mod recovery;
mod rtt;
mod scoreboard;
mod sender;
mod synchronized;
#[cfg(test)]
mod tests;
mod time_wait;
mod undo;
mod zero_copy;

pub use crate::seed::Secret;
pub use buffer::{Heap, Storage};
pub use config::{Config, ConfigError, Keepalive};
pub use congestion::CongestionControl;
pub use connection::{Connection, Info, Ports, Readiness, SendError, StateName};
pub use cookie::SynCookie;
pub(crate) use fast_path::FastSegment;
pub use icmp::{Belief, IcmpError};
pub use initial::Initial;
pub use plpmtud::PathProbing;
pub use recovery::RecoveryPhase;
pub use time_wait::{TimeWait, TimeWaitAnswer};
pub use zero_copy::RetainingHeap;
pub(crate) use zero_copy::ZeroCopy;

use crate::limits::TCP_CHALLENGE_MS_MIN;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Header, SeqNumber};

/// Why a connection ended without an orderly close by both sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The peer answered the SYN by a reset, or reset the connection before it was open.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer did not answer before retries, keepalive probes or the user timeout ended.
    TimedOut,
    /// ICMP reported the destination unreachable while the connection opened.
    Unreachable,
    /// This side reset the connection.
    Aborted,
}

/// Bytes of the send buffer, by sequence number; valid until the connection handles another segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendRange {
    /// Sequence number of the first byte.
    pub seq: SeqNumber,
    /// Number of bytes.
    pub len: u32,
}

/// A segment to send: its header, and which bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Header, checksum excluded.
    pub header: Header,
    /// Payload, for [`Connection::copy_payload`].
    pub payload: SendRange,
    /// 0 for an ordinary segment. If a link cannot carry a large segment, it is cut into segments with this payload.
    pub segment_bytes: u16,
    /// Its IP header is to carry ECT(0).
    pub ecn_capable: bool,
    /// A path MTU probe (RFC 4821), perhaps too large for the path: it is never cut, and has DF set over IPv4.
    pub path_probe: bool,
}

impl Segment {
    fn bare(header: Header) -> Self {
        Self { header, payload: SendRange::default(), segment_bytes: 0, ecn_capable: false, path_probe: false }
    }
}

/// Where a payload goes in the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placement {
    /// Offset of the first new byte in the payload.
    from: u32,
    /// Bytes from RCV.NXT, before this segment, to that byte.
    ahead: u32,
    len: u32,
}

/// What a segment does to the buffers.
#[derive(Debug, Clone, Copy, Default)]
struct Effect {
    /// Bytes that leave the send buffer.
    acked: u32,
    place: Option<Placement>,
    /// Bytes that become readable.
    deliver: u32,
    /// Bytes from the application's read position to the end of urgent data.
    urgent: u32,
}

/// Longest plausible round trip: older timestamp echoes are ignored.
const ECHO_MS_MAX: u32 = 120_000;

/// TSval of this end: milliseconds plus the connection's offset (RFC 7323 section 5.4).
fn timestamp(now: Instant, offset: u32) -> u32 {
    let ms = (now.as_ns() / 1_000_000) & u64::from(u32::MAX);
    u32::try_from(ms).unwrap_or(0).wrapping_add(offset)
}

/// End of the clock tick `ms_ago` milliseconds ago: segments with that timestamp were sent before.
fn after_tick(now: Instant, ms_ago: u64) -> Instant {
    let ms = (now.as_ns() / 1_000_000 + 1).saturating_sub(ms_ago);
    Instant::from_ns(ms.saturating_mul(1_000_000))
}

/// Round trip in milliseconds by an echoed timestamp; `None` if it is not plausible.
#[inline]
fn echo_ms(now: Instant, offset: u32, echo: u32) -> Option<u64> {
    let ms = timestamp(now, offset).wrapping_sub(echo);
    (echo != 0 && ms < ECHO_MS_MAX).then_some(u64::from(ms))
}

/// RFC 5961 section 7: whether the rate limit allows a challenge ACK now; records its time.
fn challenge_allowed(last: &mut Option<Instant>, now: Instant) -> bool {
    let allowed = last.is_none_or(|last| now.since(last) >= Duration::from_millis(TCP_CHALLENGE_MS_MIN));
    if allowed {
        *last = Some(now);
    }
    allowed
}
