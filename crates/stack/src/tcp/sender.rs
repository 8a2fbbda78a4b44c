//! The sending half of a synchronised connection: SND.UNA, SND.NXT, SND.WND, and the choice of the next segment.
//!
//! The sender handles sequence numbers only; the send buffer of the connection contains the bytes. A sender is created when the
//! peer has acknowledged our SYN. Recovery, timers and the growth of cwnd are in `recovery.rs`.

use super::congestion::{Algorithm, Control, Window};
use super::counters::{Chronograph, Limit, SentCounters};
use super::extras::Extras;
use super::history::Rare;
use super::plpmtud::{Larger, PathSearch, Sizes};
use super::recovery::Recovery;
use super::rtt::Rtt;
use super::scoreboard::Scoreboard;
use super::undo::{Frto, Undo};
use crate::limits::TCP_SENT_MAX;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Block, SeqNumber};
use std::cmp::Ordering;

/// A peer whose window was never larger than this gets segments that fill the window. It is the default MSS of IPv4, as in Linux.
const HALVED_WINDOW_MIN: u32 = 536;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Chunk {
    pub(super) seq: SeqNumber,
    pub(super) len: u32,
    pub(super) fin: bool,
    /// Whether the send buffer contains no data after this segment. If so, the segment carries PSH.
    pub(super) last: bool,
    pub(super) repeated: bool,
    pub(super) probe: bool,
}

/// A received acknowledgement. Its sequence number and acknowledgement number were checked and are acceptable.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ack<'a> {
    pub(super) seq: SeqNumber,
    pub(super) ack: SeqNumber,
    pub(super) window: u16,
    pub(super) blocks: &'a [Block],
    /// Whether the segment carries neither payload nor SYN nor FIN.
    pub(super) bare: bool,
    /// RTT according to the echoed timestamp.
    pub(super) echo_rtt: Option<Duration>,
    /// A time before which the acknowledged segment was sent, according to the echoed timestamp.
    pub(super) sent_before: Option<Instant>,
    pub(super) ece: bool,
}

#[derive(Debug)]
pub(super) struct Start {
    /// Sequence number of the first byte of data: ISS + 1.
    pub(super) first: SeqNumber,
    pub(super) sizes: Sizes,
    pub(super) initial_window_segments: u32,
    pub(super) window: u32,
    /// The largest window that the peer has offered. As in Linux, that of a SYN counts only if this side has opened the connection.
    pub(super) window_max: u32,
    pub(super) window_seq: SeqNumber,
    pub(super) scale: u8,
    pub(super) sack: bool,
    pub(super) ecn: bool,
    pub(super) no_delay: bool,
    pub(super) corked: bool,
    pub(super) reordering_segments: u8,
    pub(super) tail_loss_probes: bool,
    pub(super) slow_start_after_idle: bool,
    /// Number of SYNs that this side sent to open the connection. 0 if the peer opened the connection.
    pub(super) opening_syns: u8,
}

/// The sending half. Fields that every segment uses come first, so that they share cache lines. With ten thousand connections,
/// the CPU cache contains none of these lines, so each line has to be loaded from memory.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Sender {
    pub(super) una: SeqNumber,
    pub(super) nxt: SeqNumber,
    /// Sequence number after the last byte that the application wrote. A FIN gets this number.
    pub(super) end: SeqNumber,
    pub(super) window: u32,
    pub(super) window_max: u32,
    wl1: SeqNumber,
    wl2: SeqNumber,
    pub(super) segment_bytes: u32,
    pub(super) cwnd: u32,
    pub(super) ssthresh: u32,
    pub(super) dupacks: u32,
    /// End of the latest segment that was not full, for Nagle's algorithm.
    small_end: SeqNumber,
    /// Whether the application has closed its direction.
    pub(super) fin: bool,
    pub(super) scale: u8,
    pub(super) sack: bool,
    pub(super) no_delay: bool,
    pub(super) frto: Frto,
    /// Number of times that the RTO was doubled since the last RTT sample.
    pub(super) backoff: u8,
    /// Number of expired timers since the peer last acknowledged data or opened its window.
    pub(super) attempts: u8,
    pub(super) retries: u8,
    pub(super) tail_probe_due: bool,
    /// Whether an empty segment is due that elicits an acknowledgement: a window probe or a keepalive probe.
    pub(super) probe_due: bool,
    /// Whether a small segment may be sent, because the override timeout of RFC 9293 section 3.8.6.2.1 has passed.
    pub(super) small_allowed: bool,
    /// Whether cwnd, rather than the application or the peer's window, limited the latest transmission.
    pub(super) congestion_limited: bool,
    pub(super) ecn: bool,
    pub(super) cwr_due: bool,
    /// Whether an acknowledgement has shown that the path carries segments of the current size.
    pub(super) size_proven: bool,
    /// Whether the application had more to write than the send buffer had room for.
    pub(super) starved: bool,
    pub(super) reordering_segments: u8,
    pub(super) tail_loss_probes: bool,
    slow_start_after_idle: bool,
    /// Whether the application holds back segments that are not full (`TCP_CORK`).
    pub(super) corked: bool,
    /// Whether the latest write announced that more follows (`MSG_MORE`).
    pub(super) more_follows: bool,
    /// Whether this side opened the connection.
    pub(super) opened: bool,
    /// What held the sender back since the latest change.
    pub(super) limited_by: Limit,
    /// SND.UP: end of the urgent data, until it is acknowledged.
    pub(super) urgent: Option<SeqNumber>,
    /// When the retransmission timer (RTO) started. `pto_from` is when the probe timer (PTO) started, which causes a tail-loss
    /// probe.
    pub(super) rto_from: Instant,
    pub(super) pto_from: Instant,
    pub(super) last_sent: Instant,
    /// Start of the user timeout: no outstanding data has been acknowledged since this time.
    pub(super) progress_at: Instant,
    /// Idle time that was not yet reported to the congestion control.
    idle: Duration,
    /// When to probe the peer's window, because it is closed or too small. `None` if the persist timer is off.
    pub(super) persist_at: Option<Instant>,
    pub(super) reorder_due: Option<Instant>,
    pub(super) board: Scoreboard,
    pub(super) rtt: Rtt,
    pub(super) counts: SentCounters,
    pub(super) chronograph: Chronograph,
    /// The outstanding tail-loss probe, as TLP.end_seq and TLP.is_retrans (RFC 8985 section 7.1).
    pub(super) tail_probe: Option<(SeqNumber, bool)>,
    pub(super) recovery: Recovery,
    pub(super) search: PathSearch,
    /// The latest reduction of cwnd. `None` if there was none, or if it can no longer prove spurious.
    pub(super) undo: Option<Box<Undo>>,
    pub(super) rare: Rare,
    pub(super) initial_window: u32,
    pub(super) control: Control,
    /// State that few connections have.
    pub(super) extras: Option<Box<Extras>>,
}

impl Sender {
    pub(super) fn new(now: Instant, start: &Start, control: Control) -> Self {
        let (search, segment_bytes) = PathSearch::new(now, &start.sizes);
        let mut board = Scoreboard::new(start.first);
        board.set_loss_log(control.is_model());
        let cwnd = start.initial_window_segments * segment_bytes;
        // As in Linux, the SYNs of the side that opened the connection count, and a SYN-ACK does not. The peer has received the SYN.
        let opening = u32::from(start.opening_syns);
        let counts = SentCounters { bare_segments: opening, delivered: 1, ..SentCounters::default() };
        Self {
            counts,
            chronograph: Chronograph::default(),
            limited_by: Limit::Idle,
            starved: false,
            reordering_segments: start.reordering_segments,
            tail_loss_probes: start.tail_loss_probes,
            slow_start_after_idle: start.slow_start_after_idle,
            corked: start.corked,
            more_follows: false,
            opened: opening > 0,
            una: start.first,
            nxt: start.first,
            end: start.first,
            fin: false,
            urgent: None,
            window: start.window,
            window_max: start.window_max,
            wl1: start.window_seq,
            wl2: start.first,
            scale: start.scale,
            segment_bytes,
            search,
            sack: start.sack,
            no_delay: start.no_delay,
            board,
            rtt: Rtt::default(),
            control,
            cwnd,
            ssthresh: u32::MAX,
            initial_window: cwnd,
            recovery: Recovery::Open,
            undo: None,
            frto: Frto::Off,
            dupacks: 0,
            persist_at: None,
            idle: Duration::ZERO,
            backoff: 0,
            attempts: 0,
            rare: Rare::default(),
            retries: 0,
            rto_from: now,
            pto_from: now,
            reorder_due: None,
            tail_probe: None,
            tail_probe_due: false,
            probe_due: false,
            small_allowed: false,
            last_sent: now,
            small_end: start.first,
            congestion_limited: false,
            ecn: start.ecn,
            cwr_due: false,
            size_proven: false,
            progress_at: now,
            extras: None,
        }
    }

    /// Returns whether the peer has acknowledged all data and the FIN.
    pub(super) fn fin_acknowledged(&self) -> bool {
        self.fin && self.una.after(self.end)
    }

    /// Returns the number of bytes in the send buffer. These bytes were written and are not acknowledged yet.
    #[inline]
    pub(super) fn buffered(&self) -> u32 {
        self.end.since(self.una.earlier(self.end))
    }

    /// Returns the number of bytes that were written and never sent.
    #[inline]
    pub(super) fn unsent(&self) -> u32 {
        self.end.since(self.nxt.earlier(self.end))
    }

    #[inline]
    pub(super) fn fin_unsent(&self) -> bool {
        self.fin && self.nxt.at_or_before(self.end)
    }

    /// Returns what the sender waits for.
    #[inline]
    pub(super) fn limit(&self) -> Limit {
        if self.una.at_or_after(self.end) {
            return Limit::Idle;
        }
        let unsent = self.unsent();
        if unsent == 0 {
            return if self.starved { Limit::SendBuffer } else { Limit::Network };
        }
        let closed = self.usable_window() < unsent.min(self.segment_bytes) && self.pipe() < self.cwnd;
        if closed { Limit::PeerWindow } else { Limit::Network }
    }

    /// Counts a segment that is sent. A large segment counts as the segments into which a link cuts it.
    #[inline]
    pub(super) fn count_segment(&mut self, payload_bytes: u32) {
        let counts = &mut self.counts;
        if payload_bytes == 0 {
            counts.bare_segments = counts.bare_segments.wrapping_add(1);
        } else if payload_bytes <= self.segment_bytes {
            counts.data_segments = counts.data_segments.wrapping_add(1);
        } else {
            counts.data_segments = counts.data_segments.wrapping_add(payload_bytes.div_ceil(self.segment_bytes));
        }
    }

    /// Returns an estimate of the bytes in the network (pipe of RFC 6675). Without SACK, each duplicate ACK subtracts one
    /// segment, because a segment has then left the network.
    #[inline]
    pub(super) fn pipe(&self) -> u32 {
        self.board.flying.saturating_sub(self.dupacks.saturating_mul(self.segment_bytes))
    }

    /// Returns the congestion control, after reporting the accumulated idle time to it.
    pub(super) fn control(&mut self) -> &mut dyn Algorithm {
        let idle = std::mem::take(&mut self.idle);
        let control = self.control.algorithm();
        if !idle.is_zero() {
            control.idle(idle);
        }
        control
    }

    pub(super) fn congestion_window(&self) -> Window {
        Window { bytes: self.cwnd, segment_bytes: self.segment_bytes }
    }

    /// Returns how many more bytes fit into the peer's window, or 0 if the right edge of the window has moved back below SND.NXT
    /// (RFC 9293 MUST-34).
    pub(super) fn usable_window(&self) -> u32 {
        // RFC 9293 SHLD-15: no new data is sent beyond the edge of a window that has shrunk.
        let edge = self.una + self.window;
        if edge.after(self.nxt) { edge.since(self.nxt) } else { 0 }
    }

    /// Returns the sequence number of a segment without data: SND.NXT, or the right edge of the peer's window if this edge is
    /// lower. Beyond the edge, the peer would drop an acknowledgement.
    pub(super) fn acceptable_seq(&self) -> SeqNumber {
        self.nxt.earlier((self.una + self.window).later(self.una))
    }

    /// Updates SND.WND from an acknowledgement, unless SND.WND was already updated from a newer acknowledgement (RFC 9293 section
    /// 3.10.7.4). `advanced` is true if the acknowledgement has advanced SND.UNA. As in Linux, it is then the newest one, although its
    /// sequence number may be old, because the peer repeats data. Returns whether SND.WND changed.
    #[inline]
    pub(super) fn take_window(&mut self, seq: SeqNumber, ack: SeqNumber, window: u16, advanced: bool) -> bool {
        let newer = advanced || self.wl1.before(seq) || (self.wl1 == seq && self.wl2.at_or_before(ack));
        if !newer {
            return false;
        }
        // RFC 9293 MUST-1, REC-1: the window is unsigned and stored in 32 bits.
        let window = u32::from(window) << self.scale;
        let changed = window != self.window;
        (self.window, self.wl1, self.wl2) = (window, self.wl1.later(seq), ack);
        self.window_max = self.window_max.max(window);
        changed
    }

    /// Returns the next segment to send. Its payload is at most `large` bytes, or one full segment if that is more.
    pub(super) fn next_chunk(&mut self, now: Instant, large: u32) -> Option<Chunk> {
        if self.control.is_model() { self.next_paced(now, large) } else { self.choose_chunk(now, large) }
    }

    pub(super) fn choose_chunk(&mut self, now: Instant, large: u32) -> Option<Chunk> {
        if std::mem::take(&mut self.tail_probe_due)
            && let Some(chunk) = self.probe_tail(now, self.segment_bytes)
        {
            return Some(chunk);
        }
        if now >= self.search.due {
            match self.try_larger(now) {
                Larger::Nothing => {}
                Larger::Wait => return None,
                Larger::Probe(chunk) => return Some(chunk),
            }
        }
        if self.search.claim.is_some() && self.board.lost > 0 {
            self.judge_claim(now);
        }
        let max = self.payload_max(large);
        if self.board.lost > 0 {
            return self.next_in_recovery(now, max);
        }
        self.next_marked(now, max, self.cwnd.saturating_sub(self.pipe()))
    }

    /// Returns the largest payload of a segment. The payload of a large segment is a multiple of `segment_bytes`, so that it is
    /// later cut into full segments. RFC 9293 SHLD-28.
    #[inline]
    pub(super) fn payload_max(&self, large: u32) -> u32 {
        if self.window_max < self.segment_bytes.saturating_mul(2) {
            return self.segment_bytes.min(self.small_window_share());
        }
        if large > self.segment_bytes { self.whole_segments(large) } else { self.segment_bytes }
    }

    /// Sends a tail-loss probe: new data if the peer's window allows it, otherwise the last segment again (RFC 8985 section 7.3).
    fn probe_tail(&mut self, now: Instant, max: u32) -> Option<Chunk> {
        // New data that Nagle's algorithm holds back serves as the probe, too.
        let small_before = self.small_allowed;
        self.small_allowed |= self.usable_window() >= self.unsent().min(self.segment_bytes);
        let fresh = self.next_marked(now, max, max);
        self.small_allowed = small_before && fresh.is_none();
        let chunk = fresh.or_else(|| {
            let Block { start, end } = self.board.tail()?;
            let start = start.later(end - max.min(end.since(start)));
            // As in Linux, only the first outstanding segment is sent again beyond the edge of a window that has shrunk.
            let edge = self.una + self.window;
            if start != self.una && start.at_or_after(edge) {
                self.rtt.fresh = false;
                return None;
            }
            let max = if start == self.una { max } else { max.min(edge.since(start)) };
            self.board.cut_tail(start);
            Some(self.repeat(now, Block { start, end }, max))
        })?;
        self.tail_probe = Some((self.nxt, chunk.repeated));
        if chunk.repeated && chunk.seq == self.una {
            self.rare.edit().first_probed = Some(chunk.seq);
        }
        self.rtt.fresh = false;
        (self.rto_from, self.pto_from) = (now, now);
        Some(chunk)
    }

    fn next_in_recovery(&mut self, now: Instant, max: u32) -> Option<Chunk> {
        if self.frto == Frto::Fresh {
            // RFC 5682 section 3.1 step 2.b: new data is sent first, because the answer to it shows whether the older outstanding
            // data is lost.
            let budget = self.cwnd.saturating_sub(self.pipe());
            // As in Linux, Nagle's algorithm holds no data back here.
            let small_before = self.small_allowed;
            self.small_allowed |= self.usable_window().min(budget) >= self.unsent().min(self.segment_bytes);
            let fresh = self.next_marked(now, max.min(self.segment_bytes), budget);
            self.small_allowed = small_before && fresh.is_none();
            if fresh.is_some() || self.pipe() > 0 {
                return fresh;
            }
            self.frto = Frto::Off;
        }
        self.next_lost(now, max)
    }

    fn next_lost(&mut self, now: Instant, max: u32) -> Option<Chunk> {
        let lost = self.board.first_lost()?;
        let pipe = self.pipe();
        let room = self.cwnd.saturating_sub(pipe);
        // If the pipe is empty, one segment may always be sent, because otherwise no acknowledgement would arrive. If the peer's
        // window has shrunk, only the first outstanding segment is sent beyond its edge. This segment serves as the window probe.
        // RFC 9293 SHLD-16, MAY-7.
        let first = lost.start == self.una;
        let beyond = !first && lost.end.after(self.una + self.window);
        // After a timeout, later segments may still be in flight. They do not delay the first one.
        let timed_out = first && matches!(self.recovery, Recovery::Loss(_));
        if beyond || (pipe > 0 && !timed_out && room < self.segment_bytes.min(lost.bytes())) {
            return None;
        }
        let limit = max.min(self.whole_segments(room).max(self.segment_bytes));
        // Segments of a connection with records are not joined, because each record begins in a segment of its own.
        let joins = lost.bytes() < self.segment_bytes && self.extras.is_none();
        let lost = if joins { self.join_small(lost) } else { lost };
        let chunk = self.repeat(now, lost, limit);
        if first {
            (self.rto_from, self.pto_from) = (now, now);
        }
        Some(chunk)
    }

    /// Joins a small lost segment with the lost segments behind it, up to a full segment, as Linux does.
    fn join_small(&mut self, lost: Block) -> Block {
        // A FIN needs no room.
        let end = lost.start + self.segment_bytes.min(self.small_window_share());
        let end = if self.end.at_or_before(end) { self.nxt } else { end };
        self.board.join_lost(lost.start, end.earlier(self.una + self.window)).unwrap_or(lost)
    }

    fn repeat(&mut self, now: Instant, Block { start, end }: Block, max: u32) -> Chunk {
        let data = end.earlier(self.end).since(start);
        let len = data.min(max);
        let fin = end.after(self.end) && len == data;
        let stop = start + len + u32::from(fin);
        self.board.repeat(now, start, stop);
        self.recovery.sent(stop.since(start));
        self.note_repetition(now, stop.since(start));
        self.forget_repeated_probe(now, start, stop);
        Chunk { seq: start, len, fin, last: stop.at_or_after(self.end), repeated: true, probe: false }
    }

    /// Returns the next segment of new data. No segment has bytes of two records.
    pub(super) fn next_marked(&mut self, now: Instant, max: u32, budget: u32) -> Option<Chunk> {
        let chunk = self.next_before(now, max, budget, self.record_end())?;
        self.pass_marks(now);
        Some(chunk)
    }

    /// Returns the next segment of new data, for a connection that has no [`Extras`].
    #[inline]
    pub(super) fn next_fresh(&mut self, now: Instant, max: u32, budget: u32) -> Option<Chunk> {
        self.next_before(now, max, budget, None)
    }

    /// Returns the next segment of new data. If `stop` is given, the segment has no bytes from there on.
    #[inline]
    fn next_before(&mut self, now: Instant, max: u32, budget: u32, stop: Option<SeqNumber>) -> Option<Chunk> {
        let (unsent, fin_unsent) = (self.unsent(), self.fin_unsent());
        if (unsent == 0 && !fin_unsent) || self.board.is_full() {
            return None;
        }
        let flight_max = u32::from(TCP_SENT_MAX).saturating_mul(self.segment_bytes);
        self.restart_after_idle(now);
        let window = self.usable_window().min(flight_max.saturating_sub(self.nxt.since(self.una)));
        self.congestion_limited = budget < unsent.min(window);
        let ahead = stop.map_or(unsent, |stop| unsent.min(stop.since(self.nxt)));
        let len = self.payload_len(ahead, window, budget, max, ahead < unsent)?;
        let fin = fin_unsent && len == unsent && window > len;
        if len == 0 && !fin {
            return None;
        }
        let seq = self.send_fresh(now, len, fin);
        if self.whole_segments(len) < len && len < self.small_window_share() {
            self.small_end = self.nxt;
        }
        Some(Chunk { seq, len, fin, last: len == ahead, repeated: false, probe: false })
    }

    /// Records new data as sent. Returns the sequence number of its first byte.
    #[inline]
    pub(super) fn send_fresh(&mut self, now: Instant, len: u32, fin: bool) -> SeqNumber {
        if self.board.is_empty() {
            (self.rto_from, self.progress_at) = (now, now);
        }
        let seq = self.nxt;
        let stop = seq + len + u32::from(fin);
        self.board.push(now, seq, stop);
        self.recovery.sent(stop.since(seq));
        self.nxt = stop;
        (self.last_sent, self.pto_from, self.small_allowed) = (now, now, false);
        seq
    }

    /// Returns `bytes`, rounded down to full segments. The frequent cases of zero segments and exactly one segment need no
    /// division.
    #[inline]
    fn whole_segments(&self, bytes: u32) -> u32 {
        match bytes.cmp(&self.segment_bytes) {
            Ordering::Less => 0,
            Ordering::Equal => bytes,
            Ordering::Greater => bytes / self.segment_bytes * self.segment_bytes,
        }
    }

    /// Returns whether the application holds back a last segment that is not full. The persist timer sends such a segment after an
    /// RTO, as in Linux.
    #[inline]
    pub(super) fn is_held(&self) -> bool {
        self.corked || self.more_follows
    }

    /// Returns the payload bytes to send now, according to silly window avoidance (RFC 9293 MUST-38, section 3.8.6.2.1) and
    /// Nagle's algorithm (MUST-17). As in Linux, a small segment waits only while an earlier small one is unacknowledged.
    /// If `is_followed` is true, further written bytes must be in another segment, so a small segment does not wait for them.
    /// RFC 9293 MUST-60, SHLD-7, MAY-16.
    #[inline]
    fn payload_len(&self, unsent: u32, window: u32, budget: u32, max: u32, is_followed: bool) -> Option<u32> {
        let len = unsent.min(window).min(budget).min(max);
        let full = self.whole_segments(len);
        if len < unsent {
            if full > 0 {
                return Some(full);
            }
            let sizable = len >= self.small_window_share();
            return (sizable || self.small_allowed).then_some(len);
        }
        let pushed = is_followed || self.fin || self.small_allowed || self.urgent.is_some();
        let nagle = !self.no_delay && self.small_end.after(self.una);
        let waits = !pushed && (nagle || self.is_held());
        let len = if full < len && waits && len < self.small_window_share() { full } else { len };
        (len > 0 || self.fin).then_some(len)
    }

    /// Returns the payload of the segments that fill a small window of the peer. As in Linux, this is half of the largest window that
    /// the peer has offered, so that the peer can acknowledge one segment while another is in flight. A window below
    /// [`HALVED_WINDOW_MIN`] is not halved.
    fn small_window_share(&self) -> u32 {
        let halved = self.window_max > HALVED_WINDOW_MIN;
        if halved { self.window_max / 2 } else { self.window_max.max(1) }
    }

    /// RFC 5681 section 4.1: after an idle time of more than one RTO, reduces cwnd to the initial window.
    #[inline]
    pub(super) fn restart_after_idle(&mut self, now: Instant) {
        if !self.board.is_empty() {
            return;
        }
        // Time spent waiting for an acknowledgement is not idle, so the idle time begins after the last transmission and the last
        // acknowledgement.
        let idle = now.since(self.last_sent.max(self.rto_from));
        if !idle.is_zero() {
            self.idle = self.idle + idle;
            if self.slow_start_after_idle && !self.control.is_model() && now.since(self.last_sent) > self.rtt.timeout(0)
            {
                self.cwnd = self.cwnd.min(self.initial_window);
            }
        }
    }
}
