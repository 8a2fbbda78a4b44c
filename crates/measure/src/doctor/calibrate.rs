//! Calibration: plants (adds) known costs in real trials and checks which share of them each method of accounting recovers
//! (finds).
//!
//! A planted cost also has a side effect: the other processes sleep longer, and waking them then costs more CPU time. So a trial
//! with a planted cost is not compared with a trial without. Each round plants a small cost in one trial and a large cost in
//! another, and uses the difference of the two. Further rounds follow until the interval of each ratio (recovered to planted cost)
//! lies within the tolerance, or until the time is up.

use super::experiment::{
    EXPERIMENTS, Experiment, OTHERS_MAX, PATH, Pair, Planted, Row, SECONDS, WORKLOAD, Way, median_others, row,
};
use super::recovery::Verdict;
use crate::build::Builds;
use crate::config;
use crate::cpu::cost_injector;
use crate::cpu::profile::Profiler;
use crate::host;
use crate::interrupt::interrupted;
use crate::topology::Networks;
use crate::trial::prepare::Preparation;
use crate::trial::{Bench, Measures};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, ErrorKind, Result};
use siga_results::environment::{EMULATED, EMULATED_FIGURES, Environment};
use siga_results::record::TrialRecord;
use std::time::{Duration, Instant};

/// Minimum number of rounds. The calibration does not end earlier, even if all intervals are narrow.
const ROUNDS_LEAST: usize = 8;
/// Maximum number of rounds.
const ROUNDS_MAX: usize = 40;
/// Time after which no further round starts.
const TIME_MAX: Duration = Duration::from_secs(150);
/// Maximum number of failed rounds that the calibration tolerates. The next failure ends the calibration with an error.
const FAILURES_MAX: u32 = 20;

/// A combination of planted cost and method that could not be calibrated on this host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Absent {
    /// Where the cost should have been planted.
    pub planted_in: Planted,
    /// The method that should have recovered the cost.
    pub way: Way,
    /// The reason, as text.
    pub reason: String,
    /// Whether other load on the host is the reason. If false, the reason is that the host lacks an ability.
    pub noisy: bool,
}

/// The outcome of a calibration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// The path of all trials.
    pub path: String,
    /// The workload of all trials.
    pub workload: String,
    /// Measured seconds of one trial.
    pub seconds: f64,
    /// One row for each planted cost and each method that should recover it.
    pub rows: Vec<Row>,
    /// The combinations of cost and method that could not be calibrated.
    pub skipped: Vec<Absent>,
    /// Percentage of the time of all CPUs that other processes used in the median trial. `None` if there was no trial.
    pub others_percent: Option<f64>,
}

impl Calibration {
    /// Checks that each method recovered every cost for which it was tried.
    ///
    /// # Errors
    /// Returns an error of kind `Incomplete` that names the costs and methods without success.
    pub fn verdict(&self) -> Result<()> {
        let named = |verdict: Verdict| -> Vec<String> {
            let rows = self.rows.iter().filter(|row| row.verdict == verdict);
            rows.map(|row| format!("{} by method {} (ratio {:.2})", row.planted_in, row.way, row.ratio.value)).collect()
        };
        let (off, mut undecided) = (named(Verdict::Off), named(Verdict::Undecided));
        let noisy = self.skipped.iter().filter(|absent| absent.noisy);
        undecided.extend(noisy.map(|absent| format!("{} by {}", absent.planted_in, absent.way)));
        if !off.is_empty() {
            return Err(Error::incomplete(format!(
                "siga measured some of the added CPU costs with an error of more than 5%: {}",
                off.join(", ")
            ))
            .hint("on this host, CPU times of these components, measured by these methods, are wrong by the ratio in brackets"));
        }
        if !undecided.is_empty() {
            let text =
                format!("other load on this host is too high to check these added CPU costs: {}", undecided.join(", "));
            return Err(Error::incomplete(text).hint("stop other programs, then calibrate again"));
        }
        Ok(())
    }
}

/// Refuses an emulated machine, because its CPU times mean nothing.
fn refuse_emulated(environment: &Environment) -> Result<()> {
    if !environment.is_emulated() {
        return Ok(());
    }
    Err(Error::environment(format!("cannot calibrate on an {EMULATED}: {EMULATED_FIGURES}"))
        .hint("calibrate on real CPUs, or in a virtual machine with KVM"))
}

/// Returns the reason why the method `way` cannot be tried for `experiment` on this host; `None` if it can be tried. Privileges are
/// necessary for the profiler, and for planting a cost in the router.
fn absent(experiment: &Experiment, way: Way, profiler: &Result<Profiler>, injector: &Result<()>) -> Option<String> {
    let reason = |error: &Error| error.to_string().replace("\n  ", "; ");
    match (experiment.planted, injector) {
        (Planted::Router, Err(error)) => {
            return Some(format!("siga cannot add a cost to the router: {}", reason(error)));
        }
        (Planted::Router, Ok(())) | (Planted::Client | Planted::Server | Planted::Delay, _) => {}
    }
    match (way, profiler) {
        (Way::Profile, Err(error)) => Some(reason(error)),
        (Way::Profile, Ok(_)) | (Way::Subtract | Way::Tick | Way::Latency, _) => None,
    }
}

/// An experiment and the results of its rounds so far.
#[derive(Debug)]
struct Course {
    experiment: Experiment,
    ways: Vec<Way>,
    /// The CPU for client and server if the experiment runs both on one CPU.
    cpu: u32,
    pairs: Vec<Pair>,
}

impl Course {
    fn rows(&self) -> Vec<Row> {
        self.ways.iter().filter_map(|way| row(&self.experiment, *way, &self.pairs)).collect()
    }

    /// Returns the methods of this experiment for which no round gave a result.
    fn unseen(&self) -> Vec<Absent> {
        let reason =
            format!("other processes used more than {:.0}% of the CPU time in every round", OTHERS_MAX * 100.0);
        let unseen = self.ways.iter().filter(|way| row(&self.experiment, **way, &self.pairs).is_none());
        let absent =
            |way: &Way| Absent { planted_in: self.experiment.planted, way: *way, reason: reason.clone(), noisy: true };
        unseen.map(absent).collect()
    }

    /// Returns true if enough rounds were measured: either the whole interval of every method's ratio lies within the tolerance, or
    /// the maximum number of rounds is reached.
    fn is_done(&self) -> bool {
        let rows = self.rows();
        let is_settled = rows.len() == self.ways.len() && rows.iter().all(|row| row.ratio.is_settled());
        self.pairs.len() >= ROUNDS_MAX || (self.pairs.len() >= ROUNDS_LEAST && is_settled)
    }

    /// Measures one round: a trial with the small cost and a trial with the large cost. Every second round begins with the
    /// large cost.
    fn round(&mut self, profiler: &mut Option<Profiler>, progress: &mut dyn FnMut(&str)) -> Result<()> {
        let round = u32::try_from(self.pairs.len()).unwrap_or(u32::MAX);
        let experiment = self.experiment.varied(round);
        let mut none = None;
        let profiler = if experiment.is_profiled() { profiler } else { &mut none };
        let mut trial = |us: f64| -> Result<TrialRecord> {
            let plan = experiment.plan(us, self.cpu);
            let matrix = plan.matrix()?;
            let mut bench = Bench {
                plan: &plan,
                matrix: &matrix,
                ssh: config::SSH,
                builds: &Builds::default(),
                networks: &Networks::default(),
                profiler: profiler.take(),
                names: None,
                series: None,
                preparation: Preparation::default(),
            };
            let measured = bench.trial(&matrix.cells[0], round, false, progress);
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

/// Plants known costs and checks which share of them each accounting method recovers. Takes one to three minutes. `progress`
/// receives a line for each step.
///
/// # Errors
/// Returns an error of kind `Environment` if the machine is emulated or if the path cannot be built. Returns an error of kind
/// `Incomplete` if the calibration was interrupted, or if an end of the path died.
pub fn calibrate(progress: &mut dyn FnMut(&str)) -> Result<Calibration> {
    refuse_emulated(&host::environment())?;
    let profiler = Profiler::open();
    let injector = cost_injector::available();
    let cpu = crate::probe::allowed().first().copied().unwrap_or(0);
    let (mut courses, mut skipped) = (Vec::new(), Vec::new());
    for experiment in EXPERIMENTS {
        let mut ways = Vec::new();
        for &way in experiment.ways {
            match absent(&experiment, way, &profiler, &injector) {
                Some(reason) => skipped.push(Absent { planted_in: experiment.planted, way, reason, noisy: false }),
                None => ways.push(way),
            }
        }
        if !ways.is_empty() {
            courses.push(Course { experiment, ways, cpu, pairs: Vec::new() });
        }
    }
    let begun = Instant::now();
    let mut profiler = profiler.ok();
    let mut failures = 0;
    while begun.elapsed() < TIME_MAX && !courses.iter().all(Course::is_done) {
        for course in courses.iter_mut().filter(|course| !course.is_done()) {
            progress(&format!("round {}: a cost in {}", course.pairs.len() + 1, course.experiment.planted));
            match course.round(&mut profiler, progress) {
                // If a trial fails, only its round is discarded. If trials keep failing, the calibration returns the error.
                Err(error) if error.kind() == ErrorKind::Incomplete && failures < FAILURES_MAX => failures += 1,
                outcome => outcome?,
            }
            if interrupted() {
                return Err(Error::incomplete("the calibration was interrupted before it had enough trials"));
            }
        }
    }
    skipped.extend(courses.iter().flat_map(Course::unseen));
    Ok(Calibration {
        path: PATH.name().into(),
        workload: WORKLOAD.into(),
        seconds: SECONDS,
        rows: courses.iter().flat_map(Course::rows).collect(),
        skipped,
        others_percent: median_others(courses.iter().flat_map(|course| &course.pairs)).map(|share| share * 100.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emulated_machine_is_not_calibrated() {
        let mut environment = Environment::default();
        assert!(refuse_emulated(&environment).is_ok());
        environment.cpu.emulated = Some(true);
        let error = refuse_emulated(&environment).unwrap_err();
        assert!(error.exit_status() == 3 && error.message().contains("emulated machine"), "{error}");
    }
}
