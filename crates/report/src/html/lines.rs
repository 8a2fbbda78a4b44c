//! A line chart: one line for each series, distinct by colour, shape and dashes.
//!
//! Each point is a mark with its exact values. Horizontal positions are parts of the width, so that any axis can be drawn
//! (pairs, percentiles).

use super::plot::{Scale, percent, px, shape, short, tick};
use maud::{Markup, html};

/// One measured value.
#[derive(Debug, Clone)]
pub(super) struct Point {
    /// Its horizontal position, from 0 to 1.
    pub(super) x: f64,
    /// Its value.
    pub(super) y: f64,
    /// The interval of the value.
    pub(super) interval: Option<(f64, f64)>,
    /// The lines that the mark shows when it is hovered, focused or tapped.
    pub(super) says: String,
}

/// Values that belong together.
#[derive(Debug, Clone)]
pub(super) struct Series {
    /// Its name in the legend.
    pub(super) label: String,
    /// From left to right.
    pub(super) points: Vec<Point>,
}

/// The horizontal axis.
#[derive(Debug, Clone)]
pub(super) struct Across {
    /// What it counts, with its unit.
    pub(super) title: String,
    /// Positions from 0 to 1 with their labels.
    pub(super) ticks: Vec<(f64, String)>,
}

/// Most series that stay distinct in one drawing.
pub(super) const SERIES_MAX: usize = 8;

const TOP: f64 = 28.0;
const BOTTOM: f64 = 268.0;

/// The drawing with its legend. `axis` names the values and their unit.
pub(super) fn lines(series: &[Series], title: &str, across: &Across, scale: Scale, axis: &str) -> Markup {
    let y = |value: f64| BOTTOM - scale.at(value) * (BOTTOM - TOP);
    // Intervals at one position are drawn side by side.
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
                    (short(&one.label, 60))
                }
            }
        }
    }
}
