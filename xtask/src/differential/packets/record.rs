//! The record of what the host under test did in a sequence: the results of calls, and the packets that left each device.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;

use super::build::FRAGMENT;
use crate::differential::packet::{HEADER_V4, PROTOCOL_ICMP, PROTOCOL_ICMP6, checksum, parse_ip};

const PROTOCOL_IGMP: u8 = 2;
const HOP_BY_HOP: u8 = 0;

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Outcome {
    Done,
    /// A datagram was received.
    Received(SocketAddr, Vec<u8>),
    /// There is no datagram.
    Empty,
    Failed(Errno),
    /// The sequence has no socket for this call.
    NoSocket,
}

/// What the host did in one step.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Reaction {
    pub(crate) outcome: Option<Outcome>,
    pub(crate) sent: Vec<Sent>,
}

/// A packet that left a device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) device: u8,
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) hop_limit: u8,
    pub(crate) service: u8,
    pub(crate) flow_label: u32,
    pub(crate) dont_fragment: bool,
    /// Whether the checksum of the IPv4 header and the length field are right.
    pub(crate) intact: bool,
    pub(crate) options: Vec<u8>,
    pub(crate) fragment: Option<Fragment>,
    /// The protocol, or the kind of the first extension header.
    pub(crate) protocol: u8,
    /// Everything behind the IP header, and behind a fragment header that follows it.
    pub(crate) payload: Vec<u8>,
}

/// The place of a fragment in its datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Fragment {
    pub(crate) ident: u32,
    pub(crate) offset: u16,
    pub(crate) more: bool,
}

impl Sent {
    /// Parses a packet. Returns `None` for messages about group membership and neighbours, which no sequence asks for.
    pub(crate) fn parse(device: u8, packet: &[u8]) -> Option<Self> {
        let v6 = packet.first()? >> 4 == 6;
        let header_bytes = if v6 { 40 } else { usize::from(packet[0] & 15) * 4 };
        // The parser of headers expects a header without options.
        let mut plain = packet.to_vec();
        if !v6 && header_bytes > HEADER_V4 && packet.len() >= header_bytes {
            plain[0] = 0x45;
            plain[10..12].fill(0);
            let sum = checksum(&[&plain[..HEADER_V4]]);
            plain[10..12].copy_from_slice(&sum.to_be_bytes());
        }
        let (header, _) = parse_ip(&plain)?;
        let word = |at: usize| u16::from_be_bytes([packet[at], packet[at + 1]]);
        let mut payload = packet.get(header_bytes..)?.to_vec();
        let (mut protocol, mut fragment, intact, options);
        protocol = header.protocol;
        if v6 {
            intact = usize::from(word(4)) == payload.len();
            options = Vec::new();
            fragment = None;
            if protocol == FRAGMENT && payload.len() >= 8 {
                let ident = u32::from_be_bytes([payload[4], payload[5], payload[6], payload[7]]);
                let word = u16::from_be_bytes([payload[2], payload[3]]);
                fragment = Some(Fragment { ident, offset: word & !7, more: word & 1 != 0 });
                protocol = payload[0];
                payload.drain(..8);
            }
        } else {
            intact = usize::from(word(2)) == packet.len() && checksum(&[&packet[..header_bytes]]) == 0;
            options = packet[HEADER_V4..header_bytes].to_vec();
            let place = Fragment { ident: word(4).into(), offset: (word(6) & 0x1fff) * 8, more: word(6) & 0x2000 != 0 };
            fragment = (place.more || place.offset > 0).then_some(place);
        }
        let kind = match (protocol, payload.first()) {
            (PROTOCOL_ICMP6, kind) => kind.copied(),
            (HOP_BY_HOP, Some(&PROTOCOL_ICMP6)) if v6 => payload.get(8).copied(),
            _ => None,
        };
        let is_membership =
            kind.is_some_and(|kind| matches!(kind, 130..=136 | 143)) || (!v6 && protocol == PROTOCOL_IGMP);
        let flow_label = if v6 { u32::from(packet[1] & 15) << 16 | u32::from(word(2)) } else { 0 };
        (!is_membership).then_some(Self {
            device,
            from: header.from,
            to: header.to,
            hop_limit: header.hop_limit,
            service: header.service,
            flow_label,
            dont_fragment: header.dont_fragment,
            intact,
            options,
            fragment,
            protocol,
            payload,
        })
    }

    /// The type and code, if the packet is an ICMP message and not a later fragment of one.
    pub(crate) fn icmp(&self) -> Option<(u8, u8)> {
        let is_icmp = self.protocol == if self.from.is_ipv4() { PROTOCOL_ICMP } else { PROTOCOL_ICMP6 };
        let is_first = self.fragment.is_none_or(|fragment| fragment.offset == 0);
        (is_icmp && is_first && self.payload.len() >= 8).then(|| (self.payload[0], self.payload[1]))
    }

    /// Whether the packet is an ICMP error.
    pub(crate) fn is_error(&self) -> bool {
        let errors: &[u8] = if self.from.is_ipv4() { &[3, 4, 5, 11, 12] } else { &[1, 2, 3, 4] };
        self.icmp().is_some_and(|(kind, _)| errors.contains(&kind))
    }
}

/// Gives the identifications that a host chose numbers in the order of their first use, so that two hosts can be compared.
#[derive(Debug, Default)]
pub(crate) struct Idents {
    /// Identifications of the packets that arrived, which a router keeps.
    pub(crate) arrived: Vec<u32>,
    chosen: BTreeMap<u32, u32>,
}

impl Idents {
    pub(crate) fn number(&mut self, sent: &mut Sent) {
        let Some(fragment) = &mut sent.fragment else { return };
        if !self.arrived.contains(&fragment.ident) {
            let next = 0x1_0000 + u32::try_from(self.chosen.len()).unwrap_or(0);
            fragment.ident = *self.chosen.entry(fragment.ident).or_insert(next);
        }
    }
}

impl fmt::Display for Sent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, from, to, hop_limit, service, flow_label, protocol, payload, .. } = self;
        write!(f, "out {device} from {from} to {to} hops {hop_limit}")?;
        if *service > 0 {
            write!(f, " service {service}")?;
        }
        if *flow_label > 0 {
            write!(f, " label {flow_label}")?;
        }
        if self.dont_fragment && from.is_ipv4() {
            write!(f, " df")?;
        }
        if !self.options.is_empty() {
            write!(f, " options {:02x?}", self.options)?;
        }
        if !self.intact {
            write!(f, " WRONG HEADER")?;
        }
        if let Some(Fragment { ident, offset, more }) = self.fragment {
            write!(f, " fragment {ident:x} {offset} {}", if more { "more" } else { "last" })?;
        }
        match self.icmp() {
            Some((kind, code)) => write!(f, " icmp {kind} {code} {:02x?}", &payload[4..8])?,
            None => write!(f, " protocol {protocol}")?,
        }
        write!(f, " len {}", payload.len())
    }
}
