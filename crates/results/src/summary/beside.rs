//! Comparison of paths over siga's own network with paths over the kernel's network. Trials of the same round are compared.

use super::Summary;
use super::overhead::{cpu_ms, ratio, rounds};
use crate::record::TrialRecord;
use crate::stats::Estimate;
use siga_plan::matrix::Cell;
use siga_plan::route::Route;

/// A path over siga's own network, compared with the path over the kernel's network that has the same number of routers. Both
/// have the same workload and number of client-server pairs.
#[derive(Debug, Clone, PartialEq)]
pub struct Beside {
    /// The cell of the path over siga's network.
    pub cell: Cell,
    /// The cell of the path over the kernel's network.
    pub kernel: Cell,
    /// The rate over siga's network divided by the rate over the kernel's network (geometric mean over the rounds).
    pub rate: Estimate,
    /// The whole host's CPU time per unit over siga's network, divided by that over the kernel's network (geometric mean over the
    /// rounds).
    pub cpu: Estimate,
    /// Waiting policy (how siga's processes wait for traffic), spelled as in the command-line options.
    pub wait: String,
    /// Fraction of the median trial's time in which siga's client was co-located with its partners (ran on the same CPU as they).
    pub colocated: f64,
}

/// Returns the name of the path over the kernel's network with which a path over siga's own network is compared. Returns `None`
/// if `path` is not one over siga's network.
pub fn kernel_path_of(path: &str) -> Option<&'static str> {
    match path.parse().ok()? {
        Route::Guests(path) => Some(path.of_kernel().name()),
        Route::Built(_) | Route::Places(..) => None,
    }
}

/// Returns the summary of the cell that differs from `cell` only in its path, which is the one over the kernel's network. If that
/// cell was not measured, returns the cell that differs also in its MTU, unless there are several of them.
fn kernel_of<'a>(cells: &'a [Summary], cell: &Cell) -> Option<&'a Summary> {
    let path = kernel_path_of(&cell.path)?;
    let like = |other: &&Summary| {
        let wanted = Cell { path: path.into(), mtu: other.cell.mtu, ..cell.clone() };
        other.cell == wanted
    };
    let mut all = cells.iter().filter(like);
    let same = all.clone().find(|other| other.cell.mtu == cell.mtu);
    same.or_else(|| all.next().filter(|_| all.next().is_none()))
}

/// Returns a comparison for each cell of a siga network that has a counterpart over the kernel's network, in the order of the
/// plan.
pub(super) fn all(cells: &[Summary], trials: &[TrialRecord]) -> Vec<Beside> {
    let beside = |summary: &Summary| {
        let kernel = kernel_of(cells, &summary.cell)?;
        let pairs = rounds(trials, &summary.cell, &kernel.cell);
        let (_, wait) = summary.median.io.rsplit_once(", ")?;
        let colocated_ns = summary.median.cpu.guests.as_ref().map_or(0, |guests| guests.client.colocated_ns);
        Some(Beside {
            cell: summary.cell.clone(),
            kernel: kernel.cell.clone(),
            rate: ratio(&pairs, TrialRecord::rate)?,
            cpu: ratio(&pairs, cpu_ms)?,
            wait: wait.to_owned(),
            // The counter is read just before and just after the trial. So its increase can be slightly larger than the duration
            // of the trial.
            colocated: (colocated_ns as f64 / summary.median.elapsed_ns.max(1) as f64).min(1.0),
        })
    };
    cells.iter().filter_map(beside).collect()
}

#[cfg(test)]
mod tests {
    use crate::summary::reduce;

    #[test]
    fn a_siga_path_stands_beside_the_kernels_path_with_as_many_routers() {
        let of = |path: &str, mtu: u32, round: u32, busy_ms: u64| {
            let mut trial = crate::testing::trial(path, round, busy_ms, None);
            trial.cell.mtu = Some(mtu);
            trial
        };
        let trials = (0..3).flat_map(|round| {
            // Drift that all trials of a round share cancels out.
            let base = 500 * (u64::from(round) + 1);
            [
                of("veth", 1_500, round, 100),
                of("veth-routed", 1_500, round, base),
                of("hipersockets-routed", 57_344, round, 2 * base),
            ]
        });
        let reduced = reduce(&crate::testing::run("run", trials.collect()), None).unwrap();
        let [beside] = reduced.beside.as_slice() else { panic!("{:?}", reduced.beside) };
        assert_eq!((beside.cell.path.as_str(), beside.kernel.path.as_str()), ("hipersockets-routed", "veth-routed"));
        assert_eq!((beside.rate.value, beside.wait.as_str(), beside.cpu.count), (1.0, "block", 3));
        assert!((beside.cpu.value - 2.0).abs() < 1e-9 && beside.cpu.high.unwrap() < 2.001, "{beside:?}");
    }

    #[test]
    fn of_several_kernel_cells_only_that_of_the_same_mtu_stands_beside() {
        let of = |path: &str, mtu: u32| {
            let mut trial = crate::testing::trial(path, 0, 100, None);
            trial.cell.mtu = Some(mtu);
            trial
        };
        let trials = vec![of("veth", 1_500), of("veth", 8_992), of("hipersockets", 8_992), of("hipersockets", 57_344)];
        let reduced = reduce(&crate::testing::run("run", trials), None).unwrap();
        let mtus: Vec<_> = reduced.beside.iter().map(|one| (one.cell.mtu, one.kernel.mtu)).collect();
        assert_eq!(mtus, [(Some(8_992), Some(8_992))]);
    }
}
