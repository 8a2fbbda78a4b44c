//! One check of a host: what was tried, the outcome, the consequence if something is missing, and what the user can do.

use serde::{Deserialize, Serialize};
use siga_model::error::Error;

/// A group of checks in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
    /// Paths that siga builds.
    Paths,
    /// Features of the kernel that decide which paths and levels can be measured.
    Kernel,
    /// Methods of CPU accounting.
    Accounting,
    /// Other programs and abilities that siga uses: adding known costs to a router, user namespaces, packet filters, ssh.
    Tools,
    /// Conditions of the host that affect measurements.
    Host,
}

impl Group {
    /// All groups, in the order in which the report shows them.
    pub const ALL: [Self; 5] = [Self::Paths, Self::Kernel, Self::Accounting, Self::Tools, Self::Host];
}

/// The outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckState {
    /// The checked item works without restrictions.
    Ok,
    /// The checked item works, but with the restriction that `costs` describes.
    Caution,
    /// The checked item is not available on this host.
    Missing,
}

/// One check and its outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Check {
    /// The group in the report to which this check belongs.
    pub group: Group,
    /// Name of what was tried: a path, a method or a tool.
    pub name: String,
    /// The outcome of the check.
    pub state: CheckState,
    /// Description of what siga found, or of what is wrong.
    pub finding: String,
    /// The consequence for the user if the item is missing or restricted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub costs: Option<String>,
    /// What the user can do to get the item or remove the restriction.
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
