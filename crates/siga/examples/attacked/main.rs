//! Measures how much a hostile guest slows down two other guests: their rates through a router with and without the hostile
//! guest, alternating within one run.
//!
//! `attacked PROGRAM ROUNDS SECONDS` brings up a network with the `siga` at PROGRAM. This process is the client. The server and
//! the hostile guest are separate processes, which end when their standard input is closed. The hostile guest sends as fast as
//! its two partners, the router and the server, accept frames. It sends packets with others' source addresses, first fragments,
//! ICMP errors and SYNs. The program prints the rates as one JSON object. No rate makes it fail.
//!
//! `attacked PROGRAM ROUNDS SECONDS switch` measures client and server at one switch. The hostile station is then a network namespace at
//! another port. It sends UDP packets to the server, to an address without a station, and to all stations.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what goes wrong ends the measurement, and it prints its result"
)]

#[path = "../../../fabric/tests/common/hostile_guest.rs"]
mod hostile_guest;
#[path = "../../../fabric/tests/common/packets.rs"]
mod packets;

use hostile_guest::HostileGuest;
use packets::{datagram, echo, fragment, syn, unreachable};
use serde_json::json;
use siga_fabric::protocol::secret::Secret;
use siga_fabric::sockets::{Attachment, TcpListener, TcpStream};
use siga_model::name::Name;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

const NAME: &str = "attacked";
const TOPOLOGY: &str = r#"
[network.link]
type = "vctc"
buffer = 65535
[network.lan]
type = "hipersockets"
[guest.client]
external = true
device = [{ network = "link", addresses = ["10.0.1.1/24"], mtu = 57344 }]
route = [{ to = "default", via = "10.0.1.2" }]
[guest.router]
forwarding = true
device = [
    { network = "link", addresses = ["10.0.1.2/24"], mtu = 57344 },
    { network = "lan", addresses = ["10.0.2.1/24"], mtu = 57344 },
]
[guest.server]
external = true
device = [{ network = "lan", addresses = ["10.0.2.2/24"], mtu = 57344 }]
route = [{ to = "default", via = "10.0.2.1" }]
[guest.hostile]
external = true
device = [{ network = "lan", addresses = ["10.0.2.66/24"], mtu = 57344 }]
route = [{ to = "default", via = "10.0.2.1" }]
"#;
/// Client, server and hostile station at one switch.
const SWITCH_TOPOLOGY: &str = r#"
[network.lan]
type = "vswitch"
[[network.lan.port]]
name = "hostile"
addresses = ["10.0.2.66/24"]
[guest.client]
external = true
device = [{ network = "lan", addresses = ["10.0.2.1/24"] }]
[guest.server]
external = true
device = [{ network = "lan", addresses = ["10.0.2.2/24"] }]
"#;
/// The word that stands for a hostile station at a switch.
const SWITCH: &str = "switch";
const SERVER: &str = "10.0.2.2:7";
const REQUEST_BYTES: usize = 200;
const RESPONSE_BYTES: usize = 1_000;
const STREAM_BYTES: usize = 64 << 10;

/// The workload. The client selects it with the first byte of a connection.
#[derive(Clone, Copy)]
enum Workload {
    /// Requests of 200 bytes, responses of 1,000.
    Rr = b'r' as isize,
    /// A stream from the server to the client.
    Strg = b's' as isize,
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["server", run_dir, secret] => serve(Path::new(run_dir), secret),
        ["hostile", run_dir, secret] => flood(Path::new(run_dir), secret),
        ["station"] => flood_a_switch(),
        [program, rounds, seconds] => {
            let (rounds, seconds) = (rounds.parse().unwrap(), seconds.parse().unwrap());
            let network = Network::up(Path::new(program), TOPOLOGY);
            let hostile = network.start("hostile");
            measure(&network, hostile, rounds, Duration::from_secs_f64(seconds));
        }
        [program, rounds, seconds, SWITCH] => {
            let (rounds, seconds) = (rounds.parse().unwrap(), seconds.parse().unwrap());
            let network = Network::up(Path::new(program), SWITCH_TOPOLOGY);
            let hostile = network.start_station("hostile");
            measure(&network, hostile, rounds, Duration::from_secs_f64(seconds));
        }
        _ => panic!("attacked PROGRAM ROUNDS SECONDS [switch]"),
    }
}

/// A network; dropping the value takes it down.
struct Network {
    program: PathBuf,
    base: tempfile::TempDir,
}

impl Network {
    fn up(program: &Path, topology: &str) -> Self {
        let network = Self { program: program.to_owned(), base: tempfile::tempdir().unwrap() };
        let file = network.base.path().join("topology.toml");
        std::fs::write(&file, topology).unwrap();
        network.siga(&["up", file.to_str().unwrap(), "--name", NAME]);
        network
    }

    fn run_dir(&self) -> PathBuf {
        self.base.path().join("run")
    }

    fn siga(&self, words: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        let output = command.arg("net").args(words).env("SIGA_RUN_DIR", self.run_dir()).output().unwrap();
        assert!(output.status.success(), "siga net {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    fn secret(&self, guest: &str) -> String {
        self.siga(&["token", NAME, guest])
    }

    /// Starts this program as the process of `guest`, and waits until the guest is ready.
    fn start(&self, guest: &str) -> Guest {
        let mut command = Command::new(std::env::current_exe().unwrap());
        Guest::start(command.arg(guest).arg(self.run_dir()).arg(self.secret(guest)))
    }

    /// Starts this program in a network namespace at a port, and waits until it is ready.
    fn start_station(&self, port: &str) -> Guest {
        let mut command = Command::new(&self.program);
        command.args(["netns", NAME, port, "--"]).arg(std::env::current_exe().unwrap()).arg("station");
        Guest::start(command.env("SIGA_RUN_DIR", self.run_dir()))
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let mut command = Command::new(&self.program);
        let _ = command.args(["net", "down", NAME]).env("SIGA_RUN_DIR", self.run_dir()).output();
    }
}

/// A guest's process; dropping the value ends it.
struct Guest {
    process: Child,
    says: BufReader<std::process::ChildStdout>,
}

impl Guest {
    fn start(command: &mut Command) -> Self {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut says = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        says.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the process is not ready");
        Self { process, says }
    }

    /// Sends the hostile guest a command: `flood` or `rest`.
    fn say(&mut self, word: &str) {
        writeln!(self.process.stdin.as_ref().unwrap(), "{word}").unwrap();
    }

    /// Returns the next number that the guest prints.
    fn hear(&mut self) -> f64 {
        let mut words = String::new();
        self.says.read_line(&mut words).unwrap();
        words.trim().parse().unwrap()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Passes each line of standard input to `hear`, and ends this process at the end of the input.
#[expect(clippy::exit, reason = "the other thread waits for a connection or floods")]
fn end_with_input(hear: impl Fn(&str) + Send + 'static) {
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(Result::ok).for_each(|line| hear(&line));
        std::process::exit(0);
    });
}

fn attach(run_dir: &Path, guest: &str, secret: &str) -> Attachment {
    let name: Name = NAME.parse().unwrap();
    Attachment::embedded_at(run_dir, &name, &guest.parse().unwrap(), &Secret::claimed(secret)).unwrap()
}

fn serve(run_dir: &Path, secret: &str) {
    let attachment = attach(run_dir, "server", secret);
    let listener = TcpListener::bind(&attachment, SERVER.parse().unwrap()).unwrap();
    end_with_input(|_| {});
    println!("ready");
    loop {
        let (stream, _) = listener.accept().unwrap();
        // An error is normal here, because the client closes each connection when its measuring time is over.
        let _ = answer(&stream);
    }
}

fn answer(mut stream: &TcpStream) -> std::io::Result<()> {
    let mut what = [0];
    stream.read_exact(&mut what)?;
    let (mut request, response) = ([0; REQUEST_BYTES], [1; RESPONSE_BYTES]);
    let chunk = vec![1; STREAM_BYTES];
    loop {
        if i32::from(what[0]) == Workload::Strg as i32 {
            stream.write_all(&chunk)?;
        } else {
            stream.read_exact(&mut request)?;
            stream.write_all(&response)?;
        }
    }
}

/// Lets the caller send from each `flood` on standard input to the next `rest`. Then prints how many packets the caller has counted.
fn obey() -> (Arc<AtomicU64>, Arc<AtomicBool>) {
    let (sent, floods) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, told) = (Arc::clone(&sent), Arc::clone(&floods));
    end_with_input(move |word| {
        told.store(word == "flood", Ordering::Relaxed);
        if word == "rest" {
            println!("{}", counted.swap(0, Ordering::Relaxed));
        }
    });
    println!("ready");
    (sent, floods)
}

/// Sends UDP packets to the server, to an address without a station, and to all stations, as [`obey`] says.
fn flood_a_switch() {
    let socket = UdpSocket::bind("10.0.2.66:0").unwrap();
    socket.set_broadcast(true).unwrap();
    let (sent, floods) = obey();
    for to in ["10.0.2.2:9", "10.0.2.255:9", "10.0.2.99:9", "10.0.2.2:9"].iter().cycle() {
        while !floods.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        sent.fetch_add(u64::from(socket.send_to(&[0; 1_400], to).is_ok()), Ordering::Relaxed);
    }
}

/// Sends packets that no honest guest would send, from each `flood` to the next `rest`. Then prints how many packets were sent.
fn flood(run_dir: &Path, secret: &str) {
    let mut hostile = HostileGuest::attach(run_dir, &NAME.parse().unwrap(), "hostile", &Secret::claimed(secret));
    let mut wires = [hostile.link("dev0", "server.dev0"), hostile.link("dev0", "router.dev1")];
    let (sent, floods) = obey();
    for packet in hostile_packets().iter().cycle() {
        while !floods.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        for wire in &mut wires {
            while wire.receive().is_some() {}
            sent.fetch_add(u64::from(wire.try_send(packet)), Ordering::Relaxed);
        }
    }
}

/// Returns the hostile packets: packets with others' source addresses, and fragments, ICMP errors and SYNs with the guest's own
/// address.
fn hostile_packets() -> Vec<Vec<u8>> {
    let [own, client, server, router] =
        ["10.0.2.66", "10.0.1.1", "10.0.2.2", "10.0.2.1"].map(|text| text.parse::<IpAddr>().unwrap());
    let mut all = Vec::new();
    for at in 0..256 {
        let to = if at % 2 == 0 { server } else { client };
        let name = [client, router, server][usize::from(at) % 3];
        all.extend([
            echo(name, to),
            datagram(name, to, (7, 7), &[0; 1_400]),
            fragment(own, to, at, 0, &[0; 8]),
            fragment(own, to, 1_000 + at, 8 * at, &[0; 8_000]),
            unreachable(own, to),
            syn(own, to, (1_000 + at, 7)),
        ]);
    }
    all
}

fn measure(network: &Network, mut hostile: Guest, rounds: u32, time: Duration) {
    let server = network.start("server");
    let client = attach(&network.run_dir(), "client", &network.secret("client"));
    let (mut rounds_done, mut floods) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        // The rates without and with the hostile guest. Rounds alternate which one is measured first.
        let mut rates = [[0.0; 2]; 2];
        for turn in 0..2 {
            let beside = (turn + round) % 2 == 1;
            let since = Instant::now();
            if beside {
                hostile.say("flood");
            }
            for (at, workload) in [Workload::Rr, Workload::Strg].into_iter().enumerate() {
                rates[at][usize::from(beside)] = rate(&client, workload, time);
            }
            if beside {
                hostile.say("rest");
                floods.push(hostile.hear() / since.elapsed().as_secs_f64());
            }
        }
        rounds_done.push(json!({ "rr": rates[0], "strg": rates[1] }));
    }
    drop((server, hostile));
    println!("{}", json!({ "rounds": rounds_done, "packets_per_second": floods }));
}

/// Returns the rate in transactions or megabytes per second.
fn rate(client: &Attachment, workload: Workload, time: Duration) -> f64 {
    let mut stream = TcpStream::connect(client, SERVER.parse().unwrap()).unwrap();
    stream.write_all(&[u8::try_from(workload as i32).unwrap()]).unwrap();
    let (request, mut response, mut chunk) = ([1; REQUEST_BYTES], [0; RESPONSE_BYTES], vec![0; STREAM_BYTES]);
    let (begun, mut units) = (Instant::now(), 0.0);
    while begun.elapsed() < time {
        match workload {
            Workload::Rr => {
                stream.write_all(&request).unwrap();
                stream.read_exact(&mut response).unwrap();
                units += 1.0;
            }
            Workload::Strg => {
                let count = u32::try_from(stream.read(&mut chunk).unwrap()).unwrap();
                units += f64::from(count) / 1e6;
            }
        }
    }
    let rate = units / begun.elapsed().as_secs_f64();
    stream.abort();
    rate
}
