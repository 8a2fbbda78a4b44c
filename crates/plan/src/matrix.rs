//! What a plan becomes: its cells in order.

use crate::level::Level;
use crate::workload::Workload;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One combination of the matrix. Equal cells are one.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Canonical text of a [`Route`].
    pub path: String,
    /// What is said.
    pub workload: Workload,
    /// MTU in bytes; `None` where the path has none or its own is kept.
    pub mtu: Option<u32>,
    /// Pairs.
    pub clients: u32,
    /// Name of the level.
    pub level: String,
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.path, self.workload)?;
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        write!(f, " x{}", self.clients)?;
        if self.level != "plain" {
            write!(f, " {}", self.level)?;
        }
        Ok(())
    }
}

/// A checked plan: its cells in order, its levels by name, its sizes as numbers.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Every cell once, in the order of the axes.
    pub cells: Vec<Cell>,
    /// The levels that cells name.
    pub levels: Vec<Level>,
    /// Largest single write in bytes.
    pub write_bytes: u64,
    /// What the plan asks for and cannot be, with its reason (a path type without the MTU asked for).
    pub skipped: Vec<(Cell, String)>,
}
