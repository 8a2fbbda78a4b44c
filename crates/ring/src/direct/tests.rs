//! Both ends of a couple in one process, over ordinary memory, so that Miri can run these tests.
#![expect(clippy::unwrap_used, reason = "a test says what it wants by failing")]

use super::layout::{
    ASLEEP, BEGIN, CLOSED, CONSUMED, END, PRODUCED, RECEIVE_GENERATION, SEND_GENERATION, STOP, STOPPING,
};
use super::{Couple, Incoming, Lane, Shape, Stopped, Violation};
use crate::doorbell::{self, WakeFd};
use crate::map::pair;
use std::sync::Arc;

const SLOTS: usize = 3;
const BYTES: usize = 16;

fn shape() -> Shape {
    Shape::new(SLOTS, BYTES).unwrap()
}

/// An end, and what wakes it.
type End = (Couple, WakeFd);

fn couples() -> (End, End) {
    let bytes = shape().memory_bytes();
    let ((own_a, seen_a), (own_b, seen_b)) = (pair(bytes), pair(bytes));
    let ((notify_b, wake_b), (notify_a, wake_a)) = (doorbell::pair().unwrap(), doorbell::pair().unwrap());
    let a = Couple::over(own_a, seen_b, shape(), Arc::new(notify_b), false);
    let b = Couple::over(own_b, seen_a, shape(), Arc::new(notify_a), false);
    ((a, wake_a), (b, wake_b))
}

fn notifications(wake_fd: &WakeFd) -> usize {
    wake_fd.drain().unwrap().notifications
}

fn bytes(range: std::ops::Range<usize>) -> Vec<u8> {
    range.map(|byte| u8::try_from(byte % 251).unwrap()).collect()
}

fn receive_all(lane: &mut Lane, couple: &mut Couple) -> Vec<u8> {
    lane.look(couple).unwrap();
    let mut into = vec![0; lane.unread()];
    assert_eq!(lane.receive(couple, &mut into), into.len());
    into
}

#[test]
fn bytes_arrive_in_order_across_the_end_of_the_buffer() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 1, 4), Lane::bind(&mut b, 1, 4));
    assert!(to.can_begin(&a));
    to.begin(&mut a, 100);
    let (mut sent, mut received) = (0, Vec::new());
    for step in (1..=BYTES).cycle().take(200) {
        let len = to.send(&mut a, &bytes(sent..sent + step)).unwrap();
        assert_eq!(len, step);
        sent += len;
        received.extend(receive_all(&mut from, &mut b));
        assert_eq!(from.incoming(), Incoming::TcpUpTo(100));
    }
    assert_eq!(received, bytes(0..sent));
    let count = u64::try_from(sent).unwrap();
    assert_eq!((a.moved_bytes(), b.moved_bytes()), ((count, 0), (0, count)));
}

#[test]
fn a_peek_leaves_the_bytes() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    to.begin(&mut a, 0);
    to.send(&mut a, b"abcdef").unwrap();
    from.look(&mut b).unwrap();
    let mut four = [0; 4];
    assert_eq!((from.peek(&b, &mut four), &four), (4, b"abcd"));
    assert_eq!(receive_all(&mut from, &mut b), b"abcdef");
}

#[test]
fn a_full_buffer_takes_nothing_until_half_of_it_is_free() {
    let ((mut a, wake_a), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    to.begin(&mut a, 0);
    assert_eq!(to.send(&mut a, &bytes(0..20)), Ok(BYTES));
    assert_eq!((to.send(&mut a, &[1]), to.room(&a)), (Ok(0), Ok(0)));
    assert_eq!(to.want_room(&mut a), Ok(true));
    a.declare_asleep();
    from.look(&mut b).unwrap();
    assert_eq!(from.receive(&mut b, &mut [0; BYTES / 2 - 1]), BYTES / 2 - 1);
    assert_eq!(notifications(&wake_a), 0, "less than half is free");
    assert_eq!(to.look(&mut a), Ok(false));
    assert_eq!(from.receive(&mut b, &mut [0]), 1);
    assert_eq!(notifications(&wake_a), 1);
    assert_eq!((to.look(&mut a), to.room(&a)), (Ok(true), Ok(BYTES / 2)));
    assert!(!to.wants_room());
    assert_eq!(from.receive(&mut b, &mut [0]), 1);
    assert_eq!(notifications(&wake_a), 0, "the sender waits no longer");
}

#[test]
fn a_program_that_fills_the_buffer_exactly_is_notified_of_room() {
    let ((mut a, wake_a), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    to.begin(&mut a, 0);
    assert!(to.is_writable(&mut a) && !to.wants_room());
    assert_eq!(to.send(&mut a, &bytes(0..BYTES)), Ok(BYTES));
    assert!(!to.is_writable(&mut a));
    a.declare_asleep();
    assert_eq!(to.look(&mut a), Ok(false));
    assert_eq!(receive_all(&mut from, &mut b).len(), BYTES);
    assert_eq!(notifications(&wake_a), 1);
    assert_eq!((to.look(&mut a), to.is_writable(&mut a)), (Ok(true), true));
}

#[test]
fn bytes_that_a_sender_adds_while_it_waits_for_room_move_its_request() {
    let ((mut a, wake_a), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    to.begin(&mut a, 0);
    assert_eq!((to.send(&mut a, &bytes(0..20)), to.want_room(&mut a)), (Ok(BYTES), Ok(true)));
    from.look(&mut b).unwrap();
    from.receive(&mut b, &mut [0; 4]);
    assert_eq!(to.send(&mut a, &bytes(16..20)), Ok(4));
    for (read, notified) in [(BYTES / 2 - 1, 0), (1, 1)] {
        a.declare_asleep();
        assert_eq!(to.look(&mut a), Ok(false));
        from.look(&mut b).unwrap();
        assert_eq!(from.receive(&mut b, &mut vec![0; read]), read);
        assert_eq!(notifications(&wake_a), notified);
    }
    assert_eq!((to.look(&mut a), to.room(&a)), (Ok(true), Ok(BYTES / 2)));
}

#[test]
fn a_limit_makes_the_buffer_smaller_also_while_more_bytes_are_unread() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    to.begin(&mut a, 0);
    to.limit(&mut a, 6);
    assert_eq!((to.room(&a), to.send(&mut a, &bytes(0..9))), (Ok(6), Ok(6)));
    to.limit(&mut a, 4);
    assert_eq!((to.room(&a), to.send(&mut a, &bytes(6..9)), to.want_room(&mut a)), (Ok(0), Ok(0), Ok(true)));
    let mut part = [0; 3];
    from.look(&mut b).unwrap();
    from.receive(&mut b, &mut part);
    assert_eq!((to.look(&mut a), to.room(&a)), (Ok(false), Ok(1)), "half of the limit is not free");
    from.receive(&mut b, &mut part[..1]);
    assert_eq!((to.look(&mut a), to.room(&a)), (Ok(true), Ok(2)));
    // No limit exceeds the buffer.
    to.limit(&mut a, usize::MAX);
    assert_eq!(to.room(&a), Ok(BYTES - 2));
}

#[test]
fn a_sleeping_reader_is_notified_once_and_a_busy_one_never() {
    let ((mut a, _), (mut b, wake_b)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 2, 1), Lane::bind(&mut b, 2, 1));
    to.begin(&mut a, 0);
    to.send(&mut a, &[1]).unwrap();
    assert_eq!(notifications(&wake_b), 0);
    from.look(&mut b).unwrap();
    for _ in 0..3 {
        b.declare_asleep();
        assert_eq!(from.look(&mut b), Ok(false));
        to.send(&mut a, &[2]).unwrap();
        to.send(&mut a, &[3]).unwrap();
        assert_eq!(notifications(&wake_b), 1);
        b.awake();
        receive_all(&mut from, &mut b);
    }
}

#[test]
fn each_change_of_an_end_makes_its_peer_look_once() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    let looks = |couple: &mut Couple| (couple.may_have_changed(), couple.may_have_changed());
    assert_eq!(
        (looks(&mut a), looks(&mut b)),
        ((true, false), (true, false)),
        "the first look finds all that was before"
    );
    to.begin(&mut a, 0);
    assert_eq!(to.send(&mut a, b"abc"), Ok(3));
    assert_eq!((looks(&mut a), looks(&mut b)), ((false, false), (true, false)), "bytes");
    from.look(&mut b).unwrap();
    assert_eq!(from.receive(&mut b, &mut [0; 2]), 2);
    assert_eq!((looks(&mut a), looks(&mut b)), ((true, false), (false, false)), "room");
    to.end(&mut a);
    assert_eq!(looks(&mut b), (true, false), "the end");
    from.stop(&mut b).unwrap();
    assert_eq!(looks(&mut a), (true, false), "a stop");
    from.close(&mut b);
    assert_eq!(looks(&mut a), (true, false), "a close");
    to.limit(&mut a, 5);
    assert_eq!((looks(&mut a), looks(&mut b)), ((true, false), (false, false)), "an own limit");
    Lane::bind(&mut b, 1, 2);
    assert_eq!((looks(&mut a), looks(&mut b)), ((false, false), (true, false)), "an own slot");
}

#[test]
fn a_quiet_end_leaves_its_notifications_to_the_caller() {
    let ((mut a, _), (mut b, wake_b)) = couples();
    a.is_quiet = true;
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    to.begin(&mut a, 0);
    b.declare_asleep();
    assert_eq!(from.look(&mut b), Ok(true), "the peer has begun");
    to.send(&mut a, &[1]).unwrap();
    assert_eq!(notifications(&wake_b), 0);
    a.take_notification().unwrap().notify();
    assert_eq!(notifications(&wake_b), 1);
    assert!(a.take_notification().is_none());
}

#[test]
fn the_sender_returns_to_tcp_after_its_last_byte_in_memory() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    assert_eq!(from.incoming(), Incoming::Tcp);
    to.begin(&mut a, 7);
    to.send(&mut a, &[1, 2]).unwrap();
    to.end(&mut a);
    assert!(to.has_ended_sending() && !to.sends_by_memory());
    from.look(&mut b).unwrap();
    assert_eq!(from.incoming(), Incoming::TcpUpTo(7));
    assert_eq!(receive_all(&mut from, &mut b), [1, 2]);
    assert_eq!(from.incoming(), Incoming::TcpAfterMemory(7));
    assert!(from.has_ended_receiving());
    assert!(!to.can_begin(&a), "only in another slot");
}

#[test]
fn every_byte_comes_by_one_carrier_wherever_the_receiver_stops() {
    for published in 0..=BYTES {
        for (read, late) in (0..=published).flat_map(|read| (0..=BYTES - published).map(move |late| (read, late))) {
            let ((mut a, _), (mut b, _)) = couples();
            let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
            to.begin(&mut a, 0);
            to.send(&mut a, &bytes(0..published)).unwrap();
            from.look(&mut b).unwrap();
            let mut received = vec![0; read];
            assert_eq!(from.receive(&mut b, &mut received), read);
            received.extend(from.stop(&mut b).unwrap());
            assert_eq!(received, bytes(0..published));
            // The sender has not seen the stop yet.
            to.send(&mut a, &bytes(published..published + late)).unwrap();
            assert_eq!(to.stopped(&a), Ok(Stopped::Yes));
            received.extend(to.read_own(&a, to.unread_by_peer()));
            assert_eq!(received, bytes(0..published + late));
            assert_eq!((from.look(&mut b), from.unread()), (Ok(false), 0), "bytes after the stop come by TCP");
        }
    }
}

#[test]
fn a_receiver_that_stops_before_the_first_byte_gets_all_bytes_by_tcp() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    let can_begin = to.can_begin(&a);
    assert_eq!(from.stop(&mut b), Ok(Vec::new()));
    assert!(can_begin && !to.can_begin(&a));
    // The sender began in the same moment.
    to.begin(&mut a, 0);
    to.send(&mut a, b"late").unwrap();
    assert_eq!((from.look(&mut b), from.incoming()), (Ok(false), Incoming::Tcp));
    assert_eq!(to.stopped(&a), Ok(Stopped::Yes));
    assert_eq!(to.read_own(&a, to.unread_by_peer()), b"late");
}

#[test]
fn what_a_dead_peer_has_not_read_goes_by_tcp() {
    for is_stopped in [false, true] {
        let ((mut a, _), (mut b, _)) = couples();
        let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
        to.begin(&mut a, 0);
        to.send(&mut a, b"abcdef").unwrap();
        from.look(&mut b).unwrap();
        from.receive(&mut b, &mut [0; 2]);
        let unread: &[u8] = if is_stopped {
            assert_eq!(from.stop(&mut b).unwrap(), b"cdef");
            b""
        } else {
            b"cdef"
        };
        let rest = to.lose_peer(&mut a).unwrap();
        assert_eq!(to.read_own(&a, rest), unread);
        assert!(to.has_ended_sending());
    }
}

#[test]
fn closing_with_unread_bytes_is_seen_by_the_side_that_can_see_it() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    to.begin(&mut a, 0);
    assert_eq!(to.peer_has_closed(&a), None);
    to.send(&mut a, &[1]).unwrap();
    assert!(from.close(&mut b), "a byte is unread");
    assert_eq!(to.peer_has_closed(&a), Some(true));
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 2), Lane::bind(&mut b, 0, 2));
    to.begin(&mut a, 0);
    to.send(&mut a, &[1]).unwrap();
    assert_eq!(receive_all(&mut from, &mut b), [1]);
    assert!(!from.close(&mut b));
    assert_eq!(to.peer_has_closed(&a), Some(false));
    to.send(&mut a, &[2]).unwrap();
    assert_eq!(to.peer_has_closed(&a), Some(true), "nobody reads this byte");
}

#[test]
fn a_slot_shows_nothing_of_the_connection_that_had_it_before() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    to.begin(&mut a, 3);
    to.send(&mut a, &bytes(0..10)).unwrap();
    receive_all(&mut from, &mut b);
    to.end(&mut a);
    from.close(&mut b);
    // One end has the next connection already, and the other end has not.
    let mut next = Lane::bind(&mut a, 0, 2);
    assert!(!next.can_begin(&a), "the peer has not bound the slot");
    assert_eq!(next.peer_has_closed(&a), None);
    let mut other = Lane::bind(&mut b, 0, 2);
    assert_eq!((other.look(&mut b), other.incoming()), (Ok(false), Incoming::Tcp));
    assert!(next.can_begin(&a));
    next.begin(&mut a, 8);
    next.send(&mut a, b"new").unwrap();
    assert_eq!(receive_all(&mut other, &mut b), b"new");
    assert_eq!(other.incoming(), Incoming::TcpUpTo(8));
}

/// A sound end with 5 of 8 sent bytes consumed and 4 of 6 received bytes read in slot 0, and a second lane in slot 1. `word` of slot 0 of
/// the peer then gets `value`.
fn broken_by(word: usize, value: u64) -> Option<Violation> {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut lane, mut evil) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    let (mut other, mut sound) = (Lane::bind(&mut a, 1, 1), Lane::bind(&mut b, 1, 1));
    lane.begin(&mut a, 0);
    evil.begin(&mut b, 0);
    lane.send(&mut a, &bytes(0..8)).unwrap();
    evil.look(&mut b).unwrap();
    evil.receive(&mut b, &mut [0; 5]);
    evil.send(&mut b, &bytes(0..6)).unwrap();
    lane.look(&mut a).unwrap();
    lane.receive(&mut a, &mut [0; 4]);
    lane.room(&a).unwrap();
    b.own.store(shape().word(0, word), value);
    let found = [
        lane.look(&mut a).err(),
        lane.room(&a).err(),
        lane.stopped(&a).err(),
        lane.send(&mut a, &[0; 30]).err(),
        lane.stop(&mut a).err(),
    ];
    sound.begin(&mut b, 0);
    sound.send(&mut b, b"sound").unwrap();
    assert_eq!(receive_all(&mut other, &mut a), b"sound", "the other connection goes on");
    found.into_iter().flatten().next()
}

#[test]
fn a_word_that_no_sound_peer_writes_breaks_its_lane_and_no_other() {
    let produced = |found| Some(Violation::Produced { found, least: 6, most: 20 });
    let consumed = |found| Some(Violation::Consumed { found, least: 5, most: 8 });
    let stop = |found| Some(Violation::Stop { found, least: 5, most: 8 });
    for value in [0, 5, 21, u64::MAX] {
        assert_eq!(broken_by(PRODUCED, value), produced(value));
    }
    for value in [0, 4, 9, u64::MAX] {
        assert_eq!(broken_by(CONSUMED, value), consumed(value));
    }
    for value in [1, 5, 10, STOPPING - 1] {
        assert_eq!(broken_by(STOP, value), stop(value - 1));
    }
    for value in [1, 6, 8, u64::MAX] {
        assert_eq!(broken_by(END, value), Some(Violation::End { found: value - 1, published: 6 }));
    }
    for (word, value) in [(PRODUCED, 20), (CONSUMED, 8), (STOP, 9), (STOP, STOPPING), (END, 7), (BEGIN, 99)] {
        assert_eq!(broken_by(word, value), None, "{word} {value}");
    }
    for (word, value) in [(SEND_GENERATION, 2), (RECEIVE_GENERATION, 2), (CLOSED, 5)] {
        assert_eq!(broken_by(word, value), None, "{word} {value}");
    }
}

#[test]
fn a_peer_that_never_says_where_it_stops_delays_its_own_connection_only() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut lane, mut evil) = (Lane::bind(&mut a, 0, 7), Lane::bind(&mut b, 0, 7));
    let (mut other, mut sound) = (Lane::bind(&mut a, 1, 8), Lane::bind(&mut b, 1, 8));
    lane.begin(&mut a, 0);
    evil.begin(&mut b, 0);
    assert_eq!(lane.look(&mut a), Ok(true), "the peer has begun");
    b.own.store(shape().word(0, STOP), STOPPING);
    for _ in 0..5 {
        assert_eq!((lane.stopped(&a), lane.look(&mut a)), (Ok(Stopped::Soon), Ok(false)));
    }
    // The words of an older connection, and of one that does not exist yet.
    for generation in [6, 8, 0, u64::MAX] {
        b.own.store(shape().word(0, SEND_GENERATION), generation);
        b.own.store(shape().word(0, RECEIVE_GENERATION), generation);
        b.own.store(shape().word(0, PRODUCED), 9);
        let mut fresh = Lane::bind(&mut a, 0, 7);
        assert_eq!((fresh.look(&mut a), fresh.incoming(), fresh.unread()), (Ok(false), Incoming::Tcp, 0));
        assert_eq!((fresh.can_begin(&a), fresh.stopped(&a)), (false, Ok(Stopped::No)));
    }
    other.begin(&mut a, 0);
    other.send(&mut a, b"sound").unwrap();
    assert_eq!(receive_all(&mut sound, &mut b), b"sound");
}

#[test]
fn bytes_in_memory_cannot_come_before_bytes_that_have_come_by_tcp() {
    let ((mut a, _), (mut b, _)) = couples();
    let (mut to, mut from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    assert_eq!(from.check_begin(9), Ok(()));
    to.begin(&mut a, 7);
    from.look(&mut b).unwrap();
    assert_eq!(from.check_begin(7), Ok(()));
    assert_eq!(from.check_begin(8), Err(Violation::Begin { found: 7, least: 8 }));
    to.end(&mut a);
    from.look(&mut b).unwrap();
    assert_eq!(from.check_begin(8), Ok(()), "bytes by TCP follow those in memory");
}

#[test]
fn a_peer_with_false_sleeps_causes_one_notification_for_each_publication() {
    let ((mut a, _), (mut b, wake_b)) = couples();
    let (mut to, _from) = (Lane::bind(&mut a, 0, 1), Lane::bind(&mut b, 0, 1));
    to.begin(&mut a, 0);
    for sleep in [u64::MAX, 5, 1, u64::MAX, 5] {
        b.own.store(ASLEEP, sleep);
        to.send(&mut a, &[1]).unwrap();
        assert_eq!(notifications(&wake_b), 1);
        b.own.store(ASLEEP, sleep);
        to.send(&mut a, &[1]).unwrap();
        assert_eq!(notifications(&wake_b), 0);
    }
}

#[test]
fn shapes_outside_the_bounds_are_refused_and_slots_do_not_overlap() {
    for (slots, bytes) in [(0, 16), (1_025, 16), (1, 0), (1, 24), (1, 2 << 30)] {
        assert_eq!(Shape::new(slots, bytes), None);
    }
    for shape in [shape(), Shape::STANDARD, Shape::new(17, 4_096).unwrap()] {
        let words = (0..shape.slots()).map(|slot| shape.word(slot, CLOSED) + 8);
        assert!(words.max().unwrap() <= shape.buffer(0));
        let end = shape.buffer(shape.slots() - 1) + shape.slot_bytes();
        assert!(end <= shape.memory_bytes());
        assert!((1..shape.slots()).all(|slot| shape.buffer(slot) - shape.buffer(slot - 1) == shape.slot_bytes()));
    }
}
