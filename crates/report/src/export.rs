//! Figures of runs for other programs: every trial in long form, or a history of runs for Apache Otava.
//!
//! The form is CSV with a header line, RFC 4180 quoting, LF and unrounded figures; `docs/export.md` has the schemas. A text
//! field has no control character, so a record is one line; a text like a formula begins with an apostrophe (`text::field`).
//! Only one run at a time is in memory.

mod otava;
mod output;
mod trials;

pub use output::Output;

use siga_model::error::{Error, Result};
use siga_model::text::field;
use siga_plan::accounting::Method;
use siga_results::store::Run;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// What is written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Form {
    /// One record for each run, trial and metric.
    #[default]
    Trials,
    /// The CSV that Otava reads: one record for each run, one column for each cell and metric.
    Otava,
    /// Otava's configuration for that CSV.
    OtavaConfig {
        /// The path by which Otava opens the CSV.
        csv: PathBuf,
    },
}

impl FromStr for Form {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "trials" => Ok(Self::Trials),
            "otava" => Ok(Self::Otava),
            _ => Err(Error::usage(format!("unknown form `{text}`")).hint("forms: trials, otava")),
        }
    }
}

/// Writes the runs in `directories`, with CPU time by `method` (`None`: the best for each cell). Notes
/// about a run, such as that it has no trial, go to `note`.
///
/// # Errors
/// Usage: no run there, or two of the same name. Environment: a damaged run, or `output` cannot be written. Incomplete:
/// there is nothing to write.
pub fn export(
    directories: &[PathBuf],
    form: &Form,
    method: Option<Method>,
    output: &mut Output<'_>,
    note: &mut dyn FnMut(&str),
) -> Result<()> {
    let names = names(directories)?;
    let mut load = |directory: &Path| -> Result<Option<Run>> {
        let run = Run::load(directory).map_err(|error| match error.way_out() {
            Some(_) => error,
            None => error.hint("restore the directory as `siga run` left it, or leave it out"),
        })?;
        run.damage.iter().for_each(|damage| note(&format!("note: {damage}")));
        if run.trials.is_empty() {
            note(&format!("note: {} holds no trial", directory.display()));
        }
        Ok(Some(run).filter(|run| !run.trials.is_empty()))
    };
    match form {
        Form::Trials => {
            let mut writer = trials::Writer::new(method, output);
            for (directory, name) in directories.iter().zip(&names) {
                if let Some(run) = load(directory)? {
                    writer.add(&run, name)?;
                }
            }
            writer.end()
        }
        Form::Otava | Form::OtavaConfig { .. } => {
            let mut history = otava::History::default();
            for (directory, name) in directories.iter().zip(&names) {
                if let Some(run) = load(directory)? {
                    history.add(&run, name, method)?;
                }
            }
            history.notes().for_each(|text| note(&text));
            match form {
                Form::OtavaConfig { csv } => history.config(csv, output),
                Form::Trials | Form::Otava => history.csv(output),
            }
        }
    }
}

/// A name for each directory: its last part, as a field of text.
fn names(directories: &[PathBuf]) -> Result<Vec<String>> {
    let mut taken: BTreeMap<String, &Path> = BTreeMap::new();
    let mut names = Vec::new();
    for directory in directories {
        // "." and ".." have no last part of their own.
        let whole = match directory.file_name() {
            Some(_) => directory.clone(),
            None => directory.canonicalize().unwrap_or_else(|_| directory.clone()),
        };
        let name = field(&whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy());
        if let Some(other) = taken.insert(name.clone(), directory) {
            return Err(Error::usage(format!(
                "{} and {} are both named `{name}`: their records would have the same key",
                other.display(),
                directory.display()
            ))
            .hint("give each run once, or another name to one of the directories"));
        }
        names.push(name);
    }
    Ok(names)
}

fn nothing() -> Error {
    Error::incomplete("none of these runs holds a figure to export")
        .hint("`siga show DIR` says why a run has none; `siga run --resume DIR` resumes it")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_named_by_their_directories_and_no_two_alike() {
        let paths = |list: &[&str]| list.iter().map(PathBuf::from).collect::<Vec<_>>();
        assert_eq!(names(&paths(&["runs/a", "b/", "c/."])).unwrap(), ["a", "b", "c"]);
        assert!(!names(&paths(&["."])).unwrap()[0].is_empty());
        for twice in [["runs/a", "other/a"], ["a", "./a"], ["x/a\n", "y/a\r"]] {
            let error = names(&paths(&twice)).unwrap_err();
            assert_eq!(error.exit_status(), 2);
            assert!(error.way_out().is_some(), "{error}");
        }
    }
}
