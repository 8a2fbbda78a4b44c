//! Counters that come in a message: cut to a bound when the message is read.

use crate::limits::{COUNTER_NAME_BYTES_MAX, COUNTERS_MAX};
use serde::{Deserialize, Deserializer};
use siga_model::text::cut;
use std::collections::BTreeMap;

/// For serde: at most [`COUNTERS_MAX`] counters, each name at most [`COUNTER_NAME_BYTES_MAX`].
pub(crate) fn counters<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, u64>, D::Error> {
    let all = BTreeMap::<String, u64>::deserialize(from)?;
    let few = all.into_iter().take(COUNTERS_MAX);
    Ok(few.map(|(name, value)| (cut(name, COUNTER_NAME_BYTES_MAX), value)).collect())
}

#[cfg(test)]
mod tests {
    use crate::protocol::message::{GuestEvent, Loss};
    use crate::protocol::report::{ReportPart, StackReport};

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
            panic!("other news")
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
        assert_eq!((report.drops.len(), report.memory.len()), (super::COUNTERS_MAX, super::COUNTERS_MAX));
        assert!(report.drops.keys().all(|name| name.len() == super::COUNTER_NAME_BYTES_MAX));
    }
}
