//! Bytes that an application writes and that go into a frame at once: no copy of them is made for the case that they are lost,
//! as they stay in the frame.

use super::buffer::Storage;
use super::connection::{Connection, ConnectionState};
use super::fast_path::FastSegment;
use crate::link::frame::Retained;
use crate::time::Instant;
use std::sync::Arc;

/// Whether bytes go into a frame as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ZeroCopy {
    /// They do.
    Now,
    /// Others that were written before have to leave first.
    Later,
    /// A window is closed, or the connection is not in a state of calm: they go by way of the send buffer.
    Not,
}

impl<S: Storage> Connection<S> {
    /// Whether bytes written now would leave at once, as far as the connection has a say.
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
            // By Nagle's rule it waits for more to be written.
            (unsent, _) if unsent < snd.segment_bytes && !snd.no_delay => ZeroCopy::Not,
            _ => ZeroCopy::Later,
        }
    }

    /// Payload of a full segment, 0 before the connection is open.
    pub(crate) fn segment_bytes(&self) -> usize {
        if let ConnectionState::Synchronized(open) = &self.state { open.snd.segment_bytes as usize } else { 0 }
    }

    /// The next segment of bytes that are written only as far as they go with it, where they go now; it may be a bare
    /// acknowledgement.
    pub(crate) fn poll_zero_copy(&mut self, now: Instant, bytes: usize, large: usize) -> Option<FastSegment> {
        let room = u32::try_from(bytes.min(self.send_room())).unwrap_or(u32::MAX);
        debug_assert!(self.zero_copy(now) == ZeroCopy::Now, "others go first, or a window is closed");
        let ConnectionState::Synchronized(open) = &mut self.state else { return None };
        let large = u32::try_from(large).unwrap_or(u32::MAX);
        let bytes = room.min(large.max(open.snd.segment_bytes));
        open.poll_zero_copy(now, &self.base, bytes, large)
    }

    /// Bytes of a segment that has just gone straight, where they stay.
    pub(crate) fn retain_sent(&mut self, retained: &Arc<dyn Retained>, bytes: usize) {
        self.outgoing.push_retained(retained, bytes);
    }
}
