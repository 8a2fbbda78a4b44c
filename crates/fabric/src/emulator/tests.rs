//! Tests of the emulator: it gets frames at given times, and its departures are compared with what the settings promise.

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn emulator(link: &str) -> Emulator<u64> {
    Emulator::new(link.parse().unwrap(), 0)
}

fn at(ns: u64) -> Instant {
    Instant::from_ns(ns)
}

fn frame(tag: u64, bytes: usize) -> Held<u64> {
    Held { bytes: vec![0; bytes], tag }
}

/// Takes all frames from a link, each at the time at which it is due: the time and the tag.
fn departures(emulator: &mut Emulator<u64>) -> Vec<(u64, u64)> {
    let mut all = Vec::new();
    while let Some(due) = emulator.next_due() {
        while let Some(held) = emulator.take(due) {
            all.push((due.as_ns(), held.tag));
        }
    }
    assert_eq!((emulator.held_bytes, emulator.open.is_none()), (0, true));
    all
}

/// Offers `count` frames of `bytes` bytes, one each `gap` nanoseconds.
fn offer(emulator: &mut Emulator<u64>, count: u64, bytes: usize, gap: u64) -> Vec<Result<(), Lost>> {
    (0..count).map(|number| emulator.offer(at(number * gap), frame(number, bytes))).collect()
}

#[test]
fn a_link_without_settings_passes_frames_at_once_and_in_order() {
    let mut link = emulator("seed=1");
    offer(&mut link, 3, 100, 0);
    assert!(link.take(at(0)).is_some_and(|held| held == frame(0, 100)));
    assert_eq!(departures(&mut link), [(0, 1), (0, 2)]);
    assert_eq!(link.counters, LinkCounters { offered: 3, delivered: 3, ..LinkCounters::default() });
}

#[test]
fn frames_take_the_time_on_the_wire_that_the_rate_says() {
    for (rate, bytes, count) in [("1mbit", 1_250, 100), ("10gbit", 64, 100_000), ("3gbit", 1_514, 40_000)] {
        let mut link = emulator(&format!("rate={rate},queue=1000000"));
        offer(&mut link, count, bytes, 0);
        let all = departures(&mut link);
        let bits = count * bytes as u64 * 8;
        let expected = u128::from(bits) * u128::from(SECOND) / u128::from(link.link.rate.unwrap());
        let last = u128::from(all.last().unwrap().0);
        // Times are rounded to picoseconds.
        assert!(all.len() as u64 == count && last.abs_diff(expected) <= expected / 1_000_000, "{rate}: {last}");
    }
    // A wire that was idle does not make up for it.
    let mut link = emulator("rate=8mbit");
    link.offer(at(SECOND), frame(0, 1_000)).unwrap();
    assert_eq!(departures(&mut link), [(SECOND + MS, 0)]);
}

#[test]
fn latency_follows_its_distribution_and_keeps_the_order() {
    let mut link = emulator("latency=5ms");
    link.offer(at(7), frame(0, 64)).unwrap();
    assert_eq!((link.take(at(7)), link.next_due()), (None, Some(at(7 + 5 * MS))));
    assert_eq!(departures(&mut link), [(7 + 5 * MS, 0)]);

    for (text, deviation) in [
        ("jitter=1ms", 1.0 / 3.0_f64.sqrt()),
        ("jitter=1ms:table:-8192/8192", 1.0 / 3.0_f64.sqrt()),
        ("jitter=1ms:normal", 1.0),
    ] {
        let mut link = emulator(&format!("latency=10ms,{text},seed=3"));
        // The frames are so far apart that none waits for the frame before it.
        offer(&mut link, 20_000, 64, 100 * MS);
        let delays: Vec<f64> =
            departures(&mut link).iter().map(|(due, tag)| (due - tag * 100 * MS) as f64 / MS as f64).collect();
        let mean = delays.iter().sum::<f64>() / delays.len() as f64;
        let spread = (delays.iter().map(|delay| (delay - mean).powi(2)).sum::<f64>() / delays.len() as f64).sqrt();
        assert!((mean - 10.0).abs() < 0.03 && (spread / deviation - 1.0).abs() < 0.02, "{text}: {mean} ± {spread}");
        let farthest = delays.iter().map(|delay| (delay - 10.0).abs()).fold(0.0, f64::max);
        assert_eq!(farthest > 1.0, text.ends_with("normal"), "{farthest}");
    }

    let mut link = emulator("latency=2ms,jitter=2ms");
    offer(&mut link, 1_000, 64, 1_000);
    let all = departures(&mut link);
    assert!(all.is_sorted(), "later frames do not overtake");
    assert!(all.iter().map(|(_, tag)| *tag).eq(0..1_000));
}

#[test]
fn frames_are_lost_at_random_or_in_bursts() {
    let lost = |text: &str| -> Vec<bool> {
        offer(&mut emulator(text), 100_000, 64, 1_000).iter().map(|sent| *sent == Err(Lost::Model)).collect()
    };
    let share = |lost: &[bool]| lost.iter().filter(|lost| **lost).count() as f64 / lost.len() as f64;
    let bursts = |lost: &[bool]| lost.windows(2).filter(|pair| !pair[0] && pair[1]).count();
    assert_eq!((share(&lost("loss=0%")), share(&lost("loss=100%"))), (0.0, 1.0));
    let random = lost("loss=1%,seed=5");
    // Four standard deviations of 100,000 draws with 1% are 0.13%.
    assert!((share(&random) - 0.01).abs() < 0.0013, "{}", share(&random));
    // The link is bad for five frames on average, in a share of 1 / (1 + 20) of the time.
    let bad = lost("loss=gilbert:1%:20%,seed=5");
    let length = share(&bad) * bad.len() as f64 / bursts(&bad) as f64;
    assert!((share(&bad) - 1.0 / 21.0).abs() < 0.006 && (length - 5.0).abs() < 0.5, "{} {length}", share(&bad));
    let partly = share(&lost("loss=gilbert:50%:50%:20%:10%,seed=5"));
    assert!((partly - 0.15).abs() < 0.006, "{partly}");
}

#[test]
fn frames_that_find_the_queue_full_are_lost() {
    let mut link = emulator("rate=8mbit,queue=3");
    let sent = offer(&mut link, 5, 1_000, 0);
    assert_eq!(sent, [Ok(()), Ok(()), Ok(()), Err(Lost::Queue), Err(Lost::Queue)]);
    // The first frame has left the queue after a millisecond.
    assert_eq!(link.offer(at(MS), frame(9, 1_000)), Ok(()));
    assert_eq!(link.offer(at(MS), frame(9, 1_000)), Err(Lost::Queue));
    assert_eq!((link.counters.lost_by_queue, departures(&mut link).len()), (3, 4));

    let mut link = emulator("rate=8mbit,queue=2kb");
    assert_eq!(offer(&mut link, 3, 1_024, 0), [Ok(()), Ok(()), Err(Lost::Queue)]);
    assert_eq!(link.offer(at(MS + 24_000), frame(9, 1_025)), Err(Lost::Queue));
    assert_eq!(link.offer(at(MS + 24_000), frame(9, 1_024)), Ok(()));

    // Frames that only need time to arrive do not wait for the link.
    let mut link = emulator("latency=1s,queue=1");
    assert!(offer(&mut link, 100, 64, 0).iter().all(Result::is_ok));
}

#[test]
fn a_link_holds_a_bounded_number_of_bytes() {
    let mut link = emulator("latency=60s,duplicate=100%");
    let sent = offer(&mut link, 600, 65_536, 0);
    let first_lost = sent.iter().position(Result::is_err).unwrap();
    assert_eq!((first_lost, sent[first_lost]), (HELD_BYTES_MAX / 65_536 / 2, Err(Lost::Memory)));
    assert!(link.held_bytes <= HELD_BYTES_MAX);
    assert_eq!(departures(&mut link).len(), HELD_BYTES_MAX / 65_536);
}

#[test]
fn frames_are_repeated_changed_and_reordered() {
    let mut link = emulator("duplicate=100%");
    offer(&mut link, 2, 64, 1);
    assert_eq!(departures(&mut link), [(0, 0), (0, 0), (1, 1), (1, 1)]);
    assert_eq!((link.counters.offered, link.counters.duplicated, link.counters.delivered), (2, 2, 4));

    let mut link = emulator("corrupt=100%,seed=9");
    for number in 0..1_000 {
        link.offer(at(number), frame(number, 3)).unwrap();
    }
    let mut seen = [0_u32; 24];
    while let Some(held) = link.take(at(1_000)) {
        let bits = u32::from_be_bytes([0, held.bytes[0], held.bytes[1], held.bytes[2]]);
        assert_eq!(bits.count_ones(), 1);
        seen[bits.trailing_zeros() as usize] += 1;
    }
    assert!(seen.iter().all(|count| *count > 10), "each bit can change: {seen:?}");

    let mut link = emulator("latency=10ms,reorder=50%,seed=2");
    offer(&mut link, 100, 64, MS);
    let all = departures(&mut link);
    let (early, late): (Vec<_>, Vec<_>) = all.iter().partition(|(due, tag)| *due == tag * MS);
    assert!(early.len() > 30 && late.len() > 30 && late.iter().all(|(due, tag)| *due == tag * MS + 10 * MS));
    assert_eq!(link.counters.reordered, early.len() as u64);
    assert!(!all.iter().map(|(_, tag)| *tag).is_sorted());
}

#[test]
fn a_block_is_sent_when_it_is_full_or_has_waited_long_enough() {
    let mut link = emulator("rate=8mbit,block=2500b:1ms");
    // The third frame does not fit, so the first two are sent: 2,000 bytes take 2 ms.
    offer(&mut link, 3, 1_000, 1_000);
    assert_eq!(link.next_due(), Some(at(2_000 + MS)), "the third frame waits for at most a millisecond");
    assert_eq!(departures(&mut link), [(2_000 + 2 * MS, 0), (2_000 + 2 * MS, 1), (2_000 + 3 * MS, 2)]);
    // A frame that fills a block does not wait, and a frame that is larger than a block is a block of its own.
    link.offer(at(SECOND), frame(3, 2_500)).unwrap();
    link.offer(at(2 * SECOND), frame(4, 5_000)).unwrap();
    assert_eq!(departures(&mut link), [(SECOND + 2_500_000, 3), (2 * SECOND + 5 * MS, 4)]);
    // Frames in a block that is not full wait for the link, too.
    let mut link = emulator("block=2500b:1ms,queue=2");
    assert_eq!(offer(&mut link, 3, 10, 0), [Ok(()), Ok(()), Err(Lost::Queue)]);
}

#[test]
fn departures_follow_from_seed_settings_and_arrivals() {
    let text = "rate=100mbit,latency=1ms,jitter=200us:normal,loss=5%,reorder=2%,duplicate=2%,corrupt=2%";
    let run = |text: &str| {
        let mut link = emulator(text);
        let lost: Vec<bool> = offer(&mut link, 2_000, 500, 100_000).iter().map(Result::is_err).collect();
        (departures(&mut link), lost)
    };
    let [first, again, other] = [4, 4, 5].map(|seed| run(&format!("{text},seed={seed}")));
    assert!(first == again && first != other, "the seed decides");
    let mut other = Emulator::new(format!("{text},seed=4").parse().unwrap(), 1);
    offer(&mut other, 2_000, 500, 100_000);
    assert!(departures(&mut other) != first.0, "the other direction of the link decides otherwise");
    assert!(first.1 == run("loss=5%,latency=1ms,seed=4").1, "one setting does not change what others decide");
}

#[test]
fn changed_settings_hold_for_later_frames() {
    let mut link = emulator("latency=10ms");
    link.offer(at(0), frame(0, 64)).unwrap();
    link.set("loss=100%".parse().unwrap(), at(1));
    assert_eq!(link.offer(at(1), frame(1, 64)), Err(Lost::Model));
    link.set("latency=1ms".parse().unwrap(), at(2));
    link.offer(at(2), frame(2, 64)).unwrap();
    assert_eq!(departures(&mut link), [(10 * MS, 0), (10 * MS, 2)], "later frames do not overtake");
    let mut link = emulator("block=1kb:1s");
    link.offer(at(0), frame(0, 64)).unwrap();
    link.set("rate=1gbit".parse().unwrap(), at(5));
    assert_eq!(departures(&mut link), [(5, 0)], "a block does not wait any more");
}
