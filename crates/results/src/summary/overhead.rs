//! The CPU time that a router adds: a path beside the same path without its router, by trials of the same round.

use crate::record::TrialRecord;
use crate::stats::{Estimate, estimate};
use siga_plan::matrix::Cell;
use siga_plan::route::Route;

/// Returns the same cell on the path without the router; `None` if the path has no router.
pub fn base_of(cell: &Cell) -> Option<Cell> {
    let base = match cell.path.parse().ok()? {
        Route::Built(kind) => kind.without_router()?.name(),
        Route::Guests(path) => path.without_router()?.name(),
        Route::Own(_) | Route::Places(..) | Route::Host => return None,
    };
    Some(Cell { path: base.into(), ..cell.clone() })
}

/// Returns the name of the path over the kernel's network with which a path over siga's own network is compared. Returns `None`
/// if `path` is not one over siga's network.
pub fn kernel_path_of(path: &str) -> Option<&'static str> {
    match path.parse().ok()? {
        Route::Guests(path) => Some(path.of_kernel().name()),
        Route::Built(_) | Route::Own(_) | Route::Places(..) | Route::Host => None,
    }
}

/// Returns true if the path has a router.
pub fn has_router(cell: &Cell) -> bool {
    base_of(cell).is_some()
}

/// Returns one pair of sound trials (first `cell`, then `base`) for each round in which both cells have one.
fn rounds<'a>(trials: &'a [TrialRecord], cell: &Cell, base: &Cell) -> Vec<(&'a TrialRecord, &'a TrialRecord)> {
    let sound = |wanted: &Cell| super::sound(trials, wanted);
    let bases = sound(base);
    let pair = |trial: &'a TrialRecord| Some((trial, *bases.iter().find(|base| base.slot() == trial.slot())?));
    sound(cell).into_iter().filter_map(pair).collect()
}

/// Returns the CPU milliseconds per unit that the whole host used, or that all processes of a command used.
pub fn cpu_ms(trial: &TrialRecord) -> f64 {
    let used_ns = if trial.cell.workload.is_command() {
        trial.cpu.client.run_ns.saturating_add(trial.cpu.server.run_ns)
    } else {
        trial.cpu.busy_ns
    };
    used_ns as f64 * 1e-6 / trial.cpu_units().max(f64::MIN_POSITIVE)
}

/// Returns how many more CPU milliseconds per unit the host used than on the path without the router: the mean over the rounds.
pub(super) fn cpu_difference(trials: &[TrialRecord], cell: &Cell) -> Option<Estimate> {
    let pairs = rounds(trials, cell, &base_of(cell)?);
    let differences: Vec<f64> = pairs.iter().map(|(with, without)| cpu_ms(with) - cpu_ms(without)).collect();
    estimate(&differences)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::trial;

    #[test]
    fn router_overhead_is_the_difference_of_trials_of_the_same_round() {
        let trials: Vec<_> = (0..3)
            .flat_map(|round| {
                // Drift that all trials of a round share cancels out.
                let drift = u64::from(round) * 100;
                [trial("veth", round, 700 + drift, None), trial("veth-routed", round, 1_000 + drift, None)]
            })
            .chain([trial("veth-routed", 9, 5_000, None)])
            .collect();
        let cell = trials[1].cell.clone();
        let pairs = rounds(&trials, &cell, &base_of(&cell).unwrap());
        assert_eq!(pairs.len(), 3, "a trial without its partner does not count");
        let mut resumed = trials.clone();
        resumed.iter_mut().filter(|trial| trial.round == 2 && trial.cell == cell).for_each(|trial| trial.session = 1);
        assert_eq!(rounds(&resumed, &cell, &base_of(&cell).unwrap()).len(), 2, "nor does one measured later");
        let difference = cpu_difference(&trials, &cell).unwrap();
        assert!((difference.value - 0.3).abs() < 1e-9 && difference.count == 3, "{difference:?}");
        assert!(difference.high.unwrap() - difference.low.unwrap() < 1e-9, "drift has come through: {difference:?}");
    }
}
