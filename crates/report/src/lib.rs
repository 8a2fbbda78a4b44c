//! Presents runs and comparisons: text, Markdown, JSON, CSV, HTML, exports, and the layout of z/VM's reports.
//!
//! Invariants:
//! - Nothing here measures or judges; every figure and verdict comes from `siga-results`.
//! - A report is a string, or goes to an [`export::Output`]; progress and logs never pass through here.
//! - Names from a record may be hostile: text for people is made safe by `siga_model::text`, HTML by `maud`.

#![forbid(unsafe_code)]

mod data;
pub mod export;
mod format;
pub mod html;
mod readable;
mod table;
pub mod verdicts;
mod words;
mod worth;
pub mod zvm;

pub use format::{Format, Layout};

use siga_model::error::Result;
use siga_plan::accounting::Method;
use siga_results::store::Run;
use siga_results::summary;
use zvm::repeat::Repeat;

/// The report of a run. `method` asks for one method of CPU accounting; `None` takes the best for each cell.
///
/// # Errors
/// Environment: the run's record is damaged.
pub fn render(run: &Run, format: Format, layout: Layout, method: Option<Method>) -> Result<String> {
    let reduced = summary::reduce(run, method)?;
    match (format, layout) {
        (Format::Text, Layout::Plain) => table::people(run, &readable::reduced(&reduced, false), false),
        (Format::Text, Layout::Zvm) => zvm::text(run, &reduced, &Repeat::of(run, &reduced, method)?),
        (Format::Md, Layout::Plain | Layout::Zvm) => table::people(run, &readable::reduced(&reduced, true), true),
        (Format::Json, Layout::Plain | Layout::Zvm) => data::json(run, &reduced, &Repeat::of(run, &reduced, method)?),
        (Format::Csv, Layout::Plain | Layout::Zvm) => data::csv(&reduced),
    }
}

/// The most important sentence about a run so far; empty if there is nothing to compare.
///
/// # Errors
/// Environment: the run's record is damaged.
pub fn headline(run: &Run) -> Result<String> {
    Ok(words::headline(&summary::reduce(run, None)?))
}
