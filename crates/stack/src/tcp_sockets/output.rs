//! Segments on their way out: built in place, in the frame that the device's owner hands in, by connections that take turns.

use super::input::header_bytes;
use super::{Flow, Next, PacketClass, Socket, Way};
use crate::checksum::Sum;
use crate::device::{LINK_BYTES, Medium, Outgoing};
use crate::drops::{DropReason, IpDrop};
use crate::frame::{DeviceId, Marks};
use crate::limits::TCP_BURST_FRAMES;
use crate::neighbour::NeighbourKey;
use crate::output::Hop;
use crate::route::Target;
use crate::stack::{Stack, Transmit};
use crate::tcp::{Connection, Header, Segment, StateName, Storage};
use crate::time::Instant;
use smoltcp::wire::EthernetProtocol;
use std::net::IpAddr;

/// Largest IP packet.
const PACKET_BYTES_MAX: usize = 65_535;
/// Largest headers of a segment: IPv6 and TCP with all options.
const HEADERS_BYTES_MAX: usize = 40 + 60;

impl<S: Storage> Stack<S> {
    /// Where packets to an address leave.
    pub(super) fn way_to(&self, remote: IpAddr, on: Option<DeviceId>) -> Way {
        if self.is_own(remote) {
            return Way::Own;
        }
        match (on, self.routes.lookup(remote)) {
            (Some(device), _) => Way::Device { device, next: remote },
            (None, Some(Target::Via { device, gateway })) => Way::Device { device, next: gateway.unwrap_or(remote) },
            (None, Some(Target::Local(_) | Target::Broadcast(_)) | None) => Way::Nowhere,
        }
    }

    /// Puts a connection that is in no list into that of those with something to send.
    #[inline]
    pub(super) fn enqueue(&mut self, slot: u32) {
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return };
        socket.queued = true;
        let mut way = socket.way;
        if socket.way_version != self.routes_version {
            let (remote, on) = (socket.flow.remote_ip(), socket.on);
            way = self.way_to(remote, on);
            if let Some(socket) = self.tcp.sockets.get_mut(slot) {
                (socket.way, socket.way_version, socket.way_changed) = (way, self.routes_version, true);
            }
        }
        match way {
            Way::Device { device, .. } => self.tcp.pending[usize::from(device.0)].push_back(slot),
            Way::Own | Way::Nowhere => self.tcp.own_pending.push_back(slot),
        }
    }

    /// Builds the next segment for a device.
    pub(crate) fn poll_tcp(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        let at = usize::from(device.0);
        loop {
            let slot = *self.tcp.pending.get(at)?.front()?;
            let out = self.devices.get(at)?;
            let (link_bytes, agreed) = (out.link_bytes(), out.config.agreed);
            if into.len() < link_bytes + usize::from(out.config.mtu) {
                return None;
            }
            let room = (into.len() - link_bytes).min(PACKET_BYTES_MAX);
            let large = if agreed.large_segments { room.saturating_sub(HEADERS_BYTES_MAX) } else { 0 };
            let Some(socket) = self.tcp.sockets.get_mut(slot) else {
                self.leave(at);
                continue;
            };
            if socket.way_version != self.routes_version {
                socket.queued = false;
                self.leave(at);
                self.enqueue(slot);
                continue;
            }
            if std::mem::take(&mut socket.way_changed) {
                let mss = out.config.mtu - header_bytes(socket.flow.remote_ip());
                socket.connection.set_device_mss(now, mss);
            }
            // It stays where it was written: a copy of it would wait for what was just stored.
            let segment = socket.connection.poll_transmit(now, large);
            let Some(segment) = &segment else {
                socket.queued = false;
                self.leave(at);
                self.come_to_rest(slot);
                continue;
            };
            let len = link_bytes + build(socket, segment, agreed.checksum_unfilled, &mut into[link_bytes..]);
            let marks = Marks { checksum_unfilled: agreed.checksum_unfilled, segment_bytes: segment.segment_bytes };
            let way = socket.way;
            self.tcp.burst += 1;
            if !socket.connection.wants_transmit() {
                socket.queued = false;
                self.leave(at);
                self.come_to_rest(slot);
            } else if self.tcp.burst >= TCP_BURST_FRAMES {
                self.tcp.burst = 0;
                self.tcp.pending[at].rotate_left(1);
            }
            if self.address_frame(now, device, way, &mut into[..len], marks) {
                return Some(Transmit { len, marks });
            }
        }
    }

    /// The first in the list leaves it.
    fn leave(&mut self, at: usize) {
        self.tcp.burst = 0;
        self.tcp.pending[at].pop_front();
    }

    fn come_to_rest(&mut self, slot: u32) {
        if self.tcp.rest(slot) == Next::End {
            self.tcp.end(slot);
        }
    }

    /// Writes the link's header in front of a packet; false, if it has to wait for its neighbour's address, and so was copied.
    #[inline]
    fn address_frame(&mut self, now: Instant, device: DeviceId, way: Way, frame: &mut [u8], marks: Marks) -> bool {
        let out = &mut self.devices[usize::from(device.0)];
        if let (Medium::Ethernet(_), Way::Device { next, .. }) = (out.config.medium, way) {
            let ipv4 = next.is_ipv4();
            let Some(mac) = self.neighbours.resolve(now, NeighbourKey { device, address: next }) else {
                let packets = vec![Outgoing { bytes: frame.to_vec(), marks }];
                if let Err(reason) = self.transmit(now, device, Hop::Neighbour(next), ipv4, packets) {
                    self.drops.count(reason);
                }
                return false;
            };
            let protocol = if ipv4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
            out.write_link_header(mac, protocol, frame);
        }
        out.count_sent(1, frame.len() as u64);
        true
    }

    /// Has the first of those that send to ourselves or nowhere do so. False: there is none.
    pub(crate) fn poll_own(&mut self, now: Instant) -> bool {
        let Some(slot) = self.tcp.own_pending.pop_front() else { return false };
        let Some(socket) = self.tcp.sockets.get_mut(slot) else { return true };
        let Some(segment) = socket.connection.poll_transmit(now, 0) else {
            socket.queued = false;
            self.come_to_rest(slot);
            return true;
        };
        self.tcp.own_pending.push_back(slot);
        if let Some(socket) = self.tcp.sockets.get(slot).filter(|socket| socket.way == Way::Own) {
            let mut bytes = vec![0; LINK_BYTES + HEADERS_BYTES_MAX + segment.payload.len as usize];
            let len = build(socket, &segment, false, &mut bytes[LINK_BYTES..]);
            bytes.truncate(LINK_BYTES + len);
            self.loopback.push_back(bytes);
        } else {
            self.drops.count(IpDrop::NoRoute);
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
        let ip_bytes = ip_bytes(flow.remote_ip());
        let segment_bytes = header.header_bytes();
        header.emit(&mut into[ip_bytes..]);
        let len = finish(&flow, class, segment_bytes, false, into);
        bytes.truncate(LINK_BYTES + len);
        self.send_packet(now, bytes, self.link_of(device, flow.remote_ip()))
    }
}

pub(super) fn is_over<S: Storage>(connection: &Connection<S>) -> bool {
    matches!(connection.state_name(), StateName::Closed | StateName::TimeWait)
}

fn ip_bytes(remote: IpAddr) -> usize {
    if remote.is_ipv4() { 20 } else { 40 }
}

/// Writes a segment of a connection as an IP packet; says how long it is.
#[inline]
fn build<S: Storage>(socket: &Socket<S>, segment: &Segment, unfilled: bool, into: &mut [u8]) -> usize {
    let ip_bytes = ip_bytes(socket.flow.remote_ip());
    let header_bytes = segment.header.header_bytes();
    let payload_bytes = segment.payload.len as usize;
    segment.header.emit(&mut into[ip_bytes..]);
    let at = ip_bytes + header_bytes;
    socket.connection.copy_payload(segment.payload, 0, &mut into[at..at + payload_bytes]);
    // RFC 9293 SHLD-22: what the application asked for, beside which ECN has two bits of its own.
    let service = socket.class.service | if segment.ecn_capable { 2 } else { 0 };
    finish(&socket.flow, PacketClass { service, ..socket.class }, header_bytes + payload_bytes, unfilled, into)
}

/// Writes the IP header in front of a segment, and the checksums. The packet must not be fragmented, so an identification is
/// not needed (RFC 6864).
/// RFC 9293 MUST-45, MUST-48, MUST-49.
#[inline]
fn finish(flow: &Flow, class: PacketClass, segment_bytes: usize, unfilled: bool, into: &mut [u8]) -> usize {
    let PacketClass { hop_limit, service } = class;
    const CHECKSUM_AT: usize = 16;
    let ip_bytes = ip_bytes(flow.remote_ip());
    let total = ip_bytes + segment_bytes;
    if !unfilled {
        // RFC 9293 MUST-2; a device that agreed to fill it in does so.
        let sum = Sum::default().pseudo_header(flow.local_ip(), flow.remote_ip(), 6, segment_bytes);
        let checksum = sum.bytes(&into[ip_bytes..total]).checksum();
        into[ip_bytes + CHECKSUM_AT..ip_bytes + CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
    }
    let length = |bytes: usize| u16::try_from(bytes).unwrap_or(u16::MAX).to_be_bytes();
    match (flow.local_ip(), flow.remote_ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            const DONT_FRAGMENT: u8 = 0x40;
            let [a, b] = length(total);
            let mut header = [0x45, service, a, b, 0, 0, DONT_FRAGMENT, 0, hop_limit, 6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            header[12..16].copy_from_slice(&from.octets());
            header[16..].copy_from_slice(&to.octets());
            let checksum = Sum::default().bytes(&header).checksum();
            header[10..12].copy_from_slice(&checksum.to_be_bytes());
            into[..20].copy_from_slice(&header);
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let [a, b] = length(segment_bytes);
            into[..8].copy_from_slice(&[0x60 | service >> 4, service << 4, 0, 0, a, b, 6, hop_limit]);
            into[8..24].copy_from_slice(&from.octets());
            into[24..40].copy_from_slice(&to.octets());
        }
        // A flow has one IP version.
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return 0,
    }
    total
}
