//! Builds, corrects and parses packets as bytes.
//!
//! This code shares nothing with the stack, so a bug of the stack is unlikely to be in this code, too.

use std::net::IpAddr;

pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;

fn low(number: usize) -> u16 {
    u16::try_from(number & 0xffff).unwrap_or(0)
}

/// Returns the Internet checksum of the parts together: the complement of the ones' complement sum of all 16-bit words.
pub(crate) fn sum(parts: &[&[u8]]) -> u16 {
    let mut sum: u64 = 0;
    for part in parts {
        let (words, odd) = part.as_chunks::<2>();
        sum += words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
        sum += odd.iter().map(|byte| u64::from(*byte) << 8).sum::<u64>();
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !u16::try_from(sum).unwrap_or(0)
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// The fields of an IP header that this code can set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ip {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) hops: u8,
    /// Type of service (IPv4) or traffic class (IPv6).
    pub(crate) service: u8,
    /// `ident`: the identification. `flags`: the flags and the fragment offset. Both are used only for IPv4.
    pub(crate) ident: u16,
    pub(crate) flags: u16,
}

impl Ip {
    pub(crate) fn new(from: IpAddr, to: IpAddr, protocol: u8) -> Self {
        Self { from, to, protocol, hops: 64, service: 0, ident: 7, flags: 0 }
    }

    /// Builds a packet with this payload and a correct header checksum. If the payload is too long for an IP packet, the length
    /// field is wrong.
    pub(crate) fn packet(&self, payload: &[u8]) -> Vec<u8> {
        let mut bytes = if self.to.is_ipv4() {
            let [a, b] = low(20 + payload.len()).to_be_bytes();
            let ([c, d], [e, f]) = (self.ident.to_be_bytes(), self.flags.to_be_bytes());
            vec![0x45, self.service, a, b, c, d, e, f, self.hops, self.protocol, 0, 0]
        } else {
            let [a, b] = low(payload.len()).to_be_bytes();
            vec![0x60 | self.service >> 4, self.service << 4, 0, 0, a, b, self.protocol, self.hops]
        };
        bytes.extend(octets(self.from));
        bytes.extend(octets(self.to));
        if self.to.is_ipv4() {
            let sum = sum(&[&bytes]);
            bytes[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        bytes.extend_from_slice(payload);
        bytes
    }
}

pub(crate) fn udp(ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let mut bytes =
        [ports.0.to_be_bytes(), ports.1.to_be_bytes(), low(8 + payload.len()).to_be_bytes(), [0, 0]].concat();
    bytes.extend_from_slice(payload);
    bytes
}

/// Returns the protocol and offset of the transport header. In an IPv6 fragment, returns those of the fragment header. Returns
/// `None` if the packet ends before this header.
pub(crate) fn transport(packet: &[u8]) -> Option<(u8, usize)> {
    match packet.first()? >> 4 {
        4 => Some((*packet.get(9)?, usize::from(packet[0] & 15) * 4)),
        6 => {
            let (mut protocol, mut at) = (*packet.get(6)?, 40);
            while matches!(protocol, 0 | 43 | 60) {
                let header = packet.get(at..at + 2)?;
                protocol = header[0];
                at += 8 * (1 + usize::from(header[1]));
            }
            Some((protocol, at))
        }
        _ => None,
    }
}

/// Returns the source address and the destination address of a packet as bytes.
fn addresses(packet: &[u8]) -> Option<&[u8]> {
    if packet.first()? >> 4 == 4 { packet.get(12..20) } else { packet.get(8..40) }
}

/// Returns the checksum over the pseudo-header, the transport header and the payload. ICMP over IPv4 has no pseudo-header. The
/// result is 0 if the checksum in the packet is correct.
pub(crate) fn transport_sum(packet: &[u8], protocol: u8, at: usize) -> Option<u16> {
    let transport = packet.get(at..)?;
    let length = u32::try_from(transport.len()).unwrap_or(0).to_be_bytes();
    let pseudo = [addresses(packet)?, &length, &[0, 0, 0, protocol]].concat();
    Some(if protocol == 1 { sum(&[transport]) } else { sum(&[&pseudo, transport]) })
}

/// Returns the offset of the checksum field in a transport header, or `None` for other protocols.
fn checksum_at(protocol: u8) -> Option<usize> {
    match protocol {
        1 | 58 => Some(2),
        TCP => Some(16),
        UDP => Some(6),
        _ => None,
    }
}

/// Corrects all lengths and checksums in a packet.
pub(crate) fn mend(packet: &mut [u8]) {
    mend_ip(packet);
    let len = packet.len();
    let Some((protocol, at)) = transport(packet) else { return };
    if protocol == UDP && len >= at + 8 {
        packet[at + 4..at + 6].copy_from_slice(&low(len - at).to_be_bytes());
    }
    fill_checksum(packet, protocol, at);
}

/// Corrects the length and the checksum in the IP header only.
pub(crate) fn mend_ip(packet: &mut [u8]) {
    let len = packet.len();
    match packet.first().map(|first| first >> 4) {
        Some(4) if len >= 20 => {
            packet[2..4].copy_from_slice(&low(len).to_be_bytes());
            let header = (usize::from(packet[0] & 15) * 4).clamp(20, len);
            packet[10..12].fill(0);
            let sum = sum(&[&packet[..header]]);
            packet[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        Some(6) if len >= 40 => packet[4..6].copy_from_slice(&low(len - 40).to_be_bytes()),
        Some(_) | None => {}
    }
}

/// Computes the checksum of a transport header, and writes it into the header.
pub(crate) fn fill_checksum(packet: &mut [u8], protocol: u8, at: usize) {
    let Some(place) = checksum_at(protocol).map(|place| at + place) else { return };
    if packet.len() < place + 2 {
        return;
    }
    packet[place..place + 2].fill(0);
    let sum = transport_sum(packet, protocol, at).unwrap_or(0);
    let sum = if sum == 0 && protocol == UDP { 0xffff } else { sum };
    packet[place..place + 2].copy_from_slice(&sum.to_be_bytes());
}

/// Panics if a packet from the stack has a wrong version, length or checksum. If `unfilled` is set, the transport checksum is not
/// checked.
pub(crate) fn check(packet: &[u8], unfilled: bool) {
    let version = packet[0] >> 4;
    let total = match version {
        4 => {
            let header = usize::from(packet[0] & 15) * 4;
            assert!(header >= 20 && sum(&[&packet[..header]]) == 0, "IPv4 header");
            usize::from(u16::from_be_bytes([packet[2], packet[3]]))
        }
        6 => 40 + usize::from(u16::from_be_bytes([packet[4], packet[5]])),
        _ => panic!("IP version {version}"),
    };
    assert_eq!(total, packet.len(), "length of a packet");
    let fragment = version == 4 && u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff != 0;
    let Some((protocol, at)) = transport(packet).filter(|_| !fragment && !unfilled) else { return };
    if checksum_at(protocol).is_some() && !(protocol == UDP && version == 4 && packet[at + 6..at + 8] == [0, 0]) {
        assert_eq!(transport_sum(packet, protocol, at), Some(0), "checksum of protocol {protocol}");
    }
}
