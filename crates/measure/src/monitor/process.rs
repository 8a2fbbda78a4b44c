//! The CPU time of one process. The files of the process stay open, so that they belong to the same process even if another process
//! gets its id.

use crate::cpu::delay;
use crate::cpu::process::split;
use crate::cpu::stat::Stat;
use crate::limits::MONITORED_THREADS_MAX;
use crate::sys;
use rustix::io::pread;
use siga_model::text;
use siga_results::monitor::CpuReading;
use std::borrow::Cow;
use std::fs::File;

/// Maximum number of bytes that are read of a process's files.
const FILE_BYTES_MAX: usize = 2 << 10;

/// Reads the CPU time of a process.
#[derive(Debug)]
pub(super) struct ProcessReader {
    pid: u32,
    name: String,
    stat: File,
    /// The run-queue delay of the first thread.
    delay: Option<File>,
    last: Option<CpuReading>,
}

impl ProcessReader {
    /// Returns `None` if the process has ended.
    pub(super) fn open(pid: u32) -> Option<Self> {
        let stat = File::open(format!("/proc/{pid}/stat")).ok()?;
        let delay = File::open(format!("/proc/{pid}/schedstat")).ok();
        let known = Stat::parse(&read_at_start(&stat, &mut [0; FILE_BYTES_MAX])?)?;
        Some(Self { pid, name: text::name(&known.name), stat, delay, last: None })
    }

    /// Returns the name of the program. It has no invisible characters.
    pub(super) fn name(&self) -> String {
        self.name.clone()
    }

    /// Returns true if the process has not run since it was last read.
    pub(super) fn is_still(&self) -> bool {
        self.last.is_some_and(|last| sys::process_cpu_ns(self.pid).is_ok_and(|run_ns| run_ns == last.run_ns))
    }

    /// Returns the CPU time, or `None` if the process has ended.
    pub(super) fn read(&mut self) -> Option<CpuReading> {
        // This clock is much cheaper than the files. A process that did not run has not changed them.
        let run_ns = sys::process_cpu_ns(self.pid).ok()?;
        if let Some(last) = self.last.filter(|last| last.run_ns == run_ns) {
            return Some(last);
        }
        let mut buffer = [0; FILE_BYTES_MAX];
        let stat = Stat::parse(&read_at_start(&self.stat, &mut buffer)?)?;
        let wait_ns = match stat.threads {
            // The fields are: time on a CPU, time waited for a CPU, number of time slices.
            0 | 1 => self
                .delay
                .as_ref()
                .and_then(|file| read_at_start(file, &mut buffer)?.split_whitespace().nth(1)?.parse::<u64>().ok()),
            2..=MONITORED_THREADS_MAX => delay::of(self.pid),
            _ => None,
        };
        let virtual_ns = split(run_ns, stat.user, stat.system).user_ns;
        self.last = Some(CpuReading { run_ns, virtual_ns, wait_ns });
        self.last
    }
}

/// Reads a file from its start, up to the length of the buffer. Returns `None` if the file cannot be read, for example because its
/// process has ended.
pub(super) fn read_at_start<'a>(file: &File, buffer: &'a mut [u8]) -> Option<Cow<'a, str>> {
    let bytes = pread(file, &mut *buffer, 0).ok()?;
    Some(String::from_utf8_lossy(buffer.get(..bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn the_monitored_time_of_a_process_is_that_of_its_threads_until_it_ends() {
        let mut child = Command::new("sh").args(["-c", "while :; do :; done"]).stdout(Stdio::null()).spawn().unwrap();
        let mut reader = ProcessReader::open(child.id()).unwrap();
        let first = reader.read().unwrap();
        let mut last = first;
        while last.run_ns < first.run_ns + 50_000_000 {
            last = reader.read().unwrap();
        }
        assert!(last.virtual_ns <= last.run_ns && last.wait_ns >= first.wait_ns, "{last:?}");
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(reader.read(), None);
        assert!(ProcessReader::open(child.id()).is_none());
    }

    #[test]
    fn a_process_that_does_not_run_is_not_read_again() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let mut reader = ProcessReader::open(child.id()).unwrap();
        let mut last = reader.read();
        // The process starts its program, and then sleeps.
        loop {
            std::thread::sleep(std::time::Duration::from_millis(20));
            let now = reader.read();
            if now == last {
                break;
            }
            last = now;
        }
        // This file has no delay. The reader does not notice it, because the process has not run.
        reader.delay = None;
        assert_eq!(reader.read(), last);
        assert!(last.unwrap().wait_ns.is_some());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
