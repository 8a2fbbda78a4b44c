//! Every bound of the laboratory, in one place. A user who meets one is told its name's meaning and its value.

use std::time::Duration;

/// Size of a write, and of the receive buffer, when none is asked for: iperf3's.
pub const WRITE_BYTES_DEFAULT: u64 = 128 << 10;
/// Distance between the stamps that are checked in measured trials.
pub const STAMP_STRIDE_BYTES: u64 = 4096;
/// Distance between stamps when every byte is checked: the size of a stamp.
pub const STAMP_BYTES: u64 = 8;
/// Connections a client has in the making at once while it sets up its pairs.
pub const CONNECTS_IN_FLIGHT_MAX: usize = 256;
/// Accept queue asked for by the server.
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
/// Latencies above this are counted as this (HDR histogram's upper bound).
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Trials of a cell after which a run that goes by the width of its intervals stops.
pub const STOP_TRIALS_MAX: usize = 30;
/// Time that loading a ruleset and reading it back may take together.
pub const RULESET_TIME_MAX: Duration = Duration::from_secs(10);
/// Most that nft may say about a ruleset: a listing takes a few hundred bytes a rule.
pub const RULESET_ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longest `levels.json` of a run directory: a thousand levels with rulesets.
pub const LEVELS_BYTES_MAX: u64 = 64 << 20;
/// Longest of the other files that a run directory holds once: its environment, how it ended.
pub const RUN_FILE_BYTES_MAX: u64 = 4 << 20;
/// Longest line of a run directory's records. A trial takes some 2,500 bytes, its histograms up to 700,000.
pub const RECORD_BYTES_MAX: u64 = 4 << 20;
/// Longest file of records in a run directory: 30 trials of each of 10,000 cells.
pub const RECORDS_BYTES_MAX: u64 = 1 << 30;
/// Longest configuration of a user.
pub const CONFIG_BYTES_MAX: u64 = 64 << 10;
/// Most entries of a directory that are looked at.
pub const ENTRIES_MAX: usize = 100_000;
/// Most symbolic links on the way to a file that is written (path_resolution(7): the kernel's own limit).
pub const LINKS_MAX: usize = 40;
