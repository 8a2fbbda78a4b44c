//! Switches that `siga net upgrade` replaces while frames come from TAP devices and uplinks.

use super::network::{Network, wait_until};
use super::place::{Place, possible};
use super::{Blue, Red, Setup, Side, World};
use std::sync::atomic::{AtomicBool, Ordering};

const UPGRADES: usize = 3;
const ECHO_BYTES: usize = 8 << 20;

/// Replaces the switch again and again while `echo` runs.
fn while_it_runs(network: &Network, echo: impl Fn() + Send + Sync) {
    let (stop, before) = (AtomicBool::new(false), network.pid_of("lan"));
    let name = network.name.as_str();
    std::thread::scope(|scope| {
        let echoes = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                echo();
            }
        });
        for _ in 0..UPGRADES {
            let output = network.siga(&["upgrade", name]);
            let out = String::from_utf8(output.stdout).unwrap();
            let is_replaced = |line: &&str| line.starts_with("lan: replaced");
            let Some(line) = out.lines().find(is_replaced) else { panic!("{out}{}", network.log()) };
            println!("{name}: {line}");
        }
        stop.store(true, Ordering::Relaxed);
        echoes.join().unwrap();
    });
    assert_ne!(network.pid_of("lan"), before);
}

/// Checks that all TCP segments came to a namespace in their order.
fn lost_nothing(place: &Place) {
    let counters = place.run("cat /proc/net/netstat");
    let mut lines = counters.lines().filter(|line| line.starts_with("TcpExt:")).map(str::split_whitespace);
    let (names, values) = (lines.next().unwrap(), lines.next().unwrap());
    let of = |name: &str| names.clone().zip(values.clone()).find(|(own, _)| *own == name).unwrap().1;
    println!("timeouts {}, early {}", of("TCPTimeouts"), of("TCPOFOQueue"));
    assert_eq!(of("TCPOFOQueue"), "0", "segments that came before earlier ones");
}

#[test]
fn a_switch_with_tap_devices_is_replaced_under_load_and_loses_no_frame() {
    if !possible(&["python3"]) {
        return;
    }
    for (name, network) in
        [("replaced-taps", "type = \"vswitch\""), ("replaced-cards", "type = \"qdio\"\nwire = \"real\"")]
    {
        let world = World::up(name, &Setup { network, ..Setup::default() });
        let turn =
            |pairs: &[(Side, Side)]| pairs.iter().for_each(|(from, to)| world.echo(*from, *to, false, ECHO_BYTES));
        // A program of a guest cannot begin while one control program replaces another.
        while_it_runs(&world.network, || turn(&[(Red, Blue), (Blue, Red)]));
        lost_nothing(&world.red);
        lost_nothing(&world.blue);
        assert_eq!(world.counter("red", "drop_refused_by_kernel"), 0);
    }
}

#[test]
fn a_switch_with_an_uplink_is_replaced_under_load_and_loses_no_frame() {
    if !possible(&[]) {
        return;
    }
    let (host, outside, red) = (Place::new(), Place::new(), Place::new());
    host.run(&format!("ip link add up0 type veth peer name out0 netns {}", outside.pid()));
    host.run("ip link set up0 up");
    outside.run("ip link set out0 up");
    outside.run("ip addr add 10.0.3.200/24 dev out0");
    let topology = format!(
        "[network.lan]\ntype = \"vswitch\"\nmtu = 1492\n[[network.lan.uplink]]\ninterface = \"up0\"\npid = {}\n\
         [[network.lan.port]]\nname = \"red\"\npid = {}\naddresses = [\"10.0.3.11/24\"]\n[guest.one]\n",
        host.pid(),
        red.pid()
    );
    let network = Network::up("replaced-uplink", &topology);
    wait_until("an answer", || outside.try_run("ping -c 1 -W 1 10.0.3.11").status.success());
    // A stream would overflow the queue of the interface also if the switch were not replaced.
    while_it_runs(&network, || {
        let output = outside.run("ping -c 200 -i 0.002 -W 10 10.0.3.11");
        assert!(output.contains("200 received"), "{output}{}", network.log());
    });
}
