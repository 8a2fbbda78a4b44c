//! Calibration: plants known costs into real trials and sees what each method of accounting recovers.
//!
//! A planted cost changes the course of a trial: the others sleep more, and waking them costs more. So a cost is planted
//! in both trials of a round, once small and once large, and what counts is the difference between the two. Rounds go on
//! until each ratio is known well enough (which looks at the width of intervals, never at the result) or time is up.

use super::recovery::{Ratio, Verdict};
use crate::account::Method;
use crate::bpf::burner;
use crate::bpf::profile::Profiler;
use crate::control;
use crate::error::{Error, Kind, Result};
use crate::histogram;
use crate::path::PathKind;
use crate::plan::{Plan, Plant};
use crate::record::TrialRecord;
use crate::summary;
use crate::trial::Bench;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::time::{Duration, Instant};

/// The path, which has a router.
const PATH: PathKind = PathKind::VethRouted;
/// What is said on it.
const WORKLOAD: &str = "rr-200-1000";
/// Measured time of one trial.
const SECONDS: f64 = 0.4;
/// Time before it.
const WARM_UP_SECONDS: f64 = 0.1;
/// Rounds before intervals are looked at.
const ROUNDS_LEAST: usize = 8;
/// Most rounds.
const ROUNDS_MAX: usize = 40;
/// Half an interval this narrow is known well enough.
const HALF_WIDTH_WANTED: f64 = 0.04;
/// Time after which no further round begins.
const TIME_MAX: Duration = Duration::from_secs(150);
/// Rounds that may go wrong.
const FAILURES_MAX: u32 = 20;
/// Share of all CPUs that others may use in a trial which `subtract` is judged by.
const OTHERS_MAX: f64 = 0.01;

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

/// What could not be calibrated here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Where the cost would have been.
    pub planted_in: Planted,
    /// What would have had to recover it.
    pub way: Way,
    /// Why not, in words.
    pub reason: String,
}

/// The outcome of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The path all trials ran on.
    pub path: String,
    /// The workload of all trials.
    pub workload: String,
    /// Measured seconds of a trial.
    pub seconds: f64,
    /// A row for each planted cost and method that claims to see it.
    pub rows: Vec<Row>,
    /// What could not be tried.
    pub skipped: Vec<Absent>,
    /// Share of all CPUs that others used in the median trial; `None` without the profiler.
    pub others_percent: Option<f64>,
}

impl Calibration {
    /// Fails unless every planted cost was recovered by every method that was tried.
    ///
    /// # Errors
    /// Incomplete: names what was not recovered.
    pub fn verdict(&self) -> Result<()> {
        let named = |verdict: Verdict| -> Vec<String> {
            let rows = self.rows.iter().filter(|row| row.verdict == verdict);
            rows.map(|row| format!("{} by {} (ratio {:.2})", row.planted_in, row.way, row.ratio.value)).collect()
        };
        let (off, undecided) = (named(Verdict::Off), named(Verdict::Undecided));
        if !off.is_empty() {
            return Err(Error::incomplete(format!("not recovered within 5%: {}", off.join(", ")))
                .hint("figures of that component by that method are off by as much on this host"));
        }
        if !undecided.is_empty() {
            let text = format!("too noisy to tell: {}", undecided.join(", "));
            return Err(Error::incomplete(text).hint("stop what else runs and calibrate again"));
        }
        Ok(())
    }
}

/// One cost, planted small and large.
#[derive(Debug, Clone, Copy)]
struct Experiment {
    planted: Planted,
    little_us: f64,
    much_us: f64,
    clients: u32,
    /// CPUs of both ends.
    cpus: Option<&'static str>,
}

/// With ten pairs there is always work, so that neither end waits for the other's wake-up; a delay is seen best alone.
const EXPERIMENTS: [Experiment; 4] = [
    Experiment { planted: Planted::Client, little_us: 40.0, much_us: 120.0, clients: 10, cpus: Some("0") },
    Experiment { planted: Planted::Server, little_us: 40.0, much_us: 120.0, clients: 10, cpus: Some("0") },
    Experiment { planted: Planted::Router, little_us: 10.0, much_us: 40.0, clients: 10, cpus: None },
    Experiment { planted: Planted::Delay, little_us: 2_000.0, much_us: 6_000.0, clients: 1, cpus: None },
];

impl Experiment {
    fn plan(&self, us: f64) -> Plan {
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
            client_cpus: self.cpus.map(str::to_owned),
            server_cpus: self.cpus.map(str::to_owned),
            plant,
            ..Plan::default()
        }
    }

    /// The same with other amounts, up to a quarter less or more, spread evenly over the rounds.
    ///
    /// A loop of fixed length can fall into step with a clock that samples it, which then sees one part of it too often.
    /// Amounts that change from round to round make that part of the noise, which the interval shows.
    fn varied(self, round: u32) -> Self {
        let golden = 0.618_033_988_749_895;
        let factor = 0.75 + 0.5 * (0.5 + f64::from(round) * golden).fract();
        Self { little_us: self.little_us * factor, much_us: self.much_us * factor, ..self }
    }

    /// The methods that claim to see it.
    fn ways(&self) -> &'static [Way] {
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
struct Pair {
    /// With the costs of this round.
    experiment: Experiment,
    little: TrialRecord,
    much: TrialRecord,
}

/// Share of all CPUs that neither the path nor its ends used; `None` without the profiler.
fn others(trial: &TrialRecord) -> Option<f64> {
    let profile = trial.cpu.profile.as_ref()?;
    let other = profile.elsewhere.other;
    let ns = (other.user + other.kernel).saturating_mul(profile.period_ns) as f64;
    Some(ns / (trial.cpu.wall_ns as f64 * f64::from(trial.cpu.cpus.max(1))).max(1.0))
}

fn is_quiet(pair: &Pair) -> bool {
    [&pair.little, &pair.much].iter().all(|trial| others(trial).is_none_or(|share| share <= OTHERS_MAX))
}

/// What `way` recovered over the rounds so far; `None` if it cannot see the cost at all.
fn row(experiment: &Experiment, way: Way, pairs: &[Pair]) -> Option<Row> {
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
    let nothing = Ratio { value: f64::NAN, low: None, high: None, rounds: 0 };
    let ratio = match Ratio::of(&ratios) {
        Some(ratio) => ratio,
        None if busy > 0 => nothing,
        None => return None,
    };
    let planted_us = rounds.iter().map(|(planted, _)| planted).sum::<f64>() / rounds.len().max(1) as f64;
    let recovered_us = planted_us * ratio.value;
    Some(Row { planted_in: experiment.planted, way, planted_us, recovered_us, ratio, verdict: ratio.verdict(), note })
}

/// Why a method cannot be tried here; the methods and the instrument that plants into the router need privilege.
fn absent(experiment: &Experiment, way: Way, profiler: &Result<Profiler>, burner: &Result<()>) -> Option<String> {
    let reason = |error: &Error| error.to_string().replace("\n  ", "; ");
    match (experiment.planted, burner) {
        (Planted::Router, Err(error)) => {
            return Some(format!("nothing can be planted in the router: {}", reason(error)));
        }
        (Planted::Router, Ok(())) | (Planted::Client | Planted::Server | Planted::Delay, _) => {}
    }
    match (way, profiler) {
        (Way::Profile, Err(error)) => Some(reason(error)),
        (Way::Profile, Ok(_)) | (Way::Subtract | Way::Tick | Way::Latency, _) => None,
    }
}

/// An experiment under way.
#[derive(Debug)]
struct Course {
    experiment: Experiment,
    ways: Vec<Way>,
    pairs: Vec<Pair>,
}

impl Course {
    fn rows(&self) -> Vec<Row> {
        self.ways.iter().filter_map(|way| row(&self.experiment, *way, &self.pairs)).collect()
    }

    /// Known well enough, or never to be known better.
    fn is_done(&self) -> bool {
        let narrow = |row: &Row| row.ratio.half_width().is_some_and(|half| half <= HALF_WIDTH_WANTED);
        self.pairs.len() >= ROUNDS_MAX || (self.pairs.len() >= ROUNDS_LEAST && self.rows().iter().all(narrow))
    }

    /// Measures a round, the large cost first in every other one.
    fn round(&mut self, profiler: &mut Option<Profiler>) -> Result<()> {
        let round = u32::try_from(self.pairs.len()).unwrap_or(u32::MAX);
        let experiment = self.experiment.varied(round);
        let mut trial = |us: f64| -> Result<TrialRecord> {
            let plan = experiment.plan(us);
            let matrix = plan.matrix()?;
            let mut bench = Bench { plan: &plan, matrix: &matrix, profiler: profiler.take() };
            let measured = bench.trial(&matrix.cells[0], round, false);
            *profiler = bench.profiler;
            measured.map(|(trial, _)| trial)
        };
        let (little, much) = if round.is_multiple_of(2) {
            let little = trial(experiment.little_us)?;
            (little, trial(experiment.much_us)?)
        } else {
            let much = trial(experiment.much_us)?;
            (trial(experiment.little_us)?, much)
        };
        self.pairs.push(Pair { experiment, little, much });
        Ok(())
    }
}

/// Plants known costs and sees what is recovered; takes one to three minutes. `tell` is told what is under way.
///
/// # Errors
/// Environment: the path cannot be built. Incomplete: interrupted, or an end died.
pub fn calibrate(tell: &mut dyn FnMut(&str)) -> Result<Calibration> {
    let profiler = Profiler::open();
    let burner = burner::available();
    let (mut courses, mut skipped) = (Vec::new(), Vec::new());
    for experiment in EXPERIMENTS {
        let mut ways = Vec::new();
        for &way in experiment.ways() {
            match absent(&experiment, way, &profiler, &burner) {
                Some(reason) => skipped.push(Absent { planted_in: experiment.planted, way, reason }),
                None => ways.push(way),
            }
        }
        if !ways.is_empty() {
            courses.push(Course { experiment, ways, pairs: Vec::new() });
        }
    }
    let begun = Instant::now();
    let mut profiler = profiler.ok();
    let mut failures = 0;
    while begun.elapsed() < TIME_MAX && !courses.iter().all(Course::is_done) {
        for course in courses.iter_mut().filter(|course| !course.is_done()) {
            tell(&format!("round {}: a cost in {}", course.pairs.len() + 1, course.experiment.planted));
            match course.round(&mut profiler) {
                // One trial gone wrong costs its round; a host where they keep going wrong is told so.
                Err(error) if error.kind() == Kind::Incomplete && failures < FAILURES_MAX => failures += 1,
                outcome => outcome?,
            }
            if control::interrupted() {
                return Err(Error::incomplete("interrupted before enough was measured"));
            }
        }
    }
    let trials = courses.iter().flat_map(|course| &course.pairs).flat_map(|pair| [&pair.little, &pair.much]);
    let mut shares: Vec<f64> = trials.filter_map(others).collect();
    shares.sort_by(f64::total_cmp);
    Ok(Calibration {
        path: PATH.name().into(),
        workload: WORKLOAD.into(),
        seconds: SECONDS,
        rows: courses.iter().flat_map(Course::rows).collect(),
        skipped,
        others_percent: shares.get(shares.len() / 2).map(|share| share * 100.0),
    })
}
