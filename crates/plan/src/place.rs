//! Places: where the two ends of a path run.
//!
//! A place is this host, a named network namespace, the namespace of a process (a container), a namespace of a built path,
//! or another host behind ssh.

use siga_model::error::{Error, Result};
use siga_model::text::is_unseen;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where an end of a path runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// This host as it is.
    Local,
    /// A network namespace named by `ip netns`.
    Netns(String),
    /// The network namespace of a process.
    Pid(u32),
    /// Another host, by the system's ssh.
    Ssh(String),
    /// A namespace of a path that siga built: its network namespace and, if it has one of its own, its user namespace.
    Built(PathBuf, Option<PathBuf>),
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage(format!("`{}` is no place", text.escape_debug()))
                .hint("places: local, netns:NAME, pid:PID, ssh:[USER@]HOST")
        };
        if text.contains(is_unseen) {
            return Err(bad());
        }
        if text == "local" {
            return Ok(Self::Local);
        }
        match text.split_once(':') {
            // A name is a file below /run/netns. ssh would take a host that looks like an option for one.
            Some(("netns", name)) if !name.is_empty() && !name.contains('/') && name != ".." && name != "." => {
                Ok(Self::Netns(name.into()))
            }
            Some(("pid", pid)) => match pid.parse() {
                Ok(pid) if pid > 0 => Ok(Self::Pid(pid)),
                Ok(_) | Err(_) => Err(bad()),
            },
            Some(("ssh", host)) if is_host(host) => Ok(Self::Ssh(host.into())),
            Some(_) | None => Err(bad()),
        }
    }
}

/// True for a host as ssh takes it, `[USER@]HOST` or a URI, without options and without characters that mean something to a
/// shell: ssh puts names into commands of its configuration (ProxyCommand).
fn is_host(text: &str) -> bool {
    let is_letter = |letter: char| letter.is_alphanumeric() || "._-+@:/[]%".contains(letter);
    let is_option = text.split(['@', '/']).any(|part| part.starts_with('-'));
    !text.is_empty() && text.chars().all(is_letter) && !is_option
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Local => f.write_str("local"),
            Self::Netns(name) => write!(f, "netns:{name}"),
            Self::Pid(pid) => write!(f, "pid:{pid}"),
            Self::Ssh(host) => write!(f, "ssh:{host}"),
            Self::Built(net, _) => write!(f, "{}", net.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_read_back_as_written_and_others_are_refused() {
        for text in ["local", "netns:blue", "pid:17", "ssh:root@host", "ssh:[fe80::1%eth0]", "ssh:ssh://me@host:22"] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), text);
        }
        for text in [
            "",
            "netns:",
            "netns:../x",
            "netns:..",
            "pid:0",
            "pid:x",
            "ssh:",
            "ssh:-oProxyCommand=x",
            "ssh:root@-oProxyCommand=x",
            "ssh:ssh://-oProxyCommand=x",
            "ssh:a b",
            "ssh:$(touch x)",
            "ssh:`x`",
            "ssh:a;b",
            "ssh:a|b",
            "ssh:a'b",
            "netns:\u{202e}x",
            "netns:\u{1b}[31m",
            "lan:x",
        ] {
            assert_eq!(text.parse::<Place>().unwrap_err().exit_status(), 2, "{text}");
        }
    }
}
