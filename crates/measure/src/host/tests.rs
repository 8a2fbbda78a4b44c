//! Hosts as their files describe them, real and invented.

use super::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};
use std::io::Write;
use tempfile::TempDir;

const CONFIG: &str = "# CONFIG_PREEMPT_RT is not set\nCONFIG_HZ=250\nCONFIG_HZ_250=y\nCONFIG_DEFAULT_TCP_CONG=\"bbr\"\n\
                      CONFIG_KASAN=y\nCONFIG_NET_SCH_FQ=m\nCONFIG_LOCKDEP_SUPPORT=y\nCONFIG_USB=y\nCONFIG_\n=\n";

/// A made-up host of which every part can be read, with secrets where real hosts have them.
const HOST: &[(&str, &str)] = &[
    ("proc/sys/kernel/osrelease", "6.12.1-lab\n"),
    ("proc/sys/kernel/version", "#7 SMP PREEMPT_DYNAMIC Thu Jan  2 10:00:00 UTC 2025\n"),
    ("proc/sys/kernel/hostname", "secret-host\n"),
    ("proc/cmdline", "root=UUID=secret preempt=full nosmt token=secret isolcpus=2-3 -- preempt=secret\n"),
    ("boot/config-6.12.1-lab", CONFIG),
    (
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC  9B14\nmicrocode\t: 0xa10113e\n\
         flags\t\t: fpu hypervisor sse\n\nprocessor\t: 1\nmodel name\t: AMD EPYC  9B14\n",
    ),
    ("sys/class/dmi/id/sys_vendor", "Maker Inc.\n"),
    ("sys/class/dmi/id/product_name", "Model 3\n"),
    ("sys/class/dmi/id/product_serial", "secret\n"),
    ("sys/class/dmi/id/bios_vendor", "Firm Ltd.\n"),
    ("sys/class/dmi/id/bios_version", "1.7\n"),
    ("sys/class/dmi/id/bios_date", "01/02/2025\n"),
    ("sys/devices/system/cpu/online", "0-2,5\n"),
    ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
    ("sys/devices/system/cpu/smt/control", "off\n"),
    ("sys/devices/system/cpu/cpuidle/current_driver", "acpi_idle\n"),
    ("sys/devices/system/cpu/cpuidle/current_governor_ro", "menu\n"),
    ("sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "powersave\n"),
    ("sys/devices/system/cpu/cpufreq/policy0/scaling_driver", "acpi-cpufreq\n"),
    ("sys/devices/system/cpu/cpufreq/policy5/scaling_governor", "performance\n"),
    ("sys/devices/system/cpu/cpu0/cache/index0/level", "1\n"),
    ("sys/devices/system/cpu/cpu0/cache/index0/type", "Data\n"),
    ("sys/devices/system/cpu/cpu0/cache/index0/size", "32K\n"),
    ("sys/devices/system/cpu/cpu0/cache/index2/level", "2\n"),
    ("sys/devices/system/cpu/cpu0/cache/index2/type", "Unified\n"),
    ("sys/devices/system/cpu/cpu0/cache/index2/size", "1024K\n"),
    ("sys/devices/system/cpu/vulnerabilities/meltdown", "Not affected\n"),
    ("sys/devices/system/cpu/vulnerabilities/spectre_v2", "Mitigation: Retpolines; STIBP: disabled\n"),
    ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
    ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet acpi_pm \n"),
    ("sys/devices/system/node/online", "0-1\n"),
    ("proc/meminfo", "MemTotal:       32768 kB\nMemFree: 1 kB\n"),
    ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
    ("proc/sys/kernel/sched_autogroup_enabled", "1\n"),
    ("proc/sys/kernel/sched_domain/cpu0", "a directory is no setting\n"),
    ("proc/sys/net/core/default_qdisc", "fq_codel\n"),
    ("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n"),
    ("proc/sys/net/ipv4/tcp_fastopen_key", "secret\n"),
    ("proc/sys/net/bridge/bridge-nf-call-iptables", "0\n"),
    (
        "proc/self/status",
        "Name:\tx\nUid:\t1000\t0\t0\t0\nCapEff:\t000001ffffffffff\nCpus_allowed:\t7\nCpus_allowed_list:\t0-2\n",
    ),
    ("etc/os-release", "NAME=\"X\"\nPRETTY_NAME=\"Fedora Linux 43 (Server)\"\n"),
    ("proc/self/cgroup", "0::/kubepods.slice/pod-secret\n"),
    ("proc/sys/kernel/random/boot_id", "b8f90e96-bc07-4144-8329-969045b76810\n"),
    ("proc/loadavg", "0.77 1.62 1.08 2/93 19199\n"),
    ("proc/stat", "cpu  40 0 10 140 5 0 3 2 9 9\ncpu0 1\n"),
];

fn host(files: &[(&str, &str)]) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (name, content) in files {
        let path = root.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    root
}

/// Reads an artificial host without a hypervisor.
fn below(root: &Path) -> Environment {
    super::below(root, None)
}

fn packed(content: &[u8]) -> Vec<u8> {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packer.write_all(content).unwrap();
    packer.finish().unwrap()
}

#[test]
fn a_whole_host_is_read_without_its_secrets() {
    let root = host(HOST);
    let read = below(root.path());
    assert!(!format!("{read:?}").contains("None"), "a part was not read: {read:?}");
    assert!(!format!("{read:?}").contains("secret"), "{read:?}");
    let flat = read.flat();
    let expected = [
        ("kernel.release", "6.12.1-lab"),
        ("kernel.version", "#7 SMP PREEMPT_DYNAMIC Thu Jan 2 10:00:00 UTC 2025"),
        ("kernel.preemption", "PREEMPT_DYNAMIC"),
        ("kernel.hz", "250"),
        ("kernel.config_source", "/boot/config-6.12.1-lab"),
        ("kernel.boot.preempt", "full"),
        ("kernel.boot.isolcpus", "2-3"),
        ("kernel.boot.nosmt", "given"),
        ("kernel.boot_others", "root token"),
        ("cpu.model", "AMD EPYC 9B14"),
        ("cpu.vendor", "AuthenticAMD"),
        ("cpu.microcode", "0xa10113e"),
        ("cpu.online", "4"),
        ("cpu.allowed", "3"),
        ("cpu.hypervisor", "unnamed"),
        ("cpu.emulated", "false"),
        ("cpu.machine", "Maker Inc. Model 3"),
        ("cpu.firmware", "Firm Ltd. 1.7 01/02/2025"),
        ("cpu.governor", "performance, powersave"),
        ("cpu.frequency_driver", "acpi-cpufreq"),
        ("cpu.turbo", "false"),
        ("cpu.smt", "off"),
        ("cpu.idle", "acpi_idle, menu"),
        ("cpu.caches", "L1d 32K, L2 1024K"),
        ("cpu.clocksource", "tsc"),
        ("cpu.numa_nodes", "2"),
        ("mitigations.meltdown", "Not affected"),
        ("mitigations.spectre_v2", "Mitigation: Retpolines; STIBP: disabled"),
        ("memory.total_bytes", "33554432"),
        ("memory.huge_pages", "madvise"),
        ("sysctl.kernel.sched_autogroup_enabled", "1"),
        ("sysctl.net.core.default_qdisc", "fq_codel"),
        ("sysctl.net.ipv4.tcp_rmem", "4096 131072 6291456"),
        ("sysctl.net.bridge.bridge-nf-call-iptables", "0"),
        ("user.root", "true"),
        ("user.capabilities", "000001ffffffffff"),
        ("host.distribution", "Fedora Linux 43 (Server)"),
        ("host.container", "kubepods"),
        ("host.boot_id", "b8f90e96-bc07-4144-8329-969045b76810"),
        ("moment.load", "0.77"),
        ("moment.steal_percent", "1.0"),
    ];
    for (key, value) in expected {
        assert_eq!(flat.get(key).map(String::as_str), Some(value), "{key}");
    }
    // The program's four, the time, and these options of the kernel are all there is besides.
    let options: Vec<_> = read.kernel.config.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let listed = "CONFIG_DEFAULT_TCP_CONG=bbr CONFIG_HZ=250 CONFIG_HZ_250=y CONFIG_KASAN=y CONFIG_NET_SCH_FQ=m";
    assert_eq!(options.join(" "), listed);
    assert_eq!(flat.len(), expected.len() + 4 + 1 + options.len());
}

#[test]
fn the_running_kernels_own_options_come_first_unless_they_are_damaged() {
    let root = host(HOST);
    let file = root.path().join("proc/config.gz");
    let source = || below(root.path()).kernel.config_source.unwrap();
    fs::write(&file, packed(b"CONFIG_HZ=1000\n")).unwrap();
    assert_eq!(below(root.path()).kernel.hz, Some(1000));
    assert_eq!(source(), "/proc/config.gz");
    fs::write(&file, &packed(CONFIG.as_bytes())[..30]).unwrap();
    assert_eq!(source(), "/boot/config-6.12.1-lab");
    // What a small file unpacks to is read as far as the bound and no further.
    let late = [vec![b'\n'; 2 << 20], CONFIG.into()].concat();
    fs::write(&file, packed(&late)).unwrap();
    assert_eq!(source(), "/boot/config-6.12.1-lab");
}

#[test]
fn a_host_without_readable_files_leaves_all_unknown() {
    let root = host(&[]);
    let read = below(root.path());
    let unknown = read.flat().into_values().filter(|value| value == "unknown").count();
    assert_eq!(read.flat().len(), unknown + 5, "the program and the time are all that is known: {read:?}");
    assert!(read.moment.time.is_some() && read.fitness().len() <= 1);
}

#[test]
fn malformed_files_neither_stop_the_reading_nor_leave_malformed_values() {
    let huge = [vec![0xFF; 2 << 20], b"\nMemTotal: 1 kB\n".to_vec()].concat();
    let escapes = b"cpu \x1b[31m\0 : -1-\xC3\x28, 5-0\nPRETTY_NAME=\x1b]0;x\x07\n=\n:\n,\n".to_vec();
    let numbers = b"cpu  nan inf 99999999999999999999999 0 0 0 0 0\nMemTotal: 99999999999999999999 kB".to_vec();
    for content in [Some(huge), Some(escapes), Some(numbers), Some(Vec::new()), None] {
        let root = host(HOST);
        for (name, _) in HOST {
            let path = root.path().join(name);
            match &content {
                Some(bytes) => fs::write(path, bytes).unwrap(),
                None => {
                    fs::remove_file(&path).unwrap();
                    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
                }
            }
        }
        let read = below(root.path());
        for (key, value) in read.flat() {
            assert!(value.chars().count() <= VALUE_CHARS_MAX, "{key} has {} bytes", value.len());
            assert!(!value.chars().any(char::is_control), "{key}: {value:?}");
        }
        assert_eq!(read.cpu.online, None);
        assert_eq!(read.memory.total_bytes, None);
        let text = serde_json::to_string(&read).unwrap();
        assert_eq!(serde_json::from_str::<Environment>(&text).unwrap(), read);
    }
}

#[test]
fn the_nearest_hypervisor_is_found_by_each_of_its_marks() {
    let clocks = "sys/devices/system/clocksource/clocksource0/available_clocksource";
    let cases = [
        (&[("proc/cpuinfo", "flags : fpu\n")][..], Some("none")),
        (&[("proc/cpuinfo", "flags : fpu hypervisor\n"), (clocks, "tsc kvm-clock")], Some("KVM")),
        (&[(clocks, "hyperv_clocksource_tsc_page acpi_pm")], Some("Hyper-V")),
        (&[("sys/hypervisor/type", "xen\n")], Some("xen")),
        (&[("proc/sysinfo", "LPAR Name: A\nVM00 Control Program: z/VM    7.3.0\n")], Some("z/VM 7.3.0")),
        (&[("proc/sysinfo", "LPAR Name: A\n")], Some("none")),
        (&[("proc/cpuinfo", "processor : 0\nCPU part : 0xd0c\n")], None),
    ];
    for (files, name) in cases {
        assert_eq!(below(host(files).path()).cpu.hypervisor.as_deref(), name, "{files:?}");
    }
}

#[test]
fn a_machine_of_qemus_emulation_is_known_by_the_signature() {
    let root = host(HOST);
    let read = super::below(root.path(), Some(*b"TCGTCGTCGTCG"));
    assert!(read.is_emulated() && !below(root.path()).is_emulated());
}

#[test]
fn processors_of_other_architectures_have_a_model_too() {
    let arm = "processor : 0\nCPU implementer : 0x41\nCPU part : 0xd0c\n\nprocessor : 1\nCPU part : 0xd05\n";
    assert_eq!(cpu_model(arm).unwrap(), "part 0xd05, part 0xd0c");
    let z = "vendor_id : IBM/S390\nprocessor 0: version = FF,  identification = 0133E8,  machine = 8561\n";
    assert_eq!(cpu_model(z).unwrap(), "machine 8561");
    assert_eq!(cpu_model("processor : 0\ncpu : POWER9, altivec supported\n").unwrap(), "POWER9, altivec supported");
    assert_eq!(cpu_model(""), None);
}

#[test]
fn values_lists_and_choices_are_parsed() {
    assert_eq!(["0", "0-3,8\n", "1,3", "", "3-1", "0-4294967295", "x"].map(list_length), {
        [Some(1), Some(5), Some(2), None, None, None, None]
    });
    assert_eq!(preemption("#1 SMP PREEMPT_RT Debian"), "PREEMPT_RT");
    assert_eq!(preemption("#1 SMP PREEMPT Debian"), "PREEMPT");
    assert_eq!(preemption("#1 SMP Debian 6.1"), "none or voluntary");
    assert_eq!(chosen("always madvise [never]".into()), "never");
    assert_eq!(steal_percent("cpu  0 0 0 0 0 0 0 0 0 0\n"), None);
    assert_eq!(steal_percent("cpu  1 2 3\n"), None);
}

#[test]
fn every_leaf_of_the_record_is_in_the_flat_form() {
    for read in [environment(), Environment::default()] {
        let text = serde_json::to_string_pretty(&read).unwrap();
        let leaves: Vec<_> =
            text.lines().map(|line| line.trim().trim_end_matches(',')).filter_map(|l| l.split_once("\": ")).collect();
        let leaves: Vec<_> = leaves.into_iter().filter(|(_, value)| !value.starts_with('{')).collect();
        let flat = read.flat();
        assert_eq!(leaves.len(), flat.len(), "two leaves share a key, or one is lost");
        assert!(flat.len() >= 30, "{flat:?}");
        for (name, value) in leaves {
            let text: Option<String> = serde_json::from_str(value).ok();
            let value = text.unwrap_or_else(|| if value == "null" { "unknown" } else { value }.to_owned());
            let name = name.trim_start_matches('"');
            let found = flat.iter().any(|(key, flat)| key.ends_with(&format!(".{name}")) && *flat == value);
            assert!(found, "{name} = {value} is not in {flat:?}");
        }
    }
}

#[test]
fn this_host_is_read() {
    let read = environment();
    let name = rustix::system::uname();
    assert_eq!(read.kernel.release.as_deref(), name.release().to_str().ok());
    assert_eq!(read.kernel.version.as_deref(), name.version().to_str().ok());
    assert_eq!(read.user.root, Some(rustix::process::geteuid().is_root()));
    let cpus = std::thread::available_parallelism().unwrap().get();
    assert!(usize::try_from(read.cpu.allowed.unwrap()).unwrap() >= cpus);
    assert!(read.memory.total_bytes.unwrap() > 1 << 20);
    assert!(read.sysctl.contains_key("kernel.perf_event_paranoid"), "{:?}", read.sysctl);
    assert!(read.cpu.model.is_some() && read.host.boot_id.is_some() && read.moment.load.is_some());
}
