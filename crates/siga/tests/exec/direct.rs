//! Unmodified programs whose connections are direct: their bytes pass through memory that only the two programs share.

use crate::network::{Network, wait_until};
use crate::{PYTHON, Program, exec, has, text};
use std::io::{BufRead, Write};
use std::process::Command;

const SCRIPT: &str = include_str!("direct.py");
const DIALOGUES: &str = include_str!("dialogues.py");
const MOVING: &str = include_str!("moving.py");
const THREADS: &str = include_str!("threads.py");

const TOPOLOGY: &str = "
[network.lan]
type = \"hipersockets\"
direct = true
[guest.a]
device = [{ network = \"lan\", addresses = [\"10.0.2.1/24\"] }]
[guest.b]
device = [{ network = \"lan\", addresses = [\"10.0.2.2/24\"] }]
";

/// The programs are the same on all carriers, so their expectations are those of the kernel.
#[test]
fn dialogues_end_over_tcp_and_over_memory_as_on_the_kernels_sockets() {
    if !has(&[PYTHON]) {
        return;
    }
    let kernel = Command::new(PYTHON).args(["-c", DIALOGUES, "kernel"]).output().unwrap();
    assert_eq!(text(&kernel), "all is well\n", "on the kernel");
    let network = Network::up("dialogues", TOPOLOGY);
    assert_eq!(text(&dialogues(&network, "direct", 100).output().unwrap()), "all is well\n", "over memory");
    // New connections of a captured guest use TCP.
    let _capture = capture(&network);
    assert_eq!(text(&dialogues(&network, "tcp", 100).output().unwrap()), "all is well\n", "over TCP");
}

/// Captures the frames of guest a.
fn capture(network: &Network) -> Program {
    let mut capture = Command::new(env!("CARGO_BIN_EXE_siga"));
    let file = network.base.path().join("frames");
    capture.args(["net", "capture", network.name.as_str(), "a", "--output", file.to_str().unwrap()]);
    let capture = Program(capture.env("SIGA_RUN_DIR", network.run_dir()).spawn().unwrap());
    wait_until("the capture has not begun", || file.exists());
    capture
}

/// Returns the command that runs the first dialogues on guest a.
fn dialogues(network: &Network, carrier: &str, count: usize) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_siga"));
    command.args(["exec", "--loopback", "guest", network.name.as_str(), "a", PYTHON, "-c", DIALOGUES, carrier]);
    command.arg(count.to_string()).env("SIGA_RUN_DIR", network.run_dir());
    command
}

/// The script checks which carrier each connection has.
#[test]
fn new_connections_of_a_captured_guest_use_tcp() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("direct-captured", TOPOLOGY);
    let mut capture = capture(&network);
    assert_eq!(text(&dialogues(&network, "tcp", 2).output().unwrap()), "all is well\n");
    // A test run in the background ignores SIGINT, and so do its children.
    rustix::process::kill_process(rustix::process::Pid::from_child(&capture.0), rustix::process::Signal::TERM).unwrap();
    capture.0.wait().unwrap();
    assert_eq!(text(&dialogues(&network, "direct", 2).output().unwrap()), "all is well\n");
}

#[test]
fn a_connection_that_processes_hand_on_in_the_middle_of_its_streams_stays_whole() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("direct-moving", TOPOLOGY);
    let program = |role| [PYTHON, "-c", MOVING, MOVING, role, "10.0.2.2"];
    let (_server, _) = Program::start(&network, "b", &program("server"));
    for client in ["a", "b"] {
        assert_eq!(text(&exec(&network, client, &program("client")).output().unwrap()), "ok\n");
        let report = network.application_report("b");
        let bytes = report["counters"]["direct_received_bytes"].as_u64().unwrap_or_default();
        assert!(bytes > 6 * 100_000, "{bytes} bytes came by memory");
    }
}

/// A thread polls the memory before it sleeps, and another thread may have processed what has come for it.
#[test]
fn no_request_waits_for_a_thread_that_sleeps_although_another_has_found_it() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("direct-threads", TOPOLOGY);
    let program = |role| [PYTHON, "-c", THREADS, role, "10.0.2.2"];
    let (_server, _) = Program::start(&network, "b", &program("server"));
    for _ in 0..3 {
        assert_eq!(text(&exec(&network, "a", &program("client")).output().unwrap()), "ok\n");
    }
}

#[test]
fn unmodified_programs_exchange_bytes_by_memory_also_across_a_fork() {
    if !has(&[PYTHON]) {
        return;
    }
    let network = Network::up("direct", TOPOLOGY);
    for client in ["a", "b"] {
        let (_server, _) = Program::start(&network, "b", &[PYTHON, "-c", SCRIPT, "server", "10.0.2.2"]);
        let (mut program, mut output) =
            Program::start(&network, client, &[PYTHON, "-c", SCRIPT, "client", "10.0.2.2", "waits"]);
        if client == "a" {
            let report = network.application_report("a");
            let counter = |name: &str| report["counters"][name].as_u64().unwrap_or_default();
            let bytes = (counter("direct_sent_bytes"), counter("direct_received_bytes"));
            assert!(bytes.0 > 8_000_000 && bytes.1 > 8_000_000, "{bytes:?} bytes went by memory");
        }
        program.0.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ok\n");
    }
}
