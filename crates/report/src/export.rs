//! Exports figures of runs for other programs: either one record for each trial and metric (long form), or a history of runs for
//! Apache Otava.
//!
//! The format is CSV with a header line, RFC 4180 quoting, lines that end in LF, and unrounded figures. `docs/export.md` has the
//! schemas. A text field contains no control character, so each record is one line. If a spreadsheet would read a text as a
//! formula, an apostrophe is put in front of it (`text::field`). Only one run is in memory at a time, except for
//! benchstat.

mod benchstat;
mod otava;
mod trials;

use crate::output::Output;
use siga_model::error::{Error, Result};
use siga_model::text::field;
use siga_plan::accounting::AccountingMethod;
use siga_results::store::Run;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// The form of an export.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Form {
    /// One record for each run, trial and metric.
    #[default]
    Trials,
    /// The CSV that Otava reads: one record for each run, one column for each cell and metric.
    Otava,
    /// Lines of Go benchmarks, which benchstat reads.
    Benchstat,
    /// Otava's configuration file, which describes the CSV that [`Form::Otava`] writes.
    OtavaConfig {
        /// The path from which Otava reads the CSV.
        csv: PathBuf,
    },
}

impl FromStr for Form {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "trials" => Ok(Self::Trials),
            "otava" => Ok(Self::Otava),
            "benchstat" => Ok(Self::Benchstat),
            _ => Err(Error::usage(format!("unknown form `{text}`"))
                .hint("the values of --form are trials, otava and benchstat")),
        }
    }
}

/// Writes the figures of the runs in `directories` to `output`. `method` is the accounting method of CPU times; if it is `None`,
/// the best method for which there is data is used. Calls `note` with each message about a run, for example that the run has no
/// trial.
///
/// # Errors
/// - Usage: a directory does not contain a run, or two directories have the same name.
/// - Environment: a run is damaged, or `output` cannot be written.
/// - Incomplete: the runs have no figure to write.
pub fn export(
    directories: &[PathBuf],
    form: &Form,
    method: Option<AccountingMethod>,
    output: &mut Output<'_>,
    note: &mut dyn FnMut(&str),
) -> Result<()> {
    let names = names(directories)?;
    let mut load = |directory: &Path| -> Result<Option<Run>> {
        let run = Run::load(directory).map_err(|error| match error.way_out() {
            Some(_) => error,
            None => error.hint("restore the original run directory, or export the other runs without it"),
        })?;
        run.damage.iter().for_each(|damage| note(&format!("note: {damage}")));
        if run.trials.is_empty() {
            note(&format!("note: {} contains no trial", directory.display()));
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
        Form::Benchstat => {
            let runs = directories.iter().map(|directory| load(directory)).collect::<Result<Vec<_>>>()?;
            benchstat::write(&runs.into_iter().flatten().collect::<Vec<_>>(), method, output)
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
                Form::Trials | Form::Benchstat | Form::Otava => history.csv(output),
            }
        }
    }
}

/// Returns a name for each directory: the last component of the directory's path, escaped as a text field.
fn names(directories: &[PathBuf]) -> Result<Vec<String>> {
    let mut taken: BTreeMap<String, &Path> = BTreeMap::new();
    let mut names = Vec::new();
    for directory in directories {
        // A path such as "." or ".." does not end in a name, so the absolute path is used.
        let whole = match directory.file_name() {
            Some(_) => directory.clone(),
            None => directory.canonicalize().unwrap_or_else(|_| directory.clone()),
        };
        let name = field(&whole.file_name().unwrap_or(whole.as_os_str()).to_string_lossy());
        if let Some(other) = taken.insert(name.clone(), directory) {
            return Err(Error::usage(format!(
                "the runs {} and {} have the same name `{name}`, so their records would have the same key",
                other.display(),
                directory.display()
            ))
            .hint("list each run only once, or rename one of the directories"));
        }
        names.push(name);
    }
    Ok(names)
}

fn nothing() -> Error {
    Error::incomplete("none of these runs contains a figure to export")
        .hint("`siga show DIR` prints why a run has no figures; `siga run --resume DIR` continues the run")
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
