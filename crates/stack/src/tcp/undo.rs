//! Taking back what a reduction took where nothing was lost: segments were late, or acknowledgements were.
//!
//! Three witnesses, as Linux hears them: duplicates that the peer tells by DSACK (RFC 2883, RFC 3708), an acknowledgement that
//! echoes a time before the first repetition (Eifel, RFC 3522), and after a timeout an acknowledgement of what was sent only once
//! (F-RTO, RFC 5682, in its form for SACK). Window, threshold and the congestion control's memory are restored; what counted
//! as lost flies on, so that a late flight is not sent a second time.

use super::recovery::Recovery;
use super::scoreboard::Delivery;
use super::sender::{Ack, Sender};
use crate::time::Instant;
use crate::wire::tcp::{Block, SeqNumber};

/// Bytes acknowledged after which a reduction is too long ago to be judged; below half the sequence space.
const UNDO_BYTES_MAX: u32 = 1 << 30;

/// What the latest reduction took, and what is known of its reason.
#[derive(Debug)]
pub(super) struct Undo {
    window: u32,
    threshold: u32,
    /// SND.UNA at the reduction.
    marker: SeqNumber,
    /// When the first repetition went.
    repeated_at: Option<Instant>,
    /// Bytes repeated since.
    repeated: u32,
    /// Bytes of them that the peer had already.
    told: u32,
}

/// How far F-RTO has come (RFC 5682 section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frto {
    /// The timeout counts as real, or there was none.
    Off,
    /// The first segment was repeated.
    Repeated,
    /// That was acknowledged: data never sent goes next, and what answers it decides.
    Fresh,
}

impl Sender {
    /// A loss was found: the threshold falls, and what it was is kept.
    pub(super) fn reduce_for_loss(&mut self) {
        let probe = self.tail_probe.is_some_and(|(_, repeated)| repeated);
        self.undo = Some(Undo {
            window: self.cwnd,
            threshold: self.ssthresh,
            marker: self.una,
            repeated_at: None,
            repeated: if probe { self.segment_bytes } else { 0 },
            told: 0,
        });
        let window = self.congestion_window();
        self.ssthresh = self.control().reduce(window);
        // RFC 3168 section 6.1.2: whatever the reason, the peer is told.
        self.cwr_due = self.ecn;
    }

    /// Notes a segment sent again.
    pub(super) fn note_repetition(&mut self, now: Instant, bytes: u32) {
        self.repeated_segments += 1;
        self.repeated_bytes += u64::from(bytes);
        if let Some(undo) = &mut self.undo {
            undo.repeated_at.get_or_insert(now);
            undo.repeated = undo.repeated.saturating_add(bytes);
        }
    }

    /// The peer told by DSACK of bytes that came twice. More of them than were repeated are the network's doing.
    pub(super) fn note_duplicate(&mut self, (start, end): Block) {
        let bytes = end.since(start);
        self.duplicate_bytes += u64::from(bytes);
        if self.duplicate_bytes > self.repeated_bytes {
            return;
        }
        if self.tail_probe != Some((end, true)) {
            self.board.duplicate_reported(self.una, self.nxt);
        }
        if let Some(undo) = &mut self.undo
            && end.after(undo.marker)
            && end.at_or_before(self.una)
        {
            undo.told = undo.told.saturating_add(bytes);
        }
    }

    /// A reduction before which so much was acknowledged is not judged any more.
    #[inline]
    pub(super) fn forget_old_reduction(&mut self) {
        self.undo.take_if(|undo| self.una.since(undo.marker) > UNDO_BYTES_MAX);
    }

    /// Judges the latest reduction by an acknowledgement that was just taken.
    pub(super) fn judge_reduction(&mut self, ack: &Ack<'_>, advanced: bool, duplicate: bool, delivery: &Delivery) {
        self.forget_old_reduction();
        let Some(undo) = &self.undo else { return };
        let recovering = advanced && self.una.after(undo.marker) && !matches!(self.recovery, Recovery::Open);
        let before = undo.repeated_at.zip(ack.sent_before).is_some_and(|(repeated, before)| repeated >= before);
        let all_duplicates_reported = undo.told > 0 && undo.told >= undo.repeated;
        let late = (recovering && before) || self.frto_original(delivery);
        if late || all_duplicates_reported {
            self.undo_reduction(late);
            return;
        }
        self.advance_frto(advanced, duplicate, delivery);
    }

    /// Something that was sent once arrived although all had been taken for lost. Without SACK it may have been there before.
    fn frto_original(&self, delivery: &Delivery) -> bool {
        let Recovery::Loss(recover) = &self.recovery else { return false };
        self.frto != Frto::Off
            && (self.sack || !delivery.repeated)
            && delivery.original.is_some_and(|end| end.at_or_before(*recover))
    }

    fn advance_frto(&mut self, advanced: bool, duplicate: bool, delivery: &Delivery) {
        match self.frto {
            Frto::Off => {}
            Frto::Repeated if advanced => {
                let fresh = self.unsent() > 0 && self.usable_window() > 0;
                self.frto = if fresh { Frto::Fresh } else { Frto::Off };
            }
            // What was sent after the timeout overtook: the rest is lost.
            Frto::Fresh if !advanced && (duplicate || delivery.bytes > 0) => self.frto = Frto::Off,
            Frto::Repeated | Frto::Fresh => {}
        }
    }

    fn undo_reduction(&mut self, late: bool) {
        let Some(undo) = self.undo.take() else { return };
        self.cwnd = self.cwnd.max(undo.window);
        self.ssthresh = self.ssthresh.max(undo.threshold);
        self.control().undo();
        self.cwr_due = false;
        let fast = matches!(self.recovery, Recovery::Fast(_));
        if !matches!(self.recovery, Recovery::Open) {
            self.board.retract_losses(late && fast);
            self.recovery = Recovery::Open;
        }
        (self.frto, self.dupacks) = (Frto::Off, 0);
        self.undone_reductions += 1;
    }
}
