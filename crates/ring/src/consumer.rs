//! The receiving role of a link: frames copied out of memory that their sender can still write.

use crate::counters::ConsumerCounters;
use crate::layout::{self, CONSUMED, FRAMES_NOTIFY_THRESHOLD, LAST, PRODUCED, ROOM_NOTIFY_THRESHOLD, Shape, TAG, word};
use crate::notifier::Notifier;
use crate::retained::{Buffers, Retained};
use crate::sync::{NotifyFd, Ordering, Region, View, fence};
use crate::violation::Violation;
use std::sync::Arc;

/// Receives frames over one direction of a link.
#[derive(Debug)]
pub struct Consumer {
    own: Region,
    peer: View,
    notifier: Notifier,
    shape: Shape,
    /// Buffers that the peer had filled when last looked at.
    produced: u64,
    /// Buffers whose frames were all taken, ever.
    taken: u64,
    /// Of these, what the peer was told of.
    given_back: u64,
    /// The buffer to take from, and what lies in it before the next frame.
    buffer: usize,
    fill: usize,
    /// The frame that was handed out last is the last of its buffer.
    finished: bool,
    batch: u64,
    asleep: bool,
    violation: Option<Violation>,
    counters: ConsumerCounters,
    buffers: Arc<Buffers>,
}

/// A frame as it lies in its sender's memory: its bytes may change at any time, its length and tag were read once.
#[derive(Debug)]
pub struct Frame<'a> {
    buffers: &'a Arc<Buffers>,
    at: usize,
    len: usize,
    tag: u64,
}

impl Frame<'_> {
    /// Bytes of the frame.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What its sender put beside it.
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Copies the bytes from `at` on, as many as `into` takes.
    ///
    /// # Panics
    /// The frame has fewer.
    pub fn copy_to(&self, at: usize, into: &mut [u8]) {
        let inside = at.checked_add(into.len()).is_some_and(|end| end <= self.len);
        assert!(inside, "{} bytes at {at} of a frame of {}", into.len(), self.len);
        self.buffers.copy_to(self.at + at, into);
    }

    /// Has `len` bytes from `at` on stay in the ring until the value is dropped, or [`Consumer::move_out`] is called.
    ///
    /// # Panics
    /// The frame has fewer.
    pub fn retain(&self, at: usize, len: usize) -> Arc<Retained> {
        let inside = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(inside, "{len} bytes at {at} of a frame of {}", self.len);
        self.buffers.retain(self.at + at, len)
    }
}

impl Consumer {
    pub(crate) fn new(own: Region, peer: View, notify_fd: Arc<NotifyFd>, shape: Shape) -> Self {
        let buffers = Buffers::new(peer.clone(), shape);
        Self {
            own,
            peer,
            notifier: Notifier::new(notify_fd),
            shape,
            produced: 0,
            taken: 0,
            given_back: 0,
            buffer: 0,
            fill: 0,
            finished: false,
            batch: 1,
            asleep: false,
            violation: None,
            counters: ConsumerCounters::default(),
            buffers,
        }
    }

    /// The shape of the incoming ring.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// How many buffers are given back together at the most; at first each is given back when its last frame was taken.
    /// Whatever was taken is given back when there is nothing more to take.
    pub fn set_give_back_batch(&mut self, buffers: usize) {
        self.batch = u64::try_from(buffers).unwrap_or(u64::MAX).max(1);
    }

    /// Whether the doorbell is rung whenever buffers are given back, asked for or not. At first it is not.
    pub fn set_notify_always(&mut self, always: bool) {
        self.notifier.always = always;
    }

    /// The next frame. The one before it is taken: its buffer may be given back and filled again.
    ///
    /// # Errors
    /// The peer broke the contract: then all calls fail from here on.
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Violation> {
        if !self.is_ready()? {
            self.give_back();
            return Ok(None);
        }
        let most = word(self.shape.buffer_bytes() - self.fill);
        let head = self.shape.head_at(self.buffer, self.fill);
        let (found, tag) = (self.peer.load(head), self.peer.load(head + TAG));
        let length = found & !LAST;
        if length > most {
            return Err(self.broken(Violation::Length { found: length, most }));
        }
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        let at = self.shape.bytes_at(self.buffer, self.fill);
        if found & LAST == 0 {
            let next = layout::fill_behind(self.fill, len);
            if next > self.shape.buffer_bytes() {
                return Err(self.broken(Violation::Unended { at: word(next), most: word(self.shape.buffer_bytes()) }));
            }
            self.fill = next;
        } else {
            self.finished = true;
        }
        self.counters.frames += 1;
        self.counters.bytes += length;
        Ok(Some(Frame { buffers: &self.buffers, at, len, tag }))
    }

    /// Whether there is a frame, without taking it. The frame before it is taken.
    ///
    /// # Errors
    /// The peer broke the contract.
    pub fn is_ready(&mut self) -> Result<bool, Violation> {
        self.violation.map_or(Ok(()), Err)?;
        self.finish_frame();
        if self.taken == self.produced {
            self.refresh()?;
        }
        Ok(self.taken < self.produced)
    }

    /// Gives back all buffers whose frames were taken, up to the first of which something is kept, and rings if the peer asked
    /// for it.
    pub fn give_back(&mut self) {
        self.finish_frame();
        let free = self.free();
        let buffers = free - self.given_back;
        if buffers == 0 {
            return;
        }
        // This end's reading of the buffers comes before the count by which the peer writes them again.
        fence(Ordering::Release);
        self.own.store(CONSUMED, free);
        self.given_back = free;
        self.counters.buffers += buffers;
        // Either the producer sees the count or this end sees its wish.
        fence(Ordering::SeqCst);
        self.notifier.changed(self.given_back, self.peer.load(ROOM_NOTIFY_THRESHOLD));
    }

    /// How many buffers whose frames were taken cannot be given back because something is kept, of them or of one before.
    #[inline]
    pub fn count_unreturned(&mut self) -> usize {
        if self.buffers.retains_any() { self.count_held_back() } else { 0 }
    }

    #[inline(never)]
    fn count_held_back(&mut self) -> usize {
        self.give_back();
        usize::try_from(self.taken - self.given_back).unwrap_or(usize::MAX)
    }

    /// Moves what is kept of frames into memory of its own, so that all buffers can be given back whose frames were taken.
    pub fn move_out(&mut self) {
        self.buffers.move_out(None);
        self.give_back();
    }

    /// Asks the producer to ring at the next frame. `false`: there is one already, and nobody will ring. It holds until
    /// [`Consumer::awake`] or the ring. Nothing stays in the ring meanwhile: nobody gives buffers back in his sleep.
    ///
    /// # Errors
    /// The peer broke the contract.
    pub fn declare_asleep(&mut self) -> Result<bool, Violation> {
        if self.is_ready()? {
            return Ok(false);
        }
        if self.count_unreturned() > 0 {
            self.move_out();
        }
        self.give_back();
        self.own.store(FRAMES_NOTIFY_THRESHOLD, self.taken + 1);
        self.asleep = true;
        // Either the producer sees the wish or this end sees its count.
        fence(Ordering::SeqCst);
        self.refresh()?;
        let ready = self.taken < self.produced;
        if ready {
            self.awake();
        }
        Ok(!ready)
    }

    /// Takes the wish to be rung back; a ring may be under way.
    pub fn awake(&mut self) {
        if self.asleep {
            self.own.store(FRAMES_NOTIFY_THRESHOLD, 0);
            self.asleep = false;
        }
    }

    /// Whether a doorbell found that nobody holds its other end.
    pub fn peer_gone(&self) -> bool {
        self.notifier.gone
    }

    /// What was counted.
    pub fn counters(&self) -> ConsumerCounters {
        ConsumerCounters {
            doorbells: self.notifier.counters,
            copied_bytes: self.buffers.meter.bytes(),
            copy_ticks: self.buffers.meter.ticks(),
            ..self.counters
        }
    }

    /// Counts the buffer of the last frame as taken if it was the last of its buffer.
    fn finish_frame(&mut self) {
        if !self.finished {
            return;
        }
        self.finished = false;
        self.taken += 1;
        self.fill = 0;
        self.buffer = self.shape.next_buffer(self.buffer);
        if self.taken - self.given_back >= self.batch {
            self.give_back();
        }
    }

    /// How many buffers can have been given back, ever.
    fn free(&self) -> u64 {
        if !self.buffers.retains_any() {
            return self.taken;
        }
        let buffer = |number: u64| usize::try_from(number % word(self.shape.buffer_count())).unwrap_or(usize::MAX);
        (self.given_back..self.taken).find(|number| self.buffers.is_retained(buffer(*number))).unwrap_or(self.taken)
    }

    /// Reads what the peer has filled, once.
    fn refresh(&mut self) -> Result<(), Violation> {
        let (least, most) = (self.produced, self.given_back + word(self.shape.buffer_count()));
        let found = self.peer.load(PRODUCED);
        if !(least..=most).contains(&found) {
            return Err(self.broken(Violation::Produced { found, least, most }));
        }
        // What lies in the buffers is read after the count that tells of them.
        fence(Ordering::Acquire);
        self.produced = found;
        Ok(())
    }

    fn broken(&mut self, violation: Violation) -> Violation {
        self.violation = Some(violation);
        self.counters.violations += 1;
        violation
    }
}
