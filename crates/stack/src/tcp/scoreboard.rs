//! What was sent and not yet acknowledged, segment by segment: SACK (RFC 2018, 6675) and RACK (RFC 8985) over one list.
//!
//! Every byte between SND.UNA and SND.NXT lies in one entry, which is flying, told received, or taken for lost. Pipe is the bytes
//! that fly. Work per acknowledgement is bounded by the entries, whose number has a bound, and a SACK block is walked only where
//! the last acknowledgement had not told it already.

use super::queue::Queue;
use crate::limits::{TCP_SENT_ENTRIES_MAX, TCP_SENT_MAX};
use crate::time::{Duration, Instant};
use crate::wire::tcp::{Block, SackBlocks, SeqNumber};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Flying,
    Sacked,
    Lost,
}

/// A segment as it was sent.
#[derive(Debug, Clone, Copy)]
struct Sent {
    start: SeqNumber,
    end: SeqNumber,
    at: Instant,
    fate: Fate,
    repeated: bool,
}

impl Sent {
    fn len(&self) -> u32 {
        self.end.since(self.start)
    }
}

/// What one acknowledgement told.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Delivery {
    now: Instant,
    min_rtt: Duration,
    /// By the timestamp it echoes, it answers something sent before this.
    sent_before: Option<Instant>,
    /// Bytes that it told received for the first time, cumulatively or by SACK.
    pub(super) bytes: u32,
    /// Round trip of the latest segment among them that was sent once.
    pub(super) rtt: Option<Duration>,
    /// Lowest end of those that were sent once.
    pub(super) original: Option<SeqNumber>,
    /// Some of them were sent more than once.
    pub(super) repeated: bool,
}

impl Delivery {
    pub(super) fn new(now: Instant, min_rtt: Duration, sent_before: Option<Instant>) -> Self {
        Self { now, min_rtt, sent_before, ..Self::default() }
    }
}

/// RACK's figures (RFC 8985 section 5.2).
#[derive(Debug, Default)]
struct Rack {
    /// RACK.xmit_ts, RACK.end_seq: the segment sent last among those delivered; and whether it was a repetition.
    newest: Option<(Instant, SeqNumber, bool)>,
    /// RACK.rtt.
    rtt: Duration,
    /// RACK.fack: highest end delivered.
    highest: Option<SeqNumber>,
    reordering_seen: bool,
    /// RACK.reo_wnd_mult.
    window_mult: u32,
    /// RACK.reo_wnd_persist: recoveries without a DSACK until the window is small again.
    persist: u8,
    /// RACK.dsack_round: one DSACK counts for a round trip.
    widened_until: Option<SeqNumber>,
}

/// RACK.reo_wnd is limited by the smoothed round trip anyway; this keeps its factor a number.
const WINDOW_MULT_MAX: u32 = 64;
/// RACK.reo_wnd is back at its least after so many recoveries (RFC 8985 section 6.2).
const PERSIST_RECOVERIES: u8 = 16;

/// The list.
#[derive(Debug, Default)]
#[repr(C)]
pub(super) struct Scoreboard {
    sent: Queue<Sent>,
    flying: u32,
    sacked: u32,
    lost: u32,
    /// Nothing before it is lost.
    cursor: SeqNumber,
    rack: Rack,
    sacked_segments: u32,
    /// Blocks of the last acknowledgement.
    told: SackBlocks,
}

impl Scoreboard {
    /// An empty list; the first byte will be `first`.
    pub(super) fn new(first: SeqNumber) -> Self {
        Self { cursor: first, ..Self::default() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    pub(super) fn count(&self) -> usize {
        self.sent.len()
    }

    /// Memory of the list.
    pub(super) fn bytes(&self) -> usize {
        self.sent.bytes()
    }

    /// There are as many entries as may be.
    pub(super) fn is_full(&self) -> bool {
        self.sent.len() >= usize::from(TCP_SENT_MAX)
    }

    /// Bytes of the first entry.
    pub(super) fn first_len(&self) -> u32 {
        self.sent.front().map_or(0, Sent::len)
    }

    /// Bytes in flight.
    pub(super) fn pipe(&self) -> u32 {
        self.flying
    }

    pub(super) fn sacked(&self) -> u32 {
        self.sacked
    }

    pub(super) fn lost(&self) -> u32 {
        self.lost
    }

    /// The last entry: what a tail-loss probe repeats.
    pub(super) fn tail(&self) -> Option<Block> {
        self.sent.back().map(|sent| (sent.start, sent.end))
    }

    /// Makes the last entry begin at `start`, which lies in it.
    pub(super) fn cut_tail(&mut self, start: SeqNumber) {
        if self.tail().is_some_and(|tail| tail.0.before(start)) {
            self.split(self.sent.len() - 1, start);
        }
    }

    /// Notes a segment sent for the first time.
    pub(super) fn push(&mut self, now: Instant, start: SeqNumber, end: SeqNumber) {
        self.flying += end.since(start);
        self.sent.push_back(Sent { start, end, at: now, fate: Fate::Flying, repeated: false });
    }

    /// The first lost entry.
    pub(super) fn first_lost(&self) -> Option<Block> {
        if self.lost == 0 {
            return None;
        }
        let from = self.sent.partition_point(|sent| sent.end.at_or_before(self.cursor));
        self.sent.iter_from(from).find(|sent| sent.fate == Fate::Lost).map(|sent| (sent.start, sent.end))
    }

    /// Bytes of the segment that began at `seq` and was not told received. An entry may hold several, of `segment_bytes` each.
    pub(super) fn segment_at(&self, seq: SeqNumber, segment_bytes: u32) -> Option<u32> {
        let sent = self.holder(seq).filter(|sent| sent.fate != Fate::Sacked)?;
        let before = seq.since(sent.start);
        before.is_multiple_of(segment_bytes).then(|| (sent.len() - before).min(segment_bytes))
    }

    /// Whether the byte at `seq` is taken for lost.
    pub(super) fn is_lost(&self, seq: SeqNumber) -> bool {
        self.holder(seq).is_some_and(|sent| sent.fate == Fate::Lost)
    }

    /// The entry that holds the byte at `seq`.
    fn holder(&self, seq: SeqNumber) -> Option<&Sent> {
        let at = self.sent.partition_point(|sent| sent.end.at_or_before(seq));
        self.sent.get(at).filter(|sent| sent.start.at_or_before(seq))
    }

    /// Notes that the entry at `start` was sent again, up to `end`, which may cut it.
    pub(super) fn repeat(&mut self, now: Instant, start: SeqNumber, end: SeqNumber) {
        let at = self.sent.partition_point(|sent| sent.end.at_or_before(start));
        if self.sent.get(at).is_some_and(|sent| end.before(sent.end)) {
            self.split(at, end);
        }
        // A probe of the tail is sent again before what is lost ahead of it.
        let first = self.first_lost().is_none_or(|lost| lost.0.at_or_after(start));
        self.set(at, Fate::Flying);
        if let Some(sent) = self.sent.get_mut(at) {
            (sent.at, sent.repeated) = (now, true);
            self.cursor = if first { sent.start } else { self.cursor };
        }
    }

    /// Takes everything that was not told received for lost (after a timeout, RFC 8985 section 6.3). If the first was told, the
    /// peer has let go of it since, and what else it told counts for nothing (RFC 2018 section 8); says whether it was.
    pub(super) fn lose_all(&mut self) -> bool {
        let reneged = self.sent.front().is_some_and(|sent| sent.fate == Fate::Sacked);
        if reneged {
            self.told = SackBlocks::default();
        }
        for at in 0..self.sent.len() {
            if reneged || self.sent.get(at).is_some_and(|sent| sent.fate == Fate::Flying) {
                self.set(at, Fate::Lost);
            }
        }
        reneged
    }

    /// Nothing that was taken for lost is: it flies on. What RACK knows came of repetitions and is forgotten. `reordered`: a late
    /// segment was what made it seem so.
    pub(super) fn retract_losses(&mut self, reordered: bool) {
        for at in 0..self.sent.len() {
            if self.sent.get(at).is_some_and(|sent| sent.fate == Fate::Lost) {
                self.set(at, Fate::Flying);
            }
        }
        self.rack.newest = None;
        self.rack.reordering_seen |= reordered;
    }

    /// Takes the first entry for lost, if it flies (RFC 6582, where there is no SACK).
    pub(super) fn lose_first(&mut self) {
        if self.sent.front().is_some_and(|sent| sent.fate == Fate::Flying) {
            self.set(0, Fate::Lost);
        }
    }

    /// Takes a cumulative acknowledgement.
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

    /// Something is lost, or was told by SACK.
    pub(super) fn has_sack_state(&self) -> bool {
        self.sacked > 0 || self.lost > 0 || !self.told.as_slice().is_empty()
    }

    /// An acknowledgement told no blocks.
    pub(super) fn forget_told(&mut self) {
        if !self.told.as_slice().is_empty() {
            self.told = SackBlocks::default();
        }
    }

    /// Takes SACK blocks that lie between SND.UNA and SND.NXT. Entries are cut only where `segment_bytes` cuts them, so that
    /// no peer can talk a list into crumbs.
    pub(super) fn sack(&mut self, blocks: &[Block], segment_bytes: u32, delivery: &mut Delivery) {
        let known = std::mem::take(&mut self.told);
        for block in blocks {
            self.told.push(*block);
        }
        for &(start, end) in blocks {
            let inside = known.as_slice().iter().find(|old| old.0.at_or_after(start) && old.1.at_or_before(end));
            match inside {
                Some(old) => {
                    self.sack_range((start, old.0), segment_bytes, delivery);
                    self.sack_range((old.1, end), segment_bytes, delivery);
                }
                None => self.sack_range((start, end), segment_bytes, delivery),
            }
        }
    }

    fn sack_range(&mut self, (start, end): Block, segment_bytes: u32, delivery: &mut Delivery) {
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

    /// The peer told by DSACK that a repetition was for nothing: RACK's window was too small (RFC 8985 section 6.2 step 4). It
    /// grows once in a round trip.
    pub(super) fn duplicate_reported(&mut self, una: SeqNumber, nxt: SeqNumber) {
        // What lies behind SND.NXT was noted half a sequence space ago.
        if self.rack.widened_until.is_none_or(|until| una.at_or_after(until) || until.after(nxt)) {
            self.rack.window_mult = (self.rack.window_mult + 1).min(WINDOW_MULT_MAX);
            self.rack.persist = PERSIST_RECOVERIES;
            self.rack.widened_until = Some(nxt);
        }
    }

    /// A recovery has ended.
    pub(super) fn recovered(&mut self) {
        self.rack.persist = self.rack.persist.saturating_sub(1);
        if self.rack.persist == 0 {
            self.rack.window_mult = 0;
        }
    }

    /// RACK_detect_loss: takes for lost what was sent long enough before something that was delivered. Returns when the next
    /// entry may be lost.
    pub(super) fn detect_loss(
        &mut self,
        now: Instant,
        recovering: bool,
        rtt: (Duration, Duration),
        dup_thresh: u32,
    ) -> Option<Instant> {
        let (newest_at, newest_end, repetition) = self.rack.newest?;
        let wait = self.rack.rtt + self.reorder_window(recovering, rtt, dup_thresh);
        let mut next: Option<Instant> = None;
        let mut at = 0;
        while let Some(&sent) = self.sent.get(at) {
            // Of one moment, numbers tell an order within fresh data and within repetitions only.
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

    fn reorder_window(&self, recovering: bool, (min, smoothed): (Duration, Duration), dup_thresh: u32) -> Duration {
        if !self.rack.reordering_seen && (recovering || self.sacked_segments >= dup_thresh) {
            return Duration::ZERO;
        }
        (min / 4 * (self.rack.window_mult + 1)).min(smoothed)
    }

    fn deliver(&mut self, sent: &Sent, delivery: &mut Delivery) {
        delivery.bytes += sent.len();
        let rtt = delivery.now.since(sent.at);
        let rack = &mut self.rack;
        if sent.repeated {
            delivery.repeated = true;
            if rtt < delivery.min_rtt || delivery.sent_before.is_some_and(|before| sent.at >= before) {
                // The acknowledgement of an earlier sending (RFC 8985 section 6.2 step 2).
                return;
            }
        } else {
            delivery.rtt = Some(rtt);
            delivery.original = Some(delivery.original.map_or(sent.end, |end| end.earlier(sent.end)));
            if rack.highest.is_some_and(|highest| sent.end.before(highest)) {
                rack.reordering_seen = true;
            }
        }
        rack.highest = Some(rack.highest.map_or(sent.end, |highest| highest.later(sent.end)));
        let newer = |(at, end, _): (Instant, SeqNumber, bool)| sent.at > at || (sent.at == at && sent.end.after(end));
        if rack.newest.is_none_or(newer) {
            rack.newest = Some((sent.at, sent.end, sent.repeated));
            rack.rtt = rtt;
        }
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

    /// What every operation leaves true.
    pub(super) fn check(&self) {
        let of = |fate| self.sent.iter().filter(|sent| sent.fate == fate).map(Sent::len).sum::<u32>();
        assert_eq!((self.flying, self.sacked, self.lost), (of(Fate::Flying), of(Fate::Sacked), of(Fate::Lost)));
        let pairs = self.sent.iter().zip(self.sent.iter().skip(1));
        assert!(pairs.clone().all(|(a, b)| a.end == b.start) && self.sent.iter().all(|sent| sent.len() > 0));
        let first_lost = self.sent.iter().find(|sent| sent.fate == Fate::Lost).map(|sent| (sent.start, sent.end));
        assert_eq!(self.first_lost(), first_lost);
    }
}

#[cfg(test)]
mod tests;
