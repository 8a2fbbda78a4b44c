//! Measures what the profiler costs: the CPU time of one sample, and of the marker for one received packet.
//!
//! A loop sends datagrams to itself over the loopback interface, which is the kind of work that the profiler samples: call chains are
//! deep, and each datagram is a received packet. The loop runs in short blocks with and without the profiler, in turns. What the
//! loop is slower is the cost. This includes all that an interrupt costs beside its own run time: in a virtual machine, the
//! hypervisor programs the timer and delivers the interrupt, and caches are colder afterwards.
//!
//! The length of the gaps that samples leave in a spinning loop is no such measure. In a virtual machine, most gaps come from
//! something else, so their median can be a fraction of the cost (decision 029).

use super::NEEDED;
use super::clocks::open;
use crate::bpf::refused;
use crate::sys::bpf::attach_tracepoint;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, bind, connect, getsockname, recv, send, socket};
use siga_model::error::{Error, IoContext, Result};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

/// CPU time that the profiler takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Nanoseconds for one sample.
    pub(crate) sample_ns: u64,
    /// Nanoseconds for one received packet.
    pub(crate) packet_ns: u64,
}

/// Sampling period in nanoseconds while the cost of a sample is measured.
const EVERY_NS: u64 = 199_999;
/// Length of one block of the loop: shorter than the time for which the scheduler lets a thread run.
const BLOCK: Duration = Duration::from_millis(2);
/// Number of blocks of each kind. The fastest block of each kind counts, because other processes can only slow a block down.
const BLOCKS: usize = 24;

/// Measures the cost on this host. This takes about a fifth of a second.
///
/// # Errors
/// Returns an error of kind `Environment` if the loopback interface carries no datagram, or if the kernel refuses a clock or the
/// tracepoint.
pub(super) fn measure(sampler: &OwnedFd, marker: &OwnedFd) -> Result<Cost> {
    // The measurement runs in a separate thread, because it restricts its thread to one CPU.
    std::thread::scope(|scope| {
        let measured = scope.spawn(|| measure_here(sampler, marker)).join();
        measured.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn measure_here(sampler: &OwnedFd, marker: &OwnedFd) -> Result<Cost> {
    let cpu = rustix::thread::sched_getcpu();
    let mut own = rustix::thread::CpuSet::new();
    own.set(cpu);
    rustix::thread::sched_setaffinity(None, &own).context("cannot bind the thread to a CPU")?;
    let clock =
        open(u32::try_from(cpu).context("the number of this CPU is too large for the profiler")?, EVERY_NS, sampler)?;
    let work = Echo::new()?;
    work.block()?;
    let (mut sampled, mut plain) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..BLOCKS {
        plain = plain.min(work.block()?);
        clock.enable().context(format_args!("the profiler cannot start its clock of CPU {cpu}"))?;
        let with = work.block();
        clock.disable().context(format_args!("the profiler cannot stop its clock of CPU {cpu}"))?;
        sampled = sampled.min(with?);
    }
    let attached = attach_tracepoint(marker.as_fd())
        .map_err(|errno| refused("the profiler cannot attach to the tracepoint netif_receive_skb", errno, &NEEDED))?;
    let marked = work.fastest()?;
    drop(attached);
    plain = plain.min(work.fastest()?);
    // The share of the time that samples took is the share of the exchanges that are missing.
    Ok(Cost { sample_ns: whole((1.0 - plain / sampled) * EVERY_NS as f64), packet_ns: whole(marked - plain) })
}

/// A socket that is connected to itself over the loopback interface.
struct Echo(OwnedFd);

impl Echo {
    fn new() -> Result<Self> {
        let opened = || -> rustix::io::Result<OwnedFd> {
            let own = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
            bind(&own, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
            connect(&own, &getsockname(&own)?)?;
            Ok(own)
        };
        opened().map(Self).map_err(failed)
    }

    /// Returns the time of one exchange in the fastest of several blocks, in nanoseconds.
    fn fastest(&self) -> Result<f64> {
        (0..BLOCKS).try_fold(f64::INFINITY, |fastest, _| Ok(fastest.min(self.block()?)))
    }

    /// Exchanges datagrams for the length of a block. Returns the time of one exchange in nanoseconds.
    fn block(&self) -> Result<f64> {
        let (mut exchanges, began) = (0_u32, Instant::now());
        let mut byte = [0];
        loop {
            send(&self.0, &byte, SendFlags::empty()).map_err(failed)?;
            recv(&self.0, &mut byte, RecvFlags::DONTWAIT).map_err(failed)?;
            exchanges += 1;
            let passed = began.elapsed();
            if passed >= BLOCK {
                return Ok(passed.as_nanos() as f64 / f64::from(exchanges));
            }
        }
    }
}

fn failed(errno: rustix::io::Errno) -> Error {
    Error::environment(format!(
        "cannot measure the cost of the profiler, because siga cannot send a datagram to 127.0.0.1: {errno}"
    ))
    .hint("activate the loopback interface (`ip link set lo up`)")
}

fn whole(ns: f64) -> u64 {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and far below 2^64")]
    {
        ns.max(0.0).round() as u64
    }
}
