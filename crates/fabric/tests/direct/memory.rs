//! The memory of direct connections is limited, and goes back to the host.

use super::network::{PATIENCE, wait_until};
use super::{SERVER, connection, direct_connection, direct_connections, direct_network};
use siga_fabric::sockets::{Attachment, TcpListener, TcpStream};
use std::io::{Read, Write};

/// The number of couples of an application, and of the connections of a couple.
const COUPLES: u64 = 64;
const SLOTS: u64 = 64;

/// Exchanges a byte in each direction.
fn exchange((one, other): (&mut TcpStream, &mut TcpStream), byte: u8) {
    let mut read = [0];
    one.write_all(&[byte]).unwrap();
    other.read_exact(&mut read).unwrap();
    assert_eq!(read, [byte]);
    other.write_all(&[!byte]).unwrap();
    one.read_exact(&mut read).unwrap();
    assert_eq!(read, [!byte]);
}

#[test]
fn the_memory_of_a_couple_without_connections_goes_back() {
    let network = direct_network("idle");
    let (client, server) = (network.application("a"), network.application("b"));
    // The guests connect with each other at the first connection.
    drop(connection(&client, &server, SERVER));
    let Some((before, _)) = network.held("a") else { return };
    for port in [7, 8] {
        let pair = direct_connection(&client, &server, &format!("10.0.2.2:{port}"));
        assert!(network.held("a").unwrap().0 >= before + 2, "the guest holds two memory files");
        drop(pair);
        wait_until("the memory is still there", || {
            [&client, &server].into_iter().for_each(Attachment::tend);
            network.held("a").unwrap().0 == before
        });
    }
}

#[test]
fn applications_beyond_the_limit_of_couples_stay_with_tcp() {
    const APPLICATIONS: usize = 100;
    let network = direct_network("couples");
    let server = network.application("b");
    let clients: Vec<Attachment> = (0..APPLICATIONS).map(|_| network.application("a")).collect();
    let mut pairs: Vec<_> = (1_000..)
        .zip(&clients)
        .map(|(port, client)| connection(client, &server, &format!("10.0.2.2:{port}")))
        .collect();
    wait_until("64 couples", || {
        for (number, (one, other)) in (0..).zip(&mut pairs) {
            exchange((one, other), number);
        }
        clients.iter().for_each(Attachment::tend);
        direct_connections(&server) == COUPLES
    });
    for (number, (one, other)) in (100..).zip(&mut pairs) {
        exchange((one, other), number);
    }
    assert_eq!(clients.iter().map(direct_connections).sum::<u64>(), COUPLES);
    // The memory of an application that has ended is free for another one.
    drop((clients, pairs));
    let client = network.application("a");
    wait_until("no couple is free", || {
        let before = direct_connections(&client);
        let (mut one, mut other) = connection(&client, &server, "10.0.2.2:7");
        (0..50).for_each(|turn| exchange((&mut one, &mut other), turn));
        before < direct_connections(&client)
    });
}

#[test]
#[ignore = "takes a minute; `cargo xtask nightly --only direct` runs it"]
fn ten_thousand_connections_between_two_applications_work_and_as_many_as_there_are_slots_are_direct() {
    const CONNECTIONS: usize = 10_000;
    let network = direct_network("ten-thousand");
    let (client, server) = (network.application("a"), network.application("b"));
    let listener = TcpListener::bind(&server, "10.0.2.2:7".parse().unwrap()).unwrap();
    let mut pairs: Vec<_> = (0..CONNECTIONS)
        .map(|_| {
            let stream = TcpStream::connect(&client, "10.0.2.2:7".parse().unwrap()).unwrap();
            let (served, _) = listener.accept().unwrap();
            stream.set_timeout(Some(PATIENCE));
            served.set_timeout(Some(PATIENCE));
            (stream, served)
        })
        .collect();
    for turn in 0..20_u8 {
        pairs.iter_mut().for_each(|(one, other)| exchange((one, other), turn));
    }
    assert_eq!((direct_connections(&client), direct_connections(&server)), (COUPLES * SLOTS, COUPLES * SLOTS));
    drop(pairs);
    wait_until("the slots are in use", || {
        server.tend();
        direct_connections(&client) == 0
    });
}
