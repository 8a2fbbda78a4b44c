//! Builds of siga that levels name: finds or compiles their programs before a run, and checks that each is siga and speaks the control
//! protocol of the program that carries out the run.
//!
//! The program of a level's build starts everything of a trial that is measured: the holder of the path, and thereby the guests, routers
//! and switches, and both workload drivers. The coordinator, its accounting and the runner of commands stay those of this program.

mod checkout;

use crate::agent::launch::{AgentOptions, RUNNING, Role, command_as, greet};
use crate::channel::ChildProcess;
use crate::interrupt::interrupted;
use siga_model::error::{Error, Result};
use siga_model::text;
use siga_plan::build::Build;
use siga_plan::level::Level;
use siga_plan::matrix::Matrix;
use siga_results::record::PathRecord;
use std::collections::BTreeMap;
use std::io::Read;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) use checkout::steps;

/// Maximum time in which a program says its version.
const VERSION_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of bytes of a version.
const VERSION_BYTES_MAX: u64 = 4_096;
/// Pause between two checks whether a program has ended.
const PAUSE: Duration = Duration::from_millis(5);

/// The programs of the builds that the levels of a run name.
#[derive(Debug, Default)]
pub struct Builds(BTreeMap<String, Program>);

/// The program of a build.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    /// Absolute path of the program.
    path: PathBuf,
    /// The first line that it prints with `--version`.
    version: String,
    /// Device, inode, size and time of the last change of the file when the run began.
    file: (u64, u64, u64, i64, i64),
}

impl Builds {
    /// Finds or compiles the builds of all levels. `checkout` is the git checkout of the levels that name a revision.
    /// `note` receives messages for the user.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if a level names a revision that the checkout does not have, a file that is not siga, or a build
    /// with another version of the control protocol. Returns an error of kind `Environment` if a revision cannot be compiled.
    pub fn open(matrix: &Matrix, checkout: Option<&Path>, note: &mut dyn FnMut(&str)) -> Result<Self> {
        check_checkout(matrix, checkout)?;
        let mut builds = Self::default();
        for (level, build) in matrix.levels.iter().filter_map(|level| Some((level, level.build.as_ref()?))) {
            let program =
                Program::of(build, checkout, note).map_err(|error| error.at(format!("level {}", level.name)))?;
            note(&format!("level {} uses {} ({})", level.name, program.version, program.path.display()));
            builds.0.insert(level.name.clone(), program);
        }
        Ok(builds)
    }

    /// Refuses levels with builds, for runs on several hosts.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` that names the first level with a build.
    pub fn refuse(matrix: &Matrix) -> Result<()> {
        let Some(level) = matrix.levels.iter().find(|level| level.build.is_some()) else { return Ok(()) };
        Err(Error::usage(format!(
            "level {} uses another build of siga, but with --on, each host uses a copy of the running program",
            level.name
        ))
        .hint("remove --on, or remove the build"))
    }

    /// Refuses to resume a run with another build than before. `recorded` are the records of paths so far.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` that names the first level whose build has changed.
    pub fn check_same(&self, recorded: &[PathRecord]) -> Result<()> {
        for record in recorded {
            let (Some(before), Some(now)) = (&record.build, self.0.get(&record.cell.level)) else { continue };
            if *before != now.version {
                return Err(Error::usage(format!(
                    "the build of level {} has changed since the run began: {before} before, {} now",
                    record.cell.level, now.version
                ))
                .hint("use the same build as before, or start a new run"));
            }
        }
        Ok(())
    }

    /// Returns the program that runs the trials of a level.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the program's file has changed since the run began.
    pub(crate) fn program(&self, level: &str) -> Result<&Path> {
        let Some(program) = self.0.get(level) else { return Ok(Path::new(RUNNING)) };
        if file(&program.path).ok() != Some(program.file) {
            return Err(Error::environment(format!(
                "the program {} of level {level} has changed since the run began",
                program.path.display()
            ))
            .hint("copy a build to a file that stays the same, and start a new run"));
        }
        Ok(&program.path)
    }

    /// Returns the path of the build of a level as text; `None` if the level has none.
    pub(crate) fn named(&self, level: &str) -> Option<&str> {
        self.0.get(level)?.path.to_str()
    }

    /// Returns what the build of a level says about itself; `None` if the level has none.
    pub(crate) fn version(&self, level: &str) -> Option<String> {
        Some(self.0.get(level)?.version.clone())
    }
}

/// Refuses a revision without a checkout, and a checkout without a revision.
///
/// # Errors
/// Returns an error of kind `Usage` with the missing part.
pub fn check_checkout(matrix: &Matrix, checkout: Option<&Path>) -> Result<()> {
    let revision = matrix.levels.iter().find(|level| matches!(level.build, Some(Build::Git(_))));
    match (revision, checkout) {
        (Some(level), None) => {
            Err(Error::usage(format!("the build of level {} is a revision, but no checkout is named", level.name))
                .hint("name a git checkout of siga with --checkout DIR"))
        }
        (None, Some(checkout)) => Err(Error::usage(format!(
            "--checkout {} has no effect, because no level names a revision",
            checkout.display()
        ))
        .hint("name a revision with --build git:REVISION, or remove --checkout")),
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}

impl Program {
    fn of(build: &Build, checkout: Option<&Path>, note: &mut dyn FnMut(&str)) -> Result<Self> {
        let found = match build {
            Build::Program(path) => Path::new(path).canonicalize().map_err(|error| {
                Error::usage(format!("cannot find the build {path}: {error}"))
                    .hint("use the path of a program file of siga, such as target/release/siga of a checkout")
            })?,
            Build::Git(revision) => {
                // `check_checkout` has refused a plan without one.
                checkout::program(checkout.unwrap_or(Path::new(".")), &revision.git, note)?
            }
        };
        if found.to_str().is_none() {
            return Err(Error::usage(format!("the path {} is not valid UTF-8", found.display()))
                .hint("use a path of UTF-8 characters"));
        }
        let version = version(&found)?;
        speaks(&found)?;
        let file = file(&found).map_err(|error| Error::usage(format!("cannot read {}: {error}", found.display())))?;
        Ok(Self { path: found, version, file })
    }
}

/// Returns what identifies the content of a file.
fn file(path: &Path) -> std::io::Result<(u64, u64, u64, i64, i64)> {
    let found = std::fs::metadata(path)?;
    Ok((found.st_dev(), found.st_ino(), found.st_size(), found.st_mtime(), found.st_mtime_nsec()))
}

/// Returns the first line that a program prints with `--version`, such as `siga 0.3.0 (commit 0123456789ab; features: none)`.
fn version(path: &Path) -> Result<String> {
    let shown = path.display();
    let refused = |reason: String| {
        Error::usage(format!("{shown} is not a siga program: {reason}")).hint("use the path of a program file of siga")
    };
    let mut command = Command::new(path);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(|error| refused(format!("cannot start it: {error}")))?;
    let deadline = Instant::now() + VERSION_TIME_MAX;
    // A pipe holds more bytes than a version has, so a program that says its version can end before it is read.
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.success(),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(PAUSE),
            Ok(None) | Err(_) => {
                let _gone = child.kill();
                let _status = child.wait();
                return Err(refused(format!("`{shown} --version` does not end")));
            }
        }
    };
    let mut said = Vec::new();
    if let Some(output) = child.stdout.take() {
        // A process that the program has left may keep the pipe open, so do not wait for the pipe's end.
        let _waits = rustix::io::ioctl_fionbio(&output, true);
        let _cut = output.take(VERSION_BYTES_MAX).read_to_end(&mut said);
    }
    let said = String::from_utf8_lossy(&said);
    let first = said.lines().next().unwrap_or_default();
    match first.strip_prefix("siga ") {
        Some(rest) if ended && !rest.is_empty() => Ok(text::name(first)),
        Some(_) | None => Err(refused(format!("`{shown} --version` does not print siga's version"))),
    }
}

/// Checks that a program speaks the control protocol of this one.
fn speaks(path: &Path) -> Result<()> {
    let shown = path.display().to_string();
    let greeted = ChildProcess::start(command_as(path, Role::Agent, &AgentOptions::default()), &shown)
        .and_then(|mut process| greet(&mut process).map(drop));
    greeted.map_err(|error| {
        if interrupted() {
            return error;
        }
        Error::usage(error.message())
            .hint("use a build with the same version of the control protocol, such as one of a nearby commit")
    })
}

/// Returns the program that the level's build has before it is found or compiled, for a list of commands.
pub(crate) fn shown(level: Option<&Level>) -> PathBuf {
    match level.and_then(|level| level.build.as_ref()) {
        None => RUNNING.into(),
        Some(Build::Program(path)) => path.into(),
        Some(Build::Git(revision)) => checkout::shown(&revision.git),
    }
}
