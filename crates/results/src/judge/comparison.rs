//! A comparison of two sides: one row for each cell and metric, with its verdict.

use super::metric::Metric;
use crate::environment::Difference;
use serde::{Deserialize, Serialize};
use siga_plan::matrix::Cell;
use std::path::PathBuf;

/// What the two sides differ in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// The run: another time, host or build.
    Runs,
    /// The level, within one run.
    Levels,
    /// The path, within one run.
    Paths,
}

impl Subject {
    /// The name of a cell's side.
    pub(super) fn of(self, cell: &Cell) -> &str {
        match self {
            Self::Levels => &cell.level,
            Self::Paths | Self::Runs => &cell.path,
        }
    }
}

/// How the trials of both sides were compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// Trials of the same round against each other.
    Paired,
    /// All against all, as the trials were not interleaved. This is weaker: drift between the runs counts as a difference.
    TwoSample,
}

/// What a comparison says of one figure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Something else differs, too, and it matters.
    NotComparable {
        /// The name and values of what differs.
        reason: String,
    },
    /// The 90% interval of the ratio lies between 0.98 and 1.02.
    Equivalent,
    /// The adjusted p is below 0.05, and the 95% interval lies on the better side of 1.
    Better,
    /// The adjusted p is below 0.05, and the 95% interval lies on the worse side of 1.
    Worse,
    /// None of the others.
    Inconclusive {
        /// Trials of each side that would decide with the same spread; `None` if unknown.
        trials: Option<usize>,
    },
}

impl Verdict {
    /// `not comparable`, `equivalent`, `better`, `worse`, `inconclusive`.
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

/// One metric of one cell, judged.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The cell of the base side.
    pub base: Cell,
    /// The cell of the new side.
    pub new: Cell,
    /// Which figure.
    pub metric: Metric,
    /// Trials of the base and of the new side (equal where paired).
    pub trials: (usize, usize),
    /// The figure of each side's median trial by rate (the lower of two), in the metric's unit.
    pub values: (f64, f64),
    /// New over base: the Hodges-Lehmann estimate.
    pub ratio: f64,
    /// Lower end of its 95% interval; `None` from too few trials.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Two-sided, exact.
    pub p: f64,
    /// `p` adjusted over the table (Benjamini and Hochberg); `None` if the cells are not comparable.
    pub p_adjusted: Option<f64>,
    /// The noise floor: how far from 1 the 95% interval would reach for two identical levels (0.01 is 1%).
    pub noise_floor: Option<f64>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Two sides, compared.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// Name of the base: a directory, a level or a path.
    pub base: String,
    /// Name of the side compared with the base.
    pub new: String,
    /// The run that holds both sides; `None` if each is a run.
    pub run: Option<PathBuf>,
    /// What the sides differ in.
    pub subject: Subject,
    /// How trials were compared.
    pub form: Form,
    /// Differences between the environments; those that matter come first.
    pub environment: Vec<Difference>,
    /// One row for each cell and metric; cells are in the order of the base's plan.
    pub rows: Vec<Row>,
    /// Cells without a counterpart or a figure, and why.
    pub skipped: Vec<(Cell, String)>,
    /// Warnings about the whole comparison: an unfinished run, a smoke run.
    pub cautions: Vec<String>,
}

impl Comparison {
    /// Rows whose verdict has this name.
    pub fn count(&self, verdict: &str) -> usize {
        self.rows.iter().filter(|row| row.verdict.name() == verdict).count()
    }
}
