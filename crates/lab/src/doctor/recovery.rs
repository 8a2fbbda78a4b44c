//! How much of a planted cost came back: the ratio of recovered to planted over rounds, and what to make of it.
//!
//! A host that measures itself is disturbed in bursts, so the ratio is the Hodges-Lehmann estimate (the median of all
//! means of two rounds) with the interval that belongs to it, that of the signed-rank test: a few rounds gone wrong move
//! neither far, and no shape of the noise is assumed but its symmetry.

use crate::stats::{Location, signed_rank};
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
    /// The ratio behind one ratio a round; `None` without a round, or if one is not finite.
    pub fn of(rounds: &[f64]) -> Option<Self> {
        let Location { value, low, high } = signed_rank::location(rounds, 0.95)?;
        Some(Self { value, low, high, rounds: rounds.len() })
    }

    /// Whether more rounds can hardly change the verdict: the interval lies within the tolerance, or clear of it.
    pub(super) fn is_clear(&self) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else { return false };
        let inside = low >= 1.0 - TOLERANCE && high <= 1.0 + TOLERANCE;
        let outside = high < 1.0 - TOLERANCE || low > 1.0 + TOLERANCE;
        inside || (outside && (high - low) / 2.0 <= HALF_WIDTH_MAX)
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
        } else {
            Verdict::Off
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
        assert_eq!(ratio(1.10, 0.05).verdict(), Verdict::Off);
        assert_eq!(ratio(1.0, 0.2).verdict(), Verdict::Undecided);
        let clear = [ratio(1.0, 0.04), ratio(1.2, 0.1), ratio(0.9, 0.04)];
        assert!(clear.iter().all(Ratio::is_clear), "{clear:?}");
        let open = [ratio(1.02, 0.04), ratio(1.06, 0.04), ratio(1.5, 0.3)];
        assert!(!open.iter().any(Ratio::is_clear), "{open:?}");
        assert_eq!(Ratio::of(&[1.0; 5]).unwrap().verdict(), Verdict::Undecided, "too few rounds");
    }
}
