//! A switch: decides to which ports a frame goes. It has one port for each device of a guest on its network, and one for each
//! network namespace that joins the network.
//!
//! This folder does not move frames between rings: `guest/relay.rs` does. Every byte of a frame can come from a hostile station,
//! so a decision is made from a private copy of the frame's first bytes, and the same copy is sent.

pub(crate) mod assigning;
pub(crate) mod capture;
pub(crate) mod card;
pub(crate) mod drops;
pub(crate) mod flood;
pub(crate) mod frame;
pub(crate) mod guard;
pub(crate) mod link;
pub(crate) mod mirror;
pub(crate) mod port;
pub(crate) mod table;
pub(crate) mod tap;

use crate::counters::Counters;
use crate::limits::SEGMENT_BYTES_MIN;
use crate::protocol::message::{AccountRecord, MemberId, SwitchConfig};
use crate::protocol::report::{KnownAddress, Totals, Traffic};
use card::Card;
use drops::DropReason;
use frame::{ARP, Header, IPV4, IPV6};
use port::{Attachment, Port, PortCounters};
use siga_model::topology::{PortSettings, PortVlan, Protection};
use siga_stack::ip::cut::Cutter;
use siga_stack::limits::FRAME_BYTES_MAX;
use siga_stack::link::frame::Marks;
use siga_stack::link::virtio;
use siga_stack::time::Instant;
use std::collections::HashMap;
use table::Table;
use tap::Tap;

/// The ports to which a frame goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// One port.
    One(usize),
    /// All ports of the VLAN except the one on which the frame arrived.
    All,
}

/// The decision about a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Decision {
    pub(crate) target: Target,
    pub(crate) vlan: u16,
    /// The priority and the drop-eligible bit of the tag.
    pub(crate) priority: u16,
    /// Length of the IP and TCP headers of a large segment.
    pub(crate) large_header_bytes: usize,
    /// The number of the sender's card.
    pub(crate) card: Option<usize>,
    /// True if the switch itself has made the frame.
    pub(crate) is_own: bool,
}

/// A switch and its ports.
#[derive(Debug)]
pub(crate) struct Switch {
    config: SwitchConfig,
    /// The ports by their numbers. A removed port leaves a gap, which the next port fills.
    pub(crate) ports: Vec<Option<Port>>,
    /// The numbers of the ports whose TAP devices may have frames or are under back-pressure. The event loop looks at no others, so that
    /// idle ports cost nothing.
    pub(crate) hot_taps: Vec<usize>,
    /// The bytes of all frames that were sent on. The waiting policy compares how many bytes each way of waiting moves, and rings count only
    /// their own.
    pub(crate) relayed_bytes: u64,
    /// The numbers of the ports with modelled links.
    pub(crate) linked: Vec<usize>,
    /// The numbers of the promiscuous ports, which get copies of the unicast frames for other ports.
    pub(crate) watchers: Vec<usize>,
    /// The cards of the guests, on a network of type qdio.
    pub(crate) cards: Vec<Card>,
    /// For each link, the number of its port.
    by_link: Vec<Option<usize>>,
    /// The number of the uplink that is used.
    uplink: Option<usize>,
    table: Table,
    /// The frames that are copied to a port.
    mirror: mirror::Mirroring,
    /// The time of the next router advertisement.
    pub(crate) advertise_at: Option<Instant>,
    pub(crate) cutter: Cutter,
    /// The frame that was read from a TAP device last, with its virtio header.
    pub(crate) inbox: Vec<u8>,
    /// Memory for the payload of a frame that goes from a ring to TAP devices.
    pub(crate) scratch: Vec<u8>,
    pub(crate) capture: Option<capture::Capture>,
    /// The addresses that a former process of this switch had learned, until the order to run.
    pub(crate) handed_over: Vec<KnownAddress>,
    /// The number of frames into which large segments were cut in this turn.
    pub(crate) pieces: usize,
}

impl Switch {
    pub(crate) fn new(config: SwitchConfig) -> Self {
        Self {
            config,
            ports: Vec::new(),
            hot_taps: Vec::new(),
            relayed_bytes: 0,
            linked: Vec::new(),
            watchers: Vec::new(),
            cards: Vec::new(),
            by_link: Vec::new(),
            uplink: None,
            mirror: mirror::Mirroring::default(),
            advertise_at: None,
            table: Table::default(),
            cutter: Cutter::new(),
            inbox: vec![0; virtio::HEADER_BYTES + FRAME_BYTES_MAX + frame::TAG_BYTES],
            scratch: Vec::new(),
            capture: None,
            handed_over: Vec::new(),
            pieces: 0,
        }
    }

    /// Adds a port and returns its number. The switch knows the Ethernet address of a protected port, and learns the others.
    pub(crate) fn add_port(&mut self, port: Port) -> usize {
        let at = self.ports.iter().position(Option::is_none).unwrap_or(self.ports.len());
        self.put_port(at, port);
        at
    }

    /// Puts a port at a place that is free.
    pub(crate) fn put_port(&mut self, at: usize, port: Port) {
        if at == self.ports.len() {
            self.ports.push(None);
        }
        set_addresses(&mut self.table, &port, at);
        self.ports[at] = Some(port);
        if let Some(capture) = &mut self.capture {
            capture.forget(at);
        }
        self.index();
    }

    /// Removes a port and everything that the switch has learned about it. Also returns the uplink that is used from now on, if it is
    /// another than before.
    pub(crate) fn remove_port(&mut self, at: usize) -> Option<(Port, Option<usize>)> {
        let port = self.ports.get_mut(at)?.take()?;
        self.table.forget(at);
        self.cards.iter_mut().for_each(|card| card.forget(at));
        self.index();
        Some((port, self.choose_uplink()))
    }

    /// Removes a port that will be added again with other settings, and all its addresses.
    pub(crate) fn take_port(&mut self, at: usize) -> Option<Port> {
        self.table.release(at);
        self.ports.get_mut(at)?.take()
    }

    /// Changes the settings of a port.
    pub(crate) fn set_settings(&mut self, at: usize, settings: PortSettings, now: Instant) {
        let Some(Some(port)) = self.ports.get_mut(at) else { return };
        self.table.release(at);
        port.set_link(&settings.link, now);
        port.settings = settings;
        set_addresses(&mut self.table, port, at);
        self.index();
    }

    /// Returns the Ethernet addresses that the switch knows.
    pub(crate) fn addresses(&self, now: Instant) -> Vec<KnownAddress> {
        let label = |at: usize| self.ports.get(at).and_then(Option::as_ref).map(|port| port.label.clone());
        let age_ms = |seen: Instant| now.as_ns().saturating_sub(seen.as_ns()) / 1_000_000;
        let known = self.table.addresses(now).map(|(vlan, mac, port, seen)| KnownAddress {
            vlan,
            mac,
            port: port.and_then(label),
            age_ms: seen.map(age_ms),
        });
        let mut known: Vec<KnownAddress> = known.collect();
        known.sort();
        known
    }

    /// Learns the addresses that a former process of this switch had learned, at ports whose addresses are not set.
    pub(crate) fn learn_handed_over(&mut self, now: Instant) {
        let unprotected = |(at, port): (usize, &Option<Port>)| {
            let port = port.as_ref().filter(|port| port.settings.protection == Protection::Off)?;
            Some((port.label.clone(), at))
        };
        let places: HashMap<String, usize> = self.ports.iter().enumerate().filter_map(unprotected).collect();
        for KnownAddress { vlan, mac, port, age_ms } in std::mem::take(&mut self.handed_over) {
            let Some((at, age_ms)) = port.and_then(|port| places.get(&port)).zip(age_ms) else { continue };
            if mac.0[0] & 1 == 0 && mac.0 != [0; 6] {
                let seen = Instant::from_ns(now.as_ns().saturating_sub(age_ms.saturating_mul(1_000_000)));
                self.table.learn(seen, vlan, mac.0, *at);
            }
        }
    }

    /// Forgets all learned addresses.
    pub(crate) fn forget_learned(&mut self) {
        self.table.forget_learned();
    }

    /// Computes the lists of ports again, after a port was added or removed.
    fn index(&mut self) {
        (self.hot_taps, self.watchers, self.linked) = (Vec::new(), Vec::new(), Vec::new());
        self.by_link.fill(None);
        for (at, port) in self.ports.iter().enumerate() {
            let Some(port) = port else { continue };
            if port.settings.promiscuous {
                self.watchers.push(at);
            }
            if port.link.is_some() {
                self.linked.push(at);
            }
            match &port.attachment {
                Attachment::Tap(tap) if tap.needs_care() => self.hot_taps.push(at),
                Attachment::Tap(_) => {}
                Attachment::Ring(link) => {
                    self.by_link.resize(self.by_link.len().max(link + 1), None);
                    self.by_link[*link] = Some(at);
                }
            }
        }
        self.mirror.index(&self.ports);
        self.index_cards();
    }

    /// Records whether an uplink has a carrier. Returns the uplink that is used from now on, if it is another than before.
    pub(crate) fn set_carrier(&mut self, at: usize, is_there: bool) -> Option<usize> {
        self.ports.get_mut(at)?.as_mut()?.has_carrier = is_there;
        self.choose_uplink()
    }

    /// Uses the uplink with the lowest rank that has a carrier. Addresses behind the former one are learned again. Returns the uplink if
    /// it is another than before.
    fn choose_uplink(&mut self) -> Option<usize> {
        let usable = self.ports.iter().enumerate().filter_map(|(at, port)| {
            let port = port.as_ref().filter(|port| port.has_carrier)?;
            Some((port.uplink?, at))
        });
        let chosen = usable.min().map(|(_, at)| at);
        let before = std::mem::replace(&mut self.uplink, chosen);
        if before == chosen {
            return None;
        }
        if let Some(before) = before {
            self.table.forget(before);
        }
        chosen
    }

    /// Returns frames that announce the stations at protected ports through an uplink: reverse ARP requests (RFC 903), which every
    /// switch learns from and which no station answers.
    pub(crate) fn announcements(&self, uplink: usize) -> Vec<(Header, Decision)> {
        const REVERSE_ARP_REQUEST: [u8; 10] = [0x80, 0x35, 0, 1, 8, 0, 6, 4, 0, 3];
        let mut announcements = Vec::new();
        for (at, port) in self.ports.iter().enumerate() {
            let Some(port) = port.as_ref().filter(|port| port.settings.protection != Protection::Off) else { continue };
            for vlan in port.vlans().into_iter().filter(|vlan| self.may_pass(at, uplink, *vlan)) {
                let mac = port.settings.mac.0;
                let frame = [&[0xff; 6][..], &mac, &REVERSE_ARP_REQUEST, &mac, &[0; 4], &mac, &[0; 4]].concat();
                let header = Header::new(frame.len(), |into| into.copy_from_slice(&frame));
                announcements.push((
                    header,
                    Decision {
                        target: Target::One(uplink),
                        vlan,
                        priority: 0,
                        large_header_bytes: 0,
                        card: None,
                        is_own: true,
                    },
                ));
            }
        }
        announcements
    }

    /// Returns the TAP device of a port.
    pub(crate) fn tap(&mut self, at: usize) -> Option<&mut Tap> {
        match &mut self.ports.get_mut(at)?.as_mut()?.attachment {
            Attachment::Tap(tap) => Some(tap),
            Attachment::Ring(_) => None,
        }
    }

    /// Returns the number of the port with this ring.
    #[inline]
    pub(crate) fn port_of_link(&self, link: usize) -> Option<usize> {
        self.by_link.get(link).copied().flatten()
    }

    /// Decides about a frame that arrived at port `from`. Removes the tag from its header. Counts a dropped frame.
    ///
    /// # Errors
    /// Returns the reason if the frame is dropped.
    pub(crate) fn decide(
        &mut self,
        at: Instant,
        from: usize,
        header: &mut Header,
        marks: Marks,
    ) -> Result<Decision, DropReason> {
        let Some(Some(port)) = self.ports.get_mut(from) else { return Err(DropReason::NoPort) };
        port.counters.frames_received += 1;
        port.counters.bytes_received += header.frame_bytes() as u64;
        let decided = self.decided(at, from, header, marks);
        if let (Err(reason), Some(Some(port))) = (decided, self.ports.get_mut(from)) {
            port.counters.drops.count(reason);
        }
        decided
    }

    fn decided(&mut self, at: Instant, from: usize, header: &mut Header, marks: Marks) -> Result<Decision, DropReason> {
        let Some(Some(port)) = self.ports.get_mut(from) else { return Err(DropReason::NoPort) };
        if port.uplink.is_some() && self.uplink != Some(from) {
            return Err(DropReason::Standby);
        }
        let tag = header.take_tag()?;
        let (vlan, priority) = vlan_of(&port.settings.vlan, tag)?;
        let (to, source, ethertype) = header.link()?;
        let large = marks.segment_bytes > 0;
        if !port.agreed.covers(marks) || is_too_fine(marks) {
            return Err(DropReason::Marks);
        }
        if source[0] & 1 != 0 || source == [0; 6] {
            return Err(DropReason::SpoofedMac);
        }
        let is_group = to[0] & 1 != 0;
        // TCP has no group addresses. Each receiver without offload would get the frame in pieces.
        let fitting = virtio::large_header_bytes(ethertype, header.packet(), marks).filter(|_| !large || !is_group);
        let large_header_bytes = fitting.ok_or(DropReason::Marks)?;
        let payload_bytes = header.packet_bytes().saturating_sub(large_header_bytes);
        let pieces = if large { payload_bytes.div_ceil(usize::from(marks.segment_bytes)).max(1) } else { 1 };
        let carried = match ethertype {
            IPV4 | ARP => true,
            IPV6 => !self.config.only_v4,
            _ => self.config.any_protocol,
        };
        if !carried || frame::is_reserved(to) {
            return Err(DropReason::Protocol);
        }
        match port.settings.protection {
            Protection::All => {
                port.guard.check_mac(source)?;
                port.guard.check(ethertype, header.packet(), header.packet_bytes())?;
            }
            Protection::Mac => port.guard.check_mac(source)?,
            Protection::Off => {
                if !self.table.learn(at, vlan, source, from) {
                    return Err(DropReason::SpoofedMac);
                }
            }
        }
        let card = port.card;
        let decision = |target| Decision { target, vlan, priority, large_header_bytes, card, is_own: false };
        let known = if !is_group { self.table.find(at, vlan, to) } else { None };
        match known {
            Some(port) if port == from => Err(DropReason::SamePort),
            Some(to) if !self.may_pass(from, to, vlan) => Err(DropReason::Isolated),
            Some(to) => Ok(decision(Target::One(to))),
            None => {
                let Some(Some(port)) = self.ports.get_mut(from) else { return Err(DropReason::NoPort) };
                if port.flood.take(at, pieces as u64) { Ok(decision(Target::All)) } else { Err(DropReason::FloodLimit) }
            }
        }
    }

    /// Returns whether frames of a VLAN may pass from one port to another.
    pub(crate) fn may_pass(&self, from: usize, to: usize, vlan: u16) -> bool {
        let (Some(Some(from_port)), Some(Some(to_port))) = (self.ports.get(from), self.ports.get(to)) else {
            return false;
        };
        from != to
            && (to_port.uplink.is_none() || self.uplink == Some(to))
            && to_port.settings.vlan.has(vlan)
            && !(from_port.settings.isolated && to_port.settings.isolated)
    }

    pub(crate) fn flood_per_second(&self) -> u32 {
        self.config.flood_per_second
    }

    /// Returns the accounting records of one port or of all ports. Uplinks have none.
    pub(crate) fn accounts(&mut self, of: Option<usize>) -> Vec<AccountRecord> {
        if !self.config.accounting {
            return Vec::new();
        }
        let is_chosen = |at: usize| of.is_none_or(|only| only == at);
        let ports =
            self.ports.iter_mut().enumerate().filter(|(at, _)| is_chosen(*at)).filter_map(|(_, port)| port.as_mut());
        ports.filter(|port| port.uplink.is_none()).filter_map(Port::account).collect()
    }

    /// Returns the counters of the complete switch.
    pub(crate) fn counters(&self) -> Counters {
        self.table.counters()
    }

    /// Returns the counters of a port.
    pub(crate) fn port_counters(&self, at: usize) -> Counters {
        let Some(Some(port)) = self.ports.get(at) else { return Counters::default() };
        let mut counters = port.counters();
        if let Some(card) = port.card.and_then(|card| self.cards.get(card)) {
            card.add_to(&mut counters);
        }
        counters
    }

    /// Returns the ports of network namespaces with their counters.
    pub(crate) fn kernel_ports(&self) -> impl Iterator<Item = (MemberId, Counters)> {
        self.ports.iter().flatten().filter_map(|port| {
            let device = "tap".parse().ok()?;
            Some((MemberId { guest: port.kernel_port.clone()?, device }, port.counters()))
        })
    }

    /// Adds the frames of the ports of network namespaces, and the dropped frames of all ports. The rings of the other ports count
    /// their frames themselves.
    pub(crate) fn add_to(&self, totals: &mut Totals) {
        for port in self.ports.iter().flatten() {
            totals.dropped += port.counters.drops.sum() + port.output.as_ref().map_or(0, |output| output.dropped());
            if port.kernel_port.is_some() {
                let PortCounters { frames_received, bytes_received, frames_sent, bytes_sent, .. } = port.counters;
                let traffic = Traffic { frames_sent, bytes_sent, frames_received, bytes_received };
                totals.traffic = totals.traffic.with(traffic, u64::saturating_add);
            }
        }
    }

    /// Returns the number of the port with this name.
    pub(crate) fn named(&self, name: &siga_model::name::Name) -> Option<usize> {
        let is = |port: &Option<Port>| port.as_ref().is_some_and(|port| port.is_kernel_port(name));
        self.ports.iter().position(is)
    }
}

/// Returns true if a large segment would be cut into too many frames.
#[inline]
pub(crate) fn is_too_fine(marks: Marks) -> bool {
    (1..SEGMENT_BYTES_MIN).contains(&marks.segment_bytes)
}

/// Sets the Ethernet address of a protected port.
fn set_addresses(table: &mut Table, port: &Port, at: usize) {
    if port.settings.protection != Protection::Off {
        for vlan in port.vlans() {
            table.set(vlan, port.settings.mac, at);
        }
    }
}

/// Returns the VLAN of a received frame, and the priority bits of its tag.
fn vlan_of(port: &PortVlan, tag: Option<u16>) -> Result<(u16, u16), DropReason> {
    const ID: u16 = 0x0fff;
    let priority = tag.unwrap_or(0) & !ID;
    // The id 0 says that the tag has a priority and no VLAN.
    let id = tag.map(|tag| tag & ID).filter(|id| *id != 0);
    let vlan = match (port, id) {
        (PortVlan::Access(own), None) => Some(*own),
        (PortVlan::Trunk { native, .. }, None) => *native,
        (PortVlan::Access(_), Some(_)) => None,
        (PortVlan::Trunk { allowed, .. }, Some(id)) => allowed.contains(&id).then_some(id),
    };
    vlan.map(|vlan| (vlan, priority)).ok_or(DropReason::Vlan)
}

#[cfg(test)]
mod tests;
