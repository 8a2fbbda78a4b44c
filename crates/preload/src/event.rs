//! Events with which this library wakes threads that sleep in the kernel.

use crate::errors::Result;
use crate::numbers::{self, Meaning};
use rustix::event::{EventfdFlags, eventfd};
use siga_iucv::broker::out_of_the_way;
use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex, PoisonError};

/// The events that were set and not written yet. Only the thread that has the lock of the state uses this list.
static UNWRITTEN: Mutex<Vec<Arc<OwnedFd>>> = Mutex::new(Vec::new());

/// Events that a thread writes when it no longer has the lock of the state.
pub(crate) struct Unwritten(Vec<Arc<OwnedFd>>);

impl Unwritten {
    /// Takes all events that were set since the last call.
    pub(crate) fn take() -> Self {
        Self(std::mem::take(&mut *UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Wakes the threads that wait for these events. A woken thread often runs at once and needs the lock.
    pub(crate) fn write(self) {
        for event in self.0 {
            // The counter is at most 1, so the write cannot fail.
            let _ = rustix::io::write(&event, &1_u64.to_ne_bytes());
        }
    }
}

/// An eventfd that the program cannot close.
pub(crate) struct OwnEvent {
    event: Arc<OwnedFd>,
    /// Whether the event is set, so that neither setting nor clearing it twice costs a system call.
    is_set: Cell<bool>,
}

impl OwnEvent {
    pub(crate) fn new() -> Result<Self> {
        let event = out_of_the_way(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        numbers::set(event.as_raw_fd(), Meaning::Reserved);
        let event = Arc::new(event);
        Ok(Self { event, is_set: Cell::new(false) })
    }

    pub(crate) fn number(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Wakes the threads that wait for this event, as soon as the lock of the state is free ([`Unwritten`]).
    pub(crate) fn set(&self) {
        if !self.is_set.replace(true) {
            UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&self.event));
        }
    }

    /// Sets the event at once, because the kernel shows the program whether it is set.
    pub(crate) fn set_now(&self) {
        if !self.is_set.replace(true) {
            // The counter is 0, so the write cannot fail.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }

    pub(crate) fn clear(&self) {
        if !self.is_set.get() {
            return;
        }
        let mut unwritten = UNWRITTEN.lock().unwrap_or_else(PoisonError::into_inner);
        let place = unwritten.iter().position(|event| Arc::ptr_eq(event, &self.event));
        let is_clear = match place {
            Some(place) => {
                unwritten.swap_remove(place);
                true
            }
            // The read fails if the thread that has set the event has not written it yet. The event stays set then.
            None => rustix::io::read(&self.event, &mut [0; 8]).is_ok(),
        };
        self.is_set.set(!is_clear);
    }
}

impl Drop for OwnEvent {
    fn drop(&mut self) {
        numbers::set(self.number(), Meaning::Foreign);
    }
}
