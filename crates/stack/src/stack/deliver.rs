//! Decides what happens to a received packet. The packet's route says whether the packet is forwarded, or delivered to a protocol
//! of this stack: TCP, UDP, ICMP, IGMP or MLD.

use super::Stack;
use super::tcp::SegmentPlace;
use crate::drops::{DropReason, IcmpDrop, IpDrop, LinkDrop, UdpDrop};
use crate::ip::icmp::{Answer, ErrorReport};
use crate::ip::input::{Arrival, LocalPacket};
use crate::ip::route::Target;
use crate::limits::LOOPBACK_PACKETS_MAX;
use crate::link::frame::{DeviceId, Marks, Packet, Payload};
use crate::tcp::{Belief, Storage};
use crate::time::Instant;
use crate::wire::address::{NODE_SCOPE, is_martian_destination, scope};
use crate::wire::ethernet::LINK_BYTES;
use crate::wire::icmp::IcmpError;
use crate::wire::ipv4::Ipv4Header;
use crate::wire::ipv6::Ipv6Header;
use crate::wire::protocol::{ICMP, ICMPV6, IGMP, NO_NEXT_HEADER, TCP, UDP};
use smoltcp::wire::{EthernetProtocol, IPV6_HEADER_LEN};
use std::net::IpAddr;

impl<S: Storage> Stack<S> {
    /// Processes a received frame. Returns the output device if the frame is to be forwarded.
    ///
    /// The route is looked up in this function and not in [`Ip`](crate::ip::Ip). If `Ip` looked it up and returned the result,
    /// each forwarded frame would need over 1% more instructions (`cargo xtask instructions`).
    #[inline]
    pub(super) fn receive<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, P>,
    ) -> Result<Option<DeviceId>, DropReason> {
        self.ip.accept_frame(packet)?;
        match packet.protocol() {
            EthernetProtocol::Ipv4 => self.receive_v4(now, packet),
            EthernetProtocol::Ipv6 => self.receive_v6(now, packet),
            EthernetProtocol::Arp => {
                self.ip.input_arp(now, packet.device, packet.header())?;
                Ok(None)
            }
            EthernetProtocol::Unknown(_) => Err(LinkDrop::Protocol.into()),
        }
    }

    #[inline]
    fn receive_v4<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
    ) -> Result<Option<DeviceId>, DropReason> {
        let header = Ipv4Header::parse(packet.header(), packet.len())?;
        self.ip.check_v4(now, packet, &header)?;
        let Ipv4Header { from, to, total_bytes, .. } = header;
        // This comparison saves the route lookup for most packets, because most packets to a host are sent to its first address.
        if self.ip.own_v4.first() == Some(to) && !to.is_link_local() {
            return self.deliver_v4(now, packet, &header, packet.to_group);
        }
        if to.is_multicast() {
            self.check_joined(packet.device, to.into())?;
            return self.deliver_v4(now, packet, &header, true);
        }
        if to.is_broadcast() {
            return self.deliver_v4(now, packet, &header, true);
        }
        if is_martian_destination(to) {
            return Err(IpDrop::DestinationMartian.into());
        }
        let (hop, target) = self.ip.routes.find(to.into());
        match target {
            Some(Target::Local(_)) => self.deliver_v4(now, packet, &header, packet.to_group),
            Some(Target::Broadcast(device)) if *device == packet.device => self.deliver_v4(now, packet, &header, true),
            Some(Target::Broadcast(_)) => Err(IpDrop::Broadcast.into()),
            Some(Target::Nobody) => Err(IpDrop::DestinationMartian.into()),
            _ if !self.ip.policy.forwarding => Err(IpDrop::NotForUs.into()),
            _ if packet.to_group => Err(IpDrop::Broadcast.into()),
            _ if to.is_link_local() || from.is_link_local() => Err(IpDrop::DestinationMartian.into()),
            Some(&Target::Via { device, .. }) => {
                self.ip.destinations.note(self.ip.routes_version, to, device);
                self.ip.forward_v4(now, packet, &header, device, hop)
            }
            None => Err(self.ip.refuse(now, packet, total_bytes, IcmpError::NoRoute, IpDrop::NoRoute)),
        }
    }

    #[inline]
    fn receive_v6<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
    ) -> Result<Option<DeviceId>, DropReason> {
        let header = Ipv6Header::parse(packet.header(), packet.len())?;
        self.ip.check_v6(packet, &header)?;
        let Ipv6Header { from, to, total_bytes, .. } = header;
        // This comparison saves the route lookup for most packets, because most packets to a host are sent to its first address.
        if self.ip.own_v6.first() == Some(to) && !to.is_unicast_link_local() {
            return self.deliver_v6(now, packet, &header, packet.to_group);
        }
        if to.is_multicast() {
            if scope(to) <= NODE_SCOPE {
                return Err(IpDrop::DestinationMartian.into());
            }
            self.check_joined(packet.device, to.into())?;
            return self.deliver_v6(now, packet, &header, true);
        }
        if to.is_unicast_link_local() {
            if self.ip.devices[usize::from(packet.device.0)].has(to.into()) {
                return self.deliver_v6(now, packet, &header, packet.to_group);
            }
            return Err(IpDrop::NotForUs.into());
        }
        let (hop, target) = self.ip.routes.find(to.into());
        match target {
            Some(Target::Local(_)) => self.deliver_v6(now, packet, &header, packet.to_group),
            _ if !self.ip.policy.forwarding => Err(IpDrop::NotForUs.into()),
            _ if packet.to_group => Err(IpDrop::Broadcast.into()),
            _ if from.is_unicast_link_local() || from.is_unspecified() => Err(IpDrop::SourceMartian.into()),
            Some(&Target::Via { device, .. }) => self.ip.forward_v6(now, packet, &header, device, hop),
            Some(Target::Broadcast(_) | Target::Nobody) => Err(IpDrop::Broadcast.into()),
            None => Err(self.ip.refuse(now, packet, total_bytes, IcmpError::NoRoute, IpDrop::NoRoute)),
        }
    }

    fn check_joined(&self, device: DeviceId, group: IpAddr) -> Result<(), IpDrop> {
        if self.groups.is_joined(device, group) { Ok(()) } else { Err(IpDrop::NotJoined) }
    }

    /// Delivers a packet to this stack. TCP reads a segment directly in the frame. Every other packet is copied once.
    fn deliver_v4<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        header: &Ipv4Header,
        to_group: bool,
    ) -> Result<Option<DeviceId>, DropReason> {
        if header.protocol == TCP && !header.is_fragment() {
            let (from, to) = (header.from.into(), header.to.into());
            let (at, end) = (header.header_bytes, header.total_bytes);
            self.input_tcp(now, packet, SegmentPlace { from, to, at, end, to_group, judged: true })?;
            return Ok(None);
        }
        let bytes = packet.copy(0, header.total_bytes);
        let arrival = Arrival { device: packet.device, marks: packet.marks, to_group, is_own: false };
        let whole = self.ip.whole_v4(now, &bytes, header, arrival)?;
        self.input(now, whole.as_ref())?;
        Ok(None)
    }

    fn deliver_v6<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        header: &Ipv6Header,
        to_group: bool,
    ) -> Result<Option<DeviceId>, DropReason> {
        if header.next_header == TCP {
            let (from, to) = (header.from.into(), header.to.into());
            let (at, end) = (IPV6_HEADER_LEN, header.total_bytes);
            self.input_tcp(now, packet, SegmentPlace { from, to, at, end, to_group, judged: true })?;
            return Ok(None);
        }
        let bytes = packet.copy(0, header.total_bytes);
        let arrival = Arrival { device: packet.device, marks: packet.marks, to_group, is_own: false };
        let whole = self.ip.whole_v6(now, &bytes, header, arrival)?;
        self.input(now, whole.as_ref())?;
        Ok(None)
    }

    /// Processes a packet for this stack. `input` is `None` if the packet is a fragment of a datagram that is still incomplete.
    fn input(&mut self, now: Instant, input: Option<&LocalPacket<'_>>) -> Result<(), DropReason> {
        let Some(input) = input else { return Ok(()) };
        let Arrival { device, to_group, .. } = input.arrival;
        match (input.protocol, input.to.is_ipv4()) {
            (ICMP, true) | (ICMPV6, false) => match self.ip.input_icmp(now, input)? {
                Answer::Done => Ok(()),
                Answer::Mld => self.groups.input_mld(now, input),
                Answer::Error(report) => self.report(now, report),
            },
            (IGMP, true) => self.groups.input_igmp(now, input),
            (UDP, _) => self.deliver_udp(now, input).inspect_err(|reason| {
                if *reason == UdpDrop::NoSocket.into() {
                    self.ip.send_error(now, device, &input.packet, to_group, IcmpError::PortUnreachable);
                }
            }),
            (TCP, _) => self.input_tcp_copied(now, input),
            (NO_NEXT_HEADER, false) => Ok(()),
            _ => {
                let error = IcmpError::Protocol { at: input.number_at };
                self.ip.send_error(now, device, &input.packet, to_group, error);
                Err(IpDrop::Protocol.into())
            }
        }
    }

    /// Receives a TCP segment from a copy of its packet. A packet is copied if it arrived in fragments, if it has extension
    /// headers, or if this stack sent it to itself.
    fn input_tcp_copied(&mut self, now: Instant, input: &LocalPacket<'_>) -> Result<(), DropReason> {
        let LocalPacket { from, to, packet: frame, at, .. } = input;
        let (from, to, at, end) = (*from, *to, *at, frame.len());
        let Arrival { device, marks, to_group, .. } = input.arrival;
        let place = SegmentPlace { from, to, at, end, to_group, judged: false };
        let payload: &[u8] = &[];
        let packet = Packet { frame, payload, payload_bytes: 0, link_bytes: 0, marks, device, link: device, to_group };
        self.input_tcp(now, &packet, place)
    }

    /// Reports an ICMP error to the socket that sent the packet. If the error contains a path MTU and is believable, stores the
    /// MTU.
    fn report(&mut self, now: Instant, report: ErrorReport) -> Result<(), DropReason> {
        let ErrorReport { error, local, remote, mtu, seq } = report;
        let believed = if let Some(seq) = seq {
            self.report_tcp(now, &report, seq)? == Belief::AtOnce
        } else {
            // If no UDP socket matches, the socket may have been closed since. The path MTU in the error is valid nevertheless.
            if !self.udp.report(local, remote, error) && mtu.is_none() {
                return Err(IcmpDrop::Quote.into());
            }
            true
        };
        if let Some(mtu) = mtu.filter(|_| believed) {
            self.ip.path_mtus.learn(now, remote.ip(), mtu);
        }
        Ok(())
    }

    /// Delivers packets that the stack has sent to itself, but only a limited number. The other packets are due immediately, so
    /// the next call of [`Stack::handle_timeout`] delivers them.
    #[inline]
    pub(crate) fn deliver_loopback(&mut self, now: Instant) {
        if !self.ip.loopback.is_empty() || self.tcp.sends_to_itself() {
            self.drain_loopback(now);
        }
    }

    #[inline(never)]
    fn drain_loopback(&mut self, now: Instant) {
        for _ in 0..LOOPBACK_PACKETS_MAX {
            match self.ip.loopback.pop_front() {
                Some(bytes) => self.input_own(now, &bytes[LINK_BYTES..]),
                None if self.poll_own(now) => {}
                None => return,
            }
        }
    }

    fn input_own(&mut self, now: Instant, packet: &[u8]) {
        let arrival = Arrival { device: DeviceId(0), marks: Marks::default(), to_group: false, is_own: true };
        let whole = match Ipv4Header::parse(packet, packet.len()) {
            Ok(header) => self.ip.whole_v4(now, packet, &header, arrival),
            Err(_) => match Ipv6Header::parse(packet, packet.len()) {
                Ok(header) => self.ip.whole_v6(now, packet, &header, arrival),
                Err(reason) => Err(reason.into()),
            },
        };
        if let Err(reason) = whole.and_then(|whole| self.input(now, whole.as_ref())) {
            self.ip.drops.count(reason);
        }
    }
}
