//! The statistics of a connection in the fields and units of Linux (`struct tcp_info`), as [`LinuxInfo`].

use super::super::buffer::Storage;
use super::super::congestion::{BbrInfo, Control};
use super::{Connection, ConnectionState, StateName, SynReceived, SynSent};
use crate::time::{Duration, Instant};

/// `TCP_INFINITE_SSTHRESH`: ssthresh before the first reduction of cwnd.
const THRESHOLD_NONE: u32 = 0x7fff_ffff;

/// `TCPI_OPT_*`: the options that both sides use.
const TIMESTAMPS: u8 = 1;
const SACK: u8 = 2;
const WINDOW_SCALING: u8 = 4;
const ECN: u8 = 8;
const SYN_DATA: u8 = 32;

/// The fields of Linux's `struct tcp_info` that the stack measures, with Linux's names and units. Their values have the meaning that
/// they have in Linux: `us` is microseconds, `ms` is milliseconds, and a segment is a full segment unless it carries fewer bytes.
///
/// The stack does not measure the remaining fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LinuxInfo {
    /// State, as `TCP_ESTABLISHED` (1) to `TCP_CLOSING` (11).
    pub state: u8,
    /// Phase of loss recovery: 0 open, 1 disorder, 2 reduced for ECN, 3 recovery, 4 loss.
    pub ca_state: u8,
    /// Number of retransmission timeouts since the latest progress.
    pub retransmits: u8,
    /// Number of unanswered window probes or keepalive probes.
    pub probes: u8,
    /// Number of doublings of the RTO.
    pub backoff: u8,
    /// Options in use: 1 timestamps, 2 SACK, 4 window scaling, 8 ECN, 32 the SYN's data was acknowledged.
    pub options: u8,
    /// The peer's window scale.
    pub snd_wscale: u8,
    /// This side's window scale.
    pub rcv_wscale: u8,
    /// Retransmission timeout (us).
    pub rto: u32,
    /// Longest delay of an acknowledgement (us).
    pub ato: u32,
    /// Payload of a full segment (bytes).
    pub snd_mss: u32,
    /// Estimate of the payload of the peer's full segments (bytes).
    pub rcv_mss: u32,
    /// Number of outstanding segments.
    pub unacked: u32,
    /// Number of outstanding segments that SACK blocks cover. Without SACK, the number of duplicate ACKs.
    pub sacked: u32,
    /// Number of outstanding segments that are marked lost.
    pub lost: u32,
    /// Number of retransmitted segments that are in flight.
    pub retrans: u32,
    /// Time since data was last sent (ms).
    pub last_data_sent: u32,
    /// Time since data last arrived (ms).
    pub last_data_recv: u32,
    /// Time since an acknowledgement last arrived (ms).
    pub last_ack_recv: u32,
    /// MTU of the path (bytes).
    pub pmtu: u32,
    /// Current size of the receive buffer (bytes).
    pub rcv_ssthresh: u32,
    /// Smoothed RTT (us).
    pub rtt: u32,
    /// Variation of the RTT (us).
    pub rttvar: u32,
    /// Slow-start threshold (segments).
    pub snd_ssthresh: u32,
    /// Congestion window (segments).
    pub snd_cwnd: u32,
    /// Largest payload that this side accepts in a segment (bytes).
    pub advmss: u32,
    /// Number of segments by which a segment may be late before the stack considers it lost.
    pub reordering: u32,
    /// RTT according to the timestamps that the peer's full segments echo (us). 0 without timestamps, and before the first full
    /// segment.
    pub rcv_rtt: u32,
    /// Most bytes that the application read in a round trip.
    pub rcv_space: u32,
    /// Number of retransmitted segments.
    pub total_retrans: u32,
    /// Number of bytes that were acknowledged. As in Linux, the SYN of the side that opened the connection counts.
    pub bytes_acked: u64,
    /// Number of bytes that were received in order.
    pub bytes_received: u64,
    /// Number of segments sent.
    pub segs_out: u32,
    /// Number of segments received. A large segment, which the sender's link did not cut, counts once.
    pub segs_in: u32,
    /// Number of bytes that were written and not sent.
    pub notsent_bytes: u32,
    /// Minimum RTT (us). `u32::MAX` before the first sample.
    pub min_rtt: u32,
    /// Number of segments with payload received.
    pub data_segs_in: u32,
    /// Number of segments with payload sent.
    pub data_segs_out: u32,
    /// Time with unacknowledged or unsent data (us).
    pub busy_time: u64,
    /// The part of `busy_time` in which the peer's window held data back (us).
    pub rwnd_limited: u64,
    /// The part of `busy_time` in which all data was sent and the send buffer had no room for more (us).
    pub sndbuf_limited: u64,
    /// Number of segments that the peer received, the SYN included.
    pub delivered: u32,
    /// The part of `delivered` that acknowledgements with ECE reported.
    pub delivered_ce: u32,
    /// Number of payload bytes sent, retransmissions included.
    pub bytes_sent: u64,
    /// Number of payload bytes retransmitted.
    pub bytes_retrans: u64,
    /// Number of segments that the peer reported as received twice.
    pub dsack_dups: u32,
    /// Number of acknowledgements that showed reordering.
    pub reord_seen: u32,
    /// Number of segments that were received out of order.
    pub rcv_ooopack: u32,
    /// Receive window that the peer offers (bytes).
    pub snd_wnd: u32,
    /// Receive window that this side offers (bytes).
    pub rcv_wnd: u32,
    /// Number of expired retransmission timers.
    pub total_rto: u32,
    /// Pacing rate (bytes per second). `u64::MAX` without pacing: only `bbr` paces its segments.
    pub pacing_rate: u64,
    /// Latest delivery rate (bytes per second). Only `bbr` measures this rate; it is 0 with other algorithms.
    pub delivery_rate: u64,
    /// Whether the application limited `delivery_rate`.
    pub delivery_rate_app_limited: bool,
}

impl StateName {
    /// Returns the number of the state in Linux.
    pub const fn linux_number(self) -> u8 {
        match self {
            Self::Established => 1,
            Self::SynSent => 2,
            Self::SynReceived => 3,
            Self::FinWait1 => 4,
            Self::FinWait2 => 5,
            Self::TimeWait => 6,
            Self::Closed => 7,
            Self::CloseWait => 8,
            Self::LastAck => 9,
            Self::Closing => 11,
        }
    }
}

impl<S: Storage> Connection<S> {
    /// Returns the statistics at `now`. `header_bytes` is the length of the IP and TCP headers without options. Before and after
    /// the open states, only the state and the retransmissions of the SYN are known, and all other fields are 0.
    pub fn linux_info(&self, now: Instant, header_bytes: u16) -> LinuxInfo {
        let state = self.state_name().linux_number();
        match &self.state {
            ConnectionState::SynSent(SynSent { attempt, .. })
            | ConnectionState::SynReceived(SynReceived { attempt, .. }) => {
                LinuxInfo { state, retransmits: attempt.retries, backoff: attempt.retries, ..LinuxInfo::default() }
            }
            ConnectionState::TimeWait { .. } | ConnectionState::Closed => LinuxInfo { state, ..LinuxInfo::default() },
            ConnectionState::Synchronized(open) => {
                let option_bytes = if open.timestamps { 12 } else { 0 };
                let info = LinuxInfo {
                    state,
                    last_ack_recv: ms(now.since(open.last_received)),
                    advmss: u32::from(self.base.config.mss).saturating_sub(option_bytes),
                    pmtu: open.snd.segment_bytes + option_bytes + u32::from(header_bytes),
                    options: if open.timestamps { TIMESTAMPS } else { 0 } | if self.syn_data { SYN_DATA } else { 0 },
                    probes: open.keepalive_probes,
                    ..LinuxInfo::default()
                };
                open.rcv.report(now, open.snd.report(now, info))
            }
        }
    }

    /// Returns the state of BBR in the fields and units of Linux's `TCP_CC_INFO`. `None` with another congestion control, which Linux
    /// has no such fields for, and before the connection is open.
    pub fn bbr_info(&self) -> Option<BbrInfo> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        if let Control::Bbr(bbr) = &open.snd.control { Some(bbr.linux_info()) } else { None }
    }
}

impl super::super::sender::Sender {
    fn report(&self, now: Instant, info: LinuxInfo) -> LinuxInfo {
        let (counts, times) = (&self.counts, self.chronograph.read(now, self.limited_by, &self.rare));
        let outstanding = self.board.tally(self.segment_bytes);
        let waits = self.persist_at.is_some();
        let sent = self.nxt.earlier(self.end);
        let fresh = counts.bytes_acked + u64::from(sent.since(self.una.earlier(sent)));
        let scaled = if self.scale > 0 { WINDOW_SCALING } else { 0 };
        let sack = if self.sack { SACK } else { 0 };
        LinuxInfo {
            ca_state: self.linux_phase(),
            retransmits: if waits { 0 } else { self.retries },
            probes: if waits { self.retries } else { info.probes },
            backoff: self.backoff,
            options: info.options | sack | scaled | if self.ecn { ECN } else { 0 },
            snd_wscale: self.scale,
            rto: us32(self.rtt.timeout(self.backoff)),
            snd_mss: self.segment_bytes,
            unacked: outstanding.unacked,
            sacked: if self.sack { outstanding.sacked } else { self.dupacks },
            lost: outstanding.lost,
            retrans: outstanding.repeated,
            last_data_sent: ms(now.since(self.last_sent)),
            rtt: us32(self.rtt.smoothed().unwrap_or_default()),
            rttvar: us32(self.rtt.variance),
            snd_ssthresh: if self.ssthresh == u32::MAX { THRESHOLD_NONE } else { self.ssthresh / self.segment_bytes },
            snd_cwnd: self.cwnd / self.segment_bytes,
            reordering: self.reordering_segments.into(),
            total_retrans: low(self.rare.repeated_segments),
            bytes_acked: counts.bytes_acked + u64::from(self.opened),
            segs_out: counts.bare_segments.wrapping_add(counts.data_segments),
            notsent_bytes: self.unsent(),
            min_rtt: if self.rtt.min.is_zero() { u32::MAX } else { us32(self.rtt.min) },
            data_segs_out: counts.data_segments,
            busy_time: us(times.network + times.peer_window + times.send_buffer),
            rwnd_limited: us(times.peer_window),
            sndbuf_limited: us(times.send_buffer),
            delivered: counts.delivered,
            delivered_ce: self.rare.delivered_ce,
            bytes_sent: fresh + self.rare.repeated_bytes,
            bytes_retrans: self.rare.repeated_bytes,
            dsack_dups: self.rare.duplicates,
            reord_seen: self.rare.reorderings,
            snd_wnd: self.window,
            total_rto: self.rare.timeouts,
            pacing_rate: self.pacing_rate(),
            delivery_rate: self.delivery_rate().rate,
            delivery_rate_app_limited: self.delivery_rate().app_limited,
            ..info
        }
    }
}

impl super::super::receiver::Receiver {
    fn report(&self, now: Instant, info: LinuxInfo) -> LinuxInfo {
        let counts = &self.counts;
        LinuxInfo {
            // A window scale of 0 in both directions has no effect, so it is not reported.
            options: info.options | if self.scale > 0 { WINDOW_SCALING } else { 0 },
            rcv_wscale: self.scale,
            ato: us32(self.timing.answer_estimate()),
            rcv_mss: self.timing.segment_bytes,
            last_data_recv: ms(now.since(self.timing.last_arrival)),
            rcv_ssthresh: self.room(),
            rcv_rtt: us32(self.rtt()),
            rcv_space: self.tuning.most,
            bytes_received: counts.bytes,
            segs_in: counts.bare_segments.wrapping_add(counts.data_segments),
            data_segs_in: counts.data_segments,
            rcv_ooopack: counts.out_of_order,
            rcv_wnd: self.offered(),
            ..info
        }
    }
}

fn us(time: Duration) -> u64 {
    time.as_nanos() / 1_000
}

fn us32(time: Duration) -> u32 {
    low(us(time))
}

fn ms(time: Duration) -> u32 {
    low(time.as_millis())
}

fn low(value: u64) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}
