//! `siga doctor`.

use crate::{parse, print};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use siga_lab::doctor::{self, Report};
use siga_lab::interrupt;
use siga_lab::report::Format;
use siga_model::error::{Error, Result};
use std::path::Path;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Plant known costs and see whether accounting recovers them (one to three minutes).
    #[arg(long, conflicts_with = "clean")]
    calibrate: bool,
    /// Remove what a crash has left: orphaned processes, copied programs, cut files and lines below runs/.
    #[arg(long)]
    clean: bool,
    /// text or json.
    #[arg(long, default_value = "text", value_parser = parse::<Format>)]
    format: Format,
}

/// Examines, calibrates or cleans, then prints the report.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let as_text = match args.format {
        Format::Text => true,
        Format::Json => false,
        Format::Csv | Format::Md => {
            return Err(
                Error::usage(format!("the doctor does not write {}", args.format)).hint("--format text or json")
            );
        }
    };
    interrupt::catch_interrupts()?;
    let spinner = spinner();
    let mut tell = |text: &str| spinner.set_message(siga_model::text::name(text));
    let report: Result<Report> = if args.calibrate {
        doctor::calibrate(&mut tell).map(Report::from)
    } else if args.clean {
        Ok(doctor::clean(Path::new("runs")).into())
    } else {
        doctor::examine(&mut tell).map(Report::from)
    };
    spinner.finish_and_clear();
    let report = report?;
    print(&if as_text { report.text() } else { report.json()? })?;
    report.verdict()
}

/// Hidden where standard error is no terminal. It moves only with what it says, so that it takes no time from trials.
fn spinner() -> ProgressBar {
    let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
        spinner.set_style(style);
    }
    spinner
}
