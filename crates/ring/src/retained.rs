//! Bytes of frames that stay in their buffers for longer than the ring has use for them: a copy less than to have them elsewhere.
//!
//! A consumer keeps what it has taken until it is read; a buffer of which something is kept is not given back, and neither are
//! those behind it. A producer keeps what it has sent until it is known to have arrived; a buffer is not filled again before.
//! Neither has to wait for long: what is kept can be moved out at any time.

use crate::clock::Ticks;
use crate::counters::CopyMeter;
use crate::layout::Shape;
use crate::sync::View;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The buffers of a ring, as whoever has them shares them with all that is kept there.
#[derive(Debug)]
pub(crate) struct Buffers {
    view: View,
    shape: Shape,
    pub(crate) meter: CopyMeter,
    /// Of each buffer, how much is kept, and since when the latest.
    keeps: Box<[(AtomicU32, AtomicU64)]>,
    /// Of all.
    all: AtomicUsize,
    kept: Mutex<VecDeque<Weak<Retained>>>,
}

impl Buffers {
    pub(crate) fn new(view: View, shape: Shape) -> Arc<Self> {
        let keeps = (0..shape.buffer_count()).map(|_| (AtomicU32::new(0), AtomicU64::new(0))).collect();
        let (meter, all, kept) = (CopyMeter::default(), AtomicUsize::new(0), Mutex::default());
        Arc::new(Self { view, shape, meter, keeps, all, kept })
    }

    /// Whether anything is kept of any buffer. What was read of those that are free was read before this.
    #[inline]
    pub(crate) fn retains_any(&self) -> bool {
        self.all.load(Ordering::Acquire) > 0
    }

    /// The same of one buffer.
    pub(crate) fn is_retained(&self, buffer: usize) -> bool {
        self.keeps[buffer].0.load(Ordering::Acquire) > 0
    }

    /// Of how many buffers something is kept.
    pub(crate) fn count_retained(&self) -> usize {
        self.keeps.iter().filter(|(keeps, _)| keeps.load(Ordering::Relaxed) > 0).count()
    }

    /// When something was kept of it last.
    pub(crate) fn retained_at(&self, buffer: usize) -> Ticks {
        Ticks(self.keeps[buffer].1.load(Ordering::Relaxed))
    }

    /// Copies bytes out.
    #[inline]
    pub(crate) fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.meter.measure(into.len(), || self.view.copy_to(at, into));
    }

    pub(crate) fn retain(self: &Arc<Self>, at: usize, len: usize) -> Arc<Retained> {
        let buffer = self.shape.buffer_of(at);
        self.keeps[buffer].0.fetch_add(1, Ordering::Relaxed);
        self.keeps[buffer].1.store(Ticks::now().0, Ordering::Relaxed);
        self.all.fetch_add(1, Ordering::Relaxed);
        let place = Place::InRing(InRing { buffers: Arc::clone(self), buffer, at });
        let new = Arc::new(Retained { len, buffer, place: Mutex::new(place) });
        let mut kept = locked(&self.kept);
        while kept.front().is_some_and(|first| first.strong_count() == 0) {
            kept.pop_front();
        }
        kept.push_back(Arc::downgrade(&new));
        new
    }

    /// Moves what is kept of a buffer, or of all, into memory of its own.
    pub(crate) fn move_out(&self, buffer: Option<usize>) {
        locked(&self.kept).retain(|kept| {
            let Some(kept) = kept.upgrade() else { return false };
            let moves = buffer.is_none_or(|buffer| buffer == kept.buffer);
            if moves {
                kept.move_out();
            }
            !moves
        });
    }
}

/// Has bytes stay where they were built, in a buffer of a producer.
#[derive(Debug, Clone)]
pub struct Retainer(pub(crate) Arc<Buffers>);

impl Retainer {
    /// Has a part of a frame that was built in a place of that producer stay there until the value is dropped, or the producer
    /// needs the buffer. `None`: it lies elsewhere.
    pub fn retain(&self, part: &[u8]) -> Option<Arc<Retained>> {
        let at = self.0.view.offset_of(part)?;
        Some(self.0.retain(at, part.len()))
    }
}

/// Bytes of a frame, in the ring or moved out of it. In the ring whoever owns the memory may change them at any time.
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
        self.buffers.keeps[self.buffer].0.fetch_sub(1, Ordering::Release);
        self.buffers.all.fetch_sub(1, Ordering::Release);
    }
}

impl Retained {
    /// Copies the bytes from `at` on, as many as `into` takes.
    ///
    /// # Panics
    /// There are fewer.
    pub fn copy_to(&self, at: usize, into: &mut [u8]) {
        let inside = at.checked_add(into.len()).is_some_and(|end| end <= self.len);
        assert!(inside, "{} bytes at {at} of {} that are kept", into.len(), self.len);
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

/// Nothing here can be half done.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
