//! Presents runs and comparisons as text, Markdown, JSON, CSV or HTML, exports their figures, and prints runs in the layout of
//! z/VM's reports. A run measures cells: combinations of path, workload, MTU, number of client-server pairs and level (a named
//! set of settings).
//!
//! Invariants:
//! - This crate neither measures nor judges: every measured figure and every verdict comes from `siga-results`.
//! - A report is returned as a string or written to an [`output::Output`]. This crate writes no progress messages and no logs.
//! - Names from a record may be hostile. `siga_model::text` removes invisible characters and line breaks from them in text for
//!   people, and `maud` escapes them in HTML.

#![forbid(unsafe_code)]

mod answer;
mod commands;
mod connections;
mod data;
mod disturbance;
pub mod export;
mod fastest;
mod fit;
pub mod flame;
mod format;
pub mod hosts;
pub mod html;
pub mod monitor;
mod monitored;
mod observer;
mod offered;
pub mod output;
mod overview;
mod printed;
mod readable;
mod sides;
mod streams;
mod table;
mod usage;
pub mod verdicts;
mod why;
mod words;
mod worth;
pub mod zvm;

pub use fit::Screen;
pub use format::{Format, Layout};
pub use why::Explained;

use siga_model::error::Result;
use siga_plan::accounting::AccountingMethod;
use siga_results::histogram;
use siga_results::judge::{Figures, Judged};
use siga_results::record::TrialRecord;
use siga_results::store::Run;
use siga_results::summary::{self, cpu_ms};
use words::number;
use zvm::repeat::Repeat;

/// Returns the report of a run. `method` is the accounting method of CPU times; if it is `None`, each cell uses the best method
/// for which it has data.
///
/// # Errors
/// Returns an error of kind `Environment` if the run's record is damaged.
pub fn render(run: &Run, format: Format, layout: Layout, method: Option<AccountingMethod>) -> Result<String> {
    if format == Format::Text {
        return text(run, layout, method, &Screen::default());
    }
    let judged = Judged::of(run, method)?;
    match format {
        Format::Text | Format::Md => {
            let text = table::people(run, &judged, &answer::of(run, &judged)?, true, usize::MAX);
            Ok(text + &findings(run, &judged, method)?)
        }
        Format::Json => {
            let matrix = connections::of(run, &judged.median, &Figures::new(run, method))?;
            data::json(run, &judged, &Repeat::of(run, &judged.median, method)?, matrix.as_ref())
        }
        Format::Csv => data::csv(run, &judged.agreed),
    }
}

/// Returns the report of a run as text for a screen. `method` is as for [`render`].
///
/// # Errors
/// Returns an error of kind `Environment` if the run's record is damaged.
pub fn text(run: &Run, layout: Layout, method: Option<AccountingMethod>, screen: &Screen) -> Result<String> {
    let text = match layout {
        Layout::Plain => {
            let judged = Judged::of(run, method)?;
            let text = table::people(run, &judged, &answer::of(run, &judged)?, false, screen.width);
            text + &findings(run, &judged, method)?
        }
        Layout::Zvm => {
            let reduced = summary::reduce(run, method)?;
            zvm::text(run, &reduced, &Repeat::of(run, &reduced, method)?)?
        }
    };
    Ok(fit::finish(&text, screen))
}

/// Returns the findings of the run's plan in words, and the matrix of 2009; an empty string if the run has neither.
fn findings(run: &Run, judged: &Judged, method: Option<AccountingMethod>) -> Result<String> {
    let mut text = String::new();
    if !run.plan.finding.is_empty() {
        text += &zvm::answers::plan_text(&Repeat::of(run, &judged.median, method)?);
    }
    let matrix = connections::of(run, &judged.median, &Figures::new(run, method))?;
    Ok(text + &matrix.as_ref().map(connections::text::text).unwrap_or_default())
}

/// The JSON Schema of [`Format::Json`].
pub const SCHEMA: &str = include_str!("result.schema.json");

/// Returns the figures of a cell's first trial in one line, with the units of the tables.
pub fn first_trial(trial: &TrialRecord) -> String {
    let workload = trial.cell.workload;
    let latency = histogram::decode(&trial.latency).map(|histogram| histogram::percentiles(&histogram));
    let p50 = latency.ok().and_then(|latency| latency.p50).map_or("-".into(), |p50| format!("{} us", number(p50)));
    let cpu = number(cpu_ms(trial) * workload.cpu_unit().cpu_scale());
    format!(
        "{:<44} {:>9} {:<9}  p50 {p50:>9}  CPU {cpu:>6} {}",
        siga_model::text::name(&trial.cell.to_string()),
        number(trial.rate()),
        workload.unit().rate_name(),
        workload.cpu_unit().cpu_name()
    )
}

/// Returns the answer to the question of a run's plan from the trials so far, and a sentence about disturbed rounds. Returns an empty
/// string if the run has nothing to compare.
///
/// # Errors
/// Returns an error of kind `Environment` if the run's record is damaged.
pub fn headline(run: &Run) -> Result<String> {
    let judged = Judged::of(run, None)?;
    let sentences = [answer::of(run, &judged)?, judged.agreed.disturbance.sentence()];
    Ok(sentences.join("\n").trim_matches('\n').to_owned())
}
