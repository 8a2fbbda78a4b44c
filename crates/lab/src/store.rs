//! The run directory: append-only, readable by people and scripts, safe against being cut off anywhere.
//!
//! `plan.toml`, `levels.json` and `environment.json` are written once; `trials.jsonl`, `paths.jsonl` and `skipped.jsonl`
//! grow by whole lines; `end.json` is there once the run has ended. A line that a crash has cut off is dropped when the run
//! goes on, everything before it stays. One process at a time may write: it holds a lock on `trials.jsonl`. A directory is
//! taken for a run by its `plan.toml`.

use crate::environment::{Environment, differences};
use crate::error::{Error, IoContext, Result};
use crate::level::Level;
use crate::plan::{Cell, Plan};
use crate::record::{PathRecord, Skipped, TrialRecord};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::HashSet;
use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A run directory open for writing.
#[derive(Debug)]
pub struct Store {
    directory: PathBuf,
    trials: File,
    paths: File,
    skipped: File,
}

/// Everything a run directory holds.
#[derive(Debug, Clone)]
pub struct Run {
    /// Where it lies.
    pub directory: PathBuf,
    /// What was to be measured.
    pub plan: Plan,
    /// The levels that its cells name, as they were when it began.
    pub levels: Vec<Level>,
    /// Where it was measured.
    pub environment: Environment,
    /// Every finished trial, in the order they were measured.
    pub trials: Vec<TrialRecord>,
    /// How paths were built.
    pub paths: Vec<PathRecord>,
    /// What was not measured.
    pub skipped: Vec<Skipped>,
    /// What is wrong with the files and was left out, in words: bytes at their end that a crash has cut off, trials that
    /// are there twice.
    pub damage: Vec<String>,
    /// False if it is still going on, or was cut short.
    pub ended: bool,
}

const PLAN: &str = "plan.toml";
const ENVIRONMENT: &str = "environment.json";
const LEVELS: &str = "levels.json";
const TRIALS: &str = "trials.jsonl";
const PATHS: &str = "paths.jsonl";
const SKIPPED: &str = "skipped.jsonl";
const END: &str = "end.json";

/// What `end.json` says.
#[derive(serde::Deserialize)]
struct End {
    /// Trials there were: with more, or less, the run has gone on or was cut.
    trials: usize,
}

impl Store {
    /// Makes a new run directory.
    ///
    /// # Errors
    /// Usage: there is a run in it already. Environment: it cannot be written.
    pub fn create(directory: &Path, plan: &Plan, environment: &Environment) -> Result<Self> {
        const ELSEWHERE: &str = "give a directory that can be written with --out";
        let elsewhere = |error: Error| error.hint(ELSEWHERE);
        need_empty(directory)?;
        std::fs::create_dir_all(directory)
            .map_err(|error| elsewhere(Error::environment(format!("cannot make {}: {error}", directory.display()))))?;
        let store = Self::open_files(directory, ELSEWHERE)?;
        // Once more under the lock: another process may have been quicker.
        need_empty(directory)?;
        let json = serde_json::to_string_pretty(environment).context("cannot encode the environment")?;
        write_whole(&directory.join(ENVIRONMENT), &json).map_err(elsewhere)?;
        let json = serde_json::to_string_pretty(&plan.matrix()?.levels).context("cannot encode the levels")?;
        write_whole(&directory.join(LEVELS), &json).map_err(elsewhere)?;
        // The plan comes last: a directory without it is no run yet.
        write_whole(&directory.join(PLAN), &plan.to_toml()?).map_err(elsewhere)?;
        Ok(store)
    }

    /// Opens a run directory to go on with it; cut-off lines are removed, which `damage` still tells.
    ///
    /// # Errors
    /// Usage: no run there, or its levels have changed. Environment: unreadable, damaged in the middle, another process is
    /// writing to it, or this host is not what it was.
    pub fn resume(directory: &Path) -> Result<(Self, Run)> {
        same_levels(directory, &read_plan(directory)?)?;
        same_environment(&read_environment(directory)?)?;
        let (store, mut run, mended) = Self::open_mended(directory)?;
        run.damage.splice(0..0, mended.iter().map(|cut| format!("mended {cut}")));
        Ok((store, run))
    }

    /// Removes cut-off lines, and says which; whose levels and host it was does not matter for that.
    ///
    /// # Errors
    /// Usage: no run there. Environment: unreadable, damaged in the middle, or another process is writing to it.
    pub fn mend(directory: &Path) -> Result<Vec<String>> {
        Self::open_mended(directory).map(|(_, _, mended)| mended)
    }

    fn open_mended(directory: &Path) -> Result<(Self, Run, Vec<String>)> {
        let store = Self::open_files(directory, "go on as the user who began the run")?;
        // Read under the lock: what another process has added until then is part of the run.
        let (run, cut) = Run::read(directory)?;
        for name in [TRIALS, PATHS, SKIPPED] {
            drop_cut_line(&directory.join(name))?;
        }
        Ok((store, run, cut))
    }

    fn open_files(directory: &Path, way_out: &str) -> Result<Self> {
        let open =
            |name: &str| {
                let path = directory.join(name);
                OpenOptions::new().create(true).append(true).read(true).open(&path).map_err(|error| {
                    Error::environment(format!("cannot write {}: {error}", path.display())).hint(way_out)
                })
            };
        let trials = open(TRIALS)?;
        flock(&trials, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => Error::environment(format!("another process is writing to {}", directory.display()))
                .hint("wait for it to end, or give another --out"),
            error => Error::environment(format!("cannot lock {}: {error}", directory.join(TRIALS).display()))
                .hint("give a directory on a local disk"),
        })?;
        Ok(Self { directory: directory.to_owned(), trials, paths: open(PATHS)?, skipped: open(SKIPPED)? })
    }

    /// Where it lies.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Adds a finished trial.
    ///
    /// # Errors
    /// Environment: the disk is full or failing; what was there stays whole.
    pub fn add_trial(&mut self, trial: &TrialRecord) -> Result<()> {
        append(&mut self.trials, trial, &self.directory.join(TRIALS))
    }

    /// Adds how a path was built.
    ///
    /// # Errors
    /// See `add_trial`.
    pub fn add_path(&mut self, path: &PathRecord) -> Result<()> {
        append(&mut self.paths, path, &self.directory.join(PATHS))
    }

    /// Marks the run as ended with so many trials; going on with it later takes the mark away.
    ///
    /// # Errors
    /// See `add_trial`.
    pub fn end(&self, trials: usize) -> Result<()> {
        write_whole(&self.directory.join(END), &format!("{{\"trials\": {trials}}}\n"))
    }

    /// Adds why a cell was not measured.
    ///
    /// # Errors
    /// See `add_trial`.
    pub fn add_skipped(&mut self, skipped: &Skipped) -> Result<()> {
        append(&mut self.skipped, skipped, &self.directory.join(SKIPPED))
    }
}

impl Run {
    /// Cells that have a trial, in the order of the plan. Nothing that the plan names is opened.
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

    /// Reads a run directory; a line cut off at the end of a file, or a trial that is there twice, is told in `damage`.
    ///
    /// # Errors
    /// Usage: no run there. Environment: unreadable, or damaged elsewhere than at its end.
    pub fn load(directory: &Path) -> Result<Self> {
        let (mut run, cut) = Self::read(directory)?;
        run.damage.splice(0..0, cut);
        Ok(run)
    }

    /// Lines at the ends of its files that were cut off, in words.
    ///
    /// # Errors
    /// See `load`.
    pub fn cut_lines(directory: &Path) -> Result<Vec<String>> {
        Self::read(directory).map(|(_, cut)| cut)
    }

    /// The run, and what was cut off.
    fn read(directory: &Path) -> Result<(Self, Vec<String>)> {
        let plan = read_plan(directory)?;
        let environment = read_environment(directory)?;
        let mut cut = Vec::new();
        let mut trials: Vec<TrialRecord> = read_lines(&directory.join(TRIALS), &mut cut)?;
        let damage = drop_repeated(&mut trials, &directory.join(TRIALS)).into_iter().collect();
        let run = Self {
            directory: directory.to_owned(),
            plan,
            levels: read_levels(directory)?,
            environment,
            ended: read_end(directory) == Some(trials.len()),
            trials,
            paths: read_lines(&directory.join(PATHS), &mut cut)?,
            skipped: read_lines(&directory.join(SKIPPED), &mut cut)?,
            damage,
        };
        Ok((run, cut))
    }
}

/// Keeps the first trial of each cell and round, as figures by round would count one of them at random; says how many
/// others there were.
fn drop_repeated(trials: &mut Vec<TrialRecord>, place: &Path) -> Option<String> {
    let all = trials.len();
    let mut seen: HashSet<(Cell, u32)> = HashSet::new();
    trials.retain(|trial| seen.insert((trial.cell.clone(), trial.round)));
    let words = match all - trials.len() {
        0 => return None,
        1 => "1 trial repeats".to_owned(),
        repeated => format!("{repeated} trials repeat"),
    };
    Some(format!("{}: {words} a cell and round; the first counts", place.display()))
}

#[cfg(test)]
impl Run {
    /// A run that has ended, of these trials and nothing else.
    pub(crate) fn of(name: &str, trials: Vec<TrialRecord>) -> Self {
        Self {
            directory: name.into(),
            plan: Plan::default(),
            levels: Vec::new(),
            environment: Environment::default(),
            trials,
            paths: Vec::new(),
            skipped: Vec::new(),
            damage: Vec::new(),
            ended: true,
        }
    }
}

fn read_plan(directory: &Path) -> Result<Plan> {
    let place = directory.join(PLAN);
    let text = std::fs::read_to_string(&place).map_err(|error| {
        Error::usage(format!("{} is no run directory: cannot read {PLAN}: {error}", directory.display()))
            .hint("give the directory that `siga run` named at its end")
    })?;
    Plan::parse(&text, &place.display().to_string())
}

/// Trials of a run when it ended; `None` if it has not.
fn read_end(directory: &Path) -> Option<usize> {
    let text = std::fs::read_to_string(directory.join(END)).ok()?;
    serde_json::from_str::<End>(&text).ok().map(|end| end.trials)
}

fn read_levels(directory: &Path) -> Result<Vec<Level>> {
    read_json(&directory.join(LEVELS))
}

fn read_environment(directory: &Path) -> Result<Environment> {
    read_json(&directory.join(ENVIRONMENT))
}

/// A file that is written once, when a run begins.
fn read_json<T: DeserializeOwned>(place: &Path) -> Result<T> {
    let text = std::fs::read_to_string(place).context(format!("cannot read {}", place.display())).map_err(|error| {
        error.hint("a run is not whole without it; put it back from where the run was copied, or leave the run out")
    })?;
    serde_json::from_str(&text)
        .context(format!("{} is damaged", place.display()))
        .map_err(|error| error.hint("it was changed after it was written; put it back as it was, or leave the run out"))
}

/// Fails if this host differs in what makes figures not comparable from what it was when the run began: rounds of two
/// hosts would stand side by side.
fn same_environment(begun: &Environment) -> Result<()> {
    let changed: Vec<String> = differences(begun, &Environment::read())
        .into_iter()
        .filter(|difference| difference.matters)
        .map(|difference| difference.to_string())
        .collect();
    match changed.as_slice() {
        [] => Ok(()),
        changed => {
            Err(Error::environment(format!("this host has changed since the run began: {}", changed.join("; ")))
                .hint("trials of both would not be comparable; begin another run, or put the host back as it was"))
        }
    }
}

/// Fails if a level is not what it was when the run began: trials of two would stand under one name.
fn same_levels(directory: &Path, plan: &Plan) -> Result<()> {
    let begun = read_levels(directory)?;
    let place = directory.join(LEVELS);
    let levels = plan.matrix()?.levels;
    match levels.iter().find(|level| !begun.contains(level)) {
        Some(level) => Err(Error::usage(format!("level {} has changed since the run began", level.name))
            .hint(format!("{} holds what it was; put it back, or begin another run", place.display()))),
        None => Ok(()),
    }
}

/// Fails if there is a run in the directory, or what is left of one.
fn need_empty(directory: &Path) -> Result<()> {
    if directory.join(PLAN).exists() {
        return Err(Error::usage(format!("{} holds a run already", directory.display()))
            .hint("go on with it by `siga run --resume DIR`, or give another --out"));
    }
    let has_lines = |name: &&&str| std::fs::metadata(directory.join(name)).is_ok_and(|file| file.len() > 0);
    match [TRIALS, PATHS, SKIPPED].iter().find(has_lines) {
        Some(name) => Err(Error::usage(format!("{} holds {name} of a run that has no {PLAN}", directory.display()))
            .hint("put its plan back and go on by `siga run --resume DIR`, or give another --out")),
        None => Ok(()),
    }
}

/// Writes a file under another name and renames it, so that it is there whole or not at all.
fn write_whole(path: &Path, text: &str) -> Result<()> {
    let part = path.with_extension("part");
    let written = File::create(&part).and_then(|mut file| {
        file.write_all(text.as_bytes())?;
        file.sync_all()
    });
    written.and_then(|()| std::fs::rename(&part, path)).map_err(|error| {
        let _ = std::fs::remove_file(&part);
        Error::environment(format!("cannot write {}: {error}", path.display()))
    })
}

/// Adds one line; on failure the file is cut back to what it was.
fn append<T: Serialize>(file: &mut File, value: &T, path: &Path) -> Result<()> {
    let mut line = serde_json::to_vec(value).context(format!("cannot write {}", path.display()))?;
    line.push(b'\n');
    let before = file.seek(SeekFrom::End(0)).context(format!("cannot write {}", path.display()))?;
    file.write_all(&line).map_err(|error| {
        let _ = file.set_len(before);
        Error::environment(format!("cannot write {}: {error}", path.display()))
            .hint("what was measured before is safe; make room and go on with `siga run --resume DIR`")
    })
}

fn read_lines<T: DeserializeOwned>(path: &Path, damage: &mut Vec<String>) -> Result<Vec<T>> {
    let mut bytes = Vec::new();
    match File::open(path) {
        Ok(mut file) => file.read_to_end(&mut bytes).context(format!("cannot read {}", path.display()))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::environment(format!("cannot read {}: {error}", path.display()))),
    };
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    if whole < bytes.len() {
        damage.push(format!("{}: a last line of {} bytes was cut off", path.display(), bytes.len() - whole));
    }
    let lines = bytes[..whole].split(|&byte| byte == b'\n').enumerate();
    lines
        .filter(|(_, line)| !line.is_empty())
        .map(|(number, line)| {
            serde_json::from_slice(line).map_err(|error| {
                Error::environment(format!("{} line {}: {error}", path.display(), number + 1))
                    .hint("the file was changed after it was written; remove the line to go on without it")
            })
        })
        .collect()
}

fn drop_cut_line(path: &Path) -> Result<()> {
    let Ok(bytes) = std::fs::read(path) else { return Ok(()) };
    let whole = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |at| at + 1);
    if whole < bytes.len() {
        let file = OpenOptions::new().write(true).open(path).context(format!("cannot mend {}", path.display()))?;
        file.set_len(whole as u64).context(format!("cannot mend {}", path.display()))?;
    }
    Ok(())
}
