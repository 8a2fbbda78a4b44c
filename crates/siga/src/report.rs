//! `siga report`: one HTML file from runs, or from the published tables.
//!
//! The file is there whole or not at all, and what lies at its place already is replaced only if it is a report of ours.

use crate::tell;
use clap::Args;
use siga_lab::error::{Error, Result};
use siga_lab::judge::{self, Comparison};
use siga_lab::report::html;
use siga_lab::store::Run;
use std::fs::{self, File, OpenOptions};
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
    write_whole(output, &page)?;
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

const ELSEWHERE: &str = "give another file with -o";

/// Fails if something else than a report lies there.
fn ours_to_replace(output: &Path) -> Result<()> {
    let refuse = |what: &str| Err(Error::usage(format!("{} {what}", output.display())).hint(ELSEWHERE));
    match fs::symlink_metadata(output) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(cannot_write(output, &error)),
        Ok(there) if there.is_dir() => return refuse("is a directory"),
        Ok(there) if !there.is_file() => return refuse("is no ordinary file"),
        Ok(_) => {}
    }
    let mut beginning = Vec::new();
    let read = File::open(output).and_then(|file| file.take(64).read_to_end(&mut beginning));
    if let Err(error) = read {
        return Err(Error::environment(format!("cannot read {}: {error}", output.display())).hint(ELSEWHERE));
    }
    if html::is_report(&beginning) { Ok(()) } else { refuse("is no report of siga, so it is not replaced") }
}

/// Writes a file under another name in the same directory and renames it.
fn write_whole(output: &Path, page: &str) -> Result<()> {
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(format!(".part-{}", std::process::id()));
    let part = output.with_file_name(name);
    let file = OpenOptions::new().write(true).create_new(true).open(&part);
    let mut file = file.map_err(|error| cannot_write(output, &error))?;
    let written = file.write_all(page.as_bytes()).and_then(|()| file.sync_all());
    written.and_then(|()| fs::rename(&part, output)).map_err(|error| {
        let _gone = fs::remove_file(&part);
        cannot_write(output, &error)
    })
}

fn cannot_write(output: &Path, error: &std::io::Error) -> Error {
    Error::environment(format!("cannot write {}: {error}", output.display()))
        .hint("make room, or give a file that can be written with -o")
}
