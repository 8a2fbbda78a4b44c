//! An attacker as a node. It floods a listener with SYNs from forged addresses. It also tries to break the connections of another
//! host, whose segments it cannot see.
//!
//! The node sends IPv4 over a point-to-point link, keeps no state for connections, and ignores all received frames.

use std::net::{Ipv4Addr, SocketAddrV4};

use siga_stack::link::frame::{DeviceId, Marks};
use siga_stack::stack::Transmit;
use siga_stack::time::{Duration, Instant};
use siga_stack::wire::tcp::{Flags, HEADER_BYTES_MAX, Header, SeqNumber};

use crate::node::{LinkState, Node, Outgoing};
use crate::rng::Rng;
use crate::wire::{self, Ip};

/// The attack of a [`Flooder`].
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// The first three bytes of the forged source addresses. The last byte is random, from 3 to 254.
    pub network: [u8; 3],
    /// The listener that is attacked.
    pub target: SocketAddrV4,
    /// The client whose connections to the listener the attacker tries to break.
    pub victim: Ipv4Addr,
    /// Time between two sent segments.
    pub pause: Duration,
    /// Number of segments to send in total.
    pub segments: u32,
}

/// The attacker.
#[derive(Debug)]
pub struct Flooder {
    flood: Flood,
    rng: Rng,
    due: Instant,
    left: u32,
    /// True if a segment is due and has not been sent yet.
    ready: bool,
}

impl Flooder {
    /// Creates a node that starts to send immediately.
    pub const fn new(flood: Flood, rng: Rng) -> Self {
        Self { flood, rng, due: Instant::from_ns(0), left: flood.segments, ready: false }
    }

    /// Builds one segment of the attack: a SYN from a forged address, or a reset or SYN with the victim's source address. Ports
    /// and sequence numbers are random.
    fn segment(&mut self) -> Vec<u8> {
        let Flood { network: [a, b, c], target, victim, .. } = self.flood;
        let host = u8::try_from(self.rng.between(3, 254)).unwrap_or(3);
        let port = u16::try_from(self.rng.between(32_768, 65_535)).unwrap_or(u16::MAX);
        let blind = self.rng.below(8) == 0;
        let from = if blind { victim } else { Ipv4Addr::new(a, b, c, host) };
        let random = |rng: &mut Rng| u32::try_from(rng.below(1 << 32)).unwrap_or(0);
        let reset = blind && self.rng.below(2) == 0;
        let header = Header {
            source_port: port,
            destination_port: target.port(),
            seq: SeqNumber(random(&mut self.rng)),
            window: 65_535,
            flags: Flags { syn: !reset, rst: reset, ..Flags::default() },
            ..Header::default()
        };
        let mut bytes = [0; HEADER_BYTES_MAX];
        header.emit(&mut bytes);
        let ip = Ip { ident: 0, ..Ip::new(from.into(), (*target.ip()).into(), wire::TCP) };
        let mut packet = ip.packet(&bytes[..header.header_bytes()]);
        wire::mend(&mut packet);
        packet
    }
}

impl Node for Flooder {
    fn handle_frame(&mut self, _: Instant, _: DeviceId, _: &[u8], _: Marks, _: &mut Vec<Outgoing>) {}

    fn poll_transmit(&mut self, _: Instant, _: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        if !std::mem::take(&mut self.ready) {
            return None;
        }
        let packet = self.segment();
        into[..packet.len()].copy_from_slice(&packet);
        Some(Transmit { len: packet.len(), marks: Marks::default() })
    }

    fn poll_timeout(&self) -> Option<Instant> {
        (self.left > 0).then_some(self.due)
    }

    fn handle_timeout(&mut self, now: Instant) {
        if self.left > 0 && self.due <= now {
            self.left -= 1;
            self.due = now + self.flood.pause;
            self.ready = true;
        }
    }

    fn link_changed(&mut self, _: Instant, _: DeviceId, _: LinkState) {}

    fn check(&self) -> Result<(), String> {
        Ok(())
    }

    fn left_over(&self) -> Vec<String> {
        (self.left > 0).then(|| format!("{} segments unsent", self.left)).into_iter().collect()
    }
}
