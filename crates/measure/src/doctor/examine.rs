//! The examination of a host: checks of its abilities, times of elementary operations, and the overhead of CPU accounting. For
//! each missing ability, a check reports the consequence and what the user can do.
//!
//! An examination takes about ten seconds, and as long as the user wants to watch the host. It leaves nothing behind. This file contains the result and the order of the
//! steps. The steps themselves are in `probe`, `timing`, `overhead` and `watch`.

use super::check::{Check, CheckState, Group};
use super::kernel;
use super::overhead::{self, Overhead};
use super::probe;
use super::timing::{self, Timing};
use super::watch::{self, Watched};
use crate::cpu::profile::Profiler;
use crate::host;
use crate::interrupt::interrupted;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_plan::path::PathKind;
use std::time::Duration;

/// Minimum ratio of the rate with the profiler to the rate without the profiler. If the whole 95% interval of the ratio is smaller,
/// the report warns.
const RATE_RATIO_MIN: f64 = 0.95;

/// What a host can measure, and how precisely.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Examination {
    /// Whether this host can measure at least one path of the default plan.
    pub fit: bool,
    /// Whether the machine is emulated, so that its figures mean nothing.
    #[serde(default)]
    pub emulated: bool,
    /// The outcome in one sentence.
    pub summary: String,
    /// Description of the host in one line: CPUs, kernel, hypervisor.
    pub host: String,
    /// The results of all checks.
    pub checks: Vec<Check>,
    /// The times of elementary operations on this host.
    pub timings: Vec<Timing>,
    /// Overhead of the profiler. `None` if the host has no profiler, or no routed path on which to measure the overhead, or if the
    /// machine is emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overhead: Option<Overhead>,
    /// What the host did while siga watched it. `None` if the user asked for no watch, if no path can be built, or if the machine is
    /// emulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watched: Option<Watched>,
}

impl Examination {
    /// Checks that this host can measure at least one path of the default plan.
    ///
    /// # Errors
    /// Returns an error of kind `Environment` if the default plan cannot run.
    pub fn verdict(&self) -> Result<()> {
        if self.fit {
            return Ok(());
        }
        Err(Error::environment("this host cannot run the default plan").hint("the report lists what is missing"))
    }

    /// Changes the state of the check `profile` to a caution if the whole interval of `overhead.rate_ratio` is below
    /// [`RATE_RATIO_MIN`].
    fn price(&mut self, overhead: &Overhead) {
        let ratio = overhead.rate_ratio;
        if ratio.high.is_none_or(|high| high >= RATE_RATIO_MIN) {
            return;
        }
        for check in self.checks.iter_mut().filter(|check| check.group == Group::Accounting && check.name == "profile")
        {
            let percent = 100.0 * (1.0 - ratio.value);
            check.state = CheckState::Caution;
            check.costs = Some(format!(
                "while the profiler runs, the rate of a fully loaded path is {percent:.0}% lower; siga therefore measures \
                    rates without the profiler"
            ));
            check.way_out =
                Some("if CPU times and rates must come from the same phase, use --accounting subtract".into());
        }
    }

    fn state(&self, group: Group, name: &str) -> Option<CheckState> {
        self.checks.iter().find(|check| check.group == group && check.name == name).map(|check| check.state)
    }

    fn has(&self, group: Group, name: &str) -> bool {
        self.state(group, name).is_some_and(|state| state != CheckState::Missing)
    }
}

/// Examines this host, and watches it for the time `watch`. The running program must be `siga`, because the examination starts a second process from the same program
/// file. This process keeps a path's network namespaces alive. `progress` receives a line for each step.
///
/// # Errors
/// Returns an error of kind `Environment` if descriptors, processes or threads run out. Returns an error of kind `Incomplete` if
/// the examination was interrupted. A missing ability of the host is not an error, but part of the result.
pub fn examine(watch: Duration, progress: &mut dyn FnMut(&str)) -> Result<Examination> {
    progress("the host");
    let environment = host::environment();
    let mut checks = probe::paths(progress);
    checks.extend(kernel::kernel(progress));
    progress("accounting");
    checks.extend(probe::accounting(&checks));
    checks.extend(probe::tools());
    checks.extend(probe::host(&environment));
    progress("elementary costs");
    let timings = timing::all()?;
    let host = probe::describe(&environment);
    let emulated = environment.is_emulated();
    let summary = String::new();
    let mut examination =
        Examination { fit: false, emulated, summary, host, checks, timings, overhead: None, watched: None };
    if !emulated
        && examination.has(Group::Paths, "veth-routed")
        && let Ok(profiler) = Profiler::open()
    {
        let overhead = overhead::measure(profiler, progress)?;
        examination.price(&overhead);
        examination.overhead = Some(overhead);
    }
    let paths = [PathKind::VethRouted, PathKind::Loopback];
    if !emulated
        && !watch.is_zero()
        && let Some(path) = paths.into_iter().find(|path| examination.has(Group::Paths, path.name()))
    {
        examination.watched = Some(watch::watch(path, watch, progress)?);
    }
    if interrupted() {
        return Err(Error::incomplete("interrupted"));
    }
    examination.fit = probe::DEFAULT_PATHS.iter().any(|path| examination.has(Group::Paths, path));
    examination.summary = summarize(&examination);
    Ok(examination)
}

fn summarize(examination: &Examination) -> String {
    let paths = || examination.checks.iter().filter(|check| check.group == Group::Paths);
    let built = paths().filter(|check| check.state != CheckState::Missing).count();
    if !examination.fit {
        return format!(
            "This host cannot run the default plan: siga can build {built} of {} types of path.",
            paths().count()
        );
    }
    let router = if examination.has(Group::Accounting, "profile") {
        "each trial measures the router's CPU time (accounting method profile)"
    } else if examination.has(Group::Accounting, "subtract") {
        "the router's CPU time is the difference between two paths (accounting method subtract)"
    } else {
        "the router's CPU time cannot be measured"
    };
    let cautions = examination.checks.iter().filter(|check| check.state == CheckState::Caution).count();
    let cautions = match cautions {
        0 => String::new(),
        1 => "; one caution below makes the figures less accurate".into(),
        count => format!("; {count} cautions below make the figures less accurate"),
    };
    let all = if built == paths().count() { "all".to_owned() } else { format!("{built} of {}", paths().count()) };
    format!("This host can measure {all} types of path; {router}{cautions}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Ratio;

    fn examination(present: &[(Group, &str)]) -> Examination {
        let check = |group, name: &str, state| Check {
            group,
            name: name.into(),
            state,
            finding: String::new(),
            costs: None,
            way_out: None,
        };
        let names = [
            (Group::Paths, "veth"),
            (Group::Paths, "sockmap"),
            (Group::Accounting, "profile"),
            (Group::Accounting, "subtract"),
        ];
        let state = |pair: &(Group, &str)| if present.contains(pair) { CheckState::Ok } else { CheckState::Missing };
        let mut examination = Examination {
            fit: present.contains(&(Group::Paths, "veth")),
            emulated: false,
            summary: String::new(),
            host: String::new(),
            checks: names.iter().map(|pair| check(pair.0, pair.1, state(pair))).collect(),
            timings: Vec::new(),
            overhead: None,
            watched: None,
        };
        examination.summary = summarize(&examination);
        examination
    }

    #[test]
    fn the_summary_names_the_paths_and_the_method_available() {
        let full = examination(&[
            (Group::Paths, "veth"),
            (Group::Paths, "sockmap"),
            (Group::Accounting, "profile"),
            (Group::Accounting, "subtract"),
        ]);
        assert!(
            full.summary.contains("all types of path") && full.summary.contains("method profile)"),
            "{}",
            full.summary
        );
        let plain = examination(&[(Group::Paths, "veth"), (Group::Accounting, "subtract")]);
        assert!(
            plain.summary.contains("1 of 2 types") && plain.summary.contains("method subtract)"),
            "{}",
            plain.summary
        );
        assert!(plain.verdict().is_ok());
    }

    #[test]
    fn a_profiler_that_slows_the_path_down_is_marked() {
        let overhead = |value: f64| Overhead {
            cell: String::new(),
            rate_ratio: Ratio { value, low: Some(value - 0.02), high: Some(value + 0.02), rounds: 10 },
            said_ratio: 0.98,
            rate: 1e5,
        };
        let mut examination = examination(&[(Group::Accounting, "profile")]);
        examination.price(&overhead(0.94));
        assert_eq!(examination.state(Group::Accounting, "profile"), Some(CheckState::Ok), "its interval reaches 0.95");
        examination.price(&overhead(0.7));
        assert_eq!(examination.state(Group::Accounting, "profile"), Some(CheckState::Caution));
        let check = examination.checks.iter().find(|check| check.name == "profile").unwrap();
        assert!(check.costs.as_ref().unwrap().contains("30% lower"), "{check:?}");
    }

    #[test]
    fn a_host_without_a_path_is_unfit() {
        let none = examination(&[(Group::Accounting, "profile")]);
        assert_eq!(none.verdict().unwrap_err().exit_status(), 3);
        assert!(none.summary.contains("cannot run the default plan"), "{}", none.summary);
    }
}
