//! Tests of levels on paths: interface settings, sysctls and nft rules.

use crate::harness::*;
use siga_measure::path::{Built, Path, Role};
use siga_model::error::ErrorKind;
use siga_plan::level::Level;
use siga_plan::path::PathKind;
use siga_plan::spec::PathSpec;
use std::fs;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

#[test]
fn a_level_applies_to_every_interface_and_namespace_of_a_path() {
    let Some(_alone) = where_paths_build() else { return };
    let level = Level {
        congestion: Some("reno".into()),
        gro: Some(true),
        gso: Some(false),
        tso: Some(false),
        big_tcp_bytes: Some(196_608),
        sysctl: [("net.ipv4.tcp_rmem".into(), "4096 65536 1000000".into())].into(),
        ..Level::plain()
    };
    for (kind, places) in [
        (PathKind::Loopback, &["shared"][..]),
        (PathKind::Veth, &["client", "server"]),
        (PathKind::VethRouted, &["client", "router", "server"]),
        (PathKind::Bridge, &["client", "router", "server"]),
    ] {
        let path = build(&PathSpec { level: level.clone(), ..spec(kind, None, false) });
        assert_eq!(path.built.congestion, "reno");
        for (label, text) in &path.built.interfaces {
            for part in ["gro=on", "gso=off", "tso=off", "gso-max=196608", "gro-max=196608", "gso-ipv4-max=196608"] {
                assert!(text.split(' ').any(|word| word == part), "{kind}: {label}: {part} in {text}");
            }
        }
        for place in places {
            let value = |name: &str| path.built.sysctls.get(&format!("{place} {name}")).map(String::as_str);
            assert_eq!(value("net.ipv4.tcp_rmem"), Some("4096 65536 1000000"), "{kind} {place}");
            assert_eq!(value("net.ipv4.tcp_congestion_control"), Some("reno"), "{kind} {place}");
            assert_eq!(value("net.core.somaxconn"), Some("65535"), "{kind} {place}");
            let forwards = if (kind, *place) == (PathKind::VethRouted, "router") { "1" } else { "0" };
            assert_eq!(value("net.ipv4.ip_forward"), Some(forwards), "{kind} {place}");
        }
    }
}

#[test]
fn a_level_gives_the_receiving_of_each_interface_to_a_kernel_thread() {
    let Some(_alone) = as_root("mount a sysfs of a namespace") else { return };
    let level = Level::load("threaded-napi").unwrap();
    // The larger path comes first, because the kernel ends the threads of a path some time after it.
    for (kind, links) in [(PathKind::VethRouted, 4), (PathKind::Veth, 2)] {
        let path = build(&PathSpec { level: level.clone(), ..spec(kind, None, false) });
        for (label, text) in &path.built.interfaces {
            assert!(text.split(' ').any(|word| word == "threaded-napi=on"), "{kind}: {label}: {text}");
        }
        assert_eq!(path.built.interfaces.len(), links, "{kind}");
        assert!(napi_threads() >= links, "{kind}: {} kernel threads", napi_threads());
        echo(&path.built, 1_500);
    }
    // Without GRO, veth has no NAPI.
    let level = Level { gro: None, ..level };
    let error = Path::build(SIGA.as_ref(), &PathSpec { level, ..spec(PathKind::Veth, None, false) }).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Environment, "{error}");
    assert!(error.message().contains("threaded NAPI of client/siga-c"), "{error}");
}

/// The number of kernel threads that receive for an interface of a path.
fn napi_threads() -> usize {
    let processes = fs::read_dir("/proc").unwrap().flatten();
    let name = |process: fs::DirEntry| fs::read_to_string(process.path().join("comm")).unwrap_or_default();
    processes
        .filter(|process| process.file_name().as_encoded_bytes()[0].is_ascii_digit())
        .map(name)
        .filter(|name| name.starts_with("napi/siga-"))
        .count()
}

#[test]
fn frames_have_the_mtu_of_the_level() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    let level = Level::load("mtu-8992").unwrap();
    for kind in kinds().into_iter().filter(|kind| kind.mtu_default().is_some()) {
        let path = build(&PathSpec { level: level.clone(), ..spec(kind, None, false) });
        for (label, text) in &path.built.interfaces {
            assert!(text.starts_with("mtu=8992 "), "{kind}: {label}: {text}");
        }
        echo(&path.built, 8_992);
    }
}

#[test]
fn a_setting_that_the_kernel_refuses_is_named_in_the_error() {
    let Some(_alone) = where_paths_build() else { return };
    let refusals = [
        (Level { congestion: Some("nosuch".into()), ..Level::plain() }, "nosuch"),
        (with_sysctl("net.ipv4.nosuch", "1"), "net.ipv4.nosuch"),
        (with_sysctl("net.ipv4.tcp_sack", "many"), "net.ipv4.tcp_sack"),
        (with_sysctl("net.ipv4.conf.siga-none.forwarding", "1"), "siga-none"),
        // TSO cannot be changed on Macvlan interfaces.
        (Level { tso: Some(false), ..Level::plain() }, "tso"),
    ];
    for (level, named) in refusals {
        let spec = PathSpec { level, ..spec(PathKind::Macvlan, None, false) };
        let error = Path::build(SIGA.as_ref(), &spec).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Environment, "{error}");
        assert!(error.message().contains(named), "{error}");
    }
}

#[test]
fn a_path_changes_no_sysctl_of_the_host() {
    let Some(_alone) = where_paths_build() else { return };
    let names = [
        "core/somaxconn",
        "ipv4/ip_forward",
        "ipv4/tcp_congestion_control",
        "ipv4/ip_local_port_range",
        "ipv4/tcp_mem",
    ];
    let host = || names.map(|name| read(&format!("/proc/sys/net/{name}")));
    let before = host();

    let _path = build(&spec(PathKind::VethRouted, None, false));
    let level = with_sysctl("net.ipv4.tcp_mem", "1000 2000 3000");
    let error = Path::build(SIGA.as_ref(), &PathSpec { level, ..spec(PathKind::Veth, None, false) }).unwrap_err();
    assert!(error.message().contains("net.ipv4.tcp_mem"), "{error}");

    assert_eq!(host(), before);
}

#[test]
fn nft_rules_of_a_level_apply_only_where_packets_are_filtered() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    let Some(host) = rules_here() else { return };
    let mut programs = vec![SIGA.into()];
    let unprivileged = Unprivileged::new();
    programs.extend(unprivileged.as_ref().map(|unprivileged| unprivileged.program.clone()));
    for program in programs {
        for (kind, filters) in [
            (PathKind::VethRouted, Role::Router),
            (PathKind::Veth, Role::Server),
            (PathKind::Bridge, Role::Server),
            (PathKind::Macvlan, Role::Server),
        ] {
            let spec = PathSpec { level: with_rules(REJECTING), ..spec(kind, None, true) };
            let path = match Path::build(&program, &spec) {
                Ok(path) => path,
                Err(error) if error.message().contains("user namespace") => {
                    println!("skipped, because this host refuses: {error}");
                    return;
                }
                Err(error) => panic!("{error}"),
            };
            echo(&path.built, 1_500);
            assert_eq!(refuses(&path.built), [true, false], "{kind}: the port of the rule, and another");
            for namespace in &path.built.namespaces {
                let rules = inside(namespace, || rules_here().unwrap());
                assert_eq!(rules.contains("reject"), namespace.role == filters, "{kind} {:?}: {rules}", namespace.role);
            }
            let record: Vec<_> = path.built.filters.iter().collect();
            let place = if filters == Role::Router { "router nftables" } else { "server nftables" };
            assert!(
                matches!(&record[..], [(key, text)] if *key == place && text.starts_with("rules=2 chains=2 hash="))
            );
        }
    }
    assert_eq!(rules_here(), Some(host), "the rules of the host are what they were");
}

#[test]
fn shipped_nft_rules_let_every_path_carry_tcp() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    if rules_here().is_none() {
        return;
    }
    for (level, record) in [("nft-100-rules", "rules=102 chains=3 "), ("conntrack", "rules=6 chains=3 ")] {
        let level = Level::load(level).unwrap();
        for kind in kinds().into_iter().filter(|kind| kind.lacks(&level).is_none()) {
            for ipv6 in [false, true] {
                let mut path = build(&PathSpec { level: level.clone(), ..spec(kind, None, ipv6) });
                echo(&path.built, kind.mtu_default().unwrap());
                check_counters(&mut path, kind);
                let texts: Vec<_> = path.built.filters.values().collect();
                assert!(texts.len() == 1 && texts[0].starts_with(record), "{kind} {}: {texts:?}", level.name);
                let refused = path.built.notes.iter().find(|note| note.contains("net.netfilter"));
                assert_eq!(refused, None, "{kind} {}", level.name);
            }
        }
    }
}

#[test]
fn the_conntrack_level_tracks_connections_in_the_router_only() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    if rules_here().is_none() {
        return;
    }
    let tracked =
        || fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count").map(|text| text.trim().to_owned());
    let host = tracked().ok();
    let level = Level::load("conntrack").unwrap();
    for ipv6 in [false, true] {
        let path = build(&PathSpec { level: level.clone(), ..spec(PathKind::VethRouted, None, ipv6) });
        echo(&path.built, 1_500);
        for namespace in &path.built.namespaces {
            // One connection is tracked. IPv6 neighbour discovery is not tracked.
            let expected = if namespace.role == Role::Router { "1" } else { "0" };
            assert_eq!(inside(namespace, tracked).unwrap(), expected, "{:?}", namespace.role);
        }
    }
    if host.as_deref().is_none_or(|count| count == "0") {
        assert_eq!(tracked().unwrap(), "0", "nothing on the host has asked for tracking");
    }
}

#[test]
fn nft_rules_that_do_not_load_or_see_no_packet_are_errors_that_leave_nothing() {
    let Some(_alone) = where_paths_build() else { return };
    if rules_here().is_none() {
        return;
    }
    let input_only = "table inet t {\n chain c {\n type filter hook input priority 0;\n }\n}\n";
    for (rules, words) in [
        ("table inet t {\n chain c {\n tcp dport 7 dropp\n }\n}\n", &["line 3:", "syntax error", "nft -c -f"][..]),
        ("flush table inet nosuch", &["No such file or directory"]),
        (input_only, &["no chain", "router namespace", "forward"]),
        (&format!("{REJECTING}flush chain inet t forward"), &["nft loaded 2 rules, but 1 rules are active"]),
        ("flush ruleset", &["no chain"]),
        ("list ruleset\n", &["no chain"]),
    ] {
        let spec = PathSpec { level: with_rules(rules), ..spec(PathKind::VethRouted, None, false) };
        let error = Path::build(SIGA.as_ref(), &spec).unwrap_err().to_string();
        assert!(error.contains("level filtered: "), "the level is named: {error}");
        for word in words {
            assert!(error.contains(word), "{word} in {error}");
        }
    }
    assert_no_child_of_this_test(&["siga", "nft"]);
}

#[test]
fn an_error_on_a_host_without_nft_names_the_package_to_install() {
    let Some(_alone) = as_root("hide a directory") else { return };
    let empty = tempfile::tempdir().unwrap();
    let script = "mount --bind \"$1\" /usr/sbin && { test -L /sbin || mount --bind \"$1\" /sbin; } && \
        PATH=$1 && exec \"$0\" namespace-holder";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script, SIGA]).arg(empty.path());
    let spec = PathSpec { level: with_rules(REJECTING), ..spec(PathKind::VethRouted, None, false) };
    let Some((_holder, answer)) = raw_holder(&mut command, Parent::ThisTest, &spec) else { return };
    if answer.is_empty() {
        println!("skipped, because nothing can be mounted here");
        return;
    }
    for word in [
        r#""kind":"environment""#,
        "level filtered: the program nft, which loads rulesets (nftables), is not installed",
        "apt-get install nftables",
    ] {
        assert!(answer.contains(word), "{word} in {answer}");
    }
}

#[test]
fn a_running_nft_ends_with_its_namespace_holder() {
    let Some(_alone) = where_paths_build() else { return };
    let directory = tempfile::tempdir().unwrap();
    let (program, pid) = (directory.path().join("nft"), directory.path().join("pid"));
    fs::write(&program, format!("#!/bin/sh\necho $$ >{0}.new\nmv {0}.new {0}\nexec sleep 1000\n", pid.display()))
        .unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", directory.path().display(), std::env::var("PATH").unwrap());
    let spec = PathSpec { level: with_rules(REJECTING), ..spec(PathKind::VethRouted, None, false) };
    let mut holder = Command::new(SIGA);
    let holder =
        holder.arg("namespace-holder").env("PATH", path).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let holder = Process(holder);
    writeln!(holder.0.stdin.as_ref().unwrap(), "{}", request(&spec, std::process::id())).unwrap();
    let nft = loop {
        if let Ok(pid) = fs::read_to_string(&pid) {
            break pid.trim().to_owned();
        }
        thread::sleep(Duration::from_millis(5));
    };
    let deadline = Instant::now() + VANISH_TIME_MAX;
    // The process starts as a shell; wait until the shell has executed the program that is to be ended.
    while read(&format!("/proc/{nft}/comm")).trim() != "sleep" {
        assert!(Instant::now() < deadline, "the program does not begin");
        thread::sleep(Duration::from_millis(5));
    }
    drop(holder);
    let deadline = Instant::now() + VANISH_TIME_MAX;
    // The process that becomes its new parent may take a while to reap it.
    while fs::read_to_string(format!("/proc/{nft}/cmdline")).is_ok_and(|text| !text.is_empty()) {
        assert!(Instant::now() < deadline, "nft outlives its holder");
        thread::sleep(Duration::from_millis(5));
    }
}

fn with_sysctl(name: &str, value: &str) -> Level {
    Level { sysctl: [(name.to_owned(), value.to_owned())].into(), ..Level::plain() }
}

fn with_rules(rules: &str) -> Level {
    Level { name: "filtered".into(), nftables: Some(rules.into()), ..Level::default() }
}

/// A port outside the range of ephemeral ports.
const REJECTED_PORT: u16 = 7;

/// nft rules that reject connections to `REJECTED_PORT` in a router and in a host.
const REJECTING: &str = "
table inet t {
    chain forward {
        type filter hook forward priority filter; policy accept;
        tcp dport 7 reject with tcp reset
    }
    chain input {
        type filter hook input priority filter; policy accept;
        tcp dport 7 reject with tcp reset
    }
}
";

/// Whether the path refuses connections to `REJECTED_PORT`, and to the port after it. Servers listen on both.
fn refuses(built: &Built) -> [bool; 2] {
    let server = built.server_address.unwrap();
    [REJECTED_PORT, REJECTED_PORT + 1].map(|port| {
        let address = SocketAddr::from((server, port));
        let _listener = inside(of_role(built, Role::Server), || TcpListener::bind(address).unwrap());
        let connected = inside(of_role(built, Role::Client), || TcpStream::connect(address));
        connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    })
}

/// Returns the nft rules of this thread's namespace. Prints what is skipped and returns `None` if nft is not installed.
fn rules_here() -> Option<String> {
    let output =
        ["nft", "/usr/sbin/nft"].iter().find_map(|nft| Command::new(nft).args(["list", "ruleset"]).output().ok());
    if output.is_none() {
        println!("skipped, because there is no nft");
    }
    output.map(|output| String::from_utf8(output.stdout).unwrap())
}

/// Waits until this test has no child process with one of these names.
fn assert_no_child_of_this_test(names: &[&str]) {
    let own = format!("PPid:\t{}\n", std::process::id());
    let is_left = || {
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let statuses = processes.filter_map(|entry| fs::read_to_string(entry.path().join("status")).ok());
        statuses
            .filter(|status| status.contains(&own))
            .any(|status| names.iter().any(|name| status.starts_with(&format!("Name:\t{name}\n"))))
    };
    let deadline = Instant::now() + VANISH_TIME_MAX;
    while is_left() {
        assert!(Instant::now() < deadline, "a child is left");
        thread::sleep(Duration::from_millis(5));
    }
}
