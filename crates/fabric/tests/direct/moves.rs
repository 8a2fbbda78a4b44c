//! A connection that moves between TCP and memory in the middle of its streams.

use super::network::{Network, PATIENCE, content, wait_until};
use super::{SERVER, by_memory, connection, direct_connection, direct_connections, direct_network};
use siga_fabric::sockets::{Attachment, SocketOptions, TcpStream, Timing};
use std::io::{ErrorKind, Read, Write};
use std::time::Instant;

/// Options with which a connection uses TCP, because only the stack knows the times.
fn timed() -> SocketOptions {
    SocketOptions { timing: Timing { received: true, ..Timing::default() }, ..SocketOptions::default() }
}

/// Moves a connection from memory to TCP after `before` bytes in each direction, while `unread` bytes are unread in each direction. `mover`
/// asks for it: the first or the second end.
fn move_to_tcp(applications: [&Attachment; 2], at: &str, (before, unread): (usize, usize), mover: usize) {
    let (one, other) = direct_connection(applications[0], applications[1], at);
    let mut ends = [one, other];
    let mut bytes = vec![0; before + unread + 40];
    content(before as u64, &mut bytes);
    let mut read = [vec![], vec![]];
    let pass = |ends: &mut [TcpStream; 2], read: &mut [Vec<u8>; 2], to: usize| {
        for (end, read) in ends.iter_mut().zip(read) {
            let mut more = vec![0; to - read.len()];
            end.read_exact(&mut more).unwrap();
            read.extend(more);
        }
    };
    for at in 0..before + unread {
        ends.iter_mut().for_each(|end| end.write_all(&bytes[at..=at]).unwrap());
        if at < before {
            pass(&mut ends, &mut read, at + 1);
        }
    }
    let by_memory_before = by_memory(applications[0]).0;
    ends[mover].set_options(&timed()).unwrap();
    for at in before + unread..bytes.len() {
        ends.iter_mut().for_each(|end| end.write_all(&bytes[at..=at]).unwrap());
    }
    pass(&mut ends, &mut read, bytes.len());
    assert_eq!(read, [bytes.clone(), bytes.clone()], "{before} {unread} {mover}");
    assert_eq!(by_memory(applications[0]).0, by_memory_before, "bytes went by memory after the move");
}

#[test]
fn every_byte_arrives_at_whichever_byte_a_connection_returns_to_tcp() {
    let network = direct_network("moves");
    let applications = [&network.application("a"), &network.application("b")];
    let mut port = 1_000;
    for before in [0, 1, 2, 3, 7] {
        for (unread, mover) in [(0, 0), (0, 1), (1, 0), (1, 1), (5, 0), (5, 1), (300, 0), (300, 1)] {
            port += 1;
            move_to_tcp(applications, &format!("10.0.2.2:{port}"), (before, unread), mover);
        }
    }
}

/// An application asks for a slot at this call that moves bytes.
const ASKS_AT: usize = 8;

fn exchange(from: &mut TcpStream, to: &mut TcpStream, bytes: &[u8]) {
    for byte in bytes {
        let mut read = [0];
        from.write_all(&[*byte]).unwrap();
        to.read_exact(&mut read).unwrap();
        assert_eq!(read, [*byte]);
    }
}

/// The number of bytes in each direction after which a connection moves to memory, and after which it returns to TCP.
#[derive(Debug, Clone, Copy)]
struct Switches {
    to_memory: usize,
    to_tcp: usize,
    /// Whether each byte is read before the next one is sent.
    reads: bool,
    /// The end that returns to TCP.
    mover: usize,
}

/// Sends the bytes of an exchange in both directions over one connection that changes its carrier twice.
fn play(applications: [&Attachment; 2], at: &str, switches: Switches) {
    const BYTES: usize = 12;
    let Switches { to_memory, to_tcp, reads, mover } = switches;
    let (mut one, mut other) = connection(applications[0], applications[1], at);
    // After these bytes, both ends ask for a slot with the last call before the move.
    let calls = if reads { 2 * to_memory } else { to_memory };
    let early: Vec<u8> = (0..u8::try_from(ASKS_AT.saturating_sub(calls)).unwrap()).collect();
    exchange(&mut one, &mut other, &early);
    let mut ends = [one, other];
    let (mut sent, mut read) = ([0_u8; BYTES], [Vec::new(), Vec::new()]);
    content(7, &mut sent);
    let read_up_to = |ends: &mut [TcpStream; 2], read: &mut [Vec<u8>; 2], count: usize| {
        for (end, read) in ends.iter_mut().zip(read) {
            let mut more = vec![0; count - read.len()];
            end.read_exact(&mut more).unwrap();
            read.extend(more);
        }
    };
    let mut before = [(0, 0); 2];
    for at in 0..=BYTES {
        if at == to_memory {
            wait_quickly(switches, || applications.map(direct_connections) == [1, 1]);
            before = applications.map(by_memory);
        }
        if at == to_tcp {
            ends[mover].set_options(&timed()).unwrap();
        }
        if at < BYTES {
            ends.iter_mut().for_each(|end| end.write_all(&sent[at..=at]).unwrap());
            if reads {
                read_up_to(&mut ends, &mut read, at + 1);
            }
        }
    }
    read_up_to(&mut ends, &mut read, BYTES);
    assert_eq!(read, [sent, sent], "{switches:?}");
    let moved = (to_tcp - to_memory) as u64;
    for (application, before) in applications.iter().zip(before) {
        assert_eq!(by_memory(application).0 - before.0, moved, "{switches:?}");
    }
    for end in &ends {
        end.shutdown(std::net::Shutdown::Write).unwrap();
    }
    ends.iter_mut().for_each(|end| assert_eq!(end.read(&mut [0; 10]).unwrap(), 0));
    drop(ends);
    wait_quickly(switches, || applications.map(direct_connections) == [0, 0]);
}

fn wait_quickly(switches: Switches, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{switches:?}: the connection keeps its carrier");
        std::thread::sleep(std::time::Duration::from_micros(200));
    }
}

#[test]
fn a_short_exchange_is_whole_at_whichever_bytes_it_moves_to_memory_and_back() {
    let network = direct_network("exchange");
    let applications = [&network.application("a"), &network.application("b")];
    let mut port = 1_000;
    for reads in [true, false] {
        for to_memory in 0..=if reads { ASKS_AT / 2 } else { ASKS_AT } {
            for to_tcp in to_memory..=12 {
                for mover in [0, 1] {
                    port += 1;
                    let switches = Switches { to_memory, to_tcp, reads, mover };
                    play(applications, &format!("10.0.2.2:{port}"), switches);
                }
            }
        }
    }
}

#[test]
fn a_stream_that_ends_while_its_reader_returns_to_tcp_is_whole() {
    let network = direct_network("ending");
    let (client, server) = (network.application("a"), network.application("b"));
    for turn in 0..100 {
        let (mut one, mut other) = direct_connection(&client, &server, &format!("10.0.2.2:{}", 1_000 + turn));
        let mut bytes = [0; 5_000];
        content(turn, &mut bytes);
        let read = std::thread::scope(|scope| {
            scope.spawn(move || bytes.chunks(100).for_each(|part| one.write_all(part).unwrap()));
            other.set_options(&timed()).unwrap();
            let mut read = Vec::new();
            other.read_to_end(&mut read).unwrap();
            read
        });
        assert!(read == bytes, "turn {turn}: {} of {} bytes", read.len(), bytes.len());
    }
}

#[test]
fn both_ends_may_return_to_tcp_at_the_same_time() {
    let network = direct_network("both");
    let (client, server) = (network.application("a"), network.application("b"));
    for turn in 0..20 {
        let (mut one, mut other) = direct_connection(&client, &server, &format!("10.0.2.2:{}", 1_000 + turn));
        std::thread::scope(|scope| {
            for end in [&mut one, &mut other] {
                scope.spawn(|| {
                    let (mut bytes, mut read) = ([0; 500], [0; 500]);
                    content(turn, &mut bytes);
                    end.write_all(&bytes[..100]).unwrap();
                    end.set_options(&timed()).unwrap();
                    end.write_all(&bytes[100..]).unwrap();
                    end.read_exact(&mut read).unwrap();
                    assert_eq!(read, bytes);
                });
            }
        });
    }
}

#[test]
fn revoked_access_resets_direct_connections_within_a_second() {
    let keys = "direct = true\naccess = \"restricted\"\ngrant = [\"a\", \"b\"]";
    let network = Network::up("revoked", &super::topology(keys));
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, _served) = direct_connection(&client, &server, SERVER);
    network.set_access("lan", "b", false);
    assert_reset_within_a_second(&mut stream);
    wait_until("the control program is silent", || network.log().contains("revokes guest b"));
}

fn assert_reset_within_a_second(stream: &mut TcpStream) {
    let begun = Instant::now();
    let error = loop {
        if let Err(error) = stream.write_all(b"x") {
            break error;
        }
        assert!(begun.elapsed() < PATIENCE, "the connection goes on");
        std::thread::sleep(std::time::Duration::from_millis(5));
    };
    assert!(
        [ErrorKind::ConnectionReset, ErrorKind::ConnectionAborted, ErrorKind::BrokenPipe].contains(&error.kind()),
        "{error:?}"
    );
    assert!(begun.elapsed().as_secs() < 1, "{:?}", begun.elapsed());
}

#[test]
fn a_port_filter_resets_direct_connections_within_a_second_and_later_ones_use_tcp() {
    let network = direct_network("filtered");
    let (client, server, beside) = (network.application("a"), network.application("b"), network.application("b"));
    let (mut stream, _served) = direct_connection(&client, &server, SERVER);
    let (mut within, mut other) = direct_connection(&beside, &server, "10.0.2.2:8");
    network.set_allow("b", Some(&["tcp 7-9"]));
    assert_reset_within_a_second(&mut stream);
    let exchange = |one: &mut TcpStream, other: &mut TcpStream| {
        for turn in 0..50 {
            let mut byte = [0];
            one.write_all(&[turn]).unwrap();
            other.read_exact(&mut byte).unwrap();
            other.write_all(&byte).unwrap();
            one.read_exact(&mut byte).unwrap();
            assert_eq!(byte, [turn]);
        }
    };
    let before = (by_memory(&client), by_memory(&beside).0);
    exchange(&mut within, &mut other);
    assert_eq!(by_memory(&beside).0, before.1 + 50, "connections within the guest stay direct");
    let (mut near, mut far) = connection(&client, &server, "10.0.2.2:9");
    exchange(&mut near, &mut far);
    assert_eq!(by_memory(&client), before.0, "a later connection uses TCP");
    network.set_allow("b", None);
    direct_connection(&client, &server, "10.0.2.2:10");
}
