//! Networks of the types whose devices collect packets in blocks, from end to end.

use super::network::{EXTERNAL_FIGURE_1, Network, PATIENCE, kill, wait_until};
use super::transfer;
use siga_fabric::sockets::{Attachment, Poller};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs the stack of an embedded guest until `done` is true. Otherwise a block would stay on the channel after the last call of the
/// application. The time is limited for a test that fails.
pub(crate) fn run_stack(attachment: &Attachment, done: &AtomicBool) {
    let poller = Poller::new(attachment);
    let until = Instant::now() + 4 * PATIENCE;
    while !done.load(Ordering::Relaxed) && Instant::now() < until {
        poller.wait(&mut Vec::new(), Some(Duration::from_millis(2))).unwrap();
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// The network of Figure 1, whose network `link` has these settings.
fn figure_1(name: &str, link: &str, mtu: u32) -> Network {
    let topology = EXTERNAL_FIGURE_1.replacen("type = \"vctc\"\nbuffer = 65535", link, 1);
    Network::up(name, &topology.replace("mtu = 57344", &format!("mtu = {mtu}")))
}

/// Does this while the stack of an embedded guest runs.
fn with_stack<T>(attachment: &Attachment, work: impl FnOnce() -> T) -> T {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| run_stack(attachment, &done));
        let result = work();
        done.store(true, Ordering::Relaxed);
        result
    })
}

fn exchange((from, to): (&Attachment, &Attachment), at: &str, bytes: u64, each: impl FnMut(u64)) -> Duration {
    with_stack(to, || transfer::exchange((from, to), at, bytes, each))
}

/// Sends bytes in both directions and over both versions of IP, while a router is killed.
fn crosses_both_ways(network: &Network, bytes: u64) {
    let (client, server) = (network.attach("client"), network.attach("server"));
    for (from, to, at, kills) in [
        (&client, &server, "10.0.2.2:7", true),
        (&server, &client, "10.0.1.1:7", false),
        (&client, &server, "[fd00:2::2]:7", false),
        (&server, &client, "[fd00:1::1]:7", true),
    ] {
        let mut killed = !kills;
        let time = exchange((from, to), at, bytes, |sent| {
            if sent >= bytes / 2 && !killed {
                killed = true;
                kill(network.pid("router"));
            }
        });
        println!("{at}: {bytes} bytes in {time:?}");
    }
}

/// Makes connections one after another. Each has a request of 64 bytes and a response of 8,192.
pub(crate) fn many_connections(network: &Network, count: u32) {
    let (client, server) = (network.attach("client"), network.attach("server"));
    connections((&client, &server), "10.0.2.2:7", count);
}

fn connections((client, server): (&Attachment, &Attachment), at: &str, count: u32) {
    with_stack(server, || transfer::connections((client, server), at, count));
}

#[test]
fn bytes_cross_a_path_of_netiucv_both_ways_although_the_router_is_killed() {
    crosses_both_ways(&figure_1("netiucv", "type = \"netiucv\"", 9_216), 64 << 20);
}

#[test]
fn ten_thousand_connections_cross_a_path_of_netiucv() {
    many_connections(&figure_1("many-over-netiucv", "type = \"netiucv\"", 32_766), 10_000);
}

#[test]
fn bytes_cross_a_claw_channel_both_ways_although_the_router_is_killed() {
    let link = "type = \"claw\"";
    let topology = EXTERNAL_FIGURE_1.replacen("type = \"vctc\"\nbuffer = 65535", link, 1);
    let fast = "mtu = 32756, link = \"rate=800mbit,latency=100us\"";
    let network = Network::up("claw", &topology.replacen("mtu = 57344", fast, 1).replace("mtu = 57344", "mtu = 32756"));
    crosses_both_ways(&network, 64 << 20);
}

#[test]
fn a_stream_over_a_claw_channel_has_the_rate_of_the_hardware() {
    let network = figure_1("claw-rate", "type = \"claw\"", 4_096);
    let (client, server) = (network.attach("client"), network.attach("server"));
    let bytes = 8 << 20;
    let time = exchange((&client, &server), "10.0.2.2:7", bytes, |_| {}).as_secs_f64();
    let rate = bytes as f64 / time / 1e6;
    println!("{rate:.2} MB/s");
    assert!((1.4..2.3).contains(&rate), "{rate} MB/s");
}

#[test]
fn ten_thousand_connections_cross_a_claw_channel() {
    let topology = EXTERNAL_FIGURE_1.replacen("type = \"vctc\"\nbuffer = 65535", "type = \"claw\"", 1);
    let fast = "mtu = 4096, link = \"rate=8gbit,latency=10us\"";
    let network = topology.replacen("mtu = 57344", fast, 1).replace("mtu = 57344", "mtu = 4096");
    many_connections(&Network::up("many-over-claw", &network), 10_000);
}

#[test]
fn devices_of_claw_with_other_names_refuse_each_other_and_the_rest_goes_on() {
    let topology = EXTERNAL_FIGURE_1.replacen("type = \"vctc\"\nbuffer = 65535", "type = \"claw\"", 1);
    let topology = topology.replace("external = true\n", "");
    let wrong = topology.replacen("mtu = 57344", "mtu = 4096, adapter_name = \"OTHER\"", 1).replace("57344", "4096");
    let network = Network::up("claw-names", &wrong);
    let ping = |from: &str, to: &str| {
        let arguments = ["ping", network.name.as_str(), from, to, "--count", "1", "--interval", "0.1"];
        network.siga(&arguments).status.success()
    };
    assert!(!ping("client", "10.0.1.2"), "the link is refused");
    assert!(ping("router", "10.0.2.2"), "the other network goes on");
    let counters = network.text(&["status", network.name.as_str(), "--detail"]);
    assert!(counters.contains("refused_166") && counters.contains("rejected_166"), "{counters}");
}

/// Two guests on a network of type lcs.
const STATIONS: &str = r#"
[network.lan]
type = "lcs"
[guest.one]
external = true
device = [{ network = "lan", addresses = ["10.0.3.1/24"] }]
[guest.two]
external = true
device = [{ network = "lan", addresses = ["10.0.3.2/24"] }]
"#;

#[test]
fn bytes_cross_stations_of_lcs_both_ways_although_the_gateway_is_killed() {
    let network = Network::up("lcs", STATIONS);
    let (one, two) = (network.attach("one"), network.attach("two"));
    let bytes = 64 << 20;
    for (from, to, at, kills) in [(&one, &two, "10.0.3.2:7", true), (&two, &one, "10.0.3.1:7", false)] {
        let mut killed = !kills;
        let time = exchange((from, to), at, bytes, |sent| {
            if sent >= bytes / 2 && !killed {
                killed = true;
                kill(network.pid("lan"));
            }
        });
        let rate = bytes as f64 / time.as_secs_f64() / 1e6;
        println!("{at}: {rate:.2} MB/s");
        assert!(rate < 12.6, "the wire has 12.5 MB/s, not {rate}");
    }
}

#[test]
fn ten_thousand_connections_cross_stations_of_lcs() {
    let topology = STATIONS.replace("type = \"lcs\"", "type = \"lcs\"\nwire = \"real\"");
    let network = Network::up("many-over-lcs", &topology);
    let (one, two) = (network.attach("one"), network.attach("two"));
    connections((&one, &two), "10.0.3.2:7", 10_000);
}

#[test]
fn a_capture_of_blocks_is_decoded_with_the_messages_and_packets_of_each_type() {
    for (kind, mtu, parts) in [
        ("vctc", 1_500, &["ctc, 2 bytes\n  hello"][..]),
        ("netiucv", 1_500, &["netiucv, 16 bytes\n  CONNECT, user data f0404040404040"]),
        ("claw", 1_500, &["SYSTEM VALIDATE REQUEST (01), version 2", "CONNECTION CONFIRM (23), version 2, link 1"]),
        ("lcs", 1_500, &["STARTUP (07) of the host", "STARTLAN (01) of the host", "LANSTAT (04) of the host"]),
    ] {
        let (before, lan) = EXTERNAL_FIGURE_1.split_once("[network.lan]").unwrap();
        let topology =
            format!("{}[network.lan]{lan}", before.replace("\"vctc\"\nbuffer = 65535", &format!("\"{kind}\"")));
        let topology = topology.replace("mtu = 57344", &format!("mtu = {mtu}")).replace("external = true\n", "");
        let (topology, v6) = (topology.replace(", \"fd00:1::1/64\"", "").replace(", \"fd00:1::2/64\"", ""), "");
        let topology = topology.replace(", { to = \"default\", via = \"fd00:1::2\" }", v6);
        let network = Network::up(&format!("capture-{kind}"), &topology);
        let name = network.name.as_str();
        let file = network.base.path().join("blocks.pcapng");
        let file = file.to_str().unwrap();
        let mut capture = network
            .command(&["capture", name, "client", "--blocks", "--output", file, "--seconds", "2"])
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(500));
        network.text(&["ping", name, "client", "10.0.1.2", "--count", "2", "--interval", "0.1"]);
        assert!(capture.wait().unwrap().success());
        let text = network.text(&["decode", file]);
        for part in parts {
            assert!(text.contains(part), "{kind}: {part} is not in\n{text}");
        }
        let packets = text.lines().filter(|line| line.contains("10.0.1.1 to 10.0.1.2, ICMP")).count();
        assert_eq!(packets, 2, "{kind}: {text}");
        assert!(text.contains(" sent ") && text.contains(" received "), "{text}");
    }
    let network = figure_1("capture-none", "type = \"vctc\"", 1_500);
    let refused = network.siga(&["capture", network.name.as_str(), "server", "--blocks"]);
    let why = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && why.contains("running") | why.contains("no device of guest"), "{why}");
}

/// The types whose devices exchange blocks or frames with a link that does not limit the rate: the lines of the network, the MTU, and more
/// keys of a device of guest `one`.
const FAST: [(&str, u32, &str); 5] = [
    ("type = \"ctc\"", 32_760, ", link = \"rate=80gbit,latency=10us\""),
    ("type = \"netiucv\"", 32_766, ""),
    ("type = \"claw\"", 32_756, ", link = \"rate=80gbit,latency=10us\""),
    ("type = \"lcs\"\nwire = \"real\"", 1_500, ""),
    ("type = \"qdio\"\nmtu = 8992\nwire = \"real\"", 8_992, ""),
];

/// Guests `one` and `two` on a network of a type, and guests `one` and `three` on another network. `one` and `two` can be external.
fn two_networks(name: &str, (lines, mtu, keys): (&str, u32, &str), external: &str) -> Network {
    let device = |host: u32, keys: &str| {
        format!("{{ network = \"path\", addresses = [\"10.0.4.{host}/24\"], mtu = {mtu}{keys} }}")
    };
    Network::up(
        name,
        &format!(
            "[network.path]\n{lines}\n[network.other]\ntype = \"hipersockets\"\n\
             [guest.one]\n{external}device = [{}, {{ network = \"other\", addresses = [\"10.0.5.1/24\"] }}]\n\
             [guest.two]\n{external}device = [{}]\n\
             [guest.three]\ndevice = [{{ network = \"other\", addresses = [\"10.0.5.3/24\"] }}]\n",
            device(1, keys),
            device(2, "")
        ),
    )
}

#[test]
fn a_killed_guest_of_each_type_is_reached_again_and_the_rest_goes_on() {
    for (number, of_type) in FAST.into_iter().enumerate() {
        let network = two_networks(&format!("killed-{number}"), of_type, "");
        let name = network.name.as_str();
        let ping =
            |from: &str, to: &str| network.siga(&["ping", name, from, to, "-c", "1", "-W", "5"]).status.success();
        assert!(ping("one", "10.0.4.2") && ping("two", "10.0.4.1"), "{}", of_type.0);
        let one = network.pid("one");
        kill(network.pid("two"));
        assert!(ping("one", "10.0.5.3"), "{}: the other network goes on", of_type.0);
        wait_until("the guest is reached again", || ping("one", "10.0.4.2") && ping("two", "10.0.4.1"));
        assert_eq!(network.pid("one"), one, "{}", of_type.0);
    }
}

#[test]
#[ignore = "takes a minute; `cargo xtask nightly --only net` runs it"]
fn a_gigabyte_crosses_each_type_intact_in_both_directions() {
    for (number, of_type) in FAST.into_iter().enumerate() {
        let network = two_networks(&format!("gigabyte-{number}"), of_type, "external = true\n");
        let (one, two) = (network.attach("one"), network.attach("two"));
        for (from, to, at) in [(&one, &two, "10.0.4.2:7"), (&two, &one, "10.0.4.1:7")] {
            let time = exchange((from, to), at, 1 << 30, |_| {});
            println!("{}, {at}: {:.0} MB/s", of_type.0, (1 << 30) as f64 / time.as_secs_f64() / 1e6);
        }
    }
}
