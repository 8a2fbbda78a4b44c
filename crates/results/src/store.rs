//! The run directory, which contains the plan and the records of one run. Records are only appended, people and scripts can read
//! all files, and a crash at any moment damages no earlier record.
//!
//! - `plan.toml`, `levels.json` and `environment.json` are written once. A directory with a `plan.toml` is a run.
//! - `trials.jsonl`, `paths.jsonl` and `skipped.jsonl` get one line for each record, and so do `series.jsonl` and
//!   `monitor.jsonl` if the user wants a time series. If a crash left the last line incomplete, that line is removed when the run is
//!   resumed. All earlier lines stay.
//! - `end.json` is written when the run ends.
//! - Only one process at a time may write. The writing process holds a lock on `trials.jsonl`.
//!
//! An attacker may have written a run directory, so every access follows the rules of the module `directory`. The module `limits`
//! has maximum sizes of files and lines. A larger file or line is neither read nor written.

use crate::directory::Directory;
use crate::environment::{Environment, differences};
use crate::limits;
use crate::monitor::MonitorRecord;
use crate::record::{PathRecord, Skipped, TrialRecord};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use siga_model::error::{Error, IoContext, Result};
use siga_plan::level::Level;
use siga_plan::matrix::Cell;
use siga_plan::plan::Plan;
use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A run directory that is open for writing.
#[derive(Debug)]
pub struct Store {
    directory: Directory,
    trials: File,
    paths: File,
    skipped: File,
}

/// The contents of a run directory.
#[derive(Debug, Clone)]
pub struct Run {
    /// Path of the run directory.
    pub directory: PathBuf,
    /// The plan of the run.
    pub plan: Plan,
    /// The levels of the run's cells, as they were when the run began.
    pub levels: Vec<Level>,
    /// The environment (host, kernel, siga program) in which the run was measured.
    pub environment: Environment,
    /// All finished trials, in the order in which they were measured.
    pub trials: Vec<TrialRecord>,
    /// The settings of the paths, as read back when each path was built.
    pub paths: Vec<PathRecord>,
    /// The cells that were not measured.
    pub skipped: Vec<Skipped>,
    /// The samples of the monitor, if the run took any.
    pub monitor: Vec<MonitorRecord>,
    /// Damage in the files, in words: incomplete last lines, repeated trials. The damaged parts are left out.
    pub damage: Vec<String>,
    /// Whether the run has ended. False if the run still measures or was interrupted.
    pub ended: bool,
}

const PLAN: &str = "plan.toml";
const ENVIRONMENT: &str = "environment.json";
const LEVELS: &str = "levels.json";
const TRIALS: &str = "trials.jsonl";
const PATHS: &str = "paths.jsonl";
const SKIPPED: &str = "skipped.jsonl";
const SERIES: &str = "series.jsonl";
const MONITOR: &str = "monitor.jsonl";
const END: &str = "end.json";
/// Temporary names of the files that are written once. Each is then renamed to its final name.
pub const TEMPORARY: [&str; 4] = ["plan.part", "environment.part", "levels.part", "end.part"];
/// Names of the files to which records are appended.
pub const RECORDS: [&str; 3] = [TRIALS, PATHS, SKIPPED];
const ELSEWHERE: &str = "with --out, choose a directory that you own and can write to";
const GO_ON: &str = "resume the run as the user who started it, or start a new run with --out";

/// The contents of `end.json`.
#[derive(serde::Deserialize)]
struct End {
    /// Number of trials when the run ended. If `trials.jsonl` now contains a different number of trials, the run was resumed or
    /// lines were removed from the file. The run then does not count as ended.
    trials: usize,
}

impl Store {
    /// Creates a new run directory.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the directory already contains a run. Returns an error of kind `Environment` if the
    /// directory cannot be written, if it belongs to another user, or if other users may write to it.
    pub fn create(directory: &Path, plan: &Plan, environment: &Environment) -> Result<(Self, Run)> {
        let made = Directory::create(directory).map_err(|error| cannot_make(directory, &error))?;
        Self::begin(made, plan, environment)
    }

    /// Creates the run directory `first`. If this path exists, a number is appended to its name: `first-2`, `first-3`. So two runs
    /// that begin at the same moment get a directory each.
    ///
    /// # Errors
    /// Returns the errors of `create`.
    pub fn create_unused(first: &Path, plan: &Plan, environment: &Environment) -> Result<(Self, Run)> {
        let (mut path, mut number) = (first.to_owned(), 1);
        let made = loop {
            match Directory::create_unused(&path) {
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < limits::ENTRIES_MAX => {
                    number += 1;
                    let mut name = first.as_os_str().to_owned();
                    name.push(format!("-{number}"));
                    path = name.into();
                }
                made => break made,
            }
        };
        Self::begin(made.map_err(|error| cannot_make(&path, &error))?, plan, environment)
    }

    fn begin(directory: Directory, plan: &Plan, environment: &Environment) -> Result<(Self, Run)> {
        let elsewhere = |error: Error| error.hint(ELSEWHERE);
        need_empty(&directory)?;
        let store = Self::open_files(directory, ELSEWHERE)?;
        // Check again under the lock, because another process may have written a run since the first check.
        need_empty(&store.directory)?;
        let json = serde_json::to_string_pretty(environment).context("cannot encode the description of the host")?;
        write_whole(&store.directory, ENVIRONMENT, &json, limits::RUN_FILE_BYTES_MAX).map_err(elsewhere)?;
        let json =
            serde_json::to_string_pretty(&plan.matrix()?.levels).context("cannot encode the levels of the plan")?;
        write_whole(&store.directory, LEVELS, &json, limits::LEVELS_BYTES_MAX).map_err(elsewhere)?;
        // The plan is written last, because a directory without a plan is not a run yet.
        write_whole(&store.directory, PLAN, &plan.to_toml()?, siga_plan::limits::PLAN_BYTES_MAX).map_err(elsewhere)?;
        // Read through the descriptor of the open directory, because its path may lead to another directory by now.
        let (run, _) = Run::read(&store.directory)?;
        Ok((store, run))
    }

    /// Opens a run directory to resume the run. `environment` is the present environment of this host. Incomplete last lines of
    /// files are removed and listed in `damage`.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if there is no run or if its levels have changed. Returns an error of kind `Environment`
    /// if:
    /// - the directory cannot be read, belongs to another user, can be written by others, or is damaged elsewhere than at the end
    ///   of a file,
    /// - another process is writing to it,
    /// - or this host has changed since the run began.
    pub fn resume(directory: &Path, environment: &Environment) -> Result<(Self, Run)> {
        let directory = Directory::own(directory).map_err(|error| {
            if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) {
                return no_run(directory, &error);
            }
            Error::environment(format!("cannot write to {}: {error}", directory.display())).hint(GO_ON)
        })?;
        same_levels(&directory, &read_plan(&directory)?)?;
        same_environment(&read_environment(&directory)?, environment)?;
        let (store, mut run, cut) = Self::open_mended(directory)?;
        run.damage.splice(0..0, cut.iter().map(|cut| format!("mended {}", cut.words)));
        Ok((store, run))
    }

    /// Removes incomplete last lines of files, and returns a message about each. Unlike `resume`, this function also works if the
    /// levels or the host have changed.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if there is no run. Returns an error of kind `Environment` if the directory cannot be read
    /// or another process is writing to it. Damage elsewhere than at the end of a file is also an error of kind `Environment`.
    pub fn mend(directory: Directory) -> Result<Vec<String>> {
        let (_, _, cut) = Self::open_mended(directory)?;
        Ok(cut.into_iter().map(|cut| cut.words).collect())
    }

    fn open_mended(directory: Directory) -> Result<(Self, Run, Vec<Cut>)> {
        let store = Self::open_files(directory, GO_ON)?;
        // Read after locking, so that all records of a process that wrote before are included.
        let (run, cut) = Run::read(&store.directory)?;
        for Cut { name, whole, .. } in &cut {
            let place = store.directory.place(name);
            let samples;
            let file = match *name {
                TRIALS => &store.trials,
                PATHS => &store.paths,
                SKIPPED => &store.skipped,
                _ => {
                    samples = store.lines(name)?.file;
                    &samples
                }
            };
            let is_longer = file.metadata().is_ok_and(|file| file.len() > *whole);
            if is_longer {
                file.set_len(*whole)
                    .context(format!("cannot remove the incomplete last line of {}", place.display()))?;
            }
        }
        Ok((store, run, cut))
    }

    fn open_files(directory: Directory, way_out: &str) -> Result<Self> {
        let open = |name: &str| {
            directory.append(name).map_err(|error| {
                Error::environment(format!("cannot write {}: {error}", directory.place(name).display())).hint(way_out)
            })
        };
        let trials = open(TRIALS)?;
        flock(&trials, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => {
                Error::environment(format!("another process is writing to {}", directory.path().display()))
                    .hint("wait until that process ends, or choose another directory with --out")
            }
            error => Error::environment(format!("cannot lock {}: {error}", directory.place(TRIALS).display()))
                .hint("choose a directory on a local disk"),
        })?;
        let (paths, skipped) = (open(PATHS)?, open(SKIPPED)?);
        Ok(Self { directory, trials, paths, skipped })
    }

    /// Appends a finished trial.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the disk is full or fails. Earlier records stay intact.
    pub fn add_trial(&mut self, trial: &TrialRecord) -> Result<()> {
        append(&mut self.trials, trial, &self.directory.place(TRIALS))
    }

    /// Opens the file of the run's time series, which no report reads.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the file cannot be opened.
    pub fn series(&self) -> Result<SeriesFile> {
        self.lines(SERIES)
    }

    /// Opens the file of the monitor's samples.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the file cannot be opened.
    pub fn monitor(&self) -> Result<SeriesFile> {
        self.lines(MONITOR)
    }

    fn lines(&self, name: &str) -> Result<SeriesFile> {
        let path = self.directory.place(name);
        let file = self.directory.append(name).context(format!("cannot write {}", path.display()))?;
        Ok(SeriesFile { file, path })
    }

    /// Appends the settings of a path, as read back when it was built.
    ///
    /// # Errors
    /// Returns the errors of `add_trial`.
    pub fn add_path(&mut self, path: &PathRecord) -> Result<()> {
        append(&mut self.paths, path, &self.directory.place(PATHS))
    }

    /// Marks the run as ended with this number of trials. If the run is resumed and adds trials, the number differs, so the run
    /// does not count as ended.
    ///
    /// # Errors
    /// Returns the errors of `add_trial`.
    pub fn end(&self, trials: usize) -> Result<()> {
        let text = format!("{{\"trials\": {trials}}}\n");
        write_whole(&self.directory, END, &text, limits::RUN_FILE_BYTES_MAX)
    }

    /// Appends the reason why a cell was not measured.
    ///
    /// # Errors
    /// Returns the errors of `add_trial`.
    pub fn add_skipped(&mut self, skipped: &Skipped) -> Result<()> {
        append(&mut self.skipped, skipped, &self.directory.place(SKIPPED))
    }
}

/// A file of records that a run takes during its trials: its time series, or the samples of the monitor.
#[derive(Debug)]
pub struct SeriesFile {
    file: File,
    path: PathBuf,
}

impl SeriesFile {
    /// Appends a record.
    ///
    /// # Errors
    /// Returns the errors of [`Store::add_trial`].
    pub fn add(&mut self, record: &impl Serialize) -> Result<()> {
        append(&mut self.file, record, &self.path)
    }
}

impl Run {
    /// Returns the cells that have a trial, in the order of the plan. The levels come from the run directory, so files that the
    /// plan names are not opened.
    pub fn cells(&self) -> Vec<Cell> {
        let planned = self.plan.matrix_with(&self.levels).map(|matrix| matrix.cells).unwrap_or_default();
        let mut left: HashSet<&Cell> = self.trials.iter().map(|trial| &trial.cell).collect();
        let mut cells: Vec<Cell> = planned.into_iter().filter(|cell| left.remove(cell)).collect();
        for trial in &self.trials {
            if left.remove(&trial.cell) {
                cells.push(trial.cell.clone());
            }
        }
        cells
    }

    /// Reads a run directory. Incomplete last lines of files and repeated trials are left out and listed in `damage`.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if there is no run. Returns an error of kind `Environment` if the directory cannot be read,
    /// or if it is damaged elsewhere than at the end of a file.
    pub fn load(directory: &Path) -> Result<Self> {
        let (mut run, cut) = Self::read(&open_run(directory)?)?;
        run.damage.splice(0..0, cut.into_iter().map(|cut| cut.words));
        Ok(run)
    }

    /// Returns a message about each file whose last line is incomplete.
    ///
    /// # Errors
    /// Returns the errors of `load`.
    pub fn cut_lines(directory: &Directory) -> Result<Vec<String>> {
        Self::read(directory).map(|(_, cut)| cut.into_iter().map(|cut| cut.words).collect())
    }

    /// Reads a run. Returns the run and a list of the incomplete last lines.
    fn read(directory: &Directory) -> Result<(Self, Vec<Cut>)> {
        let plan = read_plan(directory)?;
        let environment = read_environment(directory)?;
        let mut cut = Vec::new();
        let mut trials: Vec<TrialRecord> = read_lines(directory, TRIALS, &mut cut)?;
        let damage = drop_repeated(&mut trials, &directory.place(TRIALS)).into_iter().collect();
        let run = Self {
            directory: directory.path().to_owned(),
            plan,
            levels: read_levels(directory)?,
            environment,
            ended: read_end(directory)? == Some(trials.len()),
            trials,
            paths: read_lines(directory, PATHS, &mut cut)?,
            skipped: read_lines(directory, SKIPPED, &mut cut)?,
            monitor: read_lines(directory, MONITOR, &mut cut)?,
            damage,
        };
        Ok((run, cut))
    }
}

/// An incomplete last line of a file: a crash interrupted the write, so the line does not end with a line feed.
struct Cut {
    /// Name of the file.
    name: &'static str,
    /// Number of bytes before the incomplete line.
    whole: u64,
    /// The message about the incomplete line.
    words: String,
}

/// Returns true if a directory contains a `plan.toml`.
pub fn is_run(directory: &Path) -> bool {
    Directory::open(directory).is_ok_and(|directory| has_plan(&directory))
}

/// Returns the path of the newest run below the directory `runs` that has a record of a trial.
///
/// # Errors
/// Returns an error of kind `Usage` if there is no such run.
pub fn newest(runs: &Path) -> Result<PathBuf> {
    let hint = "choose a run directory with --run DIR";
    let none = |why: String| {
        Error::usage(format!("there is no run with a finished trial in {}/{why}", runs.display())).hint(hint)
    };
    let all = Directory::open(runs).and_then(|all| Ok((all.names()?, all)));
    let (names, all) = all.map_err(|error| none(format!(": {error}")))?;
    let begun = |name| {
        let run = all.below(name).ok()?;
        if run.entry(TRIALS).ok()??.bytes == 0 {
            return None;
        }
        Some((run.entry(PLAN).ok()??.modified?, run.path().to_owned()))
    };
    names.iter().filter_map(|name| begun(name)).max().map(|(_, path)| path).ok_or_else(|| none(String::new()))
}

fn has_plan(directory: &Directory) -> bool {
    directory.entry(PLAN).is_ok_and(|entry| entry.is_some())
}

/// Keeps the first trial of each cell and round, and removes repeated ones. Keeping the first adds no bias, because repeated
/// trials are in random order. Returns a message about the removed trials; `None` if there are none.
fn drop_repeated(trials: &mut Vec<TrialRecord>, place: &Path) -> Option<String> {
    let all = trials.len();
    let mut seen: HashSet<(Cell, u32)> = HashSet::new();
    trials.retain(|trial| seen.insert((trial.cell.clone(), trial.round)));
    let words = match all - trials.len() {
        0 => return None,
        1 => "1 trial has".to_owned(),
        repeated => format!("{repeated} trials have"),
    };
    Some(format!(
        "{}: {words} the same cell and round as an earlier trial; siga uses only the earlier one",
        place.display()
    ))
}

fn cannot_make(directory: &Path, error: &io::Error) -> Error {
    // An error of the kernel has a number (errno). All other errors concern a directory that exists already.
    let what = if error.raw_os_error().is_some() { "make" } else { "write to" };
    Error::environment(format!("cannot {what} {}: {error}", directory.display())).hint(ELSEWHERE)
}

fn no_run(directory: &Path, error: &io::Error) -> Error {
    Error::usage(format!("{} is not a run directory: cannot read {PLAN}: {error}", directory.display()))
        .hint("use the directory of a run; `siga run` prints the name of the directory at the end")
}

fn open_run(directory: &Path) -> Result<Directory> {
    Directory::open(directory).map_err(|error| no_run(directory, &error))
}

fn read_plan(directory: &Directory) -> Result<Plan> {
    let text = directory.read(PLAN, siga_plan::limits::PLAN_BYTES_MAX).map_err(|error| match has_plan(directory) {
        true => unreadable(directory, PLAN, &error),
        false => no_run(directory.path(), &error),
    })?;
    Plan::of_run(&text, &directory.place(PLAN).display().to_string())
}

/// Returns the number of trials when the run ended; `None` if it has not ended.
fn read_end(directory: &Directory) -> Result<Option<usize>> {
    match directory.read(END, limits::RUN_FILE_BYTES_MAX) {
        Ok(text) => Ok(serde_json::from_str::<End>(&text).ok().map(|end| end.trials)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(unreadable(directory, END, &error)),
    }
}

fn read_levels(directory: &Directory) -> Result<Vec<Level>> {
    read_json(directory, LEVELS, limits::LEVELS_BYTES_MAX)
}

fn read_environment(directory: &Directory) -> Result<Environment> {
    read_json(directory, ENVIRONMENT, limits::RUN_FILE_BYTES_MAX)
}

fn unreadable(directory: &Directory, name: &str, error: &io::Error) -> Error {
    Error::environment(format!("cannot read {}: {error}", directory.place(name).display()))
        .hint("a run directory needs this file; restore it from the original run, or do not use the run")
}

/// Reads a JSON file that is written once, when a run begins.
fn read_json<T: DeserializeOwned>(directory: &Directory, name: &str, most: u64) -> Result<T> {
    let text = directory.read(name, most).map_err(|error| unreadable(directory, name, &error))?;
    serde_json::from_str(&text)
        .context(format!("{} is damaged", directory.place(name).display()))
        .map_err(|error| error.hint("the file was changed after siga wrote it; restore it, or do not use the run"))
}

/// Returns an error if this host has changed since the run began, because new trials would not be comparable with the earlier
/// ones.
fn same_environment(begun: &Environment, now: &Environment) -> Result<()> {
    let changed: Vec<String> = differences(begun, now)
        .into_iter()
        .filter(|difference| difference.matters)
        .map(|difference| difference.to_string())
        .collect();
    match changed.as_slice() {
        [] => Ok(()),
        changed => {
            Err(Error::environment(format!("this host has changed since the run started: {}", changed.join("; "))).hint(
                "siga could not compare new trials with the recorded trials; start a new run, or restore the host's settings",
            ))
        }
    }
}

/// Returns an error if a level has changed since the run began, because trials of two different levels would then have the same
/// level name.
fn same_levels(directory: &Directory, plan: &Plan) -> Result<()> {
    let begun = read_levels(directory)?;
    let place = directory.place(LEVELS);
    let levels = plan.matrix()?.levels;
    match levels.iter().find(|level| !begun.contains(level)) {
        Some(level) => Err(Error::usage(format!("level {} has changed since the run started", level.name))
            .hint(format!("{} contains the recorded level; restore the level, or start a new run", place.display()))),
        None => Ok(()),
    }
}

/// Returns an error if the directory contains a run or the records of a run.
fn need_empty(directory: &Directory) -> Result<()> {
    let shown = directory.path().display();
    if has_plan(directory) {
        return Err(Error::usage(format!("{shown} already contains a run"))
            .hint("resume it with `siga run --resume DIR`, or choose another directory with --out"));
    }
    let has_lines = |name: &&&str| directory.entry(name).is_ok_and(|entry| entry.is_some_and(|file| file.bytes > 0));
    match RECORDS.iter().find(has_lines) {
        Some(name) => Err(Error::usage(format!("{shown} contains {name} of a run, but no {PLAN}"))
            .hint("restore the plan and resume with `siga run --resume DIR`, or choose another directory with --out")),
        None => Ok(()),
    }
}

/// Writes a file atomically: writes it under a temporary name, then renames it.
fn write_whole(directory: &Directory, name: &str, text: &str, most: u64) -> Result<()> {
    let cannot = |why: &dyn std::fmt::Display| {
        Error::environment(format!("cannot write {}: {why}", directory.place(name).display()))
    };
    if text.len() as u64 > most {
        return Err(cannot(&format!("the file would have more than {most} bytes")));
    }
    let stem = name.split('.').next().unwrap_or(name);
    directory.replace(name, &format!("{stem}.part"), text.as_bytes()).map_err(|error| cannot(&error))
}

/// Appends one line. If this fails, the file is truncated to its old length.
fn append<T: Serialize>(file: &mut File, value: &T, path: &Path) -> Result<()> {
    let mut line = serde_json::to_vec(value).context(format!("cannot write {}", path.display()))?;
    line.push(b'\n');
    let before = file.seek(SeekFrom::End(0)).context(format!("cannot write {}", path.display()))?;
    let bytes = line.len() as u64;
    if bytes > limits::RECORD_BYTES_MAX || before + bytes > limits::RECORDS_BYTES_MAX {
        let (line, file) = (limits::RECORD_BYTES_MAX, limits::RECORDS_BYTES_MAX);
        return Err(Error::environment(format!(
            "cannot write {}: a record may have at most {line} bytes, and the file at most {file} bytes",
            path.display()
        ))
        .hint("siga keeps the earlier trials; split the plan into several runs"));
    }
    file.write_all(&line).map_err(|error| {
        let _ = file.set_len(before);
        Error::environment(format!("cannot write {}: {error}", path.display()))
            .hint("siga keeps the earlier trials; free disk space, then resume with `siga run --resume DIR`")
    })
}

/// Reads records line by line. If the file or a line is too long, returns an error and no records. An incomplete last line is
/// added to `cut`.
fn read_lines<T: DeserializeOwned>(directory: &Directory, name: &'static str, cut: &mut Vec<Cut>) -> Result<Vec<T>> {
    let path = directory.place(name);
    let cannot = |error: io::Error| unreadable(directory, name, &error);
    let file = match directory.open_file(name) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(cannot(error)),
    };
    let most = limits::RECORDS_BYTES_MAX;
    if file.metadata().map_err(cannot)?.len() > most {
        return Err(cannot(io::Error::other(format!("the file has more than {most} bytes"))));
    }
    let mut reader = BufReader::new(file.take(most));
    let (mut values, mut line, mut whole) = (Vec::new(), Vec::new(), 0);
    for number in 1.. {
        line.clear();
        let bytes = (&mut reader).take(limits::RECORD_BYTES_MAX).read_until(b'\n', &mut line).map_err(cannot)? as u64;
        if line.last() != Some(&b'\n') {
            if bytes == limits::RECORD_BYTES_MAX {
                let words = format!("{} line {number} has {bytes} bytes or more", path.display());
                return Err(
                    Error::environment(words).hint("the records of siga are shorter; remove the line to ignore it")
                );
            }
            if bytes > 0 {
                let words = format!("{}: the last line is incomplete ({bytes} bytes)", path.display());
                cut.push(Cut { name, whole, words });
            }
            break;
        }
        whole += bytes;
        if bytes > 1 {
            values.push(serde_json::from_slice(&line).map_err(|error| {
                Error::environment(format!("{} line {number}: {error}", path.display()))
                    .hint("the file was changed after siga wrote it; remove the line to ignore this record")
            })?);
        }
    }
    Ok(values)
}
