//! The noise floor: how far the 95% interval of the ratio of two identical measurements extends from 1.
//!
//! If the run has a second level with the base level's settings, the noise floor is computed from the ratio of these two levels.
//! Otherwise it is computed from the ratios of consecutive rounds of the base side, or of both sides if two runs are compared.
//! Consecutive rounds differ by the same noise as two sides of one round, and in addition by drift.

use super::metric::Metric;
use super::values::{Values, log_ratios, side_by_side};
use crate::stats::{estimate, signed_rank};

/// Returns the noise floor from the base and its twin, a level with the same settings; `None` if there are too few trials.
pub(super) fn of_twin(base: &Values, twin: &Values, metric: Metric) -> Option<f64> {
    let (own, other) = side_by_side(base, twin, metric);
    let interval = signed_rank::location(&log_ratios(&own, &other), 0.95)?;
    reach(interval.low?.abs().max(interval.high?.abs()))
}

/// Returns the noise floor from the ratios of consecutive rounds of one side. `values` are the side's values in the order of the
/// rounds. Returns `None` if there are too few values.
pub(super) fn of_rounds(values: &[f64]) -> Option<f64> {
    let steps = log_ratios(values, values.get(1..)?);
    let mean = estimate(&steps)?;
    reach((mean.high? - mean.low?) / 2.0)
}

/// Converts the half width of an interval of logarithms to a fraction of the ratio (0.01 is 1%).
fn reach(half: f64) -> Option<f64> {
    half.is_finite().then(|| half.exp_m1())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(rates: &[f64]) -> Values {
        let rates = (0..).map(|round| (0, round)).zip(rates.iter().copied()).collect();
        [(Metric::Rate, rates)].into()
    }

    #[test]
    fn a_twin_or_else_the_trials_of_a_side_give_the_noise() {
        let rates = [100.0, 102.0, 99.0, 101.0, 100.0, 98.0, 103.0, 100.0];
        let base = values(&rates);
        let twin = values(&[101.0, 100.0, 100.0, 99.0, 102.0, 100.0, 101.0, 99.0]);
        let (told, own) = (of_twin(&base, &twin, Metric::Rate), of_rounds(&rates));
        assert!((0.005..0.05).contains(&told.unwrap()), "{told:?}");
        assert!((0.005..0.05).contains(&own.unwrap()), "{own:?}");
        // An identical level (the twin) whose rate differs by 5% means a noise floor of at least 5%.
        let off = values(&rates.map(|rate| rate * 1.05));
        assert!((of_twin(&base, &off, Metric::Rate).unwrap() - 0.05).abs() < 1e-6);
    }

    #[test]
    fn too_few_trials_give_no_noise_floor() {
        let few = values(&[100.0, 102.0]);
        assert_eq!(of_twin(&few, &few, Metric::Rate), None);
        assert_eq!(of_twin(&few, &few, Metric::P99), None);
        assert_eq!(of_rounds(&[100.0, 102.0]), None);
        assert_eq!(of_rounds(&[]), None);
    }
}
