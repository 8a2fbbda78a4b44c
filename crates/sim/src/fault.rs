//! The properties of a link without faults (its wire), and what goes wrong on it (its faults). A schedule can change both over
//! time. Each direction of a link has its own faults.
//!
//! For each frame, the faults decide what happens to it: its fates. The names of the fates are also the keys of counters and the
//! words in traces.

use std::fmt;

use siga_stack::time::Duration;

use crate::rng::Ppm;

/// The kind of frames on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Medium {
    /// Ethernet frames, with a header of 14 bytes that the MTU does not count.
    Ethernet,
    /// IP packets without a link header.
    Ip,
}

impl Medium {
    /// Bytes of a frame that the link's MTU does not count.
    pub const fn header_bytes(self) -> usize {
        match self {
            Self::Ethernet => 14,
            Self::Ip => 0,
        }
    }
}

/// The properties of a link without faults. Without a delay and a rate limit, a frame arrives at the time at which it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wire {
    /// The kind of frames on the link.
    pub medium: Medium,
    /// The MTU: bytes of the largest packet.
    pub mtu: usize,
    /// Propagation delay: the time between sending and receiving the same bit.
    pub delay: Duration,
    /// Rate in bits per second. If none, sending a frame takes no time.
    pub rate_bits_per_s: Option<u64>,
    /// Maximum number of frames in the send queue, including the frame that is being sent.
    pub queue_frames_max: usize,
    /// Whether both ends agreed to accept marked frames: large segments, and frames with the checksum left out.
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
    /// Losses in bursts, in addition to `loss`.
    pub burst: Option<Burst>,
    /// Probability that bits of a frame are flipped.
    pub corrupt: Ppm,
    /// Maximum number of bits that are flipped in one frame; the minimum is one.
    pub corrupt_bits_max: u8,
    /// Whether corruption makes only changes that a checksum detects. Bits are then set but never cleared, and ARP, which has no
    /// checksum, is not changed. The Internet checksum misses two opposite flips in the same column of two words. Such flips are
    /// likely in a datagram of many fragments. If bits are only set, the checksum detects any small number of them. A frame with
    /// its checksum left out is never corrupted.
    pub corrupt_only_sets: bool,
    /// Probability that a frame loses bytes at its end. At least one byte remains.
    pub truncate: Ppm,
    /// Probability that a frame arrives twice.
    pub duplicate: Ppm,
    /// Maximum time between a frame and its second copy.
    pub duplicate_by: Duration,
    /// Probability that a frame is delayed, so that later frames overtake it.
    pub reorder: Ppm,
    /// Maximum time by which reordering delays a frame.
    pub reorder_by: Duration,
    /// Maximum random delay of every frame. Jitter never changes the order of frames.
    pub jitter: Duration,
    /// Frames longer than this many bytes are dropped without notice. At 0, all frames are dropped.
    pub black_hole_over: Option<usize>,
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
    };
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

/// Losses in bursts, after the model of Gilbert and Elliott. No frame is lost in the good state, and frames are lost in the bad
/// state. The state may change before each frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Burst {
    /// Probability of a change from the good state to the bad state.
    pub begin: Ppm,
    /// Probability of a change from the bad state to the good state. A burst lasts for 1/`end` frames on average.
    pub end: Ppm,
    /// Probability that a frame is lost in the bad state.
    pub loss: Ppm,
}

/// What happened to a frame. Some fates drop the frame; the others only change or delay it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fate {
    /// The frame was lost at random.
    Lost,
    /// The frame was lost in a burst.
    BurstLost,
    /// The send queue of the link was full.
    QueueFull,
    /// The frame was longer than [`Faults::black_hole_over`].
    BlackHoled,
    /// The frame was longer than the link's MTU allows.
    TooLong,
    /// The link had no carrier when the frame was sent, or lost its carrier before the frame arrived.
    NoCarrier,
    /// The bounds on frames or bytes in flight were reached.
    TooManyInFlight,
    /// Some bits of the frame were flipped.
    Corrupted,
    /// The end of the frame was cut off.
    Truncated,
    /// The frame arrives twice.
    Duplicated,
    /// The frame was delayed, so other frames may overtake it.
    HeldBack,
}

impl Fate {
    /// All fates in the order of their declaration.
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
        }
    }

    /// Whether a frame with this fate does not arrive.
    pub const fn is_drop(self) -> bool {
        !matches!(self, Self::Corrupted | Self::Truncated | Self::Duplicated | Self::HeldBack)
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
