//! Draws a line chart: one line for each series. The lines differ in colour, in the shape of their points, and in their dash
//! pattern.
//!
//! Each point is a mark, which shows its exact values when the reader points to it. Horizontal positions are fractions of the
//! chart's width, so the same code draws any horizontal axis (numbers of client-server pairs, percentiles).

use super::plot::{Scale, percent, px, shape, tick};
use maud::{Markup, html};

/// One point of a line: a measured value.
#[derive(Debug, Clone)]
pub(super) struct Point {
    /// The horizontal position as a fraction of the chart's width, from 0 to 1.
    pub(super) x: f64,
    /// The value, which determines the vertical position.
    pub(super) y: f64,
    /// The interval of the value, drawn as a vertical line.
    pub(super) interval: Option<(f64, f64)>,
    /// The lines of text that the point shows when the reader hovers over it, focuses it or taps it.
    pub(super) says: String,
}

/// One line of the chart.
#[derive(Debug, Clone)]
pub(super) struct Series {
    /// The name of the line in the legend.
    pub(super) label: String,
    /// The points of the line, from left to right.
    pub(super) points: Vec<Point>,
}

/// The horizontal axis.
#[derive(Debug, Clone)]
pub(super) struct Across {
    /// The title of the axis. It names the quantity, and the scale if that is logarithmic.
    pub(super) title: String,
    /// The ticks of the axis: the position of each as a fraction of the chart's width, and its label.
    pub(super) ticks: Vec<(f64, String)>,
}

/// Maximum number of lines in one chart; a reader could not distinguish more.
pub(super) const SERIES_MAX: usize = 8;

const TOP: f64 = 28.0;
const BOTTOM: f64 = 268.0;

/// Draws the chart with its legend. `across` is the horizontal axis. `axis` is the title of the vertical axis: the quantity and
/// its unit.
pub(super) fn lines(series: &[Series], title: &str, across: &Across, scale: Scale, axis: &str) -> Markup {
    let y = |value: f64| BOTTOM - scale.at(value) * (BOTTOM - TOP);
    // Each series is shifted sideways a little, so that intervals at the same position do not cover each other.
    let several = series.iter().flat_map(|one| &one.points).any(|point| point.interval.is_some());
    let aside = |number: usize| if several { 5.0 * (number as f64 - (series.len() - 1) as f64 / 2.0) } else { 0.0 };
    let firsts: Vec<usize> = series
        .iter()
        .scan(0, |before, one| {
            let first = *before;
            *before += one.points.len();
            Some(first)
        })
        .collect();
    html! {
        (legend(series))
        svg class="upright" width="100%" height=(px(BOTTOM + 44.0)) role="group" aria-label=(title) {
            text class="axis" x="0" dx="-44" y="12" { (axis) }
            @for value in scale.ticks() {
                line class="grid" x1="0" x2="100%" y1=(px(y(value))) y2=(px(y(value))) {}
                text class="tick" x="0" dx="-6" y=(px(y(value) + 4.0)) text-anchor="end" { (tick(value)) }
            }
            @for (place, name) in &across.ticks {
                line class="grid" x1=(percent(*place)) x2=(percent(*place)) y1=(px(BOTTOM)) y2=(px(BOTTOM + 5.0)) {}
                text class="tick" x=(percent(*place)) y=(px(BOTTOM + 19.0)) text-anchor="middle" { (name) }
            }
            text class="axis" x="50%" y=(px(BOTTOM + 38.0)) text-anchor="middle" { (across.title) }
            @for (number, one) in series.iter().enumerate() {
                g class={ "series s" (number % SERIES_MAX) } transform=(format!("translate({},0)", px(aside(number)))) {
                    @for pair in one.points.windows(2) {
                        line class="run" x1=(percent(pair[0].x)) y1=(px(y(pair[0].y)))
                            x2=(percent(pair[1].x)) y2=(px(y(pair[1].y))) {}
                    }
                    @for (at, point) in one.points.iter().enumerate() {
                        (mark(point, number, firsts[number] + at == 0, &y))
                    }
                }
            }
        }
    }
}

fn mark(point: &Point, number: usize, first: bool, y: &dyn Fn(f64) -> f64) -> Markup {
    let x = percent(point.x);
    html! {
        g class="mark" tabindex=(if first { "0" } else { "-1" }) role="img" aria-label=(point.says) {
            circle class="hit" cx=(x) cy=(px(y(point.y))) r="11" {}
            @if let Some((low, high)) = point.interval {
                line class="whisker" x1=(x) x2=(x) y1=(px(y(low))) y2=(px(y(high))) {}
            }
            svg class="shape" x=(x) y=(px(y(point.y))) width="1" height="1" { (shape(number)) }
        }
    }
}

fn legend(series: &[Series]) -> Markup {
    html! {
        ul class="legend" {
            @for (number, one) in series.iter().enumerate() {
                li {
                    svg class={ "key series s" (number % SERIES_MAX) } width="34" height="16" aria-hidden="true" {
                        line class="run" x1="1" x2="33" y1="8" y2="8" {}
                        svg class="shape" x="17" y="8" width="1" height="1" { (shape(number)) }
                    }
                    (one.label)
                }
            }
        }
    }
}
