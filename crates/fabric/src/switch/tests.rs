//! The decisions of a switch, frame by frame.

use super::frame::HEAD_BYTES_MAX;
use super::guard::Guard;
use super::port::PortCounters;
use super::*;
use crate::switch::flood::Flood;
use proptest::prelude::*;
use siga_model::mac::Mac;
use siga_model::topology::{PortLink, PortSettings};
use siga_stack::link::device::Agreed;
use siga_stack::link::source::Sources;
use siga_stack::wire::address::Prefix;

const BROADCAST: [u8; 6] = [0xff; 6];
const AT: Instant = Instant::from_ns(1_000_000_000);
pub(super) const CONFIG: SwitchConfig =
    SwitchConfig { any_protocol: true, only_v4: false, flood_per_second: 1_000_000, accounting: false };

fn mac(station: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, station]
}

fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
}

/// The port of station `station`, whose addresses end with its number.
pub(super) fn port(station: u8, protection: Protection, vlan: PortVlan) -> Port {
    let own = [prefix(&format!("10.0.0.{station}/32")), prefix(&format!("fd00::{station}/128"))];
    let mac = Mac(mac(station));
    Port {
        label: String::new(),
        kernel_port: None,
        uplink: None,
        has_carrier: false,
        settings: PortSettings {
            mac,
            vlan,
            protection,
            isolated: false,
            promiscuous: false,
            link: PortLink::default(),
            card: None,
        },
        guard: Guard {
            mac,
            sources: Sources::new(&own, &[]).unwrap(),
            own: Sources::new(&own, &[]).unwrap(),
            is_router: false,
        },
        mtu: 1_500,
        agreed: Agreed { checksum_unfilled: true, large_segments: true },
        attachment: Attachment::Ring(station.into()),
        flood: Flood::new(CONFIG.flood_per_second),
        assigning: None,
        link: None,
        card: None,
        output: None,
        counters: PortCounters::default(),
    }
}

fn switch(protection: Protection) -> Switch {
    let mut switch = Switch::new(CONFIG);
    for station in 0..3 {
        switch.add_port(port(station, protection, PortVlan::Access(1)));
    }
    switch
}

fn frame(to: [u8; 6], from: [u8; 6], behind: &[u8]) -> Vec<u8> {
    let mut bytes = [to, from].concat();
    bytes.extend(behind);
    bytes.resize(bytes.len().max(60), 0);
    bytes
}

/// An IPv4 packet with its type field.
fn v4(from: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![8, 0, 0x45, 0, 0, 20, 0, 0, 0, 0, 64, 17, 0, 0];
    bytes.extend(from);
    bytes.extend([10, 0, 0, 99]);
    bytes
}

/// An ICMPv6 message with its type field. `extensions` are headers before the message, and `next` is the first header's number.
fn v6(from: &str, next: u8, extensions: &[u8], message: &[u8]) -> Vec<u8> {
    let from: std::net::Ipv6Addr = from.parse().unwrap();
    let length = u16::try_from(extensions.len() + message.len()).unwrap();
    let mut bytes = vec![0x86, 0xdd, 0x60, 0, 0, 0];
    bytes.extend(length.to_be_bytes());
    bytes.extend([next, 255]);
    bytes.extend(from.octets());
    bytes.extend([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    bytes.extend(extensions);
    bytes.extend(message);
    bytes
}

fn advertisement(target: &str, mac: [u8; 6]) -> Vec<u8> {
    let target: std::net::Ipv6Addr = target.parse().unwrap();
    let mut bytes = vec![136, 0, 0, 0, 0x60, 0, 0, 0];
    bytes.extend(target.octets());
    bytes.extend([2, 1]);
    bytes.extend(mac);
    bytes
}

fn arp(mac: [u8; 6], from: [u8; 4]) -> Vec<u8> {
    arp_for(mac, from, [10, 0, 0, 1])
}

/// A neighbour solicitation without options.
fn solicitation(target: &str) -> Vec<u8> {
    let target: std::net::Ipv6Addr = target.parse().unwrap();
    [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat()
}

fn arp_for(mac: [u8; 6], from: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let mut bytes = vec![8, 6, 0, 1, 8, 0, 6, 4, 0, 1];
    bytes.extend(mac);
    bytes.extend(from);
    bytes.extend([0; 6]);
    bytes.extend(target);
    bytes
}

/// A large TCP segment with its type field, and an IPv6 or IPv4 header. `protocol` and `offset` are normally 6 and 5.
fn segment(is_v4: bool, protocol: u8, offset: u8, payload_bytes: usize) -> Vec<u8> {
    let length = u16::try_from(20 + payload_bytes).unwrap();
    let mut bytes = if is_v4 {
        let mut bytes = v4([10, 0, 0, 0]);
        bytes[4..6].copy_from_slice(&(20 + length).to_be_bytes());
        bytes[11] = protocol;
        bytes
    } else {
        let mut bytes = v6("fd00::0", protocol, &[], &[]);
        bytes[6..8].copy_from_slice(&length.to_be_bytes());
        bytes
    };
    let header = bytes.len();
    bytes.resize(header + usize::from(length), 0);
    bytes[header + 12] = offset << 4;
    bytes
}

fn decide_marked(switch: &mut Switch, from: usize, bytes: &[u8], marks: Marks) -> Result<Target, DropReason> {
    let mut header = Header::new(bytes.len(), |into| into.copy_from_slice(&bytes[..into.len()]));
    switch.decide(AT, from, &mut header, marks).map(|decision| decision.target)
}

fn decide(switch: &mut Switch, from: usize, bytes: &[u8]) -> Result<Target, DropReason> {
    decide_at(switch, AT, from, bytes)
}

fn decide_at(switch: &mut Switch, at: Instant, from: usize, bytes: &[u8]) -> Result<Target, DropReason> {
    let mut header = Header::new(bytes.len(), |into| into.copy_from_slice(&bytes[..into.len()]));
    switch.decide(at, from, &mut header, Marks::default()).map(|decision| decision.target)
}

#[test]
fn a_protected_station_can_probe_only_its_own_addresses() {
    let mut switch = switch(Protection::All);
    let mut from_0 = |behind: &[u8]| decide(&mut switch, 0, &frame(mac(1), mac(0), behind));
    let to_1 = Ok(Target::One(1));
    for (target, expected) in [("fd00::0", to_1), ("fe80::ff:fe00:0", to_1), ("fd00::1", Err(DropReason::SpoofedIp))] {
        assert_eq!(from_0(&v6("::", 58, &[], &solicitation(target))), expected, "{target}");
    }
    assert_eq!(from_0(&v6("fd00::0", 58, &[], &solicitation("fd00::1"))), to_1, "it asks for the other's link address");
    assert_eq!(from_0(&arp_for(mac(0), [0; 4], [10, 0, 0, 0])), to_1);
    assert_eq!(from_0(&arp_for(mac(0), [0; 4], [10, 0, 0, 1])), Err(DropReason::SpoofedIp));
}

#[test]
fn a_router_forwards_any_source_but_claims_only_its_own_addresses() {
    let mut switch = switch(Protection::All);
    let guard = &mut switch.ports[0].as_mut().unwrap().guard;
    guard.sources = Sources::new(&[prefix("0.0.0.0/0"), prefix("::/0")], &[]).unwrap();
    guard.is_router = true;
    let mut from_0 = |behind: &[u8]| decide(&mut switch, 0, &frame(mac(1), mac(0), behind));
    let to_1 = Ok(Target::One(1));
    assert_eq!(from_0(&v4([192, 0, 2, 1])), to_1);
    assert_eq!(from_0(&arp(mac(0), [10, 0, 0, 0])), to_1);
    assert_eq!(from_0(&arp(mac(0), [10, 0, 0, 2])), Err(DropReason::SpoofedIp));
    let own = "fe80::ff:fe00:0";
    assert_eq!(from_0(&v6(own, 58, &[], &advertisement("fd00::2", mac(0)))), Err(DropReason::SpoofedIp));
    // A router advertisement with more prefixes than the switch reads.
    let prefixes = [[3, 4].as_slice(), &[0; 30]].concat().repeat(5);
    let source = |mac: [u8; 6]| [&[134][..], &[0; 15], &[1, 1], &mac, &prefixes].concat();
    assert_eq!(from_0(&v6(own, 58, &[], &source(mac(0)))), to_1);
    assert_eq!(from_0(&v6(own, 58, &[], &source(mac(1)))), Err(DropReason::SpoofedMac));
}

#[test]
fn a_protected_station_cannot_hide_packets_in_frames_with_a_length() {
    let mut switch = switch(Protection::All);
    let snap = [&[0, 46, 0xaa, 0xaa, 3, 0, 0, 0][..], &v4([10, 0, 0, 1])].concat();
    assert_eq!(decide(&mut switch, 0, &frame(mac(1), mac(0), &snap)), Err(DropReason::Protocol));
}

#[test]
fn marks_that_contradict_the_headers_are_refused() {
    let mut switch = switch(Protection::All);
    let mut with = |packet: &[u8], segment_bytes: u16| {
        let marks = Marks { checksum_unfilled: true, segment_bytes };
        decide_marked(&mut switch, 0, &frame(mac(1), mac(0), packet), marks)
    };
    let to_1 = Ok(Target::One(1));
    for is_v4 in [true, false] {
        assert_eq!(with(&segment(is_v4, 6, 5, 3_000), 1_448), to_1);
        assert_eq!(with(&segment(is_v4, 17, 5, 3_000), 0), to_1, "an unfilled UDP checksum");
        assert_eq!(with(&segment(is_v4, 17, 5, 3_000), 1_448), Err(DropReason::Marks), "UDP");
        assert_eq!(with(&segment(is_v4, 50, 5, 3_000), 0), Err(DropReason::Marks), "no checksum");
        assert_eq!(with(&segment(is_v4, 6, 4, 3_000), 1_448), Err(DropReason::Marks), "a short TCP header");
        assert_eq!(with(&segment(is_v4, 6, 15, 10), 1_448), Err(DropReason::Marks), "an incomplete TCP header");
        assert_eq!(with(&segment(is_v4, 0, 5, 3_000), 1_448), Err(DropReason::Marks), "another header before TCP");
    }
    let mut fragment = segment(true, 6, 5, 3_000);
    fragment[8] = 0x20;
    assert_eq!(with(&fragment, 1_448), Err(DropReason::Marks));
    assert_eq!(with(&arp(mac(0), [10, 0, 0, 0]), 0), Err(DropReason::Marks));
}

#[test]
fn a_large_segment_floods_as_the_frames_into_which_it_is_cut() {
    let mut switch = Switch::new(SwitchConfig { flood_per_second: 1_000, ..CONFIG });
    for station in 0..2 {
        let mut port = port(station, Protection::All, PortVlan::Access(1));
        port.flood = Flood::new(switch.flood_per_second());
        switch.add_port(port);
    }
    let marks = Marks { checksum_unfilled: true, segment_bytes: 100 };
    let packet = segment(true, 6, 5, 4_000);
    assert_eq!(decide_marked(&mut switch, 0, &frame(BROADCAST, mac(0), &packet), marks), Err(DropReason::Marks));
    let unknown = frame(mac(9), mac(0), &packet);
    assert_eq!(decide_marked(&mut switch, 0, &unknown, marks), Ok(Target::All));
    assert_eq!(decide_marked(&mut switch, 0, &unknown, marks), Err(DropReason::FloodLimit), "40 of 64 are used");
    assert_eq!(decide(&mut switch, 0, &frame(mac(9), mac(0), &v4([10, 0, 0, 0]))), Ok(Target::All));
}

#[test]
fn a_port_gets_addresses_of_others_only_up_to_its_share() {
    let mut switch = switch(Protection::Off);
    let most = crate::limits::SWITCH_MACS_OF_PORT_MAX;
    let mut learn = |port: usize, group: u8, count: usize| {
        for number in 0..count {
            let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
            let from = [2, 1, 1, group, high, low];
            assert!(decide(&mut switch, port, &frame(BROADCAST, from, &v4([10, 0, 0, 0]))).is_ok());
        }
    };
    learn(0, 1, most);
    learn(1, 2, 10);
    // Port 0 sends from the addresses at port 1.
    learn(0, 2, 10);
    assert_eq!(decide(&mut switch, 2, &frame([2, 1, 1, 2, 0, 5], mac(2), &v4([10, 0, 0, 2]))), Ok(Target::One(1)));
    assert_eq!(switch.counters()["mac_moves"], 0);
}

#[test]
fn the_address_of_an_absent_protected_station_stays_reserved() {
    let mut switch = switch(Protection::Off);
    let protected = switch.add_port(port(9, Protection::All, PortVlan::Access(1)));
    assert!(switch.remove_port(protected).is_some());
    assert_eq!(decide(&mut switch, 0, &frame(mac(1), mac(9), &v4([10, 0, 0, 9]))), Err(DropReason::SpoofedMac));
    assert_eq!(decide(&mut switch, 0, &frame(mac(9), mac(0), &v4([10, 0, 0, 0]))), Ok(Target::All), "it is nowhere");
    let protected = switch.add_port(port(9, Protection::All, PortVlan::Access(1)));
    assert_eq!(decide(&mut switch, 0, &frame(mac(9), mac(0), &v4([10, 0, 0, 0]))), Ok(Target::One(protected)));
}

#[test]
fn the_next_uplink_is_announced_when_the_first_one_goes() {
    let mut switch = switch(Protection::All);
    for rank in 0..2 {
        let mut uplink = port(20 + rank, Protection::Off, PortVlan::Access(1));
        (uplink.uplink, uplink.has_carrier) = (Some(rank.into()), false);
        let at = switch.add_port(uplink);
        assert_eq!(switch.set_carrier(at, true), (rank == 0).then_some(3));
    }
    let frames = switch.announcements(4);
    assert!(frames.is_empty(), "the second uplink is not used");
    let (_, next) = switch.remove_port(3).unwrap();
    assert_eq!(next, Some(4), "the uplink is announced");
    let stations: Vec<[u8; 6]> = switch.announcements(4).iter().map(|(header, _)| header.link().unwrap().1).collect();
    assert_eq!(stations, [mac(0), mac(1), mac(2)]);
    assert_eq!(switch.set_carrier(4, false), None);
}

#[test]
fn a_capture_does_not_show_a_port_under_the_name_of_an_earlier_one() {
    let mut switch = switch(Protection::All);
    let mut capture = capture::Capture::new(siga_stack::pcapng::LinkType::Ethernet, (100, 10_000), 0);
    let show = |capture: &mut capture::Capture, label: &str| {
        let frame = (&[0_u8; 60][..], 60);
        capture.add(AT, (2, label), siga_stack::pcapng::Direction::In, frame, |_| (), "");
    };
    show(&mut capture, "former");
    switch.capture = Some(capture);
    switch.remove_port(2);
    assert_eq!(switch.add_port(port(7, Protection::All, PortVlan::Access(1))), 2);
    let mut capture = switch.capture.take().unwrap();
    show(&mut capture, "later");
    let bytes = capture.file.take();
    assert!(bytes.windows(5).any(|part| part == b"later"));
}

#[test]
fn frames_go_to_the_port_of_their_station_and_others_to_all_ports() {
    let mut switch = switch(Protection::All);
    assert_eq!(decide(&mut switch, 0, &frame(mac(2), mac(0), &v4([10, 0, 0, 0]))), Ok(Target::One(2)));
    assert_eq!(decide(&mut switch, 0, &frame(BROADCAST, mac(0), &arp(mac(0), [10, 0, 0, 0]))), Ok(Target::All));
    assert_eq!(decide(&mut switch, 0, &frame(mac(9), mac(0), &v4([10, 0, 0, 0]))), Ok(Target::All), "unknown unicast");
    assert_eq!(decide(&mut switch, 0, &frame(mac(0), mac(0), &v4([10, 0, 0, 0]))), Err(DropReason::SamePort));
    assert_eq!(decide(&mut switch, 0, &frame([1, 0x80, 0xc2, 0, 0, 0], mac(0), &[0, 4])), Err(DropReason::Protocol));
    let targets: Vec<usize> = (0..3).filter(|to| switch.may_pass(0, *to, 1)).collect();
    assert_eq!(targets, [1, 2]);
}

#[test]
fn a_protected_station_can_use_its_own_addresses_only() {
    let mut switch = switch(Protection::All);
    let mut from_0 = |behind: &[u8]| decide(&mut switch, 0, &frame(mac(1), mac(0), behind));
    let to_1 = Ok(Target::One(1));
    assert_eq!(from_0(&v4([10, 0, 0, 0])), to_1);
    assert_eq!(from_0(&v4([0, 0, 0, 0])), to_1, "a station without an address");
    assert_eq!(from_0(&v4([10, 0, 0, 1])), Err(DropReason::SpoofedIp));
    assert_eq!(from_0(&arp(mac(0), [10, 0, 0, 0])), to_1);
    assert_eq!(from_0(&arp(mac(0), [10, 0, 0, 1])), Err(DropReason::SpoofedIp));
    assert_eq!(from_0(&arp(mac(1), [10, 0, 0, 0])), Err(DropReason::SpoofedMac));
    let own = "fe80::ff:fe00:0";
    assert_eq!(from_0(&v6(own, 58, &[], &advertisement("fd00::0", mac(0)))), to_1);
    assert_eq!(from_0(&v6("fd00::1", 58, &[], &advertisement("fd00::0", mac(0)))), Err(DropReason::SpoofedIp));
    assert_eq!(from_0(&v6(own, 58, &[], &advertisement("fd00::1", mac(0)))), Err(DropReason::SpoofedIp), "its target");
    assert_eq!(from_0(&v6(own, 58, &[], &advertisement("fd00::0", mac(1)))), Err(DropReason::SpoofedMac), "its option");
    assert_eq!(from_0(&v6(own, 58, &[], &[134; 16])), Err(DropReason::RouterMessage));
    // The same message behind an extension header, and in a fragment.
    let spoofed = advertisement("fd00::1", mac(0));
    assert_eq!(from_0(&v6(own, 60, &[58, 0, 1, 4, 0, 0, 0, 0], &spoofed)), Err(DropReason::SpoofedIp));
    assert_eq!(from_0(&v6(own, 44, &[58, 0, 0, 1, 0, 0, 0, 9], &spoofed)), Err(DropReason::Malformed));
    let long = [spoofed, vec![0; 200]].concat();
    assert_eq!(from_0(&v6(own, 60, &[58, 20, 1, 4, 0, 0, 0, 0], &long)), Err(DropReason::Unclear));
    assert_eq!(decide(&mut switch, 0, &frame(mac(1), mac(2), &v4([10, 0, 0, 0]))), Err(DropReason::SpoofedMac));
    let counters = switch.port_counters(0);
    assert_eq!(
        (counters["drop_spoofed_mac"], counters["drop_spoofed_ip"], counters["port_frames_received"]),
        (3, 5, 15)
    );
}

#[test]
fn a_switch_learns_addresses_follows_moves_and_forgets() {
    let mut switch = switch(Protection::Off);
    let (one, other) = (mac(50), mac(51));
    assert_eq!(decide(&mut switch, 0, &frame(other, one, &v4([1, 2, 3, 4]))), Ok(Target::All));
    assert_eq!(decide(&mut switch, 1, &frame(one, other, &v4([1, 2, 3, 4]))), Ok(Target::One(0)));
    assert_eq!(decide(&mut switch, 2, &frame(other, one, &v4([1, 2, 3, 4]))), Ok(Target::One(1)), "it has moved");
    assert_eq!(decide(&mut switch, 1, &frame(one, other, &v4([1, 2, 3, 4]))), Ok(Target::One(2)));
    assert_eq!(switch.counters()["mac_moves"], 1);
    let later = Instant::from_ns(AT.as_ns() + crate::limits::SWITCH_AGE_NS + 1);
    assert_eq!(decide_at(&mut switch, later, 1, &frame(one, other, &v4([1, 2, 3, 4]))), Ok(Target::All), "too old");
    switch.remove_port(2);
    assert_eq!(decide(&mut switch, 1, &frame(one, other, &v4([1, 2, 3, 4]))), Ok(Target::All), "the port is gone");
}

#[test]
fn no_port_can_claim_the_address_of_a_protected_port_or_fill_the_table() {
    let mut switch = switch(Protection::Off);
    let protected = switch.add_port(port(9, Protection::All, PortVlan::Access(1)));
    assert_eq!(decide(&mut switch, 0, &frame(mac(1), mac(9), &v4([10, 0, 0, 0]))), Err(DropReason::SpoofedMac));
    assert_eq!(decide(&mut switch, 1, &frame(mac(9), mac(1), &v4([10, 0, 0, 1]))), Ok(Target::One(protected)));
    for number in 0..2 * crate::limits::SWITCH_MACS_OF_PORT_MAX {
        let [high, low] = u16::try_from(number).unwrap().to_be_bytes();
        assert!(decide(&mut switch, 0, &frame(mac(1), [2, 1, 1, 1, high, low], &v4([10, 0, 0, 0]))).is_ok());
    }
    let counters = switch.counters();
    assert!(counters["macs"] <= crate::limits::SWITCH_MACS_OF_PORT_MAX as u64 + 2, "{counters:?}");
    assert_eq!(counters["mac_table_full"], crate::limits::SWITCH_MACS_OF_PORT_MAX as u64);
    assert_eq!(decide(&mut switch, 2, &frame(BROADCAST, mac(2), &v4([10, 0, 0, 0]))), Ok(Target::All));
    assert_eq!(
        decide(&mut switch, 1, &frame(mac(2), mac(1), &v4([10, 0, 0, 1]))),
        Ok(Target::One(2)),
        "it learns others"
    );
}

fn tag(id: u16) -> Vec<u8> {
    [[0x81, 0], id.to_be_bytes()].concat()
}

#[test]
fn vlans_do_not_mix() {
    let mut switch = Switch::new(CONFIG);
    let trunk = || PortVlan::Trunk { allowed: [10, 20].into(), native: Some(30) };
    for (station, vlan) in [PortVlan::Access(10), PortVlan::Access(20), trunk(), trunk()].into_iter().enumerate() {
        switch.add_port(port(u8::try_from(station).unwrap(), Protection::Mac, vlan));
    }
    let tagged = |id: u16, behind: &[u8]| [tag(id), behind.to_vec()].concat();
    let packet = v4([10, 0, 0, 0]);
    let mut from = |port: u8, to: [u8; 6], behind: &[u8]| {
        let bytes = frame(to, mac(port), behind);
        let mut header = Header::new(bytes.len(), |into| into.copy_from_slice(&bytes[..into.len()]));
        let decision = switch.decide(AT, port.into(), &mut header, Marks::default())?;
        assert_eq!(header.link().unwrap().2, IPV4, "the tag is removed");
        let takes = |to: usize| match decision.target {
            Target::One(only) => to == only,
            Target::All => switch.may_pass(port.into(), to, decision.vlan),
        };
        Ok::<Vec<usize>, DropReason>((0..4).filter(|to| takes(*to)).collect())
    };
    assert_eq!(from(0, BROADCAST, &packet), Ok(vec![2, 3]), "VLAN 10");
    assert_eq!(from(0, BROADCAST, &tagged(0, &packet)), Ok(vec![2, 3]), "a priority tag");
    assert_eq!(from(0, BROADCAST, &tagged(20, &packet)), Err(DropReason::Vlan), "a tag on an access port");
    assert_eq!(from(0, BROADCAST, &tagged(10, &packet)), Err(DropReason::Vlan));
    assert_eq!(from(2, BROADCAST, &tagged(20, &packet)), Ok(vec![1, 3]));
    assert_eq!(from(2, BROADCAST, &tagged(40, &packet)), Err(DropReason::Vlan), "not in its set");
    assert_eq!(from(2, BROADCAST, &packet), Ok(vec![3]), "the native VLAN");
    assert_eq!(from(2, BROADCAST, &tagged(10, &tagged(20, &packet))), Err(DropReason::DoubleTag));
    assert_eq!(from(2, mac(1), &tagged(20, &packet)), Ok(vec![1]));
    assert_eq!(from(0, mac(1), &packet), Ok(vec![2, 3]), "in VLAN 10 there is no such station");
    assert_eq!(switch.ports[2].as_ref().unwrap().tag(20, 0x6000), Some(0x6014));
    assert_eq!(switch.ports[2].as_ref().unwrap().tag(30, 0), None);
    assert_eq!(switch.ports[0].as_ref().unwrap().tag(10, 0x6000), None);
}

#[test]
fn isolated_ports_reach_only_the_others() {
    let mut switch = Switch::new(CONFIG);
    for station in 0..3 {
        let mut port = port(station, Protection::All, PortVlan::Access(1));
        port.settings.isolated = station < 2;
        switch.add_port(port);
    }
    assert_eq!(decide(&mut switch, 0, &frame(mac(1), mac(0), &v4([10, 0, 0, 0]))), Err(DropReason::Isolated));
    assert_eq!(decide(&mut switch, 0, &frame(mac(2), mac(0), &v4([10, 0, 0, 0]))), Ok(Target::One(2)));
    assert_eq!(decide(&mut switch, 2, &frame(mac(0), mac(2), &v4([10, 0, 0, 2]))), Ok(Target::One(0)));
    assert!(!switch.may_pass(0, 1, 1) && switch.may_pass(0, 2, 1) && switch.may_pass(2, 1, 1));
}

#[test]
fn a_network_of_ip_packets_carries_no_other_protocol() {
    for (only_v4, of_v6) in [(false, Ok(Target::One(1))), (true, Err(DropReason::Protocol))] {
        let mut switch = Switch::new(SwitchConfig { any_protocol: false, only_v4, ..CONFIG });
        (0..2).for_each(|station| _ = switch.add_port(port(station, Protection::All, PortVlan::Access(1))));
        let mut from_0 = |behind: &[u8]| decide(&mut switch, 0, &frame(mac(1), mac(0), behind));
        assert_eq!(from_0(&v4([10, 0, 0, 0])), Ok(Target::One(1)));
        assert_eq!(from_0(&v6("fd00::0", 59, &[], &[])), of_v6);
        assert_eq!(from_0(&[0x88, 0xcc, 1, 2]), Err(DropReason::Protocol));
    }
}

#[test]
fn marks_that_a_port_did_not_agree_to_are_refused() {
    let mut switch = switch(Protection::All);
    let bytes = frame(mac(1), mac(0), &segment(true, 6, 5, 3_000));
    let mut with = |marks: Marks| {
        let mut header = Header::new(bytes.len(), |into| into.copy_from_slice(&bytes[..into.len()]));
        switch.decide(AT, 0, &mut header, marks).map(|decision| decision.target)
    };
    assert_eq!(with(Marks { checksum_unfilled: true, segment_bytes: 1_448 }), Ok(Target::One(1)));
    assert_eq!(
        with(Marks { checksum_unfilled: true, segment_bytes: 1 }),
        Err(DropReason::Marks),
        "a thousand frames for one"
    );
    switch.ports[0].as_mut().unwrap().agreed = Agreed::default();
    let mut header = Header::new(bytes.len(), |into| into.copy_from_slice(&bytes[..into.len()]));
    let marks = Marks { checksum_unfilled: true, segment_bytes: 0 };
    assert_eq!(switch.decide(AT, 0, &mut header, marks), Err(DropReason::Marks));
}

#[test]
fn a_port_that_floods_is_limited_and_unicast_goes_on() {
    let mut switch = Switch::new(SwitchConfig { flood_per_second: 1_000, ..CONFIG });
    for station in 0..2 {
        let mut port = port(station, Protection::All, PortVlan::Access(1));
        port.flood = Flood::new(switch.flood_per_second());
        switch.add_port(port);
    }
    let flood = frame(BROADCAST, mac(0), &arp(mac(0), [10, 0, 0, 0]));
    let passed = (0..1_000).filter(|_| decide(&mut switch, 0, &flood).is_ok()).count();
    assert_eq!(passed, 64);
    assert_eq!(switch.ports[0].as_ref().unwrap().counters.drops.of(DropReason::FloodLimit), 936);
    assert_eq!(decide(&mut switch, 0, &frame(mac(1), mac(0), &v4([10, 0, 0, 0]))), Ok(Target::One(1)));
    assert_eq!(decide(&mut switch, 1, &frame(BROADCAST, mac(1), &arp(mac(1), [10, 0, 0, 1]))), Ok(Target::All));
}

proptest! {
    #[test]
    fn any_bytes_are_survived(
        bytes in proptest::collection::vec(any::<u8>(), 0..2 * HEAD_BYTES_MAX),
        kind in prop_oneof![Just(None), Just(Some([8, 0])), Just(Some([8, 6])), Just(Some([0x86, 0xdd])), Just(Some([0x81, 0]))],
        next in any::<u8>(),
        from in 0..3_usize,
        checksum_unfilled in any::<bool>(),
        segment_bytes in any::<u16>(),
    ) {
        let mut bytes = bytes;
        if let (Some(kind), true) = (kind, bytes.len() > 34) {
            bytes[6..12].copy_from_slice(&mac(u8::try_from(from).unwrap()));
            bytes[12..14].copy_from_slice(&kind);
            bytes[20] = next;
            // The source is the station's own IPv6 address, so that the checks behind it are reached.
            bytes[22..34].copy_from_slice(&[0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        }
        for protection in [Protection::All, Protection::Mac, Protection::Off] {
            let mut switch = switch(protection);
            switch.ports[0].as_mut().unwrap().settings.vlan = PortVlan::Trunk { allowed: [1, 2].into(), native: None };
            let _ = decide_marked(&mut switch, from, &bytes, Marks { checksum_unfilled, segment_bytes });
        }
    }
}

#[test]
fn a_record_has_what_was_exchanged_since_the_latest_one() {
    let mut switch = Switch::new(SwitchConfig { accounting: true, ..CONFIG });
    for station in 0..2 {
        switch.add_port(port(station, Protection::All, PortVlan::Access(1)));
    }
    let send = |switch: &mut Switch, from: u8| {
        let bytes = frame(BROADCAST, mac(from), &v4([10, 0, 0, from]));
        assert!(decide_marked(switch, from.into(), &bytes, Marks::default()).is_ok());
    };
    send(&mut switch, 0);
    send(&mut switch, 0);
    let [AccountRecord { traffic, .. }] = &switch.accounts(None)[..] else { panic!("one station has sent frames") };
    assert_eq!((traffic.frames_sent, traffic.bytes_sent, traffic.frames_received), (2, 120, 0));
    assert!(switch.accounts(None).is_empty(), "the record was sent");
    send(&mut switch, 0);
    send(&mut switch, 1);
    assert_eq!(switch.accounts(Some(1)).len(), 1);
    let [AccountRecord { traffic, .. }] = &switch.accounts(None)[..] else { panic!("the other station") };
    assert_eq!(traffic.frames_sent, 1);
    send(&mut switch, 0);
    switch.config.accounting = false;
    assert!(switch.accounts(None).is_empty(), "only a Guest LAN with accounting has records");
}

#[test]
fn handed_over_addresses_are_learned_at_unprotected_ports_only() {
    let mut switch = switch(Protection::Off);
    switch.add_port(Port { label: "protected".to_owned(), ..port(3, Protection::All, PortVlan::Access(1)) });
    switch.ports[1].as_mut().unwrap().label = "open".to_owned();
    let known = |station: u8, port: &str, age_ms| KnownAddress {
        vlan: 1,
        mac: Mac(mac(station)),
        port: (!port.is_empty()).then(|| port.to_owned()),
        age_ms,
    };
    let group = KnownAddress { mac: Mac(BROADCAST), ..known(9, "open", Some(1)) };
    switch.handed_over = vec![
        known(9, "open", Some(1)),
        known(10, "protected", Some(1)),
        known(11, "nowhere", Some(1)),
        known(12, "", Some(1)),
        known(13, "open", None),
        known(14, "open", Some(u64::MAX)),
        // The address of the protected port belongs to its station.
        known(3, "open", Some(1)),
        group,
    ];
    switch.learn_handed_over(AT);
    let found: Vec<_> = (9..15).map(|station| switch.table.find(AT, 1, mac(station))).collect();
    assert_eq!(found, [Some(1), None, None, None, None, Some(1)]);
    assert_eq!(switch.table.find(AT, 1, mac(3)), Some(3));
    assert_eq!(switch.table.find(AT, 1, BROADCAST), None);
    assert!(switch.handed_over.is_empty());
}
