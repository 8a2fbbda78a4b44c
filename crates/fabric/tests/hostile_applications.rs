//! Applications that break the contract with their guest: each is given up alone, with the reason, and nobody else notices.
#![allow(clippy::unwrap_used, reason = "tests assert by unwrapping")]

#[path = "common/network.rs"]
mod network;
#[path = "hostile_applications/pooled.rs"]
mod pooled;
#[path = "hostile_applications/sharing.rs"]
mod sharing;

use network::{Network, PATIENCE, sink, source, wait_until};
use siga_fabric::client::Client;
use siga_fabric::protocol::message::PROTOCOL;
use siga_fabric::protocol::request::{Answer, Request};
use siga_fabric::sockets::{TcpListener, TcpStream};
use siga_iucv::client::ApplicationEnd;
use siga_ring::arena::OwnArena;
use siga_ring::{PeerMemory, Shape};
use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

const FIGURE_1: &str = include_str!("../../../topologies/figure-1.toml");

const SERVER: &str = "10.0.2.2:7";

/// Commands and events by their numbers in records.
const LISTEN: u64 = 0;
const CONNECT: u64 = 1;
const BIND: u64 = 2;
const ACCEPTED: u64 = 3;
const SEND: u64 = 4;
const CONSUMED: u64 = 5;
const SHUTDOWN: u64 = 6;
const CLOSE: u64 = 8;
const ABORT: u64 = 9;
const GROUP: u64 = 11;
const SEND_WITH_FLAGS: u64 = 12;
const INFO: u64 = 13;
const POOL: u64 = 16;
const ACCEPT: u64 = 17;
const RETURN: u64 = 18;
const TAKE: u64 = 21;
const INHERIT: u64 = 20;
const SEND_WITH: u64 = 23;
const EXPECT: u64 = 24;
const STATUS: u64 = 3;

/// Bytes of each arena.
const ARENA_BYTES: u32 = 64 << 20;

fn tag(kind: u64, socket: u64) -> u64 {
    kind << 56 | socket
}

fn address(ip: [u8; 4], port: u16) -> Vec<u8> {
    let mut bytes = vec![4];
    bytes.extend(ip);
    bytes.resize(17, 0);
    bytes.extend(port.to_le_bytes());
    bytes
}

/// Options that are as they are if nothing is asked for.
fn options() -> Vec<u8> {
    let mut bytes = vec![0, 0, 255, 64];
    bytes.resize(4 + 2 * 4 + 5 * 8 + 2 + 2 * 4 + 2, 0);
    bytes.extend([255, 0]);
    bytes
}

/// The fields of a command that connects, with one byte of the options changed.
fn odd_options(at: usize, byte: u8) -> Vec<u8> {
    let mut options = options();
    options[at] = byte;
    [address([0; 4], 0), address([10, 0, 2, 2], 7), options].concat()
}

/// A change of groups, the network named by a kind and a word.
fn group(change: u8, ip: [u8; 4], kind: u8, word: u32) -> Vec<u8> {
    [vec![change], address(ip, 0), vec![kind], word.to_le_bytes().to_vec()].concat()
}

/// Commands as tags and bytes.
type RawCommands = Vec<(u64, Vec<u8>)>;

/// Changes of a datagram socket with values that have no meaning: whether its group is looped back, how it finds MTUs, which times it
/// reports.
fn odd_changes(bind: u64, bound: &[u8]) -> [(&'static str, RawCommands); 3] {
    let commands = |change: [u8; 2]| vec![(bind, bound.to_vec()), (tag(GROUP, 5), change.to_vec())];
    [[3, 2], [4, 5], [5, 8]].map(|change| ("2 bytes that are not a valid command", commands(change)))
}

/// Commands about shared sockets for sockets that are not shared.
fn odd_shares(bind: u64, bound: &[u8]) -> [(&'static str, RawCommands); 5] {
    [
        ("not a shared listener, socket 5", vec![(bind, bound.to_vec()), (tag(EXPECT, 5), vec![1, 0, 0, 0])]),
        ("not a shared listener, socket 9", vec![(tag(POOL, 9), Vec::new())]),
        ("not a shared listener, socket 5", vec![(bind, bound.to_vec()), (tag(ACCEPT, 5), Vec::new())]),
        ("not a shared listener, socket 3", vec![(tag(RETURN, 9), vec![3, 0, 0, 0])]),
        ("no connection, socket 8", vec![(tag(TAKE, 8), Vec::new())]),
    ]
}

fn extents(all: &[(u32, u32)]) -> Vec<u8> {
    all.iter().flat_map(|(at, len)| [at.to_le_bytes(), len.to_le_bytes()].concat()).collect()
}

/// An application of the client's guest, as a test plays it.
fn raw(network: &Network) -> ApplicationEnd {
    let secret = network.application_secret("tcpip1");
    let client = Client::connect_at(&network.run_dir(), &network.name).unwrap();
    let mut end = client.use_stack(&"tcpip1".parse().unwrap(), &secret).unwrap();
    end.link.producer.set_packing(true);
    end
}

/// False if there is no room.
fn put(end: &mut ApplicationEnd, tag: u64, bytes: &[u8]) -> bool {
    let has_room = lay(end, tag, bytes);
    end.link.producer.publish();
    has_room
}

/// Puts without letting the guest see it yet.
fn lay(end: &mut ApplicationEnd, tag: u64, bytes: &[u8]) -> bool {
    let Ok(Some(place)) = end.link.producer.reserve(bytes.len()) else { return false };
    place.copy_from_slice(bytes);
    end.link.producer.commit(bytes.len(), tag);
    true
}

/// The next event: its tag and its bytes.
fn event(end: &mut ApplicationEnd) -> (u64, Vec<u8>) {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(frame) = end.link.consumer.next_frame().unwrap() {
            let mut bytes = vec![0; frame.len()];
            frame.copy_to(0, &mut bytes);
            return (frame.tag(), bytes);
        }
        assert!(Instant::now() < until, "the guest tells nothing");
        std::thread::sleep(Duration::from_micros(100));
    }
}

/// An application with an open connection, number 1, to who accepts it.
fn connected(network: &Network, listener: &TcpListener) -> (ApplicationEnd, TcpStream) {
    let mut end = raw(network);
    let bytes = [address([0; 4], 0), address([10, 0, 2, 2], 7), options()].concat();
    assert!(put(&mut end, tag(CONNECT, 1), &bytes));
    loop {
        let (kind, bytes) = event(&mut end);
        if kind == tag(STATUS, 1) && bytes[0] & 1 == 1 {
            break;
        }
    }
    let served = listener.accept().unwrap().0;
    served.set_timeout(Some(PATIENCE));
    (end, served)
}

/// Sends commands as they are given, and reads what comes until the guest hangs up. False if it goes on serving for that time.
fn is_given_up(network: &Network, commands: &[(u64, Vec<u8>)], time: Duration) -> bool {
    let mut end = raw(network);
    for (tag, bytes) in commands {
        while !put(&mut end, *tag, bytes) {
            if end.link.wake_fd.has_hung_up().unwrap() {
                return true;
            }
        }
        while end.link.consumer.next_frame().unwrap().is_some() {}
    }
    hangs_up(&mut end, time)
}

/// The guest gives an application up within that time.
fn hangs_up(end: &mut ApplicationEnd, time: Duration) -> bool {
    let until = Instant::now() + time;
    while Instant::now() < until {
        if end.link.wake_fd.has_hung_up().unwrap() {
            return true;
        }
        while end.link.consumer.next_frame().unwrap().is_some() {}
        std::thread::sleep(Duration::from_millis(1));
    }
    false
}

/// Commands about datagrams whose options are not valid, each with the reason that the log has.
fn odd_datagrams(bind: u64, bound: &[u8]) -> Vec<(&'static str, RawCommands)> {
    let with = |options: &[u8]| vec![(bind, bound.to_vec()), (tag(SEND_WITH, 5), [bound, options].concat())];
    vec![
        // None, one that there is not, one without its value.
        ("20 bytes that are not a valid command", with(&[0])),
        ("20 bytes that are not a valid command", with(&[16])),
        ("20 bytes that are not a valid command", with(&[4])),
        ("a datagram, socket 9", vec![(tag(10, 9), bound.to_vec())]),
        ("a datagram, socket 9", vec![(tag(SEND_WITH, 9), [bound, &[4, 1]].concat())]),
        ("2 bytes that are not a valid command", vec![(bind, bound.to_vec()), (tag(GROUP, 5), vec![6, 0])]),
        ("20 bytes that are not a valid command", vec![(tag(INHERIT, 0), vec![0; 20])]),
    ]
}

/// Commands that break the protocol, each with the reason that the log has.
fn odd_commands(bind: u64, bound: &[u8]) -> Vec<(&'static str, RawCommands)> {
    let joined = group(0, [239, 1, 2, 3], 0, 0);
    vec![
        ("5 bytes that are not a valid command", vec![(tag(60, 0), vec![0; 5])]),
        (
            "9 bytes that are not a valid command",
            vec![(tag(SEND_WITH_FLAGS, 5), [vec![4], extents(&[(0, 1)])].concat())],
        ),
        ("8 bytes that are not a valid command", vec![(tag(SEND_WITH_FLAGS, 5), extents(&[(0, 1)]))]),
        ("no connection, socket 9", vec![(tag(INFO, 9), Vec::new())]),
        ("no connection, socket 5", vec![(bind, bound.to_vec()), (tag(INFO, 5), Vec::new())]),
        (
            "25 bytes that are not a valid command",
            vec![(bind, bound.to_vec()), (tag(GROUP, 5), group(0, [239, 1, 2, 3], 0, 1))],
        ),
        (
            "25 bytes that are not a valid command",
            vec![(bind, bound.to_vec()), (tag(GROUP, 5), group(0, [239, 1, 2, 3], 3, 1))],
        ),
        (
            "26 bytes that are not a valid command",
            vec![(bind, bound.to_vec()), (tag(GROUP, 5), [joined.clone(), vec![0]].concat())],
        ),
        ("0 bytes that are not a valid command", vec![(bind, bound.to_vec()), (tag(GROUP, 5), Vec::new())]),
        ("a group, socket 9", vec![(tag(GROUP, 9), joined.clone())]),
        ("a group, socket 5", vec![(bind, bound.to_vec()), (tag(CLOSE, 5), Vec::new()), (tag(GROUP, 5), joined)]),
        ("that are not a valid command", vec![(tag(2, 5) | 1 << 40, bound.to_vec())]),
        ("that are not a valid command", vec![(bind, bound[..18].to_vec())]),
        ("a socket number that is not allowed, socket 5", vec![(bind, bound.to_vec()), (bind, bound.to_vec())]),
        ("a socket number that is not allowed", vec![(tag(2, 1 << 31), bound.to_vec())]),
        ("no connection, socket 5", vec![(bind, bound.to_vec()), (tag(4, 5), vec![0; 8])]),
        ("no connection, socket 9", vec![(tag(5, 9), vec![1, 0, 0, 0])]),
        ("closed a socket that does not exist, socket 9", vec![(tag(8, 9), Vec::new())]),
        ("more connections accepted than announced", vec![(tag(3, 9), vec![1, 0, 0, 0])]),
    ]
}

#[test]
fn an_application_that_violates_the_protocol_is_detached_alone_and_logged() {
    let network = Network::up("hostile", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let mut stream = TcpStream::connect(&client, SERVER.parse().unwrap()).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    let mut echo = || {
        stream.write_all(b"still there").unwrap();
        served.read_exact(&mut [0; 11]).unwrap();
    };
    let (bind, bound) = (tag(BIND, 5), address([10, 0, 1, 1], 1_000));
    let joined = group(0, [239, 1, 2, 3], 0, 0);
    let cases = odd_commands(bind, &bound);
    let others = odd_datagrams(bind, &bound);
    let cases = cases.into_iter().chain(odd_changes(bind, &bound)).chain(odd_shares(bind, &bound)).chain(others);
    let odd = [(1, 1 << 7), (2, 3)].map(|(at, byte)| vec![(tag(CONNECT, 5), odd_options(at, byte))]);
    for (why, commands) in cases.chain(odd.map(|commands| ("104 bytes that are not a valid command", commands))) {
        assert!(is_given_up(&network, &commands, PATIENCE), "{why}");
        wait_until(why, || network.log().contains(&format!("violation: {}", why)) || network.log().contains(why));
        echo();
    }
    // Bytes at random, from a seed; a failure shows the seed.
    for seed in 1..=20_u64 {
        let mut state = seed;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state >> 33
        };
        let commands: Vec<(u64, Vec<u8>)> = (0..200)
            .map(|_| {
                let bytes = (0..random() % 40).map(|_| random().to_le_bytes()[0]).collect();
                (tag(random() % 14, random() % 8), bytes)
            })
            .collect();
        assert!(is_given_up(&network, &commands, PATIENCE), "seed {seed}");
        echo();
    }
    // A flood of what is allowed holds nobody up, and is allowed: also of what cannot be, and is said so.
    let no_group = (tag(GROUP, 5), group(1, [10, 0, 0, 1], 2, 77));
    let flood: Vec<_> = (0..5_000)
        .flat_map(|_| {
            [(bind, bound.clone()), (tag(GROUP, 5), joined.clone()), no_group.clone(), (tag(8, 5), Vec::new())]
        })
        .collect();
    assert!(!is_given_up(&network, &flood, Duration::from_secs(2)));
    echo();
    assert_eq!(network.stack("tcpip1")["connections"], 1);
}

#[test]
fn an_application_that_violates_the_protocol_during_a_connection_is_detached_alone() {
    let network = Network::up("open", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let mut stream = TcpStream::connect(&client, SERVER.parse().unwrap()).unwrap();
    let (mut served, _) = listener.accept().unwrap();
    let good = (tag(SEND, 1), extents(&[(0, 10_000)]));
    // A place between two others is not told as one with either.
    let apart: Vec<(u32, u32)> = (0..4_000).map(|place| (place * 16_384 % ARENA_BYTES, 1)).collect();
    let many: Vec<_> = (0..3).map(|_| (tag(SEND, 1), extents(&apart))).collect();
    let whole = (tag(SEND, 1), extents(&[(0, ARENA_BYTES)]));
    let consumed = |bytes: u32| (tag(CONSUMED, 1), bytes.to_le_bytes().to_vec());
    let listen = (tag(LISTEN, 2), [address([10, 0, 1, 1], 9), vec![9, 0, 0, 0], options()].concat());
    let places = "extents outside the arena, socket 1";
    let cases = [
        (places, vec![(tag(SEND, 1), extents(&[(0, 0)]))]),
        (places, vec![(tag(SEND, 1), Vec::new())]),
        ("1 bytes that are not a valid command", vec![(tag(INFO, 1), vec![0])]),
        (places, vec![(tag(SEND_WITH_FLAGS, 1), vec![1])]),
        (places, vec![(tag(SEND_WITH_FLAGS, 1), [vec![1], extents(&[(ARENA_BYTES, 1)])].concat())]),
        (places, vec![good.clone(), (tag(SEND, 1), extents(&[(ARENA_BYTES - 1, 2)]))]),
        (places, vec![(tag(SEND, 1), extents(&[(0, 1), (ARENA_BYTES, 1)]))]),
        (places, vec![(tag(SEND, 1), extents(&[(u32::MAX, u32::MAX)]))]),
        ("more bytes in flight than allowed, socket 1", vec![whole]),
        ("more extents than allowed, socket 1", many),
        ("32776 bytes that are not a valid command", vec![(tag(SEND, 1), extents(&[(0, 1); 4_097]))]),
        ("more bytes consumed than announced, socket 1", vec![consumed(1)]),
        ("more bytes consumed than announced, socket 1", vec![consumed(0)]),
        ("no connection, socket 1", vec![(tag(CLOSE, 1), Vec::new()), good]),
        ("no connection, socket 1", vec![(tag(CLOSE, 1), Vec::new()), (tag(INFO, 1), Vec::new())]),
        ("no connection, socket 1", vec![(tag(ABORT, 1), Vec::new()), (tag(SHUTDOWN, 1), Vec::new())]),
        (
            "closed a socket that does not exist, socket 1",
            vec![(tag(CLOSE, 1), Vec::new()), (tag(CLOSE, 1), Vec::new())],
        ),
        ("a socket number that is not allowed, socket 1", vec![(tag(BIND, 1), address([10, 0, 1, 1], 8))]),
        ("a datagram, socket 1", vec![(tag(10, 1), address([10, 0, 2, 2], 8))]),
        ("a group, socket 1", vec![(tag(GROUP, 1), vec![2, 1])]),
        ("more connections accepted than announced, socket 1", vec![(tag(ACCEPTED, 1), vec![1, 0, 0, 0])]),
        (
            "more connections accepted than announced, socket 2",
            vec![listen.clone(), (tag(ACCEPTED, 2), vec![1, 0, 0, 0])],
        ),
        ("more connections accepted than announced, socket 2", vec![listen, (tag(ACCEPTED, 2), vec![0; 4])]),
    ];
    for (why, commands) in cases {
        let (mut end, mut theirs) = connected(&network, &listener);
        let violations =
            || network.log().lines().filter(|line| line.contains("violation: ") && line.contains(why)).count();
        let logged = violations();
        // At once: what the guest has sent while this test had no CPU is no longer under way.
        for (tag, bytes) in commands {
            assert!(lay(&mut end, tag, &bytes), "{why}");
        }
        end.link.producer.publish();
        assert!(hangs_up(&mut end, PATIENCE), "{why}");
        wait_until(why, || violations() > logged);
        // Its connection is reset, whatever was sent before.
        let error = theirs.read_to_end(&mut Vec::new()).map_err(|error| error.kind());
        assert!(matches!(error, Err(ErrorKind::ConnectionReset) | Ok(_)), "{why}: {error:?}");
        stream.write_all(b"still there").unwrap();
        served.read_exact(&mut [0; 11]).unwrap();
    }
    wait_until("connections are left", || network.stack("tcpip1")["connections"] == 1);
    assert_eq!(network.status("tcpip1").restarts, 0);
}

#[test]
fn an_application_that_changes_bytes_during_sending_corrupts_only_its_own_stream() {
    let network = Network::up("flip", FIGURE_1);
    let server = network.application("tcpip3");
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let (mut end, mut served) = connected(&network, &listener);
    let mut bytes = vec![0; 64 << 10];
    for turn in 0..200_u32 {
        assert!(put(&mut end, tag(SEND, 1), &extents(&[(0, 64 << 10)])));
        for at in 0..8 {
            end.arena.write(at << 13, &turn.to_le_bytes().repeat(2_048)).unwrap();
        }
        served.read_exact(&mut bytes).unwrap();
        while end.link.consumer.next_frame().unwrap().is_some() {}
    }
    assert!(put(&mut end, tag(CLOSE, 1), &[]));
    assert_eq!(served.read(&mut bytes).unwrap(), 0);
}

#[test]
fn an_application_that_takes_no_events_delays_only_itself() {
    let network = Network::up("deaf", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    let listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let mut end = raw(&network);
    let local = address([10, 0, 1, 1], 1_000);
    // Answers fill the ring to it, then what the guest keeps, then the ring from it.
    let (mut asked, mut full) = (0_u64, 0);
    let begun = Instant::now();
    // A guest that takes none for a while may just have no CPU.
    while full < 50 || (asked <= 1_024 && begun.elapsed() < PATIENCE) {
        let (kind, bytes): (u64, &[u8]) = if asked.is_multiple_of(2) { (BIND, &local) } else { (CLOSE, &[]) };
        if put(&mut end, tag(kind, 5), bytes) {
            (asked, full) = (asked + 1, 0);
        } else {
            full += 1;
            std::thread::sleep(Duration::from_millis(2));
        }
        assert!(asked < 100_000, "there is no end to what the guest takes");
    }
    assert!(asked > 1_024, "{asked}");
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        source(&client, SERVER, 8 << 20, |_| {});
        assert_eq!(served.join().unwrap().0, 8 << 20);
    });
    // It has broken nothing: when it listens, every command is answered, in order.
    for number in 0..asked {
        let (kind, _) = event(&mut end);
        assert_eq!(kind >> 56, if number.is_multiple_of(2) { 0 } else { 5 }, "answer {number} of {asked}");
    }
    assert!(!end.link.wake_fd.has_hung_up().unwrap());
}

/// A number that looks like none, from another.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// Where the count of filled buffers lies in a ring's memory, and its buffers (ARCHITECTURE.md, "The memory of a ring").
const PRODUCED: usize = 256;
const BUFFERS: usize = 4_096;

/// An application whose memory of the link is an area of bytes to it.
struct Crafted {
    memory: OwnArena,
    notify_fd: siga_ring::NotifyFd,
    /// Hangs up when the guest gives the application up.
    wake_fd: siga_ring::WakeFd,
    _rest: (Client, OwnArena, PeerMemory),
}

impl Crafted {
    fn new(network: &Network) -> Self {
        let mut control = Client::connect_at(&network.run_dir(), &network.name).unwrap();
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let (guest, secret) = ("tcpip1".parse().unwrap(), network.application_secret("tcpip1"));
        control
            .ask(Request::Application { protocol: PROTOCOL, version, guest, secret, process: None }, Vec::new())
            .unwrap();
        let (answer, doorbells) = control.answer_with_descriptors(PATIENCE).unwrap().unwrap();
        let Answer::Application { arena_bytes, .. } = answer else { panic!("{answer:?}") };
        let shape = Shape::new(65_536, 64).unwrap();
        let (memory, memory_fd) = OwnArena::create(shape.memory_bytes()).unwrap();
        let (arena, arena_fd) = OwnArena::create(usize::try_from(arena_bytes).unwrap()).unwrap();
        control.ask(Request::ApplicationMemory, vec![memory_fd, arena_fd]).unwrap();
        let (_, mut theirs) = control.answer_with_descriptors(PATIENCE).unwrap().unwrap();
        let theirs = PeerMemory::map(theirs.remove(0), shape).unwrap();
        let [notify_fd, wake_fd, _passing]: [std::os::fd::OwnedFd; 3] = doorbells.try_into().unwrap();
        let (notify_fd, wake_fd) =
            (siga_ring::NotifyFd::from_fd(notify_fd).unwrap(), siga_ring::WakeFd::from_fd(wake_fd).unwrap());
        Self { memory, notify_fd, wake_fd, _rest: (control, arena, theirs) }
    }
}

#[test]
fn an_application_that_claims_more_events_than_sent_is_detached_at_its_next_notification() {
    /// Where the count of taken buffers lies.
    const TAKEN: usize = 0;
    let network = Network::up("taken", FIGURE_1);
    let mut crafted = Crafted::new(&network);
    std::thread::sleep(Duration::from_millis(50));
    crafted.memory.write(TAKEN, &1_u64.to_ne_bytes()).unwrap();
    crafted.notify_fd.notify();
    wait_until("the guest goes on with it", || crafted.wake_fd.has_hung_up().unwrap());
    wait_until("nobody says why", || network.log().contains("violation: "));
    assert!(
        network.log().contains("the peer reports 1 consumed buffers, but 0 to 0 are possible"),
        "{}",
        network.log()
    );
}

#[test]
fn commands_that_change_during_reading_harm_only_their_application() {
    const OTHERS: &str = "10.0.2.2:8";
    let network = Network::up("change", FIGURE_1);
    let (client, server) = (network.application("tcpip1"), network.application("tcpip3"));
    // Connections of the author's may reach the first.
    let _listener = TcpListener::bind(&server, SERVER.parse().unwrap()).unwrap();
    let listener = TcpListener::bind(&server, OTHERS.parse().unwrap()).unwrap();
    for seed in 1..=6 {
        let mut crafted = Crafted::new(&network);
        let memory = &mut crafted.memory;
        let mut state = seed;
        let kinds = [LISTEN, CONNECT, BIND, SEND, CONSUMED, CLOSE];
        let write = |memory: &mut OwnArena, state: &mut u64| {
            let head = BUFFERS + usize::try_from(next(state) % 64).unwrap() * (64 + 65_536) + 48;
            let kind = kinds[usize::try_from(next(state) % 6).unwrap()];
            let bytes = [address([10, 0, 1, 1], 0), address([10, 0, 2, 2], 7), options()].concat();
            let len = [27, 19, 8, 4, 0, bytes.len() as u64][usize::try_from(next(state) % 6).unwrap()];
            memory.write(head, &(len | 1 << 63).to_ne_bytes()).unwrap();
            memory.write(head + 8, &tag(kind, next(state) % 4).to_ne_bytes()).unwrap();
            memory.write(head + 16, &bytes).unwrap();
        };
        for _ in 0..2_000 {
            write(memory, &mut state);
        }
        for produced in 1..=64_u64 {
            memory.write(PRODUCED, &produced.to_ne_bytes()).unwrap();
            crafted.notify_fd.notify();
            for _ in 0..500 {
                write(memory, &mut state);
            }
        }
        std::thread::scope(|scope| {
            let served = scope.spawn(|| sink(&listener));
            source(&client, OTHERS, 1 << 20, |_| {});
            assert_eq!(served.join().unwrap().0, 1 << 20, "seed {seed}");
        });
    }
    assert_eq!(network.status("tcpip1").restarts, 0);
    wait_until("some are left", || network.stack("tcpip1")["connections"] == 0);
}
