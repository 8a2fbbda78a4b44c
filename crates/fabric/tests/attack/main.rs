//! Processes of one user attack each other. Each attack is tried first on a victim without protection, to show that it works on this
//! host.
//!
//! As root, the attackers run as another user, so that they have no privileges. They attack only victims that the tests start
//! (`puppet.rs`), and no process outlives the tests.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod attacker;

use attacker::{Target, attack, attack_at_once, enter_user_namespace};
use nix::sys::ptrace;
use rustix::process::{Pid, Signal, geteuid, kill_process};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use tempfile::TempDir;

/// Whom nobody is, in case that we are root.
const USER: u32 = 58_231;

const SECRET: &str = "the frames of somebody else";
const FORGED: &str = "whatever the attacker wants";

/// How many victims are attacked while they start, and how often before they execute their program.
const RACES: usize = 200;

/// The most victims that are started to get there.
const STARTS_MAX: usize = 5_000;

/// The variable with the job of the attacker, a copy of this program: a target, or a control whose victims to attack.
const JOB: &str = "SIGA_ATTACK";

/// Programs where whoever runs them can reach them.
struct Stage {
    directory: TempDir,
    /// What the attacker is started by, a program that executes it.
    by: &'static [&'static str],
}

impl Stage {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
        Self { directory, by: &["env"] }
    }

    /// A copy of a program, made by another process: one that another thread forks meanwhile must not hold it open.
    fn place(&self, program: &str, name: &str) -> PathBuf {
        let path = self.directory.path().join(name);
        if !path.exists() {
            assert!(Command::new("cp").arg(program).arg(&path).status().unwrap().success());
        }
        path
    }

    fn puppet(&self) -> PathBuf {
        self.place(env!("CARGO_BIN_EXE_fabric-puppet"), "puppet")
    }

    /// A control of victims of a kind.
    fn control(&self, kind: &str) -> Control {
        let puppet = self.puppet();
        Control::start(Command::new(puppet).args(["control", kind]).current_dir(self.directory.path()))
    }

    /// The answers of an attacker, which stops when `meanwhile` returns.
    fn attack(&self, job: &str, meanwhile: impl FnOnce(&mut Child)) -> Vec<String> {
        let program = self.place(std::env::current_exe().unwrap().to_str().unwrap(), "attacker");
        let mut command = Command::new(self.by[0]);
        command.args(&self.by[1..]).arg(program);
        command.args(["--exact", "attacker_process", "--ignored", "--nocapture"]).env(JOB, job);
        let mut attacker = unprivileged(&mut command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(attacker.stdout.take().unwrap()).lines().map(Result::unwrap);
        assert!(lines.any(|line| line.ends_with("attacker ready")), "the attacker did not start");
        meanwhile(&mut attacker);
        drop(attacker.stdin.take());
        let told = lines.filter_map(|line| line.strip_prefix("@ ").map(str::to_owned)).collect();
        assert!(attacker.wait().unwrap().success());
        told
    }

    /// The outcomes of all attacks on a victim.
    fn attack_once(&self, target: Target) -> BTreeMap<String, String> {
        let job = format!("once {} {} {}", target.pid, target.address, target.length);
        let outcomes: BTreeMap<_, _> = self.attack(&job, |_| ()).iter().map(|line| split(line)).collect();
        assert!(outcomes.len() > 25, "{outcomes:?}");
        outcomes
    }
}

fn split(line: &str) -> (String, String) {
    let (name, outcome) = line.split_once(": ").unwrap();
    (name.to_owned(), outcome.to_owned())
}

fn unprivileged(command: &mut Command) -> &mut Command {
    if geteuid().is_root() { command.uid(USER).gid(USER) } else { command }
}

/// A process in the role of a control program; its victims end with it.
struct Control {
    child: Child,
    orders: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Control {
    fn start(command: &mut Command) -> Self {
        let mut child = unprivileged(command).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let orders = child.stdin.take().unwrap();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Self { child, orders, answers }
    }

    fn ask(&mut self, order: &str) -> String {
        writeln!(self.orders, "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(answer.ends_with('\n'), "the control ended when told to {order}");
        answer.trim_end().to_owned()
    }

    fn victim(&mut self) -> Target {
        let answer = self.ask("start");
        let numbers: Vec<&str> = answer.split(' ').collect();
        let [pid, address, length] = numbers[..] else { panic!("{answer}") };
        Target { pid: pid.parse().unwrap(), address: address.parse().unwrap(), length: length.parse().unwrap() }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The attacks that this host lets one process do to another of its user.
fn working_attacks(stage: &Stage) -> BTreeSet<String> {
    let mut control = stage.control("bare");
    let target = control.victim();
    let outcomes = stage.attack_once(target);
    let (working, refused): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|(_, outcome)| outcome == "done");
    for (name, outcome) in &refused {
        println!("{name}: skipped, because this host refuses it anyway: {outcome}");
        assert!(outcome.contains("not permitted") || outcome.contains("denied"), "{name}: {outcome}");
    }
    let working: BTreeSet<String> = working.into_iter().map(|(name, _)| name).collect();
    if working.contains("process_vm_writev") || working.contains("write through mem") {
        assert_eq!(control.ask("secret"), FORGED);
    }
    assert_eq!(control.ask("end"), "status 0");
    working
}

/// Attacks a victim of a kind by all that works on another.
fn assert_out_of_reach(kind: &str) {
    let stage = Stage::new();
    let working = working_attacks(&stage);
    let mut control = stage.control(kind);
    let target = control.victim();
    let mut targets = vec![target];
    if kind == "confined" {
        // The process that starts guests has all their descriptors.
        targets.push(Target { pid: control.child.id().cast_signed(), ..target });
    }
    for target in targets {
        let outcomes = stage.attack_once(target);
        let reached: Vec<_> = outcomes.iter().filter(|(_, outcome)| *outcome == "done").collect();
        assert!(reached.is_empty(), "{reached:?}");
        for name in &working {
            let outcome = &outcomes[name];
            assert!(outcome.contains("not permitted") || outcome.contains("denied"), "{name}: {outcome}");
        }
    }
    assert_eq!(control.ask("secret"), SECRET);
    assert_eq!(control.ask("end"), "status 0");
    println!("{} attacks work on this host, none of them on a victim that is {kind}", working.len());
}

#[test]
fn no_process_of_the_same_user_accesses_memory_of_a_guest_or_its_control_program() {
    assert_out_of_reach("confined");
}

#[test]
fn no_process_of_the_same_user_accesses_memory_of_an_application() {
    assert_out_of_reach("application");
}

/// What came of attacks on victims of a kind while they started, over and over.
#[derive(Debug, Default)]
struct Race {
    victims: usize,
    /// Attacks on the copy of the control before it executes.
    before: usize,
    /// Attacks on the program.
    after: usize,
    /// How many victims each attack reached into.
    reached: BTreeMap<String, usize>,
}

fn race(stage: &Stage, kind: &str) -> Race {
    let mut control = stage.control(kind);
    assert_eq!(control.ask("exposed"), "no");
    let mut starts = 0;
    let lines = stage.attack(&format!("race {}", control.child.id()), |attacker| {
        while attacker.try_wait().unwrap().is_none() && starts < STARTS_MAX {
            // A victim that finds itself traced goes no further; whoever traced it has reached it.
            if !control.ask("start").starts_with("status ") {
                assert_eq!(control.ask("kill"), "signal 9");
            }
            starts += 1;
        }
    });
    let mut race = Race::default();
    for (name, count) in lines.iter().map(|line| split(line)) {
        let count = count.parse().unwrap();
        match name.as_str() {
            "victims" => race.victims = count,
            "before" => race.before = count,
            "after" => race.after = count,
            _ => assert!(race.reached.insert(name, count).is_none()),
        }
    }
    println!("{kind}, started {starts} times: {race:?}");
    race
}

#[test]
fn no_attack_succeeds_while_a_guest_starts() {
    let stage = Stage::new();
    if !working_attacks(&stage).contains("ptrace seize") {
        println!("skipped, because this host refuses to let processes of one user reach into each other");
        return;
    }
    let exposed = race(&stage, "late");
    assert!(exposed.reached.values().sum::<usize>() > 0, "the attacker is too slow to show anything: {exposed:?}");
    let guests = race(&stage, "confined");
    assert_eq!(guests.reached, BTreeMap::new());
    assert!(guests.victims > 0 && guests.before > 0 && guests.after > 0, "too slow to show anything: {guests:?}");
}

#[test]
fn no_signal_makes_a_guest_write_a_core_dump() {
    let stage = Stage::new();
    // Not SIGQUIT, which who starts the tests in the background may have them ignore.
    for signal in [Signal::TRAP, Signal::ABORT, Signal::FPE] {
        let ends = ["bare", "confined"].map(|kind| {
            let mut control = stage.control(kind);
            let target = control.victim();
            kill_process(Pid::from_raw(target.pid).unwrap(), signal).unwrap();
            control.ask("wait")
        });
        let number = signal.as_raw();
        if ends[0] != format!("signal {number} with a core") {
            println!("skipped, because this host keeps no core of anybody: {}", ends[0]);
        }
        assert_eq!(ends[1], format!("signal {number}"));
    }
}

#[test]
fn no_process_enters_the_user_namespace_of_a_guest() {
    let stage = Stage::new();
    let mut control = stage.control("confined");
    let target = control.victim();
    let confinement = control.ask("confinement");
    if !confinement.ends_with("own user namespace") {
        println!("skipped, because this host allows none: {confinement}");
        return;
    }
    let told = stage.attack(&format!("enter {}", target.pid), |_| ());
    assert_eq!(told, ["enter: Operation not permitted (os error 1)"]);
}

#[test]
fn a_process_in_its_own_user_namespace_accesses_no_process_outside() {
    let mut stage = Stage::new();
    let working = working_attacks(&stage);
    stage.by = &["unshare", "--user"];
    if !unprivileged(Command::new("unshare").args(["--user", "true"])).status().unwrap().success() {
        println!("skipped, because this host allows no user namespaces");
        return;
    }
    let mut control = stage.control("bare");
    let outcomes = stage.attack_once(control.victim());
    for name in ["ptrace seize", "process_vm_writev", "pidfd_getfd", "write through mem", "open fd/1"] {
        assert!(!working.contains(name) || outcomes[name] != "done", "{name}");
    }
    assert_eq!(control.ask("secret"), SECRET);
}

#[test]
fn a_guest_cannot_open_files_and_dies_when_it_tries_to_escape() {
    let stage = Stage::new();
    let mut control = stage.control("confined");
    control.victim();
    assert_eq!(control.ask("open"), "Operation not permitted (os error 1)");
    assert_eq!(control.ask("end"), "status 0");
    for question in ["socket", "thread", "exec", "descriptor"] {
        control.victim();
        assert_eq!(control.ask(question), "", "{question}");
        assert_eq!(control.ask("wait"), "signal 31", "{question}");
    }
}

#[test]
fn the_filter_of_a_guest_permits_an_event_loop_over_rings() {
    let stage = Stage::new();
    for kind in ["bare", "confined"] {
        let mut control = stage.control(kind);
        control.victim();
        assert_eq!(control.ask("work"), "done", "{kind}");
        assert_eq!(control.ask("end"), "status 0", "{kind}");
    }
}

#[test]
fn the_filter_of_an_application_permits_its_work_and_no_access_to_other_processes() {
    let stage = Stage::new();
    for (kind, answer) in [("bare", "done"), ("application", "Operation not permitted (os error 1)")] {
        let mut control = stage.control(kind);
        control.victim();
        for question in ["open", "socket", "thread", "child"] {
            assert_eq!(control.ask(question), "done", "{kind}: {question}");
        }
        for question in ["descriptor", "descriptor of another thread"] {
            assert_eq!(control.ask(question), answer, "{kind}: {question}");
        }
    }
}

#[test]
fn a_guest_starts_from_the_original_program_and_inherits_nothing() {
    let stage = Stage::new();
    let puppet = stage.puppet();
    // The control has an ignored and a blocked signal, and a descriptor that nobody marked.
    let untidy = "exec 9</dev/null; exec env --ignore-signal=HUP --block-signal=USR1 \"$0\" control confined";
    let mut control = Control::start(Command::new("sh").arg("-c").arg(untidy).arg(&puppet));
    assert_eq!(control.ask("exposed"), "no");
    fs::remove_file(&puppet).unwrap();
    fs::write(&puppet, "another version").unwrap();
    control.victim();
    assert_eq!(
        control.ask("inherited"),
        "open [\"0\", \"1\", \"2\", \"3\", \"4\"] ignored 0000000000001000 blocked 0000000000000000 variables 0 in \"/\" leader true"
    );
    assert!(control.ask("confinement").starts_with(
        "only the system calls that a guest needs, protected from other processes since its first instruction"
    ));
}

#[test]
fn a_process_started_by_the_control_program_can_start_confined_guests() {
    let stage = Stage::new();
    let mut control = stage.control("starter");
    control.victim();
    assert!(control.ask("confinement").starts_with(
        "only the system calls that a guest needs, protected from other processes since its first instruction"
    ));
}

#[test]
fn a_traced_control_program_refuses_to_start() {
    let stage = Stage::new();
    let mut command = Command::new("sh");
    command.args(["-c", "read line; exec \"$0\" control confined"]).arg(stage.puppet());
    let mut child = unprivileged(&mut command).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    ptrace::seize(nix::unistd::Pid::from_raw(child.id().cast_signed()), ptrace::Options::empty()).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    let ended = child.wait_with_output().unwrap();
    let told = String::from_utf8_lossy(&ended.stderr);
    assert!(told.contains("traces it") && ended.status.code() == Some(1), "{told:?} {}", ended.status);
}

#[test]
fn a_guest_outlives_the_process_that_started_it() {
    let stage = Stage::new();
    let puppet = stage.puppet();
    let mut control = Control::start(Command::new(puppet).args(["control", "confined"]).stderr(Stdio::piped()));
    control.victim();
    assert_eq!(control.ask("linger"), "lingering");
    let mut stderr = control.child.stderr.take().unwrap();
    control.child.kill().unwrap();
    control.child.wait().unwrap();
    let mut told = String::new();
    stderr.read_to_string(&mut told).unwrap();
    assert!(told.contains("the victim is still there"), "{told:?}");
}

#[test]
fn guests_start_without_executable_memory_files_and_report_it() {
    if !geteuid().is_root() {
        println!("skipped, because it takes root to set what a host allows");
        return;
    }
    let stage = Stage::new();
    let user = USER.to_string();
    let strict = "echo 2 >/proc/sys/vm/memfd_noexec && echo forbidden || exit\n\
        exec setpriv --reuid=\"$1\" --regid=\"$1\" --clear-groups \"$0\" control confined";
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", strict]).arg(stage.puppet()).arg(user);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let orders = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    let mut forbidden = String::new();
    answers.read_line(&mut forbidden).unwrap();
    let mut control = Control { child, orders, answers };
    if forbidden != "forbidden\n" {
        println!("skipped, because nobody can set vm.memfd_noexec here");
        return;
    }
    assert!(control.ask("exposed").contains("denied"));
    control.victim();
    assert!(control.ask("confinement").starts_with(
        "only the system calls that a guest needs, protected from other processes since its start-up code"
    ));
    assert_eq!(control.ask("end"), "status 0");
}

#[test]
#[ignore = "the attacker; other tests start it"]
fn attacker_process() {
    let Ok(job) = std::env::var(JOB) else { return };
    let words: Vec<&str> = job.split(' ').collect();
    println!("attacker ready");
    let outcomes = match words[..] {
        ["once", pid, address, length] => {
            let pid = pid.parse().unwrap();
            attack(Target { pid, address: address.parse().unwrap(), length: length.parse().unwrap() })
        }
        ["enter", pid] => vec![("enter".to_owned(), enter_user_namespace(pid.parse().unwrap()))],
        ["race", control] => return run_race(control),
        _ => panic!("{job}"),
    };
    for (name, outcome) in outcomes {
        println!("@ {name}: {}", outcome.map_or_else(|error| error.to_string(), |()| "done".to_owned()));
    }
}

/// Attacks whatever `control` starts, until that was often enough or standard input ends.
fn run_race(control: &str) {
    let (stop, stopped) = mpsc::channel();
    thread::spawn(move || {
        let _ = io::stdin().read_to_end(&mut Vec::new());
        let _ = stop.send(());
    });
    let children = format!("/proc/{control}/task/{control}/children");
    let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let unexecuted = name(control);
    let mut victims = BTreeSet::new();
    let (mut before, mut after) = (0, 0);
    let mut reached: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    while stopped.try_recv().is_err() && (victims.len() < RACES || before < RACES) {
        for pid in fs::read_to_string(&children).unwrap_or_default().split_whitespace() {
            for (attack, outcome) in attack_at_once(pid.parse().unwrap()) {
                if outcome.is_ok() {
                    reached.entry(attack).or_default().insert(pid.to_owned());
                }
            }
            // What it is afterwards, it was no later.
            if name(pid) == unexecuted {
                before += 1;
            } else {
                after += 1;
            }
            victims.insert(pid.to_owned());
        }
    }
    println!("@ victims: {}\n@ before: {before}\n@ after: {after}", victims.len());
    for (attack, victims) in reached {
        println!("@ {attack}: {}", victims.len());
    }
}
