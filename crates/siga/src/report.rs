//! `siga report`: one HTML file from runs, or from the published tables.
//!
//! The file is written whole or not at all. An existing file is replaced only if it is a report of siga.

use crate::tell;
use clap::Args;
use siga_model::error::{Error, Result};
use siga_report::export::Output;
use siga_report::html;
use siga_results::directory::Directory;
use siga_results::judge::{self, Comparison};
use siga_results::store::Run;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// The directories of runs. A single run is compared within itself. With several runs, the first is the base of all others.
    #[arg(value_name = "RUN", required_unless_present = "published", conflicts_with = "published")]
    runs: Vec<PathBuf>,
    /// Write a report on the published tables that siga's method follows, with the figures that their source omits.
    #[arg(long)]
    published: bool,
    /// The file; by default report.html in the first run's directory, or published.html in the current directory.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// Writes the report and says where it is.
pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let page = if args.published {
        html::published()?
    } else {
        let runs: Vec<Run> = args.runs.iter().map(|directory| Run::load(directory)).collect::<Result<_>>()?;
        html::html(&runs, &comparisons(&runs)?)?
    };
    let mut output = output(args)?;
    let name = output.name().to_owned();
    output
        .write_all(page.as_bytes())
        .map_err(|error| Error::environment(format!("cannot write to {name}: {error}")).hint(ELSEWHERE))?;
    output.finish()?;
    tell(&format!("report: {name}"));
    Ok(())
}

/// Returns the comparisons: those within a single run, or those of each further run with the first.
fn comparisons(runs: &[Run]) -> Result<Vec<Comparison>> {
    match runs {
        [run] => judge::within(run),
        [base, others @ ..] => others.iter().map(|new| judge::runs(base, new)).collect(),
        [] => Ok(Vec::new()),
    }
}

const ELSEWHERE: &str = "choose another file with --output";
/// File name of the report in a run directory.
const REPORT: &str = "report.html";
/// The name of a report on the published tables.
const PUBLISHED: &str = "published.html";

/// Returns the directory and name of the report. Fails if something other than a report exists there.
fn output(args: &ReportArgs) -> Result<Output<'static>> {
    let (path, found) = match (&args.output, args.runs.first()) {
        (Some(path), _) => (path.clone(), Directory::around(path)),
        // The caller named the directory only to read it. siga therefore writes there only if no other user can change the
        // directory, and it follows no symbolic link.
        (None, Some(run)) => (run.join(REPORT), Directory::own(run).map(|run| (run, REPORT.into()))),
        (None, None) => (PUBLISHED.into(), Directory::around(Path::new(PUBLISHED))),
    };
    let shown = path.display();
    let refuse = |what: &str| Err(Error::usage(format!("{shown} {what}")).hint(ELSEWHERE));
    let cannot = |what: &str, error| Error::environment(format!("cannot {what} {shown}: {error}")).hint(ELSEWHERE);
    let (directory, name) = found.map_err(|error| cannot("write to", error))?;
    match directory.entry(&name).map_err(|error| cannot("read", error))? {
        None => {}
        Some(entry) if entry.is_file() => {
            let mut beginning = Vec::new();
            let read = directory.open_file(&name).and_then(|file| file.take(64).read_to_end(&mut beginning));
            read.map_err(|error| cannot("read", error))?;
            if !html::is_report(&beginning) {
                return refuse("is not a report of siga, so it is not replaced");
            }
        }
        Some(entry) if entry.is_directory() => return refuse("is a directory"),
        Some(_) => return refuse("is not an ordinary file"),
    }
    Output::at(directory, &name, shown.to_string())
}
