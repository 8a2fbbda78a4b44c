//! ICMP errors: when they are sent, what they say, and when none may be (RFC 1122 3.2.2, RFC 1812 4.3, RFC 4443 2.4).

use crate::world::*;
use siga_stack::drops::{IcmpDrop, IpDrop, UdpDrop};
use siga_stack::limits::ICMP_ERRORS_BURST;
use siga_stack::link::device::Agreed;
use siga_stack::time::Duration;
use siga_stack::wire::ethernet::MacAddress;
use smoltcp::wire::EthernetProtocol;

/// The ICMP error that the sender received; asserts that it quotes the packet.
fn icmp_error(world: &mut World, packet: &[u8], from: &str) -> (u8, u8, u32) {
    let reply = world.sent_packet(0);
    assert_eq!(addresses(&reply), (from.into(), addresses(packet).0));
    let (kind, code, rest) = icmp_of(&reply);
    assert_eq!(packet[..rest.len() - 4], rest[4..]);
    assert!(reply.len() <= if from.contains(':') { 1280 } else { 576 });
    assert!(rest.len() - 4 == packet.len() || reply.len() >= 572, "as much as fits");
    (kind, code, u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]))
}

#[test]
fn a_router_reports_an_exceeded_hop_limit() {
    let mut world = World::router();
    for ttl in [0, 1] {
        let packet = V4 { ttl, ..V4::new(HOST[0], HOST[1], 17) }.packet(&udp(HOST[0], HOST[1], (5, 6), &[1; 1000]));
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::HopLimit));
        assert_eq!(icmp_error(&mut world, &packet, ROUTER[0]), (11, 0, 0));
        let packet = v6(HOST6[0], HOST6[1], 17, ttl, &udp(HOST6[0], HOST6[1], (5, 6), &[1; 1400]));
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::HopLimit));
        assert_eq!(icmp_error(&mut world, &packet, ROUTER6[0]), (3, 0, 0));
    }
    let last = V4 { ttl: 1, ..V4::new(HOST[0], ROUTER[1], 1) }.packet(&icmp(8, 0, &[0; 4]));
    assert_eq!(world.give_packet(0, &last), Outcome::Done, "it need go no further");
}

#[test]
fn a_router_reports_a_destination_without_route() {
    let mut world = World::router();
    let packet = udp_to("192.0.2.1", (5, 6), b"x");
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::NoRoute));
    assert_eq!(icmp_error(&mut world, &packet, ROUTER[0]), (3, 0, 0));
    let packet = udp_to("2001:db8:9::1", (5, 6), b"x");
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::NoRoute));
    assert_eq!(icmp_error(&mut world, &packet, ROUTER6[0]), (1, 0, 0));
}

#[test]
fn a_router_reports_the_mtu_of_a_smaller_link() {
    let mut world = World::with([1500, 1400], [Agreed::default(); 2], true);
    let segment = udp(HOST[0], HOST[1], (5, 6), &[1; 1373]);
    let packet = V4 { dont_fragment: true, ..V4::new(HOST[0], HOST[1], 17) }.packet(&segment);
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::TooBig));
    assert_eq!(icmp_error(&mut world, &packet, ROUTER[0]), (3, 4, 1400));
    let packet = udp_to(HOST6[1], (5, 6), &[1; 1353]);
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::TooBig));
    assert_eq!(icmp_error(&mut world, &packet, ROUTER6[0]), (2, 0, 1400));
    assert_eq!(world.give_packet(0, &udp_to(HOST6[1], (5, 6), &[1; 1352])).one().len(), 1414);
}

#[test]
fn a_host_reports_closed_ports_and_unknown_protocols() {
    let mut world = World::host();
    let packet = udp_to(ROUTER[0], (5, 6), b"anyone?");
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(UdpDrop::NoSocket));
    assert_eq!(icmp_error(&mut world, &packet, ROUTER[0]), (3, 3, 0));
    let packet = udp_to(ROUTER6[0], (5, 6), b"anyone?");
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(UdpDrop::NoSocket));
    assert_eq!(icmp_error(&mut world, &packet, ROUTER6[0]), (1, 4, 0));
    let packet = V4::new(HOST[0], ROUTER[0], 99).packet(&[0; 20]);
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::Protocol));
    assert_eq!(icmp_error(&mut world, &packet, ROUTER[0]), (3, 2, 0));
    let packet = v6(HOST6[0], ROUTER6[0], 60, 64, &[&[99, 0, 1, 4, 0, 0, 0, 0], &[0; 20][..]].concat());
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::Protocol));
    assert_eq!(icmp_error(&mut world, &packet, ROUTER6[0]), (4, 1, 40), "where the number stands");
    let nothing = v6(HOST6[0], ROUTER6[0], 59, 64, &[1, 2, 3]);
    assert_eq!(world.give_packet(0, &nothing), Outcome::Done, "no next header");
    world.assert_silent();
}

#[test]
fn unknown_ipv6_options_are_reported_as_their_action_bits_say() {
    let mut world = World::host();
    for (option, to, expected) in [
        (0x9e, ROUTER6[0], Some((4, 2, 42))),
        (0xde, ROUTER6[0], Some((4, 2, 42))),
        (0x9e, "ff02::1", Some((4, 2, 42))),
        (0xde, "ff02::1", None),
        (0x5e, ROUTER6[0], None),
    ] {
        let packet = v6(HOST6[0], to, 60, 64, &[59, 0, option, 4, 0, 0, 0, 0]);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::Options));
        match expected {
            Some(expected) => assert_eq!(icmp_error(&mut world, &packet, ROUTER6[0]), expected, "{option:#x} {to}"),
            None => world.assert_silent(),
        }
    }
}

#[test]
fn no_icmp_error_is_sent_about_packets_that_forbid_one() {
    let mut world = World::router();
    let unreachable = |rest: &[u8]| icmp(3, 1, &[&[0; 4], rest].concat());
    let quoted = udp_to(HOST[1], (5, 6), b"x");
    let error = V4::new(HOST[0], "192.0.2.1", 1).packet(&unreachable(&quoted));
    let fragment = V4 { offset: 8, ..V4::new(HOST[0], "192.0.2.1", 17) }.packet(&[0; 64]);
    for packet in [error, fragment] {
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::NoRoute));
    }
    let error = icmp6(HOST6[0], "2001:db8:9::1", 1, 0, &[0; 52]);
    let packet = v6(HOST6[0], "2001:db8:9::1", 58, 64, &error);
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::NoRoute));
    let part = [&[58, 0, 0, 8, 0, 0, 0, 1][..], &[200; 16]].concat();
    let packet = v6(HOST6[0], "2001:db8:9::1", 44, 64, &part);
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::NoRoute), "of what may be an error");
    for to in ["255.255.255.255", "10.1.0.255", "224.0.0.1", "ff02::1"] {
        assert_eq!(world.give_packet(0, &udp_to(to, (5, 6), b"x")), Outcome::dropped(UdpDrop::NoSocket), "{to}");
    }
    for (from, to) in [("10.1.0.255", ROUTER[0]), ("10.2.0.255", "192.0.2.1")] {
        let packet = V4::new(from, to, 17).packet(&udp(from, to, (5, 6), b"x"));
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::SourceMartian), "{from}");
    }
    let all = ethernet(HOST_MAC[0], MacAddress::BROADCAST, EthernetProtocol::Ipv4, &udp_to(ROUTER[0], (5, 6), b"x"));
    assert_eq!(world.give(0, &all), Outcome::dropped(UdpDrop::NoSocket));
    assert_eq!(world.dropped(IcmpDrop::Forbidden), 9);
    world.assert_silent();
}

#[test]
fn undeliverable_echo_requests_and_replies_are_reported() {
    let mut world = World::router();
    for kind in [8, 0] {
        let packet = V4::new(HOST[0], "192.0.2.1", 1).packet(&icmp(kind, 0, &[0; 4]));
        world.give_packet(0, &packet);
        assert_eq!(icmp_error(&mut world, &packet, ROUTER[0]), (3, 0, 0));
    }
}

#[test]
fn a_flood_is_answered_by_a_burst_of_icmp_errors_and_then_at_a_rate() {
    let mut world = World::host();
    for _ in 0..10_000 {
        world.give_packet(0, &udp_to(ROUTER[0], (5, 6), b"x"));
    }
    let sent = world.sent(0).len() as u64;
    let burst = u64::from(ICMP_ERRORS_BURST);
    assert!((burst / 3..=burst).contains(&sent), "{sent}: at most a burst, and by chance fewer");
    assert_eq!(world.dropped(IcmpDrop::RateLimit), 10_000 - sent);
    world.pass(Duration::from_millis(10));
    for _ in 0..100 {
        world.give_packet(0, &udp_to(ROUTER6[0], (5, 6), b"x"));
    }
    assert!((4..=10).contains(&world.sent(0).len()));
}
