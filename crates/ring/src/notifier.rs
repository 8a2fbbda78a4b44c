//! Ringing where the peer asked for it, once a wish: the same for frames and for room.
//!
//! A wish is the count at which the peer wants to be rung, or 0. It is a hint: what a hostile peer wishes costs at most one ring
//! for each change that it is told of.

use crate::counters::DoorbellCounters;
use crate::doorbell::Notified;
use crate::sync::NotifyFd;
use std::sync::Arc;

/// A doorbell with the wish that was last rung for.
#[derive(Debug)]
pub(crate) struct Notifier {
    notify_fd: Arc<NotifyFd>,
    rung_at: u64,
    /// Whether it rings at each change, asked for or not.
    pub(crate) always: bool,
    /// Whether a ring found nobody to hear it.
    pub(crate) gone: bool,
    pub(crate) counters: DoorbellCounters,
}

impl Notifier {
    pub(crate) fn new(notify_fd: Arc<NotifyFd>) -> Self {
        Self { notify_fd, rung_at: 0, always: false, gone: false, counters: DoorbellCounters::default() }
    }

    /// The count has become `count`, where the peer wishes to be rung at `wish`.
    pub(crate) fn changed(&mut self, count: u64, wish: u64) {
        let asked = wish != 0 && wish <= count && wish != self.rung_at;
        if asked {
            self.rung_at = wish;
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
