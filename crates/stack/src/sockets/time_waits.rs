//! Connections in TIME-WAIT: a bounded table of what remains of them. If it is full, the oldest entry makes room.
//!
//! A linked list through the table orders entries by their end: the order in which they were added or last restarted. All
//! operations take constant time.

use super::Flow;
use super::settings::PacketClass;
use super::slab::Slab;
use crate::limits::TCP_TIME_WAITS_MAX;
use crate::tcp::TimeWait;
use crate::time::Instant;

const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct TimeWaitEntry {
    pub(crate) flow: Flow,
    pub(crate) state: TimeWait,
    pub(crate) class: PacketClass,
    /// It holds its local port: without timestamps, no connection may follow it at once.
    pub(crate) holds_port: bool,
    before: u32,
    behind: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct TimeWaits {
    slab: Slab<TimeWaitEntry>,
    oldest: u32,
    newest: u32,
}

impl TimeWaits {
    pub(crate) fn new() -> Self {
        Self { slab: Slab::default(), oldest: NOBODY, newest: NOBODY }
    }

    pub(crate) fn len(&self) -> usize {
        self.slab.len()
    }

    /// Adds an entry and returns its index. The caller has removed the oldest entry of a full table.
    pub(crate) fn insert(&mut self, flow: Flow, state: TimeWait, class: PacketClass, holds_port: bool) -> u32 {
        let (place, _) =
            self.slab.insert(TimeWaitEntry { flow, state, class, holds_port, before: NOBODY, behind: NOBODY });
        self.append(place);
        place
    }

    #[inline]
    pub(crate) fn get(&self, place: u32) -> Option<&TimeWaitEntry> {
        self.slab.get(place)
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> Option<&mut TimeWaitEntry> {
        self.slab.get_mut(place)
    }

    pub(crate) fn remove(&mut self, place: u32) -> Option<TimeWaitEntry> {
        self.detach(place);
        self.slab.remove(place)
    }

    /// The oldest entry, if it has to go: without `now` if the table is full, else if its time is over.
    pub(crate) fn surplus(&mut self, now: Option<Instant>) -> Option<u32> {
        let oldest = self.slab.get(self.oldest)?;
        let over = now.map_or(self.slab.len() >= TCP_TIME_WAITS_MAX, |now| oldest.state.poll_timeout() <= now);
        over.then_some(self.oldest)
    }

    /// Moves an entry whose time has restarted behind all others.
    pub(crate) fn restarted(&mut self, place: u32) {
        self.detach(place);
        self.append(place);
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.slab.get(self.oldest).map(|wait| wait.state.poll_timeout())
    }

    fn append(&mut self, place: u32) {
        if let Some(wait) = self.slab.get_mut(place) {
            (wait.before, wait.behind) = (self.newest, NOBODY);
        }
        match self.slab.get_mut(self.newest) {
            Some(newest) => newest.behind = place,
            None => self.oldest = place,
        }
        self.newest = place;
    }

    fn detach(&mut self, place: u32) {
        let Some(wait) = self.slab.get(place) else { return };
        let (before, behind) = (wait.before, wait.behind);
        match self.slab.get_mut(before) {
            Some(previous) => previous.behind = behind,
            None => self.oldest = behind,
        }
        match self.slab.get_mut(behind) {
            Some(next) => next.before = before,
            None => self.newest = before,
        }
    }
}
