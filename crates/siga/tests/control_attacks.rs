//! A guest that attached properly attacks the others by way of the control program, and a client finds a control program that
//! does not answer.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they measured")]

#[path = "common/network.rs"]
mod network;

use network::{Network, PATIENCE, wait_until};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siga_fabric::client::Client;
use siga_fabric::limits::{CLIENTS_MAX, MESSAGE_BYTES_MAX, RESTART_WAIT_MAX};
use siga_fabric::protocol::channel::Channel;
use siga_fabric::protocol::message::{GuestEvent, Loss, MemberId, Order};
use siga_fabric::protocol::report::{ReportPart, StackReport};
use siga_fabric::protocol::request::Request;
use siga_fabric::protocol::secret::Secret;
use siga_fabric::protocol::ticket::ApplicationId;
use siga_fabric::protocol::ticket::RingPairId;
use siga_fabric::protocol::ticket::Ticket;
use siga_fabric::sockets::Attachment;
use std::os::fd::OwnedFd;
use std::process::Command;
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

/// A process that attached as a guest and obeys no rule.
struct Hostile {
    channel: Channel,
}

impl Hostile {
    fn attach(network: &Network) -> Self {
        Self::try_attach(network).unwrap()
    }

    fn try_attach(network: &Network) -> Option<Self> {
        let secret = Secret::claimed(network.text(&["token", network.name.as_str(), "hostile"]).trim());
        let client = Client::connect_at(&network.run_dir(), &network.name).unwrap();
        let mut hostile = Self { channel: client.attach(&"hostile".parse().unwrap(), &secret).ok()? };
        hostile.say(&GuestEvent::Ready { confinement: "none".to_owned() }, Vec::new());
        Some(hostile)
    }

    fn say(&mut self, news: &GuestEvent, descriptors: Vec<OwnedFd>) {
        self.channel.send(news, descriptors).unwrap();
    }

    fn couple(&mut self, partner: &str) {
        let member = MemberId { guest: partner.parse().unwrap(), device: "dev0".parse().unwrap() };
        self.say(&GuestEvent::Couple { device: "dev0".parse().unwrap(), member }, Vec::new());
    }

    /// The next order that `wanted` makes something of.
    fn hear<T>(&mut self, mut wanted: impl FnMut(Order, Vec<OwnedFd>) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        loop {
            assert!(Instant::now() < end, "the order did not come");
            if let Some((order, descriptors)) = self.channel.receive::<Order>().unwrap()
                && let Some(found) = wanted(order, descriptors)
            {
                return found;
            }
            std::thread::yield_now();
        }
    }

    fn pair_with(&mut self, partner: &str) -> RingPairId {
        self.couple(partner);
        self.hear(|order, _| if let Order::MakePair(held) = order { Some(held.pair) } else { None })
    }
}

fn memory_file() -> OwnedFd {
    rustix::fs::memfd_create("claim", rustix::fs::MemfdFlags::CLOEXEC).unwrap()
}

#[test]
fn a_guest_that_claims_applications_gets_none_of_their_memory() {
    const APPLICATIONS: usize = 1_000;
    let network = Network::up("claims", LAN);
    let mut hostile = Some(Hostile::attach(&network));
    let is_over = AtomicBool::new(false);
    let secret = network.application_secret("victim");
    let (claims, ends) = std::thread::scope(|scope| {
        let claim = scope.spawn(|| {
            let (mut claims, mut ends) = (0_u64, 0_u64);
            while !is_over.load(Ordering::Relaxed) {
                let Some(claiming) = &mut hostile else {
                    hostile = Hostile::try_attach(&network);
                    continue;
                };
                let application = ApplicationId(Ticket::claimed(claims % 2_000, [claims, 0]));
                claims += 1;
                let news = match claims % 3 {
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
                let _ = claiming.channel.send(&news, files);
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
            let attached = Attachment::iucv_at(&network.run_dir(), &network.name, &"victim".parse().unwrap(), &secret);
            assert!(attached.is_ok(), "application {count}: {:?}", attached.err());
        }
        is_over.store(true, Ordering::Relaxed);
        claim.join().unwrap()
    });
    println!("{claims} claims beside {APPLICATIONS} applications; the guest that made them was detached {ends} times");
    assert!(claims > 100 && ends > 10, "{claims} {ends}");
}

#[test]
fn a_long_reason_for_the_end_of_a_pair_does_not_end_the_partner() {
    let network = Network::up("long", LAN);
    let victim = network.pid("victim");
    let mut hostile = Hostile::attach(&network);
    let pair = hostile.pair_with("victim");
    // As long as it can be so that the message itself is not too long.
    hostile.say(&GuestEvent::Lost { pair, why: Loss::Violation("x".repeat(MESSAGE_BYTES_MAX - 200)) }, Vec::new());
    wait_until("the end of the pair", || network.log().contains("hostile detached: violation"));
    network.text(&["ping", "long", "victim", "10.0.0.3", "-c", "1", "-W", "20"]);
    assert_eq!(network.pid_of("victim"), Some(victim));
}

#[test]
fn a_guest_that_lies_about_requests_changes_no_answer() {
    let network = Network::up("answers", LAN);
    let mut hostile = Hostile::attach(&network);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                for request in 1..16 {
                    let stack = StackReport { connections: 4_711, ..StackReport::default() };
                    hostile.say(&GuestEvent::Pong { request, time_ns: Some(7_000) }, Vec::new());
                    let part = ReportPart::Stack(stack);
                    if request > 8 {
                        hostile.say(&GuestEvent::Report { request, part }, Vec::new());
                    }
                }
                std::thread::sleep(Duration::from_millis(1));
                while hostile.channel.receive::<Order>().unwrap().is_some() {}
            }
        });
        let output = network.siga(&["ping", "answers", "other", "10.0.0.99", "-c", "2", "-i", "0.1", "-W", "0.3"]);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        is_over.store(true, Ordering::Relaxed);
        assert!(text.ends_with("2 sent, 0 answered\n"), "{text}");
    });
}

#[test]
fn a_guest_that_does_not_report_is_shown_as_silent_and_hides_no_other() {
    let network = Network::up("silent", LAN);
    let _hostile = Hostile::attach(&network);
    let status = network.text(&["status", "silent", "--detail"]);
    assert!(status.contains("guest hostile: no report in time"), "{status}");
    for guest in ["victim", "other"] {
        assert!(status.contains(&format!("device dev0 of guest {guest}")), "{status}");
    }
    let status: serde_json::Value =
        serde_json::from_str(&network.text(&["status", "silent", "--detail", "--format", "json"])).unwrap();
    assert_eq!(status["silent"], serde_json::json!(["hostile"]));
}

#[test]
fn a_guest_that_does_not_read_is_not_ended_by_what_another_asks() {
    let network = Network::up("behind", LAN);
    let victim = network.pid("victim");
    let process = rustix::process::Pid::from_raw(victim).unwrap();
    let mut hostile = Hostile::attach(&network);
    rustix::process::kill_process(process, rustix::process::Signal::STOP).unwrap();
    let (mut pairs, mut refused) = (0, 0);
    while refused < 2_000 && pairs < 20_000 {
        hostile.couple("victim");
        let answer = hostile.hear(|order, _| {
            let pair = if let Order::MakePair(held) = &order { Some(held.pair) } else { None };
            (pair.is_some() || matches!(order, Order::Refused { .. })).then_some(pair)
        });
        if let Some(pair) = answer {
            pairs += 1;
            hostile.say(&GuestEvent::Lost { pair, why: Loss::Failed("it says so".to_owned()) }, Vec::new());
        } else {
            refused += 1;
        }
    }
    rustix::process::kill_process(process, rustix::process::Signal::CONT).unwrap();
    println!("{pairs} pairs, {refused} refused");
    assert!(refused >= 2_000, "{pairs} pairs were made without end");
    network.text(&["ping", "behind", "other", "10.0.0.2", "-c", "1", "-W", "20"]);
    assert_eq!(network.pid_of("victim"), Some(victim));
}

#[test]
fn a_request_to_a_control_program_that_is_stopped_ends_in_time_and_does_nothing_later() {
    let network = Network::up("stopped", LAN);
    let control = rustix::process::Pid::from_raw(control_pid(&network)).unwrap();
    rustix::process::kill_process(control, rustix::process::Signal::STOP).unwrap();
    // One that is given up by its user, one that gives up by itself, and one that is asked in time.
    let mut given_up = siga(&network, &["down", "stopped"]).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    given_up.kill().unwrap();
    given_up.wait().unwrap();
    let begun = Instant::now();
    let late = network.siga(&["status", "stopped"]);
    let down = network.siga(&["down", "stopped"]);
    let took = begun.elapsed();
    rustix::process::kill_process(control, rustix::process::Signal::CONT).unwrap();
    for output in [&late, &down] {
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("did not take the request up within 5 s") && text.contains("kill -CONT"), "{text}");
    }
    println!("two requests in {took:?}");
    let states = network.text(&["status", "stopped"]);
    assert!(states.contains("victim          running"), "{states}");
    assert_eq!(control_pid(&network), control.as_raw_nonzero().get());
}

#[test]
fn connections_that_are_made_without_end_stop_no_request() {
    let network = Network::up("flood", LAN);
    let is_over = AtomicBool::new(false);
    let path = network.run_dir().join("flood").join("control");
    let took = std::thread::scope(|scope| {
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
        let outputs: Vec<_> = (0..5).map(|_| network.siga(&["status", "flood"])).collect();
        let took = begun.elapsed();
        is_over.store(true, Ordering::Relaxed);
        for output in outputs {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        took
    });
    println!("five requests took {took:?} meanwhile");
}

#[test]
fn a_guest_that_holds_all_connections_keeps_no_administrator_out() {
    let network = Network::up("holds", LAN);
    let _hostile = Hostile::attach(&network);
    let mut held = Vec::new();
    for _ in 0..CLIENTS_MAX + 8 {
        let Ok(mut client) = Client::connect_at(&network.run_dir(), &network.name) else { break };
        // It is refused, and keeps the connection.
        let _ = client.request(Request::Status { detail: false });
        held.push(client);
    }
    println!("{} connections were made", held.len());
    network.text(&["ping", "holds", "other", "10.0.0.2", "-c", "1", "-W", "20"]);
    network.text(&["status", "holds"]);
}

#[test]
fn an_external_guest_that_fails_is_not_started_by_the_control_program() {
    let network = Network::up("fails", LAN);
    let mut hostile = Hostile::attach(&network);
    hostile.say(&GuestEvent::Failed(siga_model::error::Error::environment("it says so")), Vec::new());
    std::thread::sleep(RESTART_WAIT_MAX + Duration::from_secs(2));
    assert_eq!(network.pid_of("hostile"), None, "{}", network.log());
    Hostile::attach(&network);
}

#[test]
fn a_guest_that_cannot_be_adopted_is_ended_by_the_successor() {
    let network = Network::up("orphan", LAN);
    let status = network.text(&["status", "orphan"]);
    if !status.contains("control group") {
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
    network::kill(control_pid(&network));
    let path = network.base.path().join("orphan.toml");
    network.text(&["up", path.to_str().unwrap(), "--name", "orphan"]);
    assert_ne!(network.pid_of("victim"), Some(victim), "{}", network.log());
    network::wait_for_end(&process);
    drop(waiting);
    network.text(&["ping", "orphan", "other", "10.0.0.2", "-c", "1", "-W", "20"]);
}

#[test]
fn a_guest_that_stalls_does_not_make_the_start_of_a_successor_hang() {
    let network = Network::up("stall", LAN);
    let victim = network.pid("victim");
    rustix::process::pidfd_send_signal(network::process(victim), rustix::process::Signal::STOP).unwrap();
    network::kill(control_pid(&network));
    let path = network.base.path().join("stall.toml");
    let mut up = siga(&network, &["up", path.to_str().unwrap(), "--name", "stall"]).spawn().unwrap();
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
    network.text(&["ping", "stall", "other", "10.0.0.2", "-c", "1", "-W", "20"]);
}

fn siga(network: &Network, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.arg("net").args(arguments).env("SIGA_RUN_DIR", network.run_dir());
    command
}

/// The control program's process.
fn control_pid(network: &Network) -> i32 {
    let socket =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let path = network.run_dir().join(network.name.as_str()).join("control");
    rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::sockopt::socket_peercred(&socket).unwrap().pid.as_raw_nonzero().get()
}
