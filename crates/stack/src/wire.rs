//! Wire formats: one file for each protocol, which parses received messages and builds messages to send. `smoltcp::wire` reads
//! and writes most headers. Nothing in this module keeps state.

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
