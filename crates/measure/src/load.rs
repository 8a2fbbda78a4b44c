//! Workload drivers: the client and the server of every workload, over any implementation of `Sockets`.
//!
//! A driver runs in a thread of its own; the thread that talks to the coordinator steers it through [`Shared`].
//! Phases (check, warm-up, measure) follow on the same connections. At the end of a phase the client stops
//! initiating, the server stops sending, and each side waits until it has received what the other has sent. Then both
//! have counted the same bytes, and nothing moves while CPU counters are read: the drivers *quiesce*
//! (docs/decisions/002). A stream may stop within an exchange; the next phase continues there.

pub mod client;
pub mod content;
pub mod server;

use crate::clock::{now_ns, thread_cpu_ns};
use crate::socket::Waker;
use serde::{Deserialize, Serialize};
use siga_results::record::Counts;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Uses `ns` of CPU, all of it in user mode but two short system calls: the known cost that calibration plants.
///
/// The thread's own CPU time decides, because wall time includes preemption. It takes a system call to read; so in
/// between the wall clock, which takes none, decides when to read it again.
pub fn spend_cpu(ns: u64) {
    let until_cpu = thread_cpu_ns() + ns;
    let mut left = ns;
    while left > 0 {
        let until = now_ns() + left;
        while now_ns() < until {
            std::hint::spin_loop();
        }
        left = until_cpu.saturating_sub(thread_cpu_ns());
    }
}

/// A server's account at a quiescent point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesced {
    /// Counts since it began.
    pub counts: Counts,
    /// When the first bytes since the last quiescent point arrived, on its host's monotonic clock; 0 if none have, or
    /// if the client times the workload.
    pub first_ns: u64,
    /// When the last bytes arrived; 0 as above.
    pub last_ns: u64,
}

impl Quiesced {
    /// Two processes together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let first = [self.first_ns, other.first_ns].into_iter().filter(|&ns| ns > 0).min();
        Self {
            counts: self.counts.plus(other.counts),
            first_ns: first.unwrap_or(0),
            last_ns: self.last_ns.max(other.last_ns),
        }
    }

    /// Time from the first to the last arrival.
    pub fn span_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// What the driver's thread and its control thread share. Counters have one writer, the driver.
#[derive(Debug)]
pub struct Shared {
    /// Control to driver: the phase's time is over; initiate nothing more, and stop a stream where it is. A client
    /// that began late still takes its full time, and has to be woken until it has stopped.
    pub ending: AtomicBool,
    /// Client to control: nothing more will be sent in this phase.
    pub stopped: AtomicBool,
    /// Control to client: bytes the server has sent in all; the phase ends once they have arrived.
    pub expected: AtomicU64,
    /// Control to driver: end the phase in its present state.
    pub give_up: AtomicBool,
    /// Control to server: quiesce.
    pause: AtomicBool,
    /// The server's counts while it is quiescent.
    quiesced: Mutex<Option<Quiesced>>,
    /// `pause` or `quiesced` has changed.
    turn: Condvar,
    /// Control to server: leave.
    pub quit: AtomicBool,
    /// Payload bytes sent since the driver began.
    pub sent: AtomicU64,
    /// Payload bytes received since the driver began.
    pub received: AtomicU64,
    /// Connections made or accepted since the driver began.
    pub connections: AtomicU64,
}

/// Connections that are served between two publications of the counters: a round of 10,000 streams takes seconds.
const PUBLISH_EVERY: usize = 64;

/// The server's total is not known yet.
pub const UNKNOWN: u64 = u64::MAX;

impl Default for Shared {
    fn default() -> Self {
        Self {
            ending: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            expected: AtomicU64::new(UNKNOWN),
            give_up: AtomicBool::new(false),
            pause: AtomicBool::new(false),
            quiesced: Mutex::new(None),
            turn: Condvar::new(),
            quit: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            connections: AtomicU64::new(0),
        }
    }
}

impl Shared {
    /// Publishes the counters that the control thread watches.
    fn publish(&self, counts: &Counts) {
        self.sent.store(counts.sent, Ordering::Relaxed);
        self.received.store(counts.received, Ordering::Relaxed);
        self.connections.store(counts.connections, Ordering::Relaxed);
    }

    /// Control: asks the server to quiesce between two operations and waits for it; `None` if that takes longer than
    /// `time`. Wakes the server for it.
    pub fn quiesce(&self, waker: &dyn Waker, time: Duration) -> Option<Quiesced> {
        self.pause.store(true, Ordering::Release);
        waker.wake();
        let begun = Instant::now();
        let mut quiesced = self.quiesced();
        while quiesced.is_none() {
            let left = time.checked_sub(begun.elapsed())?;
            (quiesced, _) = self.turn.wait_timeout(quiesced, left).unwrap_or_else(PoisonError::into_inner);
        }
        *quiesced
    }

    /// Control: lets the server go on; false if it has not done so within `time`.
    pub fn go_on(&self, time: Duration) -> bool {
        let begun = Instant::now();
        let mut quiesced = self.quiesced();
        self.ending.store(false, Ordering::Relaxed);
        self.pause.store(false, Ordering::Release);
        self.turn.notify_all();
        while quiesced.is_some() {
            let Some(left) = time.checked_sub(begun.elapsed()) else { return false };
            (quiesced, _) = self.turn.wait_timeout(quiesced, left).unwrap_or_else(PoisonError::into_inner);
        }
        true
    }

    /// Control: lets the server leave.
    pub fn quit(&self, waker: &dyn Waker) {
        let quiesced = self.quiesced();
        self.quit.store(true, Ordering::Release);
        self.turn.notify_all();
        drop(quiesced);
        waker.wake();
    }

    /// Server: rests until the pause is over; `tend` is [`Sockets::tend`](crate::socket::Sockets::tend).
    fn rest(&self, account: &Quiesced, mut tend: impl FnMut() -> Option<Duration>) {
        let mut quiesced = self.quiesced();
        *quiesced = Some(*account);
        self.turn.notify_all();
        while self.pause.load(Ordering::Acquire) && !self.quit.load(Ordering::Acquire) {
            quiesced = match tend() {
                None => self.turn.wait(quiesced).unwrap_or_else(PoisonError::into_inner),
                Some(time) => self.turn.wait_timeout(quiesced, time).unwrap_or_else(PoisonError::into_inner).0,
            };
        }
        *quiesced = None;
        self.turn.notify_all();
    }

    fn quiesced(&self) -> MutexGuard<'_, Option<Quiesced>> {
        self.quiesced.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A buffer for messages of `bytes`. A stream's buffer is as long as its longest write; a datagram is sent whole,
/// whatever its size. A receive buffer for datagrams has one byte more, which shows a datagram that is too long.
fn buffer(fill: u8, write_bytes: u64, bytes: u64, datagram: bool) -> Vec<u8> {
    let most = if datagram {
        siga_plan::limits::DATAGRAM_BYTES_MAX + 1
    } else {
        write_bytes.min(siga_plan::limits::WRITE_BYTES_MAX)
    };
    vec![fill; usize::try_from(bytes.clamp(1, most)).unwrap_or(usize::MAX)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spend_cpu_uses_the_requested_cpu_time_beside_a_busy_thread() {
        let cpu = rustix::thread::sched_getcpu();
        let mut here = rustix::thread::CpuSet::new();
        here.set(cpu);
        let done = AtomicBool::new(false);
        let (done, here) = (&done, &here);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                rustix::thread::sched_setaffinity(None, here).unwrap();
                while !done.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
            let used = scope.spawn(|| {
                rustix::thread::sched_setaffinity(None, here).unwrap();
                let before = thread_cpu_ns();
                spend_cpu(20_000_000);
                thread_cpu_ns() - before
            });
            let used = used.join().unwrap();
            done.store(true, Ordering::Relaxed);
            // By the wall clock the other thread would take about half of the time.
            assert!(used >= 20_000_000, "only {used} ns used");
        });
    }
}
