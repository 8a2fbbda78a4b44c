//! What a guest's stack reports about its process's time and its losses; also what an application reports about
//! itself.

use serde::{Deserialize, Serialize};
use siga_fabric::protocol::report::{DeviceReport, ReportPart};
use siga_results::record::{DEVICE_COUNTERS, GuestTimes};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counters of a guest since it began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCounters {
    /// How its process used its time.
    pub times: GuestTimes,
    /// Frames that its devices could not send.
    pub drops: u64,
    /// Packets that its stack dropped, by reason.
    pub stack_drops: BTreeMap<String, u64>,
    /// The settings of its devices, one entry each.
    pub devices: BTreeMap<String, String>,
    /// What its devices have counted, by device and [counter](DEVICE_COUNTERS): `lan doorbells_sent`.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
}

/// How a guest used its time, from the times that its stack reports by name.
fn guest_times(times_ns: &BTreeMap<String, u64>) -> GuestTimes {
    let time = |name: &str| times_ns.get(name).copied().unwrap_or(0);
    GuestTimes {
        copying_ns: time("copying"),
        looking_ns: time("waiting").saturating_sub(time("yielding")),
        yielding_ns: time("yielding").saturating_sub(time("given_away")),
        colocated_ns: time("colocated"),
    }
}

impl GuestCounters {
    /// From a guest's report.
    pub fn of(parts: &[ReportPart]) -> Self {
        let mut counters = Self::default();
        for part in parts {
            match part {
                ReportPart::Device(device) => {
                    for lost in ["target_full", "backlog_full", "no_partner", "too_long"] {
                        counters.drops += device.counters.get(lost).copied().unwrap_or(0);
                    }
                    let name = device.device.name.to_string();
                    for counter in DEVICE_COUNTERS {
                        let count = device.counters.get(counter).copied().unwrap_or(0);
                        counters.counted.insert(format!("{name} {counter}"), count);
                    }
                    counters.devices.insert(name, settings(device));
                }
                ReportPart::Link(_) => {}
                // An application's report about itself; a guest's report about an application is part of the guest's
                // own times.
                ReportPart::Application(application) if application.application.is_none() => {
                    counters.times = guest_times(&application.times_ns);
                }
                ReportPart::Application(_) => {}
                ReportPart::Stack(stack) => {
                    counters.times = guest_times(&stack.times_ns);
                    counters.stack_drops.clone_from(&stack.drops);
                }
            }
        }
        counters
    }
}

/// A device in one line.
fn settings(report: &DeviceReport) -> String {
    let device = &report.device;
    let mut words = format!(
        "mtu={} type={} buffer_bytes={} buffer_count={} full={}",
        device.mtu,
        device.kind.name(),
        device.kind.buffer_bytes(),
        device.buffer_count,
        device.full.name(),
    );
    for (feature, is_on) in device.features.named() {
        let _ = write!(words, " {feature}={is_on}");
    }
    words
}
