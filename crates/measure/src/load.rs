//! Workload drivers: the code of client and server that generates the load of every workload, over any implementation of the
//! trait `Sockets`.
//!
//! A driver runs in its own thread. Another thread of the same process, the control thread, communicates with the coordinator
//! and controls the driver through [`Shared`]. The phases of a trial (check, warm-up, measure) use the same connections. At the
//! end of a phase the client starts no more exchanges, and the server stops sending. Each side then waits until it has received
//! what the other side has sent. Then both sides have counted the same bytes, and no data moves while CPU counters are read:
//! the drivers *quiesce* (docs/decisions/002). A stream may stop in the middle of an exchange; the next phase continues this
//! exchange.

pub mod client;
pub mod content;
pub mod datagrams;
pub mod server;

use crate::clock::{now_ns, thread_cpu_ns};
use crate::socket::Waker;
use serde::{Deserialize, Serialize};
use siga_results::record::LoadCounts;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Uses `ns` nanoseconds of CPU time. Calibration adds this known cost and checks that the accounting methods find it. All of
/// the time is user time, except for at least two short system calls that read the thread's CPU time.
///
/// The thread's own CPU time decides when to stop, because wall time includes preemption. Reading the CPU time needs a system
/// call. Reading the wall clock needs none, so the wall clock decides when to read the CPU time again.
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

/// The counts of a server at a quiescent point.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quiesced {
    /// Counts since the server began.
    pub counts: LoadCounts,
    /// Time at which the first bytes since the last quiescent point arrived, in nanoseconds of the monotonic clock of the
    /// server's host. It is 0 if no bytes have arrived, or if not the server but the client times the workload.
    pub first_ns: u64,
    /// Time at which the last bytes before this quiescent point arrived, on the same clock; 0 in the same cases as `first_ns`.
    pub last_ns: u64,
}

impl Quiesced {
    /// Returns the sum of the counts of two server processes, with a time span that covers the spans of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let first = [self.first_ns, other.first_ns].into_iter().filter(|&ns| ns > 0).min();
        Self {
            counts: self.counts.plus(other.counts),
            first_ns: first.unwrap_or(0),
            last_ns: self.last_ns.max(other.last_ns),
        }
    }

    /// Returns the time from the first arrival to the last in nanoseconds.
    pub fn span_ns(&self) -> u64 {
        self.last_ns.saturating_sub(self.first_ns)
    }
}

/// The state that a driver's thread shares with its control thread. Only the driver writes the counters.
#[derive(Debug)]
pub struct Shared {
    /// Set by the control thread: the time of the phase is over. The driver starts no more exchanges, and stops a stream in the
    /// middle of an exchange. A client that began the phase late still uses the full duration. So the control thread must wake
    /// the client repeatedly until `stopped` is set.
    pub ending: AtomicBool,
    /// Set by the client: the client sends nothing more in this phase.
    pub stopped: AtomicBool,
    /// Set by the control thread: the number of bytes that the server has sent in total. The client ends its phase when all of
    /// these bytes have arrived. [`UNKNOWN`] until the server has stopped.
    pub expected: AtomicU64,
    /// Set by the control thread: the client must end the phase immediately, without waiting for exchanges in progress.
    pub give_up: AtomicBool,
    /// Set by the control thread: the server must quiesce.
    pause: AtomicBool,
    /// Set by the server: the server's counts while it is quiescent, `None` while it serves.
    quiesced: Mutex<Option<Quiesced>>,
    /// Signals that `pause` or `quiesced` has changed.
    turn: Condvar,
    /// Set by the control thread: the server must stop serving.
    pub quit: AtomicBool,
    /// Number of payload bytes that the driver has sent since it began.
    pub sent: AtomicU64,
    /// Number of payload bytes that the driver has received since it began.
    pub received: AtomicU64,
    /// Number of connections that the driver has made or accepted since it began.
    pub connections: AtomicU64,
    /// Number of transactions since the driver began.
    pub transactions: AtomicU64,
    /// Number of datagrams that the driver knows to be lost since it began.
    pub lost: AtomicU64,
}

/// Number of connections that a driver serves before it publishes its counters again. One turn for each of 10,000 streams takes
/// seconds, so one publication per turn of all connections would be too rare.
const PUBLISH_EVERY: usize = 64;

/// Returns false if an operation cannot proceed yet.
fn proceeds(outcome: io::Result<bool>) -> io::Result<bool> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
        outcome => outcome,
    }
}

/// Value of [`Shared::expected`] while the total number of bytes that the server sends is not known.
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
            transactions: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }
}

impl Shared {
    /// Called by the driver: publishes its counters, which the control thread reads.
    fn publish(&self, counts: &LoadCounts) {
        self.sent.store(counts.sent, Ordering::Relaxed);
        self.received.store(counts.received, Ordering::Relaxed);
        self.connections.store(counts.connections, Ordering::Relaxed);
        self.transactions.store(counts.transactions, Ordering::Relaxed);
        self.lost.store(counts.lost, Ordering::Relaxed);
    }

    /// Called by the control thread: wakes the server and waits until the server has quiesced between two operations. Returns
    /// the server's counts, or `None` if it does not quiesce within `time`.
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

    /// Called by the control thread: ends the server's pause. Returns false if the server has not resumed within `time`.
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

    /// Called by the control thread: makes the server stop serving.
    pub fn quit(&self, waker: &dyn Waker) {
        let quiesced = self.quiesced();
        self.quit.store(true, Ordering::Release);
        self.turn.notify_all();
        drop(quiesced);
        waker.wake();
    }

    /// Called by the server: publishes `account` and waits until the pause is over. Meanwhile calls `tend`, which is
    /// [`Sockets::tend`](crate::socket::Sockets::tend), so that the network's stack keeps running.
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

/// Makes a buffer for messages of `bytes` bytes, filled with the byte `fill`. For a stream, its length is at most
/// `write_bytes`, the longest write. For datagrams, which are sent in one piece, its maximum length is that of the longest
/// datagram plus one byte. The additional byte is for receivers: they expect one byte less than the length, and so notice a
/// datagram that is too long.
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
