//! Did the change help? Two sides, cell by cell and metric by metric, each with one of five verdicts.
//!
//! The trial is the statistical unit. Trials of one run that stood side by side in a round are compared in pairs; those
//! of two runs, whose hosts may have drifted apart in between, as two samples, which is told. A ratio is new over base.

mod value;

pub(crate) use value::figure;
pub use value::value;

use crate::environment::Difference;
use crate::plan::Cell;
use crate::workload::Unit;
use serde::{Deserialize, Serialize};

/// A figure that is compared. Everything but the rate is better when it is less.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Metric {
    /// Units per second.
    Rate,
    /// Median latency of a trial in microseconds.
    P50,
    /// 99th percentile of a trial in microseconds.
    P99,
    /// CPU milliseconds per unit.
    Cpu(Part, Mode),
}

/// Whose CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// The whole system's.
    Total,
    /// The side that connects.
    Client,
    /// The node in the middle.
    Router,
    /// The side that accepts.
    Server,
    /// Everything else that ran.
    Other,
}

/// Which CPU time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mode {
    /// All of it.
    All,
    /// In user mode.
    Virtual,
    /// In the kernel.
    Cp,
}

impl Metric {
    /// All of them, in the order of tables and files.
    pub const ALL: &[Self] = &[
        Self::Rate,
        Self::P50,
        Self::P99,
        Self::Cpu(Part::Total, Mode::All),
        Self::Cpu(Part::Total, Mode::Virtual),
        Self::Cpu(Part::Total, Mode::Cp),
        Self::Cpu(Part::Client, Mode::All),
        Self::Cpu(Part::Client, Mode::Virtual),
        Self::Cpu(Part::Client, Mode::Cp),
        Self::Cpu(Part::Router, Mode::All),
        Self::Cpu(Part::Router, Mode::Virtual),
        Self::Cpu(Part::Router, Mode::Cp),
        Self::Cpu(Part::Server, Mode::All),
        Self::Cpu(Part::Server, Mode::Virtual),
        Self::Cpu(Part::Server, Mode::Cp),
        Self::Cpu(Part::Other, Mode::All),
        Self::Cpu(Part::Other, Mode::Virtual),
        Self::Cpu(Part::Other, Mode::Cp),
    ];

    /// The name in tables and files: `rate`, `p99`, `cpu_total`, `router_virtual`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::P50 => "p50",
            Self::P99 => "p99",
            Self::Cpu(Part::Total, Mode::All) => "cpu_total",
            Self::Cpu(Part::Total, Mode::Virtual) => "cpu_virtual",
            Self::Cpu(Part::Total, Mode::Cp) => "cpu_cp",
            Self::Cpu(Part::Client, Mode::All) => "client_cpu",
            Self::Cpu(Part::Client, Mode::Virtual) => "client_virtual",
            Self::Cpu(Part::Client, Mode::Cp) => "client_cp",
            Self::Cpu(Part::Router, Mode::All) => "router_cpu",
            Self::Cpu(Part::Router, Mode::Virtual) => "router_virtual",
            Self::Cpu(Part::Router, Mode::Cp) => "router_cp",
            Self::Cpu(Part::Server, Mode::All) => "server_cpu",
            Self::Cpu(Part::Server, Mode::Virtual) => "server_virtual",
            Self::Cpu(Part::Server, Mode::Cp) => "server_cp",
            Self::Cpu(Part::Other, Mode::All) => "other_cpu",
            Self::Cpu(Part::Other, Mode::Virtual) => "other_virtual",
            Self::Cpu(Part::Other, Mode::Cp) => "other_cp",
        }
    }

    /// The unit of its values with a workload that counts `unit`: `trans/sec`, `us`, `msec/MB`.
    pub fn unit(self, unit: Unit) -> &'static str {
        match (self, unit) {
            (Self::Rate, _) => unit.rate_name(),
            (Self::P50 | Self::P99, _) => "us",
            (Self::Cpu(..), Unit::Transaction) => "msec/trans",
            (Self::Cpu(..), Unit::Megabyte) => "msec/MB",
        }
    }

    /// True if more is better.
    pub fn more_is_better(self) -> bool {
        self == Self::Rate
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
    /// Medians of both sides (the lower median), in the metric's unit.
    pub values: (f64, f64),
    /// New over base: the Hodges-Lehmann estimate.
    pub ratio: f64,
    /// Lower end of its 95% interval; `None` from too few trials.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Two-sided, exact.
    pub p: Option<f64>,
    /// The same after Benjamini and Hochberg over the table.
    pub p_adjusted: Option<f64>,
    /// Half the width of the 95% interval that a comparison of two identical levels has with as many trials, as a part
    /// of the ratio (0.01 is 1%).
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
    /// How trials were compared.
    pub form: Form,
    /// What differs between the environments: first what matters.
    pub environment: Vec<Difference>,
    /// One row a cell and metric, cells in the order of the base's plan.
    pub rows: Vec<Row>,
    /// Cells without a counterpart or a figure, and why.
    pub skipped: Vec<(Cell, String)>,
    /// A smoke run is on one of the sides: no verdict but `inconclusive`.
    pub smoke: bool,
}
