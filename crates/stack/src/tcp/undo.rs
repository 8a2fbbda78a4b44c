//! Undoes a reduction of cwnd if the reduction was spurious: nothing was lost, and segments or ACKs were only late.
//!
//! As in Linux, each of three signals shows that a reduction was spurious:
//!
//! * DSACKs report every retransmitted byte as a duplicate (RFC 2883, RFC 3708).
//! * An ACK echoes a timestamp from before the first retransmission (Eifel, RFC 3522).
//! * After an RTO, an ACK covers data that was sent only once (F-RTO, RFC 5682, SACK variant).
//!
//! cwnd, ssthresh and the congestion control's state are then restored. Segments marked lost count as in flight again,
//! so that they are not sent twice.

use super::recovery::Recovery;
use super::scoreboard::Delivery;
use super::sender::{Ack, Sender};
use crate::time::Instant;
use crate::wire::tcp::{Block, SeqNumber};

/// Once this many bytes were acknowledged after a reduction, the reduction can no longer be undone. The limit is less than half
/// the sequence space, so that sequence numbers can be compared.
const UNDO_BYTES_MAX: u32 = 1 << 30;

/// The latest reduction of cwnd: the values before the reduction, and the evidence whether it was spurious.
#[derive(Debug)]
pub(super) struct Undo {
    window: u32,
    threshold: u32,
    /// SND.UNA at the reduction.
    marker: SeqNumber,
    /// When the first retransmission after the reduction was sent.
    repeated_at: Option<Instant>,
    /// Number of bytes that were retransmitted since the reduction.
    repeated: u32,
    /// Number of these retransmitted bytes that DSACKs reported as duplicates.
    duplicate_bytes: u32,
}

/// The step of F-RTO (RFC 5682 section 3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Frto {
    /// No RTO has expired, or the RTO counts as genuine.
    Off,
    /// After an RTO, the first segment was retransmitted.
    Repeated,
    /// The retransmitted segment was acknowledged. New data is sent next, and its ACK shows whether the RTO was spurious.
    Fresh,
}

impl Sender {
    /// Reduces ssthresh after a loss, and saves the values before the reduction for an undo.
    pub(super) fn reduce_for_loss(&mut self) {
        let probe = self.tail_probe.is_some_and(|(_, repeated)| repeated);
        self.undo = Some(Box::new(Undo {
            window: self.cwnd,
            threshold: self.ssthresh,
            marker: self.una,
            repeated_at: None,
            repeated: if probe { self.segment_bytes } else { 0 },
            duplicate_bytes: 0,
        }));
        let window = self.congestion_window();
        self.ssthresh = self.control().reduce(window);
        // RFC 3168 section 6.1.2: CWR announces every reduction of cwnd, whatever its reason.
        self.cwr_due = self.ecn;
    }

    pub(super) fn note_repetition(&mut self, now: Instant, bytes: u32) {
        let history = self.rare.edit();
        history.repeated_segments += 1;
        history.repeated_bytes += u64::from(bytes);
        if let Some(undo) = &mut self.undo {
            undo.repeated_at.get_or_insert(now);
            undo.repeated = undo.repeated.saturating_add(bytes);
        }
    }

    /// Processes a DSACK, which reports bytes that the peer received twice. If the peer reports more bytes than were
    /// retransmitted, the network duplicates segments, and the DSACK is ignored.
    pub(super) fn note_duplicate(&mut self, block: Block) {
        let (end, bytes) = (block.end, block.bytes());
        let history = self.rare.edit();
        history.duplicate_bytes += u64::from(bytes);
        history.duplicates = history.duplicates.wrapping_add(bytes.div_ceil(self.segment_bytes));
        if history.duplicate_bytes > history.repeated_bytes {
            return;
        }
        if self.tail_probe != Some((end, true)) {
            self.board.duplicate_reported(self.una, self.nxt);
        }
        if let Some(undo) = &mut self.undo
            && end.after(undo.marker)
            && end.at_or_before(self.una)
        {
            undo.duplicate_bytes = undo.duplicate_bytes.saturating_add(bytes);
        }
    }

    /// Forgets the latest reduction of cwnd if more than [`UNDO_BYTES_MAX`] bytes were acknowledged since then.
    #[inline]
    pub(super) fn forget_old_reduction(&mut self) {
        self.undo.take_if(|undo| self.una.since(undo.marker) > UNDO_BYTES_MAX);
    }

    /// Decides from an ACK that was just processed whether the latest reduction was spurious. Returns whether it was undone.
    pub(super) fn judge_reduction(
        &mut self,
        ack: &Ack<'_>,
        advanced: bool,
        duplicate: bool,
        delivery: &Delivery,
    ) -> bool {
        self.forget_old_reduction();
        let Some(undo) = &self.undo else { return false };
        let recovering = advanced && self.una.after(undo.marker) && !matches!(self.recovery, Recovery::Open);
        let before = undo.repeated_at.zip(ack.sent_before).is_some_and(|(repeated, before)| repeated >= before);
        let all_duplicates_reported = undo.duplicate_bytes > 0 && undo.duplicate_bytes >= undo.repeated;
        let late = (recovering && before) || self.frto_original(delivery);
        if late || all_duplicates_reported {
            self.undo_reduction(late, !(self.ecn && ack.ece));
            return true;
        }
        self.advance_frto(advanced, duplicate, delivery);
        false
    }

    /// Returns true if, after an RTO, the ACK covers data that was sent only once, before the RTO. The RTO was then spurious.
    /// Without SACK, an ACK that also covers retransmitted data does not count, because the data that was sent only once may have
    /// arrived before the RTO.
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
            // New data, which was sent after the RTO, arrived before the older outstanding data. So the older data is lost.
            Frto::Fresh if !advanced && (duplicate || delivery.bytes > 0) => self.frto = Frto::Off,
            Frto::Repeated | Frto::Fresh => {}
        }
    }

    /// Ends the recovery. RFC 4015 section 3.2: if the ACK echoes a mark, cwnd and ssthresh stay reduced, so `restores` is false.
    fn undo_reduction(&mut self, late: bool, restores: bool) {
        let Some(undo) = self.undo.take() else { return };
        if restores {
            self.cwnd = self.cwnd.max(undo.window);
            self.ssthresh = self.ssthresh.max(undo.threshold);
            self.control().undo();
            self.cwr_due = false;
        }
        let fast = matches!(self.recovery, Recovery::Fast(_));
        if !matches!(self.recovery, Recovery::Open) {
            self.board.retract_losses(late && fast);
            self.recovery = Recovery::Open;
        }
        (self.frto, self.dupacks) = (Frto::Off, 0);
        self.rare.edit().undone_reductions += 1;
    }
}
