//! Processes that are killed while their connections are direct.

use super::network::{Network, PATIENCE, content, kill, victim};
use super::{SERVER, by_memory, direct_network};
use siga_fabric::sockets::{Attachment, TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::process::Child;
use std::time::Duration;

#[test]
fn direct_victim() {
    let Some((attachment, way)) = victim() else { return };
    let mut stream = TcpStream::connect(&attachment, SERVER.parse().unwrap()).unwrap();
    // Enough calls for a slot.
    for _ in 0..200 {
        let mut byte = [0];
        stream.write_all(b"?").unwrap();
        stream.read_exact(&mut byte).unwrap();
        std::thread::sleep(Duration::from_micros(500));
    }
    match way.as_str() {
        "sends" => {
            let (mut at, mut bytes) = (0, vec![0; 10_000]);
            loop {
                content(at, &mut bytes);
                stream.write_all(&bytes).unwrap();
                at += bytes.len() as u64;
            }
        }
        "reads" => loop {
            let mut bytes = [0; 1_000];
            stream.read_exact(&mut bytes).unwrap();
        },
        _ => loop {
            std::thread::sleep(Duration::from_secs(1));
        },
    }
}

fn start_victim(network: &Network, way: &str) -> Child {
    network.start_victim("ends::direct_victim", "a", way)
}

/// Serves the victim until its connection is direct.
fn serve(server: &Attachment, listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_timeout(Some(PATIENCE));
    for _ in 0..200 {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        stream.write_all(b"!").unwrap();
    }
    let (sent, received) = by_memory(server);
    assert!(sent > 0 && received > 0, "the connection stays with TCP");
    stream
}

#[test]
fn what_a_killed_application_has_published_arrives_before_the_end() {
    let network = direct_network("killed");
    let server = network.application("b");
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    for turn in 0..5 {
        let mut child = start_victim(&network, "sends");
        let mut stream = serve(&server, &listener);
        let (mut at, mut bytes, mut expected) = (0, vec![0; 4_096], vec![0; 4_096]);
        loop {
            if at > (turn + 1) * 1_000_000 {
                child.kill().unwrap();
            }
            let count = stream.read(&mut bytes).unwrap();
            if count == 0 {
                break;
            }
            content(at, &mut expected[..count]);
            assert!(bytes[..count] == expected[..count], "wrong bytes near {at}");
            at += count as u64;
        }
        child.wait().unwrap();
        assert!(at > 1_000_000);
    }
}

#[test]
fn a_killed_application_with_unread_bytes_resets_and_one_without_ends_the_stream() {
    let network = direct_network("resets");
    let server = network.application("b");
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    for (way, bytes) in [("sleeps", 5_000), ("reads", 5_000), ("sleeps", 0)] {
        let mut child = start_victim(&network, way);
        let mut stream = serve(&server, &listener);
        stream.write_all(&vec![1; bytes]).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        child.kill().unwrap();
        child.wait().unwrap();
        let end = stream.read(&mut [0; 10]);
        if way == "sleeps" && bytes > 0 {
            assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset, "{way} {bytes}");
        } else {
            assert_eq!(end.unwrap(), 0, "{way} {bytes}");
            // As Linux does, the guest answers bytes to a connection without an application by a reset.
            let mut outcome = Ok(());
            for _ in 0..200 {
                outcome = stream.write_all(b"late");
                if outcome.is_err() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            outcome.unwrap_err();
        }
    }
}

#[test]
fn a_killed_guest_ends_the_connections_of_its_applications_only() {
    let network = direct_network("guest");
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, mut served) = super::direct_connection(&client, &server, SERVER);
    served.write_all(b"published").unwrap();
    kill(network.pid("a"));
    let mut bytes = [0; 100];
    let end = loop {
        match stream.read(&mut bytes) {
            Ok(count) if count > 0 => {}
            end => break end,
        }
    };
    assert_eq!(end.unwrap_err().kind(), ErrorKind::NetworkDown);
    // The other guest and its applications go on.
    let second = network.application("b");
    super::direct_connection(&second, &server, "10.0.2.2:9");
}

#[test]
fn direct_connections_go_on_without_a_control_program() {
    let network = direct_network("control");
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, mut served) = super::direct_connection(&client, &server, SERVER);
    kill(network.control_pid());
    let before = by_memory(&client).0;
    for _ in 0..100 {
        let mut byte = [0];
        stream.write_all(b"?").unwrap();
        served.read_exact(&mut byte).unwrap();
    }
    assert_eq!(by_memory(&client).0 - before, 100);
    network.start();
    // The next control program gives out slots again.
    super::direct_connection(&client, &server, "10.0.2.2:8");
}
