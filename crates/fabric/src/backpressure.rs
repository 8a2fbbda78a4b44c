//! Back-pressure of a router: if the next partner has no empty buffer, the router leaves further packets in the ring in which they
//! arrive (decision 012).
//!
//! A packet that was received and cannot be forwarded has to be copied to private memory, and later to the partner's ring. If too
//! many packets wait there, further ones are dropped. In contrast, a packet that stays in the ring of its sender needs no
//! additional copy, and the sender slows down because that ring fills. But all later packets in the same ring wait too, whichever
//! partner they are for. So a router applies back-pressure only to a link whose recent packets were all for one partner, and only
//! for a short time.

use siga_ring::clock::Ticks;

/// Time limits of back-pressure.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// The longest time for which a link may be under back-pressure.
    pub(crate) backpressure: Ticks,
    /// How long a link gets no back-pressure after it has delivered packets for two different partners.
    pub(crate) mixed: Ticks,
}

/// The back-pressure of one link, and the links over which the link's recent packets were forwarded.
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    /// The link over which the latest packet was forwarded.
    to: Option<usize>,
    /// The time until which the link gets no back-pressure, because its recent packets were for different partners.
    mixed_until: Ticks,
    /// The time until which no frame is received from the link. `None` without back-pressure.
    until: Option<Ticks>,
}

impl Backpressure {
    /// Records that a packet of this link was forwarded over link `to`.
    #[inline]
    pub(crate) fn forwarded(&mut self, now: Ticks, times: Times, to: usize) {
        if self.to.replace(to).is_some_and(|before| before != to) {
            self.mixed_until = Ticks(now.0 + times.mixed.0);
        }
    }

    /// Begins back-pressure on this link, because the link over which its latest packet was forwarded has no empty buffer. Does
    /// nothing if the recent packets were forwarded over different links.
    pub(crate) fn begin(&mut self, now: Ticks, times: Times) {
        if now >= self.mixed_until {
            self.until = Some(Ticks(now.0 + times.backpressure.0));
        }
    }

    /// Returns the link that has to get an empty buffer before frames are received again, and the time at which the wait ends.
    /// `None` without back-pressure.
    #[inline]
    pub(crate) fn waits_for(&self) -> Option<(usize, Ticks)> {
        self.to.zip(self.until)
    }

    /// Ends back-pressure, so that frames of this link are received again.
    pub(crate) fn end(&mut self) {
        self.until = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: Times = Times { backpressure: Ticks(10), mixed: Ticks(1_000) };

    fn begun(backpressure: &mut Backpressure, now: Ticks) -> Option<(usize, Ticks)> {
        backpressure.begin(now, TIMES);
        let waits_for = backpressure.waits_for();
        backpressure.end();
        assert_eq!(backpressure.waits_for(), None);
        waits_for
    }

    #[test]
    fn a_link_for_one_partner_gets_back_pressure_for_a_time() {
        let mut backpressure = Backpressure::default();
        backpressure.forwarded(Ticks(5), TIMES, 2);
        assert_eq!(backpressure.waits_for(), None);
        assert_eq!(begun(&mut backpressure, Ticks(6)), Some((2, Ticks(16))));
    }

    #[test]
    fn a_link_for_two_partners_gets_no_back_pressure_until_one_is_left() {
        let mut backpressure = Backpressure::default();
        backpressure.forwarded(Ticks(5), TIMES, 2);
        backpressure.forwarded(Ticks(6), TIMES, 3);
        assert_eq!(begun(&mut backpressure, Ticks(7)), None);
        backpressure.forwarded(Ticks(500), TIMES, 3);
        assert_eq!(begun(&mut backpressure, Ticks(1_005)), None);
        assert!(begun(&mut backpressure, Ticks(1_006)).is_some(), "nothing for the other came in all that time");
        backpressure.forwarded(Ticks(1_007), TIMES, 2);
        assert_eq!(begun(&mut backpressure, Ticks(1_008)), None, "what was for one alone is for two again");
    }
}
