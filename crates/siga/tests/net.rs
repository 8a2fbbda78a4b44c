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
        let status = self.status();
        let guest = status["guests"].as_array().unwrap().iter().find(|entry| entry["name"] == guest).unwrap();
        guest["pid"].as_i64().unwrap().try_into().unwrap()
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
                let pid = rustix::process::Pid::from_raw(network.pid("router")).unwrap();
                rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
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
