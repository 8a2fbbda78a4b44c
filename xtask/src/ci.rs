//! All checks that a change has to pass, in order. The run ends at the first step that fails.
//!
//! The test step runs the command that README.md gives its readers, so that the two cannot diverge. The name of each step is
//! printed before it runs, and its duration after it. Missing programs are not installed here: `.ci/run` installs them.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use crate::limited::{self, End};
use crate::{advice, command, deny, instructions, rfc, ring, schema, tidy, vm};

/// The test command if README.md does not exist.
const TEST: &str = "cargo test --workspace";

/// The only test that runs in the virtual machine: a kernel with modules, a path and a measurement work there.
const IN_MACHINE: &str = "cargo xtask vm-tests a_bridge_is_measured_with_bbr";

/// The time limit for the test in the machine, with the download of the machine's packages.
const IN_MACHINE_TIME_MAX: Duration = Duration::from_secs(180);

/// Plays the recorded dialogues and 2,000 drawn ones with the kernel's TCP and with the stack's.
const DIFFERENTIAL: &str = "cargo xtask differential --from 0 --dialogues 2000";
const PACKETS: &str = "cargo xtask differential --packets";

/// The function that runs a step. A returned line names a part that could not be checked on this host.
type Run = dyn Fn(&Path) -> Result<Option<String>, String>;

struct Step {
    /// The command that runs this step alone.
    name: String,
    run: Box<Run>,
}

/// Runs every step. The error names the step that failed.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let steps = steps(&test_command(root)?);
    let total = steps.len();
    let mut left_out = Vec::new();
    let begun = Instant::now();
    for (at, step) in (1..).zip(steps) {
        let name = &step.name;
        eprintln!("==> {at}/{total} {name}");
        let begun = Instant::now();
        let outcome = (step.run)(root);
        let seconds = begun.elapsed().as_secs_f64();
        match outcome {
            Ok(note) => {
                eprintln!("<== {at}/{total} {name}: passed in {seconds:.1} s");
                left_out.extend(note);
            }
            Err(error) => {
                eprintln!("<== {at}/{total} {name}: FAILED after {seconds:.1} s");
                return Err(error);
            }
        }
    }
    eprintln!("all {total} steps passed in {:.1} s", begun.elapsed().as_secs_f64());
    left_out.iter().for_each(|note| eprintln!("{note}"));
    Ok(())
}

fn steps(test: &str) -> Vec<Step> {
    vec![
        command("cargo fmt --all --check", None),
        command("cargo clippy --workspace --all-targets --all-features -- -D warnings", None),
        command("cargo doc --workspace --no-deps", Some(("RUSTDOCFLAGS", "-D warnings"))),
        // Clippy only checks the sources, so the library that fuzz programs are linked with is neither built nor needed.
        command(
            "cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz -- -D warnings",
            Some(("CUSTOM_LIBFUZZER_PATH", "target/libFuzzer.a")),
        ),
        task("tidy", |root| tidy::run(root).map(|()| None)),
        task("schema --check", |root| schema::run(root, true).map(|()| None)),
        task("rfc --check", |root| rfc::check(root).map(|()| None)),
        task("advice --check", |root| advice::check(root).map(|()| None)),
        command(test, None),
        // The next two steps take minutes. They use the test programs that the step above has built.
        command("cargo test --workspace --test dialogue -- --ignored --nocapture", None),
        command("cargo test --workspace --test kernel -- with_offload", Some(("SIGA_BULK_BYTES", "1000000000"))),
        task("loom", |root| ring::loom(root).map(|()| None)),
        task("miri", |root| ring::miri(root).map(|()| None)),
        task("instructions", |root| instructions::run(root, false).map(|()| None)),
        task("deny", deny::run),
        Step { name: DIFFERENTIAL.to_owned(), run: Box::new(|root| differential(root, DIFFERENTIAL)) },
        Step { name: PACKETS.to_owned(), run: Box::new(|root| differential(root, PACKETS)) },
        Step { name: IN_MACHINE.to_owned(), run: Box::new(in_machine) },
    ]
}

/// Compares the stack with the kernel, if this host permits it.
fn differential(root: &Path, line: &str) -> Result<Option<String>, String> {
    match crate::differential::obstacle() {
        Some(reason) => Ok(Some(format!("the stack was not compared with the kernel: {reason}"))),
        None => {
            let compare = || command::run(command::command(root, line)).map(|()| None);
            compare().or_else(|error| {
                eprintln!(
                    "{error}; the comparison runs once more, because a busy host disturbs the times of the kernel"
                );
                compare()
            })
        }
    }
}

/// Boots the virtual machine once and runs one test there, if this host has QEMU.
fn in_machine(root: &Path) -> Result<Option<String>, String> {
    if let Err(reason) = vm::program(vm::QEMU.0, vm::QEMU.1) {
        return Ok(Some(format!("no test ran in a virtual machine: {reason}")));
    }
    let interrupted = limited::catch_interrupts()?;
    in_time(command::command(root, IN_MACHINE), IN_MACHINE_TIME_MAX, &interrupted).map(|()| None)
}

/// Runs `command` with a time limit.
fn in_time(command: Command, limit: Duration, interrupted: &AtomicBool) -> Result<(), String> {
    match limited::run(command, limit, interrupted)? {
        End::Exited(status) if status.success() => Ok(()),
        End::Exited(status) => Err(format!("the command ended with {status}")),
        End::TimedOut => Err(format!("the command did not end within {} s", limit.as_secs())),
        End::Interrupted => Err("the command was interrupted".to_owned()),
    }
}

/// Returns a step that runs a command line, with an optional environment variable.
fn command(line: &str, env: Option<(&'static str, &'static str)>) -> Step {
    let name = env.map_or_else(String::new, |(key, value)| format!("{key}='{value}' ")) + line;
    let line = line.to_owned();
    let run = move |root: &Path| {
        let mut command = command::command(root, &line);
        command.envs(env);
        command::run(command).map(|()| None)
    };
    Step { name, run: Box::new(run) }
}

/// Returns a step that runs a task of this program.
fn task(name: &str, run: fn(&Path) -> Result<Option<String>, String>) -> Step {
    Step { name: format!("cargo xtask {name}"), run: Box::new(run) }
}

fn test_command(root: &Path) -> Result<String, String> {
    let path = root.join("README.md");
    if !path.exists() {
        eprintln!("README.md is missing, so the tests are run by `{TEST}`");
        return Ok(TEST.to_owned());
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("README.md: {error}"))?;
    test_command_in(&text)
}

/// Returns the only line `cargo test ...` in the fenced code blocks of `readme`.
fn test_command_in(readme: &str) -> Result<String, String> {
    let mut fenced = false;
    let mut found: Vec<&str> = Vec::new();
    for line in readme.lines().map(str::trim) {
        if line.starts_with("```") {
            fenced = !fenced;
        } else if fenced && line.starts_with("cargo test") {
            found.push(line);
        }
    }
    match found[..] {
        [line] => Ok(line.to_owned()),
        _ => Err(format!(
            "README.md must contain exactly one fenced line `cargo test ...`, but it contains {}",
            found.len()
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_names_the_test_command() {
        let readme =
            "# A\n```\ncargo run --release -- run\n```\ncargo test outside\n```sh\n  cargo test --workspace\n```\n";
        assert_eq!(test_command_in(readme).unwrap(), "cargo test --workspace");
    }

    #[test]
    fn a_readme_with_no_test_command_or_two_is_refused() {
        assert!(test_command_in("cargo test --workspace\n").unwrap_err().contains("it contains 0"));
        assert!(
            test_command_in("```\ncargo test\ncargo test --workspace\n```\n").unwrap_err().contains("it contains 2")
        );
    }

    #[test]
    fn the_fallback_and_the_steps_are_commands_of_this_workspace() {
        let root = tempfile::tempdir().unwrap();
        let names: Vec<String> = steps(&test_command(root.path()).unwrap()).into_iter().map(|step| step.name).collect();
        assert_eq!(names.len(), 18);
        assert!(names.contains(&DIFFERENTIAL.to_owned()), "{names:?}");
        assert!(names.contains(&PACKETS.to_owned()), "{names:?}");
        assert!(names.contains(&IN_MACHINE.to_owned()), "{names:?}");
        assert!(names.contains(&"cargo test --workspace".to_owned()), "{names:?}");
        assert!(names.iter().all(|name| name.contains("cargo ")), "{names:?}");
    }

    #[test]
    fn a_step_with_a_time_limit_says_that_it_did_not_end() {
        let run = |line, limit| in_time(command::command(Path::new("/"), line), limit, &AtomicBool::new(false));
        assert_eq!(run("true", Duration::from_secs(60)), Ok(()));
        assert_eq!(run("false", Duration::from_secs(60)).unwrap_err(), "the command ended with exit status: 1");
        assert_eq!(run("sleep 1000", Duration::ZERO).unwrap_err(), "the command did not end within 0 s");
    }

    #[test]
    fn a_failing_command_fails_its_step() {
        let root = tempfile::tempdir().unwrap();
        assert!((command("false", None).run)(root.path()).is_err());
        assert!((command("printenv SIGA_STEP", Some(("SIGA_STEP", "1"))).run)(root.path()).is_ok());
    }
}
