//! The states ESTABLISHED to LAST-ACK: a sending half, a receiving half, and the progress of closing.
//!
//! RFC 9293 section 3.10.7.4 checks a segment in the same way in all of these states. They differ in where an
//! acknowledged FIN and a received FIN lead.

use super::fast_path::{Eligible, fast_header};
use super::opening::{Base, segment_bytes};
use super::receiver::{AckDue, Receiver, Text};
use super::sender::{Ack, Chunk, Sender};
use super::time_wait::TimeWait;
use super::{Belief, Effect, Failure, Placement, Segment};
use crate::drops::TcpDrop;
use crate::limits::{TCP_ORPHAN_RETRIES, TCP_RETRIES};
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Header, SeqNumber};

/// The synchronised state of a connection.
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
    /// The state after this side has closed its direction.
    fn closed_here(self) -> Self {
        match self {
            Self::Established => Self::FinWait1,
            Self::CloseWait => Self::LastAck,
            Self::FinWait1 | Self::FinWait2 | Self::Closing | Self::LastAck => self,
        }
    }
}

/// What a segment or a timer does to the connection's state.
#[derive(Debug)]
pub(super) enum Transition {
    Stay,
    TimeWait { acknowledge: bool },
    Closed(Option<Failure>),
}

/// A connection after the handshake. Fields that every segment uses are together in the middle, to share cache lines.
#[derive(Debug)]
#[repr(C)]
pub(super) struct Synchronized {
    challenged_at: Option<Instant>,
    /// When the last keepalive probe was sent.
    probed_at: Instant,
    pub(super) rcv: Receiver,
    pub(super) phase: Phase,
    pub(super) eligible: Eligible,
    pub(super) timestamps: bool,
    /// The application has closed, so nobody reads what arrives.
    reader_gone: bool,
    keepalive_probes: u8,
    last_received: Instant,
    /// When FIN-WAIT-2 ends, if the application has closed.
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
            challenged_at: None,
            last_received: now,
            keepalive_probes: 0,
            probed_at: now,
            fin_wait_until: None,
        }
    }

    /// Processes a segment in the order of RFC 9293 section 3.10.7.4. The caller applies `effect` after an error too.
    pub(super) fn handle_segment(
        &mut self,
        now: Instant,
        base: &mut Base,
        segment: Arrival<'_>,
        effect: &mut Effect,
    ) -> Result<Transition, TcpDrop> {
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
        // RFC 9293 MUST-66, SHLD-2: a reset counts at a zero window too, with or without text.
        if header.flags.rst {
            // RFC 5961 section 3.2: only RCV.NXT counts. Else a challenge ACK makes a genuine peer repeat the reset.
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
            // RFC 5961 section 4.2.
            self.challenge(now);
            return Err(TcpDrop::SynInWindow);
        }
        self.take_ack(now, base, &segment, effect)?;
        match self.acknowledged(now, base, &segment) {
            Transition::Stay => {}
            next @ (Transition::TimeWait { .. } | Transition::Closed(_)) => return Ok(next),
        }
        if (segment.congestion_experienced || header.flags.cwr) && segment.payload_bytes > 0 {
            self.rcv.note_congestion(segment.congestion_experienced, header.flags.cwr);
        }
        self.take_text(now, base, &segment, effect)
    }

    /// RFC 7323 section 5.3 (R1), section 3.2.
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
            self.rcv.note_outside(header.seq, segment.len());
            self.answer_unacceptable(now, segment);
        }
        Err(TcpDrop::OutOfWindow)
    }

    /// A segment with data or FIN is always answered, because the earlier ACK may be lost. The answer to a bare ACK is
    /// rate-limited, or two peers could answer each other forever.
    fn answer_unacceptable(&mut self, now: Instant, segment: &Arrival<'_>) {
        if segment.header.sequence_len(segment.payload_bytes) > 0 {
            self.rcv.ack = AckDue::Now;
        } else {
            self.challenge(now);
        }
    }

    /// RFC 5961 section 7.
    fn challenge(&mut self, now: Instant) {
        if super::challenge_allowed(&mut self.challenged_at, now) {
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
        // RFC 9293 MAY-12.
        // RFC 5961 section 5.2.
        if ack.after(self.snd.nxt) || ack.before(self.snd.una - self.snd.window_max) {
            self.challenge(now);
            return Err(if ack.after(self.snd.nxt) { TcpDrop::AckUnsent } else { TcpDrop::AckOld });
        }
        let timestamps = header.options.timestamps.filter(|_| self.timestamps);
        if let Some(timestamps) = timestamps {
            self.rcv.note_timestamp(now, header.seq, timestamps);
        }
        self.note_arrival(now);
        if ack.before(self.snd.una) {
            return Ok(());
        }
        let echo_ms = timestamps.and_then(|t| super::echo_ms(now, base.initial.timestamp_offset, t.echo));
        let acked = self.snd.handle_ack(
            now,
            &Ack {
                seq: header.seq,
                ack,
                window: header.window,
                blocks: header.options.sack.as_slice(),
                bare: header.sequence_len(segment.payload_bytes) == 0,
                echo_rtt: echo_ms.map(|ms| Duration::from_millis(ms.max(1))),
                // Only after a retransmission is it unclear which transmission the ACK answers.
                sent_before: echo_ms.filter(|_| self.snd.repeated_segments > 0).map(|ms| super::after_tick(now, ms)),
                ece: header.flags.ece,
            },
        );
        effect.acked = acked.bytes;
        Ok(())
    }

    /// Notes that the peer is alive, which restarts the keepalive.
    #[inline]
    pub(super) fn note_arrival(&mut self, now: Instant) {
        (self.last_received, self.keepalive_probes) = (now, 0);
    }

    /// The application has closed, so nobody reads what arrives.
    pub(super) fn has_no_reader(&self) -> bool {
        self.reader_gone
    }

    /// The transition once the peer has acknowledged our FIN.
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
                // RFC 9293 section 3.10.7.4: an ACK is due if the peer's FIN is not acknowledged yet or comes again.
                let again = segment.header.sequence_len(segment.payload_bytes) > 0;
                Transition::TimeWait { acknowledge: again || self.rcv.ack != AckDue::None }
            }
            Phase::LastAck => Transition::Closed(None),
            Phase::Established | Phase::FinWait2 | Phase::CloseWait => Transition::Stay,
        }
    }

    fn bound_fin_wait(&mut self, now: Instant, base: &Base) {
        if self.phase == Phase::FinWait2 && self.reader_gone {
            self.fin_wait_until = Some(now + base.config.time_wait);
        }
    }

    /// Processes urgent pointer, text and FIN.
    pub(super) fn take_text(
        &mut self,
        now: Instant,
        base: &mut Base,
        segment: &Arrival<'_>,
        effect: &mut Effect,
    ) -> Result<Transition, TcpDrop> {
        let header = segment.header;
        // RFC 9293 MUST-30, MUST-66: the urgent pointer counts at a zero window too.
        if let Some(pointer) = header.urgent {
            effect.urgent = self.rcv.urgent_ahead(header.seq + u32::from(pointer));
        }
        let text = Text { seq: header.seq, len: segment.len(), fin: header.flags.fin };
        if text.len == 0 && !text.fin {
            return Ok(Transition::Stay);
        }
        if self.rcv.finished {
            // After the peer's FIN, anything but a retransmission violates the protocol.
            self.rcv.ack = AckDue::Now;
            return Err(TcpDrop::AfterFin);
        }
        if self.reader_gone && text.len > 0 && (text.seq + text.len).after(self.rcv.nxt) {
            // RFC 9293 SHLD-3, MAY-1.
            // RFC 9293 section 3.6.1, RFC 2525 section 2.17: a reset, because nobody can read this data any more.
            base.reset = Some(Box::new(self.reset_header(base)));
            return Ok(Transition::Closed(Some(Failure::Aborted)));
        }
        self.rcv.take(now, text, effect)?;
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

    /// The next segment, with up to `large` bytes of payload or one MSS.
    pub(super) fn poll_transmit(&mut self, now: Instant, base: &Base, large: u32) -> Option<Segment> {
        if self.sends_fast(now, base) {
            return self.poll_fast(now, base, large).map(|fast| fast.segment(base));
        }
        self.eligible = Eligible(false);
        // A link that cuts a large segment does not adjust its urgent pointer.
        let large = if self.snd.urgent.is_some() { 0 } else { large };
        if let Some(chunk) = self.snd.next_chunk(now, large) {
            self.snd.rearm(now);
            return Some(self.data_segment(now, base, chunk));
        }
        // RFC 9293 MUST-58, MUST-59: one ACK for all that was received before the device asked for frames.
        if self.rcv.ack == AckDue::Now {
            let blocks = self.rcv.sack_blocks(if self.timestamps { 3 } else { 4 });
            let mut header = self.header(now, base, self.snd.acceptable_seq());
            header.options.sack = blocks;
            self.rcv.acknowledged(now, false);
            return Some(Segment::bare(header));
        }
        if std::mem::take(&mut self.snd.probe_due) {
            // RFC 9293 SHLD-12.
            // As Linux: the peer has received SND.UNA - 1, so it answers with an ACK and its window.
            return Some(Segment::bare(self.header(now, base, self.snd.una - 1)));
        }
        None
    }

    /// False if there is nothing to transmit; true if there may be something.
    #[inline]
    pub(super) fn wants_transmit(&self) -> bool {
        let snd = &self.snd;
        self.rcv.ack == AckDue::Now
            || snd.unsent() > 0
            || snd.board.lost() > 0
            || snd.fin_unsent()
            || snd.probe_due
            || snd.tail_probe_due
    }

    fn data_segment(&mut self, now: Instant, base: &Base, chunk: Chunk) -> Segment {
        let mut header = self.header(now, base, chunk.seq);
        header.flags.fin = chunk.fin;
        // RFC 9293 MUST-61, SHLD-27.
        header.flags.psh = chunk.last && chunk.len > 0;
        let fresh = !chunk.repeated && chunk.len > 0;
        header.flags.cwr = fresh && std::mem::take(&mut self.snd.cwr_due);
        // If the segment has no room for SACK blocks, a separate ACK reports them.
        let room = self.snd.segment_bytes.saturating_sub(chunk.len);
        let blocks = usize::try_from(room.saturating_sub(4) / 8).unwrap_or(0).min(3);
        let told = blocks > 0 || !self.rcv.has_blocks();
        header.options.sack = self.rcv.sack_blocks(blocks);
        let ack = self.rcv.ack;
        self.rcv.acknowledged(now, true);
        if !told {
            self.rcv.ack = ack;
        }
        let large = chunk.len > self.snd.segment_bytes && !chunk.probe;
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
        // RFC 9293 MUST-65: only a SYN carries the MSS option.
        let mut header = base.header(seq, Some(self.rcv.nxt), window);
        header.flags.ece = self.rcv.echo_congestion;
        if let Some(up) = self.snd.urgent.filter(|up| up.after(seq)) {
            header.urgent = Some(u16::try_from(up.since(seq)).unwrap_or(u16::MAX));
        }
        header.options.timestamps = self.timestamps.then(|| base.timestamps(now, self.rcv.recent()));
        header
    }

    /// The reset that ends the connection from this side.
    pub(super) fn reset_header(&self, base: &Base) -> Header {
        let mut header = base.header(self.snd.acceptable_seq(), Some(self.rcv.nxt), 0);
        header.flags.rst = true;
        header
    }

    /// When the first timer is due; [`Instant::NEVER`] if none runs.
    #[inline]
    pub(super) fn deadline(&self, base: &Base) -> Instant {
        self.fast_deadline().or_else(|| self.poll_timeout(base)).unwrap_or(Instant::NEVER)
    }

    /// Like [`Self::deadline`], without the fast path; `None` if no timer runs.
    pub(super) fn poll_timeout(&self, base: &Base) -> Option<Instant> {
        let ack = Some(self.rcv.ack_at()).filter(|at| *at != Instant::NEVER);
        let first = Instant::first(self.snd.timer().map(|(at, _)| at), ack);
        let first = Instant::first(first, self.keepalive_at(base));
        let first = Instant::first(first, self.user_timeout_at(base));
        Instant::first(first, self.fin_wait_until)
    }

    fn outstanding(&self) -> bool {
        !self.snd.board.is_empty() || self.snd.unsent() > 0 || self.snd.fin_unsent()
    }

    /// RFC 9293 MUST-26: keepalive runs only while nothing is unsent or outstanding.
    fn keepalive_at(&self, base: &Base) -> Option<Instant> {
        let keepalive = base.config.keepalive.filter(|_| !self.outstanding())?;
        // Counted from the last probe: after a late one, the peer still has the whole interval to answer.
        Some(match self.keepalive_probes {
            0 => self.last_received + keepalive.idle,
            _ => self.probed_at + keepalive.interval,
        })
    }

    fn user_timeout_at(&self, base: &Base) -> Option<Instant> {
        Some(self.snd.progress_at + base.config.user_timeout.filter(|_| self.outstanding())?)
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, base: &mut Base) -> Transition {
        if let AckDue::By(at) = self.rcv.ack
            && now >= at
        {
            self.rcv.ack = AckDue::Now;
        }
        let due = |at: Option<Instant>| at.is_some_and(|at| now >= at);
        if due(self.fin_wait_until) {
            return Transition::Closed(None);
        }
        let orphaned = self.reader_gone && self.snd.backoff >= TCP_ORPHAN_RETRIES;
        // RFC 9293 MUST-20, MUST-21: a user timeout replaces the retry limit as R2, whether it is shorter or longer.
        let retries_max = base.config.user_timeout.is_none().then_some(TCP_RETRIES);
        if due(self.user_timeout_at(base)) || !self.snd.handle_timeout(now, retries_max) || orphaned {
            base.reset = Some(Box::new(self.reset_header(base)));
            return Transition::Closed(Some(Failure::TimedOut));
        }
        if due(self.keepalive_at(base)) {
            let probes = base.config.keepalive.map_or(0, |keepalive| keepalive.probes);
            // RFC 9293 MUST-29: the connection ends once the configured number of probes went unanswered.
            if self.keepalive_probes >= probes {
                base.reset = Some(Box::new(self.reset_header(base)));
                return Transition::Closed(Some(Failure::TimedOut));
            }
            self.keepalive_probes += 1;
            self.probed_at = now;
            self.snd.probe_due = true;
        }
        Transition::Stay
    }

    /// Notes bytes that the application wrote.
    pub(super) fn wrote(&mut self, now: Instant, bytes: u32) {
        self.snd.end += bytes;
        self.snd.rearm(now);
    }

    /// Marks the byte written last as the end of urgent data.
    /// RFC 9293 MUST-30.
    pub(super) fn wrote_urgent(&mut self, now: Instant) {
        self.snd.urgent = Some(self.snd.end);
        if self.snd.usable_window() == 0 {
            // A zero window stops the data but not the urgent pointer: an ACK carries it now.
            self.rcv.ack = AckDue::Now;
        }
        self.snd.rearm(now);
    }

    /// The application writes no more, so a FIN follows its last byte.
    pub(super) fn shutdown(&mut self, now: Instant) {
        if !self.snd.fin {
            self.snd.fin = true;
            self.phase = self.phase.closed_here();
            self.snd.rearm(now);
        }
    }

    /// The application neither writes nor reads any more.
    pub(super) fn close(&mut self, now: Instant, base: &Base) {
        self.reader_gone = true;
        self.shutdown(now);
        self.bound_fin_wait(now, base);
    }

    /// Sets the MSS of the path: payload plus TCP options.
    pub(super) fn set_path_mss(&mut self, now: Instant, mss: u16) {
        self.snd.set_path(now, segment_bytes(mss, self.timestamps));
    }

    /// Sets the MSS of the device: payload plus TCP options.
    pub(super) fn set_device_mss(&mut self, now: Instant, mss: u16) {
        self.snd.set_device(now, segment_bytes(mss, self.timestamps));
    }

    /// ICMP reports that the segment at `seq` was too large and that the path takes `mss`.
    pub(super) fn too_big(&mut self, now: Instant, seq: SeqNumber, mss: u16) -> Result<Belief, TcpDrop> {
        self.snd.too_big(now, seq, segment_bytes(mss, self.timestamps)).ok_or(TcpDrop::IcmpNotOutstanding)
    }

    pub(super) fn time_wait(&self, now: Instant, base: &Base) -> TimeWait {
        TimeWait {
            ports: base.ports,
            snd_nxt: self.snd.nxt,
            rcv_nxt: self.rcv.nxt,
            recent: self.timestamps.then(|| self.rcv.recent()),
            timestamp_offset: base.initial.timestamp_offset,
            lasts: base.config.time_wait,
            // RFC 9293 MUST-13.
            until: now + base.config.time_wait,
        }
    }
}

/// A segment that has arrived.
#[derive(Debug, Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) header: &'a Header,
    pub(super) payload_bytes: usize,
    pub(super) congestion_experienced: bool,
}

impl Arrival<'_> {
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.payload_bytes).unwrap_or(u32::MAX)
    }
}
