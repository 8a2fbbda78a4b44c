//! Namespaces that ask for their addresses: with busybox's DHCP client, and with the kernel's own autoconfiguration.

use super::network::{Network, kill, wait_until};
use super::place::{Place, possible};
use super::{PYTHON, counter_of};
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Stdio};

/// Does what the DHCP client asks for, and adds what the client knows to a file.
const SCRIPT: &str = "#!/bin/sh
echo \"$1 ip=$ip mask=$mask router=$router mtu=$mtu lease=$lease hostname=$hostname serverid=$serverid routes=$staticroutes\" >> \"$0.said\"
case $1 in bound|renew)
    ip addr replace $ip/$mask dev $interface
    ip link set $interface mtu $mtu
    for via in $router; do ip route replace default via $via dev $interface; done
esac
";

/// Guest `one` routes between the switch and guest `far`.
fn topology(more: &str, port: &str) -> String {
    format!(
        "[network.lan]\ntype = \"vswitch\"\nmtu = 1500\n{more}\n[network.ring]\ntype = \"hipersockets\"\n\
         [[network.lan.port]]\nname = \"pod\"\naddresses = [\"10.0.3.11/24\", \"fd00:3::/64\"]\n{port}\n\
         route = [{{ to = \"default\", via = \"10.0.3.1\" }}, {{ to = \"default\", via = \"fd00:3::1\" }}]\n\
         [guest.one]\nforwarding = true\ndevice = [{{ network = \"lan\", addresses = [\"10.0.3.1/24\", \"fd00:3::1/64\"] }}, \
         {{ network = \"ring\", addresses = [\"10.0.4.1/24\", \"fd00:4::1/64\"] }}]\n\
         [guest.far]\ndevice = [{{ network = \"ring\", addresses = [\"10.0.4.9/24\", \"fd00:4::9/64\"] }}]\n\
         route = [{{ to = \"default\", via = \"10.0.4.1\" }}, {{ to = \"default\", via = \"fd00:4::1\" }}]\n"
    )
}

/// Returns the path of the script, whose name ends the path of the file with what the client knows.
fn script(network: &Network) -> String {
    let path = network.base.path().join("script");
    std::fs::write(&path, SCRIPT).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

/// A DHCP client in a namespace. It is killed when this value is dropped.
struct Client {
    child: Child,
    script: String,
}

impl Client {
    fn start(network: &Network, place: &Place) -> Self {
        let script = script(network);
        let line = format!("busybox udhcpc -f -i siga0 -t 10 -T 1 -O mtu -O staticroutes -O hostname -s {script}");
        let mut command = place.command(&line.split(' ').collect::<Vec<_>>());
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        Self { child, script }
    }

    /// Returns what the client has said to its script.
    fn said(&self) -> String {
        std::fs::read_to_string(format!("{}.said", self.script)).unwrap_or_default()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_dhcp_client_gets_the_address_routes_and_mtu_of_its_port_and_renews_them() {
    if !possible(&["busybox"]) {
        return;
    }
    let place = Place::new();
    let pid = place.pid();
    let port = format!("pid = {pid}\nmtu = 1400\ndhcp = true\nrouter_advertisements = true");
    let network = Network::up("dhcp", &topology("", &port));
    assert!(!place.run("ip -o addr show dev siga0").contains("inet 10."), "siga configures no IPv4 address");
    let client = Client::start(&network, &place);
    wait_until("a lease", || client.said().contains("bound"));
    let bound = client.said().lines().find(|line| line.starts_with("bound")).unwrap().to_owned();
    for part in [
        "ip=10.0.3.11 mask=24 router=10.0.3.1 mtu=1400 lease=3600 hostname=pod serverid=169.254.0.67",
        "0.0.0.0/0 10.0.3.1",
        "169.254.0.67/32 0.0.0.0",
    ] {
        assert!(bound.contains(part), "{part}: {bound}");
    }
    place.run("ping -c 1 -W 5 10.0.3.1");
    place.run("ping -c 1 -W 5 10.0.4.9");
    // A renewal is a request to the server alone, and not a broadcast.
    let renew = |client: &Client| {
        let pid = rustix::process::Pid::from_raw(client.child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::USR1).unwrap();
    };
    renew(&client);
    wait_until("a renewal", || client.said().contains("renew ip=10.0.3.11"));
    // Another switch knows the same, because it has no leases.
    kill(network.pid_of("lan").unwrap());
    wait_until("an answer over another switch", || place.try_run("ping -c 1 -W 1 10.0.3.1").status.success());
    renew(&client);
    wait_until("a renewal at another switch", || client.said().matches("renew ip=10.0.3.11").count() >= 2);
    assert!(counter_of(&network, "pod", "port_address_answers") >= 1);
    let status = network.text(&["status", "dhcp", "--detail"]);
    assert!(status.contains("connected, DHCP and router advertisements"), "{status}");
}

#[test]
fn the_kernel_configures_addresses_and_routes_from_router_advertisements() {
    if !possible(&[]) {
        return;
    }
    let place = Place::new();
    let port = format!("pid = {}", place.pid());
    let network = Network::up("slaac", &topology("router_advertisements = true", &port));
    let addresses = || place.run("ip -6 -o addr show dev siga0");
    wait_until("an address", || {
        addresses().lines().any(|line| line.contains("inet6 fd00:3::") && !line.contains("tentative"))
    });
    assert!(addresses().contains("dynamic"), "the kernel made it: {}", addresses());
    assert!(place.run("ip -4 -o addr show dev siga0").contains("10.0.3.11/24"), "siga configures IPv4");
    let route = place.run("ip -6 route show default");
    assert!(route.contains("via fe80::") && route.contains("proto ra"), "{route}");
    place.run("ping -c 1 -W 5 fd00:3::1");
    place.run("ping -c 1 -W 5 fd00:4::9");
    assert!(network.siga(&["ping", "slaac", "far", own_v6(&place).as_str(), "-c", "1"]).status.success());
    // The kernel asks whether the router is reachable by its link-local address.
    wait_until("a reachable router", || {
        let _ = place.try_run("ping -c 1 -W 1 fd00:4::9");
        place
            .run("ip -6 neigh show dev siga0")
            .lines()
            .any(|line| line.starts_with("fe80::") && line.contains("router") && line.contains("REACHABLE"))
    });
    assert_eq!(counter_of(&network, "pod", "drop_spoofed_ip"), 0);
}

/// Returns the address that the kernel has made.
fn own_v6(place: &Place) -> String {
    let shown = place.run("ip -6 -o addr show dev siga0 scope global");
    shown.split_once("inet6 ").unwrap().1.split('/').next().unwrap().to_owned()
}

#[test]
fn a_namespace_that_joins_asks_for_its_addresses_and_one_that_is_not_to_ask_gets_no_answer() {
    if !possible(&["busybox", "python3"]) {
        return;
    }
    let other = "[[network.lan.port]]\nname = \"mute\"\naddresses = [\"10.0.3.12/24\"]\ndhcp = false\n\
        router_advertisements = false\n";
    let more = "dhcp = true\nrouter_advertisements = true\nprotection = \"off\"";
    let network = Network::up("asks", &(topology(more, "") + other));
    let script = script(&network);
    let run = |port: &str, line: &str| {
        let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
        siga.args(["netns", "asks", port, "--wait", "20", "--", "sh", "-c", line])
            .env("SIGA_RUN_DIR", network.run_dir());
        siga.stdin(Stdio::null()).output().unwrap()
    };
    let asks =
        |interface: &str, times: u8| format!("busybox udhcpc -n -q -i {interface} -t {times} -T 1 -O mtu -s {script}");
    let line = format!("{} && ping -c 1 -W 5 10.0.4.9", asks("siga0", 10));
    let joined = run("pod", &line);
    assert!(joined.status.success(), "{joined:?}");
    // A second station at the port has another Ethernet address.
    let second =
        format!("ip link add second link siga0 type macvlan && ip link set second up && {}", asks("second", 2));
    let mut siga = Command::new(env!("CARGO_BIN_EXE_siga"));
    siga.args(["netns", "asks", "pod", "--wait", "20", "--", "sh", "-c", &format!("{second}; exec cat")]);
    siga.env("SIGA_RUN_DIR", network.run_dir()).stdin(Stdio::piped()).stdout(Stdio::null());
    let mut holder = siga.spawn().unwrap();
    let has_joined = || !network.status()["networks"][0]["tenants"].as_object().unwrap().is_empty();
    wait_until("a namespace at the port", has_joined);
    wait_until("a foreign client", || {
        let status = network.text(&["status", "asks", "--detail"]);
        status.lines().any(|line| line.trim().starts_with("drop_foreign_client") && !line.trim().ends_with(" 0"))
    });
    // Another station answers requests that it has not seen.
    let answers = "import socket\nout = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nout.bind(('', 67))\n\
        out.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)\n\
        [out.sendto(bytes(300), (to, 68)) for to in ('10.0.3.255', '10.0.3.1')]";
    assert!(run("mute", &format!("{PYTHON} -c \"{answers}\"")).status.success());
    assert_eq!(counter_of(&network, "pod", "drop_other_dhcp_server"), 1, "the broadcast");
    assert_eq!(counter_of(&network, "one", "drop_other_dhcp_server"), 0, "only ports with DHCP refuse them");
    drop(holder.stdin.take());
    let _ = holder.wait();
    let refused = run("mute", &asks("siga0", 2));
    assert!(!refused.status.success(), "{refused:?}");
    let shown = run("mute", "ip -o addr show dev siga0");
    assert!(String::from_utf8_lossy(&shown.stdout).contains("10.0.3.12/24"), "siga configures it: {shown:?}");
}
