//! Runs the tests that need the virtual machine: builds the test programs here, and runs them in the machine.
//!
//! The macro `needs_vm!` (`crates/fabric/tests/common/vm.rs`) puts these tests into modules `needs_vm`, so each test program can
//! list its own. All tests run in one machine, one after the other, in the directory of their crate as under `cargo test`.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::command;

const BUILD: &str = "cargo test --locked --no-run --message-format=json-render-diagnostics";

/// The part of a test's name that `needs_vm!` makes.
const MODULE: &str = "needs_vm::";

/// The options of `cargo xtask vm-tests`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only the tests whose name contains this text
    #[arg(default_value = "")]
    filter: String,
    /// Build and run only the tests of this package (default: all)
    #[arg(long)]
    package: Option<String>,
    /// Time limit for the start of the machine and all tests, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 1500)]
    timeout: u64,
}

/// A test program with tests for the machine.
struct Program {
    path: PathBuf,
    /// The directory of its crate.
    directory: PathBuf,
    /// The names of the tests.
    tests: Vec<String>,
}

/// Builds the tests and runs them in the machine. The error says whether a test failed or the machine.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let mut build = command::command(root, BUILD);
    match &options.package {
        Some(package) => build.args(["--package", package]),
        None => build.arg("--workspace"),
    };
    let mut programs = Vec::new();
    for (path, directory) in test_programs(&command::messages(build)?) {
        let tests = names(&path, &options.filter)?;
        if !tests.is_empty() {
            programs.push(Program { path, directory, tests });
        }
    }
    if programs.is_empty() {
        return Err(format!("no test for the virtual machine has a name that contains \"{}\"", options.filter));
    }
    let count: usize = programs.iter().map(|program| program.tests.len()).sum();
    eprintln!("vm-tests: tests to run: {count}, test programs: {}", programs.len());
    if let Some(program) = programs.iter().find(|program| !program.path.starts_with(root)) {
        let (path, root) = (program.path.display(), root.display());
        return Err(format!(
            "the machine cannot see the file {path}, because it sees only {root}; build below that directory"
        ));
    }
    let this = env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    let mut vm = Command::new(this);
    vm.current_dir(root).args(["vm", "--timeout", &options.timeout.to_string(), "--", "sh", "-c", &script(&programs)]);
    command::run(vm).map_err(|error| {
        let (_, end) = error.rsplit_once(" ended with ").unwrap_or(("", &error));
        format!("the tests in the virtual machine ended with {end}")
    })
}

/// Returns the test programs that cargo's messages name, each with the directory of its crate.
fn test_programs(messages: &[Value]) -> Vec<(PathBuf, PathBuf)> {
    let of_test = messages.iter().filter(|message| message["profile"]["test"] == true);
    of_test
        .filter_map(|message| {
            let manifest = Path::new(message["manifest_path"].as_str()?);
            Some((message["executable"].as_str()?.into(), manifest.parent()?.into()))
        })
        .collect()
}

/// Asks a test program for its tests for the machine whose name contains `filter`.
fn names(program: &Path, filter: &str) -> Result<Vec<String>, String> {
    let mut list = Command::new(program);
    list.args(["--list", "--ignored", "--format", "terse", MODULE]);
    let list = command::output(list)?;
    Ok(list
        .lines()
        .filter_map(|line| line.strip_suffix(": test"))
        .filter(|name| name.contains(filter))
        .map(str::to_owned)
        .collect())
}

/// Returns a shell script that runs all tests, and fails if one of them fails.
fn script(programs: &[Program]) -> String {
    let mut script = "status=0\n".to_owned();
    for Program { path, directory, tests } in programs {
        let (path, directory) = (quoted(&path.to_string_lossy()), quoted(&directory.to_string_lossy()));
        script +=
            &format!("(cd {directory} && {path} --ignored --exact --test-threads=1 {}) || status=1\n", tests.join(" "));
    }
    script + "exit $status\n"
}

/// Quotes `word` so that a shell takes it literally.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    #[test]
    fn only_test_programs_are_run_in_the_directory_of_their_crate() {
        let message = |is_test: bool, program: Value| json!({ "profile": { "test": is_test }, "executable": program, "manifest_path": "/a/crates/b/Cargo.toml" });
        let messages =
            [message(true, "/a/target/t".into()), message(false, "/a/target/p".into()), message(true, Value::Null)];
        assert_eq!(test_programs(&messages), [(PathBuf::from("/a/target/t"), PathBuf::from("/a/crates/b"))]);
    }

    #[test]
    fn every_program_runs_even_if_an_earlier_one_fails() {
        let directory = tempfile::tempdir().unwrap();
        let program = |path: &str| Program {
            path: path.into(),
            directory: directory.path().join("it's here"),
            tests: vec!["needs_vm::a".to_owned(), "needs_vm::b".to_owned()],
        };
        std::fs::create_dir(directory.path().join("it's here")).unwrap();
        let run = |programs: &[Program]| Command::new("sh").args(["-c", &script(programs)]).output().unwrap();
        for (programs, status) in [(&[program("false"), program("echo")][..], 1), (&[program("echo")], 0)] {
            let output = run(programs);
            assert_eq!(output.status.code(), Some(status), "{output:?}");
            let expected = "--ignored --exact --test-threads=1 needs_vm::a needs_vm::b\n";
            assert_eq!(String::from_utf8_lossy(&output.stdout), expected);
        }
    }

    #[test]
    fn a_program_is_asked_only_for_its_tests_for_the_machine() {
        // The tests of this program are none of those.
        assert_eq!(names(&env::current_exe().unwrap(), "").unwrap(), [""; 0]);
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        let text = "#!/bin/sh\necho \"a::$5a_bond: test\"\necho \"$5a_vlan: test\"\n";
        std::fs::write(&program, text).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(names(&program, "bond").unwrap(), ["a::needs_vm::a_bond"]);
    }
}
