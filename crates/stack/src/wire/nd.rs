//! Messages of neighbour discovery (RFC 4861 4): solicitations, advertisements and redirects, with their options.

use super::ethernet::MacAddress;
use super::icmp::{HEADER_BYTES, IcmpHeader, v6};
use std::net::Ipv6Addr;

/// A neighbour discovery option that contains a link-layer address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkOption {
    SourceLinkAddress = 1,
    TargetLinkAddress = 2,
}

const REDIRECTED_HEADER: u8 = 4;
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
