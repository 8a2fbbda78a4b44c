//! The example program as tests run it.

use crate::place::Place;
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How long anything may take that has to happen soon.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// Builds the program, as these tests were built, and says where it is.
fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let here = std::env::current_exe().unwrap();
        let directory = here.parent().and_then(|deps| deps.parent()).unwrap();
        let built = directory.join("examples/tap");
        // The virtual machine has no compiler. There, the program was built together with these tests.
        if std::env::var_os("SIGA_VM").is_some() {
            return built;
        }
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "--locked", "--package", "siga-stack", "--example", "tap"]);
        if directory.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success());
        built
    })
}

/// Runs it with arguments that it refuses: its exit status, and what it said.
pub(crate) fn refuse(arguments: &str) -> (Option<i32>, String) {
    let output = Command::new(program()).args(arguments.split_whitespace()).output().unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

/// The program while it runs.
pub(crate) struct Tap {
    child: Child,
    output: BufReader<ChildStdout>,
    arguments: String,
}

impl Tap {
    /// Starts it with arguments parted by spaces, and waits until its devices are there.
    pub(crate) fn start(place: &Place, arguments: &str) -> Self {
        let mut command = place.command(program());
        command.args(arguments.split_whitespace()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n", "tap {arguments}");
        place.settle();
        Self { child, output, arguments: arguments.to_owned() }
    }

    /// Ends it, and gives what it printed.
    #[track_caller]
    pub(crate) fn stop(self) -> String {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::TERM).unwrap();
        self.end()
    }

    /// Waits until it ends, and gives what it printed.
    #[track_caller]
    pub(crate) fn end(mut self) -> String {
        let begun = Instant::now();
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None => assert!(begun.elapsed() < SOON, "tap {} does not end", self.arguments),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut text = String::new();
        self.output.read_to_string(&mut text).unwrap();
        assert!(status.success(), "tap {}: {status}\n{text}", self.arguments);
        text
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        // It may be gone already.
        let _gone = self.child.kill();
        let _status = self.child.wait();
    }
}
