//! Every bound of the laboratory, in one place. A user who meets one is told its name's meaning and its value.

use std::time::Duration;

/// Most client-server pairs of one cell.
pub const PAIRS_MAX: u32 = 10_000;
/// Most pairs with a process at each end: twice as many processes, of three threads.
pub const PROCESSES_MAX: u32 = 1_000;
/// Largest request or response in bytes; also keeps byte counters far from overflow.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;
/// Largest UDP payload over IPv4 without jumbograms (RFC 768, RFC 791): 65,535 - 20 - 8.
pub const DATAGRAM_BYTES_MAX: u64 = 65_507;
/// Largest single write a driver makes.
pub const WRITE_BYTES_MAX: u64 = 16 << 20;
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
/// A UDP request without a response for this long is lost; the pair goes on with the next.
pub const DATAGRAM_LOST_AFTER: Duration = Duration::from_millis(200);
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
/// Longest trial.
pub const TRIAL_SECONDS_MAX: f64 = 3_600.0;
/// Most trials of one cell.
pub const TRIALS_MAX: u32 = 1_000;
/// Trials of a cell after which a run that goes by the width of its intervals stops.
pub const STOP_TRIALS_MAX: usize = 30;
/// Most cells of one plan.
pub const CELLS_MAX: usize = 10_000;
/// Most combinations of a plan's axes, those that are excluded, skipped or there twice among them.
pub const COMBINATIONS_MAX: usize = 100_000;
/// Most entries by which a plan leaves out cells: each is compared with each combination.
pub const EXCLUDES_MAX: usize = 1_000;
/// Longest ruleset of a level: some 2,500 rules of one line.
pub const RULESET_BYTES_MAX: usize = 64 << 10;
/// Time that loading a ruleset and reading it back may take together.
pub const RULESET_TIME_MAX: Duration = Duration::from_secs(10);
/// Most that nft may say about a ruleset: a listing takes a few hundred bytes a rule.
pub const RULESET_ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Longest plan that is read: some 10,000 cells, each picked alone.
pub const PLAN_BYTES_MAX: u64 = 4 << 20;
/// Longest file of a level that is read: a ruleset of `RULESET_BYTES_MAX`, written with escapes, and some more.
pub const LEVEL_BYTES_MAX: u64 = 1 << 20;
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
/// Longest value of a sysctl that a level sets: what the kernel takes in one write.
pub const SYSCTL_BYTES_MAX: usize = 4 << 10;
