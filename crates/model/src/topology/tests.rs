//! Tests of topologies that are accepted, and of those that are refused with an error that names the place.

use super::*;

const FIGURE_1: &str = r#"
name = "figure-1"
[network.link]
type = "vctc"
buffer = 65535
[network.lan]
type = "hipersockets"
access = "restricted"
grant = ["router", "server"]

[guest.client]
[[guest.client.device]]
network = "link"
addresses = ["10.0.1.1/24", "fd00:1::1/64"]
mtu = 57344
[[guest.client.route]]
to = "default"
via = "10.0.1.2"

[guest.router]
forwarding = true
restart = "on-failure"
[[guest.router.device]]
network = "link"
addresses = ["10.0.1.2/24", "fd00:1::2/64"]
[[guest.router.device]]
name = "hsi0"
type = "hipersockets"
network = "lan"
addresses = ["10.0.2.1/24", "fd00:2::1/64"]
buffer_count = 1000

[guest.server]
external = true
[[guest.server.device]]
network = "lan"
addresses = ["10.0.2.2/24"]
full = "drop"
"#;

#[test]
fn drivers_have_all_features_but_those_that_are_switched_off() {
    let features = Topology::parse(FIGURE_1).unwrap().features;
    // Only `direct` has to be switched on.
    assert!(features.named().iter().all(|(name, is_on)| *is_on == (*name != "direct")));
    for (feature, _) in features.named() {
        let text = FIGURE_1.replace("[network.link]", &format!("[driver]\n{feature} = false\n[network.link]"));
        let without = Topology::parse(&text).unwrap().features;
        let is_expected = |(name, is_on): &(&str, bool)| *is_on == (*name != feature && *name != "direct");
        assert!(without.named().iter().all(is_expected), "{feature}");
    }
    assert!(refused("[network.link]", "[driver]\nspeed = true\n[network.link]").contains("unknown field `speed`"));
}

fn refused(from: &str, to: &str) -> String {
    assert!(FIGURE_1.contains(from), "{from:?} is not in the topology");
    Topology::parse(&FIGURE_1.replace(from, to)).unwrap_err().to_string()
}

#[test]
fn the_environment_of_figure_1_is_read() {
    let topology = Topology::parse(FIGURE_1).unwrap();
    assert_eq!(topology.name.as_ref().unwrap().as_str(), "figure-1");
    let name = |text: &str| text.parse::<Name>().unwrap();
    let client = &topology.guests[&name("client")];
    assert_eq!(
        (client.devices[0].mtu, client.devices[0].full, client.devices[0].buffer_count),
        (57_344, Full::Pending, 32)
    );
    assert_eq!((client.routes[0].device, client.routes[0].to.to_string().as_str()), (0, "0.0.0.0/0"));
    let router = &topology.guests[&name("router")];
    assert_eq!((router.devices[0].mtu, router.devices[1].mtu), (65_527, 57_344));
    assert_eq!(router.devices[1].buffer_count, 128, "clamped, not refused");
    let lan = name("lan");
    let on: Vec<_> = topology.on(&lan).map(|(guest, place, _)| (guest.as_str(), place)).collect();
    assert_eq!(on, [("router", 1), ("server", 0)]);
    assert!(!topology.networks[&lan].access.admits(&name("client")));
}

#[test]
fn a_contradictory_topology_is_refused_with_its_place() {
    let cases = [
        ("mtu = 57344", "mtu = 57344\nmut = 5", "unknown field `mut`"),
        ("type = \"vctc\"", "type = \"token-ring\"", "unknown variant `token-ring`"),
        ("10.0.2.2/24", "10.0.2.1/24", "guest router and guest server have the same IP address 10.0.2.1"),
        ("10.0.2.2/24", "10.0.2.2", "is not an address with a prefix length"),
        ("10.0.2.2/24", "224.0.0.1/24", "224.0.0.1 cannot be the address of a guest"),
        (
            "type = \"hipersockets\"\nnetwork = \"lan\"",
            "type = \"vctc\"\nnetwork = \"lan\"",
            "a device of type vctc cannot connect to network lan, which has type hipersockets",
        ),
        (
            "mtu = 57344",
            "mtu = 65535",
            "guest client: device dev0: an MTU of 65535 bytes (on vctc, blocks of 65535 bytes) is outside the range 1280 to 65527",
        ),
        ("mtu = 57344", "mtu = 1279", "outside the range 1280 to 65527"),
        (
            "grant = [\"router\", \"server\"]",
            "grant = [\"router\"]",
            "is restricted and does not grant access to server",
        ),
        ("grant = [\"router\", \"server\"]", "grant = [\"router\", \"sever\"]", "no guest or port with this name"),
        ("buffer = 65535", "buffer = 65536", "network link: a buffer of 65536 bytes"),
        ("buffer = 65535", "frame = \"64K\"", "the key `frame` is not allowed here"),
        ("type = \"vctc\"", "type = \"hipersockets\"", "the key `buffer` is not allowed here"),
        (
            "via = \"10.0.1.2\"",
            "via = \"10.0.9.2\"",
            "route to default: the next hop 10.0.9.2 is not in the subnet of any device",
        ),
        ("to = \"default\"", "to = \"fd00::/8\"", "have different IP versions"),
        ("[guest.server]\nexternal", "[guest.\"ser ver\"]\nexternal", "is not a valid name"),
        ("name = \"hsi0\"", "name = \"dev0\"", "two devices of the guest have the same name dev0"),
        (
            "network = \"lan\"\naddresses = [\"10.0.2.2/24\"]",
            "network = \"link\"\naddresses = [\"10.0.1.3/24\"]",
            "the file has 3 devices on a CTC; at most 2 are allowed",
        ),
        ("network = \"lan\"\naddresses = [\"10.0.2.2/24\"]", "network = \"wan\"", "the topology has no network wan"),
        ("[guest.server]", "[guest.server]\nmemory_max = 1000000000", "the key `memory_max` is not allowed here"),
        (
            "[guest.router]",
            "[guest.router]\nmemory_max = 1000000",
            "memory_max = 1000000 is too small; the minimum is 67108864 bytes",
        ),
        ("[guest.server]", "[guest.server]\narena_bytes = 4096", "outside the range 262144 to 1073741824"),
        ("[guest.server]", "[guest.server]\napplications_max = 1025", "outside the range 0 to 1024"),
    ];
    for (from, to, why) in cases {
        let error = refused(from, to);
        assert!(error.contains(why), "{to:?}: {error}");
    }
    assert!(Topology::parse("").unwrap_err().to_string().contains("no guest"));
    let both = "[network.a]\ntype=\"vctc\"\n[guest.g]\ndevice=[{network=\"a\"},{network=\"a\"}]";
    assert!(Topology::parse(both).unwrap_err().to_string().contains("both ends of a CTC belong to the guest g"));
    let frame = "[network.a]\ntype=\"hipersockets\"\nframe=\"32K\"\n[guest.g]";
    assert!(Topology::parse(frame).unwrap_err().to_string().contains("\"40K\""));
}

#[test]
fn a_router_whose_partners_would_have_to_know_too_many_prefixes_is_refused() {
    let with_guests = |count: u32| {
        let mut text = String::from(
            "[network.lan]\ntype = \"hipersockets\"\n[network.far]\ntype = \"hipersockets\"\n[guest.gate]\nforwarding = true\n\
             device = [{ network = \"lan\", addresses = [\"10.0.0.1/24\"] }, { network = \"far\", addresses = [\"10.1.0.1/24\"] }]\n\
             route = [{ to = \"default\", via = \"10.1.0.2\" }]\n",
        );
        for guest in 0..count {
            // None of the guest's addresses is in the prefix of the router's network, so each is an exception to the default
            // route.
            let own = |n: u32| format!("\"10.{}.{}.{}/32\"", 2 + guest / 32, guest % 32, 2 * n);
            let addresses = (0..8).map(own).collect::<Vec<_>>().join(", ");
            text += &format!("[guest.g{guest}]\ndevice = [{{ network = \"lan\", addresses = [{addresses}] }}]\n");
        }
        Topology::parse(&text)
    };
    assert!(with_guests(200).is_ok());
    let error = with_guests(300).unwrap_err().to_string();
    assert!(error.contains("guest gate, device dev0") && error.contains("prefixes of source addresses"), "{error}");
}

#[test]
fn guests_and_switches_have_their_own_limit_of_packets_that_wait() {
    let text = |network: &str, guest: &str| {
        format!(
            "[network.lan]\ntype = \"vswitch\"\n{network}\n[guest.a]\n{guest}\n\
             device = [{{ network = \"lan\" }}]\n[guest.b]\ndevice = [{{ network = \"lan\" }}]\n"
        )
    };
    let topology = Topology::parse(&text("netdev_max_backlog = 2500", "netdev_max_backlog = 1000")).unwrap();
    let packets = ["lan", "a", "b"].map(|name| topology.guests[&name.parse().unwrap()].devices[0].netdev_max_backlog);
    assert_eq!(packets, [2_500, 1_000, 256]);
    for value in ["0", "16385"] {
        let setting = format!("netdev_max_backlog = {value}");
        for text in [text(&setting, ""), text("", &setting)] {
            let error = Topology::parse(&text).unwrap_err().to_string();
            assert!(error.contains(&format!("{setting} is outside the range 1 to 16384")), "{error}");
        }
    }
    let error =
        Topology::parse(&text("", "").replace("vswitch\"", "hipersockets\"\nnetdev_max_backlog = 9")).unwrap_err();
    assert!(error.to_string().contains("netdev_max_backlog"), "{error}");
}

#[test]
fn settings_of_tcp_are_read_as_the_text_that_linux_has_for_guests_and_prefixes() {
    let text = FIGURE_1
        .replace(
            "[guest.client]\n",
            "[guest.client]\ntcp = { tcp_sack = false, tcp_rmem = [4096, 9000, 9000], tcp_congestion_control = \"reno\" }\n",
        )
        .replace(
            "via = \"10.0.1.2\"\n",
            "via = \"10.0.1.2\"\ntcp = { initcwnd = 20 }\n[[guest.client.route]]\nto = \"10.0.1.0/24\"\ntcp.advmss = 500\n",
        );
    let topology = Topology::parse(&text).unwrap();
    let client = &topology.guests[&"client".parse().unwrap()];
    let pairs = |settings: &TcpSettings| {
        settings.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(pairs(&client.tcp), "tcp_congestion_control=reno, tcp_rmem=4096 9000 9000, tcp_sack=0");
    let to: Vec<_> = client.tcp_to.iter().map(|of| (of.to.to_string(), pairs(&of.settings))).collect();
    let expected = [("0.0.0.0/0", "initcwnd=20"), ("10.0.1.0/24", "advmss=500")];
    assert_eq!(to, expected.map(|(to, settings)| (to.to_owned(), settings.to_owned())));
    assert_eq!(client.routes.len(), 1, "settings without a next hop are no route");
    let without = refused("via = \"10.0.1.2\"\n", "");
    assert!(without.contains("route to default"), "{without}");
    let odd = refused("[guest.client]\n", "[guest.client]\ntcp = { tcp_sack = 1.5 }\n");
    assert!(odd.contains("guest client: the value of tcp.tcp_sack has the wrong type"), "{odd}");
    let neither = refused("via = \"10.0.1.2\"\n", "via = \"10.0.1.2\"\n[[guest.client.route]]\nto = \"10.0.1.0/24\"\n");
    assert!(
        neither.contains("route to 10.0.1.0/24: the route of the guest has neither a next hop nor TCP settings"),
        "{neither}"
    );
}

#[test]
fn a_virtual_ctc_has_one_modelled_link_at_most() {
    let topology = |one: &str, other: &str, kind: &str| {
        let device = |address: &str, link: &str| {
            format!("device = [{{ network = \"n\", addresses = [\"{address}/24\"]{link} }}]")
        };
        let (one, other) = (device("10.0.0.1", one), device("10.0.0.2", other));
        Topology::parse(&format!("[network.n]\ntype = \"{kind}\"\n[guest.a]\n{one}\n[guest.b]\n{other}\n"))
    };
    let link = ", link = \"latency=5ms\"";
    let read = topology(link, "", "vctc").unwrap();
    let device = &read.guests[&"a".parse().unwrap()].devices[0];
    assert!(device.link.from_station.is_some() && device.link.from_station == device.link.to_station);
    for (one, other, kind, part) in [
        (link, ", link = { to_station = \"loss=1%\" }", "vctc", "both devices of a CTC have a modelled link"),
        (link, "", "hipersockets", "devices on networks of type hipersockets do not have this key"),
        (", link = \"rate=0bit\"", "", "vctc", "write a rate"),
        (", link = \"loss=1%\"", "", "ctc", "only the settings rate and latency"),
        (link, link, "ctc", "both devices of a CTC have a modelled link"),
        ("", ", link = { to_guest = \"loss=1%\" }", "vctc", "to_guest"),
    ] {
        let error = topology(one, other, kind).unwrap_err();
        assert!(error.exit_status() == 2 && error.to_string().contains(part), "{error}");
    }
}

#[test]
fn a_path_of_netiucv_has_the_mtu_and_the_message_limit_of_its_type() {
    let topology = |network: &str, device: &str| {
        Topology::parse(&format!(
            "[network.link]\ntype = \"netiucv\"\n{network}\n[guest.a]\ndevice = [{{ network = \"link\"{device} }}]\n\
             [guest.b]\ndevice = [{{ network = \"link\" }}]"
        ))
    };
    let device = |topology: Topology| topology.guests[&"a".parse().unwrap()].devices[0].clone();
    let read = device(topology("", "").unwrap());
    assert_eq!((read.mtu, read.buffer_count), (9_216, 50));
    let read = device(topology("buffer = 4000", ", buffer_count = 200").unwrap());
    assert_eq!((read.mtu, read.buffer_count), (3_998, 128));
    assert_eq!(device(topology("", ", mtu = 32766").unwrap()).mtu, 32_766);
    for (network, with, part) in [
        ("", ", mtu = 32767", "outside the range 576 to 32766"),
        ("buffer = 32769", "", "outside the range 578 to 32768"),
        ("frame = \"64K\"", "", "networks of type netiucv have the key `buffer` instead"),
        ("", " }, { network = \"link\"", "the file has 3 devices on an IUCV path"),
        ("", ", name = \"x\" }, { network = \"link\", name = \"x\"", "two devices of the guest have the same name x"),
        ("", ", mac = \"02:00:00:00:00:01\"", "the key `mac` is not allowed here"),
    ] {
        let error = topology(network, with).unwrap_err().to_string();
        assert!(error.contains(part), "{network} {with}: {error}");
    }
}

#[test]
fn a_device_of_claw_has_names_and_sizes_and_a_contradiction_is_refused() {
    let topology = |network: &str, one: &str, other: &str| {
        Topology::parse(&format!(
            "[network.link]\ntype = \"claw\"\n{network}\n[guest.alpha-guest]\ndevice = [{{ network = \"link\"{one} }}]\n\
             [guest.b]\ndevice = [{{ network = \"link\"{other} }}]"
        ))
    };
    let names = |topology: &Topology| {
        let ends = topology.guests.values().map(|guest| {
            let claw = guest.devices[0].claw.as_ref().unwrap().complete(topology, &guest.devices[0]);
            (claw.host_name, claw.adapter_name)
        });
        ends.collect::<Vec<_>>()
    };
    let pair = |one: &str, other: &str| (one.to_owned(), other.to_owned());
    let read = topology("", "", "").unwrap();
    assert_eq!(names(&read), [pair("ALPHA-GU", "B"), pair("B", "ALPHA-GU")]);
    let device = &read.guests[&"b".parse().unwrap()].devices[0];
    assert_eq!((device.mtu, device.buffer_count), (4_096, 25));
    // A name that one device gives is the default at the other.
    let read = topology("", ", host_name = \"LINUX1\"", "").unwrap();
    assert_eq!(names(&read), [pair("LINUX1", "B"), pair("B", "LINUX1")]);
    // siga starts a network whose names do not match. Its devices refuse each other.
    assert!(topology("", ", adapter_name = \"OTHER\"", "").is_ok());
    for (network, one, part) in [
        ("", ", host_name = \"LONGNAME1\"", "is not a name of CLAW"),
        ("", ", host_name = \"X\", adapter_name = \"X\"", "must be different"),
        ("", ", buffer_count = 200", "a buffer_count of 200 (on a network of type claw) is outside the range 8 to 128"),
        ("", ", mtu = 32757", "outside the range 576 to 32756"),
        ("", ", mtu = 8181, write_size = 8192", "whose largest packet has 8180 bytes"),
        ("", ", read_size = 100", "outside the range 4096 to 32768"),
        ("buffer = 100", "", "outside the range 4096 to 32768"),
        ("", ", link = \"loss=1%\"", "only the settings rate and latency"),
        ("", " }, { network = \"link\"", "the file has 3 devices on a CLAW channel"),
    ] {
        let error = topology(network, one, "").unwrap_err().to_string();
        assert!(error.contains(part), "{network} {one}: {error}");
    }
    let vctc = "[network.link]\ntype = \"vctc\"\n[guest.a]\ndevice = [{ network = \"link\", host_name = \"X\" }]";
    let error = Topology::parse(vctc).unwrap_err().to_string();
    assert!(error.contains("only devices on networks of type claw have this key"), "{error}");
}

#[test]
fn a_network_of_lcs_carries_ipv4_with_the_mtu_of_ethernet_over_a_modelled_or_a_real_wire() {
    let topology = |network: &str, device: &str| {
        Topology::parse(&format!(
            "[network.lan]\ntype = \"lcs\"\n{network}\n[guest.a]\ndevice = [{{ network = \"lan\"{device} }}]"
        ))
    };
    let device = |topology: Topology| topology.guests[&"a".parse().unwrap()].devices[0].clone();
    let read = device(topology("", "").unwrap());
    assert_eq!((read.mtu, read.buffer_count), (1_500, 32));
    assert_eq!(read.port.unwrap().link.from_station.unwrap().label(), "rate=100mbit,latency=200us");
    let link = |network: &str, with: &str| device(topology(network, with).unwrap()).port.unwrap().link;
    assert_eq!(link("wire = \"real\"", ""), PortLink::default());
    assert_eq!(link("", ", link = \"rate=10mbit\"").to_station.unwrap().label(), "rate=10mbit");
    for (network, with, part) in [
        ("wire = \"1gbe\"", "", "a network of type lcs only has wire = \"real\""),
        ("mtu = 1501", "", "outside the range 576 to 1500"),
        ("layer = \"ip\"", "", "carries only IPv4 packets"),
        ("", ", addresses = [\"fd00::1/64\"]", "a network of type lcs carries only IPv4 packets"),
        ("", ", buffer_count = 7", "a buffer_count of 7 (on a network of type lcs) is outside the range 8 to 128"),
        ("", ", card = \"x\"", "only devices on networks of type qdio have this key"),
    ] {
        let error = topology(network, with).unwrap_err().to_string();
        assert!(error.contains(part), "{network} {with}: {error}");
    }
}
