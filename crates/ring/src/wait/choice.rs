//! The choice between polling and sleeping under the policy `adaptive`, by trials (decision 031).
//!
//! Whether polling or sleeping carries more traffic depends on the host: on the distance between its CPUs, on the cost of a
//! wake-up, and on the other programs. All of these change while a network is up. So the waiter tries both and measures them.
//!
//! A trial only says something if all partners take part. The partners do not need to communicate: time is divided into slots by
//! the monotonic clock, which is the same for all processes of a host. In the first slot of a cycle every thread sleeps, in the
//! second every thread polls, and in the other slots each thread does what has moved more bytes. The second half of a slot is
//! measured, because threads need a while to move to one CPU or to leave it.
//!
//! This module reads no clock: times are arguments.

/// The two ways of waiting between which the policy `adaptive` chooses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// Poll while traffic is recent.
    Poll,
    /// Sleep, co-located with the partners, as the policy `block` does.
    Sleep,
}

/// Half of a slot. 8 ms are hundreds of transactions, and longer than most interruptions by other programs.
const HALF_NS: u64 = 8_000_000;
const SLOT_NS: u64 = 2 * HALF_NS;
/// Number of slots in a cycle after the choice has become reliable: two trials take 3% of a second.
const CYCLE: u64 = 64;
/// Number of slots in a cycle until [`RATIOS`] cycles are measured, if the last ratio is clearly for polling.
const FIRST_CYCLE: u64 = 32;
/// Number of slots in a cycle as long as the ratios leave the choice open. Each number of slots divides the larger ones, so that
/// threads with different cycles have their trials together.
const OPEN_CYCLE: u64 = 8;
/// A ratio below this is clearly for polling.
const CLEAR_RATIO: f64 = 0.8;
/// Number of cycles whose median decides. Another program may take the CPU during one of three trials.
const RATIOS: usize = 3;
/// The other way is chosen if it has moved this many times the bytes, so that noise changes nothing.
const ADVANTAGE_MIN: f64 = 1.1;
/// Least number of bytes in a trial. With less traffic, both ways move the same bytes, and the thread polls while traffic is recent.
const BYTES_MIN: u64 = 10_000;

/// A measurement of one way that has begun.
#[derive(Debug, Clone, Copy)]
struct Trial {
    way: Way,
    begun_ns: u64,
    moved: u64,
}

/// Chooses by trials.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    sleeps_more: bool,
    trial: Option<Trial>,
    /// The rate of sleeping in this cycle, in bytes per nanosecond.
    asleep: Option<f64>,
    /// Rates of sleeping, as multiples of those of polling, of the last cycles.
    ratios: [f64; RATIOS],
    measured: usize,
}

impl Choice {
    /// Updates the choice. `now_ns` is the monotonic clock, and `moved` the number of bytes that this thread has moved so far.
    /// Returns the way to wait from now on.
    pub(crate) fn update(&mut self, now_ns: u64, moved: u64) -> Way {
        if let Some(trial) = self.trial.take() {
            self.end(trial, now_ns, moved);
        }
        let (slot, is_second_half) = (now_ns / SLOT_NS, now_ns / HALF_NS % 2 == 1);
        let way = match slot % self.cycle() {
            0 => Way::Sleep,
            1 => Way::Poll,
            _ => return if self.sleeps_more { Way::Sleep } else { Way::Poll },
        };
        if is_second_half {
            self.trial = Some(Trial { way, begun_ns: now_ns, moved });
        }
        way
    }

    /// Returns the time from `now_ns` until the next call of `update` is due.
    pub(crate) fn due_in_ns(now_ns: u64) -> u64 {
        HALF_NS - now_ns % HALF_NS
    }

    /// Returns a choice that was made by trials.
    #[cfg(test)]
    pub(super) fn decided(sleeps_more: bool) -> Self {
        Self { sleeps_more, measured: RATIOS, ..Self::default() }
    }

    /// Returns whether a trial of a thread without measurements takes place or is about to.
    #[cfg(test)]
    pub(super) fn is_trial(&self, now_ns: u64) -> bool {
        let slot = now_ns / SLOT_NS % self.cycle();
        slot < 2 || slot == self.cycle() - 1
    }

    fn cycle(&self) -> u64 {
        match self.measured {
            RATIOS.. => CYCLE,
            0 => OPEN_CYCLE,
            measured if self.ratios[measured - 1] < CLEAR_RATIO => FIRST_CYCLE,
            _ => OPEN_CYCLE,
        }
    }

    fn end(&mut self, trial: Trial, now_ns: u64, moved: u64) {
        let (took, bytes) = (now_ns.saturating_sub(trial.begun_ns), moved.saturating_sub(trial.moved));
        // A trial that ended late contains other slots, and one that began late is short.
        let is_whole = (HALF_NS / 2..2 * HALF_NS).contains(&took) && bytes >= BYTES_MIN;
        let rate = is_whole.then(|| bytes as f64 / took as f64);
        match trial.way {
            Way::Sleep => self.asleep = rate,
            Way::Poll => {
                if let (Some(asleep), Some(polling)) = (self.asleep.take(), rate) {
                    self.learn(asleep / polling);
                }
            }
        }
    }

    fn learn(&mut self, ratio: f64) {
        self.ratios[self.measured % RATIOS] = ratio;
        self.measured = self.measured.saturating_add(1);
        let mut last = self.ratios;
        let last = &mut last[..self.measured.min(RATIOS)];
        last.sort_by(f64::total_cmp);
        // One ratio is not enough to leave the default, which is to poll. Of two, the smaller one decides.
        let median = if last.len() < 2 { 0.0 } else { last[(last.len() - 1) / 2] };
        let needed = if self.sleeps_more { ADVANTAGE_MIN.recip() } else { ADVANTAGE_MIN };
        self.sleeps_more = median > needed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CYCLE_NS: u64 = CYCLE * SLOT_NS;

    /// A thread on a host where sleeping and polling move some bytes per half of a slot.
    struct Thread {
        choice: Choice,
        now_ns: u64,
        moved: u64,
        way: Way,
        asleep: u64,
    }

    impl Thread {
        fn new() -> Self {
            let (choice, now_ns) = (Choice::default(), 100 * CYCLE_NS);
            Self { choice, now_ns, moved: 0, way: Way::Poll, asleep: 0 }
        }

        /// Lives for a time on a host where a half of a slot moves these numbers of bytes.
        fn live(&mut self, time_ns: u64, sleeping: u64, polling: u64) {
            let end = self.now_ns + time_ns;
            self.asleep = 0;
            while self.now_ns < end {
                self.way = self.choice.update(self.now_ns, self.moved);
                let due_ns = Choice::due_in_ns(self.now_ns);
                let is_asleep = self.way == Way::Sleep;
                self.moved += if is_asleep { sleeping } else { polling };
                self.asleep += if is_asleep { due_ns } else { 0 };
                self.now_ns += due_ns;
            }
        }
    }

    #[test]
    fn a_thread_polls_or_sleeps_by_what_moves_more_bytes() {
        for (sleeping, polling, wanted) in [(100_000, 250_000, Way::Poll), (250_000, 100_000, Way::Sleep)] {
            let mut thread = Thread::new();
            thread.live(CYCLE_NS, sleeping, polling);
            assert_eq!(thread.way, wanted);
            // Later, only the trials go the other way: one slot of 64.
            thread.live(CYCLE_NS, sleeping, polling);
            assert_eq!(thread.way, wanted);
            let other = if wanted == Way::Sleep { CYCLE_NS - thread.asleep } else { thread.asleep };
            assert_eq!(other, SLOT_NS, "{wanted:?}");
        }
    }

    #[test]
    fn a_thread_follows_when_the_host_changes() {
        let mut thread = Thread::new();
        thread.live(2 * CYCLE_NS, 100_000, 250_000);
        assert_eq!(thread.way, Way::Poll);
        thread.live(2 * CYCLE_NS, 250_000, 100_000);
        assert_eq!(thread.way, Way::Sleep, "two of three trials");
        thread.live(2 * CYCLE_NS, 100_000, 250_000);
        assert_eq!(thread.way, Way::Poll);
    }

    #[test]
    fn one_interrupted_trial_and_small_differences_change_nothing() {
        let mut thread = Thread::new();
        // Another program has the CPU during the first trial of polling.
        thread.live(3 * SLOT_NS, 100_000, 20_000);
        assert_eq!(thread.way, Way::Poll);
        thread.live(2 * CYCLE_NS, 100_000, 250_000);
        assert_eq!(thread.way, Way::Poll);
        thread.live(2 * CYCLE_NS, 109_000, 100_000);
        assert_eq!(thread.way, Way::Poll);
        thread.live(3 * CYCLE_NS, 120_000, 100_000);
        assert_eq!(thread.way, Way::Sleep);
        thread.live(3 * CYCLE_NS, 100_000, 109_000);
        assert_eq!(thread.way, Way::Sleep);
    }

    #[test]
    fn threads_of_one_host_have_their_trials_at_the_same_time() {
        let mut one = Thread::new();
        one.live(3 * CYCLE_NS, 100_000, 250_000);
        let mut other = Thread { now_ns: one.now_ns, ..Thread::new() };
        for _ in 0..2 {
            one.live(SLOT_NS, 100_000, 250_000);
            other.live(SLOT_NS, 100_000, 250_000);
            assert_eq!(one.way, other.way);
        }
    }

    #[test]
    fn a_thread_with_little_traffic_never_leaves_its_default() {
        let mut thread = Thread::new();
        thread.live(10 * CYCLE_NS, BYTES_MIN - 1, 0);
        assert_eq!((thread.way, thread.choice.measured), (Way::Poll, 0));
        // A thread that was asleep for longer than a trial has measured nothing.
        for at in 0..20 {
            thread.choice.update(thread.now_ns + at * CYCLE_NS + HALF_NS, at * 1_000_000);
        }
        assert_eq!(thread.choice.measured, 0);
    }
}
