//! Reads how often interfaces of this network namespace have lost their carrier.

use super::netlink::Netlink;
use netlink_packet_route::link::{LinkAttribute, LinkMessage};
use siga_model::error::{IoContext, Result};

/// Returns how often the interfaces with these names have lost their carrier, in total. An interface that does not exist counts
/// nothing.
///
/// # Errors
/// Returns an error of kind `Environment` if the kernel permits no netlink socket.
pub(crate) fn losses(interfaces: &[String]) -> Result<u64> {
    let mut netlink = Netlink::open().context("cannot open a netlink socket to watch network interfaces")?;
    let links = interfaces.iter().filter_map(|name| netlink.link_named(name).ok());
    Ok(links.map(|link| of(&link)).sum())
}

/// Returns how often an interface has lost its carrier.
pub(super) fn of(link: &LinkMessage) -> u64 {
    let count = |attribute: &LinkAttribute| {
        if let LinkAttribute::CarrierDownCount(count) = attribute { Some(u64::from(*count)) } else { None }
    };
    link.attributes.iter().find_map(count).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_found_by_its_name() {
        let link = Netlink::open().unwrap().link_named("lo").unwrap();
        assert!(link.attributes.contains(&LinkAttribute::IfName("lo".into())));
        assert_eq!(losses(&["lo".into(), "siga-not-there".into()]).unwrap(), 0);
    }
}
