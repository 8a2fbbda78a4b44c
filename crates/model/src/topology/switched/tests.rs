//! Tests of the tables of switched networks, and of their contradictions.

use super::*;

const PORT: &str = "[[network.lan.port]]\nname = \"web\"\nnetns = \"web\"\naddresses = [\"10.0.3.11/24\"]\n";
const GUEST: &str = "[guest.one]\ndevice = [{ network = \"lan\", addresses = [\"10.0.3.1/24\"] }]\n";

fn lan(lines: &str) -> Result<Topology> {
    Topology::parse(&format!("[network.lan]\n{lines}\n{PORT}{GUEST}"))
}

fn name(text: &str) -> Name {
    text.parse().unwrap()
}

#[test]
fn each_switched_network_has_the_mtu_of_its_type() {
    for (lines, mtu, shown) in [
        ("type = \"vswitch\"", 8_992, "vswitch, MTU 8992"),
        ("type = \"vswitch\"\nmtu = 9000", 9_000, "vswitch, MTU 9000"),
        ("type = \"guestlan\"", 8_992, "guestlan qdio ethernet, MTU 8992"),
        ("type = \"guestlan\"\nlayer = \"ip\"\nmtu = 32768", 32_768, "guestlan qdio ip, MTU 32768"),
        ("type = \"guestlan\"\nnic = \"hipersockets\"", 57_344, "guestlan hipersockets, frames of 64 KB"),
        (
            "type = \"guestlan\"\nnic = \"hipersockets\"\nframe = \"16K\"",
            8_192,
            "guestlan hipersockets, frames of 16 KB",
        ),
    ] {
        let topology = lan(lines).unwrap();
        let network = &topology.networks[&name("lan")];
        assert_eq!((network.kind.mtu_max(), network.kind.to_string().as_str()), (mtu, shown));
        assert_eq!(u32::from(topology.guests[&name("one")].devices[0].mtu), mtu);
        assert_eq!(u32::from(network.switch.as_ref().unwrap().ports[0].mtu), mtu);
    }
}

#[test]
fn a_switched_network_has_a_switch_that_is_the_only_partner_of_each_guest() {
    let text =
        format!("[network.lan]\ntype = \"vswitch\"\n{PORT}{GUEST}[guest.two]\ndevice = [{{ network = \"lan\" }}]\n");
    let topology = Topology::parse(&text).unwrap();
    let partners = |guest: &str| -> Vec<String> {
        let guest = name(guest);
        let device = &topology.guests[&guest].devices[0];
        topology.partners(&guest, device).map(|(partner, _)| partner.to_string()).collect()
    };
    assert!(topology.guests[&name("lan")].is_switch);
    assert_eq!(
        (partners("one"), partners("two"), partners("lan")),
        (vec!["lan".into()], vec!["lan".into()], vec!["one".into(), "two".into()])
    );
    let macs: BTreeSet<Mac> =
        ["one", "two"].map(|guest| topology.guests[&name(guest)].devices[0].port.as_ref().unwrap().mac).into();
    assert_eq!(macs.len(), 2);
    assert!(macs.iter().all(|mac| mac.0[0] == 2), "{macs:?}");
    assert_eq!(Topology::parse(&text).unwrap(), topology, "the addresses are the same each time");
}

#[test]
fn the_example_in_the_documentation_is_a_topology() {
    let text = include_str!("../../../../../docs/net.md");
    let section = text.split("### Guest LANs and virtual switches").nth(1).unwrap();
    let example = section.split("```toml").nth(1).unwrap().split("```").next().unwrap();
    let topology = Topology::parse(example).unwrap();
    let lan = &topology.networks[&name("lan")];
    let ports = &lan.switch.as_ref().unwrap().ports;
    assert_eq!(ports.iter().map(|port| port.name.as_str()).collect::<Vec<_>>(), ["web", "pod-1", "pod-2", "eth1"]);
    assert!(ports.iter().all(|port| lan.access.admits(&port.name)));
}

#[test]
fn a_switched_network_with_a_contradiction_is_refused() {
    let v6 = GUEST.replace("\"10.0.3.1/24\"", "\"fd00::1/64\"");
    for (lines, part) in [
        ("type = \"vswitch\"\nmtu = 9001", "9001"),
        ("type = \"guestlan\"\nmtu = 32769", "32769"),
        ("type = \"vswitch\"\nframe = \"64K\"", "frame"),
        ("type = \"vswitch\"\nnic = \"qdio\"", "nic"),
        ("type = \"vswitch\"\nbuffer = 4096", "buffer"),
        ("type = \"guestlan\"\nnic = \"token-ring\"", "token-ring"),
        ("type = \"guestlan\"\nlayer = \"transport\"", "transport"),
        ("type = \"guestlan\"\nnic = \"hipersockets\"\nmtu = 1500", "mtu"),
        ("type = \"guestlan\"\nlayer = \"ip\"\nprotection = \"off\"", "protection"),
        ("type = \"vswitch\"\nmaxconn = 1", "2 devices and ports use this network, but its maximum is 1 (maxconn)"),
        ("type = \"vswitch\"\nmaxconn = 1025", "1025"),
        ("type = \"vswitch\"\nowner = \"one\"", "owner"),
        ("type = \"vswitch\"\naccounting = true", "accounting"),
        ("type = \"hipersockets\"\naccounting = true", "accounting"),
        ("type = \"hipersockets\"\nwaiting = \"poll\"", "waiting"),
        ("type = \"guestlan\"\nowner = \"nobody\"", "nobody"),
        ("type = \"hipersockets\"\nisolation = true", "isolation"),
        ("type = \"hipersockets\"", "port"),
        ("type = \"vswitch\"\naccess = \"restricted\"\ngrant = [\"one\"]", "does not grant access to port web"),
        (
            "type = \"vswitch\"\naccess = \"restricted\"\ngrant = [\"one\", \"web\"]\nuplink = [{ interface = \"eth1\" }]",
            "does not grant access to uplink eth1",
        ),
    ] {
        let error = lan(lines).unwrap_err();
        assert!(error.to_string().contains(part), "{lines}: {error}");
    }
    for (more, part) in [
        (PORT, "two ports have the same name web"),
        (&PORT.replace("name = \"web\"", "name = \"other\""), "same interface siga0"),
        (&PORT.replace("\"web\"", "\"one\""), "have the same name one"),
        ("[[network.lan.port]]\nname = \"a\"\nnetns = \"a\"\ncount = 2\n", "count"),
        ("[[network.lan.port]]\nname = \"a\"\nmac = \"02:00:00:00:00:01\"\ncount = 2\n", "count"),
        ("[[network.lan.port]]\nname = \"a\"\ncount = 0\n", "count = 0"),
        ("[[network.lan.port]]\nname = \"a\"\ncount = 1001\n", "count = 1001"),
        ("[[network.lan.port]]\nname = \"a\"\naddresses = [\"10.0.3.253/24\"]\ncount = 3\n", "fewer than 3"),
        ("[[network.lan.port]]\nname = \"a\"\naddresses = [\"10.0.3.9/24\"]\ncount = 3\n", "IP address 10.0.3.11"),
        (
            "[[network.lan.port]]\nname = \"a\"\n[network.other]\ntype = \"vswitch\"\n[[network.other.port]]\nname = \"a\"\n",
            "networks lan and other have a port with the same name a",
        ),
        ("[[network.lan.port]]\nname = \"a\"\nnetns = \"a\"\npid = 1\n", "netns"),
        ("[[network.lan.port]]\nname = \"a\"\npid = 1\ninterface = \"much-too-long-a-name\"\n", "interface"),
        ("[[network.lan.port]]\nname = \"a\"\npid = 1\naddresses = [\"10.0.3.1/24\"]\n", "IP address 10.0.3.1"),
        ("[[network.lan.port]]\nname = \"a\"\npid = 1\nvlan = 4095\n", "4095"),
        ("[[network.lan.port]]\nname = \"a\"\npid = 1\nvlans = [1]\nvlan = 2\n", "trunk"),
        ("[[network.lan.port]]\nname = \"a\"\npid = 1\nnative = 2\n", "native"),
        ("[[network.lan.port]]\nname = \"a\"\npid = 1\nmac = \"03:00:00:00:00:01\"\n", "mac"),
        (
            "[[network.lan.port]]\nname = \"a\"\npid = 1\nroute = [{ to = \"default\", via = \"10.0.9.1\" }]\n",
            "10.0.9.1",
        ),
        ("[guest.lan]\n", "have the same name lan"),
    ] {
        let error = lan(&format!("type = \"vswitch\"\n{more}")).unwrap_err();
        assert!(error.to_string().contains(part), "{more}: {error}");
    }
    let same = "mac = \"02:00:00:00:00:01\"";
    let ports = format!("{PORT}{same}\n{}{same}\n", PORT.replace("web", "net").replace(".11", ".12"));
    let error = Topology::parse(&format!("[network.lan]\ntype = \"vswitch\"\n{ports}{GUEST}")).unwrap_err();
    assert!(error.to_string().contains("have the same Ethernet address 02:00:00:00:00:01"), "{error}");
    let text = format!("[network.lan]\ntype = \"guestlan\"\nnic = \"hipersockets\"\n{v6}");
    let error = Topology::parse(&text).unwrap_err();
    assert!(error.to_string().contains("only IPv4 packets"), "{error}");
    for key in ["mac = \"02:00:00:00:00:01\"", "vlan = 3", "isolated = true", "promiscuous = true"] {
        let text = format!("[network.l]\ntype = \"hipersockets\"\n[guest.a]\ndevice = [{{ network = \"l\", {key} }}]");
        assert!(Topology::parse(&text).unwrap_err().to_string().contains("guestlan, vswitch, qdio and lcs"), "{key}");
    }
}

#[test]
fn a_count_stands_for_numbered_ports_with_consecutive_addresses() {
    let ports = "[[network.lan.port]]\nname = \"pod\"\ncount = 3\naddresses = [\"10.0.2.254/23\", \"fd00::ffff/64\"]\n";
    let topology = lan(&format!("type = \"vswitch\"\n{ports}")).unwrap();
    let ports = &topology.networks[&name("lan")].switch.as_ref().unwrap().ports;
    let granted = |name: &str| {
        let grant = format!("type = \"vswitch\"\naccess = \"restricted\"\ngrant = [\"one\", \"web\", \"{name}\"]\n");
        let two = "[[network.lan.port]]\nname = \"pod\"\ncount = 2\n";
        lan(&format!("{grant}{two}")).map(|topology| topology.networks[&self::name("lan")].access.clone())
    };
    let both = granted("pod").unwrap();
    assert!(both.admits(&name("pod-1")) && both.admits(&name("pod-2")) && !both.admits(&name("pod")));
    for (unknown, part) in
        [("pod-3", "contains the name pod-3"), ("pod-01", "contains the name pod-01"), ("pod-1", "port pod-2")]
    {
        let error = granted(unknown).unwrap_err().to_string();
        assert!(error.contains(part), "{unknown}: {error}");
    }
    let pods: Vec<_> = ports.iter().filter(|port| port.place == Where::Joins).collect();
    let shown = |port: &KernelPort| format!("{} {} {}", port.name, port.addresses[0], port.addresses[1]);
    assert_eq!(
        pods.iter().map(|port| shown(port)).collect::<Vec<_>>(),
        ["pod-1 10.0.2.254/23 fd00::ffff/64", "pod-2 10.0.2.255/23 fd00::1:0/64", "pod-3 10.0.3.0/23 fd00::1:1/64"]
    );
    assert_eq!(pods.iter().map(|port| port.settings.mac).collect::<BTreeSet<_>>().len(), 3);
}
