//! Draws a forest plot. Each row shows a ratio as a shape that depends on the verdict. The ratio's 95% interval is a whisker, and
//! the noise floor is a box behind both.

use super::plot::{Scale, TOP, axis_across, percent, place, px, short, whisker};
use maud::{Markup, html};
use siga_results::judge::Verdict;

/// One row of the plot: a ratio with its verdict.
#[derive(Debug, Clone)]
pub(super) struct Judged<'a> {
    /// The name of the group to which the row belongs; it is a heading above the first row of the group.
    pub(super) group: String,
    /// The label of the row: the settings that both compared cells have in common.
    pub(super) label: String,
    /// The ratio of new to base; it is above zero.
    pub(super) ratio: f64,
    /// The 95% interval of the ratio.
    pub(super) interval: Option<(f64, f64)>,
    /// The noise floor: half the width that the interval would have if both sides had the same settings. `None` if it is unknown.
    pub(super) noise: Option<f64>,
    /// The verdict on the ratio.
    pub(super) verdict: &'a Verdict,
    /// The lines of text that the row shows when the reader hovers over it, focuses it or taps it.
    pub(super) says: String,
}

const ROW: f64 = 38.0;

/// Draws all rows, with the legend above them.
pub(super) fn forest(rows: &[Judged<'_>], title: &str, axis: &str) -> Markup {
    let scale = scale(rows);
    let (placed, y) = place(rows, ROW, |row| &row.group);
    let (from, to) = (scale.at(0.98), scale.at(1.02));
    html! {
        (legend())
        svg width="100%" height=(px(y + 44.0)) role="group" aria-label=(title) {
            rect class="equal" x=(percent(from)) width=(percent(to - from)) y=(px(TOP)) height=(px(y - TOP)) {}
            (axis_across(scale, axis, TOP, y))
            @for (number, row, head, y) in placed {
                @if let Some(head) = head {
                    text class="group" x="0" y=(px(head)) { (short(&row.group, 36)) }
                }
                (mark(number, row, scale, y))
            }
        }
    }
}

/// Returns a scale that is wide enough for all ratios and for the range from 0.97 to 1.03. Intervals and noise floors extend the
/// scale by at most a factor of 2 at each end; parts beyond the scale are cut off.
fn scale(rows: &[Judged<'_>]) -> Scale {
    const WIDER_MAX: f64 = 2.0;
    let (least, most) =
        rows.iter().fold((0.97_f64, 1.03_f64), |(least, most), row| (least.min(row.ratio), most.max(row.ratio)));
    let inside = move |value: f64| value.clamp(least / WIDER_MAX, most * WIDER_MAX);
    let ends = rows.iter().flat_map(|row| {
        let (low, high) = row.interval.unwrap_or((1.0, 1.0));
        let noise = row.noise.unwrap_or(0.0);
        [low, high, 1.0 - noise, 1.0 + noise]
    });
    Scale::log(ends.map(inside).chain([least, most]))
}

fn mark(number: usize, row: &Judged<'_>, scale: Scale, y: f64) -> Markup {
    let (middle, one) = (px(y + 25.0), percent(scale.at(1.0)));
    let noise = row.noise.map(|noise| (scale.at((1.0 - noise).max(0.0)), scale.at(1.0 + noise)));
    html! {
        g class="mark" tabindex=(if number == 0 { "0" } else { "-1" }) role="img" aria-label=(row.says) {
            rect class="hit" x="0" width="100%" y=(px(y + 1.0)) height=(px(ROW - 2.0)) rx="3" {}
            text class="label" x="4" y=(px(y + 14.0)) { (short(&row.label, 28)) }
            text class="value" x="100%" dx="-4" y=(px(y + 14.0)) text-anchor="end" {
                (format!("{:.3} {}", row.ratio, row.verdict.name()))
            }
            @if let Some((from, to)) = noise {
                rect class="noise" x=(percent(from)) width=(percent(to - from)) y=(px(y + 20.0)) height="10" {}
            }
            // The line crosses only the ratios, because a line through the labels would make them hard to read.
            line class="reference" x1=(one) x2=(one) y1=(px(y + 17.0)) y2=(px(y + 34.0)) {}
            @if let Some(interval) = row.interval { (whisker(scale, interval, y + 25.0)) }
            svg class={ "shape " (class(row.verdict)) } x=(percent(scale.at(row.ratio))) y=(middle) width="1" height="1" {
                path d=(outline(row.verdict)) {}
            }
        }
    }
}

fn class(verdict: &Verdict) -> &'static str {
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
        Verdict::Better => "M0,-7L6.5,5h-13z",
        Verdict::Worse => "M0,7L6.5,-5h-13z",
        Verdict::Equivalent => "M-5,-5h10v10h-10z",
        Verdict::Inconclusive { .. } => "M-5.5,0a5.5,5.5 0 1,0 11,0a5.5,5.5 0 1,0 -11,0z",
        Verdict::NotComparable { .. } => "M-5,-5L5,5M-5,5L5,-5",
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
            @for verdict in &verdicts {
                li {
                    svg class="key" width="18" height="16" aria-hidden="true" {
                        svg class={ "shape " (class(verdict)) } x="9" y="8" width="1" height="1" {
                            path d=(outline(verdict)) {}
                        }
                    }
                    (verdict.name())
                }
            }
            li {
                svg class="key" width="26" height="16" aria-hidden="true" {
                    rect class="noise" x="1" width="24" y="3" height="10" {}
                }
                "noise floor"
            }
            li {
                svg class="key" width="26" height="16" aria-hidden="true" {
                    rect class="equal" x="1" width="24" y="1" height="14" {}
                }
                "±2%"
            }
        }
    }
}
