//! Compiles a revision of a git checkout of siga, with the toolchain that the revision names. Programs are kept in a cache, by commit.
//!
//! The checkout itself stays as it is: the revision is compiled in a clone below the cache, which is removed afterwards. A second run
//! that needs the same commit at the same time waits for the first.

use crate::interrupt::interrupted;
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use serde::Deserialize;
use siga_model::error::{Error, IoContext, Result};
use std::fs::{self, DirBuilder, File};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Name of the program in its directory.
const PROGRAM: &str = "siga";
/// Pause between two checks whether a command has ended or a lock is free.
const PAUSE: Duration = Duration::from_millis(100);
/// Number of lines of a failed command's messages that siga prints.
const LINES_SHOWN: usize = 12;
/// Settings of a build around siga, such as those of `cargo run`. A revision has its own.
const OF_OTHER_BUILDS: [&str; 10] = [
    "RUSTUP_TOOLCHAIN",
    "RUSTFLAGS",
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
    "LD_LIBRARY_PATH",
];

/// Returns the program of a revision of `checkout`, from the cache or compiled now.
///
/// # Errors
/// Returns an error of kind `Usage` if `checkout` is not a git checkout or does not have the revision. Returns an error of kind
/// `Environment` if git or cargo is missing, if the revision does not compile, or if other users could change the cache.
pub(super) fn program(checkout: &Path, revision: &str, note: &mut dyn FnMut(&str)) -> Result<PathBuf> {
    let commit = commit(checkout, revision)?;
    let cache = cache()?;
    let lock = File::create(cache.join(format!("{commit}.lock"))).context("cannot write to the cache of builds")?;
    while flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
        pause()?;
    }
    let kept = cache.join(&commit);
    if kept.join(PROGRAM).is_file() {
        return Ok(kept.join(PROGRAM));
    }
    note(&format!(
        "siga compiles revision {revision} (commit {}) of {}, which can take some minutes",
        commit.get(..12).unwrap_or(&commit),
        checkout.display()
    ));
    let work = Work(cache.join(format!("{commit}.part")));
    work.remove().context("cannot empty the directory of a build")?;
    let log = cache.join(format!("{commit}.log"));
    let built = compile(checkout, &commit, &work.0, &log).map_err(|error| error.at(format!("revision {revision}")))?;
    fs::create_dir_all(&kept).context("cannot write to the cache of builds")?;
    fs::rename(built, kept.join(PROGRAM)).context("cannot keep the program of a build")?;
    let _only_messages = fs::remove_file(log);
    Ok(kept.join(PROGRAM))
}

/// Returns the path of a revision's program in the cache, with a placeholder for the commit.
pub(super) fn shown(revision: &str) -> PathBuf {
    let base = base().unwrap_or_else(|_| "CACHE".into());
    base.join(format!("COMMIT-OF-{}", revision.replace('/', "-"))).join(PROGRAM)
}

/// Returns the commands that compile a revision, for a list of commands.
pub(crate) fn steps(checkout: &Path, revision: &str) -> Vec<Command> {
    let work = base().unwrap_or_else(|_| "CACHE".into()).join("COMMIT.part");
    let mut all = vec![resolve(checkout, revision)];
    all.extend(clone_and_build(checkout, "COMMIT", &work));
    all
}

/// The directory in which a build works. It is removed when this value is dropped.
struct Work(PathBuf);

impl Work {
    fn remove(&self) -> std::io::Result<()> {
        match fs::remove_dir_all(&self.0) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        // The next build of this commit empties the directory first.
        let _left = self.remove();
    }
}

fn git(directory: &Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(directory);
    command
}

fn resolve(checkout: &Path, revision: &str) -> Command {
    let mut command = git(checkout);
    command.args(["rev-parse", "--verify", "--quiet", "--end-of-options"]).arg(format!("{revision}^{{commit}}"));
    command
}

/// Returns the commit of a revision.
fn commit(checkout: &Path, revision: &str) -> Result<String> {
    let shown = checkout.display();
    let run = |mut command: Command| {
        command.stdin(Stdio::null()).output().map_err(|error| {
            Error::environment(format!("cannot start git: {error}")).hint("install git, or name the file of a program")
        })
    };
    let mut is_checkout = git(checkout);
    is_checkout.args(["rev-parse", "--git-dir"]);
    if !run(is_checkout)?.status.success() {
        return Err(Error::usage(format!("{shown} is not a git checkout that this user may read"))
            .hint("name a git checkout of siga with --checkout DIR"));
    }
    let found = run(resolve(checkout, revision))?;
    let commit = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    let is_commit = commit.len() >= 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !found.status.success() || !is_commit {
        return Err(Error::usage(format!("{shown} has no revision {revision}"))
            .hint(format!("`git -C {shown} log --oneline --all` lists the commits")));
    }
    Ok(commit)
}

/// Returns the directory of all builds.
fn base() -> Result<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let cache = absolute("XDG_CACHE_HOME").or_else(|| Some(absolute("HOME")?.join(".cache")));
    let none = || Error::environment("siga finds no directory for builds").hint("set HOME or XDG_CACHE_HOME");
    Ok(cache.ok_or_else(none)?.join("siga/builds"))
}

/// Makes the directory of all builds, and checks that no other user can change it, because siga executes its files.
fn cache() -> Result<PathBuf> {
    let base = base()?;
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&base);
    made.context(format!("cannot make {}", base.display()))?;
    let found = fs::metadata(&base).context(format!("cannot read {}", base.display()))?;
    if found.uid() != geteuid().as_raw() || found.mode() & 0o022 != 0 {
        return Err(Error::environment(format!("other users can change {}", base.display()))
            .hint(format!("siga executes the programs in it; use `chmod 700 {}` as its owner", base.display())));
    }
    Ok(base)
}

/// Compiles a commit below `work`. Returns the path of the program.
fn compile(checkout: &Path, commit: &str, work: &Path, log: &Path) -> Result<PathBuf> {
    let checkout = checkout.canonicalize().context(format!("cannot open {}", checkout.display()))?;
    let messages = log.with_extension("json");
    let removed = Removed(&messages);
    for command in clone_and_build(&checkout, commit, work) {
        execute(command, &messages, log)?;
    }
    let text = fs::read_to_string(removed.0).context("cannot read the messages of cargo")?;
    let missing = || Error::environment("the revision has no program siga").hint("name a git checkout of siga");
    text.lines().filter_map(executable).next_back().ok_or_else(missing)
}

/// A file that is removed when this value is dropped.
struct Removed<'a>(&'a Path);

impl Drop for Removed<'_> {
    fn drop(&mut self) {
        let _absent = fs::remove_file(self.0);
    }
}

fn clone_and_build(checkout: &Path, commit: &str, work: &Path) -> [Command; 3] {
    let mut clone = Command::new("git");
    clone.args(["clone", "--quiet", "--shared", "--no-checkout"]).arg(checkout).arg(work);
    let mut check_out = git(work);
    check_out.args(["checkout", "--quiet", "--detach", commit]);
    let mut build = Command::new("cargo");
    build.args(["build", "--release", "--locked", "--package", "siga", "--message-format=json-render-diagnostics"]);
    build.current_dir(work);
    // Without the variable, rustup uses the toolchain file of the revision.
    OF_OTHER_BUILDS.iter().for_each(|name| {
        build.env_remove(name);
    });
    [clone, check_out, build]
}

/// Runs a command to its end, with its standard output in the file `output`, and its messages in `log`.
fn execute(mut command: Command, output: &Path, log: &Path) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let create = |path: &Path| File::create(path).context(format!("cannot write {}", path.display()));
    command.stdin(Stdio::null()).stdout(create(output)?).stderr(create(log)?).process_group(0);
    let mut child = command.spawn().map_err(|error| {
        Error::environment(format!("cannot start {program}: {error}"))
            .hint(format!("install {program}, or name the file of a program"))
    })?;
    loop {
        match child.try_wait().context(format!("cannot wait for {program}"))? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => {
                let said = fs::read(log).unwrap_or_default();
                let said = String::from_utf8_lossy(&said).into_owned();
                let lines: Vec<&str> = said.lines().collect();
                let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
                return Err(Error::environment(format!("the build fails: {program} ends with {status}\n{last}"))
                    .hint(format!("all messages of {program} are in {}", log.display())));
            }
            None => {}
        }
        if let Err(error) = pause() {
            if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
                let _gone = kill_process_group(group, Signal::KILL);
            }
            let _status = child.wait();
            return Err(error);
        }
    }
}

fn pause() -> Result<()> {
    if interrupted() {
        return Err(Error::incomplete("interrupted"));
    }
    std::thread::sleep(PAUSE);
    Ok(())
}

/// Returns the program of one of cargo's messages; `None` for other messages.
fn executable(line: &str) -> Option<PathBuf> {
    #[derive(Deserialize)]
    struct Message {
        executable: Option<PathBuf>,
        target: Option<Target>,
    }
    #[derive(Deserialize)]
    struct Target {
        name: String,
        kind: Vec<String>,
    }
    let message: Message = serde_json::from_str(line).ok()?;
    let target = message.target?;
    (target.name == PROGRAM && target.kind == ["bin"]).then_some(message.executable)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_is_found_in_the_messages_of_cargo() {
        let message = |name: &str, kind: &str, executable: &str| {
            format!(
                "{{\"reason\":\"compiler-artifact\",\"target\":{{\"name\":\"{name}\",\"kind\":[\"{kind}\"]}},\"executable\":{executable}}}"
            )
        };
        assert_eq!(executable(&message("siga", "bin", "\"/t/siga\"")), Some("/t/siga".into()));
        assert_eq!(executable(&message("siga", "lib", "null")), None);
        assert_eq!(executable(&message("build-script-build", "custom-build", "\"/t/b\"")), None);
        assert_eq!(executable("{\"reason\":\"build-finished\",\"success\":true}"), None);
        assert_eq!(executable("not a message"), None);
    }
}
