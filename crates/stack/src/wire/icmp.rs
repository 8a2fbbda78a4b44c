//! ICMP and ICMPv6 (RFC 792, RFC 4443): message types, the header, the errors that the stack sends and receives, and the packet
//! that an error quotes.

use super::protocol::{ICMP, ICMPV6};
use super::{ipv6, u16_at, u32_at, udp};
use smoltcp::wire::{IPV4_HEADER_LEN, IPV6_HEADER_LEN, Ipv4Packet, Ipv6Packet};
use std::net::{IpAddr, SocketAddr};

pub(crate) mod v4 {
    pub(crate) const ECHO_REPLY: u8 = 0;
    pub(crate) const UNREACHABLE: u8 = 3;
    pub(crate) const REDIRECT: u8 = 5;
    pub(crate) const ECHO_REQUEST: u8 = 8;
    pub(crate) const TIME_EXCEEDED: u8 = 11;
    pub(crate) const PARAMETER_PROBLEM: u8 = 12;
    pub(crate) const TIMESTAMP: u8 = 13;
    pub(crate) const ADDRESS_MASK_REPLY: u8 = 18;
}

/// ICMPv6 message types. All types below [`v6::ECHO_REQUEST`] are errors.
pub(crate) mod v6 {
    pub(crate) const UNREACHABLE: u8 = 1;
    pub(crate) const TOO_BIG: u8 = 2;
    pub(crate) const TIME_EXCEEDED: u8 = 3;
    pub(crate) const PARAMETER_PROBLEM: u8 = 4;
    pub(crate) const ECHO_REQUEST: u8 = 128;
    pub(crate) const ECHO_REPLY: u8 = 129;
    pub(crate) const MLD_QUERY: u8 = 130;
    pub(crate) const MLD_REPORT_1: u8 = 131;
    pub(crate) const MLD_DONE: u8 = 132;
    pub(crate) const ROUTER_SOLICITATION: u8 = 133;
    pub(crate) const ROUTER_ADVERTISEMENT: u8 = 134;
    pub(crate) const NEIGHBOUR_SOLICITATION: u8 = 135;
    pub(crate) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
    pub(crate) const REDIRECT: u8 = 137;
    pub(crate) const MLD_REPORT_2: u8 = 143;
}

pub(crate) const HEADER_BYTES: usize = field::REST.end;

/// Offsets of the fields of the header.
pub(crate) mod field {
    use std::ops::Range;

    pub(crate) const KIND: usize = 0;
    pub(crate) const CODE: usize = 1;
    pub(crate) const CHECKSUM: Range<usize> = 2..4;
    pub(crate) const REST: Range<usize> = 4..8;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IcmpHeader {
    pub(crate) kind: u8,
    pub(crate) code: u8,
    /// The four bytes after the checksum. Their meaning depends on the message type.
    pub(crate) rest: u32,
}

impl IcmpHeader {
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let rest = u32_at(message, field::REST)?;
        Some(Self { kind: message[field::KIND], code: message[field::CODE], rest })
    }

    /// Builds a message with this header. The checksum field is left 0.
    pub(crate) fn message(self, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        message.extend_from_slice(&[self.kind, self.code, 0, 0]);
        message.extend_from_slice(&self.rest.to_be_bytes());
        message.extend_from_slice(body);
        message
    }
}

/// An error that the network reported about a packet that this stack sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkError {
    /// A router has no route to the destination.
    NoRoute,
    /// The last router on the path cannot reach the host.
    HostUnreachable,
    /// The destination host does not support the protocol.
    ProtocolUnreachable,
    /// The destination host has no socket with this port.
    PortUnreachable,
    /// The packet is larger than the MTU of a link on the path.
    TooBig {
        /// The MTU of that link in bytes; 0 if the router did not report the MTU.
        mtu: u16,
    },
    /// The packet passed through too many routers, or a fragment of the packet was lost.
    TimeExceeded,
    /// A host or router could not process a header of the packet.
    Parameter,
    /// A host or router does not allow the packet.
    Prohibited,
}

impl NetworkError {
    /// Returns the error that an ICMP message reports, or `None` if sockets do not receive errors of this message type.
    pub(crate) fn from_v4(header: IcmpHeader) -> Option<Self> {
        Some(match (header.kind, header.code) {
            (v4::UNREACHABLE, 2) => Self::ProtocolUnreachable,
            (v4::UNREACHABLE, 3) => Self::PortUnreachable,
            (v4::UNREACHABLE, 4) => Self::TooBig { mtu: u16::try_from(header.rest & 0xffff).unwrap_or(u16::MAX) },
            (v4::UNREACHABLE, 0 | 5 | 6 | 8 | 11) => Self::NoRoute,
            (v4::UNREACHABLE, 1 | 7 | 12) => Self::HostUnreachable,
            (v4::UNREACHABLE, 9 | 10 | 13..=15) => Self::Prohibited,
            (v4::TIME_EXCEEDED, _) => Self::TimeExceeded,
            (v4::PARAMETER_PROBLEM, _) => Self::Parameter,
            // RFC 9293 MUST-55: source quench is among the ignored messages.
            _ => return None,
        })
    }

    /// Returns the error that an ICMPv6 message reports, or `None` if sockets do not receive errors of this message type.
    pub(crate) fn from_v6(header: IcmpHeader) -> Option<Self> {
        Some(match (header.kind, header.code) {
            (v6::UNREACHABLE, 0) => Self::NoRoute,
            (v6::UNREACHABLE, 2 | 3) => Self::HostUnreachable,
            (v6::UNREACHABLE, 4) => Self::PortUnreachable,
            (v6::UNREACHABLE, _) => Self::Prohibited,
            (v6::TOO_BIG, _) => Self::TooBig { mtu: u16::try_from(header.rest).unwrap_or(u16::MAX) },
            (v6::TIME_EXCEEDED, _) => Self::TimeExceeded,
            (v6::PARAMETER_PROBLEM, _) => Self::Parameter,
            _ => return None,
        })
    }
}

/// An error that this stack sends to the source of a received packet. [`NetworkError`] is an error that this stack receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IcmpError {
    NoRoute,
    HostUnreachable,
    /// The protocol is unknown. `at` is the offset in the packet of the field that contains the protocol number.
    Protocol {
        at: usize,
    },
    PortUnreachable,
    TooBig {
        mtu: u16,
    },
    HopLimit,
    Reassembly,
    /// The octet at offset `at` of the packet is invalid. `code` is the ICMPv6 code.
    Parameter {
        code: u8,
        at: usize,
    },
    /// Like `Parameter`, but this error is sent even if the packet was sent to a multicast group (RFC 4443 2.4 (e.3)).
    ParameterOfGroup {
        at: usize,
    },
}

impl IcmpError {
    pub(crate) fn v4(self) -> IcmpHeader {
        let pointer = |at: usize| u32::from(u8::try_from(at).unwrap_or(u8::MAX)) << 24;
        let (kind, code, rest) = match self {
            Self::NoRoute => (v4::UNREACHABLE, 0, 0),
            Self::HostUnreachable => (v4::UNREACHABLE, 1, 0),
            Self::Protocol { .. } => (v4::UNREACHABLE, 2, 0),
            Self::PortUnreachable => (v4::UNREACHABLE, 3, 0),
            Self::TooBig { mtu } => (v4::UNREACHABLE, 4, mtu.into()),
            Self::HopLimit => (v4::TIME_EXCEEDED, 0, 0),
            Self::Reassembly => (v4::TIME_EXCEEDED, 1, 0),
            Self::Parameter { at, .. } | Self::ParameterOfGroup { at } => (v4::PARAMETER_PROBLEM, 0, pointer(at)),
        };
        IcmpHeader { kind, code, rest }
    }

    pub(crate) fn v6(self) -> IcmpHeader {
        let pointer = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
        let (kind, code, rest) = match self {
            Self::NoRoute => (v6::UNREACHABLE, 0, 0),
            Self::HostUnreachable => (v6::UNREACHABLE, 3, 0),
            Self::Protocol { at } => (v6::PARAMETER_PROBLEM, 1, pointer(at)),
            Self::PortUnreachable => (v6::UNREACHABLE, 4, 0),
            Self::TooBig { mtu } => (v6::TOO_BIG, 0, mtu.into()),
            Self::HopLimit => (v6::TIME_EXCEEDED, 0, 0),
            Self::Reassembly => (v6::TIME_EXCEEDED, 1, 0),
            Self::Parameter { code, at } => (v6::PARAMETER_PROBLEM, code, pointer(at)),
            Self::ParameterOfGroup { at } => (v6::PARAMETER_PROBLEM, 2, pointer(at)),
        };
        IcmpHeader { kind, code, rest }
    }

    /// Returns true if the error is sent even if the packet was sent to a multicast group (RFC 4443 2.4 (e.3)).
    pub(crate) fn concerns_groups(self) -> bool {
        matches!(self, Self::TooBig { .. } | Self::ParameterOfGroup { .. })
    }
}

/// The packet that an ICMP error quotes: its fields, parsed from the quoted bytes.
pub(crate) struct Quoted<'a> {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    /// The transport header, or the part of it that the error quotes.
    pub(crate) transport: &'a [u8],
    pub(crate) is_error: bool,
    pub(crate) is_later_fragment: bool,
    /// Length in bytes of the original packet, from its IP header.
    pub(crate) total_bytes: usize,
    /// True if routers are allowed to fragment the packet.
    pub(crate) may_be_cut: bool,
}

impl<'a> Quoted<'a> {
    pub(crate) fn parse(packet: &'a [u8]) -> Option<Self> {
        let mut quoted = match packet.first()? >> 4 {
            4 => {
                let header = Ipv4Packet::new_unchecked(packet.first_chunk::<IPV4_HEADER_LEN>()?);
                let header_bytes = usize::from(header.header_len()).max(IPV4_HEADER_LEN);
                Self {
                    from: header.src_addr().into(),
                    to: header.dst_addr().into(),
                    protocol: header.next_header().into(),
                    transport: packet.get(header_bytes..)?,
                    is_error: false,
                    is_later_fragment: header.frag_offset() > 0,
                    total_bytes: header.total_len().into(),
                    may_be_cut: !header.dont_frag(),
                }
            }
            6 => {
                let header = Ipv6Packet::new_unchecked(packet.first_chunk::<IPV6_HEADER_LEN>()?);
                let next_header = header.next_header().into();
                let later = ipv6::walk(packet, next_header)
                    .ok()
                    .filter(|walk| walk.fragment.is_some_and(|fragment| fragment.offset > 0));
                let (protocol, at) = match later {
                    Some(walk) => (walk.protocol, walk.at + ipv6::FRAGMENT_BYTES),
                    None => ipv6::protocol_behind(packet, next_header),
                };
                Self {
                    from: header.src_addr().into(),
                    to: header.dst_addr().into(),
                    protocol,
                    transport: packet.get(at..)?,
                    is_error: false,
                    is_later_fragment: later.is_some(),
                    total_bytes: header.total_len(),
                    may_be_cut: false,
                }
            }
            _ => return None,
        };
        quoted.is_error = match (quoted.protocol, quoted.transport.first()) {
            // Only the first fragment contains the ICMPv6 type. The type of a later fragment is unknown, so it is treated as an
            // error.
            (ICMPV6, Some(_)) if quoted.is_later_fragment => true,
            (ICMP, Some(kind)) => {
                !matches!(*kind, v4::ECHO_REPLY | v4::ECHO_REQUEST | v4::TIMESTAMP..=v4::ADDRESS_MASK_REPLY)
            }
            (ICMPV6, Some(kind)) => *kind < v6::ECHO_REQUEST || *kind == v6::REDIRECT,
            (ICMP | ICMPV6, None) => true,
            _ => false,
        };
        Some(quoted)
    }

    /// Returns source and destination with their ports, which UDP and TCP have at the same offsets. Returns `None` if the quote
    /// has no ports.
    pub(crate) fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let ports = Some(self.transport).filter(|_| !self.is_later_fragment)?;
        let local = SocketAddr::new(self.from, u16_at(ports, udp::field::SOURCE_PORT)?);
        Some((local, SocketAddr::new(self.to, u16_at(ports, udp::field::DESTINATION_PORT)?)))
    }
}
