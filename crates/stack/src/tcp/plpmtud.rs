//! Finds the largest segment that the path carries, by probes (RFC 4821, with the retry limits of RFC 8899) or from ICMP errors.
//!
//! A *black hole* drops large segments without an ICMP error. After repeated timeouts of a full segment, the segment size falls
//! to a base size that nearly every path carries. After more timeouts, it falls to a size that every path carries. From then on,
//! probes try larger sizes. If [`PathProbing::Always`] is set, they do so from the start. A probe is one segment of unsent data
//! that is larger than the other segments. If the probe is lost and no other segment is, the probe was probably too large, so the
//! loss does not reduce cwnd. Probes need no timer. ACKs of the segments after a probe reveal its loss, and the next probe is
//! sent only with data that is sent anyway.

use super::Belief;
use super::recovery::Recovery;
use super::sender::{Chunk, Sender};
use crate::limits::{PATH_MTU_AGE, TCP_BLACK_HOLE_TIMEOUTS, TCP_PATH_PROBES_MAX, TCP_SEGMENT_BYTES_MIN};
use crate::time::Instant;
use crate::wire::tcp::{Block, SeqNumber};

/// When probes try segments that are larger than the path is known to carry (the setting `tcp_mtu_probing` of Linux).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PathProbing {
    /// Never. Only ICMP errors lower the segment size, for a limited time, and black holes are not detected.
    Off,
    /// Only after a black hole was detected.
    #[default]
    BlackHole,
    /// From the start of the connection, whose first segments have the base size.
    Always,
}

/// MSS after the first black hole (RFC 4821 section 7.2). If every path of the connection's IP version carries a larger MSS, that
/// MSS is used instead.
const BASE_MSS: u16 = 1_024;
/// The search ends when the range of sizes that are still possible is smaller than this number of bytes, as in Linux.
const STEP_BYTES_MIN: u32 = 8;
/// Number of full segments that must be ready to follow a probe. Their ACKs reveal the loss of the probe without a timeout.
const FOLLOWERS: u32 = 4;
const NEVER: Instant = Instant::NEVER;

/// The search for the largest segment that the path carries. All sizes are bytes of a segment's payload.
#[derive(Debug)]
#[repr(C)]
pub(super) struct PathSearch {
    /// When a larger segment size is tried next.
    pub(super) due: Instant,
    pub(super) probe: Option<Block>,
    /// An ICMP error that the connection does not believe yet: the start of the quoted segment, and the segment size that the
    /// router allows.
    pub(super) claim: Option<Box<(SeqNumber, u32)>>,
    probing: PathProbing,
    /// Whether probes try larger sizes. If false, the segment size becomes `ceiling` again at `due`, without a probe.
    pub(super) active: bool,
    /// Whether the next probe tries `high` itself. If false, the next probe bisects the range.
    at_high: bool,
    failures: u8,
    /// Largest segment that the peer accepts. `ceiling` is the lower of this limit and the limit of this end's device.
    peer: u16,
    base: u16,
    floor: u16,
    ceiling: u32,
    /// Upper end of the search range. Larger segments are assumed to be lost.
    pub(super) high: u32,
}

/// The limits of the segment size that are known when a connection opens. Each is an MSS, from which the bytes of TCP options are
/// not subtracted yet.
#[derive(Debug)]
pub(super) struct Sizes {
    pub(super) probing: PathProbing,
    /// The peer's MSS. `device` is the MSS of this end's device.
    pub(super) peer: u16,
    pub(super) device: u16,
    /// The limit of the path according to ICMP, or `u16::MAX` if no ICMP error has reported one.
    pub(super) path: u16,
    /// The MSS that every path of the connection's IP version carries.
    pub(super) floor: u16,
    pub(super) timestamps: bool,
}

/// What the sender does next to reach a larger segment size.
#[derive(Debug)]
pub(super) enum Larger {
    Nothing,
    /// A probe is due, but cwnd has no room for it yet. All other segments wait until the probe is sent.
    Wait,
    Probe(Chunk),
}

/// Returns the payload of a full segment in bytes: the MSS less the options that every segment carries (RFC 6691).
pub(super) fn segment_bytes(mss: u16, timestamps: bool) -> u32 {
    let mss = mss.max(TCP_SEGMENT_BYTES_MIN);
    u32::from(mss) - if timestamps { 12 } else { 0 }
}

impl PathSearch {
    /// Returns the search and the initial segment size.
    pub(super) fn new(now: Instant, sizes: &Sizes) -> (Self, u32) {
        let bytes = |mss: u16| segment_bytes(mss, sizes.timestamps);
        // RFC 9293 MUST-16: segments fit the peer's MSS, this end's device and the path.
        let (peer, ceiling) = (bytes(sizes.peer), bytes(sizes.peer.min(sizes.device)));
        let path = bytes(sizes.path).min(ceiling);
        let (base, floor) = (bytes(BASE_MSS.max(sizes.floor)), bytes(sizes.floor));
        let active = sizes.probing == PathProbing::Always && path > base;
        let due = match (active, path < ceiling) {
            (true, _) => now,
            (false, true) => now + PATH_MTU_AGE,
            (false, false) => NEVER,
        };
        let search = Self {
            probing: sizes.probing,
            active,
            at_high: active,
            failures: 0,
            peer: bytes16(peer),
            ceiling,
            base: bytes16(base),
            floor: bytes16(floor),
            high: path,
            due,
            probe: None,
            claim: None,
        };
        (search, if active { base } else { path })
    }

    /// Returns the next size to try above `low`, or `None` if the search has ended. An ended search starts again after
    /// [`PATH_MTU_AGE`] (RFC 8899 section 5.2).
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

    /// Records that a probe of `size` bytes was lost and no other segment was. One loss may be chance, so a size counts as too
    /// large only after several losses (RFC 8899 MAX_PROBES).
    fn failed(&mut self, now: Instant, size: u32) {
        (self.probe, self.due) = (None, now);
        self.failures += 1;
        if size <= self.high && self.failures >= TCP_PATH_PROBES_MAX {
            self.high = size - 1;
        }
        if self.high < size {
            (self.at_high, self.failures) = (false, 0);
        }
    }

    /// Ends the probe without counting a failure. The next probe may follow immediately.
    fn inconclusive(&mut self, now: Instant) {
        (self.probe, self.due) = (None, now);
    }
}

/// Returns a payload size as a number of 16 bits. An MSS, from which each size comes, has no more.
fn bytes16(bytes: u32) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}

impl Sender {
    /// Records that a probe of `size` bytes was lost and no other segment was.
    fn fail_probe(&mut self, now: Instant, size: u32) {
        let history = self.rare.edit();
        history.path_probes_lost = history.path_probes_lost.saturating_add(1);
        self.search.failed(now, size);
    }

    /// Tries a larger segment size. The caller has checked that [`PathSearch::due`] has passed.
    pub(super) fn try_larger(&mut self, now: Instant) -> Larger {
        let quiet = matches!(self.recovery, Recovery::Open) && self.board.sacked == 0 && self.board.lost == 0;
        if !quiet || self.board.is_full() || self.has_record_ends() {
            return Larger::Nothing;
        }
        if !self.search.active {
            // RFC 8201 section 4: the limit that ICMP reported has expired, so larger segments are sent again. If the path still
            // has the limit, a router reports it again.
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
        self.pass_marks(now);
        (self.search.probe, self.search.due) = (Some(Block { start: seq, end: seq + size }), NEVER);
        let history = self.rare.edit();
        history.path_probes = history.path_probes.saturating_add(1);
        Larger::Probe(Chunk { seq, len: size, fin: false, last: false, repeated: false, probe: true })
    }

    /// If the probe was acknowledged, makes its size the segment size. A retransmitted probe never gets here, because
    /// [`Self::forget_repeated_probe`] has removed it.
    pub(super) fn judge_probe(&mut self, now: Instant) {
        if let Some(probe) = self.search.probe
            && self.una.at_or_after(probe.end)
        {
            (self.segment_bytes, self.size_proven) = (probe.bytes().min(self.search.ceiling), true);
            self.search.failures = 0;
            self.search.inconclusive(now);
        }
    }

    /// Processes a loss for the search. Returns true if the probe is the only lost segment. The probe is then retransmitted in
    /// smaller segments, and cwnd does not change.
    pub(super) fn lost_probe_alone(&mut self, now: Instant) -> bool {
        let Some(probe) = self.search.probe else { return false };
        let alone = self.board.lost == probe.bytes() && self.board.first_lost() == Some(probe);
        if alone {
            self.fail_probe(now, probe.bytes());
        } else {
            self.search.inconclusive(now);
        }
        alone
    }

    /// Forgets the probe if any of its bytes are in `start..end`, which is retransmitted. An ACK then does not show whether the
    /// probe arrived.
    pub(super) fn forget_repeated_probe(&mut self, now: Instant, start: SeqNumber, end: SeqNumber) {
        if self.search.probe.is_some_and(|probe| start.before(probe.end) && end.after(probe.start)) {
            self.search.inconclusive(now);
        }
    }

    /// Processes a retransmission timeout for the search. A timeout of the probe counts as a failed probe. Repeated timeouts of a
    /// full segment indicate a black hole (RFC 4821 section 7.7). Timeouts of smaller segments, which fit the base size, do not
    /// indicate a black hole and change nothing.
    pub(super) fn fall_back(&mut self, now: Instant) {
        match self.search.probe {
            Some(probe) if probe.start == self.una => self.fail_probe(now, probe.bytes()),
            Some(_) => self.search.inconclusive(now),
            None => {}
        }
        let timeouts = self.retries.saturating_add(1);
        if self.search.probing == PathProbing::Off || timeouts < TCP_BLACK_HOLE_TIMEOUTS {
            return;
        }
        let early = timeouts < TCP_BLACK_HOLE_TIMEOUTS + 2;
        let target = u32::from(if early { self.search.base } else { self.search.floor });
        if self.segment_bytes > target && self.board.first_len() > target {
            (self.segment_bytes, self.size_proven) = (target, false);
            (self.search.active, self.search.at_high, self.search.failures) = (true, true, 0);
            (self.search.high, self.search.due) = (self.search.high.max(target), now);
            let history = self.rare.edit();
            history.black_holes = history.black_holes.saturating_add(1);
        }
    }

    /// Sets the largest segment that the path carries, according to ICMP or to the owner of the connection.
    pub(super) fn set_path(&mut self, now: Instant, bytes: u32) {
        let bytes = bytes.min(self.search.ceiling);
        if self.search.active && bytes > self.segment_bytes {
            // A limit above the current size may hold for the first link only. So the connection does not use it until a probe
            // was acknowledged.
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

    /// Sets the largest segment that the device carries. From then on, no larger size is tried.
    pub(super) fn set_device(&mut self, now: Instant, bytes: u32) {
        let (before, ceiling) = (self.search.ceiling, bytes.min(self.search.peer.into()));
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
            // So far only the device limited the segment size, so the segment size follows the new limit.
            self.search.high = ceiling;
            self.set_segment_bytes(now, ceiling);
        }
    }

    /// Processes an ICMP error: a router dropped the segment at `seq`, and reports that it forwards segments of at most `bytes`.
    /// Returns `None` if no such segment is outstanding, or if the segment was not larger than the limit.
    pub(super) fn too_big(&mut self, now: Instant, seq: SeqNumber, bytes: u32) -> Option<Belief> {
        if let Some(probe) = self.search.probe.filter(|probe| probe.start == seq) {
            // An error about a probe only limits the search. The current segment size does not change.
            self.search.high = Some(bytes).filter(|bytes| *bytes < probe.bytes())?.max(self.segment_bytes);
            return Some(Belief::IfLost);
        }
        if bytes >= self.board.segment_at(seq, self.segment_bytes)? {
            return None;
        }
        if self.size_proven {
            // RFC 5927 section 7.2: segments of the current size have arrived, so the error may be forged. It takes effect only
            // if the quoted segment proves lost.
            self.search.claim = Some(Box::new((seq, bytes)));
            return Some(Belief::IfLost);
        }
        self.set_path(now, bytes);
        Some(Belief::AtOnce)
    }

    /// Applies the limit of an ICMP error that was not believed immediately, if the quoted segment is lost. Forgets the limit if that
    /// segment was acknowledged.
    pub(super) fn judge_claim(&mut self, now: Instant) {
        let Some((seq, bytes)) = self.search.claim.as_deref().copied() else { return };
        let outstanding = seq.at_or_after(self.una) && seq.before(self.nxt);
        let lost = outstanding && self.board.is_lost(seq);
        if lost || !outstanding {
            self.search.claim = None;
        }
        if lost && bytes < self.segment_bytes {
            self.set_path(now, bytes);
        }
    }

    /// Processes an ACK of `acknowledged` bytes. If they are at least one full segment, the path is known to carry full segments.
    #[cold]
    pub(super) fn prove_size(&mut self, acknowledged: u32) {
        self.size_proven = acknowledged >= self.segment_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_probing_tries_no_size_that_gains_less_than_a_step() {
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
