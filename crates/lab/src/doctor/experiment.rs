//! The experiments of a calibration: what is planted, in what setting, and how much of it a method sees in two trials.
//!
//! Everything here is arithmetic over trial records that were measured elsewhere.

use super::recovery::{Ratio, Verdict};
use crate::account::Method;
use crate::histogram;
use crate::path::PathKind;
use crate::plan::{Plan, Plant};
use crate::record::TrialRecord;
use crate::summary;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The path, which has a router.
pub(super) const PATH: PathKind = PathKind::VethRouted;
/// What is said on it.
pub(super) const WORKLOAD: &str = "rr-200-1000";
/// Measured time of one trial.
pub(super) const SECONDS: f64 = 0.4;
/// Time before it.
const WARM_UP_SECONDS: f64 = 0.1;
/// Share of all CPUs that others may use in a trial which `subtract` is judged by.
pub(super) const OTHERS_MAX: f64 = 0.01;

/// Where a known cost is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Planted {
    /// CPU in user mode before each exchange, in the client.
    Client,
    /// CPU in user mode before each response, in the server.
    Server,
    /// CPU for each packet that the router receives.
    Router,
    /// Waiting before each response.
    Delay,
}

/// What is to recover it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// CPU accounting by `profile`.
    Profile,
    /// CPU accounting by `subtract`.
    Subtract,
    /// CPU accounting by `tick`.
    Tick,
    /// The median latency.
    Latency,
}

impl fmt::Display for Planted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Client => "client",
            Self::Server => "server",
            Self::Router => "router",
            Self::Delay => "delay",
        })
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Profile => Method::Profile.fmt(f),
            Self::Subtract => Method::Subtract.fmt(f),
            Self::Tick => Method::Tick.fmt(f),
            Self::Latency => f.pad("latency"),
        }
    }
}

/// What one method recovered of one planted cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Where the cost was.
    pub planted_in: Planted,
    /// What was to recover it.
    pub way: Way,
    /// Microseconds a transaction more in the trial with the larger cost, mean over the rounds.
    pub planted_us: f64,
    /// Microseconds a transaction that were recovered: `planted_us` times the ratio.
    pub recovered_us: f64,
    /// Recovered over planted.
    pub ratio: Ratio,
    /// What that says.
    pub verdict: Verdict,
    /// What has to be known to read it, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One cost, planted small and large.
#[derive(Debug, Clone, Copy)]
pub(super) struct Experiment {
    pub(super) planted: Planted,
    pub(super) little_us: f64,
    pub(super) much_us: f64,
    clients: u32,
    /// Both ends share one CPU.
    together: bool,
}

/// Ten pairs have always work, and two ends on one CPU wake each other at the same price whatever is planted in one of
/// them; on two, the one that waits longer would be dearer to wake. A delay is seen best alone.
pub(super) const EXPERIMENTS: [Experiment; 4] = [
    Experiment { planted: Planted::Client, little_us: 40.0, much_us: 120.0, clients: 10, together: true },
    Experiment { planted: Planted::Server, little_us: 40.0, much_us: 120.0, clients: 10, together: true },
    Experiment { planted: Planted::Router, little_us: 10.0, much_us: 40.0, clients: 10, together: false },
    Experiment { planted: Planted::Delay, little_us: 2_000.0, much_us: 6_000.0, clients: 1, together: false },
];

impl Experiment {
    /// The plan of a trial with `us` planted; `cpu` for ends that share one.
    pub(super) fn plan(&self, us: f64, cpu: u32) -> Plan {
        let cpus = self.together.then(|| cpu.to_string());
        let mut plant = Plant::default();
        match self.planted {
            Planted::Client => plant.client_us = us,
            Planted::Server => plant.server_us = us,
            Planted::Router => plant.router_us = us,
            Planted::Delay => plant.delay_us = us,
        }
        Plan {
            paths: vec![PATH.name().into()],
            workloads: vec![WORKLOAD.into()],
            clients: vec![self.clients],
            seconds: SECONDS,
            warm_up_seconds: WARM_UP_SECONDS,
            client_cpus: cpus.clone(),
            server_cpus: cpus,
            plant,
            ..Plan::default()
        }
    }

    /// The same with other amounts, up to a quarter less or more, spread evenly over the rounds.
    ///
    /// A loop of fixed length can fall into step with a clock that samples it, which then sees one part of it too often.
    /// Amounts that change from round to round make that part of the noise, which the interval shows.
    pub(super) fn varied(self, round: u32) -> Self {
        let golden = 0.618_033_988_749_895;
        let factor = 0.75 + 0.5 * (0.5 + f64::from(round) * golden).fract();
        Self { little_us: self.little_us * factor, much_us: self.much_us * factor, ..self }
    }

    /// The methods that claim to see it.
    pub(super) fn ways(&self) -> &'static [Way] {
        match self.planted {
            Planted::Client | Planted::Server => &[Way::Profile, Way::Tick],
            Planted::Router => &[Way::Profile, Way::Subtract],
            Planted::Delay => &[Way::Latency],
        }
    }

    /// Microseconds a transaction that were planted in a trial which asked for `us`.
    fn planted_us(&self, trial: &TrialRecord, us: f64) -> f64 {
        match self.planted {
            Planted::Client | Planted::Server | Planted::Delay => us,
            // A transaction takes as many packets as it takes, and the burner says what they really cost.
            Planted::Router => {
                trial.cpu.planted_router.map_or(0.0, |(_, ns)| ns as f64 * 1e-3 / trial.units().max(1.0))
            }
        }
    }

    /// Microseconds a transaction that a method sees in the place of the cost; `None` where it cannot.
    fn seen_us(&self, trial: &TrialRecord, way: Way) -> Option<f64> {
        if way == Way::Latency {
            return histogram::percentiles(&histogram::decode(&trial.latency).ok()?).p50;
        }
        if way == Way::Subtract {
            // The path without the router is the same for both trials of a round, so it cancels.
            return Some(summary::cpu_ms(trial) * 1e3);
        }
        let cpu = match (way, &trial.cpu.profile) {
            (Way::Profile, Some(profile)) => summary::by_profile(trial, profile),
            (Way::Profile, None) => return None,
            (Way::Tick | Way::Subtract | Way::Latency, _) => summary::by_tick(trial),
        };
        let component = match self.planted {
            Planted::Client => Some(cpu.client),
            Planted::Server => Some(cpu.server),
            Planted::Router => cpu.router,
            Planted::Delay => None,
        };
        component.map(|component| component.total * 1e3)
    }
}

/// The two trials of one round.
#[derive(Debug)]
pub(super) struct Pair {
    /// With the costs of this round.
    pub(super) experiment: Experiment,
    pub(super) little: TrialRecord,
    pub(super) much: TrialRecord,
}

/// Share of all CPUs that neither the path nor its ends used; `None` without the profiler.
pub(super) fn others(trial: &TrialRecord) -> Option<f64> {
    let profile = trial.cpu.profile.as_ref()?;
    let other = profile.elsewhere.other;
    let ns = (other.user + other.kernel).saturating_mul(profile.period_ns) as f64;
    Some(ns / (trial.cpu.wall_ns as f64 * f64::from(trial.cpu.cpus.max(1))).max(1.0))
}

fn is_quiet(pair: &Pair) -> bool {
    [&pair.little, &pair.much].iter().all(|trial| others(trial).is_none_or(|share| share <= OTHERS_MAX))
}

/// What `way` recovered over the rounds so far; `None` if there was no round that it could see the cost in.
pub(super) fn row(experiment: &Experiment, way: Way, pairs: &[Pair]) -> Option<Row> {
    // Whoever else runs is part of the total that `subtract` starts from; the other methods see only the path's own.
    let counts = |pair: &&Pair| way != Way::Subtract || is_quiet(pair);
    let counted: Vec<&Pair> = pairs.iter().filter(counts).collect();
    let one = |pair: &&Pair| -> Option<(f64, f64)> {
        let experiment = &pair.experiment;
        let planted = experiment.planted_us(&pair.much, experiment.much_us)
            - experiment.planted_us(&pair.little, experiment.little_us);
        let seen = experiment.seen_us(&pair.much, way)? - experiment.seen_us(&pair.little, way)?;
        (planted > 0.0).then(|| (planted, seen / planted))
    };
    let rounds: Vec<(f64, f64)> = counted.iter().filter_map(one).collect();
    let ratios: Vec<f64> = rounds.iter().map(|(_, ratio)| *ratio).collect();
    let busy = pairs.len() - counted.len();
    let note = (busy > 0).then(|| {
        let percent = OTHERS_MAX * 100.0;
        format!("{busy} of {} rounds left out: others used more than {percent:.0}% of the CPUs", pairs.len())
    });
    let ratio = Ratio::of(&ratios)?;
    let planted_us = rounds.iter().map(|(planted, _)| planted).sum::<f64>() / rounds.len().max(1) as f64;
    let recovered_us = planted_us * ratio.value;
    Some(Row { planted_in: experiment.planted, way, planted_us, recovered_us, ratio, verdict: ratio.verdict(), note })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Charges, ProfileRecord, Samples};
    use crate::summary::trial_of;

    /// 1,000 transactions with a router that got `router` samples of 0.1 ms and really spent as many.
    fn trial(router: u64, others: u64) -> TrialRecord {
        let samples = |kernel| Samples { user: 0, kernel };
        let elsewhere = Charges { router: samples(router), other: samples(others), ..Charges::default() };
        let profile = ProfileRecord { period_ns: 100_000, elsewhere, ..ProfileRecord::default() };
        let mut trial = trial_of("veth-routed", 0, 500 + router / 10 + others / 10, Some(profile));
        trial.cpu.planted_router = Some((2_000, router * 100_000));
        trial
    }

    fn pairs(others: &[u64]) -> Vec<Pair> {
        let experiment = EXPERIMENTS[2];
        let pair = |share: &u64| Pair { experiment, little: trial(200, *share), much: trial(800, *share) };
        others.iter().map(pair).collect()
    }

    #[test]
    fn what_is_there_is_recovered() {
        let pairs = pairs(&[0; 8]);
        for way in [Way::Profile, Way::Subtract] {
            let row = row(&EXPERIMENTS[2], way, &pairs).unwrap();
            assert!((row.ratio.value - 1.0).abs() < 1e-9 && row.verdict == Verdict::Recovered, "{row:?}");
            assert!((row.planted_us - 60.0).abs() < 1e-9 && row.note.is_none(), "{row:?}");
        }
    }

    #[test]
    fn subtract_is_judged_by_quiet_rounds_only() {
        // 300 samples of 0.1 ms are 1.5% of two CPUs for a second.
        let pairs = pairs(&[0, 0, 300]);
        let subtract = row(&EXPERIMENTS[2], Way::Subtract, &pairs).unwrap();
        assert_eq!(subtract.ratio.rounds, 2);
        assert!(subtract.note.unwrap().starts_with("1 of 3 rounds left out"));
        assert_eq!(row(&EXPERIMENTS[2], Way::Profile, &pairs).unwrap().ratio.rounds, 3);
        assert!(row(&EXPERIMENTS[2], Way::Subtract, &pairs[2..]).is_none(), "no round is left");
    }

    #[test]
    fn amounts_vary_around_what_was_chosen_and_fit_the_instrument() {
        for experiment in EXPERIMENTS {
            let varied: Vec<f64> = (0..40).map(|round| experiment.varied(round).much_us / experiment.much_us).collect();
            let mean = varied.iter().sum::<f64>() / 40.0;
            assert!((mean - 1.0).abs() < 0.02, "{mean}");
            assert!(varied.iter().all(|factor| (0.75..1.25).contains(factor)));
        }
        let most_ns = EXPERIMENTS[2].much_us * 1.25 * 1e3;
        assert!(most_ns <= f64::from(crate::bpf::burner::PER_PACKET_NS_MAX));
    }

    #[test]
    fn every_experiment_is_a_sound_plan_of_one_cell() {
        for experiment in EXPERIMENTS {
            let matrix = experiment.plan(experiment.much_us, 0).matrix().unwrap();
            assert_eq!((matrix.cells.len(), matrix.skipped.len()), (1, 0));
        }
    }
}
