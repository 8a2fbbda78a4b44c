//! Many connections: one after the other on one pair of addresses, at once, and as floods.

use crate::net::{Link, Net, address, any, content};
use siga_stack::drops::TcpDrop;
use siga_stack::limits::{HEADER_BYTES_MAX, TCP_TIME_WAITS_MAX};
use siga_stack::link::device::Agreed;
use siga_stack::link::frame::{DeviceId, Marks, Received};
use siga_stack::sockets::{ListenerId, TcpError, TcpEvent, TcpId, TcpOptions};
use siga_stack::tcp::{Config, Connection, Initial, Ports, Secret, StateName};
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::tcp::{Flags, Header, HeaderOptions, SeqNumber};
use smoltcp::wire::{IpAddress, TcpPacket};
use std::net::{IpAddr, SocketAddr};

/// A plain link on which connections cost least.
const FAST: Link =
    Link { mtu: 1_500, agreed: Agreed { checksum_unfilled: true, large_segments: false }, ethernet: false };

/// The side that closes first, and so enters TIME-WAIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum First {
    Client,
    Server,
}

fn time_waits(stack: &siga_stack::Stack) -> usize {
    stack.memory().held("TCP connections in TIME-WAIT")
}

/// Connects, asks, is answered and closes, at 150,000 times a virtual second; how many times it went well.
fn connect_and_ask(first: First, times: u32, timestamps: bool) -> (u32, Option<TcpError>) {
    let mut net = Net::new(&[FAST]);
    let options = TcpOptions { config: Config { timestamps, ..Config::LINUX }, ..TcpOptions::default() };
    let at = net.far(false, 80);
    let listener = net.last().tcp_listen(at, 10, &options).unwrap();
    let mut most = 0;
    for time in 0..times {
        net.now = Instant::from_ns(1_000_000_000 + u64::from(time) * 1_000_000_000 / 150_000);
        if net.stacks.iter().filter_map(siga_stack::Stack::poll_timeout).any(|due| due <= net.now) {
            let now = net.now;
            net.stacks.iter_mut().for_each(|stack| stack.handle_timeout(now));
        }
        if let Err(error) = ask(&mut net, listener, at, first, &options) {
            return (time, Some(error));
        }
        if time % 1_000 == 0 {
            most = most.max(net.stacks.iter().map(time_waits).sum());
        }
    }
    eprintln!("{first:?} closes first: {times} connections, at most {most} in TIME-WAIT");
    // A new connection replaces the one in TIME-WAIT that had its port: there are no more of them than ports.
    assert!((times.min(32_768) as usize - 1_000..=32_768).contains(&most), "{most}");
    assert_eq!(time_waits(&net.stacks[usize::from(first == First::Client)]), 0);
    (times, None)
}

fn ask(
    net: &mut Net,
    listener: ListenerId,
    at: SocketAddr,
    first: First,
    options: &TcpOptions,
) -> Result<(), TcpError> {
    let now = net.now;
    let here = net.first().tcp_connect(now, any(false), at, options)?;
    net.cross();
    assert_eq!(net.first().tcp_send(now, here, &[1; 64])?, 64);
    net.cross();
    let (there, _) = net.last().tcp_accept(listener)?.expect("the connection is open");
    let mut into = [0; 64];
    assert_eq!(net.last().tcp_receive(now, there, &mut into)?, Some(64));
    assert_eq!(net.last().tcp_send(now, there, &into)?, 64);
    net.cross();
    assert_eq!(net.first().tcp_receive(now, here, &mut into)?, Some(64));
    let close = |net: &mut Net, first: First| {
        let result = match first {
            First::Client => net.first().tcp_close(now, here),
            First::Server => net.last().tcp_close(now, there),
        };
        net.cross();
        result
    };
    close(net, first)?;
    close(net, if first == First::Client { First::Server } else { First::Client })
}

#[test]
fn ports_are_reused_without_a_failed_connect() {
    // More than there are ports, on one pair of addresses, in a quarter of a second.
    for first in [First::Server, First::Client] {
        assert_eq!(connect_and_ask(first, 36_000, true), (36_000, None), "{first:?} closes first");
    }
}

#[test]
#[ignore = "takes a minute or two; `cargo xtask nightly --only dialogue` runs it"]
fn ports_are_reused_for_a_hundred_seconds_without_a_failed_connect() {
    std::thread::scope(|scope| {
        for first in [First::Server, First::Client] {
            scope.spawn(move || assert_eq!(connect_and_ask(first, 15_000_000, true), (15_000_000, None), "{first:?}"));
        }
    });
}

#[test]
fn ports_without_timestamps_stay_in_time_wait_until_none_is_left() {
    // RFC 6191 cannot tell connections apart then: a port stays in TIME-WAIT for its time.
    assert_eq!(connect_and_ask(First::Client, 36_000, false), (32_768, Some(TcpError::PortsExhausted)));
}

#[test]
fn a_full_time_wait_table_evicts_the_oldest() {
    let mut net = Net::new(&[FAST]);
    // Without timestamps each TIME-WAIT keeps its port, so a new connection shows which of them was dropped.
    let options = TcpOptions { config: Config { timestamps: false, ..Config::LINUX }, ..TcpOptions::default() };
    let ends = [81, 82, 83, 84, 85].map(|port| {
        let at = net.far(false, port);
        (net.last().tcp_listen(at, 10, &options).unwrap(), at)
    });
    let connect = |net: &mut Net, end: usize| ask(net, ends[end].0, ends[end].1, First::Client, &options);
    for n in 0..TCP_TIME_WAITS_MAX {
        connect(&mut net, n / 32_768).unwrap();
    }
    for end in 0..4 {
        assert_eq!(connect(&mut net, end), Err(TcpError::PortsExhausted));
    }
    assert_eq!(time_waits(&net.stacks[0]), TCP_TIME_WAITS_MAX);
    connect(&mut net, 4).unwrap();
    assert_eq!(time_waits(&net.stacks[0]), TCP_TIME_WAITS_MAX);
    assert_eq!(connect(&mut net, 1), Err(TcpError::PortsExhausted));
    connect(&mut net, 0).unwrap();
    net.stacks[0].check();
    assert_eq!(net.dropped(), []);
}

#[test]
fn unpolled_events_of_udp_sockets_take_bounded_memory() {
    let mut net = Net::new(&[FAST]);
    let (now, stack) = (net.now, &mut net.stacks[0]);
    let at = SocketAddr::new(address(false, 0, 1), 7);
    for _ in 0..1_000 {
        let socket = stack.udp_bind(at).unwrap();
        stack.udp_send(now, socket, Some(at), b"news").unwrap();
        assert!(stack.udp_receive(socket).unwrap().is_some());
        stack.udp_close(socket).unwrap();
        assert!(stack.memory().held("events of UDP sockets") <= 4);
    }
    // One socket that lives, and the last events of others.
    let socket = stack.udp_bind(at).unwrap();
    stack.udp_send(now, socket, Some(at), b"news").unwrap();
    assert_eq!((stack.udp_poll_event(), stack.udp_poll_event()), (Some(socket), None));
    assert_eq!(stack.memory().held("events of UDP sockets"), 0);
}

#[test]
fn unpolled_events_of_tcp_sockets_take_bounded_memory() {
    let mut net = Net::new(&[FAST]);
    let listener = net.listen(false, 80, 10);
    for _ in 0..1_000 {
        let (here, there) = net.open(false, 80, listener);
        let now = net.now;
        net.first().tcp_abort(now, here).unwrap();
        net.cross();
        net.last().tcp_close(now, there).unwrap();
        assert!(net.stacks.iter().all(|stack| stack.memory().held("events of TCP sockets") <= 8));
    }
    // One connection that lives, and the last events of others.
    let (here, _) = net.open(false, 80, listener);
    let events: Vec<TcpEvent> = std::iter::from_fn(|| net.first().tcp_poll_event()).collect();
    assert_eq!(events, [TcpEvent::Connection(here)]);
    let memory = net.stacks[0].memory();
    assert_eq!((memory.held("TCP connections"), memory.held("events of TCP sockets")), (1, 0));
}

#[test]
fn time_wait_ends_and_is_bounded() {
    let mut net = Net::new(&[FAST]);
    let options = TcpOptions::default();
    let at = net.far(true, 80);
    let listener = net.last().tcp_listen(at, 10, &options).unwrap();
    for _ in 0..100 {
        let (here, there) = net.open(true, 80, listener);
        let now = net.now;
        net.first().tcp_close(now, here).unwrap();
        net.cross();
        net.last().tcp_close(now, there).unwrap();
        net.cross();
    }
    let waits = |net: &Net| time_waits(&net.stacks[0]);
    assert_eq!((waits(&net), net.stacks[0].memory().held("TCP connections")), (100, 0));
    net.pass(Duration::from_secs(59));
    assert_eq!(waits(&net), 100);
    net.pass(Duration::from_secs(2));
    assert_eq!(waits(&net), 0);
}

#[test]
fn ten_thousand_simultaneous_connections_each_get_their_own_bytes() {
    let mut net = Net::new(&[FAST, FAST]);
    let at = net.far(false, 80);
    let listener = net.last().tcp_listen(at, 100, &TcpOptions::default()).unwrap();
    let pairs: Vec<(TcpId, TcpId)> = (0..10_000).map(|_| net.open(false, 80, listener)).collect();
    let question = |at: usize| content(50 + at % 100 + at / 100)[at % 50..].to_vec();
    let now = net.now;
    for (at, (here, _)) in pairs.iter().enumerate() {
        let question = question(at);
        assert_eq!(net.first().tcp_send(now, *here, &question), Ok(question.len()));
    }
    net.cross();
    let mut into = vec![0; 1_000];
    for (at, (_, there)) in pairs.iter().enumerate() {
        let count = net.last().tcp_receive(now, *there, &mut into).unwrap().unwrap();
        assert_eq!(into[..count], question(at));
    }
    net.pass(Duration::from_secs(2));
    assert_eq!(net.dropped(), []);
    let idle = net.stacks[0].memory();
    assert!(idle.bytes_held() < 10_000 * 10_000, "{idle}");
    for (here, there) in pairs {
        let now = net.now;
        net.last().tcp_close(now, there).unwrap();
        net.first().tcp_close(now, here).unwrap();
    }
    net.pass(Duration::from_secs(70));
    for stack in &net.stacks {
        let memory = stack.memory();
        assert_eq!((memory.held("TCP connections"), memory.held("bytes in TCP buffers")), (0, 0));
        assert_eq!(memory.held("TCP connections in TIME-WAIT"), 0);
        assert_eq!(stack.poll_timeout(), None);
    }
}

/// An IPv4 packet with a segment.
fn packet(from: IpAddr, to: IpAddr, header: &Header, payload: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(from), IpAddr::V4(to)) = (from, to) else { panic!("IPv4") };
    let segment_bytes = header.header_bytes() + payload.len();
    let mut segment = vec![0; header.header_bytes()];
    header.emit(&mut segment);
    segment.extend_from_slice(payload);
    let mut tcp = TcpPacket::new_unchecked(&mut segment);
    tcp.fill_checksum(&IpAddress::Ipv4(from), &IpAddress::Ipv4(to));
    let mut bytes = vec![0; 20];
    let mut ip = smoltcp::wire::Ipv4Packet::new_unchecked(&mut bytes);
    ip.set_version(4);
    ip.set_header_len(20);
    ip.set_total_len(u16::try_from(20 + segment_bytes).unwrap());
    ip.set_hop_limit(64);
    ip.set_next_header(smoltcp::wire::IpProtocol::Tcp);
    ip.set_src_addr(from);
    ip.set_dst_addr(to);
    ip.fill_checksum();
    bytes.extend_from_slice(&segment);
    bytes
}

fn give(net: &mut Net, packet: &[u8]) {
    let (header, payload) = packet.split_at(packet.len().min(HEADER_BYTES_MAX));
    let now = net.now;
    net.last().handle_frame(now, DeviceId(0), Received { header, payload, marks: Marks::default() });
}

#[test]
fn a_syn_flood_costs_a_backlog_and_legitimate_clients_still_connect() {
    let mut net = Net::new(&[FAST]);
    let listener = net.listen(false, 80, 64);
    let before = net.stacks[1].memory().bytes_held();
    let mut into = vec![0; 2_000];
    for n in 0..50_000_u32 {
        let from = IpAddr::from([10, 0, 0, 3 + u8::try_from(n % 200).unwrap()]);
        let header = Header {
            source_port: u16::try_from(1_024 + n % 60_000).unwrap(),
            destination_port: 80,
            seq: SeqNumber(n),
            flags: Flags { syn: true, ..Flags::default() },
            window: 1_000,
            options: HeaderOptions { mss: Some(1_460), ..HeaderOptions::default() },
            ..Header::default()
        };
        give(&mut net, &packet(from, address(false, 0, 2), &header, &[]));
        let now = net.now;
        while net.last().poll_transmit(now, DeviceId(0), &mut into).is_some() {}
        net.now += Duration::from_micros(10);
    }
    let memory = net.stacks[1].memory();
    assert_eq!(memory.held("TCP connections"), 64);
    assert!(memory.bytes_held() < before + 64 * 4_096, "{memory}");
    // Somebody real connects in the middle of it, and is served.
    let (here, there) = net.open(false, 80, listener);
    let bytes = content(50_000);
    assert_eq!(net.stream((0, here), (1, there), &bytes), bytes);
    // The half-open ones end by themselves.
    net.pass(Duration::from_secs(200));
    assert_eq!(net.stacks[1].memory().held("TCP connections"), 1);
}

/// A connection to port 80, from a host that has no stack.
struct Stranger {
    from: IpAddr,
    connection: Connection,
}

impl Stranger {
    /// Exchanges segments with the last stack until neither side has one.
    fn cross(&mut self, net: &mut Net) {
        let (now, to) = (net.now, address(false, 0, 2));
        let mut into = vec![0; 2_000];
        let mut is_moving = true;
        while std::mem::take(&mut is_moving) {
            while let Some(segment) = self.connection.poll_transmit(now, 0) {
                let mut payload = vec![0; segment.payload.len as usize];
                self.connection.copy_payload(segment.payload, 0, &mut payload);
                give(net, &packet(self.from, to, &segment.header, &payload));
                is_moving = true;
            }
            while let Some(frame) = net.last().poll_transmit(now, DeviceId(0), &mut into) {
                let (header, header_bytes) = Header::parse(&into[20..frame.len]).unwrap();
                let payload = &into[20 + header_bytes..frame.len];
                self.connection.handle_segment(now, &header, false, payload, 0).unwrap();
                is_moving = true;
            }
        }
    }
}

#[test]
fn connections_of_several_hosts_with_equal_ports_get_their_own_bytes() {
    let mut net = Net::new(&[Link { agreed: Agreed::default(), ..FAST }]);
    let listener = net.listen(false, 80, 64);
    let now = net.now;
    let mut strangers: Vec<(Stranger, TcpId)> = (10..14)
        .map(|host| {
            let initial = Initial::new(Secret([1, 2]), &[host], now);
            let ports = Ports { local: 5_000, remote: 80 };
            let connection = Connection::connect(now, Config::LINUX, ports, initial).unwrap();
            let mut stranger = Stranger { from: [10, 0, 0, host].into(), connection };
            stranger.cross(&mut net);
            let (there, _) = net.last().tcp_accept(listener).unwrap().unwrap();
            (stranger, there)
        })
        .collect();
    for round in 0..20_u8 {
        for (stranger, there) in &mut strangers {
            let IpAddr::V4(from) = stranger.from else { unreachable!("an IPv4 address") };
            let bytes = [from.octets()[3], round];
            stranger.connection.send(now, &bytes).unwrap();
            stranger.cross(&mut net);
            let mut into = [0; 4];
            assert_eq!(net.last().tcp_receive(now, *there, &mut into), Ok(Some(2)));
            assert_eq!(net.last().tcp_send(now, *there, &into[..2]), Ok(2));
            stranger.cross(&mut net);
            assert_eq!((stranger.connection.receive(now, &mut into), &into[..2]), (2, &bytes[..]));
        }
    }
    assert!(net.stacks[1].drops().iter().all(|(_, count)| count == 0), "{:?}", net.stacks[1].drops());
}

#[test]
fn a_flood_of_tiny_gaps_stays_inside_the_buffer() {
    let mut net = Net::new(&[FAST]);
    let listener = net.listen(false, 80, 64);
    let (here, there) = net.open(false, 80, listener);
    net.keep_frames = true;
    let now = net.now;
    net.first().tcp_send(now, here, b"x").unwrap();
    net.cross();
    let sent = net.frames.iter().find(|(from, ..)| *from == 0).unwrap().1.clone();
    let (last, header_bytes) = Header::parse(&sent[20..]).unwrap();
    assert_eq!(sent.len() - 20 - header_bytes, 1);
    // One byte in every other place behind the next one.
    let mut into = vec![0; 2_000];
    let own = net.stacks[0].tcp_addresses(here).unwrap().0;
    for n in 0..40_000 {
        let header = Header { seq: last.seq + 3 + 2 * (n % 30_000), ..last };
        give(&mut net, &packet(own.ip(), address(false, 0, 2), &header, &[7]));
        let now = net.now;
        while net.last().poll_transmit(now, DeviceId(0), &mut into).is_some() {}
    }
    assert!(net.stacks[1].memory().held("bytes in TCP buffers") < 300_000, "{}", net.stacks[1].memory());
    assert!(net.stacks[1].drops().get(TcpDrop::GapLimit) > 20_000);
    assert_eq!(net.stacks[1].tcp_state(there), Ok(StateName::Established));
}
