//! Fast Open (RFC 7413) of a stack: what its listeners do with cookies of every kind, and connections of two stacks over a link
//! that loses segments.

use crate::attack::*;
use crate::world::*;
use siga_stack::Stack;
use siga_stack::drops::TcpDrop;
use siga_stack::limits::{HEADER_BYTES_MAX, TCP_BACKLOG_MAX, TCP_FAST_OPEN_KEY_TIME};
use siga_stack::link::device::{Agreed, DeviceConfig, Medium};
use siga_stack::link::frame::{DeviceId, Received};
use siga_stack::seed::Seed;
use siga_stack::sockets::{FastOpenKeys, FastOpenSettings, ListenerId, TcpError, TcpId, TcpOptions};
use siga_stack::stack::StackConfig;
use siga_stack::tcp::StateName;
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::tcp::{FastOpenOption, Header, HeaderOptions, SeqNumber};
use std::net::SocketAddr;

fn accepting(pending: usize) -> TcpOptions {
    TcpOptions { fast_open_pending_max: pending, ..TcpOptions::default() }
}

fn connecting() -> TcpOptions {
    TcpOptions { fast_open: true, ..TcpOptions::default() }
}

fn listen(world: &mut World, backlog: usize, pending: usize) -> ListenerId {
    world.stack.tcp_listen("0.0.0.0:80".parse().unwrap(), backlog, &accepting(pending)).unwrap()
}

/// The answer to a SYN with this option and data, from a port of the peer's.
fn answer(world: &mut World, port: u16, option: Option<FastOpenOption>, data: &[u8]) -> Header {
    let first = syn(port, HeaderOptions { fast_open: option, ..usual() });
    assert_eq!(world.give_packet(0, &packet(HOST[0], ROUTER[0], &first, data)), Outcome::Done);
    let mut answers = answers(world);
    assert_eq!(answers.len(), 1);
    answers.remove(0).0
}

/// The cookie that a listener gives to the peer.
fn cookie(world: &mut World) -> Option<FastOpenOption> {
    answer(world, 999, Some(FastOpenOption::REQUEST), b"").options.fast_open
}

/// What the peer sends next.
fn next(answer: &Header, letters: &str) -> Header {
    let (source_port, destination_port) = (answer.destination_port, answer.source_port);
    let ack = if letters.contains('R') { None } else { Some(answer.seq + 1) };
    let seq = answer.ack.unwrap();
    Header { source_port, destination_port, seq, ack, flags: flags(letters), window: 60_000, ..Header::default() }
}

fn give(world: &mut World, header: &Header, data: &[u8]) -> Outcome {
    world.give_packet(0, &packet(HOST[0], ROUTER[0], header, data))
}

fn receive(stack: &mut Stack, now: Instant, id: TcpId) -> Vec<u8> {
    let mut into = vec![0; 100_000];
    let count = stack.tcp_receive(now, id, &mut into).unwrap().unwrap_or(0);
    into.truncate(count);
    into
}

const ISN: SeqNumber = SeqNumber(PEER_ISN);

#[test]
fn a_cookie_delivers_the_data_of_a_syn_before_the_handshake_ends() {
    let mut world = World::host();
    let listener = listen(&mut world, 8, 2);
    let cookie = cookie(&mut world).unwrap();
    assert_eq!(cookie.cookie().len(), 8);
    assert_eq!(world.stack.tcp_acceptable(listener), Ok(0), "a request opens nothing at once");
    while world.stack.tcp_poll_event().is_some() {}
    let syn_ack = answer(&mut world, 1_000, Some(cookie), b"question");
    assert_eq!((syn_ack.ack, syn_ack.options.fast_open), (Some(ISN + 9), None));
    assert!(world.stack.tcp_poll_event().is_some(), "the listener is readable");
    let (id, _) = world.stack.tcp_accept(listener).unwrap().unwrap();
    assert_eq!(world.stack.tcp_state(id), Ok(StateName::SynReceived));
    let now = world.now;
    assert_eq!(receive(&mut world.stack, now, id), b"question");
    world.stack.tcp_send(now, id, b"answer").unwrap();
    let sent = answers(&mut world);
    assert_eq!((sent.len(), sent[0].0.seq, sent[0].1.as_slice()), (1, syn_ack.seq + 1, &b"answer"[..]));
    world.stack.check();
    assert_eq!(give(&mut world, &Header { ack: Some(syn_ack.seq + 7), ..next(&syn_ack, "") }, b""), Outcome::Done);
    assert_eq!(world.stack.tcp_state(id), Ok(StateName::Established));
    assert!(world.stack.tcp_info(id).unwrap().unwrap().syn_data);
    world.stack.check();
}

#[test]
fn a_cookie_of_any_other_length_or_value_gets_a_usual_handshake_and_a_fresh_cookie() {
    let mut world = World::host();
    let listener = listen(&mut world, 100, 50);
    let good = cookie(&mut world).unwrap();
    let usual = world.stack.memory().bytes_held();
    answer(&mut world, 1_000, None, b"");
    let each = world.stack.memory().bytes_held() - usual;
    let mut opened = 2;
    for len in (4..=16).step_by(2) {
        for cookie in [vec![7; len], [good.cookie(), &[0; 8]].concat()[..len].to_vec()] {
            if cookie == good.cookie() {
                continue;
            }
            let before = world.stack.memory().bytes_held();
            let port = 2_000 + opened;
            let syn_ack = answer(&mut world, port, FastOpenOption::new(&cookie), &[1; 900]);
            assert_eq!((syn_ack.ack, syn_ack.options.fast_open), (Some(ISN + 1), Some(good)), "{cookie:?}");
            assert_eq!(world.stack.memory().bytes_held() - before, each, "it costs what a plain SYN costs");
            opened += 1;
        }
    }
    // Lengths that no cookie may have: the option counts as absent.
    for len in [1, 2, 3, 5, 7, 17, 18, 34, 38] {
        let mut bytes = vec![0; 20];
        syn(3_000 + len, HeaderOptions::default()).emit(&mut bytes);
        bytes.extend([34, u8::try_from(len + 2).unwrap()]);
        bytes.extend(vec![7; usize::from(len)]);
        bytes.resize(bytes.len().next_multiple_of(4), 1);
        bytes[12] = u8::try_from(bytes.len() / 4).unwrap() << 4;
        assert_eq!(world.give_packet(0, &raw(HOST[0], ROUTER[0], bytes)), Outcome::Done, "{len}");
        let syn_ack = answers(&mut world).remove(0).0;
        assert_eq!((syn_ack.ack, syn_ack.options.fast_open), (Some(ISN + 1), None), "{len}");
    }
    assert_eq!(world.stack.tcp_acceptable(listener), Ok(0));
    world.stack.check();
}

#[test]
fn a_flood_of_invalid_cookies_with_data_costs_no_more_than_plain_syns() {
    let held = |option: fn(u64) -> Option<FastOpenOption>, data: &[u8]| {
        let mut world = World::host();
        let listener = listen(&mut world, 64, 64);
        let source = |n: u64| format!("10.1.0.{}", 10 + n % 200);
        for n in 0..1_000 {
            let first = syn(1_000 + u16::try_from(n).unwrap(), HeaderOptions { fast_open: option(n), ..usual() });
            world.give_packet(0, &packet(&source(n), ROUTER[0], &first, data));
        }
        assert_eq!(world.stack.tcp_acceptable(listener), Ok(0), "no spoofed SYN opens a connection");
        world.stack.check();
        ["TCP connections", "TCP connections with Fast Open", "bytes in TCP buffers"]
            .map(|name| world.stack.memory().held(name))
    };
    let plain = held(|_| None, &[]);
    assert_eq!(plain, [64, 0, 0]);
    assert_eq!(held(|n| FastOpenOption::new(&n.to_be_bytes()), &[1; 1_400]), plain);
    assert_eq!(held(|_| Some(FastOpenOption::REQUEST), &[1; 1_400]), plain);
}

#[test]
fn a_listener_at_its_limit_opens_by_the_usual_handshake_until_one_is_complete() {
    let mut world = World::host();
    let listener = listen(&mut world, 8, 2);
    let cookie = cookie(&mut world);
    let first = answer(&mut world, 1_000, cookie, b"one");
    answer(&mut world, 1_001, cookie, b"two");
    let third = answer(&mut world, 1_002, cookie, b"three");
    assert_eq!((third.ack, third.options.fast_open), (Some(ISN + 1), None));
    assert_eq!(answer(&mut world, 1_003, Some(FastOpenOption::REQUEST), b"").options.fast_open, None);
    assert_eq!(world.stack.tcp_acceptable(listener), Ok(2));
    assert_eq!(give(&mut world, &next(&first, ""), b""), Outcome::Done);
    assert_eq!(answer(&mut world, 1_004, cookie, b"five").ack, Some(ISN + 5));
    world.stack.check();
    // A pending connection that is never acknowledged ends, and counts no more.
    world.stack.tcp_set_listener_fast_open(listener, 1).unwrap();
    assert_eq!(answer(&mut world, 1_005, cookie, b"six").ack, Some(ISN + 1));
    for _ in 0..200 {
        pass(&mut world, Duration::from_secs(1));
        answers(&mut world);
    }
    world.stack.check();
    assert_eq!(answer(&mut world, 1_006, cookie, b"seven").ack, Some(ISN + 6));
    assert_eq!(world.stack.tcp_set_listener_fast_open(listener, TCP_BACKLOG_MAX + 1), Err(TcpError::Range));
    assert_eq!(
        world.stack.tcp_listen("0.0.0.0:81".parse().unwrap(), 1, &accepting(TCP_BACKLOG_MAX + 1)),
        Err(TcpError::Range)
    );
    world.stack.tcp_unlisten(world.now, listener).unwrap();
    world.stack.check();
    assert_eq!(world.stack.tcp_set_listener_fast_open(listener, 1), Err(TcpError::Closed));
}

// RFC 7413 section 5.1.
#[test]
fn connections_that_were_reset_count_against_the_limit_for_a_minute() {
    let mut world = World::host();
    let listener = listen(&mut world, 8, 2);
    let cookie = cookie(&mut world);
    for (port, accepts) in [(1_000, true), (1_001, false)] {
        let syn_ack = answer(&mut world, port, cookie, b"spoofed");
        if accepts {
            world.stack.tcp_accept(listener).unwrap().unwrap();
        }
        assert_eq!(give(&mut world, &next(&syn_ack, "R"), b""), Outcome::Done);
    }
    assert_eq!(answer(&mut world, 1_002, cookie, b"data").ack, Some(ISN + 1));
    pass(&mut world, Duration::from_secs(61));
    answers(&mut world);
    assert_eq!(answer(&mut world, 1_003, cookie, b"data").ack, Some(ISN + 5));
    world.stack.check();
}

#[test]
fn a_listener_that_answers_by_syn_cookies_uses_no_fast_open() {
    let mut world = World::host();
    let listener = listen(&mut world, 2, 2);
    let cookie = cookie(&mut world);
    answer(&mut world, 1_000, None, b"");
    let syn_ack = answer(&mut world, 1_001, cookie, b"data");
    assert_eq!((syn_ack.ack, syn_ack.options.fast_open), (Some(ISN + 1), None), "a SYN cookie");
    assert_eq!(world.stack.tcp_acceptable(listener), Ok(0));
    assert_eq!(give(&mut world, &next(&syn_ack, ""), b"data"), Outcome::Done);
    let (id, _) = world.stack.tcp_accept(listener).unwrap().unwrap();
    let now = world.now;
    assert_eq!(receive(&mut world.stack, now, id), b"data");
}

#[test]
fn a_full_accept_queue_refuses_a_fast_open() {
    let mut world = World::host();
    listen(&mut world, 1, 8);
    let cookie = answer(&mut world, 999, Some(FastOpenOption::REQUEST), b"");
    let (reset, cookie) = (next(&cookie, "R"), cookie.options.fast_open);
    assert_eq!(give(&mut world, &reset, b""), Outcome::Done);
    answer(&mut world, 1_000, cookie, b"data");
    let second = syn(1_001, HeaderOptions { fast_open: cookie, ..usual() });
    assert_eq!(give(&mut world, &second, b"data"), Outcome::dropped(TcpDrop::BacklogFull));
    world.assert_silent();
}

#[test]
fn keys_are_replaced_by_time_or_by_their_owner_and_a_listener_may_have_its_own() {
    let mut world = World::host();
    let listener = listen(&mut world, 50, 50);
    let old = cookie(&mut world);
    pass(&mut world, TCP_FAST_OPEN_KEY_TIME);
    answers(&mut world);
    let syn_ack = answer(&mut world, 1_000, old, b"data");
    let new = syn_ack.options.fast_open;
    assert_eq!(syn_ack.ack, Some(ISN + 5), "the old key still counts");
    assert!(new.is_some() && new != old, "and the client gets a new cookie");
    let keys = |primary, backup| FastOpenKeys { primary: [primary; 16], backup };
    world.stack.tcp_set_fast_open_keys(keys(1, None));
    let syn_ack = answer(&mut world, 1_001, new, b"data");
    assert_eq!(syn_ack.ack, Some(ISN + 1));
    let first = syn_ack.options.fast_open;
    world.stack.tcp_set_listener_keys(listener, keys(2, Some([1; 16]))).unwrap();
    let syn_ack = answer(&mut world, 1_002, first, b"data");
    assert_eq!(syn_ack.ack, Some(ISN + 5));
    world.stack.tcp_set_fast_open_keys(keys(3, None));
    assert_eq!(answer(&mut world, 1_003, syn_ack.options.fast_open, b"data").ack, Some(ISN + 5), "the listener's own");
}

#[test]
fn settings_allow_fast_open_to_servers_and_clients_separately() {
    let mut world = World::host();
    let off = FastOpenSettings { server: false, client: false, ..FastOpenSettings::default() };
    world.stack.tcp_set_fast_open(off);
    let listener = listen(&mut world, 8, 8);
    assert_eq!(cookie(&mut world), None);
    let (local, remote) = ("0.0.0.0:0".parse().unwrap(), SocketAddr::new(HOST[0].parse().unwrap(), 80));
    let now = world.now;
    assert_eq!(world.stack.tcp_connect(now, local, remote, &connecting()), Err(TcpError::FastOpenOff));
    world.stack.tcp_set_fast_open(FastOpenSettings { server_without_cookie: true, ..FastOpenSettings::default() });
    assert_eq!(answer(&mut world, 1_000, None, b"data").ack, Some(ISN + 5));
    world.stack.tcp_unlisten(now, listener).unwrap();
    answers(&mut world);
    world.stack.tcp_set_fast_open(FastOpenSettings { all_listeners: true, ..FastOpenSettings::default() });
    listen(&mut world, 8, 0);
    assert!(cookie(&mut world).is_some());
    world.stack.tcp_set_fast_open(FastOpenSettings { client_without_cookie: true, ..FastOpenSettings::default() });
    let id = world.stack.tcp_connect(now, local, remote, &connecting()).unwrap();
    world.stack.tcp_send(now, id, b"data").unwrap();
    let sent = answers(&mut world);
    assert_eq!((sent[0].0.flags.syn, sent[0].0.options.fast_open, sent[0].1.as_slice()), (true, None, &b"data"[..]));
}

const SERVER: [u8; 4] = [10, 0, 0, 2];

type Loss = Box<dyn FnMut(usize, &Header) -> bool>;

/// A client and a server at the two ends of a link of 5 ms.
struct Pair {
    now: Instant,
    hosts: [Stack; 2],
    listener: ListenerId,
    /// Decides whether the segment is lost that a host sends.
    loses: Loss,
    /// Every segment that was sent: the host, the header, and the bytes of payload.
    sent: Vec<(usize, Header, usize)>,
}

fn host(last: u8, seed: u64) -> Stack {
    let mut stack = Stack::new(StackConfig { seed: Seed::simulated(seed), ..StackConfig::default() });
    let addresses = vec![prefix(&format!("10.0.0.{last}"), 24)];
    stack.add_device(DeviceConfig { medium: Medium::Ip, mtu: 1_500, addresses, agreed: Agreed::default() }).unwrap();
    stack
}

fn serve(seed: u64, pending: usize) -> (Stack, ListenerId) {
    let mut stack = host(2, seed);
    let listener = stack.tcp_listen(SocketAddr::from((SERVER, 80)), 16, &accepting(pending)).unwrap();
    (stack, listener)
}

impl Pair {
    fn new() -> Self {
        let (server, listener) = serve(2, 8);
        let hosts = [host(1, 1), server];
        let now = Instant::from_ns(1_000_000_000);
        Self { now, hosts, listener, loses: Box::new(|_, _| false), sent: Vec::new() }
    }

    /// A client that has a cookie.
    fn acquainted() -> Self {
        let mut pair = Self::new();
        assert!(pair.exchange(100, 100));
        pair.sent.clear();
        pair
    }

    /// Carries the frames of both hosts, and moves to the next deadline before `until`. Returns false if no deadline is before it.
    fn step(&mut self, until: Instant) -> bool {
        let mut frames = Vec::new();
        let mut into = vec![0; 70_000];
        for from in 0..2 {
            while let Some(frame) = self.hosts[from].poll_transmit(self.now, DeviceId(0), &mut into) {
                let bytes = into[..frame.len].to_vec();
                if bytes[9] != 6 {
                    continue;
                }
                let (header, len) = Header::parse(&bytes[20..]).unwrap();
                self.sent.push((from, header, bytes.len() - 20 - len));
                if !(self.loses)(from, &header) {
                    frames.push((1 - from, bytes));
                }
            }
        }
        if !frames.is_empty() {
            self.now += Duration::from_millis(5);
            for (to, bytes) in frames {
                let (header, payload) = bytes.split_at(bytes.len().min(HEADER_BYTES_MAX));
                let received = Received { header, payload, marks: siga_stack::link::frame::Marks::default() };
                self.hosts[to].handle_frame(self.now, DeviceId(0), received);
            }
        } else {
            let next = self.hosts.iter().filter_map(Stack::poll_timeout).min();
            let Some(next) = next.filter(|next| *next <= until) else { return false };
            self.now = self.now.max(next);
        }
        for stack in &mut self.hosts {
            stack.handle_timeout(self.now);
            stack.check();
        }
        true
    }

    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        while self.step(until) {}
        self.now = self.now.max(until);
    }

    fn connect(&mut self) -> TcpId {
        let (local, remote) = (SocketAddr::from(([0; 4], 0)), SocketAddr::from((SERVER, 80)));
        self.hosts[0].tcp_connect(self.now, local, remote, &connecting()).unwrap()
    }

    /// Connects with a question, which the server answers; then both close. Returns false if the connection failed.
    fn exchange(&mut self, question: usize, answer: usize) -> bool {
        let (asked, replied) = (vec![1; question], vec![2; answer]);
        let client = self.connect();
        self.hosts[0].tcp_send(self.now, client, &asked).unwrap();
        let (mut server, mut heard, mut got) = (None, Vec::new(), Vec::new());
        while got.len() < answer {
            if !self.step(self.now + Duration::from_secs(300)) || self.hosts[0].tcp_readiness(client).unwrap().closed {
                let _ = self.hosts[0].tcp_abort(self.now, client);
                return false;
            }
            server = server.or_else(|| self.hosts[1].tcp_accept(self.listener).unwrap().map(|(id, _)| id));
            if let Some(server) = server {
                let before = heard.len();
                heard.extend(receive(&mut self.hosts[1], self.now, server));
                if before < question && heard.len() >= question {
                    assert_eq!(self.hosts[1].tcp_send(self.now, server, &replied), Ok(answer));
                }
            }
            got.extend(receive(&mut self.hosts[0], self.now, client));
        }
        assert!(heard == asked && got == replied, "every byte once, and in order");
        self.hosts[0].tcp_close(self.now, client).unwrap();
        self.pass(Duration::from_millis(100));
        self.hosts[1].tcp_close(self.now, server.unwrap()).unwrap();
        self.pass(Duration::from_secs(200));
        for stack in &self.hosts {
            let memory = stack.memory();
            assert_eq!((memory.held("TCP connections"), memory.held("TCP connections with Fast Open")), (0, 0));
        }
        true
    }

    /// The first SYN since the last look: whether it has an option, and its bytes of data.
    fn first_syn(&mut self) -> (Option<FastOpenOption>, usize) {
        let sent = std::mem::take(&mut self.sent);
        sent.iter()
            .find(|(from, header, _)| *from == 0 && header.flags.syn)
            .map(|(_, header, len)| (header.options.fast_open, *len))
            .unwrap()
    }
}

#[test]
fn the_first_connection_gets_a_cookie_and_the_second_saves_a_round_trip() {
    let mut pair = Pair::new();
    let took = |pair: &mut Pair| {
        let client = pair.connect();
        let begun = pair.now;
        pair.hosts[0].tcp_send(begun, client, b"question").unwrap();
        let mut server = None;
        while receive(&mut pair.hosts[0], pair.now, client).is_empty() {
            assert!(pair.step(pair.now + Duration::from_secs(9)));
            if let Some((id, _)) = pair.hosts[1].tcp_accept(pair.listener).unwrap() {
                server = Some(id);
            }
            let now = pair.now;
            if let Some(server) = server
                && !receive(&mut pair.hosts[1], now, server).is_empty()
            {
                pair.hosts[1].tcp_send(now, server, b"answer").unwrap();
            }
        }
        pair.now.since(begun)
    };
    assert_eq!(took(&mut pair), Duration::from_millis(20));
    assert_eq!(pair.first_syn(), (Some(FastOpenOption::REQUEST), 0));
    assert_eq!(took(&mut pair), Duration::from_millis(10));
    let (option, bytes) = pair.first_syn();
    assert_eq!((option.map(|option| option.cookie().len()), bytes), (Some(8), 8));
}

#[test]
fn a_deferred_connection_sends_nothing_until_the_application_writes() {
    let mut pair = Pair::acquainted();
    let client = pair.connect();
    assert!(pair.hosts[0].tcp_readiness(client).unwrap().writable && pair.hosts[0].tcp_progress(client).unwrap().open);
    pair.pass(Duration::from_secs(900));
    assert!(pair.sent.is_empty());
    pair.hosts[0].tcp_send(pair.now, client, &[1; 3_000]).unwrap();
    assert!(!pair.hosts[0].tcp_readiness(client).unwrap().writable);
    pair.pass(Duration::from_secs(1));
    // MSS 1,460 without 4 + 12 + 4 + 12 bytes of options.
    assert_eq!(pair.first_syn().1, 1_428);
    let (server, _) = pair.hosts[1].tcp_accept(pair.listener).unwrap().unwrap();
    assert_eq!(receive(&mut pair.hosts[1], pair.now, server), [1; 3_000]);
}

#[test]
fn an_exchange_survives_the_loss_of_any_segments() {
    for host in 0..2 {
        for lost in 0..64_u32 {
            let mut pair = Pair::acquainted();
            let mut count = 0;
            pair.loses = Box::new(move |from, _| {
                let number = count;
                count += u32::from(from == host);
                from == host && number < 6 && lost >> number & 1 == 1
            });
            assert!(pair.exchange(3_000, 5_000), "host {host} loses {lost:b}");
        }
    }
}

#[test]
fn a_server_with_other_keys_or_without_fast_open_gets_the_data_after_the_handshake() {
    for pending in [8, 0] {
        let mut pair = Pair::acquainted();
        let before = {
            let mut pair = Pair::acquainted();
            assert!(pair.exchange(10, 10));
            pair.first_syn().0
        };
        (pair.hosts[1], pair.listener) = serve(77, pending);
        assert!(pair.exchange(1_000, 10));
        assert_eq!(pair.first_syn(), (before, 1_000));
        assert!(pair.exchange(1_000, 10));
        let (option, bytes) = pair.first_syn();
        assert_eq!((option != before, bytes), (pending > 0, 1_000), "only a new cookie replaces the old one");
    }
}

#[test]
fn a_black_hole_switches_fast_open_off_for_a_time_that_grows_and_ends_with_a_success() {
    let mut pair = Pair::acquainted();
    for hours in [1, 2] {
        // A path that drops everything after a SYN with a cookie.
        let mut dropping = false;
        pair.loses = Box::new(move |_, header| {
            dropping |= header.options.fast_open.is_some();
            dropping
        });
        assert!(!pair.exchange(100, 100));
        assert!(pair.first_syn().0.is_some());
        pair.loses = Box::new(|_, _| false);
        pair.pass(Duration::from_secs(3_600 * hours - 600));
        assert!(pair.exchange(100, 100));
        assert_eq!(pair.first_syn(), (None, 0), "a plain SYN");
        pair.pass(Duration::from_secs(600));
    }
    assert!(pair.exchange(100, 100));
    assert_eq!(pair.first_syn().1, 100);
    let mut dropping = false;
    pair.loses = Box::new(move |_, header| {
        dropping |= header.options.fast_open.is_some();
        dropping
    });
    assert!(!pair.exchange(100, 100));
    pair.loses = Box::new(|_, _| false);
    pair.pass(Duration::from_secs(3_600));
    pair.sent.clear();
    assert!(pair.exchange(100, 100));
    assert_eq!(pair.first_syn().1, 100, "the success had begun the times anew");
}

#[test]
fn a_path_that_drops_only_syns_with_options_costs_one_timeout() {
    let mut pair = Pair::acquainted();
    pair.loses = Box::new(|_, header| header.options.fast_open.is_some());
    assert!(pair.exchange(100, 100));
    assert!(pair.first_syn().0.is_some());
    assert!(pair.exchange(100, 100));
    assert!(pair.first_syn().0.is_some(), "one timeout is no black hole");
}
