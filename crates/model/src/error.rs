//! The one error type: what was wrong, where, and what to do.
//!
//! The message names the place (a file, a guest, a path). The hint says what the user can do. The kind decides the exit status of
//! the program (`SPECIFICATION.md`). Processes send errors to each other as JSON, and the receiver cuts their texts
//! to a limit.
//!
//! Two events are no `Error`: siga detaches and logs a partner that violates the contract of a ring, and counts a peer that fails
//! during a trial.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The kind of an error. It decides the exit status of the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorKind {
    /// A comparison that is to fail on a regression found one (exit status 1).
    Regression,
    /// The command, plan or level asks for something impossible (exit status 2).
    Usage,
    /// The host lacks a privilege, a program, memory, a port or disk space (exit status 3).
    Environment,
    /// Part of the run could not be measured (exit status 4).
    Incomplete,
}

/// What was wrong, where, and what to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    kind: ErrorKind,
    #[serde(deserialize_with = "text::bounded")]
    message: String,
    #[serde(deserialize_with = "text::bounded_option")]
    hint: Option<String>,
    #[serde(default)]
    disturbance: bool,
}

/// A result whose error can be shown to the user as it is.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, disturbance: false }
    }

    /// Makes an error of kind [`ErrorKind::Regression`].
    pub fn regression(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Regression, message)
    }

    /// Makes an error of kind [`ErrorKind::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// Makes an error of kind [`ErrorKind::Environment`].
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Environment, message)
    }

    /// Makes an error of kind [`ErrorKind::Incomplete`].
    pub fn incomplete(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Incomplete, message)
    }

    /// Makes an error of kind [`ErrorKind::Incomplete`] for a host that stalled or changed during the measurement. Another try
    /// may succeed.
    pub fn disturbed(message: impl Into<String>) -> Self {
        Self { disturbance: true, ..Self::incomplete(message) }
    }

    /// Adds a hint: what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts `context` before the message. It names the place: a file, a path or a process.
    #[must_use]
    pub fn at(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Returns the kind of the error.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns true if another try may succeed.
    pub fn is_disturbance(&self) -> bool {
        self.disturbance
    }

    /// Returns the message without the hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Returns the hint, if the error has one.
    pub fn way_out(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// Returns the exit status of a program that ends with this error.
    pub fn exit_status(&self) -> u8 {
        match self.kind {
            ErrorKind::Regression => 1,
            ErrorKind::Usage => 2,
            ErrorKind::Environment => 3,
            ErrorKind::Incomplete => 4,
        }
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

/// Turns an I/O error into an error of kind `Environment` that names its place.
pub trait IoContext<T> {
    /// Puts `context` before the error. It says what failed and where, as in "cannot write runs/x/trials.jsonl".
    fn context(self, context: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> IoContext<T> for std::result::Result<T, E> {
    fn context(self, context: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error::environment(format!("{context}: {error}")))
    }
}
