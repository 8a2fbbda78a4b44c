//! `siga report`: one HTML file from runs, or from the published tables.
//!
//! The file is there whole or not at all, and what lies at its place already is replaced only if it is a report of ours.

use crate::tell;
use clap::Args;
use siga_lab::error::{Error, Result};
use siga_lab::export::Output;
use siga_lab::judge::{self, Comparison};
use siga_lab::report::html;
use siga_lab::store::Run;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Directories of runs. One is compared within itself; of several, the first is the base of all others.
    #[arg(value_name = "RUN", required_unless_present = "published", conflicts_with = "published")]
    runs: Vec<PathBuf>,
    /// Report the published tables that siga's method follows, with the figures that their source does not show.
    #[arg(long)]
    published: bool,
    /// The file; without it report.html in the first run's directory, or published.html here.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the report and says where it is.
pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let default = args.runs.first().map_or_else(|| PathBuf::from("published.html"), |run| run.join("report.html"));
    let output = args.output.as_ref().unwrap_or(&default);
    let page = if args.published {
        html::published()?
    } else {
        let runs: Vec<Run> = args.runs.iter().map(|directory| Run::load(directory)).collect::<Result<_>>()?;
        html::html(&runs, &comparisons(&runs)?)?
    };
    ours_to_replace(output)?;
    write(output, &page)?;
    tell(&format!("report: {}", output.display()));
    Ok(())
}

/// One run within itself; of several, each further one with the first.
fn comparisons(runs: &[Run]) -> Result<Vec<Comparison>> {
    match runs {
        [run] => judge::within(run),
        [base, others @ ..] => others.iter().map(|new| judge::runs(base, new)).collect(),
        [] => Ok(Vec::new()),
    }
}

const ELSEWHERE: &str = "give another file with --output";

/// Fails if something else than a report lies there.
fn ours_to_replace(output: &Path) -> Result<()> {
    let refuse = |what: &str| Err(Error::usage(format!("{} {what}", output.display())).hint(ELSEWHERE));
    let there = match fs::metadata(output) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        other => other,
    };
    let cannot = |error| Error::environment(format!("cannot read {}: {error}", output.display())).hint(ELSEWHERE);
    let there = there.map_err(cannot)?;
    if there.is_dir() {
        return refuse("is a directory");
    }
    if !there.is_file() {
        return refuse("is no ordinary file");
    }
    let mut beginning = Vec::new();
    File::open(output).and_then(|file| file.take(64).read_to_end(&mut beginning)).map_err(cannot)?;
    if html::is_report(&beginning) { Ok(()) } else { refuse("is no report of siga, so it is not replaced") }
}

/// Puts the page in its place, whole or not at all.
fn write(output: &Path, page: &str) -> Result<()> {
    let mut file = Output::file(output)?;
    file.write_all(page.as_bytes()).map_err(|error| {
        Error::environment(format!("cannot write to {}: {error}", output.display())).hint(ELSEWHERE)
    })?;
    file.finish()
}
