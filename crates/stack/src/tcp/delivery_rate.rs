//! The delivery rate: how fast the peer receives data, measured over the round trip of each delivered segment (draft-ietf-ccwg-bbr
//! section 4.1).
//!
//! A sample compares the state of the connection when a segment was sent with the state when it was acknowledged. All segments that
//! were sent at one time share one record of the state. So the list of outstanding segments needs no additional fields, and only a
//! connection that samples the rate pays for it.

use crate::limits::TCP_DEPARTURES_SPARE;
use crate::time::{Duration, Instant};
use crate::wire::tcp::SeqNumber;
use std::collections::VecDeque;

/// The state of the connection when segments were sent (`P.*` in the draft).
#[derive(Debug, Clone, Copy)]
pub(super) struct Departure {
    at: Instant,
    delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    lost: u64,
    /// Number of bytes in flight, these segments included.
    pub(super) in_flight: u32,
    pub(super) app_limited: bool,
}

/// What the newest delivered segment shows about the path (`RS.*` in the draft).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Sample {
    /// Delivery rate in bytes per second, or 0 if the interval was too short to measure it.
    pub(super) rate: u64,
    /// Number of bytes that were delivered since the segment was sent.
    pub(super) delivered: u64,
    /// Number of bytes that had been delivered when the segment was sent.
    pub(super) prior_delivered: u64,
    /// Number of bytes that were lost since the segment was sent.
    pub(super) lost: u64,
    /// Number of bytes in flight when the segment was sent.
    pub(super) in_flight: u32,
    /// Whether the application, not the path, limited the rate.
    pub(super) app_limited: bool,
}

/// Measures the delivery rate of a connection (`C.*` in the draft).
#[derive(Debug, Default)]
pub(super) struct Sampler {
    /// Number of bytes that were delivered, cumulatively or by SACK.
    pub(super) delivered: u64,
    delivered_at: Instant,
    first_sent_at: Instant,
    lost: u64,
    /// The sender ran out of data. Samples count as limited by the application until this number of bytes is delivered.
    app_limited_until: Option<u64>,
    /// When and up to where the newest delivered segment was sent.
    newest: Option<(Instant, SeqNumber)>,
    departures: VecDeque<Departure>,
    /// The latest rate that the application did not limit, or a higher one.
    latest: Sample,
}

impl Sampler {
    /// Records that segments were sent now. `first` is true if nothing was in flight before, and `in_flight` is the number of bytes
    /// in flight afterwards.
    pub(super) fn sent(&mut self, now: Instant, first: bool, in_flight: u32) {
        if first {
            self.departures.clear();
            (self.first_sent_at, self.delivered_at) = (now, now);
        }
        if let Some(last) = self.departures.back_mut().filter(|last| last.at == now) {
            last.in_flight = in_flight;
            return;
        }
        self.departures.push_back(Departure {
            at: now,
            delivered: self.delivered,
            delivered_at: self.delivered_at,
            first_sent_at: self.first_sent_at,
            lost: self.lost,
            in_flight,
            app_limited: self.app_limited_until.is_some(),
        });
    }

    /// Returns whether records of segments that are no longer outstanding should be removed ([`Sampler::forget_before`]).
    pub(super) fn is_long(&self, outstanding: usize) -> bool {
        self.departures.len() > 2 * outstanding + TCP_DEPARTURES_SPARE
    }

    /// Removes the records of segments that were sent before `oldest`.
    pub(super) fn forget_before(&mut self, oldest: Instant) {
        let gone = self.departures.partition_point(|departure| departure.at < oldest);
        self.departures.drain(..gone);
    }

    /// Records that the sender had nothing to send while `in_flight` bytes were in flight.
    pub(super) fn limited_by_application(&mut self, in_flight: u32) {
        self.app_limited_until = Some(self.delivered + u64::from(in_flight));
    }

    pub(super) const fn is_app_limited(&self) -> bool {
        self.app_limited_until.is_some()
    }

    /// Returns the state when the segments were sent that departed at `at`.
    pub(super) fn departure(&self, at: Instant) -> Option<Departure> {
        let place = self.departures.partition_point(|departure| departure.at < at);
        self.departures.get(place).filter(|departure| departure.at == at).copied()
    }

    /// Records that `bytes` bytes were delivered.
    pub(super) fn deliver(&mut self, now: Instant, bytes: u32) {
        if bytes > 0 {
            self.delivered += u64::from(bytes);
            self.delivered_at = now;
        }
        self.app_limited_until = self.app_limited_until.filter(|until| self.delivered <= *until);
    }

    /// Records that `bytes` bytes were lost. Returns how many bytes were lost since the departure `since`.
    pub(super) fn lose(&mut self, bytes: u32, since: Option<&Departure>) -> u64 {
        self.lost += u64::from(bytes);
        since.map_or(0, |departure| self.lost - departure.lost)
    }

    /// Returns a sample if an acknowledgement delivered a segment that was sent after all segments that were delivered before.
    /// `newest` says when this segment was sent and where it ends. An interval shorter than `min_rtt` gives no rate, because
    /// retransmissions or compressed acknowledgements caused it.
    pub(super) fn sample(
        &mut self,
        now: Instant,
        newest: Option<(Instant, SeqNumber)>,
        min_rtt: Duration,
    ) -> Option<Sample> {
        if newest == self.newest {
            return None;
        }
        self.newest = newest;
        let sent_at = newest?.0;
        let departure = self.departure(sent_at)?;
        self.first_sent_at = sent_at;
        let delivered = self.delivered - departure.delivered;
        let interval = sent_at.since(departure.first_sent_at).max(now.since(departure.delivered_at));
        let valid = interval >= min_rtt && !interval.is_zero();
        let rate = u128::from(delivered) * 1_000_000_000 / u128::from(interval.as_nanos().max(1));
        let sample = Sample {
            rate: if valid { u64::try_from(rate).unwrap_or(u64::MAX) } else { 0 },
            delivered,
            prior_delivered: departure.delivered,
            lost: self.lost - departure.lost,
            in_flight: departure.in_flight,
            app_limited: departure.app_limited,
        };
        if sample.rate > 0 && (!sample.app_limited || sample.rate >= self.latest.rate) {
            self.latest = sample;
        }
        Some(sample)
    }

    /// Returns the latest rate that the application did not limit, or a higher one, as Linux reports it.
    pub(super) const fn latest(&self) -> Sample {
        self.latest
    }

    /// Returns the memory of the records in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.departures.capacity() * size_of::<Departure>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant::from_ns(ms * 1_000_000)
    }

    fn newest(ms: u64) -> Option<(Instant, SeqNumber)> {
        Some((at(ms), SeqNumber(u32::try_from(ms).unwrap())))
    }

    #[test]
    fn the_delivery_rate_is_what_arrived_in_the_longer_of_sending_and_acknowledging() {
        let mut sampler = Sampler::default();
        // Two segments are sent 10 ms apart. Their acknowledgements arrive 5 ms apart, because the path has compressed them.
        sampler.sent(at(100), true, 1_000);
        sampler.sent(at(110), false, 2_000);
        sampler.deliver(at(150), 1_000);
        let first = sampler.sample(at(150), newest(100), Duration::ZERO).unwrap();
        assert_eq!((first.rate, first.delivered, first.prior_delivered, first.in_flight), (20_000, 1_000, 0, 1_000));
        sampler.sent(at(150), false, 2_000);
        sampler.deliver(at(155), 1_000);
        let second = sampler.sample(at(155), newest(110), Duration::ZERO).unwrap();
        // 2,000 bytes in the 55 ms since the flight began.
        assert_eq!((second.rate, second.delivered), (36_363, 2_000));
        sampler.deliver(at(205), 1_000);
        let third = sampler.sample(at(205), newest(150), Duration::ZERO).unwrap();
        assert_eq!((third.rate, third.delivered, third.prior_delivered), (36_363, 2_000, 1_000));
        assert_eq!(sampler.latest(), third);
    }

    #[test]
    fn an_acknowledgement_without_a_newer_segment_or_below_the_minimum_rtt_gives_no_rate() {
        let mut sampler = Sampler::default();
        sampler.sent(at(100), true, 1_000);
        sampler.deliver(at(101), 1_000);
        let sample = sampler.sample(at(101), newest(100), Duration::from_millis(2)).unwrap();
        assert_eq!((sample.rate, sample.delivered), (0, 1_000));
        assert_eq!(sampler.sample(at(102), newest(100), Duration::ZERO), None);
        assert_eq!(sampler.sample(at(103), newest(102), Duration::ZERO), None, "no segment was sent then");
    }

    #[test]
    fn a_flow_without_data_is_limited_by_its_application_until_its_flight_has_arrived() {
        let mut sampler = Sampler::default();
        sampler.sent(at(100), true, 1_000);
        sampler.limited_by_application(1_000);
        sampler.sent(at(110), false, 2_000);
        sampler.deliver(at(150), 1_000);
        assert!(!sampler.sample(at(150), newest(100), Duration::ZERO).unwrap().app_limited);
        assert!(sampler.is_app_limited());
        sampler.deliver(at(160), 1_000);
        assert!(!sampler.is_app_limited());
        assert!(sampler.sample(at(160), newest(110), Duration::ZERO).unwrap().app_limited);
    }

    #[test]
    fn losses_count_since_the_departure_of_a_segment() {
        let mut sampler = Sampler::default();
        sampler.sent(at(100), true, 1_000);
        assert_eq!(sampler.lose(1_000, sampler.departure(at(100)).as_ref()), 1_000);
        sampler.sent(at(120), false, 2_000);
        assert_eq!(sampler.lose(500, sampler.departure(at(120)).as_ref()), 500);
        assert_eq!(sampler.lose(500, None), 0);
    }

    #[test]
    fn records_of_segments_that_are_no_longer_outstanding_are_removed() {
        let mut sampler = Sampler::default();
        for ms in 1..=200 {
            sampler.sent(at(ms), ms == 1, 1_000);
        }
        assert!(sampler.is_long(50) && !sampler.is_long(100));
        sampler.forget_before(at(151));
        assert!(sampler.departure(at(150)).is_none() && sampler.departure(at(151)).is_some());
        assert!(!sampler.is_long(0));
    }
}
