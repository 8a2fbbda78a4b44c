//! The estimate of the round-trip time, and the retransmission timeout (RTO) that follows from it (RFC 6298). As in Linux, the
//! RTO is at least 200 ms above the smoothed round-trip time.

use crate::time::{Duration, Instant};

/// RTO before the first RTT sample (RFC 6298 section 2.1).
pub(super) const RTO_INITIAL: Duration = Duration::from_secs(1);
/// Default minimum of the variance term of the RTO, as in Linux. RFC 6298 recommends an RTO of at least 1 s instead.
pub(super) const RTO_MIN: Duration = Duration::from_millis(200);
/// RTO before the first RTT sample, if the SYN was retransmitted (RFC 6298 section 5.7).
const RTO_AFTER_LOST_SYN: Duration = Duration::from_secs(3);
const RTO_MAX: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct Rtt {
    /// SRTT: the smoothed round-trip time. 0 before the first sample.
    pub(super) smoothed: Duration,
    /// RTTVAR: the variation of the round-trip time.
    pub(super) variance: Duration,
    /// RTO without backoff. If this is 0, there is no RTT sample yet, and [`RTO_INITIAL`] applies.
    timeout: Duration,
    /// Minimum RTT sample of the time `min_life_ms`. 0 before the first sample.
    pub(super) min: Duration,
    min_at: Instant,
    min_life_ms: u32,
    /// Minimum of the variance term of the RTO, in milliseconds.
    slack_min_ms: u16,
    /// Whether a sample was added since the latest tail-loss probe.
    pub(super) fresh: bool,
}

impl Rtt {
    /// Returns an estimator without a sample. The minimum RTT will be valid for the time `min_life`. The RTO will be longer than the
    /// smoothed RTT by at least `slack_min`.
    pub(super) fn new(min_life: Duration, slack_min: Duration) -> Self {
        Self {
            smoothed: Duration::ZERO,
            variance: Duration::ZERO,
            timeout: Duration::ZERO,
            min: Duration::ZERO,
            min_at: Instant::default(),
            min_life_ms: u32::try_from(min_life.as_millis()).unwrap_or(u32::MAX),
            slack_min_ms: u16::try_from(slack_min.as_millis()).unwrap_or(u16::MAX),
            fresh: false,
        }
    }

    /// Returns by how much the RTO is longer than the smoothed RTT at least.
    #[inline]
    pub(super) fn slack_min(&self) -> Duration {
        Duration::from_millis(self.slack_min_ms.into())
    }

    /// Sets the RTO of a connection that retransmitted its SYN and therefore has no sample.
    pub(super) fn lost_syn(&mut self) {
        self.timeout = RTO_AFTER_LOST_SYN;
    }

    /// Returns the smoothed round-trip time, if there was a sample.
    #[inline]
    pub(super) fn smoothed(&self) -> Option<Duration> {
        Some(self.smoothed).filter(|smoothed| !smoothed.is_zero())
    }

    /// Adds an RTT sample, which must come from a segment that was sent only once (Karn's algorithm).
    /// RFC 9293 MUST-18.
    pub(super) fn sample(&mut self, now: Instant, rtt: Duration) {
        self.sample_range(now, rtt, rtt);
    }

    /// Adds the RTT samples of the oldest and of the latest of several segments that were acknowledged together. As in Linux and in
    /// RFC 7323 section 4.1, the oldest one counts for the RTO, so that the RTO includes the delay of acknowledgements. The latest
    /// one counts for the minimum.
    pub(super) fn sample_range(&mut self, now: Instant, oldest: Duration, latest: Duration) {
        let [rtt, latest] = [oldest, latest].map(|rtt| rtt.max(Duration::from_nanos(1)));
        self.fresh = true;
        if self.smoothed.is_zero() {
            (self.smoothed, self.variance) = (rtt, rtt / 2);
        } else {
            self.variance = (self.variance * 3 + self.smoothed.abs_diff(rtt)) / 4;
            self.smoothed = ((self.smoothed * 7 + rtt) / 8).max(Duration::from_nanos(1));
        }
        self.timeout = self.smoothed + (self.variance * 4).max(self.slack_min());
        if self.min.is_zero()
            || latest <= self.min
            || now.since(self.min_at) > Duration::from_millis(self.min_life_ms.into())
        {
            (self.min, self.min_at) = (latest, now);
        }
    }

    /// Returns the RTO after `backoff` doublings (RFC 6298 sections 2.3 and 5.5).
    /// RFC 9293 MUST-18, MUST-19.
    pub(super) fn timeout(&self, backoff: u8) -> Duration {
        let base = if self.timeout.is_zero() { RTO_INITIAL } else { self.timeout };
        let time = if backoff == 0 { base } else { base * (1 << backoff.min(10)) };
        time.min(RTO_MAX)
    }
}

impl Default for Rtt {
    fn default() -> Self {
        Self::new(Duration::ZERO, RTO_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 9293 MUST-18, MUST-19.
    #[test]
    fn the_retransmission_timeout_follows_rtt_samples_and_backs_off() {
        let ms = Duration::from_millis;
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout(0), RTO_INITIAL);
        rtt.sample(Instant::default(), ms(100));
        assert_eq!(rtt.timeout(0), ms(300));
        for _ in 0..100 {
            rtt.sample(Instant::default(), ms(100));
        }
        assert_eq!(rtt.timeout(0), ms(300), "the floor holds where nothing varies");
        assert_eq!(rtt.timeout(2), ms(1_200));
        assert_eq!(rtt.timeout(255), RTO_MAX);
        rtt.sample(Instant::default(), ms(1_000));
        assert!(rtt.timeout(0) > ms(1_000) && rtt.min == ms(100));
    }

    // RFC 6298 section 2: alpha is 1/8, beta is 1/4, K is 4.
    #[test]
    fn an_rtt_sample_moves_the_mean_by_an_eighth_and_the_variance_by_a_quarter() {
        let us = Duration::from_micros;
        let mut rtt = Rtt::default();
        rtt.sample(Instant::default(), us(100_000));
        assert_eq!((rtt.smoothed(), rtt.variance), (Some(us(100_000)), us(50_000)));
        rtt.sample(Instant::default(), us(200_000));
        assert_eq!((rtt.smoothed(), rtt.variance), (Some(us(112_500)), us(62_500)));
        assert_eq!(rtt.timeout(0), us(362_500));
    }

    #[test]
    fn the_minimum_rtt_expires_five_minutes_after_it_was_last_seen() {
        let (ms, start) = (Duration::from_millis, Instant::default());
        let mut rtt = Rtt::new(Duration::from_secs(300), RTO_MIN);
        for (at, sample, least) in
            [(0, 100, 100), (200, 100, 100), (400, 150, 100), (500, 150, 100), (501, 150, 150), (700, 90, 90)]
        {
            rtt.sample(start + Duration::from_secs(at), ms(sample));
            assert_eq!(rtt.min, ms(least), "after {at} s");
        }
    }
}
