//! Modelled links between two guests on a virtual CTC.

use super::lockstep::{Figure1, Guest, figure_1, packet};
use crate::device::{self, Inside};
use crate::protocol::message::GuestEvent;
use siga_model::limits::BUFFER_COUNT_DEFAULT;
use siga_model::topology::{Full, NetworkKind, PortLink, Topology};
use siga_ring::Link;
use siga_stack::link::frame::Marks;

/// The network of Figure 1 with a modelled link between the client and the virtual CTC.
fn linked(from_station: &str, to_station: &str) -> Topology {
    let mut topology = figure_1();
    let link = |text: &str| (!text.is_empty()).then(|| text.parse().unwrap());
    topology.guests.values_mut().for_each(|guest| guest.devices[0].mtu = 1_500);
    let client = topology.guests.get_mut(&"client".parse().unwrap()).unwrap();
    client.devices[0].link = PortLink { from_station: link(from_station), to_station: link(to_station) };
    topology
}

#[test]
fn packets_take_the_time_of_the_modelled_link_of_a_virtual_ctc() {
    for (from, to, least_us) in [("latency=100us", "latency=50us", 150), ("latency=100us", "", 100), ("", "", 0)] {
        let mut figure = Figure1::by_turns(&linked(from, to), BUFFER_COUNT_DEFAULT);
        for _ in 0..10 {
            let begun = figure.guests[0].node.now();
            figure.exchange(&[1; 200], &[2; 1_000]);
            let us = figure.guests[0].node.now().since(begun).as_nanos() / 1_000;
            // Without a link, an exchange takes a few turns of 5 us.
            assert!((least_us..least_us + 60).contains(&us), "{from:?}, {to:?}: {us} us");
        }
        let is_linked =
            |guest: usize, text: &str| figure.guests[guest].count("link_from_station_delivered") > 0 || text.is_empty();
        assert!(is_linked(0, from) && is_linked(1, to));
    }
}

#[test]
fn bytes_cross_a_modelled_link_between_guests_intact() {
    let link = "rate=1gbit,latency=20us,jitter=10us,loss=2%,reorder=2%,duplicate=2%,corrupt=2%";
    let mut figure =
        Figure1::by_turns(&linked(&format!("{link},seed=1"), &format!("{link},seed=2")), BUFFER_COUNT_DEFAULT);
    let bytes: Vec<u8> = (0..600_000_usize).map(|at| (at * 11 + at / 253).to_le_bytes()[0]).collect();
    let (mut sent, mut received) = (0, Vec::new());
    for _ in 0..10_000 {
        let (now, id) = (figure.guests[0].node.now(), figure.client);
        sent += figure.guests[0].node.stack().tcp_send(now, id, &bytes[sent..]).unwrap();
        received.extend(figure.receive(65_536));
        if received.len() == bytes.len() {
            break;
        }
    }
    assert!(received == bytes, "{} of {} bytes", received.len(), bytes.len());
    for name in ["lost", "reordered", "duplicated", "corrupted"] {
        assert!(figure.guests[0].count(&format!("link_from_station_{name}")) > 0, "{name}");
    }
    // Ordinary packets only: none is larger than the MTU, and each has a checksum.
    let packets = figure.guests[0].count("link_from_station_offered");
    assert!(packets >= bytes.len() as u64 / 1_460, "{packets} packets");
}

/// Takes what has come from the client. Returns the number of packets.
fn take(end: &mut Link, inbound: &mut device::Inbound) -> usize {
    let mut count = 0;
    while let Some(frame) = end.consumer.next_frame().unwrap() {
        let mut at = 0;
        while let Inside::Packet(_) = inbound.next(&frame, &mut at) {
            count += 1;
        }
    }
    count
}

#[test]
fn packets_that_have_arrived_wait_for_an_empty_buffer_and_are_lost_with_the_ring_pair() {
    const PACKETS: usize = 300;
    let topology = linked("latency=10us", "");
    let (mut client, router) = (Guest::new(&topology, "client"), Guest::new(&topology, "router"));
    let mut end = client.raw_link(1, "link", &router.member("link"));
    let (mut outbound, mut inbound) = device::halves(topology.networks[&"link".parse().unwrap()].kind);
    outbound.flush(&mut end.producer).unwrap();
    client.turn();
    let bytes = packet(9_000, [10, 0, 2, 2]);
    let send = |client: &mut Guest| {
        let fill = |into: &mut [u8]| into.copy_from_slice(&bytes);
        client.node.links.senders[0].forward(bytes.len(), Marks::default(), fill).unwrap();
        client.turn();
    };
    (0..PACKETS).for_each(|_| send(&mut client));
    std::thread::sleep(std::time::Duration::from_millis(1));
    client.turn();
    assert!(client.count("pending") > 0, "the ring has less room than the packets need");
    let mut taken = 0;
    for _ in 0..PACKETS {
        taken += take(&mut end, &mut inbound);
        client.turn();
    }
    assert_eq!((taken, client.count("link_from_station_delivered")), (PACKETS, PACKETS as u64));
    send(&mut client);
    client.node.end_link(0);
    assert_eq!(client.count("link_from_station_lost_at_end"), 1);
}

/// The network of Figure 1 with a real CTC between client and router.
fn real(link: &str) -> Topology {
    let mut topology = linked(link, link);
    topology.networks.get_mut(&"link".parse().unwrap()).unwrap().kind = NetworkKind::Ctc { buffer: 32_768 };
    topology
}

#[test]
fn a_block_keeps_the_channel_of_a_real_ctc_busy_for_its_bytes_and_the_latency() {
    for (link, ns_per_byte, latency_us) in [("rate=8mbit,latency=100us", 1_000, 100), ("latency=50us", 0, 50)] {
        let mut figure = Figure1::by_turns(&real(link), BUFFER_COUNT_DEFAULT);
        figure.turns(400);
        let begun = figure.guests[0].node.now();
        figure.exchange(&[1; 200], &[2; 1_000]);
        let us = figure.guests[0].node.now().since(begun).as_nanos() / 1_000;
        // A block of each direction, with the headers of its packets.
        let least = (200 + 1_000 + 2 * 48) * ns_per_byte / 1_000 + 2 * latency_us;
        assert!((least..least + 200).contains(&us), "{link}: {us} us instead of {least} us");
    }
}

#[test]
fn packets_that_come_while_a_block_is_on_its_way_share_the_next_block() {
    let (mut topology, kind) = (real("latency=10ms"), NetworkKind::Ctc { buffer: 65_535 });
    topology.networks.get_mut(&"link".parse().unwrap()).unwrap().kind = kind;
    // The rule for full rings does not concern packets that wait for the channel.
    topology.guests.values_mut().for_each(|guest| guest.devices[0].full = Full::Drop);
    let (mut client, router) =
        (Guest::by_turns(&topology, "client", BUFFER_COUNT_DEFAULT), Guest::new(&topology, "router"));
    let mut end = client.raw_link(1, "link", &router.member("link"));
    let (mut outbound, mut inbound) = device::halves(kind);
    outbound.flush(&mut end.producer).unwrap();
    client.turn();
    let bytes = packet(1_400, [10, 0, 2, 2]);
    for _ in 0..80 {
        let fill = |into: &mut [u8]| into.copy_from_slice(&bytes);
        client.node.links.senders[0].forward(bytes.len(), Marks::default(), fill).unwrap();
        client.turn();
    }
    let mut blocks = Vec::new();
    for _ in 0..8_000 {
        client.turn();
        while let Some(frame) = end.consumer.next_frame().unwrap() {
            let (mut at, mut count) = (0, 0);
            while let Inside::Packet(_) = inbound.next(&frame, &mut at) {
                count += 1;
            }
            blocks.push(count);
        }
    }
    // A hello, the first packet alone, as many as a block takes, and the rest.
    assert_eq!(blocks, [0, 1, 46, 33]);
    // The hello does not use the channel. A block has two bytes, and six for each packet.
    let carried = ["channel_blocks", "channel_bytes", "channel_busy_ns"].map(|name| client.count(name));
    assert_eq!(carried, [3, 80 * (bytes.len() as u64 + 6) + 3 * 2, 3 * 10_000_000]);
    assert_eq!(client.count("target_full"), 0);
}

#[test]
fn bytes_cross_a_real_ctc_intact_at_the_rate_of_its_channel() {
    let mut topology = figure_1();
    topology.networks.get_mut(&"link".parse().unwrap()).unwrap().kind = NetworkKind::Ctc { buffer: 32_768 };
    topology.guests.values_mut().for_each(|guest| guest.devices[0].mtu = 32_760);
    let mut figure = Figure1::by_turns(&topology, BUFFER_COUNT_DEFAULT);
    let bytes: Vec<u8> = (0..2_000_000_usize).map(|at| (at * 11 + at / 253).to_le_bytes()[0]).collect();
    let (mut sent, mut received) = (0, Vec::new());
    let begun = figure.guests[0].node.now();
    while received.len() < bytes.len() {
        let (now, id) = (figure.guests[0].node.now(), figure.client);
        sent += figure.guests[0].node.stack().tcp_send(now, id, &bytes[sent..]).unwrap();
        received.extend(figure.receive(65_536));
        assert!(now.since(begun).as_millis() < 5_000, "{} of {} bytes", received.len(), bytes.len());
    }
    assert!(received == bytes);
    let megabytes_per_s = bytes.len() as f64 / figure.guests[0].node.now().since(begun).as_nanos() as f64 * 1e3;
    assert!((6.5..8.5).contains(&megabytes_per_s), "{megabytes_per_s} MB/s");
}

#[test]
fn a_link_that_stops_sends_what_it_has_accepted() {
    for link in ["latency=50ms", ""] {
        let topology = linked(link, "");
        let (mut client, router) = (Guest::new(&topology, "client"), Guest::new(&topology, "router"));
        let mut end = client.raw_link(1, "link", &router.member("link"));
        let (mut outbound, mut inbound) = device::halves(topology.networks[&"link".parse().unwrap()].kind);
        outbound.flush(&mut end.producer).unwrap();
        client.turn();
        let bytes = packet(900, [10, 0, 2, 2]);
        let send = |client: &mut Guest| {
            let fill = |into: &mut [u8]| into.copy_from_slice(&bytes);
            client.node.links.senders[0].forward(bytes.len(), Marks::default(), fill).unwrap();
            client.turn();
        };
        // On a virtual CTC, the second packet is collected while the block of the first one is in flight.
        send(&mut client);
        send(&mut client);
        let pair = client.node.links.senders[0].pair.unwrap();
        client.node.quiesce(pair);
        client.turn();
        assert!(client.control.receive::<GuestEvent>().unwrap().is_none(), "{link:?}: packets are still to come");
        // What is forwarded later waits.
        send(&mut client);
        let (mut taken, begun) = (0, std::time::Instant::now());
        let quiet = loop {
            assert!(begun.elapsed() < std::time::Duration::from_secs(10), "{link:?}: {taken} packets");
            taken += take(&mut end, &mut inbound);
            client.turn();
            if let Some((event, _)) = client.control.receive::<GuestEvent>().unwrap() {
                break event;
            }
        };
        assert!(matches!(quiet, GuestEvent::Quiet { pair: own } if own == pair), "{quiet:?}");
        taken += take(&mut end, &mut inbound);
        assert_eq!((taken, client.node.links.senders[0].has_backlog()), (2, true), "{link:?}");
    }
}
