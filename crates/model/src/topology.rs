//! Topologies: guests, networks, and which guests may couple to which network.
//!
//! A topology file is TOML. All of it is checked before anything starts. A parsed topology has no contradiction: every name is
//! known, every address belongs to one device, every device fits its network and may couple to it, and every route leaves
//! through a device of its guest.

mod assigned;
mod check;
mod claw;
mod file;
mod joined;
mod lcs;
mod osa;
mod ports;
pub mod sources;
mod switched;
mod switched_kind;
mod tcp;
mod trip;

use crate::allow::Allow;
use crate::error::Result;
use crate::features::DriverFeatures;
use crate::limits;
use crate::name::Name;
use crate::waiting::Waiting;
pub use assigned::{AdvertisedRouter, Assigned};
pub use claw::Claw;
use ipnet::IpNet;
pub use osa::{Card, OsaWire, Queueing};
pub use ports::{Mirror, PortChange, PortLink, SwitchPort};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
pub use switched::{KernelPort, Nic, PortSettings, PortVlan, Protection, Switch, Where};
pub use trip::Trip;

/// The guests and networks to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Name of the topology, if the file gives one.
    pub name: Option<Name>,
    /// The driver features of all networks.
    pub features: DriverFeatures,
    /// The networks.
    pub networks: BTreeMap<Name, Network>,
    /// The guests.
    pub guests: BTreeMap<Name, Guest>,
}

/// A network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Network {
    /// Kind of network, which decides the rules for its frames.
    pub kind: NetworkKind,
    /// Which guests may couple to the network.
    pub access: Access,
    /// Seconds without traffic after which a ring pair is closed and its memory freed.
    pub idle_seconds: u32,
    /// Whether the applications of two guests may exchange the bytes of their connections by memory that they share.
    pub direct: bool,
    /// The settings of the network's switch. `None` if guests exchange frames without a switch.
    pub switch: Option<Switch>,
}

/// The kind of a network: which guests it connects, and how large its frames or blocks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// Connects any number of guests, each with every other.
    Hipersockets {
        /// Largest frame, in bytes.
        frame: u32,
    },
    /// Connects two guests.
    Vctc {
        /// Largest block, in bytes.
        buffer: u32,
    },
    /// Connects two guests by a real (ESCON) channel, which is modelled: a block takes time, and the next block waits for it.
    Ctc {
        /// Largest block, in bytes.
        buffer: u32,
    },
    /// Connects two guests by a path of the service IUCV.
    Netiucv {
        /// Longest message without its last field, in bytes.
        buffer: u32,
    },
    /// Connects two guests by an ESCON channel with the protocol CLAW. The channel is modelled.
    Claw {
        /// Longest block, in bytes.
        buffer: u32,
    },
    /// Connects guests through a switch process, without an uplink.
    Guestlan {
        /// The type of the LAN, which is also the type of the devices that can couple to it.
        nic: Nic,
        /// Largest IP packet, in bytes.
        mtu: u32,
    },
    /// Connects guests and network namespaces through a switch process that learns Ethernet addresses.
    Vswitch {
        /// Largest IP packet, in bytes.
        mtu: u32,
    },
    /// Connects guests through OSA-Express adapters, and a LAN between the adapters. A switch process is all of them.
    Qdio {
        /// Largest IP packet, in bytes.
        mtu: u32,
        /// True if the adapters work at layer 2 and carry Ethernet frames of any protocol; false if they carry IP packets only.
        ethernet: bool,
    },
    /// Connects guests through LAN channel stations (LCS), and a LAN between them. A switch process is all of them.
    Lcs {
        /// Largest IP packet, in bytes.
        mtu: u32,
    },
}

impl NetworkKind {
    /// Returns the name that topology files use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hipersockets { .. } => "hipersockets",
            Self::Vctc { .. } => "vctc",
            Self::Ctc { .. } => "ctc",
            Self::Netiucv { .. } => "netiucv",
            Self::Claw { .. } => "claw",
            Self::Guestlan { .. } => "guestlan",
            Self::Vswitch { .. } => "vswitch",
            Self::Qdio { .. } => "qdio",
            Self::Lcs { .. } => "lcs",
        }
    }

    /// Returns true if a switch process copies the frames between the guests.
    pub fn is_switched(self) -> bool {
        match self {
            Self::Hipersockets { .. }
            | Self::Vctc { .. }
            | Self::Ctc { .. }
            | Self::Netiucv { .. }
            | Self::Claw { .. } => false,
            Self::Guestlan { .. } | Self::Vswitch { .. } | Self::Qdio { .. } | Self::Lcs { .. } => true,
        }
    }

    /// Returns the number of buffers of an inbound ring if the topology gives none.
    pub fn buffer_count_default(self) -> u16 {
        match self {
            Self::Qdio { .. } => limits::OSA_BUFFER_COUNT_DEFAULT,
            Self::Netiucv { .. } => limits::NETIUCV_MESSAGES,
            Self::Claw { .. } => limits::CLAW_BUFFER_COUNT,
            Self::Lcs { .. } => limits::LCS_BUFFER_COUNT,
            Self::Hipersockets { .. }
            | Self::Vctc { .. }
            | Self::Ctc { .. }
            | Self::Guestlan { .. }
            | Self::Vswitch { .. } => limits::BUFFER_COUNT_DEFAULT,
        }
    }

    /// Returns the number of buffers of each ring in which guests send to the network's switch. A queue of an OSA-Express adapter always
    /// has 128 buffers.
    pub fn switch_buffer_count(self) -> u16 {
        match self {
            Self::Qdio { .. } => limits::BUFFER_COUNT_MAX,
            Self::Lcs { .. } => limits::LCS_BUFFER_COUNT,
            Self::Hipersockets { .. }
            | Self::Vctc { .. }
            | Self::Ctc { .. }
            | Self::Netiucv { .. }
            | Self::Claw { .. }
            | Self::Guestlan { .. }
            | Self::Vswitch { .. } => limits::BUFFER_COUNT_DEFAULT,
        }
    }

    /// Returns true if a device has exactly one partner: the other guest of a CTC, or the switch.
    pub fn is_point_to_point(self) -> bool {
        self.is_switched() || self.joins_two_guests()
    }

    /// Returns true if the network connects exactly two guests, as a CTC does.
    pub fn joins_two_guests(self) -> bool {
        matches!(self, Self::Vctc { .. } | Self::Ctc { .. } | Self::Netiucv { .. } | Self::Claw { .. })
    }

    /// Returns true if packets share blocks that the device of a guest collects.
    pub fn has_blocks(self) -> bool {
        self.joins_two_guests() || matches!(self, Self::Lcs { .. })
    }

    /// Returns true if packets have neither checksums that are not filled in nor large segments, because the format of the network's
    /// blocks has no place for marks.
    pub fn has_no_marks(self) -> bool {
        matches!(self, Self::Netiucv { .. } | Self::Claw { .. } | Self::Lcs { .. })
    }

    /// Returns true if the modelled link of the network is a channel that carries whole blocks.
    pub fn has_channel(self) -> bool {
        matches!(self, Self::Ctc { .. } | Self::Claw { .. })
    }

    /// Returns the size of the largest IP packet of a device if the topology gives none.
    pub fn mtu_default(self) -> u32 {
        match self {
            Self::Netiucv { .. } => limits::NETIUCV_MTU_DEFAULT.min(self.mtu_max()),
            Self::Claw { .. } => limits::CLAW_FRAME_BYTES.min(self.mtu_max()),
            Self::Hipersockets { .. }
            | Self::Vctc { .. }
            | Self::Ctc { .. }
            | Self::Guestlan { .. }
            | Self::Vswitch { .. }
            | Self::Qdio { .. }
            | Self::Lcs { .. } => self.mtu_max(),
        }
    }

    /// Returns the size of the largest IP packet that the network carries.
    pub fn mtu_max(self) -> u32 {
        match self {
            Self::Hipersockets { frame } => frame - limits::HIPERSOCKETS_OVERHEAD_BYTES,
            Self::Vctc { buffer } | Self::Ctc { buffer } => buffer - limits::VCTC_OVERHEAD_BYTES,
            Self::Netiucv { buffer } => buffer - limits::NETIUCV_FIELD_BYTES,
            Self::Claw { buffer } => buffer - limits::CLAW_UNUSED_BYTES - limits::CLAW_HEADER_BYTES,
            Self::Guestlan { mtu, .. } | Self::Vswitch { mtu } | Self::Qdio { mtu, .. } | Self::Lcs { mtu } => mtu,
        }
    }

    /// Returns true if one buffer has room for an IP packet of any size.
    pub fn takes_large_segments(self) -> bool {
        self.buffer_bytes() >= limits::VCTC_BUFFER_BYTES_MAX
    }

    /// Returns the size of one buffer of the network's rings, in bytes.
    pub fn buffer_bytes(self) -> u32 {
        match self {
            Self::Hipersockets { frame } => frame,
            Self::Vctc { buffer } | Self::Ctc { buffer } | Self::Claw { buffer } => buffer,
            Self::Netiucv { buffer } => buffer + limits::NETIUCV_FIELD_BYTES,
            Self::Lcs { .. } => limits::LCS_BUFFER_BYTES,
            Self::Guestlan { nic: Nic::Hipersockets { frame }, .. } => frame,
            Self::Guestlan { nic: Nic::Qdio { .. }, .. } | Self::Vswitch { .. } | Self::Qdio { .. } => {
                limits::QDIO_BUFFER_BYTES
            }
        }
    }
}

/// Which guests may couple to a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Every guest may attach devices to the network.
    Open,
    /// Only these guests may attach devices to the network, and those that `siga net grant` adds.
    Restricted(BTreeSet<Name>),
}

impl Access {
    /// Returns true if `guest` may attach devices to the network.
    pub fn admits(&self, guest: &Name) -> bool {
        match self {
            Self::Open => true,
            Self::Restricted(granted) => granted.contains(guest),
        }
    }
}

/// Whether the control program restarts a guest whose process has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// The guest is not restarted.
    Never,
    /// The guest is restarted if its process was killed or failed.
    #[default]
    OnFailure,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// True if the guest is a router: it forwards packets.
    pub forwarding: bool,
    /// True if the user starts the guest's process. The process then attaches with a secret.
    pub external: bool,
    /// Whether the control program restarts the guest when its process has ended.
    pub restart: Restart,
    /// How the guest waits for traffic.
    pub waiting: Waiting,
    /// Devices of the guest, in the order of the file.
    pub devices: Vec<Device>,
    /// Routes of the guest, in addition to those to the networks of its own addresses.
    pub routes: Vec<Route>,
    /// Settings of the guest's TCP, by their names in Linux.
    pub tcp: TcpSettings,
    /// Settings of the guest's connections to the hosts of a prefix.
    pub tcp_to: Vec<TcpTo>,
    /// Number of ring pairs that the guest may have at a time.
    pub pairs_max: u32,
    /// Bytes of ring memory that the guest may request in all.
    pub ring_bytes_max: u64,
    /// Number of applications that may use the guest's stack at a time.
    pub applications_max: u32,
    /// Size of each of the two arenas of an application, in bytes.
    pub arena_bytes: u64,
    /// What others may open to the guest. `None`: everything.
    pub allow: Option<Allow>,
    /// Limit of the memory of the guest's process, in bytes, if the file sets one.
    pub memory_max: Option<u64>,
    /// True if this entry is the switch process of the network with the same name. The file defines no such guest.
    pub is_switch: bool,
}

/// A guest's attachment to a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Name of the device in its guest.
    pub name: Name,
    /// Network to which the device attaches the guest.
    pub network: Name,
    /// Addresses of the guest on this network.
    pub addresses: Vec<IpNet>,
    /// Size of the largest IP packet, in bytes.
    pub mtu: u16,
    /// Number of buffers of each inbound ring.
    pub buffer_count: u16,
    /// What happens to a frame for which the partner has no empty buffer.
    pub full: Full,
    /// The most packets that wait in the guest for one partner on the network: packets that the guest has received and forwards, and
    /// copies of its multicast packets. The topology sets it for a guest or for the switch of a network.
    #[serde(default = "netdev_max_backlog")]
    pub netdev_max_backlog: u32,
    /// The settings of the switch's port, if the network has a switch and this is not the switch's own device.
    pub port: Option<PortSettings>,
    /// The modelled link between the device and a virtual CTC, or the channel of a real CTC. On a network with a switch, the link is one of the port's settings.
    #[serde(default)]
    pub link: PortLink,
    /// The settings of a device on a network of type claw.
    #[serde(default)]
    pub claw: Option<Claw>,
}

/// Returns the value for files that an earlier version wrote.
fn netdev_max_backlog() -> u32 {
    limits::NETDEV_BACKLOG_DEFAULT
}

/// What happens to a frame for which the partner has no empty buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Full {
    /// The frame is dropped and counted as `target_full`.
    Drop,
    /// The frame waits until the partner has an empty buffer.
    #[default]
    Pending,
}

impl Full {
    /// Returns the name that topology files use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Pending => "pending",
        }
    }
}

/// Settings of TCP: their names in Linux, with their values as text. The stack checks both.
pub type TcpSettings = BTreeMap<String, String>;

/// Settings of the connections to the hosts of a prefix.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TcpTo {
    /// The hosts.
    pub to: IpNet,
    /// The settings: attributes of routes in Linux, such as `initcwnd`.
    pub settings: TcpSettings,
}

/// A route of a guest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The destinations.
    pub to: IpNet,
    /// The next hop.
    pub via: IpAddr,
    /// The index of the device in the guest's list.
    pub device: usize,
}

impl Topology {
    /// Reads and checks a topology file.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if the text is not TOML, or has an unknown key or a contradiction. The error names the
    /// line, the guest or the network.
    pub fn parse(text: &str) -> Result<Self> {
        file::read(text).and_then(check::check)
    }

    /// Returns each guest that has a device on the network, with the device and its index, ordered by the guest's name.
    pub fn on<'a>(&'a self, network: &'a Name) -> impl Iterator<Item = (&'a Name, usize, &'a Device)> {
        self.guests.iter().flat_map(move |(name, guest)| {
            let devices = guest.devices.iter().enumerate();
            devices.filter(move |(_, device)| device.network == *network).map(move |(at, device)| (name, at, device))
        })
    }

    /// Returns each device with which a guest's device can have a ring pair, with the name of its guest. On a switched network,
    /// only the switch has ring pairs with the guests.
    pub fn partners<'a>(&'a self, guest: &'a Name, device: &'a Device) -> impl Iterator<Item = (&'a Name, &'a Device)> {
        let switched = self.networks[&device.network].kind.is_switched();
        let is_switch = |name: &Name| self.guests[name].is_switch;
        let own_is_switch = is_switch(guest);
        let all = self.on(&device.network).filter(move |(other, _, _)| *other != guest);
        all.filter(move |(other, _, _)| !switched || own_is_switch != is_switch(other))
            .map(|(other, _, device)| (other, device))
    }

    /// Returns true if a guest may use a network: the network is open or grants access to the guest, or the guest is its switch.
    pub fn admits(&self, network: &Name, guest: &Name) -> bool {
        let is_switch = self.guests.get(guest).is_some_and(|guest| guest.is_switch);
        is_switch || self.networks.get(network).is_some_and(|network| network.access.admits(guest))
    }
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hipersockets { frame } => write!(f, "hipersockets, frames of {} KB", frame >> 10),
            Self::Vctc { buffer } => write!(f, "vctc, blocks of {buffer} bytes"),
            Self::Ctc { buffer } => write!(f, "ctc, blocks of {buffer} bytes"),
            Self::Netiucv { buffer } => write!(f, "netiucv, messages of {buffer} bytes"),
            Self::Claw { buffer } => write!(f, "claw, blocks of {buffer} bytes"),
            Self::Guestlan { nic: Nic::Hipersockets { frame }, .. } => {
                write!(f, "guestlan hipersockets, frames of {} KB", frame >> 10)
            }
            Self::Guestlan { nic: Nic::Qdio { ethernet }, mtu } => {
                write!(f, "guestlan qdio {}, MTU {mtu}", if *ethernet { "ethernet" } else { "ip" })
            }
            Self::Vswitch { mtu } => write!(f, "vswitch, MTU {mtu}"),
            Self::Lcs { mtu } => write!(f, "lcs, MTU {mtu}"),
            Self::Qdio { mtu, ethernet } => {
                write!(f, "qdio, layer {}, MTU {mtu}", if *ethernet { 2 } else { 3 })
            }
        }
    }
}

#[cfg(test)]
mod tests;
