//! What accounting itself costs: the rate of real trials with the profiler on against the rate with it off.
//!
//! Both kinds of trial alternate, so that drift of the host falls on both. The other methods read counters before and
//! after a trial only and cost nothing within it.

use crate::bpf::profile::Profiler;
use crate::control;
use crate::error::{Error, Result};
use crate::path::PathKind;
use crate::plan::Plan;
use crate::stats::{Estimate, estimate};
use crate::trial::Bench;
use serde::{Deserialize, Serialize};

/// Trials of each kind.
const TRIALS: u32 = 6;
/// Measured time of one.
const SECONDS: f64 = 0.3;

/// What the profiler costs a path that is busy all the time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The cell it was measured on, in words.
    pub cell: String,
    /// Rate with the profiler over rate without, geometric mean of the trials side by side.
    pub rate_ratio: Estimate,
    /// Transactions a second without it, mean.
    pub rate: f64,
}

/// Measures it.
///
/// # Errors
/// Environment: the path cannot be built. Incomplete: interrupted, or an end died.
pub(super) fn measure(profiler: Profiler, tell: &mut dyn FnMut(&str)) -> Result<Overhead> {
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
        tell(&format!("the cost of accounting, {} of {TRIALS}", round + 1));
        let mut rate = |with: bool| -> Result<f64> {
            let own = if with { profiler.take() } else { None };
            let mut bench = Bench { plan: &plan, matrix: &matrix, profiler: own };
            let measured = bench.trial(cell, round, false);
            profiler = profiler.take().or(bench.profiler);
            Ok(measured?.0.rate())
        };
        let with_first = round % 2 == 0;
        let (first, second) = (rate(with_first)?, rate(!with_first)?);
        let (with, without) = if with_first { (first, second) } else { (second, first) };
        logs.push((with / without).ln());
        rates.push(without);
        if control::interrupted() {
            return Err(Error::incomplete("interrupted"));
        }
    }
    let nothing = || Error::incomplete("no trial was measured");
    let log = estimate(&logs).ok_or_else(nothing)?;
    let rate = estimate(&rates).ok_or_else(nothing)?.value;
    let exp = |end: Option<f64>| end.map(f64::exp);
    let rate_ratio = Estimate { value: log.value.exp(), low: exp(log.low), high: exp(log.high), count: log.count };
    Ok(Overhead { cell: cell.to_string(), rate_ratio, rate })
}
