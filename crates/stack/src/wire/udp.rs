//! The UDP header (RFC 768).

use super::checksum::Sum;
use super::protocol::UDP;
use std::net::IpAddr;

/// Length of the header in bytes.
pub(crate) const HEADER_BYTES: usize = 8;
/// Offset of the checksum in the header.
pub(crate) const CHECKSUM_AT: usize = 6;

/// The fields of a UDP header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UdpHeader {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    /// Length of header and payload in bytes.
    pub(crate) length: u16,
    /// The checksum; 0 if the sender computed no checksum.
    pub(crate) checksum: u16,
}

impl UdpHeader {
    pub(crate) fn parse(segment: &[u8]) -> Option<Self> {
        let &[a, b, c, d, e, f, g, h] = segment.first_chunk()?;
        let [source_port, destination_port, length, checksum] =
            [[a, b], [c, d], [e, f], [g, h]].map(u16::from_be_bytes);
        Some(Self { source_port, destination_port, length, checksum })
    }
}

/// Builds a datagram with its checksum. Returns `None` if the payload is too long.
pub(crate) fn datagram(from: (IpAddr, u16), to: (IpAddr, u16), payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(HEADER_BYTES + payload.len()).ok()?;
    let mut segment = Vec::with_capacity(length.into());
    for field in [from.1, to.1, length, 0] {
        segment.extend_from_slice(&field.to_be_bytes());
    }
    segment.extend_from_slice(payload);
    let sum = Sum::default().pseudo_header(from.0, to.0, UDP, segment.len()).bytes(&segment);
    segment[CHECKSUM_AT..HEADER_BYTES].copy_from_slice(&field(sum).to_be_bytes());
    Some(segment)
}

/// Returns the checksum field for a sum. RFC 768: a checksum of 0 is sent as all ones, because 0 means that there is no checksum.
pub(crate) fn field(sum: Sum) -> u16 {
    match sum.checksum() {
        0 => u16::MAX,
        checksum => checksum,
    }
}
