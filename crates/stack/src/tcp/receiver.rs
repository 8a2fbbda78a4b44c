//! The receiving half of a synchronised connection: RCV.NXT, RCV.WND, what arrived ahead of gaps, and when to acknowledge.
//!
//! It decides where bytes belong; they lie in the connection's buffer. A window once offered is never taken back, never opened
//! by crumbs, and grows with what the application takes in a round trip.

use super::gaps::Gaps;
use super::{Effect, Placement};
use crate::drops::TcpDrop;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Block, SackBlocks, SeqNumber, Timestamps};

/// How long an acknowledgement may wait for company (RFC 9293 MUST-40: under 0.5 s), as Linux at its least.
const ACK_DELAY: Duration = Duration::from_millis(40);
/// Segments acknowledged at once at the start and after a pause, while the sender's window is small, as Linux.
const QUICK_ACKS: u8 = 16;
/// A pause after which [`QUICK_ACKS`] are granted again.
const QUICK_AFTER: Duration = Duration::from_millis(200);
/// Age from which TS.Recent is no longer believed (RFC 7323 section 5.5).
const TS_RECENT_LIFE: Duration = Duration::from_secs(24 * 24 * 3_600);

/// When an acknowledgement is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckDue {
    None,
    By(Instant),
    Now,
}

/// Growing the buffer by what the application takes.
#[derive(Debug)]
struct Tuning {
    since: Instant,
    taken: u32,
    most: u32,
}

/// The receiving half. What every segment needs stands together at the end: behind it the connection has what it needs too.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Receiver {
    pub(super) capacity_max: u32,
    /// Bytes that may be here unread at most, by whoever has the memory.
    window_max: u32,
    /// Where the peer's FIN lies, if it came ahead of a gap.
    fin_at: Option<SeqNumber>,
    duplicate: Option<Block>,
    gaps: Gaps,
    pub(super) ack: AckDue,
    last_arrival: Instant,
    /// TS.Recent, and when it came.
    recent: Option<(u32, Instant)>,
    tuning: Tuning,
    pub(super) nxt: SeqNumber,
    /// Right edge of the window as offered.
    edge: SeqNumber,
    pub(super) capacity: u32,
    /// Bytes that the application has not taken.
    used: u32,
    /// Last.ACK.sent.
    acknowledged: SeqNumber,
    /// Payload of the peer's full segments, as seen, at most our MSS.
    segment_bytes: u32,
    mss: u32,
    scale: u8,
    pub(super) finished: bool,
    quick: u8,
    /// The application answers what it receives: acknowledgements travel with answers.
    interactive: bool,
    sack: bool,
    ecn: bool,
    /// Congestion was experienced and the peer has not said that it slowed down.
    pub(super) echo_congestion: bool,
}

/// How a receiver begins.
#[derive(Debug, Clone, Copy)]
pub(super) struct Start {
    /// First byte of data: IRS + 1.
    pub(super) first: SeqNumber,
    pub(super) scale: u8,
    /// Window of our SYN.
    pub(super) offered: u16,
    pub(super) capacity: u32,
    pub(super) capacity_max: u32,
    pub(super) mss: u32,
    pub(super) sack: bool,
    pub(super) ecn: bool,
    /// TSval of the SYN.
    pub(super) recent: Option<u32>,
}

/// A segment's place and payload.
#[derive(Debug, Clone, Copy)]
pub(super) struct Text {
    pub(super) seq: SeqNumber,
    pub(super) len: u32,
    pub(super) fin: bool,
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
            quick: QUICK_ACKS,
            interactive: false,
            last_arrival: now,
            segment_bytes: start.mss.min(536),
            mss: start.mss,
            sack: start.sack,
            duplicate: None,
            ecn: start.ecn,
            echo_congestion: false,
            tuning: Tuning { since: now, taken: 0, most: start.capacity / 2 },
        }
    }

    /// Step one of RFC 9293 section 3.10.7.4. As Linux, and as the RFC notes, what begins at the right edge passes, for a sender
    /// that filled the window numbers its bare acknowledgements so.
    pub(super) fn acceptable(&self, seq: SeqNumber, sequence_len: u32) -> bool {
        (seq + sequence_len).at_or_after(self.nxt) && seq.at_or_before(self.edge.later(self.nxt))
    }

    /// A reset is answered only here (RFC 5961 section 3.2), unless it is believed.
    pub(super) fn in_window(&self, seq: SeqNumber) -> bool {
        seq.at_or_after(self.nxt) && seq.before(self.edge)
    }

    /// PAWS (RFC 7323 section 5.3): true if a timestamp is older than one already seen.
    pub(super) fn outdated(&self, now: Instant, timestamps: Timestamps) -> bool {
        self.recent.is_some_and(|(recent, at)| {
            SeqNumber(timestamps.value).before(SeqNumber(recent)) && now.since(at) < TS_RECENT_LIFE
        })
    }

    /// RFC 7323 section 4.3: only a segment that spans the last acknowledgement is to be echoed.
    pub(super) fn note_timestamp(&mut self, now: Instant, seq: SeqNumber, timestamps: Timestamps) {
        if seq.at_or_before(self.acknowledged) {
            self.recent = Some((timestamps.value, now));
        }
    }

    /// What to echo.
    pub(super) fn recent(&self) -> u32 {
        self.recent.map_or(0, |(value, _)| value)
    }

    /// RFC 9293 section 3.10.7.4, sixth step: bytes from what the application reads next up to `pointer`.
    pub(super) fn urgent_ahead(&self, pointer: SeqNumber) -> u32 {
        let read = self.nxt - self.used;
        if self.finished || pointer.at_or_before(read) { 0 } else { pointer.since(read) }
    }

    /// Bytes came that all lie before RCV.NXT: they are told as a duplicate (RFC 2883).
    pub(super) fn note_outside(&mut self, seq: SeqNumber, len: u32) {
        if len > 0 && (seq + len).at_or_before(self.nxt) {
            self.note_duplicate((seq, seq + len));
        }
    }

    /// RFC 2883: the next acknowledgement tells what came twice; what continues it is told with it.
    fn note_duplicate(&mut self, (start, end): Block) {
        self.duplicate = match self.duplicate {
            Some((first, middle)) if middle == start => Some((first, end)),
            Some(_) | None => Some((start, end)),
        };
    }

    /// There is something that SACK blocks would tell.
    pub(super) fn has_blocks(&self) -> bool {
        self.sack && (self.duplicate.is_some() || !self.gaps.is_empty())
    }

    /// Steps seven and eight: takes what lies in the window. The error says why nothing was taken; an acknowledgement is due
    /// then all the same.
    pub(super) fn take(&mut self, now: Instant, text: Text, effect: &mut Effect) -> Result<(), TcpDrop> {
        let Text { seq, len, fin } = text;
        let end = seq + len;
        if len > 0 && end.at_or_before(self.nxt) {
            self.note_duplicate((seq, end));
            self.ack = AckDue::Now;
            return Err(TcpDrop::Duplicate);
        }
        let start = seq.later(self.nxt);
        let mut stop = end.earlier(self.edge);
        let trimmed = stop != end;
        if let Some(fin_at) = self.fin_at {
            stop = stop.earlier(fin_at);
        }
        if len > 0 && stop.at_or_before(start) {
            self.ack = AckDue::Now;
            return Err(TcpDrop::WindowFull);
        }
        let gap_before = self.has_gaps();
        if len > 0 && seq != start {
            self.note_duplicate((seq, start));
        }
        if len > 0 {
            self.take_payload((seq, start, stop), effect)?;
            self.note_arrival(now, len);
        }
        if fin && !trimmed && end.at_or_after(self.nxt) && self.fin_at.is_none() {
            self.fin_at = Some(end);
        }
        if self.fin_at == Some(self.nxt) && !self.finished {
            self.finished = true;
            self.nxt += 1;
        }
        // RFC 5681 section 4.2: a gap that opens, fills or stays is told at once; SHLD-19: so is every second full segment.
        let at_once = gap_before || !self.gaps.is_empty() || fin || trimmed || seq != start;
        self.schedule_ack(now, at_once);
        Ok(())
    }

    /// Something has come ahead of a gap.
    pub(super) fn has_gaps(&self) -> bool {
        !self.gaps.is_empty() || self.fin_at.is_some()
    }

    /// Something has come twice, which is to be told.
    pub(super) fn has_duplicate(&self) -> bool {
        self.duplicate.is_some()
    }

    /// True if payload is next in order and fits.
    #[inline]
    pub(super) fn expects(&self, seq: SeqNumber, len: u32) -> bool {
        seq == self.nxt && (seq + len).at_or_before(self.edge) && !self.finished
    }

    /// When an acknowledgement is due that waits for company; [`Instant::NEVER`]: none waits.
    #[inline]
    pub(super) fn ack_at(&self) -> Instant {
        match self.ack {
            AckDue::By(at) => at,
            AckDue::None | AckDue::Now => Instant::NEVER,
        }
    }

    /// The next bytes in order have come.
    #[inline]
    pub(super) fn advance(&mut self, len: u32) {
        self.nxt += len;
        self.used += len;
    }

    fn take_payload(
        &mut self,
        (seq, start, stop): (SeqNumber, SeqNumber, SeqNumber),
        effect: &mut Effect,
    ) -> Result<(), TcpDrop> {
        let placement = Placement { from: start.since(seq), ahead: start.since(self.nxt), len: stop.since(start) };
        if start == self.nxt {
            if !self.gaps.is_empty()
                && let Some(twice) = self.gaps.overlap(start, stop)
            {
                self.note_duplicate(twice);
            }
            self.nxt = self.gaps.advance(stop);
            effect.deliver = self.nxt.since(start);
            self.used += effect.deliver;
        } else {
            // RFC 9293 SHLD-31, MAY-13.
            self.ack = AckDue::Now;
            if self.gaps.covering(start, stop).is_some() {
                self.note_duplicate((start, stop));
                return Err(TcpDrop::Duplicate);
            }
            if let Some(twice) = self.gaps.overlap(start, stop) {
                self.note_duplicate(twice);
            }
            if !self.gaps.insert(start, stop) {
                return Err(TcpDrop::GapLimit);
            }
        }
        effect.place = Some(placement);
        Ok(())
    }

    pub(super) fn note_arrival(&mut self, now: Instant, len: u32) {
        if now.since(self.last_arrival) > QUICK_AFTER {
            (self.quick, self.interactive) = (QUICK_ACKS, false);
        }
        self.last_arrival = now;
        self.segment_bytes = self.segment_bytes.max(len.min(self.mss));
    }

    /// RFC 9293 SHLD-18, SHLD-19.
    pub(super) fn schedule_ack(&mut self, now: Instant, at_once: bool) {
        let pending = self.nxt.since(self.acknowledged);
        if pending == 0 && !at_once {
            return;
        }
        if at_once || pending > self.segment_bytes {
            self.ack = AckDue::Now;
        } else if self.quick > 0 && !self.interactive {
            self.quick -= 1;
            self.ack = AckDue::Now;
        } else if self.ack == AckDue::None {
            self.ack = AckDue::By(now + ACK_DELAY);
        }
    }

    /// RFC 3168 section 6.1.3, of a segment with data; others are never marked by an honest peer, and answering marks on
    /// acknowledgements would have no end. A peer that reduced may have room for one segment only: it is answered at once.
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

    /// The window to offer, shifted for the wire. Its edge moves only by at least a segment or half the buffer. It is rounded
    /// up, at the price of less than a unit above the limit, for rounding down would take back what was offered.
    /// RFC 9293 SHLD-14, MUST-39, MAY-8.
    pub(super) fn window(&mut self) -> u16 {
        let (offered, wanted) = (self.offered(), self.wanted_edge().since(self.nxt));
        let bytes = if wanted >= offered + self.least_opening() { wanted } else { offered };
        let window = u16::try_from((bytes + ((1 << self.scale) - 1)) >> self.scale).unwrap_or(u16::MAX);
        self.edge = self.nxt + (u32::from(window) << self.scale);
        window
    }

    fn wanted_edge(&self) -> SeqNumber {
        (self.nxt + self.room().saturating_sub(self.used)).later(self.edge).later(self.nxt)
    }

    fn least_opening(&self) -> u32 {
        (self.room() / 2).min(self.mss)
    }

    /// Bytes that may be here unread.
    fn room(&self) -> u32 {
        self.capacity.min(self.window_max)
    }

    /// Offers no more than so many bytes from now on, whatever the buffer takes; what was offered already stays.
    pub(super) fn limit_window(&mut self, bytes: u32) {
        self.window_max = bytes;
    }

    /// An acknowledgement has left; with data it shows that the application answers.
    pub(super) fn acknowledged(&mut self, now: Instant, with_data: bool) {
        if with_data && now.since(self.last_arrival) < ACK_DELAY {
            self.interactive = true;
        }
        self.acknowledged = self.nxt;
        self.ack = AckDue::None;
    }

    /// Blocks to tell: a duplicate first (RFC 2883), then what lies ahead of gaps.
    #[inline]
    pub(super) fn sack_blocks(&mut self, most: usize) -> SackBlocks {
        if most == 0 || !self.has_blocks() {
            return SackBlocks::default();
        }
        let mut blocks = SackBlocks::default();
        for block in self.duplicate.take().into_iter().chain(self.gaps.told()).take(most) {
            blocks.push(block);
        }
        blocks
    }

    /// The application took bytes. A window update is due once the window can at least double.
    pub(super) fn consume(&mut self, now: Instant, bytes: u32, rtt: Option<Duration>) {
        self.used -= bytes;
        self.tune(now, bytes, rtt.unwrap_or(ACK_DELAY));
        let offered = self.offered();
        let wanted = self.wanted_edge().since(self.nxt);
        if !self.finished && wanted >= offered.saturating_mul(2).max(offered + self.least_opening()) {
            self.ack = AckDue::Now;
        }
    }

    /// Dynamic right-sizing: what the application takes in a round trip, twice, is what a growing sender needs next.
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

    /// A size that the application asked for; a window already offered stays.
    pub(super) fn set_capacity(&mut self, bytes: u32) {
        (self.capacity, self.capacity_max) = (bytes, bytes);
    }

    /// Memory of the list of gaps.
    pub(super) fn gap_bytes(&self) -> usize {
        self.gaps.bytes()
    }

    /// Runs held ahead of gaps.
    pub(super) fn gap_count(&self) -> usize {
        self.gaps.count()
    }

    /// Bytes that the peer may still send.
    pub(super) fn offered(&self) -> u32 {
        if self.edge.after(self.nxt) { self.edge.since(self.nxt) } else { 0 }
    }
}
