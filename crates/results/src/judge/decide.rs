//! Computes a verdict from the samples of two sides in two steps. The first step computes the ratio of the sides, with its
//! intervals and its p. The second step derives the verdict from the ratio.
//!
//! Samples are logarithms, so that a ratio of 1/2 and a ratio of 2 are equally far from 1 (no change). The second step is separate
//! because it needs the p that is adjusted for the whole table. The module `settings` decides whether two sides may be compared at
//! all.

use super::comparison::{Form, Verdict};
use crate::stats::adjust::{trials_least, trials_least_each};
use crate::stats::{Location, normal, rank_sum, signed_rank};

/// Two sides are equivalent if the 90% interval of their ratio lies between these limits.
pub(super) const EQUIVALENT: (f64, f64) = (0.98, 1.02);
/// Significance level: an adjusted p below this value means that the two sides differ.
pub const LEVEL: f64 = 0.05;
/// Maximum number of needed trials that is shown. If more are needed, no number is shown, because no user would run that many.
const TRIALS_TOLD_MAX: usize = 1_000_000;

/// The comparison of two sides in one metric, before the verdict.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judgement {
    /// Ratio of the new side's values to the base side's values: the Hodges-Lehmann estimate.
    pub ratio: f64,
    /// Lower end of the ratio's 95% interval; `None` if there are too few trials.
    pub low: Option<f64>,
    /// Upper end of the ratio's 95% interval; `None` if there are too few trials.
    pub high: Option<f64>,
    /// Lower end of the ratio's 90% interval; `None` if there are too few trials.
    pub low90: Option<f64>,
    /// Upper end of the ratio's 90% interval; `None` if there are too few trials.
    pub high90: Option<f64>,
    /// Two-sided p of the test for a difference. It is exact for up to 50 trials of each side.
    pub p: f64,
    /// Number of trials of each side: the number of pairs, or for unpaired samples the harmonic mean of both sample sizes.
    pub trials: f64,
    /// Whether the trials were compared in pairs or as two samples.
    pub form: Form,
}

impl Judgement {
    /// Compares paired trials. `log_ratios` has the logarithm of new / base for each pair. Returns `None` if there is no pair or
    /// if a logarithm is not finite.
    pub fn paired(log_ratios: &[f64]) -> Option<Self> {
        let ends = |confidence| signed_rank::location(log_ratios, confidence);
        Self::of(ends(0.95)?, ends(0.9)?, signed_rank::p(log_ratios)?, (Form::Paired, log_ratios.len() as f64))
    }

    /// Compares two unpaired samples. The arguments are the logarithms of each side's values. Returns `None` if a side has no
    /// value or if a logarithm is not finite.
    pub fn two_samples(base_logs: &[f64], new_logs: &[f64]) -> Option<Self> {
        let ends = |confidence| rank_sum::location(base_logs, new_logs, confidence);
        let trials = 2.0 / (1.0 / base_logs.len() as f64 + 1.0 / new_logs.len() as f64);
        Self::of(ends(0.95)?, ends(0.9)?, rank_sum::p(base_logs, new_logs)?, (Form::TwoSample, trials))
    }

    fn of(wide: Location, narrow: Location, p: f64, (form, trials): (Form, f64)) -> Option<Self> {
        let ratio = wide.value.exp();
        let exp = |end: Option<f64>| end.map(f64::exp);
        let (low, high, low90, high90) = (exp(wide.low), exp(wide.high), exp(narrow.low), exp(narrow.high));
        ratio.is_normal().then_some(Self { ratio, low, high, low90, high90, p, trials, form })
    }

    /// Returns the distance from the ratio to the farther end of its 95% interval, as a fraction of the ratio (0.01 is 1%);
    /// `None` if there are too few trials.
    pub fn half_width(&self) -> Option<f64> {
        let (low, high) = self.low.zip(self.high)?;
        Some((self.ratio - low).max(high - self.ratio) / self.ratio)
    }

    /// Returns the verdict. This is the only function that decides whether a figure became better or worse. `p_adjusted` is the
    /// adjusted p, and `tests` is the number of tests by which p is multiplied if no other figure differs.
    ///
    /// Equivalence is checked first, because a significant difference of less than 2% is too small to matter.
    pub fn verdict(&self, p_adjusted: f64, tests: usize, more_is_better: bool) -> Verdict {
        if self.low90.is_some_and(|low| low >= EQUIVALENT.0) && self.high90.is_some_and(|high| high <= EQUIVALENT.1) {
            return Verdict::Equivalent;
        }
        let (above, below) = (self.low.is_some_and(|low| low > 1.0), self.high.is_some_and(|high| high < 1.0));
        if p_adjusted < LEVEL && (above || below) {
            return if above == more_is_better { Verdict::Better } else { Verdict::Worse };
        }
        Verdict::Inconclusive { trials: self.trials_needed(p_adjusted, tests) }
    }

    /// Returns the number of trials of each side that would give a verdict other than inconclusive, if further trials had the
    /// same ratio and scatter. The width of an interval is inversely proportional to the square root of the number of trials. A
    /// verdict is reached when the 95% interval excludes 1, or when the 90% interval lies between the limits of equivalence.
    fn trials_needed(&self, p_adjusted: f64, tests: usize) -> Option<usize> {
        let half = |low: Option<f64>, high: Option<f64>| Some((high?.ln() - low?.ln()) / 2.0);
        let (wide, narrow) = (half(self.low, self.high)?, half(self.low90, self.high90)?);
        let estimate = self.ratio.ln();
        // The adjusted p grows with the number of tests. So with many tests, a difference is significant only if an interval with
        // a higher confidence than 95% excludes 1.
        let factor = if self.p > 0.0 { (p_adjusted / self.p).max(1.0) } else { 1.0 };
        let stricter = normal::quantile(LEVEL / factor / 2.0) / normal::quantile(LEVEL / 2.0);
        let clear = shrunk(wide * stricter, estimate.abs());
        let inside = shrunk(narrow, (EQUIVALENT.1.ln() - estimate).min(estimate - EQUIVALENT.0.ln()));
        let fewest = [clear, inside].into_iter().flatten().min_by(f64::total_cmp)? * self.trials;
        // At least one more trial is needed, because the present number gave no verdict.
        let most = TRIALS_TOLD_MAX as f64;
        let needed = fewest.max(self.trials.floor() + 1.0).ceil();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 1 and the limit")]
        let needed = (needed <= most).then_some(needed as usize)?;
        let least = match self.form {
            Form::Paired => trials_least(tests),
            Form::TwoSample => trials_least_each(tests),
        };
        Some(needed.max(least))
    }
}

/// Returns the factor by which the number of trials must grow so that an interval's half width shrinks from `half` to `room`;
/// `None` if `room` is not above zero.
fn shrunk(half: f64, room: f64) -> Option<f64> {
    (room > 0.0).then(|| (half / room).powi(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the logarithms of `count` ratios around `ratio`. They spread over `spread`.
    fn around(ratio: f64, spread: f64, count: u32) -> Vec<f64> {
        let place = |at: u32| (f64::from(at) + 0.5) / f64::from(count) - 0.5;
        (0..count).map(|at| ratio.ln() + spread * place(at)).collect()
    }

    /// Returns a judgement of ten trials. `half` and `half90` are the half widths of the 95% and the 90% interval.
    fn judgement(ratio: f64, half: f64, half90: f64) -> Judgement {
        let ends = |half: f64| (Some(ratio * (-half).exp()), Some(ratio * half.exp()));
        let ((low, high), (low90, high90)) = (ends(half), ends(half90));
        Judgement { ratio, low, high, low90, high90, p: 0.5, trials: 10.0, form: Form::Paired }
    }

    fn verdict(logs: &[f64], more_is_better: bool) -> Verdict {
        let judgement = Judgement::paired(logs).unwrap();
        judgement.verdict(judgement.p, 1, more_is_better)
    }

    #[test]
    fn every_verdict_can_be_reached() {
        assert_eq!(verdict(&around(1.001, 0.02, 10), true), Verdict::Equivalent);
        let more = around(1.1, 0.1, 10);
        assert_eq!((verdict(&more, true), verdict(&more, false)), (Verdict::Better, Verdict::Worse));
        let less = around(0.9, 0.1, 10);
        assert_eq!((verdict(&less, true), verdict(&less, false)), (Verdict::Worse, Verdict::Better));
        assert!(matches!(verdict(&around(1.03, 0.2, 10), true), Verdict::Inconclusive { trials: Some(_) }));
    }

    #[test]
    fn equivalence_comes_before_a_certain_difference() {
        let logs = around(0.99, 0.001, 12);
        let judgement = Judgement::paired(&logs).unwrap();
        assert!(judgement.p < 0.001 && judgement.high.unwrap() < 1.0, "{judgement:?}");
        assert_eq!(verdict(&logs, true), Verdict::Equivalent);
    }

    #[test]
    fn a_difference_needs_both_the_interval_and_the_adjusted_p() {
        let judgement = Judgement::paired(&around(1.1, 0.1, 10)).unwrap();
        assert_eq!(judgement.verdict(0.049, 20, true), Verdict::Better);
        assert!(matches!(judgement.verdict(0.05, 20, true), Verdict::Inconclusive { .. }));
        let judgement = Judgement { low: Some(0.999), ..judgement };
        assert!(matches!(judgement.verdict(0.049, 20, true), Verdict::Inconclusive { .. }));
    }

    #[test]
    fn the_trials_that_decide_grow_with_the_square_of_the_spread() {
        let trials = |judgement: Judgement, tests: usize| match judgement.verdict(judgement.p, tests, true) {
            Verdict::Inconclusive { trials } => trials,
            Verdict::NotComparable { .. } | Verdict::Equivalent | Verdict::Better | Verdict::Worse => panic!("decided"),
        };
        // By hand: 10 x (0.1 / ln 1.06)^2 = 29.5. An interval around 1.06 cannot lie within 2% of 1, however narrow.
        assert_eq!(trials(judgement(1.06, 0.1, 0.08), 1), Some(30));
        // For equivalence: 10 x (0.04 / ln 1.02)^2 = 40.8. A difference that is so close to 1 would need more trials.
        assert_eq!(trials(judgement(1.0, 0.05, 0.04), 1), Some(41));
        assert_eq!(trials(judgement(1.02, 0.05, 0.04), 1), Some(64), "(0.05 / ln 1.02)^2: clear of 1");
        assert_eq!(trials(judgement(1.0, 0.021, 0.0201), 1), Some(11), "the present number of trials did not decide");
        assert_eq!(trials(judgement(1.0, 0.021, 0.0201), 1_000), Some(16), "2^16 is the first above 40,000");
        let apart = Judgement { form: Form::TwoSample, trials: 5.0, ..judgement(1.0, 0.021, 0.0201) };
        assert_eq!(trials(apart, 1), Some(6), "five of each side have 252 ways, but did not decide");
        assert_eq!(trials(apart, 1_000), Some(9), "C(18, 9) = 48,620 is the first above 40,000");
        let clear = Judgement { p: 0.04, ..judgement(1.1, 0.05, 0.04) };
        let undecided = Verdict::Inconclusive { trials: Some(11) };
        assert_eq!(clear.verdict(0.06, 2, true), undecided, "clear of 1, but p must fall");
        assert_eq!(trials(judgement(1.0, 90.0, 80.0), 1), None, "more than anybody runs");
        assert_eq!(trials(Judgement { low: None, high: None, ..judgement(1.0, 0.1, 0.08) }, 1), None);
    }

    #[test]
    fn a_table_of_many_needs_more_trials_for_the_same_difference() {
        let judgement = Judgement { p: 0.01, trials: 100.0, ..judgement(1.1, 0.09, 0.075) };
        assert_eq!(judgement.verdict(judgement.p, 1, true), Verdict::Better);
        // By hand: 0.05 / 20 on two sides is 3.0233 deviations, and 5% is 1.96. So 100 x (0.09 x 3.0233 / 1.96 / ln 1.1)^2 trials
        // are needed.
        let among = judgement.verdict(judgement.p * 20.0, 20, true);
        assert_eq!(among, Verdict::Inconclusive { trials: Some(213) });
    }

    #[test]
    fn two_samples_are_judged_by_their_shift() {
        let (base, new) = (around(200.0, 0.05, 8), around(220.0, 0.05, 12));
        let judgement = Judgement::two_samples(&base, &new).unwrap();
        assert!((judgement.ratio - 1.1).abs() < 0.001, "{judgement:?}");
        assert!((judgement.trials - 9.6).abs() < 1e-12, "{judgement:?}");
        assert_eq!(judgement.verdict(judgement.p, 1, false), Verdict::Worse);
        let half = judgement.half_width().unwrap();
        assert!(half > 0.01 && half < 0.025, "{half}");
    }

    #[test]
    fn the_farther_end_of_an_interval_counts() {
        let ends = |low: f64, high: f64| Judgement { low: Some(low), high: Some(high), ..judgement(2.0, 0.1, 0.1) };
        for judgement in [ends(1.99, 2.06), ends(1.94, 2.01)] {
            assert!((judgement.half_width().unwrap() - 0.03).abs() < 1e-12, "{judgement:?}");
        }
    }

    #[test]
    fn few_trials_have_no_interval_and_no_verdict() {
        let judgement = Judgement::paired(&around(2.0, 0.01, 4)).unwrap();
        assert_eq!((judgement.low, judgement.low90, judgement.half_width()), (None, None, None));
        assert_eq!(judgement.verdict(judgement.p, 1, true), Verdict::Inconclusive { trials: None });
        assert_eq!(Judgement::paired(&[]), None);
        assert_eq!(Judgement::paired(&[0.0_f64.ln(), 0.1]), None, "a rate of zero");
        assert_eq!(Judgement::two_samples(&[1.0], &[]), None);
        assert_eq!(Judgement::paired(&[800.0; 6]), None, "the ratio overflows");
    }
}
