//! Guests and network namespaces on switched networks. Real programs on the kernel's stack talk to real programs on siga's stack.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod assigned;
mod containers;
mod joins;
mod links;
mod load;
mod namespaces;
mod netem;
#[path = "../common/network.rs"]
mod network;
mod place;
mod settings;
mod upgrades;
#[path = "../../../fabric/tests/common/vm.rs"]
mod vm;

use network::{Network, kill, wait_until};
use place::{Place, possible};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write as _};
use std::process::{Child, Command, Stdio};

const PYTHON: &str = "/usr/bin/python3";
/// Returns the time limit of a program in seconds, long enough for a busy host.
fn seconds(bytes: usize) -> String {
    (60 + (bytes >> 22)).to_string()
}

/// A switch with the guests `one` and `two` and the namespaces `red` and `blue`.
struct World {
    network: Network,
    red: Place,
    blue: Place,
}

/// Where a program runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    One,
    Two,
    Red,
    Blue,
}

use Side::{Blue, One, Red, Two};

impl Side {
    const ALL: [Self; 4] = [One, Two, Red, Blue];

    fn address(self, v6: bool) -> &'static str {
        match (self, v6) {
            (One, false) => "10.0.3.1",
            (Two, false) => "10.0.3.2",
            (Red, false) => "10.0.3.11",
            (Blue, false) => "10.0.3.12",
            (One, true) => "fd00:3::1",
            (Two, true) => "fd00:3::2",
            (Red, true) => "fd00:3::11",
            (Blue, true) => "fd00:3::12",
        }
    }
}

/// What differs between the worlds.
#[derive(Default)]
struct Setup<'a> {
    /// The lines of the network's table.
    network: &'a str,
    /// More lines of the port `red`.
    red: &'a str,
    /// More keys of the device of guest `one`.
    one: &'a str,
    v4_only: bool,
}

impl World {
    fn up(name: &str, setup: &Setup<'_>) -> Self {
        let (red, blue) = (Place::new(), Place::new());
        let addresses = |side: Side| match setup.v4_only {
            true => format!("addresses = [\"{}/24\"]", side.address(false)),
            false => format!("addresses = [\"{}/24\", \"{}/64\"]", side.address(false), side.address(true)),
        };
        let mut topology = format!("[network.lan]\n{}\n", setup.network);
        for (name, place, side, more) in [("red", &red, Red, setup.red), ("blue", &blue, Blue, "")] {
            let pid = place.pid();
            let _ =
                writeln!(topology, "[[network.lan.port]]\nname = \"{name}\"\npid = {pid}\n{more}\n{}", addresses(side));
        }
        for (name, side, more) in [("one", One, setup.one), ("two", Two, "")] {
            let addresses = addresses(side);
            let _ = writeln!(topology, "[guest.{name}]\ndevice = [{{ network = \"lan\", {addresses} {more} }}]");
        }
        Self { network: Network::up(name, &topology), red, blue }
    }

    /// Returns a command that runs at one side.
    fn command(&self, side: Side, program: &[&str]) -> Command {
        let guest = match side {
            Red => return self.red.command(program),
            Blue => return self.blue.command(program),
            One => "one",
            Two => "two",
        };
        let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
        command.args(["exec", self.network.name.as_str(), guest, "--"]).args(program);
        command.env("SIGA_RUN_DIR", self.network.run_dir()).stdin(Stdio::null());
        command
    }

    /// Sends one echo request. Returns true if it was answered.
    fn ping(&self, from: Side, to: Side, v6: bool) -> bool {
        let address = to.address(v6);
        match from {
            Red => self.red.try_run(&format!("ping -c 1 -W 5 {address}")).status.success(),
            Blue => self.blue.try_run(&format!("ping -c 1 -W 5 {address}")).status.success(),
            One | Two => {
                let guest = if from == One { "one" } else { "two" };
                let name = self.network.name.as_str();
                self.network.siga(&["ping", name, guest, address, "-c", "1", "-W", "5"]).status.success()
            }
        }
    }

    /// Sends `bytes` bytes from one side to another and back, and compares them.
    fn echo(&self, from: Side, to: Side, v6: bool, bytes: usize) {
        let address = to.address(v6);
        let mut server = Program::start(&mut self.command(to, &[PYTHON, "-c", SERVER, address]));
        let (seconds, bytes) = (seconds(bytes), bytes.to_string());
        let client =
            self.command(from, &["timeout", &seconds, PYTHON, "-c", CLIENT, address, server.line.trim(), &bytes]);
        let output = { client }.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("intact"), "{from:?} to {to:?}, {address}: {text}");
        let _ = server.child.kill();
    }

    /// Returns a counter of a port of the switch.
    fn counter(&self, port: &str, counter: &str) -> u64 {
        counter_of(&self.network, port, counter)
    }
}

fn counter_of(network: &Network, port: &str, counter: &str) -> u64 {
    let status = network.text(&["status", network.name.as_str(), "--detail", "--format", "json"]);
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    let links = status["reports"].as_array().unwrap().iter().filter(|report| report["guest"] == "lan");
    let mut links = links.map(|report| &report["part"]["link"]);
    let link = links.find(|link| link["member"]["guest"] == port).unwrap();
    link["counters"][counter].as_u64().unwrap_or_default()
}

/// A server that returns what it receives. It prints its port.
const SERVER: &str = "
import socket, sys
family = socket.AF_INET6 if ':' in sys.argv[1] else socket.AF_INET
listener = socket.socket(family)
listener.bind((sys.argv[1], 0))
listener.listen()
print(listener.getsockname()[1], flush=True)
peer, _ = listener.accept()
while data := peer.recv(1 << 18):
    peer.sendall(data)
";

const CLIENT: &str = "
import random, socket, sys, threading
peer = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=50)
count, part = int(sys.argv[3]), 1 << 18
def parts(seed=random.randrange(1 << 30)):
    numbers = random.Random(seed)
    return (numbers.randbytes(part) for _ in range(count // part))
def send():
    for bytes in parts():
        peer.sendall(bytes)
    peer.shutdown(socket.SHUT_WR)
thread = threading.Thread(target=send)
thread.start()
received = peer.makefile('rb', part)
intact = all(received.read(part) == bytes for bytes in parts())
thread.join()
print('intact' if intact and count >= part and not received.read(1) else 'the bytes are not those that were sent')
";

/// A program that has printed a line. It is killed when this value is dropped.
struct Program {
    child: Child,
    line: String,
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "{:?}", child.wait());
        Self { child, line }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The pairs of sides that differ in what carries the frame: ring or TAP device at either end.
const KINDS: [(Side, Side); 4] = [(One, Two), (One, Red), (Red, Two), (Red, Blue)];

#[test]
fn guests_and_namespaces_on_a_switch_answer_each_others_pings() {
    if !possible(&[]) {
        return;
    }
    let world = World::up("pings", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    for v6 in [false, true] {
        for from in Side::ALL {
            for to in Side::ALL.into_iter().filter(|to| *to != from) {
                assert!(world.ping(from, to, v6), "{from:?} to {to:?}, IPv6: {v6}");
            }
        }
    }
    assert!(world.counter("red", "port_frames_received") > 0 && world.counter("one", "port_frames_received") > 0);
}

#[test]
fn bytes_cross_a_switch_intact_between_every_two_kinds_of_ports() {
    if !possible(&["python3"]) {
        return;
    }
    for (name, mtu) in [("mtu1500", 1_500), ("mtu8992", 8_992)] {
        let network = format!("type = \"vswitch\"\nmtu = {mtu}");
        let world = World::up(name, &Setup { network: &network, ..Setup::default() });
        for (from, to) in KINDS {
            [false, true].into_iter().for_each(|v6| world.echo(from, to, v6, 4 << 20));
        }
    }
}

#[test]
fn bytes_cross_cards_and_tap_interfaces_intact() {
    if !possible(&["python3"]) {
        return;
    }
    for (name, network) in
        [("taps", "type = \"qdio\"\nwire = \"real\"\nmtu = 8992"), ("wires", "type = \"qdio\"\nwire = \"10gbe\"")]
    {
        let world = World::up(name, &Setup { network, ..Setup::default() });
        for (from, to) in KINDS {
            [false, true].into_iter().for_each(|v6| world.echo(from, to, v6, 4 << 20));
        }
        let on_wire = world.counter("one", "link_from_station_delivered");
        assert_eq!(on_wire > 0, name == "wires", "{on_wire} frames");
    }
}

#[test]
fn bytes_cross_stations_of_lcs_and_tap_interfaces_intact() {
    if !possible(&["python3"]) {
        return;
    }
    for (name, wire) in [("lcs-taps", "\nwire = \"real\""), ("lcs-wires", "")] {
        let network = format!("type = \"lcs\"{wire}");
        let world = World::up(name, &Setup { network: &network, v4_only: true, ..Setup::default() });
        KINDS.into_iter().for_each(|(from, to)| world.echo(from, to, false, 2 << 20));
        let on_wire = world.counter("one", "link_from_station_delivered");
        assert_eq!(on_wire > 0, wire.is_empty(), "{on_wire} frames");
        // The kernel of the namespace sends IPv6 packets, which are dropped and counted.
        world.red.try_run("ping -6 -c 1 -W 1 -I siga0 ff02::1");
        assert!(world.counter("red", "drop_protocol") > 0);
    }
}

#[test]
fn bytes_cross_a_guest_lan_of_type_hipersockets_intact() {
    if !possible(&["python3"]) {
        return;
    }
    let network = "type = \"guestlan\"\nnic = \"hipersockets\"";
    let world = World::up("hipers", &Setup { network, v4_only: true, ..Setup::default() });
    assert!(world.red.run("ip link show siga0").contains("mtu 57344"));
    KINDS.into_iter().for_each(|(from, to)| world.echo(from, to, false, 4 << 20));
}

#[test]
fn a_port_without_offload_gets_small_segments_with_checksums() {
    if !possible(&["python3"]) {
        return;
    }
    let setup = Setup { network: "type = \"vswitch\"\nmtu = 1500", red: "offload = false", ..Setup::default() };
    let world = World::up("small", &setup);
    for (from, to) in [(One, Red), (Red, Two), (Red, Blue), (Blue, Red)] {
        [false, true].into_iter().for_each(|v6| world.echo(from, to, v6, 2 << 20));
    }
    // Large segments from the guest were cut: the port has sent more frames than an uncut stream has.
    let (frames, bytes) = (world.counter("red", "port_frames_sent"), world.counter("red", "port_bytes_sent"));
    assert!(bytes / frames <= 1_514, "{bytes} bytes in {frames} frames");
}

#[test]
fn connections_over_a_killed_switch_go_on() {
    if !possible(&["python3"]) {
        return;
    }
    let world = World::up("killed", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    for (from, to) in [(One, Two), (Red, One), (Red, Blue)] {
        let before = world.network.pid_of("lan").unwrap();
        let address = to.address(false);
        let mut server = Program::start(&mut world.command(to, &[PYTHON, "-u", "-c", LINES, "serve", address, "0"]));
        let mut client = world.command(from, &[PYTHON, "-u", "-c", LINES, "connect", address, server.line.trim()]);
        let mut client = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, mut output) = (client.stdin.take().unwrap(), BufReader::new(client.stdout.take().unwrap()));
        let mut exchange = |text: &str| {
            let mut line = String::new();
            input.write_all(text.as_bytes()).unwrap();
            output.read_line(&mut line).unwrap();
            assert_eq!(line, text, "{from:?} to {to:?}");
        };
        exchange("before\n");
        kill(before);
        exchange("after\n");
        wait_until("another switch", || world.network.pid_of("lan").is_some_and(|pid| pid != before));
        exchange("with another switch\n");
        drop(input);
        client.wait().unwrap();
        let _ = server.child.kill();
    }
}

/// Serves lines or connects, prints the port, and returns each line.
const LINES: &str = "
import socket, sys
if sys.argv[1] == 'serve':
    listener = socket.create_server((sys.argv[2], int(sys.argv[3])))
    print(listener.getsockname()[1], flush=True)
    peer, _ = listener.accept()
    for line in peer.makefile('rb'):
        peer.sendall(line)
else:
    peer = socket.create_connection((sys.argv[2], int(sys.argv[3])))
    lines = peer.makefile('rb')
    for line in sys.stdin.buffer:
        peer.sendall(line)
        print(lines.readline().decode(), end='', flush=True)
";

#[test]
fn frames_with_a_foreign_source_are_dropped_and_counted() {
    if !possible(&[]) {
        return;
    }
    let world = World::up("spoof", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let red = &world.red;
    assert!(world.ping(Red, One, false) && world.ping(Red, One, true));
    red.run("ip addr add 10.0.3.77/24 dev siga0");
    red.run("ip addr add fd00:3::77/64 dev siga0 nodad");
    // The kernel knows the guest's Ethernet address, so it sends packets. The switch also drops ARP packets, but they are few.
    let pings = red.try_run("ping -c 40 -i 0.01 -W 1 -I 10.0.3.77 10.0.3.1");
    assert!(!pings.status.success());
    assert!(world.counter("red", "drop_spoofed_ip") >= 40, "{pings:?}");
    let before = world.counter("red", "drop_spoofed_ip");
    assert!(!red.try_run("ping -c 1 -W 1 -I fd00:3::77 fd00:3::1").status.success());
    assert!(world.counter("red", "drop_spoofed_ip") > before);
    red.run("ip link set siga0 address 02:00:00:00:00:77");
    assert!(!world.ping(Red, One, false));
    assert!(world.counter("red", "drop_spoofed_mac") >= 1);
    assert!(world.ping(Two, One, false), "the others are not affected");
}

#[test]
fn access_to_a_restricted_switch_is_granted_and_revoked_while_it_runs() {
    if !possible(&[]) {
        return;
    }
    let network = "type = \"vswitch\"\naccess = \"restricted\"\ngrant = [\"one\", \"two\", \"red\", \"blue\"]";
    let world = World::up("grants", &Setup { network, ..Setup::default() });
    for (name, side) in [("two", Two), ("red", Red)] {
        assert!(world.ping(One, side, false) && world.ping(side, Blue, true), "{name}");
        world.network.text(&["revoke", "grants", "lan", name]);
        assert!(!world.ping(side, Blue, false), "{name} without access");
        world.network.text(&["grant", "grants", "lan", name]);
        wait_until("access again", || world.ping(side, Blue, false));
    }
    let again = world.network.siga(&["grant", "grants", "lan", "red"]);
    assert!(String::from_utf8_lossy(&again.stderr).contains("red already has access"), "{again:?}");
}

#[test]
fn isolated_stations_reach_only_the_station_that_is_not() {
    if !possible(&[]) {
        return;
    }
    let setup =
        Setup { network: "type = \"vswitch\"\nisolation = true", one: ", isolated = false", ..Setup::default() };
    let world = World::up("isolated", &setup);
    for side in [Two, Red, Blue] {
        assert!(world.ping(side, One, false) && world.ping(One, side, true), "{side:?}");
    }
    assert!(!world.ping(Red, Two, false) && !world.ping(Red, Blue, true) && !world.ping(Two, Red, false));
}

/// Returns the interface and the direction (1: into the switch, 2: out of it) of each frame in a file of format pcapng.
fn captured_directions(file: &[u8]) -> impl Iterator<Item = (String, u32)> {
    const INTERFACE: u32 = 1;
    const ENHANCED_PACKET: u32 = 6;
    const NAME: u16 = 2;
    const FLAGS: u16 = 2;
    let word = |at: usize| file.get(at..at + 4).map(|word| u32::from_le_bytes(word.try_into().unwrap()));
    let (mut at, mut names, mut frames) = (0, Vec::new(), Vec::new());
    while let (Some(kind), Some(bytes)) = (word(at), word(at + 4)) {
        let Some(block) = file.get(at..at + bytes as usize) else { break };
        if kind == INTERFACE {
            names.push(String::from_utf8(pcapng_option(&block[16..], NAME).unwrap().to_vec()).unwrap());
        } else if kind == ENHANCED_PACKET {
            let (interface, kept) = (word(at + 8).unwrap() as usize, word(at + 20).unwrap() as usize);
            let flags = pcapng_option(&block[28 + kept.next_multiple_of(4)..], FLAGS).unwrap();
            frames.push((names[interface].clone(), u32::from_le_bytes(flags.try_into().unwrap()) & 3));
        }
        at += bytes as usize;
    }
    frames.into_iter()
}

/// Returns the value of an option in a list of options.
fn pcapng_option(mut options: &[u8], wanted: u16) -> Option<&[u8]> {
    while let [kind_low, kind_high, bytes_low, bytes_high, rest @ ..] = options {
        let (kind, bytes) =
            (u16::from_le_bytes([*kind_low, *kind_high]), u16::from_le_bytes([*bytes_low, *bytes_high]));
        if kind == wanted {
            return rest.get(..bytes.into());
        }
        options = rest.get(usize::from(bytes).next_multiple_of(4)..)?;
    }
    None
}

#[test]
fn a_capture_of_a_switch_shows_the_frames_of_all_ports() {
    if !possible(&[]) {
        return;
    }
    let world = World::up("captured", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let mut capture = world.network.command(&["capture", "captured", "lan", "--seconds", "3"]);
    let mut capture = capture.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    BufReader::new(capture.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(world.ping(Red, One, false));
    let mut file = Vec::new();
    capture.stdout.as_mut().unwrap().read_to_end(&mut file).unwrap();
    assert!(capture.wait().unwrap().success());
    assert_eq!(file[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
    for port in ["red", "one.dev0"] {
        let directions: Vec<u32> =
            captured_directions(&file).filter(|(of, _)| of == port).map(|(_, way)| way).collect();
        assert!(directions.contains(&1) && directions.contains(&2), "{port}: {directions:?}");
    }
}

#[test]
fn a_namespace_that_ends_takes_only_its_own_port_along() {
    if !possible(&[]) {
        return;
    }
    let mut world = World::up("ended", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    assert!(world.ping(Red, One, false));
    let switch = world.network.pid_of("lan");
    world.blue = Place::new();
    wait_until("the port's end in the log", || {
        let log = std::fs::read_to_string(world.network.run_dir().join("ended").join("log")).unwrap();
        log.contains("port blue was removed")
    });
    assert!(world.ping(Red, One, false) && world.ping(One, Two, true));
    assert_eq!(world.network.pid_of("lan"), switch, "the switch runs on");
}

#[test]
fn a_network_that_is_down_leaves_no_interface_behind_and_one_without_its_namespace_does_not_start() {
    if !possible(&[]) {
        return;
    }
    let world = World::up("down", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let World { network, red, blue: _blue } = world;
    assert!(red.run("ip link").contains("siga0"));
    network.text(&["down", "down"]);
    wait_until("the interface's end", || !red.run("ip link").contains("siga0"));
    let path = network.base.path().join("none.toml");
    let port = "[[network.lan.port]]\nname = \"red\"\nnetns = \"siga-test-none\"\n";
    std::fs::write(&path, format!("[network.lan]\ntype = \"vswitch\"\n{port}[guest.one]\n")).unwrap();
    let refused = network.siga(&["up", path.to_str().unwrap()]);
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{text}");
    assert!(text.contains("siga-test-none") && text.contains("ip netns add siga-test-none"), "{text}");
    // Start the network again, because dropping the value takes it down.
    network.text(&["up", network.base.path().join("down.toml").to_str().unwrap()]);
}

#[test]
fn a_guest_lan_exists_while_its_owner_or_a_coupled_guest_runs() {
    let topology = "[network.lan]\ntype = \"guestlan\"\nowner = \"one\"\n\
        [guest.one]\ndevice = [{ network = \"lan\", addresses = [\"10.0.3.1/24\"] }]\n\
        [guest.two]\ndevice = [{ network = \"lan\", addresses = [\"10.0.3.2/24\"] }]\n";
    let network = Network::up("owned", topology);
    let owner = || network.status()["networks"][0]["owner"].as_str().unwrap().to_owned();
    let pings = || network.siga(&["ping", "owned", "one", "10.0.3.2", "-c", "1"]).status.success();
    wait_until("the switch", || network.pid_of("lan").is_some());
    assert_eq!(owner(), "one transient");
    wait_until("an answer", pings);
    let switch = network.pid_of("lan");
    network.text(&["stop", "owned", "one"]);
    assert_eq!((owner().as_str(), network.pid_of("lan")), ("one orphaned", switch));
    network.text(&["stop", "owned", "two"]);
    wait_until("the end of the network", || network.pid_of("lan").is_none());
    assert_eq!(owner(), "one ended");
    network.text(&["start", "owned", "two"]);
    assert_eq!((owner().as_str(), network.pid_of("lan")), ("one ended", None), "only its owner brings it back");
    network.text(&["start", "owned", "one"]);
    wait_until("an answer", pings);
    assert_eq!(owner(), "one transient");
}

#[test]
fn a_switch_uses_another_uplink_while_the_first_has_no_carrier() {
    if !possible(&[]) {
        return;
    }
    let (host, outside) = (Place::new(), Place::new());
    let mut uplinks = String::new();
    outside.run("ip link add br0 type bridge");
    for number in 0..2 {
        host.run(&format!("ip link add up{number} type veth peer name out{number} netns {}", outside.pid()));
        host.run(&format!("ip link set up{number} up"));
        outside.run(&format!("ip link set out{number} master br0 up"));
        let _ = writeln!(uplinks, "[[network.lan.uplink]]\ninterface = \"up{number}\"\npid = {}", host.pid());
    }
    outside.run("ip addr add 10.0.3.200/24 dev br0");
    outside.run("ip link set br0 up");
    let topology = format!(
        "[network.lan]\ntype = \"vswitch\"\nmtu = 1500\n{uplinks}\
         [guest.one]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.1/24\"] }}]\n"
    );
    let network = Network::up("uplinks", &topology);
    let pings = || network.siga(&["ping", "uplinks", "one", "10.0.3.200", "-c", "1"]).status.success();
    let of_port = |port: &str, counter: &str| counter_of(&network, port, counter);
    wait_until("an answer over the first uplink", pings);
    assert!(of_port("up0", "port_frames_received") > 0 && of_port("up1", "port_frames_sent") == 0);
    outside.run("ip link set out0 down");
    wait_until("an announcement of the guest through the second uplink", || of_port("up1", "port_frames_sent") > 0);
    wait_until("an answer over the second uplink", pings);
    assert!(outside.run("ping -c 1 -W 5 10.0.3.1").contains("1 received"));
    let before = of_port("up1", "port_frames_sent");
    outside.run("ip link set out0 up");
    wait_until("the first uplink again", || pings() && of_port("up1", "port_frames_sent") == before);
    // Another control program watches the uplinks too.
    joins::restart_control(&network);
    wait_until("an answer after a restart", pings);
    outside.run("ip link set out0 down");
    wait_until("an answer over the second uplink after a restart", || {
        pings() && of_port("up1", "port_frames_sent") > before
    });
}

/// Sends 100 broadcast frames with a VLAN tag from the interface `out0`. The argument is the VLAN.
const TAGGED: &str = "
import socket, sys
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
out.bind(('out0', 0))
tag = b'\\x81\\x00' + int(sys.argv[1]).to_bytes(2, 'big')
for _ in range(100):
    out.send(b'\\xff' * 6 + b'\\x02\\0\\0\\0\\0\\x63' + tag + b'\\x08\\x06' + bytes(46))
";

#[test]
fn frames_of_another_vlan_behind_an_uplink_do_not_enter_the_switch() {
    if !possible(&["python3"]) {
        return;
    }
    let (host, outside) = (Place::new(), Place::new());
    host.run(&format!("ip link add up0 type veth peer name out0 netns {}", outside.pid()));
    host.run("ip link set up0 up");
    outside.run("ip link set out0 up");
    outside.run("ip addr add 10.0.3.200/24 dev out0");
    let topology = format!(
        "[network.lan]\ntype = \"vswitch\"\nmtu = 1500\n[[network.lan.uplink]]\ninterface = \"up0\"\npid = {}\n\
         [guest.one]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.1/24\"] }}]\n",
        host.pid()
    );
    let network = Network::up("tagged", &topology);
    wait_until("an answer", || outside.try_run("ping -c 1 -W 1 10.0.3.1").status.success());
    let received = || counter_of(&network, "up0", "port_frames_received");
    let send = |vlan: &str| assert!(outside.command(&[PYTHON, "-c", TAGGED, vlan]).status().unwrap().success());
    let before = received();
    send("0");
    wait_until("the frames with a priority", || received() >= before + 100);
    let before = received();
    send("30");
    assert!(outside.run("ping -c 1 -W 5 10.0.3.1").contains("1 received"), "a later frame has arrived");
    assert!(received() < before + 50, "{} frames", received() - before);
}
