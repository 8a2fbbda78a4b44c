//! `siga export`.

use crate::{axes, parse, tell};
use clap::Args;
use siga_measure::sys::duplicate_descriptor;
use siga_model::error::Result;
use siga_plan::accounting::AccountingMethod;
use siga_report::export::{self, Form};
use siga_report::output::Output;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

pub(crate) const HELP: &str = "\
Examples:
  siga export runs/20261120-104133-default >trials.csv
  siga export runs/* --output trials.csv
  siga export runs/* --form otava --output history.csv
  siga export runs/new --form benchstat >new.txt          for `benchstat old.txt new.txt`
  siga export runs/* --otava-config history.csv --output otava.yaml";

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// Directories of the runs.
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// Set the form of the output. trials: one CSV record for each trial and figure. otava: one CSV record for each
    /// run, for Apache Otava. benchstat: lines in the format of Go benchmarks.
    #[arg(long, default_value = "trials", value_parser = parse::<Form>)]
    form: Form,
    /// Print a configuration of Apache Otava for this file, which `siga export --form otava` has written. Default:
    /// write the figures.
    #[arg(long, value_name = "CSV", conflicts_with = "form")]
    otava_config: Option<PathBuf>,
    /// Select how siga divides CPU time between client, router and server: profile, subtract or tick. The runs must
    /// contain the measurements that this method needs. Default: the most accurate method that each run allows.
    #[arg(long, value_parser = axes::method)]
    accounting: Option<AccountingMethod>,
    /// Write to this file. siga replaces an existing file only if siga has written it. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the figures of runs.
pub(crate) fn run(args: &ExportArgs) -> Result<()> {
    let form = match &args.otava_config {
        Some(csv) => Form::OtavaConfig { csv: csv.clone() },
        None => args.form.clone(),
    };
    let mut output = match &args.output {
        Some(file) => match open_descriptor(file) {
            Some(open) => Output::new(file.display().to_string(), open),
            None => Output::file(file)?,
        },
        None => Output::new("standard output", Patient(io::stdout())),
    };
    export::export(&args.runs, &form, args.accounting, &mut output, &mut tell)?;
    output.finish()
}

/// Returns the pipe or device that a name such as /dev/stdout or /dev/fd/N stands for. Shells pass such names to programs. Returns
/// `None` for other paths and for regular files.
fn open_descriptor(path: &Path) -> Option<File> {
    let number = match path.to_str()? {
        "/dev/stdout" => 1,
        "/dev/stderr" => 2,
        path => path.strip_prefix("/dev/fd/").or_else(|| path.strip_prefix("/proc/self/fd/"))?.parse().ok()?,
    };
    // The descriptor is used as it is: opening a pipe that belongs to another user again would fail.
    let file = File::from(duplicate_descriptor(number).ok()?);
    (!file.metadata().ok()?.is_file()).then_some(file)
}

/// Standard output. Writing succeeds even if the reader closes the pipe early (`| head`).
struct Patient(io::Stdout);

impl Patient {
    fn forgive<T>(done: io::Result<T>, enough: T) -> io::Result<T> {
        match done {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(enough),
            other => other,
        }
    }
}

impl Write for Patient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::forgive(self.0.write(bytes), bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::forgive(self.0.flush(), ())
    }
}
