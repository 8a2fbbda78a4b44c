//! How much of a planted cost was recovered: the ratio of recovered to planted over rounds, and its verdict.
//!
//! Other load disturbs a host in bursts. So the ratio is the Hodges-Lehmann estimate (the median of all means of two
//! rounds) with its interval from the signed-rank test. A few bad rounds move neither far, and the noise only has to
//! be symmetric.

use serde::{Deserialize, Serialize};
use siga_results::stats::{Location, signed_rank};

/// A ratio this close to 1 counts as recovered.
const TOLERANCE: f64 = 0.05;
/// An interval whose half is wider than this is inconclusive.
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

/// Verdict on a method.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Within 5%, or the interval holds 1.
    Recovered,
    /// All of the interval is further off than 5%.
    Off,
    /// Too few rounds or too much noise.
    Undecided,
}

impl Ratio {
    /// The estimate from one ratio per round; `None` without a round, or if a ratio is not finite.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let Location { value, low, high } = signed_rank::location(rounds, 0.95)?;
        Some(Self { value, low, high, rounds: rounds.len() })
    }

    /// True if further rounds will hardly change a good verdict: the whole interval lies within the tolerance.
    ///
    /// A bad verdict waits for the last round: if each round were a chance to stop, an interval would leave the
    /// tolerance sooner or later by chance.
    pub(super) fn is_settled(&self) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else { return false };
        low >= 1.0 - TOLERANCE && high <= 1.0 + TOLERANCE
    }

    /// Whether noise of the host explains the difference from 1.
    pub(super) fn is_near(&self) -> bool {
        (self.value - 1.0).abs() <= HALF_WIDTH_MAX
    }

    /// The verdict.
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
