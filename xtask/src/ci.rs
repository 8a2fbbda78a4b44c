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

enum Step {
    Command { line: String, env: Option<(&'static str, &'static str)> },
    Tidy,
    Schema,
    Rfc,
    Loom,
    Miri,
    Instructions,
    Deny,
}

/// Runs every step; the error names the one that failed.
pub(crate) fn run(root: &Path) -> Result<(), String> {
    let steps = steps(&test_command(root)?);
    let total = steps.len();
    let mut left_out = Vec::new();
    let begun = Instant::now();
    for (at, step) in (1..).zip(steps) {
        let name = step.name();
        eprintln!("==> {at}/{total} {name}");
        let begun = Instant::now();
        let outcome = step.run(root);
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
    let with = |line: &str, env| Step::Command { line: line.to_owned(), env };
    let command = |line: &str| with(line, None);
    vec![
        command("cargo fmt --all --check"),
        command("cargo clippy --workspace --all-targets --all-features -- -D warnings"),
        with("cargo doc --workspace --no-deps", Some(("RUSTDOCFLAGS", "-D warnings"))),
        // Looked at only: the library that the programs are linked with is neither built nor needed.
        with(
            "cargo clippy --locked --manifest-path fuzz/Cargo.toml --target-dir target/fuzz -- -D warnings",
            Some(("CUSTOM_LIBFUZZER_PATH", "target/libFuzzer.a")),
        ),
        Step::Tidy,
        Step::Schema,
        Step::Rfc,
        with(test, None),
        // What takes minutes, by the tests that were just built.
        command("cargo test --workspace --test dialogue -- --ignored --nocapture"),
        with("cargo test --workspace --test kernel -- with_offload", Some(("SIGA_BULK_BYTES", "1000000000"))),
        Step::Loom,
        Step::Miri,
        Step::Instructions,
        Step::Deny,
    ]
}

impl Step {
    fn name(&self) -> String {
        match self {
            Self::Command { line, env: None } => line.clone(),
            Self::Command { line, env: Some((key, value)) } => format!("{key}='{value}' {line}"),
            Self::Tidy => "cargo xtask tidy".to_owned(),
            Self::Schema => "cargo xtask schema --check".to_owned(),
            Self::Rfc => "cargo xtask rfc --check".to_owned(),
            Self::Loom => "cargo xtask loom".to_owned(),
            Self::Miri => "cargo xtask miri".to_owned(),
            Self::Instructions => "cargo xtask instructions".to_owned(),
            Self::Deny => "cargo xtask deny".to_owned(),
        }
    }

    /// Runs it. The line that it returns names a part that could not be checked here.
    fn run(&self, root: &Path) -> Result<Option<String>, String> {
        match self {
            Self::Command { line, env } => {
                let mut command = command::command(root, line);
                command.envs(*env);
                command::run(command)?;
            }
            Self::Tidy => tidy::run(root)?,
            Self::Schema => schema::run(root, true)?,
            Self::Rfc => rfc::check(root)?,
            Self::Loom => ring::loom(root)?,
            Self::Miri => ring::miri(root)?,
            Self::Instructions => instructions::run(root, false)?,
            Self::Deny => return deny::run(root),
        }
        Ok(None)
    }
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
        let names: Vec<String> = steps(&test_command(root.path()).unwrap()).iter().map(Step::name).collect();
        assert_eq!(names.len(), 14);
        assert!(names.contains(&"cargo test --workspace".to_owned()), "{names:?}");
        assert!(names.iter().all(|name| name.contains("cargo ")), "{names:?}");
    }

    #[test]
    fn a_failing_command_fails_its_step() {
        let root = tempfile::tempdir().unwrap();
        let step = Step::Command { line: "false".to_owned(), env: None };
        assert!(step.run(root.path()).is_err());
        let step = Step::Command { line: "printenv SIGA_STEP".to_owned(), env: Some(("SIGA_STEP", "1")) };
        assert!(step.run(root.path()).is_ok());
    }
}
