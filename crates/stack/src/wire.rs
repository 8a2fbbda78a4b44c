//! Wire formats: one file a protocol, with what is parsed and what is built. The bytes themselves are read and written by
//! `smoltcp::wire`; nothing here keeps state.

pub mod address;
pub(crate) mod checksum;
pub mod ethernet;
pub(crate) mod ipv4;
pub(crate) mod ipv6;
pub mod tcp;
