//! Ports that namespaces join while the network runs: an entry with `count` stands for many of them.

use super::check::{own_address, refuse, within};
use super::file::{NetworkEntry, PortEntry};
use super::{KernelPort, Network, Where};
use crate::error::{Error, Result};
use crate::limits;
use crate::name::Name;
use crate::prefix;
use ipnet::IpNet;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

/// Returns whether an entry stands for a port with this name. The name of an entry with `count` stands for all its ports.
pub(super) fn has_port(entry: &PortEntry, name: &Name) -> bool {
    let number = name.as_str().strip_prefix(entry.name.as_str()).and_then(|rest| rest.strip_prefix('-'));
    let number = number.filter(|text| !text.starts_with(['0', '+'])).and_then(|text| text.parse::<u32>().ok());
    entry.name == *name || entry.count.zip(number).is_some_and(|(count, number)| number <= count)
}

/// Returns the names to which a network grants access. The name of an entry with `count` stands for all its ports.
pub(super) fn granted(entry: &NetworkEntry) -> Result<BTreeSet<Name>> {
    let mut granted = BTreeSet::new();
    for name in &entry.grant {
        let counted = entry.port.iter().find(|port| port.name == *name).and_then(|port| port.count);
        match counted.map(usize::try_from) {
            Some(Ok(count)) if count <= limits::SWITCH_PORTS_MAX => {
                for at in 1..=count {
                    granted.insert(format!("{name}-{at}").parse()?);
                }
            }
            Some(_) | None => {
                granted.insert(name.clone());
            }
        }
    }
    Ok(granted)
}

/// Returns the ports of an entry. With `count`, the entry stands for this many ports with numbered names and consecutive addresses.
pub(super) fn repeated(first: KernelPort, entry: &PortEntry) -> Result<Vec<KernelPort>> {
    let Some(count) = entry.count else { return Ok(vec![first]) };
    refuse(
        first.place != Where::Joins,
        "count",
        "`count` makes several ports, but `netns` and `pid` name only one namespace; remove `netns` and `pid`",
    )?;
    refuse(
        entry.mac.is_some(),
        "count",
        "`count` makes several ports, but only one of them can have the Ethernet address in `mac`; remove `mac`",
    )?;
    let most = u32::try_from(limits::SWITCH_PORTS_MAX).unwrap_or(u32::MAX);
    within(format_args!("count = {count}"), count, 1..=most)?;
    let numbered = |at: u32| {
        let mut port = first.clone();
        port.name = format!("{}-{}", first.name, at + 1).parse()?;
        // The namespaces make addresses of a prefix themselves.
        let own = |own: &IpNet| {
            if first.is_configured(own.addr()) || own.addr().is_ipv4() { later(*own, at) } else { Ok(*own) }
        };
        port.addresses = first.addresses.iter().map(own).collect::<Result<_>>()?;
        Ok(port)
    };
    (0..count).map(numbered).collect()
}

/// Returns the address that is `by` addresses later in the same network.
fn later(own: IpNet, by: u32) -> Result<IpNet> {
    let address = match own.addr() {
        IpAddr::V4(address) => address.to_bits().checked_add(by).map(|bits| IpAddr::V4(bits.into())),
        IpAddr::V6(address) => address.to_bits().checked_add(by.into()).map(|bits| IpAddr::V6(bits.into())),
    };
    let broadcast = prefix::broadcast(own).map(IpAddr::V4);
    match address.filter(|address| own.contains(address) && Some(*address) != broadcast) {
        Some(address) => own_address(&format!("{address}/{}", own.prefix_len())),
        None => Err(Error::usage(format!(
            "the subnet of {own} is too small for `count` ports: it has fewer than {} addresses, beginning with {own}",
            by + 1
        ))
        .hint("lower `count`, or use a larger subnet")),
    }
}

/// Checks that a namespace can find the port that it joins by the port's name alone.
pub(super) fn check_names(networks: &BTreeMap<Name, Network>) -> Result<()> {
    let mut known: BTreeMap<&Name, &Name> = BTreeMap::new();
    for (network, settings) in networks {
        let ports = settings.switch.iter().flat_map(|switch| &switch.ports);
        for port in ports.filter(|port| port.place == Where::Joins) {
            if let Some(other) = known.insert(&port.name, network) {
                let message = format!("networks {other} and {network} have a port with the same name {}", port.name);
                return Err(Error::usage(message).hint("rename one of them: `siga netns` finds ports by name"));
            }
        }
    }
    Ok(())
}
