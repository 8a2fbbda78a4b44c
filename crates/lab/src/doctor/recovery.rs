//! How much of a planted cost came back: the ratio of recovered to planted over rounds, and what to make of it.
//!
//! A host that measures itself is disturbed in bursts, so the ratio is the Hodges-Lehmann estimate (the median of all
//! means of two rounds) with the interval that belongs to it, that of the signed-rank test: a few rounds gone wrong move
//! neither far, and no shape of the noise is assumed but its symmetry.

use serde::{Deserialize, Serialize};

/// A ratio this close to 1 counts as recovered.
const TOLERANCE: f64 = 0.05;
/// Half an interval wider than this says nothing.
const HALF_WIDTH_MAX: f64 = 0.15;

/// Recovered over planted.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The estimate.
    pub value: f64,
    /// Lower end of its 95% interval; `None` from fewer than six rounds.
    pub low: Option<f64>,
    /// Upper end.
    pub high: Option<f64>,
    /// Rounds behind it.
    pub rounds: usize,
}

/// What a ratio says of a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within 5%, or the interval holds 1.
    Recovered,
    /// Neither.
    Off,
    /// Too few rounds or too much noise to tell.
    Undecided,
}

impl Ratio {
    /// The ratio behind one ratio a round; `None` without a round.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let mut means = Vec::with_capacity(rounds.len() * (rounds.len() + 1) / 2);
        for (at, left) in rounds.iter().enumerate() {
            means.extend(rounds[at..].iter().map(|right| f64::midpoint(*left, *right)));
        }
        means.sort_by(f64::total_cmp);
        let middle = means.len().checked_sub(1)?;
        let value = f64::midpoint(means[middle / 2], means[middle.div_ceil(2)]);
        let cut = cut(rounds.len());
        let (low, high) = (cut.map(|cut| means[cut]), cut.map(|cut| means[middle - cut]));
        Some(Self { value, low, high, rounds: rounds.len() })
    }

    /// Whether more rounds can hardly change the verdict: the interval lies within the tolerance, or clear of it.
    pub(super) fn is_clear(&self) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else { return false };
        let inside = low >= 1.0 - TOLERANCE && high <= 1.0 + TOLERANCE;
        let outside = high < 1.0 - TOLERANCE || low > 1.0 + TOLERANCE;
        inside || (outside && (high - low) / 2.0 <= HALF_WIDTH_MAX)
    }

    /// What it says.
    pub fn verdict(&self) -> Verdict {
        let (Some(low), Some(high)) = (self.low, self.high) else { return Verdict::Undecided };
        if (high - low) / 2.0 > HALF_WIDTH_MAX {
            Verdict::Undecided
        } else if (self.value - 1.0).abs() <= TOLERANCE || (low <= 1.0 && 1.0 <= high) {
            Verdict::Recovered
        } else {
            Verdict::Off
        }
    }
}

/// How many of the sorted means of two lie outside of each end of the 95% interval; `None` for too few rounds.
fn cut(rounds: usize) -> Option<usize> {
    // The number of sets of ranks 1..=n by their sum, rank by rank, as a share of all 2^n sets.
    let mut shares = vec![0.0_f64; rounds * (rounds + 1) / 2 + 1];
    shares[0] = 1.0;
    for rank in 1..=rounds {
        for sum in (0..shares.len()).rev() {
            let with = if sum >= rank { shares[sum - rank] } else { 0.0 };
            shares[sum] = f64::midpoint(shares[sum], with);
        }
    }
    let mut tail = 0.0;
    let beyond = shares.iter().take_while(|&&share| {
        tail += share;
        2.0 * tail <= 0.05
    });
    beyond.count().checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_that_of_the_signed_rank_test() {
        // Critical values of the two-sided test at 5% (as in the tables of Wilcoxon): 0, 2, 3, 5, 8, 10, 13 for 6 to 12.
        let table = [(5, None), (6, Some(0)), (7, Some(2)), (8, Some(3)), (9, Some(5)), (10, Some(8)), (12, Some(13))];
        for (rounds, critical) in table {
            assert_eq!(cut(rounds), critical, "{rounds} rounds");
        }
    }

    #[test]
    fn rounds_gone_wrong_do_not_move_the_estimate_far() {
        let mut rounds = vec![0.98, 0.99, 1.0, 1.0, 1.01, 1.02, 0.995, 1.005, 1.0, 0.99];
        rounds.extend([9.0, -4.0]);
        let ratio = Ratio::of(&rounds).unwrap();
        assert!((ratio.value - 1.0).abs() < 0.01, "{ratio:?}");
        assert_eq!(ratio.verdict(), Verdict::Recovered);
        assert!(Ratio::of(&[]).is_none());
    }

    #[test]
    fn a_verdict_needs_a_narrow_interval() {
        let ratio =
            |value: f64, half: f64| Ratio { value, low: Some(value - half), high: Some(value + half), rounds: 9 };
        assert_eq!(ratio(1.04, 0.01).verdict(), Verdict::Recovered, "within 5%");
        assert_eq!(ratio(1.10, 0.12).verdict(), Verdict::Recovered, "the interval holds 1");
        assert_eq!(ratio(1.10, 0.05).verdict(), Verdict::Off);
        assert_eq!(ratio(1.0, 0.2).verdict(), Verdict::Undecided);
        let clear = [ratio(1.0, 0.04), ratio(1.2, 0.1), ratio(0.9, 0.04)];
        assert!(clear.iter().all(Ratio::is_clear), "{clear:?}");
        let open = [ratio(1.02, 0.04), ratio(1.06, 0.04), ratio(1.5, 0.3)];
        assert!(!open.iter().any(Ratio::is_clear), "{open:?}");
        assert_eq!(Ratio::of(&[1.0; 5]).unwrap().verdict(), Verdict::Undecided, "too few rounds");
    }
}
