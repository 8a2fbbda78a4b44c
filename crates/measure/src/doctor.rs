//! `siga doctor`: reports what this host can measure and how well, checks that accounting finds planted costs, and removes
//! what a crash has left.
//!
//! [`examine()`] tries everything in practice: it builds paths, loads programs and runs trials. For each missing item it
//! reports the consequence and what to do. [`calibrate()`] plants known costs and reports how much of them each method
//! recovers. [`clean()`] removes what a killed run can leave behind. Each report has the same content as text and as JSON.

mod calibrate;
mod check;
mod clean;
mod examine;
mod experiment;
mod overhead;
mod probe;
mod recovery;
mod text;
mod timing;

pub use calibrate::{Absent, Calibration, calibrate};
pub use check::{Check, CheckState, Group};
pub use clean::{Cleaning, Removed, clean};
pub use examine::{Examination, examine};
pub use experiment::{Planted, Row, Way};
pub use overhead::Overhead;
pub use recovery::{Ratio, Verdict};
pub use timing::Timing;

use serde::{Deserialize, Serialize};
use siga_model::error::{IoContext, Result};

/// Name and version of the report's JSON form.
const SCHEMA: &str = "siga/doctor/1";

/// The report of `siga doctor`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of the report's JSON form.
    pub schema: String,
    /// The result of what was asked for.
    #[serde(flatten)]
    pub part: Part,
}

/// What the doctor was asked for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Part {
    /// What this host can measure.
    Examination(Examination),
    /// How much of the planted costs each accounting method recovers.
    Calibration(Calibration),
    /// What a crash has left, and what was removed.
    Cleaning(Cleaning),
}

impl Report {
    /// The report of one part.
    pub fn new(part: Part) -> Self {
        Self { schema: SCHEMA.into(), part }
    }

    /// The report as text for people.
    pub fn text(&self) -> String {
        match &self.part {
            Part::Examination(examination) => text::examination(examination),
            Part::Calibration(calibration) => text::calibration(calibration),
            Part::Cleaning(cleaning) => text::cleaning(cleaning),
        }
    }

    /// The report as one JSON object for programs.
    ///
    /// # Errors
    /// Returns an environment error if memory runs out.
    pub fn json(&self) -> Result<String> {
        let mut text = serde_json::to_string_pretty(self).context("cannot write JSON")?;
        text.push('\n');
        Ok(text)
    }

    /// Decides the exit status of the command.
    ///
    /// # Errors
    /// Returns an environment error if this host can measure nothing. Returns an incomplete error if a planted cost was not
    /// recovered, or if something could not be removed.
    pub fn verdict(&self) -> Result<()> {
        match &self.part {
            Part::Examination(examination) => examination.verdict(),
            Part::Calibration(calibration) => calibration.verdict(),
            Part::Cleaning(cleaning) => cleaning.verdict(),
        }
    }
}
