//! IP addresses: prefixes, and the ranges with a meaning of their own.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// An address and the number of its leading bits that count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// The prefix, if the address has that many bits. The bits behind the length are kept, so that `10.1.2.3/24` can also be an
    /// address of a device.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some(Self { address, length })
    }

    /// The address as it was given.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// The number of bits that count.
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

/// True for sources that no packet may have (RFC 1812 5.3.7): network 0, loopback, groups, reserved addresses, the limited
/// broadcast address.
pub(crate) fn is_martian_source(from: Ipv4Addr) -> bool {
    is_martian_destination(from) || from.octets()[0] >= 224
}

/// True for addresses that no packet on a link may go to.
pub(crate) fn is_martian_destination(to: Ipv4Addr) -> bool {
    matches!(to.octets()[0], 0 | 127 | 240..)
}

/// True for IPv4-mapped addresses: a notation that must not appear on a link.
pub(crate) fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

/// The group of every IPv4 host; membership is never reported (RFC 1112 4).
pub(crate) const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// The group of every IPv6 node (RFC 4291 2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The group of the IPv6 routers on a link (RFC 4291 2.7.1).
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// Groups of this scope, and of the reserved scope below it, end in the node (RFC 4291 2.7).
pub(crate) const NODE_SCOPE: u8 = 1;

/// How far an IPv6 group reaches.
pub(crate) fn scope(group: Ipv6Addr) -> u8 {
    group.octets()[1] & 15
}

/// True for groups of a scope that no group may have (RFC 4291 2.7).
pub(crate) fn is_reserved(to: IpAddr) -> bool {
    matches!(to, IpAddr::V6(to) if to.is_multicast() && scope(to) < NODE_SCOPE)
}

/// The group that the owner of an address joins, to be asked for its link address (RFC 4291 2.7.1).
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., high, middle, low] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(high), u16::from_be_bytes([middle, low]))
}
