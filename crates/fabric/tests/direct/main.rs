//! Direct connections between the applications of guests (`docs/direct.md`): their bytes pass through memory that only the two applications
//! share.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they measured")]

mod ends;
mod kills;
mod memory;
mod moves;
#[path = "../common/network.rs"]
mod network;

use network::{Network, PATIENCE, content, sink, source, wait_until};
use siga_fabric::protocol::report::ReportPart;
use siga_fabric::sockets::{Attachment, Poller, SocketOptions, TcpListener, TcpStream};
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::time::{Duration, Instant};

const SERVER: &str = "10.0.2.2:7";

/// Two guests on one HiperSockets network. `keys` are keys of the network.
fn topology(keys: &str) -> String {
    let guest = |name: &str, last: u8| {
        format!("[guest.{name}]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.2.{last}/24\"] }}]\n")
    };
    format!("[network.lan]\ntype = \"hipersockets\"\n{keys}\n{}{}", guest("a", 1), guest("b", 2))
}

fn direct_network(name: &str) -> Network {
    Network::up(name, &topology("direct = true"))
}

fn counter(application: &Attachment, name: &str) -> u64 {
    let parts = application.report().unwrap();
    let [ReportPart::Application(report)] = &parts[..] else { panic!("{parts:?}") };
    report.counters.get(name).copied().unwrap_or_default()
}

/// How many bytes an application has sent and received by memory.
fn by_memory(application: &Attachment) -> (u64, u64) {
    (counter(application, "direct_sent_bytes"), counter(application, "direct_received_bytes"))
}

/// How many connections of an application have a slot.
fn direct_connections(application: &Attachment) -> u64 {
    application.tend();
    counter(application, "direct_connections")
}

/// A connection between two applications.
fn connection(client: &Attachment, server: &Attachment, at: &str) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(server, at.parse().unwrap()).unwrap();
    let stream = TcpStream::connect(client, at.parse().unwrap()).unwrap();
    let (served, _) = listener.accept().unwrap();
    stream.set_timeout(Some(PATIENCE));
    served.set_timeout(Some(PATIENCE));
    (stream, served)
}

/// Exchanges a byte until both directions use memory. Returns the number of exchanges.
fn warm_up(client: &Attachment, (stream, served): (&mut TcpStream, &mut TcpStream)) -> u64 {
    let end = Instant::now() + PATIENCE;
    let before = by_memory(client);
    for turn in 1.. {
        let mut byte = [0];
        stream.write_all(b"?").unwrap();
        served.read_exact(&mut byte).unwrap();
        served.write_all(b"!").unwrap();
        stream.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"!");
        let now = by_memory(client);
        if now.0 > before.0 && now.1 > before.1 {
            return turn;
        }
        assert!(Instant::now() < end, "the connection stays with TCP");
        if turn > 20 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    unreachable!("the loop has no end")
}

/// A connection that uses memory in both directions.
fn direct_connection(client: &Attachment, server: &Attachment, at: &str) -> (TcpStream, TcpStream) {
    let (mut stream, mut served) = connection(client, server, at);
    warm_up(client, (&mut stream, &mut served));
    (stream, served)
}

#[test]
fn streams_move_to_memory_and_arrive_whole_both_ways() {
    const BYTES: u64 = 32 << 20;
    let network = direct_network("streams");
    let (client, server) = (network.application("a"), network.application("b"));
    for (from, to, at) in [(&client, &server, SERVER), (&server, &client, "10.0.2.1:7")] {
        let before = by_memory(from).0;
        let listener = TcpListener::bind(to, at.parse().unwrap()).unwrap();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| sink(&listener));
            let begun = Instant::now();
            source(from, at, BYTES, |_| {});
            println!("{} MB to {at}: {:?}", BYTES >> 20, begun.elapsed());
            assert_eq!(served.join().unwrap().0, BYTES);
        });
        let sent = by_memory(from).0 - before;
        assert!(sent > BYTES / 2, "{sent} of {BYTES} bytes went by memory");
        assert_eq!(by_memory(to).1, by_memory(from).0);
    }
}

#[test]
fn a_request_and_its_answer_need_no_guest_once_the_connection_is_direct() {
    let network = direct_network("exchanges");
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, mut served) = direct_connection(&client, &server, SERVER);
    let frames = network.counter("a", "sent_frames");
    let before = by_memory(&client);
    for turn in 0..200_u64 {
        let (mut request, mut answer) = ([0; 200], [0; 1_000]);
        content(turn, &mut request);
        stream.write_all(&request).unwrap();
        let mut read = [0; 200];
        served.read_exact(&mut read).unwrap();
        assert_eq!(read, request);
        content(turn, &mut answer);
        served.write_all(&answer).unwrap();
        let mut read = [0; 1_000];
        stream.read_exact(&mut read).unwrap();
        assert_eq!(read, answer);
    }
    let after = by_memory(&client);
    // The guest's report has the same counts.
    let report = network.application_report("a");
    let counter = |name: &str| report["counters"][name].as_u64().unwrap();
    assert_eq!((counter("direct_sent_bytes"), counter("direct_received_bytes")), after);
    assert_eq!((after.0 - before.0, after.1 - before.1), (200 * 200, 200 * 1_000));
    let sent = network.counter("a", "sent_frames") - frames;
    assert!(sent < 20, "the guest has sent {sent} frames");
}

#[test]
fn without_the_key_all_bytes_go_by_tcp() {
    let network = Network::up("without", &topology(""));
    let (client, server) = (network.application("a"), network.application("b"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        source(&client, SERVER, 4 << 20, |_| {});
        assert_eq!(served.join().unwrap().0, 4 << 20);
    });
    assert_eq!((by_memory(&client), by_memory(&server)), ((0, 0), (0, 0)));
}

#[test]
fn applications_of_one_guest_have_direct_connections_too() {
    let network = direct_network("loopback");
    let (client, server) = (network.application("a"), network.application("a"));
    for at in ["10.0.2.1:7", "127.0.0.1:8"] {
        let (_stream, _served) = direct_connection(&client, &server, at);
    }
}

#[test]
fn the_end_of_a_stream_comes_after_its_last_byte() {
    let network = direct_network("ends");
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, mut served) = direct_connection(&client, &server, SERVER);
    stream.write_all(b"last").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    let mut bytes = Vec::new();
    served.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"last");
    // The other direction goes on.
    served.write_all(&[7; 100_000]).unwrap();
    let mut answer = vec![0; 100_000];
    stream.read_exact(&mut answer).unwrap();
    assert!(answer.iter().all(|byte| *byte == 7));
    served.write_all(b"bye").unwrap();
    drop(served);
    bytes.clear();
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"bye");
    assert_eq!(stream.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    drop(stream);
    wait_until("connections are left", || network.stack("a")["connections"] == 0);
}

#[test]
fn a_close_with_unread_bytes_resets_and_published_bytes_stay_readable() {
    let network = direct_network("unread");
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, mut served) = direct_connection(&client, &server, SERVER);
    served.write_all(b"answer").unwrap();
    stream.write_all(b"unread").unwrap();
    drop(served);
    wait_until("no reset", || {
        client.tend();
        stream.readiness().unwrap().closed
    });
    let mut answer = [0; 6];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"answer");
    assert_eq!(stream.read(&mut answer).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn bytes_to_a_closed_connection_are_answered_by_a_reset() {
    let network = direct_network("closed");
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, served) = direct_connection(&client, &server, SERVER);
    drop(served);
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"");
    let end = Instant::now() + PATIENCE;
    let error = loop {
        match stream.write_all(&[1; 1_000]) {
            Ok(()) => assert!(Instant::now() < end, "the peer takes bytes of a closed connection"),
            Err(error) => break error,
        }
    };
    assert!([ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()), "{error:?}");
}

#[test]
fn lingering_for_no_time_resets() {
    let network = direct_network("linger");
    let (client, server) = (network.application("a"), network.application("b"));
    let (stream, mut served) = direct_connection(&client, &server, SERVER);
    let options = SocketOptions { linger: Some(Duration::ZERO), ..SocketOptions::default() };
    stream.set_options(&options).unwrap();
    (&stream).write_all(b"published").unwrap();
    drop(stream);
    let mut bytes = [0; 9];
    served.read_exact(&mut bytes).unwrap();
    assert_eq!(&bytes, b"published");
    assert_eq!(served.read(&mut bytes).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_full_buffer_makes_the_sender_wait_and_loses_nothing() {
    const BYTES: usize = 3 << 20;
    let network = direct_network("full");
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, mut served) = direct_connection(&client, &server, SERVER);
    stream.set_nonblocking(true);
    let mut bytes = vec![0; BYTES];
    content(0, &mut bytes);
    let mut sent = 0;
    while let Ok(count) = stream.write(&bytes[sent..]) {
        sent += count;
    }
    assert!(sent < BYTES, "a reader that reads nothing takes a bounded number of bytes");
    assert!(!stream.readiness().unwrap().writable);
    stream.set_nonblocking(false);
    std::thread::scope(|scope| {
        scope.spawn(|| stream.write_all(&bytes[sent..]).unwrap());
        let mut read = vec![0; BYTES];
        // The reader is slow at first.
        for part in read.chunks_mut(BYTES / 8).take(2) {
            std::thread::sleep(Duration::from_millis(30));
            served.read_exact(part).unwrap();
        }
        served.read_exact(&mut read[BYTES / 4..]).unwrap();
        assert!(read == bytes);
    });
}

#[test]
fn a_program_that_waits_for_room_after_it_has_filled_the_buffer_exactly_is_woken() {
    let network = direct_network("exact");
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, mut served) = direct_connection(&client, &server, SERVER);
    let poller = Poller::new(&client);
    stream.set_nonblocking(true);
    // The largest number of bytes that the buffer takes, without an attempt to send one more.
    let room = siga_ring::direct::Shape::STANDARD.slot_bytes();
    assert_eq!(stream.write(&vec![1; room]).unwrap(), room);
    assert!(!stream.readiness().unwrap().writable);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(30));
            served.read_exact(&mut vec![0; room]).unwrap();
        });
        let end = Instant::now() + PATIENCE;
        while !stream.readiness().unwrap().writable {
            poller.wait(&mut Vec::new(), Some(PATIENCE)).unwrap();
            assert!(Instant::now() < end, "the program sleeps although there is room");
        }
    });
}

#[test]
fn room_that_a_read_finds_is_reported_to_those_that_wait_for_it() {
    let network = direct_network("room");
    let (client, server) = (network.application("a"), network.application("b"));
    let (mut stream, mut served) = direct_connection(&client, &server, SERVER);
    stream.set_nonblocking(true);
    let mut sent = 0;
    while let Ok(count) = stream.write(&[1; 10_000]) {
        sent += count;
    }
    let (poller, mut news) = (Poller::new(&client), Vec::new());
    poller.look(&mut news).unwrap();
    served.read_exact(&mut vec![0; sent]).unwrap();
    served.write_all(b"x").unwrap();
    // This call finds the byte and the room.
    wait_until("the byte does not come", || stream.read(&mut [0; 10]).is_ok());
    news.clear();
    poller.look(&mut news).unwrap();
    assert_eq!(news, [stream.id()]);
    assert!(stream.readiness().unwrap().writable);
}

#[test]
fn more_connections_than_a_couple_has_slots_are_direct() {
    const COUNT: usize = 100;
    let network = direct_network("many");
    let (client, server) = (network.application("a"), network.application("b"));
    let mut all = Vec::new();
    for port in 0..COUNT {
        all.push(direct_connection(&client, &server, &format!("10.0.2.2:{}", 1_000 + port)));
    }
    for (stream, served) in &mut all {
        stream.write_all(b"ping").unwrap();
        let mut four = [0; 4];
        served.read_exact(&mut four).unwrap();
        assert_eq!(&four, b"ping");
    }
    // A slot that is free again serves the next connection.
    drop(all);
    for port in 0..COUNT {
        direct_connection(&client, &server, &format!("10.0.2.2:{}", 2_000 + port));
    }
}
