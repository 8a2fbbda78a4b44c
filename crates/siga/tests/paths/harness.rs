//! Test code for paths: builds, enters, uses and observes a path, and checks that it is removed.

use rustix::net::sockopt;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CapabilitySet, LinkNameSpaceType, capabilities, move_into_link_name_space};
use siga_measure::path::{Built, Namespace, Path, Role};
use siga_plan::level::Level;
use siga_plan::path::PathKind;
use siga_plan::spec::PathSpec;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) const SIGA: &str = env!("CARGO_BIN_EXE_siga");
/// The user id that is usually called `nobody`.
pub(crate) const NOBODY: u32 = 65_534;
/// Time limit for the kernel to release the resources of a killed process.
pub(crate) const VANISH_TIME_MAX: Duration = Duration::from_secs(10);

pub(crate) fn spec(kind: PathKind, mtu: Option<u32>, ipv6: bool) -> PathSpec {
    PathSpec { kind, mtu, ipv6, level: Level::plain() }
}

pub(crate) fn build(spec: &PathSpec) -> Path {
    Path::build(SIGA.as_ref(), spec).unwrap_or_else(|error| panic!("{spec:?}: {error}"))
}

pub(crate) fn read(file: &str) -> String {
    fs::read_to_string(file).unwrap_or_else(|error| panic!("{file}: {error}"))
}

/// Lets only one test at a time make namespaces. The kernel reuses their inode numbers, which would confuse a test that searches
/// for them.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks out other tests if this test may enter any namespace. Otherwise prints what is skipped and returns `None`.
pub(crate) fn as_root(purpose: &str) -> Option<MutexGuard<'static, ()>> {
    let held = capabilities(None).unwrap().effective;
    if held.contains(CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN | CapabilitySet::SETUID) {
        return Some(alone());
    }
    println!("skipped, because it takes root to {purpose}");
    None
}

/// Locks out other tests if a path can be built on this host. Otherwise prints what is skipped and returns `None`.
pub(crate) fn where_paths_build() -> Option<MutexGuard<'static, ()>> {
    let guard = alone();
    match Path::build(SIGA.as_ref(), &spec(PathKind::Unix, None, false)) {
        Ok(_) => Some(guard),
        Err(error) => {
            println!("skipped, because no path can be built: {error}");
            None
        }
    }
}

/// Returns the types of path for which this kernel has the drivers. Prints the others with the reason.
pub(crate) fn kinds() -> Vec<PathKind> {
    let has_drivers = |kind: &PathKind| match Path::build(SIGA.as_ref(), &spec(*kind, None, false)) {
        Err(error) if error.to_string().contains("the kernel has no") => {
            println!("skipped {kind}, because {error}");
            false
        }
        Ok(_) | Err(_) => true,
    };
    PathKind::ALL.into_iter().filter(has_drivers).collect()
}

pub(crate) fn of_role(built: &Built, role: Role) -> &Namespace {
    built.namespaces.iter().find(|namespace| namespace.role == role).expect("the path has that role")
}

pub(crate) fn inodes_of(built: &Built) -> Vec<u64> {
    built.namespaces.iter().map(|namespace| namespace.inode).collect()
}

/// Asserts that every interface has counters, and that those between client and server carried the echo in both directions.
pub(crate) fn check_counters(path: &mut Path, kind: PathKind) {
    let counters = path.counters().unwrap();
    assert!(counters.keys().eq(path.built.interfaces.keys()), "{kind}: {counters:?}");
    for (label, counters) in counters {
        // The connection used one of the two links of a bond.
        let maybe_unused = ["siga-br", "siga-p", "siga-q", "siga-c1", "siga-c2", "siga-s1", "siga-s2"];
        if !maybe_unused.iter().any(|name| label.ends_with(&format!("/{name}"))) {
            assert!(counters.rx_bytes > 200_000 && counters.tx_bytes > 200_000, "{kind}: {label}: {counters:?}");
        }
        assert_eq!((counters.rx_errors, counters.tx_errors), (0, 0), "{kind}: {label}: {counters:?}");
    }
}

/// Runs `work` in a network namespace, on a separate thread.
pub(crate) fn inside<T: Send>(namespace: &Namespace, work: impl FnOnce() -> T + Send) -> T {
    let enter_and_work = || {
        let file = fs::File::open(&namespace.net).unwrap();
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
        work()
    };
    thread::scope(|scope| scope.spawn(enter_and_work).join().unwrap())
}

/// Sends 200 KB from client to server and back over one TCP connection.
pub(crate) fn echo(built: &Built, mtu: u32) {
    let (client, server) = (built.client_address.unwrap(), built.server_address.unwrap());
    let listener = inside(of_role(built, Role::Server), || TcpListener::bind(SocketAddr::from((server, 0))).unwrap());
    sockopt::set_tcp_congestion(&listener, &built.congestion).unwrap();
    let address = listener.local_addr().unwrap();
    let sent: Vec<u8> = (0..200_000_u32).flat_map(|index| index.to_le_bytes().into_iter().take(1)).collect();
    let near = inside(of_role(built, Role::Client), || TcpStream::connect(address));
    let mut near = near.unwrap_or_else(|error| panic!("{client} to {server}: {error}"));
    let (mut far, peer) = listener.accept().unwrap();
    assert_eq!(peer.ip(), client);
    assert_eq!(sockopt::tcp_congestion(&far).unwrap(), built.congestion);
    let path_mtu = if server.is_ipv4() { sockopt::ip_mtu(&near) } else { sockopt::ipv6_mtu(&near) };
    // An IPv4 packet has at most 65,535 bytes, even if the MTU of lo is larger.
    assert_eq!(path_mtu.unwrap().min(65_535), mtu.min(65_535), "path MTU as TCP sees it");
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut bytes = Vec::new();
            far.read_to_end(&mut bytes).unwrap();
            far.write_all(&bytes).unwrap();
        });
        near.write_all(&sent).unwrap();
        near.shutdown(std::net::Shutdown::Write).unwrap();
        let mut received = Vec::new();
        near.read_to_end(&mut received).unwrap();
        assert!(received == sent, "what comes back is what was sent");
    });
}

/// A copy of the program that another user may run, and a script that runs the copy as that user.
pub(crate) struct Unprivileged {
    _directory: tempfile::TempDir,
    pub(crate) program: std::path::PathBuf,
}

impl Unprivileged {
    pub(crate) fn new() -> Option<Self> {
        if Command::new("setpriv").arg("--version").stdout(Stdio::null()).status().is_err() {
            println!("skipped, because there is no setpriv(1)");
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let copy = directory.path().join("siga");
        // Another process makes the copy. If this process had the copy open for writing, a child of a concurrent test could
        // inherit the descriptor, and executing the copy would fail.
        assert!(Command::new("cp").arg(SIGA).arg(&copy).status().unwrap().success());
        let program = directory.path().join("siga-unprivileged");
        let drop = format!("setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups");
        fs::write(&program, format!("#!/bin/sh\nexec {drop} {} \"$@\"\n", copy.display())).unwrap();
        for file in [directory.path(), &copy, &program] {
            fs::set_permissions(file, fs::Permissions::from_mode(0o755)).unwrap();
        }
        Some(Self { _directory: directory, program })
    }

    /// Asserts that the same user can enter the namespace that the user's holder made.
    pub(crate) fn enters(&self, namespace: &Namespace, interface: &str) {
        let user = namespace.user.as_ref().expect("made in a user namespace");
        let output = Command::new("nsenter")
            .args([&format!("--user={user}"), &format!("--net={}", namespace.net), "--preserve-credentials"])
            .args(["cat", "/proc/net/dev"])
            .uid(NOBODY)
            .gid(NOBODY)
            .output();
        let Ok(output) = output else {
            println!("entering skipped, because there is no nsenter(1)");
            return;
        };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let interfaces = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(interfaces.contains(&format!("{interface}:")), "{interfaces}");
    }
}

pub(crate) fn request(spec: &PathSpec, parent: u32) -> serde_json::Value {
    serde_json::json!({ "build": { "spec": spec, "parent": parent } })
}

/// A process of a test. Dropping the value kills it, even if the test fails.
pub(crate) struct Process(pub(crate) Child);

impl Drop for Process {
    fn drop(&mut self) {
        // Errors mean that the process has already ended.
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

/// The parent of a namespace holder that a test starts without siga.
#[derive(Clone, Copy)]
pub(crate) enum Parent {
    ThisTest,
    Command,
}

/// Starts a namespace holder with `command`, sends it `spec`, and returns its answer; `None` if the command is not installed.
pub(crate) fn raw_holder(command: &mut Command, parent: Parent, spec: &PathSpec) -> Option<(Process, String)> {
    let Ok(child) = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn() else {
        println!("skipped, because {:?} cannot be started", command.get_program());
        return None;
    };
    let mut process = Process(child);
    let parent = match parent {
        Parent::ThisTest => std::process::id(),
        Parent::Command => process.0.id(),
    };
    writeln!(process.0.stdin.as_ref().unwrap(), "{}", request(spec, parent)).unwrap();
    let mut answer = String::new();
    BufReader::new(process.0.stdout.as_mut().unwrap()).read_line(&mut answer).unwrap();
    Some((process, answer))
}

pub(crate) fn signal(process: u32, signal: Signal) {
    kill_process(Pid::from_raw(process.try_into().unwrap()).unwrap(), signal).unwrap();
}

/// Waits until none of siga's processes and no mount refers to any of these network namespaces.
pub(crate) fn assert_nothing_left(inodes: &[u64]) {
    let deadline = Instant::now() + VANISH_TIME_MAX;
    while held(inodes) {
        assert!(Instant::now() < deadline, "network namespaces are still held: {inodes:?}");
        thread::sleep(Duration::from_millis(5));
    }
    assert!(!read("/proc/net/dev").contains("siga-"), "an interface is left in this namespace");
}

pub(crate) fn held(inodes: &[u64]) -> bool {
    let names: Vec<_> = inodes.iter().map(|inode| format!("net:[{inode}]")).collect();
    let is_one = |link: std::path::PathBuf| {
        fs::read_link(link).is_ok_and(|to| names.iter().any(|name| to.as_os_str() == name.as_str()))
    };
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    let own = |process: &std::path::PathBuf| {
        process.ends_with(std::process::id().to_string())
            || fs::read_to_string(process.join("comm")).is_ok_and(|name| name.starts_with("siga"))
    };
    let mounts = read("/proc/self/mountinfo");
    names.iter().any(|name| mounts.contains(name))
        || processes.filter(own).any(|process| {
            let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten().map(|entry| entry.path());
            is_one(process.join("ns/net")) || files.into_iter().any(is_one)
        })
}
