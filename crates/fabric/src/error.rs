//! The one error type of the fabric: what went wrong, where, and the way out.
//!
//! It crosses the channels between processes as it is. A peer's violation of a ring's contract is not an error of this kind:
//! it detaches that peer and is logged.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Who has to act on an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// The topology or the request asks for something impossible or forbidden.
    Usage,
    /// The host lacks a privilege, memory, a descriptor, or what is to be made is there already.
    Environment,
}

/// What went wrong and the way out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    kind: Kind,
    #[serde(deserialize_with = "text::bounded")]
    message: String,
    #[serde(deserialize_with = "text::bounded_option")]
    hint: Option<String>,
}

/// A result whose error can be shown to the user as it is.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The user asked for something that cannot be.
    pub fn usage(message: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, message: message.into(), hint: None }
    }

    /// The host cannot do it.
    pub fn environment(message: impl Into<String>) -> Self {
        Self { kind: Kind::Environment, message: message.into(), hint: None }
    }

    /// Adds the way out.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts `context` (a place: a file, a guest, a network) before the message.
    #[must_use]
    pub fn at(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Who has to act.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// The message without its hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The way out, where there is one.
    pub fn way_out(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.message)?;
        match &self.hint {
            Some(hint) => write!(f, "\n  {hint}"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for Error {}

/// Turns an I/O error into an environment error that names its place.
pub trait IoContext<T> {
    /// `context` names what was attempted and where ("cannot make the run directory /run/x").
    fn context(self, context: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> IoContext<T> for std::result::Result<T, E> {
    fn context(self, context: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error::environment(format!("{context}: {error}")))
    }
}
