//! Source protection: a station at a protected port can use only its own Ethernet address, and only the IP addresses that the
//! topology gives it. This applies to IP packets, ARP packets and neighbour discovery messages.
//!
//! Unspecified addresses are allowed, because a station without an address sends from them. Such a station probes whether others use an
//! address (RFC 4862 5.4, RFC 5227 2.1). The probe claims the address, so a station can probe only its own.

use super::drops::DropReason;
use super::frame::{ARP, IPV4, IPV6};
use crate::limits::EXTENSIONS_MAX;
use siga_model::mac::Mac;
use siga_stack::link::source::Sources;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The addresses that the station at a port may use.
#[derive(Debug)]
pub(crate) struct Guard {
    pub(crate) mac: Mac,
    pub(crate) sources: Sources,
    /// The addresses of the station itself, which it may claim by ARP and neighbour discovery.
    pub(crate) own: Sources,
    /// True if the station may announce itself as a router.
    pub(crate) is_router: bool,
}

/// The smallest type of an Ethernet frame. A smaller number is a length (IEEE 802.3).
const TYPE_MIN: u16 = 0x0600;
const ICMPV6: u8 = 58;
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
const IPV6_HEADER_BYTES: usize = 40;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOUR_SOLICITATION: u8 = 135;
const NEIGHBOUR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;
const SOURCE_LINK_ADDRESS: u8 = 1;
const TARGET_LINK_ADDRESS: u8 = 2;

impl Guard {
    /// Checks the Ethernet source address of a frame.
    #[inline]
    pub(crate) fn check_mac(&self, source: [u8; 6]) -> Result<(), DropReason> {
        if source == self.mac.0 { Ok(()) } else { Err(DropReason::SpoofedMac) }
    }

    /// Checks the addresses that a packet claims. `packet` has the first bytes of the packet, which has `packet_bytes` bytes.
    #[inline]
    pub(crate) fn check(&self, ethertype: u16, packet: &[u8], packet_bytes: usize) -> Result<(), DropReason> {
        match ethertype {
            IPV4 => {
                let from = packet.get(12..16).and_then(|from| from.first_chunk::<4>()).ok_or(DropReason::Malformed)?;
                self.admits(Ipv4Addr::from(*from).into())
            }
            IPV6 => self.check_v6(packet, packet_bytes),
            ARP => self.check_arp(packet),
            // A length and no type: the packet could be in an LLC header, which receivers may also read.
            0..TYPE_MIN => Err(DropReason::Protocol),
            _ => Ok(()),
        }
    }

    /// Checks an address that the station claims to have itself.
    fn owns(&self, claimed: IpAddr) -> Result<(), DropReason> {
        let fits =
            self.own.admits(claimed) || matches!(claimed, IpAddr::V6(claimed) if claimed == self.mac.link_local());
        if fits { Ok(()) } else { Err(DropReason::SpoofedIp) }
    }

    #[inline]
    fn admits(&self, from: IpAddr) -> Result<(), DropReason> {
        let fits = from.is_unspecified()
            || self.sources.admits(from)
            || matches!(from, IpAddr::V6(from) if from == self.mac.link_local());
        if fits { Ok(()) } else { Err(DropReason::SpoofedIp) }
    }

    fn check_arp(&self, packet: &[u8]) -> Result<(), DropReason> {
        // Ethernet and IPv4 with their address lengths (RFC 826).
        if packet.get(..6) != Some(&[0, 1, 8, 0, 6, 4]) {
            return Err(DropReason::Malformed);
        }
        let sender = packet.get(8..14).ok_or(DropReason::Malformed)?;
        let from = packet.get(14..18).and_then(|from| from.first_chunk::<4>()).ok_or(DropReason::Malformed)?;
        if sender != self.mac.0 {
            return Err(DropReason::SpoofedMac);
        }
        let from = Ipv4Addr::from(*from);
        let target = packet.get(24..28).and_then(|target| target.first_chunk::<4>()).ok_or(DropReason::Malformed)?;
        let claimed = if from.is_unspecified() { Ipv4Addr::from(*target) } else { from };
        self.owns(claimed.into())
    }

    fn check_v6(&self, packet: &[u8], packet_bytes: usize) -> Result<(), DropReason> {
        let from = packet.get(8..24).and_then(|from| from.first_chunk::<16>()).ok_or(DropReason::Malformed)?;
        let from = Ipv6Addr::from(*from);
        self.admits(from.into())?;
        let mut next = *packet.get(6).ok_or(DropReason::Malformed)?;
        let mut at = IPV6_HEADER_BYTES;
        let mut is_fragment = false;
        for _ in 0..=EXTENSIONS_MAX {
            let header = packet.get(at..at + 8);
            match next {
                ICMPV6 if at >= packet_bytes => return Ok(()),
                ICMPV6 => {
                    let message = packet.get(at..).unwrap_or_default();
                    return self.check_icmp(from, message, packet_bytes - at, is_fragment);
                }
                HOP_BY_HOP | ROUTING | DESTINATION_OPTIONS => {
                    let header = header.ok_or(DropReason::Unclear)?;
                    next = header[0];
                    at += (usize::from(header[1]) + 1) * 8;
                }
                FRAGMENT => {
                    let header = header.ok_or(DropReason::Unclear)?;
                    if u16::from_be_bytes([header[2], header[3]]) & !7 != 0 {
                        return Ok(());
                    }
                    (next, is_fragment) = (header[0], true);
                    at += 8;
                }
                _ => return Ok(()),
            }
        }
        Err(DropReason::Unclear)
    }

    /// Checks an ICMPv6 message. `message` has its first bytes. Receivers ignore neighbour discovery messages in fragments (RFC
    /// 6980), so these are dropped.
    fn check_icmp(&self, from: Ipv6Addr, message: &[u8], bytes: usize, is_fragment: bool) -> Result<(), DropReason> {
        let kind = *message.first().ok_or(DropReason::Unclear)?;
        let options_at = match kind {
            ROUTER_SOLICITATION => 8,
            NEIGHBOUR_SOLICITATION | NEIGHBOUR_ADVERTISEMENT => 24,
            ROUTER_ADVERTISEMENT | REDIRECT if !self.is_router => return Err(DropReason::RouterMessage),
            ROUTER_ADVERTISEMENT => 16,
            REDIRECT => 40,
            _ => return Ok(()),
        };
        if is_fragment {
            return Err(DropReason::Malformed);
        }
        // A redirect quotes a packet, and a router advertisement may have many prefixes, so these may be longer than the part that is
        // here.
        let is_cut = message.len() < bytes;
        if is_cut && !matches!(kind, REDIRECT | ROUTER_ADVERTISEMENT) {
            return Err(DropReason::Unclear);
        }
        let is_probe = kind == NEIGHBOUR_SOLICITATION && from.is_unspecified();
        if kind == NEIGHBOUR_ADVERTISEMENT || is_probe {
            let target =
                message.get(8..24).and_then(|target| target.first_chunk::<16>()).ok_or(DropReason::Malformed)?;
            self.owns(Ipv6Addr::from(*target).into())?;
        }
        if kind == REDIRECT {
            Ok(())
        } else {
            self.check_options(message.get(options_at..).unwrap_or_default(), is_cut)
        }
    }

    /// Checks the link addresses in the options of a neighbour discovery message. If the message is cut, the last option may be
    /// incomplete.
    fn check_options(&self, mut options: &[u8], is_cut: bool) -> Result<(), DropReason> {
        while let [kind, length, ..] = *options {
            let bytes = usize::from(length) * 8;
            let option = match options.get(..bytes) {
                None if is_cut => return Ok(()),
                None | Some([]) => return Err(DropReason::Malformed),
                Some(option) => option,
            };
            if matches!(kind, SOURCE_LINK_ADDRESS | TARGET_LINK_ADDRESS) && option.get(2..8) != Some(&self.mac.0) {
                return Err(DropReason::SpoofedMac);
            }
            options = &options[option.len()..];
        }
        Ok(())
    }
}
