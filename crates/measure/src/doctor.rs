//! The command `siga doctor`. It reports what this host can measure and how precisely, checks that CPU accounting finds known
//! costs, and cleans up after a crash of siga.
//!
//! [`examine()`] tries each ability of the host in practice: it builds paths, loads eBPF programs and runs trials. For each
//! missing ability it reports the consequence and what the user can do. [`calibrate()`] plants costs: it adds a known CPU cost
//! or delay to trials. It reports the share of the cost that each accounting method recovers (finds). [`clean()`] removes the
//! processes and files that a killed run can leave behind. Each report is available as text and as JSON, with the same content.

mod calibrate;
mod check;
mod clean;
mod examine;
mod experiment;
mod kernel;
mod overhead;
mod probe;
mod recovery;
mod text;
mod timing;
mod watch;

pub use calibrate::{Absent, Calibration, calibrate};
pub use check::{Check, CheckState, Group};
pub use clean::{Cleaning, Removed, clean};
pub use examine::{Examination, examine};
pub use experiment::{Planted, Row, Way};
pub use overhead::Overhead;
pub use recovery::{Ratio, Verdict};
pub use timing::Timing;
pub use watch::Watched;

use serde::{Deserialize, Serialize};
use siga_model::error::{IoContext, Result};

/// Name and version of the report's JSON form.
const SCHEMA: &str = "siga/doctor/1";

/// The report of `siga doctor`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of the report's JSON form.
    pub schema: String,
    /// The result of the examination, calibration or cleaning that the user asked for.
    #[serde(flatten)]
    pub part: Part,
}

/// The kind of report, with its content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// What this host can measure.
    Examination(Examination),
    /// The share of the planted (artificially added) costs that each accounting method recovers.
    Calibration(Calibration),
    /// Processes and files that a crash of siga has left, and which of them were removed.
    Cleaning(Cleaning),
}

impl Report {
    /// Makes a report from its content.
    pub fn new(part: Part) -> Self {
        Self { schema: SCHEMA.into(), part }
    }

    /// Returns the report as text for people.
    pub fn text(&self) -> String {
        match &self.part {
            Part::Examination(examination) => text::examination(examination),
            Part::Calibration(calibration) => text::calibration(calibration),
            Part::Cleaning(cleaning) => text::cleaning(cleaning),
        }
    }

    /// Returns the report as one JSON object for programs.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if memory runs out.
    pub fn json(&self) -> Result<String> {
        let mut text = serde_json::to_string_pretty(self).context("cannot write the report of siga doctor as JSON")?;
        text.push('\n');
        Ok(text)
    }

    /// Returns the error that determines the exit status of the command, or `Ok` if the report shows no problem.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if this host can measure nothing. Returns an error of kind `Incomplete` if a planted
    /// cost was not recovered, or if a process or file that a crash left could not be removed.
    pub fn verdict(&self) -> Result<()> {
        match &self.part {
            Part::Examination(examination) => examination.verdict(),
            Part::Calibration(calibration) => calibration.verdict(),
            Part::Cleaning(cleaning) => cleaning.verdict(),
        }
    }
}
