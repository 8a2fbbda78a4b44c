//! Devices: how packets are arranged in the buffers of a link's rings. Each connectivity type of a network has its own rules.
//!
//! Each connectivity type has one file with its two halves, and a case of [`Outbound`] and [`Inbound`]. Rules that all types
//! share are in `guest/peer_link.rs`, such as the rule for a partner without an empty buffer.

pub(crate) mod blocks;
mod channel;
mod hipersockets;
pub(crate) mod qdio;

pub(crate) use blocks::MESSAGE_BYTES_MAX;
use blocks::claw::Claw;
use blocks::ctc::Ctc;
use blocks::lcs::Lcs;
use blocks::netiucv::Netiucv;
use blocks::{Captured, Format};
use siga_model::link::Link;

use siga_model::limits::CLAW_UNUSED_BYTES;
use siga_model::mac::Mac;
use siga_model::topology::{self, NetworkKind, Queueing};
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
    Qdio(qdio::Outbound),
    Vctc(blocks::Outbound<Ctc>),
    Netiucv(blocks::Outbound<Netiucv>),
    Lcs(blocks::Outbound<Lcs>),
    Ctc(channel::Outbound<Ctc>),
    Claw(channel::Outbound<Claw>),
}

/// Evaluates `$do` for the sending half of a device with blocks, and `$other` for other devices.
macro_rules! with_blocks {
    ($self:expr, $blocks:ident => $do:expr, _ => $other:expr) => {
        match $self {
            Self::HiperSockets(_) | Self::Qdio(_) => $other,
            Self::Vctc($blocks) => $do,
            Self::Netiucv($blocks) => $do,
            Self::Lcs($blocks) => $do,
            Self::Ctc(channel::Outbound { block: $blocks, .. }) => $do,
            Self::Claw(channel::Outbound { block: $blocks, .. }) => $do,
        }
    };
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
            Self::Qdio(outbound) => outbound.send(ring, source),
            Self::Vctc(outbound) => outbound.send(ring, source),
            Self::Netiucv(outbound) => outbound.send(ring, source),
            Self::Lcs(outbound) => outbound.send(ring, source),
            Self::Ctc(outbound) => outbound.send(ring, source),
            Self::Claw(outbound) => outbound.send(ring, source),
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
            Self::Qdio(outbound) => {
                outbound.flush(ring);
                Ok(0)
            }
            Self::Vctc(outbound) => outbound.flush(ring),
            Self::Netiucv(outbound) => outbound.flush(ring),
            Self::Lcs(outbound) => outbound.flush(ring),
            Self::Ctc(outbound) => outbound.flush(ring),
            Self::Claw(outbound) => outbound.flush(ring),
        }
    }

    /// Acts on a message of the partner. An example is the hello block of a CTC, which says that the partner is ready to receive.
    pub(crate) fn receive(&mut self, message: &[u8]) {
        with_blocks!(self, blocks => blocks.receive(message), _ => ());
    }

    /// Returns whether packets can be sent yet. While this method returns false, packets wait and are never dropped.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::HiperSockets(_) | Self::Qdio(_) => true,
            Self::Vctc(outbound) => outbound.is_open(),
            Self::Netiucv(outbound) => outbound.is_open(),
            Self::Lcs(outbound) => outbound.is_open(),
            // A packet that the channel or the partner cannot take yet waits.
            Self::Ctc(_) | Self::Claw(_) => false,
        }
    }

    /// Returns whether packets are collected in a block that the partner cannot see yet.
    pub(crate) fn holds_packets(&self) -> bool {
        with_blocks!(self, blocks => blocks.filled() > 0, _ => false)
    }

    /// Returns the length in bytes of the largest packet that fits into a buffer.
    pub(crate) fn packet_bytes_max(&self) -> usize {
        match self {
            Self::HiperSockets(outbound) => outbound.packet_bytes_max(),
            Self::Qdio(outbound) => outbound.packet_bytes_max(),
            Self::Vctc(outbound) => outbound.packet_bytes_max(),
            Self::Netiucv(outbound) => outbound.packet_bytes_max(),
            Self::Lcs(outbound) => outbound.packet_bytes_max(),
            Self::Ctc(outbound) => outbound.block.packet_bytes_max(),
            Self::Claw(outbound) => outbound.block.packet_bytes_max(),
        }
    }

    /// Publishes the block on a modelled channel if it has arrived by now. Returns whether it has.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    pub(crate) fn end_block(&mut self, ring: &mut Producer, at: Instant) -> Result<bool, Violation> {
        match self {
            Self::Ctc(outbound) => outbound.end_block(ring, at),
            Self::Claw(outbound) => outbound.end_block(ring, at),
            Self::HiperSockets(_) | Self::Qdio(_) | Self::Vctc(_) | Self::Netiucv(_) | Self::Lcs(_) => Ok(false),
        }
    }

    /// Puts the block that has been filled on the modelled channel. Returns its bytes, and the time in nanoseconds for which it keeps
    /// the channel busy. `None` if no block begins its way.
    pub(crate) fn begin_block(&mut self, link: &Link, at: Instant) -> Option<(u64, u64)> {
        match self {
            Self::Ctc(outbound) => outbound.begin_block(link, at),
            Self::Claw(outbound) => outbound.begin_block(link, at),
            Self::HiperSockets(_) | Self::Qdio(_) | Self::Vctc(_) | Self::Netiucv(_) | Self::Lcs(_) => None,
        }
    }

    /// Returns the time at which the block on a modelled channel has arrived. `None` if there is no block on it.
    pub(crate) fn block_due(&self) -> Option<Instant> {
        match self {
            Self::Ctc(outbound) => outbound.due(),
            Self::Claw(outbound) => outbound.due(),
            Self::HiperSockets(_) | Self::Qdio(_) | Self::Vctc(_) | Self::Netiucv(_) | Self::Lcs(_) => None,
        }
    }

    /// Sends a message that this side sends nothing more, if the connectivity type has such a message.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    pub(crate) fn end(&mut self, ring: &mut Producer) -> Result<(), Violation> {
        with_blocks!(self, blocks => blocks.end(ring), _ => Ok(()))
    }

    /// Begins or ends the capture of blocks that are sent.
    pub(crate) fn capture(&mut self, captures: bool) {
        with_blocks!(self, blocks => blocks.capture(captures), _ => ());
    }

    /// Returns the number of the format of the device's blocks, and the blocks that were sent since the last call. `None` if the device
    /// has no blocks.
    pub(crate) fn take_captured(&mut self) -> Option<(u8, Vec<Captured>)> {
        with_blocks!(self, blocks => Some(blocks.take_captured()), _ => None)
    }

    /// Returns what the connectivity type counts itself.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        with_blocks!(self, blocks => blocks.counters(), _ => Vec::new())
    }
}

/// The receiving half of a device: finds the packets in the frames of an inbound ring.
#[derive(Debug)]
pub(crate) enum Inbound {
    HiperSockets(hipersockets::Inbound),
    Ctc(blocks::Inbound),
    Netiucv(blocks::Inbound),
    Claw(blocks::Inbound),
    Lcs(blocks::Inbound),
}

impl Inbound {
    /// Returns the next packet of a frame. `at` is how many bytes of the frame were already read. The method advances `at`.
    #[inline]
    pub(crate) fn next(&mut self, frame: &Frame<'_>, at: &mut usize) -> Inside {
        match self {
            Self::HiperSockets(inbound) => inbound.next(frame, at),
            Self::Ctc(_) | Self::Netiucv(_) | Self::Claw(_) | Self::Lcs(_) => self.next_in_block(frame, at),
        }
    }

    /// Does the same for a device with blocks. Not inlined, because it would make the caller slower for other devices.
    #[inline(never)]
    fn next_in_block(&mut self, frame: &Frame<'_>, at: &mut usize) -> Inside {
        match self {
            Self::HiperSockets(_) => Inside::End,
            Self::Ctc(inbound) => Ctc::next(frame, frame.tag(), &mut inbound.0, at),
            Self::Netiucv(inbound) => Netiucv::next(frame, frame.tag(), &mut inbound.0, at),
            Self::Claw(inbound) => Claw::next(frame, frame.tag(), &mut inbound.0, at),
            Self::Lcs(inbound) => Lcs::next(frame, frame.tag(), &mut inbound.0, at),
        }
    }

    /// Returns the number of the format of the device's blocks in captures. `None` if the device has no blocks.
    pub(crate) fn format(&self) -> Option<u8> {
        match self {
            Self::HiperSockets(_) => None,
            Self::Ctc(_) => Some(Ctc::NUMBER),
            Self::Netiucv(_) => Some(Netiucv::NUMBER),
            Self::Claw(_) => Some(Claw::NUMBER),
            Self::Lcs(_) => Some(Lcs::NUMBER),
        }
    }

    /// Returns whether the partner sends nothing more until this guest has returned all buffers.
    #[inline]
    pub(crate) fn is_waited_for(&self) -> bool {
        match self {
            Self::HiperSockets(_) => false,
            Self::Ctc(_) | Self::Netiucv(_) | Self::Claw(_) | Self::Lcs(_) => true,
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
    /// A message to the device itself, such as the hello block of a CTC.
    Message(Part),
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

/// What a new device must know in addition to the kind of its network.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// The rule for the output queues of a card, on a network of type qdio.
    pub(crate) queueing: Queueing,
    /// The names and sizes of a device on a network of type claw.
    pub(crate) claw: Option<Box<topology::Claw>>,
    /// Whether the device is a gateway to a LAN, on a network of type lcs.
    pub(crate) is_gateway: bool,
    /// The Ethernet address of the guest, on a network of type lcs.
    pub(crate) mac: Option<Mac>,
    /// Whether a capture of blocks runs.
    pub(crate) captures: bool,
}

/// Returns the sending half of a new device.
pub(crate) fn outbound(kind: NetworkKind, settings: &Settings) -> Outbound {
    let mut outbound = outbound_of(kind, settings);
    if settings.captures {
        outbound.capture(true);
    }
    outbound
}

fn outbound_of(kind: NetworkKind, settings: &Settings) -> Outbound {
    let bytes = kind.buffer_bytes();
    match kind {
        NetworkKind::Hipersockets { .. } | NetworkKind::Guestlan { .. } | NetworkKind::Vswitch { .. } => {
            Outbound::HiperSockets(hipersockets::Outbound::new(bytes))
        }
        NetworkKind::Qdio { .. } => Outbound::Qdio(qdio::Outbound::new(bytes, settings.queueing)),
        NetworkKind::Vctc { .. } => Outbound::Vctc(blocks::Outbound::new(bytes, Ctc::default())),
        NetworkKind::Netiucv { .. } => Outbound::Netiucv(blocks::Outbound::new(bytes, Netiucv::default())),
        NetworkKind::Lcs { .. } => {
            let mac = settings.mac.map(|mac| mac.0).unwrap_or_default();
            Outbound::Lcs(blocks::Outbound::new(bytes, Lcs::new(settings.is_gateway, mac)))
        }
        NetworkKind::Ctc { .. } => Outbound::Ctc(channel::Outbound::new(blocks::Outbound::new(bytes, Ctc::default()))),
        NetworkKind::Claw { .. } => {
            let settings = settings.claw.as_deref().cloned().unwrap_or_default();
            let bytes = settings.write_size.min(bytes).saturating_sub(CLAW_UNUSED_BYTES);
            Outbound::Claw(channel::Outbound::new(blocks::Outbound::new(bytes, Claw::new(settings))))
        }
    }
}

/// Returns the receiving half of a new device.
pub(crate) fn inbound(kind: NetworkKind) -> Inbound {
    let blocks = blocks::Inbound::default();
    match kind {
        NetworkKind::Hipersockets { .. }
        | NetworkKind::Guestlan { .. }
        | NetworkKind::Vswitch { .. }
        | NetworkKind::Qdio { .. } => Inbound::HiperSockets(hipersockets::Inbound),
        NetworkKind::Vctc { .. } | NetworkKind::Ctc { .. } => Inbound::Ctc(blocks),
        NetworkKind::Netiucv { .. } => Inbound::Netiucv(blocks),
        NetworkKind::Claw { .. } => Inbound::Claw(blocks),
        NetworkKind::Lcs { .. } => Inbound::Lcs(blocks),
    }
}

/// Returns the two halves of a new device with the default settings.
#[cfg(test)]
pub(crate) fn halves(kind: NetworkKind) -> (Outbound, Inbound) {
    (outbound(kind, &Settings::default()), inbound(kind))
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
