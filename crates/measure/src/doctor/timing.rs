//! Times elementary operations on this host: a reading of the clock, a system call, and an exchange, in which one thread sends a
//! machine word to another thread and back.
//!
//! Every figure is a median, so that a short disturbance does not matter. Measuring a figure takes at most [`TIME_MAX`]. The
//! exchange is timed with threads that sleep while they wait, because the cost of wake-ups limits request-response with
//! blocking sockets. It is also timed with threads that poll memory, which shows the cost without wake-ups.

use crate::clock::now_ns;
use crate::probe::{Effort, allowed, median_of, spin, wake_up};
use serde::{Deserialize, Serialize};
use siga_model::error::Result;
use std::time::Duration;

/// Maximum time for all samples of one figure.
const TIME_MAX: Duration = Duration::from_millis(150);
/// Number of operations that are timed together as one sample, for operations that are too short to time one by one.
const BATCH: u32 = 100;
const EFFORT: Effort = Effort { time: TIME_MAX, samples_least: 1, samples_most: 2_000 };

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
        timing("reading the clock", "each transaction reads the clock at least twice", clock()),
        timing("a system call", "each message needs several system calls", system_call()),
    ];
    if let [first, ..] = cpus[..] {
        let ns = wake_up(first, first, EFFORT)?;
        all.push(timing(
            "waking a thread on the same CPU, round trip",
            "minimum time of a transaction on one CPU (--wait block)",
            ns,
        ));
    }
    if let [first, second, ..] = cpus[..] {
        let ns = wake_up(first, second, EFFORT)?;
        let means = "minimum time of a transaction between CPUs (--wait block)";
        all.push(timing("waking a thread on another CPU, round trip", means, ns));
        all.push(timing(
            "two polling threads on two CPUs, round trip",
            "minimum time of a transaction between CPUs (--wait poll)",
            spin(first, second, BATCH, EFFORT)?,
        ));
    }
    Ok(all)
}

fn timing(what: &str, means: &str, median_ns: f64) -> Timing {
    Timing { what: what.into(), median_ns, means: means.into() }
}

fn clock() -> f64 {
    median_of(BATCH, EFFORT, || {
        for _ in 0..BATCH {
            std::hint::black_box(now_ns());
        }
    })
}

fn system_call() -> f64 {
    median_of(BATCH, EFFORT, || {
        for _ in 0..BATCH {
            std::hint::black_box(rustix::process::getppid());
        }
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
