//! Builds the bytes of a packet of a sequence.

use std::net::IpAddr;

use super::place::Place;
use super::sequence::{Body, Cut, Damage, Extension, Packet};
use crate::differential::packet::{HEADER_V4, IpHeader, PROTOCOL_ICMP, PROTOCOL_ICMP6, checksum, ip, pseudo_header};

pub(crate) const PROTOCOL_UDP: u8 = 17;
const DESTINATION_OPTIONS: u8 = 60;
pub(crate) const FRAGMENT: u8 = 44;

/// The ends and the number of a sequence that is being played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ends {
    pub(crate) v6: bool,
    pub(crate) number: u32,
}

impl Ends {
    pub(crate) fn address(self, place: Place) -> IpAddr {
        place.address(self.v6, self.number)
    }
}

/// Bytes that differ from one another at most offsets, so that a wrong offset or order shows.
pub(crate) fn pattern(start: usize, len: usize) -> Vec<u8> {
    (start..start + len).map(|at| u8::try_from((at ^ (at >> 8)) & 0xff).unwrap_or(0)).collect()
}

/// Builds a packet. `latest` is the latest packet that the host under test sent from a socket. Returns `None` if the packet quotes
/// a packet, but none was sent.
pub(crate) fn packet(packet: &Packet, ends: Ends, latest: Option<&[u8]>) -> Option<Vec<u8>> {
    let (from, to) = (ends.address(packet.from), ends.address(packet.to));
    let (protocol, transport) = transport(packet, from, to, latest)?;
    let inner = packet.extensions.iter().position(|extension| extension.kind == DESTINATION_OPTIONS);
    let (outer, inner) = packet.extensions.split_at(inner.unwrap_or(packet.extensions.len()));
    let (mut first, mut payload) = (protocol, transport);
    let put = |extension: &Extension, first: &mut u8, payload: &mut Vec<u8>| {
        let units = u8::try_from((extension.bytes.len() + 2) / 8).unwrap_or(1).saturating_sub(1);
        payload.splice(0..0, [*first, units].into_iter().chain(extension.bytes.iter().copied()));
        *first = extension.kind;
    };
    if ends.v6 {
        inner.iter().rev().for_each(|extension| put(extension, &mut first, &mut payload));
    }
    if let Some(Cut { offset, len, more }) = packet.cut {
        let (offset, len) = (usize::from(offset), usize::from(len));
        if payload.len() < offset + len {
            payload.extend(pattern(payload.len(), offset + len - payload.len()));
        }
        payload = payload[offset..offset + len].to_vec();
        if ends.v6 {
            let word = packet.cut.map_or(0, |cut| cut.offset & !7) | u16::from(more);
            let [high, low] = packet.ident.to_be_bytes();
            let [offset_high, offset_low] = word.to_be_bytes();
            payload.splice(0..0, [first, 0, offset_high, offset_low, 0, 0, high, low]);
            first = FRAGMENT;
        }
    }
    if ends.v6 {
        outer.iter().rev().for_each(|extension| put(extension, &mut first, &mut payload));
    }
    let header = IpHeader {
        from,
        to,
        protocol: first,
        hop_limit: packet.hop_limit,
        service: packet.service,
        dont_fragment: packet.dont_fragment,
    };
    let mut bytes = ip(&header, &payload);
    if ends.v6 {
        damage_v6(&mut bytes, packet.damage);
    } else {
        finish_v4(&mut bytes, packet);
    }
    Some(bytes)
}

/// Builds the payload of the packet without extension headers.
fn transport(packet: &Packet, from: IpAddr, to: IpAddr, latest: Option<&[u8]>) -> Option<(u8, Vec<u8>)> {
    let icmp = if from.is_ipv4() { PROTOCOL_ICMP } else { PROTOCOL_ICMP6 };
    let message =
        |kind: u8, code: u8, rest: u32, bytes: &[u8]| [&[kind, code, 0, 0], &rest.to_be_bytes()[..], bytes].concat();
    let (protocol, checksum_at, mut bytes) = match packet.body {
        Body::Udp { from, to, len } => {
            let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
            let by = if let Some(Damage::UdpLength(by)) = packet.damage { by } else { 0 };
            bytes.extend((len + 8).wrapping_add_signed(by).to_be_bytes());
            bytes.extend([0, 0]);
            bytes.extend(pattern(8, len.into()));
            (PROTOCOL_UDP, Some(6), bytes)
        }
        Body::Echo { ident, seq, len } => {
            let kind = if from.is_ipv4() { 8 } else { 128 };
            let rest = u32::from(ident) << 16 | u32::from(seq);
            (icmp, Some(2), message(kind, 0, rest, &pattern(8, len.into())))
        }
        Body::Icmp { kind, code, rest, len } => (icmp, Some(2), message(kind, code, rest, &pattern(8, len.into()))),
        Body::Error { kind, code, rest, quote } => {
            let latest = latest?;
            (icmp, Some(2), message(kind, code, rest, &latest[..latest.len().min(quote.into())]))
        }
        Body::Protocol { number, len } => (number, None, pattern(0, len.into())),
    };
    if let Some(at) = checksum_at.filter(|_| packet.damage != Some(Damage::NoChecksum)) {
        let header = IpHeader { from, to, protocol, hop_limit: 0, service: 0, dont_fragment: false };
        let with_addresses = protocol != PROTOCOL_ICMP;
        let pseudo = if with_addresses { pseudo_header(&header, bytes.len()) } else { Vec::new() };
        let mut sum = checksum(&[&pseudo, &bytes]);
        if sum == 0 && protocol == PROTOCOL_UDP {
            sum = 0xffff;
        }
        if packet.damage == Some(Damage::Checksum) {
            sum ^= 0x0100;
        }
        bytes[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    }
    Some((protocol, bytes))
}

fn damage_v6(bytes: &mut [u8], damage: Option<Damage>) {
    match damage {
        Some(Damage::Length(by)) => {
            let length = u16::from_be_bytes([bytes[4], bytes[5]]).wrapping_add_signed(by);
            bytes[4..6].copy_from_slice(&length.to_be_bytes());
        }
        Some(Damage::Version(version)) => bytes[0] = version << 4 | bytes[0] & 15,
        Some(
            Damage::Checksum
            | Damage::NoChecksum
            | Damage::HeaderChecksum
            | Damage::UdpLength(_)
            | Damage::HeaderLength(_)
            | Damage::ReservedFlag,
        )
        | None => {}
    }
}

/// Adds what only IPv4 headers have, and computes the checksum.
fn finish_v4(bytes: &mut Vec<u8>, packet: &Packet) {
    bytes[4..6].copy_from_slice(&packet.ident.to_be_bytes());
    if let Some(Cut { offset, more, .. }) = packet.cut {
        let flags = u16::from(packet.dont_fragment) << 14 | u16::from(more) << 13;
        bytes[6..8].copy_from_slice(&(flags | (offset / 8)).to_be_bytes());
    }
    if !packet.options.is_empty() {
        bytes.splice(HEADER_V4..HEADER_V4, packet.options.iter().copied());
        bytes[0] = 0x40 | u8::try_from((HEADER_V4 + packet.options.len()) / 4).unwrap_or(15);
    }
    let mut length = u16::try_from(bytes.len()).unwrap_or(u16::MAX);
    match packet.damage {
        Some(Damage::Length(by)) => length = length.wrapping_add_signed(by),
        Some(Damage::HeaderLength(units)) => bytes[0] = bytes[0] & 0xf0 | units & 15,
        Some(Damage::Version(version)) => bytes[0] = version << 4 | bytes[0] & 15,
        Some(Damage::ReservedFlag) => bytes[6] |= 0x80,
        Some(Damage::Checksum | Damage::NoChecksum | Damage::HeaderChecksum | Damage::UdpLength(_)) | None => {}
    }
    bytes[2..4].copy_from_slice(&length.to_be_bytes());
    bytes[10..12].fill(0);
    let end = bytes.len().min(4 * usize::from(bytes[0] & 15)).max(HEADER_V4);
    let mut sum = checksum(&[&bytes[..end]]);
    if packet.damage == Some(Damage::HeaderChecksum) {
        sum ^= 1;
    }
    bytes[10..12].copy_from_slice(&sum.to_be_bytes());
}
