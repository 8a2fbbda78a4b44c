//! The counters of a trial's record. An attacker may have written the record with any numbers, so sums and differences saturate.

use serde::{Deserialize, Serialize};

/// Counts of the client or the server since it started. The counts of a phase of the trial are the difference of two of these
/// values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadCounts {
    /// Number of completed exchanges. For a stream of datagrams, the number of datagrams that the server sent or that reached the
    /// client.
    pub transactions: u64,
    /// Payload bytes that this side sent.
    pub sent: u64,
    /// Payload bytes that this side received.
    pub received: u64,
    /// Number of connections that this side opened or accepted.
    pub connections: u64,
    /// Number of connections that could not be established.
    pub connect_failures: u64,
    /// Number of connections that ended with a reset or another error.
    pub resets: u64,
    /// Number of streams and datagrams that ended before the expected message was complete.
    pub short_reads: u64,
    /// Number of pieces of payload with wrong content.
    pub wrong_content: u64,
    /// Number of request datagrams that were not answered in time.
    pub lost: u64,
    /// Number of answers that arrived after their request had been given up, and of datagrams of a stream that arrived after the
    /// end of their phase.
    pub late: u64,
    /// Number of transactions that were due but never started. Only an open loop, which starts transactions at planned times, has
    /// them.
    pub unstarted: u64,
    /// Number of datagrams of a stream that arrived again. They are not in `transactions` and `received`.
    #[serde(default)]
    pub duplicated: u64,
    /// Number of datagrams of a stream that arrived after a later one of the same stream.
    #[serde(default)]
    pub reordered: u64,
    /// Number of datagrams that belong to no stream of the trial. They are ignored.
    #[serde(default)]
    pub foreign: u64,
}

/// Returns the saturating sum of counters.
pub fn total(counters: impl IntoIterator<Item = u64>) -> u64 {
    counters.into_iter().fold(0, u64::saturating_add)
}

impl LoadCounts {
    /// Applies `f` to each field of `self` and `other`.
    fn zip(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self {
            transactions: f(self.transactions, other.transactions),
            sent: f(self.sent, other.sent),
            received: f(self.received, other.received),
            connections: f(self.connections, other.connections),
            connect_failures: f(self.connect_failures, other.connect_failures),
            resets: f(self.resets, other.resets),
            short_reads: f(self.short_reads, other.short_reads),
            wrong_content: f(self.wrong_content, other.wrong_content),
            lost: f(self.lost, other.lost),
            late: f(self.late, other.late),
            unstarted: f(self.unstarted, other.unstarted),
            duplicated: f(self.duplicated, other.duplicated),
            reordered: f(self.reordered, other.reordered),
            foreign: f(self.foreign, other.foreign),
        }
    }

    /// Returns the counts since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// Returns the sum of the counts of two processes.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// Returns the number of errors: failed connects, resets, short reads, wrong content and lost datagrams. It is zero in a
    /// sound trial.
    pub fn errors(&self) -> u64 {
        total([self.connect_failures, self.resets, self.short_reads, self.wrong_content, self.lost])
    }
}

/// Names of the device counters that a trial's record contains. They count the work of a device's driver, and the frames for
/// which a ring or queue had no space.
pub const DEVICE_COUNTERS: [&str; 8] = [
    "frames_sent",
    "buffers_sent",
    "doorbells_sent",
    "doorbells_suppressed",
    "pending",
    "target_full",
    "backlog_full",
    "no_partner",
];

/// Times of a guest in nanoseconds, measured by the clock of the guest's stack. All except `colocated_ns` are CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestTimes {
    /// CPU time spent copying frames out of rings (data mover).
    pub copying_ns: u64,
    /// CPU time spent polling while no traffic was found.
    pub looking_ns: u64,
    /// CPU time spent in `sched_yield`, without the time in which other threads ran.
    pub yielding_ns: u64,
    /// Wall time during which the guest was co-located with its partners (on the same CPU). Earlier versions wrote this field as
    /// `gathered_ns`.
    #[serde(default, alias = "gathered_ns")]
    pub colocated_ns: u64,
}

impl GuestTimes {
    /// Returns the sum of the times of two guests.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            copying_ns: self.copying_ns.saturating_add(other.copying_ns),
            looking_ns: self.looking_ns.saturating_add(other.looking_ns),
            yielding_ns: self.yielding_ns.saturating_add(other.yielding_ns),
            colocated_ns: self.colocated_ns.saturating_add(other.colocated_ns),
        }
    }

    /// Returns the time spent since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            copying_ns: self.copying_ns.saturating_sub(earlier.copying_ns),
            looking_ns: self.looking_ns.saturating_sub(earlier.looking_ns),
            yielding_ns: self.yielding_ns.saturating_sub(earlier.yielding_ns),
            colocated_ns: self.colocated_ns.saturating_sub(earlier.colocated_ns),
        }
    }
}

/// CPU time of one or more processes. The scheduler measures the total exactly. The part in user mode is an estimate from timer
/// ticks, scaled to the total.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCpu {
    /// Run time of the processes in nanoseconds.
    pub run_ns: u64,
    /// The part of the run time in user mode in nanoseconds, estimated from the kernel's timer ticks.
    pub user_ns: u64,
}

impl ProcessCpu {
    /// Returns the sum of both CPU times.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { run_ns: self.run_ns.saturating_add(other.run_ns), user_ns: self.user_ns.saturating_add(other.user_ns) }
    }

    /// Returns the CPU time used since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
        }
    }
}
