//! Figures of a connection.

use super::super::buffer::Storage;
use super::super::congestion::CongestionControl;
use super::super::recovery::RecoveryPhase;
use super::{Connection, ConnectionState, StateName};
use crate::time::Duration;

/// Figures of a connection; sizes in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// State.
    pub state: StateName,
    /// Congestion control.
    pub congestion: CongestionControl,
    /// How far loss recovery is.
    pub recovery: RecoveryPhase,
    /// SRTT.
    pub rtt: Option<Duration>,
    /// RTTVAR.
    pub rtt_variance: Duration,
    /// Least round trip of the last minutes.
    pub rtt_min: Duration,
    /// RTO.
    pub timeout: Duration,
    /// Congestion window.
    pub congestion_window: u32,
    /// Slow-start threshold.
    pub threshold: u32,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// Payload of the largest segment that is not known to be too large.
    pub segment_bytes_high: u32,
    /// Larger segments are tried by probes (RFC 4821).
    pub path_probing: bool,
    /// Such probes sent.
    pub path_probes: u32,
    /// Those lost.
    pub path_probes_lost: u32,
    /// How often segments were made smaller because full ones vanished.
    pub black_holes: u32,
    /// In flight.
    pub flight: u32,
    /// The peer's window.
    pub peer_window: u32,
    /// What this side offers.
    pub window: u32,
    /// Segments sent again since the beginning.
    pub repeated_segments: u64,
    /// Bytes that the peer says it got twice (RFC 2883).
    pub duplicate_bytes: u64,
    /// Reductions of the window that proved to be for nothing and were taken back.
    pub undone_reductions: u32,
    /// Written and never sent.
    pub unsent: u32,
    /// Runs held ahead of gaps.
    pub gaps: usize,
    /// Memory of both buffers.
    pub buffer_bytes: usize,
    /// Entries for segments that are not acknowledged.
    pub sent_segments: usize,
}

impl<S: Storage> Connection<S> {
    /// Figures; none before the connection is open and once it is over.
    pub fn info(&self) -> Option<Info> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        let (snd, rcv) = (&open.snd, &open.rcv);
        let [path_probes, path_probes_lost, black_holes] = snd.search.counts;
        Some(Info {
            state: self.state_name(),
            congestion: snd.control.kind(),
            recovery: snd.recovery.phase(),
            rtt: snd.rtt.smoothed(),
            rtt_variance: snd.rtt.variance(),
            rtt_min: snd.rtt.min(),
            timeout: snd.rtt.timeout(snd.backoff),
            congestion_window: snd.cwnd,
            threshold: snd.ssthresh,
            segment_bytes: snd.segment_bytes,
            segment_bytes_high: snd.search.high(),
            path_probing: snd.search.active(),
            path_probes,
            path_probes_lost,
            black_holes,
            flight: snd.pipe(),
            peer_window: snd.window,
            window: rcv.offered(),
            repeated_segments: snd.repeated_segments,
            duplicate_bytes: snd.duplicate_bytes,
            undone_reductions: snd.undone_reductions,
            unsent: snd.unsent(),
            gaps: rcv.gap_count(),
            buffer_bytes: self.buffer_bytes(),
            sent_segments: snd.board.count(),
        })
    }
}
