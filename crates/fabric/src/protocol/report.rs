//! Reports: a guest sends its counters and settings to the control program in several parts, because each part must fit into one
//! message.

use super::message::{GuestDevice, MemberId};
use crate::limits::{COUNTER_NAME_BYTES_MAX, COUNTERS_MAX};
use serde::{Deserialize, Deserializer, Serialize};
use siga_model::mac::Mac;
use siga_model::name::Name;
use siga_model::text::cut;
use std::collections::BTreeMap;

/// One part of a guest's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportPart {
    /// The settings of one device, and the summed counters of all its links.
    Device(DeviceReport),
    /// The state and counters of one link.
    Link(LinkReport),
    /// The state and counters of one application's link to the guest. An application that reports about itself sends only this
    /// part.
    Application(ApplicationReport),
    /// The memory, drops and times of the guest's stack. This is the last part of a guest's report.
    Stack(StackReport),
    /// The sums of a guest's counters, as the answer to `Order::Totals`. It is the only part.
    Totals(Totals),
    /// Addresses that a switch knows. Only switches send this part, as the answer to `Order::Addresses`. `last` is true in the last part.
    Addresses {
        /// The addresses.
        addresses: Vec<KnownAddress>,
        /// True if no other part follows.
        last: bool,
    },
}

impl ReportPart {
    /// Returns true if no other part of the report follows.
    pub(crate) fn is_last(&self) -> bool {
        match self {
            Self::Stack(_) | Self::Totals(_) => true,
            Self::Addresses { last, .. } => *last,
            Self::Device(_) | Self::Link(_) | Self::Application(_) => false,
        }
    }
}

/// An Ethernet address that a switch knows.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct KnownAddress {
    /// The VLAN of the station.
    pub vlan: u16,
    /// The station's address.
    pub mac: Mac,
    /// The label of the port at which the station is; `None` if the station of a protected port is away.
    #[serde(deserialize_with = "siga_model::text::bounded_option")]
    pub port: Option<String>,
    /// Milliseconds since the station's last frame. `None` if the address was not learned, but belongs to a protected port.
    pub age_ms: Option<u64>,
}

/// A device's settings and counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// The device's configuration.
    pub device: GuestDevice,
    /// The device's counters by name. They include the counters of links that have ended.
    #[serde(deserialize_with = "counters")]
    pub counters: BTreeMap<String, u64>,
}

/// A link's state and counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LinkReport {
    /// The guest's device that the link belongs to.
    pub device: Name,
    /// The partner at the other end of the link.
    pub member: MemberId,
    /// The number of the ring pair, or `None` if the link has no ring pair.
    pub pair: Option<u64>,
    /// The link's counters by name.
    #[serde(deserialize_with = "counters")]
    pub counters: BTreeMap<String, u64>,
}

/// The state and counters of the link between an application and its guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationReport {
    /// The number that the control program gave the application. `None` in the report of the application itself, because the
    /// application does not know this number.
    pub application: Option<u64>,
    /// The number of the application's sockets. It includes closed sockets that still have bytes to send.
    pub sockets: u64,
    /// Free bytes in the arena (shared memory for payload) of the reporting process. That is the guest's arena, or the
    /// application's arena if the application itself reports.
    pub free_bytes: u64,
    /// The counters of the reporting side of the link, by name.
    #[serde(deserialize_with = "counters")]
    pub counters: BTreeMap<String, u64>,
    /// Times in nanoseconds by name: the time spent on copying and, in the application's own report, the time spent on waiting.
    #[serde(deserialize_with = "counters")]
    pub times_ns: BTreeMap<String, u64>,
}

/// The memory, drops and times of a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackReport {
    /// The number of dropped packets for each drop reason.
    #[serde(deserialize_with = "counters")]
    pub drops: BTreeMap<String, u64>,
    /// The memory in use in bytes, for each purpose.
    #[serde(deserialize_with = "counters")]
    pub memory: BTreeMap<String, u64>,
    /// Times in nanoseconds by name: the time spent on waiting and the time spent on copying.
    #[serde(deserialize_with = "counters")]
    pub times_ns: BTreeMap<String, u64>,
    /// The number of TCP connections, not counting those in TIME-WAIT.
    pub connections: u64,
}

/// The sums of a guest's counters over all its links, since the guest's process began. Unlike the other parts of a report, they can be
/// requested every second from many guests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// The frames that the guest has sent to its partners and received from them. A large segment is one frame.
    pub traffic: Traffic,
    /// The number of packets and frames that the guest has dropped for any reason.
    pub dropped: u64,
    /// The number of buffers in all outgoing rings that exist now.
    pub buffers: u64,
    /// The number of those buffers that the partners have not given back yet.
    pub buffers_used: u64,
    /// The number of TCP connections, not counting those in TIME-WAIT.
    pub connections: u64,
}

/// Reads a map of counters from a message. The reporting guest may be hostile, so this function keeps at most [`COUNTERS_MAX`]
/// counters and cuts each name to [`COUNTER_NAME_BYTES_MAX`] bytes.
fn counters<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let all = BTreeMap::<String, u64>::deserialize(from)?;
    let few = all.into_iter().take(COUNTERS_MAX);
    Ok(few.map(|(name, value)| (cut(name, COUNTER_NAME_BYTES_MAX), value)).collect())
}

/// The frames that a station has sent to a switch and received from it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The number of sent frames.
    pub frames_sent: u64,
    /// The number of their bytes.
    pub bytes_sent: u64,
    /// The number of received frames.
    pub frames_received: u64,
    /// The number of their bytes.
    pub bytes_received: u64,
}

impl Traffic {
    /// Combines two counts number by number.
    pub(crate) fn with(self, other: Self, combine: fn(u64, u64) -> u64) -> Self {
        Self {
            frames_sent: combine(self.frames_sent, other.frames_sent),
            bytes_sent: combine(self.bytes_sent, other.bytes_sent),
            frames_received: combine(self.frames_received, other.frames_received),
            bytes_received: combine(self.bytes_received, other.bytes_received),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::{GuestEvent, Loss};

    #[test]
    fn a_text_of_a_message_is_cut_between_two_characters() {
        let long = "ä".repeat(5_000);
        let sent = serde_json::to_vec(&Loss::Violation(long)).unwrap();
        let Loss::Violation(text) = serde_json::from_slice(&sent).unwrap() else { panic!("another loss") };
        assert_eq!(text, "ä".repeat(siga_model::limits::TEXT_BYTES_MAX / 2));
        let error = siga_model::error::Error::usage("m".repeat(5_000)).hint("h".repeat(5_000));
        let GuestEvent::Failed(error) =
            serde_json::from_slice(&serde_json::to_vec(&GuestEvent::Failed(error)).unwrap()).unwrap()
        else {
            panic!("another event")
        };
        assert_eq!(error.message().len(), siga_model::limits::TEXT_BYTES_MAX);
        assert_eq!(error.way_out().map(str::len), Some(siga_model::limits::TEXT_BYTES_MAX));
    }

    #[test]
    fn the_counters_of_a_report_are_cut_in_number_and_name() {
        let many = |prefix: &str| (0..1_000).map(|at| (format!("{prefix}{at:04}{}", "x".repeat(100)), at)).collect();
        let report = StackReport { drops: many("a"), memory: many("b"), ..StackReport::default() };
        let sent = serde_json::to_vec(&ReportPart::Stack(report)).unwrap();
        let ReportPart::Stack(report) = serde_json::from_slice(&sent).unwrap() else { panic!("another part") };
        assert_eq!((report.drops.len(), report.memory.len()), (COUNTERS_MAX, COUNTERS_MAX));
        assert!(report.drops.keys().all(|name| name.len() == COUNTER_NAME_BYTES_MAX));
    }
}
