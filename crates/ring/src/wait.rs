//! Waiting: poll while it pays, yield, sleep.
//!
//! [`Policy`] decides and sees no clock: times are arguments. [`Waiter`] carries it out over [`Sources`], which know how to look,
//! how to ask for a ring and how to sleep. A yield gives the CPU to whoever shares it; one that takes long means that somebody
//! needs it who is no partner in this, so the waits that follow sleep at once, for so long that trying again costs little.
//! Only a process that had traffic of late polls at all.

use crate::clock::{Rate, Ticks, thread_cpu_ns};
use crate::colocate::{self, Affinity, Colocation, Move};
use crate::doorbell::Notification;
use crate::link::Link;
use crate::violation::Violation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::sched_getcpu;
use std::time::Duration;

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Poll, yield and sleep as it pays.
    Adaptive,
    /// Poll and yield, never sleep; descriptors are looked at once a millisecond of waiting.
    Polling,
    /// Sleep at once, or after a yield where yields have found something of late: a partner that shares the CPU is then
    /// neither asked for a ring nor has to wake anybody. Two yields where it shares the CPU because it has gathered.
    Blocking,
}

/// The times by which a policy decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Polling goes on for so long after the last traffic.
    pub traffic: Ticks,
    /// A yield that takes longer means that somebody needs the CPU.
    pub slow_yield: Ticks,
    /// Looking without yielding goes on for no less than this.
    pub spin_min: Ticks,
    /// And for no more.
    pub spin_max: Ticks,
    /// After a slow yield waits sleep at once for no less than this.
    pub crowded_min: Ticks,
    /// And for no more.
    pub crowded_max: Ticks,
}

/// After a slow yield waits sleep at once for so many times what it took: at worst a thirty-third of the time is lost so.
const CROWDED_FACTOR: u64 = 32;

impl Times {
    /// The times that siga waits by.
    pub fn new(rate: &Rate) -> Self {
        Self {
            traffic: rate.ticks(1_000_000),
            slow_yield: rate.ticks(100_000),
            spin_min: rate.ticks(200),
            spin_max: rate.ticks(5_000),
            crowded_min: rate.ticks(10_000_000),
            crowded_max: rate.ticks(1_000_000_000),
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Look again.
    Look,
    /// Yield the CPU, then look again.
    Yield,
    /// Look at descriptors too, without sleeping: the death of a peer shows nowhere else.
    Glance,
    /// Ask for a ring and sleep.
    Sleep,
}

/// Decides how to wait.
#[derive(Debug, Clone)]
pub struct Policy {
    mode: Mode,
    times: Times,
    spin: Ticks,
    begun: Ticks,
    glanced: Ticks,
    has_yielded: bool,
    /// Yields that this wait may still make before it sleeps.
    yields_left: u32,
    /// Partners share this CPU.
    colocated: bool,
    last_traffic: Option<Ticks>,
    /// Until when waits sleep at once.
    crowded_until: Option<Ticks>,
    /// Of 1,024 yields before a sleep so many found something, the latest counting most.
    yields_pay: u32,
    /// Waits of who sleeps.
    blocking_waits: u32,
}

/// A yield before a sleep pays if one in eight finds something: it costs far less than a sleep and a ring.
const YIELDS_PAY_MIN: u32 = 128;
/// How much of what yields pay is the latest one's.
const YIELDS_PAY_SHARE: u32 = 8;
/// Where yields do not pay, one in so many waits tries whether they do by now.
const YIELD_TRIAL: u32 = 32;
/// Who has gathered yields so often before it sleeps: an answer through a router is there after its partners' second turn.
const YIELDS_COLOCATED: u32 = 2;

impl Policy {
    /// A policy that has seen nothing yet.
    pub fn new(mode: Mode, times: Times) -> Self {
        Self {
            mode,
            times,
            spin: times.spin_max,
            begun: Ticks(0),
            glanced: Ticks(0),
            has_yielded: false,
            yields_left: 0,
            colocated: false,
            last_traffic: None,
            crowded_until: None,
            yields_pay: 0,
            blocking_waits: 0,
        }
    }

    /// Tells whether partners share this CPU because they have gathered.
    pub fn set_colocated(&mut self, colocated: bool) {
        self.colocated = colocated;
    }

    /// Something came in, or went out.
    pub fn had_traffic(&mut self, now: Ticks) {
        self.last_traffic = Some(now);
    }

    /// A wait begins, after a look that found nothing.
    pub fn begin(&mut self, now: Ticks) -> Step {
        self.begun = now;
        self.has_yielded = false;
        match self.mode {
            Mode::Blocking => {
                self.has_yielded = self.yields_first(now);
                self.yields_left = if self.colocated { YIELDS_COLOCATED - 1 } else { 0 };
                if self.has_yielded { Step::Yield } else { Step::Sleep }
            }
            Mode::Polling => Step::Look,
            Mode::Adaptive if self.is_crowded(now) || !self.is_recent(now) => Step::Sleep,
            Mode::Adaptive => Step::Look,
        }
    }

    /// Another look found nothing.
    pub fn found_nothing(&mut self, now: Ticks) -> Step {
        if !self.has_yielded && now.since(self.begun) < self.spin {
            return Step::Look;
        }
        match self.mode {
            Mode::Blocking if self.yields_left > 0 && !self.is_crowded(now) => {
                self.yields_left -= 1;
                Step::Yield
            }
            Mode::Blocking => {
                self.yields_pay -= self.yields_pay / YIELDS_PAY_SHARE;
                Step::Sleep
            }
            Mode::Adaptive if self.is_crowded(now) || !self.is_recent(now) => Step::Sleep,
            Mode::Polling if now.since(self.glanced.max(self.begun)) > self.times.traffic => {
                self.glanced = now;
                Step::Glance
            }
            Mode::Adaptive | Mode::Polling => {
                self.has_yielded = true;
                Step::Yield
            }
        }
    }

    /// A yield took so long. `true`: too long.
    pub fn yielded(&mut self, took: Ticks, now: Ticks) -> bool {
        let slow = took > self.times.slow_yield;
        if slow {
            let crowded = took.0.saturating_mul(CROWDED_FACTOR);
            let crowded = crowded.clamp(self.times.crowded_min.0, self.times.crowded_max.0);
            self.crowded_until = Some(Ticks(now.0.saturating_add(crowded)));
        }
        slow
    }

    /// A look found something. Spinning longer pays if it was found so; if it took a yield, whoever sent it needs this CPU.
    pub fn found(&mut self, now: Ticks) {
        self.spin = if self.has_yielded {
            Ticks(self.spin.0 / 2).max(self.times.spin_min)
        } else {
            Ticks(self.spin.0.saturating_mul(2)).min(self.times.spin_max)
        };
        if self.mode == Mode::Blocking {
            self.yields_pay += (1_024 - self.yields_pay) / YIELDS_PAY_SHARE;
        }
        self.had_traffic(now);
    }

    /// Who sleeps gives the CPU away before, where that pays and nobody took it for long.
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

/// What is waited for.
pub trait Sources {
    /// Why waiting cannot go on.
    type Error;

    /// Whether there is something to do, looked up in memory alone.
    ///
    /// # Errors
    /// A peer broke the contract.
    fn is_ready(&mut self) -> Result<bool, Self::Error>;

    /// Asks everybody for a ring. `false`: there is something to do already, and nobody will ring.
    ///
    /// # Errors
    /// A peer broke the contract.
    fn declare_asleep(&mut self) -> Result<bool, Self::Error>;

    /// Sleeps until a ring or anything else that it listens for, at most for `time`, which may be none; takes the rings.
    ///
    /// # Errors
    /// The kernel refuses, or a peer is gone.
    fn sleep(&mut self, time: Option<Duration>) -> Result<(), Self::Error>;

    /// Takes the wish to be rung back.
    fn awake(&mut self);
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// There is something to do.
    Ready,
    /// Descriptors were looked at, mostly by sleeping on them, and there is nothing else to do: they may have brought something,
    /// or time is up, or a ring was for nothing.
    Slept,
    /// The deadline has come.
    Due,
}

/// How polling ends.
enum Polled {
    Ready,
    Due,
    Glance,
    Sleep,
}

/// What waiting costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct WaitCounters {
    /// Waits that found something by looking.
    pub found: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Yields.
    pub yields: u64,
    /// Of these, those that took too long.
    pub slow_yields: u64,
    /// Time of looking and yielding, which is CPU time unless a yield gave it to another.
    pub wait_ticks: Ticks,
    /// Of these, the time of yields.
    pub yield_ticks: Ticks,
    /// Of these, time that others had: what a yield took beyond twice the shortest.
    pub given_away_ticks: Ticks,
    /// Time asleep.
    pub sleep_ticks: Ticks,
    /// Time that the thread was kept on the CPU of its partners.
    pub colocated_ticks: Ticks,
}

/// Waits by a policy.
#[derive(Debug)]
pub struct Waiter {
    policy: Policy,
    rate: Rate,
    ticks_per_ms: u64,
    counters: WaitCounters,
    /// The shortest yield so far: one that found nobody who wants the CPU.
    shortest_yield: Ticks,
    /// When the latest sleep ended.
    woken: Ticks,
    colocation: Option<Colocation>,
    affinity: Affinity,
}

impl Waiter {
    /// A waiter by siga's times. It takes a millisecond to measure the clock.
    pub fn new(mode: Mode) -> Self {
        let rate = Rate::new();
        let policy = Policy::new(mode, Times::new(&rate));
        let ticks_per_ms = rate.ticks(1_000_000).0.max(1);
        let shortest_yield = Ticks(u64::MAX / 2);
        let (woken, affinity) = (Ticks(0), Affinity::default());
        Self {
            policy,
            rate,
            ticks_per_ms,
            counters: WaitCounters::default(),
            shortest_yield,
            woken,
            colocation: None,
            affinity,
        }
    }

    /// Has the thread that waits run where its partners run, as that pays. Only who sleeps gathers: polling needs a CPU for each.
    #[must_use]
    pub fn with_colocation(self, colocates: bool) -> Self {
        let colocates = colocates && self.policy.mode == Mode::Blocking;
        let colocation = colocates.then(|| Colocation::new(colocate::Times::new(&self.rate)));
        Self { colocation, ..self }
    }

    /// Tells of traffic that was not found by waiting, such as what descriptors brought: who has none of late does not poll.
    pub fn had_traffic(&mut self) {
        self.policy.had_traffic(Ticks::now());
    }

    /// Tells who rang last, if anybody did, when a sleep was over.
    pub fn notified_by(&mut self, last: Option<Notification>) {
        if let (Some(colocation), Some(notification)) = (&mut self.colocation, last) {
            colocation.notified(notification, self.woken);
        }
    }

    /// What was counted.
    pub fn counters(&self) -> WaitCounters {
        let now = Ticks::now();
        let since = self.colocation.as_ref().and_then(Colocation::since);
        let gathered = since.map_or(0, |since| now.since(since).0);
        WaitCounters { colocated_ticks: Ticks(self.counters.colocated_ticks.0 + gathered), ..self.counters }
    }

    /// How long ticks are.
    pub fn rate(&self) -> Rate {
        self.rate
    }

    /// Waits until there is something to do, a sleep ends, or `deadline` has come.
    ///
    /// # Errors
    /// What the sources say.
    pub fn wait<S: Sources>(&mut self, sources: &mut S, deadline: Option<Ticks>) -> Result<Woken, S::Error> {
        if sources.is_ready()? {
            return Ok(Woken::Ready);
        }
        let begun = Ticks::now();
        self.gather(begun);
        let polled = self.poll(sources, deadline, begun)?;
        self.counters.wait_ticks.0 += Ticks::now().since(begun).0;
        match polled {
            Polled::Ready => Ok(Woken::Ready),
            Polled::Due => Ok(Woken::Due),
            Polled::Glance => sources.sleep(Some(Duration::ZERO)).map(|()| Woken::Slept),
            Polled::Sleep => self.sleep(sources, deadline),
        }
    }

    /// Goes where it pays to run.
    fn gather(&mut self, now: Ticks) {
        let Some(colocation) = &mut self.colocation else { return };
        if !colocation.begins_wait() {
            return;
        }
        let colocated_since = colocation.since();
        let here = u16::try_from(sched_getcpu()).ok();
        let decided = colocation.decide(now, self.rate.ticks(thread_cpu_ns()), here);
        // Where several threads take turns, none is kept anywhere while another waits.
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

    /// Looks and yields for as long as the policy says.
    fn poll<S: Sources>(&mut self, sources: &mut S, deadline: Option<Ticks>, begun: Ticks) -> Result<Polled, S::Error> {
        let mut now = begun;
        let mut step = self.policy.begin(now);
        loop {
            if deadline.is_some_and(|deadline| now >= deadline) {
                return Ok(Polled::Due);
            }
            match step {
                Step::Look => std::hint::spin_loop(),
                Step::Yield => self.give_way(now),
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

    /// A span by what ticks were at first: a deadline need not be more exact, and the clock is not read for it.
    fn duration(&self, span: Ticks) -> Duration {
        let ns = u128::from(span.0) * 1_000_000 / u128::from(self.ticks_per_ms);
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    fn give_way(&mut self, begun: Ticks) {
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
        // What a sleep ends with is traffic too: polling may pay from here on.
        self.policy.had_traffic(Ticks::now());
        Ok(Woken::Ready)
    }
}

/// Why a link alone cannot be waited for any longer.
#[derive(Debug)]
pub enum LinkError {
    /// The peer broke the contract.
    Violation(Violation),
    /// Nobody holds the other end of the doorbell.
    PeerGone,
    /// The kernel refuses to wait.
    Host(std::io::Error),
}

impl std::fmt::Display for LinkError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Violation(violation) => violation.fmt(f),
            Self::PeerGone => write!(f, "the peer is gone"),
            Self::Host(error) => write!(f, "cannot wait for a doorbell: {error}"),
        }
    }
}

impl std::error::Error for LinkError {}

/// One link alone: its incoming frames.
impl Sources for Link {
    type Error = LinkError;

    fn is_ready(&mut self) -> Result<bool, LinkError> {
        self.consumer.is_ready().map_err(LinkError::Violation)
    }

    fn declare_asleep(&mut self) -> Result<bool, LinkError> {
        self.consumer.declare_asleep().map_err(LinkError::Violation)
    }

    fn sleep(&mut self, time: Option<Duration>) -> Result<(), LinkError> {
        let time = time.and_then(|time| Timespec::try_from(time).ok());
        match poll(&mut [PollFd::new(&self.wake_fd, PollFlags::IN)], time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(LinkError::Host(error.into())),
        }
        let heard = self.wake_fd.drain().map_err(LinkError::Host)?;
        if heard.hung_up { Err(LinkError::PeerGone) } else { Ok(()) }
    }

    fn awake(&mut self) {
        self.consumer.awake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

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
    fn it_looks_then_yields_then_sleeps_when_traffic_is_a_millisecond_ago() {
        let mut policy = adaptive(10 * MS);
        assert_eq!(policy.begin(Ticks(10 * MS)), Step::Look);
        assert_eq!(policy.found_nothing(Ticks(10 * MS + 4_999)), Step::Look);
        assert_eq!(policy.found_nothing(Ticks(10 * MS + 5_000)), Step::Yield);
        assert!(!policy.yielded(Ticks(300), Ticks(10 * MS + 5_300)));
        assert_eq!(policy.found_nothing(Ticks(11 * MS)), Step::Yield);
        assert_eq!(policy.found_nothing(Ticks(11 * MS + 1)), Step::Sleep);
    }

    #[test]
    fn who_had_no_traffic_of_late_sleeps_at_once() {
        assert_eq!(Policy::new(Mode::Adaptive, times()).begin(Ticks(5)), Step::Sleep);
        assert_eq!(adaptive(0).begin(Ticks(MS + 1)), Step::Sleep);
        assert_eq!(adaptive(0).begin(Ticks(MS)), Step::Look);
    }

    #[test]
    fn a_slow_yield_makes_waits_sleep_for_as_long_as_it_was_worth() {
        let mut policy = adaptive(0);
        assert_eq!(policy.begin(Ticks(0)), Step::Look);
        assert!(!policy.yielded(Ticks(100 * US), Ticks(100 * US)));
        assert!(policy.yielded(Ticks(3 * MS), Ticks(4 * MS)));
        policy.had_traffic(Ticks(4 * MS));
        assert_eq!(policy.found_nothing(Ticks(4 * MS)), Step::Sleep);
        for now in [4 * MS, 5 * MS, 99 * MS] {
            policy.had_traffic(Ticks(now));
            assert_eq!(policy.begin(Ticks(now)), Step::Sleep, "{now}");
        }
        policy.had_traffic(Ticks(100 * MS));
        assert_eq!(policy.begin(Ticks(100 * MS)), Step::Look);
        // A yield that was slow by little is no reason to be asleep for a moment only, and none for ever.
        assert!(policy.yielded(Ticks(101 * US), Ticks(200 * MS)));
        policy.had_traffic(Ticks(209 * MS));
        assert_eq!(policy.begin(Ticks(209 * MS)), Step::Sleep);
        assert!(policy.yielded(Ticks(u64::MAX), Ticks(300 * MS)));
        policy.had_traffic(Ticks(1_300 * MS));
        assert_eq!(policy.begin(Ticks(1_300 * MS)), Step::Look);
    }

    #[test]
    fn spinning_gets_shorter_where_a_yield_brings_traffic_and_longer_where_it_does() {
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
        let mut polling = Policy::new(Mode::Polling, times());
        assert_eq!(polling.begin(Ticks(50 * MS)), Step::Look);
        assert!(polling.yielded(Ticks(3 * MS), Ticks(53 * MS)));
        assert_eq!(polling.found_nothing(Ticks(50 * MS + 900 * US)), Step::Yield);
        // Descriptors are looked at once a millisecond.
        for now in (1..9).map(|glances| 50 * MS + glances * 1_100 * US) {
            assert_eq!(polling.found_nothing(Ticks(now)), Step::Glance);
            assert_eq!(polling.found_nothing(Ticks(now + MS)), Step::Yield);
        }
        let mut blocking = Policy::new(Mode::Blocking, times());
        blocking.had_traffic(Ticks(0));
        assert_eq!(blocking.begin(Ticks(0)), Step::Sleep);
    }

    /// How many of so many waits of who sleeps begin with a yield, and find something by it or not.
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
    fn who_sleeps_yields_before_only_where_that_finds_something() {
        let mut policy = Policy::new(Mode::Blocking, times());
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
    fn who_has_gathered_yields_twice_before_it_sleeps_unless_somebody_else_took_the_cpu() {
        let mut policy = Policy::new(Mode::Blocking, times());
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
    }

    #[test]
    fn what_is_there_is_found_without_sleeping() {
        let mut waiter = Waiter::new(Mode::Polling);
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
    fn who_sleeps_asks_for_a_ring_before_and_takes_that_back_after() {
        let mut waiter = Waiter::new(Mode::Blocking);
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
    fn who_polls_looks_at_descriptors_all_the_same() {
        let mut waiter = Waiter::new(Mode::Polling);
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
    fn a_deadline_ends_polling_and_keeps_from_sleeping() {
        for mode in [Mode::Polling, Mode::Blocking, Mode::Adaptive] {
            let mut fake = Fake::default();
            assert_eq!(Waiter::new(mode).wait(&mut fake, Some(Ticks(0))), Ok(Woken::Due));
            assert!(fake.slept.is_empty());
        }
        let mut waiter = Waiter::new(Mode::Polling);
        let deadline = Ticks(Ticks::now().0 + waiter.rate().ticks(100_000).0);
        assert_eq!(waiter.wait(&mut Fake::default(), Some(deadline)), Ok(Woken::Due));
        assert!(Ticks::now() >= deadline);
    }
}
