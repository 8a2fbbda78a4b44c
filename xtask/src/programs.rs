//! Runs test suites of other projects twice: on the kernel's sockets, and under `siga exec` on those of a guest. A test that passes on
//! the kernel has to pass on the guest, unless `exceptions.rs` names it with a reason.
//!
//! The suites are modules of CPython's own tests, as Debian's package `libpython3.11-testsuite` has them, libuv's tests, and those of
//! tokio that concern networks.

mod exceptions;
mod libuv;
mod tokio;

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

/// Part of the names of the tests of UDP-Lite, which the stack lacks, as some kernels do.
const ABSENT: &str = "UDPLITE";

/// The names of the other suites.
const LIBUV: &str = "libuv";
const TOKIO: &str = "tokio";

/// The longest time of one module, after which its program ends itself, and after which it is killed.
const MODULE_SECONDS: u64 = 300;
const MODULE_TIME_MAX: Duration = Duration::from_secs(MODULE_SECONDS + 30);

const TOPOLOGY: &str = "topologies/figure-1.toml";
const NETWORK: &str = "figure-1";
const GUEST: &str = "tcpip3";

/// The options of `cargo xtask programs`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only the suites whose name contains this text: CPython's modules, libuv, tokio
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// The directory for the results and the output of the suites
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
    /// Tests of a protocol that the guest's stack lacks, which are skipped there.
    absent: usize,
    /// Tests that pass on the kernel only and may do so, each with the reason.
    excepted: Vec<(String, &'static str)>,
    /// Tests that pass on the kernel only, without an exception.
    worse: Vec<String>,
}

/// Runs the chosen suites. Returns an error that names the tests that pass on the kernel only.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let names: Vec<&str> = MODULES.into_iter().chain([LIBUV, TOKIO]).collect();
    let chosen = |name: &&str| name.contains(&options.only);
    if !names.iter().any(chosen) {
        return Err(format!("no suite's name contains \"{}\"; the suites are {}", options.only, names.join(", ")));
    }
    let out = root.join(&options.out);
    let suites = suites(root, &out, &names.into_iter().filter(chosen).collect::<Vec<_>>())?;
    let siga = command::built(root, "cargo build --locked --release --package siga --bin siga")?;
    let interrupted = limited::catch_interrupts()?;
    let network = Network::up(&siga, &out.join("run"), &root.join(TOPOLOGY), NETWORK)?;
    let mut worse = Vec::new();
    for Suite { name, parts } in suites {
        let (mut kernel, mut guest) = (Outcomes::new(), Outcomes::new());
        for part in parts {
            let on_kernel = || Command::new(part.program());
            kernel.extend(part.outcomes(&on_kernel, &out.join("kernel"), &interrupted)?);
            let on_guest = || {
                let mut command = network.exec(GUEST);
                command.arg(part.program());
                command
            };
            guest.extend(part.outcomes(&on_guest, &out.join("guest"), &interrupted)?);
        }
        let found = compare(&kernel, &guest);
        command::print(&format!(
            "{name:<26} {:>4} pass on the kernel, {:>4} of them here, {} skipped, {} exceptions\n",
            found.passed_on_both + found.absent + found.excepted.len() + found.worse.len(),
            found.passed_on_both,
            found.absent,
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

/// Tests that one program runs.
#[derive(Debug)]
enum Part {
    Module { runner: PathBuf, name: &'static str },
    Libuv { place: PathBuf, program: PathBuf },
    Tokio { name: String, program: PathBuf },
}

/// The tests whose results are reported in one line.
#[derive(Debug)]
struct Suite {
    name: &'static str,
    parts: Vec<Part>,
}

/// Builds the chosen suites. A suite that cannot run on this host is left out, and the output says why.
fn suites(root: &Path, out: &Path, names: &[&'static str]) -> Result<Vec<Suite>, String> {
    let mut suites = Vec::new();
    for name in names {
        let (missing, place) = match *name {
            LIBUV => (libuv::missing(), out.join(LIBUV)),
            TOKIO => (None, out.join(TOKIO)),
            _ if Path::new(TESTS).exists() => (None, PathBuf::new()),
            _ => (Some(format!("{PACKAGE} is not installed")), PathBuf::new()),
        };
        if let Some(why) = missing {
            command::print(&format!("{name:<26} skipped, because {why}\n"))?;
            continue;
        }
        let parts = match *name {
            LIBUV => vec![Part::Libuv { program: libuv::build(&place)?, place }],
            TOKIO => tokio::build(&place)?.into_iter().map(|(name, program)| Part::Tokio { name, program }).collect(),
            name => vec![Part::Module { runner: root.join(RUNNER), name }],
        };
        suites.push(Suite { name, parts });
    }
    Ok(suites)
}

impl Part {
    fn program(&self) -> &Path {
        match self {
            Self::Module { .. } => Path::new(PYTHON),
            Self::Libuv { program, .. } | Self::Tokio { program, .. } => program,
        }
    }

    fn name(&self) -> &str {
        match self {
            Self::Module { name, .. } => name,
            Self::Libuv { .. } => LIBUV,
            Self::Tokio { name, .. } => name,
        }
    }

    /// Runs the tests with commands that begin with their program, and returns the outcomes of those that have finished in time. A test
    /// of libuv that fails runs once more, alone, because an earlier test that has failed may still use its port.
    fn outcomes(
        &self,
        command: &dyn Fn() -> Command,
        place: &Path,
        interrupted: &AtomicBool,
    ) -> Result<Outcomes, String> {
        let mut outcomes = self.run(command(), place, interrupted)?;
        if matches!(self, Self::Libuv { .. }) {
            let failed = outcomes.iter().filter(|(_, outcome)| **outcome == Outcome::Failed);
            for test in failed.map(|(test, _)| test.clone()).collect::<Vec<_>>() {
                let mut alone = command();
                alone.arg(libuv::name(&test));
                outcomes.extend(self.run(alone, &place.join("alone"), interrupted)?);
            }
        }
        Ok(outcomes)
    }

    /// Runs tests with a command.
    fn run(&self, mut command: Command, place: &Path, interrupted: &AtomicBool) -> Result<Outcomes, String> {
        fs::create_dir_all(place).map_err(|error| format!("{}: {error}", place.display()))?;
        let file = |ending: &str| place.join(format!("{}.{ending}", self.name()));
        let create = |path: &Path| fs::File::create(path).map_err(|error| format!("{}: {error}", path.display()));
        let (results, log) = (file("txt"), file("log"));
        // The results of an earlier run must not count.
        let written = create(&results)?;
        command.current_dir(place).stdin(Stdio::null()).stderr(create(&log)?);
        match self {
            Self::Module { runner, name } => {
                command.arg(runner).arg(name).arg(&results).arg(MODULE_SECONDS.to_string()).stdout(Stdio::null());
            }
            Self::Libuv { place, .. } => {
                libuv::prepare(&mut command, place);
                command.stdout(written);
            }
            Self::Tokio { .. } => _ = command.stdout(written),
        }
        if limited::run(command, MODULE_TIME_MAX, interrupted)? == End::Interrupted {
            return Err("interrupted".to_owned());
        }
        let text = String::from_utf8_lossy(&fs::read(&results).unwrap_or_default()).into_owned();
        Ok(match self {
            Self::Module { .. } => parse(&text),
            Self::Libuv { .. } => libuv::parse(&text),
            Self::Tokio { name, .. } => tokio::parse(name, &text),
        })
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
        let outcome = guest.get(test);
        if outcome == Some(&Outcome::Passed) {
            found.passed_on_both += 1;
        } else if outcome == Some(&Outcome::Skipped) && test.contains(ABSENT) {
            found.absent += 1;
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
            ("UDPLITE.f", Outcome::Passed),
            ("UDPLITE.g", Outcome::Passed),
            (excepted, Outcome::Passed),
        ]);
        let guest = outcomes(&[
            ("a", Outcome::Passed),
            ("b", Outcome::Skipped),
            ("d", Outcome::Failed),
            ("UDPLITE.f", Outcome::Skipped),
            ("UDPLITE.g", Outcome::Failed),
        ]);
        let expected = Comparison {
            passed_on_both: 1,
            absent: 1,
            excepted: vec![(excepted.to_owned(), why)],
            worse: vec!["UDPLITE.g".to_owned(), "b".to_owned(), "c".to_owned()],
        };
        assert_eq!(compare(&kernel, &guest), expected);
    }
}
