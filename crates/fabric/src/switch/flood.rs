//! Limits how many frames a port sends to all other ports: broadcast, multicast and unknown unicast frames.

use crate::limits::FLOOD_BURST_MIN;
use siga_stack::time::Instant;

/// The part of a second for which a port that was silent may send at any rate.
const BURST_PARTS: u64 = 20;
const SECOND_NS: u64 = 1_000_000_000;

/// A token bucket.
#[derive(Debug)]
pub(crate) struct Flood {
    per_second: u64,
    tokens: u64,
    last: Instant,
}

impl Flood {
    pub(crate) fn new(per_second: u32) -> Self {
        let per_second = u64::from(per_second);
        Self { per_second, tokens: burst(per_second), last: Instant::default() }
    }

    /// Takes as many tokens as a frame costs. Returns false if there are fewer.
    pub(crate) fn take(&mut self, at: Instant, cost: u64) -> bool {
        let earned = at.as_ns().saturating_sub(self.last.as_ns()).min(SECOND_NS) * self.per_second / SECOND_NS;
        if earned > 0 {
            self.tokens = (self.tokens + earned).min(burst(self.per_second));
            self.last = at;
        }
        let left = self.tokens.checked_sub(cost);
        self.tokens = left.unwrap_or(self.tokens);
        left.is_some()
    }
}

fn burst(per_second: u64) -> u64 {
    (per_second / BURST_PARTS).max(FLOOD_BURST_MIN.min(per_second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_floods_at_its_rate_after_a_burst() {
        let mut flood = Flood::new(1_000);
        let at = |ms: u64| Instant::from_ns(5 * SECOND_NS + ms * 1_000_000);
        assert_eq!((0..1_000).filter(|_| flood.take(at(0), 1)).count(), 64);
        let passed = (1..=1_000).filter(|ms| flood.take(at(*ms), 1) | flood.take(at(*ms), 1)).count();
        assert!((990..=1_001).contains(&passed), "{passed}");
        assert!(!(0..10).any(|_| Flood::new(0).take(at(0), 1)), "a rate of 0 forbids floods");
    }
}
