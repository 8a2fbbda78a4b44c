//! The noise floor: what a comparison of two identical things would show.
//!
//! Where the run has measured the base a second time, at a level that sets the same, these trials tell it: it is how far
//! from 1 the 95% interval of their ratio reaches. Otherwise the trials of the base itself do: from one round to the next
//! they differ by the same noise as two sides of one round, drift included.

use super::Metric;
use super::cells::Values;
use crate::stats::{estimate, signed_rank};

/// Half the width of the interval that no difference has, as a part of the ratio; `None` from too few trials.
pub(super) fn floor(base: &Values, twin: Option<&Values>, metric: Metric) -> Option<f64> {
    let half = match twin {
        Some(twin) => {
            let (own, other) = side_by_side(base, twin, metric);
            let interval = signed_rank::location(&log_ratios(&own, &other), 0.95)?;
            interval.low?.abs().max(interval.high?.abs())
        }
        None => {
            let own: Vec<f64> = base.get(&metric)?.iter().map(|(_, value)| *value).collect();
            let steps = log_ratios(&own, own.get(1..)?);
            let mean = estimate(&steps)?;
            (mean.high? - mean.low?) / 2.0
        }
    };
    half.is_finite().then(|| half.exp_m1())
}

/// Figures of the rounds that both have.
pub(super) fn side_by_side(base: &Values, new: &Values, metric: Metric) -> (Vec<f64>, Vec<f64>) {
    let (Some(base), Some(new)) = (base.get(&metric), new.get(&metric)) else { return (Vec::new(), Vec::new()) };
    let partner = |round: u32| new.binary_search_by_key(&round, |(other, _)| *other).ok().map(|at| new[at].1);
    base.iter().filter_map(|&(round, value)| Some((value, partner(round)?))).unzip()
}

/// Logarithms of new over base, as many as the shorter has.
pub(super) fn log_ratios(base: &[f64], new: &[f64]) -> Vec<f64> {
    base.iter().zip(new).map(|(base, new)| new.ln() - base.ln()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(rates: &[f64]) -> Values {
        let rates = (0..).zip(rates.iter().copied()).collect();
        Values::from([(Metric::Rate, rates)])
    }

    #[test]
    fn a_twin_tells_the_noise_and_without_one_the_trials_of_the_base_do() {
        let base = values(&[100.0, 102.0, 99.0, 101.0, 100.0, 98.0, 103.0, 100.0]);
        let twin = values(&[101.0, 100.0, 100.0, 99.0, 102.0, 100.0, 101.0, 99.0]);
        let (told, own) = (floor(&base, Some(&twin), Metric::Rate), floor(&base, None, Metric::Rate));
        assert!((0.005..0.05).contains(&told.unwrap()), "{told:?}");
        assert!((0.005..0.05).contains(&own.unwrap()), "{own:?}");
        // A twin that lies 5% off is noise of at least 5%.
        let off = values(&[105.0, 107.1, 103.95, 106.05, 105.0, 102.9, 108.15, 105.0]);
        assert!((floor(&base, Some(&off), Metric::Rate).unwrap() - 0.05).abs() < 1e-6);
    }

    #[test]
    fn too_few_trials_tell_no_noise() {
        let few = values(&[100.0, 102.0]);
        assert_eq!(floor(&few, Some(&few), Metric::Rate), None);
        assert_eq!(floor(&few, None, Metric::Rate), None);
        assert_eq!(floor(&values(&[]), None, Metric::Rate), None);
        assert_eq!(floor(&few, None, Metric::P99), None);
    }

    #[test]
    fn only_rounds_that_both_have_stand_side_by_side() {
        let base = Values::from([(Metric::Rate, vec![(0, 1.0), (2, 2.0), (3, 3.0)])]);
        let new = Values::from([(Metric::Rate, vec![(1, 10.0), (2, 20.0), (3, 30.0)])]);
        assert_eq!(side_by_side(&base, &new, Metric::Rate), (vec![2.0, 3.0], vec![20.0, 30.0]));
    }
}
