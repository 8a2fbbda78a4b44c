//! Source addresses: computes which source addresses a guest may use in packets to its partners on a network.
//!
//! A guest may use its own addresses. A router may also use every address that its routes reach through *another* network than the
//! one it shares with the partner. This is the reverse-path check of RFC 3704, computed from the sender's routes. A router may not
//! use the address of another guest on the shared network, nor a link-local address of another device.

use super::{Device, Topology};
use crate::name::Name;
use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The prefixes against which a receiver checks a partner's source addresses. The longest prefix that contains an address
/// decides. An address in no prefix is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SourceList {
    /// Prefixes whose addresses the partner may use.
    pub admitted: Vec<IpNet>,
    /// Prefixes inside the admitted ones whose addresses the partner may not use.
    pub refused: Vec<IpNet>,
}

impl SourceList {
    /// Returns the number of prefixes.
    pub fn len(&self) -> usize {
        self.admitted.len() + self.refused.len()
    }

    /// Returns true if every address is refused.
    pub fn is_empty(&self) -> bool {
        self.admitted.is_empty()
    }
}

/// Returns the source addresses that `guest` may use through `device`.
pub fn of(topology: &Topology, guest: &Name, device: &Device) -> SourceList {
    let Some(sender) = topology.guests.get(guest) else { return SourceList::default() };
    let mut rules = Rules::default();
    if sender.forwarding {
        rules.routed(topology, guest, device);
    }
    for other in &sender.devices {
        for own in other.addresses.iter().map(|own| own.addr()) {
            if !is_link_local(own) || other.name == device.name {
                rules.0.insert(key(IpNet::from(own)), true);
            }
        }
    }
    rules.shortest()
}

/// Maps each prefix to whether it is admitted. A key is a prefix's first address and length, so outer prefixes sort before inner ones.
#[derive(Debug, Default)]
struct Rules(BTreeMap<(IpAddr, u8), bool>);

fn key(net: IpNet) -> (IpAddr, u8) {
    (net.trunc().addr(), net.prefix_len())
}

impl Rules {
    /// Adds the source addresses that a router may forward: those that it reaches through another network to which it may couple.
    fn routed(&mut self, topology: &Topology, guest: &Name, shared: &Device) {
        let sender = &topology.guests[guest];
        let leads_elsewhere =
            |device: &Device| device.network != shared.network && topology.admits(&device.network, guest);
        let routes = sender.routes.iter().map(|route| (route.to, &sender.devices[route.device]));
        let networks = sender.devices.iter().flat_map(|own| own.addresses.iter().map(move |net| (*net, own)));
        for (to, device) in routes.chain(networks) {
            if !is_link_local(to.addr()) && !to.addr().is_multicast() {
                // If two routes lead to one prefix, packets from it can arrive through either.
                *self.0.entry(key(to)).or_default() |= leads_elsewhere(device);
            }
        }
        for device in &sender.devices {
            let partners = topology.on(&device.network).filter(|(partner, _, _)| *partner != guest);
            let ports = topology.networks[&device.network].switch.iter().flat_map(|switch| &switch.ports);
            let hosts = partners.flat_map(|(_, _, partner)| &partner.addresses);
            for host in hosts.chain(ports.flat_map(|port| &port.addresses)).map(|own| own.addr()) {
                if !is_link_local(host) {
                    self.0.insert(key(IpNet::from(host)), leads_elsewhere(device));
                }
            }
        }
        for (address, length) in LINK_LOCAL {
            self.0.insert((address, length), false);
        }
    }

    /// Returns the rules without those that decide the same as the smallest prefix around them.
    fn shortest(&self) -> SourceList {
        let mut list = SourceList::default();
        let mut around: Vec<(IpNet, bool)> = Vec::new();
        for ((address, length), is_in) in &self.0 {
            let Ok(prefix) = IpNet::new(*address, *length) else { continue };
            while around.pop_if(|(outer, _)| !outer.contains(address)).is_some() {}
            if around.last().is_some_and(|(_, outer)| *outer) != *is_in {
                let side = if *is_in { &mut list.admitted } else { &mut list.refused };
                side.push(prefix);
            }
            around.push((prefix, *is_in));
        }
        list
    }
}

const LINK_LOCAL: [(IpAddr, u8); 2] =
    [(IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16), (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10)];

pub(super) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Client, router and server as in Figure 1 of z/VM's reports. The server's network has two more guests: an ordinary one, and a
    /// router to a distant network.
    const TOPOLOGY: &str = r#"
[network.link]
type = "vctc"
[network.lan]
type = "hipersockets"
access = "restricted"
grant = ["router", "server", "other", "gate"]
[network.far]
type = "hipersockets"
[guest.client]
device = [{ network = "link", addresses = ["10.0.1.1/24", "fd00:1::1/64", "fe80::1/64"] }]
route = [{ to = "default", via = "10.0.1.2" }]
[guest.router]
forwarding = true
device = [
    { network = "link", addresses = ["10.0.1.2/24", "fd00:1::2/64", "fe80::2/64"] },
    { network = "lan", addresses = ["10.0.2.1/24", "fd00:2::1/64", "fe80::3/64"] },
]
route = [{ to = "10.9.0.0/16", via = "10.0.2.9" }, { to = "::/0", via = "fd00:1::1" }]
[guest.server]
device = [{ network = "lan", addresses = ["10.0.2.2/24", "fd00:2::2/64"] }]
route = [{ to = "default", via = "10.0.2.1" }]
[guest.other]
device = [{ network = "lan", addresses = ["10.0.2.3/24", "fd00:5::3/64"] }]
[guest.gate]
forwarding = true
device = [
    { network = "lan", addresses = ["10.0.2.9/24"] },
    { network = "far", addresses = ["10.9.0.1/16"] },
]
route = [{ to = "0.0.0.0/0", via = "10.9.0.2" }, { to = "10.0.1.0/24", via = "10.0.2.1" }]
"#;

    fn list(topology: &Topology, guest: &str, network: &str) -> SourceList {
        let guest: Name = guest.parse().unwrap();
        let device = topology.guests[&guest].devices.iter().find(|device| device.network.as_str() == network);
        of(topology, &guest, device.unwrap())
    }

    fn admits(list: &SourceList, from: &str) -> bool {
        // The longest prefix that contains the address decides, as in the stack's filter.
        let from: IpAddr = from.parse().unwrap();
        let rules = list.admitted.iter().map(|net| (net, true)).chain(list.refused.iter().map(|net| (net, false)));
        rules
            .filter(|(net, _)| net.contains(&from))
            .max_by_key(|(net, _)| net.prefix_len())
            .is_some_and(|(_, is_in)| is_in)
    }

    #[test]
    fn a_guest_that_does_not_forward_sends_from_its_own_addresses() {
        let topology = Topology::parse(TOPOLOGY).unwrap();
        let client = list(&topology, "client", "link");
        assert!(client.refused.is_empty());
        assert!(["10.0.1.1", "fd00:1::1", "fe80::1"].into_iter().all(|own| admits(&client, own)));
        assert!(!["10.0.1.2", "10.0.1.3", "fd00:1::3", "fe80::9", "8.8.8.8"].into_iter().any(|it| admits(&client, it)));
    }

    #[test]
    fn a_router_sends_what_its_routes_lead_to_through_another_network_and_nothing_else() {
        let topology = Topology::parse(TOPOLOGY).unwrap();
        let to_server = list(&topology, "router", "lan");
        // Admitted: the router's own addresses, addresses behind the link, and other IPv6 addresses, because the IPv6 default
        // route leads over the link.
        for from in ["10.0.2.1", "10.0.1.2", "10.0.1.1", "10.0.1.99", "fd00:1::1", "2001:db8::1", "fe80::3"] {
            assert!(admits(&to_server, from), "{from}");
        }
        // Refused: every address of partners on the server's network, addresses behind such a partner, other link-local
        // addresses, and addresses without a route.
        for from in ["10.0.2.3", "10.0.2.77", "fd00:2::2", "fd00:5::3", "10.9.0.2", "fe80::2", "fe80::7", "8.8.8.8"] {
            assert!(!admits(&to_server, from), "{from}");
        }
        let to_client = list(&topology, "router", "link");
        for (from, admitted) in [
            ("10.0.2.2", true),
            ("10.0.2.3", true),
            ("10.9.0.2", true),
            ("fd00:5::3", true),
            ("fe80::2", true),
            ("10.0.1.1", false),
            ("10.0.1.77", false),
            ("2001:db8::1", false),
            ("fe80::3", false),
        ] {
            assert_eq!(admits(&to_client, from), admitted, "{from}");
        }
    }

    #[test]
    fn a_default_route_to_elsewhere_leaves_out_the_shared_network_and_what_is_behind_its_partners() {
        let topology = Topology::parse(TOPOLOGY).unwrap();
        let gate = list(&topology, "gate", "lan");
        assert!(["10.0.2.9", "10.9.0.1", "10.9.4.4", "8.8.8.8", "172.16.0.1"].into_iter().all(|it| admits(&gate, it)));
        for from in ["10.0.2.1", "10.0.2.2", "10.0.2.200", "10.0.1.1", "169.254.1.1", "fd00:1::1"] {
            assert!(!admits(&gate, from), "{from}");
        }
        assert_eq!(gate.refused.len(), 3, "what an outer prefix says is not said again: {gate:?}");
    }

    #[test]
    fn a_network_that_a_router_may_not_couple_to_lends_it_no_sources() {
        let mut topology = Topology::parse(TOPOLOGY).unwrap();
        let lan = topology.networks.get_mut(&"lan".parse().unwrap()).unwrap();
        let super::super::Access::Restricted(granted) = &mut lan.access else { panic!("not restricted") };
        granted.remove(&"router".parse::<Name>().unwrap());
        let to_client = list(&topology, "router", "link");
        assert!(!admits(&to_client, "10.0.2.2") && !admits(&to_client, "10.9.0.2"));
        assert!(admits(&to_client, "10.0.2.1"), "its own address is still nobody else's");
    }
}
