//! Packets of the stack's own: where they leave, from which address, cut to what the path takes, and to which station.

use crate::drops::{DropReason, IpDrop, LinkDrop, UdpDrop};
use crate::ip::route::Target;
use crate::ip::segmentation::{Pieces, Plan, Shape};
use crate::limits::{IPV4_IDENT_COUNTERS, LOOPBACK_PACKETS_MAX};
use crate::link::device::{Medium, Outgoing};
use crate::link::frame::{DeviceId, Marks, Packet, Payload};
use crate::link::neighbour::NeighbourKey;
use crate::stack::Stack;
use crate::tcp::Storage;
use crate::time::Instant;
use crate::udp::members::{SendOptions, is_reserved};
use crate::udp::{Datagram, UdpError};
use crate::wire::address::is_link_local;
use crate::wire::checksum::Sum;
use crate::wire::ethernet::{LINK_BYTES, MacAddress};
use crate::wire::ipv4::{Ipv4Build, Ipv4Header};
use crate::wire::ipv6::{FRAGMENT_BYTES, Ipv6Build, Ipv6Header};
use smoltcp::wire::{EthernetProtocol, IpProtocol};
use std::net::{IpAddr, SocketAddr};

/// Who on a link is to have a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hop {
    Neighbour(IpAddr),
    Group(MacAddress),
}

impl<S: Storage> Stack<S> {
    /// Sends a packet that has [`LINK_BYTES`] of room in front, over a given device or where its destination's route leads.
    pub(crate) fn send_packet(
        &mut self,
        now: Instant,
        mut bytes: Vec<u8>,
        on: Option<DeviceId>,
    ) -> Result<(), DropReason> {
        let (shape, to) = shape_of(&bytes[LINK_BYTES..]).ok_or(IpDrop::Length)?;
        if self.is_own(to) {
            self.sent.note(now, &mut bytes[LINK_BYTES..], shape, shape.total_bytes);
            if self.loopback.len() >= LOOPBACK_PACKETS_MAX {
                return Err(LinkDrop::QueueFull.into());
            }
            self.loopback.push_back(bytes);
            return Ok(());
        }
        let group = group_address(to);
        let (device, hop) = match (on, self.routes.lookup(to)) {
            (_, Some(Target::Broadcast(device))) => (device, Hop::Group(MacAddress::BROADCAST)),
            (Some(device), _) => (device, group.map_or(Hop::Neighbour(to), Hop::Group)),
            (None, Some(Target::Via { device, gateway })) => {
                (device, group.map_or(Hop::Neighbour(gateway.unwrap_or(to)), Hop::Group))
            }
            (None, Some(Target::Local(_) | Target::Nobody) | None) => return Err(IpDrop::NoRoute.into()),
        };
        let mtu = self.devices[usize::from(device.0)].config.mtu;
        let mtu = usize::from(self.paths.get(now, to).map_or(mtu, |path| path.min(mtu)));
        self.sent.note(now, &mut bytes[LINK_BYTES..], shape, shape.total_bytes.min(mtu));
        let marks = Marks::default();
        if shape.total_bytes <= mtu {
            return self.transmit(now, device, hop, to.is_ipv4(), vec![Outgoing { bytes, marks }]);
        }
        let packet = Packet {
            frame: &bytes[LINK_BYTES..],
            payload: &[][..],
            payload_bytes: 0,
            link_bytes: 0,
            marks,
            device,
            link: device,
            to_group: false,
        };
        let mut pieces = Pieces::new(packet, shape, &mut self.scratch);
        match to {
            IpAddr::V4(_) => pieces.plan_fragments_v4(mtu),
            IpAddr::V6(_) => {
                let ident = self.fragment_idents.next_u32();
                pieces.set_plan(Plan::FragmentsV6 { bytes: (mtu - shape.ip_bytes - FRAGMENT_BYTES) & !7, ident });
            }
        }
        let packets = collect(&mut pieces);
        self.transmit(now, device, hop, to.is_ipv4(), packets)
    }

    /// Gives packets to a device, behind a link header once the station is known.
    pub(crate) fn transmit(
        &mut self,
        now: Instant,
        device: DeviceId,
        hop: Hop,
        ipv4: bool,
        packets: Vec<Outgoing>,
    ) -> Result<(), DropReason> {
        let mac = match (self.devices[usize::from(device.0)].config.medium, hop) {
            (Medium::Ip, _) => MacAddress::BROADCAST,
            (Medium::Ethernet(_), Hop::Group(mac)) => mac,
            (Medium::Ethernet(_), Hop::Neighbour(address)) => {
                let key = NeighbourKey { device, address };
                match self.neighbours.resolve(now, key) {
                    Some(mac) => mac,
                    None => {
                        if self.neighbours.enqueue(now, key, packets)? {
                            self.solicit(now, key, None);
                        }
                        return Ok(());
                    }
                }
            }
        };
        let protocol = if ipv4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
        let device = &mut self.devices[usize::from(device.0)];
        for mut outgoing in packets {
            device.write_link_header(mac, protocol, &mut outgoing.bytes);
            device.push(outgoing)?;
        }
        Ok(())
    }

    pub(crate) fn send_udp(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        bytes: &[u8],
        options: SendOptions,
    ) -> Result<(), UdpError> {
        if remote.port() == 0 || remote.is_ipv4() != local.is_ipv4() || remote.ip().is_unspecified() {
            return Err(UdpError::Address);
        }
        if is_reserved(remote.ip()) {
            return Err(UdpError::Address);
        }
        let length = u16::try_from(8 + bytes.len()).map_err(|_| UdpError::TooLong)?;
        let on = options.device(remote.ip()).or_else(|| self.link_for(local.ip(), remote.ip()));
        let on = on.or_else(|| self.group_route(remote.ip()));
        let from = match local.ip() {
            any if any.is_unspecified() || any.is_multicast() => self.address_towards(remote.ip(), on),
            bound => Some(bound),
        };
        let from = from.ok_or(UdpError::Dropped(IpDrop::NoRoute.into()))?;
        let mut segment = Vec::with_capacity(8 + bytes.len());
        segment.extend_from_slice(&local.port().to_be_bytes());
        segment.extend_from_slice(&remote.port().to_be_bytes());
        segment.extend_from_slice(&length.to_be_bytes());
        segment.extend_from_slice(&[0, 0]);
        segment.extend_from_slice(bytes);
        let sum = Sum::default().pseudo_header(from, remote.ip(), 17, segment.len()).bytes(&segment);
        let checksum = match sum.checksum() {
            0 => u16::MAX, // RFC 768: 0 says that there is none
            checksum => checksum,
        };
        segment[6..8].copy_from_slice(&checksum.to_be_bytes());
        let hop_limit = options.hop_limit(remote.ip());
        let packet = match (from, remote.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let ident = self.ident(to.into());
                let build = Ipv4Build { from, to, protocol: IpProtocol::Udp, ttl: hop_limit, service: 0, ident };
                build.packet(&segment)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Ipv6Build { from, to, protocol: IpProtocol::Udp, hop_limit }.packet(&segment)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return Err(UdpError::Address),
        };
        let packet = packet.ok_or(UdpError::TooLong)?;
        if remote.ip().is_multicast() {
            let sent = Datagram { from: SocketAddr::new(from, local.port()), to: remote.ip(), bytes: bytes.to_vec() };
            if !self.loop_to_group(on, options, remote.port(), &sent) {
                return Ok(());
            }
        }
        self.send_packet(now, packet, on).map_err(|reason| {
            self.drops.count(reason);
            UdpError::Dropped(reason)
        })
    }

    /// The address to send from, to `to`, over that device or over its route's.
    pub(crate) fn address_towards(&self, to: IpAddr, on: Option<DeviceId>) -> Option<IpAddr> {
        if self.is_own(to) {
            return Some(to);
        }
        let (device, next) = match (on, self.routes.lookup(to)) {
            (Some(device), _) => (device, to),
            (None, Some(Target::Via { device, gateway })) => (device, gateway.unwrap_or(to)),
            (None, Some(Target::Broadcast(device) | Target::Local(device))) => (device, to),
            (None, Some(Target::Nobody) | None) => return None,
        };
        self.devices[usize::from(device.0)].address_for(next)
    }

    /// The device that an answer to `to` has to leave by, if addresses alone do not tell: that of the question.
    pub(crate) fn link_of(&self, device: DeviceId, to: IpAddr) -> Option<DeviceId> {
        (is_link_local(to) || to.is_multicast()).then_some(device)
    }

    /// The same for what a socket sends: that of the address it is bound to.
    pub(crate) fn link_for(&self, from: IpAddr, to: IpAddr) -> Option<DeviceId> {
        let everybody = to == IpAddr::V4(std::net::Ipv4Addr::BROADCAST);
        if !(is_link_local(to) || to.is_multicast() || everybody) {
            return None;
        }
        let owner = self.devices.iter().position(|device| device.has(from))?;
        u16::try_from(owner).ok().map(DeviceId)
    }

    /// An identification for IPv4 packets that may be fragmented: counted for each destination, or few together, from a place of
    /// its own. Counted for all together, what one destination gets would tell how much is sent to others (RFC 7739).
    pub(crate) fn ident(&mut self, to: IpAddr) -> u16 {
        let hash = match to {
            IpAddr::V4(to) => self.ident_secret.hash(&to.octets()),
            IpAddr::V6(to) => self.ident_secret.hash(&to.octets()),
        };
        let at = usize::try_from(hash >> 16).unwrap_or(0) % IPV4_IDENT_COUNTERS;
        let Some(counter) = self.idents.get_mut(at) else { return 0 };
        *counter = counter.wrapping_add(1);
        u16::try_from(hash & 0xffff).unwrap_or(0).wrapping_add(*counter)
    }

    pub(crate) fn deliver_udp(&mut self, input: &crate::stack::Input<'_>) -> Result<(), DropReason> {
        let segment = input.transport();
        let Some(header) = segment.first_chunk::<8>() else { return Err(UdpDrop::Length.into()) };
        let word = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let length = usize::from(word(4));
        let segment = segment.get(..length).filter(|_| length >= 8).ok_or(UdpDrop::Length)?;
        let sum = Sum::default().pseudo_header(input.from, input.to, 17, length).bytes(segment);
        let unchecked = input.marks.checksum_unfilled || (word(6) == 0 && input.to.is_ipv4());
        if !unchecked && (word(6) == 0 || !sum.is_intact()) {
            return Err(UdpDrop::Checksum.into());
        }
        if word(2) == 0 {
            return Err(UdpDrop::Port.into());
        }
        let from = SocketAddr::new(input.from, word(0));
        let datagram = Datagram { from, to: input.to, bytes: segment[8..].to_vec() };
        if input.to.is_multicast() {
            return self.deliver_to_group(input.device, word(2), &datagram);
        }
        Ok(self.udp.deliver(word(2), datagram)?)
    }
}

/// All pieces of a packet, with [`LINK_BYTES`] of room in front of each.
pub(crate) fn collect<P: Payload + ?Sized>(pieces: &mut Pieces<'_, P>) -> Vec<Outgoing> {
    pieces.link_mut(LINK_BYTES);
    let mut packets = Vec::new();
    while let Some(piece) = pieces.next_piece() {
        let (mut bytes, range, marks) = (piece.header.to_vec(), piece.range, piece.marks);
        pieces.append(range, &mut bytes);
        packets.push(Outgoing { bytes, marks });
    }
    packets
}

/// Shape and destination of a packet of our own making.
fn shape_of(packet: &[u8]) -> Option<(Shape, IpAddr)> {
    if packet.first()? >> 4 == 4 {
        let header = Ipv4Header::parse(packet, packet.len()).ok()?;
        Some((Shape::v4(&header), header.to.into()))
    } else {
        let header = Ipv6Header::parse(packet, packet.len()).ok()?;
        Some((Shape::v6(&header), header.to.into()))
    }
}

/// The link address of a group (RFC 1112 6.4, RFC 2464 7), or of everybody.
fn group_address(to: IpAddr) -> Option<MacAddress> {
    match to {
        IpAddr::V4(to) if to.is_broadcast() => Some(MacAddress::BROADCAST),
        IpAddr::V4(to) if to.is_multicast() => {
            let [_, a, b, c] = to.octets();
            Some(MacAddress([1, 0, 0x5e, a & 0x7f, b, c]))
        }
        IpAddr::V6(to) if to.is_multicast() => {
            let [.., a, b, c, d] = to.octets();
            Some(MacAddress([0x33, 0x33, a, b, c, d]))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => None,
    }
}
