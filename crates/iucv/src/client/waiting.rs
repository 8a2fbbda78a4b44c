//! Waiting for the guest and for other applications, and the descriptors for this.

use super::Client;
use super::direct::WakeDescriptors;
use super::link::Waits;
use crate::limits::ANSWER_TIME_MAX;
use siga_ring::clock::Ticks;
use siga_ring::wait::Sources;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Client {
    /// Returns an eventfd. A write to this eventfd ends a wait. Returns `None` for a client that no other thread wakes.
    pub fn wake(&self) -> Option<Arc<OwnedFd>> {
        self.link.wake()
    }

    /// Waits, according to the waiting policy, until there may be work for [`Client::work`]. `time` limits the wait.
    pub fn wait(&mut self, time: Option<Duration>) {
        if self.ended.is_some() {
            return;
        }
        self.report_read();
        self.link.publish();
        self.notify();
        let rate = self.waiter.rate();
        let deadline = time.map(|time| Ticks(Ticks::now().0.saturating_add(rate.span(time).0)));
        let Ok(_woken) = self.waiter.wait(&mut Waits { link: &mut self.link, direct: &mut self.direct }, deadline);
        self.waiter.notified_by(self.link.last_notification.take());
        self.waiter.notified_by(self.direct.last_notification.take());
    }

    /// Requests notifications of all work. After that, [`Client::descriptor`] becomes readable when there is work. Returns false
    /// if there is work already.
    pub fn fall_asleep(&mut self) -> bool {
        if self.flush() || self.ended.is_some() {
            return false;
        }
        let Ok(asleep) = Waits { link: &mut self.link, direct: &mut self.direct }.declare_asleep();
        asleep
    }

    /// Returns a descriptor. After [`Client::fall_asleep`], it is readable when there may be work.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.link.descriptor()
    }

    /// Returns the descriptor on which the guest's notifications arrive. Like [`Client::descriptor`], it is readable when there may be
    /// work, but a write to the eventfd of [`Client::wake`] does not make it readable. Unlike the other descriptor, it is no set of
    /// epoll, so several sets can watch it exclusively (`EPOLLEXCLUSIVE`).
    pub fn notifications(&self) -> BorrowedFd<'_> {
        self.link.notifications()
    }

    /// Returns all descriptors that the client needs. A program must not close them.
    pub fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.link.descriptors().chain(self.direct.descriptors())
    }

    /// Returns the descriptors on which the notifications of other applications arrive: the pipes of the applications with which this one
    /// shares memory, or, if these are many, one set of epoll ([`Client::is_bell_set`]). They change when [`Client::settle_descriptors`]
    /// reports a change, and when another application ends. For a client with a wake descriptor, [`Client::descriptor`] covers them.
    pub fn bells(&self) -> WakeDescriptors<'_> {
        self.direct.wake_descriptors()
    }

    /// Returns whether a descriptor of [`Client::bells`] is a set of epoll.
    pub fn is_bell_set(&self, bell: RawFd) -> bool {
        self.direct.bells().is_some_and(|bells| bells.as_raw_fd() == bell)
    }

    /// Calls `change` for each descriptor that this client has got (true) or is about to close (false) since the last call, because memory
    /// that it shares with another application has come or gone. A client without a wake descriptor relies on these calls. Returns true if
    /// there was any.
    pub fn settle_descriptors(&mut self, change: impl FnMut(BorrowedFd<'_>, bool)) -> bool {
        self.direct.settle_descriptors(change)
    }

    /// Records that a descriptor of [`Client::bells`] was readable; `None` stands for any of them.
    pub fn note_bell(&mut self, bell: Option<RawFd>) {
        self.direct.note_notification(bell);
        self.link.note_bell();
    }
}

/// Waits until the bytes of closed connections are delivered, as long as the guest makes progress within [`ANSWER_TIME_MAX`].
impl Drop for Client {
    fn drop(&mut self) {
        // A child that has abandoned the client has no memory of the link.
        if self.ended.is_none() {
            self.notify();
        }
        let mut until = Instant::now() + ANSWER_TIME_MAX;
        let mut left = usize::MAX;
        while self.lingers() && Instant::now() < until {
            let now_left = self.unsent.len() + self.sockets.len();
            if now_left < left {
                (left, until) = (now_left, Instant::now() + ANSWER_TIME_MAX);
            }
            if !self.work() {
                self.wait(Some(until.saturating_duration_since(Instant::now())));
            }
        }
    }
}
