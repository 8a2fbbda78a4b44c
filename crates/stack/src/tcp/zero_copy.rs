//! Zero-copy send: bytes go from the application into a frame at once, and the frame's buffer is retained until they are
//! acknowledged. The send buffer then refers to that buffer instead of holding a copy.
//!
//! Why it exists: one copy less for each streamed byte (decision 013; decision 014 has what a copied byte costs).

mod retaining_heap;

use super::buffer::Storage;
use super::connection::{Connection, ConnectionState};
use super::fast_path::FastSegment;
use super::opening::Base;
use super::synchronized::Synchronized;
use crate::link::frame::Retained;
use crate::time::Instant;
pub use retaining_heap::RetainingHeap;
use std::sync::Arc;

/// Whether bytes may go into a frame as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZeroCopy {
    /// They may.
    Now,
    /// Bytes that were written before have to leave first.
    Later,
    /// A window is closed, or the connection is not eligible for the fast path: the bytes go through the send buffer.
    Not,
}

impl<S: Storage> Connection<S> {
    /// Whether bytes written now could leave at once, as far as the connection decides it.
    pub(crate) fn zero_copy(&mut self, now: Instant) -> ZeroCopy {
        let has_room = self.send_room() > 0;
        let ConnectionState::Synchronized(open) = &mut self.state else { return ZeroCopy::Not };
        if self.shut || !open.sends_fast(now, &self.base) {
            return ZeroCopy::Not;
        }
        let snd = &open.snd;
        let free = snd.usable_window() > 0 && snd.cwnd > snd.pipe() && !snd.board.is_full();
        match (snd.unsent(), free && has_room) {
            (0, true) => ZeroCopy::Now,
            (0, false) => ZeroCopy::Not,
            // By Nagle's algorithm these bytes wait until more is written.
            (unsent, _) if unsent < snd.segment_bytes && !snd.no_delay => ZeroCopy::Not,
            _ => ZeroCopy::Later,
        }
    }

    /// Payload of a full segment; 0 before the connection is open.
    pub(crate) fn segment_bytes(&self) -> usize {
        if let ConnectionState::Synchronized(open) = &self.state { open.snd.segment_bytes as usize } else { 0 }
    }

    /// The next segment of `bytes` that the caller has at hand; those that it does not carry were not written. It may be a pure
    /// acknowledgement. The caller has checked that [`Connection::zero_copy`] is [`ZeroCopy::Now`].
    pub(crate) fn poll_zero_copy(&mut self, now: Instant, bytes: usize, large: usize) -> Option<FastSegment> {
        let room = u32::try_from(bytes.min(self.send_room())).unwrap_or(u32::MAX);
        debug_assert!(self.zero_copy(now) == ZeroCopy::Now, "bytes written before go first, or a window is closed");
        let ConnectionState::Synchronized(open) = &mut self.state else { return None };
        let large = u32::try_from(large).unwrap_or(u32::MAX);
        let bytes = room.min(large.max(open.snd.segment_bytes));
        open.poll_zero_copy(now, &self.base, bytes, large)
    }

    /// Appends the bytes of the segment that [`Connection::poll_zero_copy`] has just returned to the send buffer, as a reference.
    pub(crate) fn retain_sent(&mut self, retained: &Arc<dyn Retained>, bytes: usize) {
        self.outgoing.push_retained(retained, bytes);
    }
}

impl Synchronized {
    /// Counts `bytes` as written, builds the next segment, and takes back those that the segment does not carry. Nothing else
    /// waits to be sent.
    fn poll_zero_copy(&mut self, now: Instant, base: &Base, bytes: u32, large: u32) -> Option<FastSegment> {
        self.snd.end += bytes;
        let segment = self.poll_fast(now, base, large);
        let gone = segment.as_ref().map_or(0, |segment| segment.header.len);
        self.snd.end = self.snd.end - (bytes - gone);
        self.snd.rearm(now);
        segment
    }
}
