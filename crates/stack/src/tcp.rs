//! A TCP connection as a state machine over segments (RFC 9293), with one side's buffers.
//!
//! Segments and time go in, segments and deadlines come out. There is no IP here, no table of connections and no clock: the
//! owner finds the connection by addresses and ports, verifies and fills checksums, calls [`Connection::poll_transmit`] until it
//! returns nothing after whatever changed a connection, and [`Connection::handle_timeout`] when
//! [`Connection::poll_timeout`] has come. A payload is copied once, from where it was received into the receive buffer.
//! Urgent data stays in the stream, where it is; its end is told (RFC 9293 section 3.8.5). No new application should use it
//! (RFC 6093): middleboxes clear the mark, and hosts disagree about the byte it points to.

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

/// Why a connection ended other than by both sides closing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Failure {
    /// The peer answered the SYN by a reset, or reset before it was open.
    Refused,
    /// The peer reset the connection.
    Reset,
    /// The peer did not answer for too long.
    TimedOut,
    /// ICMP said that there is no way, while the connection opened.
    Unreachable,
    /// This side reset the connection.
    Aborted,
}

/// Bytes of the send buffer, by sequence number; valid until the connection handles another segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendRange {
    /// Of the first byte.
    pub seq: SeqNumber,
    /// How many.
    pub len: u32,
}

/// A segment to send: its header, and which bytes follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Header, checksum excluded.
    pub header: Header,
    /// Payload, for [`Connection::copy_payload`].
    pub payload: SendRange,
    /// The segment is to be cut into segments of so much payload where the link does not take it whole; 0: it is an ordinary one.
    pub segment_bytes: u16,
    /// To be marked ECT(0) in its IP header.
    pub ecn_capable: bool,
    /// It tries a size: it is to go whole, with "don't fragment" over IPv4, though the path is not known to take it (RFC 4821).
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
    /// First byte of the payload.
    from: u32,
    /// Bytes behind RCV.NXT as it was.
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
    /// Bytes up to the end of urgent data, from what the application reads next.
    urgent: u32,
}

/// An echo of something older is none: no round trip takes as long.
const ECHO_MS_MAX: u32 = 120_000;

/// This end's clock in timestamps: milliseconds (RFC 7323 section 5.4).
fn timestamp(now: Instant, offset: u32) -> u32 {
    let ms = (now.as_ns() / 1_000_000) & u64::from(u32::MAX);
    u32::try_from(ms).unwrap_or(0).wrapping_add(offset)
}

/// The end of the millisecond that a timestamp of so many milliseconds ago named.
fn after_tick(now: Instant, ms_ago: u64) -> Instant {
    let ms = (now.as_ns() / 1_000_000 + 1).saturating_sub(ms_ago);
    Instant::from_ns(ms.saturating_mul(1_000_000))
}

/// How long ago the time was that a peer echoes, in milliseconds, if that is to be believed.
#[inline]
fn echo_ms(now: Instant, offset: u32, echo: u32) -> Option<u64> {
    let ms = timestamp(now, offset).wrapping_sub(echo);
    (echo != 0 && ms < ECHO_MS_MAX).then_some(u64::from(ms))
}

/// RFC 5961 section 7: true if a challenge may go, which is then noted.
fn challenge_allowed(last: &mut Option<Instant>, now: Instant) -> bool {
    let allowed = last.is_none_or(|last| now.since(last) >= Duration::from_millis(TCP_CHALLENGE_MS_MIN));
    if allowed {
        *last = Some(now);
    }
    allowed
}
