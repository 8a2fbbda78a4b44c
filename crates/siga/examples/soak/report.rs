//! The report of a worker to its parent, on standard output, one line each: counts, findings, and that it is ready.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// How often counts are printed.
const TELL_EVERY: Duration = Duration::from_millis(50);

/// Counts of a worker, printed as they grow.
#[derive(Debug, Clone, Default)]
pub(super) struct Report {
    counts: Arc<Mutex<BTreeMap<&'static str, u64>>>,
}

impl Report {
    /// Counts that a thread prints from now on.
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

    /// Counts something.
    pub(super) fn add(&self, name: &'static str, more: u64) {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner).entry(name).or_default() += more;
    }

    /// Notes the largest of something.
    pub(super) fn most(&self, name: &'static str, value: u64) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = counts.entry(name).or_default();
        *entry = value.max(*entry);
    }

    /// Reports that something is wrong.
    pub(super) fn finding(&self, text: &str) {
        self.say(&format!("finding {}", text.replace('\n', " ")));
    }

    /// Prints a line. If the parent is gone, the worker ends soon too.
    pub(super) fn say(&self, line: &str) {
        let _ = writeln!(std::io::stdout().lock(), "{line}");
    }
}
