//! A hostile node: it floods a listener with SYNs from forged addresses, and attacks connections of other nodes blindly.
//!
//! It sends IPv4 over a link of two ends, keeps no state, and ignores all frames that it receives.

use siga_stack::wire::tcp::{Flags, Header, SeqNumber};
use std::net::{Ipv4Addr, SocketAddrV4};

use siga_stack::link::frame::{DeviceId, Marks};
use siga_stack::time::{Duration, Instant};

use crate::node::{Built, LinkState, Node, Outgoing};
use crate::rng::Rng;

const IP_BYTES: usize = 20;
/// Where a TCP header has its checksum.
const CHECKSUM_AT: usize = IP_BYTES + 16;

/// What it does.
#[derive(Debug, Clone, Copy)]
pub struct Flood {
    /// The network that its senders pretend to be in: any of its 254 addresses.
    pub network: [u8; 3],
    /// The listener.
    pub target: SocketAddrV4,
    /// The other end of connections that it tries to break.
    pub victim: Ipv4Addr,
    /// Between two segments.
    pub pause: Duration,
    /// Segments in all.
    pub segments: u32,
}

/// The node.
#[derive(Debug)]
pub struct Flooder {
    flood: Flood,
    rng: Rng,
    due: Instant,
    left: u32,
    /// The segment that is due.
    ready: bool,
}

impl Flooder {
    /// A node that begins at once.
    pub const fn new(flood: Flood, rng: Rng) -> Self {
        Self { flood, rng, due: Instant::from_ns(0), left: flood.segments, ready: false }
    }

    /// A SYN of a connection that will never be, or a reset or SYN for one that may be.
    fn segment(&mut self) -> [u8; 60] {
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
        let mut bytes = [0; 60];
        let len = IP_BYTES + header.header_bytes();
        bytes[..4].copy_from_slice(&[0x45, 0, 0, u8::try_from(len).unwrap_or(0)]);
        bytes[8..10].copy_from_slice(&[64, 6]);
        bytes[12..16].copy_from_slice(&from.octets());
        bytes[16..20].copy_from_slice(&target.ip().octets());
        let checksum = sum(&bytes[..IP_BYTES]);
        bytes[10..12].copy_from_slice(&checksum);
        header.emit(&mut bytes[IP_BYTES..]);
        let segment_bytes = u8::try_from(header.header_bytes()).unwrap_or(0);
        let pseudo = [&bytes[12..20], &[0, 6, 0, segment_bytes], &bytes[IP_BYTES..len]].concat();
        bytes[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&sum(&pseudo));
        bytes
    }
}

/// The Internet checksum.
fn sum(bytes: &[u8]) -> [u8; 2] {
    let words = bytes.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0)));
    let sum: u32 = words.sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    let folded = (folded & 0xffff) + (folded >> 16);
    (!u16::try_from(folded).unwrap_or(0)).to_be_bytes()
}

impl Node for Flooder {
    fn handle_frame(&mut self, _: Instant, _: DeviceId, _: &[u8], _: Marks, _: &mut Vec<Outgoing>) {}

    fn poll_transmit(&mut self, _: Instant, _: DeviceId, into: &mut [u8]) -> Option<Built> {
        if !std::mem::take(&mut self.ready) {
            return None;
        }
        let bytes = self.segment();
        let len = usize::from(u16::from_be_bytes([bytes[2], bytes[3]]));
        into[..len].copy_from_slice(&bytes[..len]);
        Some(Built { len, marks: Marks::default() })
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
