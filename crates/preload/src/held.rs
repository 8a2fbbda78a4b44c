//! The lock of the state, and threads that wait for events of sockets: they poll, and then sleep, while other threads can use the state.

use crate::errors::{Error, Result};
use crate::event::{OwnEvent, Unwritten};
use crate::world::{Place, Sleeper, WORLD, World};
use crate::{deferral, sys};
use siga_iucv::client::Client;
use siga_ring::clock::Ticks;
use smallvec::SmallVec;
use std::ops::{Deref, DerefMut};
use std::sync::{MutexGuard, PoisonError};
use std::time::Duration;

/// How long a thread sleeps in a process that may wait for one descriptor only, if the process shares memory with others.
const LIMITED_SLEEP_MAX: Duration = Duration::from_millis(20);

/// The state, locked by this thread, whose signals are deferred.
pub(crate) struct Held {
    world: Option<MutexGuard<'static, World>>,
    /// The signals that are blocked while this thread sleeps, if the program has chosen them for this call.
    while_asleep: Option<sys::Signals>,
}

/// Locks the state.
pub(crate) fn lock() -> Held {
    deferral::enter();
    let mut world = WORLD.lock().unwrap_or_else(PoisonError::into_inner);
    world.uses += 1;
    Held { world: Some(world), while_asleep: None }
}

impl Deref for Held {
    type Target = World;

    fn deref(&self) -> &World {
        self.world.as_deref().unwrap_or_else(|| unreachable!("the state is unlocked only while this thread sleeps"))
    }
}

impl DerefMut for Held {
    fn deref_mut(&mut self) -> &mut World {
        self.world.as_deref_mut().unwrap_or_else(|| unreachable!("the state is unlocked only while this thread sleeps"))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if let Some(world) = self.world.as_deref_mut() {
            world.hand_over_watch();
            if world.asleep > 0 {
                world.fall_asleep();
            }
        }
        self.unlock();
        deferral::leave();
    }
}

impl Held {
    /// Lets other threads use the state, and wakes those and the guest if there is something to do for them.
    fn unlock(&mut self) {
        let world = self.world.as_mut();
        world.into_iter().for_each(|world| world.settle_descriptors());
        let unwritten = Unwritten::take();
        let client = self.world.as_mut().and_then(|world| world.client.as_mut());
        let notifications = client.map(|client| (client.take_notification(), client.take_direct_notifications()));
        self.world = None;
        let notifications = notifications.into_iter().flat_map(|(guest, others)| guest.into_iter().chain(others));
        notifications.for_each(|notify_fd| _ = notify_fd.notify_from_fixed());
        unwritten.write();
    }

    fn lock_again(&mut self) {
        self.world = Some(WORLD.lock().unwrap_or_else(PoisonError::into_inner));
        self.uses += 1;
    }

    /// Sets which signals are blocked while this thread sleeps (ppoll(2)).
    pub(crate) fn wait_with(&mut self, blocked: sys::Signals) {
        self.while_asleep = Some(blocked);
    }

    /// Sleeps until one of `sockets` may have changed, one of the `entries` is ready, or the time is over. `entries` are descriptors of
    /// the kernel; their last two are set here. Other threads can use the state while this thread sleeps.
    ///
    /// # Errors
    /// `EINTR` if a signal handler ran.
    pub(crate) fn sleep(
        &mut self,
        sockets: Vec<Place>,
        entries: &mut Vec<libc::pollfd>,
        time: Option<Duration>,
    ) -> Result<()> {
        if self.polls() {
            return Err(Error::WOULD_BLOCK);
        }
        let entry = |number| libc::pollfd { fd: number, events: libc::POLLIN, revents: 0 };
        let event = self.spare_events.pop().map_or_else(OwnEvent::new, Ok)?;
        let own = entries.len();
        entries.push(entry(event.number()));
        let is_watched = self.sleepers.iter().flatten().any(|sleeper| sleeper.watches);
        let watched = self.client_number().filter(|_| !is_watched);
        let watches = watched.is_some();
        entries.extend(watched.map(entry));
        let bells = if watches { self.bells() } else { SmallVec::new() };
        entries.extend(bells.iter().copied().map(entry));
        sockets.iter().for_each(|place| self.expect_connections(*place));
        let place = self.add_sleeper(Sleeper { sockets, event, watches });
        let outcome = self.unlocked(true, |before| {
            let outcome = sys::poll(entries, time, before);
            // A program in a sandbox may have a limit of one descriptor for a wait (`RLIMIT_NOFILE`), as in the server of ssh, or of none.
            let suffices = watches && entries[..own].iter().all(|entry| entry.fd < 0);
            let is_limited = outcome == Err(Error::INVALID) && suffices;
            if !is_limited {
                return outcome;
            }
            // Then the thread looks at the memory of other processes from time to time.
            let time =
                if !bells.is_empty() { Some(time.unwrap_or(LIMITED_SLEEP_MAX).min(LIMITED_SLEEP_MAX)) } else { time };
            let guest = &mut entries[own + 1];
            match sys::poll(std::slice::from_mut(guest), time, before) {
                // The process may not wait for a single descriptor, as a process of vsftpd.
                Err(Error::INVALID) => {
                    let ready = sys::select(guest.fd, time, before)?;
                    guest.revents = if ready > 0 { libc::POLLIN } else { 0 };
                    Ok(ready)
                }
                outcome => outcome,
            }
        });
        let mut ready = entries.iter().skip(own + 1).filter(|entry| watches && entry.revents != 0).peekable();
        if ready.next_if(|entry| Some(entry.fd) == watched).is_some() {
            self.note_notification();
        }
        ready.for_each(|bell| self.note_bell(Some(bell.fd)));
        entries.truncate(own);
        if let Some(Sleeper { event, .. }) = self.sleepers[place].take() {
            event.clear();
            self.spare_events.push(event);
        }
        outcome.map(|_| ())
    }

    /// Calls `sleep` with the state unlocked. `sleep` receives the signals that are blocked while the thread sleeps; `None` leaves them
    /// as they are. With `watches`, the thread watches the client's descriptor, and its sleep counts for polling. Returns `EAGAIN` without sleeping if there is something
    /// to do already.
    pub(crate) fn unlocked<T>(
        &mut self,
        watches: bool,
        sleep: impl FnOnce(Option<sys::Signals>) -> Result<T>,
    ) -> Result<T> {
        if watches && !self.fall_asleep() {
            // There is something to do already.
            self.work();
            return Err(Error::WOULD_BLOCK);
        }
        self.hand_over_watch();
        self.asleep += usize::from(watches);
        self.unlock();
        // A signal that arrived in this call ends the sleep, although its handler has already run when the sleep would begin.
        let begun = Ticks::now();
        let outcome = if deferral::leave() && watches { Err(Error(libc::EINTR)) } else { sleep(self.while_asleep) };
        deferral::enter();
        self.lock_again();
        self.client.iter_mut().filter(|_| watches).for_each(|client| client.slept_since(begun));
        self.asleep -= usize::from(watches);
        outcome
    }

    /// Polls the memory that other applications write, for a short time, before the thread sleeps. If another thread uses the state
    /// meanwhile, it may need this CPU, so polling ends. Returns true if there is something to do, or if another thread may have done it.
    pub(crate) fn polls(&mut self) -> bool {
        if self.is_polled || !self.client.as_mut().is_some_and(Client::begin_polling) {
            return false;
        }
        self.is_polled = true;
        let (found, is_disturbed) = loop {
            let uses = self.uses;
            self.unlock();
            std::hint::spin_loop();
            self.lock_again();
            let is_disturbed = self.uses != uses + 1;
            if let Some(found) = self.client.as_mut().map_or(Some(true), |client| client.poll(is_disturbed)) {
                break (found, is_disturbed);
            }
        };
        self.is_polled = false;
        found || is_disturbed
    }
}
