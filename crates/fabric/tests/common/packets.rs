//! Packets of both IP versions, with their checksums, as a hostile guest makes them.
#![allow(dead_code, reason = "each program uses what it needs")]

use std::net::IpAddr;

/// Bytes of every echo request.
const ECHO: [u8; 12] = [0, 1, 0, 2, 9, 9, 9, 9, 9, 9, 9, 9];

/// An IP packet around a payload.
pub(crate) fn packet(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    with_fragment(from, to, protocol, (0, 0), payload)
}

/// The same with an identification and a word of flags and offset.
fn with_fragment(from: IpAddr, to: IpAddr, protocol: u8, (ident, word): (u16, u16), payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(payload.len()).unwrap();
    match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let mut bytes =
                [&[0x45, 0][..], &(20 + len).to_be_bytes(), &ident.to_be_bytes(), &word.to_be_bytes()].concat();
            bytes.extend([64, protocol, 0, 0]);
            bytes.extend([from.octets(), to.octets()].concat());
            let sum = checksum(&bytes);
            bytes[10..12].copy_from_slice(&sum);
            bytes.extend_from_slice(payload);
            bytes
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let head = [&[0x60, 0, 0, 0][..], &len.to_be_bytes(), &[protocol, 64]].concat();
            [&head[..], &from.octets(), &to.octets(), payload].concat()
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => panic!("two versions"),
    }
}

/// An echo request.
pub(crate) fn echo(from: IpAddr, to: IpAddr) -> Vec<u8> {
    packet(from, to, icmp_number(from), &icmp(from, to, if from.is_ipv4() { 8 } else { 128 }, 0, &ECHO))
}

/// Its answer, as siga's stack makes it: only the identification of IPv4 is not known, which is left out of the comparison.
pub(crate) fn is_echo_reply(bytes: &[u8], from: IpAddr, to: IpAddr) -> bool {
    let reply = packet(from, to, icmp_number(from), &icmp(from, to, if from.is_ipv4() { 0 } else { 129 }, 0, &ECHO));
    let at = if from.is_ipv4() { 12 } else { 8 };
    bytes.len() == reply.len() && bytes[at..] == reply[at..]
}

/// A UDP datagram.
pub(crate) fn datagram(from: IpAddr, to: IpAddr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    packet(from, to, 17, &udp(from, to, ports, payload))
}

fn udp(from: IpAddr, to: IpAddr, ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let len = u16::try_from(8 + payload.len()).unwrap();
    let mut bytes = [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes(), &len.to_be_bytes(), &[0, 0], payload].concat();
    let sum = pseudo_checksum(from, to, 17, &bytes);
    bytes[6..8].copy_from_slice(&sum);
    bytes
}

/// A SYN with a sequence number of no meaning.
pub(crate) fn syn(from: IpAddr, to: IpAddr, ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = [&ports.0.to_be_bytes()[..], &ports.1.to_be_bytes(), &[0, 0, 1, 0, 0, 0, 0, 0]].concat();
    bytes.extend([0x50, 2, 4, 0, 0, 0, 0, 0]);
    let sum = pseudo_checksum(from, to, 6, &bytes);
    bytes[16..18].copy_from_slice(&sum);
    packet(from, to, 6, &bytes)
}

/// A first fragment of a UDP datagram, at whatever offset, with more to come.
pub(crate) fn fragment(from: IpAddr, to: IpAddr, ident: u16, offset: u16, bytes: &[u8]) -> Vec<u8> {
    if from.is_ipv4() {
        return with_fragment(from, to, 17, (ident, 0x2000 | (offset / 8)), bytes);
    }
    let head = [&[17, 0][..], &(offset & !7 | 1).to_be_bytes(), &[0, 0], &ident.to_be_bytes()].concat();
    packet(from, to, 44, &[&head[..], bytes].concat())
}

/// "Port unreachable" about a segment that the receiver may have sent.
pub(crate) fn unreachable(from: IpAddr, to: IpAddr) -> Vec<u8> {
    let quoted = syn(to, from, (80, 1_000));
    let (kind, code) = if from.is_ipv4() { (3, 3) } else { (1, 4) };
    packet(from, to, icmp_number(from), &icmp(from, to, kind, code, &[&[0; 4][..], &quoted].concat()))
}

fn icmp_number(like: IpAddr) -> u8 {
    if like.is_ipv4() { 1 } else { 58 }
}

fn icmp(from: IpAddr, to: IpAddr, kind: u8, code: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = [&[kind, code, 0, 0], rest].concat();
    let sum = if from.is_ipv4() { checksum(&bytes) } else { pseudo_checksum(from, to, 58, &bytes) };
    bytes[2..4].copy_from_slice(&sum);
    bytes
}

fn pseudo_checksum(from: IpAddr, to: IpAddr, protocol: u8, bytes: &[u8]) -> [u8; 2] {
    let octets = |ip: IpAddr| match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let len = u32::try_from(bytes.len()).unwrap().to_be_bytes();
    checksum(&[&octets(from)[..], &octets(to), &[0, protocol], &len, bytes].concat())
}

fn checksum(bytes: &[u8]) -> [u8; 2] {
    let word = |two: &[u8]| u32::from(two[0]) << 8 | u32::from(two.get(1).copied().unwrap_or(0));
    let mut sum: u32 = bytes.chunks(2).map(word).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}
