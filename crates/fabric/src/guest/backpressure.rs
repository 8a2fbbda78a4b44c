//! Holds: a router leaves packets where they are while the partner that they are for has no empty buffer.
//!
//! A packet that is taken in and cannot be sent on has to be copied to private memory, and to the partner's ring later; of many
//! that wait some are dropped in the end. Left in the ring of who sent them, they cost nothing, and their sender notices that
//! it is too fast. What is behind them in that ring waits too. So only a link is held that has brought nothing for anybody
//! else of late, and only for a moment: a partner that does not go on in time holds nobody until it has caught up.

use siga_ring::clock::Ticks;

/// How long holds last.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// A hold, at most.
    pub(crate) backpressure: Ticks,
    /// A link that brought packets for two partners is not held for so long.
    pub(crate) mixed: Ticks,
}

/// What a router knows of the packets that one link brings.
#[derive(Debug, Default)]
pub(crate) struct Backpressure {
    /// The link that the latest went to.
    to: Option<usize>,
    /// Until then there were others of late.
    mixed_until: Ticks,
    /// Until then nothing is taken.
    until: Option<Ticks>,
}

impl Backpressure {
    /// A packet was passed on.
    pub(crate) fn forwarded(&mut self, now: Ticks, times: Times, to: usize) {
        if self.to.replace(to).is_some_and(|before| before != to) {
            self.mixed_until = Ticks(now.0 + times.mixed.0);
        }
    }

    /// Where the latest packet went to there is no buffer for the next, which is waited for if it may be.
    pub(crate) fn begin(&mut self, now: Ticks, times: Times) {
        if now >= self.mixed_until {
            self.until = Some(Ticks(now.0 + times.backpressure.0));
        }
    }

    /// The link that is waited for, and how long.
    pub(crate) fn waits_for(&self) -> Option<(usize, Ticks)> {
        self.to.zip(self.until)
    }

    /// Packets are taken again.
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
    fn a_link_for_one_partner_is_held_for_a_time() {
        let mut backpressure = Backpressure::default();
        backpressure.forwarded(Ticks(5), TIMES, 2);
        assert_eq!(backpressure.waits_for(), None);
        assert_eq!(begun(&mut backpressure, Ticks(6)), Some((2, Ticks(16))));
    }

    #[test]
    fn a_link_for_two_partners_is_not_held_until_one_is_left() {
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
