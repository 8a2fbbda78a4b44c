//! How the sending half processes ACKs and timers: window growth, loss recovery, probes and timeouts.
//!
//! With SACK, RACK detects losses (RFC 8985). Without SACK, three duplicate ACKs signal a loss (RFC 6582). PRR limits what is
//! sent during recovery (RFC 9937). A tail-loss probe detects the loss of the last outstanding segments. The RTO (RFC 6298)
//! detects all other losses. RACK, the tail-loss probe and the RTO have timers, of which at most one runs at a time.

use super::congestion::{Control, Progress};
use super::scoreboard::Delivery;
use super::sender::{Ack, Sender};
use super::undo::Frto;
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Block, SackBlocks, SeqNumber};

/// Time that a tail-loss probe waits in addition to two round trips if the peer must acknowledge immediately: two ticks at 250 Hz, as
/// in Linux. On a link with a latency of microseconds, the peer's process may wait longer for a CPU than two round trips take.
/// Without the added time, the probe would be sent needlessly.
const TAIL_PROBE_PATIENCE: Duration = Duration::from_millis(8);
/// The longest override timeout: the time for which data waits if the peer's window is open, but too small for it.
/// RFC 9293 section 3.8.6.2.1: between 0.1 and 1 second.
const OVERRIDE_MAX: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) enum Recovery {
    /// No outstanding segment is known to be lost.
    Open,
    /// Fast recovery: lost segments are retransmitted at the rate that PRR allows.
    Fast(Box<Prr>),
    /// After an RTO or a change of the path: slow start retransmits all outstanding segments, until this sequence number is
    /// acknowledged.
    Loss(SeqNumber),
}

/// What an ACK changed.
#[derive(Debug, Clone, Copy)]
pub(super) struct AckOutcome {
    /// Whether the ACK advanced SND.UNA.
    pub(super) advanced: bool,
    /// Whether the ACK revealed a loss.
    pub(super) newly_lost: bool,
    pub(super) delivery: Delivery,
    /// Number of bytes in flight before the ACK.
    pub(super) flight: u32,
    /// Whether the ACK echoes a mark.
    pub(super) marked: bool,
}

/// The state of PRR (RFC 9937).
#[derive(Debug)]
pub(super) struct Prr {
    /// RecoveryPoint: recovery ends when this sequence number is acknowledged.
    recover: SeqNumber,
    /// RecoverFS: number of bytes in flight when recovery began.
    flight: u32,
    delivered: u32,
    out: u32,
}

impl Recovery {
    pub(super) fn sent(&mut self, bytes: u32) {
        if let Self::Fast(prr) = self {
            prr.out = prr.out.saturating_add(bytes);
        }
    }

    pub(super) fn phase(&self) -> RecoveryPhase {
        match self {
            Self::Open => RecoveryPhase::Open,
            Self::Fast(_) => RecoveryPhase::Recovery,
            Self::Loss(_) => RecoveryPhase::Loss,
        }
    }
}

/// The phase of loss recovery; Linux calls it the congestion avoidance state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryPhase {
    /// No loss is being repaired.
    Open,
    /// Fast recovery after SACK blocks or duplicate ACKs.
    Recovery,
    /// Recovery by slow start, after a retransmission timeout or a change of the path.
    Loss,
}

/// The purpose of the sending half's timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    /// Retransmission timeout (RTO).
    Retransmit,
    /// Probe timeout (PTO): a tail-loss probe is due.
    TailProbe,
    /// RACK reordering timer: if a late segment is not delivered when this timer expires, the segment counts as lost.
    Reorder,
    /// Persist timer: the peer's window is zero, or too small to use (silly window).
    Persist,
}

impl Sender {
    /// Processes an ACK with SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT. Returns how many bytes leave the send buffer.
    pub(super) fn handle_ack(&mut self, now: Instant, ack: &Ack<'_>) -> u32 {
        let advanced = ack.ack.after(self.una);
        let mut flight = self.pipe();
        let outstanding = self.nxt.since(self.una);
        let mut delivery = Delivery::new(now, self.rtt.min, ack.sent_before, self.segment_bytes);
        let data_before = self.buffered();
        if advanced {
            if !self.size_proven {
                self.prove_size(ack.ack.since(self.una));
            }
            self.board.acknowledge(ack.ack, &mut delivery);
            if delivery.repeated {
                // As in Linux, an acknowledgement that covers a retransmission gives no sample of the segments behind it. They may
                // have waited for this retransmission.
                (delivery.rtt, delivery.rtt_oldest) = (None, None);
            }
            self.una = ack.ack;
            self.urgent = self.urgent.filter(|up| up.after(ack.ack));
            (self.retries, self.attempts) = (0, 0);
            (self.rto_from, self.pto_from, self.progress_at) = (now, now, now);
            self.acknowledge_marks(now);
        }
        let duplicate_reported = self.handle_sack(ack, &mut delivery);
        self.count_delivery(&delivery);
        if ack.ece {
            let history = self.rare.edit();
            history.delivered_ce = history.delivered_ce.wrapping_add(delivery.segments);
        }
        let rtt = delivery.rtt_oldest.or(ack.echo_rtt.filter(|_| advanced));
        if let Some(rtt) = rtt.filter(|rtt| now - *rtt >= self.rare.carrier_at) {
            self.sample_rtt(now, rtt, delivery.rtt);
        }
        let window_changed = self.take_window(ack.seq, ack.ack, ack.window, advanced);
        if self.window > 0 && self.board.is_empty() && window_changed {
            self.attempts = 0;
        }
        if self.board.is_empty() && !advanced {
            // As in Linux, an answer of the peer restarts the persist timer. Its backoff stays.
            self.persist_at = None;
        }
        if self.board.is_empty() || self.window == 0 {
            // MUST-37: a peer that answers with a zero window is alive, so the connection stays open, however long the window stays
            // closed.
            // RFC 9293 SHLD-17.
            self.retries = 0;
        }
        let duplicate = !advanced && ack.bare && !window_changed && !self.board.is_empty();
        let lost_before = self.board.lost;
        self.count_duplicates(advanced, duplicate, &mut delivery);
        self.finish_tail_probe(now, ack, duplicate, duplicate_reported);
        if self.undo.is_some() && self.judge_reduction(ack, advanced, duplicate, &delivery) {
            // Nothing was lost, so all outstanding segments used the window.
            flight = outstanding;
        }
        if self.search.probe.is_some() {
            self.judge_probe(now);
        }
        self.find_losses(now);
        let newly_lost = self.board.lost > lost_before;
        // As in Linux, ECE is ignored if nothing was outstanding: it reports no new mark.
        let marked = self.ecn && ack.ece && outstanding > 0;
        self.step(now, &AckOutcome { advanced, newly_lost, delivery, flight, marked });
        if marked {
            self.respond_to_mark(now);
        }
        self.rearm(now);
        let acked = data_before - self.buffered();
        self.counts.bytes_acked += u64::from(acked);
        acked
    }

    #[inline]
    pub(super) fn count_delivery(&mut self, delivery: &Delivery) {
        self.counts.delivered = self.counts.delivered.wrapping_add(delivery.segments);
        if delivery.reordered {
            let history = self.rare.edit();
            history.reorderings = history.reorderings.wrapping_add(1);
        }
    }

    /// Returns the phase of loss recovery as Linux numbers it (`TCP_CA_*`).
    pub(super) fn linux_phase(&self) -> u8 {
        match self.recovery {
            Recovery::Fast(_) => 3,
            Recovery::Loss(_) => 4,
            Recovery::Open if self.rare.ecn_reduced_until.is_some_and(|until| until.after(self.una)) => 2,
            Recovery::Open => u8::from(self.board.sacked > 0 || self.dupacks > 0),
        }
    }

    fn handle_sack(&mut self, ack: &Ack<'_>, delivery: &mut Delivery) -> bool {
        if !self.sack || ack.blocks.is_empty() {
            self.board.forget_reported();
            return false;
        }
        // RFC 2883: the first block is a DSACK if it lies below SEG.ACK or inside the second block.
        let duplicate = match *ack.blocks {
            [first, ..] if first.end.at_or_before(ack.ack) => Some(first),
            [first, second, ..] if first.start.at_or_after(second.start) && first.end.at_or_before(second.end) => {
                Some(first)
            }
            [_, ..] | [] => None,
        };
        if let Some(block) = duplicate
            && block.start.before(block.end)
            && block.start.at_or_after(ack.ack - self.window_max)
        {
            self.note_duplicate(block);
        }
        let duplicate = duplicate.is_some();
        let mut valid = SackBlocks::default();
        for &block in &ack.blocks[usize::from(duplicate)..] {
            let Block { start, end } = block;
            // As in Linux, a block at SND.UNA is ignored: the acknowledgement number of the same segment contradicts it.
            if start.after(self.una) && end.at_or_before(self.nxt) && start.before(end) {
                valid.push(block);
            }
        }
        self.board.sack(&valid, self.segment_bytes, delivery);
        duplicate
    }

    /// Counts duplicate ACKs if SACK is not used. Each one means that a segment has left the network (RFC 6582).
    fn count_duplicates(&mut self, advanced: bool, duplicate: bool, delivery: &mut Delivery) {
        if self.sack {
            return;
        }
        if advanced {
            let segments = (delivery.bytes / self.segment_bytes).max(1);
            self.dupacks = match self.recovery {
                Recovery::Fast(_) => self.dupacks.saturating_sub(segments - 1),
                Recovery::Open | Recovery::Loss(_) => 0,
            };
        } else if duplicate
            && !matches!(self.recovery, Recovery::Loss(_))
            && self.dupacks.saturating_mul(self.segment_bytes) < self.board.flying
        {
            // After a timeout, all outstanding segments count as lost, so a duplicate ACK is no sign that one of them has arrived.
            self.dupacks += 1;
            delivery.bytes += self.segment_bytes;
        }
        let partial = advanced && matches!(self.recovery, Recovery::Fast(_));
        // RFC 6582 section 3.2 step 1.
        let enters = matches!(self.recovery, Recovery::Open) && self.rare.duplicates_until != Some(self.una);
        let third = enters && self.dupacks >= u32::from(self.reordering_segments);
        if partial || third {
            self.board.lose_first();
        }
    }

    /// Ends the tail-loss probe if `ack` acknowledges it. If the probe was a retransmission and repaired a loss, cwnd is reduced
    /// (RFC 8985 section 7.4).
    fn finish_tail_probe(&mut self, now: Instant, ack: &Ack<'_>, duplicate: bool, duplicate_reported: bool) {
        let Some((end, repeated)) = self.tail_probe else { return };
        if ack.ack.before(end) {
            return;
        }
        if !repeated || duplicate_reported || (duplicate && ack.blocks.is_empty()) {
            self.tail_probe = None;
        } else if ack.ack.after(end) {
            self.tail_probe = None;
            self.reduce_at_once(now);
        }
    }

    pub(super) fn find_losses(&mut self, now: Instant) {
        if !self.sack {
            return;
        }
        let recovering = !matches!(self.recovery, Recovery::Open);
        self.reorder_due = self.board.detect_loss(now, recovering, &self.rtt, self.reordering_segments.into());
    }

    /// Adds the RTT sample of the oldest segment that an ACK acknowledges, and that of the latest one if it is known. Only a sample
    /// ends the backoff of the RTO (RFC 6298 section 5).
    #[inline]
    pub(super) fn sample_rtt(&mut self, now: Instant, oldest: Duration, latest: Option<Duration>) {
        self.rtt.sample_range(now, oldest, latest.unwrap_or(oldest));
        self.backoff = 0;
    }

    /// Enters, continues or leaves recovery after an ACK, and sets cwnd.
    pub(super) fn step(&mut self, now: Instant, outcome: &AckOutcome) {
        let &AckOutcome { advanced, newly_lost, delivery, flight, marked } = outcome;
        let mut repaired = false;
        match &self.recovery {
            Recovery::Open => {}
            Recovery::Fast(prr) if self.una.at_or_after(prr.recover) => {
                self.leave(if self.control.is_model() { self.cwnd } else { self.ssthresh });
                repaired = true;
            }
            Recovery::Loss(recover) if self.una.at_or_after(*recover) => self.leave(self.cwnd),
            Recovery::Fast(_) | Recovery::Loss(_) => {}
        }
        if matches!(self.recovery, Recovery::Open) && self.board.lost > 0 {
            self.enter(now, flight);
        }
        if self.control.is_model() {
            self.follow_model(now, outcome);
            return;
        }
        if repaired && matches!(self.recovery, Recovery::Open) {
            // PRR has already counted the bytes that this ACK acknowledges, so they do not grow cwnd.
            return;
        }
        let pipe = self.pipe();
        let segment = self.segment_bytes;
        match &mut self.recovery {
            Recovery::Open | Recovery::Loss(_) => {
                // RFC 5681 section 3.2: a duplicate ACK does not grow cwnd. RFC 3168 section 6.1.2: neither does one with ECE.
                let acked = if advanced && !marked { delivery.bytes } else { 0 };
                let acked = self.window_growth(acked);
                self.grow(now, acked, flight, delivery.rtt);
            }
            Recovery::Fast(prr) => {
                prr.delivered = prr.delivered.saturating_add(delivery.bytes);
                let mut room = if pipe > self.ssthresh {
                    let share = u64::from(prr.delivered) * u64::from(self.ssthresh);
                    let share = share.div_ceil(u64::from(prr.flight.max(1)));
                    u32::try_from(share).unwrap_or(u32::MAX).saturating_sub(prr.out)
                } else {
                    // PRR-CRB, plus one segment (PRR-SSRB) if the ACK advances SND.UNA and reveals no further loss.
                    let safe = advanced && !newly_lost;
                    let room = prr.delivered.saturating_sub(prr.out).max(delivery.bytes);
                    (room + if safe { segment } else { 0 }).min(self.ssthresh - pipe)
                };
                // PRR never delays the first retransmission.
                room = room.max(if prr.out == 0 { segment } else { 0 });
                // Spurious duplicate ACKs may reduce the pipe and the room to 0. One segment may nevertheless be sent.
                self.cwnd = (pipe + room).max(segment);
            }
        }
    }

    /// Returns by how many of `acked` newly acknowledged bytes cwnd may grow. RFC 3465 section 2.3: after an RTO, an ACK may cover data
    /// that arrived long before. Such an ACK counts as one segment at most.
    pub(super) fn window_growth(&self, acked: u32) -> u32 {
        let timed_out = matches!(self.recovery, Recovery::Loss(_)) && self.undo.is_some();
        if timed_out { acked.min(self.segment_bytes) } else { acked }
    }

    fn enter(&mut self, now: Instant, flight: u32) {
        if self.lost_probe_alone(now) {
            self.recovery = Recovery::Loss(self.nxt);
            self.tail_probe = None;
            return;
        }
        self.reduce_for_loss();
        self.recovery = Recovery::Fast(Box::new(Prr { recover: self.nxt, flight, delivered: 0, out: 0 }));
        self.tail_probe = None;
    }

    fn leave(&mut self, cwnd: u32) {
        (self.recovery, self.frto) = (Recovery::Open, Frto::Off);
        self.cwnd = cwnd.max(self.segment_bytes);
        self.dupacks = 0;
        self.board.recovered();
    }

    /// Grows cwnd after `acked` bytes were newly acknowledged.
    /// RFC 9293 MUST-19.
    pub(super) fn grow(&mut self, now: Instant, acked: u32, flight: u32, sample: Option<Duration>) {
        if acked == 0 {
            return;
        }
        if self.cwnd < self.ssthresh {
            // If the sender does not use up cwnd, ACKs do not show that the path carries more (RFC 7661). As in Linux, cwnd
            // therefore grows only while it is below twice the flight.
            let used = self.cwnd < flight.saturating_mul(2);
            if used && self.ssthresh == u32::MAX {
                let progress = Progress { una: self.una, nxt: self.nxt, rtt: sample };
                let window = self.congestion_window();
                let (cwnd, over) = self.control().start(window, acked, &progress);
                self.cwnd = cwnd;
                self.ssthresh = if over { cwnd } else { self.ssthresh };
            } else if used || matches!(self.recovery, Recovery::Loss(_)) {
                self.cwnd = self.cwnd.saturating_add(acked).min(self.ssthresh.max(self.cwnd));
            }
        } else if self.congestion_limited || flight.saturating_add(self.segment_bytes) > self.cwnd {
            let rtt = self.rtt.smoothed().unwrap_or_default();
            let window = self.congestion_window();
            self.cwnd = self.control().grow(now, window, acked, rtt);
        }
    }

    /// Reduces cwnd because a packet was marked, at most once per window of data (RFC 3168 section 6.1.2). The next new data carries CWR,
    /// which announces the reduction.
    /// RFC 9293 SHLD-8.
    pub(super) fn respond_to_mark(&mut self, now: Instant) {
        // If `until` is beyond SND.NXT, it is stale, because sequence numbers have wrapped around since then.
        let again = self.rare.ecn_reduced_until.is_none_or(|until| self.una.after(until) || until.after(self.nxt));
        if self.ecn && again && matches!(self.recovery, Recovery::Open) {
            self.reduce_at_once(now);
            self.rare.edit().ecn_reduced_until = Some(self.nxt);
        }
    }

    /// Reduces cwnd without entering recovery, and without undo. As in Linux, an outstanding tail-loss probe then causes no reduction.
    fn reduce_at_once(&mut self, now: Instant) {
        let window = self.congestion_window();
        let in_flight = self.pipe();
        if let Control::Bbr(bbr) = &mut self.control {
            bbr.mark(now, in_flight);
            (self.cwr_due, self.tail_probe) = (self.ecn, None);
            return;
        }
        self.ssthresh = self.control().reduce(window);
        (self.cwnd, self.cwr_due, self.undo, self.tail_probe) = (self.cwnd.min(self.ssthresh), self.ecn, None, None);
    }

    /// Changes the payload of a full segment to `bytes`. If it becomes smaller, all outstanding segments are retransmitted at
    /// once (RFC 1191).
    pub(super) fn set_segment_bytes(&mut self, now: Instant, bytes: u32) {
        let smaller = bytes < self.segment_bytes;
        (self.segment_bytes, self.size_proven) = (bytes, false);
        self.cwnd = self.cwnd.max(bytes);
        if smaller && !self.board.is_empty() {
            self.repeat_all(now);
        }
    }

    /// Retransmits all outstanding segments, because the device has a carrier again. An earlier reduction of cwnd can no longer
    /// be undone, because a late ACK would otherwise stop these retransmissions. An ACK of a segment from before the outage gives
    /// no RTT sample, because its delay includes the outage.
    pub(super) fn carrier_up(&mut self, now: Instant) {
        (self.rare.edit().carrier_at, self.undo) = (now, None);
        self.repeat_all(now);
    }

    /// Retransmits all outstanding segments without reducing cwnd.
    pub(super) fn repeat_all(&mut self, now: Instant) {
        if self.board.is_empty() {
            // Without outstanding data, only a zero window can delay unsent data. The peer's window is therefore probed.
            self.probe_due |= self.unsent() > 0;
            return;
        }
        self.board.lose_all(Instant::NEVER);
        self.recovery = Recovery::Loss(self.nxt);
        self.rare.edit().duplicates_until = Some(self.nxt);
        (self.backoff, self.attempts, self.rto_from, self.frto) = (0, 0, now, Frto::Off);
        (self.dupacks, self.tail_probe, self.reorder_due) = (0, None, None);
        self.rearm(now);
    }

    /// Sets or clears the persist timer. The caller calls this after every change of the unsent or outstanding data.
    #[inline]
    pub(super) fn rearm(&mut self, now: Instant) {
        let limit = self.limit();
        if limit != self.limited_by {
            self.chronograph.end(now, self.limited_by, &mut self.rare);
            self.limited_by = limit;
        }
        let waits = self.board.is_empty() && (self.unsent() > 0 || self.fin_unsent());
        if !waits {
            self.persist_at = None;
        } else if self.persist_at.is_none_or(|at| at <= now) {
            self.persist(now);
        }
    }

    fn persist(&mut self, now: Instant) {
        self.progress_at = if self.attempts == 0 { now } else { self.progress_at };
        let wait = if self.usable_window() > 0 {
            // The window is open, so neither a lost segment nor an unanswered probe is a reason to wait longer.
            self.rtt.timeout(0).min(OVERRIDE_MAX)
        } else {
            // RFC 9293 SHLD-29, SHLD-30: the first window probe waits one RTO, and later probes back off exponentially.
            self.rtt.timeout(self.backoff.saturating_add(self.attempts))
        };
        self.persist_at = Some(now + wait);
    }

    /// Returns the running timer and when it is due. Both are computed on demand, so that sending or receiving a segment does not
    /// have to set a timer.
    #[inline]
    pub(super) fn timer(&self) -> Option<(Instant, Timer)> {
        if self.board.is_empty() {
            return self.persist_at.map(|at| (at, Timer::Persist));
        }
        let timeout = self.rto_from + self.rtt.timeout(self.backoff);
        Some(match (self.reorder_due, self.tail_probe_at()) {
            (Some(due), _) => (due.min(timeout), Timer::Reorder),
            // If the RTO is earlier, the probe takes its place.
            (None, Some(due)) => (due.min(timeout), Timer::TailProbe),
            (None, None) => (timeout, Timer::Retransmit),
        })
    }

    /// Returns when the tail-loss probe is due (RFC 8985 section 7.2).
    #[inline]
    fn tail_probe_at(&self) -> Option<Instant> {
        let open = matches!(self.recovery, Recovery::Open) && self.board.sacked == 0;
        if !open || !self.sack || !self.tail_loss_probes || self.tail_probe.is_some() || self.tail_probe_due {
            return None;
        }
        // RFC 8985 section 7.3: a probe needs an RTT sample since the probe before it, or since the start of the connection.
        let smoothed = self.rtt.smoothed().filter(|_| self.rtt.fresh)?;
        let one = self.nxt.since(self.una) <= self.segment_bytes && self.board.has_one();
        // As in Linux, the peer may delay an ACK for the minimum RTO (RFC 8985 TLP.max_ack_delay).
        let timeout = smoothed * 2 + if one { self.rtt.slack_min() } else { TAIL_PROBE_PATIENCE };
        Some(self.pto_from + timeout)
    }

    /// Processes the expiry of the timer if the timer is due. Returns false if `retries_max` retries went unanswered. The caller
    /// then ends the connection.
    pub(super) fn handle_timeout(&mut self, now: Instant, retries_max: Option<u8>) -> bool {
        let Some((at, timer)) = self.timer() else { return true };
        if now < at {
            return true;
        }
        match timer {
            Timer::Reorder => {
                self.find_losses(now);
                if now >= self.rto_from + self.rtt.timeout(self.backoff) {
                    return self.time_out(now, retries_max);
                }
                let flight = self.pipe() + self.board.lost;
                if matches!(self.recovery, Recovery::Open) && self.board.lost > 0 {
                    self.enter(now, flight);
                    self.report_losses(now);
                    if matches!(self.recovery, Recovery::Fast(_)) && !self.control.is_model() {
                        self.cwnd = self.pipe() + self.segment_bytes;
                    }
                }
            }
            // RFC 8985 section 7.3: the RTO starts again, even if the probe cannot be sent.
            Timer::TailProbe => (self.tail_probe_due, self.rto_from) = (true, now),
            Timer::Retransmit => return self.time_out(now, retries_max),
            Timer::Persist => {
                if self.has_tried(retries_max) {
                    return false;
                }
                // RFC 9293 MUST-35, MUST-36: if the peer's window is open, even if it is too small (silly), a data segment serves
                // as the probe.
                if self.usable_window() > 0 {
                    // As in Linux, no tail-loss probe follows before the peer has answered this segment.
                    (self.small_allowed, self.rtt.fresh) = (true, false);
                } else {
                    self.probe_due = true;
                }
                self.retries = self.retries.saturating_add(1);
                self.attempts = self.attempts.saturating_add(1);
                self.persist_at = None;
            }
        }
        self.rearm(now);
        true
    }

    /// Returns how often the first outstanding segment was retransmitted without an answer, tail-loss probes included.
    pub(super) fn repetitions(&self) -> u8 {
        self.retries.saturating_add(u8::from(self.rare.first_probed == Some(self.una)))
    }

    fn has_tried(&self, retries_max: Option<u8>) -> bool {
        retries_max.is_some_and(|max| self.retries >= max)
    }

    /// Processes an expired RTO (RFC 6298 section 5, RFC 5681 section 3.1). Returns false if `retries_max` retries went
    /// unanswered.
    fn time_out(&mut self, now: Instant, retries_max: Option<u8>) -> bool {
        if self.has_tried(retries_max) {
            return false;
        }
        // Do not reduce ssthresh twice for the same loss. Fast recovery or an earlier RTO may have reduced ssthresh already,
        // without repairing the loss.
        let reduce = match self.recovery {
            Recovery::Open => true,
            Recovery::Fast(_) => false,
            Recovery::Loss(_) => self.retries == 0,
        };
        if reduce {
            self.reduce_for_loss();
        }
        self.control().timed_out();
        let history = self.rare.edit();
        history.timeouts = history.timeouts.wrapping_add(1);
        let first = matches!(self.recovery, Recovery::Open) || self.retries > 0;
        self.fall_back(now);
        // RFC 8985 section 6.3: with SACK, segments that were sent lately may still arrive.
        let recovering = !matches!(self.recovery, Recovery::Open);
        let late = self.board.reorder_wait(recovering, &self.rtt, self.reordering_segments.into());
        let reneged = self.board.lose_all(if self.sack { now - late } else { Instant::NEVER });
        self.report_losses(now);
        self.release_departure(now);
        self.frto = if first && !reneged { Frto::Repeated } else { Frto::Off };
        self.cwnd = self.segment_bytes;
        self.recovery = Recovery::Loss(self.nxt);
        self.rare.edit().duplicates_until = Some(self.nxt);
        (self.dupacks, self.tail_probe, self.reorder_due) = (0, None, None);
        self.tail_probe_due = false;
        // RFC 9293 MUST-19: exponential backoff.
        self.backoff = self.backoff.saturating_add(1);
        self.attempts = self.attempts.saturating_add(1);
        self.retries = self.retries.saturating_add(1);
        self.rto_from = now;
        self.rearm(now);
        true
    }
}
