//! The bounds of records and run directories.

/// Latencies above this are counted as this (HDR histogram's upper bound).
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Trials of a cell after which a run without a budget stops, however wide its intervals are.
pub const STOP_TRIALS_MAX: usize = 30;
/// Longest `levels.json` of a run directory: a thousand levels with rulesets.
pub const LEVELS_BYTES_MAX: u64 = 64 << 20;
/// Longest of the other files that a run directory holds once: its environment, how it ended.
pub const RUN_FILE_BYTES_MAX: u64 = 4 << 20;
/// Longest line of a run directory's records. A trial takes some 2,500 bytes, its histograms up to 700,000.
pub const RECORD_BYTES_MAX: u64 = 4 << 20;
/// Longest file of records in a run directory: 30 trials of each of 10,000 cells.
pub const RECORDS_BYTES_MAX: u64 = 1 << 30;
/// Most entries of a directory that are looked at.
pub const ENTRIES_MAX: usize = 100_000;
/// Most symbolic links on the way to a file that is written (path_resolution(7): the kernel's own limit).
pub const LINKS_MAX: usize = 40;
