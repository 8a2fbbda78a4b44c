//! The one error type of the laboratory: what went wrong, where, and the way out.
//!
//! Its kind decides the exit status of the program (`SPECIFICATION.md`, "Exit status"). Messages name the place (a file,
//! a path, a guest) and the hint says what the user can do. A peer's failure inside a trial is counted by the driver and
//! becomes an error only when the trial cannot give a figure.

use serde::{Deserialize, Serialize};
use std::fmt;

/// Who has to act on an error; decides the exit status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A comparison found a regression, and was asked to fail on one (exit status 1).
    Regression,
    /// The command, plan or level asks for something impossible (exit status 2).
    Usage,
    /// The host lacks a privilege, a program, memory, a port or disk space (exit status 3).
    Environment,
    /// The run started and some of it could not be measured (exit status 4).
    Incomplete,
}

/// What went wrong and the way out; it can cross a pipe from a child process as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Error {
    kind: Kind,
    message: String,
    hint: Option<String>,
    disturbance: bool,
}

/// A result whose error can be shown to the user as it is.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    fn new(kind: Kind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hint: None, disturbance: false }
    }

    /// A comparison found what it was asked to fail on.
    pub fn regression(message: impl Into<String>) -> Self {
        Self::new(Kind::Regression, message)
    }

    /// The user asked for something that cannot be.
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// The host cannot do it.
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(Kind::Environment, message)
    }

    /// Part of the run is missing.
    pub fn incomplete(message: impl Into<String>) -> Self {
        Self::new(Kind::Incomplete, message)
    }

    /// Part of the run is missing because the host stood still or changed meanwhile: what was measured is not at fault, and
    /// doing it again may well succeed.
    pub fn disturbed(message: impl Into<String>) -> Self {
        Self { disturbance: true, ..Self::incomplete(message) }
    }

    /// Adds the way out.
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

    /// Who has to act.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// True if doing the same again may well succeed.
    pub fn is_disturbance(&self) -> bool {
        self.disturbance
    }

    /// The message without its hint.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The way out, where there is one.
    pub fn way_out(&self) -> Option<&str> {
        self.hint.as_deref()
    }

    /// The exit status of a program that ends with this error.
    pub fn exit_status(&self) -> u8 {
        match self.kind {
            Kind::Regression => 1,
            Kind::Usage => 2,
            Kind::Environment => 3,
            Kind::Incomplete => 4,
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

impl From<siga_fabric::Error> for Error {
    fn from(error: siga_fabric::Error) -> Self {
        let kind = match error.kind() {
            siga_fabric::error::Kind::Usage => Kind::Usage,
            siga_fabric::error::Kind::Environment => Kind::Environment,
        };
        Self { hint: error.way_out().map(str::to_owned), ..Self::new(kind, error.message()) }
    }
}

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
