//! Received frames: the check of the link header, the checks of RFC 1122 and RFC 1812, and reassembly.
//!
//! The caller looks up the route. It then forwards the packet or delivers it to the layers above.

use super::Ip;
use super::reassembly::{Datagram, DatagramKey, Piece};
use crate::drops::{DropReason, FragmentDrop, IpDrop, LinkDrop};
use crate::limits::{FRAME_BYTES_MAX, HEADER_BYTES_MAX};
use crate::link::device::Medium;
use crate::link::frame::{DeviceId, Marks, Packet, Payload};
use crate::time::Instant;
use crate::wire::address::{is_mapped, is_martian_source};
use crate::wire::ethernet::MacAddress;
use crate::wire::icmp::IcmpError;
use crate::wire::ipv4::{self, Ipv4Header};
use crate::wire::ipv6::{self, Ipv6Header, WalkError};
use crate::wire::protocol::{HOP_BY_HOP, ICMPV6, IGMP};
use smoltcp::wire::{EthernetFrame, IPV4_HEADER_LEN, IPV6_HEADER_LEN};
use std::borrow::Cow;
use std::net::IpAddr;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    pub(crate) device: DeviceId,
    pub(crate) marks: Marks,
    /// Whether the packet was sent to several stations.
    pub(crate) to_group: bool,
    /// Whether this stack sent the packet to itself. Then `device` has no meaning.
    pub(crate) is_own: bool,
}

/// A complete packet for this stack.
#[derive(Debug)]
pub(crate) struct LocalPacket<'a> {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) hop_limit: u8,
    pub(crate) packet: Cow<'a, [u8]>,
    /// Offset of the transport header, in bytes.
    pub(crate) at: usize,
    /// Offset of the header field that names the transport protocol, in bytes.
    pub(crate) number_at: usize,
    pub(crate) arrival: Arrival,
}

impl LocalPacket<'_> {
    pub(crate) fn transport(&self) -> &[u8] {
        &self.packet[self.at..]
    }

    /// Returns the type of service (IPv4) or the traffic class (IPv6).
    pub(crate) fn service(&self) -> u8 {
        match (&self.packet[..], self.to) {
            ([_, service, ..], IpAddr::V4(_)) => *service,
            ([first, second, ..], IpAddr::V6(_)) => first << 4 | second >> 4,
            ([] | [_], _) => 0,
        }
    }
}

impl Ip {
    /// Counts a received frame and checks it against the configuration of its device. The caller then calls [`Packet::protocol`].
    /// If this function returned the protocol, each frame would take 20 instructions more.
    #[inline]
    pub(crate) fn accept_frame<P: Payload + ?Sized>(&mut self, packet: &mut Packet<'_, P>) -> Result<(), DropReason> {
        if packet.link != packet.device && usize::from(packet.link.0) >= self.devices.len() {
            return Err(LinkDrop::NoDevice.into());
        }
        let device = self.devices.get_mut(usize::from(packet.device.0)).ok_or(LinkDrop::NoDevice)?;
        let Packet { frame: header, payload_bytes, marks, .. } = *packet;
        let frame_bytes = header.len() + payload_bytes;
        device.counters.frames_received += 1;
        device.counters.bytes_received += frame_bytes as u64;
        let cut_short = payload_bytes > 0 && header.len() < HEADER_BYTES_MAX;
        let link_bytes = device.link_bytes();
        let bytes_max =
            if marks.segment_bytes > 0 { FRAME_BYTES_MAX } else { link_bytes + usize::from(device.config.mtu) };
        if cut_short || frame_bytes > bytes_max || header.len() < link_bytes.max(1) {
            return Err(LinkDrop::Length.into());
        }
        let agreed = device.config.agreed;
        if (marks.checksum_unfilled && !agreed.checksum_unfilled) || (marks.segment_bytes > 0 && !agreed.large_segments)
        {
            return Err(LinkDrop::Marks.into());
        }
        packet.link_bytes = link_bytes;
        if let Medium::Ethernet(own) = device.config.medium {
            let to = MacAddress(EthernetFrame::new_unchecked(header).dst_addr().0);
            packet.to_group = to.is_group();
            if to != own && !packet.to_group {
                return Err(LinkDrop::OtherStation.into());
            }
        }
        Ok(())
    }

    /// Checks the source and the options of a packet whose header was parsed before.
    #[inline]
    pub(crate) fn check_v4<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        header: &Ipv4Header,
    ) -> Result<(), DropReason> {
        self.check_source_v4(packet.link, header)?;
        if header.header_bytes > IPV4_HEADER_LEN {
            self.check_options(now, packet, header)?;
        }
        Ok(())
    }

    /// Checks the options of an IPv4 header. Few packets have options. If this function were inlined, every other packet would
    /// need 14 more instructions.
    #[inline(never)]
    fn check_options<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        header: &Ipv4Header,
    ) -> Result<(), DropReason> {
        ipv4::check_options(&packet.header()[..header.header_bytes]).map_err(|(reason, at)| {
            let error = IcmpError::Parameter { code: 0, at: at.into() };
            self.refuse(now, packet, header.total_bytes, error, reason)
        })
    }

    /// Checks the source and the destination of a packet whose header was parsed before.
    #[inline]
    pub(crate) fn check_v6<P: Payload + ?Sized>(
        &mut self,
        packet: &Packet<'_, P>,
        header: &Ipv6Header,
    ) -> Result<(), DropReason> {
        self.check_source_v6(packet.link, header)?;
        if header.to.is_unspecified() || header.to.is_loopback() || is_mapped(header.to) {
            return Err(IpDrop::DestinationMartian.into());
        }
        Ok(())
    }

    /// Returns the complete packet, which is reassembled if the last missing fragment arrived. Returns `None` while fragments are
    /// missing.
    pub(crate) fn whole_v4<'a>(
        &mut self,
        now: Instant,
        packet: &'a [u8],
        header: &Ipv4Header,
        arrival: Arrival,
    ) -> Result<Option<LocalPacket<'a>>, DropReason> {
        let (from, to) = (IpAddr::V4(header.from), IpAddr::V4(header.to));
        let mut whole = LocalPacket {
            from,
            to,
            protocol: header.protocol,
            hop_limit: header.ttl,
            packet: Cow::Borrowed(packet),
            at: header.header_bytes,
            number_at: ipv4::PROTOCOL_AT,
            arrival,
        };
        if !header.is_fragment() {
            return Ok(Some(whole));
        }
        let (head, bytes) = packet.split_at(header.header_bytes);
        let device = arrival.device;
        let key = DatagramKey { from, to, ident: header.ident.into(), protocol: header.protocol, device };
        let piece = Piece { head, offset: header.offset, bytes, more: header.more_fragments };
        let Some(datagram) = self.add_fragment(now, key, &piece, arrival.marks)? else { return Ok(None) };
        whole.at = datagram.head.len();
        whole.packet = Cow::Owned(ipv4::reassembled(datagram.head, &datagram.payload));
        Ok(Some(whole))
    }

    fn add_fragment(
        &mut self,
        now: Instant,
        key: DatagramKey,
        piece: &Piece<'_>,
        marks: Marks,
    ) -> Result<Option<Datagram>, DropReason> {
        if marks != Marks::default() {
            return Err(LinkDrop::Marks.into());
        }
        let datagram = self.reassembly.add(now, key, piece);
        for _ in 0..std::mem::take(&mut self.reassembly.evicted) {
            self.drops.count(FragmentDrop::Evicted);
        }
        Ok(datagram?)
    }

    /// Reads the extension headers. Returns the complete packet, which is reassembled if the last missing fragment arrived.
    /// Returns `None` while fragments are missing.
    pub(crate) fn whole_v6<'a>(
        &mut self,
        now: Instant,
        packet: &'a [u8],
        header: &Ipv6Header,
        arrival: Arrival,
    ) -> Result<Option<LocalPacket<'a>>, DropReason> {
        let (from, to) = (IpAddr::V6(header.from), IpAddr::V6(header.to));
        let walk = ipv6::walk(packet, header.next_header)
            .map_err(|error| self.refuse_extension(now, packet, arrival, error))?;
        let whole = LocalPacket {
            from,
            to,
            protocol: walk.protocol,
            hop_limit: header.hop_limit,
            packet: Cow::Borrowed(packet),
            at: walk.at,
            number_at: walk.number_at,
            arrival,
        };
        let Some(fragment) = walk.fragment else { return Ok(Some(whole)) };
        // RFC 6946: a fragment that is a complete datagram is never combined with other fragments.
        if fragment.offset == 0 && !fragment.more_fragments {
            let behind =
                ipv6::walk_behind(packet, &walk).map_err(|error| self.refuse_extension(now, packet, arrival, error))?;
            if behind.fragment.is_some() {
                return Err(FragmentDrop::Malformed.into());
            }
            let (protocol, at, number_at) = (behind.protocol, behind.at, behind.number_at);
            return Ok(Some(LocalPacket { protocol, at, number_at, ..whole }));
        }
        let (head, bytes) = packet.split_at(walk.at + ipv6::FRAGMENT_BYTES);
        let key = DatagramKey { from, to, ident: fragment.ident, protocol: 0, device: arrival.device };
        let piece = Piece { head, offset: fragment.offset, bytes, more: fragment.more_fragments };
        // RFC 8200 4.5: the pointer in the ICMP error refers to the wrong field: the payload length or the fragment offset. Code 3
        // says that the first fragment lacks a header.
        let bad = if piece.is_uneven() {
            Some((0, ipv6::PAYLOAD_LENGTH_AT))
        } else if piece.is_too_long(true) {
            Some((0, walk.at + ipv6::fragment_field::OFFSET.start))
        } else {
            (fragment.offset == 0 && ipv6::is_cut_short(packet, &walk)).then_some((3, 0))
        };
        if let Some((code, at)) = bad {
            self.send_error(now, arrival.device, packet, arrival.to_group, IcmpError::Parameter { code, at });
            return Err(FragmentDrop::Malformed.into());
        }
        let Some(datagram) = self.add_fragment(now, key, &piece, arrival.marks)? else { return Ok(None) };
        let mut packet = datagram.head;
        // RFC 8200 4.5: the headers and the protocol of the datagram are those of the first fragment. Other fragments may name another
        // protocol, also in order to deceive a filter that looks at the first fragment only.
        let first = ipv6::walk(&packet, packet[ipv6::NEXT_HEADER_AT])
            .map_err(|error| self.refuse_extension(now, &packet, arrival, error))?;
        packet.truncate(first.at);
        packet[first.number_at] = first.protocol;
        packet.extend_from_slice(&datagram.payload);
        let length = u16::try_from(packet.len() - IPV6_HEADER_LEN).unwrap_or(u16::MAX);
        packet[ipv6::PAYLOAD_LENGTH_AT..ipv6::NEXT_HEADER_AT].copy_from_slice(&length.to_be_bytes());
        // The fragment header is removed now, so read all extension headers again, including those that followed it.
        let first = packet[ipv6::NEXT_HEADER_AT];
        let walk = ipv6::walk(&packet, first).map_err(|error| self.refuse_extension(now, &packet, arrival, error))?;
        if walk.fragment.is_some() {
            return Err(FragmentDrop::Malformed.into());
        }
        let (protocol, at, number_at) = (walk.protocol, walk.at, walk.number_at);
        Ok(Some(LocalPacket { packet: Cow::Owned(packet), protocol, at, number_at, ..whole }))
    }

    fn refuse_extension(&mut self, now: Instant, packet: &[u8], arrival: Arrival, error: WalkError) -> DropReason {
        if let Some((code, at)) = error.report {
            let icmp_error = if error.report_to_group {
                IcmpError::ParameterOfGroup { at }
            } else {
                IcmpError::Parameter { code, at }
            };
            self.send_error(now, arrival.device, packet, arrival.to_group, icmp_error);
        }
        error.reason.into()
    }

    /// Writes a received frame to the capture, with the reason if it was dropped.
    #[cold]
    pub(crate) fn capture_received(
        &mut self,
        now: Instant,
        device: DeviceId,
        part: &(Vec<u8>, usize),
        why: Option<DropReason>,
    ) {
        if let Some(capture) = &mut self.capture {
            capture.received(now, device, part, why);
        }
    }

    /// Sends an ICMP error about a packet that is dropped, and returns the reason for the drop.
    pub(crate) fn refuse<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        total_bytes: usize,
        error: IcmpError,
        reason: IpDrop,
    ) -> DropReason {
        let beginning = packet.copy(0, total_bytes.min(crate::limits::ICMPV6_ERROR_BYTES_MAX));
        self.send_error(now, packet.device, &beginning, packet.to_group, error);
        reason.into()
    }

    /// Checks the source of a packet. If the source is the last one that passed on this link, the check is one comparison.
    #[inline]
    fn check_source_v4(&mut self, link: DeviceId, header: &Ipv4Header) -> Result<(), DropReason> {
        if self.devices[usize::from(link.0)].filter.has_passed_v4(self.routes_version, header.from) {
            return Ok(());
        }
        self.judge_source_v4(link, header)
    }

    #[inline(never)]
    fn judge_source_v4(&mut self, link: DeviceId, header: &Ipv4Header) -> Result<(), DropReason> {
        let from = header.from;
        // Switches that snoop IGMP, and stations without an address, send IGMP messages from the unspecified address (RFC 4541 2.1.1).
        if from.is_unspecified() && header.protocol == IGMP && header.to.is_multicast() {
            return Ok(());
        }
        if is_martian_source(from) || self.is_no_source(from) {
            return Err(IpDrop::SourceMartian.into());
        }
        let filter = &mut self.devices[usize::from(link.0)].filter;
        if !filter.admits(from.into()) {
            return Err(IpDrop::SourceRefused.into());
        }
        filter.note_v4(self.routes_version, from);
        Ok(())
    }

    /// Checks the source of a packet. If the source is the last one that passed on this link, the check is one comparison.
    #[inline]
    fn check_source_v6(&mut self, link: DeviceId, header: &Ipv6Header) -> Result<(), DropReason> {
        if self.devices[usize::from(link.0)].filter.has_passed_v6(self.routes_version, header.from) {
            return Ok(());
        }
        self.judge_source_v6(link, header)
    }

    #[inline(never)]
    fn judge_source_v6(&mut self, link: DeviceId, header: &Ipv6Header) -> Result<(), DropReason> {
        let from = header.from;
        if from.is_multicast() || from.is_loopback() || is_mapped(from) || self.own_v6.contains(from) {
            return Err(IpDrop::SourceMartian.into());
        }
        let filter = &mut self.devices[usize::from(link.0)].filter;
        if from.is_unspecified() {
            // A station that has no address yet sends a solicitation to check whether an address is in use (RFC 4862 5.4.2). It
            // also sends group reports behind a router alert option (RFC 3590).
            let expected = header.to.is_multicast() && matches!(header.next_header, HOP_BY_HOP | ICMPV6);
            let refused = filter.sources.is_some() && !expected;
            return if refused { Err(IpDrop::SourceRefused.into()) } else { Ok(()) };
        }
        if !filter.admits(from.into()) {
            return Err(IpDrop::SourceRefused.into());
        }
        filter.note_v6(self.routes_version, from);
        Ok(())
    }
}
