//! Reports: a guest's counters and settings, in parts that fit into messages.

use super::message::{GuestDevice, MemberId};
use crate::limits::{COUNTER_NAME_BYTES_MAX, COUNTERS_MAX};
use serde::{Deserialize, Deserializer, Serialize};
use siga_model::name::Name;
use siga_model::text::cut;
use std::collections::BTreeMap;

/// A part of a guest's report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReportPart {
    /// A device and the counters of all its links.
    Device(DeviceReport),
    /// One link.
    Link(LinkReport),
    /// An application of the guest. An application that reports about itself sends this part only.
    Application(ApplicationReport),
    /// The stack as a whole: the last part.
    Stack(StackReport),
}

/// A device's settings and counters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceReport {
    /// Its configuration.
    pub device: GuestDevice,
    /// Counters by name, including those of ended links.
    #[serde(deserialize_with = "counters")]
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
    #[serde(deserialize_with = "counters")]
    pub counters: BTreeMap<String, u64>,
}

/// The link between an application and its guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationReport {
    /// The number from the control program; none in the report of the application itself, which does not know it.
    pub application: Option<u64>,
    /// Its sockets, including closed ones that still send.
    pub sockets: u64,
    /// Free bytes in the guest's arena; in the report of the application itself, in its own arena.
    pub free_bytes: u64,
    /// Counters of this side of the link, by name.
    #[serde(deserialize_with = "counters")]
    pub counters: BTreeMap<String, u64>,
    /// Times in nanoseconds, by name: spent copying, and spent waiting in the application.
    #[serde(deserialize_with = "counters")]
    pub times_ns: BTreeMap<String, u64>,
}

/// The memory, drops and times of a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackReport {
    /// Packets dropped, by reason.
    #[serde(deserialize_with = "counters")]
    pub drops: BTreeMap<String, u64>,
    /// Bytes held, by purpose.
    #[serde(deserialize_with = "counters")]
    pub memory: BTreeMap<String, u64>,
    /// Times in nanoseconds, by name: spent waiting and copying.
    #[serde(deserialize_with = "counters")]
    pub times_ns: BTreeMap<String, u64>,
    /// TCP connections, without those in TIME-WAIT.
    pub connections: u64,
}

/// Reads counters and cuts them, because the reporting guest may be hostile: at most [`COUNTERS_MAX`] of them, each name at most
/// [`COUNTER_NAME_BYTES_MAX`].
fn counters<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let all = BTreeMap::<String, u64>::deserialize(from)?;
    let few = all.into_iter().take(COUNTERS_MAX);
    Ok(few.map(|(name, value)| (cut(name, COUNTER_NAME_BYTES_MAX), value)).collect())
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
