//! Applications that use the stacks of guests: a network of internal guests, with this process and others of its kind attached to
//! the first and the last.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they measured")]

#[path = "common/network.rs"]
mod network;

use network::{Network, content, sink, source, until};
use siga_fabric::client::Client;
use siga_fabric::sockets::{Attachment, Poller, TcpListener, TcpStream, UdpSocket};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

const FIGURE_1: &str = include_str!("../../../topologies/figure-1.toml");

const CLIENT: &str = "10.0.1.1";
const SERVER: &str = "10.0.2.2:7";

/// Tests that want to be killed run their victim as a process of its own: this test binary with this in its environment.
const VICTIM: &str = "SIGA_TEST_VICTIM";

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

#[test]
fn streams_cross_the_router_whole_both_ways_over_both_ip_versions() {
    let network = Network::up("streams", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let ways = [(&client, &server, "10.0.2.2:7"), (&server, &client, "10.0.1.1:7")];
    let ways = ways.into_iter().chain([(&client, &server, "[fd00:2::2]:7"), (&server, &client, "[fd00:1::1]:7")]);
    for (from, to, at) in ways {
        let listener = TcpListener::bind(to, at.parse().unwrap()).unwrap();
        assert_eq!(listener.local_addr().unwrap(), at.parse().unwrap());
        std::thread::scope(|scope| {
            let served = scope.spawn(|| sink(&listener));
            let begun = Instant::now();
            source(from, at, 8 << 20, |_| {});
            println!("8 MB to {at}: {:?}", begun.elapsed());
            assert_eq!(served.join().unwrap().0, 8 << 20);
        });
    }
}

#[test]
fn what_cannot_be_is_an_error_of_the_right_kind() {
    let network = Network::up("errors", FIGURE_1);
    let client = network.application("tcpip1");
    let refused = TcpStream::connect(&client, SERVER.parse().unwrap()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    let elsewhere = TcpListener::bind(&client, "10.9.9.9:7".parse().unwrap()).unwrap_err();
    assert_eq!(elsewhere.kind(), ErrorKind::AddrNotAvailable);
    let at: SocketAddr = format!("{CLIENT}:0").parse().unwrap();
    let listener = TcpListener::bind(&client, at).unwrap();
    let again = TcpListener::bind(&client, listener.local_addr().unwrap()).unwrap_err();
    assert_eq!(again.kind(), ErrorKind::AddrInUse);
    // An end that was given up is free again.
    let local = listener.local_addr().unwrap();
    drop(listener);
    drop(TcpListener::bind(&client, local).unwrap());
    let guest = "tcpip1".parse().unwrap();
    let wrong = siga_fabric::message::Token::claimed("0");
    let error = Attachment::iucv_at(&network.run_dir(), &network.name, &guest, &wrong).unwrap_err();
    assert!(error.message().contains("the token is not that of the applications"), "{error}");
}

#[test]
fn two_applications_of_a_guest_share_its_addresses_and_not_its_ports() {
    let network = Network::up("two", FIGURE_1);
    let (one, other) = (network.application("tcpip3"), network.application("tcpip3"));
    let client = network.application("tcpip1");
    let listener = TcpListener::bind(&one, SERVER.parse().unwrap()).unwrap();
    let taken = TcpListener::bind(&other, SERVER.parse().unwrap()).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    let second = TcpListener::bind(&other, "10.0.2.2:8".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let served = [scope.spawn(|| sink(&listener)), scope.spawn(|| sink(&second))];
        let client = &client;
        let sent = [SERVER, "10.0.2.2:8"].map(|to| scope.spawn(move || source(client, to, 8 << 20, |_| {})));
        sent.into_iter().for_each(|sent| sent.join().unwrap());
        served.into_iter().for_each(|served| assert_eq!(served.join().unwrap().0, 8 << 20));
    });
    // Applications of one guest reach each other through its stack.
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        source(&other, SERVER, 8 << 20, |_| {});
        assert_eq!(served.join().unwrap().0, 8 << 20);
    });
}

#[test]
fn datagrams_come_whole_with_their_senders() {
    let network = Network::up("datagrams", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    for (own, at) in [("10.0.1.1:0", "10.0.2.2:53"), ("[fd00:1::1]:0", "[fd00:2::2]:53")] {
        let socket = UdpSocket::bind(&client, own.parse().unwrap()).unwrap();
        let served = UdpSocket::bind(&server, at.parse().unwrap()).unwrap();
        for len in [0, 1, 1_472, 40_000, 65_507] {
            let mut bytes = vec![0; len];
            content(len as u64, &mut bytes);
            socket.send_to(&bytes, at.parse().unwrap()).unwrap();
            served.set_timeout(Some(Duration::from_secs(10)));
            let mut read = vec![0; 65_536];
            let (count, from) = served.recv_from(&mut read).unwrap_or_else(|error| panic!("{len} bytes: {error}"));
            assert_eq!(from, socket.local_addr().unwrap());
            assert!(read[..count] == bytes[..], "{len} bytes");
        }
        let too_long = socket.send_to(&[0; 65_518], at.parse().unwrap()).unwrap_err();
        assert_eq!(too_long.kind(), ErrorKind::InvalidInput);
    }
}

#[test]
fn datagrams_to_and_fro_never_find_a_ring_full_that_is_emptied_each_time() {
    let network = Network::up("to-and-fro", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let socket = UdpSocket::bind(&client, "10.0.1.1:0".parse().unwrap()).unwrap();
    let served = UdpSocket::bind(&server, "10.0.2.2:53".parse().unwrap()).unwrap();
    for socket in [&socket, &served] {
        socket.set_timeout(Some(Duration::from_secs(10)));
    }
    let mut read = [0; 8];
    // More of them than the rings have buffers.
    for number in 0..500_u64 {
        for (from, to, at) in
            [(&socket, &served, "10.0.2.2:53".parse().unwrap()), (&served, &socket, socket.local_addr().unwrap())]
        {
            from.set_nonblocking(true);
            from.send_to(&number.to_le_bytes(), at).unwrap_or_else(|error| panic!("datagram {number}: {error}"));
            from.set_nonblocking(false);
            assert_eq!(to.recv_from(&mut read).unwrap().0, 8);
            assert_eq!(u64::from_le_bytes(read), number);
        }
    }
}

#[test]
fn a_poller_tells_of_sockets_and_can_be_polled_itself() {
    let network = Network::up("poller", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    listener.set_nonblocking(true);
    let (poller, mut news) = (Poller::new(&server), Vec::new());
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let data = rustix::event::epoll::EventData::new_u64(1);
    rustix::event::epoll::add(&epoll, &poller, data, rustix::event::epoll::EventFlags::IN).unwrap();
    let next = |news: &mut Vec<_>| {
        news.clear();
        loop {
            poller.wait(news, Some(Duration::ZERO)).unwrap();
            if !news.is_empty() {
                return;
            }
            let mut events = Vec::with_capacity(4);
            let limit = rustix::event::Timespec { tv_sec: 10, tv_nsec: 0 };
            let space = rustix::buffer::spare_capacity(&mut events);
            let count = rustix::event::epoll::wait(&epoll, space, Some(&limit)).unwrap();
            assert!(count > 0, "nothing happens");
        }
    };
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::WouldBlock);
    let mut stream = TcpStream::connect(&client, SERVER.parse().unwrap()).unwrap();
    next(&mut news);
    assert_eq!(news, [listener.id()]);
    let (mut served, _) = listener.accept().unwrap();
    served.set_nonblocking(true);
    stream.write_all(b"ping").unwrap();
    while !served.readiness().unwrap().readable {
        next(&mut news);
        assert!(news.contains(&served.id()));
    }
    let mut read = [0; 9];
    assert_eq!(served.read(&mut read).unwrap(), 4);
    assert_eq!(served.read(&mut read).unwrap_err().kind(), ErrorKind::WouldBlock);
    // Until the other end reads, there is an end to what is taken; then it goes on.
    let chunk = [7; 65_536];
    let mut sent = 0;
    let mut last = Instant::now();
    while last.elapsed() < Duration::from_millis(300) {
        match served.write(&chunk) {
            Ok(count) => (sent, last) = (sent + count, Instant::now()),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                poller.wait(&mut news, Some(Duration::from_millis(50))).unwrap();
            }
        }
    }
    assert!(sent < 64 << 20, "{sent}");
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        all.len()
    });
    while !served.readiness().unwrap().writable {
        next(&mut news);
    }
    sent += served.write(&chunk).unwrap();
    served.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(reader.join().unwrap(), sent);
}

/// Not a test by itself: the process that another one kills.
#[test]
fn victim() {
    let Ok(arguments) = std::env::var(VICTIM) else { return };
    let words: Vec<&str> = arguments.split(' ').collect();
    let [base, network, guest, token, connections] = words[..] else { panic!("{arguments}") };
    let token = siga_fabric::message::Token::claimed(token);
    let (network, guest) = (network.parse().unwrap(), guest.parse().unwrap());
    let attachment = Attachment::iucv_at(base.as_ref(), &network, &guest, &token).unwrap();
    let _listener = TcpListener::bind(&attachment, "10.0.1.1:99".parse().unwrap()).unwrap();
    let streams: Vec<TcpStream> = (0..connections.parse().unwrap())
        .map(|_| TcpStream::connect(&attachment, SERVER.parse().unwrap()).unwrap())
        .collect();
    loop {
        for stream in &streams {
            (&mut &*stream).write_all(&[1; 50_000]).unwrap();
        }
    }
}

fn start_victim(network: &Network, connections: usize) -> Child {
    let token = network.application_token("tcpip1");
    let base = network.run_dir();
    let arguments = format!("{} {} tcpip1 {} {connections}", base.display(), network.name, token.text());
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "victim", "--nocapture"]).env(VICTIM, arguments).spawn().unwrap()
}

#[test]
fn a_killed_application_resets_its_connections_and_leaves_nothing() {
    let network = Network::up("killed", FIGURE_1);
    let server = network.application("tcpip3");
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let before = network.stack("tcpip1");
    let mut child = start_victim(&network, 20);
    let mut streams: Vec<TcpStream> = (0..20).map(|_| listener.accept().unwrap().0).collect();
    let mut buffer = vec![0; 1 << 16];
    for stream in &mut streams {
        stream.read_exact(&mut buffer[..10_000]).unwrap();
    }
    assert_eq!(network.stack("tcpip1")["connections"], 20);
    child.kill().unwrap();
    let killed = Instant::now();
    child.wait().unwrap();
    for stream in &mut streams {
        stream.set_timeout(Some(Duration::from_secs(5)));
        let error = loop {
            if let Err(error) = stream.read(&mut buffer) {
                break error;
            }
        };
        assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    }
    println!("all know {:?} after the kill", killed.elapsed());
    until("something is left", || {
        let after = network.stack("tcpip1");
        after["connections"] == 0 && after["memory"]["TCP connections"] == before["memory"]["TCP connections"]
    });
    assert!(network.log().contains("ended: the partner is gone"), "{}", network.log());
    // Its addresses and its place are free.
    let another = network.application("tcpip1");
    drop(TcpListener::bind(&another, "10.0.1.1:99".parse().unwrap()).unwrap());
}

#[test]
fn a_killed_guest_ends_its_applications_which_attach_again() {
    let network = Network::up("guest", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let mut stream = TcpStream::connect(&client, SERVER.parse().unwrap()).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    kill(network.pid("tcpip3"));
    let error = served.read(&mut [0]).unwrap_err();
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::NotConnected, "the guest has ended"));
    assert!(TcpListener::bind(&server, "10.0.2.2:9".parse().unwrap()).is_err());
    until("the guest does not run again", || {
        let status = network.status();
        let guests = status["guests"].as_array().unwrap();
        guests.iter().any(|guest| guest["name"] == "tcpip3" && guest["state"] == "running" && guest["restarts"] == 1)
    });
    let server = network.application("tcpip3");
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        source(&client, SERVER, 1 << 20, |_| {});
        assert_eq!(served.join().unwrap().0, 1 << 20);
    });
    // The stack that knows nothing of the old connection resets it.
    let _ = stream.write_all(b"hello");
    stream.set_timeout(Some(Duration::from_secs(10)));
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}

/// Sends commands as they are given, and reads what comes until the guest hangs up. False if it goes on serving.
fn is_given_up(network: &Network, commands: &[(u64, Vec<u8>)]) -> bool {
    let token = network.application_token("tcpip1");
    let client = Client::connect_at(&network.run_dir(), &network.name).unwrap();
    let mut end = client.use_stack(&"tcpip1".parse().unwrap(), &token).unwrap();
    for (tag, bytes) in commands {
        while let Ok(None) = end.link.producer.reserve(bytes.len()) {
            if end.link.ear.has_hung_up().unwrap() {
                return true;
            }
        }
        end.link.producer.reserve(bytes.len()).unwrap().unwrap().copy_from_slice(bytes);
        end.link.producer.commit(bytes.len(), *tag);
        end.link.producer.publish();
        while end.link.consumer.next_frame().unwrap().is_some() {}
    }
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        if end.link.ear.has_hung_up().unwrap() {
            return true;
        }
        while end.link.consumer.next_frame().unwrap().is_some() {}
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

#[test]
fn an_application_against_the_contract_ends_alone_and_is_logged() {
    let network = Network::up("hostile", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let mut stream = TcpStream::connect(&client, SERVER.parse().unwrap()).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    let mut echo = || {
        stream.write_all(b"still there").unwrap();
        served.read_exact(&mut [0; 11]).unwrap();
    };
    let tag = |kind: u64, socket: u64| kind << 56 | socket;
    let address = |port: u16| {
        let mut bytes = vec![4, 10, 0, 1, 1];
        bytes.resize(17, 0);
        bytes.extend(port.to_le_bytes());
        bytes
    };
    let (bind, bound) = (tag(2, 5), address(1_000));
    let cases = [
        ("5 bytes that are no command", vec![(tag(11, 0), vec![0; 5])]),
        ("that are no command", vec![(tag(2, 5) | 1 << 40, bound.clone())]),
        ("that are no command", vec![(bind, bound[..18].to_vec())]),
        ("a number that cannot be given, socket 5", vec![(bind, bound.clone()), (bind, bound.clone())]),
        ("a number that cannot be given", vec![(tag(2, 1 << 31), bound.clone())]),
        ("no connection, socket 5", vec![(bind, bound.clone()), (tag(4, 5), vec![0; 8])]),
        ("no connection, socket 9", vec![(tag(5, 9), vec![1, 0, 0, 0])]),
        ("nothing to give up, socket 9", vec![(tag(8, 9), Vec::new())]),
        ("more accepted than told of", vec![(tag(3, 9), vec![1, 0, 0, 0])]),
        ("a datagram, socket 9", vec![(tag(10, 9), bound.clone())]),
    ];
    for (why, commands) in cases {
        assert!(is_given_up(&network, &commands), "{why}");
        until(why, || network.log().contains(&format!("violation: {}", why)) || network.log().contains(why));
        echo();
    }
    // Bytes at random, from a seed that is told where it matters.
    for seed in 1..=20_u64 {
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let commands: Vec<(u64, Vec<u8>)> = (0..200)
            .map(|_| {
                let bytes = (0..random() % 40).map(|_| random().to_le_bytes()[0]).collect();
                (tag(random() % 11, random() % 8), bytes)
            })
            .collect();
        assert!(is_given_up(&network, &commands), "seed {seed}");
        echo();
    }
    // A flood of what is allowed holds nobody up, and is allowed.
    let flood: Vec<_> = (0..5_000).flat_map(|_| [(bind, bound.clone()), (tag(8, 5), Vec::new())]).collect();
    assert!(!is_given_up(&network, &flood));
    echo();
    assert_eq!(network.stack("tcpip1")["connections"], 1);
}
