//! A node for tests that sends packets of its own making and keeps what comes back, and the few lines that make packets.
//!
//! It speaks plain IP over a link of two ends, so that it needs no neighbours. It answers nothing.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use siga_sim::host::{Host, HostOr};
use siga_sim::node::{LinkState, Node, Outgoing};
use siga_stack::link::frame::{DeviceId, Marks};
use siga_stack::stack::Transmit;
use siga_stack::time::Instant;

/// What lives in the tests' worlds.
pub(crate) type Any = HostOr<Prober>;

/// Sends and keeps packets.
#[derive(Debug, Default)]
pub(crate) struct Prober {
    pub(crate) outbox: Vec<Vec<u8>>,
    pub(crate) inbox: Vec<Vec<u8>>,
}

pub(crate) fn prober(node: &mut Any) -> &mut Prober {
    match node {
        Any::Other(prober) => prober,
        Any::Host(_) => panic!("this node is no prober"),
    }
}

pub(crate) fn host(node: &Any) -> &Host {
    match node {
        Any::Host(host) => host,
        Any::Other(_) => panic!("this node is no host"),
    }
}

impl Node for Prober {
    fn handle_frame(&mut self, _: Instant, _: DeviceId, frame: &[u8], _: Marks, _: &mut Vec<Outgoing>) {
        self.inbox.push(frame.to_vec());
    }

    fn poll_transmit(&mut self, _: Instant, _: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        let packet = (!self.outbox.is_empty()).then(|| self.outbox.remove(0))?;
        into[..packet.len()].copy_from_slice(&packet);
        Some(Transmit { len: packet.len(), marks: Marks::default() })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        None
    }

    fn handle_timeout(&mut self, _: Instant) {}

    fn link_changed(&mut self, _: Instant, _: DeviceId, _: LinkState) {}

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn left_over(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The Internet checksum of some bytes.
fn checksum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    (!u16::try_from(sum).unwrap()).to_be_bytes()
}

/// An IPv4 packet; `fragment` is the word of flags and offset.
pub(crate) fn v4(ends: [Ipv4Addr; 2], protocol: u8, hops: u8, fragment: u16, inside: &[u8]) -> Vec<u8> {
    let [length_high, length_low] = u16::try_from(20 + inside.len()).unwrap().to_be_bytes();
    let [fragment_high, fragment_low] = fragment.to_be_bytes();
    let mut packet = vec![0x45, 0, length_high, length_low, 0, 9, fragment_high, fragment_low, hops, protocol, 0, 0];
    packet.extend(ends[0].octets());
    packet.extend(ends[1].octets());
    let sum = checksum(&packet);
    packet[10..12].copy_from_slice(&sum);
    packet.extend(inside);
    packet
}

/// An IPv6 packet.
pub(crate) fn v6(ends: [Ipv6Addr; 2], next: u8, hops: u8, inside: &[u8]) -> Vec<u8> {
    let [length_high, length_low] = u16::try_from(inside.len()).unwrap().to_be_bytes();
    let mut packet = vec![0x60, 0, 0, 0, length_high, length_low, next, hops];
    packet.extend(ends[0].octets());
    packet.extend(ends[1].octets());
    packet.extend(inside);
    packet
}

/// An echo request over either version, with a body.
pub(crate) fn echo(ends: [IpAddr; 2], hops: u8, body: &[u8]) -> Vec<u8> {
    match ends {
        [IpAddr::V4(from), IpAddr::V4(to)] => v4([from, to], 1, hops, 0x4000, &echo_v4(body)),
        [IpAddr::V6(from), IpAddr::V6(to)] => v6(
            [from, to],
            58,
            hops,
            &summed([from.into(), to.into()], 58, &[&[128, 0, 0, 0, 0, 5, 0, 6], body].concat(), 2),
        ),
        _ => panic!("two versions"),
    }
}

/// The ICMP message of an echo request.
pub(crate) fn echo_v4(body: &[u8]) -> Vec<u8> {
    let mut message = [&[8, 0, 0, 0, 0, 5, 0, 6], body].concat();
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum);
    message
}

/// A UDP datagram over either version.
pub(crate) fn udp(ends: [IpAddr; 2], port: u16, hops: u8, body: &[u8]) -> Vec<u8> {
    let [length_high, length_low] = u16::try_from(8 + body.len()).unwrap().to_be_bytes();
    let [port_high, port_low] = port.to_be_bytes();
    let header = [0x12, 0x34, port_high, port_low, length_high, length_low, 0, 0];
    let inside = summed(ends, 17, &[&header, body].concat(), 6);
    match ends {
        [IpAddr::V4(from), IpAddr::V4(to)] => v4([from, to], 17, hops, 0x4000, &inside),
        [IpAddr::V6(from), IpAddr::V6(to)] => v6([from, to], 17, hops, &inside),
        _ => panic!("two versions"),
    }
}

/// The message with the checksum over it and the pseudo-header at a place.
fn summed(ends: [IpAddr; 2], protocol: u8, message: &[u8], at: usize) -> Vec<u8> {
    let mut pseudo = Vec::new();
    for end in ends {
        match end {
            IpAddr::V4(end) => pseudo.extend(end.octets()),
            IpAddr::V6(end) => pseudo.extend(end.octets()),
        }
    }
    pseudo.extend(u32::try_from(message.len()).unwrap().to_be_bytes());
    pseudo.extend([0, 0, 0, protocol]);
    pseudo.extend(message);
    let sum = checksum(&pseudo);
    let mut message = message.to_vec();
    message[at..at + 2].copy_from_slice(&sum);
    message
}
