//! Paths over siga's own network: their names and MTU ranges.
//!
//! Client and server share one network, or a router connects them as in Figure 1 of z/VM's reports: a virtual CTC leads from the
//! client to the router, and the network that the path is named after leads from the router to the server. Client and server are
//! processes of the laboratory. They embed the stack of a guest (`embedded`), or use the stack of a guest in another process
//! (`iucv`).

use super::PathKind;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// Names of the guests in the order client, router, server, as in z/VM's reports.
pub const NAMES: [&str; 3] = ["tcpip1", "tcpip2", "tcpip3"];

/// Type of the network that connects the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// HiperSockets with frames of 64 KB.
    Hipersockets,
    /// A virtual CTC with blocks of 65,535 bytes.
    Vctc,
}

/// How client and server use their TCP/IP stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// The stack is in the process of the workload driver.
    Embedded,
    /// The stack is in the process of a guest, which shares memory with the process of the workload driver.
    Iucv,
}

impl Attach {
    /// Returns the name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Iucv => "iucv",
        }
    }
}

/// A path over siga's own network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GuestPath {
    /// Network of the server.
    pub medium: Medium,
    /// True if the client is on another network and a guest routes between the two.
    pub routed: bool,
    /// How client and server use their TCP/IP stacks.
    pub attach: Attach,
}

impl GuestPath {
    /// All paths over siga's own network, in the order of help texts.
    pub const ALL: [Self; 8] = [
        Self { medium: Medium::Hipersockets, routed: false, attach: Attach::Embedded },
        Self { medium: Medium::Hipersockets, routed: true, attach: Attach::Embedded },
        Self { medium: Medium::Vctc, routed: false, attach: Attach::Embedded },
        Self { medium: Medium::Vctc, routed: true, attach: Attach::Embedded },
        Self { medium: Medium::Hipersockets, routed: false, attach: Attach::Iucv },
        Self { medium: Medium::Hipersockets, routed: true, attach: Attach::Iucv },
        Self { medium: Medium::Vctc, routed: false, attach: Attach::Iucv },
        Self { medium: Medium::Vctc, routed: true, attach: Attach::Iucv },
    ];

    /// Default MTU: the largest that both types of network support.
    pub const MTU_DEFAULT: u32 = 57_344;

    /// Returns the name of this path type on the command line and in plans.
    pub fn name(self) -> &'static str {
        match (self.medium, self.routed, self.attach) {
            (Medium::Hipersockets, false, Attach::Embedded) => "hipersockets",
            (Medium::Hipersockets, true, Attach::Embedded) => "hipersockets-routed",
            (Medium::Vctc, false, Attach::Embedded) => "vctc",
            (Medium::Vctc, true, Attach::Embedded) => "vctc-routed",
            (Medium::Hipersockets, false, Attach::Iucv) => "hipersockets-iucv",
            (Medium::Hipersockets, true, Attach::Iucv) => "hipersockets-routed-iucv",
            (Medium::Vctc, false, Attach::Iucv) => "vctc-iucv",
            (Medium::Vctc, true, Attach::Iucv) => "vctc-routed-iucv",
        }
    }

    /// Returns a description of one line for help texts.
    pub fn about(self) -> &'static str {
        match (self.medium, self.routed, self.attach) {
            (Medium::Hipersockets, false, Attach::Embedded) => "siga: two guests on one HiperSockets network",
            (Medium::Hipersockets, true, Attach::Embedded) => {
                "siga: client, virtual CTC, router, HiperSockets, server (Figure 1 of the z/VM report)"
            }
            (Medium::Vctc, false, Attach::Embedded) => "siga: two guests joined by a virtual CTC",
            (Medium::Vctc, true, Attach::Embedded) => "siga: client, virtual CTC, router, virtual CTC, server",
            (Medium::Hipersockets, false, Attach::Iucv) => {
                "siga: applications of two guests on HiperSockets, over IUCV"
            }
            (Medium::Hipersockets, true, Attach::Iucv) => {
                "siga: the path of Figure 1, with applications that use their guests' stacks over IUCV"
            }
            (Medium::Vctc, false, Attach::Iucv) => {
                "siga: applications of two guests joined by a virtual CTC, over IUCV"
            }
            (Medium::Vctc, true, Attach::Iucv) => {
                "siga: applications of two guests joined by virtual CTCs and a router, over IUCV"
            }
        }
    }

    /// Returns the smallest and the largest MTU of the path.
    pub fn mtu_range(self, ipv6: bool) -> (u32, u32) {
        let least = if ipv6 { 1_280 } else { 576 };
        match self.medium {
            Medium::Hipersockets => (least, 57_344),
            Medium::Vctc => (least, 65_527),
        }
    }

    /// Returns the kernel's path with the same number of nodes.
    pub fn of_kernel(self) -> PathKind {
        if self.routed { PathKind::VethRouted } else { PathKind::Veth }
    }

    /// Returns the same path without the router, if this path has one.
    pub fn without_router(self) -> Option<Self> {
        self.routed.then_some(Self { routed: false, ..self })
    }
}

impl fmt::Display for GuestPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for GuestPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let found = Self::ALL.into_iter().find(|path| path.name() == text);
        found.ok_or_else(|| Error::usage(format!("unknown path `{text}`")))
    }
}
