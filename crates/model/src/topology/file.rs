//! The keys of a topology file and their types. `check` checks the values.

use super::{Full, Restart};
use crate::error::{Error, Result};
use crate::features::DriverFeatures;
use crate::limits::TOPOLOGY_BYTES_MAX;
use crate::name::Name;
use crate::waiting::Waiting;
use serde::Deserialize;
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
    pub(super) access: AccessWord,
    #[serde(default)]
    pub(super) grant: Vec<Name>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Type {
    Hipersockets,
    Vctc,
}

impl Type {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Hipersockets => "hipersockets",
            Self::Vctc => "vctc",
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
    pub(super) arena_bytes: Option<u64>,
    pub(super) memory_max: Option<u64>,
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
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RouteEntry {
    pub(super) to: String,
    pub(super) via: Option<IpAddr>,
    #[serde(default)]
    pub(super) tcp: BTreeMap<String, toml::Value>,
}

pub(super) fn read(text: &str) -> Result<File> {
    if text.len() as u64 > TOPOLOGY_BYTES_MAX {
        return Err(Error::usage(format!(
            "a topology has at most {TOPOLOGY_BYTES_MAX} bytes, this has {}",
            text.len()
        )));
    }
    toml::from_str(text).map_err(|error| Error::usage(error.to_string().trim_end()))
}
