//! Ethernet addresses and the size of the Ethernet header.

use smoltcp::wire::ETHERNET_HEADER_LEN;

/// Room in front of every packet of our own for the link's header.
pub(crate) const LINK_BYTES: usize = ETHERNET_HEADER_LEN;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// That of every station.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// True for broadcast and multicast.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}
