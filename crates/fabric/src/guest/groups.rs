//! Multicast of a guest: the choice of the network over which datagrams to multicast groups are sent, and a function that
//! recognises IGMP and MLD messages.

use super::{Node, setup};
use siga_model::error::{Error, Result};
use siga_stack::wire::address::Prefix;
use siga_stack::wire::protocol::{HOP_BY_HOP, IGMP};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The prefixes of all multicast addresses, one for each IP version.
const ALL_V4: (Ipv4Addr, u8) = (Ipv4Addr::new(224, 0, 0, 0), 4);
const ALL_V6: (Ipv6Addr, u8) = (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8);

impl Node {
    /// Adds a route for all multicast groups that have no more specific route. The route leads to the network of the default route,
    /// or to the guest's first network if there is no default route.
    pub(super) fn set_group_routes(&mut self) -> Result<()> {
        for (address, length) in [(ALL_V4.0.into(), ALL_V4.1), (ALL_V6.0.into(), ALL_V6.1)] {
            let address: IpAddr = address;
            let fits = |other: IpAddr| other.is_ipv4() == address.is_ipv4();
            let mut everything =
                self.config.routes.iter().filter(|route| route.to.prefix_len() == 0 && fits(route.via));
            let mut devices = self.config.devices.iter();
            let first = || devices.position(|device| device.addresses.iter().any(|own| fits(own.addr())));
            let place = everything.next().map(|route| route.device).or_else(first);
            if let (Some(place), Some(all)) = (place, Prefix::new(address, length)) {
                let refused =
                    |error| Error::usage(format!("the stack refuses the route to all multicast groups: {error:?}"));
                self.stack.add_route(all, setup::number(self.main_links[place]), None).map_err(refused)?;
            }
        }
        Ok(())
    }
}

/// Returns whether a packet is an IGMP or MLD message. Such a message concerns all members of a network, whatever its destination
/// address is.
#[inline]
pub(super) fn is_group_message(packet: &[u8]) -> bool {
    match packet.first().map(|first| first >> 4) {
        Some(4) => packet.get(9) == Some(&IGMP),
        // The ICMPv6 type follows the IPv6 header and the hop-by-hop header with the router alert option. These types are the
        // queries and reports of MLD.
        Some(6) => packet.get(6) == Some(&HOP_BY_HOP) && matches!(packet.get(48), Some(130..=132 | 143)),
        _ => false,
    }
}
