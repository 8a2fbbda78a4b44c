//! Bytes that an application writes and that go into a frame at once: no copy of them is made for the case that they are lost,
//! as they stay in the frame.

use super::buffer::Storage;
use super::connection::{Connection, State};
use super::fast_path::PlainSegment;
use crate::link::frame::Kept;
use crate::time::Instant;
use std::sync::Arc;

/// Whether bytes go into a frame as they are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goes {
    /// They do.
    Now,
    /// Others that were written before have to leave first.
    Later,
    /// A window is closed, or the connection is not in a state of calm: they go by way of the send buffer.
    Not,
}

impl<S: Storage> Connection<S> {
    /// Whether bytes written now would leave at once, as far as the connection has a say.
    pub(crate) fn goes_straight(&mut self, now: Instant) -> Goes {
        let has_room = self.send_room() > 0;
        let State::Synchronized(open) = &mut self.state else { return Goes::Not };
        if self.shut || !open.transmits_plainly(now, &self.base) {
            return Goes::Not;
        }
        let snd = &open.snd;
        let free = snd.usable_window() > 0 && snd.cwnd > snd.pipe() && !snd.board.is_full();
        match (snd.unsent(), free && has_room) {
            (0, true) => Goes::Now,
            (0, false) => Goes::Not,
            // By Nagle's rule it waits for more to be written.
            (unsent, _) if unsent < snd.segment_bytes && !snd.no_delay => Goes::Not,
            _ => Goes::Later,
        }
    }

    /// Payload of a full segment, 0 before the connection is open.
    pub(crate) fn segment_bytes(&self) -> usize {
        if let State::Synchronized(open) = &self.state { open.snd.segment_bytes as usize } else { 0 }
    }

    /// The next segment of bytes that are written only as far as they go with it, where they go now; it may be a bare
    /// acknowledgement.
    pub(crate) fn poll_straight(&mut self, now: Instant, bytes: usize, large: usize) -> Option<PlainSegment> {
        let room = u32::try_from(bytes.min(self.send_room())).unwrap_or(u32::MAX);
        debug_assert!(self.goes_straight(now) == Goes::Now, "others go first, or a window is closed");
        let State::Synchronized(open) = &mut self.state else { return None };
        let large = u32::try_from(large).unwrap_or(u32::MAX);
        let bytes = room.min(large.max(open.snd.segment_bytes));
        open.poll_straight(now, &self.base, bytes, large)
    }

    /// Bytes of a segment that has just gone straight, where they stay.
    pub(crate) fn keep_sent(&mut self, kept: &Arc<dyn Kept>, bytes: usize) {
        self.outgoing.push_kept(kept, bytes);
    }
}
