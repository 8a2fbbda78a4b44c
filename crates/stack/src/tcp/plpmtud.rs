//! The largest segment that the path takes, found without ICMP (RFC 4821; RFC 8899 in its counts), and what ICMP said of it.
//!
//! A *black hole* swallows large segments and says nothing: after repeated timeouts of a full segment the size falls to a base that
//! nearly every path takes, then to one that every path takes. From then on (or from the beginning, if so configured) larger
//! sizes are tried by probes: one segment of queued data that is larger than the others. If it is lost alone, it was too large,
//! and its loss says nothing about congestion. There is no timer: a probe is judged by what is sent behind it, and the time of the
//! next one is looked at when there is something to send.

use super::Belief;
use super::opening::segment_bytes;
use super::recovery::Recovery;
use super::sender::{Chunk, Sender};
use crate::limits::{PATH_MTU_AGE, TCP_BLACK_HOLE_TIMEOUTS, TCP_PATH_PROBES_MAX};
use crate::time::Instant;
use crate::wire::tcp::{Block, SeqNumber};

/// When larger segments than the path is known to take are tried, as Linux's `tcp_mtu_probing`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathProbing {
    /// Never: what ICMP tells is believed for a time, and a black hole is not seen.
    Off,
    /// Once there was a black hole.
    #[default]
    BlackHole,
    /// From the beginning, which starts with the base.
    Always,
}

/// Where the size falls to at first (RFC 4821 section 7.2), unless every path of the family takes more.
const BASE_MSS: u16 = 1_024;
/// A search is over when what is left to gain is less, as in Linux.
const STEP_BYTES_MIN: u32 = 8;
/// Segments that have to be there to follow a probe, so that its loss is seen without a timeout.
const FOLLOWERS: u32 = 4;
const NEVER: Instant = Instant::NEVER;

/// Sizes of a path, all in payload of a segment.
#[derive(Debug)]
#[repr(C)]
pub(super) struct PathSearch {
    /// When to look for something larger.
    pub(super) due: Instant,
    /// The probe under way.
    pub(super) probe: Option<Block>,
    /// Where a segment began that a router claims not to have taken, and how many bytes it claims to take.
    pub(super) claim: Option<(SeqNumber, u32)>,
    probing: PathProbing,
    /// Larger sizes are tried by probes; else by simply using them.
    active: bool,
    /// The largest untried size comes first, the middle of what is left later.
    at_high: bool,
    failures: u8,
    /// What the peer takes, and with that what this end's device does.
    peer: u32,
    ceiling: u32,
    base: u32,
    floor: u32,
    /// Nothing larger passes, as far as is known.
    high: u32,
    /// Probes sent, those lost, and falls to a base.
    pub(super) counts: [u32; 3],
}

/// What a path is known to take when a connection opens; MSS without options.
#[derive(Debug)]
pub(super) struct Sizes {
    pub(super) probing: PathProbing,
    /// The peer's MSS and this end's.
    pub(super) peer: u16,
    pub(super) device: u16,
    /// What ICMP told, if it is less.
    pub(super) path: u16,
    /// What every path takes.
    pub(super) floor: u16,
    pub(super) timestamps: bool,
}

/// What is to be done about a larger size.
#[derive(Debug)]
pub(super) enum Larger {
    Nothing,
    /// A probe goes as soon as the window of the network has room for it; nothing else goes before.
    Wait,
    Probe(Chunk),
}

impl PathSearch {
    /// The search and the size to begin with.
    pub(super) fn new(now: Instant, sizes: &Sizes) -> (Self, u32) {
        let bytes = |mss: u16| segment_bytes(mss, sizes.timestamps);
        // RFC 9293 MUST-16.
        let (peer, ceiling) = (bytes(sizes.peer), bytes(sizes.peer.min(sizes.device)));
        let path = bytes(sizes.path).min(ceiling);
        let (base, floor) = (bytes(BASE_MSS.max(sizes.floor)), bytes(sizes.floor));
        let active = sizes.probing == PathProbing::Always && path > base;
        let due = match (active, path < ceiling) {
            (true, _) => now,
            (false, true) => now + PATH_MTU_AGE,
            (false, false) => NEVER,
        };
        let (probing, counts) = (sizes.probing, [0; 3]);
        let search = Self {
            probing,
            active,
            at_high: active,
            failures: 0,
            peer,
            ceiling,
            base,
            floor,
            high: path,
            due,
            probe: None,
            claim: None,
            counts,
        };
        (search, if active { base } else { path })
    }

    pub(super) fn active(&self) -> bool {
        self.active
    }

    pub(super) fn high(&self) -> u32 {
        self.high
    }

    /// The next size to try above `low`. None: nothing is left to gain, until the ceiling is tried again (RFC 8899 section 5.2).
    fn next_size(&mut self, now: Instant, low: u32) -> Option<u32> {
        if self.high <= low || (!self.at_high && self.high - low < STEP_BYTES_MIN) {
            self.rest(now, low);
            return None;
        }
        Some(if self.at_high { self.high } else { low + (self.high - low).div_ceil(2) })
    }

    fn rest(&mut self, now: Instant, low: u32) {
        (self.high, self.at_high, self.failures) = (self.ceiling, true, 0);
        self.due = if low < self.ceiling { now + PATH_MTU_AGE } else { NEVER };
    }

    /// The probe of `size` was lost and nothing else. One loss may be chance (RFC 8899 MAX_PROBES).
    fn failed(&mut self, now: Instant, size: u32) {
        (self.probe, self.due) = (None, now);
        let [_, lost, _] = &mut self.counts;
        *lost = lost.saturating_add(1);
        self.failures += 1;
        if size <= self.high && self.failures >= TCP_PATH_PROBES_MAX {
            self.high = size - 1;
        }
        if self.high < size {
            (self.at_high, self.failures) = (false, 0);
        }
    }

    /// What became of the probe says nothing.
    fn inconclusive(&mut self, now: Instant) {
        (self.probe, self.due) = (None, now);
    }
}

impl Sender {
    /// Looks for a larger size; to be called from [`PathSearch::due`] on.
    pub(super) fn try_larger(&mut self, now: Instant) -> Larger {
        let quiet = matches!(self.recovery, Recovery::Open) && self.board.sacked() == 0 && self.board.lost() == 0;
        if !quiet || self.board.is_full() {
            return Larger::Nothing;
        }
        if !self.search.active {
            // RFC 8201 section 4: what ICMP told has aged. If it still holds, it is told again.
            (self.segment_bytes, self.size_proven) = (self.search.ceiling, false);
            (self.search.high, self.search.due) = (self.search.ceiling, NEVER);
            return Larger::Nothing;
        }
        self.restart_after_idle(now);
        let Some(size) = self.search.next_size(now, self.segment_bytes) else { return Larger::Nothing };
        let needed = size + FOLLOWERS * self.segment_bytes;
        if self.unsent().min(self.usable_window()).min(self.cwnd) < needed {
            return Larger::Nothing;
        }
        self.congestion_limited = true;
        if self.cwnd.saturating_sub(self.pipe()) < size {
            return Larger::Wait;
        }
        let seq = self.send_fresh(now, size, false);
        (self.search.probe, self.search.due) = (Some((seq, seq + size)), NEVER);
        let [sent, ..] = &mut self.search.counts;
        *sent = sent.saturating_add(1);
        Larger::Probe(Chunk { seq, len: size, fin: false, last: false, repeated: false, probe: true })
    }

    /// The probe passed if it was acknowledged without having been repeated.
    pub(super) fn judge_probe(&mut self, now: Instant) {
        if let Some((start, end)) = self.search.probe
            && self.una.at_or_after(end)
        {
            (self.segment_bytes, self.size_proven) = (end.since(start).min(self.search.ceiling), true);
            self.search.failures = 0;
            self.search.inconclusive(now);
        }
    }

    /// Something is lost. True if it is the probe alone: it is repeated in smaller pieces and nothing slows down.
    pub(super) fn lost_probe_alone(&mut self, now: Instant) -> bool {
        let Some((start, end)) = self.search.probe else { return false };
        let size = end.since(start);
        let alone = self.board.lost() == size && self.board.first_lost() == Some((start, end));
        if alone {
            self.search.failed(now, size);
        } else {
            self.search.inconclusive(now);
        }
        alone
    }

    /// A part of `start..end` is sent again: its acknowledgement will say nothing of the probe.
    pub(super) fn forget_repeated_probe(&mut self, now: Instant, start: SeqNumber, end: SeqNumber) {
        if self.search.probe.is_some_and(|probe| start.before(probe.1) && end.after(probe.0)) {
            self.search.inconclusive(now);
        }
    }

    /// The retransmission timer has run out: on a probe it counts as a failure of it, on a full segment again and again as a
    /// black hole (RFC 4821 section 7.7). Timeouts of segments that the base takes say nothing about sizes.
    pub(super) fn fall_back(&mut self, now: Instant) {
        match self.search.probe {
            Some((start, end)) if start == self.una => self.search.failed(now, end.since(start)),
            Some(_) => self.search.inconclusive(now),
            None => {}
        }
        let timeouts = self.retries.saturating_add(1);
        if self.search.probing == PathProbing::Off || timeouts < TCP_BLACK_HOLE_TIMEOUTS {
            return;
        }
        let target = if timeouts < TCP_BLACK_HOLE_TIMEOUTS + 2 { self.search.base } else { self.search.floor };
        if self.segment_bytes > target && self.board.first_len() > target {
            (self.segment_bytes, self.size_proven) = (target, false);
            (self.search.active, self.search.at_high, self.search.failures) = (true, true, 0);
            (self.search.high, self.search.due) = (self.search.high.max(target), now);
            let [.., holes] = &mut self.search.counts;
            *holes = holes.saturating_add(1);
        }
    }

    /// ICMP, or the owner, says what the path takes.
    pub(super) fn set_path(&mut self, now: Instant, bytes: u32) {
        let bytes = bytes.min(self.search.ceiling);
        if self.search.active && bytes > self.segment_bytes {
            // It may be no more than what the first link takes: it is tried.
            (self.search.high, self.search.at_high, self.search.failures) = (bytes, true, 0);
            self.search.due = if self.search.probe.is_some() { NEVER } else { now };
            return;
        }
        self.search.probe = None;
        self.search.rest(now, bytes);
        if bytes != self.segment_bytes {
            self.set_segment_bytes(now, bytes);
        }
    }

    /// The device takes other sizes than before; nothing larger than that is ever tried.
    pub(super) fn set_device(&mut self, now: Instant, bytes: u32) {
        let (before, ceiling) = (self.search.ceiling, bytes.min(self.search.peer));
        self.search.ceiling = ceiling;
        self.search.high = self.search.high.min(ceiling);
        if self.segment_bytes > ceiling {
            self.search.probe = None;
            self.search.rest(now, ceiling);
            self.set_segment_bytes(now, ceiling);
        } else if ceiling > before && self.search.active {
            self.search.rest(now, self.segment_bytes);
            self.search.due = if self.search.probe.is_some() { NEVER } else { now };
        } else if self.segment_bytes == before {
            // The device was all that held it down.
            self.search.high = ceiling;
            self.set_segment_bytes(now, ceiling);
        }
    }

    /// A router claims that it did not take the segment that began at `seq`, and that it takes `bytes`. `None`: no such segment
    /// is under way, or it was no larger than that.
    pub(super) fn too_big(&mut self, now: Instant, seq: SeqNumber, bytes: u32) -> Option<Belief> {
        if let Some((start, end)) = self.search.probe
            && start == seq
        {
            // A probe says nothing of what is known to pass.
            self.search.high = Some(bytes).filter(|bytes| *bytes < end.since(start))?.max(self.segment_bytes);
            return Some(Belief::IfLost);
        }
        if bytes >= self.board.segment_at(seq, self.segment_bytes)? {
            return None;
        }
        if self.size_proven {
            // RFC 5927 section 7.2: while data makes progress, a forged error changes nothing.
            self.search.claim = Some((seq, bytes));
            return Some(Belief::IfLost);
        }
        self.set_path(now, bytes);
        Some(Belief::AtOnce)
    }

    /// Believes a router's claim if the segment that it quoted is lost, and forgets it if that was acknowledged.
    pub(super) fn judge_claim(&mut self, now: Instant) {
        let Some((seq, bytes)) = self.search.claim else { return };
        let outstanding = seq.at_or_after(self.una) && seq.before(self.nxt);
        let lost = outstanding && self.board.is_lost(seq);
        if lost || !outstanding {
            self.search.claim = None;
        }
        if lost && bytes < self.segment_bytes {
            self.set_path(now, bytes);
        }
    }

    /// An acknowledgement of this many bytes: if they fill a segment, the path is known to take one.
    #[cold]
    pub(super) fn prove_size(&mut self, acknowledged: u32) {
        self.size_proven = acknowledged >= self.segment_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_gain_less_than_a_step_is_not_tried() {
        let (probing, now) = (PathProbing::Always, Instant::from_ns(1));
        let sizes = Sizes { probing, peer: 1_460, device: 1_460, path: 1_460, floor: 536, timestamps: false };
        let (mut search, base) = PathSearch::new(now, &sizes);
        assert_eq!((base, search.next_size(now, base)), (1_024, Some(1_460)), "the largest first");
        for _ in 0..TCP_PATH_PROBES_MAX {
            search.failed(now, 1_460);
        }
        assert_eq!(search.next_size(now, base), Some(1_024 + 218), "then the middle");
        search.high = base + STEP_BYTES_MIN;
        assert_eq!(search.next_size(now, base), Some(base + STEP_BYTES_MIN / 2));
        search.high -= 1;
        assert_eq!(search.next_size(now, base), None);
        assert_eq!((search.due, search.next_size(now, base)), (now + PATH_MTU_AGE, Some(1_460)), "until later");
    }
}
