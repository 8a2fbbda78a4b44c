//! The one error type: what was wrong, where, and what to do.
//!
//! A message names the place (a file, a guest, a path), and the hint says what the user can do. The kind decides the
//! program's exit status (`SPECIFICATION.md`, "Exit status"). Errors cross the channels between processes as JSON. The
//! receiver cuts their texts to a bound.
//!
//! Two events are not errors of this type: a partner that violates a ring's contract is detached and logged, and a peer that
//! fails within a trial is counted.

use crate::text;
use serde::{Deserialize, Serialize};
use std::fmt;

/// What kind of error it is; decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ErrorKind {
    /// A comparison found a regression, and was asked to fail on one (exit status 1).
    Regression,
    /// The command, plan or level asks for something impossible (exit status 2).
    Usage,
    /// The host lacks a privilege, a program, memory, a port or disk space (exit status 3).
    Environment,
    /// The run started and some of it could not be measured (exit status 4).
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

    /// A comparison found a regression, and was asked to fail on one.
    pub fn regression(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Regression, message)
    }

    /// The user asked for something impossible.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Usage, message)
    }

    /// The host lacks something.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Environment, message)
    }

    /// Part of the run could not be measured.
    pub fn incomplete(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Incomplete, message)
    }

    /// Part of the run could not be measured because the host stalled or changed meanwhile. Trying again may succeed.
    pub fn disturbed(message: impl Into<String>) -> Self {
        Self { disturbance: true, ..Self::incomplete(message) }
    }

    /// Adds what the user can do.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Puts `context` (a place: a file, a path, a process) before the message.
    #[must_use]
    pub fn at(mut self, context: impl fmt::Display) -> Self {
        self.message = format!("{context}: {}", self.message);
        self
    }

    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// True if trying again may succeed.
    pub fn is_disturbance(&self) -> bool {
        self.disturbance
    }

    /// The message without its hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// What the user can do, if there is something.
    pub fn way_out(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The exit status of a program that ends with this error.
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

/// Turns an I/O error into an environment error that names its place.
pub trait IoContext<T> {
    /// `context` names what was attempted and where ("cannot write runs/x/trials.jsonl").
    fn context(self, context: impl fmt::Display) -> Result<T>;
}

impl<T, E: fmt::Display> IoContext<T> for std::result::Result<T, E> {
    fn context(self, context: impl fmt::Display) -> Result<T> {
        self.map_err(|error| Error::environment(format!("{context}: {error}")))
    }
}
