//! The trip of a packet through a topology: from one guest to another, over the routers and switches in between, as the routes say.

use super::{Device, Guest, Topology};
use crate::allow::{Protocol, Rule};
use crate::error::{Error, Result};
use crate::name::Name;
use std::net::IpAddr;

/// The first and the last port that a system may choose for a server that asks for any.
const FREE_PORTS: (u16, u16) = (1_024, 65_535);

/// Maximum number of routers on a trip. A longer one is a loop.
const ROUTERS_MAX: usize = 64;

/// What lies between two guests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trip {
    /// The address with which the first guest sends.
    pub from: IpAddr,
    /// The address of the destination.
    pub to: IpAddr,
    /// The routers, in the order of the trip.
    pub routers: Vec<Name>,
    /// The networks, in the order of the trip. A network with a switch has a switch process of the same name.
    pub networks: Vec<Name>,
    /// The size of the largest IP packet that all devices of the trip send.
    pub mtu: u16,
}

impl Topology {
    /// Finds the trip from a guest to another guest, and checks the trip back.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if a guest does not exist, or if packets to each of the destination's addresses of the family, or
    /// the packets back, get lost. The error names the guest at which they do.
    pub fn trip(&self, from: &Name, to: &Name, ipv6: bool) -> Result<Trip> {
        let (_, destination) = (self.guest(from)?, self.guest(to)?);
        if from == to {
            return Err(Error::usage(format!("client and server are the same guest, {from}"))
                .hint("name two guests of the topology"));
        }
        let addresses: Vec<IpAddr> = addresses(destination, ipv6).collect();
        let family = if ipv6 { "IPv6" } else { "IPv4" };
        let mut first = None;
        for address in addresses {
            let found = self.walk(from, to, address).and_then(|(trip, source)| {
                let back =
                    self.walk(to, from, source).map_err(|error| error.at(format!("the way back to {source}")))?;
                Ok(Trip { from: source, mtu: trip.mtu.min(back.0.mtu), ..trip })
            });
            match found {
                Ok(trip) => return Ok(trip),
                Err(error) => first = first.or(Some(error)),
            }
        }
        let none = || Error::usage(format!("guest {to} has no {family} address"));
        let reason = first.unwrap_or_else(none);
        Err(Error::usage(format!("guest {from} cannot reach guest {to} over {family}: {}", reason.message()))
            .hint("add the missing addresses and routes to the topology, or name other guests"))
    }

    /// Checks that the rules of the destination (`allow`) let the first guest of a trip open a port there. `None` is any port that is
    /// free.
    ///
    /// # Errors
    /// Returns an error of kind `Usage` if no rule allows it.
    pub fn may_open(&self, trip: &Trip, to: &Name, protocol: Protocol, port: Option<u16>) -> Result<()> {
        let (Some(allow), Some(network)) = (&self.guest(to)?.allow, trip.networks.last()) else { return Ok(()) };
        let may = |port: u16| allow.rules().iter().any(|rule| rule.allows(protocol, port, trip.from, network));
        let (is_open, what) = match port {
            Some(port) => (may(port), format!("port {port}")),
            // One rule has to allow every port that the system may choose.
            None => {
                let is_wide = |rule: &&Rule| {
                    rule.ports
                        .as_ref()
                        .is_none_or(|ports| *ports.start() <= FREE_PORTS.0 && *ports.end() >= FREE_PORTS.1)
                };
                let rules = allow.rules().iter().filter(is_wide);
                let mut wide = rules.filter(|rule| rule.allows(protocol, FREE_PORTS.1, trip.from, network));
                (wide.next().is_some(), "any port that is free".to_owned())
            }
        };
        if is_open {
            return Ok(());
        }
        let rules = allow.rules().iter().map(|rule| format!("`{rule}`")).collect::<Vec<_>>().join(", ");
        let rules = if rules.is_empty() { "nothing".to_owned() } else { rules };
        let name = if protocol == Protocol::Udp { "udp" } else { "tcp" };
        Err(Error::usage(format!(
            "the rules of guest {to} (allow: {rules}) do not let {} open {what} of {name} over network {network}",
            trip.from
        ))
        .hint(format!("add a rule such as `{name} from {network}`, or choose an allowed port with --port")))
    }

    fn guest(&self, name: &Name) -> Result<&Guest> {
        self.guests.get(name).filter(|guest| !guest.is_switch).ok_or_else(|| {
            let known = self.guests.iter().filter(|(_, guest)| !guest.is_switch).map(|(name, _)| name.as_str());
            Error::usage(format!("the topology has no guest {name}"))
                .hint(format!("name one of its guests: {}", known.collect::<Vec<_>>().join(", ")))
        })
    }

    /// Follows the routes from a guest to an address of another guest. Also returns the address with which the first guest sends.
    fn walk(&self, from: &Name, to: &Name, address: IpAddr) -> Result<(Trip, IpAddr)> {
        let mut trip = Trip { from: address, to: address, routers: Vec::new(), networks: Vec::new(), mtu: u16::MAX };
        let (mut here, mut source) = (from, None);
        loop {
            let guest = self.guest(here)?;
            let (device, next) =
                hop(guest, address).ok_or_else(|| Error::usage(format!("guest {here} has no route to {address}")))?;
            let network = &device.network;
            trip.networks.push(network.clone());
            trip.mtu = trip.mtu.min(device.mtu);
            let there = self.on(network).find(|(_, _, device)| has(device, next));
            let (there, _, _) = there.ok_or_else(|| {
                Error::usage(format!(
                    "guest {here} sends packets for {address} to {next}, which no guest of {network} has"
                ))
            })?;
            for guest in [here, there] {
                if !self.admits(network, guest) {
                    return Err(Error::usage(format!("network {network} does not grant access to guest {guest}")));
                }
            }
            let own = device.addresses.iter().map(ipnet::IpNet::addr).find(|own| own.is_ipv6() == address.is_ipv6());
            source = source.or(own);
            if there == to {
                let source = source.ok_or_else(|| {
                    Error::usage(format!("guest {from} has no address on network {}", trip.networks[0]))
                })?;
                return Ok((trip, source));
            }
            if !self.guests.get(there).is_some_and(|guest| guest.forwarding) {
                return Err(Error::usage(format!("guest {there} does not forward packets (forwarding = true)")));
            }
            if trip.routers.len() == ROUTERS_MAX || trip.routers.contains(there) {
                return Err(Error::usage(format!("the routes lead in a circle through guest {there}")));
            }
            trip.routers.push(there.clone());
            here = there;
        }
    }
}

fn addresses(guest: &Guest, ipv6: bool) -> impl Iterator<Item = IpAddr> {
    let all = guest.devices.iter().flat_map(|device| &device.addresses);
    all.map(ipnet::IpNet::addr).filter(move |address| address.is_ipv6() == ipv6)
}

fn has(device: &Device, address: IpAddr) -> bool {
    device.addresses.iter().any(|own| own.addr() == address)
}

/// Returns the device through which a guest sends packets to an address, and the next hop: the longest prefix decides, and a network of
/// the guest's own addresses comes before a route of the same length.
fn hop(guest: &Guest, to: IpAddr) -> Option<(&Device, IpAddr)> {
    let own = guest.devices.iter().flat_map(|device| device.addresses.iter().map(move |net| (net, device, to)));
    let routes = guest.routes.iter().filter_map(|route| Some((&route.to, guest.devices.get(route.device)?, route.via)));
    // `max_by_key` returns the last of equal entries.
    let all = routes.chain(own).filter(|(net, _, _)| net.contains(&to));
    all.max_by_key(|(net, _, _)| net.prefix_len()).map(|(_, device, next)| (device, next))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn guest(name: &str, more: &str, devices: &[(&str, &str)], routes: &[(&str, &str)]) -> String {
        let mut text = format!("[guest.{name}]\n{more}\n");
        for (network, address) in devices {
            text += &format!("[[guest.{name}.device]]\nnetwork = \"{network}\"\naddresses = [\"{address}\"]\n");
        }
        for (to, via) in routes {
            text += &format!("[[guest.{name}.route]]\nto = \"{to}\"\nvia = \"{via}\"\n");
        }
        text
    }

    /// Returns a client, two routers and a server, with a switch between the routers.
    fn topology(change: impl Fn(&str) -> String) -> Topology {
        let networks = "[network.a]\ntype = \"vctc\"\n[network.b]\ntype = \"vswitch\"\nmtu = 1500\n[network.c]\ntype = \"hipersockets\"\n";
        let guests = [
            guest("client", "", &[("a", "10.0.1.1/24")], &[("default", "10.0.1.2")]),
            guest(
                "r1",
                "forwarding = true",
                &[("a", "10.0.1.2/24"), ("b", "10.0.2.1/24")],
                &[("10.0.3.0/24", "10.0.2.2")],
            ),
            guest(
                "r2",
                "forwarding = true",
                &[("b", "10.0.2.2/24"), ("c", "10.0.3.1/24")],
                &[("10.0.1.0/24", "10.0.2.1")],
            ),
            guest("server", "", &[("c", "10.0.3.2/24")], &[("default", "10.0.3.1")]),
            guest("apart", "", &[("c", "10.0.9.1/24")], &[]),
        ];
        Topology::parse(&change(&format!("{networks}{}", guests.concat()))).unwrap()
    }

    fn trip(topology: &Topology, from: &str, to: &str) -> Result<Trip> {
        topology.trip(&from.parse().unwrap(), &to.parse().unwrap(), false)
    }

    #[test]
    fn a_trip_names_the_routers_and_networks_in_between() {
        let all = topology(str::to_owned);
        let found = trip(&all, "client", "server").unwrap();
        let names = |names: &[Name]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(
            (names(&found.routers), names(&found.networks)),
            (vec!["r1".into(), "r2".into()], vec!["a".into(), "b".into(), "c".into()])
        );
        assert_eq!((found.to.to_string(), found.mtu), ("10.0.3.2".to_owned(), 1_500));
        let near = trip(&all, "r2", "server").unwrap();
        assert!(near.routers.is_empty() && names(&near.networks) == ["c"]);
    }

    #[test]
    fn the_rules_of_the_server_decide_what_the_client_may_open() {
        for (rules, port, protocol, is_open) in [
            (None, None, Protocol::Tcp, true),
            (Some(r#""tcp 443 from c""#), Some(443), Protocol::Tcp, true),
            (Some(r#""tcp 443 from c""#), Some(444), Protocol::Tcp, false),
            (Some(r#""tcp 443 from c""#), Some(443), Protocol::Udp, false),
            (Some(r#""tcp 443 from c""#), None, Protocol::Tcp, false),
            (Some(r#""udp from 10.0.1.0/24""#), None, Protocol::Udp, true),
            (Some(r#""udp from 10.0.3.0/24""#), None, Protocol::Udp, false),
            (Some(r#""tcp 1024-65535", "icmp""#), None, Protocol::Tcp, true),
            (Some(r#""tcp 1025-65535""#), None, Protocol::Tcp, false),
            (Some(""), Some(443), Protocol::Tcp, false),
        ] {
            let more = rules.map(|rules| format!("[guest.server]\nallow = [{rules}]\n")).unwrap_or_default();
            let topology =
                topology(
                    |text| {
                        if more.is_empty() { text.to_owned() } else { text.replace("[guest.server]\n", &more) }
                    },
                );
            let found = trip(&topology, "client", "server").unwrap();
            assert_eq!(found.from.to_string(), "10.0.1.1");
            let opened = topology.may_open(&found, &"server".parse().unwrap(), protocol, port);
            assert_eq!(opened.is_ok(), is_open, "{rules:?} {port:?}: {opened:?}");
            if let Err(error) = opened {
                assert!(error.to_string().contains("over network c") && error.exit_status() == 2, "{error}");
            }
        }
    }

    #[test]
    fn guests_that_cannot_reach_each_other_are_refused_with_the_place_and_a_hint() {
        let cut = |from: &'static str, to: &'static str| topology(move |text| text.replacen(from, to, 1));
        for (topology, to, part) in [
            (topology(str::to_owned), "absent", "has no guest absent"),
            (topology(str::to_owned), "client", "client and server are the same guest"),
            (topology(str::to_owned), "b", "has no guest b"),
            (topology(str::to_owned), "apart", "guest r1 has no route to 10.0.9.1"),
            (cut("forwarding = true", "forwarding = false"), "server", "guest r1 does not forward packets"),
            (
                cut("to = \"10.0.1.0/24\"", "to = \"10.0.7.0/24\""),
                "server",
                "the way back to 10.0.1.1: guest r2 has no route",
            ),
            (cut("via = \"10.0.2.2\"", "via = \"10.0.2.9\""), "server", "to 10.0.2.9, which no guest of b has"),
            (
                cut("via = \"10.0.3.1\"", "via = \"10.0.3.9\""),
                "server",
                "the way back to 10.0.1.1: guest server sends packets for 10.0.1.1 to 10.0.3.9",
            ),
        ] {
            let error = trip(&topology, "client", to).unwrap_err();
            assert!(error.exit_status() == 2 && error.to_string().contains(part), "{to}: {error}");
            assert!(error.to_string().contains('\n'), "{error} has no hint");
        }
        let circle =
            topology(|text| text.replace("\"10.0.3.0/24\"", "\"default\"").replace("\"10.0.1.0/24\"", "\"default\""));
        let error = trip(&circle, "client", "apart").unwrap_err();
        assert!(error.message().contains("the routes lead in a circle through guest r1"), "{error}");
        assert!(topology(str::to_owned).trip(&"client".parse().unwrap(), &"server".parse().unwrap(), true).is_err());
    }
}
