//! Routes: what connects client and server in a cell.

use crate::path::PathKind;
use crate::path::guest::GuestPath;
use crate::path::own::OwnPath;
use crate::place::Place;
use siga_model::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// What connects client and server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// A path that siga builds from the kernel's networks.
    Built(PathKind),
    /// A path over siga's own network.
    Guests(GuestPath),
    /// A path between two guests of the user's own network.
    Own(OwnPath),
    /// Two existing places: first that of the client, then that of the server.
    Places(Place, Place),
    /// None: a command runs on this host.
    Host,
}

/// The name of [`Route::Host`].
pub const HOST: &str = "host";

impl FromStr for Route {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        if OwnPath::is_begun(text) {
            return text.parse().map(Self::Own);
        }
        match text.split_once('>') {
            Some((client, server)) => Ok(Self::Places(client.parse()?, server.parse()?)),
            None if text == HOST => Ok(Self::Host),
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
            Self::Own(path) => fmt::Display::fmt(path, f),
            Self::Host => f.pad(HOST),
            Self::Places(client, server) => f.pad(&format!("{client}>{server}")),
        }
    }
}
