//! The state and statistics of a connection, as [`Info`].

use super::super::buffer::Storage;
use super::super::congestion::CongestionControl;
use super::super::recovery::RecoveryPhase;
use super::{Connection, ConnectionState, StateName};
use crate::time::Duration;

/// The state and statistics of a connection. Sizes are in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Info {
    /// State of the connection.
    pub state: StateName,
    /// Congestion control algorithm.
    pub congestion: CongestionControl,
    /// Phase of loss recovery.
    pub recovery: RecoveryPhase,
    /// Smoothed RTT (SRTT), or `None` before the first sample.
    pub rtt: Option<Duration>,
    /// Variation of the RTT (RTTVAR).
    pub rtt_variance: Duration,
    /// Minimum RTT sample of the last five minutes. 0 before the first sample.
    pub rtt_min: Duration,
    /// Retransmission timeout (RTO), with the current backoff.
    pub timeout: Duration,
    /// Congestion window (cwnd).
    pub congestion_window: u32,
    /// Slow-start threshold (ssthresh).
    pub threshold: u32,
    /// Payload of a full segment.
    pub segment_bytes: u32,
    /// Payload of the largest segment that is not known to be too large for the path.
    pub segment_bytes_high: u32,
    /// Whether probes try larger segments (RFC 4821).
    pub path_probing: bool,
    /// Number of path MTU probes sent.
    pub path_probes: u32,
    /// Number of path MTU probes lost.
    pub path_probes_lost: u32,
    /// How often segments were made smaller, because full segments were lost without an ICMP error (a black hole).
    pub black_holes: u32,
    /// Number of bytes in flight.
    pub flight: u32,
    /// Receive window that the peer offers.
    pub peer_window: u32,
    /// Receive window that this side offers.
    pub window: u32,
    /// Number of retransmitted segments since the connection opened.
    pub repeated_segments: u64,
    /// Number of bytes that the peer reported as received twice (RFC 2883).
    pub duplicate_bytes: u64,
    /// Number of reductions of cwnd that proved spurious and were undone.
    pub undone_reductions: u32,
    /// Number of bytes that were written and never sent.
    pub unsent: u32,
    /// Number of runs of bytes that are stored ahead of gaps.
    pub gaps: usize,
    /// Memory of both buffers, of the list of sent segments and of the list of gaps.
    pub buffer_bytes: usize,
    /// Number of entries in the list of segments that are not acknowledged.
    pub sent_segments: usize,
    /// Whether the SYN carried data that the SYN-ACK acknowledged (Fast Open, RFC 7413).
    pub syn_data: bool,
}

/// The initial sequence numbers of a connection, and how many bytes the application has moved since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamPosition {
    /// The initial send sequence number (ISS).
    pub iss: u32,
    /// The peer's initial send sequence number (IRS).
    pub irs: u32,
    /// Number of bytes that the application has written.
    pub written: u64,
    /// Number of bytes that the application has read.
    pub read: u64,
}

impl<S: Storage> Connection<S> {
    /// Returns where the connection stands, or `None` before it is open, after the peer's FIN, and when it is closed.
    pub fn stream_position(&self) -> Option<StreamPosition> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        let (snd, rcv) = (&open.snd, &open.rcv);
        if self.peer_finished() || snd.fin {
            return None;
        }
        let written = snd.counts.bytes_acked + u64::from(snd.end.since(snd.una.earlier(snd.end)));
        let received = rcv.counts.bytes;
        // The low 32 bits of the counts, because sequence numbers wrap around.
        let low = |count: u64| u32::try_from(count & u64::from(u32::MAX)).unwrap_or(0);
        Some(StreamPosition {
            iss: snd.end.0.wrapping_sub(low(written)).wrapping_sub(1),
            irs: rcv.nxt.0.wrapping_sub(low(received)).wrapping_sub(1),
            written,
            read: received.saturating_sub(self.incoming.len() as u64),
        })
    }

    /// Returns state and statistics, or `None` before the connection is open, in TIME-WAIT and when closed.
    pub fn info(&self) -> Option<Info> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        let (snd, rcv) = (&open.snd, &open.rcv);
        Some(Info {
            state: self.state_name(),
            congestion: snd.control.kind(),
            recovery: snd.recovery.phase(),
            rtt: snd.rtt.smoothed(),
            rtt_variance: snd.rtt.variance,
            rtt_min: snd.rtt.min,
            timeout: snd.rtt.timeout(snd.backoff),
            congestion_window: snd.cwnd,
            threshold: snd.ssthresh,
            segment_bytes: snd.segment_bytes,
            segment_bytes_high: snd.search.high,
            path_probing: snd.search.active,
            path_probes: snd.rare.path_probes,
            path_probes_lost: snd.rare.path_probes_lost,
            black_holes: snd.rare.black_holes,
            flight: snd.pipe(),
            peer_window: snd.window,
            window: rcv.offered(),
            repeated_segments: snd.rare.repeated_segments,
            duplicate_bytes: snd.rare.duplicate_bytes,
            undone_reductions: snd.rare.undone_reductions,
            unsent: snd.unsent(),
            gaps: rcv.gaps.runs().len(),
            buffer_bytes: self.buffer_bytes(),
            sent_segments: snd.board.sent.len(),
            syn_data: self.syn_data,
        })
    }
}
