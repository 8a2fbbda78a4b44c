//! Removes the processes and files that a crash of siga can leave behind.
//!
//! A crash leaves little behind. Namespaces and BPF programs have no names in the file system, so they end with the processes that
//! use them. A process of siga is killed when its parent dies, and exits when its input ends. Three things can remain:
//! - a process that still carries out an order (a message from its parent). This happens if the parent died before the process
//!   could ask the kernel to kill it when the parent dies;
//! - a program file that siga on another host copied here (a place `ssh:`), and that was never started;
//! - in a run directory, a temporary file that was not yet renamed, or an incomplete line at the end of a file.
//!
//! This module removes nothing else. It keeps files and processes of other users, and every file that was written within the
//! last minute. It does not follow symbolic links (see `directory`).

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_results::directory::{Directory, Entry};
use siga_results::store::{RECORDS, Run, Store, TEMPORARY};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::Read;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Minimum age of a file that may be removed. A more recent file may still be in use.
const AGE_MIN: Duration = Duration::from_secs(60);
/// Time that a process has to exit after a signal. After SIGTERM and this time, siga sends SIGKILL.
const LEAVE_TIME_MAX: Timespec = Timespec { tv_sec: 2, tv_nsec: 0 };
/// Number of Xs in the pattern `siga.XXXXXXXXXX`. The program mktemp replaces each X with a random character.
const SUFFIX_LETTERS: usize = 10;

/// A process or file that a crash of siga left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Removed {
    /// Description of the process or file, and where it was found.
    pub what: String,
    /// The reason why it could not be removed. `None` if it was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The processes and files that siga found, and whether they could be removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cleaning {
    /// The places in which siga searched, as text.
    pub looked: Vec<String>,
    /// The processes and files that siga found.
    pub found: Vec<Removed>,
}

impl Cleaning {
    /// Checks that everything that was found has been removed.
    ///
    /// # Errors
    /// Returns an error of kind `Incomplete` if something could not be removed.
    pub fn verdict(&self) -> Result<()> {
        let left = self.found.iter().filter(|removed| removed.problem.is_some()).count();
        match left {
            0 => Ok(()),
            _ => Err(Error::incomplete(format!("siga could not remove {left} leftovers of earlier runs"))
                .hint("the report gives the reasons")),
        }
    }

    fn add(&mut self, what: String, outcome: std::result::Result<(), String>) {
        self.found.push(Removed { what, problem: outcome.err() });
    }
}

/// Searches for leftover processes and program files of the calling user, and for incomplete files in the run directories
/// below `runs`. Removes what it finds.
pub fn clean(runs: &Path) -> Cleaning {
    let mut cleaning = Cleaning::default();
    cleaning.looked.push("processes of siga whose parent process has ended".into());
    for orphan in processes().iter().filter(|process| process.is_orphan()) {
        cleaning.add(format!("process {} (siga {})", orphan.pid, orphan.role), orphan.end());
    }
    let mut places = vec![PathBuf::from("/tmp"), std::env::temp_dir()];
    places.dedup();
    for place in places {
        cleaning
            .looked
            .push(format!("{}/siga.XXXXXXXXXX: copies of siga's program file that are not running", place.display()));
        if let Ok(place) = Directory::open(&place) {
            for name in copied_programs(&place) {
                cleaning.add(place.place(&name).display().to_string(), removed(&place, &name));
            }
        }
    }
    cleaning.looked.push(format!("{}/*: incomplete files and lines of runs", runs.display()));
    // This directory can be the default, which the user did not name. So if it is a symbolic link, the link is not followed
    // either.
    let here = runs.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let all = Directory::open(here).and_then(|here| here.below(runs.file_name().unwrap_or_default()));
    if let Ok(all) = all {
        for name in all.names().unwrap_or_default() {
            // Skip directories of other users.
            if let Ok(directory) = all.below(&name).and_then(Directory::into_own) {
                mend(directory, &mut cleaning);
            }
        }
    }
    cleaning
}

fn removed(directory: &Directory, name: impl AsRef<OsStr>) -> std::result::Result<(), String> {
    directory.remove(name).map_err(|error| error.to_string())
}

fn entries(directory: &Path) -> impl Iterator<Item = PathBuf> {
    let mut all: Vec<_> = fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    all.sort();
    all.into_iter()
}

/// The subcommands of processes that a run starts, and that a run that crashes can leave behind.
const ROLES: [&str; 3] = ["namespace-holder", "agent", "measurer"];

/// A process that siga started.
#[derive(Debug, PartialEq, Eq)]
struct Process {
    pid: i32,
    parent: i32,
    /// The subcommand of siga that the process runs: one of [`ROLES`].
    role: String,
    /// Whether the process runs a copy of siga that came from another host over ssh. If so, its parent is not siga, but a
    /// process of the ssh server.
    is_copy: bool,
}

/// Returns the processes of the calling user that siga has started.
fn processes() -> Vec<Process> {
    let pid = |path: PathBuf| path.file_name()?.to_str()?.parse().ok();
    entries(Path::new("/proc")).filter_map(pid).filter_map(process).collect()
}

fn process(pid: i32) -> Option<Process> {
    if owner(&pid.to_string())? != geteuid().as_raw() {
        return None;
    }
    let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let words: Vec<&str> = line.split(|&byte| byte == 0).map(|word| std::str::from_utf8(word).unwrap_or("")).collect();
    let parent = i32::try_from(status_number(&pid.to_string(), "PPid:", 0)?).ok()?;
    let [program, role, options @ ..] = &words[..] else { return None };
    if !ROLES.contains(role) {
        return None;
    }
    let is_copy = options.contains(&"--unlink") && is_copied_name(Path::new(program));
    (*program == "/proc/self/exe" || is_copy).then(|| Process { pid, parent, role: (*role).into(), is_copy })
}

/// Returns the number in column `at` (the first after the name is 0) of the line `name` in `/proc/PID/status`.
fn status_number(pid: &str, name: &str, at: usize) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().nth(at)?.parse().ok()
}

/// Returns the effective user id of a process. The owner of the directory /proc/PID would be wrong for a process that has
/// entered a user namespace: it is root.
fn owner(pid: &str) -> Option<u32> {
    status_number(pid, "Uid:", 1)
}

impl Process {
    /// Returns whether the process that started this process has ended. siga starts processes from its own program file and as its
    /// own user. So if the current parent has another program file or user, the original parent has ended, and the current parent
    /// has adopted this process. The program file of a process in a user namespace cannot be read. Such a process counts as an
    /// orphan only if its parent is init or belongs to another user.
    fn is_orphan(&self) -> bool {
        let program =
            |pid: &str| fs::metadata(format!("/proc/{pid}/exe")).map(|file| (file.st_dev(), file.st_ino())).ok();
        let parent = self.parent.to_string();
        if self.is_copy {
            return self.parent == 1;
        }
        match (program(&self.pid.to_string()), program(&parent)) {
            (Some(own), Some(parent)) => own != parent,
            (None, _) | (_, None) => {
                let of_another = owner(&parent).is_some_and(|user| user != geteuid().as_raw());
                of_another || (self.parent == 1 && program("1") != program("self"))
            }
        }
    }

    /// Ends the process with SIGTERM, or with SIGKILL if it does not exit in time.
    fn end(&self) -> std::result::Result<(), String> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(()) };
        let descriptor = match pidfd_open(pid, PidfdFlags::empty()) {
            Ok(descriptor) => descriptor,
            Err(Errno::SRCH) => return Ok(()),
            Err(error) => return Err(error.to_string()),
        };
        // From now on, the descriptor always refers to the same process. But another process may have got the id before the
        // descriptor was opened. So check again that it is the same process.
        if process(self.pid).as_ref() != Some(self) {
            return Ok(());
        }
        for signal in [Signal::TERM, Signal::KILL] {
            match pidfd_send_signal(&descriptor, signal) {
                Ok(()) => {}
                Err(Errno::SRCH) => return Ok(()),
                Err(error) => return Err(error.to_string()),
            }
            if poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&LEAVE_TIME_MAX)).is_ok_and(|count| count > 0)
            {
                return Ok(());
            }
        }
        Err("the process still runs, although siga sent it SIGTERM and SIGKILL".into())
    }
}

/// Returns whether a file's name has the form of siga's copies on other hosts: `siga.` and ten letters or digits.
fn is_copied_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    name.and_then(|name| name.strip_prefix("siga."))
        .is_some_and(|suffix| suffix.len() == SUFFIX_LETTERS && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// Returns the names of files in the directory `place` that are copies of siga from another host, belong to the calling user,
/// and are not running.
fn copied_programs(place: &Directory) -> Vec<OsString> {
    let is_ours = |entry: Entry| entry.is_file() && entry.owner == geteuid().as_raw() && is_old(entry);
    let is_stale = |name: &OsString| {
        is_copied_name(Path::new(name))
            && place.entry(name).is_ok_and(|entry| entry.is_some_and(is_ours))
            && is_program(place, name)
            && !place.is_running(name)
    };
    let mut names = place.names().unwrap_or_default();
    names.retain(is_stale);
    names
}

fn is_old(entry: Entry) -> bool {
    entry.modified.is_some_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age >= AGE_MIN))
}

fn is_program(place: &Directory, name: &OsStr) -> bool {
    let mut start = [0; 4];
    place.open_file(name).and_then(|mut file| file.read_exact(&mut start)).is_ok() && start == *b"\x7fELF"
}

/// Removes temporary files and incomplete lines from a run directory. Does nothing to a run that is still being written.
fn mend(directory: Directory, cleaning: &mut Cleaning) {
    let entry = |name: &str| directory.entry(name).ok().flatten();
    for name in TEMPORARY {
        if entry(name).is_some_and(|entry| entry.is_file() && is_old(entry)) {
            cleaning.add(directory.place(name).display().to_string(), removed(&directory, name));
        }
    }
    let Ok(cut) = Run::cut_lines(&directory) else { return };
    // A file that a run still writes has an incomplete line for a short time. So an incomplete line is removed only if none of
    // the record files has changed for [`AGE_MIN`].
    if cut.is_empty() || !RECORDS.into_iter().filter_map(entry).all(is_old) {
        return;
    }
    let outcome = Store::mend(directory).map(drop).map_err(|error| error.message().to_owned());
    for line in cut {
        cleaning.add(line, outcome.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_age(path: &Path, seconds: u64) {
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }

    fn copied(place: &Path) -> Vec<PathBuf> {
        copied_programs(&Directory::open(place).unwrap()).iter().map(|name| place.join(name)).collect()
    }

    fn own(directory: &Path) -> Directory {
        Directory::own(directory).unwrap()
    }

    #[test]
    fn only_old_copies_that_do_not_run_are_stale() {
        let place = tempfile::tempdir().unwrap();
        let put = |name: &str, bytes: &[u8], seconds| {
            let path = place.path().join(name);
            fs::write(&path, bytes).unwrap();
            set_age(&path, seconds);
            path
        };
        let elf = b"\x7fELF and more";
        let stale = put("siga.Ab3dE6gH9j", elf, 120);
        put("siga.Ab3dE6gH9k", elf, 0);
        put("siga.Ab3dE6gH9l", b"#!/bin/sh\n", 120);
        put("siga.Ab3dE6gH9", elf, 120);
        put("siga.Ab3dE6gH9-", elf, 120);
        put("other.Ab3dE6gH9", elf, 120);
        std::os::unix::fs::symlink(&stale, place.path().join("siga.linklinkli")).unwrap();
        fs::create_dir(place.path().join("siga.directory1")).unwrap();
        assert_eq!(copied(place.path()), [stale]);
    }

    #[test]
    fn a_program_that_runs_is_not_stale() {
        let place = tempfile::tempdir().unwrap();
        let copy = place.path().join("siga.Ab3dE6gH9j");
        // Another process writes the copy: a file that this process has open for writing could not be started while
        // children of other tests inherit the descriptor.
        assert!(std::process::Command::new("cp").arg("/bin/sleep").arg(&copy).status().unwrap().success());
        set_age(&copy, 120);
        let mut child = std::process::Command::new(&copy).arg("60").spawn().unwrap();
        let while_running = copied(place.path());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(while_running.is_empty(), "{while_running:?}");
        assert_eq!(copied(place.path()), [copy]);
    }

    #[test]
    fn old_files_without_their_final_name_are_removed() {
        let runs = tempfile::tempdir().unwrap();
        let directory = runs.path().join("run");
        fs::create_dir(&directory).unwrap();
        let (old, young) = (directory.join("plan.part"), directory.join("environment.part"));
        fs::write(&old, "x").unwrap();
        fs::write(&young, "x").unwrap();
        set_age(&old, 120);
        let mut cleaning = Cleaning::default();
        mend(own(&directory), &mut cleaning);
        assert_eq!(cleaning.found.len(), 1, "{cleaning:?}");
        assert!(!old.exists() && young.exists());
    }

    #[test]
    fn an_incomplete_line_is_removed_once_nobody_writes() {
        let runs = tempfile::tempdir().unwrap();
        let directory = runs.path().join("run");
        let plan = siga_plan::plan::Plan::default();
        drop(Store::create(&directory, &plan, &siga_results::environment::Environment::default()).unwrap());
        let trials = directory.join("trials.jsonl");
        fs::write(&trials, "{\"cell\":").unwrap();
        let mut cleaning = Cleaning::default();
        mend(own(&directory), &mut cleaning);
        assert!(cleaning.found.is_empty(), "somebody may still be writing: {cleaning:?}");
        for name in RECORDS {
            set_age(&directory.join(name), 120);
        }
        mend(own(&directory), &mut cleaning);
        assert_eq!(cleaning.found.len(), 1, "{cleaning:?}");
        assert!(cleaning.verdict().is_ok() && fs::read(&trials).unwrap().is_empty());
    }

    #[test]
    fn a_process_of_another_program_is_left_alone() {
        assert_eq!(process(i32::try_from(std::process::id()).unwrap()), None);
        assert_eq!(process(1), None);
    }
}
