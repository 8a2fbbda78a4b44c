//! Guests that send from addresses of others, over a real network, with a hostile guest that sends any packet.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

#[path = "common/hostile_guest.rs"]
mod hostile_guest;
#[path = "common/network.rs"]
mod network;
#[path = "common/packets.rs"]
mod packets;

use hostile_guest::{HostileGuest, Wire};
use network::{Network, wait_until};
use packets::{datagram, echo, fragment, is_echo_reply, syn, unreachable};
use siga_fabric::sockets::UdpSocket;
use std::net::IpAddr;
use std::time::Duration;

/// A hostile guest on a network with a server and a victim, and on one with a router to a client.
const TOPOLOGY: &str = r#"
[network.lan]
type = "hipersockets"
[network.link]
type = "vctc"
[network.far]
type = "hipersockets"
access = "restricted"
grant = ["gate"]
[guest.client]
external = true
device = [{ network = "link", addresses = ["10.0.1.1/24", "fd00:1::1/64"] }]
route = [{ to = "default", via = "10.0.1.2" }, { to = "default", via = "fd00:1::2" }]
[guest.router]
forwarding = true
device = [
    { name = "link", network = "link", addresses = ["10.0.1.2/24", "fd00:1::2/64"] },
    { name = "lan", network = "lan", addresses = ["10.0.2.1/24", "fd00:2::1/64"] },
]
[guest.server]
device = [{ network = "lan", addresses = ["10.0.2.2/24", "fd00:2::2/64"] }]
route = [{ to = "10.0.1.0/24", via = "10.0.2.1" }, { to = "10.9.0.0/16", via = "10.0.2.9" }]
[guest.victim]
device = [{ network = "lan", addresses = ["10.0.2.3/24", "fd00:2::3/64"] }]
[guest.hostile]
external = true
device = [{ name = "own", network = "lan", addresses = ["10.0.2.66/24", "fd00:2::66/64"] }]
[guest.gate]
external = true
forwarding = true
device = [
    { name = "lan", network = "lan", addresses = ["10.0.2.9/24"] },
    { name = "far", network = "far", addresses = ["10.9.0.1/16"] },
]
"#;

const REFUSED: &str = "ip: source not allowed";

fn attach(network: &Network, guest: &str) -> HostileGuest {
    HostileGuest::attach(&network.run_dir(), &network.name, guest, &network.secret(guest))
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// How many packets a guest has dropped because of their sources.
fn refused(network: &Network, guest: &str) -> u64 {
    network.stack(guest)["drops"][REFUSED].as_u64().unwrap_or(0)
}

/// Asks the partner for an echo, and waits for the answer: whatever was sent before has been taken in.
fn settle(wire: &mut Wire, own: &str, partner: &str) {
    wire.send(&echo(ip(own), ip(partner)));
    wire.wait_for(|packet| is_echo_reply(packet, ip(partner), ip(own)));
}

/// One packet of each kind in a name.
fn every_kind(from: &str, to: &str) -> Vec<Vec<u8>> {
    let (from, to) = (ip(from), ip(to));
    let mut all = vec![
        echo(from, to),
        datagram(from, to, (5, 6), b"in whose name"),
        syn(from, to, (1_000, 80)),
        fragment(from, to, 7, 0, &[1; 64]),
        unreachable(from, to),
    ];
    if from.is_ipv4() {
        all.push(datagram(from, ip("239.1.2.3"), (5, 6), b"to a group"));
        all.push(datagram(from, ip("255.255.255.255"), (5, 6), b"to all"));
    } else {
        all.push(datagram(from, ip("ff05::123"), (5, 6), b"to a group"));
    }
    all
}

/// The ring pairs of a guest.
fn pairs(network: &Network, guest: &str) -> u32 {
    network.status(guest).pairs
}

/// Echo requests in another guest's name were answered to that guest.
#[test]
fn echo_requests_with_the_source_of_another_guest_get_no_answer() {
    let network = Network::up("names", TOPOLOGY);
    let mut hostile = attach(&network, "hostile");
    let mut wire = hostile.link("own", "server.dev0");
    hostile.stay();
    settle(&mut wire, "10.0.2.66", "10.0.2.2");
    let mut sent = 0;
    for (victim, server) in [
        ("10.0.2.3", "10.0.2.2"),
        ("10.0.2.1", "10.0.2.2"),
        ("10.0.1.1", "10.0.2.2"),
        ("10.0.2.200", "10.0.2.2"),
        ("fd00:2::3", "fd00:2::2"),
        ("fe80::1", "fd00:2::2"),
        ("2001:db8::1", "fd00:2::2"),
    ] {
        for packet in every_kind(victim, server) {
            wire.send(&packet);
            sent += 1;
        }
    }
    settle(&mut wire, "10.0.2.66", "10.0.2.2");
    settle(&mut wire, "fd00:2::66", "fd00:2::2");
    assert_eq!(refused(&network, "server"), sent);
    assert_eq!(pairs(&network, "server"), 1, "nothing was sent to anybody but the hostile guest");
}

#[test]
fn a_router_does_not_forward_spoofed_sources() {
    let network = Network::up("passing", TOPOLOGY);
    let client = network.attach("client");
    let socket = UdpSocket::bind(&client, "10.0.1.1:6".parse().unwrap()).unwrap();
    socket.set_timeout(Some(Duration::from_secs(30)));
    let mut hostile = attach(&network, "hostile");
    let mut wire = hostile.link("own", "router.lan");
    hostile.stay();
    settle(&mut wire, "10.0.2.66", "10.0.2.1");
    for name in ["10.0.2.2", "10.0.2.3", "10.0.1.1", "10.0.1.9", "8.8.8.8"] {
        wire.send(&datagram(ip(name), ip("10.0.1.1"), (5, 6), b"forged"));
    }
    wire.send(&datagram(ip("10.0.2.66"), ip("10.0.1.1"), (5, 6), b"honest"));
    let mut into = [0; 100];
    let (count, from) = socket.recv_from(&mut into).unwrap();
    assert_eq!((&into[..count], from), (&b"honest"[..], "10.0.2.66:5".parse().unwrap()));
    // It reports nothing while it is in no operation.
    drop(socket);
    drop(client);
    // The name of the receiver itself is no guest's to use either, but it was refused by the router first.
    assert_eq!(refused(&network, "router"), 5);
}

/// A router may send what its routes lead to elsewhere, and nothing in the name of a partner on the shared network.
#[test]
fn a_hostile_router_sends_only_from_addresses_behind_it() {
    let network = Network::up("gates", TOPOLOGY);
    let mut gate = attach(&network, "gate");
    let mut wire = gate.link("lan", "server.dev0");
    gate.stay();
    settle(&mut wire, "10.0.2.9", "10.0.2.2");
    for behind in ["10.9.0.1", "10.9.7.7"] {
        settle(&mut wire, behind, "10.0.2.2");
    }
    assert_eq!(refused(&network, "server"), 0);
    for other in ["10.0.2.3", "10.0.2.1", "10.0.2.77", "10.0.1.1", "8.8.8.8"] {
        wire.send(&echo(ip(other), ip("10.0.2.2")));
    }
    settle(&mut wire, "10.0.2.9", "10.0.2.2");
    assert_eq!(refused(&network, "server"), 5);
}

#[test]
fn the_permitted_sources_of_a_router_follow_its_access_to_other_networks() {
    let network = Network::up("follows", TOPOLOGY);
    let mut gate = attach(&network, "gate");
    let mut wire = gate.link("lan", "server.dev0");
    gate.stay();
    settle(&mut wire, "10.9.7.7", "10.0.2.2");
    network.set_access("far", "gate", false);
    wait_until("what leads to another network is still taken", || {
        wire.send(&echo(ip("10.9.7.7"), ip("10.0.2.2")));
        refused(&network, "server") > 0
    });
    // Its own address there is nobody else's.
    settle(&mut wire, "10.9.0.1", "10.0.2.2");
    network.set_access("far", "gate", true);
    wait_until("what leads to another network is refused", || {
        wire.send(&echo(ip("10.9.7.7"), ip("10.0.2.2")));
        std::thread::sleep(Duration::from_millis(10));
        std::iter::from_fn(|| wire.receive()).any(|packet| is_echo_reply(&packet, ip("10.0.2.2"), ip("10.9.7.7")))
    });
}
