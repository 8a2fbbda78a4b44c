//! Modelled links beside the kernel's netem. The same program sends datagrams over both, and the test compares what arrives.

use super::place::Place;
use super::{Blue, PYTHON, Program, Red, Setup, Side, World, vm};
use std::io::{BufRead as _, BufReader};

vm::needs_vm! {
    modelled_links_lose_delay_and_repeat_as_netem_does: "sch_netem, veth, tun",
}

/// A setting of a modelled link, and netem's setting that means the same.
struct Case {
    link: &'static str,
    netem: &'static str,
    /// The number of datagrams, and the milliseconds between two of them.
    sent: (usize, f64),
    compared: Compared,
}

/// What the two have in common.
#[derive(Clone, Copy)]
enum Compared {
    /// The number of datagrams that arrive, and the lengths of the gaps between them. The factor is the variance of the number, divided by
    /// its variance if each loss were independent of the others.
    Losses(f64),
    /// The number of datagrams that arrive twice.
    Copies,
    /// The number of datagrams that arrive before an earlier one.
    Overtakers,
    /// The distribution of the latencies around their median.
    Latencies,
    /// The rate in Mbit/s, including the headers of 42 bytes.
    Rate(f64),
}

use Compared::{Copies, Latencies, Losses, Overtakers, Rate};

const CASES: [Case; 10] = [
    case("loss=10%", "loss 10%", (4_000, 0.5), Losses(1.0)),
    case("loss=gilbert:2%:20%", "loss gemodel 2% 20%", (4_000, 0.5), Losses(8.1)),
    case("loss=gilbert:5%:20%:50%:1%", "loss gemodel 5% 20% 50% 1%", (4_000, 0.5), Losses(4.0)),
    case("duplicate=5%", "duplicate 5%", (4_000, 0.5), Copies),
    case("latency=100ms,reorder=10%", "delay 100ms reorder 10%", (2_000, 5.0), Overtakers),
    case("latency=200ms,jitter=50ms", "delay 200ms 50ms", (300, 110.0), Latencies),
    case("latency=200ms,jitter=30ms:normal", "delay 200ms 30ms distribution normal", (300, 120.0), Latencies),
    case(
        "latency=200ms,jitter=50ms:/usr/lib/x86_64-linux-gnu/tc/pareto.dist",
        "delay 200ms 50ms distribution pareto",
        (200, 200.0),
        Latencies,
    ),
    case("rate=1mbit", "rate 1mbit limit 1000", (50, 0.0), Rate(1.0)),
    case("rate=10mbit", "rate 10mbit limit 1000", (500, 0.0), Rate(10.0)),
];

const fn case(link: &'static str, netem: &'static str, sent: (usize, f64), compared: Compared) -> Case {
    Case { link, netem, sent, compared }
}

/// Receives datagrams until one says that it is the last, and prints number and latency in microseconds of each.
const RECEIVER: &str = "
import socket, struct, sys, time
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.setsockopt(socket.SOL_SOCKET, 33, 1 << 24)
receiver.bind((sys.argv[1], 0))
receiver.settimeout(60)
print(receiver.getsockname()[1], flush=True)
arrived = []
while True:
    number, sent = struct.unpack('<qq', receiver.recv(2000)[:16])
    if number < 0:
        break
    arrived.append((number, time.monotonic_ns(), sent))
for number, at, sent in arrived:
    print(number, (at - sent) // 1000, at // 1000)
print('end', flush=True)
";

/// Sends datagrams: address, port, number, milliseconds between two, bytes.
const SENDER: &str = "
import socket, struct, sys, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, 32, 1 << 24)
sender.connect((sys.argv[1], int(sys.argv[2])))
count, gap, filling = int(sys.argv[3]), float(sys.argv[4]) / 1000, bytes(int(sys.argv[5]) - 16)
for number in range(count):
    time.sleep(gap)
    sender.send(struct.pack('<qq', number, time.monotonic_ns()) + filling)
time.sleep(1.5)
for _ in range(50):
    sender.send(struct.pack('<qq', -1, 0))
";

/// A datagram that has arrived: its number, its latency, and the time of its arrival, in microseconds.
type Arrived = (f64, f64, f64);

/// Sends the datagrams of a case from red to blue. Returns those that arrived, in their order.
fn exchange(world: &World, to: &str, case: &Case) -> Vec<Arrived> {
    let mut receiver = Program::start(&mut world.command(Blue, &[PYTHON, "-c", RECEIVER, to]));
    let bytes = if matches!(case.compared, Rate(_)) { "1400" } else { "100" };
    let (count, gap) = (case.sent.0.to_string(), case.sent.1.to_string());
    let port = receiver.line.trim().to_owned();
    let output = world.command(Red, &[PYTHON, "-c", SENDER, to, &port, &count, &gap, bytes]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let lines = BufReader::new(receiver.child.stdout.as_mut().unwrap()).lines().map(Result::unwrap);
    let numbers = |line: String| line.split(' ').map(|word| word.parse().unwrap()).collect::<Vec<f64>>();
    lines.take_while(|line| line != "end").map(numbers).map(|line| (line[0], line[1], line[2])).collect()
}

/// What is compared of the datagrams that arrived: a count out of all, and a sample.
fn figures(case: &Case, arrived: &[Arrived]) -> (usize, Vec<f64>) {
    let gaps = arrived.windows(2).map(|two| two[1].0 - two[0].0 - 1.0).filter(|lost| *lost > 0.0);
    let overtakers = |least: f64| arrived.iter().filter(|(_, latency, _)| *latency < least).count();
    match case.compared {
        Losses(_) => (arrived.len(), gaps.collect()),
        Copies => (arrived.len() - case.sent.0, Vec::new()),
        Overtakers => (overtakers(50_000.0), Vec::new()),
        Latencies => {
            let latencies: Vec<f64> = arrived.iter().map(|(_, latency, _)| *latency).collect();
            let middle = median(&latencies);
            (arrived.len(), latencies.into_iter().map(|latency| latency - middle).collect())
        }
        Rate(_) => (arrived.len(), Vec::new()),
    }
}

/// Returns the rate in Mbit/s at which the datagrams after the first one arrived.
fn rate(arrived: &[Arrived]) -> f64 {
    let took = arrived.last().unwrap().2 - arrived[0].2;
    (arrived.len() - 1) as f64 * (1_400.0 + 42.0) * 8.0 / took
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// Returns the largest difference between the cumulative distributions of two samples (Kolmogorov and Smirnov), and the difference
/// that two samples of one distribution exceed with a probability of 0.001.
fn distance(one: &[f64], two: &[f64]) -> (f64, f64) {
    let below =
        |sample: &[f64], at: f64| sample.iter().filter(|value| **value <= at).count() as f64 / sample.len() as f64;
    let distance = one.iter().chain(two).map(|at| (below(one, *at) - below(two, *at)).abs()).fold(0.0, f64::max);
    let (n, m) = (one.len() as f64, two.len() as f64);
    (distance, 1.95 * ((n + m) / (n * m)).sqrt())
}

/// Returns how many standard deviations two counts out of `all` differ.
fn deviation(one: usize, two: usize, all: usize) -> f64 {
    let share = (one + two) as f64 / (2 * all) as f64;
    let spread = (share * (1.0 - share) * 2.0 / all as f64).sqrt();
    (one as f64 - two as f64) / all as f64 / spread.max(f64::MIN_POSITIVE)
}

fn modelled_links_lose_delay_and_repeat_as_netem_does() {
    let world = World::up("netem", &Setup { network: "type = \"vswitch\"\nmtu = 1500", ..Setup::default() });
    join_by_veth(&world.red, &world.blue);
    // Otherwise, red would ask for the Ethernet address of blue over a link that loses its questions.
    [Side::address(Blue, false), "10.9.0.2"].into_iter().for_each(|address| keep_neighbour(&world.red, address));
    let mut wrong = Vec::new();
    for case in CASES {
        world.link(&["red", case.link, "--direction", "from-station"]);
        let of_siga = exchange(&world, Side::address(Blue, false), &case);
        world.link(&["red", "off"]);
        world.red.run(&format!("tc qdisc add dev peer root netem {}", case.netem));
        let of_netem = exchange(&world, "10.9.0.2", &case);
        world.red.run("tc qdisc del dev peer root");
        let (line, is_alike) = judge(&case, &of_siga, &of_netem);
        println!("| `{}` | `{}` | {line} |", case.link, case.netem);
        if !is_alike {
            wrong.push(format!("{}: {line}", case.link));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Compares a case over both. Returns the cells of a table, and whether they agree.
fn judge(case: &Case, of_siga: &[Arrived], of_netem: &[Arrived]) -> (String, bool) {
    if let Rate(expected) = case.compared {
        let [siga, netem] = [of_siga, of_netem].map(|arrived| rate(arrived) / expected - 1.0);
        let line = format!("{:+.2}% | {:+.2}%", siga * 100.0, netem * 100.0);
        return (line, siga.abs() < 0.02 && of_siga.len() == case.sent.0);
    }
    let ((siga, sample), (netem, other)) = (figures(case, of_siga), figures(case, of_netem));
    let factor = if let Losses(factor) = case.compared { factor } else { 1.0 };
    let z = deviation(siga, netem, case.sent.0) / factor.sqrt();
    let mut line = format!("{siga} of {all} | {netem} of {all} | {z:+.1}", all = case.sent.0);
    let mut is_alike = z.abs() < 4.0;
    if !sample.is_empty() {
        let (distance, limit) = distance(&sample, &other);
        line += &format!(" | {distance:.3} (limit {limit:.3})");
        is_alike &= distance < limit;
    }
    if matches!(case.compared, Latencies) {
        let [siga, netem] =
            [of_siga, of_netem].map(|arrived| median(&arrived.iter().map(|at| at.1).collect::<Vec<_>>()));
        line += &format!(" | medians {:.1} ms, {:.1} ms", siga / 1e3, netem / 1e3);
        // The emulated machine needs several milliseconds for the processes on the way.
        is_alike &= (-5_000.0..20_000.0).contains(&(siga - netem));
    }
    (line, is_alike)
}

/// Joins two namespaces by a veth pair, beside the switch.
fn join_by_veth(red: &Place, blue: &Place) {
    red.run(&format!("ip link add peer type veth peer name peer netns {}", blue.pid()));
    for (place, address) in [(red, "10.9.0.1/24"), (blue, "10.9.0.2/24")] {
        place.run(&format!("ip addr add {address} dev peer"));
        place.run("ip link set peer up");
    }
}

/// Makes a place keep the Ethernet address of a neighbour.
fn keep_neighbour(place: &Place, address: &str) {
    place.run(&format!("ping -c 1 -W 5 {address}"));
    let known = place.run(&format!("ip neigh show to {address}"));
    let words: Vec<&str> = known.split_whitespace().collect();
    let value = |name: &str| words[words.iter().position(|word| *word == name).unwrap() + 1];
    let (interface, mac) = (value("dev"), value("lladdr"));
    place.run(&format!("ip neigh replace {address} lladdr {mac} dev {interface} nud permanent"));
}
