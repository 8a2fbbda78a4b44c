//! The IPv6 header (RFC 8200): parses received headers and a bounded number of extension headers, and builds packets to send.

use crate::drops::IpDrop;
use crate::limits::EXTENSION_HEADERS_MAX;
use crate::wire::ethernet::LINK_BYTES;
use crate::wire::protocol::{
    AUTHENTICATION, DESTINATION_OPTIONS, FRAGMENT, HOP_BY_HOP, ICMPV6, NO_NEXT_HEADER, ROUTING, TCP, UDP,
};
use crate::wire::{u16_at, u32_at};
use smoltcp::wire::{IPV6_HEADER_LEN, IpProtocol, Ipv6Packet};
use std::net::Ipv6Addr;

pub(crate) const PAYLOAD_LENGTH_AT: usize = 4;
/// Offset of the next-header field in the header.
pub(crate) const NEXT_HEADER_AT: usize = 6;
pub(crate) const FRAGMENT_BYTES: usize = fragment_field::IDENT.end;

/// Offsets of the fields of a fragment header.
pub(crate) mod fragment_field {
    use std::ops::Range;

    pub(crate) const NEXT_HEADER: usize = 0;
    /// The fragment offset, with the “more fragments” bit.
    pub(crate) const OFFSET: Range<usize> = 2..4;
    pub(crate) const IDENT: Range<usize> = 4..8;
}

/// The fields of an IPv6 header that the stack uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv6Header {
    pub(crate) from: Ipv6Addr,
    pub(crate) to: Ipv6Addr,
    /// Length of the packet in bytes, including this header.
    pub(crate) total_bytes: usize,
    pub(crate) hop_limit: u8,
    pub(crate) next_header: u8,
}

impl Ipv6Header {
    /// Parses and checks the header at the start of `bytes`. `available` is the number of bytes in the frame after the link
    /// header.
    #[inline]
    pub(crate) fn parse(bytes: &[u8], available: usize) -> Result<Self, IpDrop> {
        if bytes.len() < IPV6_HEADER_LEN {
            return Err(IpDrop::Length);
        }
        let packet = Ipv6Packet::new_unchecked(bytes);
        if packet.version() != 6 {
            return Err(IpDrop::Version);
        }
        let total_bytes = packet.total_len();
        if available < total_bytes {
            return Err(IpDrop::Length);
        }
        Ok(Self {
            from: packet.src_addr(),
            to: packet.dst_addr(),
            total_bytes,
            hop_limit: packet.hop_limit(),
            next_header: packet.next_header().into(),
        })
    }
}

/// Where the extension headers of a packet end: at a fragment header, or at the transport header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Walk {
    /// The protocol number of the transport protocol. If `fragment` has a value: the next-header field of the fragment header.
    pub(crate) protocol: u8,
    /// Offset of the transport header in the packet. If `fragment` has a value: offset of the fragment header.
    pub(crate) at: usize,
    /// Offset in the packet of the next-header field whose value is `protocol`.
    pub(crate) number_at: usize,
    /// The fragment header at offset `at`, if the packet is a fragment.
    pub(crate) fragment: Option<Fragment>,
}

/// The fields of a fragment header (RFC 8200 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) next_header: u8,
    pub(crate) offset: usize,
    pub(crate) more_fragments: bool,
    pub(crate) ident: u32,
}

impl Fragment {
    fn parse(header: &[u8]) -> Option<Self> {
        let (ident, word) = (u32_at(header, fragment_field::IDENT)?, u16_at(header, fragment_field::OFFSET)?);
        let (offset, more_fragments) = (usize::from(word & !7), word & 1 != 0);
        Some(Self { next_header: header[fragment_field::NEXT_HEADER], offset, more_fragments, ident })
    }
}

/// Why the extension headers of a packet were rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WalkError {
    pub(crate) reason: IpDrop,
    /// Code and offset for the ICMPv6 error “parameter problem” to send. `None` if the packet is dropped without an error.
    pub(crate) report: Option<(u8, usize)>,
    /// True if this ICMPv6 error is sent even if the packet was sent to a multicast group.
    pub(crate) report_to_group: bool,
}

/// Parses the extension headers of a complete packet, until a fragment header or the transport header.
pub(crate) fn walk(packet: &[u8], next_header: u8) -> Result<Walk, WalkError> {
    walk_from(packet, Walk { protocol: next_header, at: IPV6_HEADER_LEN, number_at: NEXT_HEADER_AT, fragment: None })
}

/// Parses the extension headers behind the fragment header at which a walk has ended.
pub(crate) fn walk_behind(packet: &[u8], fragment_header: &Walk) -> Result<Walk, WalkError> {
    let at = fragment_header.at;
    walk_from(packet, Walk { at: at + FRAGMENT_BYTES, number_at: at, fragment: None, ..*fragment_header })
}

fn walk_from(packet: &[u8], start: Walk) -> Result<Walk, WalkError> {
    let silent = |reason| WalkError { reason, report: None, report_to_group: false };
    let Walk { mut protocol, mut at, mut number_at, .. } = start;
    for _ in 0..=EXTENSION_HEADERS_MAX {
        match protocol {
            HOP_BY_HOP if at != IPV6_HEADER_LEN => {
                return Err(WalkError { report: Some((1, number_at)), ..silent(IpDrop::Options) });
            }
            HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING => {}
            FRAGMENT => {
                let fragment = packet.get(at..).and_then(Fragment::parse).ok_or(silent(IpDrop::Length))?;
                return Ok(Walk { protocol: fragment.next_header, at, number_at, fragment: Some(fragment) });
            }
            _ => return Ok(Walk { protocol, at, number_at, fragment: None }),
        }
        let units = packet.get(at + 1).ok_or(silent(IpDrop::Length))?;
        let end = at + 8 * (1 + usize::from(*units));
        let header = packet.get(at..end).ok_or(silent(IpDrop::Length))?;
        if protocol == ROUTING {
            // RFC 8200 4.4: an unknown routing type is ignored if no segments are left. Type 0 is treated as unknown (RFC 5095).
            // RFC 9293 MUST-53: a packet with a source route is dropped here, so TCP never receives a source route.
            if header[3] != 0 {
                return Err(WalkError { report: Some((0, at + 2)), ..silent(IpDrop::SourceRoute) });
            }
        } else {
            check_options(header, at)?;
        }
        (protocol, number_at, at) = (header[0], at, end);
    }
    Err(silent(IpDrop::Options))
}

/// Returns the protocol behind the extension headers and the offset of its header, without a check of the extension headers.
/// [`walk`] refuses some packets whose protocol matters nevertheless.
pub(crate) fn protocol_behind(packet: &[u8], next_header: u8) -> (u8, usize) {
    protocol_from(packet, next_header, IPV6_HEADER_LEN)
}

fn protocol_from(packet: &[u8], mut protocol: u8, mut at: usize) -> (u8, usize) {
    for _ in 0..=EXTENSION_HEADERS_MAX {
        let units = match (protocol, packet.get(at + 1)) {
            (HOP_BY_HOP | DESTINATION_OPTIONS | ROUTING, Some(units)) => usize::from(*units),
            (FRAGMENT, Some(_)) => 0,
            // RFC 4302 2.2: the unit of its length is four bytes.
            (AUTHENTICATION, Some(units)) => usize::from(*units) / 2,
            _ => break,
        };
        (protocol, at) = (packet[at], at + 8 * (1 + units));
    }
    (protocol, at.min(packet.len()))
}

/// Returns whether a first fragment ends before the protocol's header does (RFC 8200 4.5).
pub(crate) fn is_cut_short(packet: &[u8], fragment_header: &Walk) -> bool {
    let (protocol, at) = protocol_from(packet, fragment_header.protocol, fragment_header.at + FRAGMENT_BYTES);
    let header_bytes = match protocol {
        NO_NEXT_HEADER => 0,
        TCP => 20,
        UDP | ICMPV6 => 8,
        _ => 1,
    };
    at + header_bytes > packet.len()
}

/// Checks the options of a hop-by-hop or destination options header. The two highest bits of an unknown option's type say whether
/// the option is skipped, or the packet is dropped with or without an ICMPv6 error (RFC 8200 4.2).
fn check_options(header: &[u8], place: usize) -> Result<(), WalkError> {
    const PADDING_ONE: u8 = 0;
    const KNOWN: [u8; 2] = [1, 5]; // padding, router alert
    let silent = WalkError { reason: IpDrop::Options, report: None, report_to_group: false };
    let mut at = 2;
    while at < header.len() {
        let kind = header[at];
        if kind == PADDING_ONE {
            at += 1;
            continue;
        }
        let length = header.get(at + 1).map_or(usize::MAX, |length| 2 + usize::from(*length));
        if length > header.len() - at {
            return Err(silent);
        }
        match kind >> 6 {
            _ if KNOWN.contains(&kind) => {}
            0 => {}
            1 => return Err(silent),
            bits => return Err(WalkError { report: Some((2, place + at)), report_to_group: bits == 2, ..silent }),
        }
        at += length;
    }
    Ok(())
}

/// Returns true if a packet has a router alert option for MLD (RFC 2711 2.1). [`walk`] must have accepted the extension headers
/// before.
pub(crate) fn has_router_alert(packet: &[u8]) -> bool {
    const ALERT: [u8; 4] = [5, 2, 0, 0];
    let header_bytes = packet.get(IPV6_HEADER_LEN + 1).map_or(0, |units| 8 * (1 + usize::from(*units)));
    let options = packet.get(IPV6_HEADER_LEN + 2..IPV6_HEADER_LEN + header_bytes);
    let mut options = options.filter(|_| packet[NEXT_HEADER_AT] == HOP_BY_HOP).unwrap_or_default();
    while let [kind, rest @ ..] = options {
        if options.starts_with(&ALERT) {
            return true;
        }
        let length = if *kind == 0 { 1 } else { rest.first().map_or(1, |length| 2 + usize::from(*length)) };
        options = options.get(length..).unwrap_or_default();
    }
    false
}

/// The fields of an IPv6 header to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ipv6Build {
    pub(crate) from: Ipv6Addr,
    pub(crate) to: Ipv6Addr,
    pub(crate) protocol: u8,
    pub(crate) hop_limit: u8,
    /// The traffic class, with DSCP and ECN.
    pub(crate) service: u8,
}

impl Ipv6Build {
    /// Builds the packet, preceded by [`LINK_BYTES`] free bytes for the link header. Returns `None` if the payload is too long.
    pub(crate) fn packet(&self, payload: &[u8]) -> Option<Vec<u8>> {
        let length = u16::try_from(payload.len()).ok()?;
        let mut bytes = vec![0; LINK_BYTES + IPV6_HEADER_LEN + payload.len()];
        let mut packet = Ipv6Packet::new_unchecked(&mut bytes[LINK_BYTES..]);
        packet.set_version(6);
        packet.set_traffic_class(self.service);
        packet.set_payload_len(length);
        packet.set_next_header(IpProtocol::from(self.protocol));
        packet.set_hop_limit(self.hop_limit);
        packet.set_src_addr(self.from);
        packet.set_dst_addr(self.to);
        packet.payload_mut().copy_from_slice(payload);
        Some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(extensions: &[u8]) -> Vec<u8> {
        [&[0; 40], extensions].concat()
    }

    #[test]
    fn a_walk_over_extension_headers_ends_at_the_protocol_or_a_fragment_header() {
        let options = packet(&[DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0, 17, 0, 0x1e, 4, 0, 0, 0, 0, 1, 2, 3]);
        let end = Walk { protocol: 17, at: 56, number_at: 48, fragment: None };
        assert_eq!(walk(&options, HOP_BY_HOP), Ok(end));
        let fragment = packet(&[17, 0, 0x05, 0xa9, 0, 0, 1, 2]);
        let header = Fragment { next_header: 17, offset: 0x05a8, more_fragments: true, ident: 258 };
        assert_eq!(walk(&fragment, FRAGMENT).unwrap().fragment, Some(header));
    }

    #[test]
    fn malformed_extension_headers_are_refused() {
        let refused = |bytes: &[u8], first| walk(&packet(bytes), first).unwrap_err();
        assert_eq!(refused(&[43, 0, 0, 1, 0, 0, 0, 0], ROUTING).report, Some((0, 42)));
        assert_eq!(refused(&[HOP_BY_HOP, 0, 1, 4, 0, 0, 0, 0], DESTINATION_OPTIONS).report, Some((1, 40)));
        assert_eq!(refused(&[17, 0, 0x9e, 4, 0, 0, 0, 0], DESTINATION_OPTIONS).report, Some((2, 42)));
        assert_eq!(refused(&[17, 0, 1, 1, 0, 0x9e, 1, 0], DESTINATION_OPTIONS).report, Some((2, 45)), "behind padding");
        assert!(refused(&[17, 0, 0x9e, 4, 0, 0, 0, 0], DESTINATION_OPTIONS).report_to_group);
        assert!(!refused(&[17, 0, 0xde, 4, 0, 0, 0, 0], DESTINATION_OPTIONS).report_to_group);
        assert_eq!(refused(&[17, 0, 0x5e, 4, 0, 0, 0, 0], DESTINATION_OPTIONS).report, None);
        for bytes in [&[17, 0, 1, 5, 0, 0, 0, 0][..], &[17, 0, 0, 0, 0, 0, 0, 1], &[17, 1, 0, 0, 0, 0, 0, 0], &[17]] {
            assert_eq!(refused(bytes, DESTINATION_OPTIONS).report, None, "{bytes:?}");
        }
    }

    #[test]
    fn a_walk_over_extension_headers_is_bounded() {
        let endless = packet(&[DESTINATION_OPTIONS, 0, 1, 4, 0, 0, 0, 0].repeat(100));
        assert_eq!(walk(&endless, DESTINATION_OPTIONS).unwrap_err().reason, IpDrop::Options);
    }
}
