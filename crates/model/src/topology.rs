//! Topologies: guests, networks, and which guests may couple to which network.
//!
//! The file is TOML and is checked whole before anything starts. A parsed topology has no contradiction: every name is known,
//! every address belongs to one device, every device fits its network and may couple to it, and every route leaves through a
//! device of its guest.

mod check;
mod file;
pub mod sources;

use crate::error::Result;
use crate::features::DriverFeatures;
use crate::limits;
use crate::name::Name;
use crate::waiting::Waiting;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// The guests and networks to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Its name, if the file has one.
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
    /// Its rules.
    pub kind: NetworkKind,
    /// Which guests may couple to it.
    pub access: Access,
    /// A ring pair without traffic for this long is given back.
    pub idle_seconds: u32,
}

/// The rules of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// Any number of guests, each joined to every other.
    Hipersockets {
        /// Largest frame, in bytes.
        frame: u32,
    },
    /// Two guests.
    Vctc {
        /// Largest block, in bytes.
        buffer: u32,
    },
}

impl NetworkKind {
    /// The name in topologies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hipersockets { .. } => "hipersockets",
            Self::Vctc { .. } => "vctc",
        }
    }

    /// The largest IP packet it takes.
    pub fn mtu_max(self) -> u32 {
        match self {
            Self::Hipersockets { frame } => frame - limits::HIPERSOCKETS_OVERHEAD_BYTES,
            Self::Vctc { buffer } => buffer - limits::VCTC_OVERHEAD_BYTES,
        }
    }

    /// True if a buffer takes every IP packet, however large.
    pub fn takes_large_segments(self) -> bool {
        self.buffer_bytes() >= limits::VCTC_BUFFER_BYTES_MAX
    }

    /// Bytes of one buffer of its rings.
    pub fn buffer_bytes(self) -> u32 {
        match self {
            Self::Hipersockets { frame } => frame,
            Self::Vctc { buffer } => buffer,
        }
    }
}

/// Which guests may couple to a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Every guest.
    Open,
    /// These guests, and those that `siga net grant` adds.
    Restricted(BTreeSet<Name>),
}

impl Access {
    /// True if the guest may couple.
    pub fn admits(&self, guest: &Name) -> bool {
        match self {
            Self::Open => true,
            Self::Restricted(granted) => granted.contains(guest),
        }
    }
}

/// Whether a guest that has ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// It is not.
    Never,
    /// It is, if it was killed or failed.
    #[default]
    OnFailure,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// It forwards packets: it is a router.
    pub forwarding: bool,
    /// It is a process that the user starts; it attaches with a secret.
    pub external: bool,
    /// Whether it is started again when it has ended.
    pub restart: Restart,
    /// How it waits for traffic.
    pub waiting: Waiting,
    /// Its devices, in the file's order.
    pub devices: Vec<Device>,
    /// Its routes, in addition to those to the networks of its own addresses.
    pub routes: Vec<Route>,
    /// Ring pairs it may have at a time.
    pub pairs_max: u32,
    /// Bytes of ring memory it may ask for.
    pub ring_bytes_max: u64,
    /// Applications that may use its stack at a time.
    pub applications_max: u32,
    /// Bytes of each of the two arenas of an application.
    pub arena_bytes: u64,
    /// Bytes of memory that its process may take, if the file says so.
    pub memory_max: Option<u64>,
}

/// A guest's attachment to a network.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// What the guest calls it.
    pub name: Name,
    /// The network.
    pub network: Name,
    /// The guest's addresses there.
    pub addresses: Vec<IpNet>,
    /// Largest IP packet, in bytes.
    pub mtu: u16,
    /// Buffers of each inbound ring.
    pub buffer_count: u16,
    /// What happens to a frame for which the partner has no empty buffer.
    pub full: Full,
}

/// What happens to a frame for which the partner has no empty buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Full {
    /// It is dropped and counted (`target_full`).
    Drop,
    /// It waits until the partner has one.
    #[default]
    Pending,
}

impl Full {
    /// The name in topologies.
    pub fn name(self) -> &'static str {
        match self {
            Self::Drop => "drop",
            Self::Pending => "pending",
        }
    }
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
    /// Reads and checks a topology.
    ///
    /// # Errors
    /// Usage: bad TOML, an unknown key or a contradiction, with its place.
    pub fn parse(text: &str) -> Result<Self> {
        file::read(text).and_then(check::check)
    }

    /// The guests with a device on a network, each with the device and its index, ordered by name.
    pub fn on<'a>(&'a self, network: &'a Name) -> impl Iterator<Item = (&'a Name, usize, &'a Device)> {
        self.guests.iter().flat_map(move |(name, guest)| {
            let devices = guest.devices.iter().enumerate();
            devices.filter(move |(_, device)| device.network == *network).map(move |(at, device)| (name, at, device))
        })
    }
}

impl fmt::Display for NetworkKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Hipersockets { frame } => write!(f, "hipersockets, frames of {} KB", frame >> 10),
            Self::Vctc { buffer } => write!(f, "vctc, blocks of {buffer} bytes"),
        }
    }
}

#[cfg(test)]
mod tests;
