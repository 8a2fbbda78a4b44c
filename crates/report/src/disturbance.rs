//! What the host did besides each trial, as figures for JSON, CSV and charts.

use serde_json::{Value, json};
use siga_results::disturbance::{Disturbance, share};
use siga_results::record::TrialRecord;
use siga_results::store::Run;

/// What the host did besides one trial. Shares are fractions of the CPU time of all CPUs.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    /// Share that the hypervisor took.
    pub(super) steal: f64,
    /// Share that processes outside the run used; `None` if they are not visible.
    pub(super) others: Option<f64>,
    /// Run-queue delay of the path's threads, as a share of the CPU time; `None` if the kernel does not count it.
    pub(super) run_queue: Option<f64>,
    /// Number of other runs of siga.
    pub(super) other_runs: u32,
    /// Largest factor between a figure of the probe and its median over the run; `None` if there are too few probes.
    pub(super) probe_factor: Option<f64>,
    /// How often a network interface of the path went down.
    pub(super) carrier_losses: u64,
    /// Number of attempts that gave no result.
    pub(super) lost_attempts: u32,
    /// Names of the causes for which the trial is disturbed.
    pub(super) causes: Vec<&'static str>,
    /// Whether the trial is left out.
    pub(super) left_out: bool,
}

/// Returns what the host did besides a trial; `None` if the record does not say it.
pub(super) fn facts(trial: &TrialRecord, disturbance: &Disturbance) -> Option<Facts> {
    let host = trial.host.as_ref()?;
    Some(Facts {
        steal: share(trial, host.steal_ns),
        others: host.others_ns.map(|ns| share(trial, ns)),
        run_queue: host.run_queue.map(|delay| share(trial, delay.total_ns())),
        other_runs: host.other_runs,
        probe_factor: disturbance.probe_factor(trial),
        carrier_losses: host.carrier_losses,
        lost_attempts: host.lost_attempts,
        causes: disturbance.causes(trial).into_keys().map(|cause| cause.name()).collect(),
        left_out: disturbance.leaves_out(trial),
    })
}

/// Returns the numbers of rounds, and the reason why there is no verdict.
pub(super) fn summary(disturbance: &Disturbance) -> Value {
    json!({
        "rounds": disturbance.rounds(),
        "disturbed": disturbance.disturbed(),
        "words": disturbance.words(),
        "no_verdict": disturbance.no_verdict(),
    })
}

/// Returns the member `disturbance` of a run's JSON: the numbers of rounds, and what the host did besides each trial.
pub(super) fn of_run(run: &Run, disturbance: &Disturbance) -> Value {
    let one = |trial: &TrialRecord| {
        let facts = facts(trial, disturbance)?;
        Some(json!({
            "at": trial.at,
            "session": trial.session,
            "round": trial.round,
            "path": trial.cell.path,
            "workload": trial.cell.workload,
            "mtu": trial.cell.mtu,
            "clients": trial.cell.clients,
            "level": trial.cell.level,
            "steal": facts.steal,
            "others": facts.others,
            "run_queue": facts.run_queue,
            "other_runs": facts.other_runs,
            "probe": trial.host.as_ref().and_then(|host| host.probe),
            "probe_factor": facts.probe_factor,
            "carrier_losses": facts.carrier_losses,
            "lost_attempts": facts.lost_attempts,
            "causes": facts.causes,
            "left_out": facts.left_out,
        }))
    };
    let mut all = summary(disturbance);
    all["trials"] = run.trials.iter().filter_map(one).collect::<Vec<_>>().into();
    all
}
