//! Draws a forest plot. Each row shows a ratio as a shape that depends on the verdict. The ratio's 95% interval is a whisker, and
//! the noise floor is a box behind both.

use super::plot::{Scale, percent, px, whisker};
use super::rows::{HEIGHT, Row, rows};
use crate::words::ratio_text;
use maud::{Markup, html};
use siga_results::judge::Verdict;

/// One row of the plot: a ratio with its verdict.
#[derive(Debug, Clone)]
pub(super) struct Judged<'a> {
    /// The name of the group to which the row belongs; it is a heading above the first row of the group.
    pub(super) group: String,
    /// The label of the row: the settings that both compared cells have in common.
    pub(super) label: String,
    pub(super) ratio: Ratio<'a>,
    /// The lines of text that the row shows when the reader hovers over it, focuses it or taps it.
    pub(super) says: String,
}

/// A ratio of new to base, as it is drawn.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ratio<'a> {
    /// The ratio; it is above zero.
    pub(super) value: f64,
    /// The 95% interval of the ratio.
    pub(super) interval: Option<(f64, f64)>,
    /// The noise floor: half the width that the interval would have if both sides had the same settings. `None` if it is unknown.
    pub(super) noise: Option<f64>,
    /// The verdict on the ratio.
    pub(super) verdict: &'a Verdict,
}

/// Draws all rows, with the legend above them.
pub(super) fn forest(all: &[Judged<'_>], title: &str, axis: &str) -> Markup {
    let scale = scale(all.iter().map(|row| &row.ratio));
    let row = |row: &Judged<'_>| Row {
        group: row.group.clone(),
        label: row.label.clone(),
        value: html! { (ratio_text(row.ratio.value)) " " (word(row.ratio.verdict)) },
        plot: plot(&row.ratio, scale, HEIGHT),
        says: row.says.clone(),
    };
    html! { (legend()) (rows(&all.iter().map(row).collect::<Vec<_>>(), title, scale, axis)) }
}

/// Returns a logarithmic scale that is wide enough for all ratios and for the range from 0.97 to 1.03. Intervals and noise floors
/// extend the scale by at most a factor of 2 at each end; parts beyond the scale are cut off.
pub(super) fn scale<'a>(ratios: impl Iterator<Item = &'a Ratio<'a>> + Clone) -> Scale {
    const WIDER_MAX: f64 = 2.0;
    let (least, most) = ratios
        .clone()
        .fold((0.97_f64, 1.03_f64), |(least, most), ratio| (least.min(ratio.value), most.max(ratio.value)));
    let inside = move |value: f64| value.clamp(least / WIDER_MAX, most * WIDER_MAX);
    let ends = ratios.flat_map(|ratio| {
        let (low, high) = ratio.interval.unwrap_or((1.0, 1.0));
        let noise = ratio.noise.unwrap_or(0.0);
        [low, high, 1.0 - noise, 1.0 + noise]
    });
    Scale::log(ends.map(inside).chain([least, most]))
}

/// Draws a ratio with its interval, its noise floor and the line at 1, `height` pixels high.
pub(super) fn plot(ratio: &Ratio<'_>, scale: Scale, height: f64) -> Markup {
    let middle = height / 2.0;
    let noise = ratio.noise.map(|noise| (scale.at((1.0 - noise).max(0.0)), scale.at(1.0 + noise)));
    let (from, to) = (scale.at(0.98), scale.at(1.02));
    html! {
        rect class="equal" x=(percent(from)) width=(percent(to - from)) y="0" height=(px(height)) {}
        @if let Some((from, to)) = noise {
            rect class="noise" x=(percent(from)) width=(percent(to - from)) y=(px(middle - 5.0)) height="10" {}
        }
        (same(scale, height))
        svg class={ "shape " (class(ratio.verdict)) } x=(percent(scale.at(ratio.value))) y=(px(middle)) width="1" height="1" {
            path d=(outline(ratio.verdict)) {}
        }
        // The whisker lies on the shape, so that the shape hides no part of a short interval.
        @if let Some(interval) = ratio.interval { (whisker(scale, interval, middle)) }
    }
}

/// Draws the line at 1, `height` pixels high: both sides are the same.
pub(super) fn same(scale: Scale, height: f64) -> Markup {
    let one = percent(scale.at(1.0));
    html! { line class="reference" x1=(one) x2=(one) y1="0" y2=(px(height)) {} }
}

/// Returns the CSS class of a verdict.
pub(super) fn class(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::Equivalent => "equivalent",
        Verdict::Inconclusive { .. } => "open",
        Verdict::NotComparable { .. } => "never",
    }
}

fn outline(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Better => "M0,-5.5L5,4h-10z",
        Verdict::Worse => "M0,5.5L5,-4h-10z",
        Verdict::Equivalent => "M-4,-4h8v8h-8z",
        Verdict::Inconclusive { .. } => "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0z",
        Verdict::NotComparable { .. } => "M-5,-5L5,5M-5,5L5,-5",
    }
}

/// Returns the name of a verdict in its colour, with the shape that charts use for it.
pub(super) fn word(verdict: &Verdict) -> Markup {
    html! { span class={ "word " (class(verdict)) } { (key(verdict)) (verdict.name()) } }
}

/// Returns the shape of a verdict for a legend or a line of text.
fn key(verdict: &Verdict) -> Markup {
    html! {
        svg class="key" width="18" height="16" aria-hidden="true" {
            svg class={ "shape " (class(verdict)) } x="9" y="8" width="1" height="1" { path d=(outline(verdict)) {} }
        }
    }
}

fn legend() -> Markup {
    let verdicts = [
        Verdict::Better,
        Verdict::Worse,
        Verdict::Equivalent,
        Verdict::Inconclusive { trials: None },
        Verdict::NotComparable { reason: String::new() },
    ];
    html! {
        ul class="legend" {
            @for verdict in &verdicts { li { (key(verdict)) (verdict.name()) } }
            (noise_floor())
            (band("equal", 1, "±2%"))
        }
    }
}

/// Returns the entry of a legend for the band of the noise floor.
pub(super) fn noise_floor() -> Markup {
    band("noise", 3, "noise floor: how far the ratio of two equal sides can be from 1")
}

pub(super) fn band(class: &str, y: u32, name: &str) -> Markup {
    html! {
        li {
            svg class="key" width="26" height="16" aria-hidden="true" {
                rect class=(class) x="1" width="24" y=(y) height=(16 - 2 * y) {}
            }
            (name)
        }
    }
}
