//! Gathering: who sleeps runs where its partners run.
//!
//! To wake a process on another CPU may cost more than the wake-up is for: an interrupt at the waker, a CPU that leaves its rest at
//! the other end. Where that takes long, and partners hand little work to and fro, each of them moves to the CPU of whoever rings
//! for it, until all share one. Where there is work for several CPUs, or others need that one, they part again. How long after a
//! ring they run, and how long they work between two waits, tells which.
//!
//! Who has gathered takes the CPU from nobody when it is woken: a partner that rings goes on until it waits, and so hands over
//! all that it had to do at once. The scheduler's usual way is to run who is woken at the first ring, for one frame of ten.
//!
//! [`Colocation`] decides and sees no clock: times are arguments. [`Affinity`] carries it out.

use crate::clock::{Rate, Ticks};
use crate::doorbell::Notification;
use crate::sys::{Policy, change_policy};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// The times by which it is decided where to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Who runs sooner after a ring from another CPU has nothing to gain.
    pub slow: Ticks,
    /// Who works for longer between two waits, waking others included, does not gather.
    pub short: Ticks,
    /// Who works for longer where it has gathered parts.
    pub long: Ticks,
    /// Who has gathered and runs later after a ring shares the CPU with others, and parts.
    pub late: Ticks,
    /// A window of waits that takes longer is of no traffic that is worth it.
    pub sparse: Ticks,
    /// Who had to part does not gather for no less than this, and twice as long each time,
    pub rest_min: Ticks,
    /// up to this, unless more was lost.
    pub rest_max: Ticks,
}

impl Times {
    /// The times that siga gathers by.
    pub fn new(rate: &Rate) -> Self {
        Self {
            slow: rate.ticks(8_000),
            short: rate.ticks(200_000),
            long: rate.ticks(80_000),
            late: rate.ticks(100_000),
            sparse: rate.ticks(8_000_000),
            rest_min: rate.ticks(400_000_000),
            rest_max: rate.ticks(3_200_000_000),
        }
    }
}

/// Where to run from here on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// On this CPU alone, and once its partners wait.
    To(u16),
    /// Wherever it was allowed to before, and as soon as it is woken.
    Spread,
}

/// Decisions are made after so many waits.
const WINDOW: u32 = 16;
/// A ring counts as late by no more than so many times what is too late on the average.
const LATE_FACTOR_MAX: u64 = 4;
/// Who had to part does not gather for so many times what the last window took: so no more than a part of the time is lost by it,
/// whatever the work that came between.
const REST_FACTOR: u64 = 32;

/// What was seen since the last decision.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    begun: Ticks,
    /// CPU time of the thread when it began.
    used: Ticks,
    waits: u32,
    rings: u32,
    /// Rings from elsewhere than where it has gathered.
    elsewhere: u32,
    last: Option<u16>,
    /// Times from rings to waking, summed.
    late: u64,
}

/// Decides where to run.
#[derive(Debug, Clone)]
pub struct Colocation {
    times: Times,
    /// Where it has gathered, since when.
    at: Option<(u16, Ticks)>,
    window: Window,
    /// The last window said that it should part.
    warned: bool,
    not_before: Ticks,
    rest: Ticks,
}

impl Colocation {
    /// Nothing was seen yet.
    pub fn new(times: Times) -> Self {
        Self { times, at: None, window: Window::default(), warned: false, not_before: Ticks(0), rest: times.rest_min }
    }

    /// Since when it has gathered where it is.
    pub fn since(&self) -> Option<Ticks> {
        self.at.map(|(_, since)| since)
    }

    /// Somebody rang; the latest sleep ended at `woken`.
    pub fn notified(&mut self, notification: Notification, woken: Ticks) {
        let window = &mut self.window;
        window.rings += 1;
        // One hiccup of the host is no crowd, and what a doorbell tells need not be true.
        window.late += notification.before(woken).0.min(self.times.late.0.saturating_mul(LATE_FACTOR_MAX));
        window.elsewhere += u32::from(self.at.is_some_and(|(at, _)| at != notification.cpu));
        window.last = Some(notification.cpu);
    }

    /// A wait begins. `true`: it is time to decide.
    pub fn begins_wait(&mut self) -> bool {
        self.window.waits += 1;
        self.window.waits >= WINDOW
    }

    /// Decides, where the thread runs on CPU `here` and has `used` so much CPU time in all.
    pub fn decide(&mut self, now: Ticks, used: Ticks, here: Option<u16>) -> Option<Move> {
        let next = Window { begun: now, used, ..Window::default() };
        let window = std::mem::replace(&mut self.window, next);
        let is_sparse = now.since(window.begun) > self.times.sparse;
        let work = Ticks(used.since(window.used).0 / u64::from(window.waits.max(1)));
        let late = Ticks(window.late / u64::from(window.rings.max(1)));
        let is_bad = work > self.times.long || late > self.times.late;
        let was_warned = std::mem::replace(&mut self.warned, is_bad);
        match self.at {
            None if is_sparse || work > self.times.short || now < self.not_before => None,
            None if late < self.times.slow && window.last != here => None,
            None => self.go(window.last?, now),
            Some(_) if is_bad && !is_sparse && !was_warned => None,
            Some((_, since)) if is_bad => {
                if now.since(since) > self.times.rest_max {
                    self.rest = self.times.rest_min;
                }
                let lost = now.since(window.begun).0.saturating_mul(REST_FACTOR);
                self.not_before = Ticks(now.0.saturating_add(self.rest.0.max(lost)));
                self.rest = Ticks(self.rest.0.saturating_mul(2)).min(self.times.rest_max);
                self.spread()
            }
            Some(_) if is_sparse => self.spread(),
            Some(_) if window.rings > 0 && window.elsewhere == window.rings => self.go(window.last?, now),
            Some(_) => None,
        }
    }

    /// The host did not let it.
    pub fn refused(&mut self, now: Ticks) {
        self.at = None;
        self.not_before = Ticks(now.0.saturating_add(self.times.rest_max.0));
    }

    fn go(&mut self, cpu: u16, now: Ticks) -> Option<Move> {
        (self.at, self.warned) = (Some((cpu, now)), false);
        Some(Move::To(cpu))
    }

    fn spread(&mut self) -> Option<Move> {
        self.at = None;
        Some(Move::Spread)
    }
}

/// Where the thread runs that waits; what was before is restored when this is dropped.
#[derive(Debug, Default)]
pub struct Affinity {
    moved: Option<Moved>,
}

#[derive(Debug)]
struct Moved {
    thread: Pid,
    to: CpuSet,
    allowed: CpuSet,
    /// It gives way to whoever runs.
    is_batch: bool,
}

impl Affinity {
    /// Another thread than the calling one was moved.
    pub fn is_of_another(&self) -> bool {
        self.moved.as_ref().is_some_and(|moved| moved.thread != gettid())
    }

    /// Has the calling thread run there. `false`: it may not, and runs where it did before it was moved.
    pub fn apply(&mut self, to: Move) -> bool {
        match to {
            Move::Spread => {
                self.restore();
                true
            }
            Move::To(cpu) => self.go_to(cpu.into()).is_some(),
        }
    }

    fn go_to(&mut self, cpu: usize) -> Option<()> {
        self.restore();
        let allowed = sched_getaffinity(None).ok()?;
        if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
            return None;
        }
        let mut to = CpuSet::new();
        to.set(cpu);
        sched_setaffinity(None, &to).ok()?;
        let is_batch = change_policy(None, Policy::Other, Policy::Batch).unwrap_or(false);
        self.moved = Some(Moved { thread: gettid(), to, allowed, is_batch });
        Some(())
    }

    /// Whoever else has moved the thread in the meantime knows better.
    fn restore(&mut self) {
        let Some(Moved { thread, to, allowed, is_batch }) = self.moved.take() else { return };
        // Guests may ask about themselves alone, and only by no number.
        let thread = (thread != gettid()).then_some(thread);
        if is_batch {
            // A thread that is gone needs nothing.
            let _ = change_policy(thread, Policy::Batch, Policy::Other);
        }
        if sched_getaffinity(thread).is_ok_and(|now| now == to) {
            // It was so before; a thread that is gone needs nothing.
            let _ = sched_setaffinity(thread, &allowed);
        }
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;
    const MS: u64 = 1_000 * US;

    /// A thread on a schedule.
    struct Thread {
        colocation: Colocation,
        now: u64,
        used: u64,
    }

    impl Thread {
        fn new() -> Self {
            let mut thread = Self {
                colocation: Colocation::new(Times::new(&Rate::NANOSECONDS)),
                now: 10_000 * MS,
                used: 5_000 * MS,
            };
            assert_eq!(thread.window(3, 1, 10, 100), None, "a window that began with the clock tells nothing");
            thread
        }

        /// Waits of one window, each after `work` us of work, rung for from `cpu` `late` us before, and `every` us apart. The
        /// thread itself runs on CPU 7.
        fn window(&mut self, cpu: u16, late: u64, work: u64, every: u64) -> Option<Move> {
            for wait in 1..=WINDOW {
                self.now += every * US;
                self.used += work * US;
                let at = Ticks(self.now - late * US);
                self.colocation.notified(Notification { cpu, at }, Ticks(self.now));
                assert_eq!(self.colocation.begins_wait(), wait == WINDOW);
            }
            self.colocation.decide(Ticks(self.now), Ticks(self.used), Some(7))
        }
    }

    #[test]
    fn who_hands_little_to_and_fro_goes_where_its_partners_are() {
        let mut thread = Thread::new();
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
        assert_eq!(thread.window(3, 20, 5, 20), None);
        assert_eq!(thread.window(1, 20, 5, 20), Some(Move::To(1)), "all of them are elsewhere now");
        thread.colocation.notified(Notification { cpu: 1, at: Ticks(thread.now) }, Ticks(thread.now));
        assert_eq!(thread.window(0, 20, 5, 20), None, "not all of them");
        // Nobody rings where yields find everything.
        (1..=WINDOW).for_each(|_| _ = thread.colocation.begins_wait());
        assert_eq!(thread.colocation.decide(Ticks(thread.now + 99 * US), Ticks(thread.used), Some(7)), None);
    }

    #[test]
    fn who_has_much_to_do_does_not_gather() {
        let mut thread = Thread::new();
        assert_eq!(thread.window(3, 20, 201, 250), None);
        assert_eq!(thread.window(3, 20, 5, 501), None, "seldom enough that it does not matter");
        assert_eq!(thread.window(3, 7, 25, 50), None, "woken soon enough");
        assert_eq!(thread.window(3, 8, 200, 500), Some(Move::To(3)));
    }

    #[test]
    fn who_is_rung_for_from_its_own_cpu_stays_there() {
        let mut thread = Thread::new();
        assert_eq!(
            thread.window(7, 2, 25, 50),
            Some(Move::To(7)),
            "however soon it runs: its partners have come to it"
        );
        assert_eq!(Thread::new().window(7, 2, 201, 250), None, "but for much to do");
    }

    #[test]
    fn who_works_for_long_where_others_wait_does_so_for_a_small_part_of_its_time() {
        let mut thread = Thread::new();
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
        // Ten seconds of work follow what was a dialogue.
        assert_eq!(thread.window(3, 20, 625_000, 625_000), Some(Move::Spread));
        thread.now += 319_000 * MS;
        thread.window(3, 20, 25, 50);
        assert_eq!(thread.window(3, 20, 25, 50), None);
        thread.now += 1_000 * MS;
        thread.window(3, 20, 25, 50);
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
    }

    #[test]
    fn work_for_several_cpus_parts_them_for_longer_each_time() {
        let mut thread = Thread::new();
        for rest in [400, 800, 1_600, 3_200, 3_200] {
            assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
            assert_eq!(thread.window(3, 20, 81, 100), None, "once is chance");
            assert_eq!(thread.window(3, 20, 80, 100), None);
            assert_eq!(thread.window(3, 20, 81, 100), None);
            assert_eq!(thread.window(3, 20, 81, 100), Some(Move::Spread));
            thread.now += (rest - 1) * MS;
            assert_eq!(thread.window(3, 20, 25, 50), None, "{rest}");
            thread.now += MS;
        }
        // Who was gathered for long begins anew.
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
        (0..3_300).for_each(|_| assert_eq!(thread.window(3, 20, 25, 63), None));
        assert_eq!(thread.window(3, 20, 81, 100), None);
        assert_eq!(thread.window(3, 20, 81, 100), Some(Move::Spread));
        thread.now += 400 * MS;
        assert_eq!(thread.window(3, 20, 25, 50), None, "the wait before was long ago");
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
    }

    #[test]
    fn who_runs_late_parts_and_who_has_little_traffic_does_so_too() {
        let mut thread = Thread::new();
        assert_eq!(
            thread.window(3, 200, 25, 50),
            Some(Move::To(3)),
            "who is late on a CPU of its own is only woken there"
        );
        assert_eq!(thread.window(3, 101, 25, 50), None);
        assert_eq!(thread.window(3, 100, 25, 50), None);
        assert_eq!(thread.window(3, 101, 25, 50), None);
        assert_eq!(thread.window(3, 101, 25, 50), Some(Move::Spread));
        thread.now += 400 * MS;
        thread.window(3, 20, 25, 50);
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
        assert_eq!(thread.window(3, 20, 25, 501), Some(Move::Spread));
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)), "that is no reason to stay apart");
        // A ring from the future, or of a liar, is late by nothing or by so much only.
        thread.colocation.notified(Notification { cpu: 3, at: Ticks(thread.now + MS) }, Ticks(thread.now));
        assert_eq!(thread.window(3, 0, 25, 50), None);
        thread.colocation.notified(Notification { cpu: 3, at: Ticks(0) }, Ticks(thread.now));
        assert_eq!(thread.colocation.window.late, 400 * US);
    }

    #[test]
    fn who_may_not_go_does_not_ask_again_for_long() {
        let mut thread = Thread::new();
        assert_eq!(thread.window(9, 20, 25, 50), Some(Move::To(9)));
        thread.colocation.refused(Ticks(thread.now));
        assert_eq!(thread.window(9, 20, 25, 50), None);
        thread.now += 3_200 * MS;
        thread.window(9, 20, 25, 50);
        assert_eq!(thread.window(9, 20, 25, 50), Some(Move::To(9)));
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no threads of other numbers")]
    fn a_thread_is_moved_and_gets_back_what_it_was_allowed() {
        let allowed = sched_getaffinity(None).unwrap();
        let cpu = u16::try_from((0..CpuSet::MAX_CPU).find(|cpu| allowed.is_set(*cpu)).unwrap()).unwrap();
        let forbidden =
            (0..u16::MAX).find(|cpu| usize::from(*cpu) >= CpuSet::MAX_CPU || !allowed.is_set((*cpu).into()));
        let is_batch = |is_batch: bool| {
            let (from, to) = if is_batch { (Policy::Batch, Policy::Other) } else { (Policy::Other, Policy::Batch) };
            let was = change_policy(None, from, to).unwrap();
            was && change_policy(None, to, from).unwrap()
        };
        let on_one = || {
            let on_one = sched_getaffinity(None).is_ok_and(|now| now.count() == 1 && now.is_set(cpu.into()));
            on_one && is_batch(true)
        };
        let mut affinity = Affinity::default();
        assert!(affinity.apply(Move::To(cpu)) && on_one());
        assert!(affinity.apply(Move::To(cpu)) && on_one());
        assert!(affinity.apply(Move::Spread) && is_batch(false));
        assert_eq!(sched_getaffinity(None), Ok(allowed));
        assert!(!affinity.apply(Move::To(forbidden.unwrap())));
        assert_eq!(sched_getaffinity(None), Ok(allowed));
        // Another thread ends what this one began.
        assert!(affinity.apply(Move::To(cpu)) && on_one() && !affinity.is_of_another());
        let ends = move || {
            assert!(affinity.is_of_another());
            drop(affinity);
        };
        std::thread::spawn(ends).join().unwrap();
        assert_eq!(sched_getaffinity(None), Ok(allowed));
        assert!(is_batch(false));
        // Somebody else moves it in the meantime: that stands.
        if allowed.count() > 1 {
            let mut affinity = Affinity::default();
            assert!(affinity.apply(Move::To(cpu)));
            let mut others = allowed;
            others.unset(cpu.into());
            sched_setaffinity(None, &others).unwrap();
            drop(affinity);
            assert_eq!(sched_getaffinity(None), Ok(others));
        }
    }
}
