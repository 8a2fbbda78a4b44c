//! Protocol numbers that IANA assigned: the values of the protocol field of IPv4 and of the next-header fields of IPv6.

/// The hop-by-hop options header of IPv6.
pub const HOP_BY_HOP: u8 = 0;
/// ICMP for IPv4.
pub const ICMP: u8 = 1;
/// IGMP.
pub const IGMP: u8 = 2;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// The routing header of IPv6.
pub const ROUTING: u8 = 43;
/// The fragment header of IPv6.
pub const FRAGMENT: u8 = 44;
/// The authentication header of IPsec.
pub const AUTHENTICATION: u8 = 51;
/// ICMPv6.
pub const ICMPV6: u8 = 58;
/// No next header: nothing follows this header (RFC 8200 4.7).
pub const NO_NEXT_HEADER: u8 = 59;
/// The destination options header of IPv6.
pub const DESTINATION_OPTIONS: u8 = 60;
