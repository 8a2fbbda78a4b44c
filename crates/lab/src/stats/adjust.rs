//! Many tests at once: what a table of comparisons costs each of them.
//!
//! Among all differences that are called real at an adjusted p below 0.05, at most 5% are not, on average (Benjamini and
//! Hochberg 1995).

/// Fewest trials of a comparison, whatever the number of tests: the least that has a 95% interval in pairs.
const TRIALS_LEAST: usize = 6;
/// Two sides of a test, over the level of 5%.
const SIDES_PER_LEVEL: usize = 40;

/// The p of each test adjusted for all of them, in the same order; what is not a number counts as 1.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let p: Vec<f64> = p.iter().map(|&p| if p.is_nan() { 1.0 } else { p }).collect();
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&left, &right| p[left].total_cmp(&p[right]));
    let (mut adjusted, mut least) = (vec![1.0; p.len()], 1.0_f64);
    // From the largest on: an adjusted p is never above that of a test with a larger one.
    for (before, &at) in order.iter().enumerate().rev() {
        least = least.min(p[at] * p.len() as f64 / (before + 1) as f64);
        adjusted[at] = least;
    }
    adjusted
}

/// Fewest pairs with which one difference among `tests` can still be called real.
///
/// The least p of n pairs is 2 / 2^n, and the adjustment multiplies it by up to the number of tests: max(6,
/// ceil(log2(2 tests / 0.05))).
pub fn trials_least(tests: usize) -> usize {
    let ways = tests.max(1).saturating_mul(SIDES_PER_LEVEL);
    // A multiple of five is no power of two: the logarithm, rounded up, is the number of binary digits.
    let doublings = usize::BITS - ways.leading_zeros();
    TRIALS_LEAST.max(doublings as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_p_keep_order_and_never_fall() {
        // By hand, four tests: 0.01 * 4/1, 0.02 * 4/2, 0.03 * 4/3 are all 0.04; 0.5 stays.
        let adjusted = benjamini_hochberg(&[0.5, 0.02, 0.01, 0.03]);
        for (adjusted, expected) in adjusted.iter().zip([0.5, 0.04, 0.04, 0.04]) {
            assert!((adjusted - expected).abs() < 1e-12, "{adjusted} {expected}");
        }
        assert_eq!(benjamini_hochberg(&[0.9, 1.0]), [1.0, 1.0]);
        assert_eq!(benjamini_hochberg(&[f64::NAN, -f64::NAN, 0.01]), [1.0, 1.0, 0.03]);
        assert!(benjamini_hochberg(&[]).is_empty());
    }

    #[test]
    fn more_tests_need_more_trials() {
        let table = [(0, 6), (1, 6), (2, 7), (3, 7), (4, 8), (12, 9), (13, 10), (100, 12), (usize::MAX, 64)];
        for (tests, least) in table {
            assert_eq!(trials_least(tests), least, "{tests} tests");
        }
        for tests in 1..1_000 {
            let formula = (2.0 * f64::from(tests) / 0.05).log2().ceil().max(6.0);
            assert_eq!(trials_least(usize::try_from(tests).unwrap()) as f64, formula, "{tests} tests");
        }
    }
}
