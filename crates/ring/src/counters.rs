//! Counters of producers and consumers, and the time of their copies.

use crate::clock::Ticks;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Counters of the notifications that a producer or a consumer sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DoorbellCounters {
    /// Notifications sent. Each took one system call.
    pub sent: u64,
    /// Changes of the index without a notification, because the peer did not request one.
    pub suppressed: u64,
    /// Notifications sent that found the pipe full.
    pub full: u64,
}

/// Counters of a producer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ProducerCounters {
    /// Frames committed.
    pub frames: u64,
    /// Bytes of the committed frames.
    pub bytes: u64,
    /// Buffers published.
    pub buffers: u64,
    /// Frames that the owner of the link dropped because the target had no empty buffer (reason 0x10).
    pub target_full: u64,
    /// Frames that the owner of the link kept until there was an empty buffer.
    pub pending: u64,
    /// Notifications that announced frames.
    pub doorbells: DoorbellCounters,
    /// Violations by the consumer at the other end: 0 or 1, because the first one detaches the peer.
    pub violations: u64,
}

/// Counters of a consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConsumerCounters {
    /// Frames taken.
    pub frames: u64,
    /// Bytes of the taken frames.
    pub bytes: u64,
    /// Buffers given back.
    pub buffers: u64,
    /// Notifications that announced empty buffers.
    pub doorbells: DoorbellCounters,
    /// Violations by the producer at the other end: 0 or 1, because the first one detaches the peer.
    pub violations: u64,
    /// Bytes copied out of the ring.
    pub copied_bytes: u64,
    /// Time of these copies. Large copies are all timed; small copies are sampled.
    pub copy_ticks: Ticks,
}

/// Smallest copy that is always timed, in bytes. Reading the clock twice takes only a small part of such a copy's time.
const TIMED_BYTES_MIN: usize = 8_192;
/// Of the smaller copies, one in this many is timed. Its time counts for all of them.
const SAMPLE: u32 = 32;
/// A small copy that took longer than this was interrupted. Its time counts only once.
const SAMPLE_TICKS_MAX: u64 = 20_000;

/// Counts the bytes and the time of copies through a shared reference. If two threads copy at the same time, some counts may be lost.
/// That is accepted, because an atomic addition would take as long as a small copy.
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
