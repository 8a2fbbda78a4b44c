//! The report of a worker to its parent process on standard output. Each line is a count, a finding, or the word that the worker
//! is ready.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The interval at which counts are printed.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// The counts of a worker. A thread prints them regularly.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl Report {
    /// Starts a thread that prints the counts regularly.
    pub(super) fn start() -> Self {
        let report = Self::default();
        let own = report.clone();
        std::thread::spawn(move || {
            loop {
                std::thread::sleep(TELL_EVERY);
                own.tell();
            }
        });
        report
    }

    /// Prints all counts.
    pub(super) fn tell(&self) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let lines: Vec<String> = counts.iter().map(|(name, count)| format!("count {name} {count}")).collect();
        if !lines.is_empty() {
            self.say(&lines.join("\n"));
        }
    }

    /// Adds `more` to a count.
    pub(super) fn add(&self, name: &'static str, more: u64) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += more;
    }

    /// Raises a count to `value` if it is lower.
    pub(super) fn most(&self, name: &'static str, value: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = counts.entry(name).or_default();
        *entry = value.max(*entry);
    }

    /// Reports a finding: something that went wrong.
    pub(super) fn finding(&self, text: &str) {
        self.say(&format!("finding {}", text.replace('\n', " ")));
    }

    /// Prints a line. Errors are ignored: they mean that the parent is gone, and then this worker is about to end too.
    pub(super) fn say(&self, line: &str) {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}
