//! Watches the host while it measures one cell again and again. The result says which differences a comparison on this host could
//! distinguish now.
//!
//! All trials have the same settings, so their rates differ by the host's noise alone. The trials that the host disturbed are left
//! out, as in a run.

use crate::build::Builds;
use crate::config;
use crate::interrupt::interrupted;
use crate::topology::Networks;
use crate::trial::prepare::Preparation;
use crate::trial::{Bench, Measures};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_plan::path::PathKind;
use siga_plan::plan::Plan;
use siga_results::disturbance::{Disturbance, share};
use siga_results::record::TrialRecord;
use siga_results::stats;
use std::time::{Duration, Instant};

/// Number of trials of each side for which the smallest difference is computed.
const TRIALS: u32 = 12;
/// Quantile of Student's t at 97.5% for as many trials.
const T_975: f64 = 2.201;
/// Minimum number of undisturbed trials for a statement.
const TRIALS_LEAST: usize = 4;
/// Measured time of one trial in seconds, as in the default plan.
const SECONDS: f64 = 0.5;

/// What the host did while siga watched it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// Duration in seconds.
    pub seconds: f64,
    /// The measured cell (path, workload, MTU, pairs and level), as text.
    pub cell: String,
    /// Number of trials.
    pub trials: usize,
    /// Number of trials that the host disturbed.
    pub disturbed: usize,
    /// What disturbed them, in words; `None` if nothing did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disturbance: Option<String>,
    /// Share of the CPU time that the hypervisor took, over all trials.
    pub steal: f64,
    /// Share of the CPU time that processes outside siga used; `None` if they are not visible.
    pub others: Option<f64>,
    /// The smallest difference of rates that a comparison with 12 trials of each side can distinguish (0.04 is 4%). `None` if there
    /// are too few undisturbed trials.
    pub difference: Option<f64>,
}

/// Measures for `time`. Returns an error of kind `Environment` if the path cannot be built. Returns an error of kind `Incomplete` if
/// the measurement was interrupted, or if an end of the path died.
pub(super) fn watch(path: PathKind, time: Duration, progress: &mut dyn FnMut(&str)) -> Result<Watched> {
    let plan = Plan {
        paths: vec![path.name().into()],
        workloads: vec!["rr-200-1000".into()],
        clients: vec![1],
        seconds: SECONDS.min(time.as_secs_f64()),
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
        profiler: None,
        names: None,
        series: None,
        preparation: Preparation::default(),
    };
    let begun = Instant::now();
    let mut trials = Vec::new();
    while begun.elapsed() < time {
        let left = time.saturating_sub(begun.elapsed()).as_secs_f64();
        progress(&format!("watching the host, {left:.0} s left"));
        let round = u32::try_from(trials.len()).unwrap_or(u32::MAX);
        trials.push(bench.trial(cell, round, false, progress)?.0);
        if interrupted() {
            return Err(Error::incomplete("interrupted"));
        }
    }
    Ok(judge(cell.to_string(), begun.elapsed(), &trials))
}

/// Returns what the trials say about the host. Each trial is a round of its own.
fn judge(cell: String, time: Duration, trials: &[TrialRecord]) -> Watched {
    let disturbance = Disturbance::of(trials);
    let mean = |of: fn(&TrialRecord) -> Option<u64>| -> Option<f64> {
        let shares: Option<Vec<f64>> = trials.iter().map(|trial| Some(share(trial, of(trial)?))).collect();
        stats::estimate(&shares?).map(|mean| mean.value)
    };
    let quiet = trials.iter().filter(|trial| !disturbance.is_disturbed(trial.slot()) && trial.flags.is_empty());
    let logs: Vec<f64> = quiet.map(|trial| trial.rate().ln()).collect();
    Watched {
        seconds: time.as_secs_f64(),
        cell,
        trials: trials.len(),
        disturbed: disturbance.disturbed(),
        disturbance: disturbance.words(),
        steal: mean(|trial| Some(trial.host?.steal_ns)).unwrap_or(0.0),
        others: mean(|trial| trial.host?.others_ns),
        difference: (logs.len() >= TRIALS_LEAST).then(|| difference(&logs)).flatten(),
    }
}

/// Returns the half width of the 95% interval that a comparison of 12 trials of each side would have, as a fraction of the ratio.
/// `logs` are the logarithms of rates in the order of time. Two consecutive trials differ by as much as the two trials of a round.
fn difference(logs: &[f64]) -> Option<f64> {
    let steps: Vec<f64> = logs.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let squares = steps.iter().map(|step| step * step).sum::<f64>();
    let deviation = (squares / steps.len().max(1) as f64).sqrt();
    let half = T_975 * deviation / f64::from(TRIALS).sqrt();
    half.is_finite().then(|| half.exp_m1())
}

impl Watched {
    /// Returns what this host can distinguish now, in one sentence.
    pub(super) fn sentence(&self) -> String {
        let reason = self.disturbance.as_ref();
        match self.difference {
            Some(difference) => {
                let percent = 100.0 * difference;
                let percent = if percent < 9.95 { format!("{percent:.1}") } else { format!("{percent:.0}") };
                format!(
                    "At present, siga can detect differences of more than {percent}% on this host with {TRIALS} trials."
                )
            }
            None if reason.is_some() => "At present, no difference can be detected on this host, because too many \
                trials were disturbed."
                .to_owned(),
            None => {
                "siga watched the host for too short a time to estimate the smallest detectable difference.".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_results::record::HostRecord;
    use siga_results::testing;

    fn trials(transactions: &[u64], steal_ns: u64) -> Vec<TrialRecord> {
        let trial = |(round, count): (u32, &u64)| {
            let mut trial = testing::trial("veth-routed", round, 700, None);
            trial.client.transactions = *count;
            trial.host = Some(HostRecord { steal_ns, others_ns: Some(40_000_000), ..HostRecord::default() });
            trial
        };
        (0..).zip(transactions).map(trial).collect()
    }

    fn judged(transactions: &[u64], steal_ns: u64) -> Watched {
        judge("a cell".into(), Duration::from_secs(10), &trials(transactions, steal_ns))
    }

    #[test]
    fn the_smallest_difference_grows_with_the_noise() {
        // By hand: steps of ln 1.1 in turn up and down, 2.201 x ln 1.1 / sqrt 12 = 0.0606.
        let noisy = judged(&[1_000, 1_100, 1_000, 1_100, 1_000], 0);
        assert!((noisy.difference.unwrap() - 0.0606_f64.exp_m1()).abs() < 0.001, "{noisy:?}");
        assert_eq!(
            noisy.sentence(),
            "At present, siga can detect differences of more than 6.2% on this host with 12 trials."
        );
        assert!(judged(&[1_000, 1_010, 1_000, 1_010, 1_000], 0).difference.unwrap() < 0.01);
        assert!((noisy.others.unwrap() - 0.02).abs() < 1e-9 && noisy.steal == 0.0, "{noisy:?}");
    }

    #[test]
    fn a_disturbed_host_distinguishes_nothing() {
        let watched = judged(&[1_000; 6], 200_000_000);
        assert_eq!((watched.disturbed, watched.difference), (6, None));
        assert_eq!(
            watched.sentence(),
            "At present, no difference can be detected on this host, because too many trials were disturbed."
        );
        assert!(judged(&[1_000; 3], 0).sentence().contains("too short"));
    }
}
