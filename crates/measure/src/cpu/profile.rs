//! The profiler. It takes samples to measure in which process, in which mode, and for which network namespace the CPUs spend
//! their time.
//!
//! Clocks on each CPU take samples. A sample records the process and whether the CPU was in user or kernel mode. The kernel's
//! call chain in the sample shows whether the CPU was in softirq, which can interrupt any process. The call chain also shows
//! whether the CPU was processing a received packet. For each received packet, a BPF program at a tracepoint stores the
//! packet's device as the mark of this CPU. From this device, the sampler finds the network namespace.
//!
//! Contract: the BPF programs are attached, and use CPU time, only between [`Profiler::start`] and [`Profiler::stop`].
//!
//! Limits of the samples:
//!
//! - No samples are taken of the idle task, of softirqs that interrupt it, and of steal time (in which the hypervisor runs
//!   other virtual machines). On paths inside one host, the CPU that sends a packet also processes its reception, so idle CPUs
//!   run almost no softirq.
//! - While interrupts are disabled, a sample is delayed until they are enabled again, and is then charged to the code that runs
//!   at that time. So hard interrupts are invisible, and part of the time in which the kernel puts a process to sleep counts as
//!   idle. Therefore the run time of a process comes from the scheduler, and the profile only says how to divide it.
//! - The mark is stored when the network layer receives a packet. So work of drivers, and of the queue before the network
//!   layer, counts as softirq without a namespace.

mod clocks;
mod cost;
mod program;

use crate::bpf::btf::{Btf, Kind};
use crate::bpf::symbols::Symbols;
use crate::bpf::{Capability, load_program, refused};
use crate::sys::bpf::{Map, MapKind, ProgramKind, attach_tracepoint};
use clocks::Clocks;
use cost::Cost;
use program::{
    BUFFER_BYTES, CHAIN_BYTES, CHAIN_FRAMES, Code, KEY_BYTES, MARK_BYTES, MODE_KERNEL, MODE_SOFTIRQ, MODE_USER, Maps,
    Offsets,
};
use siga_model::error::{Error, IoContext, Result};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Sampling periods that the profiler chooses from, in nanoseconds. No period is a simple fraction of the period of the
/// kernel's timer tick, so that samples do not stay in phase with the tick.
const PERIODS_NS: [u64; 6] = [199_999, 400_009, 700_001, 1_000_003, 1_500_007, 2_500_009];

/// Divisor that limits the overhead: a sample may use at most 1/66 (1.5%) of the CPU time in a sampling period.
const COST_DIVISOR: u64 = 66;

/// Maximum number of combinations of process, namespace and mode in one profile. Samples of further combinations count as
/// [`Profile::uncounted`].
const KEYS_MAX: u32 = 8_192;

/// Maximum number of different call chains in one profile. Samples with further chains count as [`Profile::chains_lost`].
const CHAINS_MAX: u32 = 16_384;

/// The kernel's inode number of the initial PID namespace (`PROC_PID_INIT_INO`).
const INITIAL_PID_NAMESPACE: u64 = 0xefff_fffc;

const NEEDED: [Capability; 3] = [Capability::Bpf, Capability::Perfmon, Capability::Syslog];

/// What the CPU was executing when a sample was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// The process's own code.
    User,
    /// Kernel code on behalf of the process.
    Kernel,
    /// A softirq that interrupted the process.
    Softirq,
}

/// One combination of process, namespace and mode, with the number of its samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Process id in the initial PID namespace.
    pub tgid: u32,
    /// Inode number of the network namespace of the received packet that was being processed, or 0 if no packet was. The kernel
    /// processes received packets in softirq, and for TUN devices and threaded NAPI in kernel mode.
    pub namespace_inode: u32,
    /// What the CPU was executing.
    pub mode: Mode,
    /// Number of samples. Each sample stands for [`Profile::period_ns`] nanoseconds of CPU time.
    pub count: u64,
}

/// One call chain of one process, namespace and mode, with the number of its samples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The process, namespace and mode, and the number of samples.
    pub sample: Sample,
    /// Addresses of the code, the innermost function first. In user mode there is only the innermost one. Empty if the kernel
    /// could not walk the chain.
    pub addresses: Vec<u64>,
    /// True if the chain has more functions, further out, than `addresses`.
    pub is_shortened: bool,
}

/// A CPU, and how long it was sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// Number of the CPU.
    pub cpu: u32,
    /// Time in nanoseconds from the start to the stop of sampling on this CPU.
    pub wall_ns: u64,
}

/// The samples between one [`Profiler::start`] and the next [`Profiler::stop`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// CPU time in nanoseconds that one sample stands for.
    pub period_ns: u64,
    /// The CPUs that were online, each with the time for which it was sampled.
    pub cpus: Vec<Watched>,
    /// All combinations of process, namespace and mode that were sampled, sorted by count, the highest first.
    pub samples: Vec<Sample>,
    /// Number of samples that were not counted because the table of combinations was full.
    pub uncounted: u64,
    /// Number of packets that were received, for each of which the profiler took CPU time.
    pub packets: u64,
    /// All call chains that were sampled, in no particular order.
    pub chains: Vec<Chain>,
    /// Number of samples whose call chain was lost because the table of chains was full.
    pub chains_lost: u64,
}

#[cfg(test)]
impl Profile {
    /// Returns the CPU time in nanoseconds of the samples for which `which` returns true.
    pub(super) fn time_ns(&self, which: impl Fn(&Sample) -> bool) -> u64 {
        let count: u64 = self.samples.iter().filter(|sample| which(sample)).map(|sample| sample.count).sum();
        count.saturating_mul(self.period_ns)
    }
}

/// The BPF programs and maps of the profiler. A profiler loads them once and can then make any number of profiles.
#[derive(Debug)]
pub struct Profiler {
    marks: Map,
    counts: Map,
    uncounted: Map,
    chains: Map,
    chains_lost: Map,
    marker: OwnedFd,
    sampler: OwnedFd,
    period_ns: u64,
    cost: Cost,
    running: Option<Running>,
}

/// Checks that this host can run the profiler. Loads the BPF programs but does not attach them to a tracepoint.
///
/// # Errors
/// Returns an error of kind `Environment` that names what the host or this process lacks.
pub fn available() -> Result<()> {
    let profiler = Profiler::load(PERIODS_NS[0])?;
    clocks::available(profiler.period_ns, &profiler.sampler)
}

impl Profiler {
    /// Loads the BPF programs and measures the CPU time of a sample on this host. It is some microseconds on bare metal, and up to
    /// 20 us in a nested virtual machine. Chooses a sampling rate of 400 to 5,000 samples per second, so that samples use at most
    /// 1.5% of a CPU.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` that names what this host or process lacks.
    pub fn open() -> Result<Self> {
        let mut profiler = Self::load(PERIODS_NS[0])?;
        profiler.cost = cost::measure(&profiler.sampler, &profiler.marker)?;
        let [.., longest] = PERIODS_NS;
        let is_affordable = |period_ns: &u64| profiler.cost.sample_ns * COST_DIVISOR <= *period_ns;
        let affordable = PERIODS_NS.into_iter().find(is_affordable);
        profiler.period_ns = affordable.unwrap_or(longest);
        Ok(profiler)
    }

    /// Loads the BPF programs, with a sampling period of `period_ns` on each CPU.
    pub(super) fn load(period_ns: u64) -> Result<Self> {
        check_pid_namespace()?;
        clocks::check_rate(period_ns)?;
        let marks = create_map(MapKind::PerCpuArray, "siga_marks", 4, MARK_BYTES, 1)?;
        let frames = create_map(MapKind::PerCpuArray, "siga_frames", 4, BUFFER_BYTES, 1)?;
        let counts = create_map(MapKind::PerCpuHash, "siga_counts", KEY_BYTES, 8, KEYS_MAX)?;
        let uncounted = create_map(MapKind::PerCpuArray, "siga_uncounted", 4, 8, 1)?;
        let chains = create_map(MapKind::Hash, "siga_chains", CHAIN_BYTES, 8, CHAINS_MAX)?;
        let chains_lost = create_map(MapKind::PerCpuArray, "siga_lost", 4, 8, 1)?;
        let btf = Btf::of_kernel()?;
        let offsets = Offsets::of_kernel(&btf)?;
        let id = btf.id(Kind::Typedef, "btf_trace_netif_receive_skb");
        let id = id.ok_or_else(|| Error::environment("this kernel has no tracepoint netif_receive_skb"))?;
        let marker = load_program(ProgramKind::Tracepoint(id), "siga_mark", &program::mark(&marks, offsets), &NEEDED)?;
        let code = Code::of_kernel(&Symbols::of_kernel()?)?;
        let maps = Maps {
            marks: &marks,
            frames: &frames,
            counts: &counts,
            uncounted: &uncounted,
            chains: &chains,
            chains_lost: &chains_lost,
        };
        let sampler = program::sample(&maps, &code, offsets)?;
        let sampler = load_program(ProgramKind::PerfEvent, "siga_sample", &sampler, &NEEDED)?;
        let cost = Cost::default();
        Ok(Self { marks, counts, uncounted, chains, chains_lost, marker, sampler, period_ns, cost, running: None })
    }

    /// Returns the CPU time in nanoseconds that one sample stands for.
    pub fn period_ns(&self) -> u64 {
        clocks::sample_ns(self.period_ns)
    }

    /// Returns the CPU time that the profiler takes, as [`Profiler::open`] has measured it.
    pub(crate) fn cost(&self) -> Cost {
        self.cost
    }

    /// Discards the samples of earlier profiles and starts to sample every online CPU. This call takes 5 to 40 ms.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the kernel refuses to open the clocks or to attach to the tracepoint. In this
    /// case, no program stays attached.
    pub fn start(&mut self) -> Result<()> {
        self.running = None;
        let marker = attach_tracepoint(self.marker.as_fd()).map_err(|errno| {
            refused("the profiler cannot attach to the tracepoint netif_receive_skb", errno, &NEEDED)
        })?;
        let mut clocks = Clocks::start(self.period_ns, &self.sampler)?;
        let before = self.totals()?;
        // `counts` is cleared last: between that and `begin`, samples would count without their time.
        self.chains.clear().and_then(|()| self.counts.clear()).context("cannot clear the counters of the profiler")?;
        clocks.begin()?;
        self.running = Some(Running { clocks, before, _marker: marker });
        Ok(())
    }

    /// Stops sampling and returns the profile.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the profiler was not started. Returns an error of kind `Incomplete` if a CPU came online
    /// or went offline while the profiler was running.
    pub fn stop(&mut self) -> Result<Profile> {
        let Some(Running { clocks, before, _marker }) = self.running.take() else {
            return Err(Error::usage("the profiler was stopped before it was started"));
        };
        let cpus = clocks.stop()?;
        let after = self.totals()?;
        let entries = self.counts.entries().context("cannot read the counters of the profiler")?;
        let mut samples: Vec<_> = entries.iter().filter_map(|(key, values)| read_sample(key, values)).collect();
        samples
            .sort_by_key(|sample| (std::cmp::Reverse(sample.count), sample.tgid, sample.namespace_inode, sample.mode));
        let chains = self.chains.entries().context("cannot read the call chains that the profiler recorded")?;
        Ok(Profile {
            period_ns: self.period_ns(),
            cpus,
            samples,
            uncounted: after.uncounted.saturating_sub(before.uncounted),
            packets: after.packets.saturating_sub(before.packets),
            chains: chains.iter().filter_map(|(key, values)| read_chain(key, values)).collect(),
            chains_lost: after.chains_lost.saturating_sub(before.chains_lost),
        })
    }

    fn totals(&self) -> Result<Totals> {
        let marks = self
            .marks
            .get(&[0; 4])
            .context("cannot read the number of packets that the profiler counted")?
            .unwrap_or_default();
        let packets = marks.as_chunks::<8>().0.iter().skip(1).step_by(2).map(|count| u64::from_ne_bytes(*count)).sum();
        Ok(Totals { uncounted: total(&self.uncounted)?, packets, chains_lost: total(&self.chains_lost)? })
    }
}

/// Returns the sum of the values of all CPUs in a per-CPU array with one entry.
fn total(map: &Map) -> Result<u64> {
    let values = map.get(&[0; 4]).context("cannot read the counters of the profiler")?;
    Ok(sum(&values.unwrap_or_default()))
}

/// Counts since the programs were loaded.
#[derive(Debug, Clone, Copy)]
struct Totals {
    uncounted: u64,
    packets: u64,
    chains_lost: u64,
}

#[derive(Debug)]
struct Running {
    clocks: Clocks,
    before: Totals,
    _marker: OwnedFd,
}

fn create_map(kind: MapKind, name: &str, key_bytes: u32, value_bytes: u32, entries_max: u32) -> Result<Map> {
    Map::create(kind, name, key_bytes, value_bytes, entries_max)
        .map_err(|errno| refused(format_args!("the profiler cannot create the BPF map `{name}`"), errno, &NEEDED))
}

/// Checks that this process is in the initial PID namespace, because samples contain process ids of that namespace.
fn check_pid_namespace() -> Result<()> {
    let inode = std::fs::metadata("/proc/self/ns/pid").context("cannot read the PID namespace of this process")?.ino();
    if inode == INITIAL_PID_NAMESPACE {
        return Ok(());
    }
    Err(Error::environment("siga runs in a PID namespace, but the profiler records the process IDs of the host")
        .hint("run siga outside the container, or start the container with the host's PID namespace (`--pid=host`)"))
}

fn read_sample(key: &[u8], values: &[u8]) -> Option<Sample> {
    let (words, _) = key.as_chunks::<4>();
    let [tgid, namespace_inode, mode] = words else { return None };
    let mode = match i32::from_ne_bytes(*mode) {
        MODE_USER => Mode::User,
        MODE_KERNEL => Mode::Kernel,
        MODE_SOFTIRQ => Mode::Softirq,
        _ => return None,
    };
    let (tgid, namespace_inode) = (u32::from_ne_bytes(*tgid), u32::from_ne_bytes(*namespace_inode));
    Some(Sample { tgid, namespace_inode, mode, count: sum(values) })
}

fn read_chain(key: &[u8], values: &[u8]) -> Option<Chain> {
    let (head, addresses) = key.split_at_checked(16)?;
    let sample = read_sample(head.get(..12)?, values)?;
    let length = i32::from_ne_bytes(head.get(12..)?.try_into().ok()?);
    let frames = length / 8;
    let kept = usize::try_from(frames.clamp(0, CHAIN_FRAMES)).ok()?;
    let (words, _) = addresses.as_chunks::<8>();
    let addresses = words.iter().take(kept).map(|word| u64::from_ne_bytes(*word)).collect();
    Some(Chain { sample, addresses, is_shortened: frames > CHAIN_FRAMES })
}

fn sum(values: &[u8]) -> u64 {
    values.as_chunks::<8>().0.iter().map(|value| u64::from_ne_bytes(*value)).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::tests::testbed::{ping_pong, routed};
    use rustix::process::{Pid, Signal, kill_process};
    use std::process::{Command, Stdio};
    use std::time::Duration;

    /// Samples often at any cost, because these tests need exact figures.
    fn open() -> Option<Profiler> {
        Profiler::load(PERIODS_NS[0])
            .inspect_err(|error| eprintln!("skipped, because the profiler cannot be opened: {error}"))
            .ok()
    }

    /// Runs a program under the profiler for some CPU time; returns the profile, the process id, and the exact CPU time.
    fn profile_of(profiler: &mut Profiler, words: &[&str], time_ns: u64) -> (Profile, u32, u64) {
        profiler.start().unwrap();
        let mut child =
            Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        let ran_ns = || {
            let account = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
            account.split(' ').next().unwrap().parse::<u64>().unwrap()
        };
        while ran_ns() < time_ns {
            std::thread::sleep(Duration::from_millis(10));
        }
        // The scheduler's run time of a stopped process is exact.
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ") {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ran_ns = ran_ns();
        let profile = profiler.stop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        (profile, pid, ran_ns)
    }

    fn ratio(part: u64, whole: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "shares are compared to a percent")]
        let ratio = part as f64 / whole as f64;
        ratio
    }

    #[test]
    fn a_spinning_process_gets_user_samples_for_its_whole_run_time() {
        let Some(mut profiler) = open() else { return };
        let spin = ["sh", "-c", "while :; do :; done"];
        let (profile, pid, ran_ns) = profile_of(&mut profiler, &spin, 2_000_000_000);
        let user_ns = profile.time_ns(|sample| sample.tgid == pid && sample.mode == Mode::User);
        let off = ratio(user_ns.abs_diff(ran_ns), ran_ns);
        assert!(off < 0.03, "{user_ns} of {ran_ns} ns");
    }

    #[test]
    fn a_process_in_system_calls_gets_kernel_samples() {
        let Some(mut profiler) = open() else { return };
        let copy = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64k"];
        let (profile, pid, ran_ns) = profile_of(&mut profiler, &copy, 1_000_000_000);
        let kernel_ns = profile.time_ns(|sample| sample.tgid == pid && sample.mode == Mode::Kernel);
        let share = ratio(kernel_ns, ran_ns);
        assert!(share > 0.8, "{kernel_ns} of {ran_ns} ns");
    }

    /// Returns the steal time of all CPUs so far, in nanoseconds.
    fn stolen_ns() -> u64 {
        let text = std::fs::read_to_string("/proc/stat").unwrap();
        let ticks: u64 = text.lines().next().unwrap().split_whitespace().nth(8).unwrap().parse().unwrap();
        ticks * 1_000_000_000 / rustix::param::clock_ticks_per_second()
    }

    #[test]
    fn on_busy_cpus_the_samples_of_all_processes_add_up_to_the_wall_time() {
        let Some(mut profiler) = open() else { return };
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap();
        let online = siga_plan::cpus::cpu_list(&online).unwrap();
        let spin = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
        let mut busy: Vec<_> = online.iter().map(|_| spin()).collect();
        std::thread::sleep(Duration::from_millis(200));
        let stolen_before = stolen_ns();
        profiler.start().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        let profile = profiler.stop().unwrap();
        let stolen = stolen_ns() - stolen_before;
        for child in &mut busy {
            child.kill().unwrap();
            child.wait().unwrap();
        }
        assert_eq!(profile.cpus.iter().map(|watched| watched.cpu).collect::<Vec<_>>(), online);
        // The kernel's clock of CPUs is not steered by NTP.
        assert!(profile.cpus.iter().all(|watched| watched.wall_ns >= 1_990_000_000), "{:?}", profile.cpus);
        assert_eq!(profile.uncounted, 0);
        let wall: u64 = profile.cpus.iter().map(|cpu| cpu.wall_ns).sum();
        let ran = profile.time_ns(|_| true);
        // While the hypervisor takes a CPU, a sample can stand for more time than has passed.
        assert!(ran <= wall + stolen, "{ran} of {wall} ns, {stolen} stolen");
        assert!(
            ratio(wall.saturating_sub(ran), wall) < 0.02 + ratio(stolen, wall),
            "{ran} of {wall} ns, {stolen} stolen"
        );
    }

    #[test]
    fn forwarding_is_charged_to_the_namespace_of_the_router() {
        let (Some(mut profiler), Some(path)) = (open(), routed()) else { return };
        profiler.start().unwrap();
        let rounds = ping_pong(&path, |rounds| rounds == 20_000);
        let profile = profiler.stop().unwrap();
        let of = |inode| profile.time_ns(|sample| sample.namespace_inode == inode) / rounds;
        let (client, router, server) = (of(path.client.inode()), of(path.router.inode()), of(path.server.inode()));
        assert!(client > 0 && router > 0 && server > 0, "{client}, {router}, {server} ns a round trip");
        assert!(profile.samples.iter().all(|sample| sample.mode != Mode::User || sample.namespace_inode == 0));
    }
}
