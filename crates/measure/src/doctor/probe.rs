//! The checks of an examination. Each check uses one ability of the host once in practice, and then undoes all changes.

use super::check::{Check, CheckState, Group};
use crate::cpu::host::HostCpu;
use crate::cpu::{cost_injector, profile};
use crate::path::{Net, Path, filter};
use crate::socket::sockmap;
use rustix::thread::{CapabilitySet, capabilities};
use siga_model::error::Result;
use siga_model::waiting::Waiting;
use siga_plan::level::{Guests, Level};
use siga_plan::path::PathKind;
use siga_plan::path::guest::GuestPath;
use siga_plan::spec::{GuestSpec, PathSpec};
use siga_results::environment::Environment;
use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::process::{Command, Stdio};

/// The paths that the default plan measures.
pub(super) const DEFAULT_PATHS: [&str; 2] = ["veth-routed", "hipersockets-routed"];

/// Builds a path of each type and removes the path again.
pub(super) fn paths(progress: &mut dyn FnMut(&str)) -> Vec<Check> {
    // Notes on settings that siga could not apply, each with the paths that caused the note.
    let mut notes: Vec<(String, Vec<&str>)> = Vec::new();
    let mut checks = Vec::new();
    for kind in PathKind::ALL {
        progress(&format!("path {kind}"));
        match build(kind) {
            Ok(own) => {
                checks.push(Check::ok(Group::Paths, kind.name(), kind.about()));
                for note in own {
                    match notes.iter_mut().find(|(other, _)| *other == note) {
                        Some((_, kinds)) => kinds.push(kind.name()),
                        None => notes.push((note, vec![kind.name()])),
                    }
                }
            }
            Err(error) => checks.push(Check::missing(Group::Paths, kind.name(), &error, without(kind))),
        }
    }
    for path in GuestPath::ALL {
        progress(&format!("path {path}"));
        let spec = GuestSpec {
            path,
            mtu: path.mtu_default(),
            ipv6: false,
            wait: Waiting::Block,
            guests: Guests::default(),
            link: None,
            sysctl: BTreeMap::new(),
            applications: 1,
        };
        checks.push(match Net::raise(FilePath::new("/proc/self/exe"), &spec) {
            Ok(_net) => Check::ok(Group::Paths, path.name(), path.about()),
            Err(error) => Check::missing(Group::Paths, path.name(), &error, "cells of this path are skipped"),
        });
    }
    checks.extend(notes.into_iter().map(|(note, kinds)| {
        let on = if kinds.len() == PathKind::ALL.len() { "every kernel path".into() } else { kinds.join(", ") };
        Check::ok(Group::Paths, "settings", format!("on {on}: {note}")).with(
            CheckState::Caution,
            "the figures depend on these settings; each run records them",
            None,
        )
    }));
    checks
}

/// Builds a path over the kernel's network and removes it again. Returns a note for each setting that could not be applied.
fn build(kind: PathKind) -> Result<Vec<String>> {
    let spec = PathSpec { kind, mtu: None, ipv6: false, level: Level::load("plain")? };
    let path = Path::build(FilePath::new("/proc/self/exe"), &spec)?;
    let notes = path.built.notes.clone();
    path.close();
    if kind == PathKind::Sockmap {
        sockmap::available()?;
    }
    Ok(notes)
}

fn without(kind: PathKind) -> &'static str {
    match kind {
        PathKind::Veth => "cells of this path are skipped, so there is no direct path for comparison",
        PathKind::VethRouted => {
            "cells of this path are skipped, so the router overhead is not measured, and there is no kernel path to \
                compare with siga's own network"
        }
        PathKind::Loopback | PathKind::Unix | PathKind::Bridge | PathKind::Macvlan => "cells of this path are skipped",
        PathKind::Bond | PathKind::Vlan | PathKind::Ipvlan | PathKind::SmcLoopback | PathKind::Sockmap => {
            "cells of this path are skipped; no other measurement uses it"
        }
    }
}

/// Checks which methods of CPU accounting work. `paths` are the results of the checks of the paths.
pub(super) fn accounting(paths: &[Check]) -> Vec<Check> {
    let has = |kind: PathKind| {
        paths
            .iter()
            .any(|check| check.group == Group::Paths && check.name == kind.name() && check.state != CheckState::Missing)
    };
    let profile = match profile::available() {
        Ok(()) => {
            Check::ok(Group::Accounting, "profile", "measures the CPU time of client, router and server in each trial")
        }
        Err(error) => Check::missing(
            Group::Accounting,
            "profile",
            &error,
            "siga measures the router's CPU time with `subtract` instead, which needs the paths veth and veth-routed, \
                more trials and an otherwise idle host",
        ),
    };
    let subtract = if has(PathKind::Veth) && has(PathKind::VethRouted) {
        Check::ok(
            Group::Accounting,
            "subtract",
            "computes the router's CPU time as the difference between the paths with and without a router",
        )
    } else {
        Check::ok(Group::Accounting, "subtract", "this method needs the paths veth and veth-routed").with(
            CheckState::Missing,
            "if `profile` is also missing, the router's CPU time cannot be measured",
            Some("see the missing paths above".into()),
        )
    };
    let tick = "measures the exact run times of client and server, but not the CPU time of a router";
    vec![profile, subtract, Check::ok(Group::Accounting, "tick", tick), totals()]
}

/// Checks how precisely the host's total CPU time can be read.
fn totals() -> Check {
    let name = "total";
    match HostCpu::read() {
        Ok(host) if host.exact.is_some() => {
            Check::ok(Group::Accounting, name, "CPU time of the whole host, with a resolution of 1 ns")
        }
        Ok(_) => Check::ok(Group::Accounting, name, "CPU time of the whole host, with a resolution of 10 ms").with(
            CheckState::Caution,
            "the total of a one-second trial has an error of up to 0.8%",
            Some("use longer trials (--seconds 5), or run siga as root, which may read /proc/timer_list".into()),
        ),
        Err(error) => Check::missing(Group::Accounting, name, &error, "siga cannot measure CPU time"),
    }
}

/// Checks the other programs and abilities that siga uses.
pub(super) fn tools() -> Vec<Check> {
    let planting = match cost_injector::available() {
        Ok(()) => {
            Check::ok(Group::Tools, "planting", "siga can plant a known CPU cost in a router (used by --calibrate)")
        }
        Err(error) => Check::missing(
            Group::Tools,
            "planting",
            &error,
            "`--calibrate` cannot check the router's CPU time; measurements are not affected",
        ),
    };
    vec![planting, user_namespaces(), namespaces_of_others(), filters(), ssh()]
}

/// Sysctls that can disable user namespaces, each with the value that disables them.
const USER_NAMESPACES_OFF: [(&str, &str); 3] = [
    ("user.max_user_namespaces", "0"),
    ("kernel.unprivileged_userns_clone", "0"),
    ("kernel.apparmor_restrict_unprivileged_userns", "1"),
];

/// Checks the sysctls for user namespaces. This function creates no namespace: if the caller has no privileges, [`paths`] has
/// already used a user namespace to build paths.
fn user_namespaces() -> Check {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/sys/{}", name.replace('.', "/")));
    let is_off = |name: &str, off: &str| read(name).is_ok_and(|value| value.trim() == off);
    let off: Vec<String> = USER_NAMESPACES_OFF
        .iter()
        .filter(|(name, value)| is_off(name, value))
        .map(|(name, value)| format!("{name} is {value}"))
        .collect();
    let name = "user namespaces";
    if off.is_empty() && std::fs::exists("/proc/self/ns/user").unwrap_or(false) {
        return Check::ok(Group::Tools, name, "siga can build paths without root");
    }
    let finding =
        if off.is_empty() { "the kernel does not support user namespaces".to_owned() } else { off.join(", ") };
    Check::ok(Group::Tools, name, finding).with(
        CheckState::Missing,
        "siga needs root to build paths",
        Some("run siga as root, or ask the administrator to change the setting".into()),
    )
}

/// Checks whether siga may give network namespaces names and make devices in those of other programs, such as containers.
fn namespaces_of_others() -> Check {
    let name = "named namespaces";
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if capabilities(None).is_ok_and(|held| held.effective.contains(needed)) {
        let finding = "existing namespaces and containers can join virtual switches: `netns` and `pid` of a port, siga cni, \
            siga netns --name NAME (for podman --network ns:/run/netns/NAME, nsenter, systemd's NetworkNamespacePath=)";
        return Check::ok(Group::Tools, name, finding);
    }
    Check::ok(Group::Tools, name, "this process lacks CAP_SYS_ADMIN or CAP_NET_ADMIN").with(
        CheckState::Missing,
        "existing namespaces and containers cannot join virtual switches; siga netns without --name needs no root",
        Some("run siga as root".into()),
    )
}

fn filters() -> Check {
    match filter::version() {
        Ok(version) => Check::ok(Group::Tools, "nft", format!("{version}, used for levels with packet filters")),
        Err(error) => Check::missing(
            Group::Tools,
            "nft",
            &error,
            "cells of levels with packet filters (nft-100-rules, conntrack) are skipped; no other measurement uses nft",
        ),
    }
}

fn ssh() -> Check {
    let run = Command::new("ssh").arg("-V").stdin(Stdio::null()).output();
    match run {
        Ok(output) if output.status.success() => {
            let text = String::from_utf8_lossy(&output.stderr);
            let version = text.split(',').next().unwrap_or_default().trim();
            Check::ok(Group::Tools, "ssh", format!("{version}, used for paths to other hosts (ssh:HOST)"))
        }
        Ok(_) | Err(_) => Check::ok(Group::Tools, "ssh", "no ssh client is installed").with(
            CheckState::Missing,
            "siga cannot measure paths to other hosts (ssh:HOST); measurements on this host are not affected",
            Some("install the OpenSSH client, or set another command with --ssh".into()),
        ),
    }
}

/// Returns one check for each condition that makes the host less suitable for measurements. If there is none, returns one check
/// that says so.
pub(super) fn host(environment: &Environment) -> Vec<Check> {
    let warnings = environment.fitness();
    if warnings.is_empty() {
        return vec![Check::ok(Group::Host, "fitness", "siga found nothing on this host that disturbs measurements")];
    }
    let check = |warning: siga_results::environment::Warning| {
        // The text of a warning consists of the problem, a colon and the consequence.
        let (finding, costs) = warning.message.split_once(": ").unwrap_or((&warning.message, "figures vary"));
        Check::ok(Group::Host, "fitness", finding).with(CheckState::Caution, costs, Some(warning.hint))
    };
    warnings.into_iter().map(check).collect()
}

/// Describes the host in one line.
pub(super) fn describe(environment: &Environment) -> String {
    let cpu = &environment.cpu;
    let mitigated = environment.mitigations.values().filter(|text| text.starts_with("Mitigation")).count();
    let known = |value: &Option<String>| value.clone().unwrap_or_else(|| "unknown".into());
    let cpus = cpu.online.map_or("unknown number of".into(), |count| count.to_string());
    let load = environment.moment.load.map_or("unknown".into(), |load| format!("{load:.2}"));
    format!(
        "{cpus} CPUs ({}), guest of {}, Linux {}, governor {}, {mitigated} mitigations, load {load}",
        known(&cpu.model),
        known(&cpu.hypervisor),
        known(&environment.kernel.release),
        known(&cpu.governor),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subtract_needs_both_paths() {
        let path = |kind: PathKind| Check::ok(Group::Paths, kind.name(), "");
        let state = |paths: &[Check]| accounting(paths)[1].state;
        assert_eq!(state(&[path(PathKind::Veth), path(PathKind::VethRouted)]), CheckState::Ok);
        assert_eq!(state(&[path(PathKind::Veth)]), CheckState::Missing);
    }

    #[test]
    fn every_warning_of_an_unfit_host_says_what_it_costs_and_the_way_out() {
        let mut environment = Environment::default();
        assert_eq!(host(&environment)[0].state, CheckState::Ok);
        environment.moment.load = Some(9.0);
        environment.cpu.online = Some(2);
        environment.program.profile = "debug".into();
        let checks = host(&environment);
        assert_eq!(checks.len(), 2);
        for check in checks {
            assert_eq!(check.state, CheckState::Caution);
            assert!(check.costs.is_some_and(|text| !text.is_empty()) && check.way_out.is_some());
        }
    }

    #[test]
    fn the_default_plan_has_the_paths_that_decide_fitness() {
        let plan = siga_plan::plan::Plan::load("default").unwrap();
        assert_eq!(plan.paths, DEFAULT_PATHS);
    }
}
