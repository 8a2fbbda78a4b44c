//! Secrets: a process of a virtual network proves its identity to another process by a secret that both know.

use crate::random;
use serde::{Deserialize, Serialize};
use std::fmt;
use subtle::ConstantTimeEq;

/// A secret of 256 bits, as hexadecimal text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Secret(String);

impl Secret {
    /// Draws a new random secret.
    ///
    /// # Errors
    /// Returns an error if the host provides no random numbers.
    pub fn draw() -> std::io::Result<Self> {
        let bytes: [u8; 32] = random::draw()?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    /// Returns the secret's text. The caller must pass the text only to processes that need the secret.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Makes a secret from the text that a process presents as one. The text may be wrong.
    pub fn claimed(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns true if both secrets are equal. The comparison takes the same time wherever the two texts differ, so that its
    /// duration reveals nothing about the secret.
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
