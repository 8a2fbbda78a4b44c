//! Ethernet addresses, and the size of the Ethernet header.

use smoltcp::wire::ETHERNET_HEADER_LEN;
use std::net::IpAddr;

/// Number of free bytes before each packet to send, in which the link header is written.
pub(crate) const LINK_BYTES: usize = ETHERNET_HEADER_LEN;
/// The Ethernet types of IPv4 and IPv6.
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;

/// An Ethernet address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MacAddress(pub [u8; 6]);

impl MacAddress {
    /// The broadcast address.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Returns true for the broadcast address and for multicast addresses.
    pub fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// Returns the Ethernet address of an IP multicast group (RFC 1112 6.4, RFC 2464 7) or of the IPv4 broadcast address, else
    /// `None`.
    pub(crate) fn of_group(to: IpAddr) -> Option<Self> {
        match to {
            IpAddr::V4(to) if to.is_broadcast() => Some(Self::BROADCAST),
            IpAddr::V4(to) if to.is_multicast() => {
                let [_, high, middle, low] = to.octets();
                Some(Self([1, 0, 0x5e, high & 0x7f, middle, low]))
            }
            IpAddr::V6(to) if to.is_multicast() => {
                let [.., w, x, y, z] = to.octets();
                Some(Self([0x33, 0x33, w, x, y, z]))
            }
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }
}
