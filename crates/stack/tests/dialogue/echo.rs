//! Echo (RFC 792, RFC 1122 3.2.2.6, RFC 4443 4).

use crate::world::*;
use siga_stack::drops::{IcmpDrop, IpDrop};
use smoltcp::wire::EthernetProtocol;

#[test]
fn an_echo_request_is_answered_with_its_data() {
    let mut world = World::host();
    let data = b"\x12\x34\x00\x01 how far is it?";
    for to in [ROUTER[0], ROUTER[1]] {
        assert_eq!(world.give_packet(0, &V4::new(HOST[0], to, 1).packet(&icmp(8, 0, data))), Outcome::Done);
        let reply = world.sent_packet(0);
        assert_eq!(addresses(&reply), (to.into(), HOST[0].into()));
        assert_eq!(icmp_of(&reply), (0, 0, data.to_vec()));
    }
    for to in [ROUTER6[0], ROUTER6[1]] {
        let request = v6(HOST6[0], to, 58, 64, &icmp6(HOST6[0], to, 128, 0, data));
        assert_eq!(world.give_packet(0, &request), Outcome::Done);
        let reply = world.sent_packet(0);
        assert_eq!(addresses(&reply), (to.into(), HOST6[0].into()));
        assert_eq!(icmp_of(&reply), (129, 0, data.to_vec()));
    }
    world.assert_silent();
}

#[test]
fn an_echo_reply_is_routed_to_the_sender_of_the_request() {
    let mut world = World::router();
    world.give_packet(0, &V4::new(HOST[1], ROUTER[0], 1).packet(&icmp(8, 0, &[0; 4])));
    let frames = world.sent(1);
    assert_eq!(macs(&frames[0]), (ROUTER_MAC[1], HOST_MAC[1]));
}

#[test]
fn ipv4_echo_requests_to_broadcast_and_groups_get_no_answer() {
    let mut world = World::router();
    for to in ["10.1.0.255", "255.255.255.255", "224.0.0.1"] {
        let packet = V4::new(HOST[0], to, 1).packet(&icmp(8, 0, &[0; 4]));
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IcmpDrop::EchoToMany), "{to}");
    }
    let unicast = V4::new(HOST[0], ROUTER[0], 1).packet(&icmp(8, 0, &[0; 4]));
    let frame =
        ethernet(HOST_MAC[0], siga_stack::wire::ethernet::MacAddress::BROADCAST, EthernetProtocol::Ipv4, &unicast);
    assert_eq!(world.give(0, &frame), Outcome::dropped(IcmpDrop::EchoToMany));
    world.assert_silent();
}

#[test]
fn ipv6_echo_requests_to_all_nodes_are_answered_and_to_other_groups_not() {
    let mut world = World::host();
    let request = |to| v6(HOST6[0], to, 58, 64, &icmp6(HOST6[0], to, 128, 0, &[7; 4]));
    assert_eq!(world.give_packet(0, &request("ff02::1")), Outcome::Done);
    let reply = world.sent_packet(0);
    assert_eq!(addresses(&reply), (ROUTER6[0].into(), HOST6[0].into()));
    for to in ["ff02::2", "ff02::fb", "ff05::1"] {
        assert_eq!(world.give_packet(0, &request(to)), Outcome::dropped(IpDrop::NotJoined), "{to}");
    }
    world.assert_silent();
}

#[test]
fn a_large_echo_reply_is_sent_in_fragments() {
    let mut world = World::host();
    let data: Vec<u8> = (0..4000_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let message = icmp(8, 0, &data);
    for (n, part) in message.chunks(1480).enumerate() {
        let offset = u16::try_from(n * 1480).unwrap();
        let fragment = V4 { offset, more: n < 2, ..V4::new(HOST[0], ROUTER[0], 1) };
        assert_eq!(world.give_packet(0, &fragment.packet(part)), Outcome::Done);
    }
    let frames = world.sent(0);
    assert_eq!(frames.iter().map(Vec::len).collect::<Vec<_>>(), [1514, 1514, 14 + 20 + 4004 - 2960]);
    let payload: Vec<u8> = frames.iter().flat_map(|frame| frame[34..].to_vec()).collect();
    assert_eq!(payload[4..], data);
    assert_eq!(plain_checksum(&payload), 0);
}

#[test]
fn malformed_echo_requests_are_counted() {
    let mut world = World::host();
    let mut wrong = icmp(8, 0, &[1, 2, 3, 4]);
    wrong[5] ^= 1;
    let packet = V4::new(HOST[0], ROUTER[0], 1).packet(&wrong);
    assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IcmpDrop::Checksum));
    let short = V4::new(HOST[0], ROUTER[0], 1).packet(&icmp(8, 0, &[1, 2, 3]));
    assert_eq!(world.give_packet(0, &short), Outcome::dropped(IcmpDrop::Length));
    let reply = V4::new(HOST[0], ROUTER[0], 1).packet(&icmp(0, 0, &[1, 2, 3, 4]));
    assert_eq!(world.give_packet(0, &reply), Outcome::dropped(IcmpDrop::Ignored));
    let redirect = V4::new(HOST[0], ROUTER[0], 1).packet(&icmp(5, 1, &[10, 1, 0, 66]));
    assert_eq!(world.give_packet(0, &redirect), Outcome::dropped(IcmpDrop::Ignored));
    assert_eq!(world.dropped(IcmpDrop::Ignored), 2);
    world.assert_silent();
}
