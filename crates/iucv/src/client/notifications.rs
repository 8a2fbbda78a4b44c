//! Notifications of a client without a wake descriptor. Its caller sends and records them, because the threads of a program share the client
//! by a lock.

use super::Client;
use siga_ring::NotifyFd;
use std::sync::Arc;

impl Client {
    /// Records that the descriptor of [`Client::notifications`] was readable. A client without a wake descriptor relies on this: before its
    /// caller has recorded it, it reads the descriptor only once a millisecond, or when there are events.
    pub fn note_notification(&mut self) {
        self.link.note_notification();
    }

    /// Returns the notify descriptor if the guest requests a notification of commands that were published since the last call. A client
    /// without a wake descriptor relies on its caller to send this notification after each use of the client, when other threads can use
    /// it again: the guest often runs at once, in place of this thread.
    pub fn take_notification(&mut self) -> Option<Arc<NotifyFd>> {
        self.link.take_notification()
    }

    /// Sends this notification.
    pub(super) fn notify(&mut self) {
        if let Some(notify_fd) = self.take_notification() {
            notify_fd.notify();
        }
        self.direct.take_notifications().for_each(|notify_fd| _ = notify_fd.notify());
    }

    /// Returns the notify descriptors of the other applications that request a notification, as [`Client::take_notification`] does for the
    /// guest.
    pub fn take_direct_notifications(&mut self) -> Vec<Arc<NotifyFd>> {
        if self.direct.is_empty() { Vec::new() } else { self.direct.take_notifications().collect() }
    }
}
