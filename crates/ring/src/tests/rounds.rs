//! Rounds: which buffer a producer fills next, and that it overwrites nothing.

use super::{Pair, content, receive, retain, send, shape};

#[test]
fn a_round_ends_after_its_bytes_and_at_least_six_buffers() {
    let mut pair = Pair::new(shape(1_024, 12), shape(64, 1));
    pair.a.producer.set_round_bytes_most(4_000);
    // The first buffer follows the first one that has at least 4,000 bytes before its end, but none before the sixth.
    for (len, buffers) in [(1_000, 6), (400, 10), (100, 12)] {
        for number in 0..3 * buffers {
            assert!(send(&mut pair.a, &content(number, len), 0));
            assert_eq!(receive(&mut pair.b), Some((content(number, len), 0)));
            assert_eq!(receive(&mut pair.b), None);
        }
        let buffers = usize::from(buffers);
        assert_eq!((pair.a.producer.round(), pair.b.consumer.round()), (buffers, buffers), "{len}");
    }
}

#[test]
fn rounds_of_any_length_overwrite_no_frame_that_was_not_taken() {
    let mut random = 1_u64;
    let mut below = move |end: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % end
    };
    let mut pair = Pair::new(shape(1_024, 16), shape(64, 1));
    pair.b.consumer.set_give_back_batch(3);
    let mut sent = std::collections::VecDeque::new();
    let (mut number, mut rounds) = (0_u8, std::collections::BTreeSet::new());
    for _ in 0..if cfg!(miri) { 20 } else { 2_000 } {
        if below(8) == 0 {
            let most = [1, 5_000, 10_000, usize::MAX][usize::try_from(below(4)).unwrap()];
            pair.a.producer.set_round_bytes_most(most);
        }
        for _ in 0..below(20) {
            let frame = content(number, usize::try_from(1 + below(1_024)).unwrap());
            if send(&mut pair.a, &frame, number.into()) {
                sent.push_back((frame, u64::from(number)));
                number = number.wrapping_add(1);
            } else {
                assert!(pair.a.producer.in_flight().unwrap() > 0, "a ring without frames has room");
            }
        }
        rounds.insert(pair.a.producer.round());
        for _ in 0..below(20) {
            assert_eq!(receive(&mut pair.b), sent.pop_front());
        }
    }
    if !cfg!(miri) {
        assert!(rounds.contains(&6) && rounds.contains(&16), "{rounds:?}");
    }
}

#[test]
fn a_retained_buffer_of_a_short_round_is_not_given_back() {
    let mut pair = Pair::new(shape(1_024, 12), shape(64, 1));
    pair.a.producer.set_round_bytes_most(1);
    for number in 0..6 {
        assert!(send(&mut pair.a, &content(number, 1_024), 0));
        assert!(receive(&mut pair.b).is_some());
    }
    assert!(receive(&mut pair.b).is_none());
    (6..8).for_each(|number| assert!(send(&mut pair.a, &content(number, 1_024), 0)));
    let retained = retain(&mut pair.b);
    assert!(receive(&mut pair.b).is_some() && receive(&mut pair.b).is_none());
    assert_eq!((pair.a.producer.in_flight().unwrap(), pair.b.consumer.count_unreturned()), (2, 2));
    drop(retained);
    pair.b.consumer.give_back();
    assert_eq!((pair.a.producer.in_flight().unwrap(), pair.b.consumer.count_unreturned()), (0, 0));
}

#[test]
fn a_request_for_room_ends_however_short_the_round_has_become() {
    let mut pair = Pair::new(shape(1_024, 16), shape(64, 1));
    (0..16).for_each(|number| assert!(send(&mut pair.a, &content(number, 1_024), 0)));
    pair.a.producer.set_round_bytes_most(1);
    assert!(pair.a.producer.want_room(16).unwrap());
    (0..16).for_each(|_| assert!(receive(&mut pair.b).is_some()));
    assert!(receive(&mut pair.b).is_none());
    assert!(!pair.a.producer.want_room(16).unwrap());
    // The next round has six buffers, and all of them are in flight.
    (0..6).for_each(|number| assert!(send(&mut pair.a, &content(number, 1_024), 0)));
    assert!(!pair.a.producer.has_room(1).unwrap() && !send(&mut pair.a, &[1], 0));
    assert!(pair.a.producer.want_room(16).unwrap());
    (0..6).for_each(|_| assert!(receive(&mut pair.b).is_some()));
    assert!(receive(&mut pair.b).is_none());
    assert!(!pair.a.producer.want_room(16).unwrap() && pair.a.producer.has_room(6).unwrap());
}
