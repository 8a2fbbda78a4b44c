//! Address resolution: ARP (RFC 826, RFC 5227 2.1.1) and neighbour discovery (RFC 4861 7). `link/neighbour.rs` has the neighbour
//! table.
//!
//! Router discovery is not implemented: the owner of the stack configures addresses and routes. This file is in the IP layer for
//! two reasons: neighbour messages are ICMPv6 packets, and ARP compares the addresses in a message with those of the stack.

use super::Ip;
use super::input::LocalPacket;
use crate::drops::{DropReason, IpDrop, LinkDrop, NeighbourDrop};
use crate::link::device::{Medium, Outgoing};
use crate::link::frame::{DeviceId, Marks};
use crate::link::neighbour::{Due, Learned, NeighbourKey};
use crate::time::Instant;
use crate::wire::address::{ALL_NODES, is_martian_source, solicited_node};
use crate::wire::arp::ArpPacket;
use crate::wire::ethernet::MacAddress;
use crate::wire::icmp::IcmpError;
use crate::wire::nd::{Flags, NeighbourMessage};
use smoltcp::wire::EthernetProtocol;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

impl Ip {
    /// Requests the link address of a neighbour. The request goes to `known`, the neighbour's former link address, or to all
    /// stations on the link if `known` is `None`.
    pub(crate) fn solicit(&mut self, now: Instant, key: NeighbourKey, known: Option<MacAddress>) {
        let own = self.devices[usize::from(key.device.0)].address_for(key.address);
        let result = match (own, key.address) {
            (Some(IpAddr::V4(from)), IpAddr::V4(to)) => {
                self.send_arp(key.device, true, from, known.unwrap_or(MacAddress::BROADCAST), to)
            }
            (Some(IpAddr::V6(from)), IpAddr::V6(target)) => self.send_solicitation(now, key.device, from, target),
            (Some(_) | None, _) => Err(IpDrop::NoRoute.into()),
        };
        if let Err(reason) = result {
            self.drops.count(reason);
        }
    }

    /// Performs the actions that are due in the neighbour table.
    pub(crate) fn handle_neighbour_timeout(&mut self, now: Instant) {
        while let Some(due) = self.neighbours.due(now) {
            match due {
                Due::Ask(key, known) => self.solicit(now, key, known),
                Due::Silent(key, waiting) => {
                    for outgoing in waiting {
                        self.drops.count(NeighbourDrop::Silent);
                        self.send_error(now, key.device, outgoing.packet(), false, IcmpError::HostUnreachable);
                    }
                }
            }
        }
    }

    pub(crate) fn input_arp(&mut self, now: Instant, device: DeviceId, bytes: &[u8]) -> Result<(), DropReason> {
        let packet = ArpPacket::parse(bytes).ok_or(NeighbourDrop::Malformed)?;
        let ArpPacket { is_request, sender_mac: mac, sender: from, target: to, .. } = packet;
        if self.is_own(from.into()) {
            return Err(NeighbourDrop::OurAddress.into());
        }
        // Refuse a sender address that no station can have. A probe (RFC 5227 1.1) is accepted. It has no sender address, because
        // its station has none yet.
        if !from.is_unspecified() && (is_martian_source(from) || self.is_no_source(from)) {
            return Err(NeighbourDrop::Malformed.into());
        }
        let own = &self.devices[usize::from(device.0)];
        if !from.is_unspecified() && !own.filter.admits(from.into()) {
            return Err(NeighbourDrop::Refused.into());
        }
        let for_us = own.has(to.into());
        let on_link = own.config.addresses.iter().any(|prefix| prefix.covers(from.into()));
        if !from.is_unspecified() && on_link {
            let key = NeighbourKey { device, address: from.into() };
            let (answers, creates) = (!is_request && for_us, is_request && for_us);
            match self.neighbours.learn(now, key, Learned { mac, answers, replaces: true, creates }) {
                Ok(released) => self.release(key, mac, released),
                Err(reason) if !is_request => return Err(reason.into()),
                Err(_) => {}
            }
        }
        match (is_request, for_us) {
            (true, true) => self.send_arp(device, false, to, mac, from),
            (_, false) => Err(NeighbourDrop::NotOurs.into()),
            (false, true) => Ok(()),
        }
    }

    fn send_arp(
        &mut self,
        device: DeviceId,
        is_request: bool,
        from: Ipv4Addr,
        mac: MacAddress,
        to: Ipv4Addr,
    ) -> Result<(), DropReason> {
        let device = &mut self.devices[usize::from(device.0)];
        let Medium::Ethernet(own) = device.config.medium else { return Err(LinkDrop::Protocol.into()) };
        let target_mac = if mac == MacAddress::BROADCAST { MacAddress([0; 6]) } else { mac };
        let mut bytes = ArpPacket { is_request, sender_mac: own, sender: from, target_mac, target: to }.packet();
        device.write_link_header(mac, EthernetProtocol::Arp, &mut bytes);
        Ok(device.push(Outgoing { bytes, marks: Marks::default() })?)
    }

    /// Checks a neighbour discovery message (RFC 4861 7.1) and processes it.
    pub(crate) fn input_neighbour(&mut self, now: Instant, input: &LocalPacket<'_>) -> Result<(), DropReason> {
        let message = NeighbourMessage::parse(input.transport()).filter(|_| input.hop_limit == 255);
        let (Some(message), IpAddr::V6(from), IpAddr::V6(to)) = (message, input.from, input.to) else {
            return Err(NeighbourDrop::Malformed.into());
        };
        let device = input.arrival.device;
        if !matches!(self.devices[usize::from(device.0)].config.medium, Medium::Ethernet(_)) {
            return Err(NeighbourDrop::Unasked.into());
        }
        match message {
            NeighbourMessage::Solicitation { target, source_mac } => {
                let probe = from.is_unspecified();
                if probe && (source_mac.is_some() || to != solicited_node(target)) {
                    return Err(NeighbourDrop::Malformed.into());
                }
                self.input_solicitation(now, device, from, target, source_mac)
            }
            NeighbourMessage::Advertisement { flags, .. } if flags.solicited && input.arrival.to_group => {
                Err(NeighbourDrop::Malformed.into())
            }
            NeighbourMessage::Advertisement { target, target_mac, flags } => {
                self.input_advertisement(now, device, target, target_mac, flags)
            }
        }
    }

    fn input_solicitation(
        &mut self,
        now: Instant,
        device: DeviceId,
        from: Ipv6Addr,
        target: Ipv6Addr,
        mac: Option<MacAddress>,
    ) -> Result<(), DropReason> {
        if !self.devices[usize::from(device.0)].has(target.into()) {
            return Err(NeighbourDrop::NotOurs.into());
        }
        if let Some(mac) = mac {
            let key = NeighbourKey { device, address: from.into() };
            let learned = Learned { mac, answers: false, replaces: true, creates: true };
            let released = self.neighbours.learn(now, key, learned)?;
            self.release(key, mac, released);
        }
        // A probe has no source address. Its answer therefore goes to all nodes, and is not marked as solicited.
        let probe = from.is_unspecified();
        let to = if probe { ALL_NODES } else { from };
        let flags = Flags { router: self.policy.forwarding, solicited: !probe, overrides: true };
        let target_mac = self.mac_of(device)?;
        let answer = NeighbourMessage::Advertisement { target, target_mac: Some(target_mac), flags };
        self.send_icmp(now, target.into(), to.into(), answer.message(), Some(device))
    }

    fn input_advertisement(
        &mut self,
        now: Instant,
        device: DeviceId,
        target: Ipv6Addr,
        mac: Option<MacAddress>,
        flags: Flags,
    ) -> Result<(), DropReason> {
        let own = &self.devices[usize::from(device.0)];
        if own.has(target.into()) {
            return Err(NeighbourDrop::OurAddress.into());
        }
        if !own.filter.admits(target.into()) {
            return Err(NeighbourDrop::Refused.into());
        }
        let key = NeighbourKey { device, address: target.into() };
        let mac = mac.or_else(|| self.neighbours.resolve(now, key)).ok_or(NeighbourDrop::Unasked)?;
        let learned = Learned { mac, answers: flags.solicited, replaces: flags.overrides, creates: false };
        let released = self.neighbours.learn(now, key, learned)?;
        self.release(key, mac, released);
        Ok(())
    }

    fn send_solicitation(
        &mut self,
        now: Instant,
        device: DeviceId,
        from: Ipv6Addr,
        target: Ipv6Addr,
    ) -> Result<(), DropReason> {
        let source_mac = Some(self.mac_of(device)?);
        let message = NeighbourMessage::Solicitation { target, source_mac }.message();
        self.send_icmp(now, from.into(), solicited_node(target).into(), message, Some(device))
    }

    fn mac_of(&self, device: DeviceId) -> Result<MacAddress, LinkDrop> {
        match self.devices[usize::from(device.0)].config.medium {
            Medium::Ethernet(own) => Ok(own),
            Medium::Ip => Err(LinkDrop::Protocol),
        }
    }

    /// Sends the packets that waited for the link address of a neighbour.
    fn release(&mut self, key: NeighbourKey, mac: MacAddress, waiting: VecDeque<Outgoing>) {
        let device = &mut self.devices[usize::from(key.device.0)];
        let protocol = if key.address.is_ipv4() { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
        for mut outgoing in waiting {
            device.write_link_header(mac, protocol, &mut outgoing.bytes);
            if let Err(reason) = device.push(outgoing) {
                self.drops.count(reason);
            }
        }
    }
}
