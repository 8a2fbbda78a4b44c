//! Wire formats. Each protocol has one file, which parses received headers and messages and builds those to send. Where
//! `smoltcp::wire` has a format, it reads and writes the bytes. Nothing in this module keeps state.

pub mod address;
pub(crate) mod arp;
pub(crate) mod checksum;
pub(crate) mod dhcp;
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

/// Returns the 16-bit number in a field of a header, or `None` if the header ends before the end of the field.
pub(crate) fn u16_at(header: &[u8], field: Range<usize>) -> Option<u16> {
    header.get(field)?.try_into().ok().map(u16::from_be_bytes)
}

/// Returns the 32-bit number in a field of a header, or `None` if the header ends before the end of the field.
pub(crate) fn u32_at(header: &[u8], field: Range<usize>) -> Option<u32> {
    header.get(field)?.try_into().ok().map(u32::from_be_bytes)
}
