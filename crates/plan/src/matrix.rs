//! Matrices: the cells of a checked plan, in order.

use crate::level::Level;
use crate::work::Work;
use serde::{Deserialize, Serialize};
use std::fmt;

/// One combination of the values of a plan's axes. The matrix contains equal cells only once.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cell {
    /// Canonical text of the cell's [`Route`](crate::route::Route).
    pub path: String,
    /// What client and server send, or the command that runs.
    pub workload: Work,
    /// MTU in bytes. `None` if the path has no frames, or if siga leaves the MTU of existing places as it is.
    pub mtu: Option<u32>,
    /// Number of client-server pairs.
    pub clients: u32,
    /// Name of the level.
    pub level: String,
}

impl Cell {
    /// Returns the number of connections: one for each pair, and one for each stream beside them.
    pub fn connections(&self) -> u32 {
        self.clients.saturating_add(self.workload.beside())
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.workload.is_command() {
            write!(f, "{} ", self.path)?;
        }
        write!(f, "{}", self.workload)?;
        if let Some(mtu) = self.mtu {
            write!(f, " mtu {mtu}")?;
        }
        if !self.workload.is_command() || self.clients > 1 {
            write!(f, " x{}", self.clients)?;
        }
        if self.level != "plain" {
            write!(f, " {}", self.level)?;
        }
        Ok(())
    }
}

/// A checked plan: its cells in order, its levels by name, its sizes as numbers.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Cells without duplicates, in the order of the axes.
    pub cells: Vec<Cell>,
    /// Levels that the cells name.
    pub levels: Vec<Level>,
    /// Largest single write in bytes.
    pub write_bytes: u64,
    /// Cells of the plan that cannot be measured, each with the reason.
    pub skipped: Vec<(Cell, String)>,
}
