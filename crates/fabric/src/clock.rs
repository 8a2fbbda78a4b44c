//! The clock of a guest's stack, which is derived from the clock of the rings.

use siga_ring::clock::{Rate, Ticks};
use siga_stack::time::Instant;
use std::time::{Duration, SystemTime};

/// Converts between times of the ring's clock and times of the stack.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Ticks,
    pub(crate) rate: Rate,
    /// The time at which a test has stopped the clock; `None` if the clock runs.
    #[cfg(test)]
    pub(crate) stands: Option<Ticks>,
}

impl Clock {
    pub(crate) fn new(start: Ticks, rate: Rate) -> Self {
        Self {
            start,
            rate,
            #[cfg(test)]
            stands: None,
        }
    }

    /// Returns the current time.
    #[inline]
    pub(crate) fn now(&self) -> Ticks {
        #[cfg(test)]
        if let Some(moment) = self.stands {
            return moment;
        }
        Ticks::now()
    }

    #[inline]
    pub(crate) fn instant(&self, now: Ticks) -> Instant {
        Instant::from_ns(self.rate.ns(now.since(self.start)))
    }

    /// Returns the time on the clock of the host (`CLOCK_REALTIME`) at which the clock of the stack showed `at`.
    pub(crate) fn wall_time(&self, at: Instant) -> SystemTime {
        let ago = self.instant(self.now()).since(at);
        SystemTime::now() - Duration::from_nanos(ago.as_nanos())
    }

    #[inline]
    pub(crate) fn ticks(&self, at: Instant) -> Ticks {
        Ticks(self.start.0 + self.rate.ticks(at.as_ns()).0)
    }

    #[inline]
    pub(crate) fn span(&self, time: Duration) -> Ticks {
        self.rate.span(time)
    }
}
