//! Statistics: intervals of means, and tests and intervals of differences.
//!
//! All functions are pure and use no randomness, so the same samples give the same result. The result is `None` if there are too
//! few samples; no function panics. The statistics behind verdicts assume no distribution of the noise. They use the rank of a
//! sample, not its value, so an outlier has little effect.

pub mod adjust;
pub(crate) mod normal;
mod rank;
pub mod rank_sum;
pub mod signed_rank;

/// An estimate of location (for example a median) with its confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Location {
    /// The estimated value.
    pub value: f64,
    /// Lower end of the interval; `None` if there are too few samples for the requested confidence.
    pub low: Option<f64>,
    /// Upper end of the interval; `None` if there are too few samples for the requested confidence.
    pub high: Option<f64>,
}

/// A mean with its 95% interval.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Estimate {
    /// The mean.
    pub value: f64,
    /// Lower end of the 95% interval; `None` if there is only one sample.
    pub low: Option<f64>,
    /// Upper end of the 95% interval; `None` if there is only one sample.
    pub high: Option<f64>,
    /// Number of samples.
    pub count: usize,
}

/// Maximum half width of Student's interval, as a fraction of the mean, for which samples are not treated as logarithms.
const PLAIN_HALF_MAX: f64 = 0.2;

/// Quantiles of Student's t at 97.5% for 1 to 30 degrees of freedom.
const T_975: [f64; 30] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120,
    2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/// Returns the mean of independent samples with Student's 95% interval; `None` if there is no sample.
pub fn estimate(samples: &[f64]) -> Option<Estimate> {
    let count = samples.len();
    if count == 0 {
        return None;
    }
    let n = count as f64;
    let value = samples.iter().sum::<f64>() / n;
    if count == 1 {
        return Some(Estimate { value, low: None, high: None, count });
    }
    let variance = samples.iter().map(|sample| (sample - value).powi(2)).sum::<f64>() / (n - 1.0);
    let t = T_975.get(count - 2).copied().unwrap_or(1.96);
    let half = t * (variance / n).sqrt();
    Some(Estimate { value, low: Some(value - half), high: Some(value + half), count })
}

/// Returns the mean of independent samples with a 95% interval that contains no value below zero. If Student's interval is wide, the
/// samples are skewed, and the interval could reach below zero. Then the result is the geometric mean, with Student's interval of the
/// logarithms. Returns `None` if there is no sample.
pub fn estimate_positive(samples: &[f64]) -> Option<Estimate> {
    let plain = estimate(samples)?;
    let narrow = plain.low.is_none_or(|low| low >= (1.0 - PLAIN_HALF_MAX) * plain.value);
    if narrow {
        return Some(plain);
    }
    let logs: Vec<f64> = samples.iter().map(|sample| sample.ln()).collect();
    if !logs.iter().all(|log| log.is_finite()) {
        return Some(Estimate { low: plain.low.map(|low| low.max(0.0)), ..plain });
    }
    let logs = estimate(&logs)?;
    let exp = |end: Option<f64>| end.map(f64::exp).filter(|end| end.is_finite());
    Some(Estimate { value: logs.value.exp(), low: exp(logs.low), high: exp(logs.high), count: logs.count })
}

/// Returns the index of the median sample; with an even number of samples, the index of the lower one of the two middle samples.
pub fn lower_median(samples: &[f64]) -> Option<usize> {
    let mut order: Vec<usize> = (0..samples.len()).collect();
    order.sort_by(|&left, &right| samples[left].total_cmp(&samples[right]));
    order.get(samples.len().checked_sub(1)? / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        // By hand: mean 10, s = 2, n = 5 and t = 2.776 give the half width 2.776 x 2 / sqrt 5 = 2.483.
        let samples = [8.0, 12.0, 10.0, 8.0, 12.0];
        let estimate = estimate(&samples).unwrap();
        assert_eq!(estimate.value, 10.0);
        assert!((estimate.high.unwrap() - 12.483).abs() < 0.001, "{estimate:?}");
        assert_eq!(super::estimate(&[3.0]).unwrap().low, None);
        assert!(super::estimate(&[]).is_none());
    }

    #[test]
    fn a_wide_interval_of_rates_stays_above_zero() {
        let narrow = [98.0, 100.0, 103.0, 99.0];
        assert_eq!(estimate_positive(&narrow), estimate(&narrow));
        let wide = [11_200.0, 9_900.0, 120.0, 10_400.0, 35.0, 12_000.0];
        let below = estimate(&[11_200.0, 120.0, 35.0]).unwrap().low.unwrap();
        assert!(below < 0.0, "Student's interval would show a rate below zero: {below}");
        let of = estimate_positive(&wide).unwrap();
        assert!(of.low.unwrap() > 0.0 && of.low < Some(of.value) && Some(of.value) < of.high, "{of:?}");
        // By hand: the logarithms of 1 and e^2 have the mean 1.
        let two = estimate_positive(&[1.0, 2.0_f64.exp()]).unwrap();
        assert!((two.value - 1.0_f64.exp()).abs() < 1e-9, "{two:?}");
        assert_eq!(estimate_positive(&[0.0, 50.0, 100.0]).unwrap().low, Some(0.0), "no logarithm of zero");
        assert_eq!(estimate_positive(&[5.0]).unwrap().low, None);
        assert_eq!(estimate_positive(&[]), None);
    }

    #[test]
    fn the_lower_of_two_middle_samples_is_the_median() {
        assert_eq!(lower_median(&[5.0, 1.0, 4.0, 2.0]), Some(3));
        assert_eq!(lower_median(&[5.0, 1.0, 4.0]), Some(2));
        assert_eq!(lower_median(&[]), None);
    }
}
