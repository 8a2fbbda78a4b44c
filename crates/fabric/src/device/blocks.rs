//! Blocks: buffers with several packets, each behind a header. While one block is in flight, packets are collected for the next block.
//!
//! All devices that send blocks share this code. They differ in their [`Format`]: the headers, and the messages with which the two sides
//! begin. Neither side sends a packet before both are ready.

pub(crate) mod claw;
pub(crate) mod ctc;
pub(crate) mod lcs;
pub(crate) mod netiucv;

use super::{Inside, Part, Sent, Source, violation};
use siga_ring::{Frame, Producer, Violation};
use siga_stack::link::frame::Marks;
use std::fmt::Debug;

/// Length of the longest message that is not a packet, in bytes.
pub(crate) const MESSAGE_BYTES_MAX: usize = 64;

/// The bytes of a block, which another process can write.
pub(crate) trait Bytes {
    /// Returns the number of bytes.
    fn len(&self) -> usize;

    /// Copies bytes from the offset `at` on, until `into` is full. The caller requests no bytes beyond the end.
    fn copy_to(&self, at: usize, into: &mut [u8]);
}

impl Bytes for Frame<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.len()
    }

    #[inline]
    fn copy_to(&self, at: usize, into: &mut [u8]) {
        self.copy_to(at, into);
    }
}

impl Bytes for [u8] {
    fn len(&self) -> usize {
        self.len()
    }

    fn copy_to(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self[at..at + into.len()]);
    }
}

/// The format of the blocks of a connectivity type, and the state of the messages with which its two sides begin.
pub(crate) trait Format: Debug {
    /// The number of the format in captures.
    const NUMBER: u8;
    /// Number of bytes before the header of the first packet.
    const BEGIN_BYTES: usize;
    /// Length of the header of a packet, in bytes.
    const HEADER_BYTES: usize;
    /// Number of bytes behind the last packet.
    const END_BYTES: usize;

    /// Writes the header of a packet. `next` is the offset in the block at which the packet ends.
    fn write_header(header: &mut [u8], next: usize, packet_bytes: usize, marks: Marks);

    /// Completes a block whose packets end at the offset `fill`.
    fn complete(block: &mut [u8], fill: usize);

    /// Returns the next packet or message of a received block. `at` is how many of its bytes were already read, and `end` is where the
    /// block ends. The method advances `at`. For the first one, it sets `end`.
    fn next<B: Bytes + ?Sized>(block: &B, tag: u64, end: &mut usize, at: &mut usize) -> Inside;

    /// Returns whether packets can be sent.
    fn is_open(&self) -> bool;

    /// Returns whether a message is to be sent.
    fn has_message(&self) -> bool;

    /// Writes a block with the next message. Returns its length in bytes, and the tag of its frame.
    fn write_message(&mut self, block: &mut [u8]) -> (usize, u64);

    /// Acts on a message of the other side.
    fn receive(&mut self, message: &[u8]);

    /// Prepares a message that this side sends nothing more, if the type has one.
    fn end(&mut self) {}

    /// Returns what the type counts itself.
    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// The sending half of a device with blocks.
#[derive(Debug)]
pub(crate) struct Outbound<F> {
    block_bytes: usize,
    /// How many bytes of the current block are filled. 0 if no block is being filled.
    fill: usize,
    format: F,
    /// The blocks that were sent since the last look of a capture. `None` if no capture runs.
    captured: Option<Vec<Captured>>,
}

/// A captured block: its bytes and the tag of its frame.
pub(crate) type Captured = (Vec<u8>, u64);

impl<F: Format> Outbound<F> {
    pub(super) fn new(block_bytes: u32, format: F) -> Self {
        Self { block_bytes: usize::try_from(block_bytes).unwrap_or(usize::MAX), fill: 0, format, captured: None }
    }

    /// Completes the block that is being filled, if there is one, and commits it to the ring.
    pub(super) fn close(&mut self, ring: &mut Producer) -> Result<(), Violation> {
        if self.fill == 0 {
            return Ok(());
        }
        // The block was not committed yet, so `reserve` returns the same memory again.
        if let Some(block) = ring.reserve(self.block_bytes).map_err(violation)? {
            F::complete(block, self.fill);
            if let Some(captured) = &mut self.captured {
                captured.push((block[..self.fill + F::END_BYTES].to_vec(), 0));
            }
            ring.commit(self.fill + F::END_BYTES, 0);
            self.fill = 0;
        }
        Ok(())
    }

    /// Sends the messages that are to be sent, unless a block is being filled. Returns whether they have been sent.
    pub(super) fn send_messages(&mut self, ring: &mut Producer) -> Result<bool, Violation> {
        while self.fill == 0 && self.format.has_message() {
            let Some(block) = ring.reserve(self.block_bytes).map_err(violation)? else { return Ok(false) };
            let (bytes, tag) = self.format.write_message(block);
            if let Some(captured) = &mut self.captured {
                captured.push((block[..bytes].to_vec(), tag));
            }
            ring.commit(bytes, tag);
            ring.publish();
        }
        Ok(!self.format.has_message())
    }

    #[inline]
    pub(super) fn send<S: Source>(&mut self, ring: &mut Producer, source: &mut S) -> Result<Sent, Violation> {
        if !self.is_open() {
            return Ok(Sent::Full);
        }
        let need = source.bytes_max();
        if need == 0 {
            return Ok(Sent::Nothing);
        }
        if !self.takes(need) {
            self.close(ring)?;
        }
        let Some(block) = ring.reserve(self.block_bytes).map_err(violation)? else { return Ok(Sent::Full) };
        let at = self.next_packet_at();
        let end = block.len() - F::END_BYTES;
        let Some(built) = source.build(&mut block[at..end]) else { return Ok(Sent::Nothing) };
        self.fill = at + built.len;
        F::write_header(&mut block[at - F::HEADER_BYTES..at], self.fill, built.len, built.marks);
        Ok(Sent::Packet)
    }

    pub(super) fn flush(&mut self, ring: &mut Producer) -> Result<usize, Violation> {
        // While a block is in flight, packets are collected for the next block.
        if self.fill > 0 && ring.in_flight()? > 0 {
            return Ok(ring.shape().buffer_count());
        }
        self.close(ring)?;
        ring.publish();
        Ok(if self.format.has_message() && !self.send_messages(ring)? { 1 } else { 0 })
    }

    /// Returns how many bytes of the current block are filled.
    pub(super) fn filled(&self) -> usize {
        self.fill
    }

    /// Returns whether a packet of this length has room in the current block.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.next_packet_at() + bytes + F::END_BYTES <= self.block_bytes
    }

    /// Returns the place of the next packet in the current block.
    fn next_packet_at(&self) -> usize {
        self.fill.max(F::BEGIN_BYTES) + F::HEADER_BYTES
    }

    pub(super) fn receive(&mut self, message: &[u8]) {
        self.format.receive(message);
    }

    /// Sends a message that this side sends nothing more, if the type has such a message.
    pub(super) fn end(&mut self, ring: &mut Producer) -> Result<(), Violation> {
        self.format.end();
        self.send_messages(ring).map(|_| ())
    }

    /// Begins or ends the capture of blocks that are sent.
    pub(super) fn capture(&mut self, captures: bool) {
        self.captured = captures.then(Vec::new);
    }

    /// Returns the number of the format, and the blocks that were sent since the last call.
    pub(super) fn take_captured(&mut self) -> (u8, Vec<Captured>) {
        (F::NUMBER, self.captured.as_mut().map(std::mem::take).unwrap_or_default())
    }

    pub(super) fn is_open(&self) -> bool {
        self.format.is_open()
    }

    pub(super) fn packet_bytes_max(&self) -> usize {
        self.block_bytes - F::BEGIN_BYTES - F::HEADER_BYTES - F::END_BYTES
    }

    pub(super) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.format.counters()
    }
}

/// The receiving half of a device with blocks. Contains the offset in the frame at which the block that is being read ends.
#[derive(Debug, Default)]
pub(crate) struct Inbound(pub(super) usize);

/// Converts a number to the two bytes of a header field. A number above 65,535 becomes 65,535.
fn word(value: usize) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes()
}

/// Reads the next header of a block in which each header begins with the offset of the next one. Zero instead of an offset ends the block.
/// Returns the header, and the part behind it. Returns [`Inside::End`] at the end of the block, and [`Inside::Malformed`] for a wrong header.
fn next_in_chain<B: Bytes + ?Sized, const HEADER_BYTES: usize>(
    block: &B,
    end: usize,
    at: &mut usize,
) -> Result<([u8; HEADER_BYTES], Part), Inside> {
    let mut header = [0; HEADER_BYTES];
    let left = end.saturating_sub(*at).min(HEADER_BYTES);
    if left < 2 {
        return Err(Inside::Malformed);
    }
    block.copy_to(*at, &mut header[..left]);
    let next = usize::from(u16::from_be_bytes([header[0], header[1]]));
    if next == 0 {
        return Err(Inside::End);
    }
    let begin = *at + HEADER_BYTES;
    if left < HEADER_BYTES || next <= begin || next > end {
        return Err(Inside::Malformed);
    }
    *at = next;
    Ok((header, Part { at: begin, len: next - begin, marks: Marks::default() }))
}
