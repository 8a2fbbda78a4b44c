//! Frames that arrive and leave.
//!
//! A received frame has a header in the stack's private memory, and a payload that may lie in memory which its sender can still
//! write. The payload is read once, by a copy. Marks travel with a frame over links whose ends agreed to them.

use crate::copy;
use crate::wire::checksum::Sum;
use smoltcp::wire::{EthernetFrame, EthernetProtocol};
use std::fmt;
use std::sync::Arc;

/// A device of a stack, numbered in the order in which devices were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u16);

/// The bytes of a received frame behind its header.
pub trait Payload {
    /// The number of bytes. The stack calls it once for a frame.
    fn len(&self) -> usize;

    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `at` on to fill `into`. The stack never asks for more than there are.
    fn copy_to(&self, at: usize, into: &mut [u8]);

    /// The bytes themselves, if they lie in memory that no other process can write.
    fn private(&self) -> Option<&[u8]> {
        None
    }

    /// Retains the bytes from `at` on where they lie until they are read, if that is possible. Returns how many bytes at the front
    /// are to be copied instead, and the retained rest.
    fn retain(&self, _at: usize, _len: usize) -> Option<(usize, Arc<dyn Retained>)> {
        None
    }
}

/// Bytes of a frame that stay where they are until this value is dropped.
pub trait Retained: fmt::Debug + Send + Sync {
    /// Copies the bytes from `at` on to fill `into`. The stack never asks for more than there are.
    fn copy_to(&self, at: usize, into: &mut [u8]);
}

impl Payload for [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_to(&self, at: usize, into: &mut [u8]) {
        copy(&self[at..at + into.len()], into);
    }

    fn private(&self) -> Option<&[u8]> {
        Some(self)
    }
}

/// Bytes of a payload copied at a time to be summed: even, and well inside the first cache.
const CHUNK_BYTES: usize = 2048;

/// A sum with the bytes of a payload from `at` up to `end`.
#[inline]
pub(crate) fn sum_payload<P: Payload + ?Sized>(mut sum: Sum, payload: &P, mut at: usize, end: usize) -> Sum {
    if let Some(bytes) = payload.private() {
        return sum.bytes(&bytes[at..end]);
    }
    let mut chunk = [0; CHUNK_BYTES];
    while at < end {
        let count = CHUNK_BYTES.min(end - at);
        payload.copy_to(at, &mut chunk[..count]);
        sum = sum.bytes(&chunk[..count]);
        at += count;
    }
    sum
}

/// What both ends of a link know about a frame besides its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The checksum of TCP or UDP is not filled in, because the frame has not left the host's memory. The first device whose link
    /// did not agree to this mark fills it in.
    pub checksum_unfilled: bool,
    /// A TCP segment larger than the MTU: it is cut into segments with this many bytes of payload where the next link does not
    /// accept it whole. 0: an ordinary frame.
    pub segment_bytes: u16,
}

/// A frame as its link hands it over.
#[derive(Debug)]
pub struct Received<'a, P: ?Sized> {
    /// The first [`crate::limits::HEADER_BYTES_MAX`] bytes of the frame, or all of a shorter frame, in private memory.
    pub header: &'a [u8],
    /// The rest.
    pub payload: &'a P,
    /// What the link's ends know besides the bytes.
    pub marks: Marks,
}

impl<P: ?Sized> Clone for Received<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Received<'_, P> {}

impl<'a, P: ?Sized> Received<'a, P> {
    /// A frame without marks.
    pub fn unmarked(header: &'a [u8], payload: &'a P) -> Self {
        Self { header, payload, marks: Marks::default() }
    }
}

/// An IP packet inside a received frame. Offsets count from the packet's first byte.
pub(crate) struct Packet<'a, P: ?Sized> {
    pub(crate) frame: &'a [u8],
    pub(crate) payload: &'a P,
    /// The payload's length, read once.
    pub(crate) payload_bytes: usize,
    /// Bytes of the frame before the packet.
    pub(crate) link_bytes: usize,
    pub(crate) marks: Marks,
    pub(crate) device: DeviceId,
    /// The device whose source filter applies; another than `device` where that stands for several links.
    pub(crate) link: DeviceId,
    /// The frame was sent to several stations.
    pub(crate) to_group: bool,
}

impl<P: ?Sized> Clone for Packet<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Packet<'_, P> {}

impl<P: ?Sized> fmt::Debug for Packet<'_, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes behind {:?}, {:?}", self.payload_bytes, self.frame, self.marks)
    }
}

impl<'a, P: Payload + ?Sized> Packet<'a, P> {
    /// The part of the packet in private memory.
    pub(crate) fn header(&self) -> &'a [u8] {
        &self.frame[self.link_bytes..]
    }

    /// The protocol behind the link header of a frame that was accepted.
    #[inline]
    pub(crate) fn protocol(&self) -> EthernetProtocol {
        if self.link_bytes > 0 {
            return EthernetFrame::new_unchecked(self.frame).ethertype();
        }
        if self.frame[0] >> 4 == 4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 }
    }

    /// Bytes behind the link header: the packet and its padding.
    pub(crate) fn len(&self) -> usize {
        self.frame.len() - self.link_bytes + self.payload_bytes
    }

    /// The packet up to `end`, behind `room` zeros.
    pub(crate) fn copy(&self, room: usize, end: usize) -> Vec<u8> {
        let own = self.header();
        let mut bytes = vec![0; room + end];
        let inside = own.len().min(end);
        bytes[room..room + inside].copy_from_slice(&own[..inside]);
        if end > inside {
            self.payload.copy_to(0, &mut bytes[room + inside..]);
        }
        bytes
    }

    /// A sum with the bytes of the packet from `at` up to `end`.
    pub(crate) fn sum(&self, sum: Sum, at: usize, end: usize) -> Sum {
        let own = self.header();
        let split = own.len().clamp(at, end);
        let behind = |place: usize| place - own.len();
        if split == end {
            return sum.bytes(&own[at..end]);
        }
        if split == at {
            return sum_payload(sum, self.payload, behind(at), behind(end));
        }
        if (split - at).is_multiple_of(2) {
            return sum_payload(sum.bytes(&own[at..split]), self.payload, 0, behind(end));
        }
        let mut straddling = [own[split - 1], 0];
        self.payload.copy_to(0, &mut straddling[1..]);
        sum_payload(sum.bytes(&own[at..split - 1]).bytes(&straddling), self.payload, 1, behind(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A payload in memory that its sender may still write.
    struct Shared<'a>(&'a [u8]);

    impl Payload for Shared<'_> {
        fn len(&self) -> usize {
            self.0.len()
        }

        fn copy_to(&self, at: usize, into: &mut [u8]) {
            self.0.copy_to(at, into);
        }
    }

    #[test]
    fn a_checksum_does_not_depend_on_how_a_frame_is_split() {
        let bytes: Vec<u8> = (0..5001_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let whole = Sum::default().bytes(&bytes);
        let head = Sum::default().bytes(&bytes[..34]);
        assert_eq!(sum_payload(head, &bytes[..], 34, 5001).checksum(), whole.checksum());
        assert_eq!(sum_payload(head, &Shared(&bytes), 34, 5001).checksum(), whole.checksum());
        let by_words = bytes.chunks(2).fold(Sum::default(), |sum, word| sum.bytes(word));
        assert_eq!(by_words.checksum(), whole.checksum());
    }
}
