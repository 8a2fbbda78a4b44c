//! Congestion control: how much a sender may have in flight.
//!
//! NewReno and CUBIC are algorithms of a window: an algorithm says how cwnd grows without loss, and how far a loss reduces it. BBR
//! computes cwnd and a pacing rate from a model of the path (`paced_sender.rs`).
//!
//! Loss recovery (PRR) and the retransmission timeout belong to the sender and are the same for all algorithms. The arithmetic
//! uses integers (bytes and milliseconds) instead of floating point, so that every machine computes the same values.

mod bbr;
pub(super) mod cubic;
mod newreno;

pub(super) use super::hystart::Progress;
use crate::time::{Duration, Instant};
use bbr::Bbr;
pub use bbr::BbrInfo;
pub(super) use bbr::{Acked, Sending};
use cubic::Cubic;
use newreno::NewReno;

/// An algorithm with its state for one connection.
pub(super) trait Algorithm {
    /// Returns cwnd after `acked` more bytes were acknowledged in the first slow start, and whether slow start ends.
    fn start(&mut self, window: Window, acked: u32, _: &Progress) -> (u32, bool) {
        (window.bytes.saturating_add(acked), false)
    }
    /// Returns cwnd after `acked` more bytes were acknowledged in congestion avoidance.
    fn grow(&mut self, now: Instant, window: Window, acked: u32, rtt: Duration) -> u32;
    /// Returns the new ssthresh after a loss, a congestion mark (ECN) or a timeout (RFC 5681 equation 4).
    fn reduce(&mut self, window: Window) -> u32;
    /// Records that a retransmission timeout caused the latest reduction.
    fn timed_out(&mut self) {}
    /// Restores the state before the latest reduction, because that reduction was spurious.
    fn undo(&mut self) {}
    /// Records that the application had nothing to send for `time`. This time must not count as time in which cwnd can grow.
    fn idle(&mut self, _time: Duration) {}
}

/// The sender's cwnd, and the payload of a full segment. Both are in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    pub(super) bytes: u32,
    pub(super) segment_bytes: u32,
}

/// The available congestion control algorithms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CongestionControl {
    /// NewReno (RFC 5681, RFC 6582).
    Reno,
    /// CUBIC (RFC 9438).
    #[default]
    Cubic,
    /// BBR, version 3 (draft-ietf-ccwg-bbr).
    Bbr,
}

impl CongestionControl {
    /// All available algorithms.
    pub const ALL: [Self; 3] = [Self::Reno, Self::Cubic, Self::Bbr];

    /// Returns the algorithm with this name, if there is one.
    pub fn by_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|control| control.name() == name)
    }

    /// Returns the name of the algorithm, as Linux spells it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reno => "reno",
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        }
    }

    /// Returns the state of the algorithm at the start of a connection.
    pub(super) fn control(self) -> Control {
        match self {
            Self::Reno => Control::Reno(NewReno::default()),
            Self::Cubic => Control::Cubic(Cubic::default()),
            Self::Bbr => Control::Bbr(Box::new(Bbr::new())),
        }
    }
}

/// The algorithm of a connection with its state. This is an enum instead of a boxed trait object, so that NewReno and CUBIC need no
/// allocation of their own. BBR has much more state, which other connections should not have to hold.
#[derive(Debug)]
pub(super) enum Control {
    Reno(NewReno),
    Cubic(Cubic),
    Bbr(Box<Bbr>),
}

impl Control {
    pub(super) fn algorithm(&mut self) -> &mut dyn Algorithm {
        match self {
            Self::Reno(reno) => reno,
            Self::Cubic(cubic) => cubic,
            Self::Bbr(bbr) => bbr.as_mut(),
        }
    }

    pub(super) fn kind(&self) -> CongestionControl {
        match self {
            Self::Reno(_) => CongestionControl::Reno,
            Self::Cubic(_) => CongestionControl::Cubic,
            Self::Bbr(_) => CongestionControl::Bbr,
        }
    }

    /// Returns true if the algorithm sets cwnd from a model of the path, instead of growing and reducing it.
    #[inline]
    pub(super) const fn is_model(&self) -> bool {
        matches!(self, Self::Bbr(_))
    }

    /// Returns the memory that the algorithm has allocated, in bytes.
    #[inline]
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Reno(_) | Self::Cubic(_) => 0,
            Self::Bbr(bbr) => size_of::<Bbr>() + bbr.sampler.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) const MSS: u32 = 1_000;

    /// Windows after each round trip of 100 ms.
    pub(super) fn rounds(control: &mut Control, mut bytes: u32, count: u32) -> Vec<u32> {
        let rtt = Duration::from_millis(100);
        (0..count)
            .map(|round| {
                let now = Instant::default() + rtt * round;
                for _ in 0..bytes / MSS {
                    bytes = control.algorithm().grow(now, Window { bytes, segment_bytes: MSS }, MSS, rtt);
                }
                bytes
            })
            .collect()
    }

    // RFC 5681 equation 4.
    #[test]
    fn no_reduction_sets_the_congestion_window_below_two_segments() {
        for choice in [CongestionControl::Reno, CongestionControl::Cubic] {
            let reduced = choice.control().algorithm().reduce(Window { bytes: MSS, segment_bytes: MSS });
            assert_eq!(reduced, 2 * MSS, "{choice:?}");
        }
    }

    #[test]
    fn an_unknown_name_of_a_congestion_control_is_refused() {
        assert!(CongestionControl::by_name("vegas").is_none());
        assert!(CongestionControl::ALL.iter().all(|choice| choice.control().kind() == *choice));
        assert_eq!(CongestionControl::by_name("cubic"), Some(CongestionControl::Cubic));
    }
}
