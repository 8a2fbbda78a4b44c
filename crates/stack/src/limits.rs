//! Every bound of the stack, in one place.

/// Bytes of a frame that the stack wants to have for itself before it looks at the rest: link header, the longest IP header,
/// the longest TCP header. What lies behind may stay where it is.
pub const HEADER_BYTES_MAX: usize = 14 + 60 + 60;
/// Largest frame on any device, link header included: a segment of 64 KB and its headers.
pub const FRAME_BYTES_MAX: usize = 14 + 65_535;
