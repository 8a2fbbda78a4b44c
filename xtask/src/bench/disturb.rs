//! A program that takes a tenth of each CPU in slices of 1 to 20 ms, with real-time priority. No other program gets the CPU during
//! such a slice, so it has the effect of a hypervisor that gives the CPUs to other machines.

use std::env;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The longest time for which the program runs.
pub(crate) const SECONDS_MAX: u32 = 3_600;
const SLICE_US_MIN: u64 = 1_000;
const SLICE_US_MAX: u64 = 20_000;
/// The CPU is left alone for this many times the length of the last slice.
const PAUSE_FACTOR: u32 = 9;

/// The running program. It ends when this value is dropped, or when the thread that started it ends.
pub(crate) struct Disturber(Child);

impl Disturber {
    /// Starts the program for at most `seconds`. It needs root, because it has the policy SCHED_FIFO.
    pub(crate) fn start(seconds: u32) -> Result<Self, String> {
        let own = env::current_exe().map_err(|error| format!("cannot find the program file: {error}"))?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "chrt", "--fifo", "1"]).arg(own);
        command.args(["disturb", "--prioritised", "--seconds", &seconds.to_string()]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).spawn();
        child.map(Self).map_err(|error| format!("setpriv: {error} (Debian's package util-linux)"))
    }

    /// Waits until the program ends.
    pub(crate) fn wait(mut self) -> Result<(), String> {
        match self.0.wait() {
            Ok(status) if status.success() => Ok(()),
            Ok(status) => Err(format!(
                "the disturbing program ended with {status}; it needs root and Debian's package util-linux"
            )),
            Err(error) => Err(format!("cannot wait for the disturbing program: {error}")),
        }
    }
}

impl Drop for Disturber {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs the program in this process, with the scheduling policy that the process has.
pub(crate) fn run(seconds: u32) -> Result<(), String> {
    let end = Instant::now() + Duration::from_secs(seconds.min(SECONDS_MAX).into());
    let allowed = sched_getaffinity(None).map_err(|error| format!("cannot find the CPUs of this host: {error}"))?;
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu));
    let threads: Vec<_> = cpus.map(|cpu| thread::spawn(move || take_slices(cpu, end))).collect();
    threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a thread has panicked".to_owned())?)
}

fn take_slices(cpu: usize, end: Instant) -> Result<(), String> {
    let mut own = CpuSet::new();
    own.set(cpu);
    sched_setaffinity(None, &own).map_err(|error| format!("cannot run on CPU {cpu}: {error}"))?;
    for slice in slices(cpu as u64) {
        let begun = Instant::now();
        if begun >= end {
            break;
        }
        while begun.elapsed() < slice {
            std::hint::spin_loop();
        }
        thread::sleep((slice * PAUSE_FACTOR).min(end.saturating_duration_since(Instant::now())));
    }
    Ok(())
}

/// Returns the lengths of the slices of one CPU, which are the same in each run.
fn slices(seed: u64) -> impl Iterator<Item = Duration> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        // Knuth's multiplier for a linear congruential generator; its upper bits are used.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        Duration::from_micros(SLICE_US_MIN + (state >> 33) % (SLICE_US_MAX - SLICE_US_MIN + 1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_last_1_to_20_ms_and_differ_between_cpus() {
        let of = |seed| slices(seed).take(1_000).map(|slice| slice.as_micros()).collect::<Vec<_>>();
        let (one, other) = (of(0), of(1));
        assert_ne!(one, other);
        assert_eq!(one, of(0));
        let (least, most) = (one.iter().min().unwrap(), one.iter().max().unwrap());
        assert!((1_000..1_200).contains(least) && (19_800..=20_000).contains(most), "{least} {most}");
        let mean = one.iter().sum::<u128>() / 1_000;
        assert!((9_500..11_500).contains(&mean), "{mean}");
    }

    #[test]
    fn the_program_ends_by_itself() {
        let begun = Instant::now();
        // With the policy of the test, it only uses CPU time that nobody else wants.
        thread::spawn(|| run(1)).join().unwrap().unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(900));
    }
}
