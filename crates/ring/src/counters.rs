//! Counters of each end, and the time of its copies.

use crate::clock::Ticks;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Notifications of one role.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorbellCounters {
    /// Sent, in one system call each.
    pub sent: u64,
    /// Not sent after a change, because the peer did not request one.
    pub suppressed: u64,
    /// Of those sent: the pipe was full already.
    pub full: u64,
}

/// What a producer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProducerCounters {
    /// Frames committed.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Buffers published.
    pub buffers: u64,
    /// Frames dropped for want of a buffer at the target (reason 0x10), as counted by the owner.
    pub target_full: u64,
    /// Frames that waited for a buffer, as counted by the owner.
    pub pending: u64,
    /// Notifications of frames.
    pub doorbells: DoorbellCounters,
    /// Contracts broken by the consumer at the other end: 0 or 1.
    pub violations: u64,
}

/// What a consumer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsumerCounters {
    /// Frames taken.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Buffers given back.
    pub buffers: u64,
    /// Notifications of room.
    pub doorbells: DoorbellCounters,
    /// Contracts broken by the producer at the other end: 0 or 1.
    pub violations: u64,
    /// Bytes copied out.
    pub copied_bytes: u64,
    /// Time of copying them out: measured for large copies, sampled for small ones.
    pub copy_ticks: Ticks,
}

/// Copies of at least this size are all timed: reading the clock twice is a small part of their time.
const TIMED_BYTES_MIN: usize = 8_192;
/// Of smaller copies one in this many is timed, and represents as many.
const SAMPLE: u32 = 32;
/// A small copy that took longer was interrupted, and represents itself only.
const SAMPLE_TICKS_MAX: u64 = 20_000;

/// The time and bytes of copies, through a shared reference. If two threads copy at the same time, some counts may be lost: an
/// atomic addition would cost as much as a small copy.
#[derive(Debug, Default)]
pub(crate) struct CopyMeter {
    bytes: AtomicU64,
    ticks: AtomicU64,
    until_sample: AtomicU32,
}

fn add(counter: &AtomicU64, more: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}

impl CopyMeter {
    /// Performs and counts a copy of `bytes`.
    pub(crate) fn measure(&self, bytes: usize, copy: impl FnOnce()) {
        add(&self.bytes, u64::try_from(bytes).unwrap_or(u64::MAX));
        let large = bytes >= TIMED_BYTES_MIN;
        let left = self.until_sample.load(Ordering::Relaxed);
        if !large && left > 0 {
            self.until_sample.store(left - 1, Ordering::Relaxed);
            return copy();
        }
        let begun = Ticks::now();
        copy();
        let took = Ticks::now().since(begun).0;
        let stands_for = if large || took > SAMPLE_TICKS_MAX { 1 } else { u64::from(SAMPLE) };
        add(&self.ticks, took.wrapping_mul(stands_for));
        if !large {
            self.until_sample.store(SAMPLE - 1, Ordering::Relaxed);
        }
    }

    /// All bytes so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// All time so far.
    pub(crate) fn ticks(&self) -> Ticks {
        Ticks(self.ticks.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_copies_are_all_timed_and_of_small_ones_every_32nd() {
        let meter = CopyMeter::default();
        meter.measure(64, || {});
        let one = meter.ticks();
        (1..SAMPLE).for_each(|_| meter.measure(64, || {}));
        assert_eq!(meter.ticks(), one);
        meter.measure(TIMED_BYTES_MIN, || std::thread::sleep(std::time::Duration::from_millis(2)));
        assert!(meter.ticks().since(one).0 > SAMPLE_TICKS_MAX);
        assert_eq!(meter.bytes(), 32 * 64 + 8_192);
    }
}
