//! The table of connections in TIME-WAIT. Its size is limited: when the table is full, the oldest entry is removed for a new one.
//!
//! A linked list has the entries in the order in which they were added or last restarted. If all connections have the same duration
//! of TIME-WAIT, this is also the order in which the entries expire. Only the oldest entry is checked, so with different durations
//! an entry can stay longer than its duration. All operations take constant time.

use super::Flow;
use super::settings::PacketClass;
use crate::limits::TCP_TIME_WAITS_MAX;
use crate::slab::Slab;
use crate::tcp::TimeWait;
use crate::time::Instant;

const NOBODY: u32 = u32::MAX;

#[derive(Debug)]
pub(crate) struct TimeWaitEntry {
    pub(crate) flow: Flow,
    pub(crate) state: TimeWait,
    pub(crate) class: PacketClass,
    /// True if the local port stays in use until TIME-WAIT ends. This is so for connections without timestamps, because no new
    /// connection may use their flow earlier.
    pub(crate) holds_port: bool,
    before: u32,
    behind: u32,
}

#[derive(Debug)]
pub(crate) struct TimeWaits {
    pub(crate) slab: Slab<TimeWaitEntry>,
    oldest: u32,
    newest: u32,
}

impl TimeWaits {
    pub(crate) fn new() -> Self {
        Self { slab: Slab::default(), oldest: NOBODY, newest: NOBODY }
    }

    /// Adds an entry and returns its index. If the table is full, the caller must have removed the oldest entry before.
    pub(crate) fn insert(&mut self, flow: Flow, state: TimeWait, class: PacketClass, holds_port: bool) -> u32 {
        let (place, _) =
            self.slab.insert(TimeWaitEntry { flow, state, class, holds_port, before: NOBODY, behind: NOBODY });
        self.append(place);
        place
    }

    pub(crate) fn remove(&mut self, place: u32) -> Option<TimeWaitEntry> {
        self.detach(place);
        self.slab.remove(place)
    }

    /// Returns the oldest entry if it has to be removed. With `now`, it has to be removed if its TIME-WAIT has ended. Without
    /// `now`, it has to be removed if the table is full.
    pub(crate) fn surplus(&mut self, now: Option<Instant>) -> Option<u32> {
        let oldest = self.slab.get(self.oldest)?;
        let over = now.map_or(self.slab.len() >= TCP_TIME_WAITS_MAX, |now| oldest.state.until <= now);
        over.then_some(self.oldest)
    }

    /// Moves an entry to the end of the list, because its TIME-WAIT has started again.
    pub(crate) fn restarted(&mut self, place: u32) {
        self.detach(place);
        self.append(place);
    }

    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.slab.get(self.oldest).map(|wait| wait.state.until)
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
