//! Extents: where bytes lie in an arena.

use crate::BLOCK_BYTES;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::RandomState;

/// Where bytes lie in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extent {
    /// The first byte's offset.
    pub at: u32,
    /// How many bytes.
    pub len: u32,
}

/// The extents of one record: mostly a block or two.
pub type Extents = SmallVec<[Extent; 4]>;

/// A table that is looked up for each record.
pub type Table<K, V> = HashMap<K, V, RandomState>;

/// An empty table with a secret hash key, because the other side chooses some of the numbers.
pub fn table<K, V>() -> Table<K, V> {
    HashMap::with_hasher(RandomState::new())
}

impl Extent {
    /// An extent; neither number exceeds 32 bits, because no arena is that large.
    pub fn new(at: usize, len: usize) -> Self {
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), len: u32::try_from(len).unwrap_or(u32::MAX) }
    }

    /// The first byte's offset.
    pub fn at(self) -> usize {
        size(self.at)
    }

    /// How many bytes.
    pub fn len(self) -> usize {
        size(self.len)
    }

    /// Whether it has no bytes.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    /// Whether it has bytes, and all of them lie in an arena of `arena_bytes`.
    pub fn is_inside(self, arena_bytes: usize) -> bool {
        !self.is_empty() && self.at().checked_add(self.len()).is_some_and(|end| end <= arena_bytes)
    }

    /// All blocks of an arena, to be popped from the first on.
    pub fn all_blocks(arena_bytes: usize) -> Vec<u32> {
        let count = u32::try_from(arena_bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
        (0..count).rev().collect()
    }
}

/// A number of 32 bits from a record, as a size.
pub fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
