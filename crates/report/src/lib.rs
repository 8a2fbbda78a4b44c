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

mod data;
mod disturbance;
pub mod export;
pub mod flame;
mod format;
pub mod html;
mod observer;
mod offered;
pub mod output;
mod readable;
mod table;
pub mod verdicts;
mod why;
mod words;
mod worth;
pub mod zvm;

pub use format::{Format, Layout};
pub use why::Explained;

use siga_model::error::Result;
use siga_plan::accounting::AccountingMethod;
use siga_results::judge::{self, Answers};
use siga_results::store::Run;
use siga_results::summary;
use zvm::repeat::Repeat;

/// Returns the report of a run. `method` is the accounting method of CPU times; if it is `None`, each cell uses the best method
/// for which it has data.
///
/// # Errors
/// Returns an error of kind `Environment` if the run's record is damaged.
pub fn render(run: &Run, format: Format, layout: Layout, method: Option<AccountingMethod>) -> Result<String> {
    let reduced = summary::reduce(run, method)?;
    let comparisons = match (format, layout) {
        (Format::Text, Layout::Zvm) | (Format::Csv, _) => Vec::new(),
        (Format::Text, Layout::Plain) | (Format::Md | Format::Json, _) => judge::shown(run)?,
    };
    match (format, layout) {
        (Format::Text, Layout::Plain) => Ok(table::people(run, &reduced, &comparisons, false)),
        (Format::Text, Layout::Zvm) => zvm::text(run, &reduced, &Repeat::of(run, &reduced, method)?),
        (Format::Md, Layout::Plain | Layout::Zvm) => Ok(table::people(run, &reduced, &comparisons, true)),
        (Format::Json, Layout::Plain | Layout::Zvm) => {
            data::json(run, &reduced, &comparisons, &Repeat::of(run, &reduced, method)?)
        }
        (Format::Csv, Layout::Plain | Layout::Zvm) => data::csv(run, &reduced),
    }
}

/// Returns the most important sentences about the trials that a run has so far: disturbed rounds, siga's networks compared with the kernel's, and
/// the overhead of routers. Returns an empty string if the run has nothing to compare.
///
/// # Errors
/// Returns an error of kind `Environment` if the run's record is damaged.
pub fn headline(run: &Run) -> Result<String> {
    let reduced = summary::reduce(run, None)?;
    let answers = Answers::of(run, &reduced, &judge::shown(run)?);
    let sentences = [reduced.disturbance.sentence(), words::headline(&reduced, &answers)];
    Ok(sentences.join("\n").trim_matches('\n').to_owned())
}
