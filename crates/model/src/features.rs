//! How guests move frames between their stacks and the rings, and where they run: features that can each be switched alone, so
//! that what each is worth can be measured.

use serde::{Deserialize, Serialize};

/// The features of a network's drivers; all are on where nothing is said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DriverFeatures {
    /// Packets share a buffer of HiperSockets as far as they fit (a virtual CTC's always do).
    pub packing: bool,
    /// A doorbell is rung where the partner asked for it, not at every hand-over.
    pub suppress_doorbells: bool,
    /// A packet that is passed on goes from ring to ring, not by way of private memory.
    pub copy_once: bool,
    /// Checksums of TCP and UDP are left out on links from memory to memory.
    pub omit_checksums: bool,
    /// TCP segments of up to 64 KB cross a link whole, whatever its MTU.
    pub large_segments: bool,
    /// What is received lies in the ring until it is read, and where a full partner is waited for
    /// ([`Full::Pending`](crate::topology::Full)), what an application writes to an embedded stack lies there until it is
    /// acknowledged; not in buffers of their own.
    #[serde(alias = "in_place")]
    pub zero_copy: bool,
    /// Guests and applications that sleep move to the CPU of whoever rings for them, where that pays.
    #[serde(alias = "gather")]
    pub colocate: bool,
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
        }
    }
}

impl DriverFeatures {
    /// Former names, which files may still have, each with the name from now on.
    pub const FORMER_NAMES: [(&str, &str); 2] = [("in_place", "zero_copy"), ("gather", "colocate")];

    /// Every feature by its name in topologies, and whether it is on.
    pub fn features(mut self) -> [(&'static str, bool); 7] {
        self.switches().map(|(name, is_on)| (name, *is_on))
    }

    /// The same, to be switched.
    pub fn switches(&mut self) -> [(&'static str, &mut bool); 7] {
        let Self { packing, suppress_doorbells, copy_once, omit_checksums, large_segments, zero_copy, colocate } = self;
        [
            ("packing", packing),
            ("suppress_doorbells", suppress_doorbells),
            ("copy_once", copy_once),
            ("omit_checksums", omit_checksums),
            ("large_segments", large_segments),
            ("zero_copy", zero_copy),
            ("colocate", colocate),
        ]
    }
}
