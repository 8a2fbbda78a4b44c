//! One direction of a link in memory: a bounded queue of frames whose buffers are made once.

use siga_stack::frame::Marks;

/// A frame under way. Its bytes are whatever was there before until a stack has written them.
pub(crate) struct Slot {
    pub(crate) bytes: Vec<u8>,
    pub(crate) len: usize,
    pub(crate) marks: Marks,
}

/// Frames in order. The buffers used are always the fewest possible, so that they stay in the cache.
pub(crate) struct Link {
    slots: Vec<Slot>,
    head: usize,
    tail: usize,
    frames_max: usize,
}

impl Link {
    /// A link that holds so many frames of so many bytes. Answers that a stack gives while it takes a frame need no room.
    pub(crate) fn new(frames_max: usize, frame_bytes_max: usize) -> Self {
        let slot = || Slot { bytes: vec![0; frame_bytes_max], len: 0, marks: Marks::default() };
        Self { slots: (0..2 * frames_max).map(|_| slot()).collect(), head: 0, tail: 0, frames_max }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.tail < self.frames_max
    }

    /// The buffer of the next frame, for [`Link::push`].
    pub(crate) fn next(&mut self) -> &mut Slot {
        &mut self.slots[self.tail]
    }

    /// Hands over the frame that lies in [`Link::next`].
    pub(crate) fn push(&mut self) {
        self.tail += 1;
    }

    /// The oldest frame.
    pub(crate) fn pop(&mut self) -> Option<&Slot> {
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
            return None;
        }
        self.head += 1;
        Some(&self.slots[self.head - 1])
    }
}
