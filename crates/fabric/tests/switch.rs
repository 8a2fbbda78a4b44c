//! Hostile guests on a switch: what they send harms only themselves.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they measured")]

#[path = "common/hostile_guest.rs"]
mod hostile_guest;
#[path = "common/network.rs"]
mod network;

use hostile_guest::HostileGuest;
use network::{Network, PATIENCE, wait_until};
use siga_fabric::client::Client;
use siga_fabric::protocol::message::Order;
use siga_fabric::protocol::request::Request;
use siga_ring::Shape;
use siga_ring::arena::OwnArena;
use std::os::fd::OwnedFd;

const SWITCH: &str = r#"
[network.lan]
type = "vswitch"
[guest.one]
device = [{ network = "lan", addresses = ["10.0.3.1/24", "fd00:3::1/64"] }]
[guest.two]
device = [{ network = "lan", addresses = ["10.0.3.2/24", "fd00:3::2/64"] }]
[guest.hostile]
external = true
device = [{ network = "lan", addresses = ["10.0.3.3/24"], mac = "02:00:00:00:00:03" }]
[guest.sender]
external = true
device = [{ network = "lan", addresses = ["10.0.3.4/24"], mac = "02:00:00:00:00:04" }]
"#;
/// The same guests with cards, and the number of buffers of a ring to the adapter.
fn networks() -> [(String, u16); 2] {
    let cards = "type = \"qdio\"\nlayer = \"ethernet\"\nmtu = 9000\nwire = \"10gbe\"";
    [(SWITCH.to_owned(), 32), (SWITCH.replace("type = \"vswitch\"", cards), 128)]
}

const BROADCAST: [u8; 6] = [0xff; 6];
const OWN: [u8; 6] = [2, 0, 0, 0, 0, 3];

fn attach(network: &Network) -> HostileGuest {
    HostileGuest::attach(&network.run_dir(), &network.name, "hostile", &network.secret("hostile"))
}

fn counter(network: &Network, name: &str) -> u64 {
    network.counter("lan", name)
}

/// An ARP request for the address of guest `one`.
fn arp(source: [u8; 6], sender: [u8; 6], from: [u8; 4]) -> Vec<u8> {
    let mut frame = [BROADCAST, source].concat();
    frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]);
    frame.extend(sender);
    frame.extend(from);
    frame.extend([0; 6]);
    frame.extend([10, 0, 3, 1]);
    frame.resize(60, 0);
    frame
}

#[test]
fn frames_of_a_hostile_guest_are_answered_only_if_their_addresses_are_its_own() {
    networks().iter().for_each(|(topology, _)| only_honest_frames_are_answered(topology));
}

fn only_honest_frames_are_answered(topology: &str) {
    let network = Network::up("frames", topology);
    network.ping("one", "10.0.3.2");
    let mut hostile = attach(&network);
    let mut wire = hostile.link("dev0", "lan.lan");
    hostile.stay();
    // Frames of any length, with any bytes; most have the guest's own source, so that later checks are reached.
    let mut state = 7_u32;
    let mut random = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()
    };
    for length in (0..400).chain([9_000, 65_000]).cycle().take(4_000) {
        let mut frame: Vec<u8> = std::iter::repeat_with(&mut random).take(length / 4 + 1).flatten().collect();
        frame.truncate(length);
        let kinds = [[8, 0], [8, 6], [0x86, 0xdd], [0x81, 0], [0x88, 0xa8]];
        if length > 14 && random()[0] < 200 {
            frame[6..12].copy_from_slice(&OWN);
            frame[12..14].copy_from_slice(&kinds[usize::from(random()[0]) % kinds.len()]);
        }
        if !frame.is_empty() {
            wire.send(&frame);
        }
    }
    wire.send(&arp(OWN, OWN, [10, 0, 3, 2]));
    wire.send(&arp(OWN, [2, 0, 0, 0, 0, 9], [10, 0, 3, 3]));
    wire.send(&arp([2, 0, 0, 0, 0, 9], OWN, [10, 0, 3, 3]));
    wire.send(&arp(OWN, OWN, [10, 0, 3, 3]));
    // The only answer is that to the honest request: an ARP reply to the guest's own address.
    let answer = wire.wait_for(|frame| frame.starts_with(&OWN) && frame[12..14] == [8, 6]);
    assert_eq!((&answer[20..22], &answer[38..42]), (&[0, 2][..], &[10, 0, 3, 3][..]));
    for reason in ["drop_spoofed_mac", "drop_spoofed_ip", "drop_malformed", "drop_vlan"] {
        assert!(counter(&network, reason) > 0, "{reason}");
    }
    network.ping("one", "10.0.3.2");
    assert_eq!(network.status("lan").restarts, 0);
}

#[test]
fn a_guest_that_does_not_read_its_ring_costs_only_its_own_frames() {
    let network = Network::up("unread", SWITCH);
    let mut hostile = attach(&network);
    let _unread = hostile.link("dev0", "lan.lan");
    hostile.stay();
    let mut sender = HostileGuest::attach(&network.run_dir(), &network.name, "sender", &network.secret("sender"));
    let mut wire = sender.link("dev0", "lan.lan");
    sender.stay();
    let mut packet = [OWN, [2, 0, 0, 0, 0, 4]].concat();
    packet.extend([8, 0, 0x45, 0, 3, 232, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 3, 4, 10, 0, 3, 3]);
    packet.resize(1_014, 0);
    for _ in 0..20 {
        (0..1_000).for_each(|_| wire.send(&packet));
        network.ping("one", "10.0.3.2");
        network.ping("two", "fd00:3::1");
    }
    assert!(counter(&network, "backlog_full") > 0, "more frames than the ring and the queue hold");
    assert_eq!(network.status("lan").restarts, 0);
}

#[test]
fn a_frame_beyond_the_mtu_of_a_card_is_dropped_and_counted() {
    let [_, (topology, _)] = networks();
    let network = Network::up("beyond", &topology.replace("mtu = 9000", "mtu = 1500"));
    network.ping("one", "10.0.3.2");
    let mut hostile = attach(&network);
    let mut wire = hostile.link("dev0", "lan.lan");
    hostile.stay();
    let mut send = |bytes: usize| {
        let mut frame = arp(OWN, OWN, [10, 0, 3, 3]);
        frame.resize(14 + bytes, 0);
        wire.send(&frame);
    };
    for (bytes, dropped) in [(1_501, 1), (9_000, 2), (65_000, 3)] {
        send(bytes);
        wait_until("the end of the frame", || counter(&network, "drop_too_long") == dropped);
    }
    send(1_500);
    wire.wait_for(|frame| frame.starts_with(&OWN) && frame[12..14] == [8, 6]);
    assert_eq!(counter(&network, "drop_too_long"), 3);
    network.ping("one", "10.0.3.2");
}

#[test]
fn a_guest_that_breaks_the_protocol_of_its_ring_loses_only_its_own_port() {
    networks().iter().for_each(|(topology, buffers)| only_its_own_port_is_lost(topology, *buffers, 65_536));
}

#[test]
fn a_guest_that_breaks_the_protocol_of_its_ring_to_a_gateway_of_lcs_loses_only_its_own_port() {
    let topology = SWITCH.replace("type = \"vswitch\"", "type = \"lcs\"").replace(", \"fd00:3::1/64\"", "");
    only_its_own_port_is_lost(&topology.replace(", \"fd00:3::2/64\"", ""), 32, 20_480);
}

fn only_its_own_port_is_lost(topology: &str, buffers: u16, buffer_bytes: usize) {
    const CONSUMED: usize = 0;
    const PRODUCED: usize = 256;
    const FIRST_HEAD: usize = 4_096 + 64 - 16;
    let network = Network::up("broken", topology);
    network.ping("one", "10.0.3.2");
    let cases: [(&str, &[(usize, u64)]); 4] = [
        ("more produced than there are buffers", &[(PRODUCED, u64::from(buffers) + 1)]),
        ("more consumed than was produced", &[(CONSUMED, 5)]),
        ("a frame that is longer than its buffer", &[(FIRST_HEAD, 1 << 63 | 70_000), (PRODUCED, 1)]),
        ("a buffer without an end", &[(FIRST_HEAD, buffer_bytes as u64), (PRODUCED, 1)]),
    ];
    for (what, words) in cases {
        let mut hostile = attach(&network);
        let (mut own, memory) =
            OwnArena::create(Shape::new(buffer_bytes, buffers.into()).unwrap().memory_bytes()).unwrap();
        let (notify_fd, _wake_fd) = hostile.pair_with_memory("lan.lan", memory);
        hostile.wait_for_order(|order, _| matches!(order, Order::PeerMemory { .. }).then_some(()));
        std::thread::sleep(std::time::Duration::from_millis(20));
        words.iter().for_each(|(at, value)| own.write(*at, &value.to_ne_bytes()).unwrap());
        notify_fd.notify();
        let why = hostile.end_of_pair();
        assert!(why.contains("violation"), "{what}: {why}");
        hostile.ask_for_pair("dev0", "one.dev0");
        assert!(hostile.refusal().contains("exchange frames through a switch"));
        drop(hostile);
        wait_until("the hostile guest's end", || network.pid_of("hostile").is_none());
        network.ping("one", "10.0.3.2");
    }
    assert_eq!(network.status("lan").restarts, 0, "the switch is the same process");
}

#[test]
fn a_port_is_joined_only_with_a_tap_device_and_after_a_reservation() {
    let port = "[[network.lan.port]]\nname = \"pod\"\naddresses = [\"10.0.3.9/24\"]\n";
    let network = Network::up("joined", &format!("{SWITCH}{port}"));
    let connect = || Client::connect_at(&network.run_dir(), &network.name).unwrap();
    let file = |path: &str| -> OwnedFd { std::fs::File::open(path).unwrap().into() };
    let refusal = |client: &mut Client, descriptors: Vec<OwnedFd>| {
        client.ask(Request::JoinPort, descriptors).unwrap();
        client.outcome(PATIENCE).unwrap_err().to_string()
    };
    let reserve = |client: &mut Client, port: &str, tenant: &str| {
        let (port, tenant) = (Some(port.parse().unwrap()), tenant.to_owned());
        client.request(Request::ReservePort { lan: None, port, tenant }).map(drop)
    };
    let (mut one, mut other) = (connect(), connect());
    assert!(refusal(&mut one, vec![file("/dev/null")]).contains("has reserved no port"));
    for (port, tenant, part) in
        [("lan", "a", "no port lan"), ("pod", "", "1 to 400"), ("pod", &"a".repeat(401), "1 to 400")]
    {
        assert!(reserve(&mut one, port, tenant).unwrap_err().to_string().contains(part), "{port} {tenant}");
    }
    reserve(&mut one, "pod", "first").unwrap();
    for (descriptors, part) in [
        (vec![], "one descriptor"),
        (vec![file("/dev/null"), file("/dev/null")], "one descriptor"),
        (vec![file("/dev/null")], "not a TAP device"),
        (vec![file("/dev/zero")], "not a TAP device"),
    ] {
        let refused = refusal(&mut one, descriptors);
        assert!(refused.contains(part), "{refused}");
    }
    assert!(reserve(&mut other, "pod", "second").unwrap_err().to_string().contains("in use by first"));
    assert!(refusal(&mut other, vec![file("/dev/null")]).contains("has reserved no port"));
    // The reservation ends with its connection.
    drop(one);
    wait_until("the end of the reservation", || reserve(&mut other, "pod", "second").is_ok());
    network.ping("one", "10.0.3.2");
    assert_eq!(network.status("lan").restarts, 0);
}
