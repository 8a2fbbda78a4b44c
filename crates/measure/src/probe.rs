//! Times how long it takes to wake a thread and to move a cache line between CPUs. Both times grow when something else uses the CPUs.
//!
//! [`probe`] takes about a millisecond, so that a run can afford it before each trial. `siga doctor` measures the same operations for
//! longer.

use crate::clock::{nanoseconds, now_ns};
use crate::place::stay_on;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use siga_model::error::{IoContext, Result};
use siga_plan::cpus::cpu_list;
use siga_results::record::Probe;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How long an operation is timed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Effort {
    /// Time after which no further sample is taken, if there are enough.
    pub(crate) time: Duration,
    /// Minimum number of samples. It has precedence over the time.
    pub(crate) samples_least: usize,
    /// Maximum number of samples.
    pub(crate) samples_most: usize,
}

/// The effort for each of the three figures of a probe. The median of nine samples does not change if other work interrupts up to
/// four of them.
const PROBE: Effort = Effort { time: Duration::from_micros(250), samples_least: 9, samples_most: 1_000 };
/// Number of moves of a cache line that a probe times together, because one is too short.
const LINE_BATCH: u32 = 10;

/// Probes this host. Returns `None` if threads or descriptors run out.
pub(crate) fn probe() -> Option<Probe> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time of some microseconds")]
    let whole = |ns: f64| ns.round() as u64;
    let cpus = allowed();
    let first = *cpus.first()?;
    let wake_here_ns = whole(wake_up(first, first, PROBE).ok()?);
    let Some(&second) = cpus.get(1) else { return Some(Probe { wake_here_ns, ..Probe::default() }) };
    Some(Probe {
        wake_here_ns,
        wake_across_ns: Some(whole(wake_up(first, second, PROBE).ok()?)),
        cache_line_ns: Some(whole(spin(first, second, LINE_BATCH, PROBE).ok()?)),
    })
}

/// Returns the numbers of the CPUs that this process may use.
pub(crate) fn allowed() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(cpu_list).unwrap_or_default()
}

/// Returns the median time of one operation in nanoseconds. Each call of `batch` performs `per_batch` operations.
pub(crate) fn median_of(per_batch: u32, effort: Effort, mut batch: impl FnMut()) -> f64 {
    let end = now_ns() + nanoseconds(effort.time);
    let mut samples = Vec::with_capacity(effort.samples_most);
    while samples.len() < effort.samples_most.max(1) {
        let begun = now_ns();
        batch();
        let now = now_ns();
        samples.push((now - begun) as f64 / f64::from(per_batch));
        if now > end && samples.len() >= effort.samples_least {
            break;
        }
    }
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

/// Returns the median round-trip time of a word between a thread on CPU `here` and a thread on CPU `there`, through two
/// eventfds. Each thread sleeps until the other has written.
pub(crate) fn wake_up(here: u32, there: u32, effort: Effort) -> Result<f64> {
    let make = || eventfd(0, EventfdFlags::CLOEXEC).context("cannot create an eventfd to measure wake-ups");
    let (ping, pong) = (make()?, make()?);
    let over = AtomicBool::new(false);
    let (ping, pong, over) = (&ping, &pong, &over);
    two_threads(
        here,
        there,
        move || {
            median_of(1, effort, || {
                ring(ping);
                wait_on(pong);
            })
        },
        move || {
            while wait_on(ping) && !over.load(Ordering::Relaxed) {
                ring(pong);
            }
        },
        move || {
            over.store(true, Ordering::Relaxed);
            ring(ping);
        },
    )
}

fn ring(doorbell: &OwnedFd) {
    // A write to an eventfd succeeds unless its counter is full, which needs 2^64 - 1 unread writes.
    let _written = rustix::io::write(doorbell, &1_u64.to_ne_bytes());
}

fn wait_on(doorbell: &OwnedFd) -> bool {
    rustix::io::read(doorbell, &mut [0_u8; 8]).is_ok()
}

/// Returns the median round-trip time of a word between two threads that use shared memory and poll it without sleeping. `batch`
/// exchanges are timed together as one sample.
pub(crate) fn spin(here: u32, there: u32, batch: u32, effort: Effort) -> Result<f64> {
    let (turn, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (turn, over) = (&turn, &over);
    two_threads(
        here,
        there,
        move || {
            median_of(batch, effort, || {
                for _ in 0..batch {
                    turn.store(1, Ordering::Release);
                    while turn.load(Ordering::Acquire) != 0 {
                        std::hint::spin_loop();
                    }
                }
            })
        },
        move || {
            while !over.load(Ordering::Relaxed) {
                if turn.load(Ordering::Acquire) == 1 {
                    turn.store(0, Ordering::Release);
                }
                std::hint::spin_loop();
            }
        },
        move || over.store(true, Ordering::Relaxed),
    )
}

/// Runs `measure` on the CPU `here` and `answer` on the CPU `there`. After `measure` has returned, calls `end`, which makes
/// `answer` return.
fn two_threads(
    here: u32,
    there: u32,
    measure: impl FnOnce() -> f64 + Send,
    answer: impl FnOnce() + Send,
    end: impl FnOnce() + Send,
) -> Result<f64> {
    let builder = || std::thread::Builder::new().name("siga-timing".into());
    std::thread::scope(|scope| {
        let measuring = builder().spawn_scoped(scope, move || {
            stay_on(&[here])?;
            std::thread::scope(|scope| {
                let answering = builder().spawn_scoped(scope, move || {
                    let placed = stay_on(&[there]);
                    answer();
                    placed
                });
                let answering = answering.context("cannot start a thread that measures wake-ups")?;
                let measured = measure();
                end();
                answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(|()| measured)
            })
        });
        let measuring = measuring.context("cannot start a thread that measures wake-ups")?;
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_probe_has_each_figure_that_the_cpus_allow() {
        let probe = probe().unwrap();
        assert!(probe.wake_here_ns > 0, "{probe:?}");
        let several = allowed().len() > 1;
        assert_eq!((probe.wake_across_ns.is_some(), probe.cache_line_ns.is_some()), (several, several));
    }

    #[test]
    fn a_median_has_at_least_the_wanted_number_of_samples() {
        let mut count = 0;
        let effort = Effort { time: Duration::ZERO, samples_least: 9, samples_most: 20 };
        median_of(1, effort, || count += 1);
        assert_eq!(count, 9);
    }
}
