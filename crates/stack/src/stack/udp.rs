//! The `udp_*` calls of applications, and the code that sends and receives datagrams.

use super::Stack;
use crate::drops::{DropReason, IpDrop, UdpDrop};
use crate::ip::input::LocalPacket;
use crate::ip::route::Target;
use crate::link::frame::DeviceId;
use crate::multicast::group::JoinError;
use crate::tcp::Storage;
use crate::time::Instant;
use crate::udp::members::{Membership, SendOptions};
use crate::udp::{Datagram, DatagramOptions, MtuDiscovery, UdpError, UdpId};
use crate::wire::address::{NODE_SCOPE, is_link_local, is_reserved, scope};
use crate::wire::checksum::Sum;
use crate::wire::ethernet::LINK_BYTES;
use crate::wire::ipv4::{Ipv4Build, forbid_fragments};
use crate::wire::ipv6::Ipv6Build;
use crate::wire::protocol::UDP;
use crate::wire::udp::{HEADER_BYTES, UdpHeader, datagram};
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU8;

/// UDP sockets: the `udp_*` methods that open and close sockets, and send and receive datagrams.
impl<S: Storage> Stack<S> {
    /// Opens a UDP socket. `local` is one of this stack's addresses, the wildcard address or a multicast group. If its port is 0,
    /// the stack chooses the port.
    pub fn udp_bind(&mut self, local: SocketAddr) -> Result<UdpId, UdpError> {
        self.bind_udp(local, false)
    }

    /// Like [`Stack::udp_bind`], but several sockets can be bound to the same address and port, if each of them is bound by this
    /// method.
    ///
    /// Each of these sockets receives the datagrams to the multicast groups that it has joined. A unicast datagram is delivered to
    /// the socket that was bound first.
    pub fn udp_bind_shared(&mut self, local: SocketAddr) -> Result<UdpId, UdpError> {
        self.bind_udp(local, true)
    }

    fn bind_udp(&mut self, local: SocketAddr, share: bool) -> Result<UdpId, UdpError> {
        let ip = local.ip();
        if !ip.is_unspecified() && !ip.is_multicast() && !self.ip.is_own(ip) {
            return Err(UdpError::NotOurs);
        }
        self.udp.bind(local, share)
    }

    /// Connects a socket to one remote address and port. No packet is sent for this.
    pub fn udp_connect(&mut self, id: UdpId, remote: SocketAddr) -> Result<(), UdpError> {
        let (local, _) = self.udp.addresses(id)?;
        if remote.port() == 0 || remote.is_ipv4() != local.is_ipv4() || remote.ip().is_unspecified() {
            return Err(UdpError::Address);
        }
        let on = self.udp.options(id)?.device(remote.ip());
        let from =
            if local.ip().is_unspecified() { self.ip.address_towards(remote.ip(), on) } else { Some(local.ip()) };
        self.udp.connect(id, from.ok_or(UdpError::Dropped(IpDrop::NoRoute.into()))?, remote)
    }

    /// Sends a datagram to `remote`. If `remote` is `None`, sends it to the address and port to which the socket is connected.
    pub fn udp_send(
        &mut self,
        now: Instant,
        id: UdpId,
        remote: Option<SocketAddr>,
        bytes: &[u8],
    ) -> Result<(), UdpError> {
        self.udp_send_with(now, id, remote, bytes, DatagramOptions::default())
    }

    /// Sends a datagram as [`Stack::udp_send`] does, with options of its own.
    ///
    /// # Errors
    /// In addition to the errors of `udp_send`: [`UdpError::NotOurs`] if the source is not one of this stack's addresses with the
    /// socket's IP version, [`UdpError::NoDevice`] if the stack has no such device, and [`UdpError::Address`] if the hop limit is 0
    /// and the destination is no multicast group.
    pub fn udp_send_with(
        &mut self,
        now: Instant,
        id: UdpId,
        remote: Option<SocketAddr>,
        bytes: &[u8],
        with: DatagramOptions,
    ) -> Result<(), UdpError> {
        let (mut local, connected) = self.udp.addresses(id)?;
        let remote = remote.or(connected).ok_or(UdpError::NotConnected)?;
        let mut options = *self.udp.options(id)?;
        if let Some(from) = with.from {
            if from.is_ipv4() != local.is_ipv4() || !self.ip.is_own(from) {
                return Err(UdpError::NotOurs);
            }
            local.set_ip(from);
        }
        if with.device.is_some_and(|device| usize::from(device.0) >= self.ip.devices.len()) {
            return Err(UdpError::NoDevice);
        }
        options.group_device = with.device.or(options.group_device);
        options.service = with.service.unwrap_or(options.service);
        if let Some(hop_limit) = with.hop_limit {
            options.group_hop_limit = hop_limit;
            match NonZeroU8::new(hop_limit) {
                Some(hop_limit) => options.hop_limit = hop_limit,
                None if remote.ip().is_multicast() => {}
                None => return Err(UdpError::Address),
            }
        }
        let via = with.device.filter(|_| is_link_local(remote.ip()));
        let result = self.send_udp(now, local, remote, bytes, options, via);
        if result.is_ok() {
            self.udp.note_sent(id, now);
        }
        self.deliver_loopback(now);
        result
    }

    /// Sets whether the time of each sent datagram is reported (`SOF_TIMESTAMPING_TX_SOFTWARE` of Linux). A datagram counts as sent when
    /// it is queued for its device.
    pub fn udp_set_send_times(&mut self, id: UdpId, on: bool) -> Result<(), UdpError> {
        self.udp.set_send_times(id, on)
    }

    /// Returns the number and the time of the oldest sent datagram whose time the application has not taken. The first datagram after the
    /// reports were switched on has the number 0. An event reports new times.
    pub fn udp_take_send_time(&mut self, id: UdpId) -> Result<Option<(u32, Instant)>, UdpError> {
        self.udp.take_send_time(id)
    }

    /// Sets what a socket does with datagrams that are longer than the MTU of their path.
    pub fn udp_set_mtu_discovery(&mut self, id: UdpId, discovery: MtuDiscovery) -> Result<(), UdpError> {
        self.udp.options(id)?.mtu_discovery = discovery;
        Ok(())
    }

    fn send_udp(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        bytes: &[u8],
        options: SendOptions,
        via: Option<DeviceId>,
    ) -> Result<(), UdpError> {
        let to = remote.ip();
        if remote.port() == 0 || remote.is_ipv4() != local.is_ipv4() || to.is_unspecified() || is_reserved(to) {
            return Err(UdpError::Address);
        }
        if bytes.len() > usize::from(u16::MAX) - HEADER_BYTES {
            return Err(UdpError::TooLong);
        }
        let on = via.or_else(|| options.device(to));
        let on = on.or_else(|| self.ip.link_for(local.ip(), to)).or_else(|| self.group_route(to));
        let from = match local.ip() {
            any if any.is_unspecified() || any.is_multicast() => self.ip.address_towards(to, on),
            bound => Some(bound),
        };
        let from = from.ok_or(UdpError::Dropped(IpDrop::NoRoute.into()))?;
        if !self.ip.may_send(from, to) {
            return Err(UdpError::Address);
        }
        let source = SocketAddr::new(from, local.port());
        let segment = datagram(source, remote, bytes).ok_or(UdpError::TooLong)?;
        let hop_limit = options.hop_limit(to);
        let packet = match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let ident = self.ip.identifications.next_v4(to);
                Ipv4Build { from, to, protocol: UDP, ttl: hop_limit, service: options.service, ident }.packet(&segment)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                Ipv6Build { from, to, protocol: UDP, hop_limit, service: options.service }.packet(&segment)
            }
            (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => return Err(UdpError::Address),
        };
        let mut packet = packet.ok_or(UdpError::TooLong)?;
        let discovery = options.mtu_discovery;
        let mtu = self.ip.mtu_towards(now, to, on, discovery.uses_path_mtu()).unwrap_or(u16::MAX);
        let fits = packet.len() - LINK_BYTES <= usize::from(mtu);
        if !fits && !discovery.fragments() {
            return Err(UdpError::TooLarge(mtu));
        }
        if fits && to.is_ipv4() && discovery.forbids_fragments() {
            forbid_fragments(&mut packet[LINK_BYTES..]);
        }
        if to.is_multicast() {
            let service = options.service;
            let sent = Datagram { from: source, to, bytes: bytes.to_vec(), at: now, on, hop_limit, service };
            if !self.loop_to_group(on, options, remote.port(), &sent) {
                return Ok(());
            }
        }
        self.ip.send_packet_within(now, packet, on, discovery.uses_path_mtu()).map_err(|reason| {
            self.ip.drops.count(reason);
            UdpError::Dropped(reason)
        })
    }

    /// Returns the next received datagram, or `None` if the socket's queue is empty. Returns [`UdpError::Network`] if the network
    /// reported an error about a datagram that this connected socket sent.
    pub fn udp_receive(&mut self, id: UdpId) -> Result<Option<Datagram>, UdpError> {
        self.udp.receive(id)
    }

    /// Returns the next UDP socket that has become readable. While a socket waits to be returned, further datagrams for it cause
    /// no further event.
    pub fn udp_poll_event(&mut self) -> Option<UdpId> {
        self.udp.poll_ready()
    }

    /// Returns true if a UDP socket has a queued datagram or error.
    pub fn udp_readable(&mut self, id: UdpId) -> Result<bool, UdpError> {
        self.udp.is_readable(id)
    }

    /// Returns the local address and port of a socket.
    pub fn udp_local(&mut self, id: UdpId) -> Result<SocketAddr, UdpError> {
        self.udp.addresses(id).map(|(local, _)| local)
    }

    /// Closes a socket. The socket's queued datagrams are discarded, and it leaves its multicast groups.
    pub fn udp_close(&mut self, id: UdpId) -> Result<(), UdpError> {
        for membership in self.udp.close(id)? {
            // This method does not know the current time. A later call that does announces that the groups were left.
            self.groups.leave(Instant::default(), membership.device, membership.group);
        }
        Ok(())
    }

    pub(super) fn deliver_udp(&mut self, now: Instant, input: &LocalPacket<'_>) -> Result<(), DropReason> {
        let segment = input.transport();
        let header = UdpHeader::parse(segment).ok_or(UdpDrop::Length)?;
        let length = usize::from(header.length);
        let segment = segment.get(..length).filter(|_| length >= HEADER_BYTES).ok_or(UdpDrop::Length)?;
        let sum = Sum::default().pseudo_header(input.from, input.to, UDP, length).bytes(segment);
        let left_out = header.checksum == 0;
        let unchecked = input.arrival.marks.checksum_unfilled || (left_out && input.to.is_ipv4());
        if !unchecked && (left_out || !sum.is_intact()) {
            return Err(UdpDrop::Checksum.into());
        }
        let from = SocketAddr::new(input.from, header.source_port);
        let on = (!input.arrival.is_own).then_some(input.arrival.device);
        let (hop_limit, service) = (input.hop_limit, input.service());
        let bytes = segment[HEADER_BYTES..].to_vec();
        let datagram = Datagram { from, to: input.to, bytes, at: now, on, hop_limit, service };
        if input.to.is_multicast() {
            return self.deliver_to_group(input.arrival.device, header.destination_port, &datagram);
        }
        Ok(self.udp.deliver(header.destination_port, datagram)?)
    }
}

impl<S: Storage> Stack<S> {
    /// Joins a multicast group on a device's link, for any source (EXCLUDE{}). The socket is a member until it leaves the group or
    /// is closed. The next call of [`Stack::handle_timeout`], which is due immediately, announces the change on the link.
    pub fn udp_join(&mut self, now: Instant, id: UdpId, group: IpAddr, device: DeviceId) -> Result<(), UdpError> {
        let (local, _) = self.udp.addresses(id)?;
        if !group.is_multicast() || is_reserved(group) || group.is_ipv4() != local.is_ipv4() {
            return Err(UdpError::NotGroup);
        }
        let addresses = self.ip.devices.get(usize::from(device.0)).map(|device| &device.config.addresses);
        if !addresses.is_some_and(|own| own.iter().any(|own| own.address().is_ipv4() == group.is_ipv4())) {
            return Err(UdpError::NoDevice);
        }
        let membership = Membership { device, group };
        self.udp.join(id, membership)?;
        self.groups.join(now, device, group).map_err(|error| {
            self.udp.leave(id, membership).unwrap_or_default();
            match error {
                JoinError::NoDevice => UdpError::NoDevice,
                JoinError::TooManyGroups => UdpError::TooManyGroups,
            }
        })
    }

    /// Leaves a multicast group on a device's link.
    pub fn udp_leave(&mut self, now: Instant, id: UdpId, group: IpAddr, device: DeviceId) -> Result<(), UdpError> {
        self.udp.leave(id, Membership { device, group })?;
        self.groups.leave(now, device, group);
        Ok(())
    }

    /// Sets the device over which this socket sends multicast datagrams. With `None`, it is the device that has the socket's
    /// address. If the socket has no specific address, it is the device of the route to the group.
    pub fn udp_set_group_device(&mut self, id: UdpId, device: Option<DeviceId>) -> Result<(), UdpError> {
        if device.is_some_and(|device| usize::from(device.0) >= self.ip.devices.len()) {
            return Err(UdpError::NoDevice);
        }
        self.udp.options(id)?.group_device = device;
        Ok(())
    }

    /// Sets the hop limit of unicast and broadcast datagrams. The default is 64.
    pub fn udp_set_hop_limit(&mut self, id: UdpId, hop_limit: NonZeroU8) -> Result<(), UdpError> {
        self.udp.options(id)?.hop_limit = hop_limit;
        Ok(())
    }

    /// Sets the type of service (IPv4) or traffic class (IPv6) of sent datagrams. The default is 0.
    pub fn udp_set_service(&mut self, id: UdpId, service: u8) -> Result<(), UdpError> {
        self.udp.options(id)?.service = service;
        Ok(())
    }

    /// Sets the hop limit of multicast datagrams. The default is 1. With 0, only members of the group on this stack receive the
    /// datagrams.
    pub fn udp_set_group_hop_limit(&mut self, id: UdpId, hop_limit: u8) -> Result<(), UdpError> {
        self.udp.options(id)?.group_hop_limit = hop_limit;
        Ok(())
    }

    /// Sets whether group members on this stack receive the multicast datagrams that this socket sends. The default is true.
    pub fn udp_set_group_loop(&mut self, id: UdpId, on: bool) -> Result<(), UdpError> {
        self.udp.options(id)?.group_loop = on;
        Ok(())
    }

    /// Returns true if a socket of this stack, or the stack itself, has joined the multicast group on this device.
    pub fn is_joined(&self, device: DeviceId, group: IpAddr) -> bool {
        self.groups.is_joined(device, group)
    }

    /// Returns the multicast groups that are joined on a device, including those that the stack itself needs, but without the
    /// groups of all hosts. A link that filters frames must deliver frames to these groups.
    pub fn groups(&self, device: DeviceId) -> impl Iterator<Item = IpAddr> {
        self.groups.on(device)
    }

    /// Returns the device of the route to a multicast group. A socket uses this device if it has neither set a device nor a
    /// specific address.
    fn group_route(&self, to: IpAddr) -> Option<DeviceId> {
        let Some(Target::Via { device, .. }) = self.ip.routes.lookup(to) else { return None };
        to.is_multicast().then_some(device)
    }

    /// Delivers a sent multicast datagram to the group's members on this stack, unless the socket has switched this off. Returns
    /// false if the datagram must not be sent on a link.
    fn loop_to_group(&mut self, on: Option<DeviceId>, options: SendOptions, port: u16, sent: &Datagram) -> bool {
        let stays = options.group_hop_limit == 0 || matches!(sent.to, IpAddr::V6(to) if scope(to) <= NODE_SCOPE);
        if let Some(device) = on.filter(|_| options.group_loop)
            && let Err(reason) = self.deliver_to_group(device, port, sent)
            && reason != UdpDrop::NoSocket.into()
        {
            self.ip.drops.count(reason);
        }
        !stays
    }

    /// Delivers a datagram to the members of its multicast group on this stack. Returns the drop reason if no member received it.
    fn deliver_to_group(&mut self, device: DeviceId, port: u16, datagram: &Datagram) -> Result<(), DropReason> {
        let copies = self.udp.deliver_to_group(device, port, datagram);
        if copies.taken == 0 {
            return Err(if copies.refused == 0 { UdpDrop::NoSocket } else { UdpDrop::QueueFull }.into());
        }
        (0..copies.refused).for_each(|_| self.ip.drops.count(UdpDrop::QueueFull));
        Ok(())
    }
}
