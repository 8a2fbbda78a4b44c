//! The progress of a run, on standard error: a row for each cell after its first trial, a summary after each round, and on a terminal one
//! line with the current trial and the time left.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use siga_measure::run::{Progress, Watch};
use siga_plan::matrix::Cell;
use siga_results::environment::EMULATED;
use siga_results::record::{Skipped, TrialRecord};
use siga_results::store::Run;
use std::time::Duration;

/// The live view.
#[derive(Debug)]
pub(crate) struct Live {
    /// Hidden if standard error is not a terminal.
    bar: ProgressBar,
    /// The mark at the end of each row if the machine is emulated.
    mark: String,
    /// The name of the host, in a run on several hosts.
    host: String,
    /// The host that the last text was about.
    said: String,
}

impl Live {
    pub(crate) fn new(emulated: bool) -> Self {
        let target = if crate::is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(None, target);
        if let Ok(style) = ProgressStyle::with_template("{pos}/{len} trials, {prefix} left  {bar:20} {msg}") {
            bar.set_style(style);
        }
        let mark = if emulated { format!("  {EMULATED}") } else { String::new() };
        Self { bar, mark, host: String::new(), said: String::new() }
    }

    pub(crate) fn end(&self) {
        self.bar.finish_and_clear();
    }

    fn say(&mut self, text: &str) {
        if self.said != self.host {
            self.said.clone_from(&self.host);
            self.bar.suspend(|| crate::note(&format!("\n{}:", self.host)));
        }
        self.bar.suspend(|| crate::note(text));
    }

    fn show(&self, progress: &Progress) {
        self.bar.set_length(progress.total as u64);
        self.bar.set_position(progress.done as u64);
        self.bar.set_prefix(humantime::format_duration(Duration::from_secs(progress.left.as_secs())).to_string());
    }
}

impl Watch for Live {
    fn begins(&mut self, cell: &Cell, progress: &Progress) {
        self.show(progress);
        self.bar.set_message(siga_model::text::name(&format!("{} {cell}", self.host)));
        self.bar.tick();
    }

    fn measured(&mut self, trial: &TrialRecord, progress: &Progress) {
        self.show(progress);
        if progress.round > 0 {
            return;
        }
        let text = format!("{}{}", siga_report::first_trial(trial), self.mark);
        self.say(&text);
        for flag in &trial.flags {
            self.say(&format!("  caution: {flag}"));
        }
    }

    fn skipped(&mut self, skipped: &Skipped) {
        self.say(&format!("skipped {}: {}", skipped.cell, skipped.reason));
    }

    fn round(&mut self, run: &Run, progress: &Progress) {
        self.show(progress);
        let text = siga_report::headline(run).unwrap_or_default();
        if !text.is_empty() && progress.done < progress.total {
            self.say(&format!("\nAfter {} of about {} trials:\n{text}", progress.done, progress.total));
        }
    }

    fn note(&mut self, text: &str) {
        self.say(&format!("note: {text}"));
    }

    fn host(&mut self, name: &str) {
        name.clone_into(&mut self.host);
    }
}
