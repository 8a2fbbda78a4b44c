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

/// The report of `siga doctor`. Exactly one of `examination`, `calibration` and `cleaning` is set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of the report's JSON form.
    pub schema: String,
    /// What this host can measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examination: Option<Examination>,
    /// How much of the planted costs each method of accounting recovers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What a crash has left, and what was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleaning: Option<Cleaning>,
}

impl Report {
    fn empty() -> Self {
        Self { schema: SCHEMA.into(), examination: None, calibration: None, cleaning: None }
    }

    /// The report as text for people.
    pub fn text(&self) -> String {
        let parts = [
            self.examination.as_ref().map(text::examination),
            self.calibration.as_ref().map(text::calibration),
            self.cleaning.as_ref().map(text::cleaning),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
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
        self.examination.as_ref().map_or(Ok(()), Examination::verdict)?;
        self.calibration.as_ref().map_or(Ok(()), Calibration::verdict)?;
        self.cleaning.as_ref().map_or(Ok(()), Cleaning::verdict)
    }
}

impl From<Examination> for Report {
    fn from(examination: Examination) -> Self {
        Self { examination: Some(examination), ..Self::empty() }
    }
}

impl From<Calibration> for Report {
    fn from(calibration: Calibration) -> Self {
        Self { calibration: Some(calibration), ..Self::empty() }
    }
}

impl From<Cleaning> for Report {
    fn from(cleaning: Cleaning) -> Self {
        Self { cleaning: Some(cleaning), ..Self::empty() }
    }
}
