//! Draws horizontal bars with labels above them: simple bars for ratios, stacked bars for CPU time.
//!
//! Each bar is a mark: a part of a drawing that shows exact values when the reader hovers over it, focuses it or taps it.

use super::plot::{Scale, TOP, axis_across, percent, place, px, short, whisker};
use maud::{Markup, html};

/// The meaning of a part of a bar. It determines the colour and the pattern of the part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// CPU time of the client, the side that opens connections.
    Client,
    /// CPU time of the router.
    Router,
    /// CPU time of the server, the side that accepts connections.
    Server,
    /// CPU time of all other programs.
    Other,
    /// CPU time that the accounting method could not charge to a component.
    Residue,
    /// A figure that became better.
    Better,
    /// A figure that became worse.
    Worse,
    /// A figure that became neither better nor worse.
    Neither,
}

impl Fill {
    /// Returns the CSS class for which the style sheet defines colour and pattern.
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Router => "router",
            Self::Server => "server",
            Self::Other => "other",
            Self::Residue => "residue",
            Self::Better => "better",
            Self::Worse => "worse",
            Self::Neither => "neither",
        }
    }
}

/// One bar of a drawing, with its texts.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    /// The name of the group to which the bar belongs; it is a heading above the first bar of the group.
    pub(super) group: String,
    /// The label of the bar, above it at the left.
    pub(super) label: String,
    /// The figure of the bar as text, above it at the right.
    pub(super) value: String,
    /// The parts of the bar from left to right, each with its length in the unit of the axis. The first part begins at zero. A
    /// negative length is drawn as zero.
    pub(super) parts: Vec<(Fill, f64)>,
    /// The interval of the figure, drawn as a whisker.
    pub(super) interval: Option<(f64, f64)>,
    /// The measured total of a stacked bar, drawn as a line across the bar. It can differ from the sum of the parts. `None` for a
    /// simple bar.
    pub(super) total: Option<f64>,
    /// The lines of text that the mark shows when the reader hovers over it, focuses it or taps it.
    pub(super) says: String,
}

/// Returns the legend entries of ratio bars: each fill that occurs in the bars, with its meaning.
pub(super) fn meanings(bars: &[Bar]) -> Vec<(Fill, &'static str)> {
    let all = [(Fill::Better, "better"), (Fill::Worse, "worse"), (Fill::Neither, "neither better nor worse")];
    let has = |fill: Fill| bars.iter().any(|bar| bar.parts.iter().any(|(own, _)| *own == fill));
    all.into_iter().filter(|(fill, _)| has(*fill)).collect()
}

const ROW: f64 = 40.0;

/// Draws all bars. If `reference` is given, a vertical line marks this value (for ratios it is 1: no difference).
pub(super) fn bars(bars: &[Bar], title: &str, axis: &str, reference: Option<f64>) -> Markup {
    let scale = scale(bars, reference);
    let (rows, y) = place(bars, ROW, |bar| &bar.group);
    html! {
        svg width="100%" height=(px(y + 44.0)) role="group" aria-label=(title) {
            (axis_across(scale, axis, TOP, y))
            @let reference = reference.map(|value| percent(scale.at(value)));
            @for (number, bar, head, y) in rows {
                @if let Some(head) = head {
                    text class="group" x="0" y=(px(head)) { (short(&bar.group, 36)) }
                }
                (row(number, bar, scale, y))
                // The line crosses only the bars, because a line through the labels would make them hard to read.
                @if let Some(x) = &reference {
                    line class="reference" x1=(x) x2=(x) y1=(px(y + 16.0)) y2=(px(y + 37.0)) {}
                }
            }
        }
    }
}

/// Returns a scale that is long enough for all bars. Intervals extend the scale to at most 1.5 times the longest bar; the part of
/// an interval beyond the scale is cut off.
fn scale(bars: &[Bar], reference: Option<f64>) -> Scale {
    const WIDER_MAX: f64 = 1.5;
    let sum = |bar: &Bar| bar.parts.iter().map(|(_, value)| value.max(0.0)).sum::<f64>();
    let ends = bars.iter().flat_map(|bar| [sum(bar), bar.total.unwrap_or(0.0)]).chain(reference);
    let most = ends.filter(|end| end.is_finite()).fold(0.0, f64::max);
    let intervals = bars.iter().filter_map(|bar| bar.interval).map(|(_, high)| high.min(most * WIDER_MAX));
    Scale::linear(intervals.chain([most]))
}

fn row(number: usize, bar: &Bar, scale: Scale, y: f64) -> Markup {
    html! {
        g class="mark" tabindex=(if number == 0 { "0" } else { "-1" }) role="img" aria-label=(bar.says) {
            rect class="hit" x="0" width="100%" y=(px(y + 1.0)) height=(px(ROW - 2.0)) rx="3" {}
            text class="label" x="4" y=(px(y + 14.0)) { (short(&bar.label, 30)) }
            text class="value" x="100%" dx="-4" y=(px(y + 14.0)) text-anchor="end" { (bar.value) }
            (stretches(&bar.parts, scale, y + 19.0, 14.0))
            @if let Some(interval) = bar.interval { (whisker(scale, interval, y + 26.0)) }
            @if let Some(total) = bar.total {
                @let x = percent(scale.at(total));
                line class="total" x1=(x) x2=(x) y1=(px(y + 17.0)) y2=(px(y + 35.0)) {}
            }
        }
    }
}

/// Draws the parts of one bar from left to right; the first part begins at zero.
pub(super) fn stretches(parts: &[(Fill, f64)], scale: Scale, y: f64, height: f64) -> Markup {
    let mut reached = 0.0;
    let placed = parts.iter().map(|(fill, value)| {
        let from = reached;
        reached += if value.is_finite() { value.max(0.0) } else { 0.0 };
        (fill.class(), scale.at(from), scale.at(reached))
    });
    let placed: Vec<_> = placed.filter(|(_, from, to)| to > from).collect();
    html! {
        @for (class, from, to) in placed {
            rect class=(class) x=(percent(from)) width=(percent(to - from)) y=(px(y)) height=(px(height)) {}
        }
    }
}
