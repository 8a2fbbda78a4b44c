//! Functions that all drawings use: scales, ticks, and numbers as SVG attributes.
//!
//! Horizontal positions are percentages of the drawing's width, and vertical positions are pixels. So a drawing adapts to the
//! width of the screen while its letters keep their size. No attribute is ever NaN or infinite.

use maud::{Markup, html};

/// The scale of an axis, which maps values to positions on the axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// A linear scale that begins at zero.
    Linear {
        /// The value at the end of the axis.
        high: f64,
    },
    /// A logarithmic scale: values with equal ratios have equal distances.
    Log {
        /// The value at the beginning of the axis, above zero.
        low: f64,
        /// The value at the end of the axis.
        high: f64,
    },
}

/// Maximum number of steps between the ticks of an axis, so that the labels of the ticks fit on the screen of a phone.
const TICKS_MAX: f64 = 5.0;
/// Maximum number of ticks on a logarithmic axis, unless it has more powers of ten.
const LOG_TICKS_MAX: usize = 6;

impl Scale {
    /// Returns a linear scale from zero to a round number that is not below any of the values.
    pub(super) fn linear(values: impl Iterator<Item = f64>) -> Self {
        let most = values.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let step = step(most);
        Self::Linear { high: (most / step).ceil().max(1.0) * step }
    }

    /// Returns a logarithmic scale that is wide enough for all values above zero, with some space at both ends.
    pub(super) fn log(values: impl Iterator<Item = f64>) -> Self {
        let (low, high) = values
            .filter(|value| value.is_finite() && *value > 0.0)
            .fold((f64::INFINITY, 0.0_f64), |(low, high), value| (low.min(value), high.max(value)));
        if low > high {
            return Self::Log { low: 0.5, high: 2.0 };
        }
        let room = (high / low).powf(0.06).max(1.02);
        Self::Log { low: low / room, high: high * room }
    }

    /// Returns the position of a value on the axis, from 0 to 1. A value outside the axis is placed at the nearer end.
    pub(super) fn at(self, value: f64) -> f64 {
        let part = match self {
            Self::Linear { high } => value / high,
            Self::Log { low, high } => (value / low).ln() / (high / low).ln(),
        };
        if part.is_nan() { 0.0 } else { part.clamp(0.0, 1.0) }
    }

    /// Returns true if a value lies between the ends of the axis.
    pub(super) fn holds(self, value: f64) -> bool {
        match self {
            Self::Linear { high } => (0.0..=high).contains(&value),
            Self::Log { low, high } => (low..=high).contains(&value),
        }
    }

    /// Returns the values at which the axis has ticks, in ascending order.
    pub(super) fn ticks(self) -> Vec<f64> {
        match self {
            Self::Linear { high } => evenly(0.0, high),
            Self::Log { low, high } if high / low < 5.0 => evenly(low, high),
            Self::Log { low, high } => {
                let few = |leads: &&[f64]| multiples(leads, low, high).len() <= LOG_TICKS_MAX;
                let leads: [&[f64]; 2] = [&[1.0, 2.0, 5.0], &[1.0, 3.0]];
                multiples(leads.into_iter().find(few).unwrap_or(&[1.0]), low, high)
            }
        }
    }
}

impl Scale {
    /// Returns the ticks whose labels have room beside each other on a short axis of ratios: 1, then those at the ends, then those between
    /// them.
    pub(super) fn spaced_ticks(self) -> Vec<f64> {
        const APART: f64 = 0.2;
        let all = self.ticks();
        let ends = [all.first().copied(), all.last().copied()];
        let mut kept: Vec<f64> = Vec::new();
        for value in std::iter::once(1.0)
            .filter(|one| self.holds(*one))
            .chain(ends.into_iter().flatten())
            .chain(all.iter().copied())
        {
            if kept.iter().all(|other| (self.at(*other) - self.at(value)).abs() >= APART) {
                kept.push(value);
            }
        }
        kept
    }
}

/// Returns a round step for ticks on an axis from zero to `most`, with [`TICKS_MAX`] steps at most.
fn step(most: f64) -> f64 {
    if !(most.is_finite() && most > 0.0) {
        return 1.0;
    }
    let decade = 10_f64.powf((most / TICKS_MAX).log10().floor());
    let leads = [1.0, 2.0, 2.5, 5.0, 10.0];
    leads.map(|lead| lead * decade).into_iter().find(|step| most / step <= TICKS_MAX).unwrap_or(10.0 * decade)
}

/// Returns the multiples of powers of ten, with the given factors, from `low` to `high`.
fn multiples(factors: &[f64], low: f64, high: f64) -> Vec<f64> {
    let mut decade = 10_f64.powf(low.log10().floor());
    let mut all = Vec::new();
    while decade <= high {
        all.extend(factors.iter().map(|factor| factor * decade).filter(|value| (low..=high).contains(value)));
        decade *= 10.0;
    }
    all
}

/// Returns round values at equal distances from `low` to `high`.
fn evenly(low: f64, high: f64) -> Vec<f64> {
    let step = step(high - low);
    let first = (low / step - 1e-9).ceil();
    (0..=20_u32).map(|n| (first + f64::from(n)) * step).take_while(|tick| *tick <= high + step * 1e-9).collect()
}

/// Returns the label of a tick, without trailing zeros. Large values have the suffix k, M or G.
pub(super) fn tick(value: f64) -> String {
    let places = match value.abs() {
        magnitude if magnitude == 0.0 || magnitude >= 100.0 => 0,
        magnitude if magnitude >= 1.0 => 2,
        _ => 5,
    };
    let text = format!("{value:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    match value.abs() {
        magnitude if magnitude >= 1e9 => format!("{}G", tick(value / 1e9)),
        magnitude if magnitude >= 1e6 => format!("{}M", tick(value / 1e6)),
        magnitude if magnitude >= 1e4 => format!("{}k", tick(value / 1e3)),
        _ => text.to_owned(),
    }
}

/// Converts a horizontal position (a fraction of the drawing's width) to an SVG attribute in percent.
pub(super) fn percent(part: f64) -> String {
    let part = if part.is_finite() { part.clamp(0.0, 1.0) } else { 0.0 };
    format!("{:.2}%", part * 100.0)
}

/// Returns a vertical position in pixels as an SVG attribute.
pub(super) fn px(value: f64) -> String {
    let value = if value.is_finite() { value.clamp(-1e5, 1e6) } else { 0.0 };
    format!("{value:.1}")
}

/// Returns a text with the unit sign for microseconds: "12 µs/trans" for "12 us/trans". A name that is "us" stays: only "us" after a
/// number, and "us/trans", are units.
pub(super) fn micro(text: &str) -> String {
    let text = text.replace("us/trans", "µs/trans");
    let mut all = String::new();
    let mut rest = text.as_str();
    while let Some((before, after)) = rest.split_once(" us") {
        let is_unit = before.ends_with(|letter: char| letter.is_ascii_digit())
            && !after.starts_with(|letter: char| letter.is_alphanumeric() || "-_".contains(letter));
        all += before;
        all += if is_unit { " µs" } else { " us" };
        rest = after;
    }
    all + rest
}

/// Draws an interval as a whisker: a horizontal line with a short vertical cap at each end. An end outside the scale has no cap,
/// which shows that the whisker is cut off there.
pub(super) fn whisker(scale: Scale, (low, high): (f64, f64), y: f64) -> Markup {
    html! {
        line class="whisker" x1=(percent(scale.at(low))) x2=(percent(scale.at(high))) y1=(px(y)) y2=(px(y)) {}
        @for end in [low, high] {
            @if scale.holds(end) {
                @let x = percent(scale.at(end));
                line class="whisker" x1=(x) x2=(x) y1=(px(y - 4.0)) y2=(px(y + 4.0)) {}
            }
        }
    }
}

/// Draws a point of a series. The first eight series have points of different shapes, so that they can be distinguished without
/// colour.
pub(super) fn shape(number: usize) -> Markup {
    let outline = match number % 8 {
        0 => "M-5,0a5,5 0 1,0 10,0a5,5 0 1,0 -10,0z",
        1 => "M-4.5,-4.5h9v9h-9z",
        2 => "M0,-6L5.5,4.5h-11z",
        3 => "M0,-6.5L6.5,0L0,6.5L-6.5,0z",
        4 => "M0,6L5.5,-4.5h-11z",
        5 => "M-2,-6h4v4h4v4h-4v4h-4v-4h-4v-4h4z",
        6 => "M-6,0L0,-3L6,0L0,3z",
        _ => "M-3,-6L0,0L3,-6L3,6L0,0L-3,6z",
    };
    html! { path d=(outline) {} }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_few() {
        let linear = |most: f64| Scale::linear([most].into_iter()).ticks();
        assert_eq!(linear(1.8), [0.0, 0.5, 1.0, 1.5, 2.0]);
        for nothing in [0.0, f64::NAN] {
            assert_eq!((linear(nothing).len(), linear(nothing)[5]), (6, 1.0), "nothing but zeros still has an axis");
        }
        assert_eq!(Scale::Log { low: 0.9, high: 1.15 }.ticks().len(), 6);
        assert_eq!(Scale::Log { low: 9.0, high: 1_100.0 }.ticks(), [10.0, 30.0, 100.0, 300.0, 1_000.0]);
        assert_eq!(Scale::Log { low: 1.0, high: 10_000.0 }.ticks(), [1.0, 10.0, 100.0, 1_000.0, 10_000.0]);
        for (value, text) in [(0.0, "0"), (1.5, "1.5"), (100.0, "100"), (25_000.0, "25k"), (2e6, "2M"), (0.05, "0.05")]
        {
            assert_eq!(tick(value), text);
        }
    }

    #[test]
    fn microseconds_have_their_sign_and_names_stay() {
        assert_eq!(micro("us/trans"), "µs/trans");
        assert_eq!(micro("costs 7.30 us of CPU (8 us)"), "costs 7.30 µs of CPU (8 µs)");
        assert_eq!(micro("level us against 1 user"), "level us against 1 user");
    }

    #[test]
    fn no_value_leaves_the_drawing() {
        for scale in [Scale::linear([5.0].into_iter()), Scale::log([1.0, 9.0].into_iter()), Scale::log([].into_iter())]
        {
            for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 0.0, 3.0, 1e300] {
                assert!((0.0..=1.0).contains(&scale.at(value)), "{scale:?} {value}");
            }
        }
        for value in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            assert!(!percent(value).contains('N') && !percent(value).contains('i'));
            assert!(!px(value).contains('N') && !px(value).contains('i'));
        }
    }
}
