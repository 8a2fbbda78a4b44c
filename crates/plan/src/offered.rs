//! Loads that a plan offers besides the closed loop: shares of the rate that the closed loop reaches.

use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Limits of an offered load, in percent of the closed loop's rate.
const PERCENT: std::ops::RangeInclusive<f64> = 1.0..=200.0;

/// A load in percent of the rate of the closed loop, such as `50%`.
#[derive(Debug, Clone, Copy, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Offered(f64);

impl Offered {
    /// Returns the load as a fraction of the closed loop's rate.
    pub fn share(self) -> f64 {
        self.0 / 100.0
    }
}

impl FromStr for Offered {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        percent.filter(|percent| PERCENT.contains(percent)).map(Self).ok_or_else(|| {
            Error::usage(format!("`{}` is not a valid value for --load", text.escape_debug()))
                .hint("write a percentage of the rate of the closed loop, from 1% to 200%")
        })
    }
}

impl TryFrom<String> for Offered {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Offered> for String {
    fn from(load: Offered) -> Self {
        load.to_string()
    }
}

impl fmt::Display for Offered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_a_percentage_within_its_limits() {
        for (text, share) in [("1%", 0.01), ("50%", 0.5), ("12.5%", 0.125), ("200%", 2.0)] {
            let load: Offered = text.parse().unwrap();
            assert!((load.share() - share).abs() < 1e-12 && load.to_string() == text);
        }
        for text in ["", "50", "0.5%", "201%", "NaN%", "-1%", "inf%", "%", "50 percent"] {
            assert_eq!(text.parse::<Offered>().unwrap_err().exit_status(), 2, "{text}");
        }
    }
}
