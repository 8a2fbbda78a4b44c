//! The stack: devices, routes and everything between a frame received and what is done about it.
//!
//! The owner gives frames to [`Stack::handle_frame`], passes on what that says, drains [`Stack::poll_transmit`] of every device,
//! and calls [`Stack::handle_timeout`] when [`Stack::poll_timeout`] says so. Whether a stack is a router is one
//! setting. Wrong use is answered by a typed error; any bytes from the network by a counted drop.

use crate::capture::Capture;
use crate::drops::{DropReason, Drops, FragmentDrop, IpDrop, LinkDrop, UdpDrop};
use crate::ip::addresses::Addresses;
use crate::ip::echo::Pings;
use crate::ip::forward::{Forward, Outcome};
use crate::ip::icmp::{IcmpError, RateLimit};
use crate::ip::path_mtu::PathMtus;
use crate::ip::reassembly::{DatagramKey, Piece, Reassembly};
use crate::ip::route::{RouteError, Routes, Target};
use crate::ip::segmentation::{Pieces, Scratch};
use crate::ip::sent::SentPackets;
use crate::limits::{
    DEVICES_MAX, FRAME_BYTES_MAX, HEADER_BYTES_MAX, IPV4_IDENT_COUNTERS, LOOPBACK_PACKETS_MAX,
    TCP_BUFFERS_BYTES_DEFAULT,
};
use crate::link::device::{Device, DeviceConfig, DeviceCounters, DeviceError, Medium};
use crate::link::frame::{DeviceId, Marks, Packet, Payload, Received};
use crate::link::neighbour::Neighbours;
use crate::multicast::group::{Groups, NODE_SCOPE, scope};
use crate::multicast::mld;
use crate::seed::{Purpose, Random, Secret, Seed};
use crate::sockets::{SegmentPlace, TcpSockets};
use crate::tcp::{Heap, Storage};
use crate::time::Instant;
use crate::udp::{Datagram, UdpError, UdpId, UdpSockets};
use crate::wire::address::Prefix;
use crate::wire::address::is_link_local;
use crate::wire::ethernet::{LINK_BYTES, MacAddress};
use crate::wire::ipv4::{self, Ipv4Header};
use crate::wire::ipv6::{self, Ipv6Header, WalkError};
use smoltcp::wire::{EthernetFrame, EthernetProtocol, IPV6_HEADER_LEN};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The protocol's number.
const TCP: u8 = 6;
/// Routes that an own address brings at most: to itself, its network and that one's first and last address.
const OWN_ROUTES_MAX: usize = 4;

/// How a stack is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackConfig {
    /// The source of everything that peers must not guess. Two stacks with the same seed and input do the same.
    pub seed: Seed,
    /// Packets for others are passed on.
    pub forwarding: bool,
    /// Who sends a packet by way of this stack although the next hop is on its own link is told so (ICMP redirects).
    pub redirects: bool,
    /// Packets for others are passed on only if the way back to their source leads over the device that they came by
    /// (RFC 1812 5.3.8): not for a router that has several ways to one network.
    pub source_validation: bool,
    /// What the buffers of all TCP connections hold together, in bytes. Beyond it none grows, but each keeps
    /// [`crate::limits::TCP_SOCKET_BYTES_FREE`].
    pub tcp_buffers_bytes_max: usize,
}

impl Default for StackConfig {
    /// An end host. Everyone knows its seed: the owner replaces it with one that it drew from the operating system.
    fn default() -> Self {
        Self {
            seed: Seed::simulated(0),
            forwarding: false,
            redirects: false,
            source_validation: false,
            tcp_buffers_bytes_max: TCP_BUFFERS_BYTES_DEFAULT,
        }
    }
}

/// What became of a frame.
#[derive(Debug)]
pub enum Handled<'a, P: ?Sized> {
    /// The stack has all it needs of it.
    Done,
    /// Nothing: it was dropped and counted.
    Dropped(DropReason),
    /// It is to be passed on.
    Forward(Forward<'a, P>),
}

/// A frame that the stack has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Transmit {
    /// Its bytes.
    pub len: usize,
    /// What the receiver is to know beside them.
    pub marks: Marks,
}

/// An end host and a router. The buffers of its TCP connections lie in storage of kind `S`.
#[derive(Debug)]
pub struct Stack<S: Storage = Heap> {
    pub(crate) devices: Vec<Device>,
    pub(crate) routes: Routes,
    pub(crate) neighbours: Neighbours,
    pub(crate) paths: PathMtus,
    pub(crate) sent: SentPackets,
    pub(crate) udp: UdpSockets,
    pub(crate) groups: Groups,
    pub(crate) tcp: TcpSockets<S>,
    /// Counts changes of routes, addresses and devices, by which a connection knows that its way is to be found anew.
    pub(crate) routes_version: u32,
    pub(crate) errors_sent: RateLimit,
    pub(crate) drops: Drops,
    pub(crate) udp_ports: Random,
    /// Identifications of IPv6 fragments.
    pub(crate) fragment_idents: Random,
    /// Where the identifications of an IPv4 destination begin.
    pub(crate) ident_secret: Secret,
    /// Identifications used, for destinations by their hash.
    pub(crate) idents: Box<[u16]>,
    pub(crate) forwarding: bool,
    pub(crate) redirects: bool,
    pub(crate) source_validation: bool,
    /// Packets to ourselves, to be taken in before the call ends.
    pub(crate) loopback: VecDeque<Vec<u8>>,
    pub(crate) scratch: Scratch,
    pub(crate) capture: Option<Capture>,
    pub(crate) reassembly: Reassembly,
    pub(crate) pings: Pings,
    pub(crate) own_v4: Addresses<Ipv4Addr>,
    pub(crate) own_v6: Addresses<Ipv6Addr>,
    /// Own addresses, and those of own networks that mean everybody there, unless routes say otherwise: no packet comes from them.
    no_sources: Addresses<Ipv4Addr>,
}

pub(crate) const IGMP: u8 = 2;

/// A whole packet for this stack.
#[derive(Debug)]
pub(crate) struct Input<'a> {
    pub(crate) from: IpAddr,
    pub(crate) to: IpAddr,
    pub(crate) protocol: u8,
    pub(crate) hop_limit: u8,
    pub(crate) packet: &'a [u8],
    /// Where the transport header begins, and where its protocol's number stands.
    pub(crate) at: usize,
    pub(crate) number_at: usize,
    pub(crate) device: DeviceId,
    pub(crate) marks: Marks,
    pub(crate) to_group: bool,
}

impl<'a> Input<'a> {
    pub(crate) fn transport(&self) -> &'a [u8] {
        &self.packet[self.at..]
    }
}

impl Stack {
    /// A stack without devices.
    pub fn new(config: StackConfig) -> Self {
        Self::with_storage(config)
    }
}

impl<S: Storage> Stack<S> {
    /// A stack without devices, with buffers of another kind than this process' memory.
    pub fn with_storage(config: StackConfig) -> Self {
        let seed = config.seed;
        // No peer chooses what is in these tables: one key serves all of them.
        let keyed = seed.keyed(Purpose::AddressTables);
        Self {
            devices: Vec::new(),
            routes: Routes::default(),
            neighbours: Neighbours::new(seed.keyed(Purpose::NeighbourTable)),
            paths: PathMtus::default(),
            sent: SentPackets::new(&seed),
            udp: UdpSockets::new(seed.keyed(Purpose::UdpTable)),
            tcp: TcpSockets::new(&seed, config.tcp_buffers_bytes_max),
            routes_version: 1,
            groups: Groups::new(seed.random(Purpose::GroupTimers)),
            errors_sent: RateLimit::new(seed.random(Purpose::ErrorLimit)),
            drops: Drops::default(),
            idents: vec![0; IPV4_IDENT_COUNTERS].into_boxed_slice(),
            udp_ports: seed.random(Purpose::UdpPorts),
            fragment_idents: seed.random(Purpose::FragmentIdents),
            ident_secret: seed.secret(Purpose::Ipv4Idents),
            forwarding: config.forwarding,
            redirects: config.redirects,
            source_validation: config.source_validation,
            loopback: VecDeque::new(),
            scratch: Scratch::new(),
            capture: None,
            reassembly: Reassembly::default(),
            pings: Pings::default(),
            own_v4: Addresses::new(keyed),
            own_v6: Addresses::new(keyed),
            no_sources: Addresses::new(keyed),
        }
    }

    /// Adds a device, and routes to its addresses and their networks.
    pub fn add_device(&mut self, config: DeviceConfig) -> Result<DeviceId, DeviceError> {
        let id = u16::try_from(self.devices.len()).ok().filter(|id| usize::from(*id) < DEVICES_MAX);
        let id = DeviceId(id.ok_or(DeviceError::Full)?);
        let device = Device::new(config)?;
        // Refused before anything is changed: a route to a device that is not there would lead nowhere.
        if !self.routes.has_room(OWN_ROUTES_MAX * device.config.addresses.len()) {
            return Err(DeviceError::Full);
        }
        for own in &device.config.addresses {
            match own.address() {
                IpAddr::V4(address) => {
                    self.own_v4.insert(address);
                    self.no_sources.insert(address);
                }
                IpAddr::V6(address) => self.own_v6.insert(address),
            }
            // An IPv6 address of a link alone may be on several: it is never looked up, but asked of the device.
            if own.address().is_ipv6() && is_link_local(own.address()) {
                continue;
            }
            self.add_own_routes(id, *own).map_err(|_| DeviceError::Full)?;
        }
        if let Some(capture) = &mut self.capture {
            capture.add_device(self.devices.len(), &device);
        }
        self.groups.add_device(&mld::own_groups(&device.config, self.forwarding));
        self.devices.push(device);
        self.tcp.add_device();
        self.routes_version = self.routes_version.wrapping_add(1);
        Ok(id)
    }

    fn add_own_routes(&mut self, device: DeviceId, own: Prefix) -> Result<(), RouteError> {
        self.routes.insert(own, Target::Via { device, gateway: None })?;
        let host = if let IpAddr::V4(address) = own.address() {
            let host_bits = u32::MAX.checked_shr(own.length().into()).unwrap_or(0);
            let first = Ipv4Addr::from_bits(address.to_bits() & !host_bits);
            let last = Ipv4Addr::from_bits(address.to_bits() | host_bits);
            // RFC 3021: networks of two addresses or one have no broadcast address.
            let broadcasts = if own.length() < 31 { 2 } else { 0 };
            for (address, target) in
                [(first, Target::Nobody), (last, Target::Broadcast(device))].into_iter().take(broadcasts)
            {
                self.no_sources.insert(address);
                if let Some(prefix) = Prefix::new(address.into(), 32) {
                    self.routes.insert(prefix, target)?;
                }
            }
            Prefix::new(own.address(), 32)
        } else {
            Prefix::new(own.address(), 128)
        };
        host.map_or(Ok(()), |host| self.routes.insert(host, Target::Local(device)))
    }

    /// The largest IP packet that a device takes has changed; connections over it follow.
    pub fn set_mtu(&mut self, now: Instant, device: DeviceId, mtu: u16) -> Result<(), DeviceError> {
        let changed = self.devices.get_mut(usize::from(device.0)).ok_or(DeviceError::NoDevice)?;
        changed.set_mtu(mtu)?;
        self.mtu_changed(now, device);
        Ok(())
    }

    /// Adds a route through a device, to a gateway or to a network joined directly, or changes the one that the prefix has.
    pub fn add_route(&mut self, prefix: Prefix, device: DeviceId, gateway: Option<IpAddr>) -> Result<(), RouteError> {
        if usize::from(device.0) >= self.devices.len() {
            return Err(RouteError::NoDevice);
        }
        self.routes_version = self.routes_version.wrapping_add(1);
        self.routes.insert(prefix, Target::Via { device, gateway })
    }

    /// Takes a route away; false if there was none.
    pub fn remove_route(&mut self, prefix: Prefix) -> bool {
        self.routes_version = self.routes_version.wrapping_add(1);
        self.routes.remove(prefix)
    }

    /// The routes, those of own addresses and networks included.
    pub fn routes(&self) -> &Routes {
        &self.routes
    }

    /// Packets dropped so far.
    pub fn drops(&self) -> &Drops {
        &self.drops
    }

    /// What went over a device so far.
    pub fn counters(&self, device: DeviceId) -> Option<DeviceCounters> {
        self.devices.get(usize::from(device.0)).map(|device| device.counters)
    }

    /// Takes a frame from a device.
    #[inline]
    pub fn handle_frame<'a, P: Payload + ?Sized>(
        &'a mut self,
        now: Instant,
        device: DeviceId,
        received: Received<'a, P>,
    ) -> Handled<'a, P> {
        let known = if self.tcp.has_connections() { self.receive_fast(now, device, &received) } else { None };
        match known {
            Some(Ok(())) => Handled::Done,
            Some(Err(reason)) => {
                self.drops.count(reason);
                Handled::Dropped(reason)
            }
            None => self.handle_any_frame(now, device, device, received),
        }
    }

    /// Takes a frame to a group of stations that came over one link of several that `device` stands for. `link` is the device
    /// of that link alone, and its source filter counts.
    pub fn handle_group_frame<'a, P: Payload + ?Sized>(
        &'a mut self,
        now: Instant,
        device: DeviceId,
        link: DeviceId,
        received: Received<'a, P>,
    ) -> Handled<'a, P> {
        self.handle_any_frame(now, device, link, received)
    }

    /// Takes a frame the long way: apart, so that the short one keeps its registers.
    #[inline(never)]
    fn handle_any_frame<'a, P: Payload + ?Sized>(
        &'a mut self,
        now: Instant,
        device: DeviceId,
        link: DeviceId,
        received: Received<'a, P>,
    ) -> Handled<'a, P> {
        let captured = self.capture.as_ref().map(|capture| capture.part(received));
        let Received { header: frame, payload, marks } = received;
        let payload_bytes = payload.len();
        let mut packet = Packet { frame, payload, payload_bytes, link_bytes: 0, marks, device, link, to_group: false };
        let result = self.receive(now, &mut packet);
        if let (Some(capture), Some(part)) = (&mut self.capture, captured) {
            capture.received(now, device, &part, result.err());
        }
        if !matches!(result, Ok(Some(_))) {
            self.deliver_loopback(now);
        }
        match result {
            Ok(None) => Handled::Done,
            Ok(Some(device)) => {
                let capture = self.capture.as_mut().map(|capture| (now, capture));
                Handled::Forward(Forward { device, pieces: Pieces { packet, scratch: &mut self.scratch }, capture })
            }
            Err(reason) => {
                self.drops.count(reason);
                Handled::Dropped(reason)
            }
        }
    }

    /// Whether [`Stack::poll_transmit`] may have a frame for a device.
    #[inline]
    pub fn wants_transmit(&self, device: DeviceId) -> bool {
        !self.devices.get(usize::from(device.0)).is_none_or(Device::is_idle) || self.tcp.is_pending(device)
    }

    /// A bound of the length of the next frame that a device is to send, 0 if there is none: what is known of it without
    /// building it.
    pub fn next_frame_bytes_max(&self, now: Instant, device: DeviceId) -> usize {
        let waiting = self.devices.get(usize::from(device.0)).and_then(Device::next_bytes).unwrap_or(0);
        // Either may come first.
        waiting.max(self.next_segment_max(now, device))
    }

    /// Builds the next frame that a device is to send. `into` has to have room for the device's MTU and link header, or for what
    /// [`Stack::next_frame_bytes_max`] says; where large segments are agreed, they are made as large as it has room for. A frame
    /// that it has no room for stays.
    #[inline]
    pub fn poll_transmit(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        if !self.wants_transmit(device) {
            return None;
        }
        self.next_frame(now, device, into)
    }

    #[inline(never)]
    fn next_frame(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        // What is found is handed on as it is: a look at it here would wait for what was just stored.
        let idle = self.devices.get(usize::from(device.0)).is_none_or(Device::is_idle);
        if !idle && let frame @ Some(_) = self.pop_frame(now, device, into) {
            return frame;
        }
        match self.poll_tcp(now, device, None, into) {
            // A connection whose neighbour is not known leaves a question behind.
            None => self.pop_frame(now, device, into),
            frame @ Some(_) => frame,
        }
    }

    #[inline(never)]
    fn pop_frame(&mut self, now: Instant, device: DeviceId, into: &mut [u8]) -> Option<Transmit> {
        let (outgoing, skip) = self.devices.get_mut(usize::from(device.0))?.pop(into.len())?;
        let bytes = &outgoing.bytes[skip..];
        into[..bytes.len()].copy_from_slice(bytes);
        self.capture_sent(now, device, &into[..bytes.len()]);
        Some(Transmit { len: bytes.len(), marks: outgoing.marks })
    }

    #[inline]
    pub(crate) fn capture_sent(&mut self, now: Instant, device: DeviceId, frame: &[u8]) {
        if let Some(capture) = &mut self.capture {
            capture.sent(now, device, frame);
        }
    }

    /// When [`Stack::handle_timeout`] wants to be called, if nothing else happens. It may be a moment that has passed.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if !self.loopback.is_empty() {
            return Some(Instant::default());
        }
        let others = Instant::first(self.neighbours.timeout(), self.reassembly.timeout());
        Instant::first(others, Instant::first(self.groups.timeout(), self.tcp.timeout()))
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: Instant) {
        self.handle_neighbour_timeout(now);
        self.handle_group_timeout(now);
        while let Some((device, expired)) = self.reassembly.expire(now) {
            self.drops.count(FragmentDrop::Timeout);
            if let Some(first) = expired.first {
                self.send_error(now, device, &first, false, IcmpError::Reassembly);
            }
        }
        self.handle_tcp_timeout(now);
        self.deliver_loopback(now);
    }

    /// Opens a UDP socket at an own address, the unspecified one or a group's, and a port or 0 for any.
    pub fn udp_bind(&mut self, local: SocketAddr) -> Result<UdpId, UdpError> {
        self.bind_udp(local, false)
    }

    /// Makes a socket talk to one other side only. Nothing is sent.
    pub fn udp_connect(&mut self, id: UdpId, remote: SocketAddr) -> Result<(), UdpError> {
        let (local, _) = self.udp.addresses(id)?;
        if remote.port() == 0 || remote.is_ipv4() != local.is_ipv4() || remote.ip().is_unspecified() {
            return Err(UdpError::Address);
        }
        let on = self.udp.options(id)?.device(remote.ip());
        let from = if local.ip().is_unspecified() { self.address_towards(remote.ip(), on) } else { Some(local.ip()) };
        self.udp.connect(id, from.ok_or(UdpError::Dropped(IpDrop::NoRoute.into()))?, remote)
    }

    /// Sends a datagram to `remote`, or to the other side that the socket is connected to.
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: UdpId,
        remote: Option<SocketAddr>,
        bytes: &[u8],
    ) -> Result<(), UdpError> {
        let (local, connected) = self.udp.addresses(id)?;
        let remote = remote.or(connected).ok_or(UdpError::NotConnected)?;
        let options = self.udp.options(id)?;
        let result = self.send_udp(now, local, remote, bytes, options);
        self.deliver_loopback(now);
        result
    }

    /// The next datagram, if there is one, or what the network said of one sent.
    pub fn udp_receive(&mut self, id: UdpId) -> Result<Option<Datagram>, UdpError> {
        self.udp.receive(id)
    }

    /// The next UDP socket that has become readable since it was told last; the rest of its datagrams is not told again.
    pub fn udp_poll_event(&mut self) -> Option<UdpId> {
        self.udp.poll_ready()
    }

    /// Whether a datagram or an error waits at a UDP socket.
    pub fn udp_readable(&mut self, id: UdpId) -> Result<bool, UdpError> {
        self.udp.is_readable(id)
    }

    /// Where a socket is bound.
    pub fn udp_local(&mut self, id: UdpId) -> Result<SocketAddr, UdpError> {
        self.udp.addresses(id).map(|(local, _)| local)
    }

    /// Closes a socket with all that waits in it, and takes it out of its groups.
    pub fn udp_close(&mut self, id: UdpId) -> Result<(), UdpError> {
        for membership in self.udp.close(id)? {
            // Told as soon as time is.
            self.groups.leave(Instant::default(), membership.device, membership.group);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn is_own(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => self.own_v4.contains(address),
            IpAddr::V6(address) => self.own_v6.contains(address),
        }
    }

    /// Everybody on a link, in the obsolete form too.
    pub(crate) fn is_broadcast(&self, address: IpAddr) -> bool {
        address == IpAddr::V4(Ipv4Addr::BROADCAST)
            || matches!(self.routes.lookup(address), Some(Target::Broadcast(_) | Target::Nobody))
    }

    /// RFC 1122 3.2.1.3, RFC 1812 5.3.7: no packet comes from here, or from everybody on a network.
    #[inline]
    pub(crate) fn is_no_source(&self, from: Ipv4Addr) -> bool {
        self.no_sources.contains(from) && self.is_own_or_everybody(from)
    }

    #[inline(never)]
    fn is_own_or_everybody(&self, address: Ipv4Addr) -> bool {
        self.own_v4.contains(address) || self.is_broadcast(address.into())
    }

    #[inline]
    fn receive<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &mut Packet<'_, P>,
    ) -> Result<Outcome, DropReason> {
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
        let protocol = match device.config.medium {
            Medium::Ethernet(own) => {
                let frame = EthernetFrame::new_unchecked(header);
                let to = MacAddress(frame.dst_addr().0);
                packet.to_group = to.is_group();
                if to != own && !packet.to_group {
                    return Err(LinkDrop::OtherStation.into());
                }
                frame.ethertype()
            }
            Medium::Ip if header[0] >> 4 == 4 => EthernetProtocol::Ipv4,
            Medium::Ip => EthernetProtocol::Ipv6,
        };
        match protocol {
            EthernetProtocol::Ipv4 => self.receive_v4(now, packet),
            EthernetProtocol::Ipv6 => self.receive_v6(now, packet),
            EthernetProtocol::Arp => {
                self.input_arp(now, packet.device, packet.header())?;
                Ok(None)
            }
            EthernetProtocol::Unknown(_) => Err(LinkDrop::Protocol.into()),
        }
    }

    #[inline]
    fn receive_v4<P: Payload + ?Sized>(&mut self, now: Instant, packet: &Packet<'_, P>) -> Result<Outcome, DropReason> {
        let header = Ipv4Header::parse(packet.header(), packet.len())?;
        self.check_source_v4(packet.link, &header)?;
        if header.header_bytes > 20
            && let Err((reason, at)) = ipv4::check_options(&packet.header()[..header.header_bytes])
        {
            let error = IcmpError::Parameter { code: 0, at: at.into() };
            return Err(self.refuse(now, packet, header.total_bytes, error, reason));
        }
        // Told by one look: most packets of a host are for its first address.
        if self.own_v4.first() == Some(header.to) && !header.to.is_link_local() {
            return self.deliver_v4(now, packet, &header, packet.to_group);
        }
        self.route_v4(now, packet, &header)
    }

    #[inline]
    fn route_v4<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        header: &Ipv4Header,
    ) -> Result<Outcome, DropReason> {
        if header.to.is_multicast() || header.to.is_broadcast() {
            if header.to.is_multicast() && !self.is_joined(packet.device, header.to.into()) {
                return Err(IpDrop::NotJoined.into());
            }
            return self.deliver_v4(now, packet, header, true);
        }
        if is_martian_destination(header.to) {
            return Err(IpDrop::DestinationMartian.into());
        }
        let (hop, target) = self.routes.find(IpAddr::V4(header.to));
        match target {
            Some(Target::Local(_)) => self.deliver_v4(now, packet, header, packet.to_group),
            Some(Target::Broadcast(device)) if *device == packet.device => self.deliver_v4(now, packet, header, true),
            Some(Target::Broadcast(_)) => Err(IpDrop::Broadcast.into()),
            Some(Target::Nobody) => Err(IpDrop::DestinationMartian.into()),
            _ if !self.forwarding => Err(IpDrop::NotForUs.into()),
            _ if packet.to_group => Err(IpDrop::Broadcast.into()),
            _ if header.to.is_link_local() || header.from.is_link_local() => Err(IpDrop::DestinationMartian.into()),
            Some(&Target::Via { device, .. }) => self.forward_v4(now, packet, header, device, hop),
            None => Err(self.refuse(now, packet, header.total_bytes, IcmpError::NoRoute, IpDrop::NoRoute)),
        }
    }

    fn deliver_v4<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        header: &Ipv4Header,
        to_group: bool,
    ) -> Result<Outcome, DropReason> {
        let to_group = to_group || packet.to_group;
        if header.protocol == TCP && !header.is_fragment() {
            let (from, to) = (header.from.into(), header.to.into());
            let (at, end) = (header.header_bytes, header.total_bytes);
            self.input_tcp(now, packet, SegmentPlace { from, to, at, end, to_group, judged: true })?;
            return Ok(None);
        }
        let bytes = packet.copy(0, header.total_bytes);
        self.input_v4(now, &bytes, header, packet.device, packet.marks, to_group)?;
        Ok(None)
    }

    fn input_v4(
        &mut self,
        now: Instant,
        packet: &[u8],
        header: &Ipv4Header,
        device: DeviceId,
        marks: Marks,
        to_group: bool,
    ) -> Result<(), DropReason> {
        let (from, to) = (IpAddr::V4(header.from), IpAddr::V4(header.to));
        let input = Input {
            from,
            to,
            protocol: header.protocol,
            hop_limit: header.ttl,
            packet,
            at: header.header_bytes,
            number_at: 9,
            device,
            marks,
            to_group,
        };
        if !header.is_fragment() {
            return self.input(now, &input);
        }
        let (head, bytes) = packet.split_at(header.header_bytes);
        let key = DatagramKey { from, to, ident: header.ident.into(), protocol: header.protocol, device };
        let piece = Piece { head, offset: header.offset, bytes, more: header.more_fragments };
        let Some(datagram) = self.add_fragment(now, key, &piece, marks)? else { return Ok(()) };
        let at = datagram.head.len();
        let packet = [datagram.head, datagram.payload].concat();
        self.input(now, &Input { packet: &packet, at, ..input })
    }

    fn add_fragment(
        &mut self,
        now: Instant,
        key: DatagramKey,
        piece: &Piece<'_>,
        marks: Marks,
    ) -> Result<Option<crate::ip::reassembly::Datagram>, DropReason> {
        if marks != Marks::default() {
            return Err(LinkDrop::Marks.into());
        }
        let datagram = self.reassembly.add(now, key, piece);
        for _ in 0..self.reassembly.take_evicted() {
            self.drops.count(FragmentDrop::Evicted);
        }
        Ok(datagram?)
    }

    #[inline]
    fn receive_v6<P: Payload + ?Sized>(&mut self, now: Instant, packet: &Packet<'_, P>) -> Result<Outcome, DropReason> {
        let header = Ipv6Header::parse(packet.header(), packet.len())?;
        self.check_source_v6(packet.link, &header)?;
        if header.to.is_unspecified() || header.to.is_loopback() || is_mapped(header.to) {
            return Err(IpDrop::DestinationMartian.into());
        }
        if self.own_v6.first() == Some(header.to) && !header.to.is_unicast_link_local() {
            return self.deliver_v6(now, packet, &header, packet.to_group);
        }
        if header.to.is_multicast() {
            if scope(header.to) <= NODE_SCOPE {
                return Err(IpDrop::DestinationMartian.into());
            }
            if !self.is_joined(packet.device, header.to.into()) {
                return Err(IpDrop::NotJoined.into());
            }
            return self.deliver_v6(now, packet, &header, true);
        }
        if header.to.is_unicast_link_local() {
            if self.devices[usize::from(packet.device.0)].has(header.to.into()) {
                return self.deliver_v6(now, packet, &header, packet.to_group);
            }
            return Err(IpDrop::NotForUs.into());
        }
        let (hop, target) = self.routes.find(header.to.into());
        match target {
            Some(Target::Local(_)) => self.deliver_v6(now, packet, &header, packet.to_group),
            _ if !self.forwarding => Err(IpDrop::NotForUs.into()),
            _ if packet.to_group => Err(IpDrop::Broadcast.into()),
            _ if header.from.is_unicast_link_local() || header.from.is_unspecified() => {
                Err(IpDrop::SourceMartian.into())
            }
            Some(&Target::Via { device, .. }) => self.forward_v6(now, packet, &header, device, hop),
            Some(Target::Broadcast(_) | Target::Nobody) => Err(IpDrop::Broadcast.into()),
            None => Err(self.refuse(now, packet, header.total_bytes, IcmpError::NoRoute, IpDrop::NoRoute)),
        }
    }

    fn deliver_v6<P: Payload + ?Sized>(
        &mut self,
        now: Instant,
        packet: &Packet<'_, P>,
        header: &Ipv6Header,
        to_group: bool,
    ) -> Result<Outcome, DropReason> {
        if header.next_header == TCP {
            let (from, to) = (header.from.into(), header.to.into());
            let (at, end) = (IPV6_HEADER_LEN, header.total_bytes);
            self.input_tcp(now, packet, SegmentPlace { from, to, at, end, to_group, judged: true })?;
            return Ok(None);
        }
        let bytes = packet.copy(0, header.total_bytes);
        self.input_v6(now, &bytes, header, packet.device, packet.marks, to_group)?;
        Ok(None)
    }

    fn input_v6(
        &mut self,
        now: Instant,
        packet: &[u8],
        header: &Ipv6Header,
        device: DeviceId,
        marks: Marks,
        to_group: bool,
    ) -> Result<(), DropReason> {
        let (from, to) = (IpAddr::V6(header.from), IpAddr::V6(header.to));
        let walk = ipv6::walk(packet, header.next_header)
            .map_err(|error| self.refuse_extension(now, packet, device, to_group, error))?;
        let input = Input {
            from,
            to,
            protocol: walk.protocol,
            hop_limit: header.hop_limit,
            packet,
            at: walk.at,
            number_at: walk.number_at,
            device,
            marks,
            to_group,
        };
        let Some(fragment) = walk.fragment else { return self.input(now, &input) };
        let (head, bytes) = packet.split_at(walk.at);
        let bytes = &bytes[ipv6::FRAGMENT_BYTES..];
        let key = DatagramKey { from, to, ident: fragment.ident, protocol: 0, device };
        let piece = Piece { head, offset: fragment.offset, bytes, more: fragment.more_fragments };
        // RFC 8200 4.5: the sender is told, with the place of the payload length or that of the offset.
        let bad_at = if piece.is_uneven() { Some(4) } else { piece.is_too_long(true).then_some(walk.at + 2) };
        if let Some(at) = bad_at {
            self.send_error(now, device, packet, to_group, IcmpError::Parameter { code: 0, at });
            return Err(FragmentDrop::Malformed.into());
        }
        // RFC 6946: a fragment that is the whole is taken by itself.
        let datagram = if fragment.offset == 0 && !fragment.more_fragments {
            crate::ip::reassembly::Datagram { head: head.to_vec(), payload: bytes.to_vec() }
        } else {
            let Some(datagram) = self.add_fragment(now, key, &piece, marks)? else { return Ok(()) };
            datagram
        };
        self.input_reassembled_v6(now, datagram, walk.number_at, fragment.next_header, &input)
    }

    /// A datagram put together, with the headers of its first fragment. Extension headers behind the fragment header are walked
    /// over as if they stood in front of it.
    fn input_reassembled_v6(
        &mut self,
        now: Instant,
        datagram: crate::ip::reassembly::Datagram,
        number_at: usize,
        next_header: u8,
        input: &Input<'_>,
    ) -> Result<(), DropReason> {
        let mut packet = datagram.head;
        // The fragments' own unfragmentable parts may differ in length; the first one's counts.
        let number_at = number_at.min(packet.len() - 1);
        packet[number_at] = next_header;
        packet.extend_from_slice(&datagram.payload);
        let first = packet[6];
        let walk = ipv6::walk(&packet, first)
            .map_err(|error| self.refuse_extension(now, &packet, input.device, input.to_group, error))?;
        if walk.fragment.is_some() {
            return Err(FragmentDrop::Malformed.into());
        }
        let (protocol, at, number_at) = (walk.protocol, walk.at, walk.number_at);
        self.input(now, &Input { packet: &packet, protocol, at, number_at, ..*input })
    }

    fn refuse_extension(
        &mut self,
        now: Instant,
        packet: &[u8],
        device: DeviceId,
        to_group: bool,
        error: WalkError,
    ) -> DropReason {
        match error.report {
            Some((_, at)) if error.report_to_group => {
                self.send_error(now, device, packet, to_group, IcmpError::ParameterOfGroup { at });
            }
            Some((code, at)) => self.send_error(now, device, packet, to_group, IcmpError::Parameter { code, at }),
            None => {}
        }
        error.reason.into()
    }

    /// A segment in a packet that had to be copied: it came in fragments, behind extension headers, or from ourselves.
    fn input_tcp_copied(&mut self, now: Instant, input: &Input<'_>) -> Result<(), DropReason> {
        let Input { from, to, packet: frame, at, device, marks, to_group, .. } = *input;
        let place = SegmentPlace { from, to, at, end: frame.len(), to_group, judged: false };
        let payload: &[u8] = &[];
        let packet = Packet { frame, payload, payload_bytes: 0, link_bytes: 0, marks, device, link: device, to_group };
        self.input_tcp(now, &packet, place)
    }

    /// A whole packet for us.
    fn input(&mut self, now: Instant, input: &Input<'_>) -> Result<(), DropReason> {
        const NO_NEXT_HEADER: u8 = 59;
        match (input.protocol, input.to.is_ipv4()) {
            (1, true) | (58, false) => self.input_icmp(now, input),
            (IGMP, true) => self.input_igmp(now, input),
            (17, _) => self.deliver_udp(input).inspect_err(|reason| {
                if *reason == UdpDrop::NoSocket.into() {
                    self.send_error(now, input.device, input.packet, input.to_group, IcmpError::PortUnreachable);
                }
            }),
            (TCP, _) => self.input_tcp_copied(now, input),
            (NO_NEXT_HEADER, false) => Ok(()),
            _ => {
                let error = IcmpError::Protocol { at: input.number_at };
                self.send_error(now, input.device, input.packet, input.to_group, error);
                Err(IpDrop::Protocol.into())
            }
        }
    }

    /// Takes in what the stack has sent to itself, up to a bound: what is left is due at once.
    #[inline]
    pub(crate) fn deliver_loopback(&mut self, now: Instant) {
        if !self.loopback.is_empty() || self.tcp.sends_to_itself() {
            self.drain_loopback(now);
        }
    }

    #[inline(never)]
    fn drain_loopback(&mut self, now: Instant) {
        for _ in 0..LOOPBACK_PACKETS_MAX {
            match self.loopback.pop_front() {
                Some(bytes) => self.input_own(now, &bytes[LINK_BYTES..]),
                None if self.poll_own(now) => {}
                None => return,
            }
        }
    }

    fn input_own(&mut self, now: Instant, packet: &[u8]) {
        let (device, marks) = (DeviceId(0), Marks::default());
        let result = match Ipv4Header::parse(packet, packet.len()) {
            Ok(header) => self.input_v4(now, packet, &header, device, marks, false),
            Err(_) => match Ipv6Header::parse(packet, packet.len()) {
                Ok(header) => self.input_v6(now, packet, &header, device, marks, false),
                Err(reason) => Err(reason.into()),
            },
        };
        if let Err(reason) = result {
            self.drops.count(reason);
        }
    }
}

/// RFC 1812 5.3.7: no packet comes from network 0, a loopback, a group or a reserved address, the limited broadcast among these.
pub(crate) fn is_martian_source(from: Ipv4Addr) -> bool {
    is_martian_destination(from) || from.octets()[0] >= 224
}

/// Addresses that no packet on a link may go to.
fn is_martian_destination(to: Ipv4Addr) -> bool {
    matches!(to.octets()[0], 0 | 127 | 240..)
}

/// IPv4-mapped addresses are a way of writing, not for the wire.
pub(crate) fn is_mapped(address: Ipv6Addr) -> bool {
    address.to_ipv4_mapped().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::device::Agreed;

    fn device(address: [u8; 4]) -> DeviceConfig {
        let addresses = vec![Prefix::new(address.into(), 24).unwrap()];
        DeviceConfig { medium: Medium::Ip, mtu: 1500, addresses, agreed: Agreed::default() }
    }

    #[test]
    fn a_device_whose_routes_have_no_room_leaves_nothing_behind() {
        let mut stack: Stack = Stack::new(StackConfig::default());
        stack.routes = Routes::bounded(2 * OWN_ROUTES_MAX);
        let id = stack.add_device(device([10, 1, 0, 1])).unwrap();
        let (prefix, gateway) = (Prefix::new([0; 4].into(), 0).unwrap(), [10, 1, 0, 9].into());
        assert_eq!(stack.add_route(prefix, id, Some(gateway)), Ok(()));
        let second = IpAddr::from([10, 2, 0, 1]);
        assert_eq!(stack.add_device(device([10, 2, 0, 1])), Err(DeviceError::Full));
        assert_eq!((stack.devices.len(), stack.is_own(second)), (1, false));
        assert_eq!(stack.routes().lookup(second), Some(Target::Via { device: id, gateway: Some(gateway) }));
        assert!(stack.remove_route(prefix));
        assert_eq!(stack.add_device(device([10, 2, 0, 1])), Ok(DeviceId(1)));
        assert_eq!(stack.routes().lookup(second), Some(Target::Local(DeviceId(1))));
        assert_eq!(stack.add_route(prefix, id, None), Err(RouteError::Full));
    }
}
