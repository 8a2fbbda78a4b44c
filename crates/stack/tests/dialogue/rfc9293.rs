//! What RFC 9293 asks of TCP towards IP and towards applications, in raw packets: addresses, options, ICMP, reports.

use crate::net::{Net, PLAIN, content};
use crate::world::*;
use siga_stack::drops::{IcmpDrop, IpDrop, TcpDrop};
use siga_stack::sockets::{ListenerId, RouteSettings, TcpError, TcpEvent, TcpId, TcpOptions, TcpSetting};
use siga_stack::tcp::{Failure, SegmentError, StateName};
use siga_stack::time::Duration;
use siga_stack::wire::ethernet::MacAddress;
use siga_stack::wire::tcp::{Flags, Header, SeqNumber};
use smoltcp::wire::EthernetProtocol;
use std::net::SocketAddr;

/// The address of the host and that of the stack on the first link.
fn ends(v6: bool) -> (&'static str, &'static str) {
    if v6 { (HOST6[0], ROUTER6[0]) } else { (HOST[0], ROUTER[0]) }
}

fn socket(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// A segment without text and its checksum.
fn segment(from: &str, to: &str, header: &Header) -> Vec<u8> {
    let mut bytes = vec![0; header.header_bytes()];
    header.emit(&mut bytes);
    let sum = checksum(from, to, 6, &bytes);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    bytes
}

fn packet(from: &str, to: &str, header: &Header) -> Vec<u8> {
    let segment = segment(from, to, header);
    if to.contains(':') { v6(from, to, 6, 64, &segment) } else { V4::new(from, to, 6).packet(&segment) }
}

fn syn_to(port: u16) -> Header {
    let flags = Flags { syn: true, ..Flags::default() };
    Header { source_port: 9, destination_port: port, seq: SeqNumber(5_000), window: 60_000, flags, ..Header::default() }
}

/// The header of the answer to a segment: the next segment of the other side.
fn answer(to: &Header, flags: Flags) -> Header {
    let ack = Some(to.seq + to.sequence_len(0));
    let (source_port, destination_port) = (to.destination_port, to.source_port);
    Header {
        source_port,
        destination_port,
        seq: to.ack.unwrap_or_default(),
        ack,
        window: 60_000,
        flags,
        ..Header::default()
    }
}

/// The header of a segment in a packet, its checksum verified.
fn tcp_of(packet: &[u8]) -> Header {
    let (from, to) = addresses(packet);
    let bytes = &packet[if packet[0] >> 4 == 4 { 20 } else { 40 }..];
    assert_eq!(checksum(&from, &to, 6, bytes), 0, "checksum");
    Header::parse(bytes).unwrap().0
}

/// Type of service or traffic class, and TTL or hop limit.
fn class_of(packet: &[u8]) -> (u8, u8) {
    if packet[0] >> 4 == 4 { (packet[1], packet[8]) } else { (packet[0] << 4 | packet[1] >> 4, packet[7]) }
}

impl World {
    fn listen(&mut self, local: SocketAddr, options: &TcpOptions) -> ListenerId {
        self.stack.tcp_listen(local, 4, options).unwrap()
    }

    /// Begins a connection to port 80 of the host on the first link; gives its SYN too.
    fn connect(&mut self, local: SocketAddr, options: &TcpOptions) -> (TcpId, Vec<u8>) {
        let remote = socket(if local.is_ipv4() { HOST[0] } else { HOST6[0] }, 80);
        let id = self.stack.tcp_connect(self.now, local, remote, options).unwrap();
        (id, self.sent_packet(0))
    }

    fn connections(&self) -> usize {
        self.stack.memory().held("TCP connections")
    }

    /// All pending events of `tcp_poll_event`.
    fn events(&mut self) -> Vec<TcpEvent> {
        std::iter::from_fn(|| self.stack.tcp_poll_event()).collect()
    }
}

fn any(v6: bool, port: u16) -> SocketAddr {
    socket(if v6 { "::" } else { "0.0.0.0" }, port)
}

// RFC 9293 MUST-2, MUST-3.
#[test]
fn received_checksums_are_checked_and_sent_ones_are_right() {
    for v6 in [false, true] {
        let mut world = World::host();
        let (from, to) = ends(v6);
        world.listen(any(v6, 80), &TcpOptions::default());
        let whole = packet(from, to, &syn_to(80));
        let transport = whole.len() - 20;
        for at in transport..whole.len() {
            let mut packet = whole.clone();
            packet[at] ^= 0x10;
            assert!(matches!(world.give_packet(0, &packet), Outcome::Dropped(_)), "byte {at}");
        }
        assert!(world.dropped(TcpDrop::Checksum) >= 18);
        world.assert_silent();
        assert_eq!(world.give_packet(0, &whole), Outcome::Done);
        assert!(tcp_of(&world.sent_packet(0)).flags.syn);
    }
}

// RFC 9293 MUST-57.
#[test]
fn a_syn_to_broadcast_or_a_group_is_dropped_without_an_answer() {
    let mut world = World::host();
    for v6 in [false, true] {
        world.listen(any(v6, 80), &TcpOptions::default());
    }
    let many = ["10.1.0.255", "255.255.255.255", "224.0.0.1", "ff02::1"];
    for to in many {
        let from = if to.contains(':') { HOST6[0] } else { HOST[0] };
        assert_eq!(world.give_packet(0, &packet(from, to, &syn_to(80))), Outcome::dropped(TcpDrop::ToGroup), "{to}");
    }
    // The address is ours, but the frame went to everybody.
    let frame =
        ethernet(HOST_MAC[0], MacAddress::BROADCAST, EthernetProtocol::Ipv4, &packet(HOST[0], ROUTER[0], &syn_to(80)));
    assert_eq!(world.give(0, &frame), Outcome::dropped(TcpDrop::ToGroup));
    world.assert_silent();
    assert_eq!(world.connections(), 0);
}

// RFC 9293 MUST-63.
#[test]
fn a_syn_from_an_invalid_source_is_dropped_without_an_answer() {
    let mut world = World::host();
    for v6 in [false, true] {
        world.listen(any(v6, 80), &TcpOptions::default());
    }
    let v4 =
        ["0.0.0.0", "127.0.0.1", "224.0.0.1", "240.0.0.1", "255.255.255.255", "10.1.0.255", "10.2.0.255", ROUTER[0]];
    for from in v4.into_iter().chain(["::", "::1", "ff02::1", "::ffff:10.1.0.9", ROUTER6[0]]) {
        let to = if from.contains(':') { ROUTER6[0] } else { ROUTER[0] };
        for port in [80, 81] {
            let outcome = world.give_packet(0, &packet(from, to, &syn_to(port)));
            assert_eq!(outcome, Outcome::dropped(IpDrop::SourceMartian), "{from}");
        }
    }
    world.assert_silent();
    assert_eq!(world.connections(), 0);
}

// RFC 9293 MUST-50, MUST-53.
#[test]
fn ip_options_are_ignored_and_source_routes_are_refused() {
    let mut world = World::host();
    for v6 in [false, true] {
        world.listen(any(v6, 80), &TcpOptions::default());
    }
    // A timestamp, a router alert, and one that nobody knows.
    for (port, options) in [(1, [68, 4, 5, 0]), (2, [0x94, 4, 0, 0]), (3, [0x5e, 3, 9, 0])] {
        let syn = segment(HOST[0], ROUTER[0], &Header { source_port: port, ..syn_to(80) });
        let packet = V4 { options: &options, ..V4::new(HOST[0], ROUTER[0], 6) }.packet(&syn);
        assert_eq!(world.give_packet(0, &packet), Outcome::Done, "{options:?}");
        assert!(tcp_of(&world.sent_packet(0)).flags.syn);
    }
    let with = |header: [u8; 8]| [&header[..], &segment(HOST6[0], ROUTER6[0], &syn_to(80))].concat();
    let ignored = v6(HOST6[0], ROUTER6[0], 60, 64, &with([6, 0, 0x1e, 4, 1, 2, 3, 4]));
    assert_eq!(world.give_packet(0, &ignored), Outcome::Done);
    assert!(tcp_of(&world.sent_packet(0)).flags.syn);
    let held = world.connections();
    let options = &[0x83, 7, 4, 10, 9, 9, 9, 0][..];
    let routed = V4 { options, ..V4::new(HOST[0], ROUTER[0], 6) }.packet(&segment(HOST[0], ROUTER[0], &syn_to(80)));
    let routed6 = v6(HOST6[0], ROUTER6[0], 43, 64, &with([6, 0, 0, 1, 0, 0, 0, 0]));
    for packet in [routed, routed6] {
        assert_eq!(world.give_packet(0, &packet), Outcome::dropped(IpDrop::SourceRoute));
    }
    assert_eq!(world.connections(), held);
}

// RFC 9293 MUST-15, MUST-67.
#[test]
fn the_mss_follows_the_device_and_a_default_replaces_a_missing_one() {
    for (v6, told, default) in [(false, 1_460, 536), (true, 1_440, 1_220)] {
        let mut world = World::host();
        let (from, to) = ends(v6);
        let listener = world.listen(any(v6, 80), &TcpOptions::default());
        assert_eq!(world.give_packet(0, &packet(from, to, &syn_to(80))), Outcome::Done);
        let synack = tcp_of(&world.sent_packet(0));
        assert_eq!(synack.options.mss, Some(told));
        assert_eq!(world.give_packet(0, &packet(from, to, &answer(&synack, Flags::default()))), Outcome::Done);
        let (id, _) = world.stack.tcp_accept(listener).unwrap().unwrap();
        assert_eq!(world.stack.tcp_info(id).unwrap().unwrap().segment_bytes, default);
        let (_, syn) = world.connect(any(v6, 0), &TcpOptions::default());
        assert_eq!(tcp_of(&syn).options.mss, Some(told));
    }
}

// RFC 9293 MUST-43, MUST-44, MUST-45.
#[test]
fn the_local_address_is_the_requested_one_or_that_of_the_route_and_stays() {
    for v6 in [false, true] {
        let [near, far] = if v6 { ROUTER6 } else { ROUTER };
        for (local, expected) in [(any(v6, 0), near), (socket(far, 0), far)] {
            let mut world = World::host();
            let (id, syn) = world.connect(local, &TcpOptions::default());
            let (from, to) = addresses(&syn);
            assert_eq!(from, expected);
            let synack = answer(&tcp_of(&syn), Flags { syn: true, ..Flags::default() });
            world.give_packet(0, &packet(&to, &from, &synack));
            assert_eq!(world.stack.tcp_state(id), Ok(StateName::Established));
            world.stack.tcp_send(world.now, id, b"x").unwrap();
            world.stack.tcp_close(world.now, id).unwrap();
            for frame in world.sent(0) {
                assert_eq!(addresses(&frame[14..]), (from.clone(), to.clone()));
            }
        }
    }
}

// RFC 9293 MUST-41, MUST-42.
#[test]
fn a_listener_may_share_its_port_with_connections_in_their_handshake() {
    let mut world = World::host();
    let local = socket(ROUTER[0], 5_000);
    let (id, syn) = world.connect(local, &TcpOptions::default());
    let listener = world.listen(local, &TcpOptions::default());
    assert_eq!(world.stack.tcp_listen(local, 4, &TcpOptions::default()), Err(TcpError::InUse));
    assert_eq!(world.stack.tcp_state(id), Ok(StateName::SynSent));
    // A connection in SYN-RECEIVED that a listener began does not prevent another listener either.
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &syn_to(5_000)));
    let synack = tcp_of(&world.sent_packet(0));
    let other = world.listen(socket("0.0.0.0", 5_000), &TcpOptions::default());
    let opened = answer(&tcp_of(&syn), Flags { syn: true, ..Flags::default() });
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &opened));
    assert_eq!(world.stack.tcp_state(id), Ok(StateName::Established));
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &answer(&synack, Flags::default())));
    assert_eq!((world.stack.tcp_acceptable(listener), world.stack.tcp_acceptable(other)), (Ok(1), Ok(0)));
}

// RFC 9293 MUST-11.
#[test]
fn a_reset_during_the_handshake_is_reported_to_the_connecting_socket_and_to_no_listener() {
    let mut world = World::host();
    let listener = world.listen(socket(ROUTER[0], 80), &TcpOptions::default());
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &syn_to(80)));
    let rst = Flags { rst: true, ..Flags::default() };
    let reset = |syn: &Header| Header { seq: syn.seq + 1, flags: rst, ..*syn };
    world.sent(0);
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &reset(&syn_to(80))));
    assert_eq!((world.connections(), world.stack.tcp_acceptable(listener), world.events()), (0, Ok(0), vec![]));
    // Opened by both sides at once.
    let (id, syn) = world.connect(socket(ROUTER[0], 5_000), &TcpOptions::default());
    let theirs = Header { source_port: tcp_of(&syn).destination_port, ..syn_to(5_000) };
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &theirs));
    assert_eq!(world.stack.tcp_state(id), Ok(StateName::SynReceived));
    world.give_packet(0, &packet(HOST[0], ROUTER[0], &reset(&theirs)));
    assert_eq!(world.events(), [TcpEvent::Connection(id)]);
    assert_eq!(world.stack.tcp_receive(world.now, id, &mut [0]), Err(TcpError::Failed(Failure::Refused)));
}

// RFC 9293 MUST-48, MUST-49, SHLD-21, SHLD-22.
#[test]
fn every_packet_of_a_connection_has_the_configured_traffic_class_and_hop_limit() {
    for v6 in [false, true] {
        let mut world = World::host();
        let (far, near) = ends(v6);
        let options = TcpOptions { hop_limit: 9, service: 0x48, ..TcpOptions::default() };
        let (id, syn) = world.connect(any(v6, 0), &options);
        assert_eq!(class_of(&syn), (0x48, 9));
        let synack = answer(&tcp_of(&syn), Flags { syn: true, ..Flags::default() });
        world.give_packet(0, &packet(far, near, &synack));
        assert_eq!(class_of(&world.sent_packet(0)), (0x48, 9));
        world.stack.tcp_set(world.now, id, TcpSetting::Service(0xb8)).unwrap();
        world.stack.tcp_set(world.now, id, TcpSetting::HopLimit(7)).unwrap();
        world.stack.tcp_close(world.now, id).unwrap();
        let fin = world.sent_packet(0);
        assert_eq!(class_of(&fin), (0xb8, 7));
        // TIME-WAIT answers in the same way, long after the connection itself is gone.
        let fin = answer(&tcp_of(&fin), Flags { fin: true, ..Flags::default() });
        for _ in 0..2 {
            world.give_packet(0, &packet(far, near, &fin));
            assert_eq!(class_of(&world.sent_packet(0)), (0xb8, 7));
        }
        assert_eq!(world.connections(), 0);
        // So do a listener's answers, those by cookie included.
        let listener = world.stack.tcp_listen(any(v6, 80), 1, &options).unwrap();
        for port in [1_001, 1_002, 1_003] {
            world.give_packet(0, &packet(far, near, &Header { source_port: port, ..syn_to(80) }));
            assert_eq!(class_of(&world.sent_packet(0)), (0x48, 9));
        }
        assert_eq!((world.connections(), world.stack.tcp_acceptable(listener)), (1, Ok(0)));
    }
}

#[test]
fn every_packet_to_a_prefix_has_its_hop_limit_unless_the_application_has_chosen_one() {
    for v6 in [false, true] {
        let mut world = World::host();
        let (far, near) = ends(v6);
        let mut settings = RouteSettings::default();
        settings.set_named("hoplimit", "9").unwrap();
        world.stack.set_route_settings(prefix(far, if v6 { 128 } else { 32 }), settings).unwrap();
        let (id, syn) = world.connect(any(v6, 0), &TcpOptions::default());
        assert_eq!(class_of(&syn), (0, 9));
        assert_eq!(world.stack.tcp_options(id).unwrap().hop_limit, 9);
        let synack = answer(&tcp_of(&syn), Flags { syn: true, ..Flags::default() });
        world.give_packet(0, &packet(far, near, &synack));
        assert_eq!(class_of(&world.sent_packet(0)), (0, 9));
        // The application chooses a hop limit, and takes its choice back.
        world.stack.tcp_set(world.now, id, TcpSetting::NoDelay(true)).unwrap();
        for (chosen, used) in [(7, 7), (64, 9)] {
            world.stack.tcp_set(world.now, id, TcpSetting::HopLimit(chosen)).unwrap();
            world.stack.tcp_send(world.now, id, b"x").unwrap();
            assert_eq!(class_of(&world.sent_packet(0)), (0, used));
        }
        world.stack.tcp_abort(world.now, id).unwrap();
        assert_eq!(class_of(&world.sent_packet(0)), (0, 9));
        let (_, syn) = world.connect(any(v6, 0), &TcpOptions { hop_limit: 7, ..TcpOptions::default() });
        assert_eq!(class_of(&syn), (0, 7));
        // A listener's answers, those by cookie included, and a reset without a listener.
        world.stack.tcp_listen(any(v6, 80), 1, &TcpOptions::default()).unwrap();
        for (port, to) in [(1_001, 80), (1_002, 80), (1_003, 81)] {
            world.give_packet(0, &packet(far, near, &Header { source_port: port, ..syn_to(to) }));
            assert_eq!(class_of(&world.sent_packet(0)), (0, 9), "{port}");
        }
    }
}

/// An ICMP error from the host of the first link about a packet.
fn error(kind: u8, code: u8, about: &[u8]) -> Vec<u8> {
    let (from, to) = ends(about[0] >> 4 == 6);
    let rest = [&[0; 4], about].concat();
    if from.contains(':') {
        v6(from, to, 58, 64, &icmp6(from, to, kind, code, &rest))
    } else {
        V4::new(from, to, 1).packet(&icmp(kind, code, &rest))
    }
}

const SOFT: [(u8, u8); 6] = [(3, 0), (3, 1), (3, 5), (11, 0), (11, 1), (12, 0)];
const SOFT6: [(u8, u8); 7] = [(1, 0), (1, 3), (3, 0), (3, 1), (4, 0), (4, 1), (4, 2)];

// RFC 9293 MUST-47, MUST-54, MUST-56, SHLD-25.
#[test]
fn a_soft_icmp_error_is_reported_to_its_connection_and_ends_none() {
    for (v6, errors) in [(false, &SOFT[..]), (true, &SOFT6[..])] {
        let mut world = World::host();
        let (id, syn) = world.connect(any(v6, 0), &TcpOptions::default());
        let (other, _) = world.connect(any(v6, 0), &TcpOptions::default());
        for (kind, code) in errors {
            for _ in 0..2 {
                assert_eq!(world.give_packet(0, &error(*kind, *code, &syn)), Outcome::Done, "{kind} {code}");
            }
            assert_eq!(world.events(), [TcpEvent::Connection(id)], "{kind} {code}: once");
            assert_eq!(world.stack.tcp_state(id), Ok(StateName::SynSent), "{kind} {code}");
            assert!(world.stack.tcp_readiness(id).unwrap().error);
            assert_eq!(world.stack.tcp_take_soft_error(id), Ok(Some(SegmentError::Soft)));
            assert_eq!(world.stack.tcp_take_soft_error(id), Ok(None));
            assert!(!world.stack.tcp_readiness(id).unwrap().error);
        }
        assert_eq!(world.stack.tcp_take_soft_error(other), Ok(None));
    }
}

// RFC 9293 MUST-54, SHLD-26.
#[test]
fn a_hard_icmp_error_ends_the_quoted_connection_during_its_handshake() {
    for (v6, errors) in [(false, &[(3, 2), (3, 3)][..]), (true, &[(1, 4)][..])] {
        for (kind, code) in errors {
            let mut world = World::host();
            let (id, syn) = world.connect(any(v6, 0), &TcpOptions::default());
            let (other, _) = world.connect(any(v6, 0), &TcpOptions::default());
            assert_eq!(world.give_packet(0, &error(*kind, *code, &syn)), Outcome::Done);
            let failed = Err(TcpError::Failed(Failure::Unreachable));
            assert_eq!(world.stack.tcp_receive(world.now, id, &mut [0]), failed, "{kind} {code}");
            assert_eq!(world.stack.tcp_state(other), Ok(StateName::SynSent));
        }
    }
}

// RFC 9293 MUST-55.
#[test]
fn a_source_quench_is_dropped_without_effect() {
    let mut world = World::host();
    let (id, syn) = world.connect(any(false, 0), &TcpOptions::default());
    assert_eq!(world.give_packet(0, &error(4, 0, &syn)), Outcome::dropped(IcmpDrop::Ignored));
    assert_eq!((world.events(), world.stack.tcp_take_soft_error(id)), (vec![], Ok(None)));
    assert_eq!(world.stack.tcp_state(id), Ok(StateName::SynSent));
    world.assert_silent();
}

// RFC 9293 MUST-47, SHLD-9, SHLD-20.
#[test]
fn an_application_can_ask_for_events_about_unanswered_retransmissions() {
    for reports in [true, false] {
        let mut net = Net::new(&[PLAIN]);
        let listener = net.listen(false, 80, 10);
        let (id, there) = net.open(false, 80, listener);
        assert_eq!(net.stream((0, id), (1, there), &content(1_000)), content(1_000));
        let now = net.now;
        net.first().tcp_set(now, id, TcpSetting::ReportErrors(reports)).unwrap();
        net.lost = Box::new(|_, _| true);
        net.first().tcp_send(now, id, b"?").unwrap();
        net.pass(Duration::from_millis(500));
        while net.first().tcp_poll_event().is_some() {}
        assert_eq!(net.first().tcp_delivery_problem(id), Ok(false), "one loss is none");
        net.pass(Duration::from_secs(30));
        assert_eq!(net.first().tcp_delivery_problem(id), Ok(true));
        let told: Vec<TcpEvent> = std::iter::from_fn(|| net.first().tcp_poll_event()).collect();
        assert_eq!(told, if reports { vec![TcpEvent::Connection(id)] } else { vec![] });
        net.lost = Box::new(|_, _| false);
        net.pass(Duration::from_secs(60));
        assert_eq!(net.first().tcp_delivery_problem(id), Ok(false), "what goes on is no problem");
    }
}
