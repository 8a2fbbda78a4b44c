//! What the sending half does with acknowledgements and time: growth, loss recovery, probes, timeouts.
//!
//! Loss is found by RACK (RFC 8985) where the peer knows SACK and by three duplicates (RFC 6582) where not; what goes during
//! recovery is metered by PRR (RFC 6937bis); the end of a flight is guarded by a tail-loss probe, everything by the
//! retransmission timer (RFC 6298). One timer serves all, as they exclude one another.

use super::congestion::Progress;
use super::scoreboard::Delivery;
use super::sender::{Ack, Sender};
use super::undo::Frto;
use crate::time::{Duration, Instant};
use crate::wire::tcp::SeqNumber;

/// Duplicates that mean a loss (RFC 5681, RFC 6675 DupThresh).
const DUP_THRESH: u32 = 3;
/// What an acknowledgement may be delayed by a peer (RFC 8985 TLP.max_ack_delay; RTO minimum of Linux).
const ACK_DELAY_MAX: Duration = Duration::from_millis(200);
/// What a tail-loss probe waits for beyond two round trips where the peer owes an acknowledgement at once: two ticks at 250 Hz, as
/// Linux. On links of microseconds the peer's process takes longer to get a CPU than a segment to cross.
const TAIL_PROBE_PATIENCE: Duration = Duration::from_millis(8);

/// Where loss recovery is.
#[derive(Debug)]
pub(super) enum Recovery {
    /// Nothing is known to be lost.
    Open,
    /// Repeating what was lost, metered by PRR.
    Fast(Prr),
    /// Repeating all after a timeout or a change of the path, in slow start, until this is acknowledged.
    Loss(SeqNumber),
}

/// RFC 6937bis.
#[derive(Debug)]
pub(super) struct Prr {
    /// RecoveryPoint.
    recover: SeqNumber,
    /// RecoverFS.
    flight: u32,
    delivered: u32,
    out: u32,
}

impl Recovery {
    /// Notes bytes sent.
    pub(super) fn sent(&mut self, bytes: u32) {
        match self {
            Self::Fast(prr) => prr.out = prr.out.saturating_add(bytes),
            Self::Open | Self::Loss(_) => {}
        }
    }

    /// The phase, for [`Info`](super::Info).
    pub(super) fn phase(&self) -> RecoveryPhase {
        match self {
            Self::Open => RecoveryPhase::Open,
            Self::Fast(_) => RecoveryPhase::Recovery,
            Self::Loss(_) => RecoveryPhase::Loss,
        }
    }
}

/// How far loss recovery is; Linux calls it the state of congestion avoidance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RecoveryPhase {
    /// Nothing is being recovered.
    Open,
    /// Fast recovery after SACK blocks or duplicate acknowledgements.
    Recovery,
    /// Recovery after a retransmission timeout.
    Loss,
}

/// What the timer of the sending half is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    /// RTO.
    Retransmit,
    /// PTO: a tail-loss probe.
    TailProbe,
    /// RACK: what may be reordered is lost by then.
    Reorder,
    /// The peer's window is closed, or silly.
    Persist,
}

/// What an acknowledgement achieved.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Acked {
    /// Bytes of data that leave the buffer.
    pub(super) bytes: u32,
}

impl Sender {
    /// Takes an acknowledgement with SND.UNA - MAX.SND.WND <= SEG.ACK <= SND.NXT.
    pub(super) fn handle_ack(&mut self, now: Instant, ack: &Ack<'_>) -> Acked {
        let advanced = ack.ack.after(self.una);
        let flight = self.pipe();
        let mut delivery = Delivery::new(now, self.rtt.min(), ack.sent_before);
        let data_before = self.buffered();
        if advanced {
            if !self.size_proven {
                self.prove_size(ack.ack.since(self.una));
            }
            self.board.acknowledge(ack.ack, &mut delivery);
            self.una = ack.ack;
            self.urgent = self.urgent.filter(|up| up.after(ack.ack));
            (self.backoff, self.retries) = (0, 0);
            (self.rto_from, self.progress_at) = (now, now);
        }
        let duplicate_reported = self.handle_sack(ack, &mut delivery);
        let rtt = delivery.rtt.or(ack.echo_rtt.filter(|_| advanced));
        if let Some(rtt) = rtt.filter(|rtt| now - *rtt >= self.carrier_at) {
            self.rtt.sample(now, rtt);
        }
        let window_changed = self.take_window(ack.seq, ack.ack, ack.window);
        if self.window > 0 && self.board.is_empty() && window_changed {
            self.backoff = 0;
        }
        if self.board.is_empty() || self.window == 0 {
            // MUST-37: a peer that answers with a closed window is there, however long it lasts.
            // RFC 9293 SHLD-17.
            self.retries = 0;
        }
        self.pto_from = now;
        let duplicate = !advanced && ack.bare && !window_changed && !self.board.is_empty();
        self.count_duplicates(advanced, duplicate, &mut delivery);
        self.finish_tail_probe(ack, duplicate, duplicate_reported);
        if self.undo.is_some() {
            self.judge_reduction(ack, advanced, duplicate, &delivery);
        }
        if self.search.probe.is_some() {
            self.judge_probe(now);
        }
        self.find_losses(now);
        self.step(now, advanced, delivery, flight);
        self.handle_ece(ack);
        self.rearm(now);
        Acked { bytes: data_before - self.buffered() }
    }

    fn handle_sack(&mut self, ack: &Ack<'_>, delivery: &mut Delivery) -> bool {
        if !self.sack || ack.blocks.is_empty() {
            self.board.forget_told();
            return false;
        }
        // RFC 2883: a first block below the acknowledgement or inside the second tells of a duplicate.
        let duplicate = match *ack.blocks {
            [first, ..] if first.1.at_or_before(ack.ack) => Some(first),
            [first, second, ..] if first.0.at_or_after(second.0) && first.1.at_or_before(second.1) => Some(first),
            [_, ..] | [] => None,
        };
        if let Some((start, end)) = duplicate
            && start.before(end)
            && start.at_or_after(ack.ack - self.window_max)
        {
            self.note_duplicate((start, end));
        }
        let duplicate = duplicate.is_some();
        let blocks = &ack.blocks[usize::from(duplicate)..];
        let mut valid = [(self.una, self.una); 4];
        let mut count = 0;
        for &(start, end) in blocks {
            let inside = start.at_or_after(self.una) && end.at_or_before(self.nxt) && start.before(end);
            if inside && let Some(place) = valid.get_mut(count) {
                *place = (start, end);
                count += 1;
            }
        }
        self.board.sack(&valid[..count], self.segment_bytes, delivery);
        duplicate
    }

    /// Without SACK each duplicate says that one more segment has left the network (RFC 6582).
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
        } else if duplicate && self.dupacks.saturating_mul(self.segment_bytes) < self.board.pipe() {
            self.dupacks += 1;
            delivery.bytes += self.segment_bytes;
        }
        let partial = advanced && matches!(self.recovery, Recovery::Fast(_));
        let third = self.dupacks >= DUP_THRESH && matches!(self.recovery, Recovery::Open);
        if partial || third {
            self.board.lose_first();
        }
    }

    /// RFC 8985 section 7.4: a probe that repeated data and was needed hid a loss, which is to count.
    fn finish_tail_probe(&mut self, ack: &Ack<'_>, duplicate: bool, duplicate_reported: bool) {
        let Some((end, repeated)) = self.tail_probe else { return };
        if ack.ack.before(end) {
            return;
        }
        if !repeated || duplicate_reported || (duplicate && ack.blocks.is_empty()) {
            self.tail_probe = None;
        } else if ack.ack.after(end) {
            self.tail_probe = None;
            self.reduce_at_once();
        }
    }

    pub(super) fn find_losses(&mut self, now: Instant) {
        if !self.sack {
            return;
        }
        let recovering = !matches!(self.recovery, Recovery::Open);
        let rtt = (self.rtt.min(), self.rtt.smoothed().unwrap_or_default());
        self.reorder_due = self.board.detect_loss(now, recovering, rtt, DUP_THRESH);
    }

    /// Moves recovery and the congestion window on.
    pub(super) fn step(&mut self, now: Instant, advanced: bool, delivery: Delivery, flight: u32) {
        let mut repaired = false;
        match &self.recovery {
            Recovery::Open => {}
            Recovery::Fast(prr) if self.una.at_or_after(prr.recover) => {
                self.leave(self.ssthresh);
                repaired = true;
            }
            Recovery::Loss(recover) if self.una.at_or_after(*recover) => self.leave(self.cwnd),
            Recovery::Fast(_) | Recovery::Loss(_) => {}
        }
        if matches!(self.recovery, Recovery::Open) && self.board.lost() > 0 {
            self.enter(now, flight);
        } else if repaired {
            // What this acknowledges was counted by PRR.
            return;
        }
        let pipe = self.pipe();
        let newly_lost = self.board.lost() > 0;
        let segment = self.segment_bytes;
        match &mut self.recovery {
            Recovery::Open | Recovery::Loss(_) => {
                // RFC 5681 section 3.2: a duplicate does not open the window.
                let acked = if advanced { delivery.bytes } else { 0 };
                // RFC 3465 section 2.3: after a timeout one acknowledgement may cover what had arrived long before.
                let timed_out = matches!(self.recovery, Recovery::Loss(_)) && self.undo.is_some();
                let acked = if timed_out { acked.min(segment) } else { acked };
                self.grow(now, acked, flight, delivery.rtt);
            }
            Recovery::Fast(prr) => {
                prr.delivered = prr.delivered.saturating_add(delivery.bytes);
                let mut room = if pipe > self.ssthresh {
                    let share = u64::from(prr.delivered) * u64::from(self.ssthresh);
                    let share = share.div_ceil(u64::from(prr.flight.max(1)));
                    u32::try_from(share).unwrap_or(u32::MAX).saturating_sub(prr.out)
                } else {
                    // Slow-start reduction bound, faster while nothing more is found lost.
                    let safe = advanced && !newly_lost;
                    let room = prr.delivered.saturating_sub(prr.out).max(delivery.bytes);
                    (room + if safe { segment } else { 0 }).min(self.ssthresh - pipe)
                };
                // The first repetition goes whatever the meter says.
                room = room.max(if prr.out == 0 { segment } else { 0 });
                // More duplicates than segments may have come: where nothing is left in the network, one may go.
                self.cwnd = (pipe + room).max(segment);
            }
        }
    }

    fn enter(&mut self, now: Instant, flight: u32) {
        if self.lost_probe_alone(now) {
            self.recovery = Recovery::Loss(self.nxt);
            self.tail_probe = None;
            return;
        }
        self.reduce_for_loss();
        self.recovery = Recovery::Fast(Prr { recover: self.nxt, flight, delivered: 0, out: 0 });
        self.tail_probe = None;
    }

    fn leave(&mut self, cwnd: u32) {
        (self.recovery, self.frto) = (Recovery::Open, Frto::Off);
        self.cwnd = cwnd.max(self.segment_bytes);
        self.dupacks = 0;
        self.board.recovered();
    }

    /// RFC 9293 MUST-19.
    pub(super) fn grow(&mut self, now: Instant, acked: u32, flight: u32, sample: Option<Duration>) {
        if acked == 0 {
            return;
        }
        if self.cwnd < self.ssthresh {
            // A window that was not used says nothing about the network (RFC 7661, as Linux: up to twice what was used).
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

    /// RFC 3168 section 6.1.2: at most one reduction for a window of data, whose end CWR follows.
    /// RFC 9293 SHLD-8.
    fn handle_ece(&mut self, ack: &Ack<'_>) {
        // What lies behind SND.NXT was noted half a sequence space ago.
        let again = self.ecn_reduced_until.is_none_or(|until| self.una.after(until) || until.after(self.nxt));
        if self.ecn && ack.ece && again && matches!(self.recovery, Recovery::Open) {
            self.reduce_at_once();
            self.ecn_reduced_until = Some(self.nxt);
        }
    }

    /// A reduction without recovery, which nothing takes back.
    fn reduce_at_once(&mut self) {
        let window = self.congestion_window();
        self.ssthresh = self.control().reduce(window);
        (self.cwnd, self.cwr_due, self.undo) = (self.cwnd.min(self.ssthresh), self.ecn, None);
    }

    /// The next segments may carry less or more than before; what was sent larger is repeated at once (RFC 1191).
    pub(super) fn set_segment_bytes(&mut self, now: Instant, bytes: u32) {
        let smaller = bytes < self.segment_bytes;
        (self.segment_bytes, self.size_proven) = (bytes, false);
        self.cwnd = self.cwnd.max(bytes);
        if smaller && !self.board.is_empty() {
            self.repeat_all(now);
        }
    }

    /// The device under the connection has a carrier again. What was sent without one is lost, whatever a late answer to
    /// something before it seems to say; and what such an answer took is the outage and no round trip.
    pub(super) fn carrier_up(&mut self, now: Instant) {
        (self.carrier_at, self.undo) = (now, None);
        self.repeat_all(now);
    }

    /// Repeats what is outstanding without taking it for congestion.
    pub(super) fn repeat_all(&mut self, now: Instant) {
        if self.board.is_empty() {
            // Nothing but a closed window can hold data back: ask for it.
            self.probe_due |= self.unsent() > 0;
            return;
        }
        self.board.lose_all();
        self.recovery = Recovery::Loss(self.nxt);
        (self.backoff, self.rto_from, self.frto) = (0, now, Frto::Off);
        (self.dupacks, self.tail_probe, self.reorder_due) = (0, None, None);
        self.rearm(now);
    }

    /// Sets the timer of a closed window by what there is to send. To be called after every change.
    #[inline]
    pub(super) fn rearm(&mut self, now: Instant) {
        let waits = self.board.is_empty() && (self.unsent() > 0 || self.fin_unsent());
        if !waits {
            self.persist_at = None;
        } else if self.persist_at.is_none_or(|at| at <= now) {
            self.persist(now);
        }
    }

    fn persist(&mut self, now: Instant) {
        self.progress_at = if self.backoff == 0 { now } else { self.progress_at };
        // RFC 9293 SHLD-29, SHLD-30.
        self.persist_at = Some(now + self.rtt.timeout(self.backoff));
    }

    /// The timer that runs, and when it is due. It follows from what is outstanding, so that segments do not set it: who sleeps
    /// asks.
    #[inline]
    pub(super) fn timer(&self) -> Option<(Instant, Timer)> {
        if self.board.is_empty() {
            return self.persist_at.map(|at| (at, Timer::Persist));
        }
        let timeout = self.rto_from + self.rtt.timeout(self.backoff);
        Some(match (self.reorder_due, self.tail_probe_at()) {
            (Some(due), _) => (due.min(timeout), Timer::Reorder),
            (None, Some(due)) if due < timeout => (due, Timer::TailProbe),
            (None, _) => (timeout, Timer::Retransmit),
        })
    }

    /// RFC 8985 section 7.2.
    fn tail_probe_at(&self) -> Option<Instant> {
        let open = matches!(self.recovery, Recovery::Open) && self.board.sacked() == 0;
        if !open || !self.sack || self.tail_probe.is_some() || self.tail_probe_due {
            return None;
        }
        let smoothed = self.rtt.smoothed()?;
        let one = self.nxt.since(self.una) <= self.segment_bytes;
        let timeout = smoothed * 2 + if one { ACK_DELAY_MAX } else { TAIL_PROBE_PATIENCE };
        Some(self.pto_from + timeout)
    }

    /// Does what is due. False: the peer has not answered so often, `retries_max` times, that the connection is to be given up.
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
                let flight = self.pipe() + self.board.lost();
                if matches!(self.recovery, Recovery::Open) && self.board.lost() > 0 {
                    self.enter(now, flight);
                    if matches!(self.recovery, Recovery::Fast(_)) {
                        self.cwnd = self.pipe() + self.segment_bytes;
                    }
                }
            }
            Timer::TailProbe => self.tail_probe_due = true,
            Timer::Retransmit => return self.time_out(now, retries_max),
            Timer::Persist => {
                if self.has_tried(retries_max) {
                    return false;
                }
                // RFC 9293 MUST-35, MUST-36; with any window at all, silly or not, data is the probe.
                if self.usable_window() > 0 {
                    self.small_allowed = true;
                } else {
                    self.probe_due = true;
                }
                self.retries = self.retries.saturating_add(1);
                self.backoff = self.backoff.saturating_add(1);
                self.persist_at = None;
            }
        }
        self.rearm(now);
        true
    }

    fn has_tried(&self, retries_max: Option<u8>) -> bool {
        retries_max.is_some_and(|max| self.retries >= max)
    }

    /// RFC 6298 section 5, RFC 5681 section 3.1.
    fn time_out(&mut self, now: Instant, retries_max: Option<u8>) -> bool {
        if self.has_tried(retries_max) {
            return false;
        }
        // Recovery has reduced already for what it could not repair.
        let reduce = match self.recovery {
            Recovery::Open => true,
            Recovery::Fast(_) => false,
            Recovery::Loss(_) => self.retries == 0,
        };
        if reduce {
            self.reduce_for_loss();
        }
        let first = matches!(self.recovery, Recovery::Open) || self.retries > 0;
        self.fall_back(now);
        let reneged = self.board.lose_all();
        self.frto = if first && !reneged { Frto::Repeated } else { Frto::Off };
        self.cwnd = self.segment_bytes;
        self.recovery = Recovery::Loss(self.nxt);
        (self.dupacks, self.tail_probe, self.reorder_due) = (0, None, None);
        self.tail_probe_due = false;
        // RFC 9293 MUST-19.
        self.backoff = self.backoff.saturating_add(1);
        self.retries = self.retries.saturating_add(1);
        self.rto_from = now;
        self.rearm(now);
        true
    }
}
