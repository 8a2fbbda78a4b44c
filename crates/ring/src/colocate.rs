//! Co-location: a sleeping thread moves to the CPU of its partners while this saves time (decisions 015 and 017). Partners are
//! the threads at the other ends of its links.
//!
//! Waking a thread on another CPU needs an interrupt and an exit from an idle state. Both together can take longer than the work
//! for which the thread is woken. If waking is slow and partners exchange little work, each thread moves to the CPU of the
//! partner that notifies it. In the end, all these threads share one CPU. A *fixed* partner belongs to a program whose placement
//! siga must not change, so the others move to its CPU. If there is work for several CPUs, or if other
//! processes need the shared CPU, the threads *spread* again: each returns to the CPUs that it was allowed to use before. The
//! decision depends on two times: the delay from a notification to the thread's wake-up, and the work between two waits.
//!
//! A co-located thread has the scheduler's batch policy, so a notification does not preempt the sender. The sender continues
//! until it waits, so the woken thread then processes all frames of the sender together. Under the normal policy, the scheduler
//! would switch to the woken thread at the first of ten frames.
//!
//! [`Colocation`] makes the decision. It reads no clock: times are arguments. [`Affinity`] executes the decision.

use crate::clock::{Rate, Ticks};
use crate::doorbell::Notification;
use crate::sys::{Policy, change_policy};
use rustix::thread::{CpuSet, Pid, gettid, sched_getaffinity, sched_setaffinity};

/// Thresholds of the decision to co-locate or to spread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Times {
    /// A thread that wakes up sooner than this after a notification from another CPU is not co-located, because it would gain
    /// nothing.
    slow: Ticks,
    /// A thread that works longer than this between two waits is not co-located. The work includes the notifications to other
    /// threads.
    short: Ticks,
    /// A co-located thread that works longer than this between two waits spreads.
    long: Ticks,
    /// A co-located thread that wakes up later than this after a notification shares the CPU with other processes, so it spreads.
    late: Ticks,
    /// If a window of [`WINDOW`] waits takes longer than this, the thread is not co-located, because co-location saves little
    /// time with sparse traffic.
    sparse: Ticks,
    /// Minimum back-off: the time after a spread during which a thread is not co-located again. Each time, the back-off doubles
    /// if the co-location before was short, and halves if it was long ([`WORTH_FACTOR`]).
    rest_min: Ticks,
    /// Maximum of the doubled back-off. If the thread spreads after a long window, the back-off can be longer than this
    /// (`REST_FACTOR`).
    rest_max: Ticks,
}

impl Times {
    /// Returns siga's thresholds. Decision 015 has the measurements from which they were chosen.
    pub(crate) fn new(rate: &Rate) -> Self {
        Self {
            slow: rate.ticks(8_000),
            short: rate.ticks(200_000),
            long: rate.ticks(80_000),
            late: rate.ticks(100_000),
            sparse: rate.ticks(8_000_000),
            rest_min: rate.ticks(50_000_000),
            rest_max: rate.ticks(3_200_000_000),
        }
    }
}

/// A decision about the CPUs on which the thread may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Move {
    /// The thread runs on this CPU only, with the batch policy.
    To(u16),
    /// The thread runs on the CPUs that it was allowed to use before, with the normal policy.
    Spread,
    /// As `Spread`, but at first on this CPU.
    Back(usize),
}

/// Number of waits in a window. The decision to co-locate or to spread is made once in each window.
const WINDOW: u32 = 16;
/// Maximum delay that one notification contributes to the average delay, as a multiple of the threshold `Times::late`. A longer
/// delay counts as this maximum.
const LATE_FACTOR_MAX: u64 = 4;
/// When a co-located thread spreads after a bad window, it is not co-located again for this many times the duration of that
/// window, or longer. So bad windows take at most 1/33 of the time, however long they are.
const REST_FACTOR: u64 = 32;
/// A co-location that lasted for more than this many times the back-off before it was worth the attempt.
const WORTH_FACTOR: u64 = 4;

/// A window: the observations since the last decision.
#[derive(Debug, Clone, Copy, Default)]
struct Window {
    begun: Ticks,
    /// CPU time of the thread at the beginning of the window.
    used: Ticks,
    waits: u32,
    /// The senders of all notifications.
    all: Senders,
    /// The senders that are fixed.
    fixed: Senders,
    /// Sum of the delays from a notification to the thread's wake-up, in ticks.
    late: u64,
}

/// The CPUs from which notifications of a window came.
#[derive(Debug, Clone, Copy, Default)]
struct Senders {
    notifications: u32,
    /// Number of notifications that came from other CPUs than the shared one.
    elsewhere: u32,
    /// The CPU of the last notification.
    last: Option<u16>,
}

impl Senders {
    fn add(&mut self, cpu: u16, is_elsewhere: bool) {
        self.notifications += 1;
        self.elsewhere += u32::from(is_elsewhere);
        self.last = Some(cpu);
    }
}

/// Decides where a thread runs.
#[derive(Debug, Clone)]
pub(crate) struct Colocation {
    times: Times,
    /// The shared CPU, and the time since which the thread has been on it. `None` if the thread is not co-located.
    at: Option<(u16, Ticks)>,
    window: Window,
    /// True if the last window was in favour of spreading. A thread spreads only after two such windows in a row.
    warned: bool,
    not_before: Ticks,
    rest: Ticks,
}

impl Colocation {
    /// Creates the state of a thread without any observation.
    pub(crate) fn new(times: Times) -> Self {
        Self { times, at: None, window: Window::default(), warned: false, not_before: Ticks(0), rest: Ticks(0) }
    }

    /// Returns the time since which the thread has been co-located, if it is.
    pub(crate) fn since(&self) -> Option<Ticks> {
        self.at.map(|(_, since)| since)
    }

    /// Records a notification from a partner. The thread's latest sleep ended at `woken`.
    pub(crate) fn notified(&mut self, notification: Notification, woken: Ticks) {
        let window = &mut self.window;
        // The delay is limited for two reasons: a single delay caused by the host must not determine the decision, and a peer can
        // send a false time.
        window.late += notification.before(woken).0.min(self.times.late.0.saturating_mul(LATE_FACTOR_MAX));
        let is_elsewhere = self.at.is_some_and(|(at, _)| at != notification.cpu);
        window.all.add(notification.cpu, is_elsewhere);
        if notification.is_fixed {
            window.fixed.add(notification.cpu, is_elsewhere);
        }
    }

    /// Records that a wait begins. Returns true if it is time to call [`Colocation::decide`].
    pub(crate) fn begins_wait(&mut self) -> bool {
        self.window.waits += 1;
        self.window.waits >= WINDOW
    }

    /// Decides whether the thread moves. The thread runs on CPU `here`, and `used` is its CPU time since its start.
    pub(crate) fn decide(&mut self, now: Ticks, used: Ticks, here: Option<u16>) -> Option<Move> {
        let next = Window { begun: now, used, ..Window::default() };
        let window = std::mem::replace(&mut self.window, next);
        let is_sparse = now.since(window.begun) > self.times.sparse;
        let work = Ticks(used.since(window.used).0 / u64::from(window.waits.max(1)));
        let late = Ticks(window.late / u64::from(window.all.notifications.max(1)));
        // Fixed partners cannot follow this thread, so the others count only if there are none.
        let followed = if window.fixed.notifications > 0 { window.fixed } else { window.all };
        let is_bad = work > self.times.long || late > self.times.late;
        let was_warned = std::mem::replace(&mut self.warned, is_bad);
        match self.at {
            None if is_sparse || work > self.times.short || now < self.not_before => None,
            None if late < self.times.slow && window.all.last != here => None,
            None => self.go(followed.last?, now),
            Some(_) if is_bad && !is_sparse && !was_warned => None,
            Some((_, since)) if is_bad => {
                let was_worth_it = now.since(since).0 > self.rest.0.saturating_mul(WORTH_FACTOR);
                let rest = if was_worth_it { self.rest.0 / 2 } else { self.rest.0.saturating_mul(2) };
                self.rest = Ticks(rest.clamp(self.times.rest_min.0, self.times.rest_max.0));
                let lost = now.since(window.begun).0.saturating_mul(REST_FACTOR);
                self.not_before = Ticks(now.0.saturating_add(self.rest.0.max(lost)));
                self.spread()
            }
            Some(_) if is_sparse => self.spread(),
            Some(_) if followed.notifications > 0 && followed.elsewhere == followed.notifications => {
                self.go(followed.last?, now)
            }
            Some(_) => None,
        }
    }

    /// Ends a co-location without a back-off, because the thread polls for a while. Returns the time since which the thread was
    /// co-located, if it was.
    pub(crate) fn pause(&mut self) -> Option<Ticks> {
        self.warned = false;
        self.at.take().map(|(_, since)| since)
    }

    /// Begins a new window, because the thread sleeps again. `used` is its CPU time since its start.
    pub(crate) fn resume(&mut self, now: Ticks, used: Ticks) {
        self.window = Window { begun: now, used, ..Window::default() };
    }

    /// Records that the operating system refused the move.
    pub(crate) fn refused(&mut self, now: Ticks) {
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

/// Sets the CPU affinity and scheduling policy of the waiting thread. Dropping this value restores the former affinity and
/// policy.
#[derive(Debug, Default)]
pub(crate) struct Affinity {
    moved: Option<Moved>,
}

#[derive(Debug)]
struct Moved {
    thread: Pid,
    to: CpuSet,
    allowed: CpuSet,
    /// True if the thread has the batch policy.
    is_batch: bool,
}

impl Affinity {
    /// Returns true if the thread that was moved is not the calling thread.
    pub(crate) fn is_of_another(&self) -> bool {
        self.moved.as_ref().is_some_and(|moved| moved.thread != gettid())
    }

    /// Moves the calling thread. Returns false if the operating system refused the move. The thread then keeps its former
    /// affinity.
    pub(crate) fn apply(&mut self, to: Move) -> bool {
        match to {
            Move::Spread => {
                self.restore();
                true
            }
            Move::Back(cpu) => {
                self.restore();
                let mut first = CpuSet::new();
                if cpu < CpuSet::MAX_CPU {
                    first.set(cpu);
                }
                // If a call fails, the thread stays where it is until the scheduler moves it.
                if let Ok(allowed) = sched_getaffinity(None)
                    && sched_setaffinity(None, &first).is_ok()
                {
                    let _ = sched_setaffinity(None, &allowed);
                }
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

    /// Restores the former affinity, unless another process has changed it in the meantime.
    fn restore(&mut self) {
        let Some(Moved { thread, to, allowed, is_batch }) = self.moved.take() else { return };
        // `None` stands for the calling thread: the seccomp filter of guests allows these system calls only without a thread id.
        let thread = (thread != gettid()).then_some(thread);
        if is_batch {
            // This call fails if the thread has ended. Then nothing needs to be restored.
            let _ = change_policy(thread, Policy::Batch, Policy::Other);
        }
        if sched_getaffinity(thread).is_ok_and(|now| now == to) {
            // This call fails if the thread has ended. Then nothing needs to be restored.
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
            assert_eq!(thread.window(3, 1, 10, 100), None, "the first window began before the thread did");
            thread
        }

        /// Waits of one window, each after `work` us of work, rung for from `cpu` `late` us before, and `every` us apart. The
        /// thread itself runs on CPU 7.
        fn window(&mut self, cpu: u16, late: u64, work: u64, every: u64) -> Option<Move> {
            for wait in 1..=WINDOW {
                self.now += every * US;
                self.used += work * US;
                let at = Ticks(self.now - late * US);
                self.colocation.notified(Notification { cpu, is_fixed: false, at }, Ticks(self.now));
                assert_eq!(self.colocation.begins_wait(), wait == WINDOW);
            }
            self.colocation.decide(Ticks(self.now), Ticks(self.used), Some(7))
        }
    }

    #[test]
    fn a_thread_with_little_work_moves_to_the_cpu_of_its_partners() {
        let mut thread = Thread::new();
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
        assert_eq!(thread.window(3, 20, 5, 20), None);
        assert_eq!(thread.window(1, 20, 5, 20), Some(Move::To(1)), "all notifications come from another CPU now");
        thread.colocation.notified(Notification { cpu: 1, is_fixed: false, at: Ticks(thread.now) }, Ticks(thread.now));
        assert_eq!(thread.window(0, 20, 5, 20), None, "not all of them");
        // Nobody rings where yields find everything.
        (1..=WINDOW).for_each(|_| _ = thread.colocation.begins_wait());
        assert_eq!(thread.colocation.decide(Ticks(thread.now + 99 * US), Ticks(thread.used), Some(7)), None);
    }

    #[test]
    fn a_thread_with_much_work_does_not_colocate() {
        let mut thread = Thread::new();
        assert_eq!(thread.window(3, 20, 201, 250), None);
        assert_eq!(thread.window(3, 20, 5, 501), None, "the traffic is sparse");
        assert_eq!(thread.window(3, 7, 25, 50), None, "waking is fast");
        assert_eq!(thread.window(3, 8, 200, 500), Some(Move::To(3)));
    }

    #[test]
    fn a_thread_follows_fixed_partners_rather_than_others() {
        let mut thread = Thread::new();
        let fixed = |thread: &mut Thread, cpu: u16| {
            let notification = Notification { cpu, is_fixed: true, at: Ticks(thread.now) };
            thread.colocation.notified(notification, Ticks(thread.now));
        };
        fixed(&mut thread, 2);
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(2)), "although the last notification came from CPU 3");
        fixed(&mut thread, 2);
        assert_eq!(thread.window(3, 20, 25, 50), None, "other partners follow this thread");
        fixed(&mut thread, 1);
        fixed(&mut thread, 2);
        assert_eq!(thread.window(3, 20, 25, 50), None, "not all fixed partners have moved");
        fixed(&mut thread, 1);
        assert_eq!(thread.window(2, 20, 25, 50), Some(Move::To(1)), "all fixed partners have moved");
    }

    #[test]
    fn a_thread_notified_from_its_own_cpu_stays_there() {
        let mut thread = Thread::new();
        assert_eq!(thread.window(7, 2, 25, 50), Some(Move::To(7)), "however fast waking is: the partners are here");
        assert_eq!(Thread::new().window(7, 2, 201, 250), None, "except with much work");
    }

    #[test]
    fn a_long_window_makes_the_back_off_long_in_proportion() {
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
    fn the_back_off_doubles_after_a_short_colocation_and_halves_after_a_long_one() {
        let mut thread = Thread::new();
        for rest in [50, 100, 200, 400, 800, 1_600, 3_200, 3_200] {
            assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
            assert_eq!(thread.window(3, 20, 81, 100), None, "one window is not enough");
            assert_eq!(thread.window(3, 20, 80, 100), None);
            assert_eq!(thread.window(3, 20, 81, 100), None);
            assert_eq!(thread.window(3, 20, 81, 100), Some(Move::Spread));
            thread.now += (rest - 2) * MS;
            assert_eq!(thread.window(3, 20, 25, 50), None, "the traffic was sparse");
            assert_eq!(thread.window(3, 20, 25, 50), None, "{rest}");
            thread.now += MS;
        }
        for (windows, rest) in [(13_000, 1_600), (6_500, 800), (3_000, 1_600)] {
            assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)), "{rest}");
            (0..windows).for_each(|_| assert_eq!(thread.window(3, 20, 25, 63), None));
            assert_eq!(thread.window(3, 20, 81, 100), None);
            assert_eq!(thread.window(3, 20, 81, 100), Some(Move::Spread));
            thread.now += (rest - 2) * MS;
            assert_eq!(thread.window(3, 20, 25, 50), None, "the traffic was sparse");
            assert_eq!(thread.window(3, 20, 25, 50), None, "{rest}");
            thread.now += MS;
        }
    }

    #[test]
    fn a_thread_spreads_when_it_runs_late_or_has_sparse_traffic() {
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
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)), "sparse traffic causes no back-off");
        // A ring from the future, or of a liar, is late by nothing or by so much only.
        thread
            .colocation
            .notified(Notification { cpu: 3, is_fixed: false, at: Ticks(thread.now + MS) }, Ticks(thread.now));
        assert_eq!(thread.window(3, 0, 25, 50), None);
        thread.colocation.notified(Notification { cpu: 3, is_fixed: false, at: Ticks(0) }, Ticks(thread.now));
        assert_eq!(thread.colocation.window.late, 400 * US);
    }

    #[test]
    fn a_pause_ends_a_colocation_without_a_back_off() {
        let mut thread = Thread::new();
        thread.window(3, 20, 25, 50);
        assert!(thread.colocation.since().is_some());
        assert!(thread.colocation.pause().is_some() && thread.colocation.since().is_none());
        assert_eq!(thread.colocation.pause(), None);
        thread.now += MS;
        thread.colocation.resume(Ticks(thread.now), Ticks(thread.used));
        assert_eq!(thread.window(3, 20, 25, 50), Some(Move::To(3)));
    }

    #[test]
    fn a_refused_move_is_not_tried_again_for_the_longest_back_off() {
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
    fn a_moved_thread_gets_its_affinity_and_policy_back() {
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
        assert!(affinity.apply(Move::To(cpu)) && on_one());
        assert!(affinity.apply(Move::Back(cpu.into())) && is_batch(false));
        assert_eq!(sched_getaffinity(None), Ok(allowed));
        assert!(affinity.apply(Move::Back(CpuSet::MAX_CPU)));
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
