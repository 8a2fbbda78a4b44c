//! Messages of neighbour discovery (RFC 4861 4): solicitations, advertisements and redirects, with their options.

use super::address::Prefix;
use super::ethernet::MacAddress;
use super::icmp::{HEADER_BYTES, IcmpHeader, v6};
use std::net::{IpAddr, Ipv6Addr};

/// A neighbour discovery option that contains a link-layer address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkOption {
    SourceLinkAddress = 1,
    TargetLinkAddress = 2,
}

const PREFIX_INFORMATION: u8 = 3;
const REDIRECTED_HEADER: u8 = 4;
const MTU: u8 = 5;
const ROUTE_INFORMATION: u8 = 24;
/// The unit of the length field of an option, in bytes.
const UNIT_BYTES: usize = 8;

const ROUTER: u32 = 1 << 31;
const SOLICITED: u32 = 1 << 30;
const OVERRIDE: u32 = 1 << 29;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NeighbourMessage {
    Solicitation { target: Ipv6Addr, source_mac: Option<MacAddress> },
    Advertisement { target: Ipv6Addr, target_mac: Option<MacAddress>, flags: Flags },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags {
    /// Router flag: the sender is a router.
    pub(crate) router: bool,
    /// Solicited flag: the advertisement answers a solicitation.
    pub(crate) solicited: bool,
    /// Override flag: the advertisement replaces the link-layer address that the receiver has stored.
    pub(crate) overrides: bool,
}

impl NeighbourMessage {
    /// Parses a message. Returns `None` if the content of the message is invalid (RFC 4861 7.1). The caller has checked the IP
    /// header and the checksum.
    pub(crate) fn parse(message: &[u8]) -> Option<Self> {
        let header = IcmpHeader::parse(message).filter(|header| header.code == 0)?;
        let target = message.get(HEADER_BYTES..)?.first_chunk::<16>().map(|octets| Ipv6Addr::from(*octets))?;
        if target.is_multicast() {
            return None;
        }
        let options = &message[HEADER_BYTES + 16..];
        if header.kind == v6::NEIGHBOUR_SOLICITATION {
            let source_mac = link_address(options, LinkOption::SourceLinkAddress)?;
            return Some(Self::Solicitation { target, source_mac });
        }
        let target_mac = link_address(options, LinkOption::TargetLinkAddress)?;
        let is_set = |flag: u32| header.rest & flag != 0;
        let flags = Flags { router: is_set(ROUTER), solicited: is_set(SOLICITED), overrides: is_set(OVERRIDE) };
        Some(Self::Advertisement { target, target_mac, flags })
    }

    /// Builds the message. The caller fills in the checksum, which is left 0.
    pub(crate) fn message(self) -> Vec<u8> {
        let (kind, rest, target, mac, option) = match self {
            Self::Solicitation { target, source_mac } => {
                (v6::NEIGHBOUR_SOLICITATION, 0, target, source_mac, LinkOption::SourceLinkAddress)
            }
            Self::Advertisement { target, target_mac, flags } => {
                let bits = [(flags.router, ROUTER), (flags.solicited, SOLICITED), (flags.overrides, OVERRIDE)];
                let rest = bits.iter().filter(|(on, _)| *on).fold(0, |rest, (_, bit)| rest | bit);
                (v6::NEIGHBOUR_ADVERTISEMENT, rest, target, target_mac, LinkOption::TargetLinkAddress)
            }
        };
        let mut message = IcmpHeader { kind, code: 0, rest }.message(&target.octets());
        if let Some(mac) = mac {
            push_link_address(&mut message, option, mac);
        }
        message
    }
}

/// A redirect message: it asks a host to send packets for `to` through the next hop `next` (RFC 4861 4.5).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Redirect<'a> {
    pub(crate) next: Ipv6Addr,
    /// The link-layer address of `next`, if the router knows it.
    pub(crate) next_mac: Option<MacAddress>,
    pub(crate) to: Ipv6Addr,
    /// The packet that caused the redirect, or its first bytes.
    pub(crate) packet: &'a [u8],
}

impl Redirect<'_> {
    /// Builds a message of at most `bytes_max` bytes. The caller fills in the checksum, which is left 0.
    pub(crate) fn message(&self, bytes_max: usize) -> Vec<u8> {
        let header = IcmpHeader { kind: v6::REDIRECT, code: 0, rest: 0 };
        let mut message = header.message(&[self.next.octets(), self.to.octets()].concat());
        if let Some(mac) = self.next_mac {
            push_link_address(&mut message, LinkOption::TargetLinkAddress, mac);
        }
        let room = bytes_max - message.len() - UNIT_BYTES;
        let units = self.packet.len().min(room) / UNIT_BYTES;
        message.extend_from_slice(&[REDIRECTED_HEADER, u8::try_from(1 + units).unwrap_or(u8::MAX)]);
        message.extend_from_slice(&[0; UNIT_BYTES - 2]);
        message.extend_from_slice(&self.packet[..units * UNIT_BYTES]);
        message
    }
}

/// A router advertisement (RFC 4861 4.2), with routes to prefixes (RFC 4191 2.3).
#[derive(Debug, Clone, Copy)]
pub(crate) struct RouterAdvertisement<'a> {
    pub(crate) hop_limit: u8,
    /// The time for which hosts may use the sender as a default router. With 0, they may not.
    pub(crate) lifetime_s: u16,
    pub(crate) mac: MacAddress,
    pub(crate) mtu: u16,
    /// The prefixes of the link. Stations make addresses from those of 64 bits (RFC 4862 5.5.3).
    pub(crate) prefixes: &'a [Prefix],
    pub(crate) valid_s: u32,
    pub(crate) preferred_s: u32,
    /// The prefixes to which the sender has routes.
    pub(crate) routes: &'a [Prefix],
    pub(crate) route_lifetime_s: u32,
}

impl RouterAdvertisement<'_> {
    /// Builds the message. The caller fills in the checksum, which is left 0.
    pub(crate) fn message(&self) -> Vec<u8> {
        const ON_LINK: u8 = 0x80;
        const AUTONOMOUS: u8 = 0x40;
        const INTERFACE_BITS: u8 = 64;
        let rest = u32::from(self.hop_limit) << 24 | u32::from(self.lifetime_s);
        // Neither a reachable time nor a retransmission timer.
        let mut message = IcmpHeader { kind: v6::ROUTER_ADVERTISEMENT, code: 0, rest }.message(&[0; 8]);
        push_link_address(&mut message, LinkOption::SourceLinkAddress, self.mac);
        message.extend_from_slice(&[MTU, 1, 0, 0]);
        message.extend_from_slice(&u32::from(self.mtu).to_be_bytes());
        for prefix in self.prefixes {
            let Some(octets) = network_of(*prefix) else { continue };
            let autonomous = if prefix.length() == INTERFACE_BITS { AUTONOMOUS } else { 0 };
            message.extend_from_slice(&[PREFIX_INFORMATION, 4, prefix.length(), ON_LINK | autonomous]);
            message.extend_from_slice(&self.valid_s.to_be_bytes());
            message.extend_from_slice(&self.preferred_s.to_be_bytes());
            message.extend_from_slice(&[0; 4]);
            message.extend_from_slice(&octets);
        }
        for route in self.routes {
            let Some(octets) = network_of(*route) else { continue };
            message.extend_from_slice(&[ROUTE_INFORMATION, 3, route.length(), 0]);
            message.extend_from_slice(&self.route_lifetime_s.to_be_bytes());
            message.extend_from_slice(&octets);
        }
        message
    }
}

/// Returns the octets of an IPv6 prefix without its host bits.
fn network_of(prefix: Prefix) -> Option<[u8; 16]> {
    let IpAddr::V6(address) = prefix.address() else { return None };
    let mask = u128::MAX.checked_shl(128 - u32::from(prefix.length())).unwrap_or(0);
    Some((address.to_bits() & mask).to_be_bytes())
}

/// Returns true if a message is a valid router solicitation (RFC 4861 6.1.1). The caller has checked the IP header and the checksum.
pub(crate) fn is_router_solicitation(message: &[u8], from: Ipv6Addr) -> bool {
    let Some(header) = IcmpHeader::parse(message) else { return false };
    let option = link_address(&message[HEADER_BYTES..], LinkOption::SourceLinkAddress);
    let fits = option.is_some_and(|mac| mac.is_none() || !from.is_unspecified());
    header.kind == v6::ROUTER_SOLICITATION && header.code == 0 && fits
}

fn push_link_address(message: &mut Vec<u8>, option: LinkOption, mac: MacAddress) {
    message.extend_from_slice(&[option as u8, 1]);
    message.extend_from_slice(&mac.0);
}

/// Returns the link-layer address in the option of this kind. Returns `Some(None)` if no option has this kind, and `None` if the
/// format of the options is wrong.
fn link_address(mut options: &[u8], kind: LinkOption) -> Option<Option<MacAddress>> {
    let mut found = None;
    while let [option, units, ..] = *options {
        let length = UNIT_BYTES * usize::from(units);
        let (value, rest) = options.split_at_checked(length).filter(|_| length > 0)?;
        if option == kind as u8 {
            let mac = MacAddress(*value[2..].first_chunk()?);
            if length != UNIT_BYTES || mac.is_group() {
                return None;
            }
            found = Some(mac);
        }
        options = rest;
    }
    options.is_empty().then_some(found)
}
