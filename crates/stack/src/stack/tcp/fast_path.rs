//! The fast path of received frames: for a frame with one IP packet, without options or fragments, that contains a TCP segment of
//! a known connection.
//!
//! Nearly all frames that a host receives are of this kind. The fast path reads the link, IP and TCP headers of such a frame in
//! one function, and leaves out the checks that only other frames can fail. This saves time because the time of an exchange
//! depends more on the number of executed instructions than on the number of bytes (decision 011). The fast path adds no protocol
//! rules of its own.
//!
//! A connection uses the fast path only while its [`Provenance`] is current. This means that a frame of the connection from the
//! same device has passed all checks of the slow path, and that routes and source filters have not changed since. Any other frame
//! takes the slow path, before the fast path has changed anything.

use super::input::{Arrived, Tail};
use crate::drops::DropReason;
use crate::ip::addresses::Addresses;
use crate::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use crate::link::device::Medium;
use crate::link::frame::{DeviceId, Payload, Received, sum_payload};
use crate::sockets::socket::{Owner, Provenance, Socket};
use crate::sockets::{Flow, FlowTarget, NextStep, PackedEvent, TcpId};
use crate::stack::Stack;
use crate::tcp::Storage;
use crate::time::Instant;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::LINK_BYTES;
use crate::wire::protocol::TCP;
use crate::wire::tcp::{FastHeader, Header, IpEcn};
use std::net::{Ipv4Addr, Ipv6Addr};

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

#[cfg(test)]
thread_local! {
    /// If true, every frame takes the slow path.
    static OFF: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// A received IP packet whose header is eligible for the fast path, and that contains a TCP segment.
struct FastPacket {
    /// The flow as the receiver sees it. The ports are not filled in yet.
    flow: Flow,
    /// The offsets in the packet at which the segment begins and ends.
    at: usize,
    end: usize,
    /// The sum of both IP addresses, for the checksum of the pseudo-header.
    addresses: Sum,
}

impl FastPacket {
    /// Parses the packet at the start of `own`. `available` is the number of bytes in the frame after the link header.
    #[inline]
    fn parse(own: &[u8], available: usize, ours: (&Addresses<Ipv4Addr>, &Addresses<Ipv6Addr>)) -> Option<Self> {
        let packet = match own.first()? >> 4 {
            4 => Self::parse_v4(own.first_chunk()?, ours.0)?,
            6 => Self::parse_v6(own.first_chunk()?, ours.1)?,
            _ => return None,
        };
        (packet.end <= available).then_some(packet)
    }

    #[inline]
    fn parse_v4(header: &[u8; IPV4_BYTES], ours: &Addresses<Ipv4Addr>) -> Option<Self> {
        const CONGESTION_EXPERIENCED: u8 = 3;
        let (words, _) = header.as_chunks::<4>();
        let [[first, service, a, b], [_, _, c, d], [_, protocol, _, _], from, to] = *words.first_chunk::<5>()?;
        let addresses = Sum::default().long(u32::from_be_bytes(from)).long(u32::from_be_bytes(to));
        let sum = words.iter().fold(Sum::default(), |sum, word| sum.long(u32::from_be_bytes(*word)));
        let usual = first == 0x45
            && service & 3 != CONGESTION_EXPERIENCED
            && (c & 0x3f, d) == (0, 0)
            && protocol == TCP
            && ours.contains(Ipv4Addr::from(to))
            && sum.is_intact();
        usual.then(|| Self {
            flow: Flow::new(Ipv4Addr::from(to).into(), Ipv4Addr::from(from).into(), 0, 0),
            at: IPV4_BYTES,
            end: usize::from(u16::from_be_bytes([a, b])),
            addresses,
        })
    }

    #[inline]
    fn parse_v6(header: &[u8; IPV6_BYTES], ours: &Addresses<Ipv6Addr>) -> Option<Self> {
        const CONGESTION_EXPERIENCED: u8 = 0x30;
        let [_, class, _, _, a, b, next_header, _, addresses @ ..] = header;
        let (from, to) = (addresses.first_chunk::<16>()?, addresses.last_chunk::<16>()?);
        let (from, to) = (Ipv6Addr::from(*from), Ipv6Addr::from(*to));
        let usual = class & 0x30 != CONGESTION_EXPERIENCED && *next_header == TCP && ours.contains(to);
        usual.then(|| Self {
            flow: Flow::new(to.into(), from.into(), 0, 0),
            at: IPV6_BYTES,
            end: IPV6_BYTES + usize::from(u16::from_be_bytes([*a, *b])),
            addresses: Sum::default().bytes(addresses),
        })
    }
}

/// Smallest part of a payload, in bytes, whose checksum is verified during the copy to the receive buffer. For shorter parts, the
/// additional checks take as long as they save.
const PLACED_BYTES_MIN: usize = 512;

/// Writes the payload of a segment behind the received bytes of its connection. `own` is the first part of the segment, and the first
/// `behind` bytes of `rest` are the remaining part. Returns `sum` with the remaining part added. Returns `None` if nothing was written.
#[inline]
fn place<S: Storage, P: Payload + ?Sized>(
    socket: &mut Socket<S>,
    own: &[u8],
    rest: &P,
    behind: usize,
    sum: Sum,
) -> Option<Sum> {
    let (_, header_bytes) = FastHeader::parse(own)?;
    socket.connection.place_and_add(own.get(header_bytes..)?, rest.private()?.get(..behind)?, sum)
}

impl<S: Storage> Stack<S> {
    /// Receives a frame on the fast path. Returns `None` if the frame has to take the slow path. In this case nothing was changed.
    /// Returns an error if the segment was dropped; the caller counts the drop.
    #[inline]
    pub(crate) fn receive_fast<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        device: DeviceId,
        frame: &Received<'_, P>,
    ) -> Option<Result<(), DropReason>> {
        #[cfg(test)]
        if OFF.get() {
            return None;
        }
        let payload_bytes = frame.payload.len();
        let own = &frame.header[self.eligible_link_bytes(device, frame, payload_bytes)?..];
        let packet = FastPacket::parse(own, own.len() + payload_bytes, (&self.ip.own_v4, &self.ip.own_v6))?;
        let segment = own.get(packet.at..packet.end.min(own.len())).unwrap_or_default();
        let &[a, b, c, d] = segment.first_chunk()?;
        let (remote_port, local_port) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let flow = Flow { local_port, remote_port, ..packet.flow };
        let segment_bytes = packet.end - packet.at;
        let behind = segment_bytes - segment.len();
        let Some(FlowTarget::Connection(slot)) = self.tcp.find(&flow) else { return None };
        let socket = self.tcp.sockets.get_mut(slot)?;
        if socket.provenance != Provenance::new(self.ip.routes_version, device) {
            return None;
        }
        let mut is_placed = false;
        if !frame.marks.checksum_unfilled {
            let length = u16::try_from(segment_bytes).unwrap_or(0);
            let sum = packet.addresses.word(length).word(u16::from(TCP)).bytes(segment);
            let straddles = behind > 0 && !segment.len().is_multiple_of(2);
            let placed =
                if behind < PLACED_BYTES_MIN { None } else { place(socket, segment, frame.payload, behind, sum) };
            is_placed = placed.is_some();
            let sum = placed.unwrap_or_else(|| sum_payload(sum, frame.payload, 0, behind));
            if straddles || !sum.is_intact() {
                return None;
            }
        }
        if !self.receive_fast_segment(now, slot, segment, frame.payload, segment_bytes, is_placed) {
            return self.receive_slow_segment(now, device, frame, (slot, flow), segment, segment_bytes);
        }
        self.count_received(device, frame.header.len() + payload_bytes);
        Some(Ok(()))
    }

    #[inline]
    fn count_received(&mut self, device: DeviceId, bytes: usize) {
        let counters = &mut self.ip.devices[usize::from(device.0)].counters;
        counters.frames_received += 1;
        counters.bytes_received += bytes as u64;
    }

    /// Receives a segment if it is eligible for the fast path of its connection. `segment` is the first part of the segment, and
    /// `rest` is the remaining part. `is_placed` is true if [`place`] has written the payload. Returns false if the segment is not
    /// eligible. In this case nothing was changed.
    #[inline]
    fn receive_fast_segment<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        slot: u32,
        segment: &[u8],
        rest: &P,
        segment_bytes: usize,
        is_placed: bool,
    ) -> bool {
        let Some((mut header, header_bytes)) = FastHeader::parse(segment) else { return false };
        let text = Tail { own: &segment[header_bytes..], rest, len: segment_bytes - header_bytes };
        header.len = u32::try_from(text.len).unwrap_or(u32::MAX);
        let tcp = &mut self.tcp;
        let Some((socket, generation)) = tcp.sockets.get_with_generation(slot) else { return false };
        let scarce = text.len > 0 && (tcp.buffers.are_scarce() || !socket.connection.has_room_for_next(text.len));
        if matches!(socket.owner, Owner::Opening(_)) || scarce {
            return false;
        }
        let payload = (!is_placed).then_some(&text);
        let Some(acked) = socket.connection.receive_fast(now, &header, payload, &mut tcp.buffers.spare) else {
            return false;
        };
        // An acknowledgement causes an event if the application waits until it can write, or if the application knows of an error.
        if acked > 0 && !socket.announced_readiness.writable || socket.announced_readiness.error {
            self.touched(slot);
            self.deliver_loopback(now);
            return true;
        }
        tcp.buffers.recount(socket);
        let news = text.len > 0 && !std::mem::replace(&mut socket.announced_readiness.readable, true);
        let announced = news && socket.owner == Owner::Application && !std::mem::replace(&mut socket.announced, true);
        let next = if socket.queued {
            NextStep::Wait
        } else if socket.connection.wants_transmit() {
            NextStep::Transmit
        } else {
            tcp.wheel.rest(slot, socket)
        };
        if announced {
            tcp.announce(PackedEvent::connection(TcpId { slot, generation }));
        }
        if next == NextStep::Transmit {
            self.enqueue(slot);
            self.deliver_loopback(now);
        }
        true
    }

    /// Receives a segment that is not eligible. The fast path has already checked the IP addresses and the checksum, so the slow
    /// path begins at the TCP header. This saves time for segments that open or end a connection (decision 011).
    #[inline(never)]
    fn receive_slow_segment<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        device: DeviceId,
        frame: &Received<'_, P>,
        (slot, flow): (u32, Flow),
        segment: &[u8],
        segment_bytes: usize,
    ) -> Option<Result<(), DropReason>> {
        let mut header = Header::default();
        let header_bytes = header.read(segment).ok()?;
        self.count_received(device, frame.header.len() + frame.payload.len());
        let payload = &Tail { own: &segment[header_bytes..], rest: frame.payload, len: segment_bytes - header_bytes };
        let link_bytes = self.ip.devices[usize::from(device.0)].link_bytes();
        let class = frame.header.get(link_bytes + 1).copied().unwrap_or(0);
        let ecn = IpEcn::of_service(if flow.is_ipv4() { class } else { class >> 4 });
        let arrived = Arrived { flow, header: &header, payload, ecn, device, validates: true };
        let result = self.segment(now, slot, &arrived);
        self.deliver_loopback(now);
        Some(result)
    }

    /// Returns the length of the link header in bytes. Returns `None` if the frame is not for this host, or has marks or a length
    /// that the link has not negotiated, or if a capture is running.
    #[inline]
    fn eligible_link_bytes<P: Payload + ?Sized>(
        &self,
        device: DeviceId,
        frame: &Received<'_, P>,
        payload_bytes: usize,
    ) -> Option<usize> {
        let config = &self.ip.devices.get(usize::from(device.0))?.config;
        let header = frame.header;
        let link_bytes = match config.medium {
            Medium::Ip => 0,
            Medium::Ethernet(own) => {
                let link: &[u8; LINK_BYTES] = header.first_chunk()?;
                let version = *header.get(LINK_BYTES)? >> 4;
                let protocol = if version == 4 { ETHERTYPE_IPV4 } else { ETHERTYPE_IPV6 };
                if link[..6] != own.0 || link[12..] != protocol {
                    return None;
                }
                LINK_BYTES
            }
        };
        let (marks, agreed) = (frame.marks, config.agreed);
        let large = marks.segment_bytes > 0;
        let bytes_max = if large { FRAME_BYTES_MAX } else { link_bytes + usize::from(config.mtu) };
        let fits = header.len() + payload_bytes <= bytes_max;
        let whole = payload_bytes == 0 || header.len() >= HEADER_BYTES_MAX;
        let known = agreed.covers(marks);
        (self.ip.capture.is_none() && fits && whole && known).then_some(link_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::device::{Agreed, DeviceConfig};
    use crate::link::frame::Marks;
    use crate::sockets::{ListenerId, TcpOptions};
    use crate::stack::StackConfig;
    use crate::tcp::Config;
    use crate::time::Duration;
    use crate::wire::address::Prefix;
    use crate::wire::ethernet::MacAddress;
    use std::net::{IpAddr, SocketAddr};

    const DEVICE: DeviceId = DeviceId(0);

    /// Two hosts on one link, and a connection over which some bytes went both ways.
    struct World {
        now: Instant,
        hosts: [Stack; 2],
        sockets: [TcpId; 2],
    }

    fn address(host: usize, v6: bool) -> IpAddr {
        let v4 = [[10, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let v6_addresses = [1, 2].map(|n| IpAddr::from(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, n)));
        if v6 { v6_addresses[host] } else { v4[host] }
    }

    fn host(n: usize, (v6, ethernet): (bool, bool)) -> Stack {
        let mac = MacAddress([2, 0, 0, 0, 0, u8::try_from(n).unwrap()]);
        let medium = if ethernet { Medium::Ethernet(mac) } else { Medium::Ip };
        let addresses = vec![Prefix::new(address(n, v6), 24).unwrap()];
        let mut stack = Stack::new(StackConfig { seed: crate::seed::Seed::simulated(5), ..StackConfig::default() });
        stack.add_device(DeviceConfig { medium, mtu: 1500, addresses, agreed: Agreed::default() }).unwrap();
        stack
    }

    impl World {
        fn new(kind: (bool, bool)) -> Self {
            let mut hosts = [host(0, kind), host(1, kind)];
            let (now, server) = (Instant::from_ns(1_000_000_000), SocketAddr::new(address(1, kind.0), 80));
            let config = Config { no_delay: true, ..Config::LINUX };
            let options = TcpOptions { config, ..TcpOptions::default() };
            let listener: ListenerId = hosts[1].tcp_listen(server, 1, &options).unwrap();
            let from = SocketAddr::new(crate::udp::unspecified(server.ip()), 0);
            let client = hosts[0].tcp_connect(now, from, server, &options).unwrap();
            let mut world = Self { now, hosts, sockets: [client; 2] };
            world.exchange();
            world.sockets[1] = world.hosts[1].tcp_accept(listener).unwrap().unwrap().0;
            for side in [0, 1, 0] {
                world.write(side, b"both ways");
                world.exchange();
            }
            world
        }

        fn write(&mut self, side: usize, bytes: &[u8]) {
            assert_eq!(self.hosts[side].tcp_send(self.now, self.sockets[side], bytes), Ok(bytes.len()));
        }

        fn frame(&mut self, side: usize) -> Option<Vec<u8>> {
            let mut bytes = vec![0; 1514];
            let sent = self.hosts[side].poll_transmit(self.now, DEVICE, &mut bytes)?;
            bytes.truncate(sent.len);
            Some(bytes)
        }

        fn hand_over(&mut self, to: usize, frame: &[u8], marks: Marks) {
            let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
            self.hosts[to].handle_frame(self.now, DEVICE, Received { header, payload, marks });
        }

        fn exchange(&mut self) {
            while let Some((side, frame)) = [0, 1].into_iter().find_map(|side| Some((side, self.frame(side)?))) {
                self.now += Duration::from_micros(1);
                self.hand_over(1 - side, &frame, Marks::default());
            }
        }

        /// All that can be seen of a host that took a frame: what it counts, has received, knows and answers.
        fn seen(mut self, side: usize) -> String {
            let mut received = [0; 2_000];
            let (now, id) = (self.now, self.sockets[side]);
            let stack = &mut self.hosts[side];
            let before = format!("{:?} {:?} {:?}", stack.drops(), stack.counters(DEVICE), stack.poll_timeout());
            let event = stack.tcp_poll_event();
            let read = stack.tcp_receive(now, id, &mut received);
            let told = format!("{before} {event:?} {read:?} {:?}", stack.tcp_info(id));
            stack.check();
            let answers: Vec<_> = std::iter::from_fn(|| self.frame(side)).collect();
            format!("{told} {received:?} {answers:?}")
        }
    }

    #[test]
    fn a_frame_with_any_bit_flipped_has_the_same_effect_on_the_fast_and_the_slow_path() {
        let mut taken_fast = 0;
        for kind in [(false, false), (false, true), (true, false)] {
            let bits = 8 * (14 + 40 + 32 + 20);
            for flipped in 0..bits {
                let seen = [false, true].map(|off| {
                    let mut world = World::new(kind);
                    world.write(0, &[7; 300]);
                    let mut frame = world.frame(0).unwrap();
                    frame[flipped / 8] ^= 1 << (flipped % 8);
                    OFF.set(off);
                    let marks = Marks { checksum_unfilled: flipped % 5 == 4, segment_bytes: 0 };
                    world.hand_over(1, &frame, marks);
                    OFF.set(false);
                    world.seen(1)
                });
                assert_eq!(seen[0], seen[1], "{kind:?}, bit {flipped}");
            }
            let mut world = World::new(kind);
            world.write(0, &[7; 300]);
            let frame = world.frame(0).unwrap();
            let (header, payload) = frame.split_at(HEADER_BYTES_MAX);
            let taken = world.hosts[1].receive_fast(world.now, DEVICE, &Received::unmarked(header, payload));
            taken_fast += u32::from(taken == Some(Ok(())));
        }
        assert_eq!(taken_fast, 3, "intact frames take the fast path");
    }

    #[test]
    fn a_long_payload_with_any_bit_flipped_has_the_same_effect_on_the_fast_and_the_slow_path() {
        for kind in [(false, false), (false, true), (true, false)] {
            for flipped in (0..8 * 1_320).step_by(73) {
                let seen = [false, true].map(|off| {
                    let mut world = World::new(kind);
                    world.write(0, &[7; 1_300]);
                    let mut frame = world.frame(0).unwrap();
                    frame[flipped / 8] ^= 1 << (flipped % 8);
                    OFF.set(off);
                    world.hand_over(1, &frame, Marks::default());
                    OFF.set(false);
                    world.seen(1)
                });
                assert_eq!(seen[0], seen[1], "{kind:?}, bit {flipped}");
            }
        }
    }

    #[test]
    fn a_payload_is_placed_only_behind_received_bytes_and_without_a_gap() {
        let mut world = World::new((false, false));
        world.write(0, &[7; 1_300]);
        let frame = world.frame(0).unwrap();
        let (own, rest) = frame[IPV4_BYTES..].split_at(HEADER_BYTES_MAX);
        let slot = world.sockets[1].slot;
        let placed = |world: &mut World, behind| {
            let socket = world.hosts[1].tcp.sockets.get_mut(slot).unwrap();
            place(socket, own, rest, behind, Sum::default()).is_some()
        };
        assert!(placed(&mut world, rest.len()));
        assert!(!placed(&mut world, rest.len() + 1), "the frame is shorter");
        // The next segment arrives first, so its bytes lie where the payload would be written.
        world.write(0, &[8; 300]);
        let later = world.frame(0).unwrap();
        world.hand_over(1, &later, Marks::default());
        assert!(!placed(&mut world, rest.len()));
        world.hand_over(1, &frame, Marks::default());
        let mut received = [0; 2_000];
        assert_eq!(world.hosts[1].tcp_receive(world.now, world.sockets[1], &mut received), Ok(Some(18 + 1_600)));
        assert!(received[18..1_318] == [7; 1_300] && received[1_318..1_618] == [8; 300]);
        assert!(!placed(&mut world, rest.len()), "an empty buffer has no memory");
    }

    #[test]
    fn the_fast_path_takes_the_next_segment_of_an_open_connection() {
        for (v6, at) in [(false, IPV4_BYTES), (true, IPV6_BYTES)] {
            let mut world = World::new((v6, false));
            world.write(0, &[7; 300]);
            let frame = world.frame(0).unwrap();
            let (now, id, segment, rest) = (world.now, world.sockets[1], &frame[at..], [0; 0].as_slice());
            assert!(
                world.hosts[1].receive_fast_segment(now, id.slot, segment, rest, segment.len(), false),
                "IPv6 {v6}"
            );
            let mut received = [0; 400];
            // Behind what came before.
            assert_eq!(world.hosts[1].tcp_receive(now, id, &mut received), Ok(Some(18 + 300)));
            assert_eq!(received[18..318], [7; 300]);
        }
    }

    /// A world in which one host has yet to take a frame: of an open connection, of one that opens, and of one that ends.
    fn stage(stage: usize, kind: (bool, bool)) -> (World, Vec<u8>) {
        let mut world = World::new(kind);
        world.write(0, &[7; 300]);
        let now = world.now;
        match stage {
            0 => {}
            1 => world.hosts[0].tcp_shutdown(now, world.sockets[0]).unwrap(),
            2 => {
                world.exchange();
                world.hosts[0].tcp_shutdown(now, world.sockets[0]).unwrap();
                world.exchange();
                world.hosts[1].tcp_shutdown(now, world.sockets[1]).unwrap();
                let end = world.frame(1).unwrap();
                world.hand_over(0, &end, Marks::default());
            }
            _ => {
                world.exchange();
                let (local, remote) = world.hosts[0].tcp_addresses(world.sockets[0]).unwrap();
                let from = SocketAddr::new(local.ip(), 0);
                world.sockets = [world.hosts[0].tcp_connect(now, from, remote, &TcpOptions::default()).unwrap(); 2];
                for side in [0, 1] {
                    let frame = world.frame(side).unwrap();
                    world.hand_over(1 - side, &frame, Marks::default());
                }
            }
        }
        let frame = world.frame(0).unwrap();
        (world, frame)
    }

    /// Fills in the checksums of a packet that was changed.
    fn mend(packet: &mut [u8], v6: bool) {
        let (at, addresses) = if v6 { (IPV6_BYTES, 8..40) } else { (IPV4_BYTES, 12..20) };
        if !v6 {
            packet[10..12].fill(0);
            let checksum = Sum::default().bytes(&packet[..IPV4_BYTES]).checksum();
            packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        }
        packet[at + 16..at + 18].fill(0);
        let sum = Sum::default().bytes(&packet[addresses]).word(u16::try_from(packet.len() - at).unwrap());
        let checksum = sum.word(u16::from(TCP)).bytes(&packet[at..]).checksum();
        packet[at + 16..at + 18].copy_from_slice(&checksum.to_be_bytes());
    }

    #[test]
    fn a_frame_with_any_header_has_the_same_effect_on_the_fast_and_the_slow_path() {
        let mut taken_fast = 0;
        for (v6, at) in [(false, 0), (true, 3), (false, 1), (false, 2), (false, 3)] {
            let bits = 8 * if v6 { 40 + 32 } else { 20 + 32 };
            for flipped in 0..bits {
                let seen = [false, true].map(|off| {
                    let (mut world, mut frame) = stage(at, (v6, false));
                    frame[flipped / 8] ^= 1 << (flipped % 8);
                    mend(&mut frame, v6);
                    OFF.set(off);
                    world.hand_over(1, &frame, Marks::default());
                    OFF.set(false);
                    world.seen(1)
                });
                assert_eq!(seen[0], seen[1], "stage {at}, IPv6 {v6}, bit {flipped}");
            }
            let (mut world, frame) = stage(at, (v6, false));
            let (header, payload) = frame.split_at(frame.len().min(HEADER_BYTES_MAX));
            let taken = world.hosts[1].receive_fast(world.now, DEVICE, &Received::unmarked(header, payload));
            taken_fast += u32::from(taken == Some(Ok(())));
        }
        assert_eq!(taken_fast, 5, "what opens and ends a connection takes the fast path too");
    }

    #[test]
    fn a_peer_address_that_becomes_an_own_address_is_a_martian_source() {
        let mut world = World::new((false, false));
        world.write(0, b"from a stranger");
        let frame = world.frame(0).unwrap();
        let addresses = vec![Prefix::new(address(0, false), 24).unwrap()];
        let config = DeviceConfig { medium: Medium::Ip, mtu: 1500, addresses, agreed: Agreed::default() };
        world.hosts[1].add_device(config).unwrap();
        world.hand_over(1, &frame, Marks::default());
        assert_eq!(world.hosts[1].drops().get(crate::drops::IpDrop::SourceMartian), 1);
    }
}
