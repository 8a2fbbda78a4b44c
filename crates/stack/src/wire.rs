//! Wire formats: one file a protocol, with what is parsed and what is built. `smoltcp::wire` reads and writes the bytes of the
//! formats that it has. Nothing here keeps state.

pub mod address;
pub(crate) mod arp;
pub(crate) mod checksum;
pub mod ethernet;
pub mod icmp;
pub(crate) mod igmp;
pub(crate) mod ipv4;
pub(crate) mod ipv6;
pub(crate) mod membership;
pub(crate) mod mld;
pub(crate) mod nd;
pub mod protocol;
pub mod tcp;
pub(crate) mod udp;

use std::ops::Range;

/// The number in a field of a header; `None` if the header ends before.
pub(crate) fn u16_at(header: &[u8], field: Range<usize>) -> Option<u16> {
    header.get(field)?.try_into().ok().map(u16::from_be_bytes)
}

/// Like [`u16_at`], for a field of four bytes.
pub(crate) fn u32_at(header: &[u8], field: Range<usize>) -> Option<u32> {
    header.get(field)?.try_into().ok().map(u32::from_be_bytes)
}
