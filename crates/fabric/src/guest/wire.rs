//! Modelled links between two guests: the sending guest holds each packet until it has arrived, and then writes it to the ring.
//!
//! The partner's ring is the end of the link. While it has no empty buffer, packets that have arrived wait on the link.

use super::peer_link::{Links, Sender};
use crate::counters::{self, Counters};
use crate::device::{MESSAGE_BYTES_MAX, Part, Sent, Source, Whole};
use crate::emulator::{Emulator, Held};
use crate::limits::TRANSMIT_AT_ONCE_MAX;
use crate::protocol::message::{GuestDevice, OutboundLink};
use siga_model::link::Link;
use siga_ring::{Frame, Violation};
use siga_stack::link::frame::Marks;
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;

/// A modelled link, in the direction in which this guest sends.
#[derive(Debug)]
pub(super) enum Wire {
    /// The link of a virtual CTC, which carries packets.
    Packets(Box<Packets>),
    /// The channel of a real CTC, which carries blocks.
    Channel(Box<Channel>),
}

/// The channel of a real CTC, and what it has carried.
#[derive(Debug)]
pub(super) struct Channel {
    link: Link,
    blocks: u64,
    bytes: u64,
    busy_ns: u64,
}

/// The packets on a link.
#[derive(Debug)]
pub(super) struct Packets {
    emulator: Emulator<()>,
    /// A packet that has arrived while the partner had no empty buffer.
    arrived: Option<Vec<u8>>,
}

impl Wire {
    pub(super) fn of(device: &GuestDevice) -> Option<Self> {
        let OutboundLink { link, stream } = device.link.clone()?;
        let packets = |link| Self::Packets(Box::new(Packets { emulator: Emulator::new(link, stream), arrived: None }));
        let is_channel = device.kind.has_channel();
        let channel = |link| Self::Channel(Box::new(Channel { link, blocks: 0, bytes: 0, busy_ns: 0 }));
        Some(if is_channel { channel(link) } else { packets(link) })
    }
}

impl Packets {
    fn offer(&mut self, at: Instant, bytes: Vec<u8>) {
        // The emulator counts lost packets.
        let _ = self.emulator.offer(at, Held { bytes, tag: () });
    }

    fn take(&mut self, at: Instant) -> Option<Vec<u8>> {
        self.arrived.take().or_else(|| self.emulator.take(at).map(|held| held.bytes))
    }
}

impl Sender {
    /// Acts on a message of the partner's device.
    #[cold]
    pub(crate) fn receive(&mut self, frame: &Frame<'_>, part: Part) {
        let mut message = [0; MESSAGE_BYTES_MAX];
        let message = &mut message[..part.len.min(MESSAGE_BYTES_MAX)];
        frame.copy_to(part.at, message);
        self.outbound.receive(message);
        self.is_dirty = true;
    }

    /// Sends a message that this side sends nothing more, if the connectivity type has one.
    pub(super) fn end_sending(&mut self) {
        if let Some(ring) = &mut self.ring {
            // An error is a violation of the ring's protocol. The end of the pair does not need the ring.
            let _ = self.outbound.end(ring);
        }
    }

    /// Begins or ends the capture of the blocks that this link sends.
    pub(super) fn capture_blocks(&mut self, captures: bool) {
        self.settings.captures = captures;
        self.outbound.capture(captures);
    }

    /// Sends like [`Sender::transmit`], but over the modelled link if there is one.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    #[inline]
    pub(crate) fn transmit_at<S: Source>(&mut self, at: Instant, source: &mut S) -> Result<bool, Violation> {
        if self.wire.is_none() {
            return self.transmit(source);
        }
        self.transmit_over_wire(at, source)
    }

    #[inline(never)]
    fn transmit_over_wire<S: Source>(&mut self, at: Instant, source: &mut S) -> Result<bool, Violation> {
        let Some(mut wire) = self.wire.take() else { return Ok(false) };
        let sent = match &mut wire {
            Wire::Packets(packets) => self.transmit_over(packets, at, source),
            Wire::Channel(channel) => self.transmit_blocks(channel, at, source),
        };
        self.wire = Some(wire);
        sent
    }

    fn transmit_blocks<S: Source>(
        &mut self,
        channel: &mut Channel,
        at: Instant,
        source: &mut S,
    ) -> Result<bool, Violation> {
        let Some(ring) = &mut self.ring else { return Ok(false) };
        let has_ended = self.outbound.end_block(ring, at)?;
        let sent = self.transmit(source)?;
        if let Some((bytes, ns)) = self.outbound.begin_block(&channel.link, at) {
            channel.blocks += 1;
            channel.bytes += bytes;
            channel.busy_ns += ns;
        }
        if self.waits_for_channel() {
            // Packets wait for the channel, and not for a buffer.
            self.awaited = 0;
        }
        Ok(has_ended || sent)
    }

    fn transmit_over<S: Source>(&mut self, wire: &mut Packets, at: Instant, source: &mut S) -> Result<bool, Violation> {
        if self.ring.is_none() {
            return Ok(false);
        }
        if self.is_quiesced {
            self.is_dirty = false;
            return Ok(self.deliver(wire, at)? > 0);
        }
        let mut count = 0;
        while let Some(bytes) = self.backlog.pop() {
            wire.offer(at, bytes);
            count += 1;
        }
        self.backpressure = false;
        let mut taken = 0;
        while taken < TRANSMIT_AT_ONCE_MAX {
            let mut bytes = vec![0; source.bytes_max()];
            let Some(packet) = source.build(&mut bytes).filter(|packet| packet.len > 0) else { break };
            bytes.truncate(packet.len);
            wire.offer(at, bytes);
            taken += 1;
        }
        let arrived = self.deliver(wire, at)?;
        self.is_dirty = taken == TRANSMIT_AT_ONCE_MAX;
        Ok(count + taken + arrived > 0)
    }

    /// Writes the packets that have arrived to the ring. Returns their number.
    fn deliver(&mut self, wire: &mut Packets, at: Instant) -> Result<usize, Violation> {
        let drops = self.drops();
        let Some(ring) = &mut self.ring else { return Ok(0) };
        let (mut full, mut count) = (false, 0);
        while let Some(bytes) = wire.take(at) {
            let packet = Transmit { len: bytes.len(), marks: Marks::default() };
            match self
                .outbound
                .send(ring, &mut Whole { packet, fill: |into: &mut [u8]| siga_stack::copy(&bytes, into) })?
            {
                Sent::Packet => {}
                Sent::Nothing => self.counters.too_long += 1,
                Sent::Full if drops => ring.count_target_full(),
                Sent::Full => {
                    ring.count_pending();
                    (wire.arrived, full) = (Some(bytes), true);
                    break;
                }
            }
            count += 1;
        }
        let held = self.outbound.flush(ring)?;
        self.awaited = if full { 1 } else { held };
        Ok(count)
    }

    /// Returns the time at which the next packet or block arrives at the end of the modelled link. `None` also if packets wait there for
    /// an empty buffer, or if there is no ring.
    fn next_arrival(&self) -> Option<Instant> {
        match self.wire.as_ref().filter(|_| self.ring.is_some())? {
            Wire::Packets(packets) if packets.arrived.is_none() => packets.emulator.next_due(),
            Wire::Packets(_) => None,
            Wire::Channel(_) => self.outbound.block_due(),
        }
    }

    /// Returns whether a block is on the channel. Packets then wait for it, and not for a buffer.
    pub(super) fn waits_for_channel(&self) -> bool {
        self.outbound.block_due().is_some()
    }

    /// Returns whether packets are on the modelled link.
    pub(super) fn is_on_wire(&self) -> bool {
        match &self.wire {
            Some(Wire::Packets(packets)) => packets.arrived.is_some() || packets.emulator.next_due().is_some(),
            // The packets of a block are those of the device.
            Some(Wire::Channel(_)) | None => false,
        }
    }

    /// Loses the packets on the modelled link, because the ring pair ends.
    pub(super) fn lose_wire(&mut self) {
        if let Some(Wire::Packets(packets)) = &mut self.wire {
            packets.emulator.lose_all();
            packets.arrived = None;
        }
    }

    pub(super) fn add_wire_counters(&self, counters: &mut Counters) {
        match &self.wire {
            Some(Wire::Packets(packets)) => packets.emulator.counters.add_to("link_from_station", counters),
            Some(Wire::Channel(channel)) => {
                let Channel { link: _, blocks, bytes, busy_ns } = **channel;
                let own = [("channel_blocks", blocks), ("channel_bytes", bytes), ("channel_busy_ns", busy_ns)];
                counters::add(counters, &counters::named(own));
            }
            None => {}
        }
    }
}

impl Links {
    /// Returns the time at which the next packet arrives at the end of a modelled link.
    pub(crate) fn next_arrival(&self) -> Option<Instant> {
        self.wired.iter().filter_map(|link| self.senders[*link].next_arrival()).min()
    }

    /// Marks the links over which packets have arrived, so that the next transmission writes them to the rings.
    pub(crate) fn mark_arrivals(&mut self, at: Instant) {
        for place in 0..self.wired.len() {
            let link = self.wired[place];
            if self.senders[link].next_arrival().is_some_and(|due| due <= at) {
                self.senders[link].is_dirty = true;
            }
        }
    }
}
