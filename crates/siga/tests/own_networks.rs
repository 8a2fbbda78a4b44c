//! The user's own networks as paths: the routers and switches between client and server are found and charged by name.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::Bench;
use std::fs;

/// Two routers and a switch between a client and a server; `end` says where the ends run.
fn topology(end: &str) -> String {
    let guest = |name: &str, more: &str, devices: &[(&str, &str)], route: (&str, &str)| {
        let mut text = format!("[guest.{name}]\n{more}\n");
        for (network, address) in devices {
            text += &format!("[[guest.{name}.device]]\nnetwork = \"{network}\"\naddresses = [\"{address}\"]\n");
        }
        text + &format!("[[guest.{name}.route]]\nto = \"{}\"\nvia = \"{}\"\n", route.0, route.1)
    };
    [
        "name = \"mine\"\n[network.link]\ntype = \"vctc\"\n[network.mid]\ntype = \"vswitch\"\nmtu = 1500\n[network.lan]\n\
        type = \"hipersockets\"\n"
            .to_owned(),
        guest("inside", end, &[("link", "10.1.1.1/24")], ("default", "10.1.1.2")),
        guest("near", "forwarding = true", &[("link", "10.1.1.2/24"), ("mid", "10.1.2.1/24")], ("default", "10.1.2.2")),
        guest("far", "forwarding = true", &[("mid", "10.1.2.2/24"), ("lan", "10.1.3.1/24")], ("default", "10.1.2.1")),
        guest("outside", end, &[("lan", "10.1.3.2/24")], ("default", "10.1.3.1")),
        guest("beside", "", &[("lan", "10.1.3.3/24")], ("10.7.0.0/16", "10.1.3.1")),
    ]
    .concat()
}

/// Checks the record of the only trial in the directory `run`: both routers and the switch used CPU time, and the router's CPU time is the
/// sum of both.
fn check_charges(bench: &Bench) {
    let trial = fs::read_to_string(bench.path("run/trials.jsonl")).unwrap();
    let trial: serde_json::Value = serde_json::from_str(trial.lines().next().unwrap()).unwrap();
    let between = trial["cpu"]["between"].as_object().unwrap();
    assert!(between.keys().eq(["router far", "router near", "switch mid"]), "{between:?}");
    let time = |name: &str| between[name]["run_ns"].as_u64().unwrap();
    assert!(between.keys().all(|name| time(name) > 0), "{between:?}");
    assert_eq!(
        trial["cpu"]["guests"]["router"][0]["run_ns"].as_u64().unwrap(),
        time("router far") + time("router near")
    );
}

#[test]
fn a_path_leads_through_the_routers_and_switches_of_a_topology_file() {
    for end in ["external = true", ""] {
        let bench = Bench::new();
        fs::write(bench.path("mine.toml"), topology(end)).unwrap();
        let cell = "--topology mine.toml --client inside --server outside --workload rr-200-1000 --clients 1";
        let ended = bench.measure(cell).ok();
        check_charges(&bench);
        let line = ended.out.lines().find(|line| line.contains("CPU time between client and server")).unwrap();
        for name in ["topology:mine.toml:inside>outside", "router far ", "router near ", "switch mid ", "us/trans"] {
            assert!(line.contains(name), "{line}");
        }
        // A run directory must not name a topology to start.
        let again = bench.run("run --resume run");
        again.refused(2, &["topology:mine.toml:inside>outside", "repeat the original command line"]);
    }
}

#[test]
fn settings_that_cannot_work_on_an_own_network_are_refused_before_it_starts() {
    let bench = Bench::new();
    fs::write(bench.path("mine.toml"), topology("")).unwrap();
    let near = "plan --topology mine.toml --client outside --server beside --workload rr-1-1 --router-cpus 0";
    bench.run(near).refused(2, &["--router-cpus has no effect", "no path of the plan has a router"]);
    bench.run(&near.replace("--client outside --server beside", "--client inside --server outside")).ok();
    let rules = topology("").replace("[guest.outside]\n", "[guest.outside]\nallow = [\"tcp 443 from lan\"]\n");
    fs::write(bench.path("filtered.toml"), rules).unwrap();
    let to = "plan --topology filtered.toml --client inside --server outside --clients 1 --workload";
    bench
        .run(&format!("{to} rr-1-1"))
        .refused(2, &["allow: `tcp 443 from lan`", "any port that is free of tcp", "--port"]);
    bench.run(&format!("{to} rr-1-1 --port 444")).refused(2, &["do not let 10.1.1.1 open port 444 of tcp"]);
    bench.run(&format!("{to} udp-rr:8/8 --port 443")).refused(2, &["open port 443 of udp"]);
    bench.run(&format!("{to} rr-1-1 --port 443")).ok();
}

#[test]
fn a_path_leads_over_a_network_that_is_up_and_stays_up() {
    let bench = Bench::new();
    fs::write(bench.path("mine.toml"), topology("")).unwrap();
    let siga = |arguments: &str| {
        let mut command = bench.siga(arguments);
        command.env("SIGA_RUN_DIR", bench.path("net"));
        common::Ended::new(arguments, command.output().unwrap())
    };
    siga("net up mine.toml").ok();
    let cell = "--client inside --server outside --workload rr-1-1 --clients 1 --seconds 0.02 --warm-up 0 --trials 1";
    let measured = siga(&format!("run --out run --network mine {cell}"));
    let unknown = siga(&format!("run --out other --network nosuch {cell}"));
    let stopped = siga("net stop mine near");
    let without = siga(&format!("run --out without --network mine {cell}"));
    siga("net down mine").ok();
    measured.ok();
    check_charges(&bench);
    unknown.refused(2, &["there is no network nosuch", "these networks are up: mine"]);
    stopped.ok();
    assert!(without.status != Some(0) && without.err.contains("guest near does not run"), "{}", without.err);
}

#[test]
fn guests_that_cannot_reach_each_other_are_refused_before_anything_starts() {
    let bench = Bench::new();
    fs::write(bench.path("mine.toml"), topology("")).unwrap();
    let run = |more: &str| bench.measure(&format!("--workload rr-1-1 --clients 1 {more}"));
    let file = "--topology mine.toml --client inside";
    for (more, parts) in [
        (
            format!("{file} --server beside"),
            &["cannot reach guest beside", "guest beside has no route to 10.1.1.1"][..],
        ),
        (format!("{file} --server absent"), &["has no guest absent", "inside, near, outside"]),
        (format!("{file} --server outside --ipv6"), &["guest outside has no IPv6 address"]),
        (format!("{file} --server outside --mtu 1500"), &["the plan sets an MTU", "the topology decides"]),
        (format!("{file} --server outside --level 430"), &["level 430 sets guests"]),
        ("--topology absent.toml --client a --server b".into(), &["cannot read the topology"]),
        (
            "--network mine --client inside --server outside --build x=/bin/true --build y=/bin/true".into(),
            &["network mine already runs"],
        ),
    ] {
        run(&more).refused(2, parts);
        assert!(!bench.path("run").exists(), "{more}: a run directory was made");
    }
}
