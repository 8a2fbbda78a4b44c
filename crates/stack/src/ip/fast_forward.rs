//! The fast path of forwarding: for an IPv4 packet without options, fragments or a link header, whose destination was looked up
//! before.
//!
//! Nearly all packets that a router of a virtual network forwards are of this kind. The fast path reads and checks the headers of
//! such a packet in one function, and leaves out the checks that only other packets can fail (decision 026). It adds no rules of
//! its own: any other packet takes the slow path, before the fast path has changed anything.
//!
//! The slow path records each destination whose packets it forwards, with the version of the routes. So a recorded destination is
//! a unicast address, is not this stack's own, and has a route. A change of routes, addresses or source filters makes all records
//! outdated at once.

use super::Ip;
use super::segmentation::Shape;
use crate::limits::HEADER_BYTES_MAX;
use crate::link::device::Medium;
use crate::link::frame::{DeviceId, Marks, Payload, Received};
use crate::wire::checksum::{Sum, updated};
use std::net::Ipv4Addr;

const HEADER_BYTES: usize = 20;
/// Offsets in the header: of the word with the TTL, the protocol and the checksum, and of the addresses behind it.
const TTL_AT: usize = 8;
const ADDRESSES_AT: usize = 12;

/// Number of destinations that are recorded. A destination has one possible place. Two destinations with the same place replace
/// each other, and then cost the lookups of the slow path.
const DESTINATIONS: usize = 1 << DESTINATION_BITS;
const DESTINATION_BITS: u32 = 6;
/// A multiplier whose products spread neighbouring addresses over all places: 2^32 divided by the golden ratio.
const SPREAD: u32 = 0x9e37_79b1;

#[cfg(test)]
thread_local! {
    /// If true, every packet takes the slow path.
    static OFF: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
    /// Number of packets that took the fast path.
    static TAKEN: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The destinations to which packets were forwarded last.
#[derive(Debug)]
pub(crate) struct Destinations {
    known: [Destination; DESTINATIONS],
}

#[derive(Debug, Clone, Copy)]
struct Destination {
    /// The address, and in the upper half the version of the routes at the time of the lookup. The initial value is address 0,
    /// which no packet may have as its destination.
    key: u64,
    /// The device over which the packets leave.
    device: DeviceId,
}

#[inline]
fn key(routes_version: u32, to: Ipv4Addr) -> u64 {
    u64::from(routes_version) << 32 | u64::from(to.to_bits())
}

#[inline]
fn place(to: Ipv4Addr) -> usize {
    (to.to_bits().wrapping_mul(SPREAD) >> (u32::BITS - DESTINATION_BITS)) as usize
}

impl Default for Destinations {
    fn default() -> Self {
        Self { known: [Destination { key: 0, device: DeviceId(0) }; DESTINATIONS] }
    }
}

impl Destinations {
    /// Records that packets to an address are forwarded over a device.
    #[inline]
    pub(crate) fn note(&mut self, routes_version: u32, to: Ipv4Addr, device: DeviceId) {
        self.known[place(to)] = Destination { key: key(routes_version, to), device };
    }

    /// Returns the device over which packets to an address are forwarded, if the address is recorded for this version.
    #[inline]
    fn device(&self, routes_version: u32, to: Ipv4Addr) -> Option<DeviceId> {
        let known = &self.known[place(to)];
        (known.key == key(routes_version, to)).then_some(known.device)
    }
}

impl Ip {
    /// Forwards a packet on the fast path. Returns the device that has to send it, and leaves its edited header in the scratch
    /// memory. Returns `None` if the packet has to take the slow path. In this case nothing was changed.
    #[inline]
    pub(crate) fn forward_fast<P: Payload + ?Sized>(
        &mut self,
        device: DeviceId,
        frame: &Received<'_, P>,
    ) -> Option<DeviceId> {
        #[cfg(test)]
        if OFF.get() {
            return None;
        }
        let header: &[u8; HEADER_BYTES] = frame.header.first_chunk()?;
        let (words, _) = header.as_chunks::<4>();
        let [[first, _, a, b], [_, _, c, d], [ttl, protocol, high, low], from, to] = *words.first_chunk::<5>()?;
        let to = Ipv4Addr::from(to);
        let out = self.destinations.device(self.routes_version, to)?;
        let policy = self.policy;
        let special = self.capture.is_some() || policy.source_validation || (policy.redirects && out == device);
        let input = self.devices.get(usize::from(device.0))?;
        let output = self.devices.get(usize::from(out.0))?;
        let (payload_bytes, marks) = (frame.payload.len(), frame.marks);
        let frame_bytes = frame.header.len() + payload_bytes;
        let total_bytes = usize::from(u16::from_be_bytes([a, b]));
        let from = Ipv4Addr::from(from);
        let sum = words.iter().fold(Sum::default(), |sum, word| sum.long(u32::from_be_bytes(*word)));
        let agreed = !marks.checksum_unfilled
            || (input.config.agreed.checksum_unfilled && output.config.agreed.checksum_unfilled);
        let eligible = first == 0x45
            && (c & 0x3f, d) == (0, 0)
            && ttl > 1
            && !special
            && marks.segment_bytes == 0
            && agreed
            && (HEADER_BYTES..=frame_bytes.min(usize::from(output.config.mtu))).contains(&total_bytes)
            && frame_bytes <= usize::from(input.config.mtu)
            && (payload_bytes == 0 || frame.header.len() >= HEADER_BYTES_MAX)
            && matches!((input.config.medium, output.config.medium), (Medium::Ip, Medium::Ip))
            && input.filter.has_passed_v4(self.routes_version, from)
            && !from.is_link_local()
            && sum.is_intact();
        if !eligible {
            return None;
        }
        let input = &mut self.devices[usize::from(device.0)];
        input.counters.frames_received += 1;
        input.counters.bytes_received += frame_bytes as u64;
        self.devices[usize::from(out.0)].count_sent(1, total_bytes as u64);
        let mut edited = *header;
        let word = u16::from_be_bytes;
        let checksum = updated(word([high, low]), word([ttl, protocol]), word([ttl - 1, protocol]));
        let [high, low] = checksum.to_be_bytes();
        edited[TTL_AT..ADDRESSES_AT].copy_from_slice(&[ttl - 1, protocol, high, low]);
        let shape = Shape { is_v4: true, protocol, ip_bytes: HEADER_BYTES, total_bytes };
        self.scratch.set_whole(shape, &edited, Marks { segment_bytes: 0, ..marks });
        #[cfg(test)]
        TAKEN.set(TAKEN.get() + 1);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drops::DropReason;
    use crate::link::device::{Agreed, DeviceConfig};
    use crate::stack::{Handled, Stack, StackConfig};
    use crate::time::Instant;
    use crate::wire::address::Prefix;
    use proptest::prelude::*;
    use std::net::IpAddr;

    const NOW: Instant = Instant::from_ns(1_000_000_000);
    /// The MTUs of the router's devices. The last device accepts no unfilled checksums.
    const MTUS: [u16; 3] = [1500, 700, 1500];

    fn router(redirects: bool) -> Stack {
        let mut router = Stack::new(StackConfig { forwarding: true, redirects, ..StackConfig::default() });
        for (n, mtu) in (0_u8..).zip(MTUS) {
            let addresses = vec![Prefix::new([10, 0, n, 1].into(), 24).unwrap()];
            let agreed = Agreed { checksum_unfilled: n < 2, large_segments: n == 0 };
            router.add_device(DeviceConfig { medium: Medium::Ip, mtu, addresses, agreed }).unwrap();
        }
        router
    }

    /// A frame that a router receives.
    #[derive(Debug, Clone)]
    struct Frame {
        device: u16,
        from: [u8; 4],
        to: [u8; 4],
        bytes: usize,
        ttl: u8,
        marks: Marks,
        /// An offset in the header and the byte that is written there, and whether the header checksum is correct afterwards.
        change: Option<(usize, u8, bool)>,
    }

    impl Frame {
        fn plain(to: [u8; 4]) -> Self {
            let (from, marks) = ([10, 0, 0, 9], Marks::default());
            Self { device: 0, from, to, bytes: 100, ttl: 64, marks, change: None }
        }

        fn bytes(&self) -> Vec<u8> {
            let mut frame: Vec<u8> = (0..self.bytes).map(|at| u8::try_from(at % 251).unwrap()).collect();
            let length = u16::try_from(self.bytes).unwrap().to_be_bytes();
            frame[..12].copy_from_slice(&[0x45, 0, length[0], length[1], 0, 0, 0, 0, self.ttl, 17, 0, 0]);
            frame[12..16].copy_from_slice(&self.from);
            frame[16..20].copy_from_slice(&self.to);
            let fill = |frame: &mut [u8]| {
                frame[10..12].fill(0);
                let checksum = Sum::default().bytes(&frame[..20]).checksum();
                frame[10..12].copy_from_slice(&checksum.to_be_bytes());
            };
            fill(&mut frame);
            if let Some((at, byte, intact)) = self.change {
                frame[at] = byte;
                if intact {
                    fill(&mut frame);
                }
            }
            frame
        }
    }

    /// What a router does with a frame.
    #[derive(Debug, PartialEq, Eq)]
    enum Outcome {
        Done,
        Dropped(DropReason),
        Forwarded(DeviceId, Vec<(Vec<u8>, Marks)>),
    }

    fn handle(router: &mut Stack, frame: &Frame, fast: bool) -> Outcome {
        OFF.set(!fast);
        let bytes = frame.bytes();
        let (header, payload) = bytes.split_at(bytes.len().min(HEADER_BYTES_MAX));
        match router.handle_frame(NOW, DeviceId(frame.device), Received { header, payload, marks: frame.marks }) {
            Handled::Done => Outcome::Done,
            Handled::Dropped(reason) => Outcome::Dropped(reason),
            Handled::Forward(mut forward) => {
                let mut pieces = Vec::new();
                while let Some(piece) = forward.next_piece() {
                    pieces.push(([piece.header, &bytes[piece.range.clone()]].concat(), piece.marks));
                }
                Outcome::Forwarded(forward.device, pieces)
            }
        }
    }

    fn taken(router: &mut Stack, frame: &Frame) -> bool {
        let before = TAKEN.get();
        handle(router, frame, true);
        TAKEN.get() > before
    }

    fn frames() -> impl Strategy<Value = Frame> {
        let address = prop_oneof![
            4 => (0_u8..3, 8_u8..10).prop_map(|(net, host)| [10, 0, net, host]),
            1 => prop::sample::select(vec![
                [10, 0, 1, 1], [10, 0, 1, 255], [10, 0, 1, 0], [224, 0, 0, 1], [255; 4], [127, 0, 0, 1], [169, 254, 1, 1],
                [192, 0, 2, 1], [0; 4],
            ]),
        ];
        let marks = (prop::bool::weighted(0.3), prop::sample::select(vec![0_u16, 0, 0, 500]))
            .prop_map(|(checksum_unfilled, segment_bytes)| Marks { checksum_unfilled, segment_bytes });
        let bytes = prop::sample::select(vec![28_usize, 100, 134, 135, 700, 701, 1500, 1501]);
        let change = prop::option::weighted(0.3, (0_usize..20, any::<u8>(), any::<bool>()));
        (0_u16..4, address.clone(), address, bytes, 0_u8..4, marks, change).prop_map(
            |(device, from, to, bytes, ttl, marks, change)| Frame { device, from, to, bytes, ttl, marks, change },
        )
    }

    proptest! {
        #[test]
        fn the_fast_path_forwards_as_the_slow_path_does(
            redirects in any::<bool>(),
            frames in prop::collection::vec(frames(), 1..60),
        ) {
            let mut routers = [router(redirects), router(redirects)];
            for frame in &frames {
                let [fast, slow] = &mut routers;
                prop_assert_eq!(handle(fast, frame, true), handle(slow, frame, false), "{:?}", frame);
                for device in (0..3).map(DeviceId) {
                    let outputs = routers.each_mut().map(|router| {
                        let mut bytes = vec![0; 1600];
                        let sent = router.poll_transmit(NOW, device, &mut bytes);
                        (sent, bytes)
                    });
                    prop_assert_eq!(&outputs[0], &outputs[1]);
                }
                let [fast, slow] = routers.each_ref().map(|router| {
                    let devices = router.ip.devices.iter().map(|device| device.counters).collect::<Vec<_>>();
                    (devices, format!("{:?}", router.drops()))
                });
                prop_assert_eq!(fast, slow, "{:?}", frame);
            }
        }
    }

    #[test]
    fn the_second_packet_to_a_destination_takes_the_fast_path() {
        let mut router = router(false);
        let frame = Frame::plain([10, 0, 1, 9]);
        assert!(!taken(&mut router, &frame));
        assert!(taken(&mut router, &frame));
    }

    #[test]
    fn packets_in_both_directions_between_two_hosts_take_the_fast_path() {
        let mut router = router(false);
        let there = Frame { from: [10, 0, 1, 9], device: 1, ..Frame::plain([10, 0, 2, 2]) };
        let back = Frame { from: [10, 0, 2, 2], to: [10, 0, 1, 9], device: 2, ..there.clone() };
        for frame in [&there, &back] {
            handle(&mut router, frame, true);
        }
        assert!(taken(&mut router, &there));
        assert!(taken(&mut router, &back));
    }

    #[test]
    fn a_packet_takes_the_slow_path_after_a_change_of_the_routes() {
        let mut router = router(false);
        let frame = Frame::plain([10, 0, 1, 9]);
        handle(&mut router, &frame, true);
        let gateway = IpAddr::from([10, 0, 2, 9]);
        router.add_route(Prefix::new([10, 0, 1, 9].into(), 32).unwrap(), DeviceId(2), Some(gateway)).unwrap();
        assert!(matches!(handle(&mut router, &frame, true), Outcome::Forwarded(DeviceId(2), _)));
        assert!(taken(&mut router, &frame));
    }
}
