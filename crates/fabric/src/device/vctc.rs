//! The virtual channel-to-channel adapter (CTC), a point-to-point connection between two guests. It sends *blocks*, and each block
//! contains several *segments* (packets with a header). While one block is in flight, packets are collected for the next block.
//!
//! A block is a length field of two bytes, followed by segments. A segment is a header of six bytes, followed by a packet. The
//! header has three fields of two bytes: the segment's length including the header, its type, and a third field. On a real channel
//! the third field is zero. Between two guests of siga, it is the TCP segment size of a packet that is larger than the MTU and is
//! cut later. A type that is one higher than the normal type means that the packet's checksum is not filled in. A block without
//! segments is a *hello*. Neither side sends a packet before it has received the other side's hello.

use super::{Inside, Part, Sent, Source, violation};
use siga_ring::{Frame, Producer, Violation};
use siga_stack::link::frame::Marks;

const BLOCK_HEADER_BYTES: usize = 2;
const SEGMENT_HEADER_BYTES: usize = 6;
/// The normal type of a segment. IPv4 and IPv6 have the same type, because the packet itself contains the IP version.
const TYPE_IP: u16 = 0x0800;
/// The type of a segment whose packet has a TCP or UDP checksum that is not filled in.
const TYPE_IP_UNFILLED: u16 = TYPE_IP + 1;

#[derive(Debug)]
pub(crate) struct Outbound {
    block_bytes: usize,
    /// How many bytes of the current block are filled. 0 if no block is being filled.
    fill: usize,
    sent_hello: bool,
    received_hello: bool,
}

impl Outbound {
    pub(super) fn new(buffer: u32) -> Self {
        let block_bytes = usize::try_from(buffer).unwrap_or(usize::MAX);
        Self { block_bytes, fill: 0, sent_hello: false, received_hello: false }
    }

    /// Completes the block that is being filled, if there is one: writes its length field and commits it to the ring.
    pub(super) fn close(&mut self, ring: &mut Producer) -> Result<(), Violation> {
        if self.fill == 0 {
            return Ok(());
        }
        // The block was not committed yet, so `reserve` returns the same memory again.
        if let Some(block) = ring.reserve(self.block_bytes).map_err(violation)? {
            block[..BLOCK_HEADER_BYTES].copy_from_slice(&word(self.fill));
            ring.commit(self.fill, 0);
            self.fill = 0;
        }
        Ok(())
    }

    pub(super) fn say_hello(&mut self, ring: &mut Producer) -> Result<(), Violation> {
        if let Some(block) = ring.reserve(self.block_bytes).map_err(violation)? {
            block[..BLOCK_HEADER_BYTES].copy_from_slice(&word(BLOCK_HEADER_BYTES));
            ring.commit(BLOCK_HEADER_BYTES, 0);
            self.sent_hello = true;
        }
        Ok(())
    }
}

/// Converts a number to the two bytes of a header field. A number above 65,535 becomes 65,535.
fn word(value: usize) -> [u8; 2] {
    u16::try_from(value).unwrap_or(u16::MAX).to_be_bytes()
}

impl Outbound {
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
        let Some(built) = source.build(&mut block[at..]) else { return Ok(Sent::Nothing) };
        write_header(&mut block[at - SEGMENT_HEADER_BYTES..at], built.len, built.marks);
        self.fill = at + built.len;
        Ok(Sent::Packet)
    }

    pub(super) fn flush(&mut self, ring: &mut Producer) -> Result<usize, Violation> {
        if !self.sent_hello {
            self.say_hello(ring)?;
        }
        // While a block is in flight, packets are collected for the next block.
        if self.fill > 0 && ring.in_flight()? > 0 {
            return Ok(ring.shape().buffer_count());
        }
        self.close(ring)?;
        ring.publish();
        Ok(0)
    }

    pub(super) fn has_sent_hello(&self) -> bool {
        self.sent_hello
    }

    /// Returns how many bytes of the current block are filled.
    pub(super) fn filled(&self) -> usize {
        self.fill
    }

    /// Returns whether a packet of this length has room in the current block.
    pub(super) fn takes(&self, bytes: usize) -> bool {
        self.next_packet_at() + bytes <= self.block_bytes
    }

    /// Returns the place of the next packet in the current block.
    fn next_packet_at(&self) -> usize {
        self.fill.max(BLOCK_HEADER_BYTES) + SEGMENT_HEADER_BYTES
    }

    pub(super) fn partner_ready(&mut self) {
        self.received_hello = true;
    }

    pub(super) fn is_open(&self) -> bool {
        self.sent_hello && self.received_hello
    }

    pub(super) fn packet_bytes_max(&self) -> usize {
        self.block_bytes - BLOCK_HEADER_BYTES - SEGMENT_HEADER_BYTES
    }
}

fn write_header(header: &mut [u8], bytes: usize, marks: Marks) {
    header[..2].copy_from_slice(&word(bytes + SEGMENT_HEADER_BYTES));
    let kind = if marks.checksum_unfilled { TYPE_IP_UNFILLED } else { TYPE_IP };
    header[2..4].copy_from_slice(&kind.to_be_bytes());
    header[4..6].copy_from_slice(&marks.segment_bytes.to_be_bytes());
}

#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// The offset in the frame at which the block that is being read ends.
    end: usize,
}

impl Inbound {
    pub(super) fn next(&mut self, frame: &Frame<'_>, at: &mut usize) -> Inside {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        let mut has_header = false;
        if *at == 0 {
            let mut length = [0; BLOCK_HEADER_BYTES];
            let mut both = [0; BLOCK_HEADER_BYTES + SEGMENT_HEADER_BYTES];
            if frame.len() >= both.len() {
                // One copy for both headers: the cost of a short copy does not depend on its length.
                frame.copy_to(0, &mut both);
                length.copy_from_slice(&both[..BLOCK_HEADER_BYTES]);
                header.copy_from_slice(&both[BLOCK_HEADER_BYTES..]);
                has_header = true;
            } else if frame.len() >= length.len() {
                frame.copy_to(0, &mut length);
            } else {
                return Inside::Malformed;
            }
            self.end = usize::from(u16::from_be_bytes(length));
            if self.end < BLOCK_HEADER_BYTES || self.end > frame.len() {
                return Inside::Malformed;
            }
            *at = BLOCK_HEADER_BYTES;
            if self.end == BLOCK_HEADER_BYTES {
                return Inside::Hello;
            }
        }
        let left = self.end - *at;
        if left == 0 {
            return Inside::End;
        }
        if left <= header.len() {
            return Inside::Malformed;
        }
        if !has_header {
            frame.copy_to(*at, &mut header);
        }
        let field = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let (length, kind, segment_bytes) = (usize::from(field(0)), field(2), field(4));
        if length <= header.len() || length > left || !matches!(kind, TYPE_IP | TYPE_IP_UNFILLED) {
            return Inside::Malformed;
        }
        let marks = Marks { checksum_unfilled: kind == TYPE_IP_UNFILLED, segment_bytes };
        let part = Part { at: *at + header.len(), len: length - header.len(), marks };
        *at += length;
        Inside::Packet(part)
    }
}
