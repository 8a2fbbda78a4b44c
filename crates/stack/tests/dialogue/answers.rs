//! The headers of answers: from which address an echo reply or an ICMP error comes, and what it takes from the packet that it answers
//! (RFC 1122 3.2.2, RFC 1349 5.1, RFC 4443 2.2, RFC 6724).

use crate::world::*;
use siga_stack::drops::{FragmentDrop, IpDrop, UdpDrop};
use siga_stack::limits::REASSEMBLY_TIMEOUT;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::DeviceId;
use siga_stack::stack::StackConfig;
use siga_stack::time::Instant;

/// A host with two links between two stations each, without link addresses, and a link-local gateway on the first link.
fn host_between_links() -> World {
    let mut stack = siga_stack::Stack::new(StackConfig::default());
    for n in 0..2 {
        let addresses = vec![prefix(ROUTER[n], 24), prefix("fe80::1", 64), prefix(ROUTER6[n], 64)];
        let config = DeviceConfig { medium: Medium::Ip, mtu: 1500, addresses, agreed: Agreed::default() };
        stack.add_device(config).unwrap();
    }
    stack.add_route(prefix("0.0.0.0", 0), DeviceId(0), Some(HOST[0].parse().unwrap())).unwrap();
    stack.add_route(prefix("::", 0), DeviceId(0), Some("fe80::9".parse().unwrap())).unwrap();
    let mut world = World::after_group_reports(stack);
    world.now = Instant::from_ns(20_000_000_000);
    world
}

#[test]
fn packets_over_a_link_local_gateway_have_a_global_source() {
    let mut world = host_between_links();
    let socket = world.stack.udp_bind("[::]:7".parse().unwrap()).unwrap();
    world.stack.udp_send(world.now, socket, Some("[2001:db8:9::1]:9".parse().unwrap()), b"x").unwrap();
    assert_eq!(addresses(&world.sent(0)[0]).0, ROUTER6[0]);
}

#[test]
fn an_error_about_a_packet_to_this_host_comes_from_the_address_of_the_packet() {
    let mut world = host_between_links();
    for (from, to) in [("192.0.2.1", ROUTER[1]), ("2001:db8:9::1", ROUTER6[1])] {
        let datagram = udp(from, to, (5, 6), b"x");
        let packet =
            if to.contains(':') { v6(from, to, 17, 64, &datagram) } else { V4::new(from, to, 17).packet(&datagram) };
        assert_eq!(world.give(1, &packet), Outcome::dropped(UdpDrop::NoSocket));
        assert_eq!(addresses(&world.sent(0)[0]), (to.into(), from.into()));
    }
}

#[test]
fn an_echo_reply_has_the_type_of_service_of_the_request() {
    let mut world = host_between_links();
    let mut packet = V4::new(HOST[0], ROUTER[0], 1).packet(&icmp(8, 0, &[0; 4]));
    packet[1] = 0xb8;
    packet[10..12].fill(0);
    let sum = plain_checksum(&packet[..20]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(world.give(0, &packet), Outcome::Done);
    let reply = &world.sent(0)[0];
    assert_eq!((icmp_of(reply).0, reply[1]), (0, 0xb8));
    let mut packet = v6(HOST6[0], ROUTER6[0], 58, 64, &icmp6(HOST6[0], ROUTER6[0], 128, 0, &[0; 4]));
    packet[..2].copy_from_slice(&[0x6b, 0x80]);
    assert_eq!(world.give(0, &packet), Outcome::Done);
    let reply = &world.sent(0)[0];
    assert_eq!((icmp_of(reply).0, &reply[..2]), (129, &[0x6b, 0x80][..]));
}

// RFC 4443 2.4 (e.1).
#[test]
fn extension_headers_do_not_hide_an_icmp_error() {
    let mut world = host_between_links();
    let error = icmp6(HOST6[0], ROUTER6[0], 1, 0, &[0; 48]);
    let fragment = [&[60, 0, 0, 0, 0, 0, 0, 7][..], &[58, 0, 0x9e, 4, 0, 0, 0, 0]].concat();
    for (first, extension) in
        [(43, &[58, 0, 0, 1, 0, 0, 0, 0][..]), (60, &[58, 0, 0x9e, 4, 0, 0, 0, 0]), (44, &fragment)]
    {
        let packet = v6(HOST6[0], ROUTER6[0], first, 64, &[extension, &error[..]].concat());
        assert!(matches!(world.give(0, &packet), Outcome::Dropped(_)));
        world.assert_silent();
    }
}

#[test]
fn an_error_about_a_reassembled_datagram_quotes_the_header_of_the_complete_datagram() {
    let mut world = host_between_links();
    let datagram = udp(HOST[0], ROUTER[0], (5, 6), &[9; 40]);
    let whole = V4::new(HOST[0], ROUTER[0], 17).packet(&datagram);
    for (offset, more) in [(0, true), (24, false)] {
        let bytes = if more { &datagram[..24] } else { &datagram[24..] };
        world.give(0, &V4 { offset, more, ..V4::new(HOST[0], ROUTER[0], 17) }.packet(bytes));
    }
    assert_eq!(icmp_of(&world.sent(0)[0]).2[4..], whole);
    let datagram = udp(HOST6[0], ROUTER6[0], (5, 6), &[9; 40]);
    let whole = v6(HOST6[0], ROUTER6[0], 17, 64, &datagram);
    for (word, bytes) in [([0, 1], &datagram[..24]), ([0, 24], &datagram[24..])] {
        let header = [&[17, 0][..], &word, &[0, 0, 0, 7], bytes].concat();
        world.give(0, &v6(HOST6[0], ROUTER6[0], 44, 64, &header));
    }
    assert_eq!(icmp_of(&world.sent(0)[0]).2[4..], whole);
}

#[test]
fn errors_quote_fragments_and_datagrams_in_one_fragment_as_they_arrived() {
    let mut world = host_between_links();
    let datagram = udp(HOST6[0], ROUTER6[0], (5, 6), &[9; 40]);
    let fragment =
        |word: u8, bytes: &[u8]| v6(HOST6[0], ROUTER6[0], 44, 64, &[&[17, 0, 0, word, 0, 0, 0, 7], bytes].concat());
    let packet = fragment(0, &datagram);
    assert_eq!(world.give(0, &packet), Outcome::dropped(UdpDrop::NoSocket));
    assert_eq!(icmp_of(&world.sent(0)[0]).2[4..], packet, "one fragment");
    let packet = fragment(1, &datagram[..24]);
    assert_eq!(world.give(0, &packet), Outcome::Done);
    world.pass(REASSEMBLY_TIMEOUT);
    let (kind, code, rest) = icmp_of(&world.sent(0)[0]);
    assert_eq!((kind, code, &rest[4..]), (3, 1, &packet[..]), "timeout");
}

// RFC 8200 4.5.
#[test]
fn a_first_fragment_without_the_header_of_the_protocol_is_refused() {
    let mut world = host_between_links();
    let options = [17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    for (first, bytes) in [(17, &[0; 0][..]), (6, &[0; 16]), (60, &options[..8]), (60, &options)] {
        let header = [&[first, 0, 0, 1, 0, 0, 0, 7], bytes].concat();
        let packet = v6(HOST6[0], ROUTER6[0], 44, 64, &header);
        assert_eq!(world.give(0, &packet), Outcome::dropped(FragmentDrop::Malformed), "{first}");
        let (kind, code, rest) = icmp_of(&world.sent(0)[0]);
        assert_eq!((kind, code, &rest[..4]), (4, 3, &[0; 4][..]), "{first}");
    }
    // The missing ICMPv6 header may be that of an error, which must not cause another one.
    let packet = v6(HOST6[0], ROUTER6[0], 44, 64, &[58, 0, 0, 1, 0, 0, 0, 7]);
    assert_eq!(world.give(0, &packet), Outcome::dropped(FragmentDrop::Malformed));
    world.assert_silent();
}

// RFC 4291 2.8.
#[test]
fn a_router_is_a_member_of_the_groups_of_all_routers() {
    let mut world = World::router();
    for group in ["ff02::2", "ff05::2"] {
        let packet = v6(HOST6[0], group, 58, 64, &icmp6(HOST6[0], group, 128, 0, &[0; 4]));
        assert_eq!(world.give_packet(0, &packet), Outcome::Done, "{group}");
        assert_eq!(icmp_of(&world.sent_packet(0)).0, 129);
    }
}

// RFC 1812 5.3.7.
#[test]
fn wrong_options_in_a_packet_to_a_loopback_address_are_not_reported() {
    let mut world = host_between_links();
    let options = [30, 0, 0, 0];
    for (to, reports) in [("127.255.255.255", 0), (ROUTER[0], 1)] {
        let packet = V4 { options: &options, ..V4::new(HOST[0], to, 17) }.packet(&udp(HOST[0], to, (5, 6), b"x"));
        assert_eq!(world.give(0, &packet), Outcome::dropped(IpDrop::Options));
        assert_eq!(world.sent(0).len(), reports, "{to}");
    }
}

// RFC 1122 3.2.2.1.
#[test]
fn a_datagram_to_port_0_is_answered_like_one_to_a_closed_port() {
    let mut world = host_between_links();
    let packet = V4::new(HOST[0], ROUTER[0], 17).packet(&udp(HOST[0], ROUTER[0], (5, 0), b"x"));
    assert_eq!(world.give(0, &packet), Outcome::dropped(UdpDrop::NoSocket));
    let (kind, code, _) = icmp_of(&world.sent(0)[0]);
    assert_eq!((kind, code), (3, 3));
}
