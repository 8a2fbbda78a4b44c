//! The send and receive buffers of a connection: a circular queue of bytes over any kind of [`Storage`].
//!
//! A queue contains readable bytes. Behind the readable bytes, more bytes may be written out of order before they become
//! readable. A queue starts without memory and grows on demand, so that an idle connection needs little memory. A queue knows no
//! sequence numbers.

use std::fmt;
use std::sync::Arc;

use crate::copy;
use crate::limits::{TCP_SPARE_BYTES_MAX, TCP_SPARES_MAX};
use crate::link::frame::{Payload, Retained};
use crate::wire::checksum::{Sum, copy_and_add};

/// Memory of a send or receive buffer. Positions are below [`Storage::capacity`]. No access crosses the end of the memory,
/// because the queue splits such an access in two.
pub trait Storage: fmt::Debug + Default {
    /// Returns the size of the memory in bytes.
    fn capacity(&self) -> usize;
    /// Grows the memory to `capacity` bytes. Existing bytes keep their positions. New bytes may have any value. They may even be
    /// old data of another connection of the same stack.
    fn grow(&mut self, capacity: usize);
    /// Frees all memory. Its contents are no longer needed.
    fn release(&mut self);
    /// Writes the bytes of `from` at position `at`.
    fn write(&mut self, at: usize, from: &[u8]);
    /// Writes `len` bytes of a payload, from its byte `from` on, at position `at`.
    fn write_payload<P: Payload + ?Sized>(&mut self, at: usize, payload: &P, from: usize, len: usize);
    /// Reads bytes from position `at` on, until `into` is full.
    fn read(&self, at: usize, into: &mut [u8]);

    /// Returns `len` bytes at position `at` without a copy, if they are contiguous and no other process can write them.
    fn private(&self, _at: usize, _len: usize) -> Option<&[u8]> {
        None
    }

    /// Returns `len` bytes at position `at` for writing, if they are contiguous and no other process can access them. Bytes that are
    /// written this way may never become readable.
    fn private_mut(&mut self, _at: usize, _len: usize) -> Option<&mut [u8]> {
        None
    }

    /// Stores a reference to `len` bytes of a retained buffer, from the buffer's byte `from` on, at position `at`. The default
    /// implementation copies the bytes instead.
    fn retain(&mut self, at: usize, retained: &Arc<dyn Retained>, from: usize, len: usize) {
        in_chunks(len, |done, chunk| {
            retained.copy_to(from + done, chunk);
            self.write(at + done, chunk);
        });
    }

    /// Returns how many bytes of memory count towards the stack's limit for buffers.
    fn held(&self) -> usize {
        self.capacity()
    }

    /// Returns whether another connection may reuse this memory once it is empty. Memory that an application owns may not be
    /// reused.
    #[inline]
    fn is_common(&self) -> bool {
        true
    }

    /// Returns whether `bytes` bytes fit at position `at`. If they do not fit, the segment that contains them is dropped.
    /// `in_order` is true if these bytes become readable next. Storage that cannot always grow overrides this method.
    #[inline]
    fn has_room(&self, _at: usize, _bytes: usize, _in_order: bool) -> bool {
        true
    }

    /// The queue calls this when bytes before position `at` are no longer needed.
    fn discard(&mut self, _at: usize) {}

    /// The queue calls this when no byte is needed any more. The next write begins at position 0.
    fn clear(&mut self) {}
}

/// Heap memory of this process.
#[derive(Default)]
pub struct Heap(Box<[u8]>);

impl fmt::Debug for Heap {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "Heap({} bytes)", self.0.len())
    }
}

impl Storage for Heap {
    #[inline]
    fn capacity(&self) -> usize {
        self.0.len()
    }

    fn grow(&mut self, capacity: usize) {
        let mut bytes = std::mem::take(&mut self.0).into_vec();
        bytes.reserve_exact(capacity.saturating_sub(bytes.len()));
        bytes.resize(capacity, 0);
        self.0 = bytes.into_boxed_slice();
    }

    fn release(&mut self) {
        self.0 = Box::default();
    }

    #[inline]
    fn write(&mut self, at: usize, from: &[u8]) {
        copy(from, &mut self.0[at..at + from.len()]);
    }

    #[inline]
    fn write_payload<P: Payload + ?Sized>(&mut self, at: usize, payload: &P, from: usize, len: usize) {
        payload.copy_to(from, &mut self.0[at..at + len]);
    }

    #[inline]
    fn read(&self, at: usize, into: &mut [u8]) {
        copy(&self.0[at..at + into.len()], into);
    }

    #[inline]
    fn private(&self, at: usize, len: usize) -> Option<&[u8]> {
        self.0.get(at..at + len)
    }

    #[inline]
    fn private_mut(&mut self, at: usize, len: usize) -> Option<&mut [u8]> {
        self.0.get_mut(at..at + len)
    }
}

/// Divides `len` bytes into chunks. Calls `copy` for each chunk with the offset of the chunk and a temporary buffer of its
/// length.
fn in_chunks(len: usize, mut copy: impl FnMut(usize, &mut [u8])) {
    let mut chunk = [0; 1_024];
    for at in (0..len).step_by(chunk.len()) {
        let part = chunk.len().min(len - at);
        copy(at, &mut chunk[..part]);
    }
}

/// Smallest size in bytes of the memory that a queue allocates.
const CAPACITY_MIN: usize = 2_048;

/// A circular queue of bytes over storage.
#[derive(Debug)]
pub(super) struct ByteQueue<S> {
    pub(super) storage: S,
    head: usize,
    /// Number of readable bytes. At most [`TCP_BUFFER_BYTES_MAX`](crate::limits::TCP_BUFFER_BYTES_MAX), like `ahead`.
    len: u32,
    /// Length of the area after the readable bytes in which bytes were written, gaps included.
    ahead: u32,
}

/// Returns a number of bytes in a queue as a number of 32 bits.
#[inline]
fn bytes32(bytes: usize) -> u32 {
    debug_assert!(bytes <= u32::MAX as usize, "a buffer is larger than its limit");
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

impl<S: Storage> ByteQueue<S> {
    pub(super) fn new(storage: S) -> Self {
        Self { storage, head: 0, len: 0, ahead: 0 }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len as usize
    }

    #[inline]
    fn ahead(&self) -> usize {
        self.ahead as usize
    }

    /// Copies the contents of the queue into `storage`, which replaces the queue's memory.
    pub(super) fn move_into(&mut self, storage: S) {
        let mut new = Self::new(storage);
        in_chunks(self.len() + self.ahead(), |at, chunk| {
            self.peek_ahead(at, chunk);
            new.place(at, &*chunk, 0, chunk.len());
        });
        new.extend(self.len());
        *self = new;
    }

    /// Appends `bytes` readable bytes, which `place` writes directly into the storage.
    pub(super) fn push_with(&mut self, bytes: usize, place: impl FnOnce(&mut S)) {
        place(&mut self.storage);
        self.len += bytes32(bytes);
    }

    /// Returns whether `bytes` bytes fit into the memory, `ahead` bytes after the end of the readable bytes.
    #[inline]
    pub(super) fn has_room(&self, ahead: usize, bytes: usize) -> bool {
        self.storage.has_room(self.position(self.len() + ahead), bytes, ahead == 0)
    }

    /// Appends readable bytes.
    #[inline]
    pub(super) fn push(&mut self, from: &[u8]) {
        self.reserve(self.len() + from.len());
        let at = self.position(self.len());
        let first = from.len().min(self.storage.capacity() - at);
        let (front, back) = from.split_at(first);
        self.storage.write(at, front);
        if !back.is_empty() {
            self.storage.write(0, back);
        }
        self.len += bytes32(from.len());
    }

    /// Appends the first `len` bytes of a retained buffer as readable bytes.
    pub(super) fn push_retained(&mut self, retained: &Arc<dyn Retained>, len: usize) {
        self.reserve(self.len() + len);
        let at = self.position(self.len());
        let first = len.min(self.storage.capacity() - at);
        self.storage.retain(at, retained, 0, first);
        if first < len {
            self.storage.retain(0, retained, first, len - first);
        }
        self.len += bytes32(len);
    }

    /// Writes `len` bytes of `payload`, from its byte `from` on, `ahead` bytes after the end of the readable bytes. A later call of
    /// [`ByteQueue::extend`] makes the written bytes readable.
    #[inline]
    pub(super) fn place<P: Payload + ?Sized>(&mut self, ahead: usize, payload: &P, from: usize, len: usize) {
        self.reserve(self.len() + ahead + len);
        let at = self.position(self.len() + ahead);
        let first = len.min(self.storage.capacity() - at);
        self.storage.write_payload(at, payload, from, first);
        if first < len {
            self.storage.write_payload(0, payload, from + first, len - first);
        }
        self.ahead = self.ahead.max(bytes32(ahead + len));
    }

    /// Writes a payload behind the readable bytes, and adds its second part `rest` to a checksum. This takes less time than a sum and a
    /// copy. [`ByteQueue::extend_by_placed`] then makes the payload readable. Returns `None` if the payload has to be written by
    /// [`ByteQueue::place`], because there is no contiguous private memory for it, or because bytes ahead of a gap could lie there.
    #[inline]
    pub(super) fn place_and_add(&mut self, own: &[u8], rest: &[u8], sum: Sum) -> Option<Sum> {
        let bytes = own.len() + rest.len();
        if self.ahead > 0 || self.len() + bytes > self.storage.capacity() {
            return None;
        }
        let at = self.position(self.len());
        let (front, back) = self.storage.private_mut(at, bytes)?.split_at_mut(own.len());
        front.copy_from_slice(own);
        copy_and_add(Some(sum), rest, back)
    }

    /// Makes the `bytes` bytes readable that [`ByteQueue::place_and_add`] has written.
    #[inline]
    pub(super) fn extend_by_placed(&mut self, bytes: usize) {
        debug_assert!(
            self.ahead == 0 && self.len() + bytes <= self.storage.capacity(),
            "only written bytes become readable"
        );
        self.len += bytes32(bytes);
    }

    /// Makes the `bytes` bytes that directly follow the readable bytes readable, too.
    #[inline]
    pub(super) fn extend(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.ahead(), "only written bytes become readable");
        self.len += bytes32(bytes);
        self.ahead = self.ahead.saturating_sub(bytes32(bytes));
    }

    /// Copies readable bytes to `into`, from byte `at` of the queue on, without removing them.
    #[inline]
    pub(super) fn peek(&self, at: usize, into: &mut [u8]) {
        debug_assert!(at + into.len() <= self.len(), "only readable bytes are read");
        self.peek_ahead(at, into);
    }

    /// Returns readable bytes without a copy, like [`Storage::private`].
    #[inline]
    pub(super) fn private(&self, at: usize, len: usize) -> Option<&[u8]> {
        debug_assert!(at + len <= self.len(), "only readable bytes are read");
        self.storage.private(self.position(at), len)
    }

    #[inline]
    fn peek_ahead(&self, at: usize, into: &mut [u8]) {
        let position = self.position(at);
        let first = into.len().min(self.storage.capacity() - position);
        let (front, back) = into.split_at_mut(first);
        self.storage.read(position, front);
        if !back.is_empty() {
            self.storage.read(0, back);
        }
    }

    /// Removes the first `bytes` readable bytes.
    #[inline]
    pub(super) fn consume(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.len(), "more is taken than there is");
        self.head = self.position(bytes);
        self.len -= bytes32(bytes);
        if self.len == 0 && self.ahead == 0 {
            // The next write then begins at the front. A request-response connection thus uses the same memory for each message,
            // and this memory stays in the CPU cache.
            self.head = 0;
            self.storage.clear();
        } else {
            self.storage.discard(self.head);
        }
    }

    /// Gives the queue memory from `spare` if the queue has none.
    #[inline]
    pub(super) fn borrow(&mut self, spare: &mut Vec<S>) {
        if self.storage.capacity() == 0
            && self.storage.is_common()
            && let Some(storage) = spare.pop()
        {
            self.storage = storage;
        }
    }

    /// Moves the empty memory of this queue to a queue that has none. This is faster than a transfer over the spare list: the CPU
    /// would have to load from the list what it has just stored there, and such a load waits for the store.
    #[inline]
    pub(super) fn pass_on(&mut self, other: &mut Self) {
        if other.storage.capacity() == 0 && other.storage.is_common() && self.is_spare() {
            std::mem::swap(&mut self.storage, &mut other.storage);
            self.head = 0;
        }
    }

    /// Moves the memory of this queue to the spare list, if the memory is empty and not too large.
    #[inline]
    pub(super) fn give_back(&mut self, spare: &mut Vec<S>) {
        if self.is_spare() && spare.len() < TCP_SPARES_MAX {
            spare.push(std::mem::take(&mut self.storage));
            self.head = 0;
        }
    }

    /// Returns whether the memory of this queue is empty, may be reused and is not too large.
    #[inline]
    fn is_spare(&self) -> bool {
        let free = self.len == 0 && self.ahead == 0 && self.storage.is_common();
        free && (1..=TCP_SPARE_BYTES_MAX).contains(&self.storage.capacity())
    }

    /// Frees the memory of this queue if the queue is empty.
    pub(super) fn release(&mut self) {
        if self.len == 0 && self.ahead == 0 && self.storage.is_common() {
            self.storage.release();
            self.head = 0;
        }
    }

    #[inline]
    fn position(&self, offset: usize) -> usize {
        let (at, capacity) = (self.head + offset, self.storage.capacity());
        if at >= capacity { at - capacity } else { at }
    }

    /// Makes room for `bytes` bytes from the head on. If the memory has to grow, its size at least doubles. So growing copies
    /// each byte about once on average.
    #[inline]
    fn reserve(&mut self, bytes: usize) {
        if bytes > self.storage.capacity() {
            self.grow(bytes);
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize) {
        let old = self.storage.capacity();
        self.storage.grow(bytes.next_power_of_two().max(CAPACITY_MIN));
        // Bytes that had wrapped around move to after the old end. They fit there, because the memory has at least doubled.
        let wrapped = (self.head + self.len() + self.ahead()).saturating_sub(old);
        in_chunks(wrapped, |at, chunk| {
            self.storage.read(at, chunk);
            self.storage.write(old + at, chunk);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_byte_queue_keeps_order_over_wraps_growth_and_gaps() {
        let mut ring = ByteQueue::new(Heap::default());
        let bytes: Vec<u8> = (0..60_000_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let (mut written, mut read) = (0, 0);
        for round in 0..200 {
            let len = (round * 37) % 900;
            // The second half arrives first.
            let half = len / 2;
            ring.place(half, bytes.as_slice(), written + half, len - half);
            ring.place(0, bytes.as_slice(), written, half);
            ring.extend(len);
            written += len;
            let mut out = vec![0; ring.len().min(round % 700)];
            ring.peek(0, &mut out);
            assert_eq!(out, bytes[read..read + out.len()], "round {round}");
            ring.consume(out.len());
            read += out.len();
            if written > 59_000 {
                break;
            }
        }
        assert!(ring.storage.capacity() > CAPACITY_MIN && written > read);
        let mut rest = vec![0; ring.len()];
        ring.peek(0, &mut rest);
        assert_eq!(rest, bytes[read..written]);
    }

    #[test]
    fn an_empty_byte_queue_passes_its_memory_to_the_other_direction() {
        let (mut one, mut other) = (ByteQueue::new(Heap::default()), ByteQueue::new(Heap::default()));
        one.push(&[1; 100]);
        one.pass_on(&mut other);
        assert_eq!((one.len(), other.storage.capacity()), (100, 0), "there is something in it");
        one.consume(100);
        one.pass_on(&mut other);
        assert_eq!((one.storage.capacity(), other.storage.capacity()), (0, CAPACITY_MIN));
        one.push(&[2; 10]);
        one.consume(10);
        one.pass_on(&mut other);
        assert_eq!(
            (one.storage.capacity(), other.storage.capacity()),
            (CAPACITY_MIN, CAPACITY_MIN),
            "the other has its own"
        );
        let mut large = ByteQueue::new(Heap::default());
        large.push(&vec![3; TCP_SPARE_BYTES_MAX + 1]);
        large.consume(TCP_SPARE_BYTES_MAX + 1);
        other.release();
        large.pass_on(&mut other);
        assert_eq!(other.storage.capacity(), 0, "it is too much for another");
    }

    /// Unbounded memory that frees discarded bytes.
    #[derive(Debug, Default)]
    struct Row {
        base: usize,
        bytes: Vec<u8>,
    }

    impl Row {
        fn at(&self, at: usize) -> usize {
            at.checked_sub(self.base).unwrap_or_else(|| panic!("byte {at} is gone, all before {} are", self.base))
        }
    }

    impl Storage for Row {
        fn capacity(&self) -> usize {
            usize::MAX / 2
        }

        fn grow(&mut self, capacity: usize) {
            panic!("there is room for {capacity}");
        }

        fn release(&mut self) {}

        fn write(&mut self, at: usize, from: &[u8]) {
            let at = self.at(at);
            let end = self.bytes.len().max(at + from.len());
            self.bytes.resize(end, 0);
            self.bytes[at..at + from.len()].copy_from_slice(from);
        }

        fn write_payload<P: Payload + ?Sized>(&mut self, at: usize, payload: &P, from: usize, len: usize) {
            let mut bytes = vec![0; len];
            payload.copy_to(from, &mut bytes);
            self.write(at, &bytes);
        }

        fn read(&self, at: usize, into: &mut [u8]) {
            into.copy_from_slice(&self.bytes[self.at(at)..][..into.len()]);
        }

        fn discard(&mut self, at: usize) {
            drop(self.bytes.drain(..self.at(at)));
            self.base = at;
        }

        fn clear(&mut self) {
            *self = Self::default();
        }
    }

    impl Retained for Vec<u8> {
        fn copy_to(&self, at: usize, into: &mut [u8]) {
            into.copy_from_slice(&self[at..at + into.len()]);
        }
    }

    #[test]
    fn a_byte_queue_reads_no_discarded_bytes_from_its_storage() {
        let mut ring = ByteQueue::new(Row::default());
        let part: Vec<u8> = (0..90).collect();
        let retained: Arc<dyn Retained> = Arc::new(part[60..].to_vec());
        for round in 0..3 {
            ring.push(&part[..20]);
            ring.place(20, part.as_slice(), 40, 20);
            ring.place(0, part.as_slice(), 20, 20);
            ring.extend(40);
            ring.push_retained(&retained, 30);
            let mut out = vec![0; 90];
            ring.peek(ring.len() - 90, &mut out);
            assert_eq!(out, part, "round {round}");
            ring.consume(60);
        }
        ring.consume(90);
        ring.push(&part);
        assert_eq!((ring.len(), ring.storage.base, &ring.storage.bytes), (90, 0, &part));
    }

    #[test]
    fn retained_bytes_may_wrap_around_the_end_of_the_queue() {
        let mut ring = ByteQueue::new(Heap::default());
        ring.push(&[1; 1_500]);
        ring.consume(1_000);
        let bytes: Vec<u8> = (0..1_300_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let retained: Arc<dyn Retained> = Arc::new(bytes.clone());
        ring.push_retained(&retained, bytes.len());
        let mut out = vec![0; bytes.len()];
        ring.peek(500, &mut out);
        assert_eq!((out, ring.len(), ring.storage.capacity()), (bytes, 1_800, CAPACITY_MIN));
    }

    #[test]
    fn a_byte_queue_moves_into_other_memory_with_the_bytes_behind_a_gap() {
        let bytes: Vec<u8> = (0..6_000_u32).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
        let mut ring = ByteQueue::new(Heap::default());
        ring.push(&bytes[..4_000]);
        ring.consume(1_500);
        // The second half of the bytes ahead is there; it wraps around the end of the memory.
        ring.place(500, bytes.as_slice(), 4_500, 500);
        ring.move_into(Heap::default());
        assert_eq!(ring.len(), 2_500);
        ring.place(0, bytes.as_slice(), 4_000, 500);
        ring.extend(1_000);
        let mut out = vec![0; 3_500];
        ring.peek(0, &mut out);
        assert_eq!(out, bytes[1_500..5_000]);
        ring.consume(3_500);
        ring.move_into(Heap::default());
        assert_eq!((ring.len(), ring.storage.capacity()), (0, 0));
    }

    #[test]
    fn an_idle_byte_queue_holds_no_memory() {
        assert_eq!(ByteQueue::new(Heap::default()).storage.capacity(), 0);
    }
}
