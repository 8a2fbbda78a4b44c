//! What BBR promises over a bottleneck: with losses, beside other streams, in deep queues, and when the path changes. The bounds are wide;
//! `throughput.rs` compares the exact figures.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

use siga_sim::bottleneck::{Bottleneck, Stream, Streams};
use siga_sim::rng::Ppm;
use siga_sim::sharing::{self, Figures, PATH, adapt, queue};
use siga_stack::tcp::CongestionControl::{self, Bbr, Cubic};
use siga_stack::time::Duration;

const RATE: u64 = PATH.rate_bits_per_s;

fn stream(congestion: CongestionControl) -> Stream {
    Stream::of(sharing::config(congestion))
}

fn measure(bottleneck: &Bottleneck, streams: &[Stream]) -> Figures {
    sharing::measure(bottleneck, streams).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn bbr_keeps_most_of_the_rate_at_one_percent_of_random_losses_and_cubic_does_not() {
    let bottleneck = Bottleneck { loss: Ppm::new(10_000), ..Bottleneck::of(PATH) };
    let [bbr, cubic] = [Bbr, Cubic].map(|each| measure(&bottleneck, &[stream(each)]).rates[0]);
    assert!(bbr > RATE * 6 / 10 && cubic < RATE / 2, "{bbr} {cubic}");
}

#[test]
fn bbr_and_cubic_both_get_a_part_of_a_bottleneck_they_share() {
    for percent in [50, 100, 400] {
        let figures = measure(&queue(percent), &[stream(Bbr), stream(Cubic)]);
        assert!((100..=900).contains(&figures.share(0)), "{percent} %: {figures:?}");
        assert!(figures.rates.iter().sum::<u64>() > RATE * 8 / 10, "{percent} %: {figures:?}");
    }
}

#[test]
fn two_streams_with_bbr_share_a_bottleneck_fairly_although_one_begins_later() {
    for percent in [100, 400] {
        let late = Stream { begin: Duration::from_secs(1), ..stream(Bbr) };
        let figures = measure(&queue(percent), &[stream(Bbr), late]);
        assert!(figures.fairness() > 900, "{percent} %: {figures:?}");
        assert!(figures.rates.iter().sum::<u64>() > RATE * 8 / 10, "{percent} %: {figures:?}");
    }
}

#[test]
fn bbr_leaves_a_deep_queue_nearly_empty_and_cubic_fills_it() {
    let [bbr, cubic] = [Bbr, Cubic].map(|each| measure(&queue(800), &[stream(each)]));
    assert!(bbr.round_trip < PATH.round_trip * 3 / 2 && bbr.queue_drops == 0, "{bbr:?}");
    assert!(cubic.round_trip > PATH.round_trip * 3, "{cubic:?}");
    assert!(bbr.rates[0] > RATE * 8 / 10, "{bbr:?}");
}

#[test]
fn bbr_adapts_to_a_change_of_the_rate_within_seconds() {
    for (from, to) in [(RATE / 2, RATE), (RATE, RATE / 2)] {
        let time = adapt(Bbr, from, to).unwrap_or_else(|error| panic!("{error}"));
        assert!(time < Duration::from_secs(10), "{from} to {to}: {time:?}");
    }
}

#[test]
fn bbr_keeps_its_rate_if_acknowledgements_arrive_together() {
    let bottleneck = Bottleneck { ack_jitter: PATH.round_trip / 2, ..Bottleneck::of(PATH) };
    let figures = measure(&bottleneck, &[stream(Bbr)]);
    assert!(figures.rates[0] > RATE * 8 / 10, "{figures:?}");
}

#[test]
fn an_application_with_little_data_gets_its_rate_without_a_queue() {
    // 16 KB in 40 ms: 3.3 Mbit/s.
    let stream = Stream { write_pause: Duration::from_millis(40), ..stream(Bbr) };
    let mut streams = Streams::new(1, &queue(100), &[stream]).unwrap_or_else(|error| panic!("{error}"));
    let mut run = |time| streams.run_for(time).map(|()| (streams.arrived(0), streams.info(0)));
    run(Duration::from_secs(5)).unwrap();
    let (before, _) = run(Duration::ZERO).unwrap();
    let (after, info) = run(Duration::from_secs(20)).unwrap();
    let (rate, info) = ((after - before) * 8 / 20, info.unwrap());
    assert!((3_000_000..3_300_000).contains(&rate), "{rate}");
    // The pacing rate does not fall to the rate of the application.
    assert!(info.pacing_rate * 8 > RATE / 2 && info.rtt < 60_000 && info.total_retrans == 0, "{info:?}");
}

#[test]
fn bbr_measures_the_round_trip_time_with_a_short_pause_every_few_seconds() {
    let mut streams = Streams::new(1, &queue(400), &[stream(Bbr)]).unwrap_or_else(|error| panic!("{error}"));
    streams.run_for(Duration::from_secs(2)).unwrap();
    let (mut probes, mut probing) = (0, false);
    for _ in 0..400 {
        streams.run_for(Duration::from_millis(50)).unwrap();
        // A probe reduces cwnd to half of the bandwidth-delay product, 17 segments, instead of twice this product.
        let small = streams.info(0).unwrap().snd_cwnd < 30;
        probes += u32::from(small && !probing);
        probing = small;
    }
    assert!((2..=5).contains(&probes), "{probes} probes in 20 s");
}
