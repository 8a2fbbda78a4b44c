//! Applications that accept the connections of one listener: each connection goes to one of them, and to another one if that one does
//! not accept it.

use super::network::{Network, PATIENCE, wait_until};
use super::{EXPECT, FIGURE_1, POOL, address, is_given_up, options, raw, tag};
use siga_fabric::sockets::{Attachment, TcpStream};
use siga_iucv::client::{Client, SharedKind};
use siga_iucv::options::{SendFlags, SocketOptions};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

const LISTENER: &str = "10.0.1.1:1000";

/// Applications that hold one listener, under the same number. The first one has made it.
fn holders(network: &Network, count: u8) -> (Vec<Client>, u32) {
    let mut owner = Client::new(raw(network)).unwrap();
    let listener = owner.listen(LISTENER.parse().unwrap(), 64, &SocketOptions::default()).unwrap();
    let mut all = Vec::new();
    for at in 1..count {
        let shared = owner.share([at; 16], &[]).unwrap();
        assert_eq!(shared.iter().map(|one| one.kind).collect::<Vec<_>>(), [SharedKind::Listener]);
        let mut heir = Client::new(raw(network)).unwrap();
        heir.inherit([at; 16], &shared).unwrap();
        all.push(heir);
    }
    all.insert(0, owner);
    (all, listener)
}

fn connect(peer: &Attachment) -> TcpStream {
    let stream = TcpStream::connect(peer, LISTENER.parse().unwrap()).unwrap();
    stream.set_timeout(Some(PATIENCE));
    stream
}

/// Accepts a connection, and sends a byte over it.
fn accept(client: &mut Client, listener: u32, byte: u8) {
    let mut accepted = None;
    wait_until("a connection comes", || {
        client.work();
        accepted = client.accept(listener).ok();
        accepted.is_some()
    });
    let (connection, _) = accepted.unwrap();
    wait_until("the application sends", || {
        client.work();
        client.send(connection, &[byte], SendFlags::default()).is_ok()
    });
}

fn received(stream: &mut TcpStream) -> u8 {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    byte[0]
}

#[test]
fn a_connection_wakes_one_of_the_applications_that_expect_one() {
    let network = Network::up("pooled", FIGURE_1);
    let (mut all, listener) = holders(&network, 4);
    let peer = network.application("tcpip3");
    for round in 0..3 {
        all.iter_mut().for_each(|client| {
            client.expect(listener);
            while !client.fall_asleep() {
                client.work();
            }
        });
        let mut stream = connect(&peer);
        // Less than the time after which a connection goes to another application would not suffice on a busy host.
        let mut woken = Vec::new();
        wait_until("an application has a connection", || {
            woken = (0..all.len()).filter(|at| has_notification(&all[*at])).collect();
            !woken.is_empty()
        });
        let at = woken[0];
        accept(&mut all[at], listener, round);
        assert_eq!(received(&mut stream), round);
        for (other, client) in all.iter_mut().enumerate() {
            client.work();
            assert_eq!(client.accept(listener).unwrap_err().kind(), ErrorKind::WouldBlock, "application {other}");
        }
    }
}

fn has_notification(client: &Client) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let descriptor = client.notifications();
    let mut entries = [PollFd::from_borrowed_fd(descriptor, PollFlags::IN)];
    poll(&mut entries, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap() > 0
}

#[test]
fn a_connection_that_is_not_accepted_in_time_goes_to_another_application() {
    let network = Network::up("pooled-late", FIGURE_1);
    let (mut all, listener) = holders(&network, 2);
    let peer = network.application("tcpip3");
    // Only the first one expects a connection, and does not accept it.
    all[0].expect(listener);
    let mut stream = connect(&peer);
    wait_until("the first application has the connection", || {
        all[0].work();
        all[0].readiness(listener).unwrap().readable
    });
    stream.write_all(b"a request").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // The guest may sleep, and the second one expects a connection now. It gets the one of the first, with the bytes that have arrived.
    let mut accepted = None;
    let begun = Instant::now();
    wait_until("the second application has the connection", || {
        all[1].expect(listener);
        if all[1].fall_asleep() {
            all[1].wait(Some(Duration::from_millis(100)));
        }
        all[1].work();
        accepted = all[1].accept(listener).ok();
        accepted.is_some()
    });
    assert!(begun.elapsed() < PATIENCE);
    let (connection, _) = accepted.unwrap();
    let mut request = [0; 9];
    wait_until("the request arrives", || {
        all[1].work();
        all[1].receive(connection, &mut request).is_ok()
    });
    assert_eq!(&request, b"a request");
    assert_eq!(all[0].accept(listener).unwrap_err().kind(), ErrorKind::WouldBlock);
    all[1].send(connection, b"x", SendFlags::default()).unwrap();
    assert_eq!(received(&mut stream), b'x');
    // The first one gets the next connection.
    let mut stream = connect(&peer);
    accept(&mut all[0], listener, b'y');
    assert_eq!(received(&mut stream), b'y');
}

#[test]
fn connections_that_an_application_has_not_accepted_survive_its_end() {
    let network = Network::up("pooled-end", FIGURE_1);
    let (mut all, listener) = holders(&network, 3);
    let peer = network.application("tcpip3");
    let mut streams = Vec::new();
    for at in [0, 1] {
        all[at].expect(listener);
        streams.push(connect(&peer));
        let client = &mut all[at];
        wait_until("the application has a connection", || {
            client.work();
            client.readiness(listener).unwrap().readable
        });
    }
    // One application closes the listener, and another one ends.
    all[0].close(listener);
    drop(all.remove(1));
    let last = &mut all[1];
    for (byte, _) in (b'a'..).zip(&streams) {
        accept(last, listener, byte);
    }
    let mut bytes: Vec<u8> = streams.iter_mut().map(received).collect();
    bytes.sort_unstable();
    assert_eq!(bytes, *b"ab");
}

#[test]
fn an_application_that_expects_too_many_connections_is_given_up() {
    let network = Network::up("pooled-hostile", FIGURE_1);
    let listen = [address([10, 0, 1, 1], 1000), 8_u32.to_le_bytes().to_vec(), options()].concat();
    for count in [vec![0], vec![65], vec![u32::MAX], vec![64, 1]] {
        let expect = count.iter().map(|count| (tag(EXPECT, 5), count.to_le_bytes().to_vec()));
        let mut commands = vec![(tag(super::LISTEN, 5), listen.clone()), (tag(POOL, 5), Vec::new())];
        commands.extend(expect);
        assert!(is_given_up(&network, &commands, PATIENCE), "{count:?}");
    }
    assert_eq!(network.status("tcpip1").restarts, 0);
}
