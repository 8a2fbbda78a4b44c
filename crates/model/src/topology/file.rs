//! The keys of a topology file and their types. `check` checks the values.

use super::{Full, OsaWire, PortLink, Restart};
use crate::allow::Allow;
use crate::error::{Error, Result};
use crate::features::DriverFeatures;
use crate::limits::TOPOLOGY_BYTES_MAX;
use crate::link::Link;
use crate::mac::Mac;
use crate::name::Name;
use crate::waiting::Waiting;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::net::IpAddr;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: Option<Name>,
    #[serde(default, rename = "driver")]
    pub(super) features: DriverFeatures,
    #[serde(default)]
    pub(super) network: BTreeMap<Name, NetworkEntry>,
    #[serde(default)]
    pub(super) guest: BTreeMap<Name, GuestEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NetworkEntry {
    #[serde(rename = "type")]
    pub(super) kind: Type,
    pub(super) frame: Option<String>,
    pub(super) buffer: Option<u32>,
    pub(super) idle_seconds: Option<u32>,
    #[serde(default)]
    pub(super) direct: bool,
    #[serde(default)]
    pub(super) access: AccessWord,
    #[serde(default)]
    pub(super) grant: Vec<Name>,
    pub(super) nic: Option<String>,
    pub(super) layer: Option<String>,
    pub(super) mtu: Option<u32>,
    pub(super) maxconn: Option<u32>,
    pub(super) owner: Option<Name>,
    pub(super) isolation: Option<bool>,
    pub(super) protection: Option<Protect>,
    pub(super) flood_per_second: Option<u32>,
    pub(super) netdev_max_backlog: Option<u32>,
    pub(super) waiting: Option<Waiting>,
    pub(super) accounting: Option<bool>,
    pub(super) dhcp: Option<bool>,
    pub(super) router_advertisements: Option<bool>,
    #[serde(default)]
    pub(super) port: Vec<PortEntry>,
    #[serde(default)]
    pub(super) uplink: Vec<UplinkEntry>,
    pub(super) wire: Option<OsaWire>,
    #[serde(default)]
    pub(super) card: Vec<CardEntry>,
}

/// An OSA-Express adapter that guests can share.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CardEntry {
    pub(super) name: Name,
    pub(super) wire: Option<OsaWire>,
    #[serde(default, deserialize_with = "link")]
    pub(super) link: PortLink,
}

/// A network namespace that joins a switched network.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortEntry {
    pub(super) name: Name,
    pub(super) count: Option<u32>,
    pub(super) netns: Option<Name>,
    pub(super) pid: Option<u32>,
    pub(super) interface: Option<String>,
    #[serde(default)]
    pub(super) addresses: Vec<String>,
    #[serde(default)]
    pub(super) route: Vec<PortRouteEntry>,
    #[serde(default)]
    pub(super) sources: Vec<String>,
    pub(super) mtu: Option<u32>,
    pub(super) mac: Option<Mac>,
    pub(super) offload: Option<bool>,
    pub(super) vlan: Option<u16>,
    #[serde(default)]
    pub(super) vlans: Vec<u16>,
    pub(super) native: Option<u16>,
    pub(super) isolated: Option<bool>,
    #[serde(default)]
    pub(super) promiscuous: bool,
    pub(super) protection: Option<Protect>,
    #[serde(default, deserialize_with = "link")]
    pub(super) link: PortLink,
    pub(super) dhcp: Option<bool>,
    pub(super) router_advertisements: Option<bool>,
}

/// An interface that joins a virtual switch to another network.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct UplinkEntry {
    pub(super) interface: Name,
    pub(super) netns: Option<Name>,
    pub(super) pid: Option<u32>,
    pub(super) vlan: Option<u16>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PortRouteEntry {
    pub(super) to: String,
    pub(super) via: IpAddr,
}

/// Which source addresses a switch checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Protect {
    All,
    Mac,
    Off,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Type {
    Hipersockets,
    Vctc,
    Ctc,
    Netiucv,
    Claw,
    Guestlan,
    Vswitch,
    Qdio,
    Lcs,
}

impl Type {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hipersockets => "hipersockets",
            Self::Vctc => "vctc",
            Self::Ctc => "ctc",
            Self::Netiucv => "netiucv",
            Self::Claw => "claw",
            Self::Guestlan => "guestlan",
            Self::Vswitch => "vswitch",
            Self::Qdio => "qdio",
            Self::Lcs => "lcs",
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum AccessWord {
    #[default]
    Open,
    Restricted,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct GuestEntry {
    #[serde(default)]
    pub(super) forwarding: bool,
    #[serde(default)]
    pub(super) external: bool,
    #[serde(default)]
    pub(super) restart: Restart,
    #[serde(default)]
    pub(super) waiting: Waiting,
    #[serde(default)]
    pub(super) device: Vec<DeviceEntry>,
    #[serde(default)]
    pub(super) route: Vec<RouteEntry>,
    #[serde(default)]
    pub(super) tcp: BTreeMap<String, toml::Value>,
    pub(super) pairs_max: Option<u32>,
    pub(super) ring_bytes_max: Option<u64>,
    pub(super) applications_max: Option<u32>,
    pub(super) allow: Option<Allow>,
    pub(super) arena_bytes: Option<u64>,
    pub(super) memory_max: Option<u64>,
    pub(super) netdev_max_backlog: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DeviceEntry {
    pub(super) name: Option<Name>,
    #[serde(rename = "type")]
    pub(super) kind: Option<Type>,
    pub(super) network: Name,
    #[serde(default)]
    pub(super) addresses: Vec<String>,
    pub(super) mtu: Option<u32>,
    pub(super) buffer_count: Option<u32>,
    #[serde(default)]
    pub(super) full: Full,
    pub(super) mac: Option<Mac>,
    pub(super) vlan: Option<u16>,
    pub(super) isolated: Option<bool>,
    #[serde(default)]
    pub(super) promiscuous: bool,
    #[serde(default, deserialize_with = "link")]
    pub(super) link: PortLink,
    pub(super) card: Option<Name>,
    pub(super) priority_queueing: Option<String>,
    pub(super) host_name: Option<String>,
    pub(super) adapter_name: Option<String>,
    pub(super) read_size: Option<u32>,
    pub(super) write_size: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteEntry {
    pub(super) to: String,
    pub(super) via: Option<IpAddr>,
    #[serde(default)]
    pub(super) tcp: BTreeMap<String, toml::Value>,
}

/// Reads a modelled link: one text for both directions, or a table with a text for each direction.
fn link<'de, D: Deserializer<'de>>(from: D) -> std::result::Result<PortLink, D::Error> {
    let value = toml::Value::deserialize(from)?;
    let Some(text) = value.as_str() else { return value.try_into().map_err(D::Error::custom) };
    let link: Link = text.parse().map_err(D::Error::custom)?;
    Ok(PortLink { from_station: Some(link.clone()), to_station: Some(link) })
}

pub(super) fn read(text: &str) -> Result<File> {
    if text.len() as u64 > TOPOLOGY_BYTES_MAX {
        return Err(Error::usage(format!(
            "the topology is too large: it may have at most {TOPOLOGY_BYTES_MAX} bytes, but it has {}",
            text.len()
        )));
    }
    toml::from_str(text).map_err(|error| Error::usage(error.to_string().trim_end()))
}
