//! A TCP buffer in the guest's own memory, of which large pieces may lie in ring buffers: those received until they are read, those
//! sent until they are acknowledged.
//!
//! A piece is copied out of the ring once, if it is read in time; else the ring has it moved out.

use crate::limits::IN_PLACE_BYTES_MIN;
use siga_stack::frame::{Kept, Payload};
use siga_stack::tcp::{Heap, Storage};
use std::collections::VecDeque;
use std::sync::Arc;

/// Memory of a buffer.
#[derive(Debug, Default)]
pub(crate) struct Own {
    heap: Heap,
    /// Nothing before this position is wanted.
    head: usize,
    /// What lies elsewhere; its place in the heap is unused.
    pieces: VecDeque<Piece>,
}

#[derive(Debug)]
struct Piece {
    at: usize,
    len: usize,
    bytes: Arc<dyn Kept>,
    /// The first of these bytes that is meant.
    from: usize,
}

impl Piece {
    fn overlaps(&self, at: usize, len: usize) -> bool {
        self.at < at + len && at < self.at + self.len
    }
}

impl Own {
    /// Has bytes that are about to be written in the heap alone.
    #[inline]
    fn move_in(&mut self, at: usize, len: usize) {
        if !self.pieces.is_empty() {
            self.move_pieces_in(at, len);
        }
    }

    #[inline(never)]
    fn move_pieces_in(&mut self, at: usize, len: usize) {
        let heap = &mut self.heap;
        self.pieces.retain(|piece| {
            let moves = piece.overlaps(at, len);
            if moves {
                heap.write_payload(piece.at, piece, 0, piece.len);
            }
            !moves
        });
    }

    /// Reads bytes some of which lie elsewhere.
    #[inline(never)]
    fn read_pieces(&self, at: usize, into: &mut [u8]) {
        let mut done = 0;
        while done < into.len() {
            let (from, left) = (at + done, into.len() - done);
            let nearest = self.pieces.iter().filter(|piece| piece.overlaps(from, left)).min_by_key(|piece| piece.at);
            // What lies before the piece is in the heap.
            let own = nearest.map_or(left, |piece| piece.at.saturating_sub(from));
            self.heap.read(from, &mut into[done..done + own]);
            done += own;
            if let Some(piece) = nearest {
                let skip = at + done - piece.at;
                let len = (piece.len - skip).min(into.len() - done);
                piece.copy_to(skip, &mut into[done..done + len]);
                done += len;
            }
        }
    }

    /// Lets go of what lies between two positions.
    #[inline(never)]
    fn let_go(&mut self, head: usize, at: usize) {
        let capacity = self.heap.capacity();
        let behind = |from: usize, to: usize| if to >= from { to - from } else { to + capacity - from };
        let gone = behind(head, at);
        self.pieces.retain_mut(|piece| {
            let cut = gone.saturating_sub(behind(head, piece.at));
            let stays = cut < piece.len;
            if stays {
                (piece.at, piece.from, piece.len) = (piece.at + cut, piece.from + cut, piece.len - cut);
            }
            stays
        });
    }
}

impl Payload for Piece {
    fn len(&self) -> usize {
        self.len
    }

    fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.bytes.copy_to(self.from + at, into);
    }
}

impl Storage for Own {
    fn capacity(&self) -> usize {
        self.heap.capacity()
    }

    fn grow(&mut self, capacity: usize) {
        // Positions change their meaning where bytes had wrapped round.
        self.move_in(0, self.heap.capacity());
        self.heap.grow(capacity);
    }

    fn release(&mut self) {
        self.heap.release();
        self.pieces = VecDeque::new();
    }

    fn write(&mut self, at: usize, from: &[u8]) {
        self.move_in(at, from.len());
        self.heap.write(at, from);
    }

    fn write_payload<P: Payload + ?Sized>(&mut self, at: usize, payload: &P, from: usize, len: usize) {
        self.move_in(at, len);
        let kept = if len < IN_PLACE_BYTES_MIN { None } else { payload.keep(from, len) };
        let copied = kept.as_ref().map_or(len, |(copied, _)| *copied);
        self.heap.write_payload(at, payload, from, copied);
        if let Some((_, bytes)) = kept {
            let piece = Piece { at: at + copied, len: len - copied, bytes, from: 0 };
            self.pieces.push_back(piece);
        }
    }

    #[inline]
    fn read(&self, at: usize, into: &mut [u8]) {
        if self.pieces.is_empty() { self.heap.read(at, into) } else { self.read_pieces(at, into) }
    }

    fn keep(&mut self, at: usize, kept: &Arc<dyn Kept>, from: usize, len: usize) {
        self.move_in(at, len);
        let piece = Piece { at, len, bytes: Arc::clone(kept), from };
        self.pieces.push_back(piece);
    }

    #[inline]
    fn discard(&mut self, at: usize) {
        let head = std::mem::replace(&mut self.head, at);
        if !self.pieces.is_empty() {
            self.let_go(head, at);
        }
    }

    #[inline]
    fn clear(&mut self) {
        self.head = 0;
        if !self.pieces.is_empty() {
            self.pieces.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 64 << 10;

    /// A payload of which all but the first bytes stay where they are.
    #[derive(Debug)]
    struct Lying(Arc<Vec<u8>>);

    #[derive(Debug)]
    struct Rest(Arc<Vec<u8>>, usize);

    impl Payload for Lying {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn copy_to(&self, at: usize, into: &mut [u8]) {
            into.copy_from_slice(&self.0[at..at + into.len()]);
        }

        fn keep(&self, at: usize, _len: usize) -> Option<(usize, Arc<dyn Kept>)> {
            Some((82, Arc::new(Rest(Arc::clone(&self.0), at + 82))))
        }
    }

    impl Kept for Rest {
        fn copy_to(&self, at: usize, into: &mut [u8]) {
            into.copy_from_slice(&self.0[self.1 + at..][..into.len()]);
        }
    }

    fn bytes(number: usize, len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + number * 31 + at / 256).to_le_bytes()[0]).collect()
    }

    /// A buffer, and what has to be in it.
    struct Twin {
        own: Own,
        all: Vec<u8>,
    }

    impl Twin {
        fn new() -> Self {
            let mut own = Own::default();
            own.grow(CAPACITY);
            Self { own, all: vec![0; CAPACITY] }
        }

        fn put(&mut self, at: usize, number: usize, len: usize) -> Arc<Vec<u8>> {
            let all = Arc::new(bytes(number, len + 5));
            self.own.write_payload(at, &Lying(Arc::clone(&all)), 5, len);
            self.all[at..at + len].copy_from_slice(&all[5..]);
            all
        }

        #[track_caller]
        fn check(&self, at: usize, len: usize) {
            let mut read = vec![0; len];
            self.own.read(at, &mut read);
            assert!(read == self.all[at..at + len], "{len} bytes at {at}");
        }
    }

    #[test]
    fn pieces_and_what_is_in_memory_are_read_as_one() {
        let mut twin = Twin::new();
        twin.put(0, 1, 20_000);
        twin.put(20_000, 2, 500);
        twin.put(30_000, 3, 9_000);
        assert_eq!(twin.own.pieces.len(), 2, "what is short is copied");
        for (at, len) in [(0, CAPACITY), (0, 82), (80, 4), (19_000, 2_000), (20_100, 11_000), (38_999, 1), (39_000, 9)]
        {
            twin.check(at, len);
        }
    }

    #[test]
    fn what_is_written_over_a_piece_counts_and_the_rest_of_it_stays() {
        let mut twin = Twin::new();
        twin.put(1_000, 1, 20_000);
        twin.own.write(5_000, &[9; 300]);
        twin.all[5_000..5_300].fill(9);
        twin.put(15_000, 2, 10_000);
        twin.check(0, CAPACITY);
    }

    #[test]
    fn a_piece_lets_go_when_its_last_byte_is_not_wanted_any_more_round_the_end_too() {
        let mut twin = Twin::new();
        twin.own.discard(50_000);
        let first = twin.put(50_000, 1, CAPACITY - 50_000);
        let second = twin.put(0, 2, 10_000);
        twin.own.discard(60_000);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (2, 2));
        twin.own.discard(9_999);
        assert_eq!((Arc::strong_count(&first), Arc::strong_count(&second)), (1, 2));
        twin.own.discard(10_000);
        assert_eq!(Arc::strong_count(&second), 1);
        let third = twin.put(10_000, 3, 9_000);
        twin.own.clear();
        assert_eq!(Arc::strong_count(&third), 1);
    }

    #[test]
    fn growing_takes_pieces_in() {
        let mut twin = Twin::new();
        twin.put(CAPACITY - 10_000, 1, 10_000);
        let second = twin.put(0, 2, 9_000);
        twin.own.grow(2 * CAPACITY);
        assert_eq!(Arc::strong_count(&second), 1);
        twin.check(0, CAPACITY);
    }

    #[test]
    fn what_was_sent_is_read_where_it_stays() {
        let mut twin = Twin::new();
        let sent = Arc::new(bytes(4, 30_000));
        let kept: Arc<dyn Kept> = Arc::new(Rest(Arc::clone(&sent), 0));
        twin.own.keep(CAPACITY - 10_000, &kept, 0, 10_000);
        twin.own.keep(0, &kept, 10_000, 20_000);
        twin.all[CAPACITY - 10_000..].copy_from_slice(&sent[..10_000]);
        twin.all[..20_000].copy_from_slice(&sent[10_000..]);
        twin.check(0, CAPACITY);
    }
}
