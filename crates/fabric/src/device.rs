//! Devices: the layout of packets in the buffers of a link, by the rules of a connectivity type.
//!
//! A type is one file with two halves, [`Outbound`] and [`Inbound`], and a line in [`halves`]. The rules that all types share are in
//! `guest/peer_link.rs`, such as the rule for a partner without an empty buffer.

mod hipersockets;
mod vctc;

use siga_model::topology::NetworkKind;
use siga_ring::{Frame, Producer, ReserveError, Violation};
use siga_stack::link::frame::Marks;
use siga_stack::stack::Transmit;
use std::fmt;

/// The result of sending.
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
    /// An upper bound of the next packet's length; 0 if there is none.
    fn bytes_max(&mut self) -> usize;

    /// Builds the next packet into `into`; `None` if there is none, or if it does not fit.
    fn build(&mut self, into: &mut [u8]) -> Option<Transmit>;
}

/// A packet of known length, written by a closure.
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

    /// Publishes what is in buffers, by the rule of the type. Returns how many buffers have to be free before the rest can go; 0 if there
    /// is no rest.
    ///
    /// # Errors
    /// The partner broke the ring's contract.
    fn flush(&mut self, ring: &mut Producer) -> Result<usize, Violation>;

    /// The partner has said hello.
    fn partner_ready(&mut self) {}

    /// Whether packets can be sent at all. Before, a packet waits and is not dropped.
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

    /// Whether the partner sends nothing more until all buffers are given back.
    fn is_waited_for(&self) -> bool {
        false
    }
}

/// The content of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A packet.
    Packet(Part),
    /// Nothing more.
    End,
    /// The partner says hello.
    Hello,
    /// The rest violates the format of the type.
    Malformed,
}

/// A packet's place in a frame.
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

/// The marks as a frame's tag.
fn tag(marks: Marks) -> u64 {
    u64::from(marks.segment_bytes) << SEGMENT_SHIFT | if marks.checksum_unfilled { UNFILLED } else { 0 }
}

/// The marks in a frame's tag; every value is valid.
fn marks(tag: u64) -> Marks {
    let [_, _, _, _, high, low, _, _] = tag.to_be_bytes();
    Marks { checksum_unfilled: tag & UNFILLED != 0, segment_bytes: u16::from_be_bytes([high, low]) }
}

#[cfg(test)]
mod tests;
