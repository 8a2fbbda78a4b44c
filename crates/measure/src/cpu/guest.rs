//! Counters of a guest (a process that runs a stack of siga): how the process used CPU time, and how many frames and packets it
//! dropped. An application that uses a guest's stack reports counters about itself in the same form.

use serde::{Deserialize, Serialize};
use siga_fabric::protocol::message::OutboundLink;
use siga_fabric::protocol::report::{DeviceReport, ReportPart};
use siga_results::record::{DEVICE_COUNTERS, GuestTimes};
use std::collections::BTreeMap;
use std::fmt::Write;

/// Counters of a guest since the guest started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestCounters {
    /// How the guest's process used its CPU time.
    pub times: GuestTimes,
    /// Number of frames that the guest's devices could not send.
    pub drops: u64,
    /// Number of packets that the guest's stack dropped. The key is the drop reason.
    pub stack_drops: BTreeMap<String, u64>,
    /// Settings of the guest's devices. The key is the name of a device, the value its settings as one line of text.
    pub devices: BTreeMap<String, String>,
    /// Counters of the guest's devices. A key consists of the name of the device, a space and the name of the
    /// [counter](DEVICE_COUNTERS): `lan doorbells_sent`.
    #[serde(default)]
    pub counted: BTreeMap<String, u64>,
}

/// Selects the times that siga records from all times that a guest's stack reports by name.
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
    /// Collects the counters from the parts of a guest's report.
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
                ReportPart::Link(_) | ReportPart::Totals(_) | ReportPart::Addresses { .. } => {}
                // In this part, an application reports its own times. The other form, in which a guest reports on one of its
                // applications, is skipped, because the guest's own times include this work.
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

impl GuestCounters {
    /// Adds the counters of another guest, with `prefix` before the names of its devices.
    pub(crate) fn add(&mut self, other: &Self, prefix: &str) {
        self.times = self.times.plus(other.times);
        self.drops += other.drops;
        for (reason, count) in &other.stack_drops {
            *self.stack_drops.entry(reason.clone()).or_default() += count;
        }
        self.devices.extend(other.devices.iter().map(|(name, text)| (format!("{prefix}{name}"), text.clone())));
        self.counted.extend(other.counted.iter().map(|(name, count)| (format!("{prefix}{name}"), *count)));
    }
}

/// Returns the settings of a device as one line of text.
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
    if let Some(OutboundLink { link, .. }) = &device.link {
        let _ = write!(words, " link={link}");
    }
    words
}
