//! The sending half with BBR: it samples the delivery rate, paces its segments, and takes cwnd from BBR's model of the path.
//!
//! Other congestion controls never call this file's code. A connection with BBR always takes the slow path, so that the fast path needs
//! no checks for it.

use super::congestion::{Acked, Control, Sending};
use super::delivery_rate::Sample;
use super::recovery::{AckOutcome, Recovery};
use super::sender::{Chunk, Sender};
use crate::time::Instant;

impl Sender {
    /// Uses `control` from now on. cwnd keeps its value.
    pub(super) fn set_control(&mut self, control: Control) {
        self.board.set_loss_log(matches!(control, Control::Bbr(_)));
        self.control = control;
    }

    /// Returns the next segment to send, like [`Sender::next_chunk`], if its departure is due.
    pub(super) fn next_paced(&mut self, now: Instant, large: u32) -> Option<Chunk> {
        let in_flight = self.pipe();
        let has_data = self.board.lost > 0 || self.unsent() > 0 || self.fin_unsent();
        let segment_bytes = self.segment_bytes;
        let Control::Bbr(bbr) = &mut self.control else { return None };
        // A tail-loss probe has waited for its own timer.
        if !self.tail_probe_due && !bbr.pacer.may_send(now) {
            bbr.pacer.set_waiting(has_data && in_flight < self.cwnd);
            return None;
        }
        bbr.pacer.set_waiting(false);
        let large = large.min(bbr.pacer.quantum(segment_bytes));
        let chunk = self.choose_chunk(now, large)?;
        let sending = Sending {
            now,
            window: self.congestion_window(),
            bytes: chunk.len + u32::from(chunk.fin),
            in_flight,
            rtt: self.rtt.smoothed(),
            last: self.unsent() == 0,
        };
        if let Control::Bbr(bbr) = &mut self.control {
            bbr.sent(&sending);
        }
        Some(chunk)
    }

    /// Returns when the next segment departs, if pacing is all that holds it back.
    pub(super) fn departure(&self) -> Option<Instant> {
        if let Control::Bbr(bbr) = &self.control { bbr.pacer.departure() } else { None }
    }

    /// Stops the timer of the next departure if it has expired.
    pub(super) fn handle_departure(&mut self, now: Instant) {
        if let Control::Bbr(bbr) = &mut self.control
            && bbr.pacer.may_send(now)
        {
            bbr.pacer.set_waiting(false);
        }
    }

    /// Lets the retransmission after a timeout depart now.
    pub(super) fn release_departure(&mut self, now: Instant) {
        if let Control::Bbr(bbr) = &mut self.control {
            bbr.pacer.release(now);
        }
    }

    /// Reports the segments to BBR that were marked lost since the last call.
    pub(super) fn report_losses(&mut self, now: Instant) {
        let Control::Bbr(bbr) = &mut self.control else { return };
        for lost in self.board.take_losses() {
            bbr.lost(now, lost.sent_at, lost.bytes);
        }
    }

    /// Updates BBR's model by an ACK, and sets cwnd.
    pub(super) fn follow_model(&mut self, now: Instant, outcome: &AckOutcome) {
        let delivery = outcome.delivery;
        // Without SACK, a duplicate ACK counts a segment that a later ACK acknowledges.
        let bytes = if self.sack || outcome.advanced { delivery.bytes } else { 0 };
        let (window, in_flight, newest) = (self.congestion_window(), self.pipe(), self.board.newest_delivered());
        let growth = self.window_growth(bytes);
        let Control::Bbr(bbr) = &mut self.control else { return };
        bbr.sampler.deliver(now, bytes);
        for lost in self.board.take_losses() {
            bbr.lost(now, lost.sent_at, lost.bytes);
        }
        self.cwnd = bbr.acknowledged(&Acked {
            now,
            window,
            bytes,
            growth,
            in_flight,
            rtt: delivery.rtt,
            recovering: !matches!(self.recovery, Recovery::Open),
            newest,
        });
        let outstanding = self.board.sent.len();
        if bbr.sampler.is_long(outstanding) {
            bbr.sampler.forget_before(self.board.oldest_sent_at().unwrap_or(now));
        }
    }

    /// Returns the pacing rate in bytes per second. `u64::MAX` if the connection does not pace its segments.
    pub(super) fn pacing_rate(&self) -> u64 {
        if let Control::Bbr(bbr) = &self.control { bbr.pacer.rate() } else { u64::MAX }
    }

    /// Returns the latest sample of the delivery rate. It is empty if the connection does not sample the rate.
    pub(super) fn delivery_rate(&self) -> Sample {
        if let Control::Bbr(bbr) = &self.control { bbr.sampler.latest() } else { Sample::default() }
    }
}
