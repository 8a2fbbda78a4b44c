//! Sends a notification when an index reaches the peer's notify threshold, both for new frames and for buffers given back
//! (decision 008).
//!
//! A sleeping side publishes the index at which it wants a notification, or 0 for none (virtio calls this the event index). The
//! threshold is a hint. With false thresholds, a hostile peer can cause at most one notification for each change of the index.

use crate::counters::DoorbellCounters;
use crate::doorbell::Notified;
use crate::sync::NotifyFd;
use std::sync::Arc;

/// A notify descriptor, and the threshold for which the last notification was sent.
#[derive(Debug)]
pub(crate) struct Notifier {
    notify_fd: Arc<NotifyFd>,
    notified_at: u64,
    /// True if each change of the index sends a notification, even without a request.
    pub(crate) always: bool,
    /// True if a notification failed because the peer has closed its wake descriptor.
    pub(crate) gone: bool,
    pub(crate) counters: DoorbellCounters,
}

impl Notifier {
    pub(crate) fn new(notify_fd: Arc<NotifyFd>) -> Self {
        Self { notify_fd, notified_at: 0, always: false, gone: false, counters: DoorbellCounters::default() }
    }

    #[cfg(not(loom))]
    pub(crate) fn descriptors(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        self.notify_fd.descriptors()
    }

    /// Sends a notification if the new `index` has reached the peer's notify threshold. One notification for each threshold is enough,
    /// because the peer sets a new threshold before it sleeps again.
    #[inline]
    pub(crate) fn changed(&mut self, index: u64, threshold: u64) {
        if self.is_due(index, threshold) {
            self.notify();
        }
    }

    /// Decides as [`Notifier::changed`] does. Returns the descriptor on which the caller sends the notification, if it is due.
    pub(crate) fn take(&mut self, index: u64, threshold: u64) -> Option<Arc<NotifyFd>> {
        self.is_due(index, threshold).then(|| self.descriptor())
    }

    /// Returns the descriptor on which notifications are sent.
    pub(crate) fn descriptor(&mut self) -> Arc<NotifyFd> {
        self.counters.sent += 1;
        Arc::clone(&self.notify_fd)
    }

    /// Decides as [`Notifier::changed`] does, and leaves it to the caller to send the notification.
    #[inline]
    pub(crate) fn is_due(&mut self, index: u64, threshold: u64) -> bool {
        let requested = threshold != 0 && threshold <= index && threshold != self.notified_at;
        if requested {
            self.notified_at = threshold;
        } else if !self.always {
            self.counters.suppressed += 1;
        }
        requested || self.always
    }

    #[inline(never)]
    fn notify(&mut self) {
        self.counters.sent += 1;
        match self.notify_fd.notify() {
            Notified::Sent => {}
            Notified::Full => self.counters.full += 1,
            Notified::Gone => self.gone = true,
        }
    }
}
