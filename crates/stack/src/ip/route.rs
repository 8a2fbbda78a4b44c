//! Routes: the longest prefix that covers a destination, for IPv4 and IPv6 alike.
//!
//! The prefixes themselves lie in an ordered map, from which a lookup structure is kept up to date: the address space cut into
//! ranges of one next hop each, in leaves of a few ranges, under tables indexed by as many address bits as their share of the
//! prefixes is worth. A lookup reads one table slot and one leaf for most IPv4 tables. A change rebuilds the smallest part that holds its
//! prefix, so a short prefix in a large table costs milliseconds. Nothing is cached per destination.

use crate::limits::ROUTES_MAX;
use crate::link::frame::DeviceId;
use crate::link::neighbour::Resolved;
use crate::wire::address::Prefix;
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

/// Where packets for a prefix go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// To this stack itself, which has the address on that device.
    Local(DeviceId),
    /// To everybody on the network of that device.
    Broadcast(DeviceId),
    /// To nobody: the first address of an own network, an obsolete form of broadcast (RFC 1812 4.2.2.11).
    Nobody,
    /// Out through a device, to the gateway or, if there is none, to the destination itself.
    Via {
        /// The device.
        device: DeviceId,
        /// The next router, a neighbour on that device's network.
        gateway: Option<IpAddr>,
    },
}

/// A route that cannot be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteError {
    /// There are [`ROUTES_MAX`] already.
    Full,
    /// The gateway is of the other IP version than the prefix.
    GatewayFamily,
    /// The stack has no such device.
    NoDevice,
}

/// The routing table of a stack.
#[derive(Debug)]
pub struct Routes {
    v4: Table<u32>,
    v6: Table<u128>,
    hops: Hops,
    /// How many there may be.
    max: usize,
}

impl Default for Routes {
    fn default() -> Self {
        Self::bounded(ROUTES_MAX)
    }
}

impl Routes {
    pub(crate) fn bounded(max: usize) -> Self {
        Self { v4: Table::new(), v6: Table::new(), hops: Hops::new(), max }
    }

    /// Adds a route, or changes the one that its prefix has, for which there always is room.
    pub fn insert(&mut self, prefix: Prefix, target: Target) -> Result<(), RouteError> {
        if let Target::Via { gateway: Some(gateway), .. } = target
            && gateway.is_ipv4() != prefix.address().is_ipv4()
        {
            return Err(RouteError::GatewayFamily);
        }
        if !self.has_room(1) && !self.contains(prefix) {
            return Err(RouteError::Full);
        }
        let hop = self.hops.take(target);
        let before = match prefix.address() {
            IpAddr::V4(address) => self.v4.insert(address.to_bits(), prefix.length(), hop),
            IpAddr::V6(address) => self.v6.insert(address.to_bits(), prefix.length(), hop),
        };
        if let Some(before) = before {
            self.hops.release(before);
        }
        Ok(())
    }

    /// Whether so many more routes may be added.
    pub(crate) fn has_room(&self, count: usize) -> bool {
        self.max - self.len() >= count
    }

    fn contains(&self, prefix: Prefix) -> bool {
        match prefix.address() {
            IpAddr::V4(address) => self.v4.contains(address.to_bits(), prefix.length()),
            IpAddr::V6(address) => self.v6.contains(address.to_bits(), prefix.length()),
        }
    }

    /// Takes a route away; false if there was none.
    pub fn remove(&mut self, prefix: Prefix) -> bool {
        let hop = match prefix.address() {
            IpAddr::V4(address) => self.v4.remove(address.to_bits(), prefix.length()),
            IpAddr::V6(address) => self.v6.remove(address.to_bits(), prefix.length()),
        };
        if let Some(hop) = hop {
            self.hops.release(hop);
        }
        hop.is_some()
    }

    /// Where a packet to this address goes; `None` if no prefix covers it.
    #[inline]
    pub fn lookup(&self, destination: IpAddr) -> Option<Target> {
        self.find(destination).1.copied()
    }

    /// The same where it lies: of a copy only some is wanted, which would wait for what was just stored.
    #[inline]
    pub(crate) fn find(&self, destination: IpAddr) -> (HopId, Option<&Target>) {
        let hop = match destination {
            IpAddr::V4(address) => self.v4.find(address.to_bits()),
            IpAddr::V6(address) => self.v6.find(address.to_bits()),
        };
        (HopId(hop), self.hops.slots[hop as usize].target.as_ref())
    }

    /// The gateway of a hop, if it has one.
    pub(crate) fn gateway(&self, hop: HopId) -> Option<IpAddr> {
        match self.hops.slots[hop.0 as usize].target {
            Some(Target::Via { gateway, .. }) => gateway,
            Some(Target::Local(_) | Target::Broadcast(_) | Target::Nobody) | None => None,
        }
    }

    /// What the gateway of a hop was resolved to last.
    #[inline]
    pub(crate) fn resolved(&self, hop: HopId) -> &Resolved {
        &self.hops.slots[hop.0 as usize].resolved
    }

    /// Notes what the gateway of a hop is resolved to.
    pub(crate) fn set_resolved(&mut self, hop: HopId, resolved: Resolved) {
        self.hops.slots[hop.0 as usize].resolved = resolved;
    }

    /// How many routes there are.
    pub fn len(&self) -> usize {
        self.v4.prefixes.len() + self.v6.prefixes.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The number of a target, until routes change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HopId(u32);

/// Targets by number: many prefixes share few of them.
#[derive(Debug)]
struct Hops {
    slots: Vec<Hop>,
    numbers: BTreeMap<Target, u32>,
    free: Vec<u32>,
}

#[derive(Debug)]
struct Hop {
    target: Option<Target>,
    routes: usize,
    /// What the gateway was resolved to, so that not each packet has it looked up.
    resolved: Resolved,
}

impl Hop {
    const UNUSED: Self = Self { target: None, routes: 0, resolved: Resolved::NOTHING };
}

/// The number of no target at all.
const NOWHERE: u32 = 0;

impl Hops {
    fn new() -> Self {
        Self { slots: vec![Hop::UNUSED], numbers: BTreeMap::new(), free: Vec::new() }
    }

    fn take(&mut self, target: Target) -> u32 {
        let slots = &mut self.slots;
        let free = &mut self.free;
        let number = *self.numbers.entry(target).or_insert_with(|| {
            free.pop().unwrap_or_else(|| {
                slots.push(Hop::UNUSED);
                number(slots.len() - 1)
            })
        });
        let slot = &mut self.slots[number as usize];
        if slot.routes == 0 {
            (slot.target, slot.resolved) = (Some(target), Resolved::NOTHING);
        }
        slot.routes += 1;
        number
    }

    fn release(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        slot.routes -= 1;
        if slot.routes == 0
            && let Some(target) = slot.target.take()
        {
            self.numbers.remove(&target);
            self.free.push(number);
        }
    }
}

/// An address as a number of its own width.
trait Key: Copy + Ord + fmt::Debug {
    const BITS: u8;
    const ZERO: Self;

    /// The first and the last address that share the leading `length` bits.
    fn span(self, length: u8) -> (Self, Self);
    /// The address behind this one.
    fn successor(self) -> Option<Self>;
    /// The value of `bits` bits behind the first `from`, more than 0 of them.
    fn slot(self, from: u8, bits: u8) -> usize;
    /// True if bits behind those are set.
    fn is_beyond_window(self, from: u8) -> bool;
    /// This address with that value, where it has zeros.
    fn with_slot(self, from: u8, bits: u8, slot: usize) -> Self;
}

macro_rules! key {
    ($number:ty, $bits:literal) => {
        impl Key for $number {
            const BITS: u8 = $bits;
            const ZERO: Self = 0;

            fn span(self, length: u8) -> (Self, Self) {
                let host = <$number>::MAX.checked_shr(length.into()).unwrap_or(0);
                (self & !host, self | host)
            }

            fn successor(self) -> Option<Self> {
                self.checked_add(1)
            }

            #[inline]
            fn slot(self, from: u8, bits: u8) -> usize {
                // Most prefixes end in the upper half of an IPv6 address; shifting both takes several times as long.
                if $bits > 64 && from + bits <= 64 {
                    let upper = u64::try_from(u128::from(self) >> 64).unwrap_or(0);
                    return usize::try_from((upper << from) >> (64 - bits)).unwrap_or(0);
                }
                usize::try_from((self << from) >> ($bits - bits)).unwrap_or(0)
            }

            fn is_beyond_window(self, from: u8) -> bool {
                (self << from).checked_shl(32).is_some_and(|beyond| beyond != 0)
            }

            fn with_slot(self, from: u8, bits: u8, slot: usize) -> Self {
                self | <$number>::try_from(slot).unwrap_or(0) << ($bits - from - bits)
            }
        }
    };
}

key!(u32, 32);
key!(u128, 128);

/// Ranges in a leaf at most: four cache lines, which cost less to fetch than another table and a smaller leaf.
const LEAF_RANGES_MAX: usize = 32;
/// Bits that tell the ranges of a leaf apart, if those do.
const WINDOW_BITS: u8 = 32;
/// Bits that index one table at least, so that few routes with long common beginnings lie not too deep, and at most.
const TABLE_BITS: (u8, u8) = (4, 16);
/// Prefixes below which the structure is not laid out again as their number changes.
const LAYOUT_PREFIXES_MIN: usize = 64;

#[derive(Debug, Clone, Copy)]
enum Node {
    Hop(u32),
    /// Ranges told apart by the 32 bits behind those that led here.
    Narrow {
        at: u32,
        count: u8,
    },
    /// Ranges that need more bits.
    Wide {
        at: u32,
        count: u8,
    },
    Table {
        at: u32,
        bits: u8,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Range<K> {
    start: K,
    hop: u32,
}

/// A range in a few bytes, since most of what a lookup costs is fetching it.
#[derive(Debug, Clone, Copy)]
struct NarrowRange {
    start: u32,
    hop: u32,
}

#[derive(Debug)]
struct Table<K> {
    prefixes: BTreeMap<(K, u8), u32>,
    /// How many prefixes there are of each length.
    lengths: [u32; 129],
    root: Node,
    nodes: Pool<Node>,
    narrow: Pool<NarrowRange>,
    wide: Pool<Range<K>>,
    /// How many prefixes there were when the whole was laid out.
    laid_out_for: usize,
}

impl<K: Key> Table<K> {
    fn new() -> Self {
        Self {
            prefixes: BTreeMap::new(),
            lengths: [0; 129],
            root: Node::Hop(NOWHERE),
            nodes: Pool::new(),
            narrow: Pool::new(),
            wide: Pool::new(),
            laid_out_for: 0,
        }
    }

    #[inline]
    fn find(&self, key: K) -> u32 {
        let (mut node, mut from) = (self.root, 0);
        loop {
            match node {
                Node::Hop(hop) => return hop,
                Node::Narrow { at, count } => {
                    let ranges = &self.narrow.items[at as usize..at as usize + usize::from(count)];
                    let window = u32::try_from(key.slot(from, WINDOW_BITS)).unwrap_or(u32::MAX);
                    let before = ranges.iter().filter(|range| range.start <= window).count();
                    return ranges[before.saturating_sub(1)].hop;
                }
                Node::Wide { at, count } => {
                    let ranges = &self.wide.items[at as usize..at as usize + usize::from(count)];
                    let before = ranges.iter().filter(|range| range.start <= key).count();
                    return ranges[before.saturating_sub(1)].hop;
                }
                Node::Table { at, bits } => {
                    node = self.nodes.items[at as usize + key.slot(from, bits)];
                    from += bits;
                }
            }
        }
    }

    fn contains(&self, key: K, length: u8) -> bool {
        self.prefixes.contains_key(&(key.span(length).0, length))
    }

    fn insert(&mut self, key: K, length: u8, hop: u32) -> Option<u32> {
        let before = self.prefixes.insert((key.span(length).0, length), hop);
        if before.is_none() {
            self.lengths[usize::from(length)] += 1;
        }
        self.lay_out(key, length);
        before
    }

    fn remove(&mut self, key: K, length: u8) -> Option<u32> {
        let before = self.prefixes.remove(&(key.span(length).0, length))?;
        self.lengths[usize::from(length)] -= 1;
        self.lay_out(key, length);
        Some(before)
    }

    /// Brings the lookup structure up to date after the prefix has changed.
    fn lay_out(&mut self, key: K, length: u8) {
        let count = self.prefixes.len().max(LAYOUT_PREFIXES_MIN);
        if count > self.laid_out_for * 2 || count < self.laid_out_for / 4 {
            self.laid_out_for = count;
            self.release(self.root);
            self.root = self.build(&self.ranges_of(K::ZERO, 0), K::ZERO, 0);
            return;
        }
        let (mut node, mut from, mut place) = (self.root, 0, None);
        while let Node::Table { at, bits } = node
            && length >= from + bits
        {
            let slot = at as usize + key.slot(from, bits);
            (node, from, place) = (self.nodes.items[slot], from + bits, Some(slot));
        }
        let start = key.span(from).0;
        self.release(node);
        let node = self.build(&self.ranges_of(start, from), start, from);
        match place {
            Some(slot) => self.nodes.items[slot] = node,
            None => self.root = node,
        }
    }

    /// The ranges of the addresses that share the leading `length` bits of `start`, in order; the first begins with `start`.
    fn ranges_of(&self, start: K, length: u8) -> Vec<Range<K>> {
        let end = start.span(length).1;
        let mut ranges = vec![Range { start, hop: self.cover(start, length) }];
        let mut open = vec![(end, ranges[0].hop)];
        let mut add = |start: K, hop: u32| match ranges.last_mut() {
            Some(last) if last.start == start => last.hop = hop,
            Some(_) | None => ranges.push(Range { start, hop }),
        };
        for (&(prefix, bits), &hop) in self.prefixes.range((start, length)..=(end, K::BITS)) {
            close(&mut open, Some(prefix), &mut add);
            add(prefix, hop);
            open.push((prefix.span(bits).1, hop));
        }
        close(&mut open, None, &mut add);
        ranges.dedup_by_key(|range| range.hop);
        ranges
    }

    /// The hop of the longest prefix that covers all of this span.
    fn cover(&self, start: K, length: u8) -> u32 {
        (0..=length)
            .rev()
            .filter(|bits| self.lengths[usize::from(*bits)] > 0)
            .find_map(|bits| self.prefixes.get(&(start.span(bits).0, bits)))
            .copied()
            .unwrap_or(NOWHERE)
    }

    fn build(&mut self, ranges: &[Range<K>], start: K, from: u8) -> Node {
        if let [range] = ranges {
            return Node::Hop(range.hop);
        }
        if ranges.len() <= LEAF_RANGES_MAX {
            return self.build_leaf(ranges, from);
        }
        let bits = u8::try_from(ranges.len().ilog2()).unwrap_or(u8::MAX);
        let bits = bits.clamp(TABLE_BITS.0, TABLE_BITS.1).min(K::BITS - from);
        let at = self.nodes.take(bits, Node::Hop(NOWHERE));
        let (mut first, mut part) = (0, Vec::new());
        for slot in 0..1_usize << bits {
            let start = start.with_slot(from, bits, slot);
            let end = start.span(from + bits).1;
            while ranges.get(first + 1).is_some_and(|range| range.start <= start) {
                first += 1;
            }
            part.clear();
            part.push(Range { start, hop: ranges[first].hop });
            part.extend(ranges[first + 1..].iter().take_while(|range| range.start <= end));
            self.nodes.items[at as usize + slot] = self.build(&part, start, from + bits);
        }
        Node::Table { at, bits }
    }

    fn build_leaf(&mut self, ranges: &[Range<K>], from: u8) -> Node {
        let count = u8::try_from(ranges.len()).unwrap_or(u8::MAX);
        if ranges.iter().any(|range| range.start.is_beyond_window(from)) {
            let at = self.wide.take(class(ranges.len()), ranges[0]);
            self.wide.items[at as usize..at as usize + ranges.len()].copy_from_slice(ranges);
            return Node::Wide { at, count };
        }
        let at = self.narrow.take(class(ranges.len()), NarrowRange { start: 0, hop: NOWHERE });
        for (slot, range) in self.narrow.items[at as usize..].iter_mut().zip(ranges) {
            *slot = NarrowRange { start: number(range.start.slot(from, WINDOW_BITS)), hop: range.hop };
        }
        Node::Narrow { at, count }
    }

    fn release(&mut self, node: Node) {
        match node {
            Node::Hop(_) => {}
            Node::Narrow { at, count } => self.narrow.give_back(class(count.into()), at),
            Node::Wide { at, count } => self.wide.give_back(class(count.into()), at),
            Node::Table { at, bits } => {
                for slot in 0..1_usize << bits {
                    self.release(self.nodes.items[at as usize + slot]);
                }
                self.nodes.give_back(bits, at);
            }
        }
    }
}

/// Ends the open prefixes that end before `until`; what encloses them goes on behind them.
fn close<K: Key>(open: &mut Vec<(K, u32)>, until: Option<K>, add: &mut impl FnMut(K, u32)) {
    while let [.., (_, around), (end, _)] = open[..]
        && until.is_none_or(|until| end < until)
    {
        open.pop();
        if let Some(next) = end.successor()
            && end < open[0].0
        {
            add(next, around);
        }
    }
}

/// Blocks of a power of two of items each, taken and given back.
#[derive(Debug)]
struct Pool<T> {
    items: Vec<T>,
    /// Blocks given back, by the power of their size.
    free: [Vec<u32>; 17],
}

impl<T: Copy> Pool<T> {
    fn new() -> Self {
        Self { items: Vec::new(), free: Default::default() }
    }

    fn take(&mut self, class: u8, item: T) -> u32 {
        if let Some(at) = self.free[usize::from(class)].pop() {
            return at;
        }
        let at = self.items.len();
        self.items.resize(at + (1 << class), item);
        number(at)
    }

    fn give_back(&mut self, class: u8, at: u32) {
        self.free[usize::from(class)].push(at);
    }
}

fn class(count: usize) -> u8 {
    u8::try_from(count.next_power_of_two().ilog2()).unwrap_or(u8::MAX)
}

/// A place in a pool, which [`ROUTES_MAX`] keeps far below what fits, or 32 bits of an address.
fn number(at: usize) -> u32 {
    u32::try_from(at).expect("places are bounded")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn via(device: u16) -> Target {
        Target::Via { device: DeviceId(device), gateway: None }
    }

    fn v4(bits: u32, length: u8) -> Prefix {
        Prefix::new(IpAddr::V4(Ipv4Addr::from_bits(bits)), length).unwrap()
    }

    fn v6(bits: u128, length: u8) -> Prefix {
        Prefix::new(IpAddr::V6(Ipv6Addr::from_bits(bits)), length).unwrap()
    }

    fn bits(prefix: Prefix) -> u128 {
        match prefix.address() {
            IpAddr::V4(address) => u128::from(address.to_bits()) << 96,
            IpAddr::V6(address) => address.to_bits(),
        }
    }

    /// What the table must say, by looking at every prefix.
    fn scan(routes: &[(Prefix, Target)], to: IpAddr) -> Option<Target> {
        let host = bits(Prefix::new(to, 0).unwrap());
        let covers = |p: &Prefix| {
            p.address().is_ipv4() == to.is_ipv4() && (bits(*p) ^ host).leading_zeros() >= u32::from(p.length())
        };
        routes.iter().filter(|(p, _)| covers(p)).max_by_key(|(p, _)| p.length()).map(|(_, target)| *target)
    }

    #[test]
    fn the_longest_prefix_wins_and_its_removal_uncovers_the_next() {
        let mut routes = Routes::default();
        let host = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));
        for (length, device) in [(0, 0), (8, 1), (24, 2), (32, 3)] {
            routes.insert(Prefix::new(host, length).unwrap(), via(device)).unwrap();
            assert_eq!(routes.lookup(host), Some(via(device)));
        }
        for (length, device) in [(32, 2), (24, 1), (8, 0)] {
            assert!(routes.remove(Prefix::new(host, length).unwrap()));
            assert_eq!(routes.lookup(host), Some(via(device)));
        }
        assert!(!routes.is_empty());
        assert!(routes.remove(Prefix::new(host, 0).unwrap()));
        assert!(!routes.remove(Prefix::new(host, 0).unwrap()));
        assert_eq!(routes.lookup(host), None);
        assert!(routes.is_empty());
    }

    #[test]
    fn a_gateway_of_the_other_version_is_refused() {
        let gateway = Some(IpAddr::V6(Ipv6Addr::LOCALHOST));
        let refused = Routes::default().insert(v4(0, 0), Target::Via { device: DeviceId(0), gateway });
        assert_eq!(refused, Err(RouteError::GatewayFamily));
    }

    #[test]
    fn a_full_table_refuses_what_is_new_and_is_as_before() {
        let mut routes = Routes::bounded(3);
        let known = [v4(10 << 24, 8), v4(10 << 24, 16), v6(1 << 64, 64)];
        for prefix in known {
            routes.insert(prefix, via(1)).unwrap();
        }
        for new in [v4(10 << 24, 9), v4(11 << 24, 8), v6(1 << 64, 65), v6(2 << 64, 64), v6(0, 8)] {
            assert_eq!(routes.insert(new, via(2)), Err(RouteError::Full), "{new:?}");
            assert_eq!((routes.len(), routes.remove(new)), (3, false), "{new:?}");
            assert_eq!(routes.lookup(new.address()), known.iter().any(|k| k.covers(new.address())).then(|| via(1)));
        }
        assert_eq!((routes.hops.slots.len(), routes.hops.free.len()), (2, 0), "no hop of what was refused is kept");
        assert!(routes.remove(known[1]));
        assert_eq!(routes.insert(v4(11 << 24, 8), via(2)), Ok(()), "there is room again");
        assert_eq!(Routes::default().max, ROUTES_MAX);
    }

    #[test]
    fn a_route_of_a_full_table_can_be_changed() {
        let mut routes = Routes::bounded(2);
        let known = [v4(10 << 24, 8), v6(1 << 64, 64)];
        for device in 1..4 {
            for prefix in known {
                assert_eq!(routes.insert(prefix, via(device)), Ok(()), "{prefix:?}");
                assert_eq!(routes.lookup(prefix.address()), Some(via(device)));
            }
            assert_eq!(routes.len(), 2);
        }
        // A prefix is known by the bits that count.
        assert_eq!(routes.insert(v4((10 << 24) + 77, 8), via(7)), Ok(()));
        assert_eq!((routes.lookup(known[0].address()), routes.len()), (Some(via(7)), 2));
    }

    #[test]
    fn a_hundred_thousand_prefixes_come_and_go() {
        let mut routes = Routes::default();
        let prefix = |i: u32| v4(i.wrapping_mul(0x9e37_79b1), 16 + u8::try_from(i % 13).unwrap());
        for i in 0..100_000 {
            routes.insert(prefix(i), via(u16::try_from(i % 7).unwrap())).unwrap();
        }
        let mut prefixes: Vec<Prefix> = (0..100_000).map(prefix).collect();
        let used = routes.v4.narrow.items.len();
        prefixes.sort_unstable_by_key(|p| (bits(*p), p.length()));
        for p in prefixes {
            routes.remove(p);
        }
        assert!(routes.is_empty());
        assert_eq!(routes.lookup(prefix(5).address()), None);
        assert!(routes.v4.narrow.items.len() <= used * 2, "blocks given back are used again");
        assert_eq!(routes.v4.lengths, [0; 129], "nothing is looked for in vain");
    }

    #[test]
    fn prefixes_that_come_and_go_use_the_same_memory_again() {
        let mut routes = Routes::default();
        let sizes = |routes: &Routes| {
            let table = &routes.v4;
            [table.nodes.items.len(), table.narrow.items.len(), table.wide.items.len()]
        };
        let mut after = Vec::new();
        for _ in 0..40 {
            for i in 0..1_000_u32 {
                routes.insert(v4(i.wrapping_mul(0x9e37_79b1), 24), via(1)).unwrap();
            }
            for i in 0..1_000_u32 {
                assert!(routes.remove(v4(i.wrapping_mul(0x9e37_79b1), 24)));
            }
            after.push(sizes(&routes));
        }
        assert_eq!(after[20], after[39]);
    }

    /// Addresses that share long beginnings, so that prefixes nest and leaves split.
    fn crowded() -> impl Strategy<Value = (u128, u8)> {
        (any::<u16>(), any::<u16>(), 0..=128_u8).prop_map(|(high, low, length)| {
            ((u128::from(high & 0x3f) << 122) | (u128::from(low) << 100) | u128::from(low >> 4), length)
        })
    }

    proptest! {
        #[test]
        fn lookups_agree_with_looking_at_every_prefix(
            steps in proptest::collection::vec((crowded(), any::<bool>(), any::<bool>(), 0..5_u16), 1..300),
            hosts in proptest::collection::vec(crowded(), 20),
        ) {
            let (mut routes, mut model) = (Routes::default(), Vec::<(Prefix, Target)>::new());
            for ((address, length), short, keep, device) in steps {
                let high = u32::try_from(address >> 96).unwrap();
                let address = if short { v4(high, 0).address() } else { v6(address, 0).address() };
                let mut length = if short { length / 4 } else { length };
                let known = model.iter().map(|(p, _)| *p).find(|p| p.address() == address);
                if let (Some(known), false) = (known, keep) {
                    length = known.length();
                }
                let p = Prefix::new(address, length).unwrap();
                let same = |q: &Prefix| q.length() == p.length() && scan(&[(*q, via(0))], address).is_some();
                let before = model.len();
                model.retain(|(q, _)| !same(q));
                if keep {
                    model.push((p, via(device)));
                    routes.insert(p, via(device)).unwrap();
                } else {
                    prop_assert_eq!(routes.remove(p), before > model.len());
                }
                prop_assert_eq!(routes.len(), model.len());
                prop_assert_eq!(routes.lookup(address), scan(&model, address));
            }
            for (host, _) in hosts {
                let high = v4(u32::try_from(host >> 96).unwrap(), 0).address();
                for to in [high, v6(host, 0).address(), v6(host ^ 1, 0).address(), v6(host | 0xffff_ffff, 0).address()] {
                    prop_assert_eq!(routes.lookup(to), scan(&model, to));
                }
            }
        }
    }
}
