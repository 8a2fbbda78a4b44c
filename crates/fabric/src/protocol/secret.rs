//! Secrets, with which the processes of a network prove to each other what they are.

use crate::random;
use serde::{Deserialize, Serialize};
use std::fmt;
use subtle::ConstantTimeEq;

/// A secret of 256 bits, as text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// Draws a new secret.
    ///
    /// # Errors
    /// The host has no random numbers.
    pub fn draw() -> std::io::Result<Self> {
        let bytes: [u8; 32] = random::draw()?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Its text, for the process that it is meant for.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// A secret that a process presents, which may be wrong.
    pub fn claimed(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// True if both are equal. The time of the comparison does not depend on where they differ.
    pub fn is(&self, claimed: &Self) -> bool {
        self.0.as_bytes().ct_eq(claimed.0.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_matches_only_its_whole_text() {
        let secret = Secret::draw().unwrap();
        assert_ne!(secret, Secret::draw().unwrap());
        assert!(secret.is(&Secret::claimed(secret.text())) && secret.text().len() == 64);
        for other in ["", "0", &secret.text()[1..], &format!("{}0", secret.text())] {
            assert!(!secret.is(&Secret::claimed(other)), "{other}");
        }
        assert_eq!(format!("{secret:?}"), "Secret(..)");
    }
}
