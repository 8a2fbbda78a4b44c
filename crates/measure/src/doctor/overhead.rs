//! What accounting itself costs: the rate of real trials with the profiler on against the rate with it off.
//!
//! Trials with and without it alternate, so that drift of the host affects both. The other methods only read counters
//! before and after a trial and cost nothing within it.

use super::recovery::Ratio;
use crate::config;
use crate::cpu::profile::Profiler;
use crate::interrupt::interrupted;
use crate::trial::Bench;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_plan::path::PathKind;
use siga_plan::plan::Plan;
use siga_results::stats::lower_median;

/// Trials of each kind.
const TRIALS: u32 = 10;
/// Measured time of one.
const SECONDS: f64 = 0.3;

/// What the profiler costs a path that is always busy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The cell it was measured on, in words.
    pub cell: String,
    /// Rate with the profiler over rate without, of trials side by side.
    pub rate_ratio: Ratio,
    /// Transactions a second without it, median.
    pub rate: f64,
}

/// Measures it.
///
/// # Errors
/// Environment: the path cannot be built. Incomplete: interrupted, or an end died.
pub(super) fn measure(profiler: Profiler, progress: &mut dyn FnMut(&str)) -> Result<Overhead> {
    let plan = Plan {
        paths: vec![PathKind::VethRouted.name().into()],
        workloads: vec!["rr-200-1000".into()],
        clients: vec![10],
        seconds: SECONDS,
        warm_up_seconds: 0.1,
        ..Plan::default()
    };
    let matrix = plan.matrix()?;
    let cell = &matrix.cells[0];
    let mut profiler = Some(profiler);
    let (mut logs, mut rates) = (Vec::new(), Vec::new());
    for round in 0..TRIALS {
        progress(&format!("the cost of accounting, {} of {TRIALS}", round + 1));
        let mut rate = |with: bool| -> Result<f64> {
            let own = if with { profiler.take() } else { None };
            let mut bench = Bench { plan: &plan, matrix: &matrix, ssh: config::SSH, profiler: own };
            let measured = bench.trial(cell, round, false, progress);
            profiler = profiler.take().or(bench.profiler);
            Ok(measured?.0.rate())
        };
        let with_first = round % 2 == 0;
        let (first, second) = (rate(with_first)?, rate(!with_first)?);
        let (with, without) = if with_first { (first, second) } else { (second, first) };
        logs.push((with / without).ln());
        rates.push(without);
        if interrupted() {
            return Err(Error::incomplete("interrupted"));
        }
    }
    let nothing = || Error::incomplete("no trial was measured");
    let log = Ratio::of(&logs).ok_or_else(nothing)?;
    let rate = lower_median(&rates).map(|at| rates[at]).ok_or_else(nothing)?;
    // Ratios average as logarithms: half and double cancel out.
    let rate_ratio = Ratio { value: log.value.exp(), low: log.low.map(f64::exp), high: log.high.map(f64::exp), ..log };
    Ok(Overhead { cell: cell.to_string(), rate_ratio, rate })
}
