//! The result of comparing two sides: one row for each cell and metric, with its verdict.

use super::mean::Mean;
use super::metric::Metric;
use crate::disturbance::Disturbance;
use crate::environment::Difference;
use serde::{Deserialize, Serialize};
use siga_plan::matrix::Cell;
use std::borrow::Cow;
use std::path::PathBuf;

/// The property in which the two sides of a comparison differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The run: the sides are two runs, measured at different times, on different hosts or with different builds of siga.
    Runs,
    /// The level: the sides are two levels of the same run.
    Levels,
    /// The path: the sides are two paths of the same run.
    Paths,
    /// The MTU: the sides are two MTUs of the same run.
    Mtus,
}

impl Subject {
    /// Returns the name of the side to which a cell belongs: its level, path or MTU.
    pub(super) fn of(self, cell: &Cell) -> Cow<'_, str> {
        match self {
            Self::Levels => cell.level.as_str().into(),
            Self::Paths | Self::Runs => cell.path.as_str().into(),
            Self::Mtus => cell.mtu.map_or_else(|| "".into(), |mtu| mtu.to_string().into()),
        }
    }
}

/// How the trials of both sides are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Each trial is compared with the other side's trial of the same round.
    Paired,
    /// All trials of one side are compared with all trials of the other, because the trials of two runs do not alternate in time.
    /// This form is weaker: if the host changed between the runs, the change counts as a difference.
    TwoSample,
}

/// The verdict on one metric of one cell.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// The two cells cannot be compared: they differ also in a setting that affects the figures but is not compared, or clearly
    /// more trials of one side have flaws.
    NotComparable {
        /// The reason, in words: usually the name and the values of the setting that differs.
        reason: String,
    },
    /// The 90% interval of the ratio lies between 0.98 and 1.02.
    Equivalent,
    /// The adjusted p is below 0.05, and the 95% interval of the ratio shows an improvement: it lies above 1, or below 1 if less
    /// is better.
    Better,
    /// The adjusted p is below 0.05, and the 95% interval of the ratio shows a loss: it lies below 1, or above 1 if less is
    /// better.
    Worse,
    /// None of the other verdicts applies.
    Inconclusive {
        /// Number of trials of each side with which the verdict would be another one, if further trials had the same ratio and
        /// scatter; `None` if unknown.
        trials: Option<usize>,
    },
}

impl Verdict {
    /// Returns the name of the verdict: `not comparable`, `equivalent`, `better`, `worse`, `inconclusive`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::NotComparable { .. } => "not comparable",
            Self::Equivalent => "equivalent",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Inconclusive { .. } => "inconclusive",
        }
    }
}

/// The comparison of one metric of one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The cell of the base side.
    pub base: Cell,
    /// The cell of the new side.
    pub new: Cell,
    /// The metric that is compared.
    pub metric: Metric,
    /// Number of trials of the base side and of the new side. The two numbers are equal if trials are paired.
    pub trials: (usize, usize),
    /// Value of the metric on the base side and on the new side; CPU times are in milliseconds per unit. The base's is the estimate over
    /// its compared trials, the new side's is this times the ratio. So values and ratio agree.
    pub values: (f64, f64),
    /// Ratio of the new side's values to the base side's values: the Hodges-Lehmann estimate.
    pub ratio: f64,
    /// Lower end of the ratio's 95% interval; `None` if there are too few trials.
    pub low: Option<f64>,
    /// Upper end of the ratio's 95% interval; `None` if there are too few trials.
    pub high: Option<f64>,
    /// Two-sided p of the test for a difference, before adjustment. It is exact for up to 50 trials of each side.
    pub p: f64,
    /// `p` adjusted for the number of tests in the comparison (method of Benjamini and Hochberg); `None` if the cells are not
    /// comparable.
    pub p_adjusted: Option<f64>,
    /// The noise floor: how far the 95% interval of the ratio would extend from 1 if both sides had the same settings (0.01 is
    /// 1%). `None` if there are too few trials.
    pub noise_floor: Option<f64>,
    /// The verdict on the metric.
    pub verdict: Verdict,
}

/// The comparison of two sides.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Name of the base side: a run directory, a level or a path.
    pub base: String,
    /// Name of the side that is compared with the base.
    pub new: String,
    /// Directory of the run that contains both sides; `None` if the sides are two runs.
    pub run: Option<PathBuf>,
    /// The property in which the sides differ.
    pub subject: Subject,
    /// How the trials of both sides were compared.
    pub form: Form,
    /// Whether a side was measured on an emulated machine. If so, no row has an interval or a noise floor, and every verdict is
    /// `NotComparable`.
    pub emulated: bool,
    /// The runs of the sides in which the host disturbed rounds: each with its directory and its disturbed rounds.
    pub disturbed: Vec<(PathBuf, Disturbance)>,
    /// Differences between the environments that are compared, because the user named them.
    pub varied: Vec<Difference>,
    /// All other differences between the environments of the two sides. Differences that make figures not comparable come first.
    pub environment: Vec<Difference>,
    /// One row for each cell and metric. Cells are in the order of the base's plan.
    pub rows: Vec<Row>,
    /// Geometric means of the ratios over the cells, for rate and total CPU time; empty if fewer than two cells are comparable.
    pub means: Vec<Mean>,
    /// Cells without a counterpart on the other side, and metrics that could not be compared. Each entry has the reason.
    pub skipped: Vec<(Cell, String)>,
    /// Warnings about the whole comparison. For example, a run has not ended, or is a smoke run, which only shows that everything
    /// works.
    pub cautions: Vec<String>,
}

impl Comparison {
    /// Returns the reason why disturbed rounds allow no verdict; `None` if they do not prevent one. The result has no capital letter
    /// and no full stop.
    pub fn no_verdict(&self) -> Option<String> {
        self.disturbed.iter().find_map(|(_, disturbance)| disturbance.no_verdict())
    }

    /// Returns the number of rows whose verdict has the name `verdict`.
    pub fn count(&self, verdict: &str) -> usize {
        self.rows.iter().filter(|row| row.verdict.name() == verdict).count()
    }

    /// Returns the figures that became worse by at least `least`, as a fraction (0.05 is 5%). `siga compare --fail-on` fails if
    /// there are any.
    pub fn regressions(&self, least: f64) -> Vec<&Row> {
        let is_worse = |row: &&Row| row.verdict == Verdict::Worse && (row.ratio - 1.0).abs() >= least;
        self.rows.iter().filter(is_worse).collect()
    }
}
