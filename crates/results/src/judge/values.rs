//! The figures of a cell's trials, and their pairing with the figures of another cell from the same rounds.

use super::metric::Metric;
use crate::record::Slot;
use std::collections::BTreeMap;

/// The figures of a cell's sound trials by metric. The trials are in the order of time.
pub(super) type Values = BTreeMap<Metric, BTreeMap<Slot, f64>>;

/// Returns the values of a metric for the base cell and for the new cell, from the rounds in which both have a value. Equal
/// indices are the same round.
pub(super) fn side_by_side(base: &Values, new: &Values, metric: Metric) -> (Vec<f64>, Vec<f64>) {
    let (Some(base), Some(new)) = (base.get(&metric), new.get(&metric)) else { return (Vec::new(), Vec::new()) };
    base.iter().filter_map(|(slot, value)| Some((*value, *new.get(slot)?))).unzip()
}

/// Returns the logarithm of new / base for each pair of values. The result is as long as the shorter slice.
pub(super) fn log_ratios(base: &[f64], new: &[f64]) -> Vec<f64> {
    base.iter().zip(new).map(|(base, new)| new.ln() - base.ln()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_common_rounds_are_paired() {
        let of = |values: &[(u32, u32, f64)]| -> Values {
            [(Metric::Rate, values.iter().map(|&(session, round, value)| ((session, round), value)).collect())].into()
        };
        let base = of(&[(0, 0, 1.0), (0, 2, 2.0), (0, 3, 3.0), (1, 4, 4.0)]);
        let new = of(&[(0, 1, 10.0), (0, 2, 20.0), (0, 3, 30.0), (0, 4, 40.0)]);
        // Both sides have the last round, but from different sessions.
        assert_eq!(side_by_side(&base, &new, Metric::Rate), (vec![2.0, 3.0], vec![20.0, 30.0]));
    }
}
