//! Paths over siga's own network: their names and MTU ranges.
//!
//! Client and server share one network, or a router connects them as in Figure 1 of z/VM's reports: a virtual CTC leads from the
//! client to the router, and the network that the path is named after leads from the router to the server. Client and server are
//! processes of the laboratory. They embed the stack of a guest (`embedded`), or use the stack of a guest in another process
//! (`iucv`). On paths over a virtual switch, the server (`mixed`) or both of them (`netns`) can use the kernel's stack in a network
//! namespace at a port of the switch.

use super::PathKind;
use serde::{Deserialize, Serialize};
use siga_model::error::{Error, Result};
use siga_model::limits;
use std::fmt;
use std::str::FromStr;

/// Names of the guests in the order client, router, server, as in z/VM's reports.
pub const NAMES: [&str; 3] = ["tcpip1", "tcpip2", "tcpip3"];

/// Names of two more guests, which share the OSA-Express adapters of client and server.
pub const NEIGHBOURS: [&str; 2] = ["tcpip4", "tcpip5"];

/// Type of the network that connects the guests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Medium {
    /// HiperSockets with frames of 64 KB.
    Hipersockets,
    /// A virtual CTC with blocks of 65,535 bytes.
    Vctc,
    /// A real CTC, whose channel is modelled, with blocks of 32,768 bytes.
    Ctc,
    /// A path of the service IUCV, with messages of 32,768 bytes.
    Netiucv,
    /// An ESCON channel with the protocol CLAW, which is modelled, with blocks of 32,768 bytes.
    Claw,
    /// A Guest LAN of type HiperSockets with frames of 64 KB.
    GuestlanHipers,
    /// A Guest LAN of type QDIO.
    GuestlanQdio,
    /// A virtual switch.
    Vswitch,
    /// LAN channel stations (LCS), whose wires are modelled.
    Lcs,
    /// OSA-Express adapters for 1000Base-T, whose wires are modelled.
    #[serde(rename = "qdio-1000base-t")]
    Qdio1000BaseT,
    /// OSA-Express adapters for Gigabit Ethernet, whose wires are modelled.
    #[serde(rename = "qdio-1gbe")]
    Qdio1Gbe,
    /// OSA-Express adapters for 10 Gigabit Ethernet, whose wires are modelled.
    #[serde(rename = "qdio-10gbe")]
    Qdio10Gbe,
}

impl Medium {
    /// Returns true if a modelled link can lie between the network and a station.
    pub fn takes_links(self) -> bool {
        self.is_switched() || matches!(self, Self::Vctc | Self::Ctc | Self::Netiucv | Self::Claw)
    }

    /// Returns true if the network carries no IPv6 packets.
    pub fn carries_only_v4(self) -> bool {
        matches!(self, Self::GuestlanHipers | Self::Lcs)
    }

    /// Returns true if the network is a modelled channel, which carries whole blocks.
    pub fn has_channel(self) -> bool {
        matches!(self, Self::Ctc | Self::Claw)
    }

    /// Returns true if the network has frames of the sizes of HiperSockets.
    pub fn has_frames(self) -> bool {
        matches!(self, Self::Hipersockets | Self::GuestlanHipers)
    }

    /// Returns true if the stations of the network have OSA-Express adapters.
    pub fn has_cards(self) -> bool {
        matches!(self, Self::Qdio1000BaseT | Self::Qdio1Gbe | Self::Qdio10Gbe)
    }

    /// Returns true if a switch connects the stations of the network.
    pub fn is_switched(self) -> bool {
        match self {
            Self::Hipersockets | Self::Vctc | Self::Ctc | Self::Netiucv | Self::Claw => false,
            Self::GuestlanHipers
            | Self::GuestlanQdio
            | Self::Vswitch
            | Self::Lcs
            | Self::Qdio1000BaseT
            | Self::Qdio1Gbe
            | Self::Qdio10Gbe => true,
        }
    }
}

/// How client and server use their TCP/IP stacks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attach {
    /// The stack is in the process of the workload driver.
    Embedded,
    /// The stack is in the process of a guest, which shares memory with the process of the workload driver.
    Iucv,
    /// The client embeds its stack. The server uses the kernel's stack in a network namespace.
    Mixed,
    /// Client and server use the kernel's stack, each in a network namespace.
    Netns,
}

impl Attach {
    /// Returns the name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Iucv => "iucv",
            Self::Mixed => "mixed",
            Self::Netns => "netns",
        }
    }

    /// Returns whether the client, and whether the server, is in a network namespace.
    pub fn in_namespaces(self) -> [bool; 2] {
        match self {
            Self::Embedded | Self::Iucv => [false, false],
            Self::Mixed => [false, true],
            Self::Netns => [true, true],
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

/// Returns the two paths of a kind: without a router, and with one.
const fn both(medium: Medium, attach: Attach) -> [GuestPath; 2] {
    [GuestPath { medium, routed: false, attach }, GuestPath { medium, routed: true, attach }]
}

impl GuestPath {
    /// All paths over siga's own network, in the order of help texts.
    pub const ALL: [Self; 52] = {
        let kinds = [
            both(Medium::Hipersockets, Attach::Embedded),
            both(Medium::Vctc, Attach::Embedded),
            both(Medium::Hipersockets, Attach::Iucv),
            both(Medium::Vctc, Attach::Iucv),
            both(Medium::Ctc, Attach::Embedded),
            both(Medium::Ctc, Attach::Iucv),
            both(Medium::GuestlanHipers, Attach::Embedded),
            both(Medium::GuestlanQdio, Attach::Embedded),
            both(Medium::Vswitch, Attach::Embedded),
            both(Medium::GuestlanHipers, Attach::Iucv),
            both(Medium::GuestlanQdio, Attach::Iucv),
            both(Medium::Vswitch, Attach::Iucv),
            both(Medium::Vswitch, Attach::Mixed),
            both(Medium::Vswitch, Attach::Netns),
            both(Medium::Qdio1000BaseT, Attach::Embedded),
            both(Medium::Qdio1Gbe, Attach::Embedded),
            both(Medium::Qdio10Gbe, Attach::Embedded),
            both(Medium::Qdio1000BaseT, Attach::Iucv),
            both(Medium::Qdio1Gbe, Attach::Iucv),
            both(Medium::Qdio10Gbe, Attach::Iucv),
            both(Medium::Netiucv, Attach::Embedded),
            both(Medium::Netiucv, Attach::Iucv),
            both(Medium::Claw, Attach::Embedded),
            both(Medium::Claw, Attach::Iucv),
            both(Medium::Lcs, Attach::Embedded),
            both(Medium::Lcs, Attach::Iucv),
        ];
        let mut all = [kinds[0][0]; 52];
        let mut at = 0;
        while at < all.len() {
            all[at] = kinds[at / 2][at % 2];
            at += 1;
        }
        all
    };

    /// Returns the MTU of the path if none is asked for: the largest one, at most that of HiperSockets. Some types have another default.
    pub fn mtu_default(self) -> u32 {
        match self.medium {
            Medium::Netiucv => limits::NETIUCV_MTU_DEFAULT,
            Medium::Claw => limits::CLAW_FRAME_BYTES,
            Medium::Hipersockets
            | Medium::Vctc
            | Medium::Ctc
            | Medium::GuestlanHipers
            | Medium::GuestlanQdio
            | Medium::Vswitch
            | Medium::Lcs
            | Medium::Qdio1000BaseT
            | Medium::Qdio1Gbe
            | Medium::Qdio10Gbe => self.mtu_range(false).1.min(57_344),
        }
    }

    /// Returns the name of this path type on the command line and in plans. Paths that are not in [`GuestPath::ALL`] do not exist.
    pub fn name(self) -> &'static str {
        match (self.medium, self.routed, self.attach) {
            (Medium::Hipersockets, false, Attach::Iucv) => "hipersockets-iucv",
            (Medium::Hipersockets, true, Attach::Iucv) => "hipersockets-routed-iucv",
            (Medium::Hipersockets, false, _) => "hipersockets",
            (Medium::Hipersockets, true, _) => "hipersockets-routed",
            (Medium::Vctc, false, Attach::Iucv) => "vctc-iucv",
            (Medium::Vctc, true, Attach::Iucv) => "vctc-routed-iucv",
            (Medium::Vctc, false, _) => "vctc",
            (Medium::Vctc, true, _) => "vctc-routed",
            (Medium::Ctc, false, Attach::Iucv) => "ctc-iucv",
            (Medium::Ctc, true, Attach::Iucv) => "ctc-routed-iucv",
            (Medium::Ctc, false, _) => "ctc",
            (Medium::Ctc, true, _) => "ctc-routed",
            (Medium::Netiucv, false, Attach::Iucv) => "netiucv-iucv",
            (Medium::Netiucv, true, Attach::Iucv) => "netiucv-routed-iucv",
            (Medium::Netiucv, false, _) => "netiucv",
            (Medium::Netiucv, true, _) => "netiucv-routed",
            (Medium::Claw, false, Attach::Iucv) => "claw-iucv",
            (Medium::Claw, true, Attach::Iucv) => "claw-routed-iucv",
            (Medium::Claw, false, _) => "claw",
            (Medium::Claw, true, _) => "claw-routed",
            (Medium::Lcs, false, Attach::Iucv) => "lcs-iucv",
            (Medium::Lcs, true, Attach::Iucv) => "lcs-routed-iucv",
            (Medium::Lcs, false, _) => "lcs",
            (Medium::Lcs, true, _) => "lcs-routed",
            (Medium::GuestlanHipers, false, Attach::Iucv) => "guestlan-hipers-iucv",
            (Medium::GuestlanHipers, true, Attach::Iucv) => "guestlan-hipers-routed-iucv",
            (Medium::GuestlanHipers, false, _) => "guestlan-hipers",
            (Medium::GuestlanHipers, true, _) => "guestlan-hipers-routed",
            (Medium::GuestlanQdio, false, Attach::Iucv) => "guestlan-qdio-iucv",
            (Medium::GuestlanQdio, true, Attach::Iucv) => "guestlan-qdio-routed-iucv",
            (Medium::GuestlanQdio, false, _) => "guestlan-qdio",
            (Medium::GuestlanQdio, true, _) => "guestlan-qdio-routed",
            (Medium::Vswitch, false, Attach::Embedded) => "vswitch",
            (Medium::Vswitch, true, Attach::Embedded) => "vswitch-routed",
            (Medium::Vswitch, false, Attach::Iucv) => "vswitch-iucv",
            (Medium::Vswitch, true, Attach::Iucv) => "vswitch-routed-iucv",
            (Medium::Vswitch, false, Attach::Mixed) => "vswitch-mixed",
            (Medium::Vswitch, true, Attach::Mixed) => "vswitch-routed-mixed",
            (Medium::Vswitch, false, Attach::Netns) => "vswitch-netns",
            (Medium::Vswitch, true, Attach::Netns) => "vswitch-routed-netns",
            (Medium::Qdio1000BaseT, false, Attach::Iucv) => "qdio-1000base-t-iucv",
            (Medium::Qdio1000BaseT, true, Attach::Iucv) => "qdio-1000base-t-routed-iucv",
            (Medium::Qdio1000BaseT, false, _) => "qdio-1000base-t",
            (Medium::Qdio1000BaseT, true, _) => "qdio-1000base-t-routed",
            (Medium::Qdio1Gbe, false, Attach::Iucv) => "qdio-1gbe-iucv",
            (Medium::Qdio1Gbe, true, Attach::Iucv) => "qdio-1gbe-routed-iucv",
            (Medium::Qdio1Gbe, false, _) => "qdio-1gbe",
            (Medium::Qdio1Gbe, true, _) => "qdio-1gbe-routed",
            (Medium::Qdio10Gbe, false, Attach::Iucv) => "qdio-10gbe-iucv",
            (Medium::Qdio10Gbe, true, Attach::Iucv) => "qdio-10gbe-routed-iucv",
            (Medium::Qdio10Gbe, false, _) => "qdio-10gbe",
            (Medium::Qdio10Gbe, true, _) => "qdio-10gbe-routed",
        }
    }

    /// Returns a description of one line for help texts.
    pub fn about(self) -> &'static str {
        match (self.medium, self.routed, self.attach) {
            (Medium::Hipersockets, false, Attach::Iucv) => {
                "siga's network: two guests on one HiperSockets network; client and server are applications of the guests, over IUCV"
            }
            (Medium::Hipersockets, true, Attach::Iucv) => {
                "siga's network: the path hipersockets-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::Hipersockets, false, _) => "siga's network: two guests on one HiperSockets network",
            (Medium::Hipersockets, true, _) => {
                "siga's network: client, virtual CTC, router, HiperSockets, server (as in Figure 1 of the z/VM report)"
            }
            (Medium::Vctc, false, Attach::Iucv) => {
                "siga's network: two guests joined by a virtual CTC; client and server are applications of the guests, over IUCV"
            }
            (Medium::Vctc, true, Attach::Iucv) => {
                "siga's network: the path vctc-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::Vctc, false, _) => "siga's network: two guests joined by a virtual CTC",
            (Medium::Vctc, true, _) => "siga's network: client, virtual CTC, router, virtual CTC, server",
            (Medium::Ctc, false, Attach::Iucv) => {
                "siga's network: applications of two guests joined by a real (ESCON) CTC, which is modelled, over IUCV"
            }
            (Medium::Ctc, true, Attach::Iucv) => {
                "siga's network: the path ctc-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::Ctc, false, _) => "siga's network: two guests joined by a real (ESCON) CTC, which is modelled",
            (Medium::Ctc, true, _) => "siga's network: client, virtual CTC, router, real (ESCON) CTC, server",
            (Medium::GuestlanHipers, false, Attach::Iucv) => {
                "siga's network: applications of two guests on a Guest LAN of type HiperSockets, over IUCV"
            }
            (Medium::GuestlanHipers, true, Attach::Iucv) => {
                "siga's network: the path guestlan-hipers-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::GuestlanHipers, false, _) => "siga's network: two guests on a Guest LAN of type HiperSockets",
            (Medium::GuestlanHipers, true, _) => {
                "siga's network: client, virtual CTC, router, Guest LAN of type HiperSockets, server"
            }
            (Medium::GuestlanQdio, false, Attach::Iucv) => {
                "siga's network: applications of two guests on a Guest LAN of type QDIO, over IUCV"
            }
            (Medium::GuestlanQdio, true, Attach::Iucv) => {
                "siga's network: the path guestlan-qdio-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::GuestlanQdio, false, _) => "siga's network: two guests on a Guest LAN of type QDIO",
            (Medium::GuestlanQdio, true, _) => {
                "siga's network: client, virtual CTC, router, Guest LAN of type QDIO, server"
            }
            (Medium::Vswitch | Medium::Qdio1000BaseT | Medium::Qdio1Gbe | Medium::Qdio10Gbe, ..) => {
                self.about_vswitch_or_osa()
            }
            (Medium::Netiucv | Medium::Claw | Medium::Lcs, ..) => self.about_channel(),
        }
    }

    /// Returns the description of a path over a type whose devices collect packets in blocks.
    fn about_channel(self) -> &'static str {
        match (self.medium, self.routed, self.attach) {
            (Medium::Claw, false, Attach::Iucv) => {
                "siga's network: applications of two guests joined by a CLAW channel, which is modelled, over IUCV"
            }
            (Medium::Claw, true, Attach::Iucv) => {
                "siga's network: the path claw-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::Claw, false, _) => "siga's network: two guests joined by a CLAW channel, which is modelled",
            (Medium::Claw, true, _) => "siga's network: client, virtual CTC, router, CLAW channel, server",
            (Medium::Lcs, false, Attach::Iucv) => {
                "siga's network: applications of two guests with LAN channel stations (LCS), over IUCV"
            }
            (Medium::Lcs, true, Attach::Iucv) => {
                "siga's network: the path lcs-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::Lcs, false, _) => "siga's network: two guests with LAN channel stations (LCS); IPv4 only",
            (Medium::Lcs, true, _) => "siga's network: client, virtual CTC, router, LAN channel station (LCS), server",
            (_, false, Attach::Iucv) => {
                "siga's network: applications of two guests joined by a point-to-point IUCV path (netiucv), over IUCV"
            }
            (_, true, Attach::Iucv) => {
                "siga's network: the path netiucv-routed; client and server are applications of the guests, over IUCV"
            }
            (_, false, _) => "siga's network: two guests joined by a point-to-point IUCV path (netiucv)",
            (_, true, _) => "siga's network: client, virtual CTC, router, point-to-point IUCV path (netiucv), server",
        }
    }

    /// Returns the description of a path over a virtual switch or OSA-Express adapters.
    fn about_vswitch_or_osa(self) -> &'static str {
        match (self.medium, self.routed, self.attach) {
            (Medium::Vswitch, false, Attach::Embedded) => "siga's network: two guests on a virtual switch",
            (Medium::Vswitch, true, Attach::Embedded) => {
                "siga's network: client, virtual CTC, router, virtual switch, server"
            }
            (Medium::Vswitch, false, Attach::Iucv) => {
                "siga's network: applications of two guests on a virtual switch, over IUCV"
            }
            (Medium::Vswitch, true, Attach::Iucv) => {
                "siga's network: the path vswitch-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::Vswitch, false, Attach::Mixed) => {
                "siga's network: a guest and a network namespace (the kernel's stack) on a virtual switch"
            }
            (Medium::Vswitch, true, Attach::Mixed) => {
                "siga's network: client, virtual CTC, router, virtual switch, server in a network namespace"
            }
            (Medium::Vswitch, false, Attach::Netns) => {
                "siga's network: two network namespaces (the kernel's stacks) on a virtual switch"
            }
            (Medium::Vswitch, true, Attach::Netns) => {
                "siga's network: namespace, virtual switch, router (siga's stack), virtual switch, namespace"
            }
            (Medium::Qdio1000BaseT, false, Attach::Iucv) => {
                "siga's network: applications of two guests with OSA-Express adapters for 1000Base-T, over IUCV"
            }
            (Medium::Qdio1000BaseT, true, Attach::Iucv) => {
                "siga's network: the path qdio-1000base-t-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::Qdio1000BaseT, false, _) => "siga's network: two guests with OSA-Express adapters for 1000Base-T",
            (Medium::Qdio1000BaseT, true, _) => {
                "siga's network: client, virtual CTC, router, OSA-Express for 1000Base-T, server"
            }
            (Medium::Qdio1Gbe, false, Attach::Iucv) => {
                "siga's network: applications of two guests with OSA-Express adapters for Gigabit Ethernet, over IUCV"
            }
            (Medium::Qdio1Gbe, true, Attach::Iucv) => {
                "siga's network: the path qdio-1gbe-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::Qdio1Gbe, false, _) => "siga's network: two guests with OSA-Express adapters for Gigabit Ethernet",
            (Medium::Qdio1Gbe, true, _) => {
                "siga's network: client, virtual CTC, router, OSA-Express for Gigabit Ethernet, server"
            }
            (Medium::Qdio10Gbe, false, Attach::Iucv) => {
                "siga's network: applications of two guests with OSA-Express adapters for 10 Gigabit Ethernet, over IUCV"
            }
            (Medium::Qdio10Gbe, true, Attach::Iucv) => {
                "siga's network: the path qdio-10gbe-routed; client and server are applications of the guests, over IUCV"
            }
            (Medium::Qdio10Gbe, false, _) => {
                "siga's network: two guests with OSA-Express adapters for 10 Gigabit Ethernet"
            }
            (Medium::Qdio10Gbe, true, _) => {
                "siga's network: client, virtual CTC, router, OSA-Express for 10 Gigabit Ethernet, server"
            }
            (
                Medium::Hipersockets
                | Medium::Vctc
                | Medium::Ctc
                | Medium::Netiucv
                | Medium::Claw
                | Medium::Lcs
                | Medium::GuestlanHipers
                | Medium::GuestlanQdio,
                ..,
            ) => "siga's network",
        }
    }

    /// Returns the smallest and the largest MTU of the path.
    pub fn mtu_range(self, ipv6: bool) -> (u32, u32) {
        let least = if ipv6 { 1_280 } else { 576 };
        match self.medium {
            Medium::Hipersockets | Medium::GuestlanHipers => (least, 57_344),
            Medium::Vctc => (least, 65_527),
            Medium::Ctc => (least, 32_760),
            Medium::Claw => (least, limits::CLAW_BUFFER_BYTES - limits::CLAW_UNUSED_BYTES - limits::CLAW_HEADER_BYTES),
            Medium::Lcs => (least, limits::LCS_MTU_MAX),
            Medium::Netiucv => (least, limits::NETIUCV_BUFFER_BYTES - limits::NETIUCV_FIELD_BYTES),
            Medium::GuestlanQdio => (least, 32_768),
            Medium::Vswitch => (least, 9_000),
            Medium::Qdio1000BaseT | Medium::Qdio1Gbe | Medium::Qdio10Gbe => (least, limits::OSA_MTU_LAYER_3_MAX),
        }
    }

    /// Returns the kernel's path with the same number of nodes.
    pub fn of_kernel(self) -> PathKind {
        match self.medium {
            _ if self.routed => PathKind::VethRouted,
            Medium::Hipersockets | Medium::Vctc | Medium::Ctc | Medium::Netiucv | Medium::Claw => PathKind::Veth,
            Medium::GuestlanHipers
            | Medium::GuestlanQdio
            | Medium::Vswitch
            | Medium::Lcs
            | Medium::Qdio1000BaseT
            | Medium::Qdio1Gbe
            | Medium::Qdio10Gbe => PathKind::Bridge,
        }
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
