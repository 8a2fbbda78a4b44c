//! Driver features: how guests move frames between their stacks and the rings, and on which CPU they run.
//!
//! Each feature can be switched on or off by itself, so that a run can measure its effect.

use serde::{Deserialize, Serialize};

/// The driver features of a network. By default all are on but `direct`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DriverFeatures {
    /// Several packets share one HiperSockets buffer. (Packets on a virtual CTC always share buffers.)
    pub packing: bool,
    /// The sender notifies its partner only at the partner's notify threshold, not each time it publishes buffers.
    pub suppress_doorbells: bool,
    /// A router copies a packet from ring to ring once, not through private memory.
    pub copy_once: bool,
    /// TCP and UDP omit checksums on memory links.
    pub omit_checksums: bool,
    /// A link carries TCP segments of up to 64 KB without cutting them, whatever its MTU is.
    pub large_segments: bool,
    /// Received bytes stay in the ring until the application reads them. With [`Full::Pending`](crate::topology::Full), bytes that an
    /// application writes to an embedded stack stay in the ring until the peer acknowledges them.
    #[serde(alias = "in_place")]
    pub zero_copy: bool,
    /// A sleeping guest or application moves to the CPU of the process that notifies it, while that saves time.
    #[serde(alias = "gather")]
    pub colocate: bool,
    /// The applications of guests exchange the bytes of their connections by memory that they share, on all HiperSockets networks
    /// (`docs/direct.md`).
    pub direct: bool,
}

impl Default for DriverFeatures {
    fn default() -> Self {
        Self {
            packing: true,
            suppress_doorbells: true,
            copy_once: true,
            omit_checksums: true,
            large_segments: true,
            zero_copy: true,
            colocate: true,
            direct: false,
        }
    }
}

impl DriverFeatures {
    /// Old names that files may still contain, each with its new name.
    pub const FORMER_NAMES: [(&str, &str); 2] = [("in_place", "zero_copy"), ("gather", "colocate")];

    /// Returns the name of each feature in topology files, and whether the feature is on.
    pub fn named(mut self) -> [(&'static str, bool); 8] {
        self.switches().map(|(name, is_on)| (name, *is_on))
    }

    /// Returns the name of each feature, and a reference to its switch.
    pub fn switches(&mut self) -> [(&'static str, &mut bool); 8] {
        let Self {
            packing,
            suppress_doorbells,
            copy_once,
            omit_checksums,
            large_segments,
            zero_copy,
            colocate,
            direct,
        } = self;
        [
            ("packing", packing),
            ("suppress_doorbells", suppress_doorbells),
            ("copy_once", copy_once),
            ("omit_checksums", omit_checksums),
            ("large_segments", large_segments),
            ("zero_copy", zero_copy),
            ("colocate", colocate),
            ("direct", direct),
        ]
    }
}
