//! One check of a host: what was tried, how it came out, what its absence costs, and what the user can do.

use serde::{Deserialize, Serialize};
use siga_model::error::Error;

/// Group of checks in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Paths that siga builds.
    Paths,
    /// Methods of CPU accounting.
    Accounting,
    /// Reaching places, planting costs.
    Tools,
    /// Fitness of the host for measuring.
    Host,
}

impl Group {
    /// All groups in the order of the report.
    pub const ALL: [Self; 4] = [Self::Paths, Self::Accounting, Self::Tools, Self::Host];
}

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// Works without a restriction.
    Ok,
    /// Works, at a price.
    Caution,
    /// Not available here.
    Missing,
}

/// One thing that was tried.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// Group that it belongs to.
    pub group: Group,
    /// What was tried: a path, a method, a tool.
    pub name: String,
    /// Outcome.
    pub state: CheckState,
    /// What it is, or what is wrong with it.
    pub finding: String,
    /// What its absence costs the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<String>,
    /// What the user can do about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub way_out: Option<String>,
}

impl Check {
    pub(super) fn ok(group: Group, name: impl Into<String>, finding: impl Into<String>) -> Self {
        Self { group, name: name.into(), state: CheckState::Ok, finding: finding.into(), costs: None, way_out: None }
    }

    pub(super) fn with(self, state: CheckState, costs: impl Into<String>, way_out: Option<String>) -> Self {
        Self { state, costs: Some(costs.into()), way_out, ..self }
    }

    pub(super) fn missing(group: Group, name: impl Into<String>, error: &Error, costs: impl Into<String>) -> Self {
        Self::ok(group, name, error.message()).with(CheckState::Missing, costs, error.way_out().map(str::to_owned))
    }
}
