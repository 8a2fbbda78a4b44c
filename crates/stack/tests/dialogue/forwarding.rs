//! A router's duties (RFC 1812 5, RFC 8200).

use crate::world::*;
use siga_stack::Stack;
use siga_stack::drops::{DropReason, IpDrop, LinkDrop};
use siga_stack::ip::echo::Ping;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::DeviceId;
use siga_stack::stack::StackConfig;
use siga_stack::udp::UdpError;
use siga_stack::wire::ethernet::MacAddress;
use smoltcp::wire::{ArpOperation, EthernetProtocol, Ipv4Packet};

#[test]
fn a_forwarded_packet_has_one_hop_less_and_no_other_change() {
    let mut world = World::router();
    let before = world.stack.counters(DeviceId(1)).unwrap().frames_sent;
    for payload in [0, 1, 18, 100, 101, 1472] {
        let packet = udp_to(HOST[1], (5, 6), &vec![0xa5; payload]);
        let frame = world.give_packet(0, &packet).one();
        assert_eq!(macs(&frame), (ROUTER_MAC[1], HOST_MAC[1]));
        let mut expected = packet.clone();
        let mut ip = Ipv4Packet::new_unchecked(&mut expected);
        ip.set_hop_limit(63);
        ip.fill_checksum();
        assert_eq!(frame[14..], expected);

        let packet = udp_to(HOST6[1], (5, 6), &vec![0xa5; payload.min(1452)]);
        let frame = world.give_packet(0, &packet).one();
        assert_eq!(macs(&frame), (ROUTER_MAC[1], HOST_MAC[1]));
        let mut expected = packet;
        expected[7] = 63;
        assert_eq!(frame[14..], expected);
    }
    assert_eq!(world.stack.counters(DeviceId(1)).unwrap().frames_sent - before, 12);
    world.assert_silent();
}

#[test]
fn padding_of_a_frame_is_not_forwarded() {
    let mut world = World::router();
    let mut padded = udp_to(HOST[1], (5, 6), &[]);
    padded.extend_from_slice(&[0xee; 18]);
    assert_eq!(world.give_packet(0, &padded).one().len(), 14 + 28);
}

#[test]
fn a_packet_without_payload_is_forwarded() {
    let mut world = World::router();
    for packet in [V4::new(HOST[0], HOST[1], 253).packet(&[]), v6(HOST6[0], HOST6[1], 253, 64, &[])] {
        assert_eq!(world.give_packet(0, &packet).one().len(), 14 + packet.len());
    }
}

#[test]
fn a_router_resolves_the_gateway_and_not_the_destination() {
    let mut world = World::router();
    world.stack.add_route(prefix("192.0.2.0", 24), DeviceId(1), Some(HOST[1].parse().unwrap())).unwrap();
    world.stack.add_route(prefix("2001:db8:9::", 48), DeviceId(1), Some(HOST6[1].parse().unwrap())).unwrap();
    for to in ["192.0.2.77", "2001:db8:9:1::2"] {
        let frame = world.give_packet(0, &udp_to(to, (5, 6), b"x")).one();
        assert_eq!(macs(&frame), (ROUTER_MAC[1], HOST_MAC[1]));
        assert_eq!(addresses(&frame[14..]).1, to);
    }
    assert!(world.stack.remove_route(prefix("192.0.2.0", 24)));
    assert_eq!(world.give_packet(0, &udp_to("192.0.2.77", (5, 6), b"x")), Outcome::dropped(IpDrop::NoRoute));
}

#[test]
fn a_router_follows_a_gateway_to_its_new_link_layer_address() {
    let mut world = World::router();
    let other = MacAddress([2, 0, 0, 0, 0, 0x77]);
    let route = prefix("192.0.2.0", 24);
    world.stack.add_route(route, DeviceId(1), Some(HOST[1].parse().unwrap())).unwrap();
    let sent = |world: &mut World| macs(&world.give_packet(0, &udp_to("192.0.2.77", (5, 6), b"x")).one()).1;
    assert_eq!([sent(&mut world), sent(&mut world)], [HOST_MAC[1]; 2]);
    let moved = ethernet(
        other,
        ROUTER_MAC[1],
        EthernetProtocol::Arp,
        &arp(ArpOperation::Reply, other, HOST[1], ROUTER_MAC[1], ROUTER[1]),
    );
    assert_eq!(world.give(1, &moved), Outcome::Done);
    assert_eq!([sent(&mut world), sent(&mut world)], [other; 2]);
    // The next target has the number of the removed one, and is a different target.
    assert!(world.stack.remove_route(route));
    world.stack.add_route(route, DeviceId(0), Some(HOST[0].parse().unwrap())).unwrap();
    assert_eq!(sent(&mut world), HOST_MAC[0]);
}

#[test]
fn a_packet_may_be_forwarded_back_over_its_link_without_a_redirect() {
    let mut world = World::router();
    let packet = V4::new("10.2.0.50", HOST[0], 17).packet(&udp("10.2.0.50", HOST[0], (5, 6), b"x"));
    assert_eq!(macs(&world.give_packet(0, &packet).one()), (ROUTER_MAC[0], HOST_MAC[0]));
    world.assert_silent();
}

#[test]
fn a_host_forwards_nothing() {
    let mut world = World::host();
    for to in [HOST[1], HOST6[1], "192.0.2.1", "2001:db8:9::1"] {
        assert_eq!(world.give_packet(0, &udp_to(to, (5, 6), b"x")), Outcome::dropped(IpDrop::NotForUs), "{to}");
    }
    world.assert_silent();
}

#[test]
fn packets_with_martian_addresses_are_dropped_without_an_icmp_error() {
    let mut world = World::router();
    for (from, to, reason) in [
        ("0.0.0.0", HOST[1], IpDrop::SourceMartian),
        ("127.0.0.1", HOST[1], IpDrop::SourceMartian),
        ("224.0.0.5", HOST[1], IpDrop::SourceMartian),
        ("240.0.0.1", HOST[1], IpDrop::SourceMartian),
        ("255.255.255.255", HOST[1], IpDrop::SourceMartian),
        ("10.1.0.255", HOST[1], IpDrop::SourceMartian),
        ("10.2.0.255", HOST[1], IpDrop::SourceMartian),
        ("10.1.0.0", HOST[1], IpDrop::SourceMartian),
        ("10.2.0.0", "192.0.2.1", IpDrop::SourceMartian),
        (ROUTER[0], HOST[1], IpDrop::SourceMartian),
        (ROUTER[1], ROUTER[0], IpDrop::SourceMartian),
        (HOST[0], "0.1.2.3", IpDrop::DestinationMartian),
        (HOST[0], "127.0.0.1", IpDrop::DestinationMartian),
        (HOST[0], "240.0.0.1", IpDrop::DestinationMartian),
        (HOST[0], "169.254.1.1", IpDrop::DestinationMartian),
        ("169.254.1.1", HOST[1], IpDrop::DestinationMartian),
        (HOST[0], "224.0.0.5", IpDrop::NotJoined),
        (HOST[0], "10.2.0.255", IpDrop::Broadcast),
        (HOST[0], "10.1.0.0", IpDrop::DestinationMartian),
        (HOST[0], "10.2.0.0", IpDrop::DestinationMartian),
    ] {
        let packet = V4::new(from, to, 17).packet(&udp(from, to, (5, 6), b"x"));
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(reason), "{from} to {to}");
    }
    for (from, to, reason) in [
        ("ff02::1", HOST6[1], IpDrop::SourceMartian),
        ("::1", HOST6[1], IpDrop::SourceMartian),
        ("::", HOST6[1], IpDrop::SourceMartian),
        ("::ffff:10.1.0.9", HOST6[1], IpDrop::SourceMartian),
        ("fe80::9", HOST6[1], IpDrop::SourceMartian),
        (ROUTER6[1], HOST6[1], IpDrop::SourceMartian),
        (HOST6[0], "::", IpDrop::DestinationMartian),
        (HOST6[0], "::1", IpDrop::DestinationMartian),
        (HOST6[0], "::ffff:10.2.0.9", IpDrop::DestinationMartian),
        (HOST6[0], "fe80::1", IpDrop::NotForUs),
        (HOST6[0], "ff02::5", IpDrop::NotJoined),
    ] {
        let packet = v6(from, to, 17, 64, &udp(from, to, (5, 6), b"x"));
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(reason), "{from} to {to}");
    }
    world.assert_silent();
}

#[test]
fn the_first_and_last_addresses_of_a_network_are_hosts_if_they_have_routes() {
    let mut world = World::router();
    for special in ["10.2.0.255", "10.2.0.0"] {
        world.stack.add_route(prefix(special, 32), DeviceId(1), Some(HOST[1].parse().unwrap())).unwrap();
        assert_eq!(addresses(&world.give_packet(0, &udp_to(special, (5, 6), b"x")).one()[14..]).1, special);
        let back = V4::new(special, HOST[0], 17).packet(&udp(special, HOST[0], (6, 5), b"x"));
        assert_eq!(macs(&world.give_packet(1, &back).one()), (ROUTER_MAC[0], HOST_MAC[0]));
    }
}

// RFC 4291 2.1, RFC 4007 6: an address of a link alone is that of the interface on the link.
#[test]
fn a_link_local_address_belongs_to_the_stack_on_its_link_alone() {
    let mut stack = Stack::new(StackConfig { forwarding: true, ..StackConfig::default() });
    let own = ["fe80::1", "fe80::2"];
    for n in 0..2 {
        let addresses = vec![prefix(own[n], 64)];
        let medium = Medium::Ethernet(ROUTER_MAC[n]);
        stack.add_device(DeviceConfig { medium, mtu: 1500, addresses, agreed: Agreed::default() }).unwrap();
    }
    let mut world = World::after_group_reports(stack);
    let socket = world.stack.udp_bind("[::]:6".parse().unwrap()).unwrap();
    for (device, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let packet = v6("fe80::9", own[to], 17, 64, &udp("fe80::9", own[to], (5, 6), b"x"));
        let outcome = if device == to { Outcome::Done } else { Outcome::dropped(IpDrop::NotForUs) };
        assert_eq!(world.give_packet(device, &packet), outcome, "{} on {device}", own[to]);
        assert_eq!(world.stack.udp_receive(socket).unwrap().is_some(), device == to);
    }
    world.assert_silent();
}

// RFC 1812 4.2.2.11: no packet is sent to an obsolete form of broadcast.
#[test]
fn no_packet_is_forwarded_to_the_first_address_of_a_network() {
    let mut world = World::host();
    let socket = world.stack.udp_bind("0.0.0.0:6".parse().unwrap()).unwrap();
    let sent = world.stack.udp_send(world.now, socket, Some("10.1.0.0:5".parse().unwrap()), b"x");
    assert_eq!(sent, Err(UdpError::Dropped(IpDrop::NoRoute.into())));
    let ping = Ping { to: "10.1.0.0".parse().unwrap(), ident: 1, seq: 1 };
    assert_eq!(world.stack.ping(world.now, ping, 0), Err(IpDrop::NoRoute.into()));
    world.assert_silent();
}

// RFC 3021: networks of two addresses have no room for others.
#[test]
fn both_addresses_of_a_network_of_two_are_hosts() {
    use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
    let mut world = World::router();
    let addresses = vec![prefix("10.3.0.1", 31)];
    let config = DeviceConfig { medium: Medium::Ip, mtu: 1500, addresses, agreed: Agreed::default() };
    assert_eq!(world.stack.add_device(config), Ok(DeviceId(2)));
    let packet = udp_to("10.3.0.0", (5, 6), b"x");
    assert_eq!(world.give_packet(0, &packet).one().len(), packet.len());
    let back = V4::new("10.3.0.0", HOST[0], 17).packet(&udp("10.3.0.0", HOST[0], (6, 5), b"x"));
    assert_eq!(macs(&world.give(2, &back).one()), (ROUTER_MAC[0], HOST_MAC[0]));
}

// RFC 1812 5.3.8.
#[test]
fn source_validation_checks_the_route_back_to_the_source() {
    for source_validation in [false, true] {
        let mut world =
            World::configured(StackConfig { forwarding: true, source_validation, ..StackConfig::default() });
        world.stack.add_route(prefix("192.0.2.0", 24), DeviceId(0), Some(HOST[0].parse().unwrap())).unwrap();
        world.stack.add_route(prefix("2001:db8:9::", 48), DeviceId(0), Some(HOST6[0].parse().unwrap())).unwrap();
        for (from, to, good) in [
            (HOST[0], HOST[1], true),
            ("192.0.2.7", HOST[1], true),
            ("10.2.0.50", HOST[1], false),
            ("198.51.100.7", HOST[1], false),
            (HOST6[0], HOST6[1], true),
            ("2001:db8:9::7", HOST6[1], true),
            ("2001:db8:2::50", HOST6[1], false),
            ("2001:db8:77::7", HOST6[1], false),
        ] {
            let datagram = udp(from, to, (5, 6), b"x");
            let packet = if from.contains(':') {
                v6(from, to, 17, 64, &datagram)
            } else {
                V4::new(from, to, 17).packet(&datagram)
            };
            let outcome = world.give_packet(0, &packet);
            if good || !source_validation {
                assert_eq!(macs(&outcome.one()), (ROUTER_MAC[1], HOST_MAC[1]), "{from}");
            } else {
                assert_eq!(outcome, Outcome::dropped(IpDrop::SourceElsewhere), "{from}");
            }
        }
        world.assert_silent();
    }
}

#[test]
fn frames_to_other_stations_broadcast_or_groups_are_not_forwarded() {
    let mut world = World::router();
    for (to, reason) in [
        (MacAddress([2, 0, 0, 0, 0, 99]), DropReason::from(LinkDrop::OtherStation)),
        (MacAddress::BROADCAST, IpDrop::Broadcast.into()),
        (MacAddress([1, 0, 0x5e, 1, 2, 3]), IpDrop::Broadcast.into()),
    ] {
        for (protocol, host) in [(EthernetProtocol::Ipv4, HOST[1]), (EthernetProtocol::Ipv6, HOST6[1])] {
            let frame = ethernet(HOST_MAC[0], to, protocol, &udp_to(host, (5, 6), b"x"));
            assert_eq!(world.give(0, &frame), Outcome::Dropped(reason));
        }
    }
    world.assert_silent();
}

#[test]
fn each_damage_of_an_ip_header_has_its_own_drop_reason() {
    let mut world = World::router();
    let good = udp_to(HOST[1], (5, 6), b"data");
    let change = |at: usize, byte: u8, mend: bool| {
        let mut packet = good.clone();
        packet[at] = byte;
        if mend {
            packet[10..12].fill(0);
            let sum = plain_checksum(&packet[..20]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        packet
    };
    for (packet, reason) in [
        (change(8, 63, false), IpDrop::Checksum),
        (change(19, 8, false), IpDrop::Checksum),
        (change(0, 0x65, true), IpDrop::Version),
        (change(0, 0x44, true), IpDrop::Length),
        (change(0, 0x4f, true), IpDrop::Length),
        (change(3, 19, true), IpDrop::Length),
        (change(3, 33, true), IpDrop::Length),
    ] {
        let frame = ethernet(HOST_MAC[0], ROUTER_MAC[0], EthernetProtocol::Ipv4, &packet);
        assert_eq!(world.give(0, &frame), Outcome::dropped(reason), "{packet:?}");
    }
    let good = udp_to(HOST6[1], (5, 6), b"data");
    for (at, byte, reason) in [(0, 0x45, IpDrop::Version), (5, 13, IpDrop::Length)] {
        let mut packet = good.clone();
        packet[at] = byte;
        let frame = ethernet(HOST_MAC[0], ROUTER_MAC[0], EthernetProtocol::Ipv6, &packet);
        assert_eq!(world.give(0, &frame), Outcome::dropped(reason));
    }
    world.assert_silent();
}

// RFC 9293 MUST-53.
#[test]
fn packets_with_options_are_forwarded_and_those_with_source_routes_are_not() {
    let mut world = World::router();
    let record_route = V4 { options: &[7, 7, 4, 0, 0, 0, 0, 0], ..V4::new(HOST[0], HOST[1], 17) };
    let frame = world.give_packet(0, &record_route.packet(b"12345678")).one();
    assert_eq!(frame[34..42], [7, 7, 4, 0, 0, 0, 0, 0]);
    addresses(&frame[14..]);
    for kind in [0x83, 0x89] {
        let routed = V4 { options: &[kind, 7, 4, 10, 2, 0, 9, 0], ..V4::new(HOST[0], ROUTER[0], 17) };
        assert_eq!(world.give_packet(0, &routed.packet(b"12345678")), Outcome::dropped(IpDrop::SourceRoute));
        let (kind, code, rest) = icmp_of(&world.sent_packet(0));
        assert_eq!((kind, code, rest[0]), (12, 0, 20), "parameter problem at the option");
    }
}

#[test]
fn an_ip_device_without_ethernet_needs_no_neighbours() {
    use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
    let mut world = World::router();
    let addresses = vec![prefix("10.3.0.1", 30), prefix("2001:db8:3::1", 64)];
    let config = DeviceConfig { medium: Medium::Ip, mtu: 1500, addresses, agreed: Agreed::default() };
    assert_eq!(world.stack.add_device(config), Ok(DeviceId(2)));
    for to in ["10.3.0.2", "2001:db8:3::2"] {
        let packet = udp_to(to, (5, 6), b"to the point");
        let frame = world.give_packet(0, &packet).one();
        assert_eq!((frame.len(), frame[0] >> 4), (packet.len(), packet[0] >> 4));
    }
    let back = V4::new("10.3.0.2", HOST[0], 17).packet(&udp("10.3.0.2", HOST[0], (6, 5), b"and back"));
    assert_eq!(macs(&world.give(2, &back).one()), (ROUTER_MAC[0], HOST_MAC[0]));
    let request = V4::new("10.3.0.2", "10.3.0.1", 1).packet(&icmp(8, 0, &[1; 8]));
    assert_eq!(world.give(2, &request), Outcome::Done);
    let reply = world.sent(2).remove(0);
    assert_eq!(icmp_of(&reply), (0, 0, vec![1; 8]));
}
