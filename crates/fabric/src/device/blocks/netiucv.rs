//! The messages of point-to-point IUCV (netiucv), a path of z/VM's communication service between two guests.
//!
//! A message contains packets. Before each packet are two bytes with the offset in the message at which the next such field is. The
//! last field is zero. A message can be as large as the path's buffer; the last field does not count.
//!
//! A path is connected first. Each side sends 16 bytes of user data, which are always the same, and refuses others. On the hardware, a
//! connection and a message are different operations. Here the tag of the frame in the ring distinguishes them.

use super::{Bytes, Format, Inside, next_in_chain, word};
use crate::device::Part;
use siga_stack::link::frame::Marks;

const OFFSET_BYTES: usize = 2;
/// The user data of a connection: "0" and seven spaces, two times, in EBCDIC.
const USER_DATA: [u8; 16] =
    [0xf0, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0xf0, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40];
/// The tag of a frame that connects the path.
const CONNECT: u64 = 1;

/// A path: which sides have connected.
#[derive(Debug, Default)]
pub(crate) struct Netiucv {
    has_connected: bool,
    is_accepted: bool,
    refused: u64,
}

impl Format for Netiucv {
    const NUMBER: u8 = 2;
    const BEGIN_BYTES: usize = 0;
    const HEADER_BYTES: usize = OFFSET_BYTES;
    const END_BYTES: usize = OFFSET_BYTES;

    #[inline]
    fn write_header(header: &mut [u8], next: usize, _: usize, _: Marks) {
        header.copy_from_slice(&word(next));
    }

    #[inline]
    fn complete(block: &mut [u8], fill: usize) {
        block[fill..fill + OFFSET_BYTES].fill(0);
    }

    #[inline]
    fn next<B: Bytes + ?Sized>(block: &B, tag: u64, end: &mut usize, at: &mut usize) -> Inside {
        if *at == 0 {
            *end = block.len();
            if tag == CONNECT && *end == USER_DATA.len() {
                *at = *end;
                return Inside::Message(Part { at: 0, len: *end, marks: Marks::default() });
            }
        }
        if tag == CONNECT {
            return if *at == *end { Inside::End } else { Inside::Malformed };
        }
        match next_in_chain::<B, OFFSET_BYTES>(block, *end, at) {
            Ok((_, part)) => Inside::Packet(part),
            Err(none) => none,
        }
    }

    #[inline]
    fn is_open(&self) -> bool {
        self.has_connected && self.is_accepted
    }

    #[inline]
    fn has_message(&self) -> bool {
        !self.has_connected
    }

    fn write_message(&mut self, block: &mut [u8]) -> (usize, u64) {
        self.has_connected = true;
        block[..USER_DATA.len()].copy_from_slice(&USER_DATA);
        (USER_DATA.len(), CONNECT)
    }

    fn receive(&mut self, message: &[u8]) {
        if message == USER_DATA {
            self.is_accepted = true;
        } else {
            self.refused += 1;
        }
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        vec![("connect_refused", self.refused)]
    }
}
