//! The table of connections in TIME-WAIT. Its size is limited: when the table is full, the entry that ends first is removed for a
//! new one.
//!
//! The duration of TIME-WAIT is a setting of each connection. Entries whose durations round up to the same number of seconds form a
//! queue, in the order in which they were added or last restarted, which is the order of their ends. So the first entry of some
//! queue ends first. In practice one or two durations are in use; there are at most 240. The work for an entry does not depend on
//! the number of entries. An entry stays at most one second longer than its duration.

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

/// The entries of one duration, in the order of their ends.
#[derive(Debug)]
struct Queue {
    seconds: u64,
    oldest: u32,
    newest: u32,
}

#[derive(Debug)]
pub(crate) struct TimeWaits {
    pub(crate) slab: Slab<TimeWaitEntry>,
    queues: Vec<Queue>,
    /// The entry that ends first.
    first: u32,
}

impl TimeWaits {
    pub(crate) fn new() -> Self {
        Self { slab: Slab::default(), queues: Vec::new(), first: NOBODY }
    }

    /// Adds an entry and returns its index. If the table is full, the caller must have removed an entry before.
    pub(crate) fn insert(&mut self, flow: Flow, state: TimeWait, class: PacketClass, holds_port: bool) -> u32 {
        let (place, _) =
            self.slab.insert(TimeWaitEntry { flow, state, class, holds_port, before: NOBODY, behind: NOBODY });
        self.append(place);
        self.find_first();
        place
    }

    pub(crate) fn remove(&mut self, place: u32) -> Option<TimeWaitEntry> {
        self.detach(place);
        let removed = self.slab.remove(place);
        self.find_first();
        removed
    }

    /// Returns the entry that ends first if it has to be removed. With `now`, it has to be removed if its TIME-WAIT has ended.
    /// Without `now`, it has to be removed if the table is full.
    pub(crate) fn surplus(&mut self, now: Option<Instant>) -> Option<u32> {
        let first = self.slab.get(self.first)?;
        let over = now.map_or(self.slab.len() >= TCP_TIME_WAITS_MAX, |now| first.state.until <= now);
        over.then_some(self.first)
    }

    /// Moves an entry to the end of its queue, because its TIME-WAIT has started again.
    pub(crate) fn restarted(&mut self, place: u32) {
        self.detach(place);
        self.append(place);
        self.find_first();
    }

    #[inline]
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.slab.get(self.first).map(|wait| wait.state.until)
    }

    fn find_first(&mut self) {
        let ends =
            self.queues.iter().filter_map(|queue| Some((self.slab.get(queue.oldest)?.state.until, queue.oldest)));
        self.first = ends.min().map_or(NOBODY, |(_, place)| place);
    }

    /// Returns the index of the queue to which an entry belongs.
    fn queue_of(&mut self, wait: &TimeWait) -> usize {
        let seconds = wait.lasts.as_nanos().div_ceil(1_000_000_000);
        let known = self.queues.iter().position(|queue| queue.seconds == seconds);
        known.unwrap_or_else(|| {
            self.queues.push(Queue { seconds, oldest: NOBODY, newest: NOBODY });
            self.queues.len() - 1
        })
    }

    fn append(&mut self, place: u32) {
        let Some(state) = self.slab.get(place).map(|wait| wait.state) else { return };
        let at = self.queue_of(&state);
        let Queue { oldest, newest, .. } = &mut self.queues[at];
        if let Some(wait) = self.slab.get_mut(place) {
            (wait.before, wait.behind) = (*newest, NOBODY);
        }
        match self.slab.get_mut(*newest) {
            Some(newest) => newest.behind = place,
            None => *oldest = place,
        }
        *newest = place;
    }

    fn detach(&mut self, place: u32) {
        let Some(wait) = self.slab.get(place) else { return };
        let (before, behind, state) = (wait.before, wait.behind, wait.state);
        let at = self.queue_of(&state);
        let Queue { oldest, newest, .. } = &mut self.queues[at];
        match self.slab.get_mut(before) {
            Some(previous) => previous.behind = behind,
            None => *oldest = behind,
        }
        match self.slab.get_mut(behind) {
            Some(next) => next.before = before,
            None => *newest = before,
        }
    }
}
