//! The fast path of a connection: header prediction (RFC 1122 section 4.2.2, Jacobson's "TCP in 30 instructions").
//!
//! Nearly every segment is the next one in order, on an open connection without losses, probes or urgent data. Such a connection is
//! *eligible*: it receives and sends such segments with few checks. The fast path has the same effect on a connection as
//! [`Synchronized::handle_segment`] would have. `tests/random.rs` compares the effects of both over many exchanges. Every other
//! segment takes the slow path instead.
//!
//! The fast path exists because exchanges of small messages are faster if fewer instructions run and occupy fewer cache lines
//! (decision 011).

use super::buffer::Storage;
use super::connection::{Connection, ConnectionState};
use super::opening::Base;
use super::receiver::{AckDue, Receiver};
use super::recovery::{AckOutcome, Recovery};
use super::rtt::Rtt;
use super::scoreboard::{Delivery, OnlyDelivery};
use super::sender::Sender;
use super::synchronized::{Arrival, Phase, Synchronized};
use super::undo::Frto;
use super::{Segment, SendRange};
use crate::link::frame::Payload;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{FastHeader, Flags, SeqNumber, Timestamps};
use std::fmt;

#[cfg(test)]
thread_local! {
    /// True if every segment has to take the slow path.
    pub(super) static OFF: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// Number of segments that took the fast path.
    pub(super) static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns the header of a received segment in the form of the fast path. Returns `None` if the header has anything that only the
/// slow path processes.
pub(super) fn fast_header(segment: &Arrival<'_>) -> Option<FastHeader> {
    let header = segment.header;
    let eligible = header.flags == Flags { psh: header.flags.psh, ..Flags::default() }
        && header.urgent.is_none()
        && header.options.sack.as_slice().is_empty()
        && !segment.ecn.is_marked();
    let (timestamps, len) = (header.options.timestamps, segment.len());
    let push = header.flags.psh;
    Some(FastHeader { seq: header.seq, ack: header.ack?, window: header.window, push, timestamps, len })
        .filter(|_| eligible)
}

/// A segment that the fast path sends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FastSegment {
    pub(crate) header: FastHeader,
    pub(crate) fin: bool,
    /// See [`Segment::segment_bytes`].
    pub(crate) segment_bytes: u16,
}

impl FastSegment {
    /// Returns the same segment in the form of the slow path.
    pub(super) fn segment(&self, base: &Base) -> Segment {
        let Self { header: fast, fin, segment_bytes } = *self;
        let mut header = base.header(fast.seq, Some(fast.ack), fast.window);
        (header.flags.psh, header.flags.fin, header.options.timestamps) = (fast.push, fin, fast.timestamps);
        let payload =
            if fast.len > 0 || fin { SendRange { seq: fast.seq, len: fast.len } } else { SendRange::default() };
        Segment { payload, segment_bytes, ..Segment::bare(header) }
    }
}

/// The cached result of [`Synchronized::check_eligibility`], so that its dozen checks are not repeated for every segment.
///
/// The value `true` stays valid while only the fast path and the application's reads and writes change the connection. Every
/// other method that changes the connection sets it to `false` first ([`Connection::leave_fast_path`](super::Connection)).
/// `Debug` omits the value, because tests compare connections that used the fast path with connections that did not.
#[derive(Clone, Copy, Default)]
pub(super) struct Eligible(pub(super) bool);

impl fmt::Debug for Eligible {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Eligible")
    }
}

impl<S: Storage> Connection<S> {
    /// Receives a segment like [`Synchronized::receive_fast`], and updates both buffers. A receive buffer without memory takes
    /// over the memory of an empty send buffer, or memory from `spare`. Other memory of an empty send buffer goes to `spare`. `payload`
    /// is `None` if [`Connection::place_and_add`] has written the payload.
    #[inline]
    pub(crate) fn receive_fast<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        header: &FastHeader,
        payload: Option<&P>,
        spare: &mut Vec<S>,
    ) -> Option<u32> {
        let ConnectionState::Synchronized(open) = &mut self.state else { return None };
        let acked = open.receive_fast(now, &self.base, header)?;
        open.rcv.counts.arrived(header.len);
        let size = |bytes: u32| usize::try_from(bytes).unwrap_or(usize::MAX);
        if acked > 0 {
            self.outgoing.consume(size(acked));
            if header.len > 0 {
                self.outgoing.pass_on(&mut self.incoming);
            }
            self.outgoing.give_back(spare);
        }
        match payload {
            None => self.incoming.extend_by_placed(size(header.len)),
            Some(payload) if header.len > 0 => {
                self.incoming.borrow(spare);
                self.incoming.place(0, payload, 0, size(header.len));
                self.incoming.extend(size(header.len));
            }
            Some(_) => {}
        }
        Some(acked)
    }

    /// Returns the next segment to send, if there is one. Returns `Err` if only the slow path can build the segment. The caller
    /// then calls [`Connection::poll_transmit`].
    #[inline]
    pub(crate) fn poll_fast(&mut self, now: Instant, large_bytes: usize) -> Result<Option<FastSegment>, ()> {
        let ConnectionState::Synchronized(open) = &mut self.state else { return Err(()) };
        if !open.sends_fast(now, &self.base) {
            return Err(());
        }
        Ok(open.poll_fast(now, &self.base, u32::try_from(large_bytes).unwrap_or(u32::MAX)))
    }

    /// Returns the same time as [`Connection::deadline`], or `None` if the connection is not eligible.
    #[inline]
    pub(crate) fn fast_deadline(&self) -> Option<Instant> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        open.fast_deadline()
    }

    /// Returns an upper bound for the payload of the next segment in bytes, or `None` if the slow path may have to send it.
    pub(crate) fn next_payload_max(&self, now: Instant) -> Option<usize> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        let fast = open.eligible.0 && now < open.snd.search.due;
        fast.then(|| usize::try_from(open.snd.unsent()).unwrap_or(usize::MAX))
    }
}

impl Synchronized {
    /// Returns whether the fast path may be used. This requires that nothing is lost, retransmitted, probed, urgent or ahead of a
    /// gap, and that F-RTO is not in progress. In addition, no timer may run except for those of outstanding segments and delayed
    /// acknowledgements.
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

    /// Determines from the connection's fields whether the fast path may be used. This function is not inlined, because an
    /// eligible connection does not call it.
    #[inline(never)]
    fn check_eligibility(&self, base: &Base) -> bool {
        let timeless = base.config.keepalive.is_none() && base.config.user_timeout.is_none();
        timeless
            && base.config.mtu_discovery.forbids_fragments()
            && self.fin_wait_until.is_none()
            && base.reset.is_none()
            && !base.opens_passively()
            && self.snd.is_eligible()
            && self.rcv.is_eligible()
    }

    /// Returns true if [`Synchronized::poll_fast`] can build every segment that is to be sent now: the connection is eligible,
    /// and no path MTU probe is due.
    #[inline]
    pub(super) fn sends_fast(&mut self, now: Instant, base: &Base) -> bool {
        self.is_eligible(base) && now < self.snd.search.due
    }

    /// Returns the same time as [`Synchronized::deadline`], or `None` if the connection is not eligible. This is faster, because
    /// an eligible connection has only two timers to check, not ten.
    #[inline]
    pub(super) fn fast_deadline(&self) -> Option<Instant> {
        let timer = || self.snd.timer().map_or(Instant::NEVER, |(at, _)| at);
        self.eligible.0.then(|| timer().min(self.rcv.ack_at()))
    }

    /// Returns the next segment to send. The caller has checked [`Synchronized::sends_fast`].
    // Returned through memory, the segment would be loaded in other pieces than it was stored, which stalls (decision 011).
    #[inline(always)]
    pub(super) fn poll_fast(&mut self, now: Instant, base: &Base, large: u32) -> Option<FastSegment> {
        let snd = &mut self.snd;
        let max = snd.payload_max(large);
        let chunk = snd.next_fresh(now, max, snd.cwnd.saturating_sub(snd.pipe()));
        let (seq, len, push, fin) = match chunk {
            Some(chunk) => {
                snd.rearm(now);
                (chunk.seq, chunk.len, chunk.last && chunk.len > 0, chunk.fin)
            }
            // RFC 9293 MUST-58, MUST-59: the ACK is built only when the device asks for frames, so one ACK covers all segments
            // that were received before.
            None if self.rcv.ack == AckDue::Now => (snd.acceptable_seq(), 0, false, false),
            None => return None,
        };
        snd.count_segment(len);
        let large = len > snd.segment_bytes;
        let segment_bytes = if large { u16::try_from(snd.segment_bytes).unwrap_or(u16::MAX) } else { 0 };
        let timestamps = self.timestamps.then(|| base.timestamps(now, self.rcv.recent()));
        let header = FastHeader { seq, ack: self.rcv.nxt, window: self.rcv.window(), push, timestamps, len };
        self.rcv.acknowledged(now, len > 0);
        Some(FastSegment { header, fin, segment_bytes })
    }

    /// Receives a segment if it is the expected one, and returns how many bytes leave the send buffer. Otherwise changes nothing
    /// and returns `None`, and the slow path has to receive the segment.
    #[inline]
    pub(super) fn receive_fast(&mut self, now: Instant, base: &Base, header: &FastHeader) -> Option<u32> {
        let FastHeader { seq, ack, len, .. } = *header;
        let una = self.snd.una;
        // The segment is expected if both windows are open, and it is the next in order. It has to acknowledge something new or
        // carry payload, and must not acknowledge anything that was not sent.
        let expected = header.window > 0
            && self.snd.window > 0
            && self.phase == Phase::Established
            && (ack.after(una) || (ack == una && len > 0))
            && ack.at_or_before(self.snd.nxt)
            && self.rcv.expects(seq, len)
            && !self.reader_gone
            && self.is_eligible(base);
        if !expected {
            return None;
        }
        // RFC 7323 section 3.2: once timestamps are negotiated, every segment has to carry them.
        let timestamps = match (self.timestamps, header.timestamps) {
            (false, _) => None,
            (true, None) => return None,
            (true, Some(timestamps)) if self.rcv.outdated(now, timestamps) => return None,
            (true, Some(timestamps)) => Some(timestamps),
        };
        if self.snd.take_window(seq, ack, header.window, false) && self.snd.board.is_empty() {
            self.snd.attempts = 0;
        }
        if let Some(timestamps) = timestamps {
            self.rcv.note_timestamp(now, seq, timestamps);
        }
        self.note_arrival(now);
        let echoed =
            timestamps.and_then(|Timestamps { echo, .. }| super::echo_ms(now, base.initial.timestamp_offset, echo));
        let acked = self.snd.receive_fast_ack(now, ack, echoed);
        self.eligible.0 &= self.snd.board.lost == 0;
        if len > 0 {
            if let Some(ms) = echoed {
                self.rcv.sample_rtt(len, ms);
            }
            self.rcv.receive_in_order(now, len, header.push, &self.snd.rtt);
        }
        #[cfg(test)]
        TAKEN.set(TAKEN.get() + 1);
        Some(acked)
    }
}

impl Sender {
    /// Returns whether the sending half allows the fast path: nothing is lost, retransmitted, probed or urgent, F-RTO is not in
    /// progress, and the next segment needs neither CWR nor ECT. An earlier reduction of cwnd may still prove spurious, but only
    /// by SACK blocks, which take the slow path.
    fn is_eligible(&self) -> bool {
        let due = self.tail_probe_due || self.probe_due || self.cwr_due || self.ecn;
        !due && matches!(self.recovery, Recovery::Open)
            && self.extras.is_none()
            && !self.board.has_sack_state()
            && self.dupacks == 0
            && self.frto == Frto::Off
            && self.tail_probe.is_none()
            && self.search.probe.is_none()
            && self.urgent.is_none()
            && !self.control.is_model()
    }

    /// Processes the acknowledgement number of a segment that arrived in order. This number may acknowledge nothing new. Returns
    /// how many bytes leave the send buffer.
    #[inline]
    fn receive_fast_ack(&mut self, now: Instant, ack: SeqNumber, echoed_ms: Option<u64>) -> u32 {
        if self.board.is_empty() {
            self.retries = 0;
        }
        if ack == self.una {
            self.rearm(now);
            return 0;
        }
        let (flight, before) = (self.pipe(), self.buffered());
        if !self.size_proven {
            self.prove_size(ack.since(self.una));
        }
        (self.retries, self.attempts) = (0, 0);
        (self.rto_from, self.pto_from, self.progress_at) = (now, now, now);
        if let Some(OnlyDelivery { bytes, segments, rtt }) = self.board.acknowledge_only(now, ack, self.segment_bytes) {
            self.una = ack;
            self.counts.delivered = self.counts.delivered.wrapping_add(segments);
            self.forget_old_reduction();
            self.sample_rtt(now, rtt, Some(rtt));
            self.reorder_due = None;
            self.grow(now, bytes, flight, Some(rtt));
        } else {
            self.receive_fast_ack_of_several(now, ack, echoed_ms, flight);
        }
        self.rearm(now);
        let acked = before - self.buffered();
        self.counts.bytes_acked += u64::from(acked);
        acked
    }

    /// Processes an acknowledgement number unless it acknowledges the only outstanding entry. This function is not inlined, because an
    /// exchange of single messages never calls it.
    #[inline(never)]
    fn receive_fast_ack_of_several(&mut self, now: Instant, ack: SeqNumber, echoed_ms: Option<u64>, flight: u32) {
        let sent_before = echoed_ms.map(|ms| super::after_tick(now, ms));
        let mut delivery = Delivery::new(now, self.rtt.min, sent_before, self.segment_bytes);
        self.board.acknowledge(ack, &mut delivery);
        self.una = ack;
        self.count_delivery(&delivery);
        self.forget_old_reduction();
        if let Some(rtt) = delivery.rtt_oldest.or(echoed_ms.map(|ms| Duration::from_millis(ms.max(1)))) {
            self.sample_rtt(now, rtt, delivery.rtt);
        }
        if self.board.is_empty() {
            self.reorder_due = None;
            self.grow(now, delivery.bytes, flight, delivery.rtt);
        } else {
            self.continue_flight(now, delivery, flight);
        }
    }

    /// Detects losses and updates cwnd while segments are still in flight.
    fn continue_flight(&mut self, now: Instant, delivery: Delivery, flight: u32) {
        let lost_before = self.board.lost;
        self.find_losses(now);
        let newly_lost = self.board.lost > lost_before;
        self.step(now, &AckOutcome { advanced: true, newly_lost, delivery, flight, marked: false });
    }
}

impl Receiver {
    /// Returns whether the receiving half allows the fast path: there are no gaps, and acknowledgements carry neither SACK blocks
    /// nor ECE.
    fn is_eligible(&self) -> bool {
        !self.has_gaps() && self.duplicate.is_none() && !self.echo_congestion
    }

    /// Receives payload that is next in order and fits the window. The caller has checked that there are no gaps.
    #[inline]
    fn receive_in_order(&mut self, now: Instant, len: u32, push: bool, rtt: &Rtt) {
        self.advance(len);
        self.note_arrival(now, len, push, rtt);
        self.schedule_ack(now, false, rtt);
    }
}
