//! The experiments of a calibration. An experiment plants (adds) a known cost in trials, and computes the share of it that an
//! accounting method recovers (finds).
//!
//! This file only computes with trial records. Other files measure the trials.

use super::recovery::{Ratio, Verdict};
use serde::{Deserialize, Serialize};
use siga_plan::accounting::AccountingMethod;
use siga_plan::path::PathKind;
use siga_plan::plan::Plan;
use siga_plan::plant::Plant;
use siga_results::histogram;
use siga_results::record::TrialRecord;
use siga_results::summary;
use std::fmt;

/// The type of path in all experiments. It has a router.
pub(super) const PATH: PathKind = PathKind::VethRouted;
/// The workload of all experiments.
pub(super) const WORKLOAD: &str = "rr-200-1000";
/// Measured time of one trial in seconds.
pub(super) const SECONDS: f64 = 0.4;
/// Warm-up time of one trial in seconds.
const WARM_UP_SECONDS: f64 = 0.1;
/// Maximum share of the time of all CPUs that other processes may use in a trial. If they use more, the method `subtract` leaves
/// out the round.
pub(super) const OTHERS_MAX: f64 = 0.01;
/// If other processes use more than this share of the time of all CPUs, they noticeably increase the CPU time of the path
/// itself.
const OTHERS_BUSY: f64 = 0.05;

/// Where a known cost is planted, that is, added to the normal cost of the path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Planted {
    /// In the client: CPU time in user mode before each exchange.
    Client,
    /// In the server: CPU time in user mode before each response.
    Server,
    /// In the router: CPU time for each packet that the router receives.
    Router,
    /// In the server: a delay before each response, without CPU time.
    Delay,
}

/// The measuring method that should recover a planted cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// The accounting method `profile`.
    Profile,
    /// The accounting method `subtract`.
    Subtract,
    /// The accounting method `tick`.
    Tick,
    /// No accounting method, but the median latency of the workload.
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
            Self::Profile => AccountingMethod::Profile.fmt(f),
            Self::Subtract => AccountingMethod::Subtract.fmt(f),
            Self::Tick => AccountingMethod::Tick.fmt(f),
            Self::Latency => f.pad("latency"),
        }
    }
}

/// Result of one experiment and one method: the planted cost and the recovered cost.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Where the cost was planted.
    pub planted_in: Planted,
    /// The method that should recover the cost.
    pub way: Way,
    /// Planted cost in microseconds per transaction: the large cost minus the small cost, averaged over the rounds.
    pub planted_us: f64,
    /// Recovered cost in microseconds per transaction: `planted_us` times `ratio`.
    pub recovered_us: f64,
    /// Recovered cost divided by planted cost.
    pub ratio: Ratio,
    /// The verdict that follows from `ratio` and from the load of other processes.
    pub verdict: Verdict,
    /// Text that the reader needs to judge this row, for example that rounds were left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

/// One kind of cost, which is planted in a small amount in one trial and in a large amount in another.
#[derive(Debug, Clone, Copy)]
pub(super) struct Experiment {
    pub(super) planted: Planted,
    pub(super) little_us: f64,
    pub(super) much_us: f64,
    clients: u32,
    /// Whether client and server share one CPU.
    together: bool,
    /// The methods that should recover the cost.
    pub(super) ways: &'static [Way],
}

/// Plants CPU time in the client. Client and server share one CPU, because the cost of a wake-up then does not depend on the
/// planted amount. On two CPUs, an end that waits longer costs more to wake.
const IN_AN_END: Experiment = Experiment {
    planted: Planted::Client,
    little_us: 40.0,
    much_us: 120.0,
    clients: 10,
    together: true,
    ways: &[Way::Profile, Way::Tick],
};
/// Plants CPU time in the router. `profile` and `subtract` need separate trials, because the profiler itself uses CPU time, and
/// more of it in longer transactions. `subtract` starts from the total CPU time, which would include the CPU time of the profiler.
const IN_THE_ROUTER: Experiment =
    Experiment { planted: Planted::Router, little_us: 10.0, much_us: 40.0, ways: &[Way::Profile], ..IN_AN_END };
/// All experiments. With ten client-server pairs, client and server always have work. Only the experiment with the delay uses one
/// pair, because the latency then contains no time for other pairs.
pub(super) const EXPERIMENTS: [Experiment; 5] = [
    IN_AN_END,
    Experiment { planted: Planted::Server, ..IN_AN_END },
    IN_THE_ROUTER,
    Experiment { ways: &[Way::Subtract], ..IN_THE_ROUTER },
    Experiment {
        planted: Planted::Delay,
        little_us: 2_000.0,
        much_us: 6_000.0,
        clients: 1,
        together: false,
        ways: &[Way::Latency],
    },
];

impl Experiment {
    /// Returns whether the trials of this experiment are profiled. Trials for the method `subtract` are not profiled. All others are
    /// profiled, because their method is `profile`, or because the profile shows the CPU time of other processes.
    pub(super) fn is_profiled(&self) -> bool {
        !self.ways.contains(&Way::Subtract)
    }

    /// Returns the plan of a trial with a planted cost of `us` microseconds. If client and server share one CPU, it is `cpu`.
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

    /// Returns this experiment with both amounts multiplied by the same factor between 0.75 and 1.25. The factor depends on
    /// `round`; the factors of all rounds are spread evenly over this range.
    ///
    /// A loop that always takes the same time can stay in phase with the profiler's sampling clock. Then the samples hit one
    /// part of the loop too often. With amounts that vary from round to round, this error becomes noise, which the confidence
    /// interval shows.
    pub(super) fn varied(self, round: u32) -> Self {
        let golden = 0.618_033_988_749_895;
        let factor = 0.75 + 0.5 * (0.5 + f64::from(round) * golden).fract();
        Self { little_us: self.little_us * factor, much_us: self.much_us * factor, ..self }
    }

    /// Returns the cost in microseconds per transaction that was really planted in `trial`. `us` is the requested cost.
    fn planted_us(&self, trial: &TrialRecord, us: f64) -> f64 {
        match self.planted {
            Planted::Client | Planted::Server | Planted::Delay => us,
            // The number of packets per transaction varies, so the requested cost per packet does not determine the cost per
            // transaction. The CPU-cost injector reports the CPU time that it really used.
            Planted::Router => {
                trial.cpu.planted_router.map_or(0.0, |(_, ns)| ns as f64 * 1e-3 / trial.units().max(1.0))
            }
        }
    }

    /// Returns the figure in microseconds per transaction that the method `way` reports for `trial`; `None` if the method has
    /// no such figure. The figure is the latency, the total CPU time (`subtract`), or the CPU time of the component in which
    /// the cost was planted.
    fn seen_us(&self, trial: &TrialRecord, way: Way) -> Option<f64> {
        if way == Way::Latency {
            return histogram::percentiles(&histogram::decode(&trial.latency).ok()?).p50;
        }
        if way == Way::Subtract {
            // The total CPU time is enough here. The method `subtract` would reduce the CPU time of both trials of a round by the
            // same amount: the cost of the path without a router. This amount cancels out in the difference of the two trials.
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

/// The two trials of one round of an experiment: one with the small planted cost, one with the large.
#[derive(Debug)]
pub(super) struct Pair {
    /// The experiment with the amounts of this round.
    pub(super) experiment: Experiment,
    pub(super) little: TrialRecord,
    pub(super) much: TrialRecord,
}

/// Returns the share of the time of all CPUs that processes outside the measurement used. Without a profile, their time is the busy
/// time of all CPUs minus the run times of client and server. The run times include the kernel's forwarding: client and server
/// always have work, so the kernel forwards packets during their system calls.
fn others(trial: &TrialRecord) -> f64 {
    let cpu = &trial.cpu;
    let ns = match &cpu.profile {
        Some(profile) => {
            let samples = profile.elsewhere.other;
            (samples.user + samples.kernel).saturating_mul(profile.period_ns)
        }
        None => cpu.busy_ns.saturating_sub(cpu.client.run_ns).saturating_sub(cpu.server.run_ns),
    };
    ns as f64 / (cpu.wall_ns as f64 * f64::from(cpu.cpus.max(1))).max(1.0)
}

/// Returns the share of the time of all CPUs that other processes used: the median over all trials. `None` if there is no
/// trial.
pub(super) fn median_others<'a>(pairs: impl IntoIterator<Item = &'a Pair>) -> Option<f64> {
    let trials = pairs.into_iter().flat_map(|pair| [&pair.little, &pair.much]);
    let mut shares: Vec<f64> = trials.map(others).collect();
    shares.sort_by(f64::total_cmp);
    shares.get(shares.len() / 2).copied()
}

fn is_quiet(pair: &Pair) -> bool {
    [&pair.little, &pair.much].iter().all(|trial| others(trial) <= OTHERS_MAX)
}

/// Returns the result of the method `way` from the rounds so far. `None` if no round has a figure of this method.
pub(super) fn row(experiment: &Experiment, way: Way, pairs: &[Pair]) -> Option<Row> {
    // `subtract` starts from the total CPU time, which includes other processes. So it uses only rounds in which other
    // processes used little CPU time. The other methods count only the path itself, so they use all rounds.
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
    let ratio = Ratio::of(&ratios)?;
    let planted_us = rounds.iter().map(|(planted, _)| planted).sum::<f64>() / rounds.len().max(1) as f64;
    let recovered_us = planted_us * ratio.value;
    let (verdict, note) = judge(way, &ratio, pairs, pairs.len() - counted.len());
    Some(Row { planted_in: experiment.planted, way, planted_us, recovered_us, ratio, verdict, note })
}

/// Returns the verdict on `ratio`, and a note if the reader needs one to judge it. `left_out` is the number of rounds that were
/// not used because other processes were busy.
fn judge(way: Way, ratio: &Ratio, pairs: &[Pair], left_out: usize) -> (Verdict, Option<String>) {
    let share = median_others(pairs).unwrap_or(0.0);
    if ratio.verdict() == Verdict::Off && ratio.is_near() {
        let used = format!("other processes used {:.1}% of the CPU time", share * 100.0);
        // Interrupts, steal time and periodic work of other processes grow with time, so longer transactions contain more of
        // them. Of all figures, only the total CPU time includes them, so only `subtract` is affected.
        if way == Way::Subtract {
            return (Verdict::Undecided, Some(format!("{used}, and the total includes their CPU time")));
        }
        // Other processes evict the path's data from the CPU caches, which slows longer transactions down more. The path really
        // uses this CPU time, so a method that reports more than the planted cost is not wrong.
        if share > OTHERS_BUSY {
            return (
                Verdict::Undecided,
                Some(format!("{used}, so the path itself may use more CPU time than on an idle host")),
            );
        }
    }
    let percent = OTHERS_MAX * 100.0;
    let note = (left_out > 0).then(|| {
        format!(
            "{left_out} of {} rounds were left out, because other processes used more than {percent:.0}% of the CPU \
                time",
            pairs.len()
        )
    });
    (ratio.verdict(), note)
}

#[cfg(test)]
mod tests {
    use super::*;
    use siga_results::record::{Charges, ProfileRecord, Samples};

    /// A second of two CPUs with 1,000 transactions and ends that ran 500 ms. Router and others got the given numbers
    /// of samples of 0.1 ms, and really spent that time.
    fn trial(router: u64, others: u64, is_profiled: bool) -> TrialRecord {
        let samples = |kernel| Samples { user: 0, kernel };
        let elsewhere = Charges { router: samples(router), other: samples(others), ..Charges::default() };
        let profile = ProfileRecord { period_ns: 100_000, elsewhere, ..ProfileRecord::default() };
        let mut trial = siga_results::testing::trial(
            "veth-routed",
            0,
            500 + router / 10 + others / 10,
            is_profiled.then_some(profile),
        );
        trial.cpu.client.run_ns = 250_000_000 + router * 50_000;
        trial.cpu.server.run_ns = 250_000_000 + router * 50_000;
        trial.cpu.planted_router = Some((2_000, router * 100_000));
        trial
    }

    fn pairs(others: &[u64], experiment: Experiment) -> Vec<Pair> {
        let trial = |router, share| trial(router, share, experiment.is_profiled());
        let pair = |share: &u64| Pair { experiment, little: trial(200, *share), much: trial(800, *share) };
        others.iter().map(pair).collect()
    }

    fn of_router(way: Way) -> Experiment {
        *EXPERIMENTS.iter().find(|it| it.planted == Planted::Router && it.ways == [way]).unwrap()
    }

    #[test]
    fn a_planted_cost_is_recovered() {
        for way in [Way::Profile, Way::Subtract] {
            let experiment = of_router(way);
            let row = row(&experiment, way, &pairs(&[0; 8], experiment)).unwrap();
            assert!((row.ratio.value - 1.0).abs() < 1e-9 && row.verdict == Verdict::Recovered, "{row:?}");
            assert!((row.planted_us - 60.0).abs() < 1e-9 && row.note.is_none(), "{row:?}");
        }
    }

    #[test]
    fn only_quiet_rounds_judge_subtract() {
        let (by_subtract, by_profile) = (of_router(Way::Subtract), of_router(Way::Profile));
        // 300 samples of 0.1 ms are 1.5% of two CPUs for a second.
        let shares = [0, 0, 300];
        let subtract = row(&by_subtract, Way::Subtract, &pairs(&shares, by_subtract)).unwrap();
        assert_eq!(subtract.ratio.rounds, 2);
        assert!(subtract.note.unwrap().starts_with("1 of 3 rounds were left out"));
        assert_eq!(row(&by_profile, Way::Profile, &pairs(&shares, by_profile)).unwrap().ratio.rounds, 3);
        assert!(row(&by_subtract, Way::Subtract, &pairs(&[300], by_subtract)).is_none(), "no round is left");
    }

    #[test]
    fn trials_with_a_profile_do_not_judge_subtract() {
        assert!(!of_router(Way::Subtract).is_profiled());
        assert!(EXPERIMENTS.iter().filter(|it| it.ways.contains(&Way::Profile)).all(Experiment::is_profiled));
    }

    fn ratio(value: f64, half: f64) -> Ratio {
        Ratio { value, low: Some(value - half), high: Some(value + half), rounds: 8 }
    }

    #[test]
    fn a_ratio_near_1_on_a_busy_host_is_not_called_off() {
        let experiment = of_router(Way::Subtract);
        let (quiet, busy) = (pairs(&[0; 8], experiment), pairs(&[2_000; 8], experiment));
        assert_eq!(judge(Way::Profile, &ratio(1.09, 0.03), &quiet, 0), (Verdict::Off, None));
        let (verdict, note) = judge(Way::Profile, &ratio(1.09, 0.03), &busy, 0);
        assert_eq!(verdict, Verdict::Undecided);
        assert!(note.unwrap().contains("10.0% of the CPU time"));
        assert_eq!(
            judge(Way::Profile, &ratio(1.3, 0.03), &busy, 0).0,
            Verdict::Off,
            "that far off is no matter of caches"
        );
    }

    #[test]
    fn work_that_grows_with_time_is_not_charged_to_subtract() {
        let quiet = pairs(&[0; 8], of_router(Way::Subtract));
        assert_eq!(judge(Way::Subtract, &ratio(1.03, 0.01), &quiet, 0), (Verdict::Recovered, None));
        let (verdict, note) = judge(Way::Subtract, &ratio(1.09, 0.01), &quiet, 0);
        assert_eq!(verdict, Verdict::Undecided);
        assert!(note.unwrap().contains("the total includes their CPU time"));
        assert_eq!(
            judge(Way::Subtract, &ratio(1.3, 0.01), &quiet, 0).0,
            Verdict::Off,
            "that far off, something is missing"
        );
    }

    #[test]
    fn amounts_vary_around_the_chosen_value_within_the_injectors_limit() {
        for experiment in EXPERIMENTS {
            let varied: Vec<f64> = (0..40).map(|round| experiment.varied(round).much_us / experiment.much_us).collect();
            let mean = varied.iter().sum::<f64>() / 40.0;
            assert!((mean - 1.0).abs() < 0.02, "{mean}");
            assert!(varied.iter().all(|factor| (0.75..1.25).contains(factor)));
        }
        let most_ns = IN_THE_ROUTER.much_us * 1.25 * 1e3;
        assert!(most_ns <= f64::from(siga_plan::limits::PER_PACKET_NS_MAX));
    }

    #[test]
    fn every_experiment_is_a_sound_plan_of_one_cell() {
        for experiment in EXPERIMENTS {
            let matrix = experiment.plan(experiment.much_us, 0).matrix().unwrap();
            assert_eq!((matrix.cells.len(), matrix.skipped.len()), (1, 0));
        }
    }
}
