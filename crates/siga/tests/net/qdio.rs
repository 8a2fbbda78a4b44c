//! Networks of type qdio: guests with OSA-Express adapters (cards), whose wires are modelled.

use super::network::{Network, PATIENCE, kill, wait_until};
use super::transfer::{connections, exchange};
use siga_fabric::sockets::{Attachment, TcpListener, TcpStream};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Two guests, each with a card of its own, and two guests that share a card.
const CARDS: &str = r#"
[network.lan]
type = "qdio"
mtu = 8992
wire = "10gbe"
[[network.lan.card]]
name = "shared"
wire = "1gbe"
[guest.one]
external = true
device = [{ network = "lan", addresses = ["10.0.3.1/24", "fd00:3::1/64"] }]
[guest.two]
external = true
device = [{ network = "lan", addresses = ["10.0.3.2/24", "fd00:3::2/64"] }]
[guest.three]
external = true
device = [{ network = "lan", addresses = ["10.0.3.3/24", "fd00:3::3/64"], card = "shared", mtu = 1492 }]
[guest.four]
external = true
device = [{ network = "lan", addresses = ["10.0.3.4/24", "fd00:3::4/64"], card = "shared", mtu = 1492 }]
"#;

impl Network {
    /// Returns a counter of a guest's port.
    fn of_port(&self, guest: &str, name: &str) -> u64 {
        let status = self.text(&["status", self.name.as_str(), "--detail", "--format", "json"]);
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let links = status["reports"].as_array().unwrap().iter().map(|report| &report["part"]["link"]);
        let mut of_guest = links.filter(|link| link["member"]["guest"] == guest);
        of_guest.find_map(|link| link["counters"][name].as_u64()).unwrap_or(0)
    }
}

#[test]
fn bytes_cross_cards_intact_both_ways_although_the_adapter_is_killed() {
    let network = Network::up("cards", CARDS);
    let (one, two) = (network.attach("one"), network.attach("two"));
    let bytes = 64 << 20;
    for (from, to, at, kills) in [
        (&one, &two, "10.0.3.2:7", false),
        (&two, &one, "10.0.3.1:7", false),
        (&one, &two, "[fd00:3::2]:7", true),
        (&two, &one, "[fd00:3::1]:7", false),
    ] {
        let mut killed = !kills;
        exchange((from, to), at, bytes, |sent| {
            if sent >= bytes / 2 && !killed {
                killed = true;
                kill(network.pid("lan"));
            }
        });
    }
    // The adapter that was started again has carried half of the third stream.
    let frames = network.of_port("one", "link_from_station_delivered");
    assert!(frames > bytes / 8_992 / 3, "{frames} frames on the wire");
    assert_eq!(network.of_port("one", "card_queue_2_sent"), network.of_port("one", "link_from_station_offered"));
}

#[test]
fn guests_of_one_card_share_its_wire_and_reach_each_other_without_it() {
    let network = Network::up("shared-card", CARDS);
    let (one, three, four) = (network.attach("one"), network.attach("three"), network.attach("four"));
    // Within the card, frames do not use the wire.
    exchange((&three, &four), "10.0.3.4:7", 1 << 20, |_| {});
    let on_wire = network.of_port("three", "link_from_station_offered");
    assert!(on_wire < 20, "{on_wire} frames on the wire, which are those to all stations");
    let (took, other) = std::thread::scope(|scope| {
        let both = [(&three, "10.0.3.1:7"), (&four, "10.0.3.1:8")]
            .map(|(from, at)| scope.spawn(|| exchange((from, &one), at, 8 << 20, |_| {})));
        let [first, second] = both.map(|thread| thread.join().unwrap());
        (first.max(second), first.min(second))
    });
    // 16 MB take 134 ms on a wire with 1 Gbit/s.
    assert!(took >= Duration::from_millis(130), "{took:?}, {other:?}");
    assert!(network.of_port("three", "link_from_station_offered") > 10_000, "the guests of a card have its counters");
}

#[test]
fn the_status_shows_cards_as_lsqeth_does() {
    let topology = CARDS.replacen(
        "card = \"shared\"",
        "card = \"shared\", priority_queueing = \"prio_queueing_prec\", buffer_count = 1",
        1,
    );
    let network = Network::up("lsqeth", &topology);
    let text = network.text(&["status", network.name.as_str(), "--layout", "lsqeth"]);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "devices                    CHPID interface        cardtype       port chksum prio-q'ing rtr4 rtr6 lay'2 cnt",
            "-------------------------- ----- ---------------- -------------- ---- ------ ---------- ---- ---- ----- -----",
            "four.dev0                  x00   dev0             OSD_1000       0    hw     always_q_2 no   no   0     64",
            "one.dev0                   x01   dev0             OSD_10GIG      0    hw     always_q_2 no   no   0     64",
            "three.dev0                 x00   dev0             OSD_1000       0    hw     by_prec.   no   no   0     8",
            "two.dev0                   x02   dev0             OSD_10GIG      0    hw     always_q_2 no   no   0     64",
        ]
    );
    // The wire of a shared card is changed for all of its guests.
    network.text(&["link", network.name.as_str(), "lan", "three", "rate=100mbit"]);
    let ports = network.text(&["port", network.name.as_str(), "lan"]);
    assert_eq!(ports.matches("link rate=100mbit").count(), 2, "{ports}");
}

#[test]
fn a_killed_guest_leaves_the_card_to_the_others() {
    let network = Network::up("killed-guest", &CARDS.replacen("external = true\n", "", 2));
    let (three, four) = (network.attach("three"), network.attach("four"));
    let ping = |to: &str| network.siga(&["ping", network.name.as_str(), "one", to]).status.success();
    assert!(ping("10.0.3.2"));
    kill(network.pid("two"));
    exchange((&three, &four), "[fd00:3::4]:7", 1 << 20, |_| {});
    wait_until("the guest runs again", || ping("10.0.3.2"));
    assert_eq!(
        network.status()["guests"].as_array().unwrap().iter().find(|guest| guest["name"] == "lan").unwrap()["restarts"],
        0
    );
}

/// Sends bytes to port `port` of guest `one`, which counts them in `received`.
fn stream(from: &Attachment, one: &Attachment, port: u16, received: &AtomicU64, bytes: u64) {
    let listener = TcpListener::bind(one, format!("10.0.3.1:{port}").parse().unwrap()).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            listener.set_timeout(Some(PATIENCE));
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_timeout(Some(PATIENCE));
            let mut buffer = vec![0; 1 << 16];
            while received.load(Ordering::Relaxed) < bytes {
                let count = stream.read(&mut buffer).unwrap();
                assert!(count > 0);
                received.fetch_add(count as u64, Ordering::Relaxed);
            }
            stream.write_all(&[1]).unwrap();
        });
        let mut stream = TcpStream::connect(from, format!("10.0.3.1:{port}").parse().unwrap()).unwrap();
        stream.set_timeout(Some(PATIENCE));
        let part = vec![7; 1 << 16];
        (0..bytes >> 16).for_each(|_| stream.write_all(&part).unwrap());
        stream.read_exact(&mut [0]).unwrap();
    });
}

#[test]
fn a_guest_that_uses_queue_0_takes_the_wire_from_the_others_of_its_card() {
    let with = |queue: u8| format!("card = \"shared\", priority_queueing = \"no_prio_queueing:{queue}\"");
    let topology = CARDS.replacen("card = \"shared\"", &with(0), 1);
    let (before, last) = topology.rsplit_once("card = \"shared\"").unwrap();
    let topology = format!("{before}{}{last}", with(3)).replace("wire = \"1gbe\"", "link = \"rate=20mbit\"");
    let network = Network::up("priority", &topology);
    let [one, three, four] = ["one", "three", "four"].map(|guest| network.attach(guest));
    let bytes = 4 << 20;
    let (first, second) = (AtomicU64::new(0), AtomicU64::new(0));
    let left = std::thread::scope(|scope| {
        scope.spawn(|| stream(&four, &one, 7, &second, bytes));
        wait_until("the stream of the other guest", || second.load(Ordering::Relaxed) > bytes / 16);
        let begun = second.load(Ordering::Relaxed);
        stream(&three, &one, 8, &first, bytes);
        bytes - (second.load(Ordering::Relaxed) - begun)
    });
    // With the same queue, both guests have half of the wire, and almost nothing is left.
    assert!(left > bytes / 4, "{left} of {bytes} bytes waited for the guest with queue 0");
    assert!(network.of_port("three", "card_queue_0_sent") > bytes / 1_492);
    assert!(network.of_port("four", "card_queue_3_sent") > bytes / 1_492);
}

#[test]
fn ten_thousand_connections_cross_cards() {
    let network = Network::up("many-over-cards", CARDS);
    let (one, two) = (network.attach("one"), network.attach("two"));
    connections((&one, &two), "10.0.3.2:7", 10_000);
}
