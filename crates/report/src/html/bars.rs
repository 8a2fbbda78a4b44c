//! Horizontal bars with labels above them: single bars for ratios, stacked bars for CPU time.
//!
//! Each row is one mark that shows its exact values when it is hovered, focused or tapped.

use super::plot::{Scale, TOP, axis_across, percent, place, px, short, whisker};
use maud::{Markup, html};

/// The meaning of a part of a bar, which decides its colour and pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fill {
    /// The side that connects.
    Client,
    /// The router.
    Router,
    /// The side that accepts.
    Server,
    /// Everything else.
    Other,
    /// What the method could not place.
    Residue,
    /// A figure that became better.
    Better,
    /// A figure that became worse.
    Worse,
    /// A figure that is neither.
    Neither,
}

impl Fill {
    /// The class that the style sheet colours.
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

/// One row of a drawing.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    /// The name of its group of rows.
    pub(super) group: String,
    /// The label of the row.
    pub(super) label: String,
    /// Its figure, at the right.
    pub(super) value: String,
    /// Stretches from zero on; none is below zero.
    pub(super) parts: Vec<(Fill, f64)>,
    /// An interval, drawn as a whisker.
    pub(super) interval: Option<(f64, f64)>,
    /// A value that is marked across the bar: the exact total of a stack.
    pub(super) total: Option<f64>,
    /// The lines that the mark shows when it is hovered, focused or tapped.
    pub(super) says: String,
}

/// What the fills of ratio bars mean, as far as the bars have them.
pub(super) fn meanings(bars: &[Bar]) -> Vec<(Fill, &'static str)> {
    let all = [(Fill::Better, "better"), (Fill::Worse, "worse"), (Fill::Neither, "neither better nor worse")];
    let has = |fill: Fill| bars.iter().any(|bar| bar.parts.iter().any(|(own, _)| *own == fill));
    all.into_iter().filter(|(fill, _)| has(*fill)).collect()
}

const ROW: f64 = 40.0;

/// The drawing of all bars. `reference` is a value with a line of its own: 1 for ratios.
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
                // Only beside the bars: a line through the labels would make them hard to read.
                @if let Some(x) = &reference {
                    line class="reference" x1=(x) x2=(x) y1=(px(y + 16.0)) y2=(px(y + 37.0)) {}
                }
            }
        }
    }
}

/// A scale wide enough for all bars. A very wide interval widens it only to a limit and is then cut off.
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

/// The stretches of one bar, side by side from zero on.
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
