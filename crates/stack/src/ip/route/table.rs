//! The lookup structure of routes. It is built from an ordered map of prefixes, and updated after each change.
//!
//! The address space is divided into ranges, each with one target. A leaf has a few ranges, and a search in the leaf finds the
//! range of an address. Above the leaves are tables, indexed by address bits. The more ranges a part of the address space has,
//! the more bits index its table. Most IPv4 lookups read one table slot and one leaf.
//!
//! A change rebuilds the smallest part that contains its prefix. A change of a short prefix in a large table therefore takes
//! milliseconds.

use std::collections::BTreeMap;
use std::fmt;

/// Stands for "no target": the target number of an address that no prefix covers.
pub(super) const NOWHERE: u32 = 0;

/// An address as a number.
pub(super) trait Key: Copy + Ord + fmt::Debug {
    const BITS: u8;
    const ZERO: Self;

    /// Returns the first and the last address that have the same leading `length` bits as this one.
    fn span(self, length: u8) -> (Self, Self);
    fn successor(self) -> Option<Self>;
    /// Returns the value of the `bits` bits that follow the first `from` bits. `bits` is greater than 0.
    fn slot(self, from: u8, bits: u8) -> usize;
    /// Returns whether any bit is set after the window of 32 bits that follows the first `from` bits.
    fn is_beyond_window(self, from: u8) -> bool;
    /// Returns this address with the value `slot` in the `bits` bits that follow the first `from` bits. These bits must be zero.
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
                // Most prefixes end in the upper half of an IPv6 address. A shift of 64 bits is enough for them, and a shift of 128
                // bits takes several times longer.
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

/// Maximum number of ranges in a leaf. With this number, a leaf occupies four cache lines. Fetching four cache lines takes less
/// time than fetching one more table and a smaller leaf.
const LEAF_RANGES_MAX: usize = 32;
/// Number of address bits that a narrow leaf stores of the first address of each range. The bits before this window are the same
/// for all ranges of the leaf, and the bits after the window are zero.
const WINDOW_BITS: u8 = 32;
/// Minimum and maximum number of bits that index one table. The minimum limits the depth if a few routes have a long common prefix.
const TABLE_BITS: (u8, u8) = (4, 16);
/// Minimum number of prefixes for which the structure is laid out. Without this minimum, a small table would be rebuilt completely
/// each time its size doubles.
const LAYOUT_PREFIXES_MIN: usize = 64;

#[derive(Debug, Clone, Copy)]
pub(super) enum Node {
    Hop(u32),
    /// A leaf that stores only the next 32 bits of the first address of each range ([`WINDOW_BITS`]).
    Narrow {
        at: u32,
        count: u8,
    },
    /// A leaf that stores complete addresses, because a range begins at an address with bits set after the next 32 bits.
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
pub(super) struct Range<K> {
    start: K,
    hop: u32,
}

/// A range that is stored in few bytes, because a lookup spends most of its time fetching ranges from memory.
#[derive(Debug, Clone, Copy)]
pub(super) struct NarrowRange {
    start: u32,
    hop: u32,
}

#[derive(Debug)]
pub(super) struct Table<K> {
    prefixes: BTreeMap<(K, u8), u32>,
    /// Number of prefixes of each length.
    pub(super) lengths: [u32; 129],
    root: Node,
    pub(super) nodes: Pool<Node>,
    pub(super) narrow: Pool<NarrowRange>,
    pub(super) wide: Pool<Range<K>>,
    /// Number of prefixes for which the complete structure was last rebuilt.
    laid_out_for: usize,
}

impl<K: Key> Table<K> {
    pub(super) fn new() -> Self {
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

    /// Returns the number of prefixes.
    pub(super) fn len(&self) -> usize {
        self.prefixes.len()
    }

    /// Returns the number of the target for an address: that of the longest prefix that covers the address.
    #[inline]
    pub(super) fn find(&self, key: K) -> u32 {
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

    pub(super) fn contains(&self, key: K, length: u8) -> bool {
        self.prefixes.contains_key(&(key.span(length).0, length))
    }

    pub(super) fn insert(&mut self, key: K, length: u8, hop: u32) -> Option<u32> {
        let before = self.prefixes.insert((key.span(length).0, length), hop);
        if before.is_none() {
            self.lengths[usize::from(length)] += 1;
        }
        self.lay_out(key, length);
        before
    }

    pub(super) fn remove(&mut self, key: K, length: u8) -> Option<u32> {
        let before = self.prefixes.remove(&(key.span(length).0, length))?;
        self.lengths[usize::from(length)] -= 1;
        self.lay_out(key, length);
        Some(before)
    }

    /// Updates the lookup structure after the prefix of `length` bits of `key` was added, changed or removed.
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

    /// Returns the ranges of the addresses that share the leading `length` bits of `start`, in order. The first range begins at `start`.
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

    /// Returns the number of the target of the longest prefix that covers all addresses with the leading `length` bits of `start`.
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

/// Ends the open prefixes whose last address is before `until`. After each of them, a range of the enclosing prefix begins.
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

/// An allocator for blocks of items. The length of each block is a power of two.
#[derive(Debug)]
pub(super) struct Pool<T> {
    pub(super) items: Vec<T>,
    /// Free blocks. The index into this array is the binary logarithm of a block's length.
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

/// Converts an index or a window of address bits to 32 bits. An index always fits, because the number of routes is limited.
pub(super) fn number(at: usize) -> u32 {
    u32::try_from(at).expect("places are bounded")
}
