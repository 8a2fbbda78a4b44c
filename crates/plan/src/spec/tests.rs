//! Tests of specifications of paths.

use super::*;
use crate::qdisc::Qdisc;
use siga_model::topology::Topology;

fn check(change: impl FnOnce(&mut PathSpec)) -> Result<()> {
    let mut spec = PathSpec { kind: PathKind::Veth, mtu: None, ipv6: false, level: Level::plain() };
    change(&mut spec);
    spec.check()
}

fn check_sysctl(name: &str, value: &str) -> Result<()> {
    check(|spec| spec.level.sysctl = [(name.to_owned(), value.to_owned())].into())
}

#[test]
fn a_spec_without_mtu_has_its_types_frames() {
    let spec = |kind| PathSpec { kind, mtu: None, ipv6: false, level: Level::plain() };
    assert_eq!(spec(PathKind::Loopback).frame_mtu(), Some(65_536));
    assert_eq!(spec(PathKind::Unix).frame_mtu(), None);
}

#[test]
fn unix_takes_neither_mtu_nor_ipv6() {
    assert!(check(|spec| spec.kind = PathKind::Unix).is_ok());
    assert!(check(|spec| (spec.kind, spec.mtu) = (PathKind::Unix, Some(1_500))).is_err());
    assert!(check(|spec| (spec.kind, spec.ipv6) = (PathKind::Unix, true)).is_err());
}

#[test]
fn a_spec_has_the_mtu_of_its_level_and_no_other() {
    let level = || Level { mtu: Some(8_992), ..Level::plain() };
    let spec = PathSpec { kind: PathKind::Veth, mtu: None, ipv6: false, level: level() };
    assert_eq!(spec.frame_mtu(), Some(8_992));
    assert!(check(|spec| (spec.mtu, spec.level) = (Some(8_992), level())).is_ok());
    assert!(check(|spec| (spec.mtu, spec.level) = (Some(1_500), level())).is_err());
    assert!(check(|spec| spec.level.mtu = Some(65_536)).is_err());
}

#[test]
fn a_path_refuses_a_level_that_it_cannot_have() {
    let ruleset = || Level { nftables: Some("flush ruleset".into()), ..Level::plain() };
    let jumbo = || Level { mtu: Some(8_992), ..Level::plain() };
    let queued = || Level { qdisc: Some(Qdisc::Fq), ..Level::plain() };
    for kind in PathKind::ALL {
        let filters = !matches!(kind, PathKind::Unix | PathKind::SmcLoopback | PathKind::Sockmap);
        assert_eq!(check(|spec| (spec.kind, spec.level) = (kind, ruleset())).is_ok(), filters, "{kind}");
        assert_eq!(check(|spec| (spec.kind, spec.level) = (kind, queued())).is_ok(), filters, "{kind}");
        assert_eq!(
            check(|spec| (spec.kind, spec.level) = (kind, jumbo())).is_ok(),
            !matches!(kind, PathKind::Unix | PathKind::SmcLoopback),
            "{kind}"
        );
    }
}

#[test]
fn sysctl_names_cannot_leave_the_network_part() {
    assert!(check_sysctl("net.ipv4.conf.siga-c.rp_filter", "1").is_ok());
    for name in ["kernel.panic", "net", "net.", "net..ipv4", "net.ipv4/../../kernel/panic", "net.ipv4.tcp_rmem\n"] {
        let error = check_sysctl(name, "1").unwrap_err();
        assert_eq!(error.kind(), siga_model::error::ErrorKind::Usage, "{name}");
    }
}

#[test]
fn sysctl_values_are_one_line() {
    assert!(check_sysctl("net.ipv4.tcp_rmem", "4096\t65536 1000000").is_ok());
    assert!(check_sysctl("net.ipv4.tcp_sack", "").is_err());
    assert!(check_sysctl("net.ipv4.tcp_sack", "1\n0").is_err());
}

#[test]
fn congestion_control_is_chosen_by_its_own_setting() {
    let error = check_sysctl("net.ipv4.tcp_congestion_control", "reno").unwrap_err();
    assert!(error.to_string().contains("congestion = "), "{error}");
    assert!(check(|spec| spec.level.congestion = Some("reno".into())).is_ok());
    for name in ["", "two words", "longer-than-the-kernel-takes"] {
        assert!(check(|spec| spec.level.congestion = Some(name.into())).is_err(), "{name}");
    }
}

#[test]
fn sysctls_are_settings_of_guests_and_switches() {
    let level = |name: &str, value: &str| {
        let sysctl = [(name.to_owned(), value.to_owned())].into();
        Level { name: "own".into(), sysctl, ..Level::default() }
    };
    let lacks = |path: &str, name: &str, value: &str| {
        path.parse::<GuestPath>().unwrap().lacks(&level(name, value)).unwrap_or_default()
    };
    let (wmem, backlog) = ("net.ipv4.tcp_wmem", "net.core.netdev_max_backlog");
    assert_eq!(lacks("hipersockets", wmem, "4096 16384 131072"), "");
    assert_eq!(lacks("hipersockets-routed", backlog, "2500"), "");
    assert_eq!(lacks("vswitch", backlog, "2500"), "");
    assert!(lacks("hipersockets", backlog, "2500").contains("has no router and no switch"));
    assert!(lacks("vswitch-netns", wmem, "4096 16384 131072").contains("uses the kernel's stack"));
    assert!(lacks("vctc", "net.core.somaxconn", "9").contains("sets kernel settings (net.core.somaxconn)"));
    let error = check_sysctl_value(backlog, "many").unwrap_err();
    assert!(error.contains("`many` is not a value for sysctl"), "{error}");
    let path = "vswitch-routed".parse().unwrap();
    let sysctl = level(backlog, "2500").sysctl;
    let (wait, guests) = (Waiting::Poll, Guests::default());
    let spec = GuestSpec { path, mtu: 1_500, ipv6: false, wait, guests, link: None, sysctl, applications: 1 };
    let topology = Topology::parse(&spec.topology()).unwrap();
    for name in ["lan", NAMES[1]] {
        let guest = &topology.guests[&name.parse().unwrap()];
        assert!(guest.devices.iter().all(|device| device.netdev_max_backlog == 2_500), "{name}");
    }
}

#[test]
fn two_more_guests_share_the_cards_of_client_and_server() {
    let queue = |text: &str| Some(text.parse().unwrap());
    let guests = Guests {
        neighbour: queue("no_prio_queueing:0"),
        priority_queueing: queue("no_prio_queueing:3"),
        ..Guests::default()
    };
    let (path, link) = ("qdio-1gbe".parse::<GuestPath>().unwrap(), Some("rate=100mbit".parse().unwrap()));
    let (wait, sysctl) = (Waiting::Poll, BTreeMap::new());
    let spec = GuestSpec { path, mtu: 1_492, ipv6: false, wait, guests, link, sysctl, applications: 1 };
    let topology = Topology::parse(&spec.topology()).unwrap();
    let card = |name: &str| {
        let port = topology.guests[&name.parse().unwrap()].devices[0].port.clone().unwrap();
        let card = port.card.unwrap();
        (card.name.unwrap().to_string(), card.queueing.to_string(), port.link.from_station.is_some())
    };
    let (own, others) = ("no_prio_queueing:3", "no_prio_queueing:0");
    let [client, _, server] = NAMES;
    for (name, of, queue) in
        [(client, client, own), (NEIGHBOURS[0], client, others), (server, server, own), (NEIGHBOURS[1], server, others)]
    {
        assert_eq!(card(name), (of.to_owned(), queue.to_owned(), true), "{name}");
    }
    let level = Level { name: "own".into(), guests: Some(guests), ..Level::default() };
    assert_eq!(path.lacks(&level), None);
    for other in ["qdio-10gbe", "qdio-1gbe-routed", "qdio-1gbe-iucv", "vswitch"] {
        assert!(other.parse::<GuestPath>().unwrap().lacks(&level).is_some(), "{other}");
    }
}

fn check_sysctl_value(name: &str, value: &str) -> std::result::Result<(), String> {
    super::check_sysctl(name, value).map_err(|error| error.to_string())
}

#[test]
fn every_path_has_a_topology_that_holds_at_each_end_of_its_range() {
    for path in GuestPath::ALL {
        assert_eq!(path.name().parse::<GuestPath>().unwrap(), path);
        for ipv6 in [false, true] {
            if ipv6 && path.medium.carries_only_v4() {
                continue;
            }
            let (least, most) = path.mtu_range(ipv6);
            assert!((least..=most).contains(&path.mtu_default()));
            for mtu in [least, 1_500, most] {
                let link = path.medium.takes_links().then(|| "latency=1ms".parse().unwrap());
                let (wait, guests) = (Waiting::Poll, Guests::default());
                let sysctl = [("net.ipv4.tcp_wmem".to_owned(), "4096 16384 131072".to_owned())].into();
                let spec = GuestSpec { path, mtu: mtu.min(57_344), ipv6, wait, guests, link, sysctl, applications: 1 };
                let links = spec.topology().matches("link = \"latency=1ms\"").count();
                assert_eq!(links, usize::from(spec.link.is_some()), "only the server has a link");
                let topology = Topology::parse(&spec.topology()).unwrap();
                assert!(topology.guests.values().all(|guest| guest.waiting == Waiting::Poll), "also switches");
                let guests: Vec<_> = topology.guests.values().filter(|guest| !guest.is_switch).collect();
                assert!(guests.iter().all(|guest| guest.tcp["tcp_wmem"] == "4096 16384 131072"));
                let switches = topology.networks.values().filter_map(|network| network.switch.as_ref());
                let ports: Vec<_> = switches.flat_map(|switch| &switch.ports).collect();
                assert_eq!(guests.len() + ports.len(), if path.routed { 3 } else { 2 });
                assert!(ports.iter().all(|port| u32::from(port.mtu) == spec.mtu && port.addresses.len() == 1));
                let inside = path.attach.in_namespaces().into_iter().filter(|inside| *inside).count();
                assert_eq!(ports.len(), inside);
                let external = guests.iter().filter(|guest| guest.external).count();
                assert_eq!(external, if path.attach == Attach::Iucv { 0 } else { 2 - inside });
            }
        }
    }
}
