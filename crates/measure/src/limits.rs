//! The limits of the laboratory. If a limit is exceeded, the error says what the limit means and its value.

use std::time::Duration;

/// Distance between the stamps that the receiver checks in measured trials.
pub const STAMP_STRIDE_BYTES: u64 = 4096;
/// Distance between stamps when the receiver checks every byte. It is the size of a stamp.
pub const STAMP_BYTES: u64 = 8;
/// Maximum number of connection attempts in progress at once while a client connects its pairs.
pub const CONNECTS_IN_FLIGHT_MAX: usize = 256;
/// Length of the accept queue that the server requests.
pub const BACKLOG: i32 = 65_535;
/// Maximum time in which all pairs must connect.
pub const CONNECT_TIME_MAX: Duration = Duration::from_secs(60);
/// Time without any progress after which a phase is given up, because the peer must be dead or stuck.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum time that a driver thread stays in one system call. It limits how late the thread notices the end of a phase.
pub const WAIT_TIME_MAX: Duration = Duration::from_millis(20);
/// Maximum time in which a worker process must answer a request, in addition to the time that the requested work takes.
pub const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// Length of the longest line accepted from a worker process. It limits the memory that a broken or hostile process can use.
pub const LINE_BYTES_MAX: usize = 64 << 20;
/// Number of equal parts of a trial whose rates are compared, to notice a rate that collapses.
pub const SLICES: usize = 10;
/// Maximum time for loading a ruleset and reading it back, together.
pub const RULESET_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum length of nft's output about a ruleset. A listing needs a few hundred bytes for each rule.
pub const RULESET_ANSWER_BYTES_MAX: u64 = 16 << 20;
/// Maximum size of a user's configuration file.
pub const CONFIG_BYTES_MAX: u64 = 64 << 10;
