//! IP addresses: prefixes, and the ranges with a meaning of their own.

use std::net::IpAddr;

/// An address and how many of its leading bits count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The prefix, if the address has that many bits. The bits behind the length are kept: `10.1.2.3/24` is also how an
    /// address on a device is told.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some(Self { address, length })
    }

    /// The address as it was given.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// How many bits count.
    pub fn length(self) -> u8 {
        self.length
    }

    /// True if the address shares the bits that count.
    pub fn covers(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(u32::from(32 - self.length)).unwrap_or(0) == 0
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                let differing = own.to_bits() ^ other.to_bits();
                differing.checked_shr(u32::from(128 - self.length)).unwrap_or(0) == 0
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
        }
    }
}

/// True if an address is valid on one link only.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}
