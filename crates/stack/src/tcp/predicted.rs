//! Header prediction: the segment that nearly all are, the next in order on an open connection where nothing is amiss, is taken
//! without the questions that only others need to be asked.
//!
//! It is a short cut, not another set of rules: what it does for such a segment is what [`Synchronized::handle_segment`]
//! does, and a test has both do the same over many exchanges. Whatever it does not expect it leaves alone.

use super::header::{Flags, Timestamps};
use super::receiver::Receiver;
use super::recovery::Recovery;
use super::scoreboard::Delivery;
use super::sender::Sender;
use super::synchronized::{Arrival, Phase, Synchronized};
use super::undo::Frto;
use super::{Effect, Placement, SeqNumber};
use crate::time::{Duration, Instant};

#[cfg(test)]
thread_local! {
    /// Every segment goes the long way.
    pub(super) static OFF: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

impl Synchronized {
    /// Takes a segment if it is the expected one; else nothing has happened.
    #[inline]
    pub(super) fn take_predicted(
        &mut self,
        now: Instant,
        timestamp_offset: u32,
        segment: &Arrival<'_>,
        effect: &mut Effect,
    ) -> bool {
        #[cfg(test)]
        if OFF.get() {
            return false;
        }
        let header = segment.header;
        let Some(ack) = header.ack else { return false };
        let (len, una) = (segment.len(), self.snd.una);
        let plain = header.window > 0
            && header.flags == Flags { psh: header.flags.psh, ..Flags::default() }
            && header.urgent.is_none()
            && header.options.sack.as_slice().is_empty()
            && !segment.congestion_experienced;
        let new = ack.after(una);
        let expected = plain
            && self.phase == Phase::Established
            && (new || (ack == una && len > 0))
            && ack.at_or_before(self.snd.nxt)
            && self.snd.is_calm()
            && self.rcv.expects(header.seq, len)
            && !self.has_no_reader();
        if !expected {
            return false;
        }
        let timestamps = match (self.timestamps, header.options.timestamps) {
            (false, _) => None,
            (true, None) => return false,
            (true, Some(timestamps)) if self.rcv.outdated(now, timestamps) => return false,
            (true, Some(timestamps)) => Some(timestamps),
        };
        if self.snd.take_window(header.seq, ack, header.window) && self.snd.board.is_empty() {
            self.snd.backoff = 0;
        }
        if let Some(timestamps) = timestamps {
            self.rcv.note_timestamp(now, header.seq, timestamps);
        }
        self.note_arrival(now);
        let echoed = timestamps.and_then(|Timestamps { echo, .. }| super::echo_ms(now, timestamp_offset, echo));
        effect.acked = self.snd.take_calm_ack(now, ack, echoed);
        if len > 0 {
            self.rcv.take_expected(now, len, effect);
        }
        true
    }
}

impl Sender {
    /// Nothing is lost, repeated, probed or in doubt.
    #[inline]
    fn is_calm(&self) -> bool {
        matches!(self.recovery, Recovery::Open)
            && self.board.sacked() == 0
            && self.board.lost() == 0
            && self.dupacks == 0
            && self.undo.is_none()
            && self.frto == Frto::Off
            && self.tail_probe.is_none()
            && self.search.probe.is_none()
            && self.urgent.is_none()
            && self.window > 0
    }

    /// Takes what an acknowledgement in order acknowledges, which may be nothing. Says how many bytes leave the buffer.
    #[inline]
    fn take_calm_ack(&mut self, now: Instant, ack: SeqNumber, echoed_ms: Option<u64>) -> u32 {
        self.board.forget_told();
        self.pto_from = now;
        if self.board.is_empty() {
            self.retries = 0;
        }
        if ack == self.una {
            self.rearm_if_needed(now);
            return 0;
        }
        let (flight, before) = (self.pipe(), self.buffered());
        let sent_before = echoed_ms.map(|ms| super::after_tick(now, ms));
        let mut delivery = Delivery::new(now, self.rtt.min(), sent_before);
        self.board.acknowledge(ack, &mut delivery);
        self.una = ack;
        (self.backoff, self.retries) = (0, 0);
        (self.rto_from, self.progress_at) = (now, now);
        if let Some(rtt) = delivery.rtt.or(echoed_ms.map(|ms| Duration::from_millis(ms.max(1)))) {
            self.rtt.sample(now, rtt);
        }
        if self.board.is_empty() {
            self.reorder_due = None;
            self.grow(now, delivery.bytes, flight, delivery.rtt);
        } else {
            self.find_losses(now);
            self.step(now, true, delivery, flight);
        }
        self.rearm_if_needed(now);
        before - self.buffered()
    }

    #[inline]
    fn rearm_if_needed(&mut self, now: Instant) {
        if self.board.is_empty() && self.unsent() == 0 && !self.fin {
            self.timer = None;
        } else {
            self.rearm(now);
        }
    }
}

impl Receiver {
    /// Takes payload that is next in order and fits, where there are no gaps.
    #[inline]
    fn take_expected(&mut self, now: Instant, len: u32, effect: &mut Effect) {
        effect.place = Some(Placement { from: 0, ahead: 0, len });
        effect.deliver = len;
        self.advance(len);
        self.note_arrival(now, len);
        self.schedule_ack(now, false);
    }
}
