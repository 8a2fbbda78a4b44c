//! Measures the overhead of CPU accounting: the rate of real trials with the profiler, divided by the rate without the
//! profiler.
//!
//! Trials with and without the profiler alternate, so that a slow change of the host's speed affects both kinds alike. The
//! other accounting methods only read counters before and after a trial. They have no overhead within the trial.

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

/// Number of trials with the profiler. The number of trials without the profiler is the same.
const TRIALS: u32 = 10;
/// Measured time of one trial in seconds.
const SECONDS: f64 = 0.3;

/// Overhead of the profiler on a path whose client and server always have work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The measured cell (path, workload, MTU, pairs and level), as text.
    pub cell: String,
    /// Rate with the profiler divided by the rate without it, estimated from pairs of consecutive trials.
    pub rate_ratio: Ratio,
    /// Median rate without the profiler, in transactions per second.
    pub rate: f64,
}

/// Measures the overhead of the profiler. Returns an error of kind `Environment` if the path cannot be built. Returns an error
/// of kind `Incomplete` if the measurement was interrupted, or if an end of the path died.
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
    // Average the logarithms of the ratios, so that a ratio of 1/2 and a ratio of 2 cancel out.
    let rate_ratio = Ratio { value: log.value.exp(), low: log.low.map(f64::exp), high: log.high.map(f64::exp), ..log };
    Ok(Overhead { cell: cell.to_string(), rate_ratio, rate })
}
