//! Path MTUs (RFC 1191, RFC 8201): what errors about packets that were too big may change, and for how long.

use crate::net::*;
use crate::world::{V4, icmp, icmp6, udp, v6};
use siga_stack::ip::echo::Ping;
use siga_stack::limits::{HEADER_BYTES_MAX, PATH_MTU_AGE};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::sockets::{TcpId, TcpOptions, TcpSetting};
use siga_stack::stack::Handled;
use siga_stack::tcp::Config;
use siga_stack::time::Duration;
use siga_stack::udp::{MtuDiscovery, UdpError, UdpId};
use siga_stack::wire::icmp::NetworkError;
use siga_stack::wire::tcp::{Header, SeqNumber};
use std::net::SocketAddr;

const JUMBO: Link = Link { mtu: 9_000, ethernet: false, ..PLAIN };
const NARROW: Link = Link { mtu: 1_500, ethernet: false, ..PLAIN };
/// What the victims send as one datagram: a packet of 5,028 or 5,048 bytes.
const DATAGRAM_BYTES: usize = 5_000;

/// A guest that is on no path between the victims and sees none of their packets.
struct OffPath {
    v6: bool,
    state: u64,
    sent: u64,
}

impl OffPath {
    fn guess(&mut self) -> u32 {
        // SplitMix64: what is guessed differs each time and is the same in each run.
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        u32::try_from(mixed >> 32).unwrap()
    }

    fn kinds(&self) -> &'static [(u8, u8)] {
        if self.v6 {
            &[(2, 0), (2, 0), (2, 0), (1, 0), (1, 1), (1, 3), (1, 4), (3, 0), (3, 1), (4, 0), (4, 1)]
        } else {
            &[(3, 4), (3, 4), (3, 4), (3, 0), (3, 1), (3, 2), (3, 3), (3, 13), (11, 0), (11, 1), (12, 0)]
        }
    }

    /// Gives the first host one error of each kind about a packet from `from` to `to`, in the attacker's own name.
    fn strike(&mut self, net: &mut Net, protocol: u8, from: SocketAddr, to: SocketAddr) {
        let (source, victim) = if self.v6 { ("2001:db8:77::7", "2001:db8:0::1") } else { ("10.0.77.7", "10.0.0.1") };
        for (kind, code) in self.kinds() {
            let quoted = self.quote(protocol, from, to);
            let mtu = [576_u32, 1_280, 600, 1_400][usize::try_from(self.guess() % 4).unwrap()];
            let rest = [&mtu.to_be_bytes()[..], &quoted].concat();
            let packet = if self.v6 {
                v6(source, victim, 58, 64, &icmp6(source, victim, *kind, *code, &rest))
            } else {
                V4::new(source, victim, 1).packet(&icmp(*kind, *code, &rest))
            };
            let (header, payload) = packet.split_at(packet.len().min(HEADER_BYTES_MAX));
            net.stacks[0].handle_frame(net.now, DeviceId(0), Received::unmarked(header, payload));
            self.sent += 1;
        }
    }

    /// The beginning of a packet as the attacker imagines it: all that it can know is right.
    fn quote(&mut self, protocol: u8, from: SocketAddr, to: SocketAddr) -> Vec<u8> {
        let (source, victim) = (from.ip().to_string(), to.ip().to_string());
        let payload = [7; DATAGRAM_BYTES];
        let mut transport = match protocol {
            17 => udp(&source, &victim, (from.port(), to.port()), &payload),
            6 => {
                let seq = SeqNumber(self.guess());
                let header = Header { source_port: from.port(), destination_port: to.port(), seq, ..Header::default() };
                let mut bytes = vec![0; header.header_bytes() + DATAGRAM_BYTES];
                header.emit(&mut bytes);
                bytes
            }
            _ => panic!("no protocol of the victims"),
        };
        // The guest can know what was sent, but not in which datagram.
        if protocol == 17 && self.guess().is_multiple_of(2) {
            let sum = self.guess().to_be_bytes();
            transport[6..8].copy_from_slice(&sum[..2]);
        }
        let mut packet = if self.v6 {
            v6(&source, &victim, protocol, 60, &transport)
        } else {
            let dont_fragment = self.guess().is_multiple_of(2);
            V4 { dont_fragment, ..V4::new(&source, &victim, protocol) }.packet(&transport)
        };
        if self.v6 && self.guess().is_multiple_of(2) {
            // The flow label: 20 bits that the guest does not see.
            let label = self.guess().to_be_bytes();
            packet[1] = packet[1] & 0xf0 | label[0] & 0x0f;
            packet[2..4].copy_from_slice(&label[1..3]);
        }
        packet.truncate(100);
        packet
    }
}

fn segment_bytes(net: &mut Net, id: TcpId) -> u32 {
    net.first().tcp_info(id).unwrap().unwrap().segment_bytes
}

/// A UDP socket of the first host that is connected to one of the last host.
fn udp_pair(net: &mut Net, v6: bool) -> (UdpId, UdpId, SocketAddr) {
    let far = net.far(v6, 7);
    let there = net.last().udp_bind(far).unwrap();
    let here = net.first().udp_bind(any(v6)).unwrap();
    net.first().udp_connect(here, far).unwrap();
    let local = SocketAddr::new(address(v6, 0, 1), net.first().udp_local(here).unwrap().port());
    (here, there, local)
}

#[test]
fn guessed_icmp_errors_of_an_off_path_guest_change_no_path_mtu_and_lose_nothing() {
    for v6 in [false, true] {
        let mut net = Net::new(&[JUMBO, JUMBO]);
        let listener = net.listen(v6, 80, 8);
        let (here, there) = net.open(v6, 80, listener);
        let (udp_here, udp_there, udp_local) = udp_pair(&mut net, v6);
        let (local, remote) = net.first().tcp_addresses(here).unwrap();
        let before = segment_bytes(&mut net, here);
        let remote_udp = net.far(v6, 7);
        let mut guest = OffPath { v6, state: 5, sent: 0 };
        net.keep_frames = true;
        let mut into = vec![0; 100_000];
        for round in 0..50 {
            for _ in 0..4 {
                // The attacker knows the port from a scan, or guesses it.
                let port = if round % 2 == 0 { udp_local.port() } else { u16::try_from(guest.guess() >> 16).unwrap() };
                guest.strike(&mut net, 17, SocketAddr::new(udp_local.ip(), port), remote_udp);
                guest.strike(&mut net, 6, local, remote);
            }
            let now = net.now;
            net.first().udp_send(now, udp_here, None, &[7; DATAGRAM_BYTES]).unwrap();
            let sent = net.first().tcp_send(now, here, &content(30_000)).unwrap();
            let mut under_way = Vec::new();
            while let Some(frame) = net.first().poll_transmit(now, DeviceId(0), &mut into) {
                under_way.push((into[..frame.len].to_vec(), frame.marks));
            }
            guest.strike(&mut net, 6, local, remote);
            guest.strike(&mut net, 17, udp_local, remote_udp);
            for (frame, marks) in under_way {
                net.carry(0, DeviceId(0), &frame, marks);
            }
            net.pass(Duration::from_millis(100));
            assert_eq!(net.last().tcp_receive(now, there, &mut into).unwrap(), Some(sent));
            let datagram = net.last().udp_receive(udp_there).unwrap().expect("the datagram arrived");
            assert_eq!(datagram.bytes, [7; DATAGRAM_BYTES]);
        }
        assert_eq!(guest.sent, 50 * 10 * 11);
        let whole = DATAGRAM_BYTES + if v6 { 48 } else { 28 };
        let frames = std::mem::take(&mut net.frames);
        let count = frames.iter().filter(|(from, frame, _)| *from == 0 && frame.len() == whole).count();
        assert_eq!(count, 50, "every datagram left in one piece");
        let info = net.first().tcp_info(here).unwrap().unwrap();
        assert_eq!((info.segment_bytes, info.repeated_segments), (before, 0));
        assert_eq!(net.first().memory().held("path MTUs"), 0);
        assert_eq!(net.first().udp_receive(udp_here), Ok(None), "the socket is told of no error");
        let (later, _) = net.open(v6, 80, listener);
        assert_eq!(segment_bytes(&mut net, later), before, "a new connection inherits nothing");
    }
}

/// How many bytes the longest packets of the first host have that it sends during something.
fn longest(net: &mut Net, act: impl FnOnce(&mut Net)) -> usize {
    net.frames.clear();
    net.keep_frames = true;
    act(net);
    net.keep_frames = false;
    net.frames.iter().filter(|(from, ..)| *from == 0).map(|(_, frame, _)| frame.len()).max().unwrap_or(0)
}

/// Sends a large datagram; true if it arrives.
fn datagram_arrives(net: &mut Net, (here, there): (UdpId, UdpId)) -> bool {
    let now = net.now;
    net.first().udp_send(now, here, None, &[7; DATAGRAM_BYTES]).unwrap();
    net.cross();
    net.last().udp_receive(there).unwrap().is_some()
}

#[test]
fn packet_too_big_from_a_router_on_the_path_holds_for_tcp_and_later_connections() {
    for v6 in [false, true] {
        let mut net = Net::new(&[JUMBO, NARROW]);
        let listener = net.listen(v6, 80, 8);
        // The far end does not say how little its link takes: only the router can.
        let far_device = DeviceId(0);
        let now = net.now;
        net.last().set_mtu(now, far_device, 9_000).unwrap();
        let (here, there) = net.open(v6, 80, listener);
        let headers = if v6 { 72 } else { 52 };
        assert_eq!(segment_bytes(&mut net, here), 9_000 - headers);
        let started = net.now;
        assert_eq!(net.stream((0, here), (2, there), &content(200_000)), content(200_000));
        assert_eq!(segment_bytes(&mut net, here), 1_500 - headers);
        assert!(net.now.since(started) < Duration::from_millis(200), "without waiting for a timeout");
        let (later, _) = net.open(v6, 80, listener);
        assert_eq!(segment_bytes(&mut net, later), 1_500 - headers);
        // If the path carries larger packets again, the connection finds out after a time.
        let now = net.now;
        net.stacks[1].set_mtu(now, DeviceId(1), 9_000).unwrap();
        net.pass(PATH_MTU_AGE);
        assert_eq!(net.stream((0, here), (2, there), &content(200_000)), content(200_000));
        assert_eq!(segment_bytes(&mut net, here), 9_000 - headers);
    }
}

#[test]
fn packet_too_big_from_a_router_on_the_path_holds_for_datagrams_until_it_ages() {
    let mut net = Net::new(&[JUMBO, NARROW]);
    let (here, there, _) = udp_pair(&mut net, true);
    assert!(!datagram_arrives(&mut net, (here, there)), "the router does not take it");
    assert!(matches!(net.first().udp_receive(here), Err(UdpError::Network(_, NetworkError::TooBig { mtu: 1_500 }))));
    assert_eq!(longest(&mut net, |net| assert!(datagram_arrives(net, (here, there)))), 1_496, "fragments");
    let now = net.now;
    net.stacks[1].set_mtu(now, DeviceId(1), 9_000).unwrap();
    net.last().set_mtu(now, DeviceId(0), 9_000).unwrap();
    net.pass(PATH_MTU_AGE);
    assert_eq!(longest(&mut net, |net| assert!(datagram_arrives(net, (here, there)))), DATAGRAM_BYTES + 48);
    // Routers cut packets of IPv4, and say nothing.
    let mut net = Net::new(&[JUMBO, NARROW]);
    let (here, there, _) = udp_pair(&mut net, false);
    assert_eq!(longest(&mut net, |net| assert!(datagram_arrives(net, (here, there)))), DATAGRAM_BYTES + 28);
}

#[test]
fn packet_too_big_from_a_router_on_the_path_holds_for_echo_requests() {
    let mut net = Net::new(&[JUMBO, NARROW]);
    let far = net.far(true, 0).ip();
    for (seq, answered) in [(1, false), (2, true)] {
        let ping = Ping { to: far, ident: 7, seq };
        let now = net.now;
        net.first().ping(now, ping, 5_000).unwrap();
        net.cross();
        assert_eq!(net.first().poll_pong(), answered.then_some(ping));
    }
}

/// The beginning of the segment that a frame of IPv4 holds, quoted by an error that claims an MTU.
fn too_big(frame: &[u8], mtu: u16) -> Vec<u8> {
    let [a, b] = mtu.to_be_bytes();
    V4::new("10.0.77.7", "10.0.0.1", 1).packet(&icmp(3, 4, &[&[0, 0, a, b], &frame[..28]].concat()))
}

#[test]
fn packet_too_big_about_a_segment_that_arrives_cuts_nothing() {
    let mut net = Net::new(&[JUMBO, JUMBO]);
    let listener = net.listen(false, 80, 8);
    let (here, there) = net.open(false, 80, listener);
    assert_eq!(net.stream((0, here), (2, there), &content(100_000)), content(100_000));
    let before = segment_bytes(&mut net, here);
    net.keep_frames = true;
    let now = net.now;
    let sent = net.first().tcp_send(now, here, &content(60_000)).unwrap();
    let (mut into, mut under_way) = (vec![0; 20_000], Vec::new());
    while let Some(frame) = net.first().poll_transmit(now, DeviceId(0), &mut into) {
        under_way.push((into[..frame.len].to_vec(), frame.marks));
    }
    assert!(under_way.len() > 3);
    // Of every segment under way: the guest guessed right each time.
    for (frame, _) in &under_way {
        let packet = too_big(frame, 1_000);
        let handled = net.first().handle_frame(now, DeviceId(0), Received::unmarked(&packet, &[][..]));
        assert!(matches!(handled, Handled::Done));
    }
    for (frame, marks) in under_way {
        net.carry(0, DeviceId(0), &frame, marks);
    }
    net.pass(Duration::from_secs(1));
    assert_eq!(net.last().tcp_receive(now, there, &mut vec![0; 100_000]).unwrap(), Some(sent));
    let info = net.first().tcp_info(here).unwrap().unwrap();
    assert_eq!((info.segment_bytes, info.repeated_segments), (before, 0));
    assert_eq!(net.first().memory().held("path MTUs"), 0);
}

#[test]
fn a_path_mtu_that_shrinks_under_an_open_connection_is_learnt() {
    for v6 in [false, true] {
        let mut net = Net::new(&[JUMBO, JUMBO]);
        let listener = net.listen(v6, 80, 8);
        let (here, there) = net.open(v6, 80, listener);
        assert_eq!(net.stream((0, here), (2, there), &content(100_000)), content(100_000));
        let now = net.now;
        net.stacks[1].set_mtu(now, DeviceId(1), 1_500).unwrap();
        assert_eq!(net.stream((0, here), (2, there), &content(100_000)), content(100_000));
        let info = net.first().tcp_info(here).unwrap().unwrap();
        assert_eq!((info.segment_bytes, info.black_holes), (if v6 { 1_428 } else { 1_448 }, 0));
    }
}

#[test]
fn the_option_for_mtu_discovery_decides_which_datagrams_are_fragmented_and_which_are_refused() {
    let too_large = |mtu| Err(UdpError::TooLarge(mtu));
    // For the first datagram of 5,000 bytes, which no router has reported yet, and for the second one: the result of the call, and
    // whether the datagram arrives.
    for (discovery, v6, first, second) in [
        (MtuDiscovery::Dont, false, (Ok(()), true), (Ok(()), true)),
        (MtuDiscovery::Dont, true, (Ok(()), false), (Ok(()), true)),
        (MtuDiscovery::Want, false, (Ok(()), false), (Ok(()), true)),
        (MtuDiscovery::Want, true, (Ok(()), false), (Ok(()), true)),
        (MtuDiscovery::Do, false, (Ok(()), false), (too_large(1_500), false)),
        (MtuDiscovery::Do, true, (Ok(()), false), (too_large(1_500), false)),
        (MtuDiscovery::Probe, false, (Ok(()), false), (Ok(()), false)),
        (MtuDiscovery::Probe, true, (Ok(()), false), (Ok(()), false)),
        (MtuDiscovery::Interface, false, (Ok(()), true), (Ok(()), true)),
    ] {
        let mut net = Net::new(&[JUMBO, NARROW]);
        let (here, there, _) = udp_pair(&mut net, v6);
        net.first().udp_set_mtu_discovery(here, discovery).unwrap();
        let send = |net: &mut Net, bytes| {
            let now = net.now;
            let result = net.first().udp_send(now, here, None, &vec![7; bytes]);
            net.cross();
            (result, net.last().udp_receive(there).unwrap().is_some())
        };
        assert_eq!(send(&mut net, DATAGRAM_BYTES), first, "{discovery:?}, IPv6: {v6}");
        assert_eq!(send(&mut net, DATAGRAM_BYTES), second, "{discovery:?}, IPv6: {v6}");
        // A datagram that is one byte longer than the MTU of the device.
        let expected = match discovery {
            MtuDiscovery::Dont | MtuDiscovery::Want => (Ok(()), true),
            MtuDiscovery::Do => (too_large(1_500), false),
            MtuDiscovery::Probe | MtuDiscovery::Interface => (too_large(9_000), false),
        };
        let headers = if v6 { 48 } else { 28 };
        assert_eq!(send(&mut net, 9_001 - headers), expected, "{discovery:?}, IPv6: {v6}");
        assert_eq!(send(&mut net, 1_500 - headers), (Ok(()), true), "{discovery:?}, IPv6: {v6}");
    }
}

#[test]
fn a_connection_without_mtu_discovery_lets_routers_fragment_its_segments() {
    // The payload of full segments after a stream over a router to a narrow link.
    for (discovery, v6, expected) in [
        (MtuDiscovery::Want, false, 1_448),
        (MtuDiscovery::Do, false, 1_448),
        (MtuDiscovery::Dont, false, 8_948),
        (MtuDiscovery::Interface, false, 8_948),
        // Routers never fragment packets of IPv6.
        (MtuDiscovery::Dont, true, 1_428),
    ] {
        let mut net = Net::new(&[JUMBO, NARROW, JUMBO]);
        let config = Config { mtu_discovery: discovery, ..Config::LINUX };
        let options = TcpOptions { config, ..TcpOptions::default() };
        let listener = net.listen(v6, 80, 8);
        let (now, server) = (net.now, net.far(v6, 80));
        let here = net.first().tcp_connect(now, any(v6), server, &options).unwrap();
        let (here, there) = net.accept(here, listener);
        assert_eq!(net.stream((0, here), (3, there), &content(100_000)), content(100_000));
        let info = net.first().tcp_info(here).unwrap().unwrap();
        let used = net.first().tcp_options(here).unwrap().config.mtu_discovery;
        assert_eq!((info.segment_bytes, used), (expected, discovery), "{discovery:?}, IPv6: {v6}");
        // The setting can change later. Full segments then get an ICMP error.
        let now = net.now;
        net.first().tcp_set(now, here, TcpSetting::MtuDiscovery(MtuDiscovery::Do)).unwrap();
        assert_eq!(net.stream((0, here), (3, there), &content(100_000)), content(100_000));
        let info = net.first().tcp_info(here).unwrap().unwrap();
        assert_eq!(info.segment_bytes, if v6 { 1_428 } else { 1_448 }, "{discovery:?}");
    }
}
