//! Measures how much a frame costs a switch with 1,000 ports and 10,000 Ethernet addresses, beside a switch with 4 ports and 4
//! addresses. Both networks are up at the same time, and take turns.
//!
//! `ports PROGRAM ROUNDS SECONDS` brings up two networks with the `siga` at PROGRAM. This process is the external guests of both, and
//! has one ring pair to the switch for each guest. There are three workloads:
//! - **some:** one guest sends as fast as the switch takes frames, in a random order to the addresses of three other guests. All other
//!   guests do nothing. The figure is the CPU time of the switch for a frame.
//! - **all:** the same to the addresses of all other guests.
//! - **single:** one guest sends a frame to another one, and waits for it, while all other guests do nothing. The figure is the elapsed
//!   time for a frame, because the switch polls between two frames.
//!
//! The program prints the times in nanoseconds as one JSON object. No time makes it fail.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "what goes wrong ends the measurement, and it prints its result"
)]

#[path = "../../../fabric/tests/common/hostile_guest.rs"]
mod hostile_guest;

use hostile_guest::{HostileGuest, Wire};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use siga_fabric::client::Client;
use siga_fabric::protocol::request::{Answer, Request};
use siga_fabric::protocol::secret::Secret;
use siga_model::name::Name;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The numbers of ports and of addresses per port.
const FEW: (usize, usize) = (4, 1);
const MANY: (usize, usize) = (1_000, 10);
const LAN: &str = "lan";
const FRAME_BYTES: usize = 200;
/// The number of frames that are sent before the receivers read their rings.
const BURST_FRAMES: usize = 32;
/// The number of single frames between two looks at the clock.
const SINGLE_FRAMES: u32 = 100;
const PATIENCE: Duration = Duration::from_secs(10);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [program, rounds, seconds] = &words[..] else { panic!("ports PROGRAM ROUNDS SECONDS") };
    let (rounds, seconds): (u32, f64) = (rounds.parse().unwrap(), seconds.parse().unwrap());
    let maximum = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).unwrap();
    // The secrets are requested before this process is attached to any network, because an attached process may not request them.
    let networks = [("few", FEW), ("many", MANY)].map(|(name, size)| Network::up(Path::new(program), name, size));
    let secrets = [0, 1].map(|at| networks[at].secrets());
    let mut stations = [0, 1].map(|at| Stations::attach(&networks[at], &secrets[at]));
    let time = Duration::from_secs_f64(seconds);
    let mut all = Vec::new();
    for round in 0..rounds {
        let (mut some, mut all_ports, mut single) = ([0.0; 2], [0.0; 2], [0.0; 2]);
        for turn in 0..2 {
            // Rounds alternate which network is measured first.
            let at = (turn + round as usize) % 2;
            stations[at].teach();
            some[at] = stations[at].burst(FEW.0, time);
            all_ports[at] = stations[at].burst(stations[at].wires.len(), time);
            single[at] = stations[at].single(time);
        }
        all.push(json!({ "some": some, "all": all_ports, "single": single }));
    }
    println!("{}", json!({ "rounds": all }));
}

/// A network; dropping the value takes it down.
struct Network {
    program: PathBuf,
    name: Name,
    base: tempfile::TempDir,
    size: (usize, usize),
}

impl Network {
    fn up(program: &Path, name: &str, size: (usize, usize)) -> Self {
        let base = tempfile::tempdir().unwrap();
        let network = Self { program: program.to_owned(), name: name.parse().unwrap(), base, size };
        let mut topology = format!("[network.{LAN}]\ntype = \"vswitch\"\nmtu = 1500\nprotection = \"off\"\n");
        for port in 0..size.0 {
            let (high, low) = (port / 200, port % 200 + 1);
            let _ = write!(
                topology,
                "[guest.g{port}]\nexternal = true\n\
                 device = [{{ network = \"{LAN}\", addresses = [\"10.0.{high}.{low}/16\"] }}]\n"
            );
        }
        let file = network.base.path().join("topology.toml");
        std::fs::write(&file, topology).unwrap();
        network.siga(&["up", file.to_str().unwrap(), "--name", name]);
        network
    }

    fn run_dir(&self) -> PathBuf {
        self.base.path().join("run")
    }

    fn siga(&self, words: &[&str]) {
        let mut command = Command::new(&self.program);
        let output = command.arg("net").args(words).env("SIGA_RUN_DIR", self.run_dir()).output().unwrap();
        assert!(output.status.success(), "siga net {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    fn ask(&self, request: Request) -> Vec<Answer> {
        Client::connect_at(&self.run_dir(), &self.name).unwrap().request(request).unwrap()
    }

    fn secrets(&self) -> Vec<Secret> {
        let secret = |port: usize| {
            let guest = format!("g{port}").parse().unwrap();
            let answers = self.ask(Request::Secret { guest, application: false });
            answers.into_iter().find_map(|answer| if let Answer::Secret(secret) = answer { Some(secret) } else { None })
        };
        (0..self.size.0).map(|port| secret(port).unwrap()).collect()
    }

    fn pid_of_switch(&self) -> u32 {
        let answers = self.ask(Request::Status { detail: false });
        let guest = |answer| if let Answer::Guest(guest) = answer { Some(guest) } else { None };
        let switch = answers.into_iter().filter_map(guest).find(|guest| guest.name.as_str() == LAN);
        switch.unwrap().pid.unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let mut command = Command::new(&self.program);
        let _ = command.args(["net", "down", self.name.as_str()]).env("SIGA_RUN_DIR", self.run_dir()).output();
    }
}

/// The guests of a network, each with a ring pair to the switch.
struct Stations {
    /// The file in which the kernel reports the CPU time of the switch.
    schedstat: PathBuf,
    wires: Vec<Wire>,
    /// The channels to the control program. A guest whose channel is closed has ended.
    _guests: Vec<HostileGuest>,
    macs_of_port: usize,
    random: u32,
}

impl Stations {
    fn attach(network: &Network, secrets: &[Secret]) -> Self {
        let schedstat = format!("/proc/{}/schedstat", network.pid_of_switch()).into();
        let (mut wires, mut guests) = (Vec::new(), Vec::new());
        for (port, secret) in secrets.iter().enumerate() {
            let mut guest = HostileGuest::attach(&network.run_dir(), &network.name, &format!("g{port}"), secret);
            wires.push(guest.link("dev0", &format!("{LAN}.{LAN}")));
            guests.push(guest);
        }
        Self { schedstat, wires, _guests: guests, macs_of_port: network.size.1, random: 7 }
    }

    /// Lets the switch learn all addresses.
    fn teach(&mut self) {
        for port in 0..self.wires.len() {
            for own in 0..self.macs_of_port {
                self.wires[port].send(&frame(mac(port, own), mac((port + 1) % 2, 0)));
            }
            self.drain();
        }
        std::thread::sleep(Duration::from_millis(100));
        self.drain();
    }

    fn drain(&mut self) -> usize {
        self.wires.iter_mut().map(|wire| std::iter::from_fn(|| wire.receive()).count()).sum()
    }

    /// Sends to the first `ports` ports. Returns the CPU time of the switch for a frame.
    fn burst(&mut self, ports: usize, time: Duration) -> f64 {
        let (begun, before, mut frames) = (Instant::now(), self.cpu_ns(), 0_u32);
        // Each burst is received after the next one was sent, so the switch always has something to do.
        let mut sent = self.send_burst(ports);
        while begun.elapsed() < time {
            let next = self.send_burst(ports);
            sent.into_iter().for_each(|port| self.receive_at(port));
            sent = next;
            frames += u32::try_from(BURST_FRAMES).unwrap();
        }
        let cpu_ns = self.cpu_ns() - before;
        sent.into_iter().for_each(|port| self.receive_at(port));
        cpu_ns / f64::from(frames)
    }

    /// Sends a burst, and returns the ports to which it goes.
    fn send_burst(&mut self, ports: usize) -> [usize; BURST_FRAMES] {
        let mut to = [0; BURST_FRAMES];
        for port in &mut to {
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let random = (self.random >> 8) as usize;
            *port = 1 + random % (ports - 1);
            let own = random / ports % self.macs_of_port;
            self.wires[0].send(&frame(mac(0, 0), mac(*port, own)));
        }
        to
    }

    /// Waits for a frame at a port.
    fn receive_at(&mut self, port: usize) {
        let begun = Instant::now();
        while self.wires[port].receive().is_none() {
            assert!(begun.elapsed() < PATIENCE, "the frame does not arrive");
            std::hint::spin_loop();
        }
    }

    /// Returns the elapsed time for a frame.
    fn single(&mut self, time: Duration) -> f64 {
        let (begun, mut frames) = (Instant::now(), 0_u32);
        while begun.elapsed() < time {
            for _ in 0..SINGLE_FRAMES {
                let (from, to) = ((frames % 2) as usize, 1 - (frames % 2) as usize);
                self.wires[from].send(&frame(mac(from, 0), mac(to, 0)));
                self.receive_at(to);
                frames += 1;
            }
        }
        begun.elapsed().as_secs_f64() * 1e9 / f64::from(frames)
    }

    /// Returns the CPU time that the switch has used, in nanoseconds.
    fn cpu_ns(&self) -> f64 {
        let text = std::fs::read_to_string(&self.schedstat).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }
}

/// Returns an address of the station at a port.
fn mac(port: usize, own: usize) -> [u8; 6] {
    let [high, low] = u16::try_from(port).unwrap().to_be_bytes();
    [2, 0, 0, u8::try_from(own).unwrap(), high, low]
}

/// Returns a frame of a protocol that no station understands (an EtherType for experiments).
fn frame(from: [u8; 6], to: [u8; 6]) -> Vec<u8> {
    let mut frame = [&to[..], &from, &[0x88, 0xb5]].concat();
    frame.resize(FRAME_BYTES, 0);
    frame
}
