//! Networks of type qdio: OSA-Express adapters, which are called cards. The guests of a card share it, and its wire leads to a LAN with
//! the other cards.

use super::check::refuse;
use super::file::{CardEntry, DeviceEntry, NetworkEntry};
use super::ports::PortLink;
use super::switched_kind;
use super::{Network, NetworkKind};
use crate::error::{Error, Result};
use crate::limits;
use crate::link::Link;
use crate::name::Name;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The wire of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub enum OsaWire {
    /// 1000Base-T: copper with 1 Gbit/s. siga models it.
    #[serde(rename = "1000base-t")]
    Base1000T,
    /// Gigabit Ethernet: fibre with 1 Gbit/s. siga models it.
    #[default]
    #[serde(rename = "1gbe")]
    Gbe1,
    /// 10 Gigabit Ethernet. siga models it.
    #[serde(rename = "10gbe")]
    Gbe10,
    /// A real wire: an interface of the host, or TAP devices. siga adds no time to it.
    #[serde(rename = "real")]
    Real,
}

impl OsaWire {
    /// All wires, in the order of help texts.
    pub const ALL: [Self; 4] = [Self::Base1000T, Self::Gbe1, Self::Gbe10, Self::Real];

    /// Returns the name that topology files use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Base1000T => "1000base-t",
            Self::Gbe1 => "1gbe",
            Self::Gbe10 => "10gbe",
            Self::Real => "real",
        }
    }

    /// Returns the modelled link of each direction. `None` for a real wire.
    pub fn link(self) -> Option<Link> {
        match self {
            Self::Base1000T | Self::Gbe1 => Some(Link::channel(1_000_000_000, 0)),
            Self::Gbe10 => Some(Link::channel(10_000_000_000, 0)),
            Self::Real => None,
        }
    }

    fn port_link(self) -> PortLink {
        PortLink { from_station: self.link(), to_station: self.link() }
    }
}

impl fmt::Display for OsaWire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Which of its four output queues a device uses for a frame. A card serves queue 0 first. The names are those of Linux
/// (`priority_queueing`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Queueing {
    /// Always the same queue.
    Always(u8),
    /// The queue follows from the precedence: the first two bits of the type of service.
    Precedence,
    /// The queue follows from the other bits of the type of service: low delay is queue 0.
    TypeOfService,
    /// The queue follows from the priority that Linux gives to a packet with this type of service.
    SkbPriority,
}

impl Default for Queueing {
    fn default() -> Self {
        Self::Always(Self::USUAL)
    }
}

impl Queueing {
    /// The queue of frames that have no priority.
    pub const USUAL: u8 = 2;
    /// The number of output queues.
    pub const QUEUES: usize = 4;

    /// Returns the output queue of an IP packet with this type of service (IPv4) or traffic class (IPv6). `None`: another packet.
    #[inline]
    pub fn queue(self, service: Option<u8>) -> u8 {
        match (self, service) {
            (Self::Always(queue), _) => queue,
            (_, None) => Self::USUAL,
            (Self::Precedence, Some(service)) => (!service >> 6) & 3,
            (Self::TypeOfService, Some(service)) => match service {
                _ if service & 0x02 != 0 => 3,
                _ if service & 0x04 != 0 => 2,
                _ if service & 0x08 != 0 => 1,
                _ if service & 0x10 != 0 => 0,
                _ => Self::USUAL,
            },
            (Self::SkbPriority, Some(service)) => match linux_priority(service) {
                priority if priority > 5 => 0,
                priority => (!priority >> 1) & 3,
            },
        }
    }

    /// Returns the name that `lsqeth -p` shows.
    pub fn short(self) -> String {
        match self {
            Self::Always(queue) => format!("always_q_{queue}"),
            Self::Precedence => "by_prec.".to_owned(),
            Self::TypeOfService => "by_ToS".to_owned(),
            Self::SkbPriority => "by_skb".to_owned(),
        }
    }
}

/// Returns the priority that Linux gives to a packet with this type of service, if its socket has no other (`rt_tos2priority`).
fn linux_priority(service: u8) -> u8 {
    match (service & 0x1e) >> 1 {
        0..=3 => 0,
        4..=7 => 2,
        8..=11 => 6,
        _ => 4,
    }
}

impl fmt::Display for Queueing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always(queue) => write!(f, "no_prio_queueing:{queue}"),
            Self::Precedence => f.write_str("prio_queueing_prec"),
            Self::TypeOfService => f.write_str("prio_queueing_tos"),
            Self::SkbPriority => f.write_str("prio_queueing_skb"),
        }
    }
}

impl FromStr for Queueing {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let refused = || Error::usage(format!("priority_queueing = {text:?} is not a rule for output queues"));
        match text {
            "no_prio_queueing" => Ok(Self::default()),
            "no_prio_queueing:0" => Ok(Self::Always(0)),
            "no_prio_queueing:1" => Ok(Self::Always(1)),
            "no_prio_queueing:2" => Ok(Self::Always(2)),
            "no_prio_queueing:3" => Ok(Self::Always(3)),
            "prio_queueing_prec" => Ok(Self::Precedence),
            "prio_queueing_tos" => Ok(Self::TypeOfService),
            "prio_queueing_skb" => Ok(Self::SkbPriority),
            "prio_queueing_vlan" => Err(refused().hint("guests of siga send no VLAN tags, so tags cannot choose the queue")),
            _ => Err(refused().hint(
                "use no_prio_queueing, no_prio_queueing:0 to no_prio_queueing:3, prio_queueing_prec, prio_queueing_tos or prio_queueing_skb",
            )),
        }
    }
}

impl TryFrom<String> for Queueing {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        text.parse()
    }
}

impl From<Queueing> for String {
    fn from(queueing: Queueing) -> Self {
        queueing.to_string()
    }
}

/// What a device on a network of type qdio uses of its card.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Card {
    /// The name of a card that devices share. `None`: the device has a card of its own.
    pub name: Option<Name>,
    /// Which output queue the device uses for a frame.
    pub queueing: Queueing,
}

/// Reads the kind of a network of type qdio.
pub(super) fn kind(entry: &NetworkEntry) -> Result<NetworkKind> {
    refuse(entry.nic.is_some(), "nic", "the devices of a network of type qdio always have type qdio")?;
    refuse(entry.frame.is_some(), "frame", "a network of type qdio has the key `mtu` instead")?;
    let ethernet = switched_kind::is_ethernet(entry.layer.as_deref().unwrap_or("ip"))?;
    let (usual, most) = if ethernet {
        (limits::OSA_MTU_LAYER_2_DEFAULT, limits::VSWITCH_MTU_MAX)
    } else {
        (limits::OSA_MTU_LAYER_3_DEFAULT, limits::OSA_MTU_LAYER_3_MAX)
    };
    Ok(NetworkKind::Qdio { mtu: switched_kind::mtu(entry, usual, most)?, ethernet })
}

/// Refuses the keys of cards on other networks, and two cards with the same name.
pub(super) fn check_cards(entry: &NetworkEntry, kind: NetworkKind) -> Result<()> {
    let is_qdio = matches!(kind, NetworkKind::Qdio { .. });
    let words = "only networks of type qdio have this key";
    let has_wire = is_qdio || matches!(kind, NetworkKind::Lcs { .. });
    refuse(entry.wire.is_some() && !has_wire, "wire", words)?;
    refuse(!entry.card.is_empty() && !is_qdio, "card", words)?;
    for (place, card) in entry.card.iter().enumerate() {
        if entry.card[..place].iter().any(|other| other.name == card.name) {
            return Err(Error::usage(format!("two cards have the same name {}", card.name))
                .hint("rename one of them; guests share a card if their devices name the same card"));
        }
        let both = card.wire.is_some() && card.link != PortLink::default();
        refuse(both, "wire", "the card also has the key `link`, which replaces the wire")?;
    }
    Ok(())
}

/// Returns the card that a device uses, and the link from the card to the LAN. For a device on another network, refuses the keys of
/// cards.
pub(super) fn card_of(
    network: &Network,
    written: &NetworkEntry,
    entry: &DeviceEntry,
) -> Result<Option<(Card, PortLink)>> {
    if !matches!(network.kind, NetworkKind::Qdio { .. }) {
        let words = "only devices on networks of type qdio have this key";
        refuse(entry.card.is_some(), "card", words)?;
        refuse(entry.priority_queueing.is_some(), "priority_queueing", words)?;
        return Ok(None);
    }
    let wire = written.wire.unwrap_or_default();
    let has_link = entry.link != PortLink::default();
    let queueing = entry.priority_queueing.as_deref().map_or(Ok(Queueing::default()), str::parse)?;
    let Some(name) = &entry.card else {
        let link = if has_link { entry.link.clone() } else { wire.port_link() };
        return Ok(Some((Card { name: None, queueing }, link)));
    };
    refuse(has_link, "link", "the device uses a card; write the link in the table of the card")?;
    let Some(card) = written.card.iter().find(|card| card.name == *name) else {
        let names: Vec<&str> = written.card.iter().map(|card| card.name.as_str()).collect();
        let error = Error::usage(format!("the network has no card {name}"));
        return Err(match names.is_empty() {
            true => error.hint("add a table [[network.NAME.card]] with the name of the card"),
            false => error.hint(format!("cards: {}", names.join(", "))),
        });
    };
    Ok(Some((Card { name: Some(card.name.clone()), queueing }, link_of(card, wire))))
}

fn link_of(card: &CardEntry, wire: OsaWire) -> PortLink {
    if card.link == PortLink::default() { card.wire.unwrap_or(wire).port_link() } else { card.link.clone() }
}

#[cfg(test)]
mod tests;
