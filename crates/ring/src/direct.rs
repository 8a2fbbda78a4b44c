//! The memory of direct connections: two applications exchange the bytes of TCP connections through memory that only they share.
//! `docs/direct.md` specifies it.
//!
//! A [`Couple`] is one application's end. Each application owns one sealed memory file, and maps the file of the other one read-only.
//! A file has a fixed number of *slots*. A slot is bound to one connection at a time, and has the words and the buffer for the bytes
//! that the owner of the file sends on this connection. A [`Lane`] is one end of such a connection: it sends from the own slot, and
//! receives from the peer's slot with the same number.
//!
//! The caller decides when a lane is bound, and knows the peer only by what the control program said. This module decides what the
//! words of the peer may say: a wrong word breaks the one lane whose word it is.

mod incoming;
mod lane;
mod layout;
mod outgoing;
#[cfg(all(test, not(loom)))]
mod tests;

use crate::notifier::Notifier;
use crate::sync::{NotifyFd, Ordering, Region, View, fence};
pub use incoming::Incoming;
pub use lane::{Lane, Violation};
pub use layout::Shape;
use layout::{ASLEEP, CHANGES, ROOM_THRESHOLD};
pub use outgoing::{Stopped, UnreadByPeer};
use std::sync::Arc;

/// The memory file that one application of a couple owns.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct OwnSlots {
    region: Region,
    shape: Shape,
}

#[cfg(not(loom))]
impl OwnSlots {
    /// Makes and seals the memory. Returns it with a descriptor for the peer.
    ///
    /// # Errors
    /// Returns an error if the host has no memory, mappings or descriptors left.
    pub fn create(shape: Shape) -> std::io::Result<(Self, std::os::fd::OwnedFd)> {
        let (region, fd) = Region::create(shape.memory_bytes())?;
        Ok((Self { region, shape }, fd))
    }
}

/// The memory file of the peer, mapped read-only.
#[cfg(not(loom))]
#[derive(Debug)]
pub struct PeerSlots {
    view: View,
}

#[cfg(not(loom))]
impl PeerSlots {
    /// Maps the peer's memory, and closes the descriptor.
    ///
    /// # Errors
    /// Returns an error if the descriptor is not a memory file with the required seals and size, or if the host has no mappings left.
    pub fn map(fd: std::os::fd::OwnedFd, shape: Shape) -> Result<Self, crate::MapError> {
        Ok(Self { view: crate::memory::map(fd, shape.memory_bytes())? })
    }
}

/// One application's end of the memory that it shares with another application.
#[derive(Debug)]
pub struct Couple {
    own: Region,
    peer: View,
    shape: Shape,
    notifier: Notifier,
    /// Number of the current or last sleep. The word [`ASLEEP`] has it while this side sleeps.
    sleeps: u64,
    is_asleep: bool,
    /// True if notifications are left to the caller ([`Couple::take_notification`]).
    is_quiet: bool,
    owes_notification: bool,
    sent_bytes: u64,
    received_bytes: u64,
    /// Number of changes of own words.
    changes: u64,
    /// The number of the peer's changes at the last look at all lanes; `None` if the next look has to look at all lanes.
    seen_changes: Option<u64>,
}

impl Couple {
    /// Makes the end of a couple. With `is_quiet`, the caller sends the notifications that [`Couple::take_notification`] returns.
    #[cfg(not(loom))]
    pub fn new(own: OwnSlots, peer: PeerSlots, notify_fd: NotifyFd, is_quiet: bool) -> Self {
        Self::over(own.region, peer.view, own.shape, Arc::new(notify_fd), is_quiet)
    }

    pub(crate) fn over(own: Region, peer: View, shape: Shape, notify_fd: Arc<NotifyFd>, is_quiet: bool) -> Self {
        Self {
            own,
            peer,
            shape,
            notifier: Notifier::new(notify_fd),
            sleeps: 0,
            is_asleep: false,
            is_quiet,
            owes_notification: false,
            sent_bytes: 0,
            received_bytes: 0,
            changes: 0,
            seen_changes: None,
        }
    }

    /// Returns how many bytes this side has published and has read.
    pub fn moved_bytes(&self) -> (u64, u64) {
        (self.sent_bytes, self.received_bytes)
    }

    /// Returns the descriptors that this end needs to notify its peer.
    #[cfg(not(loom))]
    pub fn descriptors(&self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        self.notifier.descriptors()
    }

    /// Requests a notification when the peer changes anything that [`Lane::look`] finds. The caller then looks at all lanes once more
    /// before it sleeps.
    pub fn declare_asleep(&mut self) {
        self.sleeps += 1;
        self.own.store(ASLEEP, self.sleeps);
        self.is_asleep = true;
        // SeqCst, paired with the fence in `changed`: either the peer sees that this side sleeps, or this side sees the peer's change when
        // it looks at the lanes.
        fence(Ordering::SeqCst);
    }

    /// Withdraws the request for a notification. A notification may already be on its way.
    pub fn awake(&mut self) {
        if self.is_asleep {
            self.own.store(ASLEEP, 0);
            self.is_asleep = false;
        }
    }

    /// Returns false if the peer has changed nothing since the last call that returned true, so that [`Lane::look`] would find nothing in any
    /// lane. Otherwise, the caller looks at all lanes.
    pub fn may_have_changed(&mut self) -> bool {
        let found = self.peer.load(CHANGES);
        // Acquire: the lanes show what the peer has changed before it counted.
        fence(Ordering::Acquire);
        self.seen_changes.replace(found) != Some(found)
    }

    /// Counts a change of a word.
    fn count_change(&mut self) {
        self.changes += 1;
        // Release: the peer sees the change when it sees the number.
        fence(Ordering::Release);
        self.own.store(CHANGES, self.changes);
    }

    /// Counts that this side has changed a word, and notifies the peer if it sleeps. One notification for each sleep is enough.
    fn changed(&mut self) {
        self.count_change();
        // SeqCst, paired with the fence in `declare_asleep`.
        fence(Ordering::SeqCst);
        let asleep = self.peer.load(ASLEEP);
        self.notify_at(asleep, asleep);
    }

    /// Notifies the peer if its sending side waits for the room that this side has made in a slot.
    fn made_room(&mut self, slot: usize, consumed: u64, notified: &mut u64) {
        self.count_change();
        // SeqCst, paired with the fence in `Lane::want_room`.
        fence(Ordering::SeqCst);
        let threshold = self.peer.load(self.shape.word(slot, ROOM_THRESHOLD));
        if threshold != 0 && threshold <= consumed && threshold != *notified {
            *notified = threshold;
            let asleep = self.peer.load(ASLEEP);
            self.notify_at(asleep, asleep);
        }
    }

    fn notify_at(&mut self, index: u64, threshold: u64) {
        if self.is_quiet {
            self.owes_notification |= self.notifier.is_due(index, threshold);
        } else {
            self.notifier.changed(index, threshold);
        }
    }

    /// Returns the descriptor on which the caller has to send a notification, if the peer requests one.
    pub fn take_notification(&mut self) -> Option<Arc<NotifyFd>> {
        std::mem::take(&mut self.owes_notification).then(|| self.notifier.descriptor())
    }
}
