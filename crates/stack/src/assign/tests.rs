//! Requests of stations and the answers to them. smoltcp, whose client is another than those that siga serves, reads the answers.

use super::*;
use proptest::prelude::*;
use smoltcp::phy::ChecksumCapabilities;
use smoltcp::wire::{
    DhcpMessageType, DhcpPacket, DhcpRepr, EthernetAddress, EthernetFrame, Icmpv6Packet, Icmpv6Repr, Ipv4Packet,
    Ipv6Packet, NdiscRepr, UdpPacket,
};

const STATION: MacAddress = MacAddress([2, 0, 0, 0, 0, 9]);
const SERVER: MacAddress = MacAddress([2, 0, 0, 0, 0, 0x53]);
const ROUTER: MacAddress = MacAddress([2, 0, 0, 0, 0, 1]);
const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 11);
const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 0, 3, 1);

fn prefix(text: &str) -> Prefix {
    let (address, length) = text.split_once('/').unwrap();
    Prefix::new(address.parse().unwrap(), length.parse().unwrap()).unwrap()
}

fn assignment() -> Assignment {
    Assignment {
        station: STATION,
        server: SERVER,
        mtu: 1_500,
        lease: Some(Lease {
            address: OWN,
            length: 24,
            routes: vec![(prefix("0.0.0.0/0"), GATEWAY), (prefix("10.9.128.0/17"), Ipv4Addr::new(10, 0, 3, 2))],
            host_name: "pod-1".into(),
        }),
        advertised: Some(Advertised {
            prefixes: vec![prefix("fd00:3::9/64")],
            routers: vec![Router { mac: ROUTER, routes: vec![prefix("::/0"), prefix("fd00:9::/48")] }],
        }),
    }
}

/// The fields of a DHCP message in a test.
#[derive(Clone)]
struct Asked {
    kind: u8,
    client: Ipv4Addr,
    relay: Ipv4Addr,
    broadcast: bool,
    mac: MacAddress,
    to: Ipv4Addr,
    options: Vec<(u8, Vec<u8>)>,
}

impl Asked {
    fn new(kind: u8) -> Self {
        let any = Ipv4Addr::UNSPECIFIED;
        let to = Ipv4Addr::BROADCAST;
        Self { kind, client: any, relay: any, broadcast: false, mac: STATION, to, options: Vec::new() }
    }

    fn with(mut self, number: u8, data: &[u8]) -> Self {
        self.options.push((number, data.to_vec()));
        self
    }

    /// Returns the message from the first fixed field on.
    fn message(&self) -> Vec<u8> {
        let flags = if self.broadcast { 0x80 } else { 0 };
        let mut bytes = vec![1, 1, 6, 0, 0xde, 0xad, 0xbe, 0xef, 0, 0, flags, 0];
        bytes.extend(self.client.octets());
        bytes.extend([0; 8]);
        bytes.extend(self.relay.octets());
        bytes.extend(self.mac.0);
        bytes.resize(236, 0);
        bytes.extend([0x63, 0x82, 0x53, 0x63, 53, 1, self.kind]);
        for (number, data) in &self.options {
            bytes.extend([*number, u8::try_from(data.len()).unwrap()]);
            bytes.extend(data);
        }
        bytes.push(255);
        bytes
    }

    fn frame(&self) -> Vec<u8> {
        frame_v4(self.client, self.to, &self.message())
    }
}

fn frame_v4(from: Ipv4Addr, to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let datagram = udp::datagram((from, 68).into(), (to, 67).into(), message).unwrap();
    let build = Ipv4Build { from, to, protocol: UDP, ttl: 64, service: 0, ident: 1 };
    framed(build.packet(&datagram).unwrap(), MacAddress::BROADCAST, STATION, IPV4)
}

fn ask(assignment: &Assignment, frame: &[u8]) -> Option<Result<Vec<Vec<u8>>, NoAnswer>> {
    let question = assignment.asks(&frame[..frame.len().min(138)], frame.len())?;
    Some(assignment.answer(question, frame, false))
}

/// The answer to a DHCP message as smoltcp reads it, with the IP address to which it was sent, and its options.
struct Answered {
    kind: DhcpMessageType,
    yours: Ipv4Addr,
    to: Ipv4Addr,
    mac: [u8; 6],
    options: Vec<(u8, Vec<u8>)>,
    message_bytes: usize,
}

impl Answered {
    fn option(&self, number: u8) -> Option<&[u8]> {
        self.options.iter().find(|(kind, _)| *kind == number).map(|(_, data)| &data[..])
    }
}

fn read(frame: &[u8]) -> Answered {
    let ethernet = EthernetFrame::new_checked(frame).unwrap();
    assert_eq!(ethernet.src_addr().0, SERVER.0);
    let ip = Ipv4Packet::new_checked(ethernet.payload()).unwrap();
    assert!(ip.verify_checksum());
    let udp = UdpPacket::new_checked(ip.payload()).unwrap();
    assert!(udp.verify_checksum(&ip.src_addr().into(), &ip.dst_addr().into()));
    assert_eq!((ip.src_addr(), udp.src_port(), udp.dst_port()), (SERVER_ADDRESS, 67, 68));
    let dhcp = DhcpPacket::new_checked(udp.payload()).unwrap();
    let repr = DhcpRepr::parse(&dhcp).unwrap();
    assert_eq!((repr.transaction_id, repr.client_hardware_address.0), (0xdead_beef, STATION.0));
    assert_eq!(repr.server_identifier, Some(SERVER_ADDRESS));
    Answered {
        kind: repr.message_type,
        yours: repr.your_ip,
        to: ip.dst_addr(),
        mac: ethernet.dst_addr().0,
        options: dhcp.options().map(|option| (option.kind, option.data.to_vec())).collect(),
        message_bytes: udp.payload().len(),
    }
}

fn answered(asked: &Asked) -> Answered {
    let frames = ask(&assignment(), &asked.frame()).unwrap().unwrap();
    assert_eq!(frames.len(), 1);
    read(&frames[0])
}

const DISCOVER: u8 = 1;
const REQUEST: u8 = 3;
const DECLINE: u8 = 4;
const RELEASE: u8 = 7;
const INFORM: u8 = 8;

#[test]
fn a_station_that_discovers_gets_the_address_routes_and_settings_of_its_assignment() {
    let identifier = [0, 1, 2, 3];
    let offer = answered(&Asked::new(DISCOVER).with(61, &identifier));
    assert_eq!((offer.kind, offer.yours), (DhcpMessageType::Offer, OWN));
    assert_eq!((offer.to, offer.mac), (OWN, STATION.0), "the client can receive unicast frames");
    for (number, data) in [
        (1, &[255, 255, 255, 0][..]),
        (3, &[10, 0, 3, 1]),
        (12, b"pod-1"),
        (26, &[5, 0xdc]),
        (28, &[10, 0, 3, 255]),
        (51, &3_600_u32.to_be_bytes()),
        (58, &1_800_u32.to_be_bytes()),
        (59, &3_150_u32.to_be_bytes()),
        (61, &identifier),
        (121, &[0, 10, 0, 3, 1, 17, 10, 9, 128, 10, 0, 3, 2, 32, 169, 254, 0, 67, 0, 0, 0, 0]),
    ] {
        assert_eq!(offer.option(number), Some(data), "option {number}");
    }
    assert!(offer.message_bytes >= 300, "{}", offer.message_bytes);
    let short = answered(&Asked { broadcast: true, ..Asked::new(DISCOVER).with(55, &[1, 3]) });
    assert_eq!((short.to, short.mac), (Ipv4Addr::BROADCAST, [0xff; 6]));
    let numbers: Vec<u8> = short.options.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [53, 54, 51, 58, 59, 1, 3], "only what the client wants");
}

#[test]
fn a_request_is_acknowledged_if_it_is_for_the_own_address_and_refused_otherwise() {
    let (own, server) = (OWN.octets(), SERVER_ADDRESS.octets());
    let other = [10, 0, 3, 12];
    let selecting = Asked::new(REQUEST).with(54, &server);
    let renewing = |client: [u8; 4], to| Asked { client: client.into(), to, ..Asked::new(REQUEST) };
    for (name, asked, kind) in [
        ("selecting", selecting.clone().with(50, &own), DhcpMessageType::Ack),
        ("selecting another", selecting.with(50, &other), DhcpMessageType::Nak),
        ("after a restart", Asked::new(REQUEST).with(50, &own), DhcpMessageType::Ack),
        ("after a restart elsewhere", Asked::new(REQUEST).with(50, &other), DhcpMessageType::Nak),
        ("renewing", renewing(own, SERVER_ADDRESS), DhcpMessageType::Ack),
        ("rebinding", renewing(own, Ipv4Addr::BROADCAST), DhcpMessageType::Ack),
        ("renewing another", renewing(other, SERVER_ADDRESS), DhcpMessageType::Nak),
        ("informing", Asked { client: other.into(), ..Asked::new(INFORM) }, DhcpMessageType::Ack),
    ] {
        let answer = answered(&asked);
        assert_eq!(answer.kind, kind, "{name}");
        let has_address = kind == DhcpMessageType::Ack && asked.kind == REQUEST;
        assert_eq!(answer.yours, if has_address { OWN } else { Ipv4Addr::UNSPECIFIED }, "{name}");
        assert_eq!(answer.option(51).is_some(), has_address, "{name}");
        if kind == DhcpMessageType::Nak {
            assert_eq!((answer.to, answer.option(1)), (Ipv4Addr::BROADCAST, None), "{name}");
        }
    }
    for asked in [
        Asked::new(REQUEST).with(54, &[10, 0, 3, 250]).with(50, &own),
        Asked { client: OWN, ..Asked::new(RELEASE) }.with(54, &server),
        Asked::new(DECLINE).with(50, &own).with(54, &server),
    ] {
        assert_eq!(ask(&assignment(), &asked.frame()), Some(Err(NoAnswer::NotNeeded)), "{}", asked.kind);
    }
}

#[test]
fn a_foreign_client_gets_no_address_and_a_new_client_identifier_no_second_one() {
    let foreign = Asked { mac: MacAddress([2, 0, 0, 0, 0, 10]), ..Asked::new(DISCOVER) };
    let relayed = Asked { relay: Ipv4Addr::new(10, 0, 3, 40), ..Asked::new(DISCOVER) };
    for asked in [foreign, relayed] {
        assert_eq!(ask(&assignment(), &asked.frame()), Some(Err(NoAnswer::Foreign)));
    }
    for number in 0..1_000_u16 {
        let offer = answered(&Asked::new(DISCOVER).with(61, &number.to_be_bytes()));
        assert_eq!((offer.kind, offer.yours), (DhcpMessageType::Offer, OWN));
    }
}

#[test]
fn a_malformed_request_is_not_answered() {
    let sound = Asked::new(DISCOVER);
    let changed = |at: usize, to: u8| {
        let mut message = sound.message();
        message[at] = to;
        frame_v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, &message)
    };
    let cut = |bytes: usize| frame_v4(Ipv4Addr::UNSPECIFIED, Ipv4Addr::BROADCAST, &sound.message()[..bytes]);
    let mut damaged = sound.frame();
    *damaged.last_mut().unwrap() ^= 1;
    for (name, frame) in [
        ("a reply", changed(0, 2)),
        ("not Ethernet", changed(1, 6)),
        ("a long address", changed(2, 16)),
        ("another cookie", changed(236, 0)),
        ("no type", changed(240, 0)),
        ("a type of two bytes", changed(241, 2)),
        ("the type of a server", changed(242, 5)),
        ("an unknown type", changed(242, 99)),
        ("cut in the options", cut(242)),
        ("cut before the options", cut(240)),
        ("cut in the fixed fields", cut(100)),
        ("empty", cut(0)),
        ("a wrong checksum", damaged),
        ("a short address", Asked::new(REQUEST).with(50, &[10, 0, 3]).frame()),
        ("no address", Asked::new(REQUEST).frame()),
        ("informing without address", Asked::new(INFORM).frame()),
    ] {
        assert_eq!(ask(&assignment(), &frame), Some(Err(NoAnswer::Malformed)), "{name}");
    }
}

#[test]
fn other_frames_are_no_questions() {
    let all = assignment();
    let dhcp = Asked::new(DISCOVER).frame();
    let mut fragment = dhcp.clone();
    fragment[20] = 0x20;
    let header = Sum::default().bytes(&fragment[14..24]).bytes(&fragment[26..34]).checksum();
    fragment[24..26].copy_from_slice(&header.to_be_bytes());
    let elsewhere = Asked { to: Ipv4Addr::new(10, 0, 3, 1), ..Asked::new(DISCOVER) }.frame();
    let mut other_port = dhcp.clone();
    other_port[36..38].copy_from_slice(&53_u16.to_be_bytes());
    for (name, frame) in [("a fragment", &fragment), ("to a host", &elsewhere), ("another port", &other_port)] {
        assert_eq!(all.asks(frame, frame.len()), None, "{name}");
    }
    assert_eq!(all.asks(&dhcp, dhcp.len()), Some(Question::Dhcp));
    let without = Assignment { lease: None, ..all.clone() };
    assert_eq!(without.asks(&dhcp, dhcp.len()), None);
    let solicitation = icmp(STATION, ALL_NODES, &[133, 0, 0, 0, 0, 0, 0, 0], 255);
    assert_eq!(all.asks(&solicitation, solicitation.len()), Some(Question::Routers));
    let without = Assignment { advertised: None, ..all };
    assert_eq!(without.asks(&solicitation, solicitation.len()), None);
}

#[test]
fn an_answer_of_a_dhcp_server_is_recognised_also_in_its_first_fragment() {
    let answer = ask(&assignment(), &Asked::new(DISCOVER).frame()).unwrap().unwrap().remove(0);
    assert!(is_dhcp_answer(&answer));
    let with = |at: usize, value: u8| {
        let mut changed = answer.clone();
        changed[at] = value;
        is_dhcp_answer(&changed)
    };
    assert!(with(20, 0x20), "a first fragment");
    assert!(!with(21, 1), "a later fragment has no ports");
    assert!(!with(35, 68) && !with(37, 67) && !with(23, 6) && !with(13, 6), "other ports, TCP, ARP");
    assert!((0..38).all(|length| !is_dhcp_answer(&answer[..length])));
    assert!(!is_dhcp_answer(&Asked::new(DISCOVER).frame()));
}

#[test]
fn a_client_that_takes_short_messages_gets_the_important_options() {
    let mut all = assignment();
    let lease = all.lease.as_mut().unwrap();
    let routes = (0..30).map(|at| (prefix(&format!("10.{at}.0.0/16")), GATEWAY));
    lease.routes.extend(routes);
    lease.host_name = "a".repeat(64);
    let asked = Asked::new(DISCOVER).with(61, &[7; 255]);
    let offer = read(&ask(&all, &asked.frame()).unwrap().unwrap()[0]);
    assert!(offer.message_bytes <= 548, "{}", offer.message_bytes);
    assert_eq!(offer.option(61).map(<[u8]>::len), Some(255));
    assert!(offer.option(1).is_some() && offer.option(51).is_some());
    let asked = asked.with(57, &1_500_u16.to_be_bytes());
    let offer = read(&ask(&all, &asked.frame()).unwrap().unwrap()[0]);
    assert!(offer.message_bytes <= 1_472 && offer.option(121).is_some() && offer.option(12).is_some());
    assert_eq!(offer.option(121).map(<[u8]>::len), Some(5 + 8 + 30 * 7 + 9));
}

#[test]
fn the_station_learns_the_ethernet_address_of_the_server() {
    let all = assignment();
    let request = |sender_mac, target| {
        let packet = ArpPacket { is_request: true, sender_mac, sender: OWN, target_mac: MacAddress([0; 6]), target };
        framed(packet.packet(), MacAddress::BROADCAST, STATION, ARP)
    };
    let frames = ask(&all, &request(STATION, SERVER_ADDRESS)).unwrap().unwrap();
    let reply = ArpPacket::parse(&frames[0][LINK_BYTES..]).unwrap();
    assert_eq!((reply.is_request, reply.sender_mac, reply.sender), (false, SERVER, SERVER_ADDRESS));
    assert_eq!((reply.target_mac, reply.target), (STATION, OWN));
    assert_eq!(ask(&all, &request(ROUTER, SERVER_ADDRESS)), Some(Err(NoAnswer::Foreign)));
    assert_eq!(ask(&all, &request(STATION, GATEWAY)), None);
}

fn icmp(from: MacAddress, to: Ipv6Addr, message: &[u8], hop_limit: u8) -> Vec<u8> {
    let from_address = link_local(from);
    let sum = Sum::default().pseudo_header(from_address.into(), to.into(), ICMPV6, message.len()).bytes(message);
    let mut message = message.to_vec();
    message[2..4].copy_from_slice(&sum.checksum().to_be_bytes());
    let build = Ipv6Build { from: from_address, to, protocol: ICMPV6, hop_limit, service: 0 };
    framed(build.packet(&message).unwrap(), MacAddress::BROADCAST, from, IPV6)
}

/// Returns the source, the destination and the message of a frame with ICMPv6.
fn read_icmp<T>(frame: &[u8], read: impl FnOnce(Ipv6Addr, Ipv6Addr, NdiscRepr<'_>) -> T) -> T {
    let ethernet = EthernetFrame::new_checked(frame).unwrap();
    assert_eq!(ethernet.dst_addr(), EthernetAddress(STATION.0));
    let ip = Ipv6Packet::new_checked(ethernet.payload()).unwrap();
    assert_eq!(ip.hop_limit(), 255);
    let packet = Icmpv6Packet::new_checked(ip.payload()).unwrap();
    let repr = Icmpv6Repr::parse(&ip.src_addr(), &ip.dst_addr(), &packet, &ChecksumCapabilities::default()).unwrap();
    let Icmpv6Repr::Ndisc(repr) = repr else { panic!("{repr:?}") };
    read(ip.src_addr(), ip.dst_addr(), repr)
}

#[test]
fn a_router_solicitation_is_answered_with_prefixes_and_routers() {
    let solicitation = icmp(STATION, ALL_NODES, &[&[133, 0, 0, 0, 0, 0, 0, 0, 1, 1][..], &STATION.0].concat(), 255);
    let frames = ask(&assignment(), &solicitation).unwrap().unwrap();
    assert_eq!(frames.len(), 2);
    read_icmp(&frames[0], |from, to, repr| {
        let NdiscRepr::RouterAdvert { router_lifetime, mtu, prefix_info: Some(info), .. } = repr else {
            panic!("{repr:?}")
        };
        assert_eq!((from, to), (link_local(SERVER), link_local(STATION)));
        assert_eq!((router_lifetime.secs(), mtu), (0, Some(1_500)), "the switch is no router");
        assert_eq!((info.prefix, info.prefix_len), ("fd00:3::".parse().unwrap(), 64));
        assert_eq!(info.flags.bits(), 0xc0);
    });
    read_icmp(&frames[1], |from, _, repr| {
        let NdiscRepr::RouterAdvert { router_lifetime, lladdr, prefix_info, hop_limit, .. } = repr else {
            panic!("{repr:?}")
        };
        assert_eq!((from, router_lifetime.secs(), hop_limit), (link_local(ROUTER), 1_800, 64));
        assert_eq!((lladdr.map(|mac| mac.as_bytes().to_vec()), prefix_info), (Some(ROUTER.0.to_vec()), None));
    });
    // RFC 4191 2.3: type, length, prefix length, preference, lifetime, prefix.
    let route = [24, 3, 48, 0, 0, 0, 7, 8, 0xfd, 0, 0, 9];
    assert!(frames[1].windows(route.len()).any(|window| window == route));
    let all = assignment().advertisements(None);
    assert_eq!((all.len(), &all[0][..6]), (2, &[0x33, 0x33, 0, 0, 0, 1][..]));
}

#[test]
fn a_router_without_link_local_address_is_reachable_by_it() {
    let all = assignment();
    let ask_for = |target: Ipv6Addr, from: Ipv6Addr| {
        let message = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat();
        let mut frame = icmp(STATION, ALL_NODES, &message, 255);
        let sum = Sum::default().pseudo_header(from.into(), ALL_NODES.into(), ICMPV6, message.len()).bytes(&message);
        frame[22..38].copy_from_slice(&from.octets());
        frame[56..58].copy_from_slice(&sum.checksum().to_be_bytes());
        ask(&all, &frame)
    };
    let frames = ask_for(link_local(ROUTER), link_local(STATION)).unwrap().unwrap();
    read_icmp(&frames[0], |from, to, repr| {
        let NdiscRepr::NeighborAdvert { flags, target_addr, lladdr } = repr else { panic!("{repr:?}") };
        assert_eq!((from, to, target_addr), (link_local(ROUTER), link_local(STATION), link_local(ROUTER)));
        assert_eq!((flags.bits(), lladdr.map(|mac| mac.as_bytes().to_vec())), (0xe0, Some(ROUTER.0.to_vec())));
    });
    assert_eq!(ask_for(link_local(ROUTER), Ipv6Addr::UNSPECIFIED), Some(Err(NoAnswer::NotNeeded)));
    assert_eq!(ask_for(link_local(SERVER), link_local(STATION)), None);
}

#[test]
fn a_malformed_solicitation_is_not_answered() {
    let all = assignment();
    let zero = &[133, 0, 0, 0, 0, 0, 0, 0][..];
    for (name, frame) in [
        ("forwarded", icmp(STATION, ALL_NODES, zero, 64)),
        ("another code", icmp(STATION, ALL_NODES, &[133, 1, 0, 0, 0, 0, 0, 0], 255)),
        ("cut", icmp(STATION, ALL_NODES, &zero[..6], 255)),
        ("an option without length", icmp(STATION, ALL_NODES, &[zero, &[1, 0, 0, 0, 0, 0, 0, 0]].concat(), 255)),
        ("an option that is cut", icmp(STATION, ALL_NODES, &[zero, &[1, 1, 0]].concat(), 255)),
    ] {
        assert_eq!(ask(&all, &frame), Some(Err(NoAnswer::Malformed)), "{name}");
    }
    let mut damaged = icmp(STATION, ALL_NODES, zero, 255);
    *damaged.last_mut().unwrap() = 1;
    assert_eq!(ask(&all, &damaged), Some(Err(NoAnswer::Malformed)));
}

/// Frames of a station: any bytes, and requests of which some bytes were changed.
fn frames() -> impl Strategy<Value = Vec<u8>> {
    let kinds = prop_oneof![Just(DISCOVER), Just(REQUEST), Just(DECLINE), Just(RELEASE), Just(INFORM), any::<u8>()];
    let any_option = (any::<u8>(), proptest::collection::vec(any::<u8>(), 0..256));
    // A client that asks for an address, or that has chosen a server.
    let address = (prop_oneof![Just(50), Just(54)], proptest::collection::vec(any::<u8>(), 4));
    let option = prop_oneof![any_option, address];
    let fields = (kinds, any::<u32>(), any::<bool>(), proptest::collection::vec(option, 0..6));
    let dhcp = fields.prop_map(|(kind, client, broadcast, options)| {
        let client = if client % 2 == 0 { Ipv4Addr::UNSPECIFIED } else { client.into() };
        Asked { client, broadcast, options, ..Asked::new(kind) }.frame()
    });
    let solicitation = proptest::collection::vec(any::<u8>(), 0..64)
        .prop_map(|rest| icmp(STATION, ALL_NODES, &[&[133, 0, 0, 0, 0, 0, 0, 0], &rest[..]].concat(), 255));
    let changes = proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let changed = (prop_oneof![dhcp, solicitation], changes, any::<bool>()).prop_map(|(mut frame, changes, cut)| {
        for (at, byte) in changes {
            let at = at.index(frame.len());
            frame[at] = byte;
        }
        frame.truncate(if cut { frame.len() * 2 / 3 } else { frame.len() });
        frame
    });
    prop_oneof![changed, proptest::collection::vec(any::<u8>(), 0..400)]
}

proptest! {
    #[test]
    fn any_request_is_survived_and_answered_only_with_the_own_address(frame in frames(), is_unfilled in any::<bool>()) {
        let all = assignment();
        let Some(question) = all.asks(&frame[..frame.len().min(138)], frame.len()) else { return Ok(()) };
        let Ok(answers) = all.answer(question, &frame, is_unfilled) else { return Ok(()) };
        prop_assert!((1..=2).contains(&answers.len()));
        for answer in answers {
            prop_assert!(answer.len() <= REQUEST_BYTES_MAX);
            if question != Question::Dhcp {
                continue;
            }
            let ip = Ipv4Packet::new_checked(&answer[LINK_BYTES..]).unwrap();
            let udp = UdpPacket::new_checked(ip.payload()).unwrap();
            let dhcp = DhcpPacket::new_checked(udp.payload()).unwrap();
            let repr = DhcpRepr::parse(&dhcp);
            prop_assert!(repr.is_ok() || dhcp.options().any(|option| option.kind == 61));
            prop_assert!([OWN, Ipv4Addr::UNSPECIFIED].contains(&dhcp.your_ip()));
            prop_assert_eq!(dhcp.client_hardware_address().0, STATION.0);
        }
    }
}
