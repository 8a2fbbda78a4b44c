//! Devices: how packets are arranged in the buffers of a link's rings. Each connectivity type of a network has its own rules.
//!
//! Each connectivity type has one file with its two halves, and a case of [`Outbound`] and [`Inbound`]. Rules that all types
//! share are in `guest/peer_link.rs`, such as the rule for a partner without an empty buffer.

pub(crate) mod ctc;
mod hipersockets;
pub(crate) mod qdio;
mod vctc;

use siga_model::topology::{NetworkKind, Queueing};
use siga_ring::{Frame, Producer, ReserveError, Violation};
use siga_stack::link::frame::Marks;
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;

/// The result of an attempt to send a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sent {
    /// A packet was put into a buffer.
    Packet,
    /// The source had no packet, or its packet does not fit into a buffer.
    Nothing,
    /// The partner has no empty buffer.
    Full,
}

/// A source of packets to send.
pub(crate) trait Source {
    /// Returns an upper bound of the next packet's length in bytes, or 0 if there is no packet to send.
    fn bytes_max(&mut self) -> usize;

    /// Writes the next packet to `into` and returns its length and marks. Returns `None` if there is no packet, or if the packet
    /// does not fit.
    fn build(&mut self, into: &mut [u8]) -> Option<Transmit>;
}

/// A source of one packet whose length is known, and whose bytes a closure writes.
pub(crate) struct Whole<F> {
    pub(crate) packet: Transmit,
    pub(crate) fill: F,
}

impl<F: FnMut(&mut [u8])> Source for Whole<F> {
    #[inline]
    fn bytes_max(&mut self) -> usize {
        self.packet.len
    }

    #[inline]
    fn build(&mut self, into: &mut [u8]) -> Option<Transmit> {
        (self.fill)(into.get_mut(..self.packet.len)?);
        Some(self.packet)
    }
}

/// The sending half of a device: puts packets into the buffers of an outgoing ring.
///
/// An enum and not a trait object, so that the compiler inlines the functions that each packet calls (decision 026).
#[derive(Debug)]
pub(crate) enum Outbound {
    HiperSockets(hipersockets::Outbound),
    Vctc(vctc::Outbound),
    Ctc(ctc::Outbound),
    Qdio(qdio::Outbound),
}

impl Outbound {
    /// Puts the next packet of `source` into a buffer.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    #[inline]
    pub(crate) fn send<S: Source>(&mut self, ring: &mut Producer, source: &mut S) -> Result<Sent, Violation> {
        match self {
            Self::HiperSockets(outbound) => outbound.send(ring, source),
            Self::Vctc(outbound) => outbound.send(ring, source),
            Self::Ctc(outbound) => outbound.send(ring, source),
            Self::Qdio(outbound) => outbound.send(ring, source),
        }
    }

    /// Makes the packets in filled buffers visible to the partner, as far as the rules of the connectivity type allow. Returns how
    /// many buffers must be free before the remaining packets can be published, or 0 if none remain.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    #[inline]
    pub(crate) fn flush(&mut self, ring: &mut Producer) -> Result<usize, Violation> {
        match self {
            Self::HiperSockets(_) => {
                ring.publish();
                Ok(0)
            }
            Self::Vctc(outbound) => outbound.flush(ring),
            Self::Ctc(outbound) => outbound.flush(ring),
            Self::Qdio(outbound) => {
                outbound.flush(ring);
                Ok(0)
            }
        }
    }

    /// Records that the partner has sent its hello block, which says that it is ready to receive.
    pub(crate) fn partner_ready(&mut self) {
        match self {
            Self::HiperSockets(_) | Self::Qdio(_) => {}
            Self::Vctc(outbound) => outbound.partner_ready(),
            Self::Ctc(outbound) => outbound.partner_ready(),
        }
    }

    /// Returns whether packets can be sent yet. While this method returns false, packets wait and are never dropped.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::HiperSockets(_) | Self::Qdio(_) => true,
            Self::Vctc(outbound) => outbound.is_open(),
            // A packet that the channel or the partner cannot take yet waits.
            Self::Ctc(_) => false,
        }
    }

    /// Returns the length in bytes of the largest packet that fits into a buffer.
    pub(crate) fn packet_bytes_max(&self) -> usize {
        match self {
            Self::HiperSockets(outbound) => outbound.packet_bytes_max(),
            Self::Vctc(outbound) => outbound.packet_bytes_max(),
            Self::Ctc(outbound) => outbound.packet_bytes_max(),
            Self::Qdio(outbound) => outbound.packet_bytes_max(),
        }
    }

    /// Returns the sending half of a real CTC.
    pub(crate) fn ctc(&mut self) -> Option<&mut ctc::Outbound> {
        match self {
            Self::Ctc(outbound) => Some(outbound),
            Self::HiperSockets(_) | Self::Vctc(_) | Self::Qdio(_) => None,
        }
    }

    /// Returns the time at which the block on the channel of a real CTC has arrived. `None` if there is no block on it.
    pub(crate) fn block_due(&self) -> Option<Instant> {
        match self {
            Self::Ctc(outbound) => outbound.due(),
            Self::HiperSockets(_) | Self::Vctc(_) | Self::Qdio(_) => None,
        }
    }
}

/// The receiving half of a device: finds the packets in the frames of an inbound ring.
#[derive(Debug)]
pub(crate) enum Inbound {
    HiperSockets(hipersockets::Inbound),
    Vctc(vctc::Inbound),
}

impl Inbound {
    /// Returns the next packet of a frame. `at` is how many bytes of the frame were already read. The method advances `at`.
    #[inline]
    pub(crate) fn next(&mut self, frame: &Frame<'_>, at: &mut usize) -> Inside {
        match self {
            Self::HiperSockets(inbound) => inbound.next(frame, at),
            Self::Vctc(inbound) => inbound.next(frame, at),
        }
    }

    /// Returns whether the partner sends nothing more until this guest has returned all buffers.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        match self {
            Self::HiperSockets(_) => false,
            Self::Vctc(_) => true,
        }
    }
}

/// What the next bytes of a frame contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inside {
    /// A packet.
    Packet(Part),
    /// The frame has no more packets.
    End,
    /// A hello block: the partner is ready to receive.
    Hello,
    /// The rest of the frame violates the format of the connectivity type.
    Malformed,
}

/// The position of a packet in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) at: usize,
    pub(crate) len: usize,
    pub(crate) marks: Marks,
}

/// Returns the sending half of a new device. On a network of type qdio, it has a rule for the output queues of its card.
pub(crate) fn outbound(kind: NetworkKind, queueing: Queueing) -> Outbound {
    match halves(kind).0 {
        Outbound::Qdio(outbound) => Outbound::Qdio(outbound.with_queueing(queueing)),
        other @ (Outbound::HiperSockets(_) | Outbound::Vctc(_) | Outbound::Ctc(_)) => other,
    }
}

/// Returns the two halves of a new device, for a connectivity type.
pub(crate) fn halves(kind: NetworkKind) -> (Outbound, Inbound) {
    match kind {
        NetworkKind::Hipersockets { frame } => {
            (Outbound::HiperSockets(hipersockets::Outbound::new(frame)), Inbound::HiperSockets(hipersockets::Inbound))
        }
        NetworkKind::Guestlan { .. } | NetworkKind::Vswitch { .. } => (
            Outbound::HiperSockets(hipersockets::Outbound::new(kind.buffer_bytes())),
            Inbound::HiperSockets(hipersockets::Inbound),
        ),
        NetworkKind::Qdio { .. } => {
            let outbound = qdio::Outbound::new(kind.buffer_bytes());
            (Outbound::Qdio(outbound), Inbound::HiperSockets(hipersockets::Inbound))
        }
        NetworkKind::Vctc { buffer } => {
            (Outbound::Vctc(vctc::Outbound::new(buffer)), Inbound::Vctc(vctc::Inbound::default()))
        }
        NetworkKind::Ctc { buffer } => {
            (Outbound::Ctc(ctc::Outbound::new(buffer)), Inbound::Vctc(vctc::Inbound::default()))
        }
    }
}

/// Converts the error of a buffer reservation to a violation. A device never reserves more than the size of a buffer, so no other
/// error is possible.
#[cold]
fn violation(error: ReserveError) -> Violation {
    match error {
        ReserveError::Violation(violation) => violation,
        ReserveError::TooLong { .. } => unreachable!("a reservation is of a buffer at the most"),
    }
}

const UNFILLED: u64 = 1;
const SEGMENT_SHIFT: u32 = 16;

/// Converts the marks of a packet to the tag of a frame (64 bits that travel with the frame).
#[inline]
fn tag(marks: Marks) -> u64 {
    u64::from(marks.segment_bytes) << SEGMENT_SHIFT | if marks.checksum_unfilled { UNFILLED } else { 0 }
}

/// Converts the tag of a frame to the marks of a packet. Every tag is valid.
#[inline]
fn marks(tag: u64) -> Marks {
    let [_, _, _, _, high, low, _, _] = tag.to_be_bytes();
    Marks { checksum_unfilled: tag & UNFILLED != 0, segment_bytes: u16::from_be_bytes([high, low]) }
}

#[cfg(test)]
mod tests;
