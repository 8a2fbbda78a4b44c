//! Names of topologies, guests, networks and devices. A name is a valid file name and short enough for a table or message.

use crate::error::Error;
use crate::limits::NAME_BYTES_MAX;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A name: ASCII letters, digits, `-` and `_`; the first is a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for Name {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        let begins = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        if begins && text.len() <= NAME_BYTES_MAX && text.bytes().all(fits) {
            return Ok(Self(text));
        }
        let message = format!("{text:?} is not a valid name");
        Err(Error::usage(message)
            .hint(format!("a name consists of 1 to {NAME_BYTES_MAX} letters, digits, hyphens and underscores")))
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        text.to_owned().try_into()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_fit_for_a_file_and_a_line() {
        for good in ["a", "tcpip1", "TCPIP1", "0", "a-b_c", &"x".repeat(32)] {
            assert_eq!(good.parse::<Name>().unwrap().as_str(), good);
        }
        for bad in ["", "-a", "_a", ".", "a/b", "a b", "ä", "a\n", &"x".repeat(33)] {
            assert!(bad.parse::<Name>().is_err(), "{bad:?}");
        }
    }
}
