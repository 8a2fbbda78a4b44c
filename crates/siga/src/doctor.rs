//! `siga doctor`.

use crate::{parse, print};
use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use siga_measure::doctor::{self, Part, Report};
use siga_measure::interrupt;
use siga_model::error::{Error, Result};
use siga_report::Format;
use std::path::Path;
use std::time::Duration;

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Add known CPU costs, and check that siga measures them correctly. The calibration takes one to three minutes.
    #[arg(long, conflicts_with = "clean")]
    calibrate: bool,
    /// Clean up after a crash of siga: end orphaned processes, remove copies of siga's program file that other
    /// hosts put here for a run, and remove incomplete files and lines in runs/.
    #[arg(long)]
    clean: bool,
    /// Observe the host for this number of seconds, then estimate the smallest difference that siga can detect
    /// under the present load. With 0, siga does not observe the host.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=600),
        conflicts_with_all = ["calibrate", "clean"])]
    watch: u64,
    /// Set the output format: text or json.
    #[arg(long, default_value = "text", value_parser = parse::<Format>)]
    format: Format,
}

/// Examines, calibrates or cleans, then prints the report.
pub(crate) fn run(args: &DoctorArgs) -> Result<()> {
    let as_text = match args.format {
        Format::Text => true,
        Format::Json => false,
        Format::Csv | Format::Md => {
            return Err(Error::usage(format!("siga doctor cannot print the format {}", args.format))
                .hint("use --format text or --format json"));
        }
    };
    interrupt::catch_interrupts()?;
    let spinner = spinner();
    let mut tell = |text: &str| spinner.set_message(siga_model::text::name(text));
    let part = if args.calibrate {
        doctor::calibrate(&mut tell).map(Part::Calibration)
    } else if args.clean {
        Ok(Part::Cleaning(doctor::clean(Path::new("runs"))))
    } else {
        doctor::examine(Duration::from_secs(args.watch), &mut tell).map(Part::Examination)
    };
    spinner.finish_and_clear();
    let report = Report::new(part?);
    print(&if as_text { report.text() } else { report.json()? })?;
    report.verdict()
}

/// Returns the progress line, which is hidden if standard error is not a terminal. It is drawn only when its text changes, so that
/// it takes no CPU time from trials.
fn spinner() -> ProgressBar {
    let target = if crate::is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
    let spinner = ProgressBar::with_draw_target(None, target);
    if let Ok(style) = ProgressStyle::with_template("{spinner} {elapsed} {msg}") {
        spinner.set_style(style);
    }
    spinner
}
