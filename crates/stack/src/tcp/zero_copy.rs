//! Zero-copy send: the application's bytes go directly into a frame. The frame's buffer is retained (kept from reuse) until these
//! bytes are acknowledged. The send buffer then refers to the frame's buffer instead of holding a copy.
//!
//! This saves one copy of each streamed byte (decision 013). Decision 014 states the cost of copying a byte.

mod retaining_heap;

use super::buffer::Storage;
use super::connection::{Connection, ConnectionState};
use super::fast_path::FastSegment;
use crate::link::frame::Retained;
use crate::time::Instant;
pub use retaining_heap::RetainingHeap;
use std::sync::Arc;

/// Whether bytes may go directly into a frame when the application writes them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZeroCopy {
    /// The bytes may go into a frame now.
    Now,
    /// Bytes that were written earlier have to be sent first.
    Later,
    /// A window is closed, or the connection is not eligible for the fast path: the bytes go through the send buffer.
    Not,
}

impl<S: Storage> Connection<S> {
    /// Returns whether the connection's state allows bytes that are written now to be sent without a copy. The owner checks the
    /// route and the device.
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
            // Because of Nagle's algorithm or the application's wish, the unsent bytes wait until more bytes are
            // written. The new bytes therefore go through the send buffer, too.
            (unsent, _) if unsent < snd.segment_bytes && (!snd.no_delay || snd.is_held()) => ZeroCopy::Not,
            _ => ZeroCopy::Later,
        }
    }

    /// Returns the payload of a full segment in bytes; 0 before the connection is open.
    pub(crate) fn segment_bytes(&self) -> usize {
        if let ConnectionState::Synchronized(open) = &self.state { open.snd.segment_bytes as usize } else { 0 }
    }

    /// Returns the next segment, built from the `bytes` bytes that the caller is about to write. Bytes that the segment does not
    /// carry do not count as written. The segment may be a pure acknowledgement. The caller has checked that
    /// [`Connection::zero_copy`] is [`ZeroCopy::Now`].
    pub(crate) fn poll_zero_copy(&mut self, now: Instant, bytes: usize, large: usize) -> Option<FastSegment> {
        let room = u32::try_from(bytes.min(self.send_room())).unwrap_or(u32::MAX);
        debug_assert!(self.zero_copy(now) == ZeroCopy::Now, "earlier bytes are still unsent, or a window is closed");
        let ConnectionState::Synchronized(open) = &mut self.state else { return None };
        let large = u32::try_from(large).unwrap_or(u32::MAX);
        let bytes = room.min(large.max(open.snd.segment_bytes));
        // No earlier bytes wait to be sent, so the payload of the segment consists of these bytes only.
        open.snd.end += bytes;
        let segment = open.poll_fast(now, &self.base, large);
        let gone = segment.as_ref().map_or(0, |segment| segment.header.len);
        open.snd.end = open.snd.end - (bytes - gone);
        open.snd.rearm(now);
        segment
    }

    /// Appends `bytes` retained bytes to the send buffer, as a reference. They are the payload of the segment that
    /// [`Connection::poll_zero_copy`] has just returned.
    pub(crate) fn retain_sent(&mut self, retained: &Arc<dyn Retained>, bytes: usize) {
        self.outgoing.push_retained(retained, bytes);
    }
}
