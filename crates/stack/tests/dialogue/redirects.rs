//! Redirects (RFC 1812 5.2.7.2, RFC 4861 8.2): a station sends a packet through the router although it could use the
//! next hop itself. The router forwards the packet; where the stack's owner wants that, it also sends a redirect.

use crate::world::*;
use siga_stack::drops::{IcmpDrop, IpDrop};
use siga_stack::limits::{ICMP_ERRORS_BURST, ICMPV4_ERROR_BYTES_MAX, ICMPV6_ERROR_BYTES_MAX};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::DeviceId;
use siga_stack::stack::StackConfig;
use siga_stack::time::Duration;
use siga_stack::wire::ethernet::MacAddress;
use smoltcp::wire::{ArpOperation, EthernetProtocol};

/// The router on a third link, which has a link-local address there, and two stations on it: who sends, and the better next hop.
const OWN: [&str; 3] = ["10.3.0.1", "fe80::1", "2001:db8:3::1"];
const OWN_MAC: MacAddress = MacAddress([2, 0, 0, 0, 0, 3]);
const SENDER: [&str; 2] = ["10.3.0.9", "2001:db8:3::9"];
const SENDER_MAC: MacAddress = MacAddress([2, 0, 0, 0, 1, 3]);
const NEXT: [&str; 3] = ["10.3.0.7", "fe80::7", "2001:db8:3::7"];
const NEXT_MAC: MacAddress = MacAddress([2, 0, 0, 0, 1, 4]);

/// Behind the better next hop.
const FAR: [&str; 2] = ["192.0.2.7", "2001:db8:9::7"];

struct Redirecting(World);

impl Redirecting {
    fn new(redirects: bool) -> Self {
        Self::with(redirects, NEXT[1])
    }

    /// A world that sends IPv6 packets for other networks through `gateway`.
    fn with(redirects: bool, gateway: &str) -> Self {
        let mut world = World::configured(StackConfig { forwarding: true, redirects, ..StackConfig::default() });
        let addresses = vec![prefix(OWN[0], 24), prefix(OWN[1], 64), prefix(OWN[2], 64)];
        let medium = Medium::Ethernet(OWN_MAC);
        let config = DeviceConfig { medium, mtu: 1500, addresses, agreed: Agreed::default() };
        assert_eq!(world.stack.add_device(config), Ok(DeviceId(2)));
        world.stack.add_route(prefix("192.0.2.0", 24), DeviceId(2), Some(NEXT[0].parse().unwrap())).unwrap();
        world.stack.add_route(prefix("2001:db8:9::", 48), DeviceId(2), Some(gateway.parse().unwrap())).unwrap();
        for _ in 0..4 {
            world.pass(Duration::from_secs(1));
            (0..3).for_each(|device| drop(world.sent(device)));
        }
        for (mac, addresses) in [(SENDER_MAC, &SENDER[..]), (NEXT_MAC, &NEXT)] {
            for ip in addresses {
                world.give(2, &introduction(mac, ip));
                assert_eq!(world.sent(2).len(), 1, "{ip}");
            }
        }
        Self(world)
    }

    fn give(&mut self, packet: &[u8]) -> Outcome {
        let protocol = if packet[0] >> 4 == 4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
        self.0.give(2, &ethernet(SENDER_MAC, OWN_MAC, protocol, packet))
    }

    /// Gives a packet, which is forwarded to the next hop; returns what the sender received meanwhile.
    fn redirects_for(&mut self, packet: &[u8]) -> Vec<Vec<u8>> {
        assert_eq!(macs(&self.give(packet).one()), (OWN_MAC, NEXT_MAC));
        self.0.assert_silent();
        let sent = self.0.sent(2);
        assert!(sent.iter().all(|frame| macs(frame) == (OWN_MAC, SENDER_MAC)));
        sent.iter().map(|frame| frame[14..].to_vec()).collect()
    }
}

/// A question by which the router knows who asks.
fn introduction(mac: MacAddress, ip: &str) -> Vec<u8> {
    if !ip.contains(':') {
        let request = arp(ArpOperation::Request, mac, ip, MacAddress([0; 6]), OWN[0]);
        return ethernet(mac, MacAddress::BROADCAST, EthernetProtocol::Arp, &request);
    }
    let own = if ip.starts_with("fe80") { OWN[1] } else { OWN[2] };
    let packet = neighbour_message(135, 0, ip, own, own, &[&[1, 1], &mac.0[..]].concat());
    ethernet(mac, OWN_MAC, EthernetProtocol::Ipv6, &packet)
}

fn datagram(from: &str, to: &str, bytes: usize) -> Vec<u8> {
    let datagram = udp(from, to, (5, 6), &vec![7; bytes]);
    if to.contains(':') { v6(from, to, 17, 64, &datagram) } else { V4::new(from, to, 17).packet(&datagram) }
}

#[test]
fn a_router_sends_no_redirects_by_default() {
    let mut world = Redirecting::new(false);
    for (from, to) in SENDER.into_iter().zip(FAR) {
        assert_eq!(world.redirects_for(&datagram(from, to, 100)), Vec::<Vec<u8>>::new(), "{to}");
    }
}

#[test]
fn a_sender_is_redirected_to_the_next_hop_on_its_own_link_and_its_packet_goes_on() {
    for (to, bytes) in [(FAR[0], 100), (FAR[0], 1400), (NEXT[0], 100)] {
        let mut world = Redirecting::new(true);
        let packet = datagram(SENDER[0], to, bytes);
        let told = world.redirects_for(&packet);
        assert_eq!(told.len(), 1);
        assert_eq!(addresses(&told[0]), (OWN[0].into(), SENDER[0].into()));
        assert_eq!((told[0][1], told[0].len()), (0xc0, (56 + bytes).min(ICMPV4_ERROR_BYTES_MAX)));
        let (kind, code, rest) = icmp_of(&told[0]);
        assert_eq!((kind, code, &rest[..4]), (5, 1, &[10, 3, 0, 7][..]), "for the host");
        assert_eq!(rest[4..], packet[..rest.len() - 4]);
    }
}

#[test]
fn an_ipv6_redirect_comes_from_the_link_local_address_of_the_router() {
    for (to, target, bytes) in [(FAR[1], NEXT[1], 100), (FAR[1], NEXT[1], 1400), (NEXT[2], NEXT[2], 100)] {
        let mut world = Redirecting::new(true);
        let packet = datagram(SENDER[1], to, bytes);
        let told = world.redirects_for(&packet);
        assert_eq!(told.len(), 1);
        assert_eq!(addresses(&told[0]), (OWN[1].into(), SENDER[1].into()));
        assert_eq!(told[0][7], 255, "hop limit");
        let (kind, code, rest) = icmp_of(&told[0]);
        assert_eq!((kind, code, &rest[..4]), (137, 0, &[0; 4][..]));
        let octets = |address: &str| address.parse::<std::net::Ipv6Addr>().unwrap().octets();
        assert_eq!((&rest[4..20], &rest[20..36]), (&octets(target)[..], &octets(to)[..]));
        assert_eq!(rest[36..44], [&[2, 1], &NEXT_MAC.0[..]].concat(), "the target's link-layer address");
        let quoted = &rest[52..];
        assert_eq!(rest[44..52], [4, u8::try_from(1 + quoted.len() / 8).unwrap(), 0, 0, 0, 0, 0, 0]);
        assert_eq!((quoted, quoted.len() % 8), (&packet[..quoted.len()], 0));
        assert!(
            told[0].len() <= ICMPV6_ERROR_BYTES_MAX && packet.len().min(1184) - quoted.len() < 8,
            "as much as fits"
        );
    }
}

#[test]
fn no_redirect_is_sent_off_the_link_or_about_fragments_and_errors() {
    let mut world = Redirecting::new(true);
    // Not of that link, though it came by it; then not the first fragment, and an error itself.
    let elsewhere = [datagram("10.9.0.9", FAR[0], 10), datagram("2001:db8:8::9", FAR[1], 10)];
    let later = V4 { offset: 8, ..V4::new(SENDER[0], FAR[0], 17) }.packet(&[0; 64]);
    let error = icmp(3, 1, &[&[0; 4], &datagram(FAR[0], SENDER[0], 10)[..]].concat());
    let error = V4::new(SENDER[0], FAR[0], 1).packet(&error);
    let error6 = v6(SENDER[1], FAR[1], 58, 64, &icmp6(SENDER[1], FAR[1], 1, 0, &[0; 52]));
    for packet in elsewhere.into_iter().chain([later, error, error6]) {
        assert_eq!(world.redirects_for(&packet), Vec::<Vec<u8>>::new());
    }
    assert_eq!(world.0.dropped(IcmpDrop::Forbidden), 3);
    // Packets that do not leave by the device on which they arrived.
    let out = world.give(&datagram(SENDER[0], HOST[1], 10)).one();
    assert_eq!(macs(&out), (ROUTER_MAC[1], HOST_MAC[1]));
    let routed = V4 { options: &[0x83, 7, 4, 10, 3, 0, 7, 0], ..V4::new(SENDER[0], FAR[0], 17) }.packet(&[0; 8]);
    assert_eq!(world.give(&routed), Outcome::dropped(IpDrop::SourceRoute));
    assert_eq!(icmp_of(&world.0.sent(2)[0][14..]).0, 12, "a parameter problem alone");
    for to in ["224.0.0.9", "ff0e::9"] {
        let from = SENDER[usize::from(to.contains(':'))];
        assert_eq!(world.give(&datagram(from, to, 10)), Outcome::dropped(IpDrop::NotJoined));
    }
    assert_eq!(world.0.sent(2), Vec::<Vec<u8>>::new());
    world.0.assert_silent();
}

#[test]
fn no_ipv6_redirect_is_sent_without_link_local_addresses() {
    // Only a router's link-local address may stand for it, and the first link has no link-local address to redirect from.
    let mut world = Redirecting::with(true, NEXT[2]);
    assert_eq!(world.redirects_for(&datagram(SENDER[1], FAR[1], 10)), Vec::<Vec<u8>>::new());
    let packet = v6("2001:db8:1::8", HOST6[0], 17, 64, &udp("2001:db8:1::8", HOST6[0], (5, 6), b"x"));
    assert_eq!(macs(&world.0.give_packet(0, &packet).one()), (ROUTER_MAC[0], HOST_MAC[0]));
    world.0.assert_silent();
}

#[test]
fn redirects_are_limited_like_icmp_errors() {
    let mut world = Redirecting::new(true);
    let mut told = 0;
    for n in 0..500 {
        told += world.redirects_for(&datagram(SENDER[n % 2], FAR[n % 2], 10)).len();
    }
    let burst = usize::try_from(ICMP_ERRORS_BURST).unwrap();
    assert!((burst / 3..=burst).contains(&told), "{told}");
    assert_eq!(world.0.dropped(IcmpDrop::RateLimit), 500 - told as u64);
}
