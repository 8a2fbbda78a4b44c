//! Waiting for traffic: poll while that saves time, then yield, then sleep (decision 010).
//!
//! A policy ([`Mode`]) decides what to do next, and a [`Waiter`] does it. The caller implements [`Sources`] for its rings and
//! descriptors: how to poll them, how to request a notification, and how to sleep.

mod choice;
pub mod policy;

use crate::clock::{Rate, Ticks, monotonic_ns, thread_cpu_ns};
use crate::colocate::{self, Affinity, Colocation, Move};
use crate::doorbell::Notification;
use choice::{Choice, Way};
use policy::{Mode, Policy, Step, Times};
use rustix::thread::sched_getcpu;
use std::time::Duration;

/// The rings and descriptors that a waiter waits for.
pub trait Sources {
    /// The error of a failed wait.
    type Error;

    /// Returns whether the caller has something to do. This method only reads memory, and makes no system call.
    ///
    /// # Errors
    /// Returns an error if a peer violated the ring's protocol.
    fn is_ready(&mut self) -> Result<bool, Self::Error>;

    /// Requests a notification from every peer. Returns false and withdraws the requests if the caller already has something to
    /// do.
    ///
    /// # Errors
    /// Returns an error if a peer violated the ring's protocol.
    fn declare_asleep(&mut self) -> Result<bool, Self::Error>;

    /// Sleeps until a notification or another event arrives, for at most `time` (`None`: without a limit). Then reads the
    /// notifications from their pipes.
    ///
    /// # Errors
    /// Returns an error if a system call failed, or if a peer is gone.
    fn sleep(&mut self, time: Option<Duration>) -> Result<(), Self::Error>;

    /// Withdraws the requests for notifications.
    fn awake(&mut self);

    /// Returns the number of bytes that the caller has received and sent so far. The policy `adaptive` compares ways of waiting by
    /// it, a hundred times a second.
    fn moved(&self) -> u64;
}

/// The reason why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// The caller has something to do.
    Ready,
    /// The waiter has checked the descriptors, usually by a sleep, and found nothing in the rings. A descriptor may be ready, the time
    /// may have passed, or a notification was spurious.
    Slept,
    /// The deadline has passed.
    Due,
}

/// The reason why polling ended.
enum Polled {
    Ready,
    Due,
    Glance,
    Sleep,
}

/// Counters and times of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitCounters {
    /// Number of waits that found traffic by polling.
    pub found: u64,
    /// Number of sleeps.
    pub sleeps: u64,
    /// Number of yields.
    pub yields: u64,
    /// Number of yields that took too long (`Times::slow_yield`).
    pub slow_yields: u64,
    /// Time spent polling and yielding. It is CPU time, except for the time for which yields let other threads run.
    pub wait_ticks: Ticks,
    /// The part of `wait_ticks` that was spent in yields.
    pub yield_ticks: Ticks,
    /// An estimate of the part of `yield_ticks` in which other threads ran. From the time of each yield, twice the time of the
    /// shortest yield is subtracted.
    pub given_away_ticks: Ticks,
    /// Time asleep.
    pub sleep_ticks: Ticks,
    /// Time for which the thread was co-located with its partners.
    pub colocated_ticks: Ticks,
}

/// Waits for traffic according to a waiting policy.
#[derive(Debug)]
pub struct Waiter {
    policy: Policy,
    rate: Rate,
    ticks_per_ms: u64,
    counters: WaitCounters,
    /// Duration of the shortest yield so far, during which probably no other thread needed the CPU.
    shortest_yield: Ticks,
    /// Time at which the latest sleep ended.
    woken: Ticks,
    colocation: Option<Colocation>,
    affinity: Affinity,
    choice: Option<Choice>,
    /// Time at which the choice between polling and sleeping is due again.
    choice_due: Ticks,
    /// The CPU on which the thread ran before it began to sleep by choice.
    polled_on: usize,
}

impl Waiter {
    /// Makes a waiter with siga's thresholds. The first call of a process may measure the rate of the clock ([`Rate::new`]).
    pub fn new(mode: Mode) -> Self {
        let rate = Rate::new();
        Self {
            policy: Policy::new(mode, Times::new(&rate)),
            rate,
            ticks_per_ms: rate.ticks(1_000_000).0.max(1),
            counters: WaitCounters::default(),
            shortest_yield: Ticks(u64::MAX / 2),
            woken: Ticks(0),
            colocation: None,
            affinity: Affinity::default(),
            choice: None,
            choice_due: Ticks(0),
            polled_on: 0,
        }
    }

    /// Lets the waiting thread move to the CPU of its partners while that saves time (decisions 015 and 017). This has an effect only
    /// in mode `Block`, because each thread that polls needs a CPU of its own.
    #[must_use]
    pub fn with_colocation(self, colocates: bool) -> Self {
        let colocates = colocates && self.policy.mode != Mode::Poll;
        let colocation = colocates.then(|| Colocation::new(colocate::Times::new(&self.rate)));
        let choice = (colocates && self.policy.mode == Mode::Adaptive).then(Choice::default);
        Self { colocation, choice, ..self }
    }

    /// Returns true if the thread now sleeps as under the policy `block`.
    pub fn sleeps(&self) -> bool {
        self.policy.way == Mode::Block
    }

    /// Chooses between polling and sleeping, if it is time to.
    fn choose<S: Sources>(&mut self, sources: &S, now: Ticks) {
        let Some(choice) = &mut self.choice else { return };
        if now < self.choice_due {
            return;
        }
        let now_ns = monotonic_ns();
        let way = choice.update(now_ns, sources.moved());
        self.choice_due = Ticks(now.0.saturating_add(self.rate.ticks(Choice::due_in_ns(now_ns)).0));
        let way = match way {
            Way::Poll => Mode::Adaptive,
            Way::Sleep => Mode::Block,
        };
        if way == self.policy.way {
            return;
        }
        self.policy.way = way;
        let Some(colocation) = &mut self.colocation else { return };
        if way == Mode::Block {
            self.polled_on = sched_getcpu();
            colocation.resume(now, self.rate.ticks(thread_cpu_ns()));
            return;
        }
        if let Some(since) = colocation.pause() {
            self.counters.colocated_ticks.0 += now.since(since).0;
            self.policy.set_colocated(false);
        }
        // Which of three threads has a CPU for itself decides how fast they are (decision 018). So the thread goes back to the CPU
        // on which it polled before, instead of staying where its last wake-up has put it.
        self.affinity.apply(Move::Back(self.polled_on));
    }

    /// Reports traffic that the caller found without a wait at the time `now`, for example at a ready descriptor. Without recent
    /// traffic, the policy does not poll.
    #[inline]
    pub fn had_traffic(&mut self, now: Ticks) {
        self.policy.had_traffic(now);
    }

    /// Reports the last notification that was read at the end of a sleep, if there was one.
    pub fn notified_by(&mut self, last: Option<Notification>) {
        if let (Some(colocation), Some(notification)) = (&mut self.colocation, last) {
            colocation.notified(notification, self.woken);
        }
    }

    /// Returns the counters of this waiter.
    pub fn counters(&self) -> WaitCounters {
        let now = Ticks::now();
        let since = self.colocation.as_ref().and_then(Colocation::since);
        let colocated = since.map_or(0, |since| now.since(since).0);
        WaitCounters { colocated_ticks: Ticks(self.counters.colocated_ticks.0 + colocated), ..self.counters }
    }

    /// Returns whether the thread was moved to the CPU of the threads that notify it.
    pub fn is_colocated(&self) -> bool {
        self.colocation.as_ref().is_some_and(|colocation| colocation.since().is_some())
    }

    /// Returns the rate of the clock that this waiter measured.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Waits until the caller has something to do, a sleep ends, or `deadline` has passed.
    ///
    /// # Errors
    /// Returns the error of `sources` if one of its methods fails.
    pub fn wait<S: Sources>(&mut self, sources: &mut S, deadline: Option<Ticks>) -> Result<Woken, S::Error> {
        if sources.is_ready()? {
            return Ok(Woken::Ready);
        }
        let begun = Ticks::now();
        self.choose(sources, begun);
        if self.sleeps() {
            self.colocate(begun);
        }
        let polled = self.poll(sources, deadline, begun)?;
        self.counters.wait_ticks.0 += Ticks::now().since(begun).0;
        match polled {
            Polled::Ready => Ok(Woken::Ready),
            Polled::Due => Ok(Woken::Due),
            Polled::Glance => sources.sleep(Some(Duration::ZERO)).map(|()| Woken::Slept),
            Polled::Sleep => self.sleep(sources, deadline),
        }
    }

    /// Moves the thread to another CPU, or lets it spread, if the co-location decides so.
    fn colocate(&mut self, now: Ticks) {
        let Some(colocation) = &mut self.colocation else { return };
        if !colocation.begins_wait() {
            return;
        }
        let colocated_since = colocation.since();
        let here = u16::try_from(sched_getcpu()).ok();
        let decided = colocation.decide(now, self.rate.ticks(thread_cpu_ns()), here);
        // If several threads use this waiter in turns, a thread that was moved gets its former CPUs back before another one waits.
        let takes_turns = self.affinity.is_of_another();
        let Some(to) = (if takes_turns { Some(Move::Spread) } else { decided }) else { return };
        if let Some(since) = colocated_since {
            self.counters.colocated_ticks.0 += now.since(since).0;
        }
        if !self.affinity.apply(to) || takes_turns {
            colocation.refused(now);
        }
        self.policy.set_colocated(colocation.since().is_some());
    }

    /// Polls and yields until the policy decides otherwise.
    fn poll<S: Sources>(&mut self, sources: &mut S, deadline: Option<Ticks>, begun: Ticks) -> Result<Polled, S::Error> {
        let mut now = begun;
        let mut step = self.policy.begin(now);
        loop {
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Polled::Due);
            }
            match step {
                Step::Look => std::hint::spin_loop(),
                Step::Yield => self.yield_cpu(now),
                Step::Glance => return Ok(Polled::Glance),
                Step::Sleep => return Ok(Polled::Sleep),
            }
            let ready = sources.is_ready()?;
            now = Ticks::now();
            if ready {
                self.policy.found(now);
                self.counters.found += 1;
                return Ok(Polled::Ready);
            }
            step = self.policy.found_nothing(now);
        }
    }

    /// Converts ticks to a `Duration` by the rate that was measured at the start. The conversion is exact enough for a deadline.
    fn duration(&self, span: Ticks) -> Duration {
        let ns = u128::from(span.0) * 1_000_000 / u128::from(self.ticks_per_ms);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn yield_cpu(&mut self, begun: Ticks) {
        std::thread::yield_now();
        let now = Ticks::now();
        let took = now.since(begun);
        self.counters.yields += 1;
        self.counters.yield_ticks.0 += took.0;
        self.shortest_yield = self.shortest_yield.min(took);
        self.counters.given_away_ticks.0 += took.since(Ticks(2 * self.shortest_yield.0)).0;
        if self.policy.yielded(took, now) {
            self.counters.slow_yields += 1;
        }
    }

    fn sleep<S: Sources>(&mut self, sources: &mut S, deadline: Option<Ticks>) -> Result<Woken, S::Error> {
        if !sources.declare_asleep()? {
            self.policy.had_traffic(Ticks::now());
            return Ok(Woken::Ready);
        }
        let begun = Ticks::now();
        let time = deadline.map(|deadline| self.duration(deadline.since(begun)));
        let outcome = sources.sleep(time);
        self.woken = Ticks::now();
        sources.awake();
        self.counters.sleeps += 1;
        self.counters.sleep_ticks.0 += self.woken.since(begun).0;
        outcome?;
        if !sources.is_ready()? {
            return Ok(Woken::Slept);
        }
        // Traffic ended the sleep, so polling may save the next sleep.
        self.policy.had_traffic(Ticks::now());
        Ok(Woken::Ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    /// Something that is ready at some look, or when it is about to sleep.
    #[derive(Default)]
    struct Fake {
        ready_at_look: Option<u32>,
        ready_when_armed: bool,
        looks: u32,
        asleep: bool,
        slept: Vec<Option<Duration>>,
        ready_after_sleep: bool,
    }

    impl Sources for Fake {
        type Error = Infallible;

        fn is_ready(&mut self) -> Result<bool, Infallible> {
            self.looks += 1;
            Ok(self.ready_at_look.is_some_and(|at| self.looks >= at))
        }

        fn declare_asleep(&mut self) -> Result<bool, Infallible> {
            self.asleep = !self.ready_when_armed;
            Ok(self.asleep)
        }

        fn sleep(&mut self, time: Option<Duration>) -> Result<(), Infallible> {
            assert!(self.asleep);
            self.slept.push(time);
            if self.ready_after_sleep {
                self.ready_at_look = Some(0);
            }
            Ok(())
        }

        fn awake(&mut self) {
            self.asleep = false;
        }

        fn moved(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_ready_source_is_found_without_sleeping() {
        let mut waiter = Waiter::new(Mode::Poll);
        // Long enough for any host to look a hundred times before it glances at descriptors.
        waiter.policy.times.traffic = waiter.rate().ticks(600_000_000_000);
        let mut fake = Fake { ready_at_look: Some(1), ..Fake::default() };
        assert_eq!(waiter.wait(&mut fake, None), Ok(Woken::Ready));
        assert_eq!(waiter.counters(), WaitCounters::default());
        fake = Fake { ready_at_look: Some(100), ..Fake::default() };
        assert_eq!(waiter.wait(&mut fake, None), Ok(Woken::Ready));
        assert_eq!((fake.looks, fake.slept.len(), waiter.counters().found), (100, 0, 1));
        assert!(waiter.counters().wait_ticks.0 > 0);
    }

    #[test]
    fn a_sleep_requests_a_notification_before_and_withdraws_it_after() {
        let mut waiter = Waiter::new(Mode::Block);
        let mut fake = Fake::default();
        assert_eq!(waiter.wait(&mut fake, None), Ok(Woken::Slept));
        assert_eq!((fake.slept.as_slice(), fake.asleep), ([None].as_slice(), false));
        let deadline = Ticks(Ticks::now().0 + waiter.rate().ticks(1_000_000_000).0);
        assert_eq!(waiter.wait(&mut fake, Some(deadline)), Ok(Woken::Slept));
        let time = fake.slept[1].unwrap();
        assert!(time <= Duration::from_millis(1_100), "{time:?}");
        let mut armed = Fake { ready_when_armed: true, ..Fake::default() };
        assert_eq!(waiter.wait(&mut armed, None), Ok(Woken::Ready));
        assert_eq!((armed.slept.len(), waiter.counters().sleeps), (0, 2));
    }

    #[test]
    fn a_polling_waiter_checks_descriptors_too() {
        let mut waiter = Waiter::new(Mode::Poll);
        waiter.policy.times.traffic = Ticks(1);
        let mut fake = Fake { asleep: true, ..Fake::default() };
        assert_eq!(waiter.wait(&mut fake, None), Ok(Woken::Slept));
        assert_eq!((fake.slept.as_slice(), waiter.counters().sleeps), ([Some(Duration::ZERO)].as_slice(), 0));
    }

    #[test]
    fn traffic_that_ends_a_sleep_makes_the_next_wait_poll() {
        let mut waiter = Waiter::new(Mode::Adaptive);
        // Long enough for any host to get to the next line.
        waiter.policy.times.traffic = waiter.rate().ticks(600_000_000_000);
        let mut fake = Fake { ready_after_sleep: true, ..Fake::default() };
        assert_eq!(waiter.wait(&mut fake, None), Ok(Woken::Ready));
        assert_eq!(fake.slept.len(), 1);
        fake.ready_at_look = Some(fake.looks + 3);
        assert_eq!(waiter.wait(&mut fake, None), Ok(Woken::Ready));
        assert_eq!((fake.slept.len(), waiter.counters().sleeps, waiter.counters().found), (1, 1, 1));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no CPUs")]
    fn an_adaptive_waiter_that_chose_to_sleep_sleeps_although_traffic_is_recent() {
        let mut waiter = Waiter::new(Mode::Adaptive).with_colocation(true);
        waiter.policy.times.traffic = waiter.rate().ticks(600_000_000_000);
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        for (sleeps, sleeps_more) in [(true, true), (false, false)] {
            // Beyond all trials, the choice decides.
            let mut slot = monotonic_ns();
            while Choice::default().is_trial(slot) {
                std::thread::yield_now();
                slot = monotonic_ns();
            }
            waiter.choice = Some(Choice::decided(sleeps_more));
            waiter.choice_due = Ticks(0);
            waiter.had_traffic(Ticks::now());
            let time = if sleeps { 600_000_000_000 } else { 2_000_000 };
            let deadline = Ticks(Ticks::now().0 + waiter.rate().ticks(time).0);
            let mut fake = Fake { asleep: true, ..Fake::default() };
            let woken = waiter.wait(&mut fake, Some(deadline));
            assert_eq!(
                (waiter.sleeps(), woken, fake.slept.len()),
                (sleeps, Ok(if sleeps { Woken::Slept } else { Woken::Due }), usize::from(sleeps))
            );
        }
        assert_eq!(rustix::thread::sched_getaffinity(None), Ok(allowed));
        let without = Waiter::new(Mode::Adaptive).with_colocation(false);
        assert!(without.choice.is_none() && !without.sleeps() && Waiter::new(Mode::Block).sleeps());
    }

    #[test]
    fn a_deadline_ends_polling_and_prevents_sleep() {
        for mode in [Mode::Poll, Mode::Block, Mode::Adaptive] {
            let mut fake = Fake::default();
            assert_eq!(Waiter::new(mode).wait(&mut fake, Some(Ticks(0))), Ok(Woken::Due));
            assert!(fake.slept.is_empty());
        }
        let mut waiter = Waiter::new(Mode::Poll);
        let deadline = Ticks(Ticks::now().0 + waiter.rate().ticks(100_000).0);
        assert_eq!(waiter.wait(&mut Fake::default(), Some(deadline)), Ok(Woken::Due));
        assert!(Ticks::now() >= deadline);
    }
}
