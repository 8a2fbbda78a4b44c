//! Frames as they come in and go out.
//!
//! A received frame is its first bytes, private to the stack, and a payload that may lie in memory its sender can still
//! write: it is read once, by copying, when and where it is needed. Marks travel with a frame over links whose both ends agreed
//! to them.

/// A device of a stack, by its place in the order in which devices were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId(pub u16);

/// Bytes of a received frame behind those that the stack has for itself.
pub trait Payload {
    /// How many there are. It is asked for once a frame.
    fn len(&self) -> usize;

    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the bytes from `at` on, as many as `into` takes. Never more than there are is asked for.
    fn copy_to(&self, at: usize, into: &mut [u8]);
}

impl Payload for [u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_to(&self, at: usize, into: &mut [u8]) {
        into.copy_from_slice(&self[at..at + into.len()]);
    }
}

/// What both ends of a link know of a frame beside its bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Marks {
    /// The checksum of TCP or UDP is not filled in: the link has not left the host's memory. The first device whose link did
    /// not agree to it fills it in.
    pub checksum_unfilled: bool,
    /// A TCP segment larger than the MTU, to be cut into segments of this much payload where the next link does not take it
    /// whole; 0: an ordinary frame.
    pub segment_bytes: u16,
}
