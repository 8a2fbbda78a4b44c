//! The model and the phases, without a connection. `siga-sim` tests BBR over simulated links.

use super::model::{Aggregation, Bounds, Model, in_flight_at_threshold, is_too_much, with_headroom};
use super::*;

const MSS: u32 = 1_000;
const RTT: Duration = Duration::from_millis(100);
/// The bytes that a path with 100 segments in a round trip delivers in a second.
const RATE: u64 = 1_000_000;

fn at(ms: u64) -> Instant {
    Instant::from_ns(ms * 1_000_000)
}

/// A path that delivers [`RATE`] after [`RTT`], and a sender that always has data. Time advances by one segment at a time.
struct Path {
    bbr: Bbr,
    now: Instant,
    window: u32,
    flying: std::collections::VecDeque<(Instant, SeqNumber)>,
    next: SeqNumber,
    free_at: Instant,
}

impl Path {
    fn new() -> Self {
        let flying = std::collections::VecDeque::new();
        Self { bbr: Bbr::new(), now: at(1_000), window: 10 * MSS, flying, next: SeqNumber(1), free_at: at(0) }
    }

    fn window(&self) -> Window {
        Window { bytes: self.window, segment_bytes: MSS }
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.flying.len()).unwrap() * MSS
    }

    fn send(&mut self) {
        let (now, window, in_flight) = (self.now, self.window(), self.in_flight());
        self.bbr.sent(&Sending { now, window, bytes: MSS, in_flight, rtt: Some(RTT), last: false });
        self.next += MSS;
        self.flying.push_back((now, self.next));
    }

    /// Runs for `ms` milliseconds, in each of which the path delivers one segment.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms {
            self.now += Duration::from_millis(1);
            let newest = self.flying.front().copied().filter(|(sent, _)| *sent + RTT <= self.now);
            if let Some((sent, end)) = newest
                && self.free_at <= self.now
            {
                self.flying.pop_front();
                self.free_at = self.now + Duration::from_millis(1);
                self.bbr.sampler.deliver(self.now, MSS);
                let (window, in_flight) = (self.window(), self.in_flight());
                self.window = self.bbr.acknowledged(&Acked {
                    now: self.now,
                    window,
                    bytes: MSS,
                    growth: MSS,
                    in_flight,
                    rtt: Some(self.now.since(sent)),
                    recovering: false,
                    newest: Some((sent, end)),
                });
            }
            while self.in_flight() + MSS <= self.window && self.bbr.pacer.may_send(self.now) {
                self.send();
            }
        }
    }

    fn run_until(&mut self, phase: Phase, ms: u64) {
        for _ in 0..ms {
            if self.bbr.phases.phase == phase {
                return;
            }
            self.run(1);
        }
        panic!("no {phase:?} within {ms} ms: {:?}", self.bbr);
    }
}

#[test]
fn bbr_finds_the_rate_and_the_round_trip_time_of_a_path_and_drains_its_queue() {
    let mut path = Path::new();
    path.run_until(Phase::Drain, 3_000);
    assert!(path.in_flight() > 150 * MSS, "startup has built a queue: {}", path.in_flight());
    path.run_until(Phase::Cruise, 1_000);
    let model = &path.bbr.model;
    assert!(model.max_bandwidth().abs_diff(RATE) < RATE / 50, "{}", model.max_bandwidth());
    assert!(model.min_rtt.unwrap() < Duration::from_millis(104), "{:?}", model.min_rtt);
    assert!(path.in_flight() <= 105 * MSS, "{}", path.in_flight());
}

#[test]
fn bbr_probes_for_bandwidth_after_two_to_three_seconds_and_for_the_round_trip_time_after_five() {
    let mut path = Path::new();
    path.run_until(Phase::Cruise, 4_000);
    let begin = path.now;
    path.run_until(Phase::Refill, 4_000);
    let waited = path.now.since(begin).as_millis();
    assert!((1_500..=3_100).contains(&waited), "{waited} ms");
    path.run_until(Phase::Up, 300);
    assert_eq!(path.bbr.phases.pacing_gain(), 125);
    path.run_until(Phase::Down, 2_000);
    path.run_until(Phase::ProbeRtt, 6_000);
    path.run(150);
    assert!(path.in_flight() <= 52 * MSS, "{}", path.in_flight());
    let begin = path.now;
    path.run_until(Phase::Cruise, 1_000);
    assert!((50..=350).contains(&path.now.since(begin).as_millis()));
    assert!(path.window >= 190 * MSS, "cwnd is back: {}", path.window);
}

#[test]
fn more_than_two_percent_of_losses_bound_what_is_in_flight_while_probing_and_its_undo_lifts_the_bound() {
    let mut path = Path::new();
    path.run_until(Phase::Cruise, 4_000);
    path.run_until(Phase::Up, 4_000);
    // The samples of a round trip may be lost, from the second round trip of the probe on.
    path.run(150);
    let (now, sent) = (path.now, path.flying[0].0);
    for _ in 0..2 {
        path.bbr.lost(now, sent, MSS);
    }
    assert_eq!((path.bbr.phases.phase, path.bbr.model.bounds.in_flight_long), (Phase::Up, None), "two of 100 segments");
    path.bbr.lost(now, sent, MSS);
    let bound = path.bbr.model.bounds.in_flight_long.unwrap();
    assert!((70 * MSS..=130 * MSS).contains(&bound), "{bound}");
    assert_eq!(path.bbr.phases.phase, Phase::Down);
    path.bbr.undo();
    assert_eq!((path.bbr.model.bounds.in_flight_long, path.bbr.phases.phase), (None, Phase::Up));
}

#[test]
fn losses_while_cruising_bound_the_rate_until_the_next_probe() {
    let mut path = Path::new();
    path.run_until(Phase::Cruise, 4_000);
    path.run(120);
    let (now, sent) = (path.now, path.flying[0].0);
    path.bbr.lost(now, sent, MSS);
    path.run(250);
    let bounds = path.bbr.model.bounds;
    let rate = bounds.bandwidth_short.unwrap();
    assert!(rate < path.bbr.model.max_bandwidth() + 1 && rate >= RATE * 69 / 100, "{rate}");
    assert!(bounds.in_flight_short.is_some() && bounds.in_flight_long.is_none());
    path.run_until(Phase::Refill, 4_000);
    assert!(path.bbr.model.bounds.bandwidth_short.is_none());
}

#[test]
fn a_mark_counts_as_a_loss_and_ends_a_probe_for_bandwidth() {
    let mut path = Path::new();
    path.run_until(Phase::Cruise, 4_000);
    path.run_until(Phase::Up, 4_000);
    path.run(50);
    let (now, in_flight) = (path.now, path.in_flight());
    path.bbr.mark(now, in_flight);
    assert_eq!((path.bbr.phases.phase, path.bbr.model.bounds.in_flight_long), (Phase::Down, Some(in_flight)));
}

#[test]
fn the_threshold_of_losses_is_two_percent() {
    assert!(!is_too_much(2 * 1_000, 100 * MSS) && is_too_much(2 * 1_000 + 1, 100 * MSS));
    // Of 100 segments, 3 are lost. The third loss crossed the threshold when 99 segments and nothing more were in flight.
    assert_eq!(in_flight_at_threshold(100 * MSS, 3_000, MSS), 99 * MSS);
    // Of 100 segments, a burst of 10 is lost at once: the threshold is at 2/98 of the other 90.
    assert_eq!(in_flight_at_threshold(100 * MSS, 10_000, 10 * MSS), 90 * MSS + 1_836);
    assert_eq!((with_headroom(100 * MSS, MSS), with_headroom(2 * MSS, MSS)), (85 * MSS, MSS));
}

#[test]
fn a_bound_without_limit_is_wider_than_any_other() {
    let mut bounds = Bounds { bandwidth_short: Some(5), in_flight_short: Some(7), in_flight_long: None };
    bounds.widen(&Bounds { bandwidth_short: Some(9), in_flight_short: None, in_flight_long: Some(1) });
    assert_eq!((bounds.bandwidth_short, bounds.in_flight_short, bounds.in_flight_long), (Some(9), None, None));
}

#[test]
fn rates_are_forgotten_after_two_cycles_and_the_minimum_rtt_after_ten_seconds() {
    let mut model = Model::default();
    let ms = Duration::from_millis;
    assert!(!model.update_min_rtt(at(1_000), Some(ms(20))));
    assert!(!model.update_min_rtt(at(5_999), Some(ms(30))));
    assert!(model.update_min_rtt(at(6_001), Some(ms(30))), "a probe is due after five seconds");
    assert_eq!(model.min_rtt, Some(ms(20)), "but the minimum stays for ten");
    model.update_min_rtt(at(11_100), Some(ms(35)));
    assert_eq!(model.min_rtt, Some(ms(35)));
    let mut path = Path::new();
    path.run_until(Phase::Cruise, 4_000);
    for left in [true, true, false] {
        assert_eq!(path.bbr.model.max_bandwidth() > RATE / 2, left);
        path.bbr.model.advance_cycle();
        let slow = Sample { rate: 1_000, delivered: 1, ..Sample::default() };
        path.bbr.update_congestion_signals(&slow);
    }
}

#[test]
fn acknowledgements_that_arrive_together_widen_the_window() {
    let mut aggregation = Aggregation::default();
    // The path delivers 1,000 bytes in a millisecond, but acknowledges 10,000 bytes each 10 ms.
    for round in 1..=8 {
        aggregation.update(at(10 * round), RATE, round, true, 10 * MSS, 500 * MSS);
    }
    assert!((9 * MSS..=20 * MSS).contains(&aggregation.extra()), "{}", aggregation.extra());
    for round in 9..=30 {
        aggregation.update(at(10 * round), RATE, round, true, MSS, 500 * MSS);
    }
    assert!(aggregation.extra() <= MSS, "it is forgotten after ten round trips: {}", aggregation.extra());
}
