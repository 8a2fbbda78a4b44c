//! ICMP errors of a connection, and when it believes them (RFC 5927). The owner finds the quoted segment.

/// An ICMP error about a segment of this connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    /// Protocol or port unreachable: ends a connection that is opening (RFC 9293 SHLD-26), but no other (RFC 5927).
    Hard,
    /// Network or host unreachable, time exceeded: recorded, not fatal (RFC 9293 MUST-56, SHLD-25).
    Soft,
    /// The largest MSS that the path takes: its MTU less the IP and TCP headers (RFC 1191, RFC 8201).
    TooBig(u16),
}

/// When a connection believes an ICMP error about one of its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// At once.
    AtOnce,
    /// Only if the quoted segment proves lost, because segments of its size have arrived before (RFC 5927 section 7.2).
    IfLost,
}
