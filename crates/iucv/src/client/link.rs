//! The link to the guest, and the descriptors that an application waits for.

use crate::ROOM;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use siga_ring::doorbell::Notification;
use siga_ring::ready_set::ReadySet;
use siga_ring::wait::Sources;
use siga_ring::{Consumer, Link, NotifyFd, Producer, WakeFd};
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
    /// `None` if no other thread ends the waits of this client.
    calls: Option<Calls>,
    /// The descriptors that are ready and not read yet.
    ready: Ready,
    asleep: bool,
    /// Whether commands were published, and the guest has received no notification of them yet.
    owes_notification: bool,
    looks: u32,
    /// The last notification that was received. The waiter uses it for co-location.
    pub(super) last_notification: Option<Notification>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Ready {
    /// The guest has sent a notification, or its process has ended.
    guest: bool,
    /// Another thread of this process wants to end the wait.
    call: bool,
}

/// The descriptors with which other threads wait for this client, and end its waits.
#[derive(Debug)]
struct Calls {
    /// An eventfd.
    wake: Arc<OwnedFd>,
    /// The set of the eventfd and of the descriptor of notifications.
    all: ReadySet<()>,
}

/// Number of polls of memory between two polls of descriptors. A poll of descriptors is a system call, which takes about as long
/// as 64 polls of memory.
const LOOKS_A_SYSTEM_CALL: u32 = 64;

impl GuestLink {
    pub(super) fn new(link: Link) -> Self {
        let Link { producer: mut commands, consumer: events, wake_fd } = link;
        commands.set_packing(true);
        Self {
            commands,
            events,
            wants_room: false,
            hung_up: false,
            wake_fd,
            calls: None,
            ready: Ready::default(),
            asleep: false,
            owes_notification: false,
            looks: 0,
            last_notification: None,
        }
    }

    /// Publishes the commands that were sent. Sends the guest a notification if it requests one. Without other descriptors, the caller
    /// does this later ([`GuestLink::take_notification`]).
    pub(super) fn publish(&mut self) {
        if self.calls.is_some() {
            self.commands.publish();
        } else {
            self.owes_notification |= self.commands.publish_quietly();
        }
    }

    /// Returns the notify descriptor if the guest requests a notification of published commands.
    pub(super) fn take_notification(&mut self) -> Option<Arc<NotifyFd>> {
        std::mem::take(&mut self.owes_notification).then(|| self.commands.take_notification()).flatten()
    }

    /// Makes the descriptors with which other threads wait for this client, and end its waits.
    pub(super) fn make_calls(&mut self) -> io::Result<()> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut all = ReadySet::new()?;
        all.add(&self.wake_fd, ())?;
        all.add(&*wake, ())?;
        self.calls = Some(Calls { wake, all });
        Ok(())
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.calls.as_ref().map_or_else(|| self.notifications(), |calls| calls.all.descriptor())
    }

    /// Returns the descriptor on which the guest's notifications arrive.
    pub(super) fn notifications(&self) -> BorrowedFd<'_> {
        self.wake_fd.as_fd()
    }

    /// Returns all descriptors of the link.
    pub(super) fn descriptors(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let calls = self.calls.iter().flat_map(|calls| [calls.all.descriptor(), calls.wake.as_fd()]);
        self.commands.notify_descriptors().chain([self.wake_fd.as_fd()]).chain(calls)
    }

    pub(super) fn wake(&self) -> Option<Arc<OwnedFd>> {
        self.calls.as_ref().map(|calls| Arc::clone(&calls.wake))
    }

    /// Returns whether there is room for a command of any kind.
    pub(super) fn has_room(&mut self) -> bool {
        // After a violation the result is true, so that the caller uses the link, which then returns the violation.
        self.commands.has_room(ROOM).unwrap_or(true)
    }

    /// Returns whether the descriptors must be checked, because a notification may have arrived or a descriptor is ready.
    pub(super) fn is_notified(&mut self) -> bool {
        if self.ready != Ready::default() {
            return true;
        }
        // Without other descriptors, the caller records notifications. The guest sends one when there are events, or room for commands.
        let is_recorded = self.calls.is_none();
        self.asleep && (!is_recorded || self.events.is_ready().unwrap_or(true) || self.wants_room && self.has_room())
    }

    /// Records that the descriptor of notifications was readable.
    pub(super) fn note_notification(&mut self) {
        self.ready.guest = true;
    }

    /// Reads the notifications, without waiting.
    pub(super) fn look(&mut self) {
        self.events.awake();
        self.asleep = false;
        let ready = std::mem::take(&mut self.ready);
        // Without a wait before, each descriptor may be ready.
        let is_unknown = ready == Ready::default();
        // If the doorbell cannot be read, the next read finds the hang-up.
        if (ready.guest || is_unknown)
            && let Ok(heard) = self.wake_fd.drain()
        {
            self.hung_up |= heard.hung_up;
            self.last_notification = heard.last.or(self.last_notification);
        }
        if (ready.call || is_unknown)
            && let Some(calls) = &self.calls
        {
            // The read does not block. It fails if no thread has called, which does no harm.
            let _ = rustix::io::read(&calls.wake, &mut [0; 8]);
        }
    }

    /// Waits until a descriptor is ready, for up to `time` (`None`: without a limit). A program in a sandbox often may use this system
    /// call and not those of epoll.
    fn poll(&mut self, time: Option<Duration>) {
        let time = time.map(|time| Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 3_600, tv_nsec: 0 }));
        let call = self.calls.as_ref().map_or_else(|| self.wake_fd.as_fd(), |calls| calls.wake.as_fd());
        let mut entries = [
            PollFd::from_borrowed_fd(self.wake_fd.as_fd(), PollFlags::IN),
            PollFd::from_borrowed_fd(call, PollFlags::IN),
        ];
        let count = if self.calls.is_some() { 2 } else { 1 };
        match poll(&mut entries[..count], time.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR | Errno::NOMEM) => return,
            Err(error) => unreachable!("open descriptors can be waited for: {error}"),
        }
        let is_ready = |at: usize| at < count && !entries[at].revents().is_empty();
        self.ready = Ready { guest: self.ready.guest || is_ready(0), call: self.ready.call || is_ready(1) };
    }
}

impl Sources for GuestLink {
    type Error = Infallible;

    fn is_ready(&mut self) -> Result<bool, Infallible> {
        self.looks += 1;
        if self.looks.is_multiple_of(LOOKS_A_SYSTEM_CALL) {
            self.poll(Some(Duration::ZERO));
        }
        // After a violation the result is true, because the next use of the link returns the violation.
        Ok(self.hung_up
            || self.ready != Ready::default()
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
        self.poll(time);
        Ok(())
    }

    fn awake(&mut self) {
        if self.ready != Ready::default() {
            self.look();
        } else {
            self.events.awake();
            self.asleep = false;
        }
    }

    /// Counts the bytes of commands and events, not those in the arenas.
    fn moved(&self) -> u64 {
        self.commands.counters().bytes.wrapping_add(self.events.counters().bytes)
    }
}
