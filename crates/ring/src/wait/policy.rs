//! The waiting policy, which decides when a side polls, yields and sleeps. It reads no clock: times are arguments.
//!
//! A yield gives the CPU to another thread on the same CPU. If a yield is slow, an unrelated thread needs the CPU. If a thread sleeps
//! anyway, or if slow yields take more than half of the time of a polling thread, a period follows in which each wait sleeps
//! immediately instead of yielding. The length of the period is proportional to the duration of the yield (decisions 010 and 031).

use crate::clock::{Rate, Ticks};

/// The waiting policies. The crate `siga-model` has the same values for files and command lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Poll while traffic is recent, then yield, then sleep; or sleep as in mode `Block`, if trials show that this moves more bytes
    /// (decision 031).
    Adaptive,
    /// Poll and yield, never sleep. Descriptors are checked once in each millisecond of waiting.
    Poll,
    /// Sleep immediately, or after one yield if recent yields found traffic. If the partner runs on the same CPU, such a yield makes
    /// a notification and a wake-up unnecessary. A co-located thread yields up to twice.
    Block,
}

/// The thresholds of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// Time after the last traffic during which a wait polls.
    pub(super) traffic: Ticks,
    /// Minimum duration of a slow yield. A yield that takes longer than this means that an unrelated thread needs the CPU.
    slow_yield: Ticks,
    /// The shortest time of polling before the first yield.
    spin_min: Ticks,
    /// The longest time of polling before the first yield.
    spin_max: Ticks,
    /// Slow yields are remembered for this time. If they took more than half of it, other threads need the CPU.
    lost_time: Ticks,
    /// Minimum length of the period after a slow yield in which waits sleep immediately.
    crowded_min: Ticks,
    /// Maximum length of the period after a slow yield in which waits sleep immediately.
    crowded_max: Ticks,
}

/// Length of the period after a slow yield in which waits sleep immediately, as a multiple of the yield's duration. Slow yields
/// therefore take at most 1/33 of the time.
const CROWDED_FACTOR: u64 = 32;

impl Times {
    /// Returns siga's thresholds (decision 010). A yield takes under 1 us if no other thread needs the CPU. It takes over 100 us,
    /// the time slice of another process, if a busy process runs on the same CPU. Waking a process that sleeps on another CPU
    /// takes about 60 us. So polling for a millisecond after traffic saves time.
    pub(crate) fn new(rate: &Rate) -> Self {
        Self {
            traffic: rate.ticks(1_000_000),
            slow_yield: rate.ticks(100_000),
            spin_min: rate.ticks(200),
            spin_max: rate.ticks(5_000),
            lost_time: rate.ticks(100_000_000),
            crowded_min: rate.ticks(10_000_000),
            crowded_max: rate.ticks(1_000_000_000),
        }
    }
}

/// The next step of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Poll again.
    Look,
    /// Yield the CPU, then poll again.
    Yield,
    /// Check the descriptors too, without sleeping, because only they show that a peer has died.
    Glance,
    /// Request notifications and sleep.
    Sleep,
}

/// The state of a waiting policy.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    pub(super) mode: Mode,
    /// The way of waiting at present: `mode`, or `Block` while the policy `Adaptive` sleeps.
    pub(super) way: Mode,
    pub(super) times: Times,
    spin: Ticks,
    begun: Ticks,
    glanced: Ticks,
    has_yielded: bool,
    /// Number of further yields that the current wait may make before it sleeps (mode `Block`).
    yields_left: u32,
    /// True if the thread is co-located: its partners run on the same CPU.
    colocated: bool,
    last_traffic: Option<Ticks>,
    /// Time that slow yields have taken, which decays with the time since (`Times::lost_time`).
    lost: Ticks,
    /// Time of the last slow yield, or of the end of the crowded period after it.
    lost_at: Ticks,
    /// End of the period after a slow yield in which waits sleep immediately.
    crowded_until: Option<Ticks>,
    /// Moving average of the success of yields in mode `Block`: the fraction of yields that found traffic, in units of 1/1,024.
    yields_pay: u32,
    /// Number of waits in mode `Block`.
    blocking_waits: u32,
}

/// Minimum of `yields_pay` for which a wait yields before it sleeps: one yield in eight finds traffic. That is enough, because a
/// yield takes far less CPU time than a sleep and a notification.
const YIELDS_PAY_MIN: u32 = 128;
/// The latest yield has a weight of 1/8 in the moving average.
const YIELDS_PAY_SHARE: u32 = 8;
/// While yields rarely find traffic, only one of this many waits yields, to find out whether yields find traffic again.
const YIELD_TRIAL: u32 = 32;
/// Number of yields that a co-located thread makes before it sleeps. If a router is between two ends, the answer arrives after
/// the second yield (decision 017).
const YIELDS_COLOCATED: u32 = 2;

impl Policy {
    /// Returns a policy without any observation.
    pub(crate) fn new(mode: Mode, times: Times) -> Self {
        Self {
            mode,
            way: mode,
            times,
            spin: times.spin_max,
            begun: Ticks(0),
            glanced: Ticks(0),
            has_yielded: false,
            yields_left: 0,
            colocated: false,
            last_traffic: None,
            lost: Ticks(0),
            lost_at: Ticks(0),
            crowded_until: None,
            yields_pay: 0,
            blocking_waits: 0,
        }
    }

    /// Sets whether this thread is co-located with its partners.
    pub(crate) fn set_colocated(&mut self, colocated: bool) {
        self.colocated = colocated;
    }

    /// Records that frames were received or sent at `now`.
    pub(crate) fn had_traffic(&mut self, now: Ticks) {
        self.last_traffic = Some(now);
    }

    /// Begins a wait, after a poll that found nothing, and returns the first step.
    pub(crate) fn begin(&mut self, now: Ticks) -> Step {
        self.begun = now;
        self.has_yielded = false;
        match self.way {
            Mode::Block => {
                self.has_yielded = self.yields_first(now);
                self.yields_left = if self.colocated { YIELDS_COLOCATED - 1 } else { 0 };
                if self.has_yielded { Step::Yield } else { Step::Sleep }
            }
            Mode::Poll => Step::Look,
            Mode::Adaptive if self.is_crowded(now) || !self.is_recent(now) => Step::Sleep,
            Mode::Adaptive => Step::Look,
        }
    }

    /// Records that another poll found nothing, and returns the next step.
    pub(crate) fn found_nothing(&mut self, now: Ticks) -> Step {
        if !self.has_yielded && now.since(self.begun) < self.spin {
            return Step::Look;
        }
        match self.way {
            Mode::Block if self.yields_left > 0 && !self.is_crowded(now) => {
                self.yields_left -= 1;
                Step::Yield
            }
            Mode::Block => {
                self.yields_pay -= self.yields_pay / YIELDS_PAY_SHARE;
                Step::Sleep
            }
            Mode::Adaptive if self.is_crowded(now) || !self.is_recent(now) => Step::Sleep,
            Mode::Poll if now.since(self.glanced.max(self.begun)) > self.times.traffic => {
                self.glanced = now;
                Step::Glance
            }
            Mode::Adaptive | Mode::Poll => {
                self.has_yielded = true;
                Step::Yield
            }
        }
    }

    /// Records the duration of a yield. Returns true if the yield was slow.
    pub(crate) fn yielded(&mut self, took: Ticks, now: Ticks) -> bool {
        let slow = took > self.times.slow_yield;
        if slow && self.is_too_much(took, now) {
            let crowded = took.0.saturating_mul(CROWDED_FACTOR);
            let crowded = crowded.clamp(self.times.crowded_min.0, self.times.crowded_max.0);
            self.lost_at = Ticks(now.0.saturating_add(crowded));
            self.crowded_until = Some(self.lost_at);
        }
        slow
    }

    /// Records a slow yield. Returns true if the following waits must sleep. A thread that sleeps anyway gives up its yields at
    /// once. A thread that polls goes on while slow yields take less than half of its time, because its partners would have to wake
    /// it for each frame. So a program that takes a tenth of each CPU does not stop it (decision 031).
    fn is_too_much(&mut self, took: Ticks, now: Ticks) -> bool {
        let memory = self.times.lost_time.0.max(1);
        let left = memory.saturating_sub(now.since(self.lost_at).0);
        let kept = u128::from(self.lost.0) * u128::from(left) / u128::from(memory);
        self.lost = Ticks(u64::try_from(kept).unwrap_or(memory).saturating_add(took.0).min(memory));
        self.lost_at = now;
        self.way == Mode::Block || self.lost > Ticks(memory / 2)
    }

    /// Records that a poll found traffic. If the poll found it without a yield, later waits poll longer before their first yield.
    /// Otherwise they poll for a shorter time, because the sender needs this CPU.
    pub(crate) fn found(&mut self, now: Ticks) {
        self.spin = if self.has_yielded {
            Ticks(self.spin.0 / 2).max(self.times.spin_min)
        } else {
            Ticks(self.spin.0.saturating_mul(2)).min(self.times.spin_max)
        };
        if self.way == Mode::Block {
            self.yields_pay += (1_024 - self.yields_pay) / YIELDS_PAY_SHARE;
        }
        self.had_traffic(now);
    }

    /// Returns whether this wait yields before it sleeps. It does so if yields often find traffic, or as a trial, and if no
    /// recent yield was slow.
    fn yields_first(&mut self, now: Ticks) -> bool {
        self.blocking_waits = self.blocking_waits.wrapping_add(1);
        let tries = self.yields_pay >= YIELDS_PAY_MIN || self.blocking_waits.is_multiple_of(YIELD_TRIAL);
        tries && !self.is_crowded(now)
    }

    fn is_recent(&self, now: Ticks) -> bool {
        self.last_traffic.is_some_and(|last| now.since(last) <= self.times.traffic)
    }

    fn is_crowded(&self, now: Ticks) -> bool {
        self.crowded_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000 * US;

    /// Siga's times where a tick is a nanosecond.
    fn times() -> Times {
        Times::new(&Rate::NANOSECONDS)
    }

    fn adaptive(last_traffic: u64) -> Policy {
        let mut policy = Policy::new(Mode::Adaptive, times());
        policy.had_traffic(Ticks(last_traffic));
        policy
    }

    #[test]
    fn a_wait_polls_then_yields_and_sleeps_a_millisecond_after_traffic() {
        let mut policy = adaptive(10 * MS);
        assert_eq!(policy.begin(Ticks(10 * MS)), Step::Look);
        assert_eq!(policy.found_nothing(Ticks(10 * MS + 4_999)), Step::Look);
        assert_eq!(policy.found_nothing(Ticks(10 * MS + 5_000)), Step::Yield);
        assert!(!policy.yielded(Ticks(300), Ticks(10 * MS + 5_300)));
        assert_eq!(policy.found_nothing(Ticks(11 * MS)), Step::Yield);
        assert_eq!(policy.found_nothing(Ticks(11 * MS + 1)), Step::Sleep);
    }

    #[test]
    fn a_wait_without_recent_traffic_sleeps_at_once() {
        assert_eq!(Policy::new(Mode::Adaptive, times()).begin(Ticks(5)), Step::Sleep);
        assert_eq!(adaptive(0).begin(Ticks(MS + 1)), Step::Sleep);
        assert_eq!(adaptive(0).begin(Ticks(MS)), Step::Look);
    }

    #[test]
    fn slow_yields_that_take_most_of_the_time_make_waits_sleep_at_once_for_a_time_in_proportion() {
        let mut policy = adaptive(0);
        assert_eq!(policy.begin(Ticks(0)), Step::Look);
        assert!(!policy.yielded(Ticks(100 * US), Ticks(100 * US)));
        // A busy program gets every yielded slice of 3 ms, until slow yields have taken half of 100 ms.
        let mut now = 0;
        while policy.begin(Ticks(now)) == Step::Look {
            now += 3 * MS;
            assert!(policy.yielded(Ticks(3 * MS), Ticks(now)));
            policy.had_traffic(Ticks(now));
        }
        assert!((51 * MS..=100 * MS).contains(&now), "{now}");
        for later in [0, 1, 95] {
            policy.had_traffic(Ticks(now + later * MS));
            assert_eq!(policy.begin(Ticks(now + later * MS)), Step::Sleep, "{later}");
        }
        now += 96 * MS;
        policy.had_traffic(Ticks(now));
        assert_eq!(policy.begin(Ticks(now)), Step::Look);
        // The period is not remembered as time without slow yields, so the next one begins the next period.
        now += 3 * MS;
        assert!(policy.yielded(Ticks(3 * MS), Ticks(now)));
        policy.had_traffic(Ticks(now));
        assert_eq!(policy.begin(Ticks(now)), Step::Sleep);
        assert!(policy.yielded(Ticks(u64::MAX), Ticks(now)));
        now += 1_000 * MS;
        policy.had_traffic(Ticks(now));
        assert_eq!(policy.begin(Ticks(now)), Step::Look, "no period is longer than a second");
    }

    #[test]
    fn slow_yields_that_take_a_tenth_of_the_time_do_not_stop_a_thread_from_polling() {
        let mut policy = adaptive(0);
        let mut now = 0;
        for slice in [1, 20, 7, 13, 20, 20, 2, 9, 20].into_iter().cycle().take(900) {
            now += 9 * slice * MS;
            policy.had_traffic(Ticks(now));
            assert_eq!(policy.begin(Ticks(now)), Step::Look);
            now += slice * MS;
            assert!(policy.yielded(Ticks(slice * MS), Ticks(now)));
        }
    }

    #[test]
    fn polling_gets_shorter_when_yields_find_traffic_and_longer_when_polls_do() {
        let spin_of = |policy: &mut Policy, now: u64| {
            policy.had_traffic(Ticks(now));
            policy.begin(Ticks(now));
            (0..).step_by(50).find(|spin| policy.found_nothing(Ticks(now + spin)) == Step::Yield).unwrap()
        };
        let mut policy = adaptive(0);
        assert_eq!(spin_of(&mut policy, 0), 5_000);
        for spin in [2_500, 1_250, 650, 350, 200, 200] {
            policy.found(Ticks(0));
            assert_eq!(spin_of(&mut policy, 0), spin);
        }
        policy.begin(Ticks(0));
        policy.found(Ticks(0));
        assert_eq!(spin_of(&mut policy, 0), 400);
    }

    #[test]
    fn polling_never_sleeps_and_blocking_sleeps_at_once() {
        let mut polling = Policy::new(Mode::Poll, times());
        assert_eq!(polling.begin(Ticks(50 * MS)), Step::Look);
        assert!(polling.yielded(Ticks(3 * MS), Ticks(53 * MS)));
        assert_eq!(polling.found_nothing(Ticks(50 * MS + 900 * US)), Step::Yield);
        // Descriptors are looked at once a millisecond.
        for now in (1..9).map(|glances| 50 * MS + glances * 1_100 * US) {
            assert_eq!(polling.found_nothing(Ticks(now)), Step::Glance);
            assert_eq!(polling.found_nothing(Ticks(now + MS)), Step::Yield);
        }
        let mut blocking = Policy::new(Mode::Block, times());
        blocking.had_traffic(Ticks(0));
        assert_eq!(blocking.begin(Ticks(0)), Step::Sleep);
    }

    /// How many of `waits` blocking waits begin with a yield, if each such yield finds traffic or none does.
    fn yields(policy: &mut Policy, now: u64, waits: usize, finds: bool) -> usize {
        let mut wait = |_: &usize| {
            let yields = policy.begin(Ticks(now)) == Step::Yield;
            match (yields, finds) {
                (true, true) => policy.found(Ticks(now)),
                (true, false) => assert_eq!(policy.found_nothing(Ticks(now)), Step::Sleep),
                (false, _) => {}
            }
            yields
        };
        (0..waits).filter(&mut wait).count()
    }

    #[test]
    fn a_blocking_wait_yields_first_only_while_yields_find_traffic() {
        let mut policy = Policy::new(Mode::Block, times());
        assert_eq!(yields(&mut policy, 0, 320, false), 10, "now and then it is tried");
        assert_eq!(yields(&mut policy, 0, 64, true), 33, "and again once it found something");
        assert!(yields(&mut policy, 0, 1_000, false) < 60, "until it finds nothing any more");
        yields(&mut policy, 0, 64, true);
        // Somebody else took the CPU: no more of that for a time, however well it paid.
        assert!(policy.yielded(Ticks(3 * MS), Ticks(10 * MS)));
        assert_eq!(yields(&mut policy, 100 * MS, 100, true), 0);
        assert_eq!(yields(&mut policy, 107 * MS, 100, true), 100);
    }

    #[test]
    fn a_colocated_wait_yields_twice_unless_a_yield_was_slow() {
        let mut policy = Policy::new(Mode::Block, times());
        yields(&mut policy, 0, 64, true);
        policy.set_colocated(true);
        assert_eq!(policy.begin(Ticks(0)), Step::Yield);
        assert_eq!(policy.found_nothing(Ticks(0)), Step::Yield);
        assert_eq!(policy.found_nothing(Ticks(0)), Step::Sleep);
        assert_eq!(policy.begin(Ticks(0)), Step::Yield);
        assert!(policy.yielded(Ticks(3 * MS), Ticks(3 * MS)));
        assert_eq!(policy.found_nothing(Ticks(3 * MS)), Step::Sleep);
        policy.set_colocated(false);
        assert_eq!(policy.begin(Ticks(200 * MS)), Step::Yield);
        assert_eq!(policy.found_nothing(Ticks(200 * MS)), Step::Sleep);
    }
}
