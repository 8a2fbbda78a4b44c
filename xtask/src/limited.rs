//! Runs a command with a time limit, in a process group of its own. No process of the group outlives the command.
//!
//! A group that has to end first receives SIGTERM, so that its processes can clean up, and SIGKILL after [`GRACE`]. Processes
//! that leave the group, such as those of a virtual network, end only if their parent cleans up.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use signal_hook::consts::{SIGINT, SIGTERM};

/// The longest time from SIGTERM to SIGKILL. The soak takes a virtual network down in this time.
const GRACE: Duration = Duration::from_secs(30);

/// The longest time that the kernel needs to end a killed process.
const KILL_TIME_MAX: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(50);

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Exited(ExitStatus),
    /// The command was ended because its time was over.
    TimedOut,
    /// The command was ended because the user interrupted this process.
    Interrupted,
}

/// Returns a flag that SIGINT and SIGTERM set from now on, instead of ending this process.
pub(crate) fn catch_interrupts() -> Result<Arc<AtomicBool>, String> {
    let flag = Arc::default();
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(|error| format!("signals: {error}"))?;
    }
    Ok(flag)
}

/// Runs `command` until it exits, `limit` is over, or `interrupted` is set.
pub(crate) fn run(command: Command, limit: Duration, interrupted: &AtomicBool) -> Result<End, String> {
    run_with(command, limit, interrupted, GRACE)
}

fn run_with(mut command: Command, limit: Duration, interrupted: &AtomicBool, grace: Duration) -> Result<End, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let context = |error| format!("{name}: {error}");
    let mut child = command.process_group(0).spawn().map_err(context)?;
    let group = Pid::from_child(&child);
    let begun = Instant::now();
    let end = loop {
        if let Some(status) = child.try_wait().map_err(context)? {
            break End::Exited(status);
        }
        if interrupted.load(Ordering::Relaxed) {
            break End::Interrupted;
        }
        if begun.elapsed() >= limit {
            break End::TimedOut;
        }
        sleep(POLL);
    };
    for (signal, time) in [(Signal::TERM, grace), (Signal::KILL, KILL_TIME_MAX)] {
        // An error means that the group is empty. A child that has not been waited for still belongs to the group.
        let _ = kill_process_group(group, signal);
        let begun = Instant::now();
        while begun.elapsed() < time {
            child.try_wait().map_err(context)?;
            if test_kill_process_group(group).is_err() {
                return Ok(end);
            }
            sleep(POLL);
        }
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn shell(script: &str, directory: &Path) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script]).current_dir(directory);
        shell
    }

    /// Whether the process whose id is in `file` still runs.
    fn runs(file: &Path) -> bool {
        let pid: i32 = fs::read_to_string(file).unwrap().trim().parse().unwrap();
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
    }

    #[test]
    fn a_command_that_exits_in_time_has_a_status() {
        let directory = tempfile::tempdir().unwrap();
        let end = run(shell("exit 7", directory.path()), LONG, &AtomicBool::new(false)).unwrap();
        assert!(matches!(end, End::Exited(status) if status.code() == Some(7)), "{end:?}");
        assert!(run(Command::new("no-such-program-anywhere"), LONG, &AtomicBool::new(false)).is_err());
    }

    #[test]
    fn the_time_limit_ends_every_process_of_the_group() {
        let directory = tempfile::tempdir().unwrap();
        let script = "trap 'echo cleaned >cleaned' TERM; sleep 1000 & echo $! >child; wait; exit 0";
        let end = run(shell(script, directory.path()), Duration::from_secs(1), &AtomicBool::new(false)).unwrap();
        assert_eq!(end, End::TimedOut);
        assert!(directory.path().join("cleaned").exists());
        assert!(!runs(&directory.path().join("child")));
    }

    #[test]
    fn a_command_that_ignores_the_request_to_end_is_killed() {
        let directory = tempfile::tempdir().unwrap();
        let script = "trap '' TERM; echo $$ >child; while :; do sleep 1; done";
        let limit = Duration::from_secs(1);
        let end = run_with(shell(script, directory.path()), limit, &AtomicBool::new(false), limit).unwrap();
        assert_eq!(end, End::TimedOut);
        assert!(!runs(&directory.path().join("child")));
    }

    #[test]
    fn an_interrupt_ends_the_command() {
        let end = run(shell("sleep 1000", Path::new("/")), LONG, &AtomicBool::new(true)).unwrap();
        assert_eq!(end, End::Interrupted);
    }

    #[test]
    fn a_process_that_stays_behind_is_ended() {
        let directory = tempfile::tempdir().unwrap();
        let script = "sleep 1000 & echo $! >child";
        let end = run(shell(script, directory.path()), LONG, &AtomicBool::new(false)).unwrap();
        assert!(matches!(end, End::Exited(status) if status.success()), "{end:?}");
        assert!(!runs(&directory.path().join("child")));
    }
}
