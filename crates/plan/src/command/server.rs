//! Servers of a command: programs that run while it is measured, such as the database of a load generator.

use super::figure::check_regex;
use super::{Filling, check_variables};
use crate::limits;
use crate::place::Place;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::collections::BTreeMap;

/// How siga finds out that a server accepts work. Exactly one of the values is given.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, default)]
pub struct Ready {
    /// A TCP port of the loopback address of the server's place accepts connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// Standard output or standard error matches this regular expression.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// A file exists. If it is a UNIX socket, it must accept connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// A server of a command. siga starts it before each trial, waits until it is ready, and ends it after the trial. Its CPU time is
/// charged apart from that of the command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Server {
    /// The program and its arguments. It must not put itself into the background.
    pub command: Vec<String>,
    /// How siga finds out that the server accepts work.
    pub ready: Ready,
    /// Longest time in seconds until the server is ready.
    #[serde(default = "ready_seconds", skip_serializing_if = "is_ready_seconds")]
    pub ready_seconds: f64,
    /// The directory in which the server runs; absent: the one in which siga was started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory: Option<String>,
    /// Variables that are added to siga's own environment. A level can replace them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub environment: BTreeMap<String, String>,
    /// Where the server runs: `local`, `netns:NAME` or `pid:PID`; absent: `local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// CPUs on which the server may run; absent: the plan's `server_cpus`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<String>,
}

fn ready_seconds() -> f64 {
    limits::READY_SECONDS
}

fn is_ready_seconds(seconds: &f64) -> bool {
    *seconds == limits::READY_SECONDS
}

impl Server {
    /// Returns the variables of a cell: those of the server and then those of a level, which replace them.
    pub fn variables(&self, of_level: &BTreeMap<String, String>, filling: &Filling<'_>) -> BTreeMap<String, String> {
        let all = self.environment.iter().chain(of_level);
        all.map(|(name, value)| (name.clone(), filling.fill(value))).collect()
    }

    /// Returns all texts in which values are filled in.
    pub(super) fn texts(&self) -> impl Iterator<Item = &String> {
        self.command.iter().chain(self.environment.values()).chain(&self.directory).chain(&self.ready.file)
    }

    /// Refuses a server that cannot start or never gets ready.
    pub(super) fn check(&self) -> Result<()> {
        let refused = |message: String, hint: &str| Err(Error::usage(message).hint(hint.to_owned()));
        if self.command.first().is_none_or(|program| program.trim().is_empty())
            || self.texts().any(|text| text.contains('\0'))
        {
            return refused(
                "the server's command is empty or contains a zero byte".into(),
                "write the program and its arguments",
            );
        }
        let Ready { port, output, file } = &self.ready;
        if [port.is_some(), output.is_some(), file.is_some()].into_iter().filter(|&given| given).count() != 1 {
            return refused(
                "the key `ready` of a server must contain exactly one condition".into(),
                "set exactly one of the keys `port`, `output` and `file`",
            );
        }
        output.as_deref().map_or(Ok(()), check_regex).map_err(|error| error.at("ready"))?;
        if !(0.01..=limits::COMMAND_SECONDS_MAX).contains(&self.ready_seconds) {
            return refused(
                format!("ready_seconds = {} is not allowed", self.ready_seconds),
                "`ready_seconds` must be at least 0.01",
            );
        }
        check_place(self.place.as_deref())?;
        if self.cpus.as_ref().is_some_and(|cpus| crate::cpus::cpu_list(cpus).is_none()) {
            return refused(
                "the key `cpus` of a server is not a list of CPUs".into(),
                "write CPU numbers or ranges, such as 0-3,8",
            );
        }
        check_variables(&self.environment)
    }
}

/// Refuses a place that a command cannot have.
pub(super) fn check_place(place: Option<&str>) -> Result<()> {
    match place.map(str::parse).transpose()? {
        None | Some(Place::Local | Place::Netns(_) | Place::Pid(_)) => Ok(()),
        Some(place @ (Place::Ssh(_) | Place::Built(..))) => {
            Err(Error::usage(format!("{place} is not a place in which siga can run a command"))
                .hint("write local, netns:NAME or pid:PID as the place of a command"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_command_and_one_sign_of_being_ready() {
        let server = |text: &str| toml::from_str::<Server>(text).unwrap().check();
        for ready in ["port = 5432", "output = 'ready$'", "file = '{scratch}/socket'"] {
            server(&format!("command = ['a']\nready = {{ {ready} }}\nplace = 'netns:blue'")).unwrap();
        }
        for text in [
            "command = []\nready = { port = 1 }",
            "command = ['a']\nready = {}",
            "command = ['a']\nready = { port = 1, output = 'x' }",
            "command = ['a']\nready = { output = '(' }",
            "command = ['a']\nready = { port = 1 }\nready_seconds = 0.0",
            "command = ['a']\nready = { port = 1 }\nplace = 'ssh:host'",
            "command = ['a']\nready = { port = 1 }\ncpus = 'x'",
            "command = ['a']\nready = { port = 1 }\nenvironment = { 'A=' = 'x' }",
        ] {
            assert!(server(text).is_err(), "{text}");
        }
    }
}
