//! Statistics of paired samples: the Hodges-Lehmann estimate of the differences, its interval, and the signed-rank test of
//! Wilcoxon.
//!
//! The interval is computed from the exact distribution without ties, so its confidence is at least the requested one. If 95% is
//! requested, the confidence is 96.9% for six differences and 95.1% for ten. The test is exact even with ties, which get midranks
//! (mean ranks of equal values). Like Wilcoxon's, the test leaves out differences of zero; if all are zero, p is 1. For more than
//! [`EXACT_MAX`] differences, interval and test use a normal approximation. The approximation of the test is corrected for ties and
//! continuity. The result is `None` if a value is not finite.

use super::rank::{self, Known, Ranks};
use super::{Location, normal};
use std::sync::Arc;

/// Maximum number of differences for which the exact distribution is used.
pub const EXACT_MAX: usize = 50;

/// Computes the mean of every pair of differences, where each difference also forms a pair with itself. Returns the median of
/// these means, and its interval at `confidence`.
///
/// The ends of the interval are `None` if there are too few differences for that confidence: fewer than six for 0.95, fewer than
/// five for 0.9.
pub fn location(differences: &[f64], confidence: f64) -> Option<Location> {
    let mut means = Vec::with_capacity(differences.len() * (differences.len() + 1) / 2);
    for (at, &left) in differences.iter().enumerate() {
        means.extend(differences[at..].iter().map(|&right| f64::midpoint(left, right)));
    }
    rank::pick(means, cut(differences.len(), 1.0 - confidence))
}

/// Returns the two-sided p of the hypothesis that the differences are symmetric around zero.
pub fn p(differences: &[f64]) -> Option<f64> {
    if differences.is_empty() || differences.iter().any(|difference| !difference.is_finite()) {
        return None;
    }
    let counted: Vec<f64> = differences.iter().copied().filter(|&difference| difference != 0.0).collect();
    let sizes: Vec<f64> = counted.iter().map(|difference| difference.abs()).collect();
    let ranks = Ranks::of(&sizes);
    let above = counted.iter().zip(&ranks.doubled).filter(|(difference, _)| **difference > 0.0);
    let positive: usize = above.map(|(_, &rank)| rank).sum();
    let lesser = positive.min(ranks.doubled.iter().sum::<usize>() - positive);
    if counted.len() <= EXACT_MAX {
        let tail: f64 = if ranks.ties > 0.0 {
            shares(&ranks.doubled, lesser).iter().sum()
        } else {
            untied(counted.len())[..=lesser / 2].iter().sum()
        };
        return Some((2.0 * tail).min(1.0));
    }
    let (mean, variance) = moments(counted.len());
    let distance = (mean - lesser as f64 / 2.0 - 0.5).max(0.0);
    Some(2.0 * normal::tail(distance / (variance - ranks.ties / 48.0).sqrt()))
}

/// Returns how many of the sorted means of pairs lie beyond each end of the interval. The interval misses the true value with a
/// probability of at most `both`.
fn cut(count: usize, both: f64) -> Option<usize> {
    let means = count * (count + 1) / 2;
    let middle = means.checked_sub(1)? / 2;
    if count <= EXACT_MAX {
        return rank::cut(&untied(count)[..=middle], both);
    }
    let (mean, variance) = moments(count);
    normal::cut(mean, variance.sqrt(), both, middle + 1)
}

/// Returns mean and variance of the sum of the ranks of positive differences, if there are no ties.
fn moments(count: usize) -> (f64, f64) {
    let n = count as f64;
    (n * (n + 1.0) / 4.0, n * (n + 1.0) * (2.0 * n + 1.0) / 24.0)
}

/// Returns the probability of each sum of a random subset of the ranks 1 to `count`, from 0 to half of the greatest sum.
fn untied(count: usize) -> Arc<[f64]> {
    static KNOWN: Known = Known::new();
    let ranks = || (1..=count).collect::<Vec<_>>();
    KNOWN.get((count, count), || shares(&ranks(), count * (count + 1) / 4))
}

/// Returns the probability of each sum, from 0 to `most`, of a random subset of `ranks`.
fn shares(ranks: &[usize], most: usize) -> Vec<f64> {
    // Number of subsets with each sum. The numbers are integers below 2^53, so an f64 represents them exactly.
    let (mut ways, mut all) = (vec![0.0_f64; most + 1], 1.0);
    ways[0] = 1.0;
    for &rank in ranks {
        // Go from the greatest sum down. Then `ways[sum - rank]` does not yet contain this rank, so no subset contains a rank
        // twice.
        for sum in (rank..=most).rev() {
            ways[sum] += ways[sum - rank];
        }
        all *= 2.0;
    }
    ways.iter().map(|ways| ways / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_signed_rank_test() {
        // Critical values of the two-sided test at 5% (as in the tables of Wilcoxon): 0, 2, 3, 5, 8, 10, 13 for 6 to 12.
        let table = [(5, None), (6, Some(0)), (7, Some(2)), (8, Some(3)), (9, Some(5)), (10, Some(8)), (12, Some(13))];
        for (count, critical) in table {
            assert_eq!(cut(count, 0.05), critical, "{count} differences");
        }
        assert_eq!((cut(4, 0.1), cut(5, 0.1), cut(0, 0.05)), (None, Some(0), None));
    }

    #[test]
    fn the_estimate_is_the_median_of_means() {
        // By hand: the means of all pairs of 1, 2, 6 (each value also with itself) are 1, 1.5, 2, 3.5, 4, 6.
        let location = location(&[6.0, 1.0, 2.0], 0.95).unwrap();
        assert_eq!(location, Location { value: 2.75, low: None, high: None });
    }

    #[test]
    fn p_is_the_counted_share_of_extreme_cases() {
        // By hand: of the 64 ways to assign signs to six ranks, one is as extreme on each side.
        assert_eq!(p(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]), Some(2.0 / 64.0));
        // Midranks are 2, 2, 2, 4. Of 16 sets, eight sum to 4 or less (none, three of one, three of two, the 4), and four sum to
        // at most 2.
        assert_eq!(p(&[1.0, 1.0, 1.0, -2.0]), Some(1.0));
        assert_eq!(p(&[1.0, 1.0, -1.0, 2.0]), Some(0.5));
        assert_eq!(p(&[0.0, 0.0, 1.0, 2.0]), Some(0.5), "zeros are left out");
        assert_eq!(p(&[0.0, -0.0]), Some(1.0));
    }

    #[test]
    fn the_approximation_agrees_with_the_exact_distribution() {
        let sample = |count: u32| -> Vec<f64> { (0..count).map(|at| f64::from((at * 37) % 101) - 42.0).collect() };
        // Neither p nor the cut, as a fraction of all means, may change abruptly where the approximation starts.
        let [exact, approximate] = [50, 51].map(|count| p(&sample(count)).unwrap());
        assert!((exact - approximate).abs() < 0.02, "{exact} {approximate}");
        for (count, both) in [(49, 0.05), (49, 0.1), (50, 0.05)] {
            let ranks: Vec<usize> = (1..=count).collect();
            let (mean, variance) = moments(count);
            let normal = normal::cut(mean, variance.sqrt(), both, 600).unwrap();
            let exact = rank::cut(&shares(&ranks, 600), both).unwrap();
            assert!(normal.abs_diff(exact) <= 2, "{count}: {normal} and {exact}");
        }
    }

    #[test]
    fn a_thousand_differences_are_judged() {
        let differences: Vec<f64> = (0..1_000).map(|at| f64::from((at * 619) % 1_000) / 1_000.0 - 0.4).collect();
        let location = location(&differences, 0.95).unwrap();
        assert!((location.value - 0.0995).abs() < 1e-9, "{location:?}");
        assert!(location.low.unwrap() > 0.08 && location.high.unwrap() < 0.12, "{location:?}");
        assert!(p(&differences).unwrap() < 1e-6);
    }

    #[test]
    fn values_that_are_not_finite_give_none() {
        for sample in [&[][..], &[1.0, f64::NAN], &[f64::INFINITY, 1.0], &[f64::NEG_INFINITY]] {
            assert_eq!((p(sample), location(sample, 0.95)), (None, None), "{sample:?}");
        }
    }
}
