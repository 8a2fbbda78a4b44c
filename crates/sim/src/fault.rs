//! What a link is (its wire) and what goes wrong on it (its faults), each for one direction and each switchable over time.
//!
//! A fault decides the fate of one frame. Fates are at once the counters' keys and the words of the trace.

use std::fmt;

use siga_stack::time::Duration;

use crate::rng::Ppm;

/// What the frames of a link are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Ethernet frames: 14 bytes of header before what the MTU counts.
    Ethernet,
    /// IP packets without any link header.
    Ip,
}

impl Medium {
    /// Bytes of a frame that its link's MTU does not count.
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Ethernet => 14,
            Self::Ip => 0,
        }
    }
}

/// A link when nothing is wrong with it. An ideal one takes no time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    /// What its frames are.
    pub medium: Medium,
    /// Bytes of the largest packet that it carries.
    pub mtu: usize,
    /// Time from the last bit sent to the last bit received.
    pub delay: Duration,
    /// Bits a second; none: no time at all.
    pub rate_bits_per_s: Option<u64>,
    /// Frames that wait at most for the wire to be free; the frame being sent is one of them.
    pub queue_frames_max: usize,
    /// Both ends agreed to marks: large segments and unfilled checksums may cross it.
    pub marks_agreed: bool,
}

impl Wire {
    /// Ethernet of 1,500 bytes that takes no time.
    pub const fn ethernet() -> Self {
        Self {
            medium: Medium::Ethernet,
            mtu: 1_500,
            delay: Duration::ZERO,
            rate_bits_per_s: None,
            queue_frames_max: 1_000,
            marks_agreed: false,
        }
    }
}

/// What goes wrong in one direction. The default is nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// A frame is lost, independent of the others.
    pub loss: Ppm,
    /// Losses in bursts.
    pub burst: Option<Burst>,
    /// A frame has some bits flipped.
    pub corrupt: Ppm,
    /// The most bits that are flipped in a frame; at least one is.
    pub corrupt_bits_max: u8,
    /// Makes only changes that a checksum finds: bits are set and never cleared, and ARP, which has no checksum, stays whole. The
    /// Internet checksum misses two flips of one column in two words, which easily happens in a datagram of many fragments. It
    /// finds any few bits that are all set. A frame with an unfilled checksum stays whole in any case.
    pub corrupt_only_sets: bool,
    /// A frame loses some of its end; at least a byte stays.
    pub truncate: Ppm,
    /// A frame arrives twice.
    pub duplicate: Ppm,
    /// The second copy is later by at most this time.
    pub duplicate_by: Duration,
    /// A frame is delayed, so that later ones overtake it.
    pub reorder: Ppm,
    /// It is delayed by at most this time.
    pub reorder_by: Duration,
    /// Every frame is late by a random time up to this. The order stays.
    pub jitter: Duration,
    /// Frames longer than this many bytes vanish; 0: all of them.
    pub black_hole_over: Option<usize>,
}

impl Faults {
    /// Nothing is wrong.
    pub const NONE: Self = Self {
        loss: Ppm::NEVER,
        burst: None,
        corrupt: Ppm::NEVER,
        corrupt_bits_max: 1,
        corrupt_only_sets: false,
        truncate: Ppm::NEVER,
        duplicate: Ppm::NEVER,
        duplicate_by: Duration::ZERO,
        reorder: Ppm::NEVER,
        reorder_by: Duration::ZERO,
        jitter: Duration::ZERO,
        black_hole_over: None,
    };
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// Losses in bursts, as Gilbert and Elliott have them: a good state without loss and a bad one with it; before each frame
/// the state may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// From good to bad.
    pub begin: Ppm,
    /// From bad to good. Bursts are 1/`end` frames long on average.
    pub end: Ppm,
    /// A frame is lost in the bad state.
    pub loss: Ppm,
}

/// What happened to a frame. The first fates end it, the others change it on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// Lost by chance.
    Lost,
    /// Lost in a burst.
    BurstLost,
    /// The wire was busy and its queue full.
    QueueFull,
    /// Swallowed by a black hole.
    BlackHoled,
    /// More than the link's MTU.
    TooLong,
    /// No carrier when it was sent, or a carrier lost before it arrived.
    NoCarrier,
    /// More frames in flight than this world holds.
    TooManyInFlight,
    /// Some bits are flipped.
    Corrupted,
    /// Its end is missing.
    Truncated,
    /// A second copy follows.
    Duplicated,
    /// Others may overtake it.
    HeldBack,
}

impl Fate {
    /// All of them, in the order of their declaration.
    pub const ALL: [Self; 11] = [
        Self::Lost,
        Self::BurstLost,
        Self::QueueFull,
        Self::BlackHoled,
        Self::TooLong,
        Self::NoCarrier,
        Self::TooManyInFlight,
        Self::Corrupted,
        Self::Truncated,
        Self::Duplicated,
        Self::HeldBack,
    ];

    /// Its word in traces and counters.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::BurstLost => "burst_lost",
            Self::QueueFull => "queue_full",
            Self::BlackHoled => "black_holed",
            Self::TooLong => "too_long",
            Self::NoCarrier => "no_carrier",
            Self::TooManyInFlight => "too_many_in_flight",
            Self::Corrupted => "corrupted",
            Self::Truncated => "truncated",
            Self::Duplicated => "duplicated",
            Self::HeldBack => "held_back",
        }
    }

    /// Whether the frame does not arrive.
    pub const fn is_drop(self) -> bool {
        !matches!(self, Self::Corrupted | Self::Truncated | Self::Duplicated | Self::HeldBack)
    }

    /// Its place in [`Fate::ALL`].
    pub(crate) const fn index(self) -> usize {
        self as usize
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_fate_has_a_place_and_a_word_of_its_own() {
        for (at, fate) in Fate::ALL.into_iter().enumerate() {
            assert_eq!(fate.index(), at);
        }
        let mut labels: Vec<&str> = Fate::ALL.iter().map(|fate| fate.label()).collect();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Fate::ALL.len());
    }
}
