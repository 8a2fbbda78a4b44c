//! The network of all tasks but `switch`: Figure 1 with two further guests on its HiperSockets network, brought up with `siga net`.

use super::{Outcome, count};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// The name of the network.
pub(super) const NAME: &str = "soak";

/// The topology. The control program starts the router and the bystander; the soak program starts the client, the server and the
/// other server. Idle ring pairs are not released, so that an idle process always has the same resources.
const TOPOLOGY: &str = r#"
[network.link]
type = "vctc"
buffer = 65535
idle_seconds = 86400
[network.lan]
type = "hipersockets"
access = "restricted"
grant = ["router", "server", "other", "bystander"]
idle_seconds = 86400
[guest.client]
external = true
device = [{ network = "link", addresses = ["10.0.1.1/24", "fd00:1::1/64"], mtu = 57344 }]
route = [{ to = "default", via = "10.0.1.2" }, { to = "default", via = "fd00:1::2" }]
[guest.router]
forwarding = true
device = [
    { network = "link", addresses = ["10.0.1.2/24", "fd00:1::2/64"], mtu = 57344 },
    { network = "lan", addresses = ["10.0.2.1/24", "fd00:2::1/64"] },
]
[guest.server]
external = true
device = [{ network = "lan", addresses = ["10.0.2.2/24", "fd00:2::2/64"] }]
route = [{ to = "default", via = "10.0.2.1" }, { to = "default", via = "fd00:2::1" }]
[guest.other]
external = true
device = [{ network = "lan", addresses = ["10.0.2.3/24"] }]
route = [{ to = "default", via = "10.0.2.1" }]
[guest.bystander]
device = [{ network = "lan", addresses = ["10.0.2.4/24"] }]
route = [{ to = "default", via = "10.0.2.1" }]
"#;

/// Time limit for an action of the control program.
const PATIENCE: Duration = Duration::from_secs(20);

/// A network; dropping the value takes it down.
#[derive(Debug)]
pub(super) struct Network {
    program: PathBuf,
    base: tempfile::TempDir,
    is_up: bool,
}

impl Network {
    /// Brings the network up.
    pub(super) fn up() -> Outcome<Self> {
        Self::up_with(TOPOLOGY)
    }

    /// Brings the network of a topology up.
    pub(super) fn up_with(topology: &str) -> Outcome<Self> {
        let own = std::env::current_exe().map_err(|error| error.to_string())?;
        let program = own.ancestors().nth(2).unwrap_or(Path::new("/")).join("siga");
        if !program.is_file() {
            return Err(format!("there is no {}; `cargo xtask soak` builds it", program.display()));
        }
        let base = tempfile::tempdir().map_err(|error| format!("no directory for the network's files: {error}"))?;
        let mut network = Self { program, base, is_up: true };
        std::fs::write(network.topology(), topology).map_err(|error| error.to_string())?;
        if let Err(error) = network.control_program() {
            network.is_up = false;
            return Err(error);
        }
        Ok(network)
    }

    fn topology(&self) -> PathBuf {
        self.base.path().join(format!("{NAME}.toml"))
    }

    /// Starts a control program: the first one, or a new one after the last one has ended.
    pub(super) fn control_program(&self) -> Outcome<()> {
        self.siga(&["up", &self.topology().display().to_string()]).map(|_| ())
    }

    /// The directory in which the run directories of networks are.
    pub(super) fn run_dir(&self) -> PathBuf {
        self.base.path().join("run")
    }

    /// Runs `siga net` with these arguments. Returns its output.
    pub(super) fn siga(&self, words: &[&str]) -> Outcome<String> {
        let mut command = Command::new(&self.program);
        command.arg("net").args(words).env("SIGA_RUN_DIR", self.run_dir()).stdin(Stdio::null());
        // The command gets its own process group, so that an interrupt (Ctrl-C) reaches only this process, which cleans up.
        let output =
            command.process_group(0).output().map_err(|error| format!("{}: {error}", self.program.display()))?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&output.stderr).trim().replace('\n', " ");
        Err(format!("siga net {} ended with {}: {said}", words.join(" "), output.status))
    }

    /// Returns a command that runs a program at a port of a switch.
    pub(super) fn netns(&self, port: &str, program: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(["netns", NAME, port, "--wait", "20", "--"]).args(program).env("SIGA_RUN_DIR", self.run_dir());
        command.stdin(Stdio::null()).stdout(Stdio::null()).process_group(0);
        command
    }

    /// Returns the secret of a guest.
    pub(super) fn token(&self, guest: &str) -> Outcome<String> {
        self.siga(&["token", NAME, guest]).map(|text| text.trim().to_owned())
    }

    /// Returns the process id of a guest; `None` if the guest does not run.
    pub(super) fn guest(&self, name: &str) -> Outcome<Option<u32>> {
        let text = self.siga(&["status", NAME, "--format", "json"])?;
        let status: serde_json::Value = serde_json::from_str(&text).map_err(|error| format!("status: {error}"))?;
        let guests = status["guests"].as_array().ok_or("a status without guests")?;
        let guest = guests.iter().find(|guest| guest["name"] == name).ok_or(format!("no guest {name}"))?;
        let pid = guest["pid"].as_u64().filter(|_| guest["state"] == "running");
        Ok(pid.and_then(|pid| u32::try_from(pid).ok()))
    }

    /// Waits until a guest runs in another process than `old`. Returns the id of the new process.
    pub(super) fn guest_other_than(&self, name: &str, old: u32) -> Outcome<u32> {
        let end = Instant::now() + PATIENCE;
        loop {
            match self.guest(name)? {
                Some(pid) if pid != old => return Ok(pid),
                _ if Instant::now() > end => return Err(format!("{name} does not run again within {PATIENCE:?}")),
                _ => std::thread::sleep(Duration::from_millis(10)),
            }
        }
    }

    /// Returns the process id of the control program.
    pub(super) fn control(&self) -> Outcome<u32> {
        let all = count::processes(&format!("net\0control\0{}", self.run_dir().display()));
        match all.as_slice() {
            [one] => Ok(*one),
            _ => Err(format!("{} control programs run: {all:?}", all.len())),
        }
    }

    /// Returns the names of the files in the network's run directory.
    pub(super) fn files(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.run_dir().join(NAME)).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// Takes the network down, and checks that its run directory is gone.
    pub(super) fn down(&mut self) -> Outcome<()> {
        self.is_up = false;
        self.siga(&["down", NAME])?;
        if self.run_dir().join(NAME).exists() {
            return Err(format!("{} is left", self.run_dir().join(NAME).display()));
        }
        Ok(())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        if self.is_up {
            // Errors are ignored here, because an earlier failure is the one to report.
            let _ = self.siga(&["down", NAME]);
        }
    }
}
