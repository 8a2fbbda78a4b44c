//! `siga doctor`: what this host can measure and how well, whether accounting finds planted costs, what a crash has
//! left.
//!
//! [`examine()`] tries everything for real: it builds paths, loads programs and runs trials. For each missing item it
//! says what that costs and what to do. [`calibrate()`] plants known costs and reports what each method recovers.
//! [`clean()`] removes what a killed run can leave behind. The results have the same content as text and as JSON.

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

/// Version of the JSON form.
const SCHEMA: &str = "siga/doctor/1";

/// The doctor's report; one part is set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Name and version of this form.
    pub schema: String,
    /// What this host can measure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub examination: Option<Examination>,
    /// What accounting recovers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibration: Option<Calibration>,
    /// What was removed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleaning: Option<Cleaning>,
}

impl Report {
    fn empty() -> Self {
        Self { schema: SCHEMA.into(), examination: None, calibration: None, cleaning: None }
    }

    /// The report for people.
    pub fn text(&self) -> String {
        let parts = [
            self.examination.as_ref().map(text::examination),
            self.calibration.as_ref().map(text::calibration),
            self.cleaning.as_ref().map(text::cleaning),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }

    /// The report for programs: one JSON object.
    ///
    /// # Errors
    /// Environment: out of memory.
    pub fn json(&self) -> Result<String> {
        let mut text = serde_json::to_string_pretty(self).context("cannot write JSON")?;
        text.push('\n');
        Ok(text)
    }

    /// Decides the exit status.
    ///
    /// # Errors
    /// Environment: nothing can be measured here. Incomplete: a planted cost was not recovered, or something stayed.
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
