//! The receiving half of a synchronised connection: RCV.NXT, RCV.WND, data ahead of gaps, and when to acknowledge.
//!
//! The receiver decides at which position of the receive buffer bytes are stored, but the receive buffer belongs to the
//! connection. The right edge of the receive window never moves back, and advances only in large steps. The largest window grows
//! with the number of bytes that the application reads in a round trip.

use super::ack_timing::{AckTiming, Arrived};
use super::counters::ReceivedCounters;
use super::gaps::Gaps;
use super::rtt::Rtt;
use super::{Effect, Placement};
use crate::drops::TcpDrop;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Block, IpEcn, SackBlocks, SeqNumber, Timestamps};

/// RTT for the growth of the receive buffer, before the first sample.
const RTT_FIRST: Duration = Duration::from_millis(40);
/// Age at which TS.Recent becomes invalid (RFC 7323 section 5.5).
const TS_RECENT_LIFE: Duration = Duration::from_secs(24 * 24 * 3_600);

/// When an acknowledgement is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckDue {
    None,
    By(Instant),
    Now,
}

/// Measures how many bytes the application reads in a round trip. The size of the receive buffer follows this number.
#[derive(Debug)]
pub(super) struct Tuning {
    since: Instant,
    taken: u32,
    pub(super) most: u32,
}

/// The receiving half. Fields that every segment uses come last, next to the fields that follow the receiver in `Synchronized`.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Receiver {
    pub(super) capacity_max: u32,
    /// Largest number of unread bytes, which the owner of the buffer's memory sets (`Connection::limit_window`).
    pub(super) window_max: u32,
    /// Sequence number of the peer's FIN, once it has arrived.
    fin_at: Option<SeqNumber>,
    /// The first range that was received twice since the last acknowledgement, which the next one reports by DSACK.
    pub(super) duplicate: Option<Box<Block>>,
    pub(super) gaps: Gaps,
    pub(super) ack: AckDue,
    pub(super) timing: AckTiming,
    /// TS.Recent, and when it was received.
    recent: Option<(u32, Instant)>,
    pub(super) tuning: Tuning,
    pub(super) counts: ReceivedCounters,
    pub(super) nxt: SeqNumber,
    /// Right edge of the offered window.
    edge: SeqNumber,
    pub(super) capacity: u32,
    /// Number of bytes that were received in order and that the application has not read.
    used: u32,
    /// Last.ACK.sent: RCV.NXT in the latest acknowledgement that was sent.
    acknowledged: SeqNumber,
    mss: u32,
    /// Eight times the RTT in milliseconds, smoothed, as full segments of the peer show it; 0 before the first sample.
    rtt_eighths_ms: u32,
    pub(super) scale: u8,
    pub(super) finished: bool,
    sack: bool,
    ecn: bool,
    /// Whether a packet that routers may mark has arrived on a connection with classic ECN.
    ecn_seen: bool,
    /// Whether a CE mark has arrived, and no CWR has arrived since then. If so, acknowledgements carry ECE.
    pub(super) echo_congestion: bool,
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    /// Sequence number of the first byte of data: IRS + 1.
    pub(super) first: SeqNumber,
    pub(super) scale: u8,
    /// The window that our SYN offers.
    pub(super) offered: u16,
    pub(super) capacity: u32,
    pub(super) capacity_max: u32,
    pub(super) mss: u32,
    pub(super) sack: bool,
    pub(super) ecn: bool,
    /// TSval of the peer's SYN.
    pub(super) recent: Option<u32>,
    /// Longest delay of an acknowledgement. With 0, each segment with data is acknowledged at once.
    pub(super) ack_delay_max: Duration,
}

/// Position and length of a segment's payload, and whether the segment has PSH and a FIN.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text {
    pub(super) seq: SeqNumber,
    pub(super) len: u32,
    pub(super) push: bool,
    pub(super) fin: bool,
    /// Whether the ECN field of the IP header lets the next acknowledgements be sent at once.
    pub(super) is_unusual: bool,
}

impl Text {
    /// Returns how many sequence numbers the payload and the FIN have.
    pub(super) fn sequence_len(&self) -> u32 {
        self.len + u32::from(self.fin)
    }
}

impl Receiver {
    pub(super) fn new(now: Instant, start: &Start) -> Self {
        Self {
            nxt: start.first,
            edge: start.first + u32::from(start.offered),
            scale: start.scale,
            capacity: start.capacity,
            capacity_max: start.capacity_max,
            window_max: u32::MAX,
            used: 0,
            gaps: Gaps::default(),
            fin_at: None,
            finished: false,
            recent: start.recent.map(|value| (value, now)),
            acknowledged: start.first,
            ack: AckDue::None,
            timing: AckTiming::new(now, start.mss, start.ack_delay_max),
            mss: start.mss,
            rtt_eighths_ms: 0,
            sack: start.sack,
            duplicate: None,
            ecn: start.ecn,
            ecn_seen: false,
            echo_congestion: false,
            // The peer's SYN or SYN-ACK.
            counts: ReceivedCounters { bare_segments: 1, ..ReceivedCounters::default() },
            tuning: Tuning { since: now, taken: 0, most: start.capacity / 2 },
        }
    }

    /// Returns whether a segment passes the sequence number check, the first step of RFC 9293 section 3.10.7.4. As in Linux, a
    /// segment that starts at the right edge of the window passes: a peer that has filled the window sends its bare ACKs with
    /// this number.
    pub(super) fn acceptable(&self, seq: SeqNumber, sequence_len: u32) -> bool {
        (seq + sequence_len).at_or_after(self.nxt) && seq.at_or_before(self.edge.later(self.nxt))
    }

    /// Returns whether `seq` lies inside the window. A reset inside the window but not at RCV.NXT gets a challenge ACK (RFC 5961
    /// section 3.2).
    pub(super) fn in_window(&self, seq: SeqNumber) -> bool {
        seq.at_or_after(self.nxt) && seq.before(self.edge)
    }

    /// PAWS (RFC 7323 section 5.3): returns whether a timestamp is older than one that was already received.
    pub(super) fn outdated(&self, now: Instant, timestamps: Timestamps) -> bool {
        self.recent.is_some_and(|(recent, at)| {
            SeqNumber(timestamps.value).before(SeqNumber(recent)) && now.since(at) < TS_RECENT_LIFE
        })
    }

    /// Updates TS.Recent, but only from a segment that spans Last.ACK.sent (RFC 7323 section 4.3).
    pub(super) fn note_timestamp(&mut self, now: Instant, seq: SeqNumber, timestamps: Timestamps) {
        if seq.at_or_before(self.acknowledged) {
            self.recent = Some((timestamps.value, now));
        }
    }

    /// Adds a sample of the RTT: a full segment of the peer has arrived `ms` milliseconds after this side sent the segment whose
    /// timestamp it echoes. As in Linux, the sample includes the time for which the peer had nothing to send.
    #[inline]
    pub(super) fn sample_rtt(&mut self, len: u32, ms: u64) {
        if len >= self.timing.segment_bytes {
            let sample = u32::try_from(ms.max(1)).unwrap_or(u32::MAX / 8).min(u32::MAX / 8);
            let eighths = self.rtt_eighths_ms;
            self.rtt_eighths_ms = if eighths == 0 { sample * 8 } else { eighths - eighths / 8 + sample };
        }
    }

    /// Returns the RTT according to the peer's full segments, or 0 if there is no sample.
    pub(super) fn rtt(&self) -> Duration {
        Duration::from_millis(self.rtt_eighths_ms.into()) / 8
    }

    /// Returns the TSecr to send.
    pub(super) fn recent(&self) -> u32 {
        self.recent.map_or(0, |(value, _)| value)
    }

    /// Returns the application's read position: the sequence number of the next byte that it reads.
    pub(super) fn read_to(&self) -> SeqNumber {
        let fin = u32::from(self.finished);
        self.nxt - fin - self.used
    }

    /// Returns the number of bytes from the application's read position to `pointer` (RFC 9293 section 3.10.7.4, sixth step).
    pub(super) fn urgent_ahead(&self, pointer: SeqNumber) -> u32 {
        let read = self.nxt - self.used;
        if self.finished || pointer.at_or_before(read) { 0 } else { pointer.since(read) }
    }

    /// Records the part of an unacceptable segment that lies before RCV.NXT as a duplicate (RFC 2883). As in Linux, a FIN counts like
    /// a byte.
    pub(super) fn note_outside(&mut self, seq: SeqNumber, sequence_len: u32) {
        if seq.before(self.nxt) {
            self.note_duplicate(Block { start: seq, end: (seq + sequence_len).earlier(self.nxt) });
        }
    }

    /// Records a duplicate, which the next acknowledgement reports by DSACK (RFC 2883). An acknowledgement has room for one
    /// range. As in Linux, this is the first one, and a duplicate that begins where this range ends extends it. Without SACK, no
    /// acknowledgement would report the range.
    fn note_duplicate(&mut self, block: Block) {
        if !self.sack {
            return;
        }
        let first = self.duplicate.get_or_insert_with(|| Box::new(block));
        if first.end == block.start {
            first.end = block.end;
        }
    }

    /// Returns whether SACK is in use and there are blocks to send.
    pub(super) fn has_blocks(&self) -> bool {
        self.sack && (self.duplicate.is_some() || !self.gaps.is_empty() || self.waiting_fin().is_some())
    }

    /// Returns the sequence number of a FIN that has arrived ahead of a gap.
    fn waiting_fin(&self) -> Option<SeqNumber> {
        self.fin_at.filter(|_| !self.finished)
    }

    /// Processes payload and FIN (RFC 9293 section 3.10.7.4, seventh and eighth step). Accepts the part of the segment that is
    /// new and inside the window. Returns an error if the segment has payload and no part of it is accepted. An acknowledgement
    /// is due even then.
    pub(super) fn take(&mut self, now: Instant, text: Text, rtt: &Rtt, effect: &mut Effect) -> Result<(), TcpDrop> {
        let Text { mut seq, mut len, push, fin, is_unusual } = text;
        let end = seq + len;
        if len > 0 && end.at_or_before(self.nxt) {
            self.answer_repeated(seq, text.sequence_len());
            if !fin || end != self.nxt {
                return Err(TcpDrop::Duplicate);
            }
            // The payload is old, but the FIN is not.
            (seq, len) = (end, 0);
        }
        let start = seq.later(self.nxt);
        let mut stop = end.earlier(self.edge);
        let trimmed = stop != end;
        if let Some(fin_at) = self.fin_at {
            stop = stop.earlier(fin_at);
        }
        if len > 0 && stop.at_or_before(start) {
            self.ack = AckDue::Now;
            self.timing.repeated(self.last_window());
            return Err(TcpDrop::WindowFull);
        }
        let gap_before = self.has_gaps();
        let new_fin = fin && !trimmed && end.at_or_after(self.nxt) && self.fin_at.is_none();
        if new_fin {
            self.fin_at = Some(end);
        }
        if len > 0 && seq != start {
            self.note_duplicate(Block { start: seq, end: start });
        }
        if len > 0 {
            match self.take_payload(seq, Block { start, end: stop }, effect) {
                Err(TcpDrop::Duplicate) if new_fin => {}
                taken => taken?,
            }
            if effect.deliver > 0 {
                self.note_arrival(now, len, push, rtt);
            }
            if is_unusual {
                self.timing.note_congestion(self.last_window());
            }
        }
        if self.fin_at == Some(self.nxt) && !self.finished {
            self.finished = true;
            self.nxt += 1;
        }
        // RFC 5681 section 4.2: acknowledge immediately if a gap opens, closes or remains. SHLD-19: acknowledge every second full
        // segment.
        let at_once = gap_before || !self.gaps.is_empty() || fin || trimmed || seq != start;
        self.schedule_ack(now, at_once, rtt);
        Ok(())
    }

    /// Returns whether data or a FIN has arrived ahead of a gap.
    pub(super) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty() || self.fin_at.is_some()
    }

    /// Returns true if payload at `seq` is next in order and fits the window.
    #[inline]
    pub(super) fn expects(&self, seq: SeqNumber, len: u32) -> bool {
        seq == self.nxt && (seq + len).at_or_before(self.edge) && !self.finished
    }

    /// Returns when the delayed acknowledgement is due, or [`Instant::NEVER`] if there is none.
    #[inline]
    pub(super) fn ack_at(&self) -> Instant {
        if let AckDue::By(at) = self.ack { at } else { Instant::NEVER }
    }

    /// Moves RCV.NXT past `len` bytes that arrived in order.
    #[inline]
    pub(super) fn advance(&mut self, len: u32) {
        self.nxt += len;
        self.used += len;
        self.counts.bytes += u64::from(len);
    }

    /// Accepts the part `fresh` of a payload that begins at `seq`, and stores the part's position and the readable bytes in
    /// `effect`.
    fn take_payload(&mut self, seq: SeqNumber, fresh: Block, effect: &mut Effect) -> Result<(), TcpDrop> {
        let Block { start, end: stop } = fresh;
        let placement = Placement { from: start.since(seq), ahead: start.since(self.nxt), len: fresh.bytes() };
        if start == self.nxt {
            if !self.gaps.is_empty()
                && let Some(twice) = self.gaps.overlap(start, stop)
            {
                self.note_duplicate(twice);
            }
            self.nxt = self.gaps.advance(stop);
            effect.deliver = self.nxt.since(start);
            self.used += effect.deliver;
            self.counts.bytes += u64::from(effect.deliver);
        } else {
            // RFC 9293 SHLD-31, MAY-13: data ahead of a gap is stored and acknowledged immediately.
            self.ack = AckDue::Now;
            if let Some(run) = self.gaps.covering(start, stop) {
                self.gaps.report_first(run);
                self.note_duplicate(fresh);
                return Err(TcpDrop::Duplicate);
            }
            if let Some(twice) = self.gaps.overlap(start, stop) {
                self.note_duplicate(twice);
            }
            if !self.gaps.insert(start, stop) {
                return Err(TcpDrop::GapLimit);
            }
            self.counts.out_of_order = self.counts.out_of_order.wrapping_add(1);
        }
        effect.place = Some(placement);
        Ok(())
    }

    /// Returns the window that the last acknowledgement offered.
    fn last_window(&self) -> u32 {
        self.edge.since(self.acknowledged)
    }

    #[inline]
    pub(super) fn note_arrival(&mut self, at: Instant, len: u32, push: bool, rtt: &Rtt) {
        let arrived = Arrived { at, len, push, timestamps: self.recent.is_some(), window: self.last_window() };
        self.timing.note_arrival(&arrived, rtt);
    }

    /// Decides when the received bytes are acknowledged.
    /// RFC 9293 SHLD-18, SHLD-19.
    #[inline]
    pub(super) fn schedule_ack(&mut self, now: Instant, at_once: bool, rtt: &Rtt) {
        let pending = self.nxt.since(self.acknowledged);
        if pending == 0 && !at_once || self.ack == AckDue::Now {
            return;
        }
        let due = if let AckDue::By(due) = self.ack { Some(due) } else { None };
        self.ack = if at_once || self.timing.acknowledges_at_once(pending) {
            AckDue::Now
        } else {
            self.timing.delay(now, due, rtt).map_or(AckDue::Now, AckDue::By)
        };
    }

    /// Sends the delayed acknowledgement if its time has come.
    pub(super) fn handle_timeout(&mut self, now: Instant, rtt: &Rtt) {
        if let AckDue::By(at) = self.ack
            && now >= at
        {
            self.ack = AckDue::Now;
            self.timing.expire(rtt);
        }
    }

    /// Acknowledges a segment that repeats data or a FIN, or lies outside of the window.
    pub(super) fn answer_repeated(&mut self, seq: SeqNumber, sequence_len: u32) {
        if seq.before(self.nxt) {
            self.timing.repeated(self.last_window());
        }
        self.note_outside(seq, sequence_len);
        self.ack = AckDue::Now;
    }

    /// Processes the CE mark and CWR of a segment with data (RFC 3168 section 6.1.3). Marks on pure acknowledgements are ignored,
    /// because two sides could otherwise answer each other's marks for ever. After CWR the peer's cwnd may be one segment, so the
    /// acknowledgement is not delayed.
    /// RFC 9293 SHLD-8.
    pub(super) fn note_congestion(&mut self, congestion_experienced: bool, reduced: bool) {
        if reduced && self.ecn {
            self.echo_congestion = false;
            self.ack = AckDue::Now;
        }
        if self.ecn && congestion_experienced {
            self.echo_congestion = true;
            self.ack = AckDue::Now;
        }
    }

    /// Records the ECN field of a segment with payload. Returns whether the field is unusual: the first CE mark since the last CWR, or
    /// a packet that routers must not mark although earlier ones could be marked. As in Linux, such a packet is probably a
    /// retransmission (RFC 3168 section 6.1.5), so the sender's cwnd is small.
    pub(super) fn note_ecn(&mut self, ecn: IpEcn) -> bool {
        if !self.ecn {
            return false;
        }
        match ecn {
            IpEcn::NotCapable => self.ecn_seen,
            IpEcn::Capable0 | IpEcn::Capable1 => {
                self.ecn_seen = true;
                false
            }
            IpEcn::Congestion => {
                self.ecn_seen = true;
                !self.echo_congestion
            }
        }
    }

    /// Returns the window to offer, scaled for the header. The right edge of the window stays, or advances by at least one
    /// segment or half the buffer, whichever is less. The window is rounded up, so it may exceed the limit by less than one unit
    /// of the window scale. Rounding down could move the right edge back.
    /// RFC 9293 SHLD-14, MUST-39, MAY-8.
    #[inline]
    pub(super) fn window(&mut self) -> u16 {
        let (offered, free) = (self.offered(), self.free());
        let bytes = if free >= offered + self.least_opening() { free } else { offered };
        let window = u16::try_from((bytes + ((1 << self.scale) - 1)) >> self.scale).unwrap_or(u16::MAX);
        self.edge = self.nxt + (u32::from(window) << self.scale);
        window
    }

    /// Returns the number of bytes for which the receive buffer has room, or the largest window if this is less.
    #[inline]
    fn free(&self) -> u32 {
        let largest = u32::from(u16::MAX) << self.scale;
        self.room().saturating_sub(self.used).min(largest)
    }

    #[inline]
    fn least_opening(&self) -> u32 {
        (self.room() / 2).min(self.mss)
    }

    /// Returns the limit of unread bytes.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        self.capacity.min(self.window_max)
    }

    /// Records that an acknowledgement was sent.
    #[inline]
    pub(super) fn acknowledged(&mut self, now: Instant, with_data: bool) {
        self.timing.acknowledged(now, self.ack != AckDue::None, with_data);
        self.acknowledged = self.nxt;
        self.ack = AckDue::None;
    }

    /// Returns the SACK blocks to send: a duplicate first, then the run that contains the duplicate (RFC 2883 section 4), then the
    /// other runs ahead of gaps.
    #[inline]
    pub(super) fn sack_blocks(&mut self, most: usize) -> SackBlocks {
        let mut blocks = SackBlocks::default();
        if most == 0 || !self.has_blocks() {
            return blocks;
        }
        let duplicate = self.duplicate.take().map(|block| *block);
        let holder = duplicate.and_then(|block| self.gaps.covering(block.start, block.end));
        let others = self.gaps.reported().filter(|run| Some(*run) != holder);
        // As in Linux, a FIN ahead of a gap counts like a byte behind the last one.
        let fin = self.waiting_fin();
        let alone = fin.filter(|fin| self.gaps.runs().last().is_none_or(|run| run.end != *fin));
        let alone = alone.map(|fin| Block { start: fin, end: fin + 1 });
        let with_fin = |run: Block| if Some(run.end) == fin { Block { end: run.end + 1, ..run } } else { run };
        let runs = holder.into_iter().map(with_fin).chain(alone).chain(others.map(with_fin));
        for block in duplicate.into_iter().chain(runs).take(most) {
            blocks.push(block);
        }
        blocks
    }

    /// Records that the application has read `bytes` bytes. A delayed acknowledgement may become due then. A window update is due
    /// once the window can at least double.
    #[inline]
    pub(super) fn consume(&mut self, now: Instant, bytes: u32, rtt: Option<Duration>) {
        self.used -= bytes;
        self.tune(now, bytes, rtt.unwrap_or(RTT_FIRST));
        if self.used == 0 && matches!(self.ack, AckDue::By(_)) && self.timing.acknowledges_read() {
            self.ack = AckDue::Now;
        }
        let (offered, free) = (self.offered(), self.free());
        if free > offered && free / 2 >= offered && free >= offered + self.least_opening() && !self.finished {
            self.ack = AckDue::Now;
        }
    }

    /// Dynamic right-sizing: grows the receive buffer to twice the bytes that the application read in an RTT. The reason is that
    /// the peer's cwnd may double in the next RTT.
    #[inline]
    fn tune(&mut self, now: Instant, bytes: u32, rtt: Duration) {
        let tuning = &mut self.tuning;
        tuning.taken = tuning.taken.saturating_add(bytes);
        if now.since(tuning.since) < rtt {
            return;
        }
        if tuning.taken > tuning.most {
            tuning.most = tuning.taken;
            let wanted = tuning.taken.saturating_mul(2).saturating_add(16 * self.mss);
            self.capacity = self.capacity.max(wanted.min(self.capacity_max));
        }
        (tuning.since, tuning.taken) = (now, 0);
    }

    /// Returns the number of bytes that the peer may still send into the offered window.
    #[inline]
    pub(super) fn offered(&self) -> u32 {
        if self.edge.after(self.nxt) { self.edge.since(self.nxt) } else { 0 }
    }
}
