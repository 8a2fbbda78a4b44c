//! The drivers over sockets that misbehave, and against peers that do: what is wrong is counted, what is right goes on,
//! and both ends quiesce with the same counts.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod datagrams;
mod ends;

use ends::{ClientEnd, Faults, Faulty, SOON, ServerEnd, localhost, options, phase, phase_of};
use siga_measure::limits;
use siga_measure::load::client::PhaseReport;
use siga_measure::socket::kernel::{Kernel, KernelOptions};
use siga_measure::socket::uring::Uring;
use siga_measure::socket::{Endpoint, Sockets, Token};
use siga_model::waiting::Waiting;
use siga_plan::workload::Close;
use siga_plan::workload::Workload;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Every kind of workload, sizes around the stride included.
const WORKLOADS: [&str; 11] = [
    "rr:1/1",
    "rr:4095/4097",
    "rr:65537/4096",
    "crr:64/8k",
    "crr:1/1",
    "crr:100k/300k",
    "strg:20/1m",
    "strp:1m/20",
    "rr:8/1m",
    "strb:300k/1m",
    "rr:200/1000+2strg",
];

#[test]
fn short_and_premature_operations_change_nothing_but_the_rate() {
    let faults = Faults { short: 2, not_yet: 3, ..Faults::default() };
    for (seed, text) in (1..).zip(WORKLOADS) {
        for close in [Close::Server, Close::Client] {
            let workload: Workload = text.parse().unwrap();
            let server = ServerEnd::start(Faulty::new(faults, seed), workload, close, localhost());
            let client = ClientEnd::start(Faulty::new(faults, seed + 99), workload, close, 5, &server.endpoint);
            // Twice, so that a stream goes on where it was stopped; first with every byte checked.
            for stride in [limits::STAMP_BYTES, limits::STAMP_STRIDE_BYTES] {
                let (report, quiesced) = phase(&client, &server, stride);
                assert_eq!(
                    (report.counts.errors(), quiesced.errors()),
                    (0, 0),
                    "{text}: {:?} {quiesced:?}",
                    report.counts
                );
                assert_eq!(report.counts.sent, quiesced.received, "{text}");
                assert_eq!(report.counts.received, quiesced.sent, "{text}");
                if !workload.is_stream() {
                    assert_eq!(report.counts.transactions, quiesced.transactions, "{text}");
                    assert_eq!(report.latency.len(), quiesced.transactions, "{text}");
                }
            }
            server.quit();
        }
    }
}

fn uring(wait: Waiting) -> Uring {
    Uring::new(options(wait, true)).unwrap()
}

/// Whether this host lets programs use io_uring; says so if not.
fn has_io_uring() -> bool {
    match uring(Waiting::Block).poll(&mut Vec::new(), Some(Duration::ZERO)) {
        Ok(()) => true,
        Err(error) => {
            println!("skipped, because {error}");
            false
        }
    }
}

#[test]
fn io_uring_carries_every_workload_with_all_its_bytes() {
    if !has_io_uring() {
        return;
    }
    for (turn, text) in WORKLOADS.into_iter().enumerate() {
        let workload: Workload = text.parse().unwrap();
        for (close, wait) in [(Close::Server, Waiting::Block), (Close::Client, Waiting::Poll)] {
            // More pairs than the ring has buffers.
            let pairs = if turn % 2 == 0 { 300 } else { 5 };
            let server = ServerEnd::start(uring(wait), workload, close, localhost());
            let client = ClientEnd::start(uring(wait), workload, close, pairs, &server.endpoint);
            for stride in [limits::STAMP_BYTES, limits::STAMP_STRIDE_BYTES] {
                let (report, quiesced) = phase(&client, &server, stride);
                let errors = (report.counts.errors(), quiesced.errors());
                assert_eq!(errors, (0, 0), "{text} {close:?}: {:?} {quiesced:?}", report.counts);
                assert_eq!(report.counts.sent, quiesced.received, "{text} {close:?}");
                assert_eq!(report.counts.received, quiesced.sent, "{text} {close:?}");
                assert!(
                    workload.is_stream() || report.counts.transactions == quiesced.transactions,
                    "{text} {close:?}"
                );
            }
            server.quit();
        }
    }
}

#[test]
fn io_uring_at_one_end_works_with_epoll_at_the_other() {
    if !has_io_uring() {
        return;
    }
    let epoll = || Kernel::new(options(Waiting::Block, false), None).unwrap();
    for text in ["rr:200/32k", "crr:64/8k", "strg:20/1m", "strp:1m/20"] {
        let workload: Workload = text.parse().unwrap();
        for at_client in [true, false] {
            let (server, client);
            if at_client {
                server = ServerEnd::start(epoll(), workload, Close::Client, localhost());
                client = ClientEnd::start(uring(Waiting::Block), workload, Close::Client, 20, &server.endpoint);
            } else {
                server = ServerEnd::start(uring(Waiting::Block), workload, Close::Client, localhost());
                client = ClientEnd::start(epoll(), workload, Close::Client, 20, &server.endpoint);
            }
            let (report, quiesced) = phase(&client, &server, limits::STAMP_BYTES);
            assert_eq!((report.counts.errors(), quiesced.errors()), (0, 0), "{text}: {:?} {quiesced:?}", report.counts);
            assert_eq!((report.counts.sent, report.counts.received), (quiesced.received, quiesced.sent), "{text}");
            server.quit();
        }
    }
}

#[test]
fn io_uring_reports_refused_and_broken_connections() {
    if !has_io_uring() {
        return;
    }
    let mut sockets = uring(Waiting::Block);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let socket = sockets.connect(&Endpoint::Tcp(address), Token(1)).unwrap();
    let until = |sockets: &mut Uring, seen: &mut dyn FnMut(&mut Uring) -> bool| {
        let begun = Instant::now();
        while !seen(sockets) {
            assert!(begun.elapsed() < SOON, "it never happens");
            sockets.poll(&mut Vec::new(), Some(Duration::from_millis(1))).unwrap();
        }
    };
    until(&mut sockets, &mut |sockets| sockets.connected(&socket).unwrap());
    let (peer, _) = listener.accept().unwrap();
    peer.set_nonblocking(true).unwrap();
    // Unread bytes make the peer's close a reset.
    assert_eq!(sockets.send(&socket, b"unread").unwrap(), 6);
    until(&mut sockets, &mut |_| peer.peek(&mut [0; 8]).unwrap_or(0) == 6);
    drop(peer);
    let mut error = None;
    until(&mut sockets, &mut |sockets| {
        error = sockets.receive(&socket, &mut [0; 8]).err().filter(|error| error.kind() != io::ErrorKind::WouldBlock);
        error.is_some()
    });
    assert_eq!(error.unwrap().kind(), io::ErrorKind::ConnectionReset);
    sockets.close(socket);
    drop(listener);
    let socket = sockets.connect(&Endpoint::Tcp(address), Token(2)).unwrap();
    let mut error = None;
    until(&mut sockets, &mut |sockets| {
        error = sockets.connected(&socket).err();
        error.is_some()
    });
    assert_eq!(error.unwrap().kind(), io::ErrorKind::ConnectionRefused);
    let unix = sockets.listen(&Endpoint::Unix("siga-none".into()), Token(3)).unwrap_err();
    assert_eq!(unix.kind(), io::ErrorKind::Unsupported);
}

#[test]
fn changed_content_is_found_by_the_end_that_receives_it() {
    let flips = Faults { flip: 1, ..Faults::default() };
    for text in ["rr:200/1000", "rr:1/1", "rr:8/70000", "crr:64/8k", "strg:20/1m", "strp:1m/20"] {
        let workload: Workload = text.parse().unwrap();
        for at_client in [true, false] {
            let faults = |here: bool| if here { flips } else { Faults::default() };
            let sockets = Faulty::new(faults(!at_client), 5);
            let server = ServerEnd::start(sockets, workload, Close::Server, localhost());
            let sockets = Faulty::new(faults(at_client), 6);
            let client = ClientEnd::start(sockets, workload, Close::Server, 3, &server.endpoint);
            let begun = Instant::now();
            // Of a stream, a busy host may take longer than a phase for the first that comes to this end.
            let (report, quiesced) = loop {
                let (report, quiesced) = phase(&client, &server, limits::STAMP_BYTES);
                let received = if at_client { report.counts.received } else { quiesced.received };
                if received > 0 || begun.elapsed() > SOON {
                    break (report, quiesced);
                }
            };
            let found = if at_client { report.counts.wrong_content } else { quiesced.wrong_content };
            assert!(found > 0, "{text}, changed at the client {at_client}: {:?} {quiesced:?}", report.counts);
            assert!(report.counts.errors() + quiesced.errors() > 0);
            server.quit();
        }
    }
}

#[test]
fn with_sound_sockets_no_content_is_wrong_at_any_size() {
    for request in [1, 7, 8, 9, 15, 4_095, 4_096, 4_097, 4_103, 65_537] {
        for response in [1, 9, 4_096, 4_104, 131_073] {
            let workload: Workload = format!("rr:{request}/{response}").parse().unwrap();
            let server = ServerEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, localhost());
            let sockets = Faulty::new(Faults::default(), 1);
            let client = ClientEnd::start(sockets, workload, Close::Server, 1, &server.endpoint);
            let (report, quiesced) = phase_of(Duration::from_millis(5), &client, &server, limits::STAMP_BYTES);
            assert!(report.counts.transactions > 0, "{workload}");
            assert_eq!(
                (report.counts.errors(), quiesced.errors()),
                (0, 0),
                "{workload}: {:?} {quiesced:?}",
                report.counts
            );
            server.quit();
        }
    }
}

#[test]
fn a_connection_that_breaks_is_counted_and_the_others_go_on() {
    for (seed, text, reset) in [(20, "rr:200/1000", 2_000), (21, "strg:20/1m", 100), (22, "strp:1m/20", 100)] {
        let faults = Faults { reset, ..Faults::default() };
        let workload: Workload = text.parse().unwrap();
        let server = ServerEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, localhost());
        let mut client = ClientEnd::start(Faulty::new(faults, seed), workload, Close::Server, 200, &server.endpoint);
        client.patience = Duration::from_millis(500);
        // On a busy host, in the first phases in which as much happens that one breaks.
        let (begun, mut failed, mut transactions) = (Instant::now(), 0, 0);
        while begun.elapsed() < SOON && (failed == 0 || (transactions == 0 && !workload.is_stream())) {
            let (report, quiesced) = phase(&client, &server, limits::STAMP_STRIDE_BYTES);
            failed += report.counts.resets + report.counts.short_reads;
            transactions += report.counts.transactions;
            assert_eq!(report.counts.wrong_content + quiesced.wrong_content, 0, "{text}");
        }
        assert!(failed > 0 && failed < 200, "{text}: {failed}");
        assert!(transactions > 0 || workload.is_stream(), "{text}");
        server.quit();
    }
}

#[test]
fn a_client_whose_every_connection_broke_says_so() {
    let workload: Workload = "rr:1/1".parse().unwrap();
    let server = ServerEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, localhost());
    let faults = Faults { reset: 2, ..Faults::default() };
    let mut client = ClientEnd::start(Faulty::new(faults, 1), workload, Close::Server, 3, &server.endpoint);
    client.patience = Duration::from_millis(200);
    client.run(Duration::from_millis(20), limits::STAMP_STRIDE_BYTES, None);
    let error = client.finish(0).unwrap_err();
    assert!(error.to_string().contains("every connection failed"), "{error}");
    server.quit();
}

#[test]
fn transactions_with_connections_of_their_own_go_on_after_a_refusal() {
    let workload: Workload = "crr:64/8k".parse().unwrap();
    for close in [Close::Server, Close::Client] {
        let refusing = Faults { refuse: 5, reset: 50, ..Faults::default() };
        let server = ServerEnd::start(Faulty::new(refusing, 3), workload, close, localhost());
        let breaking = Faults { reset: 50, ..Faults::default() };
        let mut client = ClientEnd::start(Faulty::new(breaking, 4), workload, close, 20, &server.endpoint);
        client.patience = Duration::from_millis(500);
        // A busy host takes more than two phases for as many.
        let (begun, mut phases) = (Instant::now(), 0);
        let (mut transactions, mut resets, mut refused) = (0, 0, 0);
        while phases < 2 || (begun.elapsed() < SOON && (transactions <= 200 || resets == 0 || refused == 0)) {
            let (report, quiesced) = phase(&client, &server, limits::STAMP_STRIDE_BYTES);
            let counts = report.counts;
            assert_eq!(counts.wrong_content + quiesced.wrong_content, 0, "{counts:?} {quiesced:?}");
            (transactions, resets) = (transactions + counts.transactions, resets + counts.resets);
            (refused, phases) = (refused + quiesced.connect_failures, phases + 1);
        }
        assert!(transactions > 200, "{transactions} in {phases}");
        assert!(resets > 0 && refused > 0, "{resets} {refused} in {phases}");
        server.quit();
    }
}

#[test]
fn a_server_that_is_not_there_is_counted_not_waited_for() {
    let workload: Workload = "crr:64/8k".parse().unwrap();
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let client =
        ClientEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, 2, &Endpoint::Tcp(closed));
    client.run(Duration::from_millis(30), limits::STAMP_STRIDE_BYTES, None);
    let report = client.finish(0).unwrap();
    assert_eq!(report.counts.transactions, 0);
    assert!(report.counts.connect_failures > 2, "{:?}", report.counts);
}

/// Accepts connections and does something with each.
fn rogue(act: impl Fn(TcpStream) + Send + Sync + 'static) -> Endpoint {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let act = Arc::new(act);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let act = Arc::clone(&act);
            thread::spawn(move || act(stream));
        }
    });
    Endpoint::Tcp(address)
}

fn against(to: &Endpoint, text: &str, pairs: u32) -> io::Result<PhaseReport> {
    let workload: Workload = text.parse().unwrap();
    let mut client = ClientEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, pairs, to);
    client.patience = Duration::from_millis(200);
    client.run(Duration::from_millis(50), limits::STAMP_BYTES, None);
    client.finish(u64::MAX - 1)
}

#[test]
fn a_server_that_answers_nonsense_is_found_out() {
    let zeros = rogue(|mut stream| {
        let mut request = [0; 200];
        while stream.read_exact(&mut request).and_then(|()| stream.write_all(&[0; 1_000])).is_ok() {}
    });
    let report = against(&zeros, "rr:200/1000", 2).unwrap();
    assert!(report.counts.wrong_content > 0 && report.counts.transactions > 0, "{:?}", report.counts);

    let short = rogue(|mut stream| {
        let _gone = stream.read_exact(&mut [0; 64]).and_then(|()| stream.write_all(&[1; 100]));
    });
    let report = against(&short, "crr:64/8k", 2).unwrap();
    assert_eq!(report.counts.transactions, 0);
    assert!(report.counts.short_reads > 0, "{:?}", report.counts);

    let long = rogue(|mut stream| {
        let _gone = stream.read_exact(&mut [0; 64]).and_then(|()| stream.write_all(&[1; 9_000]));
    });
    let report = against(&long, "crr:64/8k", 2).unwrap();
    assert_eq!(report.counts.transactions, 0, "more than the response is no response");
    assert!(report.counts.resets > 0, "{:?}", report.counts);

    let slamming = rogue(drop);
    let counts = against(&slamming, "crr:64/8k", 2).unwrap().counts;
    assert!(counts.transactions == 0 && counts.errors() > 0, "{counts:?}");
    assert!(against(&rogue(drop), "rr:1/1", 2).is_err());
}

#[test]
fn a_server_that_never_answers_or_reads_ends_the_phase_all_the_same() {
    for text in ["rr:200/1000", "crr:64/8k", "strg:20/20m", "strp:20m/20"] {
        let silent = rogue(|stream| {
            thread::sleep(Duration::from_secs(30));
            drop(stream);
        });
        let report = against(&silent, text, 3).unwrap();
        assert_eq!((report.counts.transactions, report.counts.received), (0, 0), "{text}");
    }
}

#[test]
fn a_client_that_misbehaves_costs_its_own_connection_only() {
    let workload: Workload = "rr:200/1000".parse().unwrap();
    let server = ServerEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, localhost());
    let Endpoint::Tcp(address) = server.endpoint.clone() else { panic!("TCP was asked for") };
    let connect = || TcpStream::connect(address).unwrap();
    let idle = connect();
    let half = {
        let mut stream = connect();
        stream.write_all(&[7; 100]).unwrap();
        stream
    };
    // Says more than it may before it is asked, and never reads the answers.
    let mut greedy = connect();
    greedy.set_nonblocking(true).unwrap();
    while greedy.write(&[1; 64 << 10]).is_ok() {}
    connect().write_all(&[9; 150]).unwrap();
    for _ in 0..50 {
        drop(connect());
    }
    let counts = server.until("all of them", |counts| counts.connections >= 54 && counts.short_reads >= 1);
    assert_eq!(counts.short_reads, 1, "{counts:?}");
    assert!(counts.wrong_content > 0, "the greedy one's second request is not what it had to be: {counts:?}");
    server.go_on(limits::STAMP_STRIDE_BYTES);

    let sockets = Faulty::new(Faults::default(), 1);
    let client = ClientEnd::start(sockets, workload, Close::Server, 3, &server.endpoint);
    let (begun, mut transactions) = (Instant::now(), 0);
    // A busy host takes more than one phase for as many.
    while begun.elapsed() < SOON && transactions <= 10 {
        let sent = client.run(Duration::from_millis(50), limits::STAMP_STRIDE_BYTES, None);
        let quiesced = server.quiesce(counts.received + sent);
        let report = client.finish(quiesced.sent - counts.sent).unwrap();
        assert_eq!(report.counts.errors(), 0, "{:?}", report.counts);
        transactions += report.counts.transactions;
        server.go_on(limits::STAMP_STRIDE_BYTES);
    }
    assert!(transactions > 10, "{transactions}");
    drop((idle, half, greedy));
    server.quit();
}

#[test]
fn datagrams_of_strangers_are_counted_and_answers_to_others_too() {
    let workload: Workload = "udp-rr:64/64".parse().unwrap();
    let any = Endpoint::Udp((Ipv4Addr::LOCALHOST, 0).into());
    let server = ServerEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, any);
    let Endpoint::Udp(address) = server.endpoint.clone() else { panic!("UDP was asked for") };
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    for bytes in [&b""[..], b"short", &[5; 63], &[5; 65], &[5; 1_400], &[5; 60_000]] {
        stranger.send_to(bytes, address).unwrap();
    }
    let counts = server.until("all datagrams", |counts| counts.short_reads >= 6);
    assert_eq!((counts.short_reads, counts.transactions), (6, 0), "{counts:?}");

    let sockets = Faulty::new(Faults::default(), 1);
    let client = ClientEnd::start(sockets, workload, Close::Server, 4, &server.endpoint);
    let (report, quiesced) = phase(&client, &server, limits::STAMP_BYTES);
    assert!(report.counts.transactions > 10, "{:?}", report.counts);
    assert_eq!((report.counts.errors(), quiesced.errors()), (0, 0), "{:?} {quiesced:?}", report.counts);
    server.quit();
}

#[test]
fn an_answer_that_came_is_not_lost_where_the_client_had_no_cpu_for_long() {
    let workload: Workload = "udp-rr:64/64".parse().unwrap();
    let any = Endpoint::Udp((Ipv4Addr::LOCALHOST, 0).into());
    let server = ServerEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, any);
    let late =
        Faults { delay: siga_plan::limits::DATAGRAM_LOST_AFTER + Duration::from_millis(100), ..Faults::default() };
    let client = ClientEnd::start(Faulty::new(late, 1), workload, Close::Server, 3, &server.endpoint);
    let (report, _) = phase_of(Duration::from_millis(700), &client, &server, limits::STAMP_STRIDE_BYTES);
    let counts = report.counts;
    assert!(counts.transactions >= 3 && counts.errors() == 0, "{counts:?}");
    server.quit();
}

#[test]
fn answers_too_short_too_long_late_or_never_are_told_apart() {
    let answer = |act: fn(&UdpSocket, &[u8], SocketAddr, u64)| {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        thread::spawn(move || {
            let mut buffer = [0; 2_000];
            for number in 0.. {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { return };
                act(&socket, &buffer[..length], from, number);
            }
        });
        let workload: Workload = "udp-rr:64/64".parse().unwrap();
        let to = Endpoint::Udp(address);
        let client = ClientEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, 1, &to);
        client.run(Duration::from_millis(450), limits::STAMP_STRIDE_BYTES, None);
        client.finish(0).unwrap().counts
    };
    let counts = answer(|_, _, _, _| ());
    assert!(counts.lost >= 2 && counts.transactions == 0, "{counts:?}");
    let counts = answer(|socket, _, from, _| drop(socket.send_to(&[0; 64], from)));
    assert!(counts.wrong_content >= 1 && counts.lost >= 1 && counts.transactions == 0, "{counts:?}");
    // Right as far as it goes, then cut or with more behind it.
    for length in [32, 65, 1_400] {
        let counts = match length {
            32 => answer(|socket, request, from, _| drop(socket.send_to(&response(request, 64)[..32], from))),
            65 => answer(|socket, request, from, _| drop(socket.send_to(&response(request, 65), from))),
            _ => answer(|socket, request, from, _| drop(socket.send_to(&response(request, 1_400), from))),
        };
        assert_eq!(counts.transactions, 0, "{length}: {counts:?}");
        assert!(counts.short_reads >= 1 && counts.lost >= 1, "{length}: {counts:?}");
    }
    let counts = answer(|socket, request, from, number| {
        // Every second answer comes after it was given up.
        let (answer, socket) = (response(request, 64), socket.try_clone().unwrap());
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(if number % 2 == 0 { 260 } else { 0 }));
            socket.send_to(&answer, from)
        });
    });
    assert!(counts.lost >= 1 && counts.transactions >= 1, "{counts:?}");
    assert_eq!(counts.wrong_content, 0, "late is not wrong: {counts:?}");
}

/// What a server answers to a UDP request, with `0`s behind it.
fn response(request: &[u8], length: usize) -> Vec<u8> {
    use siga_measure::load::content::{Direction, Message};
    let connection = u64::from_le_bytes(request[..8].try_into().unwrap());
    let mut bytes = vec![0; length];
    let message = Message { connection, number: 0, direction: Direction::Response };
    message.write(&mut bytes, 0, limits::STAMP_STRIDE_BYTES);
    bytes
}

#[test]
fn an_open_loop_counts_from_the_planned_start() {
    let workload: Workload = "rr:200/1000".parse().unwrap();
    let server = ServerEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, localhost());
    let client = ClientEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, 2, &server.endpoint);
    let sent = client.run(Duration::from_millis(100), limits::STAMP_STRIDE_BYTES, Some(1_000.0));
    let quiesced = server.quiesce(sent);
    let report = client.finish(quiesced.sent).unwrap();
    let corrected = report.corrected.unwrap();
    let planned = report.counts.transactions + report.counts.unstarted;
    assert!((99..=101).contains(&planned), "100 in 100 ms: {:?}", report.counts);
    assert!(report.end_ns - report.start_ns >= 100_000_000, "the time between transactions belongs to an open loop");
    assert_eq!((corrected.len(), report.latency.len()), (report.counts.transactions, report.counts.transactions));
    for quantile in [0.1, 0.5, 0.9, 1.0] {
        let (raw, corrected) = (report.latency.value_at_quantile(quantile), corrected.value_at_quantile(quantile));
        assert!(corrected >= raw, "at {quantile}: {corrected} from the plan, {raw} from the start");
    }
    server.quit();
}

#[test]
fn more_than_can_be_done_shows_in_the_corrected_latency_and_in_what_was_never_begun() {
    let workload: Workload = "rr:1/1m".parse().unwrap();
    let server = ServerEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, localhost());
    let client = ClientEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, 1, &server.endpoint);
    let sent = client.run(Duration::from_millis(100), limits::STAMP_STRIDE_BYTES, Some(1e6));
    let quiesced = server.quiesce(sent);
    let report = client.finish(quiesced.sent).unwrap();
    assert!(report.counts.unstarted > 50_000, "{:?}", report.counts);
    let corrected = report.corrected.unwrap();
    assert!(corrected.value_at_quantile(0.5) > report.latency.value_at_quantile(0.5), "waiting counts");
    server.quit();
}

#[test]
fn a_server_quiesces_and_leaves_whatever_it_is_doing() {
    for text in ["rr:200/1000", "crr:64/8k", "strg:20/20m", "strp:20m/20"] {
        let workload: Workload = text.parse().unwrap();
        let server = ServerEnd::start(Faulty::new(Faults::default(), 1), workload, Close::Server, localhost());
        let sockets = Faulty::new(Faults::default(), 1);
        let client = ClientEnd::start(sockets, workload, Close::Server, 10, &server.endpoint);
        let busy = thread::spawn(move || {
            client.run(Duration::from_millis(200), limits::STAMP_STRIDE_BYTES, None);
            client
        });
        for _ in 0..50 {
            let quiesced = server.quiesce(0);
            assert_eq!(server.quiesce(0), quiesced, "{text}: nothing moves at a quiescent point");
            server.go_on(limits::STAMP_STRIDE_BYTES);
            thread::sleep(Duration::from_micros(500));
        }
        let client = busy.join().unwrap();
        let quiesced = server.quiesce(client.shared.sent.load(Ordering::Relaxed));
        let report = client.finish(quiesced.sent).unwrap();
        assert_eq!(report.counts.errors(), 0, "{text}: {:?}", report.counts);
        assert_eq!((report.counts.sent, report.counts.received), (quiesced.received, quiesced.sent), "{text}");
        server.quit();
    }
}

#[test]
fn an_interruption_fails_no_connection_in_the_making() {
    // An accept queue of one that nobody empties: the third connection waits.
    let listener =
        rustix::net::socket(rustix::net::AddressFamily::INET, rustix::net::SocketType::STREAM, None).unwrap();
    rustix::net::bind(&listener, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let address = SocketAddr::try_from(rustix::net::getsockname(&listener).unwrap()).unwrap();
    let fill: Vec<_> = (0..2).map(|_| TcpStream::connect_timeout(&address, Duration::from_millis(100))).collect();
    let direct = KernelOptions { direct: true, ..options(Waiting::Block, false) };
    let mut kernel = Kernel::new(direct, None).unwrap();
    // From its first poll on it is known which thread to interrupt.
    kernel.poll(&mut Vec::new(), Some(Duration::ZERO)).unwrap();
    let (waker, done) = (kernel.waker(), AtomicBool::new(false));
    thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                waker.wake();
                thread::sleep(Duration::from_micros(200));
            }
        });
        let attempts: Vec<_> = (0..20)
            .map(|token| {
                let socket = kernel.connect(&Endpoint::Tcp(address), Token(token))?;
                let connected = kernel.connected(&socket);
                kernel.close(socket);
                connected
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        assert!(attempts.iter().all(|attempt| matches!(attempt, Ok(false))), "{attempts:?}");
    });
    drop(fill);
}
