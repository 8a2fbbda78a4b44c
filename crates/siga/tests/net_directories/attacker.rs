//! Another user, who is the attacker or the victim: the user's directories and processes, and commands that run as this user.

use crate::TOPOLOGY;
use crate::network::PATIENCE;
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use siga_fabric::protocol::channel::{Channel, Ended};
use siga_fabric::protocol::request::Answer;
use siga_fabric::protocol::secret::Secret;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A user id that no host uses.
pub(crate) const USER: u32 = 58_232;
/// The environment variable with the job for a copy of this program that runs as another user.
pub(crate) const JOB: &str = "SIGA_NET_JOB";
/// The secret that a fake control program sends.
const FORGED: &str = "f0f0f0f0";
/// The name of the network that is attacked.
pub(crate) const NAME: &str = "n";

pub(crate) fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        println!("skipped, because only root can run a process as another user");
    }
    is_root
}

/// A directory that every user can enter. It has copies of the programs that another user runs.
pub(crate) struct Stage {
    pub(crate) directory: tempfile::TempDir,
}

impl Stage {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let stage = Self { directory };
        fs::write(stage.path("n.toml"), TOPOLOGY).unwrap();
        stage
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Copies a program with another process. If this process had the copy open for writing, a process that another thread forks
    /// could inherit the descriptor, and executing the copy would fail.
    fn place(&self, program: &Path, name: &str) -> PathBuf {
        let path = self.path(name);
        if !path.exists() {
            assert!(Command::new("cp").arg(program).arg(&path).status().unwrap().success());
        }
        path
    }

    pub(crate) fn siga(&self) -> PathBuf {
        self.place(Path::new(env!("CARGO_BIN_EXE_siga")), "siga")
    }

    /// Makes a directory with this mode that belongs to `user`, or to the caller.
    pub(crate) fn make(&self, name: &str, user: Option<u32>, mode: u32) -> PathBuf {
        let path = self.path(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        give(&path, user);
        path
    }

    /// Starts a copy of this program that does a job as a user.
    pub(crate) fn play(&self, user: Option<u32>, job: &str) -> Player {
        let program = self.place(&std::env::current_exe().unwrap(), "player");
        let mut command = Command::new(program);
        command.args(["--exact", "other_user_process", "--ignored", "--nocapture"]).env(JOB, job);
        become_user(&mut command, user);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with("player ready")), "the player did not start");
        Player { child, lines: Box::new(lines) }
    }
}

pub(crate) fn give(path: &Path, user: Option<u32>) {
    std::os::unix::fs::lchown(path, user, user).unwrap();
}

pub(crate) fn become_user(command: &mut Command, user: Option<u32>) {
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
}

pub(crate) struct Player {
    child: Child,
    pub(crate) lines: Box<dyn Iterator<Item = String>>,
}

impl Player {
    /// Ends the process and returns the lines that it printed.
    pub(crate) fn seen(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        let seen = self.lines.by_ref().filter_map(|line| line.strip_prefix("@ ").map(str::to_owned)).collect();
        assert!(self.child.wait().unwrap().success());
        seen
    }
}

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    /// The exit status; `None` if the command had to be killed.
    pub(crate) status: Option<i32>,
    pub(crate) output: String,
}

impl Outcome {
    /// Whether the command ended by itself with a refusal.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self.status, Some(2 | 3)) && !self.output.contains(FORGED)
    }
}

/// Runs a command until it ends, or kills it after a time limit.
pub(crate) fn finish(command: &mut Command) -> Outcome {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdout, mut stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
    let read = std::thread::spawn(move || {
        let mut output = String::new();
        let _ = stdout.read_to_string(&mut output);
        let _ = stderr.read_to_string(&mut output);
        output
    });
    let end = Instant::now() + Duration::from_secs(15);
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status.code(),
            None if Instant::now() > end => {
                child.kill().unwrap();
                child.wait().unwrap();
                break None;
            }
            None => std::thread::sleep(Duration::from_millis(5)),
        }
    };
    Outcome { status, output: read.join().unwrap() }
}

/// Runs `siga net` as a user, with `base` as the directory of networks.
pub(crate) fn net(stage: &Stage, user: Option<u32>, base: &Path, arguments: &[&str]) -> Outcome {
    // The limit on memory protects the host if the command reads an endless input.
    let mut command = Command::new("prlimit");
    command.args(["--as=4294967296", "--"]).arg(stage.siga()).arg("net").args(arguments);
    command.env("SIGA_RUN_DIR", base).stdin(Stdio::null());
    become_user(&mut command, user);
    finish(&mut command)
}

/// Returns the commands that look for a network. `capture` writes to a file.
pub(crate) fn commands(stage: &Stage) -> Vec<Vec<String>> {
    let capture = stage.path("never.pcapng").display().to_string();
    let lines = [
        "status n",
        "status n --detail --format json",
        "ping n a 10.0.0.2 -c 1 -W 1",
        "start n a",
        "stop n a",
        "grant n lan a",
        "revoke n lan a",
        "token n a",
        "token n a --application",
        "down n",
    ];
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    let mut all: Vec<Vec<String>> = lines.iter().map(|line| words(line)).collect();
    all.push(vec!["capture".into(), "n".into(), "a".into(), "--seconds".into(), "1".into(), "-o".into(), capture]);
    all.push(vec!["up".into(), stage.path("n.toml").display().to_string()]);
    all.push(vec!["control".into(), stage.path("place/base").display().to_string()]);
    all
}

pub(crate) fn run_all(stage: &Stage, user: Option<u32>, base: &Path) -> Vec<(String, Outcome)> {
    let run = |words: Vec<String>| {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        (words.join(" "), net(stage, user, base, &words))
    };
    commands(stage).into_iter().map(run).collect()
}

/// Makes a listening socket for a fake control program.
fn listener(path: &Path) -> OwnedFd {
    let socket = net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).unwrap();
    net::bind(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
    net::listen(&socket, 16).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
    socket
}

/// Connects without any check of the other end.
pub(crate) fn connect(path: &Path) -> rustix::io::Result<OwnedFd> {
    let socket = net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    net::connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

/// Receives the next message. Returns the reason if the channel has ended.
pub(crate) fn next(channel: &mut Channel) -> Result<serde_json::Value, Ended> {
    let end = Instant::now() + PATIENCE;
    loop {
        if let Some((message, _)) = channel.receive()? {
            return Ok(message);
        }
        assert!(Instant::now() < end, "nothing comes");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Answers every request with forged answers.
pub(crate) fn serve_forged(path: &Path) {
    let socket = listener(path);
    println!("player ready");
    std::thread::spawn(move || {
        while let Ok(connection) = net::accept(&socket) {
            println!("@ connected");
            let mut channel = Channel::new(connection).unwrap();
            while let Ok(request) = next(&mut channel) {
                println!("@ asked {request}");
                let _ = channel.send(&Answer::Secret(Secret::claimed(FORGED)), Vec::new());
                let _ = channel.send(&Answer::Done, Vec::new());
            }
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}
