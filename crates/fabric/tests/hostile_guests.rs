//! Hostile guests attack the others by their events and their rings, and attack the control program by connections.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they measured")]

#[path = "common/hostile_guest.rs"]
mod hostile_guest;
#[path = "common/network.rs"]
mod network;

use hostile_guest::HostileGuest;
use network::{EXTERNAL_FIGURE_1, Network, PATIENCE, wait_until};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siga_fabric::client::Client;
use siga_fabric::limits::{CLIENTS_MAX, MESSAGE_BYTES_MAX, RESTART_WAIT_MAX};
use siga_fabric::protocol::message::{AccountRecord, GuestEvent, Loss, Order};
use siga_fabric::protocol::report::{ReportPart, StackReport, Traffic};
use siga_fabric::protocol::request::{MemoryLimit, Request};
use siga_fabric::protocol::ticket::ApplicationId;
use siga_fabric::protocol::ticket::RingPairId;
use siga_fabric::protocol::ticket::Ticket;
use siga_fabric::sockets::Attachment;
use siga_ring::Shape;
use siga_ring::arena::OwnArena;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A hostile guest, a victim with applications, and a bystander.
const LAN: &str = r#"
[network.lan]
type = "hipersockets"
[guest.hostile]
external = true
device = [{ network = "lan", addresses = ["10.0.0.1/24"] }]
[guest.victim]
device = [{ network = "lan", addresses = ["10.0.0.2/24"] }]
[guest.other]
device = [{ network = "lan", addresses = ["10.0.0.3/24"] }]
"#;

fn attach(network: &Network) -> HostileGuest {
    try_attach(network).unwrap()
}

fn try_attach(network: &Network) -> siga_model::error::Result<HostileGuest> {
    HostileGuest::try_attach(&network.run_dir(), &network.name, "hostile", &network.secret("hostile"))
}

/// Sets a flag when it is dropped, so that a thread that waits for the flag also ends if its test fails.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn memory_file() -> OwnedFd {
    rustix::fs::memfd_create("claim", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}

#[test]
fn a_guest_that_claims_applications_gets_none_of_their_memory() {
    const APPLICATIONS: usize = 1_000;
    let network = Network::up("claims", LAN);
    let mut hostile = Some(attach(&network));
    let is_over = AtomicBool::new(false);
    let secret = network.application_secret("victim");
    let (claims, ends) = std::thread::scope(|scope| {
        let over = SetOnDrop(&is_over);
        let claim = scope.spawn(|| {
            let (mut claims, mut ends) = (0_u64, 0_u64);
            while !is_over.load(Ordering::Relaxed) {
                let Some(claiming) = &mut hostile else {
                    hostile = try_attach(&network).ok();
                    continue;
                };
                let application = ApplicationId(Ticket::claimed(claims % 2_000, [claims, 0]));
                claims += 1;
                let event = match claims % 3 {
                    0 => GuestEvent::Inventory {
                        confinement: String::new(),
                        pairs: Vec::new(),
                        applications: vec![application],
                        last: true,
                    },
                    1 => GuestEvent::ApplicationMemory { application },
                    _ => GuestEvent::ApplicationEnded { application, why: Loss::PeerGone },
                };
                let files = if claims % 3 == 1 { vec![memory_file(), memory_file()] } else { Vec::new() };
                let _ = claiming.channel.send(&event, files);
                // An inventory that nobody asked for is a violation: the guest is detached, and attaches again.
                loop {
                    match claiming.channel.receive::<Order>() {
                        Ok(Some((order, _))) => {
                            let is_others =
                                matches!(order, Order::Application { .. } | Order::ApplicationMemory { .. });
                            assert!(!is_others, "{order:?}");
                        }
                        Ok(None) => break,
                        Err(_) => {
                            ends += 1;
                            hostile = None;
                            break;
                        }
                    }
                }
            }
            (claims, ends)
        });
        for count in 0..APPLICATIONS {
            // On a busy host, the victim can report the end of earlier applications late. Then `applications_max` refuses the next one.
            let try_attach =
                || Attachment::iucv_at(&network.run_dir(), &network.name, &"victim".parse().unwrap(), &secret);
            let attached = (0..50).find_map(|attempt| match try_attach() {
                Err(_) if attempt < 49 => {
                    std::thread::sleep(Duration::from_millis(20));
                    None
                }
                attached => Some(attached),
            });
            assert!(matches!(attached, Some(Ok(_))), "application {count}: {:?}", attached.and_then(Result::err));
        }
        drop(over);
        claim.join().unwrap()
    });
    println!("{claims} claims beside {APPLICATIONS} applications; the guest that made them was detached {ends} times");
    assert!(claims > 100 && ends > 10, "{claims} {ends}");
}

#[test]
fn a_long_reason_for_the_end_of_a_pair_does_not_end_the_partner() {
    let network = Network::up("long", LAN);
    let victim = network.pid("victim");
    let mut hostile = attach(&network);
    let pair = hostile.pair_with("dev0", "victim.dev0").0.pair;
    // As long as it can be so that the message itself is not too long.
    hostile.send(&GuestEvent::Lost { pair, why: Loss::Violation("x".repeat(MESSAGE_BYTES_MAX - 200)) }, Vec::new());
    wait_until("the end of the pair", || network.log().contains("hostile detached: violation"));
    network.ping("victim", "10.0.0.3");
    assert_eq!(network.pid_of("victim"), Some(victim));
}

#[test]
fn a_guest_that_lies_about_requests_changes_no_answer() {
    let network = Network::up("answers", LAN);
    let mut hostile = attach(&network);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for request in 1..16 {
                    let stack = StackReport { connections: 4_711, ..StackReport::default() };
                    hostile.send(&GuestEvent::Pong { request, time_ns: Some(7_000) }, Vec::new());
                    let part = ReportPart::Stack(stack);
                    if request > 8 {
                        hostile.send(&GuestEvent::Report { request, part }, Vec::new());
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
                while hostile.channel.receive::<Order>().unwrap().is_some() {}
            }
        });
        let times = [(); 2].map(|()| network.try_ping("other", "10.0.0.99", 300));
        assert_eq!(times, [None; 2]);
    });
}

#[test]
fn a_guest_that_does_not_read_survives_the_requests_of_another() {
    let network = Network::up("behind", LAN);
    let victim = network.pid("victim");
    let process = rustix::process::Pid::from_raw(victim).unwrap();
    let mut hostile = attach(&network);
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let (mut pairs, mut refused) = (0, 0);
    while refused < 2_000 && pairs < 20_000 {
        hostile.ask_for_pair("dev0", "victim.dev0");
        let answer = hostile.wait_for_order(|order, _| {
            let pair = if let Order::MakePair(held) = &order { Some(held.pair) } else { None };
            (pair.is_some() || matches!(order, Order::Refused { .. })).then_some(pair)
        });
        if let Some(pair) = answer {
            pairs += 1;
            hostile.send(&GuestEvent::Lost { pair, why: Loss::Failed("it says so".to_owned()) }, Vec::new());
        } else {
            refused += 1;
        }
    }
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    println!("{pairs} pairs, {refused} refused");
    assert!(refused >= 2_000, "{pairs} pairs were made without end");
    network.ping("other", "10.0.0.2");
    assert_eq!(network.pid_of("victim"), Some(victim));
}

#[test]
fn a_flood_of_control_connections_does_not_stop_requests() {
    let network = Network::up("flood", LAN);
    let is_over = AtomicBool::new(false);
    let path = network.run_dir().join("flood").join("control");
    let took = std::thread::scope(|scope| {
        let _over = SetOnDrop(&is_over);
        for _ in 0..4 {
            scope.spawn(|| {
                let address = SocketAddrUnix::new(&path).unwrap();
                while !is_over.load(Ordering::Relaxed) {
                    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
                    let _ = rustix::net::connect(socket.unwrap(), &address);
                }
            });
        }
        let begun = Instant::now();
        (0..5).for_each(|_| _ = network.request(&Request::Status { detail: false }));
        begun.elapsed()
    });
    println!("five requests took {took:?} meanwhile");
}

#[test]
fn a_guest_that_holds_all_connections_does_not_keep_the_administrator_out() {
    let network = Network::up("holds", LAN);
    let _hostile = attach(&network);
    let mut held = Vec::new();
    for _ in 0..CLIENTS_MAX + 8 {
        let Ok(mut client) = Client::connect_at(&network.run_dir(), &network.name) else { break };
        // It is refused, and keeps the connection.
        let _ = client.request(Request::Status { detail: false });
        held.push(client);
    }
    println!("{} connections were made", held.len());
    network.ping("other", "10.0.0.2");
}

#[test]
fn an_external_guest_that_fails_is_not_started_by_the_control_program() {
    let network = Network::up("fails", LAN);
    let mut hostile = attach(&network);
    hostile.send(&GuestEvent::Failed(siga_model::error::Error::environment("it says so")), Vec::new());
    std::thread::sleep(RESTART_WAIT_MAX + Duration::from_secs(2));
    assert_eq!(network.pid_of("hostile"), None, "{}", network.log());
    attach(&network);
}

#[test]
fn a_guest_that_cannot_be_adopted_is_ended_by_the_successor() {
    let network = Network::up("orphan", LAN);
    if network.status("victim").memory.is_none_or(|memory| memory.by != MemoryLimit::ControlGroup) {
        println!("skipped, because this host lets no control group be made");
        return;
    }
    let victim = network.pid("victim");
    let process = network::process(victim);
    rustix::process::pidfd_send_signal(&process, rustix::process::Signal::STOP).unwrap();
    // As many connections wait at its socket as may: a guest that takes none looks the same.
    let address = SocketAddrUnix::new(network.run_dir().join("orphan").join("guests").join("victim")).unwrap();
    let waiting: Vec<OwnedFd> = (0..8)
        .map(|_| {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
            let _ = rustix::net::connect(&socket, &address);
            socket
        })
        .collect();
    network::kill(network.control_pid());
    network.start();
    assert_ne!(network.pid_of("victim"), Some(victim), "{}", network.log());
    network::wait_for_end(&process);
    drop(waiting);
    network.ping("other", "10.0.0.2");
}

#[test]
fn a_guest_that_stalls_does_not_make_the_start_of_a_successor_hang() {
    let network = Network::up("stall", LAN);
    let victim = network.pid("victim");
    rustix::process::pidfd_send_signal(network::process(victim), rustix::process::Signal::STOP).unwrap();
    network::kill(network.control_pid());
    let mut up = network.start_command().spawn().unwrap();
    let end = Instant::now() + PATIENCE;
    let status = loop {
        match up.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() >= end => {
                up.kill().unwrap();
                panic!("it does not come up");
            }
            None => std::thread::sleep(Duration::from_millis(20)),
        }
    };
    assert!(status.success());
    network.ping("other", "10.0.0.2");
}

fn attach_client(network: &Network) -> HostileGuest {
    HostileGuest::attach(&network.run_dir(), &network.name, "client", &network.secret("client"))
}

/// Sealed as the memory of a partner is.
fn crafted_memory(bytes: usize) -> OwnedFd {
    OwnArena::create(bytes).unwrap().1
}

/// Where words of a ring's memory lie (ARCHITECTURE.md, "The memory of a ring"): two counts, and the head of the first frame.
const CONSUMED: usize = 0;
const PRODUCED: usize = 256;
const FIRST_HEAD: usize = 4_096 + 64 - 16;

/// The rings of the link between client and router: the type of its network, and the size and number of buffers.
struct Rings {
    kind: &'static str,
    buffer_bytes: usize,
    buffers: u16,
}

impl Rings {
    fn bytes(&self) -> usize {
        Shape::new(self.buffer_bytes, self.buffers.into()).unwrap().memory_bytes()
    }
}

/// Writes words into the memory of a pair with the router, before the router maps it or once it sleeps, and notifies the router. Returns
/// the reason for the end of the pair, and the time from the notification to it.
fn break_protocol(
    hostile: &mut HostileGuest,
    rings: &Rings,
    words: &[(usize, u64)],
    partner_sleeps: bool,
) -> (String, Duration) {
    let (mut own, memory) = OwnArena::create(rings.bytes()).unwrap();
    let write = |own: &mut OwnArena| {
        words.iter().for_each(|(at, value)| own.write(*at, &value.to_ne_bytes()).unwrap());
    };
    if !partner_sleeps {
        write(&mut own);
    }
    let (notify_fd, _wake_fd) = hostile.pair_with_memory("router.dev0", memory);
    if partner_sleeps {
        hostile.wait_for_order(|order, _| matches!(order, Order::PeerMemory { .. }).then_some(()));
        std::thread::sleep(Duration::from_millis(50));
        write(&mut own);
    }
    let begun = Instant::now();
    notify_fd.notify();
    (hostile.end_of_pair(), begun.elapsed())
}

#[test]
fn a_process_without_accounts_that_sends_records_is_ended() {
    let network = Network::up("records", LAN);
    let victim = network.pid("victim");
    let mut hostile = attach(&network);
    let records = vec![AccountRecord { port: "victim.dev0".to_owned(), traffic: Traffic::default() }];
    hostile.send(&GuestEvent::Account { records }, Vec::new());
    wait_until("the end of the guest", || {
        network.log().contains("violation of the protocol: the guest sent invalid accounting")
    });
    wait_until("the guest's end", || network.pid_of("hostile").is_none());
    assert_eq!(network.pid_of("victim"), Some(victim));
}

#[test]
fn a_guest_that_breaks_the_protocol_of_a_ring_loses_only_that_pair() {
    only_that_pair_is_lost(&Rings { kind: "vctc", buffer_bytes: 65_535, buffers: 32 });
}

#[test]
fn a_guest_that_breaks_the_protocol_of_a_real_ctc_loses_only_that_pair() {
    only_that_pair_is_lost(&Rings { kind: "ctc", buffer_bytes: 65_535, buffers: 32 });
}

#[test]
fn a_guest_that_breaks_the_protocol_of_a_path_of_netiucv_loses_only_that_pair() {
    only_that_pair_is_lost(&Rings { kind: "netiucv", buffer_bytes: 32_770, buffers: 50 });
}

#[test]
fn a_guest_that_breaks_the_protocol_of_a_claw_channel_loses_only_that_pair() {
    only_that_pair_is_lost(&Rings { kind: "claw", buffer_bytes: 32_768, buffers: 25 });
}

fn only_that_pair_is_lost(rings: &Rings) {
    // The server is not external here, so that the router can ping it.
    let (before, after) = EXTERNAL_FIGURE_1.rsplit_once("external = true\n").unwrap();
    let type_and_buffer = match rings.kind {
        kind @ ("netiucv" | "claw") => format!("type = \"{kind}\""),
        kind => format!("type = \"{kind}\"\nbuffer = 65535"),
    };
    let topology = format!("{before}{after}").replace("type = \"vctc\"\nbuffer = 65535", &type_and_buffer);
    let mtu = (rings.buffer_bytes - 12).min(57_344);
    let network = Network::up(rings.kind, &topology.replace("mtu = 57344", &format!("mtu = {mtu}")));
    let ping = || network.ping("router", "10.0.2.2");
    ping();
    let router = network.pid("router");
    let cases: [(&str, &[(usize, u64)]); 5] = [
        ("more produced than there are buffers", &[(PRODUCED, u64::from(rings.buffers) + 1)]),
        ("an index at the end of numbers", &[(PRODUCED, u64::MAX)]),
        ("more consumed than was produced", &[(CONSUMED, 5)]),
        ("a frame that is longer than its buffer", &[(FIRST_HEAD, 1 << 63 | 70_000), (PRODUCED, 1)]),
        ("a buffer without an end", &[(FIRST_HEAD, rings.buffer_bytes as u64), (PRODUCED, 1)]),
    ];
    for (what, words) in cases {
        for partner_sleeps in [false, true] {
            // A busy host often takes the CPU from one of the three processes for longer: one that gets it is enough.
            wait_until("a detachment in under 10 ms", || {
                let mut hostile = attach_client(&network);
                let (why, time) = break_protocol(&mut hostile, rings, words, partner_sleeps);
                println!("{what}, the partner asleep {partner_sleeps}: {why} ({time:?})");
                assert!(why.contains("violation"), "{what}: {why}");
                // The two get no pair again.
                hostile.ask_for_pair("dev0", "router.dev0");
                let refused = hostile.refusal();
                assert!(refused.contains("get no ring pair, because one of them violated"), "{refused}");
                drop(hostile);
                wait_until("the hostile guest's end", || network.pid_of("client").is_none());
                time < Duration::from_millis(10)
            });
            ping();
        }
    }
    // The victim refuses memory of another size before it maps it.
    for (what, bytes) in [("too short", 4_096), ("too long", rings.bytes() + 4_096)] {
        let mut hostile = attach_client(&network);
        let _doorbells = hostile.pair_with_memory("router.dev0", crafted_memory(bytes));
        println!("{what}: {}", hostile.end_of_pair());
        drop(hostile);
        wait_until("the hostile guest's end", || network.pid_of("client").is_none());
    }
    ping();
    assert_eq!(network.pid("router"), router, "the victim is the same process");
}

#[test]
fn a_guest_that_sends_invalid_messages_is_ended_alone() {
    let network = Network::up("nonsense", EXTERNAL_FIGURE_1);
    let router = network.pid("router");
    let mut hostile = attach_client(&network);
    // Events about pairs of others, and about unknown pairs, have no effect.
    for number in [0, 1, 2, u64::MAX] {
        let pair = RingPairId(Ticket::claimed(number, [0; 2]));
        let memory = crafted_memory(4_096);
        hostile.send(&GuestEvent::Memory { pair }, vec![memory]);
        hostile.send(&GuestEvent::Idle { pair }, Vec::new());
        hostile.send(&GuestEvent::Quiet { pair }, Vec::new());
        hostile.send(&GuestEvent::Lost { pair, why: Loss::Violation("so it says".to_owned()) }, Vec::new());
        hostile.send(&GuestEvent::Pong { request: number, time_ns: None }, Vec::new());
    }
    for (device, guest, partner) in [("dev0", "server", "dev0"), ("dev9", "router", "dev0"), ("dev0", "client", "dev0")]
    {
        hostile.ask_for_pair(device, &format!("{guest}.{partner}"));
        hostile.refusal();
    }
    assert!(network.pid_of("client").is_some());
    hostile.channel.send(&"this is not an event", Vec::new()).unwrap();
    wait_until("the end of the guest that sends nonsense", || network.pid_of("client").is_none());
    assert_eq!(network.pid("router"), router);
}
