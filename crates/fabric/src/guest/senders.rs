//! The senders of a guest's links. A switch can have a thousand links of which few are in use. So the senders of a switch have a list of
//! those that may have something to do, and neither a poll iteration nor a wait looks at the others. Another guest has few links, and
//! looks at all of them: to maintain a list would take more instructions.

use super::peer_link::Sender;
use std::ops::{Deref, Index, IndexMut};

/// The senders of all links.
#[derive(Debug, Default)]
pub(super) struct Senders {
    all: Vec<Sender>,
    has_list: bool,
    /// The indexes of the senders that had something to do at the last call of [`Senders::settle`], or that have been accessed by a
    /// mutable reference since.
    active: Vec<usize>,
}

impl Senders {
    /// Returns no senders yet. With `has_list`, the list of active senders is maintained.
    pub(super) fn new(has_list: bool) -> Self {
        Self { has_list, ..Self::default() }
    }

    /// Maintains a list from now on.
    #[cfg(test)]
    pub(super) fn maintain_list(&mut self) {
        self.has_list = true;
    }

    pub(super) fn push(&mut self, sender: Sender) {
        self.all.push(sender);
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Sender> {
        (0..self.all.len()).for_each(|link| self.activate(link));
        self.all.iter_mut()
    }

    /// Returns the active sender at a place in the list. `None` also if there is no list.
    #[inline]
    pub(super) fn active(&self, place: usize) -> Option<usize> {
        self.active.get(place).copied()
    }

    /// Removes the senders from the list that have nothing to do.
    pub(super) fn settle(&mut self) {
        let Self { all, active, .. } = self;
        active.retain(|link| {
            let sender = &mut all[*link];
            sender.is_active = sender.needs_care();
            sender.is_active
        });
    }

    /// Returns whether a sender waited for free buffers and can now continue.
    #[inline]
    pub(super) fn any_has_room(&mut self) -> bool {
        let Self { all, active, has_list } = self;
        if *has_list {
            return active.iter().any(|link| all[*link].has_room());
        }
        all.iter_mut().any(Sender::has_room)
    }

    /// Calls [`Sender::request_room`] of the senders. Returns false if one of them need not wait.
    pub(super) fn request_room(&mut self) -> bool {
        let Self { all, active, has_list } = self;
        if *has_list {
            return active.iter().all(|link| all[*link].request_room());
        }
        all.iter_mut().all(Sender::request_room)
    }

    /// Returns a sender that is in the list, or whose guest has no list.
    #[inline]
    pub(super) fn listed(&mut self, link: usize) -> &mut Sender {
        // Only in a test does a guest with a list, other than a switch, get here for a sender that is not in it.
        #[cfg(test)]
        self.activate(link);
        let sender = &mut self.all[link];
        debug_assert!(!self.has_list || sender.is_active, "the list lacks sender {link}");
        sender
    }

    #[inline]
    fn activate(&mut self, link: usize) {
        if self.has_list
            && let Some(sender) = self.all.get_mut(link)
            && !std::mem::replace(&mut sender.is_active, true)
        {
            self.active.push(link);
        }
    }
}

impl Deref for Senders {
    type Target = [Sender];

    #[inline]
    fn deref(&self) -> &[Sender] {
        &self.all
    }
}

impl Index<usize> for Senders {
    type Output = Sender;

    #[inline]
    fn index(&self, link: usize) -> &Sender {
        &self.all[link]
    }
}

impl IndexMut<usize> for Senders {
    #[inline]
    fn index_mut(&mut self, link: usize) -> &mut Sender {
        self.activate(link);
        &mut self.all[link]
    }
}
