//! ARP packets for IPv4 over Ethernet (RFC 826).

use super::ethernet::{LINK_BYTES, MacAddress};
use smoltcp::wire::{self, ArpRepr, EthernetAddress};
use std::net::Ipv4Addr;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArpPacket {
    pub(crate) is_request: bool,
    pub(crate) sender_mac: MacAddress,
    pub(crate) sender: Ipv4Addr,
    pub(crate) target_mac: MacAddress,
    pub(crate) target: Ipv4Addr,
}

impl ArpPacket {
    /// Parses a packet. Returns `None` if its format is wrong, or if the sender's Ethernet address is zero or a group address.
    pub(crate) fn parse(bytes: &[u8]) -> Option<Self> {
        let packet = wire::ArpPacket::new_checked(bytes).and_then(|packet| ArpRepr::parse(&packet)).ok()?;
        let ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(sender_mac),
            source_protocol_addr: sender,
            target_hardware_addr: EthernetAddress(target_mac),
            target_protocol_addr: target,
        } = packet
        else {
            return None;
        };
        let (sender_mac, target_mac) = (MacAddress(sender_mac), MacAddress(target_mac));
        let is_request = operation == wire::ArpOperation::Request;
        let is_station = !sender_mac.is_group() && sender_mac != MacAddress([0; 6]);
        is_station.then_some(Self { is_request, sender_mac, sender, target_mac, target })
    }

    /// Builds the packet, preceded by [`LINK_BYTES`] free bytes for the link header.
    pub(crate) fn packet(&self) -> Vec<u8> {
        let operation = if self.is_request { wire::ArpOperation::Request } else { wire::ArpOperation::Reply };
        let repr = ArpRepr::EthernetIpv4 {
            operation,
            source_hardware_addr: EthernetAddress(self.sender_mac.0),
            source_protocol_addr: self.sender,
            target_hardware_addr: EthernetAddress(self.target_mac.0),
            target_protocol_addr: self.target,
        };
        let mut bytes = vec![0; LINK_BYTES + repr.buffer_len()];
        repr.emit(&mut wire::ArpPacket::new_unchecked(&mut bytes[LINK_BYTES..]));
        bytes
    }
}
