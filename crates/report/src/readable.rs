//! Comparisons and reduced runs as people read them: every name and sentence that comes from a record on one line, without
//! letters that are not seen, and in Markdown without what would be taken for its syntax. Figures are left alone, and so is
//! what programs read.

use siga_model::text;
use siga_plan::matrix::Cell;
use siga_results::judge::{Comparison, Verdict};
use siga_results::summary::Reduced;

/// The same comparison, to be read.
pub(super) fn comparison(comparison: &Comparison, markdown: bool) -> Comparison {
    let word = word(markdown);
    let mut shown = comparison.clone();
    [&mut shown.base, &mut shown.new].into_iter().chain(&mut shown.cautions).for_each(|text| *text = word(text));
    for difference in &mut shown.environment {
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

/// The same figures, to be read.
pub(super) fn reduced(reduced: &Reduced, markdown: bool) -> Reduced {
    let word = word(markdown);
    let mut shown = reduced.clone();
    for summary in &mut shown.cells {
        rename(&mut summary.cell, word);
        summary.flags.iter_mut().for_each(|(flag, _)| *flag = word(flag));
    }
    for overhead in &mut shown.overheads {
        rename(&mut overhead.cell, word);
        rename(&mut overhead.base, word);
    }
    for skipped in &mut shown.skipped {
        rename(&mut skipped.cell, word);
        // An error's way out stands on a line of its own.
        skipped.reason = word(&skipped.reason.replace("\n  ", "; "));
    }
    shown
}

fn word(markdown: bool) -> fn(&str) -> String {
    if markdown { text::markdown } else { text::name }
}

fn rename(cell: &mut Cell, word: fn(&str) -> String) {
    cell.path = word(&cell.path);
    cell.level = word(&cell.level);
}
