//! Modelled links between two guests: the sending guest holds each packet until it has arrived, and then writes it to the ring.
//!
//! The partner's ring is the end of the link. While it has no empty buffer, packets that have arrived wait on the link.

use super::peer_link::{Links, Sender};
use crate::counters::Counters;
use crate::device::{Sent, Source, Whole};
use crate::emulator::{Emulator, Held};
use crate::limits::TRANSMIT_AT_ONCE_MAX;
use crate::protocol::message::{GuestDevice, OutboundLink};
use siga_ring::Violation;
use siga_stack::link::frame::Marks;
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;

/// A modelled link, in the direction in which this guest sends.
#[derive(Debug)]
pub(super) struct Wire {
    emulator: Emulator<()>,
    /// A packet that has arrived while the partner had no empty buffer.
    arrived: Option<Vec<u8>>,
}

impl Wire {
    pub(super) fn of(device: &GuestDevice) -> Option<Box<Self>> {
        let OutboundLink { link, stream } = device.link.clone()?;
        Some(Box::new(Self { emulator: Emulator::new(link, stream), arrived: None }))
    }

    fn offer(&mut self, at: Instant, bytes: Vec<u8>) {
        // The emulator counts lost packets.
        let _ = self.emulator.offer(at, Held { bytes, tag: () });
    }

    fn take(&mut self, at: Instant) -> Option<Vec<u8>> {
        self.arrived.take().or_else(|| self.emulator.take(at).map(|held| held.bytes))
    }
}

impl Sender {
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
        let sent = self.transmit_over(&mut wire, at, source);
        self.wire = Some(wire);
        sent
    }

    fn transmit_over<S: Source>(&mut self, wire: &mut Wire, at: Instant, source: &mut S) -> Result<bool, Violation> {
        if self.ring.is_none() || self.is_quiesced {
            return Ok(false);
        }
        let mut count = 0;
        while let Some((bytes, _)) = self.backlog.pop_front() {
            self.backlog_bytes -= bytes.len();
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
    fn deliver(&mut self, wire: &mut Wire, at: Instant) -> Result<usize, Violation> {
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

    /// Returns the time at which the next packet arrives at the end of the modelled link. `None` also if packets wait there for an
    /// empty buffer, or if there is no ring.
    fn next_arrival(&self) -> Option<Instant> {
        let wire = self.wire.as_ref().filter(|wire| self.ring.is_some() && wire.arrived.is_none())?;
        wire.emulator.next_due()
    }

    /// Loses the packets on the modelled link, because the ring pair ends.
    pub(super) fn lose_wire(&mut self) {
        if let Some(wire) = &mut self.wire {
            wire.emulator.lose_all();
            wire.arrived = None;
        }
    }

    pub(super) fn add_wire_counters(&self, counters: &mut Counters) {
        if let Some(wire) = &self.wire {
            wire.emulator.counters.add_to("link_from_station", counters);
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
