//! Compares siga's workload drivers with well-known C drivers in one run, interleaved, on one path: throughput with iperf3, round
//! trips with qperf and sockperf.
//!
//! The path is a veth pair between two namespaces that are made for this run. Both sides use reno, because not every peer can
//! choose a congestion control. Clients run on CPU 0 and servers on CPU 1, because the scheduler's choice would change results by
//! a factor of ten. Each peer runs in its default mode, and siga in the same mode. iperf3 serves all streams from one process;
//! qperf and sockperf block in one connection. Ratios are taken within a round. The result is the median of the ratios, with the
//! minimum and the maximum. The benchmark needs root and the peers' programs. It ends every process that it starts.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use super::{build, median, scratch};
use crate::command;

const CLIENT: &str = "siga-bench-c";
const SERVER: &str = "siga-bench-s";
const ADDRESS: &str = "198.18.77.2";

/// A peer's measurement, and the siga workload that runs in the same mode.
struct Duel {
    name: &'static str,
    peer: fn(u32) -> Result<f64, String>,
    siga: &'static [&'static str],
    unit: &'static str,
}

const DUELS: [Duel; 4] = [
    Duel {
        name: "iperf3, 1 stream",
        peer: |seconds| iperf3(seconds, 1),
        siga: &["--workload", "strp:1g/1", "--clients", "1"],
        unit: "MB/sec",
    },
    Duel {
        name: "iperf3, 10 streams",
        peer: |seconds| iperf3(seconds, 10),
        siga: &["--workload", "strp:1g/1", "--clients", "10"],
        unit: "MB/sec",
    },
    Duel {
        name: "qperf tcp_lat, 1 byte",
        peer: qperf,
        siga: &["--workload", "rr-1-1", "--clients", "1", "--processes"],
        unit: "trans/sec",
    },
    Duel {
        name: "sockperf ping-pong, 14 bytes",
        peer: sockperf,
        siga: &["--workload", "rr:14/14", "--clients", "1", "--processes"],
        unit: "trans/sec",
    },
];

/// Runs `rounds` rounds against the peers whose name contains `only`; each measurement takes `seconds`. Prints the ratios.
pub(crate) fn run(root: &Path, rounds: u32, seconds: u32, only: &str) -> Result<(), String> {
    let duels: Vec<&Duel> = DUELS.iter().filter(|duel| duel.name.contains(only)).collect();
    if duels.is_empty() {
        let names = DUELS.map(|duel| duel.name).join("; ");
        return Err(format!("no program's name contains \"{only}\"; the programs are {names}"));
    }
    for program in ["ip", "iperf3", "qperf", "sockperf"] {
        if Command::new(program).arg("--help").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            return Err(format!(
                "the program {program} is missing; install the Debian packages iproute2, iperf3, qperf and sockperf"
            ));
        }
    }
    let siga = build(root)?;
    let _path = Veth::build()?;
    let _servers = [
        Server::start(&["iperf3", "-s", "-p", "5201"])?,
        Server::start(&["qperf", "--listen_port", "19765"])?,
        Server::start(&["sockperf", "server", "--tcp", "-i", ADDRESS, "-p", "11111"])?,
    ];
    sleep(Duration::from_millis(500));
    let mut ratios = vec![Vec::new(); duels.len()];
    let mut rates = vec![(Vec::new(), Vec::new()); duels.len()];
    for round in 0..rounds {
        for (at, duel) in duels.iter().enumerate() {
            // The order alternates. Otherwise one side would always run after the other.
            let (peer, own) = if round % 2 == 0 {
                let peer = (duel.peer)(seconds)?;
                (peer, measure(&siga, duel.siga, seconds)?)
            } else {
                let own = measure(&siga, duel.siga, seconds)?;
                ((duel.peer)(seconds)?, own)
            };
            eprintln!("round {}/{rounds} {}: {peer:.1}, siga {own:.1} {}", round + 1, duel.name, duel.unit);
            ratios[at].push(own / peer);
            rates[at].0.push(peer);
            rates[at].1.push(own);
        }
    }
    let table = table(&duels, &mut ratios, &mut rates);
    command::print(&table)
}

fn table(duels: &[&Duel], ratios: &mut [Vec<f64>], rates: &mut [(Vec<f64>, Vec<f64>)]) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{:<30} {:>12} {:>12} {:<10} {:>7}  spread", "peer", "peer", "siga", "unit", "ratio");
    for ((duel, ratios), (peer, own)) in duels.iter().zip(ratios).zip(rates) {
        let (ratio, peer, own) = (median(ratios), median(peer), median(own));
        let (least, most) = (ratios[0], ratios[ratios.len() - 1]);
        let (name, unit) = (duel.name, duel.unit);
        let _ = writeln!(out, "{name:<30} {peer:>12.1} {own:>12.1} {unit:<10} {ratio:>7.3}  {least:.3} to {most:.3}");
    }
    out
}

/// Runs a command until it exits and returns its output.
pub(super) fn output(words: &[&str]) -> Result<String, String> {
    let (program, arguments) = words.split_first().ok_or("no command")?;
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cannot run {program}: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        Ok(text)
    } else {
        Err(format!("{}: {}{text}", words.join(" "), String::from_utf8_lossy(&output.stderr)))
    }
}

fn in_client(words: &[&str]) -> Result<String, String> {
    output(&[&["ip", "netns", "exec", CLIENT, "taskset", "-c", "0"], words].concat())
}

/// Returns iperf3's throughput in MB (10^6 bytes) per second.
fn iperf3(seconds: u32, streams: u32) -> Result<f64, String> {
    let (seconds, streams) = (seconds.to_string(), streams.to_string());
    let text = in_client(&["iperf3", "-c", ADDRESS, "-t", &seconds, "-O", "1", "-P", &streams, "-J"])?;
    let json: Value = serde_json::from_str(&text).map_err(|error| format!("iperf3: {error}"))?;
    let bits = json["end"]["sum_received"]["bits_per_second"].as_f64();
    bits.map(|bits| bits / 8e6).ok_or_else(|| "the output of iperf3 contains no rate".to_owned())
}

/// Returns qperf's round trips per second. qperf prints the time of half a round trip.
fn qperf(seconds: u32) -> Result<f64, String> {
    let seconds = seconds.to_string();
    let text = in_client(&["qperf", "-lp", "19765", "-t", &seconds, "-u", "-uu", "-m", "1", ADDRESS, "tcp_lat"])?;
    let words: Vec<&str> = text.split_whitespace().collect();
    let at = words.iter().position(|word| *word == "latency").ok_or_else(|| format!("qperf: {text}"))?;
    let value = words.get(at + 2).and_then(|word| word.parse::<f64>().ok());
    let scale = match words.get(at + 3) {
        Some(&"ns") => 1e-9,
        Some(&"us") => 1e-6,
        Some(&"ms") => 1e-3,
        Some(&"sec") => 1.0,
        Some(_) | None => return Err(format!("qperf: {text}")),
    };
    value.map(|value| 1.0 / (2.0 * value * scale)).ok_or_else(|| format!("qperf: {text}"))
}

/// Returns sockperf's round trips per second.
fn sockperf(seconds: u32) -> Result<f64, String> {
    let seconds = seconds.to_string();
    let text = in_client(&["sockperf", "ping-pong", "--tcp", "-i", ADDRESS, "-p", "11111", "-t", &seconds])?;
    // `[Valid Duration] RunTime=1.9 sec; SentMessages=100; ReceivedMessages=100`
    let line = text.lines().find(|line| line.contains("Valid Duration")).ok_or_else(|| format!("sockperf: {text}"))?;
    let value = |name: &str| {
        let rest = line.split_once(name)?.1;
        let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
        digits.parse::<f64>().ok()
    };
    match (value("RunTime="), value("ReceivedMessages=")) {
        (Some(time), Some(count)) if time > 0.0 => Ok(count / time),
        _ => Err(format!("sockperf: {line}")),
    }
}

/// Returns the rate of one trial of siga.
fn measure(siga: &Path, workload: &[&str], seconds: u32) -> Result<f64, String> {
    let out = scratch(siga);
    let _ = std::fs::remove_dir_all(&out);
    let siga = siga.to_string_lossy();
    let (seconds, directory) = (seconds.to_string(), out.to_string_lossy().into_owned());
    let (client, server) = (format!("netns:{CLIENT}"), format!("netns:{SERVER}"));
    let mut words = vec![siga.as_ref(), "run", "--client", &client, "--server", &server];
    words.extend(["--server-address", ADDRESS, "--trials", "1", "--warm-up", "1", "--seconds", &seconds]);
    words.extend("--client-cpus 0 --server-cpus 1 --accounting tick --format json --out".split(' '));
    words.push(&directory);
    words.extend(workload);
    let text = output(&words);
    let _ = std::fs::remove_dir_all(&out);
    let json: Value = serde_json::from_str(&text?).map_err(|error| format!("siga: {error}"))?;
    json["cells"][0]["rate"].as_f64().ok_or_else(|| "the output of siga contains no rate".to_owned())
}

/// Two namespaces and a veth pair; dropping the value removes them.
struct Veth;

impl Veth {
    fn build() -> Result<Self, String> {
        let veth = Self;
        for line in [
            format!("ip netns add {CLIENT}"),
            format!("ip netns add {SERVER}"),
            format!("ip -n {CLIENT} link add veth0 type veth peer name veth0 netns {SERVER}"),
            format!("ip -n {CLIENT} addr add 198.18.77.1/24 dev veth0"),
            format!("ip -n {SERVER} addr add {ADDRESS}/24 dev veth0"),
            format!("ip -n {CLIENT} link set veth0 up"),
            format!("ip -n {SERVER} link set veth0 up"),
            format!("ip netns exec {CLIENT} sysctl -qw net.ipv4.tcp_congestion_control=reno"),
            format!("ip netns exec {SERVER} sysctl -qw net.ipv4.tcp_congestion_control=reno"),
        ] {
            output(&line.split(' ').collect::<Vec<_>>())?;
        }
        Ok(veth)
    }
}

impl Drop for Veth {
    fn drop(&mut self) {
        for name in [CLIENT, SERVER] {
            let _ = output(&["ip", "netns", "del", name]);
        }
    }
}

/// A peer's server process in the server's namespace; dropping the value ends the process.
struct Server(Child);

impl Server {
    fn start(words: &[&str]) -> Result<Self, String> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", SERVER, "taskset", "-c", "1"]).args(words);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map(Self).map_err(|error| format!("cannot start {}: {error}", words[0]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
