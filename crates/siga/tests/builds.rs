//! Builds of siga as levels: each process of a trial comes from the build of its level, and a wrong build is refused before anything is
//! measured.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests assert by unwrapping and say what they skip")]

mod common;

use common::{Bench, Ended, SHORT, SIGA};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Writes a script that is executable.
fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Makes a build that writes its arguments to the file `log` before it becomes siga.
fn logging(bench: &Bench, name: &str) {
    let log = bench.path("log");
    script(&bench.path(name), &format!("echo \"$@\" >>{}\nexec {SIGA} \"$@\"", log.display()));
}

/// Returns how often the build was started with arguments that begin so.
fn starts(bench: &Bench, beginning: &str) -> usize {
    let log = fs::read_to_string(bench.path("log")).unwrap_or_default();
    log.lines().filter(|line| line.starts_with(beginning)).count()
}

/// Returns the levels of all trials, and of all records of paths that name a build, sorted.
fn levels(bench: &Bench) -> (Vec<String>, Vec<String>) {
    let read = |name: &str| fs::read_to_string(bench.path("run").join(name)).unwrap();
    let level = |line: &str| -> (String, bool) {
        let record: serde_json::Value = serde_json::from_str(line).unwrap();
        let is_built = record["build"].as_str().is_some_and(|version| version.starts_with("siga "));
        (record["cell"]["level"].as_str().unwrap().to_owned(), is_built)
    };
    let mut trials: Vec<_> = read("trials.jsonl").lines().map(|line| level(line).0).collect();
    trials.sort();
    let built =
        read("paths.jsonl").lines().map(level).filter(|(_, is_built)| *is_built).map(|(level, _)| level).collect();
    (trials, built)
}

#[test]
fn every_process_of_a_trial_comes_from_the_build_of_its_level() {
    let bench = Bench::new();
    logging(&bench, "old");
    let cells = "--path hipersockets,vctc-routed-iucv --workload rr-1-1 --clients 1";
    let ended = bench.measure(&format!("{cells} --build this --build old=./old"));
    if ended.status == Some(3) {
        println!("skipped, because siga cannot measure here: {}", ended.err);
        return;
    }
    let ended = ended.ok();
    let both = ["old", "old", "plain", "plain"].map(String::from).to_vec();
    assert_eq!(levels(&bench), (both, vec!["old".to_owned(); 2]));
    // One start checks the protocol. Each of the two trials has a client and a server.
    assert_eq!((starts(&bench, "--version"), starts(&bench, "namespace-holder"), starts(&bench, "agent")), (1, 2, 5));
    assert!(ended.err.contains("level old uses siga "), "{}", ended.err);
    // A run directory must not name a program to execute.
    fs::remove_file(bench.path("log")).unwrap();
    let again = bench.run("run --resume run");
    assert_eq!((again.status, starts(&bench, "")), (Some(2), 0), "{}", again.err);
    assert!(again.err.contains("repeat the original command line"), "{}", again.err);
    bench.run(&format!("run --resume run {cells} --build this --build old=./old {}", SHORT.join(" "))).ok();
}

#[test]
fn a_command_gets_the_program_of_its_build() {
    let bench = Bench::new();
    logging(&bench, "old");
    let plan = "paths = [\"host\"]\nworkloads = [\"list\"]\nlevels = [\"plain\", \"build:old=./old\"]\nseconds = 0.01\n\
        warm_up_seconds = 0.0\ntrials = 1\n[workload.list]\ncommand = [\"{siga}\", \"schema\", \"level\"]\n";
    fs::write(bench.path("plan.toml"), plan).unwrap();
    bench.run("run plan.toml --out run").ok();
    assert_eq!(levels(&bench), (vec!["old".to_owned(), "plain".to_owned()], vec!["old".to_owned()]));
    assert!(starts(&bench, "schema level") >= 1);
    assert_eq!(starts(&bench, "command-runner"), 0, "the runner of commands is the running program");
}

#[test]
fn a_wrong_build_is_refused_before_anything_is_measured() {
    let bench = Bench::new();
    script(&bench.path("other"), "echo other 1.0");
    let hello = "{\"ok\":{\"is\":\"hello\",\"version\":1,\"addresses\":[]}}";
    script(
        &bench.path("earlier"),
        &format!("if test \"$1\" = --version; then echo siga 0.0.1; else echo '{hello}'; cat >&-; fi"),
    );
    script(&bench.path("silent"), "if test \"$1\" = --version; then echo siga 0.0.1; fi");
    fs::write(bench.path("text"), "siga 0.0.1").unwrap();
    for (build, part) in [
        ("absent", "cannot find the build absent"),
        ("./text", "is not a siga program: cannot start it"),
        ("./other", "--version` does not print siga's version"),
        ("/bin/false", "--version` does not print siga's version"),
        ("./earlier", "this program has version 1 of the control protocol, but siga needs version "),
        ("./silent", "the process died"),
        ("git:HEAD", "no checkout is named"),
    ] {
        let ended = bench.measure(&format!("--path hipersockets --workload rr-1-1 --clients 1 --build {build}"));
        ended.refused(2, &[part]);
        assert!(!bench.path("run").exists(), "{build}: a run directory was made");
    }
    let ended = bench.measure("--path veth --workload rr-1-1 --clients 1 --checkout .");
    assert!(ended.status == Some(2) && ended.err.contains("--checkout . has no effect"), "{}", ended.err);
    logging(&bench, "old");
    let ended = bench.measure("--path veth --workload rr-1-1 --clients 1 --build old=./old --on local");
    assert!(ended.status == Some(2) && ended.err.contains("remove --on"), "{}", ended.err);
}

/// Makes a git checkout with a crate `siga`, whose program becomes the program under test. The tag `broken` does not compile.
fn checkout(bench: &Bench) -> Option<()> {
    let directory = bench.path("checkout");
    fs::create_dir_all(directory.join("src")).unwrap();
    let write = |name: &str, text: &str| fs::write(directory.join(name), text).unwrap();
    write("Cargo.toml", "[package]\nname = \"siga\"\nversion = \"0.1.0\"\nedition = \"2021\"\n[workspace]\n");
    write("Cargo.lock", "version = 3\n\n[[package]]\nname = \"siga\"\nversion = \"0.1.0\"\n");
    let main = format!(
        "use std::os::unix::process::CommandExt;\nfn main() {{\n    let error = \
        std::process::Command::new({SIGA:?}).args(std::env::args_os().skip(1)).exec();\n    panic!(\"{{error}}\");\n}}\n"
    );
    let git = |words: &str| {
        let mut command = Command::new("git");
        command.current_dir(&directory).args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words.split(' '));
        command.output().is_ok_and(|output| output.status.success())
    };
    let is_there = |program: &str| Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success());
    if !is_there("git") || !is_there("cargo") {
        println!("skipped, because there is no git or no cargo");
        return None;
    }
    write("src/main.rs", "fn main() { this does not compile }\n");
    assert!(git("init --quiet") && git("add .") && git("commit --quiet -m one") && git("tag broken"));
    write("src/main.rs", &main);
    assert!(git("commit --quiet -a -m two") && git("tag good"));
    Some(())
}

#[test]
fn a_revision_of_a_checkout_is_compiled_once_and_measured() {
    let bench = Bench::new();
    let Some(()) = checkout(&bench) else { return };
    let measure = |revision: &str| {
        let mut command = bench.siga("run --path hipersockets --workload rr-1-1 --clients 1 --checkout checkout");
        command.args(SHORT).args(["--out", "run", "--build", revision]);
        // Settings of the build of this test must not reach the revision.
        command.env("XDG_CACHE_HOME", bench.path("cache")).env("RUSTFLAGS", "--cfg=wrong(");
        Ended::new(revision, command.output().unwrap())
    };
    let unknown = measure("git:nosuch");
    assert!(unknown.status == Some(2) && unknown.err.contains("checkout has no revision nosuch"), "{}", unknown.err);
    let broken = measure("git:broken");
    assert_eq!(broken.status, Some(3), "{}", broken.err);
    assert!(broken.err.contains("the build fails: cargo ends with") && broken.err.contains("error"), "{}", broken.err);
    let good = measure("git:good");
    if good.status == Some(3) && !good.err.contains("revision") {
        println!("skipped, because siga cannot measure here: {}", good.err);
        return;
    }
    let good = good.ok();
    assert!(good.err.contains("siga compiles revision good"), "{}", good.err);
    assert_eq!(levels(&bench), (vec!["good".to_owned(), "plain".to_owned()], vec!["good".to_owned()]));
    fs::remove_dir_all(bench.path("run")).unwrap();
    let again = measure("git:good").ok();
    assert!(!again.err.contains("siga compiles"), "the program comes from the cache: {}", again.err);
    let left: Vec<_> =
        fs::read_dir(bench.path("cache/siga/builds")).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(!left.iter().any(|path| path.to_string_lossy().ends_with(".part")), "{left:?}");
    assert!(!bench.path("checkout/target").exists(), "the checkout stays as it is");
}
