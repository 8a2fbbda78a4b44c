//! The layout of the memory file that one application of a couple writes.
//!
//! The first page has the word that says whether the application sleeps. A table of words follows, with 256 bytes for each slot, and
//! then the buffers of the slots. All words have 64 bits.

use crate::layout::PAGE_BYTES;

/// Offset of the number of the owner's current sleep, or 0 while it does not sleep.
pub(super) const ASLEEP: usize = 0;
/// Offset of the number of changes of words of all slots that the peer may have to notice. It lies on the same cache line, which the peer
/// reads anyway when it publishes.
pub(super) const CHANGES: usize = 8;
/// Offsets of the numbers of bytes that the owner has published and read in all slots, for a process that only reads the file. They lie on
/// a cache line of their own, because the peer does not read them.
pub(super) const SENT: usize = 128;
pub(super) const RECEIVED: usize = 136;
/// Offset of the table of words.
const TABLE: usize = PAGE_BYTES;
/// Distance between the words of two slots.
const SLOT_WORDS_BYTES: usize = 256;

// The words of a slot: first those about the bytes that the owner of the file sends, on two cache lines of their own.

/// How many bytes the owner has published in this slot since it was bound.
pub(super) const PRODUCED: usize = 0;
/// The generation for which the words of the sender are valid: the owner sends by memory.
pub(super) const SEND_GENERATION: usize = 8;
/// How many bytes the owner had sent by TCP before the first byte in memory.
pub(super) const BEGIN: usize = 16;
/// 0, or one more than the number of bytes in memory after which the owner sends by TCP again.
pub(super) const END: usize = 24;
/// The number of consumed bytes at which the owner wants a notification, or 0.
pub(super) const ROOM_THRESHOLD: usize = 32;

// Then those about the bytes that the owner of the file receives.

/// How many bytes the owner has copied out of the peer's slot.
pub(super) const CONSUMED: usize = 128;
/// The generation for which the words of the receiver are valid: the owner can receive by memory.
pub(super) const RECEIVE_GENERATION: usize = 136;
/// 0, [`STOPPING`], or one more than the number of bytes that the owner reads from memory at most.
pub(super) const STOP: usize = 144;
/// 1 if the owner has closed the connection.
pub(super) const CLOSED: usize = 152;

/// The value of [`STOP`] while the owner finds out where it stops.
pub(super) const STOPPING: u64 = u64::MAX;

/// The number of slots of a memory file, and the size of the buffer of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    slots: usize,
    slot_bytes: usize,
}

impl Shape {
    /// The shape of all couples.
    pub const STANDARD: Self = Self { slots: 64, slot_bytes: 256 << 10 };

    /// Returns a shape. Returns `None` unless the size of a buffer is a power of two of at most 1 GB, and there are 1 to 1,024 slots.
    pub fn new(slots: usize, slot_bytes: usize) -> Option<Self> {
        let fits = (1..=1_024).contains(&slots) && slot_bytes.is_power_of_two() && slot_bytes <= 1 << 30;
        fits.then_some(Self { slots, slot_bytes })
    }

    /// Returns the number of slots.
    pub fn slots(self) -> usize {
        self.slots
    }

    /// Returns the size of the buffer of a slot, in bytes.
    pub const fn slot_bytes(self) -> usize {
        self.slot_bytes
    }

    /// Returns the exact size of the memory file, in bytes.
    pub fn memory_bytes(self) -> usize {
        (self.buffers() + self.slots * self.slot_bytes).next_multiple_of(PAGE_BYTES)
    }

    fn buffers(self) -> usize {
        (TABLE + self.slots * SLOT_WORDS_BYTES).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the offset of a word of a slot.
    #[inline]
    pub(super) fn word(self, slot: usize, word: usize) -> usize {
        TABLE + slot * SLOT_WORDS_BYTES + word
    }

    /// Returns the offsets of the counts of bytes that the owner has published and read in all slots.
    pub fn totals_at() -> (usize, usize) {
        (SENT, RECEIVED)
    }

    /// Returns the offset of the count of published bytes of a slot, for a process that only reads the file.
    pub fn produced_at(self, slot: usize) -> usize {
        self.word(slot, PRODUCED)
    }

    /// Returns the offset of the count of consumed bytes of a slot, for a process that only reads the file.
    pub fn consumed_at(self, slot: usize) -> usize {
        self.word(slot, CONSUMED)
    }

    /// Returns the offsets of the two generations of a slot, for a process that only reads the file.
    pub fn generations_at(self, slot: usize) -> (usize, usize) {
        (self.word(slot, SEND_GENERATION), self.word(slot, RECEIVE_GENERATION))
    }

    /// Splits `len` bytes from position `at` of a stream on: returns the offset of the first part, its length, and the length of the
    /// second part, which begins at the start of the buffer. `len` is not larger than the buffer.
    #[inline]
    pub(super) fn parts(self, slot: usize, at: u64, len: usize) -> (usize, usize, usize) {
        let mask = crate::layout::word(self.slot_bytes) - 1;
        let inside = usize::try_from(at & mask).unwrap_or(0);
        let first = len.min(self.slot_bytes - inside);
        (self.buffer(slot) + inside, first, len - first)
    }

    /// Returns the offset of the buffer of a slot.
    #[inline]
    pub(super) fn buffer(self, slot: usize) -> usize {
        self.buffers() + slot * self.slot_bytes
    }
}
