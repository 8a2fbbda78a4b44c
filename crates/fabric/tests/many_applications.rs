//! How many sockets an application may have, and what they take: this process's descriptors are counted, so no other test runs
//! in it.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

#[path = "common/network.rs"]
mod network;

use network::{Network, content, wait_until};
use siga_fabric::sockets::{TcpListener, TcpStream};
use std::io::{Read, Write};

const FIGURE_1: &str = include_str!("../../../topologies/figure-1.toml");

const SERVER: &str = "10.0.2.2:7";

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains("/memfd:")).count()
}

#[test]
fn thousands_of_application_sockets_share_one_descriptor() {
    const COUNT: usize = 2_000;
    let network = Network::up("many", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let before = (descriptors(), mappings());
    assert!(before.1 > 0, "the arenas are mapped");
    let mut pairs = Vec::new();
    for _ in 0..COUNT {
        let stream = TcpStream::connect(&client, SERVER.parse().unwrap()).unwrap();
        let (served, from) = listener.accept().unwrap();
        assert_eq!(from, stream.local_addr().unwrap());
        pairs.push((stream, served));
    }
    assert_eq!((descriptors(), mappings()), before);
    assert_eq!(network.stack("tcpip1")["connections"], COUNT);
    for (place, (stream, served)) in pairs.iter_mut().enumerate() {
        let mut bytes = [0; 300];
        content(place as u64, &mut bytes);
        stream.write_all(&bytes).unwrap();
        let mut read = [0; 300];
        served.read_exact(&mut read).unwrap();
        assert_eq!(read, bytes);
        served.write_all(&read[..1]).unwrap();
    }
    for (place, (stream, _)) in pairs.iter_mut().enumerate() {
        let mut bytes = [0; 1];
        content(place as u64, &mut bytes);
        let mut read = [0; 1];
        stream.read_exact(&mut read).unwrap();
        assert_eq!(read, bytes);
    }
    drop(pairs);
    wait_until("connections are left", || network.stack("tcpip3")["connections"] == 0);
}
