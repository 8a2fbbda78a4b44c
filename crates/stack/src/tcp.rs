//! One end of a TCP connection: a state machine over segments (RFC 9293), with a send buffer and a receive buffer.
//!
//! The inputs of the state machine are received segments and the current time. Its outputs are segments to send and deadlines for
//! timers. The owner of the connection (the stack) provides IP, the table of connections and the clock. [`Connection`] documents
//! which methods the owner calls, and in which order.
//!
//! `opening.rs` does the handshake, unless a SYN cookie replaces it (`cookie.rs`). With Fast Open, data flows before the handshake
//! is complete (`fast_open.rs`). After the handshake, `synchronized.rs`
//! combines a sender and a receiver. In that state, `fast_path.rs` processes nearly all segments. Settings are in `config.rs`,
//! initial sequence numbers in `initial.rs`, and ICMP errors in `icmp.rs`.
//!
//! A received payload is copied once, into the receive buffer. With zero-copy receive it stays in the buffer of its frame
//! instead. Urgent data stays in the byte stream, and the application can ask where it ends (RFC 9293 section 3.8.5). New
//! applications should not use urgent data (RFC 6093), because middleboxes clear the URG flag, and hosts disagree about the byte
//! that the urgent pointer marks.

mod accurate_ecn;
mod ack_timing;
mod arrivals;
mod buffer;
mod config;
mod congestion;
mod connection;
mod cookie;
mod counters;
mod delivery_rate;
mod ecn_mode;
mod extras;
mod fast_open;
mod fast_path;
mod gaps;
mod history;
mod hystart;
mod icmp;
mod initial;
mod linux_settings;
mod opening;
mod paced_sender;
mod pacing;
mod plpmtud;
mod queue;
mod receiver;
mod recovery;
mod rtt;
mod scoreboard;
mod send_marks;
mod sender;
mod synchronized;
#[cfg(test)]
mod tests;
mod time_wait;
mod undo;
mod zero_copy;

pub use crate::ip::mtu_discovery::MtuDiscovery;
pub use crate::seed::Secret;
pub use arrivals::ArrivedBytes;
pub use buffer::{Heap, Storage};
pub use config::{Config, ConfigError, Keepalive};
pub use congestion::{BbrInfo, CongestionControl};
pub use connection::{Connection, ConnectionReadiness, Info, LinuxInfo, Ports, SendError, StateName, StreamPosition};
pub use cookie::SynCookie;
pub(crate) use fast_open::FAST_OPEN_BYTES;
pub use fast_open::{FastOpenEvent, FastOpenSyn};
pub(crate) use fast_path::FastSegment;
pub(crate) use history::HISTORY_BYTES;
pub use icmp::{Belief, SegmentError};
pub use initial::Initial;
pub use linux_settings::SettingError;
pub(crate) use linux_settings::{ChosenSetting, Setting, config_setting_names, congestion, find, one, small};
pub use plpmtud::PathProbing;
pub use recovery::RecoveryPhase;
pub use send_marks::{SendStage, SendTime, Timing, WriteFlags};
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
    /// All retransmissions of a segment, or all keepalive probes, stayed unanswered, or the user timeout expired.
    TimedOut,
    /// An ICMP error reported the destination unreachable while the connection was being opened.
    Unreachable,
    /// This side reset the connection.
    Aborted,
}

/// A range of bytes in the send buffer, given by sequence number. The range is invalid once the connection has handled another
/// segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendRange {
    /// Sequence number of the first byte.
    pub seq: SeqNumber,
    /// Number of bytes.
    pub len: u32,
}

/// A segment to send: its header, and the range of the send buffer that is its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The header without its checksum, which the owner fills in.
    pub header: Header,
    /// The range of the send buffer that is the payload. [`Connection::copy_payload`] copies the bytes.
    pub payload: SendRange,
    /// 0 for an ordinary segment. A large segment (as with TSO) is later cut by a link into segments with this many bytes of
    /// payload.
    pub segment_bytes: u16,
    /// Whether the IP header of the segment has to carry ECT(0).
    pub ecn_capable: bool,
    /// Whether the segment is a path MTU probe (RFC 4821), which may be too large for the path. A probe is never cut, and over
    /// IPv4 it has DF set.
    pub path_probe: bool,
}

impl Segment {
    fn bare(header: Header) -> Self {
        Self { header, payload: SendRange::default(), segment_bytes: 0, ecn_capable: false, path_probe: false }
    }
}

/// The part of a payload that is accepted, and its position in the receive buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Placement {
    /// Offset of the first new byte in the payload.
    from: u32,
    /// Number of bytes from RCV.NXT to the first new byte. This is the RCV.NXT from before the segment was processed.
    ahead: u32,
    len: u32,
}

/// How a received segment changes the buffers.
#[derive(Debug, Clone, Copy, Default)]
struct Effect {
    /// Number of bytes that were acknowledged and therefore leave the send buffer.
    acked: u32,
    place: Option<Placement>,
    /// Number of bytes in the receive buffer that become readable.
    deliver: u32,
    /// Number of bytes from the application's read position to the end of urgent data.
    urgent: u32,
}

/// Longest plausible round-trip time in milliseconds. An echoed timestamp that is older is ignored.
const ECHO_MS_MAX: u32 = 120_000;

/// Returns the TSval that this end sends at `now`: the time in milliseconds plus the connection's timestamp offset (RFC 7323
/// section 5.4).
fn timestamp(now: Instant, offset: u32) -> u32 {
    let ms = (now.as_ns() / 1_000_000) & u64::from(u32::MAX);
    u32::try_from(ms).unwrap_or(0).wrapping_add(offset)
}

/// Returns the end of the 1 ms timestamp tick that was current `ms_ago` milliseconds before `now`. Every segment that carries the
/// timestamp of this tick was sent before the returned time.
fn after_tick(now: Instant, ms_ago: u64) -> Instant {
    let ms = (now.as_ns() / 1_000_000 + 1).saturating_sub(ms_ago);
    Instant::from_ns(ms.saturating_mul(1_000_000))
}

/// Returns the round-trip time in milliseconds according to an echoed timestamp, or `None` if that time is not plausible.
#[inline]
fn echo_ms(now: Instant, offset: u32, echo: u32) -> Option<u64> {
    let ms = timestamp(now, offset).wrapping_sub(echo);
    (echo != 0 && ms < ECHO_MS_MAX).then_some(u64::from(ms))
}

/// Returns whether the rate limit allows a challenge ACK at `now` (RFC 5961 section 7). `last` is the time of the latest
/// challenge ACK, and becomes `now` if the limit allows another.
fn challenge_allowed(last: &mut Option<Instant>, now: Instant) -> bool {
    let allowed = last.is_none_or(|last| now.since(last) >= Duration::from_millis(TCP_CHALLENGE_MS_MIN));
    if allowed {
        *last = Some(now);
    }
    allowed
}
