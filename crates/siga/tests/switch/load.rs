//! Much traffic over a switch: long streams, many connections, floods.

use super::network::{Network, wait_until};
use super::place::{Place, possible};
use super::{Blue, KINDS, One, PYTHON, Program, Red, Setup, Two, World, counter_of, seconds};
use std::process::{Command, Stdio};

/// The bytes of each stream. `cargo xtask nightly --only switch-bytes` sends more.
fn stream_bytes() -> usize {
    std::env::var("SIGA_SWITCH_BYTES").map_or(64 << 20, |bytes| bytes.parse().unwrap())
}

#[test]
fn long_streams_cross_a_switch_intact_with_and_without_offloads() {
    if !possible(&["python3"]) {
        return;
    }
    for (name, network, red) in
        [("whole", "type = \"vswitch\"", ""), ("cut", "type = \"vswitch\"\nmtu = 1500", "offload = false")]
    {
        let world = World::up(name, &Setup { network, red, ..Setup::default() });
        for (from, to) in KINDS {
            [false, true].into_iter().for_each(|v6| world.echo(from, to, v6, stream_bytes()));
        }
    }
}

#[test]
fn long_streams_cross_an_uplink_intact() {
    if possible(&["python3"]) {
        cross_an_uplink("type = \"vswitch\"", stream_bytes());
    }
}

#[test]
fn bytes_cross_the_real_wire_of_a_card_intact() {
    if possible(&["python3"]) {
        cross_an_uplink("type = \"qdio\"\nwire = \"real\"", 16 << 20);
    }
}

/// Sends bytes from a namespace and a guest through an uplink.
fn cross_an_uplink(kind: &str, bytes: usize) {
    let (host, outside, red) = (Place::new(), Place::new(), Place::new());
    host.run(&format!("ip link add up0 type veth peer name out0 netns {}", outside.pid()));
    host.run("ip link set up0 up");
    outside.run("ip link set out0 up");
    outside.run("ip addr add 10.0.3.200/24 dev out0");
    outside.run("ip addr add fd00:3::200/64 dev out0 nodad");
    let topology = format!(
        "[network.lan]\n{kind}\nmtu = 1492\n[[network.lan.uplink]]\ninterface = \"up0\"\npid = {}\n\
         [[network.lan.port]]\nname = \"red\"\npid = {}\naddresses = [\"10.0.3.11/24\", \"fd00:3::11/64\"]\n\
         [guest.one]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.1/24\", \"fd00:3::1/64\"] }}]\n",
        host.pid(),
        red.pid()
    );
    let network = Network::up("outside", &topology);
    wait_until("an answer", || outside.try_run("ping -c 1 -W 1 10.0.3.1").status.success());
    let (limit, bytes) = (seconds(bytes), bytes.to_string());
    for address in ["10.0.3.200", "fd00:3::200"] {
        let of_guest = || {
            let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
            command.args(["exec", "outside", "one", "--"]).env("SIGA_RUN_DIR", network.run_dir());
            command
        };
        for (name, mut client) in [("red", red.command(&[])), ("one", of_guest())] {
            let mut server = Program::start(&mut outside.command(&[PYTHON, "-c", super::SERVER, address]));
            client.args(["timeout", &limit, PYTHON, "-c", super::CLIENT, address, server.line.trim(), &bytes]);
            let output = client.stdin(Stdio::null()).output().unwrap();
            let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("intact"), "{name} to {address}: {text}");
            let _ = server.child.kill();
        }
    }
}

#[test]
fn an_uplink_whose_interface_is_made_again_is_used_again() {
    if !possible(&[]) {
        return;
    }
    let (host, outside) = (Place::new(), Place::new());
    let make = || {
        host.run(&format!("ip link add up0 type veth peer name out0 netns {}", outside.pid()));
        host.run("ip link set up0 up");
        // The guest keeps the address of the station for a while.
        outside.run("ip link set out0 address 02:00:00:00:00:c8 up");
        outside.run("ip addr add 10.0.3.200/24 dev out0");
    };
    make();
    let topology = format!(
        "[network.lan]\ntype = \"vswitch\"\nmtu = 1500\n[[network.lan.uplink]]\ninterface = \"up0\"\npid = {}\n\
         [guest.one]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.1/24\"] }}]\n\
         [guest.two]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.2/24\"] }}]\n",
        host.pid()
    );
    let network = Network::up("remade", &topology);
    let pings = |address: &str| network.siga(&["ping", "remade", "one", address, "-c", "1"]).status.success();
    let ends = || {
        let log = std::fs::read_to_string(network.run_dir().join("remade").join("log")).unwrap();
        log.matches("port up0 was removed").count()
    };
    wait_until("an answer", || pings("10.0.3.200"));
    for turn in 1..=2 {
        host.run("ip link del up0");
        wait_until("the uplink's end in the log", || ends() == turn);
        assert!(pings("10.0.3.2") && !pings("10.0.3.200"), "the others go on");
        make();
        wait_until("an answer over the new interface", || pings("10.0.3.200"));
        // Another control program watches the interface in the second turn.
        super::joins::restart_control(&network);
    }
}

/// Accepts connections and returns the line of each. Prints its port.
const MANY_SERVER: &str = "
import resource, selectors, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
listener = socket.create_server((sys.argv[1], 0), backlog=4096)
listener.setblocking(False)
print(listener.getsockname()[1], flush=True)
ready = selectors.DefaultSelector()
ready.register(listener, 1)
while True:
    for key, _ in ready.select():
        if key.fileobj is listener:
            peer, _ = listener.accept()
            ready.register(peer, 1)
        elif data := key.fileobj.recv(100):
            key.fileobj.sendall(data)
        else:
            ready.unregister(key.fileobj)
            key.fileobj.close()
";

/// Opens as many connections as the last argument says to each of the servers, exchanges a line over each while all are open, and does so
/// again.
const MANY_CLIENT: &str = "
import resource, socket, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
count = int(sys.argv[-1])
servers = [(sys.argv[at], int(sys.argv[at + 1])) for at in range(1, len(sys.argv) - 1, 2)]
peers = [socket.create_connection(server, timeout=30) for server in servers for _ in range(count)]
for turn in range(2):
    for number, peer in enumerate(peers):
        peer.sendall(f'{turn} {number}'.encode())
    for number, peer in enumerate(peers):
        assert peer.recv(100) == f'{turn} {number}'.encode(), number
print(len(peers), 'answered')
";

#[test]
fn ten_thousand_connections_over_a_switch_are_open_at_a_time() {
    if !possible(&["python3"]) {
        return;
    }
    let world = World::up("many", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let servers = [Blue, One].map(|side| {
        let address = side.address(false);
        (address, Program::start(&mut world.command(side, &[PYTHON, "-c", MANY_SERVER, address])))
    });
    let mut client = vec![PYTHON, "-c", MANY_CLIENT];
    servers.iter().for_each(|(address, server)| client.extend([address, server.line.trim()]));
    client.push("5000");
    let output = world.command(Red, &client).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("10000 answered"), "{text}");
}

/// Sends UDP packets to another station, to an address without a station and to all, without end. Prints a line first.
const FLOOD: &str = "
import socket
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
print('starts', flush=True)
while True:
    for address in ('10.0.3.12', '10.0.3.255', '10.0.3.12'):
        try:
            out.sendto(bytes(1400), (address, 9))
        except OSError:
            pass
";

#[test]
fn a_flood_on_one_port_costs_others_no_frame() {
    if !possible(&["python3"]) {
        return;
    }
    let world = World::up("flood", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let flood = Program::start(&mut world.command(Red, &[PYTHON, "-c", FLOOD]));
    wait_until("the limit of floods", || world.counter("red", "drop_flood_limit") > 0);
    let before = world.counter("red", "port_frames_received");
    let pings = ["ping", "flood", "one", Two.address(false), "--count", "300", "--interval", "0.005", "-W", "20"];
    let text = world.network.text(&pings);
    assert!(text.contains("300 requests sent, 300 answered"), "{text}");
    assert!(world.counter("red", "port_frames_received") > before + 1_000, "the flood went on");
    for port in ["one", "two"] {
        assert_eq!(counter_of(&world.network, port, "backlog_full"), 0, "{port}");
    }
    drop(flood);
}
