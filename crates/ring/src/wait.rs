//! Waiting: poll while it pays, yield, sleep.
//!
//! [`Policy`] decides and sees no clock: times are arguments. [`Waiter`] carries it out over [`Sources`], which know how to look,
//! how to ask for a ring and how to sleep. A yield gives the CPU to whoever shares it; one that takes long means that somebody
//! needs it who is no partner in this, so the waits that follow sleep at once, for so long that trying again costs little.
//! Only a process that had traffic of late polls at all.

use crate::clock::{Rate, Ticks};
use crate::link::Link;
use crate::violation::Violation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use std::time::Duration;

/// How to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Mode {
    /// Poll, yield and sleep as it pays.
    Adaptive,
    /// Poll and yield, never sleep.
    Polling,
    /// Sleep at once.
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
    has_yielded: bool,
    last_traffic: Option<Ticks>,
    /// Until when waits sleep at once.
    crowded_until: Option<Ticks>,
}

impl Policy {
    /// A policy that has seen nothing yet.
    pub fn new(mode: Mode, times: Times) -> Self {
        Self {
            mode,
            times,
            spin: times.spin_max,
            begun: Ticks(0),
            has_yielded: false,
            last_traffic: None,
            crowded_until: None,
        }
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
            Mode::Blocking => Step::Sleep,
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
            Mode::Blocking => Step::Sleep,
            Mode::Adaptive if self.is_crowded(now) || !self.is_recent(now) => Step::Sleep,
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
        self.had_traffic(now);
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

    /// Sleeps until a ring or anything else that it listens for, at most for `time`; takes the rings.
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
    /// A sleep ended: by a ring, a descriptor, or because time is up.
    Slept,
    /// The deadline has come.
    Due,
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
    /// Time asleep.
    pub sleep_ticks: Ticks,
}

/// Waits by a policy.
#[derive(Debug, Clone)]
pub struct Waiter {
    policy: Policy,
    rate: Rate,
    counters: WaitCounters,
}

impl Waiter {
    /// A waiter by siga's times. It takes a millisecond to measure the clock.
    pub fn new(mode: Mode) -> Self {
        let rate = Rate::new();
        Self { policy: Policy::new(mode, Times::new(&rate)), rate, counters: WaitCounters::default() }
    }

    /// Tells of traffic that was not found by waiting; without it, a process that slept does not poll.
    pub fn had_traffic(&mut self) {
        self.policy.had_traffic(Ticks::now());
    }

    /// What was counted.
    pub fn counters(&self) -> WaitCounters {
        self.counters
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
        let mut now = begun;
        let mut step = self.policy.begin(now);
        let woken = loop {
            if deadline.is_some_and(|deadline| now >= deadline) {
                break Woken::Due;
            }
            match step {
                Step::Look => std::hint::spin_loop(),
                Step::Yield => self.give_way(now),
                Step::Sleep => break Woken::Slept,
            }
            let ready = sources.is_ready()?;
            now = Ticks::now();
            if ready {
                self.policy.found(now);
                self.counters.found += 1;
                break Woken::Ready;
            }
            step = self.policy.found_nothing(now);
        };
        self.counters.wait_ticks.0 += now.since(begun).0;
        match woken {
            Woken::Slept => self.sleep(sources, deadline),
            Woken::Ready | Woken::Due => Ok(woken),
        }
    }

    fn give_way(&mut self, begun: Ticks) {
        std::thread::yield_now();
        let now = Ticks::now();
        self.counters.yields += 1;
        if self.policy.yielded(now.since(begun), now) {
            self.counters.slow_yields += 1;
        }
    }

    fn sleep<S: Sources>(&mut self, sources: &mut S, deadline: Option<Ticks>) -> Result<Woken, S::Error> {
        if !sources.declare_asleep()? {
            self.policy.had_traffic(Ticks::now());
            return Ok(Woken::Ready);
        }
        let begun = Ticks::now();
        let time = deadline.map(|deadline| Duration::from_nanos(self.rate.ns(deadline.since(begun))));
        let outcome = sources.sleep(time);
        sources.awake();
        self.counters.sleeps += 1;
        self.counters.sleep_ticks.0 += Ticks::now().since(begun).0;
        outcome.map(|()| Woken::Slept)
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
        match poll(&mut [PollFd::new(&self.ear, PollFlags::IN)], time.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(LinkError::Host(error.into())),
        }
        let heard = self.ear.drain().map_err(LinkError::Host)?;
        if heard.hung_up { Err(LinkError::PeerGone) } else { Ok(()) }
    }

    fn awake(&mut self) {
        self.consumer.awake();
    }
}
