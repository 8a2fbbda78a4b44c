//! The properties of a link without faults (its [`Wire`]), and what can go wrong on it (its [`Faults`]). A schedule can change
//! both during a run. Each direction of a link has its own faults.
//!
//! The faults of a link decide what happens to each frame: its fates. The names of the fates are used in counters and traces.

use std::fmt;

use siga_stack::time::Duration;

use crate::rng::Ppm;

/// The kind of frames on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Ethernet frames. The MTU does not include their header of 14 bytes.
    Ethernet,
    /// IP packets without a link header.
    Ip,
}

impl Medium {
    /// Returns the length in bytes of the link header, which the MTU does not include.
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Ethernet => 14,
            Self::Ip => 0,
        }
    }
}

/// The properties of a link without faults. If `delay` is zero and the rate is not limited, a frame arrives at the time at which
/// it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    /// The kind of frames on the link.
    pub medium: Medium,
    /// The MTU: length of the largest IP packet in bytes.
    pub mtu: usize,
    /// Propagation delay: the time between sending and receiving the same bit.
    pub delay: Duration,
    /// Rate of the link in bits per second. With `None`, sending a frame takes no time.
    pub rate_bits_per_s: Option<u64>,
    /// Maximum number of frames in the send queue, including the frame that is being transmitted.
    pub queue_frames_max: usize,
    /// True if both ends negotiated marked frames: large segments, and frames with the checksum left out.
    pub marks_agreed: bool,
}

impl Wire {
    /// Ethernet with an MTU of 1,500 bytes, no delay and no rate limit.
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

/// What goes wrong in one direction of a link. By default, nothing goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// Probability that a frame is lost, independently of other frames.
    pub loss: Ppm,
    /// Losses in bursts, which are added to the losses by `loss`.
    pub burst: Option<Burst>,
    /// Probability that bits of a frame are flipped.
    pub corrupt: Ppm,
    /// Maximum number of bits that are flipped in one corrupted frame. The minimum is one.
    pub corrupt_bits_max: u8,
    /// True if a checksum must detect every corruption. Then corruption only sets bits and never clears them, and ARP packets,
    /// which have no checksum, are not corrupted.
    ///
    /// The reason: the Internet checksum misses two opposite flips in the same column of two words. In a datagram of many
    /// fragments, such flips are likely. If bits are only set, the checksum detects any small number of changes. A frame with its
    /// checksum left out is never corrupted.
    pub corrupt_only_sets: bool,
    /// Probability that bytes are cut off at the end of a frame. At least one byte remains.
    pub truncate: Ppm,
    /// Probability that a frame arrives twice.
    pub duplicate: Ppm,
    /// Maximum time between the arrivals of a duplicated frame and its second copy.
    pub duplicate_by: Duration,
    /// Probability that a frame is delayed so that later frames can overtake it.
    pub reorder: Ppm,
    /// Maximum additional delay of a frame that reordering delays.
    pub reorder_by: Duration,
    /// Maximum of a random delay that each frame has. This jitter never changes the order of frames.
    pub jitter: Duration,
    /// Frames with more than this many bytes are dropped without notice. With `Some(0)`, all frames are dropped.
    pub black_hole_over: Option<usize>,
    /// If more than this many frames are in the send queue, a frame whose sender supports ECN is marked (CE), as by a router with active
    /// queue management.
    pub mark_over: Option<usize>,
}

impl Faults {
    /// No faults.
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
        mark_over: None,
    };
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// Losses in bursts, as in the model of Gilbert and Elliott with two states. In the good state no frame is lost. In the bad state
/// a frame is lost with the probability `loss`. The state may change before each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Probability that the good state changes to the bad state.
    pub begin: Ppm,
    /// Probability that the bad state changes to the good state. So a burst lasts for 1/`end` frames on average.
    pub end: Ppm,
    /// Probability that a frame is lost in the bad state.
    pub loss: Ppm,
}

/// What happened to a frame. Some fates mean that the frame was dropped; the others that it was changed or delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The frame was lost independently of other frames ([`Faults::loss`]).
    Lost,
    /// The frame was lost in a burst of losses ([`Faults::burst`]).
    BurstLost,
    /// The frame was dropped because the send queue of the link was full.
    QueueFull,
    /// The frame was dropped because it was longer than [`Faults::black_hole_over`].
    BlackHoled,
    /// The frame was dropped because it was longer than the link's MTU permits.
    TooLong,
    /// The frame was dropped because the link had no carrier when the frame was sent, or lost its carrier before the frame
    /// arrived.
    NoCarrier,
    /// The frame was dropped because a limit on the frames or bytes in flight was reached.
    TooManyInFlight,
    /// Some bits of the frame were flipped.
    Corrupted,
    /// Bytes at the end of the frame were cut off.
    Truncated,
    /// The frame arrives twice.
    Duplicated,
    /// The frame was delayed, so that other frames can overtake it.
    HeldBack,
    /// The frame was marked because of congestion ([`Faults::mark_over`]).
    Marked,
}

impl Fate {
    /// All fates, in the order of their declaration.
    pub const ALL: [Self; 12] = [
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
        Self::Marked,
    ];

    /// Returns the fate's name in traces and counters.
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
            Self::Marked => "marked",
        }
    }

    /// Returns true if a frame with this fate does not arrive.
    pub const fn is_drop(self) -> bool {
        !matches!(self, Self::Corrupted | Self::Truncated | Self::Duplicated | Self::HeldBack | Self::Marked)
    }

    /// Returns the index of the fate in [`Fate::ALL`].
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
