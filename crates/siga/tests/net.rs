//! Virtual networks end to end: the program starts them, this process is their external guests.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they measured")]

use siga_fabric::message::Token;
use siga_fabric::name::Name;
use siga_fabric::sockets::{Attachment, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A network that is up as long as this lives.
struct Network {
    name: Name,
    base: tempfile::TempDir,
}

const FIGURE_1: &str = r#"
[network.link]
type = "vctc"
buffer = 65535
[network.lan]
type = "hipersockets"
[guest.client]
external = true
device = [{ network = "link", addresses = ["10.0.1.1/24", "fd00:1::1/64"], mtu = 57344 }]
route = [{ to = "default", via = "10.0.1.2" }, { to = "default", via = "fd00:1::2" }]
[guest.router]
forwarding = true
device = [
    { network = "link", addresses = ["10.0.1.2/24", "fd00:1::2/64"], mtu = 57344 },
    { network = "lan", addresses = ["10.0.2.1/24", "fd00:2::1/64"] },
]
[guest.server]
external = true
device = [{ network = "lan", addresses = ["10.0.2.2/24", "fd00:2::2/64"] }]
route = [{ to = "default", via = "10.0.2.1" }, { to = "default", via = "fd00:2::1" }]
"#;

impl Network {
    fn up(name: &str, topology: &str) -> Self {
        let base = tempfile::tempdir().unwrap();
        let network = Self { name: name.parse().unwrap(), base };
        let path = network.base.path().join(format!("{name}.toml"));
        std::fs::write(&path, topology).unwrap();
        let output = network.siga(&["up", path.to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        network
    }

    fn run_dir(&self) -> PathBuf {
        self.base.path().join("run")
    }

    fn siga(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.arg("net").args(arguments).env("SIGA_RUN_DIR", self.run_dir());
        command.output().unwrap()
    }

    fn text(&self, arguments: &[&str]) -> String {
        let output = self.siga(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn attach(&self, guest: &str) -> Attachment {
        let token = self.text(&["token", self.name.as_str(), guest]);
        let token = Token::claimed(token.trim());
        Attachment::embedded_at(&self.run_dir(), &self.name, &guest.parse().unwrap(), &token).unwrap()
    }

    fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.text(&["status", self.name.as_str(), "--format", "json"])).unwrap()
    }

    fn pid(&self, guest: &str) -> i32 {
        self.pid_of(guest).unwrap()
    }

    fn pid_of(&self, guest: &str) -> Option<i32> {
        let status = self.status();
        let guest = status["guests"].as_array().unwrap().iter().find(|entry| entry["name"] == guest).unwrap();
        guest["pid"].as_i64().map(|pid| pid.try_into().unwrap())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let output = self.siga(&["down", self.name.as_str()]);
        if !std::thread::panicking() {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(!self.run_dir().join(self.name.as_str()).exists());
        } else if let Ok(log) = std::fs::read_to_string(self.run_dir().join(self.name.as_str()).join("log")) {
            eprintln!("{log}");
        }
    }
}

/// The bytes of a stream by their place.
fn content(at: u64, into: &mut [u8]) {
    for (place, byte) in (at..).zip(into) {
        *byte = (place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56).to_le_bytes()[0];
    }
}

/// Serves one connection: what comes is checked, then a word says how much it was.
fn sink(listener: &TcpListener) -> (u64, Vec<Duration>) {
    let (mut stream, _) = listener.accept().unwrap();
    let (mut buffer, mut expected) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    let (mut total, mut gaps, mut last) = (0, Vec::new(), Instant::now());
    loop {
        let count = stream.read(&mut buffer).unwrap();
        gaps.push(last.elapsed());
        last = Instant::now();
        if count == 0 {
            break;
        }
        content(total, &mut expected[..count]);
        assert!(buffer[..count] == expected[..count], "wrong bytes near {total}");
        total += count as u64;
    }
    stream.write_all(&total.to_le_bytes()).unwrap();
    gaps.sort();
    gaps.reverse();
    (total, gaps)
}

fn source(attachment: &Attachment, to: &str, bytes: u64, mut each: impl FnMut(u64)) {
    let mut stream = TcpStream::connect(attachment, to.parse().unwrap()).unwrap();
    let mut buffer = vec![0; 1 << 16];
    let mut sent = 0;
    while sent < bytes {
        let part = usize::try_from((bytes - sent).min(1 << 16)).unwrap();
        content(sent, &mut buffer[..part]);
        stream.write_all(&buffer[..part]).unwrap();
        sent += part as u64;
        each(sent);
    }
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut total = [0; 8];
    stream.read_exact(&mut total).unwrap();
    assert_eq!(u64::from_le_bytes(total), bytes);
}

#[test]
fn a_stream_crosses_the_router_whole_over_both_ip_versions() {
    let network = Network::up("cross", FIGURE_1);
    let (client, server) = (network.attach("client"), network.attach("server"));
    for (at, to) in [("10.0.2.2:7", "10.0.2.2:7"), ("[fd00:2::2]:7", "[fd00:2::2]:7")] {
        let listener = TcpListener::bind(&server, at.parse().unwrap()).unwrap();
        std::thread::scope(|scope| {
            let served = scope.spawn(|| sink(&listener));
            source(&client, to, 64 << 20, |_| {});
            assert_eq!(served.join().unwrap().0, 64 << 20);
        });
    }
}

#[test]
fn a_router_that_is_killed_in_mid_transfer_loses_no_byte() {
    let network = Network::up("kill", FIGURE_1);
    let (client, server) = (network.attach("client"), network.attach("server"));
    let listener = TcpListener::bind(&server, "10.0.2.2:7".parse().unwrap()).unwrap();
    let bytes = 256 << 20;
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        let mut killed = false;
        source(&client, "10.0.2.2:7", bytes, |sent| {
            if sent >= bytes / 2 && !killed {
                killed = true;
                kill(network.pid("router"));
            }
        });
        let (total, gaps) = served.join().unwrap();
        assert_eq!(total, bytes);
        println!("the longest gaps: {:?}", &gaps[..3]);
    });
    let status = network.status();
    let router = status["guests"].as_array().unwrap().iter().find(|guest| guest["name"] == "router").unwrap().clone();
    assert_eq!(router["restarts"], 1);
}

/// Ends a process for good.
fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(20);
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within 20 s");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The process that holds a network's lock.
fn control_pid(network: &Network) -> i32 {
    let wanted = format!("net\0control\0{}", network.run_dir().display());
    let is_it = |entry: &std::fs::DirEntry| {
        let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(&wanted)
    };
    let found = std::fs::read_dir("/proc").unwrap().flatten().find(is_it).unwrap();
    found.file_name().to_str().unwrap().parse().unwrap()
}

#[test]
fn established_traffic_outlives_the_control_program_and_a_successor_finds_the_guests() {
    let network = Network::up("outlive", FIGURE_1);
    let (client, server) = (network.attach("client"), network.attach("server"));
    let listener = TcpListener::bind(&server, "10.0.2.2:7".parse().unwrap()).unwrap();
    let router = network.pid("router");
    let bytes = 192 << 20;
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        let mut step = 0;
        source(&client, "10.0.2.2:7", bytes, |sent| {
            if step == 0 && sent >= bytes / 4 {
                step = 1;
                kill(control_pid(&network));
                let refused = network.siga(&["status", network.name.as_str()]);
                assert_eq!(refused.status.code(), Some(3));
                assert!(String::from_utf8_lossy(&refused.stderr).contains("its guests go on without it"));
            }
            if step == 1 && sent >= bytes / 2 {
                step = 2;
                network.text(&["up", network.base.path().join("outlive.toml").to_str().unwrap()]);
            }
        });
        assert_eq!(served.join().unwrap().0, bytes);
    });
    assert_eq!(network.pid("router"), router, "the same process");
    let status = network.status();
    assert!(status["guests"].as_array().unwrap().iter().all(|guest| guest["state"] == "running"), "{status}");
    let pairs: i64 =
        status["networks"].as_array().unwrap().iter().map(|network| network["pairs"].as_i64().unwrap()).sum();
    assert_eq!(pairs, 2, "both links are known again: {status}");
    // The successor watches them as its predecessor did.
    kill(router);
    wait_until("a new router", || network.pid_of("router").is_some_and(|pid| pid != router));
    drop(listener);
    let listener = TcpListener::bind(&server, "10.0.2.2:8".parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| sink(&listener));
        source(&client, "10.0.2.2:8", 1 << 20, |_| {});
        served.join().unwrap();
    });
}

#[test]
fn a_network_without_its_control_program_can_be_taken_down() {
    let network = Network::up("orphans", FIGURE_1);
    let router = network.pid("router");
    kill(control_pid(&network));
    network.text(&["down", "orphans"]);
    assert!(!network.run_dir().join("orphans").exists());
    wait_until("the router's end", || !std::path::Path::new(&format!("/proc/{router}")).exists());
    // For the end of the test.
    network.text(&["up", network.base.path().join("orphans.toml").to_str().unwrap()]);
}

#[test]
fn guests_are_stopped_and_started_and_their_partners_go_on() {
    let network = Network::up("steps", FIGURE_1);
    let _client = network.attach("client");
    network.text(&["stop", "steps", "router"]);
    assert_eq!(network.pid_of("router"), None);
    let again = network.siga(&["stop", "steps", "nobody"]);
    assert_eq!(again.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&again.stderr).contains("guests: client, router, server"));
    network.text(&["start", "steps", "router"]);
    let refused = network.siga(&["start", "steps", "router"]);
    assert_eq!((refused.status.code(), network.pid_of("router").is_some()), (Some(2), true));
    let external = network.siga(&["start", "steps", "client"]);
    assert!(String::from_utf8_lossy(&external.stderr).contains("attaches by itself"));
}

#[test]
fn who_has_no_right_is_refused_and_what_runs_goes_on() {
    let network = Network::up("rights", FIGURE_1);
    let path = network.base.path().join("rights.toml");
    let twice = network.siga(&["up", path.to_str().unwrap()]);
    assert_eq!(twice.status.code(), Some(3));
    assert!(String::from_utf8_lossy(&twice.stderr).contains("is in use"));
    let wrong = Token::claimed("0".repeat(64));
    let attach = |guest: &str, token: &Token| {
        let error = Attachment::embedded_at(&network.run_dir(), &network.name, &guest.parse().unwrap(), token);
        error.unwrap_err().to_string()
    };
    assert!(attach("client", &wrong).contains("the token is not that of guest client"));
    assert!(attach("nobody", &wrong).contains("the token is not that of guest nobody"));
    let of_server = Token::claimed(network.text(&["token", "rights", "server"]).trim());
    assert!(attach("client", &of_server).contains("the token is not"));
    let of_router = Token::claimed(network.text(&["token", "rights", "router"]).trim());
    assert!(attach("router", &of_router).contains("is not external"));
    let _server = network.attach("server");
    assert!(attach("server", &of_server).contains("is attached"));
    assert_eq!(network.siga(&["grant", "rights", "lan", "client"]).status.code(), Some(2), "it is open to all");
    assert!(network.pid_of("router").is_some());
}

#[test]
fn a_revoked_guest_is_cut_off_and_a_granted_one_joined_while_it_runs() {
    let restricted = FIGURE_1.replace(
        "type = \"hipersockets\"",
        "type = \"hipersockets\"\naccess = \"restricted\"\ngrant = [\"router\", \"server\"]",
    );
    // The last that is external: the server.
    let (before, after) = restricted.rsplit_once("external = true\n").unwrap();
    let network = Network::up("access", &format!("{before}{after}"));
    let ping = || network.siga(&["ping", "access", "router", "10.0.2.2", "-c", "1", "-W", "0.5"]).status.code();
    assert_eq!(ping(), Some(0));
    network.text(&["revoke", "access", "lan", "server"]);
    assert_eq!(ping(), Some(4));
    assert!(network.text(&["status", "access"]).contains("restricted"));
    network.text(&["grant", "access", "lan", "server"]);
    assert_eq!(ping(), Some(0));
}
