//! What an ICMP error means for a connection, and when the connection believes it (RFC 5927).

/// The effect of an ICMP error on the connection that sent the quoted segment. The owner derives this value from
/// [`NetworkError`](crate::wire::icmp::NetworkError), and finds the connection by the quoted segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentError {
    /// Protocol or port unreachable. This error ends a connection that is being opened (RFC 9293 SHLD-26), but not an open
    /// connection (RFC 5927).
    Hard,
    /// Network or host unreachable, or time exceeded. This error is recorded and does not end the connection (RFC 9293 MUST-56,
    /// SHLD-25).
    Soft,
    /// Packet too big. The value is the largest MSS that the path carries: the path MTU less the IP and TCP headers (RFC 1191,
    /// RFC 8201).
    TooBig(u16),
}

/// When a connection believes an ICMP error about one of its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// The connection believes the error immediately.
    AtOnce,
    /// The connection believes the error only if the quoted segment proves lost. The reason is that earlier segments of the same
    /// size have arrived (RFC 5927 section 7.2).
    IfLost,
}
