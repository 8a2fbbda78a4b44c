//! Both ends of a link in one process: what goes in comes out, what asks for a ring gets one, what lies is found out.
#![expect(clippy::unwrap_used, reason = "a test says what it wants by failing")]

mod quiet;
mod rounds;

use crate::clock::Ticks;
use crate::doorbell::{self, NotifyFd, WakeFd};
use crate::layout::{CONSUMED, FRAMES_NOTIFY_THRESHOLD, LAST, PRODUCED, ROOM_NOTIFY_THRESHOLD, ROUND_ENDS, Shape, TAG};
use crate::map::{self, Region, View};
use crate::{Link, OwnMemory, PeerMemory, ReserveError, Retained, Violation};
use rustix::event::{PollFd, PollFlags, poll};
use std::sync::Arc;

/// Both ends of a link.
struct Pair {
    a: Link,
    b: Link,
}

/// An end's memory as it sees it and as its peer does: a memory file, or the heap where Miri looks on.
fn memory(shape: Shape) -> (OwnMemory, PeerMemory) {
    if cfg!(miri) {
        let (region, view) = map::pair(shape.memory_bytes());
        return (OwnMemory { region, shape }, PeerMemory { view, shape });
    }
    let (own, fd) = OwnMemory::create(shape).unwrap();
    (own, PeerMemory::map(fd, shape).unwrap())
}

fn shape(buffer_bytes: usize, buffer_count: usize) -> Shape {
    Shape::new(buffer_bytes, buffer_count).unwrap()
}

impl Pair {
    fn new(a_to_b: Shape, b_to_a: Shape) -> Self {
        let ((own_a, seen_a), (own_b, seen_b)) = (memory(a_to_b), memory(b_to_a));
        let ((bell_a, ear_b), (bell_b, ear_a)) = (doorbell::pair().unwrap(), doorbell::pair().unwrap());
        Self { a: Link::new(own_a, seen_b, bell_a, ear_a), b: Link::new(own_b, seen_a, bell_b, ear_b) }
    }

    fn of(buffer_count: usize) -> Self {
        Self::new(shape(2_048, buffer_count), shape(1_000, 3))
    }
}

fn send(from: &mut Link, bytes: &[u8], tag: u64) -> bool {
    let Some(place) = from.producer.reserve(bytes.len()).unwrap() else { return false };
    place.copy_from_slice(bytes);
    from.producer.commit(bytes.len(), tag);
    true
}

fn receive(to: &mut Link) -> Option<(Vec<u8>, u64)> {
    let frame = to.consumer.next_frame().unwrap()?;
    let mut bytes = vec![0; frame.len()];
    frame.copy_to(0, &mut bytes);
    assert_eq!(frame.is_empty(), bytes.is_empty());
    Some((bytes, frame.tag()))
}

fn rings(wake_fd: &WakeFd) -> usize {
    wake_fd.drain().unwrap().notifications
}

/// Bytes that tell frames apart.
fn content(number: u8, len: usize) -> Vec<u8> {
    (0..=250).map(|byte: u8| byte.wrapping_mul(number)).cycle().take(len).collect()
}

#[test]
fn frames_come_out_as_they_went_in_both_ways_around_the_ring_many_times() {
    let mut pair = Pair::of(4);
    let frames = if cfg!(miri) { 9 } else { 50 };
    let mut bytes = 0;
    for number in 0..frames {
        let len = usize::from(number) * 20;
        bytes += 2 * u64::try_from(len).unwrap();
        assert!(send(&mut pair.a, &content(number, 2 * len), number.into()));
        assert!(send(&mut pair.b, &content(number, len), u64::MAX - u64::from(number)));
        assert_eq!(receive(&mut pair.b), Some((content(number, 2 * len), number.into())));
        assert_eq!(receive(&mut pair.a), Some((content(number, len), u64::MAX - u64::from(number))));
        assert_eq!(receive(&mut pair.b), None);
    }
    let (sent, taken) = (pair.a.producer.counters(), pair.b.consumer.counters());
    let frames = u64::from(frames);
    assert_eq!((sent.frames, sent.buffers, sent.bytes), (frames, frames, bytes));
    assert_eq!((taken.frames, taken.buffers, taken.bytes, taken.copied_bytes), (frames, frames, bytes, bytes));
    assert!(taken.copy_ticks.0 > 0);
}

#[test]
fn a_full_ring_takes_no_frame_until_a_buffer_is_given_back() {
    let mut pair = Pair::of(3);
    let frames: Vec<_> = (1..=4).map(|number| content(number, 2_048)).collect();
    assert!(frames[..3].iter().all(|frame| send(&mut pair.a, frame, 0)));
    assert!(!send(&mut pair.a, &frames[3], 0));
    assert_eq!(pair.a.producer.room().unwrap(), 0);
    assert_eq!(pair.a.producer.in_flight().unwrap(), 3);
    assert_eq!(receive(&mut pair.b).unwrap().0, frames[0]);
    // The frame may still be looked at: its buffer is given back by the next call.
    assert!(!send(&mut pair.a, &frames[3], 0));
    assert!(pair.b.consumer.is_ready().unwrap());
    assert_eq!(pair.a.producer.room().unwrap(), 1);
    assert!(send(&mut pair.a, &frames[3], 0));
    for frame in &frames[1..] {
        assert_eq!(&receive(&mut pair.b).unwrap().0, frame);
    }
    pair.a.producer.count_target_full();
    pair.a.producer.count_pending();
    let counters = pair.a.producer.counters();
    assert_eq!((counters.frames, counters.target_full, counters.pending), (4, 1, 1));
}

#[test]
fn room_for_several_buffers_reads_the_peers_index_even_if_one_is_free() {
    let mut pair = Pair::of(3);
    for number in 1..=9 {
        assert!(pair.a.producer.has_room(2).unwrap(), "{number}");
        assert!(send(&mut pair.a, &content(number, 9), 0));
        assert!(receive(&mut pair.b).is_some());
        assert!(receive(&mut pair.b).is_none());
    }
    assert!(send(&mut pair.a, &content(1, 9), 0) && send(&mut pair.a, &content(2, 9), 0));
    assert!(!pair.a.producer.has_room(2).unwrap() && pair.a.producer.has_room(1).unwrap());
}

#[test]
fn packed_frames_share_buffers_and_wait_until_one_is_full_or_they_are_published() {
    let mut pair = Pair::of(4);
    pair.a.producer.set_packing(true);
    for number in 0..30 {
        assert!(send(&mut pair.a, &content(number, 100), number.into()));
    }
    // A frame takes 128 bytes with its head: 16 of them in 2,048 bytes, for the first head lies before these.
    assert_eq!(pair.a.producer.counters().buffers, 1);
    for number in 0..16 {
        assert_eq!(receive(&mut pair.b), Some((content(number, 100), number.into())));
    }
    assert_eq!(receive(&mut pair.b), None);
    pair.a.producer.publish();
    pair.a.producer.publish();
    assert_eq!(pair.a.producer.counters().buffers, 2);
    for number in 16..30 {
        assert_eq!(receive(&mut pair.b), Some((content(number, 100), number.into())));
    }
    assert_eq!(receive(&mut pair.b), None);
}

#[test]
fn a_packed_frame_that_does_not_fit_goes_into_the_next_buffer() {
    let mut pair = Pair::of(2);
    pair.a.producer.set_packing(true);
    for (number, len) in (0..).zip([1_000, 1_024, 1, 2_032, 0, 16]) {
        assert!(send(&mut pair.a, &content(number, len), len.try_into().unwrap()), "{len}");
        if len == 1 {
            assert_eq!(receive(&mut pair.b).unwrap().0.len(), 1_000);
            assert_eq!(receive(&mut pair.b).unwrap().0.len(), 1_024);
            assert_eq!(receive(&mut pair.b), None);
        }
        if len == 2_032 {
            assert_eq!(receive(&mut pair.b).unwrap().0.len(), 1);
            assert_eq!(receive(&mut pair.b), None);
        }
    }
    pair.a.producer.publish();
    for (number, len) in [(3, 2_032), (4, 0), (5, 16)] {
        assert_eq!(receive(&mut pair.b), Some((content(number, len), len.try_into().unwrap())));
    }
}

#[test]
fn a_reservation_without_a_commit_is_replaced_by_the_next() {
    let mut pair = Pair::of(2);
    pair.a.producer.reserve(2_000).unwrap().unwrap().fill(1);
    assert!(send(&mut pair.a, &[2, 3], 5));
    assert_eq!(receive(&mut pair.b), Some((vec![2, 3], 5)));
    assert_eq!(receive(&mut pair.b), None);
    let uncommitted = std::panic::AssertUnwindSafe(|| pair.a.producer.commit(1, 0));
    assert!(std::panic::catch_unwind(uncommitted).is_err());
}

#[test]
fn a_frame_longer_than_a_buffer_is_the_callers_error_and_the_link_goes_on() {
    let mut pair = Pair::of(2);
    let error = pair.a.producer.reserve(2_049).unwrap_err();
    assert_eq!(error, ReserveError::TooLong { bytes: 2_049, most: 2_048 });
    assert_eq!(error.to_string(), "a frame of 2049 bytes is longer than the link's maximum of 2048 bytes");
    assert!(send(&mut pair.a, &content(1, 2_048), 0));
    assert_eq!(receive(&mut pair.b).unwrap().0.len(), 2_048);
}

#[test]
fn a_part_of_a_frame_is_copied_and_never_more_than_it_has() {
    let mut pair = Pair::of(2);
    assert!(send(&mut pair.a, &[1, 2, 3, 4, 5], 0));
    let frame = pair.b.consumer.next_frame().unwrap().unwrap();
    let mut part = [0; 2];
    frame.copy_to(3, &mut part);
    assert_eq!(part, [4, 5]);
    for (at, len) in [(4, 2), (6, 0), (usize::MAX, 1), (0, 6)] {
        let mut into = vec![0; len];
        let outside = std::panic::AssertUnwindSafe(|| frame.copy_to(at, &mut into));
        assert!(std::panic::catch_unwind(outside).is_err(), "{at} {len}");
    }
}

#[test]
fn one_notification_is_sent_per_sleep_and_only_on_request() {
    let mut pair = Pair::of(8);
    assert!(send(&mut pair.a, &[1], 0));
    assert_eq!(rings(&pair.b.wake_fd), 0);
    assert!(!pair.b.consumer.declare_asleep().unwrap());
    assert!(receive(&mut pair.b).is_some());
    assert!(pair.b.consumer.declare_asleep().unwrap());
    assert!(pair.b.consumer.declare_asleep().unwrap());
    assert!((0..3).all(|number| send(&mut pair.a, &[number], 0)));
    assert_eq!(rings(&pair.b.wake_fd), 1);
    assert!((0..3).all(|_| receive(&mut pair.b).is_some()));
    assert!(pair.b.consumer.declare_asleep().unwrap());
    pair.b.consumer.awake();
    assert!(send(&mut pair.a, &[1], 0));
    assert_eq!(rings(&pair.b.wake_fd), 0);
    let doorbells = pair.a.producer.counters().doorbells;
    assert_eq!((doorbells.sent, doorbells.suppressed, doorbells.full), (1, 4, 0));
    pair.a.producer.set_notify_always(true);
    assert!(send(&mut pair.a, &[1], 0));
    assert_eq!(rings(&pair.b.wake_fd), 1);
    pair.b.consumer.set_notify_always(true);
    assert!(receive(&mut pair.b).is_some() && receive(&mut pair.b).is_some());
    pair.b.consumer.give_back();
    assert_eq!(rings(&pair.a.wake_fd), 2);
}

#[test]
fn a_waiting_producer_is_notified_once_the_requested_room_is_free() {
    let mut pair = Pair::of(4);
    assert!(!pair.a.producer.want_room(4).unwrap());
    assert!((0..4).all(|number| send(&mut pair.a, &[number], 0)));
    assert!(pair.a.producer.want_room(2).unwrap());
    assert!(receive(&mut pair.b).is_some() && receive(&mut pair.b).is_some());
    assert_eq!(rings(&pair.a.wake_fd), 0);
    assert!(receive(&mut pair.b).is_some() && receive(&mut pair.b).is_some());
    assert_eq!(receive(&mut pair.b), None);
    assert_eq!(rings(&pair.a.wake_fd), 1);
    assert!(!pair.a.producer.want_room(1).unwrap());
    assert_eq!(pair.a.producer.room().unwrap(), 4);
    // As often as the ring fills up.
    for _ in 0..3 {
        while send(&mut pair.a, &[1], 0) {}
        assert!(pair.a.producer.want_room(99).unwrap());
        while receive(&mut pair.b).is_some() {}
        assert_eq!(rings(&pair.a.wake_fd), 1);
    }
}

#[test]
fn a_threshold_that_was_notified_too_early_is_not_forgotten() {
    let mut pair = Pair::of(4);
    while send(&mut pair.a, &[1], 0) {}
    assert!(pair.a.producer.want_room(3).unwrap());
    pair.b.consumer.set_notify_always(true);
    assert!(receive(&mut pair.b).is_some() && receive(&mut pair.b).is_some());
    assert_eq!(rings(&pair.a.wake_fd), 1);
    pair.b.consumer.set_notify_always(false);
    while receive(&mut pair.b).is_some() {}
    assert_eq!(rings(&pair.a.wake_fd), 1);
}

#[test]
fn buffers_are_given_back_in_batches_and_all_at_an_empty_ring() {
    let mut pair = Pair::of(8);
    pair.b.consumer.set_give_back_batch(3);
    while send(&mut pair.a, &[1], 0) {}
    for taken in [0, 0, 0, 3, 3, 3, 6, 6] {
        assert!(receive(&mut pair.b).is_some());
        assert_eq!(8 - pair.a.producer.in_flight().unwrap(), taken);
    }
    assert_eq!(receive(&mut pair.b), None);
    assert_eq!(pair.a.producer.in_flight().unwrap(), 0);
    assert_eq!(pair.a.producer.room().unwrap(), 8);
}

#[test]
fn a_ring_of_one_buffer_works() {
    let mut pair = Pair::of(1);
    for number in 0..5 {
        assert!(send(&mut pair.a, &[number], 0));
        assert!(!send(&mut pair.a, &[number], 0));
        assert_eq!(receive(&mut pair.b), Some((vec![number], 0)));
        assert_eq!(receive(&mut pair.b), None);
    }
}

/// Sends frames that each wait for the one before to be on its way, and sleeps when the ring is full.
fn send_all(link: &mut Link, frames: u8) {
    for number in 0..frames {
        while !send(link, &content(number, usize::from(number) + 90), number.into()) {
            if link.producer.want_room(2).unwrap() {
                sleep(&link.wake_fd);
            }
        }
    }
    link.producer.publish();
}

fn receive_all(link: &mut Link, frames: u8) {
    for number in 0..frames {
        let (bytes, tag) = loop {
            if let Some(frame) = receive(link) {
                break frame;
            }
            if link.consumer.declare_asleep().unwrap() {
                sleep(&link.wake_fd);
                link.consumer.awake();
            }
        };
        assert_eq!(tag, number.into());
        assert_eq!(bytes, content(number, usize::from(number) + 90));
    }
}

/// Waits for a ring; by looking where Miri, which cannot poll a pipe, looks on.
fn sleep(wake_fd: &WakeFd) {
    loop {
        let heard = wake_fd.drain().unwrap();
        assert!(!heard.hung_up, "the other thread failed");
        if heard.notifications > 0 {
            return;
        }
        if cfg!(miri) {
            std::thread::yield_now();
        } else {
            poll(&mut [PollFd::new(wake_fd, PollFlags::IN)], None).unwrap();
        }
    }
}

#[test]
fn two_threads_pass_every_frame_and_touch_no_byte_at_once() {
    let frames = if cfg!(miri) { 12 } else { 250 };
    for packing in [false, true] {
        let mut pair = Pair::new(shape(512, 2), shape(256, 3));
        pair.a.producer.set_packing(packing);
        pair.b.consumer.set_give_back_batch(2);
        let Pair { mut a, mut b } = pair;
        std::thread::scope(|scope| {
            // A thread that fails drops its end, and the other thread sees that.
            scope.spawn(move || send_all(&mut a, frames));
            scope.spawn(move || receive_all(&mut b, frames));
        });
    }
}

#[test]
fn a_notification_to_a_dead_peer_reports_that() {
    let mut pair = Pair::of(4);
    pair.a.producer.set_notify_always(true);
    pair.b.consumer.set_notify_always(true);
    assert!(send(&mut pair.a, &[1], 0) && send(&mut pair.a, &[1], 0));
    let Pair { mut a, mut b } = pair;
    drop(a.wake_fd);
    assert!(receive(&mut b).is_some() && receive(&mut b).is_some());
    assert!(b.consumer.peer_gone());
    drop(b);
    a.producer.reserve(1).unwrap().unwrap().fill(0);
    a.producer.commit(1, 0);
    assert!(a.producer.peer_gone());
}

/// One sound end, and a peer that can write what it likes.
struct Hostile {
    link: Link,
    /// The peer's memory.
    words: Region,
    _seen: View,
    _bell: NotifyFd,
    wake_fd: WakeFd,
}

impl Hostile {
    fn new() -> Self {
        let shape = shape(1_000, 4);
        let (own, seen) = memory(shape);
        let (evil, seen_evil) = memory(shape);
        let ((notify_fd, ear_evil), (bell_evil, wake_fd)) = (doorbell::pair().unwrap(), doorbell::pair().unwrap());
        let link = Link::new(own, seen_evil, notify_fd, wake_fd);
        Self { link, words: evil.region, _seen: seen.view, _bell: bell_evil, wake_fd: ear_evil }
    }

    /// Puts the head of a frame into the first buffer and publishes it.
    fn head(&mut self, word: u64) -> Result<bool, Violation> {
        let at = shape(1_000, 4).head_at(0, 0);
        self.words.store(at, word);
        self.words.store(at + TAG, 9);
        self.words.store(PRODUCED, 1);
        self.link.consumer.next_frame().map(|frame| frame.is_some())
    }
}

#[test]
fn an_impossible_produced_index_is_a_violation_and_stays_one() {
    for found in [5, u64::MAX, 1 << 32, (1 << 32) + 1, 1 << 63] {
        let mut hostile = Hostile::new();
        hostile.words.store(PRODUCED, found);
        let violation = Violation::Produced { found, least: 0, most: 4 };
        assert_eq!(hostile.link.consumer.next_frame().unwrap_err(), violation);
        hostile.words.store(PRODUCED, 0);
        assert_eq!(hostile.link.consumer.next_frame().unwrap_err(), violation);
        assert_eq!(hostile.link.consumer.is_ready().unwrap_err(), violation);
        assert_eq!(hostile.link.consumer.declare_asleep().unwrap_err(), violation);
        assert_eq!(hostile.link.consumer.counters().violations, 1);
        // The other direction is for the owner to detach.
        assert!(hostile.link.producer.reserve(1).unwrap().is_some());
    }
}

#[test]
fn indices_that_go_back_are_violations() {
    let mut hostile = Hostile::new();
    assert!(hostile.head(LAST).unwrap());
    hostile.words.store(PRODUCED, 0);
    assert_eq!(hostile.link.consumer.is_ready().unwrap_err(), Violation::Produced { found: 0, least: 1, most: 5 });
    let mut hostile = Hostile::new();
    (0..4).for_each(|_| assert!(send(&mut hostile.link, &[1], 0)));
    hostile.words.store(CONSUMED, 3);
    assert_eq!(hostile.link.producer.in_flight(), Ok(1));
    hostile.words.store(CONSUMED, 2);
    let violation = Violation::Consumed { found: 2, least: 3, most: 4 };
    assert_eq!(hostile.link.producer.in_flight(), Err(violation));
    assert_eq!(hostile.link.producer.reserve(1).unwrap_err(), ReserveError::Violation(violation));
}

#[test]
fn an_impossible_consumed_index_is_a_violation_and_stays_one() {
    for found in [5, u64::MAX, 1 << 32, 1 << 63] {
        let mut hostile = Hostile::new();
        (0..4).for_each(|_| assert!(send(&mut hostile.link, &[1], 0)));
        hostile.words.store(CONSUMED, found);
        let violation = Violation::Consumed { found, least: 0, most: 4 };
        assert_eq!(hostile.link.producer.reserve(1).unwrap_err(), violation.into());
        hostile.words.store(CONSUMED, 4);
        assert_eq!(hostile.link.producer.room().unwrap_err(), violation);
        assert_eq!(hostile.link.producer.want_room(1).unwrap_err(), violation);
        assert_eq!(hostile.link.producer.counters().violations, 1);
    }
}

#[test]
fn an_impossible_length_is_a_violation() {
    for found in [1_001, 1 << 16, 1 << 32, (1 << 32) + 1, ROUND_ENDS - 1] {
        for mark in [0, LAST] {
            let violation = Violation::Length { found, most: 1_000 };
            assert_eq!(Hostile::new().head(found | mark), Err(violation), "{found}");
        }
    }
    assert_eq!(Hostile::new().head(1_000), Err(Violation::Unended { at: 1_024, most: 1_000 }));
    assert_eq!([0, ROUND_ENDS].map(|mark| Hostile::new().head(LAST | mark | 1_000)), [Ok(true); 2]);
    let found = ROUND_ENDS | 1;
    assert_eq!(
        Hostile::new().head(found),
        Err(Violation::Length { found, most: 1_000 }),
        "no round ends within a buffer"
    );
}

#[test]
fn a_length_is_compared_with_the_rest_of_its_buffer() {
    for (length, last) in [(472, true), (473, false), (1_000, false)] {
        let mut hostile = Hostile::new();
        // 500 bytes, padded to a head's alignment, and the second head leave 472.
        hostile.words.store(shape(1_000, 4).head_at(0, 528), length | LAST);
        assert_eq!(hostile.head(500), Ok(true));
        let second = hostile.link.consumer.next_frame().map(|frame| frame.map(|frame| frame.len()));
        let violation = Violation::Length { found: length, most: 472 };
        assert_eq!(second, if last { Ok(Some(472)) } else { Err(violation) });
    }
}

#[test]
fn thresholds_of_any_value_cause_at_most_one_notification_per_change() {
    for wish in [1, 2, u64::MAX, 1 << 32] {
        let mut hostile = Hostile::new();
        hostile.words.store(FRAMES_NOTIFY_THRESHOLD, wish);
        hostile.words.store(ROOM_NOTIFY_THRESHOLD, wish);
        (0..2).for_each(|_| assert!(send(&mut hostile.link, &[1], 0)));
        assert_eq!(rings(&hostile.wake_fd), usize::from(wish <= 2));
        assert!(hostile.head(LAST).unwrap());
        assert!(!hostile.link.consumer.is_ready().unwrap());
        assert_eq!(rings(&hostile.wake_fd), usize::from(wish <= 1));
    }
}

#[test]
#[cfg_attr(miri, ignore = "Miri has one size of pipe")]
fn a_storm_of_rings_is_taken_in_one_bounded_call_and_a_full_pipe_stops_nobody() {
    let hostile = Hostile::new();
    let Hostile { mut link, mut words, _bell: notify_fd, .. } = hostile;
    while notify_fd.notify() == doorbell::Notified::Sent {}
    let heard = link.wake_fd.drain().unwrap();
    assert_eq!((heard.notifications, heard.hung_up), (512, false));
    link.producer.set_notify_always(true);
    for taken in 0..5_000 {
        assert!(send(&mut link, &[1], 0));
        words.store(CONSUMED, taken + 1);
    }
    assert_eq!(link.producer.counters().doorbells.full, 5_000 - 512);
    assert!(!link.producer.peer_gone());
}

#[test]
fn violations_say_what_was_found_and_what_can_be() {
    for (violation, text) in [
        (Violation::Seals { found: 2, needed: 23 }, "the memory file has seals 0x2, but 0x17 are needed"),
        (Violation::Produced { found: 9, least: 1, most: 5 }, "9 filled buffers, but 1 to 5 are possible"),
        (Violation::Length { found: 9, most: 5 }, "a frame has 9 bytes, but its buffer has only 5 bytes left"),
    ] {
        assert!(violation.to_string().ends_with(text), "{violation}");
    }
}

/// The next frame, kept whole.
fn retain(to: &mut Link) -> Arc<Retained> {
    let frame = to.consumer.next_frame().unwrap().unwrap();
    frame.retain(0, frame.len())
}

fn read(kept: &Retained, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    kept.copy_to(0, &mut bytes);
    bytes
}

#[test]
fn a_retained_part_holds_its_buffer_and_those_behind_it_until_it_is_dropped() {
    let mut pair = Pair::of(4);
    let frames: Vec<_> = (1..=4).map(|number| content(number, 2_000)).collect();
    assert!(frames.iter().all(|frame| send(&mut pair.a, frame, 0)));
    let first = retain(&mut pair.b);
    assert_eq!(pair.b.consumer.count_unreturned(), 1);
    assert_eq!(receive(&mut pair.b).unwrap().0, frames[1]);
    let third = retain(&mut pair.b);
    assert_eq!(pair.b.consumer.count_unreturned(), 3, "the second too, which is done with");
    assert_eq!(pair.a.producer.room().unwrap(), 0);
    assert_eq!((read(&first, 2_000), read(&third, 2_000)), (frames[0].clone(), frames[2].clone()));
    drop(first);
    assert_eq!(pair.b.consumer.count_unreturned(), 1);
    assert_eq!(pair.a.producer.room().unwrap(), 2);
    drop(third);
    pair.b.consumer.give_back();
    assert!(pair.a.producer.has_room(3).unwrap());
}

#[test]
fn moved_out_bytes_are_the_same_and_hold_no_buffer() {
    let mut pair = Pair::of(4);
    assert!(send(&mut pair.a, &content(7, 2_000), 0) && send(&mut pair.a, &content(8, 2_000), 0));
    let kept = [retain(&mut pair.b), retain(&mut pair.b)];
    pair.b.consumer.move_out();
    for number in 11..15 {
        assert!(send(&mut pair.a, &content(number, 2_000), 0));
    }
    assert_eq!(read(&kept[0], 2_000), content(7, 2_000));
    let last = (0..4).map(|_| retain(&mut pair.b)).last().unwrap();
    assert!(pair.b.consumer.declare_asleep().unwrap());
    assert_eq!((pair.a.producer.room().unwrap(), read(&last, 2_000)), (4, content(14, 2_000)), "nor does who sleeps");
    let mut end = [0; 100];
    kept[1].copy_to(1_900, &mut end);
    assert_eq!(end, content(8, 2_000)[1_900..]);
    assert!(std::panic::catch_unwind(|| kept[1].copy_to(1_901, &mut [0; 100])).is_err());
}

#[test]
fn sent_bytes_stay_in_their_buffer_and_are_moved_out_before_it_is_filled_again() {
    let mut pair = Pair::of(3);
    let mut kept = Vec::new();
    for number in 1..=3 {
        assert_eq!(pair.a.producer.next_retained_at(), None);
        let retainer = pair.a.producer.retainer();
        let place = pair.a.producer.reserve(500).unwrap().unwrap();
        place.copy_from_slice(&content(number, 500));
        kept.push(retainer.retain(&place[100..]).unwrap());
        assert!(retainer.retain(&content(number, 500)).is_none(), "that lies elsewhere");
        pair.a.producer.commit(500, 0);
        assert_eq!(receive(&mut pair.b).unwrap().0, content(number, 500));
    }
    pair.b.consumer.give_back();
    assert_eq!(pair.a.producer.retained_buffers(), 3);
    assert!(pair.a.producer.next_retained_at().is_some_and(|since| since <= Ticks::now()));
    drop(kept.remove(0));
    assert_eq!((pair.a.producer.next_retained_at(), pair.a.producer.retained_buffers()), (None, 2));
    for number in 4..=6 {
        assert!(send(&mut pair.a, &content(number, 500), 0));
        assert_eq!(receive(&mut pair.b).unwrap().0, content(number, 500));
    }
    assert_eq!(pair.a.producer.retained_buffers(), 0);
    for (kept, number) in kept.iter().zip([2, 3]) {
        assert_eq!(read(kept, 400), content(number, 500)[100..]);
    }
}
