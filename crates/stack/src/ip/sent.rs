//! A record of the datagrams and echo requests that were sent recently. The record shows whether an ICMP error quotes one of these
//! packets. An error that quotes another datagram or echo request is ignored, because it may be forged.
//!
//! An ICMP error quotes the headers of a packet. The record contains a keyed digest of the quoted part of each sent packet. The
//! record is a table of fixed size. Each flow belongs to a group of flows, and each group has a few entries. A fast flow
//! therefore overwrites only entries of its own group.

use crate::limits::{SENT_AGE, SENT_BUCKETS, SENT_EACH};
use crate::seed::{Purpose, Secret, Seed};
use crate::time::Instant;
use crate::wire::icmp::{Quoted, v4, v6};
use crate::wire::protocol::{ICMP, ICMPV6, UDP};
use std::net::IpAddr;

/// Number of transport header bytes that every ICMP error quotes (RFC 792).
const QUOTED_BYTES: usize = 8;
/// Number of bytes that identify a flow: both addresses, the protocol and the ports.
const FLOW_BYTES: usize = 16 + 16 + 1 + 4;
/// The flag in the IPv4 header that forbids routers to fragment the packet.
const DONT_FRAGMENT: u8 = 0x40;

/// The part of a packet that identifies it in the quote of an ICMP error.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Print {
    flow: [u8; FLOW_BYTES],
    /// For IPv4, the identification and the don't-fragment flag. For IPv6, the flow label.
    header: [u8; 3],
    transport: [u8; QUOTED_BYTES],
}

impl Print {
    /// Returns the print of a datagram or an echo request, and `None` for any other packet. `packet` begins with the IP header.
    pub(crate) fn new(packet: &[u8]) -> Option<Self> {
        let Quoted { from, to, protocol, transport, .. } =
            Quoted::parse(packet).filter(|quoted| !quoted.is_later_fragment)?;
        let transport: &[u8; QUOTED_BYTES] = transport.first_chunk()?;
        let ports = match (protocol, transport[0]) {
            (UDP, _) => [transport[0], transport[1], transport[2], transport[3]],
            // An echo request has no ports, so its identifier takes their place.
            (ICMP, v4::ECHO_REQUEST) | (ICMPV6, v6::ECHO_REQUEST) => [transport[4], transport[5], 0, 0],
            _ => return None,
        };
        let header: &[u8; 8] = packet.first_chunk()?;
        let header = match from {
            IpAddr::V4(_) => [header[4], header[5], header[6] & DONT_FRAGMENT],
            IpAddr::V6(_) => [header[1] & 0x0f, header[2], header[3]],
        };
        let mut flow = [0; FLOW_BYTES];
        for (place, address) in flow.chunks_mut(16).zip([from, to]) {
            match address {
                IpAddr::V4(address) => place[..4].copy_from_slice(&address.octets()),
                IpAddr::V6(address) => place.copy_from_slice(&address.octets()),
            }
        }
        flow[32] = protocol;
        flow[33..].copy_from_slice(&ports);
        Some(Self { flow, header, transport: *transport })
    }
}

#[derive(Debug, Clone, Copy)]
struct Sent {
    digest: u64,
    at: Instant,
    /// Length of the packet, or of its largest fragment, in bytes.
    bytes: u16,
}

pub(crate) const ENTRY_BYTES: usize = size_of::<Option<Sent>>();

#[derive(Debug)]
pub(crate) struct SentPackets {
    /// The entries. The vector is empty until the first datagram is sent. After that, its length is [`SENT_BUCKETS`] times [`SENT_EACH`].
    places: Vec<Option<Sent>>,
    /// Number of places that have ever been used.
    pub(crate) held: usize,
    digests: Secret,
    flows: Secret,
}

impl SentPackets {
    pub(crate) fn new(seed: &Seed) -> Self {
        let (digests, flows) = (seed.secret(Purpose::SentDigests), seed.secret(Purpose::FlowLabels));
        Self { places: Vec::new(), held: 0, digests, flows }
    }

    /// Records a packet that is sent now. `piece_bytes` is the length of its largest piece, in bytes. For IPv6, this function
    /// also sets the flow label (RFC 6437): 20 bits that the sender of a forged error does not know.
    pub(crate) fn note(&mut self, now: Instant, packet: &mut [u8], piece_bytes: usize) {
        let Some(mut print) = Print::new(packet) else { return };
        let flow = self.flows.hash(&print.flow);
        if packet[0] >> 4 == 6 {
            let [.., a, b, c] = flow.to_be_bytes();
            let label = [a & 0x0f, b, c];
            packet[1] = packet[1] & 0xf0 | label[0];
            packet[2..4].copy_from_slice(&label[1..]);
            print.header = label;
        }
        if self.places.is_empty() {
            self.places = vec![None; SENT_BUCKETS * SENT_EACH];
        }
        let sent = Sent { digest: self.digest(&print), at: now, bytes: u16::try_from(piece_bytes).unwrap_or(u16::MAX) };
        // Overwrite the oldest entry only if it is not recent, because errors about recent packets may still arrive. So not every
        // packet of a fast flow is recorded.
        let Some(place) = self.places[bucket(flow)].iter_mut().min_by_key(|place| place.map(|sent| sent.at)) else {
            return;
        };
        if place.is_none_or(|oldest| now >= oldest.at + SENT_AGE / u32::try_from(SENT_EACH).unwrap_or(1)) {
            self.held += usize::from(place.is_none());
            *place = Some(sent);
        }
    }

    /// Returns the length of the quoted packet, or of its largest fragment, in bytes. Returns `None` if no such packet was sent recently.
    pub(crate) fn find(&self, now: Instant, print: &Print) -> Option<u16> {
        let places = self.places.get(bucket(self.flows.hash(&print.flow)))?;
        let digest = self.digest(print);
        let found = places.iter().flatten().find(|sent| sent.digest == digest && now < sent.at + SENT_AGE)?;
        Some(found.bytes)
    }

    fn digest(&self, print: &Print) -> u64 {
        let mut bytes = [0; FLOW_BYTES + 3 + QUOTED_BYTES];
        bytes[..FLOW_BYTES].copy_from_slice(&print.flow);
        bytes[FLOW_BYTES..FLOW_BYTES + 3].copy_from_slice(&print.header);
        bytes[FLOW_BYTES + 3..].copy_from_slice(&print.transport);
        self.digests.hash(&bytes)
    }
}

/// Returns the range of entries for a flow. The range depends only on bits of the flow's hash that the flow label does not
/// reveal.
fn bucket(flow: u64) -> std::ops::Range<usize> {
    let bucket = usize::try_from(flow >> 32).unwrap_or(0) % SENT_BUCKETS;
    bucket * SENT_EACH..(bucket + 1) * SENT_EACH
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Duration;
    use crate::wire::ethernet::LINK_BYTES;
    use crate::wire::ipv4::Ipv4Build;

    fn packet(ident: u16, ports: [u8; 4]) -> Vec<u8> {
        let (from, to) = ([10, 0, 0, 1].into(), [10, 0, 0, 2].into());
        let build = Ipv4Build { from, to, protocol: UDP, ttl: 64, service: 0, ident };
        build.packet(&[&ports[..], &[0, 8, 1, 2]].concat()).unwrap().split_off(LINK_BYTES)
    }

    fn print(packet: &[u8]) -> Print {
        Print::new(packet).unwrap()
    }

    fn note(sent: &mut SentPackets, now: Instant, packet: &mut [u8]) {
        sent.note(now, packet, 1_400);
    }

    #[test]
    fn a_quoted_packet_is_found_only_if_it_was_sent_lately_and_every_byte_matches() {
        let (mut sent, now) = (SentPackets::new(&Seed::simulated(1)), Instant::from_ns(1));
        let mut one = packet(7, [1, 2, 3, 4]);
        assert_eq!(sent.find(now, &print(&one)), None);
        note(&mut sent, now, &mut one);
        assert_eq!(sent.find(now, &print(&one)), Some(1_400));
        assert_eq!(sent.find(now + SENT_AGE, &print(&one)), None);
        assert_eq!(sent.find(now, &print(&packet(8, [1, 2, 3, 4]))), None, "another identification");
        for at in [6, 12, 16, 20, 22, 24, 26] {
            let mut other = one.clone();
            other[at] ^= 0x40;
            assert_eq!(sent.find(now, &print(&other)), None, "byte {at}");
        }
    }

    #[test]
    fn a_fast_flow_remembers_some_sent_packets_and_does_not_evict_those_of_other_flows() {
        let (mut sent, mut now) = (SentPackets::new(&Seed::simulated(1)), Instant::from_ns(1));
        let (first, mut slow) = (packet(0, [1, 2, 3, 4]), packet(1, [9, 9, 9, 9]));
        note(&mut sent, now, &mut slow);
        let mut found = 0;
        for ident in 0..10_000 {
            note(&mut sent, now, &mut packet(ident, [1, 2, 3, 4]));
            now += Duration::from_micros(100);
        }
        for ident in 0..10_000 {
            found += usize::from(sent.find(now, &print(&packet(ident, [1, 2, 3, 4]))).is_some());
        }
        assert!((1..=SENT_EACH).contains(&found), "{found}");
        assert_eq!(sent.find(now, &print(&slow)), Some(1_400));
        assert_eq!(sent.held, SENT_EACH + 1);
        // When all of it is old, all of it may go.
        now += SENT_AGE;
        let mut last = packet(20_000, [1, 2, 3, 4]);
        note(&mut sent, now, &mut last);
        assert_eq!((sent.find(now, &print(&last)), sent.find(now, &print(&first))), (Some(1_400), None));
    }
}
