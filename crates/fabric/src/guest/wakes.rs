//! The sources that wake a waiting guest: descriptors (each with a readiness key), a timer, and other threads of the process.

use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use siga_model::error::{IoContext, Result};
use siga_ring::clock::Ticks;
use siga_ring::ready_set::ReadySet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// The readiness keys of a guest: values with which epoll(7) identifies a ready descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadyKey {
    Control,
    /// The socket for reconnecting control programs.
    Listener,
    /// A reconnecting control program.
    Reconnecting(usize),
    /// The wake descriptor of a link.
    Link(usize),
    /// The TAP device of a switch's port.
    Port(usize),
    /// The wake descriptor of an application.
    Application(usize),
    /// The alarm timer has expired.
    Alarm,
    /// Another thread of this process has ended the wait.
    Wake,
}

/// The descriptors that a guest waits for, and the keys of those that are ready.
#[derive(Debug)]
pub(super) struct Wakes {
    pub(super) events: ReadySet<ReadyKey>,
    /// Keys of ready descriptors that are not handled yet.
    pub(super) ready: Vec<ReadyKey>,
    /// The time at which a guest that is too busy to sleep checks the descriptors again.
    pub(super) next_look: Ticks,
    interval: Ticks,
    /// A timer (timerfd) for callers that wait for the guest's descriptor in their own event loop. The timer is made when it is
    /// first needed.
    alarm: Option<OwnedFd>,
    /// An eventfd with which another thread ends a wait. The eventfd is made when it is first needed.
    wake: Option<Arc<OwnedFd>>,
}

impl Wakes {
    pub(super) fn new(interval: Ticks) -> Result<Self> {
        let events = ReadySet::new().context("the guest cannot wait for events")?;
        Ok(Self { events, ready: Vec::new(), next_look: Ticks(0), interval, alarm: None, wake: None })
    }

    pub(super) fn set_alarm(&mut self, time: Option<Duration>) -> std::io::Result<()> {
        if self.alarm.is_none() {
            let alarm = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
            self.events.add(&alarm, ReadyKey::Alarm).map_err(std::io::Error::other)?;
            self.alarm = Some(alarm);
        }
        let Some(alarm) = &self.alarm else { return Ok(()) };
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        // A time of zero would disarm the timer, so wait at least 1 ns.
        let time = time.map(|time| Timespec::try_from(time.max(Duration::from_nanos(1))).unwrap_or(zero));
        let setting = Itimerspec { it_interval: zero, it_value: time.unwrap_or(zero) };
        timerfd_settime(alarm, TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }

    /// Returns the eventfd that ends a wait. Makes the eventfd if it does not exist yet.
    pub(super) fn wake(&mut self) -> std::io::Result<Arc<OwnedFd>> {
        if let Some(wake) = &self.wake {
            return Ok(Arc::clone(wake));
        }
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        self.events.add(&*wake, ReadyKey::Wake).map_err(std::io::Error::other)?;
        self.wake = Some(Arc::clone(&wake));
        Ok(wake)
    }

    pub(super) fn clear_alarm(&self) {
        if let Some(alarm) = &self.alarm {
            // The read does not block. If the timer has not expired since the last read, the read fails, which does no harm.
            let _ = rustix::io::read(alarm, &mut [0u8; 8]);
        }
    }

    pub(super) fn clear_wake(&self) {
        if let Some(wake) = &self.wake {
            // The read does not block. If the eventfd was not written since the last read, the read fails, which does no harm.
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
        }
    }

    /// Waits until a descriptor is ready, for at most `time`, or without a limit if `time` is `None`. The caller must handle the
    /// ready descriptors before the next call, which otherwise reports them again.
    pub(super) fn wait(&mut self, time: Option<Duration>) {
        self.events.wait(time, &mut self.ready);
        self.next_look = Ticks(Ticks::now().0 + self.interval.0);
    }
}
