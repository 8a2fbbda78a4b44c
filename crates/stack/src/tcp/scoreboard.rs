//! The list of segments that were sent and are not yet acknowledged, for SACK (RFC 2018, 6675) and RACK (RFC 8985).
//!
//! Every byte between SND.UNA and SND.NXT lies in one entry, which is in flight, SACKed or marked lost. The pipe is the number of
//! bytes in flight. The work per ACK is bounded, because the number of entries is limited. Only those parts of a SACK block are
//! processed that the previous ACK did not report.

use super::queue::Queue;
use super::rtt::Rtt;
use crate::limits::{TCP_SENT_ENTRIES_MAX, TCP_SENT_MAX};
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Block, SackBlocks, SeqNumber};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Flying,
    Sacked,
    Lost,
}

/// An entry of the list: bytes that were sent at the same time, in one segment, or in one large segment that a link cuts into
/// several.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sent {
    start: SeqNumber,
    end: SeqNumber,
    at: Instant,
    fate: Fate,
    repeated: bool,
}

impl Sent {
    fn len(&self) -> u32 {
        self.block().bytes()
    }

    fn block(&self) -> Block {
        Block { start: self.start, end: self.end }
    }

    /// Returns the number of segments in the entry. Division is left to large segments, because it is slow.
    #[inline]
    fn segments(&self, segment_bytes: u32) -> u32 {
        if self.len() <= segment_bytes { 1 } else { self.len().div_ceil(segment_bytes) }
    }
}

/// What one ACK reports about the segments that it newly acknowledges.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivery {
    now: Instant,
    min_rtt: Duration,
    /// A time before which the acknowledged segment was sent, according to the timestamp that the ACK echoes.
    sent_before: Option<Instant>,
    /// Number of bytes that the ACK newly acknowledges, cumulatively or by SACK.
    pub(super) bytes: u32,
    /// Round-trip time of the last newly acknowledged segment that was sent only once.
    pub(super) rtt: Option<Duration>,
    /// Round-trip time of the first such segment.
    pub(super) rtt_oldest: Option<Duration>,
    /// Lowest end (sequence number) among the newly acknowledged segments that were sent only once.
    pub(super) original: Option<SeqNumber>,
    /// Whether some of the newly acknowledged segments were retransmitted.
    pub(super) repeated: bool,
    /// Number of newly acknowledged segments, and the payload of a full segment, from which this number follows.
    pub(super) segments: u32,
    segment_bytes: u32,
    /// Whether a segment was delivered after a later one, although it was sent only once.
    pub(super) reordered: bool,
}

/// What an ACK reports that acknowledges the only outstanding entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct OnlyDelivery {
    pub(super) bytes: u32,
    pub(super) segments: u32,
    pub(super) rtt: Duration,
}

/// Numbers of outstanding segments.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) unacked: u32,
    pub(super) sacked: u32,
    pub(super) lost: u32,
    /// Retransmitted segments in flight.
    pub(super) repeated: u32,
}

impl Delivery {
    pub(super) fn new(now: Instant, min_rtt: Duration, sent_before: Option<Instant>, segment_bytes: u32) -> Self {
        Self { now, min_rtt, sent_before, segment_bytes, ..Self::default() }
    }
}

/// RACK's variables (RFC 8985 section 5.2).
#[derive(Debug, Default)]
struct Rack {
    /// The delivered segment that was sent last: RACK.xmit_ts, RACK.end_seq, and whether it was a retransmission.
    newest: Option<(Instant, SeqNumber, bool)>,
    /// RACK.rtt: round-trip time of the segment in `newest`.
    rtt: Duration,
    /// RACK.fack: the highest sequence number at which a delivered segment ends.
    highest: Option<SeqNumber>,
    reordering_seen: bool,
    /// RACK.reo_wnd_mult - 1: how often the reordering window (RACK.reo_wnd) was widened since it was last at its minimum.
    window_mult: u8,
    /// RACK.reo_wnd_persist: RACK.reo_wnd shrinks to its minimum after this many more recoveries without a DSACK.
    persist: u8,
    /// RACK.dsack_round: until this sequence number is acknowledged, no other DSACK widens RACK.reo_wnd. So RACK.reo_wnd is
    /// widened at most once per round trip.
    widened_until: Option<SeqNumber>,
}

impl Rack {
    /// Updates the variables for a delivered entry, unless its round-trip time is that of another transmission.
    #[inline]
    fn deliver(&mut self, sent: &Sent, rtt: Duration) {
        self.highest = Some(self.highest.map_or(sent.end, |highest| highest.later(sent.end)));
        let newer = |(at, end, _): (Instant, SeqNumber, bool)| sent.at > at || (sent.at == at && sent.end.after(end));
        if self.newest.is_none_or(newer) {
            self.newest = Some((sent.at, sent.end, sent.repeated));
            self.rtt = rtt;
        }
    }
}

/// Limit of `Rack::window_mult`. It only prevents an overflow, because SRTT limits RACK.reo_wnd itself.
const WINDOW_MULT_MAX: u8 = 64;
/// Number of recoveries without a DSACK after which RACK.reo_wnd is back at its minimum (RFC 8985 section 6.2).
const PERSIST_RECOVERIES: u8 = 16;

#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Scoreboard {
    pub(super) sent: Queue<Sent>,
    /// Number of bytes in flight (the pipe).
    pub(super) flying: u32,
    pub(super) sacked: u32,
    pub(super) lost: u32,
    /// Sequence number before which no entry is marked lost.
    cursor: SeqNumber,
    rack: Rack,
    sacked_segments: u32,
    /// SACK blocks of the previous ACK, if it carried some.
    reported: Option<Box<SackBlocks>>,
    /// Entries that were marked lost since the last [`Scoreboard::take_losses`], if the congestion control needs them.
    loss_log: Option<Box<LossLog>>,
}

/// Entries that were marked lost. A box of its own keeps the list of sent segments small for connections without this log.
#[derive(Debug, Default)]
struct LossLog {
    losses: Vec<Loss>,
}

/// An entry that was marked lost.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loss {
    pub(super) sent_at: Instant,
    pub(super) bytes: u32,
}

impl Scoreboard {
    /// Returns an empty list. `first` is the sequence number of the first byte that will be sent.
    pub(super) fn new(first: SeqNumber) -> Self {
        Self { cursor: first, ..Self::default() }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Sets whether entries that are marked lost are remembered for [`Scoreboard::take_losses`].
    pub(super) fn set_loss_log(&mut self, on: bool) {
        self.loss_log = on.then(Box::default);
    }

    /// Returns the entries that were marked lost since the last call.
    pub(super) fn take_losses(&mut self) -> Vec<Loss> {
        self.loss_log.as_mut().map(|log| std::mem::take(&mut log.losses)).unwrap_or_default()
    }

    /// Returns when the delivered segment was sent that was sent last, and where it ends.
    pub(super) fn newest_delivered(&self) -> Option<(Instant, SeqNumber)> {
        self.rack.newest.map(|(at, end, _)| (at, end))
    }

    /// Returns when the oldest outstanding segment was sent.
    pub(super) fn oldest_sent_at(&self) -> Option<Instant> {
        self.sent.iter().map(|sent| sent.at).min()
    }

    /// Returns whether the list has exactly one entry.
    #[inline]
    pub(super) fn has_one(&self) -> bool {
        self.sent.len() == 1
    }

    /// Returns whether new data has to wait because the list is full.
    pub(super) fn is_full(&self) -> bool {
        self.sent.len() >= usize::from(TCP_SENT_MAX)
    }

    pub(super) fn first_len(&self) -> u32 {
        self.sent.front().map_or(0, Sent::len)
    }

    /// Returns the last entry, which a tail-loss probe retransmits.
    pub(super) fn tail(&self) -> Option<Block> {
        self.sent.back().map(Sent::block)
    }

    /// Splits the last entry at `start`, a sequence number inside that entry.
    pub(super) fn cut_tail(&mut self, start: SeqNumber) {
        if self.tail().is_some_and(|tail| tail.start.before(start)) {
            self.split(self.sent.len() - 1, start);
        }
    }

    /// Adds an entry for a segment that is sent for the first time.
    pub(super) fn push(&mut self, now: Instant, start: SeqNumber, end: SeqNumber) {
        self.flying += end.since(start);
        self.sent.push_back(Sent { start, end, at: now, fate: Fate::Flying, repeated: false });
    }

    pub(super) fn first_lost(&self) -> Option<Block> {
        if self.lost == 0 {
            return None;
        }
        let from = self.sent.partition_point(|sent| sent.end.at_or_before(self.cursor));
        self.sent.iter_from(from).find(|sent| sent.fate == Fate::Lost).map(Sent::block)
    }

    /// Returns the length in bytes of the segment that began at `seq`. `None` if no outstanding segment began there, or if it is
    /// SACKed. An entry may contain several segments of `segment_bytes`.
    pub(super) fn segment_at(&self, seq: SeqNumber, segment_bytes: u32) -> Option<u32> {
        let sent = self.holder(seq).filter(|sent| sent.fate != Fate::Sacked)?;
        let before = seq.since(sent.start);
        before.is_multiple_of(segment_bytes).then(|| (sent.len() - before).min(segment_bytes))
    }

    /// Returns whether the byte at `seq` is marked lost.
    pub(super) fn is_lost(&self, seq: SeqNumber) -> bool {
        self.holder(seq).is_some_and(|sent| sent.fate == Fate::Lost)
    }

    /// Returns the entry that contains the byte at `seq`.
    fn holder(&self, seq: SeqNumber) -> Option<&Sent> {
        let at = self.sent.partition_point(|sent| sent.end.at_or_before(seq));
        self.sent.get(at).filter(|sent| sent.start.at_or_before(seq))
    }

    /// Records that the entry at `start` was retransmitted up to `end`. If the entry is longer, it is split at `end`.
    pub(super) fn repeat(&mut self, now: Instant, start: SeqNumber, end: SeqNumber) {
        let at = self.sent.partition_point(|sent| sent.end.at_or_before(start));
        if self.sent.get(at).is_some_and(|sent| end.before(sent.end)) {
            self.split(at, end);
        }
        // A tail-loss probe retransmits the last entry, even while earlier entries are lost. The cursor then stays at these earlier
        // entries, which still have to be retransmitted.
        let first = self.first_lost().is_none_or(|lost| lost.start.at_or_after(start));
        self.set(at, Fate::Flying);
        if let Some(sent) = self.sent.get_mut(at) {
            (sent.at, sent.repeated) = (now, true);
            self.cursor = if first { sent.start } else { self.cursor };
        }
    }

    /// Joins the lost entry at `start` with the lost entries that follow it, up to the sequence number `end_max`. Returns the joined
    /// entry.
    pub(super) fn join_lost(&mut self, start: SeqNumber, end_max: SeqNumber) -> Option<Block> {
        let at = self.sent.partition_point(|sent| sent.end.at_or_before(start));
        let lost = |sent: &&Sent| sent.fate == Fate::Lost;
        self.sent.get(at).filter(lost)?;
        while let Some(&next) = self.sent.get(at + 1).filter(lost)
            && next.end.at_or_before(end_max)
            && let Some(first) = self.sent.get_mut(at)
        {
            first.end = next.end;
            first.repeated |= next.repeated;
            self.sent.remove_behind(at);
        }
        self.sent.get(at).map(Sent::block)
    }

    /// Marks the first entry lost, and all others that were sent at `sent_by` or before and are not SACKed. If the first entry is
    /// SACKed, the peer has reneged: then all SACKs are discarded, and all entries are marked lost (RFC 2018 section 8). Returns
    /// whether the peer reneged.
    pub(super) fn lose_all(&mut self, sent_by: Instant) -> bool {
        let reneged = self.sent.front().is_some_and(|sent| sent.fate == Fate::Sacked);
        if reneged {
            self.reported = None;
        }
        for at in 0..self.sent.len() {
            let late = |sent: &Sent| sent.fate == Fate::Flying && (at == 0 || sent.at <= sent_by);
            if reneged || self.sent.get(at).is_some_and(late) {
                self.set(at, Fate::Lost);
            }
        }
        reneged
    }

    /// Returns how long a segment may be in flight before a retransmission timeout counts it as lost: RACK.rtt + RACK.reo_wnd (RFC
    /// 8985 section 6.3).
    pub(super) fn reorder_wait(&self, recovering: bool, rtt: &Rtt, dup_thresh: u32) -> Duration {
        let flight = if self.rack.newest.is_some() { self.rack.rtt } else { rtt.smoothed().unwrap_or_default() };
        flight + self.reorder_window(recovering, rtt, dup_thresh)
    }

    /// Counts all entries that are marked lost as in flight again, because the loss detection was wrong. Clears RACK.xmit_ts if a
    /// retransmission set it, because the retransmission was needless. `reordered` is true if reordering misled the loss detection.
    pub(super) fn retract_losses(&mut self, reordered: bool) {
        for at in 0..self.sent.len() {
            if self.sent.get(at).is_some_and(|sent| sent.fate == Fate::Lost) {
                self.set(at, Fate::Flying);
            }
        }
        self.rack.newest.take_if(|(_, _, repeated)| *repeated);
        self.rack.reordering_seen |= reordered;
    }

    /// Marks the first entry lost if it is in flight. Loss detection without SACK calls this (RFC 6582).
    pub(super) fn lose_first(&mut self) {
        if self.sent.front().is_some_and(|sent| sent.fate == Fate::Flying) {
            self.set(0, Fate::Lost);
        }
    }

    /// Processes a cumulative ACK of all bytes before `una`, and counts the newly acknowledged segments in `delivery`.
    pub(super) fn acknowledge(&mut self, una: SeqNumber, delivery: &mut Delivery) {
        while let Some(&sent) = self.sent.front()
            && sent.start.before(una)
        {
            if una.before(sent.end) {
                self.split(0, una);
                continue;
            }
            if sent.fate != Fate::Sacked {
                self.deliver(&sent, delivery);
            }
            self.forget(&sent);
            self.sent.pop_front();
        }
        if self.cursor.before(una) {
            self.cursor = una;
        }
    }

    /// Like [`Scoreboard::acknowledge`], if exactly one entry is outstanding, in flight, sent only once, and ends at `una`. Returns the
    /// payload of the entry in bytes, its number of segments and its round-trip time. Otherwise changes nothing and returns `None`.
    /// This is the usual case of an exchange of single messages.
    #[inline]
    pub(super) fn acknowledge_only(
        &mut self,
        now: Instant,
        una: SeqNumber,
        segment_bytes: u32,
    ) -> Option<OnlyDelivery> {
        let &sent = self.sent.only()?;
        // An entry that is delivered after a later one shows reordering.
        let is_late = self.rack.highest.is_some_and(|highest| una.before(highest));
        if sent.end != una || sent.fate != Fate::Flying || sent.repeated || is_late {
            return None;
        }
        let rtt = now.since(sent.at);
        self.rack.deliver(&sent, rtt);
        self.flying -= sent.len();
        self.sent.pop_front();
        if self.cursor.before(una) {
            self.cursor = una;
        }
        Some(OnlyDelivery { bytes: sent.len(), segments: sent.segments(segment_bytes), rtt })
    }

    /// Counts the outstanding segments.
    pub(super) fn tally(&self, segment_bytes: u32) -> Tally {
        let mut tally = Tally::default();
        for sent in self.sent.iter() {
            let segments = sent.segments(segment_bytes);
            tally.unacked += segments;
            match sent.fate {
                Fate::Flying if sent.repeated => tally.repeated += segments,
                Fate::Flying => {}
                Fate::Sacked => tally.sacked += segments,
                Fate::Lost => tally.lost += segments,
            }
        }
        tally
    }

    /// Returns whether any entry is lost or SACKed, or the previous ACK carried SACK blocks.
    pub(super) fn has_sack_state(&self) -> bool {
        self.sacked > 0 || self.lost > 0 || self.reported.is_some()
    }

    /// Processes an ACK without SACK blocks: forgets the blocks of the previous ACK.
    pub(super) fn forget_reported(&mut self) {
        self.reported = None;
    }

    /// Processes SACK blocks that lie between SND.UNA and SND.NXT. Entries are split only at multiples of `segment_bytes`, so
    /// that a peer cannot split the list into many small entries.
    pub(super) fn sack(&mut self, blocks: &SackBlocks, segment_bytes: u32, delivery: &mut Delivery) {
        let reported = self.reported.get_or_insert_default();
        let known = std::mem::replace(&mut **reported, *blocks);
        // As in Linux, the ranges count in the order of their sequence numbers. Otherwise a range that the peer reports behind a higher
        // one would seem to have arrived later.
        let first = self.sent.front().map_or(self.cursor, |sent| sent.start);
        let mut ranges = *blocks;
        ranges.sort_from(first);
        for &Block { start, end } in ranges.as_slice() {
            let within = |old: &&Block| old.start.at_or_after(start) && old.end.at_or_before(end);
            match known.as_slice().iter().find(within) {
                Some(old) => {
                    self.sack_range(Block { start, end: old.start }, segment_bytes, delivery);
                    self.sack_range(Block { start: old.end, end }, segment_bytes, delivery);
                }
                None => self.sack_range(Block { start, end }, segment_bytes, delivery),
            }
        }
    }

    fn sack_range(&mut self, Block { start, end }: Block, segment_bytes: u32, delivery: &mut Delivery) {
        if start.at_or_after(end) {
            return;
        }
        let mut at = self.sent.partition_point(|sent| sent.end.at_or_before(start));
        while let Some(&sent) = self.sent.get(at)
            && sent.start.before(end)
        {
            if sent.fate == Fate::Sacked {
                at += 1;
                continue;
            }
            if sent.start.before(start) {
                let skip = start.since(sent.start).next_multiple_of(segment_bytes);
                if skip < sent.len() && self.sent.len() < TCP_SENT_ENTRIES_MAX {
                    self.split(at, sent.start + skip);
                }
                at += 1;
                continue;
            }
            if end.before(sent.end) {
                let keep = end.since(sent.start) / segment_bytes * segment_bytes;
                if keep == 0 || self.sent.len() >= TCP_SENT_ENTRIES_MAX {
                    return;
                }
                self.split(at, sent.start + keep);
                continue;
            }
            self.deliver(&sent, delivery);
            self.set(at, Fate::Sacked);
            at += 1;
        }
    }

    /// Widens RACK.reo_wnd, because a DSACK reported a needless retransmission (RFC 8985 section 6.2 step 4). This happens at
    /// most once per round trip.
    pub(super) fn duplicate_reported(&mut self, una: SeqNumber, nxt: SeqNumber) {
        // If `until` is beyond SND.NXT, it is stale, because sequence numbers have wrapped around since then.
        if self.rack.widened_until.is_none_or(|until| una.at_or_after(until) || until.after(nxt)) {
            self.rack.window_mult = (self.rack.window_mult + 1).min(WINDOW_MULT_MAX);
            self.rack.persist = PERSIST_RECOVERIES;
            self.rack.widened_until = Some(nxt);
        }
    }

    pub(super) fn recovered(&mut self) {
        self.rack.persist = self.rack.persist.saturating_sub(1);
        if self.rack.persist == 0 {
            self.rack.window_mult = 0;
        }
    }

    /// RACK_detect_loss: marks an entry lost if it should have arrived, because an entry that was sent later was delivered.
    /// Returns when to check again, or `None` if the list has no entry to check. `rtt` provides the minimum and the smoothed RTT.
    pub(super) fn detect_loss(
        &mut self,
        now: Instant,
        recovering: bool,
        rtt: &Rtt,
        dup_thresh: u32,
    ) -> Option<Instant> {
        let (newest_at, newest_end, repetition) = self.rack.newest?;
        let wait = self.rack.rtt + self.reorder_window(recovering, rtt, dup_thresh);
        let mut next: Option<Instant> = None;
        let mut at = 0;
        while let Some(&sent) = self.sent.get(at) {
            // If two segments were sent at the same time, sequence numbers order them only if both are new or both are
            // retransmissions.
            let same = sent.at == newest_at && sent.repeated == repetition;
            let older = sent.at < newest_at || (same && sent.end.before(newest_end));
            if !older && !sent.repeated {
                break;
            }
            if older && sent.fate == Fate::Flying {
                let due = sent.at + wait;
                if due <= now {
                    self.set(at, Fate::Lost);
                } else {
                    next = Some(next.map_or(due, |next| next.max(due)));
                }
            }
            at += 1;
        }
        next
    }

    fn reorder_window(&self, recovering: bool, rtt: &Rtt, dup_thresh: u32) -> Duration {
        if !self.rack.reordering_seen && (recovering || self.sacked_segments >= dup_thresh) {
            return Duration::ZERO;
        }
        (rtt.min / 4 * (u32::from(self.rack.window_mult) + 1)).min(rtt.smoothed().unwrap_or_default())
    }

    fn deliver(&mut self, sent: &Sent, delivery: &mut Delivery) {
        delivery.bytes += sent.len();
        delivery.segments += sent.segments(delivery.segment_bytes);
        let rtt = delivery.now.since(sent.at);
        let rack = &mut self.rack;
        if sent.repeated {
            delivery.repeated = true;
            if rtt < delivery.min_rtt || delivery.sent_before.is_some_and(|before| sent.at >= before) {
                // The ACK answers an earlier transmission of this entry, so RACK ignores the round-trip time (RFC 8985 section
                // 6.2 step 2).
                return;
            }
        } else {
            delivery.rtt = Some(rtt);
            delivery.rtt_oldest = delivery.rtt_oldest.or(Some(rtt));
            delivery.original = Some(delivery.original.map_or(sent.end, |end| end.earlier(sent.end)));
            if rack.highest.is_some_and(|highest| sent.end.before(highest)) {
                rack.reordering_seen = true;
                delivery.reordered = true;
            }
        }
        rack.deliver(sent, rtt);
    }

    fn split(&mut self, at: usize, middle: SeqNumber) {
        let Some(sent) = self.sent.get_mut(at) else { return };
        let mut rest = *sent;
        sent.end = middle;
        rest.start = middle;
        if rest.fate == Fate::Sacked {
            self.sacked_segments += 1;
        }
        self.sent.insert_behind(at, rest);
    }

    fn set(&mut self, at: usize, fate: Fate) {
        let Some(entry) = self.sent.get_mut(at) else { return };
        let sent = *entry;
        entry.fate = fate;
        self.forget(&sent);
        match fate {
            Fate::Flying => self.flying += sent.len(),
            Fate::Sacked => {
                self.sacked += sent.len();
                self.sacked_segments += 1;
            }
            Fate::Lost => {
                if let Some(log) = &mut self.loss_log {
                    log.losses.push(Loss { sent_at: sent.at, bytes: sent.len() });
                }
                self.lost += sent.len();
                self.cursor = self.cursor.earlier(sent.start);
            }
        }
    }

    fn forget(&mut self, sent: &Sent) {
        match sent.fate {
            Fate::Flying => self.flying -= sent.len(),
            Fate::Sacked => {
                self.sacked -= sent.len();
                self.sacked_segments -= 1;
            }
            Fate::Lost => self.lost -= sent.len(),
        }
    }

    /// Asserts the invariants of the list.
    pub(super) fn check(&self) {
        let of = |fate| self.sent.iter().filter(|sent| sent.fate == fate).map(Sent::len).sum::<u32>();
        assert_eq!((self.flying, self.sacked, self.lost), (of(Fate::Flying), of(Fate::Sacked), of(Fate::Lost)));
        let pairs = self.sent.iter().zip(self.sent.iter().skip(1));
        assert!(pairs.clone().all(|(a, b)| a.end == b.start) && self.sent.iter().all(|sent| sent.len() > 0));
        let first_lost = self.sent.iter().find(|sent| sent.fate == Fate::Lost).map(Sent::block);
        assert_eq!(self.first_lost(), first_lost);
    }
}

#[cfg(test)]
mod tests;
