//! The table of a switch: at which port the station with an Ethernet address is.
//!
//! The addresses of protected ports are set and never change. Other addresses are learned from the frames of their stations, are
//! forgotten after a time without frames, and can move to another port. The table has a bound, and each port has a share of it, so
//! that no port can fill the table alone.

use crate::counters::{self, Counters};
use crate::limits::{SWITCH_AGE_NS, SWITCH_MACS_MAX, SWITCH_MACS_OF_PORT_MAX};
use siga_model::mac::Mac;
use siga_stack::time::Instant;
use std::collections::HashMap;

type Key = (u16, [u8; 6]);

#[derive(Debug, Clone, Copy)]
struct Entry {
    port: usize,
    /// The time of the station's last frame. `None` if the address was set and not learned.
    seen: Option<Instant>,
}

/// The addresses that a switch knows. A station cannot choose addresses that collide in the map, because its hash has a random key.
#[derive(Debug, Default)]
pub(crate) struct Table {
    entries: HashMap<Key, Entry>,
    learned: Learned,
    moves: u64,
    full: u64,
    /// The time of the latest search for addresses that are too old.
    searched: Option<Instant>,
}

/// The numbers of learned addresses: of each port, and of all ports.
#[derive(Debug, Default)]
struct Learned {
    of_ports: HashMap<usize, usize>,
    all: usize,
}

impl Learned {
    fn of(&self, port: usize) -> usize {
        self.of_ports.get(&port).copied().unwrap_or(0)
    }

    fn add(&mut self, port: usize) {
        *self.of_ports.entry(port).or_default() += 1;
        self.all += 1;
    }

    fn remove(&mut self, port: usize) {
        if let Some(count) = self.of_ports.get_mut(&port).filter(|count| **count > 0) {
            *count -= 1;
            self.all -= 1;
        }
    }

    fn remove_all_of(&mut self, port: usize) {
        self.all -= self.of_ports.remove(&port).unwrap_or(0);
    }
}

/// The shortest time between two searches for addresses that are too old. A station that invents addresses would otherwise cause a
/// search of the complete table with each frame.
const SEARCH_INTERVAL_NS: u64 = 1_000_000_000;

/// Stands for the port of a set address whose port was removed.
const NOWHERE: usize = usize::MAX;

impl Table {
    /// Sets the port of an address.
    pub(crate) fn set(&mut self, vlan: u16, mac: Mac, port: usize) {
        let before = self.entries.insert((vlan, mac.0), Entry { port, seen: None });
        if let Some(Entry { port, seen: Some(_) }) = before {
            self.learned.remove(port);
        }
    }

    /// Learns the port of an address. Returns false if the address was set for another port.
    #[inline]
    pub(crate) fn learn(&mut self, at: Instant, vlan: u16, mac: [u8; 6], port: usize) -> bool {
        match self.entries.get_mut(&(vlan, mac)) {
            Some(Entry { port: known, seen: None }) => *known == port,
            Some(entry) if entry.port == port => {
                entry.seen = Some(at);
                true
            }
            Some(_) if self.learned.of(port) >= SWITCH_MACS_OF_PORT_MAX => {
                self.full += 1;
                true
            }
            Some(entry) => {
                let before = std::mem::replace(entry, Entry { port, seen: Some(at) }).port;
                self.moves += 1;
                self.learned.remove(before);
                self.learned.add(port);
                true
            }
            None => {
                self.insert(at, (vlan, mac), port);
                true
            }
        }
    }

    /// Adds an address. If the table or the port's share is full, forgets the addresses that are too old. If none is, the address
    /// is not learned, and frames to it go to all ports.
    #[cold]
    fn insert(&mut self, at: Instant, key: Key, port: usize) {
        let is_full =
            |table: &Self| table.learned.all >= SWITCH_MACS_MAX || table.learned.of(port) >= SWITCH_MACS_OF_PORT_MAX;
        let since = self.searched.map_or(u64::MAX, |searched| at.as_ns().saturating_sub(searched.as_ns()));
        if since >= SEARCH_INTERVAL_NS && is_full(self) {
            self.searched = Some(at);
            self.forget_old(at);
        }
        if is_full(self) {
            self.full += 1;
            return;
        }
        self.entries.insert(key, Entry { port, seen: Some(at) });
        self.learned.add(port);
    }

    fn forget_old(&mut self, at: Instant) {
        let learned = &mut self.learned;
        self.entries.retain(|_, entry| {
            let stays = !is_old(entry, at);
            if !stays {
                learned.remove(entry.port);
            }
            stays
        });
    }

    /// Returns the port of an address.
    #[inline]
    pub(crate) fn find(&self, at: Instant, vlan: u16, mac: [u8; 6]) -> Option<usize> {
        let entry = self.entries.get(&(vlan, mac)).filter(|entry| !is_old(entry, at));
        entry.map(|entry| entry.port).filter(|port| *port != NOWHERE)
    }

    /// Forgets all addresses that were learned at a port. Those that were set remain reserved: while their station is away, no other
    /// port can use them.
    pub(crate) fn forget(&mut self, port: usize) {
        self.entries.retain(|_, entry| {
            let is_own = entry.port == port;
            if is_own && entry.seen.is_none() {
                entry.port = NOWHERE;
            }
            !is_own || entry.seen.is_none()
        });
        self.learned.remove_all_of(port);
    }

    /// Removes all addresses of a port, also those that were set.
    pub(crate) fn release(&mut self, port: usize) {
        self.entries.retain(|_, entry| entry.port != port);
        self.learned.remove_all_of(port);
    }

    /// Forgets all learned addresses.
    pub(crate) fn forget_learned(&mut self) {
        self.entries.retain(|_, entry| entry.seen.is_none());
        self.learned = Learned::default();
    }

    /// Returns each address that is not too old: its VLAN, the address, the number of its port, and the time of its last frame if it was
    /// learned.
    pub(crate) fn addresses(&self, at: Instant) -> impl Iterator<Item = (u16, Mac, Option<usize>, Option<Instant>)> {
        let current = self.entries.iter().filter(move |(_, entry)| !is_old(entry, at));
        current
            .map(|((vlan, mac), entry)| (*vlan, Mac(*mac), (entry.port != NOWHERE).then_some(entry.port), entry.seen))
    }

    pub(crate) fn counters(&self) -> Counters {
        counters::named([("macs", self.entries.len() as u64), ("mac_moves", self.moves), ("mac_table_full", self.full)])
    }
}

fn is_old(entry: &Entry, at: Instant) -> bool {
    entry.seen.is_some_and(|seen| at.as_ns().saturating_sub(seen.as_ns()) > SWITCH_AGE_NS)
}
