//! Times elementary operations on this host: a reading of the clock, a system call, and an exchange, in which one thread sends a
//! machine word to another thread and back.
//!
//! Every figure is a median, so that a short disturbance does not matter. Measuring a figure takes at most [`TIME_MAX`]. The
//! exchange is timed with threads that sleep while they wait, because the cost of wake-ups limits request-response with
//! blocking sockets. It is also timed with threads that poll memory, which shows the cost without wake-ups.

use crate::clock::now_ns;
use crate::place::stay_on;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use serde::{Deserialize, Serialize};
use siga_model::error::{IoContext, Result};
use siga_plan::cpus::cpu_list;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Maximum time for all samples of one figure.
const TIME_MAX: Duration = Duration::from_millis(150);
/// Maximum number of samples for one figure.
const SAMPLES_MAX: usize = 2_000;
/// Number of operations that are timed together as one sample, for operations that are too short to time one by one.
const BATCH: u32 = 100;

/// An elementary operation and its time on this host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timing {
    /// Description of the operation.
    pub what: String,
    /// Median time of the operation in nanoseconds.
    pub median_ns: f64,
    /// The consequence of this time for measurements, as text.
    pub means: String,
}

/// Times all elementary operations that are possible on the CPUs that this process may use. Returns an error of kind `Environment`
/// if descriptors or threads run out.
pub(super) fn all() -> Result<Vec<Timing>> {
    let cpus = allowed();
    let mut all = vec![
        timing("reading the clock", "every exchange reads it at least twice", clock()),
        timing("a system call", "every message takes several", system_call()),
    ];
    if let [first, ..] = cpus[..] {
        let ns = wake_up(first, first)?;
        all.push(timing("waking a thread on the same CPU, and back", "a blocking exchange takes at least this", ns));
    }
    if let [first, second, ..] = cpus[..] {
        let ns = wake_up(first, second)?;
        let means = "bounds blocking request-response between CPUs, whatever the path";
        all.push(timing("waking a thread on another CPU, and back", means, ns));
        all.push(timing(
            "two spinning threads on two CPUs, there and back",
            "the same with --wait poll",
            spin(first, second)?,
        ));
    }
    Ok(all)
}

fn timing(what: &str, means: &str, median_ns: f64) -> Timing {
    Timing { what: what.into(), median_ns, means: means.into() }
}

/// Returns the numbers of the CPUs that this process may use.
pub(super) fn allowed() -> Vec<u32> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.and_then(cpu_list).unwrap_or_default()
}

/// Returns the median time of one operation in nanoseconds. Each call of `batch` performs `per_batch` operations.
fn median_of(per_batch: u32, mut batch: impl FnMut()) -> f64 {
    let end = now_ns() + u64::try_from(TIME_MAX.as_nanos()).unwrap_or(u64::MAX);
    let mut samples = Vec::with_capacity(SAMPLES_MAX);
    while samples.len() < SAMPLES_MAX {
        let begun = now_ns();
        batch();
        let now = now_ns();
        samples.push((now - begun) as f64 / f64::from(per_batch));
        if now > end {
            break;
        }
    }
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

fn clock() -> f64 {
    median_of(BATCH, || {
        for _ in 0..BATCH {
            std::hint::black_box(now_ns());
        }
    })
}

fn system_call() -> f64 {
    median_of(BATCH, || {
        for _ in 0..BATCH {
            std::hint::black_box(rustix::process::getppid());
        }
    })
}

/// Returns the median round-trip time of a word between a thread on CPU `here` and a thread on CPU `there`, through two
/// eventfds. Each thread sleeps until the other has written.
fn wake_up(here: u32, there: u32) -> Result<f64> {
    let make = || eventfd(0, EventfdFlags::CLOEXEC).context("cannot make an eventfd");
    let (ping, pong) = (make()?, make()?);
    let over = AtomicBool::new(false);
    let (ping, pong, over) = (&ping, &pong, &over);
    two_threads(
        here,
        there,
        move || {
            median_of(1, || {
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

/// Returns the median round-trip time of a word between two threads that use shared memory and poll it without sleeping.
fn spin(here: u32, there: u32) -> Result<f64> {
    let (turn, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let (turn, over) = (&turn, &over);
    two_threads(
        here,
        there,
        move || {
            median_of(BATCH, || {
                for _ in 0..BATCH {
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
                let answering = answering.context("cannot start a thread")?;
                let measured = measure();
                end();
                answering.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map(|()| measured)
            })
        });
        let measuring = measuring.context("cannot start a thread")?;
        measuring.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_figure_is_there_and_positive() {
        let all = all().unwrap();
        let cpus = allowed().len();
        assert_eq!(all.len(), if cpus > 1 { 5 } else { 3 }, "{all:?}");
        assert!(all.iter().all(|timing| timing.median_ns > 0.0), "{all:?}");
    }
}
