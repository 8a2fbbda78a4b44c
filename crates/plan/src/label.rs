//! Short texts that are copied with the values that they name.

use crate::serde_by_text::serde_by_text;
use siga_model::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The longest label, in bytes.
pub const LABEL_BYTES: usize = 31;

/// A short text of printable ASCII characters without `,`, `"` and `\`. It neither begins nor ends with a blank.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Label {
    /// The text, followed by zeros. Cells and metrics have copies of labels, so a label has no allocation of its own.
    bytes: [u8; LABEL_BYTES],
}

impl Label {
    /// The label `command`.
    pub(crate) const COMMAND: Self = {
        let mut bytes = [0; LABEL_BYTES];
        let (name, _) = bytes.split_at_mut(7);
        name.copy_from_slice(b"command");
        Self { bytes }
    };

    /// Returns the label as text.
    pub fn as_str(&self) -> &str {
        let length = self.bytes.iter().position(|&byte| byte == 0).unwrap_or(LABEL_BYTES);
        // `from_str` accepts ASCII only.
        std::str::from_utf8(&self.bytes[..length]).unwrap_or_default()
    }

    /// Returns true for a label of ASCII letters, digits, `-`, `_` and `.` that begins with a letter or a digit.
    pub fn is_name(&self) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        self.as_str().starts_with(|first: char| first.is_ascii_alphanumeric()) && self.as_str().bytes().all(fits)
    }
}

impl FromStr for Label {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let fits = |byte: u8| (byte.is_ascii_graphic() || byte == b' ') && !b",\"\\".contains(&byte);
        if text.is_empty() || text.len() > LABEL_BYTES || text.trim() != text || !text.bytes().all(fits) {
            return Err(Error::usage(format!(
                "`{}` is not a valid name: it is too long, or contains a character that is not allowed",
                text.escape_debug()
            ))
            .hint(format!(
                "write 1 to {LABEL_BYTES} ASCII characters, without commas, quotation marks and backslashes"
            )));
        }
        let mut bytes = [0; LABEL_BYTES];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self { bytes })
    }
}

impl fmt::Display for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Label {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

serde_by_text!(Label);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_short_and_printable() {
        for text in ["MB/s", "trans/s", "% of CPU", &"x".repeat(LABEL_BYTES)] {
            assert_eq!(text.parse::<Label>().unwrap().as_str(), text);
        }
        for text in ["", " a", "a ", "a,b", "a\"", "a\\", "ä", "a\nb", &"x".repeat(LABEL_BYTES + 1)] {
            assert!(text.parse::<Label>().is_err(), "{text}");
        }
        assert!("a-b_c.1".parse::<Label>().unwrap().is_name() && !"a b".parse::<Label>().unwrap().is_name());
    }
}
