//! The bounds of plans, levels and workloads, by name.

use std::time::Duration;

/// Most client-server pairs of one cell.
pub const PAIRS_MAX: u32 = 10_000;
/// Most pairs with a process at each end: twice as many processes, of three threads.
pub const PROCESSES_MAX: u32 = 1_000;
/// Largest request or response in bytes; also keeps byte counters far from overflow.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;
/// Largest UDP payload over IPv4 without jumbograms (RFC 768, RFC 791): 65,535 - 20 - 8.
pub const DATAGRAM_BYTES_MAX: u64 = 65_507;
/// A UDP request without a response for this long is lost; the pair goes on with the next.
pub const DATAGRAM_LOST_AFTER: Duration = Duration::from_millis(200);
/// Largest single write a driver makes.
pub const WRITE_BYTES_MAX: u64 = 16 << 20;
/// Longest trial.
pub const TRIAL_SECONDS_MAX: f64 = 3_600.0;
/// Most trials of one cell.
pub const TRIALS_MAX: u32 = 1_000;
/// Most cells of one plan.
pub const CELLS_MAX: usize = 10_000;
/// Most combinations of a plan's axes, those that are excluded, skipped or there twice among them.
pub const COMBINATIONS_MAX: usize = 100_000;
/// Most entries by which a plan leaves out cells: each is compared with each combination.
pub const EXCLUDES_MAX: usize = 1_000;
/// Longest ruleset of a level: some 2,500 rules of one line.
pub const RULESET_BYTES_MAX: usize = 64 << 10;
/// Longest plan that is read: some 10,000 cells, each picked alone.
pub const PLAN_BYTES_MAX: u64 = 4 << 20;
/// Longest file of a level that is read: a ruleset of `RULESET_BYTES_MAX`, written with escapes, and some more.
pub const LEVEL_BYTES_MAX: u64 = 1 << 20;
/// Longest value of a sysctl that a level sets: what the kernel takes in one write.
pub const SYSCTL_BYTES_MAX: usize = 4 << 10;
/// Most that one packet can be made to cost, in nanoseconds.
pub const PER_PACKET_NS_MAX: u32 = 50_000;
