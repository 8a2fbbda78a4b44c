//! When received bytes arrived, for applications that want to know (`SO_TIMESTAMPING` of Linux, by software).

use crate::limits::TCP_ARRIVALS_MAX;
use crate::time::Instant;
use crate::wire::tcp::SeqNumber;
use std::collections::VecDeque;

/// Received bytes that arrived at one time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrivedBytes {
    /// Number of bytes, not 0.
    pub bytes: u32,
    /// When they arrived, or `None` if they arrived before the application asked for times.
    pub at: Option<Instant>,
}

/// The arrival times of the bytes that the application has not read.
#[derive(Debug)]
pub(super) struct Arrivals {
    /// Sequence number of the first byte whose time is known.
    first: SeqNumber,
    /// The end of each received piece, in the order of sequence numbers, with the time at which the piece arrived. A piece begins where
    /// the one before it ends.
    pieces: VecDeque<(SeqNumber, Instant)>,
}

impl Arrivals {
    pub(super) fn new(first: SeqNumber) -> Self {
        Self { first, pieces: VecDeque::new() }
    }

    pub(super) fn bytes(&self) -> usize {
        self.pieces.capacity() * size_of::<(SeqNumber, Instant)>()
    }

    /// Records a piece that ends at `end`. If there are too many pieces, the last one is extended, and its bytes get the later time.
    pub(super) fn note(&mut self, end: SeqNumber, now: Instant) {
        let at = self.pieces.partition_point(|(known, _)| known.before(end));
        if self.pieces.get(at).is_some_and(|(known, _)| *known == end) {
            return;
        }
        if self.pieces.len() < TCP_ARRIVALS_MAX {
            self.pieces.insert(at, (end, now));
        } else if at == self.pieces.len()
            && let Some(last) = self.pieces.back_mut()
        {
            *last = (end, now);
        }
    }

    /// Returns when the byte before `end` arrived, or `None` if it arrived before the application asked for times.
    pub(super) fn before(&self, end: SeqNumber) -> Option<Instant> {
        if end.at_or_before(self.first) {
            return None;
        }
        let at = self.pieces.partition_point(|(known, _)| known.before(end));
        self.pieces.get(at).map(|(_, time)| *time)
    }

    /// Splits the bytes from `from` to `to` into at most `most` pieces that arrived at one time each. The
    /// pieces may cover fewer bytes.
    pub(super) fn split(&self, from: SeqNumber, to: SeqNumber, most: usize) -> Vec<ArrivedBytes> {
        let mut pieces = Vec::new();
        let mut at = from;
        if at.before(self.first.earlier(to)) {
            let end = self.first.earlier(to);
            pieces.push(ArrivedBytes { bytes: end.since(at), at: None });
            at = end;
        }
        let skipped = self.pieces.partition_point(|(known, _)| known.at_or_before(at));
        for (end, time) in self.pieces.range(skipped..) {
            if at.at_or_after(to) || pieces.len() >= most {
                break;
            }
            let end = end.earlier(to);
            pieces.push(ArrivedBytes { bytes: end.since(at), at: Some(*time) });
            at = end;
        }
        pieces
    }

    /// Forgets the bytes before `read`, which the application has read.
    pub(super) fn forget(&mut self, read: SeqNumber) {
        while self.pieces.front().is_some_and(|(end, _)| end.at_or_before(read)) {
            self.pieces.pop_front();
        }
        self.first = self.first.later(read);
    }
}
