//! What each feature of the drivers does, on and off, by what does not depend on time: frames in a buffer, buffers handed over
//! together, rings, marks, lengths, queues and drops. Copies are counted in `in_place.rs`.

use super::lockstep::{Figure1, Guest, LAN, doorbells, figure_1, figure_1_over_hipersockets, packet};
use crate::device::{self, Inside};
use crate::protocol::message::GuestEvent;
use crate::protocol::report::ReportPart;
use crate::protocol::ticket::ApplicationId;
use crate::protocol::ticket::Ticket;
use siga_iucv::client::ApplicationEnd;
use siga_iucv::shape;
use siga_model::topology::{Full, Topology};
use siga_model::waiting::Waiting;
use siga_ring::arena::{OwnArena, PeerArena};
use siga_ring::clock::Ticks;
use siga_ring::{Frame, Link, NotifyFd, OwnMemory, PeerMemory, WakeFd, memory_file};
use siga_stack::link::frame::Marks;
use siga_stack::sockets::TcpOptions;
use std::net::SocketAddr;
use std::time::Duration;

/// No two such packets have room in one buffer, of which each ring has 16.
const LARGE: usize = 50_000;
const RING_PACKETS: usize = 16;
const ARENA_BYTES: usize = 8 << 20;

impl Guest {
    /// What was counted by a name, over all links and applications.
    pub(crate) fn count(&self, name: &str) -> u64 {
        let of = |part: ReportPart| match part {
            ReportPart::Link(link) => link.counters.get(name).copied(),
            ReportPart::Application(application) => application.counters.get(name).copied(),
            ReportPart::Device(_) | ReportPart::Stack(_) | ReportPart::Totals(_) | ReportPart::Addresses { .. } => None,
        };
        self.node.report_parts().into_iter().filter_map(of).sum()
    }

    /// What an application of it has.
    pub(crate) fn application(&mut self) -> ApplicationEnd {
        let [notify_fd, wake_fd, other_notify_fd, other_wake_fd] = doorbells();
        let (passing, _) = siga_iucv::passing::Passing::pair().unwrap();
        let (id, shape) = (ApplicationId(Ticket::claimed(1, [0; 2])), shape().unwrap());
        let [memory, arena] = [shape.memory_bytes(), ARENA_BYTES].map(|bytes| memory_file(bytes).unwrap());
        self.node.begin_application(id, ARENA_BYTES as u64, vec![notify_fd, wake_fd, memory, arena, passing]);
        let (event, memory) = self.control.receive::<GuestEvent>().unwrap().unwrap();
        assert!(matches!(event, GuestEvent::ApplicationMemory { .. }), "{event:?}");
        let [memory, received] = memory.try_into().unwrap();
        let ((own, own_memory), (arena, sent)) =
            (OwnMemory::create(shape).unwrap(), OwnArena::create(ARENA_BYTES).unwrap());
        self.node.complete_application(Ticks::now(), id, vec![own_memory, sent]);
        let memory = PeerMemory::map(memory, shape).unwrap();
        let link = Link::new(
            own,
            memory,
            NotifyFd::from_fd(other_notify_fd).unwrap(),
            WakeFd::from_fd(other_wake_fd).unwrap(),
        );
        let peer = PeerArena::map(received, ARENA_BYTES).unwrap();
        let waiting = siga_ring::wait::policy::Mode::Poll;
        ApplicationEnd { link, arena, peer, waiting, colocate: false, passing: None }
    }

    /// A turn of a guest whose applications may have rung.
    pub(crate) fn turn_with_applications(&mut self) {
        self.node.wakes.next_look = Ticks(0);
        self.turn();
    }
}

/// Returns the network of Figure 1 of z/VM's reports over HiperSockets, without these features.
fn without(features: &[&str]) -> Topology {
    let mut topology = figure_1_over_hipersockets();
    for feature in features {
        let switch = topology.features.switches().into_iter().find(|(name, _)| name == feature);
        if switch.map(|(_, is_on)| *is_on = false).is_none() {
            assert_eq!(*feature, "pending");
            devices(&mut topology).for_each(|device| device.full = Full::Drop);
        }
    }
    topology
}

fn devices(topology: &mut Topology) -> impl Iterator<Item = &mut siga_model::topology::Device> {
    topology.guests.values_mut().flat_map(|guest| &mut guest.devices)
}

/// A guest with a link to the router, of which there is nothing but the other end.
fn beside_router(topology: &Topology, name: &str, network: &str) -> (Guest, Link) {
    let router = Guest::new(topology, "router").member(network);
    let mut guest = Guest::new(topology, name);
    let link = guest.raw_link(1, network, &router);
    (guest, link)
}

fn marks(frame: &Frame<'_>) -> Marks {
    let Inside::Packet(part) = device::halves(LAN).1.next(frame, &mut 0) else { panic!("no packet") };
    part.marks
}

/// The lengths of all packets that have come.
fn take(link: &mut Link) -> Vec<usize> {
    let mut lengths = Vec::new();
    while let Some(frame) = link.consumer.next_frame().unwrap() {
        lengths.push(frame.len());
    }
    lengths
}

/// A guest that sends to a partner without a stack.
struct Talker {
    guest: Guest,
    partner: Link,
}

impl Talker {
    fn without(features: &[&str]) -> Self {
        let (guest, partner) = beside_router(&without(features), "client", "link");
        Self { guest, partner }
    }

    /// Sends `count` datagrams in one turn.
    fn send(&mut self, count: usize, bytes: usize) {
        let now = self.guest.node.now();
        let stack = self.guest.node.stack();
        let socket = stack.udp_bind("10.0.1.1:0".parse().unwrap()).unwrap();
        let to: SocketAddr = "10.0.1.2:9".parse().unwrap();
        (0..count).for_each(|_| stack.udp_send(now, socket, Some(to), &vec![0; bytes]).unwrap());
        self.guest.turn();
        self.guest.node.stack().udp_close(socket).unwrap();
    }

    /// How often buffers were handed over: each time it rings or does not.
    fn handed_over(&self) -> u64 {
        self.guest.count("doorbells_sent") + self.guest.count("doorbells_suppressed")
    }
}

#[test]
fn short_packets_share_a_buffer_if_drivers_pack() {
    for (off, buffers) in [(&[][..], 1), (&["packing"], 10)] {
        let mut talker = Talker::without(off);
        talker.send(10, 100);
        let counts = ["frames_sent", "buffers_sent"].map(|name| talker.guest.count(name));
        assert_eq!(counts, [10, buffers], "without {off:?}");
    }
}

#[test]
fn a_guest_that_suppresses_doorbells_notifies_only_sleeping_partners() {
    for (off, awake) in [(&[][..], 0), (&["suppress_doorbells"], 5)] {
        let mut talker = Talker::without(off);
        (0..5).for_each(|_| talker.send(1, 100));
        assert_eq!((talker.guest.count("doorbells_sent"), talker.handed_over()), (awake, 5), "without {off:?}");
        assert_eq!(take(&mut talker.partner).len(), 5);
        assert!(talker.partner.consumer.declare_asleep().unwrap());
        talker.send(1, 100);
        assert_eq!(talker.guest.count("doorbells_sent"), awake + 1, "without {off:?}");
    }
}

#[test]
fn a_guest_keeps_or_drops_its_own_packets_for_a_full_partner() {
    for (off, dropped) in [(&[][..], 0), (&["pending"], RING_PACKETS)] {
        let mut talker = Talker::without(off);
        talker.send(2 * RING_PACKETS, LARGE);
        let mut taken = 0;
        for _ in 0..10 {
            taken += take(&mut talker.partner).len();
            talker.guest.turn();
        }
        assert_eq!(talker.guest.count("target_full"), dropped as u64, "without {off:?}");
        assert_eq!(taken, 2 * RING_PACKETS - dropped, "without {off:?}");
    }
}

/// A router between two ends that know nothing but frames.
pub(super) struct Hop {
    pub(super) router: Guest,
    pub(super) client: Link,
    pub(super) server: Link,
}

impl Hop {
    pub(super) fn without(features: &[&str]) -> Self {
        let topology = without(features);
        let [client, server] = ["client", "server"].map(|name| Guest::new(&topology, name));
        let mut router = Guest::new(&topology, "router");
        let [client, server] = [(1, "link", client.member("link")), (2, "lan", server.member("lan"))]
            .map(|(pair, network, member)| router.raw_link(pair, network, &member));
        Self { router, client, server }
    }

    /// Has a packet for the server come; false if there is no buffer for it.
    pub(super) fn put(&mut self) -> bool {
        let packet = packet(LARGE, [10, 0, 2, 2]);
        let Some(place) = self.client.producer.reserve(LARGE).unwrap() else { return false };
        place.copy_from_slice(&packet);
        self.client.producer.commit(LARGE, 0);
        self.client.producer.publish();
        true
    }
}

#[test]
fn packets_are_forwarded_through_private_memory_if_copy_once_is_off() {
    for (off, by_way) in [(&[][..], false), (&["copy_once"], true)] {
        let mut hop = Hop::without(off);
        assert!(hop.put());
        for link in 0..hop.router.node.links.receivers.len() {
            hop.router.node.receive_from(Ticks::now(), link);
        }
        let waits = hop.router.node.links.senders.iter().any(|sender| sender.has_backlog());
        assert_eq!((waits, hop.router.count("frames_sent") == 0), (by_way, by_way), "without {off:?}");
        hop.router.turn();
        assert_eq!(take(&mut hop.server), [LARGE], "without {off:?}");
    }
}

#[test]
fn a_router_keeps_or_drops_forwarded_packets_for_a_full_partner() {
    const ALL: usize = RING_PACKETS + 10;
    for (off, dropped) in [
        (&[][..], 0),
        (&["copy_once"], 0),
        (&["pending"], ALL - RING_PACKETS),
        (&["pending", "copy_once"], ALL - RING_PACKETS),
    ] {
        let mut hop = Hop::without(off);
        for _ in 0..ALL {
            assert!(hop.put(), "without {off:?}");
            hop.router.turn();
        }
        assert_eq!(hop.router.count("target_full"), dropped as u64, "without {off:?}");
        assert_eq!(hop.router.count("pending") > 0, off.is_empty(), "without {off:?}: nothing was tried twice");
        let mut taken = 0;
        for _ in 0..ALL {
            taken += take(&mut hop.server).len();
            hop.router.turn();
        }
        assert_eq!(taken, ALL - dropped, "without {off:?}");
    }
}

#[test]
fn packets_wait_for_a_starting_partner_even_if_full_partners_mean_drops() {
    let mut topology = figure_1();
    devices(&mut topology).for_each(|device| device.full = Full::Drop);
    let figure = Figure1::of(&topology);
    assert_eq!(figure.guests.each_ref().map(|guest| guest.count("target_full")), [0; 3]);
}

/// Two guests, and all that goes between them.
struct Wire {
    guests: [Guest; 2],
    ends: [Link; 2],
    seen: Vec<(usize, Marks)>,
}

impl Wire {
    fn turn(&mut self) {
        self.guests.iter_mut().for_each(Guest::turn);
        let [one, other] = &mut self.ends;
        let mut pass = |from: &mut Link, to: &mut Link| {
            while let Some(frame) = from.consumer.next_frame().unwrap() {
                self.seen.push((frame.len(), marks(&frame)));
                frame.copy_to(0, to.producer.reserve(frame.len()).unwrap().unwrap());
                to.producer.commit(frame.len(), frame.tag());
            }
            to.producer.publish();
        };
        pass(one, other);
        pass(other, one);
    }

    /// The frames in both directions while `bytes` bytes are streamed over links with an MTU of 1,500.
    fn stream(features: &[&str], bytes: usize) -> Vec<(usize, Marks)> {
        let mut topology = without(features);
        devices(&mut topology).for_each(|device| device.mtu = 1_500);
        let [(client, to_client), (server, to_server)] =
            [("client", "link"), ("server", "lan")].map(|(name, network)| beside_router(&topology, name, network));
        let mut wire = Self { guests: [client, server], ends: [to_client, to_server], seen: Vec::new() };
        wire.ends.iter_mut().for_each(|end| end.producer.set_packing(true));
        let (to, options) = ("10.0.2.2:7".parse().unwrap(), TcpOptions::default());
        let listener = wire.guests[1].node.stack().tcp_listen(to, 1, &options).unwrap();
        let now = wire.guests[0].node.now();
        let any = "0.0.0.0:0".parse().unwrap();
        let client = wire.guests[0].node.stack().tcp_connect(now, any, to, &options).unwrap();
        let (mut server, mut sent, mut received, mut into) = (None, 0, 0, vec![0; bytes]);
        for _ in 0..10_000 {
            wire.turn();
            let [now, then] = [0, 1].map(|guest| wire.guests[guest].node.now());
            server = server.or_else(|| Some(wire.guests[1].node.stack().tcp_accept(listener).unwrap()?.0));
            let Some(server) = server else { continue };
            sent += wire.guests[0].node.stack().tcp_send(now, client, &into[sent..]).unwrap();
            received += wire.guests[1].node.stack().tcp_receive(then, server, &mut into).unwrap().unwrap_or(0);
            if received == bytes {
                return wire.seen;
            }
        }
        panic!("{received} of {bytes} bytes have come");
    }
}

#[test]
fn large_segments_cross_a_link_whole_with_their_segment_size() {
    let on = Wire::stream(&[], 60_000);
    let large = on.iter().filter(|(len, _)| *len > 1_500);
    assert!(large.clone().any(|(len, _)| *len > 10_000), "{on:?}");
    assert!(large.clone().all(|(_, marks)| (1_000..1_500).contains(&marks.segment_bytes)), "{on:?}");
    let off = Wire::stream(&["large_segments"], 60_000);
    assert!(off.iter().all(|(len, marks)| *len <= 1_500 && marks.segment_bytes == 0), "{off:?}");
    assert!(off.iter().filter(|(len, _)| *len > 1_000).count() >= 60_000 / 1_500, "{off:?}");
}

/// Without marks the receiver checks the sums.
#[test]
fn a_frame_has_its_checksum_or_a_mark_that_it_was_left_out() {
    for (off, left_out) in [(&[][..], true), (&["omit_checksums"], false)] {
        let seen = Wire::stream(off, 20_000);
        assert!(seen.iter().all(|(_, marks)| marks.checksum_unfilled == left_out), "without {off:?}: {seen:?}");
    }
}

#[test]
fn an_adaptive_guest_polls_before_it_sleeps_and_other_guests_only_poll_or_only_sleep() {
    // Yields and sleeps of a wait after traffic.
    let wait = |waiting| {
        let mut guest = Guest::that_waits(&without(&[]), "client", waiting);
        guest.node.waiter.had_traffic(Ticks::now());
        guest.node.wait(Some(Duration::from_millis(5)));
        let counters = guest.node.waiter.counters();
        (counters.yields > 0, counters.sleeps > 0)
    };
    assert_eq!(wait(Waiting::Block), (false, true));
    assert!(!wait(Waiting::Poll).1);
    // A thread that is interrupted for long sees no recent traffic, and sleeps without a yield: hence the repetitions.
    assert!((0..100).any(|_| wait(Waiting::Adaptive) == (true, true)));
}
