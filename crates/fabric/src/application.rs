//! Applications in other processes that use a guest's stack: what both sides share.
//!
//! They are joined by a link, over which *commands* go to the guest and *events* come back as records, and by an arena each
//! way. Bytes to send lie in the application's arena until they are acknowledged, bytes received in the guest's
//! until the application has taken them; records only tell where. What a record says is checked by whoever reads it: neither side
//! trusts the other.

pub(crate) mod breach;
pub(crate) mod memory;
pub(crate) mod record;

use crate::limits::APPLICATION_BUFFERS;
use siga_ring::Shape;
use siga_ring::limits::BUFFER_BYTES_MAX;
use smallvec::SmallVec;
use std::collections::HashMap;
use std::hash::RandomState;

/// Bytes of a block, by which both sides divide their arenas. What lies in it is of one socket.
pub(crate) const BLOCK_BYTES: usize = 8_192;

/// Free buffers in which any record has room, behind those that lie in a buffer already.
pub(crate) const ROOM: usize = 2;

/// The shape of both rings.
pub(crate) fn shape() -> Option<Shape> {
    Shape::new(BUFFER_BYTES_MAX, APPLICATION_BUFFERS)
}

/// Where bytes lie in an arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) at: u32,
    pub(crate) len: u32,
}

/// Where bytes lie that a record tells of: mostly a block or two.
pub(crate) type Extents = SmallVec<[Extent; 4]>;

/// What is looked up for each record.
pub(crate) type Table<K, V> = HashMap<K, V, RandomState>;

/// An empty table, whose key nobody knows: the other side chooses some of the numbers.
pub(crate) fn table<K, V>() -> Table<K, V> {
    HashMap::with_hasher(RandomState::new())
}

impl Extent {
    pub(crate) fn new(at: usize, len: usize) -> Self {
        // An arena has no more bytes than a word of 32 bits tells.
        Self { at: u32::try_from(at).unwrap_or(u32::MAX), len: u32::try_from(len).unwrap_or(u32::MAX) }
    }

    pub(crate) fn at(self) -> usize {
        size(self.at)
    }

    pub(crate) fn len(self) -> usize {
        size(self.len)
    }

    /// Whether it has bytes, all of them in an arena of that size.
    pub(crate) fn is_inside(self, arena_bytes: usize) -> bool {
        self.len > 0 && self.at().checked_add(self.len()).is_some_and(|end| end <= arena_bytes)
    }

    /// The blocks of an arena that are free, to be taken from the first on.
    pub(crate) fn all_blocks(arena_bytes: usize) -> Vec<u32> {
        let count = u32::try_from(arena_bytes / BLOCK_BYTES).unwrap_or(u32::MAX);
        (0..count).rev().collect()
    }
}

/// A number that came in 32 bits.
pub(crate) fn size(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}
