//! The states from ESTABLISHED to LAST-ACK: a sending half, a receiving half, and how far the connection has closed.
//!
//! RFC 9293 section 3.10.7.4 checks a segment in the same way in all of these states. The states differ only in the transition
//! that follows when a FIN is received, or when our FIN is acknowledged.

use super::arrivals::Arrivals;
use super::fast_path::{Eligible, fast_header};
use super::opening::Base;
use super::receiver::{AckDue, Receiver, Text};
use super::send_marks::Timing;
use super::sender::{Ack, Chunk, Sender};
use super::{Effect, Failure, Placement, Segment};
use crate::drops::TcpDrop;
use crate::limits::TCP_ORPHAN_RETRIES;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Header, IpEcn, SeqNumber};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Established,
    FinWait1,
    FinWait2,
    CloseWait,
    Closing,
    LastAck,
}

impl Phase {
    /// Returns the state that follows `self` when this side closes its sending direction.
    fn closed_here(self) -> Self {
        match self {
            Self::Established => Self::FinWait1,
            Self::CloseWait => Self::LastAck,
            Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::LastAck => self,
        }
    }
}

/// The change of the connection's state that a segment or a timer causes.
#[derive(Debug)]
pub(super) enum Transition {
    Stay,
    TimeWait { acknowledge: bool },
    Closed(Option<Failure>),
}

/// A connection after the handshake. Fields that every segment uses are together in the middle, so that they share cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Synchronized {
    pub(super) rcv: Receiver,
    pub(super) phase: Phase,
    pub(super) eligible: Eligible,
    pub(super) timestamps: bool,
    /// Whether the application has closed both directions. No application then reads the data that still arrives.
    pub(super) reader_gone: bool,
    pub(super) keepalive_probes: u8,
    pub(super) last_received: Instant,
    /// When the connection ends in FIN-WAIT-2, if the application has closed both directions. Otherwise FIN-WAIT-2 has no time
    /// limit.
    pub(super) fin_wait_until: Option<Instant>,
    pub(super) snd: Sender,
}

impl Synchronized {
    pub(super) fn new(now: Instant, snd: Sender, rcv: Receiver, timestamps: bool) -> Self {
        Self {
            phase: Phase::Established,
            eligible: Eligible(false),
            snd,
            rcv,
            timestamps,
            reader_gone: false,
            last_received: now,
            keepalive_probes: 0,
            fin_wait_until: None,
        }
    }

    /// Processes a segment in the order of RFC 9293 section 3.10.7.4. The caller applies `effect` even if this returns an error.
    pub(super) fn handle_segment(
        &mut self,
        now: Instant,
        base: &mut Base,
        segment: Arrival<'_>,
        effect: &mut Effect,
    ) -> Result<Transition, TcpDrop> {
        self.rcv.counts.arrived(segment.len());
        if let Some(fast) = fast_header(&segment)
            && let Some(acked) = self.receive_fast(now, base, &fast)
        {
            let place = (fast.len > 0).then_some(Placement { from: 0, ahead: 0, len: fast.len });
            *effect = Effect { acked, place, deliver: fast.len, urgent: 0 };
            return Ok(Transition::Stay);
        }
        self.eligible = Eligible(false);
        let header = segment.header;
        self.check_timestamp(now, &segment)?;
        self.check_sequence(now, &segment)?;
        // RFC 9293 MUST-66, SHLD-2: a reset is processed even if our receive window is zero, and whether or not the reset carries
        // text.
        if header.flags.rst {
            // RFC 5961 section 3.2: a reset is valid only if its sequence number is RCV.NXT. Any other reset in the window gets a
            // challenge ACK. A genuine peer answers the challenge ACK by a valid reset.
            if header.seq == self.rcv.nxt {
                let ended = matches!(self.phase, Phase::Closing | Phase::LastAck);
                return Ok(Transition::Closed((!ended).then_some(Failure::Reset)));
            }
            if self.rcv.in_window(header.seq) {
                self.challenge(now);
            }
            return Err(TcpDrop::ResetBlind);
        }
        if header.flags.syn {
            // RFC 5961 section 4.2: every SYN gets a challenge ACK.
            self.challenge(now);
            return Err(TcpDrop::SynInWindow);
        }
        self.complete_handshake(now, base, header)?;
        self.count_ecn(segment.ecn, segment.len());
        self.take_ack(now, base, &segment, effect)?;
        match self.acknowledged(now, base, &segment) {
            Transition::Stay => {}
            next @ (Transition::TimeWait { .. } | Transition::Closed(_)) => return Ok(next),
        }
        let is_marked = segment.ecn.is_marked();
        let is_unusual = segment.payload_bytes > 0 && self.rcv.note_ecn(segment.ecn);
        if (is_marked || header.flags.cwr) && segment.payload_bytes > 0 && !self.rcv.finished {
            self.rcv.note_congestion(is_marked, header.flags.cwr);
        }
        self.take_marked_text(now, base, &segment, is_unusual, effect)
    }

    /// Drops a segment whose timestamp is missing or old (RFC 7323 section 3.2, section 5.3 R1).
    fn check_timestamp(&mut self, now: Instant, segment: &Arrival<'_>) -> Result<(), TcpDrop> {
        if !self.timestamps || segment.header.flags.rst {
            return Ok(());
        }
        let Some(timestamps) = segment.header.options.timestamps else { return Err(TcpDrop::TimestampMissing) };
        if self.rcv.outdated(now, timestamps) {
            self.answer_unacceptable(now, segment);
            return Err(TcpDrop::TimestampOld);
        }
        Ok(())
    }

    fn check_sequence(&mut self, now: Instant, segment: &Arrival<'_>) -> Result<(), TcpDrop> {
        let header = segment.header;
        if self.rcv.acceptable(header.seq, header.sequence_len(segment.payload_bytes)) {
            return Ok(());
        }
        if !header.flags.rst {
            self.answer_unacceptable(now, segment);
        }
        Err(TcpDrop::OutOfWindow)
    }

    /// Answers an unacceptable segment by an ACK. A segment with data or FIN is always answered, because the earlier ACK may have
    /// been lost. The answer to a bare ACK is rate-limited, because otherwise two peers could answer each other forever. The answer
    /// to a SYN is limited, because it is a challenge ACK (RFC 5961 section 4).
    fn answer_unacceptable(&mut self, now: Instant, segment: &Arrival<'_>) {
        let sequence_len = segment.header.sequence_len(segment.payload_bytes);
        if sequence_len > 0 && !segment.header.flags.syn {
            self.rcv.answer_repeated(segment.header.seq, sequence_len);
        } else {
            self.challenge(now);
        }
    }

    /// Sends a challenge ACK if the rate limit allows it (RFC 5961 section 7).
    fn challenge(&mut self, now: Instant) {
        if super::challenge_allowed(&mut self.snd.rare.edit().challenged_at, now) {
            self.rcv.ack = AckDue::Now;
        }
    }

    fn take_ack(
        &mut self,
        now: Instant,
        base: &Base,
        segment: &Arrival<'_>,
        effect: &mut Effect,
    ) -> Result<(), TcpDrop> {
        let header = segment.header;
        let Some(ack) = header.ack else { return Err(TcpDrop::NoAck) };
        // RFC 9293 MAY-12, RFC 5961 section 5.2: an acknowledgement is acceptable from SND.UNA - MAX.SND.WND to SND.NXT. Any
        // other may belong to data that an attacker injects.
        if ack.after(self.snd.nxt) || ack.before(self.snd.una - self.snd.window_max) {
            self.challenge(now);
            return Err(if ack.after(self.snd.nxt) { TcpDrop::AckUnsent } else { TcpDrop::AckOld });
        }
        let timestamps = header.options.timestamps.filter(|_| self.timestamps);
        let is_next = segment.payload_bytes > 0 && header.seq == self.rcv.nxt;
        let is_old = ack.before(self.snd.una);
        // As in Linux, an old acknowledgement restarts the keepalive timer only if it comes with the next data.
        if !is_old || is_next {
            self.note_arrival(now);
        }
        if is_old {
            return Ok(());
        }
        // As in Linux, an old acknowledgement does not update TS.Recent.
        if let Some(timestamps) = timestamps {
            self.rcv.note_timestamp(now, header.seq, timestamps);
        }
        let echo_ms = timestamps.and_then(|t| super::echo_ms(now, base.initial.timestamp_offset, t.echo));
        if let Some(ms) = echo_ms.filter(|_| is_next) {
            self.rcv.sample_rtt(segment.len(), ms);
        }
        let delivered = self.snd.counts.delivered;
        let (is_accurate, has_counter) = (self.snd.accurate_ecn().is_some(), self.snd.check_first_ace(header));
        effect.acked = self.snd.handle_ack(
            now,
            &Ack {
                seq: header.seq,
                ack,
                window: header.window,
                blocks: header.options.sack.as_slice(),
                bare: header.sequence_len(segment.payload_bytes) == 0,
                echo_rtt: echo_ms.map(|ms| Duration::from_millis(ms.max(1))),
                // This time is needed only after a retransmission, because only then is it unclear which transmission the ACK
                // answers.
                sent_before: echo_ms
                    .filter(|_| self.snd.rare.repeated_segments > 0)
                    .map(|ms| super::after_tick(now, ms)),
                ece: header.flags.ece && !is_accurate,
            },
        );
        if has_counter {
            let delivered = self.snd.counts.delivered.wrapping_sub(delivered);
            self.snd.take_marks(now, header, delivered);
        }
        Ok(())
    }

    /// Records that a segment of the peer has arrived, which restarts the keepalive timer.
    #[inline]
    pub(super) fn note_arrival(&mut self, now: Instant) {
        (self.last_received, self.keepalive_probes) = (now, 0);
    }

    /// If the peer has acknowledged our FIN, returns the transition that follows. Otherwise returns [`Transition::Stay`].
    fn acknowledged(&mut self, now: Instant, base: &Base, segment: &Arrival<'_>) -> Transition {
        if !self.snd.fin_acknowledged() {
            return Transition::Stay;
        }
        match self.phase {
            Phase::FinWait1 => {
                self.phase = Phase::FinWait2;
                self.bound_fin_wait(now, base);
                Transition::Stay
            }
            Phase::Closing => {
                // RFC 9293 section 3.10.7.4: an ACK is due if the peer's FIN is not acknowledged yet or arrives again. Text behind the
                // FIN is ignored.
                let header = segment.header;
                let again = header.sequence_len(segment.payload_bytes) > 0 && header.seq.before(self.rcv.nxt);
                Transition::TimeWait { acknowledge: again || self.rcv.ack != AckDue::None }
            }
            Phase::LastAck => Transition::Closed(None),
            Phase::Established | Phase::FinWait2 | Phase::CloseWait => Transition::Stay,
        }
    }

    fn bound_fin_wait(&mut self, now: Instant, base: &Base) {
        if self.phase == Phase::FinWait2 && self.reader_gone {
            self.fin_wait_until = Some(now + Duration::from_secs(base.config.fin_wait_secs.into()));
        }
    }

    /// Processes the urgent pointer, text and FIN of a segment.
    pub(super) fn take_text(
        &mut self,
        now: Instant,
        base: &mut Base,
        segment: &Arrival<'_>,
        effect: &mut Effect,
    ) -> Result<Transition, TcpDrop> {
        self.take_marked_text(now, base, segment, false, effect)
    }

    /// Like [`Self::take_text`]. `is_unusual` is the result of [`Receiver::note_ecn`].
    fn take_marked_text(
        &mut self,
        now: Instant,
        base: &mut Base,
        segment: &Arrival<'_>,
        is_unusual: bool,
        effect: &mut Effect,
    ) -> Result<Transition, TcpDrop> {
        let header = segment.header;
        // RFC 9293 MUST-30, MUST-66: the urgent pointer is processed even if our receive window is zero.
        if let Some(pointer) = header.urgent {
            effect.urgent = self.rcv.urgent_ahead(header.seq + u32::from(pointer));
        }
        let (len, push, fin) = (segment.len(), header.flags.psh, header.flags.fin);
        let text = Text { seq: header.seq, len, push, fin, is_unusual };
        if text.len == 0 && !text.fin {
            return Ok(Transition::Stay);
        }
        if self.rcv.finished {
            // A peer that has sent a FIN may only retransmit. The ACK shows a retransmitting peer that everything has arrived. RFC
            // 9293 section 3.10.7.4: anything behind the FIN is ignored.
            if text.seq.before(self.rcv.nxt) {
                self.rcv.answer_repeated(text.seq, text.sequence_len());
            }
            return Err(TcpDrop::AfterFin);
        }
        if self.reader_gone && text.len > 0 && (text.seq + text.len).after(self.rcv.nxt) {
            // RFC 9293 section 3.6.1, RFC 2525 section 2.17: a reset is sent, because no application can read this data any more.
            // RFC 9293 SHLD-3, MAY-1.
            base.reset = Some(Box::new(self.reset_header(base)));
            return Ok(Transition::Closed(Some(Failure::Aborted)));
        }
        let expected = self.rcv.nxt;
        self.rcv.take(now, text, &self.snd.rtt, effect)?;
        if let Some(place) = effect.place
            && let Some(arrivals) = self.snd.extras.as_mut().and_then(|extras| extras.arrivals.as_mut())
        {
            arrivals.note(expected + place.ahead + place.len, now);
        }
        if !self.rcv.finished {
            return Ok(Transition::Stay);
        }
        match self.phase {
            Phase::Established => self.phase = Phase::CloseWait,
            Phase::FinWait1 => self.phase = Phase::Closing,
            Phase::FinWait2 => return Ok(Transition::TimeWait { acknowledge: true }),
            Phase::CloseWait | Phase::Closing | Phase::LastAck => {}
        }
        Ok(Transition::Stay)
    }

    /// Returns the next segment to send. Its payload is at most `large` bytes, or one full segment if that is more.
    pub(super) fn poll_transmit(&mut self, now: Instant, base: &Base, large: u32) -> Option<Segment> {
        if self.sends_fast(now, base) {
            return self.poll_fast(now, base, large).map(|fast| fast.segment(base));
        }
        self.eligible = Eligible(false);
        // A link that cuts a large segment into parts does not adjust the urgent pointers of the parts. Urgent data is therefore
        // sent in ordinary segments.
        let large = if self.snd.urgent.is_some() { 0 } else { large };
        if let Some(chunk) = self.snd.next_chunk(now, large) {
            self.snd.rearm(now);
            return Some(self.data_segment(now, base, chunk));
        }
        // RFC 9293 MUST-58, MUST-59: the ACK is built only when the device asks for frames, so one ACK covers all segments that
        // were received before.
        if self.rcv.ack == AckDue::Now {
            let blocks = self.rcv.sack_blocks(self.sack_blocks_max());
            let mut header = self.header(now, base, self.snd.acceptable_seq());
            header.options.sack = blocks;
            self.snd.report_ecn(&mut header, true);
            self.snd.count_segment(0);
            self.rcv.acknowledged(now, false);
            return Some(Segment::bare(header));
        }
        if std::mem::take(&mut self.snd.probe_due) {
            // As in Linux, the probe has the sequence number SND.UNA - 1. The peer has received this number before, so the peer
            // answers by an ACK, which contains its window.
            // RFC 9293 SHLD-12.
            self.snd.count_segment(0);
            let blocks = self.rcv.sack_blocks(self.sack_blocks_max());
            let mut header = self.header(now, base, self.snd.una - 1);
            header.options.sack = blocks;
            self.snd.report_ecn(&mut header, true);
            return Some(Segment::bare(header));
        }
        None
    }

    /// Returns the number of SACK blocks for which a segment without data has room.
    fn sack_blocks_max(&self) -> usize {
        if self.timestamps { 3 } else { 4 }
    }

    /// Returns false if there is nothing to transmit, and true if there may be a segment.
    #[inline]
    pub(super) fn wants_transmit(&self) -> bool {
        let snd = &self.snd;
        self.rcv.ack == AckDue::Now
            || snd.unsent() > 0
            || snd.board.lost > 0
            || snd.fin_unsent()
            || snd.probe_due
            || snd.tail_probe_due
    }

    fn data_segment(&mut self, now: Instant, base: &Base, chunk: Chunk) -> Segment {
        let mut header = self.header(now, base, chunk.seq);
        header.flags.fin = chunk.fin;
        // RFC 9293 MUST-61, SHLD-27: only the last segment of the written data carries PSH.
        header.flags.psh = chunk.last && chunk.len > 0;
        let fresh = !chunk.repeated && chunk.len > 0;
        header.flags.cwr = fresh && std::mem::take(&mut self.snd.cwr_due);
        // If the segment has no room for SACK blocks, the ACK stays due, so that a separate segment reports the blocks.
        let room = self.snd.segment_bytes.saturating_sub(chunk.len);
        let blocks = usize::try_from(room.saturating_sub(4) / 8).unwrap_or(0).min(3);
        let has_reported = blocks > 0 || !self.rcv.has_blocks();
        header.options.sack = self.rcv.sack_blocks(blocks);
        self.snd.report_ecn(&mut header, false);
        let ack = self.rcv.ack;
        self.rcv.acknowledged(now, chunk.len > 0);
        if !has_reported {
            self.rcv.ack = ack;
        }
        let large = chunk.len > self.snd.segment_bytes && !chunk.probe;
        self.snd.count_segment(if chunk.probe { 1 } else { chunk.len });
        Segment {
            header,
            payload: super::SendRange { seq: chunk.seq, len: chunk.len },
            segment_bytes: if large { u16::try_from(self.snd.segment_bytes).unwrap_or(u16::MAX) } else { 0 },
            ecn_capable: self.snd.ecn && fresh,
            path_probe: chunk.probe,
        }
    }

    fn header(&mut self, now: Instant, base: &Base, seq: SeqNumber) -> Header {
        let window = self.rcv.window();
        // RFC 9293 MUST-65: only a SYN carries the MSS option, so this header has none.
        let mut header = base.header(seq, Some(self.rcv.nxt), window);
        header.flags.ece = self.rcv.echo_congestion;
        if let Some(up) = self.snd.urgent.filter(|up| up.after(seq)) {
            header.urgent = Some(u16::try_from(up.since(seq)).unwrap_or(u16::MAX));
        }
        header.options.timestamps = self.timestamps.then(|| base.timestamps(now, self.rcv.recent()));
        header
    }

    /// Returns the header of the reset with which this side ends the connection.
    pub(super) fn reset_header(&self, base: &Base) -> Header {
        let recent = self.timestamps.then(|| self.rcv.recent());
        base.reset_header(self.snd.acceptable_seq(), Some(self.rcv.nxt), recent)
    }

    /// Returns when the first timer is due, or [`Instant::NEVER`] if none runs.
    #[inline]
    pub(super) fn deadline(&self, base: &Base) -> Instant {
        self.fast_deadline().or_else(|| self.poll_timeout(base)).unwrap_or(Instant::NEVER)
    }

    /// Like [`Self::deadline`], but without the fast path, and with `None` if no timer runs.
    pub(super) fn poll_timeout(&self, base: &Base) -> Option<Instant> {
        if let handshake @ Some(_) = self.handshake_timeout(base) {
            return handshake;
        }
        let ack = Some(self.rcv.ack_at()).filter(|at| *at != Instant::NEVER);
        let timer = self.snd.timer().map(|(at, _)| at);
        let departure = self.snd.departure();
        let all = [timer, ack, departure, self.keepalive_at(base), self.user_timeout_at(base), self.fin_wait_until];
        all.into_iter().flatten().min()
    }

    fn outstanding(&self) -> bool {
        !self.snd.board.is_empty() || self.snd.unsent() > 0 || self.snd.fin_unsent()
    }

    /// Returns when the next keepalive probe is due. RFC 9293 MUST-26: keepalive runs only while nothing is unsent or
    /// outstanding. As in Linux, it does not run in a FIN-WAIT-2 with a time limit.
    fn keepalive_at(&self, base: &Base) -> Option<Instant> {
        let idle = !self.outstanding() && self.fin_wait_until.is_none();
        let keepalive = base.config.keepalive.filter(|_| idle)?;
        // The interval starts when the last probe was sent. So the peer has the full interval to answer, even if that probe was
        // sent late.
        Some(match self.keepalive_probes {
            // As in Linux, the idle time does not begin before keepalive was switched on.
            0 => self.last_received.max(self.snd.rare.probed_at) + keepalive.idle,
            _ => self.snd.rare.probed_at + keepalive.interval,
        })
    }

    fn user_timeout_at(&self, base: &Base) -> Option<Instant> {
        Some(self.snd.progress_at + base.config.user_timeout.filter(|_| self.outstanding())?)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, base: &mut Base) -> Transition {
        if let Some(next) = self.handle_handshake_timeout(now, base) {
            return next;
        }
        self.rcv.handle_timeout(now, &self.snd.rtt);
        self.snd.handle_departure(now);
        let due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if due(self.fin_wait_until) {
            return Transition::Closed(None);
        }
        let orphaned = self.reader_gone && self.snd.attempts >= TCP_ORPHAN_RETRIES;
        // RFC 9293 MUST-20, MUST-21: R2 decides when the connection gives up. A user timeout replaces the retry limit as R2, even
        // if the user timeout is longer.
        let retries_max = base.config.user_timeout.is_none().then_some(base.config.retries_max);
        if due(self.user_timeout_at(base)) || !self.snd.handle_timeout(now, retries_max) || orphaned {
            base.reset = Some(Box::new(self.reset_header(base)));
            return Transition::Closed(Some(Failure::TimedOut));
        }
        if due(self.keepalive_at(base)) {
            let probes = base.config.keepalive.map_or(0, |keepalive| keepalive.probes);
            // RFC 9293 MUST-29: the connection ends only after the configured number of probes went unanswered.
            if self.keepalive_probes >= probes {
                base.reset = Some(Box::new(self.reset_header(base)));
                return Transition::Closed(Some(Failure::TimedOut));
            }
            self.keepalive_probes += 1;
            self.snd.rare.edit().probed_at = now;
            self.snd.probe_due = true;
        }
        Transition::Stay
    }

    pub(super) fn wrote(&mut self, now: Instant, bytes: u32) {
        self.snd.end += bytes;
        self.snd.rearm(now);
    }

    /// Records the end of a write, if the application has marked it or wants to know its times.
    #[cold]
    pub(super) fn note_write(&mut self, ends_record: bool) {
        self.eligible = Eligible(false);
        self.snd.note_write(ends_record);
    }

    /// Begins to report times when the connection opens, if the application has asked for them. What was written before counts as one
    /// write.
    pub(super) fn begin_timing(&mut self, now: Instant, base: &Base) {
        let timing = base.config.timing;
        if timing == Timing::default() {
            return;
        }
        let first = base.initial.seq + 1;
        self.set_timing(timing, first);
        if timing.of_writes() && self.snd.end.after(first) {
            self.snd.note_write(false);
            self.snd.pass_marks(now);
            self.snd.acknowledge_marks(now);
        }
    }

    /// Applies the application's choice of the times that are reported.
    pub(super) fn set_timing(&mut self, timing: Timing, first_written: SeqNumber) {
        self.eligible = Eligible(false);
        let expected = self.rcv.nxt;
        let extras = self.snd.extras_mut();
        extras.marks.set_timing(timing, first_written);
        if !timing.received {
            extras.arrivals = None;
        } else if extras.arrivals.is_none() {
            extras.arrivals = Some(Arrivals::new(expected));
        }
        self.snd.drop_empty_extras();
    }

    /// Marks the last written byte as the end of urgent data.
    /// RFC 9293 MUST-30.
    pub(super) fn wrote_urgent(&mut self, now: Instant) {
        self.snd.urgent = Some(self.snd.end);
        if self.snd.usable_window() == 0 {
            // A zero window of the peer stops the data but not the urgent pointer, so an ACK carries the urgent pointer now.
            self.rcv.ack = AckDue::Now;
        }
        self.snd.rearm(now);
    }

    /// Closes the sending direction. The application writes no more, so a FIN follows the last byte that it wrote.
    pub(super) fn shutdown(&mut self, now: Instant) {
        if !self.snd.fin {
            self.snd.fin = true;
            self.phase = self.phase.closed_here();
            self.snd.rearm(now);
        }
    }

    /// Closes both directions. The application neither writes nor reads any more.
    pub(super) fn close(&mut self, now: Instant, base: &Base) {
        self.reader_gone = true;
        self.shutdown(now);
        self.bound_fin_wait(now, base);
    }
}

#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) header: &'a Header,
    pub(super) payload_bytes: usize,
    pub(super) ecn: IpEcn,
}

impl Arrival<'_> {
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.payload_bytes).unwrap_or(u32::MAX)
    }
}
