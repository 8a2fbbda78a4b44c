//! The layout of the shared memory that one end of a link owns and writes.
//!
//! The first page has four 64-bit words, each on separate cache lines. The consumer of this end writes two of them, and the
//! producer of this end writes the other two. The buffers follow. A buffer is a sequence of frames. Each frame has a head of 16
//! bytes, followed by the bytes of the frame. The head contains the length and the tag. A bit of the length marks the last frame
//! of the buffer, and with it another bit says that the first buffer follows. The bytes of a buffer's first frame begin at a cache
//! line.

use crate::limits::{BUFFER_BYTES_MAX, BUFFER_BYTES_MIN, BUFFER_COUNT_MAX, BUFFER_COUNT_MIN};

/// Distance between words: two cache lines, because processors prefetch lines in pairs.
const WORD_LINES_BYTES: usize = 128;
/// Offset of the consumer's index: the number of buffers of the incoming ring that were given back since the link was made.
pub(crate) const CONSUMED: usize = 0;
/// Offset of a notify threshold: the value of the peer's `PRODUCED` at which this end's consumer wants a notification, or 0 for
/// none.
pub(crate) const FRAMES_NOTIFY_THRESHOLD: usize = WORD_LINES_BYTES;
/// Offset of the first word of the producer. The words of the consumer lie in front of it.
pub(crate) const CONSUMER_WORDS_BYTES: usize = 2 * WORD_LINES_BYTES;
/// Offset of the producer's index: the number of buffers of the outgoing ring that were filled since the link was made.
pub(crate) const PRODUCED: usize = CONSUMER_WORDS_BYTES;
/// Offset of a notify threshold: the value of the peer's `CONSUMED` at which this end's producer wants a notification, or 0 for
/// none.
pub(crate) const ROOM_NOTIFY_THRESHOLD: usize = CONSUMER_WORDS_BYTES + WORD_LINES_BYTES;

pub(crate) const PAGE_BYTES: usize = 4_096;
const LINE_BYTES: usize = 64;
/// Size of a frame's head in bytes. The head has the length with the mark, and the tag.
pub(crate) const HEAD_BYTES: usize = 16;
/// Offset of the tag in the head.
pub(crate) const TAG: usize = 8;
/// The bit of the length that marks the last frame of a buffer.
pub(crate) const LAST: u64 = 1 << 63;
/// The bit of the length of a buffer's last frame that marks the end of a round: the first buffer of the memory follows. After the
/// last buffer of the memory, the first one follows also without this mark.
pub(crate) const ROUND_ENDS: u64 = 1 << 62;

/// The number and size of the buffers of one direction of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    buffer_bytes: usize,
    buffer_count: usize,
    /// The distance between the starts of two buffers, in bytes. A buffer has one cache line for the first head, and then the
    /// bytes of frames. Computed once, because each frame needs it.
    stride: usize,
}

impl Shape {
    /// Returns a shape of `buffer_count` buffers. Each buffer has room for a frame of up to `buffer_bytes` bytes. Returns `None`
    /// if a value is outside the limits of [`crate::limits`].
    pub fn new(buffer_bytes: usize, buffer_count: usize) -> Option<Self> {
        let fits = (BUFFER_BYTES_MIN..=BUFFER_BYTES_MAX).contains(&buffer_bytes)
            && (BUFFER_COUNT_MIN..=BUFFER_COUNT_MAX).contains(&buffer_count);
        let stride = LINE_BYTES + buffer_bytes.min(BUFFER_BYTES_MAX).next_multiple_of(LINE_BYTES);
        fits.then_some(Self { buffer_bytes, buffer_count, stride })
    }

    /// Returns the size of the largest frame that fits into a buffer, in bytes.
    #[inline]
    pub fn buffer_bytes(self) -> usize {
        self.buffer_bytes
    }

    /// Returns the number of buffers.
    #[inline]
    pub fn buffer_count(self) -> usize {
        self.buffer_count
    }

    /// Returns the exact size, in bytes, of the memory file of an end whose outgoing ring has this shape.
    pub fn memory_bytes(self) -> usize {
        (PAGE_BYTES + self.buffer_count * self.stride).next_multiple_of(PAGE_BYTES)
    }

    /// Returns the offset of the bytes of a frame that begins after `fill` bytes of `buffer`.
    #[inline]
    pub(crate) fn bytes_at(self, buffer: usize, fill: usize) -> usize {
        PAGE_BYTES + buffer * self.stride + LINE_BYTES + fill
    }

    /// Returns the offset of the head of a frame that begins after `fill` bytes of `buffer`.
    #[inline]
    pub(crate) fn head_at(self, buffer: usize, fill: usize) -> usize {
        self.bytes_at(buffer, fill) - HEAD_BYTES
    }

    /// Returns the buffer that contains the byte at offset `at`.
    pub(crate) fn buffer_of(self, at: usize) -> usize {
        (at - PAGE_BYTES) / self.stride
    }

    /// Returns the buffer after `buffer`.
    #[inline]
    pub(crate) fn next_buffer(self, buffer: usize) -> usize {
        if buffer + 1 == self.buffer_count { 0 } else { buffer + 1 }
    }
}

/// Returns the number of filled bytes in a buffer with `fill` filled bytes after a frame of `len` bytes is added. The result is
/// rounded up, so that the next head is aligned.
#[inline]
pub(crate) fn fill_behind(fill: usize, len: usize) -> usize {
    (fill + len).next_multiple_of(HEAD_BYTES) + HEAD_BYTES
}

/// Converts a size to a word of the shared memory.
#[inline]
pub(crate) fn word(size: usize) -> u64 {
    u64::try_from(size).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_outside_the_bounds_are_refused() {
        for (bytes, count) in [(63, 8), (65_537, 8), (64, 0), (64, 129), (usize::MAX, usize::MAX)] {
            assert_eq!(Shape::new(bytes, count), None, "{bytes} {count}");
        }
        assert!(Shape::new(65_536, 128).is_some());
        assert!(Shape::new(64, 1).is_some());
    }

    #[test]
    fn buffers_overlap_neither_each_other_nor_the_words_nor_the_end() {
        for (bytes, count) in [(64, 1), (65, 3), (1_500, 128), (57_344, 16), (65_536, 128)] {
            let shape = Shape::new(bytes, count).unwrap();
            let mut end = ROOM_NOTIFY_THRESHOLD + 8;
            for buffer in 0..count {
                assert!(shape.head_at(buffer, 0) >= end);
                assert_eq!(shape.bytes_at(buffer, 0) % LINE_BYTES, 0);
                end = shape.bytes_at(buffer, 0) + bytes;
            }
            assert!(end <= shape.memory_bytes());
            assert!(shape.memory_bytes() - end < PAGE_BYTES + LINE_BYTES);
        }
    }

    #[test]
    fn frames_in_a_buffer_do_not_overlap_and_heads_are_aligned() {
        let shape = Shape::new(4_096, 2).unwrap();
        let mut fill = 0;
        for len in [0, 1, 15, 16, 17, 64, 0, 100] {
            assert_eq!(shape.head_at(1, fill) % HEAD_BYTES, 0);
            let next = fill_behind(fill, len);
            assert!(shape.head_at(1, next) >= shape.bytes_at(1, fill) + len);
            assert!(shape.head_at(1, next) < shape.bytes_at(1, fill) + len + HEAD_BYTES);
            fill = next;
        }
    }
}
