//! A hash table from flows to connections. An entry has eight bytes: the index of a connection and a part of the flow's hash. The
//! table does not store the flow, because the connection contains it, and the caller reads the connection next in any case.
//!
//! The table uses open addressing with linear probing. The upper bits of a flow's hash give the home index of its entry. The entry
//! is at this index or at the next free one. At most half of the entries are in use. The hash is keyed, so that an attacker cannot
//! choose flows whose hashes collide.

use super::{Flow, FlowTarget};
use crate::seed::Keyed;
use std::hash::BuildHasher;

/// Memory of the table for each flow, in bytes, in the worst case. After the table has grown, only a quarter of its entries is in
/// use.
pub(crate) const BYTES_EACH: usize = 4 * size_of::<Entry>();
/// The smallest capacity of a table that is not empty.
const PLACES_MIN: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Entry {
    hash: u32,
    /// The index of a connection, or the index of a TIME-WAIT entry plus the bit [`WAIT`], or [`NOBODY`] if this table entry is
    /// free.
    place: u32,
}

/// Marks an index as the index of a TIME-WAIT entry. The bit is far above the bits of the largest possible index.
const WAIT: u32 = 1 << 31;
const NOBODY: u32 = u32::MAX;
const FREE: Entry = Entry { hash: 0, place: NOBODY };

impl Entry {
    #[inline]
    fn place(self) -> Option<FlowTarget> {
        match self.place {
            NOBODY => None,
            place if place & WAIT == 0 => Some(FlowTarget::Connection(place)),
            place => Some(FlowTarget::TimeWait(place & !WAIT)),
        }
    }
}

fn number(place: FlowTarget) -> u32 {
    match place {
        FlowTarget::Connection(place) => place,
        FlowTarget::TimeWait(place) => place | WAIT,
    }
}

#[derive(Debug)]
pub(crate) struct Flows {
    /// The table entries. Their number is a power of two, or 0.
    entries: Vec<Entry>,
    len: usize,
    keyed: Keyed,
}

impl Flows {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self { entries: Vec::new(), len: 0, keyed }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the connection or TIME-WAIT entry to which a flow belongs. `is_it` is called for candidates with the same hash. It
    /// must return whether the complete flow of the candidate is equal, too.
    #[inline]
    pub(crate) fn find(&self, flow: &Flow, mut is_it: impl FnMut(FlowTarget) -> bool) -> Option<FlowTarget> {
        let hash = self.hash(flow);
        let mut at = self.home(hash);
        loop {
            let entry = self.entries.get(at)?;
            let place = entry.place()?;
            if entry.hash == hash && is_it(place) {
                return Some(place);
            }
            at = self.behind(at);
        }
    }

    /// Adds a flow. The flow must not be in the table yet.
    pub(crate) fn insert(&mut self, flow: &Flow, place: FlowTarget) {
        if 2 * (self.len + 1) > self.entries.len() {
            let places = (2 * self.entries.len()).max(PLACES_MIN);
            for entry in std::mem::replace(&mut self.entries, vec![FREE; places]) {
                if entry.place != NOBODY {
                    self.settle(entry);
                }
            }
        }
        self.settle(Entry { hash: self.hash(flow), place: number(place) });
        self.len += 1;
    }

    /// Changes the table entry of a flow that belongs to `from`, so that the flow belongs to `to`. Does nothing if the table has
    /// no such entry.
    pub(crate) fn replace(&mut self, flow: &Flow, from: FlowTarget, to: FlowTarget) {
        if let Some(at) = self.place_of(flow, from) {
            self.entries[at].place = number(to);
        }
    }

    /// Removes the table entry of a flow that belongs to `place`. Does nothing if the table has no such entry.
    pub(crate) fn remove(&mut self, flow: &Flow, place: FlowTarget) {
        let Some(mut hole) = self.place_of(flow, place) else { return };
        self.len -= 1;
        // A search stops at a free entry. So entries after the gap move into it, unless this would put them before their home
        // index.
        let mut at = hole;
        loop {
            at = self.behind(at);
            let entry = self.entries[at];
            if entry.place == NOBODY {
                self.entries[hole] = FREE;
                return;
            }
            if self.distance(self.home(entry.hash), at) >= self.distance(hole, at) {
                self.entries[hole] = entry;
                hole = at;
            }
        }
    }

    /// Returns the index of the table entry that maps `flow` to the target `place`.
    fn place_of(&self, flow: &Flow, place: FlowTarget) -> Option<usize> {
        let mut at = self.home(self.hash(flow));
        loop {
            match self.entries.get(at) {
                None | Some(Entry { place: NOBODY, .. }) => return None,
                Some(entry) if entry.place == number(place) => return Some(at),
                Some(_) => at = self.behind(at),
            }
        }
    }

    fn settle(&mut self, entry: Entry) {
        let mut at = self.home(entry.hash);
        while self.entries[at].place != NOBODY {
            at = self.behind(at);
        }
        self.entries[at] = entry;
    }

    #[inline]
    fn hash(&self, flow: &Flow) -> u32 {
        u32::try_from(self.keyed.hash_one(flow) >> 32).unwrap_or(0)
    }

    #[inline]
    fn home(&self, hash: u32) -> usize {
        let places = self.entries.len() as u64;
        usize::try_from((u64::from(hash) * places) >> 32).unwrap_or(0)
    }

    #[inline]
    fn behind(&self, at: usize) -> usize {
        (at + 1) & self.entries.len().wrapping_sub(1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.entries.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};
    use std::collections::BTreeSet;

    fn flow(number: u32) -> Flow {
        let ports = number.to_be_bytes();
        let (local_port, remote_port) =
            (u16::from_be_bytes([ports[0], ports[1]]), u16::from_be_bytes([ports[2], ports[3]]));
        Flow::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), local_port, remote_port)
    }

    #[test]
    fn a_flow_is_found_whatever_other_flows_are_inserted_and_removed() {
        let mut random = Seed::simulated(5).random(Purpose::UdpPorts);
        let mut flows = Flows::new(Seed::simulated(5).keyed(Purpose::FlowTable));
        let mut model = BTreeSet::new();
        assert_eq!(flows.find(&flow(1), |_| true), None);
        for round in 0..200_000 {
            // Many at first, few at the end: the table grows, and then empties.
            let number = random.below(3_000);
            if model.contains(&number) {
                if random.below(200_000) < round {
                    flows.remove(&flow(number), FlowTarget::Connection(number));
                    model.remove(&number);
                }
            } else if random.below(200_000) > round {
                flows.insert(&flow(number), FlowTarget::Connection(number));
                model.insert(number);
            }
            let asked = random.below(3_000);
            let found = flows.find(&flow(asked), |place| place == FlowTarget::Connection(asked));
            assert_eq!((found.is_some(), flows.len()), (model.contains(&asked), model.len()));
        }
        let places: Vec<u32> = model.iter().copied().collect();
        assert!(!places.is_empty() && flows.entries.len() <= 4 * 3_000);
        for number in places {
            flows.remove(&flow(number), FlowTarget::TimeWait(number));
            assert_eq!(
                flows.find(&flow(number), |_| true),
                Some(FlowTarget::Connection(number)),
                "another place stays"
            );
            flows.remove(&flow(number), FlowTarget::Connection(number));
        }
        assert!(flows.len() == 0 && flows.entries.iter().all(|entry| entry.place == NOBODY));
    }

    #[test]
    fn the_flow_table_uses_no_more_memory_than_its_bound() {
        let mut flows = Flows::new(Seed::simulated(1).keyed(Purpose::FlowTable));
        for number in 0..3_000 {
            flows.insert(&flow(number), FlowTarget::Connection(number));
            let counted = flows.len().max(PLACES_MIN / 4) * BYTES_EACH;
            assert!(flows.entries.len() * size_of::<Entry>() <= counted, "{} flows", flows.len());
        }
    }

    #[test]
    fn flows_are_spread_evenly_over_the_flow_table() {
        let mut flows = Flows::new(Seed::simulated(1).keyed(Purpose::FlowTable));
        for number in 0..3_000 {
            flows.insert(&flow(number), FlowTarget::Connection(number));
        }
        let runs = flows.entries.split(|entry| entry.place == NOBODY);
        assert!(runs.map(<[Entry]>::len).max() < Some(50), "a lookup passes many other entries");
    }

    #[test]
    fn flows_with_equal_hashes_are_distinguished_by_their_targets() {
        let mut flows = Flows::new(Seed::simulated(1).keyed(Purpose::FlowTable));
        for number in 0..10 {
            flows.insert(&flow(7), FlowTarget::Connection(number));
        }
        let find = |flows: &Flows, number| flows.find(&flow(7), |place| place == FlowTarget::TimeWait(number));
        assert_eq!(find(&flows, 3), None);
        flows.insert(&flow(7), FlowTarget::TimeWait(3));
        flows.remove(&flow(7), FlowTarget::Connection(3));
        assert_eq!((find(&flows, 3), flows.len()), (Some(FlowTarget::TimeWait(3)), 10));
        flows.replace(&flow(7), FlowTarget::Connection(4), FlowTarget::TimeWait(4));
        flows.replace(&flow(7), FlowTarget::Connection(3), FlowTarget::TimeWait(5));
        assert_eq!((find(&flows, 4), find(&flows, 5), flows.len()), (Some(FlowTarget::TimeWait(4)), None, 10));
    }
}
