//! Every fault happens and stays within its bounds.

use super::*;
use crate::fault::Burst;
use crate::rng::Ppm;

const MS: Duration = Duration::from_millis(1);

fn wire() -> Wire {
    Wire { delay: MS * 10, ..Wire::ethernet() }
}

fn lane(faults: Faults) -> Lane {
    let mut lane = Lane::new(wire(), Rng::new(7, 1));
    lane.set_faults(faults);
    lane
}

/// The frame of this number: 100 bytes that say which one it is.
fn frame(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(25)
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[..4].try_into().unwrap())
}

/// Sends frames a microsecond apart, and gives what arrives in the order in which it does.
fn run(lane: &mut Lane, frames: u32) -> Vec<Arrival> {
    let mut arrivals = Vec::new();
    for at in 0..frames {
        let sent = Instant::from_ns(u64::from(at) * 1_000);
        arrivals.extend(lane.send(sent, frame(at), Marks::default()).arrivals);
        assert!(lane.is_balanced());
    }
    arrivals.sort_by_key(|arrival| arrival.at);
    for arrival in &arrivals {
        lane.arrive(arrival).unwrap();
    }
    assert!(lane.is_balanced() && lane.in_flight() == 0);
    arrivals
}

/// By how much an arrival is later than its frame was sent, beyond the delay of the wire.
fn late(arrival: &Arrival) -> Duration {
    let sent = Instant::from_ns(u64::from(number(&arrival.bytes)) * 1_000);
    arrival.at.since(sent) - MS * 10
}

#[test]
fn nothing_wrong_is_every_frame_in_order_after_the_delay() {
    let mut lane = lane(Faults::NONE);
    let arrivals = run(&mut lane, 1_000);
    assert_eq!(arrivals.len(), 1_000);
    for (at, arrival) in (0..).zip(&arrivals) {
        assert_eq!((&arrival.bytes, late(arrival)), (&frame(at), Duration::ZERO));
    }
    assert_eq!(lane.counts().dropped(), 0);
    assert_eq!((lane.counts().sent, lane.counts().arrived, lane.counts().arrived_bytes), (1_000, 1_000, 100_000));
}

#[test]
fn loss_takes_its_share_and_leaves_the_rest_alone() {
    let mut lane = lane(Faults { loss: Ppm::percent(20), ..Faults::NONE });
    let arrivals = run(&mut lane, 10_000);
    assert!((7_800..8_200).contains(&arrivals.len()), "{}", arrivals.len());
    assert!(arrivals.iter().all(|arrival| arrival.bytes == frame(number(&arrival.bytes)) && late(arrival).is_zero()));
    assert!(arrivals.is_sorted_by_key(|arrival| number(&arrival.bytes)));
    assert_eq!(lane.counts().of(Fate::Lost), lane.counts().dropped());
}

#[test]
fn bursts_are_as_long_and_as_frequent_as_asked_for() {
    let burst = Burst { begin: Ppm::percent(1), end: Ppm::percent(10), loss: Ppm::ALWAYS };
    let mut lane = lane(Faults { burst: Some(burst), ..Faults::NONE });
    let arrivals = run(&mut lane, 60_000);
    let numbers: Vec<u32> = arrivals.iter().map(|arrival| number(&arrival.bytes)).collect();
    let gaps: Vec<u32> = numbers.windows(2).map(|pair| pair[1] - pair[0] - 1).filter(|&gap| gap > 0).collect();
    let lost: u32 = gaps.iter().sum();
    let mean_tenths = lost as usize * 10 / gaps.len();
    assert!((85..115).contains(&mean_tenths), "bursts of {mean_tenths} tenths of a frame");
    // The share of the bad state is begin / (begin + end), one in eleven.
    assert!((60_000 / 13..60_000 / 9).contains(&lost), "{lost}");
    assert_eq!(lane.counts().of(Fate::BurstLost), lane.counts().dropped());
}

#[test]
fn a_burst_ends_with_its_fault() {
    let burst = Burst { begin: Ppm::ALWAYS, end: Ppm::NEVER, loss: Ppm::ALWAYS };
    let mut lane = lane(Faults { burst: Some(burst), ..Faults::NONE });
    assert_eq!(run(&mut lane, 10).len(), 0);
    lane.set_faults(Faults::NONE);
    lane.set_faults(Faults { burst: Some(Burst { begin: Ppm::NEVER, ..burst }), ..Faults::NONE });
    assert_eq!(run(&mut lane, 10).len(), 10);
}

#[test]
fn corruption_flips_some_bits_and_no_more_than_asked_for() {
    let mut lane = lane(Faults { corrupt: Ppm::percent(50), corrupt_bits_max: 3, ..Faults::NONE });
    let mut seen = [0; 4];
    for at in 0..2_000 {
        let passage = lane.send(Instant::default(), frame(at), Marks::default());
        let arrived = &passage.arrivals[0].bytes;
        assert_eq!(arrived.len(), 100);
        let flipped: u32 = arrived.iter().zip(frame(at)).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(passage.fates == [Fate::Corrupted], flipped > 0);
        seen[flipped as usize] += 1;
    }
    assert!((900..1_100).contains(&seen[0]) && seen[1..].iter().all(|&count| count > 250), "{seen:?}");
}

#[test]
fn corruption_that_only_sets_bits_clears_none() {
    let mut lane = lane(Faults { corrupt: Ppm::ALWAYS, corrupt_only_sets: true, ..Faults::NONE });
    let mut corrupted = 0;
    for _ in 0..1_000 {
        let passage = lane.send(Instant::default(), vec![0x0f; 100], Marks::default());
        let arrived = &passage.arrivals[0].bytes;
        assert!(arrived.iter().all(|byte| byte & 0x0f == 0x0f));
        assert_eq!(passage.fates == [Fate::Corrupted], *arrived != [0x0f; 100]);
        corrupted += passage.fates.len();
    }
    assert!((400..600).contains(&corrupted), "{corrupted}");
}

#[test]
fn what_no_checksum_protects_is_left_whole() {
    let mut lane = lane(Faults { corrupt: Ppm::ALWAYS, corrupt_only_sets: true, ..Faults::NONE });
    let unfilled = Marks { checksum_unfilled: true, ..Marks::default() };
    let arp = [&[0; 12], &[0x08, 0x06][..], &[0; 28]].concat();
    for (bytes, marks, damaged) in
        [(vec![0; 60], Marks::default(), true), (vec![0; 60], unfilled, false), (arp, Marks::default(), false)]
    {
        for _ in 0..20 {
            let passage = lane.send(Instant::default(), bytes.clone(), marks);
            assert_eq!((passage.fates.len() == 1, passage.arrivals[0].bytes != bytes), (damaged, damaged));
        }
    }
}

#[test]
fn corruption_reaches_every_byte() {
    let mut lane = lane(Faults { corrupt: Ppm::ALWAYS, ..Faults::NONE });
    let mut reached = [false; 100];
    for _ in 0..5_000 {
        let passage = lane.send(Instant::default(), vec![0; 100], Marks::default());
        reached[passage.arrivals[0].bytes.iter().position(|&byte| byte != 0).unwrap()] = true;
    }
    assert_eq!(reached, [true; 100]);
}

#[test]
fn truncation_takes_some_of_the_end_and_never_all() {
    let mut lane = lane(Faults { truncate: Ppm::percent(50), ..Faults::NONE });
    let (mut shortest, mut longest, mut cut) = (100, 0, 0);
    for at in 0..5_000 {
        let passage = lane.send(Instant::default(), frame(at), Marks::default());
        let arrived = &passage.arrivals[0].bytes;
        assert!(frame(at).starts_with(arrived));
        assert_eq!(passage.fates == [Fate::Truncated], arrived.len() < 100);
        if arrived.len() < 100 {
            (shortest, longest, cut) = (shortest.min(arrived.len()), longest.max(arrived.len()), cut + 1);
        }
    }
    assert_eq!((shortest, longest), (1, 99));
    assert!((2_350..2_650).contains(&cut), "{cut}");
    assert_eq!(lane.send(Instant::default(), vec![1], Marks::default()).arrivals[0].bytes, [1]);
}

#[test]
fn a_duplicate_is_the_same_frame_once_more_and_in_time() {
    let mut lane = lane(Faults { duplicate: Ppm::percent(10), duplicate_by: MS * 2, ..Faults::NONE });
    let arrivals = run(&mut lane, 10_000);
    let copies = arrivals.len() - 10_000;
    assert!((900..1_100).contains(&copies), "{copies}");
    assert_eq!(lane.counts().of(Fate::Duplicated), copies as u64);
    let mut times = vec![0; 10_000];
    for arrival in &arrivals {
        assert_eq!(arrival.bytes, frame(number(&arrival.bytes)));
        assert!(late(arrival) < MS * 2);
        times[number(&arrival.bytes) as usize] += 1;
    }
    assert!(times.iter().all(|&times| times == 1 || times == 2));
    assert!(arrivals.iter().any(|arrival| late(arrival) > MS));
}

#[test]
fn frames_held_back_are_overtaken_and_not_for_longer_than_asked_for() {
    let mut lane = lane(Faults { reorder: Ppm::percent(10), reorder_by: MS, ..Faults::NONE });
    let arrivals = run(&mut lane, 10_000);
    assert_eq!(arrivals.len(), 10_000);
    let held = arrivals.iter().filter(|arrival| !late(arrival).is_zero()).count();
    assert!((900..1_100).contains(&held), "{held}");
    assert_eq!(lane.counts().of(Fate::HeldBack), held as u64);
    assert!(arrivals.iter().all(|arrival| late(arrival) <= MS));
    assert!(!arrivals.is_sorted_by_key(|arrival| number(&arrival.bytes)));
}

#[test]
fn jitter_is_late_within_its_bound_and_keeps_the_order() {
    let mut lane = lane(Faults { jitter: MS, ..Faults::NONE });
    let arrivals = run(&mut lane, 10_000);
    assert_eq!(arrivals.len(), 10_000);
    assert!(arrivals.is_sorted_by_key(|arrival| number(&arrival.bytes)));
    assert!(arrivals.iter().all(|arrival| late(arrival) < MS));
    assert!(arrivals.iter().filter(|arrival| !late(arrival).is_zero()).count() > 9_000);
}

#[test]
fn a_black_hole_swallows_what_is_longer_and_nothing_else() {
    let mut lane = lane(Faults { black_hole_over: Some(100), ..Faults::NONE });
    for (bytes, arrives) in [(99, true), (100, true), (101, false), (1_000, false)] {
        let passage = lane.send(Instant::default(), vec![0; bytes], Marks::default());
        assert_eq!(passage.arrivals.len(), usize::from(arrives), "{bytes}");
        assert_eq!(passage.fates.first(), (!arrives).then_some(&Fate::BlackHoled));
    }
    lane.set_faults(Faults { black_hole_over: Some(0), ..Faults::NONE });
    assert_eq!(lane.send(Instant::default(), vec![0], Marks::default()).fates, [Fate::BlackHoled]);
}

#[test]
fn a_rate_spaces_frames_and_a_full_queue_drops() {
    // 100 bytes at 800 kbit/s take a millisecond.
    let wire = Wire { rate_bits_per_s: Some(800_000), queue_frames_max: 4, ..wire() };
    let mut lane = Lane::new(wire, Rng::new(7, 1));
    let at_once: Vec<Passage> = (0..6).map(|at| lane.send(Instant::default(), frame(at), Marks::default())).collect();
    for (at, passage) in (1..).zip(&at_once[..4]) {
        assert_eq!(passage.arrivals[0].at, Instant::default() + MS * 10 + MS * at);
    }
    assert!(at_once[4..].iter().all(|passage| passage.fates == [Fate::QueueFull]));
    // One has left after a millisecond: one more has room, behind the three others.
    let later = lane.send(Instant::default() + MS, frame(6), Marks::default());
    assert_eq!(later.arrivals[0].at, Instant::default() + MS * 15);
    assert_eq!(lane.send(Instant::default() + MS, frame(7), Marks::default()).fates, [Fate::QueueFull]);
    // A wire without a carrier holds nothing.
    lane.set_carrier(false);
    lane.set_carrier(true);
    let anew = lane.send(Instant::default() + MS * 2, frame(8), Marks::default());
    assert_eq!(anew.arrivals.first().map(|arrival| arrival.at), Some(Instant::default() + MS * 13));
    // An idle wire starts afresh.
    let idle = lane.send(Instant::default() + MS * 50, frame(9), Marks::default());
    assert_eq!(idle.arrivals[0].at, Instant::default() + MS * 61);
}

#[test]
fn a_faster_wire_does_not_reorder_what_a_slower_one_began() {
    let mut lane = lane(Faults::NONE);
    let slow = lane.send(Instant::default(), frame(0), Marks::default());
    lane.set_wire(Wire { delay: Duration::ZERO, ..wire() });
    let fast = lane.send(Instant::default() + MS, frame(1), Marks::default());
    assert_eq!(fast.arrivals[0].at, slow.arrivals[0].at);
}

#[test]
fn the_mtu_bounds_what_passes_and_follows_a_change() {
    let mut lane = lane(Faults::NONE);
    let fate = |lane: &mut Lane, bytes, marks| lane.send(Instant::default(), vec![0; bytes], marks).fates;
    assert_eq!(fate(&mut lane, 1_514, Marks::default()), []);
    assert_eq!(fate(&mut lane, 1_515, Marks::default()), [Fate::TooLong]);
    let large = Marks { segment_bytes: 1_448, ..Marks::default() };
    assert_eq!(fate(&mut lane, 60_000, large), [Fate::TooLong]);
    lane.set_wire(Wire { marks_agreed: true, ..wire() });
    assert_eq!(fate(&mut lane, 60_000, large), []);
    assert_eq!(fate(&mut lane, FRAME_BYTES_MAX + 1, large), [Fate::TooLong]);
    lane.set_wire(Wire { medium: Medium::Ip, mtu: 1_280, ..wire() });
    assert_eq!(fate(&mut lane, 1_280, Marks::default()), []);
    assert_eq!(fate(&mut lane, 1_281, Marks::default()), [Fate::TooLong]);
}

#[test]
fn a_lost_carrier_takes_the_frames_on_their_way_with_it() {
    let mut lane = lane(Faults::NONE);
    let before = lane.send(Instant::default(), frame(0), Marks::default());
    lane.set_carrier(false);
    assert_eq!(lane.send(Instant::default(), frame(1), Marks::default()).fates, [Fate::NoCarrier]);
    lane.set_carrier(true);
    let after = lane.send(Instant::default(), frame(2), Marks::default());
    assert_eq!(lane.arrive(&before.arrivals[0]), Err(Fate::NoCarrier));
    assert_eq!(lane.arrive(&after.arrivals[0]), Ok(()));
    assert_eq!((lane.counts().of(Fate::NoCarrier), lane.in_flight()), (2, 0));
    assert!(lane.is_balanced());
}

#[test]
fn frames_on_their_way_have_a_bound() {
    let mut lane = lane(Faults { duplicate: Ppm::ALWAYS, ..Faults::NONE });
    let mut dropped = 0;
    for _ in 0..FRAMES_IN_FLIGHT_MAX {
        dropped += usize::from(lane.send(Instant::default(), vec![0], Marks::default()).arrivals.is_empty());
    }
    assert_eq!(lane.in_flight(), FRAMES_IN_FLIGHT_MAX);
    assert_eq!(dropped, FRAMES_IN_FLIGHT_MAX / 2);
    assert_eq!(lane.counts().of(Fate::TooManyInFlight), dropped as u64);
    assert!(lane.is_balanced());
}

#[test]
fn bytes_on_their_way_have_a_bound() {
    let mut lane = Lane::new(Wire { mtu: 64 << 10, ..wire() }, Rng::new(7, 1));
    let send = |lane: &mut Lane| lane.send(Instant::default(), vec![0; 64 << 10], Marks::default()).arrivals.pop();
    let first = send(&mut lane).unwrap();
    let most = BYTES_IN_FLIGHT_MAX / (64 << 10) - 1;
    let on_their_way = 1 + (0..2_000).filter(|_| send(&mut lane).is_some()).count();
    assert_eq!(on_their_way, most);
    assert_eq!(lane.counts().of(Fate::TooManyInFlight), 2_001 - most as u64);
    lane.arrive(&first).unwrap();
    assert!(send(&mut lane).is_some() && send(&mut lane).is_none());
}
