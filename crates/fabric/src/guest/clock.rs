//! The clock of a guest's stack, which is derived from the clock of the rings.

use siga_ring::clock::{Rate, Ticks};
use siga_stack::time::Instant;
use std::time::Duration;

/// Converts between times of the ring's clock and times of the stack.
#[derive(Debug)]
pub(super) struct Clock {
    start: Ticks,
    pub(super) rate: Rate,
    /// The time at which a test has stopped the clock; `None` if the clock runs.
    #[cfg(test)]
    pub(super) stands: Option<Ticks>,
}

impl Clock {
    pub(super) fn new(start: Ticks, rate: Rate) -> Self {
        Self {
            start,
            rate,
            #[cfg(test)]
            stands: None,
        }
    }

    /// Returns the current time.
    #[inline]
    pub(super) fn now(&self) -> Ticks {
        #[cfg(test)]
        if let Some(moment) = self.stands {
            return moment;
        }
        Ticks::now()
    }

    #[inline]
    pub(super) fn instant(&self, now: Ticks) -> Instant {
        Instant::from_ns(self.rate.ns(now.since(self.start)))
    }

    #[inline]
    pub(super) fn ticks(&self, at: Instant) -> Ticks {
        Ticks(self.start.0 + self.rate.ticks(at.as_ns()).0)
    }

    #[inline]
    pub(super) fn span(&self, time: Duration) -> Ticks {
        self.rate.span(time)
    }
}
