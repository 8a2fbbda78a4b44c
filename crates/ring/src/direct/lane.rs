//! One end of a direct connection.

use super::incoming::Receiving;
use super::layout::{CLOSED, CONSUMED, RECEIVE_GENERATION, ROOM_THRESHOLD, STOP};
use super::outgoing::Sending;
use super::{Couple, Shape};
use crate::sync::{Ordering, fence};
use std::fmt;

/// A word of the peer that no sound peer writes. The caller has to reset the connection of the lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line of each violation covers its fields")]
pub enum Violation {
    /// The number of published bytes decreased, or exceeds the room.
    Produced { found: u64, least: u64, most: u64 },
    /// The number of consumed bytes decreased, or exceeds the number of published bytes.
    Consumed { found: u64, least: u64, most: u64 },
    /// The peer returns to TCP, but not after the last published byte.
    End { found: u64, published: u64 },
    /// The peer stops to read at a byte that it has read before, or that was never published.
    Stop { found: u64, least: u64, most: u64 },
    /// The peer has begun to send by memory before a byte that it has sent by TCP.
    Begin { found: u64, least: u64 },
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Produced { found, least, most } => {
                write!(f, "the peer reports {found} published bytes, but {least} to {most} are possible")
            }
            Self::Consumed { found, least, most } => {
                write!(f, "the peer reports {found} consumed bytes, but {least} to {most} are possible")
            }
            Self::End { found, published } => {
                write!(f, "the peer returns to TCP at byte {found}, but has published {published} bytes")
            }
            Self::Stop { found, least, most } => {
                write!(f, "the peer stops to read at byte {found}, but bytes {least} to {most} are possible")
            }
            Self::Begin { found, least } => {
                write!(f, "the peer sends by memory from byte {found} on, but at least {least} came by TCP")
            }
        }
    }
}

impl std::error::Error for Violation {}

/// One end of a connection that uses a slot of a couple.
///
/// Method families, in the order of their use:
/// - [`Lane::bind`] makes the end. From then on, the peer may send by memory.
/// - [`Lane::begin`] lets this end send by memory. [`Lane::send`], [`Lane::room`] and [`Lane::want_room`] send. [`Lane::end`] returns
///   to TCP, and [`Lane::stopped`] returns to TCP because the peer wants it.
/// - [`Lane::look`] finds what the peer has changed. [`Lane::incoming`] says from where the next bytes come, and [`Lane::receive`] and
///   [`Lane::peek`] copy those in memory. [`Lane::stop`] lets the peer return to TCP.
/// - [`Lane::close`] and [`Lane::peer_has_closed`] serve the end of the connection.
#[derive(Debug)]
pub struct Lane {
    pub(super) slot: usize,
    pub(super) generation: u64,
    pub(super) sending: Sending,
    pub(super) receiving: Receiving,
}

impl Lane {
    /// Binds a slot to a connection. Both ends use the same slot and generation, which no earlier connection of this slot had. Panics if
    /// there is no such slot.
    pub fn bind(couple: &mut Couple, slot: usize, generation: u64) -> Self {
        assert!(slot < couple.shape.slots(), "slot {slot} of {}", couple.shape.slots());
        let shape = couple.shape;
        for word in [CONSUMED, STOP, CLOSED, ROOM_THRESHOLD] {
            couple.own.store(shape.word(slot, word), 0);
        }
        // Release: the peer sees these words when it sees the generation.
        fence(Ordering::Release);
        couple.own.store(shape.word(slot, RECEIVE_GENERATION), generation);
        // The peer may have changed its words of this slot before.
        couple.seen_changes = None;
        Self { slot, generation, sending: Sending::new(shape.slot_bytes()), receiving: Receiving::default() }
    }

    /// Returns the number of the slot.
    pub fn slot(&self) -> usize {
        self.slot
    }

    /// Returns the generation of the slot.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Lets the peer know that this end reads no more bytes, because its connection is closed. Returns true if the peer has published bytes
    /// that this end has not read.
    pub fn close(&mut self, couple: &mut Couple) -> bool {
        couple.own.store(self.at(couple.shape, CLOSED), 1);
        // SeqCst, paired with the fence in `Couple::changed`: either the peer sees after its publication that this end is closed, or
        // this end sees the published bytes here.
        couple.changed();
        self.look(couple).is_err() || self.unread() > 0
    }

    /// Returns whether the peer has closed its end, and if so, whether it has left published bytes unread.
    pub fn peer_has_closed(&mut self, couple: &Couple) -> Option<bool> {
        if !self.peer_is_bound(couple) || couple.peer.load(self.at(couple.shape, CLOSED)) == 0 {
            return None;
        }
        fence(Ordering::Acquire);
        Some(self.refresh_consumed(couple).is_err() || self.unconsumed() > 0)
    }

    pub(super) fn at(&self, shape: Shape, word: usize) -> usize {
        shape.word(self.slot, word)
    }

    /// Returns whether the peer has bound its end of the slot.
    pub(super) fn peer_is_bound(&self, couple: &Couple) -> bool {
        let is_bound = couple.peer.load(self.at(couple.shape, RECEIVE_GENERATION)) == self.generation;
        // Acquire: the words of the peer's receiver are those of this generation.
        fence(Ordering::Acquire);
        is_bound
    }
}
