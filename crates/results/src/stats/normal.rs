//! The normal distribution. It approximates the distribution of a rank test when samples are too large for the exact one.
//!
//! Tail probabilities are accurate to about thirteen digits over the whole range of an f64.

/// For this z and above, the continued fraction needs fewer steps than the series.
const FAR: f64 = 3.0;
/// Number of steps of the continued fraction. For a z of three or more, forty steps already give all digits of an f64.
const STEPS: u32 = 60;

/// Returns the probability that a standard normal variable is above `z`.
pub(super) fn tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - tail(-z);
    }
    let density = (-z * z / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
    if z < FAR {
        // density * (z + z^3/3 + z^5/(3*5) + ...) is the probability between 0 and z.
        let (mut sum, mut term, mut odd) = (z, z, 1.0);
        while term > f64::EPSILON * sum / 4.0 {
            odd += 2.0;
            term *= z * z / odd;
            sum += term;
        }
        0.5 - density * sum
    } else {
        // The tail is density / (z + 1/(z + 2/(z + 3/...))), computed from the innermost fraction outwards.
        density / (1..=STEPS).rev().fold(z, |inner, step| z + f64::from(step) / inner)
    }
}

/// Returns the z that a standard normal variable exceeds with probability `above`. `above` is at most one half. The result is at
/// most 38.5, because for larger z the probability underflows to zero in an f64.
pub(crate) fn quantile(above: f64) -> f64 {
    let (mut low, mut high) = (0.0, 40.0);
    for _ in 0..64 {
        let middle = f64::midpoint(low, high);
        if tail(middle) > above { low = middle } else { high = middle }
    }
    high
}

/// Returns the largest n in `0..candidates` with P(statistic <= n) <= `both` / 2; `None` if there is no such n. The statistic has
/// integer values; its distribution is approximated by the normal distribution.
pub(super) fn cut(mean: f64, deviation: f64, both: f64, candidates: usize) -> Option<usize> {
    let (mut fit, mut beyond) = (0, candidates);
    while fit < beyond {
        let middle = usize::midpoint(fit, beyond);
        if 2.0 * tail((mean - middle as f64 - 0.5) / deviation) <= both { fit = middle + 1 } else { beyond = middle }
    }
    fit.checked_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_those_of_the_tables() {
        // The values come from tables of the normal distribution; the last two come from its asymptotic expansion.
        let table = [
            (0.0, 0.5),
            (1.0, 0.158_655_253_931_457_05),
            (1.959_963_984_540_054, 0.025),
            (-1.0, 0.841_344_746_068_542_9),
            (2.999_999_999, 1.349_898_036_060_3e-3),
            (3.0, 1.349_898_031_630_094_6e-3),
            (6.0, 9.865_876_450_377e-10),
            (20.0, 2.753_624_118_606_234e-89),
        ];
        for (z, share) in table {
            assert!((tail(z) / share - 1.0).abs() < 1e-11, "{z}: {} and not {share}", tail(z));
        }
    }

    #[test]
    fn a_quantile_undoes_a_tail() {
        assert!((quantile(0.025) - 1.959_963_984_540_054).abs() < 1e-12);
        assert!((quantile(0.5)).abs() < 1e-12);
        assert!((38.0..39.0).contains(&quantile(0.0)));
    }

    #[test]
    fn a_cut_leaves_at_most_half_the_share_below() {
        let fits = |at: f64| 2.0 * tail((50.0 - at - 0.5) / 10.0) <= 0.05;
        let cut = cut(50.0, 10.0, 0.05, 50).unwrap();
        assert!(fits(cut as f64) && !fits(cut as f64 + 1.0), "{cut}");
        assert_eq!(super::cut(2.0, 10.0, 0.05, 3), None);
    }
}
