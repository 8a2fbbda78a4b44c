//! Paths that siga builds from the kernel's network devices: their names and MTU ranges.

pub mod guest;
pub mod own;

use guest::GuestPath;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::fmt;
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
    /// Client and server on bonds of two veth pairs each (balance-xor over addresses and ports).
    Bond,
    /// Client and server on interfaces with an IEEE 802.1Q tag, over one veth pair.
    Vlan,
    /// Client and server on two ipvlan interfaces (L2 mode) over one parent.
    Ipvlan,
    /// Like `loopback`, but sockets of the AF_SMC family carry the bytes through memory (SMC-D), without TCP.
    SmcLoopback,
    /// Like `veth`, but a BPF sockmap moves data between established TCP sockets and bypasses the devices.
    Sockmap,
}

impl PathKind {
    /// All types, in the order of help texts.
    pub const ALL: [Self; 11] = [
        Self::Loopback,
        Self::Unix,
        Self::Veth,
        Self::VethRouted,
        Self::Bridge,
        Self::Macvlan,
        Self::Bond,
        Self::Vlan,
        Self::Ipvlan,
        Self::SmcLoopback,
        Self::Sockmap,
    ];

    /// Returns the name of this path type on the command line and in plans.
    pub fn name(self) -> &'static str {
        match self {
            Self::Loopback => "loopback",
            Self::Unix => "unix",
            Self::Veth => "veth",
            Self::VethRouted => "veth-routed",
            Self::Bridge => "bridge",
            Self::Macvlan => "macvlan",
            Self::Bond => "bond",
            Self::Vlan => "vlan",
            Self::Ipvlan => "ipvlan",
            Self::SmcLoopback => "smc-loopback",
            Self::Sockmap => "sockmap",
        }
    }

    /// Returns a description of one line for help texts.
    pub fn about(self) -> &'static str {
        match self {
            Self::Loopback => "client and server in one namespace, over the loopback interface",
            Self::Unix => "client and server in one namespace, over AF_UNIX stream sockets",
            Self::Veth => "client and server in two namespaces, joined by a veth pair",
            Self::VethRouted => "client, router and server in three namespaces, joined by two veth pairs",
            Self::Bridge => "client and server in two namespaces, on two ports of a bridge",
            Self::Macvlan => "client and server in two namespaces, on macvlan interfaces with the same parent",
            Self::Bond => "client and server in two namespaces, joined by a bond of two veth pairs (balance-xor)",
            Self::Vlan => "client and server in two namespaces, on VLAN interfaces (802.1Q) over a veth pair",
            Self::Ipvlan => "client and server in two namespaces, on ipvlan interfaces with the same parent",
            Self::SmcLoopback => {
                "client and server in one namespace, with AF_SMC sockets over the SMC loopback device (needs Linux 6.10)"
            }
            Self::Sockmap => {
                "client and server in two namespaces, with TCP sockets whose data BPF redirects (needs root or CAP_BPF)"
            }
        }
    }

    /// Returns the default MTU, or `None` if the type has no frames.
    pub fn mtu_default(self) -> Option<u32> {
        match self {
            Self::Loopback => Some(65_536),
            Self::Unix | Self::SmcLoopback => None,
            Self::Veth
            | Self::VethRouted
            | Self::Bridge
            | Self::Macvlan
            | Self::Bond
            | Self::Vlan
            | Self::Ipvlan
            | Self::Sockmap => Some(1_500),
        }
    }

    /// Returns the smallest and largest MTU of the type, or `None` if the type has no frames.
    ///
    /// IPv6 needs at least 1,280 (RFC 8200, section 5). For IPv4 the kernel accepts an MTU of 68, but it never sends a TCP segment
    /// of less than 48 bytes (`net.ipv4.tcp_min_snd_mss`). If that segment and its headers exceed the MTU, streams stall.
    pub fn mtu_range(self, ipv6: bool) -> Option<(u32, u32)> {
        let least = if ipv6 { 1_280 } else { 88 };
        let most = if self == Self::Loopback { 65_536 } else { 65_535 };
        self.mtu_default().map(|_| (least, most))
    }

    /// Returns the same path without the node in the middle, if this path has one.
    pub fn without_router(self) -> Option<Self> {
        match self {
            Self::VethRouted | Self::Bridge => Some(Self::Veth),
            Self::Loopback
            | Self::Unix
            | Self::Veth
            | Self::Macvlan
            | Self::Bond
            | Self::Vlan
            | Self::Ipvlan
            | Self::SmcLoopback
            | Self::Sockmap => None,
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
