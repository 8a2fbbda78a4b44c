//! Counters of producers and consumers, and the measurement of the time for copies.

use crate::clock::Ticks;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Counters of the notifications that a producer or a consumer sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorbellCounters {
    /// Number of notifications sent. Each took one system call.
    pub sent: u64,
    /// Number of changes of the index for which no notification was sent, because the peer did not request one.
    pub suppressed: u64,
    /// Number of notifications that found the pipe full.
    pub full: u64,
}

/// Counters of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProducerCounters {
    /// Number of committed frames.
    pub frames: u64,
    /// Number of bytes in the committed frames.
    pub bytes: u64,
    /// Number of published buffers.
    pub buffers: u64,
    /// Number of frames that the owner of the link dropped because the receiving end had no empty buffer (reason 0x10).
    pub target_full: u64,
    /// Number of frames that the owner of the link kept until a buffer was empty.
    pub pending: u64,
    /// Counters of the notifications about new frames.
    pub doorbells: DoorbellCounters,
    /// Number of violations by the consumer at the other end: 0 or 1, because the first violation detaches the peer.
    pub violations: u64,
}

/// Counters of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsumerCounters {
    /// Number of frames taken from the ring.
    pub frames: u64,
    /// Number of bytes in the taken frames.
    pub bytes: u64,
    /// Number of buffers given back.
    pub buffers: u64,
    /// Counters of the notifications about empty buffers.
    pub doorbells: DoorbellCounters,
    /// Number of violations by the producer at the other end: 0 or 1, because the first violation detaches the peer.
    pub violations: u64,
    /// Number of bytes copied out of the ring.
    pub copied_bytes: u64,
    /// Time that these copies took. Every large copy is timed. For small copies, the time is estimated from samples.
    pub copy_ticks: Ticks,
}

/// Smallest copy that is always timed, in bytes. Reading the clock twice takes only a small part of such a copy's time.
const TIMED_BYTES_MIN: usize = 8_192;
/// Of this number of smaller copies, one is timed. Its time, times this number, is added to the total.
const SAMPLE: u32 = 32;
/// A small copy that took longer than this was interrupted. Its time is added only once.
const SAMPLE_TICKS_MAX: u64 = 20_000;

/// Counts the bytes and the time of copies. All methods take a shared reference. If two threads copy at the same time, some
/// counts may be lost. This is acceptable, because an atomic addition would take as long as a small copy.
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
    /// Performs and counts a copy of `bytes`. Not inlined, so that `cargo xtask instructions` can count copies apart.
    #[inline(never)]
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

    /// Returns the number of bytes copied so far.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Returns the time of all copies so far.
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
