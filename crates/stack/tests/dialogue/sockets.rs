//! UDP sockets over the wire (RFC 768, RFC 1122 4.1), and what the network says of what they send.

use crate::world::*;
use siga_stack::Stack;
use siga_stack::drops::{IcmpDrop, IpDrop, UdpDrop};
use siga_stack::limits::HEADER_BYTES_MAX;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::seed::Seed;
use siga_stack::sockets::{TcpError, TcpOptions};
use siga_stack::stack::{Handled, StackConfig};
use siga_stack::udp::{Datagram, DatagramOptions, UdpError};
use siga_stack::wire::ethernet::MacAddress;
use siga_stack::wire::icmp::NetworkError;
use std::net::{IpAddr, SocketAddr};

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

#[test]
fn udp_datagrams_are_sent_and_received_over_both_ip_versions() {
    let mut world = World::host();
    for (any, own, host) in [("0.0.0.0", ROUTER[0], HOST[0]), ("::", ROUTER6[0], HOST6[0])] {
        let socket = world.stack.udp_bind(at(any, 7)).unwrap();
        assert_eq!(world.stack.udp_readable(socket), Ok(false));
        assert_eq!(world.give_packet(0, &udp_to(own, (1000, 7), b"ping")), Outcome::Done);
        assert_eq!(world.stack.udp_readable(socket), Ok(true));
        let (from, to, bytes, on) = (at(host, 1000), own.parse().unwrap(), b"ping".to_vec(), Some(DeviceId(0)));
        let datagram = Datagram { from, to, bytes, at: world.now, on, hop_limit: 64, service: 0 };
        assert_eq!(world.stack.udp_receive(socket), Ok(Some(datagram)));
        assert_eq!(world.stack.udp_send(world.now, socket, Some(at(host, 1000)), b"pong"), Ok(()));
        let packet = world.sent_packet(0);
        assert_eq!(addresses(&packet), (own.into(), host.into()));
        let transport = if host.contains(':') { 40 } else { 20 };
        assert_eq!(packet[transport..], udp(own, host, (7, 1000), b"pong"));
        world.stack.udp_close(socket).unwrap();
        assert_eq!(world.give_packet(0, &udp_to(own, (1000, 7), b"ping")), Outcome::dropped(UdpDrop::NoSocket));
        world.sent(0);
    }
}

#[test]
fn a_datagram_reports_how_it_arrived_and_can_have_options_of_its_own() {
    let mut world = World::host();
    for (any, own, host) in [("0.0.0.0", ROUTER[0], HOST[0]), ("::", ROUTER6[0], HOST6[0])] {
        let socket = world.stack.udp_bind(at(any, 7)).unwrap();
        let from: IpAddr = own.parse().unwrap();
        let with = DatagramOptions { from: Some(from), device: None, hop_limit: Some(3), service: Some(0xb9) };
        assert_eq!(world.stack.udp_send_with(world.now, socket, Some(at(own, 7)), b"x", with), Ok(()));
        let seen = world.stack.udp_receive(socket).unwrap().unwrap();
        assert_eq!((seen.on, seen.hop_limit, seen.service, seen.from.ip()), (None, 3, 0xb9, from), "to itself");
        assert_eq!(world.stack.udp_send_with(world.now, socket, Some(at(host, 9)), b"x", with), Ok(()));
        let packet = world.sent_packet(0);
        let (hops, service) =
            if from.is_ipv4() { (packet[8], packet[1]) } else { (packet[7], packet[0] << 4 | packet[1] >> 4) };
        assert_eq!((hops, service), (3, 0xb9));
        // The options are those of one datagram only.
        world.stack.udp_set_service(socket, 0x20).unwrap();
        assert_eq!(world.stack.udp_send(world.now, socket, Some(at(own, 7)), b"x"), Ok(()));
        let seen = world.stack.udp_receive(socket).unwrap().unwrap();
        assert_eq!((seen.hop_limit, seen.service), (64, 0x20));
        for (with, error) in [
            (DatagramOptions { from: Some(host.parse().unwrap()), ..with }, UdpError::NotOurs),
            (DatagramOptions { device: Some(DeviceId(9)), ..with }, UdpError::NoDevice),
            (DatagramOptions { hop_limit: Some(0), ..with }, UdpError::Address),
        ] {
            assert_eq!(world.stack.udp_send_with(world.now, socket, Some(at(host, 9)), b"x", with), Err(error));
        }
        world.sent(0);
    }
}

#[test]
fn large_datagrams_cross_in_fragments() {
    for (own, host, header) in [(ROUTER[0], HOST[0], 20), (ROUTER6[0], HOST6[0], 48)] {
        let mut here = World::host();
        let data: Vec<u8> = (0..65_400_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
        let socket = here.stack.udp_bind(at(own, 7)).unwrap();
        assert_eq!(here.stack.udp_send(here.now, socket, Some(at(host, 9)), &data), Ok(()));
        let frames = here.sent(0);
        assert!(frames.iter().all(|frame| frame.len() <= 1514));
        assert_eq!(frames.len(), (data.len() + 8).div_ceil((1500 - header) & !7));

        let mut there = Stack::new(StackConfig { seed: Seed::simulated(2), ..StackConfig::default() });
        let addresses = vec![prefix(host, if header == 20 { 24 } else { 64 })];
        let medium = Medium::Ethernet(HOST_MAC[0]);
        let device =
            there.add_device(DeviceConfig { medium, mtu: 1500, addresses, agreed: Agreed::default() }).unwrap();
        let receiver = there.udp_bind(at(host, 9)).unwrap();
        for frame in &frames {
            let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
            let handled = there.handle_frame(here.now, device, Received::unmarked(header, payload));
            assert!(matches!(handled, Handled::Done), "{handled:?}");
        }
        let datagram = there.udp_receive(receiver).unwrap().unwrap();
        assert_eq!((datagram.from, datagram.bytes), (at(own, 7), data));
    }
}

#[test]
fn a_stack_reaches_its_own_sockets() {
    let mut world = World::host();
    for (a, b) in [(ROUTER[0], ROUTER[1]), (ROUTER6[0], ROUTER6[1])] {
        let server = world.stack.udp_bind(at(b, 7)).unwrap();
        let client = world.stack.udp_bind(at(a, 0)).unwrap();
        world.stack.udp_connect(client, at(b, 7)).unwrap();
        assert_eq!(world.stack.udp_send(world.now, client, None, b"me"), Ok(()));
        let datagram = world.stack.udp_receive(server).unwrap().unwrap();
        assert_eq!((datagram.bytes, datagram.from), (b"me".to_vec(), world.stack.udp_local(client).unwrap()));
        world.stack.udp_close(server).unwrap();
        assert_eq!(world.stack.udp_send(world.now, client, None, b"gone?"), Ok(()));
        let refused = UdpError::Network(at(b, 7), NetworkError::PortUnreachable);
        assert_eq!(world.stack.udp_receive(client), Err(refused));
        assert_eq!(world.stack.udp_receive(client), Ok(None));
    }
    world.assert_silent();
}

#[test]
fn loopback_addresses_reach_only_the_stack_itself() {
    let mut world =
        World::configured(StackConfig { seed: Seed::simulated(1), loopback: true, ..StackConfig::default() });
    for (own, other, outside) in [("127.0.0.1", "127.9.9.9", HOST[0]), ("::1", "::1", HOST6[0])] {
        let server = world.stack.udp_bind(at(own, 7)).unwrap();
        let client = world.stack.udp_bind(at(own, 0)).unwrap();
        world.stack.udp_send(world.now, client, Some(at(own, 7)), b"me").unwrap();
        assert_eq!(world.stack.udp_receive(server).unwrap().unwrap().from, world.stack.udp_local(client).unwrap());
        assert_eq!(world.stack.udp_send(world.now, client, Some(at(outside, 7)), b"x"), Err(UdpError::Address));
        world.stack.udp_close(server).unwrap();
        world.stack.udp_connect(client, at(own, 7)).unwrap();
        world.stack.udp_send(world.now, client, None, b"gone?").unwrap();
        let closed = UdpError::Network(at(own, 7), NetworkError::PortUnreachable);
        assert_eq!(world.stack.udp_receive(client), Err(closed));

        let options = TcpOptions::default();
        world.stack.tcp_listen(at(other, 80), 4, &options).unwrap();
        let connection = world.stack.tcp_connect(world.now, at(own, 0), at(other, 80), &options).unwrap();
        assert!(world.stack.tcp_readiness(connection).unwrap().writable);
        let away = world.stack.tcp_connect(world.now, at(own, 0), at(outside, 80), &options);
        assert_eq!(away, Err(TcpError::Address));
        assert!(world.sent(0).is_empty(), "nothing leaves the stack");
    }
    // A frame from a device has neither a loopback source nor a loopback destination.
    let socket = world.stack.udp_bind(at("127.0.0.1", 7)).unwrap();
    let (to, from) = (IpDrop::DestinationMartian, IpDrop::SourceMartian);
    for (from, to, reason) in [(HOST[0], "127.0.0.1", to), ("127.0.0.1", ROUTER[0], from)] {
        let datagram = udp(from, to, (1000, 7), b"ping");
        let packet = V4::new(from, to, 17).packet(&datagram);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(reason), "{from} {to}");
    }
    assert_eq!(world.stack.udp_receive(socket), Ok(None));
}

#[test]
fn icmp_errors_reach_only_the_socket_of_the_quoted_packet() {
    let mut world = World::host();
    let socket = world.stack.udp_bind(at(ROUTER[0], 7)).unwrap();
    world.stack.udp_connect(socket, at(HOST[0], 9)).unwrap();
    world.stack.udp_send(world.now, socket, None, b"x").unwrap();
    let sent = world.sent_packet(0);
    for (kind, code, error) in [
        (3, 0, NetworkError::NoRoute),
        (3, 1, NetworkError::HostUnreachable),
        (3, 2, NetworkError::ProtocolUnreachable),
        (3, 3, NetworkError::PortUnreachable),
        (3, 13, NetworkError::Prohibited),
        (11, 0, NetworkError::TimeExceeded),
    ] {
        let message = icmp(kind, code, &[&[0; 4], &sent[..28]].concat());
        assert_eq!(world.give_packet(0, &V4::new(HOST[0], ROUTER[0], 1).packet(&message)), Outcome::Done);
        assert_eq!(world.stack.udp_receive(socket), Err(UdpError::Network(at(HOST[0], 9), error)));
    }
    let socket6 = world.stack.udp_bind(at(ROUTER6[0], 7)).unwrap();
    world.stack.udp_connect(socket6, at(HOST6[0], 9)).unwrap();
    world.stack.udp_send(world.now, socket6, None, b"x").unwrap();
    let sent6 = world.sent_packet(0);
    for (kind, code, error) in [
        (1, 0, NetworkError::NoRoute),
        (1, 1, NetworkError::Prohibited),
        (1, 2, NetworkError::HostUnreachable),
        (1, 3, NetworkError::HostUnreachable),
        (1, 4, NetworkError::PortUnreachable),
        (1, 5, NetworkError::Prohibited),
        (3, 0, NetworkError::TimeExceeded),
        (4, 1, NetworkError::Parameter),
    ] {
        let message = icmp6(HOST6[0], ROUTER6[0], kind, code, &[&[0; 4], &sent6[..]].concat());
        assert_eq!(world.give_packet(0, &v6(HOST6[0], ROUTER6[0], 58, 64, &message)), Outcome::Done);
        assert_eq!(world.stack.udp_receive(socket6), Err(UdpError::Network(at(HOST6[0], 9), error)), "{kind} {code}");
    }
    world.stack.udp_bind(at("0.0.0.0", 7)).unwrap();
    let mut forged = sent.clone();
    forged[20..22].copy_from_slice(&10_u16.to_be_bytes());
    let foreign = udp_to(HOST[1], (7, 9), b"x");
    // The packet as an observer of the sent data would predict it, but for the identification.
    let mut imagined = sent.clone();
    imagined[5] ^= 1;
    for quoted in [&forged[..28], &foreign[..28], &imagined[..28], &sent[..23], &sent[..10], &[][..]] {
        let message = icmp(3, 3, &[&[0; 4], quoted].concat());
        let outcome = world.give_packet(0, &V4::new(HOST[0], ROUTER[0], 1).packet(&message));
        assert_eq!(outcome, Outcome::dropped(IcmpDrop::Quote));
    }
    assert_eq!(world.stack.udp_receive(socket), Ok(None));
    world.assert_silent();
}

#[test]
fn a_path_mtu_is_learnt_from_an_icmp_error_that_quotes_a_sent_packet() {
    let mut world = World::host();
    let socket = world.stack.udp_bind(at(ROUTER6[0], 7)).unwrap();
    let send = |world: &mut World| {
        assert_eq!(world.stack.udp_send(world.now, socket, Some(at(HOST6[0], 9)), &[1; 1400]), Ok(()));
        let packets: Vec<_> = world.sent(0).into_iter().map(|frame| frame[14..].to_vec()).collect();
        (packets.iter().map(Vec::len).collect::<Vec<_>>(), packets[0].clone())
    };
    let message = |quoted: &[u8], mtu: u32| {
        let rest = [&mtu.to_be_bytes(), quoted].concat();
        v6(HOST6[0], ROUTER6[0], 58, 64, &icmp6(HOST6[0], ROUTER6[0], 2, 0, &rest))
    };
    let (lengths, ours) = send(&mut world);
    assert_eq!(lengths, [1448]);
    // All that a stranger can know of what was sent is right; the flow label is drawn from the seed.
    let imagined = v6(ROUTER6[0], HOST6[0], 17, 64, &udp(ROUTER6[0], HOST6[0], (7, 9), &[1; 1400]));
    assert_eq!((&imagined[4..], imagined.len()), (&ours[4..], ours.len()));
    assert_eq!(world.give_packet(0, &message(&imagined, 1300)), Outcome::dropped(IcmpDrop::Quote));
    for mtu in [1_448, 1_449, 9_000, 70_000] {
        assert_eq!(world.give_packet(0, &message(&ours, mtu)), Outcome::dropped(IcmpDrop::Quote), "it fits into {mtu}");
    }
    assert_eq!(send(&mut world).0, [1448]);
    assert_eq!(world.give_packet(0, &message(&ours, 1300)), Outcome::Done);
    let (lengths, first) = send(&mut world);
    assert_eq!(lengths, [1296, 40 + 8 + 1408 - 1248]);
    assert_eq!(world.give_packet(0, &message(&first, 68)), Outcome::Done);
    assert_eq!(send(&mut world).0, [1280, 40 + 8 + 1408 - 1232], "never below the smallest MTU");
    world.now += siga_stack::limits::PATH_MTU_AGE;
    assert_eq!(world.give_packet(0, &message(&ours, 1300)), Outcome::dropped(IcmpDrop::Quote), "sent too long ago");
    assert_eq!(send(&mut world).0, [1448], "believed for a time");
}

#[test]
fn broadcasts_and_groups_leave_by_the_device_of_the_bound_address() {
    let mut world = World::host();
    let socket = world.stack.udp_bind(at(ROUTER[1], 7)).unwrap();
    let socket6 = world.stack.udp_bind(at(ROUTER6[1], 7)).unwrap();
    for (socket, to, mac) in [
        (socket, "255.255.255.255", MacAddress::BROADCAST),
        (socket, "10.2.0.255", MacAddress::BROADCAST),
        (socket, "239.129.2.3", MacAddress([1, 0, 0x5e, 1, 2, 3])),
        (socket6, "ff05::1:3", MacAddress([0x33, 0x33, 0, 1, 0, 3])),
    ] {
        assert_eq!(world.stack.udp_send(world.now, socket, Some(at(to, 9)), b"all"), Ok(()), "{to}");
        let frames = world.sent(1);
        assert_eq!(macs(&frames[0]), (ROUTER_MAC[1], mac));
        world.assert_silent();
    }
    assert_eq!(
        world.give_packet(1, &V4::new(HOST[1], "10.2.0.255", 17).packet(&udp(HOST[1], "10.2.0.255", (9, 8), b""))),
        Outcome::dropped(UdpDrop::NoSocket)
    );
}

#[test]
fn wrong_use_of_udp_sockets_returns_typed_errors() {
    let mut world = World::host();
    assert_eq!(world.stack.udp_bind(at("10.9.9.9", 7)), Err(UdpError::NotOurs));
    let socket = world.stack.udp_bind(at("0.0.0.0", 7)).unwrap();
    assert_eq!(world.stack.udp_bind(at("0.0.0.0", 7)), Err(UdpError::InUse));
    let send = |world: &mut World, to, bytes: usize| world.stack.udp_send(world.now, socket, to, &vec![0; bytes]);
    assert_eq!(send(&mut world, None, 1), Err(UdpError::NotConnected));
    assert_eq!(send(&mut world, Some(at(HOST[0], 0)), 1), Err(UdpError::Address));
    assert_eq!(send(&mut world, Some(at(HOST6[0], 9)), 1), Err(UdpError::Address));
    assert_eq!(send(&mut world, Some(at("0.0.0.0", 9)), 1), Err(UdpError::Address));
    assert_eq!(send(&mut world, Some(at(HOST[0], 9)), 65_508), Err(UdpError::TooLong));
    assert_eq!(send(&mut world, Some(at(HOST[0], 9)), 65_507), Ok(()));
    let no_route = UdpError::Dropped(IpDrop::NoRoute.into());
    assert_eq!(send(&mut world, Some(at("192.0.2.1", 9)), 1), Err(no_route));
    assert_eq!(world.stack.udp_connect(socket, at("192.0.2.1", 9)), Err(no_route));
    assert_eq!(world.stack.udp_connect(socket, at(HOST6[0], 9)), Err(UdpError::Address));
    world.stack.udp_close(socket).unwrap();
    assert_eq!(world.stack.udp_close(socket), Err(UdpError::Closed));
    assert_eq!(world.stack.udp_receive(socket), Err(UdpError::Closed));
    assert_eq!(send(&mut world, Some(at(HOST[0], 9)), 1), Err(UdpError::Closed));
}

#[test]
fn malformed_datagrams_are_counted_and_not_delivered() {
    let mut world = World::host();
    let socket = world.stack.udp_bind(at("0.0.0.0", 7)).unwrap();
    let socket6 = world.stack.udp_bind(at("::", 7)).unwrap();
    let good = udp(HOST[0], ROUTER[0], (9, 7), b"data");
    let mut wrong = good.clone();
    wrong[9] ^= 1;
    let (mut long, mut short) = (good.clone(), good.clone());
    long[5] = 13;
    short[5] = 7;
    for (segment, reason) in [
        (&wrong[..], UdpDrop::Checksum),
        (&long, UdpDrop::Length),
        (&short, UdpDrop::Length),
        (&good[..7], UdpDrop::Length),
    ] {
        let packet = V4::new(HOST[0], ROUTER[0], 17).packet(segment);
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(reason), "{segment:?}");
    }
    let mut unchecked = good;
    unchecked[6..8].fill(0);
    assert_eq!(world.give_packet(0, &V4::new(HOST[0], ROUTER[0], 17).packet(&unchecked)), Outcome::Done);
    let refused = world.give_packet(0, &v6(HOST6[0], ROUTER6[0], 17, 64, &unchecked));
    assert_eq!(refused, Outcome::dropped(UdpDrop::Checksum), "RFC 8200 8.1");
    assert_eq!(world.stack.udp_receive(socket).unwrap().unwrap().bytes, b"data");
    assert_eq!((world.stack.udp_receive(socket), world.stack.udp_receive(socket6)), (Ok(None), Ok(None)));
}
