//! The link to the guest, and the descriptors that an application waits for.

use super::direct::Direct;
use crate::ROOM;
use crate::limits::LIMITED_WAIT_MAX;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use siga_ring::doorbell::Notification;
use siga_ring::ready_set::ReadySet;
use siga_ring::wait::Sources;
use siga_ring::{Consumer, Link, NotifyFd, Producer, WakeFd};
use smallvec::SmallVec;
use std::convert::Infallible;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
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
    /// Whether [`GuestLink::look`] has read that another thread ends a wait, since the last call of `work` began.
    pub(super) was_called: bool,
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
    /// Another application has sent a notification.
    bell: bool,
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
            was_called: false,
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
    pub(super) fn make_calls(&mut self, bells: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let mut all = ReadySet::new()?;
        all.add(&self.wake_fd, ())?;
        all.add(&*wake, ())?;
        bells.map(|bells| all.add(bells, ())).transpose()?;
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

    /// Returns whether another thread may sleep on the descriptors, if a call that does not wait reads them.
    pub(super) fn has_sleeper(&self) -> bool {
        self.asleep && self.calls.is_some()
    }

    /// Wakes the thread that sleeps on the descriptors.
    pub(super) fn call(&self) {
        if let Some(calls) = &self.calls {
            // The write fails only if the counter of the eventfd has reached its maximum. Then the thread wakes anyway.
            let _ = rustix::io::write(&calls.wake, &1_u64.to_ne_bytes());
        }
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

    /// Records that a descriptor of other applications' notifications was readable.
    pub(super) fn note_bell(&mut self) {
        self.ready.bell = true;
    }

    /// Reads the notifications, without waiting.
    pub(super) fn look(&mut self, direct: &mut Direct) {
        self.events.awake();
        self.asleep = false;
        let ready = std::mem::take(&mut self.ready);
        // Without a wait before, each descriptor may be ready.
        let is_unknown = ready == Ready::default();
        if ready.bell || is_unknown {
            direct.awake();
            direct.drain(is_unknown);
        }
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
            self.was_called |= rustix::io::read(&calls.wake, &mut [0; 8]).is_ok();
        }
    }

    /// Waits until a descriptor is ready, for up to `time` (`None`: without a limit). A program in a sandbox often may use this system
    /// call and not those of epoll.
    fn poll(&mut self, direct: &mut Direct, time: Option<Duration>) {
        let limited = time.map_or(LIMITED_WAIT_MAX, |time| time.min(LIMITED_WAIT_MAX));
        let time = time.map(|time| Timespec::try_from(time).unwrap_or(Timespec { tv_sec: 3_600, tv_nsec: 0 }));
        let guest = self.wake_fd.as_fd();
        let call = self.calls.as_ref().map(|calls| calls.wake.as_fd());
        let (call_at, bells_at) = (call.map(|_| 1), 1 + usize::from(call.is_some()));
        let all = [guest].into_iter().chain(call).chain(direct.wake_descriptors());
        let mut entries: SmallVec<[PollFd<'_>; 8]> =
            all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
        match poll(&mut entries, time.as_ref()) {
            Ok(_) => {}
            Err(Errno::INTR | Errno::NOMEM) => return,
            // A program in a sandbox may have a limit of descriptors (`RLIMIT_NOFILE`) below the number of these. The caller looks at all
            // sources after this wait, because none is known to be ready.
            Err(Errno::INVAL) => return std::thread::sleep(limited),
            Err(error) => unreachable!("open descriptors can be waited for: {error}"),
        }
        let is_ready = |at: Option<usize>| at.is_some_and(|at| !entries[at].revents().is_empty());
        let (guest, call) = (is_ready(Some(0)), is_ready(call_at));
        let rung = entries[bells_at..].iter().filter(|entry| !entry.revents().is_empty());
        let rung: SmallVec<[RawFd; 8]> = rung.map(|entry| entry.as_fd().as_raw_fd()).collect();
        let (before, bell) = (self.ready, !rung.is_empty());
        drop(entries);
        rung.into_iter().for_each(|number| direct.note_notification(Some(number)));
        self.ready = Ready { guest: before.guest || guest, call: before.call || call, bell: before.bell || bell };
    }
}

/// What a client waits for: its guest and the applications with which it shares memory.
pub(super) struct Waits<'a> {
    pub(super) link: &'a mut GuestLink,
    pub(super) direct: &'a mut Direct,
}

impl Waits<'_> {
    /// Returns whether there is something to do. Makes no system call.
    pub(super) fn look(&mut self) -> bool {
        let link = &mut *self.link;
        // After a violation the result is true, because the next use of the link returns the violation.
        link.hung_up
            || link.ready != Ready::default()
            || link.events.is_ready().unwrap_or(true)
            || link.wants_room && link.has_room()
            || !self.direct.is_empty() && self.direct.look()
    }
}

impl Sources for Waits<'_> {
    type Error = Infallible;

    fn is_ready(&mut self) -> Result<bool, Infallible> {
        let link = &mut *self.link;
        link.looks += 1;
        if link.looks.is_multiple_of(LOOKS_A_SYSTEM_CALL) {
            link.poll(self.direct, Some(Duration::ZERO));
        }
        Ok(self.look())
    }

    fn declare_asleep(&mut self) -> Result<bool, Infallible> {
        let link = &mut *self.link;
        let asleep = !link.hung_up && link.events.declare_asleep().unwrap_or(false);
        let half = link.commands.shape().buffer_count() / 2;
        link.asleep = asleep && (!link.wants_room || link.commands.want_room(half).unwrap_or(false));
        Ok(link.asleep && self.direct.declare_asleep())
    }

    fn sleep(&mut self, time: Option<Duration>) -> Result<(), Infallible> {
        self.link.poll(self.direct, time);
        Ok(())
    }

    fn awake(&mut self) {
        if self.link.ready != Ready::default() {
            self.link.look(self.direct);
        } else {
            self.link.events.awake();
            self.link.asleep = false;
            self.direct.awake();
        }
    }

    /// Counts the bytes of commands and events and those of shared memory, not those in the arenas.
    fn moved(&self) -> u64 {
        let (sent, received) = self.direct.bytes();
        let bytes = self.link.commands.counters().bytes.wrapping_add(self.link.events.counters().bytes);
        bytes.wrapping_add(sent).wrapping_add(received)
    }
}
