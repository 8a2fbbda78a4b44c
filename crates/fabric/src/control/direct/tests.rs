//! Which connections get slots, and when a slot is free again.

use super::*;
use crate::protocol::ticket::Ticket;
use siga_model::allow::Allow;

const TOPOLOGY: &str = "
[network.lan]
type = \"hipersockets\"
direct = true
[network.other]
type = \"hipersockets\"
[guest.a]
device = [{ network = \"lan\", addresses = [\"10.0.0.1/24\"] }, { network = \"other\", addresses = [\"10.0.1.1/24\"] }]
[guest.b]
device = [{ network = \"lan\", addresses = [\"10.0.0.2/24\"] }, { network = \"other\", addresses = [\"10.0.1.2/24\"] }]
[guest.c]
device = [{ network = \"other\", addresses = [\"10.0.1.4/24\"] }]
[guest.router]
forwarding = true
device = [{ network = \"lan\", addresses = [\"10.0.0.3/24\"] }, { network = \"other\", addresses = [\"10.0.1.3/24\"] }]
";

fn topology() -> Topology {
    Topology::parse(TOPOLOGY).unwrap()
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

fn flow(local: &str, remote: &str) -> Flow {
    Flow { local: local.parse().unwrap(), remote: remote.parse().unwrap(), iss: 1, irs: 2 }
}

fn turned(Flow { local, remote, iss, irs }: Flow) -> Flow {
    Flow { local: remote, remote: local, iss: irs, irs: iss }
}

fn party(guest: &str, number: u64) -> Party {
    Party { guest: name(guest), application: ApplicationId(Ticket::claimed(number, [0; 2])) }
}

fn allowed(guest: &str, local: &str, remote: &str) -> Option<Key> {
    permit(&topology(), &name(guest), &flow(local, remote))
}

/// Both ends of a connection from this port ask, first a. Returns the slot that b gets.
fn ask(couples: &mut DirectCouples, port: u16, [a, b]: [&Party; 2]) -> Option<DirectSlot> {
    let of_a = flow(&format!("10.0.0.1:{port}"), "10.0.0.2:7");
    let key = |guest: &str, flow| permit(&topology(), &name(guest), &flow).unwrap();
    assert!(couples.want(key("a", of_a), a.clone(), 5).is_none(), "the other end has not asked");
    let found = couples.want(key("b", turned(of_a)), b.clone(), 6)?;
    let [Outgoing { to: one, order: first }, Outgoing { to: other, order: second }] = found.orders;
    assert_eq!([one, other], [a.guest.clone(), b.guest.clone()]);
    match (first, second) {
        (
            Order::Direct { application, order: DirectOrder::Slot { request: 5, slot } },
            Order::Direct { application: other, order: DirectOrder::Slot { request: 6, slot: same } },
        ) if application == a.application && other == b.application && slot == same => Some(slot),
        orders => panic!("{orders:?}"),
    }
}

#[test]
fn only_connections_within_a_guest_or_over_a_direct_network_are_permitted() {
    assert!(allowed("a", "10.0.0.1:5", "10.0.0.2:7").is_some());
    assert!(allowed("a", "10.0.0.1:5", "10.0.1.1:7").is_some(), "both addresses are the guest's own");
    for guest in ["a", "c"] {
        assert!(allowed(guest, "127.0.0.1:5", "127.0.0.1:7").is_some(), "within a guest of any network");
    }
    for (local, remote, why) in [
        ("10.0.1.1:5", "10.0.1.2:7", "the network has no direct connections"),
        ("10.0.0.2:5", "10.0.0.1:7", "the local address is another guest's"),
        ("10.0.0.1:5", "10.0.1.2:7", "the addresses are on two networks"),
        ("10.0.0.1:5", "10.0.0.3:7", "the other end is a router"),
        ("10.0.0.1:5", "10.0.0.9:7", "no guest has the address"),
        ("127.0.0.1:5", "10.0.0.2:7", "a loopback address cannot reach another guest"),
    ] {
        assert_eq!(allowed("a", local, remote), None, "{why}");
    }
    let both = ["a", "b"].map(|guest| allowed(guest, "127.0.0.1:5", "127.0.0.1:7"));
    assert_ne!(both[0], both[1], "each guest has its own loopback addresses");
    let (of_a, of_b) = (flow("10.0.0.1:5", "10.0.0.2:7"), turned(flow("10.0.0.1:5", "10.0.0.2:7")));
    assert_eq!(permit(&topology(), &name("a"), &of_a), permit(&topology(), &name("b"), &of_b));
    let later = Flow { iss: 9, ..of_a };
    assert_ne!(permit(&topology(), &name("a"), &of_a), permit(&topology(), &name("a"), &later), "another connection");
}

#[test]
fn no_direct_connection_goes_around_a_port_filter() {
    let (of_a, within) = (flow("10.0.0.1:5", "10.0.0.2:7"), flow("10.0.0.1:5", "10.0.0.1:7"));
    for filtered in ["a", "b"] {
        let mut topology = topology();
        topology.guests.get_mut(&name(filtered)).unwrap().allow = Some(Allow::default());
        assert_eq!(permit(&topology, &name("a"), &of_a), None, "guest {filtered} has a filter");
        assert_eq!(permit(&topology, &name("b"), &turned(of_a)), None, "guest {filtered} has a filter");
        assert!(permit(&topology, &name("a"), &within).is_some(), "no packet of it reaches the filter");
    }
}

#[test]
fn a_slot_is_free_again_when_both_ends_have_left_it() {
    let (mut couples, a, b) = (DirectCouples::default(), party("a", 1), party("b", 2));
    let slots: Vec<DirectSlot> = (0..64).map(|port| ask(&mut couples, port, [&a, &b]).unwrap()).collect();
    let couple = slots[0].couple;
    assert!(slots.iter().all(|slot| slot.couple == couple));
    let next = ask(&mut couples, 100, [&a, &b]).unwrap();
    assert_ne!(next.couple, couple, "the first couple is full");
    let left = slots[9];
    couples.left(&a.guest, a.application, left, Instant::now());
    assert_eq!(ask(&mut couples, 101, [&a, &b]).unwrap().couple, next.couple);
    couples.left(&b.guest, b.application, DirectSlot { generation: left.generation + 1, ..left }, Instant::now());
    couples.left(&name("router"), b.application, left, Instant::now());
    assert_eq!(ask(&mut couples, 102, [&a, &b]).unwrap().couple, next.couple);
    couples.left(&b.guest, b.application, left, Instant::now());
    let again = ask(&mut couples, 103, [&a, &b]).unwrap();
    assert_eq!((again.couple, again.slot), (couple, left.slot));
    assert!(again.generation > next.generation, "no two uses have the same generation");
}

#[test]
fn a_couple_without_connections_ends_after_a_second() {
    let (mut couples, a, b) = (DirectCouples::default(), party("a", 1), party("b", 2));
    let first = ask(&mut couples, 1, [&a, &b]).unwrap();
    assert_eq!(couples.due(), None);
    let begun = Instant::now();
    couples.left(&a.guest, a.application, first, begun);
    assert_eq!(couples.due(), None, "the other end may read on");
    couples.left(&b.guest, b.application, first, begun);
    assert_eq!(couples.due(), Some(begun + DIRECT_IDLE_TIME));
    assert!(couples.end_idle(begun + DIRECT_IDLE_TIME / 2).is_empty());
    // A new connection uses the couple.
    let second = ask(&mut couples, 2, [&a, &b]).unwrap();
    assert_eq!((second.couple, couples.due()), (first.couple, None));
    for party in [&a, &b] {
        couples.left(&party.guest, party.application, second, begun);
    }
    let gone: Vec<Name> = couples.end_idle(begun + DIRECT_IDLE_TIME).into_iter().map(|order| order.to).collect();
    assert_eq!(gone, [a.guest.clone(), b.guest.clone()]);
    assert_eq!(couples.charged(&a.guest), 0);
    assert_ne!(ask(&mut couples, 3, [&a, &b]).unwrap().couple, first.couple);
}

#[test]
fn each_side_passes_its_memory_to_the_other_once() {
    let (mut couples, a, b) = (DirectCouples::default(), party("a", 1), party("b", 2));
    let couple = ask(&mut couples, 1, [&a, &b]).unwrap().couple;
    let passed = couples.memory(&a.guest, a.application, couple).unwrap();
    assert_eq!(passed.to, b.guest);
    assert!(matches!(passed.order, Order::Direct { application, .. } if application == b.application));
    assert!(couples.memory(&a.guest, a.application, couple).is_none());
    assert!(couples.memory(&a.guest, b.application, couple).is_none(), "another guest's application");
    assert!(couples.memory(&b.guest, b.application, couple).is_some());
}

#[test]
fn the_other_applications_learn_that_one_has_ended_and_access_was_revoked() {
    let (mut couples, a, b) = (DirectCouples::default(), party("a", 1), party("b", 2));
    let within = party("a", 3);
    ask(&mut couples, 1, [&a, &b]).unwrap();
    let local = flow("10.0.0.1:5", "10.0.0.1:6");
    let key = |flow| permit(&topology(), &name("a"), &flow).unwrap();
    assert!(couples.want(key(local), a.clone(), 1).is_none());
    assert!(couples.want(key(turned(local)), within.clone(), 2).is_some());
    let orders = couples.revoke(&name("b"));
    let resets =
        |out: &Outgoing| matches!(out.order, Order::Direct { order: DirectOrder::Gone { reset: true, .. }, .. });
    assert!(orders.len() == 2 && orders.iter().all(resets), "{orders:?}");
    let orders = couples.application_ended(&within.guest, within.application);
    let [Outgoing { to, order: Order::Direct { application, order: DirectOrder::Gone { reset: false, .. } } }] =
        &orders[..]
    else {
        panic!("{orders:?}")
    };
    assert_eq!((to, *application), (&a.guest, a.application));
    assert!(couples.couples.is_empty());
}

#[test]
fn memory_and_waiting_connections_are_limited() {
    let (mut couples, a) = (DirectCouples::default(), party("a", 1));
    let mut made = 0;
    while ask(&mut couples, 1, [&a, &party("b", 10 + made)]).is_some() {
        made += 1;
    }
    assert_eq!(made, DIRECT_COUPLES_OF_APPLICATION_MAX as u64);
    let mut made = 0;
    while ask(&mut couples, 1, [&party("a", 1_000 + made), &party("b", 1_000 + made)]).is_some() {
        made += 1;
    }
    let bytes = couples.charged(&a.guest);
    assert!((DIRECT_BYTES_MAX..DIRECT_BYTES_MAX + (32 << 20)).contains(&bytes), "{bytes}");
    for iss in 0..u32::try_from(DIRECT_WANTED_MAX + 10).unwrap() {
        let key = permit(&topology(), &a.guest, &Flow { iss, ..flow("10.0.0.1:5", "10.0.0.2:7") }).unwrap();
        couples.want(key, a.clone(), iss.into());
        if iss > 100 && iss % 1_000 != 0 {
            continue;
        }
        assert!(couples.wanted.len() <= DIRECT_WANTED_MAX);
    }
    assert_eq!(couples.wanted.len(), DIRECT_WANTED_MAX);
    assert!(couples.application_ended(&a.guest, a.application).len() as u64 == 64);
    assert!(couples.wanted.is_empty());
}
