//! Paths between two guests of the user's own network: one that siga starts from a topology file, or one that is up already.

use siga_model::error::{Error, Result};
use siga_model::name::Name;
use siga_model::text::is_unseen;
use std::fmt;
use std::str::FromStr;

/// The network of such a path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// siga starts a network from this topology file for each trial.
    File(String),
    /// The network with this name is up already.
    Up(Name),
}

/// A path between two guests of a network. Its text is `topology:FILE:CLIENT>SERVER` or `network:NAME:CLIENT>SERVER`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OwnPath {
    /// The network.
    pub source: Source,
    /// The guest of the client.
    pub client: Name,
    /// The guest of the server.
    pub server: Name,
}

const FILE: &str = "topology:";
const UP: &str = "network:";

impl OwnPath {
    /// Returns true if a text begins as the text of such a path does.
    pub(crate) fn is_begun(text: &str) -> bool {
        text.starts_with(FILE) || text.starts_with(UP)
    }
}

impl FromStr for OwnPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage(format!("`{}` does not name two guests of a network", text.escape_debug()))
                .hint("write topology:FILE:CLIENT>SERVER or network:NAME:CLIENT>SERVER")
        };
        let (place, guests) = text.rsplit_once(':').ok_or_else(bad)?;
        let (client, server) = guests.split_once('>').ok_or_else(bad)?;
        let source = match (place.strip_prefix(FILE), place.strip_prefix(UP)) {
            (Some(file), _) if !file.is_empty() && !file.contains(is_unseen) => Source::File(file.to_owned()),
            (None, Some(name)) => Source::Up(name.parse()?),
            (Some(_) | None, _) => return Err(bad()),
        };
        Ok(Self { source, client: client.parse()?, server: server.parse()? })
    }
}

impl fmt::Display for OwnPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { source, client, server } = self;
        let text = match source {
            Source::File(file) => format!("{FILE}{file}:{client}>{server}"),
            Source::Up(name) => format!("{UP}{name}:{client}>{server}"),
        };
        f.pad(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_paths_read_back_as_written_and_others_are_refused() {
        for text in ["topology:net.toml:a>b", "topology:/x:y/net.toml:a>b", "network:figure-1:tcpip1>tcpip3"] {
            assert_eq!(text.parse::<OwnPath>().unwrap().to_string(), text);
        }
        for text in
            ["topology:a>b", "topology::a>b", "topology:x:a", "network:x:a>", "network:/:a>b", "topology:\n:a>b"]
        {
            assert_eq!(text.parse::<OwnPath>().unwrap_err().exit_status(), 2, "{text}");
        }
    }
}
