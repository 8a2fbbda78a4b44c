//! Tests of network paths on the real kernel: a namespace holder builds each type, the path carries TCP, and nothing is left
//! behind.
//!
//! Without the privilege to make network namespaces, the holders make user namespaces. If these are refused too, the tests print
//! that they are skipped. Entering a namespace from a thread of the test needs root.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod harness;
mod levels;
mod modules;
#[path = "../../../fabric/tests/common/vm.rs"]
mod vm;

use harness::*;
use rustix::process::{Pid, Signal};
use siga_measure::path::{Built, Path, Role};
use siga_model::error::ErrorKind;
use siga_plan::path::PathKind;
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};

#[test]
fn every_type_of_path_carries_tcp_over_both_ip_versions() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    carry_tcp(&kinds());
}

fn carry_tcp(kinds: &[PathKind]) {
    for &kind in kinds {
        for ipv6 in [false, true] {
            if kind == PathKind::Unix && ipv6 {
                continue;
            }
            let mut path = build(&spec(kind, None, ipv6));
            check_shape(&path.built, kind, ipv6);
            if let Some(mtu) = kind.mtu_default() {
                echo(&path.built, mtu);
                check_counters(&mut path, kind);
            }
        }
    }
}

#[test]
fn frames_have_the_requested_mtu() {
    let Some(_alone) = as_root("enter the namespaces from threads") else { return };
    have_the_requested_mtu(&kinds());
}

fn have_the_requested_mtu(kinds: &[PathKind]) {
    for &kind in kinds {
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
    build_without_privilege(&kinds());
}

fn build_without_privilege(kinds: &[PathKind]) {
    let Some(unprivileged) = Unprivileged::new() else { return };
    for &kind in kinds {
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
        if let Some(mtu) = kind.mtu_default() {
            echo(&path.built, mtu);
        }
        let interface = if shares_namespace(kind) { "lo" } else { "siga-s" };
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
    assert!(answer.contains("cannot create a user namespace"), "{answer}");
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
    assert!(error.message().contains("1280 to 65535"), "{error}");
}

#[test]
fn many_paths_built_in_turn_leave_nothing() {
    let Some(_alone) = where_paths_build() else { return };
    let mut inodes = Vec::new();
    let kinds = kinds();
    for round in 0..20 {
        let path = build(&spec(kinds[round % kinds.len()], None, false));
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
    // The shell is the holder's parent, and this test keeps the pipes open. So only the parent's death can end the holder.
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
    // No process has process 0 as its parent.
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

/// Returns whether client and server share a namespace on a path of this type.
fn shares_namespace(kind: PathKind) -> bool {
    matches!(kind, PathKind::Loopback | PathKind::Unix | PathKind::SmcLoopback)
}

fn check_shape(built: &Built, kind: PathKind, ipv6: bool) {
    let roles: Vec<_> = built.namespaces.iter().map(|namespace| namespace.role).collect();
    let middles = [PathKind::VethRouted, PathKind::Bridge, PathKind::Macvlan, PathKind::Ipvlan];
    let has_middle = middles.contains(&kind);
    if has_middle {
        assert_eq!(roles, [Role::Client, Role::Router, Role::Server], "{kind}");
    } else {
        assert_eq!(roles, [Role::Client, Role::Server], "{kind}");
    }
    let inodes = inodes_of(built);
    let shared = inodes.first() == inodes.last();
    assert_eq!(shared, shares_namespace(kind), "{kind}");
    for address in [built.client_address, built.server_address] {
        assert_eq!(address.map(|address| address.is_ipv6()), (kind != PathKind::Unix).then_some(ipv6), "{kind}");
    }
}
