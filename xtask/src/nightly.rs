//! Runs all long suites, one after the other: `cargo xtask nightly`.
//!
//! A suite that fails does not stop the others. Each suite has a time limit. Stdout gets one line for each suite; the suite's
//! output is in its log. `summary.json` is rewritten after each suite, so an interrupted run leaves a correct one.

mod suites;

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::command;
use crate::limited::{self, End};
use suites::{SUITES, Suite};

/// The directory of the logs and the summary, below the root of the source tree.
const DIRECTORY: &str = "target/nightly";

/// The beginning of the last line of a suite that the host cannot run.
const SKIPPED: &str = "skipped, because ";

/// The options of `cargo xtask nightly`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Run only the suites whose name contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    only: String,
    /// Print the suites with their usual duration, their time limit and their command, without running them
    #[arg(long)]
    list: bool,
}

/// How a suite ended.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed { reason: String },
    Skipped { reason: String },
}

/// A suite that was run or skipped.
#[derive(Debug)]
struct Done {
    name: &'static str,
    command: &'static str,
    outcome: Outcome,
    time: Duration,
    log: PathBuf,
}

/// Runs or lists the chosen suites. The error names those that failed.
pub(crate) fn run(root: &Path, options: &Options) -> Result<(), String> {
    let chosen = chosen(SUITES, &options.only)?;
    if options.list {
        return command::print(&list(&chosen));
    }
    let interrupted = limited::catch_interrupts()?;
    run_all(root, &chosen, &interrupted)
}

fn chosen(suites: &[Suite], only: &str) -> Result<Vec<Suite>, String> {
    let chosen: Vec<Suite> = suites.iter().copied().filter(|suite| suite.name.contains(only)).collect();
    if chosen.is_empty() {
        let names: Vec<&str> = suites.iter().map(|suite| suite.name).collect();
        return Err(format!("no suite's name contains \"{only}\"; the suites are {}", names.join(", ")));
    }
    Ok(chosen)
}

fn list(suites: &[Suite]) -> String {
    let lines = suites.iter().map(|suite| {
        let Suite { name, command, usual_minutes, limit_minutes, .. } = suite;
        format!("{name:<16} {usual_minutes:>3} min, at most {limit_minutes:>3} min  {command}\n")
    });
    lines.collect()
}

fn run_all(root: &Path, suites: &[Suite], interrupted: &AtomicBool) -> Result<(), String> {
    let directory = root.join(DIRECTORY);
    fs::create_dir_all(&directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut summary = Summary::new(root);
    let path = directory.join("summary.json");
    for suite in suites {
        let done = run_suite(root, suite, interrupted)?;
        command::print(&format!("{done}\n"))?;
        summary.done.push(done);
        let is_interrupted = interrupted.load(Ordering::Relaxed);
        let is_complete = summary.done.len() == suites.len() && !is_interrupted;
        let text = format!("{:#}\n", summary.json(is_complete));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        if is_interrupted {
            return Err(format!("interrupted after {} of {} suites", summary.done.len(), suites.len()));
        }
    }
    let failed = summary.done.iter().filter(|done| matches!(done.outcome, Outcome::Failed { .. }));
    let failed: Vec<&str> = failed.map(|done| done.name).collect();
    if failed.is_empty() { Ok(()) } else { Err(format!("failed: {}", failed.join(", "))) }
}

fn run_suite(root: &Path, suite: &Suite, interrupted: &AtomicBool) -> Result<Done, String> {
    let begun = Instant::now();
    let log = Path::new(DIRECTORY).join(format!("{}.log", suite.name));
    let path = root.join(&log);
    let context = |error| format!("{}: {error}", path.display());
    let file = File::create(&path).map_err(context)?;
    let outcome = match suite.obstacle() {
        Some(reason) => {
            fs::write(&path, format!("{SKIPPED}{reason}\n")).map_err(context)?;
            Outcome::Skipped { reason }
        }
        None => {
            let mut command = command::command(root, suite.command);
            command.stdout(file.try_clone().map_err(context)?).stderr(file);
            let end = limited::run(command, suite.limit(), interrupted);
            outcome(end, suite.limit(), &fs::read(&path).map_err(context)?)
        }
    };
    Ok(Done { name: suite.name, command: suite.command, outcome, time: begun.elapsed(), log })
}

/// Returns the outcome of a suite with this end and this log.
fn outcome(end: Result<End, String>, limit: Duration, log: &[u8]) -> Outcome {
    let failed = |reason: String| Outcome::Failed { reason };
    match end {
        Err(reason) => failed(reason),
        Ok(End::TimedOut) => failed(format!("the suite did not end within {} s", limit.as_secs())),
        Ok(End::Interrupted) => failed("the suite was interrupted".to_owned()),
        Ok(End::Exited(status)) if !status.success() => failed(status.to_string()),
        Ok(End::Exited(_)) => {
            let text = String::from_utf8_lossy(log);
            let reason = text.trim_end().lines().next_back().and_then(|line| line.strip_prefix(SKIPPED));
            reason.map_or(Outcome::Passed, |reason| Outcome::Skipped { reason: reason.to_owned() })
        }
    }
}

impl Outcome {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed { .. } => "failed",
            Self::Skipped { .. } => "skipped",
        }
    }

    fn reason(&self) -> Option<&str> {
        match self {
            Self::Passed => None,
            Self::Failed { reason } | Self::Skipped { reason } => Some(reason),
        }
    }
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (word, seconds, log) = (self.outcome.word(), self.time.as_secs(), self.log.display());
        write!(f, "{:<16} {word:<7} {seconds:>5} s  {log}", self.name)?;
        self.outcome.reason().map_or(Ok(()), |reason| write!(f, "  {reason}"))
    }
}

/// The content of the summary file.
struct Summary {
    commit: Option<String>,
    /// Name, kernel and architecture of this host; `None` if there is no `uname`.
    host: Option<String>,
    cpus: Option<usize>,
    /// The start in UTC, as in `2026-11-23T20:00:00Z`.
    date: Option<String>,
    done: Vec<Done>,
}

impl Summary {
    fn new(root: &Path) -> Self {
        let output = |line| command::output(command::command(root, line)).ok().map(|text| text.trim().to_owned());
        Self {
            commit: command::commit(root),
            host: output("uname -nsrm"),
            cpus: std::thread::available_parallelism().ok().map(usize::from),
            date: output("date -u +%FT%TZ"),
            done: Vec::new(),
        }
    }

    fn json(&self, is_complete: bool) -> Value {
        let suite = |done: &Done| {
            json!({
                "name": done.name,
                "command": done.command,
                "outcome": done.outcome.word(),
                "reason": done.outcome.reason(),
                "seconds": done.time.as_secs(),
                "log": done.log,
            })
        };
        json!({
            "schema": "siga/nightly/1",
            "commit": self.commit,
            "host": self.host,
            "cpus": self.cpus,
            "date": self.date,
            "complete": is_complete,
            "suites": self.done.iter().map(suite).collect::<Vec<Value>>(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use suites::Need;

    fn suite(name: &'static str, command: &'static str) -> Suite {
        Suite { name, command, usual_minutes: 0, limit_minutes: 1, needs: &[] }
    }

    /// Runs suites in an empty directory. Returns the outcome and the summary.
    fn run_in_empty(suites: &[Suite], interrupted: bool) -> (Result<(), String>, Value) {
        let root = tempfile::tempdir().unwrap();
        let outcome = run_all(root.path(), suites, &AtomicBool::new(interrupted));
        let summary = fs::read(root.path().join("target/nightly/summary.json")).unwrap();
        (outcome, serde_json::from_slice(&summary).unwrap())
    }

    #[test]
    fn a_failing_suite_does_not_stop_the_others() {
        let (outcome, summary) = run_in_empty(
            &[suite("bad", "false"), suite("none", "no-such-program-anywhere"), suite("good", "true")],
            false,
        );
        assert_eq!(outcome.unwrap_err(), "failed: bad, none");
        let words: Vec<&Value> = summary["suites"].as_array().unwrap().iter().map(|suite| &suite["outcome"]).collect();
        assert_eq!(words, ["failed", "failed", "passed"]);
        assert_eq!(summary["suites"][0]["reason"], "exit status: 1");
        assert_eq!(run_in_empty(&[suite("good", "true")], false).0, Ok(()));
    }

    #[test]
    fn the_summary_names_commit_host_date_and_each_suite() {
        let root = tempfile::tempdir().unwrap();
        let mut summary = Summary::new(root.path());
        assert_eq!(summary.commit, None);
        assert!(summary.host.is_some() && summary.cpus.is_some());
        assert!(summary.date.as_ref().is_some_and(|date| date.starts_with("20") && date.ends_with('Z')));
        summary.done.push(Done {
            name: "sim",
            command: "cargo xtask sim",
            outcome: Outcome::Failed { reason: "exit status: 1".to_owned() },
            time: Duration::from_secs(83),
            log: "target/nightly/sim.log".into(),
        });
        let json = summary.json(false);
        for key in ["schema", "commit", "host", "cpus", "date", "complete"] {
            assert!(json.get(key).is_some(), "{key}");
        }
        let expected = json!({
            "name": "sim", "command": "cargo xtask sim", "outcome": "failed", "reason": "exit status: 1",
            "seconds": 83, "log": "target/nightly/sim.log",
        });
        assert_eq!(json["suites"], json!([expected]));
    }

    #[test]
    fn a_suite_has_one_line() {
        let line = |outcome| {
            let log = "target/nightly/sim.log".into();
            Done { name: "sim", command: "cargo xtask sim", outcome, time: Duration::from_secs(83), log }.to_string()
        };
        assert_eq!(line(Outcome::Passed), "sim              passed     83 s  target/nightly/sim.log");
        let skipped = line(Outcome::Skipped { reason: "it needs root".to_owned() });
        assert_eq!(skipped, "sim              skipped    83 s  target/nightly/sim.log  it needs root");
    }

    #[test]
    fn a_suite_that_takes_too_long_is_ended_and_fails() {
        let mut hanging = suite("hanging", "sleep 1000");
        hanging.limit_minutes = 0;
        let (outcome, summary) = run_in_empty(&[hanging, suite("good", "true")], false);
        assert_eq!(outcome.unwrap_err(), "failed: hanging");
        assert_eq!(summary["suites"][0]["reason"], "the suite did not end within 0 s");
        assert_eq!(summary["suites"][1]["outcome"], "passed");
    }

    #[test]
    fn an_interrupted_run_has_a_summary() {
        let (outcome, summary) = run_in_empty(&[suite("hanging", "sleep 1000"), suite("good", "true")], true);
        assert_eq!(outcome.unwrap_err(), "interrupted after 1 of 2 suites");
        assert_eq!(summary["complete"], false);
        assert_eq!(summary["suites"].as_array().unwrap().len(), 1);
        assert_eq!(summary["suites"][0]["reason"], "the suite was interrupted");
    }

    #[test]
    fn a_suite_that_this_host_cannot_run_is_skipped_with_the_reason() {
        let mut without = suite("without", "true");
        without.needs = &[Need::Program { name: "no-such-program-anywhere", package: "nowhere" }];
        let (outcome, summary) =
            run_in_empty(&[without, suite("says", "echo skipped, because there is no Miri")], false);
        assert_eq!(outcome, Ok(()));
        let expected = "the program no-such-program-anywhere is missing; install the Debian package nowhere";
        assert_eq!(summary["suites"][0]["outcome"], "skipped");
        assert_eq!(summary["suites"][0]["reason"], expected);
        assert_eq!(summary["suites"][1]["reason"], "there is no Miri");
        assert_eq!(summary["complete"], true);
    }

    #[test]
    fn an_unknown_suite_is_an_error_that_names_all() {
        let suites = [suite("sim", ""), suite("soak", ""), suite("soak-copy", "")];
        assert_eq!(
            chosen(&suites, "none").unwrap_err(),
            "no suite's name contains \"none\"; the suites are sim, soak, soak-copy"
        );
        assert_eq!(chosen(&suites, "soak").unwrap().len(), 2);
        assert_eq!(chosen(&suites, "").unwrap().len(), 3);
    }

    #[test]
    fn the_list_has_a_line_with_durations_for_each_suite() {
        let line = list(&[suite("sim", "cargo xtask sim")]);
        assert_eq!(line, "sim                0 min, at most   1 min  cargo xtask sim\n");
    }
}
