//! Shared parts of the rank tests: midranks (mean ranks of equal values), quantiles of an exact distribution, and selection of a
//! median with its interval.
//!
//! Values are tied when they are equal as numbers, so 0.0 and -0.0 are tied. Ranks are stored multiplied by two. So the midrank
//! of tied values is stored as an integer, and sums of ranks can index a table.

use super::Location;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Relative tolerance for rounding errors in the requested probability (1 - 0.9 is slightly less than 0.1 in an f64).
const ROUNDING: f64 = 1e-9;

/// The ranks of a set of values, which may contain ties.
pub(super) struct Ranks {
    /// Twice the midrank of each value, in the order of the values.
    pub(super) doubled: Vec<usize>,
    /// The sum of t^3 - t over groups of t tied values.
    pub(super) ties: f64,
}

impl Ranks {
    /// Computes the ranks of finite values. The least value has rank 1.
    pub(super) fn of(values: &[f64]) -> Self {
        let mut order: Vec<usize> = (0..values.len()).collect();
        order.sort_unstable_by(|&left, &right| values[left].total_cmp(&values[right]));
        let (mut doubled, mut ties) = (vec![0; values.len()], 0.0);
        let mut before = 0;
        for group in order.chunk_by(|&left, &right| values[left] == values[right]) {
            // The ranks of a group of tied values run from `before` + 1 to `before` + the group's length.
            let first_and_last = 2 * before + 1 + group.len();
            group.iter().for_each(|&at| doubled[at] = first_and_last);
            let size = group.len() as f64;
            ties += size * (size * size - 1.0);
            before += group.len();
        }
        Self { doubled, ties }
    }
}

/// A cache of the distributions of rank statistics without ties. A distribution depends only on the sample sizes, and one
/// comparison needs the same distributions many times.
///
/// Distributions are computed only for up to `EXACT_MAX` values, so the cache needs at most a few megabytes.
pub(super) struct Known(Mutex<BTreeMap<Sizes, Arc<[f64]>>>);

/// Sizes of the two samples.
type Sizes = (usize, usize);

impl Known {
    /// Creates an empty cache.
    pub(super) const fn new() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }

    /// Returns the distribution for samples of these sizes. `work_out` computes the distribution if it is not cached.
    pub(super) fn get(&self, sizes: (usize, usize), work_out: impl FnOnce() -> Vec<f64>) -> Arc<[f64]> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(known.entry(sizes).or_insert_with(|| work_out().into()))
    }
}

/// Returns the largest n with P(statistic <= n) <= `both` / 2. The values of the statistic are 0, 1, 2, ...
///
/// `shares` contains the probability of each value, from 0 up to the middle of the distribution. The result is `None` if there is
/// no such n, because the probability of 0 is already too large.
pub(super) fn cut(shares: &[f64], both: f64) -> Option<usize> {
    let mut tail = 0.0;
    let fit = shares.iter().take_while(|&&share| {
        tail += share;
        2.0 * tail <= both * (1.0 + ROUNDING)
    });
    fit.count().checked_sub(1)
}

/// Returns the median of `values` with its interval. The ends of the interval are the sorted values at index `cut`, counted from
/// the beginning and from the end. The result is `None` if there is no value or if a value is not finite.
pub(super) fn pick(mut values: Vec<f64>, cut: Option<usize>) -> Option<Location> {
    if values.iter().any(|value| !value.is_finite()) {
        return None;
    }
    let last = values.len().checked_sub(1)?;
    let (left, right) = (last / 2, last.div_ceil(2));
    let (below, &mut left_value, above) = values.select_nth_unstable_by(left, f64::total_cmp);
    // With an even number of values, the median is the mean of the two middle values. The right middle value is the least value
    // after the left one.
    let right_value =
        if right == left { left_value } else { above.iter().copied().min_by(f64::total_cmp).unwrap_or(left_value) };
    let value = f64::midpoint(left_value, right_value);
    let Some(cut) = cut.filter(|&cut| cut <= left) else { return Some(Location { value, low: None, high: None }) };
    let low = if cut == left { left_value } else { *below.select_nth_unstable_by(cut, f64::total_cmp).1 };
    let from_left = last - cut - left;
    let high = match from_left.checked_sub(1) {
        None => left_value,
        Some(at) => *above.select_nth_unstable_by(at, f64::total_cmp).1,
    };
    Some(Location { value, low: Some(low), high: Some(high) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tied_values_share_the_mean_of_their_ranks() {
        let ranks = Ranks::of(&[3.0, 1.0, 3.0, 0.0, -0.0, 3.0]);
        assert_eq!(ranks.doubled, [10, 6, 10, 3, 3, 10]);
        assert_eq!(ranks.ties, 24.0 + 6.0);
    }

    #[test]
    fn picking_agrees_with_sorting() {
        // Multiples of 7 modulo a prime, so that the selection cannot profit from their order.
        for count in 1..40_usize {
            let values: Vec<f64> = (0..count).map(|at| ((at * 7 + 3) % 41) as f64).collect();
            let mut sorted = values.clone();
            sorted.sort_by(f64::total_cmp);
            let middle = f64::midpoint(sorted[(count - 1) / 2], sorted[count / 2]);
            for cut in 0..=(count - 1) / 2 {
                let expected = Location { value: middle, low: Some(sorted[cut]), high: Some(sorted[count - 1 - cut]) };
                assert_eq!(pick(values.clone(), Some(cut)), Some(expected), "{count} values, cut {cut}");
            }
        }
        assert_eq!(pick(vec![], None), None);
        assert_eq!(pick(vec![1.0, f64::INFINITY], None), None);
    }

    #[test]
    fn a_distribution_is_worked_out_once_for_its_sizes() {
        let known = Known::new();
        assert_eq!(*known.get((1, 2), || vec![0.5]), [0.5]);
        assert_eq!(*known.get((1, 2), || panic!("worked out twice")), [0.5]);
        assert_eq!(*known.get((2, 1), || vec![0.25]), [0.25]);
    }

    #[test]
    fn a_share_that_is_met_exactly_is_in() {
        // The least of the 20 sums of 3 of 6 ranks: 5% on either side. In an f64, 1 - 0.9 is slightly less than 0.1.
        assert_eq!(cut(&[0.05, 0.05, 0.1], 1.0 - 0.9), Some(0));
        assert_eq!(cut(&[0.05, 0.05, 0.1], 0.05), None);
    }
}
