//! The messages of address resolution: ARP (RFC 826, RFC 5227 2.1.1) and neighbour solicitation and advertisement (RFC 4861 7), read
//! and written. What they mean for the table is in `neighbour.rs`. Router discovery is left out: addresses and routes are given.

use crate::drops::{DropReason, LinkDrop, NeighbourDrop};
use crate::ip::icmp::IcmpError;
use crate::link::device::{Medium, Outgoing};
use crate::link::frame::{DeviceId, Marks};
use crate::link::neighbour::{Due, Learned, NeighbourKey};
use crate::stack::{Input, Stack, is_martian_source};
use crate::tcp::Storage;
use crate::time::Instant;
use crate::wire::ethernet::{LINK_BYTES, MacAddress};
use crate::wire::ipv6::solicited_node;
use smoltcp::wire::{ArpOperation, ArpPacket, ArpRepr, EthernetAddress, EthernetProtocol};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;
const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);

impl<S: Storage> Stack<S> {
    /// Asks for a neighbour: the whole link, or the station that had the address.
    pub(crate) fn solicit(&mut self, now: Instant, key: NeighbourKey, known: Option<MacAddress>) {
        let result = match key.address {
            IpAddr::V4(address) => self.send_arp_request(key.device, address, known),
            IpAddr::V6(address) => self.send_solicitation(now, key.device, address),
        };
        if let Err(reason) = result {
            self.drops.count(reason);
        }
    }

    /// Does what is due in the table of neighbours.
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
        let packet = ArpPacket::new_checked(bytes).and_then(|packet| ArpRepr::parse(&packet));
        let Ok(ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(mac),
            source_protocol_addr: from,
            target_protocol_addr: to,
            ..
        }) = packet
        else {
            return Err(NeighbourDrop::Malformed.into());
        };
        let mac = MacAddress(mac);
        if mac.is_group() || mac == MacAddress([0; 6]) {
            return Err(NeighbourDrop::Malformed.into());
        }
        if self.is_own(from.into()) {
            return Err(NeighbourDrop::OurAddress.into());
        }
        // No station has such an address; a probe (RFC 5227 1.1) is of one that has none yet.
        if !from.is_unspecified() && (is_martian_source(from) || self.is_no_source(from)) {
            return Err(NeighbourDrop::Malformed.into());
        }
        let own = &self.devices[usize::from(device.0)];
        if !from.is_unspecified() && !own.filter.admits(from.into()) {
            return Err(NeighbourDrop::Refused.into());
        }
        let for_us = own.has(to.into());
        let on_link = own.config.addresses.iter().any(|prefix| prefix.covers(from.into()));
        let request = operation == ArpOperation::Request;
        if !from.is_unspecified() && on_link {
            let key = NeighbourKey { device, address: from.into() };
            let learned = Learned { mac, answers: !request && for_us, replaces: true, creates: request && for_us };
            match self.neighbours.learn(now, key, learned) {
                Ok(released) => self.release(key, mac, released),
                Err(reason) if !request => return Err(reason.into()),
                Err(_) => {}
            }
        }
        match (request, for_us) {
            (true, true) => self.send_arp(device, ArpOperation::Reply, to, mac, from),
            (_, false) => Err(NeighbourDrop::NotOurs.into()),
            (false, true) => Ok(()),
        }
    }

    fn send_arp_request(
        &mut self,
        device: DeviceId,
        address: Ipv4Addr,
        known: Option<MacAddress>,
    ) -> Result<(), DropReason> {
        let own = self.devices[usize::from(device.0)].address_for(address.into());
        let Some(IpAddr::V4(from)) = own else { return Err(crate::drops::IpDrop::NoRoute.into()) };
        self.send_arp(device, ArpOperation::Request, from, known.unwrap_or(MacAddress::BROADCAST), address)
    }

    fn send_arp(
        &mut self,
        device: DeviceId,
        operation: ArpOperation,
        from: Ipv4Addr,
        mac: MacAddress,
        to: Ipv4Addr,
    ) -> Result<(), DropReason> {
        let device = &mut self.devices[usize::from(device.0)];
        let Medium::Ethernet(own) = device.config.medium else { return Err(LinkDrop::Protocol.into()) };
        let target = if mac == MacAddress::BROADCAST { [0; 6] } else { mac.0 };
        let repr = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(own.0),
            source_protocol_addr: from,
            target_hardware_addr: EthernetAddress(target),
            target_protocol_addr: to,
        };
        let mut bytes = vec![0; LINK_BYTES + repr.buffer_len()];
        device.write_link_header(mac, EthernetProtocol::Arp, &mut bytes);
        repr.emit(&mut ArpPacket::new_unchecked(&mut bytes[LINK_BYTES..]));
        Ok(device.push(Outgoing { bytes, marks: Marks::default() })?)
    }

    /// Neighbour messages, checked by RFC 4861 7.1.
    pub(crate) fn input_neighbour(
        &mut self,
        now: Instant,
        input: &Input<'_>,
        message: &[u8],
        code: u8,
    ) -> Result<(), DropReason> {
        let target = message.get(8..24).and_then(<[u8]>::first_chunk::<16>).map(|octets| Ipv6Addr::from(*octets));
        let target = target.filter(|target| input.hop_limit == 255 && code == 0 && !target.is_multicast());
        let (Some(target), IpAddr::V6(from), IpAddr::V6(to)) = (target, input.from, input.to) else {
            return Err(NeighbourDrop::Malformed.into());
        };
        let kind = if message[0] == SOLICITATION { SOURCE_LINK_ADDRESS } else { TARGET_LINK_ADDRESS };
        let mac = link_address(&message[24..], kind).ok_or(NeighbourDrop::Malformed)?;
        if !matches!(self.devices[usize::from(input.device.0)].config.medium, Medium::Ethernet(_)) {
            return Err(NeighbourDrop::Unasked.into());
        }
        if message[0] == SOLICITATION {
            self.input_solicitation(now, input.device, from, to, target, mac)
        } else {
            let flags = message[4];
            self.input_advertisement(now, input, target, mac, flags)
        }
    }

    fn input_solicitation(
        &mut self,
        now: Instant,
        device: DeviceId,
        from: Ipv6Addr,
        to: Ipv6Addr,
        target: Ipv6Addr,
        mac: Option<MacAddress>,
    ) -> Result<(), DropReason> {
        let probe = from.is_unspecified();
        if probe && (mac.is_some() || to != solicited_node(target)) {
            return Err(NeighbourDrop::Malformed.into());
        }
        if !self.devices[usize::from(device.0)].has(target.into()) {
            return Err(NeighbourDrop::NotOurs.into());
        }
        if let Some(mac) = mac {
            let key = NeighbourKey { device, address: from.into() };
            let learned = Learned { mac, answers: false, replaces: true, creates: true };
            let released = self.neighbours.learn(now, key, learned)?;
            self.release(key, mac, released);
        }
        // Solicited unless it answers a probe, and overriding.
        let (to, flags) = if probe { (ALL_NODES, 0x20) } else { (from, 0x60) };
        let flags = if self.forwarding { flags | 0x80 } else { flags };
        self.send_neighbour(now, device, target, to, target, [ADVERTISEMENT, flags, TARGET_LINK_ADDRESS])
    }

    fn input_advertisement(
        &mut self,
        now: Instant,
        input: &Input<'_>,
        target: Ipv6Addr,
        mac: Option<MacAddress>,
        flags: u8,
    ) -> Result<(), DropReason> {
        let (solicited, overrides) = (flags & 0x40 != 0, flags & 0x20 != 0);
        if solicited && input.to_group {
            return Err(NeighbourDrop::Malformed.into());
        }
        let own = &self.devices[usize::from(input.device.0)];
        if own.has(target.into()) {
            return Err(NeighbourDrop::OurAddress.into());
        }
        if !own.filter.admits(target.into()) {
            return Err(NeighbourDrop::Refused.into());
        }
        let key = NeighbourKey { device: input.device, address: target.into() };
        let mac = mac.or_else(|| self.neighbours.resolve(now, key)).ok_or(NeighbourDrop::Unasked)?;
        let learned = Learned { mac, answers: solicited, replaces: overrides, creates: false };
        let released = self.neighbours.learn(now, key, learned)?;
        self.release(key, mac, released);
        Ok(())
    }

    fn send_solicitation(&mut self, now: Instant, device: DeviceId, address: Ipv6Addr) -> Result<(), DropReason> {
        let own = self.devices[usize::from(device.0)].address_for(address.into());
        let Some(IpAddr::V6(from)) = own else { return Err(crate::drops::IpDrop::NoRoute.into()) };
        let to = solicited_node(address);
        self.send_neighbour(now, device, from, to, address, [SOLICITATION, 0, SOURCE_LINK_ADDRESS])
    }

    /// A message about `target`, with our own link address in an option.
    fn send_neighbour(
        &mut self,
        now: Instant,
        device: DeviceId,
        from: Ipv6Addr,
        to: Ipv6Addr,
        target: Ipv6Addr,
        [kind, flags, option]: [u8; 3],
    ) -> Result<(), DropReason> {
        let Medium::Ethernet(own) = self.devices[usize::from(device.0)].config.medium else {
            return Err(LinkDrop::Protocol.into());
        };
        let mut message = vec![kind, 0, 0, 0, flags, 0, 0, 0];
        message.extend_from_slice(&target.octets());
        message.extend_from_slice(&[option, 1]);
        message.extend_from_slice(&own.0);
        self.send_icmp(now, from.into(), to.into(), message, Some(device))
    }

    /// Sends what waited for a neighbour.
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

/// The link address in an option of this kind, if there is one; `None` for options against their format.
fn link_address(mut options: &[u8], kind: u8) -> Option<Option<MacAddress>> {
    let mut found = None;
    while !options.is_empty() {
        let length = 8 * usize::from(*options.get(1)?);
        if length == 0 || length > options.len() {
            return None;
        }
        if options[0] == kind {
            let mac = MacAddress(*options[2..].first_chunk()?);
            if length != 8 || mac.is_group() {
                return None;
            }
            found = Some(mac);
        }
        options = &options[length..];
    }
    Some(found)
}
