//! What the document of 2009 says, as data: the file `published/linux2009.toml`.

use serde::Deserialize;
use siga_model::error::{Error, Result};
use std::fmt;

pub(crate) const FILE: &str = include_str!("../../../../published/linux2009.toml");

/// The names of the workloads, and the overview.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Published {
    #[serde(rename = "workload")]
    pub(super) workloads: Vec<Named>,
    #[serde(rename = "finding")]
    pub(super) findings: Vec<Stated>,
}

/// A workload with the name that the document gives to it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Named {
    /// siga's name of the workload.
    pub(super) workload: String,
    /// The document's name in its results, overview and recommendations.
    pub(super) name: String,
    /// The name in the document's definitions, if it is another one.
    pub(super) alias: Option<String>,
}

/// An entry of the overview, or a part of one.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stated {
    pub(super) id: String,
    /// The row of the overview.
    pub(super) row: String,
    /// The column of the overview.
    pub(super) column: String,
    /// The entry as a sentence.
    pub(super) says: String,
    /// The workloads. Each of them has all cases.
    pub(super) workloads: Vec<String>,
    /// The entry as printed.
    pub(super) printed: String,
    /// Lower bound of each ratio.
    pub(super) above: Option<f64>,
    /// Upper bound of each ratio.
    pub(super) below: Option<f64>,
    #[serde(rename = "case")]
    pub(super) cases: Vec<StatedCase>,
}

/// The ratio of the rates of two sides.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatedCase {
    pub(super) name: String,
    /// The numerator: the geometric mean of these sides.
    pub(super) new: Vec<Side>,
    /// The denominator: the geometric mean of these sides.
    pub(super) base: Vec<Side>,
    /// The published ratio.
    pub(super) published: Option<f64>,
}

/// A connection with an MTU, written `osa-1gbe/8992`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub(super) struct Side {
    /// Name of the plan's table.
    pub(super) connection: String,
    /// MTU in bytes.
    pub(super) mtu: u32,
}

impl TryFrom<String> for Side {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        let parts = text.rsplit_once('/').and_then(|(connection, mtu)| Some((connection, mtu.parse().ok()?)));
        let (connection, mtu) = parts.ok_or_else(|| format!("`{text}` is not a connection with an MTU"))?;
        Ok(Self { connection: connection.to_owned(), mtu })
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with MTU {}", self.connection, self.mtu)
    }
}

/// Returns the published data. Returns an error of kind `Incomplete` if the file is invalid. The file is part of the program and is
/// tested, so users never see this error.
pub(super) fn stated() -> Result<Published> {
    toml::from_str(FILE).map_err(|error| Error::incomplete(format!("linux2009.toml: {error}")))
}
