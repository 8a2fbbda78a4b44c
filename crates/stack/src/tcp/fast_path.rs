//! Header prediction: the segment that nearly all are, the next in order on an open connection where nothing is amiss, is taken
//! without the questions that only others need to be asked.
//!
//! It is a short cut, not another set of rules: what it does for such a segment is what [`Synchronized::handle_segment`]
//! does, and a test has both do the same over many exchanges. Whatever it does not expect it leaves alone.

use super::header::{Flags, Timestamps};
use super::opening::Base;
use super::receiver::{AckDue, Receiver};
use super::recovery::Recovery;
use super::scoreboard::Delivery;
use super::sender::Sender;
use super::synchronized::{Arrival, Phase, Synchronized};
use super::undo::Frto;
use super::{Segment, SendRange, SeqNumber};
use crate::time::{Duration, Instant};
use std::fmt;

#[cfg(test)]
thread_local! {
    /// Every segment goes the long way.
    pub(super) static OFF: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// Segments that went the short way.
    pub(super) static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// A segment that says nothing but what it acknowledges, and by timestamps when, beside the bytes that it carries.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastHeader {
    pub(crate) seq: SeqNumber,
    pub(crate) ack: SeqNumber,
    pub(crate) window: u16,
    pub(crate) timestamps: Option<Timestamps>,
    /// Bytes of payload.
    pub(crate) len: u32,
}

impl FastHeader {
    pub(super) fn of(segment: &Arrival<'_>) -> Option<Self> {
        let header = segment.header;
        let eligible = header.flags == Flags { psh: header.flags.psh, ..Flags::default() }
            && header.urgent.is_none()
            && header.options.sack.as_slice().is_empty()
            && !segment.congestion_experienced;
        let (timestamps, len) = (header.options.timestamps, segment.len());
        Some(Self { seq: header.seq, ack: header.ack?, window: header.window, timestamps, len }).filter(|_| eligible)
    }
}

/// A header segment to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastSegment {
    pub(crate) header: FastHeader,
    pub(crate) push: bool,
    pub(crate) fin: bool,
    /// See [`Segment::segment_bytes`].
    pub(crate) segment_bytes: u16,
}

impl FastSegment {
    /// As any segment, of a connection between these ports.
    pub(super) fn segment(&self, base: &Base) -> Segment {
        let Self { header: fast, push, fin, segment_bytes } = *self;
        let mut header = base.header(fast.seq, Some(fast.ack), fast.window);
        (header.flags.psh, header.flags.fin, header.options.timestamps) = (push, fin, fast.timestamps);
        let payload =
            if fast.len > 0 || fin { SendRange { seq: fast.seq, len: fast.len } } else { SendRange::default() };
        Segment { payload, segment_bytes, ..Segment::bare(header) }
    }
}

/// What [`Synchronized::is_eligible`] has found, so that segments need not ask all of it again. It is no part of what a connection is.
#[derive(Clone, Copy, Default)]
pub(super) struct Eligible(pub(super) bool);

impl fmt::Debug for Eligible {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Eligible")
    }
}

impl Synchronized {
    /// Nothing is lost, repeated, probed, urgent, ahead of a gap or in doubt, and no deadline is set but by segments under way.
    /// Whatever else than header segments and the application's reading and writing changes the connection sets
    /// `eligible` back.
    #[inline]
    fn is_eligible(&mut self, base: &Base) -> bool {
        #[cfg(test)]
        if OFF.get() {
            return false;
        }
        debug_assert!(!self.eligible.0 || self.check_eligibility(base), "{self:?}");
        if !self.eligible.0 {
            self.eligible = Eligible(self.check_eligibility(base));
        }
        self.eligible.0
    }

    #[inline(never)]
    fn check_eligibility(&self, base: &Base) -> bool {
        let timeless = base.config.keepalive.is_none() && base.config.user_timeout.is_none();
        timeless
            && self.fin_wait_until.is_none()
            && base.reset.is_none()
            && self.snd.is_eligible()
            && self.rcv.is_eligible()
    }

    /// Whatever is to be sent is header.
    #[inline]
    pub(super) fn sends_fast(&mut self, now: Instant, base: &Base) -> bool {
        self.is_eligible(base) && now < self.snd.search.due
    }

    /// A bound of the payload of the next segment, if it will be header.
    pub(super) fn next_fast_payload_max(&self, now: Instant) -> Option<usize> {
        let header = self.eligible.0 && now < self.snd.search.due;
        header.then(|| usize::try_from(self.snd.unsent()).unwrap_or(usize::MAX))
    }

    /// When something is due, as [`Synchronized::deadline`] tells.
    #[inline]
    pub(super) fn fast_deadline(&self) -> Option<Instant> {
        self.eligible.0.then(|| self.snd.timer_at().min(self.rcv.ack_at()))
    }

    /// The next segment, where all are header.
    #[inline]
    pub(super) fn poll_fast(&mut self, now: Instant, base: &Base, large: u32) -> Option<FastSegment> {
        let snd = &mut self.snd;
        let max = snd.payload_max(large);
        let chunk = snd.next_fresh(now, max, snd.cwnd.saturating_sub(snd.pipe()));
        let (seq, len, push, fin) = match chunk {
            Some(chunk) => {
                snd.rearm(now);
                (chunk.seq, chunk.len, chunk.last && chunk.len > 0, chunk.fin)
            }
            // RFC 9293 MUST-58, MUST-59: one for all that was taken before the device asked for frames.
            None if self.rcv.ack == AckDue::Now => (snd.acceptable_seq(), 0, false, false),
            None => return None,
        };
        let large = len > snd.segment_bytes;
        let segment_bytes = if large { u16::try_from(snd.segment_bytes).unwrap_or(u16::MAX) } else { 0 };
        let timestamps = self.timestamps.then(|| base.timestamps(now, self.rcv.recent()));
        let header = FastHeader { seq, ack: self.rcv.nxt, window: self.rcv.window(), timestamps, len };
        self.rcv.acknowledged(now, chunk.is_some());
        Some(FastSegment { header, push, fin, segment_bytes })
    }

    /// The next segment of bytes that are written only as far as they go with it: none are waiting. It may be a bare
    /// acknowledgement.
    pub(super) fn poll_zero_copy(&mut self, now: Instant, base: &Base, bytes: u32, large: u32) -> Option<FastSegment> {
        self.snd.end += bytes;
        let segment = self.poll_fast(now, base, large);
        let gone = segment.as_ref().map_or(0, |segment| segment.header.len);
        self.snd.end = self.snd.end - (bytes - gone);
        self.snd.rearm(now);
        segment
    }

    /// Takes a segment if it is the expected one, and says how many bytes leave the send buffer; else nothing has happened.
    #[inline]
    pub(super) fn receive_fast(&mut self, now: Instant, base: &Base, header: &FastHeader) -> Option<u32> {
        let FastHeader { seq, ack, len, .. } = *header;
        let una = self.snd.una;
        let expected = header.window > 0
            && self.snd.window > 0
            && self.phase == Phase::Established
            && (ack.after(una) || (ack == una && len > 0))
            && ack.at_or_before(self.snd.nxt)
            && self.rcv.expects(seq, len)
            && !self.has_no_reader()
            && self.is_eligible(base);
        if !expected {
            return None;
        }
        let timestamps = match (self.timestamps, header.timestamps) {
            (false, _) => None,
            (true, None) => return None,
            (true, Some(timestamps)) if self.rcv.outdated(now, timestamps) => return None,
            (true, Some(timestamps)) => Some(timestamps),
        };
        if self.snd.take_window(seq, ack, header.window) && self.snd.board.is_empty() {
            self.snd.backoff = 0;
        }
        if let Some(timestamps) = timestamps {
            self.rcv.note_timestamp(now, seq, timestamps);
        }
        self.note_arrival(now);
        let echoed =
            timestamps.and_then(|Timestamps { echo, .. }| super::echo_ms(now, base.initial.timestamp_offset, echo));
        let acked = self.snd.receive_fast_ack(now, ack, echoed);
        self.eligible.0 &= self.snd.board.lost() == 0;
        if len > 0 {
            self.rcv.receive_in_order(now, len);
        }
        #[cfg(test)]
        TAKEN.set(TAKEN.get() + 1);
        Some(acked)
    }
}

impl Sender {
    /// Nothing is lost, repeated, probed or in doubt, and nothing is to be told. What proves a reduction wrong that is over comes with
    /// blocks, in no header segment.
    fn is_eligible(&self) -> bool {
        let due = self.tail_probe_due || self.probe_due || self.cwr_due || self.ecn;
        !due && matches!(self.recovery, Recovery::Open)
            && !self.board.has_sack_state()
            && self.dupacks == 0
            && self.frto == Frto::Off
            && self.tail_probe.is_none()
            && self.search.probe.is_none()
            && self.urgent.is_none()
    }

    /// Takes what an acknowledgement in order acknowledges, which may be nothing. Says how many bytes leave the buffer.
    #[inline]
    fn receive_fast_ack(&mut self, now: Instant, ack: SeqNumber, echoed_ms: Option<u64>) -> u32 {
        self.pto_from = now;
        if self.board.is_empty() {
            self.retries = 0;
        }
        if ack == self.una {
            self.rearm(now);
            return 0;
        }
        let (flight, before) = (self.pipe(), self.buffered());
        let sent_before = echoed_ms.map(|ms| super::after_tick(now, ms));
        let mut delivery = Delivery::new(now, self.rtt.min(), sent_before);
        if !self.size_proven {
            self.prove_size(ack.since(self.una));
        }
        self.board.acknowledge(ack, &mut delivery);
        self.una = ack;
        self.forget_old_reduction();
        (self.backoff, self.retries) = (0, 0);
        (self.rto_from, self.progress_at) = (now, now);
        if let Some(rtt) = delivery.rtt.or(echoed_ms.map(|ms| Duration::from_millis(ms.max(1)))) {
            self.rtt.sample(now, rtt);
        }
        if self.board.is_empty() {
            self.reorder_due = None;
            self.grow(now, delivery.bytes, flight, delivery.rtt);
        } else {
            self.continue_flight(now, delivery, flight);
        }
        self.rearm(now);
        before - self.buffered()
    }

    /// More is under way.
    #[inline(never)]
    fn continue_flight(&mut self, now: Instant, delivery: Delivery, flight: u32) {
        self.find_losses(now);
        self.step(now, true, delivery, flight);
    }
}

impl Receiver {
    /// There are no gaps, and nothing is to be told but what is acknowledged.
    fn is_eligible(&self) -> bool {
        !self.has_gaps() && !self.has_duplicate() && !self.echo_congestion
    }

    /// Takes payload that is next in order and fits, where there are no gaps.
    #[inline]
    fn receive_in_order(&mut self, now: Instant, len: u32) {
        self.advance(len);
        self.note_arrival(now, len);
        self.schedule_ack(now, false);
    }
}
