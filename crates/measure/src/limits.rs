//! The laboratory's limits. An error that meets one names its meaning and its value.

use std::time::Duration;

/// Size of a write, and of the receive buffer, when none is asked for: iperf3's.
pub const WRITE_BYTES_DEFAULT: u64 = 128 << 10;
/// Distance between the stamps that are checked in measured trials.
pub const STAMP_STRIDE_BYTES: u64 = 4096;
/// Distance between stamps when every byte is checked: the size of a stamp.
pub const STAMP_BYTES: u64 = 8;
/// Connections that a client has in the making at once while it connects its pairs.
pub const CONNECTS_IN_FLIGHT_MAX: usize = 256;
/// Accept queue that the server requests.
pub const BACKLOG: i32 = 65_535;
/// Time allowed for all pairs to connect.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(60);
/// Time without any progress after which a phase is given up: the peer is dead or stuck.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest a driver thread stays in one system call: bounds the time to notice the end of a phase.
pub const WAIT_TIME_MAX: Duration = Duration::from_millis(20);
/// Time a worker process has to answer a request that does not itself take time.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Longest line accepted from a worker process: bounds memory against a broken or hostile far end.
pub const LINE_BYTES_MAX: usize = 64 << 20;
/// Parts a trial is cut into to notice a rate that collapses.
pub const SLICES: usize = 10;
/// Time that loading a ruleset and reading it back may take together.
pub const RULESET_TIME_MAX: Duration = Duration::from_secs(10);
/// Most that nft may say about a ruleset: a listing takes a few hundred bytes a rule.
pub const RULESET_ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longest configuration of a user.
pub const CONFIG_BYTES_MAX: u64 = 64 << 10;
