//! The environment of a run: what its figures depend on besides the plan.
//!
//! It is stored in the run directory; a part that could not be read is unknown. [`differences`] compares two environments and
//! marks what makes figures not comparable. [`Environment::fitness`] says why a host is unfit for measuring, and what to do.
//!
//! Runs are made to be shown to others. Not recorded are therefore: host and domain name, addresses, user name and id, serial
//! numbers, keys (`tcp_fastopen_key`), the path of the control group, and boot options that [`names::BOOT_OPTIONS`] does not
//! name.

mod compare;
pub mod names;

pub use compare::{Difference, differences};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// What a run's figures depend on besides its plan. A `None`, or a name missing from a map, could not be read.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Environment {
    /// This program.
    pub program: Program,
    /// The running kernel.
    pub kernel: Kernel,
    /// Processors, real or virtual.
    pub cpu: Cpu,
    /// CPU vulnerabilities by name and what the kernel does about each.
    pub mitigations: BTreeMap<String, String>,
    /// Main memory.
    pub memory: Memory,
    /// Kernel settings by name; those of `net` are of the network namespace the reader was in.
    pub sysctl: BTreeMap<String, String>,
    /// What the reading process may do.
    pub user: User,
    /// The system around it.
    pub host: Host,
    /// What holds only for the moment of reading.
    pub moment: Moment,
}

/// This program.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Program {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// "release", or "debug" when built with assertions.
    pub profile: String,
    /// Instruction set it was built for.
    pub architecture: String,
}

/// The running kernel.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Kernel {
    /// As `uname -r`.
    pub release: Option<String>,
    /// As `uname -v`: number and date of its build.
    pub version: Option<String>,
    /// "PREEMPT_RT", "PREEMPT_DYNAMIC" (the boot option `preempt` decides), "PREEMPT" or "none or voluntary".
    pub preemption: Option<String>,
    /// Timer interrupts a second.
    pub hz: Option<u32>,
    /// File the build options come from.
    pub config_source: Option<String>,
    /// Those of [`names::CONFIG_OPTIONS`] and [`names::DEBUG_OPTIONS`] that are set.
    pub config: BTreeMap<String, String>,
    /// Those of [`names::BOOT_OPTIONS`] that are given on the kernel's command line.
    pub boot: BTreeMap<String, String>,
}

/// Processors, real or virtual.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Cpu {
    /// Model name; several when they differ.
    pub model: Option<String>,
    /// Maker.
    pub vendor: Option<String>,
    /// Revision of the microcode.
    pub microcode: Option<String>,
    /// CPUs that are online.
    pub online: Option<u32>,
    /// CPUs that the reading process may run on.
    pub allowed: Option<u32>,
    /// "none", or what this system is a guest of; "unnamed" where it hides its name.
    pub hypervisor: Option<String>,
    /// Maker and product name of the machine (DMI).
    pub machine: Option<String>,
    /// Frequency governors in use, "none" where frequencies cannot be set.
    pub governor: Option<String>,
    /// What sets the frequency.
    pub frequency_driver: Option<String>,
    /// Whether frequencies above the nominal are allowed.
    pub turbo: Option<bool>,
    /// Simultaneous multithreading ("on", "off", "notsupported").
    pub smt: Option<String>,
    /// Driver and governor of idle states: they decide what a wake-up costs.
    pub idle: Option<String>,
    /// Caches of the first CPU.
    pub caches: Option<String>,
    /// The kernel's clock source.
    pub clocksource: Option<String>,
    /// NUMA nodes online.
    pub numa_nodes: Option<u32>,
}

/// Main memory.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Memory {
    /// What the kernel manages.
    pub total_bytes: Option<u64>,
    /// Transparent huge pages: "always", "madvise" or "never".
    pub huge_pages: Option<String>,
}

/// What the reading process may do.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct User {
    /// Whether it is root in its user namespace.
    pub root: Option<bool>,
    /// Effective capabilities, hexadecimal.
    pub capabilities: Option<String>,
}

/// The system around the program.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Host {
    /// Name and version of the distribution.
    pub distribution: Option<String>,
    /// The container manager whose marks are there; a hint, "none" if there are none.
    pub container: Option<String>,
    /// Identity of the running kernel since its start.
    pub boot_id: Option<String>,
}

/// What holds only for the moment of reading.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Moment {
    /// UTC, RFC 3339.
    pub time: Option<String>,
    /// Runnable processes, mean of the last minute.
    pub load: Option<f64>,
    /// Share of all CPU time since the host's start that the hypervisor gave to others.
    pub steal_percent: Option<f64>,
}

/// Something that makes a host a bad place to measure on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// What is wrong and what it costs.
    pub message: String,
    /// What to do about it.
    pub hint: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.message, self.hint)
    }
}

/// Load per CPU above which other programs disturb a run.
const LOAD_PER_CPU_MAX: f64 = 0.5;
/// Stolen share of CPU time above which the hypervisor disturbs a run.
const STEAL_PERCENT_MAX: f64 = 1.0;

impl Environment {
    /// CPUs that a run can use.
    fn cpus(&self) -> Option<u32> {
        self.cpu.online.into_iter().chain(self.cpu.allowed).min()
    }

    /// Why this host is unfit for measuring; empty if it is fit. An unknown part gives no warning.
    pub fn fitness(&self) -> Vec<Warning> {
        let checks = [
            self.busy(),
            self.single_cpu(),
            self.slow_governor(),
            self.debug_build(),
            self.debug_kernel(),
            self.unpaced_bbr(),
            self.stolen(),
        ];
        checks.into_iter().flatten().map(|(message, hint)| Warning { message, hint }).collect()
    }

    fn busy(&self) -> Option<(String, String)> {
        let (load, cpus) = (self.moment.load?, self.cpu.online?);
        let limit = LOAD_PER_CPU_MAX * f64::from(cpus);
        (load > limit).then(|| {
            (
                format!(
                    "the load average is {load:.2} on {cpus} CPUs: other programs take a varying share of the CPU time"
                ),
                format!("stop it, or wait until `uptime` shows less than {limit:.1}"),
            )
        })
    }

    fn single_cpu(&self) -> Option<(String, String)> {
        (self.cpus()? == 1).then(|| {
            (
                "only one CPU can be used: client, router and server take turns, and every packet costs a context switch"
                    .into(),
                "use a host with at least two CPUs, or allow this program more (`taskset -cp $$` shows which)".into(),
            )
        })
    }

    fn slow_governor(&self) -> Option<(String, String)> {
        let governor = self.cpu.governor.as_deref()?;
        (!["performance", "none"].contains(&governor)).then(|| {
            (
                format!("the CPU frequency governor is {governor}: a path that waits runs at a lower frequency"),
                "as root: cpupower frequency-set --governor performance".into(),
            )
        })
    }

    fn debug_build(&self) -> Option<(String, String)> {
        (self.program.profile == "debug").then(|| {
            (
                "this is a debug build: most of the time is spent in siga, not in the path".into(),
                "build with `cargo build --release`".into(),
            )
        })
    }

    fn debug_kernel(&self) -> Option<(String, String)> {
        let set: Vec<&str> = self
            .kernel
            .config
            .keys()
            .filter(|name| names::listed(names::DEBUG_OPTIONS, name))
            .map(|name| name.trim_start_matches("CONFIG_"))
            .collect();
        (!set.is_empty()).then(|| {
            (
                format!(
                    "the kernel has debug options ({}): its network code runs several times slower",
                    set.join(", ")
                ),
                "start a kernel that is built without these options".into(),
            )
        })
    }

    fn unpaced_bbr(&self) -> Option<(String, String)> {
        let setting = |name: &str| self.sysctl.get(name).map(String::as_str);
        (setting("net.ipv4.tcp_congestion_control")? == "bbr" && setting("net.core.default_qdisc")? != "fq").then(
            || {
                (
                    "TCP's default congestion control is bbr without the queueing discipline fq: in places that exist \
                 already, pacing by timers costs a third of the rate or more (paths built here choose their own)"
                        .into(),
                    "as root: sysctl -w net.ipv4.tcp_congestion_control=cubic".into(),
                )
            },
        )
    }

    fn stolen(&self) -> Option<(String, String)> {
        let share = self.moment.steal_percent?;
        (share > STEAL_PERCENT_MAX).then(|| {
            (
                format!(
                    "the hypervisor has given {share:.1}% of the CPU time since the start to others: rates will vary"
                ),
                "use a machine whose CPUs are its own, or measure more trials".into(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fault = fn(&mut Environment);

    /// A host that is fit.
    fn fit() -> Environment {
        let mut host = Environment::default();
        host.program.profile = "release".into();
        host.cpu = Cpu { online: Some(4), allowed: Some(4), governor: Some("performance".into()), ..Cpu::default() };
        host.moment = Moment { load: Some(2.0), steal_percent: Some(1.0), ..Moment::default() };
        host.sysctl.insert("net.ipv4.tcp_congestion_control".into(), "bbr".into());
        host.sysctl.insert("net.core.default_qdisc".into(), "fq".into());
        host.kernel.config.insert("CONFIG_PREEMPT".into(), "y".into());
        host
    }

    #[test]
    fn each_fault_gives_one_warning_with_a_hint() {
        assert_eq!(fit().fitness(), []);
        assert_eq!(Environment::default().fitness(), [], "an unknown part gives no warning");
        let faults: [(Fault, &str); 9] = [
            (|host| host.moment.load = Some(2.01), "load average is 2.01 on 4 CPUs"),
            (|host| host.cpu.online = Some(1), "only one CPU"),
            (|host| host.cpu.allowed = Some(1), "only one CPU"),
            (|host| host.cpu.governor = Some("schedutil".into()), "governor is schedutil"),
            (|host| host.cpu.governor = Some("performance, powersave".into()), "governor is performance, powersave"),
            (|host| host.program.profile = "debug".into(), "debug build"),
            (|host| drop(host.kernel.config.insert("CONFIG_KASAN".into(), "y".into())), "(KASAN)"),
            (|host| drop(host.sysctl.insert("net.core.default_qdisc".into(), "pfifo_fast".into())), "bbr without"),
            (|host| host.moment.steal_percent = Some(1.1), "given 1.1% of the CPU time"),
        ];
        for (fault, words) in faults {
            let mut host = fit();
            fault(&mut host);
            // One CPU would otherwise be overloaded too.
            if host.cpus() == Some(1) {
                host.moment.load = Some(0.0);
            }
            let warnings = host.fitness();
            assert_eq!(warnings.len(), 1, "{words}: {warnings:?}");
            assert!(warnings[0].message.contains(words), "{words}: {warnings:?}");
            assert!(!warnings[0].hint.is_empty());
        }
    }
}
