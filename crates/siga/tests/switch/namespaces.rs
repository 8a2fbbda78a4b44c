//! Namespaces that end, come back, or are not what the topology expects.

use super::network::{Network, kill, wait_until};
use super::place::{Place, possible};
use super::{One, Red, Setup, World};
use std::process::{Command, Stdio};

#[test]
fn a_process_with_the_number_of_an_ended_one_does_not_get_its_port() {
    if !possible(&[]) {
        return;
    }
    let mut world = World::up("reused", &Setup { network: "type = \"vswitch\"", ..Setup::default() });
    let pid = world.blue.pid();
    world.blue = Place::new();
    wait_until("the port's end in the log", || {
        let log = std::fs::read_to_string(world.network.run_dir().join("reused").join("log")).unwrap();
        log.contains("port blue was removed")
    });
    let mut made = None;
    for _ in 0..200 {
        if std::fs::write("/proc/sys/kernel/ns_last_pid", (pid - 1).to_string()).is_err() {
            break;
        }
        let place = Place::new();
        if place.pid() == pid {
            made = Some(place);
            break;
        }
    }
    let Some(place) = made else {
        println!("skipped, because no process could get the number {pid}");
        return;
    };
    std::thread::sleep(std::time::Duration::from_secs(5));
    assert!(!place.run("ip link").contains("siga0"));
    // A switch that starts again does not get the port either.
    kill(world.network.pid_of("lan").unwrap());
    wait_until("another switch", || world.ping(Red, One, false));
    assert!(!place.run("ip link").contains("siga0"));
}

#[test]
fn a_port_neither_replaces_a_route_nor_joins_the_namespace_of_the_host() {
    if !possible(&[]) {
        return;
    }
    let refused = |place: u32, more: &str| {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("refused.toml");
        let more = format!("addresses = [\"10.0.3.11/24\"]\n{more}");
        std::fs::write(&path, port_topology(place, &more)).unwrap();
        let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
        siga.args(["net", "up", path.to_str().unwrap()]).env("SIGA_RUN_DIR", base.path().join("run"));
        let output = siga.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success(), "{text}");
        text
    };
    let red = Place::new();
    red.run("ip link add other type veth peer name peer");
    red.run("ip link set peer up");
    red.run("ip link set other up");
    red.run("ip route add default dev other");
    let text = refused(red.pid(), "route = [{ to = \"default\", via = \"10.0.3.1\" }]");
    assert!(text.contains("the namespace has a route"), "{text}");
    assert!(red.run("ip route").contains("default dev other"));
    let text = refused(std::process::id(), "");
    assert!(text.contains("is the network namespace of this host"), "{text}");
    // Another process has a TAP device with the name of the port's interface.
    let other = Network::up("holds", &port_topology(red.pid(), "addresses = [\"10.0.3.11/24\"]"));
    let text = refused(red.pid(), "");
    assert!(text.contains("an interface with this name already exists"), "{text}");
    assert!(red.run("ip -o addr show dev siga0").contains("10.0.3.11"), "the other device is unchanged");
    drop(other);
}

/// A topology with one guest and a port in the namespace of a process.
fn port_topology(place: u32, more: &str) -> String {
    let port = format!("[[network.lan.port]]\nname = \"red\"\npid = {place}\n{more}\n");
    format!("[network.lan]\ntype = \"vswitch\"\n{port}[guest.one]\n")
}

/// A named network namespace, which is removed when this value is dropped.
struct Named(String);

impl Named {
    fn run(&self, line: &str) -> bool {
        let line = line.replace("NAME", &self.0);
        let words: Vec<&str> = line.split_whitespace().collect();
        Command::new(words[0]).args(&words[1..]).stderr(Stdio::null()).stdout(Stdio::null()).status().unwrap().success()
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        self.run("ip netns del NAME");
    }
}

#[test]
fn a_named_namespace_that_is_made_again_gets_its_port_again() {
    if !possible(&[]) {
        return;
    }
    let named = Named(format!("siga-test-{}", std::process::id()));
    if !named.run("ip netns add NAME") {
        println!("skipped, because named network namespaces cannot be made here");
        return;
    }
    let topology = format!(
        "[network.lan]\ntype = \"vswitch\"\n[[network.lan.port]]\nname = \"red\"\nnetns = \"{}\"\n\
         addresses = [\"10.0.3.11/24\"]\n\
         [guest.one]\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.1/24\"] }}]\n",
        named.0
    );
    let network = Network::up("renewed", &topology);
    let pings = || named.run("ip netns exec NAME ping -c 1 -W 1 10.0.3.1");
    wait_until("an answer", pings);
    assert!(named.run("ip netns del NAME"));
    wait_until("the port's end in the log", || {
        let log = std::fs::read_to_string(network.run_dir().join("renewed").join("log")).unwrap();
        log.contains("port red was removed")
    });
    assert!(named.run("ip netns add NAME"));
    wait_until("an answer in the new namespace", pings);
}
