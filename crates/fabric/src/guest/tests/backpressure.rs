//! What a router does with packets for a partner that has no empty buffer.

use super::lockstep::{Guest, packet};
use crate::backpressure::Times;
use siga_model::topology::Topology;
use siga_ring::Link;
use siga_ring::clock::Ticks;

const NETWORKS: &str = r#"
[network.link]
type = "hipersockets"
[network.lan]
type = "hipersockets"
[guest.client]
device = [{ network = "link", addresses = ["10.0.1.1/24"] }]
[guest.router]
forwarding = true
device = [
    { network = "link", addresses = ["10.0.1.2/24"] },
    { network = "lan", addresses = ["10.0.2.1/24"] },
]
[guest.slow]
device = [{ network = "lan", addresses = ["10.0.2.2/24"] }]
[guest.other]
device = [{ network = "lan", addresses = ["10.0.2.3/24"] }]
"#;
const SLOW: [u8; 4] = [10, 0, 2, 2];
const OTHER: [u8; 4] = [10, 0, 2, 3];

/// No two such packets have room in one buffer, of which each ring has 16.
const PACKET_BYTES: usize = 50_000;
const RING_PACKETS: usize = 16;
const FOR_EVER: Ticks = Ticks(u64::MAX / 4);

/// A router between ends without a stack.
struct Fixture {
    router: Guest,
    client: Link,
    slow: Link,
    other: Link,
}

impl Fixture {
    fn new(backpressure: Ticks) -> Self {
        Self::of(NETWORKS, backpressure)
    }

    fn of(networks: &str, backpressure: Ticks) -> Self {
        let topology = Topology::parse(networks).unwrap();
        let mut router = Guest::new(&topology, "router");
        let mut link = |pair, network, name| {
            let member = Guest::new(&topology, name).member(network);
            router.raw_link(pair, network, &member)
        };
        let [client, slow, other] = [link(1, "link", "client"), link(2, "lan", "slow"), link(3, "lan", "other")];
        router.node.links.backpressure_times = Times { backpressure, mixed: FOR_EVER };
        Self { router, client, slow, other }
    }

    /// Puts a packet into the client's ring, if there is room.
    fn put(&mut self, to: [u8; 4]) -> bool {
        let Some(place) = self.client.producer.reserve(PACKET_BYTES).unwrap() else { return false };
        place.copy_from_slice(&packet(PACKET_BYTES, to));
        self.client.producer.commit(PACKET_BYTES, 0);
        self.client.producer.publish();
        true
    }

    /// Sends up to `count` packets, until the router takes no more; returns how many it took.
    fn send(&mut self, to: [u8; 4], count: usize) -> usize {
        for sent in 0..count {
            if !self.put(to) {
                return sent;
            }
            self.router.turn();
        }
        count
    }

    /// Packets that the router has not taken.
    fn left(&mut self) -> usize {
        self.client.producer.in_flight().unwrap()
    }

    /// Takes all that comes by one link; how many packets.
    fn take(router: &mut Guest, link: &mut Link) -> usize {
        let mut count = 0;
        for _ in 0..100 {
            router.turn();
            while link.consumer.next_frame().unwrap().is_some() {
                count += 1;
            }
        }
        count
    }
}

#[test]
fn packets_for_a_partner_without_an_empty_buffer_wait_and_none_is_lost() {
    let mut fixture = Fixture::new(FOR_EVER);
    // A ring full at the partner, one packet that was in the router's hands, and a ring full at the router.
    assert_eq!(fixture.send(SLOW, 100), 2 * RING_PACKETS + 1);
    assert_eq!(Fixture::take(&mut fixture.router, &mut fixture.slow), 2 * RING_PACKETS + 1);
    assert_eq!(fixture.send(SLOW, 10), 10);
    assert_eq!(Fixture::take(&mut fixture.router, &mut fixture.slow), 10);
}

#[test]
fn a_partner_that_frees_no_buffer_in_time_causes_no_back_pressure_until_it_does() {
    let mut fixture = Fixture::new(Ticks(0));
    assert_eq!(fixture.send(SLOW, 60), 60, "what waits for the slow one is in the router's queue");
    for _ in 0..RING_PACKETS {
        assert!(fixture.put(SLOW));
    }
    fixture.router.turn();
    fixture.router.turn();
    assert_eq!(fixture.left(), 0, "no backpressure for each packet");
    assert_eq!(fixture.send(OTHER, 10), 10);
    assert_eq!(Fixture::take(&mut fixture.router, &mut fixture.other), 10);
    assert_eq!(Fixture::take(&mut fixture.router, &mut fixture.slow), 60 + RING_PACKETS);
}

#[test]
fn a_router_keeps_as_many_packets_for_a_partner_as_netdev_max_backlog_says() {
    for (setting, kept) in [("netdev_max_backlog = 10", 3), ("netdev_max_backlog = 100", 32), ("", 60)] {
        let networks = NETWORKS.replace("forwarding = true", &format!("forwarding = true\n{setting}"));
        let mut fixture = Fixture::of(&networks, Ticks(0));
        // Each packet of the setting has room for 16 KB.
        assert_eq!(fixture.send(SLOW, RING_PACKETS + 60), RING_PACKETS + 60, "the router takes all packets");
        let arrived = Fixture::take(&mut fixture.router, &mut fixture.slow);
        assert_eq!(arrived, RING_PACKETS + kept, "{setting}: others than those in the ring and in the queue are lost");
    }
}

#[test]
fn a_link_with_packets_for_several_partners_gets_no_back_pressure() {
    let mut fixture = Fixture::new(FOR_EVER);
    assert_eq!(fixture.send(OTHER, 1), 1);
    assert_eq!(fixture.send(SLOW, 60), 60);
    assert_eq!(fixture.send(OTHER, 10), 10);
    assert_eq!(Fixture::take(&mut fixture.router, &mut fixture.other), 11);
    assert_eq!(Fixture::take(&mut fixture.router, &mut fixture.slow), 60);
}

#[test]
fn frames_of_a_dead_partner_are_received_despite_back_pressure() {
    let mut fixture = Fixture::new(FOR_EVER);
    let sent = fixture.send(SLOW, 100);
    let now = Ticks::now();
    let link = (0..fixture.router.node.links.receivers.len())
        .find(|link| fixture.router.node.links.receivers[*link].backpressure.waits_for().is_some())
        .unwrap();
    while fixture.router.node.receive_from(now, link) {}
    assert_eq!(fixture.left(), 0);
    assert_eq!(Fixture::take(&mut fixture.router, &mut fixture.slow), sent);
}

#[test]
fn a_sender_with_more_frames_than_buffers_waits_for_buffers() {
    let mut fixture = Fixture::new(FOR_EVER);
    let (now, to) = (fixture.router.node.now(), std::net::SocketAddr::from((SLOW, 9)));
    let stack = fixture.router.node.stack();
    let socket = stack.udp_bind(std::net::SocketAddr::from(([10, 0, 2, 1], 0))).unwrap();
    for _ in 0..2 * RING_PACKETS {
        stack.udp_send(now, socket, Some(to), &[0; PACKET_BYTES]).unwrap();
    }
    // Only what sends takes a turn: whoever takes more keeps the partner from the CPU.
    let turns = (0..100).take_while(|_| fixture.router.node.iterate()).count();
    assert!((1..10).contains(&turns), "{turns} turns");
    assert_eq!(Fixture::take(&mut fixture.router, &mut fixture.slow), 2 * RING_PACKETS);
}

#[test]
fn only_a_sender_with_something_to_do_is_in_the_list_of_active_senders() {
    let mut fixture = Fixture::new(FOR_EVER);
    fixture.router.node.links.senders.maintain_list();
    let active = |fixture: &mut Fixture| -> Vec<usize> {
        let senders = &mut fixture.router.node.links.senders;
        senders.settle();
        (0..).map_while(|place| senders.active(place)).collect()
    };
    fixture.router.turn();
    assert!(active(&mut fixture).is_empty(), "no sender waits");
    assert_eq!(fixture.send(SLOW, 100), 2 * RING_PACKETS + 1);
    let waits = active(&mut fixture);
    assert_eq!(waits.len(), 1, "the sender to the slow partner waits for a buffer");
    assert!(fixture.router.node.links.senders[waits[0]].has_backlog());
    assert!(!fixture.router.node.links.senders.any_has_room());
    assert!(fixture.slow.consumer.next_frame().unwrap().is_some());
    while fixture.slow.consumer.next_frame().unwrap().is_some() {}
    assert!(fixture.router.node.links.senders.any_has_room(), "the partner has read all packets");
    assert_eq!(Fixture::take(&mut fixture.router, &mut fixture.slow), RING_PACKETS + 1);
    assert!(active(&mut fixture).is_empty(), "all packets were sent");
}
