//! Descriptors that are waited for, and whose they are.
//!
//! A key is of one descriptor for ever, so an event that comes late finds nobody.

use rustix::event::{Timespec, epoll};
use rustix::io::Errno;
use siga_model::error::{IoContext, Result};
use std::collections::BTreeMap;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Events taken at a time; the rest is told by the next wait.
const AT_ONCE: usize = 64;

/// The descriptors of one event loop; `S` says whose each is.
#[derive(Debug)]
pub(crate) struct Events<S> {
    epoll: OwnedFd,
    sources: BTreeMap<u64, S>,
    last: u64,
}

impl<S: Clone> Events<S> {
    pub(crate) fn new() -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).context("cannot wait for events")?;
        Ok(Self { epoll, sources: BTreeMap::new(), last: 0 })
    }

    /// Readable when there is an event.
    pub(crate) fn descriptor(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }

    pub(crate) fn add(&mut self, descriptor: impl AsFd, source: S) -> Result<u64> {
        self.last += 1;
        let data = epoll::EventData::new_u64(self.last);
        epoll::add(&self.epoll, descriptor, data, epoll::EventFlags::IN).context("cannot wait for an event")?;
        self.sources.insert(self.last, source);
        Ok(self.last)
    }

    /// The key of what is added next.
    pub(crate) fn next_key(&self) -> u64 {
        self.last + 1
    }

    /// Says whose a descriptor is from here on.
    pub(crate) fn set_source(&mut self, key: u64, source: S) {
        self.sources.insert(key, source);
    }

    /// Whether there is something to be written beside what is read.
    pub(crate) fn set_behind(&self, key: u64, descriptor: impl AsFd, behind: bool) {
        let write = if behind { epoll::EventFlags::OUT } else { epoll::EventFlags::empty() };
        // It was added with this key; nothing else can fail.
        let _ = epoll::modify(&self.epoll, descriptor, epoll::EventData::new_u64(key), epoll::EventFlags::IN | write);
    }

    /// Whether it is waited for that there is something to read. That the other end is closed is told all the same.
    pub(crate) fn set_listening(&self, key: u64, descriptor: impl AsFd, listens: bool) {
        let flags = if listens { epoll::EventFlags::IN } else { epoll::EventFlags::empty() };
        // It was added with this key; nothing else can fail.
        let _ = epoll::modify(&self.epoll, descriptor, epoll::EventData::new_u64(key), flags);
    }

    pub(crate) fn remove(&mut self, key: u64, descriptor: impl AsFd) {
        let _ = epoll::delete(&self.epoll, descriptor);
        self.sources.remove(&key);
    }

    /// Appends whose events there are; waits for the first for `time`, without end if there is none given.
    pub(crate) fn wait(&self, time: Option<Duration>, ready: &mut Vec<S>) {
        let mut room = [MaybeUninit::uninit(); AT_ONCE];
        let time = time.map(|time| Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 3_600, tv_nsec: 0 }));
        let events = match epoll::wait(&self.epoll, &mut room, time.as_ref()) {
            Ok((events, _)) => events,
            Err(Errno::INTR) => return,
            Err(error) => unreachable!("an epoll descriptor that is open can be waited for: {error}"),
        };
        ready.extend(events.iter().filter_map(|event| self.sources.get(&event.data.u64()).cloned()));
    }
}
