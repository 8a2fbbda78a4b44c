//! Counters of a connection, and the time for which each limit held its sender back. They have no effect on the protocol.

use super::history::Rare;
use crate::time::{Duration, Instant};

/// Counters of the sending half.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct SentCounters {
    /// Number of payload bytes that were acknowledged cumulatively.
    pub(super) bytes_acked: u64,
    /// Number of segments without payload, SYNs included.
    pub(super) bare_segments: u32,
    pub(super) data_segments: u32,
    /// Number of segments that the peer has reported as received, the SYN included.
    pub(super) delivered: u32,
}

/// Counters of the receiving half.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ReceivedCounters {
    /// Number of bytes that were received in order.
    pub(super) bytes: u64,
    /// Number of segments without payload, SYNs included.
    pub(super) bare_segments: u32,
    pub(super) data_segments: u32,
    /// Number of segments that were stored ahead of a gap.
    pub(super) out_of_order: u32,
}

impl ReceivedCounters {
    /// Counts a segment that has arrived, even if it is dropped later. A large segment counts once.
    #[inline]
    pub(super) fn arrived(&mut self, payload_bytes: u32) {
        if payload_bytes > 0 {
            self.data_segments = self.data_segments.wrapping_add(1);
        } else {
            self.bare_segments = self.bare_segments.wrapping_add(1);
        }
    }
}

/// What a sender waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Limit {
    /// Nothing: all written data is acknowledged.
    #[default]
    Idle,
    /// The network: cwnd is used up, or acknowledgements are outstanding.
    Network,
    /// The peer's receive window is used up.
    PeerWindow,
    /// The application has more to write, but the send buffer is full.
    SendBuffer,
}

/// How long each limit held the sender back, as in Linux (`tcp_chrono`). The times of the rare limits are in the connection's
/// [`History`](super::history::History).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Chronograph {
    since: Instant,
    network: Duration,
}

/// Time for which each limit held the sender back.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LimitTimes {
    pub(super) network: Duration,
    pub(super) peer_window: Duration,
    pub(super) send_buffer: Duration,
}

impl Chronograph {
    /// Ends the time of the limit `ended`, because another limit holds the sender back from now on.
    #[inline]
    pub(super) fn end(&mut self, now: Instant, ended: Limit, rare: &mut Rare) {
        let time = now.since(self.since);
        self.since = now;
        match ended {
            Limit::Idle => {}
            Limit::Network => self.network = self.network + time,
            Limit::PeerWindow | Limit::SendBuffer => Self::end_rare(time, ended, rare),
        }
    }

    #[cold]
    fn end_rare(time: Duration, ended: Limit, rare: &mut Rare) {
        let history = rare.edit();
        match ended {
            Limit::Idle | Limit::Network => {}
            Limit::PeerWindow => history.peer_window_time = history.peer_window_time + time,
            Limit::SendBuffer => history.send_buffer_time = history.send_buffer_time + time,
        }
    }

    /// Returns the times until now. `limit` holds the sender back now.
    pub(super) fn read(&self, now: Instant, limit: Limit, rare: &Rare) -> LimitTimes {
        let mut times = LimitTimes {
            network: self.network,
            peer_window: rare.peer_window_time,
            send_buffer: rare.send_buffer_time,
        };
        let time = now.since(self.since);
        match limit {
            Limit::Idle => {}
            Limit::Network => times.network = times.network + time,
            Limit::PeerWindow => times.peer_window = times.peer_window + time,
            Limit::SendBuffer => times.send_buffer = times.send_buffer + time,
        }
        times
    }
}
