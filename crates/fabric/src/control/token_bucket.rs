//! Token buckets limit how often something may happen: they allow a burst, and then a steady rate.

use std::time::{Duration, Instant};

/// A token bucket. It starts full.
#[derive(Debug)]
pub(super) struct TokenBucket {
    burst: u64,
    tokens: u64,
    /// The time after which the bucket gains another token.
    each: Duration,
    filled: Instant,
}

impl TokenBucket {
    pub(super) fn new(burst: u64, per_second: u64, now: Instant) -> Self {
        Self { burst, tokens: burst, each: Duration::from_nanos(1_000_000_000 / per_second.max(1)), filled: now }
    }

    /// Adds the tokens gained since the last call. Returns true if the bucket has at least `count` tokens.
    pub(super) fn has(&mut self, count: u64, now: Instant) -> bool {
        let elapsed = now.saturating_duration_since(self.filled);
        let earned = u64::try_from(elapsed.as_nanos() / self.each.as_nanos().max(1)).unwrap_or(u64::MAX);
        if earned >= self.burst - self.tokens {
            (self.tokens, self.filled) = (self.burst, now);
        } else {
            self.tokens += earned;
            // Advance `filled` only by the time of whole tokens, so that the rest of the elapsed time counts towards the next
            // token.
            self.filled +=
                Duration::from_nanos(earned.saturating_mul(u64::try_from(self.each.as_nanos()).unwrap_or(u64::MAX)));
        }
        self.tokens >= count
    }

    /// Removes `count` tokens and returns true. If the bucket has fewer tokens, removes none and returns false.
    pub(super) fn take(&mut self, count: u64, now: Instant) -> bool {
        let has = self.has(count, now);
        self.tokens -= if has { count } else { 0 };
        has
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_is_followed_by_the_steady_rate() {
        let begin = Instant::now();
        let mut bucket = TokenBucket::new(3, 10, begin);
        let taken =
            |bucket: &mut TokenBucket, ms| (0..9).filter(|_| bucket.take(1, begin + Duration::from_millis(ms))).count();
        assert_eq!(taken(&mut bucket, 0), 3);
        assert_eq!(taken(&mut bucket, 99), 0);
        assert_eq!(taken(&mut bucket, 100), 1);
        assert_eq!(taken(&mut bucket, 350), 2);
        assert_eq!(taken(&mut bucket, 399), 0, "half a token is kept");
        assert_eq!(taken(&mut bucket, 400), 1);
        assert_eq!(taken(&mut bucket, 1 << 40), 3, "no more than the burst");
    }
}
