//! The checks of the kernel's features that decide which paths and levels can be measured: control groups, CPUs that can be taken
//! offline, and the features that [`crate::path::feature`] tries.

use super::check::{Check, CheckState, Group};
use crate::host::Files;
use crate::path::feature::Feature;
use crate::path::try_feature;
use siga_model::error::Result;
use siga_plan::cpus::cpu_list;
use std::path::Path;

/// Checks the kernel's features.
pub(super) fn kernel(progress: &mut dyn FnMut(&str)) -> Vec<Check> {
    let files = Files::below(Path::new("/"));
    let mut checks = vec![cgroup(&files), cpus(&files)];
    for feature in Feature::ALL {
        progress(&format!("feature {} of the kernel", name(feature)));
        checks.push(tried(feature, try_feature(Path::new("/proc/self/exe"), feature)));
    }
    checks.extend([
        device(&files, "device mapper", "/proc/misc", "device-mapper", "dm-mod"),
        device(&files, "nbd", "/proc/devices", "nbd", "nbd"),
    ]);
    checks
}

fn name(feature: Feature) -> &'static str {
    match feature {
        Feature::Bonding => "bonding",
        Feature::Vlan => "802.1Q",
        Feature::Netem => "netem",
        Feature::Fq => "fq",
        Feature::Esp4 => "ESP for IPv4",
        Feature::Esp6 => "ESP for IPv6",
        Feature::Smc => "SMC",
        Feature::Tap => "TAP devices",
    }
}

fn about(feature: Feature) -> &'static str {
    match feature {
        Feature::Bonding => "network interfaces that combine several other interfaces",
        Feature::Vlan => "VLAN interfaces, which send frames with 802.1Q tags",
        Feature::Netem => "a queueing discipline that delays and drops packets",
        Feature::Fq => "a queueing discipline that paces each flow",
        Feature::Esp4 | Feature::Esp6 => "IPsec with AES-GCM",
        Feature::Smc => "sockets for Shared Memory Communications (AF_SMC)",
        Feature::Tap => "network namespaces can join virtual switches: siga netns NETWORK PORT",
    }
}

fn without(feature: Feature) -> &'static str {
    match feature {
        Feature::Bonding => "the path bond is not available",
        Feature::Vlan => "the path vlan is not available",
        Feature::Netem => "levels with netem (delay, loss) are not available",
        Feature::Fq => "levels with the queueing discipline fq are not available",
        Feature::Esp4 => "IPsec over IPv4 cannot be measured",
        Feature::Esp6 => "IPsec over IPv6 cannot be measured",
        Feature::Smc => "the path smc-loopback is not available",
        Feature::Tap => "network namespaces and containers cannot join virtual switches",
    }
}

fn tried(feature: Feature, outcome: Result<()>) -> Check {
    match outcome {
        Ok(()) => Check::ok(Group::Kernel, name(feature), about(feature)),
        Err(error) => Check::missing(Group::Kernel, name(feature), &error, without(feature)),
    }
}

/// Checks which version of control groups the host has, and with which controllers.
fn cgroup(files: &Files<'_>) -> Check {
    let mounts = files.text("/proc/self/mountinfo").unwrap_or_default();
    let mut second = None;
    let mut first: Vec<&str> = Vec::new();
    for (left, right) in mounts.lines().filter_map(|line| line.split_once(" - ")) {
        match right.split(' ').collect::<Vec<_>>()[..] {
            ["cgroup2", ..] if second.is_none() => second = left.split(' ').nth(4),
            ["cgroup", _, options] => {
                let names = options.split(',').filter(|option| !["rw", "ro"].contains(option) && !option.contains('='));
                first.extend(names);
            }
            _ => {}
        }
    }
    let controllers = second.and_then(|mount| files.line(&format!("{mount}/cgroup.controllers")));
    let check = |finding: String| Check::ok(Group::Kernel, "cgroup v2", finding);
    let controllers = controllers.unwrap_or_else(|| "none".into());
    let finding =
        second.map_or("not mounted".into(), |mount| format!("at {mount}, with the controllers {controllers}"));
    if ["cpu", "memory"].into_iter().all(|wanted| controllers.split(' ').any(|name| name == wanted)) {
        return check(finding);
    }
    let older = if first.is_empty() { String::new() } else { format!("; cgroup v1 has {}", first.join(", ")) };
    check(finding + &older).with(
        CheckState::Missing,
        "siga cannot limit CPU time or memory by cgroup v2",
        Some("boot the kernel with cgroup_no_v1=all, and mount cgroup2 at /sys/fs/cgroup".into()),
    )
}

/// Says how many CPUs are online, and which of them root can take offline.
fn cpus(files: &Files<'_>) -> Check {
    const CPUS: &str = "/sys/devices/system/cpu";
    let online = files.line(&format!("{CPUS}/online")).and_then(|list| cpu_list(&list)).map_or(0, |cpus| cpus.len());
    let mut numbers: Vec<u32> = files
        .names(CPUS, "cpu")
        .iter()
        .filter(|cpu| files.line(&format!("{CPUS}/{cpu}/online")).is_some())
        .filter_map(|cpu| cpu.strip_prefix("cpu")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let list = numbers.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let finding = match numbers[..] {
        [] => format!("{online} online; root cannot switch off any of these CPUs"),
        _ => format!("{online} online; root can switch these CPUs off and on: {list}"),
    };
    Check::ok(Group::Kernel, "CPUs", finding)
}

/// Checks a device driver without loading it: the driver is in `list`, or its module is in the modules of the running kernel.
fn device(files: &Files<'_>, name: &str, list: &str, entry: &str, module: &str) -> Check {
    let is_loaded =
        files.text(list).is_some_and(|text| text.lines().any(|line| line.split_whitespace().nth(1) == Some(entry)));
    let release = files.line("/proc/sys/kernel/osrelease").unwrap_or_default();
    let is_module = || {
        let file = format!("/{module}.ko");
        let modules = files.text(&format!("/lib/modules/{release}/modules.dep")).unwrap_or_default();
        modules.lines().filter_map(|line| line.split_once(':')).any(|(path, _)| path.contains(&file))
    };
    let check = |finding: &str| Check::ok(Group::Kernel, name, finding);
    if is_loaded {
        return check("the driver is loaded");
    }
    if is_module() {
        return check(&format!("the module {module} is installed, but not loaded"));
    }
    check(&format!("this kernel lacks the module {module}")).with(
        CheckState::Missing,
        "no effect on siga: no path and no level uses it",
        Some(format!("use a kernel with this feature, and install its module {module}")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_model::error::Error;
    use std::fs;

    /// Applies a check to a host with these files.
    fn on(files: &[(&str, &str)], check: impl Fn(&Files<'_>) -> Check) -> Check {
        let root = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        check(&Files::below(root.path()))
    }

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "30 23 0:26 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n\
                          31 23 0:27 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd\n\
                          32 23 0:28 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";

    #[test]
    fn control_groups_of_version_two_count_only_if_they_control_cpu_and_memory() {
        let mounts = "proc/self/mountinfo";
        let full = on(&[(mounts, V2), ("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory\n")], cgroup);
        assert_eq!((full.state, full.finding.as_str()), {
            (CheckState::Ok, "at /sys/fs/cgroup, with the controllers cpuset cpu io memory")
        });
        let hybrid = on(&[(mounts, HYBRID), ("sys/fs/cgroup/unified/cgroup.controllers", "\n")], cgroup);
        assert_eq!((hybrid.state, hybrid.finding.as_str()), {
            (CheckState::Missing, "at /sys/fs/cgroup/unified, with the controllers none; cgroup v1 has cpu, cpuacct")
        });
        assert_eq!(on(&[], cgroup).finding, "not mounted");
    }

    #[test]
    fn the_cpus_that_root_can_take_offline_are_named() {
        let cpu = "sys/devices/system/cpu";
        let (online, first, eleventh) =
            (format!("{cpu}/online"), format!("{cpu}/cpu2/online"), format!("{cpu}/cpu10/online"));
        let files = [(online.as_str(), "0-3\n"), (eleventh.as_str(), "1\n"), (first.as_str(), "1\n")];
        assert_eq!(on(&files, cpus).finding, "4 online; root can switch these CPUs off and on: 2, 10");
        assert_eq!(on(&files[..1], cpus).finding, "4 online; root cannot switch off any of these CPUs");
    }

    #[test]
    fn a_driver_that_is_neither_loaded_nor_installed_is_missing() {
        let nbd = |files: &Files<'_>| device(files, "nbd", "/proc/devices", "nbd", "nbd");
        let loaded = ("proc/devices", "Block devices:\n 43 nbd\n");
        let release = ("proc/sys/kernel/osrelease", "6.1\n");
        let installed = ("lib/modules/6.1/modules.dep", "kernel/drivers/block/nbd.ko.xz: kernel/lib/x.ko\n");
        let needed = ("lib/modules/6.1/modules.dep", "kernel/other.ko: kernel/drivers/block/nbd.ko\n");
        assert_eq!(on(&[loaded], nbd).finding, "the driver is loaded");
        assert_eq!(on(&[release, installed], nbd).finding, "the module nbd is installed, but not loaded");
        for files in [&[release, needed][..], &[("proc/devices", " 43 nbdx\n")]] {
            assert_eq!(on(files, nbd).state, CheckState::Missing);
        }
    }

    #[test]
    fn a_refused_feature_says_what_is_missing_and_what_it_costs() {
        for feature in Feature::ALL {
            assert_eq!(tried(feature, Ok(())).state, CheckState::Ok);
            let refused = tried(feature, Err(Error::environment("it is missing").hint("load it")));
            assert_eq!((refused.state, refused.finding.as_str()), (CheckState::Missing, "it is missing"));
            assert!(refused.costs.is_some() && refused.way_out.as_deref() == Some("load it"));
        }
    }
}
