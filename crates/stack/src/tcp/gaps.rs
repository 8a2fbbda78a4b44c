//! The runs of bytes that arrived ahead of a gap (missing bytes), as a sorted set of intervals. The number of intervals is
//! limited.
//!
//! Whatever a peer sends, the work per segment is bounded: binary searches, and a move of at most [`TCP_GAPS_MAX`] entries.

use crate::limits::TCP_GAPS_MAX;
use crate::wire::tcp::{Block, SackBlocks, SeqNumber};

/// Intervals that neither touch nor overlap. All lie ahead of RCV.NXT, at a distance of less than 2^31. The set uses memory only
/// while it has an interval, because most connections have no gap.
#[derive(Debug, Default)]
pub(super) struct Gaps(Option<Box<Runs>>);

/// The intervals of a set that is not empty.
#[derive(Debug, Default)]
struct Runs {
    runs: Vec<Block>,
    /// The runs of the latest arrivals, in the order of SACK blocks: the run of the latest arrival comes first.
    latest: SackBlocks,
}

impl Gaps {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    #[inline]
    pub(super) fn bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |set| size_of::<Runs>() + set.runs.capacity() * size_of::<Block>())
    }

    /// Returns the intervals in the order of their sequence numbers.
    pub(super) fn runs(&self) -> &[Block] {
        self.0.as_ref().map_or(&[], |set| &set.runs)
    }

    /// Returns the interval that contains all of `start..end`, if there is one.
    pub(super) fn covering(&self, start: SeqNumber, end: SeqNumber) -> Option<Block> {
        let at = self.runs().partition_point(|run| run.end.before(end));
        self.runs().get(at).copied().filter(|run| run.start.at_or_before(start))
    }

    /// Returns the first part of `start..end` that was received before, if any was.
    pub(super) fn overlap(&self, start: SeqNumber, end: SeqNumber) -> Option<Block> {
        let at = self.runs().partition_point(|run| run.end.at_or_before(start));
        let run = self.runs().get(at).filter(|run| run.start.before(end))?;
        Some(Block { start: run.start.later(start), end: run.end.earlier(end) })
    }

    /// Adds an interval. Returns false if the set is full.
    pub(super) fn insert(&mut self, start: SeqNumber, end: SeqNumber) -> bool {
        let Runs { runs, .. } = &mut **self.0.get_or_insert_default();
        let first = runs.partition_point(|run| run.end.before(start));
        let last = runs.partition_point(|run| run.start.at_or_before(end));
        if first == last {
            if runs.len() >= TCP_GAPS_MAX {
                return false;
            }
            runs.insert(first, Block { start, end });
        } else {
            let (first_start, last_end) = (runs[first].start, runs[last - 1].end);
            runs[first] = Block { start: first_start.earlier(start), end: last_end.later(end) };
            runs.drain(first + 1..last);
        }
        let run = runs[first];
        self.report_first(run);
        true
    }

    /// Makes `run` the first SACK block, because it contains the latest arrival. The other blocks follow in the order in which
    /// they were first (RFC 2018 section 4).
    pub(super) fn report_first(&mut self, run: Block) {
        let Some(set) = &mut self.0 else { return };
        let others = std::mem::take(&mut set.latest);
        set.latest.push(run);
        for &other in others.as_slice() {
            if other.start.before(run.start) || other.end.after(run.end) {
                set.latest.push(other);
            }
        }
    }

    /// Removes the runs that follow `nxt` without a gap. Returns the sequence number after these runs, which is the new RCV.NXT.
    pub(super) fn advance(&mut self, mut nxt: SeqNumber) -> SeqNumber {
        let Some(set) = &mut self.0 else { return nxt };
        let mut taken = 0;
        while let Some(run) = set.runs.get(taken)
            && run.start.at_or_before(nxt)
        {
            nxt = nxt.later(run.end);
            taken += 1;
        }
        if taken == set.runs.len() {
            self.0 = None;
        } else if set.runs.drain(..taken).len() > 0 {
            let others = std::mem::take(&mut set.latest);
            for &other in others.as_slice().iter().filter(|other| other.start.after(nxt)) {
                set.latest.push(other);
            }
        }
        nxt
    }

    /// Returns the runs in the order of SACK blocks: first the runs of the latest arrivals, then the others by sequence number.
    pub(super) fn reported(&self) -> impl Iterator<Item = Block> + '_ {
        let latest = self.0.as_ref().map_or(&[][..], |set| set.latest.as_slice());
        latest.iter().chain(self.runs().iter().filter(|run| !latest.contains(run))).copied()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn seq(offset: u32) -> SeqNumber {
        SeqNumber(u32::MAX - 100) + offset
    }

    #[test]
    fn the_list_of_gaps_is_bounded() {
        let mut gaps = Gaps::default();
        for at in 0..100_000 {
            gaps.insert(seq(at * 2 + 1), seq(at * 2 + 2));
        }
        assert_eq!(gaps.runs().len(), TCP_GAPS_MAX);
        assert!(gaps.insert(seq(2), seq(3)), "a segment that joins two runs is always stored");
        assert_eq!(gaps.runs().len(), TCP_GAPS_MAX - 1);
    }

    // RFC 2018 section 4.
    #[test]
    fn sack_blocks_are_reported_in_the_order_of_their_latest_arrivals() {
        let mut gaps = Gaps::default();
        let runs = [(10, 20), (40, 50), (21, 30), (60, 70)].map(|(start, end)| (seq(start), seq(end)));
        for (start, end) in runs {
            assert!(gaps.insert(start, end));
            assert_eq!(gaps.reported().next(), Some(Block { start, end }), "a byte is missing before 21");
        }
        assert!(gaps.insert(seq(30), seq(35)));
        let reported = |gaps: &Gaps| gaps.reported().map(|run| run.start.since(seq(0))).collect::<Vec<_>>();
        assert_eq!(reported(&gaps), [21, 60, 40, 10]);
        // The runs of the last four arrivals come first.
        assert!(gaps.insert(seq(80), seq(90)));
        assert_eq!(reported(&gaps), [80, 21, 60, 40, 10]);
        assert_eq!(gaps.advance(seq(21)), seq(35));
        assert_eq!(reported(&gaps), [80, 60, 40]);
        // One arrival joins two runs.
        assert!(gaps.insert(seq(50), seq(60)));
        assert_eq!(reported(&gaps), [40, 80]);
    }

    proptest! {
        #[test]
        fn the_list_of_gaps_agrees_with_a_set_of_received_bytes(pieces in proptest::collection::vec((1_u32..180, 1_u32..40), 1..30)) {
            let mut gaps = Gaps::default();
            let mut model = [false; 256];
            for (start, len) in pieces {
                prop_assert!(gaps.insert(seq(start), seq(start + len)));
                for at in start..start + len {
                    model[at as usize] = true;
                }
                prop_assert!(gaps.reported().next().is_some_and(|run| run.start.at_or_before(seq(start))));
                for at in 0..255 {
                    prop_assert_eq!(gaps.covering(seq(at), seq(at + 1)).is_some(), model[at as usize]);
                }
            }
            let end = (1..).find(|at| !model[*at as usize]).unwrap();
            prop_assert_eq!(gaps.advance(seq(1)), seq(end));
        }
    }
}
