//! The kinds of switched networks: which keys each has, and its MTU.

use super::check::{self, refuse, within};
use super::file::{NetworkEntry, Type};
use super::{NetworkKind, Nic};
use crate::error::{Error, Result};
use crate::limits;
use ipnet::IpNet;

/// Returns the kind of a switched network.
pub(super) fn kind(entry: &NetworkEntry) -> Result<NetworkKind> {
    refuse(entry.buffer.is_some(), "buffer", "only networks of type vctc, ctc, netiucv and claw have this key")?;
    let mtu = |most: u32| mtu(entry, limits::QDIO_MTU_DEFAULT, most);
    let nic = entry.nic.as_deref();
    let layer = entry.layer.as_deref();
    if entry.kind == Type::Vswitch {
        refuse(nic.is_some(), "nic", "the devices of a vswitch always have type qdio")?;
        refuse(layer.is_some(), "layer", "a vswitch always works at layer 2")?;
        refuse(entry.frame.is_some(), "frame", "a network of type vswitch has the key `mtu` instead")?;
        return Ok(NetworkKind::Vswitch { mtu: mtu(limits::VSWITCH_MTU_MAX)? });
    }
    match nic.unwrap_or("qdio") {
        "hipersockets" => {
            refuse(entry.mtu.is_some(), "mtu", "a guestlan with nic = \"hipersockets\" has the key `frame` instead")?;
            refuse(layer.is_some(), "layer", "a guestlan with nic = \"hipersockets\" carries only IPv4 packets")?;
            let frame = check::frame(entry.frame.as_deref().unwrap_or("64K"))?;
            let mtu = frame - limits::HIPERSOCKETS_OVERHEAD_BYTES;
            Ok(NetworkKind::Guestlan { nic: Nic::Hipersockets { frame }, mtu })
        }
        "qdio" => {
            refuse(entry.frame.is_some(), "frame", "a guestlan with nic = \"qdio\" has the key `mtu` instead")?;
            let ethernet = is_ethernet(layer.unwrap_or("ethernet"))?;
            Ok(NetworkKind::Guestlan { nic: Nic::Qdio { ethernet }, mtu: mtu(limits::GUESTLAN_QDIO_MTU_MAX)? })
        }
        other => Err(Error::usage(format!("unknown value: nic = {other:?}")).hint("use \"qdio\" or \"hipersockets\"")),
    }
}

/// Reads the MTU of a switched network. `usual` is its value if the file gives none.
pub(super) fn mtu(entry: &NetworkEntry, usual: u32, most: u32) -> Result<u32> {
    refuse(entry.buffer.is_some(), "buffer", "only networks of type vctc, ctc, netiucv and claw have this key")?;
    let mtu = entry.mtu.unwrap_or(usual);
    within(format_args!("an MTU of {mtu} bytes"), mtu, limits::MTU_IPV4_MIN..=most).map(|()| mtu)
}

/// Reads the layer at which a network works. Returns true for layer 2.
pub(super) fn is_ethernet(layer: &str) -> Result<bool> {
    match layer {
        "ethernet" => Ok(true),
        "ip" => Ok(false),
        other => Err(Error::usage(format!("unknown value: layer = {other:?}")).hint("use \"ethernet\" or \"ip\"")),
    }
}

/// Checks that a network carries packets of the addresses of a device or port.
pub(super) fn carries(kind: NetworkKind, addresses: &[IpNet]) -> Result<()> {
    let (what, instead) = if matches!(kind, NetworkKind::Guestlan { nic: Nic::Hipersockets { .. }, .. }) {
        ("a guestlan with nic = \"hipersockets\"", "nic = \"qdio\"")
    } else if matches!(kind, NetworkKind::Lcs { .. }) {
        ("a network of type lcs", "a network of type qdio")
    } else {
        return Ok(());
    };
    match addresses.iter().find(|own| own.addr().is_ipv6()) {
        Some(own) => Err(Error::usage(format!("{own} is an IPv6 address, but {what} carries only IPv4 packets"))
            .hint(format!("use {instead}"))),
        None => Ok(()),
    }
}
