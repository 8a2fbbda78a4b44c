//! Attachments: an attachment is an application's connection to a virtual network. The threads of the application share one
//! *provider*, the stack or the connection to it that provides the sockets.

use super::embedded::Embedded;
use super::provider::Provider;
use crate::client::Client;
use crate::guest::Node;
use crate::guest::process::{ask_for_slice, first_order};
use crate::isolate;
use crate::limits::START_TIME_MAX;
use crate::protocol::report::ReportPart;
use crate::protocol::secret::Secret;
use crate::rundir;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use siga_model::error::{Error, IoContext, Result};
use siga_model::name::Name;
use std::io::{self, ErrorKind};
use std::ops::{Deref, DerefMut};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// An application's connection to a virtual network, from which sockets are made. Clones share the connection.
#[derive(Debug, Clone)]
pub struct Attachment(pub(super) Arc<Shared>);

/// The state that the threads of an application share.
///
/// While only one thread uses the attachment, that thread waits according to the waiting policy and keeps the provider locked. If
/// another thread needs the provider, it wakes the first thread, which unlocks the provider. While several threads wait, one of
/// them sleeps on the descriptor, and runs the provider when it wakes. The other threads sleep until that thread has run the
/// provider.
#[derive(Debug)]
pub(super) struct Shared {
    state: Mutex<State>,
    moved: Condvar,
    /// A duplicate of the provider's descriptor, on which a thread can wait without locking the provider.
    pub(super) descriptor: OwnedFd,
    pub(super) call: Arc<Wakeup>,
    /// How many threads wait for another thread to unlock the provider.
    wanted: AtomicUsize,
    /// True while a thread waits with the provider locked. Another thread must then wake it to get the provider.
    waits: AtomicBool,
}

/// Wakes the thread that waits with the provider locked or sleeps on the descriptor.
#[derive(Debug)]
pub(super) struct Wakeup {
    /// The eventfd that ends the wait. The provider also waits for this descriptor.
    event: Arc<OwnedFd>,
    /// True if the wake-up is for the [`Poller`](super::Poller), whose wait then returns to the application.
    pub(super) for_poller: AtomicBool,
}

impl Wakeup {
    pub(super) fn wake(&self) {
        // The write fails only if the counter of the eventfd has reached its maximum. Then the waiting thread wakes anyway.
        let _ = rustix::io::write(&*self.event, &1_u64.to_ne_bytes());
    }
}

#[derive(Debug)]
pub(super) struct State {
    provider: Box<dyn Provider>,
    /// True if a thread sleeps on the descriptor.
    watched: bool,
    /// How many threads sleep in `follow`, until another thread has run the provider.
    followers: usize,
}

/// The provider, locked by this thread.
pub(super) struct Held<'a>(MutexGuard<'a, State>);

impl Deref for Held<'_> {
    type Target = dyn Provider;

    fn deref(&self) -> &Self::Target {
        &*self.0.provider
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut *self.0.provider
    }
}

impl Attachment {
    /// Makes this process an external guest of a network that is up. The guest's stack runs in this process.
    ///
    /// # Errors
    /// Returns an error if there is no such network, if the secret is wrong, or if another process is already attached as this
    /// guest.
    pub fn embedded(network: &Name, guest: &Name, secret: &Secret) -> Result<Self> {
        Self::embedded_at(&rundir::base()?, network, guest, secret)
    }

    /// Attaches like [`Attachment::embedded`], but to a network whose files are below `base`.
    ///
    /// # Errors
    /// Returns the same errors as [`Attachment::embedded`].
    pub fn embedded_at(base: &Path, network: &Name, guest: &Name, secret: &Secret) -> Result<Self> {
        isolate::hide()?;
        ask_for_slice();
        let mut channel = Client::connect_at(base, network)?.attach(guest, secret)?;
        let (config, listener) = first_order(&mut channel)?;
        let mut node = Node::new(config, channel, Some(listener))?;
        node.set_confinement("an application's process".to_owned());
        // The stack drops packets for partners that it does not know yet. So wait until the control program has announced all
        // partners.
        let end = Instant::now() + START_TIME_MAX;
        while !node.runs() {
            if !node.iterate() {
                node.wait(Some(Duration::from_millis(100)));
            }
            if node.stops() || Instant::now() > end {
                return Err(Error::environment("the control program did not send the list of partners"));
            }
        }
        Self::new(Box::new(Embedded::new(node)))
    }

    /// Returns all counters of this attachment. If the stack is in this process, these are the counters of the devices, their
    /// links, and the stack. Otherwise they are the counters of the link to the guest.
    ///
    /// # Errors
    /// Returns an error if the attachment has ended.
    pub fn report(&self) -> io::Result<Vec<ReportPart>> {
        self.provider().report()
    }

    /// Runs the stack once without waiting. A process that uses no socket for some time calls this method, so that the stack still
    /// responds to its peers.
    pub fn tend(&self) {
        self.work(&mut self.provider());
    }

    /// Makes this process an application of a guest, whose stack runs in another process. The network must be up. `secret` is the
    /// secret of that guest's applications. A guest can serve several applications, which all use the guest's waiting policy.
    /// Received bytes that an application does not read fill only the arena of that application.
    ///
    /// # Errors
    /// Returns an error if there is no such network, or if the secret is wrong. Also returns an error if the guest does not run, is
    /// external, or has the maximum number of applications.
    pub fn iucv(network: &Name, guest: &Name, secret: &Secret) -> Result<Self> {
        Self::iucv_at(&rundir::base()?, network, guest, secret)
    }

    /// Attaches like [`Attachment::iucv`], but to a network whose files are below `base`.
    ///
    /// # Errors
    /// Returns the same errors as [`Attachment::iucv`].
    pub fn iucv_at(base: &Path, network: &Name, guest: &Name, secret: &Secret) -> Result<Self> {
        isolate::hide()?;
        ask_for_slice();
        let end = Client::connect_at(base, network)?.use_stack(guest, secret)?;
        Self::new(Box::new(
            siga_iucv::client::Client::new(end)
                .context("this process has no free file descriptor for the guest's stack")?,
        ))
    }

    pub(super) fn new(mut provider: Box<dyn Provider>) -> Result<Self> {
        let descriptor = provider
            .descriptor()
            .try_clone_to_owned()
            .context("this process has no free file descriptor for the guest's stack")?;
        let event = provider.wake().context("this process has no free file descriptor for the guest's stack")?;
        let call = Arc::new(Wakeup { event, for_poller: AtomicBool::new(false) });
        let state = Mutex::new(State { provider, watched: false, followers: 0 });
        let (wanted, waits) = (AtomicUsize::new(0), AtomicBool::new(false));
        Ok(Self(Arc::new(Shared { state, moved: Condvar::new(), descriptor, call, wanted, waits })))
    }

    pub(super) fn provider(&self) -> Held<'_> {
        let Shared { state, call, wanted, waits, .. } = &*self.0;
        match state.try_lock() {
            Ok(state) => return Held(state),
            Err(TryLockError::Poisoned(state)) => return Held(state.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
        // The ordering is SeqCst here and in `wait`. So either the thread with the lock sees `wanted` before it waits, or this
        // thread sees `waits` and wakes that thread.
        wanted.fetch_add(1, Ordering::SeqCst);
        if waits.load(Ordering::SeqCst) {
            call.wake();
        }
        let state = state.lock().unwrap_or_else(PoisonError::into_inner);
        wanted.fetch_sub(1, Ordering::SeqCst);
        Held(state)
    }

    fn is_wanted(&self) -> bool {
        self.0.wanted.load(Ordering::SeqCst) > 0
    }

    /// Runs the provider once. Returns true if there was anything to do.
    fn work(&self, held: &mut Held<'_>) -> bool {
        let moved = held.work();
        self.notify_waiters(held);
        moved
    }

    /// Wakes the threads that wait until the provider has run.
    pub(super) fn notify_waiters(&self, held: &Held<'_>) {
        if held.0.watched {
            // Another thread sleeps on the descriptor. This thread may have consumed the notification that would have woken the
            // other.
            self.0.call.wake();
        }
        if held.0.followers > 0 {
            self.0.moved.notify_all();
        }
    }

    /// Repeats an operation until it returns something other than `WouldBlock`, or until the time limit of `patience` is reached.
    pub(super) fn until<T>(
        &self,
        patience: Patience,
        mut operation: impl FnMut(&mut dyn Provider) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut provider = self.provider();
        match operation(&mut *provider) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && patience.blocking => {}
            outcome => return outcome,
        }
        let end = patience.limit.map(|limit| Instant::now() + limit);
        loop {
            self.work(&mut provider);
            match operation(&mut *provider) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                outcome => return outcome,
            }
            if let Some(why) = provider.ended() {
                return Err(why);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ErrorKind::TimedOut.into());
            }
            provider = self.wait(provider, left)?;
        }
    }

    /// Waits until the provider may have something to do, for at most `time`.
    pub(super) fn wait<'a>(&'a self, mut held: Held<'a>, time: Option<Duration>) -> io::Result<Held<'a>> {
        if held.0.watched {
            return Ok(self.follow(held, time));
        }
        // A thread in `follow` needs the provider when its time limit is reached, but is not counted in `wanted`. So do not keep
        // the provider locked while such threads exist.
        if self.is_wanted() || held.0.followers > 0 {
            return self.sleep(held, time);
        }
        self.0.waits.store(true, Ordering::SeqCst);
        if !self.is_wanted() {
            held.wait(time);
        }
        self.0.waits.store(false, Ordering::SeqCst);
        Ok(held)
    }

    /// Sleeps on the descriptor, with the provider unlocked.
    fn sleep<'a>(&'a self, mut held: Held<'a>, time: Option<Duration>) -> io::Result<Held<'a>> {
        if !held.fall_asleep()? {
            drop(held);
            std::thread::yield_now();
            return Ok(self.provider());
        }
        held.0.watched = true;
        drop(held);
        let limit = time.and_then(|time| Timespec::try_from(time).ok());
        let woken = poll(&mut [PollFd::new(&self.0.descriptor, PollFlags::IN)], limit.as_ref());
        let mut held = self.provider();
        held.0.watched = false;
        // Wake the threads in `follow`, because one of them may have to sleep on the descriptor from now on.
        if held.0.followers > 0 {
            self.0.moved.notify_all();
        }
        match woken {
            Ok(_) | Err(Errno::INTR) => Ok(held),
            Err(error) => Err(error.into()),
        }
    }

    /// Sleeps until another thread has run the provider, for at most `time`.
    fn follow<'a>(&'a self, mut held: Held<'a>, time: Option<Duration>) -> Held<'a> {
        held.0.followers += 1;
        let state = match time {
            None => self.0.moved.wait(held.0).unwrap_or_else(PoisonError::into_inner),
            Some(time) => self.0.moved.wait_timeout(held.0, time).unwrap_or_else(PoisonError::into_inner).0,
        };
        let mut held = Held(state);
        held.0.followers -= 1;
        held
    }
}

/// Whether and how long an operation waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Patience {
    pub(super) blocking: bool,
    pub(super) limit: Option<Duration>,
}

impl Default for Patience {
    fn default() -> Self {
        Self { blocking: true, limit: None }
    }
}
