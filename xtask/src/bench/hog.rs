//! A process that uses all the CPU time that the scheduler gives it.

use std::process::{Child, Command, Stdio};

/// The busy process. It ends when this value is dropped, when the thread that started it ends for any reason, and after ten
/// minutes of CPU time.
pub(crate) struct Hog(Child);

impl Hog {
    pub(crate) fn start() -> Result<Self, String> {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "sh", "-c", "ulimit -t 600; while :; do :; done"]);
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn();
        child.map(Self).map_err(|error| format!("setpriv: {error} (Debian's package util-linux)"))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::thread;
    use std::time::{Duration, Instant};

    fn within_ten_seconds(mut is_so: impl FnMut() -> bool) -> bool {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(10) {
            if is_so() {
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        false
    }

    #[test]
    fn a_busy_process_ends_with_the_thread_that_started_it() {
        let start = || {
            let hog = Hog::start().unwrap();
            let name = format!("/proc/{}/comm", hog.0.id());
            // Until the process has this name, `setpriv` may not have asked the kernel for the death signal.
            assert!(within_ten_seconds(|| fs::read_to_string(&name).is_ok_and(|name| name == "sh\n")));
            hog
        };
        let mut hog = thread::spawn(start).join().unwrap();
        assert!(within_ten_seconds(|| hog.0.try_wait().unwrap().is_some()), "it outlives its starter");
    }
}
