//! Reports of a run: a sentence, a table, what was skipped; or the same as JSON, CSV or Markdown.
//!
//! A report is a string for standard output; progress and logs never pass through here.

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
        (Format::Text, Layout::Plain) => table::text(run, &readable::reduced(&reduced, false)),
        (Format::Text, Layout::Zvm) => zvm::text(run, &reduced, &Repeat::of(run, &reduced, method)?),
        (Format::Md, Layout::Plain | Layout::Zvm) => table::markdown(run, &readable::reduced(&reduced, true)),
        (Format::Json, Layout::Plain | Layout::Zvm) => data::json(run, &reduced, &Repeat::of(run, &reduced, method)?),
        (Format::Csv, Layout::Plain | Layout::Zvm) => data::csv(&reduced),
    }
}

/// What a run says in one sentence so far; empty if it has nothing to compare.
///
/// # Errors
/// Environment: the run's record is damaged.
pub fn headline(run: &Run) -> Result<String> {
    Ok(words::headline(&summary::reduce(run, None)?))
}
