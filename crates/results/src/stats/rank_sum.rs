//! Statistics of two unpaired samples: the Hodges-Lehmann estimate of the shift between them, its interval (Moses), and the
//! rank-sum test of Mann, Whitney and Wilcoxon.
//!
//! The interval is computed from the exact distribution without ties, so its confidence is at least the requested one. The test is
//! exact even with ties: it counts all ways to divide the midranks (mean ranks of equal values) between both samples. The p of the
//! test is twice the smaller tail probability. For more than [`EXACT_MAX`] values in total, interval and test use a normal
//! approximation. The approximation of the test is corrected for ties and continuity. The result is `None` if a value is not
//! finite.

use super::rank::{self, Known, Ranks};
use super::{Location, normal};
use std::sync::Arc;

/// Maximum number of values of both samples together for which the exact distribution is used.
pub const EXACT_MAX: usize = 100;

/// Returns the median of all differences new - base, and its interval at `confidence`.
///
/// The ends of the interval are `None` if there are too few values for that confidence. With two samples of equal size, a
/// confidence of 0.95 needs at least four values in each.
pub fn location(base: &[f64], new: &[f64], confidence: f64) -> Option<Location> {
    let differences = new.iter().flat_map(|new| base.iter().map(move |base| new - base)).collect();
    rank::pick(differences, cut(base.len(), new.len(), 1.0 - confidence))
}

/// Returns the two-sided p of the hypothesis that there is no shift between the samples.
pub fn p(base: &[f64], new: &[f64]) -> Option<f64> {
    if base.is_empty() || new.is_empty() || base.iter().chain(new).any(|value| !value.is_finite()) {
        return None;
    }
    let (fewer, more) = if base.len() <= new.len() { (base, new) } else { (new, base) };
    let mut ranks = Ranks::of(&[fewer, more].concat());
    // Sum the probabilities from the nearer end of the distribution. This avoids the rounding error of 1 - (sum from the farther
    // end).
    let (count, twice_mean) = (ranks.doubled.len(), fewer.len() * (fewer.len() + more.len() + 1));
    let mut sum: usize = ranks.doubled[..fewer.len()].iter().sum();
    if sum > twice_mean {
        ranks.doubled.iter_mut().for_each(|rank| *rank = 2 * (count + 1) - *rank);
        sum = 2 * twice_mean - sum;
    }
    if count <= EXACT_MAX {
        let tail = |shares: &[f64], at: usize| {
            let below: f64 = shares[..at].iter().sum();
            Some((2.0 * (below + shares[at]).min(1.0 - below)).min(1.0))
        };
        return match ranks.ties > 0.0 {
            true => tail(&shares(&ranks.doubled, fewer.len(), sum), sum),
            false => tail(&untied(fewer.len(), more.len()), sum / 2 - least(fewer.len())),
        };
    }
    let n = count as f64;
    let (_, untied) = moments(fewer.len(), more.len());
    let variance = untied * (1.0 - ranks.ties / (n * (n * n - 1.0)));
    let distance = ((twice_mean - sum) as f64 / 2.0 - 0.5).max(0.0);
    Some(if variance > 0.0 { 2.0 * normal::tail(distance / variance.sqrt()) } else { 1.0 })
}

/// Returns how many of the sorted differences lie beyond each end of the interval. The interval misses the true value with a
/// probability of at most `both`.
fn cut(left: usize, right: usize, both: f64) -> Option<usize> {
    let middle = (left * right).checked_sub(1)? / 2;
    if left + right <= EXACT_MAX {
        return rank::cut(&untied(left.min(right), left.max(right))[..=middle], both);
    }
    let (mean, variance) = moments(left, right);
    normal::cut(mean, variance.sqrt(), both, middle + 1)
}

/// Returns mean and variance of the test statistic without ties. The statistic is the number of pairs (one value of each sample) in
/// which the first sample's value is larger.
fn moments(left: usize, right: usize) -> (f64, f64) {
    let (product, n) = (left as f64 * right as f64, (left + right) as f64);
    (product / 2.0, product * (n + 1.0) / 12.0)
}

/// Returns the least possible sum of `chosen` ranks: 1 + 2 + ... + `chosen`.
fn least(chosen: usize) -> usize {
    chosen * (chosen + 1) / 2
}

/// Returns the probability of each rank sum of the smaller sample, from the least sum to the mean. The probabilities assume that
/// there are no ties and that all divisions of the ranks between the samples are equally likely.
fn untied(fewer: usize, more: usize) -> Arc<[f64]> {
    static KNOWN: Known = Known::new();
    let ranks = || (1..=fewer + more).collect::<Vec<_>>();
    let most = least(fewer) + fewer * more / 2;
    KNOWN.get((fewer, more), || shares(&ranks(), fewer, most).split_off(least(fewer)))
}

/// Returns the probability of each sum from 0 to `most` if `chosen` of the ranks are selected at random and added.
fn shares(ranks: &[usize], chosen: usize, most: usize) -> Vec<f64> {
    // Sort the ranks, so that the least sum of several ranks is the sum of the first ones. A sum that would exceed `most` even with
    // the least remaining ranks is not counted, which saves most of the work.
    let mut ranks = ranks.to_vec();
    ranks.sort_unstable();
    let sums: Vec<usize> = std::iter::once(0)
        .chain(ranks.iter().scan(0, |sum, rank| {
            *sum += rank;
            Some(*sum)
        }))
        .collect();
    // One row for each number of chosen ranks. A row contains the number of choices with each sum.
    let width = most + 1;
    let mut ways = vec![0.0; (chosen + 1) * width];
    ways[0] = 1.0;
    let mut all = 1.0;
    for (seen, &rank) in ranks.iter().enumerate() {
        let left = ranks.len() - seen - 1;
        // Skip rows that cannot reach `chosen` with the remaining ranks.
        for row in (chosen.saturating_sub(left).max(1)..=chosen.min(seen + 1)).rev() {
            // Count only those sums of `row` ranks that include this rank, and that do not exceed `most` when the least remaining
            // ranks are added.
            let rest = sums[seen + 1 + chosen - row] - sums[seen + 1];
            let (low, high) = (sums[row - 1] + rank, sums[seen + 1] - sums[seen + 1 - row]);
            let high = most.checked_sub(rest).map_or(0, |room| room.min(high));
            if low > high {
                continue;
            }
            let (without, with) = ways.split_at_mut(row * width);
            let from = &without[(row - 1) * width + low - rank..];
            with[low..=high].iter_mut().zip(from).for_each(|(into, from)| *into += from);
        }
        if seen < chosen {
            all *= (left + 1) as f64 / (seen + 1) as f64;
        }
    }
    ways[chosen * width..].iter().map(|ways| ways / all).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_rank_sum_test() {
        // Critical values of the two-sided test at 5% (as in the tables of Mann and Whitney).
        let table = [
            (3, 4, None),
            (4, 4, Some(0)),
            (5, 5, Some(2)),
            (6, 4, Some(2)),
            (6, 6, Some(5)),
            (10, 10, Some(23)),
            (8, 20, Some(41)),
            (20, 20, Some(127)),
        ];
        for (left, right, critical) in table {
            assert_eq!(cut(left, right, 0.05), critical, "{left} and {right}");
            assert_eq!(cut(right, left, 0.05), critical, "{right} and {left}");
        }
        assert_eq!(cut(3, 3, 1.0 - 0.9), Some(0), "exactly 5% on either side");
        assert_eq!(cut(0, 3, 0.05), None);
    }

    #[test]
    fn the_estimate_is_the_median_of_differences() {
        // By hand: the differences 11 - 1, 11 - 4, 13 - 1 and 13 - 4 are 10, 7, 12 and 9.
        let location = location(&[1.0, 4.0], &[11.0, 13.0], 0.95).unwrap();
        assert_eq!(location, Location { value: 9.5, low: None, high: None });
    }

    #[test]
    fn p_is_the_counted_share_of_extreme_cases() {
        // By hand: of the 20 ways to choose three of six ranks, one is as extreme on each side.
        let near = |p: Option<f64>, expected: f64| assert!((p.unwrap() - expected).abs() < 1e-12, "{p:?} {expected}");
        near(p(&[1.0, 2.0, 3.0], &[4.0, 5.0, 6.0]), 0.1);
        near(p(&[4.0, 5.0, 6.0], &[1.0, 2.0, 3.0]), 0.1);
        // Doubled midranks are 3, 3, 7, 7: of six pairs, one sums to 6, four to 10, and one to 14.
        near(p(&[1.0, 1.0], &[2.0, 2.0]), 1.0 / 3.0);
        // Doubled midranks are 4, 4, 4, 8: the single value is the greatest in one of four ways.
        near(p(&[1.0, 1.0, 1.0], &[2.0]), 0.5);
        near(p(&[1.0, 1.0, 2.0], &[1.0]), 1.0);
        near(p(&[1.0; 60], &[1.0; 60]), 1.0);
    }

    #[test]
    fn tied_and_untied_values_give_consistent_shares() {
        // Count every way to divide seven ranks into three and four.
        for most in 0..=18 {
            let counted = (0_u32..1 << 7).filter(|set| set.count_ones() == 3);
            let sums = counted.map(|set| (0..7).filter(|bit| set >> bit & 1 == 1).map(|bit| bit + 1).sum::<usize>());
            let mut expected = vec![0.0; most + 1];
            sums.filter(|&sum| sum <= most).for_each(|sum| expected[sum] += 1.0 / 35.0);
            for ranks in [[1, 2, 3, 4, 5, 6, 7], [4, 7, 1, 3, 6, 2, 5]] {
                for (share, expected) in shares(&ranks, 3, most).iter().zip(&expected) {
                    assert!((share - expected).abs() < 1e-12, "{ranks:?} up to {most}");
                }
            }
        }
        // One tie among many values changes p only a little, and a broken tie gives the same p as no tie.
        let base: Vec<f64> = (0..30).map(f64::from).collect();
        let new: Vec<f64> = (0..25).map(|at| f64::from(at) + 5.25).collect();
        let untied = p(&base, &new).unwrap();
        let tied = p(&base, &[&new[..24], &[29.0]].concat()).unwrap();
        assert!((untied - tied).abs() < 0.01, "{untied} {tied}");
    }

    #[test]
    fn the_approximation_agrees_with_the_exact_distribution() {
        let sample = |count: u32, shift: f64| -> Vec<f64> {
            (0..count).map(|at| f64::from((at * 37) % 101) / 101.0 + shift).collect()
        };
        let [exact, approximate] = [50, 51].map(|count| p(&sample(50, 0.0), &sample(count, 0.1)).unwrap());
        assert!((exact - approximate).abs() < 0.02, "{exact} {approximate}");
        let (mean, variance) = moments(50, 50);
        let normal = normal::cut(mean, variance.sqrt(), 0.05, 1_250).unwrap();
        assert!(normal.abs_diff(cut(50, 50, 0.05).unwrap()) <= 2, "{normal}");
    }

    #[test]
    fn a_thousand_against_a_thousand_are_judged() {
        let base: Vec<f64> = (0..1_000).map(|at| f64::from((at * 619) % 1_000) / 1_000.0).collect();
        let new: Vec<f64> = base.iter().map(|value| value + 0.1).collect();
        let location = location(&base, &new, 0.95).unwrap();
        assert!((location.value - 0.1).abs() < 1e-9, "{location:?}");
        assert!(location.low.unwrap() > 0.06 && location.high.unwrap() < 0.14, "{location:?}");
        assert!(p(&base, &new).unwrap() < 1e-6);
    }

    #[test]
    fn values_that_are_not_finite_give_none() {
        let fine = [1.0, 2.0];
        for sample in [&[][..], &[1.0, f64::NAN], &[f64::INFINITY, 1.0], &[f64::NEG_INFINITY]] {
            assert_eq!((p(sample, &fine), location(sample, &fine, 0.95)), (None, None), "{sample:?}");
            assert_eq!((p(&fine, sample), location(&fine, sample, 0.95)), (None, None), "{sample:?}");
        }
        assert_eq!(location(&[f64::MIN], &[f64::MAX], 0.95), None, "the difference overflows");
    }
}
