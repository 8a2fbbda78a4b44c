//! Latency histograms as text and as percentiles.
//!
//! The text form is HdrHistogram's V2 encoding in base64, so that the field's other tools can read a run directory.

use crate::error::{Error, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};

/// Percentiles in microseconds; `None` where the sample is too small to have one.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Median.
    pub p50: Option<f64>,
    /// 90th.
    pub p90: Option<f64>,
    /// 99th.
    pub p99: Option<f64>,
    /// 99.9th.
    pub p999: Option<f64>,
    /// Largest value seen.
    pub max: Option<f64>,
}

/// Samples beyond a percentile that it takes to state it.
const BEYOND: f64 = 10.0;

/// Percentiles of a histogram of nanoseconds. A percentile needs ten samples beyond it.
pub fn percentiles(histogram: &Histogram<u64>) -> Percentiles {
    let any = !histogram.is_empty();
    Percentiles {
        p50: any.then(|| histogram.value_at_quantile(0.5) as f64 / 1e3),
        p90: at_quantile(histogram, 0.9),
        p99: at_quantile(histogram, 0.99),
        p999: at_quantile(histogram, 0.999),
        max: any.then(|| histogram.max() as f64 / 1e3),
    }
}

/// The value at a quantile in microseconds, from a histogram of nanoseconds; `None` without ten samples beyond it.
pub fn at_quantile(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    let beyond = histogram.len() as f64 * (1.0 - quantile);
    (beyond >= BEYOND).then(|| histogram.value_at_quantile(quantile) as f64 / 1e3)
}

/// Writes a histogram as text.
///
/// # Errors
/// Environment: out of memory.
pub fn encode(histogram: &Histogram<u64>) -> Result<String> {
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| Error::environment(format!("cannot encode a histogram: {error:?}")))?;
    Ok(STANDARD.encode(bytes))
}

/// Reads a histogram from text.
///
/// # Errors
/// Environment: the text is damaged.
pub fn decode(text: &str) -> Result<Histogram<u64>> {
    let bytes = STANDARD.decode(text).map_err(|error| Error::environment(format!("damaged histogram: {error}")))?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| Error::environment(format!("damaged histogram: {error:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_every_value() {
        let mut histogram = crate::driver::new_histogram();
        for value in [1, 999, 12_345, 59_000_000_000] {
            histogram.saturating_record(value);
        }
        assert_eq!(decode(&encode(&histogram).unwrap()).unwrap(), histogram);
        assert!(decode("###").is_err() && decode("AAAA").is_err());
    }

    #[test]
    fn a_percentile_without_enough_samples_is_not_stated() {
        let mut histogram = crate::driver::new_histogram();
        (1..=500).for_each(|value| histogram.saturating_record(value * 1_000));
        let percentiles = percentiles(&histogram);
        assert!(percentiles.p90.is_some() && percentiles.p99.is_none() && percentiles.p999.is_none());
        assert_eq!(percentiles.p50.map(f64::round), Some(250.0));
    }
}
