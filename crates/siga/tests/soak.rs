//! Short runs of `cargo xtask soak`: each run finds no error, and nothing is left behind.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what was measured")]

use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Time limit of a run. A run that takes longer is killed and fails.
const PATIENCE: Duration = Duration::from_secs(180);

/// The modules of the soak program that have their own tests.
#[path = "../examples/soak/count.rs"]
#[allow(dead_code, reason = "the program uses all of it")]
mod count;
#[path = "../examples/soak/exchange.rs"]
#[allow(dead_code, reason = "the program uses all of it")]
mod exchange;

/// The same type as in the soak program.
type Outcome<T> = Result<T, String>;

/// Returns the path of the soak program. cargo builds it with the tests of all targets; `--test soak` alone does not rebuild it.
fn program() -> PathBuf {
    let program = PathBuf::from(env!("CARGO_BIN_EXE_siga")).parent().unwrap().join("examples/soak");
    assert!(program.is_file(), "`cargo build --package siga --example soak` builds {}", program.display());
    program
}

/// Runs the soak program in a separate directory. Returns its exit status and output.
///
/// Only one run at a time: each run can use all CPUs, and with other runs its guests may wait seconds for a CPU.
fn run(arguments: &str, meanwhile: impl FnOnce(u32)) -> (Option<i32>, String) {
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let place = tempfile::tempdir().unwrap();
    let mut command = Command::new(program());
    command.args(arguments.split(' ')).env("TMPDIR", place.path()).process_group(0);
    let mut child = command.stdin(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut stderr = child.stderr.take().unwrap();
    let said = std::thread::spawn(move || std::io::read_to_string(&mut stderr).unwrap());
    meanwhile(child.id());
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > PATIENCE {
            child.kill().unwrap();
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let said = said.join().unwrap();
    assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0, "{arguments} left something behind: {said}");
    (status.code(), said)
}

fn sound(arguments: &str) -> String {
    let (status, said) = run(arguments, |_| {});
    assert_eq!(status, Some(0), "{arguments}: {said}");
    println!("{said}");
    said
}

#[test]
fn a_long_stream_crosses_the_router_and_every_byte_is_checked() {
    assert!(sound("copy --bytes 50000000").contains("50000000 bytes, every one as it was sent"));
}

#[test]
fn short_connections_cross_the_router_without_an_error() {
    assert!(sound("crr --count 500 --clients 1").contains("500 transactions, 0 of them failed"));
}

#[test]
fn long_lived_idle_connections_through_the_router_stay_usable() {
    assert!(sound("hold --count 300 --for 3s").contains("300 connections open at a time"));
}

#[test]
fn a_soak_with_deaths_of_guests_finds_no_error() {
    let said = sound("soak --for 12s --seed 3");
    assert!(said.contains("all traffic went on after at most"), "{said}");
    assert!(said.contains("what processes hold was counted") || said.contains("was not counted, because"), "{said}");
}

#[test]
fn a_soak_of_a_switch_with_deaths_of_namespaces_and_uplinks_finds_no_error() {
    let said = sound("switch --for 15s --seed 5");
    let is_whole = said.contains(" 0 are left; ") && said.contains("kill -9 of the switch: all stations were reached");
    assert!(is_whole || said.contains("skipped, because "), "{said}");
}

#[test]
fn an_interrupted_soak_takes_its_network_down() {
    let (status, said) = run("soak --for 10m", |pid| {
        std::thread::sleep(Duration::from_secs(3));
        let pid = rustix::process::Pid::from_raw(pid.cast_signed()).unwrap();
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    });
    assert_eq!(status, Some(1), "{said}");
    assert!(said.contains("interrupted"), "{said}");
}
