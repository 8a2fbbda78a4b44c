//! What a connection remembers of losses, of congestion marks, of probes and of other rare events. Most connections never have any of
//! these, so this state uses memory only after the first such event (decision 025).

use super::congestion::cubic;
use super::undo::Undo;
use crate::time::{Duration, Instant};
use crate::wire::tcp::SeqNumber;
use std::ops::Deref;

/// Rare events of a connection.
#[derive(Debug)]
pub(super) struct History {
    /// Number of retransmitted segments and bytes.
    pub(super) repeated_segments: u64,
    pub(super) repeated_bytes: u64,
    /// Number of bytes and segments that the peer reported as received twice (DSACK).
    pub(super) duplicate_bytes: u64,
    pub(super) duplicates: u32,
    /// Number of segments that were reported by acknowledgements with ECE.
    pub(super) delivered_ce: u32,
    /// Number of acknowledgements that showed reordering.
    pub(super) reorderings: u32,
    /// Number of expired retransmission timers.
    pub(super) timeouts: u32,
    /// Number of reductions of cwnd that proved spurious.
    pub(super) undone_reductions: u32,
    /// Numbers of sent path MTU probes, of lost ones, and of detected black holes.
    pub(super) path_probes: u32,
    pub(super) path_probes_lost: u32,
    pub(super) black_holes: u32,
    /// SND.NXT at the latest reduction of cwnd for ECN. The next such reduction waits until this number is acknowledged.
    pub(super) ecn_reduced_until: Option<SeqNumber>,
    /// SND.NXT when all outstanding segments were last retransmitted. Without SACK, duplicate ACKs of this number may answer these
    /// retransmissions, so they are no sign of a loss.
    pub(super) duplicates_until: Option<SeqNumber>,
    /// Start of the latest tail-loss probe that retransmitted the first outstanding segment.
    pub(super) first_probed: Option<SeqNumber>,
    /// When the device last regained its carrier.
    pub(super) carrier_at: Instant,
    /// When the last challenge ACK was sent.
    pub(super) challenged_at: Option<Instant>,
    /// When the last keepalive probe was sent, or keepalive was switched on.
    pub(super) probed_at: Instant,
    /// Time for which the peer's window and the send buffer held the sender back.
    pub(super) peer_window_time: Duration,
    pub(super) send_buffer_time: Duration,
}

/// Largest memory of what a connection remembers of rare events, in bytes: its history, and the values before its latest reduction of
/// cwnd.
pub(crate) const HISTORY_BYTES: usize = size_of::<History>() + size_of::<Undo>() + cubic::CURVES_BYTES;

impl History {
    const NONE: Self = Self {
        repeated_segments: 0,
        repeated_bytes: 0,
        duplicate_bytes: 0,
        duplicates: 0,
        delivered_ce: 0,
        reorderings: 0,
        timeouts: 0,
        undone_reductions: 0,
        path_probes: 0,
        path_probes_lost: 0,
        black_holes: 0,
        ecn_reduced_until: None,
        duplicates_until: None,
        first_probed: None,
        carrier_at: Instant::from_ns(0),
        challenged_at: None,
        probed_at: Instant::from_ns(0),
        peer_window_time: Duration::ZERO,
        send_buffer_time: Duration::ZERO,
    };
}

/// The history of a connection. Reading it before the first rare event returns a history without events.
#[derive(Debug, Default)]
pub(super) struct Rare(Option<Box<History>>);

impl Rare {
    /// Returns whether there was no rare event yet.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// Returns the history, in which the caller records an event.
    pub(super) fn edit(&mut self) -> &mut History {
        self.0.get_or_insert_with(|| Box::new(History::NONE))
    }
}

impl Deref for Rare {
    type Target = History;

    #[inline]
    fn deref(&self) -> &History {
        static NONE: History = History::NONE;
        self.0.as_deref().unwrap_or(&NONE)
    }
}
