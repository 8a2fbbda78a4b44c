//! Pollers: with a poller, one thread waits for events of all sockets of an attachment, as with epoll(7).

use super::attachment::{Attachment, Held, Wakeup};
use super::provider::SocketId;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Waits for changes of readiness. A poller returns the ids of an attachment's sockets that have become readable, writable or
/// closed. Only one thread may poll.
///
/// After the application has processed the events, it should poll again, because under the waiting policy `block` the stack's
/// output may be delayed until then. For example, the ACK of a request is sent together with the application's answer, or at the
/// next poll at the latest. If the application has accepted a connection in between, the output may be delayed until the poll after
/// that.
///
/// A poller can be used inside another event loop. After a call of [`Poller::wait`] that returned no socket, the poller's
/// descriptor becomes readable when `wait` should be called again.
#[derive(Debug)]
pub struct Poller {
    attachment: Attachment,
}

impl Poller {
    /// Makes a poller for all sockets of an attachment.
    pub fn new(attachment: &Attachment) -> Self {
        Self { attachment: attachment.clone() }
    }

    /// Runs the stack once, and appends the sockets with events to `events`. Neither waits nor requests notifications from
    /// partners.
    ///
    /// # Errors
    /// Returns an error if the network has gone down.
    pub fn look(&self, events: &mut Vec<SocketId>) -> io::Result<()> {
        let mut provider = self.attachment.provider();
        self.work(&mut provider, events);
        provider.ended().map_or(Ok(()), Err)
    }

    fn work(&self, provider: &mut Held<'_>, events: &mut Vec<SocketId>) -> bool {
        let moved = provider.work_before_answers();
        self.attachment.notify_waiters(provider);
        while let Some(socket) = provider.poll_event() {
            events.push(socket);
        }
        moved
    }

    /// Returns a handle with which another thread can end a wait of this poller.
    pub fn waker(&self) -> Waker {
        Waker { call: Arc::clone(&self.attachment.0.call) }
    }

    /// Waits until sockets have events, and appends the sockets to `events`. Appends none if the time limit `time` is reached or a
    /// [`Waker`] ends the wait. If `time` is `None`, the wait has no time limit.
    ///
    /// # Errors
    /// Returns an error if the network has gone down.
    pub fn wait(&self, events: &mut Vec<SocketId>, time: Option<Duration>) -> io::Result<()> {
        let end = time.map(|time| Instant::now() + time);
        let mut provider = self.attachment.provider();
        loop {
            let before = events.len();
            let busy = self.work(&mut provider, events);
            if self.attachment.0.call.for_poller.swap(false, Ordering::Acquire) || events.len() > before {
                return Ok(());
            }
            if let Some(why) = provider.ended() {
                return Err(why);
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                // After `fall_asleep` the descriptor becomes readable when there is something to do.
                if busy || !provider.fall_asleep()? {
                    continue;
                }
                return Ok(());
            }
            provider = self.attachment.wait(provider, left)?;
        }
    }
}

impl AsFd for Poller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.attachment.0.descriptor.as_fd()
    }
}

/// Ends the current wait of a [`Poller`], or its next wait if it does not wait now.
#[derive(Debug, Clone)]
pub struct Waker {
    call: Arc<Wakeup>,
}

impl Waker {
    /// Ends the current or the next wait of the poller.
    pub fn wake(&self) {
        // The Release ordering pairs with the Acquire ordering in `Poller::wait`, so that the woken poller sees the flag.
        self.call.for_poller.store(true, Ordering::Release);
        self.call.wake();
    }
}
