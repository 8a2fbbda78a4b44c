//! The link to the guest, and the descriptors that an application waits for.

use crate::ROOM;
use rustix::event::{EventfdFlags, eventfd};
use siga_ring::doorbell::Notification;
use siga_ring::ready_set::ReadySet;
use siga_ring::wait::Sources;
use siga_ring::{Consumer, Link, Producer, WakeFd};
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The link to the guest.
#[derive(Debug)]
pub(super) struct GuestLink {
    pub(super) commands: Producer,
    pub(super) events: Consumer,
    /// True if a wait has to end when there is room for commands.
    pub(super) wants_room: bool,
    /// True if the guest's process has ended.
    pub(super) hung_up: bool,
    wake_fd: WakeFd,
    wake: Arc<OwnedFd>,
    wakes: ReadySet<ReadyKey>,
    /// Keys of ready descriptors that are not handled yet.
    ready: Vec<ReadyKey>,
    asleep: bool,
    looks: u32,
    /// The last notification that was received. The waiter uses it for co-location.
    pub(super) last_notification: Option<Notification>,
}

#[derive(Debug, Clone, Copy)]
enum ReadyKey {
    /// The guest has sent a notification, or its process has ended.
    Guest,
    /// Another thread of this process wants to end the wait.
    Call,
}

/// Number of polls of memory between two polls of descriptors. A poll of descriptors is a system call, which takes about as long
/// as 64 polls of memory.
const LOOKS_A_SYSTEM_CALL: u32 = 64;

impl GuestLink {
    pub(super) fn new(link: Link) -> io::Result<Self> {
        let Link { producer: mut commands, consumer: events, wake_fd } = link;
        commands.set_packing(true);
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut wakes = ReadySet::new()?;
        wakes.add(&wake_fd, ReadyKey::Guest)?;
        wakes.add(&*wake, ReadyKey::Call)?;
        Ok(Self {
            commands,
            events,
            wants_room: false,
            hung_up: false,
            wake_fd,
            wake,
            wakes,
            ready: Vec::new(),
            asleep: false,
            looks: 0,
            last_notification: None,
        })
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.wakes.descriptor()
    }

    /// Returns the descriptor on which the guest's notifications arrive.
    pub(super) fn notifications(&self) -> BorrowedFd<'_> {
        self.wake_fd.as_fd()
    }

    /// Returns all descriptors of the link.
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 4] {
        [self.wakes.descriptor(), self.commands.notify_descriptor(), self.wake_fd.as_fd(), self.wake.as_fd()]
    }

    pub(super) fn wake(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.wake)
    }

    /// Returns whether there is room for a command of any kind.
    pub(super) fn has_room(&mut self) -> bool {
        // After a violation the result is true, so that the caller uses the link, which then returns the violation.
        self.commands.has_room(ROOM).unwrap_or(true)
    }

    /// Returns whether the descriptors must be checked, because a notification was requested or a descriptor is ready.
    pub(super) fn was_woken(&self) -> bool {
        self.asleep || !self.ready.is_empty()
    }

    /// Checks the descriptors without waiting, and reads notifications.
    pub(super) fn look(&mut self) {
        self.wakes.wait(Some(Duration::ZERO), &mut self.ready);
        self.take_rings();
    }

    fn take_rings(&mut self) {
        self.events.awake();
        self.asleep = false;
        for source in self.ready.drain(..) {
            match source {
                // If the doorbell cannot be read, the next poll finds the hang-up.
                ReadyKey::Guest => {
                    if let Ok(heard) = self.wake_fd.drain() {
                        self.hung_up |= heard.hung_up;
                        self.last_notification = heard.last;
                    }
                }
                // The read does not block. It fails if the eventfd was read before, which does no harm.
                ReadyKey::Call => _ = rustix::io::read(&self.wake, &mut [0; 8]),
            }
        }
    }
}

impl Sources for GuestLink {
    type Error = Infallible;

    fn is_ready(&mut self) -> Result<bool, Infallible> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_A_SYSTEM_CALL) {
            self.wakes.wait(Some(Duration::ZERO), &mut self.ready);
        }
        // After a violation the result is true, because the next use of the link returns the violation.
        Ok(self.hung_up
            || !self.ready.is_empty()
            || self.events.is_ready().unwrap_or(true)
            || self.wants_room && self.has_room())
    }

    fn declare_asleep(&mut self) -> Result<bool, Infallible> {
        let asleep = !self.hung_up && self.events.declare_asleep().unwrap_or(false);
        let half = self.commands.shape().buffer_count() / 2;
        self.asleep = asleep && (!self.wants_room || self.commands.want_room(half).unwrap_or(false));
        Ok(self.asleep)
    }

    fn sleep(&mut self, time: Option<Duration>) -> Result<(), Infallible> {
        self.wakes.wait(time, &mut self.ready);
        Ok(())
    }

    fn awake(&mut self) {
        self.take_rings();
    }

    /// Counts the bytes of commands and events, not those in the arenas.
    fn moved(&self) -> u64 {
        self.commands.counters().bytes.wrapping_add(self.events.counters().bytes)
    }
}
