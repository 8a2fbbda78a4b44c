//! Routes: between which two places a cell is measured, and over what.

use crate::path::PathKind;
use crate::path::guest::GuestPath;
use crate::place::Place;
use siga_model::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A way between client and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// Built by siga of the kernel's networks.
    Built(PathKind),
    /// Over siga's own network.
    Guests(GuestPath),
    /// Between two places that exist: client, server.
    Places(Place, Place),
}

impl FromStr for Route {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text.split_once('>') {
            Some((client, server)) => Ok(Self::Places(client.parse()?, server.parse()?)),
            None => match text.parse() {
                Ok(path) => Ok(Self::Guests(path)),
                Err(_) => text.parse().map(Self::Built),
            },
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Built(kind) => f.pad(kind.name()),
            Self::Guests(path) => f.pad(path.name()),
            Self::Places(client, server) => f.pad(&format!("{client}>{server}")),
        }
    }
}
