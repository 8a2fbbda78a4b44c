//! Shared code of the command-line tests: running the program in a separate directory, reading the files that it left there, and
//! finding its processes.
//!
//! Every program that is started here has a mark in its environment. The mark identifies its processes even if their parent has
//! ended.
#![allow(dead_code, reason = "each test program uses a part of this")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

pub(crate) mod browser;
pub(crate) mod sshd;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CapabilitySet, capabilities};
use serde_json::Value;
use siga_results::record::{HostRecord, Probe, RunQueueDelay, TrialRecord};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub(crate) const SIGA: &str = env!("CARGO_BIN_EXE_siga");
/// The user id that is usually called `nobody`.
pub(crate) const NOBODY: u32 = 65_534;
/// Options for the shortest trials that show that the program works.
pub(crate) const SHORT: [&str; 6] = ["--seconds", "0.02", "--warm-up", "0", "--trials", "1"];
/// Time limit for everything that should happen soon.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// Texts in the messages about trials that a busy host disturbed.
const DISTURBANCES: [&str; 2] = ["completed no unit of work", "the profiler sampled CPU"];

const MARK: &str = "SIGA_TEST";

/// The working directory of one test, with the test's own processes and files.
pub(crate) struct Bench {
    directory: tempfile::TempDir,
    mark: String,
    /// The path of the program under test.
    pub(crate) program: PathBuf,
    user: Option<u32>,
}

impl Bench {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("tmp")).unwrap();
        let mark = format!("{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        Self { directory, mark, program: SIGA.into(), user: None }
    }

    /// Returns a bench that runs a copy of the program as a user without any privilege; `None` if this test may not change users.
    pub(crate) fn unprivileged() -> Option<Self> {
        if !root("run as another user") {
            return None;
        }
        let mut bench = Self::new();
        bench.program = bench.path("siga");
        bench.user = Some(NOBODY);
        copy_program(&bench.program);
        fs::set_permissions(&bench.program, fs::Permissions::from_mode(0o755)).unwrap();
        for directory in [bench.path(""), bench.path("tmp")] {
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o755)).unwrap();
            std::os::unix::fs::chown(&directory, Some(NOBODY), Some(NOBODY)).unwrap();
        }
        Some(bench)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Returns a command that runs in this directory with the mark and without input.
    pub(crate) fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.current_dir(self.directory.path()).env(MARK, &self.mark).env("TMPDIR", self.path("tmp"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        if let Some(user) = self.user {
            command.uid(user).gid(user);
        }
        command
    }

    /// Returns the command for the program with these arguments, which are separated by spaces.
    pub(crate) fn siga(&self, arguments: &str) -> Command {
        let mut command = self.command(&self.program);
        command.args(arguments.split_whitespace());
        command
    }

    /// Runs the program until it exits. If a busy host disturbed a measurement, resumes the run until all trials are measured,
    /// because disturbed trials are no failure of a test.
    pub(crate) fn run(&self, arguments: &str) -> Ended {
        let mut ended = Ended::new(arguments, self.siga(arguments).output().unwrap());
        let words: Vec<&str> = arguments.split_whitespace().collect();
        let after = |option: &str| words.get(words.iter().position(|word| *word == option)? + 1).copied();
        let Some(directory) = after("--out").or_else(|| after("--resume")) else { return ended };
        let format = after("--format").unwrap_or("text");
        let begun = Instant::now();
        let disturbed = |ended: &Ended| {
            let mut skipped = ended.err.lines().filter(|line| line.starts_with("skipped "));
            skipped.any(|line| DISTURBANCES.iter().any(|disturbance| line.contains(disturbance)))
        };
        while ended.status == Some(4) && disturbed(&ended) && begun.elapsed() < SOON {
            let arguments = format!("run --resume {directory} --format {format}");
            ended = Ended::new(&arguments, self.siga(&arguments).output().unwrap());
        }
        ended
    }

    /// Runs `siga run` with short trials into the directory `run`.
    pub(crate) fn measure(&self, arguments: &str) -> Ended {
        self.run(&format!("run --out run {arguments} {}", SHORT.join(" ")))
    }

    /// Starts the program in the background; dropping the value kills it.
    pub(crate) fn start(&self, arguments: &str) -> Running {
        Running::new(self.siga(arguments))
    }

    /// Starts a run into the directory `run`, waits until `is_come` is true for the run's process, sleeps for `later` and calls
    /// `act`. Returns how the run ended. On a busy host, `act` may come too late, after everything is measured; then the run is
    /// repeated.
    pub(crate) fn strike(
        &self,
        arguments: &str,
        (moment, is_come, later): (&str, impl Fn(u32) -> bool, Duration),
        mut act: impl FnMut(&Running),
    ) -> Ended {
        let begun = Instant::now();
        loop {
            let mut run = self.start(&format!("run --out run {arguments}"));
            let pid = run.pid();
            if run.until_or_end(moment, || is_come(pid)) {
                std::thread::sleep(later);
                act(&run);
            }
            let ended = run.end();
            if ended.status != Some(0) || begun.elapsed() > 2 * SOON {
                return ended;
            }
            fs::remove_dir_all(self.path("run")).unwrap();
        }
    }

    /// Makes a run undisturbed: its trials say that the host did nothing besides, and all rounds after the first `rounds` are removed.
    /// Without this, the figures of the run would depend on the other tests that run at the same time.
    pub(crate) fn undisturb(&self, run: &str, rounds: u64) {
        let file = self.path(run).join("trials.jsonl");
        let mut kept = String::new();
        for line in fs::read_to_string(&file).unwrap().lines() {
            let mut trial: TrialRecord = serde_json::from_str(line).unwrap();
            let round = u64::from(trial.round);
            trial.host = Some(HostRecord {
                others_ns: Some(trial.cpu.wall_ns / 100 * (round % 3)),
                run_queue: Some(RunQueueDelay { client_ns: 300_000 * round, router_ns: 0, server_ns: 200_000 }),
                probe: Some(Probe {
                    wake_here_ns: 4_000 + 10 * round,
                    wake_across_ns: Some(60_000),
                    cache_line_ns: Some(600),
                }),
                ..HostRecord::default()
            });
            if round < rounds {
                kept += &format!("{}\n", serde_json::to_string(&trial).unwrap());
            }
        }
        fs::write(&file, &kept).unwrap();
        fs::write(self.path(run).join("end.json"), format!("{{\"trials\": {}}}\n", kept.lines().count())).unwrap();
    }

    /// Returns the complete lines of a file in the run directory `run`.
    pub(crate) fn lines(&self, file: &str) -> Vec<String> {
        let text = fs::read_to_string(self.path("run").join(file)).unwrap_or_default();
        text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n')).map(str::to_owned).collect()
    }

    /// Returns the recorded trials.
    pub(crate) fn trials(&self) -> Vec<Value> {
        self.lines("trials.jsonl").iter().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// Returns the processes that this bench started and that still run.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let mark = format!("{MARK}={}", self.mark).into_bytes();
        let marked = |pid: &u32| {
            fs::read(format!("/proc/{pid}/environ"))
                .is_ok_and(|environment| environment.split(|&byte| byte == 0).any(|word| word == mark))
        };
        processes().into_iter().filter(marked).collect()
    }

    /// Waits until no process and no temporary file of this bench exists.
    pub(crate) fn assert_nothing_left(&self) {
        let begun = Instant::now();
        let left = || (self.processes(), names(&self.path("tmp")));
        while left() != (Vec::new(), Vec::new()) {
            assert!(begun.elapsed() < SOON, "left behind: {:?}", left());
            std::thread::sleep(Duration::from_millis(10));
        }
        // A namespace only persists if a process is in it or a mount refers to it.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(self.directory.path().to_str().unwrap()), "a mount is left: {mounts}");
        assert!(!fs::read_to_string("/proc/net/dev").unwrap().contains("siga-"), "an interface is left");
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        for pid in self.processes() {
            signal(pid, Signal::KILL);
        }
    }
}

/// Copies the program with another process. If this process had the copy open for writing, a child of a concurrent test could
/// inherit the descriptor, and then executing the copy would fail.
pub(crate) fn copy_program(to: &Path) {
    assert!(Command::new("cp").arg(SIGA).arg(to).status().unwrap().success());
}

/// A running program; dropping the value kills it.
pub(crate) struct Running {
    child: Option<Child>,
    arguments: String,
}

impl Running {
    pub(crate) fn new(mut command: Command) -> Self {
        let child = command.spawn().unwrap();
        let arguments: Vec<_> = command.get_args().map(|argument| argument.to_string_lossy()).collect();
        Self { child: Some(child), arguments: arguments.join(" ") }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.as_ref().unwrap().id()
    }

    pub(crate) fn signal(&self, what: Signal) {
        signal(self.pid(), what);
    }

    /// Waits until the program ends.
    pub(crate) fn end(mut self) -> Ended {
        Ended::new(&self.arguments, self.child.take().unwrap().wait_with_output().unwrap())
    }

    /// Waits until `condition` is true. Fails if the program ends first.
    pub(crate) fn until(&mut self, what: &str, condition: impl FnMut() -> bool) {
        assert!(self.until_or_end(what, condition), "{}: ended before {what}", self.arguments);
    }

    /// Waits until `condition` is true. Returns false if the program ends first.
    pub(crate) fn until_or_end(&mut self, what: &str, mut condition: impl FnMut() -> bool) -> bool {
        let begun = Instant::now();
        while !condition() {
            if self.child.as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            assert!(begun.elapsed() < SOON, "{}: no {what}", self.arguments);
            std::thread::sleep(Duration::from_millis(2));
        }
        true
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            // Errors mean that the process has already ended.
            let _gone = child.kill();
            let _status = child.wait();
        }
    }
}

/// The exit status and the output of a program.
#[derive(Debug)]
pub(crate) struct Ended {
    arguments: String,
    pub(crate) status: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Ended {
    pub(crate) fn new(arguments: &str, output: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let ended = Self {
            arguments: arguments.to_owned(),
            status: output.status.code(),
            out: text(output.stdout),
            err: text(output.stderr),
        };
        assert!(!ended.err.contains("panicked"), "{ended}");
        ended
    }

    #[track_caller]
    pub(crate) fn status(self, status: i32) -> Self {
        assert_eq!(self.status, Some(status), "{self}");
        self
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Self {
        self.status(0)
    }

    /// Asserts that the program failed with one message that has all these words, followed by advice.
    #[track_caller]
    pub(crate) fn refused(self, status: i32, words: &[&str]) -> Self {
        assert_eq!(self.status, Some(status), "{self}");
        for word in words {
            assert!(self.err.contains(word), "nothing about `{word}`: {self}");
        }
        let starts = |line: &&str| line.starts_with("siga: ") || line.starts_with("error: ");
        assert_eq!(self.err.lines().filter(starts).count(), 1, "not one message: {self}");
        let way_out = self.err.lines().skip_while(|line| !starts(line)).skip(1);
        assert!(way_out.filter(|line| !line.trim().is_empty()).count() > 0, "no way out: {self}");
        self
    }

    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self}"))
    }

    /// Returns the cells of a JSON report.
    #[track_caller]
    pub(crate) fn cells(&self) -> Vec<Value> {
        self.json()["cells"].as_array().unwrap().clone()
    }
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { arguments, status, out, err } = self;
        write!(f, "siga {arguments}\nended with {status:?}\n--- stdout\n{out}\n--- stderr\n{err}")
    }
}

/// Whether this test has all privileges that it needs for `purpose`. If not, prints what is skipped.
pub(crate) fn root(purpose: &str) -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::SETUID | CapabilitySet::KILL;
    let held = capabilities(None).unwrap().effective.contains(needed);
    if !held {
        println!("skipped, because it takes root to {purpose}");
    }
    held
}

/// Whether the program is installed. If not, prints what is skipped.
pub(crate) fn has(program: &str) -> bool {
    let place = |directory: &str| Path::new(directory).join(program).is_file();
    let path = std::env::var("PATH").unwrap_or_default();
    let found = path.split(':').chain(["/usr/sbin", "/sbin"]).any(place);
    if !found {
        println!("skipped, because there is no {program}");
    }
    found
}

/// Whether paths can be built on this host. If not, prints what is skipped.
pub(crate) fn paths_build(bench: &Bench) -> bool {
    let ended = bench.run("run --out probe --path unix --workload rr-1-1 --clients 1 --seconds 0.01 --trials 1");
    let built = ended.status == Some(0);
    if !built {
        println!("skipped, because no path can be built: {ended}");
    }
    built
}

/// Returns the names of the entries of a directory.
pub(crate) fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap().flatten();
    entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

/// Returns the ids of all processes.
pub(crate) fn processes() -> BTreeSet<u32> {
    fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

pub(crate) fn children(parent: u32) -> Vec<u32> {
    let is_child = |pid: &u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The line is "PID (name) state PPID"; the name may contain any characters.
        let after_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        after_name.split(' ').nth(1) == Some(parent.to_string().as_str())
    };
    processes().into_iter().filter(is_child).collect()
}

/// Returns the child processes with a thread of this name. The threads of workload drivers are named after their role.
pub(crate) fn children_with_thread(parent: u32, name: &str) -> Vec<u32> {
    let has_thread = |pid: &u32| {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
        threads
            .into_iter()
            .any(|thread| fs::read_to_string(thread.path().join("comm")).is_ok_and(|comm| comm.trim_end() == name))
    };
    children(parent).into_iter().filter(has_thread).collect()
}

/// Sends a signal to a process of the test. A process that has already ended is no error.
pub(crate) fn signal(pid: u32, what: Signal) {
    let _gone = kill_process(Pid::from_raw(pid.try_into().unwrap()).unwrap(), what);
}

/// Writes an executable script with another process, for the same reason as in [`copy_program`].
pub(crate) fn script(path: &Path, text: &str) {
    let mut install = Command::new("install");
    install.args(["-m", "755", "/dev/stdin"]).arg(path).stdin(Stdio::piped());
    let mut child = install.spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(child.wait().unwrap().success());
}
