//! The bounds of plans, levels and workloads, by name.

use std::time::Duration;

/// Most client-server pairs of one cell.
pub const PAIRS_MAX: u32 = 10_000;
/// Most pairs with a process at each end. That is twice as many processes, of three threads each.
pub const PROCESSES_MAX: u32 = 1_000;
/// Largest request or response in bytes. It also keeps byte counters far from overflow.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;
/// Largest UDP payload over IPv4 without jumbograms (RFC 768, RFC 791): 65,535 - 20 - 8.
pub const DATAGRAM_BYTES_MAX: u64 = 65_507;
/// A UDP request without a response for this long counts as lost; the pair continues with the next.
pub const DATAGRAM_LOST_AFTER: Duration = Duration::from_millis(200);
/// Largest single write of a workload driver.
pub const WRITE_BYTES_MAX: u64 = 16 << 20;
/// Longest trial.
pub const TRIAL_SECONDS_MAX: f64 = 3_600.0;
/// Most trials of one cell.
pub const TRIALS_MAX: u32 = 1_000;
/// Most cells of one plan.
pub const CELLS_MAX: usize = 10_000;
/// Most combinations of a plan's axes, including those that are excluded, skipped or duplicate.
pub const COMBINATIONS_MAX: usize = 100_000;
/// Most `exclude` entries of a plan: each is compared with each combination.
pub const EXCLUDES_MAX: usize = 1_000;
/// Longest ruleset of a level: some 2,500 rules of one line.
pub const RULESET_BYTES_MAX: usize = 64 << 10;
/// Longest plan: some 10,000 `include` entries.
pub const PLAN_BYTES_MAX: u64 = 4 << 20;
/// Longest file of a level: a ruleset of `RULESET_BYTES_MAX` written with escapes, and some more.
pub const LEVEL_BYTES_MAX: u64 = 1 << 20;
/// Longest value of a sysctl: the kernel takes this much in one write.
pub const SYSCTL_BYTES_MAX: usize = 4 << 10;
/// Most CPU time that the CPU-cost injector adds to a packet, in nanoseconds.
pub const PER_PACKET_NS_MAX: u32 = 50_000;
