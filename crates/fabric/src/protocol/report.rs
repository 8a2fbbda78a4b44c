//! Reports: what a guest has counted, and its settings, in parts that fit into messages.

use super::message::{GuestDevice, MemberId};
use crate::text;
use serde::{Deserialize, Serialize};
use siga_model::name::Name;
use std::collections::BTreeMap;

/// A part of a guest's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportPart {
    /// A device and the counters of all its links.
    Device(DeviceReport),
    /// One link.
    Link(LinkReport),
    /// An application that uses the stack from its own process; there is one of these alone where it reports itself.
    Application(ApplicationReport),
    /// The stack as a whole; nothing follows.
    Stack(StackReport),
}

/// A device's settings and counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// As the guest was told.
    pub device: GuestDevice,
    /// Counters by name, those of ended links included.
    #[serde(deserialize_with = "text::counters")]
    pub counters: BTreeMap<String, u64>,
}

/// A link's state and counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The own device.
    pub device: Name,
    /// The partner.
    pub member: MemberId,
    /// The number of the pair, if there is one.
    pub pair: Option<u64>,
    /// Counters by name.
    #[serde(deserialize_with = "text::counters")]
    pub counters: BTreeMap<String, u64>,
}

/// What there is between an application and its guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationReport {
    /// The number that the control program gave it; the application itself does not know it.
    pub application: Option<u64>,
    /// Its sockets, those included that were given up and are still needed.
    pub sockets: u64,
    /// Bytes that are free for what it receives; as it says itself, for what it sends.
    pub free_bytes: u64,
    /// Counters of the link by name, as this side sees them.
    #[serde(deserialize_with = "text::counters")]
    pub counters: BTreeMap<String, u64>,
    /// Times in nanoseconds: spent copying, and of the application itself, waiting.
    #[serde(deserialize_with = "text::counters")]
    pub times_ns: BTreeMap<String, u64>,
}

/// What a stack holds and has dropped, and how its process waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackReport {
    /// Packets dropped, by reason.
    #[serde(deserialize_with = "text::counters")]
    pub drops: BTreeMap<String, u64>,
    /// Bytes held, by what for.
    #[serde(deserialize_with = "text::counters")]
    pub memory: BTreeMap<String, u64>,
    /// Times in nanoseconds: spent waiting, copying.
    #[serde(deserialize_with = "text::counters")]
    pub times_ns: BTreeMap<String, u64>,
    /// TCP connections, TIME-WAIT not counted.
    pub connections: u64,
}
