//! Checks names and values that siga passes to the kernel: congestion controls and sysctls. Guests of siga's own networks have some of
//! the sysctls, too.

use crate::limits;
use siga_model::error::{Error, Result};

/// Longest name of a congestion control (TCP_CA_NAME_MAX without its terminating zero).
const CONGESTION_BYTES_MAX: usize = 15;

/// Checks that a text can be the name of a congestion control. An arbitrary text is dangerous, because the kernel loads a module
/// of that name.
///
/// # Errors
/// Returns an error of kind `Usage` if the text cannot be such a name.
pub fn check_congestion(name: &str) -> Result<()> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=CONGESTION_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter) {
        return Ok(());
    }
    Err(Error::usage(format!("`{}` is not a congestion control algorithm", name.escape_debug()))
        .hint("/proc/sys/net/ipv4/tcp_available_congestion_control lists the algorithms of this host"))
}

/// The sysctl that limits the packets that wait in a guest or switch for one partner.
const BACKLOG: &str = "net.core.netdev_max_backlog";

/// A setting that guests of siga's own networks have, under the name of a sysctl.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GuestSetting<'a> {
    /// A setting of the table `tcp` of a guest, by its name there. The stack decides whether it has this setting.
    Tcp(&'a str),
    /// The key `netdev_max_backlog` of guests and of networks with a switch.
    Backlog,
}

impl<'a> GuestSetting<'a> {
    /// Returns the setting of guests that a sysctl stands for, or `None` if guests do not have it.
    pub fn of(sysctl: &'a str) -> Option<Self> {
        if sysctl == BACKLOG {
            return Some(Self::Backlog);
        }
        let name = sysctl.strip_prefix("net.ipv4.").filter(|name| name.starts_with("tcp_") && !name.contains('.'))?;
        Some(Self::Tcp(name))
    }
}

/// Checks that `name` is a sysctl of a network namespace. The name becomes a path below /proc/sys.
///
/// # Errors
/// Returns an error of kind `Usage` if the name is not such a sysctl, or the value is not one line.
pub fn check_sysctl(name: &str, value: &str) -> Result<()> {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    if !name.starts_with("net.") || !name.split('.').all(is_word) {
        return Err(Error::usage(format!(
            "`{}` is not a sysctl that siga can set for a network namespace",
            name.escape_debug()
        ))
        .hint("use a name that begins with `net.`, such as `net.ipv4.tcp_rmem`"));
    }
    if name == "net.ipv4.tcp_congestion_control" {
        return Err(Error::usage(format!(
            "sysctl {name} has no effect, because siga sets the congestion control algorithm of each workload socket itself"
        ))
        .hint("set `congestion = \"...\"` in the level"));
    }
    let is_line = value.len() <= limits::SYSCTL_BYTES_MAX && !value.contains(|c: char| c.is_control() && c != '\t');
    if value.trim().is_empty() || !is_line {
        return Err(Error::usage(format!("`{}` is not a value for sysctl {name}", value.escape_debug()))
            .hint(format!("write a single line of at most {} bytes", limits::SYSCTL_BYTES_MAX)));
    }
    if name == BACKLOG && value.parse::<u32>().is_err() {
        return Err(Error::usage(format!("`{}` is not a value for sysctl {name}", value.escape_debug()))
            .hint("write a number of packets, such as 2500"));
    }
    Ok(())
}
