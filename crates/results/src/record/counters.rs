//! The counters of a trial's record. A record may hold any numbers, so sums and differences saturate.

use serde::{Deserialize, Serialize};

/// What one side counts from its start on. The counts of a phase are the difference of two of these.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Exchanges completed.
    pub transactions: u64,
    /// Payload bytes handed to the network.
    pub sent: u64,
    /// Payload bytes taken from the network.
    pub received: u64,
    /// Connections made or accepted.
    pub connections: u64,
    /// Connections that could not be made.
    pub connect_failures: u64,
    /// Connections that ended by a reset or another error.
    pub resets: u64,
    /// Streams and datagrams that ended before their message did.
    pub short_reads: u64,
    /// Pieces of payload with wrong content.
    pub wrong_content: u64,
    /// Datagrams without an answer in time.
    pub lost: u64,
    /// Answers that came after their request had been given up.
    pub late: u64,
    /// Transactions of an open loop that were due and never begun.
    pub unstarted: u64,
}

/// The saturating sum of counters.
pub fn total(counters: impl IntoIterator<Item = u64>) -> u64 {
    counters.into_iter().fold(0, u64::saturating_add)
}

impl Counts {
    /// Applies `f` to each field of two counts.
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
        }
    }

    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// The counts of two processes together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// The number of all errors; zero in a sound trial.
    pub fn errors(&self) -> u64 {
        total([self.connect_failures, self.resets, self.short_reads, self.wrong_content, self.lost])
    }
}

/// The counters of a device that a trial's record keeps: the work of its driver, and frames without room.
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

/// Parts of a guest's time in nanoseconds, by the clock of its stack. All but the last are CPU time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestTimes {
    /// Copying out of rings (data mover).
    pub copying_ns: u64,
    /// Polling without finding traffic.
    pub looking_ns: u64,
    /// Yielding, without the time in which other threads ran.
    pub yielding_ns: u64,
    /// Wall time in which the guest was co-located with its partners. Earlier versions wrote `gathered_ns`.
    #[serde(default, alias = "gathered_ns")]
    pub colocated_ns: u64,
}

impl GuestTimes {
    /// Spent since `earlier`.
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

/// CPU time of one or more processes. The total is the scheduler's and exact; the split is scaled from ticks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessCpu {
    /// Run time in nanoseconds.
    pub run_ns: u64,
    /// The part in user mode, by the kernel's ticks.
    pub user_ns: u64,
}

impl ProcessCpu {
    /// The sum of both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self { run_ns: self.run_ns.saturating_add(other.run_ns), user_ns: self.user_ns.saturating_add(other.user_ns) }
    }

    /// Spent since `earlier`.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            run_ns: self.run_ns.saturating_sub(earlier.run_ns),
            user_ns: self.user_ns.saturating_sub(earlier.user_ns),
        }
    }
}
