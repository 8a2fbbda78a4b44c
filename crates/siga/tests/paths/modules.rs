//! Tests of paths and qdiscs whose drivers are modules of the kernel that the host may lack.

use crate::harness::*;
use crate::{build_without_privilege, carry_tcp, have_the_requested_mtu};
use siga_measure::path::{Path, Role};
use siga_model::error::ErrorKind;
use siga_plan::level::Level;
use siga_plan::path::PathKind;
use siga_plan::qdisc::{Netem, Qdisc};
use siga_plan::spec::PathSpec;
use std::process::Command;

/// The paths whose drivers are modules of Debian's kernel, with the names of these modules.
const MODULES: [(PathKind, &str); 3] =
    [(PathKind::Bond, "bonding"), (PathKind::Vlan, "8021q"), (PathKind::Ipvlan, "ipvlan")];

crate::vm::needs_vm! {
    bond_vlan_and_ipvlan_carry_tcp_over_both_ip_versions: "bonding, 8021q, ipvlan",
    bond_vlan_and_ipvlan_have_the_requested_mtu: "bonding, 8021q, ipvlan",
    an_unprivileged_user_builds_bond_vlan_and_ipvlan: "bonding, 8021q, ipvlan",
    devices_are_what_their_path_says: "bonding, 8021q, ipvlan",
    connections_over_a_bond_use_both_links: "bonding",
    settings_of_interfaces_apply_to_bond_and_vlan: "bonding, 8021q",
    a_qdisc_is_on_the_interfaces_of_the_ends_only: "bonding, 8021q, ipvlan, sch_netem, sch_fq",
}

fn kinds_of_modules() -> [PathKind; 3] {
    MODULES.map(|(kind, _)| kind)
}

fn bond_vlan_and_ipvlan_carry_tcp_over_both_ip_versions() {
    carry_tcp(&kinds_of_modules());
}

fn bond_vlan_and_ipvlan_have_the_requested_mtu() {
    have_the_requested_mtu(&kinds_of_modules());
}

fn an_unprivileged_user_builds_bond_vlan_and_ipvlan() {
    build_without_privilege(&kinds_of_modules());
}

fn devices_are_what_their_path_says() {
    for (kind, words, below) in [
        (
            PathKind::Bond,
            &["bond mode balance-xor", "xmit_hash_policy layer3+4"][..],
            &["siga-c1@", "siga-c2@", "master siga-c "][..],
        ),
        (PathKind::Vlan, &["vlan protocol 802.1Q id 100"], &["siga-c@siga-ct:"]),
        (PathKind::Ipvlan, &["ipvlan", "mode l2"], &["siga-c@"]),
    ] {
        let path = build(&spec(kind, None, false));
        for (role, name) in [(Role::Client, "siga-c"), (Role::Server, "siga-s")] {
            let text = shown(&path, role, &["-details", "link", "show", name]);
            assert!(words.iter().all(|word| text.contains(word)), "{kind}: {text}");
        }
        let links = shown(&path, Role::Client, &["link", "show"]);
        assert!(below.iter().all(|word| links.contains(word)), "{kind}: {links}");
    }
}

fn connections_over_a_bond_use_both_links() {
    let mut path = build(&spec(PathKind::Bond, None, false));
    for _ in 0..12 {
        echo(&path.built, 1_500);
    }
    let counters = path.counters().unwrap();
    for link in ["client/siga-c1", "client/siga-c2", "server/siga-s1", "server/siga-s2"] {
        assert!(counters[link].tx_bytes > 200_000, "{link} in {counters:?}");
    }
}

fn settings_of_interfaces_apply_to_bond_and_vlan() {
    let level = Level { gro: Some(true), gso: Some(false), tso: Some(false), ..Level::plain() };
    for kind in [PathKind::Bond, PathKind::Vlan] {
        let path = build(&PathSpec { level: level.clone(), ..spec(kind, None, false) });
        for (label, text) in &path.built.interfaces {
            for part in ["gro=on", "gso=off", "tso=off"] {
                assert!(text.split(' ').any(|word| word == part), "{kind}: {label}: {part} in {text}");
            }
        }
        echo(&path.built, 1_500);
    }
}

fn a_qdisc_is_on_the_interfaces_of_the_ends_only() {
    let netem = Netem {
        delay_us: 3_000,
        jitter_us: 1_000,
        loss_percent: 0.5,
        rate_bits_per_s: Some(40_000_000_000),
        queue_packets: Some(5_000),
    };
    let kinds = [PathKind::Loopback, PathKind::VethRouted, PathKind::Bridge, PathKind::Macvlan];
    for kind in kinds.into_iter().chain(kinds_of_modules()) {
        for (qdisc, words) in [
            (Qdisc::Fq, &["qdisc fq "][..]),
            (Qdisc::Netem(netem), &["qdisc netem ", "limit 5000 delay 3ms  1ms loss 0.5% rate 40Gbit"]),
        ] {
            let level = Level { qdisc: Some(qdisc), ..Level::plain() };
            let path = build(&PathSpec { level, ..spec(kind, None, false) });
            echo(&path.built, kind.mtu_default().unwrap());
            for namespace in &path.built.namespaces {
                let text = inside(namespace, || run("tc", &["qdisc", "show"]));
                let ends = text.lines().filter(|line| {
                    ["siga-c ", "siga-s ", "lo "].iter().any(|end| line.contains(&format!("dev {end}")))
                });
                let has = |line: &&str| words.iter().all(|word| line.contains(word));
                let set = text.lines().filter(has).count();
                assert_eq!(set, usize::from(namespace.role != Role::Router), "{kind} {:?}: {text}", namespace.role);
                assert_eq!(ends.filter(has).count(), set, "{kind} {:?}: {text}", namespace.role);
            }
            for (label, text) in &path.built.interfaces {
                let is_end = ["/siga-c", "/siga-s", "/lo"].iter().any(|end| label.ends_with(end));
                let expected = format!("qdisc={} ", qdisc.name());
                assert_eq!(text.contains(&expected), is_end, "{kind}: {label}: {text}");
                let details = " netem-queue=5000 netem-delay=3000us netem-jitter=1000us netem-loss=0.5000% netem-rate=40000000000bit/s";
                assert_eq!(text.ends_with(details), is_end && qdisc != Qdisc::Fq, "{kind}: {label}: {text}");
            }
        }
    }
}

#[test]
fn a_kernel_without_the_driver_is_an_error_that_names_the_module() {
    let Some(_alone) = where_paths_build() else { return };
    let netem = Level { qdisc: Some(Qdisc::Netem(Netem { delay_us: 1, ..Netem::default() })), ..Level::plain() };
    let fq = Level { qdisc: Some(Qdisc::Fq), ..Level::plain() };
    let of_modules = MODULES.map(|(kind, module)| (spec(kind, None, false), module));
    let queued = [(netem, "sch_netem"), (fq, "sch_fq")]
        .map(|(level, module)| (PathSpec { level, ..spec(PathKind::Veth, None, false) }, module));
    for (spec, module) in of_modules.into_iter().chain(queued) {
        match Path::build(SIGA.as_ref(), &spec) {
            Ok(_) => println!("skipped {module}, because this kernel has it"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Environment, "{error}");
                let text = error.to_string();
                assert!(text.contains("the kernel has no") && text.contains(&format!("`modprobe {module}`")), "{text}");
            }
        }
    }
}

/// Returns what `ip` prints in a namespace of the path.
fn shown(path: &Path, role: Role, arguments: &[&str]) -> String {
    inside(of_role(&path.built, role), || run("ip", arguments))
}

fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}
