//! How often something may happen: a burst, then a steady rate.

use std::time::{Duration, Instant};

/// A token bucket.
#[derive(Debug)]
pub(super) struct Budget {
    burst: u32,
    per_second: u32,
    left: u32,
    since: Instant,
}

impl Budget {
    /// A full one.
    pub(super) fn new(burst: u32, per_second: u32, now: Instant) -> Self {
        Self { burst, per_second, left: burst, since: now }
    }

    /// True if it may happen once more.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let one = Duration::from_secs(1) / self.per_second.max(1);
        let elapsed = now.saturating_duration_since(self.since);
        let earned = u32::try_from(elapsed.as_nanos() / one.as_nanos().max(1)).unwrap_or(u32::MAX);
        if earned >= self.burst - self.left {
            (self.left, self.since) = (self.burst, now);
        } else {
            self.left += earned;
            self.since += one * earned;
        }
        let may = self.left > 0;
        self.left -= u32::from(may);
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_the_steady_rate() {
        let begin = Instant::now();
        let mut budget = Budget::new(3, 10, begin);
        let taken = |budget: &mut Budget, ms| (0..9).filter(|_| budget.take(begin + Duration::from_millis(ms))).count();
        assert_eq!(taken(&mut budget, 0), 3);
        assert_eq!(taken(&mut budget, 99), 0);
        assert_eq!(taken(&mut budget, 100), 1);
        assert_eq!(taken(&mut budget, 350), 2);
        assert_eq!(taken(&mut budget, 399), 0, "the half of a token is kept");
        assert_eq!(taken(&mut budget, 400), 1);
        assert_eq!(taken(&mut budget, 1 << 40), 3, "no more than the burst");
    }
}
