//! UDP sockets in groups: who gets a copy of what, how datagrams to groups are sent, and what is refused.

use crate::world::*;
use siga_stack::drops::{IpDrop, UdpDrop};
use siga_stack::limits::{UDP_DATAGRAM_OVERHEAD_BYTES, UDP_GROUPS_MAX, UDP_QUEUE_BYTES_MAX, UDP_SHARERS_MAX};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::DeviceId;
use siga_stack::udp::{Datagram, UdpError, UdpId};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;

const ON: [DeviceId; 2] = [DeviceId(0), DeviceId(1)];
/// For both versions: the unspecified address, a group, another, the stack's own address, and the station's on its first link.
const VERSIONS: [[&str; 5]; 2] =
    [["0.0.0.0", "239.1.2.3", "239.1.2.4", ROUTER[0], HOST[0]], ["::", "ff05::1:3", "ff15::9", ROUTER6[0], HOST6[0]]];

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl World {
    fn shared(&mut self, local: &str, port: u16) -> UdpId {
        self.stack.udp_bind_shared(at(local, port)).unwrap()
    }

    fn joined(&mut self, local: &str, port: u16, group: &str, device: DeviceId) -> UdpId {
        let socket = self.shared(local, port);
        assert_eq!(self.stack.udp_join(self.now, socket, ip(group), device), Ok(()));
        socket
    }

    /// What waits in each socket: the bytes of the datagrams.
    fn received(&mut self, sockets: &[UdpId]) -> Vec<Vec<Vec<u8>>> {
        let drain = |socket: &UdpId| {
            std::iter::from_fn(|| self.stack.udp_receive(*socket).unwrap()).map(|datagram| datagram.bytes).collect()
        };
        sockets.iter().map(drain).collect()
    }

    /// What a device sends, but for reports about groups.
    fn datagrams(&mut self, device: usize) -> Vec<Vec<u8>> {
        let is_udp = |packet: &Vec<u8>| packet[if packet[0] >> 4 == 4 { 9 } else { 6 }] == 17;
        self.sent(device).iter().map(|frame| frame[14..].to_vec()).filter(is_udp).collect()
    }
}

fn hop_limit(packet: &[u8]) -> u8 {
    packet[if packet[0] >> 4 == 4 { 8 } else { 7 }]
}

#[test]
fn every_udp_socket_that_joined_a_group_on_the_device_gets_a_copy_and_no_other() {
    for [any, group, other, own, host] in VERSIONS {
        let mut world = World::host();
        let sockets = [
            world.joined(any, 7, group, ON[0]),
            world.joined(any, 7, group, ON[0]),
            world.joined(group, 7, group, ON[0]),
            world.shared(any, 7),
            world.joined(any, 7, group, ON[1]),
            world.joined(any, 7, other, ON[0]),
            world.joined(any, 8, group, ON[0]),
            world.joined(own, 7, group, ON[0]),
            world.joined(other, 7, group, ON[0]),
        ];
        assert_eq!(world.give_packet(0, &udp_to(group, (9, 7), b"to all")), Outcome::Done);
        let (from, to, bytes) = (at(host, 9), ip(group), b"to all".to_vec());
        let first = Datagram { from, to, bytes, at: world.now, on: Some(ON[0]), hop_limit: 64, service: 0 };
        assert_eq!(world.stack.udp_receive(sockets[0]), Ok(Some(first)));
        let copies: Vec<usize> = world.received(&sockets).iter().map(Vec::len).collect();
        assert_eq!(copies, [0, 1, 1, 0, 0, 0, 0, 0, 0]);
        assert_eq!(world.give_packet(0, &udp_to(group, (9, 6), b"x")), Outcome::dropped(UdpDrop::NoSocket));
        assert!(world.datagrams(0).is_empty(), "nobody is told of a closed port of a group");
    }
}

#[test]
fn a_datagram_to_a_group_that_no_socket_joined_on_the_device_is_dropped() {
    for [any, group, other, ..] in VERSIONS {
        let mut world = World::host();
        let socket = world.joined(any, 7, group, ON[1]);
        for (device, to) in [(0, group), (0, other), (1, other)] {
            let packet = udp_to(to, (9, 7), b"x");
            assert_eq!(world.give_packet(device, &packet), Outcome::dropped(IpDrop::NotJoined));
        }
        assert_eq!(world.stack.udp_leave(world.now, socket, ip(group), ON[1]), Ok(()));
        assert_eq!(world.give_packet(1, &udp_to(group, (9, 7), b"x")), Outcome::dropped(IpDrop::NotJoined));
        assert_eq!(world.received(&[socket]), [Vec::<Vec<u8>>::new()]);
    }
    let mut world = World::host();
    let socket = world.joined("::", 7, "ff01::5", ON[0]);
    let martian = Outcome::dropped(IpDrop::DestinationMartian);
    for to in ["ff01::5", "ff00::5", "ff10::1"] {
        assert_eq!(world.give_packet(0, &udp_to(to, (9, 7), b"x")), martian, "{to} ends in the node");
    }
    assert_eq!(world.received(&[socket]), [Vec::<Vec<u8>>::new()]);
}

#[test]
fn a_socket_receives_the_all_hosts_group_only_after_it_joined() {
    for ([any, ..], all) in VERSIONS.into_iter().zip(["224.0.0.1", "ff02::1"]) {
        let mut world = World::host();
        let socket = world.shared(any, 7);
        assert_eq!(world.give_packet(0, &udp_to(all, (9, 7), b"x")), Outcome::dropped(UdpDrop::NoSocket));
        assert_eq!(world.stack.udp_join(world.now, socket, ip(all), ON[0]), Ok(()));
        assert_eq!(world.give_packet(0, &udp_to(all, (9, 7), b"x")), Outcome::Done);
        assert_eq!(world.received(&[socket]), [[b"x"]]);
    }
}

#[test]
fn a_connected_group_socket_receives_only_from_its_peer() {
    for [any, group, .., host] in VERSIONS {
        let mut world = World::host();
        let (bound, unbound) = (world.joined(group, 7, group, ON[0]), world.joined(any, 7, group, ON[0]));
        for socket in [bound, unbound] {
            assert_eq!(world.stack.udp_connect(socket, at(host, 9)), Ok(()));
        }
        for port in [8, 9] {
            let outcome = world.give_packet(0, &udp_to(group, (port, 7), &[1]));
            assert_eq!(outcome, if port == 9 { Outcome::Done } else { Outcome::dropped(UdpDrop::NoSocket) });
        }
        assert_eq!(world.received(&[bound, unbound]), [vec![vec![1]], vec![]]);
        assert_eq!(world.stack.udp_send(world.now, bound, None, b"back"), Ok(()));
        let from = if any == "::" { ROUTER6[0] } else { ROUTER[0] };
        assert_eq!(addresses(&world.datagrams(0)[0]), (from.into(), host.into()), "no packet comes from a group");
    }
}

#[test]
fn a_group_socket_with_a_full_queue_costs_other_members_nothing() {
    for [any, group, ..] in VERSIONS {
        let mut world = World::host();
        let sockets = [world.joined(any, 7, group, ON[0]), world.joined(any, 7, group, ON[0])];
        let room = u64::try_from(UDP_QUEUE_BYTES_MAX / (1000 + UDP_DATAGRAM_OVERHEAD_BYTES)).unwrap();
        for n in 0..room + 5 {
            assert_eq!(world.give_packet(0, &udp_to(group, (9, 7), &[7; 1000])), Outcome::Done);
            assert_eq!(world.received(&sockets[1..])[0].len(), 1);
            assert_eq!(world.dropped(UdpDrop::QueueFull), (n + 1).saturating_sub(room));
        }
        world.stack.udp_close(sockets[1]).unwrap();
        let full = Outcome::dropped(UdpDrop::QueueFull);
        assert_eq!(world.give_packet(0, &udp_to(group, (9, 7), &[7; 1000])), full);
        assert_eq!(world.dropped(UdpDrop::QueueFull), 6);
    }
}

#[test]
fn an_address_and_port_are_shared_by_sockets_that_all_ask_for_sharing() {
    for [any, _, _, own, _] in VERSIONS {
        let mut world = World::host();
        let first = world.shared(any, 7);
        assert_eq!(world.stack.udp_bind(at(any, 7)), Err(UdpError::InUse));
        let more: Vec<UdpId> = (1..UDP_SHARERS_MAX).map(|_| world.shared(any, 7)).collect();
        assert_eq!(world.stack.udp_bind_shared(at(any, 7)), Err(UdpError::Full));
        let alone = world.stack.udp_bind(at(any, 8)).unwrap();
        assert_eq!(world.stack.udp_bind_shared(at(any, 8)), Err(UdpError::InUse));
        // A unicast datagram goes to the socket that was bound first and is still open.
        for holder in [first, more[0], more[1]] {
            assert_eq!(world.give_packet(0, &udp_to(own, (9, 7), b"one")), Outcome::Done);
            assert_eq!(world.received(&[holder]), [[b"one"]]);
            world.stack.udp_close(holder).unwrap();
        }
        for socket in &more[2..] {
            world.stack.udp_close(*socket).unwrap();
        }
        assert_eq!(world.give_packet(0, &udp_to(own, (9, 7), b"one")), Outcome::dropped(UdpDrop::NoSocket));
        world.sent(0);
        let again = world.stack.udp_bind(at(any, 7)).unwrap();
        assert_eq!([again, alone].map(|socket| world.stack.udp_close(socket)), [Ok(()); 2]);
    }
}

#[test]
fn datagrams_to_groups_leave_by_the_chosen_device_with_the_chosen_hop_limit() {
    for [any, group, _, _, host] in VERSIONS {
        let mut world = World::host();
        let socket = world.stack.udp_bind(at(any, 7)).unwrap();
        let send = |world: &mut World, to: &str| world.stack.udp_send(world.now, socket, Some(at(to, 9)), b"x");
        let no_route = UdpError::Dropped(IpDrop::NoRoute.into());
        assert_eq!(send(&mut world, group), Err(no_route), "neither chosen nor bound nor routed");
        let route = prefix(if any == "::" { "ff00::" } else { "224.0.0.0" }, 4);
        let connected = world.stack.udp_bind(at(any, 8)).unwrap();
        assert_eq!(world.stack.udp_connect(connected, at(group, 9)), Err(no_route));
        assert_eq!(world.stack.udp_set_group_device(connected, Some(ON[1])), Ok(()));
        assert_eq!(world.stack.udp_connect(connected, at(group, 9)), Ok(()));
        let own1 = if any == "::" { ROUTER6[1] } else { ROUTER[1] };
        assert_eq!(world.stack.udp_local(connected), Ok(at(own1, 8)));
        world.stack.add_route(route, ON[0], None).unwrap();
        let member = world.joined(any, 9, group, ON[0]);
        assert_eq!(send(&mut world, group), Ok(()));
        assert_eq!(world.datagrams(0).len(), 1);
        assert_eq!(world.received(&[member]), [[b"x"]], "members on the route's device hear it too");
        assert_eq!(world.stack.udp_set_group_device(socket, Some(ON[1])), Ok(()));
        assert_eq!(send(&mut world, group), Ok(()));
        let [own0, _] = if any == "::" { ROUTER6 } else { ROUTER };
        let packet = world.datagrams(1).remove(0);
        assert_eq!((addresses(&packet), hop_limit(&packet)), ((own1.into(), group.into()), 1));
        assert_eq!(world.stack.udp_set_group_hop_limit(socket, 9), Ok(()));
        assert_eq!(send(&mut world, group), Ok(()));
        assert_eq!(hop_limit(&world.datagrams(1)[0]), 9);
        assert_eq!(send(&mut world, host), Ok(()));
        let packet = world.datagrams(0).remove(0);
        assert_eq!((addresses(&packet), hop_limit(&packet)), ((own0.into(), host.into()), 64));
        assert_eq!(world.stack.udp_set_hop_limit(socket, NonZeroU8::new(5).unwrap()), Ok(()));
        assert_eq!(send(&mut world, host), Ok(()));
        assert_eq!(hop_limit(&world.datagrams(0)[0]), 5);
        assert_eq!(world.stack.udp_set_group_device(socket, None), Ok(()));
        assert_eq!(send(&mut world, group), Ok(()));
        assert_eq!((world.datagrams(0).len(), world.datagrams(1).len()), (1, 0));
    }
}

#[test]
fn local_members_receive_what_the_stack_sends_to_their_group() {
    for [any, group, other, own, _] in VERSIONS {
        let mut world = World::host();
        let sender = world.stack.udp_bind(at(own, 1)).unwrap();
        let members = [
            world.joined(any, 7, group, ON[0]),
            world.joined(group, 7, group, ON[0]),
            world.joined(any, 7, group, ON[1]),
            world.joined(any, 7, other, ON[0]),
        ];
        let send = |world: &mut World| world.stack.udp_send(world.now, sender, Some(at(group, 7)), b"x");
        assert_eq!(send(&mut world), Ok(()));
        let (from, to, bytes) = (at(own, 1), ip(group), b"x".to_vec());
        let copy = Datagram { from, to, bytes, at: world.now, on: Some(ON[0]), hop_limit: 1, service: 0 };
        assert_eq!(world.stack.udp_receive(members[0]), Ok(Some(copy)));
        let heard = |world: &mut World| world.received(&members).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!((heard(&mut world), world.datagrams(0).len()), (vec![0, 1, 0, 0], 1));
        assert_eq!(world.stack.udp_set_group_hop_limit(sender, 0), Ok(()));
        assert_eq!(send(&mut world), Ok(()));
        assert_eq!((heard(&mut world), world.datagrams(0).len()), (vec![1, 1, 0, 0], 0), "hop limit 0: not beyond");
        assert_eq!(world.stack.udp_set_group_hop_limit(sender, 1), Ok(()));
        assert_eq!(world.stack.udp_set_group_loop(sender, false), Ok(()));
        assert_eq!(send(&mut world), Ok(()));
        assert_eq!((heard(&mut world), world.datagrams(0).len()), (vec![0; 4], 1));
    }
    let mut world = World::host();
    let sender = world.stack.udp_bind(at(ROUTER6[0], 1)).unwrap();
    let member = world.joined("::", 7, "ff01::5", ON[0]);
    assert_eq!(world.stack.udp_send(world.now, sender, Some(at("ff01::5", 7)), b"x"), Ok(()));
    assert_eq!((world.received(&[member]), world.datagrams(0).len()), (vec![vec![b"x".to_vec()]], 0));
    let reserved = world.stack.udp_send(world.now, sender, Some(at("ff00::5", 7)), b"x");
    assert_eq!(reserved, Err(UdpError::Address));
    assert_eq!((world.datagrams(0), world.datagrams(1)), (vec![], vec![]));
}

#[test]
fn wrong_use_of_groups_returns_typed_errors() {
    let mut world = World::host();
    let (four, six) = (world.shared("0.0.0.0", 7), world.shared("::", 7));
    let group = ip("239.1.2.3");
    let join =
        |world: &mut World, socket, group: &str, device| world.stack.udp_join(world.now, socket, ip(group), device);
    for (socket, not) in [(four, "10.1.0.9"), (four, "255.255.255.255"), (four, "ff05::1"), (six, "239.1.2.3")] {
        assert_eq!(join(&mut world, socket, not, ON[0]), Err(UdpError::NotGroup), "{not}");
    }
    for not in ["2001:db8::1", "ff00::1", "ff30::1"] {
        assert_eq!(join(&mut world, six, not, ON[0]), Err(UdpError::NotGroup), "{not}");
    }
    assert_eq!(join(&mut world, four, "239.1.2.3", DeviceId(2)), Err(UdpError::NoDevice));
    let six_only = DeviceConfig {
        medium: Medium::Ip,
        mtu: 1500,
        addresses: vec![prefix("2001:db8:3::1", 64)],
        agreed: Agreed::default(),
    };
    let six_only = world.stack.add_device(six_only).unwrap();
    assert_eq!(join(&mut world, four, "239.1.2.3", six_only), Err(UdpError::NoDevice));
    assert_eq!(join(&mut world, six, "ff05::1", six_only), Ok(()));
    assert_eq!(world.stack.udp_leave(world.now, four, group, ON[0]), Err(UdpError::NotJoined));
    assert_eq!(join(&mut world, four, "239.1.2.3", ON[0]), Ok(()));
    assert_eq!(join(&mut world, four, "239.1.2.3", ON[0]), Err(UdpError::Joined));
    assert_eq!(join(&mut world, four, "239.1.2.3", ON[1]), Ok(()), "another link, another membership");
    assert_eq!(world.stack.udp_leave(world.now, four, group, ON[0]), Ok(()));
    assert_eq!(world.stack.udp_leave(world.now, four, group, ON[0]), Err(UdpError::NotJoined));
    for n in 1..UDP_GROUPS_MAX {
        assert_eq!(join(&mut world, four, &format!("239.9.0.{n}"), ON[0]), Ok(()));
    }
    assert_eq!(join(&mut world, four, "239.9.1.1", ON[0]), Err(UdpError::TooManyGroups));
    assert!(!world.stack.is_joined(ON[0], ip("239.9.1.1")));
    assert_eq!(world.stack.udp_set_group_device(four, Some(DeviceId(3))), Err(UdpError::NoDevice));
    world.stack.udp_close(four).unwrap();
    assert_eq!(join(&mut world, four, "239.9.1.1", ON[0]), Err(UdpError::Closed));
    assert_eq!(world.stack.udp_leave(world.now, four, group, ON[1]), Err(UdpError::Closed));
    assert_eq!(world.stack.udp_set_group_device(four, None), Err(UdpError::Closed));
    assert_eq!(world.stack.udp_set_group_hop_limit(four, 1), Err(UdpError::Closed));
    assert_eq!(world.stack.udp_set_group_loop(four, true), Err(UdpError::Closed));
    assert_eq!(world.stack.udp_set_hop_limit(four, NonZeroU8::MIN), Err(UdpError::Closed));
}

#[test]
fn a_membership_ends_with_its_socket_and_a_group_with_its_last_member() {
    for [any, group, other, ..] in VERSIONS {
        let mut world = World::host();
        let sockets = [world.joined(any, 7, group, ON[0]), world.joined(any, 7, group, ON[0])];
        assert_eq!(world.stack.udp_join(world.now, sockets[1], ip(other), ON[1]), Ok(()));
        let joined = |world: &World| [(ON[0], group), (ON[1], other)].map(|(on, to)| world.stack.is_joined(on, ip(to)));
        world.stack.udp_close(sockets[0]).unwrap();
        assert_eq!(joined(&world), [true, true]);
        world.stack.udp_close(sockets[1]).unwrap();
        assert_eq!(joined(&world), [false, false]);
        assert_eq!(world.give_packet(0, &udp_to(group, (9, 7), b"x")), Outcome::dropped(IpDrop::NotJoined));
        // A socket in the same place has nothing of the old one.
        let after = world.shared(any, 7);
        let member = world.joined(any, 7, group, ON[0]);
        assert_eq!(world.give_packet(0, &udp_to(group, (9, 7), b"x")), Outcome::Done);
        assert_eq!(world.received(&[after, member]), [vec![], vec![b"x".to_vec()]]);
    }
}

#[test]
fn a_port_of_a_group_has_a_bounded_number_of_sockets() {
    let [any, group, ..] = VERSIONS[0];
    let mut world = World::host();
    let members: Vec<UdpId> = (0..UDP_SHARERS_MAX).map(|_| world.joined(any, 7, group, ON[0])).collect();
    let one_more = world.shared(group, 7);
    let refused = world.stack.udp_join(world.now, one_more, ip(group), ON[0]);
    assert_eq!(refused, Err(UdpError::TooManyGroups));
    assert_eq!(world.give_packet(0, &udp_to(group, (9, 7), b"x")), Outcome::Done);
    assert!(world.received(&members).iter().all(|datagrams| datagrams.len() == 1));
}
