//! The UDP header (RFC 768).

use super::checksum::Sum;
use super::protocol::UDP;
use super::u16_at;
use std::net::SocketAddr;

pub(crate) const HEADER_BYTES: usize = field::CHECKSUM.end;

/// Offsets of the fields of the header.
pub(crate) mod field {
    use std::ops::Range;

    pub(crate) const SOURCE_PORT: Range<usize> = 0..2;
    pub(crate) const DESTINATION_PORT: Range<usize> = 2..4;
    pub(crate) const LENGTH: Range<usize> = 4..6;
    pub(crate) const CHECKSUM: Range<usize> = 6..8;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UdpHeader {
    pub(crate) source_port: u16,
    pub(crate) destination_port: u16,
    /// Length of the datagram in bytes, header included.
    pub(crate) length: u16,
    /// The checksum; 0 if the sender computed no checksum.
    pub(crate) checksum: u16,
}

impl UdpHeader {
    pub(crate) fn parse(segment: &[u8]) -> Option<Self> {
        Some(Self {
            source_port: u16_at(segment, field::SOURCE_PORT)?,
            destination_port: u16_at(segment, field::DESTINATION_PORT)?,
            length: u16_at(segment, field::LENGTH)?,
            checksum: u16_at(segment, field::CHECKSUM)?,
        })
    }
}

/// Builds a datagram with its checksum. Returns `None` if the payload is too long for one datagram.
pub(crate) fn datagram(from: SocketAddr, to: SocketAddr, payload: &[u8]) -> Option<Vec<u8>> {
    let length = u16::try_from(HEADER_BYTES + payload.len()).ok()?;
    let mut segment = [from.port(), to.port(), length, 0].map(u16::to_be_bytes).concat();
    segment.extend_from_slice(payload);
    let sum = Sum::default().pseudo_header(from.ip(), to.ip(), UDP, segment.len()).bytes(&segment);
    segment[field::CHECKSUM].copy_from_slice(&checksum(sum).to_be_bytes());
    Some(segment)
}

/// Returns the checksum field for a sum. RFC 768: the checksum 0 is sent as 0xffff, because 0 in the field means “no checksum”.
pub(crate) fn checksum(sum: Sum) -> u16 {
    match sum.checksum() {
        0 => u16::MAX,
        checksum => checksum,
    }
}
