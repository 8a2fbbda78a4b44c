//! The limits of the code that measures. If a measurement exceeds a limit, the error names the limit and its value.

use std::time::Duration;

/// Distance in bytes between two stamps (the pieces of the payload that the receiver checks) in measured phases.
pub const STAMP_STRIDE_BYTES: u64 = 4096;
/// Distance in bytes between two stamps in the phase in which the receiver checks every byte. It equals the size of a stamp.
pub const STAMP_BYTES: u64 = 8;
/// Maximum number of simultaneous connection attempts while a client connects its pairs.
pub const CONNECTS_IN_FLIGHT_MAX: usize = 256;
/// Length of the accept queue that the server requests.
pub const BACKLOG: i32 = 65_535;
/// Maximum time for connecting all pairs of a client.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(60);
/// Time without any transferred byte after which siga gives up a phase, because the peer is probably dead or stuck.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum time that a workload driver's thread waits in one system call. It limits how late the thread notices the end of a
/// phase.
pub const WAIT_TIME_MAX: Duration = Duration::from_millis(20);
/// Maximum time in which an agent must answer an order, in addition to the time that the ordered work itself takes.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Additional time for each worker process of an agent, in which the agent starts the process and passes an order on to it.
pub const WORKER_TIME_MAX: Duration = Duration::from_millis(200);

/// Maximum time in which an agent with `workers` worker processes must answer an order, in addition to the time that the ordered work
/// itself takes.
#[must_use]
pub fn answer_time_max(workers: u32) -> Duration {
    ANSWER_TIME_MAX + WORKER_TIME_MAX * workers
}

/// Maximum length in bytes of a line that siga accepts over the channel from another process. It limits the memory that a
/// broken or hostile process can make siga use.
pub const LINE_BYTES_MAX: usize = 64 << 20;
/// Number of equal parts of a trial. siga compares their rates to notice a rate that collapses during the trial.
pub const SLICES: usize = 10;
/// Maximum total time for loading a ruleset of a packet filter and reading it back. An emulated machine needs several seconds for
/// each kernel module that the rules use.
pub const RULESET_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum length in bytes of the output of nft for a ruleset. A listing needs a few hundred bytes for each rule.
pub const RULESET_ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Maximum size in bytes of the user's configuration file.
pub const CONFIG_BYTES_MAX: u64 = 64 << 10;
/// Maximum number of processes that the monitor shows.
pub const MONITORED_MAX: usize = 16_384;
/// Maximum number of threads of a process whose run-queue delay the monitor reads. It bounds the cost of a sample.
pub const MONITORED_THREADS_MAX: u64 = 64;
/// Maximum time in which a network must answer a request for a sample.
pub const SAMPLE_TIME_MAX: Duration = Duration::from_secs(10);
/// Minimum length of an interval of a time series, and of the monitor.
pub const INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Maximum number of processes of a component whose CPU time a time series contains. It bounds the cost of an interval.
pub const SERIES_PROCESSES_MAX: usize = 64;
/// Minimum time without an arrival after which a client ends a phase of a stream of datagrams that lacks some of them.
pub const DRAIN_TIME_MIN: Duration = Duration::from_millis(20);
/// Time after which a client repeats its request for a stream of datagrams if none has arrived.
pub const ASK_AGAIN_AFTER: Duration = Duration::from_millis(50);
/// Time after which a server tries again to send a datagram for which the network had no room.
pub const SEND_AGAIN_AFTER: Duration = Duration::from_millis(1);
/// Maximum delay that a paced stream of datagrams catches up. The datagrams of a longer delay are never sent.
pub const CATCH_UP_TIME_MAX: Duration = Duration::from_millis(10);
