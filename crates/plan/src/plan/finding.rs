//! Findings of a plan: statements about the ratio of two levels, which the report of a run checks.

use super::Plan;
use crate::limits;
use crate::matrix::{Cell, Matrix};
use crate::route::Route;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};

/// A statement about the ratio of a figure at one level to the same figure at another level. It holds if the ratio is within the bounds
/// in every cell that was measured at both levels.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// Short name.
    pub id: String,
    /// The statement as a sentence.
    pub says: String,
    /// Figure that is compared.
    pub figure: FindingFigure,
    /// Level whose figure is the numerator, by its name in tables.
    pub level: String,
    /// Level whose figure is the denominator, by its name in tables.
    pub base: String,
    /// Paths that the statement is about; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// MTUs that the statement is about, in bytes; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mtus: Vec<u32>,
    /// Workloads that the statement is about; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<String>,
    /// Numbers of pairs that the statement is about; empty: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clients: Vec<u32>,
    /// The ratio is larger than this; absent: no lower bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub above: Option<f64>,
    /// The ratio is smaller than this; absent: no upper bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub below: Option<f64>,
}

/// A figure that a finding is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum FindingFigure {
    /// Units per second.
    Rate,
    /// CPU time of the whole system per unit.
    Cpu,
}

impl Plan {
    /// Refuses findings that no cell of the plan can decide.
    pub(super) fn check_findings(&self, matrix: &Matrix) -> Result<()> {
        if self.finding.len() > limits::FINDINGS_MAX {
            return Err(Error::usage(format!("the plan has {} findings, which are too many", self.finding.len()))
                .hint(format!("a plan can have at most {} findings", limits::FINDINGS_MAX)));
        }
        for (at, finding) in self.finding.iter().enumerate() {
            if self.finding[..at].iter().any(|other| other.id == finding.id) {
                return Err(Error::usage(format!("the plan has two findings with the name {}", finding.id))
                    .hint("give each finding a name of its own (`id`)"));
            }
            finding.check(matrix).map_err(|error| error.at(&finding.id))?;
        }
        Ok(())
    }
}

impl Finding {
    fn check(&self, matrix: &Matrix) -> Result<()> {
        let is_bound = |bound: &f64| bound.is_finite() && *bound > 0.0;
        let bounds: Vec<f64> = self.above.into_iter().chain(self.below).collect();
        if bounds.is_empty() || !bounds.iter().all(is_bound) {
            return Err(Error::usage("the finding needs the bound `above` or `below`, a number above 0"));
        }
        if let (Some(above), Some(below)) = (self.above, self.below)
            && above >= below
        {
            return Err(Error::usage(format!("no ratio is above {above} and below {below}")));
        }
        if self.says.trim().is_empty() || self.id.trim().is_empty() {
            return Err(Error::usage("the finding needs a name (`id`) and a sentence (`says`)"));
        }
        if self.says.len().max(self.id.len()) > limits::FINDING_BYTES_MAX {
            let hint = format!("both have at most {} bytes", limits::FINDING_BYTES_MAX);
            return Err(Error::usage("the name (`id`) or the sentence (`says`) of the finding is too long").hint(hint));
        }
        self.workloads.iter().try_for_each(|name| name.parse::<Workload>().map(drop))?;
        self.paths.iter().try_for_each(|name| name.parse::<Route>().map(drop))?;
        let cells = |level: &str| matrix.cells.iter().any(|cell| cell.level == level && self.is_about(cell));
        match [&self.level, &self.base].into_iter().find(|level| !cells(level)) {
            Some(level) => Err(Error::usage(format!("the plan has no cell of the finding at level {level}"))
                .hint("name levels, paths, MTUs, workloads and numbers of pairs of the plan")),
            None if self.level == self.base => Err(Error::usage("the finding compares a level with itself")),
            None if !self.has_a_case(matrix) => Err(Error::usage(format!(
                "no cell of the finding has a partner: levels {} and {} differ in path, workload or number of pairs",
                self.level, self.base
            ))
            .hint("give both levels a cell with the same path, workload and number of pairs")),
            None => Ok(()),
        }
    }

    /// Returns true if the plan has a cell that differs between the two levels in nothing but the level, and perhaps the MTU that it sets.
    fn has_a_case(&self, matrix: &Matrix) -> bool {
        let key = |cell: &Cell| (cell.path.clone(), cell.workload, cell.clients);
        let about: Vec<&Cell> = matrix.cells.iter().filter(|cell| self.is_about(cell)).collect();
        let keys: Vec<_> = about.iter().filter(|cell| cell.level == self.base).map(|cell| key(cell)).collect();
        about.iter().any(|cell| cell.level == self.level && keys.contains(&key(cell)))
    }

    /// Returns true if the statement is about the path, MTU, workload and number of pairs of this cell.
    pub fn is_about(&self, cell: &Cell) -> bool {
        let is_work = |name: &String| name.parse::<Workload>().is_ok_and(|workload| cell.workload == workload.into());
        let is_path = |name: &String| name.parse::<Route>().is_ok_and(|route| cell.path == route.to_string());
        (self.workloads.is_empty() || self.workloads.iter().any(is_work))
            && (self.paths.is_empty() || self.paths.iter().any(is_path))
            && (self.mtus.is_empty() || cell.mtu.is_some_and(|mtu| self.mtus.contains(&mtu)))
            && (self.clients.is_empty() || self.clients.contains(&cell.clients))
    }
}
