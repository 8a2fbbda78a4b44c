//! The receiving role of a link. A consumer copies frames out of memory that their sender can still change.

use crate::counters::ConsumerCounters;
use crate::layout::{
    self, CONSUMED, FRAMES_NOTIFY_THRESHOLD, LAST, PRODUCED, ROOM_NOTIFY_THRESHOLD, ROUND_ENDS, Shape, TAG, word,
};
use crate::limits::ROUND_LEAST;
use crate::notifier::Notifier;
use crate::retained::{Buffers, Retained};
use crate::sync::{NotifyFd, Ordering, Region, View, fence};
use crate::violation::Violation;
use std::sync::Arc;

/// Receives frames over one direction of a link.
///
/// Method families, in the order of their use:
/// - [`Consumer::next_frame`] returns the next frame, and [`Consumer::is_ready`] whether there is one. Both calls *take* the
///   previous frame, that is, the caller no longer needs that frame. If all frames of a buffer are taken, the buffer is taken.
///   [`Consumer::give_back`] returns taken buffers to the producer. `next_frame` calls `give_back` when the ring is empty.
/// - [`Frame::retain`] keeps bytes in their buffer, so the buffer cannot be given back. With [`Consumer::count_unreturned`] and
///   [`Consumer::move_out`], the caller limits the number of such buffers.
/// - Before a sleep, [`Consumer::declare_asleep`] requests a notification. After the sleep, [`Consumer::awake`] withdraws the
///   request.
#[derive(Debug)]
pub struct Consumer {
    own: Region,
    peer: View,
    notifier: Notifier,
    shape: Shape,
    /// The producer's index when it was last read: the number of buffers that the producer has filled since the link was made.
    produced: u64,
    /// Number of buffers whose frames have all been taken since the link was made.
    taken: u64,
    /// Number of buffers that were given back since the link was made. This is the published index.
    given_back: u64,
    /// The buffer that contains the next frame. `fill` is the number of bytes before that frame.
    buffer: usize,
    fill: usize,
    /// True if the latest frame is the last one of its buffer.
    finished: bool,
    /// True if the first buffer of the memory follows that buffer.
    round_ends: bool,
    /// Number of buffers of the latest round.
    round: usize,
    /// The buffers that were taken, by their number modulo the number of buffers.
    taken_buffers: Box<[usize]>,
    batch: u64,
    asleep: bool,
    violation: Option<Violation>,
    counters: ConsumerCounters,
    buffers: Arc<Buffers>,
}

/// A frame in its sender's memory. The sender can change the bytes at any time. The length and the tag are copies that were read
/// once.
#[derive(Debug)]
pub struct Frame<'a> {
    buffers: &'a Arc<Buffers>,
    at: usize,
    len: usize,
    tag: u64,
}

impl Frame<'_> {
    /// Returns the length of the frame in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the frame has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the tag that the sender gave to the frame.
    #[inline]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// Copies `into.len()` bytes of the frame, beginning at offset `at`.
    ///
    /// # Panics
    /// Panics if the frame has fewer bytes.
    #[inline]
    pub fn copy_to(&self, at: usize, into: &mut [u8]) {
        let inside = at.checked_add(into.len()).is_some_and(|end| end <= self.len);
        assert!(inside, "{} bytes at {at} of a frame of {}", into.len(), self.len);
        self.buffers.copy_to(self.at + at, into);
    }

    /// Retains `len` bytes of the frame, beginning at offset `at`, in the ring until the returned value is dropped or
    /// [`Consumer::move_out`] is called.
    ///
    /// # Panics
    /// Panics if the frame has fewer bytes.
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
            round_ends: false,
            round: shape.buffer_count(),
            taken_buffers: vec![0; shape.buffer_count()].into(),
            batch: 1,
            asleep: false,
            violation: None,
            counters: ConsumerCounters::default(),
            buffers,
        }
    }

    /// Returns the shape of the incoming ring.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the number of buffers that the producer filled in turns in its latest round (see [`Producer::set_round_bytes_most`]): at
    /// least [`ROUND_LEAST`], if the ring is as long as that.
    ///
    /// [`Producer::set_round_bytes_most`]: crate::Producer::set_round_bytes_most
    #[inline]
    pub fn round(&self) -> usize {
        self.round
    }

    /// Sets how many taken buffers are given back together. The default is 1. When the ring is empty, all taken buffers are given
    /// back.
    pub fn set_give_back_batch(&mut self, buffers: usize) {
        self.batch = u64::try_from(buffers).unwrap_or(u64::MAX).max(1);
    }

    /// Sets whether each [`Consumer::give_back`] sends a notification, even if the peer did not request one. The default is
    /// false.
    pub fn set_notify_always(&mut self, always: bool) {
        self.notifier.always = always;
    }

    /// Returns the next frame. This call takes the previous frame, so the buffer of that frame may be given back and filled
    /// again.
    ///
    /// # Errors
    /// Returns the violation if the peer violated the ring's protocol. All later calls return it too.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, Violation> {
        if !self.is_ready()? {
            if self.given_back != self.taken {
                self.give_back();
            }
            return Ok(None);
        }
        let most = word(self.shape.buffer_bytes() - self.fill);
        let head = self.shape.head_at(self.buffer, self.fill);
        let (found, tag) = (self.peer.load(head), self.peer.load(head + TAG));
        let is_last = found & LAST != 0;
        let length = if is_last { found & !(LAST | ROUND_ENDS) } else { found };
        if length > most {
            return Err(self.broken(Violation::Length { found: length, most }));
        }
        let len = usize::try_from(length).unwrap_or(usize::MAX);
        let at = self.shape.bytes_at(self.buffer, self.fill);
        if !is_last {
            let next = layout::fill_behind(self.fill, len);
            if next > self.shape.buffer_bytes() {
                return Err(self.broken(Violation::Unended { at: word(next), most: word(self.shape.buffer_bytes()) }));
            }
            self.fill = next;
        } else {
            self.finished = true;
            self.round_ends = found & ROUND_ENDS != 0;
            if self.round_ends {
                self.round = (self.buffer + 1).max(ROUND_LEAST).min(self.shape.buffer_count());
            }
        }
        self.counters.frames += 1;
        self.counters.bytes += length;
        Ok(Some(Frame { buffers: &self.buffers, at, len, tag }))
    }

    /// Returns true if there is certainly nothing to do: no new frame, no buffer to give back, no violation to report. This check
    /// needs a tenth of the instructions of [`Consumer::next_frame`].
    #[inline]
    pub fn is_idle(&self) -> bool {
        !self.finished
            && self.taken == self.given_back
            && self.taken == self.produced
            && self.violation.is_none()
            && self.peer.load(PRODUCED) == self.produced
    }

    /// Returns whether there is a next frame. This call takes the previous frame, but not the next one.
    ///
    /// # Errors
    /// Returns the violation if the peer violated the ring's protocol.
    #[inline]
    pub fn is_ready(&mut self) -> Result<bool, Violation> {
        if let Some(violation) = self.violation {
            return Err(violation);
        }
        self.finish_frame();
        if self.taken == self.produced {
            self.refresh()?;
        }
        Ok(self.taken < self.produced)
    }

    /// Gives back the taken buffers in front of the first buffer with retained bytes, and sends a notification if the peer
    /// requested it.
    pub fn give_back(&mut self) {
        self.finish_frame();
        let free = self.free();
        let buffers = free - self.given_back;
        if buffers == 0 {
            return;
        }
        // Release: this side has read the buffers before the peer sees the index that allows it to write them again. The matching
        // acquire fence of the peer is in `Producer::refresh`.
        fence(Ordering::Release);
        self.own.store(CONSUMED, free);
        self.given_back = free;
        self.counters.buffers += buffers;
        // SeqCst, paired with the fence in `Producer::want_room`: either the producer sees the new index, or this side sees the
        // producer's new threshold. Without the fences, each side could miss the store of the other side, and the producer would
        // sleep for ever (decision 008).
        fence(Ordering::SeqCst);
        self.notifier.changed(self.given_back, self.peer.load(ROOM_NOTIFY_THRESHOLD));
    }

    /// Returns how many taken buffers cannot be given back yet, because they or an earlier buffer have retained bytes.
    #[inline]
    pub fn count_unreturned(&mut self) -> usize {
        if self.buffers.retains_any() { self.count_held_back() } else { 0 }
    }

    #[inline(never)]
    fn count_held_back(&mut self) -> usize {
        self.give_back();
        usize::try_from(self.taken - self.given_back).unwrap_or(usize::MAX)
    }

    /// Copies all retained bytes to private memory, and gives back all taken buffers.
    pub fn move_out(&mut self) {
        self.buffers.move_out(None);
        self.give_back();
    }

    /// Requests a notification for the next frame. If a frame has already arrived, returns false, and the peer sends no
    /// notification. The request is valid until [`Consumer::awake`] or the notification. Retained bytes are moved out first,
    /// because a sleeping side gives no buffers back.
    ///
    /// # Errors
    /// Returns the violation if the peer violated the ring's protocol.
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
        // SeqCst, paired with the fence in `Producer::close`: either the producer sees the new threshold, or this side sees the
        // producer's new index.
        fence(Ordering::SeqCst);
        self.refresh()?;
        let ready = self.taken < self.produced;
        if ready {
            self.awake();
        }
        Ok(!ready)
    }

    /// Withdraws the request for a notification. A notification may already be on its way.
    pub fn awake(&mut self) {
        if self.asleep {
            self.own.store(FRAMES_NOTIFY_THRESHOLD, 0);
            self.asleep = false;
        }
    }

    /// Returns true if a notification failed because the peer has closed its wake descriptor.
    pub fn peer_gone(&self) -> bool {
        self.notifier.gone
    }

    /// Returns the counters of this consumer.
    pub fn counters(&self) -> ConsumerCounters {
        ConsumerCounters {
            doorbells: self.notifier.counters,
            copied_bytes: self.buffers.meter.bytes(),
            copy_ticks: self.buffers.meter.ticks(),
            ..self.counters
        }
    }

    /// Counts the buffer of the latest frame as taken if the latest frame was the last one in that buffer.
    #[inline]
    fn finish_frame(&mut self) {
        if self.finished {
            self.finish_buffer();
        }
    }

    #[inline(never)]
    fn finish_buffer(&mut self) {
        self.finished = false;
        let place = self.place(self.taken);
        self.taken_buffers[place] = self.buffer;
        self.taken += 1;
        self.fill = 0;
        self.buffer = if self.round_ends { 0 } else { self.shape.next_buffer(self.buffer) };
        if self.taken - self.given_back >= self.batch {
            self.give_back();
        }
    }

    /// Returns the index up to which buffers can be given back.
    #[inline]
    fn free(&self) -> u64 {
        if self.buffers.retains_any() { self.free_before_retained() } else { self.taken }
    }

    #[inline(never)]
    fn free_before_retained(&self) -> u64 {
        let is_retained = |number: &u64| self.buffers.is_retained(self.taken_buffers[self.place(*number)]);
        (self.given_back..self.taken).find(is_retained).unwrap_or(self.taken)
    }

    /// Returns the place of a buffer in `taken_buffers`.
    #[inline]
    fn place(&self, number: u64) -> usize {
        usize::try_from(number % word(self.shape.buffer_count())).unwrap_or(usize::MAX)
    }

    /// Reads the producer's index once and checks it.
    #[inline]
    fn refresh(&mut self) -> Result<(), Violation> {
        let (least, most) = (self.produced, self.given_back + word(self.shape.buffer_count()));
        let found = self.peer.load(PRODUCED);
        if !(least..=most).contains(&found) {
            return Err(self.broken(Violation::Produced { found, least, most }));
        }
        // Acquire: this side reads the buffers after it has read the index that publishes them. A fence is used because Rust does
        // not allow an acquire load on a read-only mapping.
        fence(Ordering::Acquire);
        self.produced = found;
        Ok(())
    }

    #[cold]
    fn broken(&mut self, violation: Violation) -> Violation {
        self.violation = Some(violation);
        self.counters.violations += 1;
        violation
    }
}
