//! Tests of `siga net upgrade`: another build of siga takes over the processes of a network, while traffic flows.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they measured")]

#[path = "../common/network.rs"]
mod network;
mod types;

use network::{EXTERNAL_FIGURE_1, Network, PATIENCE, kill, sink, source, wait_until};
use siga_fabric::client::Client;
use siga_fabric::protocol::request::Request;
use siga_fabric::sockets::{Attachment, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The tests run one after the other: with several networks under load, processes would wait for the CPU for seconds.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const UPGRADES: usize = 10;
const STREAM_BYTES: u64 = 64 << 20;

/// Two guests behind a switch.
const SWITCHED: &str = r#"
[network.lan]
type = "vswitch"
[guest.client]
device = [{ network = "lan", addresses = ["10.0.3.1/24"] }]
[guest.server]
device = [{ network = "lan", addresses = ["10.0.3.2/24"] }]
"#;

/// Writes another build: this build with one more byte at the end, which the kernel does not load.
fn other_build(directory: &Path) -> PathBuf {
    let path = directory.join("siga-new");
    let mut program = std::fs::read(env!("CARGO_BIN_EXE_siga")).unwrap();
    program.push(b'+');
    std::fs::write(&path, program).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Returns whether a process runs the other build, as far as this process may know.
fn runs_other_build(pid: i32) -> bool {
    std::fs::read(format!("/proc/{pid}/exe")).map_or(true, |program| program.ends_with(b"+"))
}

/// The network of Figure 1 whose guests all have processes of their own.
fn figure_1() -> String {
    EXTERNAL_FIGURE_1.replace("external = true\n", "")
}

/// The guests of Figure 1 that have applications.
const FIGURE_1: [&str; 2] = ["client", "server"];

/// Upgrades a network of which these guests have applications. Returns what the command printed.
fn upgrade(network: &Network, guests: [&str; 2], to: Option<&Path>) -> String {
    let mut arguments = vec!["upgrade", network.name.as_str()];
    arguments.extend(to.iter().flat_map(|to| ["--to", to.to_str().unwrap()]));
    let output = network.siga(&arguments);
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(4), "{out}{err}{}", network.log());
    assert!(err.contains("guests with the old build: 2"), "{err}");
    for guest in guests {
        assert!(out.contains(&format!("{guest}: not replaced, and goes on: applications use the stack")), "{out}");
    }
    out
}

/// Makes connections from one guest to another. Returns both ends of each.
fn connect(client: &Attachment, server: &Attachment, to: SocketAddr, count: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind(server, to).unwrap();
    listener.set_timeout(Some(PATIENCE));
    let connect = |_| {
        let one = TcpStream::connect(client, to).unwrap();
        one.set_timeout(Some(PATIENCE));
        let (other, _) = listener.accept().unwrap();
        other.set_timeout(Some(PATIENCE));
        (one, other)
    };
    (0..count).map(connect).collect()
}

/// What the exchanges over many connections have done so far.
#[derive(Default)]
struct Exchanges {
    count: AtomicU64,
    /// The longest one in nanoseconds.
    longest: AtomicU64,
    end: AtomicBool,
}

impl Exchanges {
    /// Sends a few bytes there and back over one connection after the other, until the end.
    fn run(&self, connections: &[(TcpStream, TcpStream)]) {
        for (mut one, mut other) in connections.iter().map(|(one, other)| (one, other)).cycle() {
            if self.end.load(Ordering::Relaxed) {
                return;
            }
            let (begun, mut read) = (Instant::now(), [0; 8]);
            let bytes = self.count.load(Ordering::Relaxed).to_le_bytes();
            one.write_all(&bytes).unwrap();
            other.read_exact(&mut read).unwrap();
            other.write_all(&read).unwrap();
            one.read_exact(&mut read).unwrap();
            assert_eq!(read, bytes);
            self.longest.fetch_max(u64::try_from(begun.elapsed().as_nanos()).unwrap(), Ordering::Relaxed);
            self.count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until there were some more exchanges.
    fn wait_for_more(&self) {
        let (seen, begun) = (self.count.load(Ordering::Relaxed), Instant::now());
        while self.count.load(Ordering::Relaxed) < seen + 50 {
            assert!(begun.elapsed() < PATIENCE, "no traffic");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Ends the exchanges also if the test fails.
struct EndOnDrop<'a>(&'a Exchanges);

impl Drop for EndOnDrop<'_> {
    fn drop(&mut self) {
        self.0.end.store(true, Ordering::Relaxed);
    }
}

/// Returns the gap that the command has printed for a guest, in milliseconds.
fn gap_of(guest: &str, out: &str) -> f64 {
    let line = out.lines().find(|line| line.starts_with(&format!("{guest}: replaced"))).expect(out);
    line.rsplit_once("gap ").unwrap().1.trim_end_matches(" ms").parse().unwrap()
}

/// What both ends of connections have seen, summed.
#[derive(Debug, Default)]
struct Ends {
    retransmissions: u32,
    /// Segments that came again although they had arrived: their retransmission was not needed.
    duplicates: u32,
    timeouts: u32,
    /// Segments that came before earlier ones.
    early: u32,
}

impl Ends {
    fn of(connections: &[(TcpStream, TcpStream)]) -> Self {
        let mut ends = Self::default();
        for info in connections.iter().flat_map(|(one, other)| [one, other]).map(|end| end.info().unwrap()) {
            ends.retransmissions += info.total_retrans;
            ends.duplicates += info.dsack_dups;
            ends.timeouts += info.total_rto;
            ends.early += info.rcv_ooopack;
        }
        ends
    }

    /// Checks that no frame was lost and that all came in their order. A busy host delays frames, so that a stack sends them again, but
    /// then the first one arrives, too, and the peer reports that one came twice (perhaps more than once).
    fn lost_nothing(&self, network: &Network) {
        println!("{self:?}");
        let log = network.log();
        let late: Vec<&str> = log.lines().filter(|line| line.contains("too late to pass on")).collect();
        assert!(self.early == 0 && self.retransmissions <= self.duplicates, "{self:?}, {late:#?}");
    }
}

/// Upgrades a network again and again while a stream and exchanges over several connections cross it.
fn upgrade_under_load(network: &Network, between: &str, server_at: &str) {
    let (client, server) = (network.application("client"), network.application("server"));
    let other = other_build(network.base.path());
    let at = |port: u16| -> SocketAddr { format!("{server_at}:{port}").parse().unwrap() };
    let (stream, before) = (TcpListener::bind(&server, at(7)).unwrap(), network.pid(between));
    let connections = connect(&client, &server, at(8), 20);
    let exchanges = Exchanges::default();
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&exchanges);
        let served = scope.spawn(|| sink(&stream));
        scope.spawn(|| exchanges.run(&connections));
        let bytes = scope.spawn(|| {
            source(&client, &at(7).to_string(), STREAM_BYTES, |sent| {
                if sent % (1 << 20) == 0 {
                    std::thread::sleep(Duration::from_millis(20));
                }
            });
        });
        let mut gaps = Vec::new();
        for turn in 0..UPGRADES {
            let out = upgrade(network, FIGURE_1, (turn % 2 == 0).then_some(&*other));
            gaps.push(gap_of(between, &out));
            assert_eq!(runs_other_build(network.pid(between)), turn % 2 == 0);
            exchanges.wait_for_more();
        }
        bytes.join().unwrap();
        assert_eq!(served.join().unwrap().0, STREAM_BYTES);
        println!("gaps in ms: {gaps:?}");
        gaps.sort_by(f64::total_cmp);
        assert!(
            gaps[UPGRADES / 2] < 50.0,
            "the median is half of the time after which the control program waits no longer"
        );
    });
    let longest = Duration::from_nanos(exchanges.longest.load(Ordering::Relaxed));
    println!("longest exchange {longest:?}");
    Ends::of(&connections).lost_nothing(network);
    assert_ne!(network.pid(between), before);
}

#[test]
fn a_router_is_replaced_again_and_again_under_load_and_nothing_is_lost() {
    let _alone = alone();
    let network = Network::up("upgraded-router", &figure_1());
    upgrade_under_load(&network, "router", "10.0.2.2");
    // The new control program has all rights of the old one: it restarts the router.
    let router = network.pid("router");
    kill(router);
    wait_until("a new router", || network.pid_of("router").is_some_and(|pid| pid != router));
}

#[test]
fn a_switch_is_replaced_again_and_again_under_load_and_nothing_is_lost() {
    let _alone = alone();
    upgrade_under_load(&Network::up("upgraded-switch", SWITCHED), "lan", "10.0.3.2");
}

#[test]
fn what_is_no_build_or_another_protocol_is_refused_and_the_network_goes_on() {
    let _alone = alone();
    let network = Network::up("refused", EXTERNAL_FIGURE_1);
    let _client = network.attach("client");
    let (control, router) = (network.control_pid(), network.pid("router"));
    let refused = |to: &str, status: i32, text: &str| {
        let output = network.siga(&["upgrade", "refused", "--to", to]);
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), output.stdout.len()), (Some(status), 0), "{err}");
        assert!(err.contains(text), "{err}");
        assert_eq!((network.control_pid(), network.pid("router")), (control, router), "nothing has changed");
    };
    refused("/bin/true", 2, "does not say which build of siga it is");
    refused("/etc/passwd", 2, "does not say which build of siga it is");
    refused("/dev/null", 2, "it is not a regular file");
    refused("/nowhere", 2, "No such file");
    let state = network.run_dir().join("refused/state.json");
    let text = std::fs::read_to_string(&state).unwrap();
    let number: u32 = text.split_once("\"protocol\":").unwrap().1.split_once(',').unwrap().0.parse().unwrap();
    let before = format!("\"protocol\":{number},");
    std::fs::write(&state, text.replacen(&before, &format!("\"protocol\":{},", number - 1), 1)).unwrap();
    let other = other_build(network.base.path());
    refused(
        other.to_str().unwrap(),
        3,
        &format!("uses protocol {}, but the new build has protocol {number}", number - 1),
    );
    std::fs::write(&state, text).unwrap();
    upgrade_to_other(&network, &other);
}

fn upgrade_to_other(network: &Network, other: &Path) {
    let output = network.siga(&["upgrade", network.name.as_str(), "--to", other.to_str().unwrap()]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("router: replaced"), "{output:?}");
    assert!(runs_other_build(network.control_pid()) && runs_other_build(network.pid("router")));
}

#[test]
fn guests_with_applications_keep_their_processes_and_others_are_replaced() {
    let _alone = alone();
    let network = Network::up("applied", &figure_1());
    let other = other_build(network.base.path());
    let application = network.application("server");
    let listener = TcpListener::bind(&application, "10.0.2.2:7".parse().unwrap()).unwrap();
    let before = ["client", "router", "server"].map(|guest| network.pid(guest));
    let run = || {
        let output = network.siga(&["upgrade", "applied", "--to", other.to_str().unwrap()]);
        let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        (output.status.code(), format!("{out}{err}"))
    };
    let (status, text) = run();
    let after = ["client", "router", "server"].map(|guest| network.pid(guest));
    assert_eq!(status, Some(4), "{text}");
    assert!(text.contains("server: not replaced, and goes on: applications use the stack of the guest: 1"), "{text}");
    assert!(text.contains("guests with the old build: 1"), "{text}");
    assert_eq!(after[2], before[2]);
    assert!(after[0] != before[0] && after[1] != before[1]);
    // Applications of old and new guests reach each other.
    let client = network.application("client");
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        source(&client, "10.0.2.2:7", 4 << 20, |_| {});
        assert_eq!(served.join().unwrap().0, 4 << 20);
    });
    drop((listener, application, client));
    wait_until("all guests are replaced", || run().0 == Some(0));
    assert!(["client", "router", "server"].iter().all(|guest| runs_other_build(network.pid(guest))));
}

#[test]
fn a_running_ping_goes_on_while_everything_is_replaced() {
    let _alone = alone();
    let network = Network::up("pinged", &figure_1());
    let arguments = ["ping", "pinged", "client", "10.0.2.2", "--count", "60", "--interval", "0.05", "-W", "10"];
    let ping = network.command(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let before = ["client", "router", "server"].map(|guest| network.pid(guest));
    for _ in 0..3 {
        network.text(&["upgrade", "pinged"]);
    }
    let output = ping.wait_with_output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && out.contains("60 requests sent, 60 answered"), "{out}{err}{}", network.log());
    let after = ["client", "router", "server"].map(|guest| network.pid(guest));
    assert!(before.iter().zip(after).all(|(before, after)| *before != after));
}

#[test]
fn a_control_program_that_fails_to_take_over_leaves_the_network_to_the_old_one() {
    let _alone = alone();
    let network = Network::up("returned", EXTERNAL_FIGURE_1);
    let (control, router) = (network.control_pid(), network.pid("router"));
    let mut heir = Client::connect_at(&network.run_dir(), &network.name).unwrap();
    heir.request(Request::HandOver).unwrap();
    let refused = network.siga(&["status", "returned"]);
    assert_eq!(refused.status.code(), Some(3), "no control program has the network now");
    // It ends without the guests.
    drop(heir);
    wait_until("the old control program", || network.siga(&["status", "returned"]).status.success());
    assert_eq!((network.control_pid(), network.pid("router")), (control, router));
    assert!(network.log().contains("the other control program failed, so this one goes on"));
    kill(router);
    wait_until("a new router", || network.pid_of("router").is_some_and(|pid| pid != router));
}

#[test]
fn an_attached_process_cannot_begin_an_upgrade() {
    let _alone = alone();
    let network = Network::up("once", EXTERNAL_FIGURE_1);
    let _client = network.attach("client");
    // This process has attached, so it may make no such request.
    for request in [Request::HandOver, Request::Replace] {
        let mut attached = Client::connect_at(&network.run_dir(), &network.name).unwrap();
        let error = attached.request(request).unwrap_err();
        assert!(error.message().contains("attached to the network as a guest or application"), "{error}");
    }
}

#[test]
fn a_second_upgrade_is_refused_while_one_runs() {
    let _alone = alone();
    let network = Network::up("twice", &figure_1());
    let connect = || Client::connect_at(&network.run_dir(), &network.name).unwrap();
    let (mut one, mut other) = (connect(), connect());
    one.ask(Request::Replace, Vec::new()).unwrap();
    let error = other.request(Request::Replace).unwrap_err();
    assert!(error.message().contains("another command is upgrading the network"), "{error}");
    one.outcome(PATIENCE).unwrap();
    other.request(Request::Replace).unwrap();
}

/// The number of upgrades and of connections of the long test.
const LONG: (usize, usize) = (100, 10_000);

#[test]
#[ignore = "takes minutes; `cargo xtask nightly --only upgrade` runs it"]
fn a_hundred_upgrades_under_load_have_short_gaps() {
    let _alone = alone();
    let network = Network::up("hundred", &figure_1());
    let (client, server) = (network.application("client"), network.application("server"));
    let number = |name: &str, usual| std::env::var(name).map_or(usual, |text| text.parse().unwrap());
    let (upgrades, count) = (number("SIGA_UPGRADES", LONG.0), number("SIGA_UPGRADE_CONNECTIONS", LONG.1));
    let connections = connect(&client, &server, "10.0.2.2:7".parse().unwrap(), count);
    let exchanges = Exchanges::default();
    let (mut gaps, mut longest) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let _end = EndOnDrop(&exchanges);
        scope.spawn(|| exchanges.run(&connections));
        for _ in 0..upgrades {
            exchanges.wait_for_more();
            exchanges.longest.store(0, Ordering::Relaxed);
            gaps.push(gap_of("router", &upgrade(&network, FIGURE_1, None)));
            let ns = exchanges.longest.load(Ordering::Relaxed);
            longest.push(Duration::from_nanos(ns).as_secs_f64() * 1e3);
        }
    });
    println!("{} exchanges over {count} connections", exchanges.count.load(Ordering::Relaxed));
    let most = longest.iter().copied().fold(0.0, f64::max);
    println!("{most:.1} ms for the longest exchange");
    Ends::of(&connections).lost_nothing(&network);
    for (what, mut times) in [("gap", gaps), ("longest exchange", longest)] {
        times.sort_by(f64::total_cmp);
        let at = |part: usize| times[times.len() * part / 100];
        println!(
            "{what} in ms over {upgrades} upgrades: p50 {:.3}, p99 {:.3}, at most {:.3}",
            at(50),
            at(99),
            times[times.len() - 1]
        );
    }
}
