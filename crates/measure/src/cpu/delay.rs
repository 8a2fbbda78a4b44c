//! Run-queue delay: the time in which threads of a process could run, but waited for a CPU. The kernel's scheduler counts it for
//! each thread (`/proc/PID/task/TID/schedstat`).

use std::path::Path;

/// Returns the run-queue delay of the calling process in nanoseconds, summed over its threads. `None` if the kernel does not count
/// it.
pub(crate) fn own() -> Option<u64> {
    below(Path::new("/proc/self"))
}

/// Returns the run-queue delay of another process. `None` if the process has ended, or if the kernel does not count the delay.
pub(crate) fn of(pid: u32) -> Option<u64> {
    below(Path::new(&format!("/proc/{pid}")))
}

/// Sums the delays of all threads of the process whose directory is `process`. The delay of a thread that has ended is lost.
fn below(process: &Path) -> Option<u64> {
    let threads = std::fs::read_dir(process.join("task")).ok()?;
    let delay = |thread: std::fs::DirEntry| {
        let text = std::fs::read_to_string(thread.path().join("schedstat")).ok()?;
        // The fields are: time on a CPU, time waited for a CPU, number of time slices.
        text.split_whitespace().nth(1)?.parse::<u64>().ok()
    };
    let all: Vec<u64> = threads.flatten().filter_map(delay).collect();
    if all.is_empty() { None } else { Some(all.into_iter().fold(0, u64::saturating_add)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_delays_of_all_threads_add_up() {
        let process = tempfile::tempdir().unwrap();
        for (thread, line) in [("7", "100 30 2\n"), ("8", "5 12 1\n")] {
            let directory = process.path().join("task").join(thread);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(directory.join("schedstat"), line).unwrap();
        }
        assert_eq!(below(process.path()), Some(42));
        assert_eq!(below(Path::new("/nonexistent")), None);
    }
}
