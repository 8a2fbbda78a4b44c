//! Applications that use the stacks of guests: a network of internal guests, with this process and others of its kind attached to
//! the first and the last.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they measured")]

#[path = "common/network.rs"]
mod network;

use network::{Network, PATIENCE, content, kill, sink, source, use_beside_a_waiting_thread, victim, wait_until};
use siga_fabric::protocol::request::GuestState;
use siga_fabric::sockets::{Attachment, FastOpenKeys, Poller, SocketOptions, TcpListener, TcpStream, UdpSocket};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Child;
use std::time::{Duration, Instant};

const FIGURE_1: &str = include_str!("../../../topologies/figure-1.toml");

const CLIENT: &str = "10.0.1.1";
const SERVER: &str = "10.0.2.2:7";

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
fn impossible_socket_calls_return_the_right_kind_of_error() {
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
    let wrong = siga_fabric::protocol::secret::Secret::claimed("0");
    let error = Attachment::iucv_at(&network.run_dir(), &network.name, &guest, &wrong).unwrap_err();
    assert!(error.message().contains("the given secret is not the secret for applications"), "{error}");
}

#[test]
fn an_application_connects_with_data_over_iucv() {
    let network = Network::up("fast-open", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let keys = FastOpenKeys { primary: [1; 16], backup: Some([2; 16]) };
    let options = SocketOptions { fast_open_pending_max: 4, fast_open_keys: Some(keys), ..SocketOptions::default() };
    let listener = TcpListener::bind_with(&server, SERVER.parse().unwrap(), &options).unwrap();
    let serve = || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 7];
        stream.read_exact(&mut request).unwrap();
        assert_eq!(&request, b"request");
        stream.write_all(b"answer").unwrap();
        stream
    };
    let ended = |mut stream: TcpStream| {
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"answer");
    };
    let remote = SERVER.parse().unwrap();
    let (first, written) =
        TcpStream::connect_with_data(&client, remote, &SocketOptions::default(), b"request").unwrap();
    assert_eq!(written, 7);
    let served = serve();
    ended(first);
    drop(served);
    // With the cookie, the connection counts as open, and the server learns of it only by the first write.
    let options = SocketOptions { fast_open: true, ..SocketOptions::default() };
    let mut second = TcpStream::begin(&client, remote, &options).unwrap();
    let poller = Poller::new(&client);
    wait_until("the connection counts as open", || {
        poller.look(&mut Vec::new()).unwrap();
        second.is_connected().unwrap() && second.readiness().unwrap().writable
    });
    drop(poller);
    listener.set_timeout(Some(Duration::from_millis(100)));
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);
    listener.set_timeout(None);
    second.write_all(b"request").unwrap();
    let served = serve();
    ended(second);
    drop(served);
    let options = SocketOptions { fast_open_pending_max: usize::MAX, ..SocketOptions::default() };
    let refused = TcpListener::bind_with(&server, "10.0.2.2:8".parse().unwrap(), &options).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
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
fn datagrams_arrive_whole_with_their_senders() {
    let network = Network::up("datagrams", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    for (own, at) in [("10.0.1.1:0", "10.0.2.2:53"), ("[fd00:1::1]:0", "[fd00:2::2]:53")] {
        let socket = UdpSocket::bind(&client, own.parse().unwrap()).unwrap();
        let served = UdpSocket::bind(&server, at.parse().unwrap()).unwrap();
        for len in [0, 1, 1_472, 40_000, 65_507] {
            let mut bytes = vec![0; len];
            content(len as u64, &mut bytes);
            socket.send_to(&bytes, at.parse().unwrap()).unwrap();
            served.set_timeout(Some(PATIENCE));
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
fn datagrams_in_turns_never_fill_a_ring_that_is_drained_each_time() {
    let network = Network::up("to-and-fro", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let socket = UdpSocket::bind(&client, "10.0.1.1:0".parse().unwrap()).unwrap();
    let served = UdpSocket::bind(&server, "10.0.2.2:53".parse().unwrap()).unwrap();
    for socket in [&socket, &served] {
        socket.set_timeout(Some(PATIENCE));
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
fn a_guest_with_much_unread_data_limits_the_window_of_each_connection() {
    const IDLE: usize = 20;
    // Whole blocks of the guest's memory, and less than the first window.
    const UNREAD: usize = 96 << 10;
    let network = Network::up("crowded", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let connect = || {
        let stream = TcpStream::connect(&client, SERVER.parse().unwrap()).unwrap();
        (stream, listener.accept().unwrap().0)
    };
    let free = network.free_bytes("tcpip3");
    let unread = || free - network.free_bytes("tcpip3");
    // Nobody reads these.
    let _idle: Vec<_> = (0..IDLE)
        .map(|_| {
            let (mut stream, served) = connect();
            stream.write_all(&[1; UNREAD]).unwrap();
            (stream, served)
        })
        .collect();
    let of_idle = (IDLE * UNREAD) as u64;
    wait_until("not all has come", || unread() == of_idle);
    let (mut stream, mut served) = connect();
    std::thread::scope(|scope| {
        let sent = scope.spawn(move || stream.write_all(&vec![2; 64 << 20]));
        let mut part = vec![0; 64 << 10];
        (0..512).for_each(|_| served.read_exact(&mut part).unwrap());
        let mut last = unread();
        wait_until("bytes still come", || std::mem::replace(&mut last, unread()) == last);
        let held = last - of_idle;
        // Its window, and the last segment or block.
        assert!((1..=(256 + 64) << 10).contains(&held), "{held} bytes are unread");
        drop(served);
        assert!(sent.join().unwrap().is_err());
    });
}

#[test]
fn a_poller_reports_ready_sockets_and_can_itself_be_polled() {
    let network = Network::up("poller", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    listener.set_nonblocking(true);
    let (poller, mut ready) = (Poller::new(&server), Vec::new());
    let epoll = rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).unwrap();
    let data = rustix::event::epoll::EventData::new_u64(1);
    rustix::event::epoll::add(&epoll, &poller, data, rustix::event::epoll::EventFlags::IN).unwrap();
    let next = |ready: &mut Vec<_>| {
        ready.clear();
        loop {
            poller.wait(ready, Some(Duration::ZERO)).unwrap();
            if !ready.is_empty() {
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
    next(&mut ready);
    assert_eq!(ready, [listener.id()]);
    let (mut served, _) = listener.accept().unwrap();
    served.set_nonblocking(true);
    stream.write_all(b"ping").unwrap();
    while !served.readiness().unwrap().readable {
        next(&mut ready);
        assert!(ready.contains(&served.id()));
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
                poller.wait(&mut ready, Some(Duration::from_millis(50))).unwrap();
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
        next(&mut ready);
    }
    sent += served.write(&chunk).unwrap();
    served.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(reader.join().unwrap(), sent);
}

#[test]
fn a_thread_that_waits_for_iucv_sockets_does_not_block_other_threads() {
    let network = Network::up("threads", FIGURE_1);
    use_beside_a_waiting_thread(&network.application("tcpip1"), "10.0.1.1:0");
}

/// Not a test by itself: the process that another one kills.
#[test]
fn victim_process() {
    let Some((attachment, connections)) = victim() else { return };
    let _listener = TcpListener::bind(&attachment, "10.0.1.1:99".parse().unwrap()).unwrap();
    let member = UdpSocket::bind(&attachment, "0.0.0.0:99".parse().unwrap()).unwrap();
    member.join_multicast_v4(&Ipv4Addr::new(239, 1, 2, 3), &Ipv4Addr::UNSPECIFIED).unwrap();
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
    network.start_victim("victim_process", "tcpip1", &connections.to_string())
}

#[test]
fn a_killed_application_ends_its_connections_and_leaves_nothing() {
    let network = Network::up("killed", FIGURE_1);
    let server = network.application("tcpip3");
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    // The links between guests are made when something first goes over them.
    network.ping("tcpip1", "10.0.2.2");
    let (before, held) = (network.stack("tcpip1"), network.held("tcpip1"));
    let mut child = start_victim(&network, 20);
    let mut streams: Vec<TcpStream> = (0..20).map(|_| listener.accept().unwrap().0).collect();
    let mut buffer = vec![0; 1 << 16];
    for stream in &mut streams {
        stream.read_exact(&mut buffer[..10_000]).unwrap();
    }
    let during = network.stack("tcpip1");
    assert_eq!((&during["connections"], during["memory"]["groups"] == 0), (&20.into(), false));
    child.kill().unwrap();
    let killed = Instant::now();
    child.wait().unwrap();
    for stream in &mut streams {
        stream.set_timeout(Some(PATIENCE));
        // The guest still delivers the bytes that the application has sent.
        while stream.read(&mut buffer).unwrap() > 0 {}
    }
    println!("all know {:?} after the kill", killed.elapsed());
    drop(streams);
    wait_until("something is left", || {
        let after = network.stack("tcpip1");
        after["connections"] == 0
            && after["memory"]["TCP connections"] == before["memory"]["TCP connections"]
            && after["memory"]["groups"] == 0
            && network.held("tcpip1") == held
    });
    assert!(network.log().contains("ended: the partner's process has ended"), "{}", network.log());
    // Its addresses and its place are free.
    let another = network.application("tcpip1");
    drop(TcpListener::bind(&another, "10.0.1.1:99".parse().unwrap()).unwrap());
}

#[test]
fn applications_that_attach_and_detach_leave_nothing_in_guest_and_control_program() {
    let network = Network::up("come", FIGURE_1);
    let server = network.application("tcpip3");
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let visit = |waits_for_answer: bool| {
        let client = network.application("tcpip1");
        let mut stream = TcpStream::connect(&client, SERVER.parse().unwrap()).unwrap();
        let (mut served, _) = listener.accept().unwrap();
        served.set_timeout(Some(PATIENCE));
        if waits_for_answer {
            stream.write_all(b"hello").unwrap();
            served.read_exact(&mut [0; 5]).unwrap();
            served.write_all(b"hello").unwrap();
            stream.read_exact(&mut [0; 5]).unwrap();
        } else {
            stream.write_all(b"good-bye").unwrap();
        }
        // What was closed before the application ended is an end, and not a reset.
        drop((stream, client));
        let mut all = Vec::new();
        served.read_to_end(&mut all).unwrap();
        assert_eq!(all, if waits_for_answer { b"".as_slice() } else { b"good-bye" });
    };
    visit(true);
    let is_rid_of_them = || {
        let log = network.log();
        let count = |what: &str| log.lines().filter(|line| line.contains("application") && line.contains(what)).count();
        count(": attached") == count(": ended:") + 1
    };
    wait_until("the first is still known", is_rid_of_them);
    let held = network.held("tcpip1");
    (0..30).for_each(|turn| visit(turn % 2 == 0));
    wait_until("some are still known", is_rid_of_them);
    wait_until("descriptors or mappings are left", || network.held("tcpip1") == held);
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
    assert_eq!((error.kind(), error.to_string().as_str()), (ErrorKind::NetworkDown, "the guest has ended"));
    assert!(TcpListener::bind(&server, "10.0.2.2:9".parse().unwrap()).is_err());
    wait_until("the guest does not run again", || {
        let status = network.status("tcpip3");
        status.state == GuestState::Running && status.restarts == 1
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
    stream.set_timeout(Some(PATIENCE));
    assert_eq!(stream.read(&mut [0]).unwrap_err().kind(), ErrorKind::ConnectionReset);
}
