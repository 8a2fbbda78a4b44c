//! Latency histograms: their text form and their percentiles.
//!
//! The text form is HdrHistogram's V2 encoding in base64, so other tools can decode the histograms of a run directory. Because
//! the text may be damaged or hostile, its header is checked before memory is allocated.

use crate::limits;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};

/// Latency percentiles in microseconds. A percentile is `None` if there are too few latencies to estimate it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// 50th percentile (median).
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// 99.9th percentile.
    pub p999: Option<f64>,
    /// Largest latency in the histogram.
    pub max: Option<f64>,
}

/// Size of the V2 encoding's header. Its big-endian fields are: cookie (4 bytes), length of the data after the header (4), offset
/// (4), significant digits (4), least value (8), greatest value (8), ratio (8).
const HEADER_BYTES: usize = 40;
/// The first bytes of the V2 encoding. The compressed encoding begins with another value, and is refused because its decompressed
/// size cannot be checked in advance.
const COOKIE: u64 = 0x1c84_9313;
/// Maximum number of significant digits of a histogram. siga's own histograms have this number of digits. Each additional digit
/// takes ten times the memory.
const DIGITS_MAX: u32 = 3;

/// A percentile is given only if at least this number of latencies is expected above the percentile.
const BEYOND: f64 = 10.0;

/// Returns an empty latency histogram, which distinguishes latencies from 1 ns to 60 s with three significant digits.
pub fn empty() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants that the constructor accepts")]
    Histogram::new_with_bounds(1, limits::LATENCY_NS_MAX, 3).expect("valid histogram bounds")
}

/// Returns the percentiles, in microseconds, of a histogram whose values are nanoseconds. Except for the median, a percentile
/// needs ten latencies above it.
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

/// Returns the latency at a quantile, in microseconds. The values of the histogram are nanoseconds. Returns `None` if fewer than
/// ten latencies lie above the quantile.
pub fn at_quantile(histogram: &Histogram<u64>, quantile: f64) -> Option<f64> {
    let beyond = histogram.len() as f64 * (1.0 - quantile);
    (beyond >= BEYOND).then(|| histogram.value_at_quantile(quantile) as f64 / 1e3)
}

/// Encodes a histogram as text.
///
/// # Errors
/// Returns an error of kind `Environment` if the histogram cannot be encoded (out of memory).
pub fn encode(histogram: &Histogram<u64>) -> Result<String> {
    let mut bytes = Vec::new();
    V2Serializer::new()
        .serialize(histogram, &mut bytes)
        .map_err(|error| Error::environment(format!("cannot encode a histogram: {error:?}")))?;
    Ok(STANDARD.encode(bytes))
}

/// Decodes a histogram from text.
///
/// # Errors
/// Returns an error of kind `Environment` if the text is damaged, or if its range or precision exceeds that of siga's own
/// histograms.
pub fn decode(text: &str) -> Result<Histogram<u64>> {
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| Error::environment(format!("a latency histogram in the record is damaged: {error}")))?;
    check_header(&bytes)?;
    Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .map_err(|error| Error::environment(format!("a latency histogram in the record is damaged: {error:?}")))
}

/// Returns an error if the length in the header differs from the length of the data. A histogram that would need more memory than
/// siga's own is also an error.
fn check_header(bytes: &[u8]) -> Result<()> {
    let damaged =
        |what: String| Err(Error::environment(format!("a latency histogram in the record is damaged: {what}")));
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else {
        return damaged(format!("{} bytes are too few for a header", bytes.len()));
    };
    let number = |at: usize, width: usize| {
        header[at..at + width].iter().fold(0_u64, |number, &byte| number << 8 | u64::from(byte))
    };
    if number(0, 4) != COOKIE {
        return damaged("the data do not begin with a histogram header".into());
    }
    let (length, there) = (number(4, 4), bytes.len() - HEADER_BYTES);
    if length != there as u64 {
        return damaged(format!("the header says {length} bytes, but the data have {there} bytes"));
    }
    let (digits, greatest) = (number(12, 4), number(24, 8));
    if digits > u64::from(DIGITS_MAX) || greatest > limits::LATENCY_NS_MAX {
        return damaged(format!(
            "{digits} digits and values up to {greatest} exceed the limits of {DIGITS_MAX} digits and {}",
            limits::LATENCY_NS_MAX
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_every_value() {
        let mut histogram = empty();
        for value in [1, 999, 12_345, 59_000_000_000] {
            histogram.saturating_record(value);
        }
        assert_eq!(decode(&encode(&histogram).unwrap()).unwrap(), histogram);
        assert!(decode("###").is_err() && decode("AAAA").is_err());
    }

    #[test]
    fn a_damaged_header_takes_no_memory() {
        let mut histogram = empty();
        histogram.saturating_record(12_345);
        let whole = STANDARD.decode(encode(&histogram).unwrap()).unwrap();
        let damages: [(usize, &[u8], &str); 5] = [
            (4, &0xffff_fff0_u32.to_be_bytes(), "the header says"),
            (4, &0_u32.to_be_bytes(), "the header says"),
            (12, &5_u32.to_be_bytes(), "5 digits"),
            (24, &u64::MAX.to_be_bytes(), "values up to 18446744073709551615"),
            // A header of compressed data, whose size is unknown until it is decompressed.
            (0, &0x1c84_9314_u32.to_be_bytes(), "do not begin with a histogram header"),
        ];
        for (at, field, words) in damages {
            let mut bytes = whole.clone();
            bytes[at..at + field.len()].copy_from_slice(field);
            let error = decode(&STANDARD.encode(&bytes)).unwrap_err();
            assert!(error.exit_status() == 3 && error.message().contains(words), "{at}: {error}");
        }
        let error = decode(&STANDARD.encode(&whole[..39])).unwrap_err();
        assert!(error.message().contains("too few for a header"), "{error}");
    }

    #[test]
    fn a_percentile_without_enough_samples_is_not_stated() {
        let mut histogram = empty();
        (1..=500).for_each(|value| histogram.saturating_record(value * 1_000));
        let percentiles = percentiles(&histogram);
        assert!(percentiles.p90.is_some() && percentiles.p99.is_none() && percentiles.p999.is_none());
        assert_eq!(percentiles.p50.map(f64::round), Some(250.0));
    }
}
