//! Adjustment of p values for the number of tests in a table: among many tests, some have a small p by chance.
//!
//! - [`benjamini_hochberg`] adjusts one set of tests. On average, at most 5% of the differences with an adjusted p below 0.05 are
//!   caused by chance alone (Benjamini and Hochberg 1995).
//! - [`families`] adjusts tests that belong to families. It first decides which families have any difference, and then tests only
//!   within these families (Benjamini and Bogomolov 2014).

/// Minimum number of pairs in a paired comparison. Fewer pairs give no 95% interval.
const TRIALS_LEAST: usize = 6;
/// Minimum number of trials of each side in an unpaired comparison. Fewer trials give no 95% interval.
const TRIALS_LEAST_EACH: usize = 4;
/// 2 / 0.05: the number of tails of a two-sided test, divided by the significance level of 5%.
const SIDES_PER_LEVEL: usize = 40;

/// Returns the adjusted p of each test, in the order of `p`. A p that is NaN counts as 1.
pub fn benjamini_hochberg(p: &[f64]) -> Vec<f64> {
    let p: Vec<f64> = p.iter().map(|&p| if p.is_nan() { 1.0 } else { p }).collect();
    let mut order: Vec<usize> = (0..p.len()).collect();
    order.sort_by(|&left, &right| p[left].total_cmp(&p[right]));
    let (mut adjusted, mut least) = (vec![1.0; p.len()], 1.0_f64);
    // Go from the largest p down, because a test with a smaller p must not have a larger adjusted p.
    for (before, &at) in order.iter().enumerate().rev() {
        least = least.min(p[at] * p.len() as f64 / (before + 1) as f64);
        adjusted[at] = least;
    }
    adjusted
}

/// Returns the adjusted p of each test of each family, in the order of `families`. `level` is the significance level to which the
/// adjusted p is compared.
///
/// The families are tested first. The p of a family is the least adjusted p of its tests (Simes), adjusted for the number of
/// families. Families below `level` are selected. Within a selected family, each p is adjusted for the tests of this family, and
/// then multiplied by the number of families per selected family. So an effect that is present in all tests of one family is not
/// compared with the tests of all other families. No test of a family that is not selected has an adjusted p below `level`.
pub fn families(families: &[Vec<f64>], level: f64) -> Vec<Vec<f64>> {
    let within: Vec<Vec<f64>> = families.iter().map(|family| benjamini_hochberg(family)).collect();
    let least: Vec<f64> = within.iter().map(|family| family.iter().copied().fold(1.0, f64::min)).collect();
    let across = benjamini_hochberg(&least);
    let selected = across.iter().filter(|&&p| p < level).count().max(1);
    let per_selected = families.len() as f64 / selected as f64;
    let adjusted = |(family, &across): (Vec<f64>, &f64)| -> Vec<f64> {
        family.into_iter().map(|p| (p * per_selected).max(across).min(1.0)).collect()
    };
    within.into_iter().zip(&across).map(adjusted).collect()
}

/// Returns the minimum number of pairs for paired tests. With this number, the least possible p is significant after the adjustment
/// for `tests` tests, even if all other tests find no difference.
///
/// The least possible p of n pairs is 2 / 2^n, and the adjustment multiplies p by at most the number of tests. The result is
/// therefore max(6, ceil(log2(2 x tests / 0.05))).
pub fn trials_least(tests: usize) -> usize {
    let ways = tests.max(1).saturating_mul(SIDES_PER_LEVEL);
    // The logarithm's argument is 2 x tests / 0.05 = 40 x tests. This is a multiple of five and therefore no power of two. So the
    // rounded-up logarithm is the number of binary digits.
    let doublings = usize::BITS - ways.leading_zeros();
    TRIALS_LEAST.max(doublings as usize)
}

/// Returns the minimum number of trials of each side for unpaired tests. With this number, the least possible p is significant
/// after the adjustment for `tests` tests, even if all other tests find no difference.
///
/// The least possible p of two samples of n trials is 2 / C(2n, n). Each additional trial of both sides reduces this p to about a
/// quarter. In a paired test, each additional pair only reduces it to a half. The result is the least n of four or more with C(2n,
/// n) > 2 x tests / 0.05.
pub fn trials_least_each(tests: usize) -> usize {
    let needed = tests.max(1) as f64 * SIDES_PER_LEVEL as f64;
    let (mut trials, mut ways) = (0, 1.0);
    while trials < TRIALS_LEAST_EACH || ways <= needed {
        // Compute C(2n + 2, n + 1) from C(2n, n).
        let n = trials as f64;
        ways *= 2.0 * (2.0 * n + 1.0) / (n + 1.0);
        trials += 1;
    }
    trials
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adjusted_p_keep_order_and_never_fall() {
        // By hand, for four tests: 0.01 * 4/1, 0.02 * 4/2 and 0.03 * 4/3 are all 0.04; 0.5 stays.
        let adjusted = benjamini_hochberg(&[0.5, 0.02, 0.01, 0.03]);
        for (adjusted, expected) in adjusted.iter().zip([0.5, 0.04, 0.04, 0.04]) {
            assert!((adjusted - expected).abs() < 1e-12, "{adjusted} {expected}");
        }
        assert_eq!(benjamini_hochberg(&[0.9, 1.0]), [1.0, 1.0]);
        assert_eq!(benjamini_hochberg(&[f64::NAN, -f64::NAN, 0.01]), [1.0, 1.0, 0.03]);
        assert!(benjamini_hochberg(&[]).is_empty());
    }

    #[test]
    fn an_effect_of_a_whole_family_is_not_adjusted_for_the_tests_of_other_families() {
        let none = vec![0.5; 6];
        let router = vec![0.004; 6];
        let adjusted = families(&[none.clone(), router.clone(), none.clone(), none.clone(), none.clone()], 0.05);
        // By hand: one of five families is selected, so each p of this family is multiplied by five.
        assert!(adjusted[1].iter().all(|p| (p - 0.02).abs() < 1e-12), "{adjusted:?}");
        assert!(adjusted[0].iter().all(|&p| p >= 0.05), "{adjusted:?}");
        let flat = benjamini_hochberg(&[none.repeat(14), vec![0.004; 1]].concat());
        assert!(flat[84] > 0.3, "in one table of 85 tests, this p shows nothing: {}", flat[84]);
        // By hand: two of five families are selected. A single test of six has 0.001 x 6 x 5/2.
        let single = [vec![0.001], vec![0.5; 5]].concat();
        let adjusted = families(&[single, router, none.clone(), none.clone(), none], 0.05);
        assert!((adjusted[0][0] - 0.015).abs() < 1e-12, "{adjusted:?}");
        assert!(adjusted[0][1..].iter().all(|&p| p >= 0.05), "{adjusted:?}");
        // The p of the first family passes within the family, but the family is not selected.
        let adjusted = families(&[vec![0.02], vec![0.9], vec![0.9]], 0.05);
        assert!((adjusted[0][0] - 0.06).abs() < 1e-12, "{adjusted:?}");
        assert_eq!(families(&[], 0.05), Vec::<Vec<f64>>::new());
        assert_eq!(families(&[Vec::new(), vec![f64::NAN]], 0.05), [vec![], vec![1.0]]);
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

    #[test]
    fn two_samples_need_fewer_trials_of_each_than_pairs() {
        // C(2n, n) for n from 4 to 9: 70, 252, 924, 3,432, 12,870, 48,620.
        let table = [(0, 4), (1, 4), (2, 5), (6, 5), (7, 6), (23, 6), (24, 7), (1_000, 9)];
        for (tests, least) in table {
            assert_eq!(trials_least_each(tests), least, "{tests} tests");
        }
        assert!(trials_least_each(usize::MAX) < trials_least(usize::MAX));
        // Two samples of this size that do not overlap differ significantly. With one trial fewer on each side, they do not.
        for tests in [2_u16, 20, 200, 2_000] {
            let least = trials_least_each(usize::from(tests));
            let p = |count: usize| {
                let side = |from: usize| (from..from + count).map(|at| at as f64).collect::<Vec<_>>();
                super::super::rank_sum::p(&side(0), &side(count)).unwrap() * f64::from(tests)
            };
            assert!(p(least) < 0.05 && p(least - 1) >= 0.05, "{tests} tests: {least}");
        }
    }
}
