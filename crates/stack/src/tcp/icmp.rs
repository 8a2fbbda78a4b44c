//! What a connection hears of ICMP errors, and what it makes of them (RFC 5927). Which packet an error quotes is for the owner to
//! say.

/// What an ICMP error about a segment of this connection said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpError {
    /// Protocol or port unreachable: a connection that is opening fails (RFC 9293 SHLD-26), others bear it (RFC 5927).
    Hard,
    /// Network or host unreachable, time exceeded: noted (RFC 9293 MUST-56, SHLD-25).
    Soft,
    /// The path takes segments of this MSS at most: its MTU less the IP and TCP headers (RFC 1191, RFC 8201).
    TooBig(u16),
}

/// What a connection makes of an ICMP error about one of its segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belief {
    /// The error counts now.
    AtOnce,
    /// Segments of this size have arrived before: the error counts if the quoted one proves lost (RFC 5927 section 7.2).
    IfLost,
}
