//! Packets that this stack sends. This file selects the device and the source address, fragments a packet for the path's MTU, and
//! finds the link address of the next hop.

use super::Ip;
use crate::drops::{DropReason, IpDrop, LinkDrop};
use crate::ip::route::Target;
use crate::ip::segmentation::{Pieces, Plan, Shape};
use crate::limits::LOOPBACK_PACKETS_MAX;
use crate::link::device::{Medium, Outgoing};
use crate::link::frame::{DeviceId, Marks, Packet, Payload};
use crate::link::neighbour::NeighbourKey;
use crate::time::Instant;
use crate::wire::address::is_link_local;
use crate::wire::ethernet::{LINK_BYTES, MacAddress};
use crate::wire::ipv4::Ipv4Header;
use crate::wire::ipv6::{FRAGMENT_BYTES, Ipv6Header};
use smoltcp::wire::EthernetProtocol;
use std::net::{IpAddr, Ipv4Addr};

/// The receiver of a packet on a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hop {
    Neighbour(IpAddr),
    Group(MacAddress),
}

impl Ip {
    /// Sends a packet over the device `on`. If `on` is `None`, the route to the destination selects the device. `bytes` has
    /// [`LINK_BYTES`] of room in front of the packet.
    pub(crate) fn send_packet(&mut self, now: Instant, bytes: Vec<u8>, on: Option<DeviceId>) -> Result<(), DropReason> {
        self.send_packet_within(now, bytes, on, true)
    }

    /// Like [`Ip::send_packet`]. If `uses_path_mtu` is false, only the MTU of the device limits the packet.
    pub(crate) fn send_packet_within(
        &mut self,
        now: Instant,
        mut bytes: Vec<u8>,
        on: Option<DeviceId>,
        uses_path_mtu: bool,
    ) -> Result<(), DropReason> {
        let (shape, to) = shape_of(&bytes[LINK_BYTES..]).ok_or(IpDrop::Length)?;
        if self.is_own(to) {
            self.sent.note(now, &mut bytes[LINK_BYTES..], shape.total_bytes);
            if self.loopback.len() >= LOOPBACK_PACKETS_MAX {
                return Err(LinkDrop::QueueFull.into());
            }
            self.loopback.push_back(bytes);
            return Ok(());
        }
        let group = MacAddress::of_group(to);
        let (device, hop) = match (on, self.routes.lookup(to)) {
            (_, Some(Target::Broadcast(device))) => (device, Hop::Group(MacAddress::BROADCAST)),
            (Some(device), _) => (device, group.map_or(Hop::Neighbour(to), Hop::Group)),
            (None, Some(Target::Via { device, gateway })) => {
                (device, group.map_or(Hop::Neighbour(gateway.unwrap_or(to)), Hop::Group))
            }
            (None, Some(Target::Local(_) | Target::Nobody) | None) => return Err(IpDrop::NoRoute.into()),
        };
        let mtu = usize::from(self.mtu_of(now, device, to, uses_path_mtu));
        self.sent.note(now, &mut bytes[LINK_BYTES..], shape.total_bytes.min(mtu));
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
                let ident = self.identifications.ipv6.next_u32();
                pieces.set_plan(Plan::FragmentsV6 { bytes: (mtu - shape.ip_bytes - FRAGMENT_BYTES) & !7, ident });
            }
        }
        let packets = collect(&mut pieces);
        self.transmit(now, device, hop, to.is_ipv4(), packets)
    }

    fn mtu_of(&self, now: Instant, device: DeviceId, to: IpAddr, uses_path_mtu: bool) -> u16 {
        let mtu = self.devices[usize::from(device.0)].config.mtu;
        self.path_mtus.get(now, to).filter(|_| uses_path_mtu).map_or(mtu, |path| path.min(mtu))
    }

    /// Returns the MTU for packets to `to`. The packets leave over the device `on`; if `on` is `None`, the route selects the device.
    /// Returns `None` if the destination is this stack or has no route.
    pub(crate) fn mtu_towards(
        &self,
        now: Instant,
        to: IpAddr,
        on: Option<DeviceId>,
        uses_path_mtu: bool,
    ) -> Option<u16> {
        if self.is_own(to) {
            return None;
        }
        let device = match (on, self.routes.lookup(to)) {
            (_, Some(Target::Broadcast(device))) | (Some(device), _) | (None, Some(Target::Via { device, .. })) => {
                device
            }
            (None, Some(Target::Local(_) | Target::Nobody) | None) => return None,
        };
        Some(self.mtu_of(now, device, to, uses_path_mtu))
    }

    /// Puts packets into the queue of a device, or stores them until the neighbour's link address is known.
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

    #[inline]
    pub(crate) fn capture_sent(&mut self, now: Instant, device: DeviceId, frame: &[u8]) {
        if let Some(capture) = &mut self.capture {
            capture.sent(now, device, frame);
        }
    }

    /// Returns the source address for packets to `to`. The packets leave over the device `on`; if `on` is `None`, they leave over
    /// the device of the route.
    pub(crate) fn address_towards(&self, to: IpAddr, on: Option<DeviceId>) -> Option<IpAddr> {
        if self.is_own(to) {
            return Some(to);
        }
        let (device, next) = match (on, self.routes.lookup(to)) {
            (Some(device), _) => (device, to),
            // A link-local gateway does not select a source: other networks could not answer a link-local one (RFC 6724 5, rule 2).
            (None, Some(Target::Via { device, gateway })) => {
                (device, gateway.filter(|gateway| !is_link_local(*gateway)).unwrap_or(to))
            }
            (None, Some(Target::Broadcast(device) | Target::Local(device))) => (device, to),
            (None, Some(Target::Nobody) | None) => return None,
        };
        self.devices[usize::from(device.0)].address_for(next)
    }

    /// Returns the device over which an answer to `to` must leave. If `to` is valid on one link only, returns `device`, on which
    /// the request arrived. Otherwise returns `None`, because the route selects the device.
    pub(crate) fn link_of(&self, device: DeviceId, to: IpAddr) -> Option<DeviceId> {
        (is_link_local(to) || to.is_multicast()).then_some(device)
    }

    /// Returns the device over which a packet of a socket must leave. If `to` is valid on one link only, returns the device with
    /// the socket's address `from`. Otherwise returns `None`, because the route selects the device.
    pub(crate) fn link_for(&self, from: IpAddr, to: IpAddr) -> Option<DeviceId> {
        let everybody = to == IpAddr::V4(Ipv4Addr::BROADCAST);
        if !(is_link_local(to) || to.is_multicast() || everybody) {
            return None;
        }
        let owner = self.devices.iter().position(|device| device.has(from))?;
        u16::try_from(owner).ok().map(DeviceId)
    }
}

/// Returns all pieces of a packet. Each piece has [`LINK_BYTES`] of room in front, for its link header.
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

/// Returns the shape and the destination of a packet that this stack built.
fn shape_of(packet: &[u8]) -> Option<(Shape, IpAddr)> {
    if packet.first()? >> 4 == 4 {
        let header = Ipv4Header::parse(packet, packet.len()).ok()?;
        Some((Shape::v4(&header), header.to.into()))
    } else {
        let header = Ipv6Header::parse(packet, packet.len()).ok()?;
        Some((Shape::v6(&header), header.to.into()))
    }
}
