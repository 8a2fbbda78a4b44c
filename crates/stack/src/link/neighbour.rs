//! The neighbour table, which maps IP addresses to link addresses. One table serves ARP (RFC 826) and neighbour discovery
//! (RFC 4861). The table uses the states of RFC 4861 7.3.2 that stations with static addresses need.
//!
//! The table decides when a request for a link address is sent. `ip/resolve.rs` sends and receives the messages. The table limits
//! the number of neighbours, the number of packets that wait for one neighbour, and the bytes that wait for all neighbours.
//! Duplicate address detection is not implemented.

use crate::drops::NeighbourDrop;
use crate::limits::{
    NEIGHBOUR_DELAY, NEIGHBOUR_QUEUE_BYTES_MAX, NEIGHBOUR_QUEUE_FRAMES_MAX, NEIGHBOUR_REACHABLE,
    NEIGHBOUR_REQUESTS_MAX, NEIGHBOUR_RETRY, NEIGHBOUR_STALE, NEIGHBOURS_EVICT_SCAN_MAX, NEIGHBOURS_MAX,
};
use crate::link::device::Outgoing;
use crate::link::frame::DeviceId;
use crate::seed::Keyed;
use crate::time::Instant;
use crate::wire::ethernet::MacAddress;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::IpAddr;

/// An IP address on the link of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NeighbourKey {
    pub(crate) device: DeviceId,
    pub(crate) address: IpAddr,
}

/// Hashes as few words as possible, because every forwarded packet may need a lookup in the neighbour table.
impl Hash for NeighbourKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        let device = u64::from(self.device.0) << 32;
        match self.address {
            IpAddr::V4(address) => state.write_u64(device | u64::from(address.to_bits())),
            IpAddr::V6(address) => {
                let low = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
                state.write_u64(device ^ low(address.to_bits() >> 64));
                state.write_u64(low(address.to_bits()));
            }
        }
    }
}

/// Information about a neighbour from a received message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Learned {
    pub(crate) mac: MacAddress,
    /// Whether the message answers a request of this stack.
    pub(crate) answers: bool,
    /// Whether the link address in the message may replace a different known one.
    pub(crate) replaces: bool,
    /// Whether the message creates an entry, because its sender will soon send packets to this stack.
    pub(crate) creates: bool,
}

#[derive(Debug)]
enum NeighbourState {
    Incomplete {
        asked: u8,
        waiting: VecDeque<Outgoing>,
    },
    Reachable {
        mac: MacAddress,
    },
    Stale {
        mac: MacAddress,
    },
    /// The neighbour is in use again, and its link address must be confirmed. Before the first request, RFC 4861 calls this state DELAY.
    Probe {
        mac: MacAddress,
        asked: u8,
    },
}

impl NeighbourState {
    /// Returns the link address, or `None` if it is unknown.
    fn mac(&self) -> Option<MacAddress> {
        match *self {
            Self::Incomplete { .. } => None,
            Self::Reachable { mac } | Self::Stale { mac } | Self::Probe { mac, .. } => Some(mac),
        }
    }
}

#[derive(Debug)]
struct NeighbourEntry {
    state: NeighbourState,
    /// The time at which the state ends. At this time the next request is due, or the entry becomes stale or is removed.
    until: Instant,
}

/// An action that is due. The caller of [`Neighbours::due`] performs it.
#[derive(Debug)]
pub(crate) enum Due {
    /// Send a request for this neighbour. The request goes to the neighbour's former link address, or to all stations on the link
    /// if there is none.
    Ask(NeighbourKey, Option<MacAddress>),
    /// The neighbour did not answer, so these packets cannot be sent.
    Silent(NeighbourKey, VecDeque<Outgoing>),
}

/// A resolved link address. It is valid until the neighbour table changes or `until` is reached.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Resolved {
    pub(crate) mac: MacAddress,
    until: Instant,
    version: u64,
}

impl Resolved {
    /// A value that is never valid, because the table never has version 0.
    pub(crate) const NOTHING: Self = Self { mac: MacAddress::BROADCAST, until: Instant::NEVER, version: 0 };
}

/// Maximum memory for a neighbour, in bytes: an entry in the table, and an entry in the order of deadlines.
pub(crate) const ENTRY_BYTES: usize =
    2 * size_of::<(NeighbourKey, NeighbourEntry)>() + 2 * size_of::<(Instant, NeighbourKey)>();

#[derive(Debug)]
pub(crate) struct Neighbours {
    entries: HashMap<NeighbourKey, NeighbourEntry, Keyed>,
    deadlines: BTreeSet<(Instant, NeighbourKey)>,
    pub(crate) waiting_bytes: usize,
    /// Counts the changes of all entries.
    version: u64,
}

impl Neighbours {
    pub(crate) fn new(keyed: Keyed) -> Self {
        Self { entries: HashMap::with_hasher(keyed), deadlines: BTreeSet::new(), waiting_bytes: 0, version: 1 }
    }

    /// Returns the link address in `resolved` if it is still valid, that is, if [`Neighbours::resolve`] would return the same
    /// address.
    #[inline]
    pub(crate) fn still(&self, now: Instant, resolved: &Resolved) -> Option<MacAddress> {
        (resolved.version == self.version && now < resolved.until).then_some(resolved.mac)
    }

    /// Like [`Neighbours::resolve`], but also returns the time until which the link address is valid.
    pub(crate) fn resolve_for_a_while(&mut self, now: Instant, key: NeighbourKey) -> Option<Resolved> {
        let mac = self.resolve(now, key)?;
        self.entries.get(&key).map(|entry| Resolved { mac, until: entry.until, version: self.version })
    }

    /// Returns the link address of a neighbour, if it is known.
    #[inline]
    pub(crate) fn resolve(&mut self, now: Instant, key: NeighbourKey) -> Option<MacAddress> {
        let entry = self.entries.get_mut(&key)?;
        match entry.state {
            NeighbourState::Incomplete { .. } => None,
            NeighbourState::Reachable { mac } if now < entry.until => Some(mac),
            NeighbourState::Probe { mac, .. } => Some(mac),
            NeighbourState::Reachable { mac } | NeighbourState::Stale { mac } => {
                entry.state = NeighbourState::Probe { mac, asked: 0 };
                self.set_deadline(key, now + NEIGHBOUR_DELAY);
                Some(mac)
            }
        }
    }

    /// Marks a neighbour as stale because packets to it get no answer. The next packet to this neighbour then leads to a request
    /// (RFC 4861 7.3.3, RFC 9293 MUST-20).
    pub(crate) fn doubt(&mut self, key: NeighbourKey) {
        if let Some(NeighbourEntry { state, .. }) = self.entries.get_mut(&key)
            && let NeighbourState::Reachable { mac } = *state
        {
            *state = NeighbourState::Stale { mac };
            self.version += 1;
        }
    }

    /// Stores the pieces of a packet until the link address of its neighbour is known. Returns true if a request must be sent.
    pub(crate) fn enqueue(
        &mut self,
        now: Instant,
        key: NeighbourKey,
        packets: Vec<Outgoing>,
    ) -> Result<bool, NeighbourDrop> {
        let bytes: usize = packets.iter().map(|packet| packet.bytes.len()).sum();
        if self.waiting_bytes + bytes > NEIGHBOUR_QUEUE_BYTES_MAX {
            return Err(NeighbourDrop::QueueFull);
        }
        let ask = !self.entries.contains_key(&key);
        if ask {
            let waiting = VecDeque::new();
            self.create(key, NeighbourState::Incomplete { asked: 1, waiting }, now + NEIGHBOUR_RETRY)?;
        }
        if let Some(NeighbourEntry { state: NeighbourState::Incomplete { waiting, .. }, .. }) =
            self.entries.get_mut(&key)
        {
            // The queue stores all pieces of a packet or none of them. An empty queue stores a packet with any number of pieces.
            if !waiting.is_empty() && waiting.len() + packets.len() > NEIGHBOUR_QUEUE_FRAMES_MAX {
                return Err(NeighbourDrop::QueueFull);
            }
            self.waiting_bytes += bytes;
            waiting.extend(packets);
        }
        Ok(ask)
    }

    /// Records the information about a neighbour from a message. Returns the packets that waited for this neighbour and can now
    /// be sent.
    pub(crate) fn learn(
        &mut self,
        now: Instant,
        key: NeighbourKey,
        learned: Learned,
    ) -> Result<VecDeque<Outgoing>, NeighbourDrop> {
        let mac = learned.mac;
        let Some(entry) = self.entries.get_mut(&key) else {
            if !learned.creates {
                return Err(NeighbourDrop::Unasked);
            }
            self.create(key, NeighbourState::Stale { mac }, now + NEIGHBOUR_STALE)?;
            return Ok(VecDeque::new());
        };
        let known = entry.state.mac();
        if let Some(known) = known
            && known != mac
            && !learned.replaces
        {
            // RFC 4861 7.2.5: the message may not replace the known link address. A confirmed address becomes stale.
            if let NeighbourState::Reachable { .. } = entry.state {
                entry.state = NeighbourState::Stale { mac: known };
                self.set_deadline(key, now + NEIGHBOUR_STALE);
            }
            return Ok(VecDeque::new());
        }
        let changed = known != Some(mac);
        let (state, until) = match (learned.answers, changed) {
            (true, _) => (NeighbourState::Reachable { mac }, now + NEIGHBOUR_REACHABLE),
            (false, true) => (NeighbourState::Stale { mac }, now + NEIGHBOUR_STALE),
            (false, false) => return Ok(VecDeque::new()),
        };
        let before = std::mem::replace(&mut entry.state, state);
        self.set_deadline(key, until);
        let NeighbourState::Incomplete { waiting, .. } = before else { return Ok(VecDeque::new()) };
        self.waiting_bytes -= waiting.iter().map(|packet| packet.bytes.len()).sum::<usize>();
        Ok(waiting)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the time at which the next action is due.
    #[inline]
    pub(crate) fn timeout(&self) -> Option<Instant> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// Returns the next action that is due at `now`, if there is one.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Due> {
        while let Some((at, key)) = self.deadlines.first().copied()
            && at <= now
        {
            let entry = self.entries.get_mut(&key)?;
            match &mut entry.state {
                NeighbourState::Incomplete { asked, .. } | NeighbourState::Probe { asked, .. }
                    if *asked < NEIGHBOUR_REQUESTS_MAX =>
                {
                    *asked += 1;
                    let known = entry.state.mac();
                    self.set_deadline(key, now + NEIGHBOUR_RETRY);
                    return Some(Due::Ask(key, known));
                }
                NeighbourState::Incomplete { waiting, .. } => {
                    let waiting = std::mem::take(waiting);
                    self.waiting_bytes -= waiting.iter().map(|packet| packet.bytes.len()).sum::<usize>();
                    self.remove(key);
                    return Some(Due::Silent(key, waiting));
                }
                NeighbourState::Reachable { mac } => {
                    entry.state = NeighbourState::Stale { mac: *mac };
                    self.set_deadline(key, now + NEIGHBOUR_STALE);
                }
                NeighbourState::Stale { .. } | NeighbourState::Probe { .. } => self.remove(key),
            }
        }
        None
    }

    fn create(&mut self, key: NeighbourKey, state: NeighbourState, until: Instant) -> Result<(), NeighbourDrop> {
        if self.entries.len() >= NEIGHBOURS_MAX {
            let mut oldest = self.deadlines.iter().take(NEIGHBOURS_EVICT_SCAN_MAX).map(|(_, key)| *key);
            let evicted = oldest.find(|key| {
                let state = self.entries.get(key).map(|entry| &entry.state);
                matches!(state, Some(NeighbourState::Stale { .. } | NeighbourState::Reachable { .. }))
            });
            self.remove(evicted.ok_or(NeighbourDrop::TableFull)?);
        }
        self.deadlines.insert((until, key));
        self.entries.insert(key, NeighbourEntry { state, until });
        Ok(())
    }

    fn set_deadline(&mut self, key: NeighbourKey, until: Instant) {
        if let Some(entry) = self.entries.get_mut(&key) {
            self.deadlines.remove(&(entry.until, key));
            entry.until = until;
            self.version += 1;
            self.deadlines.insert((until, key));
        }
    }

    fn remove(&mut self, key: NeighbourKey) {
        if let Some(entry) = self.entries.remove(&key) {
            self.deadlines.remove(&(entry.until, key));
            self.version += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::frame::Marks;
    use crate::seed::{Purpose, Seed};
    use crate::time::Duration;
    use std::net::Ipv4Addr;

    const A: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xa]);
    const B: MacAddress = MacAddress([2, 0, 0, 0, 0, 0xb]);

    fn table() -> Neighbours {
        Neighbours::new(Seed::simulated(1).keyed(Purpose::NeighbourTable))
    }

    fn key(n: u32) -> NeighbourKey {
        NeighbourKey { device: DeviceId(0), address: IpAddr::V4(Ipv4Addr::from_bits(0x0a00_0000 + n)) }
    }

    fn at(s: u64) -> Instant {
        Instant::default() + Duration::from_secs(s)
    }

    fn packet(bytes: usize) -> Vec<Outgoing> {
        vec![Outgoing { bytes: vec![0; bytes], marks: Marks::default() }]
    }

    fn answer(mac: MacAddress) -> Learned {
        Learned { mac, answers: true, replaces: true, creates: false }
    }

    #[test]
    fn an_answer_of_a_neighbour_releases_waiting_packets_and_is_valid_for_a_time() {
        let mut t = table();
        assert_eq!(t.resolve(at(0), key(1)), None);
        assert_eq!(t.enqueue(at(0), key(1), packet(10)), Ok(true));
        assert_eq!(t.enqueue(at(0), key(1), packet(20)), Ok(false), "asked once");
        assert_eq!(t.learn(at(0), key(1), answer(A)).unwrap().len(), 2);
        assert_eq!(t.waiting_bytes, 0);
        assert_eq!(t.resolve(at(29), key(1)), Some(A));
        assert_eq!(t.timeout(), Some(at(30)));
        assert!(t.due(at(30)).is_none(), "nobody asks for a neighbour that is not used");
        assert_eq!(t.timeout(), Some(at(630)));
        assert!(t.due(at(630)).is_none());
        assert_eq!((t.resolve(at(630), key(1)), t.timeout()), (None, None));
    }

    #[test]
    fn a_neighbour_in_use_is_probed_and_removed_if_it_does_not_answer() {
        let mut t = table();
        t.enqueue(at(0), key(1), packet(10)).unwrap();
        t.learn(at(0), key(1), answer(A)).unwrap();
        assert_eq!(t.resolve(at(31), key(1)), Some(A), "used while in doubt");
        for s in [36, 37, 38] {
            assert!(t.due(at(s) - Duration::from_nanos(1)).is_none());
            assert!(matches!(t.due(at(s)), Some(Due::Ask(k, Some(A))) if k == key(1)));
        }
        assert!(t.due(at(39)).is_none());
        assert_eq!((t.resolve(at(39), key(1)), t.timeout()), (None, None));
    }

    #[test]
    fn a_neighbour_that_is_reported_silent_is_probed_early() {
        let mut t = table();
        t.enqueue(at(0), key(1), packet(10)).unwrap();
        t.doubt(key(1));
        t.learn(at(0), key(1), answer(A)).unwrap();
        t.doubt(key(1));
        assert_eq!(t.resolve(at(1), key(1)), Some(A), "used while in doubt");
        t.doubt(key(1));
        assert!(matches!(t.due(at(6)), Some(Due::Ask(k, Some(A))) if k == key(1)));
    }

    #[test]
    fn a_cached_neighbour_lookup_is_valid_until_the_table_changes() {
        let other = Learned { mac: B, ..answer(A) };
        let changes: [fn(&mut Neighbours, Learned); 4] = [
            |t, other| drop(t.learn(at(1), key(1), other)),
            |t, other| drop(t.learn(at(1), key(1), Learned { replaces: false, ..other })),
            |t, _| t.doubt(key(1)),
            |t, _| assert!(t.due(at(700)).is_none(), "nothing is asked"),
        ];
        for change in changes {
            let mut t = table();
            t.enqueue(at(0), key(1), packet(10)).unwrap();
            t.learn(at(0), key(1), answer(A)).unwrap();
            let resolved = t.resolve_for_a_while(at(0), key(1)).unwrap();
            assert_eq!((t.still(at(29), &resolved), t.still(at(30), &resolved)), (Some(A), None));
            assert_eq!(t.still(at(0), &Resolved::NOTHING), None);
            change(&mut t, other);
            assert_eq!(t.still(at(1), &resolved), None);
        }
        let mut t = table();
        t.learn(at(0), key(1), Learned { creates: true, ..answer(A) }).unwrap();
        let resolved = t.resolve_for_a_while(at(0), key(1)).unwrap();
        assert_eq!(t.still(at(5), &resolved), None, "it is to be asked whether it is there");
        assert!(t.still(at(4), &resolved).is_some());
    }

    #[test]
    fn packets_for_a_silent_neighbour_are_returned_after_three_requests() {
        let mut t = table();
        assert_eq!(t.enqueue(at(0), key(1), packet(10)), Ok(true));
        assert!(matches!(t.due(at(1)), Some(Due::Ask(_, None))));
        assert!(matches!(t.due(at(2)), Some(Due::Ask(_, None))));
        assert!(matches!(t.due(at(3)), Some(Due::Silent(_, waiting)) if waiting.len() == 1));
        assert_eq!((t.timeout(), t.waiting_bytes, t.entries.len()), (None, 0, 0));
    }

    #[test]
    fn neighbour_advertisements_change_an_entry_as_rfc_4861_says() {
        let mut t = table();
        assert_eq!(t.learn(at(0), key(1), answer(A)).unwrap_err(), NeighbourDrop::Unasked);
        let greeting = Learned { mac: A, answers: false, replaces: true, creates: true };
        assert!(t.learn(at(0), key(1), greeting).is_ok());
        assert_eq!(t.timeout(), Some(at(600)), "stale: heard of, not confirmed");
        assert!(t.learn(at(1), key(1), Learned { mac: B, answers: true, replaces: false, creates: false }).is_ok());
        assert_eq!(t.resolve(at(1), key(1)), Some(A), "not replaced");
        assert!(t.learn(at(2), key(1), answer(B)).is_ok());
        assert_eq!(t.resolve(at(3), key(1)), Some(B));
        assert_eq!(t.timeout(), Some(at(32)), "confirmed");
        assert!(t.learn(at(4), key(1), Learned { mac: B, ..greeting }).is_ok());
        assert_eq!((t.resolve(at(5), key(1)), t.timeout()), (Some(B), Some(at(32))), "as known: still confirmed");
        assert!(t.learn(at(6), key(1), greeting).is_ok());
        assert_eq!(t.timeout(), Some(at(606)), "another station, heard of only");
        assert_eq!(t.resolve(at(7), key(1)), Some(A));
        // A message that may not replace the address changes nothing while the address is being confirmed.
        assert_eq!(t.timeout(), Some(at(12)));
        assert!(t.learn(at(8), key(1), Learned { mac: B, answers: true, replaces: false, creates: false }).is_ok());
        assert_eq!((t.resolve(at(8), key(1)), t.timeout()), (Some(A), Some(at(12))));
    }

    #[test]
    fn floods_of_neighbours_and_packets_stay_inside_the_bounds() {
        let mut t = table();
        let held = (0..100).filter(|_| t.enqueue(at(0), key(1), packet(100)).is_ok()).count();
        assert_eq!(held, NEIGHBOUR_QUEUE_FRAMES_MAX);
        let held = (0..100).filter(|n| t.enqueue(at(0), key(2 + n), packet(1 << 20)).is_ok()).count();
        assert_eq!(held, 3);
        let mut t = table();
        for n in 0..20_000 {
            let _ = t.enqueue(at(0), key(n), packet(10));
        }
        assert_eq!(t.entries.len(), NEIGHBOURS_MAX);
        assert_eq!(t.enqueue(at(0), key(30_000), packet(10)), Err(NeighbourDrop::TableFull));
        assert!(t.learn(at(0), key(5), answer(A)).is_ok());
        for n in 1..5 {
            t.due(at(n));
        }
        assert_eq!(t.entries.len(), t.deadlines.len());
    }

    #[test]
    fn every_part_of_a_key_changes_its_hash() {
        let keyed = Seed::simulated(1).keyed(Purpose::NeighbourTable);
        let v4 = (0..32).map(|bit| (0, IpAddr::V4((1_u32 << bit).into())));
        let v6 = (0..128).map(|bit| (0, IpAddr::V6((1_u128 << bit).into())));
        let devices = |address: IpAddr| (0..1024).map(move |device| (device, address));
        let sets: [Vec<(u16, IpAddr)>; 3] =
            [v4.chain(v6).collect(), devices([0; 4].into()).collect(), devices([0_u16; 8].into()).collect()];
        for set in sets {
            let keys =
                set.iter().map(|(device, address)| NeighbourKey { device: DeviceId(*device), address: *address });
            let hashes: BTreeSet<u64> = keys.map(|key| std::hash::BuildHasher::hash_one(&keyed, key)).collect();
            assert_eq!(hashes.len(), set.len());
        }
    }

    #[test]
    fn the_memory_bound_covers_a_full_neighbour_table() {
        let mut t = table();
        for n in 0..u32::try_from(NEIGHBOURS_MAX).unwrap() {
            t.enqueue(at(0), key(n), Vec::new()).unwrap();
        }
        // A hash table keeps an eighth of its places free, a tree's nodes are at least half full.
        let places =
            t.entries.capacity().next_power_of_two() * size_of::<(NeighbourKey, NeighbourEntry)>() / NEIGHBOURS_MAX;
        let deadline = size_of::<(Instant, NeighbourKey)>();
        let whole = places + deadline..=places + 2 * deadline;
        assert!(whole.contains(&ENTRY_BYTES), "{whole:?} {ENTRY_BYTES}");
    }

    #[test]
    fn a_full_neighbour_table_evicts_the_oldest_entry() {
        let mut t = table();
        let greeting = Learned { mac: A, answers: false, replaces: true, creates: true };
        for n in 0..10_000 {
            assert!(t.learn(at(u64::from(n) / 100), key(n), greeting).is_ok());
        }
        assert_eq!((t.entries.len(), t.deadlines.len()), (NEIGHBOURS_MAX, NEIGHBOURS_MAX));
        assert_eq!(t.resolve(at(100), key(0)), None);
        assert_eq!(t.resolve(at(100), key(9_999)), Some(A));
    }
}
