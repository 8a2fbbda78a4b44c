//! Known attacks by IP packets: fragments, extension headers, options and lengths that lie, floods of neighbours and routes.

use crate::world::*;
use siga_stack::drops::{FragmentDrop, IpDrop, NeighbourDrop, UdpDrop};
use siga_stack::limits::{
    EXTENSION_HEADERS_MAX, NEIGHBOUR_QUEUE_BYTES_MAX, NEIGHBOURS_MAX, REASSEMBLY_PIECES_MAX,
    REASSEMBLY_SOURCE_BYTES_MAX, REASSEMBLY_SOURCE_DATAGRAMS_MAX, REASSEMBLY_TIMEOUT, UDP_QUEUE_BYTES_MAX,
};
use siga_stack::time::Duration;
use siga_stack::wire::ethernet::MacAddress;
use smoltcp::wire::{ArpOperation, EthernetProtocol};

fn fragment(offset: u16, more: bool, ident: u16, bytes: &[u8]) -> Vec<u8> {
    let mut packet = V4 { offset, more, ..V4::new(HOST[0], ROUTER[0], 17) }.packet(bytes);
    packet[4..6].copy_from_slice(&ident.to_be_bytes());
    packet[10..12].fill(0);
    let sum = plain_checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

fn held(world: &World) -> (usize, usize) {
    let memory = world.stack.memory();
    assert!(memory.0.iter().all(|part| part.held <= part.most), "{memory}");
    (memory.held("datagrams in reassembly"), memory.held("bytes in reassembly"))
}

/// Teardrop, Bonk, Nestea, CVE-1999-0015, -0258: fragments that begin inside or end before another.
#[test]
fn teardrop_overlapping_fragments_drop_their_datagram() {
    let mut world = World::host();
    for (ident, (offset, len, more)) in
        (0..).zip([(24, 4, false), (8, 8, true), (16, 24, false), (0, 40, true), (24, 16, false), (0, 8, false)])
    {
        let whole = offset == 0 && !more;
        assert_eq!(world.give_packet(0, &fragment(0, true, ident, &[1; 32])), Outcome::Done);
        let second = world.give_packet(0, &fragment(offset, more, ident, &vec![2; len]));
        if whole {
            continue; // No fragment at all.
        }
        assert_eq!(second, Outcome::dropped(FragmentDrop::Overlap), "{offset} {len}");
        assert_eq!(world.give_packet(0, &fragment(32, false, ident, &[3; 8])), Outcome::dropped(FragmentDrop::Late));
    }
    world.pass(REASSEMBLY_TIMEOUT);
    assert_eq!(held(&world), (0, 0));
}

/// Ping of death, CVE-1999-0128, and its IPv6 kin: fragments that reach behind the largest datagram.
#[test]
fn ping_of_death_no_datagram_above_64_kilobytes_is_reassembled() {
    let mut world = World::host();
    for offset in [65_528, 65_520, 64_512] {
        let packet = fragment(offset, false, offset, &[1; 1_400]);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(FragmentDrop::Malformed), "{offset}");
        let word = offset.to_be_bytes();
        let header = [&[17, 0][..], &word, &[0, 0, 0, 1], &[1; 1_400]].concat();
        let packet = v6(HOST6[0], ROUTER6[0], 44, 64, &header);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(FragmentDrop::Malformed), "{offset}");
    }
    assert_eq!(held(&world), (0, 0));
}

/// FragmentSmack, CVE-2018-5391, and the Rose attack: beginnings and ends without a middle, and datagrams in crumbs.
#[test]
fn fragment_smack_incomplete_datagrams_are_bounded_in_number_bytes_pieces_and_time() {
    let mut world = World::host();
    for ident in 0..20_000_u16 {
        world.give_packet(0, &fragment(0, true, ident, &[1; 1_400]));
        world.give_packet(0, &fragment(60_000, false, ident, &[1; 1_400]));
    }
    assert_eq!(held(&world).0, REASSEMBLY_SOURCE_DATAGRAMS_MAX);
    assert_eq!(world.dropped(FragmentDrop::Evicted), 20_000 - REASSEMBLY_SOURCE_DATAGRAMS_MAX as u64);
    world.pass(REASSEMBLY_TIMEOUT);
    assert_eq!(held(&world), (0, 0));
    for unit in 0..2_000_u16 {
        world.give_packet(0, &fragment(16 * unit, true, 1, &[1; 8]));
    }
    assert!(held(&world).1 <= REASSEMBLY_PIECES_MAX * 8 + 20);
    for ident in 0..200 {
        for part in 0..46 {
            world.give_packet(0, &fragment(1_400 * part, true, ident, &[1; 1_400]));
        }
    }
    assert!(held(&world).1 <= REASSEMBLY_SOURCE_BYTES_MAX);
    world.pass(REASSEMBLY_TIMEOUT);
    world.pass(REASSEMBLY_TIMEOUT);
    assert_eq!(held(&world), (0, 0));
    // An honest one goes through again.
    let socket = world.stack.udp_bind("0.0.0.0:6".parse().unwrap()).unwrap();
    let datagram = udp(HOST[0], ROUTER[0], (5, 6), &[9; 100]);
    world.give_packet(0, &fragment(0, true, 9, &datagram[..64]));
    world.give_packet(0, &fragment(64, false, 9, &datagram[64..]));
    assert_eq!(world.stack.udp_receive(socket).unwrap().unwrap().bytes, [9; 100]);
}

/// Tiny fragments (RFC 1858, RFC 7112): a transport header in pieces is looked at whole or not at all.
#[test]
fn tiny_fragments_are_processed_only_after_reassembly() {
    let mut world = World::host();
    let segment = [&[0, 80, 0, 80, 0, 0, 0, 1, 0, 0, 0, 0, 0x50, 2, 1, 0, 0, 0, 0, 0][..]].concat();
    let mut tcp = |offset: usize, more| {
        let end = (offset + 8).min(segment.len());
        let packet = V4 { offset: u16::try_from(offset).unwrap(), more, ..V4::new(HOST[0], ROUTER[0], 6) };
        world.give_packet(0, &packet.packet(&segment[offset..end]))
    };
    assert_eq!((tcp(0, true), tcp(8, true)), (Outcome::Done, Outcome::Done));
    let last = tcp(16, false);
    assert_eq!(last, Outcome::dropped(siga_stack::drops::TcpDrop::Checksum), "put together, then judged");
    world.assert_silent();
}

/// Lengths that underflow (AMNESIA:33, INFRA:HALT, Ripple20 CVE-2020-11896): every total length against every header length.
#[test]
fn packets_with_lengths_below_their_headers_are_dropped() {
    let mut world = World::host();
    let datagram = udp(HOST[0], ROUTER[0], (5, 6), b"data");
    let whole = V4::new(HOST[0], ROUTER[0], 17).packet(&datagram);
    for total in 0..u16::try_from(whole.len()).unwrap() {
        for words in 0..16_u8 {
            let mut packet = whole.clone();
            packet[0] = 0x40 | words;
            packet[2..4].copy_from_slice(&total.to_be_bytes());
            packet[10..12].fill(0);
            let header = (usize::from(words) * 4).clamp(20, packet.len());
            let sum = plain_checksum(&packet[..header]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
            assert!(matches!(world.give_packet(0, &packet), Outcome::Dropped(_)), "{total} {words}");
        }
    }
    for length in 0..8_u16 {
        let mut short = datagram.clone();
        short[4..6].copy_from_slice(&length.to_be_bytes());
        let packet = V4::new(HOST[0], ROUTER[0], 17).packet(&short);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(UdpDrop::Length), "{length}");
    }
    let mut packet = v6(HOST6[0], ROUTER6[0], 17, 64, &udp(HOST6[0], ROUTER6[0], (5, 6), b"data"));
    for length in 13..=u16::MAX {
        packet[4..6].copy_from_slice(&length.to_be_bytes());
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::Length), "{length}");
    }
}

/// Extension headers: too many, too long, out of order, nested in fragments, with source routes (CVE-2007-2242).
#[test]
fn malformed_or_endless_extension_headers_are_dropped() {
    let mut world = World::host();
    let mut give = |next: u8, payload: &[u8]| world.give_packet(0, &v6(HOST6[0], ROUTER6[0], next, 64, payload));
    let chain = |count: usize| [[60, 0, 1, 4, 0, 0, 0, 0].repeat(count), vec![59, 0, 1, 4, 0, 0, 0, 0]].concat();
    assert_eq!(give(60, &chain(EXTENSION_HEADERS_MAX - 1)), Outcome::Done, "no next header, in the end");
    assert_eq!(give(60, &chain(EXTENSION_HEADERS_MAX + 1)), Outcome::dropped(IpDrop::Options));
    for units in 1..=u8::MAX {
        for kind in [0, 43, 60] {
            let outcome = give(kind, &[59, units, 0, 0, 0, 0, 0, 0]);
            assert_eq!(outcome, Outcome::dropped(IpDrop::Length), "{kind} {units}");
        }
    }
    for short in 0..8 {
        for kind in [0, 43, 44, 60] {
            let outcome = give(kind, &[59, 0, 0, 0, 0, 0, 0][..short.min(7)]);
            assert!(matches!(outcome, Outcome::Dropped(_)), "{kind} {short}: {outcome:?}");
        }
    }
    for length in [7, 60, 255] {
        assert_eq!(give(0, &[59, 0, 1, length, 0, 0, 0, 0]), Outcome::dropped(IpDrop::Options), "an option too long");
    }
    assert_eq!(give(60, &[0, 0, 1, 4, 0, 0, 0, 0, 59, 0, 1, 4, 0, 0, 0, 0]), Outcome::dropped(IpDrop::Options));
    let routed = [&[59, 2, 0, 1, 0, 0, 0, 0][..], &[0; 16]].concat();
    assert_eq!(give(43, &routed), Outcome::dropped(IpDrop::SourceRoute));
    let jumbo = [59, 0, 0xc2, 4, 0, 1, 0, 0];
    assert_eq!(give(0, &jumbo), Outcome::dropped(IpDrop::Options), "jumbograms");
}

/// Neighbour-table exhaustion (RFC 6583): a scan of a network, and a station that claims to be everybody.
#[test]
fn a_scan_of_a_network_fills_bounded_tables_and_leaves_known_neighbours_alone() {
    let mut world = World::router();
    for n in 0..30_000_u32 {
        let [_, _, a, b] = n.to_be_bytes();
        let to = format!("2001:db8:2::{a:x}:{b:x}:1");
        let packet = v6(HOST6[0], &to, 17, 64, &udp(HOST6[0], &to, (5, 6), &[1; 1_000]));
        world.give_packet(0, &packet);
        if n % 500 == 0 {
            world.sent(1);
        }
    }
    let memory = world.stack.memory();
    assert!(memory.0.iter().all(|part| part.held <= part.most), "{memory}");
    assert!(memory.held("neighbours") <= NEIGHBOURS_MAX);
    assert!(memory.held("bytes that wait for neighbours") <= NEIGHBOUR_QUEUE_BYTES_MAX);
    assert!(world.dropped(NeighbourDrop::QueueFull) + world.dropped(NeighbourDrop::TableFull) > 0);
    world.sent(1);
    let known = V4::new(HOST[0], HOST[1], 17).packet(&udp(HOST[0], HOST[1], (5, 6), b"x"));
    assert!(matches!(world.give_packet(0, &known), Outcome::Forwarded(_)));
    for second in 0..20 {
        world.pass(Duration::from_secs(second));
        world.sent(0);
        world.sent(1);
    }
    assert_eq!(world.stack.memory().held("bytes that wait for neighbours"), 0);
}

/// ARP and neighbour spoofing: answers that nobody asked for, claims of our own address, and group addresses as stations.
#[test]
fn spoofed_neighbour_answers_change_no_entry() {
    let mut world = World::router();
    let thief = MacAddress([2, 9, 9, 9, 9, 9]);
    let reply = arp(ArpOperation::Reply, thief, "10.1.0.66", ROUTER_MAC[0], ROUTER[0]);
    let frame = ethernet(thief, ROUTER_MAC[0], EthernetProtocol::Arp, &reply);
    assert_eq!(world.give(0, &frame), Outcome::dropped(NeighbourDrop::Unasked));
    let claim = arp(ArpOperation::Reply, thief, ROUTER[0], ROUTER_MAC[0], ROUTER[0]);
    let frame = ethernet(thief, ROUTER_MAC[0], EthernetProtocol::Arp, &claim);
    assert_eq!(world.give(0, &frame), Outcome::dropped(NeighbourDrop::OurAddress));
    let group = arp(ArpOperation::Request, MacAddress([1; 6]), HOST[0], MacAddress([0; 6]), ROUTER[0]);
    let frame = ethernet(thief, ROUTER_MAC[0], EthernetProtocol::Arp, &group);
    assert_eq!(world.give(0, &frame), Outcome::dropped(NeighbourDrop::Malformed));
    let unasked =
        neighbour_message(136, 0x20, "2001:db8:1::66", ROUTER6[0], "2001:db8:1::66", &[&[2, 1], &thief.0[..]].concat());
    let frame = ethernet(thief, ROUTER_MAC[0], EthernetProtocol::Ipv6, &unasked);
    assert_eq!(world.give(0, &frame), Outcome::dropped(NeighbourDrop::Unasked));
    world.assert_silent();
    let to_host = V4::new(HOST[1], HOST[0], 17).packet(&udp(HOST[1], HOST[0], (5, 6), b"x"));
    assert_eq!(macs(&world.give_packet(1, &to_host).one()), (ROUTER_MAC[0], HOST_MAC[0]));
}

/// A flood of datagrams to a socket that nobody reads.
#[test]
fn a_flood_to_an_unread_socket_is_bounded() {
    let mut world = World::host();
    world.stack.udp_bind("0.0.0.0:6".parse().unwrap()).unwrap();
    for _ in 0..50_000 {
        world.give_packet(0, &udp_to(ROUTER[0], (5, 6), b""));
    }
    assert!(world.stack.memory().held("bytes in UDP sockets") <= UDP_QUEUE_BYTES_MAX);
    assert!(world.dropped(UdpDrop::QueueFull) > 40_000);
}
