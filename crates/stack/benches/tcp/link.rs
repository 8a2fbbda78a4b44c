//! One direction of a link in memory: a bounded queue of frames whose buffers are allocated once.

use siga_stack::copy;
use siga_stack::link::frame::{Marks, Payload, Retained};
use siga_stack::stack::Transmit;
use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// A frame in the queue. Its bytes have old content until a stack writes them.
pub(crate) struct Slot {
    memory: Memory,
    len: usize,
    marks: Marks,
}

enum Memory {
    Own(Box<[u8]>),
    /// Memory in which the sender and the receiver of the frame may retain bytes.
    Shared(Arc<Shared>),
}

/// The memory of a frame; set once the frame is complete.
#[derive(Debug, Default)]
struct Shared {
    bytes: OnceLock<Box<[u8]>>,
    /// The offset of the bytes that the sender retains.
    sent_at: AtomicUsize,
}

impl Shared {
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        copy(&self.bytes.get().expect("a frame that was built")[at..at + into.len()], into);
    }
}

impl Retained for Shared {
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        Self::copy_to(self, self.sent_at.load(Ordering::Relaxed) + at, into);
    }
}

/// Bytes of a received frame that the receiver retains.
#[derive(Debug)]
struct Taken {
    frame: Arc<Shared>,
    at: usize,
}

impl Retained for Taken {
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.frame.copy_to(self.at + at, into);
    }
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(frame) => frame.bytes.get().expect("a frame that was built"),
        }
    }
}

impl Slot {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.memory.bytes()[..self.len]
    }

    pub(crate) fn marks(&self) -> Marks {
        self.marks
    }

    /// Returns the bytes from `at` to the end.
    pub(crate) fn rest(&self, at: usize) -> Rest<'_> {
        Rest { slot: self, bytes: &self.bytes()[at..], at }
    }
}

/// The payload of a received frame, which stays in the frame's memory; the stack may retain bytes of it.
pub(crate) struct Rest<'a> {
    slot: &'a Slot,
    bytes: &'a [u8],
    at: usize,
}

impl Payload for Rest<'_> {
    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.bytes.copy_to(at, into);
    }

    fn private(&self) -> Option<&[u8]> {
        Some(self.bytes)
    }

    fn retain(&self, at: usize, _len: usize) -> Option<(usize, Arc<dyn Retained>)> {
        let Memory::Shared(frame) = &self.slot.memory else { return None };
        Some((0, Arc::new(Taken { frame: Arc::clone(frame), at: self.at + at })))
    }
}

/// A queue of frames. It always uses the fewest buffers possible, so that they stay in the cache.
pub(crate) struct Link {
    slots: Vec<Slot>,
    /// Frames with retained bytes whose slots were needed again, in the order in which they were sent.
    lent: VecDeque<Arc<Shared>>,
    frame_bytes_max: usize,
    head: usize,
    tail: usize,
    frames_max: usize,
    /// The number of frames since the link was made.
    sent: u64,
}

impl Link {
    /// Makes a link for `frames_max` frames of `frame_bytes_max` bytes. Frames that a stack sends in response to a received frame
    /// do not count against this limit.
    pub(crate) fn new(frames_max: usize, frame_bytes_max: usize) -> Self {
        let slot = || Slot { memory: Memory::Own(vec![0; frame_bytes_max].into()), len: 0, marks: Marks::default() };
        let slots = (0..2 * frames_max).map(|_| slot()).collect();
        Self { slots, lent: VecDeque::new(), frame_bytes_max, head: 0, tail: 0, frames_max, sent: 0 }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.tail < self.frames_max
    }

    /// Returns the buffer of the next frame, for [`Link::push`].
    pub(crate) fn next(&mut self) -> &mut [u8] {
        if let Memory::Shared(_) = self.slots[self.tail].memory {
            self.slots[self.tail].memory = Memory::Own(self.take());
        }
        match &mut self.slots[self.tail].memory {
            Memory::Own(bytes) => bytes,
            Memory::Shared(_) => unreachable!("it was taken"),
        }
    }

    /// Takes the memory of the next slot, unless bytes in it may be retained. Otherwise returns other memory.
    fn take(&mut self) -> Box<[u8]> {
        match mem::replace(&mut self.slots[self.tail].memory, Memory::Own(Box::default())) {
            Memory::Own(bytes) => return bytes,
            Memory::Shared(frame) => self.lent.push_back(frame),
        }
        let free = self.lent.pop_front_if(|frame| Arc::get_mut(frame).is_some()).and_then(Arc::into_inner);
        free.and_then(|frame| frame.bytes.into_inner()).unwrap_or_else(|| vec![0; self.frame_bytes_max].into())
    }

    /// Enqueues the frame that the caller has written into [`Link::next`].
    pub(crate) fn push(&mut self, len: usize, marks: Marks) {
        let slot = &mut self.slots[self.tail];
        (slot.len, slot.marks) = (len, marks);
        self.tail += 1;
        self.sent += 1;
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Builds the next frame with memory in which bytes can be retained. `build` returns how many bytes at the frame's end the
    /// sender retains; this function returns the same number.
    pub(crate) fn push_shared(
        &mut self,
        build: impl FnOnce(&mut [u8], Arc<dyn Retained>) -> Option<(Transmit, usize)>,
    ) -> Option<usize> {
        let mut bytes = self.take();
        let frame = Arc::new(Shared::default());
        let built = build(&mut bytes, Arc::<Shared>::clone(&frame));
        frame.bytes.set(bytes).expect("nobody else sets it");
        let sent_at = built.map_or(0, |(sent, taken)| sent.len - taken);
        frame.sent_at.store(sent_at, Ordering::Relaxed);
        self.slots[self.tail].memory = Memory::Shared(frame);
        let (sent, taken) = built?;
        self.push(sent.len, sent.marks);
        Some(taken)
    }

    /// Removes and returns the oldest frame.
    pub(crate) fn pop(&mut self) -> Option<&Slot> {
        if self.head == self.tail {
            (self.head, self.tail) = (0, 0);
            return None;
        }
        self.head += 1;
        Some(&self.slots[self.head - 1])
    }
}
