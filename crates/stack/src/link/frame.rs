//! Received frames and their parts.
//!
//! The header of a received frame is in the stack's private memory. The payload may be in memory that its sender can still write,
//! so the stack reads each payload byte once, by a copy. Marks are facts about a frame, for example that its checksum is not
//! filled in. Marks cross a link together with the frame, if both ends of the link agreed to them.

use crate::copy;
use crate::wire::checksum::Sum;
use smoltcp::wire::{EthernetFrame, EthernetProtocol};
use std::fmt;
use std::sync::Arc;

/// Identifies a device of a stack. Devices are numbered in the order in which they were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u16);

/// The bytes of a received frame that follow its header.
pub trait Payload {
    /// Returns the number of bytes. The stack calls this method once for each frame.
    fn len(&self) -> usize;

    /// Returns whether the payload is empty.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies payload bytes, beginning at offset `at`, until `into` is full. The stack never requests bytes beyond the end of the
    /// payload.
    fn copy_to(&self, at: usize, into: &mut [u8]);

    /// Returns the payload as a slice, or `None` if another process can write to its memory.
    fn private(&self) -> Option<&[u8]> {
        None
    }

    /// Retains `len` bytes from offset `at` in their buffer until they are read. Returns how many of the first bytes must be
    /// copied instead, and the retained rest. Returns `None` if the bytes cannot be retained.
    fn retain(&self, _at: usize, _len: usize) -> Option<(usize, Arc<dyn Retained>)> {
        None
    }
}

/// Bytes of a frame that stay in their buffer until this value is dropped.
pub trait Retained: fmt::Debug + Send + Sync {
    /// Copies retained bytes, beginning at offset `at`, until `into` is full. The stack never requests bytes beyond the end.
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

/// Number of payload bytes that are copied at a time to compute a checksum. The number is even, and much smaller than the
/// processor's first-level cache.
const CHUNK_BYTES: usize = 2048;

/// Adds the payload bytes from offset `at` up to `end` to a checksum, and returns the new sum.
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

/// Facts that both ends of a link know about a frame in addition to its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// Whether the TCP or UDP checksum is not filled in, because the frame has not left the memory of the host. If the next link
    /// did not agree to this mark, the device that sends the frame fills in the checksum.
    pub checksum_unfilled: bool,
    /// Payload size, in bytes, of the segments into which this large TCP segment is cut if the next link does not accept large
    /// segments. 0 for an ordinary frame.
    pub segment_bytes: u16,
}

/// A received frame, as its link passes it to the stack.
#[derive(Debug)]
pub struct Received<'a, P: ?Sized> {
    /// The first [`crate::limits::HEADER_BYTES_MAX`] bytes of the frame, or all of a shorter frame. They are in private memory.
    pub header: &'a [u8],
    /// The rest of the frame.
    pub payload: &'a P,
    /// Facts that both ends of the link know about the frame in addition to its bytes.
    pub marks: Marks,
}

impl<P: ?Sized> Clone for Received<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: ?Sized> Copy for Received<'_, P> {}

impl<'a, P: ?Sized> Received<'a, P> {
    /// Returns a frame without marks.
    pub fn unmarked(header: &'a [u8], payload: &'a P) -> Self {
        Self { header, payload, marks: Marks::default() }
    }
}

/// An IP packet inside a received frame. All offsets are relative to the first byte of the packet.
pub(crate) struct Packet<'a, P: ?Sized> {
    pub(crate) frame: &'a [u8],
    pub(crate) payload: &'a P,
    /// Length of the payload, in bytes. [`Payload::len`] is called only once, so its result is stored here.
    pub(crate) payload_bytes: usize,
    /// Length of the link header in front of the packet, in bytes.
    pub(crate) link_bytes: usize,
    pub(crate) marks: Marks,
    pub(crate) device: DeviceId,
    /// The device whose source filter applies. It differs from `device` if `device` combines several links.
    pub(crate) link: DeviceId,
    /// Whether the frame was sent to several stations.
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
    /// Returns the part of the packet that is in private memory.
    pub(crate) fn header(&self) -> &'a [u8] {
        &self.frame[self.link_bytes..]
    }

    /// Returns the protocol that the frame carries. The frame must have passed `Ip::accept_frame`.
    #[inline]
    pub(crate) fn protocol(&self) -> EthernetProtocol {
        if self.link_bytes > 0 {
            return EthernetFrame::new_unchecked(self.frame).ethertype();
        }
        if self.frame[0] >> 4 == 4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 }
    }

    /// Returns the number of bytes that follow the link header: the packet and its padding.
    pub(crate) fn len(&self) -> usize {
        self.frame.len() - self.link_bytes + self.payload_bytes
    }

    /// Returns `room` zero bytes, followed by a copy of the packet up to offset `end`.
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

    /// Adds the bytes of the packet from offset `at` up to `end` to a checksum, and returns the new sum.
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
