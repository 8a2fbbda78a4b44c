//! Applications that share sockets, and break the contract about them.

use super::network::{Network, PATIENCE, wait_until};
use super::{ACCEPT, ARENA_BYTES, CONSUMED, FIGURE_1, POOL, RETURN, RawCommands, SEND, SERVER, TAKE};
use super::{extents, is_given_up, raw, tag};
use siga_fabric::sockets::{TcpListener, TcpStream};
use siga_iucv::client::Client;
use siga_iucv::options::{SendFlags, SocketOptions};
use std::io::{ErrorKind, Read, Write};
use std::time::Duration;

const INHERIT: u64 = 20;

#[test]
fn shared_sockets_are_inherited_once_and_only_with_their_key() {
    let network = Network::up("hostile-heirs", FIGURE_1);
    let [mut owner, mut heir, mut other] = [(); 3].map(|()| Client::new(raw(&network)).unwrap());
    let socket = owner.bind("10.0.1.1:1000".parse().unwrap()).unwrap();
    let (key, wrong) = ([7; 16], [8; 16]);
    let shared = owner.share(key, &[]).unwrap();
    assert_eq!(shared.len(), 1);
    assert_eq!(heir.inherit(wrong, &shared).unwrap_err().kind(), ErrorKind::NotFound);
    heir.inherit(key, &shared).unwrap();
    assert_eq!(other.inherit(key, &shared).unwrap_err().kind(), ErrorKind::NotFound);
    // An application with sockets of its own gets them under other numbers. One that holds a socket cannot get it again.
    let [first, second] = [[9; 16], [10; 16]];
    let shared = owner.share(first, &[]).unwrap();
    owner.share(second, &[]).unwrap();
    assert_eq!(heir.adopt(first, &shared).unwrap_err().kind(), ErrorKind::NotFound);
    let own = other.bind("10.0.1.1:1001".parse().unwrap()).unwrap();
    let adopted = other.adopt(first, &shared).unwrap();
    assert_ne!(adopted[0].number, own);
    assert_eq!(other.adopt(second, &shared).unwrap_err().kind(), ErrorKind::NotFound);
    other.close(adopted[0].number);
    // The socket closes with its last holder.
    owner.close(socket);
    assert_eq!(other.bind("10.0.1.1:1000".parse().unwrap()).unwrap_err().kind(), ErrorKind::AddrInUse);
    heir.close(socket);
    wait_until("the address is free", || other.bind("10.0.1.1:1000".parse().unwrap()).is_ok());
}

/// Opens a connection to the server.
fn open(client: &mut Client) -> u32 {
    let (local, server) = ("0.0.0.0:0".parse().unwrap(), SERVER.parse().unwrap());
    let socket = client.connect(local, server, &SocketOptions::default()).unwrap();
    wait_until("the connection opens", || {
        client.work();
        client.connected(socket).unwrap()
    });
    socket
}

/// Returns the byte at a position of a stream.
fn pattern(at: usize) -> u8 {
    at.to_le_bytes()[0] ^ at.to_le_bytes()[1]
}

/// Sends to a connection until nothing more fits for a while. Returns the error, if there is one.
fn fill(client: &mut Client, socket: u32, sent: &mut usize) -> Option<ErrorKind> {
    for _ in 0..20 {
        let bytes: Vec<u8> = (*sent..*sent + 16_384).map(pattern).collect();
        match client.send(socket, &bytes, SendFlags::default()) {
            Ok(count) => *sent += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                client.wait(Some(Duration::from_millis(5)));
                client.work();
            }
            Err(error) => return Some(error.kind()),
        }
    }
    None
}

#[test]
fn connections_that_move_to_and_fro_take_at_most_an_arena_of_the_guests_memory() {
    const CONNECTIONS: usize = 8;
    const ARENA: usize = 1 << 20;
    let topology = FIGURE_1.replace("[guest.tcpip1]", &format!("[guest.tcpip1]\narena_bytes = {ARENA}"));
    let network = Network::up("moving", &topology);
    let server = network.application("tcpip3");
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let [mut owner, mut heir] = [(); 2].map(|()| Client::new(raw(&network)).unwrap());
    let mut streams: Vec<(u32, usize, TcpStream)> = Vec::new();
    for _ in 0..CONNECTIONS {
        streams.push((open(&mut owner), 0, listener.accept().unwrap().0));
    }
    let shared = owner.share([7; 16], &[]).unwrap();
    heir.inherit([7; 16], &shared).unwrap();
    // Nobody reads meanwhile, so the bytes that one application has sent move with the connection, and the other one adds its own.
    let mut refused = false;
    for turn in 0..12 {
        let client = if turn % 2 == 0 { &mut owner } else { &mut heir };
        for (socket, sent, _) in &mut streams {
            refused |= fill(client, *socket, sent) == Some(ErrorKind::QuotaExceeded);
        }
    }
    assert!(refused, "the guest has kept all bytes");
    assert_eq!(network.status("tcpip1").restarts, 0);
    for (socket, sent, stream) in &mut streams {
        stream.set_timeout(Some(PATIENCE));
        let mut read = vec![0; *sent];
        stream.read_exact(&mut read).unwrap();
        let wrong = read.iter().enumerate().find(|(at, byte)| **byte != pattern(*at));
        assert!(wrong.is_none(), "socket {socket}: {wrong:?} of {sent} bytes");
    }
}

#[test]
fn a_holder_that_sends_wrong_messages_leaves_the_connection_to_the_others() {
    let network = Network::up("hostile-holder", FIGURE_1);
    let server = network.application("tcpip3");
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let mut owner = Client::new(raw(&network)).unwrap();
    let socket = open(&mut owner);
    let mut served = listener.accept().unwrap().0;
    served.set_timeout(Some(PATIENCE));
    let number = u64::from(socket);
    let cases: [(u8, RawCommands); 7] = [
        (1, vec![(tag(TAKE, 99), Vec::new())]),
        (2, vec![(tag(ACCEPT, number), Vec::new())]),
        (3, vec![(tag(POOL, number), Vec::new())]),
        (4, vec![(tag(RETURN, number), vec![0; 4])]),
        (5, vec![(tag(TAKE, number), Vec::new()), (tag(SEND, number), extents(&[(ARENA_BYTES, 1)]))]),
        (6, vec![(tag(TAKE, number), Vec::new()), (tag(CONSUMED, number), vec![255; 4])]),
        (7, vec![(tag(INHERIT, 0), vec![7; 16]), (tag(TAKE, number), vec![0])]),
    ];
    for (case, commands) in cases {
        let key = [case; 16];
        owner.share(key, &[]).unwrap();
        let inherits = (tag(INHERIT, 0), key.to_vec());
        assert!(is_given_up(&network, &[vec![inherits], commands].concat(), PATIENCE), "case {case} is served");
        let mut read = [0; 1];
        wait_until("the owner sends", || {
            owner.work();
            owner.send(socket, &[case], SendFlags::default()).is_ok()
        });
        served.read_exact(&mut read).unwrap();
        assert_eq!(read, [case]);
        served.write_all(&[case]).unwrap();
        wait_until("the owner receives", || {
            owner.work();
            owner.receive(socket, &mut read).is_ok()
        });
        assert_eq!(read, [case]);
    }
    assert_eq!(network.status("tcpip1").restarts, 0);
}

#[test]
fn an_application_that_shares_endlessly_leaves_others_room_to_share() {
    let network = Network::up("sharing-endlessly", FIGURE_1);
    let [mut hostile, mut other, mut heir] = [(); 3].map(|()| Client::new(raw(&network)).unwrap());
    hostile.bind("10.0.1.1:1000".parse().unwrap()).unwrap();
    let key = |at: u32| {
        let mut key = [0; 16];
        key[..4].copy_from_slice(&at.to_le_bytes());
        key
    };
    let shared = (0..2_000).take_while(|at| hostile.share(key(*at), &[]).is_ok()).count();
    assert!(shared < 1_000, "{shared} times");
    other.bind("10.0.1.1:1001".parse().unwrap()).unwrap();
    let sockets = other.share([9; 16], &[]).unwrap();
    heir.inherit([9; 16], &sockets).unwrap();
}
