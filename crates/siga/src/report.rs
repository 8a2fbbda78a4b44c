//! `siga report`: one HTML file from runs, or from the published tables.
//!
//! The file is written whole or not at all. An existing file is replaced only if siga wrote it.

use crate::{chosen, note};
use clap::Args;
use siga_model::error::Result;
use siga_plan::run_id::RunId;
use siga_report::html;
use siga_report::output::Output;
use siga_results::judge::{self, Comparison};
use siga_results::store::Run;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Directories of the runs. With one directory, the report compares the levels or paths of this run. With
    /// several directories, it compares each run with the first run.
    #[arg(value_name = "RUN", required_unless_present = "published", conflicts_with = "published")]
    runs: Vec<PathBuf>,
    /// Write a report with the tables of the published z/VM performance reports, and with charts of their figures.
    #[arg(long)]
    published: bool,
    /// Write to this file. Default: report.html in the directory of the first run; with --published, published.html in
    /// the current directory.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Show only the cells that these run identifiers name, such as 420hss1. Default: all cells.
    #[arg(long, value_delimiter = ',', value_name = "RUNID,…", conflicts_with = "published", value_parser = crate::parse::<RunId>)]
    run_id: Vec<RunId>,
}

/// Writes the report and says where it is.
pub(crate) fn run(args: &ReportArgs) -> Result<()> {
    let page = if args.published {
        html::published()?
    } else {
        let mut runs: Vec<Run> = args.runs.iter().map(|directory| Run::load(directory)).collect::<Result<_>>()?;
        runs.iter_mut().try_for_each(|run| chosen::keep(run, &args.run_id))?;
        html::html(&runs, &comparisons(&runs)?)?
    };
    let mut output = output(args)?;
    let name = output.name().to_owned();
    output.put(&page)?;
    output.finish()?;
    note(&format!("report: {name}"));
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

/// File name of the report in a run directory.
const REPORT: &str = "report.html";
/// The name of a report on the published tables.
const PUBLISHED: &str = "published.html";

/// Opens the output of the report.
fn output(args: &ReportArgs) -> Result<Output<'static>> {
    match (&args.output, args.runs.first()) {
        (Some(path), _) => Output::file(path),
        (None, Some(run)) => Output::inside(run, REPORT),
        (None, None) => Output::file(PUBLISHED.as_ref()),
    }
}
