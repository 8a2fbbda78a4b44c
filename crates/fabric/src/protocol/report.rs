//! Reports: a guest reports its counters and settings in several parts, because each part must fit into one message.

use super::message::{GuestDevice, MemberId};
use crate::limits::{COUNTER_NAME_BYTES_MAX, COUNTERS_MAX};
use serde::{Deserialize, Deserializer, Serialize};
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
    /// One application of the guest. The report of an application about itself has only this part.
    Application(ApplicationReport),
    /// The stack's memory, drops and times. This part is the last part of a guest's report.
    Stack(StackReport),
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

/// The link between an application and its guest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplicationReport {
    /// The application's number from the control program. `None` in the report of the application itself, which does not know the
    /// number.
    pub application: Option<u64>,
    /// The number of the application's sockets, including closed sockets that still have bytes to send.
    pub sockets: u64,
    /// Free bytes in the arena of the reporting process: the guest's arena, or the application's arena if the application itself
    /// reports.
    pub free_bytes: u64,
    /// The counters of the reporting side of the link, by name.
    #[serde(deserialize_with = "counters")]
    pub counters: BTreeMap<String, u64>,
    /// Times in nanoseconds by name: time spent copying and, in the application's own report, time spent waiting.
    #[serde(deserialize_with = "counters")]
    pub times_ns: BTreeMap<String, u64>,
}

/// The memory, drops and times of a stack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StackReport {
    /// The numbers of dropped packets, by drop reason.
    #[serde(deserialize_with = "counters")]
    pub drops: BTreeMap<String, u64>,
    /// Memory in use in bytes, by purpose.
    #[serde(deserialize_with = "counters")]
    pub memory: BTreeMap<String, u64>,
    /// Times in nanoseconds by name: time spent waiting and time spent copying.
    #[serde(deserialize_with = "counters")]
    pub times_ns: BTreeMap<String, u64>,
    /// The number of TCP connections, without those in TIME-WAIT.
    pub connections: u64,
}

/// Reads counters from a message and limits them, because the reporting guest may be hostile. It keeps at most [`COUNTERS_MAX`]
/// counters, and cuts each name to [`COUNTER_NAME_BYTES_MAX`] bytes.
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
