//! Devices on an ESCON channel, which is modelled: a real channel-to-channel adapter (CTC), whose blocks are those of the virtual CTC, and
//! CLAW.
//!
//! A block keeps the channel busy for the time of its bytes and the latency of the channel. Meanwhile packets wait in the stack, and then
//! fill the next block. The block stays in the ring buffer in which it was filled, and is committed when it has arrived. So a real CTC
//! takes the same CPU time for a block as a virtual one.

use super::blocks::{self, Format};
use super::{Sent, Source};
use siga_model::link::Link;
use siga_ring::{Producer, Violation};
use siga_stack::time::Instant;

#[derive(Debug)]
pub(crate) struct Outbound<F> {
    pub(super) block: blocks::Outbound<F>,
    /// When the block that is on the channel has arrived. `None` if the channel is free.
    due: Option<Instant>,
}

impl<F: Format> Outbound<F> {
    pub(super) fn new(block: blocks::Outbound<F>) -> Self {
        Self { block, due: None }
    }

    pub(super) fn send<S: Source>(&mut self, ring: &mut Producer, source: &mut S) -> Result<Sent, Violation> {
        let need = source.bytes_max();
        if need == 0 {
            return Ok(Sent::Nothing);
        }
        if self.due.is_some() || (self.block.filled() > 0 && !self.block.takes(need)) {
            return Ok(Sent::Full);
        }
        self.block.send(ring, source)
    }

    /// Sends messages, which take no time. Blocks begin and end their way with the methods that know the time.
    pub(super) fn flush(&mut self, ring: &mut Producer) -> Result<usize, Violation> {
        let is_done = self.block.send_messages(ring)? || self.block.filled() > 0;
        Ok(usize::from(!is_done))
    }

    /// Publishes the block on the channel if it has arrived by now. Returns whether it has.
    ///
    /// # Errors
    /// Returns a [`Violation`] if the partner broke the ring's protocol.
    pub(crate) fn end_block(&mut self, ring: &mut Producer, at: Instant) -> Result<bool, Violation> {
        if self.due.take_if(|due| *due <= at).is_none() {
            return Ok(false);
        }
        self.block.close(ring)?;
        ring.publish();
        Ok(true)
    }

    /// Puts the block that has been filled on the channel. Returns its bytes, and the time in nanoseconds for which it keeps the channel
    /// busy. `None` if no block begins its way.
    pub(crate) fn begin_block(&mut self, link: &Link, at: Instant) -> Option<(u64, u64)> {
        let bytes = self.block.filled() as u64;
        if bytes == 0 || self.due.is_some() {
            return None;
        }
        let ns = link.time_on_wire_ns(bytes).saturating_add(link.latency_ns);
        self.due = Some(Instant::from_ns(at.as_ns().saturating_add(ns)));
        Some((bytes, ns))
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}
