//! The memory of TCP buffers: the guest's own memory, or one of the two arenas (shared memory) between the guest and an
//! application.
//!
//! A send buffer is a sequence of extents (offset and length) in the application's arena. The application has already written the
//! bytes there, so the guest does not copy them. A receive buffer is a sequence of blocks of the guest's arena. Each segment is
//! written at its place in the stream. Both buffers record changes in a [`Hint`], so that the guest only examines connections that
//! have changed.

use crate::limits::{RESERVE_DIVISOR, ZERO_COPY_BYTES_MIN};
use siga_iucv::BLOCK_BYTES;
use siga_iucv::extent::{Extent, Extents, size};
use siga_iucv::limits::{CROWDED_FROM_BYTES, EXTENTS_MAX};
use siga_ring::arena::{OwnArena, PeerArena};
use siga_stack::link::frame::{Payload, Retained};
use siga_stack::tcp::{RetainingHeap, Storage};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The two arenas that the guest and one application share: the application's arena with bytes to send, and the guest's arena with
/// received bytes.
#[derive(Debug)]
pub(crate) struct Area {
    sent: PeerArena,
    pool: Mutex<Pool>,
    reserve: usize,
    moved: Mutex<Vec<u32>>,
    /// How many extents all send buffers of the application have together. The bytes of a block are contiguous and belong to one
    /// socket, so there are at most as many extents as blocks.
    places: AtomicUsize,
    /// How many bytes the send buffers have that other applications have sent. They are in the guest's own memory.
    copies: AtomicUsize,
}

#[derive(Debug)]
struct Pool {
    arena: OwnArena,
    free: Vec<u32>,
}

impl Area {
    pub(crate) fn new(sent: PeerArena, received: OwnArena) -> Self {
        let free = Extent::all_blocks(received.len());
        let reserve = free.len() / RESERVE_DIVISOR;
        Self {
            sent,
            pool: Mutex::new(Pool { arena: received, free }),
            reserve,
            moved: Mutex::default(),
            places: AtomicUsize::new(0),
            copies: AtomicUsize::new(0),
        }
    }

    /// Returns the size in bytes of the application's arena.
    pub(crate) fn sent_bytes(&self) -> usize {
        self.sent.len()
    }

    /// Returns how many bytes of the guest's arena are free for received segments.
    pub(crate) fn free_bytes(&self) -> usize {
        self.pool().free.len() * BLOCK_BYTES
    }

    /// Returns whether the send buffers may have `bytes` more bytes that other applications have sent: altogether, not more than the
    /// application's arena has.
    pub(crate) fn takes_copies(&self, bytes: usize) -> bool {
        self.copies.load(Ordering::Relaxed).saturating_add(bytes) <= self.sent.len()
    }

    /// Returns how many bytes were copied out of the application's arena.
    pub(crate) fn copied_bytes(&self) -> u64 {
        self.sent.copied_bytes()
    }

    /// Returns the clock ticks spent on copying out of the application's arena.
    pub(crate) fn copy_ticks(&self) -> u64 {
        self.sent.copy_ticks().0
    }

    /// Returns the numbers of the sockets that [`Hint::mark`] has marked since the last call, because their connection has
    /// something new for the application.
    pub(crate) fn take_moved(&self) -> Vec<u32> {
        std::mem::take(&mut *self.moved.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns whether a socket was marked since the last call of [`Area::take_moved`].
    pub(crate) fn has_moved(&self) -> bool {
        !self.moved.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// State that the two buffers of a connection share with the guest. The buffers record changes here, and the guest reads them.
#[derive(Debug)]
pub(crate) struct Hint {
    area: Arc<Area>,
    socket: u32,
    moved: AtomicBool,
    released: AtomicU64,
    gone: AtomicBool,
}

impl Hint {
    pub(crate) fn new(area: &Arc<Area>, socket: u32) -> Arc<Self> {
        Arc::new(Self {
            area: Arc::clone(area),
            socket,
            moved: AtomicBool::new(false),
            released: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        })
    }

    /// Marks the connection's socket as changed.
    pub(crate) fn mark(&self) {
        if !self.moved.swap(true, Ordering::Relaxed) {
            self.area.moved.lock().unwrap_or_else(PoisonError::into_inner).push(self.socket);
        }
    }

    /// Counts bytes as released. The caller may also pass bytes that never entered a send buffer.
    pub(crate) fn release(&self, bytes: u64) {
        self.released.fetch_add(bytes, Ordering::Relaxed);
        self.mark();
    }

    /// Marks the connection's socket as unchanged.
    pub(crate) fn unmark(&self) {
        self.moved.store(false, Ordering::Relaxed);
    }

    /// Returns how many bytes the send buffer has released since the connection began. The stack no longer needs released bytes, so
    /// the application may reuse their memory.
    pub(crate) fn released(&self) -> u64 {
        self.released.load(Ordering::Relaxed)
    }

    /// Returns whether the connection has ended.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::Relaxed)
    }
}

/// The memory of one TCP buffer.
#[derive(Debug)]
pub(crate) enum Memory {
    /// A buffer in private memory of the guest.
    Own(RetainingHeap<ZERO_COPY_BYTES_MIN>),
    /// A send buffer. It lies in the application's arena: the application writes the bytes, and the guest reads them.
    Sent(Box<Sent>),
    /// A receive buffer. It lies in the guest's arena: the guest writes the bytes, and the application reads them.
    Received(Box<Received>),
}

impl Default for Memory {
    fn default() -> Self {
        Self::Own(RetainingHeap::default())
    }
}

impl Memory {
    /// Makes the send buffer and the receive buffer of a connection of an application.
    pub(crate) fn of(hint: &Arc<Hint>) -> (Self, Self) {
        let sent = Sent { hint: Arc::clone(hint), pieces: VecDeque::new(), base: 0, end: 0 };
        let received = Received { hint: Arc::clone(hint), blocks: VecDeque::new(), base: 0, head: 0 };
        (Self::Sent(Box::new(sent)), Self::Received(Box::new(received)))
    }

    /// Returns whether this is a receive buffer that should offer only a small window now, because the application's other
    /// connections have many unread bytes. Further received bytes would only displace those from the CPU caches.
    pub(crate) fn is_crowded(&self) -> bool {
        matches!(self, Self::Received(received) if received.is_crowded())
    }

    /// Returns an upper bound of the memory in bytes that a receive buffer with the contents of this one takes.
    pub(crate) fn moved_bytes(&self) -> usize {
        match self {
            Self::Own(own) => own.held() + BLOCK_BYTES,
            Self::Received(received) => (received.blocks.len() + 1) * BLOCK_BYTES,
            Self::Sent(_) => 0,
        }
    }

    /// Returns how many bytes a send buffer has.
    pub(crate) fn outgoing_bytes(&self) -> usize {
        match self {
            Self::Own(own) => own.held(),
            Self::Sent(sent) => sent.end - sent.base,
            Self::Received(_) => 0,
        }
    }

    /// Returns whether this is a send buffer that uses the application's arena of `area`.
    pub(crate) fn is_sent_by(&self, area: &Arc<Area>) -> bool {
        matches!(self, Self::Sent(sent) if Arc::ptr_eq(&sent.hint.area, area))
    }
}

/// The capacity of a buffer in an arena. A sequence of extents or blocks has no capacity of its own, so the value is practically
/// unlimited, and positions never wrap around.
const CAPACITY: usize = usize::MAX / 2;

impl Storage for Memory {
    #[inline]
    fn capacity(&self) -> usize {
        match self {
            Self::Own(own) => own.capacity(),
            Self::Sent(_) | Self::Received(_) => CAPACITY,
        }
    }

    fn grow(&mut self, capacity: usize) {
        match self {
            Self::Own(own) => own.grow(capacity),
            Self::Sent(_) | Self::Received(_) => {}
        }
    }

    fn release(&mut self) {
        match self {
            Self::Own(own) => own.release(),
            Self::Sent(_) | Self::Received(_) => {}
        }
    }

    #[inline]
    fn write(&mut self, at: usize, from: &[u8]) {
        match self {
            Self::Own(own) => own.write(at, from),
            Self::Sent(sent) => sent.push_copy(at, from),
            Self::Received(received) => received.write(at, from, 0, from.len()),
        }
    }

    #[inline]
    fn write_payload<P: Payload + ?Sized>(&mut self, at: usize, payload: &P, from: usize, len: usize) {
        match self {
            Self::Own(own) => own.write_payload(at, payload, from, len),
            Self::Sent(sent) => {
                let mut bytes = vec![0; len];
                payload.copy_to(from, &mut bytes);
                sent.push_copy(at, &bytes);
            }
            Self::Received(received) => received.write(at, payload, from, len),
        }
    }

    #[inline]
    fn read(&self, at: usize, into: &mut [u8]) {
        match self {
            Self::Own(own) => own.read(at, into),
            Self::Sent(sent) => sent.read(at, into),
            Self::Received(received) => received.read(at, into),
        }
    }

    #[inline]
    fn private(&self, at: usize, len: usize) -> Option<&[u8]> {
        match self {
            Self::Own(own) => own.private(at, len),
            Self::Sent(_) | Self::Received(_) => None,
        }
    }

    fn retain(&mut self, at: usize, retained: &Arc<dyn Retained>, from: usize, len: usize) {
        match self {
            Self::Own(own) => own.retain(at, retained, from, len),
            Self::Sent(_) | Self::Received(_) => {
                unreachable!("only payload of the guest itself, not of an application, is written to the stack")
            }
        }
    }

    #[inline]
    fn held(&self) -> usize {
        match self {
            Self::Own(own) => own.held(),
            // Each complete arena is already charged to the guest or the application, so its parts are not counted here.
            Self::Sent(_) | Self::Received(_) => 0,
        }
    }

    #[inline]
    fn is_common(&self) -> bool {
        matches!(self, Self::Own(_))
    }

    #[inline]
    fn has_room(&self, at: usize, bytes: usize, in_order: bool) -> bool {
        match self {
            Self::Own(_) | Self::Sent(_) => true,
            Self::Received(received) => received.has_room(at, bytes, in_order),
        }
    }

    #[inline]
    fn discard(&mut self, at: usize) {
        match self {
            Self::Own(own) => own.discard(at),
            Self::Sent(sent) => sent.discard(at),
            Self::Received(received) => received.discard(at),
        }
    }

    #[inline]
    fn clear(&mut self) {
        match self {
            Self::Own(own) => own.clear(),
            Self::Sent(sent) => sent.clear(),
            Self::Received(received) => received.clear(),
        }
    }
}

/// A piece of a send buffer.
#[derive(Debug)]
enum Piece {
    /// Bytes in the application's arena.
    Arena(Extent),
    /// Bytes that another application has sent, before this one took over the connection.
    Copy(Box<[u8]>),
}

impl Piece {
    fn len(&self) -> usize {
        match self {
            Self::Arena(extent) => extent.len(),
            Self::Copy(bytes) => bytes.len(),
        }
    }
}

/// A send buffer: a sequence of pieces. Each piece is stored with the position of its first byte in the stream.
#[derive(Debug)]
pub(crate) struct Sent {
    hint: Arc<Hint>,
    pieces: VecDeque<(usize, Piece)>,
    base: usize,
    end: usize,
}

impl Sent {
    /// Returns whether `count` more extents are within the limits for this buffer and for all send buffers of the application.
    pub(crate) fn takes(&self, count: usize) -> bool {
        // The first new extent may directly follow the last extent of the buffer. Then the two are merged into one entry, so allow
        // one extent more.
        let most = self.hint.area.sent_bytes() / BLOCK_BYTES + 1;
        self.pieces.len() + count <= EXTENTS_MAX && self.hint.area.places.load(Ordering::Relaxed) + count <= most
    }

    /// Appends an extent of the application's arena to the send buffer.
    pub(crate) fn push(&mut self, extent: Extent) {
        match self.pieces.back_mut() {
            Some((_, Piece::Arena(last))) if last.at() + last.len() == extent.at() => last.len += extent.len,
            Some(_) | None => {
                self.pieces.push_back((self.end, Piece::Arena(extent)));
                self.hint.area.places.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.end += extent.len();
    }

    /// Appends bytes that another application has sent.
    fn push_copy(&mut self, at: usize, bytes: &[u8]) {
        debug_assert_eq!(at, self.end, "the contents of a send buffer are moved in order");
        self.pieces.push_back((self.end, Piece::Copy(bytes.into())));
        self.hint.area.copies.fetch_add(bytes.len(), Ordering::Relaxed);
        self.end += bytes.len();
    }

    #[inline]
    fn read(&self, at: usize, into: &mut [u8]) {
        let first = self.pieces.partition_point(|(start, _)| *start <= at).saturating_sub(1);
        let mut done = 0;
        for (start, piece) in self.pieces.iter().skip(first) {
            if done == into.len() {
                break;
            }
            let skip = at + done - start;
            let len = (piece.len() - skip).min(into.len() - done);
            let part = &mut into[done..done + len];
            match piece {
                Piece::Arena(extent) => {
                    let copied = self.hint.area.sent.copy_to(extent.at() + skip, part);
                    debug_assert_eq!(copied, Ok(()), "a place was not checked");
                }
                Piece::Copy(bytes) => part.copy_from_slice(&bytes[skip..skip + len]),
            }
            done += len;
        }
    }

    #[inline]
    fn discard(&mut self, at: usize) {
        if at == self.base {
            return;
        }
        let mut released = 0;
        while let Some((start, piece)) = self.pieces.front() {
            let end = start + piece.len();
            if let Piece::Arena(_) = piece {
                released += end.min(at) - self.base.max(*start);
            }
            if end > at {
                break;
            }
            self.remove_first();
        }
        self.base = at;
        self.release(released);
    }

    fn remove_first(&mut self) {
        match self.pieces.pop_front() {
            Some((_, Piece::Arena(_))) => _ = self.hint.area.places.fetch_sub(1, Ordering::Relaxed),
            Some((_, Piece::Copy(bytes))) => _ = self.hint.area.copies.fetch_sub(bytes.len(), Ordering::Relaxed),
            None => {}
        }
    }

    #[inline]
    fn clear(&mut self) {
        self.discard(self.end);
        (self.base, self.end) = (0, 0);
    }

    fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.hint.release(bytes as u64);
        }
    }
}

impl Drop for Sent {
    fn drop(&mut self) {
        self.clear();
        self.hint.gone.store(true, Ordering::Relaxed);
        self.hint.mark();
    }
}

/// A receive buffer: a sequence of blocks of a guest's arena. A part of the stream that has not arrived has no block. The first
/// block begins at position `base` of the stream, and the unread bytes begin at position `head`.
#[derive(Debug)]
pub(crate) struct Received {
    hint: Arc<Hint>,
    blocks: VecDeque<Option<u32>>,
    base: usize,
    head: usize,
}

impl Received {
    /// Returns the extents of `len` bytes that begin `skip` bytes after the first unread byte. If an event record has no room for
    /// all extents, returns only the first ones.
    pub(crate) fn extents(&self, skip: usize, len: usize) -> Extents {
        let mut extents = Extents::new();
        for (block, inside, part) in pieces(self.head + skip - self.base, len) {
            let Some(place) = self.blocks.get(block).copied().flatten() else { break };
            let extent = Extent::new(size(place) * BLOCK_BYTES + inside, part);
            let is_full = extents.len() == EXTENTS_MAX;
            match extents.last_mut() {
                Some(last) if last.at() + last.len() == extent.at() => last.len += extent.len,
                Some(_) | None if is_full => break,
                Some(_) | None => extents.push(extent),
            }
        }
        extents
    }

    fn is_crowded(&self) -> bool {
        let pool = self.hint.area.pool();
        let used = pool.arena.len() / BLOCK_BYTES - pool.free.len();
        used.saturating_sub(self.blocks.len()) * BLOCK_BYTES > CROWDED_FROM_BYTES
    }

    #[inline]
    fn has_room(&self, at: usize, bytes: usize, in_order: bool) -> bool {
        let missing = pieces(at - self.base, bytes)
            .filter(|(block, _, _)| self.blocks.get(*block).copied().flatten().is_none())
            .count();
        let free = self.hint.area.pool().free.len();
        // Bytes that arrive out of order must not use up the memory for the missing bytes before them.
        missing == 0 || missing + if in_order { 0 } else { self.hint.area.reserve } <= free
    }

    #[inline]
    fn write<P: Payload + ?Sized>(&mut self, at: usize, payload: &P, mut from: usize, len: usize) {
        let mut pool = self.hint.area.pool();
        for (block, inside, part) in pieces(at - self.base, len) {
            while self.blocks.len() <= block {
                self.blocks.push_back(None);
            }
            let place = match self.blocks[block] {
                Some(place) => place,
                None => {
                    let Some(place) = pool.free.pop() else { unreachable!("there was room when it was asked for") };
                    self.blocks[block] = Some(place);
                    place
                }
            };
            match pool.arena.bytes_mut(size(place) * BLOCK_BYTES + inside, part) {
                Ok(into) => payload.copy_to(from, into),
                Err(outside) => unreachable!("a block is in its arena: {outside}"),
            }
            from += part;
        }
        drop(pool);
        self.hint.mark();
    }

    #[inline]
    fn read(&self, at: usize, into: &mut [u8]) {
        let pool = self.hint.area.pool();
        let mut done = 0;
        for (block, inside, part) in pieces(at - self.base, into.len()) {
            if let Some(place) = self.blocks.get(block).copied().flatten() {
                let read = pool.arena.read(size(place) * BLOCK_BYTES + inside, &mut into[done..done + part]);
                debug_assert_eq!(read, Ok(()), "a block is in its arena");
            }
            done += part;
        }
    }

    #[inline]
    fn discard(&mut self, at: usize) {
        self.head = at;
        if at - self.base < BLOCK_BYTES {
            return;
        }
        let mut pool = self.hint.area.pool();
        while at - self.base >= BLOCK_BYTES {
            pool.free.extend(self.blocks.pop_front().flatten());
            self.base += BLOCK_BYTES;
        }
    }

    #[inline]
    fn clear(&mut self) {
        if !self.blocks.is_empty() {
            self.hint.area.pool().free.extend(self.blocks.drain(..).flatten());
        }
        (self.base, self.head) = (0, 0);
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Splits `len` bytes from stream position `at` on into pieces, one for each block. A piece is the index of the block, the offset
/// in the block, and the length of the piece.
fn pieces(at: usize, len: usize) -> impl Iterator<Item = (usize, usize, usize)> {
    let (mut at, end) = (at, at + len);
    std::iter::from_fn(move || {
        let (block, inside) = (at / BLOCK_BYTES, at % BLOCK_BYTES);
        let part = (BLOCK_BYTES - inside).min(end - at);
        at += part;
        (part > 0).then_some((block, inside, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_extents_than_a_record_can_have_take_several_records() {
        const BYTES: usize = 128 << 20;
        let (_sent, sent_fd) = OwnArena::create(BYTES).unwrap();
        let (received, _) = OwnArena::create(BYTES).unwrap();
        let area = Arc::new(Area::new(PeerArena::map(sent_fd, BYTES).unwrap(), received));
        let mut rows = [0, 1].map(|socket| match Memory::of(&Hint::new(&area, socket)) {
            (_, Memory::Received(row)) => row,
            (_, Memory::Own(_) | Memory::Sent(_)) => unreachable!("the second buffer receives"),
        });
        let blocks = EXTENTS_MAX + 900;
        for at in 0..blocks {
            // No two blocks of a buffer are adjacent.
            rows.iter_mut().for_each(|row| row.write(at * BLOCK_BYTES, [7; BLOCK_BYTES].as_slice(), 0, BLOCK_BYTES));
        }
        let announced = |skip: usize| -> (usize, usize) {
            let extents = rows[0].extents(skip, blocks * BLOCK_BYTES - skip);
            (extents.len(), extents.iter().map(|extent| extent.len()).sum())
        };
        assert_eq!(announced(0), (EXTENTS_MAX, EXTENTS_MAX * BLOCK_BYTES));
        assert_eq!(announced(EXTENTS_MAX * BLOCK_BYTES), (900, 900 * BLOCK_BYTES));
        drop(rows);
        assert_eq!(area.free_bytes(), BYTES);
    }
}
