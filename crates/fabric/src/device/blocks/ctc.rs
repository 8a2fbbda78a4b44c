//! The blocks of a channel-to-channel adapter (CTC), a point-to-point connection between two guests. They contain *segments* (packets
//! with a header).
//!
//! A block is a length field of two bytes, followed by segments. A segment is a header of six bytes, followed by a packet. The
//! header has three fields of two bytes: the segment's length including the header, its type, and a third field. On a real channel
//! the third field is zero. Between two guests of siga, it is the TCP segment size of a packet that is larger than the MTU and is
//! cut later. A type that is one higher than the normal type means that the packet's checksum is not filled in. A block without
//! segments is a *hello*. Neither side sends a packet before it has received the other side's hello.

use super::{Bytes, Format, Inside, word};
use crate::device::Part;
use siga_stack::link::frame::Marks;

const BLOCK_HEADER_BYTES: usize = 2;
const SEGMENT_HEADER_BYTES: usize = 6;
/// The normal type of a segment. IPv4 and IPv6 have the same type, because the packet itself contains the IP version.
const TYPE_IP: u16 = 0x0800;
/// The type of a segment whose packet has a TCP or UDP checksum that is not filled in.
const TYPE_IP_UNFILLED: u16 = TYPE_IP + 1;

/// A CTC: whether each side has sent its hello.
#[derive(Debug, Default)]
pub(crate) struct Ctc {
    sent_hello: bool,
    received_hello: bool,
}

impl Format for Ctc {
    const NUMBER: u8 = 1;
    const BEGIN_BYTES: usize = BLOCK_HEADER_BYTES;
    const HEADER_BYTES: usize = SEGMENT_HEADER_BYTES;
    const END_BYTES: usize = 0;

    #[inline]
    fn write_header(header: &mut [u8], _: usize, bytes: usize, marks: Marks) {
        header[..2].copy_from_slice(&word(bytes + SEGMENT_HEADER_BYTES));
        let kind = if marks.checksum_unfilled { TYPE_IP_UNFILLED } else { TYPE_IP };
        header[2..4].copy_from_slice(&kind.to_be_bytes());
        header[4..6].copy_from_slice(&marks.segment_bytes.to_be_bytes());
    }

    #[inline]
    fn complete(block: &mut [u8], fill: usize) {
        block[..BLOCK_HEADER_BYTES].copy_from_slice(&word(fill));
    }

    #[inline]
    fn next<B: Bytes + ?Sized>(block: &B, _: u64, end: &mut usize, at: &mut usize) -> Inside {
        let mut header = [0; SEGMENT_HEADER_BYTES];
        let mut has_header = false;
        if *at == 0 {
            let mut length = [0; BLOCK_HEADER_BYTES];
            let mut both = [0; BLOCK_HEADER_BYTES + SEGMENT_HEADER_BYTES];
            if block.len() >= both.len() {
                // One copy for both headers: the cost of a short copy does not depend on its length.
                block.copy_to(0, &mut both);
                length.copy_from_slice(&both[..BLOCK_HEADER_BYTES]);
                header.copy_from_slice(&both[BLOCK_HEADER_BYTES..]);
                has_header = true;
            } else if block.len() >= length.len() {
                block.copy_to(0, &mut length);
            } else {
                return Inside::Malformed;
            }
            *end = usize::from(u16::from_be_bytes(length));
            if *end < BLOCK_HEADER_BYTES || *end > block.len() {
                return Inside::Malformed;
            }
            *at = BLOCK_HEADER_BYTES;
            if *end == BLOCK_HEADER_BYTES {
                return Inside::Message(Part { at: *at, len: 0, marks: Marks::default() });
            }
        }
        let left = *end - *at;
        if left == 0 {
            return Inside::End;
        }
        if left <= header.len() {
            return Inside::Malformed;
        }
        if !has_header {
            block.copy_to(*at, &mut header);
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

    #[inline]
    fn is_open(&self) -> bool {
        self.sent_hello && self.received_hello
    }

    #[inline]
    fn has_message(&self) -> bool {
        !self.sent_hello
    }

    fn write_message(&mut self, block: &mut [u8]) -> (usize, u64) {
        self.sent_hello = true;
        Self::complete(block, BLOCK_HEADER_BYTES);
        (BLOCK_HEADER_BYTES, 0)
    }

    fn receive(&mut self, _: &[u8]) {
        self.received_hello = true;
    }
}
