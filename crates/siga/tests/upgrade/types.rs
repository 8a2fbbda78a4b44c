//! Replaced routers, adapters and gateways of the connectivity types whose packets wait in blocks, in cards and on modelled links.

use super::network::{EXTERNAL_FIGURE_1, Network, content};
use super::{Ends, alone, upgrade};
use siga_fabric::sockets::{Attachment, TcpStream};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const UPGRADES: usize = 3;
const PART: usize = 1 << 14;

/// Sends `rate` bytes per second over a connection, in parts, until `stop` is set. The first byte of a part says whether it is the last one.
fn send(stream: &TcpStream, rate: f64, stop: &AtomicBool) -> u64 {
    let (mut part, mut sent, begun) = (vec![0; PART], 0, Instant::now());
    loop {
        content(sent, &mut part);
        part[0] = u8::from(stop.load(Ordering::Relaxed));
        (&*stream).write_all(&part).unwrap();
        sent += PART as u64;
        let due = Duration::from_secs_f64(sent as f64 / rate);
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
        if part[0] == 1 {
            return sent;
        }
    }
}

/// Checks all parts that come over a connection. Returns the number of bytes.
fn check(stream: &TcpStream) -> u64 {
    let (mut part, mut expected, mut total) = (vec![0; PART], vec![0; PART], 0);
    while part[0] == 0 {
        (&*stream).read_exact(&mut part).unwrap();
        content(total, &mut expected);
        assert!(part[1..] == expected[1..], "wrong bytes near {total}");
        total += PART as u64;
    }
    total
}

/// Replaces the process between two guests while streams cross it in both directions. No frame may be lost.
fn streams_cross(topology: &str, (name, between): (&str, &str), guests: [&str; 2], to: &str, rate: f64) {
    let network = Network::up(name, topology);
    let [from, at] = guests.map(|guest| network.application(guest));
    let (one, other) = connect((&from, &at), to.parse().unwrap());
    let (stop, before) = (AtomicBool::new(false), network.pid(between));
    std::thread::scope(|scope| {
        let _stop = StopOnDrop(&stop);
        let sent = [&one, &other].map(|stream| scope.spawn(|| send(stream, rate, &stop)));
        let came = [&other, &one].map(|stream| scope.spawn(|| check(stream)));
        for _ in 0..UPGRADES {
            std::thread::sleep(Duration::from_millis(100));
            let out = upgrade(&network, guests, None);
            println!("{name}: {}", out.lines().find(|line| line.starts_with(between)).unwrap());
        }
        std::thread::sleep(Duration::from_millis(100));
        stop.store(true, Ordering::Relaxed);
        let sent = sent.map(|thread| thread.join().unwrap());
        assert_eq!(sent, came.map(|thread| thread.join().unwrap()));
        println!("{name}: {sent:?} bytes");
    });
    assert_ne!(network.pid(between), before);
    Ends::of(&[(one, other)]).lost_nothing(&network);
}

fn connect((from, at): (&Attachment, &Attachment), to: SocketAddr) -> (TcpStream, TcpStream) {
    super::connect(from, at, to, 1).pop().unwrap()
}

struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// The network of Figure 1, whose network `link` has these settings, and whose guests all have processes of their own.
fn figure_1(link: &str, device: &str) -> String {
    let topology = EXTERNAL_FIGURE_1.replacen("type = \"vctc\"\nbuffer = 65535", link, 1);
    // The modelled link of a CTC is a setting of one of its devices.
    let other = device.split(", link").next().unwrap();
    topology.replacen("mtu = 57344", device, 1).replace("mtu = 57344", other).replace("external = true\n", "")
}

#[test]
fn routers_of_channel_devices_are_replaced_under_load_and_lose_nothing() {
    let _alone = alone();
    for (name, link, device, rate) in [
        ("ctc", "type = \"ctc\"", "mtu = 32760", 4e6),
        ("netiucv", "type = \"netiucv\"", "mtu = 9216", 40e6),
        ("claw", "type = \"claw\"", "mtu = 4096", 0.5e6),
        ("pending", "type = \"vctc\"", "mtu = 9216, buffer_count = 1", 40e6),
    ] {
        streams_cross(&figure_1(link, device), (name, "router"), ["client", "server"], "10.0.2.2:7", rate);
    }
}

#[test]
fn a_router_at_a_modelled_link_is_replaced_under_load_and_packets_on_the_link_arrive() {
    let _alone = alone();
    let device = "mtu = 9216, link = \"rate=400mbit,latency=20ms\"";
    let topology = figure_1("type = \"vctc\"", device);
    streams_cross(&topology, ("latency", "router"), ["client", "server"], "10.0.2.2:7", 8e6);
}

/// Two guests whose stations or cards are at one gateway.
fn stations(kind: &str) -> String {
    let guest = |name: &str, number: u8| {
        format!("[guest.{name}]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.{number}/24\"] }}]\n")
    };
    format!("[network.lan]\n{kind}\n{}{}", guest("one", 1), guest("two", 2))
}

#[test]
fn gateways_and_adapters_are_replaced_under_load_and_lose_nothing() {
    let _alone = alone();
    for (name, kind, rate) in [
        ("lcs", "type = \"lcs\"", 2e6),
        ("cards", "type = \"qdio\"\nmtu = 8992\nwire = \"10gbe\"", 20e6),
        ("lan-hipers", "type = \"guestlan\"\nnic = \"hipersockets\"", 40e6),
    ] {
        streams_cross(&stations(kind), (name, "lan"), ["one", "two"], "10.0.3.2:7", rate);
    }
}
