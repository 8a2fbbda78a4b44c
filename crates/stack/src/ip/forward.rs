//! Forwarding (RFC 1812 5, RFC 8200). A forwarded packet needs one route lookup and one edited header. The payload is copied only
//! if the packet has to wait for a link address. A router keeps no state for a connection or a destination.
//!
//! Marks tell a receiver that the checksum of a packet is not filled in, or that a packet is a large segment. If the stations on
//! the next link have not agreed to these marks, forwarding fills in the checksum or cuts the packet into segments.

use super::Ip;
use crate::drops::{DropReason, IpDrop, LinkDrop};
use crate::ip::output::{Hop, collect};
use crate::ip::route::{HopId, Routes, Target};
use crate::ip::segmentation::{Piece, Pieces, Plan, Shape};
use crate::link::capture::Capture;
use crate::link::device::Medium;
use crate::link::frame::{DeviceId, Marks, Packet, Payload};
use crate::link::neighbour::{NeighbourKey, Neighbours};
use crate::time::Instant;
use crate::wire::checksum::updated;
use crate::wire::ethernet::MacAddress;
use crate::wire::icmp::IcmpError;
use crate::wire::ipv4::Ipv4Header;
use crate::wire::ipv6::Ipv6Header;
use smoltcp::wire::{EthernetProtocol, Ipv4Packet, Ipv6Packet};
use std::net::IpAddr;

/// A packet to forward, complete or in pieces.
#[derive(Debug)]
pub struct Forward<'a, P: ?Sized> {
    /// The device that sends the packet.
    pub device: DeviceId,
    pub(crate) pieces: Pieces<'a, P>,
    /// The current time and the capture, if a capture runs.
    pub(crate) capture: Option<(Instant, &'a mut Capture)>,
}

impl<P: Payload + ?Sized> Forward<'_, P> {
    /// Returns the next frame to send.
    #[inline]
    pub fn next_piece(&mut self) -> Option<Piece<'_>> {
        if self.capture.is_some() {
            return self.next_captured();
        }
        self.pieces.next_piece()
    }

    /// Copies the complete next frame to the capture, and then returns the same piece that would be returned without a capture.
    #[cold]
    fn next_captured(&mut self) -> Option<Piece<'_>> {
        let before = self.pieces.scratch.cut;
        let piece = self.pieces.next_piece()?;
        let (mut bytes, range) = (piece.header.to_vec(), piece.range);
        self.pieces.append(range, &mut bytes);
        if let Some((now, capture)) = &mut self.capture {
            capture.sent(*now, self.device, &bytes);
        }
        self.pieces.scratch.cut = before;
        self.pieces.next_piece()
    }
}

const TTL_AT: usize = 8;
const CHECKSUM_AT: usize = 10;
const HOP_LIMIT_AT: usize = 7;

impl Ip {
    #[inline]
    pub(crate) fn forward_v4<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        header: &Ipv4Header,
        device: DeviceId,
        hop: HopId,
    ) -> Result<Option<DeviceId>, DropReason> {
        if self.policy.source_validation && !self.leads_back(packet.device, header.from.into()) {
            return Err(IpDrop::SourceElsewhere.into());
        }
        if header.ttl <= 1 {
            return Err(self.refuse(now, packet, header.total_bytes, IcmpError::HopLimit, IpDrop::HopLimit));
        }
        if device == packet.device && self.policy.redirects {
            self.redirect(now, packet, header.total_bytes, hop);
        }
        let mut pieces = Pieces::new(*packet, Shape::v4(header), &mut self.scratch);
        let ip = pieces.ip_mut();
        let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let checksum = updated(word(CHECKSUM_AT), word(TTL_AT), word(TTL_AT) - 0x0100);
        ip[TTL_AT] -= 1;
        ip[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        if header.is_fragment() && packet.marks != Marks::default() {
            return Err(LinkDrop::Marks.into());
        }
        self.pass_on(now, packet, !header.dont_fragment, device, hop)
    }

    #[inline]
    pub(crate) fn forward_v6<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        header: &Ipv6Header,
        device: DeviceId,
        hop: HopId,
    ) -> Result<Option<DeviceId>, DropReason> {
        if self.policy.source_validation && !self.leads_back(packet.device, header.from.into()) {
            return Err(IpDrop::SourceElsewhere.into());
        }
        if header.hop_limit <= 1 {
            return Err(self.refuse(now, packet, header.total_bytes, IcmpError::HopLimit, IpDrop::HopLimit));
        }
        if device == packet.device && self.policy.redirects {
            self.redirect(now, packet, header.total_bytes, hop);
        }
        let mut pieces = Pieces::new(*packet, Shape::v6(header), &mut self.scratch);
        pieces.ip_mut()[HOP_LIMIT_AT] -= 1;
        self.pass_on(now, packet, false, device, hop)
    }

    /// Returns whether the route back to the source leads over the device on which the packet arrived (RFC 1812 5.3.8).
    #[inline(never)]
    fn leads_back(&self, device: DeviceId, from: IpAddr) -> bool {
        matches!(self.routes.lookup(from), Some(Target::Via { device: back, .. }) if back == device)
    }

    #[inline]
    fn pass_on<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        may_fragment: bool,
        device: DeviceId,
        hop: HopId,
    ) -> Result<Option<DeviceId>, DropReason> {
        let config = &self.devices[usize::from(device.0)].config;
        let (mtu, agreed, total_bytes) = (usize::from(config.mtu), config.agreed, self.scratch.cut.total_bytes());
        let mut pieces = Pieces { packet: *packet, scratch: &mut self.scratch };
        let unfilled = packet.marks.checksum_unfilled;
        let large = packet.marks.segment_bytes > 0;
        let whole = if large { agreed.large_segments } else { total_bytes <= mtu };
        if packet.marks != Marks::default() {
            pieces.set_marks(Marks {
                checksum_unfilled: unfilled && agreed.checksum_unfilled,
                segment_bytes: if whole { packet.marks.segment_bytes } else { 0 },
            });
        }
        let fits = if large {
            plan_segments(&mut pieces, may_fragment, mtu, whole)?
        } else if whole {
            true
        } else {
            pieces.plan_fragments_v4(mtu);
            may_fragment
        };
        if !fits {
            let error = IcmpError::TooBig { mtu: u16::try_from(mtu).unwrap_or(u16::MAX) };
            return Err(self.refuse(now, packet, total_bytes, error, IpDrop::TooBig));
        }
        // The receiver of a fragment cannot see that the checksum of the datagram is unfilled, so fill it in before the packet is
        // fragmented. TCP segments that are cut from a large segment get new checksums in any case.
        let stays_open = agreed.checksum_unfilled && whole;
        let made_anew = large && !whole;
        if unfilled && !stays_open && !made_anew {
            pieces.fill_checksum()?;
        }
        self.hand_out(now, packet, device, hop)
    }

    #[inline]
    fn hand_out<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        device: DeviceId,
        hop: HopId,
    ) -> Result<Option<DeviceId>, DropReason> {
        let out = &mut self.devices[usize::from(device.0)];
        let mut pieces = Pieces { packet: *packet, scratch: &mut self.scratch };
        if let Medium::Ethernet(_) = out.config.medium {
            let ipv4 = packet.header()[0] >> 4 == 4;
            let known = self.neighbours.still(now, self.routes.resolved(hop));
            let Some(mac) = known.or_else(|| resolve(now, packet, device, hop, &mut self.routes, &mut self.neighbours))
            else {
                let packets = collect(&mut pieces);
                let next = self.routes.gateway(hop).unwrap_or_else(|| destination(packet));
                self.transmit(now, device, Hop::Neighbour(next), ipv4, packets)?;
                return Ok(None);
            };
            let protocol = if ipv4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
            out.write_link_header(mac, protocol, pieces.link_mut(out.link_bytes()));
        }
        let (frames, bytes) = pieces.size();
        out.count_sent(frames, bytes);
        Ok(Some(device))
    }
}

/// Returns the link address of the next hop. The caller calls this function if no valid link address is stored with the route.
#[inline(never)]
fn resolve<P: Payload + ?Sized>(
    now: Instant,
    packet: &Packet<'_, P>,
    device: DeviceId,
    hop: HopId,
    routes: &mut Routes,
    neighbours: &mut Neighbours,
) -> Option<MacAddress> {
    let Some(address) = routes.gateway(hop) else {
        return neighbours.resolve(now, NeighbourKey { device, address: destination(packet) });
    };
    let resolved = neighbours.resolve_for_a_while(now, NeighbourKey { device, address })?;
    routes.set_resolved(hop, resolved);
    Some(resolved.mac)
}

/// Returns the destination of a packet whose header was parsed before.
fn destination<P: Payload + ?Sized>(packet: &Packet<'_, P>) -> IpAddr {
    let header = packet.header();
    if header[0] >> 4 == 4 {
        IpAddr::V4(Ipv4Packet::new_unchecked(header).dst_addr())
    } else {
        IpAddr::V6(Ipv6Packet::new_unchecked(header).dst_addr())
    }
}

/// Plans how to cut a large segment into packets. Returns false if even these packets exceed the next link's MTU.
fn plan_segments<P: Payload + ?Sized>(
    pieces: &mut Pieces<'_, P>,
    may_fragment: bool,
    mtu: usize,
    whole: bool,
) -> Result<bool, DropReason> {
    let marks = pieces.packet.marks;
    let payload = pieces.prepare_segments()?;
    let room = mtu.saturating_sub(pieces.segment_header_bytes());
    let wanted = usize::from(marks.segment_bytes).min(payload.max(1));
    if wanted > room && (!may_fragment || room == 0) {
        return Ok(false);
    }
    if whole {
        return Ok(true);
    }
    // The new segments get new checksums. So check the old checksum first, because a corrupt packet must not get a correct one.
    if !marks.checksum_unfilled && !pieces.is_intact() {
        return Err(IpDrop::Checksum.into());
    }
    pieces.set_plan(Plan::Segments { bytes: wanted.min(room) });
    Ok(true)
}
