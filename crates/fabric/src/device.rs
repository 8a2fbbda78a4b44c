//! Devices: how packets of the stack lie in the buffers of a link, by the rules of a connectivity type.
//!
//! A type is one file with two halves, [`Outbound`] and [`Inbound`], and a line in [`halves`]. What all types share, above all
//! what happens when the partner has no empty buffer, is in `port.rs`.

mod hipersockets;
mod vctc;

use siga_model::topology::NetworkKind;
use siga_ring::{Frame, Producer, ReserveError, Violation};
use siga_stack::link::frame::Marks;
use siga_stack::stack::Transmit;
use std::fmt;

/// What became of the wish to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// A packet is in a buffer.
    Packet,
    /// There was nothing to send.
    Nothing,
    /// The partner has no empty buffer.
    Full,
}

/// Where packets come from.
pub(crate) trait Source {
    /// The next packet has no more bytes than this; 0 if there is none.
    fn bytes_max(&mut self) -> usize;

    /// Builds the next packet in the place it is given; none if there is none, or if the place is too small.
    fn build(&mut self, into: &mut [u8]) -> Option<Transmit>;
}

/// A packet of known length, put in place by a closure.
pub(crate) struct Whole<F> {
    pub(crate) packet: Transmit,
    pub(crate) fill: F,
}

impl<F: FnMut(&mut [u8])> Source for Whole<F> {
    fn bytes_max(&mut self) -> usize {
        self.packet.len
    }

    fn build(&mut self, into: &mut [u8]) -> Option<Transmit> {
        (self.fill)(into.get_mut(..self.packet.len)?);
        Some(self.packet)
    }
}

/// The sending half of a device.
pub(crate) trait Outbound: fmt::Debug + Send {
    /// Puts the next packet into a buffer.
    ///
    /// # Errors
    /// The partner broke the ring's contract.
    fn send(&mut self, ring: &mut Producer, source: &mut dyn Source) -> Result<Sent, Violation>;

    /// Hands over what is in buffers, by the rule of the type. What is held back waits until so many buffers are free; 0 if
    /// nothing is.
    ///
    /// # Errors
    /// The partner broke the ring's contract.
    fn flush(&mut self, ring: &mut Producer) -> Result<usize, Violation>;

    /// The other side has said that it is there.
    fn partner_ready(&mut self);

    /// Whether packets can go at all: until then there is no buffer for any, and none is lost by that.
    fn is_open(&self) -> bool {
        true
    }

    /// The most bytes of one packet.
    fn packet_bytes_max(&self) -> usize;
}

/// The receiving half of a device.
pub(crate) trait Inbound: fmt::Debug + Send {
    /// The next packet of a frame, of which the first `at` bytes are done.
    fn next(&mut self, frame: &Frame<'_>, at: &mut usize) -> Inside;

    /// Whether the other side sends nothing more until all buffers are given back.
    fn is_waited_for(&self) -> bool {
        false
    }
}

/// What there is in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A packet.
    Packet(Part),
    /// Nothing more.
    End,
    /// A word of the other side that it is there.
    Hello,
    /// What follows is not as the type has it.
    Malformed,
}

/// Where a packet lies in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) marks: Marks,
}

/// The halves of a device of a type.
pub(crate) fn halves(kind: NetworkKind) -> (Box<dyn Outbound>, Box<dyn Inbound>) {
    match kind {
        NetworkKind::Hipersockets { frame } => {
            (Box::new(hipersockets::Outbound::new(frame)), Box::new(hipersockets::Inbound))
        }
        NetworkKind::Vctc { buffer } => (Box::new(vctc::Outbound::new(buffer)), Box::new(vctc::Inbound::default())),
    }
}

/// Why a reservation failed: no half asks for more than a buffer has.
fn violation(error: ReserveError) -> Violation {
    match error {
        ReserveError::Violation(violation) => violation,
        ReserveError::TooLong { .. } => unreachable!("a reservation is of a buffer at the most"),
    }
}

const UNFILLED: u64 = 1;
const SEGMENT_SHIFT: u32 = 16;

/// Marks as the word that goes beside a frame.
fn tag(marks: Marks) -> u64 {
    u64::from(marks.segment_bytes) << SEGMENT_SHIFT | if marks.checksum_unfilled { UNFILLED } else { 0 }
}

/// The marks in the word beside a frame; every word means something.
fn marks(tag: u64) -> Marks {
    let [_, _, _, _, high, low, _, _] = tag.to_be_bytes();
    Marks { checksum_unfilled: tag & UNFILLED != 0, segment_bytes: u16::from_be_bytes([high, low]) }
}

#[cfg(test)]
mod tests;
