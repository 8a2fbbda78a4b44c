//! Measures the overhead of CPU accounting on a path whose client and server always have work: the rate with the profiler, divided
//! by the rate without it.
//!
//! Each trial has a phase with the profiler between two phases without it, so that a slow change of the host's speed affects both
//! kinds alike. The other accounting methods only read counters before and after a phase. They have no overhead within it.

use super::recovery::Ratio;
use crate::build::Builds;
use crate::config;
use crate::cpu::profile::Profiler;
use crate::interrupt::interrupted;
use crate::topology::Networks;
use crate::trial::prepare::Preparation;
use crate::trial::{Bench, Measures};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_plan::path::PathKind;
use siga_plan::plan::Plan;
use siga_results::stats::lower_median;
use siga_results::summary::ObserverCost;

/// Number of trials.
const TRIALS: u32 = 12;
/// Duration of a trial's own phase in seconds.
const SECONDS: f64 = 0.3;

/// Overhead of the profiler on a path whose client and server always have work.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overhead {
    /// The measured cell (path, workload, MTU, pairs and level), as text.
    pub cell: String,
    /// Rate with the profiler divided by the rate without it.
    pub rate_ratio: Ratio,
    /// The ratio that follows from the measured cost of a sample and of a packet, and from their numbers.
    pub said_ratio: f64,
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
    let mut bench = Bench {
        plan: &plan,
        matrix: &matrix,
        ssh: config::SSH,
        builds: &Builds::default(),
        networks: &Networks::default(),
        profiler: Some(profiler),
        names: None,
        series: None,
        preparation: Preparation::default(),
    };
    let mut trials = Vec::new();
    for round in 0..TRIALS {
        progress(&format!("the cost of accounting, {} of {TRIALS}", round + 1));
        trials.push(bench.trial(cell, round, false, progress)?.0);
        if interrupted() {
            return Err(Error::incomplete("interrupted"));
        }
    }
    let nothing = || Error::incomplete("siga measured no trial, so it cannot compute the cost of accounting");
    let cost = ObserverCost::of(&trials.iter().collect::<Vec<_>>()).ok_or_else(nothing)?;
    let rates: Vec<f64> = trials.iter().map(|trial| trial.rate()).collect();
    let rate = lower_median(&rates).map(|at| rates[at]).ok_or_else(nothing)?;
    let value = cost.rate_ratio.ok_or_else(nothing)?;
    let rate_ratio = Ratio { value, low: cost.low, high: cost.high, rounds: cost.trials };
    Ok(Overhead { cell: cell.to_string(), rate_ratio, said_ratio: cost.said_ratio, rate })
}
