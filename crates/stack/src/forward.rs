//! Forwarding (RFC 1812 5, RFC 8200): one lookup, one header edited, and the payload left where it is. Nothing is kept
//! per connection or destination.
//!
//! What the next link did not agree to is made good here: checksums filled in, large segments cut. Redirects are not sent.

use crate::checksum::updated;
use crate::cut::{Piece, Pieces, Plan, Shape};
use crate::device::Medium;
use crate::drops::{DropReason, IpDrop, LinkDrop};
use crate::frame::{DeviceId, Marks, Packet, Payload};
use crate::icmp::Trouble;
use crate::ipv4::Ipv4Header;
use crate::ipv6::Ipv6Header;
use crate::limits::ICMPV6_ERROR_BYTES_MAX;
use crate::neighbour::NeighbourKey;
use crate::output::{Hop, collect};
use crate::stack::{Handled, Stack};
use crate::time::Instant;
use smoltcp::wire::EthernetProtocol;
use std::net::IpAddr;

/// A packet to be passed on, whole or cut.
#[derive(Debug)]
pub struct Forward<'a, P: ?Sized> {
    /// Over which device.
    pub device: DeviceId,
    pieces: Pieces<'a, P>,
}

impl<P: Payload + ?Sized> Forward<'_, P> {
    /// The next frame to send, in order.
    pub fn next_piece(&mut self) -> Option<Piece> {
        self.pieces.next_piece()
    }
}

const TTL_AT: usize = 8;
const CHECKSUM_AT: usize = 10;
const HOP_LIMIT_AT: usize = 7;

impl Stack {
    pub(crate) fn forward_v4<'a, P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: Packet<'a, P>,
        header: &Ipv4Header,
        device: DeviceId,
        gateway: Option<IpAddr>,
    ) -> Result<Handled<'a, P>, DropReason> {
        if header.ttl <= 1 {
            return Err(self.refuse(now, &packet, header.total_bytes, Trouble::HopLimit, IpDrop::HopLimit));
        }
        let mut pieces = Pieces::new(packet, Shape::v4(header));
        let ip = pieces.ip_mut();
        let word = |at: usize| u16::from_be_bytes([ip[at], ip[at + 1]]);
        let checksum = updated(word(CHECKSUM_AT), word(TTL_AT), word(TTL_AT) - 0x0100);
        ip[TTL_AT] -= 1;
        ip[CHECKSUM_AT..CHECKSUM_AT + 2].copy_from_slice(&checksum.to_be_bytes());
        let may_fragment = !header.dont_fragment;
        if header.is_fragment() && packet.marks != Marks::default() {
            return Err(LinkDrop::Marks.into());
        }
        self.pass_on(now, packet, pieces, Shape::v4(header), may_fragment, device, gateway)
    }

    pub(crate) fn forward_v6<'a, P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: Packet<'a, P>,
        header: &Ipv6Header,
        device: DeviceId,
        gateway: Option<IpAddr>,
    ) -> Result<Handled<'a, P>, DropReason> {
        if header.hop_limit <= 1 {
            return Err(self.refuse(now, &packet, header.total_bytes, Trouble::HopLimit, IpDrop::HopLimit));
        }
        let mut pieces = Pieces::new(packet, Shape::v6(header));
        pieces.ip_mut()[HOP_LIMIT_AT] -= 1;
        self.pass_on(now, packet, pieces, Shape::v6(header), false, device, gateway)
    }

    /// Tells the sender what is wrong with its packet.
    pub(crate) fn refuse<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        total_bytes: usize,
        trouble: Trouble,
        reason: IpDrop,
    ) -> DropReason {
        let beginning = packet.copy(0, total_bytes.min(ICMPV6_ERROR_BYTES_MAX));
        self.tell(now, packet.device, &beginning, packet.to_group, trouble);
        reason.into()
    }

    #[expect(clippy::too_many_arguments, reason = "one step of the way, named by what it needs")]
    #[inline]
    fn pass_on<'a, P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: Packet<'a, P>,
        mut pieces: Pieces<'a, P>,
        shape: Shape,
        may_fragment: bool,
        device: DeviceId,
        gateway: Option<IpAddr>,
    ) -> Result<Handled<'a, P>, DropReason> {
        let out = &self.devices[usize::from(device.0)];
        let (mtu, agreed, link_bytes) = (out.config.mtu, out.config.agreed, out.link_bytes());
        let unfilled = packet.marks.checksum_unfilled;
        let large = packet.marks.segment_bytes > 0;
        pieces.set_marks(Marks {
            checksum_unfilled: unfilled && agreed.checksum_unfilled,
            segment_bytes: if agreed.large_segments { packet.marks.segment_bytes } else { 0 },
        });
        let whole = if large { agreed.large_segments } else { shape.total_bytes <= usize::from(mtu) };
        if large {
            let fits = self.plan_segments(&mut pieces, &packet, shape, may_fragment, mtu, whole)?;
            if !fits {
                let trouble = Trouble::TooBig { mtu };
                return Err(self.refuse(now, &packet, shape.total_bytes, trouble, IpDrop::TooBig));
            }
        } else if !whole {
            if !may_fragment {
                let trouble = Trouble::TooBig { mtu };
                return Err(self.refuse(now, &packet, shape.total_bytes, trouble, IpDrop::TooBig));
            }
            pieces.set_plan(Plan::FragmentsV4 { bytes: (usize::from(mtu) - shape.ip_bytes) & !7 });
        }
        // A fragment's receiver could not tell that the datagram's checksum is open.
        let stays_open = agreed.checksum_unfilled && whole;
        let made_anew = large && !whole;
        if unfilled && !stays_open && !made_anew {
            pieces.fill_checksum()?;
            pieces.clear_unfilled();
        }
        self.hand_out(now, pieces, shape, device, gateway, link_bytes)
    }

    /// Plans for a large segment; false if what it was made of does not fit the next link either.
    fn plan_segments<P: Payload + ?Sized>(
        &self,
        pieces: &mut Pieces<'_, P>,
        packet: &Packet<'_, P>,
        shape: Shape,
        may_fragment: bool,
        mtu: u16,
        whole: bool,
    ) -> Result<bool, DropReason> {
        let payload = pieces.prepare_segments()?;
        let headers = pieces.segment_header_bytes();
        let room = usize::from(mtu).saturating_sub(headers);
        let wanted = usize::from(packet.marks.segment_bytes).min(payload.max(1));
        if wanted > room && (!may_fragment || room == 0) {
            return Ok(false);
        }
        if whole {
            return Ok(true);
        }
        // A checksum that was wrong must not become right by being made anew.
        if !packet.marks.checksum_unfilled && !pieces.is_intact() {
            return Err(IpDrop::Checksum.into());
        }
        debug_assert!(headers < shape.total_bytes || payload == 0);
        pieces.set_plan(Plan::Segments { bytes: wanted.min(room) });
        Ok(true)
    }

    #[inline]
    fn hand_out<'a, P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        mut pieces: Pieces<'a, P>,
        shape: Shape,
        device: DeviceId,
        gateway: Option<IpAddr>,
        link_bytes: usize,
    ) -> Result<Handled<'a, P>, DropReason> {
        let hop = gateway.unwrap_or(shape.to);
        let ipv4 = shape.to.is_ipv4();
        if let Medium::Ethernet(_) = self.devices[usize::from(device.0)].config.medium {
            let Some(mac) = self.neighbours.resolve(now, NeighbourKey { device, address: hop }) else {
                let packets = collect(&mut pieces);
                self.transmit(now, device, Hop::Neighbour(hop), ipv4, packets)?;
                return Ok(Handled::Done);
            };
            let protocol = if ipv4 { EthernetProtocol::Ipv4 } else { EthernetProtocol::Ipv6 };
            self.devices[usize::from(device.0)].write_link_header(mac, protocol, pieces.link_mut(link_bytes));
        }
        let (frames, bytes) = pieces.size();
        self.devices[usize::from(device.0)].count_sent(frames, bytes);
        Ok(Handled::Forward(Forward { device, pieces }))
    }
}
