//! Retained buffers: bytes of frames stay in their ring buffer while they are needed, which saves a copy to private memory
//! (decision 013).
//!
//! A consumer retains received bytes until the application has read them. Until then, the consumer gives back neither their
//! buffer nor later buffers. A producer retains sent bytes until the peer has acknowledged them. Until then, the producer does
//! not fill their buffer again. Retained bytes can be *moved out* at any time, that is, copied to private memory. So no side has
//! to wait long for the other side.

use crate::clock::Ticks;
use crate::counters::CopyMeter;
use crate::layout::Shape;
use crate::sync::View;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The buffers of a ring. The producer or consumer shares this value with all bytes that are retained there.
#[derive(Debug)]
pub(crate) struct Buffers {
    view: View,
    shape: Shape,
    pub(crate) meter: CopyMeter,
    /// For each buffer: how many parts are retained, and when the latest part was retained.
    parts: Box<[(AtomicU32, AtomicU64)]>,
    /// Number of retained parts in all buffers.
    all: AtomicUsize,
    retained: Mutex<VecDeque<Weak<Retained>>>,
}

impl Buffers {
    pub(crate) fn new(view: View, shape: Shape) -> Arc<Self> {
        let parts = (0..shape.buffer_count()).map(|_| (AtomicU32::new(0), AtomicU64::new(0))).collect();
        let (meter, all, retained) = (CopyMeter::default(), AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { view, shape, meter, parts, all, retained })
    }

    /// Returns whether any part of any buffer is retained. The load has acquire ordering and is paired with the release in
    /// `Drop`. So all reads of parts that are no longer retained happen before the peer or this producer writes their buffers
    /// again.
    #[inline]
    pub(crate) fn retains_any(&self) -> bool {
        self.all.load(Ordering::Acquire) > 0
    }

    /// Returns whether any part of one buffer is retained. The load has acquire ordering, for the same reason as in
    /// `retains_any`.
    pub(crate) fn is_retained(&self, buffer: usize) -> bool {
        self.parts[buffer].0.load(Ordering::Acquire) > 0
    }

    /// Returns how many buffers have retained parts. The loads are relaxed, because no access to the buffers depends on the
    /// result.
    pub(crate) fn count_retained(&self) -> usize {
        self.parts.iter().filter(|(parts, _)| parts.load(Ordering::Relaxed) > 0).count()
    }

    /// Returns when a part of the buffer was last retained.
    pub(crate) fn retained_at(&self, buffer: usize) -> Ticks {
        Ticks(self.parts[buffer].1.load(Ordering::Relaxed))
    }

    /// Copies bytes of the ring's memory, beginning at offset `at`, to `into`.
    #[inline]
    pub(crate) fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.meter.measure(into.len(), || self.view.copy_to(at, into));
    }

    pub(crate) fn retain(self: &Arc<Self>, at: usize, len: usize) -> Arc<Retained> {
        let buffer = self.shape.buffer_of(at);
        self.parts[buffer].0.fetch_add(1, Ordering::Relaxed);
        self.parts[buffer].1.store(Ticks::now().0, Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
        let place = Place::InRing(InRing { buffers: Arc::clone(self), buffer, at });
        let new = Arc::new(Retained { len, buffer, place: Mutex::new(place) });
        let mut retained = locked(&self.retained);
        while retained.front().is_some_and(|first| first.strong_count() == 0) {
            retained.pop_front();
        }
        retained.push_back(Arc::downgrade(&new));
        new
    }

    /// Copies the retained parts of one buffer, or of all buffers, to private memory.
    pub(crate) fn move_out(&self, buffer: Option<usize>) {
        locked(&self.retained).retain(|part| {
            let Some(part) = part.upgrade() else { return false };
            let moves = buffer.is_none_or(|buffer| buffer == part.buffer);
            if moves {
                part.move_out();
            }
            !moves
        });
    }
}

/// Retains parts of frames in the buffer of the producer that built them.
#[derive(Debug, Clone)]
pub struct Retainer(pub(crate) Arc<Buffers>);

impl Retainer {
    /// Retains a part of a frame that was built in a buffer of this producer. The part stays there until the returned value is
    /// dropped or the producer needs the buffer. Returns `None` if `part` is not in a buffer of this producer.
    pub fn retain(&self, part: &[u8]) -> Option<Arc<Retained>> {
        let at = self.0.view.offset_of(part)?;
        Some(self.0.retain(at, part.len()))
    }
}

/// Retained bytes of a frame, either in the ring or moved out of it. While the bytes are in the ring, the owner of the memory can
/// change them.
#[derive(Debug)]
pub struct Retained {
    len: usize,
    buffer: usize,
    place: Mutex<Place>,
}

#[derive(Debug)]
enum Place {
    InRing(InRing),
    Own(Box<[u8]>),
}

#[derive(Debug)]
struct InRing {
    buffers: Arc<Buffers>,
    buffer: usize,
    at: usize,
}

impl Drop for InRing {
    fn drop(&mut self) {
        self.buffers.parts[self.buffer].0.fetch_sub(1, Ordering::Release);
        self.buffers.all.fetch_sub(1, Ordering::Release);
    }
}

impl Retained {
    /// Copies `into.len()` of the retained bytes, beginning at offset `at`.
    ///
    /// # Panics
    /// Panics if fewer bytes are retained.
    pub fn copy_to(&self, at: usize, into: &mut [u8]) {
        let inside = at.checked_add(into.len()).is_some_and(|end| end <= self.len);
        assert!(inside, "{} bytes at {at} of {} that are retained", into.len(), self.len);
        match &*locked(&self.place) {
            Place::InRing(place) => place.buffers.copy_to(place.at + at, into),
            Place::Own(bytes) => into.copy_from_slice(&bytes[at..at + into.len()]),
        }
    }

    fn move_out(&self) {
        let mut place = locked(&self.place);
        if let Place::InRing(there) = &*place {
            let mut bytes = vec![0; self.len].into_boxed_slice();
            there.buffers.copy_to(there.at, &mut bytes);
            *place = Place::Own(bytes);
        }
    }
}

/// Locks a mutex, even if it is poisoned: no critical section here can leave the data in an inconsistent state.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
