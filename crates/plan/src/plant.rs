//! Planted costs: known CPU time or delay that siga adds, to check whether accounting finds it.

use crate::limits::PER_PACKET_NS_MAX;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};

/// Known costs that siga adds, to check whether accounting finds them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Plant {
    /// CPU in user mode before each exchange, in the client, in microseconds.
    pub client_us: f64,
    /// CPU in user mode before each response, in the server, in microseconds.
    pub server_us: f64,
    /// CPU for each packet the router receives, in microseconds (privilege; routed paths).
    pub router_us: f64,
    /// CPU for each packet the router receives while the profiler runs, in microseconds (privilege; routed paths). It plants a
    /// profiler that costs more than it says.
    pub profiler_us: f64,
    /// Time that the server waits before each response, in microseconds.
    pub delay_us: f64,
}

impl Plant {
    /// Returns true if no cost is planted.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Checks that every cost is within its range.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` for the first cost that is out of range.
    pub fn check(&self) -> Result<()> {
        for (what, value) in [
            ("plant.client_us", self.client_us),
            ("plant.server_us", self.server_us),
            ("plant.delay_us", self.delay_us),
        ] {
            within(what, value, 0.0, 1e6)?;
        }
        for (what, value) in [("plant.router_us", self.router_us), ("plant.profiler_us", self.profiler_us)] {
            within(what, value, 0.0, f64::from(PER_PACKET_NS_MAX) / 1e3)?;
        }
        Ok(())
    }
}

/// Checks that `least <= value <= most`. `what` names the value in the error.
pub(crate) fn within(what: &str, value: f64, least: f64, most: f64) -> Result<()> {
    if value.is_finite() && (least..=most).contains(&value) {
        return Ok(());
    }
    Err(Error::usage(format!("{what} = {value} is not allowed")).hint(format!("{what} must be from {least} to {most}")))
}
