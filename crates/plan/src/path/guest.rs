//! Paths over siga's own network: which there are, what they take, and the topology of each.
//!
//! The way between client and server is one network, or that of Figure 1: a virtual CTC to a router, and from there the
//! network that the path is named after. Client and server are processes of the laboratory: guests with a stack in them
//! (`embedded`), or applications of guests that are processes of their own (`iucv`).

use super::PathKind;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// The guests' names, as z/VM's reports have them: client, router, server.
pub const NAMES: [&str; 3] = ["tcpip1", "tcpip2", "tcpip3"];

/// What joins the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// HiperSockets with frames of 64 KB.
    Hipersockets,
    /// A virtual CTC with blocks of 65,535 bytes.
    Vctc,
}

/// How client and server get at their stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// The stack is in the process of the driver.
    Embedded,
    /// The stack is a guest's, a process of its own that the driver's shares memory with.
    Iucv,
}

impl Attach {
    /// The word for it in reports.
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
    /// The network that the server is on.
    pub medium: Medium,
    /// The client is on another, and a guest routes.
    pub routed: bool,
    /// How client and server get at their stacks.
    pub attach: Attach,
}

impl GuestPath {
    /// All of them, in the order of help texts.
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

    /// The MTU when none is asked for: the largest that every network here takes.
    pub const MTU_DEFAULT: u32 = 57_344;

    /// The name used on the command line and in plans.
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

    /// One line for help texts.
    pub fn about(self) -> &'static str {
        match (self.medium, self.routed, self.attach) {
            (Medium::Hipersockets, false, Attach::Embedded) => "siga: two guests on one HiperSockets network",
            (Medium::Hipersockets, true, Attach::Embedded) => {
                "siga: client, virtual CTC, router, HiperSockets, server (Figure 1)"
            }
            (Medium::Vctc, false, Attach::Embedded) => "siga: two guests joined by a virtual CTC",
            (Medium::Vctc, true, Attach::Embedded) => "siga: client, virtual CTC, router, virtual CTC, server",
            (Medium::Hipersockets, false, Attach::Iucv) => "siga: applications of two guests on HiperSockets",
            (Medium::Hipersockets, true, Attach::Iucv) => "siga: Figure 1, its applications over IUCV",
            (Medium::Vctc, false, Attach::Iucv) => "siga: applications of two guests joined by a virtual CTC",
            (Medium::Vctc, true, Attach::Iucv) => "siga: applications of two guests behind virtual CTCs and a router",
        }
    }

    /// Smallest and largest MTU it takes.
    pub fn mtu_range(self, ipv6: bool) -> (u32, u32) {
        let least = if ipv6 { 1_280 } else { 576 };
        match self.medium {
            Medium::Hipersockets => (least, 57_344),
            Medium::Vctc => (least, 65_527),
        }
    }

    /// The kernel's path that leads through as many nodes.
    pub fn of_kernel(self) -> PathKind {
        if self.routed { PathKind::VethRouted } else { PathKind::Veth }
    }

    /// The path that differs from this one only by the absence of the router.
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
