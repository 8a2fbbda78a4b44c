//! Pacing: a connection spreads its segments over time, instead of sending a window at once.
//!
//! Each segment moves the time of the next departure on by the time that the segment takes at the pacing rate. A sender wakes late,
//! because timers have ticks and programs wait for a CPU. It may catch up for at most [`LATENESS_MAX`], so the length of a burst
//! has a bound.

use crate::time::{Duration, Instant};

/// How late a departure may be without a loss of rate. A tick of the timing wheel takes one millisecond, and the stack's owner may
/// wake one more millisecond late. A sender that wakes later, or that was idle, sends a burst of this duration at most.
pub(super) const LATENESS_MAX: Duration = Duration::from_millis(2);
/// Longest time from one departure to the next. A sample of the delivery rate that includes a long outage is no reason to send even
/// more slowly.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Duration of the data in one large segment, as in Linux (`sk_pacing_shift`).
const QUANTUM_MS: u64 = 1;
/// Limit of the quantum in bytes: the largest IP packet.
const QUANTUM_BYTES_MAX: u64 = 64 << 10;

/// The pacing rate, and when the next segment may be sent.
#[derive(Debug)]
pub(super) struct Pacer {
    /// The pacing rate in bytes per second, at least 1.
    rate: u64,
    due: Instant,
    /// Whether a segment waits for its departure.
    waits: bool,
}

impl Pacer {
    pub(super) const fn new() -> Self {
        Self { rate: u64::MAX, due: Instant::from_ns(0), waits: false }
    }

    pub(super) fn set_rate(&mut self, bytes_per_s: u64) {
        self.rate = bytes_per_s.max(1);
    }

    pub(super) const fn rate(&self) -> u64 {
        self.rate
    }

    /// Returns whether a segment may be sent now.
    pub(super) fn may_send(&self, now: Instant) -> bool {
        now >= self.due
    }

    /// Returns whether the pacer would have permitted a segment for longer than [`LATENESS_MAX`].
    pub(super) fn was_idle(&self, now: Instant) -> bool {
        now.since(self.due) > LATENESS_MAX
    }

    /// Records whether a segment waits for its departure. If none does, no timer runs.
    pub(super) const fn set_waiting(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Returns when the next segment departs, if a segment waits.
    pub(super) fn departure(&self) -> Option<Instant> {
        self.waits.then_some(self.due)
    }

    /// Lets the next segment depart now, because a timer has waited long enough.
    pub(super) fn release(&mut self, now: Instant) {
        self.due = self.due.min(now);
    }

    /// Records that `bytes` bytes of payload were sent now.
    pub(super) fn sent(&mut self, now: Instant, bytes: u32) {
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(self.rate);
        let time = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(WAIT_MAX);
        self.due = self.due.max(now - LATENESS_MAX) + time;
    }

    /// Returns the size of a large segment in bytes (`C.send_quantum`): the data of one millisecond, but at least two segments.
    pub(super) fn quantum(&self, segment_bytes: u32) -> u32 {
        let bytes = (self.rate / 1_000).saturating_mul(QUANTUM_MS).min(QUANTUM_BYTES_MAX);
        u32::try_from(bytes).unwrap_or(u32::MAX).max(2 * segment_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEGMENT_BYTES: u32 = 1_000;

    /// Sends at each of the times as many segments as the pacer permits, and returns the number of segments at each time.
    fn bursts(pacer: &mut Pacer, times_us: impl Iterator<Item = u64>) -> Vec<u32> {
        times_us
            .map(|us| {
                let now = Instant::default() + Duration::from_micros(us);
                let mut segments = 0;
                while pacer.may_send(now) {
                    pacer.sent(now, SEGMENT_BYTES);
                    segments += 1;
                }
                segments
            })
            .collect()
    }

    #[test]
    fn a_paced_sender_that_wakes_at_each_tick_reaches_its_rate() {
        let mut pacer = Pacer::new();
        pacer.set_rate(10_000_000);
        let sent = bursts(&mut pacer, (0..1_000).map(|tick| 10_000 + tick * 1_049));
        let total: u32 = sent.iter().sum();
        // 1,000 ticks of 1.049 ms at 10 segments a millisecond.
        assert!((10_480..=10_520).contains(&total), "{total}");
        assert!(sent[1..].iter().all(|segments| (10..=11).contains(segments)), "{sent:?}");
    }

    #[test]
    fn a_late_or_idle_sender_bursts_for_two_milliseconds_at_most() {
        let mut pacer = Pacer::new();
        pacer.set_rate(10_000_000);
        assert_eq!(bursts(&mut pacer, [1_000_000, 1_000_099, 2_000_000].into_iter()), [21, 0, 21]);
    }

    #[test]
    fn a_slow_sender_waits_a_second_at_most_and_not_after_a_timer() {
        let mut pacer = Pacer::new();
        pacer.set_rate(1);
        assert_eq!(bursts(&mut pacer, [0, 999_999, 1_000_000].into_iter()), [1, 0, 1]);
        let later = Instant::default() + Duration::from_micros(1_000_001);
        pacer.release(later);
        assert!(pacer.may_send(later));
    }

    #[test]
    fn a_quantum_is_a_millisecond_of_data_within_bounds() {
        let mut pacer = Pacer::new();
        let mut quantum = |rate| {
            pacer.set_rate(rate);
            pacer.quantum(SEGMENT_BYTES)
        };
        assert_eq!([0, 10_000_000, 1_000_000_000].map(&mut quantum), [2_000, 10_000, 65_536]);
    }
}
