//! Networks of type lcs: guests with LAN channel stations (LCS), which are gateways to a LAN. A switch process is all of them.

use super::check::{refuse, within};
use super::file::{DeviceEntry, NetworkEntry};
use super::osa::OsaWire;
use super::ports::PortLink;
use super::{NetworkKind, switched_kind};
use crate::error::Result;
use crate::limits;
use crate::link::Link;

/// The modelled link between a gateway and its LAN: Fast Ethernet, and the time that the gateway takes for a frame.
const WIRE: Link = Link::channel(100_000_000, 200_000);

/// Reads the kind of a network of type lcs.
pub(super) fn kind(entry: &NetworkEntry) -> Result<NetworkKind> {
    refuse(entry.nic.is_some(), "nic", "the devices of a network of type lcs always have type lcs")?;
    refuse(entry.layer.is_some(), "layer", "a network of type lcs carries only IPv4 packets")?;
    refuse(entry.frame.is_some(), "frame", "a network of type lcs has the key `mtu` instead")?;
    let is_modelled = entry.wire.is_some_and(|wire| wire != OsaWire::Real);
    refuse(
        is_modelled,
        "wire",
        "a network of type lcs only has wire = \"real\"; write other wires with the key `link`",
    )?;
    Ok(NetworkKind::Lcs { mtu: switched_kind::mtu(entry, limits::LCS_MTU_MAX, limits::LCS_MTU_MAX)? })
}

/// Returns the link of a device. If the topology gives none, it is the modelled wire, or nothing if the wire is real.
pub(super) fn link_of(kind: NetworkKind, network: &NetworkEntry, entry: &DeviceEntry) -> Result<Option<PortLink>> {
    if !matches!(kind, NetworkKind::Lcs { .. }) {
        return Ok(None);
    }
    if let Some(count) = entry.buffer_count {
        let range = u32::from(limits::BUFFER_COUNT_MIN)..=u32::from(limits::BUFFER_COUNT_MAX);
        within(format_args!("a buffer_count of {count} (on a network of type lcs)"), count, range)?;
    }
    let has_link = entry.link != PortLink::default() || network.wire == Some(OsaWire::Real);
    let wire = PortLink { from_station: Some(WIRE), to_station: Some(WIRE) };
    Ok(Some(if has_link { entry.link.clone() } else { wire }))
}
