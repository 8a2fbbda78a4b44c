//! The profiler: which process, and in receive softirq for which network namespace, the CPUs spend their time.
//!
//! Two tracepoints mark each CPU while it works in softirq (and a third names the network namespace of the packet in
//! hand); a clock on each CPU samples that mark together with the running process and counts the three in a map. Work that
//! the kernel does in softirq runs on whatever process was there, so [`Mode::Softirq`] is apart from that process's own.
//!
//! Contract: nothing is attached and nothing costs anything but between [`Profiler::start`] and [`Profiler::stop`].
//! Sampling sees nothing of the time in which interrupts are off: it falls to what runs next. Threaded NAPI and packets
//! written to a TUN/TAP device are not in softirq, hence charged to the kernel thread or process that handles them.

use super::asm::{
    Condition, Helper, Line, R0, R1, R2, R3, R4, R6, R7, R10, Width, add, and, call, copy, exit, jump_if, label, load,
    load_map, set, shift_right, store, store_constant,
};
use super::btf::{Btf, Kind};
use super::{Capability, load_program, refused};
use crate::error::{Error, IoContext, Result};
use crate::sys::bpf::{Map, MapKind, ProgramKind, attach_tracepoint};
use crate::sys::cpu_list;
use crate::sys::perf::CpuClock;
use std::os::fd::{AsFd, OwnedFd};

/// Time between two samples of one CPU, in nanoseconds: 5.15 kHz. The 250 Hz tick is 20.618 of them, and a ratio that
/// ends in the golden section spreads the samples over the tick evenly instead of drifting along with it.
pub const PERIOD_NS: u64 = 194_005;

/// Shortest period taken; the kernel itself rounds up to this.
const PERIOD_NS_MIN: u64 = 10_000;

/// Different (process, namespace, mode) in one profile; more are counted as [`Profile::uncounted`].
const KEYS_MAX: u32 = 8_192;

/// Marks below this say "in softirq number n - 1, for no namespace"; the kernel numbers namespaces from 0xeffffff0.
const NAMESPACES_FROM: u32 = 64;

const NEEDED: [Capability; 2] = [Capability::Bpf, Capability::Perfmon];
const ONLINE: &str = "/sys/devices/system/cpu/online";
const RATE_MAX: &str = "/proc/sys/kernel/perf_event_max_sample_rate";

/// Where in a process, or on top of it, time was spent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// In the process's own code.
    User,
    /// In the kernel on the process's behalf. Of process 0: idle.
    Kernel,
    /// In softirq, which only happened to run on top of the process.
    Softirq,
}

/// How often one combination was seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Process id (of the initial PID namespace); 0 is the idle task of each CPU.
    pub tgid: u32,
    /// Inode number of the network namespace whose packet was in hand; 0 if none, or outside [`Mode::Softirq`].
    pub namespace_inode: u32,
    /// What it was doing.
    pub mode: Mode,
    /// Number of samples, each worth [`Profile::period_ns`].
    pub count: u64,
}

impl Sample {
    /// The CPU had nothing to do.
    pub fn is_idle(&self) -> bool {
        self.tgid == 0 && self.mode == Mode::Kernel
    }
}

/// How long a CPU was watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watched {
    /// The CPU.
    pub cpu: u32,
    /// Nanoseconds between start and stop.
    pub wall_ns: u64,
}

/// What was seen between start and stop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Profile {
    /// Nanoseconds of CPU time a sample stands for.
    pub period_ns: u64,
    /// The CPUs that were online.
    pub cpus: Vec<Watched>,
    /// Every combination seen, most frequent first.
    pub samples: Vec<Sample>,
    /// Samples taken when the table of combinations was full.
    pub uncounted: u64,
}

impl Profile {
    /// Watched time of all CPUs together.
    pub fn wall_ns(&self) -> u64 {
        self.cpus.iter().map(|cpu| cpu.wall_ns).sum()
    }

    /// CPU time of the samples that `which` picks, in nanoseconds.
    pub fn time_ns(&self, which: impl Fn(&Sample) -> bool) -> u64 {
        let count: u64 = self.samples.iter().filter(|sample| which(sample)).map(|sample| sample.count).sum();
        count.saturating_mul(self.period_ns)
    }

    /// Watched time in which no sample could be taken: the hypervisor had given the CPU away, or interrupts were off for
    /// longer than a period.
    pub fn unseen_ns(&self) -> u64 {
        let uncounted = self.uncounted.saturating_mul(self.period_ns);
        self.wall_ns().saturating_sub(self.time_ns(|_| true)).saturating_sub(uncounted)
    }
}

/// The programs and maps, loaded once for any number of profiles.
#[derive(Debug)]
pub struct Profiler {
    /// `u32` of each CPU: 0 outside softirq, softirq number + 1 inside, or the namespace in hand.
    marks: Map,
    counts: Map,
    uncounted: Map,
    markers: Vec<OwnedFd>,
    sampler: OwnedFd,
    period_ns: u64,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    clocks: Vec<CpuClock>,
    uncounted_before: u64,
    _markers: Vec<OwnedFd>,
}

/// Whether this host can profile; loads everything and attaches nothing.
///
/// # Errors
/// Environment: what is missing.
pub fn available() -> Result<()> {
    let profiler = Profiler::open()?;
    profiler.clocks().map(drop)
}

impl Profiler {
    /// Loads the programs, to sample every [`PERIOD_NS`].
    ///
    /// # Errors
    /// Environment: what this host or process lacks.
    pub fn open() -> Result<Self> {
        Self::open_with_period(PERIOD_NS)
    }

    /// Loads the programs, to sample each CPU every `period_ns`.
    ///
    /// # Errors
    /// Usage: the period is below 10 us. Environment: what this host or process lacks.
    pub fn open_with_period(period_ns: u64) -> Result<Self> {
        if period_ns < PERIOD_NS_MIN {
            return Err(Error::usage(format!("a sampling period of {period_ns} ns is below {PERIOD_NS_MIN} ns")));
        }
        check_sample_rate(period_ns)?;
        let btf = Btf::of_kernel()?;
        let map = |kind, name, key_bytes, value_bytes, entries_max| {
            Map::create(kind, name, key_bytes, value_bytes, entries_max)
                .map_err(|errno| refused(format_args!("cannot create the BPF map `{name}`"), errno, &NEEDED))
        };
        let marks = map(MapKind::PerCpuArray, "siga_marks", 4, 4, 1)?;
        let counts = map(MapKind::PerCpuHash, "siga_counts", KEY_BYTES, 8, KEYS_MAX)?;
        let uncounted = map(MapKind::PerCpuArray, "siga_uncounted", 4, 8, 1)?;
        let tracepoint = |name: &str, lines: &[Line]| {
            let id = btf.id(Kind::Typedef, &format!("btf_trace_{name}"));
            let id = id.ok_or_else(|| Error::environment(format!("this kernel has no tracepoint {name}")))?;
            load_program(ProgramKind::Tracepoint(id), name, lines, &NEEDED)
        };
        let markers = vec![
            tracepoint("softirq_entry", &mark_softirq(&marks))?,
            tracepoint("netif_receive_skb", &mark_namespace(&marks, &btf)?)?,
            tracepoint("softirq_exit", &unmark(&marks))?,
        ];
        let sampler =
            load_program(ProgramKind::PerfEvent, "siga_sample", &sample(&marks, &counts, &uncounted)?, &NEEDED)?;
        Ok(Self { marks, counts, uncounted, markers, sampler, period_ns, running: None })
    }

    /// Forgets what was seen before and starts sampling every CPU that is online.
    ///
    /// # Errors
    /// Environment: the kernel refuses the clocks or the tracepoints. Nothing then stays attached.
    pub fn start(&mut self) -> Result<()> {
        self.running = None;
        self.counts.clear().context("cannot clear the profile")?;
        // A CPU that left the profile in softirq would keep its mark until its next softirq.
        let zeros = vec![0; self.marks.value_bytes()];
        self.marks.put(&[0; 4], &zeros).context("cannot clear the marks")?;
        let markers = self.markers.iter().map(|program| {
            attach_tracepoint(program.as_fd()).map_err(|errno| refused("cannot attach to a tracepoint", errno, &NEEDED))
        });
        let markers = markers.collect::<Result<Vec<_>>>()?;
        let clocks = self.clocks()?;
        let uncounted_before = self.uncounted_total()?;
        for clock in &clocks {
            clock.enable().context(format_args!("cannot start the clock of CPU {}", clock.cpu()))?;
        }
        self.running = Some(Running { clocks, uncounted_before, _markers: markers });
        Ok(())
    }

    /// Stops sampling and returns what was seen.
    ///
    /// # Errors
    /// Usage: it was not started. Incomplete: a CPU went offline meanwhile.
    pub fn stop(&mut self) -> Result<Profile> {
        let Some(running) = self.running.take() else {
            return Err(Error::usage("the profiler was stopped before it was started"));
        };
        for clock in &running.clocks {
            clock.disable().context(format_args!("cannot stop the clock of CPU {}", clock.cpu()))?;
        }
        let watched = running.clocks.iter().map(|clock| {
            let gone = |errno| Error::incomplete(format!("the clock of CPU {} is gone: {errno}", clock.cpu()));
            Ok(Watched { cpu: clock.cpu(), wall_ns: clock.elapsed_ns().map_err(gone)? })
        });
        let cpus = watched.collect::<Result<Vec<_>>>()?;
        check_even(&cpus)?;
        let uncounted = self.uncounted_total()?.saturating_sub(running.uncounted_before);
        drop(running);
        let entries = self.counts.entries().context("cannot read the profile")?;
        let mut samples: Vec<_> = entries.iter().filter_map(|(key, values)| read_sample(key, values)).collect();
        samples
            .sort_by_key(|sample| (std::cmp::Reverse(sample.count), sample.tgid, sample.namespace_inode, sample.mode));
        Ok(Profile { period_ns: self.period_ns, cpus, samples, uncounted })
    }

    /// Stopped clocks, with the sampler attached, on every CPU that is online at this moment: opening them afresh for
    /// each profile takes some tens of microseconds a CPU and leaves no state to follow CPUs coming and going.
    fn clocks(&self) -> Result<Vec<CpuClock>> {
        let text = std::fs::read_to_string(ONLINE).context(format_args!("cannot read {ONLINE}"))?;
        let cpus = cpu_list(&text).ok_or_else(|| Error::environment(format!("{ONLINE} is no list of CPUs: {text}")))?;
        let clocks = cpus.into_iter().map(|cpu| {
            let clock = CpuClock::open(cpu, self.period_ns)
                .map_err(|errno| refused(format_args!("cannot open a clock on CPU {cpu}"), errno, &NEEDED))?;
            clock
                .attach(self.sampler.as_fd())
                .map_err(|errno| refused(format_args!("cannot attach to the clock of CPU {cpu}"), errno, &NEEDED))?;
            Ok(clock)
        });
        clocks.collect()
    }

    fn uncounted_total(&self) -> Result<u64> {
        let values = self.uncounted.get(&[0; 4]).context("cannot read the profile")?;
        Ok(sum(&values.unwrap_or_default()))
    }
}

/// The kernel drops samples beyond this rate, and root may have lowered it, or the kernel by itself.
fn check_sample_rate(period_ns: u64) -> Result<()> {
    let wanted = 1_000_000_000_u64.div_ceil(period_ns);
    let text = std::fs::read_to_string(RATE_MAX).context(format_args!("cannot read {RATE_MAX}"))?;
    let most: u64 = text.trim().parse().context(format_args!("{RATE_MAX} is no number: {text}"))?;
    if most < wanted {
        let way_out = format!("sysctl kernel.perf_event_max_sample_rate={}", wanted.next_multiple_of(10_000));
        return Err(Error::environment(format!("{RATE_MAX} is {most}, but {wanted} are needed")).hint(way_out));
    }
    Ok(())
}

/// A clock stands still while its CPU is offline; the microseconds between starting one CPU and the next do not matter.
fn check_even(cpus: &[Watched]) -> Result<()> {
    let longest = cpus.iter().map(|cpu| cpu.wall_ns).max().unwrap_or_default();
    let tolerated = longest / 50 + 50_000_000;
    match cpus.iter().find(|cpu| cpu.wall_ns + tolerated < longest) {
        Some(short) => {
            let (seen, all) = (short.wall_ns / 1_000_000, longest / 1_000_000);
            Err(Error::incomplete(format!("CPU {} was online for {seen} of {all} ms only", short.cpu)))
        }
        None => Ok(()),
    }
}

/// Key of the counts: `u32` process, `u32` mark, `u32` mode.
const KEY_BYTES: u32 = 12;
const MODE_USER: i32 = 0;
const MODE_KERNEL: i32 = 1;
const MODE_SOFTIRQ: i32 = 2;

fn read_sample(key: &[u8], values: &[u8]) -> Option<Sample> {
    let (words, _) = key.as_chunks::<4>();
    let [tgid, mark, mode] = words else { return None };
    let mark = u32::from_ne_bytes(*mark);
    let mode = match i32::from_ne_bytes(*mode) {
        MODE_USER => Mode::User,
        MODE_KERNEL => Mode::Kernel,
        MODE_SOFTIRQ => Mode::Softirq,
        _ => return None,
    };
    let namespace_inode = if mark < NAMESPACES_FROM { 0 } else { mark };
    Some(Sample { tgid: u32::from_ne_bytes(*tgid), namespace_inode, mode, count: sum(values) })
}

fn sum(values: &[u8]) -> u64 {
    values.as_chunks::<8>().0.iter().map(|value| u64::from_ne_bytes(*value)).sum()
}

/// `R0 =` this CPU's value in a per-CPU array of one entry, or a jump to `out`.
fn own_value(map: &Map) -> [Line; 6] {
    [
        store_constant(Width::Word, R10, -4, 0),
        load_map(R1, map.fd()),
        copy(R2, R10),
        add(R2, -4),
        call(Helper::MapLookup),
        jump_if(R0, Condition::Equal, 0, "out"),
    ]
}

fn finish() -> [Line; 3] {
    [label("out"), set(R0, 0), exit()]
}

/// `softirq_entry(vec_nr)`: the mark becomes the softirq's number + 1.
fn mark_softirq(marks: &Map) -> Vec<Line> {
    let number = [load(Width::Double, R6, R1, 0), add(R6, 1)];
    let mark = [store(Width::Word, R0, 0, R6)];
    [&number[..], &own_value(marks), &mark, &finish()].concat()
}

/// `softirq_exit(vec_nr)`: no mark.
fn unmark(marks: &Map) -> Vec<Line> {
    let clear = [store_constant(Width::Word, R0, 0, 0)];
    [&own_value(marks)[..], &clear, &finish()].concat()
}

/// `netif_receive_skb(skb)`: the mark becomes the network namespace of the packet's device, if this is a softirq.
fn mark_namespace(marks: &Map, btf: &Btf) -> Result<Vec<Line>> {
    let offset = |structure: &str, path: &str| {
        let offset = btf.offset(structure, path).and_then(|offset| i16::try_from(offset).ok());
        offset.ok_or_else(|| Error::environment(format!("this kernel's BTF does not place {structure}.{path}")))
    };
    let context = [copy(R6, R1)];
    // The loads go through pointers whose types the kernel knows; a bad one reads as zero.
    let namespace = [
        load(Width::Word, R1, R0, 0),
        jump_if(R1, Condition::Equal, 0, "out"),
        load(Width::Double, R1, R6, 0),
        load(Width::Double, R1, R1, offset("sk_buff", "dev")?),
        load(Width::Double, R1, R1, offset("net_device", "nd_net.net")?),
        load(Width::Word, R1, R1, offset("net", "ns.inum")?),
        store(Width::Word, R0, 0, R1),
    ];
    Ok([&context[..], &own_value(marks), &namespace, &finish()].concat())
}

/// Jumps to `user` unless the sample interrupted the kernel. `R6` is the context, which begins with the registers.
#[cfg(target_arch = "x86_64")]
fn unless_kernel() -> Result<Vec<Line>> {
    // `struct pt_regs`: the privilege level is in the low bits of cs.
    Ok(vec![load(Width::Double, R1, R6, 17 * 8), and(R1, 3), jump_if(R1, Condition::NotEqual, 0, "user")])
}

/// Jumps to `user` unless the sample interrupted the kernel. `R6` is the context, which begins with the registers.
#[cfg(target_arch = "aarch64")]
fn unless_kernel() -> Result<Vec<Line>> {
    // `struct user_pt_regs`: 31 registers, sp, pc, pstate, whose mode bits are zero in EL0.
    Ok(vec![load(Width::Double, R1, R6, 33 * 8), and(R1, 0xf), jump_if(R1, Condition::Equal, 0, "user")])
}

/// Jumps to `user` unless the sample interrupted the kernel. `R6` is the context, which begins with the registers.
#[cfg(target_arch = "s390x")]
fn unless_kernel() -> Result<Vec<Line>> {
    // `user_pt_regs`: one word, then the program status word, whose bit 15 (from the left) is the problem state.
    Ok(vec![
        load(Width::Double, R1, R6, 8),
        shift_right(R1, 48),
        and(R1, 1),
        jump_if(R1, Condition::NotEqual, 0, "user"),
    ])
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "s390x")))]
fn unless_kernel() -> Result<Vec<Line>> {
    Err(Error::environment("the profiler cannot tell user from kernel time on this architecture")
        .hint("use the accounting method `subtract` or `tick`"))
}

/// The sampler: counts (process, mark, mode). The key lies at -24 on the stack, the first count at -8.
fn sample(marks: &Map, counts: &Map, uncounted: &Map) -> Result<Vec<Line>> {
    let process = [
        copy(R6, R1),
        call(Helper::PidTgid),
        shift_right(R0, 32),
        store(Width::Word, R10, -24, R0),
        store_constant(Width::Word, R10, -20, 0),
        store_constant(Width::Word, R10, -16, MODE_USER),
    ];
    let kernel = [store_constant(Width::Word, R10, -16, MODE_KERNEL)];
    let softirq = [
        load(Width::Word, R1, R0, 0),
        jump_if(R1, Condition::Equal, 0, "user"),
        store(Width::Word, R10, -20, R1),
        store_constant(Width::Word, R10, -16, MODE_SOFTIRQ),
    ];
    let count = [
        label("user"),
        load_map(R1, counts.fd()),
        copy(R2, R10),
        add(R2, -24),
        call(Helper::MapLookup),
        jump_if(R0, Condition::NotEqual, 0, "known"),
        store_constant(Width::Double, R10, -8, 1),
        load_map(R1, counts.fd()),
        copy(R2, R10),
        add(R2, -24),
        copy(R3, R10),
        add(R3, -8),
        set(R4, 0),
        call(Helper::MapUpdate),
        jump_if(R0, Condition::Equal, 0, "out"),
    ];
    // One CPU's samples do not interrupt each other, and nobody else writes this CPU's counts.
    let increment = [label("known"), load(Width::Double, R7, R0, 0), add(R7, 1), store(Width::Double, R0, 0, R7)];
    Ok([
        &process[..],
        &unless_kernel()?,
        &kernel,
        &own_value(marks),
        &softirq,
        &count,
        &own_value(uncounted),
        &increment,
        &finish(),
    ]
    .concat())
}

#[cfg(test)]
mod tests {
    use super::super::testbed::{ping_pong, routed};
    use super::*;
    use rustix::process::{Pid, Signal, kill_process};
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    fn open() -> Option<Profiler> {
        Profiler::open().inspect_err(|error| eprintln!("skipped, because the profiler cannot be opened: {error}")).ok()
    }

    /// Runs a program under the profiler; returns the profile, the process id, and its exact CPU time in nanoseconds.
    fn profile_of(profiler: &mut Profiler, words: &[&str], time: Duration) -> (Profile, u32, u64) {
        profiler.start().unwrap();
        let mut child =
            Command::new(words[0]).args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let pid = child.id();
        std::thread::sleep(time);
        // The scheduler's account of a process that stands still is exact.
        kill_process(Pid::from_child(&child), Signal::STOP).unwrap();
        let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        while !state().contains(") T ") {
            std::thread::yield_now();
        }
        let account = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap();
        let profile = profiler.stop().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        (profile, pid, account.split(' ').next().unwrap().parse().unwrap())
    }

    fn ratio(part: u64, whole: u64) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "shares are compared to a percent")]
        let ratio = part as f64 / whole as f64;
        ratio
    }

    #[test]
    fn a_spinning_process_is_seen_in_user_mode_for_the_time_it_ran() {
        let Some(mut profiler) = open() else { return };
        let spin = ["sh", "-c", "while :; do :; done"];
        let (profile, pid, ran_ns) = profile_of(&mut profiler, &spin, Duration::from_secs(2));
        let user_ns = profile.time_ns(|sample| sample.tgid == pid && sample.mode == Mode::User);
        let off = ratio(user_ns.abs_diff(ran_ns), ran_ns);
        println!(
            "user {user_ns} of {ran_ns} ns, off by {:.2}%, unseen {:.2}%",
            100.0 * off,
            100.0 * ratio(profile.unseen_ns(), profile.wall_ns())
        );
        assert!(off < 0.03 + ratio(profile.unseen_ns(), profile.wall_ns()), "{user_ns} of {ran_ns} ns");
    }

    #[test]
    fn a_process_that_lives_in_system_calls_is_seen_in_kernel_mode() {
        let Some(mut profiler) = open() else { return };
        let copy = ["dd", "if=/dev/zero", "of=/dev/null", "bs=64k"];
        let (profile, pid, ran_ns) = profile_of(&mut profiler, &copy, Duration::from_secs(1));
        let kernel_ns = profile.time_ns(|sample| sample.tgid == pid && sample.mode == Mode::Kernel);
        let share = ratio(kernel_ns, ran_ns);
        println!("kernel share {share}");
        assert!(share > 0.8, "{kernel_ns} of {ran_ns} ns");
    }

    #[test]
    fn the_samples_of_all_processes_and_the_idle_time_add_up_to_the_wall_time() {
        let Some(mut profiler) = open() else { return };
        let began = Instant::now();
        profiler.start().unwrap();
        std::thread::sleep(Duration::from_secs(1));
        let profile = profiler.stop().unwrap();
        let around_ns = u64::try_from(began.elapsed().as_nanos()).unwrap();
        let online = cpu_list(&std::fs::read_to_string(ONLINE).unwrap()).unwrap();
        assert_eq!(profile.cpus.iter().map(|watched| watched.cpu).collect::<Vec<_>>(), online);
        for watched in &profile.cpus {
            assert!((1_000_000_000..=around_ns).contains(&watched.wall_ns), "{watched:?} within {around_ns}");
        }
        let sampled_ns = profile.time_ns(|_| true);
        println!(
            "start to end {around_ns}, wall {:?}, sampled {sampled_ns} unseen {}",
            profile.cpus,
            profile.unseen_ns()
        );
        assert!(sampled_ns <= profile.wall_ns());
        assert!(ratio(sampled_ns, profile.wall_ns()) > 0.99);
        assert!(profile.samples.iter().any(Sample::is_idle));
        assert_eq!(profile.uncounted, 0);
    }

    #[test]
    fn forwarding_is_charged_to_the_namespace_of_the_router() {
        let (Some(mut profiler), Some(path)) = (open(), routed()) else { return };
        profiler.start().unwrap();
        let rounds = ping_pong(&path, |rounds| rounds == 20_000);
        let profile = profiler.stop().unwrap();
        let of = |inode| profile.time_ns(|sample| sample.namespace_inode == inode) / rounds;
        let (client, router, server) = (of(path.client.inode()), of(path.router.inode()), of(path.server.inode()));
        for sample in profile.samples.iter().take(20) {
            println!("{sample:?}");
        }
        println!("{client} {router} {server} ns a round trip");
        assert!(client > 0 && router > 0 && server > 0);
        assert!(profile.samples.iter().all(|sample| sample.mode == Mode::Softirq || sample.namespace_inode == 0));
    }
}
