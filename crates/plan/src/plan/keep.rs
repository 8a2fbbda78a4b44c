//! Keeps only the cells of a plan that run identifiers name.

use super::{Pick, Plan};
use crate::matrix::{Cell, Matrix};
use crate::run_id::RunId;
use siga_model::error::{Error, Result};

impl Plan {
    /// Excludes every cell that none of the identifiers names. `matrix` is the matrix of this plan.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` for an identifier that names no cell of the plan.
    pub fn keep(&mut self, ids: &[RunId], matrix: &Matrix) -> Result<()> {
        let cells = || matrix.cells.iter().chain(matrix.skipped.iter().map(|(cell, _)| cell));
        if let Some(id) = ids.iter().find(|id| !cells().any(|cell| id.names(cell))) {
            return Err(no_cell(*id, &format!("the plan {}", self.name), cells()));
        }
        let others = cells().filter(|cell| !ids.iter().any(|id| id.names(cell)));
        self.exclude.extend(others.map(|cell| Pick {
            path: Some(cell.path.clone()),
            workload: Some(cell.workload.to_string()),
            mtu: cell.mtu,
            clients: Some(cell.clients),
            level: Some(cell.level.clone()),
        }));
        Ok(())
    }
}

/// Returns the error for an identifier that names no cell of `place`, a plan or a run.
fn no_cell<'a>(id: RunId, place: &str, cells: impl Iterator<Item = &'a Cell>) -> Error {
    let mut known: Vec<String> = cells.filter_map(RunId::of).map(|id| id.to_string()).collect();
    known.dedup();
    let error = Error::usage(format!(
        "{place} has no cell of the run identifier {id} ({}, {}, MTU {}, {} clients, level {})",
        id.connectivity(),
        id.workload(),
        id.mtu(),
        id.clients(),
        id.level()
    ));
    match known.as_slice() {
        [] => error.hint("its cells have no run identifiers; the plan zvm430 has such cells"),
        _ => error.hint(format!("it has cells with these run identifiers: {}", known.join(", "))),
    }
}
