//! The local ports of the connections that this stack opens. Each remote end (address and port) has its own set of local ports.
//! Bitmaps record the ports in use: three reads find the next free port, even if all ports but one are in use.
//!
//! Ports are assigned in circular order, so that a port is unused for as long as possible before it is used again. The first port
//! is computed from the remote end and a secret (RFC 6056 3.3.4), so that an attacker cannot predict the next port.

use super::Flow;
use crate::limits::{TCP_END_PORT_PAGES, TCP_ENDS_MAX};
use crate::seed::{Keyed, Secret};
use std::collections::HashMap;
use std::ops::RangeInclusive;

/// The ports from which the stack chooses if the application gives none: the upper half of all ports. Their number is a multiple
/// of the ports of a page.
pub(crate) const PORTS: RangeInclusive<u16> = 32_768..=65_535;
const PORTS_COUNT: u16 = 32_768;
const PAGE_PORTS: u16 = 4_096;

/// One remote end as seen from one local address: a flow whose local port is 0.
type End = Flow;

/// A bitmap of [`PAGE_PORTS`] ports. A set bit in `words` is a port in use. A set bit in `full` is an element of `words` whose 64
/// ports are all in use.
#[derive(Debug)]
struct Page {
    words: [u64; 64],
    full: u64,
}

impl Default for Page {
    fn default() -> Self {
        Self { words: [0; 64], full: 0 }
    }
}

impl Page {
    /// Returns the first free port of the page at or after `from`.
    fn free_from(&self, from: u16) -> Option<u16> {
        let (at, bit) = (from / 64, from % 64);
        let here = !self.words[usize::from(at)] & (u64::MAX << bit);
        if here != 0 {
            return Some(at * 64 + count(here.trailing_zeros()));
        }
        let behind = !self.full & u64::MAX.checked_shl(u32::from(at) + 1).unwrap_or(0);
        let at = (behind != 0).then(|| count(behind.trailing_zeros()))?;
        Some(at * 64 + count((!self.words[usize::from(at)]).trailing_zeros()))
    }

    fn set(&mut self, port: u16, taken: bool) -> bool {
        let (at, bit) = (port / 64, 1 << (port % 64));
        let word = &mut self.words[usize::from(at)];
        let before = *word & bit != 0;
        *word = if taken { *word | bit } else { *word & !bit };
        let full = *word == u64::MAX;
        self.full = if full { self.full | 1 << at } else { self.full & !(1 << at) };
        before
    }
}

#[derive(Debug)]
struct Ports {
    pages: [Option<Box<Page>>; TCP_END_PORT_PAGES],
    full: u8,
    taken: u16,
    /// The port at which the next search starts, as an offset from the first port of [`PORTS`].
    next: u16,
}

/// Memory of a page in bytes, with the share of the hash table of remote ends.
pub(crate) const PAGE_BYTES: usize = size_of::<Page>() + 2 * size_of::<(End, Ports)>();

#[derive(Debug)]
pub(crate) struct LocalPorts {
    ends: HashMap<End, Ports, Keyed>,
    /// When the table has more remote ends than this number, those without ports in use are removed.
    ends_max: usize,
    secret: Secret,
}

impl LocalPorts {
    pub(crate) fn new(table: Keyed, secret: Secret) -> Self {
        Self { ends: HashMap::with_hasher(table), ends_max: TCP_ENDS_MAX, secret }
    }

    /// Returns the number of pages in memory. A remote end without pages is counted as one page.
    pub(crate) fn pages(&self) -> usize {
        self.ends.values().map(|ports| ports.pages.iter().flatten().count().max(1)).sum()
    }

    pub(crate) fn taken(&self) -> usize {
        self.ends.values().map(|ports| usize::from(ports.taken)).sum()
    }

    /// Returns the next free port. The port is not in use until [`LocalPorts::take`] is called.
    pub(crate) fn propose(&self, end: End) -> Option<u16> {
        let Some(ports) = self.ends.get(&end) else {
            let first = self.secret.hash(&end.identity()) & u64::from(PORTS_COUNT - 1);
            return Some(PORTS.start() + u16::try_from(first).unwrap_or(0));
        };
        let port = ports.free_from(ports.next).or_else(|| ports.free_from(0))?;
        Some(PORTS.start() + port)
    }

    /// Marks a port as in use. The next search starts after this port. Returns false if the port was already in use.
    pub(crate) fn take(&mut self, end: End, port: u16) -> bool {
        let Some(port) = port.checked_sub(*PORTS.start()) else { return true };
        let ports = self.ends.entry(end).or_insert_with(Ports::new);
        ports.next = (port + 1) % PORTS_COUNT;
        let free = !ports.set(port, true);
        ports.taken += u16::from(free);
        free
    }

    /// Makes the next search start after `port`, because another socket uses this port.
    pub(crate) fn skip(&mut self, end: End, port: u16) {
        if let Some(port) = port.checked_sub(*PORTS.start()) {
            self.ends.entry(end).or_insert_with(Ports::new).next = (port + 1) % PORTS_COUNT;
        }
    }

    pub(crate) fn release(&mut self, end: End, port: u16) {
        let (Some(port), Some(ports)) = (port.checked_sub(*PORTS.start()), self.ends.get_mut(&end)) else { return };
        ports.taken -= u16::from(ports.set(port, false));
    }

    /// Removes the remote ends without ports in use, if the table has too many remote ends. The next removal starts when the
    /// number of remote ends has doubled, so that the average work for each connection is constant.
    pub(crate) fn forget_unused(&mut self) {
        if self.ends.len() > self.ends_max {
            self.ends.retain(|_, ports| ports.taken > 0);
            self.ends_max = (2 * self.ends.len()).max(TCP_ENDS_MAX);
        }
    }
}

impl Ports {
    fn new() -> Self {
        Self { pages: Default::default(), full: 0, taken: 0, next: 0 }
    }

    fn free_from(&self, from: u16) -> Option<u16> {
        let at = usize::from(from / PAGE_PORTS);
        let here = match &self.pages[at] {
            None => Some(from % PAGE_PORTS),
            Some(page) => page.free_from(from % PAGE_PORTS),
        };
        if let Some(port) = here {
            return Some(from / PAGE_PORTS * PAGE_PORTS + port);
        }
        let page = (at + 1..TCP_END_PORT_PAGES).find(|page| self.full & 1 << page == 0)?;
        let port = self.pages[page].as_ref().map_or(Some(0), |page| page.free_from(0))?;
        u16::try_from(page).ok().map(|page| page * PAGE_PORTS + port)
    }

    fn set(&mut self, port: u16, taken: bool) -> bool {
        let at = usize::from(port / PAGE_PORTS);
        let page = self.pages[at].get_or_insert_default();
        let before = page.set(port % PAGE_PORTS, taken);
        let full = page.full == u64::MAX;
        self.full = if full { self.full | 1 << at } else { self.full & !(1 << at) };
        before
    }
}

fn count(bits: u32) -> u16 {
    u16::try_from(bits).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seed::{Purpose, Seed};
    use std::collections::BTreeSet;

    fn ports() -> (LocalPorts, End) {
        let seed = Seed::simulated(9);
        let ports = LocalPorts::new(seed.keyed(Purpose::PortTable), seed.secret(Purpose::TcpPorts));
        (ports, Flow::new("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap(), 0, 80))
    }

    #[test]
    fn every_ephemeral_port_is_proposed_once_and_the_last_free_one_is_found() {
        let (mut ports, end) = ports();
        let mut had = BTreeSet::new();
        while let Some(port) = ports.propose(end) {
            assert!(ports.take(end, port) && had.insert(port));
        }
        assert_eq!(had.len(), usize::from(PORTS_COUNT));
        assert!(had.iter().eq(&PORTS.collect::<BTreeSet<_>>()));
        for port in [32_768, 40_000, 65_535] {
            ports.release(end, port);
            ports.release(end, port);
            assert_eq!((ports.propose(end), ports.propose(end)), (Some(port), Some(port)));
            assert!(ports.take(end, port) && !ports.take(end, port));
            assert_eq!(ports.propose(end), None);
        }
    }

    #[test]
    fn taking_a_port_twice_allocates_no_page() {
        let (mut ports, end) = ports();
        // The first two pages are full, and the next port is looked for from the second port of all on.
        assert!((36_864..40_960).all(|port| ports.take(end, port)) && !ports.take(end, 36_864));
        assert!((32_768..36_864).rev().all(|port| ports.take(end, port)));
        assert_eq!((ports.taken(), ports.pages(), ports.propose(end)), (8_192, 2, Some(40_960)));
    }

    #[test]
    fn the_memory_counted_for_a_port_page_covers_its_share_of_the_table() {
        // A table that has just grown is half as full as it may be.
        let (page, entry) = (size_of::<Page>(), size_of::<(End, Ports)>());
        assert!((page + entry..=page + 3 * entry).contains(&PAGE_BYTES), "{page} {entry} {PAGE_BYTES}");
    }

    #[test]
    fn a_released_port_is_reused_only_after_all_others() {
        let (mut ports, end) = ports();
        let first = ports.propose(end).unwrap();
        let mut uses = 0;
        loop {
            let port = ports.propose(end).unwrap();
            if port == first && uses > 0 {
                break;
            }
            assert!(ports.take(end, port));
            ports.release(end, port);
            uses += 1;
        }
        assert_eq!(uses, u32::from(PORTS_COUNT));
    }

    #[test]
    fn each_remote_end_has_its_own_port_sequence_and_unused_ends_are_removed() {
        let (mut ports, end) = ports();
        let ends = (1..2_000_u16).map(|port| Flow { remote_port: port, ..end });
        let firsts: BTreeSet<u16> = ends.clone().filter_map(|end| ports.propose(end)).collect();
        assert!(firsts.len() > 1_800, "the first port of one end reveals that of another");
        for end in ends {
            let port = ports.propose(end).unwrap();
            assert!(ports.take(end, port));
            ports.release(end, port);
        }
        assert!(ports.take(end, 50_000) && ports.take(end, 80));
        ports.ends_max = 100;
        ports.forget_unused();
        assert_eq!(ports.ends.len(), 1);
        ports.skip(end, 50_001);
        assert_eq!(ports.propose(end), Some(50_002));
    }

    #[test]
    fn remote_ends_are_searched_for_unused_ones_only_after_their_count_doubled() {
        let (mut ports, end) = ports();
        let mut looks = 0;
        for port in 1..20_000 {
            let end = Flow { remote_port: port, ..end };
            assert!(ports.take(end, 40_000));
            let before = ports.ends_max;
            ports.forget_unused();
            looks += u32::from(ports.ends_max != before);
        }
        assert_eq!((ports.ends.len(), looks), (19_999, 3));
    }
}
