//! Network namespaces of a test. Each lives as long as a process that ends with the test, however the test ends.

use rustix::thread::{CapabilitySet, capabilities};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Returns true if this process can make TAP devices in namespaces and the programs are installed. Otherwise says what is missing.
pub(crate) fn possible(programs: &[&str]) -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    if !capabilities(None).is_ok_and(|held| held.effective.contains(needed)) {
        println!("skipped, because it takes root to make TAP devices in namespaces");
        return false;
    }
    if let Err(error) = std::fs::File::options().read(true).write(true).open("/dev/net/tun") {
        println!("skipped, because /dev/net/tun cannot be opened: {error}");
        return false;
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let is_there = |program: &str| path.split(':').any(|directory| Path::new(directory).join(program).is_file());
    let mut needed = ["ip", "nsenter", "setpriv", "unshare", "ping"].into_iter().chain(programs.iter().copied());
    match needed.find(|program| !is_there(program)) {
        Some(missing) => {
            println!("skipped, because {missing} is not installed");
            false
        }
        None => true,
    }
}

/// A network namespace.
pub(crate) struct Place(Child);

impl Place {
    pub(crate) fn new() -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", "ip link set lo up; echo made; exec cat"]);
        let mut holder = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(holder.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "made\n", "no namespace could be made");
        Self(holder)
    }

    /// Returns the process by which a topology finds the namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Returns a command that runs in the namespace and ends with this thread.
    pub(crate) fn command(&self, program: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.pid()));
        command.args(["setpriv", "--pdeathsig", "KILL"]).args(program).stdin(Stdio::null());
        command
    }

    /// Runs a command and returns its output.
    pub(crate) fn try_run(&self, line: &str) -> Output {
        self.command(&line.split_whitespace().collect::<Vec<_>>()).output().unwrap()
    }

    /// Runs a command that must succeed, and returns what it printed.
    #[track_caller]
    pub(crate) fn run(&self, line: &str) -> String {
        let output = self.try_run(line);
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{line}: {:?}\n{text}", output.status);
        text
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}
