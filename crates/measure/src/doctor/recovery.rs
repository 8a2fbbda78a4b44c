//! The ratio of recovered cost to planted cost over all rounds, and the verdict on this ratio. A planted cost is a known cost
//! that siga adds for a check. The recovered cost is the part that an accounting method finds.
//!
//! Other load disturbs a host in bursts. So the ratio is the Hodges-Lehmann estimate (the median of the means of all pairs of
//! rounds), with the confidence interval of the signed-rank test. A few disturbed rounds hardly move the estimate or the
//! interval. The only assumption about the noise is that it is symmetric.

use serde::{Deserialize, Serialize};
use siga_results::stats::{Location, signed_rank};

/// A ratio that differs from 1 by at most this much counts as recovered.
const TOLERANCE: f64 = 0.05;
/// Maximum half width of the 95% interval of a ratio. If the interval is wider, the verdict is undecided.
const HALF_WIDTH_MAX: f64 = 0.15;

/// Recovered cost divided by planted cost.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// Hodges-Lehmann estimate of the ratio.
    pub value: f64,
    /// Lower end of the 95% confidence interval of the ratio. `None` with fewer than six rounds.
    pub low: Option<f64>,
    /// Upper end of the 95% confidence interval of the ratio. `None` with fewer than six rounds.
    pub high: Option<f64>,
    /// Number of rounds from which the ratio was estimated.
    pub rounds: usize,
}

/// The verdict on the ratio of recovered to planted cost of one method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The ratio is within 5% of 1, or its interval contains 1.
    Recovered,
    /// The whole interval of the ratio is more than 5% away from 1.
    Off,
    /// There are too few rounds, the interval is too wide, or neither of the other verdicts applies.
    Undecided,
}

impl Ratio {
    /// Estimates the ratio from one ratio per round. Returns `None` if there is no round, or if a ratio is not finite.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let Location { value, low, high } = signed_rank::location(rounds, 0.95)?;
        Some(Self { value, low, high, rounds: rounds.len() })
    }

    /// Returns true if further rounds will hardly change a good verdict, because the whole interval lies within the tolerance.
    ///
    /// A bad verdict is given only after the last round. If the calibration could end with a bad verdict after any round, the
    /// interval would sooner or later leave the tolerance by chance.
    pub(super) fn is_settled(&self) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else { return false };
        low >= 1.0 - TOLERANCE && high <= 1.0 + TOLERANCE
    }

    /// Returns whether the ratio is so near to 1 that noise of the host can explain the difference.
    pub(super) fn is_near(&self) -> bool {
        (self.value - 1.0).abs() <= HALF_WIDTH_MAX
    }

    /// Returns the verdict that follows from the estimate and its interval.
    pub fn verdict(&self) -> Verdict {
        let (Some(low), Some(high)) = (self.low, self.high) else { return Verdict::Undecided };
        if (high - low) / 2.0 > HALF_WIDTH_MAX {
            Verdict::Undecided
        } else if (self.value - 1.0).abs() <= TOLERANCE || (low <= 1.0 && 1.0 <= high) {
            Verdict::Recovered
        } else if high < 1.0 - TOLERANCE || low > 1.0 + TOLERANCE {
            Verdict::Off
        } else {
            Verdict::Undecided
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_bad_rounds_do_not_move_the_estimate_far() {
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
        assert_eq!(ratio(1.10, 0.04).verdict(), Verdict::Off);
        assert_eq!(ratio(1.07, 0.03).verdict(), Verdict::Undecided, "it may be within 5%");
        assert_eq!(ratio(1.0, 0.2).verdict(), Verdict::Undecided);
        assert!(ratio(1.0, 0.04).is_settled() && ratio(0.99, 0.04).is_settled());
        let open = [ratio(1.02, 0.04), ratio(1.06, 0.04), ratio(1.2, 0.1), ratio(1.5, 0.3)];
        assert!(!open.iter().any(Ratio::is_settled), "{open:?}");
        assert_eq!(Ratio::of(&[1.0; 5]).unwrap().verdict(), Verdict::Undecided, "too few rounds");
    }
}
