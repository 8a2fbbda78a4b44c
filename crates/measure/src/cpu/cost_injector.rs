//! The CPU-cost injector: adds a known CPU cost to each packet that a network namespace receives on given interfaces.
//! Calibration uses the injector to check whether accounting methods find this cost.
//!
//! A BPF program at the ingress (tcx) of the given interfaces keeps the CPU busy for a given time per packet. The program adds
//! the time that it really used to a counter, and then lets the packet continue. A packet is the unit that the interface
//! delivers: with segmentation offload, up to 64 KB of a stream.
//!
//! Contract: the cost of a packet is at least the requested cost. It can exceed the requested cost by at most one reading of
//! the clock, plus the time of interrupts during the loop. [`Injected`] includes this excess.

use crate::bpf::asm::{
    Condition, Helper, Line, R0, R1, R2, R6, R7, R8, R10, Width, add, add_register, call, copy, exit, jump_if, label,
    load, load_map, set, store, store_constant, subtract_register,
};
use crate::bpf::{Capability, in_namespace, load_program, missing, refused};
use crate::sys::bpf::{Map, MapKind, ProgramKind, attach_ingress};
use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use siga_model::error::{Error, IoContext, Result};
use siga_plan::limits::PER_PACKET_NS_MAX;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

/// Maximum number of readings of the clock per packet. The verifier demands a bound on the loop. A reading takes 25 ns
/// including the call, so the loop makes 2,000 readings in 50 us and never reaches this bound.
const READINGS_MAX: i32 = 8_192;

/// `TCX_NEXT`: the packet continues to the next attached program, if any, and then along its normal path.
const NEXT: i32 = -1;

const NEEDED: [Capability; 3] = [Capability::Bpf, Capability::NetAdmin, Capability::SysAdmin];

/// The CPU time that an injector has used so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Injected {
    /// Number of packets to which the injector added the cost.
    pub packets: u64,
    /// Total CPU time in nanoseconds that the injector has used for all these packets together.
    pub ns: u64,
}

/// An injector that is attached to interfaces. Dropping this value detaches the injector.
#[derive(Debug)]
pub(crate) struct CostInjector {
    injected: Map,
    _links: Vec<OwnedFd>,
}

/// Checks that this host can run the injector, but attaches no program. Returns an error of kind `Environment` that names what the
/// host or this process lacks.
pub(crate) fn available() -> Result<()> {
    let injected = create_map()?;
    let program = load_injector(&injected, 1)?;
    // No interface has this index, so a kernel that supports tcx returns ENODEV. A kernel without tcx returns EINVAL, because
    // it checks the type of BPF link before the interface.
    match attach_ingress(program.as_fd(), u32::MAX >> 1) {
        Ok(_) | Err(Errno::NODEV) => Ok(()),
        Err(Errno::INVAL) => Err(without_tcx()),
        Err(errno) => Err(refused("cannot attach a BPF program to a network interface", errno, &NEEDED)),
    }
}

impl CostInjector {
    /// Adds `per_packet_ns` of CPU time to each packet that arrives on one of `interfaces`. `namespace_path` is the network
    /// namespace of these interfaces (`/proc/PID/ns/net` or similar). The calling thread stays in its own namespace. Returns an
    /// error of kind `Usage` if the cost is more than [`PER_PACKET_NS_MAX`]. Returns an error of kind `Environment` if the
    /// namespace or an interface does not exist, or if this process lacks a privilege.
    pub(crate) fn attach(namespace_path: &Path, interfaces: &[&str], per_packet_ns: u32) -> Result<Self> {
        if per_packet_ns > PER_PACKET_NS_MAX {
            return Err(Error::usage(format!(
                "a cost of {per_packet_ns} ns per packet is more than the maximum of {PER_PACKET_NS_MAX} ns"
            )));
        }
        let injected = create_map()?;
        let program = load_injector(&injected, per_packet_ns)?;
        let links = in_namespace(namespace_path, || {
            let attach = |interface: &&str| attach_to(&program, interface);
            interfaces.iter().map(attach).collect::<Result<Vec<_>>>()
        });
        let links = links.and_then(|links| links).map_err(|error| error.at(namespace_path.display()))?;
        Ok(Self { injected, _links: links })
    }

    /// Returns the number of packets and the CPU time so far, summed over all interfaces. Returns an error of kind `Environment` if
    /// the kernel does not return the counters.
    pub(crate) fn injected(&self) -> Result<Injected> {
        let values =
            self.injected.get(&[0; 4]).context("cannot read the counters of the cost injector")?.unwrap_or_default();
        let (values, _) = values.as_chunks::<8>();
        let mut total = Injected::default();
        for pair in values.chunks_exact(2) {
            total.packets += u64::from_ne_bytes(pair[0]);
            total.ns += u64::from_ne_bytes(pair[1]);
        }
        Ok(total)
    }
}

fn create_map() -> Result<Map> {
    Map::create(MapKind::PerCpuArray, "siga_injected", 4, 16, 1)
        .map_err(|errno| refused("cannot create a BPF map that counts the added CPU costs", errno, &NEEDED))
}

fn load_injector(spent: &Map, per_packet_ns: u32) -> Result<OwnedFd> {
    // Check the capabilities first. Without CAP_PERFMON (part of CAP_SYS_ADMIN), the verifier would refuse the loop with a
    // message that does not name the cause.
    if !missing(&NEEDED).is_empty() {
        return Err(refused("cannot add a known CPU cost to a network namespace", Errno::PERM, &NEEDED));
    }
    let ns = i32::try_from(per_packet_ns)
        .map_err(|_| Error::usage(format!("a cost of {per_packet_ns} ns per packet is too high")))?;
    load_program(ProgramKind::Ingress, "siga_injector", &program(spent, ns), &NEEDED)
}

fn attach_to(program: &OwnedFd, interface: &str) -> Result<OwnedFd> {
    let any = socket(AddressFamily::INET, SocketType::DGRAM, None)
        .context("cannot open a socket to find a network interface")?;
    let index = name_to_index(&any, interface).context(format_args!("there is no network interface {interface}"))?;
    attach_ingress(program.as_fd(), index).map_err(|errno| match errno {
        Errno::INVAL => without_tcx(),
        errno => {
            refused(format_args!("cannot attach a BPF program to the network interface {interface}"), errno, &NEEDED)
        }
    })
}

fn without_tcx() -> Error {
    Error::environment("this kernel cannot attach BPF programs to interfaces (tcx)")
        .hint("use Linux 6.6 or later, built with CONFIG_NET_XGRESS")
}

/// Returns the BPF program: it reads the clock until `ns` nanoseconds have passed, then adds the packet and the time to the
/// counters in the map `spent`.
fn program(spent: &Map, ns: i32) -> Vec<Line<'_>> {
    vec![
        call(Helper::Nanoseconds),
        copy(R6, R0),
        set(R7, 0),
        // The verifier follows the fall-through branch of a jump first. So the fall-through branch leads to the end of the
        // program, and the jump repeats the loop. In the opposite order, the verifier would have to remember one more path for
        // each iteration of the loop.
        label("again"),
        call(Helper::Nanoseconds),
        subtract_register(R0, R6),
        copy(R8, R0),
        add(R7, 1),
        jump_if(R7, Condition::Equal, READINGS_MAX, "spent"),
        jump_if(R8, Condition::Less, ns, "again"),
        label("spent"),
        store_constant(Width::Word, R10, -4, 0),
        load_map(R1, spent.fd()),
        copy(R2, R10),
        add(R2, -4),
        call(Helper::MapLookup),
        jump_if(R0, Condition::Equal, 0, "out"),
        load(Width::Double, R1, R0, 0),
        add(R1, 1),
        store(Width::Double, R0, 0, R1),
        load(Width::Double, R1, R0, 8),
        add_register(R1, R8),
        store(Width::Double, R0, 8, R1),
        label("out"),
        set(R0, NEXT),
        exit(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::tests::testbed::{ping_pong, routed};
    use crate::cpu::profile::Profiler;
    use std::time::Duration;

    fn injector(path: &Path, ns: u32) -> Option<CostInjector> {
        let injector = CostInjector::attach(path, &["left", "right"], ns);
        injector.inspect_err(|error| eprintln!("skipped, because no cost injector can be attached: {error}")).ok()
    }

    #[test]
    fn every_forwarded_packet_costs_the_requested_time_and_is_counted() {
        let Some(path) = routed() else { return };
        let Some(injector) = injector(&path.router.path(), 5_000) else { return };
        let before = injector.injected().unwrap();
        let rounds = ping_pong(&path, |rounds| rounds == 2_000);
        let spent = injector.injected().unwrap();
        let (packets, ns) = (spent.packets - before.packets, spent.ns - before.ns);
        // One packet each way, besides those of the connection and lone acknowledgements.
        assert!((2 * rounds..4 * rounds).contains(&packets), "{packets} packets in {rounds} rounds");
        assert!(ns >= 5_000 * packets, "{ns} ns for {packets} packets");
    }

    #[test]
    fn attach_leaves_the_callers_namespace_unchanged_and_drop_ends_the_cost() {
        let Some(path) = routed() else { return };
        let own = std::fs::read_link("/proc/thread-self/ns/net").unwrap();
        let Some(CostInjector { injected, _links }) = injector(&path.router.path(), 5_000) else { return };
        assert_eq!(std::fs::read_link("/proc/thread-self/ns/net").unwrap(), own);
        let gone = CostInjector { injected, _links: Vec::new() };
        ping_pong(&path, |rounds| rounds == 10);
        assert!(gone.injected().unwrap().packets >= 20);
        drop(_links);
        // A process being started elsewhere in this test program may hold copies of the descriptors for a moment.
        let unmoved = |_| {
            let before = gone.injected().unwrap();
            ping_pong(&path, |rounds| rounds == 10);
            gone.injected().unwrap() == before
        };
        assert!((0..100).any(unmoved));
    }

    #[test]
    fn invalid_requests_are_refused_and_the_error_names_the_namespace() {
        let Some(path) = routed() else { return };
        let refused = |result: Result<CostInjector>| result.unwrap_err().message().to_owned();
        assert!(refused(CostInjector::attach(&path.router.path(), &[], PER_PACKET_NS_MAX + 1)).contains("50001 ns"));
        assert!(refused(CostInjector::attach(Path::new("/nonexistent"), &["left"], 1)).contains("/nonexistent"));
        if injector(&path.router.path(), 0).is_some() {
            assert!(
                refused(CostInjector::attach(&path.router.path(), &["middle"], 1))
                    .contains("there is no network interface middle")
            );
        }
    }

    #[test]
    fn the_profiler_charges_the_planted_cost_to_the_namespace_of_the_router() {
        let Some(path) = routed() else { return };
        let Some(mut profiler) = Profiler::load(194_005)
            .inspect_err(|error| eprintln!("skipped, because there is no profiler: {error}"))
            .ok()
        else {
            return;
        };
        let mut charged = |ns| {
            let injector = injector(&path.router.path(), ns)?;
            profiler.start().unwrap();
            let began = std::time::Instant::now();
            ping_pong(&path, |_| began.elapsed() > Duration::from_secs(3));
            let profile = profiler.stop().unwrap();
            let of_router = profile.time_ns(|sample| sample.namespace_inode == path.router.inode());
            Some((of_router, injector.injected().unwrap()))
        };
        let mut measured = || {
            let ((plain, counted), (burnt, spent)) = (charged(0)?, charged(20_000)?);
            // The first run shows the router's own work for this number of packets.
            let of_packets = |ns: u64| ns * spent.packets / counted.packets;
            let expected = of_packets(plain) + spent.ns - of_packets(counted.ns);
            let is_near = burnt.abs_diff(expected) < expected / 20;
            Some((is_near, format!("{burnt} ns charged for {expected} ns ({spent:?})")))
        };
        let Some((is_near, first)) = measured() else { return };
        // A burst of other work can spoil one measurement; a wrong profiler fails both.
        let (is_near, again) = if is_near { (true, String::new()) } else { measured().unwrap() };
        assert!(is_near, "{first}; again {again}");
    }
}
