//! ARP and neighbour discovery (RFC 826, RFC 4861 7, RFC 5227).

use crate::world::*;
use siga_stack::drops::NeighbourDrop;
use siga_stack::limits::NEIGHBOUR_QUEUE_FRAMES_MAX;
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::time::Duration;
use siga_stack::wire::ethernet::MacAddress;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetProtocol};

fn strange() -> World {
    World::strange([1500, 1500], [Agreed::default(); 2], true)
}

fn arp_frame(operation: ArpOperation, from: &str, to: &str) -> Vec<u8> {
    let message = arp(operation, HOST_MAC[1], from, ROUTER_MAC[1], to);
    ethernet(HOST_MAC[1], ROUTER_MAC[1], EthernetProtocol::Arp, &message)
}

fn advertisement(flags: u8, to: &str) -> Vec<u8> {
    let options = [&[2, 1], &HOST_MAC[1].0[..]].concat();
    let packet = neighbour_message(136, flags, HOST6[1], to, HOST6[1], &options);
    ethernet(HOST_MAC[1], ROUTER_MAC[1], EthernetProtocol::Ipv6, &packet)
}

#[test]
fn packets_wait_for_an_arp_reply_and_leave_in_order() {
    let mut world = strange();
    for n in 0..3 {
        assert_eq!(world.give_packet(0, &udp_to(HOST[1], (5, 6), &[n])), Outcome::Done);
    }
    let asked = world.sent(1);
    assert_eq!(asked.len(), 1);
    assert_eq!(macs(&asked[0]), (ROUTER_MAC[1], MacAddress::BROADCAST));
    let request = ArpRepr::parse(&ArpPacket::new_checked(&asked[0][14..]).unwrap()).unwrap();
    let expected = ArpRepr::EthernetIpv4 {
        operation: ArpOperation::Request,
        source_hardware_addr: EthernetAddress(ROUTER_MAC[1].0),
        source_protocol_addr: ROUTER[1].parse().unwrap(),
        target_hardware_addr: EthernetAddress([0; 6]),
        target_protocol_addr: HOST[1].parse().unwrap(),
    };
    assert_eq!(request, expected);
    assert_eq!(world.give(1, &arp_frame(ArpOperation::Reply, HOST[1], ROUTER[1])), Outcome::Done);
    let frames = world.sent(1);
    assert_eq!(frames.iter().map(|frame| frame[42]).collect::<Vec<_>>(), [0, 1, 2]);
    for frame in &frames {
        assert_eq!(macs(frame), (ROUTER_MAC[1], HOST_MAC[1]));
        assert_eq!((addresses(&frame[14..]).1.as_str(), frame[22]), (HOST[1], 63));
    }
    assert_eq!(macs(&world.give_packet(0, &udp_to(HOST[1], (5, 6), &[3])).one()).1, HOST_MAC[1]);
}

#[test]
fn packets_wait_for_a_neighbour_advertisement() {
    let mut world = strange();
    assert_eq!(world.give_packet(0, &udp_to(HOST6[1], (5, 6), b"first")), Outcome::Done);
    let asked = world.sent(1).remove(0);
    assert_eq!(macs(&asked), (ROUTER_MAC[1], MacAddress([0x33, 0x33, 0xff, 0, 0, 9])));
    assert_eq!(addresses(&asked[14..]), (ROUTER6[1].into(), "ff02::1:ff00:9".into()));
    assert_eq!(asked[14 + 7], 255, "hop limit");
    let (kind, code, rest) = icmp_of(&asked[14..]);
    let target: std::net::Ipv6Addr = HOST6[1].parse().unwrap();
    assert_eq!((kind, code), (135, 0));
    assert_eq!(rest[4..], [&target.octets()[..], &[1, 1], &ROUTER_MAC[1].0].concat());
    assert_eq!(world.give(1, &advertisement(0x60, ROUTER6[1])), Outcome::Done);
    assert_eq!(macs(&world.sent(1)[0]), (ROUTER_MAC[1], HOST_MAC[1]));
}

#[test]
fn a_silent_neighbour_is_reported_to_the_sender() {
    for (to, error) in [(HOST[1], (3, 1)), (HOST6[1], (1, 3))] {
        let mut world = World::router();
        let (strange, packet) = match to.contains(':') {
            true => ("2001:db8:2::77", udp_to("2001:db8:2::77", (5, 6), b"hello?")),
            false => ("10.2.0.77", udp_to("10.2.0.77", (5, 6), b"hello?")),
        };
        assert_eq!(world.give_packet(0, &packet), Outcome::Done, "{strange}");
        for _ in 0..3 {
            assert_eq!(world.sent(1).len(), 1, "asked");
            world.assert_silent();
            assert_eq!(world.stack.poll_timeout(), Some(world.now + Duration::from_secs(1)));
            world.pass(Duration::from_secs(1));
        }
        let (kind, code, rest) = icmp_of(&world.sent_packet(0));
        assert_eq!((kind, code), error);
        assert_eq!(addresses(&rest[4..]).1, strange);
        assert_eq!(world.dropped(NeighbourDrop::Silent), 1);
        world.assert_silent();
    }
}

#[test]
fn the_queue_of_packets_for_an_unresolved_neighbour_is_bounded() {
    let mut world = strange();
    for n in 0..100 {
        let outcome = world.give_packet(0, &udp_to(HOST[1], (5, 6), &[n]));
        let full = usize::from(n) >= NEIGHBOUR_QUEUE_FRAMES_MAX;
        assert_eq!(outcome, if full { Outcome::dropped(NeighbourDrop::QueueFull) } else { Outcome::Done });
    }
    world.give(1, &arp_frame(ArpOperation::Reply, HOST[1], ROUTER[1]));
    assert_eq!(world.sent(1).len(), 1 + NEIGHBOUR_QUEUE_FRAMES_MAX);
}

#[test]
fn arp_requests_for_own_addresses_are_answered_and_others_are_not() {
    let mut world = strange();
    assert_eq!(world.give(1, &arp_frame(ArpOperation::Request, HOST[1], ROUTER[1])), Outcome::Done);
    let reply = world.sent(1).remove(0);
    assert_eq!(macs(&reply), (ROUTER_MAC[1], HOST_MAC[1]));
    assert_eq!(reply[14..], arp(ArpOperation::Reply, ROUTER_MAC[1], ROUTER[1], HOST_MAC[1], HOST[1]));
    let probe = arp_frame(ArpOperation::Request, "0.0.0.0", ROUTER[1]);
    assert_eq!(world.give(1, &probe), Outcome::Done, "a probe is answered and teaches nothing");
    assert_eq!(world.sent(1).len(), 1);
    for (from, to, reason) in [
        (HOST[1], "10.2.0.66", NeighbourDrop::NotOurs),
        (HOST[1], ROUTER[0], NeighbourDrop::NotOurs),
        (ROUTER[1], HOST[1], NeighbourDrop::OurAddress),
        ("255.255.255.255", ROUTER[1], NeighbourDrop::Malformed),
    ] {
        assert_eq!(world.give(1, &arp_frame(ArpOperation::Request, from, to)), Outcome::dropped(reason), "{from} {to}");
    }
    world.assert_silent();
}

/// RFC 1812 5.3.7 is about packets; who asks and answers under such an address is no neighbour either.
#[test]
fn arp_with_an_address_that_no_station_may_have_is_ignored() {
    let thief = MacAddress([2, 9, 9, 9, 9, 9]);
    let mut world = strange();
    // All addresses are on this link.
    let config = DeviceConfig {
        medium: Medium::Ethernet(ROUTER_MAC[1]),
        mtu: 1500,
        addresses: vec![prefix("9.9.9.9", 0)],
        agreed: Agreed::default(),
    };
    world.stack.add_device(config).unwrap();
    let known = |world: &World| world.stack.memory().held("neighbours");
    let tell = |operation, from: &str, to: &str| {
        let message = arp(operation, thief, from, ROUTER_MAC[1], to);
        ethernet(thief, ROUTER_MAC[1], EthernetProtocol::Arp, &message)
    };
    for (device, to, from, reason) in [
        (1, ROUTER[1], "10.2.0.255", NeighbourDrop::Malformed),
        (1, ROUTER[1], "10.2.0.0", NeighbourDrop::Malformed),
        (1, ROUTER[1], ROUTER[1], NeighbourDrop::OurAddress),
        (2, "9.9.9.9", "10.2.0.255", NeighbourDrop::Malformed),
        (2, "9.9.9.9", "10.2.0.0", NeighbourDrop::Malformed),
        (2, "9.9.9.9", ROUTER[1], NeighbourDrop::OurAddress),
        (2, "9.9.9.9", "255.255.255.255", NeighbourDrop::Malformed),
        (2, "9.9.9.9", "240.0.0.1", NeighbourDrop::Malformed),
        (2, "9.9.9.9", "224.0.0.1", NeighbourDrop::Malformed),
        (2, "9.9.9.9", "127.0.0.1", NeighbourDrop::Malformed),
        (2, "9.9.9.9", "0.0.0.1", NeighbourDrop::Malformed),
    ] {
        let before = world.dropped(reason);
        for operation in [ArpOperation::Request, ArpOperation::Reply] {
            assert_eq!(
                world.give(device, &tell(operation, from, to)),
                Outcome::dropped(reason),
                "{from} {operation:?}"
            );
        }
        assert_eq!((world.dropped(reason) - before, known(&world)), (2, 0), "{from}");
        assert_eq!(world.sent(device).len(), 0, "{from} has no answer");
    }
    assert_eq!(world.give(2, &tell(ArpOperation::Request, "0.0.0.0", "9.9.9.9")), Outcome::Done);
    assert_eq!((world.sent(2).len(), known(&world)), (1, 0), "a probe is answered and teaches nothing");
    assert_eq!(world.give(2, &tell(ArpOperation::Request, "10.3.0.255", "9.9.9.9")), Outcome::Done);
    assert_eq!((world.sent(2).len(), known(&world)), (1, 1), "a station like others");
}

#[test]
fn neighbour_solicitations_are_answered_and_probes_are_answered_to_all_nodes() {
    let mut world = strange();
    let solicit = |from: &str, to: &str, target: &str, options: &[u8]| {
        let packet = neighbour_message(135, 0, from, to, target, options);
        ethernet(HOST_MAC[1], ROUTER_MAC[1], EthernetProtocol::Ipv6, &packet)
    };
    let source = [&[1, 1], &HOST_MAC[1].0[..]].concat();
    assert_eq!(world.give(1, &solicit(HOST6[1], "ff02::1:ff00:1", ROUTER6[1], &source)), Outcome::Done);
    let reply = world.sent_packet(1);
    assert_eq!(addresses(&reply), (ROUTER6[1].into(), HOST6[1].into()));
    let (kind, _, rest) = icmp_of(&reply);
    assert_eq!((kind, rest[0]), (136, 0xe0), "a router, solicited, overriding");
    assert_eq!(world.give(1, &solicit("::", "ff02::1:ff00:1", ROUTER6[1], &[])), Outcome::Done);
    let reply = world.sent(1).remove(0);
    assert_eq!(macs(&reply).1, MacAddress([0x33, 0x33, 0, 0, 0, 1]));
    assert_eq!(addresses(&reply[14..]).1, "ff02::1");
    assert_eq!(icmp_of(&reply[14..]).2[0], 0xa0);
    for (from, to, target, options, reason) in [
        (HOST6[1], ROUTER6[1], "2001:db8:2::66", &source[..], NeighbourDrop::NotOurs),
        (HOST6[1], ROUTER6[1], "ff02::1", &source[..], NeighbourDrop::Malformed),
        (HOST6[1], ROUTER6[1], ROUTER6[1], &[1, 0, 0, 0, 0, 0, 0, 0][..], NeighbourDrop::Malformed),
        (HOST6[1], ROUTER6[1], ROUTER6[1], &[1, 2, 0, 0, 0, 0, 0, 0][..], NeighbourDrop::Malformed),
        (HOST6[1], ROUTER6[1], ROUTER6[1], &[1, 1, 3, 0, 0, 0, 0, 0][..], NeighbourDrop::Malformed),
        (HOST6[1], ROUTER6[1], ROUTER6[1], &[5, 0, 0, 0, 0, 0, 0, 0][..], NeighbourDrop::Malformed),
        (HOST6[1], ROUTER6[1], ROUTER6[1], &[5, 2, 0, 0, 0, 0, 0, 0][..], NeighbourDrop::Malformed),
        ("::", "ff02::1:ff00:1", ROUTER6[1], &source[..], NeighbourDrop::Malformed),
        ("::", ROUTER6[1], ROUTER6[1], &[][..], NeighbourDrop::Malformed),
    ] {
        assert_eq!(
            world.give(1, &solicit(from, to, target, options)),
            Outcome::dropped(reason),
            "{target} {options:?}"
        );
    }
    let mut far = solicit(HOST6[1], ROUTER6[1], ROUTER6[1], &source);
    far[14 + 7] = 254;
    assert_eq!(world.give(1, &far), Outcome::dropped(NeighbourDrop::Malformed), "from beyond the link");
    world.assert_silent();
}

#[test]
fn unsolicited_neighbour_answers_create_no_entry() {
    let mut world = strange();
    let unasked = Outcome::dropped(NeighbourDrop::Unasked);
    assert_eq!(world.give(1, &arp_frame(ArpOperation::Reply, HOST[1], ROUTER[1])), unasked);
    assert_eq!(world.give(1, &advertisement(0x60, ROUTER6[1])), unasked);
    assert_eq!(world.give_packet(0, &udp_to(HOST[1], (5, 6), b"x")), Outcome::Done, "not known yet");
    let malformed = Outcome::dropped(NeighbourDrop::Malformed);
    assert_eq!(world.give(1, &advertisement(0x60, "ff02::1")), malformed, "solicited, yet to all");
}

#[test]
fn a_neighbour_in_use_is_confirmed_by_a_unicast_request() {
    let mut world = strange();
    world.give_packet(0, &udp_to(HOST[1], (5, 6), b"x"));
    world.give(1, &arp_frame(ArpOperation::Reply, HOST[1], ROUTER[1]));
    world.sent(1);
    world.pass(Duration::from_secs(31));
    assert_eq!(macs(&world.give_packet(0, &udp_to(HOST[1], (5, 6), b"x")).one()).1, HOST_MAC[1]);
    world.assert_silent();
    world.pass(Duration::from_secs(5));
    let asked = world.sent(1);
    assert_eq!(macs(&asked[0]), (ROUTER_MAC[1], HOST_MAC[1]));
    assert_eq!(world.give(1, &arp_frame(ArpOperation::Reply, HOST[1], ROUTER[1])), Outcome::Done);
    world.pass(Duration::from_secs(3));
    world.assert_silent();
    assert_eq!(world.give_packet(0, &udp_to(HOST[1], (5, 6), b"x")).one().len(), 14 + 29);
}
