//! The queue of packets that a guest or switch has received for one partner and cannot hand on yet, because the partner has no empty
//! buffer or no ring pair. A full queue refuses packets. Its limit is the topology's `netdev_max_backlog`, a number of packets; the limit
//! of bytes follows from it.

use crate::limits::{BACKLOG_FRAME_BYTES, SPARE_FRAMES_MAX};
use siga_stack::link::frame::Marks;
use std::collections::VecDeque;

/// Packets that wait, in the order in which they came.
#[derive(Debug)]
pub(super) struct Backlog {
    packets: VecDeque<(Vec<u8>, Marks)>,
    bytes: usize,
    packets_max: usize,
    /// Free memory blocks in which packets waited that have been sent. Packets that are queued later reuse the blocks, because
    /// allocating a block takes more time than copying a packet into it.
    spare: Vec<Vec<u8>>,
}

impl Backlog {
    /// Returns an empty queue for up to `packets_max` packets.
    pub(super) fn new(packets_max: u32) -> Self {
        let packets_max = usize::try_from(packets_max).unwrap_or(usize::MAX);
        Self { packets: VecDeque::new(), bytes: 0, packets_max, spare: Vec::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.packets.len()
    }

    /// Returns whether half of the queue is in use. An empty queue never is, whatever its limit.
    pub(super) fn is_half_full(&self) -> bool {
        self.packets.len() >= self.packets_max.div_ceil(2) || self.bytes >= self.bytes_max() / 2
    }

    fn bytes_max(&self) -> usize {
        self.packets_max.saturating_mul(BACKLOG_FRAME_BYTES)
    }

    /// Adds a packet of `len` bytes, which `fill` writes. Returns false, and adds nothing, if the queue is full.
    pub(super) fn push(&mut self, len: usize, marks: Marks, fill: &mut dyn FnMut(&mut [u8])) -> bool {
        if self.packets.len() >= self.packets_max || self.bytes + len > self.bytes_max() {
            return false;
        }
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(len, 0);
        fill(&mut bytes);
        self.bytes += len;
        self.packets.push_back((bytes, marks));
        true
    }

    /// Returns the packet that waits longest.
    pub(super) fn front(&self) -> Option<(&[u8], Marks)> {
        self.packets.front().map(|(bytes, marks)| (bytes.as_slice(), *marks))
    }

    /// Removes the packet that waits longest.
    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let (bytes, _) = self.packets.pop_front()?;
        self.bytes -= bytes.len();
        Some(bytes)
    }

    /// Removes the packet that waits longest, and keeps its memory for other packets.
    pub(super) fn drop_front(&mut self) {
        if let Some(bytes) = self.pop()
            && self.spare.len() < SPARE_FRAMES_MAX
        {
            self.spare.push(bytes);
        }
    }

    /// Removes all packets.
    pub(super) fn clear(&mut self) {
        self.packets.clear();
        self.bytes = 0;
    }

    /// Frees the memory that waits for other packets.
    pub(super) fn free_spare(&mut self) {
        self.spare = Vec::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(backlog: &mut Backlog, len: usize) -> bool {
        backlog.push(len, Marks::default(), &mut |into| into.fill(7))
    }

    #[test]
    fn a_queue_takes_as_many_packets_as_its_limit_says() {
        let mut backlog = Backlog::new(3);
        assert_eq!([1, 1, 1, 1].map(|len| push(&mut backlog, len)), [true, true, true, false]);
        backlog.drop_front();
        assert_eq!([push(&mut backlog, 1), push(&mut backlog, 1)], [true, false]);
        backlog.clear();
        assert!(backlog.is_empty() && push(&mut backlog, 1));
    }

    #[test]
    fn an_empty_queue_is_not_half_full_even_if_it_takes_one_packet_only() {
        for (packets_max, half) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
            let mut backlog = Backlog::new(packets_max);
            for waiting in 0..half {
                assert!(!backlog.is_half_full(), "{waiting} of {packets_max}");
                assert!(push(&mut backlog, 1));
            }
            assert!(backlog.is_half_full(), "{half} of {packets_max}");
        }
    }

    #[test]
    fn large_packets_have_a_limit_of_bytes() {
        let mut backlog = Backlog::new(4);
        assert!(push(&mut backlog, 3 * BACKLOG_FRAME_BYTES));
        assert!(backlog.is_half_full() && push(&mut backlog, BACKLOG_FRAME_BYTES));
        assert!(!push(&mut backlog, 1), "four packets of {BACKLOG_FRAME_BYTES} bytes");
        assert_eq!(backlog.pop().map(|bytes| bytes.len()), Some(3 * BACKLOG_FRAME_BYTES));
        assert!(push(&mut backlog, 1), "the bytes of a removed packet are free");
    }
}
