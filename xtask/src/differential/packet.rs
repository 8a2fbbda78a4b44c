//! Packets as bytes: builds those of the peer, and parses those of the host under test.
//!
//! The tester has a parser and a builder of its own, because it also checks those of the stack.

use std::net::IpAddr;

pub(crate) const FIN: u8 = 0x01;
pub(crate) const SYN: u8 = 0x02;
pub(crate) const RST: u8 = 0x04;
pub(crate) const PSH: u8 = 0x08;
pub(crate) const ACK: u8 = 0x10;
pub(crate) const URG: u8 = 0x20;
pub(crate) const ECE: u8 = 0x40;
pub(crate) const CWR: u8 = 0x80;

pub(crate) const PROTOCOL_TCP: u8 = 6;
pub(crate) const PROTOCOL_ICMP: u8 = 1;
pub(crate) const PROTOCOL_ICMP6: u8 = 58;
pub(crate) const HEADER_V4: usize = 20;
const HEADER_V6: usize = 40;

/// The fields of an IP header that a test chooses or compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IpHeader {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) hop_limit: u8,
    /// Type of service or traffic class, including the ECN bits.
    pub(crate) service: u8,
    /// Always true for IPv6.
    pub(crate) dont_fragment: bool,
}

/// A parsed segment with raw numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    pub(crate) seq: u32,
    pub(crate) ack: u32,
    pub(crate) bits: u8,
    pub(crate) window: u16,
    pub(crate) urgent: u16,
    pub(crate) options: Vec<TcpOption>,
    pub(crate) len: u32,
}

/// An option of a TCP header, in the order of the header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TcpOption {
    NoOperation,
    Mss(u16),
    WindowScale(u8),
    SackPermitted,
    Sack(Vec<(u32, u32)>),
    Timestamps(u32, u32),
    Other(u8, Vec<u8>),
}

impl TcpOption {
    fn emit(&self, into: &mut Vec<u8>) {
        let mut option = |kind: u8, body: &[u8]| {
            into.extend([kind, u8::try_from(2 + body.len()).unwrap_or(u8::MAX)]);
            into.extend_from_slice(body);
        };
        match self {
            Self::NoOperation => into.push(1),
            Self::Mss(mss) => option(2, &mss.to_be_bytes()),
            Self::WindowScale(shift) => option(3, &[*shift]),
            Self::SackPermitted => option(4, &[]),
            Self::Sack(blocks) => {
                let numbers = blocks.iter().flat_map(|(start, end)| [start.to_be_bytes(), end.to_be_bytes()]);
                option(5, &numbers.flatten().collect::<Vec<u8>>());
            }
            Self::Timestamps(value, echo) => option(8, &[value.to_be_bytes(), echo.to_be_bytes()].concat()),
            Self::Other(kind, body) => option(*kind, body),
        }
    }

    fn parse(kind: u8, body: &[u8]) -> Self {
        let word = |at: usize| u32_at(body, at).unwrap_or(0);
        match (kind, body.len()) {
            (2, 2) => Self::Mss(u16::from_be_bytes([body[0], body[1]])),
            (3, 1) => Self::WindowScale(body[0]),
            (4, 0) => Self::SackPermitted,
            (5, bytes) if bytes % 8 == 0 => {
                Self::Sack((0..bytes / 8).map(|at| (word(8 * at), word(8 * at + 4))).collect())
            }
            (8, 8) => Self::Timestamps(word(0), word(4)),
            _ => Self::Other(kind, body.to_vec()),
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4).map(|bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The Internet checksum of these parts; 0 if they contain their own right checksum. All parts but the last have an even length.
pub(crate) fn checksum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0_u32;
    for word in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u32::from(word[0]) << 8 | u32::from(word.get(1).copied().unwrap_or(0));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

pub(crate) fn pseudo_header(header: &IpHeader, bytes: usize) -> Vec<u8> {
    let mut all = match (header.from, header.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => [from.octets(), to.octets()].concat(),
        (from, to) => {
            let octets = |address| match address {
                IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
                IpAddr::V6(address) => address.octets(),
            };
            [octets(from), octets(to)].concat()
        }
    };
    all.extend([0, header.protocol]);
    all.extend(u32::try_from(bytes).unwrap_or(0).to_be_bytes());
    all
}

/// Puts an IP header in front of `payload`.
pub(crate) fn ip(header: &IpHeader, payload: &[u8]) -> Vec<u8> {
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    let mut bytes = Vec::with_capacity(HEADER_V6 + payload.len());
    match (header.from, header.to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            bytes.extend([0x45, header.service]);
            bytes.extend(length(HEADER_V4 + payload.len()));
            bytes.extend([0, 1, if header.dont_fragment { 0x40 } else { 0 }, 0]);
            bytes.extend([header.hop_limit, header.protocol, 0, 0]);
            bytes.extend([from.octets(), to.octets()].concat());
            let sum = checksum(&[&bytes]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            bytes.extend([0x60 | header.service >> 4, header.service << 4, 0, 0]);
            bytes.extend(length(payload.len()));
            bytes.extend([header.protocol, header.hop_limit]);
            bytes.extend([from.octets(), to.octets()].concat());
        }
        (from, to) => unreachable!("{from} and {to} are of one version"),
    }
    bytes.extend_from_slice(payload);
    bytes
}

/// Builds a TCP packet with zeros as payload.
pub(crate) fn tcp(header: &IpHeader, segment: &Segment) -> Vec<u8> {
    let mut options = Vec::new();
    segment.options.iter().for_each(|option| option.emit(&mut options));
    options.resize(options.len().next_multiple_of(4), 0);
    let mut bytes = [segment.source_port.to_be_bytes(), segment.destination_port.to_be_bytes()].concat();
    bytes.extend(segment.seq.to_be_bytes());
    bytes.extend(segment.ack.to_be_bytes());
    bytes.extend([u8::try_from((20 + options.len()) / 4).unwrap_or(15) << 4, segment.bits]);
    bytes.extend(segment.window.to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(segment.urgent.to_be_bytes());
    bytes.extend(options);
    bytes.resize(bytes.len() + usize::try_from(segment.len).unwrap_or(0), 0);
    let sum = checksum(&[&pseudo_header(header, bytes.len()), &bytes]);
    bytes[16..18].copy_from_slice(&sum.to_be_bytes());
    ip(header, &bytes)
}

/// Builds an ICMP error that quotes `packet`.
pub(crate) fn icmp(from: IpAddr, to: IpAddr, kind: u8, code: u8, field: u32, packet: &[u8]) -> Vec<u8> {
    let protocol = if from.is_ipv4() { PROTOCOL_ICMP } else { PROTOCOL_ICMP6 };
    let header = IpHeader { from, to, protocol, hop_limit: 64, service: 0, dont_fragment: from.is_ipv6() };
    let mut bytes = vec![kind, code, 0, 0];
    bytes.extend(field.to_be_bytes());
    bytes.extend_from_slice(&packet[..packet.len().min(500)]);
    let sum = match from {
        IpAddr::V4(_) => checksum(&[&bytes]),
        IpAddr::V6(_) => checksum(&[&pseudo_header(&header, bytes.len()), &bytes]),
    };
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    ip(&header, &bytes)
}

/// Parses an IP header. Returns the header and the offset of its payload, or `None` if the packet is not valid.
pub(crate) fn parse_ip(packet: &[u8]) -> Option<(IpHeader, usize)> {
    let address = |at: usize, len: usize| packet.get(at..at + len);
    match packet.first()? >> 4 {
        4 if packet.len() >= HEADER_V4 && checksum(&[&packet[..HEADER_V4]]) == 0 && packet[0] == 0x45 => {
            let [from, to] = [12, 16].map(|at| address(at, 4).and_then(|bytes| <[u8; 4]>::try_from(bytes).ok()));
            let header = IpHeader {
                from: from?.into(),
                to: to?.into(),
                protocol: packet[9],
                hop_limit: packet[8],
                service: packet[1],
                dont_fragment: packet[6] & 0x40 != 0,
            };
            Some((header, HEADER_V4))
        }
        6 if packet.len() >= HEADER_V6 => {
            let [from, to] = [8, 24].map(|at| address(at, 16).and_then(|bytes| <[u8; 16]>::try_from(bytes).ok()));
            let header = IpHeader {
                from: from?.into(),
                to: to?.into(),
                protocol: packet[6],
                hop_limit: packet[7],
                service: packet[0] << 4 | packet[1] >> 4,
                dont_fragment: true,
            };
            Some((header, HEADER_V6))
        }
        _ => None,
    }
}

/// Parses a TCP packet. Returns `None` if it is malformed or has another protocol, or if its checksum is wrong.
pub(crate) fn parse_tcp(packet: &[u8]) -> Option<(IpHeader, Segment)> {
    let (header, at) = parse_ip(packet)?;
    let bytes = &packet[at..];
    if header.protocol != PROTOCOL_TCP || checksum(&[&pseudo_header(&header, bytes.len()), bytes]) != 0 {
        return None;
    }
    let header_bytes = usize::from(bytes.get(12)? >> 4) * 4;
    let mut options = Vec::new();
    let mut rest = bytes.get(20..header_bytes)?;
    while let [kind, after @ ..] = rest {
        match kind {
            0 => break,
            1 => {
                options.push(TcpOption::NoOperation);
                rest = after;
            }
            _ => {
                let len = usize::from(*after.first()?);
                options.push(TcpOption::parse(*kind, rest.get(2..len)?));
                rest = &rest[len..];
            }
        }
    }
    let segment = Segment {
        source_port: u16_at(bytes, 0)?,
        destination_port: u16_at(bytes, 2)?,
        seq: u32_at(bytes, 4)?,
        ack: u32_at(bytes, 8)?,
        bits: bytes[13],
        window: u16_at(bytes, 14)?,
        urgent: u16_at(bytes, 18)?,
        options,
        len: u32::try_from(bytes.len() - header_bytes).ok()?,
    };
    Some((header, segment))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment() -> Segment {
        let options = vec![
            TcpOption::Mss(1_460),
            TcpOption::SackPermitted,
            TcpOption::NoOperation,
            TcpOption::NoOperation,
            TcpOption::Timestamps(7, 8),
            TcpOption::Sack(vec![(1, 2)]),
            TcpOption::Other(253, vec![1, 2, 3, 4]),
        ];
        Segment {
            source_port: 1,
            destination_port: 2,
            seq: 3,
            ack: 4,
            bits: ACK | URG,
            window: 5,
            urgent: 6,
            options,
            len: 9,
        }
    }

    #[test]
    fn a_built_segment_is_parsed_as_the_same_segment() {
        let addresses: [[IpAddr; 2]; 2] = [
            ["10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()],
            ["2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap()],
        ];
        for [from, to] in addresses {
            let header = IpHeader { from, to, protocol: PROTOCOL_TCP, hop_limit: 64, service: 3, dont_fragment: true };
            let packet = tcp(&header, &segment());
            assert_eq!(parse_tcp(&packet), Some((header, segment())));
            let start = if from.is_ipv4() { HEADER_V4 } else { HEADER_V6 };
            for at in start..packet.len() {
                let mut damaged = packet.clone();
                damaged[at] ^= 1;
                assert_ne!(parse_tcp(&damaged), Some((header, segment())), "byte {at}");
                // Shorter packets must not cause a panic.
                let _parsed = parse_tcp(&packet[..at]);
            }
        }
    }
}
