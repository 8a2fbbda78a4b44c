//! Two applications of which one is sound and the other one sends what it wants.

use super::{Direct, Slot};
use crate::limits::{CHANGE_CREDIT, WAKE_CREDIT_MAX};
use crate::passing::{Parcel, Passing};
use siga_ring::NotifyFd;
use siga_ring::direct::{Couple, Lane, OwnSlots, PeerSlots, Shape};
use siga_ring::doorbell;
use std::os::fd::{AsFd, OwnedFd};

const ID: u64 = 3;
const SLOT: Slot = Slot { couple: ID, slot: 0, generation: 9, sent: 0, received: 0, send_max: usize::MAX };
const NUMBER: u32 = 5;

/// The couples of the sound application with one connection, and the other application's end: its memory, its lane, and the descriptor
/// with which it notifies the sound one.
fn whole() -> (Direct, Couple, Lane, NotifyFd) {
    let (own, guest) = Passing::pair().unwrap();
    let (own, guest) = (Passing::from_fd(own).unwrap(), Passing::from_fd(guest).unwrap());
    let mut direct = Direct::new(Some(own), false);
    let ((notify_peer, _wake_peer), (notify_own, wake_own)) = (doorbell::pair().unwrap(), doorbell::pair().unwrap());
    let reader = NotifyFd::open_reader(&notify_peer).unwrap();
    guest.pass(Parcel::Couple, ID, &[notify_peer.as_fd(), reader.as_fd(), wake_own.as_fd()]).unwrap();
    direct.begin(ID).unwrap();
    let [memory]: [OwnedFd; 1] = guest.take(Parcel::Memory, ID).unwrap();
    let (slots, file) = OwnSlots::create(Shape::STANDARD).unwrap();
    guest.pass(Parcel::PeerMemory, ID, &[file.as_fd()]).unwrap();
    direct.complete(ID).unwrap();
    direct.bind(NUMBER, SLOT).unwrap().unwrap();
    let unused = doorbell::pair().unwrap().0;
    let mut peer = Couple::new(slots, PeerSlots::map(memory, Shape::STANDARD).unwrap(), unused, false);
    let mut lane = Lane::bind(&mut peer, SLOT.slot, SLOT.generation);
    lane.begin(&mut peer, 0);
    (direct, peer, lane, notify_own)
}

/// Handles a readable pipe as a client does.
fn wake(direct: &mut Direct) -> bool {
    direct.note_notification(None);
    direct.drain(false);
    direct.look()
}

#[test]
fn a_peer_that_only_sends_notifications_causes_a_bounded_number_of_wake_ups() {
    let (mut direct, _peer, _lane, notify) = whole();
    let mut wakes = 0;
    while !direct.wake_descriptors().is_empty() {
        notify.notify();
        wake(&mut direct);
        wakes += 1;
        assert!(wakes <= WAKE_CREDIT_MAX + CHANGE_CREDIT, "the peer wakes the application without end");
    }
    assert_eq!(direct.flooded, [NUMBER], "its connection returns to TCP");
    assert!(direct.is_muted(ID), "and no further connection uses the memory");
}

#[test]
fn a_peer_that_publishes_with_each_notification_is_never_muted() {
    let (mut direct, mut peer, mut lane, notify) = whole();
    let (couple, own) = direct.lane(super::LanePlace { couple: 0, slot: SLOT.slot }).map(|it| (it.0, it.1)).unwrap();
    own.look(couple).unwrap();
    for round in 0..10 * WAKE_CREDIT_MAX {
        lane.send(&mut peer, &[7]).unwrap();
        // A second notification can come late, when the first wake-up has found all bytes already.
        for _ in 0..2 {
            notify.notify();
            wake(&mut direct);
        }
        let (couple, own, _) = direct.lane(super::LanePlace { couple: 0, slot: SLOT.slot }).unwrap();
        assert_eq!(own.receive(couple, &mut [0; 9]), 1, "round {round}");
        direct.news.clear();
    }
    assert!(!direct.is_muted(ID) && direct.flooded.is_empty());
}
