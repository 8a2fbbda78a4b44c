//! Limits of plans, levels and workloads.

use std::time::Duration;

/// Maximum number of client-server pairs, or of clients of a command, in one cell.
pub const PAIRS_MAX: u32 = 10_000;
/// Maximum number of client-server pairs if each side of a pair is a process of its own. Each of these processes has three threads.
pub const PROCESSES_MAX: u32 = 1_000;
/// Largest request or response in bytes. The limit also keeps byte counters far from overflow.
pub const MESSAGE_BYTES_MAX: u64 = 1 << 30;
/// Largest UDP payload over IPv4, in bytes: 65,535 - 20 - 8 (RFC 768, RFC 791).
pub const DATAGRAM_BYTES_MAX: u64 = 65_507;
/// A UDP request that has no response after this time counts as lost. The client then sends the next request.
pub const DATAGRAM_LOST_AFTER: Duration = Duration::from_millis(200);
/// Smallest payload of a datagram of a stream, in bytes: the header of the workload drivers. A request for a stream has this size.
pub const STREAM_DATAGRAM_BYTES_MIN: u64 = 32;
/// Maximum number of streams beside RR.
pub const BESIDE_MAX: u32 = 1_000;
/// Highest rate of a stream of datagrams for each pair, in bytes per second.
pub const PACE_MAX: u64 = 100_000_000_000;
/// Largest single write of a workload driver, in bytes.
pub const WRITE_BYTES_MAX: u64 = 16 << 20;
/// Longest measured time of a trial, in seconds.
pub const TRIAL_SECONDS_MAX: f64 = 3_600.0;
/// Maximum number of trials of one cell.
pub const TRIALS_MAX: u32 = 1_000;
/// Maximum number of loads that a plan offers.
pub const LOADS_MAX: usize = 16;
/// Maximum number of cells of one plan.
pub const CELLS_MAX: usize = 10_000;
/// Maximum number of combinations of a plan's axes, including those that are excluded, skipped or duplicate.
pub const COMBINATIONS_MAX: usize = 100_000;
/// Maximum number of `exclude` entries of a plan. The limit bounds the work, because each entry is compared with each combination.
pub const EXCLUDES_MAX: usize = 1_000;
/// Smallest memory limit of a run, in bytes: siga itself and a small path need about half of it.
pub const MEMORY_LIMIT_MIN: u64 = 64 << 20;
/// Largest number of findings of a plan.
pub const FINDINGS_MAX: usize = 100;
/// Longest name and longest sentence of a finding, in bytes.
pub const FINDING_BYTES_MAX: usize = 1_000;
/// Largest number of tables of a plan.
pub const TABLES_MAX: usize = 1_000;
/// Longest name and longest title of a table of a plan, in bytes.
pub const TABLE_BYTES_MAX: usize = 200;
/// Longest nftables ruleset of a level, in bytes: about 2,500 rules of one line.
pub const RULESET_BYTES_MAX: usize = 64 << 10;
/// Longest time of one run of a command, in seconds, unless the plan says otherwise.
pub const COMMAND_SECONDS: f64 = 600.0;
/// Longest time limit of one run of a command, in seconds.
pub const COMMAND_SECONDS_MAX: f64 = 86_400.0;
/// Longest command with its arguments, in bytes: half of what the kernel takes by default for arguments and environment.
pub const COMMAND_BYTES_MAX: usize = 1 << 20;
/// Longest time in seconds until a server of a command is ready, unless the plan says otherwise.
pub const READY_SECONDS: f64 = 30.0;
/// Maximum number of servers of a command.
pub const SERVERS_MAX: usize = 8;
/// Smallest memory limit of a command, in bytes. The process of siga that starts the command has the same limit.
pub const COMMAND_MEMORY_LEAST: u64 = 16 << 20;
/// Maximum number of figures of a command.
pub const FIGURES_MAX: usize = 64;
/// Largest compiled regular expression of a figure, in bytes.
pub const REGEX_BYTES_MAX: usize = 1 << 20;
/// Longest value of a variable of the environment, in bytes: as the kernel's MAX_ARG_STRLEN, less room for the name.
pub const VARIABLE_BYTES_MAX: usize = 64 << 10;
/// Longest plan file, in bytes: about 10,000 `include` entries.
pub const PLAN_BYTES_MAX: u64 = 4 << 20;
/// Longest level file, in bytes. It has room for a ruleset of `RULESET_BYTES_MAX` with every character escaped.
pub const LEVEL_BYTES_MAX: u64 = 1 << 20;
/// Longest value of a sysctl, in bytes: as many as the kernel accepts in one write.
pub const SYSCTL_BYTES_MAX: usize = 4 << 10;
/// Maximum CPU time that the CPU-cost injector adds to a packet, in nanoseconds.
pub const PER_PACKET_NS_MAX: u32 = 50_000;
