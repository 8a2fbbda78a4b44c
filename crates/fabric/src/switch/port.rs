//! A port of a switch.

use super::assigning::Assigning;
use super::card::Output;
use super::drops::Drops;
use super::flood::Flood;
use super::guard::Guard;
use super::link::Emulators;
use super::tap::Tap;
use crate::counters::{self, Counters};
use crate::protocol::message::AccountRecord;
use crate::protocol::report::Traffic;
use siga_model::name::Name;
use siga_model::topology::{PortLink, PortSettings, PortVlan};
use siga_stack::link::device::Agreed;
use siga_stack::time::Instant;

/// What a port is attached to.
#[derive(Debug)]
pub(crate) enum Attachment {
    /// The device of a guest: the index of the link to it.
    Ring(usize),
    /// A TAP device in a network namespace.
    Tap(Box<Tap>),
}

/// A port.
#[derive(Debug)]
pub(crate) struct Port {
    /// The guest and device, or the port's name in the topology.
    pub(crate) label: String,
    /// The port's name, if it is that of a network namespace.
    pub(crate) kernel_port: Option<Name>,
    /// The rank of an uplink. `None` for other ports.
    pub(crate) uplink: Option<usize>,
    /// True if the interface of an uplink has a carrier.
    pub(crate) has_carrier: bool,
    pub(crate) settings: PortSettings,
    pub(crate) guard: Guard,
    pub(crate) mtu: usize,
    /// The kinds of frames that the other end of the port accepts in addition to ordinary ones.
    pub(crate) agreed: Agreed,
    pub(crate) attachment: Attachment,
    pub(crate) flood: Flood,
    /// What the port answers to a namespace that asks for its addresses.
    pub(crate) assigning: Option<Box<Assigning>>,
    /// The modelled link between the port and its station.
    pub(crate) link: Option<Box<Emulators>>,
    /// The number of the card between the port and its guest.
    pub(crate) card: Option<usize>,
    /// The output queues of the guest at this card.
    pub(crate) output: Option<Box<Output>>,
    pub(crate) counters: PortCounters,
}

/// The counters of a port. Frames that the other end has sent are received by the switch.
#[derive(Debug, Default)]
pub(crate) struct PortCounters {
    pub(crate) frames_received: u64,
    pub(crate) bytes_received: u64,
    pub(crate) frames_sent: u64,
    pub(crate) bytes_sent: u64,
    pub(crate) flooded: u64,
    /// Dropped frames: those that were received here, and those that could not be sent here.
    pub(crate) drops: Drops,
    /// What the accounting records of the station contain.
    pub(crate) accounted: Traffic,
}

impl Port {
    pub(crate) fn is_kernel_port(&self, name: &Name) -> bool {
        self.kernel_port.as_ref() == Some(name)
    }

    /// Changes the modelled link of the port. The link of a port with a card belongs to the card.
    pub(crate) fn set_link(&mut self, link: &PortLink, at: Instant) {
        if self.settings.card.is_some() {
            return;
        }
        let mut emulators = self.link.take().unwrap_or_default();
        emulators.set(link, at);
        self.link = Some(emulators).filter(|emulators| emulators.is_there());
    }

    /// Returns the VLANs in which the switch knows the station's address.
    pub(crate) fn vlans(&self) -> Vec<u16> {
        match &self.settings.vlan {
            PortVlan::Access(vlan) => vec![*vlan],
            PortVlan::Trunk { allowed, native } => allowed.iter().chain(native).copied().collect(),
        }
    }

    /// Returns the tag of a frame that leaves through this port, or `None` if it leaves without a tag.
    #[inline]
    pub(crate) fn tag(&self, vlan: u16, priority: u16) -> Option<u16> {
        match &self.settings.vlan {
            PortVlan::Access(_) => None,
            PortVlan::Trunk { native, .. } => (*native != Some(vlan)).then_some(priority | vlan),
        }
    }

    /// Returns what the station has exchanged since its latest accounting record, or `None` if it has exchanged nothing.
    pub(crate) fn account(&mut self) -> Option<AccountRecord> {
        let own = &mut self.counters;
        let all = Traffic {
            frames_sent: own.frames_received,
            bytes_sent: own.bytes_received,
            frames_received: own.frames_sent,
            bytes_received: own.bytes_sent,
        };
        let traffic = all.with(std::mem::replace(&mut own.accounted, all), u64::saturating_sub);
        (traffic != Traffic::default()).then(|| AccountRecord { port: self.label.clone(), traffic })
    }

    pub(crate) fn counters(&self) -> Counters {
        let own = &self.counters;
        let mut counters = counters::named([
            ("port_frames_received", own.frames_received),
            ("port_bytes_received", own.bytes_received),
            ("port_frames_sent", own.frames_sent),
            ("port_bytes_sent", own.bytes_sent),
            ("port_frames_flooded", own.flooded),
        ]);
        own.drops.add_to(&mut counters);
        if let Some(assigning) = &self.assigning {
            counters.insert("port_address_requests".to_owned(), assigning.requests);
            counters.insert("port_address_answers".to_owned(), assigning.answers);
        }
        if let Some(link) = &self.link {
            link.add_to(&mut counters);
        }
        if let Some(output) = &self.output {
            output.add_to(&mut counters);
        }
        counters
    }
}
