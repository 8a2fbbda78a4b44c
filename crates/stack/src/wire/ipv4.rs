//! The IPv4 header (RFC 791): parses and checks received headers and their options (RFC 7126), and builds packets to send.

use crate::drops::IpDrop;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::LINK_BYTES;
use smoltcp::wire::{IPV4_HEADER_LEN, IpProtocol, Ipv4Packet};
use std::net::Ipv4Addr;

/// Offset of the protocol field in the header.
pub(crate) const PROTOCOL_AT: usize = 9;

/// The fields of an IPv4 header that the stack uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ipv4Header {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
    /// Length of the header in bytes, including options.
    pub(crate) header_bytes: usize,
    pub(crate) total_bytes: usize,
    pub(crate) ident: u16,
    pub(crate) dont_fragment: bool,
    pub(crate) more_fragments: bool,
    /// Offset of this fragment's payload in the payload of the original datagram, in bytes.
    pub(crate) offset: usize,
    pub(crate) ttl: u8,
    pub(crate) protocol: u8,
}

impl Ipv4Header {
    /// Parses and checks the header at the start of `bytes` (RFC 1812 5.2.2). `available` is the number of bytes in the frame
    /// after the link header.
    #[inline]
    pub(crate) fn parse(bytes: &[u8], available: usize) -> Result<Self, IpDrop> {
        if bytes.len() < IPV4_HEADER_LEN {
            return Err(IpDrop::Length);
        }
        let packet = Ipv4Packet::new_unchecked(bytes);
        if packet.version() != 4 {
            return Err(IpDrop::Version);
        }
        let header_bytes = usize::from(packet.header_len());
        let total_bytes = usize::from(packet.total_len());
        if header_bytes < IPV4_HEADER_LEN
            || bytes.len() < header_bytes
            || total_bytes < header_bytes
            || available < total_bytes
        {
            return Err(IpDrop::Length);
        }
        if !Sum::default().bytes(&bytes[..header_bytes]).is_intact() {
            return Err(IpDrop::Checksum);
        }
        Ok(Self {
            from: packet.src_addr(),
            to: packet.dst_addr(),
            header_bytes,
            total_bytes,
            ident: packet.ident(),
            dont_fragment: packet.dont_frag(),
            more_fragments: packet.more_frags(),
            offset: usize::from(packet.frag_offset()),
            ttl: packet.hop_limit(),
            protocol: packet.next_header().into(),
        })
    }

    pub(crate) fn is_fragment(&self) -> bool {
        self.more_fragments || self.offset > 0
    }
}

/// Returns the complete datagram from the header of its first fragment and its payload. An ICMP error may quote it, so its header
/// has the length of the datagram and does not describe a fragment.
pub(crate) fn reassembled(mut head: Vec<u8>, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(head.len() + payload.len()).unwrap_or(u16::MAX);
    let mut header = Ipv4Packet::new_unchecked(&mut head);
    header.set_total_len(length);
    header.set_more_frags(false);
    header.fill_checksum();
    head.extend_from_slice(payload);
    head
}

/// The router alert option, which asks every router to examine the packet (RFC 2113 2.1).
pub(crate) const ROUTER_ALERT: [u8; 4] = [0x94, 4, 0, 0];

/// End of the option list; also used as padding.
const END: u8 = 0;
const NO_OPERATION: u8 = 1;

/// Returns the offset at which the option at offset `at` ends, or `None` if no option begins there.
fn option_end(header: &[u8], at: usize) -> Option<usize> {
    match *header.get(at)? {
        END => None,
        NO_OPERATION => Some(at + 1),
        _ => Some(at + header.get(at + 1).map_or(1, |length| usize::from(*length).max(1))),
    }
}

/// Returns true if a header has the router alert option. [`check_options`] must have accepted the options before.
pub(crate) fn has_router_alert(header: &[u8]) -> bool {
    let mut at = IPV4_HEADER_LEN;
    while let Some(end) = option_end(header, at) {
        if header[at..].starts_with(&ROUTER_ALERT) {
            return true;
        }
        at = end;
    }
    false
}

/// Checks the options of a header. Returns an error for a source route or a malformed option. The error contains the offset of the
/// invalid octet.
pub(crate) fn check_options(header: &[u8]) -> Result<(), (IpDrop, u8)> {
    const LOOSE_SOURCE_ROUTE: u8 = 0x83;
    const STRICT_SOURCE_ROUTE: u8 = 0x89;
    let mut at = IPV4_HEADER_LEN;
    while at < header.len() {
        let place = u8::try_from(at).unwrap_or(u8::MAX);
        match header[at] {
            END => return Ok(()),
            NO_OPERATION => at += 1,
            // RFC 9293 MUST-53: a packet with a source route is dropped here, so TCP never receives a source route.
            LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE => return Err((IpDrop::SourceRoute, place)),
            // RFC 9293 MUST-50: unknown options are skipped.
            _ => {
                let length = header.get(at + 1).map_or(0, |length| usize::from(*length));
                if length < 2 || at + length > header.len() {
                    return Err((IpDrop::Options, place));
                }
                at += length;
            }
        }
    }
    Ok(())
}

/// Replaces each option without the copied flag by no-operations. Only the first fragment may have such options (RFC 791 3.1).
pub(crate) fn blank_uncopied_options(header: &mut [u8]) {
    const COPIED: u8 = 0x80;
    let mut at = IPV4_HEADER_LEN;
    while let Some(end) = option_end(header, at) {
        let end = end.min(header.len());
        if header[at] & COPIED == 0 {
            header[at..end].fill(NO_OPERATION);
        }
        at = end;
    }
}

/// The fields of an IPv4 header to send.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ipv4Build {
    pub(crate) from: Ipv4Addr,
    pub(crate) to: Ipv4Addr,
    pub(crate) protocol: u8,
    pub(crate) ttl: u8,
    /// The complete type-of-service octet, with DSCP and ECN.
    pub(crate) service: u8,
    pub(crate) ident: u16,
}

impl Ipv4Build {
    /// Builds the packet, preceded by [`LINK_BYTES`] free bytes for the link header. Returns `None` if the payload is too long.
    pub(crate) fn packet(&self, payload: &[u8]) -> Option<Vec<u8>> {
        self.packet_with(&[], payload)
    }

    /// Like [`Ipv4Build::packet`], but with options. The length of `options` must be a multiple of four bytes.
    pub(crate) fn packet_with(&self, options: &[u8], payload: &[u8]) -> Option<Vec<u8>> {
        let header_bytes = IPV4_HEADER_LEN + options.len();
        let total = u16::try_from(header_bytes + payload.len()).ok()?;
        let mut bytes = vec![0; LINK_BYTES + usize::from(total)];
        let mut packet = Ipv4Packet::new_unchecked(&mut bytes[LINK_BYTES..]);
        packet.set_version(4);
        packet.set_header_len(u8::try_from(header_bytes).ok()?);
        packet.set_dscp(self.service >> 2);
        packet.set_ecn(self.service & 3);
        packet.set_total_len(total);
        packet.set_ident(self.ident);
        packet.set_hop_limit(self.ttl);
        packet.set_next_header(IpProtocol::from(self.protocol));
        packet.set_src_addr(self.from);
        packet.set_dst_addr(self.to);
        bytes[LINK_BYTES + IPV4_HEADER_LEN..LINK_BYTES + header_bytes].copy_from_slice(options);
        let mut packet = Ipv4Packet::new_unchecked(&mut bytes[LINK_BYTES..]);
        packet.fill_checksum();
        packet.payload_mut().copy_from_slice(payload);
        Some(bytes)
    }
}

/// Lets routers fragment a packet, which therefore gets an identification (RFC 6864).
pub(crate) fn allow_fragments(packet: &mut [u8], ident: u16) {
    let mut packet = Ipv4Packet::new_unchecked(packet);
    packet.set_dont_frag(false);
    packet.set_ident(ident);
    packet.fill_checksum();
}

/// Sets the bit by which routers must not fragment a packet (DF).
pub(crate) fn forbid_fragments(packet: &mut [u8]) {
    let mut packet = Ipv4Packet::new_unchecked(packet);
    packet.set_dont_frag(true);
    packet.fill_checksum();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(options: &[u8]) -> Vec<u8> {
        [&[0; 20], options].concat()
    }

    // RFC 9293 MUST-50, MUST-53.
    #[test]
    fn source_routes_and_malformed_options_are_refused_with_their_offset() {
        for (options, result) in [
            (&[][..], Ok(())),
            (&[1, 1, 1, 0][..], Ok(())),
            (&[7, 4, 4, 0][..], Ok(())),
            (&[0x94, 4, 0, 0][..], Ok(())),
            (&[7, 2, 7, 2][..], Ok(())),
            (&[1, 0x83, 3, 4][..], Err((IpDrop::SourceRoute, 21))),
            (&[0x89, 4, 4, 0][..], Err((IpDrop::SourceRoute, 20))),
            (&[7, 0, 0, 0][..], Err((IpDrop::Options, 20))),
            (&[7, 1, 0, 0][..], Err((IpDrop::Options, 20))),
            (&[7, 5, 0, 0][..], Err((IpDrop::Options, 20))),
            (&[1, 1, 1, 7][..], Err((IpDrop::Options, 23))),
        ] {
            assert_eq!(check_options(&header(options)), result, "{options:?}");
        }
    }

    #[test]
    fn a_router_alert_is_found_among_other_options_but_not_inside_one() {
        for (options, found) in [
            (&[][..], false),
            (&[0x94, 4, 0, 0][..], true),
            (&[0x94, 4, 0, 1][..], false),
            (&[1, 1, 1, 1, 0x94, 4, 0, 0][..], true),
            (&[7, 4, 4, 0, 0x94, 4, 0, 0][..], true),
            (&[7, 8, 4, 0, 0x94, 4, 0, 0][..], false),
            (&[7, 3, 4, 0, 0x94, 4, 0, 0][..], false),
        ] {
            assert_eq!(has_router_alert(&header(options)), found, "{options:?}");
        }
    }

    #[test]
    fn only_copied_options_stay_in_later_fragments() {
        let mut bytes = header(&[7, 4, 4, 9, 0x94, 4, 0, 0, 68, 9, 1, 1]);
        blank_uncopied_options(&mut bytes);
        assert_eq!(bytes[20..], [1, 1, 1, 1, 0x94, 4, 0, 0, 1, 1, 1, 1]);
        let mut bytes = header(&[1, 68, 2, 0, 68, 4, 1, 1]);
        blank_uncopied_options(&mut bytes);
        assert_eq!(bytes[20..], [1, 1, 1, 0, 68, 4, 1, 1], "what lies behind the end is no option");
    }
}
