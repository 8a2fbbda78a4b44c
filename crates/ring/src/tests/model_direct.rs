//! What has to hold between the two ends of a direct connection, in every order in which their steps can be seen.

use super::{NotifyFd, Region, View, WakeFd, Words, doorbell};
use crate::direct::{Couple, Incoming, Lane, Shape, Stopped};
use loom::sync::atomic::AtomicU64;
use std::sync::Arc;

const PREEMPTIONS_MAX: usize = 2;
const GENERATION: u64 = 7;

/// A slot of two bytes, and every word of it.
fn shape() -> Shape {
    Shape::new(1, 2).unwrap()
}

fn memory() -> (Region, View) {
    let of_slot = [0, 8, 16, 24, 32, 128, 136, 144, 152].map(|word| 4_096 + word);
    let buffer = shape().memory_bytes() - 4_096;
    let words: Words = Arc::new(
        [0, 8, 128, 136, buffer, buffer + 1].into_iter().chain(of_slot).map(|at| (at, AtomicU64::new(0))).collect(),
    );
    (Region { words: Arc::clone(&words), start: 0, bytes: Vec::new() }, View(words))
}

type End = (Couple, Lane, WakeFd);

fn ends() -> (End, End) {
    let ((own_a, seen_a), (own_b, seen_b)) = (memory(), memory());
    let ((bell_a, ear_b), (bell_b, ear_a)) = (doorbell(), doorbell());
    let end = |own, peer, bell: NotifyFd, ear| {
        let mut couple = Couple::over(own, peer, shape(), Arc::new(bell), false);
        let lane = Lane::bind(&mut couple, 0, GENERATION);
        (couple, lane, ear)
    };
    (end(own_a, seen_b, bell_a, ear_a), end(own_b, seen_a, bell_b, ear_b))
}

fn explore(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS_MAX);
    builder.check(model);
}

/// Sleeps until the peer has changed something.
fn sleep(couple: &mut Couple, lane: &mut Lane, ear: &WakeFd) {
    couple.declare_asleep();
    if !lane.look(couple).unwrap() {
        ear.sleep();
    }
    couple.awake();
}

/// Receives the bytes 1 to 4, and sleeps while none has come.
fn receive_four_bytes(couple: &mut Couple, lane: &mut Lane, ear: &WakeFd) {
    let mut expected = 1;
    while expected <= 4 {
        let mut byte = [0];
        if lane.receive(couple, &mut byte) == 1 {
            assert_eq!(byte, [expected]);
            expected += 1;
        } else if !lane.look(couple).unwrap() {
            sleep(couple, lane, ear);
        }
    }
}

#[test]
fn no_byte_is_read_before_it_is_written_and_no_wake_up_is_lost() {
    explore(|| {
        let ((mut couple, mut lane, ear), (mut other, mut back, other_ear)) = ends();
        let sender = loom::thread::spawn(move || {
            assert!(lane.can_begin(&couple));
            lane.begin(&mut couple, 0);
            for byte in 1..=4_u8 {
                while lane.send(&mut couple, &[byte]).unwrap() == 0 {
                    if lane.want_room(&mut couple).unwrap() {
                        sleep(&mut couple, &mut lane, &ear);
                    }
                }
            }
        });
        receive_four_bytes(&mut other, &mut back, &other_ear);
        sender.join().unwrap();
    });
}

#[test]
fn no_wake_up_is_lost_if_the_sender_adds_bytes_while_it_waits_for_room() {
    explore(|| {
        let ((mut couple, mut lane, ear), (mut other, mut back, other_ear)) = ends();
        let sender = loom::thread::spawn(move || {
            lane.begin(&mut couple, 0);
            for bytes in [&[1_u8, 2, 3][..], &[4]] {
                let mut sent = 0;
                while sent < bytes.len() {
                    let count = lane.send(&mut couple, &bytes[sent..]).unwrap();
                    sent += count;
                    // After the rest of a write, the sender tries once more before it sleeps.
                    if sent < bytes.len() && lane.want_room(&mut couple).unwrap() && count == 0 {
                        sleep(&mut couple, &mut lane, &ear);
                    }
                }
                while !lane.is_writable(&mut couple) {
                    sleep(&mut couple, &mut lane, &ear);
                }
            }
        });
        receive_four_bytes(&mut other, &mut back, &other_ear);
        sender.join().unwrap();
    });
}

#[test]
fn every_byte_comes_by_one_carrier_if_the_receiver_stops_at_any_moment() {
    explore(|| {
        let ((mut couple, mut lane, _), (mut other, mut back, _)) = ends();
        let sender = loom::thread::spawn(move || {
            lane.begin(&mut couple, 0);
            let mut by_tcp = Vec::new();
            for byte in 1..=2_u8 {
                if lane.sends_by_memory() {
                    assert_eq!(lane.send(&mut couple, &[byte]), Ok(1));
                } else {
                    by_tcp.push(byte);
                }
                while lane.sends_by_memory() {
                    match lane.stopped(&couple).unwrap() {
                        Stopped::No => break,
                        Stopped::Soon => loom::thread::yield_now(),
                        Stopped::Yes => by_tcp.extend(lane.read_own(&couple, lane.unread_by_peer())),
                    }
                }
            }
            (lane.sends_by_memory(), by_tcp)
        });
        let mut bytes = back.stop(&mut other).unwrap();
        let (by_memory, by_tcp) = sender.join().unwrap();
        // A sender that never saw the stop has published everything before.
        assert!(!by_memory || bytes == [1, 2]);
        bytes.extend(by_tcp);
        assert_eq!(bytes, [1, 2]);
    });
}

#[test]
fn the_end_of_an_epoch_is_seen_only_after_its_last_byte() {
    explore(|| {
        let ((mut couple, mut lane, _), (mut other, mut back, ear)) = ends();
        let sender = loom::thread::spawn(move || {
            lane.begin(&mut couple, 5);
            assert_eq!(lane.send(&mut couple, &[9]), Ok(1));
            lane.end(&mut couple);
        });
        let mut bytes = Vec::new();
        while !back.has_ended_receiving() {
            if !back.look(&mut other).unwrap() {
                sleep(&mut other, &mut back, &ear);
            }
            let mut byte = [0];
            if back.receive(&mut other, &mut byte) == 1 {
                bytes.extend(byte);
            }
        }
        assert_eq!((bytes.as_slice(), back.incoming()), ([9].as_slice(), Incoming::TcpAfterMemory(5)));
        sender.join().unwrap();
    });
}

#[test]
fn bytes_that_the_closing_side_has_not_read_are_seen_by_one_side() {
    explore(|| {
        let ((mut couple, mut lane, _), (mut other, mut back, _)) = ends();
        let sender = loom::thread::spawn(move || {
            lane.begin(&mut couple, 0);
            assert_eq!(lane.send(&mut couple, &[1]), Ok(1));
            lane.peer_has_closed(&couple).is_some_and(|left_unread| left_unread)
        });
        let seen_here = back.close(&mut other);
        let seen_there = sender.join().unwrap();
        assert!(seen_here || seen_there);
    });
}
