//! Maximum sizes and counts in records and run directories.

/// Maximum latency in nanoseconds that a histogram distinguishes. A longer latency is counted as this value.
pub const LATENCY_NS_MAX: u64 = 60_000_000_000;
/// Maximum number of trials of a cell in a run without a time budget. The cell then needs no more trials, even if its intervals
/// are still wide.
pub const STOP_TRIALS_MAX: usize = 30;
/// Maximum size of `levels.json` in a run directory: enough for a thousand levels with packet filter rules.
pub const LEVELS_BYTES_MAX: u64 = 64 << 20;
/// Maximum size of `environment.json` and of `end.json` in a run directory.
pub const RUN_FILE_BYTES_MAX: u64 = 4 << 20;
/// Maximum length of a line in the record files of a run directory, in bytes. The line of a trial has about 2,500 bytes, and up
/// to 700,000 more if its histograms are large.
pub const RECORD_BYTES_MAX: u64 = 4 << 20;
/// Maximum size of a record file in a run directory: enough for 30 trials of each of 10,000 cells.
pub const RECORDS_BYTES_MAX: u64 = 1 << 30;
/// Maximum number of directory entries that are read. Further entries are ignored.
pub const ENTRIES_MAX: usize = 100_000;
/// Maximum number of symbolic links that are followed on the way to a file that is written (path_resolution(7): the kernel's own
/// limit).
pub const LINKS_MAX: usize = 40;
