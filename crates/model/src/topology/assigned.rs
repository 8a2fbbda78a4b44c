//! Addresses that a namespace asks for, because siga does not configure its interface: IPv4 addresses by DHCP, and IPv6 addresses by
//! router advertisements.

use super::file::{NetworkEntry, PortEntry};
use super::{Guest, KernelPort, Network};
use crate::error::{Error, Result};
use crate::mac::Mac;
use crate::name::Name;
use ipnet::{IpNet, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

/// What a namespace asks for at its port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assigned {
    /// True if the switch answers DHCP requests. Then siga does not configure IPv4.
    pub dhcp: bool,
    /// True if the switch sends router advertisements. Then siga does not configure IPv6.
    pub advertisements: bool,
    /// The next hops of the port's IPv6 routes.
    pub routers: Vec<AdvertisedRouter>,
}

/// A router that advertisements name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdvertisedRouter {
    /// The Ethernet address of the router.
    pub mac: Mac,
    /// The prefixes to which it has routes.
    pub routes: Vec<Ipv6Net>,
}

impl KernelPort {
    /// Returns true if siga gives the interface addresses and routes of this address's family. Otherwise the namespace asks for them.
    pub fn is_configured(&self, like: IpAddr) -> bool {
        if like.is_ipv4() { !self.assigned.dhcp } else { !self.assigned.advertisements }
    }
}

/// The length of a prefix from which stations make addresses (RFC 4862 5.5.3).
const PREFIX_LENGTH: u8 = 64;
/// The longest routes in a DHCP message (RFC 3442), without the one to the server.
const ROUTES_BYTES_MAX: usize = 255 - 9;

/// Reads what the namespace of a port asks for.
pub(super) fn of(
    network: &NetworkEntry,
    entry: &PortEntry,
    addresses: &[IpNet],
    routes: &[(IpNet, IpAddr)],
) -> Result<Assigned> {
    let dhcp = entry.dhcp.or(network.dhcp).unwrap_or(false);
    let advertisements = entry.router_advertisements.or(network.router_advertisements).unwrap_or(false);
    let (v4, v6): (Vec<IpNet>, Vec<IpNet>) = addresses.iter().partition(|own| own.addr().is_ipv4());
    if dhcp && v4.len() != 1 {
        let message = format!("dhcp = true: the port needs one IPv4 address, but it has {}", v4.len());
        return Err(Error::usage(message).hint("give the port one IPv4 address, or write dhcp = false for the port"));
    }
    let route_bytes = |to: &IpNet| 5 + usize::from(to.prefix_len()).div_ceil(8);
    let bytes: usize = routes.iter().filter(|(to, _)| to.addr().is_ipv4()).map(|(to, _)| route_bytes(to)).sum();
    if dhcp && bytes > ROUTES_BYTES_MAX {
        let message = format!(
            "dhcp = true: the IPv4 routes of the port do not fit into a DHCP message, because they need {bytes} bytes"
        );
        return Err(Error::usage(message)
            .hint(format!("remove routes of the port, until they need at most {ROUTES_BYTES_MAX} bytes")));
    }
    if advertisements && v6.is_empty() {
        return Err(Error::usage("router_advertisements = true: the port needs an IPv6 prefix, but it has none")
            .hint("add a prefix such as \"fd00:3::/64\" to `addresses`, or write router_advertisements = false"));
    }
    let is_prefix = |own: &&IpNet| {
        own.prefix_len() == PREFIX_LENGTH && own.network() == own.addr() && !super::sources::is_link_local(own.addr())
    };
    if let Some(other) = v6.iter().find(|own| advertisements && !is_prefix(own)) {
        let message = format!(
            "router_advertisements = true: `addresses` must contain a prefix of 64 bits, but {other} is not such a prefix"
        );
        let prefix = IpNet::new(other.addr(), PREFIX_LENGTH).map_or(*other, |own| own.trunc());
        return Err(Error::usage(message).hint(format!("write \"{prefix}\"")));
    }
    Ok(Assigned { dhcp, advertisements, routers: Vec::new() })
}

/// Replaces prefixes by the addresses that the namespaces make from them, and finds the routers. All ports have Ethernet addresses.
pub(super) fn complete(networks: &mut BTreeMap<Name, Network>, guests: &BTreeMap<Name, Guest>) -> Result<()> {
    for (name, network) in networks {
        let Some(switch) = &mut network.switch else { continue };
        for port in switch.ports.iter_mut().filter(|port| port.assigned.advertisements) {
            for own in &mut port.addresses {
                if let IpNet::V6(prefix) = own {
                    *own = made(*prefix, port.settings.mac);
                }
            }
        }
        let devices = guests.values().flat_map(|guest| &guest.devices).filter(|device| device.network == *name);
        let devices = devices.filter_map(|device| Some((&device.addresses, device.port.as_ref()?.mac)));
        let ports = switch.ports.iter().map(|port| (&port.addresses, port.settings.mac));
        let of_each = devices.chain(ports).flat_map(|(own, mac)| own.iter().map(move |own| (own.addr(), mac)));
        let macs: BTreeMap<IpAddr, Mac> = of_each.collect();
        for port in switch.ports.iter_mut().filter(|port| port.assigned.advertisements) {
            port.assigned.routers = routers(&port.routes, &macs)
                .map_err(|error| error.at(format!("network {name}, port {}", port.name)))?;
        }
    }
    Ok(())
}

/// Returns the address that a station makes from a prefix and its Ethernet address (RFC 4291, appendix A).
fn made(prefix: Ipv6Net, mac: Mac) -> IpNet {
    let interface = mac.link_local().to_bits() & u128::from(u64::MAX);
    let address = Ipv6Addr::from(prefix.network().to_bits() | interface);
    IpNet::new(address.into(), PREFIX_LENGTH).unwrap_or(IpNet::V6(prefix))
}

fn routers(routes: &[(IpNet, IpAddr)], macs: &BTreeMap<IpAddr, Mac>) -> Result<Vec<AdvertisedRouter>> {
    let mut routers: Vec<AdvertisedRouter> = Vec::new();
    for (to, via) in routes {
        let IpNet::V6(to) = to else { continue };
        let Some(mac) = macs.get(via) else {
            let message = format!("route to {to}: no guest or port of the network has the address {via}");
            return Err(Error::usage(message).hint(
                "as `via`, use an address of a guest or port of this network; or write router_advertisements = false",
            ));
        };
        match routers.iter_mut().find(|router| router.mac == *mac) {
            Some(router) => router.routes.push(to.trunc()),
            None => routers.push(AdvertisedRouter { mac: *mac, routes: vec![to.trunc()] }),
        }
    }
    Ok(routers)
}

#[cfg(test)]
mod tests {
    use crate::topology::Topology;

    const ONE: &str =
        "[guest.one]\ndevice = [{ network = \"lan\", addresses = [\"10.0.3.1/24\", \"fd00:3::1/64\"] }]\n";

    fn parsed(network: &str, port: &str) -> Result<Topology, String> {
        let text = format!(
            "[network.lan]\ntype = \"vswitch\"\n{network}\n[[network.lan.port]]\nname = \"pod\"\n{port}\n{ONE}"
        );
        Topology::parse(&text).map_err(|error| format!("{error} {}", error.way_out().unwrap_or_default()))
    }

    fn ports(topology: &Topology) -> Vec<crate::topology::KernelPort> {
        topology.networks[&"lan".parse().unwrap()].switch.as_ref().unwrap().ports.clone()
    }

    #[test]
    fn a_namespace_that_asks_makes_its_address_from_the_prefix_and_learns_its_routers() {
        let port = "count = 2\naddresses = [\"10.0.3.11/24\", \"fd00:3::/64\"]\n\
            route = [{ to = \"default\", via = \"fd00:3::1\" }, { to = \"fd00:9::7/48\", via = \"fd00:3::1\" }]";
        let topology = parsed("dhcp = true\nrouter_advertisements = true", port).unwrap();
        let ports = ports(&topology);
        let one = topology.guests[&"one".parse().unwrap()].devices[0].port.as_ref().unwrap().mac;
        for (at, port) in ports.iter().enumerate() {
            let [.., d, e, f] = port.settings.mac.0;
            let made = port.addresses[1].to_string();
            assert!(made.starts_with("fd00:3::51:") && made.ends_with("/64"), "{made}");
            let std::net::IpAddr::V6(address) = port.addresses[1].addr() else { panic!("{made}") };
            assert_eq!(address.octets()[11..], [0xff, 0xfe, d, e, f]);
            assert_eq!(port.addresses[0].to_string(), format!("10.0.3.{}/24", 11 + at));
            assert!(port.assigned.dhcp && port.assigned.advertisements);
            let [router] = &port.assigned.routers[..] else { panic!("{:?}", port.assigned) };
            assert_eq!(router.mac, one);
            assert_eq!(router.routes.iter().map(ToString::to_string).collect::<Vec<_>>(), ["::/0", "fd00:9::/48"]);
        }
        assert_ne!(ports[0].addresses[1], ports[1].addresses[1]);
    }

    #[test]
    fn siga_configures_what_the_topology_does_not_let_the_namespace_ask_for() {
        let v4 = "10.0.3.11".parse().unwrap();
        let v6 = "fd00:3::11".parse().unwrap();
        let both = "addresses = [\"10.0.3.11/24\", \"fd00:3::11/64\"]\n";
        for (network, port, configured) in [
            ("", both.to_owned(), (true, true)),
            ("dhcp = true", both.to_owned(), (false, true)),
            ("dhcp = true", format!("{both}dhcp = false"), (true, true)),
            ("", "addresses = [\"fd00:3::/64\"]\nrouter_advertisements = true".to_owned(), (true, false)),
        ] {
            let port = ports(&parsed(network, &port).unwrap()).remove(0);
            assert_eq!((port.is_configured(v4), port.is_configured(v6)), configured, "{network}");
        }
    }

    #[test]
    fn a_port_that_cannot_give_what_is_asked_for_is_refused() {
        let routes: String = (0..40).map(|at| format!("{{ to = \"10.{at}.0.0/16\", via = \"10.0.3.1\" }},")).collect();
        let long = format!("dhcp = true\naddresses = [\"10.0.3.11/24\"]\nroute = [{routes}]");
        for (port, part) in [
            ("dhcp = true", "one IPv4 address, but it has 0"),
            ("dhcp = true\naddresses = [\"10.0.3.11/24\", \"10.0.3.12/24\"]", "one IPv4 address, but it has 2"),
            (&long, "280 bytes"),
            ("router_advertisements = true\naddresses = [\"10.0.3.11/24\"]", "needs an IPv6 prefix"),
            ("router_advertisements = true\naddresses = [\"fd00:3::11/64\"]", "write \"fd00:3::/64\""),
            ("router_advertisements = true\naddresses = [\"fd00:3::/80\"]", "64 bits"),
            ("router_advertisements = true\naddresses = [\"fe80::/64\"]", "64 bits"),
            (
                "router_advertisements = true\naddresses = [\"fd00:3::/64\"]\n\
                 route = [{ to = \"default\", via = \"fd00:3::99\" }]",
                "has the address fd00:3::99",
            ),
        ] {
            let refused = parsed("", port).unwrap_err();
            assert!(refused.contains(part), "{port}: {refused}");
        }
        let other =
            "[network.ring]\ntype = \"hipersockets\"\ndhcp = true\n[guest.one]\ndevice = [{ network = \"ring\" }]\n";
        assert!(Topology::parse(other).unwrap_err().to_string().contains("dhcp"));
    }
}
