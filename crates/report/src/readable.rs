//! Makes the texts of comparisons and summarised runs safe to print for people.
//!
//! Each text from a record becomes a single line without invisible characters. For Markdown, characters of the Markdown syntax
//! are escaped, too. Figures stay unchanged. The formats for programs (JSON, CSV) do not use this module.

use siga_model::text;
use siga_plan::matrix::Cell;
use siga_results::judge::{Comparison, Verdict};
use siga_results::summary::Reduced;

/// Returns a copy of the comparison with safe texts.
pub(super) fn comparison(comparison: &Comparison, markdown: bool) -> Comparison {
    let word = word(markdown);
    let mut shown = comparison.clone();
    [&mut shown.base, &mut shown.new].into_iter().chain(&mut shown.cautions).for_each(|text| *text = word(text));
    for difference in shown.environment.iter_mut().chain(&mut shown.varied) {
        for text in [&mut difference.key, &mut difference.base, &mut difference.new] {
            *text = word(text);
        }
    }
    for row in &mut shown.rows {
        rename(&mut row.base, word);
        rename(&mut row.new, word);
        if let Verdict::NotComparable { reason } = &mut row.verdict {
            *reason = word(reason);
        }
    }
    for (cell, reason) in &mut shown.skipped {
        rename(cell, word);
        *reason = word(reason);
    }
    shown
}

/// Returns a copy of the summarised run with safe texts.
pub(super) fn reduced(reduced: &Reduced, markdown: bool) -> Reduced {
    let word = word(markdown);
    let mut shown = reduced.clone();
    for summary in &mut shown.cells {
        rename(&mut summary.cell, word);
        summary.flags.iter_mut().for_each(|(flag, _)| *flag = word(flag));
    }
    for skipped in &mut shown.skipped {
        rename(&mut skipped.cell, word);
        // A reason can be an error with its hint on a second line. Here it has to be a single line.
        skipped.reason = word(&skipped.reason.replace("\n  ", "; "));
    }
    shown
}

/// Returns what makes a text safe for a screen, or for Markdown.
pub(super) fn word(markdown: bool) -> fn(&str) -> String {
    if markdown { text::markdown } else { text::name }
}

fn rename(cell: &mut Cell, word: fn(&str) -> String) {
    cell.path = word(&cell.path);
    cell.level = word(&cell.level);
}
