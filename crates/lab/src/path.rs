//! Network paths that siga builds: which types there are, what MTU they take, and what was built.
//!
//! A built path lives in network namespaces of its own, held by a *holder* process (`holder`); when the holder is gone,
//! so is the path. Nothing here measures: the run takes the namespaces of a [`Built`] path and puts agents into them.

mod build;
pub mod filter;
pub mod guest;
mod handle;
pub mod holder;
mod namespace;
mod netlink;
mod raised;
mod settings;

pub use guest::{GuestPath, GuestSpec};
pub use handle::Path;
pub use raised::{Net, Raised};

use crate::level::Level;
use crate::limits;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// The types of path siga can build.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum PathKind {
    /// TCP or UDP over `lo` in one namespace.
    Loopback,
    /// Stream sockets of the AF_UNIX family in one namespace.
    Unix,
    /// Two namespaces joined by one veth pair.
    Veth,
    /// Three namespaces: client, router, server, joined by two veth pairs; the router forwards.
    VethRouted,
    /// Client and server on two ports of a bridge in a namespace of its own.
    Bridge,
    /// Client and server on two macvlan interfaces (bridge mode) over one parent.
    Macvlan,
    /// As `veth`, with established TCP sockets short-cut by BPF socket redirection.
    Sockmap,
}

impl PathKind {
    /// All types, in the order of help texts.
    pub const ALL: [Self; 7] =
        [Self::Loopback, Self::Unix, Self::Veth, Self::VethRouted, Self::Bridge, Self::Macvlan, Self::Sockmap];

    /// The name used on the command line and in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Unix => "unix",
            Self::Veth => "veth",
            Self::VethRouted => "veth-routed",
            Self::Bridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::Sockmap => "sockmap",
        }
    }

    /// One line for help texts.
    pub fn about(self) -> &'static str {
        match self {
            Self::Loopback => "one namespace, interface lo",
            Self::Unix => "one namespace, AF_UNIX stream sockets",
            Self::Veth => "two namespaces, one veth pair",
            Self::VethRouted => "client, router and server in three namespaces, two veth pairs",
            Self::Bridge => "client and server on two ports of a bridge",
            Self::Macvlan => "client and server on two macvlan interfaces of one parent",
            Self::Sockmap => "two namespaces, TCP sockets joined by BPF redirection (needs privilege)",
        }
    }

    /// The MTU when none is asked for; `None` where the type has no frames.
    pub fn mtu_default(self) -> Option<u32> {
        match self {
            Self::Loopback => Some(65_536),
            Self::Unix => None,
            Self::Veth | Self::VethRouted | Self::Bridge | Self::Macvlan | Self::Sockmap => Some(1_500),
        }
    }

    /// Smallest and largest MTU the type takes; `None` where it has none.
    ///
    /// IPv6 needs at least 1,280 (RFC 8200, section 5). Over IPv4 the kernel takes 68 and more, but sends TCP segments of
    /// 48 bytes at least (`net.ipv4.tcp_min_snd_mss`): with less room than they and their headers take, streams stall.
    pub fn mtu_range(self, ipv6: bool) -> Option<(u32, u32)> {
        let least = if ipv6 { 1_280 } else { 88 };
        match self {
            Self::Loopback => Some((least, 65_536)),
            Self::Unix => None,
            Self::Veth | Self::VethRouted | Self::Bridge | Self::Macvlan | Self::Sockmap => Some((least, 65_535)),
        }
    }

    /// What a level sets that the type does not have, as a reason for not building it; `None` if it has all.
    pub fn lacks(self, level: &Level) -> Option<String> {
        let name = &level.name;
        if level.guests.is_some() {
            return Some(format!("level {name} sets siga's own guests, and {self} is the kernel's"));
        }
        match self {
            Self::Unix if level.mtu.is_some() => Some(format!("unix has no frames, and level {name} sets their MTU")),
            Self::Unix if level.nftables.is_some() => {
                Some(format!("unix has no packets, and level {name} filters them"))
            }
            Self::Sockmap if level.nftables.is_some() => {
                Some(format!("payload on sockmap is in no packets, and level {name} filters them"))
            }
            Self::Unix
            | Self::Sockmap
            | Self::Loopback
            | Self::Veth
            | Self::VethRouted
            | Self::Bridge
            | Self::Macvlan => None,
        }
    }

    /// The path that differs from this one only by the absence of the node in the middle.
    pub fn without_router(self) -> Option<Self> {
        match self {
            Self::VethRouted | Self::Bridge => Some(Self::Veth),
            Self::Loopback | Self::Unix | Self::Veth | Self::Macvlan | Self::Sockmap => None,
        }
    }
}

impl fmt::Display for PathKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PathKind {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == text).ok_or_else(|| {
            let names = Self::ALL.iter().map(|kind| kind.name()).chain(GuestPath::ALL.iter().map(|path| path.name()));
            let names: Vec<_> = names.collect();
            Error::usage(format!("unknown path `{text}`")).hint(format!("paths: {}", names.join(", ")))
        })
    }
}

/// What to build.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PathSpec {
    /// The type.
    pub kind: PathKind,
    /// MTU of every interface on the path; `None`: the level's, the type's default, or no frames.
    pub mtu: Option<u32>,
    /// Addresses of the path are IPv6.
    pub ipv6: bool,
    /// What the level sets.
    pub level: Level,
}

impl PathSpec {
    /// Checks everything that can be known before anything is built.
    ///
    /// # Errors
    /// Usage: an MTU or address family that the type does not take, a malformed sysctl or congestion control.
    pub fn check(&self) -> Result<()> {
        self.check_mtu()?;
        if let Some(reason) = self.kind.lacks(&self.level) {
            return Err(Error::usage(reason).hint("leave out the level for it"));
        }
        if self.kind == PathKind::Unix && self.ipv6 {
            return Err(Error::usage("path unix has no addresses").hint("leave out IPv6 for it"));
        }
        self.level.congestion.as_deref().map_or(Ok(()), check_congestion)?;
        self.level.sysctl.iter().try_for_each(|(name, value)| check_sysctl(name, value))
    }

    /// The MTU of every interface; `None` where the type has no frames.
    pub fn frame_mtu(&self) -> Option<u32> {
        self.mtu.or(self.level.mtu).or_else(|| self.kind.mtu_default())
    }

    fn check_mtu(&self) -> Result<()> {
        let Some(mtu) = self.mtu.or(self.level.mtu) else { return Ok(()) };
        if let Some(other) = self.level.mtu.filter(|&other| other != mtu) {
            return Err(Error::usage(format!("MTU {mtu} for level {}, whose own is {other}", self.level.name)));
        }
        let Some((least, most)) = self.kind.mtu_range(self.ipv6) else {
            return Err(Error::usage(format!("path {} has no frames, so it takes no MTU", self.kind))
                .hint("leave out the MTU for it"));
        };
        if (least..=most).contains(&mtu) {
            return Ok(());
        }
        let family = if self.ipv6 { " with IPv6" } else { "" };
        Err(Error::usage(format!("MTU {mtu} is outside {least}..={most}, the range of path {}{family}", self.kind)))
    }
}

/// Longest name of a congestion control (TCP_CA_NAME_MAX without its terminating zero).
const CONGESTION_BYTES_MAX: usize = 15;

/// Fails unless this can be the name of a congestion control: the kernel looks for a module of that name.
///
/// # Errors
/// Usage: it cannot.
pub(crate) fn check_congestion(name: &str) -> Result<()> {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    if (1..=CONGESTION_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter) {
        return Ok(());
    }
    Err(Error::usage(format!("`{}` is no congestion control", name.escape_debug()))
        .hint("/proc/sys/net/ipv4/tcp_available_congestion_control lists those of this host"))
}

/// Fails unless this is a sysctl of a network namespace: its name becomes a path below /proc/sys.
///
/// # Errors
/// Usage: it is none, or its value is not one line.
pub(crate) fn check_sysctl(name: &str, value: &str) -> Result<()> {
    let is_word = |word: &str| {
        !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
    };
    if !name.starts_with("net.") || !name.split('.').all(is_word) {
        return Err(Error::usage(format!("`{}` is no sysctl of a network namespace", name.escape_debug()))
            .hint("only net.* names can be set, as `net.ipv4.tcp_rmem`"));
    }
    if name == "net.ipv4.tcp_congestion_control" {
        return Err(Error::usage(format!("sysctl {name} would not reach the sockets of the workload"))
            .hint("use `congestion = \"...\"` in the level"));
    }
    let is_line = value.len() <= limits::SYSCTL_BYTES_MAX && !value.contains(|c: char| c.is_control() && c != '\t');
    if value.trim().is_empty() || !is_line {
        return Err(Error::usage(format!("`{}` is no value for sysctl {name}", value.escape_debug()))
            .hint(format!("a value is one line of up to {} bytes", limits::SYSCTL_BYTES_MAX)));
    }
    Ok(())
}

/// Whose namespace it is; also the component its CPU time is charged to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The side that connects.
    Client,
    /// The node in the middle: a router or a switch.
    Router,
    /// The side that accepts.
    Server,
}

/// A namespace of a built path, open for as long as its holder lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespace {
    /// Whose it is. One namespace can serve as client and server (loopback): it is then listed twice.
    pub role: Role,
    /// A path to open and pass to setns(2) with CLONE_NEWNET (`/proc/HOLDER/fd/N`).
    pub net: String,
    /// The user namespace to enter first (`/proc/HOLDER/ns/user`); `None` if the holder shares the caller's.
    pub user: Option<String>,
    /// Inode number of the network namespace: its identity in traces and records.
    pub inode: u64,
}

/// What was built, with every setting read back from the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Built {
    /// Client first, then router, then server.
    pub namespaces: Vec<Namespace>,
    /// Source address of the client; `None` for `unix`.
    pub client_address: Option<IpAddr>,
    /// The address the server listens on; `None` for `unix`.
    pub server_address: Option<IpAddr>,
    /// Interface settings as read back, one entry an interface: `client/siga-c` to `mtu=1500 qdisc=noqueue ... gro=on`.
    /// A namespace that serves both client and server is called `shared`.
    pub interfaces: BTreeMap<String, String>,
    /// Sysctls that shape the path as read back: `client net.ipv4.tcp_rmem` to its value.
    pub sysctls: BTreeMap<String, String>,
    /// Packet filters as read back, by the namespace they are in ("router nftables").
    pub filters: BTreeMap<String, String>,
    /// The congestion control that sockets on this path shall ask for.
    pub congestion: String,
    /// What could not be set, in words.
    pub notes: Vec<String>,
}

/// What an interface has carried since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// Frames received; large segments count as one.
    pub rx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Received and dropped.
    pub rx_dropped: u64,
    /// Received damaged.
    pub rx_errors: u64,
    /// Frames sent; large segments count as one.
    pub tx_packets: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Dropped before sending.
    pub tx_dropped: u64,
    /// Failed to be sent.
    pub tx_errors: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut PathSpec)) -> Result<()> {
        let mut spec = PathSpec { kind: PathKind::Veth, mtu: None, ipv6: false, level: Level::plain() };
        change(&mut spec);
        spec.check()
    }

    fn check_sysctl(name: &str, value: &str) -> Result<()> {
        check(|spec| spec.level.sysctl = [(name.to_owned(), value.to_owned())].into())
    }

    #[test]
    fn the_default_mtu_of_every_type_is_within_its_range() {
        for kind in PathKind::ALL {
            for ipv6 in [false, true] {
                let range = kind.mtu_range(ipv6).map(|(least, most)| least..=most);
                assert_eq!(range.is_some(), kind.mtu_default().is_some(), "{kind}");
                assert!(range.zip(kind.mtu_default()).is_none_or(|(range, mtu)| range.contains(&mtu)), "{kind}");
            }
        }
    }

    #[test]
    fn a_spec_without_mtu_has_its_types_frames() {
        let spec = |kind| PathSpec { kind, mtu: None, ipv6: false, level: Level::plain() };
        assert_eq!(spec(PathKind::Loopback).frame_mtu(), Some(65_536));
        assert_eq!(spec(PathKind::Unix).frame_mtu(), None);
    }

    #[test]
    fn unix_takes_neither_mtu_nor_ipv6() {
        assert!(check(|spec| spec.kind = PathKind::Unix).is_ok());
        assert!(check(|spec| (spec.kind, spec.mtu) = (PathKind::Unix, Some(1_500))).is_err());
        assert!(check(|spec| (spec.kind, spec.ipv6) = (PathKind::Unix, true)).is_err());
    }

    #[test]
    fn a_spec_has_the_mtu_of_its_level_and_no_other() {
        let level = || Level { mtu: Some(8_992), ..Level::plain() };
        let spec = PathSpec { kind: PathKind::Veth, mtu: None, ipv6: false, level: level() };
        assert_eq!(spec.frame_mtu(), Some(8_992));
        assert!(check(|spec| (spec.mtu, spec.level) = (Some(8_992), level())).is_ok());
        assert!(check(|spec| (spec.mtu, spec.level) = (Some(1_500), level())).is_err());
        assert!(check(|spec| spec.level.mtu = Some(65_536)).is_err());
    }

    #[test]
    fn what_a_type_lacks_is_refused_and_not_left_out() {
        let ruleset = || Level { nftables: Some("flush ruleset".into()), ..Level::plain() };
        let jumbo = || Level { mtu: Some(8_992), ..Level::plain() };
        for kind in PathKind::ALL {
            let filters = !matches!(kind, PathKind::Unix | PathKind::Sockmap);
            assert_eq!(check(|spec| (spec.kind, spec.level) = (kind, ruleset())).is_ok(), filters, "{kind}");
            assert_eq!(
                check(|spec| (spec.kind, spec.level) = (kind, jumbo())).is_ok(),
                kind != PathKind::Unix,
                "{kind}"
            );
        }
    }

    #[test]
    fn sysctl_names_cannot_leave_the_network_part() {
        assert!(check_sysctl("net.ipv4.conf.siga-c.rp_filter", "1").is_ok());
        for name in ["kernel.panic", "net", "net.", "net..ipv4", "net.ipv4/../../kernel/panic", "net.ipv4.tcp_rmem\n"] {
            let error = check_sysctl(name, "1").unwrap_err();
            assert_eq!(error.kind(), siga_model::error::ErrorKind::Usage, "{name}");
        }
    }

    #[test]
    fn sysctl_values_are_one_line() {
        assert!(check_sysctl("net.ipv4.tcp_rmem", "4096\t65536 1000000").is_ok());
        assert!(check_sysctl("net.ipv4.tcp_sack", "").is_err());
        assert!(check_sysctl("net.ipv4.tcp_sack", "1\n0").is_err());
    }

    #[test]
    fn congestion_control_is_chosen_by_its_own_setting() {
        let error = check_sysctl("net.ipv4.tcp_congestion_control", "reno").unwrap_err();
        assert!(error.to_string().contains("congestion = "), "{error}");
        assert!(check(|spec| spec.level.congestion = Some("reno".into())).is_ok());
        for name in ["", "two words", "longer-than-the-kernel-takes"] {
            assert!(check(|spec| spec.level.congestion = Some(name.into())).is_err(), "{name}");
        }
    }
}
