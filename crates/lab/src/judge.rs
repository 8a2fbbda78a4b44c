//! Did the change help? Two sides, cell by cell and metric by metric, each with one of five verdicts.
//!
//! The trial is the statistical unit. Trials of one run that stood side by side in a round are compared in pairs; those
//! of two runs, whose hosts may have drifted apart in between, as two samples, which is told. A ratio is new over base.
//! The statistics lie in `stats`; here stands what is compared with what, and what the figures allow to be said.

mod cells;
mod noise;
mod settings;
mod stop;
mod value;

pub use stop::{rounds_least, unsettled};
pub use value::value;

use crate::environment::Difference;
use crate::error::{Error, Result};
use crate::level::Level;
use crate::plan::Cell;
use crate::store::Run;
use crate::workload::Unit;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashMap, HashSet};

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

    /// CPU time of the whole system.
    pub const TOTAL: Self = Self::Cpu(Part::Total, Mode::All);

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

    /// True for CPU time of a part of the system: what depends on the method of accounting.
    pub fn is_of_component(self) -> bool {
        matches!(self, Self::Cpu(Part::Client | Part::Router | Part::Server | Part::Other, _))
    }

    /// True if more is better.
    pub fn more_is_better(self) -> bool {
        self == Self::Rate
    }
}

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
    fn of(self, cell: &Cell) -> &str {
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
    /// Medians of both sides (the lower median), in the metric's unit.
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

/// Two runs, cell by cell. Where each has a single level, these may go by different names.
///
/// # Errors
/// Usage: no cell in common. Environment: a damaged record.
pub fn runs(base: &Run, new: &Run) -> Result<Comparison> {
    let (own, others) = (base.cells(), new.cells());
    let single = |cells: &[Cell]| cells.windows(2).all(|pair| pair[0].level == pair[1].level);
    let mut pairs = partners(&own, &others, Clone::clone);
    if let (true, true, Some(other)) = (pairs.is_empty(), single(&own) && single(&others), others.first()) {
        pairs = partners(&own, &others, |cell| Cell { level: other.level.clone(), ..cell.clone() });
    }
    let names = [base, new].map(|run| run.directory.display().to_string());
    if pairs.is_empty() {
        let first = |cells: &[Cell]| cells.first().map_or("nothing measured".to_owned(), ToString::to_string);
        return Err(Error::usage(format!("{} and {} have no cell in common", names[0], names[1])).hint(format!(
            "the first has {}, the second {}",
            first(&own),
            first(&others)
        )));
    }
    let alone = |cells: &[Cell], paired: Vec<&Cell>, run: &str| {
        let paired: HashSet<&Cell> = paired.into_iter().collect();
        let alone = cells.iter().filter(|cell| !paired.contains(cell)).cloned();
        alone.map(|cell| (cell, format!("only in {run}"))).collect::<Vec<_>>()
    };
    let mut skipped = alone(&own, pairs.iter().map(|(base, _)| base).collect(), &names[0]);
    skipped.extend(alone(&others, pairs.iter().map(|(_, new)| new).collect(), &names[1]));
    cells::compare(Subject::Runs, (base, &names[0]), (new, &names[1]), &pairs, skipped)
}

/// Two levels of one run, cell by cell.
///
/// # Errors
/// Usage: a level that the run has not measured. Environment: a damaged record.
pub fn levels(run: &Run, base: &str, new: &str) -> Result<Comparison> {
    within_run(run, Subject::Levels, base, new)
}

/// Two paths of one run, cell by cell.
///
/// # Errors
/// Usage: a path that the run has not measured. Environment: a damaged record.
pub fn paths(run: &Run, base: &str, new: &str) -> Result<Comparison> {
    within_run(run, Subject::Paths, base, new)
}

/// What a run compares by itself: each further level with the first; with a single level, each path that has a node in
/// the middle with the same path without it.
///
/// # Errors
/// Environment: a damaged record.
pub fn within(run: &Run) -> Result<Vec<Comparison>> {
    let subjects = subjects(&run.levels, &run.cells());
    subjects.iter().map(|(subject, base, new)| within_run(run, *subject, base, new)).collect()
}

/// The comparisons of [`within`]: subject, base, new.
fn subjects(levels: &[Level], cells: &[Cell]) -> Vec<(Subject, String, String)> {
    let mut names: Vec<&str> = levels.iter().map(|level| level.name.as_str()).collect();
    names.retain(|name| cells.iter().any(|cell| cell.level == *name));
    if let [base, others @ ..] = names.as_slice()
        && !others.is_empty()
    {
        return others.iter().map(|new| (Subject::Levels, (*base).to_owned(), (*new).to_owned())).collect();
    }
    let known: HashSet<&Cell> = cells.iter().collect();
    let mut paths: Vec<(Subject, String, String)> = Vec::new();
    for cell in cells {
        let base = crate::summary::base_of(cell).filter(|base| known.contains(base));
        let entry = base.map(|base| (Subject::Paths, base.path, cell.path.clone()));
        paths.extend(entry.filter(|entry| !paths.contains(entry)));
    }
    paths
}

/// Every two cells that a run with these compares by itself.
fn pairs(levels: &[Level], cells: &[Cell]) -> Vec<(Cell, Cell)> {
    let subjects = subjects(levels, cells);
    subjects.iter().flat_map(|(subject, base, new)| Sides::of(cells, *subject, base, new).pairs()).collect()
}

/// The cells of either side within one run.
struct Sides<'a> {
    subject: Subject,
    new_name: &'a str,
    base: Vec<Cell>,
    new: Vec<Cell>,
}

impl<'a> Sides<'a> {
    fn of(cells: &[Cell], subject: Subject, base: &str, new_name: &'a str) -> Self {
        let of = |name: &str| cells.iter().filter(|cell| subject.of(cell) == name).cloned().collect();
        Self { subject, new_name, base: of(base), new: of(new_name) }
    }

    fn pairs(&self) -> Vec<(Cell, Cell)> {
        let new = self.new_name.to_owned();
        partners(&self.base, &self.new, |cell| match self.subject {
            Subject::Levels => Cell { level: new.clone(), ..cell.clone() },
            Subject::Paths | Subject::Runs => Cell { path: new.clone(), ..cell.clone() },
        })
    }
}

fn within_run(run: &Run, subject: Subject, base: &str, new: &str) -> Result<Comparison> {
    let cells = run.cells();
    let sides = Sides::of(&cells, subject, base, new);
    for (name, own) in [(base, &sides.base), (new, &sides.new)] {
        if own.is_empty() {
            let names: BTreeSet<&str> = cells.iter().map(|cell| subject.of(cell)).collect();
            let names: Vec<&str> = names.into_iter().collect();
            return Err(Error::usage(format!("{} has not measured `{name}`", run.directory.display()))
                .hint(format!("it has {}", names.join(", "))));
        }
    }
    let pairs = sides.pairs();
    if pairs.is_empty() {
        return Err(Error::usage(format!("`{base}` and `{new}` have no cell in common"))
            .hint("`siga show` lists the cells of the run"));
    }
    let paired: HashSet<&Cell> = pairs.iter().flat_map(|(base, new)| [base, new]).collect();
    let alone = sides.base.iter().chain(&sides.new).filter(|cell| !paired.contains(cell));
    let skipped = alone.map(|cell| (cell.clone(), "nothing to compare it with".to_owned())).collect();
    cells::compare(subject, (run, base), (run, new), &pairs, skipped)
}

/// Each cell with the one that `wanted` makes of it. What has that but for its MTU is its partner if it is the only one:
/// the MTU may be what the sides differ in.
fn partners(own: &[Cell], others: &[Cell], wanted: impl Fn(&Cell) -> Cell) -> Vec<(Cell, Cell)> {
    let mut by_mtu: HashMap<Cell, Vec<&Cell>> = HashMap::new();
    for other in others {
        by_mtu.entry(Cell { mtu: None, ..other.clone() }).or_default().push(other);
    }
    let partner = |cell: &Cell| {
        let wanted = wanted(cell);
        let similar = by_mtu.get(&Cell { mtu: None, ..wanted.clone() })?;
        match similar.as_slice() {
            [single] => Some((*single).clone()),
            many => many.contains(&&wanted).then_some(wanted),
        }
    };
    own.iter().filter_map(|cell| Some((cell.clone(), partner(cell)?))).collect()
}
