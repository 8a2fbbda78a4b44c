//! A guest polls rings before and after a sleep, and none during it.

use super::features::Hop;

/// The links to the client and to the server. Those before are the main links, which have no rings.
const CLIENT: usize = 2;
const SERVER: usize = 3;

/// Returns a router that polls the rings of both ends.
fn polling() -> Hop {
    let mut hop = Hop::without(&[]);
    [CLIENT, SERVER].iter().for_each(|link| hop.router.node.links.heat(*link));
    hop
}

/// Returns the links whose rings the router polls, in order.
fn polled(hop: &Hop) -> Vec<usize> {
    let mut hot = hop.router.node.links.hot.clone();
    hot.sort_unstable();
    hot
}

/// Returns the number of notifications that the client has sent.
fn notifications(hop: &Hop) -> u64 {
    hop.client.producer.counters().doorbells.sent
}

#[test]
fn after_a_sleep_a_guest_polls_the_rings_that_it_polled_before() {
    let mut hop = polling();
    assert!(hop.router.node.links.fall_asleep());
    assert!(polled(&hop).is_empty(), "in a sleep, each partner sends a notification");
    hop.router.node.links.awake();
    assert_eq!(polled(&hop), [CLIENT, SERVER]);
    let before = notifications(&hop);
    assert!(hop.put());
    assert_eq!(notifications(&hop), before, "the guest finds the frame without a notification");
    hop.router.turn();
    assert!(hop.router.node.links.fall_asleep());
    assert!(hop.put());
    assert_eq!(notifications(&hop), before + 1);
}

#[test]
fn a_guest_that_finds_a_frame_before_it_sleeps_polls_all_rings_on() {
    let mut hop = polling();
    assert!(hop.put());
    assert!(!hop.router.node.links.fall_asleep());
    hop.router.node.links.awake();
    assert_eq!(polled(&hop), [CLIENT, SERVER]);
}

#[test]
fn a_ring_that_ends_during_a_sleep_is_not_polled_again() {
    let mut hop = polling();
    assert!(hop.router.node.links.fall_asleep());
    hop.router.node.end_link(SERVER);
    hop.router.node.links.awake();
    assert_eq!(polled(&hop), [CLIENT]);
}
