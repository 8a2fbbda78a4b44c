//! The network between two existing places: the address of the server to which the client connects, and the settings of both
//! ends. siga only reads these settings.

use crate::agent::protocol::{Answer, Order};
use crate::channel::ChildProcess;
use crate::limits;
use crate::path::route::RouteTo;
use crate::socket::Endpoint;
use siga_model::error::{Error, Result};
use siga_plan::place::Place;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The network between two existing places.
#[derive(Debug, Clone)]
pub(super) struct Existing {
    /// The address to which the client connects.
    pub(super) server_address: IpAddr,
    /// The settings of the interfaces through which client and server send, by label, for example `client/eth0`.
    pub(super) interfaces: BTreeMap<String, String>,
    /// The sysctls of both ends, by end and name.
    pub(super) sysctls: Sysctls,
}

impl Existing {
    /// Returns the names of the interfaces whose labels begin with `end`.
    pub(super) fn names(&self, end: &str) -> Vec<String> {
        self.interfaces.keys().filter_map(|label| label.strip_prefix(end)).map(str::to_owned).collect()
    }
}

/// One end of the network: its agent, its place, and the addresses that its place has.
pub(super) struct End<'a> {
    pub(super) agent: &'a mut ChildProcess,
    pub(super) place: &'a Place,
    pub(super) addresses: &'a [IpAddr],
}

/// The sysctls of an end, by name.
type Sysctls = BTreeMap<String, String>;

/// How the server's address is chosen.
#[derive(Debug, Clone, Copy)]
pub(super) enum Choice {
    /// The user named the address.
    Given(IpAddr),
    /// Client and server share a network namespace, so they use the loopback address. True for IPv6.
    Loopback(bool),
    /// The routes of both places decide. True for IPv6.
    ByRoute(bool),
}

/// Chooses the server's address, and reads the settings of both ends.
///
/// # Errors
/// Returns an error of kind `Environment` if the client has no route to any address of the server's place, or if the MTU of an
/// interface is smaller than `mtu`.
pub(super) fn find(client: &mut End<'_>, server: &mut End<'_>, choice: Choice, mtu: Option<u32>) -> Result<Existing> {
    let of_family = |addresses: &[IpAddr], ipv6: bool| -> Vec<IpAddr> {
        addresses.iter().copied().filter(|address| address.is_ipv6() == ipv6).collect()
    };
    let candidates = match choice {
        Choice::Given(address) => vec![address],
        Choice::Loopback(true) => vec![Ipv6Addr::LOCALHOST.into()],
        Choice::Loopback(false) => vec![Ipv4Addr::LOCALHOST.into()],
        Choice::ByRoute(ipv6) => of_family(server.addresses, ipv6),
    };
    let (routes, client_sysctls) = ask(client, candidates.clone())?;
    let sources = match choice {
        Choice::ByRoute(ipv6) => {
            let (back, _) = ask(server, of_family(client.addresses, ipv6))?;
            back.into_iter().flatten().filter(|route| !route.is_local).filter_map(|route| route.source).collect()
        }
        Choice::Given(_) | Choice::Loopback(_) => Vec::new(),
    };
    let pairs: Vec<(IpAddr, Option<RouteTo>)> = candidates.into_iter().zip(routes).collect();
    let (server_address, route) = match choice {
        Choice::ByRoute(_) => {
            let (address, route) =
                best(&pairs, &sources).ok_or_else(|| unreachable(client.place, server.place, &pairs))?;
            (address, Some(route.clone()))
        }
        // If there is no route, the attempt to connect fails with the kernel's reason.
        Choice::Given(_) | Choice::Loopback(_) => pairs.into_iter().next().ok_or_else(|| no_address(server.place))?,
    };
    let mut found = Existing { server_address, interfaces: BTreeMap::new(), sysctls: named("client", client_sysctls) };
    let Some(route) = route else { return Ok(found) };
    let (back, server_sysctls) = ask(server, route.source.into_iter().collect())?;
    found.sysctls.extend(named("server", server_sysctls));
    found.interfaces.insert(format!("client/{}", route.interface), route.settings);
    for route in back.into_iter().flatten() {
        found.interfaces.insert(format!("server/{}", route.interface), route.settings);
    }
    match mtu.and_then(|mtu| smaller(&found.interfaces, mtu)) {
        Some(mtu) => Err(Error::environment(format!("the MTU of this cell is larger than {mtu}"))
            .hint("choose a smaller MTU with --mtu")),
        None => Ok(found),
    }
}

/// Returns the first interface with an MTU below `mtu`, in words.
fn smaller(interfaces: &BTreeMap<String, String>, mtu: u32) -> Option<String> {
    interfaces.iter().find_map(|(label, settings)| {
        let own = settings.split(' ').find_map(|word| word.strip_prefix("mtu="))?.parse().ok()?;
        (mtu > own).then(|| format!("the MTU of {label} ({own})"))
    })
}

/// Returns the address that suits the client best: first one on a network of the client itself, then one from which the server
/// would send to the client. An address that the client itself has is never the server's.
fn best<'a>(pairs: &'a [(IpAddr, Option<RouteTo>)], sources: &[IpAddr]) -> Option<(IpAddr, &'a RouteTo)> {
    let remote = pairs.iter().filter_map(|(address, route)| {
        let route = route.as_ref().filter(|route| !route.is_local)?;
        Some((*address, route))
    });
    remote.min_by_key(|(address, route)| (route.gateway.is_some(), !sources.contains(address)))
}

fn ask(end: &mut End<'_>, to: Vec<IpAddr>) -> Result<(Vec<Option<RouteTo>>, Sysctls)> {
    let count = to.len();
    let answer = end.agent.ask(&Order::Routes { to }, limits::ANSWER_TIME_MAX)?;
    if let Answer::Routes { routes, sysctls } = &answer
        && routes.len() == count
    {
        return Ok((routes.clone(), sysctls.clone()));
    }
    Err(end.agent.unexpected(&answer))
}

fn named(end: &str, sysctls: Sysctls) -> Sysctls {
    sysctls.into_iter().map(|(name, value)| (format!("{end} {name}"), value)).collect()
}

fn unreachable(client: &Place, server: &Place, pairs: &[(IpAddr, Option<RouteTo>)]) -> Error {
    if pairs.is_empty() {
        return no_address(server);
    }
    let tried: Vec<String> = pairs.iter().map(|(address, _)| address.to_string()).collect();
    Error::environment(format!("{client} has no route to an address of {server}: {}", tried.join(", ")))
        .hint("add a route, set an address with --server-address, or use --ipv6 for the other address family")
}

fn no_address(server: &Place) -> Error {
    Error::environment(format!("{server} has no address that a client can reach"))
        .hint("set an address with --server-address, or use --ipv6 for the other address family")
}

/// Returns the endpoints with each wildcard address (0.0.0.0 or ::) replaced by `address`.
pub(super) fn reachable(endpoints: Vec<Endpoint>, address: IpAddr) -> Vec<Endpoint> {
    let with = |port: u16| SocketAddr::new(address, port);
    endpoints
        .into_iter()
        .map(|endpoint| match endpoint {
            Endpoint::Tcp(bound) => Endpoint::Tcp(with(bound.port())),
            Endpoint::Smc(bound) => Endpoint::Smc(with(bound.port())),
            Endpoint::Udp(bound) => Endpoint::Udp(with(bound.port())),
            Endpoint::Unix(name) => Endpoint::Unix(name),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(gateway: Option<&str>, is_local: bool) -> Option<RouteTo> {
        let gateway = gateway.map(|text| text.parse().unwrap());
        let (interface, settings) = ("eth0".to_owned(), "mtu=1500".to_owned());
        Some(RouteTo { is_local, gateway, source: None, interface, settings })
    }

    #[test]
    fn an_interface_with_a_smaller_mtu_is_found() {
        let of = |mtu: u32| BTreeMap::from([("client/eth0".to_owned(), format!("mtu={mtu} gro=on"))]);
        assert_eq!(smaller(&of(1_500), 1_500), None);
        assert_eq!(smaller(&of(1_499), 1_500).as_deref(), Some("the MTU of client/eth0 (1499)"));
    }

    #[test]
    fn an_address_on_a_shared_network_comes_before_one_behind_a_router() {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let pairs = [
            (address(1), None),
            (address(2), route(None, true)),
            (address(3), route(Some("10.0.0.9"), false)),
            (address(4), route(None, false)),
            (address(5), route(None, false)),
        ];
        let chosen =
            |pairs: &[(IpAddr, Option<RouteTo>)], sources: &[IpAddr]| best(pairs, sources).map(|(best, _)| best);
        assert_eq!(chosen(&pairs, &[]), Some(address(4)));
        assert_eq!(chosen(&pairs, &[address(5)]), Some(address(5)), "the server sends from this address");
        assert_eq!(chosen(&pairs[..3], &[]), Some(address(3)));
        assert_eq!(chosen(&pairs[..2], &[]), None);
    }
}
