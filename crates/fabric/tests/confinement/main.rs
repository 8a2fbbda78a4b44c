//! Compromised guests attack the things that they share with others: the log, the pipes, the host's memory. The control program is the
//! real one, and its guests are puppets under the real filter (`tests/attack/rogue.rs`).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

#[path = "../attack/deeds.rs"]
mod deeds;

use deeds::{ALLOCATE, ERASE, FLOOD, FORGE, FORGED, MAKE_FILES, PANIC, SILENCE};
use rustix::fs::ftruncate;
use rustix::pipe::{fcntl_getpipe_size, fcntl_setpipe_size};
use rustix::process::{Pid, Resource, Rlimit, Signal, geteuid, getrlimit, kill_process, prlimit};
use siga_fabric::client::Client;
use siga_fabric::protocol::message::{GuestEvent, MemberId, Order};
use siga_fabric::protocol::request::{Answer, GuestMemory, GuestState, GuestStatus, MemoryLimit, Request};
use siga_model::name::Name;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Runs this program's tests as another user if this variable names the puppet that they use.
const PUPPET: &str = "SIGA_PUPPET";

/// Nobody's user id, in case that we are root.
const USER: u32 = 58_232;

/// A hostile guest, one that writes lines all the time, and one that does nothing.
const TOPOLOGY: &str = r#"
[network.lan]
type = "hipersockets"
access = "restricted"
grant = ["rogue", "talker", "victim"]
[guest.rogue]
device = [{ network = "lan", addresses = ["10.0.0.1/24"] }]
[guest.talker]
device = [{ network = "lan", addresses = ["10.0.0.2/24"] }]
[guest.victim]
device = [{ network = "lan", addresses = ["10.0.0.3/24"] }]
"#;

struct Network {
    base: tempfile::TempDir,
    name: Name,
}

impl Network {
    fn up(name: &str, topology: &str) -> Self {
        let network = Self { base: tempfile::tempdir().unwrap(), name: name.parse().unwrap() };
        fs::write(network.topology(), topology).unwrap();
        network.start();
        network
    }

    /// Starts the network, or finds its guests again.
    fn start(&self) {
        let output = self.puppet(&["up", self.name.as_str(), self.topology().to_str().unwrap()]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    fn topology(&self) -> PathBuf {
        self.base.path().join("topology.toml")
    }

    fn run_dir(&self) -> PathBuf {
        self.base.path().join("run")
    }

    fn puppet(&self, arguments: &[&str]) -> Output {
        let puppet = std::env::var(PUPPET).unwrap_or_else(|_| env!("CARGO_BIN_EXE_fabric-puppet").to_owned());
        let mut command = Command::new(puppet);
        command.arg("net").args(arguments).env("SIGA_RUN_DIR", self.run_dir()).output().unwrap()
    }

    fn try_request(&self, request: Request) -> siga_model::error::Result<Vec<Answer>> {
        Client::connect_at(&self.run_dir(), &self.name).unwrap().request(request)
    }

    fn request(&self, request: Request) -> Vec<Answer> {
        self.try_request(request).unwrap()
    }

    fn status(&self, guest: &str) -> GuestStatus {
        let answers = self.request(Request::Status { detail: false });
        let is = |answer| if let Answer::Guest(status) = answer { Some(status) } else { None };
        answers.into_iter().filter_map(is).find(|status| status.name.as_str() == guest).unwrap()
    }

    /// Sends a guest one echo request; whether it is answered. Another process asks for it: this one may be attached.
    fn ping(&self, guest: &str, to: &str) -> bool {
        self.puppet(&["ping", self.name.as_str(), guest, to]).status.success()
    }

    /// Orders a deed; its answer.
    fn order(&self, deed: u16) -> u64 {
        let answers = self.try_order(deed, 20_000).unwrap();
        let [Answer::Pong { time_ns: Some(answer) }] = answers[..] else { panic!("{answers:?}") };
        answer
    }

    fn try_order(&self, deed: u16, timeout_ms: u32) -> siga_model::error::Result<Vec<Answer>> {
        let (guest, to) = ("rogue".parse().unwrap(), "10.0.0.9".parse().unwrap());
        self.try_request(Request::Ping { guest, to, bytes: deed, timeout_ms })
    }

    /// Makes the control program log a line of its own.
    fn own_line(&self) {
        let (network, guest): (Name, Name) = ("lan".parse().unwrap(), "victim".parse().unwrap());
        self.request(Request::Revoke { network: network.clone(), guest: guest.clone() });
        self.request(Request::Grant { network, guest });
    }

    fn log(&self) -> String {
        fs::read_to_string(self.run_dir().join(self.name.as_str()).join("log")).unwrap()
    }

    /// The control program's process.
    fn control(&self) -> i32 {
        let wanted = format!("net\0control\0{}", self.run_dir().display());
        let is_it = |entry: &fs::DirEntry| {
            let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&arguments).contains(&wanted)
        };
        let found = fs::read_dir("/proc").unwrap().flatten().find(is_it).unwrap();
        found.file_name().to_str().unwrap().parse().unwrap()
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let output = self.puppet(&["down", self.name.as_str()]);
        if !std::thread::panicking() {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert!(!self.run_dir().join(self.name.as_str()).exists());
        }
    }
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Lines of the control program's own about access to a network.
fn own_lines(log: &str) -> usize {
    log.lines().filter(|line| line.ends_with("network lan: grants guest victim")).count()
}

#[test]
fn a_guest_cannot_erase_the_log() {
    let network = Network::up("erase", TOPOLOGY);
    let before = network.log();
    let outcome = network.order(ERASE);
    let after = network.log();
    println!("ftruncate of descriptor 2: error {outcome}; the log had {} bytes, and has {}", before.len(), after.len());
    assert!(after.starts_with(&before), "the log lost what it had: {after:?}");
    assert_ne!(outcome, 0);
}

#[test]
fn a_guest_cannot_silence_the_control_program() {
    let network = Network::up("silence", TOPOLOGY);
    network.order(SILENCE);
    network.own_line();
    let log = network.log();
    println!("after the messages the log has {} bytes", log.len());
    assert_eq!(own_lines(&log), 1, "the control program's own line is missing");
    assert!(log.len() < 1 << 20, "the messages of one guest took {} bytes", log.len());
    wait_until("a count of what was left out", || network.log().contains("guest rogue: "));
}

#[test]
fn a_guest_cannot_forge_a_line_of_the_log() {
    let network = Network::up("forge", TOPOLOGY);
    network.order(FORGE);
    wait_until("the lines", || network.log().contains("and another"));
    let log = network.log();
    let lines: Vec<&str> = log.lines().filter(|line| line.contains("going down")).collect();
    println!("{lines:#?}");
    assert!(lines.iter().all(|line| line.ends_with(&format!("guest rogue: says: {FORGED}"))), "{lines:?}");
    let of_rogue = |text: &str| log.lines().any(|line| line.ends_with(&format!("guest rogue: says: {text}")));
    assert!(of_rogue("\\u{1b}[2J\\u{202e}reversed\\0\\rhidden"), "{log}");
    assert!(of_rogue("one \\xff\\xfe part and another"), "{log}");
    assert!(!log.contains(['\u{1b}', '\u{202e}', '\0', '\r']), "{log:?}");
}

#[test]
fn endless_output_of_a_guest_is_cut_and_does_not_block_it() {
    let network = Network::up("flood", TOPOLOGY);
    let refused = network.order(FLOOD);
    network.own_line();
    wait_until("a count of what was left out", || network.log().contains("guest rogue: "));
    let log = network.log();
    println!("{refused} of 16384 writes were refused, the log has {} bytes", log.len());
    assert!(log.len() < 1 << 20, "a flood of 16 MB took {} bytes", log.len());
    assert_eq!(own_lines(&log), 1);
    assert!(network.ping("talker", "10.0.0.3"));
}

#[test]
fn the_last_output_of_a_guest_is_logged_and_it_is_started_again() {
    let network = Network::up("panic", TOPOLOGY);
    network.try_order(PANIC, 1).unwrap_err();
    wait_until("another rogue", || network.status("rogue").restarts == 1);
    let log = network.log();
    let last = log.find("guest rogue: says: a rogue panics").unwrap();
    assert!(last < log.find("guest rogue: ended: ").unwrap(), "{log}");
}

/// Numbers that the talker has said.
fn talks(log: &str) -> Vec<u64> {
    let said = log.lines().filter_map(|line| line.split_once("guest talker: says: talk "));
    said.map(|(_, rest)| rest.split(' ').next().unwrap().parse().unwrap()).collect()
}

#[test]
fn a_guest_runs_while_its_output_is_unread_and_a_new_control_program_reads_it() {
    let network = Network::up("unread", TOPOLOGY);
    let pids = ["talker", "victim"].map(|guest| network.status(guest).pid.unwrap());
    wait_until("some talk", || talks(&network.log()).len() > 3);
    let control = Pid::from_raw(network.control()).unwrap();
    // A control program that stands still: the pipe fills up.
    kill_process(control, Signal::STOP).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    kill_process(control, Signal::CONT).unwrap();
    assert!(network.ping("talker", "10.0.0.3"), "the talker waited for a reader");
    // None at all: the pipe is closed.
    kill_process(control, Signal::KILL).unwrap();
    wait_until("the end of the control program", || !fs::exists(format!("/proc/{}/exe", control)).unwrap());
    std::thread::sleep(Duration::from_millis(200));
    network.start();
    let known = talks(&network.log()).len();
    wait_until("talk that the successor reads", || talks(&network.log()).len() > known);
    assert_eq!(["talker", "victim"].map(|guest| network.status(guest).pid.unwrap()), pids);
    assert!(network.ping("talker", "10.0.0.3"));
    let said = talks(&network.log());
    assert!(said.is_sorted(), "{said:?}");
}

/// Has a guest allocate without end: what limits its memory.
fn allocate(name: &str) -> GuestMemory {
    let network = Network::up(name, &TOPOLOGY.replace("[guest.rogue]", "[guest.rogue]\nmemory_max = 134217728"));
    let before = ["talker", "victim"].map(|guest| network.status(guest).pid);
    let memory = network.status("rogue").memory.unwrap();
    assert_eq!(memory.max_bytes, 128 << 20);
    assert!(network.status("victim").memory.unwrap().max_bytes > 1 << 30, "what the topology yields");
    let answers = network.try_order(ALLOCATE, 1_000);
    println!("limited by {}: {answers:?}", memory.by.name());
    assert!(answers.is_err(), "the guest has all that it wanted");
    wait_until("another rogue", || network.status("rogue").restarts == 1);
    wait_until("the other rogue runs", || network.status("rogue").state == GuestState::Running);
    let log = network.log();
    let ended = log.lines().find(|line| line.contains("guest rogue: ended: signal: ")).unwrap();
    let is_told =
        ended.ends_with(": the guest reached its memory limit") || log.contains("says: memory allocation of ");
    assert!(is_told, "{log}");
    assert!(network.ping("talker", "10.0.0.3"));
    assert_eq!(["talker", "victim"].map(|guest| network.status(guest).pid), before);
    memory
}

/// Control groups of networks with this name.
fn control_groups(name: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut places = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(place) = places.pop() {
        let below = fs::read_dir(place).into_iter().flatten().flatten().map(|entry| entry.path());
        for path in below.filter(|path| path.is_dir() && !path.is_symlink()) {
            let its_name = path.file_name().unwrap().to_string_lossy().into_owned();
            if its_name.starts_with(&format!("siga-{name}-")) {
                found.push(path.clone());
            }
            places.push(path);
        }
    }
    found
}

#[test]
fn a_guest_that_allocates_endlessly_ends_alone_and_is_restarted() {
    let name = format!("allocates-{}", std::process::id());
    let memory = allocate(&name);
    if memory.by != MemoryLimit::ControlGroup {
        println!("skipped, because this process may make no control groups");
    }
    assert_eq!(control_groups(&name), Vec::<PathBuf>::new(), "the network is gone, its control groups are not");
}

#[test]
fn a_guest_that_allocates_endlessly_ends_alone_even_without_control_groups() {
    if !geteuid().is_root() {
        println!("skipped, because only root can become a user who may make no control groups");
        return;
    }
    let stage = tempfile::tempdir().unwrap();
    fs::set_permissions(stage.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let place = |program: &str, name: &str| {
        let path = stage.path().join(name);
        assert!(Command::new("cp").arg(program).arg(&path).status().unwrap().success());
        path
    };
    let puppet = place(env!("CARGO_BIN_EXE_fabric-puppet"), "puppet");
    let tests = place(std::env::current_exe().unwrap().to_str().unwrap(), "tests");
    let mut command = Command::new(tests);
    command.args(["--exact", "allocates_as_another_user", "--ignored", "--nocapture"]);
    let output = command.env(PUPPET, puppet).env("TMPDIR", stage.path()).uid(USER).gid(USER).output().unwrap();
    println!("{}", String::from_utf8_lossy(&output.stdout));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
#[ignore = "the process of another user; other tests start it"]
fn allocates_as_another_user() {
    if std::env::var(PUPPET).is_ok() {
        assert_eq!(allocate("user").by, MemoryLimit::AddressSpace);
    }
}

#[test]
fn control_groups_are_removed_with_a_network_whose_control_program_was_killed() {
    let name = format!("killed-{}", std::process::id());
    let network = Network::up(&name, TOPOLOGY);
    if network.status("victim").memory.unwrap().by != MemoryLimit::ControlGroup {
        println!("skipped, because this process may make no control groups");
        return;
    }
    let groups = control_groups(&name);
    assert_eq!(groups.len(), 1);
    let process =
        |guest: &str| fs::read_to_string(groups[0].join(format!("guest-{guest}")).join("cgroup.procs")).unwrap();
    let pid = network.status("victim").pid.unwrap();
    assert_eq!(process("victim").trim(), pid.to_string());
    let control = Pid::from_raw(network.control()).unwrap();
    kill_process(control, Signal::KILL).unwrap();
    wait_until("the end of the control program", || !fs::exists(format!("/proc/{control}/exe")).unwrap());
    network.start();
    assert_eq!((control_groups(&name), process("victim").trim()), (groups, pid.to_string().as_str()));
    let control = Pid::from_raw(network.control()).unwrap();
    kill_process(control, Signal::KILL).unwrap();
    wait_until("the end of the successor", || !fs::exists(format!("/proc/{control}/exe")).unwrap());
    drop(network);
    assert_eq!(control_groups(&name), Vec::<PathBuf>::new());
}

#[test]
fn a_ring_pair_without_memory_is_refused_and_made_later() {
    if !geteuid().is_root() {
        println!("skipped, because only root sees how many descriptors a hidden process has");
        return;
    }
    let network = Network::up("pairs", TOPOLOGY);
    let control = network.control();
    let mut client = Client::connect_at(&network.run_dir(), &network.name).unwrap();
    let mut ping = |timeout_ms| {
        let (guest, to) = ("talker".parse().unwrap(), "10.0.0.3".parse().unwrap());
        let answers = client.request(Request::Ping { guest, to, bytes: 56, timeout_ms }).unwrap();
        matches!(answers[..], [Answer::Pong { time_ns: Some(_) }])
    };
    let open = fs::read_dir(format!("/proc/{control}/fd")).unwrap().flatten();
    let highest = open.map(|entry| entry.file_name().to_str().unwrap().parse::<u64>().unwrap()).max().unwrap();
    let limit = |most| {
        let maximum = getrlimit(Resource::Nofile).maximum;
        prlimit(Pid::from_raw(control), Resource::Nofile, Rlimit { current: Some(most), maximum }).unwrap()
    };
    let before = limit(highest + 1);
    assert!(!ping(500), "there were descriptors left");
    limit(before.current.unwrap());
    wait_until("a pair", || ping(1_000));
}

#[test]
fn a_partner_that_resizes_its_doorbell_blocks_no_process() {
    let topology = TOPOLOGY.replace("[guest.rogue]", "[guest.rogue]\nexternal = true");
    let network = Network::up("doorbells", &topology);
    let rogue: Name = "rogue".parse().unwrap();
    let answers = network.request(Request::Secret { guest: rogue.clone(), application: false });
    let [Answer::Secret(secret)] = &answers[..] else { panic!("{answers:?}") };
    let mut channel = Client::connect_at(&network.run_dir(), &network.name).unwrap().attach(&rogue, secret).unwrap();
    channel.send(&GuestEvent::Ready { confinement: "none".to_owned() }, Vec::new()).unwrap();
    let (device, member): (Name, MemberId) =
        ("dev0".parse().unwrap(), MemberId { guest: "victim".parse().unwrap(), device: "dev0".parse().unwrap() });
    channel.send(&GuestEvent::Couple { device, member }, Vec::new()).unwrap();
    let mut parts = None;
    wait_until("a pair", || {
        if let Ok(Some((Order::MakePair(_), descriptors))) = channel.receive::<Order>() {
            parts = Some(descriptors);
        }
        parts.is_some()
    });
    let [notify_fd, wake_fd, memory]: [OwnedFd; 3] = parts.unwrap().try_into().unwrap();
    for pipe in [&notify_fd, &wake_fd] {
        assert_eq!(fcntl_getpipe_size(pipe), Ok(siga_ring::limits::DOORBELL_PIPE_BYTES));
    }
    assert!(ftruncate(&memory, 0).is_err(), "the size of memory stays");
    fcntl_setpipe_size(&notify_fd, 1 << 20).unwrap();
    let ring = || rustix::io::write(&notify_fd, &[1; 4_096]);
    while ring().is_ok() {}
    assert!(network.ping("talker", "10.0.0.3") && network.ping("victim", "10.0.0.2"));
}

#[test]
fn a_guest_makes_no_memory_files() {
    let network = Network::up("files", TOPOLOGY);
    let made = network.order(MAKE_FILES);
    println!("the guest made memory files of {made} MB");
    assert_eq!(made, 0);
}
