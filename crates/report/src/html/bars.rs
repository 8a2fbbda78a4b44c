//! Draws horizontal bars with labels above them: simple bars for ratios, stacked bars for CPU time.

use super::plot::{Scale, percent, px};
use super::rows::{HEIGHT, Row, rows};
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
    /// CPU time of the host outside client, router and server.
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
    /// The lines of text that the mark shows when the reader hovers over it, focuses it or taps it.
    pub(super) says: String,
}

/// Returns the legend entries of ratio bars: each fill that occurs in the bars, with its meaning.
pub(super) fn meanings(bars: &[Bar]) -> Vec<(Fill, &'static str)> {
    let all = [(Fill::Better, "better"), (Fill::Worse, "worse"), (Fill::Neither, "neither better nor worse")];
    let has = |fill: Fill| bars.iter().any(|bar| bar.parts.iter().any(|(own, _)| *own == fill));
    all.into_iter().filter(|(fill, _)| has(*fill)).collect()
}

/// Draws all bars. If `reference` is given, a vertical line marks this value (for ratios it is 1: no difference).
pub(super) fn bars(bars: &[Bar], title: &str, axis: &str, reference: Option<f64>) -> Markup {
    let scale = scale(bars, reference);
    let row = |bar: &Bar| Row {
        group: bar.group.clone(),
        label: bar.label.clone(),
        value: html! { (bar.value) },
        plot: html! {
            (stretches(&bar.parts, scale, 3.0, HEIGHT - 6.0))
            @if let Some(x) = reference.map(|value| percent(scale.at(value))) {
                line class="reference" x1=(x) x2=(x) y1="0" y2=(px(HEIGHT)) {}
            }
        },
        says: bar.says.clone(),
    };
    rows(&bars.iter().map(row).collect::<Vec<_>>(), title, scale, axis)
}

/// Returns a scale that is long enough for all bars.
fn scale(bars: &[Bar], reference: Option<f64>) -> Scale {
    let sum = |bar: &Bar| bar.parts.iter().map(|(_, value)| value.max(0.0)).sum::<f64>();
    Scale::linear(bars.iter().map(sum).chain(reference))
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
