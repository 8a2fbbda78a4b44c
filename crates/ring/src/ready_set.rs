//! The descriptors for which an event loop waits with epoll. Each descriptor has a *readiness key*, a value with which the event
//! loop recognises what became ready.
//!
//! A descriptor gets a registration number that is never used again. So if a late event of a removed descriptor arrives, its
//! number has no key, and the event is ignored.

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Maximum number of events that one system call returns. The next call returns the remaining events.
const AT_ONCE: usize = 64;

/// The descriptors of one event loop; `K` is the readiness key.
#[derive(Debug)]
pub struct ReadySet<K> {
    epoll: OwnedFd,
    keys: BTreeMap<u64, K>,
    last: u64,
}

impl<K: Clone> ReadySet<K> {
    /// Makes an empty set.
    ///
    /// # Errors
    /// Returns an error if the host has no descriptors left.
    pub fn new() -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { epoll, keys: BTreeMap::new(), last: 0 })
    }

    /// Lets `change` exchange the set's descriptor, for example for a duplicate with another number.
    #[must_use]
    pub fn with_descriptor(self, change: impl FnOnce(OwnedFd) -> OwnedFd) -> Self {
        Self { epoll: change(self.epoll), ..self }
    }

    /// Returns a descriptor that is readable while any descriptor of the set is ready.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    /// Adds a descriptor and returns its registration number. From now on the set waits until the descriptor is readable.
    ///
    /// # Errors
    /// Returns an error if the host has no memory left, or if epoll does not support the descriptor.
    pub fn add(&mut self, descriptor: impl AsFd, key: K) -> io::Result<u64> {
        self.last += 1;
        let data = epoll::EventData::new_u64(self.last);
        epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN)?;
        self.keys.insert(self.last, key);
        Ok(self.last)
    }

    /// Returns the registration number that the next call of [`ReadySet::add`] will return.
    pub fn next_registration(&self) -> u64 {
        self.last + 1
    }

    /// Sets whether the set also waits until the descriptor is writable. The caller needs this while output is queued.
    pub fn set_behind(&self, registration: u64, descriptor: impl AsFd, behind: bool) {
        let write = if behind { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        self.modify(registration, descriptor, epoll::EventFlags::IN | write);
    }

    /// Sets whether the set waits until the descriptor is readable. A hang-up of the other end is reported in either case.
    pub fn set_listening(&self, registration: u64, descriptor: impl AsFd, listens: bool) {
        let flags = if listens { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        self.modify(registration, descriptor, flags);
    }

    fn modify(&self, registration: u64, descriptor: impl AsFd, flags: epoll::EventFlags) {
        // The descriptor was added with this number; no other error is possible.
        let _ = epoll::modify(&self.epoll, descriptor, epoll::EventData::new_u64(registration), flags);
    }

    /// Removes a descriptor.
    pub fn remove(&mut self, registration: u64, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
        self.keys.remove(&registration);
    }

    /// Appends the keys of all ready descriptors to `ready`. If no descriptor is ready, the call waits for up to `time` (`None`:
    /// without a limit).
    pub fn wait(&self, time: Option<Duration>, ready: &mut Vec<K>) {
        let mut room = [MaybeUninit::uninit(); AT_ONCE];
        let time = time.map(|time| Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 3_600, tv_nsec: 0 }));
        let events = match epoll::wait(&self.epoll, &mut room, time.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return,
            Err(error) => unreachable!("an epoll descriptor that is open can be waited for: {error}"),
        };
        ready.extend(events.iter().filter_map(|event| self.keys.get(&event.data.u64()).cloned()));
    }
}
