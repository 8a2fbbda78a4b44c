//! Heap memory of a send or receive buffer, with references to long payloads in retained buffers (buffers of frames, which are
//! kept from reuse). A received payload stays in its retained buffer until it is read, and a sent payload until it is
//! acknowledged. So such a payload is copied only when it is read. Short payloads are copied to the heap immediately.

use super::super::buffer::{Heap, Storage};
use crate::link::frame::{Payload, Retained};
use std::collections::VecDeque;
use std::sync::Arc;

/// Memory of a send or receive buffer. A payload of at least `LEAST` bytes stays in its retained buffer. A shorter payload is
/// copied to the heap, so that the number of pieces (references to retained buffers) is bounded.
#[derive(Debug, Default)]
pub struct RetainingHeap<const LEAST: usize> {
    heap: Heap,
    /// Position of the first byte that is still needed.
    head: usize,
    /// Ranges whose bytes are in retained buffers, in order from the head on. The heap is unused at their positions. The box keeps a
    /// buffer small that never has such ranges: for each small message, buffers move between connections.
    #[expect(clippy::box_collection, reason = "a buffer without retained payloads needs 24 bytes less")]
    pieces: Option<Box<VecDeque<Piece>>>,
}

/// A range of heap positions whose bytes are in a retained buffer.
#[derive(Debug)]
struct Piece {
    at: usize,
    len: usize,
    bytes: Arc<dyn Retained>,
    /// Offset of the range's first byte in the field `bytes`.
    from: usize,
}

impl Piece {
    fn overlaps(&self, at: usize, len: usize) -> bool {
        self.at < at + len && at < self.at + self.len
    }
}

impl<const LEAST: usize> RetainingHeap<LEAST> {
    /// Returns the distance from the head to position `at`, which may have wrapped around the end of the memory.
    #[inline]
    fn behind_head(&self, at: usize) -> usize {
        if at >= self.head { at - self.head } else { at + self.heap.capacity() - self.head }
    }

    /// Copies those pieces into the heap that overlap the `len` bytes at position `at`. The caller is about to write these bytes.
    #[inline]
    fn move_in(&mut self, at: usize, len: usize) {
        // Bytes that are written in order come after all pieces, so they overlap none, and nothing is copied.
        let last = self.pieces.as_ref().and_then(|pieces| pieces.back());
        if last.is_some_and(|last| self.behind_head(at) < self.behind_head(last.at) + last.len) {
            self.move_pieces_in(at, len);
        }
    }

    #[inline]
    fn has_pieces(&self) -> bool {
        self.pieces.as_ref().is_some_and(|pieces| !pieces.is_empty())
    }

    #[inline(never)]
    fn move_pieces_in(&mut self, at: usize, len: usize) {
        let (heap, Some(pieces)) = (&mut self.heap, &mut self.pieces) else { return };
        pieces.retain(|piece| {
            let moves = piece.overlaps(at, len);
            if moves {
                heap.write_payload(piece.at, piece, 0, piece.len);
            }
            !moves
        });
    }

    fn add(&mut self, piece: Piece) {
        let place = self.behind_head(piece.at);
        let mut pieces = self.pieces.take().unwrap_or_default();
        let before = pieces.iter().rposition(|other| self.behind_head(other.at) < place);
        pieces.insert(before.map_or(0, |before| before + 1), piece);
        self.pieces = Some(pieces);
    }

    /// Reads bytes from the heap and from retained buffers.
    #[inline(never)]
    fn read_pieces(&self, at: usize, into: &mut [u8]) {
        let Some(pieces) = &self.pieces else { return };
        let place = self.behind_head(at);
        let first = pieces.partition_point(|piece| self.behind_head(piece.at) + piece.len <= place);
        let mut done = 0;
        for piece in pieces.range(first..) {
            let before = self.behind_head(piece.at).saturating_sub(place + done).min(into.len() - done);
            self.heap.read(at + done, &mut into[done..done + before]);
            done += before;
            if done == into.len() {
                return;
            }
            let skip = at + done - piece.at;
            let len = (piece.len - skip).min(into.len() - done);
            piece.copy_to(skip, &mut into[done..done + len]);
            done += len;
        }
        self.heap.read(at + done, &mut into[done..]);
    }

    /// Releases the pieces that lie completely in the first `gone` bytes from the head on. Shortens a piece of which only the
    /// start lies there.
    #[inline(never)]
    fn let_go(&mut self, gone: usize) {
        let Some(mut pieces) = self.pieces.take() else { return };
        while let Some(first) = pieces.front_mut() {
            let cut = gone.saturating_sub(self.behind_head(first.at));
            if cut < first.len {
                (first.at, first.from, first.len) = (first.at + cut, first.from + cut, first.len - cut);
                break;
            }
            pieces.pop_front();
        }
        self.pieces = Some(pieces);
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

impl<const LEAST: usize> Storage for RetainingHeap<LEAST> {
    #[inline]
    fn capacity(&self) -> usize {
        self.heap.capacity()
    }

    fn grow(&mut self, capacity: usize) {
        // After the heap grows, the queue moves bytes that had wrapped around, so the positions of pieces would be wrong. All
        // pieces are therefore copied to the heap first.
        self.move_in(0, self.heap.capacity());
        self.heap.grow(capacity);
    }

    fn release(&mut self) {
        self.heap.release();
        self.pieces = None;
    }

    #[inline]
    fn write(&mut self, at: usize, from: &[u8]) {
        self.move_in(at, from.len());
        self.heap.write(at, from);
    }

    #[inline]
    fn write_payload<P: Payload + ?Sized>(&mut self, at: usize, payload: &P, from: usize, len: usize) {
        self.move_in(at, len);
        let retained = if len < LEAST { None } else { payload.retain(from, len) };
        let copied = retained.as_ref().map_or(len, |(copied, _)| *copied);
        self.heap.write_payload(at, payload, from, copied);
        if let Some((_, bytes)) = retained {
            self.add(Piece { at: at + copied, len: len - copied, bytes, from: 0 });
        }
    }

    #[inline]
    fn read(&self, at: usize, into: &mut [u8]) {
        if self.has_pieces() { self.read_pieces(at, into) } else { self.heap.read(at, into) }
    }

    #[inline]
    fn private(&self, at: usize, len: usize) -> Option<&[u8]> {
        if self.has_pieces() { None } else { self.heap.private(at, len) }
    }

    #[inline]
    fn private_mut(&mut self, at: usize, len: usize) -> Option<&mut [u8]> {
        if len >= LEAST {
            return None;
        }
        self.move_in(at, len);
        self.heap.private_mut(at, len)
    }

    fn retain(&mut self, at: usize, retained: &Arc<dyn Retained>, from: usize, len: usize) {
        self.move_in(at, len);
        self.add(Piece { at, len, bytes: Arc::clone(retained), from });
    }

    #[inline]
    fn discard(&mut self, at: usize) {
        if self.has_pieces() {
            self.let_go(self.behind_head(at));
        }
        self.head = at;
    }

    #[inline]
    fn clear(&mut self) {
        // An unconditional store would stall the load that follows: the queue moves the complete buffer next (decision 011).
        if self.head != 0 {
            self.head = 0;
        }
        if let Some(pieces) = &mut self.pieces {
            pieces.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CAPACITY: usize = 64 << 10;

    /// A payload that can be retained except for its first bytes.
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

        fn retain(&self, at: usize, _len: usize) -> Option<(usize, Arc<dyn Retained>)> {
            Some((82, Arc::new(Rest(Arc::clone(&self.0), at + 82))))
        }
    }

    impl Retained for Rest {
        fn copy_to(&self, at: usize, into: &mut [u8]) {
            into.copy_from_slice(&self.0[self.1 + at..][..into.len()]);
        }
    }

    fn bytes(number: usize, len: usize) -> Vec<u8> {
        (0..len).map(|at| (at * 7 + number * 31 + at / 256).to_le_bytes()[0]).collect()
    }

    /// A buffer and its expected contents.
    struct Twin {
        own: RetainingHeap<1_000>,
        all: Vec<u8>,
    }

    impl Twin {
        fn new() -> Self {
            let mut own = RetainingHeap::default();
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
    fn retained_pieces_and_copied_bytes_are_read_as_one_stream() {
        let mut twin = Twin::new();
        twin.put(0, 1, 20_000);
        twin.put(20_000, 2, 500);
        twin.put(30_000, 3, 9_000);
        assert_eq!(twin.own.pieces.as_ref().map(|pieces| pieces.len()), Some(2), "what is short is copied");
        for (at, len) in [(0, CAPACITY), (0, 82), (80, 4), (19_000, 2_000), (20_100, 11_000), (38_999, 1), (39_000, 9)]
        {
            twin.check(at, len);
        }
    }

    #[test]
    fn a_write_over_a_retained_piece_replaces_only_its_own_bytes() {
        let mut twin = Twin::new();
        twin.put(1_000, 1, 20_000);
        twin.own.write(5_000, &[9; 300]);
        twin.all[5_000..5_300].fill(9);
        twin.put(15_000, 2, 10_000);
        twin.check(0, CAPACITY);
    }

    #[test]
    fn a_retained_piece_is_released_with_its_last_byte_also_across_the_wrap() {
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
    fn pieces_retained_in_any_order_are_read_and_released_in_stream_order() {
        let places = [(50_000, 5_000), (55_000, 4_000), (59_000, CAPACITY - 59_000), (0, 3_000), (3_000, 8_000)];
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 4, 0, 3, 1], [1, 0, 4, 2, 3]] {
            let mut twin = Twin::new();
            twin.own.discard(50_000);
            let mut bytes = [const { None }; 5];
            for number in order {
                let (at, len) = places[number];
                bytes[number] = Some(twin.put(at, number, len));
                twin.check(at, len);
            }
            for (at, len) in [(50_000, CAPACITY - 50_000), (54_990, 20), (0, 11_000), (2_990, 20), (10_999, 500)] {
                twin.check(at, len);
            }
            for (number, (at, len)) in places.into_iter().enumerate() {
                let retained = || bytes.iter().flatten().map(Arc::strong_count).filter(|count| *count == 2).count();
                twin.own.discard(at + len - 1);
                assert_eq!(retained(), 5 - number, "{order:?}");
                twin.own.discard((at + len) % CAPACITY);
                assert_eq!(retained(), 4 - number, "{order:?}");
            }
        }
    }

    #[test]
    fn bytes_that_lie_in_the_heap_alone_can_be_borrowed() {
        let mut twin = Twin::new();
        twin.own.write(100, &[7; 50]);
        assert_eq!(twin.own.private(120, 30), Some(&[7; 30][..]));
        twin.put(1_000, 1, 2_000);
        assert_eq!(twin.own.private(120, 30), None, "something lies elsewhere");
    }

    #[test]
    fn growing_the_heap_copies_and_releases_retained_pieces() {
        let mut twin = Twin::new();
        twin.put(CAPACITY - 10_000, 1, 10_000);
        let second = twin.put(0, 2, 9_000);
        twin.own.grow(2 * CAPACITY);
        assert_eq!(Arc::strong_count(&second), 1);
        twin.check(0, CAPACITY);
    }

    #[test]
    fn sent_bytes_are_read_from_the_retained_buffer() {
        let mut twin = Twin::new();
        let sent = Arc::new(bytes(4, 30_000));
        let retained: Arc<dyn Retained> = Arc::new(Rest(Arc::clone(&sent), 0));
        twin.own.retain(CAPACITY - 10_000, &retained, 0, 10_000);
        twin.own.retain(0, &retained, 10_000, 20_000);
        twin.all[CAPACITY - 10_000..].copy_from_slice(&sent[..10_000]);
        twin.all[..20_000].copy_from_slice(&sent[10_000..]);
        twin.check(0, CAPACITY);
    }
}
