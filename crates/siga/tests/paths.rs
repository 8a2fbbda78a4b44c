//! Network paths on the real kernel: every type is built by a holder process, carries TCP, and leaves nothing behind.
//!
//! Without the privilege to make network namespaces the holders make user namespaces; where even those are refused, the
//! tests say so and return. Entering a namespace from a thread of the test takes root.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

use rustix::net::sockopt;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space};
use siga_measure::path::{Built, Namespace, Path, Role};
use siga_model::error::ErrorKind;
use siga_plan::level::Level;
use siga_plan::path::PathKind;
use siga_plan::spec::PathSpec;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

const SIGA: &str = env!("CARGO_BIN_EXE_siga");
/// The user id commonly called `nobody`.
const NOBODY: u32 = 65_534;
/// How long the kernel may take to let go of a killed process.
const VANISH_TIME_MAX: Duration = Duration::from_secs(10);

#[test]
fn every_type_of_path_carries_tcp_over_both_ip_versions() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    for kind in PathKind::ALL {
        for ipv6 in [false, true] {
            if kind == PathKind::Unix && ipv6 {
                continue;
            }
            let mut path = build(&spec(kind, None, ipv6));
            check_shape(&path.built, kind, ipv6);
            if kind != PathKind::Unix {
                echo(&path.built, kind.mtu_default().unwrap());
                check_counters(&mut path, kind);
            }
        }
    }
}

#[test]
fn frames_have_the_requested_mtu() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    for kind in PathKind::ALL {
        let Some((least, most)) = kind.mtu_range(false) else { continue };
        for (mtu, ipv6) in [(least, false), (576, false), (1_280, true), (9_000, false), (57_344, true), (most, false)]
        {
            let path = build(&spec(kind, Some(mtu), ipv6));
            for (label, text) in &path.built.interfaces {
                assert!(text.starts_with(&format!("mtu={mtu} ")), "{kind}: {label}: {text}");
            }
            echo(&path.built, mtu);
        }
    }
}

#[test]
fn ipv6_works_from_its_minimum_mtu_of_1280() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    for (mtu, expected) in [(1_279, false), (1_280, true)] {
        let path = build(&spec(PathKind::Veth, Some(mtu), false));
        let addresses = inside(of_role(&path.built, Role::Client), || read("/proc/thread-self/net/if_inet6"));
        assert_eq!(addresses.contains("siga-c"), expected, "MTU {mtu}:\n{addresses}");
    }
}

#[test]
fn an_unprivileged_user_builds_every_type_of_path() {
    let Some(_alone) = as_root("drop to another user") else { return };
    let Some(unprivileged) = Unprivileged::new() else { return };
    for kind in PathKind::ALL {
        let spec = spec(kind, None, kind != PathKind::Unix);
        let path = match Path::build(&unprivileged.program, &spec) {
            Ok(path) => path,
            Err(error) if error.message().contains("user namespace") => {
                println!("skipped, because this host refuses: {error}");
                return;
            }
            Err(error) => panic!("{error}"),
        };
        assert!(read(&format!("/proc/{}/status", path.holder())).contains(&format!("Uid:\t{NOBODY}\t")));
        check_shape(&path.built, kind, spec.ipv6);
        if kind != PathKind::Unix {
            echo(&path.built, kind.mtu_default().unwrap());
        }
        let interface = if matches!(kind, PathKind::Loopback | PathKind::Unix) { "lo" } else { "siga-s" };
        unprivileged.enters(of_role(&path.built, Role::Server), interface);
    }
}

#[test]
fn a_host_without_user_namespaces_is_named_in_the_error() {
    let Some(_alone) = as_root("limit the number of user namespaces") else { return };
    let script = "echo 0 >/proc/sys/user/max_user_namespaces && \
        exec setpriv --bounding-set=-all --inh-caps=-all \"$0\" namespace-holder";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "sh", "-c", script, SIGA]);
    let Some((_holder, answer)) = raw_holder(&mut command, Parent::ThisTest, &spec(PathKind::Veth, None, false)) else {
        return;
    };
    assert!(answer.contains(r#""kind":"environment""#), "{answer}");
    assert!(answer.contains("cannot make a user namespace"), "{answer}");
    assert!(answer.contains("user.max_user_namespaces=0"), "{answer}");
}

#[test]
fn an_impossible_mtu_is_refused_before_anything_is_started() {
    let nowhere = std::path::Path::new("/nonexistent/siga");
    for kind in PathKind::ALL {
        let impossible = match kind.mtu_range(true) {
            Some((least, most)) => vec![(least - 1, true), (87, false), (most + 1, false)],
            None => vec![(1_500, false)],
        };
        for (mtu, ipv6) in impossible {
            let error = Path::build(nowhere, &spec(kind, Some(mtu), ipv6)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
            assert!(error.message().contains(kind.name()), "{error}");
        }
    }
    let error = Path::build(nowhere, &spec(PathKind::Bridge, Some(1_000), true)).unwrap_err();
    assert!(error.message().contains("1280..=65535"), "{error}");
}

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
fn frames_have_the_mtu_of_the_level() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    let level = Level::load("mtu-8992").unwrap();
    for kind in PathKind::ALL.into_iter().filter(|kind| *kind != PathKind::Unix) {
        let path = build(&PathSpec { level: level.clone(), ..spec(kind, None, false) });
        for (label, text) in &path.built.interfaces {
            assert!(text.starts_with("mtu=8992 "), "{kind}: {label}: {text}");
        }
        echo(&path.built, 8_992);
    }
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
        for kind in PathKind::ALL.into_iter().filter(|kind| kind.lacks(&level).is_none()) {
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
            // One connection; IPv6's neighbours are not tracked.
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
        (&format!("{REJECTING}flush chain inet t forward"), &["2 rules were loaded, 1 are in force"]),
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
fn a_host_without_nft_is_told_what_to_install() {
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
    for word in [r#""kind":"environment""#, "level filtered: there is no program nft", "apt-get install nftables"] {
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
    // The process is a shell at first; wait until the shell has become the program that is to be ended.
    while read(&format!("/proc/{nft}/comm")).trim() != "sleep" {
        assert!(Instant::now() < deadline, "the program does not begin");
        thread::sleep(Duration::from_millis(5));
    }
    drop(holder);
    let deadline = Instant::now() + VANISH_TIME_MAX;
    // The process that inherits it may take a while to reap it.
    while fs::read_to_string(format!("/proc/{nft}/cmdline")).is_ok_and(|text| !text.is_empty()) {
        assert!(Instant::now() < deadline, "nft outlives its holder");
        thread::sleep(Duration::from_millis(5));
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
        // Macvlan interfaces have it fixed.
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
fn many_paths_built_in_turn_leave_nothing() {
    let Some(_alone) = where_paths_build() else { return };
    let mut inodes = Vec::new();
    for round in 0..20 {
        let path = build(&spec(PathKind::ALL[round % PathKind::ALL.len()], None, false));
        inodes.extend(inodes_of(&path.built));
        let holder = path.holder();
        path.close();
        assert!(!fs::exists(format!("/proc/{holder}")).unwrap(), "holder {holder} is still there");
    }
    assert_nothing_left(&inodes);
}

#[test]
fn a_path_ends_with_its_namespace_holder_and_its_later_use_is_an_error() {
    let Some(_alone) = where_paths_build() else { return };
    let mut path = build(&spec(PathKind::VethRouted, None, false));
    let inodes = inodes_of(&path.built);
    signal(path.holder(), Signal::KILL);
    let error = path.counters().unwrap_err();
    assert!(error.message().contains("the process died"), "{error}");
    assert_nothing_left(&inodes);
}

#[test]
fn a_namespace_holder_that_does_not_exit_is_killed() {
    let Some(_alone) = where_paths_build() else { return };
    let path = build(&spec(PathKind::Veth, None, false));
    let (holder, inodes) = (path.holder(), inodes_of(&path.built));
    signal(holder, Signal::STOP);
    path.close();
    assert!(!fs::exists(format!("/proc/{holder}")).unwrap(), "holder {holder} is still there");
    assert_nothing_left(&inodes);
}

#[test]
fn a_path_ends_with_the_parent_of_its_namespace_holder() {
    let Some(_alone) = where_paths_build() else { return };
    // The shell is the holder's parent while this test keeps the pipes open: only the parent's death can end the holder.
    let mut command = Command::new("sh");
    command.args(["-c", "\"$0\" namespace-holder; true", SIGA]);
    let (shell, answer) = raw_holder(&mut command, Parent::Command, &spec(PathKind::Bridge, None, false)).unwrap();
    let mut answer: serde_json::Value = serde_json::from_str(&answer).unwrap();
    let built: Built = serde_json::from_value(answer["ok"].take()).unwrap();
    let inodes = inodes_of(&built);
    assert!(held(&inodes), "the holder holds its namespaces");
    signal(shell.0.id(), Signal::KILL);
    assert_nothing_left(&inodes);
}

#[test]
fn an_orphaned_namespace_holder_builds_nothing() {
    let mut holder =
        Command::new(SIGA).arg("namespace-holder").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Process 0 is nobody's parent.
    writeln!(holder.stdin.as_ref().unwrap(), "{}", request(&spec(PathKind::Veth, None, false), 0)).unwrap();
    let mut answer = String::new();
    holder.stdout.take().unwrap().read_to_string(&mut answer).unwrap();
    assert_eq!(answer, "");
    assert!(holder.wait().unwrap().success());
}

#[test]
fn a_namespace_holder_is_not_interrupted_from_the_terminal() {
    let Some(_alone) = where_paths_build() else { return };
    let path = build(&spec(PathKind::Unix, None, false));
    let holder = Pid::from_raw(path.holder().try_into().unwrap());
    assert_eq!(rustix::process::getpgid(holder).ok(), holder, "it leads a process group of its own");
}

fn spec(kind: PathKind, mtu: Option<u32>, ipv6: bool) -> PathSpec {
    PathSpec { kind, mtu, ipv6, level: Level::plain() }
}

fn with_sysctl(name: &str, value: &str) -> Level {
    Level { sysctl: [(name.to_owned(), value.to_owned())].into(), ..Level::plain() }
}

fn with_rules(rules: &str) -> Level {
    Level { name: "filtered".into(), nftables: Some(rules.into()), ..Level::default() }
}

/// A port that no ephemeral one is.
const REJECTED_PORT: u16 = 7;

/// Refuses connections to `REJECTED_PORT` in a router and in a host.
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

/// Whether the path refuses connections to `REJECTED_PORT` and to the next one; servers listen on both.
fn refuses(built: &Built) -> [bool; 2] {
    let server = built.server_address.unwrap();
    [REJECTED_PORT, REJECTED_PORT + 1].map(|port| {
        let address = SocketAddr::from((server, port));
        let _listener = inside(of_role(built, Role::Server), || TcpListener::bind(address).unwrap());
        let connected = inside(of_role(built, Role::Client), || TcpStream::connect(address));
        connected.is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused)
    })
}

/// The rules of the namespace this thread is in; `None`, and said so, without the program.
fn rules_here() -> Option<String> {
    let output =
        ["nft", "/usr/sbin/nft"].iter().find_map(|nft| Command::new(nft).args(["list", "ruleset"]).output().ok());
    if output.is_none() {
        println!("skipped, because there is no nft");
    }
    output.map(|output| String::from_utf8(output.stdout).unwrap())
}

/// Waits until this test has no child of these names.
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

fn build(spec: &PathSpec) -> Path {
    Path::build(SIGA.as_ref(), spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// One test at a time makes namespaces: the kernel gives their numbers again, which would confuse who looks for them.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the test to itself if it may enter any namespace; says what is skipped if not.
fn as_root(purpose: &str) -> Option<MutexGuard<'static, ()>> {
    let held = capabilities(None).unwrap().effective;
    if held.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::SETUID) {
        return Some(alone());
    }
    println!("skipped, because it takes root to {purpose}");
    None
}

/// Has the test to itself if a path can be built at all on this host; says what is skipped if not.
fn where_paths_build() -> Option<MutexGuard<'static, ()>> {
    let guard = alone();
    match Path::build(SIGA.as_ref(), &spec(PathKind::Unix, None, false)) {
        Ok(_) => Some(guard),
        Err(error) => {
            println!("skipped, because no path can be built: {error}");
            None
        }
    }
}

fn of_role(built: &Built, role: Role) -> &Namespace {
    built.namespaces.iter().find(|namespace| namespace.role == role).expect("the path has that role")
}

fn inodes_of(built: &Built) -> Vec<u64> {
    built.namespaces.iter().map(|namespace| namespace.inode).collect()
}

fn check_shape(built: &Built, kind: PathKind, ipv6: bool) {
    let roles: Vec<_> = built.namespaces.iter().map(|namespace| namespace.role).collect();
    let has_middle = matches!(kind, PathKind::VethRouted | PathKind::Bridge | PathKind::Macvlan);
    if has_middle {
        assert_eq!(roles, [Role::Client, Role::Router, Role::Server], "{kind}");
    } else {
        assert_eq!(roles, [Role::Client, Role::Server], "{kind}");
    }
    let inodes = inodes_of(built);
    let shared = inodes.first() == inodes.last();
    assert_eq!(shared, matches!(kind, PathKind::Loopback | PathKind::Unix), "{kind}");
    for address in [built.client_address, built.server_address] {
        assert_eq!(address.map(|address| address.is_ipv6()), (kind != PathKind::Unix).then_some(ipv6), "{kind}");
    }
}

/// Every interface is counted, and those between client and server carried the echo both ways.
fn check_counters(path: &mut Path, kind: PathKind) {
    let counters = path.counters().unwrap();
    assert!(counters.keys().eq(path.built.interfaces.keys()), "{kind}: {counters:?}");
    for (label, counters) in counters {
        if !matches!(label.as_str(), "router/siga-br" | "router/siga-p" | "router/siga-q") {
            assert!(counters.rx_bytes > 200_000 && counters.tx_bytes > 200_000, "{kind}: {label}: {counters:?}");
        }
        assert_eq!((counters.rx_errors, counters.tx_errors), (0, 0), "{kind}: {label}: {counters:?}");
    }
}

/// Runs `work` on a thread of its own inside a network namespace.
fn inside<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    let enter_and_work = || {
        let file = fs::File::open(&namespace.net).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(enter_and_work).join().unwrap())
}

/// Sends 200 KB from client to server and back over one TCP connection.
fn echo(built: &Built, mtu: u32) {
    let (client, server) = (built.client_address.unwrap(), built.server_address.unwrap());
    let listener = inside(of_role(built, Role::Server), || TcpListener::bind(SocketAddr::from((server, 0))).unwrap());
    sockopt::set_tcp_congestion(&listener, &built.congestion).unwrap();
    let address = listener.local_addr().unwrap();
    let sent: Vec<u8> = (0..200_000_u32).flat_map(|index| index.to_le_bytes().into_iter().take(1)).collect();
    let near = inside(of_role(built, Role::Client), || TcpStream::connect(address));
    let mut near = near.unwrap_or_else(|error| panic!("{client} to {server}: {error}"));
    let (mut far, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), client);
    assert_eq!(sockopt::tcp_congestion(&far).unwrap(), built.congestion);
    let path_mtu = if server.is_ipv4() { sockopt::ip_mtu(&near) } else { sockopt::ipv6_mtu(&near) };
    // An IPv4 packet has at most 65,535 bytes, whatever the MTU of lo.
    assert_eq!(path_mtu.unwrap().min(65_535), mtu.min(65_535), "path MTU as TCP sees it");
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            far.write_all(&bytes).unwrap();
        });
        near.write_all(&sent).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = Vec::new();
        near.read_to_end(&mut received).unwrap();
        assert!(received == sent, "what comes back is what was sent");
    });
}

/// A copy of the program that another user may run, and a script that runs it so.
struct Unprivileged {
    _directory: tempfile::TempDir,
    program: std::path::PathBuf,
}

impl Unprivileged {
    fn new() -> Option<Self> {
        if Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped, because there is no setpriv(1)");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("siga");
        // By another process: what this one has open for writing, the children of a test beside it may inherit.
        assert!(Command::new("cp").arg(SIGA).arg(&copy).status().unwrap().success());
        let program = directory.path().join("siga-unprivileged");
        let drop = format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
        fs::write(&program, format!("#!/bin/sh\nexec {drop} {} \"$@\"\n", copy.display())).unwrap();
        for file in [directory.path(), &copy, &program] {
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(Self { _directory: directory, program })
    }

    /// The same user can enter what its holder made.
    fn enters(&self, namespace: &Namespace, interface: &str) {
        let user = namespace.user.as_ref().expect("made in a user namespace");
        let output = Command::new("nsenter")
            .args([&format!("--user={user}"), &format!("--net={}", namespace.net), "--preserve-credentials"])
            .args(["cat", "/proc/net/dev"])
            .uid(NOBODY)
            .gid(NOBODY)
            .output();
        let Ok(output) = output else {
            println!("entering skipped, because there is no nsenter(1)");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let interfaces = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(interfaces.contains(&format!("{interface}:")), "{interfaces}");
    }
}

fn request(spec: &PathSpec, parent: u32) -> serde_json::Value {
    serde_json::json!({ "build": { "spec": spec, "parent": parent } })
}

/// A process of a test; it does not outlive the test, whatever happens.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that it is gone already.
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The process that becomes the parent of a holder started by hand.
#[derive(Clone, Copy)]
enum Parent {
    ThisTest,
    Command,
}

/// Starts a holder by `command`, sends it `spec`, and returns its answer; `None` if the command is absent.
fn raw_holder(command: &mut Command, parent: Parent, spec: &PathSpec) -> Option<(Process, String)> {
    let Ok(child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        println!("skipped, because {:?} cannot be started", command.get_program());
        return None;
    };
    let mut process = Process(child);
    let parent = match parent {
        Parent::ThisTest => std::process::id(),
        Parent::Command => process.0.id(),
    };
    writeln!(process.0.stdin.as_ref().unwrap(), "{}", request(spec, parent)).unwrap();
    let mut answer = String::new();
    BufReader::new(process.0.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
    Some((process, answer))
}

fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// Waits until none of siga's processes and no mount refers to any of the network namespaces.
fn assert_nothing_left(inodes: &[u64]) {
    let deadline = Instant::now() + VANISH_TIME_MAX;
    while held(inodes) {
        assert!(Instant::now() < deadline, "network namespaces are still held: {inodes:?}");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!read("/proc/net/dev").contains("siga-"), "an interface is left in this namespace");
}

fn held(inodes: &[u64]) -> bool {
    let names: Vec<_> = inodes.iter().map(|inode| format!("net:[{inode}]")).collect();
    let is_one = |link: std::path::PathBuf| {
        fs::read_link(link).is_ok_and(|to| names.iter().any(|name| to.as_os_str() == name.as_str()))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let own = |process: &std::path::PathBuf| {
        process.ends_with(std::process::id().to_string())
            || fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("siga"))
    };
    let mounts = read("/proc/self/mountinfo");
    names.iter().any(|name| mounts.contains(name))
        || processes.filter(own).any(|process| {
            let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
            is_one(process.join("ns/net")) || files.into_iter().any(is_one)
        })
}
