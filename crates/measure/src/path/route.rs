//! Reads the kernel's route from this network namespace to an address, and the settings that apply to the route. Changes nothing.

use super::namespace::sysctl_here;
use super::netlink::{Netlink, Requests as _};
use super::settings::{ALSO_READ, describe, offloads, word};
use netlink_packet_route::link::LinkAttribute;
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteType};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use serde::{Deserialize, Serialize};
use siga_model::error::{IoContext, Result};
use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;

/// The route from a network namespace to an address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RouteTo {
    /// Whether the address belongs to the namespace itself.
    pub(crate) is_local: bool,
    /// The router to which packets are sent. `None` if the address is on a network of this namespace.
    pub(crate) gateway: Option<IpAddr>,
    /// The source address that the kernel chooses.
    pub(crate) source: Option<IpAddr>,
    /// The name of the interface through which packets leave.
    pub(crate) interface: String,
    /// The settings of this interface, for example `mtu=1500 qdisc=noqueue gro=on`.
    pub(crate) settings: String,
}

/// Returns the route from this namespace to each address; `None` for an address without a route.
///
/// # Errors
/// Returns an error of kind `Environment` if the kernel permits no netlink socket or sends a malformed answer.
pub(crate) fn routes(to: &[IpAddr]) -> Result<Vec<Option<RouteTo>>> {
    let mut netlink = Netlink::open().context("cannot open a netlink socket to read routes")?;
    to.iter().map(|&address| one(&mut netlink, address)).collect()
}

fn one(netlink: &mut Netlink, address: IpAddr) -> Result<Option<RouteTo>> {
    let route = match netlink.route(address) {
        Ok(route) => route,
        Err(error) if is_unreachable(&error) => return Ok(None),
        Err(error) => return Err(error).context(format!("cannot read the route to {address}")),
    };
    let is_local = route.header.kind == RouteType::Local;
    if !is_local && route.header.kind != RouteType::Unicast {
        return Ok(None);
    }
    let Some(index) = interface(&route) else { return Ok(None) };
    let link = netlink.link(index).context(format!("cannot read the settings of the interface with index {index}"))?;
    let name = link
        .attributes
        .iter()
        .find_map(|attribute| if let LinkAttribute::IfName(name) = attribute { Some(name.clone()) } else { None });
    let interface = name.unwrap_or_else(|| index.to_string());
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .context("cannot open a socket to read the settings of an interface")?;
    let settings = offloads(&socket, &interface).fold(describe(&link), |text, (which, on)| text + &word(which, on));
    let (gateway, source) = (gateway(&route), source(&route));
    Ok(Some(RouteTo { is_local, gateway, source, interface, settings }))
}

/// Returns whether the kernel answered that there is no route.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::EACCES | libc::EINVAL | libc::ENETDOWN)
    )
}

fn interface(route: &RouteMessage) -> Option<u32> {
    route
        .attributes
        .iter()
        .find_map(|attribute| if let RouteAttribute::Oif(index) = attribute { Some(*index) } else { None })
}

fn gateway(route: &RouteMessage) -> Option<IpAddr> {
    let address =
        |attribute: &RouteAttribute| if let RouteAttribute::Gateway(address) = attribute { ip(address) } else { None };
    route.attributes.iter().find_map(address)
}

fn source(route: &RouteMessage) -> Option<IpAddr> {
    let address = |attribute: &RouteAttribute| {
        if let RouteAttribute::PrefSource(address) = attribute { ip(address) } else { None }
    };
    route.attributes.iter().find_map(address)
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some(IpAddr::V4(*address)),
        RouteAddress::Inet6(address) => Some(IpAddr::V6(*address)),
        RouteAddress::Mpls(_) | RouteAddress::Other(_) | _ => None,
    }
}

/// Reads the sysctls of this namespace that affect a path.
pub(crate) fn sysctls() -> BTreeMap<String, String> {
    ALSO_READ.iter().filter_map(|name| Some(((*name).to_owned(), sysctl_here(name)?))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_namespace_itself_is_local() {
        let loopback: IpAddr = "127.0.0.1".parse().unwrap();
        let found = routes(&[loopback]).unwrap().remove(0).unwrap();
        assert!(found.is_local && found.gateway.is_none(), "{found:?}");
        assert_eq!((found.interface.as_str(), found.source), ("lo", Some(loopback)));
        assert!(found.settings.contains("mtu="), "{found:?}");
    }

    #[test]
    fn an_address_of_a_group_has_no_route_for_a_workload() {
        let group = "224.0.0.1".parse().unwrap();
        assert_eq!(routes(&[group]).unwrap(), [None]);
    }
}
