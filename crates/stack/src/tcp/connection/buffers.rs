//! The memory of a connection's two buffers: how much it is, where it comes from, and how payload is read from it.

use super::super::SendRange;
use super::super::buffer::Storage;
use super::{Connection, ConnectionState};
use crate::wire::checksum::Sum;
use crate::wire::tcp::Header;

impl<S: Storage> Connection<S> {
    /// Moves both buffers, with their contents, to other memory.
    pub fn set_buffers(&mut self, outgoing: S, incoming: S) {
        self.outgoing.move_into(outgoing);
        self.incoming.move_into(incoming);
    }

    /// Returns the memory of the receive buffer.
    pub fn incoming(&self) -> &S {
        &self.incoming.storage
    }

    /// Returns the memory of the send buffer.
    pub fn outgoing(&self) -> &S {
        &self.outgoing.storage
    }

    /// Returns whether the send buffer has bytes that the peer has not acknowledged.
    pub fn has_bytes_to_send(&self) -> bool {
        self.outgoing.len() > 0
    }

    /// Returns the size in bytes of the memory of both buffers, of the list of sent segments, of the list of gaps, and of state that few
    /// connections have.
    #[inline]
    pub fn buffer_bytes(&self) -> usize {
        let buffers = self.outgoing.storage.held() + self.incoming.storage.held();
        let ConnectionState::Synchronized(open) = &self.state else { return buffers };
        buffers
            + open.snd.board.sent.bytes()
            + open.snd.control.bytes()
            + open.rcv.gaps.bytes()
            + open.snd.extra_bytes()
    }

    /// Returns the capacity to which the receive buffer has to grow for this segment's payload, or 0 if the payload fits.
    pub fn receive_growth(&self, header: &Header, payload_bytes: usize) -> usize {
        if !matches!(self.state, ConnectionState::Synchronized(_)) {
            return 0;
        }
        let bytes = self.incoming.len() + self.bytes_ahead(header).saturating_add(payload_bytes);
        if bytes > self.incoming.storage.capacity() { bytes } else { 0 }
    }

    /// Returns whether the receive buffer's memory has room for this segment's payload.
    #[inline]
    pub fn has_receive_room(&self, header: &Header, payload_bytes: usize) -> bool {
        self.incoming.has_room(self.bytes_ahead(header), payload_bytes)
    }

    /// Returns the number of bytes from RCV.NXT to the start of a segment's payload, or 0 if the payload starts earlier.
    #[inline]
    fn bytes_ahead(&self, header: &Header) -> usize {
        let ConnectionState::Synchronized(open) = &self.state else { return 0 };
        let ahead = if header.seq.after(open.rcv.nxt) { header.seq.since(open.rcv.nxt) } else { 0 };
        usize::try_from(ahead).unwrap_or(usize::MAX)
    }

    /// Like [`Connection::has_receive_room`], for payload that starts at RCV.NXT.
    #[inline]
    pub fn has_room_for_next(&self, payload_bytes: usize) -> bool {
        self.incoming.has_room(0, payload_bytes)
    }

    /// Writes a payload behind the received bytes, like [`ByteQueue::place_and_add`](super::super::buffer::ByteQueue). Unless
    /// [`Connection::receive_fast`] accepts the payload afterwards, this has no effect.
    #[inline]
    pub(crate) fn place_and_add(&mut self, own: &[u8], rest: &[u8], sum: Sum) -> Option<Sum> {
        self.incoming.place_and_add(own, rest, sum)
    }

    /// Returns how many more bytes fit into the send buffer if its memory grows to at most `bytes` bytes.
    pub fn send_room_within(&self, bytes: usize) -> usize {
        self.outgoing.storage.capacity().max(bytes).saturating_sub(self.outgoing.len())
    }

    /// Gives the receive buffer memory from `spare` if the buffer has none. The owner calls this before payload is received.
    #[inline]
    pub fn borrow_receive_buffer(&mut self, spare: &mut Vec<S>) {
        self.incoming.borrow(spare);
    }

    /// Gives the send buffer memory from `spare` if the buffer has none. The owner calls this before bytes are written.
    #[inline]
    pub fn borrow_send_buffer(&mut self, spare: &mut Vec<S>) {
        self.outgoing.borrow(spare);
    }

    /// Moves the memory of empty buffers to `spare`, for reuse by other connections. The memory that was added last is reused
    /// first, because it is still in the CPU cache.
    #[inline]
    pub fn give_back_empty_buffers(&mut self, spare: &mut Vec<S>) {
        self.outgoing.give_back(spare);
        self.incoming.give_back(spare);
    }

    /// Moves the memory of the receive buffer to `spare` if the buffer is empty.
    #[inline]
    pub(crate) fn give_back_receive_buffer(&mut self, spare: &mut Vec<S>) {
        self.incoming.give_back(spare);
    }

    /// Frees memory that the connection does not use now: empty buffers, and the empty list of sent segments. The owner calls this
    /// when the connection has been idle for some time.
    #[inline]
    pub fn release_unused(&mut self) {
        self.release_empty_buffers();
        if let ConnectionState::Synchronized(open) = &mut self.state {
            open.snd.board.sent.release();
        }
    }

    /// Returns whether the connection has had a rare event, whose record uses memory of its own.
    pub(crate) fn has_history(&self) -> bool {
        let ConnectionState::Synchronized(open) = &self.state else { return false };
        !open.snd.rare.is_empty() || open.snd.undo.is_some()
    }

    /// Frees the memory of empty buffers.
    pub fn release_empty_buffers(&mut self) {
        self.outgoing.release();
        self.incoming.release();
    }

    /// Copies payload of the segment that `poll_transmit` returned last, from byte `at` of `range` on, until `into` is full.
    pub fn copy_payload(&self, range: SendRange, at: usize, into: &mut [u8]) {
        let una = match &self.state {
            ConnectionState::Synchronized(open) => open.snd.una,
            // The data of a SYN.
            ConnectionState::SynSent(_) => range.seq,
            ConnectionState::SynReceived(_) | ConnectionState::TimeWait { .. } | ConnectionState::Closed => return,
        };
        if !into.is_empty() {
            let start = usize::try_from(range.seq.since(una)).unwrap_or(usize::MAX);
            self.outgoing.peek(start + at, into);
        }
    }

    /// Returns the complete payload without a copy, if it is contiguous and in memory that no other process can write.
    #[inline]
    pub(crate) fn private_payload(&self, range: SendRange) -> Option<&[u8]> {
        let ConnectionState::Synchronized(open) = &self.state else { return None };
        // A segment without payload is excluded, because its sequence number may lie after all written bytes: our FIN has a
        // number, too.
        let len = usize::try_from(range.len).ok().filter(|len| *len > 0)?;
        let start = usize::try_from(range.seq.since(open.snd.una)).ok()?;
        self.outgoing.private(start, len)
    }
}
