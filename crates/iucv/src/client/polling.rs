//! Polling for a short time before a thread sleeps, in a client whose caller sleeps itself ([`Client::without_wake`]).
//!
//! If another application writes to shared memory from another CPU, its bytes often arrive sooner than a sleeping thread could be
//! woken. If it needs the CPU of the polling thread, they cannot arrive. So the client counts how often polling finds something, and
//! polls only while it often does.

use super::Client;
use super::link::Waits;
use siga_ring::clock::{Rate, Ticks};

/// The longest time of polling. A thread that sleeps on an idle CPU takes about as long to wake up, so a wait that polls without
/// success takes at most about twice the time of one that sleeps at once.
const POLL_NS_MAX: u64 = 50_000;
/// Minimum of [`Polling::success`] for which a wait polls: half of the waits that polled have found something.
const SUCCESS_MIN: u32 = SUCCESS_ALWAYS / 2;
/// The value of [`Polling::success`] if all waits that polled have found something.
const SUCCESS_ALWAYS: u32 = 1_024;
/// The latest wait has a weight of 1/8 in the moving average.
const SHARE: u32 = 8;
/// While polling rarely finds something, one of this many waits after short sleeps polls, to find out whether it does again. The number
/// begins with the first value, and doubles with each attempt without success, up to the second one.
const TRIAL: (u32, u32) = (32, 1_024);
/// The longest duration of a short sleep. Polling instead of a longer sleep would not have found anything.
const SHORT_SLEEP_NS: u64 = 2 * POLL_NS_MAX;
/// The longest time between two looks. If it takes longer, another thread has used the CPU, and polling keeps others from it.
const LOOK_NS_MAX: u64 = 20_000;

/// Decides whether a wait polls.
#[derive(Debug)]
pub(super) struct Polling {
    /// Whether the client may poll at all.
    allowed: bool,
    /// Moving average of the fraction of waits that found something by polling, in units of 1/1,024.
    success: u32,
    /// Number of waits after short sleeps, since the last attempt.
    waits: u32,
    /// How many such waits the next attempt follows.
    interval: u32,
    /// Whether the last sleep was short.
    after_short_sleep: bool,
    /// Times of the end of polling and of the latest look.
    end: Ticks,
    looked: Ticks,
}

impl Default for Polling {
    fn default() -> Self {
        Self {
            allowed: false,
            success: 0,
            waits: 0,
            interval: TRIAL.0,
            after_short_sleep: false,
            end: Ticks::default(),
            looked: Ticks::default(),
        }
    }
}

impl Polling {
    fn begins(&mut self) -> bool {
        self.waits = self.waits.saturating_add(u32::from(self.after_short_sleep));
        let begins =
            self.allowed && (self.success >= SUCCESS_MIN || self.after_short_sleep && self.waits >= self.interval);
        if begins {
            self.waits = 0;
        }
        begins
    }

    fn ended(&mut self, found: bool) {
        self.success -= self.success / SHARE;
        if found {
            self.success += SUCCESS_ALWAYS / SHARE;
            self.interval = TRIAL.0;
        } else if self.success < SUCCESS_MIN {
            self.interval = (2 * self.interval).min(TRIAL.1);
        }
    }
}

impl Client {
    /// Lets waits poll for a short time before they sleep, while the client shares memory with other applications.
    pub fn allow_polling(&mut self) {
        self.polling.allowed = true;
    }

    /// Begins to poll before a sleep. Returns false if this wait does not poll. Otherwise, the caller calls [`Client::poll`] until it
    /// returns a result.
    pub fn begin_polling(&mut self) -> bool {
        let polls = self.ended.is_none() && !self.direct.is_empty() && self.polling.begins();
        if polls {
            let now = Ticks::now();
            self.polling.looked = now;
            self.polling.end = Ticks(now.0.saturating_add(Rate::new().ticks(POLL_NS_MAX).0));
        }
        polls
    }

    /// Polls once. Returns whether there is something for [`Client::work`], or `None` if the caller should call this method again.
    /// `is_disturbed` ends polling, because another thread may need the CPU.
    pub fn poll(&mut self, is_disturbed: bool) -> Option<bool> {
        let found = self.ended.is_some() || Waits { link: &mut self.link, direct: &mut self.direct }.look();
        let now = Ticks::now();
        let gap = now.since(std::mem::replace(&mut self.polling.looked, now));
        let is_over = is_disturbed || now >= self.polling.end || gap > Rate::new().ticks(LOOK_NS_MAX);
        if !found && !is_over {
            return None;
        }
        self.polling.ended(found && !is_disturbed);
        Some(found)
    }

    /// Records the time at which a sleep began that ends now.
    pub fn slept_since(&mut self, begun: Ticks) {
        self.polling.after_short_sleep = Ticks::now().since(begun) <= Rate::new().ticks(SHORT_SLEEP_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns how many of `waits` poll, if each that polls finds something (or nothing).
    fn polls(polling: &mut Polling, waits: usize, finds: bool) -> usize {
        let wait = |_: &usize| {
            let polls = polling.begins();
            if polls {
                polling.ended(finds);
            }
            polls
        };
        (0..waits).filter(wait).count()
    }

    #[test]
    fn waits_poll_only_while_polling_often_finds_something() {
        let mut polling = Polling { after_short_sleep: true, ..Polling::default() };
        assert_eq!(polls(&mut polling, 320, true), 0, "not allowed");
        polling.allowed = true;
        polling.waits = 0;
        assert_eq!(polls(&mut polling, 32 + 64 + 128 + 256 + 512 + 1_024, false), 6, "fewer and fewer attempts");
        assert_eq!(polls(&mut polling, 10_240, false), 10, "one of 1,024 waits tries");
        assert_eq!(polls(&mut polling, 1_024, true), 1);
        let begins = polls(&mut polling, 320, true);
        assert!((100..320).contains(&begins), "after six attempts with success, all waits poll: {begins}");
        assert_eq!(polls(&mut polling, 1_000, true), 1_000);
        let ends = polls(&mut polling, 400, false);
        assert!((7..=10).contains(&ends), "after six waits without success, fewer and fewer: {ends}");
        polling.after_short_sleep = false;
        assert_eq!(polls(&mut polling, 10_000, true), 0, "after long sleeps, none tries");
    }
}
