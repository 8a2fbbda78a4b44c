//! How much of a planted cost came back: the ratio of recovered to planted over rounds, and what to make of it.
//!
//! A host that measures itself is disturbed in bursts, so the ratio is the Hodges-Lehmann estimate (the median of all
//! means of two rounds) with the interval that belongs to it, that of the signed-rank test: a few rounds gone wrong move
//! neither far, and no shape of the noise is assumed but its symmetry.

use serde::{Deserialize, Serialize};
use siga_results::stats::{Location, signed_rank};

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
    /// All of the interval is further off than 5%.
    Off,
    /// Too few rounds or too much noise to tell.
    Undecided,
}

impl Ratio {
    /// The ratio behind one ratio a round; `None` without a round, or if one is not finite.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let Location { value, low, high } = signed_rank::location(rounds, 0.95)?;
        Some(Self { value, low, high, rounds: rounds.len() })
    }

    /// Whether more rounds can hardly change a good verdict: all of the interval lies within the tolerance.
    ///
    /// A bad one waits for the last round: an interval that is looked at after each round is clear of the tolerance sooner
    /// or later by chance.
    pub(super) fn is_settled(&self) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else { return false };
        low >= 1.0 - TOLERANCE && high <= 1.0 + TOLERANCE
    }

    /// Whether it lies where noise of the host could have put it.
    pub(super) fn is_near(&self) -> bool {
        (self.value - 1.0).abs() <= HALF_WIDTH_MAX
    }

    /// What it says.
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
        assert_eq!(ratio(1.10, 0.04).verdict(), Verdict::Off);
        assert_eq!(ratio(1.07, 0.03).verdict(), Verdict::Undecided, "it may be within 5%");
        assert_eq!(ratio(1.0, 0.2).verdict(), Verdict::Undecided);
        assert!(ratio(1.0, 0.04).is_settled() && ratio(0.99, 0.04).is_settled());
        let open = [ratio(1.02, 0.04), ratio(1.06, 0.04), ratio(1.2, 0.1), ratio(1.5, 0.3)];
        assert!(!open.iter().any(Ratio::is_settled), "{open:?}");
        assert_eq!(Ratio::of(&[1.0; 5]).unwrap().verdict(), Verdict::Undecided, "too few rounds");
    }
}
