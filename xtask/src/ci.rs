//! All that a change has to pass, in order; the first step that fails ends the run.
//!
//! The tests are run by the command that README.md gives its readers, so that the two cannot drift apart. Each step is
//! named before it runs and timed after it. Programs that are missing are not installed here: `.ci/run` does that.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::{command, deny, instructions, rfc, ring, schema, tidy};

/// The test command while there is no README.md to name it.
const TEST: &str = "cargo test --workspace";

/// What runs a step. The line that it returns names a part that could not be checked here.
type Run = dyn Fn(&Path) -> Result<Option<String>, String>;

/// A step.
struct Step {
    /// What a person types to run it alone.
    name: String,
    run: Box<Run>,
}

/// Runs every step; the error names the one that failed.
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
        // Looked at only: the library that the programs are linked with is neither built nor needed.
        command(
            "cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz -- -D warnings",
            Some(("CUSTOM_LIBFUZZER_PATH", "target/libFuzzer.a")),
        ),
        task("tidy", |root| tidy::run(root).map(|()| None)),
        task("schema --check", |root| schema::run(root, true).map(|()| None)),
        task("rfc --check", |root| rfc::check(root).map(|()| None)),
        command(test, None),
        // What takes minutes, by the tests that were just built.
        command("cargo test --workspace --test dialogue -- --ignored --nocapture", None),
        command("cargo test --workspace --test kernel -- with_offload", Some(("SIGA_BULK_BYTES", "1000000000"))),
        task("loom", |root| ring::loom(root).map(|()| None)),
        task("miri", |root| ring::miri(root).map(|()| None)),
        task("instructions", |root| instructions::run(root, false).map(|()| None)),
        task("deny", deny::run),
    ]
}

/// A step that is a command line, with a variable of its environment.
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

/// A step that is a task of this program.
fn task(name: &str, run: fn(&Path) -> Result<Option<String>, String>) -> Step {
    Step { name: format!("cargo xtask {name}"), run: Box::new(run) }
}

fn test_command(root: &Path) -> Result<String, String> {
    let path = root.join("README.md");
    if !path.exists() {
        eprintln!("README.md is absent: the tests are run by `{TEST}`");
        return Ok(TEST.to_owned());
    }
    let text = fs::read_to_string(&path).map_err(|error| format!("README.md: {error}"))?;
    test_command_in(&text)
}

/// The one line `cargo test ...` among the fenced blocks.
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
        _ => Err(format!("README.md: one fenced line `cargo test ...` is needed, there are {}", found.len())),
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
        assert!(test_command_in("cargo test --workspace\n").unwrap_err().contains("there are 0"));
        assert!(test_command_in("```\ncargo test\ncargo test --workspace\n```\n").unwrap_err().contains("there are 2"));
    }

    #[test]
    fn the_fallback_and_the_steps_are_commands_of_this_workspace() {
        let root = tempfile::tempdir().unwrap();
        let names: Vec<String> = steps(&test_command(root.path()).unwrap()).into_iter().map(|step| step.name).collect();
        assert_eq!(names.len(), 14);
        assert!(names.contains(&"cargo test --workspace".to_owned()), "{names:?}");
        assert!(names.iter().all(|name| name.contains("cargo ")), "{names:?}");
    }

    #[test]
    fn a_failing_command_fails_its_step() {
        let root = tempfile::tempdir().unwrap();
        assert!((command("false", None).run)(root.path()).is_err());
        assert!((command("printenv SIGA_STEP", Some(("SIGA_STEP", "1"))).run)(root.path()).is_ok());
    }
}
