//! Topologies: guests, networks, who may couple to what. Checked whole before anything is started.
//!
//! The file is TOML. A topology that parsed is free of contradictions: names are known, addresses are of one device each,
//! every device suits its network and may couple to it, and every route leads out of a device of its guest.

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

/// What is to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// What it is called, if the file says so.
    pub name: Option<Name>,
    /// How all guests move frames.
    pub driver: DriverFeatures,
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
    /// Who may couple to it.
    pub access: Access,
    /// A pair without traffic for so long is given back.
    pub idle_seconds: u32,
}

/// The rules of a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NetworkKind {
    /// Any number of guests, each joined to each.
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

/// Who may couple to a network.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Access {
    /// Every guest.
    Open,
    /// These guests, and whom `grant` adds.
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

/// When a guest that has ended is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Not at all.
    Never,
    /// When it was killed or failed.
    #[default]
    OnFailure,
}

/// A guest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Guest {
    /// It passes packets on.
    pub forwarding: bool,
    /// It is a process of its own that attaches with a secret; nobody starts it.
    pub external: bool,
    /// What is done when it has ended.
    pub restart: Restart,
    /// How it waits for traffic.
    pub waiting: Waiting,
    /// Its devices, in the file's order.
    pub devices: Vec<Device>,
    /// Its routes beside those to the networks of its own addresses.
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
    /// Own addresses.
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
    /// It waits until there is one.
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
    /// Where to.
    pub to: IpNet,
    /// The next hop.
    pub via: IpAddr,
    /// The place of the device in the guest's list.
    pub device: usize,
}

impl Topology {
    /// Reads and checks a topology.
    ///
    /// # Errors
    /// What is wrong and where: bad TOML, an unknown key, a contradiction.
    pub fn parse(text: &str) -> Result<Self> {
        file::read(text).and_then(check::check)
    }

    /// The guests with a device on a network, with that device's place, in the order of their names.
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
