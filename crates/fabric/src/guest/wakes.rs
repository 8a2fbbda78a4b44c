//! What wakes a guest: descriptors with their readiness keys, an alarm, and calls of other threads.

use rustix::event::{EventfdFlags, Timespec, eventfd};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use siga_model::error::{IoContext, Result};
use siga_ring::clock::Ticks;
use siga_ring::ready_set::ReadySet;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Duration;

/// What a descriptor of a node is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadyKey {
    Control,
    /// Where a later control program knocks.
    Listener,
    /// Who has knocked there.
    Reconnecting(usize),
    /// The ear of a link.
    Link(usize),
    /// The ear of an application.
    Application(usize),
    /// Something is due.
    Alarm,
    /// Another thread of this process wants the one that waits.
    Wake,
}

/// What the kernel tells a node.
#[derive(Debug)]
pub(super) struct Wakes {
    pub(super) events: ReadySet<ReadyKey>,
    /// What has come and is to be looked at.
    pub(super) ready: Vec<ReadyKey>,
    /// When it is time to look again.
    pub(super) next_look: Ticks,
    interval: Ticks,
    /// Wakes whoever sleeps on the descriptor of all events; made when it is first wanted.
    alarm: Option<OwnedFd>,
    /// Ends waiting; made when it is first wanted.
    wake: Option<Arc<OwnedFd>>,
}

impl Wakes {
    pub(super) fn new(interval: Ticks) -> Result<Self> {
        let events = ReadySet::new().context("cannot wait for events")?;
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
        // A value of zero would disarm it.
        let time = time.map(|time| Timespec::try_from(time.max(Duration::from_nanos(1))).unwrap_or(zero));
        let setting = Itimerspec { it_interval: zero, it_value: time.unwrap_or(zero) };
        timerfd_settime(alarm, TimerfdTimerFlags::empty(), &setting)?;
        Ok(())
    }

    /// The event that ends waiting.
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
            // It does not block: what has been taken already is not there.
            let _ = rustix::io::read(alarm, &mut [0u8; 8]);
        }
    }

    pub(super) fn clear_wake(&self) {
        if let Some(wake) = &self.wake {
            // As above.
            let _ = rustix::io::read(wake, &mut [0u8; 8]);
        }
    }

    /// Waits for `time`; none is without end. What this tells is handled before the next look, which would tell it again.
    pub(super) fn wait(&mut self, time: Option<Duration>) {
        self.events.wait(time, &mut self.ready);
        self.next_look = Ticks(Ticks::now().0 + self.interval.0);
    }
}
