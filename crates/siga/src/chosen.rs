//! Selects the cells of a run that run identifiers name.

use siga_model::error::Result;
use siga_plan::run_id::RunId;
use siga_results::store::Run;

/// Keeps only the cells of a run that the identifiers name. Without identifiers, keeps all.
///
/// # Errors
/// Returns an error of kind `Usage` for an identifier that names no cell of the run.
pub(crate) fn keep(run: &mut Run, ids: &[RunId]) -> Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let matrix = run.plan.matrix_with(&run.levels)?;
    run.plan.keep(ids, &matrix)?;
    run.trials.retain(|trial| ids.iter().any(|id| id.names(&trial.cell)));
    run.skipped.retain(|skipped| ids.iter().any(|id| id.names(&skipped.cell)));
    run.monitor.retain(|record| ids.iter().any(|id| id.names(&record.cell)));
    Ok(())
}
