//! The environment of a run: the properties of the host, the kernel and the siga program that affect the figures of the run.
//!
//! The environment is stored in the run directory. A value that could not be read is unknown. [`differences`] compares two
//! environments and marks the differences that make figures not comparable. [`Environment::fitness`] says why a host is unfit for
//! measuring, and what to do.
//!
//! Users show their runs to other people. An environment therefore contains no host name, domain name, address, user name, user
//! id, serial number or key (`tcp_fastopen_key`). It also lacks the path of the control group, and the values of all boot options
//! except those in [`names::BOOT_OPTIONS`].

mod compare;
pub mod names;

pub use compare::{Difference, differences};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// The properties of the host, the kernel and the siga program that affect the figures of a run. A value that could not be read
/// is `None` or missing from its map.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Environment {
    /// The siga program that measured the run.
    pub program: Program,
    /// The running kernel.
    pub kernel: Kernel,
    /// Processors, real or virtual.
    pub cpu: Cpu,
    /// State of the kernel's mitigation for each CPU vulnerability, by the name of the vulnerability.
    pub mitigations: BTreeMap<String, String>,
    /// Main memory.
    pub memory: Memory,
    /// Kernel settings (sysctls) by name. Settings of `net` are read in the network namespace of the reading process.
    pub sysctl: BTreeMap<String, String>,
    /// Privileges of the process that read the environment.
    pub user: User,
    /// The operating system around the program.
    pub host: Host,
    /// Values that are valid only at the moment of reading.
    pub moment: Moment,
}

/// The siga program that measured the run.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Program {
    /// Name of the program.
    pub name: String,
    /// Version of the program.
    pub version: String,
    /// Build profile: "debug" if the program was built with debug assertions, otherwise "release".
    pub profile: String,
    /// Instruction set for which siga was built.
    pub architecture: String,
}

/// The running kernel.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Kernel {
    /// Release of the kernel, as in `uname -r`.
    pub release: Option<String>,
    /// Number and date of the kernel's build, as in `uname -v`.
    pub version: Option<String>,
    /// Preemption model: "PREEMPT_RT", "PREEMPT_DYNAMIC" (the boot option `preempt` selects the model), "PREEMPT" or "none or
    /// voluntary".
    pub preemption: Option<String>,
    /// Timer interrupts per second.
    pub hz: Option<u32>,
    /// Name of the file from which the kernel's build options were read; `None` if no file could be read.
    pub config_source: Option<String>,
    /// The kernel's build options that are set, limited to [`names::CONFIG_OPTIONS`] and [`names::DEBUG_OPTIONS`].
    pub config: BTreeMap<String, String>,
    /// The options on the kernel's command line, limited to [`names::BOOT_OPTIONS`].
    pub boot: BTreeMap<String, String>,
    /// The names of all other options on the kernel's command line. Their values may identify the host.
    pub boot_others: Option<String>,
}

/// Processors, real or virtual.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Cpu {
    /// Model name of the CPUs; several names if the models differ.
    pub model: Option<String>,
    /// Maker of the CPUs.
    pub vendor: Option<String>,
    /// Revision of the CPUs' microcode.
    pub microcode: Option<String>,
    /// Number of CPUs that are online.
    pub online: Option<u32>,
    /// Number of CPUs on which the reading process may run.
    pub allowed: Option<u32>,
    /// Hypervisor under which this system runs: its name, "unnamed" if it does not reveal its name, or "none".
    pub hypervisor: Option<String>,
    /// Whether a program emulates the CPUs, such as QEMU without KVM. Rates, latencies and CPU times of such a machine say nothing
    /// about any real machine.
    pub emulated: Option<bool>,
    /// Maker and product name of the machine (DMI).
    pub machine: Option<String>,
    /// Maker, version and date of the firmware (DMI).
    pub firmware: Option<String>,
    /// CPU frequency governors in use; "none" if the frequency cannot be set.
    pub governor: Option<String>,
    /// Driver that sets the CPU frequency.
    pub frequency_driver: Option<String>,
    /// Whether frequencies above the nominal frequency are allowed.
    pub turbo: Option<bool>,
    /// State of simultaneous multithreading ("on", "off", "notsupported").
    pub smt: Option<String>,
    /// Driver and governor of the CPUs' idle states. They determine how long a CPU needs to wake up.
    pub idle: Option<String>,
    /// Caches of the first CPU, in words.
    pub caches: Option<String>,
    /// The kernel's clock source.
    pub clocksource: Option<String>,
    /// Number of NUMA nodes that are online.
    pub numa_nodes: Option<u32>,
}

/// Main memory.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Memory {
    /// Size of the memory that the kernel manages, in bytes.
    pub total_bytes: Option<u64>,
    /// Setting of transparent huge pages: "always", "madvise" or "never".
    pub huge_pages: Option<String>,
}

/// Privileges of the process that read the environment.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct User {
    /// Whether the process is root in its user namespace.
    pub root: Option<bool>,
    /// Effective capabilities of the process, in hexadecimal.
    pub capabilities: Option<String>,
}

/// The operating system around the program.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Host {
    /// Name and version of the distribution.
    pub distribution: Option<String>,
    /// Name of the container manager whose marker file or control group was found; "none" if there is no sign of one. This is
    /// only a hint.
    pub container: Option<String>,
    /// Identifier of this boot of the kernel (`boot_id`).
    pub boot_id: Option<String>,
}

/// Values that are valid only at the moment of reading.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Default)]
#[serde(default)]
pub struct Moment {
    /// Time of reading, in UTC (RFC 3339).
    pub time: Option<String>,
    /// Load average: the mean number of runnable processes in the last minute.
    pub load: Option<f64>,
    /// Percentage of all CPU time since the host's start that the hypervisor gave to other virtual machines.
    pub steal_percent: Option<f64>,
}

/// A reason why measurements on a host are unreliable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// Description of the problem, and of how it distorts the measurement.
    pub message: String,
    /// What the user can do about the problem.
    pub hint: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  {}", self.message, self.hint)
    }
}

/// Maximum load average per CPU for a fit host. If the load is higher, other programs disturb a run.
const LOAD_PER_CPU_MAX: f64 = 0.5;
/// Maximum percentage of steal time in all CPU time for a fit host. If the percentage is higher, the hypervisor disturbs a run.
const STEAL_PERCENT_MAX: f64 = 1.0;

/// The words for an emulated machine: the reason of the verdict `not comparable`, and the mark in the titles of tables.
pub const EMULATED: &str = "emulated machine";

/// What the figures of an emulated machine mean, as the sentence without its end.
pub const EMULATED_FIGURES: &str =
    "a program emulates this machine's CPUs, so its rates, latencies and CPU times do not apply to a real machine";

impl Environment {
    /// Returns whether the machine is known to be emulated. Its figures get no verdict, and are marked in every report.
    pub fn is_emulated(&self) -> bool {
        self.cpu.emulated == Some(true)
    }

    /// Returns the number of CPUs that a run can use.
    fn cpus(&self) -> Option<u32> {
        self.cpu.online.into_iter().chain(self.cpu.allowed).min()
    }

    /// Returns the reasons why this host is unfit for measuring; empty if the host is fit. An unknown value gives no warning.
    pub fn fitness(&self) -> Vec<Warning> {
        let checks = [
            self.emulated(),
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

    fn emulated(&self) -> Option<(String, String)> {
        self.is_emulated().then(|| {
            let message = format!("{EMULATED}: rates, latencies and CPU times do not apply to a real machine");
            (message, "measure on real CPUs, or in a virtual machine with KVM".into())
        })
    }

    fn busy(&self) -> Option<(String, String)> {
        let (load, cpus) = (self.moment.load?, self.cpu.online?);
        let limit = LOAD_PER_CPU_MAX * f64::from(cpus);
        (load > limit).then(|| {
            (
                format!(
                    "the load average is {load:.2} on {cpus} CPUs: other programs use a varying share of the CPU time"
                ),
                format!("stop other programs, or wait until the load average in `uptime` is less than {limit:.1}"),
            )
        })
    }

    fn single_cpu(&self) -> Option<(String, String)> {
        (self.cpus()? == 1).then(|| {
            (
                "siga can use only one CPU; client, router and server share this CPU, so every packet costs a context switch"
                    .into(),
                "use a host with at least two CPUs, or allow siga to use more CPUs (`taskset -cp $$` shows the \
                    allowed CPUs)"
                    .into(),
            )
        })
    }

    fn slow_governor(&self) -> Option<(String, String)> {
        let governor = self.cpu.governor.as_deref()?;
        (!["performance", "none"].contains(&governor)).then(|| {
            (
                format!(
                    "the CPU frequency governor is {governor}, so the CPUs lower their frequency while a path waits"
                ),
                "run as root: cpupower frequency-set --governor performance".into(),
            )
        })
    }

    fn debug_build(&self) -> Option<(String, String)> {
        (self.program.profile == "debug").then(|| {
            (
                "this is a debug build of siga, so siga itself uses most of the measured time".into(),
                "build siga with `cargo build --release`".into(),
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
                    "the kernel was built with debug options ({}), which make its network code several times slower",
                    set.join(", ")
                ),
                "boot a kernel without these options".into(),
            )
        })
    }

    fn unpaced_bbr(&self) -> Option<(String, String)> {
        let setting = |name: &str| self.sysctl.get(name).map(String::as_str);
        (setting("net.ipv4.tcp_congestion_control")? == "bbr" && setting("net.core.default_qdisc")? != "fq").then(
            || {
                (
                    "the default TCP congestion control is bbr, but the default queueing discipline is not fq, so bbr paces \
                        with timers; this lowers the rate between existing hosts, namespaces or containers by a third or more \
                        (paths that siga builds are not affected)"
                        .into(),
                    "run as root: sysctl -w net.ipv4.tcp_congestion_control=cubic".into(),
                )
            },
        )
    }

    fn stolen(&self) -> Option<(String, String)> {
        let share = self.moment.steal_percent?;
        (share > STEAL_PERCENT_MAX).then(|| {
            (
                format!(
                    "since the machine started, the hypervisor has given {share:.1}% of the CPU time to other virtual \
                        machines, so rates will vary"
                ),
                "use a machine with dedicated CPUs, or measure more trials".into(),
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Fault = fn(&mut Environment);

    /// Returns a host without anything that disturbs measurements.
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
        assert_eq!(Environment::default().fitness(), [], "an unknown part of the environment causes no warning");
        let faults: [(Fault, &str); 10] = [
            (|host| host.cpu.emulated = Some(true), "emulated machine"),
            (|host| host.moment.load = Some(2.01), "load average is 2.01 on 4 CPUs"),
            (|host| host.cpu.online = Some(1), "only one CPU"),
            (|host| host.cpu.allowed = Some(1), "only one CPU"),
            (|host| host.cpu.governor = Some("schedutil".into()), "governor is schedutil"),
            (|host| host.cpu.governor = Some("performance, powersave".into()), "governor is performance, powersave"),
            (|host| host.program.profile = "debug".into(), "debug build"),
            (|host| drop(host.kernel.config.insert("CONFIG_KASAN".into(), "y".into())), "(KASAN)"),
            (
                |host| drop(host.sysctl.insert("net.core.default_qdisc".into(), "pfifo_fast".into())),
                "default TCP congestion control is bbr",
            ),
            (|host| host.moment.steal_percent = Some(1.1), "given 1.1% of the CPU time"),
        ];
        for (fault, words) in faults {
            let mut host = fit();
            fault(&mut host);
            // With one CPU, the same load would also count as overload.
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
