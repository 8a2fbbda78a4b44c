//! Wire formats: one file a protocol, with what is parsed and what is built. The bytes themselves are read and written by
//! `smoltcp::wire`; nothing here keeps state.

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
