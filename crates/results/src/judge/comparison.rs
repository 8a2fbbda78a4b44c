//! What a comparison of two sides says: one row for each cell and metric, with its verdict.

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
    /// What a cell is called on its side.
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
    /// All against all: the trials were not interleaved. Weaker, as drift between the runs counts as a difference.
    TwoSample,
}

/// What a comparison says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Something other than what is compared differs and matters.
    NotComparable {
        /// What, by name.
        reason: String,
    },
    /// The 90% interval lies within 2% to either side of 1.
    Equivalent,
    /// The adjusted p is below 0.05 and the interval clear of 1.
    Better,
    /// The same to the worse side.
    Worse,
    /// None of these.
    Inconclusive {
        /// Trials of each side that would decide, if the spread stays as it is; `None` if that cannot be told.
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
    /// The same after Benjamini and Hochberg over the table; `None` if the cells are not comparable.
    pub p_adjusted: Option<f64>,
    /// How far from 1 the 95% interval of a comparison of two identical levels reaches with these trials (0.01 is 1%).
    pub noise_floor: Option<f64>,
    /// What it says.
    pub verdict: Verdict,
}

/// Two sides, compared.
#[derive(Debug, Clone)]
pub struct Comparison {
    /// What the base is called: a directory, a level or a path.
    pub base: String,
    /// What is compared with it.
    pub new: String,
    /// The run that holds both sides; `None` if each is a run.
    pub run: Option<PathBuf>,
    /// What the sides differ in.
    pub subject: Subject,
    /// How trials were compared.
    pub form: Form,
    /// What differs between the environments: first what matters.
    pub environment: Vec<Difference>,
    /// One row a cell and metric, cells in the order of the base's plan.
    pub rows: Vec<Row>,
    /// Cells without a counterpart or a figure, and why.
    pub skipped: Vec<(Cell, String)>,
    /// What to keep in mind with all of it, in words: a run that is not whole, a smoke run.
    pub cautions: Vec<String>,
}

impl Comparison {
    /// Rows whose verdict has this name.
    pub fn count(&self, verdict: &str) -> usize {
        self.rows.iter().filter(|row| row.verdict.name() == verdict).count()
    }
}
