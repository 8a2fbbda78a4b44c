//! Tables filled to their bound: one more is a typed error or a counted drop, and room is there again as soon as one goes.

use crate::net::{Link, Net, address, any};
use siga_stack::Stack;
use siga_stack::drops::TcpDrop;
use siga_stack::limits::{DEVICES_MAX, LOOPBACK_PACKETS_MAX, TCP_CONNECTIONS_MAX, TCP_LISTENERS_MAX, UDP_SOCKETS_MAX};
use siga_stack::link::device::{Agreed, DeviceConfig, DeviceError, Medium};
use siga_stack::link::frame::DeviceId;
use siga_stack::sockets::{TcpError, TcpId, TcpOptions};
use siga_stack::stack::StackConfig;
use siga_stack::tcp::{Config, Keepalive, StateName};
use siga_stack::time::Duration;
use siga_stack::udp::UdpError;
use std::net::{IpAddr, SocketAddr};

const LINK: Link =
    Link { mtu: 1_500, agreed: Agreed { checksum_unfilled: true, large_segments: false }, ethernet: false };

/// As many addresses and ports of the first host as there are numbers below 65,536.
fn places() -> impl Iterator<Item = SocketAddr> {
    let ports = |v6| move |port| SocketAddr::new(address(v6, 0, 1), port);
    (1..=u16::MAX).map(ports(false)).chain([1].map(ports(true)))
}

/// One more than those.
fn another() -> SocketAddr {
    SocketAddr::new(address(true, 0, 1), 2)
}

#[test]
fn a_connection_above_the_limit_is_refused_until_another_ends() {
    let mut net = Net::new(&[LINK]);
    let options = TcpOptions::default();
    let own = SocketAddr::new(address(false, 0, 1), 9);
    let listener = net.first().tcp_listen(own, 10, &options).unwrap();
    // They stay where they are: their SYNs are lost, and no time passes.
    let now = net.now;
    net.lost = Box::new(|from, frame| from == 0 && frame[33] == 2);
    let connect = |net: &mut Net, port| {
        let to = net.far(false, port);
        net.first().tcp_connect(now, any(false), to, &options)
    };
    let open: Vec<TcpId> =
        (0..TCP_CONNECTIONS_MAX).map(|n| connect(&mut net, u16::try_from(n / 32_768).unwrap() + 1).unwrap()).collect();
    assert_eq!(connect(&mut net, 100), Err(TcpError::Full));
    // The stack answers a new peer's SYN with a cookie; the ACK that returns the cookie finds no room.
    let there = net.last().tcp_connect(now, any(false), own, &options).unwrap();
    net.cross();
    assert_eq!(net.stacks[1].tcp_state(there), Ok(StateName::Established));
    assert_eq!(net.first().tcp_accept(listener), Ok(None));
    assert_eq!(net.stacks[0].drops().get(TcpDrop::BacklogFull), 1);
    assert_eq!(net.stacks[0].memory().held("TCP connections"), TCP_CONNECTIONS_MAX);
    // There is room for this peer as soon as another connection ends, and only for this peer.
    net.first().tcp_abort(now, open[7]).unwrap();
    net.last().tcp_send(now, there, b"x").unwrap();
    net.cross();
    assert!(net.first().tcp_accept(listener).unwrap().is_some());
    assert_eq!(connect(&mut net, 100), Err(TcpError::Full));
    net.first().tcp_abort(now, open[8]).unwrap();
    assert!(connect(&mut net, 100).is_ok());
}

#[test]
fn a_listener_above_the_limit_is_refused_until_another_closes() {
    let mut net = Net::new(&[LINK]);
    let (now, stack) = (net.now, net.first());
    let listen = |stack: &mut Stack, at| stack.tcp_listen(at, 1, &TcpOptions::default());
    let listeners: Vec<_> = places().map(|at| listen(stack, at).unwrap()).collect();
    assert_eq!((listeners.len(), stack.memory().held("TCP listeners")), (TCP_LISTENERS_MAX, TCP_LISTENERS_MAX));
    assert_eq!(listen(stack, another()), Err(TcpError::Full));
    stack.tcp_unlisten(now, listeners[99]).unwrap();
    assert!(listen(stack, another()).is_ok());
    assert_eq!(listen(stack, SocketAddr::new(address(true, 0, 1), 3)), Err(TcpError::Full));
}

#[test]
fn a_udp_socket_above_the_limit_is_refused_until_another_closes() {
    let mut net = Net::new(&[LINK]);
    let stack = net.first();
    let sockets: Vec<_> = places().map(|at| stack.udp_bind(at).unwrap()).collect();
    assert_eq!((sockets.len(), stack.memory().held("UDP sockets")), (UDP_SOCKETS_MAX, UDP_SOCKETS_MAX));
    assert_eq!(stack.udp_bind(another()), Err(UdpError::Full));
    stack.udp_close(sockets[99]).unwrap();
    assert!(stack.udp_bind(another()).is_ok());
    assert_eq!(stack.udp_bind(SocketAddr::new(address(true, 0, 1), 3)), Err(UdpError::Full));
}

#[test]
fn group_memberships_of_sockets_are_counted_until_they_leave() {
    let mut net = Net::new(&[LINK]);
    let (now, stack) = (net.now, net.first());
    let socket = stack.udp_bind(SocketAddr::new([0, 0, 0, 0].into(), 7)).unwrap();
    let group = |last| IpAddr::from([224, 1, 1, last]);
    let count = |stack: &Stack| stack.memory().held("groups of UDP sockets");
    stack.udp_join(now, socket, group(1), DeviceId(0)).unwrap();
    stack.udp_join(now, socket, group(2), DeviceId(0)).unwrap();
    assert_eq!(count(stack), 2);
    stack.udp_leave(now, socket, group(1), DeviceId(0)).unwrap();
    assert_eq!(count(stack), 1);
    stack.udp_close(socket).unwrap();
    assert_eq!(count(stack), 0);
}

#[test]
fn a_device_above_the_limit_is_refused() {
    let mut stack = Stack::new(StackConfig::default());
    let config = || DeviceConfig { medium: Medium::Ip, mtu: 1_500, addresses: Vec::new(), agreed: LINK.agreed };
    for id in 0..DEVICES_MAX {
        assert_eq!(stack.add_device(config()), Ok(DeviceId(u16::try_from(id).unwrap())));
    }
    assert_eq!(stack.add_device(config()), Err(DeviceError::Full));
}

#[test]
fn loopback_packets_above_the_limit_of_one_call_are_due_at_once() {
    const CONNECTIONS: usize = 100;
    let mut net = Net::new(&[LINK]);
    let keepalive = Some(Keepalive { idle: Duration::from_secs(10), ..Keepalive::default() });
    let options = TcpOptions { config: Config { keepalive, ..Config::LINUX }, ..TcpOptions::default() };
    let own = SocketAddr::new(address(false, 0, 1), 9);
    let now = net.now;
    let listener = net.first().tcp_listen(own, CONNECTIONS, &options).unwrap();
    let open = |stack: &mut Stack| {
        let here = stack.tcp_connect(now, any(false), own, &options).unwrap();
        [here, stack.tcp_accept(listener).unwrap().unwrap().0]
    };
    let ends: Vec<TcpId> = (0..CONNECTIONS).flat_map(|_| open(net.first())).collect();
    net.pass(Duration::from_millis(9_900));
    // All probe at the same time, and have to answer.
    net.now += Duration::from_secs(1);
    let mut calls = 0;
    while net.stacks[0].poll_timeout().is_some_and(|due| due <= net.now) {
        let now = net.now;
        net.first().handle_timeout(now);
        calls += 1;
    }
    assert!(calls > 2 * ends.len() / LOOPBACK_PACKETS_MAX, "{calls} calls");
    assert!(ends.iter().all(|end| net.stacks[0].tcp_state(*end) == Ok(StateName::Established)));
    // A probe lies before the window, and nothing else was dropped.
    assert_eq!(net.dropped(), [(0, "tcp: out of window".to_owned(), u64::try_from(ends.len()).unwrap())]);
    assert_eq!(net.stacks[0].memory().held("bytes of packets to the stack itself"), 0);
}

#[test]
fn a_listener_defers_connections_without_bytes_for_a_time() {
    let mut net = Net::new(&[LINK]);
    let time = Duration::from_secs(5);
    let deferring = TcpOptions { defer_accept: Some(time), ..TcpOptions::default() };
    let own = SocketAddr::new(address(false, 0, 1), 9);
    let listener = net.first().tcp_listen(own, 3, &TcpOptions::default()).unwrap();
    net.first().tcp_set_listener(listener, &deferring).unwrap();
    let open = |net: &mut Net| {
        let now = net.now;
        let id = net.last().tcp_connect(now, any(false), own, &TcpOptions::default()).unwrap();
        net.cross();
        assert_eq!(net.stacks[1].tcp_state(id), Ok(StateName::Established));
        (id, net.stacks[1].tcp_addresses(id).unwrap().0.port())
    };
    let accepted = |net: &mut Net| net.first().tcp_accept(listener).unwrap().map(|(_, peer)| peer.port());
    let [(_, silent), (sends, sender), (closes, closer)] = std::array::from_fn(|_| open(&mut net));
    assert_eq!((net.first().tcp_acceptable(listener), accepted(&mut net)), (Ok(0), None));
    net.stacks[0].check();
    let now = net.now;
    net.last().tcp_send(now, sends, b"x").unwrap();
    net.cross();
    assert_eq!(accepted(&mut net), Some(sender), "bytes have arrived");
    net.last().tcp_close(now, closes).unwrap();
    net.cross();
    assert_eq!(accepted(&mut net), Some(closer), "no bytes will arrive");
    assert_eq!(accepted(&mut net), None);
    net.pass(time + Duration::from_secs(1));
    assert_eq!(accepted(&mut net), Some(silent), "the time is over");
    // As many connections as may be opening are deferred. Others, which open by SYN cookies, are not.
    let [_, _, _, (_, last)] = std::array::from_fn(|_| open(&mut net));
    assert_eq!((accepted(&mut net), accepted(&mut net)), (Some(last), None));
    net.stacks[0].check();
}
