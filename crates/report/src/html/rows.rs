//! Draws charts whose rows lie below each other: a label and a value as text, and a drawing below them, all rows to one scale.
//!
//! Labels are text of the page and not of the drawing, so a long label wraps and is never cut. Each row is a mark: it shows its
//! exact figures when the reader hovers over it, focuses it or taps it.

use super::plot::{Scale, percent, px, tick};
use maud::{Markup, html};

/// One row of a chart.
#[derive(Debug, Clone)]
pub(super) struct Row {
    /// The name of the group to which the row belongs; it is a heading above the first row of the group.
    pub(super) group: String,
    /// The label of the row, at the left.
    pub(super) label: String,
    /// The figure of the row as text, at the right.
    pub(super) value: Markup,
    /// The drawing below the label, [`HEIGHT`] pixels high and as wide as the chart.
    pub(super) plot: Markup,
    /// The lines of text that the row shows when the reader hovers over it, focuses it or taps it.
    pub(super) says: String,
}

/// Height of the drawing of a row, in pixels.
pub(super) const HEIGHT: f64 = 20.0;

/// Returns all rows, with the axis below them. `axis` is the title of the axis: the quantity and its unit.
pub(super) fn rows(rows: &[Row], title: &str, scale: Scale, axis: &str) -> Markup {
    html! {
        div class="rows" role="group" aria-label=(title) {
            @for (number, row) in rows.iter().enumerate() {
                @if !row.group.is_empty() && (number == 0 || rows[number - 1].group != row.group) {
                    p class="group" { (row.group) }
                }
                div class="row mark" tabindex=(if number == 0 { "0" } else { "-1" }) role="img" aria-label=(row.says) {
                    span class="label" { (row.label) }
                    span class="value" { (row.value) }
                    svg class="plot" width="100%" height=(px(HEIGHT)) aria-hidden="true" { (grid(scale, HEIGHT)) (row.plot) }
                }
            }
            (below(scale, axis))
        }
    }
}

/// Draws vertical lines at the ticks of a scale.
pub(super) fn grid(scale: Scale, height: f64) -> Markup {
    html! {
        @for value in scale.ticks() {
            @let x = percent(scale.at(value));
            line class="grid" x1=(x) x2=(x) y1="0" y2=(px(height)) {}
        }
    }
}

/// Draws the axis below the rows: the values of the ticks, and the title.
fn below(scale: Scale, axis: &str) -> Markup {
    html! {
        svg class="across" width="100%" height="40" aria-hidden="true" {
            @for value in scale.ticks() {
                text class="tick" x=(percent(scale.at(value))) y="13" text-anchor="middle" { (tick(value)) }
            }
            text class="axis" x="50%" y="33" text-anchor="middle" { (axis) }
        }
    }
}
