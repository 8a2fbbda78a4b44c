//! Settings of a switch that are changed while it runs, and the status of its ports.

use super::joins::{restart_control, restart_with_state};
use super::network::{Network, kill, wait_until};
use super::place::possible;
use super::{Blue, One, PYTHON, Red, Setup, Side, Two, World};
use serde_json::json;
use std::process::Stdio;

impl World {
    /// Runs `siga net` for the switch, with these words after the names of the networks.
    fn set(&self, command: &str, words: &[&str]) -> String {
        self.network.text(&[&[command, self.network.name.as_str(), "lan"], words].concat())
    }

    fn refusal(&self, command: &str, words: &[&str]) -> String {
        let output = self.network.siga(&[&[command, self.network.name.as_str(), "lan"], words].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }

    /// Returns the Ethernet address of the namespace `red`.
    fn mac_of_red(&self) -> String {
        let link = self.red.run("ip -o link show siga0");
        link.split_once("link/ether ").unwrap().1.split(' ').next().unwrap().to_owned()
    }

    fn restart_switch(&self) {
        let before = self.network.pid_of("lan").unwrap();
        kill(before);
        wait_until("another switch", || self.network.pid_of("lan").is_some_and(|pid| pid != before));
    }
}

#[test]
fn the_vlan_of_a_port_is_changed_while_the_network_runs() {
    if !possible(&[]) {
        return;
    }
    let world = World::up("vlans", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let is_split = || world.ping(Red, One, false) && world.ping(Two, Blue, true) && !world.ping(Red, Two, false);
    assert!(world.ping(Red, Two, false) && world.ping(One, Blue, false));
    world.set("vlan", &["red", "--access", "10"]);
    assert!(!world.ping(Red, One, false) && !world.ping(Red, Two, true), "red is alone in VLAN 10");
    world.set("vlan", &["one.dev0", "--access", "10"]);
    assert!(is_split());
    world.restart_switch();
    wait_until("an answer over another switch", || world.ping(Red, One, false));
    assert!(is_split(), "another switch has the settings");
    restart_control(&world.network);
    world.restart_switch();
    wait_until("an answer over another switch", || world.ping(Red, One, false));
    assert!(is_split(), "another control program has the settings");
    // A control program was killed after it wrote a new setting, and before it sent the setting to the switch.
    restart_with_state(&world.network, |state| state["settings"]["lan"]["red"]["vlan"] = json!({ "access": 30 }));
    wait_until("the setting at the switch", || !world.ping(Red, One, false));
    world.set("vlan", &["red", "--access", "10"]);
    assert!(is_split());
    for (words, part) in [
        (&["red", "--access", "4095"][..], "VLAN 4095"),
        (&["none", "--access", "5"], "no port none"),
        (&["two", "--trunk", "5"], "sends no tags"),
    ] {
        let refused = world.refusal("vlan", words);
        assert!(refused.contains(part), "{refused}");
    }
}

/// Sends ARP requests for an address with tags, and prints the VLAN of the answer (0 without a tag), or `none`. The arguments are the
/// address, and the tags with their types, such as `8100:10`.
const ARP: &str = "
import socket, struct, sys, time
out = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
out.bind(('siga0', 0))
out.setsockopt(263, 8, 1)
out.settimeout(0.1)
own = out.getsockname()[4]
tags = b''.join(bytes.fromhex(tag[:4]) + int(tag[5:]).to_bytes(2, 'big') for tag in sys.argv[2:])
request = b'\\xff' * 6 + own + tags + bytes.fromhex('0806000108000604 0001') + own
request += socket.inet_aton('10.0.3.11') + bytes(6) + socket.inet_aton(sys.argv[1]) + bytes(18)
end = time.time() + 2
vlan = 'none'
while vlan == 'none' and time.time() < end:
    out.send(request)
    try:
        while True:
            frame, extra, _, _ = out.recvmsg(2048, 64)
            if frame[12:14] == b'\\x08\\x06' and frame[20:22] == b'\\0\\2':
                status, _, _, _, _, tci, _ = struct.unpack('IIIHHHH', extra[0][2])
                vlan = tci & 0xfff if status & 16 else 0
    except TimeoutError:
        pass
print(vlan)
";

#[test]
fn a_hostile_trunk_port_reaches_only_its_vlans() {
    if !possible(&["python3"]) {
        return;
    }
    let world = World::up("trunk", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    world.set("vlan", &["red", "--trunk", "10,20", "--native", "30"]);
    for (port, vlan) in [("one", "10"), ("two", "40"), ("blue", "20")] {
        world.set("vlan", &[port, "--access", vlan]);
    }
    let answer = |from, to: Side, tags: &[&str]| {
        let mut command = world.command(from, &[&[PYTHON, "-c", ARP, to.address(false)], tags].concat());
        String::from_utf8(command.output().unwrap().stdout).unwrap().trim().to_owned()
    };
    assert_eq!(answer(Red, One, &["8100:10"]), "10");
    // The bits of the priority and a tag with a priority only do not change the VLAN.
    assert_eq!(answer(Red, One, &["8100:57354"]), "10");
    assert_eq!(answer(Red, Blue, &["8100:20"]), "20");
    for (to, tags) in [
        (Two, &["8100:40"][..]),
        (Two, &["8100:10", "8100:40"]),
        (Two, &["8100:10", "88a8:40"]),
        (Two, &["88a8:10", "8100:40"]),
        (Two, &["9100:10", "8100:40"]),
        (Two, &["8100:0", "8100:40"]),
        (Two, &[]),
        (Two, &["8100:0"]),
        (One, &["8100:20"]),
        (Blue, &["8100:10"]),
        (One, &[]),
        (One, &["8100:0", "8100:10"]),
    ] {
        assert_eq!(answer(Red, to, tags), "none", "{to:?} {tags:?}");
    }
    assert!(world.counter("red", "drop_vlan") > 0 && world.counter("red", "drop_double_tag") > 0);
    // The native VLAN and tags on an access port.
    world.set("vlan", &["two", "--access", "30"]);
    assert_eq!((answer(Red, Two, &[]), answer(Red, Two, &["8100:0"])), ("0".to_owned(), "0".to_owned()));
    world.set("vlan", &["red", "--access", "30"]);
    assert_eq!(answer(Red, Two, &["8100:0"]), "0");
    assert_eq!(answer(Red, Two, &["8100:30"]), "none", "a tag on an access port");
    assert_eq!(answer(Red, One, &["8100:10"]), "none");
    assert!(world.ping(Red, Two, false));
}

/// Prints the source and destination of each IPv4 packet that arrives at an interface, and a first line.
const SNIFFER: &str = "
import socket
interface = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
interface.bind(('siga0', 0))
print('ready', flush=True)
while True:
    frame, address = interface.recvfrom(65536)
    if frame[12:14] == b'\\x08\\x00' and address[2] != 4:
        print(socket.inet_ntoa(frame[26:30]), socket.inet_ntoa(frame[30:34]), flush=True)
";

/// Returns the packets that a program at the port `blue` sees while these pairs exchange packets.
fn seen_by_blue(world: &World, pairs: &[(Side, Side)]) -> String {
    let file = tempfile::NamedTempFile::new().unwrap();
    let mut sniffer = world.command(Blue, &[PYTHON, "-c", SNIFFER]);
    let mut sniffer = sniffer.stdout(Stdio::from(file.reopen().unwrap())).spawn().unwrap();
    let read = || std::fs::read_to_string(file.path()).unwrap();
    wait_until("the program", || read().contains("ready"));
    pairs.iter().for_each(|(from, to)| assert!(world.ping(*from, *to, false), "{from:?} to {to:?}"));
    // This frame arrives after the others.
    assert!(world.ping(Red, Blue, false));
    wait_until("a packet for blue", || read().contains("10.0.3.11 10.0.3.12"));
    sniffer.kill().unwrap();
    sniffer.wait().unwrap();
    read()
}

#[test]
fn a_port_gets_copies_of_the_frames_of_others_only_after_it_was_allowed_to() {
    if !possible(&["python3"]) {
        return;
    }
    let world = World::up("copies", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let copies = |what: &str| -> (bool, bool) {
        let seen = seen_by_blue(&world, &[(Red, One), (Two, One)]);
        let both = |one: &str, other: &str| {
            let (there, back) =
                (seen.contains(&format!("{one} {other}\n")), seen.contains(&format!("{other} {one}\n")));
            assert_eq!(there, back, "{what}: {seen}");
            there
        };
        (both("10.0.3.11", "10.0.3.1"), both("10.0.3.2", "10.0.3.1"))
    };
    assert_eq!(copies("at first"), (false, false));
    world.set("mirror", &["blue", "--from", "red"]);
    assert_eq!(copies("of red"), (true, false));
    world.restart_switch();
    wait_until("an answer over another switch", || world.ping(Red, Blue, false));
    assert_eq!(copies("of red by another switch"), (true, false));
    world.set("mirror", &["blue"]);
    // A mirror does not depend on VLANs.
    world.set("vlan", &["one", "--access", "10"]);
    world.set("vlan", &["two", "--access", "10"]);
    world.set("vlan", &["red", "--access", "10"]);
    let file = |port: &str| world.counter(port, "port_frames_sent");
    let before = file("blue");
    assert!(world.ping(Red, One, false));
    assert!(file("blue") >= before + 2);
    ["one", "two", "red"].iter().for_each(|port| _ = world.set("vlan", &[port, "--access", "1"]));
    world.set("mirror", &["--off"]);
    assert_eq!(copies("after the mirror"), (false, false));
    world.set("port", &["blue", "--promiscuous", "on"]);
    assert_eq!(copies("in promiscuous mode"), (true, true));
    ["one", "two"].iter().for_each(|port| _ = world.set("vlan", &[port, "--access", "10"]));
    let seen = seen_by_blue(&world, &[(Two, One)]);
    assert!(!seen.contains("10.0.3.2 10.0.3.1\n"), "a promiscuous port sees its own VLAN only: {seen}");
    ["one", "two"].iter().for_each(|port| _ = world.set("vlan", &[port, "--access", "1"]));
    world.set("port", &["blue", "--promiscuous", "off"]);
    assert_eq!(copies("after promiscuous mode"), (false, false));
    for (words, part) in [(&["blue", "--from", "blue"][..], "its own frames"), (&["none"], "no port none")] {
        let refused = world.refusal("mirror", words);
        assert!(refused.contains(part), "{refused}");
    }
}

#[test]
fn the_addresses_that_a_switch_knows_are_shown_and_forgotten() {
    if !possible(&[]) {
        return;
    }
    let world = World::up("fdb", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let row = |port: &str| {
        let text = world.set("fdb", &[]);
        text.lines().find(|line| line.ends_with(&format!("  {port}"))).map(str::to_owned)
    };
    let mac = world.mac_of_red();
    let fixed = row("red").unwrap();
    assert!(fixed.contains(&mac) && fixed.contains("fixed") && fixed.trim_start().starts_with("1 "), "{fixed}");
    assert!(row("one.dev0").is_some());
    world.set("port", &["red", "--protection", "off"]);
    assert_eq!(row("red"), None, "not learned yet");
    assert!(world.ping(Red, One, false));
    assert!(row("red").unwrap().contains(&mac) && !row("red").unwrap().contains("fixed"));
    assert!(!world.set("fdb", &["--forget"]).contains(&mac));
    assert!(world.ping(Red, One, false) && row("red").is_some(), "it is learned again");
}

#[test]
fn the_status_shows_the_settings_of_all_ports_also_in_the_words_of_zvm() {
    if !possible(&[]) {
        return;
    }
    let network =
        "type = \"vswitch\"\naccess = \"restricted\"\ngrant = [\"one\", \"two\", \"red\", \"blue\"]\nmaxconn = 9";
    let world = World::up("shown", &Setup { network, red: "vlan = 10", ..Setup::default() });
    world.set("port", &["two", "--isolated", "on"]);
    world.set("mirror", &["blue"]);
    assert!(world.ping(One, Blue, false));
    let mac = world.mac_of_red();
    let detail = world.network.text(&["status", "shown", "--detail"]);
    let row = |port: &str| {
        let mut rows = detail.lines().filter(|line| line.trim_start().starts_with(&format!("{port} ")));
        rows.find(|line| line.contains("02:")).unwrap_or_else(|| panic!("{port}: {detail}")).to_owned()
    };
    assert!(
        row("red").contains(&mac) && row("red").contains(" 10 ") && row("red").contains("siga0 of"),
        "{}",
        row("red")
    );
    assert!(row("two.dev0").contains(" yes ") && row("one.dev0").contains(" no "), "{detail}");
    for part in ["maxconn                 9", "mirror                  from all ports to blue", "SYSTEM persistent"] {
        assert!(detail.contains(part), "{part}: {detail}");
    }
    assert!(world.set("port", &[]).lines().any(|line| line.trim_start().starts_with("red ")));
    world.network.text(&["revoke", "shown", "lan", "two"]);
    let zvm = world.network.text(&["status", "shown", "--layout", "zvm"]);
    let mac = mac.to_uppercase().replace(':', "-");
    for part in [
        "VSWITCH SYSTEM LAN          Type: QDIO    Connected: 3    Maxconn: 9\n",
        "  PERSISTENT  RESTRICTED    ETHERNET                  Accounting: OFF\n",
        "VLAN Aware  Default VLAN: 0001    Default Porttype: Access\n",
        "    Adapter Owner: RED              Name: siga0\n      Porttype: Access  VLAN: 0010\n",
        &format!("        {mac} IP: 10.0.3.11 fd00:3::11\n"),
        "  Authorized userids:\n    BLUE             Porttype: Access  VLAN: 0001\n    ONE ",
    ] {
        assert!(zvm.contains(part), "{part}: {zvm}");
    }
    assert!(!zvm.contains("TWO") && zvm.contains("RX Packets: "), "{zvm}");
}

#[test]
fn the_status_of_a_switch_with_a_thousand_ports_is_complete() {
    let vlans: Vec<String> = (1..=256).map(|vlan| vlan.to_string()).collect();
    let addresses: Vec<String> = (0..8).map(|net| format!("\"fd00:{net}::1:1/64\"")).collect();
    let name = "port-with-a-name-of-a-pod";
    let topology = format!(
        "[network.lan]\ntype = \"vswitch\"\n[[network.lan.port]]\nname = \"{name}\"\ncount = 990\nvlans = [{}]\naddresses = [{}]\n",
        vlans.join(", "),
        addresses.join(", ")
    );
    let network = Network::up("thousand", &topology);
    let status = network.status();
    let ports = status["networks"][0]["ports"].as_array().unwrap();
    assert_eq!(ports.len(), 990);
    for (number, port) in (1..).zip(ports) {
        assert!(port["label"].as_str().unwrap().starts_with(name), "{number}: {port}");
        assert_eq!(port["port"]["vlan"]["trunk"]["allowed"].as_array().unwrap().len(), 256, "{port}");
    }
    assert_eq!(status["networks"][0]["members"].as_array().unwrap().len(), 990);
    assert!(network.text(&["port", "thousand", "lan"]).lines().count() > 990);
    // No namespace has joined a port, so the switch knows no address.
    assert_eq!(network.text(&["fdb", "thousand", "lan"]).lines().count(), 1);
}

#[test]
fn a_guest_lan_keeps_accounts_of_stations_that_have_ended() {
    if !possible(&[]) {
        return;
    }
    let network = "type = \"guestlan\"\naccounting = true\naccess = \"restricted\"\n\
        grant = [\"one\", \"two\", \"red\", \"blue\"]";
    let mut world = World::up("accounts", &Setup { network, ..Setup::default() });
    let account = |world: &World, label: &str| {
        let status = world.network.status();
        let ports = status["networks"][0]["ports"].as_array().unwrap();
        ports.iter().find(|port| port["label"] == label).unwrap()["account"].clone()
    };
    assert!((0..3).all(|_| world.ping(One, Red, false)));
    assert_eq!(account(&world, "one.dev0")["frames_sent"], 0, "the guest still runs");
    kill(world.network.pid_of("one").unwrap());
    wait_until("the account of the guest", || account(&world, "one.dev0")["frames_sent"].as_u64() >= Some(3));
    let of_guest = account(&world, "one.dev0");
    for key in ["frames_received", "bytes_sent", "bytes_received"] {
        assert!(of_guest[key].as_u64() >= Some(3), "{key}: {of_guest}");
    }
    // The guest that was started again has the same account.
    wait_until("another guest", || world.ping(One, Two, false));
    world.network.text(&["revoke", "accounts", "lan", "one"]);
    wait_until("a larger account", || {
        account(&world, "one.dev0")["frames_sent"].as_u64() > of_guest["frames_sent"].as_u64()
    });
    world.red = super::Place::new();
    wait_until("the account of the namespace", || account(&world, "red")["frames_sent"].as_u64() >= Some(3));
    let shown = world.network.text(&["status", "accounts", "--layout", "zvm"]);
    for part in ["Accounting: ON", "Accounting Records:", "    ONE.DEV0 ", "    RED "] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    let log = std::fs::read_to_string(world.network.run_dir().join("accounts").join("log")).unwrap();
    assert!(log.contains("network lan: account of one.dev0: sent ") && log.contains("account of red: sent "), "{log}");
    let plain = world.network.text(&["status", "accounts", "--detail"]);
    assert!(plain.lines().any(|line| line.trim().starts_with("accounting") && line.trim().ends_with("on")), "{plain}");
}
