//! Packets in another station's name: what they do on a device without a source filter, and that they do nothing on one with it.

use crate::attack::*;
use crate::world::*;
use siga_stack::Stack;
use siga_stack::drops::{IpDrop, LinkDrop, NeighbourDrop};
use siga_stack::link::device::{Agreed, DeviceConfig, DeviceError, Medium};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::link::source::Sources;
use siga_stack::seed::Seed;
use siga_stack::sockets::TcpOptions;
use siga_stack::stack::{Handled, StackConfig};
use siga_stack::tcp::StateName;
use siga_stack::udp::UdpId;
use siga_stack::wire::ethernet::MacAddress;
use smoltcp::wire::{ArpOperation, EthernetProtocol};

/// The link-local address of the station on the second link.
const LOCAL6: &str = "fe80::9";

/// A router whose second link is the attacker's.
struct Site {
    world: World,
    socket: UdpId,
}

impl Site {
    fn new() -> Self {
        let mut world = World::router();
        let socket = world.stack.udp_bind("0.0.0.0:6".parse().unwrap()).unwrap();
        world.stack.udp_bind("[::]:6".parse().unwrap()).unwrap();
        for at in ["0.0.0.0:80", "[::]:80"] {
            world.stack.tcp_listen(at.parse().unwrap(), 8, &TcpOptions::default()).unwrap();
        }
        Self { world, socket }
    }

    /// The same with source filters: each station may send from its own addresses.
    fn filtered() -> Self {
        let mut site = Self::new();
        for (device, place) in [(DeviceId(0), 0), (DeviceId(1), 1)] {
            let sources = hosts(&[HOST[place], HOST6[place], LOCAL6]);
            site.world.stack.set_sources(device, Some(sources)).unwrap();
        }
        site
    }

    /// All that a packet can change, as far as it can be seen.
    fn state(&self) -> String {
        format!("{} {:?}", self.world.stack.memory(), self.world.stack.poll_timeout())
    }
}

fn hosts(addresses: &[&str]) -> Sources {
    let host = |address: &&str| prefix(address, if address.contains(':') { 128 } else { 32 });
    Sources::new(&addresses.iter().map(host).collect::<Vec<_>>(), &[]).unwrap()
}

fn first_fragment(from: &str, to: &str) -> Vec<u8> {
    if from.contains(':') {
        return v6(from, to, 44, 64, &[&[17, 0, 0, 1, 0, 0, 0, 7][..], &[1; 64]].concat());
    }
    V4 { more: true, ..V4::new(from, to, 17) }.packet(&[1; 64])
}

fn echo(from: &str, to: &str) -> Vec<u8> {
    if from.contains(':') {
        return v6(from, to, 58, 64, &icmp6(from, to, 128, 0, &[0, 1, 0, 2, 9, 9]));
    }
    V4::new(from, to, 1).packet(&icmp(8, 0, &[0, 1, 0, 2, 9, 9]))
}

fn datagram(from: &str, to: &str) -> Vec<u8> {
    let bytes = udp(from, to, (5, 6), b"in whose name");
    if from.contains(':') { v6(from, to, 17, 64, &bytes) } else { V4::new(from, to, 17).packet(&bytes) }
}

/// One packet of each kind that changes something or is passed on or answered.
fn packets(from: &str) -> Vec<(&'static str, Vec<u8>)> {
    let six = from.contains(':');
    let (own, far) = if six { (ROUTER6[1], HOST6[0]) } else { (ROUTER[1], HOST[0]) };
    let opening = syn(1_000, usual());
    let unknown = if six { v6(from, own, 99, 64, &[1; 8]) } else { V4::new(from, own, 99).packet(&[1; 8]) };
    let last_hop =
        if six { v6(from, far, 17, 1, &[0; 8]) } else { V4 { ttl: 1, ..V4::new(from, far, 17) }.packet(&[0; 8]) };
    vec![
        ("echo request", echo(from, own)),
        ("datagram", datagram(from, own)),
        ("SYN", packet(from, own, &opening, &[])),
        ("fragment", first_fragment(from, own)),
        ("unknown protocol", unknown),
        ("forwarded datagram", datagram(from, far)),
        ("forwarded echo request", echo(from, far)),
        ("forwarded fragment", first_fragment(from, far)),
        ("end of its hops", last_hop),
    ]
}

/// An echo request in another station's name was answered to that station. So was everything else.
#[test]
fn a_source_filter_makes_spoofed_packets_of_other_stations_harmless() {
    for (victim, own) in [("10.1.0.77", HOST[1]), ("2001:db8:1::77", HOST6[1])] {
        for (what, packet) in packets(victim) {
            let mut open = Site::new();
            let before = open.state();
            let outcome = open.world.give_packet(1, &packet);
            let answers = open.world.sent(0).len();
            let changed = open.state() != before || answers > 0 || matches!(outcome, Outcome::Forwarded(_));
            assert!(changed, "without a filter, {what} from {victim} succeeds: {outcome:?}");

            let mut site = Site::filtered();
            let before = site.state();
            let outcome = site.world.give_packet(1, &packet);
            assert_eq!(outcome, Outcome::dropped(IpDrop::SourceRefused), "{what} from {victim}");
            assert_eq!(site.state(), before, "{what} from {victim}");
            site.world.assert_silent();
            assert_eq!(site.world.dropped(IpDrop::SourceRefused), 1);
        }
        for (what, packet) in packets(own) {
            let mut site = Site::filtered();
            let outcome = site.world.give_packet(1, &packet);
            assert_ne!(outcome, Outcome::dropped(IpDrop::SourceRefused), "{what} from {own}");
            assert_eq!(site.world.dropped(IpDrop::SourceRefused), 0);
        }
    }
}

/// Each packet is judged, whichever passed before it.
#[test]
fn a_source_filter_judges_each_packet() {
    let mut site = Site::filtered();
    for round in 1..4 {
        for (own, victim) in [(HOST[1], HOST[0]), (HOST6[1], HOST6[0])] {
            for _ in 0..2 {
                assert_eq!(site.world.give_packet(1, &echo(own, &site_address(own))), Outcome::Done);
                assert_eq!(site.world.sent(1).len(), 1);
            }
            let refused = Outcome::dropped(IpDrop::SourceRefused);
            assert_eq!(site.world.give_packet(1, &echo(victim, &site_address(own))), refused);
        }
        assert_eq!(site.world.dropped(IpDrop::SourceRefused), 2 * round);
    }
}

fn site_address(like: &str) -> String {
    if like.contains(':') { ROUTER6[1].to_owned() } else { ROUTER[1].to_owned() }
}

#[test]
fn martian_sources_stay_refused_whatever_the_source_filter_permits() {
    let mut site = Site::filtered();
    let all = Sources::new(&[prefix("0.0.0.0", 0), prefix("::", 0)], &[]).unwrap();
    site.world.stack.set_sources(DeviceId(1), Some(all)).unwrap();
    for from in ["127.0.0.1", "224.0.0.1", "255.255.255.255", "0.0.0.0", "10.2.0.255", ROUTER[0], ROUTER[1]] {
        let packet = datagram(from, ROUTER[1]);
        assert_eq!(site.world.give_packet(1, &packet), Outcome::dropped(IpDrop::SourceMartian), "{from}");
    }
    for from in ["::1", "ff02::1", "::ffff:10.2.0.9", ROUTER6[0], ROUTER6[1]] {
        let packet = datagram(from, ROUTER6[1]);
        assert_eq!(site.world.give_packet(1, &packet), Outcome::dropped(IpDrop::SourceMartian), "{from}");
    }
    assert_eq!(site.world.give_packet(1, &datagram("::", ROUTER6[1])), Outcome::dropped(IpDrop::SourceRefused));
    assert_eq!(site.world.give_packet(1, &datagram("::", "ff02::1")), Outcome::dropped(IpDrop::SourceRefused));
}

/// Stations without an address report groups and ask whether an address is free.
#[test]
fn a_source_filter_lets_a_station_without_address_report_groups_and_probe_for_an_address() {
    let mut site = Site::filtered();
    let report = igmp_from("0.0.0.0", "239.1.2.3", &[0x16, 0, 0, 0, 239, 1, 2, 3]);
    let listener = mld_from("::", "ff02::16", &[143, 0, 0, 0, 0, 0, 0, 0]);
    let probe = neighbour_message(135, 0, "::", "ff02::1:ff00:1", ROUTER6[1], &[]);
    for packet in [report, listener, probe] {
        assert_ne!(site.world.give_packet(1, &packet), Outcome::dropped(IpDrop::SourceRefused));
    }
    assert_eq!(site.world.dropped(IpDrop::SourceRefused), 0);
    assert_eq!(site.world.sent(1).len(), 1, "the probe is answered");
}

#[test]
fn a_source_filter_refuses_spoofed_group_reports_and_queries() {
    for (packet, from) in [
        (igmp_from(HOST[0], "224.0.0.1", &[0x11, 100, 0, 0, 0, 0, 0, 0]), HOST[0]),
        (igmp_from("10.2.0.77", "239.1.2.3", &[0x16, 0, 0, 0, 239, 1, 2, 3]), "10.2.0.77"),
        (mld_from("fe80::77", "ff02::1", &[&[130, 0, 0, 0, 0, 100, 0, 0][..], &[0; 16]].concat()), "fe80::77"),
    ] {
        let mut site = Site::filtered();
        let before = site.state();
        assert_eq!(site.world.give_packet(1, &packet), Outcome::dropped(IpDrop::SourceRefused), "{from}");
        assert_eq!(site.state(), before, "{from}");
        let mut open = Site::new();
        assert_ne!(open.world.give_packet(1, &packet), Outcome::dropped(IpDrop::SourceRefused), "{from}");
    }
}

/// A segment that fits a connection exactly is taken from the device of its peer alone.
#[test]
fn a_segment_is_accepted_only_from_the_device_of_its_peer() {
    for (letters, text) in [("R", &b""[..]), ("P", b"not the peer's"), ("F", b"")] {
        let mut open = Victim::new();
        let next = siga_stack::wire::tcp::Header { flags: flags(letters), ..open.next };
        assert_eq!(open.world.give_packet(1, &packet(HOST[0], ROUTER[0], &next, text)), Outcome::Done);
        assert!(open.state() != StateName::Established || open.received() > 0, "without a filter, {letters} succeeds");

        let mut victim = Victim::new();
        victim.world.stack.set_sources(DeviceId(1), Some(hosts(&[HOST[1]]))).unwrap();
        for _ in 0..2 {
            let outcome = victim.world.give_packet(1, &packet(HOST[0], ROUTER[0], &next, text));
            assert_eq!(outcome, Outcome::dropped(IpDrop::SourceRefused), "{letters}");
            let hello = victim.next;
            assert_eq!(victim.give(&hello, b"hello"), Outcome::Done);
            assert_eq!((victim.received(), victim.state()), (5, StateName::Established));
        }
        victim.lives();
    }
}

#[test]
fn a_changed_source_filter_holds_for_open_connections_at_once() {
    let mut victim = Victim::new();
    let hello = |victim: &mut Victim| victim.give(&victim.next.clone(), b"hello");
    assert_eq!((hello(&mut victim), victim.received()), (Outcome::Done, 5));
    victim.world.stack.set_sources(DeviceId(0), Some(Sources::default())).unwrap();
    assert_eq!((hello(&mut victim), victim.received()), (Outcome::dropped(IpDrop::SourceRefused), 0));
    victim.world.stack.set_sources(DeviceId(0), Some(hosts(&[HOST[0]]))).unwrap();
    assert_eq!((hello(&mut victim), victim.received()), (Outcome::Done, 5));
    victim.world.stack.set_sources(DeviceId(0), None).unwrap();
    assert_eq!((hello(&mut victim), victim.received()), (Outcome::Done, 5));
    let missing = victim.world.stack.set_sources(DeviceId(2), None);
    assert_eq!(missing, Err(DeviceError::NoDevice));
    victim.lives();
}

/// ARP and neighbour messages: nobody takes an address that another station has.
#[test]
fn a_source_filter_lets_a_station_claim_only_its_own_address_as_neighbour() {
    let mac = HOST_MAC[1];
    let claim = |operation, from: &str| {
        let bytes = arp(operation, mac, from, MacAddress([0; 6]), ROUTER[1]);
        ethernet(mac, ROUTER_MAC[1], EthernetProtocol::Arp, &bytes)
    };
    let advertise = |target| neighbour_message(136, 0x60, LOCAL6, ROUTER6[1], target, &[&[2, 1][..], &mac.0].concat());
    let solicit = |from| neighbour_message(135, 0, from, ROUTER6[1], ROUTER6[1], &[&[1, 1][..], &mac.0].concat());
    let frame = |packet: Vec<u8>| ethernet(mac, ROUTER_MAC[1], EthernetProtocol::Ipv6, &packet);
    let (not_theirs, refused) = (NeighbourDrop::Refused.into(), IpDrop::SourceRefused.into());
    for (frame, reason) in [
        (claim(ArpOperation::Request, "10.2.0.77"), not_theirs),
        (claim(ArpOperation::Reply, "10.2.0.77"), not_theirs),
        (frame(advertise("2001:db8:2::77")), not_theirs),
        (frame(solicit("2001:db8:2::77")), refused),
    ] {
        let mut site = Site::filtered();
        let before = site.state();
        assert_eq!(site.world.give(1, &frame), Outcome::Dropped(reason));
        assert_eq!(site.state(), before);
        site.world.assert_silent();
        let mut open = Site::new();
        assert_ne!(open.world.give(1, &frame), Outcome::Dropped(reason));
    }
    let mut site = Site::filtered();
    assert_eq!(site.world.give(1, &claim(ArpOperation::Request, HOST[1])), Outcome::Done);
    assert_eq!(site.world.give(1, &claim(ArpOperation::Request, "0.0.0.0")), Outcome::Done, "it looks for an address");
    assert_eq!(site.world.give(1, &frame(solicit(HOST6[1]))), Outcome::Done);
    assert_eq!(site.world.give(1, &frame(advertise(HOST6[1]))), Outcome::Done);
    assert_eq!(site.world.sent(1).len(), 3);
}

/// A redirect in a router's name, and a packet in a neighbour's name that would have that neighbour redirected.
#[test]
fn spoofed_packets_and_messages_cause_no_redirect() {
    let quoted = datagram(ROUTER[0], "10.9.0.1");
    let redirect = V4::new("10.1.0.77", ROUTER[1], 1).packet(&icmp(5, 1, &[&[10, 2, 0, 9][..], &quoted].concat()));
    let mut site = Site::filtered();
    assert_eq!(site.world.give_packet(1, &redirect), Outcome::dropped(IpDrop::SourceRefused));
    let config = StackConfig { seed: Seed::simulated(1), forwarding: true, redirects: true, ..StackConfig::default() };
    let hairpin = V4::new("10.2.0.77", HOST[1], 17).packet(&[0; 40]);
    let redirects = |world: &mut World| {
        world.give_packet(1, &hairpin);
        // The stack resolves the address of the neighbour that is to receive the redirect.
        world.sent(1).len()
    };
    let mut open = World::configured(config);
    assert_eq!(redirects(&mut open), 1);
    let mut world = World::configured(config);
    world.stack.set_sources(DeviceId(1), Some(hosts(&[HOST[1]]))).unwrap();
    assert_eq!(redirects(&mut world), 0);
}

/// A device stands for several links where groups are concerned; the filter is that of the link.
#[test]
fn a_frame_to_a_group_is_checked_by_the_source_filter_of_its_link() {
    let mut stack: Stack = Stack::new(StackConfig::default());
    let addresses = vec![prefix("10.0.0.1", 24)];
    for addresses in [addresses, Vec::new()] {
        let config = DeviceConfig { medium: Medium::Ip, mtu: 1_500, addresses, agreed: Agreed::default() };
        stack.add_device(config).unwrap();
    }
    let (main, link, now) = (DeviceId(0), DeviceId(1), siga_stack::time::Instant::from_ns(1));
    stack.set_sources(main, Some(Sources::default())).unwrap();
    stack.set_sources(link, Some(hosts(&["10.0.0.2"]))).unwrap();
    let socket = stack.udp_bind("0.0.0.0:6".parse().unwrap()).unwrap();
    stack.udp_join(now, socket, "239.1.2.3".parse().unwrap(), main).unwrap();
    let mut give = |from: &str, link| {
        let packet = datagram(from, "239.1.2.3");
        let received = Received::unmarked(&packet, &[][..]);
        match stack.handle_group_frame(now, main, link, received) {
            Handled::Dropped(reason) => Err(reason),
            Handled::Done => Ok(stack.udp_receive(socket).unwrap().is_some()),
            Handled::Forward(_) => panic!("groups are not forwarded"),
        }
    };
    assert_eq!(give("10.0.0.2", link), Ok(true));
    assert_eq!(give("10.0.0.3", link), Err(IpDrop::SourceRefused.into()));
    assert_eq!(give("10.0.0.2", main), Err(IpDrop::SourceRefused.into()));
    assert_eq!(give("10.0.0.2", DeviceId(2)), Err(LinkDrop::NoDevice.into()));
}

/// A packet that the stack sends to itself is not taken for another sender's.
#[test]
fn a_source_filter_does_not_block_packets_of_the_stack_to_itself() {
    let mut site = Site::filtered();
    let (now, to) = (site.world.now, format!("{}:6", ROUTER[1]).parse().unwrap());
    site.world.stack.udp_send(now, site.socket, Some(to), b"to myself").unwrap();
    assert_eq!(site.world.stack.udp_receive(site.socket).unwrap().unwrap().bytes, b"to myself");
}
