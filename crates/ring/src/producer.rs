//! The sending role of a link. A producer builds frames in its own buffers, publishes them, and sends a notification if the peer
//! requested one.

use crate::clock::Ticks;
use crate::counters::ProducerCounters;
use crate::layout::{
    self, CONSUMED, CONSUMER_WORDS_BYTES, FRAMES_NOTIFY_THRESHOLD, LAST, ROUND_ENDS, Shape, TAG, word,
};
use crate::limits::ROUND_LEAST;
use crate::notifier::Notifier;
use crate::retained::{Buffers, Retainer};
use crate::sync::{NotifyFd, Ordering, Region, View, fence};
use crate::violation::Violation;
use std::fmt;
use std::sync::Arc;

/// Offset of the producer's index within the part of the memory that belongs to the producer.
const PRODUCED: usize = layout::PRODUCED - CONSUMER_WORDS_BYTES;
const ROOM_NOTIFY_THRESHOLD: usize = layout::ROOM_NOTIFY_THRESHOLD - CONSUMER_WORDS_BYTES;

/// The reason why memory for a frame cannot be reserved, neither now nor later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReserveError {
    /// The frame is longer than a buffer of this link.
    TooLong {
        /// Length of the frame in bytes.
        bytes: usize,
        /// Size of a buffer in bytes.
        most: usize,
    },
    /// The peer violated the ring's protocol.
    Violation(Violation),
}

impl fmt::Display for ReserveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes, most } => {
                write!(f, "a frame of {bytes} bytes is longer than the link's maximum of {most} bytes")
            }
            Self::Violation(violation) => violation.fmt(f),
        }
    }
}

impl std::error::Error for ReserveError {}

impl From<Violation> for ReserveError {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Sends frames over one direction of a link.
///
/// Method families, in the order of their use:
/// 1. [`Producer::reserve`] returns memory for a frame, or `None` if the peer has not given back any buffer.
/// 2. [`Producer::commit`] adds the frame. With packing, several frames share a buffer until [`Producer::publish`].
/// 3. After `None`, [`Producer::want_room`] requests a notification, and [`Producer::room`] and [`Producer::has_room`] check
///    whether buffers are free.
///
/// [`Producer::retainer`] keeps sent bytes in their buffers. Such buffers cannot be filled. [`Producer::next_retained_at`] and
/// [`Producer::retained_buffers`] return information about them.
#[derive(Debug)]
pub struct Producer {
    own: Region,
    peer: View,
    notifier: Notifier,
    shape: Shape,
    /// Number of buffers that were filled and published since the link was made. This is the published index.
    published: u64,
    /// The consumer's index when it was last read: the number of buffers that the consumer has given back since the link was
    /// made.
    consumed: u64,
    /// The buffer to fill. `fill` is the number of bytes in this buffer.
    buffer: usize,
    fill: usize,
    /// For each buffer: the consumer's index at which it is free again.
    free_at: Box<[u64]>,
    /// Number of buffers that are filled in turns: those of the previous round, or those of this round if they are more.
    round: usize,
    /// Number of bytes after which a round ends, and number of bytes in this round.
    round_bytes_most: usize,
    round_bytes: usize,
    /// The latest frame of the buffer: the number of bytes before it, and its length.
    last: (usize, usize),
    reserved: usize,
    packing: bool,
    violation: Option<Violation>,
    counters: ProducerCounters,
    buffers: Arc<Buffers>,
}

impl Producer {
    pub(crate) fn new(own: Region, peer: View, notify_fd: Arc<NotifyFd>, shape: Shape) -> Self {
        let buffers = Buffers::new(own.view(), shape);
        Self {
            own,
            peer,
            notifier: Notifier::new(notify_fd),
            shape,
            published: 0,
            consumed: 0,
            buffer: 0,
            fill: 0,
            free_at: vec![0; shape.buffer_count()].into(),
            round: shape.buffer_count(),
            round_bytes_most: usize::MAX,
            round_bytes: 0,
            last: (0, 0),
            reserved: 0,
            packing: false,
            violation: None,
            counters: ProducerCounters::default(),
            buffers,
        }
    }

    /// Returns the shape of the outgoing ring.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// Returns the descriptors with which this side notifies the other one ([`crate::NotifyFd::descriptors`]).
    #[cfg(not(loom))]
    pub fn notify_descriptors(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        self.notifier.descriptors()
    }

    /// Sets whether frames share a buffer until it is full or [`Producer::publish`] is called. The default is false.
    pub fn set_packing(&mut self, packing: bool) {
        self.packing = packing;
    }

    /// Returns whether frames share a buffer.
    #[inline]
    pub fn packs(&self) -> bool {
        self.packing
    }

    /// Sets the number of bytes after which a round ends: the next frame goes into the first buffer again. The bytes of a short round
    /// stay in a near cache. A round has at least [`ROUND_LEAST`] buffers if the ring is as long as that. By default, it has all of them.
    pub fn set_round_bytes_most(&mut self, bytes: usize) {
        self.round_bytes_most = bytes;
    }

    /// Returns the number of buffers that are filled in turns at present.
    #[inline]
    pub fn round(&self) -> usize {
        self.round
    }

    /// Sets whether each publication sends a notification, even if the peer did not request one. The default is false.
    pub fn set_notify_always(&mut self, always: bool) {
        self.notifier.always = always;
    }

    /// Returns memory for a frame of up to `bytes` bytes. No other process can write to this memory, and an honest peer reads it
    /// only after it is published. Returns `None` if no buffer is free because the peer has not given one back. Then the caller
    /// drops the frame ([`Producer::count_target_full`]) or keeps it ([`Producer::count_pending`], [`Producer::want_room`]). The
    /// next reservation replaces a reservation that was not committed.
    ///
    /// # Errors
    /// Returns an error if the frame is too long for the link, or if the peer violated the ring's protocol. After a violation all
    /// calls fail.
    #[inline]
    pub fn reserve(&mut self, bytes: usize) -> Result<Option<&mut [u8]>, ReserveError> {
        let most = self.shape.buffer_bytes();
        if bytes > most {
            return Err(ReserveError::TooLong { bytes, most });
        }
        self.check()?;
        let again = std::mem::take(&mut self.reserved) > 0;
        if self.fill > 0 && self.fill + bytes > most {
            self.close();
        }
        if self.fill == 0 && !self.has_free_buffer() {
            self.refresh()?;
            if !self.has_free_buffer() {
                return Ok(None);
            }
        }
        if self.fill == 0 && !again && self.buffers.retains_any() && self.buffers.is_retained(self.buffer) {
            self.buffers.move_out(Some(self.buffer));
        }
        self.reserved = bytes;
        Ok(Some(self.own.bytes_mut(self.at(self.shape.bytes_at(self.buffer, self.fill)), bytes)))
    }

    /// Returns a value that can retain parts of frames in the buffers where they were built.
    pub fn retainer(&self) -> Retainer {
        Retainer(Arc::clone(&self.buffers))
    }

    /// Returns the time at which bytes of the next buffer to fill were last retained, or `None` if that buffer has no retained
    /// bytes. Retained bytes have to be moved out before the buffer is filled. A buffer that already contains frames is not the
    /// next one. A frame that is long enough to be retained rarely fits into the rest of such a buffer.
    pub fn next_retained_at(&self) -> Option<Ticks> {
        let begun = self.fill > 0 || self.reserved > 0;
        let next = if begun { self.next_buffer() } else { self.buffer };
        let keeps = self.buffers.retains_any() && self.buffers.is_retained(next);
        keeps.then(|| self.buffers.retained_at(next))
    }

    /// Returns how many buffers have retained bytes.
    pub fn retained_buffers(&self) -> usize {
        self.buffers.count_retained()
    }

    /// Adds the frame that was built in the first `len` bytes of the reserved memory, with a tag.
    ///
    /// # Panics
    /// Panics if `len` is more than the reserved length.
    #[inline]
    pub fn commit(&mut self, len: usize, tag: u64) {
        assert!(len <= self.reserved, "{len} bytes committed of {} reserved", self.reserved);
        self.reserved = 0;
        let head = self.at(self.shape.head_at(self.buffer, self.fill));
        self.own.store(head, word(len));
        self.own.store(head + TAG, tag);
        self.last = (self.fill, len);
        self.fill = layout::fill_behind(self.fill, len);
        self.counters.frames += 1;
        self.counters.bytes += word(len);
        if !self.packing || self.fill > self.shape.buffer_bytes() {
            self.close();
        }
    }

    /// Publishes all committed frames that are not published yet, and sends a notification if the peer requested one.
    #[inline]
    pub fn publish(&mut self) {
        if self.fill > 0 {
            self.close();
        }
    }

    /// Publishes all committed frames without a notification, because the peer need not read them before something else wakes it. The
    /// next publication, or [`Producer::notify`], sends the notification if the peer still requests it. Returns whether there were frames.
    pub fn publish_quietly(&mut self) -> bool {
        let has_frames = self.fill > 0;
        if has_frames {
            self.expose();
        }
        has_frames
    }

    /// Sends the notification of an earlier quiet publication, if the peer requests it.
    pub fn notify(&mut self) {
        self.notifier.changed(self.published, self.peer.load(FRAMES_NOTIFY_THRESHOLD));
    }

    /// Returns the notify descriptor if the peer requests a notification of an earlier quiet publication. The caller sends the
    /// notification on this descriptor, without using the producer meanwhile.
    pub fn take_notification(&mut self) -> Option<Arc<NotifyFd>> {
        self.notifier.take(self.published, self.peer.load(FRAMES_NOTIFY_THRESHOLD))
    }

    /// Returns the number of buffers that are known to be free. The peer's index is read only if no buffer is known to be free.
    ///
    /// # Errors
    /// Returns the violation if the peer violated the ring's protocol.
    pub fn room(&mut self) -> Result<usize, Violation> {
        self.check()?;
        if !self.has_free_buffer() {
            self.refresh()?;
        }
        Ok(self.free())
    }

    /// Returns whether at least `buffers` buffers are free. The peer's index is read only if fewer buffers are known to be free.
    ///
    /// # Errors
    /// Returns the violation if the peer violated the ring's protocol.
    pub fn has_room(&mut self, buffers: usize) -> Result<bool, Violation> {
        self.check()?;
        if self.free() < buffers {
            self.refresh()?;
        }
        Ok(self.free() >= buffers)
    }

    /// Returns the number of published buffers that the peer has not given back.
    ///
    /// # Errors
    /// Returns the violation if the peer violated the ring's protocol.
    pub fn in_flight(&mut self) -> Result<usize, Violation> {
        self.refresh()?;
        Ok(usize::try_from(self.published - self.consumed).unwrap_or(usize::MAX))
    }

    /// Requests a notification for the time when `buffers` buffers are free (at most the ring's number of buffers). If they are
    /// already free, returns false, and the peer sends no notification. Committed frames are published first, so that their
    /// buffers can become free.
    ///
    /// # Errors
    /// Returns the violation if the peer violated the ring's protocol.
    pub fn want_room(&mut self, buffers: usize) -> Result<bool, Violation> {
        self.check()?;
        self.publish();
        let wanted = word(buffers.clamp(1, self.round));
        let room_at = (self.published + wanted).saturating_sub(word(self.round)).max(self.free_at[self.buffer]);
        self.own.store(ROOM_NOTIFY_THRESHOLD, room_at);
        // SeqCst, paired with the fence in `Consumer::give_back`: either the consumer sees the new threshold, or this side sees
        // the consumer's new index.
        fence(Ordering::SeqCst);
        self.refresh()?;
        let waits = self.consumed < room_at;
        if !waits {
            self.own.store(ROOM_NOTIFY_THRESHOLD, 0);
        }
        Ok(waits)
    }

    /// Counts a frame that the caller dropped because no buffer was free.
    pub fn count_target_full(&mut self) {
        self.counters.target_full += 1;
    }

    /// Counts a frame that the caller keeps because no buffer is free.
    pub fn count_pending(&mut self) {
        self.counters.pending += 1;
    }

    /// Returns true if a notification failed because the peer has closed its wake descriptor.
    pub fn peer_gone(&self) -> bool {
        self.notifier.gone
    }

    /// Returns the counters of this producer.
    pub fn counters(&self) -> ProducerCounters {
        ProducerCounters { doorbells: self.notifier.counters, ..self.counters }
    }

    /// Converts an offset in the complete memory file to an offset in the producer's part of the file.
    #[inline]
    fn at(&self, at: usize) -> usize {
        at - CONSUMER_WORDS_BYTES
    }

    #[inline]
    fn free(&self) -> usize {
        let taken = self.published - self.consumed + u64::from(self.fill > 0);
        self.round.saturating_sub(usize::try_from(taken).unwrap_or(usize::MAX))
    }

    #[inline]
    fn has_free_buffer(&self) -> bool {
        self.consumed >= self.free_at[self.buffer]
    }

    /// Returns the buffer to fill after the present one.
    #[inline]
    fn next_buffer(&self) -> usize {
        if self.ends_round() { 0 } else { self.buffer + 1 }
    }

    /// Returns whether the round ends with the present buffer.
    #[inline]
    fn ends_round(&self) -> bool {
        let filled = self.buffer + 1;
        let is_long = self.round_bytes + self.fill >= self.round_bytes_most && filled >= ROUND_LEAST;
        is_long || filled == self.shape.buffer_count()
    }

    /// Ends the buffer that is being filled, publishes it, and sends a notification if the peer requested one.
    #[inline(never)]
    fn close(&mut self) {
        self.expose();
        self.notifier.changed(self.published, self.peer.load(FRAMES_NOTIFY_THRESHOLD));
    }

    /// Ends the buffer that is being filled, and publishes it.
    #[inline]
    fn expose(&mut self) {
        let (fill, len) = self.last;
        let head = self.at(self.shape.head_at(self.buffer, fill));
        let filled = self.buffer + 1;
        let round_ends = self.ends_round();
        self.own.store(head, word(len) | LAST | if round_ends { ROUND_ENDS } else { 0 });
        self.published += 1;
        self.free_at[self.buffer] = self.published;
        if round_ends {
            (self.buffer, self.round, self.round_bytes) = (0, filled, 0);
        } else {
            (self.buffer, self.round) = (filled, self.round.max(filled));
            self.round_bytes += self.fill;
        }
        self.fill = 0;
        self.counters.buffers += 1;
        // Release: the peer sees the buffer's bytes before it sees the index that publishes the buffer. The matching acquire
        // fence of the peer is in `Consumer::refresh`.
        fence(Ordering::Release);
        self.own.store(PRODUCED, self.published);
        // SeqCst, paired with the fence in `Consumer::declare_asleep`: either the consumer sees the new index, or this side sees
        // the consumer's new threshold.
        fence(Ordering::SeqCst);
    }

    #[inline]
    fn check(&self) -> Result<(), Violation> {
        self.violation.map_or(Ok(()), Err)
    }

    /// Reads the consumer's index once and checks it.
    #[inline]
    fn refresh(&mut self) -> Result<(), Violation> {
        self.check()?;
        let (least, most) = (self.consumed, self.published);
        let found = self.peer.load(CONSUMED);
        if !(least..=most).contains(&found) {
            let violation = Violation::Consumed { found, least, most };
            self.violation = Some(violation);
            self.counters.violations += 1;
            return Err(violation);
        }
        // Acquire: the peer has read the given-back buffers before this side writes them again. A fence is used because Rust does
        // not allow an acquire load on a read-only mapping.
        fence(Ordering::Acquire);
        self.consumed = found;
        Ok(())
    }
}
