//! Places: where the client and the server of a path run.
//!
//! A place is this host, a named network namespace, the namespace of a process (a container), a namespace of a path that siga
//! built, or another host that siga reaches through ssh.

use siga_model::error::{Error, Result};
use siga_model::text::is_unseen;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Where the client or the server of a path runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// This host, in the network namespace that siga runs in.
    Local,
    /// A network namespace, by the name that `ip netns` gave it.
    Netns(String),
    /// The network namespace of the process with this id.
    Pid(u32),
    /// Another host, which siga reaches through the system's ssh program.
    Ssh(String),
    /// A namespace of a path that siga built: its network namespace and, if it has one of its own, its user namespace.
    Built(PathBuf, Option<PathBuf>),
}

impl FromStr for Place {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let bad = || {
            Error::usage(format!("`{}` does not name a host, a network namespace or a container", text.escape_debug()))
                .hint("write local, netns:NAME, pid:PID or ssh:[USER@]HOST")
        };
        if text.contains(is_unseen) {
            return Err(bad());
        }
        if text == "local" {
            return Ok(Self::Local);
        }
        match text.split_once(':') {
            // The name becomes a file name below /run/netns, so it must not lead out of that directory.
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

/// Returns true if ssh accepts the text as a host (`[USER@]HOST` or a URI) and it is safe to pass on. It must not look like an
/// option. It must not contain a shell's special characters, because ssh inserts host names into commands of its configuration
/// (ProxyCommand).
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

/// Returns the smallest and the largest MTU to which siga can limit the TCP segments between existing places. Linux accepts
/// segments of 88 to 32,767 bytes.
pub fn mtu_range(ipv6: bool) -> (u32, u32) {
    let least = if ipv6 { 1_280 } else { 88 + headers_bytes(ipv6) };
    (least, 32_767 + headers_bytes(ipv6))
}

/// Returns the size of the largest TCP segment, options included, in a packet of `mtu` bytes.
pub fn segment_bytes(mtu: u32, ipv6: bool) -> u32 {
    mtu.saturating_sub(headers_bytes(ipv6))
}

/// The headers of IP and TCP without options, in bytes.
fn headers_bytes(ipv6: bool) -> u32 {
    if ipv6 { 60 } else { 40 }
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
