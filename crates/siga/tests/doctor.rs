//! Tests of `siga doctor` on the real host: its output in both formats, with and without privilege, and what it removes.
//!
//! The clean-up is tested as a user who owns nothing else here, because it may remove everything that a user has left. This needs
//! root.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

use siga_measure::doctor::{CheckState, Examination, Group, Part, Report};
use std::fs;
use std::io::Read;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, SystemTime};

const SIGA: &str = env!("CARGO_BIN_EXE_siga");
/// A user id that no user has.
const USER: u32 = 61_184;

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Copies the program with another process. If this process had the copy open for writing, a child of a concurrent test could
/// inherit the descriptor, and executing the copy would fail.
fn copy_program(to: &Path) {
    assert!(Command::new("cp").arg(SIGA).arg(to).status().unwrap().success());
}

/// Returns a directory with a copy of the program; both belong to `USER`.
fn stage() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("siga");
    copy_program(&program);
    for path in [directory.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        chown(path, Some(USER), Some(USER)).unwrap();
    }
    (directory, program)
}

fn as_user(program: &Path, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(directory).env("TMPDIR", directory).uid(USER).gid(USER);
    command
}

fn report(output: &Output) -> Report {
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text} {output:?}"))
}

fn check_examination(output: &Output) -> (Examination, String) {
    let report = report(output);
    assert_eq!(report.schema, "siga/doctor/1");
    let text = report.text();
    let Part::Examination(examination) = report.part else { panic!("{text}") };
    assert_eq!(output.status.code(), Some(if examination.fit { 0 } else { 3 }), "{output:?}");
    for group in Group::ALL {
        assert!(examination.checks.iter().any(|check| check.group == group), "{group:?} is empty");
    }
    for check in &examination.checks {
        assert!(!check.finding.is_empty(), "{check:?}");
        assert_eq!(check.costs.is_some(), check.state != CheckState::Ok, "what is not well has a cost: {check:?}");
        assert!(check.state != CheckState::Missing || check.way_out.is_some(), "no way out: {check:?}");
    }
    assert!(!examination.timings.is_empty());
    (examination, text)
}

#[test]
fn doctor_examines_the_host_with_the_privileges_of_its_user() {
    let output = Command::new(SIGA).args(["doctor", "--watch", "1", "--format", "json"]).output().unwrap();
    let (examination, text) = check_examination(&output);
    let has =
        |name: &str| examination.checks.iter().any(|check| check.name == name && check.state != CheckState::Missing);
    let overhead = has("profile") && has("veth-routed") && !examination.emulated;
    assert_eq!(examination.overhead.is_some(), overhead);
    // Whether the host is quiet enough to distinguish anything depends on the other tests.
    assert_eq!(examination.watched.is_some(), has("veth-routed") && !examination.emulated);
    assert_eq!(text.contains("Watched this host for "), examination.watched.is_some(), "{text}");
    assert!(text.starts_with(&examination.summary) && text.contains("CPU accounting"), "{text}");
}

#[test]
fn doctor_tells_an_unprivileged_user_what_is_missing() {
    if !is_root() {
        println!("skipped, because only root can try it as another user");
        return;
    }
    let (directory, program) = stage();
    let output = as_user(&program, directory.path(), &["doctor", "--watch", "0", "--format", "json"]).output().unwrap();
    let (examination, _) = check_examination(&output);
    assert_eq!(examination.watched, None, "--watch 0");
    let profile = examination.checks.iter().find(|check| check.name == "profile").unwrap();
    assert_eq!(profile.state, CheckState::Missing);
    assert!(profile.costs.as_ref().unwrap().contains("subtract"), "{profile:?}");
}

#[test]
fn an_unknown_output_format_of_doctor_is_a_usage_error() {
    let output = Command::new(SIGA).args(["doctor", "--format", "csv"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("--format json"));
}

fn age(path: &Path) {
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(3_600)).unwrap();
}

/// Starts a process as a run of siga does, but with a parent that is not siga.
fn orphan(program: &Path, directory: &Path, role: &str) -> Child {
    let mut command = as_user(program, directory, &[role]);
    command.arg0("/proc/self/exe").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
fn doctor_removes_leftovers_of_a_crash_and_nothing_that_is_in_use() {
    if !is_root() {
        println!("skipped, because it would clean up after the user who runs the tests; root can become another");
        return;
    }
    let (directory, program) = stage();
    let place = directory.path();
    let mut lost = ["namespace-holder", "measurer"].map(|role| orphan(&program, place, role));
    let copy = place.join("siga.Ab3dE6gH9j");
    copy_program(&copy);
    chown(&copy, Some(USER), Some(USER)).unwrap();
    age(&copy);
    let arguments = ["run", "--path", "loopback", "--workload", "rr-1-1", "--trials", "1", "--seconds", "3"];
    let mut run = as_user(&program, place, &arguments).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(1_000));
    let lives = run.try_wait().unwrap().is_none();

    let output = as_user(&program, place, &["doctor", "--clean", "--format", "json"]).output().unwrap();
    let Part::Cleaning(cleaning) = report(&output).part else { panic!("{output:?}") };
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found: Vec<&str> = cleaning.found.iter().map(|removed| removed.what.as_str()).collect();
    let [holder, measurer] = &lost;
    let mut expected = vec![
        format!("process {} (siga namespace-holder)", holder.id()),
        format!("process {} (siga measurer)", measurer.id()),
        copy.display().to_string(),
    ];
    expected[..2].sort();
    assert_eq!(found, expected);
    assert!(!copy.exists());
    assert!(lost.iter_mut().all(|orphan| orphan.try_wait().unwrap().is_some()), "the orphans were ended");

    let status = run.wait().unwrap();
    let mut said = String::new();
    run.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    let refused = status.code() == Some(3);
    assert!(lives || refused, "the run was over too early: {said}");
    if refused {
        println!("skipped, because that user can build no path: that a living run is left alone ({said})");
    }
    assert!(status.success() || refused, "the run did not survive: {status}: {said}");

    let output = as_user(&program, place, &["doctor", "--clean"]).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("siga found no leftovers."), "{output:?}");
}
