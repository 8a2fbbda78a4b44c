//! Reads the environment of a measurement (CPU, kernel, hypervisor and their settings) from /proc, /sys, /etc and /boot.
//!
//! All paths are relative to one root directory, so that tests can provide an artificial host. Files are read up to a size
//! limit and treated as text. If a file is missing, unreadable or malformed, the fields that depend on it stay empty. This
//! module starts no program and changes nothing. It records nothing that identifies the host or its user.

mod emulation;

use flate2::read::GzDecoder;
use siga_plan::cpus::cpu_list;
use siga_results::environment::names::{BOOT_OPTIONS, CONFIG_OPTIONS, DEBUG_OPTIONS, SYSCTLS, listed};
use siga_results::environment::{Cpu, Environment, Host, Kernel, Memory, Moment, Program, User};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Reads the environment of this host. This needs no privilege, takes a few milliseconds and never fails.
pub fn environment() -> Environment {
    below(Path::new("/"), emulation::signature())
}

/// Reads the environment from the files below `root`. `signature` is that of the hypervisor.
fn below(root: &Path, signature: Option<[u8; 12]>) -> Environment {
    let files = Files::below(root);
    Environment {
        program: Program {
            name: "siga".into(),
            version: env!("CARGO_PKG_VERSION").into(),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" }.into(),
            architecture: std::env::consts::ARCH.into(),
        },
        kernel: kernel(&files),
        cpu: cpu(&files, signature),
        mitigations: mitigations(&files),
        memory: Memory {
            total_bytes: files.text("/proc/meminfo").as_deref().and_then(total_bytes),
            huge_pages: files.line("/sys/kernel/mm/transparent_hugepage/enabled").map(chosen),
        },
        sysctl: sysctls(&files),
        user: files.text("/proc/self/status").as_deref().map(user).unwrap_or_default(),
        host: Host {
            distribution: files.text("/etc/os-release").as_deref().and_then(distribution),
            container: container(&files),
            boot_id: files.line("/proc/sys/kernel/random/boot_id"),
        },
        moment: Moment {
            time: Some(humantime::format_rfc3339_seconds(SystemTime::now()).to_string()),
            load: files.line("/proc/loadavg").as_deref().and_then(load),
            steal_percent: files.text("/proc/stat").as_deref().and_then(steal_percent),
        },
    }
}

/// Maximum number of bytes that are read from one file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Maximum number of names that are read from one directory.
const NAMES_MAX: usize = 4096;
/// Maximum length of a recorded value, in characters.
const VALUE_CHARS_MAX: usize = 500;

/// The files below a root directory: "/", or the directory of an artificial host.
pub(crate) struct Files<'a> {
    root: &'a Path,
}

impl<'a> Files<'a> {
    pub(crate) fn below(root: &'a Path) -> Self {
        Self { root }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name.trim_start_matches('/'))
    }

    fn bytes(&self, name: &str) -> Option<Vec<u8>> {
        let path = self.path(name);
        // Read only regular files: opening a named pipe would block until another process opens it for writing.
        if !fs::metadata(&path).ok()?.is_file() {
            return None;
        }
        let mut bytes = Vec::new();
        fs::File::open(&path).ok()?.take(FILE_BYTES_MAX).read_to_end(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Returns the content of a regular file as text, or `None` if it cannot be read.
    pub(crate) fn text(&self, name: &str) -> Option<String> {
        self.bytes(name).map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Returns the whole content of a file as one line, or `None` if it is empty or cannot be read.
    pub(crate) fn line(&self, name: &str) -> Option<String> {
        self.text(name).as_deref().map(tidy).filter(|value| !value.is_empty())
    }

    /// Returns the names in a directory that begin with `start`, sorted.
    pub(crate) fn names(&self, directory: &str, start: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(directory)) else { return Vec::new() };
        let names = entries.take(NAMES_MAX).flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with(start)).collect();
        names.sort();
        names
    }
}

/// Converts a value to one line: replaces each run of white space by one space and each control character by `?`, and limits
/// the length to [`VALUE_CHARS_MAX`].
fn tidy(text: &str) -> String {
    let text = text.chars().map(|c| if c.is_control() && !c.is_whitespace() { '?' } else { c });
    let text: String = text.take(4 * VALUE_CHARS_MAX).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(VALUE_CHARS_MAX).collect()
}

/// Joins values into one line, with `between` between two values. Returns `None` if there are no values.
fn joined(values: impl IntoIterator<Item = String>, between: &str) -> Option<String> {
    let all: Vec<String> = values.into_iter().collect();
    (!all.is_empty()).then(|| tidy(&all.join(between)))
}

/// Returns the chosen value of a setting whose file lists all choices, with the chosen one in brackets ("always [madvise]
/// never").
fn chosen(line: String) -> String {
    match line.split_once('[').and_then(|(_, rest)| rest.split_once(']')) {
        Some((word, _)) => word.to_owned(),
        None => line,
    }
}

/// Returns the value of the first line `NAME: VALUE`. Spaces around the name are ignored.
fn field(text: &str, name: &str) -> Option<String> {
    let mut fields = text.lines().filter_map(|line| line.split_once(':'));
    fields.find(|(key, _)| key.trim() == name).map(|(_, value)| tidy(value)).filter(|value| !value.is_empty())
}

/// Returns the number of CPUs or nodes in a list such as "0-3,8".
fn list_length(list: &str) -> Option<u32> {
    u32::try_from(cpu_list(list)?.len()).ok()
}

fn kernel(files: &Files) -> Kernel {
    let release = files.line("/proc/sys/kernel/osrelease");
    let version = files.line("/proc/sys/kernel/version");
    let config = config(files, release.as_deref());
    let (config_source, config) = config.map_or((None, BTreeMap::new()), |(source, config)| (Some(source), config));
    Kernel {
        preemption: version.as_deref().map(preemption),
        hz: config.get("CONFIG_HZ").and_then(|hz| hz.parse().ok()),
        boot: files.text("/proc/cmdline").as_deref().map(boot_options).unwrap_or_default(),
        boot_others: files.text("/proc/cmdline").as_deref().and_then(other_boot_options),
        release,
        version,
        config_source,
        config,
    }
}

fn preemption(version: &str) -> String {
    let models = ["PREEMPT_RT", "PREEMPT_DYNAMIC", "PREEMPT"];
    let model = models.into_iter().find(|model| version.split_whitespace().any(|word| word == *model));
    model.unwrap_or("none or voluntary").into()
}

/// Returns the build options of the running kernel, and the name of the file from which they were read.
fn config(files: &Files, release: Option<&str>) -> Option<(String, BTreeMap<String, String>)> {
    let running = "/proc/config.gz";
    let unpacked = files.bytes(running).and_then(|bytes| {
        let mut text = Vec::new();
        GzDecoder::new(bytes.as_slice()).take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
        parse_config(running, &String::from_utf8_lossy(&text))
    });
    let installed = || {
        let release = release?;
        let places = [format!("/boot/config-{release}"), format!("/lib/modules/{release}/config")];
        places.into_iter().find_map(|place| parse_config(&place, &files.text(&place)?))
    };
    unpacked.or_else(installed)
}

/// Returns the options of a kernel configuration that are set and that siga records, with the name of the file. Returns `None`
/// if no such option is set.
fn parse_config(name: &str, text: &str) -> Option<(String, BTreeMap<String, String>)> {
    let options = text.lines().filter_map(|line| line.split_once('='));
    let kept = options.filter(|(name, _)| listed(CONFIG_OPTIONS, name) || listed(DEBUG_OPTIONS, name));
    let kept: BTreeMap<_, _> = kept.map(|(name, value)| (tidy(name), tidy(value.trim_matches('"')))).collect();
    (!kept.is_empty()).then(|| (tidy(name), kept))
}

/// Returns the options of a kernel command line that siga records. Ignores the words after `--`, which belong to init.
fn boot_options(line: &str) -> BTreeMap<String, String> {
    let options = boot_words(line).filter(|(name, _)| listed(BOOT_OPTIONS, name));
    options.map(|(name, value)| (tidy(name), tidy(value))).collect()
}

/// Returns the names of the other options of a kernel command line, sorted.
fn other_boot_options(line: &str) -> Option<String> {
    let others = boot_words(line).filter(|(name, _)| !listed(BOOT_OPTIONS, name));
    let names: BTreeSet<String> = others.map(|(name, _)| tidy(name)).collect();
    joined(names, " ")
}

/// Returns the options of a kernel command line with their values.
fn boot_words(line: &str) -> impl Iterator<Item = (&str, &str)> {
    let words = line.split_whitespace().take_while(|word| *word != "--");
    words.map(|word| word.split_once('=').unwrap_or((word, "given")))
}

const CPUS: &str = "/sys/devices/system/cpu";

fn cpu(files: &Files, signature: Option<[u8; 12]>) -> Cpu {
    let info = files.text("/proc/cpuinfo").unwrap_or_default();
    let line = |name: &str| files.line(&format!("{CPUS}/{name}"));
    let counted = info.lines().filter(|line| line.starts_with("processor")).count();
    let dmi = |names: &[&str]| {
        let values = names.iter().filter_map(|name| files.line(&format!("/sys/class/dmi/id/{name}")));
        joined(values, " ")
    };
    let no_turbo = line("intel_pstate/no_turbo").map(|value| value == "0");
    let idle = [line("cpuidle/current_driver"), line("cpuidle/current_governor_ro")];
    Cpu {
        model: cpu_model(&info),
        vendor: field(&info, "vendor_id").or_else(|| field(&info, "CPU implementer")),
        microcode: field(&info, "microcode"),
        online: line("online")
            .and_then(|list| list_length(&list))
            .or_else(|| u32::try_from(counted).ok())
            .filter(|cpus| *cpus > 0),
        allowed: files
            .text("/proc/self/status")
            .and_then(|status| field(&status, "Cpus_allowed_list"))
            .and_then(|list| list_length(&list)),
        hypervisor: hypervisor(files, &info),
        emulated: emulation::read(files, &info, signature),
        machine: dmi(&["sys_vendor", "product_name"]),
        firmware: dmi(&["bios_vendor", "bios_version", "bios_date"]),
        governor: governor(files),
        frequency_driver: line("cpufreq/policy0/scaling_driver"),
        turbo: no_turbo.or_else(|| line("cpufreq/boost").map(|value| value == "1")),
        smt: line("smt/control"),
        idle: joined(idle.into_iter().flatten(), ", "),
        caches: caches(files),
        clocksource: files.line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
        numa_nodes: files.line("/sys/devices/system/node/online").and_then(|list| list_length(&list)),
    }
}

/// Returns the CPU models, without duplicates. The source depends on the architecture: the lines "model name" (x86) or "cpu"
/// (POWER), the part numbers (Arm), or the machine type (z).
fn cpu_model(info: &str) -> Option<String> {
    let all = |name: &str| -> BTreeSet<String> {
        let fields = info.lines().filter_map(|line| line.split_once(':'));
        fields.filter(|(key, _)| key.trim() == name).map(|(_, value)| tidy(value)).collect()
    };
    let named = ["model name", "cpu"].into_iter().map(all).find(|models| !models.is_empty());
    let models = named.unwrap_or_else(|| all("CPU part").into_iter().map(|part| format!("part {part}")).collect());
    if let Some(models) = joined(models, ", ") {
        return Some(models);
    }
    // An example line is "processor 0: version = FF, identification = ..., machine = 8561". Record only the machine type,
    // because the identification is a serial number.
    let machine = info.split_once("machine =")?.1.split([',', '\n']).next()?;
    Some(format!("machine {}", tidy(machine)))
}

/// Returns the name of the hypervisor that this kernel runs on. If the hypervisor does not publish its name, derives the name
/// from the clock source that it offers.
fn hypervisor(files: &Files, info: &str) -> Option<String> {
    if let Some(system) = files.text("/proc/sysinfo") {
        return Some(field(&system, "VM00 Control Program").unwrap_or_else(|| "none".into()));
    }
    if let Some(kind) = files.line("/sys/hypervisor/type") {
        return Some(kind);
    }
    let clocks = files.line("/sys/devices/system/clocksource/clocksource0/available_clocksource").unwrap_or_default();
    let known = [("kvm-clock", "KVM"), ("hyperv", "Hyper-V"), ("xen", "Xen")];
    if let Some((_, name)) = known.into_iter().find(|(clock, _)| clocks.contains(clock)) {
        return Some(name.into());
    }
    // The flag `hypervisor` exists only on x86. On other architectures, siga cannot find out whether there is a hypervisor.
    let flags = field(info, "flags")?;
    Some(if flags.split(' ').any(|flag| flag == "hypervisor") { "unnamed" } else { "none" }.into())
}

fn governor(files: &Files) -> Option<String> {
    let directory = format!("{CPUS}/cpufreq");
    let policies = files.names(&directory, "policy").into_iter();
    let all: BTreeSet<String> =
        policies.filter_map(|policy| files.line(&format!("{directory}/{policy}/scaling_governor"))).collect();
    joined(all, ", ").or_else(|| files.path(CPUS).is_dir().then(|| "none".into()))
}

fn caches(files: &Files) -> Option<String> {
    let directory = format!("{CPUS}/cpu0/cache");
    let describe = |index: String| {
        let line = |name: &str| files.line(&format!("{directory}/{index}/{name}"));
        let kind = match line("type")?.as_str() {
            "Data" => "d",
            "Instruction" => "i",
            _ => "",
        };
        Some(format!("L{}{kind} {}", line("level")?, line("size")?))
    };
    joined(files.names(&directory, "index").into_iter().filter_map(describe), ", ")
}

fn mitigations(files: &Files) -> BTreeMap<String, String> {
    let directory = format!("{CPUS}/vulnerabilities");
    let names = files.names(&directory, "").into_iter();
    names.filter_map(|name| files.line(&format!("{directory}/{name}")).map(|value| (tidy(&name), value))).collect()
}

fn sysctls(files: &Files) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    for entry in SYSCTLS {
        let path = format!("/proc/sys/{}", entry.replace('.', "/"));
        let (directory, last) = path.rsplit_once('/').unwrap_or_default();
        let names = match last.strip_suffix('*') {
            Some(start) => files.names(directory, start),
            None => vec![last.to_owned()],
        };
        for name in names {
            if let Some(value) = files.line(&format!("{directory}/{name}")) {
                let group = entry.rsplit_once('.').unwrap_or_default().0;
                all.insert(format!("{group}.{}", tidy(&name)), value);
            }
        }
    }
    all
}

fn user(status: &str) -> User {
    let effective = field(status, "Uid").and_then(|ids| ids.split(' ').nth(1).map(|id| id == "0"));
    User { root: effective, capabilities: field(status, "CapEff") }
}

fn total_bytes(meminfo: &str) -> Option<u64> {
    field(meminfo, "MemTotal")?.strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1024)
}

fn distribution(release: &str) -> Option<String> {
    let value = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="))?;
    Some(tidy(value.trim().trim_matches(['"', '\''])))
}

fn load(averages: &str) -> Option<f64> {
    averages.split(' ').next()?.parse().ok().filter(|load: &f64| load.is_finite())
}

/// Returns steal time in percent of all CPU time since the host started: the sum of the first eight counters in /proc/stat
/// (user to steal). The later counters for guests are left out, because user time already includes them.
fn steal_percent(stat: &str) -> Option<f64> {
    let counters = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace().take(8);
    let counters: Vec<f64> = counters.map_while(|counter| counter.parse().ok()).collect();
    let total: f64 = counters.iter().sum();
    let share = 100.0 * counters.get(7)? / total;
    // Two decimals are enough. A number with more digits might change slightly when siga writes it as JSON and reads it back.
    share.is_finite().then_some((share * 100.0).round() / 100.0)
}

/// Returns the container manager. siga recognises the manager by its marker file, or by its name in the path of this process's
/// control group.
fn container(files: &Files) -> Option<String> {
    if let Some(name) = files.line("/run/systemd/container") {
        return Some(name);
    }
    let marks = [("/.dockerenv", "docker"), ("/run/.containerenv", "podman")];
    if let Some((_, name)) = marks.into_iter().find(|(mark, _)| files.path(mark).exists()) {
        return Some(name.into());
    }
    let group = files.text("/proc/self/cgroup")?;
    let names = ["kubepods", "docker", "libpod", "containerd", "lxc"];
    Some(names.into_iter().find(|name| group.contains(name)).unwrap_or("none").into())
}

#[cfg(test)]
mod tests;
