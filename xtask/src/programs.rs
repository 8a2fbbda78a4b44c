//! Runs test suites of other projects twice: on the kernel's sockets, and under `siga exec` on those of a guest. A test that passes on
//! the kernel has to pass on the guest, unless `exceptions.rs` names it with a reason.
//!
//! The suites are modules of CPython's own tests, as Debian's package `libpython3.11-testsuite` has them.

mod exceptions;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::command;
use crate::guests::Network;
use crate::limited::{self, End};
use exceptions::EXCEPTIONS;

/// The interpreter, and a file that is there if its tests are installed.
const PYTHON: &str = "/usr/bin/python3.11";
const TESTS: &str = "/usr/lib/python3.11/test/test_socket.py";
const PACKAGE: &str = "libpython3.11-testsuite";

/// The program that runs a module and notes its outcomes.
const RUNNER: &str = "xtask/src/programs/run.py";

/// The modules.
const MODULES: [&str; 12] = [
    "test_socket",
    "test_select",
    "test_selectors",
    "test_poll",
    "test_epoll",
    "test_socketserver",
    "test_httplib",
    "test_ftplib",
    "test_ssl",
    "test_subprocess",
    "test_multiprocessing_fork",
    "test_asyncio",
];

/// The longest time of one module, after which its program ends itself, and after which it is killed.
const MODULE_SECONDS: u64 = 300;
const MODULE_TIME_MAX: Duration = Duration::from_secs(MODULE_SECONDS + 30);

const TOPOLOGY: &str = "topologies/figure-1.toml";
const NETWORK: &str = "figure-1";
const GUEST: &str = "tcpip3";

/// The options of `cargo xtask programs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only the modules whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The directory for the results and the output of the modules
    #[arg(long, default_value = "target/programs")]
    out: PathBuf,
}

/// The outcome of each test of a module.
type Outcomes = BTreeMap<String, Outcome>;

/// How a test ended. The worst outcome is the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    Passed,
    Skipped,
    Failed,
}

/// What the comparison of a module has found.
#[derive(Debug, Default, PartialEq, Eq)]
struct Comparison {
    passed_on_both: usize,
    /// Tests that pass on the kernel only and may do so, each with the reason.
    excepted: Vec<(String, &'static str)>,
    /// Tests that pass on the kernel only, without an exception.
    worse: Vec<String>,
}

/// Runs the chosen modules. Returns an error that names the tests that pass on the kernel only.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let modules: Vec<&str> = MODULES.into_iter().filter(|module| module.contains(&options.only)).collect();
    if modules.is_empty() {
        return Err(format!("no module's name contains \"{}\"; there are {}", options.only, MODULES.join(", ")));
    }
    if !Path::new(TESTS).exists() {
        return command::print(&format!("skipped, because {PACKAGE} is not installed\n"));
    }
    let siga = command::built(root, "cargo build --locked --release --package siga --bin siga")?;
    let out = root.join(&options.out);
    let interrupted = limited::catch_interrupts()?;
    let network = Network::up(&siga, &out.join("run"), &root.join(TOPOLOGY), NETWORK)?;
    let runner = root.join(RUNNER);
    let mut worse = Vec::new();
    for module in modules {
        let mut python = network.exec(GUEST);
        python.arg(PYTHON);
        let kernel = outcomes(Command::new(PYTHON), &runner, module, &out.join("kernel"), &interrupted)?;
        let guest = outcomes(python, &runner, module, &out.join("guest"), &interrupted)?;
        let found = compare(&kernel, &guest);
        command::print(&format!(
            "{module:<26} {:>4} pass on the kernel, {:>4} of them here, {} exceptions\n",
            found.passed_on_both + found.excepted.len() + found.worse.len(),
            found.passed_on_both,
            found.excepted.len()
        ))?;
        for (test, why) in &found.excepted {
            command::print(&format!("  passes on the kernel only: {test}: {why}\n"))?;
        }
        for test in &found.worse {
            command::print(&format!("  passes on the kernel only: {test}\n"))?;
        }
        worse.extend(found.worse);
    }
    if worse.is_empty() { Ok(()) } else { Err(format!("{} tests pass on the kernel only", worse.len())) }
}

/// Runs a module with a command that begins with Python, and returns the outcomes of the tests that have finished in time.
fn outcomes(
    mut python: Command,
    runner: &Path,
    module: &str,
    place: &Path,
    interrupted: &AtomicBool,
) -> Result<Outcomes, String> {
    fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
    let (results, log) = (place.join(format!("{module}.txt")), place.join(format!("{module}.log")));
    // The results of an earlier run must not count.
    let _ = fs::remove_file(&results);
    let file = fs::File::create(&log).map_err(|error| format!("{}: {error}", log.display()))?;
    python.arg(runner).arg(module).arg(&results).arg(MODULE_SECONDS.to_string());
    python.current_dir(place).stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
    match limited::run(python, MODULE_TIME_MAX, interrupted)? {
        End::Interrupted => Err("interrupted".to_owned()),
        End::Exited(_) | End::TimedOut => Ok(parse(&fs::read_to_string(&results).unwrap_or_default())),
    }
}

/// Reads the lines of the runner. A test with several outcomes, for example of subtests, has the worst.
fn parse(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for (outcome, test) in text.lines().filter_map(|line| line.split_once(' ')) {
        let outcome = match outcome {
            "passed" => Outcome::Passed,
            "skipped" => Outcome::Skipped,
            _ => Outcome::Failed,
        };
        let known = outcomes.entry(test.to_owned()).or_insert(outcome);
        *known = (*known).max(outcome);
    }
    outcomes
}

fn compare(kernel: &Outcomes, guest: &Outcomes) -> Comparison {
    let mut found = Comparison::default();
    for test in kernel.iter().filter(|(_, outcome)| **outcome == Outcome::Passed).map(|(test, _)| test) {
        if guest.get(test) == Some(&Outcome::Passed) {
            found.passed_on_both += 1;
        } else if let Some(exception) = EXCEPTIONS.iter().find(|exception| exception.covers(test)) {
            found.excepted.push((test.clone(), exception.why));
        } else {
            found.worse.push(test.clone());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use exceptions::Exception;

    #[test]
    fn a_test_has_its_worst_outcome() {
        let found = parse("passed test.a\nfailed test.b\npassed test.b\nskipped test.c\npass");
        let expected = [("test.a", Outcome::Passed), ("test.b", Outcome::Failed), ("test.c", Outcome::Skipped)];
        assert!(found.into_iter().eq(expected.map(|(test, outcome)| (test.to_owned(), outcome))));
    }

    #[test]
    fn a_test_that_passes_on_the_kernel_only_is_worse_without_an_exception() {
        let outcomes =
            |all: &[(&str, Outcome)]| all.iter().map(|(test, outcome)| ((*test).to_owned(), *outcome)).collect();
        let Exception { test: excepted, why } = EXCEPTIONS[0];
        let kernel = outcomes(&[
            ("a", Outcome::Passed),
            ("b", Outcome::Passed),
            ("c", Outcome::Passed),
            ("d", Outcome::Failed),
            ("e", Outcome::Skipped),
            (excepted, Outcome::Passed),
        ]);
        let guest = outcomes(&[("a", Outcome::Passed), ("b", Outcome::Skipped), ("d", Outcome::Failed)]);
        let expected = Comparison {
            passed_on_both: 1,
            excepted: vec![(excepted.to_owned(), why)],
            worse: vec!["b".to_owned(), "c".to_owned()],
        };
        assert_eq!(compare(&kernel, &guest), expected);
    }
}
