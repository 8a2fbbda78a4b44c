//! Sending notifications when the peer's notify threshold is reached: the same for frames and for room (decision 008).
//!
//! A sleeping side publishes the index at which it wants a notification, or 0 for none (virtio calls this the event index). The
//! threshold is a hint. A hostile peer can cause at most one notification per change of the index.

use crate::counters::DoorbellCounters;
use crate::doorbell::Notified;
use crate::sync::NotifyFd;
use std::sync::Arc;

/// A notify descriptor with the threshold that was last notified.
#[derive(Debug)]
pub(crate) struct Notifier {
    notify_fd: Arc<NotifyFd>,
    notified_at: u64,
    /// Whether each change sends a notification, requested or not.
    pub(crate) always: bool,
    /// Whether a notification found the wake descriptor closed.
    pub(crate) gone: bool,
    pub(crate) counters: DoorbellCounters,
}

impl Notifier {
    pub(crate) fn new(notify_fd: Arc<NotifyFd>) -> Self {
        Self { notify_fd, notified_at: 0, always: false, gone: false, counters: DoorbellCounters::default() }
    }

    /// The index has become `index`, and the peer's notify threshold is `threshold`. One notification per threshold is enough:
    /// the peer sets a new one before it sleeps again.
    pub(crate) fn changed(&mut self, index: u64, threshold: u64) {
        let requested = threshold != 0 && threshold <= index && threshold != self.notified_at;
        if requested {
            self.notified_at = threshold;
        } else if !self.always {
            self.counters.suppressed += 1;
            return;
        }
        self.counters.sent += 1;
        match self.notify_fd.notify() {
            Notified::Sent => {}
            Notified::Full => self.counters.full += 1,
            Notified::Gone => self.gone = true,
        }
    }
}
