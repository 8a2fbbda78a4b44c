//! Every bound of the stack, in one place.

/// Bytes of a frame that the stack wants to have for itself before it looks at the rest: link header, the longest IP header,
/// the longest TCP header. What lies behind may stay where it is.
pub const HEADER_BYTES_MAX: usize = 14 + 60 + 60;
/// Largest frame on any device, link header included: a segment of 64 KB and its headers.
pub const FRAME_BYTES_MAX: usize = 14 + 65_535;

/// Smallest payload of a segment that a connection lets itself be talked down to, by a peer's MSS or a path's MTU, as Linux
/// does: less would cost more in headers and bookkeeping than it carries.
pub const TCP_SEGMENT_BYTES_MIN: u16 = 48;
/// Segments' worth of bytes sent and not yet acknowledged cumulatively; what an acknowledgement can cost is proportional to it,
/// and a peer that names a tiny MSS gets a small flight instead of a long list. 5.9 MB at an MSS of 1,448.
pub const TCP_SENT_MAX: u16 = 4_096;
/// Runs of bytes received ahead of a gap. One more is dropped: a sender repeats it, an attacker gains no memory.
pub const TCP_GAPS_MAX: usize = 256;
/// Most bytes that a connection's buffer may ever be asked to hold, so that a window shift of 14 covers it (RFC 7323).
pub const TCP_BUFFER_BYTES_MAX: usize = 1 << 29;
/// Least time between two challenge acknowledgements of a connection (RFC 5961 section 7), as Linux; counted for each
/// connection, for a common count would tell an attacker of other connections.
pub const TCP_CHALLENGE_MS_MIN: u64 = 500;
/// Repetitions of an unanswered SYN, of a SYN-ACK, and of anything later, before a connection is given up, as Linux.
pub const TCP_SYN_RETRIES: u8 = 6;
/// See [`TCP_SYN_RETRIES`].
pub const TCP_SYN_ACK_RETRIES: u8 = 5;
/// See [`TCP_SYN_RETRIES`]; RFC 9293 MUST-20 to 23, with at least 100 s in all.
pub const TCP_RETRIES: u8 = 15;
/// Repetitions and probes after which a connection without an application is given up, as Linux: a peer that keeps its window
/// closed could hold it for ever.
pub const TCP_ORPHAN_RETRIES: u8 = 8;
