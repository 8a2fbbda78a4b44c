//! The directory of one run: `target/vm/runs/NUMBER`, with the results in `out` and the console's messages in `console.log`.
//!
//! Each run has its own directory, so runs at the same time do not disturb each other. An empty directory is removed at the end of
//! its run. Each start removes old directories.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::directories;
use super::machine::Failure;

/// The number of runs whose results and messages are kept.
const RUNS_KEPT: usize = 20;

#[derive(Debug)]
pub(crate) struct Run {
    directory: PathBuf,
    /// Keeps other processes from removing the directory.
    _in_use: File,
}

impl Run {
    /// Makes a directory for a new run below `cache`, and removes old ones.
    pub(crate) fn new(cache: &Path) -> Result<Self, String> {
        let runs = cache.join("runs");
        let made = fs::create_dir_all(&runs)
            .and_then(|()| directories::remove_old(&runs, RUNS_KEPT, |path| fs::remove_dir_all(path)))
            .and_then(|()| make(&runs));
        made.map_err(|error| format!("{}: {error}", runs.display()))
    }

    /// Makes and returns the directory for results.
    pub(crate) fn out(&self) -> Result<PathBuf, String> {
        let out = self.directory.join("out");
        fs::create_dir(&out).map_err(|error| format!("{}: {error}", out.display()))?;
        Ok(out)
    }

    /// Returns the description of `failure`. Keeps the console's messages, if there are any, in a file that the description names.
    pub(crate) fn describe(&self, failure: &Failure) -> String {
        let what = &failure.what;
        if failure.console.is_empty() {
            return what.clone();
        }
        let path = self.directory.join("console.log");
        match fs::write(&path, &failure.console) {
            Ok(()) => format!("{what} (the console's messages are in {})", path.display()),
            Err(error) => format!("{what} (the console's messages are lost: {}: {error})", path.display()),
        }
    }

    /// Returns the directory for results if it exists. Removes it if it is empty.
    pub(crate) fn results(&self) -> Option<PathBuf> {
        let out = self.directory.join("out");
        // The removal of a directory that is not empty fails.
        let _ = fs::remove_dir(&out);
        out.exists().then_some(out)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if self.results().is_none() {
            // The removal fails if the directory has the console's messages.
            let _ = fs::remove_dir(&self.directory);
        }
    }
}

/// Makes a directory in `runs` whose number is greater than all others.
fn make(runs: &Path) -> io::Result<Run> {
    let mut greatest = 0;
    for entry in fs::read_dir(runs)? {
        let number = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
        greatest = greatest.max(number.unwrap_or_default());
    }
    loop {
        greatest += 1;
        let directory = runs.join(greatest.to_string());
        match fs::create_dir(&directory) {
            // Another run may have taken the number.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
            created => created?,
        }
        if let Some(in_use) = directories::open(&directory)? {
            return Ok(Run { directory, _in_use: in_use });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_says_where_the_messages_of_the_console_are() {
        let cache = tempfile::tempdir().unwrap();
        let run = Run::new(cache.path()).unwrap();
        let failure = |console: &[u8]| Failure { what: "it hangs".to_owned(), console: console.to_vec() };
        assert_eq!(run.describe(&failure(b"")), "it hangs");
        let line = run.describe(&failure(b"[ 1.0] boot"));
        drop(run);
        let path = cache.path().join("runs/1/console.log");
        assert_eq!(line, format!("it hangs (the console's messages are in {})", path.display()));
        assert_eq!(fs::read(path).unwrap(), b"[ 1.0] boot");
    }

    #[test]
    fn runs_at_the_same_time_have_their_own_results() {
        let cache = tempfile::tempdir().unwrap();
        let (first, second) = (Run::new(cache.path()).unwrap(), Run::new(cache.path()).unwrap());
        let (first_out, second_out) = (first.out().unwrap(), second.out().unwrap());
        assert_ne!(first_out, second_out);
        fs::write(first_out.join("result"), "").unwrap();
        drop(first);
        drop(second);
        assert!(first_out.join("result").exists());
        assert!(!cache.path().join("runs/2").exists(), "a run without results left its directory");
    }

    #[test]
    fn only_the_results_of_the_last_runs_are_kept() {
        let cache = tempfile::tempdir().unwrap();
        for _ in 0..RUNS_KEPT + 3 {
            let run = Run::new(cache.path()).unwrap();
            fs::write(run.out().unwrap().join("result"), "").unwrap();
        }
        // The next run removes all except the last ones.
        drop(Run::new(cache.path()).unwrap());
        let mut numbers: Vec<usize> = fs::read_dir(cache.path().join("runs"))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap())
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (4..=RUNS_KEPT + 3).collect::<Vec<usize>>());
    }
}
