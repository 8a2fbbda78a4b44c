//! IP addresses: prefixes, and address ranges with a special meaning.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network prefix: an address, which may have host bits, and the prefix length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    length: u8,
}

impl Prefix {
    /// Returns the prefix, or `None` if `length` is greater than the address length in bits. The prefix keeps the host bits of
    /// `address`. So the prefix `10.1.2.3/24` can also be the address of a device together with its network.
    pub fn new(address: IpAddr, length: u8) -> Option<Self> {
        (length <= if address.is_ipv4() { 32 } else { 128 }).then_some(Self { address, length })
    }

    /// Returns the address as given to [`Prefix::new`], with its host bits.
    pub fn address(self) -> IpAddr {
        self.address
    }

    /// Returns the prefix length in bits.
    pub fn length(self) -> u8 {
        self.length
    }

    /// Returns true if the address lies in this prefix.
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

/// Returns true for link-local unicast addresses.
pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

/// Returns true for source addresses that no packet may have (RFC 1812 5.3.7): network 0, loopback, multicast and reserved
/// addresses, and the limited broadcast address.
pub(crate) fn is_martian_source(from: Ipv4Addr) -> bool {
    is_martian_destination(from) || from.octets()[0] >= 224
}

/// Returns true for destination addresses that no packet on a link may have.
pub(crate) fn is_martian_destination(to: Ipv4Addr) -> bool {
    matches!(to.octets()[0], 0 | 127 | 240..)
}

/// Returns true for IPv4-mapped IPv6 addresses. No packet on a link may contain such an address.
pub(crate) fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

/// The multicast group of all IPv4 hosts. A host never reports its membership in this group (RFC 1112 4).
pub(crate) const ALL_SYSTEMS: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);
/// The multicast group of all IPv6 nodes (RFC 4291 2.7.1).
pub(crate) const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
/// The multicast group of all IPv6 routers on a link (RFC 4291 2.7.1).
pub(crate) const ALL_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);
/// The multicast group of all IPv6 routers of a site (RFC 4291 2.7.1).
pub(crate) const ALL_SITE_ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff05, 0, 0, 0, 0, 0, 0, 2);

/// The interface-local scope. Packets to groups of this scope or of the reserved scope 0 never leave the node (RFC 4291 2.7).
pub(crate) const NODE_SCOPE: u8 = 1;

/// Returns the scope field of an IPv6 multicast group.
pub(crate) fn scope(group: Ipv6Addr) -> u8 {
    group.octets()[1] & 15
}

/// Returns true for a multicast group whose scope is the reserved scope 0 (RFC 4291 2.7).
pub(crate) fn is_reserved(to: IpAddr) -> bool {
    matches!(to, IpAddr::V6(to) if to.is_multicast() && scope(to) < NODE_SCOPE)
}

/// Returns the solicited-node multicast group of an address. The owner of the address joins this group to receive neighbour
/// solicitations (RFC 4291 2.7.1).
pub(crate) fn solicited_node(address: Ipv6Addr) -> Ipv6Addr {
    let [.., high, middle, low] = address.octets();
    Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00 | u16::from(high), u16::from_be_bytes([middle, low]))
}
