//! The published performance reports on z/VM. This module has their tables as data and prints a run in their layout. It also
//! checks whether their findings (statements about levels 420 and 430) hold in a run.

pub(crate) mod answers;
pub(crate) mod beside;
pub(crate) mod check;
pub mod figures;
pub(crate) mod findings;
pub(crate) mod pairs;
pub mod published;
pub(crate) mod repeat;
pub(crate) mod rows;
pub(crate) mod table;
mod why;

use crate::monitored;
use repeat::Repeat;
use siga_model::error::Result;
use siga_model::text::name;
use siga_results::store::Run;
use siga_results::summary::Reduced;
use std::fmt::Write;

/// Returns the report of a run in the layout of z/VM's reports: the tables, the figures, then the published findings and whether they
/// hold in the run. Returns an error of kind `Incomplete` if a cell has completed no unit, because the cell then has no figure per unit.
pub(super) fn text(run: &Run, reduced: &Reduced, repeat: &Repeat) -> Result<String> {
    let mut out = table::tables_text(run, reduced, repeat)?;
    out.push_str(&beside::text(reduced, repeat));
    out.push_str(&answers::text(reduced, repeat));
    out.push_str(&answers::plan_text(repeat));
    out.push_str(&monitored::text(run, reduced));
    for skipped in &reduced.skipped {
        let reason = name(&skipped.reason.replace("\n  ", "; "));
        let _ = writeln!(out, "Skipped: {}: {reason}", name(&skipped.cell.to_string()));
    }
    Ok(out)
}
