//! Reads clocks: the monotonic clock, and the CPU time of a process or thread.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns the time of the monotonic clock in nanoseconds.
pub(crate) fn now_ns() -> u64 {
    clock_ns(ClockId::Monotonic)
}

/// Returns the time of `clock` in nanoseconds.
pub(crate) fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Returns a duration in nanoseconds. A duration of more than 584 years counts as the largest number.
pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns the CPU time of the calling thread in nanoseconds.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

/// Measures how long a reading of the monotonic clock takes, in nanoseconds, rounded up.
pub(crate) fn reading_ns() -> u64 {
    const READINGS: u64 = 1_000;
    let batch = || {
        let begun = now_ns();
        (0..READINGS).for_each(|_| _ = std::hint::black_box(now_ns()));
        (now_ns() - begun).div_ceil(READINGS)
    };
    // Interrupts and other processes can only make a batch slower.
    (0..3).map(|_| batch()).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn reading_the_monotonic_clock_makes_no_system_call() {
        let filter = seccompiler::SeccompFilter::new(
            BTreeMap::from([(libc::SYS_clock_gettime, Vec::new())]),
            seccompiler::SeccompAction::Allow,
            seccompiler::SeccompAction::Errno(1),
            std::env::consts::ARCH.try_into().unwrap(),
        );
        let filter: seccompiler::BpfProgram = filter.unwrap().try_into().unwrap();
        // The filter is this thread's alone, and ends with it.
        let looks = std::thread::spawn(move || {
            let first = now_ns();
            seccompiler::apply_filter(&filter).unwrap();
            // A reading that needs the kernel shows that the filter works.
            (now_ns() >= first, std::panic::catch_unwind(thread_cpu_ns).is_err())
        });
        assert_eq!(looks.join().unwrap(), (true, true));
    }
}
