//! Sends segments: the connections of a device take turns, and each builds its segment in a frame buffer that the caller provides.

use crate::drops::{DropReason, IpDrop};
use crate::ip::identification::Identifications;
use crate::ip::output::Hop;
use crate::ip::route::Target;
use crate::limits::TCP_BURST_FRAMES;
use crate::link::device::{Medium, Outgoing};
use crate::link::frame::{DeviceId, Marks};
use crate::link::neighbour::NeighbourKey;
use crate::sockets::settings::PacketClass;
use crate::sockets::socket::{Egress, Socket};
use crate::sockets::{Flow, NextStep, TcpId, TcpSockets};
use crate::stack::{Stack, Transmit};
use crate::tcp::{FastSegment, Segment, SendRange, Storage};
use crate::time::Instant;
use crate::wire::checksum::{Sum, copy_and_add};
use crate::wire::ethernet::LINK_BYTES;
use crate::wire::ipv4::allow_fragments;
use crate::wire::tcp::{CHECKSUM, HEADER_BYTES_MAX, Header, Ports};
use smoltcp::wire::EthernetProtocol;
use std::collections::VecDeque;
use std::net::IpAddr;

/// Length of the largest IP packet in bytes.
pub(super) const PACKET_BYTES_MAX: usize = 65_535;
/// Length in bytes of the longest headers of a segment: the IPv6 header, and the TCP header with options.
pub(super) const HEADERS_BYTES_MAX: usize = IPV6_BYTES + HEADER_BYTES_MAX;
const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const TCP: u32 = crate::wire::protocol::TCP as u32;

impl<S: Storage> Stack<S> {
    /// Looks up the route to an address, and returns where packets to the address leave the stack.
    pub(super) fn egress_to(&self, remote: IpAddr, on: Option<DeviceId>) -> Egress {
        if self.ip.is_own(remote) {
            return Egress::Local;
        }
        match (on, self.ip.routes.lookup(remote)) {
            (Some(device), _) => Egress::Device { device, next: remote },
            (None, Some(Target::Via { device, gateway })) => Egress::Device { device, next: gateway.unwrap_or(remote) },
            (None, Some(Target::Local(_) | Target::Broadcast(_) | Target::Nobody) | None) => Egress::Unreachable,
        }
    }

    /// Adds a connection that has something to send to its send queue, unless it is queued already.
    #[inline]
    pub(super) fn enqueue(&mut self, slot: u32) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        socket.queued = true;
        let mut egress = socket.egress;
        if socket.egress_version != self.ip.routes_version {
            let (remote, on) = (socket.flow.remote_ip(), socket.on);
            egress = self.egress_to(remote, on);
            if let Some(socket) = self.tcp.sockets.get_mut(slot) {
                (socket.egress, socket.egress_version, socket.egress_changed) = (egress, self.ip.routes_version, true);
            }
        }
        match egress {
            Egress::Device { device, .. } => self.tcp.pending[usize::from(device.0)].push_back(slot),
            Egress::Local | Egress::Unreachable => self.tcp.own_pending.push_back(slot),
        }
    }

    /// Looks up the egress of a connection that has something to send, and enqueues it. If its peer is this stack itself, its segments
    /// are delivered at once.
    #[inline(never)]
    pub(super) fn enqueue_anywhere(&mut self, now: Instant, slot: u32) {
        self.enqueue(slot);
        self.deliver_loopback(now);
    }

    /// Updates a connection after its application has written or read. Causes no event, because the application learns the new
    /// readiness from the result of its call.
    #[inline]
    pub(super) fn used(&mut self, now: Instant, slot: u32) {
        let tcp = &mut self.tcp;
        let Some(socket) = tcp.sockets.get_mut(slot) else { return };
        if !TcpSockets::settle(&mut tcp.buffers, &mut tcp.pending, slot, socket, self.ip.routes_version) {
            self.enqueue_anywhere(now, slot);
        }
    }

    /// Moves a connection to the front of its device's send queue. This also works if the application has closed the connection.
    /// Returns the device, or `None` if the connection is not queued to send.
    pub fn tcp_put_first(&mut self, id: TcpId) -> Option<DeviceId> {
        let socket = self.tcp.sockets.named(id.slot, id.generation).filter(|socket| socket.queued)?;
        let Egress::Device { device, .. } = socket.egress else { return None };
        let pending = &mut self.tcp.pending[usize::from(device.0)];
        // The search usually ends early, because applications serve connections in the order in which segments arrived.
        let at = pending.iter().position(|slot| *slot == id.slot)?;
        if at > 0 {
            pending.remove(at);
            pending.push_front(id.slot);
            self.tcp.burst = 0;
        }
        Some(device)
    }

    /// Returns true if a connection is the first in the send queue of a device.
    pub fn tcp_is_first(&self, id: TcpId, device: DeviceId) -> bool {
        let first = self.tcp.pending.get(usize::from(device.0)).and_then(VecDeque::front);
        first == Some(&id.slot) && self.tcp.sockets.named(id.slot, id.generation).is_some()
    }

    /// Like `poll_transmit`, but builds a frame only if this connection is the first in the send queue of the device.
    /// [`Stack::tcp_put_first`] moves it there.
    pub fn poll_transmit_of(&mut self, now: Instant, device: DeviceId, id: TcpId, into: &mut [u8]) -> Option<Transmit> {
        self.poll_tcp(now, device, Some(id), into)
    }

    /// Builds the next frame with a TCP segment for a device. If `only` is given, only this connection may send.
    pub(crate) fn poll_tcp(
        &mut self,
        now: Instant,
        device: DeviceId,
        only: Option<TcpId>,
        into: &mut [u8],
    ) -> Option<Transmit> {
        let at = usize::from(device.0);
        loop {
            if only.is_some_and(|id| !self.tcp_is_first(id, device)) {
                return None;
            }
            let slot = *self.tcp.pending.get(at)?.front()?;
            let out = self.ip.devices.get(at)?;
            let (link_bytes, agreed) = (out.link_bytes(), out.config.agreed);
            if into.len() < link_bytes + usize::from(out.config.mtu) && into.len() < self.next_segment_max(now, device)
            {
                return None;
            }
            let room = (into.len() - link_bytes).min(PACKET_BYTES_MAX);
            let large = if agreed.large_segments { room.saturating_sub(HEADERS_BYTES_MAX) } else { 0 };
            let Some(socket) = self.tcp.sockets.get_mut(slot) else {
                self.leave(at);
                continue;
            };
            if socket.egress_version != self.ip.routes_version {
                socket.queued = false;
                self.leave(at);
                self.enqueue(slot);
                continue;
            }
            if socket.egress_changed {
                socket.follow_egress(now, out.config.mtu);
            }
            let Some((bytes, segment_bytes)) = next(
                now,
                socket,
                large,
                agreed.checksum_unfilled,
                &mut self.ip.identifications,
                &mut into[link_bytes..],
            ) else {
                socket.queued = false;
                self.leave(at);
                self.come_to_rest(slot);
                continue;
            };
            let len = link_bytes + bytes;
            let marks = Marks { checksum_unfilled: agreed.checksum_unfilled, segment_bytes };
            let egress = socket.egress;
            self.tcp.recent.note(&socket.flow, slot);
            self.tcp.burst += 1;
            if !socket.connection.wants_transmit() {
                socket.queued = false;
                let (next, announces) = TcpSockets::rest_of(&mut self.tcp.buffers, &mut self.tcp.wheel, slot, socket);
                self.leave(at);
                if announces {
                    self.tcp.announce_progress(slot);
                }
                if next == NextStep::End {
                    self.tcp.end(slot);
                }
            } else if self.tcp.burst >= TCP_BURST_FRAMES {
                self.tcp.burst = 0;
                self.tcp.pending[at].rotate_left(1);
            }
            if self.address_frame(now, device, egress, &mut into[..len], marks) {
                self.ip.capture_sent(now, device, &into[..len]);
                return Some(Transmit { len, marks });
            }
        }
    }

    /// Returns an upper bound for the length of the next frame with a TCP segment, in bytes.
    pub(crate) fn next_segment_max(&self, now: Instant, device: DeviceId) -> usize {
        let at = usize::from(device.0);
        let (Some(slot), Some(out)) = (self.tcp.pending.get(at).and_then(|list| list.front()), self.ip.devices.get(at))
        else {
            return 0;
        };
        let mtu = usize::from(out.config.mtu);
        let most = if out.config.agreed.large_segments { PACKET_BYTES_MAX } else { mtu };
        let next = self.tcp.sockets.get(*slot).and_then(|socket| socket.connection.next_payload_max(now));
        out.link_bytes() + next.map_or(most, |payload| payload.saturating_add(HEADERS_BYTES_MAX).min(most))
    }

    /// Removes a connection that has just sent from its device's send queue, unless it has more to send. The connection is the
    /// first in the queue.
    pub(super) fn leave_unless_more(&mut self, slot: u32, device: DeviceId) {
        let at = usize::from(device.0);
        let Some(socket) = self.tcp.sockets.get_mut(slot).filter(|socket| socket.queued) else { return };
        if !socket.connection.wants_transmit() && self.tcp.pending[at].front() == Some(&slot) {
            socket.queued = false;
            self.leave(at);
        }
    }

    /// Removes the first connection from the send queue of a device.
    fn leave(&mut self, at: usize) {
        self.tcp.burst = 0;
        self.tcp.pending[at].pop_front();
    }

    #[inline]
    pub(super) fn come_to_rest(&mut self, slot: u32) {
        if self.tcp.rest(slot) == NextStep::End {
            self.tcp.end(slot);
        }
    }

    /// Writes the link header before a packet. If the neighbour's link-layer address is unknown, returns false, and queues a copy
    /// of the packet until the address is known.
    #[inline]
    fn address_frame(
        &mut self,
        now: Instant,
        device: DeviceId,
        egress: Egress,
        frame: &mut [u8],
        marks: Marks,
    ) -> bool {
        let out = &mut self.ip.devices[usize::from(device.0)];
        if let (Medium::Ethernet(_), Egress::Device { next, .. }) = (out.config.medium, egress) {
            let ipv4 = next.is_ipv4();
            let Some(mac) = self.ip.neighbours.resolve(now, NeighbourKey { device, address: next }) else {
                let packets = vec![Outgoing { bytes: frame.to_vec(), marks }];
                if let Err(reason) = self.ip.transmit(now, device, Hop::Neighbour(next), ipv4, packets) {
                    self.ip.drops.count(reason);
                }
                return false;
            };
            let protocol = if ipv4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
            out.write_link_header(mac, protocol, frame);
        }
        out.count_sent(1, frame.len() as u64);
        true
    }

    /// Sends one segment of a connection whose peer is this stack itself, or which has no route. Returns false if no such
    /// connection is queued to send.
    pub(crate) fn poll_own(&mut self, now: Instant) -> bool {
        let Some(slot) = self.tcp.own_pending.pop_front() else { return false };
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return true };
        let Some(segment) = socket.connection.poll_transmit(now, 0) else {
            socket.queued = false;
            self.come_to_rest(slot);
            return true;
        };
        self.tcp.own_pending.push_back(slot);
        if let Some(socket) = self.tcp.sockets.get(slot).filter(|socket| socket.egress == Egress::Local) {
            let mut bytes = vec![0; LINK_BYTES + HEADERS_BYTES_MAX + segment.payload.len as usize];
            let len = build(socket, &segment, false, &mut bytes[LINK_BYTES..]);
            bytes.truncate(LINK_BYTES + len);
            self.ip.loopback.push_back(bytes);
        } else {
            self.ip.drops.count(IpDrop::NoRoute);
        }
        true
    }

    /// Sends a segment that belongs to no connection in the table.
    pub(super) fn send_segment(
        &mut self,
        now: Instant,
        flow: Flow,
        header: &Header,
        class: PacketClass,
        device: DeviceId,
    ) -> Result<(), DropReason> {
        let mut bytes = vec![0; LINK_BYTES + HEADERS_BYTES_MAX];
        let into = &mut bytes[LINK_BYTES..];
        let segment_bytes = header.header_bytes();
        header.emit(&mut into[ip_bytes(&flow)..]);
        let len = finish(&flow, class, segment_bytes, false, into);
        bytes.truncate(LINK_BYTES + len);
        self.ip.send_packet(now, bytes, self.ip.link_of(device, flow.remote_ip()))
    }
}

fn ip_bytes(flow: &Flow) -> usize {
    if flow.is_ipv4() { IPV4_BYTES } else { IPV6_BYTES }
}

/// Writes the next segment of a connection as an IP packet. Returns the packet's length in bytes, and [`Marks::segment_bytes`]. An
/// eligible connection uses the fast path, which writes a header of five or eight words, and copies the payload at most once.
#[inline]
fn next<S: Storage>(
    now: Instant,
    socket: &mut Socket<S>,
    large: usize,
    unfilled: bool,
    idents: &mut Identifications,
    into: &mut [u8],
) -> Option<(usize, u16)> {
    if let Ok(segment) = socket.connection.poll_fast(now, large) {
        let segment = segment?;
        return Some((build_fast(socket, &segment, unfilled, into), segment.segment_bytes));
    }
    next_of_any_kind(now, socket, large, unfilled, idents, into)
}

#[inline(never)]
fn next_of_any_kind<S: Storage>(
    now: Instant,
    socket: &mut Socket<S>,
    large: usize,
    unfilled: bool,
    idents: &mut Identifications,
    into: &mut [u8],
) -> Option<(usize, u16)> {
    let is_fragmentable = !socket.connection.config().mtu_discovery.forbids_fragments();
    // A link would cut a large segment into packets with identifications that belong to other packets.
    let large = if is_fragmentable { 0 } else { large };
    // The segment is used through a reference. Moving it would stall until the stores that wrote it have completed (decision 011).
    let segment = socket.connection.poll_transmit(now, large);
    let segment = segment.as_ref()?;
    let len = build(socket, segment, unfilled, into);
    if is_fragmentable
        && !segment.path_probe
        && let IpAddr::V4(to) = socket.flow.remote_ip()
    {
        allow_fragments(&mut into[..len], idents.next_v4(to));
    }
    Some((len, segment.segment_bytes))
}

/// Writes a segment of the fast path as an IP packet. Returns the packet's length in bytes.
#[inline]
fn build_fast<S: Storage>(socket: &Socket<S>, segment: &FastSegment, unfilled: bool, into: &mut [u8]) -> usize {
    let range = SendRange { seq: segment.header.seq, len: segment.header.len };
    build_around(socket, segment, unfilled, into, |payload, sum| match socket.connection.private_payload(range) {
        Some(bytes) => copy_and_add(sum, bytes, payload),
        None => {
            socket.connection.copy_payload(range, 0, payload);
            sum.map(|sum| sum.bytes(payload))
        }
    })
}

/// Like [`build_fast`], but the function `fill` writes the payload. If the caller needs the checksum, `fill` also adds the payload
/// to the sum.
#[inline]
pub(super) fn build_around<S: Storage>(
    socket: &Socket<S>,
    segment: &FastSegment,
    unfilled: bool,
    into: &mut [u8],
    fill: impl FnOnce(&mut [u8], Option<Sum>) -> Option<Sum>,
) -> usize {
    let Socket { flow, class, .. } = socket;
    let (ip, tcp) = into.split_at_mut(ip_bytes(flow));
    let ports = Ports { source: flow.local_port, destination: flow.remote_port };
    let (header_bytes, sum) = segment.header.emit(ports, segment.fin, tcp);
    let segment_bytes = header_bytes + segment.header.len as usize;
    let pseudo_header = write_ip(flow, *class, segment_bytes, ip);
    let payload = &mut tcp[header_bytes..segment_bytes];
    if let Some(sum) = fill(payload, (!unfilled).then(|| sum.and(pseudo_header))) {
        fill_checksum(tcp, sum);
    }
    ip.len() + segment_bytes
}

/// Writes a segment of the slow path as an IP packet. Returns the packet's length in bytes.
#[inline]
fn build<S: Storage>(socket: &Socket<S>, segment: &Segment, unfilled: bool, into: &mut [u8]) -> usize {
    let header_bytes = segment.header.header_bytes();
    let payload_bytes = segment.payload.len as usize;
    let tcp = &mut into[ip_bytes(&socket.flow)..];
    segment.header.emit(tcp);
    socket.connection.copy_payload(segment.payload, 0, &mut tcp[header_bytes..header_bytes + payload_bytes]);
    // RFC 9293 SHLD-22: this octet contains the differentiated services that the application set, and two bits of ECN.
    let service = socket.class.service | if segment.ecn_capable { 2 } else { 0 };
    finish(&socket.flow, PacketClass { service, ..socket.class }, header_bytes + payload_bytes, unfilled, into)
}

/// Writes the IP header before a segment. Fills in the TCP checksum unless `unfilled` is set. Returns the packet's length in
/// bytes.
#[inline]
fn finish(flow: &Flow, class: PacketClass, segment_bytes: usize, unfilled: bool, into: &mut [u8]) -> usize {
    let (ip, tcp) = into.split_at_mut(ip_bytes(flow));
    let pseudo_header = write_ip(flow, class, segment_bytes, ip);
    if !unfilled {
        fill_checksum(tcp, pseudo_header.bytes(&tcp[..segment_bytes]));
    }
    ip.len() + segment_bytes
}

/// Fills in the checksum of a segment (RFC 9293 MUST-2). Not called if the device has agreed to fill it in.
#[inline]
fn fill_checksum(tcp: &mut [u8], sum: Sum) {
    tcp[CHECKSUM].copy_from_slice(&sum.checksum().to_be_bytes());
}

/// Writes the IP header of a segment. Returns the sum of the pseudo-header. The IPv4 identification is 0, because the packet must
/// not be fragmented (RFC 6864).
///
/// RFC 9293 MUST-45, MUST-48, MUST-49: local address, differentiated services and TTL are those of the connection.
#[inline]
fn write_ip(flow: &Flow, class: PacketClass, segment_bytes: usize, into: &mut [u8]) -> Sum {
    let length = |bytes: usize| u32::from(u16::try_from(bytes).unwrap_or(u16::MAX));
    let (service, hop_limit) = (u32::from(class.service), u32::from(class.hop_limit));
    let sum = Sum::default().long(length(segment_bytes)).long(TCP);
    let (places, _) = into.as_chunks_mut::<4>();
    if let Some((from, to)) = flow.ipv4() {
        const DONT_FRAGMENT: u32 = 0x4000;
        let mut header = [0x45 << 24 | service << 16 | length(IPV4_BYTES + segment_bytes), DONT_FRAGMENT, 0, from, to];
        header[2] = hop_limit << 24 | TCP << 16;
        let checksum = header.iter().fold(Sum::default(), |sum, word| sum.long(*word)).checksum();
        header[2] |= u32::from(checksum);
        for (place, word) in places.iter_mut().zip(header) {
            *place = word.to_be_bytes();
        }
        return sum.long(from).long(to);
    }
    let start = [0x60 << 24 | service << 20, length(segment_bytes) << 16 | TCP << 8 | hop_limit];
    let addresses = [flow.local, flow.remote].map(u128::to_be_bytes);
    for (place, word) in places.iter_mut().zip(start) {
        *place = word.to_be_bytes();
    }
    into[8..IPV6_BYTES].copy_from_slice(addresses.as_flattened());
    sum.bytes(addresses.as_flattened())
}
